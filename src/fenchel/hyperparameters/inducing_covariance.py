"""A kernel's hyperparameters where M points stand for all rows: the family of ``InducingPoints``.

By the envelope theorem, with u, V of the whitened weights fixed (so that the KL does not move),

    d elbo = - sum_n alpha_n dh_n + lam_n/2 drho_n,     h = offset + G m,    rho = diag(G V G') + c
           = <A, dG> - 1/2 lam' d diag(K),              A = -alpha m' + Lam G (I - V)

and with G = K_NM L^-T,  <A, dG> = <A L^-1, dK_NM> - 1/2 <L^-T B L^-1, dK_MM>,  B = G' A = m m' + V^-1 - 2 I + V, since
B is symmetric at the optimum. One pass over the rows, in blocks; classes with weights of their own add up.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..cross_kernels import cross, cross_slopes, variance_slopes
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy, namespace, to_numpy
from ..linalg.dense import diagonal_of, set_diagonal
from ..linalg.machine import over_rows
from ..priors.base import NewRows
from ..priors.inducing import FeatureRows, InducingPoints
from ..solvers.solution import Solution
from .kernel import KernelCovariance


class InducingCovariance(KernelCovariance):
    """The prior of a Gaussian process at inputs X by the features of M points.

    Parameters
    ----------
    kernel, X, offset, log_prior, level, slopes, centre : as in ``KernelCovariance``
    points : array (M, D)
        The inducing points, the same at every theta; ``with_points`` has others.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters import InducingCovariance, learn
    >>> from fenchel.likelihoods import Poisson
    >>> x = np.linspace(0, 6, 300)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> found = learn(Poisson(), InducingCovariance(1.0 * RBF(1.0), x, x[::20], level=10.0), counts)
    >>> found.converged
    True
    """

    def __init__(
        self,
        kernel: Any,
        X: ArrayLike,
        points: ArrayLike,
        offset: ArrayLike = 0.0,
        log_prior: Any = None,
        level: float = 0.0,
        slopes: ArrayLike | None = None,
        centre: ArrayLike = 0.0,
    ) -> None:
        super().__init__(kernel, X, offset=offset, log_prior=log_prior, level=level, slopes=slopes, centre=centre)
        where = "InducingCovariance"
        self.points = finite(where, "points", numeric(where, "points", points))
        if self.points.ndim != 2 or self.points.shape[1] != self.X.shape[1] or self.points.size == 0:
            got = f"points has shape {self.points.shape}"
            raise problem(where, got, f"(M, {self.X.shape[1]}): one row a point")
        self._last: tuple[np.ndarray, InducingPoints] | None = None

    def with_points(self, points: Array) -> InducingCovariance:
        """The same family seen through other points."""
        out = copy(self)
        out.points, out._last = to_numpy(points), None
        out.restate(points=out.points)
        return out

    def with_rows(self, rows: np.ndarray) -> InducingCovariance:
        """The same family for some of the rows."""
        out = copy(self)
        several = not callable(self.offset) and np.ndim(self.offset) and np.shape(self.offset)[0] > 1
        offset = self.offset[rows] if several else self.offset  # type: ignore[index]
        out.X, out.offset, out._last = self.X[rows], offset, None
        out.restate(X=out.X, offset=offset)
        return out

    def at(self, theta: np.ndarray) -> InducingPoints:  # type: ignore[override]
        theta = np.array(theta, dtype=np.float64)
        if self._last is None or not np.array_equal(self._last[0], theta):
            self._last = None  # its features leave before the next are made
            offset = self.offset_of(len(self.X))
            made = InducingPoints(self.kernel_at(theta), self.X, self.points, offset, **self.trend.arguments)
            self._last = theta, made
        return self._last[1]

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        prior, post = self.at(theta), solution.posterior
        m = post.latent_mean
        means, C = (m[:, None] if m.ndim == 1 else m), post.predictors.n_predictors
        left = _unexplained(post, C)
        M, Lam = prior.rows.points.shape[0], post.curvatures

        def adjoint(some: slice, G: Array) -> Array:
            lam, A = post.lam[some, :], -(post.alpha[some, :] @ means.T)
            for a, b, rest in left:
                weight = lam[:, a] if Lam is None else Lam[some][:, a, b]
                A = A + weight[:, None] * (G @ rest)
            return A

        B = products_at_optimum(means, left, M) if Lam is None else None
        return feature_slopes(prior, adjoint, namespace(post.lam).sum(post.lam, axis=1), B)

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """The function at inputs ``table`` (n, D): its features, and the variance that they do not explain."""
        X, rows = self.checked_rows(table), self.at(theta).rows
        there = asarray(X, rows.U)
        G = rows.at(there)[:]
        return NewRows(design=G, offset=self.offset_at(X), extra_variance=to_numpy(rows.remainder(G, there)))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> InducingCovariance:
        from sklearn.gaussian_process.kernels import RBF, Matern

        X = rng.normal(size=(n, 2))
        return cls(1.4 * RBF([1.1, 0.7]) + 0.5 * Matern(1.3, nu=1.5), X, X[: max(2, n // 2)], offset=0.1, level=2.0)


def feature_slopes(
    prior: InducingPoints, adjoint: Callable[[slice, Array], Array], lam: Array, B: Array | None = None
) -> np.ndarray:
    """<A, dG> - 1/2 lam' d diag(K) along the kernel's theta, ``adjoint(rows, G)`` being those rows of A.

    ``B``: G' A of the points, where it is known; it is symmetric at the optimum.
    """
    rows, M = prior.rows, prior.rows.points.shape[0]

    def one(some: slice) -> np.ndarray:
        kept = prior.kept_features(some)
        slopes, G, A = row_slopes(rows, rows.X[some, :], lambda G: adjoint(some, G), lam[some], kept)
        return np.concatenate([slopes, np.zeros(0) if B is not None else to_numpy(G[:, :M].T @ A).ravel()])

    total = np.asarray(sum(over_rows(rows.shape[0], rows.shape[1], one, is_numpy(lam))))
    n = total.size - (M * M if B is None else 0)
    inner = asarray(total[n:].reshape(M, M), lam) if B is None else B
    return np.asarray(total[:n] + point_slopes(prior, inner))


def row_slopes(
    rows: FeatureRows, X: Array, adjoint: Callable[[Array], Array], lam: Array, G: Array | None = None
) -> tuple[np.ndarray, Array, Array]:
    """<A L^-1, dK_NM> - 1/2 lam' d diag(K) of some rows X, with their features G and A = adjoint(G) of the points.

    ``G``: the features where they are known.
    """
    kernel, Z = rows.kernel, rows.points
    K = cross(kernel, X, Z)
    G = rows.of_cross(K, X) if G is None else G
    A = adjoint(G)[:, : Z.shape[0]]
    slopes = cross_slopes(kernel, X, Z, rows.to_points(A), K) + variance_slopes(kernel, X, -0.5 * lam)
    return slopes, G, A


def point_slopes(prior: InducingPoints, B: Array) -> np.ndarray:
    """-1/2 <L^-T B L^-1, dK_MM>: what the covariance of the points adds to the slopes."""
    U, Z = prior.rows.U, prior.rows.points
    G_MM = -0.25 * (U @ (B + B.T) @ U.T)
    G_MM = set_diagonal(G_MM, (1.0 + prior.jitter) * diagonal_of(G_MM))
    return cross_slopes(prior.kernel, Z, Z, G_MM)


def _unexplained(post: Any, C: int) -> list[tuple[int, int, Array]]:
    """I - V of each pair of classes that are not independent under q, with their numbers."""
    V = post.latent_covariance()
    if post.curvatures is None:
        return [(c, c, _from_identity(V if V.ndim == 2 else V[c, :, :])) for c in range(C)]
    L = V.shape[0] // C
    pairs = [(a, b) for a in range(C) for b in range(C)]
    blocks = [(a, b, V[b * L : (b + 1) * L, a * L : (a + 1) * L]) for a, b in pairs]
    return [(a, b, _from_identity(block) if a == b else -block) for a, b, block in blocks]


def _from_identity(V: Array) -> Array:
    """I - V."""
    return set_diagonal(-V, 1.0 - diagonal_of(V))


def products_at_optimum(means: Array, left: list[tuple[int, int, Array]], M: int) -> Array:
    """B = m m' + (I - V) V^-1 (I - V), summed over classes, of the points alone."""
    total = means[:M, :] @ means[:M, :].T
    for _, _, rest in left:
        total = total + (rest @ namespace(rest).linalg.solve(_from_identity(rest), rest))[:M, :M]
    return total
