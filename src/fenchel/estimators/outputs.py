"""Options of ``GaussianProcessRegressor`` that scikit-learn has, too: units of y, known noise, several outputs.

normalize_y    the kernel is in units of (y - mean) / sd:   eta = mean + sd f,   f ~ GP(0, kernel)
alpha          known noise variances of the training rows; predictions are then those of the function
y (N, J)       J outputs with one kernel and one noise, independent given these: log p(y) = sum_j log p(y_j)
before a fit   f ~ GP(mean, kernel) a priori, without a constant
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from .. import gates
from ..checks import callers_line, count, numeric, problem
from ..files import searched
from ..hyperparameters import Evidence, Family, KernelCovariance, Learned
from ..hyperparameters.base import entries_at_bounds
from ..hyperparameters.gaussian_rows import GaussianRows, highest
from ..hyperparameters.search import Search
from ..inputs.observations import Target
from ..kernels import evaluate
from ..likelihoods import Gaussian
from ..linalg.dense import semidefinite_root

if TYPE_CHECKING:
    from .regression import GaussianProcessRegressor

_GTOL = 1e-3  # largest slope, in nats per log unit, at which learning has converged


class OutputUnits(NamedTuple):
    """The units of the kernel: it is that of z in y = mean + sd z."""

    mean: float = 0.0
    sd: float = 1.0


def units_of(normalize: Any, y: np.ndarray, weights: np.ndarray | None) -> OutputUnits:
    """The units for ``normalize_y``: mean and standard deviation of y (1 if y is constant)."""
    if not normalize:
        return OutputUnits()
    mean = float(np.average(y, weights=weights))
    sd = float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
    return OutputUnits(mean, sd if sd > 10.0 * np.finfo(float).eps * max(abs(mean), 1e-300) else 1.0)


def known_noise(where: str, alpha: Any, likelihood: Any, n: int) -> np.ndarray | float:
    """scikit-learn's ``alpha``: a noise variance, or one for each training row (n,)."""
    if likelihood != "gaussian":
        got = f"alpha = {alpha!r} with likelihood = {likelihood!r}"
        raise problem(where, got, 'likelihood="gaussian"', "A Likelihood brings its own noise: leave alpha out.")
    value = numeric(where, "alpha", alpha)
    if value.ndim > 1 or value.size not in (1, n):
        got = f"alpha has shape {value.shape}"
        raise problem(
            where,
            got,
            f"a number, or an array of {n}, the number of rows: alpha must be a scalar or an "
            "array with same number of entries as y",
        )
    if not ((value > 0.0) & (value < np.inf)).all():
        got = f"alpha holds {value.min():g}"
        raise problem(where, got, "variances above 0", "1e-10 is scikit-learn's default; None learns the noise.")
    return float(value.reshape(-1)[0]) if value.size == 1 else value


def check_targets(where: str, n_targets: Any, seen: int) -> None:
    """Refuse a y whose number of columns differs from ``n_targets``."""
    if n_targets is not None and count(where, "n_targets", n_targets, 1) != seen:
        got = "The number of targets seen in `y` is different from the parameter `n_targets`. "
        got += f"Got {seen} != {n_targets}"
        raise problem(where, got, f"y with {n_targets} columns")


