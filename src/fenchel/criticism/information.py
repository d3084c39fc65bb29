"""WAIC of a fit: how well it predicts, from the rows that it has seen, less what it owes to them.

    log E[p(y_n | eta_n)] - p_n,     p_n = Var[log p(y_n | eta_n)]

Expectations are over the marginals of eta under the posterior, Gaussian or not, by sums over an even grid. Of a mixture
over theta they are over the likelihood's own parameters too, part by part,

    E[p] = sum_k w_k E_k[p],     Var[log p] = sum_k w_k (Var_k[log p] + (E_k[log p] - E[log p])^2).

It approximates what leave-one-out computes; it is here because papers report it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ..checks import problem
from ..likelihoods.base import Likelihood, slice_rows
from ..linalg.arrays import to_numpy
from ..marginals import Marginals
from ..row_scores import RowScores

_POINTS = 241  # of the grid of eta
_REACH = 10.0  # standard deviations of eta that it covers to either side
_AT_ONCE = 4096
_LARGE = 0.4  # a variance of log p above which WAIC is known to be off (Vehtari, Gelman and Gabry 2017)


@dataclass(frozen=True, repr=False)
class InformationCriterion(RowScores):
    """WAIC.

    log_density : what each row adds to elpd (N,), NaN where y is unobserved
    penalty : what was taken off it (N,)
    flagged : bool (N,), rows whose penalty is too large for the criterion to be believed
    """

    log_density: np.ndarray
    penalty: np.ndarray
    flagged: np.ndarray

    @property
    def n_parameters(self) -> float:
        """The effective number of parameters."""
        return float(np.nansum(self.penalty))

    @property
    def value(self) -> float:
        """-2 elpd, as WAIC is printed elsewhere: less is better."""
        return -2.0 * self.elpd


Part = tuple[float, Likelihood, Marginals]  # of a mixture: its weight, and what it says of y and of eta


def waic(
    likelihood: Likelihood, marginals: Marginals, y: np.ndarray, parts: Sequence[Part] = ()
) -> InformationCriterion:
    """Of y (N,), NaN where it does not count, under the marginals of eta; or under the parts of a mixture."""
    log_mean, variance = _mixed(parts or [(1.0, likelihood, marginals)], y)
    return InformationCriterion(log_mean - variance, variance, variance > _LARGE)


def _mixed(parts: Sequence[Part], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log E[p] and Var[log p] (N,) of a mixture, NaN where y is."""
    w = np.array([weight for weight, _, _ in parts])[:, None]
    each = np.stack([_moments(likelihood, marginals, y) for _, likelihood, marginals in parts])
    mean = (w * each[:, 1]).sum(axis=0)
    variance = (w * (each[:, 2] + (each[:, 1] - mean) ** 2)).sum(axis=0)
    return np.asarray(logsumexp(each[:, 0], axis=0, b=w)), variance


def _moments(likelihood: Likelihood, marginals: Marginals, y: np.ndarray) -> np.ndarray:
    """log E[p], E[log p] and Var[log p] (3, N), NaN where y is."""
    mean, sd = to_numpy(marginals.mean), to_numpy(marginals.sd)
    if mean.ndim > 1:
        raise problem("waic", f"{likelihood.name} has several predictors an observation", "loo() instead")
    steps = np.linspace(-_REACH, _REACH, _POINTS)
    rows = likelihood.prepare(y)
    eta = mean[:, None] + sd[:, None] * steps
    share = _shares(marginals, eta, steps)
    out = np.empty((3, mean.size))
    for i in range(0, mean.size, _AT_ONCE):
        some = slice(i, min(mean.size, i + _AT_ONCE))
        here, own, p = likelihood.take(np.arange(some.start, some.stop)), slice_rows(rows, some), share[some]
        with np.errstate(all="ignore"):
            log_p = np.nan_to_num(np.asarray(here.log_density(eta[some], own)), nan=-np.inf, neginf=-1e300)
        top = log_p.max(axis=1, keepdims=True)
        first = np.sum(p * log_p, axis=1)
        out[0, some] = top[:, 0] + np.log(np.sum(p * np.exp(log_p - top), axis=1))
        out[1, some], out[2, some] = first, np.sum(p * np.where(p > 0.0, log_p - first[:, None], 0.0) ** 2, axis=1)
    return np.where(rows["weight"] > 0.0, out, np.nan)


def _shares(marginals: Marginals, eta: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The probability of each point of the grids (N, G)."""
    if not np.ptp(eta, axis=1).all():  # an eta without variance has no density
        p = np.broadcast_to(np.exp(-0.5 * steps**2), eta.shape)
    else:
        p = to_numpy(marginals.density(eta))
    return np.asarray(p / p.sum(axis=1, keepdims=True))
