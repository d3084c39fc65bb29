"""What an estimator knows of each likelihood: its name, where its own parameters start, the level of eta, its link.

    "gaussian", "laplace", "logistic", "student-t"              y = eta + noise
    "poisson", "negative-binomial", "zero-inflated-poisson"     counts of mean exposure e^eta (times 1 - pi)
    "gamma"                                                     y > 0 of mean e^eta
    "exponential", "weibull"                                    durations, hazard k t^{k-1} e^eta, censored if event = 0
    "beta", "binomial", "bernoulli", "probit"                   mean sigmoid(eta), Phi(eta) for the probit
    "ordinal", "ordinal-probit"                                 ordered levels, cutpoints from their frequencies

The level of eta is the link of the overall mean, sum w y / sum w, so that the latent function need not carry it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit, ndtri

from .. import likelihoods
from ..checks import choice, problem, vector
from ..likelihoods.base import Likelihood
from .durations import WeibullInUnits

NAMES = {
    "gaussian": "Gaussian",
    "laplace": "LaplaceNoise",
    "logistic": "LogisticNoise",
    "student-t": "StudentT",
    "poisson": "Poisson",
    "negative-binomial": "NegativeBinomial",
    "zero-inflated-poisson": "ZeroInflatedPoisson",
    "gamma": "Gamma",
    "exponential": "Exponential",
    "weibull": "Weibull",
    "beta": "Beta",
    "binomial": "Binomial",
    "bernoulli": "BernoulliLogit",
    "probit": "BernoulliProbit",
    "ordinal": "Ordinal",
    "ordinal-probit": "OrdinalProbit",
}
NOISE = ("Gaussian", "LaplaceNoise", "LogisticNoise", "StudentT")  # eta is on the scale of y
ORDERED = ("Ordinal", "OrdinalProbit")  # the cutpoints are the intercept
DURATIONS = ("Exponential", "Weibull")
_TAKEN = {  # where a score is not told
    "exposure": "each y is scored at exposure 1",
    "trials": "each y is scored at one trial",
    "event": "every duration is taken as observed",
}
_MOST_LEVELS = 50  # of an ordinal y: cutpoints of more are not learned from data
LABELS = (*ORDERED, "BernoulliLogit", "BernoulliProbit")
RATIOS = {
    "relative_risk": ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson"),
    "mean_ratio": ("Gamma",),
    "hazard_ratio": ("Exponential", "Weibull"),
    "odds_ratio": ("Binomial", "BernoulliLogit", "Beta", "Ordinal"),
}
PARAMETERS = {  # theta of each likelihood, one word an entry
    "Gaussian": ("log noise variance",),
    "LaplaceNoise": ("log noise scale",),
    "LogisticNoise": ("log noise scale",),
    "StudentT": ("log (degrees of freedom - 1)", "log noise scale"),
    "NegativeBinomial": ("log size",),
    "ZeroInflatedPoisson": ("logit probability",),
    "Gamma": ("log shape",),
    "Weibull": ("log shape",),
    "Beta": ("log precision",),
}
ATTRIBUTES = {  # the same in the user's own units
    "LaplaceNoise": ("scale",),
    "LogisticNoise": ("scale",),
    "StudentT": ("df", "scale"),
    "NegativeBinomial": ("size",),
    "ZeroInflatedPoisson": ("probability",),
    "Gamma": ("shape",),
    "Weibull": ("shape",),
    "Beta": ("precision",),
}


@dataclass(frozen=True)
class Response:
    """A likelihood with its data.

    Attributes
    ----------
    likelihood : at its starting parameters, with the rows' exposure, trials or event
    y : array (N,)
        Levels 0, ..., K-1 for labels.
    level : float
        The link of the overall mean; 0 for ordered levels, and for likelihoods not known here.
    scale : float
        The scale of eta: the standard deviation of y (by its quartiles under heavy tails; the size of a constant y, 1
        for zeros) where eta is on the scale of y, 1 elsewhere.
    classes : array (K,) or None
        The labels in order.
    """

    likelihood: Likelihood
    y: np.ndarray
    level: float
    scale: float
    classes: np.ndarray | None


def kind(likelihood: Likelihood) -> str:
    """The name of the class that is known here: its own or the nearest base's."""
    known = set(NAMES.values())
    return next((c.__name__ for c in type(likelihood).__mro__ if c.__name__ in known), type(likelihood).__name__)


