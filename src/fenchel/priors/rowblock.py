"""One block of rows: S, and B = I + Lam^1/2 S Lam^1/2 = L L' in the memory its factorisations reuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg import dense
from ..linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy

DEAD = 1e-150  # a lam below this is 0: its reciprocal would overflow when squared
_WEAK = 1e-7  # below this lam S_nn, rows of Vt are formed by themselves
_TINY = 1e-4  # below lam S_nn = 1e-4 the formula (1 - diag B^-1)/lam loses digits; see RowFactor.marginals
_LOST = 1e-8  # of lam rho: below it that formula has half its digits, and a row with lam S_nn < 1 has more in S_nn


class RowBlock:
    """S of one block, and the buffers its factorisations reuse."""

    def __init__(self, S: Array) -> None:
        if is_numpy(S) and not S.flags.c_contiguous:
            S = S.T if S.flags.f_contiguous else np.ascontiguousarray(S)  # symmetric: its transpose is itself
        self.S, self.n = S, S.shape[0]
        self.diagonal = namespace(S).linalg.diagonal(S) if not is_numpy(S) else np.diagonal(S).copy()
        self._free: list[Array] = []

    def take(self) -> Array:
        """A buffer of N x N doubles: fresh pages cost more than the elementwise work done in them."""
        return self._free.pop() if self._free else dense.empty_square(self.n, self.S)

    def give(self, buffer: Array) -> None:
        most = 2 if is_numpy(buffer) else 1  # a device is small
        if buffer.shape == (self.n, self.n) and len(self._free) < most:
            self._free.append(buffer)

    def __getstate__(self) -> dict[str, Any]:
        """Without the buffers, which hold nothing."""
        return {**self.__dict__, "_free": []}


class RowFactor:
    """B = L L' of one block; ``matrix`` holds L, then L^-1, then B^-1, then nothing once a direction has used it up."""

    matrix: Array | None = None

    def __init__(self, block: RowBlock, lam: Array) -> None:
        self.block, self.lam = block, lam
        self.root = namespace(lam).sqrt(lam)
        self.holds = ""  # "L", "L^-1", "B^-1", "Vt": B^-1 as PosteriorProducts keeps it
        self._products: PosteriorProducts | None = None
        self._marginals: tuple[Array, Array] | None = None
        self.log_det = dense.log_det(self._factorise())

    def _factorise(self) -> Array:
        B = dense.scaled_plus_identity(self.block.S, self.root, self.block.take())
        try:
            L = dense.cholesky(B)
        except dense.NotPositiveDefinite:
            self.block.give(B)
            raise
        self.matrix, self.holds = L, "L"
        return L

    def L_inverse(self) -> Array:
        """L^-1, refactorising if the memory has been used since."""
        matrix = self.matrix
        if matrix is None:
            matrix = self._factorise()
        elif self.holds in ("B^-1", "Vt"):
            self.block.give(matrix)
            matrix = self._factorise()
        if self.holds == "L":
            matrix = dense.triangular_inverse(matrix)
            self.matrix, self.holds = matrix, "L^-1"
        return matrix

    def B_inverse(self) -> Array:
        """B^-1, in the memory of L^-1."""
        if self.matrix is None or self.holds != "B^-1":
            self.matrix, self.holds = dense.inverse_from(self.L_inverse()), "B^-1"
        return self.matrix

    def copy_of_B_inverse(self) -> Array:
        """B^-1 in memory of its own, with no factorisation where the matrix holds it already."""
        copied = namespace(self.lam).asarray
        if self.matrix is None or self.holds not in ("B^-1", "Vt"):
            return dense.inverse_from(copied(self.L_inverse(), copy=True))
        out = copied(self.matrix, copy=True)
        return dense.set_diagonal(out, self.marginals()[1]) if self.holds == "Vt" else out

    def release(self) -> Array:
        """Hand over the memory, as B^-1."""
        out, self.matrix = self.B_inverse(), None
        return out

    def products(self) -> PosteriorProducts:
        """Products with Vt, in the memory of B^-1; made once."""
        if self.holds != "Vt" or self._products is None:
            self._products = PosteriorProducts(self)
            self.holds = "Vt"
        return self._products

    def drop(self) -> None:
        """Give the memory back; it is filled again when asked for."""
        if self.matrix is not None:
            self.block.give(self.matrix)
        self.matrix, self._products = None, None

    def __del__(self) -> None:
        if self.matrix is not None:
            self.block.give(self.matrix)

    def __getstate__(self) -> dict[str, Any]:
        """Without the matrix, which has one owner and is made again."""
        return {**self.__dict__, "matrix": None, "holds": "", "_products": None}

    def marginals(self) -> tuple[Array, Array]:
        """diag Vt and 1 - lam diag Vt = diag B^-1; computed once."""
        if self._marginals is None:
            self._marginals = self._compute_marginals()
        return self._marginals

    def _compute_marginals(self) -> tuple[Array, Array]:
        xp, S, lam = namespace(self.lam), self.block.diagonal, self.lam
        Linv = self.L_inverse()
        cavity = dense.column_squares(Linv)
        cavity = xp.where(cavity < 1.0, cavity, xp.ones_like(cavity))  # B >= I: above 1 is rounding
        tiny = (lam * S < _TINY) | ((lam * S < 1.0) & (1.0 - cavity < _LOST))
        variance = (1.0 - cavity) / xp.where(tiny, xp.ones_like(lam), lam)
        rows = np.flatnonzero(to_numpy(tiny))
        if rows.size:  # S_nn - |L^-1 Lam^1/2 S_n|^2 for those rows only
            index = dense.asarray_index(rows, S)
            variance = xp.where(tiny, xp.zeros_like(lam), variance)
            direct = xp.take(S, index) - self.explained(xp.take(self.block.S, index, axis=0))
            direct = xp.where(direct > 0.0, direct, xp.zeros_like(direct))  # below 0 is rounding
            variance = variance + scatter(direct, rows, lam)
            cavity = xp.where(tiny, 1.0 - lam * variance, cavity)
        return variance, cavity

    def explained(self, cross: Array) -> Array:
        """diag(c Lam^1/2 B^-1 Lam^1/2 c') for cross (M, R): the variance the data take away."""
        xp = namespace(cross)
        return xp.sum(dense.multiply_lower(self.L_inverse(), self.root[:, None] * cross.T) ** 2, axis=0)

    def explained_jointly(self, cross: Array) -> Array:
        """c Lam^1/2 B^-1 Lam^1/2 c' (M, M): the covariance the data take away."""
        half = dense.multiply_lower(self.L_inverse(), self.root[:, None] * cross.T)
        return half.T @ half

    def middle(self, v: Array) -> Array:
        """Lam^1/2 B^-1 Lam^1/2 v."""
        Linv = self.L_inverse()
        half = dense.multiply_lower(Linv, self.root * v)
        return self.root * dense.multiply_lower(Linv, half, transposed=True)

    def apply(self, v: Array) -> Array:
        """Vt v."""
        S = self.block.S
        Sv = dense.multiply_symmetric(S, v)
        return Sv - dense.multiply_symmetric(S, self.middle(Sv))

    def covariance(self) -> Array:
        """Vt = S - S Lam^1/2 B^-1 Lam^1/2 S."""
        half = dense.multiply_lower(self.L_inverse(), self.root[:, None] * self.block.S)
        return self.block.S - half.T @ half


