"""Cox's proportional hazards in its Poisson form: rows cut at event times, a log baseline hazard for each interval.

    lambda_i(t) = lambda_0(t) e^{eta_i},      (c_{j-1}, c_j] the intervals,  b_j = log lambda_0 within them
    y_ij = 1 if row i ended in interval j, else 0   ~   Poisson(width_ij e^{b_j + eta_i})      for the intervals it saw

With a free b_j for each event time ("free") the Poisson likelihood, maximised over b, is the partial likelihood with
Breslow's treatment of ties. b is otherwise a random walk over time ("rw1", "rw2"); beyond 16 event times its intervals
hold equal numbers of events, and a row counts for the time it was there. The data become one row for each row and
interval: pieces of durations.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..checks import Refusal, choice, count, numeric, problem
from ..inputs.frames import Table, column_of, missing, read_frame, unknown, used
from ..terms import IID, DataTable, Hyperparameter
from .grammar import Name, parse

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

EVENT, WIDTH, TIME = "event in interval", "time in interval", "time of interval"
_MOST = 16  # intervals of a walk: with 60 of them coefficients move by some hundredths of a standard error
_FREE, _WIDE = 500, 100.0  # event times of a free baseline, and the prior sd of each log hazard about their mean
_BASELINES = {"rw1": f"rw1(`{TIME}`)", "rw2": f"rw2(`{TIME}`)", "free": None}


class FreeHazard(IID):
    """A log hazard for each interval, about their mean, with a wide prior that is not learned."""

    of_groups = False
    stated = (("sd", f"{_WIDE:g}, fixed: free"),)

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return ()

    def read(self, table: DataTable, scale: float) -> Self:
        out = super().read(table, scale)
        out.constraints = np.ones((1, out.n_latents))
        return out

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.made.build(np.array([-2.0 * np.log(_WIDE)]))[0], []

    def population(self, theta: np.ndarray) -> np.ndarray:
        return np.array([[_WIDE**2]])


class PoissonForm:
    """Durations as counts of events in intervals.

    Attributes
    ----------
    formula : str
        Of the Poisson model, with exposure ``WIDTH``.
    people : pandas frame
        The data as they came, a row a duration.
    unknown : dict
        Of the times and the events, where they are missing (N,): such a row is left out.
    rows, interval : arrays (P,)
        The place among the people and the interval of each piece.
    edges : array (J + 1,)
        Where the intervals end, from 0.
    """

    def __init__(self, formula: str, data: Table, baseline: str, given: Mapping[str, Any]) -> None:
        choice("Model", "baseline", baseline, tuple(_BASELINES))
        parsed, frame = parse(formula), read_frame("Model", data)
        for key, value in given.items():
            if value is not None and not (isinstance(value, str) or np.ndim(value) == 0):
                raise problem("Model", f'{key} is an array and family="cox" cuts rows', "a column by name")
        time = parsed.response.text.strip("`")
        event = parsed.about.get("event")
        if not isinstance(event, Name):
            got = f'family="cox" meets the response {parsed.response.text!r}'
            raise problem("Model", got, "cens(time, event)", "Where every event was seen, event is a column of ones.")
        for name in (time, event.name):
            if name not in frame.columns:
                raise parsed.refuse(name, *unknown(frame, name))
        t = numeric("Model", time, column_of("Model", frame, time), missing=True)
        ended = numeric("Model", event.name, column_of("Model", frame, event.name), missing=True)
        both = (time, np.isnan(t)), (event.name, np.isnan(ended))
        self.unknown: dict[Hashable, np.ndarray] = {name: where for name, where in both if where.any()}
        seen = ~(np.isnan(t) | np.isnan(ended))
        bad = seen & ~((t > 0.0) & np.isin(ended, (0.0, 1.0)))
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            got = f"row {i} has {time} = {t[i]:g} and {event.name} = {ended[i]:g}"
            raise problem("Model", got, "times above 0, and events of 0 or 1")
        often = _how_often(given.get("weights"), frame)
        happened = seen & (ended == 1.0) & (often > 0.0)
        if not happened.any():
            raise problem("Model", "no event happened", "at least one row with an event")
        self.edges, self.each = _edges(t[happened], often[happened], baseline)
        cut = self._cut(np.where(seen, t, 0.0), np.where(seen, ended, 0.0))
        self.rows, self.interval, self._width, self._event = cut
        if baseline == "free" and self.edges.size - 1 > _FREE:
            got = f'baseline="free" with {self.edges.size - 1} different event times'
            raise problem("Model", got, f"at most {_FREE}", 'Round them, or use baseline="rw1".')
        right = parsed.formula.split("~", 1)[1].strip()
        walk = "" if _BASELINES[baseline] is None else f" + {_BASELINES[baseline]}"
        self.formula, self.people = f"`{EVENT}` ~ {right}{walk}", frame
        self.terms = [] if walk else [FreeHazard(TIME, name="baseline")]

    @property
    def frame(self) -> pd.DataFrame:
        """Of the Poisson model: a row for each piece."""
        return self.expanded(self.people, self.rows, self.interval).assign(**{EVENT: self._event, WIDTH: self._width})

    def missing(self, names: Sequence[Hashable]) -> dict[Hashable, np.ndarray]:
        """Where the time, the event or a covariate of people is missing (N,)."""
        own = [name for name in names if name in self.people.columns]
        return {**self.unknown, **missing("Model", used("Model", self.people, own), own)}

    @property
    def middles(self) -> np.ndarray:
        """Of the intervals (J,)."""
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2)

    def _cut(self, t: np.ndarray, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Row, interval, width and event of each piece; nothing is said of time beyond the last event."""
        low, high = self.edges[:-1], self.edges[1:]
        spent = np.clip(t[:, None] - low, 0.0, high - low)
        if self.each:  # the hazard acts at event times: who left before is not at risk there
            spent = np.where(t[:, None] >= high, high - low, 0.0)
        rows, interval = np.nonzero(spent > 0.0)
        y = (ended[rows] == 1.0) & (t[rows] > low[interval]) & (t[rows] <= high[interval])
        return rows, interval, spent[rows, interval], y.astype(np.float64)

    def expanded(self, frame: pd.DataFrame, rows: np.ndarray, interval: np.ndarray) -> pd.DataFrame:
        """Rows of a frame in intervals, as the Poisson model reads them."""
        return frame.iloc[rows].reset_index(drop=True).assign(**{TIME: self.middles[interval]})


