"""The response: y in the form that a likelihood requires, with the parameters of rows such as exposure or trials.

A likelihood is given by its name (``likelihoods.WORDS``) or as an object. Labels become levels 0, 1, ...: an ordered
categorical keeps its order, and two words are sorted. The family of a model may have the name of this library in any
spelling, or R's name of the same model.

    "Poisson", "student_t", "BetaBinomial"      spaces, punctuation and case are ignored
    "nbinom2", "nb", "cumulative", "betar"      names of glmmTMB, brms and mgcv
    "lognormal", "quasipoisson"                 not families here: the error names the replacement
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

_TAKEN = {  # what a score assumes if it is not given
    "exposure": "each y is scored at exposure 1",
    "trials": "each y is scored at one trial",
    "event": "every duration is taken as observed",
}
_MOST_LEVELS = 50  # for an ordinal y; more cutpoints cannot be learned from data


_MODELS = {  # families that are models and not likelihoods of a row, by their normalised names
    "multinomial": "multinomial",
    "categorical": "multinomial",
    "multinom": "multinomial",
    "cox": "cox",
    "coxph": "cox",
}
_OTHERS = {  # names of families that are not in this library -> replacement
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
    """A likelihood with its data, and their units and labels.

    Attributes
    ----------
    where : str
        The caller's name, which begins every error message.
    likelihood : Likelihood, with its starting parameters and the rows' exposure, trials or event
    y : array (N,)
        The target as numbers; labels are levels 0, ..., K-1.
    level : float or array (K,)
        The link of the overall mean; 0 for ordered levels.
    scale : float
        The scale of eta. If eta has the units of y, the standard deviation of y (from quartiles under heavy tails),
        or |y| for a constant y and 1 for zeros. Otherwise 1.
    values : array (K,) or None
        The sorted numbers that are the labels of y.
    words : array (K,) or None
        The labels of y if they are not numbers.
    weights : array (N,) or None
        Weights of the rows; None for 1.
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
        """The weight of each row (N,): 0 if it has no y, or an exposure or number of trials of 0."""
        return weight_seen(self.likelihood, self.y, self.weights)

    @property
    def labels(self) -> np.ndarray | None:
        """The labels in order, as the user gave them."""
        return self.values if self.words is None else self.words

    def likelihood_at(self, likelihood: Likelihood, n: int, rows: Mapping[str, Any]) -> Likelihood:
        """The learned likelihood at n new rows; by default with exposure 1, one trial, and events that happened."""
        given = {key: vector(self.where, key, value, n) for key, value in rows.items() if value is not None}
        default = {key: 1.0 if key == "trials" else None for key in likelihood.row_parameters}
        own = likelihood.with_rows(**{**default, **given}) if default or given else likelihood
        return own.lenient()

    def at(self, likelihood: Likelihood, eta: Marginals, rows: Mapping[str, Any]) -> Predictive:
        """Predictions of y at new rows by the learned likelihood, given the marginals of eta."""
        own = self.likelihood_at(likelihood, np.shape(eta.mean)[0], rows)
        return Predictive(own, eta, self.values, self.labels)

    def log_density(self, new: Predictive, y: ArrayLike) -> np.ndarray:
        """The log density log p(y) at y (M,); NaN where y is NaN."""
        return new.log_density(self.places(y, np.shape(new.eta.mean)[0]))

    def places(self, y: Any, n: int | None = None) -> np.ndarray:
        """y (n,) from the user's form to the likelihood's: labels become levels 0, ..., K-1."""
        y = y if self.words is None else levels_of_words(self.where, self.words, y)
        y = vector(self.where, "y", y, n, missing=True)
        return y if self.values is None else encoded(self.where, self.values, y)

    def decoded(self, levels: np.ndarray) -> np.ndarray:
        """Levels 0, ..., K-1 as the user's labels; other values of y unchanged."""
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
    """Read a likelihood (a name or an object), y (N,) with NaN where unobserved, and the parameters of the rows.

    ``centred`` says whether the prior of eta has the overall level of y as its mean; if the user chose the level, it
    is in the units of y. ``learned`` says whether the likelihood's own parameters are learned, and ``words`` are the
    labels of the levels.
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
        prepared = own.starting(y, w, bound, **given)
    elif isinstance(likelihood, Likelihood):
        choice(where, "bound", bound, ("best",), "A Likelihood brings its own: give the bound to it.")
        if likelihood.n_predictors > 1:
            advice = "For several classes use GaussianProcessClassifier or BayesianLogisticRegression."
            raise problem(where, f"{likelihood!r} has {likelihood.n_predictors} predictors a row", "one", advice)
        prepared = likelihood.with_rows(**given) if given else likelihood
        if prepared.support == "levels":
            classes = np.arange(prepared.n_levels, dtype=np.float64)
    else:
        got = f"likelihood is a {type(likelihood).__name__}"
        raise problem(where, got, f"one of {', '.join(map(repr, WORDS))}, or a Likelihood")
    prepared.prepare(y)  # refuses an invalid target before any computation
    if prepared.durations:
        _check_events(where, prepared, w, learned)
    if centred:
        prepared = prepared.in_units(y, w)
    return Target(where, prepared, y, prepared.level(y, w), prepared.scale_of(y, w), classes, words)


def counted(where: str, likelihood: Any, y: np.ndarray, name: str, trials: bool, elbo: str) -> Any:
    """Replace "poisson" by a quasi-Poisson target, with a warning, if y is not whole; return others unchanged."""
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
    """The weight of each row (N,): 0 if it has no y, or an exposure or number of trials of 0."""
    out = np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)
    for key in ("exposure", "trials"):
        given = likelihood.row_values.get(key)
        out = out if given is None else np.where(np.asarray(given) > 0.0, out, 0.0)
    return out


def target_of(where: str, n: int, y: Any) -> np.ndarray:
    """y (n,) with NaN where it is missing or masked."""
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    if np.ma.isMaskedArray(y):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    if hasattr(y, "iloc") and y.ndim == 1 and y.dtype.kind in "biuf":
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)  # also pandas' nullable columns
    out = numeric(where, "y", column_or_1d(y, warn=True))
    check_consistent_length(np.empty(n), out)
    if np.isnan(out).all():
        raise problem(where, "every y is NaN", "at least one observed row")
    return out


def announce_missing(where: str, likelihood: Likelihood, given: Mapping[str, Any]) -> None:
    """Warn if a row parameter was given to fit but not to score, because the densities then differ in meaning."""
    for key, fitted in likelihood.row_values.items():
        if given.get(key) is None and (np.asarray(fitted) != 1.0).any():
            taken = _TAKEN.get(key, "it is left at its default")
            warnings.warn(
                f"{where}: fit was given {key}, score was not: {taken}; pass {key}=...",
                UserWarning,
                stacklevel=callers_line(),
            )


def _check_words(where: str, own: Likelihood, word: str, bound: str, given: Mapping[str, Any]) -> None:
    """Refuse row parameters and bounds that the named likelihood does not have."""
    for key in given:
        if key not in own.row_parameters:
            owners = [f'"{w}"' for w, o in WORDS.items() if key in o.row_parameters or (key == "upper" and o.durations)]
            raise problem(where, f'{key} was given with likelihood="{word}"', f"{key} only with {' or '.join(owners)}")
    for key in own.needs:
        if key not in given:
            raise problem(where, f"{key} is missing", f"the {key} of each row", f"Call fit(X, y, {key}=...).")
    choice(where, "bound", bound, ("best", *(word for word in own.bounds if word != "none")))


def _check_events(where: str, likelihood: Any, w: np.ndarray, learned: bool) -> None:
    """Warn if all rows are censored, since they bound the hazard only from above; refuse to learn a shape from them."""
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
    if two and np.isin(classes, (0.0, 1.0)).all():  # one of the two classes may be missing
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
    """The likelihood of an estimator: the class for its name, or the object itself; None for anything else."""
    match likelihood:
        case str():
            return WORDS.get(likelihood)
        case Likelihood():
            return likelihood
    return None


def read_labels(where: str, likelihood: Any, y: Any) -> tuple[Any, np.ndarray | None]:
    """Words or categories as levels (N,), NaN where missing, with their labels; numbers unchanged, with None.

    Categories without rows are left out, unless there are exactly two categories. Categories that are increasing
    numbers are read as these numbers.
    """
    refuse_device(where, "y", y)
    own = known(likelihood)
    held = holds(y) if own is not None and own.support == "levels" and np.ndim(y) == 1 else None
    if own is None or held not in ("text", "categories"):
        return y, None
    if own is likelihood:
        advice = "Use y.cat.codes of an ordered categorical, or (y == word) of two words."
        raise problem(where, f"y holds {held} and likelihood = {likelihood!r}", "levels 0, 1, ...", advice)
    ranked = getattr(y.dtype, "ordered", None) if held == "categories" else None  # None: not pandas' column, so words
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
    """The index of each entry in ``words`` (N,), NaN where missing."""
    place = {word: float(k) for k, word in enumerate(words.tolist())}
    given = _objects(y).tolist()
    out = np.array([place.get(v, -1.0) if present(v) else np.nan for v in given])
    if (out < 0).any():
        got = f"y{first(out < 0)} = {given[int(np.argmax(out < 0))]!r} was not seen in fit"
        raise problem(where, got, f"one of {words.tolist()}")
    return out


def encoded(where: str, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Labels as levels 0, ..., K-1."""
    place = np.clip(np.searchsorted(classes, y), 0, classes.size - 1)
    unknown = ~np.isnan(y) & (classes[place] != y)
    if unknown.any():
        got = f"y[{int(np.argmax(unknown))}] = {y[unknown][0]:g} was not seen in fit"
        raise problem(where, got, f"one of {classes.tolist()}")
    return np.where(np.isnan(y), np.nan, place)


