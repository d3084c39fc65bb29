"""Leave-group-out prediction: each row, or each group as a whole, is predicted from the rows outside its group.

    I the rows left out, J the rows whose eta changes most without them, B = I + J
    p(eta_B | y outside B)                the cavity of B: q without all of its sites, a Gaussian
    p(eta_I | y outside I)                a small fit of the rows J alone, with that cavity as the prior of eta_B
    log p(y_I | y outside I)              the difference in evidence of two such fits, with and without y_I

Only the sites of rows far from the group are unchanged. If rows outside B would move too, the group is flagged, and
all other rows are fitted again if a prior is given.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ..checks import choice, count, problem
from ..corrections.sites import counted, observations
from ..inference import infer
from ..linalg.arrays import ArrayLike, Seed, to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import Prior
from ..priors.latent_priors import DenseCovariance
from ..row_scores import RowScores
from ..solvers.solution import Solution
from ..tasks import Jobs, run_tasks, seed_of
from .cavities import Cavities

RawGroups = ArrayLike | Sequence[Iterable[int]]
Evidence = Literal["elbo", "corrected"] | None  # the evidence for joint densities; None: these are not computed
Density = tuple[float, float]  # a log density by the elbo, and the correction to it
_UNKNOWN: Density = (float("nan"), float("nan"))
_STILL = 0.4  # sds: a group is flagged if the mean of a row beyond its neighbours moves more without it
_LEAST = 1e-3  # sds: rows that move less are not neighbours


@dataclass(frozen=True, repr=False)
class LeaveGroupOut(RowScores):
    """Predictions of rows without their groups.

    log_density : log p(y_n | y outside the group of n) (N,), NaN where y is unobserved
    mean, variance : of eta_n, (N,) or (N, C); variance is (N, C, C) for correlated predictors
    groups : tuple of arrays
        The observed rows of each group.
    labels : list
        The labels of the groups.
    joint : array (G,)
        log p(y_I | y outside I); NaN with several predictors for each observation, or if it was not requested.
    joint_gain : array (G,)
        The part of it that comes from the corrected evidence, beyond the elbo.
    moved : array (G,)
        Largest change, in sds, of the mean of a row that was not fitted again without the group.
    flagged : bool (G,)
        Whether ``moved`` is above 0.4 and the group was not predicted by a refit of all other rows.
    refitted : bool (G,)
        Whether the group was predicted by a refit of all other rows.
    """

    log_density: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    groups: tuple[np.ndarray, ...]
    labels: list[Hashable]
    joint: np.ndarray
    joint_gain: np.ndarray
    moved: np.ndarray
    flagged: np.ndarray
    refitted: np.ndarray

    def units(self, values: np.ndarray) -> np.ndarray:
        """Sums over groups of values of rows (N,); with overlapping groups the values of rows."""
        rows = np.concatenate([np.zeros(0, dtype=int), *self.groups])
        if np.unique(rows).size < rows.size:  # each row has a group of its own, and these overlap
            return super().units(values)
        return np.array([values[group].sum() for group in self.groups])


def leave_group_out(
    solution: Solution,
    groups: RawGroups,
    *,
    prior: Prior | None = None,
    weights: ArrayLike | None = None,
    neighbours: int = 20,
    refit: str = "flagged",
    joint: bool = False,
    rng: Seed = None,
    n_jobs: Jobs = None,
    progress: bool = False,
) -> LeaveGroupOut:
    """Predict each group of rows from the others.

    Parameters
    ----------
    solution : Solution
        A fit by ``infer``, or ``Learned.solution``.
    groups : array (N,) of labels, or N lists of rows
        Rows with the same label are left out together. Alternatively, for each row the indices of the rows that are
        left out when it is predicted (the row itself always is); ``correlated_rows`` makes such lists.
    prior : Prior, optional
        The prior of the fit, such as ``Learned.prior``, which refits need.
    weights : array (N,), optional
        The weights of the fit.
    neighbours : int, default 20
        Number of rows outside the group that are fitted again without it; with 0 all other sites are unchanged.
    refit : "flagged", "all" or "none", default "flagged"
        Which groups are predicted by a refit of all other rows. Without a prior "flagged" only flags them.
    joint : bool, default False
        Whether to compute the joint density of each group too.
    rng : Generator or seed, optional
        For likelihoods with several predictors.
    n_jobs : int, None or Dask client
        Parallel refits (``fenchel.tasks``).
    progress : bool, default False
        Whether to show progress.

    Returns
    -------
    LeaveGroupOut

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.priors import DenseCovariance
    >>> from fenchel.criticism import leave_group_out
    >>> x = np.linspace(0, 3, 12)
    >>> K = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    >>> sol = fenchel.infer(Poisson(), DenseCovariance(K), np.arange(12) % 4)
    >>> out = leave_group_out(sol, np.repeat([0, 1, 2, 3], 3))
    >>> len(out.groups), out.log_density.shape, bool(out.flagged.any())
    (4, (12,), False)
    """
    choice("leave_group_out", "refit", refit, ("flagged", "all", "none"))
    if refit == "all" and prior is None:
        raise problem("leave_group_out", 'refit="all" without a prior', "prior=, that of the fit")
    read = LeftOutGroups(solution, groups)
    evidence: Evidence = "corrected" if joint else None
    out = groups_about(solution, read, evidence, neighbours, rng)
    again = np.ones(len(read.members), dtype=bool) if refit == "all" else out.flagged
    if refit == "none" or prior is None or not again.any():
        return out
    run: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress}
    return groups_again(out, solution, read, np.flatnonzero(again), prior, weights, evidence, rng, **run)


def groups_about(
    solution: Solution, read: LeftOutGroups, evidence: Evidence, neighbours: int, rng: Seed
) -> LeaveGroupOut:
    """Predict all groups by small fits about them; ``evidence``: that for joint densities, or None."""
    return _Local(solution, count("leave_group_out", "neighbours", neighbours), evidence, rng).run(read)


def groups_again(
    out: LeaveGroupOut,
    solution: Solution,
    read: LeftOutGroups,
    numbers: np.ndarray,
    prior: Prior,
    weights: ArrayLike | None,
    evidence: Evidence,
    rng: Seed,
    **run: Any,
) -> LeaveGroupOut:
    """The predictions with some groups replaced by fits of all other rows."""
    evidence = evidence if np.ndim(out.mean[0]) == 0 else None
    whole = (solution.elbo, _gain(solution)) if evidence == "corrected" else (solution.elbo, 0.0)
    shared = _FitsWithout(solution, read, prior, weights, evidence, whole, seed_of(rng))
    fits = run_tasks(_FitsWithout.without, numbers.tolist(), shared, where="leave_group_out", **run)
    return refitted(out, read, numbers.tolist(), fits)


def _gain(fit: Solution) -> float:
    """The corrected evidence minus the elbo."""
    return float(fit.corrected().log_evidence - fit.elbo)


class LeftOutGroups:
    """The rows that are left out together (``members``), and those of them that are predicted (``targets``)."""

    def __init__(self, solution: Solution, groups: Any) -> None:
        n, seen = solution.y.shape[0], ~np.isnan(solution.y)
        self.members: list[np.ndarray] = []
        self.targets: list[np.ndarray] = []
        self.labels: list[Hashable] = []
        lists = isinstance(groups, (list, tuple)) and len(groups) and all(np.ndim(g) == 1 for g in groups)
        if lists:
            self._of_rows(groups, n, seen)
        else:
            labels = np.asarray(groups)
            if labels.shape != (n,):
                raise problem("leave_group_out", f"groups has shape {labels.shape}", f"({n},) labels or {n} lists")
            levels, code = np.unique(labels, return_inverse=True)
            order = np.argsort(code, kind="stable")
            for label, rows in zip(levels, np.split(order, np.cumsum(np.bincount(code))[:-1]), strict=True):
                rows = rows[seen[rows]]
                if rows.size:
                    self._add(label.item() if hasattr(label, "item") else label, rows, rows)
        if not self.members:
            raise problem("leave_group_out", "no group has an observed row", "at least one")

    def _of_rows(self, groups: Sequence[Any], n: int, seen: np.ndarray) -> None:
        if len(groups) != n:
            raise problem("leave_group_out", f"{len(groups)} lists of rows", f"one for each of the {n} rows")
        for i in np.flatnonzero(seen):
            rows = np.unique(np.r_[i, np.asarray(list(groups[int(i)]), dtype=np.int64)])
            if rows[0] < 0 or rows[-1] >= n:
                raise problem("leave_group_out", f"groups[{i}] names row {rows[0]} or {rows[-1]}", f"0 to {n - 1}")
            self._add(int(i), rows[seen[rows]], np.array([i]))

    def _add(self, label: Hashable, members: np.ndarray, targets: np.ndarray) -> None:
        self.labels.append(label)
        self.members.append(members)
        self.targets.append(targets)


class _Local:
    """Predictions of groups by small fits of the group and its neighbours."""

    def __init__(self, solution: Solution, neighbours: int, evidence: Evidence, rng: Seed) -> None:
        self.solution, self.neighbours, self.rng = solution, neighbours, rng
        self.cavities, self.times = Cavities(solution.posterior), counted(solution)
        self.evidence = evidence if self.cavities.n_predictors == 1 else None
        self.start = to_numpy(solution.s)
        self.loss = observations(solution).bound() if self.evidence == "elbo" else np.zeros(0)

    def run(self, read: LeftOutGroups) -> LeaveGroupOut:
        solution, own = self.solution, self.cavities
        mean, variance = (to_numpy(v).copy() for v in solution.posterior.cavity())
        together, gain, moved = np.full((3, len(read.members)), np.nan)
        for g, (members, targets) in enumerate(zip(read.members, read.targets, strict=True)):
            at = own.place[members]
            at = at[at >= 0]  # rows without curvature have no site to remove
            centre, spread, (together[g], gain[g]), moved[g] = self.one(at)
            wanted = np.isin(own.active[at], targets)
            mean[own.active[at[wanted]]], variance[own.active[at[wanted]]] = centre[wanted], spread[wanted]
        y = np.full(solution.y.shape, np.nan)
        targets = np.concatenate(read.targets)
        y[targets] = solution.y[targets]
        density = np.asarray(to_numpy(solution.likelihood.predictive_log_density(y, mean, variance, self.rng)))
        one = mean.shape[1] == 1
        return LeaveGroupOut(
            density,
            mean[:, 0] if one else mean,
            variance[:, 0] if one else variance,
            tuple(read.members),
            read.labels,
            together + gain,
            gain,
            moved,
            ~(moved <= _STILL),
            np.zeros(moved.size, dtype=bool),
        )

    def one(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, Density, float]:
        """Mean and variance of eta at the rows of a group, its log density, and the largest move of other rows."""
        own = self.cavities
        columns = own.columns(at)
        alone = own.without(at, columns)
        moves = own.moved(at, columns, alone)
        moves[at] = -1.0
        near = np.argsort(-moves, kind="stable")[: self.neighbours]
        near = near[moves[near] > _LEAST]
        rest = np.delete(moves, near)
        outside = float(rest.max(initial=0.0))
        block = np.r_[at, near]
        try:
            prior = self._prior(block)
            fit = self._fit(prior, block, at.size) if near.size else None
            whole = self._whole(prior, block) if self.evidence is not None and at.size else _UNKNOWN
        except NotPositiveDefinite:  # without log-concavity a cavity may be improper
            return alone.mean, own.marginal(alone, at), _UNKNOWN, float("inf")
        if fit is None:
            return alone.mean, own.marginal(alone, at), whole, outside
        gain = _gain(fit) if self.evidence == "corrected" else 0.0
        density = whole[0] - fit.elbo, whole[1] - gain
        moments = fit.posterior.moments[0], fit.posterior.cavity()[1]  # the rows of the group are unobserved here
        mean, variance = (to_numpy(v)[: at.size] for v in moments)
        return mean, variance, density, outside

    def _whole(self, prior: DenseCovariance, block: np.ndarray) -> Density:
        """The evidence of all rows of a block under their cavity as prior; the optimal q is that of the fit.

        elbo = -1/2 (log|1 + C Lam| - lam'rho + alpha'C alpha) - sum f
        """
        if self.evidence == "corrected":
            fit = self._fit(prior, block, 0)
            return fit.elbo, _gain(fit)
        alpha, lam = self.cavities.alpha[block, 0], self.cavities.lam[block, 0]
        C = to_numpy(prior.covariance)
        spread = lam @ (self.cavities.sd[block, 0] ** 2)
        kept = np.linalg.slogdet(np.eye(block.size) + C * lam)[1] - spread + alpha @ C @ alpha
        return float(-0.5 * kept - self.loss[block].sum()), 0.0

    def _prior(self, block: np.ndarray) -> DenseCovariance:
        own = self.cavities
        cavity = own.without(block)
        covariance = cavity.blocks[0] if len(cavity.blocks) == 1 else np.stack(cavity.blocks)
        mean = cavity.mean.ravel() if own.correlated or own.n_predictors == 1 else cavity.mean
        extra = own.extra[block]
        return DenseCovariance(covariance, mean=mean, extra_variance=extra if extra.any() else 0.0)

    def _fit(self, prior: DenseCovariance, block: np.ndarray, hidden: int) -> Solution:
        rows = self.cavities.active[block]
        y = self.solution.y[rows].copy()
        y[:hidden] = np.nan
        start = self.start[rows]  # neighbours move little without the group
        return infer(self.solution.likelihood.take(rows), prior, y, weights=self.times[rows], start=start)


class _FitsWithout(NamedTuple):
    """The common arguments of the fits without a group; ``whole`` is the evidence of all rows, elbo and gain."""

    solution: Solution
    read: LeftOutGroups
    prior: Prior
    weights: ArrayLike | None
    evidence: Evidence
    whole: Density
    rng: Seed

    def without(self, g: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Density]:
        """Log densities, means and variances of the targets of a group from the other rows, and its joint density."""
        solution, at = self.solution, self.read.targets[g]
        y = solution.y.copy()
        y[self.read.members[g]] = np.nan
        fit = infer(solution.likelihood, self.prior, y, start=solution, tol=solution.tol, weights=self.weights)
        h, rho = (to_numpy(v)[at] for v in (fit.posterior.mean, fit.posterior.spread))
        density = to_numpy(solution.likelihood.take(at).predictive_log_density(solution.y[at], h, rho, self.rng))
        if self.evidence is None:
            return np.asarray(density), h, rho, _UNKNOWN
        gain = self.whole[1] - _gain(fit) if self.evidence == "corrected" else 0.0
        return np.asarray(density), h, rho, (self.whole[0] - fit.elbo, gain)


def refitted(out: LeaveGroupOut, read: LeftOutGroups, again: list[int], fits: Sequence[Any]) -> LeaveGroupOut:
    """The predictions with some groups replaced by the results of refits."""
    fields = [v.copy() for v in (out.log_density, out.mean, out.variance, out.joint, out.joint_gain)]
    density, mean, variance, together, gains = fields
    for g, (one, h, rho, (plain, gain)) in zip(again, fits, strict=True):
        at = read.targets[g]
        density[at], mean[at], variance[at] = one, h, rho
        if not np.isnan(plain):
            together[g], gains[g] = plain + (0.0 if np.isnan(gain) else gain), gain
    done = np.zeros(out.moved.size, dtype=bool)
    done[again] = True
    return replace(
        out,
        log_density=density,
        mean=mean,
        variance=variance,
        joint=together,
        joint_gain=gains,
        flagged=out.flagged & ~done,
        refitted=done,
    )
