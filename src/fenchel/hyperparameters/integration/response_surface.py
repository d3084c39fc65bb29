"""A polynomial through values and gradients: the log density of theta where points are few.

    r(u) = sum_{|a| <= 4} c_a u^a,     c by least squares on r and its d slopes at every point,
    plus linear radial functions through what is left of the values

A composite design has the second moments of a normal right. Where the scale of one hyperparameter goes with another, as
that of the first cutpoint with the sd of groups, r has terms u_i^2 u_j, whose squares are of degree six: a sum over the
design is then some hundredths of a nat low. With slopes the same fits tell all terms of degree three and four.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.optimize import nnls

DEGREE = 4
MOST_TERMS = 2_000  # of a polynomial: a degree with more takes minutes, from 13 hyperparameters on
BEYOND = 1.3  # times the farthest point: farther out r is as it is there
FAR_COUNTS_LESS = 0.25  # a row of the least squares has weight exp(-this |u|^2 / d)
RIDGE = 1e-3  # nats: what no point tells is 0
SMOOTHING = 1e-6  # nats, of what is left: rounding
MOMENT_WEIGHTS = (30.0, 30.0, 30.0, 3.0, 1.0)  # of moments by their degree: means and variances first
NEAR_DESIGN = 0.03  # weight of the shares that are given, where moments leave a choice


def degree_for(d: int) -> int:
    """The degree of a polynomial of d hyperparameters: four, less where it has too many terms.

    Examples
    --------
    >>> from fenchel.hyperparameters.integration.response_surface import degree_for
    >>> [degree_for(d) for d in (1, 12, 13, 20, 21, 100)]
    [4, 4, 3, 3, 2, 2]
    """
    return max(2, max(k for k in range(DEGREE + 1) if comb(d + k, k) <= MOST_TERMS))


@cache
def _monomials(d: int, degree: int) -> list[tuple[int, ...]]:
    """Which entries are multiplied: (), (0,), ..., (d - 1,), (0, 0), (0, 1), ..."""
    return [term for k in range(degree + 1) for term in combinations_with_replacement(range(d), k)]


def monomials(u: np.ndarray, degree: int) -> np.ndarray:
    """Products of up to ``degree`` entries of u: (m, number of terms)."""
    terms = _monomials(u.shape[1], degree)
    place = {term: j for j, term in enumerate(terms)}
    out = np.ones((len(terms), len(u)))
    for j, term in enumerate(terms[1:], start=1):
        np.multiply(out[place[term[:-1]]], u[:, term[-1]], out=out[j])
    return out.T


def _slopes(u: np.ndarray, degree: int) -> np.ndarray:
    """Their derivatives (m, d, number of terms)."""
    terms, values = _monomials(u.shape[1], degree), monomials(u, degree - 1)
    place = {term: j for j, term in enumerate(_monomials(u.shape[1], degree - 1))}
    out = np.zeros((*u.shape, len(terms)))
    for j, term in enumerate(terms):
        for i in set(term):
            rest = list(term)
            rest.remove(i)
            out[:, i, j] = term.count(i) * values[:, place[tuple(rest)]]
    return out


class ResponseSurface:
    """A function of u (m, d) by its values (K,) and slopes (K, d) at points (K, d).

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.integration.response_surface import ResponseSurface
    >>> u = np.random.default_rng(0).normal(size=(12, 2))
    >>> slopes = np.stack([2.0 * u[:, 0] * u[:, 1], u[:, 0] ** 2], axis=1)
    >>> surface = ResponseSurface(u, u[:, 0] ** 2 * u[:, 1], slopes)
    >>> surface(np.array([[0.5, 1.0]])).round(3)
    array([0.25])
    """

    def __init__(self, u: np.ndarray, values: np.ndarray, slopes: np.ndarray, degree: int = DEGREE) -> None:
        d, self.degree = u.shape[1], degree
        at_points = monomials(u, degree)
        size = np.array([len(term) for term in _monomials(d, degree)])
        weight = np.exp(-FAR_COUNTS_LESS * (u * u).sum(axis=1) / d)
        tilted = (_slopes(u, degree) * weight[:, None, None]).reshape(-1, size.size)
        rows = np.concatenate([at_points * weight[:, None], tilted, np.diag(RIDGE * size)])
        right = np.concatenate([values * weight, (slopes * weight[:, None]).ravel(), np.zeros(size.size)])
        self.coefficients = np.linalg.lstsq(rows, right, rcond=None)[0]
        self.radius = BEYOND * float(np.sqrt((u * u).sum(axis=1)).max())
        left = values - at_points @ self.coefficients
        self._left = RBFInterpolator(u, left, kernel="linear", degree=0, smoothing=SMOOTHING)

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """Values (m,); beyond the points as they are at ``radius`` on the way there."""
        size = np.sqrt((u * u).sum(axis=1))
        u = u * np.minimum(1.0, self.radius / np.maximum(size, self.radius))[:, None]
        return np.asarray(monomials(u, self.degree) @ self.coefficients + self._left(u))


def matched_shares(u: np.ndarray, shares: np.ndarray, draws: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Shares (K,) of points u (K, d), none below 0, with the moments of weighted draws (m, d).

    Means and variances first, then moments of degree three and four; where these leave a choice, near ``shares``.
    """
    mean = weights @ draws
    axes = np.linalg.cholesky((draws - mean).T @ ((draws - mean) * weights[:, None]))
    white, points = (np.linalg.solve(axes, (x - mean).T).T for x in (draws, u))
    degree = degree_for(u.shape[1])
    at_draws = monomials(white, degree)
    wanted = weights @ at_draws
    scale = np.array([MOMENT_WEIGHTS[len(term)] for term in _monomials(u.shape[1], degree)])
    scale = scale / np.sqrt(weights @ at_draws**2)
    near = NEAR_DESIGN / np.sqrt(np.maximum(shares, 1.0 / len(u) ** 2))
    rows = np.concatenate([(monomials(points, degree) * scale).T, np.diag(near)])
    found = nnls(rows, np.concatenate([wanted * scale, near * shares]), maxiter=30 * len(u))[0]
    return np.asarray(found / found.sum())
