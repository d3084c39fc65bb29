"""The names of likelihoods, for families of formulas, for estimators and for columns of tables.

A likelihood declares its ``word``, its ``aliases``, the arguments that its rows need, and which of its parameters may
have a formula. An instance of each named likelihood is registered here; ``starting`` makes others from it. Formulas,
estimators, tables and messages read ``WORDS``.
"""

from __future__ import annotations

import re

from ..checks import choice, problem
from .base import Likelihood

_SUPPORTS = ("real", "count", "positive", "unit", "levels")
WORDS: dict[str, Likelihood] = {}  # by what their y is, the simplest first


def register(pattern: Likelihood) -> None:
    """Make a likelihood known by its word to every formula and estimator.

    Parameters
    ----------
    pattern : Likelihood
        Any one of its kind, with a ``word``. Learning starts from ``pattern.starting(y)``.

    Examples
    --------
    >>> from fenchel.likelihoods import WORDS, Gamma, named, register
    >>> class Amounts(Gamma):
    ...     word, aliases = "amounts", ("money",)
    >>> register(Amounts())
    >>> named("money").name
    'Amounts'
    >>> WORDS.pop("amounts").name  # unknown again
    'Amounts'
    """
    if pattern.word is None:
        raise problem("register", f"{pattern!r} has no word", "a likelihood with a word of its own")
    taken = {spelling: word for word, own in WORDS.items() if word != pattern.word for spelling in spellings(own)}
    twice = [spelling for spelling in spellings(pattern) if spelling in taken]
    if twice:
        raise problem("register", f"{twice[0]!r} is {taken[twice[0]]!r} already", "another word, and other aliases")
    WORDS[pattern.word] = pattern
    order = sorted(WORDS.items(), key=lambda item: _order(item[1]))
    WORDS.clear()
    WORDS.update(order)


def _order(own: Likelihood) -> tuple[int, bool, int]:
    """By what their y is, the simplest first; a likelihood of the variance of y after those of its mean."""
    return _SUPPORTS.index(own.support), own.of_variance, len(own.parameters)


def spellings(own: Likelihood) -> tuple[str, ...]:
    """All names of a likelihood, without signs."""
    return (bare(str(own.word)), *own.aliases)


def bare(text: str) -> str:
    """A name without blanks, signs and capitals."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def spelled(text: str) -> str | None:
    """The word behind a spelling: "nbinom2" is "negative-binomial"; None where there is none."""
    return next((word for word, own in WORDS.items() if bare(text) in spellings(own)), None)


def named(word: str) -> Likelihood:
    """The likelihood that goes by a word, such as "poisson", or by one of its aliases.

    Examples
    --------
    >>> from fenchel.likelihoods import named
    >>> named("negative-binomial").name
    'NegativeBinomial'
    """
    known = spelled(word) or word
    choice("named", "word", known, tuple(WORDS))
    return WORDS[known]
