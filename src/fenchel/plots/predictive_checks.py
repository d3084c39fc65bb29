"""Data beside what a model makes: counts, densities, shares and survival, each from plain arrays.

S(t) = prod_{t_k <= t} (1 - d_k / n_k)                              d_k events at t_k, n_k at risk
V = sum_{t_k <= t} d_k / (n_k (n_k - d_k))                          Greenwood's variance of log S
S^{exp(+- z sqrt(V) / log S)}                                       its interval, on the scale of log(-log S)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ..checks import problem
from ..row_scores import pit_counts
from .base import BLUE, GREY, PALETTE, axes_for, finish_axes, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MADE = "made by the model, 95 %"
_CURVES = 50  # densities of made data sets that are drawn
_GRID = 200  # points of each curve


def _both(where: str, y: Any, made: Any) -> tuple[np.ndarray, np.ndarray]:
    data, drawn = np.asarray(y, dtype=np.float64), np.atleast_2d(np.asarray(made, dtype=np.float64))
    if data.ndim != 1 or not data.size or drawn.shape[1] != data.size:
        raise problem(where, f"y {data.shape} and made {drawn.shape}", "(N,) and (S, N)")
    if not (np.isfinite(data).all() and np.isfinite(drawn).all()):
        raise problem(where, "a value is not finite", "numbers, rows that were not observed left out")
    return data, drawn


def plot_rootogram(y: Any, made: Any, ax: Axes | None = None, *, bins: int = 40, xlabel: str = "") -> Axes:
    """How often each count occurs, on the scale of square roots: the data as bars, what a model made as bands.

    Parameters
    ----------
    y : array (N,) of counts
    made : array (S, N)
        Data sets that the model made.
    bins : int
        Counts stand alone up to so many of them, and are taken together beyond.
    xlabel : str

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_rootogram
    >>> rng = np.random.default_rng(0)
    >>> ax = plot_rootogram(rng.poisson(3.0, 200), rng.poisson(3.0, (100, 200)), xlabel="accidents")
    """
    data, drawn = _both("plot_rootogram", y, made)
    ax = axes_for(ax, 5.6, 3.4)
    low, high = float(data.min()), float(max(data.max(), np.quantile(drawn, 0.999)))
    step = max(1.0, np.ceil((high - low + 1.0) / bins))
    edges = np.arange(low - 0.5, high + 0.5 + step, step)
    counts = np.array([np.histogram(row, edges)[0] for row in drawn])
    middle, seen = (edges[:-1] + edges[1:]) / 2, np.histogram(data, edges)[0]
    lower, upper = np.sqrt(np.quantile(counts, [0.025, 0.975], axis=0))
    ax.bar(middle, np.sqrt(seen), width=0.8 * step, color="#cccccc", label="data")
    ax.vlines(middle, lower, upper, color=BLUE, linewidth=2.0, label=_MADE)
    ax.plot(middle, np.sqrt(counts.mean(axis=0)), ".", color=BLUE, markersize=5)
    ticks = [t for t in ax.get_yticks() if t >= 0.0]
    ax.set_yticks(ticks, labels=[f"{t**2:g}" for t in np.round(ticks, 6)])
    return finish_axes(ax, xlabel, "rows (square-root scale)")


def plot_bars(y: Any, made: Any, values: Any, names: Any, ax: Axes | None = None, *, xlabel: str = "") -> Axes:
    """How often each level occurs: bars of the data, a band of data sets that a model made.

    Parameters
    ----------
    y : array (N,)
    made : array (S, N)
    values : array (K,)
        The levels, as y has them.
    names : K names of them
    xlabel : str

    Returns
    -------
    matplotlib Axes
    """
    data, drawn = _both("plot_bars", y, made)
    ax = axes_for(ax, 5.6, 3.4)
    place = np.arange(len(values))
    counts = np.array([[(row == value).sum() for value in values] for row in drawn])
    lower, upper = np.quantile(counts, [0.025, 0.975], axis=0)
    ax.bar(place, [(data == value).sum() for value in values], width=0.7, color="#cccccc", label="data")
    ax.vlines(place, lower, upper, color=BLUE, linewidth=2.5, label=_MADE)
    ax.plot(place, counts.mean(axis=0), "o", color=BLUE, markersize=5)
    ax.set_xticks(place, labels=[short_name(name) for name in names], rotation=0 if len(place) < 9 else 60)
    return finish_axes(ax, xlabel, "rows")


def plot_density(y: Any, made: Any, ax: Axes | None = None, *, xlabel: str = "", positive: bool = False) -> Axes:
    """The density of the data, and those of data sets that a model made, by a Gaussian kernel of one width.

    ``y`` (N,), ``made`` (S, N); ``positive`` for numbers above 0, whose logs are smoothed. Returns the Axes.
    """
    data, drawn = _both("plot_density", y, made)
    ax = axes_for(ax, 5.6, 3.4)
    positive = positive and bool((data > 0.0).all() and (drawn > 0.0).all())
    at, back = (np.log, np.exp) if positive else (np.asarray, np.asarray)
    data, drawn = at(data), at(drawn[:_CURVES])
    low, high = np.quantile(drawn, [0.001, 0.999])
    low, high = min(float(low), float(data.min())), max(float(high), float(data.max()))
    spread = min(float(data.std()), float(np.subtract(*np.quantile(data, [0.75, 0.25]))) / 1.34) or float(data.std())
    width = 0.9 * (spread or (high - low) / 10 or 1.0) * data.size**-0.2
    x = np.linspace(low - 2 * width, high + 2 * width, _GRID)
    for k, row in enumerate([*drawn, data]):
        last = k == len(drawn)
        look = {"color": "black", "linewidth": 1.6} if last else {"color": BLUE, "linewidth": 0.5, "alpha": 0.35}
        word = "data" if last else "made by the model" if k == 0 else None
        curve = _smoothed(row, x, width)
        ax.plot(back(x), curve / np.exp(x) if positive else curve, label=word, **look)  # type: ignore[arg-type]
    if positive:
        ax.set_xlim(0.0, float(np.exp(np.quantile(data, 0.995) + width)))
    ax.set_ylim(bottom=0.0)
    return finish_axes(ax, xlabel, "density")


def _smoothed(values: np.ndarray, x: np.ndarray, width: float) -> np.ndarray:
    """A kernel density estimate at an even grid: counts in fine bins, smoothed."""
    step = x[1] - x[0]
    counts = np.histogram(values, np.append(x - step / 2, x[-1] + step / 2))[0]
    apart = (x[:, None] - x) / width
    return np.asarray(np.exp(-0.5 * apart**2) @ counts) / (values.size * width * np.sqrt(2 * np.pi))


def plot_reliability(
    probability: Any, successes: Any, trials: Any = 1.0, ax: Axes | None = None, *, bins: int = 10, made: Any = None
) -> Axes:
    """Whether probabilities are kept: the share of successes among rows of about equal probability, against it.

    Parameters
    ----------
    probability : array (N,)
    successes : array (N,)
        0 or 1, or how many of the trials.
    trials : array (N,) or float
    bins : int
        Groups of rows, with about as many trials each.
    made : array (S, N), optional
        Successes of data sets that the model made: they give each group an interval.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_reliability
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(500)
    >>> ax = plot_reliability(p, rng.random(500) < p)
    >>> ax.get_ylabel()
    'share of successes'
    """
    p, k = np.asarray(probability, dtype=np.float64), np.asarray(successes, dtype=np.float64)
    n = np.broadcast_to(np.asarray(trials, dtype=np.float64), p.shape)
    if p.ndim != 1 or k.shape != p.shape or not p.size or not n.sum() > 0.0:
        raise problem("plot_reliability", f"probability {p.shape} and successes {k.shape}", "as many of both, (N,)")
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise problem("plot_reliability", "a probability lies outside of 0 and 1", "numbers between them")
    ax = axes_for(ax, 4.4, 4.0)
    order = np.argsort(p, kind="stable")
    share = (np.cumsum(n[order]) - n[order] / 2) / n.sum()
    group = np.minimum((bins * share).astype(int), bins - 1)
    alone = [order[group == g] for g in np.unique(group)]
    total = np.array([n[rows].sum() for rows in alone])
    x = np.array([(p[rows] * n[rows]).sum() for rows in alone]) / total
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
    if made is not None:
        drawn = np.atleast_2d(np.asarray(made, dtype=np.float64))
        each = np.array([drawn[:, rows].sum(axis=1) for rows in alone]) / total[:, None]
        lower, upper = np.quantile(each, [0.025, 0.975], axis=1)
        ax.vlines(x, lower, upper, color=BLUE, linewidth=2.0, alpha=0.6, label=_MADE)
    shares = np.array([k[rows].sum() for rows in alone]) / total
    ax.plot(x, shares, "o", color="black", markersize=5, label="data")
    reach = 1.0 if max(x.max(), shares.max()) > 0.5 else 1.3 * float(max(x.max(), shares.max(), 0.05))
    ax.set_xlim(-0.02 * reach, 1.02 * reach)
    ax.set_ylim(-0.02 * reach, 1.02 * reach)
    return finish_axes(ax, "probability by the model", "share of successes")


def plot_survival(time: Any, event: Any, made: Any, ax: Axes | None = None, *, xlabel: str = "time") -> Axes:
    """The share that lasts longer: of the data by Kaplan and Meier, and a band of data sets that a model made.

    ``time`` (N,), ``event`` (N,) 1 where it happened and 0 where it had not by then, ``made`` (S, N) durations to the
    event. Returns the Axes.
    """
    when, drawn = _both("plot_survival", time, made)
    happened = np.broadcast_to(np.asarray(event, dtype=np.float64), when.shape) > 0.0
    ax = axes_for(ax, 5.6, 3.4)
    x = np.linspace(0.0, float(when.max()), _GRID)
    share = 1.0 - np.array([np.searchsorted(np.sort(row), x, side="right") for row in drawn]) / when.size
    lower, upper = np.quantile(share, [0.025, 0.975], axis=0)
    ax.fill_between(x, lower, upper, color=BLUE, alpha=0.3, linewidth=0, label=_MADE)
    steps, survived, _, _ = kaplan_meier(when, happened)
    ax.step(np.r_[0.0, steps], np.r_[1.0, survived], where="post", color="black", linewidth=1.4, label="data")
    ax.set_ylim(0.0, 1.02)
    return finish_axes(ax, xlabel, "share that lasts longer")


def plot_pit(upto: Any, below: Any = None, ax: Axes | None = None, *, bins: int | None = None) -> Axes:
    """A histogram of probability integral transforms: even where predictions are right.

    High at both ends: predictions are too sure; in the middle: not sure enough; sloping: too low or too high.

    Parameters
    ----------
    upto : array (N,)
        P(y <= y_n) of what was seen, in predictions that have not seen it; NaN where nothing was.
    below : array (N,), optional
        P(y < y_n) of counts and levels: each row is spread evenly from ``below`` to ``upto``.
    bins : int, optional
        Default: 10 below 200 rows, 20 from there.

    Returns
    -------
    matplotlib Axes
        The band holds each bar 95 times in 100 if the predictions are right and the rows independent.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_pit
    >>> ax = plot_pit(np.random.default_rng(0).random(500))
    >>> len(ax.patches)
    20
    """
    end = np.asarray(upto, dtype=np.float64)
    begin = end if below is None else np.asarray(below, dtype=np.float64)
    if end.ndim != 1 or begin.shape != end.shape or not (~np.isnan(end)).any():
        raise problem("plot_pit", f"upto {end.shape} and below {begin.shape}", "as many of both, (N,), one observed")
    seen = ~np.isnan(end)
    n = int(seen.sum())
    bins = (10 if n < 200 else 20) if bins is None else bins
    ax = axes_for(ax, 5.6, 3.4)
    each = pit_counts(begin[seen], end[seen], bins)
    lower, upper = pit_band(each)
    edges = np.linspace(0.0, 1.0, bins + 1)
    ax.bar(edges[:-1], each.mean(axis=0) * bins, 1.0 / bins, align="edge", color="#cccccc", edgecolor="white")
    ax.fill_between([0.0, 1.0], lower, upper, color=BLUE, alpha=0.2, linewidth=0, label="right predictions, 95 %")
    ax.axhline(1.0, color=BLUE, linewidth=1.0)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, max(ax.get_ylim()[1], 1.15 * upper))
    return finish_axes(ax, "probability of less than was seen, without it", "rows, in shares of their mean")


def pit_band(each: np.ndarray) -> tuple[float, float]:
    """Between which heights a bar is 95 times in 100 if it should be 1: of rows' parts of bars (N, bins).

    A bar of points is a binomial count. Rows that are spread over several bars vary by less: by the sum over bars of
    the squares of their parts, which is 1 for a point.
    """
    from scipy import stats

    n, bins = each.shape
    spread = float((each**2).sum(axis=1).mean())
    if spread > 1.0 - 1e-9:
        low, high = stats.binom.ppf([0.025, 0.975], n, 1.0 / bins)
        return float(low) * bins / n, float(high) * bins / n
    reach = 1.96 * np.sqrt(max(bins * spread - 1.0, 0.0) / n)
    return max(0.0, 1.0 - reach), 1.0 + reach


def plot_calibration(u: Any, ax: Axes | None = None) -> Axes:
    """Distribution functions of values that should be uniform (a frame, one column each), less the uniform's own.

    The band holds 95 % of such functions at each place.
    """
    from scipy import stats

    ax = axes_for(ax, 5.6, 3.4)
    n, at = len(u), np.linspace(0.0, 1.0, _GRID + 1)
    lower, upper = (stats.binom.ppf(q, n, at) / n - at for q in (0.025, 0.975))
    ax.fill_between(at, lower, upper, color=GREY, alpha=0.25, linewidth=0, label="uniform, 95 %")
    for k, name in enumerate(u.columns):
        places = np.sort(np.asarray(u[name]))
        below = np.searchsorted(places, at, side="right") / n
        ax.plot(at, below - at, color=BLUE, alpha=0.5, linewidth=0.9, label="each quantity" if k == 0 else None)
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    return finish_axes(ax, "probability below the truth", "share of data sets, less uniform")


_Z = float(ndtri(0.975))  # sds either way of a normal: 95 %


def kaplan_meier(
    time: np.ndarray, happened: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The times of events and censorings, the estimated probability to last longer, and its 95 % interval.

    ``weights`` say how often each row counts. The interval is NaN from where nobody is left.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots.predictive_checks import kaplan_meier
    >>> kaplan_meier(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True]))[1]
    array([0.75, 0.5 , 0.5 , 0.  ])
    """
    own = np.ones(time.size) if weights is None else weights
    steps, place = np.unique(time, return_inverse=True)
    left = np.bincount(place, own, steps.size)
    at_risk = np.cumsum(left[::-1])[::-1]
    died = np.bincount(place[happened], own[happened], steps.size)
    survived = np.cumprod(1.0 - died / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(died / (at_risk * (at_risk - died)))
        move = np.exp(_Z * np.sqrt(variance) / np.abs(np.log(survived)))
        lower, upper = survived**move, survived ** (1.0 / move)
    none, gone = survived == 1.0, survived <= 0.0  # nobody yet, and nobody left
    lower, upper = (np.where(none, 1.0, np.where(gone, np.nan, end)) for end in (lower, upper))
    return steps, survived, lower, upper


@dataclass(frozen=True)
class SurvivalGroup:
    """Rows of one group: their durations, and what a model says of them.

    Attributes
    ----------
    time, event : arrays (N,)
        ``event`` is 1 where it happened, 0 where it had not by then.
    at, share : arrays (T,)
        Times, and the probability to last longer by the model, averaged over the rows.
    weights : array (N,), optional
        How often each row counts.
    """

    time: np.ndarray
    event: np.ndarray
    at: np.ndarray
    share: np.ndarray
    weights: np.ndarray | None = None


def plot_survival_groups(
    groups: Mapping[str, SurvivalGroup], ax: Axes | None = None, *, steps: bool = False, xlabel: str = "time"
) -> Axes:
    """Groups of rows: Kaplan and Meier's curve of each with its 95 % band, and dashed that of a model.

    ``steps``: the model's survival is constant between its times.
    """
    _few("plot_survival_groups", len(groups))
    ax = axes_for(ax, 5.6, 3.6)
    style = "steps-post" if steps else "default"
    for colour, (name, group) in zip(PALETTE, groups.items(), strict=False):
        happened = np.asarray(group.event, dtype=np.float64) > 0.0
        at, share, lower, upper = kaplan_meier(np.asarray(group.time, dtype=np.float64), happened, group.weights)
        x, lower, upper = np.r_[0.0, at], np.r_[1.0, lower], np.r_[1.0, upper]
        ax.step(x, np.r_[1.0, share], where="post", color=colour, linewidth=1.4, label=name)
        ax.fill_between(x, lower, upper, step="post", color=colour, alpha=0.18, linewidth=0)
        ax.plot(group.at, group.share, color=colour, linestyle="--", drawstyle=style, linewidth=1.6)
    ax.plot([], [], color="black", linewidth=1.4, label="data, with a 95 % band")
    ax.plot([], [], color="black", linestyle="--", linewidth=1.6, label="model")
    ax.set_ylim(0.0, 1.02)
    return finish_axes(ax, xlabel, "share that lasts longer")


def plot_survival_curves(
    at: Any, curves: Mapping[str, Any], ax: Axes | None = None, *, steps: bool = False, xlabel: str = "time"
) -> Axes:
    """P(T > t) of some rows at times (T,): mean, or mean, lower and upper (3, T), by what each is called."""
    _few("plot_survival_curves", len(curves))
    ax = axes_for(ax, 5.6, 3.6)
    style = "steps-post" if steps else "default"
    for colour, (name, given) in zip(PALETTE, curves.items(), strict=False):
        mean, *ends = np.atleast_2d(given)
        ax.plot(at, mean, color=colour, drawstyle=style, linewidth=1.6, label=name)
        if ends:
            lower, upper = ends
            ax.fill_between(at, lower, upper, step="post" if steps else None, color=colour, alpha=0.2, linewidth=0)
    ax.set_ylim(0.0, 1.02)
    return finish_axes(ax, xlabel, "P(T > t)")


def _few(where: str, n: int) -> None:
    if not 1 <= n <= len(PALETTE):
        raise problem(where, f"{n} curves", f"1 to {len(PALETTE)}, which can be told apart")
