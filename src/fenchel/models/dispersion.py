"""A second linear predictor: of the noise or the overdispersion of each row, or of its probability of a zero.

    dispersion="~ x + f"     log sd_n (Gaussian, Student-t), log shape_n (gamma), log precision_n (beta, beta-binomial),
                             log size_n or log dispersion_n (negative binomials)   = D_n b
    zero="~ x"               logit pi_n of a zero-inflated family                  = D_n b

b are hyperparameters of the likelihood, learned by the evidence, with fixed effects alone: log p(y|eta, b) is not
concave in two sets of latents at once, so no certificate would hold for groups in b. Columns enter about their means
and in units of their sd; b is reported for the columns as they are. Priors are those of the coefficients of the mean
(``own_priors.py``): N(0, fixed_sd^2) of what one sd of a column does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..checks import problem
from ..likelihoods import WORDS, Parameter
from ..likelihoods.base import Likelihood
from ..linalg.moments import column_moments
from ..transforms import OfRows
from .compiler import Scope
from .fixed import INTERCEPT
from .grammar import Parsed, parse

if TYPE_CHECKING:
    import pandas as pd

_FARTHEST = 40.0  # a bound of what one sd of a column does


def read_second(word: str, text: str) -> Parsed:
    """The right side of ``dispersion=`` or ``zero=``, taken apart."""
    if not isinstance(text, str) or text.count("~") != 1 or text.split("~")[0].strip():
        raise problem("Model", f"{word} = {text!r}", f'a formula without a left side, such as {word}="~ x + f"')
    return parse(f"{word} ~ {text.split('~')[1].strip()}")


def _parameter_of(word: str, own: Likelihood) -> Parameter | None:
    """The parameter of which ``dispersion=`` or ``zero=`` is a formula."""
    return next((p for p in own.parameters if p.formula is not None and p.formula[0] == word), None)


class SecondPredictor:
    """A formula of a likelihood's own parameter.

    Parameters
    ----------
    word : "dispersion" or "zero"
    text : str
        "~ x + f", fixed effects alone.
    scope : Scope
        Of the model.
    family : str
    """

    def __init__(self, word: str, text: str, scope: Scope, family: object) -> None:
        self.word, self.parsed = word, read_second(word, text)
        parameter = _parameter_of(word, WORDS[family]) if isinstance(family, str) and family in WORDS else None
        if parameter is None or parameter.formula is None:
            shown = f'family="{family}"' if isinstance(family, str) else f"the family {family!r}"
            known = [name for name, own in WORDS.items() if _parameter_of(word, own) is not None]
            raise problem("Model", f"{word}= meets {shown}", f"one of {', '.join(known)}")
        self.attribute, self.of, self.power = parameter.attribute, parameter.formula[1], parameter.power or 1.0
        if self.parsed.terms:
            term = self.parsed.terms[0]
            advice = (
                "Given two sets of latents the log-likelihood is not concave in both, so no certificate would hold. "
                "Use a fixed effect of the groups, or a family without a formula of its own here."
            )
            raise self.parsed.refuse(term.at, f"{term.text} in {word}=", "fixed effects alone", advice)
        if self.parsed.offsets:
            raise self.parsed.refuse(self.parsed.offsets[0].at, f"an offset in {word}=", "fixed effects alone")
        fixed = " ".join(f"{p.sign} {p.text}" for p in self.parsed.fixed).lstrip("+ ") or "1"
        self.expression = replace(scope, parsed=self.parsed).expression(fixed)

    def attached(self, likelihood: Likelihood, frame: pd.DataFrame, y: np.ndarray, seen: np.ndarray) -> Likelihood:
        """The likelihood whose parameter has this predictor, the same in every row where it starts."""
        X = self.expression.evaluate(frame)
        names = self.expression.columns
        own = [j for j, name in enumerate(names) if name != INTERCEPT]
        level = INTERCEPT in names
        mean, sd, _, constant = column_moments(X, seen)
        centre, scale = (mean, sd) if level else (np.zeros_like(mean), np.hypot(mean, sd))
        flat = [names[j] for j in own if (constant[j] and level) or scale[j] == 0.0]
        if flat:
            raise problem("Model", f"{flat[0]!r} is constant in {self.word}=", "columns that vary")
        self.own, self.level, self.centre, self.scale = own, level, centre[own], scale[own]
        D = self._design(X)
        if np.linalg.matrix_rank(D[seen > 0.0]) < D.shape[1]:
            raise problem("Model", f"the columns of {self.word}= are collinear", "columns that differ")
        back = np.diag(np.r_[np.ones(int(level)), 1.0 / self.scale])
        if level:
            back[0, 1:] = -self.centre / self.scale
        columns = tuple([INTERCEPT] * level + [names[j] for j in own])
        transform = OfRows(D, back, f"{self.word} ({self.of})", columns, self.power, self.word == "zero", level)
        start = np.full(len(frame), float(np.asarray(getattr(likelihood, self.attribute))))
        parameter = next(p for p in likelihood.parameters if p.attribute == self.attribute)
        bounds = np.tile([-_FARTHEST, _FARTHEST], (D.shape[1], 1))
        if level:
            bounds[0] = parameter.bounds_of(likelihood, y)[0] / self.power
        about, width = parameter.weak
        weak = None if about is None else about / self.power, width / self.power
        moved = replace(parameter, transform=transform, bounds=bounds, word=self.word, weak=weak)
        parameters = tuple(moved if p is parameter else p for p in likelihood.parameters)
        known = tuple(p.known(likelihood, y) for p in parameters)
        return likelihood.changed(parameters=known, **{self.attribute: start})

    def _design(self, X: np.ndarray) -> np.ndarray:
        D = (X[:, self.own] - self.centre) / self.scale
        return np.column_stack([np.ones(len(X)), D]) if self.level else D

    def at(self, likelihood: Likelihood, frame: pd.DataFrame) -> Likelihood:
        """The likelihood at new rows, with its parameter there."""
        parameter = next(p for p in likelihood.parameters if p.attribute == self.attribute)
        transform = parameter.transform
        assert isinstance(transform, OfRows)
        theta = transform.forward(getattr(likelihood, self.attribute))
        D = self._design(self.expression.evaluate(frame))
        moved = replace(parameter, transform=replace(transform, design=D))
        parameters = tuple(moved if p is parameter else p for p in likelihood.parameters)
        return likelihood.changed(parameters=parameters, **{self.attribute: transform.at(D, theta)})
