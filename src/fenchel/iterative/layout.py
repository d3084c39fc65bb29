"""Which latents are eliminated, which are met in blocks, and which make a dense border.

    z = (z_1, z_m, z_b):   the term with the most levels, the other large terms, fixed effects and small terms
    Q is block diagonal,   P_11 = Q_11 + A_1' Lam A_1 too (a row sees one level of z_1)

A block holds what belongs to one level: one latent of ``(1|g)``, two of ``(x|g)``. A row of A holds whole blocks, zeros
and all, so that the pattern of a product of two terms is one of whole blocks and stays so when blocks are factorised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..gmrf.stack import BlockPrecision, StackedField

LARGEST = 8  # latents of a block
SMALL = 100  # latents of a term that joins the border
WIDEST = 120  # latents of the border


@dataclass(frozen=True)
class Part:
    """The latents of one term: where they stand among all, how many a block holds, and whether a row sees one block."""

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


class Layout:
    """The latents of a sum of terms in the order in which they are worked on.

    Parameters
    ----------
    family : StackedField
        The prior, whose terms have precisions made of small blocks or few latents.
    names : sequence of str
        Of the terms, for messages.

    Attributes
    ----------
    first : Part or None
        The term that is eliminated.
    middle : list of Part
    border : list of Part
        Small terms; the fixed effects come behind them.
    order : int array (L,)
        The numbers of the latents in the order (first, middle, border).
    """

    def __init__(self, family: StackedField, names: Sequence[str]) -> None:
        made = family.build.build
        assert isinstance(made, BlockPrecision)
        if family.constraints is not None:
            guilty = next(n for n, field in zip(names, made.fields, strict=True) if field.constraints is not None)
            raise _refused(guilty, "it has constraints")
        self.precision, self.A = made, sp.csr_array(family.design)
        self.n_fixed = made.n_fixed
        starts = np.cumsum([0, *made.widths])
        parts = [
            _read(self.A[:, a : a + n].tocsr(), i, int(a), n, field.build(field.theta)[0], names[i])
            for i, (field, a, n) in enumerate(zip(made.fields, starts[:-1], made.widths, strict=True))
        ]
        small, room = [], WIDEST - self.n_fixed
        for part in sorted(parts, key=lambda part: part.n):
            if part.n > SMALL or part.n > room:
                break
            small.append(part)
            room -= part.n
        self.border = sorted(small, key=lambda part: part.start)
        large = [part for part in parts if part not in small]
        for part in large:
            if part.d == 0:
                what = f"its precision has no blocks of up to {LARGEST} latents, and it has {part.n}"
                raise _refused(names[part.field], what)
        self.first = max((part for part in large if part.single), key=lambda part: part.n, default=None)
        self.middle = [part for part in large if part is not self.first]

    @property
    def n_latents(self) -> int:
        return int(self.A.shape[1])

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Latents that are eliminated, in the middle, and of the border."""
        n1 = 0 if self.first is None else self.first.n
        middle = sum(part.n for part in self.middle)
        return n1, middle, self.n_latents - n1 - middle

    @cached_property
    def order(self) -> np.ndarray:
        parts = [*([] if self.first is None else [self.first]), *self.middle, *self.border]
        fixed = np.arange(self.n_latents - self.n_fixed, self.n_latents)
        return np.concatenate([*(np.arange(part.start, part.start + part.n) for part in parts), fixed])

    def split(self, A: Any) -> tuple[sp.csr_array, sp.csr_array, sp.csr_array]:
        """A design over all latents as those of the three kinds, the first two in whole blocks."""
        A = sp.csr_array(A)
        none = sp.csr_array((A.shape[0], 0))
        one = none if self.first is None else _closed(A[:, self.first.here], self.first.d)
        middle = [_closed(A[:, part.here], part.d) for part in self.middle]
        edge = [A[:, part.here] for part in self.border] + [A[:, self.n_latents - self.n_fixed :]]
        return (
            sp.csr_array(one),
            sp.csr_array(sp.hstack(middle, format="csr")) if middle else none,
            sp.csr_array(sp.hstack(edge, format="csr")),
        )

    def stacks(self, matrices: Sequence[Any]) -> list[np.ndarray]:
        """A matrix for each term as blocks: (K, d, d) of the first and of each in the middle, then the border's.

        The fixed effects' own block of the border is left 0.
        """
        out = [block_stack(matrices[part.field], part.d) for part in self.large]
        edge, at = np.zeros((self.sizes[2],) * 2), 0
        for part in self.border:
            edge[at : at + part.n, at : at + part.n] = matrices[part.field].toarray()
            at += part.n
        return [*out, edge]

    @property
    def large(self) -> list[Part]:
        """The first and those in the middle."""
        return [*([] if self.first is None else [self.first]), *self.middle]

    def prior(self, theta: np.ndarray) -> tuple[list[np.ndarray], list[tuple[int, np.ndarray]]]:
        """Q as blocks, in the order of ``stacks``, and for each theta the derivative: (which stack, its blocks)."""
        made = [field.build(part) for field, part in self.precision.split(theta)]
        Q = self.stacks([q for q, _ in made])
        p = self.n_fixed
        if p:
            Q[-1][-p:, -p:] = np.diag(1.0 / np.broadcast_to(self.precision.fixed_variance, (p,)))
        slopes: list[tuple[int, np.ndarray]] = []
        place = {part.field: i for i, part in enumerate(self.large)}
        inside = np.cumsum([0, *(part.n for part in self.border)])
        for field, (_, derivatives) in enumerate(made):
            for dQ in derivatives:
                if field in place:
                    slopes.append((place[field], block_stack(dQ, self.large[place[field]].d)))
                    continue
                k = [part.field for part in self.border].index(field)
                edge = np.zeros((self.sizes[2],) * 2)
                here = slice(inside[k], inside[k + 1])
                edge[here, here] = dQ.toarray()
                slopes.append((len(self.large), edge))
        return Q, slopes


