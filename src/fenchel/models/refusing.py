"""Methods that a fitted model of several parts does not have, as sentences that say what answers instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..checks import problem


def refused(name: str, why: str, instead: str) -> Callable[..., NoReturn]:
    """A method that says why it is not there, and what to use."""

    def refuse(self: Any, *args: Any, **options: Any) -> NoReturn:
        raise problem(name, why, instead)

    refuse.__doc__ = f"Not there: {why}. Use {instead}."
    return refuse
