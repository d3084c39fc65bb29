"""One-sided paths of a stochastic volatility: p(eta_t | y_1, ..., y_t) for every t, in linear time.

The last ``size`` returns form a window whose latents are (x_first, ..., x_t, mu). The past before it is a Gaussian
message on (x_first, mu); the fit of the window is ``infer``'s, with its certificate. When the window moves on, its
first site leaves as a Gaussian factor of the precision lam and the slope lam h - alpha it had; the message absorbs it
and takes one step of the autoregression:

    P^-1 <- P^-1 + lam w w',   P^-1 m <- P^-1 m + w (lam h - alpha),   w = (1, 1);   then x <- phi x + noise

With a window as long as the series nothing is ever frozen, and each fit is the one to y_1, ..., y_t.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from ..inference import infer
from ..likelihoods import StochasticVolatility
from ..priors.sparse import SparsePrecision
from ..solvers.solution import Solution

_TOL, _WARN = 1e-12, 1e-6  # relative gaps: asked of every window, and worth a word


class VolatilityPath(NamedTuple):
    """The standard deviation of the returns over time: posterior mean and 95 % interval, each (N,)."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class FilteredPath(NamedTuple):
    """What was known at each time, from the returns up to it; arrays (N,).

    mean, lower, upper : the volatility given y_1, ..., y_t, and its 95 % interval
    log_variance, log_variance_sd : eta_t given y_1, ..., y_t
    log_score : log p(y_t | y_1, ..., y_{t-1}), NaN where y_t is
    """

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    log_variance: np.ndarray
    log_variance_sd: np.ndarray
    log_score: np.ndarray


class Message:
    """What the past says of (x at the window's first step, mu), mu without the level."""

    def __init__(self, phi: float, variance: float, level_variance: float) -> None:
        self.phi, self.noise = phi, variance * (1.0 - phi * phi)
        self.mean, self.covariance = np.zeros(2), np.diag([variance, level_variance])

    def absorb(self, lam: float, slope: float) -> None:
        """The leaving site, then one step."""
        gain = self.covariance.sum(axis=1)  # P w
        total = float(gain.sum())
        shrink = lam / (1.0 + lam * total)
        self.mean = self.mean + gain * (slope - lam * float(self.mean.sum())) / (1.0 + lam * total)
        self.covariance = self.covariance - shrink * np.outer(gain, gain)
        step = np.array([self.phi, 1.0])
        self.mean, self.covariance = step * self.mean, step[:, None] * self.covariance * step
        self.covariance[0, 0] += self.noise


def window_filter(y: np.ndarray, past: Message, level: float, size: int) -> np.ndarray:
    """Mean and variance of eta_t given y_1, ..., y_t, and given y_1, ..., y_{t-1}: (4, N). ``past`` is used up."""
    phi, width, worst = past.phi, size + 1, 0.0
    base = sp.csc_array((width, width))
    if size > 1:
        steps = sp.diags_array([-phi, 1.0], offsets=[0, 1], shape=(size - 1, size))
        base = sp.block_diag([steps.T @ steps / past.noise, sp.csc_array((1, 1))], format="csc")
    design = sp.hstack([sp.eye_array(size), np.ones((size, 1))], format="csr")
    corner = np.array([0, 0, size, size]), np.array([0, size, 0, size])
    out = np.empty((4, y.size))
    made: SparsePrecision | None = None
    last: Solution | None = None
    for t in range(y.size):
        first, start = max(0, t - size + 1), None
        if last is None:
            out[2:, t] = level, past.covariance.sum()
        else:
            here = np.array([t - 1 - max(0, t - size), size])  # of the step before, and of mu
            ahead = sp.csr_array((np.array([phi, 1.0]), (np.zeros(2, int), here)), shape=(1, width))
            m, v = last.posterior.predict(design=ahead, offset=level)
            out[2:, t], start = (m[0], v[0] + past.noise), last.s
            if first > 0:
                lam, alpha = float(last.lam[0, 0]), float(last.alpha[0, 0])
                past.absorb(lam, lam * (float(last.posterior.mean[0]) - level) - alpha)
                start = np.concatenate([last.s[1:], last.s[-1:]])
        Q = base + sp.coo_array((np.linalg.inv(past.covariance).ravel(), corner), shape=(width, width))
        made = SparsePrecision(Q, design=design) if made is None else made
        prior = made.reweighted(Q)
        prior.mean, prior.offset = np.append(past.mean[0] * phi ** np.arange(size), past.mean[1]), level
        seen = np.full(size, np.nan)
        seen[: t - first + 1] = y[first : t + 1]
        last = infer(StochasticVolatility(), prior, seen, tol=_TOL, start=start)
        worst = max(worst, last.gap / max(1.0, abs(last.elbo)))
        out[:2, t] = last.posterior.mean[t - first], last.posterior.variance[t - first]
    if worst > _WARN:
        warnings.warn(
            f"filtered: the fit of some window stopped at a relative gap of {worst:.1e}, above {_WARN:.0e}.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return out
