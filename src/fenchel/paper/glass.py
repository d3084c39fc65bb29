"""Six kinds of glass: a multinomial logit with Gaussian process priors, over a grid of its two hyperparameters.

    p(y_n = k | eta) = softmax(eta_n)_k,   eta^(k) ~ N(0, Sigma), k = 1, ..., K-1, independent
    Sigma_ij = sigma^2 exp(-1/2 |x_i - x_j|^2 / s)            (the paper prints a stray minus)

Section "Multi-Way GP Classification" of the paper: 80 % of the rows train, features standardised by the training rows,
an 11 x 11 grid over log(s) and log(sigma). Then all methods are timed at the best point of the grid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from ..datasets import Glass, load_glass
from ..inference import infer
from ..likelihoods import MultinomialLogit
from ..priors import DenseCovariance
from ..solvers import Solution
from ..tasks import run_tasks
from .race import LBFGS, NEWTON, RaceEntry, Runner, all_runners, race
from .reproduce import Result, Settings, Tick, silent

LOG_S, LOG_SIGMA = np.linspace(-1.0, 6.0, 11), np.linspace(-1.0, 4.0, 11)
TOL = 1e-6  # relative gap at every point of a grid
MARKERS = (1, 3, 5, 7, 9, 20, 30, 40, 50)  # as in the paper
K = 6
LIKELIHOODS: dict[str, Callable[[], MultinomialLogit]] = {
    "log-sum, five predictors (the paper's)": lambda: MultinomialLogit(K, "last", "log-sum"),
    "tilted, five predictors": lambda: MultinomialLogit(K, "last", "tilted"),
    "log-sum, six predictors": lambda: MultinomialLogit(K, None, "log-sum"),
    "tilted, six predictors": lambda: MultinomialLogit(K, None, "tilted"),
}
PAPERS, TILTED = list(LIKELIHOODS)[:2]


@dataclass(frozen=True)
class GlassSplit:
    """Training and test rows, features standardised by the training rows.

    distance : squared distances, training x training and test x training
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    features: tuple[str, ...]

    @cached_property
    def distance(self) -> tuple[np.ndarray, np.ndarray]:
        return squared(self.X, self.X), squared(self.X_test, self.X)

    @cached_property
    def chance(self) -> float:
        """Bits for each test row if all rows are predicted by the training frequencies (one added to each class)."""
        counts = np.bincount(self.y.astype(int), minlength=K) + 1.0
        return float(-np.log2(counts / counts.sum())[self.y_test.astype(int)].mean())


