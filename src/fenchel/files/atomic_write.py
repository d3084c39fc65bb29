"""A file written beside its path and renamed over it, and what killed writers left there swept away.

A writer holds a lock on its hidden ``.name.xxxxxxxx.part`` until it is renamed, and the lock goes with the process: a
part that can be locked has no writer any more. Where there are no such locks (Windows) a file in use cannot be removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".part"
_RANDOM = 8  # characters that tempfile puts in between
_LONGEST = 200  # bytes of a name that are repeated in that of its part: with the rest, fewer than any disk allows


def checked(who: str, path: str | Path) -> Path:
    """Where ``path`` leads, if a file is or can be there."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"{who}: it is a folder; expected the name of a file", str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"{who}: there is no folder of that name", str(target.parent))
    check_plain(who, target)
    return target


def check_plain(who: str, path: Path) -> None:
    """Refuse devices and pipes: reading one may never end, and a rename would take its place."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, f"{who}: it is a device or a pipe; expected the name of a file", str(path))


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of ``target`` when the block ends well and vanishes when it does not."""
    prefix = f".{os.fsdecode(os.fsencode(target.name)[:_LONGEST])}."
    _sweep(target.parent, prefix)
    file, name = _begun(target.parent, prefix)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o644)
            if fcntl is not None:  # while it is locked
                os.replace(name, target)
        if fcntl is None:
            os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # the new name on the disk too, where folders can be told so
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _begun(folder: Path, prefix: str) -> tuple[IO[bytes], str]:
    """A new part, locked; another one where a sweep came between the two."""
    while True:
        handle, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=_SUFFIX)
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a disk without locks: nothing is swept there either
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not os.fstat(handle).st_nlink:
                os.close(handle)
                continue
        return os.fdopen(handle, "wb"), name


def _sweep(folder: Path, prefix: str) -> None:
    """Remove the parts of writers that are gone."""
    length = len(prefix) + _RANDOM + len(_SUFFIX)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if len(name) == length and name.startswith(prefix) and name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    _remove(entry.path)


def _remove(path: str) -> None:
    if fcntl is None:
        os.unlink(path)
        return
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    finally:
        os.close(handle)
