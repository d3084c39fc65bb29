"""The primal itself: the bound maximised over the mean and the covariance of q, by L-BFGS.

    max_{m, V}  -KL[q || p] - sum_n f_n(h_n, rho_n)                                     eq:primal-problem

primal_full      V, L(L+1)/2 numbers a block                           (the paper: too slow to be shown)
primal_cholesky  its factor C, in which the bound is concave; or a band of it     (Challis and Barber 2011)
mean_field       a diagonal V                                          (Braun and McAuliffe 2010)

The mean is whitened, m = mu + R u, and so are V and C where they are full: this is the prior's own preconditioner, and
the best setting found. A band and a diagonal are of the covariance of z, as their authors have them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ...checks import problem as refusal
from ...inference import infer
from ...likelihoods.base import Likelihood
from ...linalg.arrays import to_numpy
from ...priors.base import Prior
from ...problem import Point, Problem
from ...solvers.base import Callback, Outcome, Solver, Stopping
from ...solvers.solution import Solution
from .candidate import Candidate, expected, explicit
from .geometry import Geometry
from .parametrisations import BandFactor, FullFactor, FullMatrix, Part
from .run import Judged, climb


def primal_full(
    likelihood: Likelihood,
    prior: Prior,
    y: Any,
    *,
    memory: int = 20,
    tol: float = 1e-8,
    max_iter: int = 10_000,
    start: Any = None,
    progress: bool = False,
    weights: Any = None,
    callback: Callback | None = None,
) -> Solution:
    """Maximise the bound over (m, V) directly. Parameters as in ``infer``; certificate: the duality gap."""
    method = Primal("primal_full", "matrix", memory=memory)
    return infer(likelihood, prior, y, method, tol, max_iter, start, progress, weights=weights, callback=callback)


def primal_cholesky(
    likelihood: Likelihood,
    prior: Prior,
    y: Any,
    *,
    bandwidth: int | None = None,
    memory: int = 20,
    tol: float = 1e-8,
    max_iter: int = 10_000,
    start: Any = None,
    progress: bool = False,
    weights: Any = None,
    callback: Callback | None = None,
) -> Solution:
    """Maximise the bound over (m, C), V = C C'.

    Parameters
    ----------
    bandwidth : int, optional
        Keep only this many diagonals of C below the main one: a smaller family, whose best q is worse. Its gap then is
        the strong-concavity bound on what another q of that family could gain. Default: all of C, and the duality gap.

    The others are those of ``infer``.
    """
    if bandwidth is not None and (int(bandwidth) != bandwidth or bandwidth < 0):
        raise refusal("primal_cholesky", f"bandwidth = {bandwidth!r}", "an integer >= 0, or None for all of C")
    method = Primal("primal_cholesky", "factor" if bandwidth is None else int(bandwidth), memory=memory)
    return infer(likelihood, prior, y, method, tol, max_iter, start, progress, weights=weights, callback=callback)


def mean_field(
    likelihood: Likelihood,
    prior: Prior,
    y: Any,
    *,
    memory: int = 20,
    tol: float = 1e-8,
    max_iter: int = 10_000,
    start: Any = None,
    progress: bool = False,
    weights: Any = None,
    callback: Callback | None = None,
) -> Solution:
    """Maximise the bound over means and a diagonal V. The gap bounds what another diagonal q could gain.

    Parameters as in ``infer``. Needs a positive definite Sigma: no diagonal V has a finite KL from a singular one.
    """
    method = Primal("mean_field", 0, memory=memory)
    return infer(likelihood, prior, y, method, tol, max_iter, start, progress, weights=weights, callback=callback)


class Primal(Solver):
    """(u, covariance part) by L-BFGS; a factor's diagonal is kept positive by feasible steps."""

    def __init__(self, name: str, covariance: str | int, memory: int = 20) -> None:
        self.name, self.covariance, self.memory = name, covariance, memory

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        geometry = Geometry(problem, self.name)
        landscape = Surface(geometry, self._parts(geometry), start, restricted=not isinstance(self.covariance, str))
        return climb(landscape, start, self.memory, stopping)

    def _parts(self, geometry: Geometry) -> list[Part]:
        if self.covariance == "matrix":
            return [FullMatrix(X) for X in geometry.X]
        if self.covariance == "factor":
            return [FullFactor(X) for X in geometry.X]
        geometry.need_proper("a covariance of z with few entries")
        parts: list[Part] = []
        for b, W in enumerate(geometry.predictors.designs):
            rows = np.asarray(W.toarray())
            all_rows = np.array_equal(rows, np.eye(rows.shape[1]))
            parts.append(
                BandFactor(None if all_rows else rows, geometry.precision(b), geometry.R[b], int(self.covariance))
            )
        return parts


class Place:
    """P at one (u, covariance)."""

    def __init__(self, surface: Surface, x: np.ndarray) -> None:
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

    def _each(self, name: str) -> list[Any]:
        lam = self.surface.geometry.blocks.split(self.loss.lam)
        triples = zip(self.surface.parts, self.states, lam, strict=True)
        return [getattr(part, name)(state, each) for part, state, each in triples]

    @cached_property
    def gradient(self) -> np.ndarray:
        return np.concatenate([self.mean_slope, *self._each("slope")])

    def shortfall(self) -> float:
        """How much another q of this family could gain, at most."""
        return 0.5 * float(self.mean_slope @ self.mean_slope) + float(sum(self._each("shortfall")))


class Surface(Judged[Place]):
    """-P over (u, covariance parts)."""

    def __init__(self, geometry: Geometry, parts: list[Part], start: Point, restricted: bool) -> None:
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

    def at(self, x: np.ndarray) -> Place:
        return Place(self, x)

    def value(self, point: Place) -> float:
        return point.value

    def gradient(self, point: Place) -> np.ndarray:
        return point.gradient

    def inside(self, x: np.ndarray) -> bool:
        return bool((x[self.walls] > 0.0).all())

    def limit(self, x: np.ndarray, d: np.ndarray) -> float:
        down = self.walls & (d < 0.0)
        return float((x[down] / -d[down]).min(initial=np.inf))

    def judged(self, point: Place) -> Candidate:
        def roots() -> list[np.ndarray]:
            return [part.root(state) for part, state in zip(self.parts, point.states, strict=True)]

        make = explicit(self.geometry, point.u, roots)
        kind = Member if self.restricted else Candidate
        candidate = kind(self.problem, (point.h, point.rho), point.kl, point.loss.s, make, point.loss)
        if isinstance(candidate, Member):
            candidate.family_gap = point.shortfall()
        return candidate


class Member(Candidate):
    """A q of a smaller family: the gap is to the best of that family."""

    certificate, measure = "strong-concavity", "relative distance from the best of its family"
    family_gap: float

    @cached_property
    def gap(self) -> float:
        return self.family_gap
