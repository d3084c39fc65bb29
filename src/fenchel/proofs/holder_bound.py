"""Lower and upper bounds on the evidence for any Gaussian q: the result of ``Solution.evidence_bounds``.

A Gaussian q is the prior times Gaussian sites, exp(-alpha_n t - lam_n t^2/2) with t = eta_n - h_n. With its normaliser

    log Z = -(alpha' S alpha + log|B|) / 2
    log p(y) = log Z + log E_q prod_n exp gt_n,         gt_n(t) = log p(y_n | h_n + t) + alpha_n t + lam_n t^2 / 2

holds for every q, whether at the optimum or not and whatever the bound on the likelihood. Observations that see the
latents along the same line are one site. Jensen's inequality gives the lower bound. The Gaussian form of Hoelder's
inequality, with exponents p such that diag(p) >= corr_q, gives the upper one (Chen, Dafnis and Paouris, 2015):

    log Z + sum_n E_q gt_n  <=  log p(y)  <=  log Z + sum_n log E_q exp(p_n gt_n) / p_n

The lower bound is the elbo of q under the exact likelihood, so that the difference bounds KL(q || posterior).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..checks import choice, problem
from ..corrections.sites import GaussianFit, Observed, counted, observations
from ..likelihoods.base import Likelihood
from ..linalg.arrays import to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..posterior import Posterior
from ..priors.row_covariances import Lines
from .blocks import pair_up
from .exponents import SiteBound, bound_sites
from .margins import EPS, Cone, DenseCone, FactorCone
from .refits import flattened, refitted
from .softmax_bound import softmax_bound
from .tilted_moments import HOPELESS, ObservedRemainders, TiltedMoments

_WHERE = "evidence_bounds"
_SAME = 1e-14  # tolerance of correlations and unit vectors: only rows that are equal up to rounding are one site
_FLATTER = (1e8, 1e5, 1e2)  # limits on the curvatures of sites, relative to the prior precision, tried in turn
_LARGE_ERROR = 0.1  # nats: if the integrals add more, flatter sites are tried
_REFITS = 4  # most refits of q
_DAMPING = 0.5  # damping of the first refit
_PAIRED = 600  # largest number of sites for which pairs are tried
_ROUNDINGS = 8.0  # allowance for rounding, in root mean squares


class ProvableFit(GaussianFit, Protocol):
    """The part of a solution that proofs read."""

    rounding: float
    quadrature: float


@dataclass(frozen=True)
class EvidenceBounds:
    """Lower and upper bounds on log p(y), at the hyperparameters of the fit.

    Attributes
    ----------
    lower, upper : float
        Bounds on log p(y) in nats. ``upper`` is infinite if no allowed exponents have finite integrals. It is at most 0
        for labels and counts, where p(y) is a probability.
    kl : float
        Upper bound on KL(q || posterior): ``upper`` minus the elbo of q under the exact likelihood.
    exponents : array (N,)
        The exponent p of every observation; observations of one site share it. It is infinite for an observation
        without curvature, which does not widen the bounds.
    status : str
        A sentence that says what was proved.
    """

    lower: float
    upper: float
    kl: float
    exponents: np.ndarray
    status: str

    @property
    def width(self) -> float:
        """upper - lower."""
        return self.upper - self.lower

    def __repr__(self) -> str:
        return f"EvidenceBounds(lower={self.lower:.6f}, upper={self.upper:.6f}, kl={self.kl:.3g})"


def evidence_bounds(solution: ProvableFit, effort: str = "fast") -> EvidenceBounds:
    """Bounds on log p(y) from a fit."""
    choice(_WHERE, "effort", effort, ("fast", "high"))
    post, likelihood = solution.posterior, solution.likelihood
    if post.predictors.has_extra_variance:
        got = "the prior has an extra variance, and q does not learn about that part of eta"
        raise problem(_WHERE, got, "a prior whose latents explain all of eta")
    if likelihood.n_predictors > 1:
        return _softmax_bounds(solution, effort)
    observed = observations(solution)
    bounded = _flattened(solution, _bound_of(solution, post, observed))
    elbo = _log_normaliser(post) + _of_linear_rows(solution, post) + _expected(observed)
    if effort == "high":
        bounded = _in_pairs(_refitted(solution, bounded))
    blur = solution.rounding + solution.quadrature
    lower, upper = max(elbo, solution.elbo) - blur, min(bounded.upper + blur, largest(likelihood))
    exponents = np.full(post.predictors.n_observations, np.inf)
    with np.errstate(divide="ignore"):
        exponents[post.active[bounded.sites.rows]] = (1.0 / bounded.w)[bounded.sites.remainders.groups.of]
    return EvidenceBounds(lower, upper, upper - lower, exponents, _status(bounded.bound, lower, upper))


@dataclass(frozen=True)
class _Bounded:
    """A Gaussian q with its upper bound."""

    post: Posterior
    observed: Observed
    sites: FitSites
    log_Z: float
    rounding: float  # of log_Z
    bound: SiteBound
    w: np.ndarray  # of every site

    @property
    def upper(self) -> float:
        return self.log_Z + self.rounding + self.bound.value


def _bound_of(solution: ProvableFit, post: Posterior, observed: Observed) -> _Bounded:
    sites = sites_of_fit(post, observed)
    log_Z = _log_normaliser(post) + _of_linear_rows(solution, post) + sites.constant
    bound = bound_sites(sites.remainders, sites.cone, _expected(observed) - sites.constant)
    return _Bounded(post, observed, sites, log_Z, _rounding_of_normaliser(post, observed), bound, bound.w)


def _flattened(solution: ProvableFit, bounded: _Bounded) -> _Bounded:
    """The best bound by q with flatter sites, if its own are so steep that rounding spoils the bound."""
    lost = not np.isfinite(bounded.upper) or bounded.bound.error > _LARGE_ERROR
    if not (lost and bounded.sites.remainders.several_modes):
        return bounded
    best, lines = bounded, bounded.post.factor.predictors.lines(_SAME)
    steepest = float(
        np.max(bounded.observed.lam * to_numpy(bounded.post.factor.predictors.variance)[:, 0], initial=0.0)
    )
    for largest in (one for one in _FLATTER if one < steepest):
        try:
            q = flattened(bounded.post, bounded.observed, lines, largest)
            candidate = _bound_of(solution, *q)
        except NotPositiveDefinite:
            continue
        best = candidate if candidate.upper < best.upper else best
    return best


def _refitted(solution: ProvableFit, bounded: _Bounded) -> _Bounded:
    """Improve the bound by refits of q, as long as it decreases."""
    damping = _DAMPING
    for _ in range(_REFITS):
        if not np.isfinite(bounded.upper):
            break
        sites, w = bounded.sites, bounded.bound.w
        moments = TiltedMoments(sites.remainders)
        moments.place(1.0 / w)
        first = sites.rows[sites.remainders.groups.first]
        try:
            q = refitted(bounded.post, bounded.observed, first, w, moments.shape(1.0 / w), damping)
            candidate = _bound_of(solution, *q)
        except NotPositiveDefinite:
            candidate = bounded
        if candidate.upper < bounded.upper:
            bounded = candidate
        else:
            damping /= 2.0
    return bounded


def _in_pairs(bounded: _Bounded) -> _Bounded:
    """The bound with the most correlated sites in pairs, if it is lower."""
    sites, n = bounded.sites, bounded.sites.remainders.n
    if not (np.isfinite(bounded.upper) and 1 < n <= _PAIRED) or sites.remainders.several_modes:
        return bounded
    first = sites.rows[sites.remainders.groups.first]
    factor = bounded.post.factor
    V = to_numpy(factor.covariance()[0])[np.ix_(first, first)]
    S = factor.predictors.row_covariance(first)
    try:
        pairs, cone = pair_up(sites.remainders, S, V, sites.remainders.growth / np.diag(V))
    except np.linalg.LinAlgError:  # two rows are equal up to rounding
        return bounded
    bound = bound_sites(pairs, cone, _expected(bounded.observed) - sites.constant)
    if not bound.value < bounded.bound.value:
        return bounded
    w = np.empty(n)
    for k in range(2):
        own = pairs.members[:, k]
        w[own[own >= 0]] = bound.w[own >= 0]
    return replace(bounded, bound=bound, w=w)


def _softmax_bounds(solution: ProvableFit, effort: str) -> EvidenceBounds:
    """Bounds for a likelihood with several predictors, with one site for each observation."""
    value, bound, seen = softmax_bound(solution, effort)
    blur = solution.rounding + solution.quadrature
    lower, upper = solution.elbo - blur, min(value + blur, largest(solution.likelihood))
    exponents = np.full(solution.posterior.predictors.n_observations, np.inf)
    with np.errstate(divide="ignore"):
        exponents[seen] = 1.0 / bound.w
    return EvidenceBounds(lower, upper, upper - lower, exponents, _status(bound, lower, upper))


@dataclass(frozen=True)
class FitSites:
    """The sites of a fit: the active rows with a site, the functions of the sites, and the cone of their exponents.

    ``constant`` is the contribution of rows whose eta has no variance under q.
    """

    rows: np.ndarray
    remainders: ObservedRemainders
    cone: Cone
    constant: float


def sites_of_fit(post: Posterior, observed: Observed) -> FitSites:
    """The sites of a fit; rows that see the latents along the same line are one site."""
    predictors = post.factor.predictors
    alive = observed.rho > 0.0
    rows = np.flatnonzero(alive)
    known = observed.take(~alive)
    zero = np.zeros(known.h.size)
    constant = float(known.left(np.zeros(1), zero, zero).sum()) if known.h.size else 0.0
    lines = predictors.lines(_SAME)
    groups = lines if alive.all() else Lines.labelled(lines.of[rows], lines.sign[rows])
    first = rows[groups.first]
    remainders = ObservedRemainders(observed.take(rows), groups, *_rounding_of_moments(post, observed, first))
    variance = observed.rho[first]
    curvature = remainders.growth / variance
    cone: Cone
    if predictors.negative_sites:
        cone = FactorCone(predictors, first, variance, curvature)
    else:
        cone = DenseCone(predictors.row_covariance(first), variance, curvature)
    return FitSites(rows, remainders, cone, constant)


def _rounding_of_moments(post: Posterior, observed: Observed, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounding errors of h of some active rows, in sds of q, and of rho, relative to rho.

    Both are generous multiples of root mean squares, like the rounding error of the elbo.
    """
    predictors = post.factor.predictors
    variance, mt = to_numpy(predictors.variance)[:, 0], to_numpy(predictors.mt)[rows, 0]
    with np.errstate(over="ignore"):
        sums = np.sqrt(variance[rows] * float(np.sum(observed.alpha**2 * variance)))
        mean = _ROUNDINGS * EPS * (np.abs(observed.h[rows]) + np.abs(mt) + sums)
    relative = _ROUNDINGS * max(float(post.factor.log_det_rounding), EPS)
    return mean / np.sqrt(observed.rho[rows]), np.full(rows.size, relative)


