"""Ordered levels 0, ..., K-1 by a cumulative logit: P(y <= k) = sigmoid(b_{k+1} - eta), b_1 < ... < b_{K-1}.

    p(y|eta) = sigmoid(hi - eta) - sigmoid(lo - eta) = (1 - e^{lo-hi}) sigmoid(hi - eta) sigmoid(eta - lo)
    -log p   = log(1 + e^{eta - hi}) + log(1 + e^{lo - eta}) - log(1 - e^{lo-hi})

Two potentials on one predictor: s_1 = h + rho/2 (a_h = 1) and s_2 = -h + rho/2 (a_h = -1), lam = tau_1 + tau_2 and
alpha = tau_1 - tau_2. So (tau_1, tau_2) is (alpha, lam) in other coordinates, and this is the paper's full dual of
2N variables (eq:dual-problem). The lowest level has lo = -inf, the highest hi = +inf: that potential is dead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import logit

from ..linalg.arrays import Array, namespace, to_numpy
from ..linalg.functions import sigmoid, softplus
from ..linalg.logistic import FIRST, PLUS, SECOND, TAU, THIRD, logistic_moments
from .base import Rows, flat
from .cumulative import Cumulative
from .potentials import Softplus, tilted_logit_maximiser
from .sites import Domain, Loss, Site


class Ordinal(Cumulative):
    """Ordered levels with known cutpoints.

    Parameters
    ----------
    cutpoints : array (K-1,)
        Increasing; level k lies between cutpoints k-1 and k.
    bound : {"log-sum", "tilted", "exact"}

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Ordinal
    >>> Ordinal([-1.0, 1.0]).predictive_probabilities(np.array([0.0]), np.array([0.0])).round(4)
    array([[0.2689, 0.4621, 0.2689]])
    """

    bounds = ("log-sum", "tilted", "exact")
    layout = (0, 0)
    word, ratio = "ordinal", "odds_ratio"
    link = staticmethod(logit)
    domain = Domain(lower=0.0, upper=1.0)

    def __init__(self, cutpoints: Any, bound: str = "log-sum") -> None:
        super().__init__(cutpoints, bound)

    def relaxed(self) -> Ordinal:
        return self if self.convex else Ordinal(self.cutpoints, "tilted")

    def signs(self, rows: Rows) -> Array:
        xp, one = namespace(rows["weight"]), 1.0 + 0.0 * rows["weight"]
        return xp.stack([one, -one], axis=1)

    @staticmethod
    def _shift(rows: Rows) -> Array:
        """What is subtracted from s before the softplus: (hi, -lo), +inf where the potential is dead."""
        xp = namespace(rows["lo"])
        return xp.stack([rows["hi"], -rows["lo"]], axis=1)

    def site(self, s: Array, rows: Rows) -> Site:
        xp, shift = namespace(s), self._shift(rows)
        tau, rest, k, spread = Softplus.evaluate(s - shift)
        k = k + tau * xp.where(xp.isinf(shift), xp.zeros_like(shift), shift)
        if self.bound == "tilted":
            lam, slope, bend = spread, rest - tau, -2.0 * xp.ones_like(s)
        elif not self.convex:
            raise self._without_dual()
        else:
            lam, slope, bend = tau, xp.ones_like(s), xp.zeros_like(s)
        alpha, lam = tau[:, :1] - tau[:, 1:], lam[:, :1] + lam[:, 1:]
        return Site(tau, alpha, lam, slope, bend, xp.sum(k, axis=1), spread)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        xp, shift = namespace(tau), self._shift(rows)
        dead = xp.isinf(shift)
        inner = xp.where(dead, 0.5 + xp.zeros_like(tau), tau)
        return xp.where(dead, xp.zeros_like(tau), Softplus.coordinate(inner) + shift)

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        xp, shift = namespace(s), self._shift(rows)
        dead = xp.isinf(shift)
        shift = xp.where(dead, xp.zeros_like(shift), shift)
        each = Softplus.divergence(s_hat - shift, s - shift)
        return xp.sum(xp.where(dead, xp.zeros_like(each), each), axis=1)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        xp, shift = namespace(h), self._shift(rows)
        centre = self.signs(rows) * h
        if self.bound != "tilted":
            return centre + rho / 2
        shift = xp.where(xp.isinf(shift), xp.zeros_like(shift), shift)
        return tilted_logit_maximiser(centre - shift, rho, s - shift) + shift

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array | None:
        return (tau_hat - tau) ** 2 if self.bound == "tilted" else None

    def start(self, rows: Rows, shrink: float) -> Array:
        xp, shift = namespace(rows["lo"]), self._shift(rows)
        dead = xp.isinf(shift)
        alone = xp.any(dead, axis=1, keepdims=True)  # two live potentials balance: alpha = 0 at any tau
        level = xp.zeros_like(shift)
        return self.coordinate(xp.where(alone, 0.5 * shrink + level, 0.25 + level), rows)

    def constant(self, rows: Rows) -> Array:
        xp = namespace(rows["lo"])
        return -xp.log(-xp.expm1(rows["lo"] - rows["hi"]))

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, shift = namespace(rows["lo"]), self._shift(rows)
        lo = xp.where(xp.isinf(shift[:, 1]), rows["hi"], rows["lo"])
        hi = xp.where(xp.isinf(shift[:, 0]), rows["lo"], rows["hi"])
        return [lo, hi]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        up, down = eta - rows["hi"][:, None], rows["lo"][:, None] - eta
        first, second = sigmoid(up), sigmoid(down)
        psi = softplus(up) + softplus(down) + self.constant(rows)[:, None]
        return psi, first - second, first * sigmoid(-up) + second * sigmoid(-down)

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """Two logistics, each in its own moments; an open end has none."""
        xp, value, parts = namespace(h), self.constant(rows), []
        for edge, sign in ((rows["hi"], 1.0), (rows["lo"], -1.0)):
            live = xp.isfinite(edge)
            m = logistic_moments(sign * (h[:, 0] - xp.where(live, edge, xp.zeros_like(edge))), rho[:, 0])
            m = xp.where(live[None, :], m, xp.zeros_like(m))
            value = value + m[PLUS, :]
            parts.append([sign * m[TAU, :], m[FIRST, :], sign * m[SECOND, :] / 2, m[THIRD, :] / 4])
        alpha, lam, hr, rr = (up + down for up, down in zip(*parts, strict=True))
        return Loss(value, alpha, lam, lam, hr, rr)

    def _pulls(self, h: Array, rho: Array, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        xp = namespace(h)
        if self.convex:
            tau = self.site(self.maximiser(h, rho, self.start(rows, 1.0), rows), rows).tau
            upper, lower = tau[:, 0], tau[:, 1]
        else:
            ends = []
            for edge, sign in ((rows["hi"], 1.0), (rows["lo"], -1.0)):
                live = xp.isfinite(edge)
                m = logistic_moments(sign * (h[:, 0] - xp.where(live, edge, xp.zeros_like(edge))), rho[:, 0])[TAU, :]
                ends.append(xp.where(live, m, xp.zeros_like(m)))
            upper, lower = ends
        distance = to_numpy(rows["hi"]) - to_numpy(rows["lo"])
        both = np.where(np.isfinite(distance), 1.0 / np.expm1(np.minimum(distance, 700.0)), 0.0)  # of the constant
        return to_numpy(upper) + both, to_numpy(lower) + both

    def predictive_probabilities(self, h: Array, rho: Array, rng: Any = None) -> Array:
        from ..linalg.quadrature import expect

        h, rho = flat(h), flat(rho)
        xp, edges = namespace(h), [-np.inf, *self.cutpoints.tolist(), np.inf]

        def probability(lo: float, hi: float) -> Array:
            width = -float(np.expm1(lo - hi))
            kinks = [b + 0.0 * h for b in (lo, hi) if np.isfinite(b)]

            def inside(eta: Array, chunk: slice) -> Array:
                return width * sigmoid(hi - eta) * sigmoid(eta - lo)

            return expect(inside, h, rho, kinks)

        p = xp.stack([probability(lo, hi) for lo, hi in pairwise(edges)], axis=1)
        return p / xp.sum(p, axis=1, keepdims=True)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Ordinal, np.ndarray]:
        cutpoints = np.cumsum(rng.gamma(2.0, 0.5, 3) + 0.2) - 1.5
        return cls(cutpoints, str(rng.choice(cls.bounds))), rng.integers(0, 4, n).astype(float)

    def __repr__(self) -> str:
        return f"Ordinal({self.cutpoints.tolist()}, bound={self.bound!r})"
