"""What partitions send back: named numbers and arrays that are added key by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Sums(dict[str, Any]):
    """Named sums. ``a + b`` adds what both have, key by key; what is None or missing in one is the other's.

    Examples
    --------
    >>> from fenchel.distributed import Sums
    >>> Sums(n=2, value=1.0) + Sums(n=3, value=0.5)
    {'n': 5, 'value': 1.5}
    """

    def __add__(self, other: Sums) -> Sums:
        out = Sums(self)
        for key, value in other.items():
            mine = out.get(key)
            out[key] = value if mine is None else mine if value is None else mine + value
        return out


def in_pairs(parts: Sequence[Any], add: Callable[[Any, Any], Any]) -> Any:
    """All of them added by halves, so that rounding grows with the logarithm of how many there are; None has no say."""
    left = [part for part in parts if part is not None]
    while len(left) > 1:
        left = [add(*left[i : i + 2]) if i + 1 < len(left) else left[i] for i in range(0, len(left), 2)]
    return left[0] if left else None
