"""Dense covariances of the documented terms, in numpy alone: what each term is where its sd is 1.

Intrinsic structures have the pseudo-inverse as covariance, which is the one under the constraints that hold them free
of their null space. A process known up to polynomials (a Wiener process, an integrated one) has any generalised
covariance less what is level and line in it: the two agree in every contrast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.interpolate import BSpline, CubicSpline

Array = Any


def typical(K: Array) -> float:
    """The geometric mean of the variances."""
    return float(np.exp(np.log(np.diag(K)).mean()))


def scaled(K: Array) -> Array:
    """With typical variance 1 over the levels that can move."""
    moving = np.diag(K) > 1e-12 * np.diag(K).max()
    return K / typical(K[np.ix_(moving, moving)])


def intrinsic(Q: Array) -> Array:
    return scaled(np.linalg.pinv(Q, rcond=1e-11, hermitian=True))


def without(K: Array, free: Array, weights: Array | None = None) -> Array:
    """What a covariance is once its projection on the columns of ``free`` is taken out."""
    W = np.eye(len(K)) if weights is None else np.diag(weights)
    M = np.eye(len(K)) - free @ np.linalg.solve(free.T @ W @ free, free.T @ W)
    return M @ K @ M.T


# -- series ----------------------------------------------------------------------------------------
def random_walk(n: int, order: int) -> Array:
    D = np.diff(np.eye(n), n=order, axis=0)
    return intrinsic(D.T @ D)


def seasonal(n: int, period: int) -> Array:
    D = np.array([[1.0 if i <= j < i + period else 0.0 for j in range(n)] for i in range(n - period + 1)])
    return intrinsic(D.T @ D)


def season_patterns(n: int, period: int) -> Array:
    """What repeats exactly and sums to zero over a period (n, period - 1)."""
    phase = np.arange(n) % period
    return np.stack([1.0 * (phase == i) - (phase == period - 1) for i in range(period - 1)], axis=1)


def wiener(times: Array) -> Array:
    """Summing to zero over the times."""
    t = times - times.min()
    return scaled(without(np.minimum.outer(t, t), np.ones((len(t), 1))))


def integrated_wiener(times: Array) -> Array:
    """Free of level and line over the times."""
    t = (times - times.min()) / np.ptp(times)
    low, high = np.minimum.outer(t, t), np.maximum.outer(t, t)
    return scaled(without(low**2 * (3 * high - low) / 6, np.stack([np.ones(len(t)), t], axis=1)))


def autoregressive(lags: Array, phi: list[float]) -> Array:
    """Of order p at integer lags, variance 1: by its states' stationary covariance."""
    p = len(phi)
    F = np.zeros((p, p))
    F[0], F[1:, :-1] = phi, np.eye(p - 1)
    noise = np.zeros((p, p))
    noise[0, 0] = 1.0
    states = np.linalg.solve(np.eye(p * p) - np.kron(F, F), noise.ravel()).reshape(p, p)
    out, power = [], np.eye(p)
    for _ in range(int(lags.max()) + 1):
        out.append((power @ states)[0, 0])
        power = F @ power
    return np.array(out)[lags] / out[0]


def matern(distance: Array, reach: float, nu: float) -> Array:
    """kappa = sqrt(8 nu) / range."""
    u = np.sqrt(8 * nu) / reach * distance
    return {0.5: 1.0, 1.5: 1 + u, 2.5: 1 + u + u**2 / 3}[nu] * np.exp(-u)


def kernel(name: str, r: Array) -> Array:
    """scikit-learn's kernels of length scale 1/2, at distances in ranges."""
    d = 2.0 * r
    if name == "rbf":
        return np.exp(-(d**2) / 2)
    nu = {"matern12": 1.0, "matern32": 3.0, "matern52": 5.0}[name]  # twice nu
    u = np.sqrt(nu) * d
    return {1.0: 1.0, 3.0: 1 + u, 5.0: 1 + u + u**2 / 3}[nu] * np.exp(-u)


# -- graphs ----------------------------------------------------------------------------------------
def laplacian(A: Array) -> Array:
    return np.diag(A.sum(axis=1)) - A


def icar(A: Array) -> Array:
    """Scaled in every component; a node without neighbours is independent with variance 1."""
    n, out = len(A), np.zeros_like(A, dtype=float)
    part = np.arange(n)
    for _ in range(n):
        part = np.array([min(part[i], *part[A[i] > 0]) if A[i].any() else part[i] for i in range(n)])
    for k in np.unique(part):
        inside = np.flatnonzero(part == k)
        one = inside.size == 1
        out[np.ix_(inside, inside)] = 1.0 if one else intrinsic(laplacian(A[np.ix_(inside, inside)]))
    return out


# -- smooths ---------------------------------------------------------------------------------------
def cubic(x: Array, k: int, cyclic: bool = False, period: tuple[float, float] | None = None) -> tuple[Array, Array]:
    """A cubic spline by its values at knots, quantiles of the different values: its basis at x, and int f''^2."""
    if cyclic:
        low, high = (x.min(), x.max()) if period is None else period
        u = (x - low) / (high - low)
        knots = np.quantile(np.unique(np.r_[0.0, u % 1.0, 1.0]), np.linspace(0, 1, k))
        eye = np.eye(k - 1)
        spline, at = CubicSpline(knots, np.vstack([eye, eye[:1]]), bc_type="periodic"), u % 1.0
    else:
        at = (x - x.min()) / np.ptp(x)
        knots = np.quantile(np.unique(at), np.linspace(0, 1, k))
        spline = CubicSpline(knots, np.eye(k), bc_type="natural")
    bend, h = spline(knots, 2), np.diff(knots)[:, None, None]
    a, b = bend[:-1], bend[1:]
    outer = [np.einsum("si,sj->sij", p, q) for p, q in ((a, a), (a, b), (b, a), (b, b))]
    return spline(at), (h / 6 * (2 * outer[0] + outer[1] + outer[2] + 2 * outer[3])).sum(axis=0)


