"""Penalised-complexity priors of a share phi in (0, 1) and of a correlation rho in (-1, 1).

    d = sqrt(2 KL(model || base)),   p(d) = rate e^{-rate d}          exponential in the distance from the base model

    CovarianceShare   phi of BYM2     Sigma = (1 - phi) I + phi G    2 KL = sum_i x_i - log(1 + x_i),  x = phi (g_i - 1)
    PrecisionShare    rho of Leroux   Q = (1 - rho) I + rho R        2 KL = sum_i 1/c_i - 1 + log c_i, c = 1 + x
    PCCorrelation     phi of AR1      base 0: d = sqrt(-log(1 - rho^2));    base 1: d = sqrt(1 - rho), cut at sqrt 2

The base of a share is phi = 0, independent effects. g_i are the eigenvalues of a scaled covariance, with 0 where it is
held free of a level, r_i those of a Laplacian (Riebler et al. 2016; Sorbye and Rue 2017). Eigenvalues are exact up to
``gates.EVERY_EIGENVALUE`` nodes; beyond, the ``_LOWEST`` are, and a Gauss quadrature of random vectors stands for the
others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import brentq

from .. import gates
from ..checks import problem
from .priors import ScalarPrior, Scale

_LOWEST = 64  # eigenvalues that are found beyond
_VECTORS = 16  # random ones of the quadrature
_STEPS = 80  # of Lanczos' method
_SMALL = 1e-3  # of x, below which x - log(1 + x) is a series


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues with how often each counts."""

    values: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, Q: Any, k: int = 0) -> Spectrum:
        """Of a sparse symmetric Q (n, n), its k smallest left out: those of directions in which it is 0."""
        n = Q.shape[0]
        if n <= gates.EVERY_EIGENVALUE:
            return cls(np.linalg.eigvalsh(Q.toarray())[k:], np.ones(n - k))
        from scipy.sparse.linalg import eigsh

        below = -1e-6 * float(abs(Q.diagonal()).max())
        low, vectors = eigsh(sp.csc_array(Q), k=min(k + _LOWEST, n - 2), sigma=below)
        known = np.linalg.qr(vectors)[0]
        nodes, weights = [np.sort(low)[k:]], [np.ones(low.size - k)]
        rng = np.random.default_rng(0)
        for _ in range(_VECTORS):
            z = rng.choice([-1.0, 1.0], n)
            t, w = _quadrature(Q, z - known @ (known.T @ z), known)
            nodes.append(t)
            weights.append(w * (n - low.size) / _VECTORS)
        return cls(np.concatenate(nodes), np.concatenate(weights))

    def inverse(self) -> Spectrum:
        """Of the inverse."""
        return Spectrum(1.0 / self.values, self.weights)

    def with_zeros(self, k: int) -> Spectrum:
        """And k times 0."""
        return Spectrum(np.r_[np.zeros(k), self.values], np.r_[np.ones(k), self.weights])


