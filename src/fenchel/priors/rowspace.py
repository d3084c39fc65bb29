"""Work in the N x N space of the rows: S = W Sigma W' is a dense matrix.

One Newton iteration is four Choleskys' worth of flops, in one buffer of N^2 doubles:

    B = I + Lam^1/2 S Lam^1/2 = L L'     potrf      log|B|
    L^-1                                 trtri      rho = (1 - diag B^-1) / lam, the gap
    B^-1                                 lauum      Vt = Lam^-1/2 (I - B^-1) Lam^-1/2
    K = I + q M q                        potrf      Newton's direction: ds = -K^-1(q g) / q, q = sqrt(J),
                                                    M = S + 1/2 Vt o Vt, in the memory of the factor

For a softmax, with E_c = q_c K_c^-1 q_c and T = diag(slack) + sum_c E_c: nu = T^-1 sum_c E_c g_c,
dtau_c = -E_c (g_c - nu) and ds_c = dtau_c / spread_c - nu: C such iterations and one Cholesky, never (CN)^3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np

from .. import gates
from ..linalg import dense
from ..linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy
from ..linalg.design import Design
from ..linalg.krylov import conjugate_gradients
from ..linalg.matrix_designs import array_design
from .base import Product
from .newton_systems import NewtonSystem
from .predictors import BlockFactor, LatentPredictors, Latents, Seen, made_once
from .row_covariances import SAME_LINE, LatentCovariances, Lines, lines_of_covariance
from .rowblock import DEAD, RowBlock, RowFactor
from .weightspace import WeightPredictors

_MODERATE = 100.0  # posterior variance up to which preconditioned conjugate gradients beat the direct solve
_LOST = 1e6  # diag(B^-1) diag(B) from which the difference of two variances has lost as much
_JITTER = 1e-8  # of the variances at the rows of Nystrom's approximation
_MOST_LEFT = 0.15  # of the variance: where that approximation leaves out more, counts begin too far away


def direction(factor: RowsFactor, system: NewtonSystem) -> tuple[Array, Array]:
    """ds and dtau (N, P)."""
    if system.slack is None:
        return uncoupled(factor, system)
    return coupled_iteratively(factor, system) if reusable(factor, system) else coupled(factor, system)


def reusable(factor: RowsFactor, system: NewtonSystem) -> bool:
    """Whether B^-1 preconditions Newton's system: the log-sum softmax, where spread = lam, at moderate variance.

    Then (J^-1 + S)^-1 comes from B^-1 for free, and because Vt o Vt <= max(rho) Vt <= max(rho) S the condition
    number of what is left is at most 1 + max(rho)/2.
    """
    xp = namespace(system.g)
    same = system.spread.shape == factor.lam.shape and not bool(xp.any(system.spread != factor.lam))
    return same and len(factor.blocks.groups) > 1 and float(xp.max(factor.variance)) < _MODERATE


def coupled_iteratively(factor: RowsFactor, system: NewtonSystem) -> tuple[Array, Array]:
    """Conjugate gradients with E_c = Lam^1/2 B_c^-1 Lam^1/2: three factorisation steps a class instead of six."""
    xp, blocks = namespace(system.g), factor.blocks
    rho = factor.variance
    inverses = [part.release() for part in factor.parts]
    roots = blocks.split(xp.sqrt(factor.lam))
    assert system.slack is not None
    T = dense.diagonal_matrix(system.slack)
    for Binv, root in zip(inverses, roots, strict=True):
        T = dense.add_scaled(T, Binv, root)
    T = dense.cholesky(T)
    live = factor.lam > DEAD
    weight = xp.where(live, 1.0 / xp.where(live, factor.lam, xp.ones_like(rho)), xp.zeros_like(rho))
    fix = xp.where(live, rho**2 - (weight * (1.0 - factor.lam * rho)) ** 2, xp.zeros_like(rho))

    def times_E(v: Array) -> Array:
        parts = zip(inverses, roots, blocks.split(v), strict=True)
        return blocks.join([root * dense.multiply_symmetric(Binv, root * x) for Binv, root, x in parts])

    def solve(r: Array) -> Array:
        Er = times_E(r)
        nu = dense.solve_cholesky(T, xp.sum(Er, axis=1))
        return Er - times_E(xp.stack([nu] * r.shape[1], axis=1))

    def remainder(z: Array) -> Array:  # 1/2 (Vt o Vt) z; Vt is -Lam^-1/2 B^-1 Lam^-1/2 off its diagonal
        parts = zip(inverses, blocks.split(weight * z), strict=True)
        off = blocks.join([dense.multiply_squared(Binv, x) for Binv, x in parts])
        return 0.5 * (weight * off + fix * z)

    dtau, Fx, r, fell = conjugate_gradients(solve, remainder, -system.g, system.accuracy, max_iter=200)
    for part, Binv in zip(factor.parts, inverses, strict=True):
        part.block.give(Binv)
    if not fell < max(0.1, system.accuracy):  # rounding under tiny lam: factorise Newton's own matrices instead
        return coupled(factor, system)
    return system.mirror(dtau, -system.g - r - factor.predictors.apply(dtau) - Fx), dtau


def uncoupled(factor: RowsFactor, system: NewtonSystem) -> tuple[Array, Array]:
    """x = K^-1 (q g) block by block; dtau = -q x and ds = -x / q, exact row by row however small q is."""
    xp, q, solved = namespace(system.g), namespace(system.g).sqrt(system.spread), []
    right = factor.blocks.split_potentials(q * system.g, system.layout)
    for part, K, b in zip(factor.parts, newton_matrices(factor, system, q), right, strict=True):
        L = dense.cholesky(K)
        solved.append(dense.solve_cholesky(L, b))
        part.block.give(L)
    x = factor.blocks.join_potentials(solved, system.layout)
    live = q > 0.0
    return xp.where(live, -x / xp.where(live, q, xp.ones_like(q)), -system.g), -q * x


def coupled(factor: RowsFactor, system: NewtonSystem) -> tuple[Array, Array]:
    """The softmax: E_c = q_c K_c^-1 q_c of each block, and one N x N system for what ties them together."""
    xp, n, m = namespace(system.g), factor.blocks.n, len(factor.blocks.groups[0])
    q = xp.sqrt(system.spread)
    assert system.slack is not None
    T = dense.diagonal_matrix(system.slack)
    E = []
    for K, scale in zip(newton_matrices(factor, system, q), factor.blocks.split(q), strict=True):
        inverse = dense.inverse_from(dense.triangular_inverse(dense.cholesky(K)))
        E.append(dense.scale_symmetric(inverse, scale))
        if m == 1:
            T = dense.add_lower(T, E[-1])
        else:  # correlated predictors: sum the entries of each pair of observations
            T = T + xp.sum(xp.sum(xp.reshape(dense.symmetrised(E[-1]), (n, m, n, m)), axis=3), axis=1)

    def times_E(v: Array) -> Array:
        parts = factor.blocks.split(v)
        return factor.blocks.join([dense.multiply_symmetric(e, x) for e, x in zip(E, parts, strict=True)])

    nu = dense.solve_cholesky(dense.cholesky(T), xp.sum(times_E(system.g), axis=1))[:, None]
    dtau = -times_E(system.g - nu)
    for part, e in zip(factor.parts, E, strict=True):
        part.block.give(e)
    live = system.spread > 0.0
    ds = dtau / xp.where(live, system.spread, xp.ones_like(dtau)) - nu
    return xp.where(live, ds, -system.g), dtau


def newton_matrices(factor: RowsFactor, system: NewtonSystem, q: Array) -> Iterator[Array]:
    """K = I + q (M + extra) q of each block, in the memory of its factor when every row has one potential."""
    xp, layout = namespace(q), system.layout
    variance = factor.blocks.split(factor.variance)

    def per_block(x: Array) -> list[Array]:
        return factor.blocks.split_potentials(x, layout)

    lefts, slopes, extras = (per_block(x) for x in (system.signs * q, system.slope * q, system.extra * system.spread))
    for part, rho, left, slope, extra in zip(factor.parts, variance, lefts, slopes, extras, strict=True):
        S, lam, R = part.block.S, part.lam, part.block.n
        live = lam > DEAD
        weight = xp.where(live, 1.0 / xp.where(live, lam, xp.ones_like(lam)), xp.zeros_like(lam))
        if left.shape[0] == R:
            u = slope * weight
            diagonal = 1.0 + extra + left**2 * part.block.diagonal + 0.5 * (slope * rho) ** 2
            Binv = part.release()
            yield dense.set_diagonal(dense.hadamard_curvature(S, left, left, Binv, u, u, Binv), diagonal)
        else:
            reps = left.shape[0] // R
            Vt = part.covariance()
            tile = [xp.concat([xp.concat([A] * reps, axis=1)] * reps, axis=0) for A in (S, Vt)]
            M = left[:, None] * tile[0] * left[None, :] + 0.5 * slope[:, None] * tile[1] ** 2 * slope[None, :]
            yield M + dense.diagonal_matrix(1.0 + extra)


def _row_block(z: Latents, W: Design) -> RowBlock:
    return RowBlock(z.Sigma if W.identity else z.between(W, W))


class RowPredictors(LatentPredictors):
    """Predictors whose blocks are N x N matrices."""

    draws_of = "rows"

    def __init__(self, seen: Seen, rows: Sequence[RowBlock] | None = None) -> None:
        super().__init__(seen)
        self.rows = made_once(_row_block, self.latents, self.designs) if rows is None else list(rows)
        self.small = all(row.n <= gates.ONE_THREAD_ROWS for row in self.rows)

    @property
    def variance(self) -> Array:
        if all(W.picks is not None for W in self.designs):  # without S, which may have to be made
            return self.blocks.join([row.diagonal for row in self.rows])
        return super().variance

    def apply(self, alpha: Array) -> Array:
        parts = self.blocks.split(alpha)
        return self.blocks.join([dense.multiply_symmetric(row.S, a) for row, a in zip(self.rows, parts, strict=True)])

    def row_covariance(self, rows: np.ndarray) -> np.ndarray:
        return to_numpy(self.rows[0].S)[np.ix_(rows, rows)]

    def lines(self, same: float = SAME_LINE) -> Lines:
        return super().lines(same) if self.designs[0].picks is None else lines_of_covariance(self.rows[0].S, same)

    def at(self, lam: Array) -> RowsFactor:
        return RowsFactor(self, lam)

    def restrict(self, keep: np.ndarray) -> RowPredictors:
        seen, rows = self.seen.take(keep)
        return RowPredictors(seen, made_once(lambda row: RowBlock(submatrix(row.S, rows)), self.rows))

    def through_rows(self, n: int) -> WeightPredictors | None:
        keep = np.random.default_rng(0).choice(self.rows[0].n, n, replace=False)
        try:
            latents, features, left = zip(*made_once(lambda row: _nystrom(row, keep), self.rows), strict=True)
        except dense.NotPositiveDefinite:
            return None
        remainder, xp = self.blocks.join(left), namespace(left[0])
        if float(xp.sum(remainder)) > _MOST_LEFT * float(xp.sum(self.variance)):
            return None
        designs = [array_design(G) for G in features]
        extra = self.extra_variance + remainder
        return WeightPredictors(replace(self.seen, latents=list(latents), designs=designs, extra_variance=extra))


def _nystrom(row: RowBlock, keep: np.ndarray) -> tuple[Latents, Array, Array]:
    """Nystrom's approximation G G' of S by some of its rows: independent latents, G (R, M) and diag(S - G G')."""
    S, xp = row.S, namespace(row.S)
    index = dense.asarray_index(keep, S)
    few = xp.take(S, index, axis=0)  # (M, R)
    own = submatrix(S, keep)
    L = dense.cholesky(own + dense.diagonal_matrix(_JITTER * xp.linalg.diagonal(own)))
    G = dense.solve_lower(L, few).T
    left = row.diagonal - xp.sum(G * G, axis=1)
    ones = xp.ones_like(G[0, :])
    return Latents(0.0 * ones, ones), G, xp.where(left > 0.0, left, xp.zeros_like(left))


def submatrix(S: Array, index: np.ndarray) -> Array:
    if is_numpy(S):
        return S[np.ix_(index, index)]
    xp, i = namespace(S), dense.asarray_index(index, S)
    return xp.take(xp.take(S, i, axis=0), i, axis=1)


class RowsFactor(BlockFactor):
    """The factors of all blocks, and Newton's system across them."""

    predictors: RowPredictors
    covariances = LatentCovariances

    def __init__(self, predictors: RowPredictors, lam: Array) -> None:
        self.predictors, self.blocks, self.lam = predictors, predictors.blocks, lam
        self.parts = [RowFactor(row, part) for row, part in zip(predictors.rows, self.blocks.split(lam), strict=True)]
        self.log_det = sum(part.log_det for part in self.parts)

    @cached_property
    def variance(self) -> Array:
        return self.of_parts(lambda part: part.marginals()[0])

    @cached_property
    def cavity(self) -> Array:
        return self.of_parts(lambda part: part.marginals()[1])

    def apply(self, v: Array) -> Array:
        return self.of_parts(RowFactor.apply, v)

    # -- Newton ------------------------------------------------------------------------------------
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        return direction(self, system)

    def hadamard(self, v: Array) -> Array:
        return self.of_parts(lambda part, x: part.covariance() ** 2 @ x, v)

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        try:
            yield (
                lambda v: self.of_parts(lambda part, x: part.products().times(x), v),
                lambda v: self.of_parts(lambda part, x: part.products().times_squared(x), v),
            )
        finally:  # their memory is the next point's
            for part in self.parts:
                part.drop()

    # -- everything else ---------------------------------------------------------------------------
    def certificate(self, residual: Array, d: Array) -> float:
        total, split = 0.0, self.blocks.split
        for part, r, e in zip(self.parts, split(residual), split(d), strict=True):
            first = namespace(r).sum(r * dense.multiply_symmetric(part.block.S, r))
            total += 0.5 * (float(first) + part.products().quadratic(e))
        return total

    def covariance_adjoint(self, adjoints: Sequence[Array]) -> list[Array]:
        out, predictors = [], self.predictors
        for part, W, a in zip(self.parts, predictors.designs, adjoints, strict=True):
            G = W.pull_back(dense.symmetrised(dense.scale_symmetric(part.copy_of_B_inverse(), part.root)))
            G *= -0.5
            G += (0.5 * a)[:, None] * a[None, :]
            out.append(G)
        return out

    def design_covariance(self, designs: Sequence[Design]) -> list[Array]:
        out = []
        for part, z, seen, W in zip(self.parts, self.predictors.latents, self.predictors.designs, designs, strict=True):
            root, Linv = part.root[:, None], part.L_inverse()
            half = dense.multiply_lower(Linv, root * z.cross(seen))
            out.append(z.cross(W) - dense.multiply_lower(Linv, root * z.between(seen, W)).T @ half)
        return out

    def latent_variance(self) -> Array:
        out = []
        for part, z, W in zip(self.parts, self.predictors.latents, self.predictors.designs, strict=True):
            if W.identity:  # the latents are the predictors
                out.append(part.marginals()[0])
                continue
            xp, small = namespace(part.lam), z.n * (z.n + part.lam.shape[0]) <= dense.QR_ENTRIES
            lost = float(xp.max(part.marginals()[1] * (1.0 + part.lam * part.block.diagonal))) > _LOST
            if lost and small and is_numpy(part.lam) and W.picks is None:
                L = dense.root_by_rows(to_numpy(z.whiten(W).toarray()), part.lam)
                out.append(np.sum(z.color(dense.solve_lower(L, np.eye(L.shape[0]), transposed=True)) ** 2, axis=1))
                continue
            left = z.variance() - part.explained(z.cross(W).T)
            left = xp.where(left > 0.0, left, xp.zeros_like(left))  # below 0 is rounding
            if W.picks is not None:  # those that are predictors, by the marginals, which keep their digits
                seen = to_numpy(left) + 0.0
                seen[W.picks] = to_numpy(part.marginals()[0])
                left = asarray(seen, left)
            out.append(left)
        return self.predictors.columns(out)

    def latent_covariance(self) -> list[Array]:
        out = []
        for part, z, W in zip(self.parts, self.predictors.latents, self.predictors.designs, strict=True):
            half = dense.multiply_lower(part.L_inverse(), part.root[:, None] * z.cross(W))
            out.append(z.covariance() - half.T @ half)
        return out

    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        triples = zip(self.parts, self.predictors.designs, cross, strict=True)
        return [part.explained(W.times(c.T).T) for part, W, c in triples]

    def joint_reduction(self, cross: Array) -> Array:
        """What the data take off the covariance (M, M) of new rows, given that with the latents (M, L)."""
        ([part], [W]) = self.parts, self.predictors.designs
        return part.explained_jointly(W.times(cross.T).T)

    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        out = []
        for part, z, W, new in zip(self.parts, self.predictors.latents, self.predictors.designs, designs, strict=True):
            left = z.diagonal(new) - part.explained(z.between(new, W))
            out.append(namespace(left).where(left > 0.0, left, namespace(left).zeros_like(left)))
        return out

    def covariance(self) -> list[Array]:
        return [part.covariance() for part in self.parts]

    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        draws = []
        for part in self.parts:
            R = dense.semidefinite_root(part.covariance())
            draws.append((R @ asarray(rng.standard_normal((R.shape[1], size)), R)).T)
        return draws

    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """A draw of the prior and one of noise make data of covariance B; what these data explain is taken off.

        No matrix of the latents' own size: there may be many more of them than rows.
        """
        draws, predictors = [], self.predictors
        for part, z, W in zip(self.parts, predictors.latents, predictors.designs, strict=True):
            root = part.root[:, None]
            prior = z.color(asarray(rng.standard_normal((z.root.shape[-1], size)), root))
            noise = asarray(rng.standard_normal((root.shape[0], size)), root)
            Linv = part.L_inverse()
            half = dense.multiply_lower(Linv, root * W.times(prior) + noise)
            draws.append(prior - z.cross(W).T @ (root * dense.multiply_lower(Linv, half, transposed=True)))
        return draws
