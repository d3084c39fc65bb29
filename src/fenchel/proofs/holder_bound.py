"""Bounds of the evidence on both sides, for every Gaussian q: what ``Solution.evidence_bounds`` returns.

A Gaussian q is the prior times Gaussian sites, exp(-alpha_n t - lam_n t^2/2) with t = eta_n - h_n. With its normaliser

    log Z = -(alpha' S alpha + log|B|) / 2
    log p(y) = log Z + log E_q prod_n exp gt_n,         gt_n(t) = log p(y_n | h_n + t) + alpha_n t + lam_n t^2 / 2

holds for every q: at its optimum or not, exact or of a bound. Observations along one line of the latents are one site.
Jensen's inequality is the lower bound; the Gaussian form of Hoelder's, with exponents p such that diag(p) >= corr_q,
the upper one (Chen, Dafnis and Paouris, 2015):

    log Z + sum_n E_q gt_n  <=  log p(y)  <=  log Z + sum_n log E_q exp(p_n gt_n) / p_n

The lower one is the elbo of q without any bound on the likelihood, so that the difference bounds KL(q || posterior).
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
_SAME = 1e-14  # of correlations and unit vectors: rows that differ by more than rounding are not one site
_FLATTER = (1e8, 1e5, 1e2)  # largest curvatures, in units of the prior variance, that are tried in place of q's own
_LARGE_ERROR = 0.1  # nats that integrals add, from which on flatter sites are tried
_REFITS = 4  # of q, at the most
_DAMPING = 0.5  # of the first of them
_PAIRED = 600  # sites up to which pairs of them are tried
_ROUNDINGS = 8.0  # root mean squares allowed for


class ProvableFit(GaussianFit, Protocol):
    """What is read of a solution."""

    rounding: float
    quadrature: float


@dataclass(frozen=True)
class EvidenceBounds:
    """log p(y) between two bounds, at the hyperparameters of the fit.

    Attributes
    ----------
    lower, upper : float
        Of log p(y). ``upper`` is infinite where no exponents with finite integrals are allowed, and at most 0
        of labels and counts: p(y) is a probability.
    kl : float
        KL(q || posterior) is at most this: ``upper`` less the elbo of q under the likelihood itself.
    exponents : array (N,)
        p of every observation; those along one line of the latents share one. Infinite where an observation has no
        curvature: it costs nothing.
    status : str
        What was proved, as a sentence.
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
    """Bounds of log p(y) from a fit with one predictor an observation."""
    choice(_WHERE, "effort", effort, ("fast", "high"))
    post, likelihood = solution.posterior, solution.likelihood
    if post.predictors.has_extra_variance:
        got = "the prior has an extra variance, and q does not learn about that part of eta"
        raise problem(_WHERE, got, "a prior whose latents explain all of eta")
    if likelihood.n_predictors > 1:
        return _softmax_bounds(solution, effort)
    observed = observations(solution)
    found = _flattened(solution, _bound_of(solution, post, observed))
    elbo = _log_normaliser(post) + _of_linear_rows(solution, post) + _expected(observed)
    if effort == "high":
        found = _in_pairs(_refitted(solution, found))
    blur = solution.rounding + solution.quadrature
    lower, upper = max(elbo, solution.elbo) - blur, min(found.upper + blur, largest(likelihood))
    exponents = np.full(post.predictors.n_observations, np.inf)
    with np.errstate(divide="ignore"):
        exponents[post.active[found.sites.rows]] = (1.0 / found.w)[found.sites.remainders.groups.of]
    return EvidenceBounds(lower, upper, upper - lower, exponents, _status(found.bound, lower, upper))


@dataclass(frozen=True)
class _Bounded:
    """A q with its upper bound."""

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
    found = bound_sites(sites.remainders, sites.cone, _expected(observed) - sites.constant)
    return _Bounded(post, observed, sites, log_Z, _rounding_of_normaliser(post, observed), found, found.w)


def _flattened(solution: ProvableFit, found: _Bounded) -> _Bounded:
    """The best bound of q with flatter sites, where its own, far steeper than the prior, leave no digits."""
    lost = not np.isfinite(found.upper) or found.bound.error > _LARGE_ERROR
    if not (lost and found.sites.remainders.several_modes):
        return found
    best, lines = found, found.post.factor.predictors.lines(_SAME)
    steepest = float(np.max(found.observed.lam * to_numpy(found.post.factor.predictors.variance)[:, 0], initial=0.0))
    for largest in (one for one in _FLATTER if one < steepest):
        try:
            q = flattened(found.post, found.observed, lines, largest)
            there = _bound_of(solution, *q)
        except NotPositiveDefinite:
            continue
        best = there if there.upper < best.upper else best
    return best


def _refitted(solution: ProvableFit, found: _Bounded) -> _Bounded:
    """The bound of other q, while it falls."""
    damping = _DAMPING
    for _ in range(_REFITS):
        if not np.isfinite(found.upper):
            break
        sites, w = found.sites, found.bound.w
        moments = TiltedMoments(sites.remainders)
        moments.place(1.0 / w)
        first = sites.rows[sites.remainders.groups.first]
        try:
            q = refitted(found.post, found.observed, first, w, moments.shape(1.0 / w), damping)
            there = _bound_of(solution, *q)
        except NotPositiveDefinite:
            there = found
        if there.upper < found.upper:
            found = there
        else:
            damping /= 2.0
    return found


