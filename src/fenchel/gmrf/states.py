"""Matern processes in time, exactly, as Markov chains of their value and derivatives.

    nu = 1/2, 3/2, 5/2:   x = (f, f'/lam, f''/lam^2), lam = sqrt(8 nu) / range, p = nu + 1/2 entries
    x(t + h) = A(tau) x(t) + noise,   tau = lam h,   A = e^(F tau),   Cov(noise) = S(tau) = P - A P A'

F is the companion matrix of (1 + s)^p and P the stationary covariance at sd 1. S(tau) is of size tau^(2p-1): up to
tau = 2 it is the integral of g g' over (0, tau), g = e^(F s) L, by quadrature, which loses no digit. Latents are the
derivatives times powers of a fixed ``step`` in place of 1/lam, so that they mean the same for every
theta = (log sd, log range).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb, perm
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.polynomial.legendre import leggauss

_SHORT = 2.0  # tau up to which the noise is an integral
_STATIONARY = {
    1: np.eye(1),
    2: np.eye(2),
    3: np.array([[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]]),
}
_NOISE = {1: 2.0, 2: 4.0, 3: 16.0 / 3.0}  # the spectral density of the noise


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
        """A (m, p, p): e^-tau times a polynomial, since F + I is nilpotent."""
        E, out, term = self.companion + np.eye(self.p), np.zeros((tau.size, self.p, self.p)), np.eye(self.p)
        for k in range(self.p):
            out += (tau**k)[:, None, None] * term
            term = term @ E / (k + 1)
        return np.asarray(np.exp(-tau)[:, None, None] * out)

    def noise(self, tau: np.ndarray) -> np.ndarray:
        """S (m, p, p)."""
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

    def precision(self, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """S^-1 and its derivative in log tau (m, p, p) each."""
        grade = np.minimum(tau, 1.0)[:, None] ** (self.p - 0.5 - np.arange(self.p))  # sqrt of the size of S_ii
        outer = grade[:, :, None] * grade[:, None, :]
        N = np.linalg.inv(self.noise(tau) / outer) / outer
        g = self.transition(tau)[..., -1]
        slope = _NOISE[self.p] * tau[:, None, None] * g[:, :, None] * g[:, None, :]
        return N, -N @ slope @ N


@dataclass(frozen=True)
class Stationary:
    """The precision of a Matern process at increasing times; theta = (log sd, log range).

    Attributes
    ----------
    times : array (n,)
    p : int
        nu + 1/2: 1, 2 or 3 latents a time.
    step : float
        The unit of time in which derivatives are latents.
    """

    times: np.ndarray
    p: int
    step: float

    @property
    def chain(self) -> Chain:
        return Chain(self.p)

    def rate(self, theta: np.ndarray) -> float:
        """lam."""
        return float(np.sqrt(8.0 * (self.p - 0.5)) / np.exp(theta[1]))

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        p, lam, n = self.p, self.rate(theta), self.times.size
        tau, k, order = lam * np.diff(self.times), np.exp(-2.0 * theta[0]), np.arange(p)
        u = lam * self.step
        up, down = u ** (order[:, None] - order), u ** -(order[:, None] + order).astype(float)
        A = self.chain.transition(tau)
        N, dN = self.chain.precision(tau)
        N, dN = down * N, down * ((order[:, None] + order) * N - dN)  # in log range: d log tau = d log u = -1
        slope = -up * (tau[:, None, None] * (self.chain.companion @ A) + (order[:, None] - order) * A)
        eye = np.tile(np.eye(p), (tau.size, 1, 1))
        B, dB = np.concatenate([-up * A, eye], axis=2), np.concatenate([-slope, 0.0 * eye], axis=2)
        Bt, half = np.swapaxes(B, 1, 2), np.swapaxes(dB, 1, 2) @ N @ B
        first = down * np.linalg.inv(self.chain.stationary)
        Q = self._blocks(first, Bt @ N @ B, n)
        rest = self._blocks((order[:, None] + order) * first, half + np.swapaxes(half, 1, 2) + Bt @ dN @ B, n)
        return k * Q, [-2.0 * k * Q, k * rest]

    def _blocks(self, first: np.ndarray, each: np.ndarray, n: int) -> sp.csc_array:
        """The sum of a block for the first time and one for each pair of neighbours, zeros kept."""
        p = self.p
        at = p * np.arange(n - 1)[:, None] + np.arange(2 * p)
        i, j = (np.broadcast_to(a, each.shape).ravel() for a in (at[:, :, None], at[:, None, :]))
        a, b = (x.ravel() for x in np.meshgrid(np.arange(p), np.arange(p), indexing="ij"))
        values = np.concatenate([first.ravel(), ((each + np.swapaxes(each, 1, 2)) / 2).ravel()])
        return sp.csc_array((values, (np.r_[a, i], np.r_[b, j])), shape=(n * p, n * p))

    def weights(self, theta: np.ndarray, t: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Of the latents for values at other times t, (N, n p), and the variance at sd 1 that they leave."""
        p, lam, times = self.p, self.rate(theta), self.times
        u = (lam * self.step) ** np.arange(p)
        j = np.clip(np.searchsorted(times, t, side="right") - 1, 0, times.size - 2)
        W, left = np.zeros((t.size, 2 * p)), np.zeros(t.size)
        inside = (t > times[j]) & (t < times[j + 1])
        a, b = lam * (t[inside] - times[j[inside]]), lam * (times[j[inside] + 1] - t[inside])
        A, B, Na, Nb = self.chain.transition(a), self.chain.transition(b), *(self.chain.precision(x)[0] for x in (a, b))
        back = np.swapaxes(B, 1, 2) @ Nb
        S = np.linalg.inv(Na + back @ B)
        W[inside] = np.concatenate([S @ Na @ A, S @ back], axis=2)[:, 0] / np.r_[u, u]
        left[inside] = S[:, 0, 0]
        after, before = t >= times[-1], t <= times[0]
        for beyond, end, flip, gap in ((after, p, 1.0, t - times[-1]), (before, 0, -1.0, times[0] - t)):
            A = self.chain.transition(lam * gap[beyond])
            W[beyond, end : end + p] = A[:, 0] * flip ** np.arange(p) / u
            left[beyond] = self.chain.noise(lam * gap[beyond])[:, 0, 0]
        at = np.flatnonzero(t == times[j])
        W[at] = np.eye(2 * p)[0]
        row = np.repeat(np.arange(t.size), 2 * p)
        place = (p * j[:, None] + np.arange(2 * p)).ravel()
        out = sp.csr_array((W.ravel(), (row, place)), shape=(t.size, times.size * p))
        out.eliminate_zeros()
        return out, left


def hermite(knots: np.ndarray, t: np.ndarray, p: int, step: float) -> sp.csr_array:
    """Weights (N, n p) of values and derivatives at knots for the polynomial through both neighbours, at times t."""
    j = np.clip(np.searchsorted(knots, t, side="right") - 1, 0, knots.size - 2)
    h, k = knots[j + 1] - knots[j], np.arange(2 * p)
    ends = np.zeros((2 * p, 2 * p))  # derivatives of 1, x, x^2, ... at 0 and at 1
    for d in range(p):
        falling = np.array([float(perm(int(m), d)) for m in k])
        ends[d], ends[p + d] = falling * (k == d), falling
    W = ((t - knots[j]) / h)[:, None] ** k @ np.linalg.inv(ends)
    W = W * np.tile((h[:, None] / step) ** np.arange(p), (1, 2))
    at = np.repeat(np.arange(t.size), 2 * p), (p * j[:, None] + k).ravel()
    out = sp.csr_array((W.ravel(), at), shape=(t.size, knots.size * p))
    out.data[np.abs(out.data) < 1e-14] = 0.0
    out.eliminate_zeros()
    return out
