"""Marginals as densities on a grid: moments, quantiles, probabilities, and leave-one-out predictions.

Unknown t has the density exp(log_density[t]) in x = (unknown - centre[t]) / scale[t], up to a constant, on an even grid
of x. Sums over the grid give the moments. A cubic spline of the log density on a grid five times finer gives quantiles
and probabilities.

    p(eta_n | the others) prop. to p(eta_n | y) / p(y_n | eta_n)
    CPO_n = p(y_n | the others) = E[p(y_n | eta_n)],     PIT_n = P(y <= y_n | the others) = E[P(y <= y_n | eta_n)]

Given eta_n, the other observations do not depend on y_n, so that nothing has to be refitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline

from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..linalg.arrays import Array, asarray, to_numpy
from ..marginals import Levels, MarginalAnswers, Nodes, probabilities
from ..predictive import Predictive, one_predictor
from ..row_scores import LeaveOneOut, Pit, pit_by

_FINER = 5  # factor of the finer grid
_AT_ONCE = 1 << 20  # numbers in memory at a time
_FINE_AT_ONCE = 1 << 17  # numbers of finer grids at a time, so that they stay in cache
_LEAST = -100.0  # lower limit of a log density relative to its maximum
_PASSES = 3  # iterations that give a density the wanted moments
_LOST = 600.0  # nats below its maximum at which a likelihood is too small to divide by
_CUT = 10.0  # nats: a density at the end of the grid that is smaller relative to the maximum is not cut off
_KNOWN = 10.0  # nats below the maximum down to which a marginal is accurate enough to divide by a likelihood
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class MarginalGrid:
    """Log densities (T, M) of T unknowns on the grid x (M,), in units of ``scale`` (T,) about ``centre`` (T,)."""

    centre: np.ndarray
    scale: np.ndarray
    x: np.ndarray
    log_density: np.ndarray

    @cached_property
    def _p(self) -> np.ndarray:
        p = np.exp(self.log_density - self.log_density.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    @cached_property
    def first(self) -> np.ndarray:
        """E[x] (T,)."""
        return np.asarray(self._p @ self.x)

    def central(self, power: int) -> np.ndarray:
        """E[(x - E x)^power] (T,)."""
        return np.asarray(np.sum(self._p * (self.x - self.first[:, None]) ** power, axis=1))

    @cached_property
    def fine(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A finer grid of x (F,), with densities (T, F) and distribution functions (T, F)."""
        x = np.linspace(self.x[0], self.x[-1], _FINER * (self.x.size - 1) + 1)
        top = self.log_density.max(axis=1, keepdims=True)
        log_p = CubicSpline(self.x, np.maximum(self.log_density - top, _LEAST), axis=1)
        p, step = np.exp(np.minimum(log_p(x), 5.0)), x[1] - x[0]
        total = np.zeros_like(p)
        np.cumsum((p[:, 1:] + p[:, :-1]) * (step / 2), axis=1, out=total[:, 1:])
        bend = p * log_p(x, 1) * (step**2 / 12)  # Euler-Maclaurin correction of the trapezoids
        total = np.maximum.accumulate(np.maximum(total - bend + bend[:, :1], 0.0), axis=1)
        return x, p / total[:, -1:], total / total[:, -1:]

    def places(self, levels: np.ndarray) -> np.ndarray:
        """x (T, Q) at which the distribution functions reach the levels (T, Q).

        Unknowns are processed in blocks, so that the finer grids need little memory.
        """
        out, step = np.empty(levels.shape), max(1, _FINE_AT_ONCE // (_FINER * self.x.size))
        for i in range(0, levels.shape[0], step):
            rows = np.arange(i, min(i + step, levels.shape[0]))
            out[rows] = self.take(rows)._places(levels[rows])
        return out

    def _places(self, levels: np.ndarray) -> np.ndarray:
        x, p, total = self.fine
        left = np.stack([np.searchsorted(row, q, side="right") for row, q in zip(total, levels, strict=True)]) - 1
        left = np.clip(left, 0, x.size - 2)
        (a, b), (pa, pb) = (tuple(np.take_along_axis(v, left + i, axis=1) for i in (0, 1)) for v in (total, p))
        share = np.clip((levels - a) / np.where(b > a, b - a, 1.0), 0.0, 1.0)
        k = pb / np.where(pa > 0.0, pa, 1e-300)  # the density is linear between two points
        k = np.clip(k, 1e-3, 1e3)
        inside = share * (1.0 + k) / (1.0 + np.sqrt(1.0 + (k - 1.0) * share * (1.0 + k)))
        return np.asarray(x[left] + (x[1] - x[0]) * inside)

    def below(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P(x <= at) and the density at ``at`` (T,)."""
        x, p, total = self.fine
        rows, step = np.arange(at.size), x[1] - x[0]
        left = np.clip(np.floor((np.clip(at, x[0], x[-1]) - x[0]) / step).astype(int), 0, x.size - 2)
        u = np.clip((at - x[left]) / step, 0.0, 1.0)
        pa, pb = p[rows, left], p[rows, left + 1]
        k = np.clip(pb / np.where(pa > 0.0, pa, 1e-300), 1e-3, 1e3)
        share = (2.0 * u + (k - 1.0) * u * u) / (1.0 + k)
        a, b = total[rows, left], total[rows, left + 1]
        outside = (at < x[0]) | (at > x[-1])
        return a + share * (b - a), np.where(outside, 0.0, pa ** (1.0 - u) * pb**u)

    def take(self, rows: np.ndarray) -> MarginalGrid:
        return MarginalGrid(self.centre[rows], self.scale[rows], self.x, self.log_density[rows])


def with_moments(x: np.ndarray, log_density: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Log densities (T, M) on the even grid x, shifted and stretched so that they have given means and sds (T,)."""
    first, spread = _moments(x, log_density)
    out, to, width = log_density, mean, sd
    for _ in range(_PASSES):  # later passes correct the error of the interpolation
        at = first[:, None] + (x - to[:, None]) * (spread / width)[:, None]
        out = interpolated(log_density, (at - x[0]) / (x[1] - x[0]))
        reached, wide = _moments(x, out)
        to, width = to + mean - reached, width * sd / wide
    return out


def _moments(x: np.ndarray, log_density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    first = p @ x
    return first, np.sqrt(np.maximum(np.sum(p * (x - first[:, None]) ** 2, axis=1), 1e-300))


def interpolated(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Interpolate rows of values (T, M) at positions (T, P), in steps: cubic inside, linear beyond the ends."""
    inside = np.clip(place, 1.0, values.shape[1] - 2.000001)
    left = inside.astype(np.int64)
    s = inside - left
    a, b, c, d = (np.take_along_axis(values, left + i, axis=1) for i in (-1, 0, 1, 2))
    near = 0.5 * (s - 2.0) * ((s - 1.0) * (s + 1.0) * b - s * (s + 1.0) * c)
    cubic = near + s * (s - 1.0) * ((s + 1.0) * d - (s - 2.0) * a) / 6.0
    return np.asarray(cubic + (place - inside) * (c - b))


class GridAnswers(MarginalAnswers):
    """Answers about marginals computed from ``_grid``, as arrays like ``_like``."""

    nodal = True

    @property
    def _grid(self) -> MarginalGrid:
        raise NotImplementedError

    @property
    def _like(self) -> Array:
        raise NotImplementedError

    def predictive(self, likelihood: Likelihood) -> Predictive:
        """y at these rows under ``likelihood``, whose exposures or trials are theirs."""
        one_predictor(likelihood)
        return Predictive(likelihood, self)

    def nodes(self) -> Iterator[Nodes]:
        """Yield the grids of the unknowns with their probabilities, some unknowns at a time."""
        grid = self._grid
        step = max(1, _AT_ONCE // grid.x.size)
        for i in range(0, grid.centre.size, step):
            some = grid.take(np.arange(i, min(i + step, grid.centre.size)))
            yield slice(i, i + step), some.centre[:, None] + some.scale[:, None] * some.x, some._p

    @property
    def mean(self) -> Array:
        """Means."""
        g = self._grid
        return asarray(g.centre + g.scale * g.first, self._like)

    @property
    def variance(self) -> Array:
        """Variances."""
        g = self._grid
        return asarray(g.scale**2 * g.central(2), self._like)

    @property
    def sd(self) -> Array:
        """Standard deviations."""
        g = self._grid
        return asarray(g.scale * np.sqrt(g.central(2)), self._like)

    @property
    def skewness(self) -> Array:
        """Third standardised moments."""
        g = self._grid
        return asarray(np.where(g.scale > 0.0, g.central(3) / g.central(2) ** 1.5, 0.0), self._like)

    def quantile(self, q: Levels) -> Array:
        """Quantiles: the shape of ``mean`` for one level q, with a last axis of length Q for Q levels."""
        levels, g = probabilities("quantile", q), self._grid
        each = g.places(np.broadcast_to(np.atleast_1d(levels), (g.centre.size, levels.size)))
        out = g.centre[:, None] + g.scale[:, None] * each
        return asarray(out[:, 0] if levels.ndim == 0 else out, self._like)

    @property
    def _unknowns_like(self) -> Array:
        return asarray(self._grid.centre, self._like)

    def _cdf(self, x: np.ndarray) -> Array:
        at = self._standardised(x)
        sharp = np.where(at >= 0.0, 1.0, 0.0)  # a step at its mean belongs to the upper side
        return asarray(np.where(self._grid.scale > 0.0, self._grid.below(at)[0], sharp), self._like)

    def _density(self, x: np.ndarray) -> Array:
        g, at = self._grid, self._standardised(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            smooth = g.below(at)[1] / g.scale
        return asarray(np.where(g.scale > 0.0, smooth, np.where(at == 0.0, np.inf, 0.0)), self._like)

    def _standardised(self, x: np.ndarray) -> np.ndarray:
        g = self._grid
        off = x - g.centre
        with np.errstate(divide="ignore", invalid="ignore"):
            sharp = np.where(off == 0.0, 0.0, np.sign(off) * np.inf)
            return np.where(g.scale > 0.0, off / g.scale, sharp)


@dataclass(frozen=True)
class GridMarginals(GridAnswers):
    """Marginals of unknowns other than the observations: latents, new rows."""

    grid: MarginalGrid
    like: Array

    @property
    def _grid(self) -> MarginalGrid:
        return self.grid

    def __repr__(self) -> str:
        return f"GridMarginals of {self.grid.centre.size} unknowns"

    @property
    def _like(self) -> Array:
        return self.like


@dataclass(frozen=True, repr=False)
class CorrectedLeaveOneOut(LeaveOneOut):
    """Leave-one-out predictions from corrected marginals.

    log_density, mean, variance : as in ``LeaveOneOut``
    pit : P(y <= y_n | the others) (N,), NaN if y is unobserved; 1 for a censored duration
    pit_below : P(y < y_n | the others), less than ``pit`` for counts and levels
    trusted : bool (N,); False if the grid is too narrow for the density without y_n, as for an eta that only one
        observation informs. The Gaussian cavity then gives the moments, and pit is NaN
    """

    pit: np.ndarray
    pit_below: np.ndarray
    trusted: np.ndarray

    def pit_stretches(self, likelihood: Likelihood, y: np.ndarray) -> Pit:
        """The interval of PIT of each y; from the Gaussian cavity where these marginals are not trusted."""
        if self.trusted[~np.isnan(y)].all():
            return Pit(self.pit_below, self.pit)
        plain = super().pit_stretches(likelihood, y)
        below = np.where(self.trusted, self.pit_below, plain.below)
        return Pit(below, np.where(self.trusted, self.pit, plain.upto))


def leave_one_out(
    likelihood: Likelihood, rows: Rows, times: np.ndarray, y: np.ndarray, grid: MarginalGrid, plain: LeaveOneOut
) -> CorrectedLeaveOneOut:
    """Leave-one-out predictions from marginals of eta on a grid; y is NaN for rows that do not count.

    ``plain``: the predictions from Gaussian cavities, used where the grid is too narrow.
    """
    out = np.full((6, y.size), np.nan)
    for i in range(0, y.size, _ROWS_AT_ONCE):
        some = np.arange(i, min(y.size, i + _ROWS_AT_ONCE))
        out[:, some] = _left_out(likelihood.take(some), slice_rows(rows, some), times[some], y[some], grid.take(some))
    trusted = out[5] > 0.0
    cavity = [to_numpy(v) for v in (plain.log_density, plain.mean, plain.variance)]
    log_p, mean, variance = (np.where(trusted, a, b) for a, b in zip(out[:3], cavity, strict=True))
    pit, below = np.where(trusted, out[3:5], np.nan)
    return CorrectedLeaveOneOut(log_p, mean, variance, pit, below, trusted)


def _left_out(likelihood: Likelihood, rows: Rows, times: np.ndarray, y: np.ndarray, grid: MarginalGrid) -> np.ndarray:
    seen = ~np.isnan(y)
    eta = grid.centre[:, None] + grid.scale[:, None] * grid.x
    with np.errstate(all="ignore"):
        log_p = np.asarray(likelihood.log_density(eta, rows))
    log_p = np.where(np.isnan(log_p), -np.inf, log_p)
    own = np.where(seen, times, 0.0)[:, None] * np.where(seen[:, None], log_p, 0.0)
    lost = own < own.max(axis=1, keepdims=True) - _LOST
    with np.errstate(invalid="ignore"):
        rest, falls = _continued(np.where(lost, -np.inf, grid.log_density - own), grid.log_density)
    top = rest.max(axis=1, keepdims=True)
    p = np.exp(rest - top)
    p /= p.sum(axis=1, keepdims=True)
    mean = np.sum(p * eta, axis=1)
    variance = np.sum(p * (eta - mean[:, None]) ** 2, axis=1)
    best = np.where(seen[:, None], log_p, 0.0).max(axis=1, keepdims=True)
    density = best[:, 0] + np.log(np.sum(p * np.exp(np.where(seen[:, None], log_p - best, 0.0)), axis=1))
    cut = np.maximum(rest[:, 0], rest[:, -1]) > top[:, 0] - _CUT
    with np.errstate(all="ignore"):
        below, pit = pit_by(lambda x: np.sum(p * likelihood.cdf(x[:, None], eta), axis=1), likelihood, y)
    values = [density, mean, variance, pit, below]
    out = [np.where(seen | np.array(i in (1, 2)), value, np.nan) for i, value in enumerate(values)]
    return np.stack([*out, falls & ~cut])


def _continued(rest: np.ndarray, log_density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log densities (T, M) without y_n, continued as parabolas where the marginal is small; and whether all decrease.

    Far out a marginal is itself extrapolated, and a likelihood such as exp(-t e^eta) is not, so that their ratio would
    be wrong there. For a Gaussian the parabolas are exact.
    """
    known, falls = log_density >= log_density.max(axis=1, keepdims=True) - _KNOWN, np.ones((len(rest), 1), dtype=bool)
    for _ in range(2):  # either end
        known, rest = known[:, ::-1], rest[:, ::-1]
        end = known.argmax(axis=1)[:, None]
        edge, inner, third = (
            np.take_along_axis(rest, np.minimum(end + i, rest.shape[1] - 1), axis=1) for i in (0, 1, 2)
        )
        outside = end - np.arange(rest.shape[1])
        bend = np.minimum(edge - 2.0 * inner + third, 0.0)
        further = edge + outside * (edge - inner) + 0.5 * outside * (outside + 1) * bend
        rest = np.where(outside > 0, further, rest)
        falls = falls & ((edge < inner) | (end == 0))
    return rest, falls[:, 0]
