"""Problems whose bound has no dual: q is given by its sites (beta, lam), and the objective is the ELBO itself.

    m = mu - Sigma W' beta,   V = (Sigma^-1 + W' Lam W)^-1,   h = mt - S beta,   rho = diag(W V W') + c
    P = -1/2 (log|B| - lam'(rho - c) + beta' S beta) - sum f(h, rho)                        eq:primal-problem
    stationary where beta = alpha+ = df/dh and lam = lam+ = 2 df/drho

For a log-concave likelihood sum f is convex in (m, chol V) though not in (h, rho), and -KL is strongly concave there in
the metric of Sigma^-1. So the stationary point is unique, and the residuals bound the distance from the optimum:

    best P - P <= 1/2 (beta - alpha+)' S (beta - alpha+) + 1/2 d' (Vt o S) d,    d = lam - lam+

With few weights under a wide prior u = X' beta is stored, with S = X X': sums over beta would cancel, and the
steep slopes of counts or narrow noise would multiply their rounding errors.

If the prior is far wider than the posterior this bound is loose, and the rounding of alpha+ alone may exceed it.
Close to the optimum the decrement of Newton's step, l^2 = (r, d/2)' H^-1 (r, d/2), replaces it: the
quadratic model predicts a rise of l^2/2, and if the step is short relative to changes of the curvature (``_SHORT``),
the curvature changes by less than half along it, so that l^2 is a bound.

The second term is at most 1/2 (sum |d_n| sqrt(rho_n S_nn))^2, which needs no product and is used if it suffices.
A point is given by s = (h, log rho), at which the sites have the slopes of the likelihood; any s is a start.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .likelihoods.bounds import Curvature
from .linalg.arrays import Array, namespace, to_numpy
from .linalg.dense import NotPositiveDefinite
from .posterior import Posterior
from .priors.base import Factor, Weights
from .priors.class_contrasts import classes_factor
from .priors.newton_systems import CoupledSystem, SiteStep
from .problem import Problem, elbo_rounding

LEAST_VARIANCE = 1e-300  # a variance of exactly 0 (a row of zeros in W) has no log
_SHORT = 0.05  # largest step in h, log rho and the decrement; the curvature then changes by at most e^0.2
_NEAR = 0.1  # relative gap below which the quadrature error is computed
_RESOLVED = 0.5  # share of the quadrature error below which a shortfall is not resolved
_SOLVED = 1e-2  # relative residual of Newton's system from which its decrement is accurate


class PrimalPoint:
    """q at given sites (beta, lam) (N, 1), or (N, P) for contrasts.

    If the factorisation fails or there is a NaN, the elbo is -inf. ``enough`` is the relative gap at which the cheap
    form of the certificate suffices; with None the certificate is not computed until ``prove`` is called.
    """

    def __init__(
        self,
        owner: Problem,
        beta: Array,
        lam: Array,
        enough: float | None,
        factor: Factor | None = None,
        weights: Weights | None = None,
        S_beta: Array | None = None,
    ) -> None:
        self.problem, self.alpha, self.lam, self.enough = owner, beta, lam, enough
        predictors = owner.predictors
        self.weights = predictors.weights_of(beta) if weights is None else weights
        xp, c = namespace(beta), predictors.extra_variance
        self.elbo = -np.inf
        with np.errstate(all="ignore"):
            if self.weights is not None:
                S_beta = predictors.from_weights(self.weights) if S_beta is None else S_beta
                self.quadratic = predictors.weights_norm(self.weights)
            else:
                S_beta = predictors.apply(beta)
                self.quadratic = predictors.quadratic(beta, S_beta)
            self.h = owner.mt - S_beta
            if not (np.isfinite(self.quadratic) and bool(xp.all(xp.isfinite(lam)))):
                return
            try:
                self.factor = owner.predictors.at(lam) if factor is None else factor
                variance = self.factor.variance
            except NotPositiveDefinite:
                return
            self.rho = variance + c
            self.loss = owner.loss(self.h, self.rho)
            kl = 0.5 * (self.factor.log_det - float(xp.sum(lam * variance)) + self.quadratic)
            elbo = -kl - float(xp.sum(self.loss.value)) + owner.shift
        self.elbo = elbo if np.isfinite(elbo) else -np.inf

    @property
    def certificate(self) -> str:
        return "strong-concavity" if self.problem.bound.log_concave else "stationarity"

    @property
    def measure(self) -> str:
        return "relative gap" if self.problem.bound.log_concave else "relative distance from stationarity"

    @property
    def s(self) -> Array:
        """The start of a fit from this point: (h, log rho) (N, 2), or mirror coordinates if the bound has a dual."""
        xp, rows = namespace(self.h), self.problem.rows
        if self.problem.bound.convex:
            dual = self.problem.dual
            return dual.maximiser(self.h, self.rho, dual.start(rows, 1.0), rows)
        h = self.h if self.ahead is None else self.ahead
        return xp.concat([h, xp.log(xp.maximum(self.rho, LEAST_VARIANCE + xp.zeros_like(self.rho)))], axis=1)

    @property
    def r(self) -> Array:
        return self.alpha - self.loss.slopes[0]

    @property
    def d(self) -> Array:
        return self.lam - self.loss.slopes[1]

    @property
    def blur(self) -> float:
        """Quadrature error of P, in nats; it is computed once, at a point close to the optimum."""
        owner = self.problem
        if owner.bound.over_contrasts is None or not self._strong_concavity < _NEAR * max(1.0, abs(self.elbo)):
            return 0.0
        if owner.blur is None:
            owner.blur = self.quadrature
        return owner.blur

    @property
    def resolution(self) -> float:
        """The shortfall, in nats, that the quadrature error hides."""
        return _RESOLVED * self.blur

    ahead: Array | None = None  # h after the next step, if the fit only steers a search

    decrement: float = np.inf  # l^2, close to the optimum

    ceiling: float = np.inf  # a value of the dual, an upper bound on the elbo of every Gaussian

    @property
    def shortfall(self) -> float:
        """Upper bound on the best elbo minus this one."""
        return min(self._strong_concavity, self.decrement, max(0.0, self.ceiling - self.elbo))

    def prove(self, enough: float) -> None:
        """Compute the certificate."""
        self.enough = enough
        self.__dict__.pop("_strong_concavity", None)

    def settle(self, step: SiteStep) -> None:
        """Bound the shortfall by the decrement of Newton's ``step`` from this point, if the step is short enough."""
        xp, rho = namespace(step.dh), self.rho
        moves = xp.abs(step.dh), xp.abs(step.drho) / xp.where(rho > 0.0, rho, xp.ones_like(rho))
        slope = step.slope
        if self.weights is not None and slope >= 0.0:
            # computed in another way, too, which differs if the factor is inaccurate
            slope = max(slope, self.factor.weights_decrement(self.weights, self.loss.slopes[0]))
        short = all(float(xp.max(x)) <= _SHORT for x in moves) and 0.0 <= slope <= _SHORT**2
        if short and step.unsolved <= _SOLVED and self.problem.bound.log_concave:
            self.decrement = slope

    @cached_property
    def _strong_concavity(self) -> float:
        """The strong-concavity bound: the cheap form if it suffices, else the exact one."""
        if not np.isfinite(self.elbo) or self.enough is None:
            return np.inf
        owner, r, d = self.problem, self.r, self.d
        xp = namespace(r)
        with np.errstate(all="ignore"):
            spread = xp.sum(xp.abs(d) * xp.sqrt(self.factor.variance * owner.predictors.variance))
            first = self._mean_part()
            cheap = float(first + 0.5 * spread**2)
            if cheap <= self.enough * max(1.0, abs(self.elbo)):
                return cheap
            exact = first + self.factor.certificate(0.0 * r, d)
        return min(cheap, exact) if 0.0 <= exact < np.inf else cheap

    def _mean_part(self) -> float:
        """1/2 r' S r; computed from X' beta if the rounding of sums over beta would be larger than it."""
        predictors, r = self.problem.predictors, self.r
        pulled = predictors.weights_of(self.loss.slopes[0])
        if self.weights is None or pulled is None:
            return 0.5 * predictors.quadratic(r, predictors.apply(r))
        return 0.5 * predictors.weights_norm([u - v for u, v in zip(self.weights, pulled, strict=True)])

    def moved(self, t: float, pulled: Weights | None) -> Weights | None:
        """X' (beta + t dbeta), given X' dbeta."""
        if self.weights is None or pulled is None:
            return None
        return [u + t * du for u, du in zip(self.weights, pulled, strict=True)]

    @property
    def rounding(self) -> float:
        """Estimate of the rounding error of the elbo, in nats."""
        owner = self.problem
        terms = owner.bound.cancelling(self.h, owner.rows, dual=False)
        return elbo_rounding(self, owner.predictors, owner.weight * terms)

    @property
    def quadrature(self) -> float:
        """Estimate of the quadrature error of the elbo, in nats."""
        owner, bound = self.problem, self.problem.bound.over_contrasts
        if bound is None or not np.isfinite(self.elbo):
            return 0.0
        weight, each = to_numpy(owner.weight), bound.error(self.h, self.rho, owner.rows)
        return max(abs(float(weight @ each)), float(weight @ (each * each)) ** 0.5)

    @property
    def gap(self) -> float:
        """Upper bound on the best elbo minus this one; infinite for a likelihood that is not log-concave."""
        return self.shortfall if self.problem.bound.log_concave else np.inf

    @property
    def dual(self) -> float:
        """Upper bound on the elbo of every Gaussian."""
        return self.elbo + self.gap if np.isfinite(self.elbo) else np.inf

    @property
    def log_evidence(self) -> float:
        return self.elbo

    def system(self, accuracy: float, economical: bool) -> CoupledSystem:
        """Newton's system at this point."""
        symmetric = self.problem.bound.over_contrasts is None
        return CoupledSystem(self.r, self.d, self.lam, self._curvature(), accuracy, economical, symmetric)

    def _curvature(self) -> Curvature:
        """(dh, drho) -> the changes of df/dh beyond lam dh, and of df/drho."""
        owner, loss, bound = self.problem, self.loss, self.problem.bound.over_contrasts
        if bound is None:
            hh, hr, rr = (x[:, None] for x in (loss.hh, loss.hr, loss.rr))
            bend = hh - self.lam
            return lambda dh, drho: (bend * dh + hr * drho, hr * dh + rr * drho)
        changes, w = bound.curvature(self.h, self.rho, owner.rows), owner.weight[:, None]

        def beyond(dh: Array, drho: Array) -> tuple[Array, Array]:
            dalpha, half = changes(dh, drho)
            return w * dalpha - self.lam * dh, w * half

        return beyond

    def posterior(self) -> Posterior:
        """q(z) at this point, for all observations."""
        owner = self.problem
        if owner.bound.over_contrasts is not None:
            return self._posterior_of_classes(owner.bound.over_contrasts.contrasts)
        sites = (owner.full_alpha(self.alpha), owner.full_lam(self.lam))
        return Posterior(
            owner.all_predictors,
            owner.active,
            self.factor,
            sites,
            (self.h, self.rho),
            lambda: owner.full_weights(self.weights),
        )

    def _posterior_of_classes(self, D: np.ndarray) -> Posterior:
        """q of the predictors, if the bound is over their contrasts D eta."""
        owner, classes = self.problem, self.problem.classes
        alpha, lam = owner.full_alpha(self.alpha), owner.full_lam(self.lam)
        factor = classes_factor(classes, self.factor, lam, D)
        weights = factor.split((owner.full_weights(self.weights) or [])[0])
        h, rho = classes.mt - classes.from_weights(weights), factor.variance + classes.extra_variance
        everyone, sites = np.arange(owner.n_observations), (alpha @ D, factor.lam)
        return Posterior(classes, everyone, factor, sites, (h, rho), lambda: weights, factor.Lam)


