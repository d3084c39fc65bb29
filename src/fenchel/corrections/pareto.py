"""Pareto smoothing of importance weights, and k-hat, which says whether they can be believed.

The largest weights w exceed the one below them, u, by amounts whose tail is a generalised Pareto distribution

    P(w - u > x) = (1 + k x / sigma)^(-1/k)

Its moments of order 1/k and more do not exist: a k near 1 means that the mean of the weights itself does not. Fitted by
the profile posterior mean of theta = -k / sigma (Zhang and Stephens 2009), with theta_j on a grid of m points,

    k(theta) = mean log(1 - theta x),    l(theta) = n [log(-theta / k(theta)) - k(theta) - 1]
    theta_j = 1/x_n + (1 - sqrt(m / (j - 1/2))) / (3 x_q),   x_q the lower quartile

and k pulled toward 1/2 as by ten observations. Where k is above 1/2 the variance of the weights does not exist, and the
largest are replaced by the fitted distribution's quantiles, none above the largest there was (Vehtari, Simpson, Gelman,
Yao and Gabry 2024, who do it at any k). Below, quasi-random draws do better as they are. Where no weight is ten times
the mean there is no tail to fit: a mixture bounds its weights, and their largest crowd at the bound.
"""

from __future__ import annotations

import numpy as np

TRUSTED = 0.7  # k-hat up to which the smoothed weights are reliable
_FINITE = 0.5  # k-hat up to which the weights have a variance
_EQUAL = 1e-9  # of the largest weight: weights that differ by less do not vary
_MODEST = 10.0  # times the mean: weights that stay below it have no tail that draws could see
_FEWEST = 5  # weights of a tail


def smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Log weights (S,) with their tail smoothed, and k-hat: 0 where there is no tail, inf where there are too few."""
    n = log_weights.size
    tail = int(min(0.2 * n, 3.0 * np.sqrt(n)))
    top = float(log_weights.max())
    if tail < _FEWEST or not np.isfinite(top):
        return log_weights, np.inf
    order = np.argsort(log_weights, kind="stable")
    largest = order[-tail:]
    floor = float(np.exp(log_weights[order[-tail - 1]] - top))
    over = np.exp(log_weights[largest] - top) - floor
    if over[-1] <= _EQUAL or np.exp(log_weights - top).mean() >= 1.0 / _MODEST:
        return log_weights, 0.0
    k, sigma = fitted(np.maximum(over, 1e-12 * over[-1]))
    if k <= _FINITE:
        return log_weights, k
    levels = (np.arange(tail) + 0.5) / tail
    out = log_weights.copy()
    out[largest] = top + np.minimum(np.log(floor + quantile(levels, k, sigma)), 0.0)
    return out, k


def fitted(x: np.ndarray) -> tuple[float, float]:
    """k and sigma of a generalised Pareto distribution, from exceedances x > 0 in increasing order."""
    n = x.size
    m = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3.0 * quartile)
    with np.errstate(divide="ignore", invalid="ignore"):
        k = np.log1p(-theta[:, None] * x).mean(axis=1)
        profile = n * (np.log(-theta / k) - k - 1.0)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    weight = np.exp(profile - profile.max())
    best = float(weight @ theta / weight.sum())
    shape = float(np.log1p(-best * x).mean())
    return (n * shape + 5.0) / (n + 10.0), -shape / best


def quantile(levels: np.ndarray, k: float, sigma: float) -> np.ndarray:
    """sigma ((1 - p)^-k - 1) / k, and its limit at k = 0."""
    left = -np.log1p(-levels)
    return sigma * left if abs(k) < 1e-12 else sigma * np.expm1(k * left) / k
