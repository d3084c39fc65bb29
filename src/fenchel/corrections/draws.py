"""Weighted draws of q: points in pairs u and -u, made again whenever they are asked for, and the marginals they give.

Points are Sobol's, scrambled once and shifted at random 16 times, so that the 16 copies tell the error; independent
pairs where there are too many coordinates for that. With normalised weights w_s of S draws t_s of an unknown that is
N(m, v) under q, and v_s the weights that would make them draws of q, what is known of q is used and the weights only
add what p has beyond it:

    E[t^2]    ~ v + sum_s (w_s - v_s) t_s^2                (t from m; a pair's odd moments cancel of themselves)
    P(t <= x) ~ Phi(x / sqrt v) + sum_s (w_s - v_s) [t_s <= x]
    p(x)      ~ q(x) sum_s w_s K_b(x - t_s) / sum_s v_s K_b(x - t_s),    b = 0.6 sqrt(v) S^(-1/5)

Memory: states of up to 2^28 bytes are kept, larger ones made again in every pass, and then quantiles gather 2^28 bytes
in a pass. A pass holds a few arrays of 2^22 numbers, or of 8 draws of everything where that is more. Beyond that the
space's own roots: for each of three strengths of the sites a matrix of the smaller of N and L, or a sparse factor.
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
_MOST = 21201  # coordinates that Sobol's points have
_HELD = 2**28  # bytes of states that are kept
_CHUNK = 2**22  # numbers of one array of a pass
_LEAST = 8  # draws of a chunk

Chunk = tuple[slice, States, np.ndarray]  # which pairs; their states; standard normals of what the latents leave


class Draws:
    """Pairs of draws of q.

    Parameters
    ----------
    space : Space
    draws : int
        At least so many draws; 2 COPIES n of them are made.
    rng : numpy Generator or seed
    n_extra : int
        Standard normals of each draw beyond those of the states.
    """

    def __init__(self, space: Space, draws: int, rng: np.random.Generator, n_extra: int = 0) -> None:
        self.space, self.n_extra = space, n_extra
        self.n_points = -(-draws // (2 * COPIES))
        self.n_pairs = COPIES * self.n_points
        self.seed = int(rng.integers(2**62))
        width = sum(space.sizes) + n_extra
        self.quasi = space.quasi and width < _MOST and 8 * width * self.n_points <= _HELD
        self.keeps = 8 * width * self.n_pairs <= _HELD
        self._kept: list[Chunk] = []
        most = max(width, int(np.prod(space.everyone.mt.shape)))
        self.step = min(self.n_pairs, max(_LEAST, _CHUNK // most))

    @property
    def n(self) -> int:
        """Draws."""
        return 2 * self.n_pairs

    def chunks(self) -> Iterator[Chunk]:
        """All pairs, some at a time; the same at every call. Each stands for its mirror image, too."""
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
        """Which component of the mixture each pair is of (K,), and standard normals (r, K)."""
        width, n = sum(self.space.sizes) + self.n_extra, part.stop - part.start
        edges = np.cumsum([share for _, share in MIXTURE])[:-1]
        if not self.quasi:
            which = np.searchsorted(edges, rng.random(n), side="right")
            if self.space.quasi:
                return which, rng.standard_normal((width, n))
            own = np.empty((width - self.n_extra, n))  # the space draws by itself
            return which, np.concatenate([own, rng.standard_normal((self.n_extra, n))])
        points, shifts = self._points
        copy, point = np.divmod(np.arange(part.start, part.stop), self.n_points)
        u = ((points[point] + shifts[copy]) % 1.0).T
        return np.searchsorted(edges, u[0], side="right"), ndtri(np.clip(u[1:], 2.0**-54, 1.0 - 2.0**-53))

    @cached_property
    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """Points (n, 1 + r) and shifts (COPIES, 1 + r): the component, and the normals.

        The first coordinates of all blocks come first, which are the best.
        """
        from scipy.stats import qmc

        sizes = self.space.sizes
        width = 1 + sum(sizes) + self.n_extra
        engine = qmc.Sobol(width, scramble=True, rng=np.random.default_rng([self.seed, 0]))
        points = engine.random_base2(int(np.ceil(np.log2(self.n_points))))[: self.n_points]
        rank = np.concatenate([[-1], *(np.arange(size) for size in sizes), _MOST + np.arange(self.n_extra)])
        place = np.argsort(np.argsort(rank, kind="stable"))
        return points[:, place], np.random.default_rng([self.seed, 1]).random((COPIES, width))

    def scores(self) -> np.ndarray:
        """Standard normals (pairs,) that know nothing of the draws: for what the states leave of an unknown."""
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
        The weights that make them draws of q, which mirror images share.
    scale : array, optional
        Standard deviations of a part of the unknowns that the ``extra`` normals of the draws give.
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
        """Deviations from the mean (M, K), without what the states leave."""
        d = unknowns.deviations(chunk[1])
        return d if self._scale is None else d + (self._scale.ravel()[:, None] * chunk[2])[rows]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and third central moment, flat."""
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
        """The draws of each unknown with their weights, some unknowns at a time."""
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
        """Some unknowns at a time with all of their draws (M, S), as deviations from their mean under q.

        One pass over the draws gathers as much as may be held; a chunk of it at a time is handed out.
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
        """Quantiles: the shape of ``mean`` for one q, with an axis of Q at the end for Q of them."""
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
    """Where a distribution function, ``below`` at sorted draws t (M, S), passes ``level``; q's own outside of them."""
    n, rows = t.shape[1], np.arange(t.shape[0])
    place = (below < level).sum(axis=1)
    high = np.clip(place, 1, n - 1)
    f0, f1, t0, t1 = below[rows, high - 1], below[rows, high], t[rows, high - 1], t[rows, high]
    share = np.clip((level - f0) / np.where(f1 > f0, f1 - f0, 1.0), 0.0, 1.0)
    inside = t0 + share * (t1 - t0)
    return np.where(place == 0, np.minimum(t[:, 0], normal), np.where(place == n, np.maximum(t[:, -1], normal), inside))
