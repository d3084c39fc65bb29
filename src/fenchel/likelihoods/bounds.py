"""Bounds f(h, rho) >= E[-log p(y|eta)], eta ~ N(h, rho). There are two kinds.

A ``ConvexBound`` (a site) is a curve tau -> (alpha, lam) with a convex conjugate k on it (eq:conjugate),

    f(h, rho) = max_tau [ alpha(tau) h + lam(tau) rho/2 - k(tau) ] + const
    alpha(tau) = c_h + a_h tau (affine),   lam(tau) concave,   k convex

It has a dual. Solvers use the mirror coordinate s = k'(tau), in which every real number is feasible.

A ``DirectBound`` has no dual. It gives ``loss``: f with its slopes and curvature. Examples are the exact expectation of
a logistic loss, and quadratic bounds with an optimised parameter. ``relaxed`` may name a convex bound to start from. It
has one predictor.

Shapes. N observations, C predictors and P potentials an observation: h, rho, alpha, lam are (N, C) and s, tau are
(N, P). Potential p belongs to predictor ``layout[p]``. ``rows`` is what the likelihood's ``prepare`` made. Values are
per unit of weight; the problem multiplies by rows["weight"] (0 = unobserved).

At one point, ``Site`` holds the curve and the conjugate of a convex bound at s, for the dual. ``Loss`` holds f with its
slopes, convex or not, for the exact mode. A convex bound has both, and ``loss_of_site`` computes the second from the
first:

    f(h, rho) = max_tau G,  G = alpha h + lam rho/2 - k
    df = alpha dh + lam drho/2,   d2f = v v' / (k'' - lam'' rho/2),   v = (a_h, lam'/2)      summed over potentials
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..checks import problem
from ..linalg.arrays import Array, namespace, to_numpy
from ..linalg.quadrature import Integrand, expect
from .outcomes import Rows, slice_rows

if TYPE_CHECKING:
    from .base import Likelihood

_REACH = 4.0  # how far one step may move a coordinate that bends on the scale of e
Curvature = Callable[[Array, Array], tuple[Array, Array]]
Parts = Callable[[Array, Rows], tuple[Array, Array, Array]]  # (eta, rows) -> a function of eta and its first two slopes


class Site(NamedTuple):
    """The values of the sites at one s that the dual uses, per unit of weight.

    The derivative of tau is J = diag(spread) - spread spread' / (slack + sum spread) for each observation,
    or diag(spread) when ``slack`` is None (potentials that do not share a normalisation).
    """

    tau: Array  # (N, P)
    alpha: Array  # (N, C)
    lam: Array  # (N, C)
    lam_slope: Array  # (N, P)  d lam / d tau
    lam_curvature: Array  # (N, P)  d2 lam / d tau2, never positive
    k: Array  # (N,)    the conjugate
    spread: Array  # (N, P)
    slack: Array | None = None  # (N,)


@dataclass(frozen=True, slots=True)
class Domain:
    """The domain of tau: lower < tau < upper, and sum_p tau_p < total (= total when ``exactly``).

    Numbers, or arrays that broadcast against tau (lower, upper) and the observations (total).
    """

    lower: Any = -np.inf
    upper: Any = np.inf
    total: Any = np.inf
    exactly: bool = False


class Loss(NamedTuple):
    """f(h, rho) of observations with one predictor, its slopes and its curvature, per unit of weight; all (N,).

    For f = E[psi], psi = -log p: alpha = E[psi'], lam = E[psi''], hh = E[psi''], hr = E[psi''']/2, rr = E[psi'''']/4.
    Only Newton's steps use the curvature; the certificate uses ``value``, ``alpha`` and ``lam``. A bound over several
    contrasts has alpha and lam (N, P), and a separate ``Bound.curvature``. A convex bound of several predictors has
    alpha and lam (N, C) and no curvature.
    """

    value: Array  # f
    alpha: Array  # df/dh
    lam: Array  # 2 df/drho
    hh: Array = None  # type: ignore[assignment] # d2f/dh2
    hr: Array = None  # type: ignore[assignment] # d2f/dh drho
    rr: Array = None  # type: ignore[assignment] # d2f/drho2

    @property
    def slopes(self) -> tuple[Array, Array]:
        """alpha and lam in columns: (N, 1), or (N, P)."""
        one = self.alpha.ndim == 1
        return (self.alpha[:, None], self.lam[:, None]) if one else (self.alpha, self.lam)


def combined(function: Callable[..., Array], *losses: Loss) -> Loss:
    """The loss whose every field is ``function`` of that field of other losses."""
    return Loss(*map(function, *losses))


def loss_of_site(site: Site, signs: Array, h: Array, rho: Array, constant: Array) -> Loss:
    """The loss of a convex bound, from its site at the s where the maximum is reached.

    Of several predictors, h, rho (N, C), it has the value and the slopes; their curvature is coupled.
    """
    xp = namespace(h)
    value = xp.sum(site.alpha * h + site.lam * rho / 2, axis=1) - site.k + constant
    if h.shape[1] > 1:
        return Loss(value, site.alpha, site.lam)
    pull = site.spread / (1.0 - 0.5 * site.lam_curvature * rho * site.spread)
    half = site.lam_slope / 2
    hh, hr, rr = (xp.sum(pull * x, axis=1) for x in (signs * signs, signs * half, half * half))
    return Loss(value, site.alpha[:, 0], site.lam[:, 0], hh, hr, rr)


def expected_loss(
    parts: Parts,
    average: Callable[[Integrand], Array],
    h: Array,
    rho: Array,
    rows: Rows,
    growth: Array | None = None,
    convex: bool = False,
) -> Loss:
    """E[psi], psi = growth e^eta + parts, with its slopes and curvature at h, rho (N, 1).

    ``average`` gives E under N(h, rho); E[e^eta] = e^{h + rho/2} is known. Third and fourth derivatives come by parts:
    E[psi'' t]/rho and E[psi'' (t^2/rho - 1)]/rho, with t = eta - h. The curvature of a ``convex`` psi is held at 0
    where rounding leaves less.
    """
    xp = namespace(h)

    def integrand(eta: Array, index: Any) -> Array:
        value, first, second = parts(eta, slice_rows(rows, index))
        v = rho[index, :]
        sd = xp.sqrt(xp.where(v > 0.0, v, 1.0))
        t = (eta - h[index, :]) / sd
        return xp.stack([value, first, second, second * t / sd, second * (t * t - 1.0) / sd**2])

    out = average(integrand)
    value, alpha, lam, third, fourth = (out[i, :] for i in range(5))
    if growth is not None:
        with np.errstate(over="ignore"):
            mean = growth * xp.exp(h[:, 0] + rho[:, 0] / 2)
        value, alpha, lam, third, fourth = (mean + x for x in (value, alpha, lam, third, fourth))
    lam = xp.where(lam > 0.0, lam, 0.0) if convex else lam
    return Loss(value, alpha, lam, lam, third / 2, fourth / 4)


class Bound(ABC):
    """f(h, rho) of one likelihood: the common base of both kinds."""

    layout: tuple[int, ...] = (0,)
    convex: bool  # whether it is a site
    coupled: bool = False  # whether the potentials of an observation share a normalisation
    needs_independent_predictors: bool = False
    conjugate: bool = False  # whether the best Gaussian q is the posterior, and the elbo the evidence

    def __init__(self, likelihood: Likelihood) -> None:
        self.likelihood: Any = likelihood

    @property
    def log_concave(self) -> bool:
        """Whether exp(-f) is, in eta: without it a stationary point need not be the best."""
        return bool(self.likelihood.log_concave)

    @property
    @abstractmethod
    def dual(self) -> ConvexBound:
        """This bound as a site, or the sentence that it is none."""

    @abstractmethod
    def relaxed(self) -> Likelihood | None:
        """A likelihood of the same rows whose bound is convex and lies near; itself where it is."""

    @abstractmethod
    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """f with its slopes at h, rho (N, C), and its curvature where there is one predictor."""

    def check(self, correlated: bool) -> None:
        """Refuse predictors that are correlated a priori where the bound does not hold for them."""
        if self.needs_independent_predictors and correlated:
            raise problem(
                self.likelihood.name,
                f'bound="{self.likelihood.bound}" does not hold for predictors that are correlated in the prior',
                "independent predictors (one covariance for all, or one each), for which the bound is valid",
                'Use bound="log-sum", which holds under any correlation.',
            )

    def f(self, h: Array, rho: Array, rows: Rows) -> Array:
        """The bound on E[-log p(y|eta)] (N,)."""
        return self.loss(h, rho, rows).value

    @property
    def over_contrasts(self) -> ContrastBound | None:
        """Itself, where f is one of contrasts of the predictors, each with a lam of its own."""
        return None

    def is_flat(self, rows: Rows) -> Array:
        """Observations with lam = 0 whatever s is (N,): they only shift the mean and leave the system."""
        return rows["weight"] != rows["weight"]

    def cancelling(self, h: Array, rows: Rows, dual: bool) -> Array:
        """The size of the terms that cancel in the dual, or in ``loss``, of each observation (N,), at h (N, C).

        Per unit of weight its constant, and a slope in eta of at most 1: that of a label or of a share.
        """
        xp = namespace(h)
        return xp.abs(self.likelihood.constant(rows)) + xp.max(xp.abs(h), axis=1)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        """-sum_n weight_n df_n/dtheta at (h, rho) (N, 1), theta the likelihood's own; here for f = E[psi]."""
        own = self.likelihood
        if own.theta.size == 0:
            return np.zeros(0)
        each = expect(
            lambda eta, chunk: own.theta_slopes(eta, slice_rows(rows, chunk)), h[:, 0], rho[:, 0], own.landmarks(rows)
        )
        return np.asarray(-to_numpy(namespace(h).sum(rows["weight"] * each, axis=-1)))

    def theta_rows(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        """df/dtheta of each row (N,), a parameter at a time, of a bound that is part of another."""
        raise NotImplementedError(f"{type(self).__name__} does not implement theta_rows().")


class DirectBound(Bound):
    """A bound without a dual: a subclass gives ``loss``."""

    convex = False

    @property
    def dual(self) -> ConvexBound:
        got = f"bound={self.likelihood.bound!r} has no convex dual"
        raise problem(self.likelihood.name, got, "a bound with one", "Use infer, or objective.relaxed().")

    def relaxed(self) -> Likelihood | None:
        found: Likelihood | None = self.likelihood.neighbour()
        return found


class ContrastBound(DirectBound):
    """f of the P contrasts D eta of a row's C predictors: h, rho, alpha and lam are those of the contrasts (N, P)."""

    contrasts: np.ndarray  # D (P, C)

    @property
    def over_contrasts(self) -> ContrastBound:
        return self

    @abstractmethod
    def curvature(self, h: Array, rho: Array, rows: Rows) -> Curvature:
        """(dh, drho) -> the changes of alpha and of lam / 2, all (N, P)."""

    @abstractmethod
    def error(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        """How far the rule of the expectation may be off in each row (N,), an estimate."""

    @abstractmethod
    def at_mean(self, h: Array, rows: Rows) -> Loss:
        """The loss at rho = 0: -log p itself."""

    @abstractmethod
    def slopes_of_contrasts(self, alpha: Array, rows: Rows) -> Array:
        """Slopes (N, P) of contrasts that add up to those of the predictors (N, C)."""


class ExactExpectation(DirectBound):
    """The exact expectation f = E[psi]."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        exact: Loss = self.likelihood.exact_loss(h, rho, rows)
        return exact


class ConvexBound(Bound):
    """A site: a subclass gives its curve, its conjugate, and whatever does not follow from these."""

    convex = True
    curved: bool = False  # whether lam bends, so that ``curve_gap`` is not 0
    domain: Domain = Domain()

    @property
    def dual(self) -> ConvexBound:
        return self

    def relaxed(self) -> Likelihood | None:
        own: Likelihood = self.likelihood
        return own

    # -- the curve and its conjugate ---------------------------------------------------------------
    @abstractmethod
    def site(self, s: Array, rows: Rows) -> Site:
        """The curve and the conjugate at s (N, P)."""

    @abstractmethod
    def signs(self, rows: Rows) -> Array:
        """a_h of every potential: an array that broadcasts against (N, P)."""

    @abstractmethod
    def coordinate(self, tau: Array, rows: Rows) -> Array:
        """s = k'(tau), the inverse of ``site(s).tau``."""

    @abstractmethod
    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        """phi(s_hat) - phi(s) - phi'(s)(s_hat - s) >= 0 of each observation (N,), as one stable number."""

    @abstractmethod
    def start(self, rows: Rows, shrink: float) -> Array:
        """A starting s (N, P). ``shrink`` in (0, 1] moves alpha towards 0, where a wide prior wants it."""

    def reach(self, rows: Rows) -> Any:
        """How far one step may move a coordinate before tau(s) runs away: a number, or an array like s.

        The usual one suits potentials that bend on the scale of e; a quadratic one has no limit.
        """
        return _REACH

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        """s once tau has moved straight by J ds, k'(tau + J ds); None where it would come near its boundary.

        To first order it is s + ds. alpha being affine in tau, S alpha then moves exactly as Newton's step foresaw.
        """
        return None

    def domain_of(self, rows: Rows) -> Domain:
        """Where tau may lie in these rows."""
        return self.domain

    # -- what follows ------------------------------------------------------------------------------
    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        """s_hat(h, rho), where the maximum that defines f is reached. Affine lam: the coordinate itself.

        ``s`` is any current point; a curved lam may start its search there.
        """
        site = self.site(s, rows)
        return self.seen_from(h, rho, site.lam_slope, rows)

    def seen_from(self, h: Array, rho: Array, lam_slope: Array, rows: Rows) -> Array:
        """s* = a_h h + lam'(tau) rho/2 (N, P): where q says the sites are."""
        return self.signs(rows) * self.spread_out(h) + lam_slope * self.spread_out(rho) / 2

    def spread_out(self, x: Array) -> Array:
        """Predictor values (N, C) repeated for every potential (N, P)."""
        layout = self.layout
        if layout == tuple(range(self.likelihood.n_predictors)):
            return x
        return namespace(x).stack([x[:, c] for c in layout], axis=1)

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array:
        """lam(tau_hat) + lam'(tau_hat)(tau - tau_hat) - lam(tau) >= 0 (N, P), of a curved lam."""
        return 0.0 * tau

    def f(self, h: Array, rho: Array, rows: Rows) -> Array:
        """The bound on E[-log p(y|eta)] (N,), from its definition as a maximum."""
        s_hat = self.maximiser(h, rho, self.start(rows, 1.0), rows)
        site = self.site(s_hat, rows)
        xp = namespace(h)
        linear = xp.sum(site.alpha * h + site.lam * rho / 2, axis=1)
        return linear - site.k + self.likelihood.constant(rows)

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        site = self.site(self.maximiser(h, rho, self.start(rows, 1.0), rows), rows)
        return loss_of_site(site, self.signs(rows), h, rho, self.likelihood.constant(rows))

    def gap(self, s: Array, h: Array, rho: Array, rows: Rows) -> Array:
        """max_tau' G(tau') - G(tau) >= 0 of each observation (N,), G = alpha h + lam rho/2 - k."""
        xp = namespace(s)
        s_hat = self.maximiser(h, rho, s, rows)
        gap = self.divergence(s_hat, s, rows)
        if not self.curved:
            return gap
        bend = self.curve_gap(self.site(s_hat, rows).tau, self.site(s, rows).tau)
        return gap + xp.sum(bend * self.spread_out(rho) / 2, axis=1)

    def gap_bound(self, g: Array, rho: Array, rows: Rows) -> Array | None:
        """Above ``gap``, from the slope g = s - s* (N, P) alone; None where nothing so cheap is known.

        G is strongly concave in tau: gap <= g^2 / (2 m), m the least of k'' - lam'' rho/2 over all tau.
        """
        return None


class ExactSite(ConvexBound):
    """A convex bound that equals the expectation."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        exact: Loss = self.likelihood.exact_loss(h, rho, rows)
        return exact


Bounds = Mapping[str, type[Bound]]  # the bounds of a likelihood, by their words

_SHORT = 0.7  # a step of tau relative to its distance from the boundary up to which it goes straight


def is_short(*steps: Array) -> bool:
    """Whether relative steps stay well away from -1."""
    return all(bool(namespace(x).all(namespace(x).abs(x) < _SHORT)) for x in steps)
