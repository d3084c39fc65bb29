"""Methods over the mean m and lam: Opper and Archambeau's, and coordinate ascent.

Opper and Archambeau (2009) maximise the primal over (m, lam), with V in the form it has at the optimum:

    V = (Sigma^-1 + W' Lam W)^-1                                                        eq:vstarOpperArch
    P = -1/2 (log|B| - lam'rho) - 1/2 (m - mu)' Sigma^-1 (m - mu) - sum f(h, rho)       eq:primal-detail
    dP/dm = -Sigma^-1 (m - mu) - W' df/dh,    dP/dlam = (Vt o Vt)(df/drho - lam/2)

L + N variables, not concave in lam. lam is varied itself, by feasible steps, or as log lam: zero is no
barrier here, and a search in lam can get stuck there if it starts far from the optimum. The mean's coordinates
are the paper's m (``"latent"``), the authors' own m = mu - Sigma W' a (``"dual"``), or m = mu + R u with
R R' = Sigma (``"white"``), in which L-BFGS does best.

Coordinate ascent (Khan, Mohamed and Murphy 2012) takes one lam_n at a time, by rank-one updates:

    sweep   lam_n <- lam with  lam = 2 df/drho(h_n, rho(lam)),   rho(lam) = v/(1 + lam v),   v the cavity variance
            Vt <- Vt - d/(1 + d rho_n) Vt_n Vt_n',   d the change of lam_n
    mean    maximised at these variances

A fixed point has lam = 2 df/drho and alpha = df/dh in every coordinate: it minimises the dual along each of
them, and the dual is smooth and convex, so it is the optimum. The paper has N = L and W = I; here W may be
any design, in predictor space. The sweep is inherently sequential: N updates of N^2 numbers each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyr
from scipy.optimize import brentq

from ...checks import choice
from ...likelihoods.base import slice_rows
from ...linalg.arrays import to_numpy
from ...linalg.dense import NotPositiveDefinite, solve_lower, symmetrised
from ...priors.predictors import BlockFactor
from ...problem import DualPoint, Problem
from ...solvers.base import Outcome, Solver, Stopping
from ...solvers.lbfgs import Landscape, descend
from .base import BoundSurface, Candidate, Expected, Geometry, climb, dual_form, expected, explicit, iterate, starts


class OpperArchambeau(Solver):
    """Maximise the bound over (m, lam) by the same L-BFGS as the paper's dual.

    Parameters
    ----------
    mean : {"latent", "dual", "white"}
        Coordinates of the mean; see the module. ``"latent"`` is the paper's and needs a positive definite Sigma.
    lam : {"log", "direct"}
        What is varied: log lam, or lam itself by steps that keep it positive.
    memory : int
        Pairs of the L-BFGS.

    Certificate: the duality gap at its own (h, rho).
    """

    name = "opper_archambeau"

    def __init__(self, mean: str = "latent", lam: str = "log", memory: int = 20) -> None:
        choice(self.name, "mean", mean, ("latent", "dual", "white"))
        choice(self.name, "lam", lam, ("log", "direct"))
        self.mean, self.log, self.memory = mean, lam == "log", memory

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        geometry = Geometry(problem, self.name)
        if self.mean == "latent":
            geometry.need_proper("(m, lam)")
        surface = MeanLamSurface(geometry, self.mean, self.log, start)
        return climb(surface, start, self.memory, stopping)


class MeanLamPoint:
    """P at one (mean, lam)."""

    def __init__(self, surface: MeanLamSurface, x: np.ndarray) -> None:
        problem = surface.problem
        self.surface, self.value = surface, np.inf
        self.v, flat = np.split(x, [surface.n_mean])
        self.lam = (np.exp(flat) if surface.log else flat).reshape(problem.mt.shape)
        try:
            factor = problem.predictors.at(self.lam)
        except NotPositiveDefinite:
            return
        assert isinstance(factor, BlockFactor)
        self.factor = factor
        self.rho = self.factor.variance
        self.h, self.quadratic = surface.mean_at(self.v)
        self.kl = 0.5 * (self.factor.log_det - float(np.sum(self.lam * self.rho)) + self.quadratic)
        self.loss = expected(problem, self.h, self.rho, surface.near)
        self.value = self.kl + self.loss.total - problem.shift
        self.value = self.value if np.isfinite(self.value) else np.inf

    @cached_property
    def gradient(self) -> np.ndarray:
        # of -P
        d_lam = 0.5 * to_numpy(self.factor.hadamard(self.lam - self.loss.lam))
        d_lam = self.lam * d_lam if self.surface.log else d_lam
        return np.concatenate([self.surface.mean_slope(self.v, self.loss.alpha), d_lam.ravel()])


class MeanLamSurface(BoundSurface[MeanLamPoint]):
    """-P over (mean, lam)."""

    def __init__(self, geometry: Geometry, mean: str, log: bool, start: DualPoint) -> None:
        self.geometry, self.problem, self.near = geometry, geometry.problem, start.s
        self.mean, self.log = mean, log
        n = {
            "latent": sum(R.shape[0] for R in geometry.R),
            "white": sum(geometry.sizes),
            "dual": math.prod(start.lam.shape),
        }
        self.n_mean = n[mean]
        self.walls = np.arange(self.n_mean + math.prod(start.lam.shape)) >= (np.inf if log else self.n_mean)

    def start(self, alpha: np.ndarray, lam: np.ndarray) -> np.ndarray:
        v = alpha.ravel() if self.mean == "dual" else self.geometry.latents_at(alpha)
        if self.mean == "latent":
            v = np.concatenate([R @ u for R, u in zip(self.geometry.R, self.geometry.cut(v), strict=True)])
        lam = np.maximum(lam, 1e-300).ravel()
        return np.concatenate([v, np.log(lam) if self.log else lam])

    def white(self, v: np.ndarray) -> np.ndarray:
        """u of the mean's coordinates."""
        geometry = self.geometry
        if self.mean == "white":
            return v
        if self.mean == "dual":
            return geometry.latents_at(v.reshape(self.problem.mt.shape))
        return np.concatenate([solve_lower(R, m) for R, m in zip(geometry.R, geometry.cut(v), strict=True)])

    def mean_at(self, v: np.ndarray) -> tuple[np.ndarray, float]:
        """h and (m - mu)' Sigma^-1 (m - mu)."""
        if self.mean == "dual":
            alpha = v.reshape(self.problem.mt.shape)
            S_alpha = to_numpy(self.problem.predictors.apply(alpha))
            return to_numpy(self.problem.mt) - S_alpha, float(np.sum(alpha * S_alpha))
        u = self.white(v)
        return self.geometry.predictors_at(u), float(u @ u)

    def mean_slope(self, v: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """-dP/d(mean's coordinates), given df/dh."""
        if self.mean == "dual":
            return np.ravel(self.problem.predictors.apply(v.reshape(alpha.shape) - alpha))
        slope = self.white(v) + self.geometry.adjoint(alpha)
        if self.mean == "white":
            return slope
        parts = zip(self.geometry.R, self.geometry.cut(slope), strict=True)
        return np.concatenate([solve_lower(R, g, transposed=True) for R, g in parts])

    def at(self, x: np.ndarray) -> MeanLamPoint:
        return MeanLamPoint(self, x)

    def judged(self, point: MeanLamPoint) -> Candidate:
        marginals = point.h, point.rho
        if self.mean == "dual":
            make = dual_form(self.problem, point.factor, point.v.reshape(point.lam.shape), point.lam, marginals)
        else:
            make = explicit(self.geometry, self.white(point.v), lambda: precision_roots(self.geometry, point.lam))
        return Candidate(self.problem, marginals, point.kl, point.loss.s, make, point.loss)


def precision_roots(geometry: Geometry, lam: np.ndarray) -> list[np.ndarray]:
    """A root U of (I + X' Lam X)^-1 of each block."""
    out = []
    for X, part in zip(geometry.X, geometry.blocks.split(lam), strict=True):
        L = np.linalg.cholesky(np.eye(X.shape[1]) + X.T @ (part[:, None] * X))
        out.append(to_numpy(solve_lower(L, np.eye(L.shape[0]))).T)
    return out


# -- Coordinate ascent ---------------------------------------------------------------------------------
class CoordinateAscent(Solver):
    """Coordinate ascent: an iteration is a sweep over all lam, then the mean by L-BFGS in whitened latents.

    Certificate: the duality gap at its own (h, rho).
    """

    name = "coordinate_ascent"

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        geometry = Geometry(problem, self.name)
        near, lam, rho = to_numpy(start.s), np.array(start.lam), np.asarray(start.rho)
        u = min(
            (geometry.latents_at(alpha) for alpha, _ in starts(start)),
            key=lambda u: MeanSurface(geometry, rho, near).height(u),
        )
        return iterate(self._sweeps(geometry, u, near, lam), stopping)

    def _sweeps(
        self, geometry: Geometry, u: np.ndarray, near: np.ndarray, lam: np.ndarray
    ) -> Iterator[tuple[Callable[[], Candidate], float]]:
        problem, step = geometry.problem, 0.0
        while True:
            factor = problem.predictors.at(lam)  # computed again, so that rounding does not accumulate
            h, rho = geometry.predictors_at(u), np.asarray(factor.variance)
            kl = 0.5 * (factor.log_det - float(np.sum(lam * rho)) + float(u @ u))
            make = explicit(geometry, u, partial(precision_roots, geometry, lam))
            judge = OnceJudged(partial(Candidate, problem, (h, rho), kl, near, make))
            yield judge, step
            near, step = judge.candidate.s, 1.0
            lam = sweep(problem, [to_numpy(symmetrised(V)) for V in factor.covariance()], h, lam)
            rho = np.asarray(problem.predictors.at(lam).variance)
            u = best_mean(geometry, u, rho, near)


class OnceJudged:
    """A function that makes a candidate when called, and stores it."""

    candidate: Candidate

    def __init__(self, make: Callable[[], Candidate]) -> None:
        self.make = make

    def __call__(self) -> Candidate:
        self.candidate = self.make()
        return self.candidate


def sweep(problem: Problem, covariances: list[np.ndarray], h: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """One pass over all observations at fixed means; ``covariances`` are overwritten."""
    dual, blocks = problem.dual, problem.predictors.blocks  # type: ignore[attr-defined]
    V = [np.asfortranarray(block) for block in covariances]
    width = [len(group) for group in blocks.groups]
    home = {c: (b, i) for b, group in enumerate(blocks.groups) for i, c in enumerate(group)}
    lam = lam.copy()
    site_start = dual.start(problem.rows, 1.0)
    for n in range(problem.active.size):
        rows = slice_rows(problem.rows, slice(n, n + 1))
        weight, near, mean = float(rows["weight"][0]), site_start[n : n + 1], h[n : n + 1]
        places = [(home[c][0], n * width[home[c][0]] + home[c][1]) for c in range(lam.shape[1])]
        rho = np.array([[V[b][i, i] for b, i in places]])
        for c, (b, i) in enumerate(places):
            old, cavity = lam[n, c], rho[0, c] / (1.0 - lam[n, c] * rho[0, c])
            ready = rho.copy()

            def excess(x: float, c: int = c, cavity: float = cavity, ready: np.ndarray = ready) -> float:
                ready[0, c] = cavity / (1.0 + x * cavity)
                s = dual.maximiser(mean, ready, near, rows)  # noqa: B023 -- used within this turn of the loop
                return x - weight * float(dual.site(s, rows).lam[0, c])  # noqa: B023

            new = _root(excess, old)
            change = new - old
            if change != 0.0:
                column = V[b][:, i].copy()
                column[:i] = V[b][i, :i]  # the lower triangle is kept
                V[b] = dsyr(-change / (1.0 + change * rho[0, c]), column, a=V[b], lower=1, overwrite_a=1)
                lam[n, c] = new
                for k, (b2, j) in enumerate(places):
                    rho[0, k] = V[b2][j, j]
    return lam


def _root(excess: Any, old: float) -> float:
    """Root of ``excess``, whose slope is at least 1, so that its value at ``old`` brackets the root up to rounding."""
    value = excess(old)
    if abs(value) <= 1e-14 * max(old, 1e-300):
        return old
    other = max(old - value, 0.0)
    if not np.isfinite(other) or other == old:
        return old
    beyond = excess(other)
    if not value * beyond < 0.0:  # rounding: the root is where the smaller value is
        return other if abs(beyond) < abs(value) else old
    return float(brentq(excess, min(old, other), max(old, other), xtol=1e-300, rtol=1e-14, maxiter=200))


class MeanSurface(Landscape[tuple[np.ndarray, Expected]]):
    """-P over u at fixed variances."""

    def __init__(self, geometry: Geometry, rho: np.ndarray, near: np.ndarray) -> None:
        self.geometry, self.rho, self.near = geometry, rho, near

    def at(self, x: np.ndarray) -> tuple[np.ndarray, Expected]:
        return x, expected(self.geometry.problem, self.geometry.predictors_at(x), self.rho, self.near)

    def height(self, u: np.ndarray) -> float:
        return self.value(self.at(u))

    def value(self, point: tuple[np.ndarray, Expected]) -> float:
        value = 0.5 * float(point[0] @ point[0]) + point[1].total
        return value if np.isfinite(value) else np.inf

    def gradient(self, point: tuple[np.ndarray, Expected]) -> np.ndarray:
        return point[0] + self.geometry.adjoint(point[1].alpha)


def best_mean(geometry: Geometry, u: np.ndarray, rho: np.ndarray, near: np.ndarray) -> np.ndarray:
    """u at these variances, to 1e-3 of the gain predicted at the start, or 200 steps."""
    surface, asked = MeanSurface(geometry, rho, near), np.inf
    for n, (point, _) in enumerate(descend(surface, u)):
        u = point[0]
        slope = surface.gradient(point)
        promised = 0.5 * float(slope @ slope)  # strong concavity: what is left to gain, at most
        asked = 1e-3 * promised if n == 0 else asked
        if promised <= asked or n >= 200:
            break
    return u
