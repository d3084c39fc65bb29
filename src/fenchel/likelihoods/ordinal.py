"""Ordered levels 0, ..., K-1 by a cumulative logit: P(y <= k) = sigmoid(b_{k+1} - eta), b_1 < ... < b_{K-1}.

    p(y|eta) = sigmoid(hi - eta) - sigmoid(lo - eta) = (1 - e^{lo-hi}) sigmoid(hi - eta) sigmoid(eta - lo)
    -log p   = log(1 + e^{eta - hi}) + log(1 + e^{lo - eta}) - log(1 - e^{lo-hi})

Two potentials on one predictor: s_1 = h + rho/2 (a_h = 1) and s_2 = -h + rho/2 (a_h = -1), lam = tau_1 + tau_2 and
alpha = tau_1 - tau_2. So (tau_1, tau_2) is (alpha, lam) in other coordinates, and this is the paper's full dual of
2N variables (eq:dual-problem). The lowest level has lo = -inf, the highest hi = +inf: that potential is dead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.special import logit

from ..linalg.arrays import Array, ArrayLike, Seed, namespace, to_numpy
from ..linalg.functions import sigmoid, softplus
from ..linalg.logistic import FIRST, PLUS, SECOND, TAU, THIRD, logistic_moments
from .base import Rows, flat
from .bounds import Bound, Bounds, ConvexBound, ExactExpectation
from .cumulative import Cumulative
from .potentials import Softplus
from .sites import Loss
from .softplus_bounds import LogSumLogit, Softpluses, TiltedLogit


class Ordinal(Cumulative):
    """Ordered levels with known cutpoints.

    Parameters
    ----------
    cutpoints : array (K-1,)
        Increasing; level k lies between cutpoints k-1 and k.
    bound : {"best", "log-sum", "tilted", "exact"}

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Ordinal
    >>> Ordinal([-1.0, 1.0]).predictive_probabilities(np.array([0.0]), np.array([0.0])).round(4)
    array([[0.2689, 0.4621, 0.2689]])
    """

    bounds: ClassVar[Bounds] = {
        "log-sum": LogSumLogit,
        "tilted": TiltedLogit,
        "exact": ExactExpectation,
    }
    n_softpluses, softplus_scale = 2, 1.0
    word, aliases, ratio = "ordinal", ("cumulative", "ocat"), "odds_ratio"
    link = staticmethod(logit)

    def __init__(self, cutpoints: ArrayLike, bound: str | type[Bound] = "best") -> None:
        super().__init__(cutpoints, bound)

    def softpluses(self, rows: Rows) -> Softpluses:
        """hi and -lo are subtracted; an open end is dead."""
        xp = namespace(rows["lo"])
        shift = xp.stack([rows["hi"], -rows["lo"]], axis=1)
        return Softpluses(None, shift, xp.isinf(shift))

    def start(self, rows: Rows, shrink: float) -> Array:
        of = self.softpluses(rows)
        shift: Any = of.shift  # it always has one
        xp = namespace(shift)
        zero = xp.zeros_like(shift)
        alone = xp.any(of.dead, axis=1, keepdims=True)  # two live potentials balance: alpha = 0 at any tau
        tau = xp.where(alone, 0.5 * shrink + zero, 0.25 + zero)
        return xp.where(of.dead, zero, Softplus.coordinate(tau) + shift)

    def constant(self, rows: Rows) -> Array:
        xp = namespace(rows["lo"])
        return -xp.log(-xp.expm1(rows["lo"] - rows["hi"]))

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
        bound = self.objective
        if isinstance(bound, ConvexBound):
            tau = bound.site(bound.maximiser(h, rho, bound.start(rows, 1.0), rows), rows).tau
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

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
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
        return cls(cutpoints, str(rng.choice(list(cls.bounds)))), rng.integers(0, 4, n).astype(float)

    def __repr__(self) -> str:
        return f"Ordinal({self.cutpoints.tolist()}, bound={self.bound!r})"
