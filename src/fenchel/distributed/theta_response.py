"""How the best q and the slopes in theta change with theta, by a sample of the rows, in memory.

    objective of the sample + sum_n alpha_n h_n + a' f

stands for that of all rows about a place q_k, theta_k of a pass. alpha_n are the slopes of the sample's rows there:
without this term the sample, each row of which stands for many, would fit its own noise, the more the shorter the
lengths. f are the values of the function at the points, and a the slopes in f of all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..linalg.dense import NotPositiveDefinite
from ..solvers.base import Stopping
from .approximation import Approximation, ApproximationStep, EvaluatedApproximation, Learning
from .checkpoint import FitState
from .inducing_row_sums import with_slopes
from .partitions import Block, InMemory, Sums
from .passes import PartitionedProblem, solve
from .row_sums import At, row_losses

DIFFERENCE = 0.05  # log units: between two fits that tell the changes
SAMPLE_TOL = 1e-9  # relative gap of the fits of a sample
SAMPLE_PASSES = 60  # iterations of the same


class ThetaResponse(NamedTuple):
    """What changes with theta.

    curvature : array (n_theta, n_theta)
        -d2 of the best objective, positive semidefinite.
    changes : list of ApproximationStep
        Of the best q along each entry of theta, beyond that of the whitened weights of one function.
    """

    curvature: np.ndarray
    changes: list[ApproximationStep]

    def moved(self, q: Approximation, theta: np.ndarray) -> Approximation:
        """The best q at another theta, if q is the best at its own; where that is no precision, the same function."""
        plain = same_function(q, theta)
        place = plain.place
        for step, change in zip(theta - q.theta, self.changes, strict=True):
            place = place.plus(change, step)
        try:
            return Approximation(q.prior, theta, q.own, place.mean, place.gram)
        except NotPositiveDefinite:
            return plain


@dataclass(frozen=True)
class LinearRows:
    """A linear function of the means of q, (m - mean) . adjoint, as rows add it to their sums."""

    mean: np.ndarray
    adjoint: np.ndarray

    def seen_through(self, T: np.ndarray, back: np.ndarray) -> LinearRows:
        """The same of weights u' with u = T u', ``back`` = T^-1."""
        return LinearRows(back @ self.mean, T.T @ self.adjoint)

    def added_to(self, sums: Sums, at: At) -> Sums:
        """The sums of some rows at q with it."""
        value = sums["value"] + float(np.sum(self.adjoint * (at.mean - self.mean)))
        return Sums(sums | {"adjoint": sums["adjoint"] + self.adjoint, "value": value})


@dataclass(frozen=True)
class SampleAndLinear:
    """Rows in memory and a linear function, whose sums are those of both."""

    sample: InMemory
    linear: LinearRows

    def reduce(self, work: Any, reader: Any, points: tuple[At, ...], *given: Any) -> Sums:
        """As ``Partitions.reduce`` of ``evaluate``."""
        found = self.sample.reduce(work, reader, points, *given)
        return Sums({str(k): self.linear.added_to(found[str(k)], at) for k, at in enumerate(points)})


def theta_response(
    at: Callable[[np.ndarray], PartitionedProblem], sample: InMemory, point: EvaluatedApproximation
) -> ThetaResponse:
    """By differences about a point that all rows gave; ``at`` is their problem at theta, and own parameters stay."""
    known, whole = point.q, Block(sample.columns)
    whole.number, whole.n = 0, len(sample.columns["y"])
    place = known.at()
    pulls = np.concatenate([row_losses(chunk, place).alpha for chunk in at(known.theta).reader.chunks(whole)])
    linear = LinearRows(known.mean, point.sums["adjoint"])

    def trial(q: Approximation) -> tuple[Approximation, np.ndarray]:
        """The best q at the theta of q, where its search begins, and the slopes in theta there."""
        task: Any = at(q.theta)
        own = linear.seen_through(*change_of_weights(task.prior.family, known.theta, q.theta))
        few = replace(task, rows=sample, reader=replace(task.reader, pulls=pulls), learning=Learning())
        found = solve(replace(few, rows=SampleAndLinear(sample, own)), FitState(q), Stopping(SAMPLE_TOL, SAMPLE_PASSES))
        best = found.point.q
        return best, with_slopes(few, best, own.adjoint)[1]

    (start, slope), rows, changes = trial(known), [], []
    for i, high in enumerate(known.prior.bounds[:, 1]):
        theta = known.theta.copy()
        theta[i] += DIFFERENCE if theta[i] + DIFFERENCE <= high else -DIFFERENCE
        step, plain = theta[i] - known.theta[i], same_function(start, theta)
        there, other = trial(plain)
        rows.append((slope - other) / step)
        changes.append(ApproximationStep(*(part / step for part in there.place.plus(plain.place, -1.0))))
    values, vectors = np.linalg.eigh(0.5 * (np.array(rows) + np.array(rows).T))
    return ThetaResponse((vectors * np.abs(values)) @ vectors.T, changes)


def change_of_weights(family: Any, theta: np.ndarray, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T and T^-1 with u = T u': the weights at theta of the function whose weights at ``ahead`` are u'."""
    size = len(family.points) + family.trend.size
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
