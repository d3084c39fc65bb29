"""Sites: the log-likelihoods minus their Gaussian approximation in q, and the correlations of sites under q.

    gt_n(x) = log p(y_n|eta) + f_n - t_n(x) - lam_n rho_n/2,     x = (eta - h_n) / sqrt(rho_n) ~ N(0, 1) under q
    t_n     = -alpha_n sqrt(rho_n) x - lam_n rho_n x^2 / 2                      the Gaussian site of q
    z_n = E exp gt_n,     c_kn = E[exp(gt_n) he_k(x)] / z_n,     he_k = He_k / sqrt(k!),     R = corr(W V W')

Here f_n is the bound that the elbo uses in place of E[-log p]. log p(y) - elbo = log E_q prod exp gt_n holds for every
q, whether at the optimum or not and whatever the bound. Observations that see the latents along the same line are one
site, with the sum of their log densities. Expectations are sums over an even grid of x, which converge faster than any
power of the step for smooth functions that vanish at both ends. The step is reduced and the width doubled until the
sums are constant. Where a likelihood is flat, gt grows like lam rho x^2/2, and lam rho < 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..linalg.arrays import to_numpy
from ..linalg.design import Design, Identity
from ..posterior import Posterior
from ..priors.base import NewRows
from ..priors.predictors import new_rows
from ..priors.row_covariances import Lines, RowCovariances

K = 32  # highest order of the Hermite coefficients
STEPS = (0.125, 0.03125)  # steps of the grid, tried in turn
_REACHES = (14.0, 28.0, 56.0, 112.0)  # half widths of the grid, tried in turn
_DEAD = 45.0  # nats below the maximum of phi exp gt at which its tail is negligible
_SETTLED = 1e-9  # largest relative difference of z between a grid and every other point of it
_NEARLY = 1e-3  # the same for a likelihood with a kink; the error of the whole grid is then four times smaller
_BLOCK = 1 << 21  # numbers in memory at a time
_CORRELATIONS_AT_ONCE = 1 << 22  # numbers of R in memory at a time

Block = tuple[np.ndarray, np.ndarray]  # indices of some unknowns (T,), and their R with all sites (T, n)


class EvidenceRange(Protocol):
    """Proved lower and upper bounds on log p(y)."""

    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...


class GaussianFit(Protocol):
    """The part of a solution that corrections read."""

    elbo: float

    @property
    def proved_bounds(self) -> EvidenceRange | None: ...
    @property
    def likelihood(self) -> Likelihood: ...
    @property
    def posterior(self) -> Posterior: ...
    @property
    def y(self) -> np.ndarray: ...
    @property
    def _rows(self) -> Rows: ...


def contradicted(fit: GaussianFit, value: float, error: float) -> str | None:
    """Why an estimate of log p(y) is wrong; None unless it is outside of proved bounds by more than its error."""
    proved = fit.proved_bounds
    if proved is None or proved.lower - error <= value <= proved.upper + error:
        return None
    return f"log p(y) is proved to be between {proved.lower:.6g} and {proved.upper:.6g}, and {value:.6g} is not"


@dataclass(frozen=True)
class Observed:
    """The observations of a fit with one predictor each, with their moments and sites under q: arrays (N,)."""

    likelihood: Likelihood
    rows: Rows
    times: np.ndarray  # weights without the likelihood's own, such as a number of trials
    h: np.ndarray
    rho: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray

    def take(self, index: Any) -> Observed:
        own = (self.times, self.h, self.rho, self.alpha, self.lam)
        return Observed(self.likelihood, slice_rows(self.rows, index), *(v[index] for v in own))

    def bound(self) -> np.ndarray:
        """Weighted f_n (N,): the bound on E[-log p] in the elbo."""
        f = np.asarray(self.likelihood.objective.f(self.h[:, None], self.rho[:, None], self.rows))
        return np.asarray(self.rows["weight"]) * f

    def left(self, x: np.ndarray, sign: np.ndarray, constant: np.ndarray) -> np.ndarray:
        """gt (N, M) at x (M,) or (N, M), the coordinate of the site; ``sign`` times x is the row's coordinate."""
        t = np.sqrt(self.rho)[:, None] * (sign[:, None] * x)
        with np.errstate(all="ignore"):
            log_p = np.asarray(self.likelihood.log_density(self.h[:, None] + t, self.rows))
            out = self.times[:, None] * log_p + self.alpha[:, None] * t
        out += 0.5 * self.lam[:, None] * t * t + constant[:, None]
        return np.where(np.isnan(out), -np.inf, out)


