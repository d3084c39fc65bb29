"""Beta-binomial: y successes of n trials whose probability is Beta(mu phi, (1 - mu) phi), mu = sigmoid(eta).

    p(y|eta) = C(n, y) B(y + x, n - y + z) / B(x, z),      x = mu phi,  z = (1 - mu) phi
    psi      = R(phi, n) - R(x, y) - R(z, n - y) - log C(n, y),      R(r, k) = log Gamma(r + k) - log Gamma(r)

The variance of y is n mu (1 - mu) (phi + n)/(phi + 1): phi -> inf is the binomial. -log(x + j) and -log(z + j) are not
convex in eta for j > 0, so psi is not. With v = mu (1 - mu) and e_j = 1 + phi/j,

    psi''/v = n - sum_{0<j<y} e_j/(1 + mu (e_j - 1))^2 - sum_{0<j<n-y} e_j/(e_j - mu (e_j - 1))^2

Both sums are convex in mu, so psi is convex between two inflections at most, and concave beyond them: there it is
continued by its tangents (``tangents.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, logit

from ..checks import counts, finite, first_value, number, numeric, positive, problem, vector
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace
from ..linalg.functions import sigmoid, softplus
from ..linalg.logistic import FIRST, REST, TAU, logistic_moments
from .base import Rows, flat
from .gamma_ratios import choices, rising
from .gaussian import Gaussian
from .parameters import Parameter, shown
from .summaries import per_row
from .tangents import TangentLikelihood

_SECTIONS, _ROUNDS = 16, 10  # of an interval in which a crossing is looked for: together as 40 halvings


class BetaBinomial(TangentLikelihood):
    """Counts of successes among known numbers of trials, more variable than a binomial's.

    Parameters
    ----------
    trials : int or array (N,)
        Trials of each row; 0 means unobserved.
    precision : float or array (N,)
        phi, above 0; the larger, the nearer to a binomial. Learnable where it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BetaBinomial
    >>> BetaBinomial(10, 4.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([7.])
    """

    word, support, ratio = "beta-binomial", "count", "odds_ratio"
    row_parameters = needs = ("trials",)
    parameters = (
        Parameter(
            "precision", "precision", bounds=(1e-3, 1e7), weak=(2.0, 3.0), formula=("dispersion", "log precision")
        ),
    )

    def __init__(self, trials: ArrayLike, precision: ArrayLike = 10.0) -> None:
        phi = positive(self.name, "precision", numeric(self.name, "precision", precision))
        self.trials, self.precision = trials, float(phi) if phi.ndim == 0 else phi

    def neighbour(self) -> Gaussian:
        """Least squares on the logits, with about the same variances: it reads ``y`` and ``variance``."""
        return Gaussian()

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        counts(self.name, "y", y, "Successes are counted: multiply shares by their trials.")
        trials = finite(self.name, "trials", vector(self.name, "trials", self.trials, y.shape[0]))
        counts(self.name, "trials", trials)
        with np.errstate(invalid="ignore"):
            impossible = y > trials
        if impossible.any():
            got = f"y{first_value(impossible, y)} exceeds its {number(trials[impossible][0])} trials"
            raise problem(self.name, got, "0 <= y <= trials", "Check the order of the two columns.")
        observed = (trials > 0) & ~np.isnan(y)
        n, count = np.where(observed, trials, 1.0), np.where(observed, y, 0.0)
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
            "weight": observed.astype(np.float64),
        }

    def constant(self, rows: Rows) -> Array:
        total = rising(namespace(rows["of"]).log(rows["precision"]), rows["of"])[0]
        return total - choices(rows["of"], rows["count"])

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        value, first, second = _parts(eta, rows["count"][:, None], rows["of"][:, None], rows["precision"][:, None])
        return value + self.constant(rows)[:, None], first, second

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        log_phi = namespace(eta).log(rows["precision"])
        _, x1, x2 = rising(log_phi[:, None] - softplus(-eta), rows["count"][:, None])
        _, z1, z2 = rising(log_phi[:, None] - softplus(eta), (rows["of"] - rows["count"])[:, None])
        total = rising(log_phi, rows["of"])[1]
        return total[:, None] - x1 - z1, z2 * sigmoid(eta) - x2 * sigmoid(-eta)

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, L = namespace(rows["y"]), rows["y"]
        return [L, *(xp.where(xp.isinf(rows[side]), L, rows[side]) for side in ("left", "right"))]

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        m = logistic_moments(flat(h), flat(rho))
        return asarray(vector(self.name, "trials", self.trials, m.shape[1]), m) * m[TAU, :]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # n E[mu (1-mu)] (phi + n)/(phi + 1) + n^2 Var[mu]
        m = logistic_moments(flat(h), flat(rho))
        n = asarray(vector(self.name, "trials", self.trials, m.shape[1]), m)
        phi = asarray(per_row(self.precision, m.shape[1]) + 0.0, m)
        spread = m[TAU, :] * m[REST, :] - m[FIRST, :]
        spread = namespace(m).where(spread > 0.0, spread, 0.0 * spread)
        return n * m[FIRST, :] * ((phi + n) / (phi + 1.0)) + n**2 * spread

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        trials = float((w * np.nan_to_num(per_row(self.trials, y.shape[0]))).sum())
        return float(logit((float(w @ y) + 0.5) / (trials + 1.0)))

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
        n, phi = (per_row(v, eta.shape[0])[:, None] for v in (self.trials, self.precision))
        share = rng.beta(phi * expit(eta) + 1e-300, phi * expit(-eta) + 1e-300)
        return rng.binomial(n.astype(np.int64), share).astype(np.float64)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        n = per_row(self.trials, x.shape[0])
        inside = np.clip(x + 0.5, 0.5, np.maximum(n - 0.5, 0.5))
        return np.log(inside) - np.log(np.maximum(n - inside, 0.5)), 1.0

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BetaBinomial, np.ndarray]:
        own = cls(rng.integers(1, 12, n), float(rng.gamma(3.0, 2.0) + 0.5))
        return own, own.draw(rng.normal(size=(n, 1)), rng)[:, 0]

    def __repr__(self) -> str:
        return f"BetaBinomial(trials=..., precision={shown(self.precision)})"


def _parts(eta: Array, y: Array, n: Array, phi: Array) -> tuple[Array, Array, Array]:
    """-R(x, y) - R(z, n - y) and its first two slopes in eta, all of one shape."""
    xp = namespace(eta)
    log_phi, mu, rest = xp.log(phi), sigmoid(eta), sigmoid(-eta)
    x0, x1, x2 = rising(log_phi - softplus(-eta), y)
    z0, z1, z2 = rising(log_phi - softplus(eta), n - y)
    return -x0 - z0, z1 * mu - x1 * rest, (x1 + z1) * mu * rest - x2 * rest**2 - z2 * mu**2


def _inflections(y: np.ndarray, n: np.ndarray, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """eta where psi'' = 0 on the left and on the right, infinite where there is none: by sections about the mode."""
    far = 40.0 + np.abs(np.log(phi))

    def crossing(low: np.ndarray, high: np.ndarray, up: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Where ``up`` becomes true between two ends: a call for all of _SECTIONS places within them."""
        share = np.arange(1, _SECTIONS)[:, None] / _SECTIONS
        for _ in range(_ROUNDS):
            wide = high - low
            right = up(low + share * wide)
            steps = np.where(right.any(axis=0), right.argmax(axis=0), _SECTIONS - 1)  # sections before the crossing
            low = low + steps / _SECTIONS * wide
            high = low + wide / _SECTIONS
        return (low + high) / 2

    mode = crossing(-far, far, lambda eta: np.asarray(_parts(eta, y, n, phi)[1]) > 0.0)
    # with one success at most nothing bends down on the left, and with one failure at most on the right
    ends, m = (np.concatenate([-far, mode]), np.concatenate([mode, far])), y.size
    both = [np.concatenate([x, x]) for x in (y, n, phi)]
    rises = np.arange(2 * m) < m
    found = crossing(*ends, lambda eta: (np.asarray(_parts(eta, *both)[2]) > 0.0) == rises)
    left, right = found[:m], found[m:]
    near = far - 1.0
    return np.where((y > 1.0) & (left > -near), left, -np.inf), np.where((n - y > 1.0) & (right < near), right, np.inf)
