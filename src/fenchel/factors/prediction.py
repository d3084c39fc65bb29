"""Predictions of a factor model for cells: means, most probable values, draws, and log densities.

The prediction of a column is a pair (mean, sd) of numbers, or the probabilities (R, K) of its levels, from its
likelihood. They become tables (R, D) in the numbers of ``columns.FactorTable``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..checks import choice, problem
from ..likelihoods.base import Likelihood
from .columns import is_softmax

if TYPE_CHECKING:
    from .columns import Column
    from .factor_model import FactorModel, Parameters, RowFits

Cell = tuple[np.ndarray, np.ndarray] | np.ndarray


def cells(
    model: FactorModel, mean: np.ndarray, covariance: np.ndarray, p: Parameters, wanted: np.ndarray
) -> list[Cell]:
    """The predictive distribution of the wanted cells (R, D), z ~ N(mean (R, L), covariance (R, L, L)).

    Yields columns, each for the rows that are wanted in it.
    """
    out = list[Cell]()
    for j, own in enumerate(p.likelihoods):
        over, empty = _over(model, mean, covariance, p, j, wanted[:, j]), not wanted[:, j].any()
        if own.support == "levels":
            out.append(np.zeros((0, own.n_levels)) if empty else np.asarray(own.predictive_probabilities(*over)))
        elif empty:
            out.append((np.zeros(0), np.zeros(0)))
        else:
            out.append((np.asarray(own.predictive_mean(*over)), np.sqrt(np.asarray(own.predictive_variance(*over)))))
    return out


def _over(
    model: FactorModel, mean: np.ndarray, covariance: np.ndarray, p: Parameters, j: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the predictors of a column; for a softmax mean and covariance."""
    at = model.slices[j]
    W = p.loadings[at]
    h = mean[rows] @ W.T + p.offset[at]
    V = np.einsum("ai,rij,bj->rab", W, covariance[rows], W, optimize=True)
    return (h, V) if is_softmax(p.likelihoods[j]) else (h[:, 0], V[:, 0, 0])


def _given(model: FactorModel, z: np.ndarray, p: Parameters) -> Iterator[tuple[Likelihood, np.ndarray]]:
    """The likelihood of each column, with eta (R, C) for known factors z (R, L)."""
    eta = z @ p.loadings.T + p.offset
    return ((own, eta[:, at]) for own, at in zip(p.likelihoods, model.slices, strict=True))


def _probabilities(own: Likelihood, eta: np.ndarray) -> np.ndarray:
    if is_softmax(own):
        return np.asarray(own.predictive_probabilities(eta, np.zeros_like(eta)))
    return own.probabilities_at(eta[:, 0])


def means(model: FactorModel, z: np.ndarray, p: Parameters) -> np.ndarray:
    """Means (R, M) given z: probability of the second of two unordered levels, otherwise of each level."""
    parts = []
    for own, eta in _given(model, z, p):
        if own.support != "levels":
            parts.append(own.mean_at(eta[:, 0])[:, None])
        else:
            parts.append(_probabilities(own, eta)[:, 0 if lists_levels(own) else 1 :])
    return np.concatenate(parts, axis=1)


def lists_levels(own: Likelihood) -> bool:
    """Whether a table of means has a column for each level."""
    return own.support == "levels" and (own.ordered or is_softmax(own))


def typical(
    found: list[Cell], wanted: np.ndarray, level: Callable[[int, np.ndarray], np.ndarray] | None = None
) -> np.ndarray:
    """The mean of counts and real numbers, and one level for other columns (R, D); NaN for cells that are not wanted.

    ``level(j, p)`` chooses the level in column j from the probabilities (M, K); default: the most probable.
    """
    out = np.full(wanted.shape, np.nan)
    for j, cell in enumerate(found):
        if isinstance(cell, tuple):
            out[wanted[:, j], j] = cell[0]
        else:
            out[wanted[:, j], j] = np.argmax(cell, axis=1) if level is None else level(j, cell)
    return out


def summaries(
    where: str, columns: Sequence[Column], ordered: str
) -> tuple[Callable[[int, np.ndarray], np.ndarray], list[int]]:
    """``level`` of ``typical`` for ordered columns by "mode", "median" or "mean", and the columns that have means."""
    choice(where, "ordered", ordered, ("mode", "median", "mean"))
    means = [j for j, column in enumerate(columns) if ordered == "mean" and column.likelihood.ordered]
    for column in (columns[j] for j in means):
        if np.array(column.levels).dtype.kind not in "biuf":
            got = f'ordered="mean", and the levels of {column.name!r} are not numbers'
            raise problem(where, got, '"mode" or "median"')

    def level(j: int, p: np.ndarray) -> np.ndarray:
        if j in means:
            return np.asarray(p @ np.asarray(columns[j].levels, dtype=np.float64))
        if ordered == "median" and columns[j].likelihood.ordered:
            return np.argmax(np.cumsum(p, axis=1) >= 0.5, axis=1)
        return np.argmax(p, axis=1)

    return level, means


def draw(model: FactorModel, z: np.ndarray, p: Parameters, rng: np.random.Generator) -> np.ndarray:
    """Draw a table (R, D) of cells given the factors z (R, L)."""
    out = np.empty((z.shape[0], model.n_columns))
    for j, (own, eta) in enumerate(_given(model, z, p)):
        if own.support == "levels":
            at = np.cumsum(_probabilities(own, eta), axis=1)
            out[:, j] = np.sum(rng.random((z.shape[0], 1)) >= at[:, :-1] / at[:, -1:], axis=1)
        else:
            out[:, j] = own.draw(eta, rng)[:, 0]
    return out


def log_density(model: FactorModel, fits: RowFits, p: Parameters, values: np.ndarray) -> np.ndarray:
    """log p(cell | the other cells of its row, as fitted) (R, D), in nats; NaN if ``values`` is NaN."""
    out, tiny = np.full(values.shape, np.nan), np.finfo(np.float64).tiny
    for j, own in enumerate(p.likelihoods):
        seen = ~np.isnan(values[:, j])
        y, over = values[seen, j], _over(model, fits.mean, fits.covariance, p, j, seen)
        if y.size and own.support == "levels":
            chosen = np.asarray(own.predictive_probabilities(*over))[np.arange(y.size), y.astype(np.intp)]
            out[seen, j] = np.log(np.maximum(chosen, tiny))
        elif y.size:
            out[seen, j] = own.predictive_log_density(y, *over)
    return out
