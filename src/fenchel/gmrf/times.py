"""Precisions of series at irregular times, and of autoregressions of any order.

walk          z(t + h) - z(t) ~ N(0, h)                                             the Wiener process
smooth_walk   (z, z') with z' a walk: an integrated Wiener process, whose posterior mean is a cubic spline
Decaying      Cov = exp(-2 |t - s| / range): an Ornstein-Uhlenbeck process; theta = (log sd, log range)
Autoregression  z_t = sum_j phi_j z_{t-j} + noise, by its partial autocorrelations tanh(theta_j / 2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


def walk(times: np.ndarray) -> sp.csc_array:
    """The structure (n, n) of a walk at increasing times."""
    n, rate = times.size, 1.0 / np.diff(times)
    D = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(n - 1, n))
    return sp.csc_array(D.T @ sp.diags_array(rate) @ D)


def _rates(h: np.ndarray) -> np.ndarray:
    """The inverse (m, 2, 2) of [[h^3/3, h^2/2], [h^2/2, h]]."""
    return np.moveaxis(np.array([[12 / h**3, -6 / h**2], [-6 / h**2, 4 / h]]), -1, 0)


def _steps(h: np.ndarray) -> np.ndarray:
    """(m, 2, 2): where value and slope are led without noise."""
    out = np.tile(np.eye(2), (h.size, 1, 1))
    out[:, 0, 1] = h
    return out


def smooth_walk(times: np.ndarray) -> sp.csc_array:
    """The structure (2n, 2n) of value and slope, in turn, at increasing times."""
    h = np.diff(times)
    P, A = _rates(h), _steps(h)
    blocks = np.concatenate([-A, np.tile(np.eye(2), (h.size, 1, 1))], axis=2)  # the noise of a step: (2, 4)
    each = np.swapaxes(blocks, 1, 2) @ P @ blocks
    at = 2 * np.arange(h.size)[:, None] + np.arange(4)
    i, j = np.broadcast_to(at[:, :, None], each.shape), np.broadcast_to(at[:, None, :], each.shape)
    n = 2 * times.size
    return sp.csc_array((each.ravel(), (i.ravel(), j.ravel())), shape=(n, n))


def between(times: np.ndarray, t: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Weights (N, n) of a walk's values for those at other times t, and the variance that they leave."""
    j = np.clip(np.searchsorted(times, t, side="right") - 1, 0, times.size - 2)
    h = times[j + 1] - times[j]
    right = np.clip((t - times[j]) / h, 0.0, 1.0)
    row = np.arange(t.size)
    at = np.r_[row, row], np.r_[j, j + 1]
    W = sp.csr_array((np.r_[1.0 - right, right], at), shape=(t.size, times.size))
    beyond = np.maximum(np.maximum(times[0] - t, t - times[-1]), 0.0)
    W.eliminate_zeros()
    return W, h * right * (1.0 - right) + beyond


