"""The factor of a prior whose parts are independent: one of each part, and none where a part only changed its scale.

    Q = diag(Q_1, Q_2, ...),   Q_i = c L L'  where L L' was factorised before:   Q_i^-1 = (L L')^-1 / c

A part is made of components of Q, with what holds them. Sizes of effects are what a search moves most, and the factor
of the largest part is then made once. Constants of the log-determinants are as those of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import ArrayLike
from ..linalg.factorisation import Analysis, Factorisation
from .constraints import Constraint

_LARGE = 2_000  # latents of a component that is a part of its own
_SAME = 1e-13  # by how much, relatively, the ratios of entries may differ that are one number


@dataclass
class Part:
    """Some latents, and the last factor of their precision."""

    nodes: np.ndarray  # of all latents
    places: np.ndarray  # of the entries of Q
    diagonal: np.ndarray  # of them, of the nodes
    constraint: Constraint | None
    analysis: Analysis
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
        if scale is None:
            self.known, scale = (data, self._made(data)), 1.0
        assert self.known is not None
        return self.known[1], scale

    def _made(self, data: np.ndarray) -> Factorisation:
        held = self.constraint
        if held is None:
            return self.analysis.factor(data)
        shift, data = float(np.mean(data[self.diagonal])), data.copy()
        data[self.diagonal[held.nodes]] += shift
        return replace(held, shift=shift, kappa=shift).hold(self.analysis.factor(data))


def labels(Q: Any, constraint: Constraint | None) -> np.ndarray:
    """The part of each latent: large components of Q, with what holds them, are one each, all others together."""
    links = [sp.coo_array(Q).coords]
    if constraint is not None:  # each latent of a constraint, or of a column of the basis, with the first one of it
        for C in (
            sp.csr_array(constraint.C),
            *([] if constraint.basis is None else [sp.csr_array(constraint.basis.T)]),
        ):
            count = np.diff(C.indptr)
            first = (
                C.indices[np.minimum(C.indptr[:-1], max(C.nnz - 1, 0))] if C.nnz else np.zeros(count.size, dtype=int)
            )
            links.append((np.repeat(first, count), C.indices))
    i, j = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sp.csr_array((np.ones(i.size, dtype=np.int8), (i, j)), shape=Q.shape)
    label = sp.csgraph.connected_components(graph, directed=False)[1]
    size = np.bincount(label)
    number = np.where(size >= _LARGE, np.cumsum(size >= _LARGE) - 1, int((size >= _LARGE).sum()))
    return np.asarray(np.unique(number[label], return_inverse=True)[1])


class Parts:
    """The analysis of all parts."""

    def __init__(self, Q: Any, constraint: Constraint | None, label: np.ndarray) -> None:
        columns = np.repeat(np.arange(Q.shape[0]), np.diff(Q.indptr))
        self.parts = []
        for part in range(int(label.max()) + 1):
            nodes = np.flatnonzero(label == part)
            places = np.flatnonzero(label[columns] == part)
            inner = sp.csc_array(Q[nodes][:, nodes])
            inner.sort_indices()
            own = np.repeat(np.arange(nodes.size), np.diff(inner.indptr))
            diagonal = np.flatnonzero(inner.indices == own)
            held = None if constraint is None else _within(constraint, nodes)
            analysis = (held or _FREE).analyse(inner)
            self.parts.append(Part(nodes, places, diagonal, held, analysis))

    def factor(self, data: np.ndarray) -> list[tuple[Part, Factorisation, float]]:
        """Of each part by the values of Q: a factor and its scale. Raises NotPositiveDefinite."""
        return [(part, *part.factor(data[part.places])) for part in self.parts]

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": [replace(part, known=None) for part in self.parts]}


_FREE = Constraint(np.zeros((0, 0)), np.zeros(0, dtype=int), 0.0, 0.0)


def _within(constraint: Constraint, nodes: np.ndarray) -> Constraint:
    """What holds these latents alone."""
    C = constraint.C[:, nodes]
    place = np.searchsorted(nodes, constraint.nodes)
    here = np.isin(constraint.nodes, nodes)
    basis = constraint.basis
    if basis is not None:
        basis = sp.csr_array(basis[nodes])
        basis = sp.csr_array(basis[:, np.flatnonzero(np.bincount(basis.indices, minlength=basis.shape[1]))])
        basis.sort_indices()
        basis = None if basis.shape[0] == basis.shape[1] else basis  # nothing of these is held by it
    return replace(constraint, C=C[np.abs(C).sum(axis=1) > 0.0], nodes=place[here], basis=basis)


class Separate:
    """A ``Factorisation`` of independent parts, seen on a pattern that holds that of Q."""

    def __init__(
        self,
        made: list[tuple[Part, Factorisation, float]],
        places: np.ndarray,
        data: np.ndarray,
        symbolic: Any,
        constraint: Constraint | None,
    ) -> None:
        self.made, self.places, self.data, self.symbolic, self.constraint = made, places, data, symbolic, constraint
        self.n = sum(part.nodes.size for part, _, _ in made)
        self.log_det = sum(factor.log_det + _free(part) * np.log(scale) for part, factor, scale in made)
        self.smallest_pivot = min(factor.smallest_pivot for _, factor, _ in made)

    @property
    def log_det_rounding(self) -> float:
        """What rounding did to log|Q|."""
        return float(np.sqrt(sum(factor.log_det_rounding**2 for _, factor, _ in self.made)))

    def solve(self, b: ArrayLike) -> np.ndarray:
        """Q^-1 b."""
        b = np.asarray(b, dtype=np.float64)
        out = np.empty(b.shape)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.solve(b[part.nodes]) / scale
        return out

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance Q^-1."""
        noise = np.asarray(noise, dtype=np.float64)
        out = np.empty(noise.shape)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.sample(noise[part.nodes]) / np.sqrt(scale)
        return out

    def inverse_diagonal(self) -> np.ndarray:
        """diag(Q^-1) (n,)."""
        out = np.empty(self.n)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.inverse_diagonal() / scale
        return out

    def own_inverse(self) -> np.ndarray:
        """Q^-1 at the entries of Q."""
        out = np.empty(self.places.size)
        for part, factor, scale in self.made:
            out[part.places] = factor.inverse_data() / scale
        return out

    def inverse_data(self) -> np.ndarray:
        """Q^-1 on the pattern, 0 where parts meet."""
        out = np.zeros(self.symbolic.indices.size)
        out[self.places] = self.own_inverse()
        return out

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W Q^-1 W'), by the entries of Q's own pattern."""
        return np.asarray(T.T @ self.inverse_data())

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """Q^-1 E Q^-1 on the pattern: by a factor of the whole, for E may join the parts."""
        whole = self.symbolic.factor(self.data)
        return np.asarray((whole if self.constraint is None else self.constraint.hold(whole)).sandwich(data))


def _free(part: Part) -> int:
    """The dimension in which a part is free, as which its log-determinant scales."""
    held = part.constraint
    if held is None:
        return part.nodes.size
    return (part.nodes.size if held.basis is None else held.basis.shape[1]) - len(held.C)
