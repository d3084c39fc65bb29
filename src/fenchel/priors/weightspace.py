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

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from .. import gates
from ..linalg import dense
from ..linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy
from ..linalg.design import Design, Scaled
from ..linalg.matrix_designs import array_design
from .base import EPS, Product
from .newton_systems import NewtonSystem, iterated
from .predictors import BlockFactor, LatentPredictors, Latents, Seen, made_once
from .row_covariances import WeightCovariances
from .weight_newton import OwnFactor, Woodbury, on_device

_SMALL = 0.02  # posterior variance up to which the coupling of means and variances hardly counts
_NEARLY_SINGULAR = 1e-8  # a pivot's share of its diagonal entry below which Cholesky has lost half of its digits
_NEAR = 0.5  # relative distance up to which A itself preconditions Newton's system


class WeightFactor:
    """A = I + X' Lam X = L L' of one block."""

    def __init__(self, X: Scaled, lam: Array) -> None:
        self.X, self.lam = X, lam
        self.WLW = X.base.gram(lam)  # before its columns are scaled
        xp = namespace(self.WLW)
        A = dense.scaled_plus_identity(self.WLW, X.scale, dense.empty_square(X.shape[1], self.WLW))
        diagonal = xp.linalg.diagonal(A) + 0.0  # A's memory becomes L's
        self.by_rows = False
        try:
            self.L = dense.cholesky(A)
            lost = float(xp.min(xp.linalg.diagonal(self.L) ** 2 / diagonal)) < _NEARLY_SINGULAR
        except dense.NotPositiveDefinite:
            if not self._root_by_rows():
                raise
        else:
            if lost:
                self._root_by_rows()
        self.log_det = dense.log_det(self.L)

    def _root_by_rows(self) -> bool:
        """L without forming A, if X is small and on the host."""
        n, L = self.X.shape
        if n * L > dense.QR_ENTRIES or not is_numpy(self.lam) or (self.lam < 0.0).any():
            return False
        self.L, self.by_rows = dense.root_by_rows(to_numpy(self.X.times(np.eye(L))), self.lam), True
        return True

    @cached_property
    def U(self) -> Array:
        """L^-T, so that A^-1 = U U'."""
        if is_numpy(self.L):
            return dense.triangular_inverse(np.tril(self.L)).T
        eye = namespace(self.L).eye(self.L.shape[0], dtype=namespace(self.L).float64, **on_device(self.L))
        return dense.solve_lower(self.L, eye, transposed=True)

    @cached_property
    def inverse(self) -> Array:
        """A^-1."""
        return self._inverse()

    def _inverse(self) -> Array:
        if is_numpy(self.U):
            return dense.symmetrised(dense.inverse_from(self.U.T.copy()))
        return self.U @ self.U.T

    def log_det_rounding(self) -> float:
        """eps |diag(A^-1) o diag(A)|; its root, entry by entry, where A was not formed."""
        xp = namespace(self.L)
        each = xp.sum(self.U * self.U, axis=1) * xp.sum(xp.tril(self.L) ** 2, axis=1)
        each = xp.sqrt(each) if self.by_rows else each
        return EPS * float(xp.sum(each * each)) ** 0.5

    def variance(self) -> Array:
        return self.X.row_variances(self.U, self._inverse)  # not kept: it is as large as A

    def solve(self, b: Array) -> Array:
        """A^-1 b."""
        return self.U @ (self.U.T @ b)

    def apply(self, v: Array) -> Array:
        """Vt v."""
        return self.X.times(self.solve(self.X.adjoint(v)))

    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v."""
        return self.X.row_products(self.inverse @ self.X.gram(v) @ self.inverse)


class WeightPredictors(LatentPredictors):
    """Predictors whose blocks are N x L features."""

    draws_of = "weights"
    negative_sites = True

    def __init__(self, seen: Seen, features: Sequence[Scaled] | None = None) -> None:
        super().__init__(seen)
        given = made_once(Latents.whiten, self.latents, self.designs) if features is None else features
        self.features = list(given)
        self._seen: tuple[Any, list[Array]] = (None, [])
        self._last: tuple[Array, weakref.ref[WeightsFactor]] | None = None  # a copy of lam, and the factor at it

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # a reference that keeps nothing alive cannot be pickled

    @property
    def n_weights(self) -> int:
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
        return self.from_weights(self.weights_of(alpha))

    def from_weights(self, weights: list[Array]) -> Array:
        return self.blocks.join([X.times(u) for X, u in zip(self.features, weights, strict=True)])

    def weights_norm(self, weights: list[Array]) -> float:
        return float(sum(namespace(u).sum(u * u) for u in weights))

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        return self.weights_norm(self.weights_of(alpha))  # no cancellation under a wide prior

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        """u' u with u = X' alpha: eps |u| times the rounding of u; of a root's error E, a' E a, a = W' alpha."""
        xp = namespace(alpha)
        total = EPS * float(np.sqrt(quadratic * float(xp.sum(alpha * alpha * self.variance))))
        if not all(z.diagonal_only for z in self.latents):  # R R' is off by about eps sqrt(Sigma_ii Sigma_jj)
            pairs = zip(self.latents, self.adjoints(alpha), strict=True)
            total += EPS * sum(float(xp.sum(a * a * z.variance())) for z, a in pairs)
        return total

    def mean_rounding(self, alpha: Array) -> Array:
        xp = namespace(alpha)
        return EPS * xp.sqrt(self.variance * xp.sum(alpha * alpha * self.variance))

    def shifts_of(self, weights: list[Array]) -> list[Array]:
        return [z.color(u[:, None])[:, 0] for z, u in zip(self.latents, weights, strict=True)]

    def at(self, lam: Array) -> WeightsFactor:
        """The last factor again where lam is what it was, as in every step of Gaussian rows."""
        last = self._last
        result = None if last is None or not bool(namespace(lam).all(last[0] == lam)) else last[1]()
        if result is None:
            result = WeightsFactor(self, lam)
            self._last = 1.0 * lam, weakref.ref(result)  # it refers to these predictors, which would never be freed
        return result

    def proves_definite(self, lam: Array) -> bool:
        lost = max(X.shape[1] * (X.shape[1] + X.shape[0] + 8.0) for X in self.features) * EPS
        try:
            WeightsFactor(self, lam / (1.0 - lost))
        except dense.NotPositiveDefinite:
            return False
        return True

    def restrict(self, keep: np.ndarray) -> WeightPredictors:
        seen, rows = self.seen.take(keep)

        def some(X: Scaled, W: Design, few: Design) -> Scaled:
            return Scaled(few, X.scale) if X.base is W else X.take(rows)

        return WeightPredictors(seen, made_once(some, self.features, self.designs, seen.designs))


