"""Markov processes in continuous time at increasing times, which need not be equally spaced.

    x(t + h) = A(h) x(t) + noise,    Cov(noise) = S(h),    x = the value and p - 1 derivatives

Walk(p)    x^(p) is white noise: a Wiener process (p = 1), or an integrated one (p = 2), a cubic spline
Chain(p)   a stationary Matern process of smoothness nu = p - 1/2 at sd 1; p = 1 is an Ornstein-Uhlenbeck process

For the Matern process h is tau = lam h with lam = sqrt(8 nu) / range, and the latents are x = (f, f'/lam, f''/lam^2).
A = e^(F tau), where F is the companion matrix of (1 + s)^p, and S = P - A P A', where P is the stationary covariance. S
has the size of tau^(2p-1), and the difference loses digits for small tau. Up to tau = 2 it is therefore the integral of
g g' over (0, tau), g = e^(F s) L, by quadrature. ``Stationary`` multiplies derivatives by powers of a fixed ``step``
instead of 1/lam, so that the meaning of the latents does not depend on theta = (log sd, log range).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb, perm
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.polynomial.legendre import leggauss

_SHORT = 2.0  # largest tau for which the noise is computed as an integral
_STATIONARY = {
    1: np.eye(1),
    2: np.eye(2),
    3: np.array([[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]]),
}
_NOISE = {1: 2.0, 2: 4.0, 3: 16.0 / 3.0}  # spectral density of the noise, for each p


@dataclass(frozen=True)
class Walk:
    """Transitions of a Wiener process (p = 1) or of an integrated one (p = 2)."""

    p: int

    def transition(self, h: np.ndarray) -> np.ndarray:
        """The transition matrices A (m, p, p)."""
        out = np.tile(np.eye(self.p), (h.size, 1, 1))
        if self.p == 2:
            out[:, 0, 1] = h
        return out

    def noise(self, h: np.ndarray) -> np.ndarray:
        """The noise covariances S (m, p, p)."""
        entries = [[h]] if self.p == 1 else [[h**3 / 3, h**2 / 2], [h**2 / 2, h]]
        return np.moveaxis(np.array(entries), -1, 0)

    def precision(self, h: np.ndarray) -> np.ndarray:
        """The noise precisions S^-1 (m, p, p)."""
        entries = [[1 / h]] if self.p == 1 else [[12 / h**3, -6 / h**2], [-6 / h**2, 4 / h]]
        return np.moveaxis(np.array(entries), -1, 0)

    def structure(self, times: np.ndarray) -> sp.csc_array:
        """The precision (n p, n p) of the states at increasing times; the null space of the walk remains."""
        h = np.diff(times)
        B = np.concatenate([-self.transition(h), np.tile(np.eye(self.p), (h.size, 1, 1))], axis=2)
        return _blocks(np.zeros((self.p, self.p)), np.swapaxes(B, 1, 2) @ self.precision(h) @ B, times.size)

    def weights(self, times: np.ndarray, t: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Weights (N, n p) of the states for values at other times t, and the conditional variances."""
        W, variance = bridge(self, times, t)
        return placed(W, times, t), variance


