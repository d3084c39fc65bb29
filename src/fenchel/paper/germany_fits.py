"""The fits of the Germany experiment: splits, readings of the model, grids and maxima.

train log-likelihood = elbo of the training counts,   test log-likelihood = sum_i log p(y_i | training counts)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .. import gmrf
from ..datasets import Germany
from ..inference import infer
from ..likelihoods import Poisson
from ..priors import DenseCovariance, SparsePrecision
from ..solvers import Solution
from ..tasks import run_tasks
from .race import LBFGS, RaceEntry, all_runners, race, started
from .reproduce import Settings

PAPER = (2.637, 0.088)  # the paper's maximum
N_TRAIN = 500
LEVEL_VARIANCE = 100.0
TOL = 1e-8
Pair = tuple[float, float]  # (k_u, k_v)


@dataclass(frozen=True)
class DistrictSplit:
    """Training and test districts. ``y``: counts, NaN for test districts; ``held``: NaN for training districts."""

    train: np.ndarray
    test: np.ndarray
    y: np.ndarray
    held: np.ndarray


def split(Y: np.ndarray, seed: int) -> DistrictSplit:
    """Draw 500 training districts at random; the others are for testing."""
    order = np.random.default_rng(seed).permutation(Y.size)
    train, test = np.sort(order[:N_TRAIN]), np.sort(order[N_TRAIN:])
    y, held = Y.copy(), np.full(Y.size, np.nan)
    y[test], held[test] = np.nan, Y[test]
    return DistrictSplit(train, test, y, held)


@dataclass(frozen=True)
class ModelReading:
    """One reading of the model.

    spatial : L^+ (N, N), the covariance of u for k_u = 1, for methods with a dense prior and as a check
    k_u, k_v : the grid of hyperparameters
    """

    key: str
    title: str
    field: gmrf.MarkovField
    spatial: np.ndarray
    level_variance: float
    exposure: np.ndarray | None
    k_u: np.ndarray
    k_v: np.ndarray

    def likelihood(self, rows: Any = slice(None)) -> Poisson:
        return Poisson(None if self.exposure is None else self.exposure[rows])

    def prior(self, at: Pair) -> SparsePrecision:
        """The prior of u, v (and the level) with its sparse precision."""
        return self.field.at(-0.5 * np.log(at))

    def dense_prior(self, at: Pair, rows: np.ndarray) -> DenseCovariance:
        """The same prior as the covariance of eta in the given districts."""
        S = self.spatial[np.ix_(rows, rows)] / at[0] + self.level_variance
        S[np.diag_indices_from(S)] += 1.0 / at[1]
        return DenseCovariance(S)

    @property
    def bounds(self) -> list[Pair]:
        """Bounds of log k_u and log k_v."""
        return [(float(np.log(k[0])), float(np.log(k[-1]))) for k in (self.k_u, self.k_v)]


def readings(data: Germany, quick: bool = False) -> list[ModelReading]:
    """The three readings with their grids, which contain the paper's hyperparameters and the maximum."""
    field, everyone = gmrf.bym(data.adjacency), np.arange(data.Y.size)
    level = gmrf.stack([(field, everyone)], fixed_variance=LEVEL_VARIANCE)
    laplacian = np.diag(data.adjacency.sum(axis=1)) - data.adjacency.toarray()
    mean = np.full_like(laplacian, 1.0 / data.Y.size)
    spatial = np.linalg.inv(laplacian + mean) - mean  # the map is connected: its only null vector is the constant

    def grid(low: float, high: float, per_decade: int) -> np.ndarray:
        return np.logspace(low, high, 4 if quick else round((high - low) * per_decade) + 1)

    k_u = grid(-1, 3, 4)
    return [
        ModelReading("written", "as the paper writes it", field, spatial, 0.0, None, k_u, grid(-2, 0, 8)),
        ModelReading("level", "with a level of its own", level, spatial, LEVEL_VARIANCE, None, k_u, grid(-2, 3, 4)),
        ModelReading("exposure", "with expected deaths", level, spatial, LEVEL_VARIANCE, data.E, k_u, grid(-2, 5, 3)),
    ]


@dataclass(frozen=True)
class DistrictFit:
    """One fit: its hyperparameters, train and test log-likelihood, and solution."""

    at: Pair
    train: float
    test: float
    solution: Solution

    @property
    def relative_gap(self) -> float:
        return self.solution.gap / max(1.0, abs(self.train))


