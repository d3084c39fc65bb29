"""Work in the L x L space of the latents: N rows, few weights.

With z = mu + R u, R R' = Sigma and X = W R, everything hangs on one L x L Cholesky:

    A = I + X' Lam X = L L',    log|B| = log|A|,    Vt = X A^-1 X',    rho = rowsum((X L^-T)^2)

Newton's curvature M = X X' + 1/2 Vt o Vt has rank L + L(L+1)/2. Its cheap part M0 = X X' + 1/2 diag(rho^2) is inverted
by Woodbury in L x L and preconditions conjugate gradients; the rest is an exact product in O(N L^2):

    (Vt o Vt) v = rowsum((X Q) o X),    Q = A^-1 X' diag(v) X A^-1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..linalg import dense
from ..linalg.arrays import Array, asarray, namespace
from ..linalg.cg import conjugate_gradients
from .base import NewtonSystem
from .latents import Latents, is_index, is_sparse
from .predictors import BlockFactor, Blocks, LatentPredictors
from .rowspace import pull_back

_CHUNK = 4_000_000  # entries of an N x L temporary


def row_products(X: Any, Q: Array) -> Array:
    """rowsum((X Q) o X), a chunk of rows at a time."""
    if is_sparse(X):
        return _in_chunks(X, lambda part: np.asarray(part.multiply(part @ Q).sum(axis=1)).ravel())
    return _in_chunks(X, lambda part: namespace(part).sum((part @ Q) * part, axis=1))


def row_squares(X: Any, U: Array) -> Array:
    """rowsum((X U)^2), a chunk of rows at a time."""
    return _in_chunks(X, lambda part: namespace(U).sum((part @ U) ** 2, axis=1))


def _in_chunks(X: Any, one: Any) -> Array:
    step = max(1, _CHUNK // max(1, X.shape[1]))
    if X.shape[0] <= step:
        return one(X)
    parts = [one(X[i : i + step]) for i in range(0, X.shape[0], step)]
    return namespace(parts[0]).concat(parts)


class WeightFactor:
    """A = I + X' Lam X = L L' of one block."""

    def __init__(self, X: Any, lam: Array) -> None:
        self.X, self.lam = X, lam
        A = dense.gram(X, lam)
        xp = namespace(A)
        self.L = dense.cholesky(A + xp.eye(A.shape[0], dtype=xp.float64, **_on(A)))
        self.log_det = dense.log_det(self.L)
        self._U: Array | None = None

    @property
    def U(self) -> Array:
        """L^-T, so that A^-1 = U U'."""
        if self._U is None:
            xp = namespace(self.L)
            eye = xp.eye(self.L.shape[0], dtype=xp.float64, **_on(self.L))
            self._U = dense.solve_lower(self.L, eye, transposed=True)
        return self._U

    def variance(self) -> Array:
        return row_squares(self.X, self.U)

    def apply(self, v: Array) -> Array:
        """Vt v."""
        return self.X @ (self.U @ (self.U.T @ (self.X.T @ v)))

    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v."""
        inner = self.U @ (self.U.T @ dense.gram(self.X, v) @ self.U) @ self.U.T
        return row_products(self.X, inner)


def _on(x: Array) -> dict[str, Any]:
    """The device argument of array creation; numpy wants none."""
    return {} if isinstance(x, np.ndarray) else {"device": x.device}


class WeightPredictors(LatentPredictors):
    """Predictors whose blocks are N x L features."""

    def __init__(
        self,
        blocks: Blocks,
        latents: Sequence[Latents],
        designs: Sequence[Any],
        offset: Array,
        default_mean: Any = None,
        features: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(blocks, latents, designs, offset, default_mean)
        if features is None:
            made: dict[tuple[int, int], Any] = {}
            features = []
            for z, W in zip(self.latents, self.designs, strict=True):
                key = (id(z), id(W))
                if key not in made:
                    made[key] = z.whiten(W)
                features.append(made[key])
        self.features = list(features)

    def apply(self, alpha: Array) -> Array:
        parts = self.blocks.split(alpha)
        return self.blocks.join([X @ (X.T @ a) for X, a in zip(self.features, parts, strict=True)])

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        parts = [X.T @ a for X, a in zip(self.features, self.blocks.split(alpha), strict=True)]
        return float(sum(namespace(x).sum(x * x) for x in parts))  # |X' alpha|^2: no cancellation under a wide prior

    def at(self, lam: Array) -> WeightsFactor:
        return WeightsFactor(self, lam)

    def restrict(self, keep: np.ndarray) -> WeightPredictors:
        blocks, designs, offset, flat = self.keep_rows(keep)
        features = [z.subset(X, rows) for z, X, rows in zip(self.latents, self.features, flat, strict=True)]
        return WeightPredictors(blocks, self.latents, designs, offset, self.default_mean, features)


class WeightsFactor(BlockFactor):
    """The factors of all blocks, and Newton's system across them by conjugate gradients."""

    predictors: WeightPredictors

    def __init__(self, predictors: WeightPredictors, lam: Array) -> None:
        self.predictors, self.blocks, self.lam = predictors, predictors.blocks, lam
        self.parts = [
            WeightFactor(X, part) for X, part in zip(predictors.features, self.blocks.split(lam), strict=True)
        ]
        self.log_det = sum(part.log_det for part in self.parts)
        self._variance: Array | None = None

    @property
    def variance(self) -> Array:
        if self._variance is None:
            self._variance = self.blocks.join([part.variance() for part in self.parts])
        return self._variance

    @property
    def cavity(self) -> Array:
        return 1.0 - self.lam * self.variance

    def apply(self, v: Array) -> Array:
        parts = self.blocks.split(v)
        return self.blocks.join([part.apply(x) for part, x in zip(self.parts, parts, strict=True)])

    # -- Newton ------------------------------------------------------------------------------------
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        blocks, layout = self.blocks, system.layout
        diagonal = 0.5 * system.slope**2 * blocks.spread(self.variance, layout) ** 2
        preconditioner = Woodbury(self, system, diagonal)

        def remainder(z: Array) -> Array:
            exact = self.hadamard(blocks.gather(system.slope * z, layout))
            return 0.5 * system.slope * blocks.spread(exact, layout) - diagonal * z

        dtau, Fx, r, _ = conjugate_gradients(preconditioner.solve, remainder, -system.g, system.accuracy, max_iter=200)
        S_part = self.predictors.apply(blocks.gather(system.signs * dtau, layout))
        S_part = system.signs * blocks.spread(S_part, layout)
        return self.mirror(system, dtau, -system.g - r - (system.extra + diagonal) * dtau - S_part - Fx), dtau

    def hadamard(self, v: Array) -> Array:
        parts = self.blocks.split(v)
        return self.blocks.join([part.hadamard(x) for part, x in zip(self.parts, parts, strict=True)])

    # -- everything else ---------------------------------------------------------------------------
    def certificate(self, residual: Array, d: Array) -> float:
        total, split = 0.0, self.blocks.split
        for part, r, e in zip(self.parts, split(residual), split(d), strict=True):
            xp = namespace(r)
            G = dense.gram(part.X, e)
            half = part.U.T @ G
            total += 0.5 * float(xp.sum((part.X.T @ r) ** 2)) + 0.5 * float(xp.sum(half * half))
        return total

    def gradient_covariance(self, adjoints: Sequence[Array]) -> list[Array]:
        out, predictors = [], self.predictors
        for part, z, W, a in zip(self.parts, predictors.latents, predictors.designs, adjoints, strict=True):
            plain = W is None or is_index(W)
            WLW = pull_back(z, W, dense.diagonal_matrix(part.lam)) if plain else dense.gram(W, part.lam)
            half = (WLW @ z.root if z.root.ndim == 2 else WLW * z.root[None, :]) @ part.U
            out.append(0.5 * (a[:, None] * a[None, :] - (WLW - half @ half.T)))
        return out

    def latent_variance(self) -> Array:
        out = []
        for part, z in zip(self.parts, self.predictors.latents, strict=True):
            RU = z.color(part.U)
            out.append(namespace(RU).sum(RU * RU, axis=1))
        return self.predictors.columns(out)

    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        taken = []
        for part, z, c in zip(self.parts, self.predictors.latents, cross, strict=True):
            X = z.whiten_cross(c)
            taken.append(namespace(X).sum(X * X, axis=1) - row_squares(X, part.U))
        return taken

    def variance_blocks(self, designs: Sequence[Any]) -> list[Array]:
        triples = zip(self.parts, self.predictors.latents, designs, strict=True)
        return [row_squares(z.whiten(new), part.U) for part, z, new in triples]

    def observation_covariance(self) -> Array:
        part, C = self.parts[0], self.blocks.n_predictors
        xp = namespace(part.U)
        half = xp.reshape(part.X @ part.U, (self.blocks.n, C, -1))
        return half @ xp.permute_dims(half, (0, 2, 1))

    def covariance(self) -> list[Array]:
        halves = [part.X @ part.U for part in self.parts]
        return [half @ half.T for half in halves]

    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        draws = []
        for part in self.parts:
            noise = asarray(rng.standard_normal((part.L.shape[0], size)), part.L)
            draws.append((part.X @ (part.U @ noise)).T)
        return draws


