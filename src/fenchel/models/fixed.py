"""The fixed part of a formula: the columns of an expression as fixed effects, about a good origin.

Cutpoints take the place of an intercept in models of ordered levels. They are learned where columns are at their means
and reported at x = 0: ``reported_shift`` is the one place that says by how much eta moves.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.sparse as sp

from ..inputs.frames import DataTable
from ..terms.base import FIXED_PART, Term, TermRows
from .model_matrix import INTERCEPT, Expression

if TYPE_CHECKING:
    import pandas as pd

    from ..likelihoods.base import Likelihood
    from ..marginals import Answers
    from ..solvers.solution import Solution
    from .fit_tables import FitTables
    from .model import Model

SAME = 1e-16  # of a column's variance: what others leave of one that they are
NEARLY = 0.1  # and of one that they nearly are
LARGEST = 20_000  # rows that are repeated with other numbers


class FixedPart(Term):
    """The columns of an expression as fixed effects, the intercept aside. It has no latents.

    Interactions are of columns about their means, and so are columns beside a factor that stands in for an intercept
    (``0 + f + x``), where that spans the same space: a prior then means the same from whatever origin x is measured.
    A column that others before it nearly are (``year + I(year**2)``) is fitted as what they leave of it, which its
    prior is then about: a prior of it as it comes would be one of their difference, and strong.

        X = X' C,    X' beta' = X beta    with    beta = C^-1 beta'

    Parameters
    ----------
    expression : Expression

    Attributes
    ----------
    origin : dict
        What is taken off columns of numbers before anything is multiplied; empty where nothing is.
    left : array (p, p) or None
        Columns about that origin times it are the columns as fitted.
    back : array (p, p) or None
        C^-1, over all columns, the intercept included.
    """

    origin: dict[str, float]
    left: np.ndarray | None = None
    back: np.ndarray | None = None

    def __init__(self, expression: Expression) -> None:
        self.expression, self.name = expression, FIXED_PART

    @classmethod
    def among(cls, terms: Iterable[Term]) -> FixedPart:
        """The one that a sum of terms has."""
        return next(term for term in terms if isinstance(term, cls))

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return tuple(self.expression.names)

    def read(self, table: DataTable, scale: float) -> Self:
        return self.read_sketch(table, scale, None)

    def about(self, means: Mapping[Hashable, float]) -> Self:
        out = copy.copy(self)
        out.origin, out.left = {name: means[name] for name in self.origin}, None
        return out

    def read_sketch(
        self, table: DataTable, scale: float, measured: tuple[dict[str, float], np.ndarray | None] | None
    ) -> Self:
        """``measured`` are the means of columns that are multiplied, and ``left``; None: the table has all rows."""
        out = copy.copy(self)
        out.expression = copy.copy(self.expression)
        X = out.expression.evaluate(table.source)
        out.fixed_names = [name for name in out.expression.columns if name != INTERCEPT]
        out._check_finite(X, table.places)
        out.origin = {}
        if measured is not None:
            means = measured[0]
        else:
            means = {name: float(table.mean(table.column(name).numbers())) for name in out.expression.multiplied()}
        if means:
            near, size = out.expression.evaluate(moved(table.source, means)), np.abs(X).max(axis=0, initial=1e-300)
            C = between(near, X)
            if C is None:  # a level with one row leaves x:f a multiple of f
                more = varied(table.source, means)
                C = between(out.expression.evaluate(moved(more, means)), out.expression.evaluate(more))
            if C is not None and (np.abs(near @ C - X) <= 1e-9 * size).all():
                out.origin, out.back = means, np.linalg.inv(C)
        X = near if out.origin else X
        out.left = left_over(X, table.weights) if measured is None else measured[1]
        if out.left is not None:
            out.back = out.left if out.back is None else out.back @ out.left
        return out

    def to_user(self, intercept: bool, p: int) -> tuple[np.ndarray, np.ndarray]:
        """From coefficients as fitted (intercept, p) to those of the columns as they come: a matrix, and what it adds
        to the level where there is no intercept. p counts the columns of other terms, too.
        """
        A, level, own = np.eye(p + intercept), np.zeros(p + intercept), len(self.fixed_names)
        if self.back is not None:
            first = int(INTERCEPT in self.expression.columns)
            part = self.back if intercept or not first else self.back[1:, 1:]
            A[: part.shape[0], : part.shape[0]] = part
            level[:own] = self.back[0, 1:] if first and not intercept else 0.0
        return A, level

    def moved(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame with the columns that are multiplied about their means."""
        return moved(frame, self.origin)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        X = self.expression.evaluate(self.moved(table.source))
        keep = [j for j, name in enumerate(self.expression.columns) if name != INTERCEPT]
        self._check_finite(X, table.places)
        X = X if self.left is None else X @ self.left
        return TermRows(sp.csr_array((len(table), 0)), X[:, keep])

    def _check_finite(self, X: np.ndarray, places: np.ndarray) -> None:
        for name, column in zip(self.expression.columns, X.T, strict=True):
            bad = ~np.isfinite(column)
            if bad.any():
                i = int(np.argmax(bad))
                advice = "Only what is missing in the data is left out."
                got = f"{name!r} is {column[i]:g} in row {places[i]}"
                raise self.expression.refuse(name, got, "finite numbers", advice)


