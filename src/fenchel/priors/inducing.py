"""A Gaussian process seen through M points: eta = offset + G u + e, u ~ N(0, I), e ~ N(0, diag c).

    Q = G G',   G = K_NM L^-T,   L L' = K_MM + jitter,     c = diag(K - Q) >= 0

The process itself has covariance K >= Q; e stands for what the points do not explain, and is not learned from. The
jitter is 1e-10 of the variances: it makes u a noisy view of the function at the points, and so leaves K - Q positive.
A trend (a constant ~ N(0, level), slopes of columns) has weights of its own, exactly: the last columns of the design.

Rows of G are kept where they fit into memory, else made again from the kernel in every pass, a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..cross_kernels import cross, variances
from ..linalg import dense
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy, namespace, to_numpy
from ..linalg.design import HOST
from ..linalg.machine import block_rows, blocks, empty, on_every_core, over_rows, physical_memory
from ..linalg.matrix_designs import Dense, array_design, stripes
from .base import Predictors, Prior
from .latent_priors import LatentPrior, in_smaller_space
from .predictors import Latents
from .trends import Trend

JITTER = 1e-10  # of the variances of the process at the points
_MOST_JITTER = 1e-4  # a kernel that needs more is no covariance
_KEPT_SHARE = 0.06  # of the memory there is: rows of G up to this are kept; learning holds those of three fits
_KEPT_BYTES = 1.0 * 2**30  # and up to this


def whitening(K: Array, jitter: float = JITTER) -> tuple[Array, float]:
    """U with U' (K + jitter diag K) U = I, upper triangular, and the jitter that Cholesky needed."""
    xp = namespace(K)
    own = xp.linalg.diagonal(K)
    while jitter <= _MOST_JITTER:
        A = K + dense.diagonal_matrix(jitter * own)
        try:
            L = dense.cholesky(A)
        except dense.NotPositiveDefinite:
            jitter *= 100.0
            continue
        if is_numpy(L):
            return dense.triangular_inverse(np.tril(L)).T, jitter
        return xp.matrix_transpose(dense.triangular_inverse(L)), jitter
    raise problem(
        "InducingPoints",
        "the kernel at the points is not positive semidefinite",
        "a covariance",
        "Check the kernel, or the lengths: a periodic kernel of distances is a covariance on the line alone.",
    )


