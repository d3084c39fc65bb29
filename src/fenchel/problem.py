"""An inference problem (likelihood, prior and y): its dual with gradient, curvature and certificate.

    D(tau) = 1/2 alpha' S alpha - mt' alpha - 1/2 log|B| - 1/2 c' lam + sum k - sum const        eq:dual-simple
    h = mt - S alpha,   s* = a_h h + lam' rho/2,   grad_tau D = s - s*
    P      = -1/2 (log|B| - lam'(rho - c) + alpha' S alpha) - sum f(h, rho)                       eq:primal-problem
    gap    = D - P = sum_n [max_tau' G_n(tau') - G_n(tau)] >= 0,   P <= best ELBO <= D

Rows without curvature (unobserved, exposure 0, a return of exactly 0) are removed from the system: their constant alpha
shifts the mean of the others, and they are predicted after the fit.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np

from . import gates
from .checks import first, numeric, problem
from .likelihoods.base import Likelihood, Rows, Targets, slice_rows
from .likelihoods.bounds import Bound, ConvexBound, Loss, Site
from .linalg.arrays import Array, ArrayLike, asarray, is_numpy, namespace, to_numpy
from .linalg.dense import NotPositiveDefinite, asarray_index
from .linalg.machine import in_blocks
from .posterior import Posterior
from .priors.base import EPS, NewtonSystem, Predictors, Prior
from .priors.class_contrasts import contrasted

_ROUNDED = 30.0  # multiple of the rounding of h by which h and its sites may differ


class Problem:
    """An inference problem, as a solver uses it.

    Attributes
    ----------
    active : indices of the observations in the system; the arrays below have only these rows
    classes : the predictors of all observations; a bound over contrasts uses their contrasts
    predictors : the prior bound to the active observations, whose ``mt`` is the shifted prior mean
    rows, weight : the likelihood's data and weights
    """

    def __init__(
        self, likelihood: Likelihood, prior: Prior, y: ArrayLike | Targets, weights: ArrayLike | None = None
    ) -> None:
        self.likelihood, self.prior = likelihood, prior
        like = prior.like
        targets = y if isinstance(y, Targets) else Targets(likelihood, y, weights)
        self.y = targets.y
        self.all_rows = {key: asarray(v, like) for key, v in targets.rows_of(likelihood).items()}
        self.n_observations = int(self.all_rows["weight"].shape[0])
        self.all_predictors = prior.bind(self.n_observations, likelihood.n_predictors, self.bound.coupled)
        self.bound.check(self.all_predictors.correlated)
        if (over := self.bound.over_contrasts) is not None:
            self.classes, self.all_predictors = contrasted(self.all_predictors, over.contrasts, likelihood.name)
        self._set_aside()

    @property
    def bound(self) -> Bound:
        """The bound of the likelihood that is used."""
        return self.likelihood.objective

    @property
    def dual(self) -> ConvexBound:
        """The bound as a convex one; an error if it has no dual."""
        return self.likelihood.objective.dual

    def _set_aside(self) -> None:
        """Split the observations into those with curvature and the rest, whose alpha is a constant."""
        rows, full = self.all_rows, self.all_predictors
        weight = rows["weight"]
        xp, keep = namespace(weight), to_numpy((weight > 0.0) & ~self.bound.is_flat(rows))
        self.active = np.flatnonzero(keep)
        self._fixed: Array | None = None  # alpha of the inactive rows, 0 for the active ones; None if all are active
        if keep.all():
            self.predictors, self.mt, self.rows, self.shift = full, full.mt, rows, 0.0
        else:
            aside = asarray(~keep, weight)
            self._fixed = fixed = self._fixed_alpha(weight * aside)
            kept_weight = weight * (1.0 - aside)
            if self.active.size == 0:
                self.active = np.zeros(1, dtype=int)  # without any curvature one row of weight 0 keeps the shapes
            index = asarray_index(self.active, weight)
            S_alpha = full.apply(fixed)
            self.mt = xp.take(full.mt - S_alpha, index, axis=0)
            self.rows = {k: xp.take(v, index, axis=0) for k, v in {**rows, "weight": kept_weight}.items()}
            self.predictors = full.restrict(self.active)
            # E exp(-a' eta) = exp(-mt' a + a' S a / 2) for the linear rows, with their base measure
            quadratic = xp.sum(fixed * (0.5 * S_alpha - full.mt))
            self.shift = float(quadratic - xp.sum(aside * weight * self.likelihood.constant(rows)))
        self.weight = self.rows["weight"]
        self.weighted = bool(xp.any(self.weight != 1.0))
        self.blur: float | None = None  # cached quadrature error of the elbo
        self.constant = float(xp.sum(self.weight * self.likelihood.constant(self.rows)))

    def _fixed_alpha(self, weight: Array) -> Array:
        """alpha of rows without curvature, which does not depend on s."""
        near, rows = self.bound.relaxed(), self.all_rows
        if near is None or self.bound.over_contrasts is not None:
            return 0.0 * self.all_predictors.mt
        dual = near.objective.dual
        return weight[:, None] * self.site(dual.start(rows, 1.0), rows, dual).alpha

    def relaxed(self) -> Problem | None:
        """The same problem under a bound with a dual, if its own has none; None if the likelihood has no such bound."""
        near = self.bound.relaxed()
        if near is None:
            return None
        out = copy.copy(self)
        out.likelihood = near
        if self.bound.over_contrasts is not None:  # the dual is in the predictors, not their contrasts
            out.likelihood = near.changed(bound="log-sum") if self.classes.correlated else near
            out.all_predictors = self.classes
            out._set_aside()
        out.constant = float(namespace(self.weight).sum(self.weight * near.constant(self.rows)))
        return out

    # -- the likelihood, in blocks of rows ---------------------------------------------------------
    def site(self, s: Array, rows: Rows | None = None, bound: ConvexBound | None = None) -> Site:
        """The sites of the active rows, or of given rows."""
        given, kind = self.rows if rows is None else rows, bound or self.dual
        if not is_numpy(s):
            return kind.site(s, given)

        def one(block: slice) -> tuple[Any, ...]:
            return kind.site(s[block], slice_rows(given, block))

        return Site(*in_blocks(s.shape[0], one))

    def loss(self, h: Array, rho: Array) -> Loss:
        """f of the active rows with its slopes and curvature, weighted."""
        w, bound = self.weight, self.bound

        def weighted(x: Array, weight: Array) -> Array:
            weight = weight if x.ndim == 1 else weight[:, None]
            return namespace(x).where(weight > 0.0, weight * x, namespace(x).zeros_like(x))

        def one(block: slice) -> tuple[Any, ...]:
            loss = bound.loss(h[block, :], rho[block, :], slice_rows(self.rows, block))
            return tuple(weighted(x, w[block]) if self.weighted and x is not None else x for x in loss)

        return Loss(*(in_blocks(h.shape[0], one) if is_numpy(h) else one(slice(0, h.shape[0]))))

    def gaps(self, s: Array, h: Array, rho: Array) -> Array:
        """The gap of each active row (N,)."""
        dual = self.dual
        if not is_numpy(s):
            return dual.gap(s, h, rho, self.rows)
        return in_blocks(s.shape[0], lambda b: (dual.gap(s[b], h[b], rho[b], slice_rows(self.rows, b)),))[0]

    def straight(self, s: Array, ds: Array) -> Array | None:
        """s after a straight step J ds of tau; None if a row would come close to the boundary of its domain."""
        dual, bent = self.dual, False
        if not is_numpy(s):
            return dual.straight(s, ds, self.rows)

        def one(block: slice) -> tuple[Any, ...]:
            nonlocal bent
            there = None if bent else dual.straight(s[block], ds[block], slice_rows(self.rows, block))
            bent = bent or there is None
            return (s[block] if there is None else there,)

        there = in_blocks(s.shape[0], one)[0]
        return None if bent else there

    # -- points ------------------------------------------------------------------------------------
    def at(self, s: Array) -> DualPoint:
        """Evaluate the dual at s (N, P). A failed factorisation or a NaN is a point with dual = +inf."""
        return DualPoint(self, s)

    def default_start(self) -> Array:
        """The start of the likelihood, with alpha shrunk until the quadratic term of the prior does not dominate.

        A trial costs O(N^2): the dual along the likelihood's path, with log|B| replaced by its Hadamard bound.
        """
        xp, w, dual = namespace(self.weight), self.weight, self.dual
        only = dual.start(self.rows, 1.0)
        if not bool(xp.any(dual.start(self.rows, 0.25) != only)):
            return only  # alpha is small at the start of this likelihood
        variance, c = self.predictors.variance, self.predictors.extra_variance
        path, best = list[Array](), np.inf
        for power in range(16):
            s = dual.start(self.rows, 4.0**-power)
            site = dual.site(s, self.rows)
            alpha, lam = w[:, None] * site.alpha, w[:, None] * site.lam
            value = xp.sum(alpha * (0.5 * self.predictors.apply(alpha) - self.mt)) + xp.sum(w * site.k)
            value = float(value - 0.5 * xp.sum(xp.log1p(lam * variance) + c * lam))
            if value >= best - 1e-9 * abs(value):
                break
            path.append(s)
            best = value
        # one level above the best: full steps succeed from there, while from below the search backtracks
        return path[max(0, len(path) - 2)] if path else only

    def start_from(self, start: Any) -> Array:
        """Check a user's start, an s (N,) or (N, P) or a Solution, and return its s at the active rows."""
        value = self._coordinates_of(start) if hasattr(start, "posterior") else start
        s = numeric("infer", "start", value if namespace(value) is np else to_numpy(value))
        P = len(self.bound.layout) if self.bound.convex else 2 * self.mt.shape[1]
        s = s[:, None] if s.ndim == 1 and P == 1 else s
        if s.shape != (self.n_observations, P):
            meaning = "one s a potential" if self.bound.convex else "mean and log variance of each eta"
            wanted = f"({self.n_observations}, {P}): {meaning}, or a Solution"
            raise problem("infer", f"start has shape {s.shape}", wanted)
        if (bad := ~np.isfinite(s := s[self.active])).any():
            raise problem("infer", f"start{first(bad)} is not finite", "finite numbers; any are feasible")
        return asarray(s, self.weight)

    def _coordinates_of(self, start: Any) -> Array:
        """The s of a Solution in the coordinates of this problem's bound; its marginals if that is another bound."""
        if hasattr(start, "s") and start.likelihood.objective.convex is self.bound.convex:
            return start.s
        h, rho = start.posterior.mean, start.posterior.variance
        if h.shape != (self.n_observations,):
            return start.s  # the same bound; another shape is refused later
        if not self.bound.convex:
            return np.stack([to_numpy(h), np.log(np.maximum(to_numpy(rho), 1e-300))], axis=1)
        h, rho, rows = asarray(h[:, None], self.weight), asarray(rho[:, None], self.weight), self.all_rows
        return self.dual.maximiser(h, rho, self.dual.start(rows, 1.0), rows)

    @property
    def fixed_alpha(self) -> Array:
        """alpha (N, C) of the inactive rows, 0 for the active ones."""
        return 0.0 * self.all_predictors.mt if self._fixed is None else self._fixed

    def full_s(self, s: Array) -> Array:
        """s of all observations; inactive ones have the start of the bound, or (h, log rho) of the prior."""
        if self._fixed is None:
            return s
        if self.bound.convex:
            return self._scatter(self.dual.start(self.all_rows, 1.0), s)
        xp, full = namespace(s), self.all_predictors
        rho = xp.maximum(full.variance + full.extra_variance, 1e-300 + xp.zeros_like(full.variance))
        return self._scatter(xp.concat([full.mt, xp.log(rho)], axis=1), s)

    def full_alpha(self, alpha: Array) -> Array:
        return alpha if self._fixed is None else self._fixed + self._scatter(0.0 * self._fixed, alpha)

    def full_weights(self, weights: list[Array] | None) -> list[Array] | None:
        """The weights of alpha of all rows, active and inactive."""
        if weights is None or self._fixed is None:
            return weights
        others = self.all_predictors.weights_of(self._fixed) or []
        return [u + v for u, v in zip(weights, others, strict=True)]

    def full_lam(self, lam: Array) -> Array:
        return lam if self._fixed is None else self._scatter(0.0 * self._fixed, lam)

    def _scatter(self, everywhere: Array, values: Array) -> Array:
        if self.active.size == self.n_observations:
            return values
        out = np.array(to_numpy(everywhere))
        out[self.active] = to_numpy(values)
        return asarray(out, values)


