"""Traversals of the tree of fronts on all cores: parts of the tree in parallel, then the fronts that join them.

    factorise    bottom up: the parts, then the top that joins them
    invert       top down: the top, then the parts

A part is a few whole subtrees, computed on one thread. The top is computed when no part is: products of its large
fronts are divided into the stripes of ``_fronts.py``, and one thread does triangles of a few hundred columns and
copies. Each product is the one that a single thread would compute, so the digits are the same. BLAS uses one thread
throughout, since nearly all of its calls are too short for more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from .machine import cores, one_thread, side_by_side

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from .supernodal import SymbolicCholesky

T = TypeVar("T")

PARALLEL = 1e8  # multiplications of a factorisation from which threads pay
LARGE = 1e8  # multiplications of one front from which threads for its stripes pay
_GAIN = 0.7  # speed gained by each further thread there
_TOP = 32  # most fronts in the top
_COLUMNS = 64  # right-hand sides solved for together
_PARTS = 2  # number of parts per core; large ones come first


class Schedule:
    """The supernodes that are computed together, and the positions of their parts in the two stacks.

    Attributes
    ----------
    nodes : list of arrays (k,), the supernodes of each part and finally of the top, ascending
    owner : array (m,), the part of each supernode
    up, down : arrays, the positions in the stacks of each part and of each front of the top, and the end of the last
    """

    def __init__(self, symbolic: SymbolicCholesky, n_cores: int) -> None:
        from . import _symbolic as kernels
        from ._fronts import WIDE

        S, m, self.n_cores = symbolic, symbolic.parent.size, n_cores
        if n_cores == 1:
            self.nodes, self.owner = [np.arange(0), np.arange(m)], np.zeros(m, dtype=np.int64)
            self.up, self.down = np.array([0, 0, S.up_peak]), np.array([0, 0, S.down_peak])
            return
        below = np.diff(S.ptr)
        size = np.diff(S.start) + below
        work = (size**3.0 - below**3.0) / 3.0
        self.large = (work >= LARGE) & (np.diff(S.start) >= WIDE)
        first, total = kernels.subtrees(S.parent, work)
        roots = _cut(S.parent, total, n_cores)
        n_parts = min(len(roots), _PARTS * n_cores)
        self.owner = np.full(m, n_parts)
        for part, some in enumerate(_binned(roots, total, n_parts)):
            for root in some:
                self.owner[first[root] : root + 1] = part
        self.nodes = [np.flatnonzero(self.owner == part) for part in range(n_parts + 1)]
        sizes = [kernels.stack_sizes(nodes, self.owner, S.start, S.ptr, S.parent) for nodes in self.nodes[:-1]]
        self.up = np.cumsum([0, *(up for up, _ in sizes), *below[self.nodes[-1]] ** 2])
        self.down = np.cumsum([0, *(down for _, down in sizes), *size[self.nodes[-1]] ** 2])

    @property
    def keep(self) -> bool:
        """Whether there are several parts, which later read what the top leaves on the way down."""
        return self.n_cores > 1

    def pool(self) -> Executor:
        """Threads for the stripes of the top."""
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(self.n_cores)

    def run(self, each: Callable[[int], T]) -> list[T]:
        """The results of ``each`` for all parts, in parallel."""
        return side_by_side([partial(each, part) for part in range(len(self.nodes) - 1)], self.n_cores)


def _cut(parent: np.ndarray, total: np.ndarray, n_cores: int) -> list[int]:
    """Roots of subtrees that give a short time together with the top, whose large fronts gain less from threads."""
    children: dict[int, list[int]] = {}
    for k in np.flatnonzero(parent >= 0)[total[parent >= 0] > 0.0].tolist():
        children.setdefault(int(parent[k]), []).append(k)
    heap = [(-total[k], k) for k in np.flatnonzero(parent < 0).tolist()]
    heapq.heapify(heap)
    best, least, above = [k for _, k in heap], np.inf, 0.0
    for _ in range(_TOP):
        rest = -sum(work for work, _ in heap)
        time = above + max(-heap[0][0], rest / n_cores)
        if time < least:
            best, least = [k for _, k in heap], time
        work, k = heapq.heappop(heap)
        below = children.get(k, [])
        own = -work - float(total[below].sum())
        above += own / (1.0 + _GAIN * (n_cores - 1)) if own >= LARGE else own
        for child in below:
            heapq.heappush(heap, (-total[child], child))
        if not heap:
            break
    return best


def _binned(roots: list[int], total: np.ndarray, n_parts: int) -> list[list[int]]:
    """The subtrees in ``n_parts`` parts of about equal work, largest first."""
    heap: list[tuple[float, int, list[int]]] = [(0.0, part, []) for part in range(n_parts)]
    for root in sorted(roots, key=lambda k: -total[k]):
        work, part, some = heapq.heappop(heap)
        heapq.heappush(heap, (work + float(total[root]), part, [*some, root]))
    return [some for _, _, some in sorted(heap, key=lambda one: -one[0])]


def alone(symbolic: SymbolicCholesky) -> one_thread:
    """BLAS on one thread, for matrices large enough to matter; otherwise half of its threads' time would be waiting."""
    return one_thread(symbolic.work >= PARALLEL)


