"""A linear model fitted to rows in partitions: what ``linear.py`` does in memory, by passes over Dask collections.

One pass looks at the rows (``distributed/survey.py``): columns are measured, y is read into a target from its different
values, a sample comes home. The fit is ``distributed/fitting.py``; prediction needs no more than the posterior of the
weights and is the same as in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import count, problem
from ..distributed import Block, Checkpoint, Chunk, Held, Learning, Partitions, chunk_rows, computed
from ..distributed.fitting import Fitting, Identity
from ..distributed.survey import MOST, Asked, Survey, block_vector, matrix, survey, target, weights_of
from ..distributed.variances import GroupedVariances
from ..hyperparameters import Learned
from ..likelihoods.base import Likelihood
from ..linalg.standardized import Standardized
from .brought import Brought, ReadTarget
from .labels import levels_of_words
from .target import Target

if TYPE_CHECKING:
    from .linear import LinearModel

_FEWEST, _LARGEST, _EACH, _NUMBERS = 4096, 65536, 64, 1 << 23  # rows of a sample: of all, for a weight, entries of all
_DEFAULTS = {"trials": 1.0}


@dataclass(frozen=True)
class LinearReader:
    """Rows of a partition as a fit takes them: columns standardised, y as the likelihood has it.

    labels : array or None
        What y are called, in order; ``words`` where they are matched as they are, missing ones allowed.
    """

    where: str
    names: tuple[str, ...]
    columns: tuple[np.ndarray, np.ndarray, np.ndarray]
    constant: np.ndarray
    ones: bool
    likelihood: Likelihood
    keys: tuple[str, ...]
    labels: np.ndarray | None = None
    words: bool = False

    def chunks(self, block: Block) -> Iterator[Chunk]:
        number, (shift, rest, unit) = block.number, self.columns
        X = matrix(self.where, block["X"], self.names, number, checked=True)
        y, w = self.levels(target(self.where, block["y"], number)), block.get("weight")
        w = weights_of(self.where, w, block.n, number)
        rows = {key: block_vector(self.where, key, block[key], block.n, number) for key in self.keys}
        step = chunk_rows(X.shape[1])
        for i in range(0, block.n, step):
            part = slice(i, min(block.n, i + step))
            design = Standardized(X[part], shift, unit, self.ones, rest)
            design.drop(self.constant)
            own = self.likelihood.with_rows(**{k: v[part] for k, v in rows.items()}) if rows else self.likelihood
            yield Chunk(design, own, y[part], None if w is None else w[part])

    def levels(self, y: np.ndarray) -> np.ndarray:
        """y as the likelihood takes it."""
        if self.labels is None:
            return np.asarray(y, dtype=np.float64)
        if self.words:
            return levels_of_words(self.where, self.labels, y)
        place = np.searchsorted(self.labels, y)
        return np.clip(place, 0, self.labels.size - 1).astype(np.float64)


def fit_partitioned(estimator: LinearModel, brought: Brought, read: ReadTarget) -> None:
    """Fit a linear model to partitions; ``read`` makes the target of y's different values."""
    where = type(estimator).__name__
    if brought.y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    given = {key: value for key, value in (brought.rows or {}).items() if value is not None}
    rows = Partitions.of(where, X=brought.X, y=brought.y, weight=brought.weight, **given)
    file = None if brought.checkpoint is None else Checkpoint(where, brought.checkpoint)
    rows = replace(rows, kept=None if file is None else file.path)
    names = _names(estimator, rows, brought.X)
    keys, D = tuple(given), len(names)
    wanted = min(_LARGEST, max(_FEWEST, _EACH * (D + 1)), max(1, _NUMBERS // max(1, D)))
    asked = Asked(where, names, keys, -(-wanted // rows.count), max(64, MOST // rows.count))
    found: Survey = rows.reduce(survey, asked)
    aims, labels, words = read(found, _beside(found, keys))
    aims = replace(aims, likelihood=_stripped(aims.likelihood))
    own = bool(getattr(estimator, "learn_likelihood", False)) and aims.likelihood.theta.size > 0
    latent, mean = estimator._latent_of(found.moments, np.zeros((1, D)), aims, own)
    latent.settled = True  # the rows are many, whatever is held of them here
    reader = LinearReader(
        where, names, latent.columns, latent.constant, latent.groups.size > D, aims.likelihood, keys, labels, words
    )
    learned = estimator.learn_variance or own
    bounds = _own_bounds(aims) if own else np.zeros((0, 2))
    learning = Learning(bool(learned and latent.groups.max(initial=-1) >= 0), aims.likelihood if own else None, bounds)
    prior = GroupedVariances(latent.groups, latent.variance, latent.mean, **latent.options)
    identity = Identity(_settings(estimator, names, keys, aims), _measured(found))
    sample = (Held(where, _joined(found)), reader)
    task = Fitting(rows, reader, aims.likelihood, prior, learning, estimator._inner_tol(), sample, file, identity)
    fitted: Learned = task.run()
    estimator._take(fitted, aims, latent, mean)


def _names(estimator: LinearModel, rows: Partitions, X: Any) -> tuple[str, ...]:
    """The columns of X; what scikit-learn keeps of them is kept."""
    keep_columns(estimator, rows, X)
    return tuple(estimator._columns())


def keep_columns(estimator: Any, rows: Partitions, X: Any) -> int:
    """How many columns X has; ``n_features_in_`` and ``feature_names_in_`` as scikit-learn would set them."""
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
    return D


def _width(block: Any) -> int:
    return int(block.shape[1])


def _beside(found: Survey, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """What rows have besides y, at its different values."""
    return {key: found.y[:, 1 + i] for i, key in enumerate(keys)}


def _stripped(likelihood: Likelihood) -> Likelihood:
    """Without the parameters of rows, which readers add."""
    keys = likelihood.row_parameters
    return likelihood.with_rows(**{key: _DEFAULTS.get(key) for key in keys}) if keys else likelihood


def _own_bounds(aims: Target) -> np.ndarray:
    """Where the likelihood's own parameters may lie, with where they start inside."""
    bounds, own = aims.likelihood.theta_bounds(aims.y), aims.likelihood.theta
    return np.stack([np.minimum(bounds[:, 0], own), np.maximum(bounds[:, 1], own)], axis=1)


def _joined(found: Survey) -> dict[str, Any]:
    """The sample as one block, each row weighing what it stands for."""
    import scipy.sparse as sp

    parts, out = found.sample, {}
    for key in parts[0]:
        if key in ("weight", "stands"):
            continue
        each = [part[key] for part in parts]
        sparse = key == "X" and any(sp.issparse(x) for x in each)
        out[key] = sp.csr_array(sp.vstack([sp.csr_array(x) for x in each])) if sparse else np.concatenate(each)
    out["weight"] = np.concatenate(
        [part["stands"] * (1.0 if part["weight"] is None else part["weight"]) for part in parts]
    )
    return out


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


def _measured(found: Survey) -> np.ndarray:
    mean, sd, _, _ = found.moments
    return np.concatenate([[found.n, found.weight], mean, sd, found.total])
