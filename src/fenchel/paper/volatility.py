"""Stochastic volatility of the pound against the dollar, 1981-85: the last column of tab:fenchelDual.

    y_t ~ N(0, exp(eta_t)),   eta_t = intercept + x_t      daily returns in percent
    x   ~ AR(1), stationary, marginal variance v, autocorrelation phi
    intercept ~ N(0, 10)

The expectation of -log p is exact, so no bound is needed. (v, phi) is the point of a grid with the largest elbo. The
precision of (x, intercept) is sparse: the dual Newton needs linear time. Rivals that need the covariance get the same
prior of eta as a dense matrix, which spares them the intercept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import gmrf
from ..datasets import ExchangeRate, load_stochvol
from ..inference import infer
from ..likelihoods import StochasticVolatility
from ..priors import DenseCovariance, Features, SparsePrecision
from ..solvers import Solution
from .race import Entry, Method, Runner, race
from .settings import Result, Settings

INTERCEPT_VARIANCE = 10.0
BAND = 20
WIDTH = 1.959964  # of a 95 % interval, in standard deviations


@dataclass(frozen=True)
class Grid:
    """The evidence over (variance, phi), each fit certified and started from its neighbour's.

    evidence : the elbo (len(variances), len(phis))
    largest_gap : the largest relative duality gap among the fits
    iterations, seconds : of all fits together
    """

    variances: np.ndarray
    phis: np.ndarray
    evidence: np.ndarray
    largest_gap: float
    iterations: int
    seconds: float

    @property
    def best(self) -> tuple[float, float]:
        """(variance, phi) of the largest elbo."""
        i, j = np.unravel_index(int(np.argmax(self.evidence)), self.evidence.shape)
        return float(self.variances[i]), float(self.phis[j])

    @property
    def at_edge(self) -> bool:
        """Whether the best point lies on the border of the grid, so that a better one may lie beyond."""
        i, j = np.unravel_index(int(np.argmax(self.evidence)), self.evidence.shape)
        return i in (0, self.variances.size - 1) or j in (0, self.phis.size - 1)


@dataclass(frozen=True)
class Volatility:
    """The fitted series. Arrays over days are (N,).

    sd, lower, upper : posterior median and 95 % interval of the daily standard deviation exp(eta/2), in percent
    constant : the same likelihood with one variance for all days
    without_zeros : the fit with the days of no change left out
    """

    data: ExchangeRate
    grid: Grid
    solution: Solution
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    constant: Solution
    without_zeros: Solution
    entries: list[Entry]
    cap: float

    @property
    def zeros(self) -> np.ndarray:
        """Days without a change."""
        return np.asarray(self.data.returns == 0.0)

    @property
    def half_life(self) -> float:
        """Days until a deviation of the log-variance has halved."""
        return float(np.log(0.5) / np.log(self.grid.best[1]))


def field(n: int) -> gmrf.MarkovField:
    """eta = intercept + AR(1) over n days."""
    return gmrf.stack([(gmrf.ar1(n), np.arange(n))], fixed_variance=INTERCEPT_VARIANCE)


def theta(variance: float, phi: float) -> np.ndarray:
    """The field's own hyperparameters."""
    return np.array([0.5 * np.log(variance), 2 * np.arctanh(phi)])


def dense(n: int, variance: float, phi: float) -> DenseCovariance:
    """The same prior of eta as a covariance, in closed form: v phi^|t - t'| + the intercept's variance."""
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return DenseCovariance(variance * phi**lag + INTERCEPT_VARIANCE)


def search(y: np.ndarray, variances: np.ndarray, phis: np.ndarray, settings: Settings) -> Grid:
    """Fit every pair of the grid."""
    model, likelihood = field(y.size), StochasticVolatility()
    evidence, gap, iterations, seconds = np.empty((variances.size, phis.size)), 0.0, 0, time.perf_counter()
    above: Solution | None = None
    for i, variance in enumerate(variances):
        last = above
        for j, phi in enumerate(phis):
            last = infer(likelihood, model.at(theta(variance, phi)), y, start=last)
            if not last.converged:
                raise RuntimeError(f"volatility: variance {variance:g}, phi {phi:g}: {last.status}")
            above = last if j == 0 else above
            evidence[i, j], iterations = last.elbo, iterations + last.n_iter
            gap = max(gap, last.gap / max(1.0, abs(last.elbo)))
        settings.tick(f"grid: variance {variance:.3g}, elbo up to {evidence[i].max():.2f}")
    return Grid(variances, phis, evidence, gap, iterations, time.perf_counter() - seconds)


