"""Cholesky factorisation of a small sparse matrix as a chain of dense blocks beside a border: numpy and LAPACK alone.

    A = [[D_1 S_1'        B_1']
         [S_1 D_2 S_2'    B_2']
         [    S_2 D_3 ..  B_3']
         [B_1 B_2 B_3 ..  C   ]]      blocks touch the next one and the border

The order of Cuthill and McKee makes a chain of a map, of a walk, of groups; columns that touch many others (an
intercept, a covariate) are the border. A matrix of some dozen rows is one block. Up to some thousand rows this takes no
longer than fronts do, and nothing is compiled, for which the first fit of a process would wait. Answers as
``sparse.py`` does.

Block k has a panel of rows (block k, block k + 1, border) and its own columns; the border's square is the last panel.
With L of a panel, L11 and L21, and Z22 the inverse at the rows below it:

    factor      L11 L11' = A11,  L21 = A21 L11^-T,  A22 -= L21 L21'
    inverse     Y = L21 L11^-1,  Z21 = -Z22 Y,      Z11 = A11^-1 - Y' Z21
    sandwich    G21 = E21 - Y E11,  E22 -= Y E21' + G21 Y'  down the chain; up again, with M21 = Z22 G21 A11^-1,
                P21 = M21 - P22 Y,  P11 = A11^-1 E11 A11^-1 - Y' M21 - P21' Y
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dtrtri

from .arrays import ArrayLike
from .dense import NotPositiveDefinite
from .sparse import EPS, HARMLESS, checked_columns
from .tally import note

BLOCK = 48  # columns of a block at least: smaller ones cost calls, larger ones multiplications with zeros
WHOLE = 160  # rows of a matrix that is one block whatever its pattern
ONE_BLOCK = 320  # rows of a matrix that is one block where no chain is found
LARGEST = 2000  # rows of a matrix that is looked at
MOST_WORK = 4e7  # multiplications of a factorisation
_MOST_OF_FILES = 4e9  # the same of an analysis from a file: whatever the limits of its time were, a second or two


class ChainAnalysis:
    """An order, its blocks, and where every entry goes; a ``Stored`` analysis.

    Attributes
    ----------
    n, nnz : size, and places of all panels
    start : array (blocks + 1,)
        Where each block begins in the order; the last one is the border, if there is one.
    n_border : rows of the border
    work : multiplications of a factorisation, about
    """

    def __init__(self, A: Any, order: np.ndarray, start: np.ndarray, n_border: int) -> None:
        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        self.order, self.start, self.n_border = order, start, n_border
        self._place()

    def _place(self) -> None:
        n, r = self.n, self.n_border
        width = np.diff(self.start)
        inner = width.size - (r > 0)  # blocks of the chain
        self.below = np.zeros(width.size, dtype=np.int64)  # rows of the next block in each panel
        self.below[: max(inner - 1, 0)] = width[1:inner]
        self.rest = np.where(np.arange(width.size) < inner, r, 0)  # rows of the border
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
        k = np.repeat(np.arange(width.size), width)
        self.pivot = self.panel[k] + (np.arange(n) - self.start[k]) * (width[k] + 1)  # the diagonal in the order
        self.diagonal = self.pivot[place]
        self.height, self.width = height, width

    def __getstate__(self) -> dict[str, Any]:
        kept = ("n", "indptr", "indices", "order", "start", "n_border")  # the rest follows from them
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.verify()

    def verify(self) -> None:
        """Make it anew from its pattern and blocks; ValueError where these are none: compiled loops may rely on it."""
        A = sp.csc_array((np.ones(self.indices.size), self.indices, self.indptr), shape=(self.n, self.n))
        A.check_format(full_check=True)
        if self.order.shape != (self.n,) or not np.array_equal(np.sort(self.order), np.arange(self.n)):
            raise ValueError("the order of an analysis is no permutation")
        width, r = np.diff(self.start), self.n_border
        whole = width.size > 0 and (width > 0).all() and self.start[0] == 0 and self.start[-1] == self.n
        if not whole or r not in (0, width[-1]):
            raise ValueError("the blocks of an analysis are none")
        block = np.empty(self.n, dtype=np.int64)
        block[self.order] = np.repeat(np.arange(width.size), width)
        apart = np.abs(block[self.indices] - np.repeat(block, np.diff(self.indptr))) > 1
        last = width.size - 1
        touching = (block[self.indices] == last) | (np.repeat(block, np.diff(self.indptr)) == last)
        if (apart & ~(touching & (r > 0))).any():
            raise ValueError("the blocks of an analysis touch others than the next")
        self._place()
        if self.work > _MOST_OF_FILES:
            raise ValueError("the blocks of an analysis are too large")

    def same_pattern(self, A: Any) -> bool:
        return np.array_equal(A.indptr, self.indptr) and np.array_equal(A.indices, self.indices)

    def laid_out(self, data: np.ndarray) -> np.ndarray:
        """Values on the pattern as panels (nnz,)."""
        out = np.zeros(self.nnz)
        out[self.everywhere] = data
        return out

    def factor(self, data: np.ndarray) -> ChainCholesky:
        """The factor from values alone, in the order of the csc array analysed; taken as symmetric and finite."""
        return ChainCholesky(self, self.laid_out(data))

    def factor_of(self, x: np.ndarray) -> ChainCholesky:
        """The factor of a matrix by its panels, whose memory it takes."""
        return ChainCholesky(self, x)

    def panels(self, x: np.ndarray) -> list[np.ndarray]:
        """Views (height, width) of the panels in x."""
        edges = self.panel.tolist()
        shapes = zip(self.height.tolist(), self.width.tolist(), strict=True)
        return [x[a:b].reshape(shape) for a, b, shape in zip(edges[:-1], edges[1:], shapes, strict=True)]

    def scatter(self, k: int, U: np.ndarray, panels: list[np.ndarray]) -> None:
        """Subtract U (rows below block k, the same) from the panels that hold these rows."""
        b = int(self.below[k])
        if b:
            after = panels[k + 1]
            after[:b] -= U[:b, :b]
            after[b + int(self.below[k + 1]) :] -= U[b:, :b]
        if self.n_border:
            panels[-1] -= U[b:, b:]

    def gather(self, k: int, panels: list[np.ndarray]) -> np.ndarray:
        """The symmetric matrix at the rows below block k, from panels whose squares are whole."""
        b, r = int(self.below[k]), self.n_border
        if not b or not r:
            return panels[k + 1][:b, :b] if b else panels[-1]
        out, after = np.empty((b + r, b + r)), panels[k + 1]
        out[:b, :b] = after[:b]
        out[b:, :b] = after[b + int(self.below[k + 1]) :]
        out[:b, b:] = out[b:, :b].T
        out[b:, b:] = panels[-1]
        return out


class ChainCholesky:
    """A = L L' by a chain of blocks; a ``StoredFactorisation``."""

    _z: np.ndarray | None = None

    def __init__(self, symbolic: ChainAnalysis, x: np.ndarray) -> None:
        note(factorisations=1)
        self.symbolic, self.n, self._x = symbolic, symbolic.n, x
        self._diagonal = x[symbolic.pivot]
        panels = symbolic.panels(x)
        for k, F in enumerate(panels):
            w = F.shape[1]
            square = F[:w]
            L, info = dpotrf(square.T, lower=0, overwrite_a=1, clean=0)  # Fortran sees the upper triangle
            if info:
                raise NotPositiveDefinite(
                    f"the pivot of row {symbolic.order[symbolic.start[k] + info - 1]} is not positive"
                )
            if not np.shares_memory(L, square):
                square[:] = L.T
            if F.shape[0] > w:
                below = F[w:]
                solved = dtrsm(1.0, square.T, below.T, trans_a=1, overwrite_b=1).T
                if not np.shares_memory(solved, below):
                    below[:] = solved
                symbolic.scatter(k, below @ below.T, panels)

    def verify(self) -> None:
        """Raise ValueError where its arrays are not of the sizes that the analysis asks for."""
        S = self.symbolic
        if type(S) is not ChainAnalysis:
            raise ValueError("the analysis of a factor is none")
        sizes = [(self._x, S.nnz), (self._diagonal, S.n)]
        sizes += [] if self._z is None else [(self._z, S.nnz), (self._y, S.nnz)]
        if not all(type(x) is np.ndarray and x.dtype == np.float64 and x.shape == (n,) for x, n in sizes):
            raise ValueError("the arrays of a factor are not of the sizes of its analysis")

    @cached_property
    def log_det(self) -> float:
        """log |A|."""
        return 2.0 * float(np.log(self._x[self.symbolic.pivot]).sum())

    @cached_property
    def smallest_pivot(self) -> float:
        """min_i L_ii^2 / A_ii, in (0, 1]: 1 over it is the least that rounding is amplified by."""
        return float((self._x[self.symbolic.pivot] ** 2 / self._diagonal).min())

    @cached_property
    def log_det_rounding(self) -> float:
        """What rounding did to log|A|, as a root mean square: eps |diag(A^-1) o diag(A)|."""
        if self._z is None and self.smallest_pivot > HARMLESS:
            return EPS * self.n**0.5 / self.smallest_pivot
        each = self.stored_inverse()[self.symbolic.pivot] * self._diagonal
        return EPS * float(np.sqrt(np.sum(each * each)))

    # -- solves ----------------------------------------------------------------------------------------
    def solve(self, b: ArrayLike) -> np.ndarray:
        """A^-1 b for b (n,) or (n, k)."""
        S = self.symbolic
        y = np.asarray(checked_columns(b, self.n)[S.order], order="C")
        for k, F in enumerate(S.panels(self._x)):
            w, at = F.shape[1], int(S.start[k])
            own = y[at : at + w]
            own[:] = dtrsm(1.0, F[:w].T, own.T, side=1, trans_a=0).T
            for rows, part in self._below(k, F):
                y[rows] -= part @ own
        return self._upwards(y, np.shape(b))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """L^-T noise: draws with covariance A^-1 from standard normal noise (n,) or (n, k)."""
        return self._upwards(checked_columns(noise, self.n).copy(), np.shape(noise))

    def _upwards(self, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """L^-T y, back in the order of A; y is overwritten."""
        S, panels = self.symbolic, self.symbolic.panels(self._x)
        for k in range(len(panels) - 1, -1, -1):
            F, at = panels[k], int(S.start[k])
            w = F.shape[1]
            own = y[at : at + w]
            for rows, part in self._below(k, F):
                own -= part.T @ y[rows]
            own[:] = dtrsm(1.0, F[:w].T, own.T, side=1, trans_a=1).T
        out = np.empty_like(y)
        out[S.order] = y
        return out.reshape(shape)

    def _below(self, k: int, F: np.ndarray) -> list[tuple[slice, np.ndarray]]:
        """The rows below block k in the order, with L21 there."""
        S, w = self.symbolic, F.shape[1]
        b, after = int(S.below[k]), int(S.start[k + 1])
        out = [(slice(after, after + b), F[w : w + b])] if b else []
        return out + ([(slice(self.n - S.n_border, self.n), F[w + b :])] if S.rest[k] else [])

    # -- the inverse on the pattern ----------------------------------------------------------------------
    def stored_inverse(self) -> np.ndarray:
        """A^-1 as panels; computed when first asked for, with A11^-1 and Y of each panel beside it."""
        if self._z is None:
            note(inverses=1)
            S = self.symbolic
            z, self._y = np.empty(S.nnz), np.empty(S.nnz)
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
            self._z = z
        return self._z

    def inverse_data(self) -> np.ndarray:
        """A^-1 on the pattern, in the order of the csc array analysed."""
        return self.stored_inverse()[self.symbolic.everywhere]

    def inverse_diagonal(self) -> np.ndarray:
        """diag(A^-1) (n,)."""
        return self.stored_inverse()[self.symbolic.diagonal]

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W A^-1 W'), T the map from the rows' weights to the entries of W' diag(.) W on the pattern."""
        return np.asarray(T.T @ self.inverse_data())

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 on the pattern, E by its values there."""
        return self.stored_sandwich(self.symbolic.laid_out(data))[self.symbolic.everywhere]

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """The same as panels, of E by its panels, whose memory is taken."""
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
    """The chain of A, a canonical symmetric csc array with both triangles; None where another backend is faster."""
    n = A.shape[0]
    whole = ChainAnalysis(A, np.arange(n), np.array([0, n]), 0) if n <= ONE_BLOCK else None
    if n <= WHOLE or n > LARGEST:
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
    """An order of A, a symmetric csr array, and where its blocks begin: each holds the neighbours of the one before."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = A.shape[0]
    order = reverse_cuthill_mckee(A, symmetric_mode=True)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    furthest = np.zeros(n, dtype=np.int64)  # the last neighbour of each in the order
    np.maximum.at(furthest, np.repeat(place, np.diff(A.indptr)), place[A.indices])
    furthest = np.maximum.accumulate(furthest)
    start = [0, min(BLOCK, n)]
    while start[-1] < n:
        start.append(min(max(int(furthest[start[-1] - 1]) + 1, start[-1] + BLOCK), n))
    return order, start
