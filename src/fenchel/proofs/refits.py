"""Refits of q for the upper bound, with sites from the moments of the tilted densities.

The upper bound holds for every Gaussian q. It is stationary in q if every tilted density q_c exp(p_c gt_c) has the mean
and the variance of q_c, the fixed point of power expectation propagation. One damped step towards it, d in (0, 1], is

    lam_c += d (1/v_t - 1/rho_c) / p_c,        r_c += d (m_t/v_t - h_c/rho_c) / p_c,        r = lam h - alpha

The lower bound keeps the q of the fit, which is its best.
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
    """q after one step; ``first`` (n,) are the rows to which the changes of the sites are added.

    ``shape``: mean (n, 1) and variance (n, 1, 1) of x = (eta - h) / sqrt(rho) under the tilted densities.
    """
    rho, h = observed.rho[first], observed.h[first]
    mean, variance = h + np.sqrt(rho) * shape[0][:, 0], rho * shape[1][:, 0, 0]
    lam, r = observed.lam.copy(), observed.lam * observed.h - observed.alpha
    lam[first] += d * w * (1.0 / variance - 1.0 / rho)
    r[first] += d * w * (mean / variance - h / rho)
    return _with_sites(post, observed, r, np.maximum(lam, 0.0))


def flattened(post: Posterior, observed: Observed, lines: Lines, largest: float) -> tuple[Posterior, Observed]:
    """q with the same mean, whose curvatures times the prior variances of their rows are at most ``largest``.

    The slopes of rows of one site, which may cancel, are added up in its first row.
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
    """q with new natural parameters r, lam (N,) of its active sites."""
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
    """q with new slopes and curvatures (N,) of its active sites: its mean is mt - S alpha."""
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
    """mt of the active rows (N,), shifted by the rows that have a slope but no curvature."""
    rest = np.array(to_numpy(post.alpha))
    rest[post.active] = 0.0
    mt = to_numpy(post.predictors.mt)[post.active, 0]
    if not rest.any():
        return mt
    return np.asarray(mt - to_numpy(post.predictors.apply(asarray(rest, post.predictors.mt)))[post.active, 0])