# -- several outputs --------------------------------------------------------------------------------
def fit_outputs(model: GaussianProcessRegressor, X: np.ndarray, Y: np.ndarray, weights: Any) -> None:
    """Learn the kernel and the noise from all outputs, and fit each output with them: ``model.outputs_``."""
    from .chosen_kernel import warn_unrelated
    from .mean_functions import check_mean, known_mean, mean_at, read_trend

    name = type(model).__name__
    _check_options(name, model, X)
    units = [units_of(model.normalize_y, y, weights) for y in Y.T]
    check_mean(model)
    means = [
        np.average(y, weights=weights) if model._centred else mean_at(known_mean(model, unit), X)
        for y, unit in zip(Y.T, units, strict=True)
    ]
    sds = np.array([unit.sd for unit in units])
    Z = (Y - np.stack([np.broadcast_to(mean, len(X)) for mean in means], axis=1)) / sds
    size = float(np.mean([Gaussian.scale_of(z, weights) ** 2 for z in Z.T]))
    kernel, start, learns_noise = _start(model, X, Z, weights, size)
    seen = np.arange(len(X)) if weights is None else np.flatnonzero(weights)
    family = KernelCovariance(kernel, X[seen], **read_trend(model, X, size**0.5, weights))
    noise, w = Gaussian(start).take(seen), None if weights is None else weights[seen]
    evidence = Evidence(noise, family, Z[seen, 0], weights=w, own=learns_noise)
    rows = GaussianRows(evidence, family, Z[seen])

    def search() -> dict[str, Any]:
        result = [_searched(model, rows, first) for first in _starts(model, evidence)]
        best = max((one for one in result if one is not None), key=lambda one: one.value, default=None)
        if best is None:
            got = f"the covariance under {kernel} and the noise is not positive definite in double precision"
            raise problem(name, got, "a kernel and a noise on the scale of y", "normalize_y=True brings y to scale 1.")
        return {"theta": best.theta, "gradient": best.gradient, "n_evaluations": rows.n_evaluations}

    learned = model.optimizer is not None and evidence.start.size > 0
    kept = {"theta": evidence.start, "gradient": np.zeros(evidence.start.size), "n_evaluations": 1}
    result: dict[str, Any] = searched("outputs", search, _as_it_is, _as_it_is) if learned else kept
    theta = np.asarray(result["theta"], dtype=np.float64)
    with _without_the_warning_of_each_output():
        _keep(model, X, Y, weights, kernel.clone_with_theta(theta[: kernel.n_dims]), theta, size, sds)
    if model.optimizer is not None:
        warn_unrelated(name, model.kernel_, X, model.kernel is not None)
    model.theta_names_ = evidence.names
    gradient = np.asarray(result["gradient"])
    model._at_bounds = entries_at_bounds(evidence.bounds, theta, gradient, _GTOL)[0]
    flat = evidence.largest_slope(theta, gradient) <= 2.0 * _GTOL or callable(model.optimizer) or not learned
    model.converged_ = bool(flat) and all(one.converged_ for one in model.outputs_ or [])
    if not flat:
        said = "a slope is left in the evidence of all outputs"
        warnings.warn(f"{name} did not converge: {said}", ConvergenceWarning, stacklevel=callers_line())
    model.n_iter_ = int(result["n_evaluations"])