def _quadrature(Q: Any, z: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights, which sum to 1, with z' f(Q) z / |z|^2 = sum_j w_j f(t_j), by Lanczos' method.

    ``known`` (n, k) are eigenvectors that z has no part in.
    """
    basis, diagonal, beside = [z / np.linalg.norm(z)], [], []
    for _ in range(_STEPS):
        v = Q @ basis[-1]
        diagonal.append(float(basis[-1] @ v))
        B = np.column_stack([*basis, known])
        for _ in range(2):  # against all before it, twice: rounding
            v = v - B @ (B.T @ v)
        size = float(np.linalg.norm(v))
        if size < 1e-10 * abs(diagonal[0]):
            break
        beside.append(size)
        basis.append(v / size)
    t, U = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(beside[: len(diagonal) - 1]))
    return t, U[0] ** 2


@dataclass(frozen=True, eq=False)
class Distance(ABC):
    """2 KL from the base model at phi = 0: the sum of t - log(1 + t) over eigenvalues 1 + t of a covariance."""

    spectrum: Spectrum

    def __call__(self, phi: float, rest: float) -> tuple[float, float, float]:
        """2 KL and its first two derivatives in phi; ``rest`` is 1 - phi, with its digits."""
        away = self.spectrum.values - 1.0
        t, whole, first, second = self._eigenvalues(phi * away, rest + phi * self.spectrum.values, away)
        near = np.abs(t) < _SMALL
        series = t * t * (0.5 - t * (1.0 / 3.0 - t * (0.25 - t / 5.0)))
        value = np.where(near, series, t - np.log(np.where(near, 1.0, whole)))
        ratio, w = t / whole, self.spectrum.weights
        return float(w @ value), float(w @ (ratio * first)), float(w @ ((first / whole) ** 2 + ratio * second))

    @abstractmethod
    def _eigenvalues(self, x: np.ndarray, c: np.ndarray, away: np.ndarray) -> tuple[np.ndarray, ...]:
        """t, 1 + t with its digits, and two derivatives of t, where x = phi away and c = 1 + x."""


class CovarianceShare(Distance):
    """(1 - phi) I + phi G, with G of these eigenvalues."""

    def _eigenvalues(self, x: np.ndarray, c: np.ndarray, away: np.ndarray) -> tuple[np.ndarray, ...]:
        return x, c, away, np.zeros(x.size)


class PrecisionShare(Distance):
    """The inverse of (1 - rho) I + rho R, with R of these eigenvalues."""

    def _eigenvalues(self, x: np.ndarray, c: np.ndarray, away: np.ndarray) -> tuple[np.ndarray, ...]:
        return -x / c, 1.0 / c, -away / c**2, 2.0 * away**2 / c**3


@dataclass(frozen=True)
class PCShare(ScalarPrior):
    """P(phi < u) = probability, for theta = logit phi, exponential in the distance from phi = 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.shares import CovarianceShare, PCShare, Spectrum
    >>> prior = PCShare(0.5, 2 / 3, CovarianceShare(Spectrum(np.array([0.0, 0.5, 3.0]), np.ones(3))))
    >>> round(prior(0.0)[0], 4)
    -1.6903
    """

    u: float
    probability: float
    distance: Distance

    def __post_init__(self) -> None:
        if not self.distance(self.u, 1.0 - self.u)[0] > 0.0:
            got = "a PC prior of a share, and no node has a neighbour"
            raise problem("PC", got, "a graph with neighbours", "Without them the share means nothing.")

    @property
    def rate(self) -> float:
        """Of the exponential distribution of the distance."""
        return -float(np.log1p(-self.probability)) / float(np.sqrt(self.distance(self.u, 1.0 - self.u)[0]))

    def in_words(self, scale: Scale) -> str:
        return f"PC, P({scale.name} < {self.u:.4g}) = {self.probability:.4g}"

    def __call__(self, theta: float) -> tuple[float, float]:
        e = float(np.exp(-abs(theta)))
        large, small = 1.0 / (1.0 + e), e / (1.0 + e)
        phi, rest = (large, small) if theta >= 0.0 else (small, large)
        twice, first, second = self.distance(phi, rest)
        d, rate = float(np.sqrt(twice)), self.rate
        value = np.log(rate) - rate * d + np.log(first / (2.0 * d)) + np.log(phi) + np.log(rest)
        slope = phi * rest * (-rate * first / (2.0 * d) + second / first - first / (2.0 * twice)) + rest - phi
        return float(value), float(slope)


@dataclass(frozen=True)
class PCCorrelation(ScalarPrior):
    """P(abs rho < u) = probability (base 0) or P(rho < u) = probability (base 1), for theta = 2 atanh rho.

    INLA's pc.cor0(u, a) is base 0 with probability 1 - a, its pc.cor1(u, a) base 1 with probability 1 - a.
    """

    u: float
    probability: float
    base: int = 0

    def __post_init__(self) -> None:
        least = 1.0 - float(np.sqrt((1.0 - self.u) / 2.0))
        if self.base == 1 and not self.probability < least:
            got = f"P(phi < {self.u:g}) = {self.probability:g} with base 1"
            raise problem("PC", got, f"alpha below {least:.3f}", "A prior toward phi = 1 has no more below it.")

    @property
    def rate(self) -> float:
        """Of the exponential distribution of the distance."""
        if self.base == 0:
            return -float(np.log1p(-self.probability) / np.sqrt(-np.log1p(-(self.u**2))))
        d, above = float(np.sqrt(1.0 - self.u)), 1.0 - self.probability
        share = lambda rate: np.expm1(-rate * d) / np.expm1(-rate * np.sqrt(2.0)) - above
        top = 1.0
        while share(top) < 0.0:
            top *= 2.0
        return float(brentq(share, 1e-12, top))

    def in_words(self, scale: Scale) -> str:
        name = f"|{scale.name}|" if self.base == 0 else scale.name
        return f"PC toward {self.base}, P({name} < {self.u:.4g}) = {self.probability:.4g}"

    def __call__(self, theta: float) -> tuple[float, float]:
        rho, rate = float(np.tanh(theta / 2.0)), self.rate
        if self.base == 1:
            d = float(np.sqrt(2.0 / (1.0 + np.exp(theta))))
            free = 4.0 * np.exp(-abs(theta)) / (1.0 + np.exp(-abs(theta))) ** 2  # 1 - rho^2
            whole = np.log(-np.expm1(-rate * np.sqrt(2.0)))
            value = np.log(rate) - rate * d - whole - np.log(2.0 * d) + np.log(free / 2.0)
            return float(value), float((1.0 + rho) / 4.0 * (rate * d + 1.0) - rho)
        twice = 2.0 * (np.logaddexp(theta / 2.0, -theta / 2.0) - np.log(2.0))  # -log(1 - rho^2)
        if abs(theta) < 1e-4:  # rho / d is 1 there, and the density has its peak
            return float(np.log(rate / 4.0) - rate * abs(theta) / 2.0), float(-np.sign(theta) * rate / 2.0)
        d = float(np.sqrt(twice))
        value = np.log(rate / 4.0) - rate * d + np.log(abs(rho) / d)
        slope = -rate * rho / (2.0 * d) + (1.0 - rho * rho) / (2.0 * rho) - rho / (2.0 * twice)
        return float(value), float(slope)
