"""The layout of the latents: those that are eliminated, those in blocks, and a dense border; the design split alike.

    z = (z_1, z_m, z_b):   the term with the most levels, the other large terms, fixed effects and small terms
    Q is block diagonal,   and so is P_11 = Q_11 + A_1' Lam A_1 (a row sees one level of z_1)

A block has the latents of one level: one latent for ``(1|g)``, two for ``(x|g)``. A row of A stores whole blocks,
including zeros, so that the pattern of a product of two terms consists of whole blocks, also after blocks are
factorised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Refusal, problem
from ..gmrf.stack import BlockPrecision, StackedField

LARGEST = 8  # most latents of a block; terms with larger blocks are not supported
SMALL = 100  # most latents of a term in the border
WIDEST = 120  # most latents of the border
_CHUNK = 8  # columns of the border that are dense at a time


@dataclass(frozen=True)
class LayoutPart:
    """The latents of one term.

    field : index of the term
    start, n : first latent, and number of latents
    d : latents of a block, 0 if the precision has no small blocks
    single : whether each row sees at most one block
    """

    field: int
    start: int
    n: int
    d: int
    single: bool

    @property
    def blocks(self) -> int:
        return self.n // self.d

    @property
    def here(self) -> slice:
        return slice(self.start, self.start + self.n)


class LatentLayout:
    """The latents of a sum of terms, in the order in which they are processed.

    Parameters
    ----------
    family : StackedField
        The prior, whose terms have precisions made of small blocks or few latents.
    names : sequence of str
        Names of the terms, for messages.

    Attributes
    ----------
    first : LayoutPart or None
        The term that is eliminated.
    middle : list of LayoutPart
        The other large terms.
    border : list of LayoutPart
        Small terms; the fixed effects follow them.
    order : int array (L,)
        Indices of the latents in the order (first, middle, border).
    """

    def __init__(self, family: StackedField, names: Sequence[str]) -> None:
        made = family.build.build
        assert isinstance(made, BlockPrecision)
        if family.constraints is not None:
            constrained = [field.constraints is not None for field in made.fields]
            raise _refusal(names[constrained.index(True)], "it has constraints")
        self.precision, self.A = made, sp.csr_array(family.design)
        self.n_fixed = made.n_fixed
        parts, start = [], 0
        for i, (field, n) in enumerate(zip(made.fields, made.widths, strict=True)):
            own = self.A[:, start : start + n].tocsr()
            parts.append(_read(own, i, start, n, field.build(field.theta)[0]))
            start += n
        self.border, room = [], WIDEST - self.n_fixed
        for part in sorted(parts, key=lambda part: part.n):
            if part.n > min(SMALL, room):
                break
            self.border.append(part)
            room -= part.n
        self.border.sort(key=lambda part: part.start)
        large = [part for part in parts if part not in self.border]
        for part in large:
            if part.d == 0:
                what = f"its precision has no blocks of up to {LARGEST} latents, and it has {part.n}"
                raise _refusal(names[part.field], what)
        self.first = max((part for part in large if part.single), key=lambda part: part.n, default=None)
        self.middle = [part for part in large if part is not self.first]

    @property
    def n_latents(self) -> int:
        return int(self.A.shape[1])

    @property
    def large(self) -> list[LayoutPart]:
        """The first part and the parts of the middle."""
        return [*([] if self.first is None else [self.first]), *self.middle]

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of latents of the first part, of the middle and of the border."""
        n1 = 0 if self.first is None else self.first.n
        middle = sum(part.n for part in self.middle)
        return n1, middle, self.n_latents - n1 - middle

    @cached_property
    def order(self) -> np.ndarray:
        every = np.arange(self.n_latents)
        parts = [every[part.here] for part in (*self.large, *self.border)]
        return np.concatenate([*parts, every[self.n_latents - self.n_fixed :]])

    def split(self, A: Any) -> tuple[sp.csr_array, sp.csr_array, sp.csr_array]:
        """Split a design over all latents into first part, middle and border, the first two in whole blocks."""
        A = sp.csr_array(A)
        none = sp.csr_array((A.shape[0], 0))
        one = none if self.first is None else _closed(A[:, self.first.here], self.first.d)
        middle = [_closed(A[:, part.here], part.d) for part in self.middle]
        edge = [A[:, part.here] for part in self.border] + [A[:, self.n_latents - self.n_fixed :]]
        return one, sp.csr_array(sp.hstack([none, *middle], format="csr")), sp.csr_array(sp.hstack(edge, format="csr"))

    def prior(self, theta: np.ndarray) -> tuple[list[np.ndarray], list[tuple[int, np.ndarray]]]:
        """Q as stacks of blocks, and its derivative in each theta: (index of the stack, blocks).

        The stacks (K, d, d) are for the first part and each part of the middle; the last one is the border's matrix.
        """
        made = [field.build(part) for field, part in self.precision.split(theta)]
        place = {part.field: i for i, part in enumerate(self.large)}
        inside, at = {}, 0
        for part in self.border:
            inside[part.field] = slice(at, at + part.n)
            at += part.n

        def on_border(field: int, matrix: Any) -> np.ndarray:
            out = np.zeros((self.sizes[2],) * 2)
            out[inside[field], inside[field]] = matrix.toarray()
            return out

        fixed = np.zeros(self.sizes[2])
        fixed[at:] = 1.0 / np.broadcast_to(self.precision.fixed_variance, (self.n_fixed,))
        edge = sum((on_border(field, made[field][0]) for field in inside), np.diag(fixed))
        Q = [block_stack(made[part.field][0], part.d) for part in self.large]
        slopes: list[tuple[int, np.ndarray]] = []
        for field, (_, derivatives) in enumerate(made):
            for dQ in derivatives:
                if field in place:
                    slopes.append((place[field], block_stack(dQ, self.large[place[field]].d)))
                else:
                    slopes.append((len(self.large), on_border(field, dQ)))
        return [*Q, edge], slopes


