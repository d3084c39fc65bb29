"""Beta targets in (0, 1): y ~ Beta(mu phi, (1 - mu) phi), mean mu = sigmoid(eta), precision phi.

    psi   = log Gamma(x) + log Gamma(z) - log Gamma(phi) - (x - 1) log y - (z - 1) log(1 - y),   x = mu phi, z = phi - x
    psi'  = phi mu (1-mu) [digamma(1+x) - digamma(1+z) - L] - (1 - 2 mu),                         L = logit y
    psi'' = phi mu (1-mu) [A - (1 - 2 mu) L],    a variance mu (1-mu) / (1 + phi)
    A     = phi mu (1-mu) [trigamma(1+x) + trigamma(1+z)] + (1 - 2 mu) [digamma(1+x) - digamma(1+z)] + 2/phi

The density is not log-concave: psi'' < 0 in its tails, on the left where A/(1 - 2 mu) < L and on the right where
A/(2 mu - 1) < -L. A/(1 - 2 mu) increases in mu < 1/2, so psi has at most one inflection on each side of 0. There it is
continued by its tangent:

    bound "tangent":   f = E[psi~],    psi~ = psi between the inflections, their tangents beyond: convex, psi~ >= psi

which keeps the ELBO a lower bound on log p(y) and makes what is fitted log-concave (``tangents.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betainc, logit

from ..checks import first_value, numeric, positive, problem
from ..linalg.arrays import Array, Seed, asarray, namespace, to_numpy
from ..linalg.functions import sigmoid, softplus
from ..linalg.logistic import FIRST, REST, TAU, logistic_moments
from .base import Rows, flat
from .bounds import Bound
from .gamma_ratios import gamma_functions
from .gaussian import Gaussian
from .parameters import Parameter, shown
from .summaries import mean, per_row
from .tangents import TangentLikelihood

_LOWEST, _HIGHEST = 30.0, 1e-4  # of -eta: where an inflection may lie; psi is straight to rounding beyond the first


def inflections(L: np.ndarray, phi: Any) -> np.ndarray:
    """eta < 0 where A - (1 - 2 mu) L changes its sign, for each L; -inf where it is positive throughout."""

    def parts(eta: np.ndarray) -> tuple[Array, np.ndarray]:
        mu, rest = sigmoid(eta), sigmoid(-eta)
        _, d1, t1 = gamma_functions(1.0 + phi * mu)
        _, d2, t2 = gamma_functions(1.0 + phi * rest)
        lean = -np.tanh(eta / 2)  # 1 - 2 mu
        return phi * mu * rest * (t1 + t2) + lean * (d1 - d2) + 2.0 / phi, lean

    def excess(eta: np.ndarray) -> np.ndarray:
        A, lean = parts(eta)
        return to_numpy(A) / lean - L

    if np.ndim(phi):  # no grid serves all rows: bisection in log(-eta)
        low, high = np.full(L.shape, np.log(_HIGHEST)), np.full(L.shape, np.log(_LOWEST))
        some = excess(-np.exp(high)) < 0.0
        for _ in range(45):
            middle = (low + high) / 2
            below = excess(-np.exp(middle)) < 0.0
            low, high = np.where(below, low, middle), np.where(below, middle, high)
        return np.where(some, -np.exp(low), -np.inf)
    grid = -np.exp(np.linspace(np.log(_LOWEST), np.log(_HIGHEST), 2000))
    A, lean = parts(grid)
    rising = np.maximum.accumulate(A / lean)
    at = np.interp(L, rising, grid)
    for _ in range(4):  # Newton in log(-eta), its slope by differences
        step = 1e-5 * at
        slope = (excess(at + step) - excess(at - step)) / 2e-5
        move = np.where(slope != 0.0, excess(at) / np.where(slope != 0.0, slope, 1.0), 0.0)
        at = np.clip(at * np.exp(np.clip(-move, -0.01, 0.01)), -_LOWEST, -_HIGHEST)
    return np.where(rising[0] < L, at, -np.inf)


class Beta(TangentLikelihood):
    """Proportions in (0, 1) with mean ``1 / (1 + exp(-eta))`` and variance ``mean (1 - mean) / (1 + precision)``.

    Parameters
    ----------
    precision : float
        Above 0; the larger, the less noise. Learnable.
    bound : {"tangent"}
        The tails beyond the inflections of the log-density are continued by their tangents, which makes the problem
        log-concave: a lower bound on the evidence with a strong-concavity certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Beta
    >>> Beta(3.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([0.0625])
    """

    word, aliases, support, ratio = "beta", ("betafamily", "betar"), "unit", "odds_ratio"
    # where log Gamma keeps its sixth digit
    parameters = (
        Parameter(
            "precision", "precision", bounds=(1e-3, 1e8), weak=(2.0, 3.0), formula=("dispersion", "log precision")
        ),
    )

    def __init__(self, precision: float = 10.0, bound: str | type[Bound] = "tangent") -> None:
        self._choose(bound)
        phi = numeric(self.name, "precision", precision)
        if phi.ndim != 0:
            raise problem(self.name, f"precision has shape {phi.shape}", "one number for all rows")
        self.precision: Any = float(positive(self.name, "precision", phi))  # (N,) with a predictor of its own

    def neighbour(self) -> Gaussian:
        """Least squares on the logits, with about the same variances: it reads ``y`` and ``variance``."""
        return Gaussian()

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        with np.errstate(invalid="ignore"):
            outside, edge = (y < 0.0) | (y > 1.0), (y == 0.0) | (y == 1.0)
        wanted = "numbers strictly between 0 and 1, or NaN for unobserved"
        if outside.any():
            advice = "Divide by the largest possible value; for counts of successes use Binomial."
            raise problem(self.name, f"y{first_value(outside, y)} is not a proportion", wanted, advice)
        if edge.any():
            advice = "Move them inside, for example to (y (n - 1) + 0.5) / n, or give them a BernoulliLogit in Mixed."
            raise problem(
                self.name, f"y{first_value(edge, y)} lies on the edge, where a density is 0 or infinite", wanted, advice
            )
        y, phi = np.where(np.isnan(y), 0.5, y), self.precision
        log_y, log_rest = np.log(y), np.log1p(-y)
        L = log_y - log_rest
        return {
            "y": L,  # the target on the scale of eta
            "variance": 1.0 / np.maximum(phi * y * (1.0 - y), 1e-12),
            "log_y": log_y,
            "log_rest": log_rest,
            "precision": per_row(phi, y.shape[0]) + 0.0,
            "left": inflections(L, phi),
            "right": -inflections(-L, phi),
        }

    # -- psi and its slopes ------------------------------------------------------------------------
    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        phi, L = rows["precision"][:, None], rows["y"][:, None]
        mu, rest = sigmoid(eta), sigmoid(-eta)
        g1, d1, t1 = gamma_functions(1.0 + phi * mu)
        g2, d2, t2 = gamma_functions(1.0 + phi * rest)
        lean, pull, bend = rest - mu, d1 - d2 - L, phi * mu * rest
        log_y, log_rest = rows["log_y"][:, None], rows["log_rest"][:, None]
        # log Gamma(x) = log Gamma(1 + x) - log x
        psi = g1 + g2 + softplus(eta) + softplus(-eta) - phi * (mu * log_y + rest * log_rest) + log_y + log_rest
        return (
            psi - self._norm(rows)[0][:, None],
            bend * pull - lean,
            bend * (bend * (t1 + t2) + lean * pull + 2.0 / phi),
        )

    @staticmethod
    def _norm(rows: Rows) -> tuple[Array, Array]:
        """log Gamma(phi) + 2 log phi, and its slope in log phi, of each row (N,)."""
        phi = rows["precision"]
        g, d, _ = gamma_functions(1.0 + phi)
        return g + namespace(phi).log(phi), phi * d + 1.0

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        """dpsi/dlog phi and its slope in eta."""
        phi, mu, rest = rows["precision"][:, None], sigmoid(eta), sigmoid(-eta)
        _, d1, t1 = gamma_functions(1.0 + phi * mu)
        _, d2, t2 = gamma_functions(1.0 + phi * rest)
        value = (
            phi * (mu * (d1 - rows["log_y"][:, None]) + rest * (d2 - rows["log_rest"][:, None]))
            - self._norm(rows)[1][:, None]
        )
        return value, phi * mu * rest * (d1 + phi * mu * t1 - d2 - phi * rest * t2 - rows["y"][:, None])

    def _cuts(self, rows: Rows) -> list[Array]:
        """psi is straight beyond +-log phi."""
        bent = max(float(np.log(np.max(self.precision))), 0.0)
        at = [sign * x for sign in (-1.0, 1.0) for x in (0.0, bent / 2, bent, bent + 4.0, bent + 12.0, bent + 36.0)]
        return [x + 0.0 * rows["y"] for x in at]

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, L = namespace(rows["y"]), rows["y"]
        return [L, *(xp.where(xp.isinf(rows[side]), L, rows[side]) for side in ("left", "right"))]

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return logistic_moments(flat(h), flat(rho))[TAU, :]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # E[mu (1-mu)]/(1 + phi) + Var[mu], and Var[mu] = E[mu] E[1-mu] - E[mu (1-mu)]
        m = logistic_moments(flat(h), flat(rho))
        spread = m[TAU, :] * m[REST, :] - m[FIRST, :]
        spread = namespace(m).where(spread > 0.0, spread, 0.0 * spread)
        return m[FIRST, :] / (1.0 + asarray(per_row(self.precision, m.shape[1]) + 0.0, m)) + spread

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(logit(mean(y, w)))

    def _shapes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        up, down = to_numpy(sigmoid(eta)), to_numpy(sigmoid(-eta))
        phi = per_row(self.precision, eta.shape[0])[:, None]
        return phi * up + 1e-300, phi * down + 1e-300

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(betainc(*self._shapes(eta), x))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.beta(*self._shapes(eta))

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return logit(x), np.minimum(1.0, 2.0 * per_row(self.precision, x.shape[0]) ** -0.5)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Beta, np.ndarray]:
        phi = float(rng.gamma(3.0, 3.0) + 1.0)
        mu = 1.0 / (1.0 + np.exp(-rng.normal(size=n)))
        return cls(phi), np.clip(rng.beta(mu * phi, (1.0 - mu) * phi), 1e-6, 1.0 - 1e-6)

    def __repr__(self) -> str:
        return f"Beta({shown(self.precision)})"
