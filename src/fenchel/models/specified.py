"""Priors that a user states by name, and the default ones in words.

beta_j ~ N(m_j, s_j^2) per unit of its column:   gamma_j = beta_j scale_j has variance (s_j scale_j)^2, and its mean
                                                 enters as a known part of eta, (x_j - centre_j) m_j
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import Refusal, problem, scalar
from ..hyperparameters.priors import Normal, PCRange
from ..terms import SumOfTerms, Term


@dataclass(frozen=True)
class PC:
    """The penalised-complexity prior of a standard deviation: exponential, with P(sd > ``sd``) = ``alpha``."""

    sd: float = 1.0
    alpha: float = 0.01

    def __post_init__(self) -> None:
        scalar("PC", "sd", self.sd, 0.0)
        scalar("PC", "alpha", self.alpha, 0.0, 1.0)


def effect_priors(terms: Sequence[Term], asked: Mapping[str, Any]) -> Any:
    """Those of special terms, as ``SumOfTerms`` takes them; a term goes by its text or by its column."""
    out = {}
    for key, given in asked.items():
        term = term_named(terms, key)
        if term is not None:
            out[term.name] = {k: _pair(v) for k, v in given.items()} if isinstance(given, Mapping) else _pair(given)
    return out or "pc"


def term_named(terms: Sequence[Term], key: Any) -> Term | None:
    """The term of that text, blanks aside, or the only one over that column."""
    text = "".join(str(key).split())
    for term in terms:
        if term.name == key or "".join(str(term.name).split()) == text:
            return term
    over = terms_over(terms, key)
    return over[0] if len(over) == 1 else None


def terms_over(terms: Sequence[Term], column: Any) -> list[Term]:
    """The terms whose levels are those of a column."""
    return [term for term in terms if getattr(term, "column", None) == column or term.claims == (column,)]


def ambiguous(where: str, key: Any, names: Sequence[Any]) -> Refusal:
    """Of a name that is several terms, where one is asked for."""
    return problem(where, f"{key!r} is {len(names)} terms", f"one of {', '.join(repr(str(name)) for name in names)}")


def spelled_out(asked: Mapping[str, Any], stands_for: Callable[[Any], list[Any]]) -> dict[str, Any]:
    """Priors by the names of the terms; those named by a text that is several, such as (1|a/b), come first."""
    each = {key: stands_for(key) for key in asked}
    many = {name: asked[key] for key, names in each.items() if len(names) > 1 for name in names}
    return many | {key: given for key, given in asked.items() if len(each[key]) == 1}


def _pair(given: Any) -> Any:
    return (given.sd, given.alpha) if isinstance(given, PC) else given


_FLAT = 100.0  # times the default sd: an improper prior has no evidence, and this one moves no digit that is seen


class FixedPriors:
    """Priors of the coefficients, those that were stated and the default.

    None for a coefficient is flat: a normal a hundred times as wide as the default, so that the evidence stays one.

    Attributes
    ----------
    variance : array (intercept + p,)
        Of (c, gamma), the latents behind the fixed effects.
    mean : array (intercept + p,)
        Of the coefficients in the user's units, 0 by default and for the intercept, whose mean the model's level is.
    stated : dict
        Coefficient -> its Normal; that of the intercept is where every column is at its mean.
    flat : set
        The coefficients whose prior is flat.

    ``elsewhere`` are names that another part of the model has.
    """

    def __init__(
        self, sum_: SumOfTerms, asked: Mapping[str, Any], terms: Sequence[Any], elsewhere: Sequence[str] = ()
    ) -> None:
        names = [*(["Intercept"] if sum_.intercept else []), *sum_.fixed_names]
        own = int(sum_.intercept)
        self.variance = np.full(len(names), float(sum_.fixed_variance))
        self.mean, self.columns, self.own = np.zeros(len(names)), sum_.columns, own
        self.stated: dict[str, Normal] = {}
        self.flat = {key for key, given in asked.items() if given is None and key in names}
        for key, given in asked.items():
            if term_named(sum_.effects, key) is not None or (key in elsewhere and key not in names):
                continue
            over = terms_over(sum_.effects, key)
            if key not in names and over:
                raise ambiguous("Model: priors", key, [term.name for term in over])
            if key not in names:
                raise problem(
                    "Model", f"priors name {key!r}", f"one of {list(dict.fromkeys([*names, *terms, *elsewhere]))}"
                )
            j = names.index(key)
            if given is None:
                self.variance[j] *= _FLAT**2
                continue
            if not isinstance(given, Normal):
                got = f"the prior of the coefficient {key!r} is {given!r}"
                expected = "fenchel.hyperparameters.Normal(mean, sd), per unit of its column, or None for a flat one"
                raise problem("Model", got, expected)
            scale = 1.0 if j < own else float(sum_.columns.scale[j - own])
            self.variance[j], self.mean[j] = (given.sd * scale) ** 2, given.mean if j >= own else 0.0
            self.stated[key] = given

    def offset(self, X: np.ndarray) -> np.ndarray:
        """What the prior means of the coefficients add to eta (N,) at rows as they come."""
        given = self.mean[self.own :]
        return (X - self.columns.centre - self.columns.rest) @ given if given.any() else np.zeros(X.shape[0])


def in_words(prior: Any) -> str:
    """A prior as a person would write it."""
    if prior is None:
        return "flat"
    if isinstance(prior, Normal):
        return f"N({prior.mean:.4g}, {prior.sd:.4g}^2)"
    u, a = getattr(prior, "u", None), getattr(prior, "probability", None)
    if isinstance(prior, PCRange):
        return f"P(range < {prior.r:.4g}) = {prior.probability:g}"
    if u is not None and a is not None:
        return f"exponential sd, P(sd > {u:.3g}) = {a:g}"
    power = getattr(prior, "power", None)
    return repr(prior) if power is None else f"p(z) ~ (1 - z^2)^{power - 1:g} of the correlation, tanh of half"
