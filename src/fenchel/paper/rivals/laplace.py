"""Laplace's approximation: a Gaussian at the mode of the posterior, with the curvature it has there.

    Psi(u) = 1/2 u'u + sum_n psi_n(h_n),   h = mt + X u,   psi = -log p = f(h, 0)
    Newton:  (I + X' H X) du = -(u + X' psi'),     H = psi'' = a_h J a_h, J of the site at rho = 0
    log p(y) ~ -Psi(mode) - 1/2 log|I + X' H X|

One predictor an observation: the factorisation of the prior does it, sparse ones included. Several: H couples them and
one matrix of all blocks' latents is factorised (Rasmussen and Williams, Algorithm 3.3, without its shortcuts).

Psi is strongly convex, so Psi(u) - Psi(mode) <= 1/2 |u + X' psi'|^2: that is what is asked to be small. The elbo of its
q under the bound is reported for comparison; it is not what Laplace maximises, and its gap does not close.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np

from ...linalg.arrays import Array
from ...linalg.dense import solve_cholesky, solve_lower
from ...linalg.tolerances import ARMIJO
from ...problem import Point, Problem
from ...solvers.base import Outcome, Solver, Stopping
from .geometry import Geometry
from .judging import Candidate, dual_form, expected, explicit, starts

_SHORTEST = 1e-12


class ModeCandidate(Candidate):
    """q at (or near) the mode."""

    certificate, measure = "strong-concavity", "relative distance of the log density from its mode"
    mode_gap: float
    estimate: float

    @property
    def shortfall(self) -> float:
        return self.mode_gap

    @property
    def log_evidence(self) -> float:
        return self.estimate


class Laplace(Solver):
    """Laplace's approximation, by Newton's method with a line search.

    ``sol.log_evidence`` is Laplace's estimate, which is no bound; ``converged`` says that the mode was found, to
    ``tol`` in the log posterior density.
    """

    name = "laplace"

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        one = problem.likelihood.n_predictors == 1
        hill: Hill = ScalarHill(problem, start) if one else JointHill(problem, start)
        n, step = 0, 0.0
        while True:
            newton = hill.factorise()
            with stopping.off_the_clock():
                candidate = hill.judged()
                _ = candidate.gap
            ending = stopping.record(n, candidate, step)
            if ending is not None:
                break
            step = hill.move(newton)
            if step == 0.0:
                ending = stopping.ended(candidate, "stalled", "no step raises the density any more")
                break
            n += 1
        return Outcome(candidate, ending, n, stopping.trace)


class Hill(ABC):
    """The log posterior density at ``x``, and Newton's target there."""

    x: np.ndarray

    def __init__(self, problem: Problem, start: Point) -> None:
        self.problem, self.near = problem, start.s

    @abstractmethod
    def height(self, x: np.ndarray) -> tuple[float, Any]:
        """Psi at x and the expected loss there (at rho = 0)."""

    @abstractmethod
    def factorise(self) -> np.ndarray:
        """Newton's step at x, from one factorisation that is kept."""

    @abstractmethod
    def slope_along(self, d: np.ndarray) -> float:
        """Psi'(x) d."""

    @abstractmethod
    def judged(self) -> Candidate:
        """The q of x."""

    def move(self, d: np.ndarray) -> float:
        """Armijo along Newton's step; the step taken, or 0."""
        here, slope, step = self.height(self.x)[0], self.slope_along(d), 1.0
        rounding = 1e-13 * max(1.0, abs(here))
        while step > _SHORTEST:
            if self.height(self.x + step * d)[0] <= here + ARMIJO * step * slope + rounding:
                self.x = self.x + step * d
                return step
            step /= 2
        return 0.0

    def loss_at(self, h: Array) -> Any:
        return expected(self.problem, h, np.zeros_like(h), self.near)


