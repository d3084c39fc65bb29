"""Expectation propagation: Gaussian sites whose moments match the likelihood's, all at once, damped.

    site exp(nu eta - tau eta^2/2),   V = (Sigma^-1 + W' diag(tau) W)^-1,   h = mt + Vt (nu - tau mt)
    cavity  v = rho/(1 - tau rho),  m = (h - nu rho)/(1 - tau rho)
    tilted  N(eta; m, v) p(y|eta):   its mean and variance give the new site
    log p(y) ~ sum c_n + log int N(eta; mt, S) exp(nu'eta - eta' T eta/2)

A fixed point is no optimum of anything, so nothing guarantees one: the damping falls when the mismatch grows, and a run
that does not settle says so. Log-concave likelihoods with one predictor an observation. (Minka 2001; the parallel
schedule of van Gerven et al. 2010.)
"""

from __future__ import annotations

import numpy as np

from ...checks import problem as refusal
from ...likelihoods.base import slice_rows
from ...linalg.arrays import Array
from ...linalg.quadrature import tilted_moments
from ...problem import Point, Problem
from ...solvers.base import Outcome, Solver, Stopping
from .judging import Candidate, dual_form

_GENTLEST = 0.02


class SettlingCandidate(Candidate):
    """q of one sweep."""

    certificate, measure = "none: moments match", "mismatch of moments"
    mismatch: float
    estimate: float

    @property
    def shortfall(self) -> float:
        return self.mismatch * max(1.0, abs(self.elbo)) if np.isfinite(self.elbo) else np.inf

    @property
    def log_evidence(self) -> float:
        return self.estimate


class Sites:
    """Sites nu, tau (N,) and what they imply."""

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

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        likelihood, n = problem.likelihood, problem.active.size
        if likelihood.n_predictors > 1:
            raise refusal(
                "ep",
                f"{likelihood.name} has {likelihood.n_predictors} predictors an observation",
                "one: its moments are integrals on a line",
                "Use laplace, or infer.",
            )
        sites, share = Sites(problem, np.zeros(n), np.zeros(n)), self.damping
        count, step = 0, 0.0
        while True:
            with stopping.off_the_clock():
                candidate = sites.judged()
                _ = candidate.gap
            ending = stopping.record(count, candidate, step)
            if ending is not None:
                break
            nu, tau = sites.target()
            step, before = share, sites.mismatch()
            sites = Sites(problem, sites.nu + share * (nu - sites.nu), sites.tau + share * (tau - sites.tau))
            share = min(self.damping, 1.1 * share) if sites.mismatch() < before else max(_GENTLEST, 0.5 * share)
            count += 1
        if ending.code == "max_iter":
            ending = ending.advising("; expectation propagation is not sure to converge: try a smaller damping")
        return Outcome(candidate, ending, count, stopping.trace)
