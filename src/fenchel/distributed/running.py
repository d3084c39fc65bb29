"""Dask asked for results, and its failures as sentences.

Whatever Dask is configured with does the work: the threads of this process, or a ``distributed.Client``, where a lost
worker's tasks are repeated by another and nothing here knows of it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from ..checks import optional

_LOST = ("FutureCancelledError", "KilledWorker", "CommClosedError", "SchedulerClosedError", "ClosedClientError")


class Interrupted(RuntimeError):
    """The cluster went away in the middle of a fit: what was written of it is whole, and the same call goes on."""


def is_dask(value: object) -> bool:
    """Whether it is a collection of Dask's, told without importing Dask."""
    return any(cls.__module__.partition(".")[0] == "dask" for cls in type(value).__mro__) and hasattr(value, "dask")


def computed(where: str, value: Any, kept: Path | None = None) -> Any:
    """The result of a delayed value; a cluster that cannot be reached is a sentence."""
    dask = optional(where, "dask")
    try:
        return dask.compute(value)[0]
    except (Exception, asyncio.CancelledError) as error:
        if not _of_cluster(error):
            raise
        raise interrupted(where, error, kept) from error


def interrupted(where: str, error: BaseException, kept: Path | None) -> Interrupted:
    """The sentence of a cluster that went away."""
    said = str(error).strip().splitlines()
    why = f"{type(error).__name__}: {said[0][:160]}" if said else type(error).__name__
    if type(error).__name__ == "KilledWorker":
        what = f"a partition was lost with every worker that held it ({why})"
        advice = "Their memory is the usual reason: use smaller partitions, or workers with more of it."
    else:
        what, advice = f"the scheduler cannot be reached ({why})", "Start it again and call fit again."
    go_on = (
        f" The fit so far is in {kept}: the same call goes on from there." if kept is not None and kept.exists() else ""
    )
    return Interrupted(f"{where}: {what}. {advice}{go_on}")


def _of_cluster(error: BaseException) -> bool:
    """Whether it is the cluster's and not a task's: cancelled, lost, or of a connection that the last frame made."""
    if isinstance(error, CancelledError | asyncio.CancelledError) or type(error).__name__ in _LOST:
        return True
    if not isinstance(error, OSError | TimeoutError):
        return False
    trace, module = error.__traceback__, ""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return module.partition(".")[0] in ("distributed", "tornado", "asyncio")
