"""Bernoulli-logit, p(y|eta) = e^{y eta} / (1 + e^eta) with y in {0, 1}, and binomial-logit, y successes of n trials.

    c_h = -y,  a_h = 1,  phi(s) = log(1 + e^s),  k(tau) = tau log tau + (1-tau) log(1-tau)
    "log-sum"  lam = tau             f = -y h + log(1 + exp(h + rho/2))             (tab:fenchelDual)
    "tilted"   lam = tau (1 - tau)   f = -y h + min_a [a^2 rho/2 + log(1 + exp(h + (1-2a) rho/2))]
    "bohning"  lam = 1/4             f = -y h + log(1 + e^h) + rho/8
    "jaakkola" (no dual)             f = (1/2 - y) h + log(2 cosh(xi/2)),  xi^2 = h^2 + rho: the best quadratic
    "exact"    (no dual)             f = E[-log p] itself

The tilted bound is the tightest of its family (Saul, Jaakkola and Jordan; Knowles and Minka). Because the curve
tau (1 - tau) is concave, its dual is one convex problem, and no alternating scheme is needed.

    Binomial:   p(y|eta) = C(n, y) e^{y eta} / (1 + e^eta)^n,      f(h, rho) = n f_Bernoulli(h, rho; y/n) - log C(n, y)

so a binomial row is a Bernoulli row at the fraction y/n with weight n. A row with n = 0 is unobserved.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import betainc, expit

from ..checks import labels
from ..linalg.arrays import Array, ArrayLike, Seed, namespace, special
from ..linalg.functions import log_cosh_slopes, logistic_parts, softplus
from ..linalg.logistic_normal import logistic_moments
from .base import Likelihood, Rows
from .bounds import Bound, Bounds, DirectBound, ExactExpectation, Loss
from .links import LogitLink
from .outcomes import ElementaryTerms
from .parameters import per_row
from .softplus_bounds import BohningLogit, LogSumLogit, Softpluses, TiltedLogit


class JaakkolaLogit(DirectBound):
    """f = (1/2 - y) h + g(xi^2), g(xi^2) = log(2 cosh(xi/2)) and xi^2 = h^2 + rho."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        h, rho = h[:, 0], rho[:, 0]
        xp, lean = namespace(h), 0.5 - rows["y"]
        square = h * h + rho
        xi = xp.sqrt(square)
        g = xi / 2 + xp.log1p(xp.exp(-xi))
        slope, bend = log_cosh_slopes(square)
        lam = 2.0 * slope
        value = lean * h + g + self.likelihood.constant(rows)
        return Loss(value, lean + h * lam, lam, lam + 4.0 * h * h * bend, 2.0 * h * bend, bend)


