"""Binomial-logit: y successes of n trials, p(y|eta) = C(n, y) e^{y eta} / (1 + e^eta)^n.

    f(h, rho) = n f_Bernoulli(h, rho; y/n) - log C(n, y)

so it is the Bernoulli site at the fraction y/n with weight n; n = 0 is an unobserved row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betainc, expit, logit

from ..checks import counts, finite, first_value, number, problem, vector
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special
from ..linalg.functions import softplus
from .base import Rows
from .bernoulli import LogitLikelihood
from .bounds import Bound
from .summaries import per_row


class Binomial(LogitLikelihood):
    """Counts of successes among known numbers of trials.

    Parameters
    ----------
    trials : int or array (N,)
        Trials of each row; 0 means unobserved.
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
        counts(self.name, "y", y, "Successes are counted: multiply shares by their trials.")
        trials = finite(self.name, "trials", vector(self.name, "trials", self.trials, y.shape[0]))
        counts(self.name, "trials", trials)
        with np.errstate(invalid="ignore"):
            impossible = y > trials
        if impossible.any():
            raise problem(
                self.name,
                f"y{first_value(impossible, y)} exceeds its {number(trials[impossible][0])} trials",
                "0 <= y <= trials",
                "Check the order of the two columns.",
            )
        observed = (trials > 0) & ~np.isnan(y)
        n = np.where(observed, trials, 1.0)
        return {"y": np.where(observed, y, 0.0) / n, "trials": n, "weight": np.where(observed, n, 0.0)}

    def constant(self, rows: Rows) -> Array:
        n, y = rows["trials"], rows["trials"] * rows["y"]
        lgamma = [special("gammaln", a + 1.0) for a in (n, y, n - y)]
        return -(lgamma[0] - lgamma[1] - lgamma[2]) / n  # per trial: the weight multiplies by n

    def log_density(self, eta: Array, rows: Rows) -> Array:
        n, y = rows["trials"][:, None], rows["y"][:, None]
        return -n * (y * softplus(-eta) + (1.0 - y) * softplus(eta) + self.constant(rows)[:, None])

    def landmarks(self, rows: Rows) -> list[Array]:
        return [self.start(rows, 0.5)[:, 0], 0.0 * rows["y"]]

    def _trials_like(self, h: Array) -> Array:
        return asarray(vector(self.name, "trials", self.trials, h.shape[0]), h)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        success = self.moments(h, rho)[0]
        return self._trials_like(success) * success

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # n E[tau (1-tau)] + n^2 Var[tau], and Var[tau] = E[tau] E[1-tau] - E[tau (1-tau)]
        success, failure, both = self.moments(h, rho)
        n, spread = self._trials_like(success), success * failure - both
        return n * both + n**2 * namespace(spread).where(spread > 0.0, spread, 0.0 * spread)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        trials = float((w * np.nan_to_num(per_row(self.trials, y.shape[0]))).sum())
        return float(logit((float(w @ y) + 0.5) / (trials + 1.0)))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        # P(y <= k) = I_{1-p}(n - k, k + 1); at k = n it is 1, and the beta function ends
        left = per_row(self.trials, eta.shape[0])[:, None] - x
        return np.where(left <= 0.0, 1.0, betainc(np.maximum(left, 0.5), x + 1.0, expit(-eta)))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        trials = per_row(self.trials, eta.shape[0]).astype(np.int64)
        return rng.binomial(trials[:, None], expit(eta)).astype(np.float64)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        n = per_row(self.trials, x.shape[0])
        inside = np.clip(x + 0.5, 0.5, np.maximum(n - 0.5, 0.5))
        width = np.minimum(1.0, np.maximum(np.minimum(x, n - x), 1.0) ** -0.5)
        return np.log(inside) - np.log(np.maximum(n - inside, 0.5)), width

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Binomial, np.ndarray]:
        trials = rng.integers(1, 12, n)
        return cls(trials, str(rng.choice(list(cls.bounds)))), rng.binomial(trials, 0.4).astype(float)

    def __repr__(self) -> str:
        return f"Binomial(trials=..., bound={self.bound!r})"
