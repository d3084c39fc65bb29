"""What can be kept: ``save`` to a file of our own, and the state that skops writes.

Pickle and copy take such an object as it is, marked as theirs. skops, which asks for ``__getstate__`` itself, is handed
what ``save`` would write, json and arrays, and gives it back to ``__setstate__``: it need trust the class alone, and
all that is inside is checked as ``load`` checks it.
"""

from __future__ import annotations

import copyreg
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import problem
from . import keeping
from .archive import KINDS

_MARK = "fenchel"
TRUSTED: tuple[str, ...] = (
    "fenchel.estimators.factor_analysis.ProbabilisticPCA",
    *(f"fenchel.estimators.gaussian_process.GaussianProcess{word}" for word in ("Classifier", "PoissonRegressor")),
    *(f"fenchel.estimators.linear.Bayesian{word}Regression" for word in ("Logistic", "Poisson")),
    *(f"fenchel.estimators.regression.{word}" for word in ("BayesianLinearRegression", "GaussianProcessRegressor")),
    "fenchel.models.fitted.FittedModel",
    "fenchel.models.regressor.FormulaRegressor",
    "fenchel.solvers.solution.Solution",
    "fenchel.distributed.approximation.PartitionedSolution",
    "fenchel.posterior.Posterior",
    "fenchel.corrections.corrected.Corrected",
    *(f"fenchel.corrections.large.{word}Corrected" for word in ("Large", "Local", "Tall")),
    "fenchel.corrections.importance.ImportanceSample",
    "fenchel.hyperparameters.objective.Learned",
    "fenchel.factors.learning.LearnedTable",
    "fenchel.hyperparameters.weights.Relevance",
    "fenchel.hyperparameters.grid.Grid",
    "fenchel.hyperparameters.integration.integrated.Integrated",
)
"""The types that ``skops.io.load`` is to be told to trust for whatever fenchel fits: each checks what it is given."""


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
        keeping.save(self, path)

    def _plain_state(self) -> dict[str, Any]:
        """The attributes to keep."""
        return dict(self.__dict__)

    def __getstate__(self) -> dict[str, Any]:
        content, arrays = keeping.packed(self)
        return {_MARK: json.dumps(content, allow_nan=False), "arrays": arrays}

    def __setstate__(self, state: Any) -> None:
        if type(state) is tuple and len(state) == 2 and state[0] is of_pickle:
            self.__dict__.update(state[1])
            return
        name = type(self).__name__
        if type(state) is not dict:
            raise problem("skops", f"what it has of {name} is damaged", "json and arrays, as __getstate__ gives them")
        text, arrays = state.get(_MARK), state.get("arrays")
        try:
            content = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            content = None
        if not (isinstance(content, dict) and isinstance(arrays, list) and all(type(x) is np.ndarray for x in arrays)):
            raise problem("skops", f"what it has of {name} is damaged", "json and arrays, as __getstate__ gives them")
        if any(x.dtype.kind not in KINDS for x in arrays):
            raise problem("skops", f"what it has of {name} is damaged", "arrays of numbers and text")
        keeping.unpacked(f"what skops has of {name}", content, arrays, into=self)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__reduce_ex__(2)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), (of_pickle, self._plain_state())  # type: ignore[attr-defined]
