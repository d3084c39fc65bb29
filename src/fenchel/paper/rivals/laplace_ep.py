"""Laplace's approximation and expectation propagation: Gaussians from the likelihood's own curvature or moments.

Laplace puts a Gaussian at the mode of the posterior, with the curvature it has there:

    Psi(u) = 1/2 u'u + sum_n psi_n(h_n),   h = mt + X u,   psi = -log p = f(h, 0)
    Newton:  (I + X' H X) du = -(u + X' psi'),     H = psi'' = a_h J a_h, J of the site at rho = 0
    log p(y) ~ -Psi(mode) - 1/2 log|I + X' H X|

One predictor an observation: the factorisation of the prior does it, sparse ones included. Several: H
couples them and one matrix of all blocks' latents is factorised (Rasmussen and Williams, Algorithm 3.3,
without its shortcuts). Psi is strongly convex, so Psi(u) - Psi(mode) <= 1/2 |u + X' psi'|^2: that is what
is asked to be small. The elbo of its q under the bound is reported for comparison; it is not what Laplace
maximises, and its gap does not close.

Expectation propagation has Gaussian sites whose moments match the likelihood's, all at once, damped:

    site exp(nu eta - tau eta^2/2),   V = (Sigma^-1 + W' diag(tau) W)^-1,   h = mt + Vt (nu - tau mt)
    cavity  v = rho/(1 - tau rho),  m = (h - nu rho)/(1 - tau rho)
    tilted  N(eta; m, v) p(y|eta):   its mean and variance give the new site
    log p(y) ~ sum c_n + log int N(eta; mt, S) exp(nu'eta - eta' T eta/2)

A fixed point is not the optimum of an objective and need not exist. The damping is reduced when the mismatch
grows, and a run without convergence says so. For log-concave likelihoods with one predictor per observation.
(Minka 2001; the parallel schedule of van Gerven et al. 2010.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...checks import problem as refusal
from ...likelihoods.base import slice_rows
from ...linalg.arrays import Array
from ...linalg.dense import solve_cholesky, solve_lower
from ...linalg.quadrature import tilted_moments
from ...problem import DualPoint, Problem
from ...solvers.base import ARMIJO, Outcome, Solver, Stopping
from .base import Candidate, Geometry, dual_form, expected, explicit, iterate, starts

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


class LaplaceSolver(Solver):
    """Laplace's approximation by Newton's method with a line search.

    ``sol.log_evidence`` is Laplace's estimate, which is not a bound; ``converged`` says that the mode was found, to
    ``tol`` in the log posterior density.
    """

    name = "laplace"

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        one = problem.likelihood.n_predictors == 1
        hill: Hill = ScalarHill(problem, start) if one else JointHill(problem, start)

        def steps() -> Iterator[tuple[Callable[[], Candidate], float]]:
            step = 0.0
            while True:
                newton = hill.factorise()
                yield hill.judged, step
                step = hill.move(newton)
                if step == 0.0:
                    return

        return iterate(steps(), stopping, "no step raises the density any more")


class Hill(ABC):
    """The log posterior density at ``x``, and Newton's target there."""

    x: np.ndarray

    def __init__(self, problem: Problem, start: DualPoint) -> None:
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
    """With one predictor for each observation: x is a, where h = mt - S a."""

    def __init__(self, problem: Problem, start: DualPoint) -> None:
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
    """With several predictors for each observation: x is u of all blocks together."""

    def __init__(self, problem: Problem, start: DualPoint) -> None:
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


# -- Expectation propagation ---------------------------------------------------------------------------
_GENTLEST = 0.02


class SettlingCandidate(Candidate):
    """The q of one sweep."""

    certificate, measure = "none: moments match", "mismatch of moments"
    mismatch: float
    estimate: float

    @property
    def shortfall(self) -> float:
        return self.mismatch * max(1.0, abs(self.elbo)) if np.isfinite(self.elbo) else np.inf

    @property
    def log_evidence(self) -> float:
        return self.estimate


