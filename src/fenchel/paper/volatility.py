"""Stochastic volatility of the pound against the dollar, 1981-85: the last column of tab:fenchelDual.

    y_t ~ N(0, exp(eta_t)),   eta_t = intercept + x_t      daily returns in percent
    x   ~ AR(1), stationary, marginal variance v, autocorrelation phi
    intercept ~ N(0, 10)

The expectation of -log p is exact, so no bound is needed. (v, phi) is the point of a grid with the largest elbo. The
precision of (x, intercept) is sparse, so that dual Newton needs linear time. Methods that need the covariance have the
same prior of eta as a dense matrix, without the intercept as a latent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import gmrf
from ..datasets import ExchangeRate, load_stochvol
from ..inference import infer
from ..likelihoods import StochasticVolatility
from ..plots import plot_contours, plot_path, plot_race
from ..priors import DenseCovariance, Features, SparsePrecision
from ..report import Picture, Pre, Section
from ..solvers import Solution
from .race import (
    LBFGS,
    NEWTON,
    OPPER_WHITE,
    WITHIN,
    RaceEntry,
    Runner,
    all_runners,
    methods_table,
    others_table,
    race,
    race_lines,
    race_numbers,
    race_table,
    started,
)
from .reproduce import Result, Settings

INTERCEPT_VARIANCE = 10.0
BAND = 20
WIDTH = 1.959964  # half width of a 95 % interval, in standard deviations


@dataclass(frozen=True)
class VolatilityGrid:
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
        """(variance, phi) with the largest elbo."""
        i, j = np.unravel_index(int(np.argmax(self.evidence)), self.evidence.shape)
        return float(self.variances[i]), float(self.phis[j])

    @property
    def at_edge(self) -> bool:
        """Whether the best point is on the border of the grid, so that a better one may be outside."""
        i, j = np.unravel_index(int(np.argmax(self.evidence)), self.evidence.shape)
        return i in (0, self.variances.size - 1) or j in (0, self.phis.size - 1)


@dataclass(frozen=True)
class VolatilityStudy:
    """The fitted series. Arrays over days are (N,).

    sd, lower, upper : posterior median and 95 % interval of the daily standard deviation exp(eta/2), in percent
    constant : the same likelihood with one variance for all days
    without_zeros : the fit without the days of no change
    """

    data: ExchangeRate
    grid: VolatilityGrid
    solution: Solution
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    constant: Solution
    without_zeros: Solution
    entries: list[RaceEntry]
    cap: float

    @property
    def zeros(self) -> np.ndarray:
        """Mask (N,) of the days without a change."""
        return np.asarray(self.data.returns == 0.0)

    @property
    def half_life(self) -> float:
        """Half-life of a deviation of the log variance, in days."""
        return float(np.log(0.5) / np.log(self.grid.best[1]))


def field(n: int) -> gmrf.MarkovField:
    """eta = intercept + AR(1) over n days."""
    return gmrf.stack([(gmrf.ar1(n), np.arange(n))], fixed_variance=INTERCEPT_VARIANCE)


def theta(variance: float, phi: float) -> np.ndarray:
    """theta of the field."""
    return np.array([0.5 * np.log(variance), 2 * np.arctanh(phi)])


def dense(n: int, variance: float, phi: float) -> DenseCovariance:
    """The same prior of eta as a dense covariance: v phi^|t - t'| + the intercept's variance."""
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return DenseCovariance(variance * phi**lag + INTERCEPT_VARIANCE)


def search(y: np.ndarray, variances: np.ndarray, phis: np.ndarray, settings: Settings) -> VolatilityGrid:
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
    return VolatilityGrid(variances, phis, evidence, gap, iterations, time.perf_counter() - seconds)


def start_line(y: np.ndarray) -> np.ndarray:
    """The common start s: the same lam on all days that have one, and alpha = 1/2 - lam, which sums to zero.

    The days of no change have alpha = 1/2 and no lam. With lam = 1/2 on the other days, their slopes would move the
    intercept, whose prior is wide, so far that most methods would not return.
    """
    moved = y != 0.0
    return np.where(moved, np.log(y.size / moved.sum()) - np.log(np.where(moved, y, 1.0) ** 2), 0.0)


def runners(prior: DenseCovariance, start: np.ndarray, quick: bool) -> list[Runner]:
    """The methods, dual Newton first; those with "dense" in their name use the dense ``prior``."""
    every = started(all_runners(BAND, quick), start)
    sparse = [one for one in every if one.name in (NEWTON, LBFGS, OPPER_WHITE, "Laplace", "EP")]
    dense = [_on_dense(one, prior) for one in every if one.name not in (LBFGS, "Laplace", "EP")]
    return [*sparse[:2], *dense, *sparse[2:]]


def _on_dense(runner: Runner, prior: DenseCovariance) -> Runner:
    """The same method, always with the dense prior."""

    def call(likelihood: Any, _: Any, y: Any, **options: Any) -> Solution:
        return runner.call(likelihood, prior, y, **options)

    return replace(runner, name=f"{runner.name}, dense", call=call, settings=f"{runner.settings}; dense prior")


def study(settings: Settings) -> VolatilityStudy:
    """Compute all results, without figures."""
    data = load_stochvol()
    y, n, likelihood = data.returns, data.returns.size, StochasticVolatility()
    rows, columns = (5, 5) if settings.quick else (11, 11)
    grid = search(y, np.geomspace(0.1, 3.0, rows), 1.0 - np.geomspace(0.2, 0.004, columns), settings)
    prior: SparsePrecision = field(n).at(theta(*grid.best))
    solution = infer(likelihood, prior, y, tol=1e-12)
    h, sd = solution.posterior.mean, np.sqrt(solution.posterior.variance)
    median, lower, upper = (np.exp((h + k * sd) / 2) for k in (0.0, -WIDTH, WIDTH))
    cap = min(settings.cap, 1.0 if settings.quick else 60.0)
    short = (NEWTON, LBFGS, f"{NEWTON}, dense", "Laplace", "EP")
    entries = race(
        (likelihood, prior, y),
        runners(dense(n, *grid.best), start_line(y), settings.quick),
        solution.elbo,
        cap=cap,
        repeats={} if settings.quick else dict.fromkeys(short, 5),
        tick=settings.tick,
    )
    return VolatilityStudy(
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
    from .volatility import page

    return page(study(settings))


# -- The page ----------------------------------------------------------------------------------------
def page(found: VolatilityStudy) -> Result:
    """Numbers, figures and sections."""
    grid, sol, best = found.grid, found.solution, found.solution.elbo
    variance, phi = grid.best
    return Result(
        name="volatility",
        title="Stochastic volatility of the pound",
        sections=[_what(found), _grid_section(found), _race_section(found)],
        summary=[
            f"variance {variance:.3g}, phi {phi:.4g}, elbo {best:.4f} (relative gap "
            f"{sol.gap / abs(best):.1e}); constant volatility {found.constant.elbo:.4f}",
            f"grid of {grid.evidence.size} certified fits: {grid.iterations} Newton iterations, {grid.seconds:.2f} s",
            *_terminal_lines(found.entries, best),
        ],
        numbers={
            "observations": found.data.returns.size,
            "zero_returns": int(found.zeros.sum()),
            "variances": grid.variances,
            "phis": grid.phis,
            "evidence": grid.evidence,
            "grid_largest_relative_gap": grid.largest_gap,
            "grid_iterations": grid.iterations,
            "grid_seconds": grid.seconds,
            "grid_best_at_edge": grid.at_edge,
            "variance": variance,
            "phi": phi,
            "half_life_days": found.half_life,
            "elbo": best,
            "gap": sol.gap,
            "elpd": sol.loo().elpd,
            "constant": {"elbo": found.constant.elbo, "elpd": found.constant.loo().elpd},
            "sd_ratio_without_zeros": _without_zeros(found),
            "dates": [str(day) for day in found.data.dates],
            "sd": found.sd,
            "lower": found.lower,
            "upper": found.upper,
            "cap": found.cap,
            "race": race_numbers(found.entries, best),
        },
    )


def _without_zeros(found: VolatilityStudy) -> np.ndarray:
    """Factor (N,) by which the daily sd would be larger without the days of no change."""
    change = np.asarray(found.without_zeros.posterior.mean) - np.asarray(found.solution.posterior.mean)
    return np.exp(change / 2)


def _terminal_lines(entries: list[RaceEntry], best: float) -> list[str]:
    """One line for each method, for the terminal."""
    lines = []
    for entry in entries:
        seconds = entry.seconds_to(best - WITHIN[-1])
        if np.isfinite(seconds):
            lines.append(f"{entry.name}: {seconds:.3g} s to within {WITHIN[-1]:g} nat")
        elif entry.capped:
            lines.append(f"{entry.name}: > {entry.seconds:.3g} s")
    return lines


def _path(found: VolatilityStudy) -> object:
    ax = plot_path(
        found.data.dates,
        found.sd,
        found.lower,
        found.upper,
        points=np.abs(found.data.returns),
        label="posterior median of the daily sd",
        points_label="absolute return",
        ylabel="percent a day",
        xlabel="date",
    )
    from matplotlib.dates import DateFormatter, MonthLocator

    ax.xaxis.set_major_locator(MonthLocator((1, 7)))
    ax.xaxis.set_major_formatter(DateFormatter("%b %Y"))
    ax.tick_params(axis="x", labelsize=9)
    ax.set_ylim(0, None)
    return ax.figure


def _grid(found: VolatilityStudy) -> object:
    grid = found.grid
    loss = grid.evidence - grid.evidence.max()
    low = float(np.floor(loss.min()))
    inner = [level for level in (-80.0, -40.0, -20.0, -10.0, -5.0, -3.0, -2.0, -1.0, -0.5) if level > low]
    ax = plot_contours(
        1.0 - grid.phis,
        grid.variances,
        loss,
        star="max",
        levels=[low, *inner, 0.0],
        xlabel="1 - phi, phi the autocorrelation of a day",
        ylabel="marginal variance of the log-variance",
        label="elbo less its maximum (nats)",
        log_x=True,
        log_y=True,
    )
    for axis, ticks in ((ax.xaxis, (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)), (ax.yaxis, (0.1, 0.2, 0.5, 1, 2, 3))):
        axis.set_ticks(list(ticks), labels=[f"{t:g}" for t in ticks])
    ax.minorticks_off()
    return ax.figure


def _race(found: VolatilityStudy) -> object:
    ax = plot_race(race_lines(found.entries), found.solution.elbo)
    ax.set_ylim(5e-5, 1e5)  # EP starts at the prior, whose elbo is extremely low
    return ax.figure


def _what(found: VolatilityStudy) -> Section:
    data, sol = found.data, found.solution
    variance, phi = found.grid.best
    calm, wild = (
        f"{data.dates[t]} ({found.sd[t]:.2f} percent, {found.lower[t]:.2f} to {found.upper[t]:.2f})"
        for t in (int(np.argmin(found.sd)), int(np.argmax(found.sd)))
    )
    inside = float(np.mean(np.abs(data.returns) < 1.96 * found.sd))
    ratio, zeros = _without_zeros(found), found.zeros
    return Section(
        "The volatility path",
        [
            f"{data.returns.size} daily returns in percent, {data.dates[0]} to {data.dates[-1]}, taken as they are: "
            f"their mean, {data.returns.mean():.3f}, is "
            f"{abs(data.returns.mean()) / (data.returns.std() / np.sqrt(data.returns.size)):.1f} standard errors from "
            "zero and is not removed. The paper lists this likelihood (last column of its Table 2) but reports no "
            "experiment with it; there is no number of the paper's to compare with.",
            Pre(
                "return_t ~ N(0, exp(eta_t)),   eta_t = intercept + x_t\n"
                f"x ~ AR(1), marginal variance v = {variance:.3g}, autocorrelation phi = {phi:.4g}\n"
                f"intercept ~ N(0, {INTERCEPT_VARIANCE:g})"
            ),
            Picture(
                _path(found),
                "Absolute daily returns as dots and over them the estimated daily standard deviation with its band, "
                "1981 to 1985",
                f"Daily standard deviation exp(eta/2), posterior median and 95 % interval. Lowest on "
                f"{calm}, highest on {wild}.",
                file="path",
            ),
            "For this likelihood the expectation of -log p(y | eta) under q is exact, so no local bound is needed: "
            f"the elbo, {sol.elbo:.4f}, is the best any Gaussian q can do, to {sol.gap:.1e} nats by the duality gap. "
            f"One variance for all days scores {found.constant.elbo:.4f}, {sol.elbo - found.constant.elbo:.1f} nats "
            f"less; leave-one-out, the sums of log predictive densities are {sol.loo().elpd:.1f} and "
            f"{found.constant.loo().elpd:.1f}. {100 * inside:.1f} % of the returns lie within 1.96 posterior median "
            "standard deviations of zero (in sample).",
            f"{int(zeros.sum())} returns are exactly zero. The paper's conjugate, lam log(2 lam / y^2) - lam, divides "
            "by y^2 and has no value there. In the coordinate used here nothing is divided: such a day has lam = 0, "
            "leaves the system that is factorised, and pulls its log-variance down with slope 1/2. It does carry "
            "information: with these days treated as unobserved the estimated standard deviation would be larger by "
            f"{100 * (np.median(ratio[zeros]) - 1):.1f} % on them (median; at most {100 * (ratio.max() - 1):.1f} % on "
            "any day).",
        ],
    )


def _grid_section(found: VolatilityStudy) -> Section:
    grid = found.grid
    variance, phi = grid.best
    rows, columns = grid.evidence.shape
    edge = " It lies on the border of the grid: a better pair may lie beyond." if grid.at_edge else ""
    return Section(
        "How persistent, how variable",
        [
            f"All {rows} x {columns} pairs were fitted, each started from its neighbour's fit: {grid.iterations} "
            f"Newton iterations in {grid.seconds:.2f} s together, every fit certified to a relative gap of at most "
            f"{grid.largest_gap:.1e}. The largest elbo is at v = {variance:.3g}, phi = {phi:.4g}: a deviation of the "
            f"log-variance halves in {found.half_life:.0f} trading days.{edge} The two trade off: a "
            "larger v goes with a smaller 1 - phi at little cost in evidence. The band above takes the pair as known, "
            "so it is a little too narrow.",
            Picture(
                _grid(found),
                "Contours of the evidence over the persistence and the variance of the log-volatility",
                "Elbo less its maximum, in nats. Star: the largest; dots: where it was computed.",
                file="grid",
            ),
        ],
    )


def _remarks(found: VolatilityStudy) -> list[str]:
    """What the table says, in words that follow from its numbers."""
    best, named = found.solution.elbo, {entry.name: entry for entry in found.entries}
    steps = [e.iterations_to(best - WITHIN[-1]) for e in found.entries[:2]]
    out = [
        f"The dual Newton is within {WITHIN[-1]:g} nat after {steps[0]:.0f} iterations, the paper's L-BFGS on the same "
        + (f"dual after {steps[1]:.0f}: " if np.isfinite(steps[1]) else "dual not before its cap: ")
        + "with an autocorrelation near 1 the prior is badly conditioned, which a first-order method feels and "
        "Newton's does not."
    ]
    unit = named["dual Newton, dense"].seconds_to(best - WITHIN[0])
    dense = [e for e in found.entries if e.name.endswith(", dense") and e.runner.same_bound][1:]
    ratios = [
        f"{e.name.removesuffix(', dense')} {e.seconds_to(best - WITHIN[0]) / unit:.3g}"
        if np.isfinite(e.seconds_to(best - WITHIN[0]))
        else f"{e.name.removesuffix(', dense')} more than {e.seconds / unit:.3g}"
        for e in dense
        if e.solution is not None and (e.capped or np.isfinite(e.seconds_to(best - WITHIN[0])))
    ]
    if ratios:
        out.append(
            f"Like with like, on the dense prior: times the dual Newton's {unit:.3g} s to {WITHIN[0]:g} nat, "
            f"{'; '.join(ratios)}."
        )
    ends = [e for e in found.entries if e.runner.same_bound and e.solution is not None and e.solution.converged]
    spread = max(abs(e.solution.elbo - best) for e in ends if e.solution is not None)
    out.append(f"The {len(ends)} methods of this bound that converged agree on it to {spread:.1e} nats.")
    return out


def _race_section(found: VolatilityStudy) -> Section:
    best, n = found.solution.elbo, found.data.returns.size
    table = race_table(found.entries, best, f"Time to come within 0.1 and 0.001 nat of {best:.4f}")
    named = {entry.name: entry for entry in found.entries}
    sparse, dense = (named[name].seconds_to(best - WITHIN[-1]) for name in ("dual Newton", "dual Newton, dense"))
    return Section(
        "The race",
        [
            f"At that pair every method fits the same posterior of {n} log-variances, on one clock and from one start "
            "(lam equal on all days that moved, the mean near the prior's), judged by the same elbo. The prior has "
            "a sparse precision, tridiagonal with one more row for the intercept. Methods that need the covariance get "
            "the same prior of eta as a dense matrix ('dense'); the dual Newton and the whitened Opper-Archambeau run "
            f"on both, so that the gain of sparsity can be told from the gain of the method: {dense / sparse:.3g} "
            f"times for the dual Newton. Each had {found.cap:g} s ('>': not enough).",
            table,
            Picture(
                _race(found),
                "Distance from the optimum against seconds for every method, both on log axes",
                "Nats below the certified optimum, cut at 1e5. Mean field, the banded factor, Laplace and EP do not "
                "optimise over all Gaussians, or optimise something else; their q is judged by the same elbo.",
                file="race",
            ),
            *_remarks(found),
            others_table(found.entries, f"What other approximations say; the best Gaussian has elbo {best:.3f}"),
            methods_table(found.entries),
        ],
    )