def moved(frame: pd.DataFrame, origin: dict[str, float]) -> pd.DataFrame:
    """The frame with some columns about another origin."""
    return frame.assign(**{name: frame[name] - mean for name, mean in origin.items()}) if origin else frame


def between(near: np.ndarray, X: np.ndarray) -> np.ndarray | None:
    """C with near C = X, as far as there is one; None where columns depend on one another."""
    if np.linalg.matrix_rank(near) < X.shape[1]:
        return None
    return np.asarray(np.linalg.lstsq(near, X, rcond=None)[0])


def varied(frame: pd.DataFrame, means: dict[str, float]) -> pd.DataFrame:
    """The rows several times, with other numbers in the columns that are multiplied: their products stand apart.

    Of a large table the rows as they are.
    """
    copies = 1 + 2 ** min(len(means), 3)
    if copies * len(frame) > LARGEST:
        return frame
    rng, more = np.random.default_rng(0), frame.iloc[np.tile(np.arange(len(frame)), copies)].reset_index(drop=True)
    spread = {name: float(np.ptp(frame[name])) or 1.0 for name in means}
    return more.assign(**{name: mean + spread[name] * rng.normal(size=len(more)) for name, mean in means.items()})


def left_over(X: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray | None:
    """B, unit upper triangular, with X B the columns and of those that the ones before nearly are what these leave."""
    p, size = X.shape[1], np.abs(X).max(axis=0, initial=1e-300)
    if p < 2:
        return None
    root = 1.0 if weights is None else np.sqrt(weights)[:, None]
    B, unit, centred = np.eye(p), root * X / size, root * (X - np.average(X, axis=0, weights=weights)) / size
    for j in range(1, p):
        about = centred[:, j]
        by = np.linalg.lstsq(unit[:, :j], unit[:, j], rcond=None)[0]
        rest = unit[:, j] - unit[:, :j] @ by
        share = float(rest @ rest) / max(float(about @ about), 1e-300)
        if SAME < share < NEARLY:  # below, it is one of them, which is said elsewhere
            B[:j, j] = -by * size[j] / size[:j]
    return B if np.any(np.triu(B, 1)) else None


# -- the scale that is reported -----------------------------------------------------------------------------
def moves_cutpoints(model: Model) -> bool:
    """Whether cutpoints are learned at the means of columns, and reported at x = 0."""
    return model.ordered and bool(model.sum.fixed_names)


def _columns_at_mean(model: Model) -> np.ndarray:
    """Where the columns of an ordered model are 0 as fitted, in the user's units (p,)."""
    return np.asarray(model.sum.columns.centre - model.fixed.to_user(False, len(model.sum.fixed_names))[1])


def reported_shift(fit: FitTables) -> tuple[np.ndarray | None, float]:
    """What eta as reported is above eta as fitted: a row over the latents (L,), None for one of 0, and a constant."""
    model = fit.model
    if not moves_cutpoints(model):
        return None, fit.found.likelihood.reported()[1]
    by = _columns_at_mean(model)
    return np.asarray(by @ model.sum.fixed_rows().toarray()), float(by @ model.coefficient_priors.mean)


def cutpoint_shift(fit: FitTables, solution: Solution | Answers) -> tuple[float, float]:
    """The mean and the posterior sd of ``reported_shift`` of an ordered model: the sd is that of the coefficients."""
    fitted, covariance = fit.model.sum.fixed_effects(solution)
    by = _columns_at_mean(fit.model)
    return float(by @ (fitted + fit.model.coefficient_priors.mean)), float(np.sqrt(by @ covariance @ by))


def reported(fit: FitTables) -> tuple[Likelihood, float]:
    """The likelihood on the scale that is reported, and what eta is there above eta as fitted, on average."""
    fitted, model = fit.found.likelihood, fit.model
    if not moves_cutpoints(model):
        return model.reduction.reported(fitted)
    shift = cutpoint_shift(fit, fit.solution)[0]
    return fitted.with_theta(np.r_[fitted.theta[0] + shift, fitted.theta[1:]]), shift
