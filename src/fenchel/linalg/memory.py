"""How much memory there is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # a container's own


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
