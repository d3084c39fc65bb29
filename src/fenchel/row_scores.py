"""Predictive scores of rows: log densities, leave-one-out predictions and probability integral transforms.

    elpd = sum_n log p(y_n | training data of row n),   se = sqrt(n) sd(log p)

Leave-one-out prediction uses the cavity, which is q without the site of the observation, and needs no refit:

    v = rho / (1 - lam rho),   mean = h + alpha v,   log p(y_n | the others) = log E[p(y_n | eta_n)] under N(mean, v)

The probability integral transform (PIT) is uniform if predictions are right:

    PIT_n = P(y <= y_n | the others)                              continuous y
    from P(y < y_n | the others) to P(y <= y_n | the others)      counts and levels, spread evenly over that stretch
    from P(y <= t | the others) to 1                              a duration censored at t

Spreading the mass of a row over its interval avoids random numbers, and the histogram is still flat if the predictions
are right (Czado, Gneiting and Held 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .checks import count, numeric, problem
from .likelihoods.base import Likelihood
from .linalg.arrays import Array, Seed, asarray, to_numpy
from .linalg.quadrature import expect
from .posterior import Posterior

_NARROW = 1e-9  # length up to which the interval of a PIT is treated as a point


class RowScores:
    """Base class of log predictive densities of rows: ``log_density`` (N,), NaN if y is unobserved."""

    log_density: Array

    @property
    def elpd(self) -> float:
        """Expected log predictive density: the sum of the log densities, in nats."""
        return float(np.nansum(to_numpy(self.log_density)))

    @property
    def elpd_se(self) -> float:
        """Standard error of ``elpd`` over the rows; NaN for fewer than two."""
        return standard_error(self._seen)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Values of rows (N,), summed over the rows that were predicted together; here the observed rows one by one."""
        return values[~np.isnan(values)]

    @property
    def _seen(self) -> np.ndarray:
        density = to_numpy(self.log_density)
        return density[~np.isnan(density)]

    def __repr__(self) -> str:
        name, seen, density = type(self).__name__, self._seen, to_numpy(self.log_density)
        if not seen.size:
            return f"{name}(none of {density.size} rows observed)"
        worst = int(np.nanargmin(density))
        return (
            f"{name}(elpd={self.elpd:.4f}, elpd_se={self.elpd_se:.2g}, {seen.size} of {density.size} rows "
            f"observed, log densities from {density[worst]:.3g} (row {worst}) to {seen.max():.3g})"
        )


def standard_error(values: np.ndarray) -> float:
    """Standard error of the sum of values (n,), taken as independent draws."""
    return float(np.sqrt(values.size) * values.std(ddof=1)) if values.size > 1 else float("nan")


class Pit(NamedTuple):
    """The ends of the interval of each row (N,), NaN if y is unobserved; both are equal for a continuous y."""

    below: np.ndarray
    upto: np.ndarray


@dataclass(frozen=True, repr=False)
class LeaveOneOut(RowScores):
    """Leave-one-out predictions from the cavity of each observation, without refitting.

    Attributes
    ----------
    log_density : array (N,)
        log p(y_n | the others), in nats; NaN if y_n is unobserved or has weight 0.
    mean, variance : arrays (N,) or (N, C)
        Of eta_n given the other observations; the variance is (N, C, C) for correlated predictors.
    elpd, elpd_se : float
        Sum of the log densities and its standard error.
    """

    log_density: Array
    mean: Array
    variance: Array

    def pit_stretches(self, likelihood: Likelihood, y: np.ndarray) -> Pit:
        """Probability integral transforms of y for normal eta; y is NaN for rows that do not count."""
        h, rho = to_numpy(self.mean), np.maximum(to_numpy(self.variance), 0.0)
        if h.ndim > 1:
            raise problem("pit_stretches", f"{likelihood.name} has several predictors an observation", "one predictor")

        def cdf(x: np.ndarray) -> np.ndarray:
            def given(eta: Array, rows: slice) -> Array:
                return likelihood.take(rows).cdf(x[rows, None], to_numpy(eta))

            return np.asarray(expect(given, h, rho))

        return pit_by(cdf, likelihood, y)


def leave_one_out(likelihood: Likelihood, posterior: Posterior, y: np.ndarray, rng: Seed = None) -> LeaveOneOut:
    """Leave-one-out predictions of y (N,), which is NaN for rows that do not count."""
    mean, variance = posterior.cavity()
    density = asarray(likelihood.predictive_log_density(y, mean, variance, rng), mean)
    one = mean.shape[1] == 1
    return LeaveOneOut(density, mean[:, 0] if one else mean, variance[:, 0] if one else variance)


def seen_between(likelihood: Likelihood, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends (a, b] of the interval that y was observed to lie in, arrays (N,); a = b for an exact observation."""
    if likelihood.discrete:
        return np.where(y > 0.0, y - 1.0, -np.inf), y
    if likelihood.atom:
        return np.where(y > 0.0, y, -np.inf), y
    event, upper = (likelihood.row_values.get(name) for name in ("event", "upper"))
    if upper is not None:
        return y, np.broadcast_to(np.asarray(upper, dtype=np.float64), y.shape)
    if event is not None:
        happened = np.broadcast_to(np.asarray(event, dtype=np.float64), y.shape) > 0.0
        return y, np.where(happened, y, np.inf)
    return y, y


def pit_by(cdf: Callable[[np.ndarray], np.ndarray], likelihood: Likelihood, y: np.ndarray) -> Pit:
    """Probability integral transforms from the function x (N,) -> P(y <= x | the others) (N,)."""
    seen = ~np.isnan(y)
    at = np.where(seen, y, 1.0)
    ends = []
    for x in seen_between(likelihood, at):
        p = np.clip(np.asarray(cdf(np.where(np.isfinite(x), x, at))), 0.0, 1.0)
        ends.append(np.where(seen, np.where(np.isfinite(x), p, np.where(x > 0.0, 1.0, 0.0)), np.nan))
    return Pit(*ends)


def pit_counts(below: np.ndarray, upto: np.ndarray, bins: int) -> np.ndarray:
    """Share of each row's interval in each of ``bins`` equal bins of [0, 1]: array (N, bins) with rows of sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.row_scores import pit_counts
    >>> pit_counts(np.array([0.1, 0.5]), np.array([0.1, 1.0]), 4)
    array([[1. , 0. , 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """
    bins = count("pit_counts", "bins", bins, 2)
    low, high = (numeric("pit_counts", "below, upto", end) for end in (below, upto))
    if low.shape != high.shape or low.ndim != 1 or not low.size:
        raise problem("pit_counts", f"below {low.shape} and upto {high.shape}", "as many of both, (N,)")
    if not ((low >= 0.0) & (low <= high + _NARROW) & (high <= 1.0)).all():
        raise problem("pit_counts", "an interval outside of 0 and 1", "0 <= below <= upto <= 1")
    edges, width = np.linspace(0.0, 1.0, bins + 1), high - low
    point = width < _NARROW
    share = np.clip((edges - low[:, None]) / np.where(point, 1.0, width)[:, None], 0.0, 1.0)
    alone = np.minimum((high * bins).astype(int), bins - 1)[:, None] < np.arange(bins + 1)
    return np.diff(np.where(point[:, None], alone, share), axis=1)
