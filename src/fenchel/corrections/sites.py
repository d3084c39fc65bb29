"""What q leaves of each likelihood: exp gt_n, its mean z_n under q, its Hermite coefficients c_kn.

    gt_n(x) = log p(y_n|eta) + f_n - t_n(x) - lam_n rho_n/2,     x = (eta - h_n) / sqrt(rho_n) ~ N(0, 1) under q
    t_n     = -alpha_n sqrt(rho_n) x - lam_n rho_n x^2 / 2                      the site of q itself
    z_n = E exp gt_n,     c_kn = E[exp(gt_n) he_k(x)] / z_n,     he_k = He_k / sqrt(k!)

With f_n the bound that the elbo has in place of E[-log p], log p(y) - elbo = log E_q prod exp gt_n holds for every q,
at its optimum or not, exact or bounded. The averages are sums over an even grid of x: for smooth functions that die out
at both ends they converge faster than any power of its step. The step is halved, and the reach doubled, until nothing
moves; gt grows like lam rho x^2/2 where a likelihood is flat, and lam rho < 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..posterior import Posterior
from ..priors.lines import Lines

K = 32  # Hermite coefficients kept
STEPS = (0.125, 0.03125)
_REACHES = (14.0, 28.0, 56.0, 112.0)
_DEAD = 45.0  # nats below the largest value of phi exp gt at which its tail no longer counts
_SETTLED = 1e-9  # of log z between a grid and every other point of it
_NEARLY = 1e-3  # the same for a likelihood with a kink: the whole grid is then four times closer
_BLOCK = 1 << 21  # numbers held at a time


class Fit(Protocol):
    """What is read of a solution."""

    elbo: float

    @property
    def likelihood(self) -> Likelihood: ...
    @property
    def posterior(self) -> Posterior: ...
    @property
    def y(self) -> np.ndarray: ...
    @property
    def _rows(self) -> Rows: ...


@dataclass(frozen=True)
class Observed:
    """The observations of a fit with one predictor each, as q sees them: arrays (N,)."""

    likelihood: Likelihood
    rows: Rows
    times: np.ndarray  # how often each counts: its weight but for the likelihood's own, such as a number of trials
    h: np.ndarray
    rho: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray

    def take(self, index: Any) -> Observed:
        own = (self.times, self.h, self.rho, self.alpha, self.lam)
        return Observed(self.likelihood, slice_rows(self.rows, index), *(v[index] for v in own))

    def bound(self) -> np.ndarray:
        """f_n, weighted (N,): what stands for E[-log p] in the elbo."""
        f = np.asarray(self.likelihood.objective.f(self.h[:, None], self.rho[:, None], self.rows))
        return np.asarray(self.rows["weight"]) * f

    def left(self, x: np.ndarray, sign: np.ndarray, constant: np.ndarray) -> np.ndarray:
        """gt (N, M) at x (M,) or (N, M), which is that of a group: times ``sign`` it is the row's own."""
        t = np.sqrt(self.rho)[:, None] * (sign[:, None] * x)
        with np.errstate(all="ignore"):
            log_p = np.asarray(self.likelihood.log_density(self.h[:, None] + t, self.rows))
            out = self.times[:, None] * log_p + self.alpha[:, None] * t
        out += 0.5 * self.lam[:, None] * t * t + constant[:, None]
        return np.where(np.isnan(out), -np.inf, out)


@dataclass(frozen=True)
class Sites:
    """Merged observations. log_z (n,); c (n, K + 1) with c_0 = 1; gt (n, M) on the grid x."""

    observed: Observed
    groups: Lines
    x: np.ndarray
    gt: np.ndarray
    log_z: np.ndarray
    c: np.ndarray
    settled: bool  # whether the averages no longer moved with the grid, or hardly so

    @property
    def step(self) -> float:
        return float(self.x[1] - self.x[0])

    def tilted(self, every: int = 1) -> np.ndarray:
        """Probabilities (n, M) of the site's own distribution phi exp gt / z on the grid."""
        log_f = self.gt[:, ::every] - 0.5 * self.x[::every] ** 2
        f = np.exp(log_f - log_f.max(axis=1, keepdims=True))
        return f / f.sum(axis=1, keepdims=True)

    def exactly(self, site: int, x: np.ndarray) -> np.ndarray:
        """gt of one site at any places (M,)."""
        own = np.flatnonzero(self.groups.of == site)
        some = self.observed.take(own)
        return some.left(x, self.groups.sign[own], some.bound() - 0.5 * some.lam * some.rho).sum(axis=0)


def sites_of(observed: Observed, groups: Lines, steps: tuple[float, ...] = STEPS, order: int = K) -> Sites:
    """All sites on one grid, as fine and as wide as the worst of them needs; c up to ``order``."""
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
    """gt of every group (n, M): its members' added up, some rows at a time."""
    out = np.zeros((groups.n, x.size))
    step = max(1, _BLOCK // x.size)
    for i in range(0, observed.h.size, step):
        rows = slice(i, i + step)
        left = observed.take(rows).left(x, groups.sign[rows], constant[rows])
        of = groups.of[rows]
        if groups.n < observed.h.size:  # those of a group one after the other, then added up
            by = np.argsort(of, kind="stable")
            of, start = np.unique(of[by], return_index=True)
            left = np.add.reduceat(left[by], start, axis=0)
        out[of] += left
    return np.maximum(out, -700.0)


def _checked(gt: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """log z (n,), how far half of the grid is from it, whether a tail is cut off."""
    log_f = gt - 0.5 * x * x
    top = log_f.max(axis=1, keepdims=True)
    f = np.exp(log_f - top)
    whole = f.sum(axis=1)
    half = 2.0 * f[:, ::2].sum(axis=1)
    short = bool((np.maximum(log_f[:, 0], log_f[:, -1]) > top[:, 0] - _DEAD).any())
    log_z = top[:, 0] + np.log(whole * (x[1] - x[0]) / np.sqrt(2.0 * np.pi))
    return log_z, float(np.max(np.abs(half / whole - 1.0))), short


def coefficients(gt: np.ndarray, log_z: np.ndarray, x: np.ndarray, order: int = K) -> np.ndarray:
    """c_k (n, order + 1) from gt on the grid: one product with the polynomials."""
    f = np.exp(gt - 0.5 * x * x - log_z[:, None] + np.log((x[1] - x[0]) / np.sqrt(2.0 * np.pi)))
    return np.asarray(f @ hermite(x, order).T)


def hermite(x: np.ndarray, order: int = K) -> np.ndarray:
    """he_k(x) (order + 1, M), of norm 1 under N(0, 1)."""
    out = np.empty((order + 1, x.size))
    out[0], out[1] = 1.0, x
    for k in range(1, order):
        out[k + 1] = (x * out[k] - np.sqrt(k) * out[k - 1]) / np.sqrt(k + 1.0)
    return out