class FeatureRows:
    """Rows of [G, H] for inputs X, H those of the trend: a block is made when it is asked for.

    Attributes
    ----------
    X : array (N, D)
    points : array (M, D)
    U : array (M, M)
        L^-T, upper triangular.
    """

    def __init__(self, kernel: Any, X: Array, points: Array, U: Array, trend: Trend) -> None:
        self.kernel, self.X, self.points, self.U, self.trend = kernel, X, points, U, trend
        self.shape = (X.shape[0], points.shape[0] + trend.size)
        self.stripes = stripes(U) if is_numpy(U) else []

    def __getitem__(self, rows: Any) -> Any:
        X = self.X[rows, :]
        return self.of_cross(cross(self.kernel, X, self.points), X)

    def of_cross(self, K: Array, X: Array) -> Array:
        """Rows of [G, H] from those of K_NM at inputs X."""
        xp = namespace(K)
        if not is_numpy(K):
            return xp.concat([K @ self.U, self.trend.columns(X)], axis=1) if self.trend.size else K @ self.U
        m = self.points.shape[0]
        out = empty(K.shape[0], self.shape[1])
        for i, j, part in self.stripes:
            np.matmul(K[:, : part.shape[0]], part, out=out[:, i:j])
        if self.trend.size:
            out[:, m:] = self.trend.columns(X)
        return out

    def to_points(self, A: Array) -> Array:
        """A U' of rows A, without the zeros of U."""
        if not is_numpy(A):
            return A @ self.U.T
        out = np.empty((A.shape[0], self.U.shape[0]))
        for i, j, _ in self.stripes:
            first = i if len(self.stripes) > 1 else 0
            np.matmul(A[:, first:], self.U[i:j, first:].T, out=out[:, i:j])
        return out

    def at(self, X: Array) -> FeatureRows:
        """The same features of other inputs."""
        out = copy(self)
        out.X, out.shape = X, (X.shape[0], self.shape[1])
        return out

    def remainder(self, G: Array, X: Array) -> Array:
        """c = diag(K - Q) (n,) of inputs X with rows G."""
        xp = namespace(G)
        squares = np.einsum("ij,ij->i", G, G) if is_numpy(G) else xp.sum(G * G, axis=1)
        left = variances(self.kernel, X) + self.trend.variances(X) - squares
        return xp.where(left > 0.0, left, xp.zeros_like(left))

    def design(self) -> tuple[Any, Array]:
        """The rows as a design, kept where they fit, and c (N,)."""
        (n, width), xp = self.shape, namespace(self.X)
        kept = 8.0 * n * width <= min(_KEPT_BYTES, _KEPT_SHARE * physical_memory())
        if not is_numpy(self.X):
            features = xp.empty((n, width), dtype=self.X.dtype, device=self.X.device)

            def one(some: slice) -> Array:
                features[some, :] = part = self[some]
                return self.remainder(part, self.X[some, :])

            return array_design(features), xp.concat(over_rows(n, width, one, host=False))
        G = np.empty((n, width)) if kept else None
        c = np.empty(n)

        def stretch(start: int, stop: int) -> None:
            for some in blocks(start, stop, width):
                rows = self[some]
                c[some] = to_numpy(self.remainder(rows, self.X[some]))
                if G is not None:
                    G[some] = rows

        on_every_core(n, width, stretch)
        return (RemadeRows(self) if G is None else Dense(G)), c


class RemadeRows(Dense):
    """Rows that every pass makes again."""

    X: FeatureRows

    def __init__(self, rows: FeatureRows) -> None:
        super().__init__(rows)

    def times(self, u: Array) -> Array:
        """K_NM (L^-T u): no row of G is made."""
        made, u = self.X, to_numpy(u)
        M = made.points.shape[0]
        inner, of_trend = to_numpy(made.U) @ u[:M], u[M:]
        out = np.empty((self.shape[0], *u.shape[1:]))

        def stretch(start: int, stop: int) -> None:
            for some in blocks(start, stop, M):
                np.matmul(cross(made.kernel, made.X[some], made.points), inner, out=out[some])
                out[some] += made.trend.columns(made.X[some]) @ of_trend

        on_every_core(self.shape[0], M, stretch)
        return out

    def adjoint(self, a: Array) -> Array:
        made, a = self.X, to_numpy(a)
        M = made.points.shape[0]

        def stretch(start: int, stop: int) -> np.ndarray:
            total = np.zeros((made.shape[1], *a.shape[1:]))
            for some in blocks(start, stop, M):
                total[:M] += to_numpy(cross(made.kernel, made.X[some], made.points)).T @ a[some]
                total[M:] += made.trend.columns(made.X[some]).T @ a[some]
            return total

        total = np.sum(on_every_core(self.shape[0], M, stretch), axis=0)
        return np.concatenate([to_numpy(made.U).T @ total[:M], total[M:]])

    def row_squares(self, U: Array, last: np.ndarray | None = None) -> Array:
        """rowsum((K_NM (L^-T U))^2): one product in the place of two."""
        made, U = self.X, to_numpy(U)
        M = made.points.shape[0]
        inner, of_trend = to_numpy(made.U) @ U[:M], U[M:]
        out, width, parts = np.empty(self.shape[0]), max(M, U.shape[1]), stripes(inner)  # triangular where U is

        def stretch(start: int, stop: int) -> None:
            each = np.empty((min(block_rows(width), stop - start), U.shape[1]))
            for some in blocks(start, stop, width):
                K, each = cross(made.kernel, made.X[some], made.points), each[: some.stop - some.start]
                for i, j, part in parts:
                    np.matmul(K[:, : part.shape[0]], part, out=each[:, i:j])
                each += made.trend.columns(made.X[some]) @ of_trend + (0.0 if last is None else last)
                np.einsum("ij,ij->i", each, each, out=out[some])

        on_every_core(self.shape[0], M, stretch)
        return out

    def take(self, rows: Any) -> Dense:
        return self.X.at(self.X.X[rows]).design()[0]

    def entries(self) -> Iterator[np.ndarray]:
        yield from ()


