"""Numbers of threads, memory, and counts of the linear algebra that was done.

BLAS uses one thread where its threads would mainly wait for each other, and this package starts threads instead. Each
core takes a range of rows and computes it block by block. On blocks that fit in the cache BLAS's own threads wait up to
ten times longer on a busy machine.

Counts of factorisations, selected inverses and products are context variables, so that fits in several Python threads
are counted separately; a nested block counts in the outer one, too.
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

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # memory limits of a container

_CACHE = 1 << 16  # entries of a block, so that it and a copy fit in the second-level cache
_DEVICE_BLOCK = 1 << 25  # entries of a block on a device: 256 MiB
_FEWEST = 256  # least rows of a block, below which calls dominate
_ELEMENTWISE = 8192  # rows of a block in elementwise computations
_SMALL = 1 << 12  # entries up to which BLAS uses one thread anyway
PARALLEL = 1 << 20  # entries from which threads pay
_MAPPED = 1 << 14  # entries from which the system may map new memory for an array

_lock = Lock()
_held = 0  # number of callers in all Python threads that now restrict BLAS to one thread
_alone = 0  # number of these callers that allow no further threads
_before: list[int] = []  # thread counts of each library before the first of them


@cache
def libraries() -> Any:
    """threadpoolctl's controller of the BLAS libraries that numpy and scipy have loaded."""
    import scipy.linalg.blas  # noqa: F401  loaded before libraries are counted
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def cores(ours: bool = False) -> int:
    """The number of threads that BLAS may use now; asking costs more than a small product.

    With ``ours``: threads that this package may start while BLAS has one, as many as BLAS had, unless others run
    already.
    """
    if ours and _held > 0:
        return 1 if _alone > 0 else max(_before, default=1)
    return max((library.get_num_threads() for library in libraries().lib_controllers), default=1)


def side_by_side(tasks: Sequence[Callable[[], T]], n: int) -> list[T]:
    """The results of the tasks, on up to n threads, in each of which BLAS uses one thread."""
    with one_thread():
        if min(n, len(tasks)) <= 1:
            return [task() for task in tasks]
        from concurrent.futures import ThreadPoolExecutor

        contexts = [copy_context() for _ in tasks]  # numpy's errstate is a context variable
        with ThreadPoolExecutor(min(n, len(tasks))) as pool:
            return list(pool.map(lambda context, task: context.run(task), contexts, tasks))


class one_thread:
    """A context in which BLAS uses one thread, if ``when``; entering and leaving takes some microseconds.

    The setting applies to the whole process, so callers in all Python threads are counted: the first saves the setting
    and the last restores it. Otherwise one would restore what another had set. ``ours`` allows threads of this package
    for large enough tasks meanwhile: BLAS is restricted because its tasks are small, not because all cores are in use.
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
        # threadpoolctl lets only the first thread set it until told otherwise; the last caller may be another thread
        getattr(library, "clear_controlling_thread", lambda: None)()


def physical_memory() -> float:
    """Bytes of memory available to this process: the machine's, or its container's limit if that is lower."""
    try:
        most = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        most = 8.0 * 2**30  # a guess, if the system does not tell
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # the file is missing, or contains "max"
            most = min(most, float(Path(name).read_text()))
    return most


# -- rows, a block at a time, on every core ----------------------------------------------------------------
def block_rows(width: int) -> int:
    """The number of rows, with ``width`` entries each, in one block."""
    return max(_FEWEST, _CACHE // max(1, width))


def blocks(start: int, stop: int, width: int) -> Iterator[slice]:
    """Slices of rows, with ``width`` entries each, that form one block each."""
    step = block_rows(width)
    for i in range(start, stop, step):
        yield slice(i, min(stop, i + step))


def on_every_core(n: int, width: int, stretch: Callable[[int, int], T]) -> list[T]:
    """stretch(i, j) for consecutive ranges of rows that cover 0..n, one for each thread that BLAS may use."""
    if n * width < _SMALL:
        return [stretch(0, n)]
    if n * width < PARALLEL:
        with one_thread():
            return [stretch(0, n)]
    parts = cores()
    edges = [n * c // parts for c in range(parts + 1)]
    return side_by_side([partial(stretch, i, j) for i, j in pairwise(edges)], parts)


def over_rows(n: int, width: int, one: Callable[[slice], T], host: bool) -> list[T]:
    """The results of ``one`` for blocks of rows with ``width`` entries: on all cores, or block by block on a device."""
    if not host:
        step = max(1, _DEVICE_BLOCK // max(1, width))
        return [one(slice(i, min(n, i + step))) for i in range(0, n, step)]
    if n * width <= _CACHE:
        return [one(slice(0, n))]
    parts = on_every_core(n, width, lambda start, stop: [one(some) for some in blocks(start, stop, width)])
    return [each for part in parts for each in part]


def in_blocks(n: int, one: Callable[[slice], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Arrays over n rows, which ``one`` computes for slices of rows.

    Temporaries then fit in the cache, and no new memory is requested. None stays None. numpy only.
    """
    if n <= _ELEMENTWISE:
        return one(slice(0, n))
    first = one(slice(0, _ELEMENTWISE))
    out = {id(x): np.empty((n, *x.shape[1:])) for x in first if x is not None}  # the same array twice stays one array

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
    """A context in which, on this thread, ``empty`` reuses the memory of arrays that no longer exist.

    If the system maps large arrays anew each time, as in Dask's workers, pages take as much time as the computation,
    and several times as much if several threads of a process request them.
    """
    outer = vars(_buffers).get("pool")
    _buffers.pool = [np.empty(0)]
    try:
        yield
    finally:
        _buffers.pool = outer


def empty(*shape: int) -> np.ndarray:
    """As ``np.empty``; within ``reused_memory`` from an unused buffer, if one is large enough."""
    pool, size = vars(_buffers).get("pool"), prod(shape)
    if pool is None or size < _MAPPED:
        return np.empty(shape)
    counts = [sys.getrefcount(buffer) for buffer in pool]  # the first is a reference that is never given out
    free = [k for k, count in enumerate(counts) if count == counts[0] and size <= pool[k].size <= 2 * size]
    if not free:
        pool.append(np.empty(size))
    return np.asarray(pool[min(free, key=lambda k: pool[k].size) if free else -1][:size].reshape(shape))


# -- how much linear algebra was done ----------------------------------------------------------------------
@dataclass
class Tally:
    """Counts of linear algebra within a block.

    Attributes
    ----------
    factorisations : int
        Cholesky factorisations of sparse matrices (including priors) and of dense ones by LAPACK.
    inverses : int
        Selected inverses of sparse matrices.
    products : int
        Products A^-1 E A^-1 of sparse matrices, one for each (Vt o Vt) v.
    """

    factorisations: int = 0
    inverses: int = 0
    products: int = 0
    outer: Tally | None = None


_current: ContextVar[Tally | None] = ContextVar("fenchel-tally", default=None)


@contextmanager
def counting() -> Iterator[Tally]:
    """Count what is done within the block."""
    tally = Tally(outer=_current.get())
    token = _current.set(tally)
    try:
        yield tally
    finally:
        _current.reset(token)


def counted() -> Tally:
    """The counts of the innermost block; zeros outside of any block."""
    return _current.get() or Tally()


def note(factorisations: int = 0, inverses: int = 0, products: int = 0) -> None:
    """Add to the counts of all open blocks."""
    tally = _current.get()
    while tally is not None:
        tally.factorisations += factorisations
        tally.inverses += inverses
        tally.products += products
        tally = tally.outer