def block_stack(Q: Any, d: int) -> np.ndarray:
    """The blocks (K, d, d) on the diagonal of a sparse matrix that has nothing else."""
    entries = sp.coo_array(Q)
    i, j = entries.coords
    out = np.zeros((Q.shape[0] // d, d, d))
    np.add.at(out, (i // d, i % d, j % d), entries.data)
    return out


def _read(A: sp.csr_array, field: int, start: int, n: int, Q: Any, name: str) -> Part:
    """The blocks of one term: as small as Q allows, and such that a row sees one of them if any size does."""
    i, j = sp.coo_array(Q).coords
    sizes = [d for d in range(1, LARGEST + 1) if n % d == 0 and (i // d == j // d).all()]
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    same = row[1:] == row[:-1]
    for d in sizes:
        block = A.indices // d
        if not (same & (block[1:] != block[:-1])).any():
            return Part(field, start, n, d, True)
    return Part(field, start, n, sizes[0] if sizes else 0, False)


def _closed(A: Any, d: int) -> sp.csr_array:
    """The same design with every entry of a block that a row touches."""
    A = sp.csr_array(A)
    if d == 1:
        A.sort_indices()
        return A
    whole = sp.csr_array(
        (np.ones(A.indices.size), A.indices // d, A.indptr.copy()), shape=(A.shape[0], A.shape[1] // d)
    )
    whole.sum_duplicates()
    row = np.repeat(np.arange(A.shape[0]), np.diff(whole.indptr))
    columns = (d * whole.indices[:, None] + np.arange(d)).ravel()
    pattern = sp.csr_array((np.zeros(columns.size), columns, d * whole.indptr), shape=A.shape)
    position = np.searchsorted(
        np.repeat(row, d).astype(np.int64) * A.shape[1] + columns,
        np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)).astype(np.int64) * A.shape[1] + A.indices,
    )
    np.add.at(pattern.data, position, A.data)
    return pattern


def _refused(name: str, why: str) -> Exception:
    return problem(
        "iterative engine",
        f"the term {name} cannot be worked on: {why}",
        f"independent groups, (1|g), (x|g), several groups a row, and terms of at most {SMALL} latents",
        'Use engine="direct".',
    )