def smoothly_between(times: np.ndarray, t: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """The same of a smooth walk, weights (N, 2n) of values and slopes."""
    j = np.clip(np.searchsorted(times, t, side="right") - 1, 0, times.size - 2)
    W, left = np.zeros((t.size, 4)), np.zeros(t.size)
    known, at = np.isin(t, times), np.searchsorted(times, t)
    inside = (t > times[0]) & (t < times[-1]) & ~known
    a, b = t[inside] - times[j[inside]], times[j[inside] + 1] - t[inside]
    Pa, Pb, A, B = _rates(a), _rates(b), _steps(a), _steps(b)
    S = np.linalg.inv(Pa + np.swapaxes(B, 1, 2) @ Pb @ B)
    W[inside] = np.concatenate([S @ Pa @ A, S @ np.swapaxes(B, 1, 2) @ Pb], axis=2)[:, 0]
    left[inside] = S[:, 0, 0]
    for beyond, end, distance in ((t < times[0], 0, t - times[0]), (t > times[-1], 2, t - times[-1])):
        W[beyond, end], W[beyond, end + 1] = 1.0, distance[beyond]
        left[beyond] = np.abs(distance[beyond]) ** 3 / 3
    W[known, 2 * (at[known] - j[known])] = 1.0
    row = np.repeat(np.arange(t.size), 4)
    out = sp.csr_array((W.ravel(), (row, (2 * j[:, None] + np.arange(4)).ravel())), shape=(t.size, 2 * times.size))
    out.eliminate_zeros()
    return out, left


def tridiagonal(diagonal: np.ndarray, off: np.ndarray) -> sp.csc_array:
    """Symmetric, zeros kept."""
    n, row = diagonal.size, np.arange(diagonal.size)
    at = np.r_[row, row[:-1], row[1:]], np.r_[row, row[1:], row[:-1]]
    return sp.csc_array((np.r_[diagonal, off, off], at), shape=(n, n))


@dataclass(frozen=True)
class Decaying:
    """An Ornstein-Uhlenbeck process at increasing times."""

    times: np.ndarray

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        x = 2.0 * np.diff(self.times) / np.exp(theta[1])
        k, r, free = np.exp(-2.0 * theta[0]), np.exp(-x), -np.expm1(-2.0 * x)  # correlation, 1 - its square
        gain = r * r / free
        Q = k * tridiagonal(1.0 + np.r_[gain, 0.0] + np.r_[0.0, gain], -r / free)
        slope = 2.0 * x * r * r / free**2  # of gain in log range: d log r = x
        off = -(x * r / free) * (1.0 + 2.0 * gain)
        return Q, [-2.0 * Q, k * tridiagonal(np.r_[slope, 0.0] + np.r_[0.0, slope], off)]


def decaying_between(times: np.ndarray, t: np.ndarray, theta: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Weights (N, n) of a ``Decaying`` process for times t between its own and beyond, and the variance they leave."""
    n, sd2, reach = times.size, np.exp(2.0 * theta[0]), np.exp(theta[1])
    right = np.searchsorted(times, t, side="left")
    known = (right < n) & (times[np.minimum(right, n - 1)] == t)
    a, b = np.clip(right - 1, 0, n - 1), np.clip(right, 0, n - 1)
    x = np.where(right > 0, 2.0 * (t - times[a]) / reach, np.inf)  # in e-folds of correlation; inf: nobody there
    y = np.where(right < n, 2.0 * (times[b] - t) / reach, np.inf)
    free = -np.expm1(-2.0 * (x + y))
    before = np.where(known, 0.0, np.exp(-x) * -np.expm1(-2.0 * y) / free)
    after = np.where(known, 1.0, np.exp(-y) * -np.expm1(-2.0 * x) / free)
    left = np.where(known, 0.0, sd2 * np.expm1(-2.0 * x) * np.expm1(-2.0 * y) / free)
    row = np.arange(t.size)
    W = sp.csr_array((np.r_[before, after], (np.r_[row, row], np.r_[a, b])), shape=(t.size, n))
    W.eliminate_zeros()
    return W, left


@dataclass(frozen=True)
class Autoregression:
    """Of order p at n equal steps; theta = (log sd, 2 atanh of the partial autocorrelations)."""

    n: int
    p: int

    def coefficients(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of the predictors of order 0, ..., p, and their error variances at sd 1; with derivatives in theta.

        Arrays (p+1, p), (p+1,), (p, p+1, p), (p, p+1), by the recursion of Durbin and Levinson.
        """
        p, r = self.p, np.tanh(np.asarray(theta[1 : 1 + self.p]) / 2)
        phi, v = np.zeros((p + 1, p)), np.ones(p + 1)
        dphi, dv = np.zeros((p, p + 1, p)), np.zeros((p, p + 1))
        for m in range(1, p + 1):
            last, dr = r[m - 1], (1.0 - r[m - 1] ** 2) / 2
            phi[m, : m - 1] = phi[m - 1, : m - 1] - last * phi[m - 1, : m - 1][::-1]
            phi[m, m - 1] = last
            dphi[:, m, : m - 1] = dphi[:, m - 1, : m - 1] - last * dphi[:, m - 1, : m - 1][:, ::-1]
            dphi[m - 1, m, : m - 1] -= dr * phi[m - 1, : m - 1][::-1]
            dphi[m - 1, m, m - 1] = dr
            v[m] = v[m - 1] * (1.0 - last**2)
            dv[:, m] = dv[:, m - 1] * (1.0 - last**2)
            dv[m - 1, m] = -v[m] * last
        return phi, v, dphi, dv

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        phi, v, dphi, dv = self.coefficients(theta)
        k, order = np.exp(-2.0 * theta[0]), np.minimum(np.arange(self.n), self.p)
        lead = lambda one, coefficients: np.concatenate([np.full((self.n, 1), one), -coefficients[order]], axis=1)
        c, w = lead(1.0, phi), 1.0 / v[order]
        Q = k * self._banded(c, c, w)
        slopes = []
        for j in range(self.p):
            dc, dw = lead(0.0, dphi[j]), -dv[j][order] * w**2
            slopes.append(k * (self._banded(c, c, dw) + self._banded(c, dc, w) + self._banded(dc, c, w)))
        return self._matrix(Q), [self._matrix(-2.0 * Q), *(self._matrix(slope) for slope in slopes)]

    def _banded(self, c: np.ndarray, d: np.ndarray, w: np.ndarray) -> np.ndarray:
        """sum_t w_t c_t[t - i] d_t[t - i - b] at (i, i + b), b = 0, ..., p: (p+1, n); c_t[m] weighs z_{t-m}."""
        out = np.zeros((self.p + 1, self.n))
        for b in range(self.p + 1):
            for m in range(b, self.p + 1):  # t = i + m
                t = np.arange(m, self.n)
                out[b, t - m] += w[t] * c[t, m] * d[t, m - b]
        return out

    def _matrix(self, band: np.ndarray) -> sp.csc_array:
        """Symmetric, zeros kept."""
        rows, columns, values = [], [], []
        for b in range(min(self.p + 1, self.n)):
            i = np.arange(self.n - b)
            for one, other in ((i, i + b), (i + b, i))[: 1 + (b > 0)]:
                rows.append(one)
                columns.append(other)
                values.append(band[b, : self.n - b])
        at = np.concatenate(rows), np.concatenate(columns)
        return sp.csc_array((np.concatenate(values), at), shape=(self.n, self.n))
