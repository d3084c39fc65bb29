"""Arrays of any library, designs, dense and sparse factorisations, quadrature, conjugate gradients."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["SparseCholesky", "SymbolicCholesky"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(".supernodal", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
