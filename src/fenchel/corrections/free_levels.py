"""Counts with a free level for each of many intervals, as in Cox's model: the levels are integrated out exactly.

    y_n ~ Poisson(c_n e^{b_k(n) + x_n' r}),   b_k nearly flat a priori,   d_k = sum y_n,   S_k(r) = sum c_n e^{x_n' r}
    p(y | r) ~ p(b = E[b | r, y]) prod_n (c_n e^{x_n' r})^{y_n} / y_n!  prod_k Gamma(d_k) / S_k^d_k
    b_k | r, y  has the mean digamma(d_k) - log S_k and the variance trigamma(d_k)

which is the partial likelihood. The level of an interval with one event is far from Gaussian, but the other latents r
are nearly Gaussian. Draws of r from a t distribution with the mean and covariance of q give the evidence and the
moments of all latents. The moments use those of q as control variates. The points are the same at every theta, so that
differences between theta have a smaller error than each value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import chdtri, digamma, gammaln, ndtri, polygamma

from ..linalg.arrays import to_numpy
from .importance import TRUSTED, RowDensities, log_constant, smoothed
from .low_rank import LowRank, directions_of
from .sites import Correlations, GaussianFit

_FLAT = 0.01  # largest share of a level's posterior precision that may come from its prior
_FEWEST = 5  # fewest levels
_MOST = 300  # most latents that are drawn
_FREEDOM = 30.0  # degrees of freedom of the draws
_COPIES = 16  # random shifts of one set of points, from which the error is estimated
_POINTS = 64, 256, 1024  # points of a copy, tried in turn; each is used with its mirror image
_ENOUGH = 0.01  # nats: with a smaller error no more points are tried
_USED = 0.05  # nats: with a larger error the result is not used


@dataclass(frozen=True)
class FreeLevels:
    """The latents split into levels b = G z and the others r = z[rest].

    G : (J, L) the levels as sums of latents
    rest : (p,) indices of the other latents
    X : (n, p) design of the rows for r
    of : (n,) the level of each row
    """

    G: np.ndarray
    rest: np.ndarray
    X: np.ndarray
    of: np.ndarray


def split_levels(W: Any, Q: Any, variance: np.ndarray) -> FreeLevels | None:
    """Find levels with one prior precision, nearly flat, such that every row sees exactly one; None without them."""
    L, diagonal = Q.shape[0], Q.diagonal()
    _, component = sp.csgraph.connected_components(Q, directed=False)
    W = sp.csc_array(W, copy=True)
    W.eliminate_zeros()
    column, many = np.repeat(np.arange(L), np.diff(W.indptr)), np.diff(W.indptr)
    indicator = np.bincount(column, W.data == 1.0, L) == many
    free = (np.bincount(component)[component] == 1) & indicator & (diagonal * variance <= _FLAT)
    everywhere = free & (many == W.shape[0])
    free &= ~everywhere
    for precision in np.unique(diagonal[free]):
        levels = np.flatnonzero(free & (diagonal == precision))
        seen = sp.csr_array(W[:, levels])
        if levels.size < _FEWEST or not (np.diff(seen.indptr) == 1).all():
            continue
        G = np.zeros((levels.size, L))
        G[np.arange(levels.size), levels] = 1.0
        G[:, everywhere] = 1.0
        rest = np.setdiff1d(np.arange(L), np.r_[levels, np.flatnonzero(everywhere)])
        return FreeLevels(G, rest, W[:, rest].toarray(), seen.indices) if 0 < rest.size <= _MOST else None
    return None


def levels_of(fit: GaussianFit) -> FreeLevels | None:
    """The free levels of a fit; None if it has none, or if its rows are not counts."""
    post = fit.posterior
    predictors: Any = post.predictors
    terms = fit.likelihood.elementary_terms(fit._rows)
    if terms is None or terms.sign != 1.0 or np.any(terms.up) or np.any(terms.down):
        return None
    if not post.factor.covariances.sparse or post.active.size < predictors.n_observations:
        return None
    return split_levels(predictors.W, predictors.pattern.Q, to_numpy(post.latent_variance))


def free_levels(fit: GaussianFit, correlations: Correlations, own: float) -> LowRank | None:
    """log p(y) minus the elbo and the sites' ``own`` terms, and moments of all latents; None without free levels."""
    split = levels_of(fit)
    if split is None:
        return None
    rows = {key: to_numpy(value) for key, value in fit._rows.items()}
    terms = fit.likelihood.elementary_terms(rows)
    assert terms is not None
    integrated = _Integrated(fit, split, -rows["weight"] * terms.linear, rows["weight"] * terms.rate)
    if not integrated.applies:
        return None
    directions = directions_of(
        correlations.groups.n, lambda k: correlations.of_sites(np.array([k]))[0], split.rest.size + split.G.shape[0]
    )
    if directions is None:
        return None
    pivot = directions.pivot
    for points in _POINTS:
        found = integrated.draw(points, correlations.groups.first[pivot])
        if found.error <= _ENOUGH:
            break
    if found.error > _USED or found.k_hat > TRUSTED:
        return None
    to_t = np.linalg.solve(directions.loading[pivot], np.diag(correlations.scale[pivot]))
    beyond, covariance = found.log_evidence - fit.elbo - own, to_t @ found.covariance @ to_t.T
    return LowRank(directions, beyond, found.error, to_t @ found.mean, covariance)


