"""Pictures of a fitted model: coefficients, the effect of a term in the form that suits it, a map.

A term over levels is a forest, or in order where they are many; along time or a number it is a path with its band; of
two numbers a surface; random intercepts and slopes are a forest each; curves of groups a panel each; products of
two terms, and very many curves, a grid in colours.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plots
from ..checks import problem
from ..gmrf.mesh_making import bulk_of
from ..inputs.frames import is_date
from ..outlines import districts, labels_of, named_by, opened, property_names
from ..plots import plot_caterpillar, plot_contours, plot_forest, plot_heat, plot_map, plot_path, plot_surface
from ..plots.base import AxesArray, map_size, panels, short_name, signed_ends
from ..plots.maps import extent_of
from ..terms import Term
from ..terms.matern_terms import grid_over
from .averages import typical_rows
from .capabilities import answers
from .stated_priors import term_named, without_blanks, without_options
from .tables import described_theta, initials

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .fitted import FittedModel

_MOST = 40  # levels that are named
_PANELS = 12  # curves of groups, at most; more are a grid in colours
_MAPS = 6  # of a product of regions and times
_PLACES = 100  # along a column of numbers
_FAR = 0.1  # of a column's range: the surface is left blank farther than this from every row
_MAP_SIZE = 2.8  # inches of a map of several about as wide as high
_TITLE = 30  # characters of a title, from which options are left out


@dataclass(frozen=True)
class Panel:
    """One panel of a picture of a term: "levels", "path", "surface" or "grid", with the rows of its table."""

    kind: str
    frame: pd.DataFrame
    title: str


# -- coefficients -------------------------------------------------------------------------------------------
def plot_coefficients(fit: FittedModel, ax: Axes | None = None, scaled: bool = False) -> Axes:
    """The coefficients but the intercept, per unit of their columns or, ``scaled``, for one sd of each."""
    frame = fit.coefficients.drop(index="Intercept", errors="ignore")
    sd = np.asarray(fit.model.sum.columns.scale) if scaled else np.ones(len(frame))
    names = [str(i) for i in frame.index]
    label = "coefficient times the sd of its column" if scaled else "coefficient"
    mean, lower, upper = (end * sd for end in _ends(frame))
    return plot_forest(names, mean, lower, upper, ax, label=label)


def plot_conditional(fit: FittedModel, name: str, ax: Axes | None = None) -> Axes:
    """E[y] with its 95 % interval along a column of the fixed part; of Cox the log hazard ratio to a typical row.

    E[y] is at exposure 1 and one trial. The other columns are at their mean or their most frequent level, and the
    effects of groups are 0.
    """
    import pandas as pd

    if not fit.engine.keeps_rows:
        got = f"the rows of the fit, which say where {name!r} and other columns lie, are out of memory"
        raise problem("plot", got, "a term, or fit.predict(table, interval=0.95) along the column")
    factors, column = fit.model.fixed.expression.factors, fit.model.frame[name]
    number = name not in factors and column.dtype.kind in "iuf"
    places = np.linspace(column.min(), column.max(), _PLACES) if number else np.zeros(0)
    levels = factors.get(name, [False, True])
    rows = typical_rows(fit, pd.DataFrame({name: places if number else levels}))
    if answers(fit, "predict"):
        of = "" if fit.model.row_values("trials") is None else "share of "
        result = fit.predict(rows, interval=0.95, without="groups", exposure=1.0, trials=1.0)
        label = f"expected {of}{fit.model.response.name}"
    else:
        usual = typical_rows(fit, pd.DataFrame(index=[0]))
        result, label = fit.contrast(rows, usual, without="groups"), "log hazard above a typical row's"
    if number:
        return plot_path(places, *_ends(result), ax, label=label, xlabel=name)
    return plot_forest([short_name(level) for level in levels], *_ends(result), ax, label=label, title=name)


# -- terms --------------------------------------------------------------------------------------------------
def plot(fit: FittedModel, name: Any = None, ax: Any = None) -> Any:
    """Coefficients, the effect of a term, or E[y] along a column of the fixed part.

    One Axes, or an array of them where there are several panels.
    """
    if name is None:
        return plot_coefficients(fit, ax)
    term = term_named(fit.model.sum.effects, name)
    columns = fit.model.fixed.expression.names
    if term is None and name in columns:
        return plot_conditional(fit, str(name), ax)
    if term is None and name not in fit.effects:
        known = [str(each) for each in (*columns, *(each.name for each in fit.model.sum.effects))]
        raise problem("plot", f"there is no column or term {str(name)!r}", f"one of {known}")
    plane = term if term is not None and len(term.inputs) == 2 else None
    frame = process_on_grid(fit, plane) if plane is not None and plane.one_a_point else fit.effects[name]
    title = short_call(str(name if term is None else term.name))
    if plane is not None and (plane.one_a_point or plane.on_mesh):
        points = [fit.model.frame[column].to_numpy() for column in plane.inputs]
        return plot_surface(frame, points, ax, names=[str(column) for column in plane.inputs], title=title)
    parts = panels_of(term, frame, title)
    if len(parts) == 1:
        return _draw(fit, term, parts[0], ax)
    forests = parts[0].kind == "levels"
    tall = 1.0 + 0.2 * len(parts[0].frame) if forests and len(parts[0].frame) <= _MOST else 3.0
    every = panels("plot", len(parts), (3.4 if forests else 3.0, tall), ax)
    if not forests and parts[0].kind == "path":
        for one in every[1:]:
            one.sharey(every[0])
    for one, part in zip(every, parts, strict=True):
        _draw(fit, term, part, one)
        if forests and one is not every[0] and len(part.frame) <= _MOST and len(parts) <= 3:
            one.set_yticklabels([])
        legend = one.get_legend()
        if part.kind == "path" and one is not every[0] and legend is not None:
            legend.remove()
    if ax is None:
        every[0].figure.suptitle(title, fontsize="medium")
    return AxesArray.of(every)


def short_call(text: str) -> str:
    """The text of a term without its options where it is long for a title: matern(x,y) of matern(x,y,prior_sd=...)."""
    if len(text) <= _TITLE or not text.endswith(")"):
        return text
    first = re.search(r",\s*\w+\s*=", text)
    return text if first is None else f"{text[: first.start()]})"


def process_on_grid(fit: FittedModel, term: Term) -> pd.DataFrame:
    """The mean and sd of a process over two columns on a grid of the box of the bulk of the points."""
    import pandas as pd

    X = np.stack([fit.model.frame[column].to_numpy(dtype=float) for column in term.inputs], axis=1)
    shared = len(term.hyperparameters) == 2  # a range, and the sd
    bulks = [bulk_of(part) for part in ([X] if shared else [X[:, :1], X[:, 1:]])]
    low, high = np.concatenate([bulk.low for bulk in bulks]), np.concatenate([bulk.high for bulk in bulks])
    points = low + grid_over(np.zeros(2), np.ones(2)) * (high - low)  # columns may be in units of their own
    there = fit.posterior.at(fit.model.sum.elsewhere(term, fit.theta, points))
    sd = np.sqrt(np.maximum(np.asarray(there.variance), 0.0))
    return pd.DataFrame({"mean": np.asarray(there.mean), "sd": sd}, index=pd.MultiIndex.from_arrays(points.T))


def panels_of(term: Any, frame: pd.DataFrame, title: str) -> list[Panel]:
    """What the panels of a term's picture show."""
    index = frame.index
    if index.nlevels == 1:
        along = len(frame) > 2 and (is_date(index) or _along(term, index))
        return [Panel("path" if along else "levels", frame, title)]
    if term.coefficients is not None:
        return [Panel("levels", one, str(what)) for what, one in _split(frame, 1)]
    if index.nlevels > 2:
        return [Panel("levels", frame, title)]
    surface = len(term.inputs) == 2
    if surface and not isinstance(index[0][1], tuple):
        return [Panel("surface", frame, title)]
    groups, inner = index.get_level_values(0).unique(), index.get_level_values(1).unique()
    if surface:
        return [Panel("surface", _pairs(one), str(what)) for what, one in _split(frame, 0)[:_PANELS]]
    if len(groups) * len(inner) != len(frame):
        return [Panel("levels", frame, title)]
    curves = bool(term.inputs) or term.group is not None
    if curves and len(groups) <= _PANELS and len(inner) > 2:
        return [Panel("path", one, str(what)) for what, one in _split(frame, 0)]
    return [Panel("grid", frame, title)]


