"""The best proof for a fit, and bounds on probabilities of events.

If the fit has few latents, or few besides its groups, the evidence is an integral over few latents
(``latent_integral.py``); otherwise it is bounded by rows (``holder_bound.py``). The choice depends on the number of
densities to evaluate, and never on measured time.

An event is a range of a linear combination of latents. KL(q || posterior) is bounded for two approximations: q of the
fit, and, if groups are integrated out, q(b) of the other latents. The latter is much closer to the posterior and serves
events that involve no group. For these the probability is also a ratio of two integrals, which is more accurate still
(``event_integral.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ..checks import choice
from ..corrections.collapsed import Collapsed, collapse
from ..linalg.arrays import to_numpy
from ..priors.base import NewRows
from .event_integral import range_bounds, range_cost
from .events import probability_bounds
from .holder_bound import EvidenceBounds, ProvableFit, evidence_bounds, largest, range_in_words
from .integrands import GroupIntegrand, RowIntegrand, row_integrand
from .latent_integral import MOST_LATENTS, Integrand, LatticeSum, integrate_latents

_WIDTH = {"fast": 1e-3, "high": 1e-5}  # wanted distance between the bounds by an integral, in nats
_WORK = {"fast": 4e8, "high": 6e9}  # most row densities for it
_SHARE = 0.1  # share of these that the fit of groups may need at a time
CHEAP = 2e7  # most row densities for a proof that the user did not request
_RATIO_WIDTH = 2e-3  # accuracy of the integrals of events, in nats


@dataclass(frozen=True)
class Proof:
    """Bounds on the evidence, and the approximations whose KL to the posterior they bound.

    Attributes
    ----------
    bounds : EvidenceBounds
        Bounds on log p(y); ``kl`` is for q of the fit.
    groups : Collapsed or None
        The posterior with groups integrated out, if the proof uses it.
    rest_kl : float
        Upper bound on the KL from its q(b) to the posterior of b.
    outside : float
        Probability added to events under q(b), because the proof is for q(b) restricted to a sphere.
    work : float
        Most row densities for integrals of events.
    rows : RowIntegrand or None
        Rows along few directions, if the proof integrates over these.
    """

    bounds: EvidenceBounds
    groups: Collapsed | None = None
    rest_kl: float = np.inf
    outside: float = 0.0
    work: float = 0.0
    rows: RowIntegrand | None = None

    def event(self, fit: ProvableFit, new: NewRows, low: np.ndarray, high: np.ndarray) -> EventBounds:
        """Bounds on P(low < W z + offset < high) for each row (M,), by KL and by ratios of integrals if affordable.

        With several predictors there are C events for each row, row after row (M C,).
        """
        mean, variance = (to_numpy(v).ravel() for v in fit.posterior.moments_at(new))
        sd = np.sqrt(variance)
        kl, outside = np.full(mean.size, self.bounds.kl), np.zeros(mean.size)
        if new.design is None or (self.groups is None and self.rows is None):
            return event_bounds(mean, sd, low, high, kl, outside)
        integrand: Integrand
        if self.groups is not None:
            alone, own_mean, direction = self.groups.beside_groups(new)
            own_sd = np.sqrt(np.sum(direction**2, axis=1))
            mean, sd = np.where(alone, own_mean, mean), np.where(alone, own_sd, sd)
            kl, outside = np.where(alone, self.rest_kl, kl), np.where(alone, self.outside, outside)
            direction = direction / np.where(own_sd > 0.0, own_sd, 1.0)[:, None]
            integrand = GroupIntegrand(self.groups, _RATIO_WIDTH, self.work)
        else:
            assert self.rows is not None
            alone, direction = self.rows.seen(new, variance)
            integrand = self.rows
        bounds = event_bounds(mean, sd, low, high, kl, outside)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.column_stack([(low - mean) / sd, (high - mean) / sd])
        places = [(k, float(ends[k, 0]), float(ends[k, 1])) for k in np.flatnonzero(alone & (sd > 0.0))]
        if sum(range_cost(integrand, start, end, _RATIO_WIDTH) for _, start, end in places) > self.work:
            return bounds
        for k, start, end in places:
            least, most = range_bounds(integrand, direction[k], start, end, _RATIO_WIDTH)
            bounds.lower[k], bounds.upper[k] = max(bounds.lower[k], least), min(bounds.upper[k], most)
        return bounds


@dataclass(frozen=True)
class EventBounds:
    """Arrays (M,): the approximate probability, the bounds on the posterior probability, and the KL that was used."""

    approximate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    kl: np.ndarray


def event_bounds(
    mean: np.ndarray, sd: np.ndarray, low: np.ndarray, high: np.ndarray, kl: np.ndarray, outside: np.ndarray
) -> EventBounds:
    """Bounds for normals in ranges; ``outside`` is the probability by which the proved approximation may differ."""
    with np.errstate(divide="ignore", invalid="ignore"):
        below, above = (low - mean) / sd, (high - mean) / sd
    right = below > 0.0  # use the tail that has no cancellation
    inside = np.where(right, ndtr(-below) - ndtr(-above), ndtr(above) - ndtr(below))
    rest = np.where(right, ndtr(-above) + ndtr(below), ndtr(below) + ndtr(-above))
    known = sd == 0.0
    inside = np.where(known, (low < mean) & (mean < high), inside)
    rest = np.where(known, 1.0 - inside, rest)
    lower, upper = np.empty(mean.size), np.empty(mean.size)
    for k in range(mean.size):
        less, more = max(inside[k] - outside[k], 0.0), max(rest[k] - outside[k], 0.0)
        lower[k] = probability_bounds(less, kl[k], 1.0 - less if outside[k] else rest[k])[0]
        upper[k] = probability_bounds(1.0 - more if outside[k] else inside[k], kl[k], more)[1]
    return EventBounds(inside, lower, upper, kl)


def prove(solution: ProvableFit, effort: str = "fast", groups: Collapsed | None = None) -> Proof:
    """The best proof at an effort; ``groups``: the posterior with groups integrated out, if it is already computed."""
    choice("evidence_bounds", "effort", effort, tuple(_WORK))
    proof = integral_proof(solution, _WIDTH[effort], _WORK[effort], groups)
    return Proof(evidence_bounds(solution, effort)) if proof is None else proof


def cheap_proof(solution: ProvableFit, groups: Collapsed | None = None) -> Proof | None:
    """A proof that is cheap enough to be made without a request, by an integral; None if there is none."""
    return integral_proof(solution, _WIDTH["fast"], CHEAP, groups)


def integral_proof(solution: ProvableFit, width: float, work: float, groups: Collapsed | None = None) -> Proof | None:
    """A proof by an integral over few latents; None with too many latents, or without smooth log-concave densities."""
    likelihood, predictors = solution.likelihood, solution.posterior.predictors
    plain = likelihood.n_predictors == 1 and not predictors.has_extra_variance and not likelihood.objective.conjugate
    if not (plain and likelihood.log_concave and likelihood.smooth):
        return None
    groups = collapse(solution, _SHARE * work, MOST_LATENTS) if groups is None else groups
    integrand: Integrand | None = None
    rows: RowIntegrand | None = None
    if groups is not None:
        integrand = GroupIntegrand(groups, width, work) if groups.n_rest <= MOST_LATENTS else None
    elif solution.posterior.active.size <= work:
        integrand = rows = row_integrand(solution, MOST_LATENTS)
    integral = None if integrand is None else integrate_latents(integrand, width, work)
    if integral is None or not np.isfinite(integral.width):
        return None
    bounds = _bounds(solution, integral, groups)
    rest_kl = np.inf if groups is None else integral.kl - (integral.upper - bounds.upper)
    return Proof(bounds, groups, rest_kl, integral.outside, 0.5 * work, rows)


def _bounds(solution: ProvableFit, integral: LatticeSum, groups: Collapsed | None) -> EvidenceBounds:
    blur = solution.rounding + solution.quadrature
    lower, upper = max(integral.lower, solution.elbo - blur), min(integral.upper, largest(solution.likelihood))
    kl = upper - solution.elbo + blur
    over = "" if groups is None else f", the effects of {groups.n_groups} groups integrated out"
    status = (
        f"{range_in_words(lower, upper)}; a sum over {integral.n_points} points of few latents{over}, whose "
        f"error is at most {integral.width:.1g} nats"
    )
    return EvidenceBounds(lower, upper, kl, np.ones(solution.posterior.predictors.n_observations), status)
