"""One predictor, one potential, lam = tau: what Poisson, stochastic volatility and the like have in common.

    f(h, rho) = c_h h + phi(s) + const,   s = a_h h + rho/2,   phi(s) = c e^s

A subclass states c_h, a_h and c, the checks of its target, its density and its moments. This is also the
class to start from for a likelihood of your own: see ``examples/new_likelihood.py``.
"""

from __future__ import annotations

from abc import abstractmethod

from ..linalg.arrays import Array, namespace
from .base import Likelihood, Rows, is_short
from .potentials import Exponential
from .sites import Domain, Loss, Site


class ExponentialLikelihood(Likelihood):
    """-log p(y|eta) = c_h eta + c e^{a_h eta} + const: the expectation is exact, no bound is needed."""

    sign: float = 1.0
    domain = Domain(lower=0.0)

    @abstractmethod
    def linear(self, rows: Rows) -> Array:
        """c_h of each observation (N,)."""

    @abstractmethod
    def rate(self, rows: Rows) -> Array:
        """c of each observation (N,), at least 0; a row with c = 0 has no curvature and leaves the system."""

    def is_flat(self, rows: Rows) -> Array:
        return self.rate(rows) == 0.0

    def signs(self, rows: Rows) -> Array:
        return self.sign + namespace(rows["weight"]).zeros_like(rows["weight"])[:, None]

    def site(self, s: Array, rows: Rows) -> Site:
        xp = namespace(s)
        tau, k, spread = Exponential.evaluate(s, self.rate(rows)[:, None])
        alpha = self.linear(rows)[:, None] + self.sign * tau
        one = xp.ones_like(s)
        return Site(tau, alpha, tau, one, 0.0 * one, k[:, 0], spread)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return Exponential.coordinate(tau, self.rate(rows)[:, None])

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return Exponential.divergence(s_hat, s, self.rate(rows)[:, None])[:, 0]

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        return s + namespace(s).log1p(ds) if is_short(ds) else None

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        bend = self.rate(rows)[:, None] * namespace(eta).exp(self.sign * eta)
        linear = self.linear(rows)[:, None]
        return linear * eta + bend + self.constant(rows)[:, None], linear + self.sign * bend, bend

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        # closed form: E[e^{a eta}] = e^{a h + rho/2}; the bound is the expectation
        h, rho = h[:, 0], rho[:, 0]
        bend = self.rate(rows) * namespace(h).exp(self.sign * h + self.sign**2 * rho / 2)
        linear, sign = self.linear(rows), self.sign
        value = linear * h + bend + self.constant(rows)
        return Loss(value, linear + sign * bend, sign**2 * bend, sign**2 * bend, sign**3 * bend / 2, sign**4 * bend / 4)
