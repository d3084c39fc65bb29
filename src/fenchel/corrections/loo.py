"""Leave-one-out prediction from corrected marginals: eta_n without its own observation, on the grid.

    p(eta_n | the others) prop. to p(eta_n | y) / p(y_n | eta_n)
    CPO_n = p(y_n | the others) = E[p(y_n | eta_n)],     PIT_n = P(y <= y_n | the others) = E[P(y <= y_n | eta_n)]

The factors of the other observations are conditional on eta_n and do not know y_n, so that nothing has to be refitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..linalg.arrays import to_numpy
from ..row_scores import LeaveOneOut, Pit, pit_by
from .grids import Grid

_LOST = 600.0  # nats below its best at which a likelihood is divided by no more
_CUT = 10.0  # nats below the largest density at which an end of the grid cuts nothing off
_AT_ONCE = 4096


@dataclass(frozen=True, repr=False)
class CorrectedLeaveOneOut(LeaveOneOut):
    """Leave-one-out predictions by corrected marginals.

    log_density, mean, variance : as in ``LeaveOneOut``
    pit : P(y <= y_n | the others) (N,), NaN where y is unobserved; 1 for a duration that had not ended
    pit_below : P(y < y_n | the others), less than ``pit`` for counts and levels
    trusted : bool (N,); False where the grid cuts off what is left without y_n (one observation holds its eta alone):
        there the Gaussian cavity answers, and pit is NaN
    """

    pit: np.ndarray
    pit_below: np.ndarray
    trusted: np.ndarray

    def pit_stretches(self, likelihood: Likelihood, y: np.ndarray) -> Pit:
        """Where each y lies in its prediction, by the Gaussian cavity where these marginals are not trusted."""
        if self.trusted[~np.isnan(y)].all():
            return Pit(self.pit_below, self.pit)
        plain = super().pit_stretches(likelihood, y)
        below = np.where(self.trusted, self.pit_below, plain.below)
        return Pit(below, np.where(self.trusted, self.pit, plain.upto))


def leave_one_out(
    likelihood: Likelihood, rows: Rows, times: np.ndarray, y: np.ndarray, grid: Grid, plain: LeaveOneOut
) -> CorrectedLeaveOneOut:
    """From the marginals of eta (N,) on a grid; y is NaN where it does not count. ``plain``: from Gaussian cavities."""
    out = np.full((6, y.size), np.nan)
    for i in range(0, y.size, _AT_ONCE):
        some = np.arange(i, min(y.size, i + _AT_ONCE))
        out[:, some] = _some(likelihood.take(some), slice_rows(rows, some), times[some], y[some], grid.take(some))
    trusted = out[5] > 0.0
    cavity = [to_numpy(v) for v in (plain.log_density, plain.mean, plain.variance)]
    log_p, mean, variance = (np.where(trusted, a, b) for a, b in zip(out[:3], cavity, strict=True))
    pit, below = np.where(trusted, out[3:5], np.nan)
    return CorrectedLeaveOneOut(log_p, mean, variance, pit, below, trusted)


def _some(likelihood: Likelihood, rows: Rows, times: np.ndarray, y: np.ndarray, grid: Grid) -> np.ndarray:
    seen = ~np.isnan(y)
    eta = grid.centre[:, None] + grid.scale[:, None] * grid.x
    with np.errstate(all="ignore"):
        log_p = np.asarray(likelihood.log_density(eta, rows))
    log_p = np.where(np.isnan(log_p), -np.inf, log_p)
    own = np.where(seen, times, 0.0)[:, None] * np.where(seen[:, None], log_p, 0.0)
    lost = own < own.max(axis=1, keepdims=True) - _LOST
    rest = np.where(lost, -np.inf, grid.log_density - np.where(lost, 0.0, own))
    top = rest.max(axis=1, keepdims=True)
    p = np.exp(rest - top)
    p /= p.sum(axis=1, keepdims=True)
    mean = np.sum(p * eta, axis=1)
    variance = np.sum(p * (eta - mean[:, None]) ** 2, axis=1)
    best = np.where(seen[:, None], log_p, 0.0).max(axis=1, keepdims=True)
    density = best[:, 0] + np.log(np.sum(p * np.exp(np.where(seen[:, None], log_p - best, 0.0)), axis=1))
    cut = np.maximum(rest[:, 0], rest[:, -1]) > top[:, 0] - _CUT
    with np.errstate(all="ignore"):
        below, pit = pit_by(lambda x: np.sum(p * likelihood.cdf(x[:, None], eta), axis=1), likelihood, y)
    values = [density, mean, variance, pit, below]
    out = [np.where(seen | np.array(i in (1, 2)), value, np.nan) for i, value in enumerate(values)]
    return np.stack([*out, ~cut])
