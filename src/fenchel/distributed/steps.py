"""Where to go from q: Newton's step in the means, the natural gradient's in the precision, theta to where both put it.

Seen from q the rows are a parabola in the means, of slope W' alpha and curvature W' H W, and a constant K+ in the
precision. For that stand-in the best q, and the best hyperparameters of the prior, are found on the coordinator,
without a pass:

    J(theta) = max_dm [ -1/2 |R^-1 (m + dm - mu)|^2 - dm' W' alpha - 1/2 dm' (W' H W) dm ] - 1/2 log|I + R' K+ R|

It leaves out how the rows' curvature bends with rho, of relative size rho itself: with many rows to a weight that is
little, and each pass leaves a share of that order. Where it is not, ``Path`` extrapolates from the last few steps
(Anderson's way), in the metric of q.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from .weights import Evaluated, Weights

_ARM = 4.0  # e-folds that theta may go in one pass
_STRIDE = 2.0  # and the likelihood's own parameters
_FLOOR = 1e-3  # of the curvature in units of the prior's, where rows bend the wrong way
_FEW, _DIFFERENCE = 20, 1e-4  # hyperparameters up to which they are polished, and by which differences
_DEPTH = 6  # steps that are remembered
_SLOWLY = 1e-3  # a step left of the last one from which extrapolation is worth it


@dataclass(frozen=True)
class Move:
    """A change of q's natural description: the mean, what rows add to the precision, and the hyperparameters."""

    mean: np.ndarray
    gram: np.ndarray
    theta: np.ndarray
    own: np.ndarray

    def scaled(self, t: float) -> Move:
        return Move(t * self.mean, t * self.gram, t * self.theta, t * self.own)

    def __add__(self, other: Move) -> Move:
        return Move(self.mean + other.mean, self.gram + other.gram, self.theta + other.theta, self.own + other.own)


@dataclass(frozen=True)
class Learning:
    """Which hyperparameters are learned: the prior's, and with ``own`` those of that likelihood, within bounds."""

    theta: bool = False
    own: Likelihood | None = None
    own_bounds: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))

    def log_prior(self, q: Weights) -> float:
        """log p of all that is learned."""
        value = q.prior.log_prior(q.theta)[0] if q.theta.size else 0.0
        return float(value + (0.0 if self.own is None else self.own.log_prior(q.own)[0]))

    def at(self, q: Weights) -> np.ndarray:
        """What is learned, at q: theta, then the likelihood's own."""
        return np.append(q.theta if self.theta else np.zeros(0), q.own if self.own is not None else np.zeros(0))

    def bounds(self, q: Weights) -> np.ndarray:
        """Of the same, (n, 2)."""
        own = self.own_bounds if self.own is not None else np.zeros((0, 2))
        return np.concatenate([q.prior.bounds if self.theta else np.zeros((0, 2)), own])

    def rising(self, q: Weights, slopes: np.ndarray) -> float:
        """The largest slope within the bounds."""
        x = self.at(q)
        return float(np.abs(np.clip(x + slopes, *self.bounds(q).T) - x).max(initial=0.0)) if x.size else 0.0


def step(point: Evaluated, learning: Learning) -> tuple[Move, np.ndarray]:
    """The step from a point, and the slopes of the evidence in what is learned: theta, then the likelihood's own."""
    q, said = point.q, point.said
    stand_in = _StandIn(point, learning)
    theta, slopes = q.theta, np.zeros(0)
    if learning.theta and q.theta.size:
        theta, slopes = stand_in.best()
    dm, own = stand_in.moved(theta)
    if learning.own is not None:
        slopes = np.append(slopes, stand_in.own_slope)
    return Move(dm, said["gram"] - q.gram, theta - q.theta, own), slopes