_known: WeakKeyDictionary[SymbolicCholesky, dict[int, Schedule]] = WeakKeyDictionary()


def schedule(symbolic: SymbolicCholesky) -> Schedule:
    """The schedule for the number of threads that may be started now, stored with the analysis."""
    n = cores(ours=True) if symbolic.work >= PARALLEL else 1
    known = _known.setdefault(symbolic, {})
    if n not in known:
        known[n] = Schedule(symbolic, n)
    return known[n]


def factorise(symbolic: SymbolicCholesky, x: np.ndarray, inverse: np.ndarray) -> int:
    """Factorise the panels x in place, and compute L11^-1 of each; returns a bad column, or -1."""
    from . import _multifrontal as kernels

    S, plan = symbolic, schedule(symbolic)
    # memory from numpy, which asks for large pages, unlike numba
    stack, where = np.empty(max(1, plan.up[-1])), np.zeros(S.parent.size, dtype=np.int64)
    tree = S.start, S.ptr, S.panel, *kernels.links(S.parent), S.relative

    def some(nodes: np.ndarray, floor: int) -> int:
        return int(kernels.factorise(nodes, *tree, x, inverse, S.inverse_ptr, stack, floor, where))

    if not plan.keep:
        with alone(S):
            return some(plan.nodes[-1], 0)
    bad = [column for column in plan.run(lambda part: some(plan.nodes[part], plan.up[part])) if column >= 0]
    if bad:
        return min(bad)
    with alone(S), plan.pool() as pool:
        for k, floor in zip(plan.nodes[-1], plan.up[len(plan.nodes) - 1 :], strict=False):
            if plan.large[k]:
                w, r = S.start[k + 1] - S.start[k], S.ptr[k + 1] - S.ptr[k]
                kernels.assemble(k, *tree, x, stack, floor, where)
                below = inverse[S.inverse_ptr[k] :]
                column = striped_eliminate(pool, w, r, x[S.panel[k] :], below, stack[floor:])
                column += S.start[k] if column >= 0 else 0
            else:
                column = some(np.array([k]), floor)
            if column >= 0:
                return int(column)
    return -1


def invert(symbolic: SymbolicCholesky, x: np.ndarray, inverse: np.ndarray, z: np.ndarray) -> None:
    """The inverse on the pattern of L, as panels z."""
    from . import _multifrontal as kernels

    S, plan = symbolic, schedule(symbolic)
    stack, where = np.empty(max(1, plan.down[-1])), np.zeros(S.parent.size, dtype=np.int64)
    tree = plan.owner, S.start, S.ptr, S.panel, S.parent, S.relative, S.children, x, inverse, S.inverse_ptr, stack

    def some(nodes: np.ndarray, floor: int, keep: bool = False) -> None:
        kernels.invert(nodes, *tree, floor, keep, where, z)

    if not plan.keep:
        with alone(S):
            some(plan.nodes[-1], 0)
        return
    with alone(S), plan.pool() as pool:
        for k, floor in reversed(list(zip(plan.nodes[-1], plan.down[len(plan.nodes) - 1 :], strict=False))):
            if plan.large[k]:
                w, r = S.start[k + 1] - S.start[k], S.ptr[k + 1] - S.ptr[k]
                kernels.read_front(k, S.start, S.ptr, S.parent, S.relative, stack, floor, where)
                Z22, out = stack[floor + w * (w + r) + w :], z[S.panel[k] :]
                striped_invert(pool, w, r, x[S.panel[k] :], inverse[S.inverse_ptr[k] :], Z22, w + r, out)
                kernels.write_front(w, w + r, out, stack[floor:])
            else:
                some(np.array([k]), floor, keep=True)
    plan.run(lambda part: some(plan.nodes[part], plan.down[part]))


