"""The predictive distribution of y when eta ~ N(h, rho), row by row: quantiles and draws for each likelihood."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, expit, ndtr, ndtri

from ..likelihoods import BernoulliLogit, Binomial, Gaussian, Poisson
from ..likelihoods.base import Likelihood
from ..linalg.quadrature import expect
from .counts import _MOST, _count_quantile


def per_row(value: object, n: int) -> np.ndarray:
    """A number, a vector, or None for 1, as (n,)."""
    return np.broadcast_to(np.asarray(1.0 if value is None else value, dtype=np.float64), (n,))


def mean_quantiles(likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of the mean of y at exposure 1 and one trial: exp(eta), a probability, or eta itself (M, Q)."""
    eta = h[:, None] + np.sqrt(rho)[:, None] * ndtri(levels)[None, :]
    if isinstance(likelihood, Poisson):
        return np.exp(eta)
    return eta if isinstance(likelihood, Gaussian) else np.asarray(expit(eta))


def quantiles(likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of y (M, Q)."""
    n = h.shape[0]
    if isinstance(likelihood, Poisson):
        exposure = per_row(likelihood.exposure, n)
        return np.stack([_count_quantile(h, rho, exposure, level) for level in levels], axis=1)
    if isinstance(likelihood, Binomial):
        trials = per_row(likelihood.trials, n)
        return np.stack([_success_quantile(h, rho, trials, level) for level in levels], axis=1)
    if isinstance(likelihood, BernoulliLogit):
        return np.stack([_success_quantile(h, rho, np.ones(n), level) for level in levels], axis=1)
    sd = np.sqrt(np.asarray(likelihood.predictive_variance(h, rho)))
    return h[:, None] + sd[:, None] * ndtri(levels)[None, :]


def _success_quantile(h: np.ndarray, rho: np.ndarray, trials: np.ndarray, level: float) -> np.ndarray:
    """The smallest k with P(y <= k) >= level among ``trials`` of probability sigmoid(eta), by bisection."""

    def cdf(k: np.ndarray) -> np.ndarray:
        # P(y <= k) = I_{1-p}(n - k, k + 1); at k = n it is 1, and the beta function ends
        def g(eta: np.ndarray, rows: slice) -> np.ndarray:
            left = np.maximum(trials[rows] - k[rows], 0.5)[:, None]
            return np.asarray(betainc(left, k[rows, None] + 1.0, expit(-eta)))

        inside = np.clip(k + 0.5, 0.5, np.maximum(trials - 0.5, 0.5))
        kink = np.log(inside) - np.log(np.maximum(trials - inside, 0.5))
        return np.where(k >= trials, 1.0, np.asarray(expect(g, h, rho, [kink])))

    low, high = np.full_like(h, -1.0), trials.astype(np.float64)
    while (high - low > 1.0).any():
        middle = np.maximum(np.floor((low + high) / 2), 0.0)
        enough = cdf(middle) >= level
        high, low = np.where(enough, np.minimum(middle, high), high), np.where(enough, low, np.maximum(middle, low))
    return high


def draws(likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of y (M, size), each row on its own."""
    n = h.shape[0]
    eta = h[:, None] + np.sqrt(rho)[:, None] * rng.standard_normal((n, size))
    if isinstance(likelihood, Poisson):
        mean = per_row(likelihood.exposure, n)[:, None] * np.exp(np.minimum(eta, 700.0))
        return rng.poisson(np.minimum(mean, _MOST)).astype(np.float64)
    if isinstance(likelihood, (Binomial, BernoulliLogit)):
        trials = per_row(getattr(likelihood, "trials", None), n).astype(np.int64)
        return rng.binomial(trials[:, None], expit(eta)).astype(np.float64)
    sd = np.sqrt(np.asarray(likelihood.predictive_variance(np.zeros(n), np.zeros(n))))
    return eta + sd[:, None] * rng.standard_normal((n, size))


def return_quantile(h: np.ndarray, rho: np.ndarray, level: float) -> np.ndarray:
    """The level-quantile of N(0, e^eta), eta ~ N(h, rho): bisection on E[Phi(x e^{-(eta-h)/2})] in log x."""
    if level == 0.5:
        return np.zeros_like(h)
    tail = max(level, 1.0 - level)
    centre = np.full_like(h, np.log(ndtri(tail)))
    reach = 5.0 * np.sqrt(rho) + 1.0
    low, high = centre - reach, centre + reach
    for _ in range(50):
        x = (low + high) / 2

        def g(eta: np.ndarray, rows: slice, x: np.ndarray = x) -> np.ndarray:
            return np.asarray(ndtr(np.exp(np.minimum(x[rows, None] - eta / 2, 700.0))))

        enough = np.asarray(expect(g, 0.0 * h, rho, [2.0 * x])) >= tail
        high, low = np.where(enough, x, high), np.where(enough, low, x)
    return np.sign(level - 0.5) * np.exp((low + high) / 2 + h / 2)