class PosteriorProducts:
    """Vt v, (Vt o Vt) v and v' (Vt o S) v of one block.

    Off its diagonal Vt is -Lam^-1/2 B^-1 Lam^-1/2. Where lam S_nn is below 1e-7 rounding of B^-1 shows through the
    reciprocals, so those rows of Vt are formed by themselves, S_w - S_w Lam^1/2 B^-1 Lam^1/2 S.
    """

    def __init__(self, part: RowFactor) -> None:
        S, lam = part.block.S, part.lam
        xp = namespace(lam)
        self.S, self.rho = S, part.marginals()[0]
        strong = lam * part.block.diagonal > _WEAK
        self.strong = xp.where(strong, xp.ones_like(lam), xp.zeros_like(lam))
        self.scale = xp.where(strong, 1.0 / xp.where(strong, part.root, xp.ones_like(lam)), xp.zeros_like(lam))
        weak = np.flatnonzero(~to_numpy(strong))
        self.weak = dense.asarray_index(weak, lam) if weak.size else None
        if self.weak is not None:
            self.S_weak = xp.take(S, self.weak, axis=0)
            Linv = part.L_inverse()
            half = dense.multiply_lower(Linv, part.root[:, None] * xp.matrix_transpose(self.S_weak))
            inner = part.root[:, None] * dense.multiply_lower(Linv, half, transposed=True)
            self.V_weak = self.S_weak - xp.matrix_transpose(inner) @ S
        Binv = part.B_inverse()
        self.A = dense.set_diagonal(Binv, 0.0 * lam)

    def times(self, v: Array) -> Array:
        """Vt v."""
        out = self.rho * v - self.scale * dense.multiply_symmetric(self.A, self.scale * v)
        return out if self.weak is None else self._with_weak(self.weak, out, v, self.V_weak)

    def times_squared(self, v: Array) -> Array:
        """(Vt o Vt) v."""
        u = self.scale**2
        out = self.rho**2 * v + u * dense.multiply_squared(self.A, u * v)
        return out if self.weak is None else self._with_weak(self.weak, out, v, self.V_weak**2)

    def quadratic(self, e: Array) -> float:
        """e' (Vt o S) e."""
        xp, u = namespace(e), self.scale * e
        diagonal = dense.diagonal_of(self.S) * self.rho
        out = xp.sum(self.strong * diagonal * e * e) - xp.sum(u * dense.multiply_hadamard(self.A, self.S, u))
        if self.weak is not None:
            rows = self.V_weak * self.S_weak
            out = out + xp.sum(xp.take(e, self.weak) * (rows @ (e + self.strong * e)))
        return float(out)

    def _with_weak(self, weak: Array, out: Array, v: Array, rows: Array) -> Array:
        """The weak rows' own products in place of ``out``'s, and their share of the others."""
        xp = namespace(v)
        back = xp.matrix_transpose(rows) @ xp.take(v, weak)
        own = scatter(rows @ v, to_numpy(weak).astype(int), v)
        return self.strong * (out + back) + own


def scatter(values: Array, rows: np.ndarray, like: Array) -> Array:
    """A vector that is ``values`` at ``rows`` and 0 elsewhere."""
    out = np.zeros(like.shape[0])
    out[rows] = to_numpy(values)
    return asarray(out, like)
