"""Weighted draws of q in antithetic pairs u and -u, and the marginals that they give.

The points are scrambled Sobol points with 16 random shifts; the 16 copies give the error. If there are too many
coordinates for Sobol points, independent pairs are drawn. Let t_s be S draws of an unknown that is N(m, v) under q,
w_s their normalised weights, and v_s the weights that would make them draws of q. The known moments of q serve as
control variates, so that the weights only estimate the difference between the posterior and q:

    E[t^2]    ~ v + sum_s (w_s - v_s) t_s^2                (t relative to m; the odd moments of a pair cancel)
    P(t <= x) ~ Phi(x / sqrt v) + sum_s (w_s - v_s) [t_s <= x]
    p(x)      ~ q(x) sum_s w_s K_b(x - t_s) / sum_s v_s K_b(x - t_s),    b = 0.6 sqrt(v) S^(-1/5)

Memory: states of up to 2^28 bytes are stored. Larger ones are generated again in every pass, and quantiles then collect
2^28 bytes in a pass. A pass stores a few arrays of 2^22 numbers, or of 8 draws of everything if that is more. The space
of draws adds its own roots: for each of three strengths of the sites a matrix of size min(N, L), or a sparse factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from ..likelihoods.base import Likelihood
from ..marginals import Levels, MarginalAnswers, Nodes, probabilities
from ..predictive import Predictive, one_predictor
from .states import MIXTURE, Space, States, Unknowns

COPIES = 16  # random shifts of one set of points
_SOBOL_DIMENSIONS = 21201  # largest number of coordinates of Sobol points
_HELD = 2**28  # bytes of states that are stored
_CHUNK = 2**22  # numbers in one array of a pass
_LEAST = 8  # fewest draws of a chunk

Chunk = tuple[slice, States, np.ndarray]  # indices of the pairs; their states; normals for the extra variance


class Draws:
    """Antithetic pairs of draws of q.

    Parameters
    ----------
    space : Space
    draws : int
        Least number of draws; it is rounded up to a multiple of 2 COPIES.
    rng : numpy Generator or seed
    n_extra : int
        Standard normals of each draw in addition to those of the states.
    """

    def __init__(self, space: Space, draws: int, rng: np.random.Generator, n_extra: int = 0) -> None:
        self.space, self.n_extra = space, n_extra
        self.n_points = -(-draws // (2 * COPIES))
        self.n_pairs = COPIES * self.n_points
        self.seed = int(rng.integers(2**62))
        width = sum(space.sizes) + n_extra
        self.quasi = space.quasi and width < _SOBOL_DIMENSIONS and 8 * width * self.n_points <= _HELD
        self.keeps = 8 * width * self.n_pairs <= _HELD
        self._kept: list[Chunk] = []
        most = max(width, int(np.prod(space.everyone.mt.shape)))
        self.step = min(self.n_pairs, max(_LEAST, _CHUNK // most))

    @property
    def n(self) -> int:
        """Number of draws."""
        return 2 * self.n_pairs

    def chunks(self) -> Iterator[Chunk]:
        """Yield all pairs, some at a time, the same at every call. Each also represents its mirror image."""
        if self._kept:
            yield from self._kept
            return
        made = []
        for i in range(0, self.n_pairs, self.step):
            part = slice(i, min(i + self.step, self.n_pairs))
            rng = np.random.default_rng([self.seed, 2, i])
            which, normals = self._normals(part, rng)
            split = np.split(normals, np.cumsum(self.space.sizes))
            chunk = (part, self.space.states(split[:-1], which, rng), split[-1])
            if self.keeps:
                made.append(chunk)
            yield chunk
        self._kept = made

    def _normals(self, part: slice, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The mixture component of each pair (K,), and standard normals (r, K)."""
        width, n = sum(self.space.sizes) + self.n_extra, part.stop - part.start
        edges = np.cumsum([share for _, share in MIXTURE])[:-1]
        if not self.quasi:
            which = np.searchsorted(edges, rng.random(n), side="right")
            if self.space.quasi:
                return which, rng.standard_normal((width, n))
            own = np.empty((width - self.n_extra, n))  # not used: the space makes its own draws
            return which, np.concatenate([own, rng.standard_normal((self.n_extra, n))])
        points, shifts = self._points
        copy, point = np.divmod(np.arange(part.start, part.stop), self.n_points)
        u = ((points[point] + shifts[copy]) % 1.0).T
        return np.searchsorted(edges, u[0], side="right"), ndtri(np.clip(u[1:], 2.0**-54, 1.0 - 2.0**-53))

    @cached_property
    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """Sobol points (n, 1 + r) and shifts (COPIES, 1 + r), for the mixture component and the normals.

        The first coordinates of all blocks come first, because Sobol points are best in their first coordinates.
        """
        from scipy.stats import qmc

        sizes = self.space.sizes
        width = 1 + sum(sizes) + self.n_extra
        engine = qmc.Sobol(width, scramble=True, rng=np.random.default_rng([self.seed, 0]))
        points = engine.random_base2(int(np.ceil(np.log2(self.n_points))))[: self.n_points]
        rank = np.concatenate([[-1], *(np.arange(size) for size in sizes), _SOBOL_DIMENSIONS + np.arange(self.n_extra)])
        place = np.argsort(np.argsort(rank, kind="stable"))
        return points[:, place], np.random.default_rng([self.seed, 1]).random((COPIES, width))

    def scores(self) -> np.ndarray:
        """Standard normals (pairs,) independent of the draws, for the residual of an unknown given the states."""
        order = np.random.default_rng([self.seed, 3]).permutation(self.n_pairs)
        return ndtri((order + 0.5) / self.n_pairs)


