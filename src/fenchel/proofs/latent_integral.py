"""The evidence as an integral over few latents, by a sum over a lattice, with lower and upper limits.

    log p(y) = log E[exp r(x)],     r(x) = log p(y, b) - log q(b) at b = m + L x,     x ~ N(0, I_d)
    elbo     = E[r(x)]              KL(q || posterior) = log p(y) - elbo

The points are h Z^d, and the same shifted by h/2 along every axis (two halves). The error of the sum over one half is
the Fourier transform of the integrand at the points of (2 pi / h) Z^d with an odd coordinate sum, with opposite signs
for the two halves. The error of their mean is that at points with an even sum, which are farther out; for a Gaussian it
is about the square of half the difference of the halves. Both halves may have the same error at a steep side of a
likelihood. Therefore three more lattices are used as a check, shifted by other fractions of h along each axis, such
that no short wave has the same phase on all of them. The stated error is twice the largest difference of any of the
five sums from the mean of the halves, or the error for a Gaussian with the variances of the posterior if that is
larger. The points are restricted to a sphere. The integrand f is log-concave, so that beyond a point x of the last
shell

    f(t x) <= f(0)^(1 - t) f(x)^t,   t >= 1

and the sum of these rates over the shell bounds the integral outside. The elbo is that of q restricted to the sphere;
the probability ``outside`` of the sphere is added to probabilities of events under q.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import gammaincc, gammaln
from scipy.stats import chi2

MOST_LATENTS = 8
_OUTSIDE = 1e-6  # probability of q outside the first sphere
_WIDEST = 1.9  # largest step, in sds
_NARROWEST = 0.2  # smallest step, in sds
_FINER = 1.2  # factor by which the step is reduced if the halves differ
_WIDER = 1.15  # factor by which the sphere grows if too much may lie outside
_TRIES = 16  # most lattices
_FAR_OFF = 1e-2  # share of the integral outside from which on the sphere is not centred at the posterior
_CHUNK = 1 << 15  # points at a time
_MARGIN = 2.0  # the stated error is this multiple of the largest difference between lattices
_MOVED = np.array(  # shifts of the check lattices along each axis, in steps; chosen by trial
    [
        [0.441, 0.005, 0.610, 0.803, 0.270, 0.011, 0.672, 0.402],
        [0.344, 0.008, 0.610, 0.477, 0.584, 0.200, 0.974, 0.756],
        [0.142, 0.809, 0.455, 0.671, 0.781, 0.992, 0.117, 0.240],
    ]
)


class Integrand(Protocol):
    """The function r(x) in d dimensions, where x ~ N(0, I) under q."""

    @property
    def dimension(self) -> int: ...
    @property
    def densities(self) -> float:
        """Number of row densities that one point costs."""
        ...

    @property
    def error(self) -> float:
        """Error of r in nats, the same everywhere."""
        ...

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        """r (S,) at points (S, d)."""
        ...


@dataclass(frozen=True)
class SameDensities:
    """An integrand in other coordinates, with the same cost and error."""

    integrand: Integrand

    @property
    def densities(self) -> float:
        return self.integrand.densities

    @property
    def error(self) -> float:
        return self.integrand.error


@dataclass(frozen=True)
class Moved(SameDensities):
    """The same integrand relative to N(mean, root root') instead of q."""

    mean: np.ndarray
    root: np.ndarray

    @property
    def dimension(self) -> int:
        return self.integrand.dimension

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        at = self.mean + x @ self.root.T
        log_q, log_own = -0.5 * np.sum(at * at, axis=1), -0.5 * np.sum(x * x, axis=1)
        return np.asarray(self.integrand.log_ratio(at) + log_q - log_own + np.log(np.diag(self.root)).sum())


@dataclass(frozen=True)
class LatticeSum:
    """Sums over both halves of a lattice.

    Attributes
    ----------
    log_evidence : float
        Estimate of log p(y).
    halves : float
        Relative error of the sum: ``_MARGIN`` times the largest difference of any lattice from the mean of the halves,
        or the error for a Gaussian if that is larger.
    tail : float
        Upper bound on the integral outside the sphere, relative to the whole.
    elbo, elbo_error : float
        E[r] under q within the sphere, and half the difference between the halves.
    outside : float
        Probability of q outside the sphere.
    error : float
        Error of r, in nats.
    mean, covariance : arrays (d,), (d, d)
        Of the posterior, in units of x.
    n_points : int
        Number of points of all lattices.
    """

    log_evidence: float
    halves: float
    tail: float
    elbo: float
    elbo_error: float
    outside: float
    error: float
    mean: np.ndarray
    covariance: np.ndarray
    n_points: int

    @property
    def lower(self) -> float:
        if not self.halves < 1.0:
            return -np.inf
        return self.log_evidence + float(np.log1p(-self.halves)) - self.error

    @property
    def upper(self) -> float:
        if not self.halves < 1.0:  # the lattice is too coarse for any bound
            return np.inf
        return self.log_evidence + float(np.log1p(self.halves + self.tail)) + self.error

    @property
    def kl(self) -> float:
        """Upper bound on KL(q || posterior) for q restricted to the sphere."""
        return self.upper - self.elbo + self.elbo_error + self.error

    @property
    def width(self) -> float:
        return self.upper - self.lower


def lattice_points(d: int, step: float, radius: float, shift: np.ndarray | float) -> np.ndarray:
    """The points (S, d) of step (Z^d + shift) within a sphere."""
    reach = int(np.ceil(radius / step)) + 1
    points = np.zeros((1, 0))
    for moved in np.broadcast_to(shift, d):
        line = step * (np.arange(-reach, reach + 1) + moved)
        square = np.sum(points**2, axis=1)
        i, j = np.nonzero(square[:, None] + line**2 <= radius**2)
        points = np.column_stack([points[i], line[j]])
    return points


def expected_points(d: int, step: float, radius: float) -> float:
    """Approximate number of points of both halves and of the check lattices."""
    log_volume = 0.5 * d * np.log(np.pi) - gammaln(0.5 * d + 1.0)
    return 5.0 * float(np.exp(log_volume + d * np.log(radius / step + 0.25)))


def lattice_sum(integrand: Integrand, step: float, radius: float) -> LatticeSum:
    """The sums over both halves of a lattice and over the check lattices."""
    d = integrand.dimension
    halves = [lattice_points(d, step, radius, shift) for shift in (0.0, 0.5)]
    values = [_evaluated(integrand, x) for x in halves]
    square = [np.sum(x * x, axis=1) for x in halves]
    log_f = [r - 0.5 * s for r, s in zip(values, square, strict=True)]
    top = float(log_f[0][np.argmin(square[0])])
    cell = d * (np.log(step) - 0.5 * np.log(2.0 * np.pi))
    with np.errstate(over="ignore"):
        sums = [float(np.exp(one - top + cell).sum()) for one in log_f]
    mean = 0.5 * (sums[0] + sums[1])
    shell = [s > (radius - step) ** 2 for s in square] if radius > step else [s >= 0.0 for s in square]
    tail = 0.5 * sum(
        _beyond(top - one[last], np.sqrt(s[last]), radius, step, d)
        for one, s, last in zip(log_f, square, shell, strict=True)
    )
    centre, covariance = _moments(np.concatenate(halves), np.concatenate(log_f))
    gaussian = float(2.0 * np.exp(-2.0 * np.pi**2 * np.diag(covariance) / step**2).sum())
    checks = [lattice_points(d, step, radius, moved[:d]) for moved in _MOVED]
    others = [_sum(integrand, x, top - cell) for x in checks]
    differ = max(_MARGIN * max(abs(one - mean) for one in [*sums, *others]) / mean, gaussian)
    under_q = [np.exp(-0.5 * s) for s in square]
    elbos = [float(w @ r / w.sum()) for w, r in zip(under_q, values, strict=True)]
    outside = float(chi2.sf(radius**2, d))
    return LatticeSum(
        log_evidence=top + float(np.log(mean)),
        halves=differ,
        tail=tail * float(np.exp(cell)) / mean,
        elbo=0.5 * (elbos[0] + elbos[1]) + float(np.log1p(-outside)),
        elbo_error=0.5 * abs(elbos[0] - elbos[1]),
        outside=outside,
        error=integrand.error,
        mean=centre,
        covariance=covariance,
        n_points=square[0].size + square[1].size + sum(len(x) for x in checks),
    )


def _sum(integrand: Integrand, x: np.ndarray, top: float) -> float:
    """The sum over points, in units of exp(top)."""
    with np.errstate(over="ignore"):
        return float(np.exp(_evaluated(integrand, x) - 0.5 * np.sum(x * x, axis=1) - top).sum())


def _evaluated(integrand: Integrand, x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape[0])
    for i in range(0, x.shape[0], _CHUNK):
        out[i : i + _CHUNK] = integrand.log_ratio(x[i : i + _CHUNK])
    return np.where(np.isnan(out), np.inf, out)


def _moments(x: np.ndarray, log_f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of weighted points."""
    share = np.exp(log_f - log_f.max())
    share /= share.sum()
    mean = share @ x
    off = x - mean
    return mean, (off * share[:, None]).T @ off


def _beyond(fallen: np.ndarray, norm: np.ndarray, radius: float, step: float, d: int) -> float:
    """Bound on the integral beyond the sphere from points of its last shell, in units of f(0) and of a cell.

    A point at norm s whose log density has decreased by D represents d s^d / (r^d - r1^d) times
    int_{r/s}^inf t^(d-1) exp(-D t) dt outside.
    """
    inner = max(radius - step, 0.0)
    if not (fallen > 0.0).all():
        return float("inf")
    log_gamma = gammaln(d) - d * np.log(fallen)
    outer = np.exp(log_gamma) * gammaincc(d, fallen * radius / norm)
    share = d * norm**d / (radius**d - inner**d)
    return float(np.sum(share * outer))


def affordable(integrand: Integrand, work: float) -> bool:
    """Whether the coarsest lattice needs at most ``work`` densities."""
    d = integrand.dimension
    if not 1 <= d <= MOST_LATENTS:
        return False
    return expected_points(d, _WIDEST, first_radius(d)) * integrand.densities <= work


def affordable_step(d: int, densities: float, width: float, work: float) -> float:
    """The step for a width, or the finest step that ``work`` densities allow; infinite if there is none."""
    step = first_step(d, width)
    while step < _WIDEST and expected_points(d, step, first_radius(d)) * densities > work:
        step = min(1.05 * step, _WIDEST)
    return step if expected_points(d, step, first_radius(d)) * densities <= work else np.inf


def expected_width(d: int, densities: float, width: float, work: float) -> float:
    """The distance between the bounds for a Gaussian, in nats."""
    return float(4.0 * _MARGIN * d * np.exp(-2.0 * np.pi**2 / affordable_step(d, densities, width, work) ** 2))


def integrate_latents(integrand: Integrand, width: float, work: float) -> LatticeSum | None:
    """Integrate to a ``width`` of the bounds, or as far as ``work`` densities allow; None if they allow no lattice."""
    d, spent = integrand.dimension, 0.0
    if not affordable(integrand, work):
        return None
    radius = first_radius(d)
    first, step = first_step(d, width), affordable_step(d, integrand.densities, width, work)
    mean, root = np.zeros(d), np.eye(d)
    best: LatticeSum | None = None
    before: LatticeSum | None = None
    for _ in range(_TRIES):
        cost = expected_points(d, step, radius) * integrand.densities
        if spent + cost > work and best is not None:
            break
        begins = best is None
        result = lattice_sum(integrand if begins else Moved(integrand, mean, root), step, radius)
        spent += cost
        best = result if best is None else _better(best, _consistent(before, result))
        before = result
        if best.width - 2.0 * integrand.error <= width:
            break
        if begins or not result.tail < _FAR_OFF:  # centre the next lattices at the posterior
            spread = np.linalg.cholesky(result.covariance + 1e-12 * np.eye(d))
            mean, root = mean + root @ result.mean, root @ spread
        if begins:
            step = first
            continue
        if not result.tail < 0.3 * width:
            radius *= _WIDER
        if not result.halves < 0.3 * width:
            step = max(step / _FINER, _NARROWEST)
    return best


def _consistent(before: LatticeSum | None, result: LatticeSum) -> LatticeSum:
    """The sum, with an error of at least its difference from the previous sum if that exceeds both errors."""
    if before is None:
        return result
    apart = abs(float(np.expm1(result.log_evidence - before.log_evidence)))
    stated = before.halves + before.tail + result.halves + result.tail
    return result if apart <= stated else replace(result, halves=max(result.halves, apart))


def _better(best: LatticeSum, result: LatticeSum) -> LatticeSum:
    """The sum with the narrower evidence, with the elbo of q, which only sums in units of q have."""
    if not result.width < best.width:
        return best
    return replace(result, elbo=best.elbo, elbo_error=best.elbo_error, outside=best.outside)


def first_radius(d: int) -> float:
    """Radius of a sphere that contains nearly all of q."""
    return float(np.sqrt(chi2.isf(_OUTSIDE, d)))


def first_step(d: int, width: float) -> float:
    """The step with which the stated error for a Gaussian is a quarter of ``width``."""
    return float(np.clip(np.pi * np.sqrt(2.0 / np.log(16.0 * d / width)), _NARROWEST, _WIDEST))