class InducingPoints(LatentPrior):
    """A Gaussian process by the features of M points, with the variance that they do not explain.

    Parameters
    ----------
    kernel : kernel of scikit-learn
    X : array (N, D)
        numpy, or torch: the computation runs where it lives.
    points : array (M, D)
        Where the weights look at the function. Any points are valid; ``inducing_points.choose`` finds good ones.
    offset : float, array (N,) or (N, C)
    level : float
        Prior variance of a constant added to the function.
    slopes, centre : arrays (D,), optional
        Of a linear mean, as in ``KernelCovariance``.
    jitter : float
        Variance of the noise through which the weights see the function, as a share of its own.

    Attributes
    ----------
    rows : FeatureRows
        The features, for these rows and others.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.priors import InducingPoints
    >>> X = np.linspace(0.0, 1.0, 50)[:, None]
    >>> prior = InducingPoints(RBF(0.5), X, X[::10])
    >>> prior.n_rows, bool(prior.extra_variance.max() < 2e-2)
    (50, True)
    """

    def __init__(
        self,
        kernel: Any,
        X: ArrayLike,
        points: ArrayLike,
        offset: ArrayLike = 0.0,
        level: float = 0.0,
        jitter: float = JITTER,
        slopes: ArrayLike | None = None,
        centre: ArrayLike = 0.0,
    ) -> None:
        where, host = "InducingPoints", namespace(X) is np  # type: ignore[arg-type]
        inputs: Array = finite(where, "X", numeric(where, "X", X)) if host else asarray(X, X)  # type: ignore[arg-type]
        Z = finite(where, "points", numeric(where, "points", points if host else to_numpy(points)))  # type: ignore[arg-type]
        if inputs.ndim != 2 or Z.ndim != 2 or Z.shape[1] != inputs.shape[1] or 0 in Z.shape:
            got = f"X has shape {tuple(inputs.shape)} and points {Z.shape}"
            raise problem(where, got, "(N, D) and (M, D)", "Use x[:, None] for one input.")
        trend = Trend(where, level, slopes, centre)
        at = asarray(Z, inputs)
        U, self.jitter = whitening(cross(kernel, at, at), jitter)
        self.kernel, self.rows = kernel, FeatureRows(kernel, inputs, at, U, trend)
        design, c = self.rows.design()
        self._like = HOST if host else inputs
        self.place(self._like, None, 0.0, design, offset, to_numpy(c))
        given = {"level": level, "jitter": jitter, "slopes": slopes, "centre": centre}
        self.restate(kernel=kernel, X=X, points=points, offset=offset, **given)

    def kept_features(self, some: slice) -> Array | None:
        """Rows of the features where they are kept; None where every pass makes them again."""
        rows = self.design.X  # type: ignore[attr-defined]
        return None if rows is self.rows else rows[some]

    @property
    def like(self) -> Array:
        return self._like

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        ones = asarray(np.ones(self.design.shape[1]), self._like)
        seen = self.seen(n_observations, n_predictors, lambda b, mean: Latents(mean, ones))
        return in_smaller_space(seen, coupled)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        from sklearn.gaussian_process.kernels import RBF, Matern

        X = rng.normal(size=(n, 2))
        return [
            cls(1.5 * RBF(1.2), X, X[:3], offset=0.2),
            cls(Matern([1.1, 0.8], nu=1.5), X, rng.normal(size=(n + 2, 2)), level=2.0),
        ]

    def __repr__(self) -> str:
        return f"InducingPoints({self.n_rows} rows, {self.rows.points.shape[0]} points)"