def p_spline(x: Array, k: int) -> tuple[Array, Array]:
    """k cubic B-splines on equal steps over the range, second differences as penalty."""
    step, u = 1.0 / (k - 3), (x - x.min()) / np.ptp(x)
    D = np.diff(np.eye(k), n=2, axis=0)
    return BSpline(step * np.arange(-3, k + 1), np.eye(k), 3)(u), D.T @ D


def thin_plate(points: Array, k: int) -> tuple[Array, Array]:
    """Radial functions about the different points, in units of their range; the k largest eigenvectors kept."""
    u = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    centres = np.unique(u, axis=0)

    def radial(a: Array, b: Array) -> Array:
        r = np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1))
        return r**3 / 12 if u.shape[1] == 1 else r**2 * np.log(np.where(r > 0, r, 1.0)) / (8 * np.pi)

    E = radial(centres, centres)
    values, vectors = np.linalg.eigh(E)
    U = vectors[:, np.argsort(-np.abs(values))[:k]]
    T = np.hstack([np.ones((len(centres), 1)), centres]).T @ U  # must vanish
    Z = np.linalg.svd(T)[2][len(T) :].T
    return radial(u, centres) @ U @ Z, Z.T @ U.T @ E @ U @ Z


def curve(X: Array, S: Array, free: Array, weights: Array | None) -> Array:
    """A penalised smooth beside its level and lines, its root mean square sd over the rows 1."""
    K = without(X @ np.linalg.pinv(S, rcond=1e-10, hermitian=True) @ X.T, free, weights)
    return K / np.average(np.diag(K), weights=weights)


def null_projector(S: Array) -> Array:
    values, vectors = np.linalg.eigh(S)
    flat = vectors[:, values < 1e-9 * values.max()]
    return flat @ flat.T


def surface(bases: list[tuple[Array, Array]], sds: tuple[float, float], free: Array, weights: Array | None) -> Array:
    """A tensor product with a penalty along each column; each sd is that of what its penalty alone moves."""
    (X, S), (Y, T) = bases
    rows = (X[:, :, None] * Y[:, None, :]).reshape(len(X), -1)
    inverse = [np.linalg.pinv(P, rcond=1e-10, hermitian=True) for P in (S, T)]
    alone = np.kron(inverse[0], null_projector(T)), np.kron(null_projector(S), inverse[1])
    sizes = [np.average(np.diag(without(rows @ C @ rows.T, free, weights)), weights=weights) for C in alone]
    eye = np.eye(len(S)), np.eye(len(T))
    Q = sizes[0] / sds[0] ** 2 * np.kron(S, eye[1]) + sizes[1] / sds[1] ** 2 * np.kron(eye[0], T)
    return without(rows @ np.linalg.pinv(Q, rcond=1e-11, hermitian=True) @ rows.T, free, weights)


def centred(X: Array, S: Array, weights: Array | None) -> tuple[Array, Array]:
    """What of a basis sums to zero over the rows."""
    mean = np.average(X, axis=0, weights=weights)
    Z = np.linalg.svd(mean[None, :])[2][1:].T
    return X @ Z, Z.T @ S @ Z


# -- fields on a mesh ------------------------------------------------------------------------------
def matern_field(nodes: Array, triangles: Array, points: Array, reach: float, nu: int) -> Array:
    """At points, by linear finite elements with a lumped mass matrix: (kappa^2 - Laplacian)^(alpha/2) x = noise."""
    n = len(nodes)
    mass, G = np.zeros(n), np.zeros((n, n))
    W, found = np.zeros((len(points), n)), np.zeros(len(points), dtype=bool)
    for corners in triangles:
        P = np.vstack([np.ones(3), nodes[corners].T])
        area, inverse = abs(np.linalg.det(P)) / 2, np.linalg.inv(P)  # rows of inverse: (c, gradient) of each corner
        mass[corners] += area / 3
        G[np.ix_(corners, corners)] += area * inverse[:, 1:] @ inverse[:, 1:].T
        inside = inverse @ np.vstack([np.ones(len(points)), points.T])  # barycentric
        here = ~found & (inside > -1e-12).all(axis=0)
        W[np.ix_(np.flatnonzero(here), corners)] = inside[:, here].T
        found |= here
    assert found.all()
    k2 = 8 * nu / reach**2
    GG = G @ (G / mass[:, None])
    if nu == 1:
        Q = (k2 * np.diag(mass) + 2 * G + GG / k2) / (4 * np.pi)
    else:
        Q = (k2 * np.diag(mass) + 3 * G + 3 / k2 * GG + GG @ (G / mass[:, None]) / k2**2) / (8 * np.pi)
    return W @ np.linalg.solve(Q, W.T)


def nearest_given(K: Array, neighbours: list[list[int]]) -> Array:
    """Vecchia: each point, in order, given those before it that are named; the covariance of their product."""
    n = len(K)
    B, v = np.zeros((n, n)), np.zeros(n)
    for i, near in enumerate(neighbours):
        b = np.linalg.solve(K[np.ix_(near, near)], K[near, i]) if near else np.zeros(0)
        B[i, near], v[i] = b, K[i, i] - K[i, near] @ b
    root = np.linalg.inv(np.eye(n) - B)
    return root @ np.diag(v) @ root.T
