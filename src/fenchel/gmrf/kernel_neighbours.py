"""A Gaussian process with any kernel at the rows X by nearest neighbours (``vecchia.py``): a family of sparse priors.

    eta = offset + H u + f(x),    f ~ N(0, Q^-1),    Q = sum_i w_i w_i' / v_i,   w_i = (1, -b_i)

H u is a constant and slopes (``priors/trends.py``). For a point and its neighbours N, K is their covariance matrix,
b = K_NN^-1 k_N and v = k - k_N' b. With G = dP/dQ, g = G w at these points, y = K_NN^-1 g_N and c = w' g / v^2, the
slopes need one contraction with dK for each point:

    d<G, w w'/v> = <T, dK>,    T = -c w w' - (Y w' + w Y') / v,    Y = (0, y)

so that any kernel of ``cross_kernels.py`` works. Equal rows share a latent, unless the kernel has white noise. Each
point has an independent effect, the nugget, of 1e-8 of its variance; without it smooth kernels are singular in doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from ..checks import count, numeric, problem
from ..cross_kernels import cross, cross_slopes, variance_slopes, variances
from ..hyperparameters.kernel import KernelCovariance
from ..kernels import column_lengths, evaluate, has_white_noise
from ..linalg.arrays import ArrayLike, to_numpy
from ..linalg.machine import on_every_core
from ..priors.base import NewRows
from ..priors.sparse import SparsePrecision
from ..solvers.solution import Solution
from ._point_loops import gathered
from .base import reaching_information
from .vecchia import NUGGET, Neighbourhoods

T = TypeVar("T")
N_NEIGHBORS = 20  # default; with 2,000 rows in two or three columns, 40 neighbours change the elbo by at most 2 nats
KNOTS = 100_000, 40_000, 10_000  # most points that others condition on, in 1, 2 and more columns: some GiB of a factor
_BLOCK = 1 << 19  # entries of small covariance matrices computed at once: 4 MiB
_STEP = 0.01  # log units: distance of two precisions whose difference gives a slope
_LEAST = 1e-14  # least variance relative to the largest, where a value is exactly 0, as of DotProduct(0) at x = 0
_INDEFINITE = -1e-6  # of a variance: lower limit of rounding errors
_MOVED = float(np.log(1.5))  # change of a log length relative to the others, beyond which neighbours are chosen again


@dataclass(frozen=True)
class KernelNeighbourhoods(Neighbourhoods):
    """Points with their neighbours under any kernel."""

    def conditionals(self, kernel: Any, points: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (N, m) of the neighbours ``near`` (-1: none) of some points, and the conditional variances (N,)."""
        weights, left = np.zeros(near.shape), np.zeros(len(near))

        def one(some: slice) -> None:
            K = self._covariances(kernel, points[some], near[some])[1]
            b, own = np.linalg.solve(K[:, 1:, 1:], K[:, 1:, :1])[:, :, 0], K[:, 0, 0]
            v = own - np.sum(b * K[:, 1:, 0], axis=1)
            if (v < _INDEFINITE * own).any():
                got = f"{kernel} leaves a variance of {v.min():.3g} at a point given others"
                raise problem("neighbours", got, "a covariance", "A periodic kernel is one for a single column.")
            weights[some], left[some] = b, np.maximum(v, 0.5 * NUGGET * own + _LEAST * own.max())

        _in_blocks(len(near), near.shape[1], one)
        return weights, left

    def _covariances(self, kernel: Any, points: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points and their neighbours (N, m + 1, d), and covariances; missing neighbours have those of the identity."""
        sets = np.concatenate([points[:, None, :], self.X[near]], axis=1)
        K, each = to_numpy(cross(kernel, sets, sets)), np.arange(near.shape[1] + 1)
        own = to_numpy(variances(kernel, sets))
        K[:, each, each] = (1.0 + NUGGET) * own + _LEAST * own.max()
        i, j = np.nonzero(near < 0)
        K[i, j + 1, :], K[i, :, j + 1] = 0.0, 0.0
        K[i, j + 1, j + 1] = 1.0
        return sets, K

    def slopes(self, kernel: Any, weights: np.ndarray, left: np.ndarray, G: sp.csc_array) -> np.ndarray:
        """The slopes <G, dQ> in the kernel's theta for symmetric G; ``weights`` and ``left`` as in ``conditionals``."""
        n, m = self.neighbours.shape
        places, w = np.column_stack([np.arange(n), self.neighbours]), np.column_stack([np.ones(n), -weights])
        g, each = np.zeros((n, m + 1)), np.arange(m + 1)
        on_every_core(n, m * m, lambda a, b: gathered(G.indptr, G.indices, G.data, places, w, a, b, g))

        def one(some: slice) -> np.ndarray:
            sets, K = self._covariances(kernel, self.X[some], self.neighbours[some])
            Y, W, v = np.zeros((len(K), m + 1)), w[some], left[some]
            Y[:, 1:] = np.linalg.solve(K[:, 1:, 1:], g[some, 1:, None])[:, :, 0]
            half = (Y + (0.5 * np.sum(W * g[some], axis=1) / v)[:, None] * W) / v[:, None]
            adjoint = -(half[:, :, None] * W[:, None, :] + W[:, :, None] * half[:, None, :])
            own = (1.0 + NUGGET) * adjoint[:, each, each]
            adjoint[:, each, each] = 0.0
            return np.asarray(cross_slopes(kernel, sets, sets, adjoint, K) + variance_slopes(kernel, sets, own))

        return np.asarray(np.sum(_in_blocks(n, m, one), axis=0))

    def product(self, weights: np.ndarray, left: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The product Q x (n,), from the conditionals."""
        t = (x - np.sum(weights * x[self.neighbours], axis=1)) / left
        held = self.neighbours >= 0
        return t - np.bincount(self.neighbours[held], (weights * t[:, None])[held], len(x))

    def white(self, kernel: Any) -> np.ndarray:
        """The variance (n,) of a point's value apart from the function: white noise and the nugget."""
        own, alone = variances(kernel, self.X), self.X[:, None, :]
        return np.asarray((1.0 + NUGGET) * own - cross(kernel, alone, alone)[:, 0, 0])


def _in_blocks(n: int, m: int, one: Callable[[slice], T]) -> list[T]:
    """Apply ``one`` to blocks of points with m neighbours, on all cores."""
    size = max(1, _BLOCK // (m + 1) ** 2)

    def stretch(start: int, stop: int) -> list[T]:
        return [one(slice(i, min(stop, i + size))) for i in range(start, stop, size)]

    return [each for part in on_every_core(n, (m + 1) ** 2, stretch) for each in part]


class _Along:
    """The derivative dQ/dtheta_p as a linear operator: the scaled difference of two precisions."""

    def __init__(self, process: KernelNeighbourhoods, ends: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.process, self.ends = process, ends

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        out, n = np.zeros_like(x), len(self.process.X)
        above, below = (self.process.product(*end, x[:n]) for end in self.ends)
        out[:n] = (above - below) / (2.0 * _STEP)
        return out


class NeighbourCovariance(KernelCovariance):
    """The prior of a Gaussian process at inputs X by nearest neighbours.

    Parameters
    ----------
    kernel, X, offset, log_prior, level, slopes, centre : as in ``KernelCovariance``
    n_neighbors : int
        The number of neighbours of each row, among the rows before it in a spread-out order.
    lengths : array (D,), optional
        Length scales of the distance between rows; by default those of the kernel.
    knots : int, optional
        The number of distinct rows that others may condition on. Default: 100,000, 40,000 and 10,000 in one, two and
        more columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import Matern
    >>> from fenchel.gmrf.kernel_neighbours import NeighbourCovariance
    >>> from fenchel.hyperparameters import learn
    >>> from fenchel.likelihoods import Poisson
    >>> x = np.linspace(0, 60, 400)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> learn(Poisson(), NeighbourCovariance(1.0 * Matern(1.0), x, 10, level=10.0), counts).converged
    True
    """

    def __init__(
        self,
        kernel: Any,
        X: ArrayLike,
        n_neighbors: int = N_NEIGHBORS,
        offset: ArrayLike = 0.0,
        log_prior: Any = None,
        level: float = 0.0,
        slopes: ArrayLike | None = None,
        centre: ArrayLike = 0.0,
        lengths: ArrayLike | None = None,
        knots: int | None = None,
    ) -> None:
        super().__init__(kernel, X, offset=offset, log_prior=log_prior, level=level, slopes=slopes, centre=centre)
        m, (n_rows, d) = count("NeighbourCovariance", "n_neighbors", n_neighbors, 1), self.X.shape
        near = column_lengths(kernel, np.asarray(self.X)) if lengths is None else lengths
        self.lengths = np.array(np.broadcast_to(numeric("NeighbourCovariance", "lengths", near), (d,)))
        if has_white_noise(kernel):
            points, which = np.asarray(self.X), np.arange(n_rows)
        else:
            points, which = np.unique(np.asarray(self.X), axis=0, return_inverse=True)
        most = KNOTS[min(d, len(KNOTS)) - 1] if knots is None else count("NeighbourCovariance", "knots", knots, 2)
        self.process, order = KernelNeighbourhoods.chosen(points, self.lengths, m, most)
        place = np.empty(len(points), dtype=np.int64)
        place[order] = np.arange(len(points))
        self.n_neighbors, self.rows_seen = m, place[which.ravel()]
        self._prior: SparsePrecision | None = None
        self._last: tuple[np.ndarray, tuple[np.ndarray, np.ndarray]] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether each row is conditioned on all rows before it."""
        n, m = self.process.neighbours.shape
        return m >= n - 1

    def _conditionals(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._last is None or not np.array_equal(self._last[0], theta):
            process = self.process
            self._last = np.array(theta), process.conditionals(self.kernel_at(theta), process.X, process.neighbours)
        return self._last[1]

    def precision(self, theta: np.ndarray) -> sp.csc_array:
        """The precision Q of the values at the distinct rows, in their order, followed by the weights of the trend."""
        process, (weights, left) = self.process, self._conditionals(theta)
        n, m = weights.shape
        data = process.values(weights, left, np.zeros((0, n, m)), np.zeros((0, n)))[0]
        extra = self.trend.size
        indices = np.concatenate([process.indices, n + np.arange(extra)])
        indptr = np.concatenate([process.indptr, data.size + 1 + np.arange(extra)])
        return sp.csc_array((np.append(data, np.ones(extra)), indices, indptr), shape=(n + extra, n + extra))

    def at(self, theta: np.ndarray) -> SparsePrecision:  # type: ignore[override]
        Q, n = self.precision(np.asarray(theta, dtype=np.float64)), len(self.rows_seen)
        if self._prior is None:
            seen = sp.csr_array((np.ones(n), self.rows_seen, np.arange(n + 1)), shape=(n, len(self.process.X)))
            self._prior = SparsePrecision(Q, design=self._design_with_trend(seen, np.asarray(self.X)))
        out = self._prior.reweighted(Q)
        out.offset = self.offset_of(n)
        return out

    def _design_with_trend(self, design: sp.csr_array, X: np.ndarray) -> sp.csr_array:
        return sp.csr_array(sp.hstack([design, self.trend.columns(X)])) if self.trend.size else design

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        G = sp.csc_array(sum(solution.posterior.adjoint().precision))
        G.sort_indices()
        return self.process.slopes(self.kernel_at(theta), *self._conditionals(theta), G)

    def curvature(self, solution: Solution, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The average information, as for ``MarkovField``."""
        theta, process = np.asarray(theta, dtype=np.float64), self.process
        if not theta.size:
            return np.zeros((0, 0))
        found = partial(process.conditionals, points=process.X, near=process.neighbours)
        slopes: Any = [
            _Along(process, [found(self.kernel_at(theta + side * step)) for side in (1.0, -1.0)])
            for step in _STEP * np.eye(theta.size)
        ]
        return reaching_information(*solution.posterior.adjoint().precision_curvature(slopes), gradient)

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """The function at inputs ``table`` (N, D), conditional on the nearest distinct rows."""
        X = self.checked_rows(table)
        design, left = self._given(theta, X)
        return NewRows(design=self._design_with_trend(design, X), offset=self.offset_at(X), extra_variance=left)

    def _given(self, theta: np.ndarray, X: np.ndarray) -> tuple[Any, np.ndarray]:
        kernel = self.kernel_at(theta)
        return self.process.given(self.lengths, X, lambda near: self.process.conditionals(kernel, X, near))

    def covariance_left(self, theta: np.ndarray, table: Any) -> np.ndarray:
        """The covariance (N, N) of the function at new rows, conditional on the latents of ``new_rows``."""
        X, kernel, process = self.checked_rows(table), self.kernel_at(theta), self.process

        def covariance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
            return to_numpy(evaluate(kernel, A) if A is X and B is X else cross(kernel, A, B))

        return process.rests_under(self._given(theta, X)[0], X, covariance, process.white(kernel))

    def beyond_knots(self, theta: np.ndarray) -> float:
        """The average share of variance at the other rows that the knots do not explain."""
        process, left = self.process, self._conditionals(theta)[1]
        own = to_numpy(variances(self.kernel_at(theta), process.X[process.knots :]))
        return float(np.mean(left[process.knots :] / own)) if own.size else 0.0

    def is_moved(self, theta: np.ndarray) -> bool:
        """Whether lengths have changed relative to one another, so that other rows are the nearest at theta."""
        lengths = column_lengths(self.kernel_at(theta), np.asarray(self.X))
        return bool(np.ptp(np.log(lengths / self.lengths)) > _MOVED)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> NeighbourCovariance:
        from sklearn.gaussian_process.kernels import RBF, Matern

        return cls(1.4 * RBF([1.1, 0.7]) + 0.5 * Matern(1.3, nu=1.5), rng.normal(size=(n, 2)), 8, offset=0.1, level=2.0)