def observations(solution: GaussianFit) -> Observed:
    """The active rows of a fit with one predictor each."""
    post = solution.posterior
    active = post.active
    h, rho = (to_numpy(v)[:, 0] for v in post.active_moments)
    rows = {key: to_numpy(value)[active] for key, value in solution._rows.items()}
    alpha, lam = (to_numpy(v)[active, 0] for v in (post.alpha, post.lam))
    return Observed(solution.likelihood, rows, counted(solution)[active], h, rho, alpha, lam)


def counted(solution: GaussianFit) -> np.ndarray:
    """Weights of the observations (N,), without the likelihood's own, such as a number of trials."""
    own = to_numpy(solution.likelihood.prepare(solution.y)["weight"])
    return np.asarray(to_numpy(solution._rows["weight"]) / np.where(own > 0.0, own, 1.0))


@dataclass(frozen=True)
class Sites:
    """Observations merged into sites: log_z (n,), c (n, K + 1) with c_0 = 1, and gt (n, M) on the grid x."""

    observed: Observed
    groups: Lines
    x: np.ndarray
    gt: np.ndarray
    log_z: np.ndarray
    c: np.ndarray
    settled: bool  # whether the expectations are accurate on this grid

    @property
    def step(self) -> float:
        return float(self.x[1] - self.x[0])

    def tilted(self, every: int = 1) -> np.ndarray:
        """Probabilities (n, M) of the tilted distribution phi exp gt / z of each site on the grid."""
        log_f = self.gt[:, ::every] - 0.5 * self.x[::every] ** 2
        f = np.exp(log_f - log_f.max(axis=1, keepdims=True))
        return f / f.sum(axis=1, keepdims=True)

    def exactly(self, site: int, x: np.ndarray) -> np.ndarray:
        """gt (M,) of one site at any x (M,), not interpolated."""
        own = np.flatnonzero(self.groups.of == site)
        some = self.observed.take(own)
        return some.left(x, self.groups.sign[own], some.bound() - 0.5 * some.lam * some.rho).sum(axis=0)


def sites_of(observed: Observed, groups: Lines, steps: tuple[float, ...] = STEPS, order: int = K) -> Sites:
    """Compute all sites on one grid, as fine and as wide as the most demanding site needs; c up to ``order``."""
    constant = observed.bound() - 0.5 * observed.lam * observed.rho
    for reach in _REACHES:
        for step in steps:
            x = step * np.arange(-round(reach / step), round(reach / step) + 1)
            gt = _on_grid(observed, groups, constant, x)
            log_z, rough, short = _checked(gt, x)
            if short or rough <= _SETTLED:
                break
        if not short:
            break
    settled = rough <= _NEARLY and not short
    return Sites(observed, groups, x, gt, log_z, coefficients(gt, log_z, x, order), settled)


