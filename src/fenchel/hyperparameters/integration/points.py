"""Fits at given theta: what each of them says, started on the plane through the first ones, and kept as they finish."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import problem
from ...corrections import Corrected
from ...corrections.importance import ImportanceSample
from ...linalg.arrays import to_numpy
from ...solvers.base import Callback
from ...solvers.solution import Solution
from ...tasks import Jobs, run_tasks
from ..evidence import Evidence
from ..learned import Learned


@dataclass(frozen=True, eq=False)
class Point:
    """A theta and the fit there.

    Attributes
    ----------
    theta : array (n,)
    log_prior : float
    solution : Solution
    corrected : Corrected or ImportanceSample, where it was asked for
    gradient : array (n,), where it was asked for
        Of elbo + log p(theta).
    """

    theta: np.ndarray
    log_prior: float
    solution: Solution
    corrected: Corrected | ImportanceSample | None = None
    gradient: np.ndarray | None = None

    @property
    def trusted(self) -> bool:
        """Whether there is a corrected evidence to be believed."""
        return self.corrected is not None and bool(self.corrected.trusted) and np.isfinite(self.corrected.log_evidence)

    @property
    def gain(self) -> float:
        """The corrected evidence less the elbo; NaN where it is not trusted."""
        if not self.trusted or self.corrected is None:
            return float("nan")
        return float(self.corrected.log_evidence - self.solution.elbo)

    @property
    def plain(self) -> float:
        """elbo + log p(theta)."""
        return float(self.solution.elbo + self.log_prior)


@dataclass
class Finished:
    """What an integration has finished, in memory or in a file: given to it again, it goes on from there.

    Parameters
    ----------
    path : str or Path, optional
        A file, to which every fit is added when it ends. It is a pickle: resume only from files that you trust.

    Examples
    --------
    >>> from fenchel.hyperparameters.integration import Finished
    >>> len(Finished())
    0
    """

    path: str | Path | None = None
    points: dict[bytes, Point] = field(default_factory=dict)
    mode: Learned | None = None
    about: Any = None  # what the fits are of

    def __len__(self) -> int:
        return len(self.points)

    def open(self, about: Any) -> None:
        """Read the file, if there is one; refuse what was finished of something else."""
        if self.path is not None and Path(self.path).exists() and not self.points and self.mode is None:
            for kind, value in self._records(Path(self.path)):
                if kind == "about":
                    self.about = value
                elif kind == "mode":
                    self.mode = value
                else:
                    self.points[_key(value)] = value
        if self.about is None:
            self._add("about", about)
            self.about = about
        elif self.about != about:
            got = "checkpoint holds fits of another model, other data or other settings"
            raise problem("integrate", got, "its own", "Give another file, or remove this one.")

    @staticmethod
    def _records(path: Path) -> Iterator[tuple[str, Any]]:
        with path.open("rb") as file:
            while True:
                try:
                    yield pickle.load(file)
                except (EOFError, pickle.UnpicklingError):  # the last record was interrupted
                    return

    def _add(self, kind: str, value: Any) -> None:
        if self.path is not None:
            with Path(self.path).open("ab") as file:
                file.write(pickle.dumps((kind, value)))

    def keep(self, point: Point) -> None:
        self._add("point", point)
        self.points[_key(point)] = point

    def keep_mode(self, mode: Learned) -> None:
        self._add("mode", mode)
        self.mode = mode


def _key(point: Point) -> bytes:
    return _name(point.theta, point.gradient is not None)


def _name(theta: np.ndarray, sloped: bool) -> bytes:
    return np.asarray(theta, dtype=np.float64).tobytes() + bytes([sloped])


@dataclass
class Fitter:
    """Fits at any theta.

    Attributes
    ----------
    evidence : Evidence
    beyond : bool
        Whether the corrected evidence is wanted.
    n_jobs : int, None or Dask client
        Who fits (``fenchel.tasks``).
    finished : Finished
    report : callable, optional
        Hears of every fit.
    n_fits : int
        Fits that were run, those read from ``finished`` aside.
    """

    evidence: Evidence
    beyond: bool
    n_jobs: Jobs
    finished: Finished
    report: Callback | None = None
    n_fits: int = 0

    def start_from(self, points: Sequence[Point]) -> None:
        """Later fits start on the plane through these, the nearest of them last."""
        self.evidence.path = [(p.theta, to_numpy(p.solution.s)) for p in points]
        self.evidence.last = points[-1].solution

    def at(self, thetas: Sequence[np.ndarray], sloped: bool = False, plain: bool = False) -> list[Point]:
        """The points at thetas, in order; with ``sloped`` they have a gradient, with ``plain`` no correction."""
        beyond = self.beyond and not plain
        names = [_name(theta, sloped) for theta in thetas]
        known = self.finished.points
        todo = [(name, theta) for name, theta in zip(names, thetas, strict=True) if name not in known]
        todo = list(dict(todo).items())
        tasks, shared = [theta for _, theta in todo], (self.evidence, beyond, sloped)
        run_tasks(
            _task, tasks, shared, where="integrate", n_jobs=self.n_jobs, hear=lambda _, point: self._finish(point)
        )
        return [known[name] for name in names]

    def _finish(self, point: Point) -> None:
        self.finished.keep(point)
        self.n_fits += 1
        if self.report is not None:
            sol = point.solution
            row = {"elbo": sol.elbo, "elbo_upper": sol.elbo_upper, "gap": sol.gap, "step": float(sol.n_iter)}
            self.report({"iteration": float(self.n_fits), "seconds": float(sol.trace["seconds"][-1]), **row})


def _task(shared: tuple[Evidence, bool, bool], theta: np.ndarray) -> Point:
    return fitted_at(shared[0], theta, *shared[1:])


def fitted_at(evidence: Evidence, theta: np.ndarray, beyond: bool, sloped: bool) -> Point:
    """One fit, which leaves ``evidence`` as it was: the same whatever has been fitted before it."""
    own = copy.copy(evidence)
    gradient = own(theta)[1] if sloped else None
    solution = own.solution if sloped else own.fit(theta)
    found = solution.corrected() if beyond else None
    return Point(np.array(theta), float(own.log_prior(theta)[0]), solution, found, gradient)
