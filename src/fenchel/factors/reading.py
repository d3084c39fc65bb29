"""Whole numbers without a dtype that says what they are: counts, ordered levels, or codes of categories?

Each reading of a column predicts it from the others, by a regression on the two leading principal components F of what
they say, and is judged by its evidence (Schwarz's: log likelihood less half the logarithm of n for each parameter):

    counts              negative binomial, log mean  F w + b; for negative numbers a normal stands here
    ordered levels      P(y <= k) = sigmoid(b_k - F w)
    categories          softmax of F W + b, K - 1 of them

Counts would be few parameters for many values; levels spend one on each value, which pays where the values end abruptly
(1 to 5) or are less spread than counts; categories spend (K - 1) on each component, which pays where order says nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaincinv, log_softmax, logit

from ..likelihoods import Gaussian, NegativeBinomial, Ordinal
from ..likelihoods.base import Likelihood

MOST_LEVELS, ROWS_A_LEVEL = 12, 3  # more distinct values, or fewer cells for each, are not judged as levels
_ROWS, _COMPONENTS = 2000, 2  # rows that are looked at, and components of the others
_CLEAR = 5.0  # nats by which a reading must be better than the next for it not to be a guess
_LARGE = 100.0  # a mean from which whole numbers are as good as real ones
_RIDGE = 0.01  # keeps a coefficient finite where levels are separated


class Reading(NamedTuple):
    """What a column was read as, why in a few words, and whether another reading is nearly as good."""

    kind: str
    why: str
    guessed: bool = False


def many_values(y: np.ndarray) -> Reading:
    """Whole numbers >= 0 with too many values, or too few cells, to be levels."""
    n, mean = y.size, float(y.mean())
    K, span = np.unique(y).size, f"whole numbers from {int(y.min())} to {int(y.max())}"
    if mean >= _LARGE:
        return Reading("gaussian", f"{span}: so large that they are as good as real", True)
    even = n > 1 and (n - 1) * float(y.var(ddof=1)) < 2.0 * mean * float(gammaincinv(0.5 * (n - 1), 1e-4))  # a quantile of chi^2
    if even and K > MOST_LEVELS:
        return Reading("gaussian", f"{span}, less spread than counts", True)
    few = K <= MOST_LEVELS
    return Reading("poisson", f"{span}, {'too few cells to tell from levels' if few else 'as spread as counts'}", few)


def judge(y: np.ndarray, F: np.ndarray) -> Reading:
    """A column of few distinct whole numbers y (n,) beside the components F (n, q) of the others."""
    values, codes = np.unique(y, return_inverse=True)
    n, K, q = y.size, values.size, F.shape[1]
    ones = np.hstack([F, np.ones((n, 1))])
    if y.min() >= 0:
        plain, first = "poisson", NegativeBinomial(5.0)
        number, begin = _scalar(first, y, ones, np.r_[np.zeros(q), np.log(y.mean())], (-4.0, 12.0)), q + 2
    else:
        plain = "gaussian"
        number, begin = _scalar(Gaussian(float(y.var())), y, ones, np.r_[np.zeros(q), y.mean()], (-12.0, 12.0)), q + 2
    share = np.cumsum(np.bincount(codes))[:-1] / n
    ordered = _scalar(Ordinal(logit(share)), codes.astype(float), F, np.zeros(q), (-12.0, 12.0))
    found = {
        plain: number - 0.5 * begin * np.log(n),
        "ordinal": ordered - 0.5 * (K - 1 + q) * np.log(n),
        "multinomial": _softmax(codes, ones, K) - 0.5 * (K - 1) * (q + 1) * np.log(n),
    }
    if K == 2:
        found = {plain: found[plain], "bernoulli": found["ordinal"]}
    best, second = sorted(found, key=lambda kind: -found[kind])[:2]
    words = {
        "poisson": "counts",
        "gaussian": "real numbers",
        "ordinal": "ordered levels",
        "multinomial": "categories",
        "bernoulli": "two levels",
    }
    lead = found[best] - found[second]
    why = f"{K} whole numbers from {int(values[0])} to {int(values[-1])}: {words[best]} by {lead:.1f} nats against "
    return Reading(best, why + words[second], lead < _CLEAR)


def components(blocks: list[np.ndarray], j: int) -> np.ndarray:
    """Scores (R, q) of the rows on the leading components of all blocks (R, .) but the j-th."""
    others = [block for i, block in enumerate(blocks) if i != j and block.shape[1]]
    if not others:
        return np.zeros((blocks[j].shape[0], 0))
    Z = np.hstack(others)
    roots, vectors = np.linalg.eigh(Z.T @ Z)
    keep = roots > 1e-9 * max(roots[-1], 1e-300)
    F = Z @ vectors[:, keep][:, ::-1][:, :_COMPONENTS]
    return F / np.maximum(F.std(axis=0), 1e-300)


def block(values: np.ndarray, few: bool) -> np.ndarray:
    """A column as numbers that vary by about one, 0 for holes: an indicator of each value where they are few."""
    seen = ~np.isnan(values)
    if not seen.any():
        return np.zeros((values.size, 0))
    Z = (values[:, None] == np.unique(values[seen])).astype(float) if few else values[:, None]
    Z = np.where(seen[:, None], Z - Z[seen].mean(axis=0), 0.0)
    return Z / max(float(np.sqrt((Z * Z).sum(axis=1).mean())), 1e-300)


def sample(n: int) -> np.ndarray:
    """The rows that are looked at: all of a short table, some of a long one, always the same."""
    return np.arange(n) if n <= _ROWS else np.sort(np.random.default_rng(0).choice(n, _ROWS, replace=False))


# -- regressions ---------------------------------------------------------------------------------------
def _scalar(first: Likelihood, y: np.ndarray, F: np.ndarray, w: np.ndarray, reach: tuple[float, float]) -> float:
    """The largest log likelihood over w and the likelihood's own parameters, theta, which are kept within ``reach``."""
    none, q = np.zeros((y.size, 1)), w.size

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        own, eta = first.with_theta(x[q:]), (F @ x[:q])[:, None]
        rows = own.prepare(y)
        psi, slope, _ = own.derivatives(eta, rows)
        theta = own.theta_gradient(eta, none, rows)
        value = float(np.sum(psi)) + 0.5 * _RIDGE * float(x[:q] @ x[:q])
        return value, np.concatenate([F.T @ slope[:, 0] + _RIDGE * x[:q], -theta])

    x = np.concatenate([w, np.clip(first.theta, *reach)])
    return -_least(loss, x, [(None, None)] * q + [reach] * first.theta.size)


def _softmax(codes: np.ndarray, F: np.ndarray, K: int) -> float:
    """The largest log likelihood of a multinomial regression."""
    hot, q = np.eye(K)[codes], F.shape[1]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        W = x.reshape(q, K)
        log_p = log_softmax(F @ W, axis=1)
        value = -float(np.sum(log_p * hot)) + 0.5 * _RIDGE * float(x @ x)
        return value, (F.T @ (np.exp(log_p) - hot)).ravel() + _RIDGE * x

    return -_least(loss, np.zeros(q * K), None)


def _least(loss: Any, x: np.ndarray, bounds: Any) -> float:
    with np.errstate(all="ignore"):
        found = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60, "ftol": 1e-7})
    return float(found.fun)
