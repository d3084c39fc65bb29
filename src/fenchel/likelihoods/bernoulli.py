"""Bernoulli-logit: p(y|eta) = e^{y eta} / (1 + e^eta), y in {0, 1}.

    c_h = -y,  a_h = 1,  phi(s) = log(1 + e^s),  k(tau) = tau log tau + (1-tau) log(1-tau)
    "log-sum"  lam = tau             f = -y h + log(1 + exp(h + rho/2))             (tab:fenchelDual)
    "tilted"   lam = tau (1 - tau)   f = -y h + min_a [a^2 rho/2 + log(1 + exp(h + (1-2a) rho/2))]

The tilted bound is the tightest of its family (Saul, Jaakkola and Jordan; Knowles and Minka). Because the curve
tau (1 - tau) is concave, its dual is one convex problem; nothing alternates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import choice, labels
from ..linalg.arrays import Array, is_numpy, namespace
from ..linalg.functions import sigmoid, softplus
from .base import Domain, Likelihood, Rows, Site, flat, is_short
from .potentials import Softplus, tilted_logit_maximiser

_NARROW = 0.1  # a variance up to which twelve Gauss-Hermite nodes integrate a logistic to 1e-14


class LogitLikelihood(Likelihood):
    """A fraction y of successes under a logistic: what Bernoulli and Binomial share."""

    bounds = ("log-sum", "tilted")
    domain = Domain(lower=0.0, upper=1.0)

    def __init__(self, bound: str = "log-sum") -> None:
        choice(self.name, "bound", bound, self.bounds)
        self.bound = bound

    def signs(self, rows: Rows) -> Array:
        return 1.0 + 0.0 * rows["weight"][:, None]

    def site(self, s: Array, rows: Rows) -> Site:
        xp, y = namespace(s), rows["y"][:, None]
        tau, rest, k, spread = Softplus.evaluate(s)
        alpha = tau * (1.0 - y) - rest * y  # tau - y, exact in both tails
        if self.bound == "tilted":
            lam, slope, bend = spread, rest - tau, -2.0 * xp.ones_like(s)
        else:
            lam, slope, bend = tau, xp.ones_like(s), xp.zeros_like(s)
        return Site(tau, alpha, lam, slope, bend, k[:, 0], spread)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return Softplus.coordinate(tau)

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return Softplus.divergence(s_hat, s)[:, 0]

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        return tilted_logit_maximiser(h, rho) if self.bound == "tilted" else h + rho / 2

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array | None:
        return (tau_hat - tau) ** 2 if self.bound == "tilted" else None

    def gap(self, s: Array, h: Array, rho: Array, rows: Rows) -> Array:
        s_hat = self.maximiser(h, rho, s, rows)
        gap = self.divergence(s_hat, s, rows)
        return gap + (sigmoid(s_hat) - sigmoid(s))[:, 0] ** 2 * rho[:, 0] / 2 if self.bound == "tilted" else gap

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        xp = namespace(s)
        return s + xp.log1p(sigmoid(-s) * ds) - xp.log1p(-sigmoid(s) * ds) if is_short(ds) else None

    def start(self, rows: Rows, shrink: float) -> Array:
        xp, y = namespace(rows["y"]), rows["y"][:, None]
        tau, rest = y + shrink * (0.5 - y), (1.0 - y) + shrink * (y - 0.5)  # towards alpha = 0
        return xp.log(tau) - xp.log(rest)

    def constant(self, rows: Rows) -> Array:
        return 0.0 * rows["y"]

    def landmarks(self, rows: Rows) -> list[Array]:
        return [0.0 * rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y, tau, rest = rows["y"][:, None], sigmoid(eta), sigmoid(-eta)
        psi = y * softplus(-eta) + (1.0 - y) * softplus(eta)
        return psi + self.constant(rows)[:, None], tau * (1.0 - y) - rest * y, tau * rest

    @staticmethod
    def moments(h: Array, rho: Array) -> tuple[Array, Array, Array]:
        """E[tau], E[1 - tau] and E[tau (1 - tau)] of tau = sigmoid(eta), each (N,) and exact in both tails."""
        from ..linalg.quadrature import expect, expect_narrow

        h, rho = flat(h), flat(rho)
        xp = namespace(h)

        def integrand(eta: Array, chunk: slice) -> Array:
            tau, rest = sigmoid(eta), sigmoid(-eta)
            return xp.stack([tau, rest, tau * rest])

        if not is_numpy(h):
            out = expect(integrand, h, rho, [0.0 * h])
            return out[0], out[1], out[2]
        narrow = rho <= _NARROW  # nothing in the integrand is as narrow: few nodes will do
        out = np.empty((3, h.shape[0]))
        if narrow.any():
            out[:, narrow] = expect_narrow(integrand, h[narrow], rho[narrow])
        if not narrow.all():
            out[:, ~narrow] = expect(integrand, h[~narrow], rho[~narrow], [0.0 * h[~narrow]])
        return out[0], out[1], out[2]


class BernoulliLogit(LogitLikelihood):
    """Binary targets 0/1 with success probability ``1 / (1 + exp(-eta))``.

    Parameters
    ----------
    bound : {"log-sum", "tilted"}
        The paper's bound, or the tighter one. Both give one convex problem and a duality gap.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BernoulliLogit
    >>> BernoulliLogit().predictive_mean(np.array([0.0]), np.array([4.0])).round(12)
    array([0.5])
    """

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, 2)
        return {"y": np.where(np.isnan(y), 0.0, y)}

    def log_density(self, eta: Array, rows: Rows) -> Array:
        y = rows["y"][:, None]
        return -y * softplus(-eta) - (1.0 - y) * softplus(eta)

    def predictive_mean(self, h: Array, rho: Array, rng: Any = None) -> Array:
        return self.moments(h, rho)[0]

    def predictive_variance(self, h: Array, rho: Array, rng: Any = None) -> Array:
        success, failure, _ = self.moments(h, rho)
        return success * failure

    def predictive_probabilities(self, h: Array, rho: Array, rng: Any = None) -> Array:
        success, failure, _ = self.moments(h, rho)
        return namespace(success).stack([failure, success], axis=1)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BernoulliLogit, np.ndarray]:
        return cls(str(rng.choice(cls.bounds))), rng.integers(0, 2, n).astype(float)
