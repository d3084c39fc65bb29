"""Cox's proportional hazards in its Poisson form: rows cut at event times, a log baseline hazard for each interval.

    lambda_i(t) = lambda_0(t) e^{eta_i},      (c_{j-1}, c_j] the intervals,  b_j = log lambda_0 within them
    y_ij = 1 if row i ended in interval j, else 0   ~   Poisson(width_ij e^{b_j + eta_i})      for the intervals it saw

With a free b_j for each event time ("free") the Poisson likelihood, maximised over b, is the partial likelihood with
Breslow's treatment of ties. b is otherwise a random walk over time ("rw1", "rw2"); beyond 16 event times its intervals
hold equal numbers of events, and a row counts for the time that it was at risk. The data become one row for each row
and interval: pieces of durations.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..checks import choice, count, numeric, problem
from ..inputs.frames import column_of, read_frame, unknown
from ..likelihoods.base import Likelihood
from ..terms import IID, DataTable, Hyperparameter, Term
from . import capabilities, predictions
from .base import ModelSpec, Reduction, dropped_in_words, missing_in
from .grammar import Name, parse
from .response import events_of_words

if TYPE_CHECKING:
    import pandas as pd

    from .durations import People
    from .fitted import FittedModel
    from .model import Model

EVENT, WIDTH, TIME = "event in interval", "time in interval", "time of interval"
_MOST = 16  # intervals of a walk: with 60 of them coefficients move by some hundredths of a standard error
_FREE = 500  # event times of a free baseline; more are refused
_WIDE = 100.0  # prior sd of each log hazard of a free baseline about their mean
_BASELINES = {"rw1": f" + rw1(`{TIME}`)", "rw2": f" + rw2(`{TIME}`)", "free": ""}


class FreeHazard(IID):
    """A log hazard for each interval about their mean, with a wide fixed prior."""

    of_groups = False
    stated = (("sd", f"{_WIDE:g}, fixed: free"),)

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return ()

    def read(self, table: DataTable, scale: float) -> Self:
        out = super().read(table, scale)
        out.constraints = np.ones((1, out.n_latents))
        return out

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.made.build(np.array([np.log(_WIDE)]))[0], []

    def population(self, theta: np.ndarray) -> np.ndarray:
        return np.array([[_WIDE**2]])


class Cox(Reduction):
    """The reduction of a Cox model: durations become counts of events in intervals.

    Attributes
    ----------
    people_frame : pandas frame
        The data as given, with a row for each duration.
    time, event : str
        Columns of ``people_frame``.
    unknown : dict
        Masks (N,) of missing times and events; such rows are dropped.
    rows : array (P,)
        The row of ``people_frame`` to which each piece belongs.
    edges : array (J + 1,)
        The ends of the intervals, from 0.
    steps : bool
        Whether every event time ends an interval, so that the hazard is concentrated at event times.
    """

    name = "cox"

    def reduce(self, spec: ModelSpec) -> list[ModelSpec]:
        """The Poisson model of the pieces of durations."""
        choice("Model", "baseline", spec.baseline, tuple(_BASELINES))
        parsed, frame = parse(spec.formula), read_frame("Model", spec.data)
        for key in ("weights", "exposure", "trials", "event"):
            if np.ndim(spec.__dict__[key]) > 0:
                raise problem("Model", f'{key} is an array and family="cox" cuts rows', "a column by name")
        event = parsed.about.get("event")
        if not isinstance(event, Name):
            got = f'family="cox" meets the response {parsed.response.text!r}'
            advice = "Where every event was seen, event is a column of ones."
            if event is not None:
                got = 'family="cox" meets an event that is computed'
                advice = "Make it a column of the data first."
            raise problem("Model", got, "cens(time, event)", advice)
        self.time, self.event, self.people_frame = parsed.response.text.strip("`"), event.name, frame
        for name in (self.time, self.event):
            if name not in frame.columns:
                raise parsed.refuse(name, *unknown(frame, name))
        t, ended = self.durations(frame)
        both = (self.time, np.isnan(t)), (self.event, np.isnan(ended))
        self.unknown: dict[Hashable, np.ndarray] = {name: where for name, where in both if where.any()}
        seen = ~(np.isnan(t) | np.isnan(ended))
        bad = seen & ~((t > 0.0) & np.isin(ended, (0.0, 1.0)))
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            got = f"row {i} has {self.time} = {t[i]:g} and {self.event} = {ended[i]:g}"
            coded = set(ended[seen]) == {1.0, 2.0}
            advice = "Where 1 is censored and 2 an event, as R may code it, give a column with 1 less." if coded else ""
            raise problem("Model", got, "times above 0, and events of 0 or 1", advice)
        often = _how_often(spec.weights, frame)
        happened = seen & (ended == 1.0) & (often > 0.0)
        if not happened.any():
            raise problem("Model", "no event happened", "at least one row with an event")
        self._set_edges(t[happened], often[happened], spec.baseline)
        spent = self.time_spent(np.where(seen, t, 0.0))
        self.rows, interval = np.nonzero(spent > 0.0)
        low, high, at = self.edges[interval], self.edges[interval + 1], t[self.rows]
        pieces = {
            EVENT: ((ended[self.rows] == 1.0) & (at > low) & (at <= high)).astype(np.float64),
            WIDTH: spent[self.rows, interval],
        }
        walk = _BASELINES[spec.baseline]
        right = parsed.formula.split("~", 1)[1].strip()
        return [
            replace(
                spec,
                formula=f"`{EVENT}` ~ {right}{walk}",
                data=self.expanded(frame, self.rows, interval).assign(**pieces),
                family="poisson",
                exposure=WIDTH,
                terms=[*spec.terms, *([] if walk else [FreeHazard(TIME, name="baseline")])],
            )
        ]

    def durations(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Times and events of rows (N,), NaN where they are missing."""
        time, event = (column_of("Model", frame, name) for name in (self.time, self.event))
        words = events_of_words(self.event)
        return numeric("Model", self.time, time, missing=True), numeric("Model", self.event, event, words, missing=True)

    def _set_edges(self, at: np.ndarray, often: np.ndarray, baseline: str) -> None:
        """Set the ends of the intervals: the event times, or quantiles of them if there are many."""
        times = np.unique(at)
        self.steps = times.size <= _MOST or baseline == "free"
        if baseline == "free" and times.size > _FREE:
            got = f'baseline="free" with {times.size} different event times'
            raise problem("Model", got, f"at most {_FREE}", 'Round them, or use baseline="rw1".')
        inner = times if self.steps else np.unique(_quantiles(at, often, np.arange(1, _MOST + 1) / _MOST))
        self.edges = np.concatenate([[0.0], inner])

    def time_spent(self, t: np.ndarray) -> np.ndarray:
        """Time at risk (N, J) in each interval, up to the last event, of rows that last until t."""
        low, high = self.edges[:-1], self.edges[1:]
        if self.steps:  # rows that end before an event time are not at risk there
            return np.where(t[:, None] >= high, high - low, 0.0)
        return np.clip(t[:, None] - low, 0.0, high - low)

    def expanded(self, frame: pd.DataFrame, rows: np.ndarray, interval: np.ndarray) -> pd.DataFrame:
        """The pieces of the rows of a frame in the intervals, as the Poisson model reads them."""
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        return frame.iloc[rows].reset_index(drop=True).assign(**{TIME: middles[interval]})

    # -- rows and words ----------------------------------------------------------------------------
    def missing(self, model: Model, names: Sequence[Hashable]) -> dict[Hashable, np.ndarray]:
        return {**self.unknown, **missing_in(self.people_frame, names)}

    def data_rows(self, model: Model) -> tuple[pd.DataFrame, np.ndarray]:
        """People in the first interval."""
        _, seen = super().data_rows(model)
        people, piece = np.unique(self.rows[model.kept], return_index=True)
        return self.expanded(self.people_frame, people, np.zeros(people.size, dtype=int)), seen[piece]

    def counted(self, model: Model) -> tuple[int, int]:
        people = len(self.people_frame) - model.dropped.n
        return people, people

    def outcome(self, model: Model) -> tuple[Hashable, np.ndarray]:
        return self.time, self.durations(self.data_rows(model)[0])[0]

    def covariates(self, model: Model) -> list[Hashable]:
        return [name for name in model.covariates if name != TIME]

    def labels(self, model: Model, by: Any) -> Any:
        """Group labels of people, repeated for the pieces of their durations."""
        if isinstance(by, str) and by not in model.frame and by in self.people_frame.columns:
            by = np.asarray(self.people_frame[by].astype(str))
        if not isinstance(by, str) and np.shape(by) == (len(self.people_frame),):
            return np.asarray(by)[self.rows]
        return by

    def check_columns(self, where: str, frame: pd.DataFrame) -> None:
        if TIME not in frame.columns:
            limit = capabilities.LIMITS[self.name]
            raise problem(where, limit.why, limit.instead["predict"])

    def own_terms(self, terms: Sequence[Term]) -> list[Term]:
        return [term for term in terms if TIME not in term.columns]

    def family_in_words(self, model: Model) -> str:
        return "cox, as counts of events in intervals"

    def rows_in_words(self, model: Model) -> list[str]:
        people, _ = self.counted(model)
        pieces = f"{model.n_rows[0]} pieces of durations: leave-one-out and folds are by piece"
        why = "a time, an event or a covariate is missing"
        return [f"rows: {people} used, as {pieces}", *dropped_in_words(model, why)]

    def reported(self, likelihood: Likelihood) -> tuple[Likelihood, float]:
        return likelihood.changed(ratio="hazard_ratio"), 0.0

    # -- answers -----------------------------------------------------------------------------------
    def survival(self, fit: FittedModel, new: Any, times: Any, size: int, rng: Any, options: Mapping[str, Any]) -> Any:
        """Joint draws of S(t) = exp(-sum_j width_j e^{b_j + eta}) of new rows at times."""
        at = np.atleast_1d(numeric("survival", "times", times))
        if at.ndim > 1 or not ((at >= 0.0) & (at <= self.edges[-1])).all():
            expected = f"between 0 and {self.edges[-1]:g}, the last event"
            raise problem("survival", "times beyond the data", expected)
        frame = read_frame("survival", new, "new")
        n, intervals = len(frame), self.edges.size - 1
        rows, where = np.repeat(np.arange(n), intervals), np.tile(np.arange(intervals), n)
        pieces = predictions.read_rows(fit, self.expanded(frame, rows, where), **options)
        size, rng = count("survival", "size", size, 2), np.random.default_rng(rng)
        hazard = np.exp(predictions.draws(fit, pieces, size, rng, "link")).reshape(size, n, intervals)
        return at, np.exp(-np.einsum("snj,tj->snt", hazard, self.time_spent(at))), frame.index

    def people(self, fit: FittedModel) -> People:
        """The rows before they were cut, with their log hazards in the first interval."""
        from .durations import People

        frame, seen = self.data_rows(fit.model)
        risk = predictions.predict(fit, predictions.read_rows(fit, frame, exposure=1.0), "link", None).to_numpy()
        return People(frame, *self.durations(frame), risk, seen)

    def survival_times(self, fit: FittedModel) -> tuple[np.ndarray, bool]:
        """Times up to the last event; the event times if each of them ends an interval."""
        from .durations import TIMES

        return (self.edges, True) if self.steps else (np.linspace(0.0, self.edges[-1], TIMES), False)


def _how_often(weights: Any, frame: pd.DataFrame) -> np.ndarray:
    """The weights of the rows (N,), by default 1; ``Response`` checks them."""
    given = 1.0 if weights is None else weights
    if isinstance(weights, str):
        given = column_of("Model", frame, weights)
    return np.broadcast_to(np.nan_to_num(numeric("Model", "weights", given, missing=True)), len(frame))


def _quantiles(x: np.ndarray, often: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of x as by numpy, with entry i repeated ``often[i]`` times."""
    order = np.argsort(x)
    ends = np.cumsum(often[order])
    place = levels * max(ends[-1] - 1.0, 0.0)
    low, high = (np.searchsorted(ends, at, side="right") for at in (np.floor(place), np.floor(place) + 1.0))
    first, second = (x[order][np.minimum(at, x.size - 1)] for at in (low, high))
    return np.asarray(first + (place - np.floor(place)) * (second - first))
