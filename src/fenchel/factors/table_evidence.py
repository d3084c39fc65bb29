"""Learning the loadings, offsets and parameters of likelihoods (noise variances, cutpoints) of a factor model.

    maximise   sum_r P_r(W, b, theta) - strength/2 |W|^2 - |b - b0|^2 / 200

b0 are the offsets of a table without factors. The last term (not for Gaussian columns) keeps offsets finite, for a
level that does not occur or a column of zeros. Parameters of likelihoods, except noise variances of Gaussian columns,
have a similar term. A complete table of Gaussian columns is learned from its moments, and in closed form if the columns
share one noise (``starts.py``). Otherwise ``hyperparameters/search.py`` uses exact gradients, and fits of rows start
from the previous ones. The objective of accepted steps decreases by at most the gaps of the rows. The strength of the
prior is given, or learned by MacKay's rule at the optimum: with H_p = sum_r lam_rp E[z z'], the curvature in the
loadings of predictor p,

    strength = gamma / |W|^2,    gamma = sum_p tr H_p (H_p + strength I)^-1,   the number of well determined loadings

repeated until it converges. A long table is first learned on a sample of its rows. The evidence does not depend on a
rotation of the loadings. They are finally rotated to be orthogonal, in descending order of length, with a positive
largest entry in each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .. import gates
from ..checks import problem
from ..hyperparameters.base import Evaluated, Found, Objective
from ..hyperparameters.search import Search, SearchOptions
from ..linalg.arrays import Seed
from ..solvers.base import Callback, reporting
from .factor_model import FactorModel, Parameters, TableFit
from .starts import GaussianMoments, Starts

SAMPLE_SHARE = 5  # a table with more rows than its gate is first learned on 1 / SAMPLE_SHARE of the gate's rows
LEAST_STRENGTH = 1e-6  # least learned strength
LARGEST_STRENGTH = 1e6
MOST_SEARCHES = 12  # most searches from one start with learned strengths, whether or not they converge
SETTLED = 0.02  # log units: a smaller change of the strength counts as converged
OFFSET_PRECISION = 0.01  # precision of the prior of offsets and of the likelihoods' parameters about their start
LEAST_NOISE = 1e-6  # least noise variance relative to the variance of its column
SLOPE = 1e-9  # gradient at which a search ends, unless it has ended before
SHARPER = 1e-3  # tolerance of fits, relative to tol, if gaps made gradients too inaccurate for a search


@dataclass(kw_only=True)
class LearnedTable(Found):
    """Parameters learned from a table.

    strength : precision of the prior of loadings
    trace : list of float
        The objective after each step of the last search (with fixed strength); it never decreases.
    n_iter : number of steps of all searches from this start
    """

    solution: TableFit = field(kw_only=False)
    parameters: Parameters
    strength: float
    trace: list[float] = field(default_factory=list)
    n_iter: int = 0

    @property
    def elbo(self) -> float:
        """The evidence bound of the table at the learned parameters."""
        return self.solution.elbo

    @property
    def gap(self) -> float:
        """The certificate: the sum of the rows' gaps."""
        return self.solution.gap


