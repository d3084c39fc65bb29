"""The file that keeps where a fit is, so that the same call goes on after an interruption.

The file is written beside the old one and then renamed, so it is whole at every moment. It holds the iterate, which has
the size of the weights, and what tells this fit from others: the settings, numbers measured of the columns and of y,
and the elbo of the iterate, which the rows must give again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Refusal, problem
from ..files import archive
from ..linalg.dense import NotPositiveDefinite
from .approximation import Approximation, ApproximationStep, StepHistory
from .partitions import Interrupted
from .precision import PartitionedPrior

_FORMAT = "fenchel checkpoint"
_VERSION = 3
_SAME = 1e-9  # relative difference that another order of summation makes; a larger one means other data


@dataclass
class FitState:
    """Where a fit is: what a checkpoint keeps.

    Attributes
    ----------
    q : Approximation
    history : StepHistory
    n : int
        Steps of this stage.
    elbo : float or None
        Of q, where it is known.
    stage : int
        Which of the priors of a fit by stages is worked on.
    tried : dict of int to (float, Approximation)
        Of each stage that ended, its evidence, and q there.
    n_before : int
        Steps of the stages that ended.
    """

    q: Approximation
    history: StepHistory = field(default_factory=StepHistory)
    n: int = 0
    elbo: float | None = None
    stage: int = 0
    tried: dict[int, tuple[float, Approximation]] = field(default_factory=dict)
    n_before: int = 0

    @property
    def best(self) -> int:
        """The stage of the largest evidence among those tried."""
        return max(self.tried, key=lambda k: self.tried[k][0])


class Checkpoint:
    """A file that holds where a fit is.

    Parameters
    ----------
    where : who asks
    path : str or Path
        Its folder exists. A file that is there is read, and refused if it is of another problem.
    """

    def __init__(self, where: str, path: str | Path) -> None:
        self.where = where
        try:
            self.path = Path(path).resolve()
        except TypeError:
            raise problem(where, f"checkpoint is a {type(path).__name__}", "a path, or None") from None
        if self.path.is_dir() or not self.path.parent.is_dir():
            got = f"checkpoint = {str(path)!r} is {'a folder' if self.path.is_dir() else 'in no folder that exists'}"
            raise problem(where, got, "the path of a file")
        self.settings: dict[str, Any] = {}
        self.measured = np.zeros(0)
        self.given: list[np.ndarray] = []  # arrays that the fit was begun with, and that the same call needs again

    def describe(self, settings: Mapping[str, Any], measured: np.ndarray) -> None:
        """Set what tells this fit from others: settings by name, and numbers measured of the rows."""
        self.settings, self.measured = dict(settings), measured

    def save(self, state: FitState) -> None:
        """Write where the fit is, whole; where that fails the old file stays."""
        places = [state.q.place, *(part for pair in state.history.before for part in pair)]
        places += [q.place for _, q in state.tried.values()]
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "settings": self.settings,
            "stage": state.stage,
            "n": state.n,
            "elbo": state.elbo,
            "remembered": len(state.history.before),
            "tried": [[k, value] for k, (value, _) in state.tried.items()],
            "passes": state.n_before,
            "given": len(self.given),
        }
        try:
            archive.write(
                self.path, content, [self.measured, *(array for place in places for array in place), *self.given]
            )
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = "the disk is full" if full else f"{type(error).__name__}: {error}"
            old = " What was written before is whole." if self.path.exists() else ""
            raise Interrupted(
                f"{self.where}: checkpoint {self.path} cannot be written ({what}). Free some space, or give another "
                f"path, and call fit again.{old}"
            ) from error

    def begun_with(self) -> list[np.ndarray]:
        """The arrays that the fit in the file was begun with; none where there is no file."""
        if not self.path.exists():
            return []
        content, arrays = self._read()
        n = content.get("given")
        self.given = arrays[len(arrays) - n :] if isinstance(n, int) and 0 < n < len(arrays) else []
        return self.given

    def resume(self, priors: Sequence[PartitionedPrior]) -> FitState | None:
        """Where the file left off, given the prior of each stage; None where there is no file."""
        if not self.path.exists():
            return None
        content, arrays = self._read()
        places = _places(arrays[1:])

        def stored(k: Any) -> Approximation:
            mean, gram, theta, own = next(places)
            return Approximation(priors[int(k)], theta, own, mean, gram)

        try:
            q = stored(content["stage"])
            history = StepHistory([(next(places), next(places)) for _ in range(int(content["remembered"]))])
            tried = {int(k): (float(value), stored(k)) for k, value in content["tried"]}
            counts = int(content["stage"]), tried, int(content["passes"])
            return FitState(q, history, int(content["n"]), float(content["elbo"]), *counts)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, StopIteration, NotPositiveDefinite):
            raise self._refusal("what it holds is not of this shape") from None

    def _read(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """What the file holds, if it is of this fit."""
        try:
            content, arrays = archive.read(self.path)
        except (Refusal, OSError) as error:
            got = f"checkpoint {self.path} cannot be read ({error})"
            raise problem(self.where, got, "one that fit wrote", "Remove it.") from None
        if content.get("format") != _FORMAT or content.get("version") != _VERSION:
            raise problem(self.where, f"checkpoint {self.path} is not one of this version", "one that fit wrote")
        self._check_settings(content.get("settings"), arrays[0] if arrays else None)
        return content, list(arrays)

    def _check_settings(self, old: Any, measured: Any) -> None:
        """Refuse the checkpoint of other settings or other rows; default priors follow the rows, and so come last."""
        changed = [key for key in self.settings if not isinstance(old, dict) or old.get(key) != self.settings[key]]
        same = np.shape(measured) == self.measured.shape
        same = same and np.allclose(measured, self.measured, rtol=_SAME, atol=1e-300)
        if not same and set(changed) <= {"priors"}:
            raise self._refusal("the data differ (X, y or the weights)")
        if old != self.settings:
            raise self._refusal(f"{', '.join(changed) or 'the settings'} differ")

    def check_rows(self, before: float, elbo: float) -> None:
        """Refuse a checkpoint whose rows gave another elbo at the same iterate."""
        if abs(before - elbo) > _SAME * max(1.0, abs(elbo)):
            raise self._refusal("the data differ (its rows gave another elbo)")

    def _refusal(self, why: str) -> Refusal:
        got = f"checkpoint {self.path} is of another fit: {why}"
        return problem(self.where, got, "the one that this call wrote", "Give another path, or remove the file.")


def _places(arrays: Sequence[np.ndarray]) -> Iterator[ApproximationStep]:
    """Four arrays at a time."""
    for i in range(0, len(arrays) - 3, 4):
        yield ApproximationStep(*(np.asarray(array, dtype=np.float64) for array in arrays[i : i + 4]))
