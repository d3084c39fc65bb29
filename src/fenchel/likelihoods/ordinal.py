"""Ordered levels 0, ..., K-1 by a cumulative logit: P(y <= k) = sigmoid(b_{k+1} - eta), b_1 < ... < b_{K-1}.

    p(y|eta) = sigmoid(hi - eta) - sigmoid(lo - eta) = (1 - e^{lo-hi}) sigmoid(hi - eta) sigmoid(eta - lo)
    -log p   = log(1 + e^{eta - hi}) + log(1 + e^{lo - eta}) - log(1 - e^{lo-hi})

Two potentials on one predictor: s_1 = h + rho/2 (a_h = 1) and s_2 = -h + rho/2 (a_h = -1), lam = tau_1 + tau_2 and
alpha = tau_1 - tau_2. So (tau_1, tau_2) is (alpha, lam) in other coordinates, and this is the paper's full dual of
2N variables (eq:dual-problem). The lowest level has lo = -inf and the highest hi = +inf: that potential is absent.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.special import logit

from ..checks import finite, labels, numeric, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from ..linalg.functions import logistic_parts, sigmoid
from ..linalg.logistic_normal import FIRST, PLUS, SECOND, TAU, THIRD, logistic_moments
from ..linalg.quadrature import expect
from ..transforms import STEPS
from .base import Likelihood, Rows, flat
from .bounds import Bound, Bounds, ExactExpectation, Loss
from .outcomes import ElementaryTerms
from .parameters import Parameter
from .softplus_bounds import LogSumLogit, Softplus, Softpluses, TiltedLogit


def by_steps(cut: np.ndarray, cutpoints: np.ndarray) -> np.ndarray:
    """Slopes in ``theta`` from those in the cutpoints, the two open ends included (K + 1,)."""
    return STEPS.pull(cutpoints, cut[1:-1])  # a cutpoint moves with every step before it


def _frequencies(own: Cumulative, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The link of the cumulative frequencies; no level is without weight."""
    share = np.bincount(y.astype(int), weights=w) + 0.5
    return own.link(np.cumsum(share)[:-1] / share.sum())


