"""The response: y as a likelihood takes it, with what each row has beside it.

A likelihood is given by its word (``likelihoods.WORDS``) or as it is; what is known of it (its level, its scale, where
its parameters start) it knows itself. Labels are the levels 0, 1, ...: those of an ordered categorical in its order,
two words sorted.

The family of a model goes by its name: ours in any spelling, and those of R that are the same model.

    "Poisson", "student_t", "BetaBinomial"      blanks, signs and capitals are passed over
    "nbinom2", "nb", "cumulative", "betar"      names of glmmTMB, brms and mgcv
    "lognormal", "quasipoisson"                 no family here: refused with the one to take
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import column_or_1d

from ..checks import callers_line, choice, first, first_value, holds, numeric, problem, refuse_device, vector
from ..likelihoods import WORDS, Interval, Poisson
from ..likelihoods.base import Likelihood
from ..likelihoods.registry import bare, spelled
from ..linalg.arrays import ArrayLike
from ..marginals import Marginals
from ..predictive import Predictive
from .levels import present

_TAKEN = {  # where a score is not told
    "exposure": "each y is scored at exposure 1",
    "trials": "each y is scored at one trial",
    "event": "every duration is taken as observed",
}
_MOST_LEVELS = 50  # of an ordinal y: cutpoints of more are not learned from data


_MODELS = {  # families that are no likelihood of a row, by their spellings without signs
    "multinomial": "multinomial",
    "categorical": "multinomial",
    "multinom": "multinomial",
    "cox": "cox",
    "coxph": "cox",
}
_OTHERS = {  # what is none of ours, and what to take
    "lognormal": 'np.log(y) on the left side with family="gaussian"',
    "quasipoisson": 'family="negative-binomial-1", whose variance is a multiple of its mean',
    "quasibinomial": 'family="beta-binomial"',
    "inversegaussian": 'family="gamma", or np.log(y) with family="gaussian"',
    "compois": 'family="poisson", or "negative-binomial" where counts spread more',
    "genpois": 'family="negative-binomial-1", whose variance is a multiple of its mean',
    "exgaussian": 'family="student-t", or np.log(y) with family="gaussian"',
    "skewnormal": 'family="student-t", or np.log(y) with family="gaussian"',
    "logit": 'family="bernoulli", whose link is the logit',
}


# -- the target -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Target:
    """A likelihood with its data.

    Attributes
    ----------
    where : str
        Who asks: the first word of every message.
    likelihood : at its starting parameters, with the rows' exposure, trials or event
    y : array (N,)
        As the likelihood takes it: levels 0, ..., K-1 for labels.
    level : float or array (K,)
        The link of the overall mean; 0 for ordered levels.
    scale : float
        The scale of eta: the standard deviation of y (by its quartiles under heavy tails; the size of a constant y, 1
        for zeros) where eta is on the scale of y, 1 elsewhere.
    values : array (K,) or None
        The numbers that labels stand for, in order.
    words : array (K,) or None
        What the labels are called, where these are no numbers.
    weights : array (N,) or None
        Of the rows; None: 1 each.
    """

    where: str
    likelihood: Likelihood
    y: np.ndarray
    level: Any = 0.0
    scale: float = 1.0
    values: np.ndarray | None = None
    words: np.ndarray | None = None
    weights: np.ndarray | None = None

    @property
    def seen(self) -> np.ndarray:
        """The weight of each row (N,): 0 where it is unobserved, by its y, its exposure or its trials."""
        return weight_seen(self.likelihood, self.y, self.weights)

    @property
    def labels(self) -> np.ndarray | None:
        """The labels in order, as users know them."""
        return self.values if self.words is None else self.words

    def likelihood_at(self, likelihood: Likelihood, n: int, rows: Mapping[str, Any]) -> Likelihood:
        """The learned likelihood at n new rows: what is not given is exposure 1, one trial, an event that happened."""
        given = {key: vector(self.where, key, value, n) for key, value in rows.items() if value is not None}
        default = {key: 1.0 if key == "trials" else None for key in likelihood.row_parameters}
        own = likelihood.with_rows(**{**default, **given}) if default or given else likelihood
        return own.lenient()

    def at(self, likelihood: Likelihood, eta: Marginals, rows: Mapping[str, Any]) -> Predictive:
        """y at new rows with these marginals of eta, by the learned likelihood."""
        own = self.likelihood_at(likelihood, np.shape(eta.mean)[0], rows)
        return Predictive(own, eta, self.values, self.labels)

    def log_density(self, new: Predictive, y: ArrayLike) -> np.ndarray:
        """log p(y) of given y (M,), NaN where it is."""
        return new.log_density(self.places(y, np.shape(new.eta.mean)[0]))

    def places(self, y: Any, n: int | None = None) -> np.ndarray:
        """y as users know it (n,) as the likelihood takes it: labels as their places 0, ..., K-1."""
        y = y if self.words is None else levels_of_words(self.where, self.words, y)
        y = vector(self.where, "y", y, n, missing=True)
        return y if self.values is None else encoded(self.where, self.values, y)

    def decoded(self, levels: np.ndarray) -> np.ndarray:
        """Levels 0, ..., K-1 of y as users know them; other y as they are."""
        return levels if self.labels is None else self.labels[levels.astype(int)]


# -- reading --------------------------------------------------------------------------------------
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
    if likelihood != "poisson" or trials or not real.any():
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
        given = likelihood.row_values.get(key)
        out = out if given is None else np.where(np.asarray(given) > 0.0, out, 0.0)
    return out


def target_of(where: str, n: int, y: Any) -> np.ndarray:
    """y (n,), NaN where unobserved: missing or masked."""
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    if np.ma.isMaskedArray(y):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    if hasattr(y, "iloc") and y.ndim == 1 and y.dtype.kind in "biuf":
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas' nullable columns too
    out = numeric(where, "y", column_or_1d(y, warn=True))
    check_consistent_length(np.empty(n), out)
    if np.isnan(out).all():
        raise problem(where, "every y is NaN", "at least one observed row")
    return out


def announce_missing(where: str, likelihood: Likelihood, given: Mapping[str, Any]) -> None:
    """Warn of rows' parameters that fit was given and a score is not: its densities are then of another question."""
    for key, fitted in likelihood.row_values.items():
        if given.get(key) is None and (np.asarray(fitted) != 1.0).any():
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
            raise problem(where, f'{key} was given with likelihood="{word}"', f"{key} only with {' or '.join(owners)}")
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
        got = f'likelihood="{name}" was given with {classes.size} different values of y'
        raise problem(
            where,
            got,
            "two" if two else "two or more levels",
            'For ordered levels use "ordinal", for classes GaussianProcessClassifier.' if two and classes.size else "",
        )
    rows = int((~np.isnan(y)).sum())
    real = bool((classes != np.floor(classes)).any()) and 2 < classes.size == rows
    if not two and (real or classes.size > _MOST_LEVELS):
        got = f'likelihood="{name}" was given with {classes.size} different values of y in {rows} rows'
        advice = 'For real numbers use "gaussian" or "student-t"; or cut y into a few levels (pd.cut, pd.qcut).'
        raise problem(where, got, f"levels, {_MOST_LEVELS} at most", advice)
    return classes, encoded(where, classes, y)