def fit(
    reading: ModelReading, data: DistrictSplit, at: Pair, start: Solution | None = None, tol: float = TOL
) -> DistrictFit:
    """Fit the training counts and predict the test counts."""
    likelihood = reading.likelihood()
    sol = infer(likelihood, reading.prior(at), data.y, tol=tol, start=start)
    density = likelihood.predictive_log_density(data.held, sol.posterior.mean, sol.posterior.variance)
    return DistrictFit((float(at[0]), float(at[1])), sol.elbo, float(np.nansum(density)), sol)


@dataclass(frozen=True)
class DistrictSurface:
    """Log-likelihoods over the grid, arrays (len(k_u), len(k_v)), with gaps, iterations and time of the fits."""

    train: np.ndarray
    test: np.ndarray
    relative_gap: np.ndarray
    iterations: np.ndarray
    seconds: float

    @property
    def rank_correlation(self) -> float:
        """Rank correlation of train and test log-likelihood over the grid."""
        train, test = (np.argsort(np.argsort(values.ravel())) for values in (self.train, self.test))
        return float(np.corrcoef(train, test)[0, 1])

    def best(self, values: np.ndarray, reading: ModelReading) -> Pair:
        i, j = np.unravel_index(int(np.argmax(values)), values.shape)
        return float(reading.k_u[i]), float(reading.k_v[j])


def _row(reading: ModelReading, data: DistrictSplit, k_u: float) -> np.ndarray:
    """The fits for one k_u, each started from the previous one: (4, len(k_v))."""
    out, last = [], None
    for k_v in reading.k_v:
        one = fit(reading, data, (k_u, float(k_v)), last)
        out.append((one.train, one.test, one.relative_gap, one.solution.n_iter))
        last = one.solution
    return np.array(out).T


def surface(reading: ModelReading, data: DistrictSplit, settings: Settings) -> DistrictSurface:
    """Fit every point of the grid, with rows in parallel."""
    began = time.perf_counter()
    tasks = [(reading, data, float(k_u)) for k_u in reading.k_u]
    ended = itertools.count(1)

    def tell(*_: object) -> None:
        settings.tick(f"{reading.title}: {next(ended)} of {len(tasks)} rows of the grid")

    rows = in_parallel(_row, tasks, settings.jobs, tell)
    train, test, gap, iterations = np.stack(rows, axis=1)
    return DistrictSurface(train, test, gap, iterations.astype(int), time.perf_counter() - began)


def in_parallel(function: Any, tasks: Sequence[tuple[Any, ...]], jobs: int, hear: Any = None) -> list[Any]:
    """function(*task) for every task; ``hear(index, result)`` is called as tasks end."""
    return run_tasks(_called, tasks, function, where="reproduce", n_jobs=jobs, hear=hear)


def _called(function: Any, task: tuple[Any, ...]) -> Any:
    return function(*task)


@dataclass(frozen=True)
class Maxima:
    """The maxima of train and test log-likelihood; ``_edge``: whether each is on the border of the grid."""

    train: DistrictFit
    test: DistrictFit
    train_edge: bool
    test_edge: bool


def maxima(reading: ModelReading, data: DistrictSplit, starts: tuple[Pair, Pair], evaluations: int = 100) -> Maxima:
    """Maximise inside the grid: the train log-likelihood by L-BFGS, the test log-likelihood by Nelder-Mead."""
    last: list[Solution | None] = [None]

    def evidence(log_k: np.ndarray) -> tuple[float, np.ndarray]:
        theta = -0.5 * log_k
        sol = infer(reading.likelihood(), reading.field.at(theta), data.y, tol=1e-10, start=last[0])
        last[0] = sol
        return -sol.elbo, 0.5 * reading.field.gradient(sol, theta)

    def score(log_k: np.ndarray) -> float:
        one = fit(reading, data, tuple(np.exp(log_k)), last[0])
        last[0] = one.solution
        return -one.test

    bounds = reading.bounds
    train = minimize(evidence, np.log(starts[0]), jac=True, method="L-BFGS-B", bounds=bounds).x
    options = {"xatol": 0.01, "fatol": 1e-4, "maxfev": evaluations}
    start = min(np.log(starts[1]), train, key=score)
    test = minimize(score, start, method="Nelder-Mead", bounds=bounds, options=options).x

    def edge(log_k: np.ndarray) -> bool:
        return any(min(t - low, high - t) < 0.05 for t, (low, high) in zip(log_k, bounds, strict=True))

    return Maxima(
        fit(reading, data, tuple(np.exp(train))), fit(reading, data, tuple(np.exp(test))), edge(train), edge(test)
    )