def _log_normaliser(post: Posterior) -> float:
    """log Z = -(alpha' S alpha + log|B|) / 2."""
    predictors, alpha = post.predictors, post.alpha
    if post.weights is not None:
        quadratic = predictors.weights_norm(post.weights)
    else:
        quadratic = predictors.quadratic(alpha, predictors.apply(alpha))
    return -0.5 * (float(quadratic) + float(post.factor.log_det))


def _rounding_of_normaliser(post: Posterior, observed: Observed) -> float:
    """Rounding error of log Z."""
    predictors, alpha = post.predictors, post.alpha
    quadratic = float(predictors.quadratic(alpha, predictors.apply(alpha)))
    terms = np.abs(observed.alpha * observed.h) + 0.5 * np.abs(observed.lam * observed.rho)
    sums = EPS * float(np.sqrt(terms @ terms)) + predictors.quadratic_rounding(alpha, quadratic)
    return _ROUNDINGS * (sums + float(post.factor.log_det_rounding))


def _of_linear_rows(solution: ProvableFit, post: Posterior) -> float:
    """Contribution of observations with a linear log-likelihood, whose sites are exact up to this constant."""
    weight = to_numpy(solution._rows["weight"])
    beside = weight > 0.0
    beside[post.active] = False
    rest = np.flatnonzero(beside)
    if rest.size == 0:
        return 0.0
    rows = {key: to_numpy(value)[rest] for key, value in solution._rows.items()}
    h = to_numpy(post.moments[0])[rest]
    return float(counted(solution)[rest] @ to_numpy(solution.likelihood.log_density(h, rows))[:, 0])


