"""Beta targets in (0, 1): y ~ Beta(mu phi, (1 - mu) phi), mean mu = sigmoid(eta), precision phi.

    psi   = log Gamma(x) + log Gamma(z) - log Gamma(phi) - (x - 1) log y - (z - 1) log(1 - y),   x = mu phi, z = phi - x
    psi'  = phi mu (1-mu) [digamma(1+x) - digamma(1+z) - L] - (1 - 2 mu),                         L = logit y
    psi'' = phi mu (1-mu) [A - (1 - 2 mu) L],    a variance mu (1-mu) / (1 + phi)
    A     = phi mu (1-mu) [trigamma(1+x) + trigamma(1+z)] + (1 - 2 mu) [digamma(1+x) - digamma(1+z)] + 2/phi

The density is not log-concave: psi'' < 0 in its tails, on the left where A/(1 - 2 mu) < L and on the right where
A/(2 mu - 1) < -L. A/(1 - 2 mu) increases in mu < 1/2, so psi has at most one inflection on each side of 0. Beyond an
inflection the bound replaces psi by its tangent:

    bound "tangent":   f = E[psi~],    psi~ = psi between the inflections, their tangents beyond: convex, psi~ >= psi

The ELBO remains a lower bound on log p(y), and the fitted problem is log-concave (``tangents.py``).

Beta-binomial: y successes of n trials whose probability is Beta(x, z).

    p(y|eta) = C(n, y) B(y + x, n - y + z) / B(x, z)
    psi      = R(phi, n) - R(x, y) - R(z, n - y) - log C(n, y),      R(r, k) = log Gamma(r + k) - log Gamma(r)

The variance of y is n mu (1 - mu) (phi + n)/(phi + 1): phi -> inf is the binomial. -log(x + j) and -log(z + j) are not
convex in eta for j > 0, so psi is not. With v = mu (1 - mu) and e_j = 1 + phi/j,

    psi''/v = n - sum_{0<j<y} e_j/(1 + mu (e_j - 1))^2 - sum_{0<j<n-y} e_j/(e_j - mu (e_j - 1))^2

Both sums are convex in mu, so psi is convex between two inflections at most, and concave beyond them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import betainc, expit, logit

from ..checks import first_value, numeric, positive, problem
from ..linalg.arrays import Array, ArrayLike, namespace
from ..linalg.functions import choices, gamma_functions, logistic_parts, rising, sigmoid, softplus
from .base import Rows
from .bounds import Bound
from .links import LogitLink
from .noise import Gaussian
from .parameters import Parameter, mean, per_row
from .tangents import TangentLikelihood, crossing, inflection

_FARTHEST = 30.0  # of -eta, where an inflection may lie: psi is straight to rounding beyond it
_NEAREST = 1e-4  # of -eta: A/(1 - 2 mu) is larger than any logit nearer to 0
_SECANTS = 4  # from a grid of 2000 places: errors of 6e-3, 4e-5, 3e-7, 1e-11 and less


def inflections(L: np.ndarray, phi: Any) -> np.ndarray:
    """eta < 0 where A - (1 - 2 mu) L changes its sign, for each L (N,); -inf where it is positive throughout."""

    def level(log_size: np.ndarray) -> np.ndarray:
        """A/(1 - 2 mu) at eta = -e^log_size, which falls in it."""
        eta = -np.exp(log_size)
        mu, rest = sigmoid(eta), sigmoid(-eta)
        _, d1, t1 = gamma_functions(1.0 + phi * mu)
        _, d2, t2 = gamma_functions(1.0 + phi * rest)
        lean = -np.tanh(eta / 2)  # 1 - 2 mu
        return np.asarray((phi * mu * rest * (t1 + t2) + 2.0 / phi) / lean + d1 - d2)

    if np.ndim(phi):
        near, far = (np.full(L.shape, np.log(end)) for end in (_NEAREST, _FARTHEST))
        log_size = crossing(near, far, lambda x: level(x) < L)
    else:  # one grid serves all rows
        grid = np.linspace(np.log(_FARTHEST), np.log(_NEAREST), 2000)
        values = np.maximum.accumulate(level(grid))
        place = np.clip(np.searchsorted(values, L), 1, grid.size - 1)
        log_size = _secants(level, L, (grid[place - 1], values[place - 1]), (grid[place], values[place]))
    return np.where(level(np.full(L.shape, np.log(_FARTHEST))) < L, -np.exp(log_size), -np.inf)


def _secants(
    f: Callable[[np.ndarray], np.ndarray],
    target: np.ndarray,
    last: tuple[np.ndarray, np.ndarray],
    here: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Where f = target between two places (n,), each given with its f, so near that f is nearly straight there."""
    low, high = np.minimum(last[0], here[0]), np.maximum(last[0], here[0])
    (before, f_before), (at, f_at) = last, here
    for _ in range(_SECANTS):
        rise = f_at - f_before
        step = (target - f_at) * (at - before) / np.where(rise == 0.0, 1.0, rise)
        before, f_before = at, f_at
        at = np.clip(at + np.where(rise == 0.0, 0.0, step), low, high)
        f_at = f(at)
    return at


