"""The expectation of a softmax itself, f = E[log sum_k e^{eta_k} - eta_y], with a curvature for every pair of classes.

    df = sum_{k<l} alpha_kl d(h_k - h_l) + 1/2 lam_kl d Var(eta_k - eta_l),     lam_kl = E[p_k p_l] >= 0
    diag(p) - p p' = sum_{k<l} p_k p_l (e_k - e_l)(e_k - e_l)'

f depends only on the means and variances of the P = K (K-1) / 2 contrasts eta_k - eta_l. Its curvature is one positive
number for each contrast, so the softmax is a bound with P predictors. Only contrasts with the label have a slope,
alpha_ky = E[p_k].

With u_k = eta_k - eta_y the expectation is that of log(1 + sum_k e^{u_k}). The expectation of sum_k log(1 + e^{u_k}) is
known. The difference is averaged over fixed points: Gauss-Hermite points for up to four classes, Sobol points and their
mirror images for more. A row whose label is nearly certain is accurate for any variance. Value, slope and curvature
are means over the same points, and agree as far as the rule is accurate; ``error`` compares it with another rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..linalg.arrays import Array, to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..linalg.logistic_normal import FIRST, PLUS, SECOND, TAU, THIRD, logistic_moments
from .bounds import ContrastBound, Curvature, Loss
from .outcomes import Rows

_HERMITE = {1: (2, 2, 2), 2: (22, 12, 7), 3: (9, 9, 6)}  # points in each dimension, by the largest variance
_NARROWER = (0.2, 0.05)  # variances up to which the second and the third number give ten digits
_SOBOL = 512  # points in more dimensions
_FEWEST = 32  # of them in Newton's curvature, with many rows
_KEPT = 1 << 25  # numbers kept for that curvature
_SHORT = np.float32  # digits enough for it
_WIDER = 1.4  # the first coordinate's spread, in standard deviations: it is the mean of all contrasts
_TEMPORARY = 1 << 20  # numbers of a temporary array
_TINY = 1e-300  # no division by 0
_LEAST = 1e-30  # the same in single precision
_JITTER = 1e-13  # of the largest variance: a covariance may be singular

Rule = tuple[np.ndarray, np.ndarray]  # points (M, dimension) and weights (M,) of a standard normal


@cache
def hermite(dimension: int, each: int) -> Rule:
    """Gauss and Hermite's points, ``each`` in every dimension."""
    z, w = np.polynomial.hermite_e.hermegauss(each)
    grid = np.meshgrid(*[z] * dimension, indexing="ij")
    weights = np.meshgrid(*[w / w.sum()] * dimension, indexing="ij")
    return np.stack([x.ravel() for x in grid], axis=1), np.prod([x.ravel() for x in weights], axis=0)


@cache
def sobol(dimension: int, points: int, seed: int) -> Rule:
    """Sobol's points and their mirror images, exact for polynomials up to the third degree."""
    from scipy.stats import qmc

    half = qmc.Sobol(dimension, rng=np.random.default_rng(seed)).random_base2(int(np.log2(points)) - 1)
    z = ndtri(np.clip(half, 1e-12, 1.0 - 1e-12))
    w = np.exp(-0.5 * (_WIDER**2 - 1.0) * z[:, 0] ** 2)
    z[:, 0] *= _WIDER
    z, w = np.concatenate([z, -z]), np.concatenate([w, w]) / (2.0 * w.sum())
    L = np.linalg.cholesky((w[:, None] * z).T @ z)
    return np.linalg.solve(L, z.T).T, w


def rule(dimension: int, widest: float, points: int = _SOBOL, other: bool = False) -> Rule:
    """The points for normals of variances up to ``widest``; another set of them for comparison."""
    if dimension not in _HERMITE:
        return sobol(dimension, points, int(other))
    each = _HERMITE[dimension][int(np.sum(widest <= np.array(_NARROWER)))]
    return hermite(dimension, each + int(other))