def from_marginals(owner: Problem, s: Array, enough: float) -> PrimalPoint:
    """The point whose sites have the slopes of the likelihood at s = (h, log rho).

    The sites' parabolas give beta = alpha+ + lam+ (h - s_h), which holds h near s_h even where S has grown since s was
    found; beta = alpha+ alone would be thrown off by S times the change.
    """
    predictors, h = owner.predictors, s[:, : s.shape[1] // 2]
    with np.errstate(all="ignore"):
        alpha, lam = owner.loss(h, namespace(s).exp(s[:, h.shape[1] :])).slopes
        try:
            factor = predictors.at(lam) if bool(namespace(lam).all(namespace(lam).isfinite(lam))) else None
        except NotPositiveDefinite:
            factor = None
        if factor is not None:
            off = owner.mt - predictors.apply(alpha) - h
            alpha = alpha + lam * (off - factor.apply(lam * off))  # (I + Lam S)^-1 lam off
    return PrimalPoint(owner, alpha, lam, enough, factor)


def with_slopes(problem: Problem, b: Array, lam: Array, factor: Factor, enough: float | None) -> PrimalPoint:
    """The point with the natural parameters (b, lam) of its sites: beta = lam m - b."""
    site = b - lam * problem.mt
    weights = factor.weights(site)
    if weights is not None:
        weights = [-u for u in weights]
        fall = problem.predictors.from_weights(weights)
        return PrimalPoint(problem, lam * (problem.mt - fall) - b, lam, enough, factor, weights, fall)
    return PrimalPoint(problem, lam * (problem.mt + factor.apply(site)) - b, lam, enough, factor)


def natural_step(problem: Problem, point: PrimalPoint, t: float, enough: float | None) -> PrimalPoint:
    """The point after t times the natural gradient, in the natural parameters (b, lam) of the sites.

    Raises NotPositiveDefinite where no covariance has these sites.
    """
    h, (alpha, target) = point.h, point.loss.slopes
    lam = (1.0 - t) * point.lam + t * target
    b = (1.0 - t) * (point.lam * h - point.alpha) + t * (target * h - alpha)
    return with_slopes(problem, b, lam, problem.predictors.at(lam), enough)
