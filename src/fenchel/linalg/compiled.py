"""``@compiled``: a loop in Python made machine code by numba, kept on disk wherever a folder can be written.

numba keeps what it compiled beside the source or in the user's cache folder, and raises where it can write to neither:
in a container with a read-only home, on a cluster's shared installation. Here a folder of the user's own among the
temporary files comes next, and after it nowhere, so that every process compiles anew. A cache that cannot be read or
written never ends a fit. A compilation that takes longer than two seconds is said once, as a warning of the logger
"fenchel".
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
_SILENT = 2.0  # seconds of compiling before it is said


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``numba.njit`` with a cache, without the interpreter's lock: ``@compiled`` or ``@compiled(fastmath=True)``."""
    if function is None:
        return lambda function: compiled(function, **options)
    out = numba.njit(**{"nogil": True, **options})(function)
    if hasattr(out, "enable_caching"):  # with NUMBA_DISABLE_JIT=1 it is the function itself
        cache = _cache_of(function)
        if cache is not None:
            out._cache = cache
        _ours.add(out)
    return out


def called_by_loops(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``@compiled`` for what only compiled loops call: its entry from Python is not compiled."""
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


# -- where the machine code is kept ----------------------------------------------------------------------
class _Cache(caching.FunctionCache):
    """numba's, but for files that cannot be read or written: root's, broken ones, a full disk."""

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
    except RuntimeError:  # "cannot cache function": no folder that numba looks for can be written
        folder = _own_folder()
    if folder is None:
        return None
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        return _Cache(function)
    except RuntimeError:
        return None
    finally:
        config.CACHE_DIR = before  # other libraries keep their own


def _own_folder() -> str | None:
    """A folder among the temporary files that only this user can write to: what lies in it is run as code."""
    try:
        who = os.getuid() if hasattr(os, "getuid") else ""  # on Windows the temporary files are one user's
        folder = os.path.join(tempfile.gettempdir(), f"fenchel-compiled-{who}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return None
    mine = who == "" or (found.st_uid == who and not found.st_mode & 0o022)
    return folder if stat.S_ISDIR(found.st_mode) and mine else None


# -- saying that it takes a while ------------------------------------------------------------------------
_ours: set[Any] = set()
_NOWHERE = "no folder to write to, set NUMBA_CACHE_DIR"


def folder(loop: Any = None) -> str | None:
    """Where the machine code of a loop is kept, of any that was loaded by default; None for nowhere."""
    loop = next(iter(_ours), None) if loop is None else loop
    return getattr(getattr(loop, "_cache", None), "cache_path", None)


class _Patience(event.Listener):
    """Adds up the time numba compiles our functions; it does so under one lock, so threads take turns."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # the functions being compiled, the outermost first
        self.began, self.spent, self.said = 0.0, 0.0, False

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
        if self.said or self.open[0] not in _ours or self.spent + took < _SILENT:
            return
        self.said = True
        kept = f"once: kept in {place}" if (place := folder(self.open[0])) else f"in every process: {_NOWHERE}"
        logging.getLogger("fenchel").warning(
            "fenchel: compiling for this computer takes some seconds, %s. For containers: python -m fenchel.compile",
            kept,
        )


event.register("numba:compile", _Patience())
