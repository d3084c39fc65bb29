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
from ..priors.base import Factor
from ..priors.row_covariances import Lines


def refitted(
    post: Posterior,
    observed: Observed,
    first: np.ndarray,
    w: np.ndarray,
    shape: tuple[np.ndarray, np.ndarray],
    d: float,
) -> tuple[Posterior, Observed]:
    """q after one step; ``first`` (n,) are the rows that take what their sites change by.

    ``shape``: mean (n, 1) and variance (n, 1, 1) of x = (eta - h) / sqrt(rho) under the tilted densities.
    """
    rho, h = observed.rho[first], observed.h[first]
    mean, variance = h + np.sqrt(rho) * shape[0][:, 0], rho * shape[1][:, 0, 0]
    lam, r = observed.lam.copy(), observed.lam * observed.h - observed.alpha
    lam[first] += d * w * (1.0 / variance - 1.0 / rho)
    r[first] += d * w * (mean / variance - h / rho)
    return _with_sites(post, observed, r, np.maximum(lam, 0.0))


def flattened(post: Posterior, observed: Observed, lines: Lines, largest: float) -> tuple[Posterior, Observed]:
    """q of the same mean whose curvatures are at most ``largest`` in units of the prior variance of their rows.

    The slopes of rows along one line, which may cancel, are added up in the first of them.
    """
    prior = to_numpy(post.factor.predictors.variance)[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        lam = np.where(prior > 0.0, np.minimum(observed.lam, largest / prior), 0.0)
        along = np.where(prior > 0.0, lines.sign * np.sqrt(prior / prior[lines.first][lines.of]), 1.0)
    alpha = np.zeros(lam.size)
    alpha[lines.first] = np.bincount(lines.of, along * observed.alpha, minlength=lines.n)
    predictors = post.factor.predictors
    return _posterior(post, observed, predictors.at(asarray(lam[:, None], predictors.mt)), alpha, lam)


def _with_sites(post: Posterior, observed: Observed, r: np.ndarray, lam: np.ndarray) -> tuple[Posterior, Observed]:
    """q with other natural parameters of its active sites (N,)."""
    predictors = post.factor.predictors
    like = predictors.mt

    def column(x: np.ndarray) -> np.ndarray:
        return np.asarray(asarray(x[:, None], like))

    mt = _offset(post)
    factor = predictors.at(column(lam))
    h = mt + to_numpy(factor.apply(column(r - lam * mt)))[:, 0]
    return _posterior(post, observed, factor, lam * h - r, lam)


def _posterior(
    post: Posterior, observed: Observed, factor: Factor, alpha: np.ndarray, lam: np.ndarray
) -> tuple[Posterior, Observed]:
    """q with other slopes and curvatures of its active sites (N,): its mean is mt - S alpha."""
    predictors = factor.predictors
    like = predictors.mt
    h = _offset(post) - to_numpy(predictors.apply(asarray(alpha[:, None], like)))[:, 0]
    rho = to_numpy(factor.variance)[:, 0]
    full_alpha, full_lam = np.array(to_numpy(post.alpha)), np.array(to_numpy(post.lam))
    full_alpha[post.active, 0], full_lam[post.active, 0] = alpha, lam
    sites = asarray(full_alpha, like), asarray(full_lam, like)
    moments = asarray(h[:, None], like), asarray(rho[:, None], like)
    new = Posterior(post.predictors, post.active, factor, sites, moments)
    return new, replace(observed, h=h, rho=rho, alpha=alpha, lam=lam)


def _offset(post: Posterior) -> np.ndarray:
    """mt of the active rows, moved by the slopes of those that have no curvature (N,)."""
    rest = np.array(to_numpy(post.alpha))
    rest[post.active] = 0.0
    mt = to_numpy(post.predictors.mt)[post.active, 0]
    if not rest.any():
        return mt
    return np.asarray(mt - to_numpy(post.predictors.apply(asarray(rest, post.predictors.mt)))[post.active, 0])