def read_response(
    where: str,
    likelihood: Any,
    bound: str,
    y: np.ndarray,
    rows: Mapping[str, Any],
    weights: Any,
    centred: bool = True,
    learned: bool = True,
) -> Response:
    """A name, or a Likelihood as it is, with y (N,), NaN where unobserved, and the rows' own parameters.

    ``centred`` says whether the prior of eta is about the level that is found here; a level that the user chose holds
    in the units of y. ``learned`` says whether the likelihood's own parameters are learned.
    """
    given = {key: vector(where, key, value, y.shape[0]) for key, value in rows.items() if value is not None}
    w = np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)
    classes = None
    if isinstance(likelihood, str):
        choice(where, "likelihood", likelihood, tuple(NAMES), "Or give a Likelihood, such as fenchel.Poisson().")
        cls = getattr(likelihoods, NAMES[likelihood])
        _check_rows(where, likelihood, cls, given)
        if NAMES[likelihood] in LABELS:
            classes, y = _encoded(where, likelihood, y)
        made = _made(where, cls, bound, y, given, w)
    elif isinstance(likelihood, Likelihood):
        choice(where, "bound", bound, ("best",), "A Likelihood brings its own: give the bound to it.")
        if likelihood.n_predictors > 1:
            advice = "For several classes use GaussianProcessClassifier or BayesianLogisticRegression."
            raise problem(where, f"{likelihood!r} has {likelihood.n_predictors} predictors a row", "one", advice)
        made = likelihood.with_rows(**given) if given else likelihood
        if kind(made) in LABELS:
            classes = np.arange(getattr(made, "n_levels", 2), dtype=np.float64)
    else:
        got = f"likelihood is a {type(likelihood).__name__}"
        raise problem(where, got, f"one of {', '.join(map(repr, NAMES))}, or a Likelihood")
    made.prepare(y)  # refuses a target that is not one before anything is computed from it
    seen = np.nan_to_num(y)
    if kind(made) in DURATIONS:
        _check_events(where, made, seen, w, learned)
    if type(made).__name__ == "Weibull" and centred:
        made = _in_units(made, seen, w)
    return Response(made, y, _level(made, seen, w), _scale(made, seen, w), classes)


def at_rows(where: str, likelihood: Likelihood, n: int, rows: Mapping[str, Any]) -> Likelihood:
    """The same likelihood at n new rows: what is not given is exposure 1, one trial, an event that happened."""
    given = {key: vector(where, key, value, n) for key, value in rows.items() if value is not None}
    default = {key: 1.0 if key == "trials" else None for key in likelihood.row_parameters}
    return likelihood.with_rows(**{**default, **given}) if default or given else likelihood


def some_rows(likelihood: Likelihood, keep: Any) -> Likelihood:
    """The same likelihood for some of its rows."""
    own = {key: getattr(likelihood, key) for key in likelihood.row_parameters}
    return likelihood.with_rows(**{key: value[keep] for key, value in own.items() if np.ndim(value) == 1})


def announce_missing(where: str, likelihood: Likelihood, given: Mapping[str, Any]) -> None:
    """Warn of rows' parameters that fit was given and a score is not: its densities are then of another question."""
    for key in likelihood.row_parameters:
        fitted = getattr(likelihood, key)
        if given.get(key) is None and fitted is not None and (np.asarray(fitted) != 1.0).any():
            warnings.warn(
                f"{where}: fit was given {key}, score was not: {_TAKEN[key]}; pass {key}=...",
                UserWarning,
                stacklevel=3,
            )


def reported(likelihood: Likelihood) -> tuple[Likelihood, float]:
    """The likelihood on the scale its class documents, and what eta is there above eta as fitted."""
    return (likelihood.plain(), likelihood.shift) if isinstance(likelihood, WeibullInUnits) else (likelihood, 0.0)


