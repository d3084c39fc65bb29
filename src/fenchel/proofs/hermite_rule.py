"""Integrals of many sites that are nearly Gaussian, by two of Gauss and Hermite's rules.

    L(p) = log E exp(p gt(x)),   x ~ N(0, 1):       sums over 11 nodes, and over 7 of which one is shared

With many rows to a latent p gt is small wherever phi counts. The difference of the two rules is the error that is
stated; that of the larger one is far smaller. It counts only for log-concave integrands whose p gt is small at all
nodes, and has not grown at two places beyond, and whose Hermite coefficients fall: at a steep side both rules may be
off alike. Any other site is left to a grid of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import factorial

_LARGE, _SMALL = 11, 7
_BEYOND = 7.5  # sds: where the tails are looked at
_NEAR = 3.5  # sds within which
_QUIET = 1.0  # nats are the most that p gt may be,
_TAIL = 8.0  # and beyond
_SHARE = 0.01  # of what a site adds to the width that its error may be
_FALLEN = 0.01  # size of the last Hermite coefficients of p gt beside the first ones, at most
_LEAST = 1e-12  # nats: an error that is always small enough, and added


def _rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / w.sum()


_X, _W = _rule(_LARGE)
_OTHER, _OTHER_W = _rule(_SMALL)
_MIDDLE, _OTHER_MIDDLE = _LARGE // 2, _SMALL // 2
NODES = np.concatenate([_X, np.delete(_OTHER, _OTHER_MIDDLE), [-_BEYOND, _BEYOND]])
LOG_WEIGHTS = np.log(_W)  # of the first nodes
_HERMITE = np.polynomial.hermite_e.hermevander(_X, _LARGE - 1) / np.sqrt(factorial(np.arange(_LARGE)))
_COEFFICIENTS = _W[:, None] * _HERMITE  # of a function at the first nodes


@dataclass(frozen=True)
class HermiteSums:
    """L (n,), its error, whether that is small enough, and averages of |p gt| and x^2 under the tilted densities."""

    value: np.ndarray
    error: np.ndarray
    accepted: np.ndarray
    terms: np.ndarray
    square: np.ndarray


def hermite_sums(gt: np.ndarray, p: np.ndarray) -> HermiteSums:
    """The sums of sites with gt (n, M) at ``NODES``, at exponents p (n,)."""
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
    linear = y[:, :_LARGE] @ _W  # p E gt: what the elbo has of it
    size = np.abs(y[:, :_LARGE] @ _COEFFICIENTS)
    smooth = size[:, -3:].max(axis=1) <= _FALLEN * size[:, 2:5].max(axis=1) + _LEAST
    accepted = quiet & smooth & (change <= _SHARE * (value - linear) + _LEAST)
    terms = (own * np.abs(y[:, :_LARGE])) @ _W / total
    constant = p * middle
    return HermiteSums(
        constant + value, change + _LEAST, accepted, np.abs(constant) + terms, own @ (_W * _X**2) / total
    )
