"""Fit q(b) = N(m, V), V = L L', with the integrals g_c of whole groups as likelihoods: a concave problem in (m, L).

    P(m, L) = sum_k w_k F(m + L x_k) - KL(q || N(mu, Q^-1)),     F = sum_c log g_c
    dP/dm = sum_k w_k F'(b_k) - Q (m - mu),      dP/dL = sum_k w_k F'(b_k) x_k' + L^-T - Q L

The cubature rule x_k, w_k >= 0 replaces N(0, I). It has degree 5 for few latents, else degree 3 with randomly rotated
axes, so that none is an axis of b. If F is concave, P is concave in (m, L) under any rule, and gradients bound the
distance to the optimum: best - P <= 1/2 |dP/dm|^2 + 1/2 |dP/dL|^2 in the metric of Q^-1. Newton's step reads the
curvature of F from L' dP/dL, whose lower triangle is stationary for triangular L:

    S = lower triangle of sum_k w_k L' F'(b_k) x_k', mirrored;     V+ = L (L' Q L - S)^-1 L',     m+ = m + V+ dP/dm
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from .group_nodes import GroupMoments, Lattice, Nodes, NodeSizes, Placed
from .group_quadrature import GroupIntegrals

_FEWEST = 2  # number of latents up to which the rule always has degree 5
_FEW = 4  # the same with few groups,
_GROUPS = 100  # that is, fewer than this number
_ITERATIONS = 50  # most Newton steps
_MOVING = 0.02  # lattices are placed again while the decrement is larger; they follow b to first order
_SETTLED = 1e-10  # decrement, in nats, at which the iteration ends


@dataclass(frozen=True)
class Cubature:
    """Points (S, p) and weights (S,) of a cubature rule for N(0, I)."""

    points: np.ndarray
    weights: np.ndarray


def fifth_degree(p: int) -> Cubature:
    """The rule of McNamee and Stenger: 2 p^2 + 1 points, with nonnegative weights for p <= 4."""
    eye, r = np.eye(p), np.sqrt(3.0)
    pairs = [s * eye[i] + t * eye[j] for i in range(p) for j in range(i) for s in (1.0, -1.0) for t in (1.0, -1.0)]
    points = r * np.concatenate([np.zeros((1, p)), eye, -eye, np.reshape(pairs, (-1, p))])
    shares = [1.0 - p * (7.0 - p) / 18.0, *[(4.0 - p) / 18.0] * (2 * p), *[1.0 / 36.0] * len(pairs)]
    weights = np.array(shares)
    return Cubature(points[weights > 0.0], weights[weights > 0.0])


def third_degree(p: int, seed: int = 0) -> Cubature:
    """2 p points at +- sqrt(p) along randomly rotated axes."""
    turned = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0] if p > 1 else np.eye(1)
    return Cubature(np.sqrt(p) * np.concatenate([turned, -turned]), np.full(2 * p, 0.5 / p))


def rule_of(p: int, n_groups: int, n_effects: int = 1) -> Cubature:
    """The rule for p latents: degree 5 for few latents, else degree 3.

    Degree 3 also serves many groups, because b hardly moves each of them, and groups with slopes, which cost more.
    """
    fine = p <= _FEWEST or (p <= _FEW and n_groups < _GROUPS and n_effects == 1)
    return fifth_degree(p) if fine else third_degree(p)


@dataclass(frozen=True)
class BoundPoint:
    """A point (m, L) with P, its gradients, and the moments of the groups."""

    mean: np.ndarray
    root: np.ndarray
    elbo: float
    slope: np.ndarray  # dP/dm
    bend: np.ndarray  # L' dP/dL without I - L' Q L: its lower triangle, mirrored
    tilt: np.ndarray  # dP/dL, lower triangle
    values: np.ndarray  # F(b_k) (S,)
    moments: GroupMoments  # at every b_k


class CollapsedProblem:
    """The concave problem in (m, L)."""

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
        """Newton's step of the mean, the new covariance, and the decrement."""
        L = state.root
        A = L.T @ self.Q @ L - state.bend
        half = solve_triangular(cholesky(A, lower=True), L.T, lower=True)
        V = half.T @ half
        move = V @ state.slope
        off = A - np.eye(A.shape[0])
        decrement = 0.5 * float(move @ state.slope) + 0.25 * float(np.sum(off * off))
        return move, V, decrement

    def shortfall(self, state: BoundPoint, rule: Cubature, values: np.ndarray) -> float:
        """log p(y) - P to second order, 1/2 Var_q[log p(y, b) - log q(b)], from F (S,) at the points of a rule."""
        x, w = rule.points, rule.weights
        off = state.mean + x @ state.root.T - self.mu
        log_ratio = values - 0.5 * np.sum((off @ self.Q) * off, axis=1) + 0.5 * np.sum(x * x, axis=1)
        return 0.5 * float(w @ (log_ratio - w @ log_ratio) ** 2)

    def gap(self, state: BoundPoint) -> float:
        """Upper bound on the gain by any other Gaussian q, valid if F is concave."""
        each = solve_triangular(self.chol, np.column_stack([state.slope, state.tilt]), lower=True)
        return 0.5 * float(np.sum(each * each))


@dataclass(frozen=True)
class CollapsedFit:
    """The optimum, with its nodes and the state of the iteration."""

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
        """The even lattice, for densities of effects."""
        return self.placed.lattice

    @cached_property
    def points(self) -> np.ndarray:
        """The points b_k (S, p) of the rule under q."""
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
    """Solve for q(b) by Newton's method; None if it fails.

    The start is N(mean, covariance) for b and the modes ``effects`` (K, d) of the kinds of groups. ``sizes``: the
    numbers of nodes that sufficed at a nearby theta.
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
        elif decrement > before:  # full steps oscillate
            length *= 0.5
        result = _line_search(problem, state, length, move, V, placed.nodes)
        if result is None and decrement > _MOVING:  # P was larger on the previous nodes
            state = problem.at(state.mean, state.root, placed.nodes)
            result = _line_search(problem, state, length, move, V, placed.nodes)
        if result is None:
            break
        state = result
    return CollapsedFit(state, placed, problem, decrement, n_iter)


def _line_search(
    problem: CollapsedProblem, state: BoundPoint, length: float, move: np.ndarray, V: np.ndarray, nodes: Nodes
) -> BoundPoint | None:
    """Search along Newton's step: begin with the fraction ``length`` and halve it until P does not fall."""
    before = np.linalg.inv(state.root @ state.root.T)
    precision = np.linalg.inv(V)
    for k in range(12):
        share = length * 0.5**k
        mixed = np.linalg.inv((1.0 - share) * before + share * precision)
        out = problem.at(state.mean + share * move, cholesky(0.5 * (mixed + mixed.T), lower=True), nodes)
        if out.elbo >= state.elbo - 1e-7 * max(1.0, abs(state.elbo)) * (k == 0) - 1e-9 * max(1.0, abs(state.elbo)):
            return out
    return None