class DualPoint:
    """The dual at one s; what needs rho is computed when it is first read."""

    certificate, measure = "duality", "relative gap"
    quadrature = resolution = 0.0  # its terms need no quadrature

    def __init__(self, owner: Problem, s: Array) -> None:
        self.problem, self.s = owner, s
        w, xp = owner.weight, namespace(s)
        with np.errstate(over="ignore", invalid="ignore"):
            site = owner.site(s)
            self.alpha, self.lam = site.alpha, site.lam
            if owner.weighted:
                self.alpha, self.lam = w[:, None] * self.alpha, w[:, None] * self.lam
            self.S_alpha = owner.predictors.apply(self.alpha)
            self.quadratic = owner.predictors.quadratic(self.alpha, self.S_alpha)
            # summed by row first, since k and mt alpha cancel for large y
            value = 0.5 * self.quadratic + float(xp.sum(w * site.k - xp.sum(owner.mt * self.alpha, axis=1)))
            value -= 0.5 * float(xp.sum(owner.predictors.extra_variance * self.lam))
        self.site = site._replace(tau=None, alpha=None, lam=None, k=None)  # type: ignore[arg-type] # not asked for again: memory for the next point
        self.dual = np.inf
        if np.isfinite(value) and bool(xp.all(xp.isfinite(self.lam))):
            try:
                self.factor = owner.predictors.at(self.lam)
            except NotPositiveDefinite:
                return
            value = value - 0.5 * self.factor.log_det - owner.constant + owner.shift
            self.dual = value if np.isfinite(value) else np.inf

    @cached_property
    def h(self) -> Array:
        """E[eta] (N, C)."""
        return self.problem.mt - self.S_alpha  # eq:mstar

    @cached_property
    def rho(self) -> Array:
        """Var[eta] (N, C)."""
        return self.factor.variance + self.problem.predictors.extra_variance

    @cached_property
    def g(self) -> Array:
        """s - s*, the gradient of the dual in (weighted) tau (N, P)."""
        return self.s - self.problem.dual.seen_from(self.h, self.rho, self.site.lam_slope, self.problem.rows)

    @cached_property
    def gap(self) -> float:
        """D - P as a sum of nonnegative terms; with very many observations a cheap upper bound, if there is one."""
        owner = self.problem
        with np.errstate(over="ignore", invalid="ignore"):
            many = owner.weight.shape[0] >= gates.BOUNDED_GAP
            each = owner.dual.gap_bound(self.g, self.rho, owner.rows) if many else None
            if each is None:
                each = owner.gaps(self.s, self.h, self.rho)
            xp = namespace(each)
            gap = float(xp.sum(xp.where(owner.weight > 0.0, owner.weight * each, xp.zeros_like(each))))
        return gap if gap == gap else np.inf

    @cached_property
    def elbo(self) -> float:
        """P with all constants: a lower bound on log p(y)."""
        return self.dual - self.gap

    @property
    def shortfall(self) -> float:
        """The gap, which a solver decreases to zero."""
        return self.gap

    @property
    def blur(self) -> float:
        """The gap that results from the spacing of floating-point numbers at s, which changes h = mt - S alpha."""
        owner, xp = self.problem, namespace(self.s)
        spread = xp.sum(owner.weight[:, None] * self.site.spread, axis=1)[:, None]
        moved = owner.predictors.variance * spread * EPS * xp.max(xp.abs(self.s), axis=1)[:, None]
        return 0.5 * float(xp.sum(spread * moved * moved))

    @property
    def rounding(self) -> float:
        """Estimate of the rounding error of the elbo, in nats."""
        owner = self.problem
        terms = owner.bound.cancelling(self.h, owner.rows, dual=True)
        return elbo_rounding(self, owner.predictors, owner.weight * terms)

    @property
    def log_evidence(self) -> float:
        """The estimate of log p(y): the elbo."""
        return self.elbo

    def posterior(self) -> Posterior:
        """q(z) at this point, for all observations."""
        owner, h = self.problem, self._unrounded_h()
        sites = (owner.full_alpha(self.alpha), owner.full_lam(self.lam))

        def weights() -> list[Array] | None:
            # u with X u = S alpha = mt - h, by A u = X' (alpha + Lam X u), which a wide prior does not cancel
            return owner.full_weights(self.factor.weights(self.alpha + self.lam * (owner.mt - h)))

        return Posterior(owner.all_predictors, owner.active, self.factor, sites, (h, self.rho), weights)

    def _unrounded_h(self) -> Array:
        """h, or its value from the sites, s = a_h h + lam' rho/2, if both differ only by the rounding of S alpha."""
        owner, h, g, spread = self.problem, self.h, self.g, self.site.spread
        if self.s.shape != h.shape:
            return h
        xp = namespace(g)
        if self.site.slack is not None and not bool(xp.any(self.site.slack > 0.0)):
            g = g - (xp.sum(spread * g, axis=1) / xp.sum(spread, axis=1))[:, None]  # s is unique up to this constant
        spacing = owner.weight[:, None] * spread * (1.0 + xp.abs(self.s))
        noise = owner.predictors.mean_rounding(xp.abs(self.alpha) + spacing)
        if noise is None or not bool(xp.all(xp.abs(g) <= _ROUNDED * noise)):
            return h
        return h + owner.dual.signs(owner.rows) * g

    def primal(self) -> float:
        """P from its own formula, as a check on ``elbo``."""
        owner, xp, c = self.problem, namespace(self.s), self.problem.predictors.extra_variance
        f = owner.bound.f(self.h, self.rho, owner.rows)
        inner = self.factor.log_det - float(xp.sum(self.lam * (self.rho - c))) + self.quadratic
        return -0.5 * inner - float(xp.sum(owner.weight * f)) + owner.shift

    def newton_system(self, accuracy: float = 1e-8, economical: bool = False) -> NewtonSystem:
        """The weighted quantities of Newton's system at this point."""
        owner, site = self.problem, self.site
        w, xp = owner.weight[:, None], namespace(owner.weight)
        rho = owner.dual.spread_out(self.rho)
        safe = xp.where(w > 0.0, w, xp.ones_like(w))
        return NewtonSystem(
            g=self.g,
            signs=owner.dual.signs(owner.rows),
            slope=site.lam_slope,
            extra=-0.5 * site.lam_curvature * rho / safe,
            spread=w * site.spread,
            slack=None if site.slack is None else owner.weight * site.slack,
            layout=owner.dual.layout,
            accuracy=accuracy,
            economical=economical,
        )


