"""``@compiled``: a Python loop compiled by numba, with a cache on disk if a folder is writable.

numba stores compiled code next to the source or in the user's cache folder, and raises an error if neither is writable:
in a container with a read-only home, or in a shared installation on a cluster. In that case this module uses a folder
of the user among the temporary files, and if that fails no cache, so that each process compiles again. A cache that
cannot be read or written never ends a fit. A compilation that takes more than two seconds is reported once, as a
warning of the logger "fenchel".
"""

from __future__ import annotations

import logging
import os
import pickle
import stat
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numba
from numba.core import caching, event

from .arrays import ArrayLike

config: Any = numba.config
_SILENT = 2.0  # seconds of compilation before a warning


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``numba.njit`` with a cache and without Python's global lock: ``@compiled`` or ``@compiled(fastmath=True)``."""
    if function is None:
        return lambda function: compiled(function, **options)
    out = numba.njit(**{"nogil": True, **options})(function)
    if hasattr(out, "enable_caching"):  # with NUMBA_DISABLE_JIT=1 it is the Python function
        cache = _cache_of(function)
        if cache is not None:
            out._cache = cache
        _ours.add(out)
    return out


def called_by_loops(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``@compiled`` for functions that only compiled loops call; no entry from Python is compiled."""
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


# -- where the machine code is kept ----------------------------------------------------------------------
class _Cache(caching.FunctionCache):
    """numba's cache, which ignores files that cannot be read or written: wrong owner, broken files, full disk."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.disable()


def _cache_of(function: Callable[..., Any]) -> _Cache | None:
    try:
        return _Cache(function)
    except RuntimeError:  # "cannot cache function": none of numba's folders is writable
        folder = _own_folder()
    if folder is None:
        return None
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        return _Cache(function)
    except RuntimeError:
        return None
    finally:
        config.CACHE_DIR = before  # other libraries keep their setting


def _own_folder() -> str | None:
    """A folder among the temporary files that only this user can write to, since its contents are run as code."""
    try:
        who = os.getuid() if hasattr(os, "getuid") else ""  # on Windows each user has own temporary files
        folder = os.path.join(tempfile.gettempdir(), f"fenchel-compiled-{who}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError:
        return None
    owned = who == "" or (status.st_uid == who and not status.st_mode & 0o022)
    return folder if stat.S_ISDIR(status.st_mode) and owned else None


# -- saying that it takes a while ------------------------------------------------------------------------
_ours: set[Any] = set()
_NOWHERE = "no folder to write to, set NUMBA_CACHE_DIR"


def folder(loop: Any = None) -> str | None:
    """The cache folder of a loop, by default of any loop that was loaded; None without a cache."""
    loop = next(iter(_ours), None) if loop is None else loop
    return getattr(getattr(loop, "_cache", None), "cache_path", None)


class _Patience(event.Listener):
    """Adds up the time of numba's compilation of our functions; numba compiles under one lock, one thread at a time."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # the functions that are being compiled, outermost first
        self.began, self.spent, self.warned = 0.0, 0.0, False

    def on_start(self, event: Any) -> None:
        if not self.open:
            self.began = time.perf_counter()
        self.open.append(event.data["dispatcher"])
        self._say(time.perf_counter() - self.began)

    def on_end(self, event: ArrayLike) -> None:
        took = time.perf_counter() - self.began
        self._say(took)
        outermost = self.open[0]
        self.open.pop()
        if not self.open and outermost in _ours:
            self.spent += took

    def _say(self, took: float) -> None:
        if self.warned or self.open[0] not in _ours or self.spent + took < _SILENT:
            return
        self.warned = True
        kept = f"once: kept in {place}" if (place := folder(self.open[0])) else f"in every process: {_NOWHERE}"
        logging.getLogger("fenchel").warning(
            "fenchel: compiling for this computer takes some seconds, %s. For containers: python -m fenchel.compile",
            kept,
        )


event.register("numba:compile", _Patience())
