"""q(b) = N(m, V), V = L L', by the sites log g_c of whole groups: one concave problem in (m, L).

    P(m, L) = sum_k w_k F(m + L x_k) - KL(q || N(mu, Q^-1)),     F = sum_c log g_c
    dP/dm = sum_k w_k F'(b_k) - Q (m - mu),      dP/dL = sum_k w_k F'(b_k) x_k' + L^-T - Q L

The rule x_k, w_k >= 0 stands for N(0, I): of degree 5 for few latents, else of degree 3 along axes that are turned so
that none is an axis of b. With F concave, P is concave in (m, L) under any rule, so that gradients bound what
is missing: best - P <= 1/2 |dP/dm|^2 + 1/2 |dP/dL|^2 in the metric of Q^-1. Newton's step takes L' dP/dL, whose lower
triangle is stationary for triangular L, as the curvature of F:

    S = lower triangle of sum_k w_k L' F'(b_k) x_k', mirrored;     V+ = L (L' Q L - S)^-1 L',     m+ = m + V+ dP/dm
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from .group_nodes import GroupMoments, Lattice, Nodes, NodeSizes, Placed
from .group_quadrature import GroupIntegrals

_FEWEST = 2  # latents up to which the rule is of degree 5,
_FEW = 4  # and the same of fewer
_GROUPS = 100  # groups
_ITERATIONS = 50
_MOVING = 0.02  # decrement above which lattices are placed again: they move with b to first order
_SETTLED = 1e-10  # decrement, in nats


@dataclass(frozen=True)
class Cubature:
    """Points (S, p) and weights (S,) that stand for N(0, I)."""

    points: np.ndarray
    weights: np.ndarray


def fifth_degree(p: int) -> Cubature:
    """Of McNamee and Stenger: 2 p^2 + 1 points, with weights that are not negative for p <= 4."""
    eye, r = np.eye(p), np.sqrt(3.0)
    pairs = [s * eye[i] + t * eye[j] for i in range(p) for j in range(i) for s in (1.0, -1.0) for t in (1.0, -1.0)]
    points = r * np.concatenate([np.zeros((1, p)), eye, -eye, np.reshape(pairs, (-1, p))])
    shares = [1.0 - p * (7.0 - p) / 18.0, *[(4.0 - p) / 18.0] * (2 * p), *[1.0 / 36.0] * len(pairs)]
    weights = np.array(shares)
    return Cubature(points[weights > 0.0], weights[weights > 0.0])


def third_degree(p: int, seed: int = 0) -> Cubature:
    """2 p points at +- sqrt(p) along axes that are turned at random."""
    turned = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0] if p > 1 else np.eye(1)
    return Cubature(np.sqrt(p) * np.concatenate([turned, -turned]), np.full(2 * p, 0.5 / p))


def rule_of(p: int, n_groups: int, n_effects: int = 1) -> Cubature:
    """Of degree 5 for few latents, and degree 3 for many, for many groups, each of which b hardly moves, and for groups
    with slopes, which cost more.
    """
    fine = p <= _FEWEST or (p <= _FEW and n_groups < _GROUPS and n_effects == 1)
    return fifth_degree(p) if fine else third_degree(p)


@dataclass(frozen=True)
class BoundPoint:
    """(m, L) with P, its gradients, and the lattices they were computed on."""

    mean: np.ndarray
    root: np.ndarray
    elbo: float
    slope: np.ndarray  # dP/dm
    bend: np.ndarray  # L' dP/dL but for I - L' Q L: the lower triangle, mirrored
    tilt: np.ndarray  # dP/dL, lower triangle
    values: np.ndarray  # F(b_k) (S,)
    moments: GroupMoments  # at every b_k


class CollapsedProblem:
    """The concave problem of (m, L)."""

    def __init__(self, integrals: GroupIntegrals, rule: Cubature) -> None:
        self.integrals, self.rule = integrals, rule
        self.Q, self.mu = integrals.data.rest_precision, integrals.data.rest_mean
        self.chol = cholesky(self.Q, lower=True)
        self.log_det = 2.0 * float(np.log(np.diag(self.chol)).sum())

    def at(self, mean: np.ndarray, root: np.ndarray, nodes: Nodes) -> BoundPoint:
        x, w = self.rule.points, self.rule.weights
        value, gradient, moments = self.integrals.values(mean + x @ root.T, nodes)
        p, off, Q = mean.size, mean - self.mu, self.Q
        trace = float(np.sum((Q @ root) * root))
        kl = 0.5 * (trace + float(off @ Q @ off) - p - self.log_det) - float(np.log(np.diag(root)).sum())
        along = gradient.T @ (w[:, None] * x)
        lower = np.tril(root.T @ along)
        bend = lower + np.tril(lower, -1).T
        tilt = np.tril(along + np.linalg.inv(root).T - Q @ root)
        return BoundPoint(mean, root, float(w @ value) - kl, gradient.T @ w - Q @ off, bend, tilt, value, moments)

    def step(self, state: BoundPoint) -> tuple[np.ndarray, np.ndarray, float]:
        """Newton's mean and covariance, and the decrement."""
        L = state.root
        A = L.T @ self.Q @ L - state.bend
        half = solve_triangular(cholesky(A, lower=True), L.T, lower=True)
        V = half.T @ half
        move = V @ state.slope
        off = A - np.eye(A.shape[0])
        decrement = 0.5 * float(move @ state.slope) + 0.25 * float(np.sum(off * off))
        return move, V, decrement

    def shortfall(self, state: BoundPoint, rule: Cubature, values: np.ndarray) -> float:
        """log p(y) - P to second order: 1/2 Var_q[log p(y, b) - log q(b)], by F at the points of a rule (S,)."""
        x, w = rule.points, rule.weights
        off = state.mean + x @ state.root.T - self.mu
        log_ratio = values - 0.5 * np.sum((off @ self.Q) * off, axis=1) + 0.5 * np.sum(x * x, axis=1)
        return 0.5 * float(w @ (log_ratio - w @ log_ratio) ** 2)

    def gap(self, state: BoundPoint) -> float:
        """What another q may gain, at most, if F is concave."""
        each = solve_triangular(self.chol, np.column_stack([state.slope, state.tilt]), lower=True)
        return 0.5 * float(np.sum(each * each))