# -- Rounding error of the elbo ------------------------------------------------------------------
_SUMS = 4.0  # multiple of the root mean square error of sums
_LOG_DET = 8.0  # multiple of that of log|B|
_CANCELLING = 4.0  # roundings in each term that cancels, since it is a sum itself (log-gammas, exponentials)


def elbo_rounding(point: Any, predictors: Predictors, largest: Array) -> float:
    """Estimate of the rounding error of the elbo at a point; ``largest`` (N,): the size of cancelling terms by row.

    It adds the errors of log|B| (``Factor.log_det_rounding``), of alpha' S alpha (``Predictors.quadratic_rounding``)
    and of the sum over observations (eps times the cancelling terms). All are root mean squares; compared
    with 50 digits on some hundred hard problems, errors reached 2 times those of the sums and 6 times that of log|B|.
    """
    if not np.isfinite(point.elbo):
        return np.inf
    alpha, xp = point.alpha, namespace(point.alpha)
    with np.errstate(over="ignore", invalid="ignore"):
        terms = xp.sum(xp.abs(alpha * point.h) + xp.abs(point.lam * point.rho) / 2, axis=1) + _CANCELLING * largest
        square = float(xp.sum(terms * terms)) + point.elbo * point.elbo  # a power of Python floats raises
        sums = EPS * float(np.sqrt(square)) + predictors.quadratic_rounding(alpha, point.quadratic)
        total = _SUMS * sums + _LOG_DET * point.factor.log_det_rounding
    return float(total) if total == total else np.inf