def start_line(y: np.ndarray) -> np.ndarray:
    """s of the start all methods share: lam equal on all days that have one, and alpha = 1/2 - lam summing to zero.

    The days of no change have alpha = 1/2 and no lam. With lam = 1/2 on the others their pull would throw the wide
    intercept far out, from where most rivals do not come back.
    """
    moved = y != 0.0
    return np.where(moved, np.log(y.size / moved.sum()) - np.log(np.where(moved, y, 1.0) ** 2), 0.0)


def runners(prior: DenseCovariance, start: np.ndarray, quick: bool) -> list[Runner]:
    """The field of the race, the dual Newton first; those whose name says so work on the dense ``prior``."""
    from . import rivals as b

    def sparse(name: str, call: Method, words: str, same_bound: bool = True, **options: Any) -> Runner:
        return Runner(name, partial(call, start=start, **options), f"{words}; sparse prior", same_bound)

    def dense(name: str, call: Method, words: str, same_bound: bool = True, **options: Any) -> Runner:
        ready = partial(call, start=start, **options)
        return Runner(
            f"{name}, dense", lambda likelihood, _, y, **kw: ready(likelihood, prior, y, **kw), words, same_bound
        )

    oa, chol = b.opper_archambeau, b.primal_cholesky
    field = [
        sparse("dual Newton", infer, "mirror Newton"),
        sparse("dual L-BFGS", infer, "the paper's: 20 pairs, feasible Wolfe steps", method="lbfgs"),
        dense("dual Newton", infer, "mirror Newton"),
        dense("Opper-Archambeau", oa, "over (m, lam) as the paper has it, L-BFGS"),
        sparse("Opper-Arch., whitened", oa, "its mean in whitened coordinates, L-BFGS", mean="white"),
        dense("Opper-Arch., whitened", oa, "the same", mean="white"),
        dense("primal Cholesky", chol, "over the mean and a full factor of V, L-BFGS"),
        dense("primal (m, V)", b.primal_full, "over the mean and V itself, L-BFGS"),
        dense("coordinate ascent", b.coordinate_ascent, "Khan et al. 2012, rank-one updates"),
        dense("mean field", b.mean_field, "V diagonal, L-BFGS", False),
        dense(f"Cholesky, band {BAND}", chol, f"{BAND} diagonals below the main one", False, bandwidth=BAND),
        sparse("Laplace", b.laplace, "the mode and its curvature", False),
        sparse("EP", b.ep, "damped, all sites at once, from sites at zero", False),
    ]
    return field[:4] if quick else field


def study(settings: Settings) -> Volatility:
    """Compute everything; nothing is drawn."""
    data = load_stochvol()
    y, n, likelihood = data.returns, data.returns.size, StochasticVolatility()
    rows, columns = (5, 5) if settings.quick else (11, 11)
    grid = search(y, np.geomspace(0.1, 3.0, rows), 1.0 - np.geomspace(0.2, 0.004, columns), settings)
    prior: SparsePrecision = field(n).at(theta(*grid.best))
    solution = infer(likelihood, prior, y, tol=1e-12)
    h, sd = solution.posterior.mean, np.sqrt(solution.posterior.variance)
    median, lower, upper = (np.exp((h + k * sd) / 2) for k in (0.0, -WIDTH, WIDTH))
    cap = min(settings.cap, 1.0 if settings.quick else 60.0)
    short = ("dual Newton", "dual L-BFGS", "dual Newton, dense", "Laplace", "EP")
    entries = race(
        (likelihood, prior, y),
        runners(dense(n, *grid.best), start_line(y), settings.quick),
        solution.elbo,
        cap=cap,
        repeats={} if settings.quick else dict.fromkeys(short, 5),
        tick=settings.tick,
    )
    return Volatility(
        data=data,
        grid=grid,
        solution=solution,
        sd=median,
        lower=lower,
        upper=upper,
        constant=infer(likelihood, Features(np.ones((n, 1)), INTERCEPT_VARIANCE), y),
        without_zeros=infer(likelihood, prior, np.where(y == 0.0, np.nan, y), start=solution),
        entries=entries,
        cap=cap,
    )


def run(settings: Settings) -> Result:
    """Fit, measure and draw."""
    from .volatility_page import page

    return page(study(settings))
