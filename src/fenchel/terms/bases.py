"""Bases of smooth functions and their penalties: f(x) = X(x) beta, penalty beta' S beta.

    CubicRegression  cr   natural cubic spline by its values at knots; S the integral of f''^2; linear beyond the ends
    CyclicCubic      cc   the same around a period
    PSpline          ps   cubic B-splines on equal steps; S the sum of squared second differences; linear beyond
    ThinPlate        tp   radial functions of one or two columns; keeps the largest eigenvectors (Wood 2003)

S does not penalise polynomials of degree 1; around a period it does not penalise the level. Columns are given as
(x - low) / (high - low).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import scipy.linalg
from scipy.interpolate import BSpline, CubicSpline
from scipy.spatial.distance import cdist

_FLAT = 1e-9  # of the largest eigenvalue of S: a direction without penalty
_KNOTS = 1000  # of a thin plate: more rows than this are thinned


class Basis(ABC):
    """A basis over columns u (N, d), and its penalty.

    Attributes
    ----------
    straight : bool
        Whether straight lines are not penalised. Around a period only the level is not penalised.
    S : array (k, k)
    """

    straight: ClassVar[bool] = True
    S: np.ndarray

    @abstractmethod
    def __init__(self, u: np.ndarray, k: int) -> None:
        """k functions for the rows of a fit."""

    @abstractmethod
    def __call__(self, u: np.ndarray) -> np.ndarray:
        """X (N, k)."""

    def eigen(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of S, the free ones exactly 0, and its eigenvectors."""
        values, vectors = np.linalg.eigh((self.S + self.S.T) / 2)
        free = values <= _FLAT * values.max()
        return np.where(free, 0.0, values), vectors

    def root(self) -> np.ndarray:
        """(k, r) with X root b, b independent with variance 1, the functions that S penalises, at rate 1."""
        values, vectors = self.eigen()
        return vectors[:, values > 0.0] / np.sqrt(values[values > 0.0])


def _linear(spline: CubicSpline | BSpline, x: np.ndarray) -> np.ndarray:
    """The functions of a spline on (0, 1) at x (N,), straight on beyond the ends."""
    X, ends = spline(np.clip(x, 0.0, 1.0)), np.array([0.0, 1.0])
    values, slopes = spline(ends), spline(ends, 1)
    for side, beyond, distance in ((0, x < 0.0, x), (1, x > 1.0, x - 1.0)):
        X[beyond] = values[side] + distance[beyond, None] * slopes[side]
    return np.asarray(X)


class CubicRegression(Basis):
    """A natural cubic spline by its values at k knots, which are quantiles of the distinct values of u."""

    def __init__(self, u: np.ndarray, k: int) -> None:
        knots = np.quantile(np.unique(u[:, 0]), np.linspace(0.0, 1.0, k))
        self.spline = CubicSpline(knots, np.eye(k), bc_type="natural")
        third = 6.0 * self.spline.c[0]  # derivatives between knots: S is what they jump by at each
        self.S = np.diff(np.pad(third, ((1, 1), (0, 0))), axis=0)

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return _linear(self.spline, u[:, 0])


class CyclicCubic(Basis):
    """A cyclic cubic spline on u from 0 to 1, by its values at k - 1 knots: f(1) = f(0)."""

    straight = False

    def __init__(self, u: np.ndarray, k: int) -> None:
        knots = np.quantile(np.unique(np.r_[0.0, u[:, 0] % 1.0, 1.0]), np.linspace(0.0, 1.0, k))
        values = np.eye(k - 1)
        self.spline = CubicSpline(knots, np.vstack([values, values[:1]]), bc_type="periodic")
        third = 6.0 * self.spline.c[0]
        self.S = third - np.roll(third, 1, axis=0)

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(self.spline(u[:, 0] % 1.0))


class PSpline(Basis):
    """k cubic B-splines on equal steps, with second differences of their coefficients as penalty."""

    def __init__(self, u: np.ndarray, k: int) -> None:
        knots = np.arange(-3, k + 1) / (k - 3)
        self.spline = BSpline(knots, np.eye(k), 3)
        D = np.diff(np.eye(k), n=2, axis=0)
        self.S = D.T @ D

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return _linear(self.spline, u[:, 0])


class ByValues(Basis):
    """A basis of one column whose coefficients are the values of the function at k equal steps from 0 to 1.

    In a tensor product the penalty along one column is then summed over values of the surface along the other.
    """

    def __init__(self, basis: Basis, k: int) -> None:
        self.basis, self.map = basis, np.linalg.inv(basis(np.linspace(0.0, 1.0, k)[:, None]))
        self.S = self.map.T @ basis.S @ self.map

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.basis(u) @ self.map


class Centred(Basis):
    """The functions of a basis of one column that sum to zero over the rows u of a fit: the level is taken out."""

    def __init__(self, basis: Basis, u: np.ndarray, weights: np.ndarray | None = None) -> None:
        mean = np.average(basis(u), axis=0, weights=weights)
        self.basis, self.map = basis, scipy.linalg.null_space(mean[None, :])
        self.S = self.map.T @ basis.S @ self.map

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.basis(u) @ self.map


class ThinPlate(Basis):
    """Radial functions about the rows of u (N, d), d = 1 or 2. k of them are kept, straight lines included."""

    def __init__(self, u: np.ndarray, k: int) -> None:
        self.centres = np.unique(u, axis=0)
        if len(self.centres) > _KNOTS:
            chosen = np.random.default_rng(0).permutation(len(self.centres))[:_KNOTS]
            self.centres = self.centres[np.sort(chosen)]
        E, n = self.radial(self.centres), len(self.centres)
        values, vectors = np.linalg.eigh(E)
        largest = np.argsort(-np.abs(values))[:k]
        T = np.hstack([np.ones((n, 1)), self.centres])
        free = scipy.linalg.null_space(T.T @ vectors[:, largest])  # combinations that vanish on straight planes
        self.map = vectors[:, largest] @ free
        self.S = self.map.T @ E @ self.map

    def radial(self, u: np.ndarray) -> np.ndarray:
        """r^3 / 12 of one column, r^2 log(r) / (8 pi) of two, to every centre."""
        r = cdist(u, self.centres)
        if u.shape[1] == 1:
            return np.asarray(r**3 / 12)
        return np.asarray(r**2 * np.log(np.where(r > 0.0, r, 1.0)) / (8 * np.pi))

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.radial(u) @ self.map


def most(u: np.ndarray, bs: str) -> int:
    """How many functions a basis may have at rows u: a value, or a point, for each; a P-spline has any number."""
    if bs == "ps":
        return 2**31
    different = len(np.unique(u % 1.0 if bs == "cc" else u, axis=0))
    return different + 1 if bs == "cc" else different


BASES: dict[str, type[Basis]] = {"cr": CubicRegression, "ps": PSpline, "cc": CyclicCubic, "tp": ThinPlate}
