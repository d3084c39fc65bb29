"""Collections of Dask's given to ``fit``, and a target made of the different values of y in their partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import holds, numeric, problem
from ..distributed import is_dask
from ..distributed.survey import ValueCounts
from ..likelihoods.base import Likelihood
from .labels import known, read_labels
from .observations import read_observations
from .target import Target


@dataclass(frozen=True)
class DaskInput:
    """What ``fit`` was given: X, y, weights, and what rows have besides, by name; where the iterate is kept."""

    X: Any
    y: Any
    weight: Any = None
    rows: Mapping[str, Any] | None = None
    checkpoint: Any = None


# of the different values of y: the target, and its labels
ReadTarget = Callable[[ValueCounts], tuple[Target, np.ndarray | None]]


def in_partitions(where: str, X: Any, checkpoint: Any) -> bool:
    """Whether X is a collection of Dask's, or a list of delayed blocks."""
    if is_dask(X) or (isinstance(X, list | tuple) and len(X) > 0 and all(is_dask(block) for block in X)):
        return True
    if checkpoint is not None:
        got = "checkpoint meets a table in memory"
        raise problem(where, got, "a Dask array or dataframe", "A fit in memory is over in seconds: leave it out.")
    return False


def partitions_target(
    where: str,
    likelihood: Any,
    bound: str,
    values: ValueCounts,
    centred: bool,
    learned: bool,
) -> tuple[Target, np.ndarray | None]:
    """The target of any likelihood, and the words that its levels are called."""
    own = known(likelihood)
    if isinstance(own, Likelihood):
        for key in own.row_parameters:
            if np.ndim(getattr(own, key)) > 0:
                got = f"{own!r} holds {key} of its own, and rows are in partitions"
                raise problem(where, got, f"fit(X, y, {key}=...)", "Give it as a Dask array, cut as X is.")
    y, w = values.y, values.weight
    if y.dtype.kind not in "biuf" and own is not None and own.ordered:
        advice = "Give levels as numbers: y.cat.codes of an ordered categorical."
        raise problem(
            where, f"y holds {holds(y) or 'words'} in partitions, and their order is not known", "numbers", advice
        )
    y, words = read_labels(where, likelihood, y)
    y = numeric(where, "y", y)
    moments = values.moments
    if values.cut and moments is not None and own is not None and own.noise:
        # a share of the values gets the mean and the spread of all
        centre = np.average(y, weights=w)
        sd = float(np.sqrt(np.average((y - centre) ** 2, weights=w)))
        y = moments.mean[0] + (y - centre) * (float(np.sqrt(moments.covariance[0, 0])) / sd if sd > 0.0 else 1.0)
    twice = {key: np.tile(value, 2) for key, value in values.beside.items()}  # rows, of which several have one value
    return read_observations(
        where, likelihood, bound, np.tile(y, 2), twice, np.tile(w / 2, 2), centred, learned, words
    ), words