def squared(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """|a_i - b_j|^2, exactly zero for equal rows."""
    return np.asarray(((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=-1))


def split(data: Glass, seed: int, without: str | None = None) -> GlassSplit:
    """Split off a random 80 % of the rows for training; ``without`` leaves a feature out."""
    n = data.y.size
    order = np.random.default_rng(seed).permutation(n)
    train, test = np.sort(order[: round(0.8 * n)]), np.sort(order[round(0.8 * n) :])
    keep = [j for j, name in enumerate(data.feature_names) if name != without]
    X = data.X[:, keep]
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    names = tuple(data.feature_names[j] for j in keep)
    return GlassSplit(X[train], data.y[train], X[test], data.y[test], names)


def kernel(distance: np.ndarray, log_s: float, log_sigma: float) -> np.ndarray:
    """sigma^2 exp(-1/2 distance / s)."""
    return np.asarray(np.exp(2 * log_sigma - 0.5 * distance * np.exp(-log_s)))


@dataclass(frozen=True)
class GlassSurface:
    """The evidence over the grid. Arrays are (len(log_sigma), len(log_s)).

    negative : -elbo, the bound on the negative log marginal likelihood (nats)
    gap : relative duality gap;   iterations : of each fit
    bits : prediction error in bits for each test row (Monte Carlo predictive), or None
    seconds, predict_seconds : of all fits, kernels included, and of all predictions
    repeated : number of fits that did not converge from the previous fit and were repeated from the default start
    """

    log_s: np.ndarray
    log_sigma: np.ndarray
    negative: np.ndarray
    gap: np.ndarray
    iterations: np.ndarray
    bits: np.ndarray | None
    seconds: float
    predict_seconds: float
    repeated: int

    @property
    def star(self) -> tuple[int, int]:
        i, j = np.unravel_index(int(np.argmin(self.negative)), self.negative.shape)
        return int(i), int(j)

    @property
    def best(self) -> tuple[float, float]:
        """(log s, log sigma) at the best point."""
        i, j = self.star
        return float(self.log_s[j]), float(self.log_sigma[i])

    @property
    def inside(self) -> bool:
        """Whether the best point is inside of the grid."""
        (i, j), (rows, columns) = self.star, self.negative.shape
        return 0 < i < rows - 1 and 0 < j < columns - 1


def search(
    data: GlassSplit,
    likelihood: MultinomialLogit,
    grid: tuple[np.ndarray, np.ndarray],
    *,
    warm: bool = True,
    bits: bool = True,
    tick: Tick = silent,
) -> GlassSurface:
    """Fit every point, back and forth along log(sigma) for each log(s), each fit started from the previous one."""
    log_s, log_sigma = grid
    shape = (log_sigma.size, log_s.size)
    negative, gap, errors, iterations = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape, dtype=int)
    spent, predicting, repeated, last = 0.0, 0.0, 0, None
    for j, at_s in enumerate(log_s):
        for i in range(log_sigma.size)[:: 1 if j % 2 == 0 else -1]:
            began = time.perf_counter()
            prior = DenseCovariance(kernel(data.distance[0], at_s, log_sigma[i]))
            last = infer(likelihood, prior, data.y, tol=TOL, start=last if warm else None)
            if warm and not last.converged:
                last, repeated = infer(likelihood, prior, data.y, tol=TOL), repeated + 1
            middle = time.perf_counter()
            negative[i, j], iterations[i, j] = -last.elbo, last.n_iter
            gap[i, j] = last.gap / max(1.0, abs(last.elbo))
            if bits:
                errors[i, j] = prediction(data, last, at_s, log_sigma[i])[0].mean()
            spent, predicting = spent + middle - began, predicting + time.perf_counter() - middle
        tick(f"grid: log s = {at_s:.1f}, {spent:.1f} s of fits")
    return GlassSurface(
        log_s, log_sigma, negative, gap, iterations, errors if bits else None, spent, predicting, repeated
    )


def prediction(
    data: GlassSplit, solution: Solution, log_s: float, log_sigma: float, rng: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """-log2 of the predictive probability of each test row's class, and all predictive probabilities (M, K)."""
    cross = kernel(data.distance[1], log_s, log_sigma)
    variance = np.full(data.y_test.size, np.exp(2 * log_sigma))
    mean, spread = solution.posterior.predict(cross=cross, variance=variance)
    p = np.asarray(solution.likelihood.predictive_probabilities(mean, spread, rng))
    own = p[np.arange(data.y_test.size), data.y_test.astype(int)]
    return -np.log2(np.maximum(own, np.finfo(float).tiny)), p


@dataclass(frozen=True)
class Star:
    """The results at the best point of a grid.

    bits : mean prediction error of a test row;   bits_se : its standard error over the test rows
    bits_mc : standard deviation of ``bits`` over seeds of the Monte Carlo predictive
    accuracy : share of test rows whose most probable class is the true one
    """

    name: str
    log_s: float
    log_sigma: float
    elbo: float
    bits: float
    bits_se: float
    bits_mc: float
    accuracy: float
    inside: bool
    largest_gap: float


def star(name: str, data: GlassSplit, likelihood: MultinomialLogit, surface: GlassSurface, draws: int = 1) -> Star:
    """Fit again at the best point of a grid, to a relative gap of 1e-10, and predict."""
    log_s, log_sigma = surface.best
    solution = infer(likelihood, DenseCovariance(kernel(data.distance[0], log_s, log_sigma)), data.y, tol=1e-10)
    each, p = prediction(data, solution, log_s, log_sigma)
    again = [prediction(data, solution, log_s, log_sigma, rng)[0].mean() for rng in range(1, draws)]
    return Star(
        name,
        log_s,
        log_sigma,
        solution.elbo,
        float(each.mean()),
        float(each.std(ddof=1) / np.sqrt(each.size)),
        float(np.std([each.mean(), *again], ddof=1)) if again else np.nan,
        float((p.argmax(axis=1) == data.y_test).mean()),
        surface.inside,
        float(surface.gap.max()),
    )


def star_of(name: str, seed: int, without: str | None, grid: tuple[np.ndarray, np.ndarray]) -> Star:
    """The whole analysis with the paper's bound for one split of the data, as a parallel task."""
    data, likelihood = split(load_glass(), seed, without), LIKELIHOODS[PAPERS]()
    return star(name, data, likelihood, search(data, likelihood, grid, bits=False))


def shared_latents(data: GlassSplit, log_s: float, log_sigma: float) -> DenseCovariance:
    """The same prior on eta, with one latent for equal rows so that Sigma is invertible."""
    X, place = np.unique(data.X, axis=0, return_inverse=True)
    rows = np.arange(data.y.size)
    W = sparse.csr_array((np.ones(rows.size), (rows, place.ravel())), shape=(rows.size, X.shape[0]))
    return DenseCovariance(kernel(squared(X, X), log_s, log_sigma), design=W)


def runners(quick: bool) -> list[Runner]:
    """The methods in the order of the table, dual Newton first."""
    return all_runners(10, quick)


def agreement(model: tuple[Any, Any, Any], entries: Sequence[RaceEntry], cap: float, tick: Tick) -> list[RaceEntry]:
    """Methods that came within 1e-3 nats in time, run again to a relative gap of 1e-8."""
    best = np.inf  # no method is stopped for being close to the optimum
    again = [e.runner for e in entries if e.runner.same_bound and e.solution is not None and not e.capped]
    return race(model, again, best, cap=cap, tick=lambda what: tick(f"to the end: {what}"))


@dataclass(frozen=True)
class GlassStudy:
    """All results of the experiment.

    surfaces, stars : grid and best point for each of ``LIKELIHOODS``
    cold : the paper's grid again, with every point from the default start
    tilted_there : the tilted elbo at the best point of the paper's bound
    without : best points with one feature left out;   splits : best points for other random splits
    best : certified optimum at the best point;   cap : time limit of each method, in seconds
    entries, ends : timings, and the methods that succeeded, run until their own convergence
    """

    data: GlassSplit
    surfaces: dict[str, GlassSurface]
    stars: dict[str, Star]
    cold: GlassSurface
    tilted_there: float
    without: list[Star]
    splits: list[Star]
    best: Solution
    entries: list[RaceEntry]
    ends: list[RaceEntry]
    cap: float

    def seconds_to(self, name: str, distance: float) -> tuple[float, bool]:
        """Seconds that a method took to come within ``distance`` nats; True if this is only a lower limit."""
        entry = next(e for e in self.entries if e.name == name)
        seconds = entry.seconds_to(self.best.elbo - distance)
        return (seconds, False) if np.isfinite(seconds) else (entry.seconds, True)


def study(settings: Settings) -> GlassStudy:
    """Compute grids, best points, features, splits and timings."""
    grid, tick = (LOG_S[2::3], LOG_SIGMA[1::3][:3]) if settings.quick else (LOG_S, LOG_SIGMA), settings.tick
    glass = load_glass()
    data = split(glass, settings.seed)
    surfaces, stars = {}, {}
    for name in list(LIKELIHOODS)[: 2 if settings.quick else None]:
        likelihood = LIKELIHOODS[name]()
        surfaces[name] = search(data, likelihood, grid, tick=lambda what, name=name: tick(f"{name}: {what}"))  # type: ignore[misc]
        stars[name] = star(name, data, likelihood, surfaces[name], draws=2 if settings.quick else 10)
    cold = search(data, LIKELIHOODS[PAPERS](), grid, warm=False, bits=False, tick=lambda what: tick(f"cold {what}"))
    without, splits = _many(settings, glass, grid)
    log_s, log_sigma = surfaces[PAPERS].best
    prior = shared_latents(data, log_s, log_sigma)
    model = (LIKELIHOODS[PAPERS](), prior, data.y)
    best = infer(*model, tol=1e-12)
    cap = min(settings.cap, 1.0) if settings.quick else settings.cap
    repeats = {NEWTON: 5, LBFGS: 1 if settings.quick else 5}
    entries = race(model, runners(settings.quick), best.elbo, cap=cap, repeats=repeats, tick=tick)
    ends = agreement(model, entries, cap, tick)
    there = infer(LIKELIHOODS[TILTED](), prior, data.y)
    return GlassStudy(data, surfaces, stars, cold, there.elbo, without, splits, best, entries, ends, cap)


def _star(_: None, task: tuple[Any, ...]) -> Star:
    return star_of(*task)


def _many(settings: Settings, glass: Glass, grid: tuple[np.ndarray, np.ndarray]) -> tuple[list[Star], list[Star]]:
    """Best points with a feature left out, and for other splits, in ``settings.jobs`` processes."""
    dropped = glass.feature_names[:1] if settings.quick else glass.feature_names
    seeds = range(settings.seed + 1, settings.seed + (2 if settings.quick else 11))
    tasks = [(f"without {name}", settings.seed, name, grid) for name in dropped]
    tasks += [(f"seed {seed}", seed, None, grid) for seed in seeds]  # type: ignore[misc]

    def tell(_: int, done: Star) -> None:
        settings.tick(f"{done.name}: {done.elbo:.2f}")

    out = run_tasks(_star, tasks, None, where="reproduce", n_jobs=settings.jobs, hear=tell)
    return out[: len(dropped)], out[len(dropped) :]


def run(settings: Settings) -> Result:
    """Fit, time the methods, and draw the page."""
    from .glass_page import page

    return page(study(settings), settings)
