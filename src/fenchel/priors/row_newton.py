"""Newton's direction over N x N blocks, in the memory of their factors.

    K = I + q M q,    ds = -K^-1(q g) / q,    M = S + 1/2 Vt o Vt,    q = sqrt(J)

For a softmax, with E_c = q_c K_c^-1 q_c and T = diag(slack) + sum_c E_c: nu = T^-1 sum_c E_c g_c,
dtau_c = -E_c (g_c - nu) and ds_c = dtau_c / spread_c - nu: C such iterations and one Cholesky, never (CN)^3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..linalg import dense
from ..linalg.arrays import Array, namespace
from ..linalg.cg import conjugate_gradients
from .newton import NewtonSystem
from .rowblock import DEAD

if TYPE_CHECKING:
    from .rowspace import RowsFactor

_MODERATE = 100.0  # posterior variance up to which preconditioned conjugate gradients beat the direct solve


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