@dataclass(frozen=True)
class Draw:
    """Another random split for reading "written": its maxima, and the loss by the paper's hyperparameters."""

    seed: int
    train: Pair
    test: Pair
    train_loss: float  # nats: maximum minus the value at the paper's hyperparameters
    test_loss: float


def draw_at(reading: ModelReading, Y: np.ndarray, seed: int, start: Pair, evaluations: int) -> Draw:
    data = split(Y, seed)
    top, there = maxima(reading, data, (start, start), evaluations), fit(reading, data, PAPER)
    return Draw(seed, top.train.at, top.test.at, top.train.train - there.train, top.test.test - there.test)


def inside_intervals(reading: ModelReading, data: DistrictSplit, one: DistrictFit, seed: int) -> int:
    """Number of held-out counts inside their central 95 % predictive interval, from 20,000 draws."""
    rng, i = np.random.default_rng(seed), data.test
    mean, sd = one.solution.posterior.mean[i], np.sqrt(one.solution.posterior.variance[i])
    rate = np.exp(mean + sd * rng.standard_normal((20_000, i.size)))
    rate *= 1.0 if reading.exposure is None else reading.exposure[i]
    low, high = np.quantile(rng.poisson(np.minimum(rate, 1e15)), [0.025, 0.975], axis=0)
    return int(((low <= data.held[i]) & (data.held[i] <= high)).sum())


# -- timing of all methods at one setting of the Germany experiment --------------------------------
BANDWIDTH = 25


@dataclass(frozen=True)
class Race:
    """Timings of all methods at one setting: first dual Newton with the dense prior, last those with the sparse one.

    best, best_gap : the certified optimum and its gap
    sparse_elbo : the optimum with the sparse prior
    newton, newton_dense, lbfgs : fits from the default start to a relative gap of 1e-8, to count iterations
    """

    title: str
    at: Pair
    best: float
    best_gap: float
    sparse_elbo: float
    newton: Solution
    newton_dense: Solution
    lbfgs: Solution
    entries: list[RaceEntry]
    cap: float

    @property
    def ends(self) -> dict[str, float]:
        """Final elbo minus the certified optimum (nats) of each method with this bound that converged or came near."""
        shared = [(e.name, e.solution, e.capped) for e in self.entries if e.runner.same_bound and e.solution]
        near = [(n, s) for n, s, capped in shared if s.converged or (s.ending.code == "callback" and not capped)]
        return {n: s.elbo - self.best for n, s in near}

    @property
    def late(self) -> list[str]:
        """Methods with this bound that stalled or reached the time limit."""
        return [e.name for e in self.entries if e.runner.same_bound and e.name not in self.ends]


def race_at(reading: ModelReading, data: DistrictSplit, at: Pair, title: str, cap: float, settings: Settings) -> Race:
    """Time all methods at one setting on the training districts, from the same start: the prior mean and lam = y.

    The default start suits the dual but is far from the optimum for the primal methods, which would need several
    times as long. It is used only to count iterations of the dual.
    """
    rows, quick, tick = data.train, settings.quick, settings.tick
    s = np.log(np.where(np.isnan(data.y), 1.0, data.y) / (1.0 if reading.exposure is None else reading.exposure))
    dense = (reading.likelihood(rows), reading.dense_prior(at, rows), data.y[rows])
    sparse = (reading.likelihood(), reading.prior(at), data.y)
    top, twin = infer(*dense, tol=1e-12), infer(*sparse, tol=1e-12)
    methods = all_runners(BANDWIDTH, quick)
    on_dense = started(methods, s[rows])
    on_sparse = [replace(dual, name=f"{dual.name}, sparse prior") for dual in started(methods[:2], s)]
    repeats = {r.name: (2 if quick else 3) if LBFGS in r.name else 5 for r in (*on_dense[:2], *on_sparse)}
    options: dict[str, Any] = {
        "cap": cap,
        "tol": TOL,
        "repeats": repeats,
        "tick": lambda what: tick(f"{title}: {what}"),
    }
    entries = race(dense, on_dense, top.elbo, **options) + race(sparse, on_sparse, top.elbo, **options)
    return Race(
        title=title,
        at=at,
        best=top.elbo,
        best_gap=top.gap,
        sparse_elbo=twin.elbo,
        newton=infer(*sparse, tol=TOL),
        newton_dense=infer(*dense, tol=TOL),
        lbfgs=infer(*sparse, method="lbfgs", tol=TOL, max_iter=100 if quick else 2000),
        entries=entries,
        cap=cap,
    )
