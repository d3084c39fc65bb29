"""The prior mean of a Gaussian process, ``mean=`` of the estimators: what eta has beside the function of the kernel.

    "zero"       0
    "constant"   m + b                 b ~ N(0, v)       m: the level of the target, such as the log odds of all rows
    "linear"     m + b + w'(x - c)     w_d ~ N(0, v_w / sd(x_d)^2)       c, sd: means and standard deviations of columns
    a number     the number, + b       a function m(X)    its values, + b

b and w are integrated out with the function. v and v_w are in units of the squared scale of the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, finite, numeric, positive, problem, scalar
from ..inputs.fixed_columns import Columns
from ..inputs.observations import Target
from ..linalg.arrays import to_numpy
from .outputs import OutputUnits

if TYPE_CHECKING:
    from .gaussian_process import GaussianProcessEstimator
    from .kernel_latent import KernelLatent

WORDS = ("zero", "constant", "linear")
_PLAIN = OutputUnits()


@dataclass(frozen=True)
class GivenMean:
    """A user's function of X in units of eta: start + factor * function(X), as (N, C)."""

    where: str
    function: Callable[[np.ndarray], Any]
    start: float = 0.0
    factor: float = 1.0
    n_functions: int = 1

    def __call__(self, X: Any) -> np.ndarray:
        X = to_numpy(X)
        values = finite(self.where, "mean(X)", numeric(self.where, "mean(X)", self.function(X)))
        n, each = len(X), self.n_functions
        if values.shape not in ((n,), (n, 1), (n, each)):
            wanted = f"({n},)" if each == 1 else f"({n},), or ({n}, {each}): a column for each class"
            raise problem(self.where, f"mean(X) has shape {values.shape} for {n} rows", wanted)
        return np.asarray(self.start + self.factor * values.reshape(n, values.size // n if n else 1))


def mean_word(mean: Any) -> str | None:
    """The word that ``mean=`` is, if it is one."""
    return mean if isinstance(mean, str) else None


def is_centred(model: GaussianProcessEstimator) -> bool:
    """Whether the prior mean is about the level of the target."""
    if model.mean is None or mean_word(model.mean) == "linear":
        return bool(model.fit_intercept)
    return mean_word(model.mean) not in (None, "zero")


def has_constant(model: GaussianProcessEstimator) -> bool:
    """Whether a constant is integrated out."""
    word = mean_word(model.mean)
    if word == "constant" and not model.fit_intercept:
        got = 'mean="constant" and fit_intercept=False'
        raise problem(type(model).__name__, got, 'mean="zero", or fit_intercept=True')
    return bool(model.fit_intercept) and word != "zero"


def check_mean(model: GaussianProcessEstimator) -> None:
    """A word, a number or a function."""
    name, given = type(model).__name__, model.mean
    if mean_word(given) is not None:
        own = type(model).mean
        words = WORDS if own is None else (own, *WORDS)
        choice(name, "mean", given, words, "Or a number, or a function of X.")
    elif not callable(given) and np.ndim(given) > 0:
        advice = "Exposure of counts is exposure=. An offset that is a column of X is mean=lambda X: X[:, 3]."
        got = f"mean is an array of shape {np.shape(given)}, which has no values for new rows"
        raise problem(name, got, "a number, or a function of X", advice)
    elif given is not None and not callable(given):
        scalar(name, "mean", given, advice="Or a word, or a function of X.")


def read_mean(model: GaussianProcessEstimator, X: np.ndarray, target: Target, weights: Any) -> dict[str, Any]:
    """``mean=`` as a latent takes it: mean, level, slopes and centre."""
    check_mean(model)
    functions = target.likelihood.n_predictors
    mean = target.level if is_centred(model) else known_mean(model, model._units, functions)
    return {"mean": mean, **read_trend(model, X, target.scale, weights, target.likelihood.ordered)}


def known_mean(model: GaussianProcessEstimator, units: OutputUnits = _PLAIN, n_functions: int = 1) -> Any:
    """A number or a function of X, of a mean that is not about the level of the target."""
    given = model.mean
    if callable(given):
        return GivenMean(type(model).__name__, given, units.mean, units.sd, n_functions)
    return units.mean + units.sd * (0.0 if given is None or mean_word(given) else float(given))


def mean_at(mean: Any, X: np.ndarray) -> Any:
    """A number, or the values of a function at X (N,)."""
    return mean(X)[:, 0] if callable(mean) else mean


def read_trend(
    model: GaussianProcessEstimator, X: np.ndarray, scale: float, weights: Any, ordered: bool = False
) -> dict[str, Any]:
    """level, slopes and centre of eta of a scale; ordered levels have cutpoints in the place of the constant."""
    name = type(model).__name__
    v = float(positive(name, "intercept_variance", np.float64(model.intercept_variance)))
    out: dict[str, Any] = {"level": v * scale**2 if has_constant(model) and not ordered else 0.0}
    if mean_word(model.mean) == "linear":
        columns = Columns.of(name, X, model._columns(), weights, bool(model.fit_intercept))
        slope = float(positive(name, "slope_variance", np.float64(model.slope_variance)))
        slopes = slope**0.5 * scale / columns.scale
        if model._levels is not None:  # no numbers
            slopes[list(model._levels.places)] = 0.0
        out.update(slopes=slopes, centre=columns.centre + columns.rest)
    return out


def trend_moments(latent: KernelLatent, points: list[tuple[float, Any, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (1 + D, C) of the constant at x = 0 and the slopes, theta integrated out."""
    means, seconds = [], []
    for weight, solution, theta in points:
        eta = solution.posterior.at(latent.trend_rows(theta))
        mean, variance = (np.reshape(to_numpy(x), (np.shape(x)[0], -1)) for x in (eta.mean, eta.variance))
        means.append(weight * mean)
        seconds.append(weight * (variance + mean**2))
    mean = np.sum(means, axis=0)
    return mean, np.sqrt(np.maximum(np.sum(seconds, axis=0) - mean**2, 0.0))
