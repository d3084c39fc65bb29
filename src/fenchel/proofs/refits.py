"""Another q for the upper bound: sites by the moments of the tilted densities.

The upper bound holds for every Gaussian q, and is stationary in q where every tilted density q_c exp(p_c gt_c) has the
mean and the variance of q_c: power expectation propagation at p. One damped step towards it, with d in (0, 1],

    lam_c += d (1/v_t - 1/rho_c) / p_c,        r_c += d (m_t/v_t - h_c/rho_c) / p_c,        r = lam h - alpha

The best q of the lower bound is that of the fit and stays it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..corrections.sites import Observed
from ..linalg.arrays import asarray, to_numpy
from ..posterior import Posterior


def refitted(
    post: Posterior,
    observed: Observed,
    first: np.ndarray,
    w: np.ndarray,
    shape: tuple[np.ndarray, np.ndarray],
    d: float,
) -> tuple[Posterior, Observed]:
    """q after one step; ``first`` (n,) are the rows that take what their sites change by.

    ``shape``: mean and variance of x = (eta - h) / sqrt(rho) under the tilted densities (n,).
    """
    rho, h = observed.rho[first], observed.h[first]
    mean, variance = h + np.sqrt(rho) * shape[0], rho * shape[1]
    lam, r = observed.lam.copy(), observed.lam * observed.h - observed.alpha
    lam[first] += d * w * (1.0 / variance - 1.0 / rho)
    r[first] += d * w * (mean / variance - h / rho)
    return _with_sites(post, observed, r, np.maximum(lam, 0.0))


def _with_sites(post: Posterior, observed: Observed, r: np.ndarray, lam: np.ndarray) -> tuple[Posterior, Observed]:
    """q with other natural parameters of its active sites (N,)."""
    predictors = post.factor.predictors
    like = predictors.mt

    def column(x: np.ndarray) -> np.ndarray:
        return np.asarray(asarray(x[:, None], like))

    mt = observed.h + to_numpy(predictors.apply(column(observed.alpha)))[:, 0]
    factor = predictors.at(column(lam))
    h = mt + to_numpy(factor.apply(column(r - lam * mt)))[:, 0]
    alpha = lam * h - r
    h = mt - to_numpy(predictors.apply(column(alpha)))[:, 0]
    rho = to_numpy(factor.variance)[:, 0]
    full_alpha, full_lam = np.array(to_numpy(post.alpha)), np.array(to_numpy(post.lam))
    full_alpha[post.active, 0], full_lam[post.active, 0] = alpha, lam
    sites = asarray(full_alpha, like), asarray(full_lam, like)
    new = Posterior(post.predictors, post.active, factor, sites, (column(h), column(rho)))
    return new, replace(observed, h=h, rho=rho, alpha=alpha, lam=lam)