def _split(frame: pd.DataFrame, level: int) -> list[tuple[Hashable, pd.DataFrame]]:
    """The table for each value of one level of its index, in their order, by the other level."""
    values = frame.index.get_level_values(level)
    out = []
    for value in values.unique():
        one = frame[values == value]
        out.append((value, one.set_axis(one.index.get_level_values(1 - level), axis=0)))
    return out


def _pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose index are pairs, by both of them."""
    import pandas as pd

    return frame.set_axis(pd.MultiIndex.from_tuples(list(frame.index)), axis=0)


def _draw(fit: FittedModel, term: Any, part: Panel, ax: Any) -> Axes:
    frame, index, inputs = part.frame, part.frame.index, [str(name) for name in term.inputs]
    if part.kind == "path":
        when = index.to_timestamp() if hasattr(index, "to_timestamp") else index
        order = np.argsort(np.asarray(when), kind="stable")
        xlabel = inputs[0] if inputs else str(term.along or index.name or "")
        return plot_path(
            np.asarray(when)[order], *_ends(frame.iloc[order]), ax, label="effect", xlabel=xlabel, title=part.title
        )
    if part.kind == "surface":
        (x, i), (z, j) = (np.unique(index.get_level_values(k).to_numpy(float), return_inverse=True) for k in (0, 1))
        values = np.full((z.size, x.size), np.nan)
        values[j, i] = frame["mean"].to_numpy()
        values[_far_from_rows(fit, term.inputs, x, z)] = np.nan
        names: dict[str, Any] = {"xlabel": inputs[0], "ylabel": inputs[1], "label": "effect", "title": part.title}
        return plot_contours(x, z, values, ax, star=False, points=False, cmap="viridis", **names)
    if part.kind == "grid":
        rows, columns = (index.get_level_values(k).unique() for k in (0, 1))
        values = frame["mean"].to_numpy().reshape(len(rows), len(columns))
        return plot_heat(list(rows), list(columns), values, ax, label="effect", title=part.title)
    if len(frame) <= _MOST:
        names_ = [short_name(label) for label in index]
        return plot_forest(names_, *_ends(frame), ax, label="effect", title=part.title)
    ratio = fit.likelihood.ratio
    if ratio is None or term.coefficients is not None:
        return plot_caterpillar(*_ends(frame), ax, label="effect", log=False, title=part.title)
    short = initials(ratio)
    middle, low, high = (frame[column].to_numpy() for column in (ratio, f"{short}_lower", f"{short}_upper"))
    return plot_caterpillar(middle, low, high, ax, label=ratio.replace("_", " "), title=part.title)


def _far_from_rows(fit: FittedModel, inputs: Any, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Which points of a grid (z, x) have no row near them, distances in shares of each column's range."""
    from scipy.spatial import cKDTree

    rows = np.stack([fit.model.frame[name].to_numpy(dtype=float) for name in inputs], axis=1)
    low, span = rows.min(axis=0), np.ptp(rows, axis=0)
    span = np.where(span > 0.0, span, 1.0)
    grid = np.stack(np.meshgrid(x, z), axis=-1)
    away, _ = cKDTree((rows - low) / span).query((grid - low) / span)
    return np.asarray(away > _FAR)


