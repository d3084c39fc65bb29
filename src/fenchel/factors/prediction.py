"""What a factor model says of cells: their mean, their most probable value, draws, and the log density of others.

``FactorModel.cells`` gives each column a pair (mean, sd), for counts and real numbers, or probabilities (R, K) of its
levels. Here they become tables (R, D) in the numbers of ``columns.Table``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax

from ..likelihoods import Gaussian, Poisson

if TYPE_CHECKING:
    from .model import FactorModel, Parameters, RowFits


def given(model: FactorModel, z: np.ndarray, parameters: Parameters) -> list[Any]:
    """What ``FactorModel.cells`` says when the factors z (R, L) are known: no integral is left."""
    eta, out = z @ parameters.loadings.T + parameters.offset, list[Any]()
    for j, (kind, own) in enumerate(zip(model.kinds, model.slices, strict=True)):
        h = eta[:, own]
        if kind == "poisson":
            out.append((np.exp(h[:, 0]), np.exp(0.5 * h[:, 0])))
        elif kind == "gaussian":
            out.append((h[:, 0], np.full(z.shape[0], np.sqrt(parameters.variance[j]))))
        elif kind == "ordinal":
            below = expit(parameters.cutpoints[model.cuts[j]] - h)
            zero, one = np.zeros_like(h), np.ones_like(h)
            out.append(np.diff(np.hstack([zero, below, one]), axis=1))
        else:
            zero = np.zeros((z.shape[0], 1))
            out.append(softmax(np.hstack([zero, h] if kind == "bernoulli" else [h, zero]), axis=1))
    return out


def typical(cells: list[Any]) -> np.ndarray:
    """The mean of a count or a real number, the most probable level of the others (R, D)."""
    return np.column_stack([cell[0] if isinstance(cell, tuple) else np.argmax(cell, axis=1) for cell in cells])


def means(cells: list[Any], kinds: tuple[str, ...]) -> np.ndarray:
    """Means (R, M): the probability of the second level for bernoulli, of every level for columns of more levels."""
    parts = [
        cell[0][:, None] if isinstance(cell, tuple) else cell[:, 1:] if kind == "bernoulli" else cell
        for kind, cell in zip(kinds, cells, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def draw(model: FactorModel, z: np.ndarray, parameters: Parameters, rng: np.random.Generator) -> np.ndarray:
    """A table (R, D) of cells given the factors z (R, L)."""
    out = np.empty((z.shape[0], model.n_columns))
    for j, (kind, cell) in enumerate(zip(model.kinds, given(model, z, parameters), strict=True)):
        if kind == "poisson":
            out[:, j] = rng.poisson(cell[0])
        elif kind == "gaussian":
            out[:, j] = rng.normal(*cell)
        else:
            at = np.cumsum(cell, axis=1)
            u = rng.random((z.shape[0], 1))
            out[:, j] = np.sum(u >= at[:, :-1] / at[:, -1:], axis=1)
    return out


def log_density(model: FactorModel, fits: RowFits, parameters: Parameters, values: np.ndarray) -> np.ndarray:
    """log p(cell | the rest of its row as fitted) (R, D), in nats; NaN where ``values`` is NaN."""
    out = np.full(values.shape, np.nan)
    cells = model.cells(fits.mean, fits.covariance, parameters)
    for j, (kind, own) in enumerate(zip(model.kinds, model.slices, strict=True)):
        seen = ~np.isnan(values[:, j])
        y = values[seen, j]
        if isinstance(cells[j], tuple):
            likelihood = Poisson() if kind == "poisson" else Gaussian(float(parameters.variance[j]))
            at = seen, own.start
            out[seen, j] = likelihood.predictive_log_density(y, fits.h[at], fits.rho[at])
        else:
            chosen = cells[j][seen, y.astype(np.intp)]
            out[seen, j] = np.log(np.maximum(chosen, np.finfo(np.float64).tiny))
    return out