# -- labels ---------------------------------------------------------------------------------------
def known(likelihood: Any) -> Likelihood | None:
    """What knows of the likelihood an estimator was given: that of its word, or itself; None of neither."""
    match likelihood:
        case str():
            return WORDS.get(likelihood)
        case Likelihood():
            return likelihood
    return None


def read_labels(where: str, likelihood: Any, y: Any) -> tuple[Any, np.ndarray | None]:
    """Words or categories as levels (N,), NaN where missing, and what the levels are; numbers as they are, and None.

    Categories that no row has are left out, unless there are two in all. Categories that are numbers in rising order
    are these numbers.
    """
    refuse_device(where, "y", y)
    own = known(likelihood)
    held = holds(y) if own is not None and own.support == "levels" and np.ndim(y) == 1 else None
    if own is None or held not in ("text", "categories"):
        return y, None
    if own is likelihood:
        advice = "Use y.cat.codes of an ordered categorical, or (y == word) of two words."
        raise problem(where, f"y holds {held} and likelihood = {likelihood!r}", "levels 0, 1, ...", advice)
    ranked = getattr(y.dtype, "ordered", None) if held == "categories" else None  # None: not pandas', so words
    if own.ordered and not ranked:
        advice = 'Give them one: y = pd.Categorical(y, categories=["low", "middle", "high"], ordered=True).'
        got = f'y holds {held} without an order, and likelihood="{likelihood}"'
        raise problem(where, got, "an ordered categorical, or numbers", advice)
    values = _objects(y)
    missing = np.array([not present(v) for v in values.tolist()], dtype=bool)
    words = np.unique(values[~missing].astype(str)) if ranked is None else np.asarray(y.dtype.categories)
    if ranked is None:
        values[~missing] = values[~missing].astype(str)
    if words.size != 2:
        seen = set(values[~missing].tolist())
        words = words[np.array([word in seen for word in words.tolist()], dtype=bool)]
    if words.dtype.kind in "biuf" and (np.diff(words) > 0).all():
        return np.where(missing, np.nan, np.where(missing, 0.0, values)).astype(np.float64), None
    return levels_of_words(where, words, values), words


