"""One-dimensional integrals of the sites under q, with their errors.

    L(p) = log E exp(p gt(x)),  x ~ N(0, 1),     L' = mean and L'' = variance of gt under phi exp(p gt) / exp(L)

gt is what the Gaussian site of q leaves of a log-likelihood; where that is flat gt grows like c x^2/2, c < 1, and L is
finite for p c < 1. Each site has a grid of its own: an interval outside of which the integrand is 45 nats below its
largest value, with even steps. Such sums converge faster than any power of the step for smooth functions; the step is
halved until the sum no longer moves, and by how much it moved last is the error that is stated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..corrections.sites import Observed
from ..priors.row_covariances import Lines

DEAD = 45.0  # nats below the largest value at which a tail no longer counts
_SCAN = 24  # intervals of a scan for the support
_SCANS = 60
_STEPS = 32  # intervals of the grid that the exponents are chosen with
_FINE = 1024  # the same where the integrand may have several modes
_PLACED = 1024  # intervals, at most, of the grid that the exponents are chosen with
_NEARLY = 1e-7  # of L between such a grid and every other point of it
_MOST = 1 << 15  # intervals of the finest grid
_SETTLED = 1e-12  # of L between a grid and every other point of it
_AT_ONCE = 1 << 21  # numbers held at a time
_ROUNDING = 8.0 * 2.0**-53  # of the terms that cancel in gt
_TAIL = 1e-18  # of an integral beyond its grid
LOG_ROOT_2_PI = 0.5 * float(np.log(2.0 * np.pi))


class SiteRemainders(Protocol):
    """What q leaves of the likelihoods: functions gt of one standard normal variable each.

    Attributes
    ----------
    n : int
        How many sites there are.
    growth : array (n,)
        c: gt grows like c x^2/2 where its likelihood is flat. It is lam rho.
    several_modes : bool
        Whether phi exp(p gt) may have several modes: a likelihood that is not log-concave.
    """

    @property
    def n(self) -> int: ...
    @property
    def growth(self) -> np.ndarray: ...
    @property
    def several_modes(self) -> bool: ...

    def remainder(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        """gt (m, M) of the sites ``which`` (m,), each at its own places x (m, M)."""


@dataclass(frozen=True)
class ObservedRemainders:
    """The observations of a fit, those along one line of the latents added up."""

    observed: Observed
    groups: Lines

    @property
    def n(self) -> int:
        return self.groups.n

    @property
    def growth(self) -> np.ndarray:
        each = self.observed.lam * self.observed.rho
        return np.bincount(self.groups.of, each, minlength=self.n)

    @property
    def several_modes(self) -> bool:
        return not self.observed.likelihood.log_concave

    def remainder(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        rows, start = self.groups.rows_of(which)
        some = self.observed.take(rows)
        size = np.diff(np.append(start, rows.size))
        own = some.left(np.repeat(x, size, axis=0), self.groups.sign[rows], np.zeros(rows.size))
        return own if rows.size == which.size else np.add.reduceat(own, start, axis=0)


@dataclass(frozen=True)
class Moments:
    """L, and the mean and the variance of gt under the tilted density (n,)."""

    log_mean: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class TiltedMoments:
    """The integrals of all sites, on grids that are placed for given exponents and kept while these move little."""

    def __init__(self, sites: SiteRemainders) -> None:
        self.sites, self.n = sites, sites.n
        self.growth = sites.growth
        self._steps = _FINE if sites.several_modes else _STEPS
        with np.errstate(invalid="ignore"):
            reach = np.sqrt(2.0 * DEAD / np.clip(1.0 - np.maximum(self.growth, 0.0), 0.01, 1.0))
        self._interval = -reach, reach  # of the last support

    def place(self, p: np.ndarray) -> None:
        """Grids on which ``at`` is accurate for exponents near p (n,)."""
        low, high = self._supports(p)
        while True:
            share = np.linspace(0.0, 1.0, self._steps + 1)
            self.x = low[:, None] + (high - low)[:, None] * share
            self.gt = self._remainders(np.arange(self.n), self.x)
            fine, coarse, _ = _sums(self.x, self.gt, p)
            if self._steps >= _PLACED or float(np.max(np.abs(fine - coarse), initial=0.0)) <= _NEARLY:
                return
            self._steps *= 2

    def at(self, p: np.ndarray) -> Moments:
        """The moments at exponents p (n,) on the grids at hand."""
        return _moments(self.x, self.gt, p)

    def shape(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of x itself under the tilted densities (n,), on the grids at hand."""
        f, total, _ = _weights(self.x, self.gt, p)
        centre = np.einsum("ij,ij->i", f, self.x) / total
        spread = np.einsum("ij,ij->i", f, (self.x - centre[:, None]) ** 2) / total
        return centre, spread

    def certified(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """L (n,) at exponents p (n,) on grids of its own, and how far it may be off (n,)."""
        value, error = np.empty(self.n), np.zeros(self.n)
        low, high = self._supports(p)
        open_, steps = np.arange(self.n), self._steps
        while open_.size:
            share = np.linspace(0.0, 1.0, steps + 1)
            unsettled = []
            for some in _blocks(open_, steps):
                x = low[some, None] + (high - low)[some, None] * share
                gt = self.sites.remainder(some, x)
                fine, coarse, size = _sums(x, gt, p[some])
                moved = np.abs(fine - coarse)
                value[some] = fine
                error[some] = moved + _ROUNDING * size + _TAIL
                unsettled.append(some[~(moved <= _SETTLED + _ROUNDING * size)])
            open_, steps = np.concatenate(unsettled), 2 * steps
            if steps > _MOST:
                break
        return value, error

    def _remainders(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        out = np.empty(x.shape)
        for some in _blocks(np.arange(which.size), x.shape[1]):
            out[some] = self.sites.remainder(which[some], x[some])
        return out

    def _supports(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Intervals (n,) outside of which phi exp(p gt) is negligible; the search starts at the last ones."""
        scan = self._steps if self.sites.several_modes else _SCAN
        self._interval = supports(self._remainders, p, *self._interval, scan)
        return self._interval


def supports(
    remainder: Callable[[np.ndarray, np.ndarray], np.ndarray],
    p: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    steps: int = _SCAN,
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals (m,) outside of which phi exp(p gt) is 45 nats below its largest value, and little wider.

    An interval is scanned at even steps; it grows on a side where the end is not dead, and shrinks to the points that
    are not. Of a log-concave integrand nothing is missed, however narrow it is.
    """
    low, high = low.copy(), high.copy()
    open_ = np.arange(p.size)
    share = np.linspace(0.0, 1.0, steps + 1)
    for _ in range(_SCANS):
        x = low[open_, None] + (high - low)[open_, None] * share
        log_f = _log_integrand(x, remainder(open_, x), p[open_])
        top = log_f.max(axis=1)
        alive = log_f > top[:, None] - DEAD
        first, last = alive.argmax(axis=1), steps - alive[:, ::-1].argmax(axis=1)
        width = high[open_] - low[open_]
        rows = np.arange(open_.size)
        left = np.where(first == 0, low[open_] - width, x[rows, np.maximum(first - 1, 0)])
        right = np.where(last == steps, high[open_] + width, x[rows, np.minimum(last + 1, steps)])
        grows = (first == 0) | (last == steps)
        settled = ~grows & (right - left >= 0.5 * width)
        low[open_], high[open_] = left, right
        open_ = open_[~settled]
        if open_.size == 0:
            break
    return low, high


def _log_integrand(x: np.ndarray, gt: np.ndarray, p: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        out = p[:, None] * gt
        out -= 0.5 * x * x
    out[np.isnan(out)] = -np.inf
    return out


def _sums(x: np.ndarray, gt: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """L by the whole grid and by every other point of it, and the size of the terms in it (m,)."""
    log_f = _log_integrand(x, gt, p)
    best = log_f.argmax(axis=1)
    rows = np.arange(x.shape[0])
    top = log_f[rows, best]
    f = np.exp(log_f - np.where(np.isfinite(top), top, 0.0)[:, None])
    step = x[:, 1] - x[:, 0]
    with np.errstate(divide="ignore"):
        fine = top + np.log(f.sum(axis=1) * step) - LOG_ROOT_2_PI
        coarse = top + np.log(2.0 * f[:, ::2].sum(axis=1) * step) - LOG_ROOT_2_PI
    at = x[rows, best]
    size = np.abs(p * gt[rows, best]) + 0.5 * at * at
    return fine, coarse, np.where(np.isfinite(size), size, np.inf)


def _moments(x: np.ndarray, gt: np.ndarray, p: np.ndarray) -> Moments:
    f, total, log_mean = _weights(x, gt, p)
    origin = gt[np.arange(x.shape[0]), f.argmax(axis=1)]
    with np.errstate(invalid="ignore"):
        from_origin = np.where(f > 0.0, gt - origin[:, None], 0.0)
    mean = np.einsum("ij,ij->i", f, from_origin) / total
    square = np.einsum("ij,ij,ij->i", f, from_origin, from_origin) / total
    return Moments(log_mean, origin + mean, np.maximum(square - mean * mean, 0.0))


def _weights(x: np.ndarray, gt: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tilted density on the grid (n, M), up to its sum (n,), and L (n,)."""
    f = _log_integrand(x, gt, p)
    top = f.max(axis=1)
    f -= top[:, None]
    np.exp(f, out=f)
    total = f.sum(axis=1)
    return f, total, top + np.log(total * (x[:, 1] - x[:, 0])) - LOG_ROOT_2_PI


def _blocks(which: np.ndarray, steps: int) -> list[np.ndarray]:
    size = max(1, _AT_ONCE // (steps + 1))
    return [which[i : i + size] for i in range(0, which.size, size)]
