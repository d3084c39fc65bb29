"""Work in the L x L space of the latents: N rows, few weights.

With z = mu + R u, R R' = Sigma and X = W R, everything hangs on one L x L Cholesky:

    A = I + X' Lam X = L L',    log|B| = log|A|,    Vt = X A^-1 X',    rho = rowsum((X L^-T)^2)

Newton's curvature M = X X' + 1/2 Vt o Vt has rank L + L(L+1)/2. Its cheap part M0 = X X' + 1/2 diag(rho^2) is inverted
by Woodbury in L x L and preconditions conjugate gradients; the rest is an exact product in O(N L^2):

    (Vt o Vt) v = rowsum((X Q) o X),    Q = A^-1 X' diag(v) X A^-1

With many rows rho is small, and so is, by a bound on it, what (Lam^-1 + X X')^-1 leaves out: A alone then gives the
direction in two passes over X, and nothing is iterated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from ..linalg import dense, rows
from ..linalg.arrays import Array, asarray, namespace
from ..linalg.cg import conjugate_gradients
from .base import EPS, NewtonSystem, Product
from .latents import Latents, is_index
from .predictors import BlockFactor, Blocks, LatentPredictors
from .tall import Tall
from .weight_newton import OwnFactor, Woodbury, on_device

_SMALL = 0.02  # posterior variance up to which the coupling of means and variances hardly counts
_FEW = 256  # rows up to which products with Vt written out are cheaper than passes over X
_NEAR = 0.5  # relative distance up to which A itself preconditions Newton's system


class WeightFactor:
    """A = I + X' Lam X = L L' of one block."""

    def __init__(self, X: Tall, lam: Array) -> None:
        self.X, self.lam = X, lam
        self.WLW = rows.gram(X.W, lam)  # before its columns are scaled
        A = X.both_scaled(self.WLW)
        xp = namespace(A)
        self.L = dense.cholesky(A + xp.eye(A.shape[0], dtype=xp.float64, **on_device(A)))
        self.log_det = dense.log_det(self.L)
        self._U: Array | None = None

    @property
    def U(self) -> Array:
        """L^-T, so that A^-1 = U U'."""
        if self._U is None:
            xp = namespace(self.L)
            eye = xp.eye(self.L.shape[0], dtype=xp.float64, **on_device(self.L))
            self._U = dense.solve_lower(self.L, eye, transposed=True)
        return self._U

    def log_det_rounding(self) -> float:
        """eps |diag(A^-1) o diag(A)|."""
        xp = namespace(self.L)
        each = xp.sum(self.U * self.U, axis=1) * xp.sum(xp.tril(self.L) ** 2, axis=1)
        return EPS * float(xp.sum(each * each)) ** 0.5

    def variance(self) -> Array:
        return self.X.row_squares(self.U)

    def solve(self, b: Array) -> Array:
        """A^-1 b."""
        return self.U @ (self.U.T @ b)

    def apply(self, v: Array) -> Array:
        """Vt v."""
        return self.X.times(self.solve(self.X.adjoint(v)))

    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v."""
        inner = self.U @ (self.U.T @ self.X.gram(v) @ self.U) @ self.U.T
        return self.X.row_products(inner)


class WeightPredictors(LatentPredictors):
    """Predictors whose blocks are N x L features."""

    def __init__(
        self,
        blocks: Blocks,
        latents: Sequence[Latents],
        designs: Sequence[Any],
        offset: Array,
        default_mean: Any = None,
        features: Sequence[Tall] | None = None,
    ) -> None:
        super().__init__(blocks, latents, designs, offset, default_mean)
        if features is None:
            made: dict[tuple[int, int], Tall] = {}
            features = []
            for z, W in zip(self.latents, self.designs, strict=True):
                key = (id(z), id(W))
                if key not in made:
                    made[key] = Tall.whitened(z, W)
                features.append(made[key])
        self.features = list(features)
        self._seen: tuple[Any, list[Array]] = (None, [])

    @property
    def n_weights(self) -> int:
        """Weights of all blocks."""
        return sum(X.shape[1] for X in self.features)

    @cached_property
    def variance(self) -> Array:
        return super().variance

    def weights_of(self, alpha: Array) -> list[Array]:
        """X' alpha of each block; the last one asked for is remembered."""
        if self._seen[0] is not alpha:
            parts = self.blocks.split(alpha)
            self._seen = (alpha, [X.adjoint(a) for X, a in zip(self.features, parts, strict=True)])
        return self._seen[1]

    def apply(self, alpha: Array) -> Array:
        return self.apply_from(self, alpha)

    def apply_from(self, others: WeightPredictors, alpha: Array) -> Array:
        """X X_others' alpha: the covariance of these rows with others, times alpha."""
        pairs = zip(self.features, others.weights_of(alpha), strict=True)
        return self.blocks.join([X.times(u) for X, u in pairs])

    def from_weights(self, weights: list[Array]) -> Array:
        return self.blocks.join([X.times(u) for X, u in zip(self.features, weights, strict=True)])

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        return self.weights_norm(self.weights_of(alpha))  # no cancellation under a wide prior

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        # u' u with u = X' alpha: eps |u| times the rounding of u
        return EPS * float(np.sqrt(quadratic * float(namespace(alpha).sum(alpha * alpha * self.variance))))

    def mean_rounding(self, alpha: Array) -> Array:
        xp = namespace(alpha)
        return EPS * xp.sqrt(self.variance * xp.sum(alpha * alpha * self.variance))

    def shifts_of(self, weights: list[Array]) -> list[Array]:
        return [z.color(u[:, None])[:, 0] for z, u in zip(self.latents, weights, strict=True)]

    def at(self, lam: Array) -> WeightsFactor:
        return WeightsFactor(self, lam)

    def restrict(self, keep: np.ndarray) -> WeightPredictors:
        blocks, designs, offset, flat = self.keep_rows(keep)
        made: dict[int, Tall] = {}
        for X, W, few, index in zip(self.features, self.designs, designs, flat, strict=True):
            if id(X) not in made:
                made[id(X)] = Tall(few, X.scale) if X.W is W else X.take(index)
        features = [made[id(X)] for X in self.features]
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

    @property
    def log_det_rounding(self) -> float:
        return sum(part.log_det_rounding() ** 2 for part in self.parts) ** 0.5

    def apply(self, v: Array) -> Array:
        parts = self.blocks.split(v)
        return self.blocks.join([part.apply(x) for part, x in zip(self.parts, parts, strict=True)])

    def weights_decrement(self, weights: list[Array], alpha: Array) -> float:
        total = 0.0
        for part, u, a in zip(self.parts, weights, self.blocks.split(alpha), strict=True):
            half = part.U.T @ (u - part.X.adjoint(a))
            total += float(namespace(half).sum(half * half))
        return total

    def weights(self, v: Array) -> list[Array]:
        parts = zip(self.parts, self.blocks.split(v), strict=True)
        return [part.solve(part.X.adjoint(x)) for part, x in parts]

    # -- Newton ------------------------------------------------------------------------------------
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        """By conjugate gradients, or by the preconditioner alone where what it leaves out is below the accuracy."""
        blocks, layout, xp = self.blocks, system.layout, namespace(system.g)
        live = bool(xp.all(system.spread > 0.0))
        P: OwnFactor | Woodbury | None = None
        if live and system.slack is None and system.spread.shape == self.lam.shape:
            P = OwnFactor(self, system)
        if P is None or not P.left_out < _NEAR:
            P = Woodbury(self, system)
        if P.left_out <= system.accuracy:
            dtau, S_dtau = P.solve(-system.g)
            if live and system.slack is None:
                return dtau / system.spread, dtau
            return self.mirror(system, dtau, -system.g - (system.extra + P.diagonal) * dtau - S_dtau), dtau

        def remainder(z: Array) -> Array:
            exact = self.hadamard(blocks.gather(system.slope * z, layout))
            return 0.5 * system.slope * blocks.spread(exact, layout) + P.rest * z

        dtau, Fx, r, _ = conjugate_gradients(
            lambda b: P.solve(b)[0], remainder, -system.g, system.accuracy, max_iter=200
        )
        if live and system.slack is None:
            return dtau / system.spread, dtau
        S_part = self.predictors.apply(blocks.gather(system.signs * dtau, layout))
        S_part = system.signs * blocks.spread(S_part, layout)
        return self.mirror(system, dtau, -system.g - r - (system.extra + P.diagonal) * dtau - S_part - Fx), dtau

    @property
    def nearly_uncoupled(self) -> bool:
        return float(namespace(self.lam).max(self.variance)) < _SMALL

    def hadamard(self, v: Array) -> Array:
        parts = self.blocks.split(v)
        return self.blocks.join([part.hadamard(x) for part, x in zip(self.parts, parts, strict=True)])

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        split, join = self.blocks.split, self.blocks.join
        if self.lam.shape[0] > _FEW:
            yield self.apply, self.hadamard
            return
        whole = self.covariance()
        squared = [Vt * Vt for Vt in whole]
        yield (
            lambda v: join([Vt @ x for Vt, x in zip(whole, split(v), strict=True)]),
            lambda v: join([VV @ x for VV, x in zip(squared, split(v), strict=True)]),
        )

    # -- everything else ---------------------------------------------------------------------------
    def certificate(self, residual: Array, d: Array) -> float:
        total, split = 0.0, self.blocks.split
        for part, r, e in zip(self.parts, split(residual), split(d), strict=True):
            xp = namespace(r)
            half = part.U.T @ part.X.gram(e)
            total += 0.5 * float(xp.sum(part.X.adjoint(r) ** 2)) + 0.5 * float(xp.sum(half * half))
        return total

    def gradient_covariance(self, adjoints: Sequence[Array]) -> list[Array]:
        out, predictors = [], self.predictors
        for part, z, W, a in zip(self.parts, predictors.latents, predictors.designs, adjoints, strict=True):
            if part.X.W is W:
                WLW = part.WLW
            elif W is None or is_index(W):
                WLW = z.pull_back(W, dense.diagonal_matrix(part.lam))
            else:
                WLW = rows.gram(W, part.lam)
            half = (WLW @ z.root if z.root.ndim == 2 else WLW * z.root[None, :]) @ part.U
            out.append(0.5 * (a[:, None] * a[None, :] - (WLW - half @ half.T)))
        return out

    def latent_variance(self) -> Array:
        out = []
        for part, z in zip(self.parts, self.predictors.latents, strict=True):
            RU = z.color(part.U)
            out.append(namespace(RU).sum(RU * RU, axis=1))
        return self.predictors.columns(out)

    def latent_covariance(self) -> list[Array]:
        halves = [z.color(part.U) for part, z in zip(self.parts, self.predictors.latents, strict=True)]
        return [RU @ RU.T for RU in halves]

    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        taken = []
        for part, z, c in zip(self.parts, self.predictors.latents, cross, strict=True):
            X = z.whiten_cross(c)
            taken.append(namespace(X).sum(X * X, axis=1) - rows.row_squares(X, part.U))
        return taken

    def variance_blocks(self, designs: Sequence[Any]) -> list[Array]:
        triples = zip(self.parts, self.predictors.latents, designs, strict=True)
        return [Tall.whitened(z, new).row_squares(part.U) for part, z, new in triples]

    def observation_covariance(self) -> Array:
        part, C = self.parts[0], self.blocks.n_predictors
        xp = namespace(part.U)
        half = xp.reshape(part.X.times(part.U), (self.blocks.n, C, -1))
        return half @ xp.permute_dims(half, (0, 2, 1))

    def covariance(self) -> list[Array]:
        halves = [part.X.times(part.U) for part in self.parts]
        return [half @ half.T for half in halves]

    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        draws = []
        for part in self.parts:
            noise = asarray(rng.standard_normal((part.L.shape[0], size)), part.L)
            draws.append(part.X.times(part.U @ noise).T)
        return draws

    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        pairs = zip(self.parts, self.predictors.latents, strict=True)
        return [z.color(p.U @ asarray(rng.standard_normal((p.U.shape[1], size)), p.U)) for p, z in pairs]
