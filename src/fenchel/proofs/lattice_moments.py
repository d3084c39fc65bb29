"""Integrals of sites in four to six dimensions: the predictors of a softmax of many classes.

    L(p) = log E exp(p gt(x)),  x ~ N(0, I)

Exponents are chosen with sums over one coarse lattice for all sites. Each integral is then computed over lattices of
its own (``latent_integral.py``), with its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .latent_integral import expected_points, first_radius, first_step, integrate_latents, lattice_points
from .tilted_moments import LOG_ROOT_2_PI, SiteRemainders, TiltedMoments

MOST_PREDICTORS = 6
_STEP, _RADIUS = 1.6, 4.0  # step and radius, in sds, of the lattice for the choice of exponents
_WIDTH = 4e-3  # nats between the bounds on an integral
_RETRIES = 6.0  # work for an integral, relative to one lattice


@dataclass(frozen=True)
class _SiteIntegrand:
    """The integrand p gt of one site."""

    sites: SiteRemainders
    site: int
    p: float
    densities: float = 1.0
    error: float = 0.0

    @property
    def dimension(self) -> int:
        return self.sites.dimension

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.p * self.sites.remainder(np.array([self.site]), x[None])[0])


class LatticeMoments(TiltedMoments):
    """The integrals of all sites, for log-concave functions in several dimensions."""

    @cached_property
    def _lattice(self) -> np.ndarray:
        d = self.dimension
        return np.concatenate([lattice_points(d, _STEP, _RADIUS, shift) for shift in (0.0, 0.5)])

    def place(self, p: np.ndarray) -> None:
        """Use the one lattice that serves all exponents."""
        points, d = self._lattice, self.dimension
        self.x = np.broadcast_to(points, (self.n, *points.shape))
        self.gt = self._lattice_remainders
        self.log_phi = np.broadcast_to(-0.5 * np.sum(points**2, axis=1) - d * LOG_ROOT_2_PI, self.gt.shape)
        self.log_cell = np.full(self.n, d * np.log(_STEP) - np.log(2.0))

    @cached_property
    def _lattice_remainders(self) -> np.ndarray:
        points = self._lattice
        return self._remainders(np.arange(self.n), np.broadcast_to(points, (self.n, *points.shape)))

    def certified(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d, value, error = self.dimension, np.empty(self.n), np.empty(self.n)
        work = _RETRIES * expected_points(d, first_step(d, _WIDTH), first_radius(d))
        for k in range(self.n):
            integral = integrate_latents(_SiteIntegrand(self.sites, k, float(p[k])), _WIDTH, work)
            value[k] = np.inf if integral is None else integral.log_evidence
            error[k] = 0.0 if integral is None else integral.upper - integral.log_evidence
        second = np.full(self.n, float(d))
        return value, error + self._rounding(np.arange(self.n), np.abs(value) + second, second)
