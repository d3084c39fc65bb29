"""Bernoulli-probit: p(y|eta) = Phi(g eta), g = 2y - 1, y in {0, 1}, Phi the normal distribution function.

    psi = -log Phi(g eta),   psi' = -g H(t),   psi'' = H(t) (H(t) - t),      t = -g eta
    H(t) = phi(t) / Phi(-t): the normal hazard; 0 < psi'' < 1, so p is log-concave
    f(h, rho) = E[psi]     "exact": no bound, and no dual
    E[Phi(eta)] = Phi(h / sqrt(1 + rho))

H(t) - t cancels for large t, where the asymptotic series of Mills' ratio gives it with all its digits. log Phi has no
singularity within 2.8 of the real line, so a trapezoidal rule that follows the normal is exact to rounding at spacing
1/2; wide normals go to panels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import labels
from ..linalg.arrays import Array, ArrayLike, Seed, namespace, special
from ..linalg.grouped import expect_near
from .base import Likelihood, Rows, flat, slice_rows
from .bernoulli import BernoulliLogit
from .bounds import Bound
from .sites import Loss

FAR = 20.0  # from here on Mills' ratio comes from its asymptotic series
_ROOT = float(np.sqrt(2.0))
_HALF = float(np.sqrt(np.pi / 2.0))


def mills(t: Array) -> Array:
    """Phi(-t) / phi(t), for any t: it overflows to infinity at t = -38."""
    return _HALF * special("erfcx", t / _ROOT)


def mills_defect(t: Array) -> Array:
    """1 - t Phi(-t) / phi(t) for t >= 20, by its series 1/t^2 - 3/t^4 + 15/t^6 - ..."""
    u = 1.0 / (t * t)
    out = 1.0 - 17.0 * u
    for odd in (15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        out = 1.0 - odd * u * out
    return u * out


def hazard(t: Array) -> tuple[Array, Array]:
    """H = phi(t) / Phi(-t) and H - t, each to rounding."""
    xp = namespace(t)
    far = t > FAR
    distant = xp.where(far, t, FAR + xp.zeros_like(t))
    defect = mills_defect(distant)
    series = distant / (1.0 - defect)
    direct = 1.0 / mills(xp.where(far, xp.zeros_like(t), t))
    return xp.where(far, series, direct), xp.where(far, series * defect, direct - t)


class ProbitLikelihood(Likelihood):
    """A normal distribution function as link: what binary and ordered levels share."""

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp = namespace(h)

        def integrand(eta: Array, index: Any) -> Array:
            psi, first, second = self.derivatives(eta, slice_rows(rows, index))
            v = rho[index, :]
            v = xp.where(v > 0.0, v, xp.ones_like(v))
            t = (eta - h[index, :]) / xp.sqrt(v)
            return xp.stack([psi, first, second, second * t / xp.sqrt(v), second * (t * t - 1.0) / v])

        out = expect_near(integrand, h[:, 0], rho[:, 0], list(self.landmarks(rows)))
        return Loss(out[0, :], out[1, :], out[2, :], out[2, :], out[3, :] / 2, out[4, :] / 4)


class BernoulliProbit(ProbitLikelihood):
    """Binary targets 0/1 with success probability ``Phi(eta)``, Phi the normal distribution function.

    Parameters
    ----------
    bound : {"exact"}
        The expectation itself, with a strong-concavity certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BernoulliProbit
    >>> BernoulliProbit().predictive_mean(np.array([1.0]), np.array([3.0])).round(6)
    array([0.691462])
    """

    word, support = "probit", "levels"

    def __init__(self, bound: str | type[Bound] = "exact") -> None:
        self._choose(bound)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(special("ndtri", np.asarray((float(w @ y) + 0.5) / (float(w.sum()) + 1.0))))

    def neighbour(self) -> BernoulliLogit:
        return BernoulliLogit("tilted")

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, 2)
        return {"y": np.where(np.isnan(y), 0.0, y)}

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return special("log_ndtr", (2.0 * rows["y"][:, None] - 1.0) * eta)

    def landmarks(self, rows: Rows) -> list[Array]:
        return [0.0 * rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        g = 2.0 * rows["y"][:, None] - 1.0
        H, excess = hazard(-g * eta)
        return -special("log_ndtr", g * eta), -g * H, H * excess

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp = namespace(h)
        u = h / xp.sqrt(1.0 + rho)
        return xp.stack([special("ndtr", -u), special("ndtr", u)], axis=1)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self.predictive_probabilities(h, rho)[:, 1]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        p = self.predictive_probabilities(h, rho)
        return p[:, 0] * p[:, 1]

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        out = self.log_density((h / xp.sqrt(1.0 + rho))[:, None], rows)[:, 0]
        return xp.where(rows["weight"] > 0.0, out, xp.nan + xp.zeros_like(out))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BernoulliProbit, np.ndarray]:
        return cls(), rng.integers(0, 2, n).astype(float)

    def __repr__(self) -> str:
        return "BernoulliProbit()"
