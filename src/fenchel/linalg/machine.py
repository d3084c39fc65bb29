"""The machine: how many threads there are for whom, how much memory, and how much linear algebra was done on it.

BLAS is held to one thread where its threads would wait for each other longer than they work; ours run instead. Each
core then walks a stretch of rows, a block at a time: on blocks that fit in cache BLAS's own threads wait for each other
ten times longer on a busy machine.

Counts of factorisations, selected inverses and products are kept in the context, so fits on other threads of Python do
not mix; a block within another counts in both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import prod
from pathlib import Path
from threading import Lock, local
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container's memory

_CACHE = 1 << 16  # entries of a block: it and a copy of it stay in the second-level cache
_DEVICE_BLOCK = 1 << 25  # entries of a block on a device: 256 MiB
_FEWEST = 256  # rows of a block: fewer do not repay the call
_ELEMENTWISE = 8192  # rows of a block for elementwise work
_SMALL = 1 << 12  # entries up to which BLAS keeps to one thread by itself
PARALLEL = 1 << 20  # entries from which threads are worth starting
_MAPPED = 1 << 14  # entries from which the system may map fresh memory for an array

_lock = Lock()
_held = 0  # how many callers, on any thread of Python, hold BLAS to one thread now
_alone = 0  # how many of them may have others beside them
_before: list[int] = []  # what each library had before the first of them


@cache
def libraries() -> Any:
    """threadpoolctl's controller of the BLAS libraries numpy and scipy have loaded."""
    import scipy.linalg.blas  # noqa: F401  loaded before they are counted
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def cores(ours: bool = False) -> int:
    """How many threads BLAS may use now; counting them costs more than a small product.

    ``ours`` counts those we may start where BLAS is held to one: as many as it had, unless others run beside us.
    """
    if ours and _held > 0:
        return 1 if _alone > 0 else max(_before, default=1)
    return max((library.get_num_threads() for library in libraries().lib_controllers), default=1)


def side_by_side(tasks: Sequence[Callable[[], T]], n: int) -> list[T]:
    """What the tasks return, on up to n threads, with BLAS on one in each of them."""
    with one_thread():
        if min(n, len(tasks)) <= 1:
            return [task() for task in tasks]
        from concurrent.futures import ThreadPoolExecutor

        contexts = [copy_context() for _ in tasks]  # numpy's errstate lives there
        with ThreadPoolExecutor(min(n, len(tasks))) as pool:
            return list(pool.map(lambda context, task: context.run(task), contexts, tasks))


class one_thread:
    """A context that holds BLAS to one thread, if ``when``; entering and leaving takes some microseconds.

    The setting is the whole process's, so callers on several threads of Python are counted: the first in saves it, the
    last out restores it. Each of them on its own would restore what another had set. ``ours`` says that threads of our
    own may be started meanwhile, for what is large enough: BLAS is held because its work is small, not the cores busy.
    """

    def __init__(self, when: bool = True, ours: bool = False) -> None:
        self.when, self.ours = when, ours

    def __enter__(self) -> None:
        global _held, _alone, _before
        if not self.when:
            return
        with _lock:
            _alone += not self.ours
            if _held == 0:
                _before = [library.get_num_threads() for library in libraries().lib_controllers]
                _set([1] * len(_before))
            _held += 1

    def __exit__(self, *error: object) -> None:
        global _held, _alone
        if not self.when:
            return
        with _lock:
            _alone -= not self.ours
            _held -= 1
            if _held == 0:
                _set(_before)


def _set(counts: list[int]) -> None:
    for library, count in zip(libraries().lib_controllers, counts, strict=True):
        if library.get_num_threads() != count:
            library.set_num_threads(count)
        # threadpoolctl lets the first thread alone set it until told otherwise; the last out may be another
        getattr(library, "clear_controlling_thread", lambda: None)()