def block_stack(Q: Any, d: int) -> np.ndarray:
    """The diagonal blocks (K, d, d) of a block diagonal sparse matrix."""
    entries = sp.coo_array(Q)
    i, j = entries.coords
    out = np.zeros((Q.shape[0] // d, d, d))
    np.add.at(out, (i // d, i % d, j % d), entries.data)
    return out


def _read(A: sp.csr_array, field: int, start: int, n: int, Q: Any) -> LayoutPart:
    """The part of one term, with the smallest blocks of Q such that each row sees one block, if there are any."""
    i, j = sp.coo_array(Q).coords
    sizes = [d for d in range(1, LARGEST + 1) if n % d == 0 and (i // d == j // d).all()]
    row = _row_of(A)
    same = row[1:] == row[:-1]
    for d in sizes:
        block = A.indices // d
        if not (same & (block[1:] != block[:-1])).any():
            return LayoutPart(field, start, n, d, True)
    return LayoutPart(field, start, n, sizes[0] if sizes else 0, False)


def _closed(A: Any, d: int) -> sp.csr_array:
    """The design with explicit zeros, such that each row stores whole blocks."""
    A = sp.csr_array(A)
    if d > 1:
        blocks = A.tobsr((1, d)).tocsr()
        A = sp.csr_array((blocks.data, blocks.indices, blocks.indptr), shape=A.shape)
    A.sort_indices()
    return A


def _row_of(A: sp.csr_array) -> np.ndarray:
    """The row index of each stored entry."""
    return np.repeat(np.arange(A.indptr.size - 1), np.diff(A.indptr))


def _refusal(name: str, why: str) -> Refusal:
    return problem(
        "iterative engine",
        f"the term {name} is not supported: {why}",
        f"independent groups, (1|g), (x|g), several groups for each row, and terms of at most {SMALL} latents",
        'Use engine="direct".',
    )


# -- rows ---------------------------------------------------------------------------------------------------
class CrossRowPairs:
    """A' Lam B for sparse designs A (N, k) and B (N, l) with the same rows, on a pattern that is computed once.

    Each row n contributes the products a_i b_j of its entries. Their positions in the result are stored, so that a new
    lam costs one pass.

    Attributes
    ----------
    row : int array
        Row n of each product.
    left, right : int arrays
        Indices of its entries of A and B.
    where : int array
        Its entry of the csr pattern (``indptr``, ``indices``), in which ``owner`` is the row of each entry.
    """

    def __init__(self, A: sp.csr_array, B: sp.csr_array) -> None:
        self.shape = (A.shape[1], B.shape[1])
        a, b = np.diff(A.indptr), np.diff(B.indptr)
        each = a * b
        self.row = np.repeat(np.arange(A.shape[0], dtype=np.int32), each)
        inside = np.arange(each.sum(), dtype=np.int64) - np.repeat(np.cumsum(each) - each, each)
        wide = np.repeat(np.maximum(b, 1), each)
        self.left = (np.repeat(A.indptr[:-1], each) + inside // wide).astype(np.int32)
        self.right = (np.repeat(B.indptr[:-1], each) + inside % wide).astype(np.int32)
        key = A.indices[self.left].astype(np.int64) * B.shape[1] + B.indices[self.right]
        entries, where = np.unique(key, return_inverse=True)
        self.where = where.astype(np.int32)
        self.owner, indices = np.divmod(entries, max(B.shape[1], 1))
        self.indices = indices.astype(np.int32)
        self.indptr = np.searchsorted(self.owner, np.arange(A.shape[1] + 1)).astype(np.int32)
        product = A.data[self.left] * B.data[self.right]
        self.product = None if (product == 1.0).all() else product

    def gram(self, lam: np.ndarray) -> sp.csr_array:
        """A' diag(lam) B."""
        weight = lam[self.row]
        if self.product is not None:
            weight *= self.product
        data = np.bincount(self.where, weight, minlength=self.indices.size)
        return sp.csr_array((data, self.indices, self.indptr), shape=self.shape)

    def form(self, entries: np.ndarray, left: np.ndarray, right: np.ndarray, n: int) -> np.ndarray:
        """a_n' W b_n of each row (n,), where W has ``entries`` on this pattern, with the data of both designs."""
        value = entries[self.where]
        value *= left[self.left]
        value *= right[self.right]
        return np.bincount(self.row, value, minlength=n)


class RowSet:
    """The rows A = (A_1, A_m, A_b) of a fit, split by a layout, with everything that does not depend on lam.

    Attributes
    ----------
    pairs : CrossRowPairs of A_1 and A_m
    starts : list of int
        First latent of each part of the middle, within the middle.
    """

    def __init__(self, layout: LatentLayout, A: Any) -> None:
        self.layout = layout
        self.A1, self.Am, self.Ab = layout.split(A)
        self.starts = [0, *np.cumsum([part.n for part in layout.middle]).tolist()][:-1]

    @cached_property
    def pairs(self) -> CrossRowPairs:
        return CrossRowPairs(self.A1, self.Am)

    @cached_property
    def _own_first(self) -> CrossRowPairs:
        return CrossRowPairs(self.A1, self.A1)

    @cached_property
    def _own_middle(self) -> CrossRowPairs:
        return CrossRowPairs(self.Am, self.Am)

    @cached_property
    def whole(self) -> sp.csr_array:
        """The three designs side by side."""
        return sp.csr_array(sp.hstack([self.A1, self.Am, self.Ab], format="csr"))

    @cached_property
    def _whole_t(self) -> sp.csr_array:
        return sp.csr_array(self.whole.T.tocsr())

    def times(self, x: np.ndarray) -> np.ndarray:
        """A x for x (L, m) in the order of the layout."""
        return np.asarray(self.whole @ x)

    def adjoint(self, a: np.ndarray) -> np.ndarray:
        """A' a for a (N, m)."""
        return np.asarray(self._whole_t @ a)

    @cached_property
    def block_of_middle(self) -> np.ndarray:
        """The first latent of the block of each latent of the middle."""
        parts = [at + part.d * (np.arange(part.n) // part.d) for part, at in zip(self.layout.middle, self.starts)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def grams(self, lam: np.ndarray) -> tuple[list[np.ndarray], sp.csr_array | None]:
        """The diagonal blocks of A' Lam A for first part and middle, and the rest of A_m' Lam A_m, or None."""
        first, out = self.layout.first, []
        if first is not None:
            out.append(block_stack(self._own_first.gram(lam), first.d))
        if not self.layout.middle:
            return out, None
        pairs, block = self._own_middle, self.block_of_middle
        whole, i, j = pairs.gram(lam), pairs.owner, pairs.indices
        inside = block[i] == block[j]
        for part, at in zip(self.layout.middle, self.starts, strict=True):
            own = inside & (i >= at) & (i < at + part.n)
            stack = np.zeros(part.n * part.d)
            stack[(i[own] - at) * part.d + (j[own] - at) % part.d] = whole.data[own]
            out.append(stack.reshape(part.blocks, part.d, part.d))
        if inside.all():
            return out, None
        return out, sp.csr_array((whole.data[~inside], (i[~inside], j[~inside])), shape=whole.shape)

    def borders(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A_1' Lam A_b, A_m' Lam A_b and A_b' Lam A_b as dense arrays."""
        n1, nm, p = self.layout.sizes
        out, columns = np.empty((n1 + nm + p, p)), self.Ab.tocsc()
        for i in range(0, p, _CHUNK):
            some = slice(i, min(p, i + _CHUNK))
            out[:, some] = self._whole_t @ (lam[:, None] * columns[:, some].toarray())
        return out[:n1], out[n1 : n1 + nm], out[n1 + nm :]

    def first_form(self, blocks: np.ndarray) -> np.ndarray:
        """a_1' B a_1 for each row (N,), with blocks B of the first part."""
        own, d = self._own_first, blocks.shape[1]
        entries = blocks[own.owner // d, own.owner % d, own.indices % d]
        return own.form(entries, self.A1.data, self.A1.data, self.A1.shape[0])

    def middle_squares(self, data: np.ndarray) -> np.ndarray:
        """Sum of squares of each row (N,), for entries ``data`` on the pattern of A_m."""
        return np.bincount(_row_of(self.Am), data**2, minlength=self.Am.shape[0]).astype(np.float64)
