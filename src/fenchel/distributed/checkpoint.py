"""The iterate of a fit in a file, written beside it first and then renamed: whole at every moment.

It is of the size of the weights, and goes with its problem: the settings it was written under, what the columns and y
measured, and the elbo that the rows gave at the iterate, which they must give again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checks import Refusal, problem
from ..files import archive
from ..linalg.dense import NotPositiveDefinite
from .approximation import Approximation, Step, StepHistory
from .partitions import Interrupted
from .precision import PartitionedPrior
from .solver import FitState

_FORMAT, _VERSION = "fenchel checkpoint", 2
_SAME = 1e-9  # relative difference that another order of summation makes


Tried = dict[int, tuple[float, Approximation]]  # stage -> its evidence, and q where it ended


class Resumed(NamedTuple):
    """Where a fit goes on: the stage, its state, the stages that ended before, and the passes of all of them."""

    stage: int
    state: FitState
    tried: Tried
    n_passes: int


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

    def describe(self, settings: Mapping[str, Any], measured: np.ndarray) -> None:
        """Say what tells this fit from others: settings by name, and numbers measured of the rows."""
        self.settings, self.measured = dict(settings), measured

    def save(self, state: FitState, stage: int = 0, tried: Tried | None = None, n_passes: int = 0) -> None:
        """Write where the fit is."""
        ended = tried or {}
        places = [state.q.place, *(part for pair in state.history.before for part in pair)]
        places += [q.place for _, q in ended.values()]
        content = {
            "settings": self.settings,
            "stage": stage,
            "n": state.n,
            "elbo": state.elbo,
            "remembered": len(state.history.before),
            "tried": [[k, value] for k, (value, _) in ended.items()],
            "passes": n_passes,
        }
        self._write(content, [self.measured, *(array for place in places for array in place)])

    def resume(self, priors: Sequence[PartitionedPrior]) -> Resumed | None:
        """Where the file left off, given the prior of each stage; None where there is no file."""
        if not self.path.exists():
            return None
        content, arrays = self._read()
        self._check(content, arrays[0] if arrays else None)
        places = _places(arrays[1:])
        try:
            stage = int(content["stage"])
            q = _approximation(priors[stage], next(places))
            history = StepHistory([(next(places), next(places)) for _ in range(int(content["remembered"]))])
            state = FitState(q, history, int(content["n"]), float(content["elbo"]))
            tried = {int(k): (float(v), _approximation(priors[int(k)], next(places))) for k, v in content["tried"]}
            return Resumed(stage, state, tried, int(content["passes"]))
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, StopIteration, NotPositiveDefinite):
            raise self._of_another("what it holds is not of this shape") from None

    def _read(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        try:
            content, arrays = archive.read(self.path)
        except (Refusal, OSError) as error:
            raise problem(
                self.where, f"checkpoint {self.path} cannot be read ({error})", "one that fit wrote", "Remove it."
            ) from None
        if content.get("format") != _FORMAT or content.get("version") != _VERSION:
            raise problem(self.where, f"checkpoint {self.path} is not one of this version", "one that fit wrote")
        return content, arrays

    def _check(self, content: Mapping[str, Any], found: Any) -> None:
        """Refuse the checkpoint of other settings or other rows; default priors follow the rows, and so come last."""
        old, settings, measured = content.get("settings"), self.settings, self.measured
        changed = [key for key in settings if not isinstance(old, dict) or old.get(key) != settings[key]]
        same = np.shape(found) == measured.shape and np.allclose(found, measured, rtol=_SAME, atol=1e-300)
        if not same and set(changed) <= {"priors"}:
            raise self._of_another("the data differ (X, y or the weights)")
        if old != settings:
            raise self._of_another(f"{', '.join(changed) or 'the settings'} differ")

    def same_rows(self, told: float, elbo: float) -> None:
        """Refuse a checkpoint whose rows gave another elbo at the same iterate."""
        if abs(told - elbo) > _SAME * max(1.0, abs(elbo)):
            raise self._of_another("the data differ (its rows gave another elbo)")

    def _of_another(self, why: str) -> Refusal:
        """The sentence of a checkpoint that is not of this fit."""
        got = f"checkpoint {self.path} is of another fit: {why}"
        return problem(self.where, got, "the one that this call wrote", "Give another path, or remove the file.")

    def _write(self, content: Mapping[str, Any], arrays: list[np.ndarray]) -> None:
        """Write it whole, or leave the old one and say so."""
        try:
            archive.write(self.path, {"format": _FORMAT, "version": _VERSION, **content}, arrays)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = "the disk is full" if full else f"{type(error).__name__}: {error}"
            old = " What was written before is whole." if self.path.exists() else ""
            raise Interrupted(
                f"{self.where}: checkpoint {self.path} cannot be written ({what}). Free some space, or give another "
                f"path, and call fit again.{old}"
            ) from error


def _places(arrays: Sequence[np.ndarray]) -> Iterator[Step]:
    """Four arrays at a time."""
    for i in range(0, len(arrays) - 3, 4):
        yield Step(*(np.asarray(array, dtype=np.float64) for array in arrays[i : i + 4]))


def _approximation(prior: PartitionedPrior, place: Step) -> Approximation:
    return Approximation(prior, place.theta, place.own, place.mean, place.gram)