class WeightedMarginals(MarginalAnswers):
    """Marginals of many unknowns from weighted draws.

    Parameters
    ----------
    draws : Draws
    unknowns : Unknowns
    weights : array (2, pairs)
        Normalised weights of the draws and of their mirror images.
    base : array (pairs,)
        The weights that make them draws of q, the same for mirror images.
    scale : array, optional
        Standard deviations of the part of the unknowns that comes from the ``extra`` normals of the draws.
    """

    nodal = True

    def __init__(
        self,
        draws: Draws,
        unknowns: Unknowns,
        weights: np.ndarray,
        base: np.ndarray,
        scale: np.ndarray | None = None,
    ) -> None:
        self._draws, self._unknowns, self._scale = draws, unknowns, scale
        self.weights, self._base = weights, base

    def _of(self, unknowns: Unknowns, chunk: Chunk, rows: slice = slice(None)) -> np.ndarray:
        """Deviations from the mean (M, K), without the residual given the states."""
        d = unknowns.deviations(chunk[1])
        return d if self._scale is None else d + (self._scale.ravel()[:, None] * chunk[2])[rows]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and third central moment, as flat arrays."""
        u, w = self._unknowns, self.weights
        odd, more = w[0] - w[1], w[0] + w[1] - 2.0 * self._base
        first, added, third, plain = (np.zeros(u.mean.size) for _ in range(4))
        for chunk in self._draws.chunks():
            d, part = self._of(u, chunk), chunk[0]
            square = d * d
            first += d @ odd[part]
            added += square @ more[part]
            plain += square @ (w[0] + w[1])[part]
            third += (square * d) @ odd[part]
        left = 0.0 if u.residual is None else u.residual.ravel()
        second = u.variance.ravel() - left + added
        second = np.where(second > first**2, second, plain)
        central = third - 3.0 * first * second + 2.0 * first**3
        return u.mean.ravel() + first, second - first**2 + left, central

    @property
    def _unknowns_like(self) -> np.ndarray:
        return self._unknowns.mean

    def _shaped(self, flat: np.ndarray) -> np.ndarray:
        return flat.reshape(self._unknowns.mean.shape + flat.shape[1:])

    def predictive(self, likelihood: Likelihood) -> Predictive:
        """y at these rows under ``likelihood``, whose exposures or trials are theirs."""
        one_predictor(likelihood)
        return Predictive(likelihood, self)

    def nodes(self) -> Iterator[Nodes]:
        """Yield the draws of the unknowns with their weights, some unknowns at a time."""
        for rows, some, t in self._blocks():
            yield rows, some.mean[:, None] + t, self.weights.ravel()[None, :]

    @property
    def mean(self) -> np.ndarray:
        """Means."""
        return self._shaped(self._moments[0])

    @property
    def variance(self) -> np.ndarray:
        """Variances."""
        return self._shaped(self._moments[1])

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.variance)

    @property
    def skewness(self) -> np.ndarray:
        """Third standardised moments; 0 for an unknown without variance."""
        _, variance, third = self._moments
        return self._shaped(third / np.where(variance > 0.0, variance, np.inf) ** 1.5)

    def _blocks(self) -> Iterator[tuple[slice, Unknowns, np.ndarray]]:
        """Yield some unknowns at a time with all their draws (M, S), as deviations from their mean under q.

        One pass over the draws collects as much as fits in memory, which is then yielded in chunks.
        """
        whole, draws, scores = self._unknowns, self._draws, self._draws.scores()
        B = len(whole.designs)
        step = max(1, _CHUNK // (draws.n * B))
        many = step if draws.keeps else max(step, _HELD // (8 * draws.n * B) // step * step)
        for first in range(0, whole.n_rows, many):
            last = min(first + many, whole.n_rows)
            some = whole.take(slice(first, last))
            half = np.empty((some.mean.size, draws.n_pairs))
            for chunk in draws.chunks():
                half[:, chunk[0]] = self._of(some, chunk, slice(first * B, last * B))
            if some.residual is not None:
                half += np.sqrt(some.residual)[:, None] * scores
            for i in range(first, last, step):
                rows = slice(i * B, min(i + step, last) * B)
                t = half[rows.start - first * B : rows.stop - first * B]
                yield rows, whole.take(slice(i, min(i + step, last))), np.concatenate([t, -t], axis=1)

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles: the shape of ``mean`` for one level q, with a last axis of length Q for Q levels."""
        levels = probabilities("quantile", q)
        out = np.empty((self._unknowns.mean.size, np.atleast_1d(levels).size))
        more = (self.weights - self._base).ravel()
        for rows, some, t in self._blocks():
            sd = np.sqrt(some.variance)[:, None]
            order = np.argsort(t, axis=1)
            t, step = np.take_along_axis(t, order, axis=1), more[order]
            below = np.cumsum(step, axis=1) - 0.5 * step + ndtr(t / np.where(sd > 0.0, sd, 1.0))
            below = np.maximum.accumulate(below, axis=1)
            for k, level in enumerate(np.atleast_1d(levels)):
                out[rows, k] = some.mean + _crossing(t, below, level, sd[:, 0] * ndtri(level))
        return self._shaped(out[:, 0] if levels.ndim == 0 else out)

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        at, out = self._each(x), np.empty(self._unknowns.mean.size)
        more = (self.weights - self._base).ravel()
        for rows, some, t in self._blocks():
            e, sd = at[rows] - some.mean, np.sqrt(some.variance)
            below = ndtr(e / np.where(sd > 0.0, sd, 1.0)) + (t <= e[:, None]) @ more
            out[rows] = np.where(sd > 0.0, np.clip(below, 0.0, 1.0), np.where(e >= 0.0, 1.0, 0.0))
        return self._shaped(out)

    def _density(self, x: np.ndarray) -> np.ndarray:
        at, out = self._each(x), np.empty(self._unknowns.mean.size)
        w, v = self.weights.ravel(), np.tile(self._base, 2)
        for rows, some, t in self._blocks():
            e, sd = at[rows] - some.mean, np.sqrt(some.variance)
            scale = np.where(sd > 0.0, sd, 1.0)
            near = -0.5 * ((e[:, None] - t) / (0.6 * self._draws.n**-0.2 * scale[:, None])) ** 2
            near = np.exp(near - near.max(axis=1, keepdims=True))
            normal = np.exp(-0.5 * (e / scale) ** 2) / (scale * np.sqrt(2.0 * np.pi))
            out[rows] = np.where(sd > 0.0, normal * (near @ w) / (near @ v), np.where(e == 0.0, np.inf, 0.0))
        return self._shaped(out)

    def _each(self, x: np.ndarray) -> np.ndarray:
        """x for each unknown, flat."""
        return np.broadcast_to(x, self._unknowns.mean.shape).ravel()


def _crossing(t: np.ndarray, below: np.ndarray, level: float, normal: np.ndarray) -> np.ndarray:
    """Where a distribution function, ``below`` at sorted draws t (M, S), reaches ``level``.

    Outside the draws the quantile of q (``normal``) is used.
    """
    n, rows = t.shape[1], np.arange(t.shape[0])
    place = (below < level).sum(axis=1)
    high = np.clip(place, 1, n - 1)
    f0, f1, t0, t1 = below[rows, high - 1], below[rows, high], t[rows, high - 1], t[rows, high]
    share = np.clip((level - f0) / np.where(f1 > f0, f1 - f0, 1.0), 0.0, 1.0)
    inside = t0 + share * (t1 - t0)
    return np.where(place == 0, np.minimum(t[:, 0], normal), np.where(place == n, np.maximum(t[:, -1], normal), inside))
