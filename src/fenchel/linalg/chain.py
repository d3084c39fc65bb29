"""Cholesky factorisation of a small sparse matrix as a chain of dense blocks and a border, by numpy and LAPACK alone.

    A = [[D_1 S_1'        B_1']
         [S_1 D_2 S_2'    B_2']
         [    S_2 D_3 ..  B_3']
         [B_1 B_2 B_3 ..  C   ]]      each block is coupled to the next one and to the border

The Cuthill-McKee order makes a chain of a map, a random walk or groups. Columns with many neighbours (an intercept, a
covariate) form the border. A matrix with a few dozen rows is one block. Up to some thousand rows this is as fast as the
multifrontal factorisation, and the first fit of a process need not wait for compilation. The results are those of
``supernodal.py``.

The panel of block k has the rows of block k, of block k + 1 and of the border, and the columns of block k. The square
of the border is the last panel. With L11 and L21 the parts of L in a panel, and Z22 the inverse at the rows below it:

    factor      L11 L11' = A11,  L21 = A21 L11^-T,  A22 -= L21 L21'
    inverse     Y = L21 L11^-1,  Z21 = -Z22 Y,      Z11 = A11^-1 - Y' Z21
    sandwich    G21 = E21 - Y E11,  E22 -= Y E21' + G21 Y'  down the chain; then upwards, with M21 = Z22 G21 A11^-1,
                P21 = M21 - P22 Y,  P11 = A11^-1 E11 A11^-1 - Y' M21 - P21' Y
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dtrtri

from .. import gates
from .dense import NotPositiveDefinite
from .factorisation import StoredAnalysis, StoredFactorisation
from .machine import note

BLOCK = 48  # least columns of a block: calls dominate for smaller blocks, multiplications with zeros for larger ones
WHOLE = 160  # largest matrix that is always one block
ONE_BLOCK = 320  # largest matrix that is one block if it is no chain
MOST_WORK = 4e7  # largest number of multiplications of a factorisation


class ChainAnalysis(StoredAnalysis):
    """An order of the columns, its blocks, and the position of each entry.

    Attributes
    ----------
    n, nnz : size of the matrix, and number of entries of all panels
    start : array (blocks + 1,)
        The first position of each block in the order; the border, if any, is the last block.
    n_border : number of rows of the border
    """

    compiled = False

    def __init__(self, A: Any, order: np.ndarray, start: np.ndarray, n_border: int) -> None:
        n, r = A.shape[0], n_border
        self.n, self.indptr, self.indices = n, A.indptr.copy(), A.indices.copy()
        self.order, self.start, self.n_border = order, start, r
        width = np.diff(self.start)
        inner = width.size - (r > 0)  # number of blocks of the chain
        self.below = np.zeros(width.size, dtype=np.int64)  # number of rows of the next block in each panel
        self.below[: max(inner - 1, 0)] = width[1:inner]
        self.rest = np.where(np.arange(width.size) < inner, r, 0)  # number of rows of the border in each panel
        height = width + self.below + self.rest
        self.panel = np.concatenate([[0], np.cumsum(height * width)])
        self.nnz, self.work = int(self.panel[-1]), float((width * height.astype(np.float64) ** 2).sum() / 2.0)
        place = np.empty(n, dtype=np.int64)
        place[self.order] = np.arange(n)
        rows, columns = place[self.indices], np.repeat(place, np.diff(self.indptr))
        high, low = np.maximum(rows, columns), np.minimum(rows, columns)
        k = np.searchsorted(self.start, low, side="right") - 1
        row = high - self.start[k]
        in_border = (high >= n - r) & (low < n - r)
        row[in_border] = (high - (n - r) + width[k] + self.below[k])[in_border]
        self.everywhere = self.panel[k] + row * width[k] + low - self.start[k]
        self.diagonal = self.everywhere[self.diagonal_entries]
        self.height, self.width = height, width

    def factor_of(self, x: np.ndarray) -> ChainCholesky:
        return ChainCholesky(self, x)

    def panels(self, x: np.ndarray) -> list[np.ndarray]:
        """Views (height, width) of the panels in x."""
        edges = self.panel.tolist()
        shapes = zip(self.height.tolist(), self.width.tolist(), strict=True)
        return [x[a:b].reshape(shape) for a, b, shape in zip(edges[:-1], edges[1:], shapes, strict=True)]

    def scatter(self, k: int, U: np.ndarray, panels: list[np.ndarray]) -> None:
        """Subtract U, a matrix over the rows below block k, from the panels with these rows."""
        b = int(self.below[k])
        if b:
            after = panels[k + 1]
            after[:b] -= U[:b, :b]
            after[b + int(self.below[k + 1]) :] -= U[b:, :b]
        if self.n_border:
            panels[-1] -= U[b:, b:]

    def gather(self, k: int, panels: list[np.ndarray]) -> np.ndarray:
        """The symmetric matrix at the rows below block k, from panels with full squares."""
        b, r = int(self.below[k]), self.n_border
        if not b or not r:
            return panels[k + 1][:b, :b] if b else panels[-1]
        out, after = np.empty((b + r, b + r)), panels[k + 1]
        out[:b, :b] = after[:b]
        out[b:, :b] = after[b + int(self.below[k + 1]) :]
        out[:b, b:] = out[b:, :b].T
        out[b:, b:] = panels[-1]
        return out


class ChainCholesky(StoredFactorisation):
    """A = L L' as a chain of blocks."""

    symbolic: ChainAnalysis

    def _factorise(self, x: np.ndarray) -> np.ndarray:
        note(factorisations=1)
        S = self.symbolic
        panels = S.panels(x)
        for k, F in enumerate(panels):
            w = F.shape[1]
            square = F[:w]
            L, info = dpotrf(square.T, lower=0, overwrite_a=1, clean=0)  # Fortran sees the upper triangle
            if info:
                raise NotPositiveDefinite(f"the pivot of row {S.order[S.start[k] + info - 1]} is not positive")
            if not np.shares_memory(L, square):
                square[:] = L.T
            if F.shape[0] > w:
                below = F[w:]
                solved = dtrsm(1.0, square.T, below.T, trans_a=1, overwrite_b=1).T
                if not np.shares_memory(solved, below):
                    below[:] = solved
                S.scatter(k, below @ below.T, panels)
        return x[S.diagonal]

    def _solve(self, b: np.ndarray, both: bool) -> np.ndarray:
        S = self.symbolic
        panels = S.panels(self._x)
        y = np.array(b[S.order] if both else b, order="C")
        for k, F in enumerate(panels) if both else ():
            w, at = F.shape[1], int(S.start[k])
            own = y[at : at + w]
            own[:] = dtrsm(1.0, F[:w].T, own.T, side=1, trans_a=0).T
            for rows, part in self._below(k, F):
                y[rows] -= part @ own
        for k in range(len(panels) - 1, -1, -1):
            F, at = panels[k], int(S.start[k])
            w = F.shape[1]
            own = y[at : at + w]
            for rows, part in self._below(k, F):
                own -= part.T @ y[rows]
            own[:] = dtrsm(1.0, F[:w].T, own.T, side=1, trans_a=1).T
        out = np.empty_like(y)
        out[S.order] = y
        return out

    def _below(self, k: int, F: np.ndarray) -> list[tuple[slice, np.ndarray]]:
        """The rows below block k in the order, with L21 at these rows."""
        S, w = self.symbolic, F.shape[1]
        b, after = int(S.below[k]), int(S.start[k + 1])
        out = [(slice(after, after + b), F[w : w + b])] if b else []
        return out + ([(slice(self.n - S.n_border, self.n), F[w + b :])] if S.rest[k] else [])

    def _invert(self, z: np.ndarray) -> None:
        """A^-1 as panels; A11^-1 and Y of each panel are stored as well."""
        S, self._y = self.symbolic, np.empty(self.symbolic.nnz)
        Z, kept, L = S.panels(z), S.panels(self._y), S.panels(self._x)
        for k in range(len(L) - 1, -1, -1):
            F, w = L[k], L[k].shape[1]
            lower = np.tril(dtrtri(F[:w].T, lower=0)[0].T)  # L11^-1
            np.matmul(lower.T, lower, out=kept[k][:w])
            if F.shape[0] == w:
                Z[k][:] = kept[k]
                continue
            Y = np.matmul(F[w:], lower, out=kept[k][w:])
            np.matmul(S.gather(k, Z), Y, out=Z[k][w:])
            np.negative(Z[k][w:], out=Z[k][w:])
            np.subtract(kept[k][:w], Y.T @ Z[k][w:], out=Z[k][:w])

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        note(products=1)
        S = self.symbolic
        Z, kept, E = S.panels(self.stored_inverse()), S.panels(self._y), S.panels(e)
        for k, F in enumerate(E):
            w = F.shape[1]
            square = F[:w]
            square[:] = np.tril(square) + np.tril(square, -1).T
            if F.shape[0] > w:
                Y = kept[k][w:]
                U = Y @ F[w:].T
                F[w:] -= Y @ square
                U += F[w:] @ Y.T
                S.scatter(k, U, E)
        for k in range(len(E) - 1, -1, -1):
            F, w = E[k], E[k].shape[1]
            own = kept[k][:w]
            top = own @ F[:w] @ own
            if F.shape[0] > w:
                Y = kept[k][w:]
                M = S.gather(k, Z) @ (F[w:] @ own)
                F[w:] = M - S.gather(k, E) @ Y
                top -= Y.T @ M + F[w:].T @ Y
            F[:w] = top
        return e


