"""Pictures of a fitted model: coefficients, the effect of a term, a map, and data beside what the model makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots import plot_caterpillar, plot_forest, plot_map, plot_path, plot_surface
from ..plots.base import BLUE, GREY, new_figure, quiet
from ..terms import Matern, VecchiaProcess
from .frames import is_date
from .specified import term_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .fitted import FittedModel

_MOST = 40  # levels that are named
_SETS, _BINS = 100, 30  # data sets and bins of a predictive check


def plot(fit: FittedModel, name: Any = None, ax: Axes | None = None) -> Axes:
    """Coefficients, or the effect of a term: along time or a number as a path, of groups as a forest."""
    if name is None:
        frame = fit.coefficients.drop(index="Intercept", errors="ignore")
        return plot_forest([str(i) for i in frame.index], *_ends(frame), ax, label="coefficient")
    frame = fit.effects[name]
    term = term_named(fit.model.sum.effects, name)
    title, index = str(name if term is None else term.name), frame.index
    if index.nlevels == 1 and len(frame) > 2 and (is_date(index) or _along(term, index)):
        when = index.to_timestamp() if hasattr(index, "to_timestamp") else index
        frame = frame.iloc[np.argsort(np.asarray(when), kind="stable")]
        return plot_path(
            np.sort(np.asarray(when)), *_ends(frame), ax, label="effect", xlabel=str(index.name), title=title
        )
    if isinstance(term, Matern) or (isinstance(term, VecchiaProcess) and len(term.inputs) == 2):
        points = [fit.model.frame[column].to_numpy() for column in term.inputs]
        return plot_surface(frame, points, ax, names=[str(column) for column in term.inputs], title=title)
    if len(frame) <= _MOST:
        names = [", ".join(map(str, i)) if isinstance(i, tuple) else str(i) for i in index]
        return plot_forest(names, *_ends(frame), ax, label="effect", title=title)
    mean, lower, upper = (np.exp(end) for end in _ends(frame))
    return plot_caterpillar(mean, lower, upper, ax, label=f"exp of {title}")


def _ends(frame: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean, lower, upper = (frame[column].to_numpy() for column in ("mean", "lower", "upper"))
    return mean, lower, upper


def _along(term: Any, index: Any) -> bool:
    """Whether the rows of a term's table are places along an axis: times, or the x of a smooth."""
    numbers = getattr(index.dtype, "kind", "O") in "iuf"
    return numbers and (bool(getattr(term, "in_time", False)) or getattr(term, "levels", None) is None)


def draw_map(fit: FittedModel, name: Any, geodata: Any, ax: Axes | None = None, column: str | None = None) -> Axes:
    """An effect of regions on their outlines, by their labels: the ratio where it has a name, else the effect."""
    frame, ratio = fit.effects[name], fit.likelihood.ratio
    column = ratio or "mean" if column is None else column
    is_ratio = column == ratio
    return plot_map(geodata, frame[column], ax, label=column.replace("_", " "), title=str(name), ratio=is_ratio)


def predictive_check(fit: FittedModel, ax: Axes | None = None) -> Axes:
    """How often values of y occur in the data, and in data sets that the model makes."""
    ax = new_figure(5.6, 3.4).subplots() if ax is None else ax
    target = fit.model.target
    seen = target.seen > 0.0
    y = (
        target.y
        if target.values is None
        else np.where(seen, target.values[np.nan_to_num(target.y).astype(int)], np.nan)
    )
    made = fit.simulate(_SETS, 0)[:, fit.model.kept][:, seen]
    y = y[seen]
    low, high = np.nanquantile(np.concatenate([y, made.ravel()]), [0.001, 0.999])
    whole = target.likelihood.support in ("count", "levels")
    step = max(1.0, np.ceil((high - low + 1) / _BINS)) if whole else (high - low) / _BINS or 1.0
    edges = np.arange(low - 0.5 * whole, high + 1.5 * step, step)
    counts = np.array([np.histogram(row, edges)[0] for row in made])
    (lower, upper), middle = np.quantile(counts, [0.025, 0.975], axis=0), (edges[:-1] + edges[1:]) / 2
    word = "made by the model, 95 %"
    ax.fill_between(middle, lower, upper, step="mid", color=BLUE, alpha=0.3, linewidth=0, label=word)
    ax.step(middle, np.histogram(y, edges)[0], where="mid", color=GREY, label="data")
    ax.set_xlabel(fit.model.response.name)
    ax.set_ylabel("rows")
    ax.legend(frameon=False, fontsize=9)
    quiet(ax)
    return ax