class WeightsFactor(BlockFactor):
    """The factors of all blocks, and Newton's system across them by conjugate gradients."""

    predictors: WeightPredictors
    covariances = WeightCovariances

    def __init__(self, predictors: WeightPredictors, lam: Array) -> None:
        self.predictors, self.blocks, self.lam = predictors, predictors.blocks, lam
        self.parts = [
            WeightFactor(X, part) for X, part in zip(predictors.features, self.blocks.split(lam), strict=True)
        ]
        self.log_det = sum(part.log_det for part in self.parts)

    @cached_property
    def variance(self) -> Array:
        return self.of_parts(WeightFactor.variance)

    @property
    def log_det_rounding(self) -> float:
        return sum(part.log_det_rounding() ** 2 for part in self.parts) ** 0.5

    def apply(self, v: Array) -> Array:
        return self.of_parts(WeightFactor.apply, v)

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
        same = system.plain and system.spread.shape == self.lam.shape
        P: OwnFactor | Woodbury | None = OwnFactor(self, system) if same else None
        if P is None or not P.left_out < _NEAR:
            P = Woodbury(self, system)
        return iterated(self, system, P, direct=P.left_out <= system.accuracy)

    @property
    def nearly_uncoupled(self) -> bool:
        return float(namespace(self.lam).max(self.variance)) < _SMALL

    def hadamard(self, v: Array) -> Array:
        return self.of_parts(WeightFactor.hadamard, v)

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        split, join = self.blocks.split, self.blocks.join
        if self.lam.shape[0] > gates.WRITTEN_OUT:
            square = self.variance**2
            yield self.apply, (lambda v: square * v) if economical else self.hadamard
            return
        squared = [Vt * Vt for Vt in self.covariance()]  # Vt itself, written out, would cancel digits that X keeps
        yield self.apply, lambda v: join([VV @ x for VV, x in zip(squared, split(v), strict=True)])

    # -- everything else ---------------------------------------------------------------------------
    def certificate(self, residual: Array, d: Array) -> float:
        total, split = 0.0, self.blocks.split
        for part, r, e in zip(self.parts, split(residual), split(d), strict=True):
            xp = namespace(r)
            half = dense.multiply_lower(part.U.T, part.X.gram(e))
            total += 0.5 * float(xp.sum(part.X.adjoint(r) ** 2)) + 0.5 * float(xp.sum(half * half))
        return total

    def covariance_adjoint(self, adjoints: Sequence[Array]) -> list[Array]:
        out, predictors = [], self.predictors
        for part, z, W, a in zip(self.parts, predictors.latents, predictors.designs, adjoints, strict=True):
            WLW = part.WLW if part.X.base is W else W.gram(part.lam)
            half = (WLW @ z.root if z.root.ndim == 2 else WLW * z.root[None, :]) @ part.U
            out.append(0.5 * (a[:, None] * a[None, :] - (WLW - half @ half.T)))
        return out

    def design_covariance(self, designs: Sequence[Design]) -> list[Array]:
        halves = [z.color(part.U) for part, z in zip(self.parts, self.predictors.latents, strict=True)]
        return [W.times(RU) @ RU.T for W, RU in zip(designs, halves, strict=True)]

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
            taken.append(namespace(X).sum(X * X, axis=1) - array_design(X).row_squares(part.U))
        return taken

    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        triples = zip(self.parts, self.predictors.latents, designs, strict=True)
        return [z.whiten(new).row_squares(part.U) for part, z, new in triples]

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
