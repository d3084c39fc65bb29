"""Proved bounds on the evidence of a fitted model and on posterior probabilities of events.

    q(A), KL(q || posterior)  ->  P(A | y) between two bounds            at given hyperparameters (``proofs/events.py``)
    P(A | y) = sum_k w_k P(A | y, theta_k),   w_k in proportion to v_k p(y | theta_k)      over the points of a mixture

For a mixture the bounds of p(y | theta_k) bound the weights. The error of the integration over theta is not included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from ..checks import choice, problem, scalar
from ..linalg.arrays import to_numpy
from ..marginals import Marginals
from ..priors.base import NewRows
from ..proofs import EventBounds, EvidenceBounds, Proof, cheap_proof, prove, rounded_range
from . import predictions, tables

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables

_WHERE = "proved"
_HALVINGS = 200
_REACH = 40.0  # sds of eta on either side within which a threshold is searched
_HEAVIEST = 1e200  # largest relative weight of a point without an upper bound
_NARROW = 0.01  # distance between bounds of a probability below which their middle is the estimate
_SAYS, _SAYS_SHARE = 10.0, 0.01  # largest informative width in nats, absolute and relative to the lower bound
_CORRECTED_ROWS = 3_000  # rows up to which a corrected estimate is computed for the sentence

Thresholds = Callable[["FitTables"], tuple[NewRows, np.ndarray, np.ndarray]]


# -- the evidence -------------------------------------------------------------------------------------------
def proof_of(fit: FitTables, effort: str = "fast") -> Proof:
    """The proof of a fit at its hyperparameters, computed once for each effort."""
    kept = fit.proofs
    if effort not in kept:
        kept[effort] = prove(fit.solution, effort, _groups(fit))
        fit.solution.proved_bounds = kept[effort].bounds
    return kept[effort]


def proof_at_hand(fit: FitTables) -> Proof | None:
    """The best proof that is known or cheap, for the summary."""
    for effort in ("high", "fast", "cheap"):
        if effort in fit.proofs:
            return fit.proofs[effort]
    if fit.parts or fit.engine.name or _classes(fit):
        return None
    result = cheap_proof(fit.solution, _groups(fit))
    if result is not None:
        fit.proofs["cheap"] = result
        fit.solution.proved_bounds = result.bounds
    return result


def _classes(fit: FitTables) -> list[Any]:
    """The classes with their own predictors; empty for most models."""
    return fit.model.reduction.predictors(fit.model)


def _groups(fit: FitTables) -> Any:
    """The groups that the correction of the fit has integrated out."""
    answers = fit.answers
    return answers if answers is not None and answers.method == "collapsed" else None


def bounds_of_fit(fit: FitTables, effort: str) -> EvidenceBounds:
    """Bounds on the evidence of a fit; for independent parts their sums."""
    if not fit.parts:
        return proof_of(fit, effort).bounds
    each = [bounds_of_fit(part, effort) for part in fit.parts.values()]
    lower, upper, kl = (sum(values) for values in zip(*((b.lower, b.upper, b.kl) for b in each), strict=True))
    status = "; ".join(f"{name}: {b.status}" for name, b in zip(fit.parts, each, strict=True))
    return EvidenceBounds(lower, upper, kl, np.concatenate([b.exponents for b in each]), status)


def bounds_over_theta(fit: FitTables, effort: str) -> EvidenceBounds:
    """Bounds for an integrated fit: log sum_k v_k p(y | theta_k), and the divergence by the chain rule."""
    mixture, parts = fit.integrated, fit.components
    if mixture is None:
        raise problem("evidence_bounds", "at = 'points' of a fit that is not integrated", "at='mode'")
    each = [proof_of(part, effort).bounds for part in parts]
    used = np.array([part.solution.elbo if part.answers is None else part.answers.log_evidence for part in parts])
    w = mixture.weights
    down, up = np.array([b.lower for b in each]) - used, np.array([b.upper for b in each]) - used
    lower, upper = (mixture.log_evidence + float(logsumexp(d, b=w)) for d in (down, up))
    kl = float(logsumexp(up, b=w)) - float(w @ down) + float(w @ np.array([b.kl for b in each]))
    status = f"given the {len(parts)} values of the hyperparameters that the integration uses"
    return EvidenceBounds(lower, upper, kl, np.ones(0), status)


def evidence_in_words(fit: FitTables, proof: Proof) -> str:
    """The bounds on the evidence as a sentence, for the summary."""
    lower, upper = rounded_range(proof.bounds.lower, proof.bounds.upper)
    given = " at these hyperparameters" if fit.theta.size else ""
    if fit.integrated is not None:
        given = " at the mode of the hyperparameters"
    kl, who = proof.bounds.kl, ""
    if proof.groups is not None and _groups(fit) is not None:
        kl, who = proof.rest_kl, " of all but the groups, which are integrated out,"
    elif fit.integrated is not None or fit.answers is not None:
        who = " of the Gaussian"
    if proof.bounds.width > max(_SAYS, _SAYS_SHARE * abs(proof.bounds.lower)):
        return f"log evidence at least {lower}, proved{given}; no upper bound is near it"
    return f"log evidence between {lower} and {upper}, proved{given}; KL{who} to the posterior at most {_upwards(kl)}"


def _upwards(value: float) -> str:
    """A number with two digits, rounded up."""
    if not np.isfinite(value) or value <= 0.0:
        return f"{max(value, 0.0):g}"
    unit = 10.0 ** (np.floor(np.log10(value)) - 1.0)
    return f"{np.ceil(value / unit * (1.0 - 1e-12)) * unit:.2g}"


# -- events -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Proved:
    """Probabilities of events under the posterior, between proved bounds.

    Attributes
    ----------
    table : data frame
        One row for each event: ``low`` and ``high``, the ends of its range; ``approximate``, the probability under the
        approximation; ``lower`` and ``upper``, the proved bounds on the posterior probability; ``estimate``, the best
        estimate without proof.
    sentences : list of str
        The same in words, with the hyperparameters or integration points at which it holds.
    """

    table: pd.DataFrame
    sentences: list[str]

    @property
    def lower(self) -> Any:
        """The lower bounds: a number for one event, else a Series."""
        return self._column("lower")

    @property
    def upper(self) -> Any:
        return self._column("upper")

    @property
    def approximate(self) -> Any:
        return self._column("approximate")

    @property
    def estimate(self) -> Any:
        return self._column("estimate")

    def _column(self, name: str) -> Any:
        return float(self.table[name].iloc[0]) if len(self.table) == 1 else self.table[name]

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    __repr__ = __str__


@dataclass(frozen=True)
class Event:
    """Events low < linear combination of latents < high, one per label; ``thresholds`` evaluates them at a theta."""

    labels: Any
    words: list[str]
    low: np.ndarray
    high: np.ndarray
    thresholds: Thresholds
    estimate: Callable[[Marginals], np.ndarray]
    whole: bool = False  # whether the event is the interval of the fit's table


def proved_events(
    fit: FitTables,
    what: Any,
    low: float | None,
    high: float | None,
    level: float,
    kind: str,
    effort: str,
    options: Mapping[str, Any],
) -> Proved:
    """The result of ``FittedModel.proved``."""
    ends = [None if end is None else scalar(_WHERE, name, end) for name, end in (("low", low), ("high", high))]
    if None not in ends and ends[0] > ends[1]:  # type: ignore[operator]
        raise problem(_WHERE, f"low = {low:g} is above high = {high:g}", "low below high")
    if what is None or type(what) in (str, tuple):
        event = _of_sum(fit, what, ends, level)
    elif _classes(fit):
        expected = "a coefficient by its name, for its log odds in each class"
        raise problem(_WHERE, "rows of a model of several classes", expected, "sample(rows) has draws of their shares.")
    else:
        event = _of_rows(fit, what, ends, kind, options)
    parts = fit.components
    each = []
    for part in parts:
        new, below, above = event.thresholds(part)
        each.append(proof_of(part, effort).event(part.solution, new, below, above))
    result = each[0] if fit.mixture is None else _mixed(fit, parts, each, effort)
    estimate, word = _estimate(fit, event, result)
    return _written(fit, event, result, estimate, word)


def _of_sum(fit: FitTables, what: Any, ends: list[float | None], level: float) -> Event:
    """Events of a coefficient, of all coefficients, or of a level of an effect, (term, level)."""
    names = tables.names_of(fit.model)
    if type(what) is tuple:
        labels, rows, words = _effect_rows(fit, what)
    else:
        chosen = names if what is None else [what]
        missing = [name for name in chosen if name not in names]
        if missing or not chosen:
            got = f"there is no coefficient {missing[0]!r}" if missing else "the model has no coefficients"
            known = f"one of {', '.join(map(repr, names))}; " if names else ""
            raise problem(_WHERE, got, f"{known}(term, level) of an effect; or a table of rows")
        place = np.array([names.index(name) for name in chosen])
        labels, words = chosen, list(chosen)

        def rows(part: FitTables) -> NewRows:
            every = tables.coefficient_rows(part)
            return NewRows(design=every.design[place], offset=np.asarray(every.offset)[place])

    classes = _classes(fit)
    marginals = predictions.marginals(fit, rows)
    if classes:
        family = fit.model.reduction.family_in_words(fit.model)
        words = [f"{word} of {name!r} ({family})" for word in words for name in classes]
        labels = [(name, label) for label in labels for name in classes]
    each = _each_class(fit, marginals)
    whole = ends == [None, None]
    if whole:
        low, high = np.stack([to_numpy(one.interval(level)) for one in each], axis=1).reshape(-1, 2).T
    else:
        low = np.full(len(labels), -np.inf if ends[0] is None else ends[0])
        high = np.full(len(labels), np.inf if ends[1] is None else ends[1])

    def estimate(result: Marginals) -> np.ndarray:
        one_by_one = enumerate(_each_class(fit, result))
        step = max(len(classes), 1)
        shares = [_between(one, low[c::step], high[c::step]) for c, one in one_by_one]
        return np.stack(shares, axis=1).ravel()

    return Event(labels, words, low, high, lambda part: (rows(part), low, high), estimate, whole)


def _each_class(fit: FitTables, result: Marginals) -> list[Marginals]:
    """The marginals of each predictor."""
    return [tables.OnePredictor(result, c) for c in range(len(_classes(fit)))] or [result]


def _effect_rows(fit: FitTables, what: tuple[Any, ...]) -> tuple[list[Any], Callable[[FitTables], NewRows], list[str]]:
    if len(what) != 2:
        raise problem(_WHERE, f"{what!r}", "(term, level), such as ('(1|school)', 'Eton')")
    effects = tables.Effects(fit)
    term = effects.term(what[0])
    shown = None if term is None else tables.effect_rows(fit.model, term.name)
    if shown is None:
        raise problem(_WHERE, f"there is no effect {what[0]!r}", f"one of {list(effects)}")
    labels, rows, _ = shown
    if what[1] not in list(labels):
        raise problem(_WHERE, f"{what[0]!r} has no level {what[1]!r}", f"one of its {len(labels)} levels")
    place = [list(labels).index(what[1])]
    row = NewRows(design=rows.design[place], offset=np.asarray(rows.offset)[place])
    return [what[1]], lambda part: row, [f"{what[0]} of {what[1]}"]


def _of_rows(fit: FitTables, table: Any, ends: list[float | None], kind: str, options: Mapping[str, Any]) -> Event:
    """Events of E[y], or eta, at the rows of a table."""
    choice(_WHERE, "kind", kind, ("mean", "link"))
    if ends == [None, None]:
        raise problem(_WHERE, "rows without low or high", "a range, such as low=0.5", "Ask whether E[y] exceeds it.")
    asked = predictions.read_rows(fit, table, **options)
    n = int(asked.there.sum())
    if n == 0:
        raise problem(_WHERE, "a covariate is missing in every row", "a row that has all of them")
    low = np.full(n, -np.inf if ends[0] is None else ends[0])
    high = np.full(n, np.inf if ends[1] is None else ends[1])

    def thresholds(part: FitTables) -> tuple[NewRows, np.ndarray, np.ndarray]:
        own = asked if part is fit else asked.under(part)
        new = predictions.rows_of_kind(part, own, kind)
        if kind == "link":
            return new, low, high
        return new, *_eta_range(part, own, low, high)

    def estimate(result: Marginals) -> np.ndarray:
        if kind == "link":
            return _between(result, low, high)
        return _between(result, *_eta_range(fit, asked, low, high))

    index = asked.index[asked.there]
    name = "E[y]" if kind == "mean" else "eta"
    return Event(index, [f"{name} of row {label}" for label in index], low, high, thresholds, estimate)


def _eta_range(
    fit: FitTables, rows: predictions.PredictionRows, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The range of eta in which E[y | eta], which is monotone, is between low and high; by bisection."""
    likelihood = predictions.likelihood_at(fit, rows)
    h, rho = (to_numpy(v)[:, 0] for v in fit.solution.posterior.moments_at(rows.new))
    start, end = h - _REACH * np.sqrt(rho) - 1.0, h + _REACH * np.sqrt(rho) + 1.0

    def mean(eta: np.ndarray) -> np.ndarray:
        return predictions.mean_given(fit, likelihood, eta[:, None])[:, 0]

    rises = mean(end) >= mean(start)
    out = []
    for limit in (low, high):
        below, above = start.copy(), end.copy()
        for _ in range(_HALVINGS):
            middle = 0.5 * (below + above)
            less = (mean(middle) < limit) == rises
            below, above = np.where(less, middle, below), np.where(less, above, middle)
        at = np.where(below == start, -np.inf, np.where(above == end, np.inf, 0.5 * (below + above)))
        out.append(at)
    return np.where(rises, out[0], out[1]), np.where(rises, out[1], out[0])