def _how_often(weights: Any, frame: pd.DataFrame) -> np.ndarray:
    """Each row was seen (N,); what is no weight the response refuses later."""
    given = column_of("Model", frame, weights) if isinstance(weights, str) else 1.0 if weights is None else weights
    return np.broadcast_to(np.nan_to_num(numeric("Model", "weights", given, missing=True)), len(frame))


def _edges(at: np.ndarray, often: np.ndarray, baseline: str) -> tuple[np.ndarray, bool]:
    """Where intervals end, from the times of events and how often each was seen; whether each of these ends one."""
    times = np.unique(at)
    each = times.size <= _MOST or baseline == "free"
    inner = times if each else np.unique(_quantiles(at, often, np.arange(1, _MOST + 1) / _MOST))
    return np.concatenate([[0.0], inner]), each


def _quantiles(x: np.ndarray, often: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """numpy's quantiles of x, each as often as it is said to be."""
    order = np.argsort(x)
    ends = np.cumsum(often[order])
    place = levels * max(ends[-1] - 1.0, 0.0)
    low, high = (np.searchsorted(ends, at, side="right") for at in (np.floor(place), np.floor(place) + 1.0))
    first, second = (x[order][np.minimum(at, x.size - 1)] for at in (low, high))
    return np.asarray(first + (place - np.floor(place)) * (second - first))


def refuse_rows(where: str) -> Refusal:
    """The sentence of a question about E[y] of people, whom a Cox model has as pieces of durations."""
    got = "a Cox model has a hazard over time, and no one mean of a row"
    expected = "fit.survival(new, times) for P(T > t), or fit.contrast(first, second) for a log hazard ratio"
    return problem(where, got, expected)


def check_rows(where: str, model: Model, new: Table) -> None:
    """Refuses the rows of the data, None, of a Cox model: they are pieces of durations."""
    if model.cox is not None and new is None:
        raise refuse_rows(where)


def survival(
    fit: FittedModel,
    new: Table,
    times: Any,
    interval: float | None,
    size: int = 1000,
    rng: Any = 0,
    new_groups: str = "population",
) -> pd.DataFrame:
    """S(t) = exp(-sum_j width_j e^{b_j + eta}) of new rows at times, averaged over joint draws."""
    from .averages import survival_frame

    form = fit.model.cox
    assert form is not None
    at = np.atleast_1d(numeric("survival", "times", times))
    if at.ndim > 1 or not ((at >= 0.0) & (at <= form.edges[-1])).all():
        raise problem("survival", "times beyond the data", f"between 0 and {form.edges[-1]:g}, the last event")
    frame = read_frame("survival", new, "new")
    n, J = len(frame), form.edges.size - 1
    rows, where = np.repeat(np.arange(n), J), np.tile(np.arange(J), n)
    draws = fit.sample(
        form.expanded(frame, rows, where), count("survival", "size", size, 2), rng, kind="link", new_groups=new_groups
    )
    hazard = np.exp(draws).reshape(len(draws), n, J)
    low, high = form.edges[:-1], form.edges[1:]
    spent = np.where(at[:, None] >= high, high - low, 0.0) if form.each else np.clip(at[:, None] - low, 0.0, high - low)
    S = np.exp(-np.einsum("snj,tj->snt", hazard, spent))
    return survival_frame(frame.index, at, S, interval)
