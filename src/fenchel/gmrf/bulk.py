"""The bulk of points, and points far from it: a coordinate of -9999, metres among kilometres, study sites far apart.

The bulk begins as the smallest ball about a point that holds a share of all points. It takes in every point that lies
no further from its box than the box is wide, until none does. Points that are left are far: no distance within the bulk
is as long as the gap to them. They fall into pieces, by chains of points no further apart than the bulk is wide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

_FEWEST = 5  # points that a bulk begins with, at least
_SHARES = 0.5, 0.25, 0.125  # of the points that it begins with: a majority, or one of a few sites
_CENTRES, _SAMPLE = 128, 5000  # balls that are tried, and points that they are counted by
_SORTED = 20_000  # points up to which these do not depend on their order
_SITES, _ALIKE = 8, 2.0  # pieces, with the bulk, that may hold any share of the points, and their widths beside it
_STRAY, _PIECES = 0.1, 200  # share of the points that more pieces may hold, and how many of these there may be
_CELLS = 4  # cells along the length of a link


@dataclass(frozen=True)
class Bulk:
    """Where most points lie.

    Attributes
    ----------
    far : bool array (N,)
        Points that are far from it.
    piece : int array (N,)
        0 in the bulk, 1, 2, ... in the pieces that are far from it; 0 everywhere where these are too many.
    low, high : arrays (d,)
        The box of piece 0.
    """

    far: np.ndarray
    piece: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def extent(self) -> float:
        """The longest side of the box."""
        return float((self.high - self.low).max())


def bulk_of(X: np.ndarray, link: float = 0.0) -> Bulk:
    """The bulk of points (N, d); points within ``link`` of one another belong together, however narrow it is.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.gmrf.bulk import bulk_of
    >>> bulk_of(np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [-9999.0]])).piece
    array([0, 0, 0, 0, 0, 0, 1])
    """
    whole = Bulk(np.zeros(len(X), dtype=bool), np.zeros(len(X), dtype=np.int64), X.min(axis=0), X.max(axis=0))
    sample = _every(np.unique(X if len(X) <= _SORTED else _every(X, _SORTED), axis=0), _SAMPLE)
    if len(sample) <= _FEWEST:
        return whole
    distances = np.sqrt(sum((_every(sample, _CENTRES)[:, None, j] - sample[:, j]) ** 2 for j in range(X.shape[1])))
    for share in _SHARES:
        k = max(int(np.ceil(share * len(sample))), _FEWEST) - 1
        radii = np.partition(distances, k, axis=1)[:, k]
        best = int(np.argmin(radii))
        core = sample[distances[best] <= radii[best]]
        if share < 0.5 and _grown(sample, core, link).all():
            continue
        far = ~_grown(X, core, link)
        if not far.any():
            continue
        low, high = X[~far].min(axis=0), X[~far].max(axis=0)
        piece = np.zeros(len(X), dtype=np.int64)
        piece[far] = 1 + linked(X[far], max(link, float((high - low).max())))
        sites = piece.max() < _SITES
        if share < 0.5 and not (sites and _alike(X, piece)):
            continue
        if sites or (far.mean() <= _STRAY and piece.max() < _PIECES):
            return Bulk(far, piece, low, high)
        return replace(whole, far=far)
    return whole


def linked(X: np.ndarray, link: float) -> np.ndarray:
    """The piece (N,) of each point, by chains of points at most ``link`` apart, or up to half as much more."""
    cells, place = np.unique(np.floor((X - X.min(axis=0)) * (_CELLS / link)), axis=0, return_inverse=True)
    reach = _CELLS + np.sqrt(X.shape[1])  # of cells whose points may be as near as the link
    pairs = cKDTree(cells).query_pairs(reach, output_type="ndarray")
    graph = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(len(cells), len(cells)))
    _, label = sp.csgraph.connected_components(graph, directed=False)
    return np.asarray(label[place.ravel()], dtype=np.int64)


def _alike(X: np.ndarray, piece: np.ndarray) -> bool:
    """Whether pieces have a few points each, and are not much wider than the bulk."""
    widths = [float(np.ptp(X[piece == k], axis=0).max()) for k in range(piece.max() + 1)]
    return int(np.bincount(piece).min()) >= _FEWEST and max(widths) <= _ALIKE * widths[0]


def gaps(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The distance (N,) of points from a box."""
    return np.asarray(np.sqrt(np.sum(np.maximum(np.maximum(low - X, X - high), 0.0) ** 2, axis=1)))


def _every(X: np.ndarray, n: int) -> np.ndarray:
    """At most n of the points, at equal steps."""
    return np.asarray(X[np.linspace(0, len(X) - 1, min(n, len(X))).astype(np.int64)])


def _grown(X: np.ndarray, core: np.ndarray, link: float) -> np.ndarray:
    """The points (N,) that a core takes in."""
    low, high, held = core.min(axis=0), core.max(axis=0), -1
    while True:
        inside = gaps(X, low, high) <= max(float((high - low).max()), link)
        if int(inside.sum()) == held:
            return inside
        held, low, high = int(inside.sum()), X[inside].min(axis=0), X[inside].max(axis=0)