def _between(result: Marginals, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low < unknown < high) (M,) under marginals."""
    far = np.nan_to_num(np.column_stack([low, high]), neginf=-1e300, posinf=1e300)
    at = [np.where(np.abs(ends) < 1e300, to_numpy(result.cdf(ends)), ends > 0.0) for ends in far.T]
    return np.asarray(at[1] - at[0], dtype=np.float64)


# -- over theta ---------------------------------------------------------------------------------------------
def _mixed(fit: FitTables, parts: list[Any], each: list[EventBounds], effort: str) -> EventBounds:
    """Bounds for a mixture, from the bounds of the weights (by the evidences) and of the events at each point."""
    mixture = fit.mixture
    assert mixture is not None
    bounds = [proof_of(part, effort).bounds for part in parts]
    used = [part.solution.elbo if part.answers is None else part.answers.log_evidence for part in parts]
    with np.errstate(divide="ignore"):
        log_w = np.log(mixture.weights) - np.array(used)
    ends = np.array([[b.lower, b.upper] for b in bounds]) + log_w[:, None]
    with np.errstate(over="ignore"):
        ends = np.exp(ends - ends[:, 0].max())
    approximate = mixture.weights @ np.stack([e.approximate for e in each])
    lower = extreme_average(np.stack([e.lower for e in each]), ends, least=True)
    upper = extreme_average(np.stack([e.upper for e in each]), ends, least=False)
    return EventBounds(approximate, lower, upper, np.max(np.stack([e.kl for e in each]), axis=0))


def extreme_average(values: np.ndarray, weights: np.ndarray, least: bool) -> np.ndarray:
    """The smallest or largest average (M,) of values (K, M) under weights between bounds (K, 2).

    At the extreme every weight is at a bound, the upper one for values beyond the average: one of K + 1 cases.
    """
    sign = 1.0 if least else -1.0
    weights = np.minimum(weights, _HEAVIEST)
    order = np.argsort(sign * values, axis=0)
    v = np.take_along_axis(sign * values, order, axis=0)
    small, large = weights[:, 0][order], weights[:, 1][order]
    best = np.full(values.shape[1], np.inf)
    for cut in range(values.shape[0] + 1):
        w = np.concatenate([large[:cut], small[cut:]])
        with np.errstate(invalid="ignore"):
            best = np.fmin(best, np.sum(w * v, axis=0) / np.sum(w, axis=0))
    return np.asarray(sign * best)


# -- words --------------------------------------------------------------------------------------------------
def _estimate(fit: FitTables, event: Event, result: EventBounds) -> tuple[np.ndarray, str]:
    """The best estimate within the bounds (NaN if there is none), and its name.

    If the bounds are closer together than the error of estimates, it is their middle.
    """
    nearly = result.upper - result.lower <= _NARROW
    middle = 0.5 * (result.lower + result.upper)
    if nearly.all():
        return middle, ""
    if fit.mixture is not None or fit.answers is not None:
        word = "integrated" if fit.integrated is not None else "corrected"
        value = event.estimate(predictions.marginals(fit, lambda part: event.thresholds(part)[0]))
    elif fit.model.n_rows[1] <= _CORRECTED_ROWS and not _classes(fit):
        answers, word = fit.solution.corrected(), "corrected"
        new = event.thresholds(fit)[0]
        value = event.estimate(answers.at(new)) if answers.marginals_trusted else np.full(len(event.low), np.nan)
    else:
        return np.where(nearly, middle, np.nan), ""
    outside = (value < result.lower - 1e-9) | (value > result.upper + 1e-9)
    value = np.where(outside, np.nan, np.clip(value, result.lower, result.upper))
    return np.where(nearly, middle, value), word


def _written(fit: FitTables, event: Event, result: EventBounds, estimate: np.ndarray, word: str) -> Proved:
    import pandas as pd

    columns = {
        "low": event.low,
        "high": event.high,
        "approximate": result.approximate,
        "lower": result.lower,
        "upper": result.upper,
        "estimate": estimate,
    }
    table = pd.DataFrame(columns, index=pd.Index(event.labels, tupleize_cols=False))
    if fit.mixture is None:
        given = ", at these hyperparameters" if fit.theta.size else ""
    else:
        given = f", given the {len(fit.components)} values of the hyperparameters that the integration uses"
    sentences = [f"{_sentence(event, result, estimate, word, k)}{given}." for k in range(len(event.words))]
    return Proved(table, sentences)


def _sentence(event: Event, result: EventBounds, estimate: np.ndarray, word: str, k: int) -> str:
    low, high, lower, upper = event.low[k], event.high[k], result.lower[k], result.upper[k]
    said = np.isfinite(estimate[k]) and upper - lower > _NARROW
    known = f"; estimated {_percent(estimate[k])} ({word})" if said else ""
    floor, ceiling = _percent(lower, -1), _percent(upper, 1)
    if np.isinf(high):
        what = f"above {low:g}"
    elif np.isinf(low):
        what = f"below {high:g}"
    else:
        what = f"between {low:g} and {high:g}"
    subject = (
        f"the interval of {event.words[k]}, {low:.4g} to {high:.4g}" if event.whole else f"{event.words[k]} {what}"
    )
    if lower <= 0.0 and upper >= 1.0:
        return f"nothing is proved of {subject}, as the evidence has no upper bound{known}"
    if event.whole:
        return f"{subject}, holds at least {floor} and at most {ceiling}, proved{known}"
    return f"{event.words[k]} is {what} with a probability of at least {floor} and at most {ceiling}, proved{known}"


def _percent(p: float, way: int = 0) -> str:
    """A probability in per cent with one decimal, more near 0 and 100; rounded down, up or to the nearest."""
    near = min(p, 1.0 - p)
    if near < 1e-8:
        if p < 0.5:
            return "0.000001 %" if way > 0 and p > 0.0 else "0 %"
        return "99.999999 %" if way < 0 and p < 1.0 else "100 %"
    places = 1 if near > 0.01 else int(np.clip(-np.floor(np.log10(max(near, 1e-9))) - 1, 1, 6))
    unit = 10.0**-places
    value = 100.0 * p / unit
    value = np.floor(value + 1e-9) if way < 0 else np.ceil(value - 1e-9) if way > 0 else np.round(value)
    if value in (0.0, np.round(100.0 / unit)):
        places = 0
    return f"{value * unit:.{places}f} %"
