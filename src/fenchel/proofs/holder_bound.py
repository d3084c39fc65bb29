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
from .blocks import pair_up, proportional_curvature, softmax_sites
from .exponents import best_exponents
from .margins import Cone, DenseCone, FactorCone
from .refits import refitted
from .tilted_moments import ObservedRemainders, SiteRemainders, TiltedMoments

_WHERE = "evidence_bounds"
_SAME = 1e-14  # of correlations and unit vectors: rows that differ by more than rounding are not one site
_SHRINKS = (0.0, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)  # of w towards its lowest, tried until it is proved
_REFITS = 4  # of q, at the most
_DAMPING = 0.5  # of the first of them
_PAIRED = 600  # sites up to which pairs of them are tried
_PREDICTORS = 3  # of a softmax, whose integrals have as many dimensions
_PREDICTOR_ROWS = 3000  # predictors of all observations, whose covariance is written out
_UNPROVED = 1e-6  # the same where rounding leaves no proof


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


@dataclass(frozen=True)
class SiteBound:
    """An upper bound of log E prod_c exp gt_c, in nats.

    Attributes
    ----------
    value : float
        sum_c w_c (L_c(1/w_c) + its error).
    w : array (n,)
        1/p.
    error : float
        What was added for the integrals.
    gain : float
        What the last stage of the search for exponents gained.
    proved : bool
        Whether the exponents are allowed in exact arithmetic; else in double precision only.
    """

    value: float
    w: np.ndarray
    error: float
    gain: float
    proved: bool


def bound_sites(sites: SiteRemainders, cone: Cone, floor: float) -> SiteBound:
    """The upper bound of sites of any kind: functions of a standard normal each, and which exponents they may have.

    Parameters
    ----------
    sites : SiteRemainders
    cone : Cone
        Of the directions that the sites see.
    floor : float
        sum_c E gt_c under q, below which no bound is.
    """
    if sites.n == 0:
        return SiteBound(0.0, np.zeros(0), 0.0, 0.0, True)
    moments = TiltedMoments(sites)
    try:
        best = best_exponents(moments, cone, floor)
    except NotPositiveDefinite:
        return SiteBound(np.inf, np.zeros(sites.n), 0.0, np.inf, False)
    w, proved = _proved(cone, best.w)
    value, error = moments.certified(1.0 / w)
    lost = float(w @ error)
    return SiteBound(float(w @ value) + lost, w, lost, best.gain, proved)


def _proved(cone: Cone, w: np.ndarray) -> tuple[np.ndarray, bool]:
    """w moved towards its lowest until it is proved to be allowed."""
    for t in _SHRINKS:
        there = cone.lowest + (1.0 - t) * (w - cone.lowest)
        if cone.proves(there):
            return there, True
    return cone.lowest + (1.0 - _UNPROVED) * (w - cone.lowest), False


def evidence_bounds(solution: ProvableFit, effort: str = "fast") -> EvidenceBounds:
    """Bounds of log p(y) from a fit with one predictor an observation."""
    choice(_WHERE, "effort", effort, ("fast", "high"))
    post, likelihood = solution.posterior, solution.likelihood
    if post.predictors.has_extra_variance:
        got = "the prior has an extra variance, and q does not learn about that part of eta"
        raise problem(_WHERE, got, "a prior whose latents explain all of eta")
    if likelihood.n_predictors > 1:
        return _softmax_bounds(solution)
    observed = observations(solution)
    found = _bound_of(solution, post, observed)
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
    bound: SiteBound
    w: np.ndarray  # of every site

    @property
    def upper(self) -> float:
        return self.log_Z + self.bound.value


def _bound_of(solution: ProvableFit, post: Posterior, observed: Observed) -> _Bounded:
    sites = sites_of_fit(post, observed)
    log_Z = _log_normaliser(post) + _of_linear_rows(solution, post) + sites.constant
    found = bound_sites(sites.remainders, sites.cone, _expected(observed) - sites.constant)
    return _Bounded(post, observed, sites, log_Z, found, found.w)


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