def physical_memory() -> float:
    """Bytes of memory this process may hope for: the machine's, or its container's if that is less."""
    try:
        most = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        most = 8.0 * 2**30  # a guess where the system does not say
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            most = min(most, float(Path(name).read_text()))
    return most


# -- rows, a block at a time, on every core ----------------------------------------------------------------
def block_rows(width: int) -> int:
    """How many rows of that many entries make a block."""
    return max(_FEWEST, _CACHE // max(1, width))


def blocks(start: int, stop: int, width: int) -> Iterator[slice]:
    """Stretches of rows of that many entries that make a block each."""
    step = block_rows(width)
    for i in range(start, stop, step):
        yield slice(i, min(stop, i + step))


def on_every_core(n: int, width: int, stretch: Callable[[int, int], T]) -> list[T]:
    """stretch(i, j) for stretches of rows that cover 0..n, in order: as many as BLAS may use threads."""
    if n * width < _SMALL:
        return [stretch(0, n)]
    if n * width < PARALLEL:
        with one_thread():
            return [stretch(0, n)]
    parts = cores()
    edges = [n * c // parts for c in range(parts + 1)]
    return side_by_side([partial(stretch, i, j) for i, j in pairwise(edges)], parts)


def over_rows(n: int, width: int, one: Callable[[slice], T], host: bool) -> list[T]:
    """What ``one`` returns for blocks of rows of that many entries: on every core, or block by block on a device."""
    if not host:
        step = max(1, _DEVICE_BLOCK // max(1, width))
        return [one(slice(i, min(n, i + step))) for i in range(0, n, step)]
    if n * width <= _CACHE:
        return [one(slice(0, n))]
    parts = on_every_core(n, width, lambda start, stop: [one(some) for some in blocks(start, stop, width)])
    return [each for part in parts for each in part]


def in_blocks(n: int, one: Callable[[slice], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Arrays over n rows that ``one`` computes for a slice of them, a block at a time so that its temporaries stay in
    cache and no fresh memory is asked for; None stays None. numpy only."""
    if n <= _ELEMENTWISE:
        return one(slice(0, n))
    first = one(slice(0, _ELEMENTWISE))
    out = {id(x): np.empty((n, *x.shape[1:])) for x in first if x is not None}  # twice the same stays one array

    def stretch(start: int, stop: int) -> None:
        for i in range(start, stop, _ELEMENTWISE):
            block = slice(i, min(stop, i + _ELEMENTWISE))
            for x, part in zip(first, one(block), strict=True):
                if x is not None:
                    out[id(x)][block] = part

    on_every_core(n, PARALLEL, stretch)
    return tuple(None if x is None else out[id(x)] for x in first)


# -- memory that one block of rows after the other uses ---------------------------------------------------
_buffers = local()


@contextmanager
def reused_memory() -> Iterator[None]:
    """Within it, on this thread, ``empty`` gives out again the memory of arrays that are gone.

    Where large arrays are mapped afresh, as in the workers of Dask, the pages cost as much time as the work, and
    several times that where many threads of a process ask for them.
    """
    outer = vars(_buffers).get("pool")
    _buffers.pool = [np.empty(0)]
    try:
        yield
    finally:
        _buffers.pool = outer


def empty(*shape: int) -> np.ndarray:
    """As ``np.empty``; within ``reused_memory`` from a buffer that no array looks at any more, if one fits."""
    pool, size = vars(_buffers).get("pool"), prod(shape)
    if pool is None or size < _MAPPED:
        return np.empty(shape)
    counts = [sys.getrefcount(buffer) for buffer in pool]  # the first is never given out: nothing looks at it
    free = [k for k, count in enumerate(counts) if count == counts[0] and size <= pool[k].size <= 2 * size]
    if not free:
        pool.append(np.empty(size))
    return np.asarray(pool[min(free, key=lambda k: pool[k].size) if free else -1][:size].reshape(shape))


# -- how much linear algebra was done ----------------------------------------------------------------------
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
