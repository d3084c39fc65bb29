"""A live line while a long fit runs, on ``rich``. Off unless asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .base import Callback


@contextmanager
def reporting(show: bool, title: str, callback: Callback | None) -> Iterator[Callback | None]:
    """A callback that also draws the progress line when ``show`` is true."""
    if not show:
        yield callback
        return
    from rich.live import Live
    from rich.text import Text

    with Live(Text(f"{title}: starting"), refresh_per_second=8) as live:

        def report(row: dict[str, float]) -> object:
            live.update(
                Text(
                    f"{title}: iteration {row['iteration']:.0f}   elbo {row['elbo']:.6g}   "
                    f"gap {row['gap']:.2e}   step {row['step']:.3g}   {row['seconds']:.1f} s"
                )
            )
            return callback(row) if callback is not None else None

        yield report
