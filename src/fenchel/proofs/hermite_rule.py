"""Integrals of many nearly Gaussian sites by two Gauss-Hermite rules.

    L(p) = log E exp(p gt(x)),   x ~ N(0, 1):       sums over 11 nodes, and over 7 of which one is shared

With many rows for each latent, p gt is small wherever phi is not negligible. The stated error is the difference of the
two rules; the error of the larger rule is far smaller. The rules are used only for log-concave integrands such that
p gt is small at all nodes and at two points beyond, and such that its Hermite coefficients decrease, because at a steep
side both rules may have the same error. Every other site is integrated on a grid of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import factorial

_LARGE, _SMALL = 11, 7
_BEYOND = 7.5  # sds at which the tails are checked
_NEAR = 3.5  # sds within which |p gt| is limited by
_QUIET = 1.0  # this, in nats,
_TAIL = 8.0  # and beyond by this
_SHARE = 0.01  # largest error, relative to the contribution of a site to the width
_FALLEN = 0.01  # largest ratio of the last Hermite coefficients of p gt to the first ones
_LEAST = 1e-12  # nats: an error that is always accepted, and is added


def _rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / w.sum()


_X, _W = _rule(_LARGE)
_OTHER, _OTHER_W = _rule(_SMALL)
_MIDDLE, _OTHER_MIDDLE = _LARGE // 2, _SMALL // 2
NODES = np.concatenate([_X, np.delete(_OTHER, _OTHER_MIDDLE), [-_BEYOND, _BEYOND]])
LOG_WEIGHTS = np.log(_W)  # at the first nodes
_HERMITE = np.polynomial.hermite_e.hermevander(_X, _LARGE - 1) / np.sqrt(factorial(np.arange(_LARGE)))
_COEFFICIENTS = _W[:, None] * _HERMITE  # Hermite coefficients from values at the first nodes


@dataclass(frozen=True)
class HermiteSums:
    """L (n,), its error, whether it is accepted, and averages of |p gt| and x^2 under the tilted densities."""

    value: np.ndarray
    error: np.ndarray
    accepted: np.ndarray
    terms: np.ndarray
    square: np.ndarray


def hermite_sums(gt: np.ndarray, p: np.ndarray) -> HermiteSums:
    """The integrals of sites with values gt (n, M) at ``NODES``, for exponents p (n,)."""
    with np.errstate(invalid="ignore", over="ignore"):
        middle = gt[:, _MIDDLE]
        y = p[:, None] * (gt - middle[:, None])
        loudest = np.abs(y[:, :-2][:, np.abs(NODES[:-2]) <= _NEAR]).max(axis=1)
        quiet = (loudest <= _QUIET) & (np.abs(y).max(axis=1) <= _TAIL)
    y = np.where(quiet[:, None], y, 0.0)
    f = np.exp(y[:, :-2])
    own = f[:, :_LARGE]
    total = own @ _W
    rest = f[:, _LARGE:] @ np.delete(_OTHER_W, _OTHER_MIDDLE) + own[:, _MIDDLE] * _OTHER_W[_OTHER_MIDDLE]
    value, change = np.log(total), np.abs(rest / total - 1.0)
    linear = y[:, :_LARGE] @ _W  # p E gt, the part in the elbo
    size = np.abs(y[:, :_LARGE] @ _COEFFICIENTS)
    smooth = size[:, -3:].max(axis=1) <= _FALLEN * size[:, 2:5].max(axis=1) + _LEAST
    accepted = quiet & smooth & (change <= _SHARE * (value - linear) + _LEAST)
    terms = (own * np.abs(y[:, :_LARGE])) @ _W / total
    constant = p * middle
    return HermiteSums(
        constant + value, change + _LEAST, accepted, np.abs(constant) + terms, own @ (_W * _X**2) / total
    )