class TableEvidence(Objective[LearnedTable]):
    """The objective of a table (R, D) as a function of theta: loadings, offsets, and parameters of likelihoods."""

    def __init__(self, model: FactorModel, values: np.ndarray, tol: float) -> None:
        self.model, self.values, self.tol, self.strength = model, values, tol, 1.0
        self.starts = Starts(model, values)
        self.warm: list[np.ndarray] | None = None  # starting point of the next fit
        self.sharper = 1.0  # factor of tol for fits
        complete = bool(model.gaussian.all()) and not np.isnan(values).any()
        self.moments = GaussianMoments.of(values) if complete else None  # sufficient statistics
        self.n_loadings, self.n_offsets = model.n_predictors * model.n_components, model.n_predictors
        self.held = OFFSET_PRECISION * np.repeat(~model.gaussian, model.widths)
        sizes = [own.stop - own.start for own in model.own]
        self.held_own = OFFSET_PRECISION * np.repeat(~model.gaussian, sizes)
        # position in theta of each of the likelihoods' parameters: the same for a shared noise
        self.noise = np.repeat(model.gaussian, sizes)
        shared = self.noise & (model.noise == "shared")
        fresh = ~shared | (np.cumsum(shared) == 1)
        self.place = np.cumsum(fresh) - 1
        self.place[shared] = self.place[shared & fresh]
        self.n_own = int(fresh.sum())
        self.middle = _own_of(self.starts.alone)
        parts = zip(model.likelihoods, model.own, strict=True)
        self.believed = [(one, at) for one, at in parts if any(p.prior is not None for p in one.learned)]

    def write(self, p: Parameters) -> np.ndarray:
        own = np.zeros(self.n_own)
        own[self.place] = _own_of(p)
        return np.concatenate([p.loadings.ravel(), p.offset, own])

    def read(self, theta: np.ndarray) -> Parameters:
        W, offset, own = np.split(theta, [self.n_loadings, self.n_loadings + self.n_offsets])
        each, variance = own[self.place], np.full(self.model.n_columns, np.nan)
        variance[self.model.gaussian] = np.exp(each[self.noise])
        parts = zip(self.model.likelihoods, self.model.own, self.model.gaussian, strict=True)
        likelihoods = tuple(one if noise else one.with_theta(each[at]) for one, at, noise in parts)
        return Parameters(W.reshape(self.n_offsets, -1).copy(), offset.copy(), likelihoods).with_variance(variance)

    @property
    def least_noise(self) -> np.ndarray:
        """Least noise variances (D,) of Gaussian columns, which factors may explain completely."""
        least = LEAST_NOISE * self.starts.alone.variance
        return least if self.model.noise == "column" else np.full(least.size, np.nanmin(least, initial=np.inf))

    @cached_property
    def bounds(self) -> np.ndarray:
        free = np.tile([-np.inf, np.inf], (self.n_loadings + self.n_offsets, 1))
        own, cells = np.zeros((self.n_own, 2)), [column.cells for column in self.starts.columns]
        for j, (one, at) in enumerate(zip(self.starts.alone.likelihoods, self.model.own, strict=True)):
            noise = np.array([[np.log(self.least_noise[j]), np.inf]]) if self.model.gaussian[j] else None
            own[self.place[at]] = one.theta_bounds(cells[j]) if noise is None else noise
        return np.concatenate([free, own])

    @property
    def names(self) -> list[str]:
        each = enumerate(self.model.likelihoods)
        own = dict(
            zip(self.place, [f"{name} of column {j}" for j, one in each for name in one.theta_names], strict=True)
        )
        return [
            *map("loading {}".format, range(self.n_loadings)),
            *map("offset {}".format, range(self.n_offsets)),
            *own.values(),
        ]

    def begin(self, solution: TableFit | None) -> None:
        self.warm = None if solution is None else solution.start

    def fit(self, p: Parameters) -> TableFit:
        if self.moments is not None:
            return self.moments.evidence(p)
        warm, tol = self.warm, self.sharper * self.tol
        if warm is None:  # a cold fit is as accurate as tol, its gradient only as sqrt(tol): continue from its end
            warm = self.model.evidence(self.values, p, None, tol).start
        return self.model.evidence(self.values, p, warm, tol)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        p = self.read(theta)
        fit = self.fit(p)
        W, away = p.loadings, p.offset - self.starts.alone.offset
        each = theta[self.n_loadings + self.n_offsets :][self.place]
        apart = each - self.middle
        value = fit.elbo - 0.5 * self.strength * float(np.sum(W * W)) - 0.5 * float(self.held @ (away * away))
        value -= 0.5 * float(self.held_own @ (apart * apart))
        self.solution, self.n_evaluations = fit, self.n_evaluations + 1
        self.n_newton += fit.n_iter
        if np.isfinite(value):
            self.warm = fit.start
        slopes, own = fit.own - self.held_own * apart, np.zeros(self.n_own)
        for one, at in self.believed:
            log_prior, slope = one.log_prior(each[at])
            value, slopes[at] = value + log_prior, slopes[at] + slope
        np.add.at(own, self.place, slopes)
        return value, np.concatenate([(fit.loadings - self.strength * W).ravel(), fit.offset - self.held * away, own])

    def learned(self, best: Evaluated, found: Found) -> LearnedTable:
        return LearnedTable(**vars(found), parameters=self.read(best.theta), strength=self.strength)


