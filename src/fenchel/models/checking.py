"""Posterior predictive checks: the data of a fit beside data sets that the fitted model makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..plots import plot_bars, plot_density, plot_pit, plot_reliability, plot_rootogram, plot_survival
from .capabilities import answers
from .durations import happened, plot_groups
from .row_criteria import pit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .fitted import FittedModel

_SETS = 100  # data sets that are made
_CELLS = 20_000_000  # numbers of all data sets: of very many rows fewer sets are made
WORDS = {
    "survival": "The share that lasts longer: of the data by Kaplan and Meier, and the middle 95 % of data sets that "
    "the fitted model makes.",
    "groups": "The share that lasts longer in groups of rows: of the data by Kaplan and Meier with a 95 % band, and "
    "dashed what the model says of these rows on average.",
    "reliability": "Rows of about equal probability together: the share of successes in the data, against what the "
    "model says, and the middle 95 % of data sets that it makes.",
    "bars": "How often each level occurs, and the middle 95 % of data sets that the fitted model makes.",
    "rootogram": "How often each count occurs, and the middle 95 % of data sets that the fitted model makes.",
    "density": "The density of the data, and of 50 data sets that the fitted model makes.",
    "pit": "The probability that the model, without a row, gives to less than was seen there: even where predictions "
    "are right, within the band but for one bar in 20.",
}  # what each kind shows


def kinds_of(fit: FittedModel) -> tuple[str, ...]:
    """The checks that suit the response, the best one first."""
    return *_suited(fit), *(["pit"] if answers(fit, "loo") else [])


def _suited(fit: FittedModel) -> tuple[str, ...]:
    likelihood, labels = fit.model.target.likelihood, fit.model.target.labels
    if not answers(fit, "predict"):  # a hazard, and no mean of a row
        return ("groups",)
    if likelihood.durations:
        return "survival", "groups", "density"
    if labels is not None:
        return ("reliability", "bars") if len(labels) == 2 else ("bars",)
    if "trials" in likelihood.row_parameters:
        return "reliability", "rootogram"
    return ("rootogram", "density") if likelihood.support == "count" else ("density",)


def plot_check(fit: FittedModel, kind: str | None = None, ax: Axes | None = None, by: Any = None) -> Axes:
    """Data beside what the model makes, in the way that suits the response or in that of ``kind``."""
    known = kinds_of(fit)
    kind = "groups" if by is not None and kind is None and "groups" in known else kind
    if by is not None and kind != "groups":
        raise problem("plot_check", f"by = {by!r}", 'kind="groups" of durations')
    if kind is not None and kind not in known:
        word = fit.model.target.likelihood.word or "this"
        raise problem("plot_check", f"kind = {kind!r} of a {word} response", f"one of {', '.join(map(repr, known))}")
    kind, target, name = kind or known[0], fit.model.target, fit.model.response.name
    if kind == "pit":
        below, upto = pit(fit)
        return plot_pit(upto, below, ax)
    if kind == "groups":
        return plot_groups(fit, by, ax)
    seen = target.seen > 0.0
    if kind == "reliability" and target.labels is None:  # shares of trials, not of rows
        return _of_trials(fit, seen, ax)
    y = target.y[seen]
    y = y if target.values is None else target.values[y.astype(int)]
    sets = int(np.clip(_CELLS // max(1, len(fit.model.data_index)), 20, _SETS))
    made = fit.sample(None, sets, 0, kind="outcome")[:, fit.model.kept][:, seen]
    if kind == "survival":
        return plot_survival(y, happened(fit.model), made, ax, xlabel=name)
    if kind == "rootogram":
        return plot_rootogram(y, made, ax, xlabel=name)
    if kind == "density":
        return plot_density(y, made, ax, xlabel=name, positive=target.likelihood.support == "positive")
    assert target.values is not None
    assert target.labels is not None
    if kind == "bars":
        return plot_bars(y, made, target.values, target.labels, ax, xlabel=name)
    p = fit.predict(kind="probability").to_numpy()[fit.model.kept][seen, 1]
    out = plot_reliability(p, y == target.values[1], 1.0, ax, made=made == target.values[1])
    out.set_ylabel(f"share of {name} = {target.labels[1]}")
    return out


def _of_trials(fit: FittedModel, seen: np.ndarray, ax: Axes | None) -> Axes:
    target = fit.model.target
    trials = fit.model.row_values("trials")
    p = fit.predict(trials=1.0).to_numpy()[fit.model.kept][seen]
    made = fit.sample(None, _SETS, 0, kind="outcome")[:, fit.model.kept][:, seen]
    return plot_reliability(p, target.y[seen], 1.0 if trials is None else trials[seen], ax, made=made)
