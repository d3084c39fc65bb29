"""Nodes at which the effects of groups are integrated out: even lattices, and Gauss-Hermite rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_CORNER = 18.0  # nodes of a product rule with a log weight so far below the largest are dropped


@dataclass(frozen=True)
class Nodes:
    """Nodes u = mode + slope (b - centre) + step of K kinds of groups.

    mode (K, d), slope (K, d, p), centre (p,), step (K, M, d), log_weight (K, M) or (K, 1).
    """

    centre: np.ndarray
    mode: np.ndarray
    slope: np.ndarray
    step: np.ndarray
    log_weight: np.ndarray

    def coarse_error(self, share: np.ndarray) -> np.ndarray:
        """Error (K, S) of a coarser rule for densities (K, S, M); 0 if there is no coarser rule."""
        return np.zeros(share.shape[:2])


@dataclass(frozen=True)
class Lattice(Nodes):
    """Nodes with step = root v, where v has ``size`` even values between low and high (K, d) along each axis."""

    root: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: int

    @classmethod
    def spanning(
        cls,
        place: tuple[np.ndarray, np.ndarray, np.ndarray],
        root: np.ndarray,
        ends: tuple[np.ndarray, np.ndarray],
        size: int,
    ) -> Lattice:
        """The lattice about ``place`` (centre, mode, slope) between two ends."""
        low, high = ends
        d = low.shape[1]
        share = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, size)] * d, indexing="ij"), axis=-1)
        v = low[:, None] + (high - low)[:, None] * share.reshape(-1, d)
        cell = np.log((high - low) / (size - 1)).sum(axis=1) + np.linalg.slogdet(root)[1]
        return cls(*place, v @ root.transpose(0, 2, 1), cell[:, None], root, low, high, size)

    def coarse_error(self, share: np.ndarray) -> np.ndarray:
        """2 |c|: error of the sum over every other point along each axis, at the worst phase."""
        d = self.low.shape[1]
        place = np.stack(np.meshgrid(*[np.arange(float(self.size))] * d, indexing="ij"), axis=-1).reshape(-1, d)
        coarse = (place % 2.0 == 0.0).all(axis=1)
        mean = share @ place
        variance = np.maximum(share @ place**2 - mean**2, 1e-12)
        half = share[:, :, coarse] * 2.0**d
        mass = half.sum(axis=2)
        sine = (half @ place[coarse] - mass[:, :, None] * mean) / (np.pi * variance)  # k = pi for a step of 2
        return np.asarray(np.sqrt((mass - 1.0) ** 2 + np.sum(sine**2, axis=2)))


class GroupMoments(NamedTuple):
    """log g (K, ...), E[u] (K, ..., d) and Cov[u] (K, ..., d, d) at one b or at several.

    pull : (n, S) E[l'] of the rows, if requested
    share : (K, S, M) probabilities of the nodes, if requested
    """

    log_g: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    pull: np.ndarray
    share: np.ndarray

    def first(self) -> GroupMoments:
        """The moments at the first b; ``pull`` and ``share`` are not reduced."""
        return self._replace(log_g=self.log_g[:, 0], mean=self.mean[:, 0], covariance=self.covariance[:, 0])


class NodeSizes(NamedTuple):
    """Numbers of points along an axis: of the fine lattice, and of the nodes of a fit.

    The latter are a Gauss-Hermite rule (``rule``) or a coarse lattice. The numbers are kept between neighbouring theta,
    so that the evidence is smooth in theta.
    """

    lattice: int = 0
    rule: int = 0
    coarse: int = 0


@dataclass(frozen=True)
class Placed:
    """The nodes of a fit, and a fine even lattice about the same position.

    missed : error that remains after the shift, in nats
    shift : sum of all log g by the lattice minus that by the nodes, at the reference b; nearly the same at other b
    mean, covariance : (K, d), (K, d, d) the same differences for E[u] and Cov[u]
    """

    nodes: Nodes
    lattice: Lattice
    missed: float
    shift: float
    mean: np.ndarray
    covariance: np.ndarray
    sizes: NodeSizes


def hermite_nodes(place: tuple[np.ndarray, np.ndarray, np.ndarray], root: np.ndarray, size: int) -> Nodes:
    """Gauss-Hermite nodes about a mean, with a root of the covariance (K, d, d); negligible corners are dropped."""
    x, w = np.polynomial.hermite_e.hermegauss(size)
    d = root.shape[1]
    at = np.stack(np.meshgrid(*[x] * d, indexing="ij"), axis=-1).reshape(-1, d)
    log_w = np.stack(np.meshgrid(*[np.log(w)] * d, indexing="ij"), axis=-1).reshape(-1, d).sum(axis=1)
    kept = log_w > log_w.max() - _CORNER
    at, log_w = at[kept], (log_w + 0.5 * np.sum(at * at, axis=1))[kept]
    return Nodes(*place, at @ root.transpose(0, 2, 1), log_w + np.linalg.slogdet(root)[1][:, None])