@contextmanager
def _without_the_warning_of_each_output() -> Iterator[None]:
    """No warning of unrelated rows: the kernel is that of all outputs, for which it is given once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no row is related to any other")
        yield


def _as_it_is(numbers: dict[str, Any]) -> dict[str, Any]:
    return numbers


def _check_options(where: str, model: GaussianProcessRegressor, X: np.ndarray) -> None:
    advice = "sklearn.multioutput.MultiOutputRegressor(model) fits each column by itself."
    if not (model.likelihood == "gaussian" or type(model.likelihood) is Gaussian):
        raise problem(where, f"several outputs and likelihood = {model.likelihood!r}", '"gaussian"', advice)
    if model._levels is not None:
        raise problem(where, "several outputs and columns of levels", "one output, or numbers alone", advice)
    many = model.approximation is not None and len(X) > gates.INDUCING_ROWS
    if model.integrate or model.approximation in ("inducing", "neighbours") or many:
        got = f"several outputs of {len(X)} rows with integrate= or an approximation"
        if model.approximation == "auto" and not model.integrate:
            got += f' (approximation="auto" is one above {gates.INDUCING_ROWS} rows)'
        raise problem(where, got, "integrate=None and approximation=None", advice)


def _start(
    model: GaussianProcessRegressor, X: np.ndarray, Z: np.ndarray, weights: Any, size: float
) -> tuple[Any, Any, bool]:
    """The starting kernel, the noise variances, and whether a noise variance is learned.

    A default kernel is chosen for the first principal component of the outputs, since with a common kernel and noise
    every combination of unit length has the same ones.
    """
    from .chosen_kernel import own_kernel

    where, learns = type(model).__name__, bool(model.learn_likelihood) and model.optimizer is not None
    noise: Any = 0.5 * size
    if model.alpha is not None:
        noise, learns = known_noise(where, model.alpha, model.likelihood, len(X)), False
    elif model.likelihood != "gaussian":
        noise = model.likelihood.variance
    model.kernel_choice_ = None
    if model.warm_start and "kernel_" in vars(model):
        return clone(model.kernel_), noise, learns
    if model.kernel is not None:
        return own_kernel(where, model.kernel, X), noise, learns
    leading = np.linalg.svd(Z, full_matrices=False)[2][0]
    one = clone(model).set_params(n_targets=None, normalize_y=False)
    with _without_the_warning_of_each_output():
        one.fit(X, Z @ leading, sample_weight=weights)
    model.kernel_choice_ = one.kernel_choice_
    return one.kernel_, one.likelihood_.variance if learns else noise, learns


def _starts(model: GaussianProcessRegressor, evidence: Evidence) -> list[np.ndarray]:
    """The theta of the kernel, and one draw within the bounds for each restart."""
    from .base import generator

    where, bounds = type(model).__name__, evidence.bounds
    n = count(where, "n_restarts_optimizer", model.n_restarts_optimizer)
    return [evidence.start, *_drawn(where, n, generator(model.random_state) if n else None, bounds)]


def _drawn(where: str, n: int, rng: Any, bounds: np.ndarray) -> Any:
    """Random starts (n, n_theta) within the bounds."""
    if n and not np.isfinite(bounds).all():
        got = f"n_restarts_optimizer = {n} requires that all bounds are finite"
        raise problem(where, got, "finite bounds of the kernel")
    return rng.uniform(*bounds.T, (n, len(bounds))) if n else []


def _searched(model: GaussianProcessRegressor, rows: GaussianRows, theta: np.ndarray) -> Any:
    """The end of a search from theta; None if the start overflows."""
    own = callable(model.optimizer)
    if own:
        theta = own_optimizer(model.optimizer, lambda at: rows.at(at)[1:3], theta, rows.evidence.bounds)
    try:
        return rows.at(theta) if own else highest(rows, theta, _GTOL)
    except ValueError:  # overflow in double precision
        return None


def _or_lowest(evidence: Any, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The evidence with its gradient; as in scikit-learn -inf and 0 where it overflows."""
    try:
        value, gradient = evidence(theta)
    except ValueError:
        return -np.inf, np.zeros(theta.size)
    return value, gradient


