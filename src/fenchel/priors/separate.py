"""The factor of a prior whose parts are independent: one of each part, and none where a part only changed its scale.

    Q = diag(Q_1, Q_2, ...),   Q_i = c L L'  where L L' was factorised before:   Q_i^-1 = (L L')^-1 / c

A part is made of components of Q, with what holds them. Sizes of effects are what a search moves most, and the factor
of the largest part is then made once. The factor is seen on a pattern that holds that of Q, whose other entries join
latents that are independent under Q.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import ArrayLike
from ..linalg.constrained import Constraint
from ..linalg.factorisation import Analysis, Factorisation, analyse
from ..linalg.pairs import DesignRows

_LARGE = 2_000  # latents of a component that is a part of its own
_SAME = 1e-13  # by how much, relatively, the ratios of entries may differ that are one number
_COSTLY = 1e8  # multiplications of a factorisation from which parts are kept apart


@dataclass
class Part:
    """Some latents, and the last factor of their precision."""

    nodes: np.ndarray  # of all latents
    places: np.ndarray  # of the entries of Q
    n_free: int  # dimension that constraints leave free, as which its log-determinant scales
    analysis: Analysis
    remembers: bool  # whether a factor is kept for values that only change their scale
    known: tuple[np.ndarray, Factorisation] | None = None  # values and their factor

    def scale_of(self, data: np.ndarray) -> float | None:
        """c with data = c times the known values; None where there is none."""
        if self.known is None:
            return None
        before, live = self.known[0], self.known[0] != 0.0
        if data[~live].any():
            return None
        with np.errstate(all="ignore"):
            ratio = data[live] / before[live]
        low, high = (float(ratio.min()), float(ratio.max())) if ratio.size else (np.nan, np.nan)
        return (low + high) / 2.0 if low > 0.0 and high - low <= _SAME * high < np.inf else None

    def factor(self, data: np.ndarray) -> tuple[Factorisation, float]:
        """A factor, and what to multiply its matrix with. Raises NotPositiveDefinite."""
        scale = self.scale_of(data)
        if self.known is not None and scale is not None:
            return self.known[1], scale
        factor = self.analysis.factor(data)
        if self.remembers:
            self.known = data, factor
        return factor, 1.0


def components(Q: Any, constraint: Constraint | None) -> np.ndarray:
    """The component of each latent in the graph of Q, joined by what constraints hold together."""
    links = [sp.coo_array(Q).coords, *([] if constraint is None else constraint.links())]
    i, j = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sp.csr_array((np.ones(i.size, dtype=np.int8), (i, j)), shape=Q.shape)
    return np.asarray(sp.csgraph.connected_components(graph, directed=False)[1])


class Parts:
    """The analysis of all parts: large components are one each, all others together.

    Where a factorisation of all of Q costs little there is one part, analysed as ``own``.
    """

    def __init__(self, Q: Any, constraint: Constraint | None, component: np.ndarray, own: Analysis) -> None:
        large = np.bincount(component) >= _LARGE
        number = np.where(large, np.cumsum(large) - 1, int(large.sum()))
        label = np.unique(number[component], return_inverse=True)[1]
        if own.work < _COSTLY or not label.any():
            n_free = own.n if constraint is None else constraint.n_free
            self.parts = [Part(np.arange(own.n), np.arange(Q.nnz), n_free, own, remembers=False)]
            return
        self.parts = []
        for part in range(int(label.max()) + 1):
            nodes = np.flatnonzero(label == part)
            inner = sp.csc_array(Q[nodes][:, nodes])
            inner.sort_indices()
            held = None if constraint is None else constraint.within(nodes)
            n_free = nodes.size if held is None else held.n_free
            places = np.flatnonzero(label[own.columns] == part)
            self.parts.append(Part(nodes, places, n_free, analyse(inner, held), remembers=True))

    def factor(self, data: np.ndarray) -> list[tuple[Part, Factorisation, float]]:
        """Of each part by the values of Q: a factor and its scale. Raises NotPositiveDefinite."""
        return [(part, *part.factor(data[part.places])) for part in self.parts]

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": [replace(part, known=None) for part in self.parts]}


class Separate(Factorisation):
    """A ``Factorisation`` of independent parts, seen on a pattern that holds that of Q.

    Parameters
    ----------
    made : list of (part, factor, scale)
    Q : csc array
        The matrix that was factorised.
    places : array
        Where the entries of Q stand in the larger pattern.
    symbolic : Analysis
        Of the larger pattern.
    """

    def __init__(
        self, made: list[tuple[Part, Factorisation, float]], Q: Any, places: np.ndarray, symbolic: Analysis
    ) -> None:
        self.made, self.Q, self.places, self.symbolic, self.n = made, Q, places, symbolic, symbolic.n
        self.log_det = sum(factor.log_det + part.n_free * np.log(scale) for part, factor, scale in made)
        self.smallest_pivot = min(factor.smallest_pivot for _, factor, _ in made)

    @property
    def log_det_rounding(self) -> float:  # type: ignore[override]
        return float(np.sqrt(sum(factor.log_det_rounding**2 for _, factor, _ in self.made)))

    def solve(self, b: ArrayLike) -> np.ndarray:
        b = np.asarray(b, dtype=np.float64)
        out = np.empty(b.shape)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.solve(b[part.nodes]) / scale
        return out

    def sample(self, noise: ArrayLike) -> np.ndarray:
        noise = np.asarray(noise, dtype=np.float64)
        out = np.empty(noise.shape)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.sample(noise[part.nodes]) / np.sqrt(scale)
        return out

    def inverse_diagonal(self) -> np.ndarray:
        out = np.empty(self.n)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.inverse_diagonal() / scale
        return out

    def _own_inverse(self) -> np.ndarray:
        """Q^-1 at the entries of Q."""
        out = np.empty(self.places.size)
        for part, factor, scale in self.made:
            out[part.places] = factor.inverse_data() / scale
        return out

    def inverse_data(self) -> np.ndarray:
        """Q^-1 on the pattern, 0 where parts meet."""
        out = np.zeros(self.symbolic.indices.size)
        out[self.places] = self._own_inverse()
        return out

    def inverse_at(self, entries: np.ndarray) -> np.ndarray:
        return self._own_inverse() if entries is self.places else super().inverse_at(entries)

    def row_variances(self, rows: DesignRows) -> np.ndarray:
        """By the entries of Q alone."""
        own = sp.csc_array((self._own_inverse(), self.Q.indices, self.Q.indptr), shape=self.Q.shape)
        return np.asarray((rows.W @ own).multiply(rows.W).sum(axis=1))

    def _whole(self) -> Factorisation:
        """The factor on the larger pattern: a change E of Q may join the parts."""
        data = np.zeros(self.symbolic.indices.size)
        data[self.places] = self.Q.data
        return self.symbolic.factor(data)

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        return self._whole().sandwich(data)

    def row_sandwich(self, rows: DesignRows, v: np.ndarray) -> np.ndarray:
        return self._whole().row_sandwich(rows, v)