@dataclass(frozen=True)
class Chain:
    """Transitions of a Matern process at sd 1 in steps of tau; ``p`` is nu + 1/2."""

    p: int

    @cached_property
    def companion(self) -> np.ndarray:
        F = np.diag(np.ones(self.p - 1), 1)
        F[-1] = [-comb(self.p, k) for k in range(self.p)]
        return F

    @property
    def stationary(self) -> np.ndarray:
        return _STATIONARY[self.p]

    def transition(self, tau: np.ndarray) -> np.ndarray:
        """The transition matrices A (m, p, p): e^-tau times a polynomial, since F + I is nilpotent."""
        E, out, term = self.companion + np.eye(self.p), np.zeros((tau.size, self.p, self.p)), np.eye(self.p)
        for k in range(self.p):
            out += (tau**k)[:, None, None] * term
            term = term @ E / (k + 1)
        return np.asarray(np.exp(-tau)[:, None, None] * out)

    def noise(self, tau: np.ndarray) -> np.ndarray:
        """The noise covariances S (m, p, p)."""
        if self.p == 1:
            return -np.expm1(-2.0 * tau)[:, None, None]
        A = self.transition(tau)
        out = self.stationary - A @ self.stationary @ np.swapaxes(A, 1, 2)
        short = np.flatnonzero(tau < _SHORT)
        if short.size:
            nodes, weights = leggauss(14)
            s = tau[short, None] * (1.0 + nodes) / 2
            g = self.transition(s.ravel()).reshape(*s.shape, self.p, self.p)[..., -1]
            each = _NOISE[self.p] * tau[short, None] / 2 * weights
            out[short] = np.einsum("mk,mki,mkj->mij", each, g, g)
        return out

    def precision(self, tau: np.ndarray) -> np.ndarray:
        """The noise precisions S^-1 (m, p, p)."""
        grade = np.minimum(tau, 1.0)[:, None] ** (self.p - 0.5 - np.arange(self.p))  # sqrt of the order of S_ii
        outer = grade[:, :, None] * grade[:, None, :]
        return np.asarray(np.linalg.inv(self.noise(tau) / outer) / outer)

    def precision_slope(self, tau: np.ndarray, N: np.ndarray) -> np.ndarray:
        """The derivative (m, p, p) of N = S^-1 in log tau."""
        g = self.transition(tau)[..., -1]
        slope = _NOISE[self.p] * tau[:, None, None] * g[:, :, None] * g[:, None, :]
        return -N @ slope @ N