def parameter_names(likelihood: Likelihood) -> list[str]:
    """What each entry of the likelihood's theta is."""
    n, words = likelihood.theta.size, PARAMETERS.get(kind(likelihood), ())
    if kind(likelihood) in ORDERED:
        words = ("first cutpoint", *(f"log step {k} of the cutpoints" for k in range(1, n)))
    return list(words[len(words) - n :]) if len(words) >= n else [f"likelihood {i}" for i in range(n)]


def ratio(likelihood: Likelihood) -> str | None:
    """What exp(effect) is called, where it has a name."""
    return next((word for word, names in RATIOS.items() if kind(likelihood) in names), None)


def readable(likelihood: Any) -> list[tuple[str, str, float]]:
    """The likelihood's own parameters in words: (owner, parameter, value)."""
    name = kind(likelihood)
    if name == "Gaussian" and np.ndim(likelihood.variance) == 0:
        v = float(likelihood.variance)
        return [("noise", "variance", v), ("noise", "sd", float(np.sqrt(v)))]
    if name in ORDERED:
        return [("cutpoints", str(k), float(b)) for k, b in enumerate(likelihood.cutpoints)]
    return [(name, word, float(getattr(likelihood, word))) for word in ATTRIBUTES.get(name, ())]


# -- where a named likelihood starts ---------------------------------------------------------------------
def _check_rows(where: str, name: str, cls: Any, given: Mapping[str, Any]) -> None:
    for key in given:
        if key not in cls.row_parameters:
            owners = [f'"{n}"' for n, c in NAMES.items() if key in getattr(likelihoods, c).row_parameters]
            raise problem(where, f'{key} meets likelihood="{name}"', f"{key} with {' or '.join(owners)} alone")


def _made(where: str, cls: Any, bound: str, y: np.ndarray, rows: dict[str, Any], w: np.ndarray) -> Likelihood:
    name, start = cls.__name__, {}
    if name == "Binomial":
        if "trials" not in rows:
            raise problem(where, "trials is missing", "the trials of each row", "Call fit(X, y, trials=n).")
        start["trials"] = rows["trials"]
    if name in NOISE:  # half of the variance of y
        half = _scale_of(name, np.nan_to_num(y), w) / np.sqrt(2.0)
        start = {
            "Gaussian": {"variance": half**2},
            "LaplaceNoise": {"scale": half / np.sqrt(2.0)},
            "LogisticNoise": {"scale": half * np.sqrt(3.0) / np.pi},
            "StudentT": {"scale": half / np.sqrt(2.0)},
        }[name]
    if name in ORDERED:
        link = logit if name == "Ordinal" else ndtri
        share = np.bincount(np.nan_to_num(y).astype(int), weights=w) + 0.5  # no level is without weight
        start["cutpoints"] = link(np.cumsum(share)[:-1] / share.sum())
    choice(where, "bound", bound, ("best", *cls.bounds) if cls.bounds != ("none",) else ("best",))
    if len(cls.bounds) > 1:
        start["bound"] = bound if bound != "best" else "exact" if "exact" in cls.bounds else cls.bounds[-1]
    made: Likelihood = cls(**start)
    return made.with_rows(**rows) if rows else made


def _in_units(weibull: Any, t: np.ndarray, w: np.ndarray) -> Likelihood:
    """The same durations in units of total time an event."""
    event = np.ones(t.shape) if weibull.event is None else np.nan_to_num(np.broadcast_to(weibull.event, t.shape))
    unit = float(w @ t) / max(float(w @ event), 0.5)
    return WeibullInUnits(weibull.shape, weibull.event, unit if unit > 0.0 else 1.0)


def _check_events(where: str, likelihood: Any, t: np.ndarray, w: np.ndarray, learned: bool) -> None:
    """Rows that are all censored bound the hazard from above alone."""
    if likelihood.event is None or float(w @ np.nan_to_num(np.broadcast_to(likelihood.event, t.shape))) > 0.0:
        return
    if learned and likelihood.theta.size:
        advice = 'Use likelihood="exponential", or give the shape and do not learn it.'
        got = "every row is censored (event = 0), and without events the shape is not known"
        raise problem(where, got, "at least one row whose event happened", advice)
    warnings.warn(
        f"{where}: every row is censored (event = 0): the data bound the hazard from above alone, and how low it is "
        "comes from the prior.",
        UserWarning,
        stacklevel=5,
    )


