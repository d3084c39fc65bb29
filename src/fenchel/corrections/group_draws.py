"""Draws of the effects of groups given b, from their densities on lattices: one axis after the other.

Between two points of a lattice the density is a line; the cumulative sum is turned round at a uniform number. A line
adds 1/6 of a squared step to the variance, which draws are shrunk by.
"""

from __future__ import annotations

import numpy as np

from .collapsed_fit import CollapsedFit
from .group_structure import GroupedRows


def drawn_effects(data: GroupedRows, found: CollapsedFit, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """u (S, G, d), one draw of every group at each b (S, p)."""
    (G, d), S, size = data.mean.shape, b.shape[0], found.lattice.size
    out = np.empty((S, G, d))
    order = np.argsort(data.kind_of, kind="stable")
    edges = np.searchsorted(data.kind_of[order], np.arange(-1, data.many.size + 1))
    empty = order[: edges[1]]
    if empty.size:
        root = np.linalg.cholesky(np.linalg.inv(data.precision[empty]))
        out[:, empty] = data.mean[empty] + np.einsum("gij,sgj->sgi", root, rng.standard_normal((S, empty.size, d)))
    for part in found.problem.integrals.tilted(b, found.lattice, slopes=False):
        groups = order[edges[part.kinds.start + 1] : edges[part.kinds.stop + 1]]
        kind = data.kind_of[groups] - part.kinds.start
        n = part.share.shape[1]
        share = part.share[kind].reshape(groups.size * n, *[size] * d)
        v = np.stack(_drawn_places(share, rng), axis=1).reshape(groups.size, n, d)
        low, high, root = (x[part.kinds][kind] for x in (found.lattice.low, found.lattice.high, found.lattice.root))
        v = low[:, None] + (high - low)[:, None] * v / (size - 1)
        u = part.centre[kind] + np.einsum("gij,gsj->gsi", root, v)
        out[part.points, groups] = u.transpose(1, 0, 2)
    return out


def _drawn_places(share: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Places along each axis, in steps, by densities (T, J) or (T, J, J)."""
    if share.ndim == 2:
        return [_inverted(share, rng.random(share.shape[:1]))]
    first = _inverted(share.sum(axis=2), rng.random(share.shape[:1]))
    left = np.clip(first.astype(np.int64), 0, share.shape[1] - 2)
    rows, by = np.arange(share.shape[0]), (first - left)[:, None]
    between = (1.0 - by) * share[rows, left] + by * share[rows, left + 1]
    return [first, _inverted(between, rng.random(share.shape[:1]))]


def _inverted(density: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Where the integrals of densities (T, J), lines between whole numbers, reach the levels (T,), shrunk."""
    cells = 0.5 * (density[:, 1:] + density[:, :-1])
    total = np.cumsum(cells, axis=1)
    want = level * total[:, -1]
    left = np.minimum((total < want[:, None]).sum(axis=1), cells.shape[1] - 1)
    rows = np.arange(left.size)
    rest = want - total[rows, left] + cells[rows, left]
    a, b = density[rows, left], density[rows, left + 1]
    root = np.sqrt(np.maximum(a * a + 2.0 * (b - a) * rest, 0.0))
    inside = 2.0 * rest / np.maximum(a + root, 1e-300)
    place, whole = np.arange(density.shape[1]), density.sum(axis=1)
    mean = density @ place / whole
    variance = density @ place**2 / whole - mean**2
    shrunk = np.sqrt(variance / (variance + 1.0 / 6.0))
    return np.asarray(mean + shrunk * (left + np.clip(inside, 0.0, 1.0) - mean))
