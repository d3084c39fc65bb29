"""The iterate of a fit in a file, written beside it first and then renamed: whole at every moment.

It is of the size of the weights, and goes with its problem: the settings it was written under, what the columns and y
measured, and the elbo that the rows gave at the iterate, which they must give again.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Refusal, problem
from ..files import archive
from .running import Interrupted

_FORMAT, _VERSION = "fenchel checkpoint", 1
_SAME = 1e-9  # relative difference that another order of summation makes


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

    def read(self) -> tuple[dict[str, Any], list[np.ndarray]] | None:
        """What the file holds; None where there is none."""
        if not self.path.exists():
            return None
        try:
            content, arrays = archive.read(self.path)
        except (Refusal, OSError) as error:
            raise problem(
                self.where, f"checkpoint {self.path} cannot be read ({error})", "one that fit wrote", "Remove it."
            ) from None
        if content.get("format") != _FORMAT or content.get("version") != _VERSION:
            raise problem(self.where, f"checkpoint {self.path} is not one of this version", "one that fit wrote")
        return content, arrays

    def check(self, content: Mapping[str, Any], settings: Mapping[str, Any], measured: np.ndarray, found: Any) -> None:
        """Refuse the checkpoint of other settings or other rows; default priors follow the rows, and so come last."""
        old = content.get("settings")
        changed = [key for key in settings if not isinstance(old, dict) or old.get(key) != settings[key]]
        same = np.shape(found) == measured.shape and np.allclose(found, measured, rtol=_SAME, atol=1e-300)
        if not same and set(changed) <= {"priors"}:
            raise self.of_another("the data differ (X, y or the weights)")
        if old != dict(settings):
            raise self.of_another(f"{', '.join(changed) or 'the settings'} differ")

    def same_rows(self, told: float, elbo: float) -> None:
        """Refuse a checkpoint whose rows gave another elbo at the same iterate."""
        if abs(told - elbo) > _SAME * max(1.0, abs(elbo)):
            raise self.of_another("the data differ (its rows gave another elbo)")

    def of_another(self, why: str) -> Refusal:
        """The sentence of a checkpoint that is not of this fit."""
        got = f"checkpoint {self.path} is of another fit: {why}"
        return problem(self.where, got, "the one that this call wrote", "Give another path, or remove the file.")

    def write(self, content: Mapping[str, Any], arrays: list[np.ndarray]) -> None:
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