class _StandIn:
    """The parabola that stands for the rows."""

    def __init__(self, point: Evaluated, learning: Learning) -> None:
        self.q, self.said, self.learning = point.q, point.said, learning
        L, C = self.q.mean.shape
        # (C, C, L, L) as one matrix over the weights, predictor by predictor
        self.H = np.transpose(self.said["curvature"], (0, 2, 1, 3)).reshape(C * L, C * L)
        self.a = self.said["adjoint"].T.ravel()
        self.own_slope = np.zeros(self.q.own.size)
        self.reduced: tuple[np.ndarray, np.ndarray] = (self.H, self.a)
        if learning.own is not None:
            slope = learning.own.log_prior(self.q.own)[1]
            self.own_slope = self.said["own_slope"] + slope
            curvature = self.said["own_curvature"]
            self.own_inverse = _definite_inverse(0.5 * (curvature + curvature.T))
            X = self.said["own_cross"]
            pulled = X.T @ self.own_inverse
            self.reduced = (self.H - pulled @ X, self.a + pulled @ self.own_slope)

    def at(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu and R."""
        return self.q.prior.at(theta)

    def solved(self, theta: np.ndarray, H: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, float]:
        """dm (L, C) of the parabola under the prior at theta, and its value."""
        (mu, R), (L, C) = self.at(theta), self.q.mean.shape
        away = self.q.mean - mu[:, None]
        root = np.diag(R) if R.ndim == 1 else R
        whole = np.kron(np.eye(C), root) if C > 1 else root
        u = (away / R[:, None] if R.ndim == 1 else np.linalg.solve(R, away)).T.ravel()
        slope = u + whole.T @ a
        values, vectors = np.linalg.eigh(np.eye(C * L) + whole.T @ H @ whole)
        values = np.where(values > _FLOOR, values, np.maximum(np.abs(values), _FLOOR))
        du = -vectors @ ((vectors.T @ slope) / values)
        value = 0.5 * float(u @ u) + 0.5 * float(slope @ du)
        return (whole @ du).reshape(C, L).T, value

    def value(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """J and its slopes."""
        q = self.q
        dm, value = self.solved(theta, *self.reduced)
        there = Weights(q.prior, theta, q.own, q.mean + dm, self.said["gram"])
        log_prior, slope = q.prior.log_prior(theta)
        J = -value - 0.5 * there.log_det + log_prior
        return J, q.prior.gradient(theta, there.second, q.mean.shape[1]) + slope

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """The best theta within an arm's length, and the slopes at the present one."""
        q, bounds = self.q, self.q.prior.bounds
        try:
            slope = self.value(q.theta)[1]
        except NotPositiveDefinite:
            return q.theta, np.full(q.theta.size, np.inf)
        near = np.clip(np.stack([q.theta - _ARM, q.theta + _ARM], axis=1), *bounds.T[:, :, None])
        scale = 1.0 / max(1.0, float(np.linalg.norm(slope)))  # its first step is then one e-fold at most

        def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
            J, gradient = self.value(theta)
            return -scale * J, -scale * gradient

        options = {"ftol": 1e-15, "gtol": 1e-9 * scale, "maxiter": 200}
        found = minimize(negative, q.theta, jac=True, method="L-BFGS-B", bounds=near, options=options)
        return self.polished(np.asarray(found.x), near), slope

    def polished(self, theta: np.ndarray, near: np.ndarray) -> np.ndarray:
        """theta after Newton's steps, of few hyperparameters: the search ends where J is flat to rounding."""
        if theta.size > _FEW:
            return theta
        slope, steps = self.value(theta)[1], _DIFFERENCE * np.eye(theta.size)
        free = (theta > near[:, 0] + 2 * _DIFFERENCE) & (theta < near[:, 1] - 2 * _DIFFERENCE)
        for _ in range(2 * bool(free.any())):
            bend = np.array([(self.value(theta + d)[1] - self.value(theta - d)[1])[free] for d in steps[free]])
            try:
                move = np.zeros(theta.size)
                move[free] = np.linalg.solve(-bend / (2 * _DIFFERENCE), slope[free])
                ahead = self.value(theta + move)[1] if np.abs(move).max() < _DIFFERENCE else slope
            except (np.linalg.LinAlgError, NotPositiveDefinite):
                break
            if not np.abs(ahead[free]).max() < np.abs(slope[free]).max():
                break
            theta, slope = theta + move, ahead
        return theta

    def moved(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dm (L, C), and how the likelihood's own parameters move with it."""
        if self.learning.own is None:
            return self.solved(theta, self.H, self.a)[0], np.zeros(self.q.own.size)
        dm = self.solved(theta, *self.reduced)[0]
        own = self.own_inverse @ (self.own_slope - self.said["own_cross"] @ dm[:, 0])
        held = np.clip(own, -_STRIDE, _STRIDE)
        if held.size:
            held = np.clip(self.q.own + held, *self.learning.own_bounds.T) - self.q.own
        if np.any(held != own):
            dm = self.solved(theta, self.H, self.a + self.said["own_cross"].T @ held)[0]
        return dm, held


@dataclass
class Path:
    """The last steps, and the extrapolation that they suggest."""

    before: list[tuple[Move, Move]] = field(default_factory=list)  # (where, the step from there), as plain arrays

    def extrapolated(self, point: Evaluated, move: Move) -> Move | None:
        """Anderson's step; None where the plain one leaves little, or nothing is known yet."""
        q, here = point.q, Move(point.q.mean, point.q.gram, point.q.theta, point.q.own)
        earlier, self.before = self.before, [*self.before[-_DEPTH + 1 :], (here, move)]
        if not earlier:
            return None
        now, last = q.flat(move), q.flat(earlier[-1][1])
        if np.linalg.norm(now) < _SLOWLY * np.linalg.norm(last):
            return None
        D = np.stack([now - q.flat(r) for _, r in earlier], axis=1)
        share = np.linalg.lstsq(D, now, rcond=1e-8)[0]
        if not np.isfinite(share).all() or np.abs(share).sum() > 1e4:
            return None
        out = move
        for weight, (x, r) in zip(share, earlier, strict=True):
            change = here + x.scaled(-1.0) + (move + r.scaled(-1.0))
            out = out + change.scaled(-float(weight))
        return out


def moved(q: Weights, move: Move, learning: Learning) -> Weights:
    """q after a move; the hyperparameters stay within their bounds."""
    theta, own = q.theta + move.theta, q.own + move.own
    if theta.size:
        theta = np.clip(theta, *q.prior.bounds.T)
    if learning.own is not None:
        own = np.clip(own, *learning.own_bounds.T)
    gram = q.gram + move.gram
    return Weights(q.prior, theta, own, q.mean + move.mean, 0.5 * (gram + np.swapaxes(gram, 1, 2)))


def _definite_inverse(H: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(H)
    size = np.maximum(np.abs(values), 1e-12 * max(1.0, float(np.abs(values).max(initial=0.0))))
    return np.asarray((vectors / size) @ vectors.T)
