"""Means of y on the log and the logit scale of eta, and the moments of y over eta ~ N(h, rho), in closed form.

LogLink      E[y | eta] = m = level e^{k eta},   Var[y | eta] = sum_p c_p m^p
             E[m^p] = level^p e^{p k h + p^2 k^2 rho/2}
LogitLink    E[y | eta] = n mu,   mu = sigmoid(eta),   Var[y | eta] = c n mu (1 - mu)
             Var[mu] = E[mu] E[1 - mu] - E[mu (1 - mu)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import logit

from ..checks import counts, finite, first_value, number, problem, vector
from ..linalg.arrays import Array, Seed, asarray, namespace
from ..linalg.logistic_normal import FIRST, REST, TAU, logistic_moments
from .base import Likelihood, flat
from .parameters import per_row


class LogLink(Likelihood):
    """Log link: the mean is ``mean_level`` times exp(``mean_rate`` eta)."""

    mean_rate: float = 1.0  # k

    def mean_level(self, n: int) -> np.ndarray:
        """The mean of each of n rows at eta = 0 (n,)."""
        return np.ones(n)

    def variance_terms(self, n: int) -> Sequence[tuple[Any, float]]:
        """(c_p, p) of the variance given eta, c_p a number or (n,)."""
        raise NotImplementedError(f"{self.name} does not implement variance_terms().")

    def _moment(self, h: Array, rho: Array, p: float) -> Array:
        """E[m^p] of each row (N,)."""
        k, level = p * self.mean_rate, asarray(self.mean_level(h.shape[0]) ** p, h)
        return level * namespace(h).exp(k * h + k * k * rho / 2)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        with np.errstate(over="ignore"):  # a mean can be infinite
            return self._moment(flat(h), flat(rho), 1.0)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        with np.errstate(over="ignore"):
            total = self._moment(h, rho, 1.0) ** 2 * namespace(h).expm1(self.mean_rate**2 * rho)
            for factor, p in self.variance_terms(h.shape[0]):
                total = total + asarray(factor + np.zeros(h.shape[0]), h) * self._moment(h, rho, p)
        return total

    def link_variance(self, eta: np.ndarray, spread: float = 0.0, weights: np.ndarray | None = None) -> float:
        """log(1 + Var[y] / E[y]^2) where each row has the mean of all (Nakagawa, Johnson and Schielzeth 2017)."""
        eta = np.asarray(eta, dtype=np.float64)
        mean = self.mean_at(eta + self.mean_rate * spread / 2.0)
        same = eta + self.mean_rate * spread / 2.0 + np.log(np.average(mean, weights=weights) / mean) / self.mean_rate
        ratio = self.variance_at(same) / self.mean_at(same) ** 2
        return float(np.average(np.log1p(ratio), weights=weights)) / self.mean_rate**2


class LogitLink(Likelihood):
    """Logit link: the mean is ``trials`` (or 1) times the sigmoid of eta."""

    ratio: str | None = "odds_ratio"
    trials: Any = 1.0

    def _trials(self, n: int) -> np.ndarray:
        """Of each of n rows (n,)."""
        return vector(self.name, "trials", self.trials, n)

    def dispersion_factor(self, n: int) -> Any:
        """c, a number or (n,)."""
        return 1.0

    @staticmethod
    def moments(h: Array, rho: Array) -> tuple[Array, Array, Array]:
        """E[mu], E[1 - mu] and E[mu (1 - mu)], each (N,) and exact in both tails."""
        m = logistic_moments(flat(h), flat(rho))
        return m[TAU, :], m[REST, :], m[FIRST, :]

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        success = self.moments(h, rho)[0]
        return asarray(self._trials(success.shape[0]), success) * success

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        success, failure, both = self.moments(h, rho)
        trials = self._trials(success.shape[0])
        n, inside = (asarray(x, success) for x in (trials, trials * self.dispersion_factor(trials.shape[0])))
        return inside * both + n**2 * namespace(both).clip(success * failure - both, 0.0, None)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """Half a success and half a failure are added."""
        trials = float((w * np.nan_to_num(per_row(self.trials, y.shape[0]))).sum())
        return float(logit((float(w @ y) + 0.5) / (trials + 1.0)))

    def check_trials(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts of successes and trials, and which rows are observed: trials of 0 are an unobserved row."""
        counts(self.name, "y", y, "Successes are counted: multiply shares by their trials.")
        trials = finite(self.name, "trials", self._trials(y.shape[0]))
        counts(self.name, "trials", trials)
        with np.errstate(invalid="ignore"):
            impossible = y > trials
        if impossible.any():
            got = f"y{first_value(impossible, y)} exceeds its {number(trials[impossible][0])} trials"
            raise problem(self.name, got, "0 <= y <= trials", "Check the order of the two columns.")
        seen = (trials > 0) & ~np.isnan(y)
        return np.where(seen, y, 0.0), np.where(seen, trials, 1.0), seen

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        n = per_row(self.trials, x.shape[0])
        inside = np.clip(x + 0.5, 0.5, np.maximum(n - 0.5, 0.5))
        width = np.minimum(1.0, np.maximum(np.minimum(x, n - x), 1.0) ** -0.5)
        return np.log(inside) - np.log(np.maximum(n - inside, 0.5)), width
