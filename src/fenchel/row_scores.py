"""How well each row is predicted from the others: log densities, leave-one-out by cavities, and where y lies.

    elpd = sum_n log p(y_n | what a criterion leaves),   se = sqrt(n) sd(log p)

Leave-one-out from the cavity, q without the observation's own site, needs no refit:

    v = rho / (1 - lam rho),   mean = h + alpha v,   log p(y_n | the others) = log E[p(y_n | eta_n)] under N(mean, v)

The probability integral transform (PIT) is uniform if predictions are right:

    PIT_n = P(y <= y_n | the others)                              continuous y
    from P(y < y_n | the others) to P(y <= y_n | the others)      counts and levels, spread evenly over that stretch
    from P(y <= t | the others) to 1                              a duration that had not ended at t

Spreading the mass of a row over its stretch keeps the histogram free of chance of its own, and even if the prediction
is right (Czado, Gneiting and Held 2009).
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

_NARROW = 1e-9  # probability: shorter stretches of a PIT are points


class RowScores:
    """Log densities of rows, NaN where y is unobserved: ``log_density`` is the subclass's."""

    log_density: Array

    @property
    def elpd(self) -> float:
        """The sum of the log densities: the expected log predictive density."""
        return float(np.nansum(to_numpy(self.log_density)))

    @property
    def elpd_se(self) -> float:
        """Its standard error over the rows: sqrt(n) times their standard deviation; NaN for fewer than two."""
        return standard_error(self._seen)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Values of rows (N,), NaN where unobserved, summed over what was predicted together: here each row alone."""
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
    """Of the sum of values (n,), as draws of one population."""
    return float(np.sqrt(values.size) * values.std(ddof=1)) if values.size > 1 else float("nan")


class Pit(NamedTuple):
    """The ends of each row's stretch (N,), NaN where y is unobserved; equal for a continuous y."""

    below: np.ndarray
    upto: np.ndarray


@dataclass(frozen=True, repr=False)
class LeaveOneOut(RowScores):
    """Leave-one-out predictions from the cavity, without a refit.

    log_density : log p(y_n | the others) (N,), NaN where y is unobserved or has weight 0
    mean, variance : of eta_n without y_n, (N,) or (N, C); variance is (N, C, C) for correlated predictors
    """

    log_density: Array
    mean: Array
    variance: Array

    def pit_stretches(self, likelihood: Likelihood, y: np.ndarray) -> Pit:
        """Where each y lies in its prediction, eta being normal; y is NaN where it does not count."""
        h, rho = to_numpy(self.mean), np.maximum(to_numpy(self.variance), 0.0)
        if h.ndim > 1:
            raise problem("pit_stretches", f"{likelihood.name} has several predictors an observation", "one")

        def cdf(x: np.ndarray) -> np.ndarray:
            def given(eta: Array, rows: slice) -> Array:
                return likelihood.take(rows).cdf(x[rows, None], to_numpy(eta))

            return np.asarray(expect(given, h, rho))

        return pit_by(cdf, likelihood, y)


def leave_one_out(likelihood: Likelihood, posterior: Posterior, y: np.ndarray, rng: Seed = None) -> LeaveOneOut:
    """Leave-one-out predictive densities of y (N,), NaN where it does not count."""
    mean, variance = posterior.cavity()
    density = asarray(likelihood.predictive_log_density(y, mean, variance, rng), mean)
    one = mean.shape[1] == 1
    return LeaveOneOut(density, mean[:, 0] if one else mean, variance[:, 0] if one else variance)


def seen_between(likelihood: Likelihood, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What was seen of each row (N,): y in (a, b], or y = a = b where it was seen itself; infinite ends are open."""
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
    """From P(y <= x | the others) of all rows as a function of x (N,); y is NaN where it does not count."""
    seen = ~np.isnan(y)
    at = np.where(seen, y, 1.0)
    ends = []
    for x in seen_between(likelihood, at):
        p = np.clip(np.asarray(cdf(np.where(np.isfinite(x), x, at))), 0.0, 1.0)
        ends.append(np.where(seen, np.where(np.isfinite(x), p, np.where(x > 0.0, 1.0, 0.0)), np.nan))
    return Pit(*ends)


def pit_counts(below: np.ndarray, upto: np.ndarray, bins: int) -> np.ndarray:
    """What each row (N,) has in each of as many even bins between 0 and 1: (N, bins), of sum 1.

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
        raise problem("pit_counts", "a stretch outside of 0 and 1", "0 <= below <= upto <= 1")
    edges, width = np.linspace(0.0, 1.0, bins + 1), high - low
    point = width < _NARROW
    share = np.clip((edges - low[:, None]) / np.where(point, 1.0, width)[:, None], 0.0, 1.0)
    alone = np.minimum((high * bins).astype(int), bins - 1)[:, None] < np.arange(bins + 1)
    return np.diff(np.where(point[:, None], alone, share), axis=1)