def find_chain(A: Any) -> ChainAnalysis | None:
    """The chain of A, a canonical symmetric csc array with both triangles; None if another backend is faster."""
    n = A.shape[0]
    whole = ChainAnalysis(A, np.arange(n), np.array([0, n]), 0) if n <= ONE_BLOCK else None
    if n <= WHOLE or n > gates.CHAIN_ROWS:
        return whole
    many = np.diff(A.indptr) > max(BLOCK, n / 8)
    border, inner = np.flatnonzero(many), np.flatnonzero(~many)
    if border.size > BLOCK or not inner.size:
        return whole
    order, start = _blocks(sp.csr_array(A[inner][:, inner]))
    edges = np.array([*start, n] if border.size else start)
    out = ChainAnalysis(A, np.concatenate([inner[order], border]), edges, border.size)
    if whole is not None and whole.work <= out.work:
        return whole
    return out if out.work <= MOST_WORK else None


def _blocks(A: Any) -> tuple[np.ndarray, list[int]]:
    """An order of A, a symmetric csr array, and where blocks begin; a block has the neighbours of the previous one."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = A.shape[0]
    order = reverse_cuthill_mckee(A, symmetric_mode=True)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    furthest = np.zeros(n, dtype=np.int64)  # the last neighbour of each column in the order
    np.maximum.at(furthest, np.repeat(place, np.diff(A.indptr)), place[A.indices])
    furthest = np.maximum.accumulate(furthest)
    start = [0, min(BLOCK, n)]
    while start[-1] < n:
        start.append(min(max(int(furthest[start[-1] - 1]) + 1, start[-1] + BLOCK), n))
    return order, start
