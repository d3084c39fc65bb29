"""What an estimator fits: a likelihood, by its word (``likelihoods.WORDS``) or as it is, with its y and the rows' own
parameters. What is known of each (its level, its scale, where its parameters start) the likelihood knows itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import column_or_1d

from ..checks import callers_line, choice, first_value, numeric, problem, vector
from ..likelihoods import WORDS, Interval, Poisson
from ..likelihoods.base import Likelihood
from .labels import encoded
from .target import Target

_TAKEN = {  # where a score is not told
    "exposure": "each y is scored at exposure 1",
    "trials": "each y is scored at one trial",
    "event": "every duration is taken as observed",
}
_MOST_LEVELS = 50  # of an ordinal y: cutpoints of more are not learned from data


def read_observations(
    where: str,
    likelihood: Any,
    bound: str,
    y: np.ndarray,
    rows: Mapping[str, Any],
    weights: Any,
    centred: bool = True,
    learned: bool = True,
    words: np.ndarray | None = None,
) -> Target:
    """A name, or a Likelihood as it is, with y (N,), NaN where unobserved, and the rows' own parameters.

    ``centred`` says whether the prior of eta is about the level that is found here; a level that the user chose holds
    in the units of y. ``learned`` says whether the likelihood's own parameters are learned, ``words`` what the levels
    of y are called.
    """
    given = {key: vector(where, key, value, y.shape[0]) for key, value in rows.items() if value is not None}
    w = np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)
    classes = None
    if isinstance(likelihood, str):
        choice(where, "likelihood", likelihood, tuple(WORDS), "Or give a Likelihood, such as fenchel.Poisson().")
        own = WORDS[likelihood]
        if "upper" in given and own.durations:
            own = Interval(own)  # type: ignore[arg-type]
        _check_words(where, own, likelihood, bound, given)
        if own.support == "levels":
            classes, y = _encoded(where, own, y)
        made = own.starting(y, w, bound, **given)
    elif isinstance(likelihood, Likelihood):
        choice(where, "bound", bound, ("best",), "A Likelihood brings its own: give the bound to it.")
        if likelihood.n_predictors > 1:
            advice = "For several classes use GaussianProcessClassifier or BayesianLogisticRegression."
            raise problem(where, f"{likelihood!r} has {likelihood.n_predictors} predictors a row", "one", advice)
        made = likelihood.with_rows(**given) if given else likelihood
        if made.support == "levels":
            classes = np.arange(made.n_levels, dtype=np.float64)
    else:
        got = f"likelihood is a {type(likelihood).__name__}"
        raise problem(where, got, f"one of {', '.join(map(repr, WORDS))}, or a Likelihood")
    made.prepare(y)  # refuses a target that is not one before anything is computed from it
    if made.durations:
        _check_events(where, made, w, learned)
    if centred:
        made = made.in_units(y, w)
    return Target(where, made, y, made.level(y, w), made.scale_of(y, w), classes, words)


def counted(where: str, likelihood: Any, y: np.ndarray, name: str, trials: bool, elbo: str) -> Any:
    """ "poisson" of numbers that are not whole as a quasi-Poisson target, with a warning; anything else as it is."""
    real = ~np.isnan(y) & (y != np.floor(y))
    if not (isinstance(likelihood, str) and likelihood == "poisson" and real.any()) or trials:
        return likelihood
    warnings.warn(
        f"{where}: {name}{first_value(real, y)} is not a whole number; it is taken as a quasi-Poisson target, and "
        f"{elbo} is then no log probability of the data.",
        UserWarning,
        stacklevel=callers_line(),
    )
    return Poisson(integer=False)


def weight_seen(likelihood: Likelihood, y: np.ndarray, weights: Any) -> np.ndarray:
    """The weight of each row (N,): 0 where it is unobserved, by its y, its exposure or its trials."""
    out = np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)
    for key in ("exposure", "trials"):
        given = getattr(likelihood, key, None)
        out = out if given is None else np.where(np.asarray(given) > 0.0, out, 0.0)
    return out


def target_of(where: str, n: int, y: Any) -> np.ndarray:
    """y (n,), NaN where unobserved: missing or masked."""
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    if np.ma.isMaskedArray(y):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    if hasattr(y, "iloc") and y.ndim == 1 and y.dtype.kind not in "OSUMm":
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas' nullable columns too
    out = numeric(where, "y", column_or_1d(y, warn=True))
    check_consistent_length(np.empty(n), out)
    if np.isnan(out).all():
        raise problem(where, "every y is NaN", "at least one observed row")
    return out


def announce_missing(where: str, likelihood: Likelihood, given: Mapping[str, Any]) -> None:
    """Warn of rows' parameters that fit was given and a score is not: its densities are then of another question."""
    for key in likelihood.row_parameters:
        fitted = getattr(likelihood, key)
        if given.get(key) is None and fitted is not None and (np.asarray(fitted) != 1.0).any():
            taken = _TAKEN.get(key, "it is left at its default")
            warnings.warn(
                f"{where}: fit was given {key}, score was not: {taken}; pass {key}=...",
                UserWarning,
                stacklevel=3,
            )


