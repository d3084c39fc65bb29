"""How much linear algebra a fit did: factorisations, selected inverses and products counted while a block runs.

Counts are kept in the context, so fits on other threads of Python do not mix; a block within another counts in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Tally:
    """What was done within a block.

    Attributes
    ----------
    factorisations : int
        Cholesky factorisations: of sparse matrices (a prior's own among them), of dense ones by LAPACK.
    inverses : int
        Inverses of sparse matrices on their pattern.
    products : int
        A^-1 E A^-1 of sparse matrices: one for each (Vt o Vt) v.
    """

    factorisations: int = 0
    inverses: int = 0
    products: int = 0
    outer: Tally | None = None


_current: ContextVar[Tally | None] = ContextVar("fenchel-tally", default=None)


@contextmanager
def counting() -> Iterator[Tally]:
    """Count what happens inside."""
    tally = Tally(outer=_current.get())
    token = _current.set(tally)
    try:
        yield tally
    finally:
        _current.reset(token)


def counted() -> Tally:
    """The counts of the innermost block; zeros outside of all."""
    return _current.get() or Tally()


def note(factorisations: int = 0, inverses: int = 0, products: int = 0) -> None:
    """Add to every block that is open."""
    tally = _current.get()
    while tally is not None:
        tally.factorisations += factorisations
        tally.inverses += inverses
        tally.products += products
        tally = tally.outer
