"""Priors that a user states by name, and the default ones in words.

beta_j ~ N(m_j, s_j^2) per unit of its column:   gamma_j = beta_j scale_j has variance (s_j scale_j)^2, and its mean
                                                 enters as a known part of eta, (x_j - centre_j) m_j
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..checks import Refusal, problem
from ..hyperparameters.priors import PC, Normal
from ..terms import SumOfTerms, Term

__all__ = ["PC", "FixedPriors", "ambiguous", "effect_priors", "spelled_out", "term_named", "terms_over"]


def effect_priors(terms: Sequence[Term], asked: Mapping[str, Any], coefficients: Sequence[str]) -> Any:
    """Those of special terms, as ``SumOfTerms`` takes them; a term goes by its text, or by its column where that is
    no coefficient.
    """
    out = {}
    for key, given in asked.items():
        term = term_named(terms, key)
        if term is not None and not is_coefficient(terms, coefficients, key):
            out[term.name] = given
    return out or "pc"


def is_coefficient(terms: Sequence[Term], coefficients: Sequence[str], key: Any) -> bool:
    """Whether a name is that of a coefficient: x of ``x + s(x)``, whose term is s(x)."""
    return key in coefficients and all(term.name != key for term in terms)


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


FLAT = 100.0  # times the default sd: an improper prior has no evidence, and this one moves no digit that is seen


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
        self.flat: set[str] = set()
        for key, given in asked.items():
            of_term = term_named(sum_.effects, key) is not None and not is_coefficient(sum_.effects, names, key)
            if of_term or (key in elsewhere and key not in names):
                continue
            over = terms_over(sum_.effects, key)
            if key not in names and over:
                raise ambiguous("Model: priors", key, [term.name for term in over])
            if key not in names:
                raise problem(
                    "Model", f"priors name {key!r}", f"one of {list(dict.fromkeys([*names, *terms, *elsewhere]))}"
                )
            j = names.index(key)
            if isinstance(given, Mapping) and set(given) == {self.part(j)}:
                given = given[self.part(j)]
            if given is None:
                self.variance[j] *= FLAT**2
                self.flat.add(key)
                continue
            if not isinstance(given, Normal):
                got = f"the prior of the coefficient {key!r} is {given!r}"
                expected = "fenchel.hyperparameters.Normal(mean, sd), per unit of its column, or None for a flat one"
                raise problem("Model", got, expected)
            scale = 1.0 if j < own else float(sum_.columns.scale[j - own])
            self.variance[j], self.mean[j] = (given.sd * scale) ** 2, given.mean if j >= own else 0.0
            self.stated[key] = given

    def part(self, j: int) -> str:
        """What of a coefficient its prior is of, as tables print it."""
        return "at the mean of the columns" if j < self.own else "coefficient"

    def offset(self, X: np.ndarray) -> np.ndarray:
        """What the prior means of the coefficients add to eta (N,) at rows as they come."""
        given = self.mean[self.own :]
        return (X - self.columns.centre - self.columns.rest) @ given if given.any() else np.zeros(X.shape[0])