def _expected(observed: Observed) -> float:
    """sum_n E_q gt_n under the exact likelihood."""
    own, moments = observed.likelihood, (observed.h[:, None], observed.rho[:, None], observed.rows)
    try:
        loss = to_numpy(own.exact_loss(*moments).value)
    except NotImplementedError:  # for a softmax of two classes
        loss = to_numpy(own.objective.f(*moments))
    weight = np.asarray(observed.rows["weight"])
    value = np.where(weight > 0.0, weight * loss, 0.0)
    return float(np.sum(0.5 * observed.lam * observed.rho - value))


def largest(likelihood: Likelihood) -> float:
    """Upper limit of log p(y) for any fit: 0 if y is discrete, with or without weights."""
    return 0.0 if likelihood.discrete else np.inf


def range_in_words(lower: float, upper: float) -> str:
    """The first part of a status: the range of log p(y)."""
    low, high = rounded_range(lower, upper)
    high = "0 (the maximum for a probability)" if upper == 0.0 else high
    return f"log p(y) lies between {low} and {high} at these hyperparameters"


def rounded_range(lower: float, upper: float) -> tuple[str, str]:
    """Both ends as text, rounded outwards to the digits that matter for their distance."""
    places = int(np.clip(1 - np.floor(np.log10(max(upper - lower, 1e-9))), 2, 8)) if np.isfinite(upper) else 2
    unit = 10.0**-places
    return f"{np.floor(lower / unit) * unit:.{places}f}", f"{np.ceil(upper / unit) * unit + 0.0:.{places}f}"


def _status(bound: SiteBound, lower: float, upper: float) -> str:
    if not np.isfinite(bound.value):
        but = "" if np.isinf(upper) else " except 0, the maximum for a probability"
        return (
            f"no upper bound{but}: the inequality allows no exponents for the sites of q at which all "
            f"integrals are finite and below {HOPELESS:,.0f} nats, as is common if the likelihood is not "
            "log-concave; corrected() has an estimate"
        )
    search = f"the last stage of their search gained {max(bound.gain, 0.0):.1g}"
    if not np.isfinite(bound.gain):
        search = "their search ended early"
    how = "proved by a Cholesky with a margin for its rounding" if bound.proved else "allowed in double precision only"
    return f"{range_in_words(lower, upper)}; {bound.w.size} exponents, {how}, {search}; integrals add {bound.error:.1g}"
