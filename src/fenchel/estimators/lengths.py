"""Where a kernel of ours starts: a length from the distances between the rows, chosen by the evidence of a few of them.

    l = c median |x_i - x_j| / sqrt(2),    c = 1, 1/4, 1/16        sqrt(D) for D standardised columns, at c = 1

At length 1 every pair of 256 standardised columns is unrelated, the evidence is flat there and nothing is learned.
Distances are plain, or of columns divided by their standard deviations, where those differ: the evidence of the same
few rows decides between the two, so that a column in millimetres does not drown one in kilometres, and pixels stay
pixels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.distance import pdist

from ..hyperparameters import Evidence
from ..inputs.observations import Target
from ..scaled_rbf import ScaledRBF

if TYPE_CHECKING:
    from .gaussian_process import KernelLatent

_ROWS = 100  # that are looked at
_SHARES = (1.0, 1 / 4, 1 / 16)
_SHORTEST, _LONGEST = 1e-3, 1e3  # bounds of the length, about the typical distance
_ROUGH = 1e-3  # relative gap of the fits that choose between them
_ALIKE = 1.01  # columns whose standard deviations differ by less have one scale


def few_rows(table: np.ndarray, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are looked at, and their weights: evenly through the different rows of ``table``, sorted.

    A row seen twice counts as one of weight 2, and one of weight 0 not at all: the order of rows does not matter.
    """
    w = np.ones(table.shape[0]) if weights is None else weights
    seen = np.flatnonzero(w > 0.0)
    _, place, which = np.unique(table[seen], axis=0, return_index=True, return_inverse=True)
    few = np.unique(np.linspace(0, place.size - 1, min(place.size, _ROWS)).round().astype(int))
    return seen[place[few]], np.bincount(which.ravel(), weights=w[seen])[few]


def typical_distance(X: np.ndarray) -> float:
    """Half the typical squared distance between rows, as a length: sqrt(D) for standardised columns. 1 if all agree.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators.lengths import typical_distance
    >>> round(typical_distance(1e6 * np.random.default_rng(0).normal(size=(100, 25))) / 1e6)
    5
    """
    between = pdist(X)
    between = between[between > 0.0]
    return float(np.median(between) / np.sqrt(2.0)) if between.size else 1.0


def default_kernels(X: np.ndarray, variance: float) -> list[Any]:
    """A constant times an RBF, from each start worth trying, by what a few rows X say."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    sd = X.std(axis=0)
    moves = sd > 1e-12 * np.abs(X).max(axis=0, initial=0.0)
    metrics: list[Any] = [None]
    if moves.any() and sd[moves].max() > _ALIKE * sd[moves].min():
        metrics.append(np.where(moves, sd, 1.0))
    out = []
    for units in metrics:
        typical = typical_distance(X if units is None else X / units)
        bounds = (_SHORTEST * typical, _LONGEST * typical)
        for share in _SHARES:
            length = share * typical
            part = RBF(length, bounds) if units is None else ScaledRBF(length, bounds, units)
            out.append(ConstantKernel(variance, (1e-3 * variance, 1e4 * variance)) * part)
    return out


def default_kernel(target: Target, weights: Any, latent: KernelLatent) -> Any:
    """The start of the highest evidence of a few rows, each fit beginning where the last one ended.

    It is the first of them where none can be fitted. ``latent`` has the rows and the level, and any kernel.
    """
    likelihood = target.likelihood
    own = [getattr(likelihood, key) for key in likelihood.row_parameters]
    columns = [value for value in own if np.ndim(value) == 1]
    rows, w = few_rows(np.column_stack([latent.X, target.y, *columns]), weights)
    X = latent.X[rows]
    kernels = default_kernels(X, target.scale**2)
    families = [replace(latent, kernel=kernel, X=X).family() for kernel in kernels]
    evidence = Evidence(likelihood.take(rows), families[0], target.y[rows], weights=w, tol=_ROUGH, own=False)
    values = []  # no ``Search``: a choice of one among a few starts
    for family in families:
        evidence.family = family
        evidence.begin(evidence.last)
        try:
            found = evidence.fit(family.theta).elbo
        except ValueError:  # beyond double precision
            found = -np.inf
        values.append(found if np.isfinite(found) else -np.inf)
    return kernels[int(np.argmax(values))]
