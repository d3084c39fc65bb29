"""Opper and Archambeau (2009): the primal over (m, lam), with V in the form it has at the optimum.

    V = (Sigma^-1 + W' Lam W)^-1                                                        eq:vstarOpperArch
    P = -1/2 (log|B| - lam'rho) - 1/2 (m - mu)' Sigma^-1 (m - mu) - sum f(h, rho)       eq:primal-detail
    dP/dm = -Sigma^-1 (m - mu) - W' df/dh,    dP/dlam = (Vt o Vt)(df/drho - lam/2)

L + N variables, not concave in lam. lam is varied itself, by feasible steps, or as log lam: zero is no barrier here,
and a search in lam can jam at it when it begins far from the optimum. The mean's coordinates are the
paper's m (``"latent"``), the authors' own m = mu - Sigma W' a (``"dual"``), or m = mu + R u with R R' = Sigma
(``"white"``), in which L-BFGS does best.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from ...checks import choice
from ...linalg.arrays import to_numpy
from ...linalg.dense import NotPositiveDefinite, solve_lower
from ...priors.predictors import BlockFactor
from ...problem import Point, Problem
from ...solvers.base import Outcome, Solver, Stopping
from .geometry import Geometry
from .judging import Candidate, Judged, climb, dual_form, expected, explicit


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

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        geometry = Geometry(problem, self.name)
        if self.mean == "latent":
            geometry.need_proper("(m, lam)")
        landscape = Surface(geometry, self.mean, self.log, start)
        return climb(landscape, start, self.memory, stopping)


class Place:
    """P at one (mean, lam)."""

    def __init__(self, surface: Surface, x: np.ndarray) -> None:
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


class Surface(Judged[Place]):
    """-P over (mean, lam)."""

    def __init__(self, geometry: Geometry, mean: str, log: bool, start: Point) -> None:
        self.geometry, self.problem, self.near = geometry, geometry.problem, start.s
        self.mean, self.log = mean, log
        n = {
            "latent": sum(R.shape[0] for R in geometry.R),
            "white": sum(geometry.sizes),
            "dual": math.prod(start.lam.shape),
        }
        self.n_mean = n[mean]

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

    def at(self, x: np.ndarray) -> Place:
        return Place(self, x)

    def value(self, point: Place) -> float:
        return point.value

    def gradient(self, point: Place) -> np.ndarray:
        return point.gradient

    def inside(self, x: np.ndarray) -> bool:
        return self.log or bool((x[self.n_mean :] > 0.0).all())

    def limit(self, x: np.ndarray, d: np.ndarray) -> float:
        if self.log:
            return np.inf
        lam, d = x[self.n_mean :], d[self.n_mean :]
        down = d < 0.0
        return float((lam[down] / -d[down]).min(initial=np.inf))

    def judged(self, point: Place) -> Candidate:
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