def _ends(frame: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean, lower, upper = (frame[column].to_numpy() for column in ("mean", "lower", "upper"))
    return mean, lower, upper


def _along(term: Any, index: Any) -> bool:
    """Whether the rows of a term's table are places along an axis: times, or the x of a smooth or process."""
    numbers = index.dtype.kind in "iuf"
    along = term.one_a_point or term.levels is None
    return numbers and (along or term.in_time)


# -- hyperparameters ----------------------------------------------------------------------------------------
def plot_joint(fit: FittedModel, first: Any, second: Any, ax: Axes | None = None) -> Axes:
    """Two hyperparameters together, with the points that were fitted."""
    mixed = fit.integrated
    if mixed is None:
        got = "the hyperparameters of this fit are learned, at one value each"
        raise problem("plot_joint", got, 'a fit that integrates over them: fit(..., integrate="auto")')
    rows = described_theta(fit, fit.theta)
    if len(rows) < 2:
        raise problem(
            "plot_joint", f"a fit with {len(rows)} hyperparameter", "two at least: fit.hyperparameters has one"
        )
    i, j = (_row_named(rows, name) for name in (first, second))
    if i == j:
        raise problem("plot_joint", f"{first!r} twice", "two hyperparameters")

    def both(theta: np.ndarray) -> list[float]:
        values = described_theta(fit, theta)
        return [values[i][2], values[j][2]]

    result = mixed.theta.of(both, size=8192)
    still = np.flatnonzero(result.sd <= 1e-9 * (1.0 + np.abs(result.mean)))
    if still.size:
        name = _called_in_words(rows[(i, j)[int(still[0])]])
        raise problem("plot_joint", f"{name} is held at a bound", "two that were integrated over")
    points, names = np.array([both(theta) for theta in mixed.thetas]), [_called_in_words(rows[k]) for k in (i, j)]
    x, y = result.values.T
    look: dict[str, Any] = {"points": points, "shares": mixed.weights, "xlabel": names[0], "ylabel": names[1]}
    return plots.plot_joint(x, y, result.weights, ax, **look)


def _called_in_words(row: tuple[str, str, float]) -> str:
    return f"{row[1]} of {row[0]}"


def _bare(name: Any) -> Any:
    return tuple(map(without_blanks, name)) if isinstance(name, tuple) else without_blanks(name)


def _row_named(rows: list[tuple[str, str, float]], name: Any) -> int:
    """By both names of the table, by one of them where that says which, or in words; terms also without options."""
    key = _bare(tuple(name) if isinstance(name, list) else name)
    short = [(without_options(row[0]), *row[1:]) for row in rows]
    for spelled in (rows, short):
        ways = [(row[:2], row[0], row[1], _called_in_words(row)) for row in spelled]
        result = [k for k, names in enumerate(ways) if key in map(_bare, names)]
        if result:
            break
    if len(result) == 1:
        return result[0]
    got = f"there is no hyperparameter {name!r}" if not result else f"{name!r} is said of {len(result)} hyperparameters"
    raise problem("plot_joint", got, f"one of {', '.join(repr(_called_in_words(row)) for row in rows)}")


# -- maps ---------------------------------------------------------------------------------------------------
def draw_map(fit: FittedModel, name: Any, geodata: Any, ax: Any = None, column: str | None = None) -> Any:
    """An effect of regions on their outlines, by their labels: the ratio where it has a name, else the effect.

    Regions that the model does not have are grey. A product of regions and times has a map for some of the times.
    """
    frame, ratio, term = fit.effects[name], fit.likelihood.ratio, term_named(fit.model.sum.effects, name)
    column = ratio or "mean" if column is None else column
    if column not in frame.columns:
        raise problem("plot_map", f"column = {column!r}", f"one of {', '.join(map(str, frame.columns))}")
    style: dict[str, Any] = {"label": column.replace("_", " "), "ratio": column == ratio}
    over = None if term is None else term.region_column
    geodata = _called(opened(geodata), frame.index.get_level_values(0), over)
    if frame.index.nlevels == 1:
        return plot_map(geodata, _on(geodata, frame[column]), ax, title=short_call(str(name)), **style)
    parts = _split(frame, 1)
    shown = [parts[i] for i in np.unique(np.linspace(0, len(parts) - 1, min(len(parts), _MAPS)).astype(int))]
    values = np.concatenate([one[column].to_numpy() for _, one in shown])
    reach = float(np.exp(np.abs(np.log(values)).max())) if style["ratio"] else 0.0
    own = float(values.min()), float(values.max())
    style["limits"] = (1 / reach, reach) if style["ratio"] else signed_ends(*own) or own
    across, high = map_size(*extent_of(districts(geodata)), _MAP_SIZE)
    every = panels("plot_map", len(shown), (across + 0.3, high + 0.9), ax)
    for one, (when, part) in zip(every, shown, strict=True):
        plot_map(geodata, _on(geodata, part[column]), one, title=short_name(when), **style)
    return AxesArray.of(every)


def _called(geodata: Any, regions: Any, key: Any) -> Any:
    """The outlines by their own labels, or by the column or property that holds those of the regions."""
    own, wanted = labels_of(geodata), set(regions)
    if own is not None and wanted <= set(own):
        return geodata
    for name in dict.fromkeys([key, *property_names(geodata)]):
        other = named_by(geodata, name)
        if wanted <= set(labels_of(other) or ()):
            return other
    if own is None and isinstance(geodata, dict) and any(isinstance(label, str) for label in wanted):
        got = f"no id and no property of the outlines holds the regions, such as {next(iter(wanted))!r}"
        raise problem("plot_map", got, "features whose id, or one property, is the region's name")
    return geodata


def _on(geodata: Any, values: Any) -> Any:
    """Values of some of the regions, NaN for those that the model does not have."""
    labels = labels_of(geodata)
    some = labels is not None and len(set(labels)) == len(labels) and set(values.index) < set(labels)
    return values.reindex(labels) if some else values
