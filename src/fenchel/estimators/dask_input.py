"""A linear model fitted to rows in partitions: what ``linear.py`` does in memory, by passes over Dask collections.

One pass looks at the rows (``distributed/linear.py``): columns are measured, y is read into a target from its different
values, a sample comes home. The fit is ``distributed/fitting.py``; prediction needs no more than the posterior of the
weights and is the same as in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp

from ..checks import count, holds, numeric, problem
from ..distributed import (
    Checkpoint,
    InMemory,
    Learning,
    PartitionedFit,
    PartitionedSolution,
    Partitions,
    Stage,
    Sums,
    computed,
    is_dask,
)
from ..distributed.fitting import learned
from ..distributed.linear import MOST_VALUES, LinearReader, survey
from ..distributed.precision import GroupedVariances
from ..distributed.solver import Outcome
from ..distributed.survey import Moments, ValueCounts
from ..hyperparameters import Learned
from ..hyperparameters.relevance import WIDTHS, Relevance, Spread, width_evidence
from ..likelihoods.base import Likelihood
from .labels import known, read_labels
from .observations import read_observations
from .target import Target

if TYPE_CHECKING:
    from .linear import LinearModel

_FEWEST, _LARGEST = 4096, 65536  # rows of a sample
_NUMBERS = 1 << 23  # and entries
_DEFAULTS = {"trials": 1.0}


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


# -- the fit ------------------------------------------------------------------------------------------------
def fit_partitioned(estimator: LinearModel, given: DaskInput, read: ReadTarget) -> None:
    """Fit a linear model to partitions; ``read`` makes the target of y's different values."""
    where = type(estimator).__name__
    if given.y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    beside = {key: value for key, value in (given.rows or {}).items() if value is not None}
    rows = Partitions.of(where, X=given.X, y=given.y, weight=given.weight, **beside)
    file = None if given.checkpoint is None else Checkpoint(where, given.checkpoint)
    rows = replace(rows, kept=None if file is None else file.path)
    names, keys = _names(estimator, rows, given.X), tuple(beside)
    largest, most = min(_LARGEST, max(_FEWEST, _NUMBERS // len(names))), max(64, MOST_VALUES // rows.count)
    sample = -(-_FEWEST // rows.count), -(-largest // rows.count)
    found: Sums = rows.reduce(survey, where, names, keys, sample, most)
    columns: Moments = found["columns"]
    if not columns.weight > 0.0:
        raise problem(where, "sample_weight is 0 in every row of every partition", "one row or more that counts")
    if found["n"] > 1 and abs(columns.weight - 1.0) <= 1e-6:
        got = "sample_weight sums to 1 over all partitions, and weights say how often a row was seen"
        raise problem(where, got, "numbers of rows", f"Shares times {found['n']}, the number of rows, are.")
    aims, labels = read(found["values"])
    aims = replace(aims, likelihood=_stripped(aims.likelihood))
    likelihood, D = aims.likelihood, len(names)
    own = bool(getattr(estimator, "learn_likelihood", False)) and likelihood.theta.size > 0
    latent, mean = estimator._latent_of(columns.columns(), np.zeros((1, D)), aims, own)
    latent.settled = True  # the rows are many, whatever is held of them here
    reader = LinearReader(
        where, names, latent.columns, latent.constant, latent.groups.size > D, likelihood, keys, labels
    )
    learned = estimator.learn_variance or own
    bounds = _own_bounds(aims) if own else np.zeros((0, 2))
    learning = Learning(bool(learned and latent.groups.max(initial=-1) >= 0), likelihood if own else None, bounds)
    prior = GroupedVariances(latent.groups, latent.variance, latent.mean, **latent.options)
    if file is not None:
        file.describe(_settings(estimator, names, keys, aims), _measured(found))
    few = InMemory(where, _joined(found["sample"]))
    task = PartitionedFit(rows, reader, likelihood, [], estimator._inner_tol(), few, file)
    estimator._take(fit_weights(task, prior, learning), aims, latent, mean)


def fit_weights(task: PartitionedFit, prior: GroupedVariances, learning: Learning) -> Learned:
    """Run the stages: one, or where each weight has a variance ridge and then every width of ``relevance.py``."""
    family, likelihood = prior.family, task.likelihood

    def result(stage: Stage, outcome: Outcome) -> Learned:
        q, mine = outcome.point.q, cast(GroupedVariances, stage.prior).family
        reached = likelihood.with_theta(q.own) if q.own.size else likelihood
        solution = PartitionedSolution(outcome, reached, task.tol, task.rows.passes[0])
        n = max(1, task.n_passes)
        return learned(outcome, stage.learning, solution, mine.at(q.theta), list(mine.names), n)

    def scored(width: float) -> Stage:
        wide = family.with_log_prior(Spread(width))
        later = Stage(prior.with_family(wide), replace(learning, own=None))  # own parameters are ridge's
        return replace(later, score=lambda outcome: width_evidence(wide, result(later, outcome), width))

    task.stages = [Stage(prior, learning)]
    if learning.theta and family.n_groups > 1:
        ridge = Stage(prior.with_family(family.shared()), learning)
        task.stages = [ridge, *(scored(width) for width in WIDTHS)]
    outcome, k, evidence = task.run()
    found = result(task.stages[k], outcome)
    if not evidence:
        return found
    return Relevance(**vars(found), width=WIDTHS[k - 1], evidence={WIDTHS[j - 1]: v for j, v in evidence.items()})


def _names(estimator: LinearModel, rows: Partitions, X: Any) -> tuple[str, ...]:
    """The columns of X; ``n_features_in_`` and ``feature_names_in_`` are set as scikit-learn would set them."""
    where, named = type(estimator).__name__, rows.names.get("X")
    shape = getattr(X, "shape", None)
    if named is not None:
        D = len(named)
    elif shape is not None and len(shape) == 2 and shape[1] == shape[1]:
        D = int(shape[1])
    elif shape is not None and len(shape) != 2:
        raise problem(where, f"X has {len(shape)} dimension{'s' * (len(shape) != 1)}", "rows and columns")
    else:
        import dask

        D = int(computed(where, dask.delayed(_width)(rows.parts["X"][0])))
    if D == 0:
        raise problem(where, "X has no columns", "one feature or more")
    estimator.n_features_in_ = count(where, "columns", D, 1)
    text = named is not None and all(isinstance(name, str) for name in named)
    if text:
        estimator.feature_names_in_ = np.asarray(named, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return tuple(estimator._columns())


def _width(block: Any) -> int:
    return int(block.shape[1])


def _stripped(likelihood: Likelihood) -> Likelihood:
    """Without the parameters of rows, which readers add."""
    keys = likelihood.row_parameters
    return likelihood.with_rows(**{key: _DEFAULTS.get(key) for key in keys}) if keys else likelihood


def _own_bounds(aims: Target) -> np.ndarray:
    """Where the likelihood's own parameters may lie, with where they start inside."""
    bounds, own = aims.likelihood.theta_bounds(aims.y), aims.likelihood.theta
    return np.stack([np.minimum(bounds[:, 0], own), np.maximum(bounds[:, 1], own)], axis=1)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The samples of partitions as one block."""
    out: dict[str, Any] = {key: [part[key] for part in parts] for key in parts[0]}
    sparse = any(sp.issparse(x) for x in out["X"])
    X = sp.csr_array(sp.vstack([sp.csr_array(x) for x in out.pop("X")])) if sparse else np.concatenate(out.pop("X"))
    return {"X": X} | {key: np.concatenate(each) for key, each in out.items()}


def _settings(estimator: LinearModel, names: tuple[str, ...], keys: tuple[str, ...], aims: Target) -> dict[str, Any]:
    """What a checkpoint must agree in, as text; the tolerance may be another."""
    params = {key: value for key, value in estimator.get_params(deep=False).items() if key not in ("tol", "progress")}
    text = {key: repr(value.tolist() if isinstance(value, np.ndarray) else value) for key, value in params.items()}
    classes = None if aims.classes is None else [str(label) for label in aims.classes.tolist()]
    return {
        "estimator": type(estimator).__name__,
        **text,
        "columns": list(names),
        "rows": list(keys),
        "classes": classes,
    }


def _measured(found: Sums) -> np.ndarray:
    """Numbers that tell one table from another."""
    columns, y = found["columns"], found["values"].moments
    mean, sd, _, _ = columns.columns()
    total = np.zeros(2) if y is None else np.array([y.mean[0], y.covariance[0, 0]])
    return np.concatenate([[found["n"], columns.weight], mean, sd, total])
