"""The family of a model by its name: ours in any spelling, and those of R that are the same model.

"Poisson", "student_t", "BetaBinomial"      blanks, signs and capitals are passed over
"nbinom2", "nb", "cumulative", "betar"      names of glmmTMB, brms and mgcv
"lognormal", "quasipoisson"                 no family here: refused with the one to take
"""

from __future__ import annotations

import numpy as np

from ..checks import choice, problem
from ..likelihoods import WORDS
from ..likelihoods.base import Likelihood
from ..likelihoods.registry import bare, spelled
from .levels import present

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


def read_family(family: object) -> str | Likelihood | None:
    """The family as a word of ``likelihoods.WORDS``, or the likelihood that was given; None where none was."""
    if family is None or isinstance(family, Likelihood):
        return family
    if isinstance(family, type) and issubclass(family, Likelihood):
        word = f' or family="{family.word}"' if family.word else ""
        raise problem("Model", f"family is the class {family.__name__}", f"a likelihood, {family.__name__}(),{word}")
    if not isinstance(family, str):
        got = f"family is a {type(family).__name__}"
        raise problem("Model", got, 'a name such as "poisson", or a Likelihood such as fenchel.Poisson()')
    text = bare(family)
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
