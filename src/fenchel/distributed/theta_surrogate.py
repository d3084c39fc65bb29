"""Where theta and q move after a pass over all rows: the maximum of an objective in memory that agrees with theirs there.

    surrogate(q, theta) = objective of the sample + Q(f) + d' (theta - theta_k)

The pass was at q_k, theta_k. f are the values of the function at the points. The quadratic Q has the slopes and the
curvature that all rows have there and the sample has not, so that the sample decides only how the function between the
points, and what they do not explain, change with theta. d is what is left of the difference of the slopes in theta.
Each pass takes off most of what is missing in theta and in q, though theta may have a long way to go along a ridge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..hyperparameters.search import Step, TrustRegion
from ..linalg.dense import NotPositiveDefinite
from ..solvers.base import Stopping
from .approximation import Approximation, EvaluatedApproximation
from .checkpoint import FitState
from .inducing_row_sums import with_slopes
from .partitions import InMemory, Sums
from .passes import PartitionedProblem, solve
from .row_sums import At

DIFFERENCE = 0.05  # log units: between two slopes that tell the curvature
MOST_TRIALS = 20  # of theta, in one search
SAMPLE_TOL = 1e-9  # relative gap of the fits of a sample
SAMPLE_PASSES = 60  # iterations of the same
SHARE = 0.1  # of the rise that a step may promise: where the search in memory ends
_SAME = ("adjoint", "gram", "curvature", "own_slope", "own_curvature", "own_cross")


@dataclass(frozen=True)
class RowQuadratic:
    """A quadratic of q and the likelihood's own parameters about a place of q, as rows add it to their sums.

    mean (L, C), own : the place
    sums : its slopes and curvatures there, named as those of rows
    """

    mean: np.ndarray
    own: np.ndarray
    sums: Sums

    @classmethod
    def between(cls, q: Approximation, many: Sums, few: Sums) -> RowQuadratic:
        """What ``few`` rows miss of many, at q."""
        return cls(q.mean, q.own, Sums({key: many[key] - few[key] for key in _SAME if key in many}))

    def seen_through(self, T: np.ndarray, back: np.ndarray) -> RowQuadratic:
        """The same of weights u' with u = T u', ``back`` = T^-1."""
        out = Sums(self.sums)
        out["adjoint"] = T.T @ out["adjoint"]
        out["gram"], out["curvature"] = T.T @ out["gram"] @ T, T.T @ out["curvature"] @ T
        if "own_cross" in out:
            own, C = len(out["own_cross"]), self.mean.shape[1]
            out["own_cross"] = (out["own_cross"].reshape(own, C, -1) @ T).reshape(own, -1)
        return RowQuadratic(back @ self.mean, self.own, out)

    def _adjoint(self, at: At) -> np.ndarray:
        moved = self.sums["adjoint"] + np.einsum("cdlk,kd->lc", self.sums["curvature"], at.mean - self.mean)
        if "own_cross" in self.sums:
            moved = moved + (self.sums["own_cross"].T @ (at.own - self.own)).reshape(self.mean.T.shape).T
        return np.asarray(moved)

    def added_to(self, sums: Sums, at: At) -> Sums:
        """The sums of some rows at q with those of the quadratic."""
        mine, dm, do, moved = self.sums, at.mean - self.mean, at.own - self.own, self._adjoint(at)
        out = Sums(sums)
        value = 0.5 * float(np.sum(dm * (mine["adjoint"] + moved)))
        for T, gram in zip(at.roots, mine["gram"], strict=True):
            value += 0.5 * float(np.sum((gram @ T) * T))
        out["adjoint"] = sums["adjoint"] + moved
        for key in ("gram", "curvature"):
            out[key] = sums[key] + mine[key]
        if "own_slope" in mine:
            cross = mine["own_cross"] @ dm.T.ravel()
            value += 0.5 * float(do @ cross) - float(do @ mine["own_slope"]) + 0.5 * float(do @ mine["own_curvature"] @ do)
            out["own_slope"] = sums["own_slope"] + mine["own_slope"] - mine["own_curvature"] @ do - cross
            out["own_curvature"] = sums["own_curvature"] + mine["own_curvature"]
            out["own_cross"] = sums["own_cross"] + mine["own_cross"]
        out["value"] = sums["value"] + value
        return out

    def point_products(self, at: At) -> np.ndarray:
        """Its part of B: the slopes in theta, where the function at the points scales with their covariance."""
        B = self._adjoint(at) @ at.mean.T
        for T, gram in zip(at.roots, self.sums["gram"], strict=True):
            B = B + gram @ T @ T.T
        return np.asarray(B)


@dataclass(frozen=True)
class SampleAndQuadratic:
    """Rows in memory and a quadratic, whose sums are those of both."""

    sample: InMemory
    quadratic: RowQuadratic

    def reduce(self, work: Any, reader: Any, points: tuple[At, ...], *given: Any) -> Sums:
        """As ``Partitions.reduce`` of ``evaluate``."""
        found = self.sample.reduce(work, reader, points, *given)
        return Sums({str(k): self.quadratic.added_to(found[str(k)], at) for k, at in enumerate(points)})


class Trial(NamedTuple):
    """The best q of the surrogate at one theta, its value there and its slopes in theta."""

    q: Approximation
    value: float
    slope: np.ndarray


class ThetaSurrogate:
    """The surrogate after a pass of all rows.

    Parameters
    ----------
    at : callable
        The problem of all rows at theta.
    sample : InMemory
    point : EvaluatedApproximation
        What all rows say of q_k.
    slope : array (n_theta,)
        The slopes in theta there.

    Attributes
    ----------
    start : Trial
        At the theta of the pass.
    """

    def __init__(
        self,
        at: Callable[[np.ndarray], PartitionedProblem],
        sample: InMemory,
        point: EvaluatedApproximation,
        slope: np.ndarray,
    ) -> None:
        self.at, self.sample, self.point, q = at, sample, point, point.q
        few = replace(at(q.theta), rows=sample)
        seen, own = with_slopes(few, q)
        self.quadratic = RowQuadratic.between(q, point.sums, seen.sums)
        self.tilt = np.zeros(q.theta.size)
        self.shift, self.known = 0.0, q
        there, own = with_slopes(few, q, self.quadratic)
        self.tilt, self.shift = slope - own, point.objective - there.objective
        self.start = self.trial(q)

    def trial(self, q: Approximation) -> Trial:
        """The best q at the theta of q, which is where its search begins."""
        task, known = self.at(q.theta), self.known
        quadratic = self.quadratic.seen_through(*change_of_weights(task.prior.family, known.theta, q.theta))
        few = replace(task, rows=self.sample)
        both = replace(task, rows=SampleAndQuadratic(self.sample, quadratic))
        found = solve(both, FitState(q), Stopping(SAMPLE_TOL, SAMPLE_PASSES)).point
        if not np.isfinite(found.elbo):
            return Trial(q, -np.inf, self.tilt)
        value = found.objective + self.shift + float(self.tilt @ (q.theta - known.theta))
        return Trial(found.q, value, with_slopes(few, found.q, quadratic)[1] + self.tilt)

    def curvature(self) -> np.ndarray:
        """-d2 of the best value at theta, by differences of slopes, positive semidefinite."""
        start, rows = self.start, []
        for i, high in enumerate(self.known.prior.bounds[:, 1]):
            theta = start.q.theta.copy()
            theta[i] += DIFFERENCE if theta[i] + DIFFERENCE <= high else -DIFFERENCE
            there = self.trial(same_function(start.q, theta))
            rows.append((start.slope - there.slope) / (theta[i] - start.q.theta[i]))
        values, vectors = np.linalg.eigh(0.5 * (np.array(rows) + np.array(rows).T))
        return np.asarray((vectors * np.abs(values)) @ vectors.T)

    def maximum(self, curvature: np.ndarray, radius: float, rise: float) -> Trial:
        """The best theta within ``radius`` of that of the pass, until a step promises less than a share of ``rise``."""
        best, about = self.start, self.start.q.theta
        low, high = self.known.prior.bounds.T
        model = TrustRegion(np.stack([np.maximum(low, about - radius), np.minimum(high, about + radius)], axis=1))
        for _ in range(MOST_TRIALS):
            theta = model.propose(best.q.theta, best.slope, curvature)
            if model.remaining_rise <= SHARE * rise or not model.radius > 1e-12:
                break
            there = self.trial(same_function(best.q, theta))
            model.update(Step(theta - best.q.theta, best.slope - there.slope, curvature), there.value - best.value)
            best = there if there.value > best.value else best
        return best


def change_of_weights(family: Any, theta: np.ndarray, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T and T^-1 with u = T u': the weights at theta of the function whose weights at ``ahead`` are u'."""
    size = len(family.points) + (family.level > 0.0)
    T, back = np.eye(size), np.eye(size)
    if not np.array_equal(theta, ahead):
        U, other = (np.asarray(family.at(x).rows.U) for x in (theta, ahead))
        M = len(U)
        T[:M, :M], back[:M, :M] = U.T @ np.linalg.inv(other).T, other.T @ np.linalg.inv(U).T
    return T, back


def same_function(q: Approximation, theta: np.ndarray) -> Approximation:
    """q at another theta: the function at the points as it was, not its whitened weights."""
    T, back = change_of_weights(q.prior.family, q.theta, theta)  # type: ignore[attr-defined]
    try:
        return Approximation(q.prior, theta, q.own, back @ q.mean, T.T @ q.gram @ T)
    except NotPositiveDefinite:
        return Approximation(q.prior, theta, q.own, q.mean, q.gram)