class BetaShares(LogitLink, TangentLikelihood):
    """Common base of ``Beta`` and ``BetaBinomial``: rows["y"] is the target on the scale of eta."""

    precision: Any

    def neighbour(self) -> Gaussian:
        """Least squares on the logits, with about the same variances: it reads ``y`` and ``variance``."""
        return Gaussian()

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, L = namespace(rows["y"]), rows["y"]
        return [L, *(xp.where(xp.isinf(rows[side]), L, rows[side]) for side in ("left", "right"))]

    def _shapes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu phi and (1 - mu) phi at eta (N, M)."""
        phi = per_row(self.precision, eta.shape[0])[:, None]
        return phi * expit(eta) + 1e-300, phi * expit(-eta) + 1e-300


class Beta(BetaShares):
    """Proportions in (0, 1) with mean ``1 / (1 + exp(-eta))`` and variance ``mean (1 - mean) / (1 + precision)``.

    Parameters
    ----------
    precision : float
        phi, above 0: y ~ Beta(mean phi, (1 - mean) phi). A larger precision means less noise. Learnable.
    bound : {"tangent"}
        The bound replaces the tails of the log density by tangents. The problem is then log-concave, and the fit has a
        lower bound on the evidence with a strong-concavity certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Beta
    >>> Beta(3.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([0.0625])
    """

    word, aliases, support = "beta", ("betafamily", "betar"), "unit"
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
                self.name,
                f"y{first_value(edge, y)} is exactly 0 or 1, where a beta density is 0 or infinite",
                wanted,
                advice,
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
        plus, minus, mu, rest = logistic_parts(eta)
        g1, d1, t1 = gamma_functions(1.0 + phi * mu)
        g2, d2, t2 = gamma_functions(1.0 + phi * rest)
        lean, pull, bend = rest - mu, d1 - d2 - L, phi * mu * rest
        log_y, log_rest = rows["log_y"][:, None], rows["log_rest"][:, None]
        # log Gamma(x) = log Gamma(1 + x) - log x
        psi = g1 + g2 + plus + minus - phi * (mu * log_y + rest * log_rest) + log_y + log_rest
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

    # -- prediction --------------------------------------------------------------------------------
    def dispersion_factor(self, n: int) -> np.ndarray:
        return 1.0 / (1.0 + per_row(self.precision, n))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(logit(mean(y, w)))

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


class BetaBinomial(BetaShares):
    """Counts of successes among known numbers of trials, with more variance than a binomial count.

    Parameters
    ----------
    trials : int or array (N,)
        Number of trials of each row; 0 means unobserved.
    precision : float or array (N,)
        phi, above 0; a large precision is nearly a binomial distribution. Learnable if it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BetaBinomial
    >>> BetaBinomial(10, 4.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([7.])
    """

    word, support = "beta-binomial", "count"
    row_parameters = needs = ("trials",)
    parameters = (
        Parameter(
            "precision", "precision", bounds=(1e-3, 1e7), weak=(2.0, 3.0), formula=("dispersion", "log precision")
        ),
    )

    def __init__(self, trials: ArrayLike, precision: ArrayLike = 10.0) -> None:
        phi = positive(self.name, "precision", numeric(self.name, "precision", precision))
        self.trials, self.precision = trials, float(phi) if phi.ndim == 0 else phi

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        count, n, seen = self.check_trials(y)
        phi = per_row(self.precision, y.shape[0]) + 0.0
        share = (count + 0.5) / (n + 1.0)
        unlike, back = np.unique(np.stack([count, n, phi]), axis=1, return_inverse=True)
        left, right = (side[back.ravel()] for side in _inflections(*unlike))
        return {
            "y": logit(share),  # the target on the scale of eta
            "variance": (phi + n) / (phi + 1.0) / (n * share * (1.0 - share)),
            "count": count,
            "of": n,
            "precision": phi,
            "left": left,
            "right": right,
            "weight": seen.astype(np.float64),
        }

    def constant(self, rows: Rows) -> Array:
        total = rising(namespace(rows["of"]).log(rows["precision"]), rows["of"])[0]
        return total - choices(rows["of"], rows["count"])

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        value, first, second = _parts(eta, rows["count"][:, None], rows["of"][:, None], rows["precision"][:, None])
        return value + self.constant(rows)[:, None], first, second

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        log_phi, (plus, minus, mu, rest) = namespace(eta).log(rows["precision"]), logistic_parts(eta)
        _, x1, x2 = rising(log_phi[:, None] - minus, rows["count"][:, None])
        _, z1, z2 = rising(log_phi[:, None] - plus, (rows["of"] - rows["count"])[:, None])
        total = rising(log_phi, rows["of"])[1]
        return total[:, None] - x1 - z1, z2 * mu - x2 * rest

    # -- prediction --------------------------------------------------------------------------------
    def dispersion_factor(self, n: int) -> np.ndarray:
        phi = per_row(self.precision, n)
        return (phi + self._trials(n)) / (phi + 1.0)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        n, phi = (per_row(v, eta.shape[0])[:, None] for v in (self.trials, self.precision))
        x, total = np.broadcast_to(np.minimum(x, n), eta.shape), np.zeros(eta.shape)
        up, down = phi * expit(eta), phi * expit(-eta)
        log_p = rising(np.log(phi) - softplus(eta), n)[0] - rising(np.log(phi), n)[0]  # of k = 0
        for k in range(int(np.max(x, initial=-1.0)) + 1):
            total += np.where(k <= x, np.exp(log_p), 0.0)
            left = np.maximum(n - k, 0.5)
            log_p = (
                log_p
                + np.log(left / (k + 1.0))
                + np.log(up + k + 1e-300)
                - np.log(down + np.maximum(left - 1.0, 0.0) + 1e-300)
            )
        return np.where(x >= n, 1.0, np.clip(total, 0.0, 1.0))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n = per_row(self.trials, eta.shape[0])[:, None].astype(np.int64)
        return rng.binomial(n, rng.beta(*self._shapes(eta))).astype(np.float64)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BetaBinomial, np.ndarray]:
        own = cls(rng.integers(1, 12, n), float(rng.gamma(3.0, 2.0) + 0.5))
        return own, own.draw(rng.normal(size=(n, 1)), rng)[:, 0]


def _parts(eta: Array, y: Array, n: Array, phi: Array) -> tuple[Array, Array, Array]:
    """-R(x, y) - R(z, n - y) and its first two slopes in eta, all of one shape."""
    log_phi, (plus, minus, mu, rest) = namespace(eta).log(phi), logistic_parts(eta)
    x0, x1, x2 = rising(log_phi - minus, y)
    z0, z1, z2 = rising(log_phi - plus, n - y)
    return -x0 - z0, z1 * mu - x1 * rest, (x1 + z1) * mu * rest - x2 * rest**2 - z2 * mu**2


def _inflections(y: np.ndarray, n: np.ndarray, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """eta where psi'' = 0 on the left and on the right of the mode, infinite where there is none, each (N,)."""
    far = 40.0 + np.abs(np.log(phi))
    mode = crossing(-far, far, lambda eta: np.asarray(_parts(eta, y, n, phi)[1]) > 0.0)
    left, right = (inflection(mode, end, lambda eta: np.asarray(_parts(eta, y, n, phi)[2])) for end in (-far, far))
    # with one success at most nothing bends down on the left, and with one failure at most on the right
    near = far - 1.0
    return np.where((y > 1.0) & (left > -near), left, -np.inf), np.where((n - y > 1.0) & (right < near), right, np.inf)
