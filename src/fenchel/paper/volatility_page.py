"""The page of ``volatility``: the path, the grid, the race, in words and pictures."""

from __future__ import annotations

import numpy as np

from ..plots import plot_contours, plot_path, plot_race
from ..report import Picture, Pre, Section
from .race import WITHIN, Entry, race_numbers, race_table
from .settings import Result
from .volatility import INTERCEPT_VARIANCE, Volatility


def page(found: Volatility) -> Result:
    """Numbers, figures and sections."""
    grid, sol = found.grid, found.solution
    variance, phi = grid.best
    best = sol.elbo
    figures = {"path": _path(found), "grid": _grid(found), "race": _race(found)}
    return Result(
        name="volatility",
        title="Stochastic volatility of the pound",
        sections=[_what(found, figures), _grid_section(found, figures), _race_section(found, figures)],
        summary=[
            f"variance {variance:.3g}, phi {phi:.4g}, elbo {best:.4f} (relative gap "
            f"{sol.gap / abs(best):.1e}); constant volatility {found.constant.elbo:.4f}",
            f"grid of {grid.evidence.size} certified fits: {grid.iterations} Newton iterations, {grid.seconds:.2f} s",
            *_told(found.entries, best),
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
        figures=figures,
    )


def _without_zeros(found: Volatility) -> np.ndarray:
    """By how much the daily sd would be larger with the days of no change left out (N,)."""
    change = np.asarray(found.without_zeros.posterior.mean) - np.asarray(found.solution.posterior.mean)
    return np.exp(change / 2)


def _told(entries: list[Entry], best: float) -> list[str]:
    """One line a method for the terminal."""
    lines = []
    for entry in entries:
        seconds = entry.seconds_to(best - WITHIN[-1])
        if np.isfinite(seconds):
            lines.append(f"{entry.name}: {seconds:.3g} s to within {WITHIN[-1]:g} nat")
        elif entry.capped:
            lines.append(f"{entry.name}: > {entry.seconds:.3g} s")
    return lines


def _path(found: Volatility) -> object:
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


def _grid(found: Volatility) -> object:
    grid = found.grid
    ax = plot_contours(
        1.0 - grid.phis,
        grid.variances,
        grid.evidence - grid.evidence.max(),
        star="max",
        levels=_levels(grid.evidence - grid.evidence.max()),
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


def _levels(loss: np.ndarray) -> list[float]:
    inner = [-80.0, -40.0, -20.0, -10.0, -5.0, -3.0, -2.0, -1.0, -0.5]
    low = float(np.floor(loss.min()))
    return [low, *[level for level in inner if level > low], 0.0]


def _race(found: Volatility) -> object:
    best = found.solution.elbo
    lines = [
        (e.name, e.solution.trace["seconds"], e.solution.trace["elbo"], e.solution.trace["iteration"])
        for e in found.entries
        if e.solution is not None
    ]
    ax = plot_race(lines, best)
    ax.set_ylim(5e-5, 1e5)  # EP begins at the prior, whose elbo is astronomically low
    return ax.figure


def _day(found: Volatility, t: int) -> str:
    return f"{found.data.dates[t]} ({found.sd[t]:.2f} percent, {found.lower[t]:.2f} to {found.upper[t]:.2f})"


def _what(found: Volatility, figures: dict[str, object]) -> Section:
    data, sol = found.data, found.solution
    variance, phi = found.grid.best
    calm, wild = int(np.argmin(found.sd)), int(np.argmax(found.sd))
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
                figures["path"],
                "Absolute daily returns as dots and over them the estimated daily standard deviation with its band, "
                "1981 to 1985",
                f"Daily standard deviation exp(eta/2), posterior median and 95 % interval. Lowest on "
                f"{_day(found, calm)}, highest on {_day(found, wild)}.",
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


def _grid_section(found: Volatility, figures: dict[str, object]) -> Section:
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
                figures["grid"],
                "Contours of the evidence over the persistence and the variance of the log-volatility",
                "Elbo less its maximum, in nats. Star: the largest; dots: where it was computed.",
            ),
        ],
    )


def _remarks(found: Volatility) -> list[str]:
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
    others = [(e.name, e.solution) for e in found.entries if e.name in ("Laplace", "EP") and e.solution is not None]
    if others:
        own = [f"{name} {solution.log_evidence:.3f}" for name, solution in others]
        out.append(f"Own estimates of log p(y), which are no bounds: {', '.join(own)}; the elbo is {best:.3f}.")
    return out


def _race_section(found: Volatility, figures: dict[str, object]) -> Section:
    best, n = found.solution.elbo, found.data.returns.size
    table = race_table(found.entries, best, f"Time to come within 0.1 and 0.001 nat of {best:.4f}")
    named = {entry.name: entry for entry in found.entries}
    sparse, dense = (named[name].seconds_to(best - WITHIN[-1]) for name in ("dual Newton", "dual Newton, dense"))
    settings = "; ".join(f"{e.name}: {e.runner.settings}" for e in found.entries)
    refused = [f"{e.name} refused: {e.refused}" for e in found.entries if e.refused]
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
                figures["race"],
                "Distance from the optimum against seconds for every method, both on log axes",
                "Nats below the certified optimum, cut at 1e5. Mean field, the banded factor, Laplace and EP do not "
                "optimise over all Gaussians, or optimise something else; their q is judged by the same elbo.",
            ),
            *_remarks(found),
            *refused,
            f"Settings. {settings}.",
        ],
    )
