"""Plots of fits of durations: the model and the Kaplan-Meier estimate, and survival curves of new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import numeric, problem
from ..inputs.frames import Table, read_frame, unknown
from ..plots import plot_survival_curves, plot_survival_groups
from ..plots.base import PALETTE, short_name
from ..plots.predictive_checks import SurvivalGroup
from .grammar import parse

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .fitted import FittedModel
    from .model import Model

RISK = "risk"
_PEOPLE = 500  # largest number of rows over which survival is averaged; of more, every k-th in the order of risk
_DRAWS = 200  # posterior draws for a mean
TIMES = 101  # points of a curve
_RISKS = {1: ("everybody",), 2: ("lower risk", "higher risk"), 3: ("lower risk", "middle risk", "higher risk")}


@dataclass(frozen=True)
class People:
    """The rows of a fit of durations.

    Attributes
    ----------
    frame : pandas frame (N, ...)
    time, event, risk : arrays (N,)
        ``risk`` is the posterior mean of the log hazard, up to a constant.
    weights : array (N,) or None
    """

    frame: pd.DataFrame
    time: np.ndarray
    event: np.ndarray
    risk: np.ndarray
    weights: np.ndarray | None


def people_of(fit: FittedModel) -> People:
    """The observed rows of a fit of durations."""
    model, weights = fit.model, fit.model.target.weights
    seen = model.target.seen > 0.0
    risk = fit.predict(kind="link").to_numpy()[model.kept][seen]
    event = happened(model)
    return People(model.frame[seen], model.target.y[seen], event, risk, None if weights is None else weights[seen])


def times_of(fit: FittedModel) -> np.ndarray:
    """Times of a curve, up to the last one of the data."""
    return np.linspace(0.0, float(np.nanmax(fit.model.target.y)), TIMES)


def happened(model: Model) -> np.ndarray:
    """The events of the observed rows, 1 if it happened."""
    seen, event = model.target.seen > 0.0, model.row_values("event")
    return np.ones(int(seen.sum())) if event is None else event[seen]


def _time(fit: FittedModel) -> str:
    return parse(fit.model.formula).response.text.strip("`")


# -- the model beside the data ------------------------------------------------------------------------------
def plot_groups(fit: FittedModel, by: Any = None, ax: Axes | None = None) -> Axes:
    """Plot Kaplan-Meier curves of groups of rows and the model's survival, averaged over the rows of each group."""
    people = fit.model.reduction.people(fit)
    names, which = _by_risk(people.risk) if by is None else _by_column(people.frame, by, people.risk)
    (at, steps), out = fit.model.reduction.survival_times(fit), {}
    for k, name in enumerate(names):
        own = np.flatnonzero(which == k)
        some = own[np.argsort(people.risk[own], kind="stable")]
        most = max(1, _PEOPLE // len(names))
        some = some[np.unique(np.linspace(0, some.size - 1, min(most, some.size)).round().astype(int))]
        predicted = fit.survival(people.frame.iloc[some], at, size=_DRAWS).to_numpy()
        weights = None if people.weights is None else people.weights[own]
        share = np.average(predicted, axis=0, weights=None if people.weights is None else people.weights[some])
        out[f"{name} ({own.size})"] = SurvivalGroup(people.time[own], people.event[own], at, share, weights)
    return plot_survival_groups(out, ax, steps=steps, xlabel=_time(fit))


def _by_risk(risk: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Thirds of the rows by their risk; fewer groups if risks are equal."""
    ends = np.unique(np.quantile(risk, [1 / 3, 2 / 3]))
    _, which = np.unique(np.searchsorted(ends, risk - 1e-9 * np.ptp(risk)), return_inverse=True)
    return _RISKS[int(which.max()) + 1], which


def _by_column(frame: pd.DataFrame, by: Any, risk: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The levels of a column, or thirds of its numbers if there are too many."""
    if by not in frame.columns:
        if by == RISK:
            return _by_risk(risk)
        got, expected, advice = unknown(frame, by)
        raise problem("plot_check", f"by: {got}", f'{expected}, or "{RISK}"', advice)
    column = frame[by]
    levels = sorted(column.dropna().unique().tolist(), key=None if column.dtype.kind in "biuf" else str)
    if len(levels) <= len(PALETTE):
        which = np.array([levels.index(v) if v in levels else -1 for v in column.tolist()])
        return tuple(f"{by} = {short_name(level)}" for level in levels), which
    values = numeric("plot_check", str(by), column, missing=True, advice=f"It has {len(levels)} levels.")
    low, high = np.nanquantile(values, [1 / 3, 2 / 3])
    which = np.where(np.isnan(values), -1, (values > low).astype(int) + (values > high))
    return (f"{by} <= {low:.4g}", f"{low:.4g} < {by} <= {high:.4g}", f"{by} > {high:.4g}"), which


# -- survival of new rows -----------------------------------------------------------------------------------
def plot_survival(
    fit: FittedModel, new: Table, times: Any = None, interval: float | None = 0.95, ax: Axes | None = None, **draws: Any
) -> Axes:
    """Plot survival curves P(T > t) of new rows."""
    frame = read_frame("plot_survival", new, "new")
    at, steps = fit.model.reduction.survival_times(fit)
    at = at if times is None else np.atleast_1d(numeric("plot_survival", "times", times))
    predicted = fit.survival(frame, at, interval=interval, **draws)
    parts = [predicted] if interval is None else [predicted[part] for part in ("mean", "lower", "upper")]
    curves = {name: np.stack([part.to_numpy()[i] for part in parts]) for i, name in enumerate(_names(frame))}
    return plot_survival_curves(at, curves, ax, steps=steps, xlabel=_time(fit))


def _names(frame: pd.DataFrame) -> list[str]:
    """Names of rows: their index if it is text, else the values of the columns in which they differ."""
    if frame.index.dtype.kind not in "iuf" and frame.index.is_unique:
        return [short_name(label) for label in frame.index]
    differ = [name for name in frame.columns if frame[name].nunique(dropna=False) > 1]
    names = [", ".join(f"{name} = {short_name(row[name])}" for name in differ) for _, row in frame.iterrows()]
    return names if len(set(names)) == len(names) else [f"row {i}: {name}" for i, name in enumerate(names)]