class Woodbury:
    """(J^-1 + extra + diagonal + X X')^-1 on potentials, J of a softmax included.

    With Jt = (J^-1 + extra + diagonal)^-1, again diagonal minus rank one for each observation, it is
    Jt - Jt X H^-1 X' Jt with H = I + X' Jt X: L x L for each block, or (C L) x (C L) when J couples the blocks.
    """

    def __init__(self, factor: WeightsFactor, system: NewtonSystem, diagonal: Array) -> None:
        self.blocks, self.features = factor.blocks, factor.predictors.features
        self.signs, self.layout = system.signs, system.layout
        xp = namespace(system.g)
        self.d = system.spread / (1.0 + system.spread * (system.extra + diagonal))
        self.total = total = None if system.slack is None else system.slack + xp.sum(self.d, axis=1)
        split = self.blocks.split
        weight = split(self.blocks.gather(self.signs**2 * self.d, self.layout))
        grams = [dense.gram(X, w) for X, w in zip(self.features, weight, strict=True)]
        signed = self.signs * self.d
        if total is not None and len(self.features) > 1:
            rows = []
            for b, X in enumerate(self.features):
                row = []
                for c, Y in enumerate(self.features):
                    w = signed[:, b] * signed[:, c] / total
                    cross = dense.gram(X, w) if Y is X else self._between(X, w, Y)
                    row.append(grams[b] - cross if b == c else -cross)
                rows.append(xp.concat(row, axis=1))
            grams = [xp.concat(rows, axis=0)]
        elif total is not None:
            X, m = self.features[0], self.blocks.n_predictors
            flat = xp.reshape(signed, (-1,))
            Z = X.multiply(flat[:, None]).toarray() if is_sparse(X) else X * flat[:, None]
            Z = xp.sum(xp.reshape(Z, (self.blocks.n, m, X.shape[1])), axis=1)
            grams = [grams[0] - Z.T @ (Z / total[:, None])]
        self.factors = [dense.cholesky(H + xp.eye(H.shape[0], dtype=xp.float64, **_on(H))) for H in grams]

    @staticmethod
    def _between(X: Any, w: Array, Y: Any) -> Array:
        out = X.T @ (Y.multiply(w[:, None]).tocsr() if is_sparse(Y) else Y * w[:, None])
        return out.toarray() if is_sparse(out) else out

    def _J(self, x: Array) -> Array:
        out = self.d * x
        if self.total is None:
            return out
        return out - self.d * (namespace(x).sum(out, axis=1) / self.total)[:, None]

    def solve(self, r: Array) -> Array:
        xp = namespace(r)
        Jr = self._J(r)
        parts = self.blocks.split(self.blocks.gather(self.signs * Jr, self.layout))
        inner = [X.T @ x for X, x in zip(self.features, parts, strict=True)]
        if len(self.factors) < len(inner):
            u = dense.solve_cholesky(self.factors[0], xp.concat(inner))
            L = inner[0].shape[0]
            solved = [u[b * L : (b + 1) * L] for b in range(len(inner))]
        else:
            solved = [dense.solve_cholesky(F, x) for F, x in zip(self.factors, inner, strict=True)]
        back = self.blocks.join([X @ u for X, u in zip(self.features, solved, strict=True)])
        return Jr - self._J(self.signs * self.blocks.spread(back, self.layout))