class MomentSites:
    """Sites nu, tau (N,) with the q, the cavities and the tilted moments that follow from them."""

    def __init__(self, problem: Problem, nu: np.ndarray, tau: np.ndarray) -> None:
        self.problem, self.nu, self.tau = problem, nu, tau
        self.factor = problem.predictors.at(tau[:, None])
        mt = problem.mt[:, 0]
        self.b = nu - tau * mt
        shift = self.factor.apply(self.b[:, None])[:, 0]
        self.h, self.rho = mt + shift, self.factor.variance[:, 0]
        remainder = self.factor.cavity[:, 0]
        self.v, self.m = self.rho / remainder, (self.h - nu * self.rho) / remainder
        self.log_z, offset, self.v_hat = self._tilted()
        self.m_hat = self.m + offset
        self.quadratic = float(self.b @ shift)

    def _tilted(self) -> np.ndarray:
        problem = self.problem
        likelihood, rows = problem.likelihood, problem.rows

        def log_g(eta: Array, chunk: slice) -> np.ndarray:
            part = slice_rows(rows, chunk)
            return np.asarray(-part["weight"][:, None] * likelihood.derivatives(eta, part)[0])

        return np.asarray(tilted_moments(log_g, self.m, self.v, likelihood.landmarks(rows)))

    def mismatch(self) -> float:
        means = np.abs(self.m_hat - self.h) / np.sqrt(self.rho)
        return float(max(means.max(), np.abs(self.v_hat / self.rho - 1.0).max()))

    def target(self) -> tuple[np.ndarray, np.ndarray]:
        """The sites that would match this sweep's tilted moments; tau >= 0 for a log-concave likelihood."""
        tau = np.maximum(1.0 / self.v_hat - 1.0 / self.v, 0.0)
        return self.m_hat * (tau + 1.0 / self.v) - self.m / self.v, tau

    def log_evidence(self) -> float:
        nu, tau, m, v, mt = self.nu, self.tau, self.m, self.v, self.problem.mt[:, 0]
        site = (2 * m * nu + nu**2 * v - tau * m**2) / (2 * (1 + tau * v)) - 0.5 * np.log1p(tau * v)
        prior = float(nu @ mt - 0.5 * tau @ mt**2) - 0.5 * self.factor.log_det + 0.5 * self.quadratic
        return float(np.sum(self.log_z - site)) + prior + self.problem.shift

    def judged(self) -> SettlingCandidate:
        problem = self.problem
        h, rho, tau = self.h[:, None], self.rho[:, None], self.tau[:, None]
        beta = tau * h - self.nu[:, None]
        quadratic = float(np.sum(beta * (problem.mt - h)))
        kl = 0.5 * (self.factor.log_det - float(np.sum(tau * rho)) + quadratic)
        make = dual_form(problem, self.factor, beta, tau, (h, rho))
        out = SettlingCandidate(problem, (h, rho), kl, problem.dual.start(problem.rows, 1.0), make)
        out.mismatch, out.estimate = self.mismatch(), self.log_evidence()
        return out


class EP(Solver):
    """Parallel expectation propagation.

    Parameters
    ----------
    damping : float in (0, 1]
        The largest share of a new site taken in a sweep; it is lowered when the mismatch grows.

    ``tol`` bounds the largest mismatch between a marginal and its tilted distribution, in standard deviations (means)
    and relative (variances). Their being equal is all that ``converged`` says: EP has no certificate. ``start`` is not
    used, sites begin at zero. ``sol.log_evidence`` is EP's estimate, which is no bound.
    """

    name = "ep"

    def __init__(self, damping: float = 1.0) -> None:
        if not 0.0 < damping <= 1.0:
            raise refusal("ep", f"damping = {damping!r}", "a number in (0, 1]")
        self.damping = damping

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        likelihood, n = problem.likelihood, problem.active.size
        if likelihood.n_predictors > 1:
            raise refusal(
                "ep",
                f"{likelihood.name} has {likelihood.n_predictors} predictors an observation",
                "one: its moments are integrals on a line",
                "Use laplace, or infer.",
            )
        outcome = iterate(self._sweeps(problem, n), stopping)
        if outcome.ending.code != "max_iter":
            return outcome
        advice = "; expectation propagation is not sure to converge: try a smaller damping"
        return replace(outcome, ending=outcome.ending.advising(advice))

    def _sweeps(self, problem: Problem, n: int) -> Iterator[tuple[Callable[[], Candidate], float]]:
        sites, share, step = MomentSites(problem, np.zeros(n), np.zeros(n)), self.damping, 0.0
        while True:
            yield sites.judged, step
            nu, tau = sites.target()
            step, before = share, sites.mismatch()
            sites = MomentSites(problem, sites.nu + share * (nu - sites.nu), sites.tau + share * (tau - sites.tau))
            share = min(self.damping, 1.1 * share) if sites.mismatch() < before else max(_GENTLEST, 0.5 * share)