@cache
def _basis(dimension: int) -> np.ndarray:
    """An orthogonal matrix whose first column is constant."""
    A = np.eye(dimension)
    A[:, 0] = 1.0
    return np.asarray(np.linalg.qr(A)[0])


class ClassPairs:
    """All pairs of K classes, and the pairs in the order of a label y: the other classes first, then y.

    Attributes
    ----------
    first, second : arrays (P,)
        The classes of each pair.
    order : array (K, K)
        The classes in the order of each label.
    index, sign : arrays (K, P)
        Index of each pair in the order of a label, and -1 where its classes are exchanged there.
    with_label, without : arrays
        Pairs in the order of a label that contain the label, and those that do not.
    """

    def __init__(self, n_classes: int) -> None:
        K = n_classes
        self.first, self.second = np.triu_indices(K, 1)
        self.n = self.first.size
        place = np.zeros((K, K), dtype=int)
        place[self.first, self.second] = place[self.second, self.first] = np.arange(self.n)
        self.order = np.array([[k for k in range(K) if k != y] + [y] for y in range(K)])
        a, b = self.order[:, self.first], self.order[:, self.second]
        self.index, self.sign = place[a, b], np.where(a < b, 1.0, -1.0)
        self.with_label = np.flatnonzero(self.second == K - 1)
        self.without = np.flatnonzero(self.second < K - 1)

    def matrix(self, n_predictors: int) -> np.ndarray:
        """D (P, C) with D eta the contrasts; a class without a predictor has eta = 0."""
        D = np.zeros((self.n, int(self.second.max()) + 1))
        D[np.arange(self.n), self.first], D[np.arange(self.n), self.second] = 1.0, -1.0
        return D[:, :n_predictors]


