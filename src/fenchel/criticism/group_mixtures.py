"""Leave-group-out prediction with integrated hyperparameters, where the posterior of theta excludes the group too.

    p(theta_k | y outside I) prop. to w_k / p(y_I | y outside I, theta_k)
    p(y_n | y outside I) = sum_k p(theta_k | y outside I) p(y_n | y outside I, theta_k)

The densities come from ``leave_group_out`` at some of the points theta_k. log p(y_I | y outside I, theta) and the
moments of eta are smooth in theta and are interpolated to the other points. The contribution of the corrected evidence
to log p(y_I | ...) is small and smoother still; it is computed only at the centre and at the ends of these points.

If rows beyond the neighbours of a group would move, all other rows are fitted again at the same points. If theta
without the group lies outside of the points, the integration over theta is repeated without the group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.special import logsumexp

from ..checks import choice
from ..hyperparameters.integration import Integrated, integrate
from ..hyperparameters.integration.mixture import mixed_moments, without
from ..linalg.arrays import ArrayLike, Seed, to_numpy
from ..tasks import Jobs, run_tasks
from .group_prediction import (
    Density,
    Evidence,
    LeaveGroupOut,
    LeftOutGroups,
    RawGroups,
    groups_about,
    groups_again,
    refitted,
)

_KEPT = 0.995  # share of the weight of the points that are used
_NEAR = {2: 1.6}  # minimum distance between evaluated points, by the number of hyperparameters (2: a fine lattice)
_SHARE = 0.02  # points with a smaller weight flag no group
_AWAY = 0.25  # a group is flagged if the lightest points (1 % of the weight) have a larger weight without the group


def leave_group_out_over(
    found: Integrated,
    groups: RawGroups,
    *,
    weights: ArrayLike | None = None,
    neighbours: int = 20,
    refit: str = "flagged",
    rng: Seed = None,
    n_jobs: Jobs = None,
    progress: bool = False,
) -> LeaveGroupOut:
    """Predict each group of rows from the others, with the hyperparameters integrated out.

    Parameters
    ----------
    found : Integrated
        The result of ``integrate``.
    groups, weights, neighbours, rng, n_jobs, progress
        As in ``leave_group_out``.
    refit : "flagged", "all" or "none", default "flagged"
        Which groups are predicted by fits of all other rows. "flagged": by fits at the same theta, and by a new
        integration if theta changes much without the group; "all": by a new integration for each group.

    Returns
    -------
    LeaveGroupOut
        With ``joint``. The prediction of eta at each row is a mixture over theta of normal distributions.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters import Normal, WeightVariances, independent
    >>> from fenchel.hyperparameters.integration import integrate
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.criticism import leave_group_out_over
    >>> family = WeightVariances(np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    >>> found = integrate(Poisson(), family, np.array([2, 0, 4, 1, 9, 3, 2, 6]))
    >>> leave_group_out_over(found, np.arange(8) // 2).joint.shape
    (4,)
    """
    choice("leave_group_out", "refit", refit, ("flagged", "all", "none"))
    run: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress}
    points = _Points(found, LeftOutGroups(found.solutions[0], groups), weights, rng)
    each = points.about(neighbours)
    out, away = points.mixed(each)
    moving = np.flatnonzero(out.flagged & ~away)
    if refit == "flagged" and moving.size:
        out, away = points.mixed(points.again(each, moving, run))
    again = np.ones(away.size, dtype=bool) if refit == "all" else out.flagged
    if refit == "none" or not again.any():
        return out
    numbers, shared = np.flatnonzero(again).tolist(), _IntegrationsWithout(found, points.read, weights)
    fits = run_tasks(_IntegrationsWithout.without, numbers, shared, where="leave_group_out", **run)
    return refitted(out, points.read, numbers, fits)


class _Places:
    """Points of a mixture, some of which are evaluated; functions that are smooth in theta are interpolated.

    kept : (K,) points with nearly all of the weight, in decreasing order of weight;  w : (K,) their weights
    asked : (m,) the points that are evaluated
    corrected : (m,) which of these get a corrected evidence: the heaviest, and the ends of every hyperparameter
    """

    def __init__(self, found: Integrated) -> None:
        order = np.argsort(-found.weights)
        self.kept = order[: int(np.searchsorted(np.cumsum(found.weights[order]), _KEPT * found.weights.sum())) + 1]
        self.w = found.weights[self.kept] / found.weights[self.kept].sum()
        self.u = found.theta.u(found.thetas[self.kept])
        every = found.likelihoods[0].n_predictors > 1  # covariances are not interpolated
        apart = _NEAR.get(self.u.shape[1], 0.0)
        self._evaluated: list[int] = []
        for k, place in enumerate(self.u):
            if every or not self._evaluated or np.linalg.norm(self.u[self._evaluated] - place, axis=1).min() > apart:
                self._evaluated.append(k)
        self.asked = self.kept[self._evaluated]
        at = self.u[self._evaluated]
        self.corrected = np.zeros(self.asked.size, dtype=bool)
        self.corrected[[0, *at.argmin(axis=0), *at.argmax(axis=0)]] = True

    def at_all(self, values: np.ndarray) -> np.ndarray:
        """Interpolate functions of theta from the evaluated points (m, ...) to all points (K, ...)."""
        (m, *shape), d = values.shape, self.u.shape[1]
        if m == len(self.u):
            return values
        degree = 2 if m >= (d + 1) * (d + 2) // 2 + 2 else 1 if m > d + 1 else 0
        through = RBFInterpolator(self.u[self._evaluated], values.reshape(m, -1), kernel="cubic", degree=degree)
        return np.asarray(through(self.u)).reshape(-1, *shape)

    def gains(self, values: np.ndarray) -> np.ndarray:
        """The contribution of the corrected evidence (m, G), interpolated from some evaluated points to all of them."""
        if self.corrected.all():
            return values
        at, known = self.u[self._evaluated], np.isfinite(values[self.corrected])
        through = RBFInterpolator(at[self.corrected], np.where(known, values[self.corrected], 0.0), kernel="linear")
        return np.where(known.all(axis=0), through(at), np.nan)


class _Points:
    """Groups left out at the evaluated points, and mixed over theta."""

    def __init__(self, found: Integrated, read: LeftOutGroups, weights: ArrayLike | None, rng: Seed) -> None:
        self.found, self.read, self.weights, self.rng = found, read, weights, rng
        self.places = _Places(found)
        solutions = [found.solutions[k] for k in self.places.asked]
        evidence: list[Evidence] = ["corrected" if own else "elbo" for own in self.places.corrected]
        self.asked = list(zip(solutions, evidence, strict=True))

    def about(self, neighbours: int) -> list[LeaveGroupOut]:
        """Predictions at each evaluated point by small fits about each group."""
        return [groups_about(fit, self.read, evidence, neighbours, self.rng) for fit, evidence in self.asked]

    def again(self, each: list[LeaveGroupOut], numbers: np.ndarray, run: dict[str, Any]) -> list[LeaveGroupOut]:
        """The predictions with some groups replaced by fits of all other rows."""
        family, thetas = self.found.family, self.found.thetas[self.places.asked]
        out = []
        for one, theta, (fit, evidence) in zip(each, thetas, self.asked, strict=True):
            prior = family.at(theta[: family.theta.size])
            out.append(groups_again(one, fit, self.read, numbers, prior, self.weights, evidence, self.rng, **run))
        return out

    def mixed(self, each: list[LeaveGroupOut]) -> tuple[LeaveGroupOut, np.ndarray]:
        """The mixture over theta, and the groups (G,) without which theta changes too much for these points."""
        found, places = self.found, self.places
        known = np.stack([one.joint_gain for one in each])
        gains = places.gains(known)
        joint = np.stack([one.joint for one in each]) - known + gains
        unknown = ~np.isfinite(joint).all(axis=0)  # several predictors, or an improper cavity
        share, together = without(places.w, places.at_all(np.where(unknown, 0.0, joint)))
        rows = np.repeat(places.w[:, None], each[0].log_density.size, axis=1)  # (K, N)
        for g, targets in enumerate(self.read.targets):
            rows[:, targets] = share[:, g][:, None]
        means = np.stack([to_numpy(one.mean) for one in each])
        variances = np.stack([to_numpy(one.variance) for one in each])
        whole = len(each) == len(places.w)
        means = places.at_all(means)
        variances = variances if whole else np.exp(places.at_all(np.log(np.maximum(variances, 1e-300))))
        y = np.where(np.isnan(each[0].log_density), np.nan, found.solutions[0].y)
        logs = np.stack(
            [
                to_numpy(found.likelihoods[k].predictive_log_density(y, h, rho, self.rng))
                for k, h, rho in zip(places.kept, means, variances, strict=True)
            ]
        )
        with np.errstate(divide="ignore"):
            density = logsumexp(np.log(rows) + logs, axis=0)
        mean, variance = mixed_moments(rows, means, variances)
        counts = share[[list(places.kept).index(k) for k in places.asked]] > _SHARE
        still = (np.stack([one.flagged for one in each]) & counts).any(axis=0)
        away = unknown | (_outside(places.w, share) > _AWAY)
        out = replace(
            each[0],
            log_density=density,
            mean=mean,
            variance=variance,
            joint=np.where(unknown, np.nan, together),
            joint_gain=np.sum(share * places.at_all(np.where(unknown, np.nan, gains)), axis=0),
            moved=np.where(counts, np.stack([one.moved for one in each]), 0.0).max(axis=0),
            flagged=still | away,
        )
        return out, away


def _outside(w: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weight (G,), given the other groups, of the lightest points, which together have 1 % of the weight."""
    order = np.argsort(w)
    light = order[np.cumsum(w[order]) <= 0.01]
    return np.asarray(share[light].sum(axis=0))


class _IntegrationsWithout(NamedTuple):
    """The common arguments of the integrations without a group."""

    found: Integrated
    read: LeftOutGroups
    weights: ArrayLike | None

    def without(self, g: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Density]:
        """Log densities, means and variances of the targets of a group from the other rows, and its joint density."""
        found, at = self.found, self.read.targets[g]
        first = found.solutions[0]
        y = first.y.copy()
        y[self.read.members[g]] = np.nan
        own = found.mode.theta.size > found.family.theta.size
        options: dict[str, Any] = {"evidence": found.evidence, "learn_likelihood": own, "tol": first.tol}
        method = found.method if found.method != "none" else "auto"
        other = integrate(first.likelihood, found.family, y, weights=self.weights, method=method, **options)
        density = other.predictive().log_density(first.y)[at]
        together = float(found.log_evidence - other.log_evidence), float("nan")
        return density, other.mean[at], other.variance[at], together
