"""One predictor, one potential, lam = tau: -log p(y|eta) = c_h eta + c e^{a_h eta} + const.

    f(h, rho) = c_h h + phi(s) + const,   s = a_h h + rho/2,   phi(s) = c e^s,   tau = c e^s,   k(tau) = tau (s - 1)

A subclass states c_h, a_h and c, the checks of its target and its moments. Start from this class for a likelihood of
your own: see ``examples/new_likelihood.py``. Counts and durations have their own files. This file has

    Gamma                 mean e^eta, shape k: p(y|eta) = (k/e^eta)^k y^{k-1} exp(-k y e^-eta) / Gamma(k)
                          c_h = k,  a_h = -1,  c = k y;  the variance of y is e^{2 eta}/k, and k = 1 is the exponential
    StochasticVolatility  y ~ N(0, e^eta), eta the log-variance:  c_h = 1/2,  a_h = -1,  c = y^2/2
                          y = 0 needs no special case: tau = lam = 0 and the slope is 1/2 (the paper divides by y^2)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammainc, ndtr

from ..checks import first_value, positive, problem, vector
from ..linalg.arrays import Array, ArrayLike, Seed, namespace, special, to_numpy
from ..linalg.functions import expm1_minus
from .base import Likelihood, Rows, flat
from .bounds import Bounds, Domain, ExactSite, Loss, Site
from .links import LogLink
from .numerical import LARGEST
from .outcomes import ElementaryTerms
from .parameters import Parameter, log_noise_variance, mean, per_row

_LARGEST_LOSS = 0.95  # share of tau that a straight step may take away
_LARGEST_GAIN = 20.0  # times tau that it may add


class ExponentialSite(ExactSite):
    """The curve lam = tau and the conjugate of c e^s."""

    domain = Domain(lower=0.0)

    def is_flat(self, rows: Rows) -> Array:
        return self.likelihood.rate(rows) == 0.0

    def signs(self, rows: Rows) -> Array:
        return self.likelihood.sign + 0.0 * rows["weight"][:, None]

    def start(self, rows: Rows, shrink: float) -> Array:
        """Where the row is most likely, and alpha near 0: not shrunk, from above Newton contracts."""
        return self.likelihood.sign * self.likelihood.landmarks(rows)[0][:, None]

    def site(self, s: Array, rows: Rows) -> Site:
        xp, own = namespace(s), self.likelihood
        tau = self._tau(s, rows)
        alpha = own.linear(rows)[:, None] + own.sign * tau
        one = xp.ones_like(s)
        return Site(tau, alpha, tau, one, 0.0 * one, (tau * (s - 1.0))[:, 0], tau)

    def _tau(self, s: Array, rows: Rows) -> Array:
        return self.likelihood.rate(rows)[:, None] * namespace(s).exp(s)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return namespace(tau).log(tau / self.likelihood.rate(rows)[:, None])

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return (self._tau(s, rows) * expm1_minus(s_hat - s))[:, 0]

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        xp = namespace(s)
        return s + xp.log1p(ds) if bool(xp.all((ds > -_LARGEST_LOSS) & (ds < _LARGEST_GAIN))) else None

    def cancelling(self, h: Array, rows: Rows, dual: bool) -> Array:
        xp, own = namespace(h), self.likelihood
        if dual:
            return xp.abs(own.constant(rows)) + xp.abs(own.linear(rows) * h[:, 0])
        return xp.abs(own.floor(rows))


class ExponentialLikelihood(Likelihood):
    """-log p(y|eta) = c_h eta + c e^{a_h eta} + const. Its expectation has a closed form, so it needs no bound."""

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
        kappa, rate = xp.where(kappa > 0.5, kappa, 0.5), xp.where(rate > 0.0, rate, 1.0)
        return [self.sign * xp.log(kappa / rate)]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        bend = self.rate(rows)[:, None] * namespace(eta).exp(self.sign * eta)
        linear = self.linear(rows)[:, None]
        return linear * eta + bend + self.constant(rows)[:, None], linear + self.sign * bend, bend

    def elementary_terms(self, rows: Rows) -> ElementaryTerms | None:
        linear = self.linear(rows)
        none = 0.0 * linear
        return ElementaryTerms(linear, self.rate(rows), self.sign, none, none, none, none)

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
        ratio = xp.where(some, kappa, 1.0) / xp.where(some, rate, 1.0)
        return xp.where(some, kappa - kappa * xp.log(ratio), 0.0) + self.constant(rows)


class Gamma(LogLink, ExponentialLikelihood):
    """Positive targets with mean ``exp(eta)`` and variance ``exp(2 eta) / shape``: amounts, costs, concentrations.

    Parameters
    ----------
    shape : float
        k, above 0: one over the squared coefficient of variation of y. Learnable, as theta = [log k].

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Gamma
    >>> Gamma(shape=4.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([0.25])
    """

    sign = -1.0
    word, support, ratio = "gamma", "positive", "mean_ratio"
    # 1/k is near the noise variance of log y
    parameters = (
        Parameter(
            "shape",
            "shape",
            bounds=lambda own, y, w: (math.log(1e-4), -log_noise_variance(np.log(y), w, 1.0 / own.shape)[0]),
            weak=(1.0, 3.0),
            formula=("dispersion", "log shape"),
        ),
    )

    def __init__(self, shape: float = 1.0) -> None:
        k = float(positive(self.name, "shape", vector(self.name, "shape", shape, 1)[0]))
        self.shape: Any = k  # (N,) where it has a predictor of its own

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        bad = y <= 0.0
        if bad.any():
            raise problem(
                self.name,
                f"y{first_value(bad, y)} is not above 0",
                "positive numbers, or NaN for unobserved",
                "For counts use Poisson; for real-valued targets use Gaussian.",
            )
        return {"y": np.where(np.isnan(y), 1.0, y), "shape": vector(self.name, "shape", self.shape, y.shape[0])}

    def linear(self, rows: Rows) -> Array:
        return rows["shape"] + 0.0

    def rate(self, rows: Rows) -> Array:
        return rows["shape"] * rows["y"]

    def constant(self, rows: Rows) -> Array:
        xp, k = namespace(rows["y"]), rows["shape"]
        return special("gammaln", k) - k * xp.log(k) - (k - 1.0) * xp.log(rows["y"])

    def landmarks(self, rows: Rows) -> list[Array]:
        return [namespace(rows["y"]).log(rows["y"])]

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        xp, y, k = namespace(h), rows["y"], rows["shape"]
        away = h[:, 0] - xp.log(y)
        # log k - digamma(k) is near 1/(2k); what is left of the row is 0 where e^h = y and rho = 0
        each = xp.exp(-away + rho[:, 0] / 2) - 1.0 + away
        pull = special("digamma", k) - xp.log(k)
        return self.gathered(rows["weight"] * (k * (each + pull)))

    def variance_terms(self, n: int) -> list[tuple[Any, float]]:
        return [(1.0 / per_row(self.shape, n), 2.0)]

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return math.log(mean(y, w))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        k = per_row(self.shape, eta.shape[0])[:, None]
        return np.asarray(gammainc(k, k * x * np.exp(np.minimum(-eta, LARGEST))))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        k = per_row(self.shape, eta.shape[0])[:, None]
        return np.exp(eta) * rng.gamma(k, 1.0 / k, eta.shape)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return np.log(x), np.minimum(1.0, per_row(self.shape, x.shape[0]) ** -0.5)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Gamma, np.ndarray]:
        shape = float(rng.gamma(2.0, 1.0) + 0.3)
        return cls(shape), rng.gamma(shape, np.exp(rng.normal(size=n)) / shape)


class StochasticVolatility(ExponentialLikelihood):
    """Returns with mean 0 and variance ``exp(eta)``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import StochasticVolatility
    >>> StochasticVolatility().predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.])
    """

    word, aliases, of_variance = "stochastic-volatility", ("stochvol",), True
    sign = -1.0

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": np.where(np.isnan(y), 1.0, y)}

    def linear(self, rows: Rows) -> Array:
        return 0.5 + 0.0 * rows["y"]

    def rate(self, rows: Rows) -> Array:
        return rows["y"] ** 2 / 2

    def constant(self, rows: Rows) -> Array:
        return 0.5 * math.log(2 * math.pi) + 0.0 * rows["y"]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """0 * inf is 0 here: y = 0."""
        xp, rate = namespace(eta), self.rate(rows)[:, None]
        with np.errstate(invalid="ignore"):
            bend = xp.where(rate > 0.0, rate * xp.exp(-eta), 0.0)
        return eta / 2 + bend + 0.5 * math.log(2 * math.pi), 0.5 - bend, bend

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, square = namespace(rows["y"]), rows["y"] ** 2
        return [xp.log(xp.where(square > 0.0, square, 1.0))]  # y = 0 has no mode

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return namespace(h).zeros_like(flat(h))

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        with np.errstate(over="ignore"):
            return namespace(h).exp(h + rho / 2)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return math.log(mean(y**2, w))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr(x * np.exp(np.minimum(-eta / 2, LARGEST))))

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        """In units of e^{h/2}, in which returns of any size have their digits."""
        h = to_numpy(flat(h))
        unit = np.asarray(super().predictive_quantile(q, 0.0 * h, rho))
        return np.exp(h / 2)[:, None] * np.where(np.atleast_1d(q) == 0.5, 0.0, unit)  # symmetric

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.exp(eta / 2) * rng.standard_normal(eta.shape)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[StochasticVolatility, np.ndarray]:
        return cls(), rng.normal(size=n) * np.exp(rng.normal(size=n) / 2)