class ExactSoftmax(ContrastBound):
    """The exact expectation f = E[psi], over the contrasts of every pair of classes."""

    def __init__(self, likelihood: Any) -> None:
        super().__init__(likelihood)
        self.pairs = ClassPairs(likelihood.n_classes)
        self.layout = tuple(range(self.pairs.n))
        self.contrasts = self.pairs.matrix(likelihood.n_predictors)

    def f(self, h: Array, rho: Array, rows: Rows) -> Array:
        """Of predictors (N, C) that are independent, unlike ``loss``, which is of the contrasts."""
        D = self.contrasts
        return self.loss(to_numpy(h) @ D.T, to_numpy(rho) @ (D**2).T, rows).value

    def cancelling(self, h: Array, rows: Rows, dual: bool) -> Array:
        return np.abs(to_numpy(h)).max(axis=1)

    # -- contrasts in the order of the label ---------------------------------------------------------
    def _with_label(self, label: np.ndarray, x: Array) -> np.ndarray:
        """The contrasts of the other classes with the label (N, K-1), from those of all pairs."""
        pairs = self.pairs
        turned = pairs.sign[label] * np.take_along_axis(to_numpy(x), pairs.index[label], 1)
        return np.ascontiguousarray(turned[:, pairs.with_label])

    def _of_pairs(self, label: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Values (N, P) from the order of the label to that of all pairs."""
        out = np.empty_like(x)
        np.put_along_axis(out, self.pairs.index[label], x, 1)
        return out

    def _slopes(self, label: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """Slopes (N, P) from those of the contrasts with the label (N, K-1); the others have none."""
        out = np.zeros((label.size, self.pairs.n))
        out[:, self.pairs.with_label] = alpha
        return self._of_pairs(label, self.pairs.sign[label] * out)

    def _lams(self, label: np.ndarray, own: np.ndarray, products: np.ndarray) -> np.ndarray:
        """Curvatures (N, P) from those with the label (N, K-1) and of the other classes (N, K-1, K-1)."""
        pairs = self.pairs
        out = np.empty((label.size, pairs.n))
        out[:, pairs.with_label] = own
        out[:, pairs.without] = products[:, pairs.first[pairs.without], pairs.second[pairs.without]]
        return self._of_pairs(label, out)

    def _covariance(self, label: np.ndarray, variance: Array) -> np.ndarray:
        """Cov[u] (N, K-1, K-1) from the variances of all contrasts (N, P)."""
        K, pairs = self.likelihood.n_classes, self.pairs
        G = np.take_along_axis(to_numpy(variance), pairs.index[label], 1)
        own, others = G[:, pairs.with_label], np.zeros((G.shape[0], K - 1, K - 1))
        i, j = pairs.first[pairs.without], pairs.second[pairs.without]
        others[:, i, j] = others[:, j, i] = G[:, pairs.without]
        return 0.5 * (own[:, :, None] + own[:, None, :] - others)

    def slopes_of_contrasts(self, alpha: Array, rows: Rows) -> Array:
        label = labels_of(rows)
        each = np.zeros((label.size, self.likelihood.n_classes))
        each[:, : alpha.shape[1]] = to_numpy(alpha)
        return self._slopes(label, np.take_along_axis(each, self.pairs.order[label, :-1], 1))

    # -- the expectation -----------------------------------------------------------------------------
    def _normals(self, h: Array, rho: Array, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Labels, E[u] (N, K-1), Cov[u] and its root (N, K-1, K-1)."""
        label, C = labels_of(rows), self.likelihood.n_classes - 1
        u, cov, basis = self._with_label(label, h), self._covariance(label, rho), _basis(C)
        turned = basis.T @ cov @ basis
        size = _JITTER * np.einsum("nkk->nk", turned).max(axis=1) + _TINY
        try:
            return label, u, cov, basis @ np.linalg.cholesky(turned + size[:, None, None] * np.eye(C))
        except np.linalg.LinAlgError as error:
            raise NotPositiveDefinite from error

    def _blocks(self, n: int, points: int) -> Iterator[slice]:
        step = max(1, _TEMPORARY // (points * self.likelihood.n_classes))
        return (slice(i, min(n, i + step)) for i in range(0, n, step))

    def _sums(self, u: np.ndarray, root: np.ndarray, by: Rule) -> tuple[np.ndarray, ...]:
        """Means over a rule: of psi and p beyond their logistic parts, of p_k p_y as a share of one, of p_k p_l."""
        z, w = by
        (n, C) = u.shape
        value, slope, share, products = np.empty(n), np.empty((n, C)), np.empty((n, C)), np.empty((n, C, C))
        for some in self._blocks(n, w.size):
            eta = u[some, None, :] + z @ root[some].transpose(0, 2, 1)
            p, rest, log_total = _probabilities(eta)
            plus, alone, single = _logistic(eta)
            value[some] = (log_total - plus.sum(axis=2)) @ w
            slope[some] = np.matmul(w, p - alone)
            share[some] = np.matmul(w, p * rest[:, :, None]) / np.maximum(np.matmul(w, single), _TINY)
            products[some] = p.transpose(0, 2, 1) @ (w[:, None] * p)
        return value, slope, share, products

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        label, u, cov, root = self._normals(h, rho, rows)
        value, slope, share, products = self._sums(u, root, rule(u.shape[1], _widest(cov)))
        known = _logistic_moments(u, cov)
        alpha = self._slopes(label, slope + known[TAU])
        return Loss(value + known[PLUS].sum(axis=1), alpha, self._lams(label, share * known[FIRST], products))

    def at_mean(self, h: Array, rows: Rows) -> Loss:
        label = labels_of(rows)
        p, rest, log_total = _probabilities(self._with_label(label, h)[:, None, :])
        products = p.transpose(0, 2, 1) @ p
        lam = self._lams(label, p[:, 0] * rest, products)
        return Loss(log_total[:, 0], self._slopes(label, p[:, 0]), lam)

    def error(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        """How far f may be off in each row (N,): the difference to a rule of other points."""
        _, u, cov, root = self._normals(h, rho, rows)
        C, widest = u.shape[1], _widest(cov)
        return self._sums(u, root, rule(C, widest))[0] - self._sums(u, root, rule(C, widest, other=True))[0]

    # -- Newton's curvature --------------------------------------------------------------------------
    def curvature(self, h: Array, rho: Array, rows: Rows) -> Curvature:
        """(dh, drho) -> the changes of alpha and of lam / 2 under the rule, all (N, P): not quite a symmetric map.

        Each point moves by du = dE[u] + R half(R^-1 dCov[u] R^-T) z, half(B) being the lower triangle of B with half of
        its diagonal, and p_k by p_k (du_k - p'du).
        """
        label, u, cov, root = self._normals(h, rho, rows)
        n, C = u.shape
        z, w = rule(C, _widest(cov), self._points(n))
        whole = (n, w.size, C)
        p, rest, alone, single = (np.empty(x, dtype=_SHORT) for x in (whole, whole[:2], whole, whole))
        for some in self._blocks(n, w.size):
            eta = u[some, None, :] + z @ root[some].transpose(0, 2, 1)
            p[some], rest[some], _ = _probabilities(eta)
            _, alone[some], single[some] = _logistic(eta)
        z, w = z.astype(_SHORT), w.astype(_SHORT)
        together, apart = (np.matmul(w, x).astype(np.float64) for x in (p * rest[:, :, None], single))
        apart = np.where(apart > _LEAST, apart, np.inf)
        share, known, inverse = together / apart, _logistic_moments(u, cov), np.linalg.inv(root)

        def changes(dh: Array, drho: Array) -> tuple[Array, Array]:
            move, G = self._with_label(label, dh), self._covariance(label, drho)
            half = np.tril(inverse @ G @ inverse.transpose(0, 2, 1))
            half[:, np.arange(C), np.arange(C)] *= 0.5
            du = move.astype(_SHORT)[:, None, :] + z @ (root @ half).transpose(0, 2, 1).astype(_SHORT)
            mean = np.einsum("nmk,nmk->nm", p, du)
            dp, one = p * (du - mean[:, :, None]), single * du
            wider = 0.5 * np.einsum("nkk->nk", G)
            alpha = np.matmul(w, dp - one) + known[FIRST] * move + known[SECOND] * wider
            both = np.matmul(w, (dp - p * mean[:, :, None]) * rest[:, :, None])
            bent = np.matmul(w, one - 2.0 * alone * one)
            known_lam = known[SECOND] * move + known[THIRD] * wider
            own = share * known_lam + known[FIRST] * (both - share * bent) / apart
            products = p.transpose(0, 2, 1) @ (w[:, None] * dp)
            lam = self._lams(label, own, products + products.transpose(0, 2, 1))
            return self._slopes(label, alpha), 0.5 * lam

        return changes

    def _points(self, n: int) -> int:
        """Sobol's points of the curvature: fewer than those of f where n rows would need too much memory."""
        points = _SOBOL
        while points > _FEWEST and 3 * n * points * self.likelihood.n_classes > _KEPT:
            points //= 2
        return points


def labels_of(rows: Rows) -> np.ndarray:
    """The class of each row (N,)."""
    return np.argmax(to_numpy(rows["hot"]), axis=1)


def _widest(cov: np.ndarray) -> float:
    return float(np.einsum("nkk->nk", cov).max(initial=0.0))


def _logistic_moments(u: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Expectations of log(1 + e^u) and its derivatives, each (N, K-1)."""
    found = logistic_moments(u.ravel(), np.einsum("nkk->nk", cov).ravel())
    return np.reshape(found, (-1, *u.shape))


def _logistic(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log(1 + e^u), its slope and its curvature, from one exponential."""
    t = np.exp(-np.abs(u))
    q = 1.0 / (1.0 + t)
    return np.maximum(u, 0.0) + np.log1p(t), np.where(u >= 0.0, q, t * q), t * q * q


def _probabilities(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p_k (n, M, C) and p_y (n, M) of log odds u against y, and log(1 + sum_k e^{u_k})."""
    top = np.maximum(u.max(axis=2), 0.0)
    e = np.exp(u - top[:, :, None])
    own = np.exp(-top)
    total = e.sum(axis=2) + own
    return e / total[:, :, None], own / total, top + np.log(total)