def _reach(own: Cumulative, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Cutpoints grow with the latent function, whose standard deviation may reach a hundred."""
    return np.array([[-1e3, 1e3], *(np.log([1e-8, 1e3]) for _ in own.cutpoints[1:])])


class Cumulative(Likelihood):
    """Ordered levels: level k lies between two cutpoints; the lowest has no lower end, the highest no upper end."""

    support, ordered, moves_eta, rows_hold_parameters = "levels", True, True, True
    parameters = (Parameter("cutpoint", "cutpoints", STEPS, bounds=_reach, start=_frequencies),)

    def __init__(self, cutpoints: ArrayLike, bound: str | type[Bound]) -> None:
        self._choose(bound)
        b = finite(self.name, "cutpoints", np.atleast_1d(numeric(self.name, "cutpoints", cutpoints)))
        if b.ndim != 1 or b.size == 0 or (np.diff(b) <= 0).any():
            raise problem(
                self.name,
                f"cutpoints {b.tolist()} do not increase",
                "K-1 increasing numbers for K levels",
                "Sort them, and merge levels that share a cutpoint.",
            )
        self.cutpoints, self.n_levels = b, int(b.size) + 1

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, self.n_levels)
        level = np.where(np.isnan(y), 0, y).astype(int)
        edges = np.concatenate([[-np.inf], self.cutpoints, [np.inf]])
        return {"level": level.astype(np.float64), "lo": edges[level], "hi": edges[level + 1]}

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, lo, hi = namespace(rows["lo"]), rows["lo"], rows["hi"]
        return [xp.where(xp.isinf(lo), hi, lo), xp.where(xp.isinf(hi), lo, hi)]

    @staticmethod
    @abstractmethod
    def link(share: np.ndarray) -> np.ndarray:
        """Where the latent scale has this much below it."""

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """The cutpoints carry it."""
        return 0.0

    @abstractmethod
    def _pulls(self, h: Array, rho: Array, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """-df/dhi and df/dlo of each observation (N,), 0 at an open end."""

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        upper, lower = self._pulls(h, rho, rows)
        w, level = to_numpy(rows["weight"]), to_numpy(rows["level"]).astype(int)
        cut = np.zeros(self.n_levels + 1)  # d(-f)/db, the two open ends included
        np.add.at(cut, level + 1, w * upper)
        np.add.at(cut, level, -w * lower)
        return by_steps(cut, self.cutpoints)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """The mean level."""
        p = self.predictive_probabilities(h, rho)
        return namespace(p).sum(p * asarray(np.arange(self.n_levels), p)[None, :], axis=1)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        p = self.predictive_probabilities(h, rho)
        xp, level = namespace(p), asarray(np.arange(self.n_levels), p)[None, :]
        return xp.sum(p * (level - xp.sum(p * level, axis=1, keepdims=True)) ** 2, axis=1)


class Ordinal(Cumulative):
    """Ordered levels 0, ..., K-1 by proportional odds: ``P(y <= k) = 1 / (1 + exp(eta - cutpoints[k]))``.

    Parameters
    ----------
    cutpoints : array (K-1,)
        Increasing. Learnable.
    bound : {"best", "log-sum", "tilted", "exact"}
        "exact" integrates the log-likelihood of a row numerically, and "best" means "exact".

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
    link_noise = np.pi**2 / 3.0
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
        alone = xp.any(of.dead, axis=1, keepdims=True)  # two live potentials balance: alpha = 0 at any tau
        tau = xp.where(alone, 0.5 * shrink + xp.zeros_like(shift), 0.25)
        return xp.where(of.dead, 0.0, Softplus.coordinate(tau) + shift)

    def constant(self, rows: Rows) -> Array:
        xp = namespace(rows["lo"])
        return -xp.log(-xp.expm1(rows["lo"] - rows["hi"]))

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        up, down = eta - rows["hi"][:, None], rows["lo"][:, None] - eta
        above, _, first, rest = logistic_parts(up)
        below, _, second, other = logistic_parts(down)
        return above + below + self.constant(rows)[:, None], first - second, first * rest + second * other

    def elementary_terms(self, rows: Rows) -> ElementaryTerms | None:
        xp, high, low, none = namespace(rows["lo"]), rows["hi"], rows["lo"], 0.0 * rows["level"]
        up, down = xp.isfinite(high), xp.isfinite(low)
        high, low = xp.where(up, high, 0.0), xp.where(down, low, 0.0)
        return ElementaryTerms(none, none, 1.0, none + up, high, none + down, low)

    def _moments(self, h: Array, rho: Array, rows: Rows) -> list[Array]:
        """The moments of the two logistics, of eta - hi and of lo - eta: an open end has none."""
        xp, out = namespace(h), []
        for edge, sign in ((rows["hi"], 1.0), (rows["lo"], -1.0)):
            live = xp.isfinite(edge)
            m = logistic_moments(sign * (h[:, 0] - xp.where(live, edge, 0.0)), rho[:, 0])
            out.append(xp.where(live[None, :], m, 0.0))
        return out

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        up, down = self._moments(h, rho, rows)
        lam = up[FIRST, :] + down[FIRST, :]
        return Loss(
            self.constant(rows) + up[PLUS, :] + down[PLUS, :],
            up[TAU, :] - down[TAU, :],
            lam,
            lam,
            (up[SECOND, :] - down[SECOND, :]) / 2,
            (up[THIRD, :] + down[THIRD, :]) / 4,
        )

    def _pulls(self, h: Array, rho: Array, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        bound = self.objective
        if bound.convex:
            convex = bound.dual
            tau = convex.site(convex.maximiser(h, rho, convex.start(rows, 1.0), rows), rows).tau
            upper, lower = tau[:, 0], tau[:, 1]
        else:
            upper, lower = (m[TAU, :] for m in self._moments(h, rho, rows))
        distance = to_numpy(rows["hi"]) - to_numpy(rows["lo"])
        both = np.where(np.isfinite(distance), 1.0 / np.expm1(np.minimum(distance, 700.0)), 0.0)  # of the constant
        return to_numpy(upper) + both, to_numpy(lower) + both

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
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