def _on_grid(observed: Observed, groups: Lines, constant: np.ndarray, x: np.ndarray) -> np.ndarray:
    """gt of every site (n, M), the sum over its observations, some rows at a time."""
    out = np.zeros((groups.n, x.size))
    step = max(1, _BLOCK // x.size)
    for i in range(0, observed.h.size, step):
        rows = slice(i, i + step)
        left = observed.take(rows).left(x, groups.sign[rows], constant[rows])
        of = groups.of[rows]
        if groups.n < observed.h.size:  # sort the rows by site, then add them up
            by = np.argsort(of, kind="stable")
            of, start = np.unique(of[by], return_index=True)
            left = np.add.reduceat(left[by], start, axis=0)
        out[of] += left
    return np.maximum(out, -700.0)


def _checked(gt: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """log z (n,), the largest relative error of half of the grid, and whether a tail is cut off."""
    log_f = gt - 0.5 * x * x
    top = log_f.max(axis=1, keepdims=True)
    f = np.exp(log_f - top)
    whole = f.sum(axis=1)
    half = 2.0 * f[:, ::2].sum(axis=1)
    short = bool((np.maximum(log_f[:, 0], log_f[:, -1]) > top[:, 0] - _DEAD).any())
    log_z = top[:, 0] + np.log(whole * (x[1] - x[0]) / np.sqrt(2.0 * np.pi))
    return log_z, float(np.max(np.abs(half / whole - 1.0))), short


def coefficients(gt: np.ndarray, log_z: np.ndarray, x: np.ndarray, order: int = K) -> np.ndarray:
    """Hermite coefficients c_k (n, order + 1) from gt on the grid."""
    f = np.exp(gt - 0.5 * x * x - log_z[:, None] + np.log((x[1] - x[0]) / np.sqrt(2.0 * np.pi)))
    return np.asarray(f @ hermite(x, order).T)


def hermite(x: np.ndarray, order: int = K) -> np.ndarray:
    """Hermite polynomials he_k(x) (order + 1, M), normalised under N(0, 1)."""
    out = np.empty((order + 1, x.size))
    out[0], out[1] = 1.0, x
    for k in range(1, order):
        out[k + 1] = (x * out[k] - np.sqrt(k) * out[k - 1]) / np.sqrt(k + 1.0)
    return out


class Correlations:
    """Correlations R under q between the sites and other unknowns."""

    _whole: np.ndarray | None = None  # R of all sites, within ``held``

    def __init__(self, posterior: Posterior, groups: Lines) -> None:
        self.posterior, self.groups = posterior, groups
        self.rho = to_numpy(posterior.active_moments[1])[:, 0][groups.first]
        self.scale = _inverse_root(self.rho)

    @cached_property
    def covariances(self) -> Any:
        """Covariances with the sites: of active rows, or of all rows if the latents are the predictors."""
        post, first = self.posterior, self.groups.first
        if post.factor.own_latents:
            return post.factor.row_covariances(first)
        return post.joint_factor().row_covariances(post.active[first])

    @contextmanager
    def held(self, most: int) -> Iterator[np.ndarray | None]:
        """R of all sites (n, n), in memory within this context; None with more sites than ``most``."""
        self._whole = self.of_sites(np.arange(self.groups.n)) if self.groups.n <= most else None
        try:
            yield self._whole
        finally:
            self._whole = None

    def between(self) -> Iterator[Block]:
        """Yield R between the sites, some rows at a time."""
        n = self.groups.n
        if self._whole is not None:
            yield np.arange(n), self._whole
            return
        step = max(1, _CORRELATIONS_AT_ONCE // n)
        for i in range(0, n, step):
            rows = np.arange(i, min(n, i + step))
            yield rows, self.of_sites(rows)

    def of_sites(self, which: np.ndarray) -> np.ndarray:
        """R of some sites with all sites (M, n)."""
        covariances: RowCovariances = self.covariances
        R = self._scaled(covariances.of_rows(covariances.sites[which]), self.scale[which])
        R[np.arange(which.size), which] = 1.0
        return R

    def with_latents(self) -> np.ndarray:
        """R of the latents with the sites (L, n)."""
        variance = to_numpy(self.posterior.latent_variance)
        if self.posterior.factor.own_latents:
            return self.with_design(Identity(variance.size, self.posterior.factor.lam), variance)
        return self._of_covariance(self.covariances.of_rows(np.arange(variance.size)), variance)

    def with_design(self, new: Design, variance: np.ndarray) -> np.ndarray:
        """R of new rows of the design with the sites (M, n); ``variance`` (M,) is theirs under q."""
        return self._of_covariance(self.covariances.of_design(new), variance)

    def with_new(self, new: NewRows, variance: np.ndarray) -> np.ndarray:
        """R of eta at new rows with the sites (M, n); ``variance`` (M,) is that of the latent part of eta under q."""
        n_latents = int(np.shape(self.posterior.latent_mean)[0])
        (rows,), _ = new_rows(new, n_latents, 1, 1, self.posterior.predictors.mt)
        if new.design is not None:
            return self.with_design(rows, variance)
        return self._of_covariance(self.covariances.of_cross(rows), variance)

    def with_rest(self, rest: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """R of observations without a site with the sites (M, n)."""
        predictors: Any = self.posterior.predictors
        if self.posterior.factor.own_latents:
            return self.with_design(predictors.designs[0].take(rest), variance)
        return self._of_covariance(self.covariances.of_rows(rest), variance)

    def _of_covariance(self, V: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return self._scaled(V, _inverse_root(variance))

    def _scaled(self, V: np.ndarray, scale: np.ndarray) -> np.ndarray:
        R = V * scale[:, None]
        R *= self.scale[None, :]
        return np.clip(R, -1.0, 1.0, out=R)


def _inverse_root(variance: np.ndarray) -> np.ndarray:
    """1 / sd, or 0 for a variance of 0."""
    with np.errstate(divide="ignore"):
        return np.where(variance > 0.0, 1.0 / np.sqrt(variance), 0.0)
