"""Methods for the primal: maximise the bound over the mean and the covariance of q by L-BFGS.

    max_{m, V}  -KL[q || p] - sum_n f_n(h_n, rho_n)                                     eq:primal-problem

primal_full      V, L(L+1)/2 numbers a block                           (the paper: too slow to be shown)
primal_cholesky  its factor C, in which the bound is concave; or a band of it     (Challis and Barber 2011)
mean_field       a diagonal V                                          (Braun and McAuliffe 2010)

The mean is whitened, m = mu + R u, and so are V and C where they are full: this is the prior's own preconditioner, and
the best setting found. A band and a diagonal are of the covariance of z, as their authors have them.

With eta = mt + F x, x ~ N(0, P^-1) a priori and V = Cov_q[x], a part gives

    rho = diag(F V F'),    KL_V = 1/2 (tr(P V) - log|P V| - r),    their slopes, and a root of V
    factor  V = C C':   dKL/dC + ... = P C - diag(1/C_ii) + F' Lam F C  on C's pattern,   Lam = 2 df/drho
    matrix  V:          1/2 (P - V^-1 + F' Lam F)

-KL is strongly concave in (u, C) in the metric of P, and f is convex in them, so the squared slope in that metric
bounds how much any other member of the family could gain (the mean's share is added by the caller).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import dgemm, dsyrk, dtrmm

from ...checks import problem as refusal
from ...linalg.arrays import to_numpy
from ...problem import DualPoint, Problem
from ...solvers.base import Outcome, Solver, Stopping
from .base import BoundSurface, Candidate, Geometry, climb, expected, explicit

_NAMES: dict[str | int, str] = {"matrix": "primal_full", 0: "mean_field"}


class Primal(Solver):
    """Maximise the bound over the mean and a covariance, by L-BFGS.

    Parameters
    ----------
    covariance : {"matrix", "factor"} or int
        V itself; its Cholesky factor, whose diagonal is kept positive by feasible steps; or a factor with this many
        diagonals below the main one (0: a diagonal V, mean field). The gap of the last kind bounds what another q of
        that family could gain; it needs a positive definite Sigma, because no diagonal V has a finite KL from a
        singular one. The certificate of the others is the duality gap.
    memory : int
        Pairs of the L-BFGS.
    """

    def __init__(self, covariance: str | int, memory: int = 20) -> None:
        self.covariance, self.memory = covariance, memory
        self.name = _NAMES.get(covariance, "primal_cholesky")

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        geometry = Geometry(problem, self.name)
        surface = PrimalSurface(geometry, self._parts(geometry), start, restricted=not isinstance(self.covariance, str))
        return climb(surface, start, self.memory, stopping)

    def _parts(self, geometry: Geometry) -> list[CovarianceBlock]:
        if self.covariance == "matrix":
            return [FullMatrix(X) for X in geometry.X]
        if self.covariance == "factor":
            return [FullFactor(X) for X in geometry.X]
        geometry.need_proper("a covariance of z with few entries")
        parts: list[CovarianceBlock] = []
        for b, W in enumerate(geometry.predictors.designs):
            rows = np.asarray(W.toarray())
            all_rows = np.array_equal(rows, np.eye(rows.shape[1]))
            parts.append(
                BandFactor(None if all_rows else rows, geometry.precision(b), geometry.R[b], int(self.covariance))
            )
        return parts


def banded_primal(bandwidth: int | None = None, memory: int = 20) -> Primal:
    """``Primal`` over a Cholesky factor: all of it, or ``bandwidth`` diagonals of it below the main one."""
    if bandwidth is not None and (int(bandwidth) != bandwidth or bandwidth < 0):
        raise refusal("primal_cholesky", f"bandwidth = {bandwidth!r}", "an integer >= 0, or None for all of C")
    return Primal("factor" if bandwidth is None else int(bandwidth), memory)


class MeanFactorPoint:
    """P at one (u, covariance)."""

    def __init__(self, surface: PrimalSurface, x: np.ndarray) -> None:
        self.surface, self.value = surface, np.inf
        problem, geometry = surface.problem, surface.geometry
        self.u, *blocks = np.split(x, surface.cuts)
        found = [part.at(block) for part, block in zip(surface.parts, blocks, strict=True)]
        if any(item is None for item in found):
            return
        rho, kl, self.states = zip(*[item for item in found if item is not None], strict=True)
        self.h, self.rho = geometry.predictors_at(self.u), geometry.blocks.join(rho)
        self.kl = 0.5 * float(self.u @ self.u) + sum(kl)  # eq:primal-detail
        self.loss = expected(problem, self.h, self.rho, surface.near)
        value = self.kl + self.loss.total - problem.shift
        self.value = value if np.isfinite(value) else np.inf

    @cached_property
    def mean_slope(self) -> np.ndarray:
        return self.u + self.surface.geometry.adjoint(self.loss.alpha)

    def _by_part(self) -> Iterator[tuple[CovarianceBlock, Any, np.ndarray]]:
        """Each part, the stored state of its evaluation, and its lam."""
        lam = [np.asarray(part) for part in self.surface.geometry.blocks.split(self.loss.lam)]
        return zip(self.surface.parts, self.states, lam, strict=True)

    @cached_property
    def gradient(self) -> np.ndarray:
        slopes = [part.slope(state, lam) for part, state, lam in self._by_part()]
        return np.concatenate([self.mean_slope, *slopes])

    def shortfall(self) -> float:
        """Upper bound on the gain by another q of this family."""
        each = [part.shortfall(state, lam) for part, state, lam in self._by_part()]
        return 0.5 * float(self.mean_slope @ self.mean_slope) + float(sum(each))


class PrimalSurface(BoundSurface[MeanFactorPoint]):
    """-P over (u, covariance parts)."""

    def __init__(self, geometry: Geometry, parts: list[CovarianceBlock], start: DualPoint, restricted: bool) -> None:
        self.geometry, self.problem, self.parts, self.near = geometry, geometry.problem, parts, start.s
        self.restricted = restricted
        sizes = [sum(geometry.sizes), *(part.size for part in parts)]
        self.cuts = np.cumsum(sizes)[:-1]

    def start(self, alpha: np.ndarray, lam: np.ndarray) -> np.ndarray:
        each = self.geometry.blocks.split(lam)
        blocks = [part.start(to_numpy(block)) for part, block in zip(self.parts, each, strict=True)]
        x = np.concatenate([self.geometry.latents_at(alpha), *blocks])
        self.walls = np.concatenate(
            [np.zeros(self.cuts[0], dtype=bool), *(p.positive(b) for p, b in zip(self.parts, blocks, strict=True))]
        )
        return x

    def at(self, x: np.ndarray) -> MeanFactorPoint:
        return MeanFactorPoint(self, x)

    def judged(self, point: MeanFactorPoint) -> Candidate:
        def roots() -> list[np.ndarray]:
            return [part.root(state) for part, state in zip(self.parts, point.states, strict=True)]

        make = explicit(self.geometry, point.u, roots)
        q = self.problem, (point.h, point.rho), point.kl, point.loss.s, make, point.loss
        if not self.restricted:
            return Candidate(*q)
        member = Member(*q)
        member.family_gap = point.shortfall()
        return member


class Member(Candidate):
    """A q of a smaller family: the gap is to the best of that family."""

    certificate, measure = "strong-concavity", "relative distance from the best of its family"
    family_gap: float

    @cached_property
    def gap(self) -> float:
        return self.family_gap


# -- ways to write a covariance as a flat vector ---------------------------------------------------------
class CovarianceBlock(ABC):
    """The covariance of one block as ``size`` numbers; ``state`` is the stored result of an evaluation."""

    size: int

    @abstractmethod
    def start(self, lam: np.ndarray) -> np.ndarray:
        """The vector of V = (P + F' Lam F)^-1, or of its nearest relative in the family."""

    @abstractmethod
    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any] | None:
        """rho (rows,), KL_V, state; None where V is not positive definite."""

    @abstractmethod
    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        """d(KL_V + sum f)/dx, with lam = 2 df/drho (rows,)."""

    @abstractmethod
    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        """The part of the strong-concavity bound for this covariance."""

    @abstractmethod
    def root(self, state: Any) -> np.ndarray:
        """U with V = U U'."""

    def positive(self, x: np.ndarray) -> np.ndarray:
        """Which entries must stay above zero."""
        return np.zeros(self.size, dtype=bool)