def _softmax_bounds(solution: ProvableFit) -> EvidenceBounds:
    """Bounds of a likelihood of a few predictors: one site an observation."""
    post, likelihood = solution.posterior, solution.likelihood
    seen, C = np.flatnonzero(to_numpy(solution._rows["weight"]) > 0.0), likelihood.n_predictors
    if C > _PREDICTORS or seen.size * C > _PREDICTOR_ROWS:
        got = f"{likelihood.name} has {C} predictors an observation, {seen.size} observed"
        raise problem(_WHERE, got, f"at most {_PREDICTORS} predictors, and {_PREDICTOR_ROWS} in all")
    prior = post.predictors
    whole = [to_numpy(block) for block in prior.at(0.0 * prior.mt).covariance()]
    n = prior.n_observations
    if len(whole) == 1:
        S = whole[0].reshape(n, C, n, C)
    else:
        S = np.zeros((n, C, n, C))
        for c, block in enumerate(whole):
            S[:, c, :, c] = block
    flat = S[np.ix_(seen, np.arange(C), seen, np.arange(C))].reshape(seen.size * C, seen.size * C)
    alpha, lam = to_numpy(post.alpha)[seen], to_numpy(post.lam)[seen]
    Lam = lam[:, :, None] * np.eye(C) if post.curvatures is None else to_numpy(post.curvatures)[seen]
    rows = {key: to_numpy(value)[seen] for key, value in solution._rows.items()}
    times, mt = counted(solution)[seen], to_numpy(prior.mt)[seen]
    tried = []
    for curvature in (Lam, proportional_curvature(flat, Lam)):
        sites, cone, log_Z = softmax_sites(likelihood, rows, times, mt, flat, (alpha, curvature))
        bound = bound_sites(sites, cone, solution.elbo - log_Z)
        tried.append((log_Z + bound.value, bound))
    value, found = min(tried, key=lambda one: one[0])
    blur = solution.rounding + solution.quadrature
    lower, upper = solution.elbo - blur, min(value + blur, largest(likelihood))
    exponents = np.full(n, np.inf)
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
    groups = Lines.labelled(lines.of[rows], lines.sign[rows])
    remainders = ObservedRemainders(observed.take(rows), groups)
    first = rows[groups.first]
    variance = observed.rho[first]
    curvature = remainders.growth / variance
    cone: Cone
    if predictors.negative_sites:
        cone = FactorCone(predictors, first, variance, curvature)
    else:
        cone = DenseCone(predictors.row_covariance(first), variance, curvature)
    return FitSites(rows, remainders, cone, constant)


def _log_normaliser(post: Posterior) -> float:
    """log Z = -(alpha' S alpha + log|B|) / 2."""
    predictors, alpha = post.predictors, post.alpha
    if post.weights is not None:
        quadratic = predictors.weights_norm(post.weights)
    else:
        quadratic = predictors.quadratic(alpha, predictors.apply(alpha))
    return -0.5 * (float(quadratic) + float(post.factor.log_det))


def _of_linear_rows(solution: ProvableFit, post: Posterior) -> float:
    """What observations whose log-likelihood is linear add: their sites are these lines, and leave a constant."""
    weight = to_numpy(solution._rows["weight"])
    rest = np.setdiff1d(np.flatnonzero(weight > 0.0), post.active)
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
            f"no upper bound{but}: the sites of q hold each other so that no exponents with finite integrals are "
            "allowed; a fit under another bound, or a log-concave likelihood, may have one"
        )
    search = f"the last stage of their search gained {max(found.gain, 0.0):.1g}"
    if not np.isfinite(found.gain):
        search = "their search ended early"
    how = "proved by a Cholesky with a margin for its rounding" if found.proved else "allowed in double precision only"
    return f"{range_in_words(lower, upper)}; {found.w.size} exponents, {how}, {search}; integrals add {found.error:.1g}"
