"""One interface to numpy, torch, cupy and strict array-API arrays.

Code that uses it writes ``xp = namespace(x)`` and then the standard's own names. Data are copied between host and
device only in ``asarray`` (to the device) and ``to_numpy`` (to the host).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt

ArrayLike: TypeAlias = npt.ArrayLike  # array arguments of users: numbers, lists, arrays, columns of a frame
Seed: TypeAlias = int | np.random.Generator | np.random.SeedSequence | None
_SPECIAL = {"torch": "torch.special", "cupy": "cupyx.scipy.special"}  # modules with special functions
Namespace: TypeAlias = Any  # numpy, torch or another module, whose contents are known only at run time


class Array(Protocol):
    """The common part of numpy, torch, cupy and array-API arrays: shape, arithmetic, indexing."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    @property
    def T(self) -> Array: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Array: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __float__(self) -> float: ...
    def __bool__(self) -> bool: ...
    def __neg__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    def __add__(self, other: Any, /) -> Array: ...
    def __radd__(self, other: Any, /) -> Array: ...
    def __sub__(self, other: Any, /) -> Array: ...
    def __rsub__(self, other: Any, /) -> Array: ...
    def __mul__(self, other: Any, /) -> Array: ...
    def __rmul__(self, other: Any, /) -> Array: ...
    def __truediv__(self, other: Any, /) -> Array: ...
    def __rtruediv__(self, other: Any, /) -> Array: ...
    def __pow__(self, other: Any, /) -> Array: ...
    def __matmul__(self, other: Any, /) -> Array: ...
    def __eq__(self, other: Any, /) -> Array: ...  # type: ignore[override]
    def __ne__(self, other: Any, /) -> Array: ...  # type: ignore[override]
    def __lt__(self, other: Any, /) -> Array: ...
    def __le__(self, other: Any, /) -> Array: ...
    def __gt__(self, other: Any, /) -> Array: ...
    def __ge__(self, other: Any, /) -> Array: ...
    def __and__(self, other: Any, /) -> Array: ...
    def __or__(self, other: Any, /) -> Array: ...
    def __invert__(self) -> Array: ...
    def __array__(self) -> np.ndarray: ...


def namespace(x: Array) -> Namespace:
    """The array-API namespace of ``x``; numpy for lists, numbers and pandas objects."""
    if type(x) is np.ndarray or isinstance(x, np.ndarray | float | int | list | tuple | np.generic):
        return np
    if library_of(x) in ("torch", "cupy", "jax", "jaxlib", "dask"):
        import array_api_compat

        return array_api_compat.array_namespace(x)
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    return np


def library_of(x: object) -> str:
    """The name of the package that defines the type of ``x``."""
    return type(x).__module__.split(".")[0]


def is_numpy(x: object) -> TypeGuard[np.ndarray]:
    """True for plain numpy arrays, which are passed to LAPACK in place."""
    return isinstance(x, np.ndarray)


def asarray(value: Any, like: Array) -> Array:
    """``value`` as float64 in the library and on the device of ``like``."""
    xp = namespace(like)
    if xp is np:
        return np.asarray(value, dtype=np.float64)
    if namespace(value) is np:
        value = xp.asarray(np.array(value, dtype=np.float64, order="C"), device=getattr(like, "device", None))
    return xp.astype(value, xp.float64, copy=False)


def to_numpy(x: Array) -> np.ndarray:
    """A numpy copy or view of ``x``, copied from its device if it is on one."""
    if is_numpy(x):
        return x
    library, value = library_of(x), cast(Any, x)
    if library == "torch":
        return value.detach().cpu().numpy()
    if library == "cupy":
        return value.get()
    return np.asarray(x)


def inner(a: Array, b: Array) -> float:
    """The sum of a b over all entries, of arrays of one shape."""
    return float(np.vdot(a, b)) if is_numpy(a) else float(namespace(a).sum(a * b))


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory is exhausted on the host or a device; each library has its own class."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def special(name: str, x: Array) -> Array:
    """A special function by its scipy name, computed on the device of ``x`` if its library has it."""
    place = _SPECIAL.get(library_of(x))
    own = None if place is None else getattr(import_module(place), name, None)
    if own is not None:
        return own(x)
    import scipy.special

    out = getattr(scipy.special, name)(to_numpy(x))
    return out if is_numpy(x) else asarray(out, x)