def levels_of_words(where: str, words: np.ndarray, y: ArrayLike) -> np.ndarray:
    """The place of each entry among the words (N,), NaN where missing."""
    place = {word: float(k) for k, word in enumerate(words.tolist())}
    given = _objects(y).tolist()
    out = np.array([place.get(v, -1.0) if present(v) else np.nan for v in given])
    if (out < 0).any():
        got = f"y{first(out < 0)} = {given[int(np.argmax(out < 0))]!r} was not seen in fit"
        raise problem(where, got, f"one of {words.tolist()}")
    return out


def encoded(where: str, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Labels as 0, ..., K-1."""
    place = np.clip(np.searchsorted(classes, y), 0, classes.size - 1)
    unknown = ~np.isnan(y) & (classes[place] != y)
    if unknown.any():
        got = f"y[{int(np.argmax(unknown))}] = {y[unknown][0]:g} was not seen in fit"
        raise problem(where, got, f"one of {classes.tolist()}")
    return np.where(np.isnan(y), np.nan, place)


def _objects(y: ArrayLike) -> np.ndarray:
    """A copy of the entries as they are, None where masked."""
    out = np.array(np.ma.getdata(y) if np.ma.isMaskedArray(y) else y, dtype=object)
    if np.ma.isMaskedArray(y):
        out[np.ma.getmaskarray(y)] = None
    return out


# -- families -------------------------------------------------------------------------------------
def read_family(family: object) -> str | Likelihood | None:
    """The family as a word of ``likelihoods.WORDS``, or the likelihood that was given; None where none was."""
    match family:
        case None | Likelihood():
            return family
        case type() if issubclass(family, Likelihood):
            word = f' or family="{family.word}"' if family.word else ""
            expected = f"a likelihood, {family.__name__}(),{word}"
            raise problem("Model", f"family is the class {family.__name__}", expected)
        case str():
            text = bare(family)
        case _:
            got = f"family is a {type(family).__name__}"
            raise problem("Model", got, 'a name such as "poisson", or a Likelihood such as fenchel.Poisson()')
    if text in _OTHERS:
        raise problem("Model", f"family = {family!r} is not one of this library", _OTHERS[text])
    word = spelled(text) or _MODELS.get(text, family)
    choice("Model", "family", word, families(), "Or a Likelihood, such as fenchel.Poisson().")
    return word


def families() -> tuple[str, ...]:
    """What a model's family may be called."""
    return (*WORDS, *dict.fromkeys(_MODELS.values()))


def without_trials(family: str, name: str, y: object) -> Exception:
    """Of successes that nobody has said of how many."""
    values = np.asarray(y)
    numbers = values.dtype.kind in "biuf"
    labels = numbers and np.isin(values[~np.isnan(values.astype(float))], (0, 1)).all()
    share = name[2:-1] if name.startswith("I(") else name
    hits, _, n = share.partition("/")  # R's share of successes, with their trials as weights
    advice = f'Write "{hits.strip()} | trials({n.strip() or "n"}) ~ ...", or trials= a column or a number.'
    if labels and values.size:
        advice = f'{name} is 0 or 1 in every row: family="bernoulli".'
    elif values.size and not numbers:
        several = len({value for value in values.tolist() if present(value)}) > 2
        advice = f'{name} holds labels, not counts: family="{"multinomial" if several else "bernoulli"}".'
    return problem(
        "Model",
        f'family="{family}" without trials',
        "the number of trials of each row, of which y are the successes",
        advice,
    )


def check_labels(family: str | Likelihood, name: str, y: np.ndarray) -> None:
    """Refuses more than two labels of a family of two, and a likelihood of several predictors."""
    own = known(family)
    assert own is not None
    if own is family and own.n_predictors > 1:
        raise problem("Model", f"{family!r} has {own.n_predictors} predictors a row", 'family="multinomial"')
    different = np.unique(y[~np.isnan(y)]).size
    if own is not family and own.support == "levels" and not own.ordered and different > 2:
        got = f'the response {name!r} has {different} different labels and family="{family}"'
        advice = 'Use family="multinomial", "ordinal" where they have an order, "binomial" where y counts successes.'
        raise problem("Model", got, "two", advice)