def _covariance(factor: Any, eye: np.ndarray) -> np.ndarray:
    """Covariance of all latents under q."""
    return np.asarray(factor.parts[0].solve(eye))


@dataclass(frozen=True)
class _Drawn:
    """log p(y) with its error and k-hat of the weights; moments of eta at some rows, relative to the means under q."""

    log_evidence: float
    error: float
    k_hat: float
    mean: np.ndarray
    covariance: np.ndarray


class _Integrated:
    """The posterior of r with the levels integrated out.

    y, rate : (n,) such that -log p(y | eta) = -y eta + rate e^eta + const for each row
    """

    def __init__(self, fit: GaussianFit, split: FreeLevels, y: np.ndarray, rate: np.ndarray) -> None:
        post, self.split, self.y = fit.posterior, split, y
        predictors: Any = post.predictors
        G, rest, J = split.G, split.rest, split.G.shape[0]
        eye, prior_mean = np.eye(G.shape[1]), to_numpy(predictors.latent_mean())
        prior, V = predictors.latents[0].covariance_times(eye), _covariance(post.factor, eye)
        self.counts = np.bincount(split.of, y, J)
        apart = np.abs(G @ prior[:, rest]).max() <= _FLAT * np.sqrt(prior.diagonal().max())
        self.applies = bool(apart and self.counts.min() > 0.0)
        if not self.applies:
            return
        self.precision = predictors.pattern.Q[rest][:, rest].toarray()
        self.level_precision, self.level_mean = np.linalg.inv(G @ prior @ G.T), G @ prior_mean
        mean, eta = to_numpy(post.latent_mean), to_numpy(post.moments[0])[:, 0]
        self.at, self.prior_mean = mean[rest], prior_mean[rest]
        offset = eta - split.X @ self.at - (G @ mean)[split.of]
        self.X, same = np.unique(split.X, axis=0, return_inverse=True)  # pieces of one duration have the same row of X
        place = split.of, same.ravel()
        self.exposure = sp.csr_array((rate * np.exp(offset), place), shape=(J, self.X.shape[0])).toarray()
        self.slope = y @ split.X

        V_r = V[np.ix_(rest, rest)]
        values, vectors = np.linalg.eigh(V_r)
        self.vectors = vectors[:, values > 1e-10 * values[-1]]  # constraints leave fewer directions
        values = values[-self.vectors.shape[1] :]
        self.root = (vectors[:, -values.size :] * np.sqrt(values)) @ self.vectors.T  # smooth in theta
        cross = G @ V[:, rest]
        self.regression = cross @ (self.vectors / values) @ self.vectors.T  # of b on r, under q
        self.V_r, self.levels = V_r, G @ mean
        left = G @ V @ G.T - self.regression @ cross.T

        value, means = self._log_density(self.at[:, None])
        d, log_s = self.counts, digamma(self.counts) - means[:, 0]
        own = np.sum(d * (self.levels + log_s) - np.exp(self.levels + log_s) - gammaln(d))  # b | r, y at the mean of q
        own += self._level_prior(self.levels[:, None])[0] - self._level_prior(means)[0]
        whole = RowDensities(fit, post.active).log_likelihood(eta[:, None, None]).sum() + log_constant(fit, None)
        self.constant = float(whole - own - 0.5 * np.linalg.slogdet(2.0 * np.pi * left)[1] - value[0])

    def _level_prior(self, b: np.ndarray) -> np.ndarray:
        e = b - self.level_mean[:, None]
        return -0.5 * np.sum(e * (self.level_precision @ e), axis=0)

    def _log_density(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(y, r) (K,) up to a constant, and E[b | r, y] (J, K)."""
        log_s = np.log(self.exposure @ np.exp(self.X @ r))
        b, e = digamma(self.counts)[:, None] - log_s, r - self.prior_mean[:, None]
        value = self.slope @ r - self.counts @ log_s - 0.5 * np.sum(e * (self.precision @ e), axis=0)
        return value + self._level_prior(b), b

    def draw(self, points: int, rows: np.ndarray) -> _Drawn:
        """Estimate by antithetic pairs of draws; ``rows`` are the rows whose moments of eta are returned."""
        from scipy.stats import qmc

        p, m, of = self.root.shape[0], self.vectors.shape[1], self.split.of[rows]
        X, rng = self.split.X[rows], np.random.default_rng(0)
        base = qmc.Sobol(p + 1, scramble=True, rng=rng).random(points)
        log_w, log_v, moved, linear = [], [], [], []
        for _ in range(_COPIES):
            u = np.clip((base + rng.random(p + 1)) % 1.0, 2.0**-53, 1.0 - 2.0**-53).T
            z = ndtri(u[1:]) / np.sqrt(chdtri(_FREEDOM, u[0]) / _FREEDOM)
            z = np.concatenate([z, -z], axis=1)
            square = np.sum((self.vectors.T @ z) ** 2, axis=0)
            t = gammaln((_FREEDOM + m) / 2) - gammaln(_FREEDOM / 2) - m / 2 * np.log(_FREEDOM / 2)
            log_t = t - 0.5 * (_FREEDOM + m) * np.log1p(square / _FREEDOM)  # relative to the density of N(0, I) at 0
            d = self.root @ z
            value, b = self._log_density(self.at[:, None] + d)
            log_w.append(value - log_t)
            log_v.append(-0.5 * square - log_t)
            moved.append(X @ d + (b - self.levels[:, None])[of])
            linear.append((X + self.regression[of]) @ d)
        each = np.array(log_w)
        smooth, k_hat = smoothed(each.ravel())
        top = smooth.max()
        w = np.exp(smooth - top).reshape(each.shape)
        means = w.mean(axis=1)
        error = float(means.std(ddof=1) / means.mean() / np.sqrt(_COPIES))
        flat, v = w.ravel() / w.sum(), np.exp(np.ravel(log_v))
        v, c, g = v / v.sum(), np.concatenate(moved, axis=1), np.concatenate(linear, axis=1)
        mean, A = c @ flat, X + self.regression[of]
        second = (c * flat) @ c.T - (g * v) @ g.T + A @ self.V_r @ A.T
        covariance = second - np.outer(mean, mean)
        covariance += np.where(of[:, None] == of, polygamma(1, self.counts)[of], 0.0)
        return _Drawn(self.constant + top + float(np.log(w.mean())), error, k_hat, mean, covariance)
