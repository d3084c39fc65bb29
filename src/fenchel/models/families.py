"""The family of a model by its name: ours in any spelling, and those of R that are the same model.

"Poisson", "student_t", "BetaBinomial"      blanks, signs and capitals are passed over
"nbinom2", "nb", "cumulative", "betar"      names of glmmTMB, brms and mgcv
"lognormal", "quasipoisson"                 no family here: refused with the one to take
"""

from __future__ import annotations

import re

import numpy as np

from ..checks import choice, problem
from ..likelihoods import WORDS
from ..likelihoods.base import Likelihood
from ..terms.tables import present

FAMILIES = (*WORDS, "multinomial", "cox")
_ELSEWHERE = {  # the same model under another name, without signs
    "normal": "gaussian",
    "t": "student-t",
    "student": "student-t",
    "scat": "student-t",
    "nb": "negative-binomial",
    "nb2": "negative-binomial",
    "nbinom": "negative-binomial",
    "nbinom2": "negative-binomial",
    "negbin": "negative-binomial",
    "negbinomial": "negative-binomial",
    "negativebinomial2": "negative-binomial",
    "nb1": "negative-binomial-1",
    "nbinom1": "negative-binomial-1",
    "truncatednbinom2": "truncated-negative-binomial",
    "hurdlenegbinomial": "hurdle-negative-binomial",
    "zip": "zero-inflated-poisson",
    "zeroinflatednegbinomial": "zero-inflated-negative-binomial",
    "betafamily": "beta",
    "betar": "beta",
    "tw": "tweedie",
    "cumulative": "ordinal",
    "ocat": "ordinal",
    "categorical": "multinomial",
    "multinom": "multinomial",
    "coxph": "cox",
    "stochvol": "stochastic-volatility",
}
_OTHERS = {  # what is none of ours, and what to take
    "lognormal": 'np.log(y) on the left side with family="gaussian"',
    "quasipoisson": 'family="negative-binomial-1", whose variance is a multiple of its mean',
    "quasibinomial": 'family="beta-binomial"',
    "inversegaussian": 'family="gamma", or np.log(y) with family="gaussian"',
    "compois": 'family="poisson", or "negative-binomial" where counts spread more',
    "genpois": 'family="negative-binomial-1", whose variance is a multiple of its mean',
    "truncatednbinom1": 'family="truncated-negative-binomial"',
    "exgaussian": 'family="student-t", or np.log(y) with family="gaussian"',
    "skewnormal": 'family="student-t", or np.log(y) with family="gaussian"',
    "logit": 'family="bernoulli", whose link is the logit',
}


def read_family(family: object) -> str | Likelihood | None:
    """The family as the house calls it: a word, or the likelihood that was given; None where none was."""
    if family is None or isinstance(family, Likelihood):
        return family
    if isinstance(family, type) and issubclass(family, Likelihood):
        word = f' or family="{family.word}"' if family.word else ""
        raise problem("Model", f"family is the class {family.__name__}", f"a likelihood, {family.__name__}(),{word}")
    if not isinstance(family, str):
        got = f"family is a {type(family).__name__}"
        raise problem("Model", got, 'a name such as "poisson", or a Likelihood such as fenchel.Poisson()')
    bare = re.sub(r"[^a-z0-9]", "", family.lower())
    if bare in _OTHERS:
        raise problem("Model", f"family = {family!r} is not one of this library", _OTHERS[bare])
    known = {word.replace("-", ""): word for word in FAMILIES} | _ELSEWHERE
    word = known.get(bare, family)
    choice("Model", "family", word, FAMILIES, "Or a Likelihood, such as fenchel.Poisson().")
    return word


def without_trials(family: str, name: str, y: object) -> Exception:
    """Of successes that nobody has said of how many."""
    values = np.asarray(y)
    numbers = values.dtype.kind in "biuf"
    labels = numbers and np.isin(values[~np.isnan(values.astype(float))], (0, 1)).all()
    hits, _, n = name.partition("/")  # R's share of successes, with their trials as weights
    advice = f'Write "{hits.strip()} | trials({n.strip() or "n"}) ~ ...", or trials= a column or a number.'
    if labels and values.size:
        advice = f'{name} is 0 or 1 in every row: family="bernoulli".'
    elif values.size and not numbers:
        several = len({value for value in values.tolist() if present(value)}) > 2
        advice = f'{name} holds labels, not counts: family="{"multinomial" if several else "bernoulli"}".'
    return problem("Model", f'family="{family}" without trials', "how many of whom y are the successes", advice)


def check_labels(family: str | Likelihood, name: str, y: np.ndarray) -> None:
    """Refuses more than two labels of a family of two, and a likelihood of several predictors."""
    if isinstance(family, Likelihood):
        if family.n_predictors > 1:
            got = f"{family!r} has {family.n_predictors} predictors a row"
            raise problem("Model", got, 'family="multinomial"')
        return
    own = WORDS[family]
    different = np.unique(y[~np.isnan(y)]).size
    if own.support == "levels" and not own.ordered and different > 2:
        got = f'the response {name!r} has {different} different labels and family="{family}"'
        raise problem("Model", got, "two", 'Use family="multinomial", or "ordinal" where they have an order.')