def encoded(where: str, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Labels as 0, ..., K-1."""
    place = np.clip(np.searchsorted(classes, y), 0, classes.size - 1)
    unknown = ~np.isnan(y) & (classes[place] != y)
    if unknown.any():
        got = f"y[{int(np.argmax(unknown))}] = {y[unknown][0]:g} was not seen in fit"
        raise problem(where, got, f"one of {classes.tolist()}")
    return np.where(np.isnan(y), np.nan, place)


def _encoded(where: str, name: str, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes = np.unique(y[~np.isnan(y)])
    two = NAMES[name] not in ORDERED
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


# -- the level and the scale of eta ----------------------------------------------------------------------
def overall_level(likelihood: Likelihood, y: np.ndarray, weights: np.ndarray | None) -> float:
    """The link of the overall mean of y."""
    return _level(likelihood, np.nan_to_num(y), np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights))


def _level(likelihood: Likelihood, y: np.ndarray, w: np.ndarray) -> float:
    name, n = kind(likelihood), y.shape[0]
    rows = {key: getattr(likelihood, key) for key in likelihood.row_parameters}
    each = {key: np.ones(n) if value is None else np.broadcast_to(value, (n,)) for key, value in rows.items()}
    if name in NOISE:
        return float(np.average(y, weights=w)) if name == "Gaussian" else _quantile(y, w, 0.5)
    if name in ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson"):  # half a count where there are none
        rate = max(float(w @ y), 0.5) / max(float(w @ np.nan_to_num(each["exposure"])), 1e-300)
        return float(np.log(rate) - np.log1p(-getattr(likelihood, "probability", 0.0)))
    if name in DURATIONS:
        at_risk = max(float(w @ (y / getattr(likelihood, "unit", 1.0))), 1e-300)
        return float(np.log(max(float(w @ each["event"]), 0.5) / at_risk))
    if name == "Gamma":
        return float(np.log(np.average(y, weights=w)))
    if name == "Beta":
        return float(logit(np.average(y, weights=w)))
    if name in ("Binomial", "BernoulliLogit", "BernoulliProbit"):
        trials = w * np.nan_to_num(each.get("trials", np.ones(n)))
        share = (float(w @ y) + 0.5) / (float(trials.sum()) + 1.0)
        return float(ndtri(share) if name == "BernoulliProbit" else logit(share))
    if name == "StochasticVolatility":
        return float(np.log(np.average(y**2, weights=w)))
    return 0.0


def _scale(likelihood: Likelihood, y: np.ndarray, w: np.ndarray) -> float:
    return _scale_of(kind(likelihood), y, w) if kind(likelihood) in NOISE else 1.0


def _scale_of(name: str, y: np.ndarray, w: np.ndarray) -> float:
    """The standard deviation of y; from its quartiles where the tails are heavy; where y is constant its size, or 1."""
    quartiles = _quantile(y, w, 0.75) - _quantile(y, w, 0.25)
    if name in ("LaplaceNoise", "StudentT") and quartiles > 0.0:
        return float(quartiles / (ndtri(0.75) - ndtri(0.25)))
    mean = np.average(y, weights=w)
    sd = float(np.sqrt(np.average((y - mean) ** 2, weights=w)))
    return sd if sd > 1e-12 * abs(mean) else float(abs(mean)) or 1.0  # in the units of y even where it has no spread


def _quantile(y: np.ndarray, w: np.ndarray, level: float) -> float:
    """Of the rows with their weights: the middle of where the cumulative weight passes ``level``."""
    order = np.argsort(y, kind="stable")
    total = np.cumsum(w[order])
    left, right = (np.searchsorted(total, level * total[-1], side=side) for side in ("left", "right"))
    return float((y[order[left]] + y[order[min(int(right), y.size - 1)]]) / 2)
