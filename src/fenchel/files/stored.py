"""Save and load: the statement of an object in an archive, with the versions that wrote it.

Pickle and copy take an object as it is, marked as theirs. skops, which asks for ``__getstate__`` itself, is handed
what ``save`` would write, json and arrays, and gives it back to ``__setstate__``: it need trust the class alone, and
all that is inside is checked as ``load`` checks it.
"""

from __future__ import annotations

import copyreg
import json
import platform
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import callers_line, problem
from . import archive
from .encoding import Decoder, Encoder
from .statements import statement_of

FORMAT, VERSION = "fenchel", 4
_WITH = ("fenchel", "numpy", "scipy", "pandas", "formulaic", "scikit-learn")
_MARK = "fenchel"
TRUSTED: tuple[str, ...] = (
    "fenchel.estimators.factor_analysis.ProbabilisticPCA",
    *(f"fenchel.estimators.gaussian_process.GaussianProcess{word}" for word in ("Classifier", "PoissonRegressor")),
    *(f"fenchel.estimators.linear.Bayesian{word}Regression" for word in ("Logistic", "Poisson")),
    *(f"fenchel.estimators.regression.{word}" for word in ("BayesianLinearRegression", "GaussianProcessRegressor")),
    "fenchel.models.fitted.FittedModel",
    "fenchel.models.regressor.FormulaRegressor",
    "fenchel.solvers.solution.Solution",
    "fenchel.corrections.corrected.Corrected",
    "fenchel.corrections.interpolated.Interpolated",
    "fenchel.corrections.collapsed.Collapsed",
    *(f"fenchel.corrections.large.{word}Corrected" for word in ("Large", "Local", "Tall")),
    "fenchel.corrections.importance.ImportanceSample",
    "fenchel.hyperparameters.base.Learned",
    "fenchel.hyperparameters.weights.Relevance",
    "fenchel.hyperparameters.grid.Grid",
    "fenchel.hyperparameters.integration.integrated.Integrated",
)
"""The types that ``skops.io.load`` is to be told to trust for whatever fenchel fits: each checks what it is given."""


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
    name = type(thing).__name__
    if isinstance(thing, Stored) and statement_of(thing) is None:
        got = f"this {name} is a part of another fit"
        raise problem("save", got, "the fit that it is a part of", "Save that one: it has this one in it.")
    encoder = Encoder()
    root = encoder.value(thing, name)
    content = {"format": FORMAT, "version": VERSION, "holds": name, "with": _versions(), "root": root}
    return content, encoder.arrays


def load(path: str | Path, sha256: str | None = None) -> Any:
    """What ``save`` wrote.

    No code of the file's is run, now or when the model predicts: it names constructors of fenchel's and their
    arguments, and nothing else. They check what they are given as they check yours. A file that is damaged, of another
    format, or that names anything else is refused with a sentence.

    Parameters
    ----------
    path : str or Path
    sha256 : str, optional
        What ``fenchel.files.digest(path)`` gave when the file was saved. Files are not signed: without it a file that
        somebody wrote with other numbers, and right checksums, is taken for yours.
    """
    return unpacked(path, *archive.read(path, sha256))


def unpacked(path: str | Path, content: dict[str, Any], arrays: list[np.ndarray]) -> Any:
    """The object of json and arrays from ``path``."""
    if content.get("format") != FORMAT or type(content.get("version")) is not int or "root" not in content:
        raise problem("load", f"{path} is not a file of fenchel's", "one that save wrote")
    if content["version"] != VERSION:
        newer = content["version"] > VERSION
        got = f"{path} has format {content['version']}, of {'a newer' if newer else 'an older'} fenchel"
        advice = "Update fenchel, or save it again with this one." if newer else "Fit it again, and save that."
        raise problem("load", got, f"format {VERSION}", advice)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who fitted it has heard them
            out = Decoder(arrays).value(content["root"])
        if type(out).__name__ != content.get("holds"):
            raise ValueError(f"it holds a {type(out).__name__}")
    except Exception as error:  # whatever odd arguments do to constructors of ours, numpy's, scipy's and pandas'
        raise archive.damaged(path, error) from None
    wrote = content.get("with")
    _announce(path, wrote if isinstance(wrote, dict) else {})
    return out


def _announce(path: str | Path, wrote: dict[str, Any]) -> None:
    """Warn where other versions wrote the file: they may compute something else from the same statement."""
    ours = _versions()
    for name in ("fenchel", "formulaic"):
        theirs, mine = str(wrote.get(name)), str(ours.get(name))
        if theirs.split(".")[:2] != mine.split(".")[:2]:
            warnings.warn(
                f"load: {path} was written with {name} {theirs[:20]}, and this is {mine}: what it answers may differ.",
                UserWarning,
                stacklevel=callers_line(),
            )


def _versions() -> dict[str, str]:
    out = {"python": platform.python_version()}
    for name in _WITH:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = getattr(sys.modules.get(name), "__version__", "unknown")
    return out


def of_pickle() -> None:
    """What marks the attributes that pickle and copy hand over as they are. skops trusts no such function, so that a
    file of skops' cannot say that it is a pickle."""


class Stored:
    """Something fitted that can be kept in a file."""

    def save(self, path: str | Path) -> None:
        """Keep it in a file of arrays and json; ``fenchel.load`` brings it back, in another process too.

        Functions of one's own in a formula, and kernels, terms and likelihoods of one's own, cannot be saved.

        Parameters
        ----------
        path : str or Path
            Written beside it first and then renamed: a file that was there is whole at every moment.
        """
        save(self, path)

    def __getstate__(self) -> dict[str, Any]:
        content, arrays = packed(self)
        return {_MARK: json.dumps(content, allow_nan=False), "arrays": arrays}

    def __setstate__(self, state: Any) -> None:
        if type(state) is tuple and len(state) == 2 and state[0] is of_pickle:
            self.__dict__.update(state[1])
            return
        name = type(self).__name__
        refusal = problem("skops", f"what it has of {name} is damaged", "json and arrays, as __getstate__ gives them")
        try:
            content, arrays = json.loads(state[_MARK]), state["arrays"]
            plain = type(arrays) is list and all(
                type(x) is np.ndarray and x.dtype.kind in archive.KINDS for x in arrays
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            raise refusal from None
        if type(content) is not dict or not plain or content.get("holds") != name:
            raise refusal
        self.__dict__.update(unpacked(f"what skops has of {name}", content, arrays).__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__reduce_ex__(2)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), (of_pickle, dict(self.__dict__))  # type: ignore[attr-defined]
