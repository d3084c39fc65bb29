"""The rows of a design in the three kinds of a layout, with all that does not depend on lam found once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .layout import Layout, block_stack
from .pairs import Pairs

_CHUNK = 8  # columns of the border at a time


class RowSet:
    """A = (A_1, A_m, A_b) over the rows of a fit.

    Attributes
    ----------
    pairs : Pairs of A_1 and A_m
    starts : list of int
        Where each part of the middle begins there.
    """

    def __init__(self, layout: Layout, A: Any) -> None:
        self.layout = layout
        self.A1, self.Am, self.Ab = layout.split(A)
        self.starts = [0, *np.cumsum([part.n for part in layout.middle]).tolist()][:-1]

    def __getstate__(self) -> dict[str, Any]:
        """The rows alone: the rest is made of them."""
        return {key: self.__dict__[key] for key in ("layout", "A1", "Am", "Ab", "starts")}

    def verify(self) -> None:
        """Refuse rows of a file that do not fit their layout: compiled loops rely on it."""
        found = [(A.shape[1], A.shape[0]) for A in (self.A1, self.Am, self.Ab)]
        if found != [(n, self.Ab.shape[0]) for n in self.layout.sizes]:
            raise ValueError("the rows do not fit their layout")

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.A1, self.Am)

    @cached_property
    def row_of_middle(self) -> np.ndarray:
        return np.repeat(np.arange(self.Am.shape[0]), np.diff(self.Am.indptr))

    @cached_property
    def whole(self) -> sp.csr_array:
        """The three side by side."""
        return sp.csr_array(sp.hstack([self.A1, self.Am, self.Ab], format="csr"))

    @cached_property
    def _whole_t(self) -> sp.csr_array:
        return sp.csr_array(self.whole.T.tocsr())

    # -- products -------------------------------------------------------------------------------------
    def times(self, x: np.ndarray) -> np.ndarray:
        """A x for x (L, m) in the order of the layout."""
        return np.asarray(self.whole @ x)

    def adjoint(self, a: np.ndarray) -> np.ndarray:
        """A' a for a (N, m)."""
        return np.asarray(self._whole_t @ a)

    # -- A' Lam A in its parts ------------------------------------------------------------------------
    def cross(self, lam: np.ndarray) -> sp.csr_array:
        """A_1' Lam A_m."""
        return self.pairs.gram(lam)

    @cached_property
    def _own_first(self) -> Pairs:
        return Pairs(self.A1, self.A1)

    @cached_property
    def _own_middle(self) -> Pairs | None:
        return Pairs(self.Am, self.Am) if self.layout.middle else None

    @cached_property
    def _inside(self) -> list[np.ndarray]:
        """The entries of A_m' Lam A_m that lie in the blocks of each part."""
        pairs = self._own_middle
        assert pairs is not None
        row = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        out = []
        for part, at in zip(self.layout.middle, self.starts, strict=True):
            i, j = row - at, pairs.indices - at
            out.append(np.flatnonzero((i >= 0) & (i < part.n) & (i // part.d == j // part.d)))
        return out

    def own_grams(self, lam: np.ndarray) -> list[np.ndarray]:
        """The blocks of A' Lam A of the first and of each part of the middle."""
        first = self.layout.first
        out: list[np.ndarray] = []
        self._last: sp.csr_array | None = None
        if first is not None:
            if first.d == 1:
                data = lam[self._row_of_first] * self.A1.data**2
                out.append(np.bincount(self.A1.indices, data, minlength=first.n)[:, None, None])
            else:
                out.append(block_stack(self._own_first.gram(lam), first.d))
        if self._own_middle is not None:
            whole = self._last = self._own_middle.gram(lam)
            row = np.repeat(np.arange(whole.shape[0]), np.diff(whole.indptr))
            for part, at, inside in zip(self.layout.middle, self.starts, self._inside, strict=True):
                stack = np.zeros((part.blocks, part.d, part.d))
                i, j = row[inside] - at, whole.indices[inside] - at
                stack[i // part.d, i % part.d, j % part.d] = whole.data[inside]
                out.append(stack)
        return out

    @cached_property
    def _row_of_first(self) -> np.ndarray:
        return np.repeat(np.arange(self.A1.shape[0]), np.diff(self.A1.indptr))

    @cached_property
    def _outside(self) -> np.ndarray:
        """The entries of A_m' Lam A_m that join blocks."""
        pairs = self._own_middle
        assert pairs is not None
        keep = np.ones(pairs.indices.size, dtype=bool)
        for inside in self._inside:
            keep[inside] = False
        return np.flatnonzero(keep)

    def off_grams(self, lam: np.ndarray) -> sp.csr_array | None:
        """What of A_m' Lam A_m joins blocks; None where nothing does."""
        whole = self._last
        if whole is None or not self._outside.size:
            return None
        kept = self._outside
        row = np.repeat(np.arange(whole.shape[0]), np.diff(whole.indptr))[kept]
        indptr = np.searchsorted(row, np.arange(whole.shape[0] + 1))
        return sp.csr_array((whole.data[kept], whole.indices[kept], indptr), shape=whole.shape)

    def borders(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A_1' Lam A_b, A_m' Lam A_b and A_b' Lam A_b, dense."""
        n1, nm, p = self.layout.sizes
        out, columns = np.empty((n1 + nm + p, p)), self.Ab.tocsc()
        for i in range(0, p, _CHUNK):
            some = slice(i, min(p, i + _CHUNK))
            out[:, some] = self._whole_t @ (lam[:, None] * columns[:, some].toarray())
        return out[:n1], out[n1 : n1 + nm], out[n1 + nm :]

    def first_form(self, blocks: np.ndarray) -> np.ndarray:
        """a_1' B a_1 of each row (N,), for blocks B of the first part."""
        if blocks.shape[1] == 1:
            values = blocks[self.A1.indices, 0, 0] * self.A1.data**2
            return np.bincount(self._row_of_first, values, minlength=self.A1.shape[0])
        own = self._own_first
        row = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
        d = blocks.shape[1]
        entries = blocks[row // d, row % d, own.indices % d]
        return own.form(entries, self.A1.data, self.A1.data, self.A1.shape[0])
