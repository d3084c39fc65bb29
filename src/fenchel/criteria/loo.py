"""Leave-one-out prediction from the cavity of each observation: q without the observation's own site.

v = rho / (1 - lam rho),   mean = h + alpha v,   log p(y_n | the others) = log E[p(y_n | eta_n)] under N(mean, v)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, Seed, asarray, to_numpy
from ..posterior import Posterior


@dataclass(frozen=True, repr=False)
class LeaveOneOut:
    """Leave-one-out predictions from the cavity, without a refit.

    log_density : log p(y_n | the others) (N,), NaN where y is unobserved or has weight 0
    mean, variance : of eta_n without y_n, (N,) or (N, C); variance is (N, C, C) for correlated predictors
    """

    log_density: Array
    mean: Array
    variance: Array

    @property
    def elpd(self) -> float:
        """The sum of the log densities: the expected log predictive density."""
        return float(np.nansum(to_numpy(self.log_density)))

    @property
    def elpd_se(self) -> float:
        """Its standard error over the rows: sqrt(n) times their standard deviation; NaN for fewer than two."""
        seen = self._seen
        return float(np.sqrt(seen.size) * seen.std(ddof=1)) if seen.size > 1 else float("nan")

    @property
    def _seen(self) -> np.ndarray:
        density = to_numpy(self.log_density)
        return density[~np.isnan(density)]

    def __repr__(self) -> str:
        seen, density = self._seen, to_numpy(self.log_density)
        if not seen.size:
            return f"LeaveOneOut(none of {density.size} rows observed)"
        worst = int(np.nanargmin(density))
        return (
            f"LeaveOneOut(elpd={self.elpd:.4f}, elpd_se={self.elpd_se:.2g}, {seen.size} of {density.size} rows "
            f"observed, log densities from {density[worst]:.3g} (row {worst}) to {seen.max():.3g})"
        )


def leave_one_out(likelihood: Likelihood, posterior: Posterior, y: np.ndarray, rng: Seed = None) -> LeaveOneOut:
    """Leave-one-out predictive densities of y (N,), NaN where it does not count."""
    mean, variance = posterior.cavity()
    density = asarray(likelihood.predictive_log_density(y, mean, variance, rng), mean)
    one = mean.shape[1] == 1
    return LeaveOneOut(density, mean[:, 0] if one else mean, variance[:, 0] if one else variance)