@dataclass(frozen=True)
class CollapsedFit:
    """The optimum, and how it was found."""

    state: BoundPoint
    placed: Placed
    problem: CollapsedProblem
    decrement: float
    n_iter: int

    @property
    def elbo(self) -> float:
        return self.state.elbo + self.placed.shift

    @property
    def lattice(self) -> Lattice:
        """For densities of effects: an even one."""
        return self.placed.lattice

    @cached_property
    def points(self) -> np.ndarray:
        """b_k (S, p)."""
        return np.asarray(self.state.mean + self.problem.rule.points @ self.state.root.T)

    @property
    def weights(self) -> np.ndarray:
        return self.problem.rule.weights

    @property
    def converged(self) -> bool:
        return self.decrement <= 1e-8 * max(1.0, abs(self.state.elbo))


def solve_collapsed(
    integrals: GroupIntegrals,
    mean: np.ndarray,
    covariance: np.ndarray,
    effects: np.ndarray,
    rule: Cubature | None = None,
    sizes: NodeSizes | None = None,
) -> CollapsedFit | None:
    """From a first N(mean, covariance) of b and effects (K, d) of the kinds; None where Newton's method fails.

    ``sizes`` of the nodes that sufficed nearby.
    """
    rule = rule_of(mean.size, integrals.data.kind_of.size, effects.shape[1]) if rule is None else rule
    problem = CollapsedProblem(integrals, rule)
    placed = integrals.placed(mean, effects, sizes)
    state = problem.at(mean, cholesky(covariance, lower=True), placed.nodes)
    decrement, length, n_iter = np.inf, 1.0, 0
    while n_iter < _ITERATIONS:
        n_iter += 1
        before = decrement
        try:
            move, V, decrement = problem.step(state)
        except np.linalg.LinAlgError:
            return None
        if decrement <= _SETTLED:
            break
        if decrement > _MOVING:
            placed = integrals.placed(state.mean + move, placed.lattice.mode, placed.sizes)
        elif decrement > before:  # full steps go to and fro
            length *= 0.5
        found = _searched(problem, state, length, move, V, placed.nodes)
        if found is None and decrement > _MOVING:  # P was larger on the nodes before
            state = problem.at(state.mean, state.root, placed.nodes)
            found = _searched(problem, state, length, move, V, placed.nodes)
        if found is None:
            break
        state = found
    return CollapsedFit(state, placed, problem, decrement, n_iter)


def _searched(
    problem: CollapsedProblem, state: BoundPoint, length: float, move: np.ndarray, V: np.ndarray, nodes: Nodes
) -> BoundPoint | None:
    """Along Newton's step, from the share ``length`` of it, halved until P has not fallen."""
    before = np.linalg.inv(state.root @ state.root.T)
    precision = np.linalg.inv(V)
    for k in range(12):
        share = length * 0.5**k
        mixed = np.linalg.inv((1.0 - share) * before + share * precision)
        out = problem.at(state.mean + share * move, cholesky(0.5 * (mixed + mixed.T), lower=True), nodes)
        if out.elbo >= state.elbo - 1e-7 * max(1.0, abs(state.elbo)) * (k == 0) - 1e-9 * max(1.0, abs(state.elbo)):
            return out
    return None
