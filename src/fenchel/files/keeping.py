"""Save and load: an object as a graph of nodes in an archive, with the versions that wrote it."""

from __future__ import annotations

import platform
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Refusal, problem
from . import archive
from .decoding import Decoder
from .graph import Encoder

FORMAT, VERSION = "fenchel", 3
_WITH = ("fenchel", "numpy", "scipy", "pandas", "formulaic", "scikit-learn")


def save(thing: Any, path: str | Path) -> None:
    """Write a fitted model, estimator or solution to a file.

    Parameters
    ----------
    thing : FittedModel, Solution, or a fitted estimator of fenchel
    path : str or Path
        Written beside it first and then renamed: a file that was there is whole at every moment.
    """
    archive.write(path, *packed(thing))


def packed(thing: Any) -> tuple[dict[str, Any], list[np.ndarray]]:
    """An object as json and arrays: what a file holds."""
    encoder, name = Encoder(), type(thing).__name__
    root = encoder.value(thing, name)
    content = {"format": FORMAT, "version": VERSION, "holds": name, "with": _versions(), "root": root}
    return {**content, "nodes": encoder.nodes}, encoder.arrays


def load(path: str | Path, sha256: str | None = None) -> Any:
    """What ``save`` wrote.

    No code of the file's is run, now or when the model predicts: it names classes of fenchel's and gives their
    attributes, and nothing else; what it takes in memory is bounded by its size. A file that is damaged, of a newer
    format, or that names anything else is refused with a sentence.

    Parameters
    ----------
    path : str or Path
    sha256 : str, optional
        What ``fenchel.files.digest(path)`` gave when the file was saved. Files are not signed: without it a file that
        somebody wrote with other numbers, and right checksums, is taken for yours.
    """
    return unpacked(path, *archive.read(path, sha256))


def unpacked(path: str | Path, content: dict[str, Any], arrays: list[np.ndarray], into: Any = None) -> Any:
    """The object of json and arrays from ``path``; ``into``: an empty one of its class, to be filled."""
    if content.get("format") != FORMAT or type(content.get("version")) is not int or "root" not in content:
        raise problem("load", f"{path} is not a file of fenchel's", "one that save wrote")
    if content["version"] != VERSION:
        newer = content["version"] > VERSION
        got = f"{path} has format {content['version']}, of {'a newer' if newer else 'an older'} fenchel"
        advice = "Update fenchel, or save it again with this one." if newer else "Fit it again, and save that."
        raise problem("load", got, f"format {VERSION}", advice)
    try:
        out = Decoder(content.get("nodes"), arrays).root(content["root"], into)
        if type(out).__name__ != content.get("holds"):
            raise ValueError(f"it holds a {type(out).__name__}")
    except Refusal:
        raise
    except Exception as error:  # whatever an odd node does to the constructors of numpy, scipy and pandas
        raise archive.damaged(path, error) from None
    wrote = content.get("with")
    _announce(path, wrote if isinstance(wrote, dict) else {})
    return out


def _announce(path: str | Path, wrote: dict[str, Any]) -> None:
    """Warn where other versions wrote the file: their objects may have had other parts."""
    ours = _versions()
    for name in ("fenchel", "formulaic"):
        theirs, mine = str(wrote.get(name)), str(ours.get(name))
        if theirs.split(".")[:2] != mine.split(".")[:2]:
            warnings.warn(
                f"load: {path} was written with {name} {theirs[:20]}, and this is {mine}: what it answers may differ.",
                UserWarning,
                stacklevel=4,
            )


def _versions() -> dict[str, str]:
    out = {"python": platform.python_version()}
    for name in _WITH:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = getattr(sys.modules.get(name), "__version__", "unknown")
    return out
