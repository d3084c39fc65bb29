"""The bounds of all cells of a table at once: tau(s), k(tau), lam(tau) and the gaps of ``likelihoods/``.

A potential is one coordinate s of the dual: a column has one for each of its predictors, an ordinal
column two. Arrays are (Q, R): a row for each potential, a column for each row of the table.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ..linalg.tolerances import REACH

LOGISTIC, TILTED, COUNT, REAL, SOFTMAX, ORDERED, ORDERED_TILTED = range(7)  # kinds of columns


def _rise(x: np.ndarray) -> np.ndarray:
    """e^x - 1 - x without cancellation near 0."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    return np.where(np.abs(x) < 0.03, series, np.expm1(x) - x)


def _log_mean_exp(p: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log sum p e^x of x (.., K, R) with sum p x = 0."""
    top = x.max(axis=-2)
    near = np.log1p(np.sum(p * _rise(np.minimum(x, 1.0)), axis=-2))
    if not (top >= 1.0).any():
        return near
    total = np.sum(p * np.exp(x - top[..., None, :]), axis=-2)
    return np.where(top < 1.0, near, top + np.log(np.maximum(total, 5e-324)))


def _coin(tau: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """log(tau e^((1 - tau) delta) + (1 - tau) e^(-tau delta)), the gap of a logistic bound whose s is delta off."""
    v, lead = tau * (1.0 - tau), 1.0 - 2.0 * tau
    fourth, fifth = 1.0 - 6.0 * v, lead * (1.0 - 12.0 * v)
    series = lead / 3 + delta * (fourth / 12 + delta * (fifth / 60 + delta * (1.0 - 30.0 * v * fourth) / 360))
    near = v * delta * delta * (0.5 + 0.5 * delta * series)
    far = np.abs(delta) >= 0.01
    if far.any():
        tau, delta = tau[far], delta[far]
        near[far] = _log_mean_exp(np.stack([tau, 1.0 - tau]), np.stack([(1.0 - tau) * delta, -tau * delta]))
    return near


def _tilted(h: np.ndarray, rho: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The root s of s = h - rho/2 tanh(s/2), by Newton's method from ``near``."""
    size, half = np.abs(h), rho / 2
    least = np.maximum(size / (1.0 + half / 2), size - half)
    s = np.maximum(np.where(h < 0.0, -near, near), least)
    for _ in range(60):
        e = np.exp(-s)
        t = (1.0 - e) / (1.0 + e)
        step = (size - s - half * t) / (1.0 + half / 2 * (1.0 - t * t))
        s = np.maximum(s + step, least)
        if not (np.abs(step) > 1e-8 * (1.0 + s)).any():
            break
    return np.where(h < 0.0, -s, s)


@dataclass
class CellSites:
    """All potentials at one s, each (Q, R); 0 where a cell is missing or an ordered level has an open end."""

    value: np.ndarray  # (R,)  sum of k - mt alpha - const
    tau: np.ndarray  # not 0 there
    alpha: np.ndarray
    lam: np.ndarray
    slope: np.ndarray  # dlam/dtau
    spread: np.ndarray
    slack: np.ndarray  # (S, R)  probability of the reference level of each softmax column


class TableCells:
    """The cells of a table.

    values : (R, D), NaN where a cell is missing
    kind, levels : (D,); first : (D + 1,) where each column's potentials begin
    mt : (Q,) a priori means; variance : (D,) of gaussian columns; cuts : (D, K - 1) cutpoints of ordered ones

    Attributes:
    soft, count, real : the potentials of each kind
    softmax : for each K the potentials (n, K - 1) of the n columns with K levels, and their rows in ``CellSites.slack``
    ordered : column, first potential and levels of each ordered column
    seen : whether a cell has data
    live : whether there is a potential: a cell without data has none, an open end of a level neither
    """

    def __init__(
        self,
        values: np.ndarray,
        kind: np.ndarray,
        first: np.ndarray,
        levels: np.ndarray,
        mt: np.ndarray,
        variance: np.ndarray,
        cuts: np.ndarray,
    ) -> None:
        column, widths = np.repeat(np.arange(kind.size), np.diff(first)), np.diff(first)
        what, y = kind[column], values.T[column]
        self.mt = mt[:, None]
        self.live = self.seen = ~np.isnan(y)
        self.y = y = np.where(self.live, y, 0.0)
        self.soft = np.flatnonzero((what <= TILTED) | (what >= ORDERED))
        self.count, self.real = np.flatnonzero(what == COUNT), np.flatnonzero(what == REAL)
        self.v = variance[column[self.real]][:, None]
        self.tilted = ((what == TILTED) | (what == ORDERED_TILTED))[:, None]
        second = (what >= ORDERED) & (np.arange(what.size) > first[column])
        self.sign = np.where(second, -1.0, 1.0)[:, None]
        self.reach = np.where(what == REAL, np.inf, REACH)[:, None]
        self.bends = np.where(what == REAL, 0.0, 1.0)[:, None]  # lam' but for tilted bounds
        # alpha = sign tau - target
        self.target = np.where(what[:, None] < ORDERED, y, 0.0)
        self.target[self.real] /= self.v
        self.softmax, self.n_softmax = [], 0
        for width in np.unique(widths[kind == SOFTMAX]):
            at = first[:-1][(kind == SOFTMAX) & (widths == width)][:, None] + np.arange(width)
            self.target[at] = y[at] == np.arange(width)[:, None]
            self.softmax.append((at, slice(self.n_softmax, self.n_softmax + len(at))))
            self.n_softmax += len(at)
        # ordered levels: log(1 + e^(s - shift)), and the distance of the ends of a level
        self.ordered = [(j, first[j], levels[j]) for j in np.flatnonzero(kind >= ORDERED)]
        self.shift, self.between = np.zeros_like(y), np.full((len(self.ordered), y.shape[1]), np.inf)
        for i, (j, q, K) in enumerate(self.ordered):
            ends = np.concatenate([[-np.inf], cuts[j, : K - 1], [np.inf]])
            level = y[q].astype(int)
            self.shift[q], self.shift[q + 1] = ends[level + 1], -ends[level]
            self.between[i] = np.where(self.live[q], ends[level + 1] - ends[level], np.inf)
        closed = np.isfinite(self.shift)
        self.live = self.seen & closed
        self.shift = np.where(closed, self.shift, 0.0)
        constant = [
            np.where(self.live[self.count], gammaln(y[self.count] + 1.0), 0.0),
            np.where(self.live[self.real], 0.5 * np.log(2.0 * np.pi * self.v), 0.0),
            -np.log(-np.expm1(-self.between)),
        ]
        self.constant = np.concatenate(constant).sum(axis=0)

    def take(self, rows: np.ndarray) -> TableCells:
        """The cells of some rows of the table."""
        out = copy.copy(self)
        for name in ("y", "live", "seen", "target", "shift", "between", "constant"):
            setattr(out, name, getattr(self, name)[..., rows])
        return out

    def sites(self, s: np.ndarray) -> CellSites:
        """Every potential at s (Q, R)."""
        soft, count, real, live = self.soft, self.count, self.real, self.live
        slack = np.empty((self.n_softmax, s.shape[1]))
        tau, spread, k = np.empty_like(s), np.empty_like(s), np.empty_like(s)
        if soft.size:
            shift = self.shift[soft]
            x = s[soft] - shift
            size = np.abs(x)
            e = np.exp(-size)
            large = 1.0 / (1.0 + e)
            small = e * large
            tau[soft] = t = np.where(x >= 0.0, large, small)
            spread[soft], k[soft] = small * large, t * shift - np.log1p(e) - small * size
        if count.size:
            tau[count] = spread[count] = t = np.exp(s[count])
            k[count] = t * (s[count] - 1.0)
        for at, own in self.softmax:
            top = np.maximum(s[at].max(axis=1, keepdims=True), 0.0)
            e, rest = np.exp(s[at] - top), np.exp(-top)
            total = e.sum(axis=1, keepdims=True) + rest
            level, rest = top + np.log(total), rest / total
            tau[at] = spread[at] = t = e / total
            k[at] = t * (s[at] - level)
            k[at[:, 0]] -= (rest * level)[:, 0]
            slack[own] = rest[:, 0]
        tau[real], spread[real] = s[real] / self.v, 1.0 / self.v
        lam = np.where(self.tilted | (self.bends == 0.0), spread, tau) * live
        slope = np.where(self.tilted, 1.0 - 2.0 * tau, self.bends) * live
        alpha = (self.sign * tau - self.target) * live
        value = k - self.mt * alpha
        a, b = s[real] - self.mt[real], self.y[real] - self.mt[real]
        value[real] = 0.5 * (a * a - b * b) / self.v
        value = np.sum(value * live, axis=0) - self.constant
        return CellSites(value, tau, alpha, lam, slope, spread * live, slack)

    def gap(self, s: np.ndarray, site: CellSites, h: np.ndarray, rho: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The gap of every row (R,), whose predictors have mean h and variance rho, g being the slope in tau."""
        soft, count, real, tau = self.soft, self.count, self.real, site.tau
        out = 0.5 * np.sum(g[real] ** 2 / self.v, axis=0)
        if count.size:
            out += np.sum(tau[count] * _rise(-g[count]), axis=0)
        if soft.size:
            out += np.sum(self._soft_gap(s[soft], tau[soft], site.spread[soft], h[soft], rho[soft], g[soft]), axis=0)
        for at, own in self.softmax:
            rest = site.slack[own]
            p = np.concatenate([tau[at], rest[:, None]], axis=1)
            x = np.concatenate([-g[at], 0.0 * rest[:, None]], axis=1)
            out += np.sum(_log_mean_exp(p, x - np.sum(p * x, axis=1, keepdims=True)), axis=0)
        return out

    def _soft_gap(
        self, s: np.ndarray, tau: np.ndarray, spread: np.ndarray, h: np.ndarray, rho: np.ndarray, g: np.ndarray
    ) -> np.ndarray:
        """Of logistic potentials, each a row of these arrays."""
        tilted = self.tilted[self.soft]
        if not tilted.any():
            return _coin(tau, -g)
        shift = self.shift[self.soft]
        x, centre = s - shift, self.sign[self.soft] * h - shift
        step = (centre - x - 0.5 * rho * (2.0 * tau - 1.0)) / (1.0 + rho * spread)
        move = spread * step * (1.0 + 0.5 * (1.0 - 2.0 * tau) * step)
        # Newton's first step to the maximum leaves its square, the gap the square of that
        far = (np.abs(step) >= 1e-4) & tilted & self.live[self.soft]
        if far.any():
            step[far] = _tilted(centre[far], rho[far], x[far]) - x[far]
            move[far] = 1.0 / (1.0 + np.exp(-x[far] - step[far])) - tau[far]
        step = np.where(tilted, step, -g)
        return np.where(self.live[self.soft], _coin(tau, step) + 0.5 * rho * np.where(tilted, move, 0.0) ** 2, 0.0)

    def bounded(self, site: CellSites, ds: np.ndarray) -> np.ndarray:
        """ds with every move held to its reach; in a softmax, relative to the mean of all classes."""
        out = np.clip(ds, -self.reach, self.reach)
        for q, _ in self.softmax:
            mean = np.sum(site.spread[q] * ds[q], axis=1, keepdims=True)
            out[q] = np.clip(ds[q] - mean, -REACH, REACH) - np.clip(-mean, -REACH, REACH)
        return out

    def start(self, c: float) -> np.ndarray:
        """s between alpha = 0 (c = 0, but for what has no such s) and the prior's mean (c = 1)."""
        s, mt, y = np.zeros_like(self.y), self.mt, self.y
        soft, count, real = self.soft, self.count, self.real
        s[real] = y[real] + c * (mt[real] - y[real])
        s[count] = (1.0 - c) * np.log(y[count] + 0.5) + c * mt[count]
        x = self.sign[soft] * mt[soft] - self.shift[soft]
        tau = self.target[soft] + c * (1.0 / (1.0 + np.exp(-x)) - self.target[soft])
        for i, (_, q, _) in enumerate(self.ordered):
            at = np.searchsorted(soft, q) + np.arange(2)
            tau[at] = np.where(self.between[i] < np.inf, 0.25, tau[at])
        tau = np.clip(tau, 1e-12, 1.0 - 1e-12)
        s[soft] = np.log(tau / (1.0 - tau)) + self.shift[soft]
        for q, _ in self.softmax:
            top = np.maximum(mt[q].max(axis=1, keepdims=True), 0.0)
            e, rest = np.exp(mt[q] - top), np.exp(-top)
            total, hot = e.sum(axis=1, keepdims=True) + rest, self.target[q]
            last = c * rest / total + (1.0 - c) * (1.0 - hot.sum(axis=1, keepdims=True))
            p = c * e / total + (1.0 - c) * hot
            s[q] = np.log(np.maximum(p, 1e-30)) - np.log(np.maximum(last, 1e-30))
        return np.where(self.live, s, 0.0)
