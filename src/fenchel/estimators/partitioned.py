"""A linear model fitted to rows in partitions: what ``linear.py`` does in memory, by passes over Dask collections.

One pass looks at the rows (``distributed/survey.py``): columns are measured, y is read into a target from its different
values, a sample comes home. The fit is ``distributed/fitting.py``; prediction needs no more than the posterior of the
weights and is the same as in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import count, problem
from ..distributed import Checkpoint, Held, Learning, Partitions, computed
from ..distributed.fitting import Fitting, Identity
from ..distributed.linear import LinearReader
from ..distributed.precision import GroupedVariances
from ..distributed.survey import MOST, Asked, Survey, survey
from ..hyperparameters import Learned
from ..likelihoods.base import Likelihood
from .brought import Brought, ReadTarget
from .target import Target

if TYPE_CHECKING:
    from .linear import LinearModel

_FEWEST, _LARGEST = 4096, 65536  # rows of a sample
_NUMBERS = 1 << 23  # and entries
_DEFAULTS = {"trials": 1.0}


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
    most = min(_LARGEST, max(_FEWEST, _NUMBERS // D))
    asked = Asked(where, names, keys, -(-_FEWEST // rows.count), -(-most // rows.count), max(64, MOST // rows.count))
    found: Survey = rows.reduce(survey, asked)
    if not found.weight > 0.0:
        raise problem(where, "sample_weight is 0 in every row of every partition", "one row or more that counts")
    if found.n > 1 and abs(found.weight - 1.0) <= 1e-6:
        got = "sample_weight sums to 1 over all partitions, and weights say how often a row was seen"
        raise problem(where, got, "numbers of rows", f"Shares times {found.n}, the number of rows, are.")
    aims, labels = read(found, _beside(found, keys))
    aims = replace(aims, likelihood=_stripped(aims.likelihood))
    own = bool(getattr(estimator, "learn_likelihood", False)) and aims.likelihood.theta.size > 0
    latent, mean = estimator._latent_of(found.moments, np.zeros((1, D)), aims, own)
    latent.settled = True  # the rows are many, whatever is held of them here
    reader = LinearReader(
        where, names, latent.columns, latent.constant, latent.groups.size > D, aims.likelihood, keys, labels
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