def solve(symbolic: SymbolicCholesky, x: np.ndarray, inverse: np.ndarray, b: np.ndarray, forward: bool) -> np.ndarray:
    """A^-1 b, or P' L^-T b if not ``forward``, for b (n, k); many columns are divided and solved in parallel."""
    from . import _multifrontal as kernels

    S, k = symbolic, b.shape[1]
    tree = S.start, S.ptr, S.rows, S.panel, x, inverse, S.inverse_ptr
    out = np.empty(b.shape)

    def part(i: int, j: int) -> None:
        some = np.array(b[:, i:j], order="C")
        some = some[S.order] if forward else some
        kernels.solve_panels(*tree, some, forward, True)
        out[:, i:j] = some[S.inverse_order]

    parts = -(-k // _COLUMNS) if S.work >= PARALLEL else 1
    if parts <= 1:
        with alone(S):
            part(0, k)
    else:
        edges = [k * i // parts for i in range(parts + 1)]
        side_by_side([partial(part, i, j) for i, j in pairwise(edges)], cores(ours=True))
    return out


# -- one large front on several threads -----------------------------------------------------------------------
def _each(pool: Executor, n: int, stripe: Callable[[int], Any]) -> None:
    """``stripe`` at the start of each stripe, the last first, since below a diagonal these are the longest."""
    from ._fronts import STRIPE

    list(pool.map(stripe, reversed(range(0, n, STRIPE))))


def striped_cholesky(pool: Executor, w: int, a: np.ndarray, lda: int, inverse: np.ndarray, ldi: int) -> int:
    """``wide_cholesky`` with stripes on several threads."""
    from . import _fronts as kernels

    if w <= kernels.HALVED:
        return int(kernels.wide_cholesky(w, a, lda, inverse, ldi, np.empty(kernels.BLOCK)))
    h = w // 2
    r, below, beside = w - h, a[h * lda :], inverse[h * ldi :]
    bad = striped_cholesky(pool, h, a, lda, inverse, ldi)
    if bad >= 0:
        return bad
    _each(pool, r, lambda i: kernels.rows_times(i, r, h, inverse, ldi, kernels.YES, below, lda))
    _each(pool, r, lambda i: kernels.rows_square(i, r, h, below, lda, below[h:], lda))
    bad = striped_cholesky(pool, r, below[h:], lda, beside[h:], ldi)
    if bad >= 0:
        return h + bad
    rows = np.lib.stride_tricks.as_strided
    rows(beside, (r, h), (8 * ldi, 8))[...] = rows(below, (r, h), (8 * lda, 8))
    _each(pool, r, lambda i: kernels.rows_times(i, r, h, inverse, ldi, kernels.NO, beside, ldi))
    _each(pool, h, lambda i: kernels.columns_times(i, h, r, -1.0, beside[h:], ldi, kernels.NO, beside, ldi))
    return -1


def striped_square(pool: Executor, w: int, t: np.ndarray, ld: int) -> None:
    """``wide_square`` with stripes on several threads."""
    from . import _fronts as kernels

    if w <= kernels.HALVED:
        kernels.wide_square(w, t, ld)
        return
    h = w // 2
    r, below = w - h, t[h * ld :]
    striped_square(pool, h, t, ld)
    _each(pool, h, lambda i: kernels.rows_lower(i, r, h, 1.0, below, ld, below, ld, t, ld))
    _each(pool, h, lambda i: kernels.columns_times(i, h, r, 1.0, below[h:], ld, kernels.YES, below, ld))
    striped_square(pool, r, below[h:], ld)


def striped_eliminate(pool: Executor, w: int, r: int, F: np.ndarray, inverse: np.ndarray, U: np.ndarray) -> int:
    """``eliminate_wide`` with stripes on several threads."""
    from . import _fronts as kernels

    kernels.clear_above(w, F, inverse)
    bad = striped_cholesky(pool, w, F, w, inverse, w)
    if bad < 0:
        _each(pool, r, lambda i: kernels.rows_times(i, r, w, inverse, w, kernels.YES, F[w * w :], w))
        _each(pool, r, lambda i: kernels.rows_square(i, r, w, F[w * w :], w, U, r))
    return bad


def striped_invert(
    pool: Executor, w: int, r: int, F: np.ndarray, inverse: np.ndarray, Z22: np.ndarray, ld: int, out: np.ndarray
) -> None:
    """``invert_wide`` with stripes on several threads."""
    from . import _fronts as kernels

    kernels.copy_lower(w, inverse, out)
    striped_square(pool, w, out, w)
    if r > 0:
        Y, below = np.array(F[w * w : (w + r) * w]), out[w * w :]
        _each(pool, r, lambda i: kernels.rows_times(i, r, w, inverse, w, kernels.NO, Y, w))
        _each(pool, w, lambda i: kernels.columns_symmetric(i, r, w, Z22, ld, Y, below))
        _each(pool, w, lambda i: kernels.rows_lower(i, r, w, -1.0, Y, w, below, w, out, w))
    kernels.mirror(w, out)
