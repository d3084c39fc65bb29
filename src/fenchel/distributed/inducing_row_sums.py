"""Rows of a partition as features of M inducing points, and their sums.

    eta = mean + G u + e,   u ~ N(0, I),   e ~ N(0, diag c)          ``priors/inducing.py``

    slope in theta = <A U', dK_NM> - 1/2 lam' d diag(K) - 1/2 <U B U', dK_MM>,   A = -alpha m' + Lam G (I - V)

is that of the elbo with q(u) as it is. B has the upper triangle of G' A, which is what the derivative of the upper
triangular U takes of it, and is symmetric. G' A follows from the sums of Newton's step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cross_kernels import cross, cross_slopes, variance_slopes, variances
from ..hyperparameters.inducing_covariance import InducingCovariance, point_slopes
from ..likelihoods.base import Likelihood
from ..linalg.machine import empty, one_thread, reused_memory
from ..linalg.matrix_designs import Dense
from ..marginals import NormalMarginals
from ..priors.base import NewRows
from ..priors.inducing import FeatureRows
from .approximation import Approximation, EvaluatedApproximation
from .linear_rows import LinearTable
from .partitions import Block, Sums
from .passes import PartitionedProblem
from .precision import PartitionedPrior, WeightPosterior, WeightPrecision
from .row_sums import At, Chunk, chunk_sums, row_losses

_WIDE = 3  # arrays of the size of the features that a chunk of rows needs at a time
_TINY = 1e-300


class WhitenedWeights(PartitionedPrior):
    """u ~ N(0, I) at every theta, which the features depend on. ``family`` holds the points and no other rows."""

    def __init__(self, family: InducingCovariance) -> None:
        self.family, self.theta, self.bounds = family, family.theta, family.bounds
        self.n_weights = len(family.points) + family.trend.size

    def at(self, theta: np.ndarray) -> WeightPrecision:
        return WeightPrecision(np.zeros(self.n_weights), np.ones(self.n_weights))

    def gradient(self, q: Approximation) -> np.ndarray:
        return np.zeros(q.theta.size)

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self.family.log_prior(theta)

    def posterior(self, q: Approximation) -> InducingWeightPosterior:
        return InducingWeightPosterior(q.mean, q.factor.spread)

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        return 0.5 * (values + np.swapaxes(values, -1, -2))


class InducingWeightPosterior(WeightPosterior):
    """q(u), which also answers for eta at new rows."""

    def predict_mean(self, new: NewRows) -> np.ndarray:
        """(n,) or (n, C)."""
        return _shaped(np.asarray(new.design) @ self._mean + np.asarray(new.offset))

    def at(self, new: NewRows) -> NormalMarginals:
        """eta at new rows."""
        G = np.asarray(new.design)
        rho = np.stack([np.sum((G @ T) ** 2, axis=1) for T in self._roots], axis=1)
        rho = rho + np.reshape(np.asarray(new.extra_variance), (-1, 1))
        return NormalMarginals(self.predict_mean(new), _shaped(rho))


def _shaped(x: np.ndarray) -> np.ndarray:
    return np.asarray(x[:, 0] if x.shape[1] == 1 else x)


@dataclass(frozen=True)
class InducingReader:
    """Rows of a partition as features of the points.

    features : FeatureRows
        Of no rows: the kernel, the points and U.
    mean : array (1, C)
    labels : array or None
        What y are called, sorted: y is then their places.
    pulls : array (N, C) or None
        Of all rows of the block: ``Chunk.pull``.
    """

    table: LinearTable
    features: FeatureRows
    mean: np.ndarray
    likelihood: Likelihood
    labels: np.ndarray | None = None
    pulls: np.ndarray | None = None

    def inputs(self, block: Block) -> Iterator[tuple[np.ndarray, np.ndarray, Chunk]]:
        """X of some rows, their kernel with the points, and these as a fit takes them."""
        rows, i = self.features, block.start
        for X, own, y, w in self.table.parts(block, self.likelihood, self.labels, _WIDE * rows.shape[1]):
            K = np.asarray(cross(rows.kernel, X, rows.points))
            G = np.asarray(rows.of_cross(K, X))
            c = np.asarray(rows.remainder(G, X))
            pull = 0.0 if self.pulls is None else self.pulls[i : i + len(y)]
            i += len(y)
            yield X, K, Chunk(Dense(G), own, y, w, self.mean, c, pull)

    def chunks(self, block: Block) -> Iterator[Chunk]:
        for _, _, chunk in self.inputs(block):
            yield chunk


def inducing_sums(
    block: Block, reader: InducingReader, at: At, own: bool, slopes: bool, drawn: np.ndarray | None = None
) -> Sums:
    """The sums of one partition at q as ``row_sums.evaluate`` has them.

    With ``slopes`` the rows' part of the slopes in theta; with ``drawn``, inputs (n, D), what the points cost:

    spreads : sum of lam c, or without a dual of lam (2 c - v log(1 + c / v)), v = rho - c
    products : K(drawn, X) alpha;   noise : alpha_n^2 times white noise of the kernel
    """
    rows, dual, out = reader.features, reader.likelihood.objective.convex, Sums()
    kernel, Z, M = rows.kernel, rows.points, len(rows.points)
    means = at.mean[:M].T @ rows.U.T
    rest = [(np.eye(len(T)) - T @ T.T)[:, :M] @ rows.U.T for T in at.roots] if slopes else []
    with np.errstate(all="ignore"), one_thread(), reused_memory():
        for X, K, chunk in reader.inputs(block):
            local = row_losses(chunk, at)
            each = chunk_sums(chunk, at, local, own)
            if slopes:
                G, (n, L) = chunk.design.toarray(), (len(X), len(Z))
                T, part = np.matmul(local.alpha, -means, out=empty(n, L)), empty(n, L)
                for lam, R in zip(local.lam.T, rest, strict=True):
                    np.matmul(G, R, out=part)
                    part *= lam[:, None]
                    T += part
                lam = local.lam.sum(axis=1)
                each["slopes"] = cross_slopes(kernel, X, Z, T, K) + variance_slopes(kernel, X, -0.5 * lam)
            if drawn is not None:
                c = np.asarray(chunk.extra_variance)[:, None]
                v = np.maximum(local.rho - c, _TINY)
                each["spreads"] = float(np.sum(local.lam * (c if dual else 2.0 * c - v * np.log1p(c / v))))
                each["products"] = np.asarray(cross(kernel, drawn, X)) @ local.alpha
                each["noise"] = _white(kernel, X[:1]) * float(np.sum(local.alpha**2))
            out = out + each
    return out


def _white(kernel: Any, x: np.ndarray) -> float:
    """The variance of a row that it shares with no other, itself seen again included."""
    return max(0.0, float(variances(kernel, x)[0] - cross(kernel, x, x)[0, 0]))


def with_slopes(
    task: PartitionedProblem, q: Approximation, pull: np.ndarray | None = None
) -> tuple[EvaluatedApproximation, np.ndarray]:
    """What the rows of ``task`` say of q, and the slopes of the objective in theta with q as it is: one pass.

    ``pull``: slopes (L, C) of a loss that is linear in the function at the points, for the slopes in theta.
    """
    at, family = q.at(), task.prior.family
    M = len(family.points)
    sums: Sums = task.rows.reduce(inducing_sums, task.reader, at, task.learning.own is not None, True)
    slopes = sums.pop("slopes")
    B = -sums["adjoint"] @ q.mean.T
    for T, gram in zip(at.roots, sums["gram"], strict=True):
        B += gram - gram @ T @ T.T
    if pull is not None:
        B += q.mean @ pull.T  # transposed: the function at the points is L u, with L lower triangular
    B = np.triu(B[:M, :M])  # symmetric at the best q alone
    slopes = slopes + point_slopes(family.at(q.theta), B + np.triu(B, 1).T) + family.log_prior(q.theta)[1]
    return task.judged(q, sums), np.asarray(slopes)
