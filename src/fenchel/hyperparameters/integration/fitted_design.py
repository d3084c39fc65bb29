"""Designs with their fits: lattices that grow to where the density has fallen, composite designs with more points.

A composite design is integrated by the polynomial of ``response_surface.py`` through values and slopes at its points.
More points are fitted where it and one of a degree less are farthest apart and the density is large.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from scipy.stats import chi2

from . import designs
from .designs import ThetaDesign
from .points import Centre, Fitter, Point
from .response_surface import degree_for, matched_shares
from .theta import LogDensity

LATTICE_LEAVES_OUT = 0.007  # share of a normal outside of a lattice
LEAST_FALL = 5.0  # nats by which the density has fallen at the end of a lattice
LEAST_FALL_OF_LINE = 7.0  # nats: the same of one hyperparameter
MOST_POINTS = 150  # of a lattice
RULES_APART = 0.3  # nats between two rules above which the integration is not to be believed
MORE_POINTS = 2  # for each hyperparameter: the most that are added to a composite design
SURE = 0.01  # nats between two polynomials, on average over the density, below which no point is added
STEP = 1e-4  # of u, for differences of what is known in closed form


class FittedDesign(NamedTuple):
    """A design with its fits; ``cut``: the share of the posterior that is expected just beyond one that was stopped."""

    design: ThetaDesign
    points: list[Point]
    cut: float = 0.0


class Integral(NamedTuple):
    """log p(y) by two rules, the density of theta between the points, and the points with their shares (K,)."""

    total: float
    rule: float
    density: LogDensity
    points: list[Point]
    shares: np.ndarray

    @property
    def resolved(self) -> bool:
        """Whether the two rules agree."""
        return abs(self.total - self.rule) <= RULES_APART


def fit_design(fitter: Fitter, centre: Centre, design: ThetaDesign, sloped: bool = False) -> FittedDesign:
    """Fits at the points of a design within the bounds."""
    inside = _inside(fitter, centre, design)
    some = ThetaDesign(design.u[inside], design.log_mass[inside])
    return FittedDesign(some, fitter.at(list(centre.coordinates.theta(some.u)), sloped=sloped, plain=True))


def log_weights(laid: FittedDesign, centre: Centre, beyond: bool) -> np.ndarray:
    """The logs of the shares of points (K,), up to a constant: log p(y)."""
    density = centre.values(laid.points, beyond) + centre.coordinates.log_jacobian(laid.design.u)
    return np.asarray(laid.design.log_mass + density - designs.log_normal(laid.design.u))


def shares_of(laid: FittedDesign, centre: Centre, beyond: bool) -> np.ndarray:
    return np.asarray(softmax(log_weights(laid, centre, beyond)))


def _inside(fitter: Fitter, centre: Centre, design: ThetaDesign) -> np.ndarray:
    """Which points are within the bounds of theta."""
    low, high = fitter.evidence.bounds.T
    thetas = centre.coordinates.theta(design.u)
    return np.asarray(((thetas >= low) & (thetas <= high)).all(axis=1))


# -- lattices -------------------------------------------------------------------------------------------------
def fit_lattice(fitter: Fitter, centre: Centre) -> FittedDesign:
    """A lattice that grows from the centre to where the density is expected to have fallen far enough."""
    d = centre.coordinates.dimension
    places, least = designs.block(d), LEAST_FALL_OF_LINE if d == 1 else LEAST_FALL
    deep = max(least, float(chi2.isf(LATTICE_LEAVES_OUT, d)) / 2)
    scale = np.ones(fitter.evidence.start.size)
    scale[list(centre.coordinates.free)] = centre.coordinates.scale
    while True:
        laid = fit_design(fitter, centre, designs.lattice(places))
        fitter.start_near(laid.points, scale)
        places = places[_inside(fitter, centre, designs.lattice(places))]
        values = centre.values(laid.points) + centre.coordinates.log_jacobian(laid.design.u)
        edge = designs.edge(places)
        design = designs.lattice(edge)
        expected = _between(fitter, centre, laid, True).at_u(design.u, free=True)
        expected = np.maximum(expected, designs.continued(places, values, edge))
        wanted = (values.max() - expected < deep) & _inside(fitter, centre, design)
        if not wanted.any():
            return laid
        if len(places) + int(wanted.sum()) > MOST_POINTS:
            share = np.exp(expected - logsumexp(values))[wanted]
            return laid._replace(cut=float(share.sum()))
        places = np.concatenate([places, edge[wanted]])


def _between(fitter: Fitter, centre: Centre, laid: FittedDesign, beyond: bool) -> LogDensity:
    """The interpolated density: through the design and what the widths were read off."""
    points = [*laid.points, *centre.points]
    u = np.concatenate([laid.design.u, centre.coordinates.u(np.array([p.theta for p in centre.points]))])
    return LogDensity(centre.coordinates, u, centre.values(points, beyond), fitter.evidence.bounds)


def integrate_lattice(fitter: Fitter, centre: Centre, laid: FittedDesign, beyond: bool) -> Integral:
    """By the sum over the points, and by the density between them."""
    density, log_w = _between(fitter, centre, laid, beyond), log_weights(laid, centre, beyond)
    rule = float(logsumexp(log_w))
    return Integral(density.log_total, rule, density, laid.points, np.exp(log_w - rule))


# -- composite designs ----------------------------------------------------------------------------------------
def integrate_composite(fitter: Fitter, centre: Centre, laid: FittedDesign, beyond: bool, more: bool) -> Integral:
    """By polynomials of two degrees; ``more``: with fits where these are apart.

    Shares have the moments of the density, or are those of the design where the two polynomials disagree.
    """
    points = [*laid.points, *centre.points[1:]]
    high, low = _surfaces(fitter, centre, points, beyond)
    for _ in range(MORE_POINTS * centre.coordinates.dimension if more else 0):
        place, apart = _least_certain(high, low)
        if apart < SURE:
            break
        points += fitter.at([centre.coordinates.theta(place)], sloped=True, plain=True)
        high, low = _surfaces(fitter, centre, points, beyond)
    shares = np.zeros(len(points))
    shares[: len(laid.points)] = shares_of(laid, centre, beyond)
    found = Integral(high.log_total, low.log_total, high, points, shares)
    if not found.resolved:
        return found
    u = centre.coordinates.u(np.array([p.theta for p in points]))
    return found._replace(shares=matched_shares(u, shares, *high.weighted_u))


def _surfaces(fitter: Fitter, centre: Centre, points: list[Point], beyond: bool) -> tuple[LogDensity, LogDensity]:
    """The density by polynomials of two degrees, the higher first, through values and slopes at points."""
    coordinates, model = centre.coordinates, centre.model if beyond else None
    u = coordinates.u(np.array([p.theta for p in points]))
    slopes, plain = np.zeros(u.shape), np.array([p.slope for p in points])

    def rest(at: np.ndarray) -> np.ndarray:
        """What is added to the elbo and log p(theta)."""
        gain = 0.0 if model is None else model(coordinates.theta(at))
        return np.asarray(gain + coordinates.log_jacobian(at))

    for i, step in enumerate(STEP * np.eye(u.shape[1])):
        ways = (coordinates.theta(u + step) - coordinates.theta(u - step)) / (2.0 * STEP)
        slopes[:, i] = (plain * ways).sum(axis=1) + (rest(u + step) - rest(u - step)) / (2.0 * STEP)
    values, bounds = centre.values(points, beyond), fitter.evidence.bounds
    degree = degree_for(u.shape[1])
    high, low = (LogDensity(coordinates, u, values, bounds, slopes, each) for each in (degree, degree - 1))
    return high, low


def _least_certain(high: LogDensity, low: LogDensity) -> tuple[np.ndarray, float]:
    """Where two densities are farthest apart by mass (d,), and how far they are on average, in nats."""
    u, log_mass = high.places
    both = np.stack([high.at_u(u), low.at_u(u)])
    larger, apart = both.max(axis=0), np.abs(np.diff(np.where(np.isfinite(both), both, 0.0), axis=0)[0])
    away = cdist(u, high.points).min(axis=1)
    d = u.shape[1]
    counts = larger + np.log(apart + 1e-12) + 0.5 * np.log(away + 1e-12) + 0.25 * d * np.log1p((u * u).sum(axis=1))
    return u[int(np.argmax(counts))], float(softmax(larger + log_mass) @ apart)
