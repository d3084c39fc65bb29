"""The precision P = Q + A' Lam A at one lam: solves, and estimates of variances and of the log determinant.

The latents are those of the first term (1), of the middle (m) and of the border (b). The first term is eliminated by
its blocks, the border by a solve for each of its columns, and the middle is solved by conjugate gradients:

    P_11 = L_1 L_1',   E = L_1^-1 P_1m,   E_b = L_1^-1 P_1b,    C = P_mm - E' E,   C_b = P_mb - E' E_b
    C X = C_b,         S = P_bb - E_b' E_b - C_b' X,            log|P| = log|P_11| + log|C| + log|S|
    a' P^-1 a = |L_1^-1 a_1|^2 + t' C^-1 t + r' S^-1 r,
    t = a_m - E' L_1^-1 a_1,    r = a_b - E_b' L_1^-1 a_1 - X' t

M = L L' are the diagonal blocks of C. With M instead of C the same formulas are those of another precision, P~, whose
determinant and variances are computed exactly, and so is the elbo of a Gaussian with precision P~. Probes z of random
signs estimate the difference between P and P~. Each is made orthogonal to L' times the constant vectors of the terms,
the directions in which conjugate gradients converge most slowly; these vectors are additional fixed probes. With
u = L^-T z, x = C^-1 L z:

    log|C| = log|M| + E[z' (log K - (K - I)) z],   K = L^-1 C L^-T,   E[z' (K - I) z] = 0 known
    t' C^-1 t = t' M^-1 t + E[(t' (x - u)) (t' u)]

The first follows from the coefficients of the solves (``linalg/krylov.py``), the second from their solutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..files import Stated
from ..linalg.block_stacks import cholesky, column_grams, columns_times, row_grams, rows_times, times, transposed
from ..linalg.dense import NotPositiveDefinite
from ..linalg.krylov import solve_columns, tridiagonals
from .layout import LayoutPart, RowSet

MAX_ITER = 2000  # most iterations of conjugate gradients; the solve then ends without an error
_BORDER = 1e-9  # relative residual of the solves for the border
FLOOR = 0.05  # least variance relative to the blocked one; lower estimates come from too few probes


@dataclass(frozen=True)
class Probed(Stated):
    """The solutions for the probes.

    Attributes
    ----------
    u, x : arrays (n_m, m + k)
        L^-T z and C^-1 L z for m random probes and k fixed ones, which are scaled by sqrt(m).
    log_ratio : array (m + k,)
        z' (log K - (K - I)) z of each probe by Gauss quadrature, an upper limit. Their sum divided by m estimates
        log|C| - log|M|.
    low : array (m + k,)
        Lower limits of the same, by Gauss-Radau quadrature with a node below the spectrum of K.
    m : int
        Number of random probes.
    iterations : int
        Iterations of conjugate gradients.
    """

    u: np.ndarray
    x: np.ndarray
    log_ratio: np.ndarray
    low: np.ndarray
    m: int
    iterations: int

    @property
    def delta(self) -> np.ndarray:
        return self.x - self.u

    def mean(self, each: np.ndarray) -> np.ndarray:
        """The estimate from values of the probes along the last axis."""
        return np.asarray(each.sum(axis=-1) / self.m)

    def se(self, each: np.ndarray) -> np.ndarray:
        """The standard error of ``mean``."""
        return np.asarray(each[..., : self.m].std(axis=-1, ddof=1) / np.sqrt(self.m))

    def groups(self, n: int) -> list[Probed]:
        """Split the random probes into n groups."""
        size, out = self.m // n, []
        scale = np.sqrt(size / self.m)
        for i in range(n):
            here = slice(i * size, (i + 1) * size)
            u, x = (np.hstack([v[:, here], scale * v[:, self.m :]]) for v in (self.u, self.x))
            out.append(Probed(u, x, self.log_ratio, self.low, size, self.iterations))
        return out


class System:
    """P at one lam. Raises NotPositiveDefinite if a block is singular up to rounding.

    Parameters
    ----------
    rows : RowSet
        The design, split by the layout.
    Q : list of arrays
        The blocks of the prior precision, from ``LatentLayout.prior``.
    lam : array (N,)
        Curvatures of the rows.
    """

    def __init__(self, rows: RowSet, Q: list[np.ndarray], lam: np.ndarray) -> None:
        self.rows, self.Q, self.lam = rows, Q, lam
        layout = rows.layout
        self.n1, self.nm, self.p = layout.sizes
        own, self.off = rows.grams(lam)
        self.G = [q + g for q, g in zip(Q[:-1], own, strict=True)]
        B1, Bm, F = rows.borders(lam)
        C1 = rows.pairs.gram(lam)
        self.L1inv, self.log_det_first = np.zeros((0, 1, 1)), 0.0
        data = C1.data
        if layout.first is not None:
            _, self.L1inv, self.log_det_first = cholesky(self.G[0])
            data = rows_times(self.L1inv, C1.indptr, data)
        self.E = sp.csr_array((data, C1.indices, C1.indptr), shape=C1.shape)
        self.EB = times(self.L1inv, B1) if self.n1 else B1
        self.CB = Bm - self.E.T @ self.EB
        self.CBB = F + Q[-1] - self.EB.T @ self.EB
        self.L: list[np.ndarray] = []
        self.Linv: list[np.ndarray] = []
        self.log_det_blocks = 0.0
        for part, at, G in self.parts():
            within = (self.E.indices >= at) & (self.E.indices < at + part.n)
            D = G - column_grams(self.E.data[within], self.E.indices[within] - at, part.blocks, part.d)
            L, Linv, log_det = cholesky(D)
            self.L.append(L)
            self.Linv.append(Linv)
            self.log_det_blocks += log_det

    def parts(self) -> Iterator[tuple[LayoutPart, int, np.ndarray]]:
        """Yield each part of the middle, its first latent within the middle, and its blocks of P."""
        middle = self.rows.layout.middle
        yield from zip(middle, self.rows.starts, self.G[len(self.G) - len(middle) :], strict=True)

    # -- products -------------------------------------------------------------------------------------
    def _by_part(self, stacks: list[np.ndarray], x: np.ndarray) -> np.ndarray:
        out, at = np.empty_like(x), 0
        for blocks in stacks:
            n = blocks.shape[0] * blocks.shape[1]
            out[at : at + n] = times(blocks, x[at : at + n])
            at += n
        return out

    def schur(self, x: np.ndarray) -> np.ndarray:
        """C x for x (n_m, k)."""
        from ..linalg._rows import subtract_gram

        x = np.ascontiguousarray(x)
        out = self._by_part([G for _, _, G in self.parts()], x)
        if self.off is not None:
            out += self.off @ x
        if self.n1 and self.nm:
            subtract_gram(self.E.indptr, self.E.indices, self.E.data, x, out)
        return out

    def unwhiten(self, x: np.ndarray) -> np.ndarray:
        """L^-T x."""
        return self._by_part([transposed(b) for b in self.Linv], x)

    def precondition(self, x: np.ndarray) -> np.ndarray:
        """M^-1 x."""
        return self.unwhiten(self._by_part(self.Linv, x))

    def times(self, x: np.ndarray) -> np.ndarray:
        """P x for x (L, k) in the order of the layout."""
        return self.prior_times(x) + self.rows.adjoint(self.lam[:, None] * self.rows.times(x))

    def prior_times(self, x: np.ndarray) -> np.ndarray:
        """Q x."""
        n = self.n1 + self.nm
        return np.vstack([self._by_part(self.Q[:-1], x[:n]), self.Q[-1] @ x[n:]])

    def prior_solve(self, x: np.ndarray) -> np.ndarray:
        """Q^-1 x."""
        n = self.n1 + self.nm
        inverse = [np.linalg.inv(q) for q in self.Q[:-1]]
        return np.vstack([self._by_part(inverse, x[:n]), np.linalg.solve(self.Q[-1], x[n:])])

    @cached_property
    def log_det_prior(self) -> float:
        """log|Q|."""
        return sum(cholesky(q)[2] for q in self.Q[:-1]) + float(np.linalg.slogdet(self.Q[-1])[1])

    # -- solves ---------------------------------------------------------------------------------------
    @cached_property
    def border(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, the residual of its solve, and the lower triangular root R with S^-1 = R' R."""
        if self.nm:
            solved = solve_columns(self.schur, self.precondition, self.CB, _BORDER, MAX_ITER)
            X, left = solved.x, self.CB - self.schur(solved.x)
        else:
            X = left = np.zeros((0, self.p))
        S = self.CBB - X.T @ self.CB - X.T @ left  # second order in the residual, and not too small
        try:
            root = np.linalg.cholesky((S + S.T) / 2)
        except np.linalg.LinAlgError:
            raise NotPositiveDefinite("the Schur complement of the border is not positive definite") from None
        return X, left, scipy.linalg.solve_triangular(root, np.eye(self.p), lower=True) if self.p else root

    @property
    def log_det_border(self) -> float:
        """log|S|."""
        return -2.0 * float(np.log(np.diag(self.border[2])).sum())

    def solve(self, b: np.ndarray, tol: float) -> tuple[np.ndarray, int]:
        """P^-1 b (L, k) in the order of the layout, and the number of iterations."""
        (X, _, root), n = self.border, self.n1 + self.nm
        y = times(self.L1inv, b[: self.n1]) if self.n1 else b[:0]
        bm = b[self.n1 : n] - self.E.T @ y
        xb = root.T @ (root @ (b[n:] - self.EB.T @ y - X.T @ bm))
        solved = solve_columns(self.schur, self.precondition, bm, tol, MAX_ITER)
        xm = solved.x - X @ xb
        first = times(transposed(self.L1inv), y - self.E @ xm - self.EB @ xb) if self.n1 else b[:0]
        return np.vstack([first, xm, xb]), solved.iterations

    def lift(self, xm: np.ndarray, xb: np.ndarray | None = None) -> np.ndarray:
        """Extend changes of the middle and of the border (default: 0) to all latents (L, k).

        (-P_11^-1 (P_1m x_m + P_1b x_b), x_m, x_b)
        """
        edge = np.zeros((self.p, xm.shape[1])) if xb is None else xb
        moved = self.E @ xm if xb is None else self.E @ xm + self.EB @ xb
        return np.vstack([-times(transposed(self.L1inv), moved) if self.n1 else xm[:0], xm, edge])

    # -- probes ---------------------------------------------------------------------------------------
    @property
    def log_det_blocked(self) -> float:
        """log|P~|."""
        return self.log_det_first + self.log_det_blocks + self.log_det_border

    def probe(self, z: np.ndarray, tol: float, start: np.ndarray | None = None) -> Probed:
        """Solve for the probes z (n_m, k); with a ``start`` only for variances, without the log determinant."""
        m, U = z.shape[1], self._slowest()
        z = np.hstack([z - U @ (U.T @ z), np.sqrt(m) * U])
        b, u = self._by_part(self.L, z), self.unwhiten(z)
        solved = solve_columns(self.schur, self.precondition, b, tol, MAX_ITER, start)
        none = np.zeros(z.shape[1])
        if start is not None or not self.nm:
            return Probed(u, solved.x, none, none, m, solved.iterations)
        made = tridiagonals(solved)
        linear = np.array([T.gauss(lambda t: t - 1.0) for T in made])
        high = np.array([T.gauss(np.log) for T in made]) - linear
        low = np.array([T.radau(np.log, self.lowest) for T in made]) - linear
        return Probed(u, solved.x, high, low, m, solved.iterations)

    def _slowest(self) -> np.ndarray:
        """Orthonormal basis (n_m, k) of L' times the constant vectors of the middle, one for each latent of a block."""
        constant = np.zeros((self.nm, sum(part.d for part, _, _ in self.parts())))
        k = 0
        for part, at, _ in self.parts():
            for r in range(part.d):
                constant[at + r : at + part.n : part.d, k] = 1.0
                k += 1
        return np.linalg.qr(self._by_part([transposed(L) for L in self.L], constant))[0] if self.nm else constant

    @cached_property
    def lowest(self) -> float:
        """A lower bound on the eigenvalues of K: because C >= Q_mm, from each block of Q relative to that of M."""
        limits = [1.0]
        for q, linv in zip(self.Q[len(self.Q) - 1 - len(self.Linv) : -1], self.Linv, strict=True):
            limits.append(float(np.linalg.eigvalsh(linv @ q @ transposed(linv)).min()))
        return 0.99 * min(limits)

    # -- variances ------------------------------------------------------------------------------------
    def by_columns(self, data: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Multiply rows over the latents of the middle, given by their entries, by L^-T."""
        out = np.zeros_like(data)
        for (part, at, _), linv in zip(self.parts(), self.Linv, strict=True):
            within = (columns >= at) & (columns < at + part.n)
            out[within] = columns_times(data[within], columns[within] - at, transposed(linv))
        return out

    @cached_property
    def weights(self) -> np.ndarray:
        """The entries of P_11^-1 P_1m L^-T on the pattern of P_1m."""
        data = rows_times(transposed(self.L1inv), self.E.indptr, self.E.data) if self.n1 else self.E.data
        return self.by_columns(data, self.E.indices)

    @cached_property
    def first_blocks(self) -> np.ndarray:
        """The diagonal blocks of P~^-1 for the first term, given the border."""
        own = np.matmul(transposed(self.L1inv), self.L1inv)
        return own + row_grams(self.E.indptr, self.weights, own.shape[1])

    @cached_property
    def shared(self) -> np.ndarray:
        """The border's part of the variances as a root (L, p): the effect of the border on all latents times R'."""
        right = self.border[2].T
        return self.lift(-self.border[0] @ right, right)

    @cached_property
    def latent_blocks(self) -> list[np.ndarray]:
        """The diagonal blocks of P~^-1 for the first term, the middle and the border."""
        own = [*([self.first_blocks] if self.n1 else []), *(np.matmul(transposed(b), b) for b in self.Linv)]
        out, at = [], 0
        for blocks in own:
            K, d, _ = blocks.shape
            edge = self.shared[at : at + K * d].reshape(K, d, self.p)
            out.append(blocks + np.matmul(edge, edge.transpose(0, 2, 1)))
            at += K * d
        return [*out, self.border[2].T @ self.border[2]]

    @cached_property
    def blocked_variance(self) -> np.ndarray:
        """Exact a' P~^-1 a of each row (N,)."""
        rows = self.rows
        scaled = self.by_columns(rows.Am.data, rows.Am.indices)
        out = rows.middle_squares(scaled)
        if self.n1:
            out += rows.first_form(self.first_blocks)
            out -= 2.0 * rows.pairs.form(self.weights, rows.A1.data, scaled, out.size)
        for j in range(self.p):
            out += rows.times(self.shared[:, j : j + 1])[:, 0] ** 2
        return out

    def row_variance(self, probed: Probed) -> np.ndarray:
        """a' P^-1 a of each row (N,), estimated by the probes."""
        from ..linalg._rows import row_inner

        A = self.rows.whole
        out = np.zeros(A.shape[0])
        row_inner(A.indptr, A.indices, A.data, self.lift(probed.delta), self.lift(probed.u), out)
        return np.maximum(self.blocked_variance + out / probed.m, FLOOR * self.blocked_variance)