def bridge(chain: Walk | Chain, times: np.ndarray, t: np.ndarray, rate: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Weights (N, 2p) of the states at both neighbours of each t for the value at t, and the conditional variance.

    The gaps are multiplied by ``rate``.
    """
    p = chain.p
    j = left_neighbour(times, t)
    W, variance = np.zeros((t.size, 2 * p)), np.zeros(t.size)
    inside = (t > times[j]) & (t < times[j + 1])
    a, b = rate * (t[inside] - times[j[inside]]), rate * (times[j[inside] + 1] - t[inside])
    Na, back = chain.precision(a), np.swapaxes(chain.transition(b), 1, 2) @ chain.precision(b)
    S = np.linalg.inv(Na + back @ chain.transition(b))
    W[inside] = np.concatenate([S @ Na @ chain.transition(a), S @ back], axis=2)[:, 0]
    variance[inside] = S[:, 0, 0]
    after, before = t >= times[-1], t <= times[0]
    for outside, end, flip, gap in ((after, p, 1.0, t - times[-1]), (before, 0, -1.0, times[0] - t)):
        far = rate * gap[outside]
        W[outside, end : end + p] = chain.transition(far)[:, 0] * flip ** np.arange(p)
        variance[outside] = chain.noise(far)[:, 0, 0]
    W[t == times[j]] = np.eye(2 * p)[0]
    return W, variance


def left_neighbour(times: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The index of the last time up to t that is not the last of all times."""
    return np.clip(np.searchsorted(times, t, side="right") - 1, 0, times.size - 2)


def placed(W: np.ndarray, times: np.ndarray, t: np.ndarray) -> sp.csr_array:
    """Weights (N, 2p) of both neighbours as a design (N, n p) over all states, without zeros."""
    p = W.shape[1] // 2
    at = np.repeat(np.arange(t.size), 2 * p), (p * left_neighbour(times, t)[:, None] + np.arange(2 * p)).ravel()
    out = sp.csr_array((W.ravel(), at), shape=(t.size, times.size * p))
    out.eliminate_zeros()
    return out


def _blocks(first: np.ndarray, each: np.ndarray, n: int) -> sp.csc_array:
    """The sum of a block (p, p) for the first time and one (2p, 2p) for each pair of neighbours; zeros are stored."""
    p = len(first)
    each = (each + np.swapaxes(each, 1, 2)) / 2
    values = np.zeros((n, p, 3, p))  # columns of each time, in rows of the previous, the same and the next time
    values[0, :, 1] = first
    values[:-1, :, 1] += each[:, :p, :p]
    values[1:, :, 1] += each[:, p:, p:]
    values[:-1, :, 2] = each[:, :p, p:]
    values[1:, :, 0] = each[:, p:, :p]
    block = np.arange(n)[:, None] + np.arange(-1, 2)
    rows = np.broadcast_to(p * block[:, None, :, None] + np.arange(p), values.shape)
    inside = np.broadcast_to(((block >= 0) & (block < n))[:, None, :, None], values.shape)
    entries = inside.reshape(n * p, -1).sum(axis=1)
    indptr = np.concatenate([[0], np.cumsum(entries)])
    return sp.csc_array((values[inside], rows[inside], indptr), shape=(n * p, n * p))


_CHAINS = {p: Chain(p) for p in _STATIONARY}


@dataclass(frozen=True)
class Stationary:
    """The precision of a Matern process at increasing times; theta = (log sd, log range).

    Attributes
    ----------
    times : array (n,)
    p : int
        nu + 1/2, the number of latents at each time: 1, 2 or 3.
    step : float
        The unit of time of the derivatives among the latents.
    """

    times: np.ndarray
    p: int
    step: float

    @property
    def chain(self) -> Chain:
        return _CHAINS[self.p]

    def rate(self, theta: np.ndarray) -> float:
        """lam = sqrt(8 nu) / range."""
        return float(np.sqrt(8.0 * (self.p - 0.5)) / np.exp(theta[1]))

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        p, lam, n = self.p, self.rate(theta), self.times.size
        tau, k, order = lam * np.diff(self.times), np.exp(-2.0 * theta[0]), np.arange(p)
        u = lam * self.step
        up, down = u ** (order[:, None] - order), u ** -(order[:, None] + order).astype(float)
        A = self.chain.transition(tau)
        N = self.chain.precision(tau)
        dN = self.chain.precision_slope(tau, N)
        N, dN = down * N, down * ((order[:, None] + order) * N - dN)  # in log range: d log tau = d log u = -1
        slope = -up * (tau[:, None, None] * (self.chain.companion @ A) + (order[:, None] - order) * A)
        eye = np.tile(np.eye(p), (tau.size, 1, 1))
        B, dB = np.concatenate([-up * A, eye], axis=2), np.concatenate([-slope, 0.0 * eye], axis=2)
        Bt, half = np.swapaxes(B, 1, 2), np.swapaxes(dB, 1, 2) @ N @ B
        first = k * down * np.linalg.inv(self.chain.stationary)
        Q = _blocks(first, k * (Bt @ N @ B), n)
        rest = k * (half + np.swapaxes(half, 1, 2) + Bt @ dN @ B)
        return Q, [-2.0 * Q, _blocks((order[:, None] + order) * first, rest, n)]

    def weights(self, theta: np.ndarray, t: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Weights (N, n p) of the latents for values at other times t, and the conditional variances at sd 1."""
        lam = self.rate(theta)
        W, variance = bridge(self.chain, self.times, t, lam)
        unit = (lam * self.step) ** np.arange(self.p)
        return placed(W / np.tile(unit, 2), self.times, t), variance


def hermite(knots: np.ndarray, t: np.ndarray, p: int, step: float) -> sp.csr_array:
    """Weights (N, n p) of values and derivatives at knots in the Hermite polynomial between neighbours, at times t."""
    j = left_neighbour(knots, t)
    h, k = knots[j + 1] - knots[j], np.arange(2 * p)
    ends = np.zeros((2 * p, 2 * p))  # derivatives of 1, x, x^2, ... at 0 and at 1
    for d in range(p):
        falling = np.array([float(perm(int(m), d)) for m in k])
        ends[d], ends[p + d] = falling * (k == d), falling
    W = ((t - knots[j]) / h)[:, None] ** k @ np.linalg.inv(ends)
    W = W * np.tile((h[:, None] / step) ** np.arange(p), (1, 2))
    W[np.abs(W) < 1e-14] = 0.0
    return placed(W, knots, t)
