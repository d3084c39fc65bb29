"""One predictor, one potential, lam = tau: what Poisson, stochastic volatility and the like have in common.

    f(h, rho) = c_h h + phi(s) + const,   s = a_h h + rho/2,   phi(s) = c e^s

A subclass states c_h, a_h and c, the checks of its target and its moments. This is also the class to start from for a
likelihood of your own: see ``examples/new_likelihood.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ..linalg.arrays import Array, namespace
from ..linalg.functions import expm1_minus
from .base import Likelihood, Rows
from .bounds import Bounds, ConvexBound
from .potentials import Exponential
from .sites import Domain, Loss, Site

_NEAR, _LONG = 0.95, 20.0  # of tau: how much it may lose on a straight way, and win


class ExponentialSite(ConvexBound):
    """The expectation itself, which is convex: nothing is lost."""

    domain = Domain(lower=0.0)

    def is_flat(self, rows: Rows) -> Array:
        return self.likelihood.rate(rows) == 0.0

    def signs(self, rows: Rows) -> Array:
        return self.likelihood.sign + namespace(rows["weight"]).zeros_like(rows["weight"])[:, None]

    def start(self, rows: Rows, shrink: float) -> Array:
        """Where the row is most likely, and alpha near 0: not shrunk, from above Newton contracts."""
        return self.likelihood.sign * self.likelihood.landmarks(rows)[0][:, None]

    def site(self, s: Array, rows: Rows) -> Site:
        xp, own = namespace(s), self.likelihood
        tau, k, spread = Exponential.evaluate(s, own.rate(rows)[:, None])
        alpha = own.linear(rows)[:, None] + own.sign * tau
        one = xp.ones_like(s)
        return Site(tau, alpha, tau, one, 0.0 * one, k[:, 0], spread)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return Exponential.coordinate(tau, self.likelihood.rate(rows)[:, None])

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return Exponential.divergence(s_hat, s, self.likelihood.rate(rows)[:, None])[:, 0]

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        xp = namespace(s)
        return s + xp.log1p(ds) if bool(xp.all((ds > -_NEAR) & (ds < _LONG))) else None

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        exact: Loss = self.likelihood.exact_loss(h, rho, rows)
        return exact

    def cancelling(self, h: Array, rows: Rows, dual: bool) -> Array:
        xp, own = namespace(h), self.likelihood
        if dual:
            return xp.abs(own.constant(rows)) + xp.abs(own.linear(rows) * h[:, 0])
        return xp.abs(own.floor(rows))


class ExponentialLikelihood(Likelihood):
    """-log p(y|eta) = c_h eta + c e^{a_h eta} + const: the expectation is exact, no bound is needed."""

    sign: float = 1.0
    bound = "none"
    bounds: ClassVar[Bounds] = {"none": ExponentialSite}

    @abstractmethod
    def linear(self, rows: Rows) -> Array:
        """c_h of each observation (N,)."""

    @abstractmethod
    def rate(self, rows: Rows) -> Array:
        """c of each observation (N,), at least 0; a row with c = 0 has no curvature and leaves the system."""

    def landmarks(self, rows: Rows) -> Sequence[Array]:
        """The most likely eta, a_h log(kappa / c) with kappa = -c_h / a_h; kappa at least 1/2, where there is none."""
        kappa, rate = -self.sign * self.linear(rows), self.rate(rows)
        xp = namespace(kappa)
        kappa, rate = xp.where(kappa > 0.5, kappa, 0.5 + 0.0 * kappa), xp.where(rate > 0.0, rate, 1.0 + 0.0 * rate)
        return [self.sign * xp.log(kappa / rate)]

    def log_density(self, eta: Array, rows: Rows) -> Array:
        bend = self.rate(rows)[:, None] * namespace(eta).exp(self.sign * eta)
        return -(self.linear(rows)[:, None] * eta + bend + self.constant(rows)[:, None])

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        bend = self.rate(rows)[:, None] * namespace(eta).exp(self.sign * eta)
        linear = self.linear(rows)[:, None]
        return linear * eta + bend + self.constant(rows)[:, None], linear + self.sign * bend, bend

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """Closed form, E[e^{a eta}] = e^{a h + rho/2}: the bound is the expectation.

        f = kappa (e^x - 1 - x) + kappa rho/2 + floor,   kappa = -c_h / a,   x = a h + rho/2 - log(kappa / c)

        so that the huge terms of a huge count never meet.
        """
        h, rho = h[:, 0], rho[:, 0]
        xp, linear, sign, rate = namespace(h), self.linear(rows), self.sign, self.rate(rows)
        s = sign * h + rho / 2
        bend = rate * xp.exp(s)
        kappa = -sign * linear
        some, one = (kappa > 0.0) & (rate > 0.0), xp.ones_like(s)
        mode = xp.log(xp.where(some, kappa, one) / xp.where(some, rate, one))
        value = xp.where(some, kappa * expm1_minus(s - mode) + kappa * rho / 2, linear * h + bend)
        return Loss(value + self.floor(rows), linear + sign * bend, bend, bend, sign * bend / 2, bend / 4)

    def floor(self, rows: Rows) -> Array:
        """The least that -log p(y|eta) can be (N,): kappa - kappa log(kappa / c) + const; const where kappa is 0."""
        kappa, rate = -self.sign * self.linear(rows), self.rate(rows)
        xp, some = namespace(kappa), (kappa > 0.0) & (rate > 0.0)
        ratio = xp.where(some, kappa, xp.ones_like(kappa)) / xp.where(some, rate, xp.ones_like(kappa))
        return xp.where(some, kappa - kappa * xp.log(ratio), xp.zeros_like(kappa)) + self.constant(rows)
