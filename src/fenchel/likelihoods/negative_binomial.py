"""Negative binomial counts of mean mu = E e^eta and size r: variance mu + mu^2 / r.

    p(y|eta) = Gamma(y+r) / (Gamma(r) y!) (r/(r+mu))^r (mu/(r+mu))^y
    psi = y softplus(-t) + r softplus(t) - log Gamma(y+r)/(Gamma(r) y!),      t = eta - c,  c = log(r/E)

So it is the logit at eta - c of a fraction y/(y+r) with weight y+r: the bounds are those of ``bernoulli.py``, with
phi(s) = log(1 + e^{s-c}) and k(tau) = tau log tau + (1-tau) log(1-tau) + c tau. With n = y + r trials and a fraction p,

    f(h, rho) = n [-p h + Phi(h - c, rho)] + y c - log Gamma(y+r)/(Gamma(r) y!),      Phi >= E[softplus(t)]
    df/dlog r = -df/dh + r Phi - r (digamma(y+r) - digamma(r))

r -> inf is the Poisson. The ratio of Gamma functions comes from Stirling's series where r is large, so the limit is
reached without cancellation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc

from ..checks import numeric, positive, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special, to_numpy
from .base import Rows, flat
from .bernoulli import LogitLikelihood
from .bounds import Bound, Bounds, ExactExpectation
from .by_density import MOST
from .gamma_ratios import digamma_rest, stirling_rest
from .parameters import Parameter, shown
from .poisson import ExposedMean, exposed_counts
from .sites import Loss
from .softplus_bounds import LogSumLogit, Softpluses, TiltedLogit
from .summaries import per_row

_STIRLING = 20.0  # a size from which Stirling's series is exact to rounding


def log_rising(r: ArrayLike, y: np.ndarray) -> np.ndarray:
    """log Gamma(r + y) - log Gamma(r) - y log r."""
    r = np.asarray(r, dtype=np.float64)
    near, R = r < _STIRLING, np.maximum(r, _STIRLING)
    close = special("gammaln", r + y) - special("gammaln", r) - y * np.log(r)
    away = (R + y - 0.5) * np.log1p(y / R) - y + stirling_rest(R + y) - stirling_rest(R)
    return np.where(near, to_numpy(close), away)


def log_rising_slope(r: ArrayLike, y: np.ndarray) -> np.ndarray:
    """r (digamma(r + y) - digamma(r)): the slope of log Gamma(r + y) - log Gamma(r) in log r."""
    r = np.asarray(r, dtype=np.float64)
    near, R = r < _STIRLING, np.maximum(r, _STIRLING)
    close = r * (special("digamma", r + y) - special("digamma", r))
    away = R * (np.log1p(y / R) + digamma_rest(R + y) - digamma_rest(R))
    return np.where(near, to_numpy(close), away)


class NegativeBinomial(ExposedMean, LogitLikelihood):
    """Overdispersed counts with mean ``exposure * exp(eta)`` and variance ``mean + mean**2 / size``.

    Parameters
    ----------
    size : float
        Above 0; the larger, the nearer to a Poisson. Learnable.
    exposure : float or array (N,), optional
        Expected counts, person-years, area: what the mean is relative to. 0 means unobserved.
    bound : {"log-sum", "tilted", "exact"}
        The paper's bound, the tighter one (each one convex problem with a duality gap), or no bound at all (with a
        strong-concavity certificate).

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import NegativeBinomial
    >>> NegativeBinomial(2.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    # a quadratic bound of y + r logistics is loose: its lam grows with r
    bounds: ClassVar[Bounds] = {
        "log-sum": LogSumLogit,
        "tilted": TiltedLogit,
        "exact": ExactExpectation,
    }
    word = "negative-binomial"
    # up to where the largest count has a millionth more variance than a Poisson's
    parameters = (
        Parameter(
            "size",
            "size",
            bounds=lambda own, y: np.log([1e-5, 1e6 * float(np.nanmax(y, initial=1.0))]),
            weak=(1.0, 3.0),  # 0.008 to 970 in 95 of 100
        ),
    )

    def __init__(
        self, size: float = 1.0, exposure: ArrayLike | None = None, bound: str | type[Bound] = "log-sum"
    ) -> None:
        super().__init__(bound)
        r = numeric(self.name, "size", size)
        if r.ndim != 0:
            raise problem(self.name, f"size has shape {r.shape}", "one number for all rows")
        self.size: Any = float(positive(self.name, "size", r))  # (N,) where it has a predictor of its own
        self.exposure = exposure

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows, r = exposed_counts(self.name, y, self.exposure), per_row(self.size, y.shape[0])
        count, n = rows["y"], rows["y"] + r
        choices = log_rising(r, count) - special("gammaln", count + 1.0)  # of Gamma(y+r)/(Gamma(r) y!), less y log r
        return {
            "y": count / n,
            "trials": n,
            "size": r + 0.0,
            "centre": np.log(r) - np.log(rows["exposure"]),
            "constant": -(choices + count * np.log(rows["exposure"])) / n,
            "slope": log_rising_slope(r, count),
            "weight": rows["weight"] * n,
        }

    # -- the logit, moved by c: s and h are measured from 0, the logit's from c ---------------------
    def softpluses(self, rows: Rows) -> Softpluses:
        return Softpluses(rows["y"], rows["centre"][:, None])

    def start(self, rows: Rows, shrink: float) -> Array:
        return super().start(rows, shrink) + rows["centre"][:, None]

    def constant(self, rows: Rows) -> Array:
        return rows["constant"]

    def landmarks(self, rows: Rows) -> list[Array]:
        return [rows["centre"] + 0.0, self.start(rows, 0.5)[:, 0]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        psi, first, second = super().derivatives(eta - rows["centre"][:, None], rows)
        return psi - self._lift(rows)[:, None], first, second

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        loss = super().exact_loss(h - rows["centre"][:, None], rho, rows)
        return replace(loss, value=loss.value - self._lift(rows))

    @staticmethod
    def _lift(rows: Rows) -> Array:
        """p c: -p (h - c) is above -p h by this much."""
        return rows["y"] * rows["centre"]

    # -- its own parameter -------------------------------------------------------------------------
    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        n, loss = rows["trials"], self.objective.loss(h, rho, rows)
        softened = loss.value - rows["constant"] + rows["y"] * h[:, 0]  # Phi
        each = rows["size"] * softened - n * loss.alpha - rows["slope"]
        return self.gathered(rows["weight"] / n * each)

    # -- the likelihood itself ---------------------------------------------------------------------
    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -rows["trials"][:, None] * self.derivatives(eta, rows)[0]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # E[mu] + E[mu^2]/r + Var[mu], with E[mu^2] = E[mu]^2 e^rho
        mean, rho = self.predictive_mean(h, rho), flat(rho)
        xp = namespace(rho)
        with np.errstate(over="ignore"):
            size = asarray(per_row(self.size, rho.shape[0]) + 0.0, rho)
            return mean + mean**2 * (xp.exp(rho) / size + xp.expm1(rho))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        r = per_row(self.size, eta.shape[0])[:, None]
        return np.asarray(betainc(r, x + 1.0, r / (r + self._rate_at(eta))))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rate, r = self._rate_at(eta), per_row(self.size, eta.shape[0])[:, None]
        return rng.poisson(np.minimum(rate * rng.gamma(r, 1.0 / r, eta.shape), MOST)) + 0.0

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[NegativeBinomial, np.ndarray]:
        exposure, size = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(3.0, 1.0) + 0.2)
        mean = exposure * np.exp(rng.normal(size=n))
        y = rng.negative_binomial(size, size / (size + mean)).astype(float)
        return cls(size, exposure, str(rng.choice(list(cls.bounds)))), y

    def __repr__(self) -> str:
        given = "" if self.exposure is None else "exposure=..., "
        return f"NegativeBinomial({shown(self.size)}, {given}bound={self.bound!r})"