class ScalarHill(Hill):
    """One predictor an observation: x is a, with h = mt - S a."""

    def __init__(self, problem: Problem, start: Point) -> None:
        super().__init__(problem, start)
        self.x = min((alpha for alpha, _ in starts(start)), key=lambda x: self.height(x)[0])

    def height(self, x: np.ndarray) -> tuple[float, Any]:
        S_x = self.problem.predictors.apply(x)
        loss = self.loss_at(self.problem.mt - S_x)
        value = 0.5 * float(np.sum(x * S_x)) + loss.total
        return (value if np.isfinite(value) else np.inf), loss

    def factorise(self) -> np.ndarray:
        problem = self.problem
        self.S_x = problem.predictors.apply(self.x)
        self.h = problem.mt - self.S_x
        self.loss = self.loss_at(self.h)
        site = problem.dual.site(self.loss.s, problem.rows)
        self.H = problem.weight[:, None] * np.sum(site.spread, axis=1, keepdims=True)
        self.factor = problem.predictors.at(self.H)
        b = self.H * self.h - self.loss.alpha
        target = problem.mt + self.factor.apply(b - self.H * problem.mt)  # the next h
        return np.asarray(self.H * target - b - self.x)

    def slope_along(self, d: np.ndarray) -> float:
        return float(np.sum((self.x - self.loss.alpha) * self.problem.predictors.apply(d)))

    def judged(self) -> Candidate:
        problem, rho = self.problem, self.factor.variance
        quadratic = float(np.sum(self.x * self.S_x))
        kl = 0.5 * (self.factor.log_det - float(np.sum(self.H * rho)) + quadratic)
        make = dual_form(problem, self.factor, self.x, self.H, (self.h, rho))
        out = ModeCandidate(problem, (self.h, rho), kl, self.near, make)
        r = self.x - self.loss.alpha
        out.mode_gap = 0.5 * float(np.sum(r * problem.predictors.apply(r)))
        out.estimate = -0.5 * quadratic - self.loss.total - 0.5 * self.factor.log_det + problem.shift
        return out


class JointHill(Hill):
    """Several predictors an observation: x is u, all blocks together."""

    def __init__(self, problem: Problem, start: Point) -> None:
        super().__init__(problem, start)
        self.geometry = Geometry(problem, "laplace")
        latents = (self.geometry.latents_at(alpha) for alpha, _ in starts(start))
        self.x = min(latents, key=lambda x: self.height(x)[0])

    def height(self, x: np.ndarray) -> tuple[float, Any]:
        loss = self.loss_at(self.geometry.predictors_at(x))
        value = 0.5 * float(x @ x) + loss.total
        return (value if np.isfinite(value) else np.inf), loss

    def factorise(self) -> np.ndarray:
        problem, geometry = self.problem, self.geometry
        self.loss = self.height(self.x)[1]
        site = problem.dual.site(self.loss.s, problem.rows)
        w = problem.weight
        H = w[:, None, None] * site.spread[:, :, None] * np.eye(site.spread.shape[1])
        if site.slack is not None:
            total = site.slack + np.sum(site.spread, axis=1)
            H -= (w / total)[:, None, None] * site.spread[:, :, None] * site.spread[:, None, :]
        self.A = self._precision(H)
        self.L = np.linalg.cholesky(self.A)
        self.slope = self.x + geometry.adjoint(self.loss.alpha)
        return np.asarray(-solve_cholesky(self.L, self.slope))

    def _precision(self, H: Array) -> np.ndarray:
        """I + X' H X over all blocks; H (N, C, C), predictors in the order of the blocks."""
        X, sizes, groups = self.geometry.X, self.geometry.sizes, self.geometry.blocks.groups
        if len(groups) == 1:  # correlated predictors: one block of N*C rows
            n, C, _ = H.shape
            rows = X[0].reshape(n, C, -1)
            weighted = np.einsum("nck,nkr->ncr", H, rows)
            return np.asarray(np.eye(sizes[0]) + X[0].T @ weighted.reshape(n * C, -1))
        edges = np.concatenate([[0], np.cumsum(sizes)])
        A = np.eye(edges[-1])
        for b, (i, j) in enumerate(pairwise(edges)):
            for c in range(b + 1):
                k, m = edges[c], edges[c + 1]
                part = X[b].T @ (H[:, b, c][:, None] * X[c])
                A[i:j, k:m] += part
                if c != b:
                    A[k:m, i:j] += part.T
        return A

    def slope_along(self, d: np.ndarray) -> float:
        return float(self.slope @ d)

    def _roots(self) -> list[np.ndarray]:
        U = solve_lower(self.L, np.eye(self.L.shape[0])).T
        return np.split(np.asarray(U), np.cumsum(self.geometry.sizes)[:-1])

    def judged(self) -> Candidate:
        geometry, roots = self.geometry, self._roots()
        h = geometry.predictors_at(self.x)
        rho = geometry.blocks.join([np.sum((X @ U) ** 2, axis=1) for X, U in zip(geometry.X, roots, strict=True)])
        log_det = 2.0 * float(np.log(np.diag(self.L)).sum())
        trace = sum(float(np.sum(U * U)) for U in roots)
        kl = 0.5 * (trace - self.x.size + log_det + float(self.x @ self.x))
        make = explicit(geometry, self.x, lambda: roots, joint=True)
        out = ModeCandidate(self.problem, (h, rho), kl, self.near, make)
        out.mode_gap = 0.5 * float(self.slope @ self.slope)
        out.estimate = -0.5 * float(self.x @ self.x) - self.loss.total - 0.5 * log_det + self.problem.shift
        return out
