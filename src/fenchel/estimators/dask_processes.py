"""Gaussian processes of rows in a Dask collection: points and kernel from a sample of the rows, the fit from all.

One pass measures the columns, collects the different values of y and draws a sample. The sample chooses the kernel, the
points and where theta starts, in memory; ``distributed/inducing_passes.py`` goes on with all rows.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from ..checks import choice, problem
from ..distributed import Checkpoint, InMemory, Learning, Partitions, Sums
from ..distributed.inducing_passes import InducingPasses, InducingStart
from ..distributed.linear_rows import LinearTable, joined
from ..hyperparameters import InducingFit
from ..hyperparameters.inducing_learning import FINE_SHARE, default_loss
from ..inputs.observations import Target
from ..kernels import is_compound
from ..solvers.base import reporting
from .dask_rows import ROW_DEFAULTS, column_names, fit_settings, measured_numbers, run_survey
from .inducing_latent import InducingLatent
from .neighbours_latent import LEARNING_TOL

if TYPE_CHECKING:
    from .gaussian_process import GaussianProcessEstimator

_PIECES = 32  # of a sample, for the cores
_SAMPLE = 30_000  # rows of a sample, which has the points and says where theta starts; a smaller table is its own


def fit_process(estimator: GaussianProcessEstimator, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> None:
    """Fit a Gaussian process to partitions."""
    where = type(estimator).__name__
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    advice = "Rows in partitions are seen through inducing points."
    choice(where, "approximation", estimator.approximation, ("auto", "inducing"), advice)
    if estimator.integrate:
        raise problem(where, f"integrate = {estimator.integrate!r} with rows in partitions", "integrate=None")
    given = estimator.get_params(deep=False)
    for key, unset in (("alpha", None), ("normalize_y", False), ("n_targets", None)):
        if given.get(key, unset) is not unset:
            raise problem(where, f"{key} is given, with rows in partitions", f"{key}={unset}")
    if np.ndim(estimator.categorical_features) == 0:
        choice(where, "categorical_features", estimator.categorical_features, ("from_dtype", None))
    elif len(estimator.categorical_features):
        got = "categorical_features are given, with rows in partitions"
        raise problem(where, got, "numbers alone, or a table in memory")
    if given.get("kernel_per_class") or is_compound(estimator.kernel) or type(estimator.kernel) in (list, tuple):
        raise problem(where, "a kernel for each class, with rows in partitions", "one kernel for all classes")
    if callable(estimator.mean):
        raise problem(where, "a function as mean, with rows in partitions", 'a number, "zero", "constant" or "linear"')
    if callable(estimator.optimizer):
        raise problem(where, "a function as optimizer, with rows in partitions", "optimizer='fmin_l_bfgs_b'")
    if estimator.device is not None:
        raise problem(where, f"device = {estimator.device!r} with rows in partitions", "device=None")
    beside = {key: value for key, value in rows.items() if value is not None}
    parts = Partitions.of(where, X=X, y=y, weight=weight, **beside)
    file = None if checkpoint is None else Checkpoint(where, checkpoint)
    parts = replace(parts, kept=None if file is None else file.path)
    table = LinearTable(where, column_names(estimator, parts, X), tuple(beside))
    found = run_survey(parts, table, _SAMPLE)
    target, labels = estimator._read_partitions(found["values"])
    likelihood = target.likelihood
    if likelihood.row_parameters:  # readers add them
        likelihood = likelihood.with_rows(**{key: ROW_DEFAULTS.get(key) for key in likelihood.row_parameters})
    target = replace(target, likelihood=likelihood)
    if file is not None:
        file.describe(fit_settings(estimator, table, target), measured_numbers(found))
    began = time.perf_counter()
    latent, start = _start_from_sample(estimator, found, target, labels, file)
    family = latent.family().with_points(start.points)
    mean = np.broadcast_to(np.reshape(latent.mean, (1, -1)), (1, likelihood.n_predictors))
    learned_own = start.own.size > 0
    learning = Learning.of(False, likelihood if learned_own else None, target.y, target.weights)
    allowed = default_loss(found["n"]) if estimator.loss is None else float(estimator.loss)
    with reporting(bool(estimator.progress), f"{where} of {found['n']} rows in partitions", None) as report:
        sample, tol = InMemory(where, joined(found["sample"]), _PIECES), estimator._inner_tol()
        tol = tol if estimator.optimizer is None else max(LEARNING_TOL, tol)
        model = (parts, table, family, likelihood, labels, mean, learning, sample, int(found["n"]))
        passes = InducingPasses(*model, tol, FINE_SHARE * allowed, file, report)
        learned, loss = passes.run(start, estimator.optimizer is not None and start.theta.size > 0)
    stage = {
        "n_inducing": loss.n_points,
        "elbo": learned.solution.elbo,
        "bound": loss.bound,
        "standard_error": loss.standard_error,
        "seconds": time.perf_counter() - began,
    }
    ending = f"the points are those of a sample of {len(sample.columns['y'])} rows"
    latent.result = InducingFit(learned, family, loss, [stage], ending)
    learned.solution.n_passes = parts.passes[0]  # type: ignore[attr-defined]
    estimator._take(learned, target, latent)


def _start_from_sample(
    estimator: GaussianProcessEstimator, found: Sums, target: Target, labels: np.ndarray | None, file: Checkpoint | None
) -> tuple[InducingLatent, InducingStart]:
    """The latent with its points, and where all rows begin: by the sample, or as the checkpoint has it."""
    few = joined(found["sample"])
    share = len(few["y"]) / found["n"]  # each row of the sample counts once: more often, it would fit its own noise
    X, y, weights = few["X"], few["y"], share * few["weight"]
    if issparse(X):
        raise problem(target.where, "X is sparse", "a dense table", "Gaussian processes have no use for sparse rows.")
    places = y if labels is None else np.searchsorted(labels, y)
    likelihood = target.likelihood.with_rows(
        **{key: few[key] for key in few if key in target.likelihood.row_parameters}
    )
    sampled = replace(target, y=np.asarray(places, dtype=np.float64), likelihood=likelihood)
    latent = estimator._process(X, sampled, weights)[0]
    kept = [] if file is None else file.begun_with()
    if not kept:
        allowed = default_loss(found["n"]) if estimator.loss is None else estimator.loss
        many = InducingLatent.of(latent, n_inducing=estimator.n_inducing, loss=share * allowed)
        kept = _learned(estimator, many, sampled, weights)
    points, theta, own_theta = kept
    if file is not None:
        file.given = list(kept)
    at = latent.kernel.clone_with_theta(theta) if theta.size else latent.kernel
    out = InducingLatent.of(latent, kernel=at, X=points, theta=None)
    out.centre_of_prior, out.in_partitions = latent.kernel.theta, True
    return out, InducingStart(points, theta, own_theta)


def _learned(
    estimator: GaussianProcessEstimator, latent: InducingLatent, target: Target, weights: np.ndarray
) -> list[np.ndarray]:
    """Points, theta, and the likelihood's own parameters where these are learned."""
    own = bool(estimator.learn_likelihood) and target.likelihood.theta.size > 0 and estimator.optimizer is not None
    options = {"weights": weights, "tol": LEARNING_TOL, "progress": bool(estimator.progress)}
    if estimator.optimizer is None:
        found = latent.fitted(target, latent.family(), **options)
    else:
        found = latent.learn(target, latent.family(), own, **options)
    assert latent.result is not None
    n = latent.result.family.theta.size
    return [latent.result.family.points, found.theta[:n], found.theta[n:]]
