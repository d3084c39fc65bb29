"""BLAS on one thread for a while, where its threads would wait for each other longer than they work."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

FEW = 256  # rows up to which a whole fit runs on one thread: two gain little there, and lose all beside a busy process

_lock = Lock()
_held = 0  # how many callers, on any thread of Python, hold BLAS to one thread now
_before: list[int] = []  # what each library had before the first of them


@cache
def libraries() -> Any:
    """threadpoolctl's controller of the BLAS libraries numpy and scipy have loaded."""
    import scipy.linalg.blas  # noqa: F401  loaded before they are counted
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


class one_thread:
    """A context that holds BLAS to one thread, if ``when``; entering and leaving takes some microseconds.

    The setting is the whole process's, so callers on several threads of Python are counted: the first in saves it, the
    last out restores it. Each of them on its own would restore what another had set.
    """

    def __init__(self, when: bool = True) -> None:
        self.when = when

    def __enter__(self) -> None:
        global _held, _before
        if not self.when:
            return
        with _lock:
            if _held == 0:
                _before = [library.get_num_threads() for library in libraries().lib_controllers]
                _set([1] * len(_before))
            _held += 1

    def __exit__(self, *error: object) -> None:
        global _held
        if not self.when:
            return
        with _lock:
            _held -= 1
            if _held == 0:
                _set(_before)


def _set(counts: list[int]) -> None:
    for library, count in zip(libraries().lib_controllers, counts, strict=True):
        if library.get_num_threads() != count:
            library.set_num_threads(count)
        # threadpoolctl lets the first thread alone set it until told otherwise; the last out may be another
        getattr(library, "clear_controlling_thread", lambda: None)()