class FullFactor(CovarianceBlock):
    """A lower triangular C in whitened latents: F = X, P = I."""

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.r = np.asfortranarray(X), X.shape[1]  # the order BLAS takes without a copy
        self.lower = np.tril_indices(self.r)
        self.size = self.lower[0].size
        self.diagonal = self.lower[0] == self.lower[1]

    def positive(self, x: np.ndarray) -> np.ndarray:
        return self.diagonal

    def start(self, lam: np.ndarray) -> np.ndarray:
        return np.linalg.cholesky(_posterior(self.X, lam))[self.lower]

    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any]:
        C = np.zeros((self.r, self.r), order="F")
        C[self.lower] = x
        FC = dtrmm(1.0, C, self.X, side=1, lower=1)
        kl = 0.5 * (float(x @ x) - self.r) - float(np.log(np.diag(C)).sum())
        return np.einsum("ij,ij->i", FC, FC), kl, (C, FC)

    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        C, FC = state
        G = dgemm(1.0, self.X, np.asfortranarray(lam[:, None] * FC), beta=1.0, c=C, trans_a=1)
        G[np.diag_indices(self.r)] -= 1.0 / np.diag(C)
        return G[self.lower]

    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        g = self.slope(state, lam)
        return 0.5 * float(g @ g)

    def root(self, state: Any) -> np.ndarray:
        return np.asarray(state[0])


