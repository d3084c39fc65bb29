"""Pictures of the residuals of a fitted model and of its shares of variance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..plots import plot_against, plot_by_level, plot_quantiles, plot_residual_map, plot_shares, plot_variogram
from ..plots.base import AxesArray, panels
from .capabilities import answers
from .residual_tests import number_columns, time_columns

if TYPE_CHECKING:
    from .fitted import FittedModel

_SIZE = (4.2, 3.4)  # inches of a panel
_MOST = 9  # panels by default
_OWN = ("quantiles", "fitted", "map", "variogram")  # panels; a column of one of these names is "column map"
_FAR = 20.0  # times the smallest: fitted values above 0 are then on a log axis


def kinds_of(fit: FittedModel) -> list[str]:
    """The panels of a fit: quantiles, fitted values, the map and the variogram of a field, and each covariate."""
    model, fitted = fit.model, ["fitted"] if answers(fit, "predict") else []
    columns = [f"column {name}" if name in _OWN else str(name) for name in model.covariates if name in model.frame]
    pictures = [*(["map"] if _coordinates(fit) else []), *(["variogram"] if _places(fit) else [])]
    return ["quantiles", *fitted, *pictures, *columns]


def plot_residuals(fit: FittedModel, kind: Any, ax: Any) -> Any:
    """One panel by its name, or all of them."""
    known = kinds_of(fit)
    if kind is not None and kind not in known:
        raise problem("plot_residuals", f"kind = {kind!r}", f"one of {', '.join(map(repr, known))}")
    z = fit.residuals().to_numpy()[fit.model.kept]
    if kind is not None:
        return _panel(fit, str(kind), z, ax)
    every = panels("plot_residuals", len(known[:_MOST]), _SIZE, ax)
    return AxesArray.of([_panel(fit, name, z, one) for name, one in zip(known[:_MOST], every, strict=True)])


def _panel(fit: FittedModel, kind: str, z: np.ndarray, ax: Any) -> Any:
    model = fit.model
    if kind == "quantiles":
        return plot_quantiles(z, ax)
    if kind == "fitted":
        fitted = fit.predict().to_numpy()[model.kept]
        out = plot_against(fitted, z, ax, xlabel=f"fitted {model.response.name}")
        if fitted.min() > 0.0 and fitted.max() > _FAR * fitted.min():
            out.set_xscale("log")
        return out
    if kind == "map":
        first, second = _coordinates(fit)
        x, y = (model.frame[name].to_numpy(dtype=np.float64) for name in (first, second))
        return plot_residual_map(x, y, z, ax, xlabel=first, ylabel=second)
    if kind == "variogram":
        names = _places(fit)
        places = model.frame[list(names)].to_numpy(dtype=np.float64)
        return plot_variogram(places, z, ax, xlabel=f"distance in {', '.join(map(str, names))}")
    kind = kind if kind in model.frame else kind.removeprefix("column ")
    column = model.frame[kind]
    series = kind in map(str, time_columns(fit))
    if kind in number_columns(fit) or (series and column.dtype.kind in "iuf"):
        return plot_against(column.to_numpy(dtype=np.float64), z, ax, xlabel=kind, line=series and column.is_unique)
    return plot_by_level(list(column), z, ax, xlabel=kind)


def _coordinates(fit: FittedModel) -> tuple[str, ...]:
    """The two columns of a field in the plane, where the model has one."""
    fields = [term.inputs for term in fit.model.sum.effects if len(term.inputs) == 2]
    return tuple(map(str, fields[0])) if fields else ()


def _places(fit: FittedModel) -> tuple[Any, ...]:
    """The columns along which rows are near each other: those of a field, else the time of a series."""
    times = [name for name in time_columns(fit) if fit.model.frame[name].dtype.kind in "iuf"]
    return _coordinates(fit) or tuple(times[:1])


def plot_variance(fit: FittedModel, ax: Any, interval: float) -> Any:
    """The shares of variance as bars."""
    result = fit.variance_shares(interval=interval)
    return plot_shares(list(result.index), result["share"], result["conf_low"], result["conf_high"], ax)