def _in_pairs(found: _Bounded) -> _Bounded:
    """The bound with the most correlated sites in pairs, where that is lower."""
    sites, n = found.sites, found.sites.remainders.n
    if not (np.isfinite(found.upper) and 1 < n <= _PAIRED) or sites.remainders.several_modes:
        return found
    first = sites.rows[sites.remainders.groups.first]
    factor = found.post.factor
    V = to_numpy(factor.covariance()[0])[np.ix_(first, first)]
    S = factor.predictors.row_covariance(first)
    try:
        pairs, cone = pair_up(sites.remainders, S, V, sites.remainders.growth / np.diag(V))
    except np.linalg.LinAlgError:  # two rows that are one to rounding
        return found
    bound = bound_sites(pairs, cone, _expected(found.observed) - sites.constant)
    if not bound.value < found.bound.value:
        return found
    w = np.empty(n)
    for k in range(2):
        own = pairs.members[:, k]
        w[own[own >= 0]] = bound.w[own >= 0]
    return replace(found, bound=bound, w=w)


def _softmax_bounds(solution: ProvableFit, effort: str) -> EvidenceBounds:
    """Bounds of a likelihood of several predictors: one site an observation."""
    value, found, seen = softmax_bound(solution, effort)
    blur = solution.rounding + solution.quadrature
    lower, upper = solution.elbo - blur, min(value + blur, largest(solution.likelihood))
    exponents = np.full(solution.posterior.predictors.n_observations, np.inf)
    with np.errstate(divide="ignore"):
        exponents[seen] = 1.0 / found.w
    return EvidenceBounds(lower, upper, upper - lower, exponents, _status(found, lower, upper))


@dataclass(frozen=True)
class FitSites:
    """The sites of a fit: which active rows have one, their functions, and what exponents they may have.

    ``constant`` is what rows without a variance under q add: their eta is known.
    """

    rows: np.ndarray
    remainders: ObservedRemainders
    cone: Cone
    constant: float


def sites_of_fit(post: Posterior, observed: Observed) -> FitSites:
    """Rows along one line of the latents are one site."""
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
    """How far rounding may have moved h of some active rows, in sds of q, and rho, relative to it.

    Both are generous multiples of root mean squares, as those of the elbo are.
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
    """What rounding may have done to log Z."""
    predictors, alpha = post.predictors, post.alpha
    quadratic = float(predictors.quadratic(alpha, predictors.apply(alpha)))
    terms = np.abs(observed.alpha * observed.h) + 0.5 * np.abs(observed.lam * observed.rho)
    sums = EPS * float(np.sqrt(terms @ terms)) + predictors.quadratic_rounding(alpha, quadratic)
    return _ROUNDINGS * (sums + float(post.factor.log_det_rounding))


def _of_linear_rows(solution: ProvableFit, post: Posterior) -> float:
    """What observations whose log-likelihood is linear add: their sites are these lines, and leave a constant."""
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
    """sum_n E_q gt_n, without a bound on the likelihood."""
    own, moments = observed.likelihood, (observed.h[:, None], observed.rho[:, None], observed.rows)
    try:
        loss = to_numpy(own.exact_loss(*moments).value)
    except NotImplementedError:  # a softmax of two classes
        loss = to_numpy(own.objective.f(*moments))
    weight = np.asarray(observed.rows["weight"])
    value = np.where(weight > 0.0, weight * loss, 0.0)
    return float(np.sum(0.5 * observed.lam * observed.rho - value))


def largest(likelihood: Likelihood) -> float:
    """What log p(y) is at most, whatever the fit: 0 of probabilities, which weights leave below 0."""
    return 0.0 if likelihood.discrete else np.inf


def range_in_words(lower: float, upper: float) -> str:
    """The first words of a status."""
    low, high = rounded_range(lower, upper)
    high = "0, as every probability does," if upper == 0.0 else high
    return f"log p(y) lies between {low} and {high} at these hyperparameters"


def rounded_range(lower: float, upper: float) -> tuple[str, str]:
    """Both ends with the digits that their distance leaves, rounded outwards."""
    places = int(np.clip(1 - np.floor(np.log10(max(upper - lower, 1e-9))), 2, 8)) if np.isfinite(upper) else 2
    unit = 10.0**-places
    return f"{np.floor(lower / unit) * unit:.{places}f}", f"{np.ceil(upper / unit) * unit + 0.0:.{places}f}"


def _status(found: SiteBound, lower: float, upper: float) -> str:
    if not np.isfinite(found.value):
        but = "" if np.isinf(upper) else " but 0, that of every probability"
        return (
            f"no upper bound{but}: the sites of q hold each other so that no exponents are allowed at which all "
            f"integrals are finite and below {HOPELESS:,.0f} nats, as is common where the likelihood is not "
            "log-concave; corrected() has an estimate"
        )
    search = f"the last stage of their search gained {max(found.gain, 0.0):.1g}"
    if not np.isfinite(found.gain):
        search = "their search ended early"
    how = "proved by a Cholesky with a margin for its rounding" if found.proved else "allowed in double precision only"
    return f"{range_in_words(lower, upper)}; {found.w.size} exponents, {how}, {search}; integrals add {found.error:.1g}"