def learn(
    model: FactorModel,
    values: np.ndarray,
    *,
    strength: str | float = "learned",
    n_init: int = 1,
    rng: Seed = None,
    tol: float = 1e-8,
    max_iter: int = 200,
    progress: bool = False,
) -> LearnedTable:
    """Fit W, b and the likelihoods' parameters to a table (R, D) with NaN for missing cells.

    Parameters
    ----------
    strength : "learned" or float >= 0
        Prior precision of each loading.
    n_init : int
        Number of starts: the first from the table's principal components, the others random.
    rng : numpy Generator or seed
    tol : float
        Relative gap of the rows' fits; the search ends at relative steps of tol / 100.
    max_iter : int
        Most steps of each search.
    """
    generator = np.random.default_rng(rng)
    if isinstance(strength, str) and strength != "learned":
        raise problem("learn", f"strength = {strength!r}", '"learned" or a number >= 0')
    given = None if strength == "learned" else float(strength)
    evidence, found = TableEvidence(model, values, tol), list[LearnedTable]()
    n_rows = values.shape[0]
    with reporting(progress, f"factors of {n_rows} rows", None) as report:
        for k in range(max(1, n_init)):
            start = evidence.starts.principal() if k == 0 else evidence.starts.at_random(generator)
            if n_rows > gates.SAMPLED_TABLE and evidence.moments is None:
                few = values[generator.choice(n_rows, gates.SAMPLED_TABLE // SAMPLE_SHARE, replace=False)]
                start = _learn_from(TableEvidence(model, few, max(tol, 1e-6)), start, given, max_iter).parameters
            found.append(_learn_from(evidence, start, given, max_iter, report))
    found.sort(key=lambda one: -one.objective)
    best = found[0]
    best.n_evaluations, best.n_newton = evidence.n_evaluations, evidence.n_newton
    best.restarts = [(one.theta, one.objective) for one in found]
    return best


def _learn_from(
    evidence: TableEvidence, start: Parameters, strength: float | None, max_iter: int, report: Callback | None = None
) -> LearnedTable:
    """One start: a search at the given strength, or several, each with the strength learned by the previous one."""
    options = SearchOptions(np.inf, max_runs=1, ftol=0.01 * evidence.tol, memory=30, accepts_flat=True)
    evidence.strength, n_iter = 1.0 if strength is None else strength, 0
    for _ in range(MOST_SEARCHES if strength is None else 1):
        if evidence.moments is not None and evidence.model.noise == "shared":
            start = evidence.moments.shared(evidence.model, evidence.strength, float(evidence.least_noise[0]))
        theta = evidence.write(start)
        for evidence.sharper in (1.0, SHARPER):
            search = Search(evidence, max_iter, SLOPE, report, options)
            one = search.run(theta)
            n_iter, theta = n_iter + search.n_steps, one.theta
            if one.ending.code != "slope":
                break
        better = _strength(one.parameters.loadings, one.solution.second, evidence.strength)
        if strength is not None or abs(np.log(better / evidence.strength)) < SETTLED:
            break
        evidence.strength, start = better, one.parameters
    return replace(one, parameters=rotated(one.parameters), n_iter=n_iter, trace=search.trace)


def _own_of(p: Parameters) -> np.ndarray:
    """The likelihoods' parameters, in the order of columns."""
    return np.concatenate([np.zeros(0), *(own.theta for own in p.likelihoods)])


def _strength(W: np.ndarray, second: np.ndarray, size: float) -> float:
    """MacKay's update of the strength."""
    eigenvalues = np.linalg.eigvalsh(second)
    gamma = float(np.sum(eigenvalues / (eigenvalues + size)))
    return float(np.clip(gamma / max(float(np.sum(W * W)), 1e-300), LEAST_STRENGTH, LARGEST_STRENGTH))


def rotated(p: Parameters) -> Parameters:
    """Rotate to orthogonal loadings in descending order of length, each with a positive largest entry."""
    _, _, Vt = np.linalg.svd(p.loadings, full_matrices=False)
    W = p.loadings @ Vt.T
    largest = W[np.argmax(np.abs(W), axis=0), np.arange(W.shape[1])]
    return replace(p, loadings=W * np.where(largest < 0.0, -1.0, 1.0))
