"""fenchel: fast, certified Bayesian inference in latent Gaussian models.

Names load when they are first used, so that ``import fenchel`` is fast. ``__init__.pyi`` lists them and their modules.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_LISTED = re.findall(r"^from \.([\w.]*) import (\w+) as", _STUB, re.MULTILINE)  # (module, name), or ("", subpackage)
_ROOMS = tuple(name for room, name in _LISTED if not room)
_HOME = {name: room for room, name in _LISTED if room}
__all__ = sorted([*_HOME, *_ROOMS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