class FullMatrix(CovarianceBlock):
    """V itself, in whitened latents; off-diagonal entries times sqrt(2), so that lengths are Frobenius norms."""

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.r = np.asfortranarray(X), X.shape[1]  # the order BLAS takes without a copy
        self.lower = np.tril_indices(self.r)
        self.size = self.lower[0].size
        self.scale = np.where(self.lower[0] == self.lower[1], 1.0, np.sqrt(2.0))

    def start(self, lam: np.ndarray) -> np.ndarray:
        return _posterior(self.X, lam)[self.lower] * self.scale

    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any] | None:
        V = np.zeros((self.r, self.r), order="F")
        V[self.lower] = x / self.scale
        C, info = lapack.dpotrf(V, lower=1, clean=1)
        if info != 0:
            return None
        FC = dtrmm(1.0, C, self.X, side=1, lower=1)
        kl = 0.5 * (float(np.trace(V)) - self.r) - float(np.log(np.diag(C)).sum())
        return np.einsum("ij,ij->i", FC, FC), kl, C

    def _half(self, C: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """dP/dV with its sign turned, symmetric."""
        inverse, _ = lapack.dpotri(C, lower=1)
        root = np.asfortranarray(np.sqrt(lam)[:, None] * self.X)
        half = dsyrk(0.5, root, beta=-0.5, c=inverse, trans=1, lower=1, overwrite_c=1)
        half = np.tril(half) + np.tril(half, -1).T
        half[np.diag_indices(self.r)] += 0.5
        return np.asarray(half)

    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        return self._half(state, lam)[self.lower] * self.scale

    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        G = np.tril(2.0 * self._half(state, lam) @ state)
        return 0.5 * float(np.sum(G * G))

    def root(self, state: Any) -> np.ndarray:
        return np.asarray(state)


class BandFactor(CovarianceBlock):
    """C with C_ij = 0 unless 0 <= i - j <= width, in the latents z themselves: F = W, P = Sigma^-1.

    Width 0 is mean field. Rows are scaled to a P with unit diagonal, so that all variables are of order one. Stored as
    diagonals: c[k, j] = C[j + k, j].
    """

    def __init__(self, W: np.ndarray | None, P: np.ndarray, R: np.ndarray, width: int) -> None:
        r = P.shape[0]
        self.r, self.width, self.R = r, min(width, r - 1), R
        self.scale = 1.0 / np.sqrt(np.diag(P))
        self.P = P * self.scale[:, None] * self.scale[None, :]
        self.log_det_P = -2.0 * float(np.log(np.diag(R) / self.scale).sum())
        self.W = W  # None: every latent is a row
        index = np.arange(r)
        self.live = index[None, :] + np.arange(self.width + 1)[:, None] < r
        self.size = int(self.live.sum())

    def positive(self, x: np.ndarray) -> np.ndarray:
        out = np.zeros(self.live.shape, dtype=bool)
        out[0] = True
        return out[self.live]

    def start(self, lam: np.ndarray) -> np.ndarray:
        weight = lam if self.W is None else (self.W**2).T @ lam
        c = np.zeros(self.live.shape)
        c[0] = 1.0 / np.sqrt(1.0 + self.scale**2 * weight)
        return c[self.live]

    def _times(self, c: np.ndarray) -> np.ndarray:
        """P C on the pattern, as diagonals: (P C)[j+k, j] = sum_l P[j+k, j+l] C[j+l, j]."""
        out = np.zeros_like(c)
        for k in range(self.width + 1):
            for m in range(self.width + 1):
                top = self.r - max(k, m)
                out[k, :top] += np.diagonal(self.P, m - k)[min(k, m) : min(k, m) + top] * c[m, :top]
        return out

    def _seen(self, c: np.ndarray) -> np.ndarray:
        """W C (rows, r) for a given W."""
        assert self.W is not None
        out = np.zeros((self.W.shape[0], self.r))
        for k in range(self.width + 1):
            out[:, : self.r - k] += (self.W * self.scale[None, :])[:, k:] * c[k, : self.r - k]
        return out

    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any]:
        c = np.zeros(self.live.shape)
        c[self.live] = x
        Pc = self._times(c)
        if self.W is None:
            seen, rho = None, np.zeros(self.r)
            for k in range(self.width + 1):
                rho[k:] += c[k, : self.r - k] ** 2
            rho *= self.scale**2
        else:
            seen = self._seen(c)
            rho = np.einsum("ij,ij->i", seen, seen)
        kl = 0.5 * (float(np.sum(c * Pc)) - self.r - self.log_det_P) - float(np.log(c[0]).sum())
        return rho, kl, (c, Pc, seen)

    def _slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        c, Pc, seen = state
        G = Pc.copy()
        if seen is None:
            for k in range(self.width + 1):
                G[k, : self.r - k] += (self.scale**2 * lam)[k:] * c[k, : self.r - k]
        else:
            assert self.W is not None
            scaled = self.W * self.scale[None, :]
            weighted = lam[:, None] * seen
            for k in range(self.width + 1):
                G[k, : self.r - k] += np.einsum("ij,ij->j", scaled[:, k:], weighted[:, : self.r - k])
        G[0] -= 1.0 / c[0]
        return G

    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        return self._slope(state, lam)[self.live]

    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        """1/2 sum_j G_j' (P_jj)^-1 G_j, P_jj the square block of P on column j's pattern."""
        G, total, b = self._slope(state, lam), 0.0, self.width + 1
        G = np.where(self.live, G, 0.0)
        whole = self.r - b + 1
        blocks = np.lib.stride_tricks.sliding_window_view(self.P, (b, b))[np.arange(whole), np.arange(whole)]
        columns = G[:, :whole].T[:, :, None]
        total += 0.5 * float(np.sum(columns * np.linalg.solve(blocks, columns)))
        for j in range(whole, self.r):  # the last, shorter columns
            g = G[: self.r - j, j]
            total += 0.5 * float(g @ np.linalg.solve(self.P[j:, j:], g))
        return total

    def root(self, state: Any) -> np.ndarray:
        from scipy.linalg import solve_triangular

        c, C = state[0], np.zeros((self.r, self.r))
        for k in range(self.width + 1):
            C[np.arange(k, self.r), np.arange(self.r - k)] = c[k, : self.r - k]
        return np.asarray(solve_triangular(self.R, self.scale[:, None] * C, lower=True))


def _posterior(X: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """(I + X' Lam X)^-1."""
    return np.asarray(np.linalg.inv(np.eye(X.shape[1]) + X.T @ (lam[:, None] * X)))
