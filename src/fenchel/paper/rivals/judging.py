"""How a rival is run and judged: the objective is the paper's, whatever led to q.

    P = -KL[q || p] - sum_n f_n(h_n, rho_n)                              eq:primal-problem
    D at s_hat(h, rho), where f is reached, bounds every q from above:   gap = D - P

A method that searches a smaller family, or something else, says so in ``certificate`` and ``measure``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from ...linalg.arrays import Array, to_numpy
from ...posterior import Posterior
from ...priors.base import Factor
from ...problem import Point, Problem
from ...solvers.base import Outcome, Stopping
from ...solvers.lbfgs import Landscape, descend
from .geometry import ExplicitPosterior, Geometry

P = TypeVar("P")


@dataclass(frozen=True)
class Expected:
    """sum f at (h, rho) with its slopes: df/dh = alpha, df/drho = lam / 2, both weighted."""

    s: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray
    total: float


def expected(problem: Problem, h: Array, rho: Array, near: Array) -> Expected:
    """The expected loss of q and its slopes, by the site's own maximum (eq:conjugate); ``near`` is any s."""
    dual, rows, w = problem.dual, problem.rows, problem.weight
    s = dual.maximiser(h, rho, near, rows)
    site = dual.site(s, rows)
    each = np.sum(site.alpha * h + site.lam * rho / 2, axis=1) - site.k + problem.likelihood.constant(rows)
    s, alpha, lam = to_numpy(s), to_numpy(w[:, None] * site.alpha), to_numpy(w[:, None] * site.lam)
    return Expected(s, alpha, lam, float(np.sum(np.where(w > 0, w * each, 0.0))))


class Candidate:
    """One q at the judges' table.

    Parameters
    ----------
    h, rho : arrays (N, C)
        Its predictors' means and variances.
    kl : float
        KL[q || p], p the prior shifted by the observations without curvature.
    make_posterior : called when the posterior is asked for
    """

    certificate, measure = "duality", "relative gap"

    def __init__(
        self,
        problem: Problem,
        marginals: tuple[Array, Array],
        kl: float,
        near: Array,
        make_posterior: Callable[[Candidate], Posterior],
        known: Expected | None = None,
    ) -> None:
        self.problem, (self.h, self.rho), self.kl = problem, marginals, kl
        self._make = make_posterior
        loss = expected(problem, self.h, self.rho, near) if known is None else known
        self.s, self.alpha, self.lam = loss.s, loss.alpha, loss.lam
        self.elbo = -kl - loss.total + problem.shift  # eq:primal-detail
        if np.isnan(self.elbo):
            self.elbo = -np.inf

    @cached_property
    def dual(self) -> float:
        """No Gaussian does better under this bound."""
        return self.elbo + self.gap

    @cached_property
    def gap(self) -> float:
        upper = self.problem.at(self.s).dual
        return max(upper - self.elbo, 0.0) if np.isfinite(upper) else np.inf

    @property
    def shortfall(self) -> float:
        return self.gap

    @property
    def log_evidence(self) -> float:
        return self.elbo

    def sites(self) -> tuple[Array, Array]:
        """alpha and lam of all observations."""
        return self.problem.full_alpha(self.alpha), self.problem.full_lam(self.lam)

    def posterior(self) -> Posterior:
        return self._make(self)


def explicit(geometry: Geometry, u: np.ndarray, U: Callable[[], list[np.ndarray]], joint: bool = False) -> Callable:
    """A ``make_posterior`` for a mean u and roots U (made when asked for)."""
    return lambda candidate: ExplicitPosterior(geometry, u, U(), candidate.sites(), joint)


def dual_form(problem: Problem, factor: Factor, beta: Array, lam: Array, marginals: tuple[Array, Array]) -> Callable:
    """A ``make_posterior`` for m = mu - Sigma W' beta, V = (Sigma^-1 + W' Lam W)^-1, the form of the dual's own."""

    def make(candidate: Candidate) -> Posterior:
        sites = problem.full_alpha(beta), problem.full_lam(lam)
        return Posterior(problem.all_predictors, problem.active, factor, sites, marginals)

    return make


# -- rivals that climb by L-BFGS -----------------------------------------------------------------------
class Judged(Landscape[P]):
    """A landscape whose points can be laid before the judges."""

    @abstractmethod
    def judged(self, point: P) -> Candidate:
        """The q of a point."""

    @abstractmethod
    def start(self, alpha: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """x of m = mu - Sigma W' alpha and V = (Sigma^-1 + W' Lam W)^-1, or what is nearest."""


def starts(point: Point) -> list[tuple[np.ndarray, np.ndarray]]:
    """(alpha, lam) a primal method may begin at: a good start of the dual can be a poor q.

    The dual's start; the prior's mean with its variances; nearly the prior itself; and, when observations without
    curvature (returns of zero) pull the mean, a common alpha that pulls as much the other way.
    """
    alpha, lam = np.asarray(point.alpha), np.asarray(point.lam)
    out = [(alpha, lam), (0.0 * alpha, lam), (0.0 * alpha, 1e-3 * lam)]
    pull = np.asarray(point.problem.fixed_alpha).sum(axis=0)
    if pull.any():
        out.append((0.0 * alpha - pull / alpha.shape[0], lam))
    return out


def climb(landscape: Judged[P], point: Point, memory: int, stopping: Stopping) -> Outcome:
    """L-BFGS with Wolfe steps until ``stopping`` ends it; the certificate is computed off the clock.

    It begins at the best of ``starts``.
    """
    x = min((landscape.start(*pair) for pair in starts(point)), key=lambda x: landscape.value(landscape.at(x)))
    n, ending, candidate = 0, None, None
    for n, (place, step) in enumerate(descend(landscape, x, memory)):
        with stopping.off_the_clock():
            candidate = landscape.judged(place)
            _ = candidate.gap
        ending = stopping.record(n, candidate, step)
        if ending is not None:
            break
    assert candidate is not None
    if ending is None:
        ending = stopping.ended(candidate, "stalled", "the line search stalled")
    return Outcome(candidate, ending, n, stopping.trace)
