"""The machine: how many threads there are for whom, and how much memory.

BLAS is held to one thread where its threads would wait for each other longer than they work; ours run instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container's memory

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