def _objects(y: ArrayLike) -> np.ndarray:
    """A copy of the entries as objects, None where masked."""
    out = np.array(np.ma.getdata(y) if np.ma.isMaskedArray(y) else y, dtype=object)
    if np.ma.isMaskedArray(y):
        out[np.ma.getmaskarray(y)] = None
    return out


# -- families -------------------------------------------------------------------------------------
def read_family(family: object) -> str | Likelihood | None:
    """The family as a name in ``likelihoods.WORDS`` or as the given likelihood; None without a family."""
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
    """The names that a model's family may have."""
    return (*WORDS, *dict.fromkeys(_MODELS.values()))


def without_trials(family: str, name: str, y: object) -> Exception:
    """The error for counts of successes without the number of trials."""
    values = np.asarray(y)
    numbers = values.dtype.kind in "biuf"
    labels = numbers and np.isin(values[~np.isnan(values.astype(float))], (0, 1)).all()
    share = name[2:-1] if name.startswith("I(") else name
    hits, _, n = share.partition("/")  # R writes a share of successes, with the numbers of trials as weights
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
    """Refuse more than two labels for a binary family, and likelihoods with several predictors."""
    own = known(family)
    assert own is not None
    if own is family and own.n_predictors > 1:
        raise problem("Model", f"{family!r} has {own.n_predictors} predictors a row", 'family="multinomial"')
    different = np.unique(y[~np.isnan(y)]).size
    if own is not family and own.support == "levels" and not own.ordered and different > 2:
        got = f'the response {name!r} has {different} different labels and family="{family}"'
        advice = 'Use family="multinomial", "ordinal" where they have an order, "binomial" where y counts successes.'
        raise problem("Model", got, "two", advice)
