"""Integrals of the sites under q in one to three dimensions, with their errors.

    L(p) = log E exp(p gt(x)),  x ~ N(0, I),     L' = mean and L'' = variance of gt under phi exp(p gt) / exp(L)

gt is a log-likelihood minus the Gaussian site of q. Where the likelihood is flat gt grows like c x^2/2, c < 1, and L is
finite for p c < 1. Each site has its own even grid, over a box outside of which the integrand is 45 nats below its
maximum. Such sums converge faster than any power of the step for smooth functions. The step is halved until the sum is
constant, and the last change is the stated error. Likelihoods with kinks or several modes are integrated over panels
(``panel_integral.py``). Rounding errors are added: those of the terms of gt, which cancel, and those of the mean and
the variance of q (``mean_error``, ``variance_error``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from ..corrections.sites import Observed
from ..linalg.arrays import to_numpy
from ..priors.row_covariances import Lines
from .hermite_rule import LOG_WEIGHTS, NODES, hermite_sums
from .panel_integral import NEGLIGIBLE, graded_edges, panel_integrals

DEAD = 45.0  # nats below the maximum at which a tail is negligible
_MANY_SITES = 2000  # number of sites from which on Gauss-Hermite rules are tried first
_SCAN = {1: 24, 2: 16, 3: 10}  # intervals of a scan for the support, by dimension
_SCANS = 60  # most scans
_STEPS = {1: 32, 2: 24, 3: 16}  # intervals of the grid for the choice of exponents, by dimension
_FINE = 1024  # the same if the integrand may have several modes
_PLACED = {1: 1024, 2: 64, 3: 16}  # most intervals of such a grid
_NEARLY = 1e-7  # allowed difference of L between such a grid and every other point of it
_MOST = {1: 1 << 15, 2: 1 << 9, 3: 1 << 6}  # intervals of the finest grid
_SETTLED = {1: 1e-12, 2: 1e-8, 3: 1e-6}  # the same difference for a certified integral
_AT_ONCE = 1 << 21  # numbers in memory at a time
_SITES_AT_ONCE = 32  # sites that are integrated over panels at a time
HOPELESS = 1e4  # nats: if a site adds more to the bound, the others are not computed
_ROUNDING = 8.0 * 2.0**-53  # relative rounding error of the terms that cancel in gt
_TAIL = 1e-18  # relative integral beyond a grid
_ALIVE = 1e-15  # if the value at an end of a grid is larger than this share of the maximum, the grid is too narrow
_HIGHER = 5.0  # nats by which a density may exceed its values at the landmarks
_NOWHERE = np.array([0.0, 1.0])  # edges of a site whose reach is infinite
LOG_ROOT_2_PI = 0.5 * float(np.log(2.0 * np.pi))


class SiteRemainders(Protocol):
    """Log-likelihoods minus the sites of q: functions gt of ``dimension`` independent standard normal variables.

    Attributes
    ----------
    n : int
        Number of sites.
    growth : array (n,)
        c = lam rho: gt grows like c x^2/2 where its likelihood is flat.
    several_modes : bool
        Whether phi exp(p gt) may have several modes, because the likelihood is not log-concave.
    kinks : bool
        Whether gt has kinks.
    mean_error, variance_error : array (n,)
        Rounding errors of the mean of q, in sds, and of its variance, relative to it.
    """

    @property
    def dimension(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def growth(self) -> np.ndarray: ...
    @property
    def several_modes(self) -> bool: ...
    @property
    def kinks(self) -> bool: ...
    @property
    def mean_error(self) -> np.ndarray: ...
    @property
    def variance_error(self) -> np.ndarray: ...

    def panels(self, p: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Edges of panels outside of which phi exp(p gt) is negligible, and the rounding error of p gt (n,).

        Only in one dimension, for likelihoods with kinks or several modes.
        """

    def remainder(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        """gt (m, M) of the sites ``which`` (m,), each at its own points x (m, M, dimension)."""


@dataclass(frozen=True)
class ObservedRemainders:
    """The observations of a fit, where those along one line of the latents are added up to one site."""

    observed: Observed
    groups: Lines
    mean_error: np.ndarray
    variance_error: np.ndarray
    dimension: int = 1

    @property
    def n(self) -> int:
        return self.groups.n

    @property
    def growth(self) -> np.ndarray:
        return self._summed(self.observed.lam * self.observed.rho)

    @property
    def several_modes(self) -> bool:
        return not self.observed.likelihood.log_concave

    @property
    def kinks(self) -> bool:
        return not self.observed.likelihood.smooth

    def panels(self, p: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Edges at the landmarks of all rows, within a reach beyond which the integral is negligible:

        log phi + p gt <= p (top + |slope| |x|) - (1 - p c) x^2/2,  top the sum of the largest log densities.
        """
        own = self.observed
        sd, turn = np.sqrt(own.rho), self.groups.sign
        at = np.column_stack([to_numpy(mark) for mark in own.likelihood.landmarks(own.rows)])
        with np.errstate(all="ignore"):
            highest = to_numpy(own.likelihood.log_density(at, own.rows)).max(axis=1) + _HIGHER
            here = to_numpy(own.likelihood.log_density(own.h[:, None], own.rows))[:, 0]
            _, slopes, bends = (np.abs(to_numpy(d)) for d in own.likelihood.derivatives(at, own.rows))
            widths = 1.0 / np.sqrt(bends * own.rho[:, None])
        steepest = np.maximum(np.nan_to_num(slopes), np.sqrt(np.nan_to_num(bends))).max(axis=1)
        rounded = p * self._summed(own.times * steepest * (np.abs(own.h) + np.abs(at).max(axis=1)))
        highest = np.minimum(highest, 0.0) if own.likelihood.discrete else highest
        marks = (turn / sd)[:, None] * (at - own.h[:, None])
        rise, slope = self._summed(own.times * (highest - here)), np.abs(self._summed(turn * own.alpha * sd))
        left = 1.0 - p * np.maximum(self.growth, 0.0) * (1.0 + self.variance_error) - _ROUNDING
        with np.errstate(all="ignore"):
            reach = p * slope + np.sqrt((p * slope) ** 2 + 2.0 * left * (p * rise + NEGLIGIBLE))
            reach = np.where(left > 0.0, reach / left, np.inf)
        out = []
        for site in range(self.n):
            rows = self.groups.rows_of(np.array([site]))[0]
            ends = reach[site]
            out.append(graded_edges(marks[rows].ravel(), widths[rows].ravel(), ends) if np.isfinite(ends) else _NOWHERE)
        return out, _ROUNDING * rounded

    def _summed(self, each: np.ndarray) -> np.ndarray:
        """Sums (n,) over the rows of sites."""
        return np.bincount(self.groups.of, each, minlength=self.n)

    def remainder(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        rows, start = self.groups.rows_of(which)
        some, x = self.observed.take(rows), x[:, :, 0]
        if rows.size > which.size:
            x = np.repeat(x, np.diff(np.append(start, rows.size)), axis=0)
        own = some.left(x, self.groups.sign[rows], np.zeros(rows.size))
        return own if rows.size == which.size else np.add.reduceat(own, start, axis=0)


@dataclass(frozen=True)
class Cumulants:
    """L (n,), and the mean (n,) and variance (n,) of gt under the tilted densities."""

    log_mean: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class TiltedMoments:
    """The integrals of all sites, on grids that are placed for given exponents and serve nearby ones too."""

    def __init__(self, sites: SiteRemainders) -> None:
        self.sites, self.n, self.dimension = sites, sites.n, sites.dimension
        many = sites.several_modes and self.dimension == 1
        self._steps = _FINE if many else _STEPS.get(self.dimension, 0)
        self._scan = _FINE if many else _SCAN.get(self.dimension, 0)
        with np.errstate(invalid="ignore"):
            reach = np.sqrt(2.0 * DEAD / np.clip(1.0 - np.maximum(sites.growth, 0.0), 0.01, 1.0))
        reach = np.repeat(reach[:, None], self.dimension, axis=1)
        self._box = -reach, reach  # of the last support
        plain = self.dimension == 1 and not (sites.several_modes or sites.kinks)
        self._nearly_gaussian = plain and self.n >= _MANY_SITES

    @cached_property
    def _at_nodes(self) -> np.ndarray:
        """gt (n, M) at the nodes of the Gauss-Hermite rules."""
        return self._remainders(np.arange(self.n), np.broadcast_to(NODES[:, None], (self.n, NODES.size, 1)))

    def place(self, p: np.ndarray) -> None:
        """Place grids on which ``at`` is accurate for exponents near p (n,)."""
        if self._nearly_gaussian:
            self.x = np.broadcast_to(NODES[: LOG_WEIGHTS.size, None], (self.n, LOG_WEIGHTS.size, 1))
            self.gt, self.log_cell = self._at_nodes[:, : LOG_WEIGHTS.size], np.zeros(self.n)
            self.log_phi = np.broadcast_to(LOG_WEIGHTS, self.gt.shape)
            return
        low, high = self._supports(p, np.arange(self.n))
        while True:
            self.x = _nodes(low, high, self._steps)
            self.gt = self._remainders(np.arange(self.n), self.x)
            self.log_phi = _log_phi(self.x)
            self.log_cell = np.log((high - low) / self._steps).sum(axis=1)
            fine, coarse, _ = _sums(self.log_phi, self.gt, p, self.log_cell, _even(self._steps, self.dimension))
            if self._steps >= _PLACED[self.dimension] or np.max(np.abs(fine - coarse), initial=0.0) <= _NEARLY:
                return
            self._steps *= 2

    def at(self, p: np.ndarray) -> Cumulants:
        """The moments for exponents p (n,) on the present grids."""
        f, total, log_mean = self._weights(p)
        origin = self.gt[np.arange(self.n), f.argmax(axis=1)]
        with np.errstate(invalid="ignore"):
            from_origin = np.where(f > 0.0, self.gt - origin[:, None], 0.0)
        mean = np.einsum("ij,ij->i", f, from_origin) / total
        square = np.einsum("ij,ij,ij->i", f, from_origin, from_origin) / total
        return Cumulants(log_mean, origin + mean, np.maximum(square - mean * mean, 0.0))

    def shape(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, d) and covariance (n, d, d) of x under the tilted densities, on the present grids."""
        f, total, _ = self._weights(p)
        f /= total[:, None]
        centre = np.einsum("ij,ijk->ik", f, self.x)
        off = self.x - centre[:, None, :]
        return centre, np.einsum("ij,ijk,ijl->ikl", f, off, off, optimize=True)

    def _weights(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The unnormalised tilted density on the grid (n, M), its sum (n,), and L (n,)."""
        f = _log_integrand(self.log_phi, self.gt, p)
        top = f.max(axis=1)
        f -= top[:, None]
        np.exp(f, out=f)
        total = f.sum(axis=1)
        return f, total, top + np.log(total) + self.log_cell

    def certified(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """L (n,) for exponents p (n,), on grids placed for these, and its error (n,)."""
        if self.dimension == 1 and (self.sites.several_modes or self.sites.kinks):
            return self._by_panels(p)
        value, error, moved = np.empty(self.n), np.zeros(self.n), np.zeros(self.n)
        open_, steps = np.arange(self.n), self._steps
        if self._nearly_gaussian:
            known = hermite_sums(self._at_nodes, p)
            value, error = known.value, known.error + self._rounding(open_, known.terms, known.square)
            open_ = np.flatnonzero(~known.accepted)
        low, high = np.zeros((self.n, self.dimension)), np.ones((self.n, self.dimension))
        low[open_], high[open_] = self._supports(p, open_)
        while open_.size:
            unsettled = []
            even = _even(steps, self.dimension)
            for some in _blocks(open_, even.size):
                x = _nodes(low[some], high[some], steps)
                log_cell = np.log((high[some] - low[some]) / steps).sum(axis=1)
                log_phi, gt = _log_phi(x), self.sites.remainder(some, x)
                fine, coarse, size = _sums(log_phi, gt, p[some], log_cell, even)
                change = np.abs(fine - coarse)
                settled = change <= _SETTLED[self.dimension] + _ROUNDING * size
                # a steep side acts like a kink: the error falls by a factor of four at each halving, with any sign
                error[some] = np.where(settled, change, 2.0 * np.maximum(change, moved[some] / 4.0)) + _TAIL
                error[some] += self._rounded(some, p[some], log_phi, gt)
                value[some], moved[some] = fine, change
                unsettled.append(some[~settled])
            open_, steps = np.concatenate(unsettled), 2 * steps
            if steps > _MOST[self.dimension]:
                break
        return value, error

    def _rounded(self, some: np.ndarray, p: np.ndarray, log_phi: np.ndarray, gt: np.ndarray) -> np.ndarray:
        """Rounding error of L of ``some`` sites; infinite if the grid (m, M) is too narrow."""
        f = _log_integrand(log_phi, gt, p)
        f -= f.max(axis=1)[:, None]
        np.exp(f, out=f)
        total = f.sum(axis=1)
        with np.errstate(invalid="ignore"):
            terms = np.einsum("ij,ij->i", f, np.where(f > 0.0, np.abs(gt), 0.0)) * p / total
        square = np.einsum("ij,ij->i", f, -2.0 * (log_phi + self.dimension * LOG_ROOT_2_PI)) / total
        out = self._rounding(some, terms, square)
        if self.dimension == 1:
            out[np.maximum(f[:, 0], f[:, -1]) > _ALIVE] = np.inf
        return out

    def _rounding(self, some: np.ndarray, terms: np.ndarray, square: np.ndarray) -> np.ndarray:
        """Rounding error of L from averages of |p gt| and of |x|^2 (m,)."""
        own = self.sites
        size = 1.0 + terms + square
        return np.asarray((_ROUNDING + own.variance_error[some]) * size + own.mean_error[some] * np.sqrt(square))

    def _by_panels(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same over panels, for kinks and for modes that an even grid might miss."""
        edges, rounded = self.sites.panels(p)

        def at(among: np.ndarray, of: np.ndarray, x: np.ndarray) -> np.ndarray:
            which, out = among[of], np.empty(x.shape)
            for some in _blocks(np.arange(which.size), x.shape[1]):
                places = x[some][:, :, None]
                gt = self.sites.remainder(which[some], places)
                out[some] = _log_integrand(_log_phi(places), gt, p[which[some]])
            return out

        value, error = np.full(self.n, np.inf), np.zeros(self.n)
        if any(each is _NOWHERE for each in edges):
            return value, error
        for some in _blocks(np.arange(self.n), _AT_ONCE // _SITES_AT_ONCE):
            here = self.sites.remainder(some, np.zeros((some.size, 1, 1)))[:, 0]
            log_integral, off, square = panel_integrals(partial(at, some), [edges[k] for k in some])
            if not (log_integral / p[some] - here < HOPELESS).all():  # one such site prevents a bound
                return np.full(self.n, np.inf), np.zeros(self.n)
            off += self._rounding(some, np.abs(log_integral) + square, square)
            value[some], error[some] = log_integral, off + rounded[some] + _TAIL
        return value, error

    def _remainders(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        out = np.empty(x.shape[:2])
        for some in _blocks(np.arange(which.size), x.shape[1]):
            out[some] = self.sites.remainder(which[some], x[some])
        return out

    def _supports(self, p: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Boxes (m, d) outside of which phi exp(p gt) is negligible; the search starts at the last ones."""

        def remainder(some: np.ndarray, x: np.ndarray) -> np.ndarray:
            return self._remainders(which[some], x)

        low, high = self._box
        low[which], high[which] = supports(remainder, p[which], low[which], high[which], self._scan)
        return low[which], high[which]


def supports(
    remainder: Callable[[np.ndarray, np.ndarray], np.ndarray],
    p: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Narrow boxes (m, d) outside of which phi exp(p gt) is 45 nats below its maximum.

    A box is scanned at even steps. It grows on a side whose face is not negligible, and shrinks to the points that are
    not negligible. For a log-concave integrand in one dimension nothing is missed, however narrow it is.
    """
    low, high = low.copy(), high.copy()
    open_, d = np.arange(p.size), low.shape[1]
    for _ in range(_SCANS):
        x = _nodes(low[open_], high[open_], steps)
        log_f = _log_integrand(_log_phi(x), remainder(open_, x), p[open_])
        alive = (log_f > log_f.max(axis=1)[:, None] - DEAD).reshape(-1, *[steps + 1] * d)
        settled = np.ones(open_.size, dtype=bool)
        for k in range(d):
            seen = alive.any(axis=tuple(j + 1 for j in range(d) if j != k))
            first, last = seen.argmax(axis=1), steps - seen[:, ::-1].argmax(axis=1)
            start, width = low[open_, k], high[open_, k] - low[open_, k]
            left = np.where(first == 0, start - width, start + (first - 1) * width / steps)
            right = np.where(last == steps, start + 2.0 * width, start + (last + 1) * width / steps)
            settled &= (first > 0) & (last < steps) & (right - left >= 0.5 * width)
            low[open_, k], high[open_, k] = left, right
        open_ = open_[~settled]
        if open_.size == 0:
            break
    return low, high


def _nodes(low: np.ndarray, high: np.ndarray, steps: int) -> np.ndarray:
    """Even grids (m, (steps + 1)^d, d) on boxes (m, d)."""
    share = np.linspace(0.0, 1.0, steps + 1)
    d = low.shape[1]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[share] * d, indexing="ij")], axis=1)
    return np.asarray(low[:, None, :] + (high - low)[:, None, :] * grid)


def _even(steps: int, d: int) -> np.ndarray:
    """Mask (M,) of every other point, in all directions, of such a grid."""
    every = np.arange(steps + 1) % 2 == 0
    return np.logical_and.reduce([axis.ravel() for axis in np.meshgrid(*[every] * d, indexing="ij")])


def _log_phi(x: np.ndarray) -> np.ndarray:
    return np.asarray(-0.5 * np.einsum("ijk,ijk->ij", x, x) - x.shape[2] * LOG_ROOT_2_PI)


def _log_integrand(log_phi: np.ndarray, gt: np.ndarray, p: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        out = p[:, None] * gt
        out += log_phi
    out[np.isnan(out)] = -np.inf
    return out


def _sums(
    log_phi: np.ndarray, gt: np.ndarray, p: np.ndarray, log_cell: np.ndarray, even: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """L from the whole grid and from every other point of it, and the size of its terms (m,)."""
    log_f = _log_integrand(log_phi, gt, p)
    best = log_f.argmax(axis=1)
    rows = np.arange(gt.shape[0])
    top = log_f[rows, best]
    f = np.exp(log_f - np.where(np.isfinite(top), top, 0.0)[:, None])
    wider = np.log(2.0) * round(np.log(even.size / even.sum()) / np.log(2.0))  # their larger cells
    with np.errstate(divide="ignore"):
        fine = top + np.log(f.sum(axis=1)) + log_cell
        coarse = top + np.log(f[:, even].sum(axis=1)) + log_cell + wider
    size = np.abs(p * gt[rows, best]) + np.abs(log_phi[rows, best])
    return fine, coarse, np.where(np.isfinite(size), size, np.inf)


def _blocks(which: np.ndarray, points: int) -> list[np.ndarray]:
    size = max(1, _AT_ONCE // points)
    return [which[i : i + size] for i in range(0, which.size, size)]