def own_optimizer(optimizer: Any, evidence: Any, theta: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """theta by a user's function (obj_func, initial_theta, bounds) -> (theta, value), as scikit-learn calls it.

    ``evidence`` is theta -> (value, gradient), to be maximised; ``obj_func`` is its negative.
    """

    def objective(at: Any, eval_gradient: bool = True) -> Any:
        value, gradient = _or_lowest(evidence, np.asarray(at, dtype=np.float64))
        return (-value, -gradient) if eval_gradient else -value

    result = numeric("optimizer", "theta", optimizer(objective, theta, bounds=bounds)[0])
    if result.shape != theta.shape or not np.isfinite(result).all():
        raise problem("optimizer", f"theta of shape {result.shape}", f"{theta.size} finite numbers and the value there")
    return np.clip(result, *bounds.T)


def _keep(
    model: GaussianProcessRegressor,
    X: np.ndarray,
    Y: np.ndarray,
    weights: Any,
    kernel: Any,
    theta: np.ndarray,
    size: float,
    sds: np.ndarray,
) -> None:
    """Fit each output at the learned kernel and noise, and set the fitted attributes."""
    stale = "solution_ integrated_ classes_ _target _fitted _weights _trend_moments _units _shift"
    for name in stale.split():
        model.__dict__.pop(name, None)  # of an earlier fit of one output
    model.kernel_, model.theta_ = kernel, theta
    learned = theta.size > kernel.n_dims
    variance = float(np.exp(theta[-1])) if learned else None
    models = []
    for y, sd in zip(Y.T, sds, strict=True):
        one = clone(model).set_params(kernel=kernel, optimizer=None, n_targets=None, warm_start=False)
        scale = size * sd**2 / Gaussian.scale_of(y, weights) ** 2  # parameters are in units of the variance of y
        one.set_params(intercept_variance=scale * model.intercept_variance, slope_variance=scale * model.slope_variance)
        if variance is not None:
            one.set_params(likelihood=Gaussian(variance * sd**2))
        elif model.alpha is None and model.likelihood == "gaussian":
            one.set_params(likelihood=Gaussian(0.5 * sd**2 * Gaussian.scale_of(y / sd, weights) ** 2))
        models.append(one.fit(X, y, sample_weight=weights))
    model.outputs_ = models
    model.X_train_, model._latent = models[0].X_train_, models[0]._latent
    model.mean_ = model.mean if callable(model.mean) else np.array([one.mean_ for one in models])
    model.likelihood_ = models[0].likelihood_ if variance is None else Gaussian(variance)
    model.elbo_, model.gap_ = sum(one.elbo_ for one in models), sum(one.gap_ for one in models)
    model.approximation_, model.approximation_loss_ = None, 0.0


def together(parts: list[Any], axis: int = -1) -> Any:
    """Stack the results of the outputs along a new axis; pairs stay pairs."""
    if type(parts[0]) is tuple:
        return tuple(together([part[i] for part in parts], axis) for i in range(len(parts[0])))
    return np.stack(parts, axis=axis)


def learn_by_function(
    optimizer: Any, theta: np.ndarray | None, target: Target, family: Family, own: bool, options: dict[str, Any]
) -> Learned:
    """Learn by the user's optimizer from each start, and fit at the best theta."""
    given = {name: options[name] for name in ("weights", "tol")}
    evidence = Evidence(target.likelihood, family, target.y, own=own, **given)
    first = evidence.start if theta is None else theta
    drawn = _drawn(target.where, options["n_restarts"], options["rng"], evidence.bounds)
    ends = [own_optimizer(optimizer, evidence, start, evidence.bounds) for start in (first, *drawn)]
    best = max(ends, key=lambda end: _or_lowest(evidence, end)[0])
    return Search(evidence, 0, np.inf, None).run(best)


def in_units(kernel: Any, variance: float) -> Any:
    """The kernel times a fixed number."""
    from sklearn.gaussian_process.kernels import ConstantKernel

    return kernel if variance == 1.0 else ConstantKernel(variance, "fixed") * kernel


# -- before a fit -----------------------------------------------------------------------------------
def prior_moments(model: GaussianProcessRegressor, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prior mean (M,) and covariance (M, M) of the function; the default kernel is that of scikit-learn."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from .chosen_kernel import own_kernel
    from .mean_functions import check_mean, known_mean, mean_at, mean_word

    check_mean(model)
    if model.likelihood != "gaussian" and type(model.likelihood) is not Gaussian:
        raise NotFittedError(f"{type(model).__name__} is not fitted yet: only Gaussian noise has predictions a priori.")
    kernel = ConstantKernel() * RBF() if model.kernel is None else own_kernel(type(model).__name__, model.kernel, X)
    if mean_word(model.mean) == "linear":
        raise NotFittedError(
            f'{type(model).__name__} is not fitted yet: mean="linear" is in units of the columns of fit.'
        )
    mean = 0.0 if model._centred else mean_at(known_mean(model), X)
    return np.zeros(len(X)) + mean, np.asarray(evaluate(kernel, X))


def prior_prediction(model: GaussianProcessRegressor, X: np.ndarray, return_std: bool, return_cov: bool) -> Any:
    """The result of ``predict`` before a fit."""
    mean, covariance = prior_moments(model, X)
    J = 1 if model.n_targets is None else count(type(model).__name__, "n_targets", model.n_targets, 1)

    def of_outputs(one: np.ndarray) -> np.ndarray:
        return one if J == 1 else np.repeat(one[..., None], J, axis=-1)

    if return_cov:
        return of_outputs(mean), of_outputs(covariance)
    if return_std:
        return of_outputs(mean), of_outputs(np.sqrt(np.diagonal(covariance)))
    return of_outputs(mean)


def prior_draws(model: GaussianProcessRegressor, X: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of the function from the prior: (M, size), or (M, J, size)."""
    mean, covariance = prior_moments(model, X)
    root, J = semidefinite_root(covariance), model.n_targets or 1
    drawn = mean[:, None, None] + np.einsum("mr,rjs->mjs", root, rng.standard_normal((root.shape[1], J, size)))
    return drawn[:, 0] if J == 1 else drawn
