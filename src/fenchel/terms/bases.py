"""Bases of smooth functions and their penalties: f(x) = X(x) beta, penalty beta' S beta.

    CubicRegression  cr   natural cubic spline by its values at knots, S the integral of f''^2; linear beyond the ends
    CyclicCubic      cc   the same around a period
    PSpline          ps   cubic B-splines on equal steps, S the squares of second differences; linear beyond the ends
    ThinPlate        tp   radial functions of one or two columns, the largest eigenvectors kept (Wood 2003)

What S does not penalise are polynomials of degree 1 in every column but those around a period, where it is the level.
Columns come as (x - low) / (high - low).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import scipy.linalg
from scipy.interpolate import BSpline
from scipy.spatial.distance import cdist

_FLAT = 1e-9  # of the largest eigenvalue of S: a direction without penalty
_KNOTS = 1000  # of a thin plate: more rows than this are thinned


class Basis(ABC):
    """A basis over columns u (N, d), and its penalty.

    Attributes
    ----------
    straight : bool
        Whether straight lines are free of the penalty; around a period only the level is.
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


def _linear(u: np.ndarray, X: np.ndarray, ends: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """X at rows within (0, 1), straight on from the ends (2, k) with their slopes (2, k) beyond."""
    for side, beyond, distance in ((0, u < 0.0, u), (1, u > 1.0, u - 1.0)):
        X[beyond] = ends[side] + distance[beyond, None] * slopes[side]
    return X


class CubicRegression(Basis):
    """A natural cubic spline by its values at k knots, the quantiles of the different values of u."""

    def __init__(self, u: np.ndarray, k: int) -> None:
        self.knots = np.quantile(np.unique(u[:, 0]), np.linspace(0.0, 1.0, k))
        h = np.diff(self.knots)
        D, B = np.zeros((k - 2, k)), np.zeros((k - 2, k - 2))
        for i in range(k - 2):
            D[i, i : i + 3] = 1 / h[i], -1 / h[i] - 1 / h[i + 1], 1 / h[i + 1]
            B[i, i] = (h[i] + h[i + 1]) / 3
            if i:
                B[i, i - 1] = B[i - 1, i] = h[i] / 6
        self.F = np.vstack([np.zeros(k), np.linalg.solve(B, D), np.zeros(k)])  # to second derivatives
        self.S = D.T @ self.F[1:-1]

    def __call__(self, u: np.ndarray) -> np.ndarray:
        x, t, k = u[:, 0], self.knots, self.knots.size
        X, eye = spline_rows(np.clip(x, t[0], t[-1]), t, self.F, np.eye(k)), np.eye(k)
        h, g = t[1] - t[0], t[-1] - t[-2]
        slopes = np.stack([(eye[1] - eye[0]) / h - h / 6 * self.F[1], (eye[-1] - eye[-2]) / g + g / 6 * self.F[-2]])
        return _linear(x, X, np.stack([eye[0], eye[-1]]), slopes)


def spline_rows(x: np.ndarray, knots: np.ndarray, F: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A cubic spline at x within the knots, from its values and second derivatives F there."""
    j = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, knots.size - 2)
    h, right, left = knots[j + 1] - knots[j], knots[j + 1] - x, x - knots[j]
    parts = (
        (right / h, values[j]),
        (left / h, values[j + 1]),
        ((right**3 / h - h * right) / 6, F[j]),
        ((left**3 / h - h * left) / 6, F[j + 1]),
    )
    return np.asarray(sum(weight[:, None] * rows for weight, rows in parts))


class CyclicCubic(Basis):
    """A cubic spline around a period, u from 0 to 1, by its values at k - 1 knots: 1 is 0 again."""

    straight = False

    def __init__(self, u: np.ndarray, k: int) -> None:
        knots = np.quantile(np.unique(np.r_[0.0, u[:, 0] % 1.0, 1.0]), np.linspace(0.0, 1.0, k))
        h, n = np.diff(knots), k - 1
        D, B = np.zeros((n, n)), np.zeros((n, n))
        for i in range(n):
            before, after = (i - 1) % n, (i + 1) % n
            D[i, i] -= 1 / h[before] + 1 / h[i]
            D[i, before] += 1 / h[before]
            D[i, after] += 1 / h[i]
            B[i, i] += (h[before] + h[i]) / 3
            B[i, before] += h[before] / 6
            B[i, after] += h[i] / 6
        F = np.linalg.solve(B, D)
        self.knots, self.F, self.S = knots, np.vstack([F, F[:1]]), D.T @ F

    def __call__(self, u: np.ndarray) -> np.ndarray:
        eye = np.eye(self.knots.size - 1)
        return spline_rows(u[:, 0] % 1.0, self.knots, self.F, np.vstack([eye, eye[:1]]))


class PSpline(Basis):
    """k cubic B-splines on equal steps, with second differences of their coefficients as penalty."""

    def __init__(self, u: np.ndarray, k: int) -> None:
        step = 1.0 / (k - 3)
        self.knots = step * np.arange(-3, k + 1)
        D = np.diff(np.eye(k), n=2, axis=0)
        self.S = D.T @ D

    def __call__(self, u: np.ndarray) -> np.ndarray:
        x, k, ends = u[:, 0], self.knots.size - 4, np.array([0.0, 1.0])
        whole = BSpline(self.knots, np.eye(k), 3)
        return _linear(x, whole(np.clip(x, 0.0, 1.0)), whole(ends), whole(ends, nu=1))


class ByValues(Basis):
    """A basis of one column named by its values at k equal steps from 0 to 1, which are then the coefficients.

    In a product the penalty along one column is summed over the coefficients of the other: over values of the surface.
    """

    def __init__(self, basis: Basis, k: int) -> None:
        self.basis, self.map = basis, np.linalg.inv(basis(np.linspace(0.0, 1.0, k)[:, None]))
        self.S = self.map.T @ basis.S @ self.map

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.basis(u) @ self.map


class Centred(Basis):
    """What of a basis of one column sums to zero over the rows of a fit, u: the level is no part of it."""

    def __init__(self, basis: Basis, u: np.ndarray, weights: np.ndarray | None = None) -> None:
        mean = np.average(basis(u), axis=0, weights=weights)
        self.basis, self.map = basis, scipy.linalg.null_space(mean[None, :])
        self.S = self.map.T @ basis.S @ self.map

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.basis(u) @ self.map


class ThinPlate(Basis):
    """Radial functions about the rows of u (N, d), d = 1 or 2, of which k are kept, lines among them."""

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
