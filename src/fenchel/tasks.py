"""Independent tasks in this process, in others by joblib, or on a Dask cluster, with the same results.

A task is ``function(shared, item)``. Tasks that run in parallel limit BLAS to one thread each. If they are interrupted,
the finished results are on the exception.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from .checks import problem
from .linalg.arrays import Seed
from .linalg.machine import one_thread

if TYPE_CHECKING:
    from distributed import Client

Jobs: TypeAlias = "int | Client | None"
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

_ATTEMPTS = 3  # consecutive attempts in which workers are lost and no task finishes
_PATIENCE = 15.0  # seconds to wait for a scheduler or its first worker


class Stopped(RuntimeError):
    """The error if tasks cannot go on because the machines that ran them are lost.

    Attributes
    ----------
    finished : dict of int to result
        The finished results by the task's place; a caller may replace them by a result of its own.
    """

    finished: Any = None


class _Lost(Exception):
    """The error if workers are lost; their tasks may be repeated."""


def run_tasks(
    function: Callable[[S, T], R],
    items: Sequence[T],
    shared: S,
    *,
    where: str,
    n_jobs: Jobs = None,
    progress: bool = False,
    hear: Callable[[int, R], object] | None = None,
) -> list[R]:
    """Run ``function(shared, item)`` for every item and return the results in order.

    Parameters
    ----------
    function : callable
        It must not change ``shared``, and other processes must be able to unpickle it.
    items : sequence
        The part of a task that differs between tasks; small.
    shared : object
        The common part, which is sent to each worker of a Dask cluster once.
    where : str
        The name of the caller, for messages and the progress bar.
    n_jobs : int, None or Dask client
        Number of processes as in joblib (-1: all cores). None is one, or the number of ``joblib.parallel_config``; its
        backend is used in any case. A ``distributed.Client`` runs the tasks on its cluster.
    progress : bool
        Show a progress bar on standard error.
    hear : callable, optional
        Called with (place, result) when a task finishes, in any order.

    Returns
    -------
    list of results

    A task whose worker is lost is repeated. After an interrupt, or if the cluster is lost (``Stopped``), the
    exception has the finished results by place: ``error.finished``.

    Examples
    --------
    >>> from fenchel.tasks import run_tasks
    >>> run_tasks(pow, [1, 2, 3], 10, where="powers")
    [10, 100, 1000]
    """
    check_jobs(where, n_jobs)
    items, done = list(items), dict[int, R]()
    with _bar(progress, where, len(items)) as advance:

        def end(place: int, result: R) -> None:
            done[place] = result
            if hear is not None:
                hear(place, result)
            advance()

        try:
            if alone(n_jobs, len(items)):
                for place, item in enumerate(items):
                    end(place, function(shared, item))
            else:
                _until_done(_start(function, items, shared, n_jobs), done, len(items), end)
        except (KeyboardInterrupt, Stopped) as stop:
            kept = f"{len(done)} of {len(items)} tasks are finished, and kept in error.finished"
            if isinstance(stop, Stopped):
                stop.args = (f"{where}: {stop}. {kept}.",)
            else:
                stop.add_note(f"{where}: {kept}.")
            stop.finished = done  # type: ignore[union-attr]
            raise
    return [done[place] for place in range(len(items))]


def check_jobs(where: str, n_jobs: Any) -> None:
    """Refuse anything but a number of processes, None, or a connected client."""
    if n_jobs is None or (isinstance(n_jobs, int) and not isinstance(n_jobs, bool) and n_jobs != 0):
        return
    if not _is_client(n_jobs):
        wanted = "a number of processes, -1 for all cores, None, or a Dask client"
        cure = "Give Client(cluster)." if hasattr(n_jobs, "scheduler_address") else ""
        cure = "Give Client(address)." if isinstance(n_jobs, str) and "://" in n_jobs else cure
        raise problem(
            where, f"n_jobs = {n_jobs if isinstance(n_jobs, int | float | str) else _kind(n_jobs)}", wanted, cure
        )
    if n_jobs.asynchronous:
        raise problem(where, "n_jobs is an asynchronous client", "a client made with asynchronous=False")
    if n_jobs.status != "running":
        raise problem(where, f"the Dask client is {n_jobs.status}", "one that is connected", "Make a new Client.")


def alone(n_jobs: Jobs, n: int) -> bool:
    """Whether n tasks run one after the other in this process."""
    if n < 2:
        return True
    if _is_client(n_jobs):
        return False
    from joblib import effective_n_jobs

    return bool(effective_n_jobs(n_jobs) == 1)


def seed_of(rng: Seed) -> Seed:
    """A seed that tasks can share: a number drawn from a generator, since copies of it would go on separately."""
    return int(rng.integers(2**63)) if isinstance(rng, np.random.Generator) else rng


def _is_client(n_jobs: Any) -> bool:
    distributed = sys.modules.get("distributed")  # whoever has a client has loaded it
    return distributed is not None and isinstance(n_jobs, distributed.Client)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


# -- parallel tasks -----------------------------------------------------------------------------------------
Begin: TypeAlias = Callable[[list[int]], Iterator[tuple[int, Any]]]


def _until_done(begin: Begin, done: dict[int, R], n: int, end: Callable[[int, R], None]) -> None:
    """Start all tasks, and restart those whose workers were lost."""
    failed = 0
    while len(done) < n:
        before, ends = len(done), begin([place for place in range(n) if place not in done])
        try:
            for place, result in ends:
                end(place, result)
        except _Lost as lost:
            failed = failed + 1 if len(done) == before else 0
            if failed == _ATTEMPTS:
                raise Stopped(f"{lost} and no task ends: most likely one needs more memory") from lost
        finally:
            ends.close()  # type: ignore[attr-defined]  # a generator: whatever still runs is called off


def _start(function: Callable[[S, T], R], items: Sequence[T], shared: S, n_jobs: Jobs) -> Begin:
    if _is_client(n_jobs):
        return _Cluster(n_jobs, function, items, shared).begin  # type: ignore[arg-type]
    return lambda places: _by_joblib(function, items, shared, n_jobs, places)


def _held(function: Callable[[S, T], R], shared: S, item: T) -> R:
    """Run one of several parallel tasks."""
    with one_thread():
        return function(shared, item)


def _placed(function: Callable[[S, T], R], shared: S, item: T, place: int) -> tuple[int, R]:
    return place, _held(function, shared, item)


def _by_joblib(
    function: Callable[[S, T], R], items: Sequence[T], shared: S, n_jobs: Any, places: list[int]
) -> Iterator[tuple[int, R]]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError
    from joblib.parallel import get_active_backend

    whole = not get_active_backend()[0].supports_return_generator  # multiprocessing: all at the end
    run = Parallel(n_jobs=n_jobs, return_as="list" if whole else "generator_unordered")
    results = run(delayed(_placed)(function, shared, items[place], place) for place in places)
    try:
        for one in results:  # noqa: UP028  (yield from would close them itself)
            yield one
    except TerminatedWorkerError as error:
        raise _Lost("a process was killed") from error
    finally:
        if not whole:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib's advice to one who interrupts
                results.close()


# -- Dask ---------------------------------------------------------------------------------------------------
class _Cluster:
    """Tasks on a Dask cluster. ``shared`` travels as bytes, so that tasks on threads of one worker have a copy each."""

    def __init__(self, client: Client, function: Callable[[S, T], R], items: Sequence[T], shared: S) -> None:
        from distributed.protocol.pickle import dumps

        self.client, self.function, self.items = client, function, items
        self.packed, self.address = dumps((function, shared)), client.scheduler.address
        self.sent: Any = None

    def begin(self, places: list[int]) -> Iterator[tuple[int, Any]]:
        """Submit tasks, and hand their results over as they end."""
        from distributed import KilledWorker, as_completed
        from distributed.comm import CommClosedError

        futures: dict[Any, int] = {}
        try:
            self.send()
            submit = self.client.submit
            futures = {submit(_unpacked, self.sent, self.items[place], pure=False): place for place in places}
            for future in as_completed(list(futures)):
                yield futures[future], future.result()
        except (CancelledError, CommClosedError) as error:  # of the connection or of what was sent, not of the task
            self.sent = None
            raise _Lost(f"the workers of {self.address} were lost") from error
        except KilledWorker as error:
            raise Stopped("a task ended every worker that ran it: most likely it needs more memory") from error
        finally:
            self.call_off([future for future in futures if not future.done()])

    def send(self) -> None:
        """Put what tasks share on every worker, once; again after it was lost."""
        if self.sent is not None:
            return
        from distributed.client import ClosedClientError

        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
            self.sent = self.client.scatter([self.packed], broadcast=True, hash=False, timeout=_PATIENCE)[0]
        except (OSError, TimeoutError, CancelledError, AttributeError, RuntimeError, ClosedClientError) as error:
            there = self.client.status == "running"
            what = "has no workers" if there else "does not answer"
            raise Stopped(f"the Dask scheduler at {self.address} {what}") from error

    def call_off(self, futures: list[Any]) -> None:
        if futures and self.client.status == "running":
            self.client.cancel(futures)


def _unpacked(packed: bytes, item: Any) -> Any:
    from distributed.protocol.pickle import loads

    function, shared = loads(packed)
    return _held(function, shared, item)


# -- progress -----------------------------------------------------------------------------------------------
@contextmanager
def _bar(show: bool, title: str, n: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error; yields what moves it on by one task."""
    if not show:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=n)
        yield lambda: bar.advance(task)