class LogitLikelihood(Likelihood):
    """A fraction y of successes with a logit link: the common base of Bernoulli, Binomial and negative binomial."""

    bounds: ClassVar[Bounds] = {
        "log-sum": LogSumLogit,
        "tilted": TiltedLogit,
        "bohning": BohningLogit,
        "jaakkola": JaakkolaLogit,
        "exact": ExactExpectation,
    }
    n_softpluses, softplus_scale = 1, 1.0
    link_noise = np.pi**2 / 3.0

    def __init__(self, bound: str | type[Bound] = "best") -> None:
        self._choose(bound)

    def softpluses(self, rows: Rows) -> Softpluses:
        return Softpluses(rows["y"])

    def start(self, rows: Rows, shrink: float) -> Array:
        xp, y = namespace(rows["y"]), rows["y"][:, None]
        tau, rest = y + shrink * (0.5 - y), (1.0 - y) + shrink * (y - 0.5)  # towards alpha = 0
        return xp.log(tau) - xp.log(rest)

    def landmarks(self, rows: Rows) -> list[Array]:
        return [0.0 * rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y, (plus, minus, tau, rest) = rows["y"][:, None], logistic_parts(eta)
        psi = y * minus + (1.0 - y) * plus
        return psi + self.constant(rows)[:, None], tau * (1.0 - y) - rest * y, tau * rest

    def elementary_terms(self, rows: Rows) -> ElementaryTerms | None:
        y, shift = rows["y"], self.softpluses(rows).shift
        none = 0.0 * y
        return ElementaryTerms(-y, none, 1.0, none + 1.0, none if shift is None else shift[:, 0], none, none)

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        moments = logistic_moments(h[:, 0], rho[:, 0])
        plus, minus, tau, rest, first, second, third = (moments[k, :] for k in range(7))
        y, no = rows["y"], 1.0 - rows["y"]
        value = y * minus + no * plus + self.constant(rows)
        return Loss(value, no * tau - y * rest, first, first, second / 2, third / 4)


class BernoulliLogit(LogitLink, LogitLikelihood):
    """Binary targets 0/1 with success probability ``1 / (1 + exp(-eta))``.

    Parameters
    ----------
    bound : {"best", "log-sum", "tilted", "bohning", "jaakkola", "exact"}
        "exact" integrates the log-likelihood of a row numerically, and "best" means "exact". "log-sum" (the paper's),
        "tilted" (tighter) and "bohning" (constant curvature) are convex problems with a duality gap. "jaakkola" is the
        best quadratic bound; it has a strong-concavity certificate, as "exact" has.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BernoulliLogit
    >>> BernoulliLogit().predictive_mean(np.array([0.0]), np.array([4.0])).round(12)
    array([0.5])
    """

    word, support = "bernoulli", "levels"

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, 2)
        return {"y": np.where(np.isnan(y), 0.0, y)}

    def log_density(self, eta: Array, rows: Rows) -> Array:
        y = rows["y"][:, None]
        return -y * softplus(-eta) - (1.0 - y) * softplus(eta)

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        success, failure, _ = self.moments(h, rho)
        return namespace(success).stack([failure, success], axis=1)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BernoulliLogit, np.ndarray]:
        return cls(str(rng.choice(list(cls.bounds)))), rng.integers(0, 2, n).astype(float)


class Binomial(LogitLink, LogitLikelihood):
    """Counts of successes among known numbers of trials, with success probability ``1 / (1 + exp(-eta))``.

    Parameters
    ----------
    trials : int or array (N,)
        Number of trials of each row; 0 means unobserved.
    bound : {"best", "log-sum", "tilted", "bohning", "jaakkola", "exact"}
        As in ``BernoulliLogit``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Binomial
    >>> Binomial(10).predictive_mean(np.array([0.0]), np.array([1.0])).round(10)
    array([5.])
    """

    word, support = "binomial", "count"
    row_parameters = needs = ("trials",)

    def __init__(self, trials: ArrayLike, bound: str | type[Bound] = "best") -> None:
        super().__init__(bound)
        self.trials = trials

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        count, n, seen = self.check_trials(y)
        return {"y": count / n, "trials": n, "weight": np.where(seen, n, 0.0)}

    def constant(self, rows: Rows) -> Array:
        n = rows["trials"]
        y = n * rows["y"]
        outcomes = special("gammaln", n + 1.0) - special("gammaln", y + 1.0) - special("gammaln", n - y + 1.0)
        return -outcomes / n  # per trial: the weight multiplies by n

    def log_density(self, eta: Array, rows: Rows) -> Array:
        n, y = rows["trials"][:, None], rows["y"][:, None]
        return -n * (y * softplus(-eta) + (1.0 - y) * softplus(eta) + self.constant(rows)[:, None])

    def landmarks(self, rows: Rows) -> list[Array]:
        return [self.start(rows, 0.5)[:, 0], 0.0 * rows["y"]]

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        # P(y <= k) = I_{1-p}(n - k, k + 1); at k = n it is 1, and the beta function ends
        left = per_row(self.trials, eta.shape[0])[:, None] - x
        return np.where(left <= 0.0, 1.0, betainc(np.maximum(left, 0.5), x + 1.0, expit(-eta)))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        trials = per_row(self.trials, eta.shape[0]).astype(np.int64)
        return rng.binomial(trials[:, None], expit(eta)).astype(np.float64)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Binomial, np.ndarray]:
        trials = rng.integers(1, 12, n)
        return cls(trials, str(rng.choice(list(cls.bounds)))), rng.binomial(trials, 0.4).astype(float)