def _check_words(where: str, own: Likelihood, word: str, bound: str, given: Mapping[str, Any]) -> None:
    """Refuse rows' parameters and bounds that the likelihood of a word does not know."""
    for key in given:
        if key not in own.row_parameters:
            owners = [f'"{w}"' for w, o in WORDS.items() if key in o.row_parameters or (key == "upper" and o.durations)]
            raise problem(where, f'{key} meets likelihood="{word}"', f"{key} with {' or '.join(owners)} alone")
    for key in own.needs:
        if key not in given:
            raise problem(where, f"{key} is missing", f"the {key} of each row", f"Call fit(X, y, {key}=...).")
    choice(where, "bound", bound, ("best", *(word for word in own.bounds if word != "none")))


def _check_events(where: str, likelihood: Any, w: np.ndarray, learned: bool) -> None:
    """Rows that are all censored bound the hazard from above alone."""
    if likelihood.event is None or float(w @ np.nan_to_num(np.broadcast_to(likelihood.event, w.shape))) > 0.0:
        return
    if learned and likelihood.theta.size:
        advice = 'Use likelihood="exponential", or give the shape and do not learn it.'
        got = "every row is censored (event = 0), and without events the shape is not known"
        raise problem(where, got, "at least one row whose event happened", advice)
    warnings.warn(
        f"{where}: every row is censored (event = 0): the data bound the hazard from above alone, and how low it is "
        "comes from the prior.",
        UserWarning,
        stacklevel=callers_line(),
    )


def _encoded(where: str, own: Likelihood, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes = np.unique(y[~np.isnan(y)])
    two, name = not own.ordered, own.word
    if two and np.isin(classes, (0.0, 1.0)).all():  # one of the two may be missing
        classes = np.array([0.0, 1.0])
    if classes.size < 2 or (two and classes.size > 2):
        got = f'likelihood="{name}" meets {classes.size} different values of y'
        raise problem(
            where,
            got,
            "two" if two else "two or more levels",
            'For ordered levels use "ordinal", for classes GaussianProcessClassifier.' if two and classes.size else "",
        )
    rows = int((~np.isnan(y)).sum())
    real = bool((classes != np.floor(classes)).any()) and 2 < classes.size == rows
    if not two and (real or classes.size > _MOST_LEVELS):
        got = f'likelihood="{name}" meets {classes.size} different values of y in {rows} rows'
        advice = 'For real numbers use "gaussian" or "student-t"; or cut y into a few levels (pd.cut, pd.qcut).'
        raise problem(where, got, f"levels, {_MOST_LEVELS} at most", advice)
    return classes, encoded(where, classes, y)
