"""The precision P = Q + A' Lam A at one lam: solved with, its inverse's diagonal and its log determinant estimated.

    P_11 = L_1 L_1'  (blocks),    E = L_1^-1 P_12,    C = P_22 - E' E,     2 being the middle and the border together
    M = blocks of C on its diagonal = L L',           P~ = [[P_11, P_12], [P_21, M + E' E]]

P~ is P without what couples the blocks of C. It preconditions; its determinant and the variances a' P~^-1 a are exact,
and a Gaussian with precision P~ is one whose elbo can be computed. Probes z of signs do the rest, u = L^-T z,
x = C^-1 L z, t = a_2 - E' L_1^-1 a_1:

    log|P| = log|P~| + E[z' (log K - (K - I)) z],   K = L^-1 C L^-T,   E[z' (K - I) z] = 0 known
    a' P^-1 a = a' P~^-1 a + E[(t' (x - u)) (t' u)]

The coefficients of the solves give the first (``linalg/lanczos.py``), their solutions the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..linalg.blocks import cholesky, column_grams, columns_times, row_grams, rows_times, times, transposed
from ..linalg.dense import NotPositiveDefinite
from ..linalg.krylov import Solved, conjugate_gradients
from ..linalg.lanczos import log_det_bounds, tridiagonals
from .layout import Part
from .rows import RowSet

MAX_ITER = 1000


@dataclass(frozen=True)
class Probed:
    """The answers of probes.

    Attributes
    ----------
    u, x : arrays (n_2, m)
        L^-T z and C^-1 L z.
    log_ratio : array (m,)
        z' (log K - (K - I)) z of each probe: the mean is log|C| - log|M|.
    low, high : arrays (m,)
        Bounds of it for these probes: by a node below K, and by Gauss' rule.
    iterations : int
    """

    u: np.ndarray
    x: np.ndarray
    log_ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    iterations: int

    @property
    def delta(self) -> np.ndarray:
        return self.x - self.u


class System:
    """P at one lam. Raises NotPositiveDefinite where rounding leaves a block without an inverse.

    Parameters
    ----------
    rows : RowSet
        The design in its three kinds.
    Q : list of arrays
        The blocks of the prior precision, as ``Layout.prior`` has them.
    lam : array (N,)
    """

    def __init__(self, rows: RowSet, Q: list[np.ndarray], lam: np.ndarray) -> None:
        self.rows, self.Q, self.lam = rows, Q, lam
        layout = rows.layout
        self.n1, self.nm, self.p = layout.sizes
        own = rows.own_grams(lam)
        self.G = [q + g for q, g in zip(Q[:-1], own, strict=True)]
        self.off = rows.off_grams(lam)
        B1, Bm, F = rows.borders(lam)
        self.F = F + Q[-1]
        self.B1, self.Bm = B1, Bm
        self.C1 = rows.cross(lam)
        if layout.first is not None:
            _, self.L1inv, self.log_det_first = cholesky(self.G[0])
        else:
            self.L1inv, self.log_det_first = np.zeros((0, 1, 1)), 0.0
        data = rows_times(self.L1inv, self.C1.indptr, self.C1.data) if self.n1 else self.C1.data
        self.E = sp.csr_array((data, self.C1.indices, self.C1.indptr), shape=self.C1.shape)
        self.EB = times(self.L1inv, B1) if self.n1 else B1
        self.Cmf = self.Bm - self.E.T @ self.EB
        self.Cff = self.F - self.EB.T @ self.EB
        self._blocks()

    def _blocks(self) -> None:
        """The blocks of C on its diagonal, and their factors."""
        self.D, self.L, self.Linv, self.log_det_blocks = [], [], [], 0.0
        for part, at, G in self._middle():
            mine = (self.E.indices >= at) & (self.E.indices < at + part.n)
            D = G - column_grams(self.E.data[mine], self.E.indices[mine] - at, part.blocks, part.d)
            L, Linv, log_det = cholesky(D)
            self.D.append(D)
            self.L.append(L)
            self.Linv.append(Linv)
            self.log_det_blocks += log_det
        if self.p:
            try:
                self.Lf = np.linalg.cholesky(self.Cff)
            except np.linalg.LinAlgError:
                raise NotPositiveDefinite("the border is not positive definite") from None
            self.Lfinv = scipy.linalg.solve_triangular(self.Lf, np.eye(self.p), lower=True)
            self.log_det_blocks += 2.0 * float(np.log(np.diag(self.Lf)).sum())
        else:
            self.Lf = self.Lfinv = np.zeros((0, 0))

    def _middle(self) -> Iterator[tuple[Part, int, np.ndarray]]:
        """Each part of the middle, where it begins there, and its blocks of P."""
        at = 0
        for part, G in zip(self.rows.layout.middle, self.G[len(self.G) - len(self.rows.layout.middle) :], strict=True):
            yield part, at, G
            at += part.n

    # -- products in the space of the middle and the border ------------------------------------------
    def _by_part(self, stacks: list[np.ndarray], edge: np.ndarray, x: np.ndarray) -> np.ndarray:
        out, at = np.empty_like(x), 0
        for blocks in stacks:
            n = blocks.shape[0] * blocks.shape[1]
            out[at : at + n] = times(blocks, x[at : at + n])
            at += n
        out[at:] = edge @ x[at:]
        return out

    def schur(self, x: np.ndarray) -> np.ndarray:
        """C x (n_2, m)."""
        from ..linalg._products import subtract_gram

        xm, xf = np.ascontiguousarray(x[: self.nm]), x[self.nm :]
        out = np.empty_like(x)
        for part, at, G in self._middle():
            out[at : at + part.n] = times(G, xm[at : at + part.n])
        top = out[: self.nm]
        if self.off is not None:
            top += self.off @ xm
        if self.n1 and self.nm:
            subtract_gram(self.E.indptr, self.E.indices, self.E.data, xm, top)
        top += self.Cmf @ xf
        out[self.nm :] = self.Cmf.T @ xm + self.Cff @ xf
        return out

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """L^-1 x."""
        return self._by_part(self.Linv, self.Lfinv, x)

    def unwhiten(self, x: np.ndarray) -> np.ndarray:
        """L^-T x."""
        return self._by_part([transposed(b) for b in self.Linv], self.Lfinv.T, x)

    def precondition(self, x: np.ndarray) -> np.ndarray:
        """M^-1 x."""
        return self.unwhiten(self.whiten(x))

    def colour(self, z: np.ndarray) -> np.ndarray:
        """L z."""
        return self._by_part(self.L, self.Lf, z)

    # -- solves --------------------------------------------------------------------------------------
    def _solve(self, b: np.ndarray, tol: float, start: np.ndarray | None = None) -> Solved:
        return conjugate_gradients(self.schur, self.precondition, b, tol, MAX_ITER, start)

    def solve(self, b: np.ndarray, tol: float) -> tuple[np.ndarray, int]:
        """P^-1 b (L, m) in the order of the layout, and how many iterations it took."""
        y = times(self.L1inv, b[: self.n1]) if self.n1 else b[:0]
        right = b[self.n1 :].copy()
        right[: self.nm] -= self.E.T @ y
        right[self.nm :] -= self.EB.T @ y
        found = self._solve(right, tol)
        return np.vstack([self._first(found.x, y), found.x]), found.iterations

    def _first(self, x: np.ndarray, y: np.ndarray | float = 0.0) -> np.ndarray:
        """L_1^-T (y - E x): the eliminated latents that go with the others (n_1, m)."""
        if not self.n1:
            return np.zeros((0, x.shape[1]))
        return times(transposed(self.L1inv), y - self.E @ x[: self.nm] - self.EB @ x[self.nm :])

    def lift(self, x: np.ndarray) -> np.ndarray:
        """(-P_11^-1 P_12 x, x): what a change of the others does to all latents (L, m)."""
        return np.vstack([self._first(x), x])

    def times(self, x: np.ndarray) -> np.ndarray:
        """P x for x (L, m) in the order of the layout."""
        return self.prior_times(x) + self.rows.adjoint(self.lam[:, None] * self.rows.times(x))

    def prior_times(self, x: np.ndarray) -> np.ndarray:
        """Q x."""
        return self._by_part(self.Q[:-1], self.Q[-1], x)

    def prior_solve(self, x: np.ndarray) -> np.ndarray:
        """Q^-1 x."""
        return self._by_part([np.linalg.inv(q) for q in self.Q[:-1]], np.linalg.inv(self.Q[-1]), x)

    @cached_property
    def log_det_prior(self) -> float:
        """log|Q|."""
        return sum(cholesky(q)[2] for q in self.Q[:-1]) + float(np.linalg.slogdet(self.Q[-1])[1])

    # -- determinants --------------------------------------------------------------------------------
    @property
    def log_det_blocked(self) -> float:
        """log|P~|."""
        return self.log_det_first + self.log_det_blocks

    def probe(self, z: np.ndarray, tol: float, start: np.ndarray | None = None) -> Probed:
        """The answers of the probes z (n_2, m); with a ``start`` those of the variances alone."""
        b, u = self.colour(z), self.unwhiten(z)
        found = self._solve(b, tol, start)
        m = z.shape[1]
        if start is not None or not z.shape[0]:
            none = np.zeros(m) if start is None else np.full(m, np.nan)
            return Probed(u, found.x, none, none, none, found.iterations)

        def beyond(t: np.ndarray) -> np.ndarray:
            return np.log(t) - (t - 1.0)

        made = tridiagonals(found)
        high = np.array([T.gauss(beyond) for T in made])
        low = np.array([T.radau(np.log, self.lowest) - T.gauss(lambda t: t - 1.0) for T in made])
        return Probed(u, found.x, high, low, high, found.iterations)

    @cached_property
    def lowest(self) -> float:
        """A number below every eigenvalue of K: C >= Q_22, so that each block of Q against that of M bounds it."""
        found = [1.0]
        for q, linv in zip(self.Q[len(self.Q) - 1 - len(self.Linv) : -1], self.Linv, strict=True):
            found.append(float(np.linalg.eigvalsh(linv @ q @ transposed(linv)).min()))
        if self.p:
            found.append(float(np.linalg.eigvalsh(self.Lfinv @ self.Q[-1] @ self.Lfinv.T).min()))
        return 0.9 * min(found)

    def log_det_limits(self) -> tuple[float, float]:
        """Numbers that are certainly below and above log|P|.

        Above by Fischer's inequality: log|P~|. Below: of the blocks of P without the border by the sum of the squares
        of what couples them, and of the border given the others by its prior.
        """
        high = self.log_det_blocked
        factors = [cholesky(g) for g in self.G]
        own = sum(f[2] for f in factors)
        squares = float(sum(g.shape[0] * g.shape[1] for g in self.G))
        n = int(squares)
        lowest = 1.0
        for (_, linv, _), q in zip(factors, self.Q[:-1], strict=True):
            lowest = min(lowest, float(np.linalg.eigvalsh(linv @ q @ transposed(linv)).min()))
        squares += 2.0 * float(sum((self._normed(self.E.data, self.E.indices, factors)) ** 2)) if self.n1 else 0.0
        if self.off is not None:
            squares += self._off_squares(factors)
        low = own + log_det_bounds(n, squares, 0.999 * lowest)[0] + float(np.linalg.slogdet(self.Q[-1])[1])
        return min(low, high), high

    def _normed(
        self, data: np.ndarray, columns: np.ndarray, factors: list[tuple[np.ndarray, np.ndarray, float]]
    ) -> np.ndarray:
        """Entries of E or of what couples the middle, each column divided by its own block of P."""
        out = np.zeros_like(data)
        for part, at, (_, linv, _) in zip(
            self.rows.layout.middle,
            self.rows.starts,
            factors[len(factors) - len(self.rows.layout.middle) :],
            strict=True,
        ):
            mine = (columns >= at) & (columns < at + part.n)
            out[mine] = columns_times(data[mine], columns[mine] - at, transposed(linv))
        return out

    def _off_squares(self, factors: list[tuple[np.ndarray, np.ndarray, float]]) -> float:
        left = [transposed(f[1]) for f in factors[len(factors) - len(self.rows.layout.middle) :]]
        scale = sp.block_diag([sp.bsr_array((b, np.arange(b.shape[0]), np.arange(b.shape[0] + 1))) for b in left])
        return float((((scale.T @ self.off @ scale).tocsr().data) ** 2).sum())

    # -- variances -----------------------------------------------------------------------------------
    @cached_property
    def _weights(self) -> np.ndarray:
        """The entries of P_11^-1 P_12 L^-T on the pattern of P_12, the middle alone."""
        data = rows_times(transposed(self.L1inv), self.E.indptr, self.E.data) if self.n1 else self.E.data
        out = np.zeros_like(data)
        for (part, at, _), linv in zip(self._middle(), self.Linv, strict=True):
            mine = (self.E.indices >= at) & (self.E.indices < at + part.n)
            out[mine] = columns_times(data[mine], self.E.indices[mine] - at, transposed(linv))
        return out

    @cached_property
    def latent_blocks(self) -> list[np.ndarray]:
        """The blocks of P~^-1 on its diagonal, of the first, the middle and the border."""
        out = [np.matmul(transposed(linv), linv) for linv in self.Linv]
        if self.n1:
            d = self.L1inv.shape[1]
            own = np.matmul(transposed(self.L1inv), self.L1inv) + row_grams(self.E.indptr, self._weights, d)
            edge = (times(transposed(self.L1inv), self.EB) @ self.Lfinv.T).reshape(-1, d, self.p)
            out.insert(0, own + np.matmul(edge, edge.transpose(0, 2, 1)))
        return [*out, self.Lfinv.T @ self.Lfinv]

    @cached_property
    def blocked_variance(self) -> np.ndarray:
        """a' P~^-1 a of each row (N,)."""
        rows = self.rows
        scaled = np.zeros_like(rows.Am.data)
        for (part, at, _), linv in zip(self._middle(), self.Linv, strict=True):
            mine = (rows.Am.indices >= at) & (rows.Am.indices < at + part.n)
            scaled[mine] = columns_times(rows.Am.data[mine], rows.Am.indices[mine] - at, transposed(linv))
        n = rows.A1.shape[0]
        out = np.bincount(rows.row_of_middle, scaled**2, minlength=n).astype(np.float64)
        edge: np.ndarray | float = 0.0
        if self.n1:
            d = self.L1inv.shape[1]
            own = np.matmul(transposed(self.L1inv), self.L1inv) + row_grams(self.E.indptr, self._weights, d)
            out += rows.first_form(own)
            out -= 2.0 * rows.pairs.form(self._weights, rows.A1.data, scaled, n)
            edge = rows.A1 @ (times(transposed(self.L1inv), self.EB) @ self.Lfinv.T)
        if self.p:
            left = rows.Ab @ self.Lfinv.T - edge
            out += np.einsum("np,np->n", left, left)
        return out

    def row_corrections(self, probed: Probed) -> np.ndarray:
        """What each probe adds to a' P~^-1 a, averaged over probes (N,)."""
        out = np.zeros(self.rows.A1.shape[0])
        m = probed.u.shape[1]
        for k in range(m):
            pair = self.lift(np.stack([probed.delta[:, k], probed.u[:, k]], axis=1))
            moved = self.rows.times(pair)
            out += moved[:, 0] * moved[:, 1]
        return out / m
