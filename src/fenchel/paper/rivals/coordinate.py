"""Coordinate ascent (Khan, Mohamed and Murphy 2012): one lam_n at a time, by rank-one updates of the covariance.

    sweep   lam_n <- lam with  lam = 2 df/drho(h_n, rho(lam)),   rho(lam) = v/(1 + lam v),   v the cavity variance
            Vt <- Vt - d/(1 + d rho_n) Vt_n Vt_n',   d the change of lam_n
    mean    maximised at these variances

A fixed point has lam = 2 df/drho and alpha = df/dh in every coordinate: it minimises the dual along each of them, and
the dual is smooth and convex, so it is the optimum. Written for N = L and W = I; here W may be anything, in predictor
space. The sweep is sequential by nature: N updates of N^2 numbers each, one row of the likelihood at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyr
from scipy.optimize import brentq

from ...likelihoods.base import slice_rows
from ...linalg.arrays import to_numpy
from ...linalg.dense import symmetrised
from ...problem import Point, Problem
from ...solvers.base import Outcome, Solver, Stopping
from ...solvers.lbfgs import Landscape, descend
from .geometry import Geometry
from .judging import Candidate, Expected, expected, explicit, starts
from .opper_archambeau import precision_roots


class CoordinateAscent(Solver):
    """Coordinate ascent: an iteration is a sweep over all lam, then the mean by L-BFGS in whitened latents.

    Certificate: the duality gap at its own (h, rho).
    """

    name = "coordinate_ascent"

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        geometry = Geometry(problem, self.name)
        n, near, lam = 0, to_numpy(start.s), np.array(start.lam)
        rho = np.asarray(start.rho)
        u = min(
            (geometry.latents_at(alpha) for alpha, _ in starts(start)),
            key=lambda u: MeanSurface(geometry, rho, near).height(u),
        )
        while True:
            factor = problem.predictors.at(lam)  # afresh after each sweep: rounding does not pile up
            h, rho = geometry.predictors_at(u), np.asarray(factor.variance)
            kl = 0.5 * (factor.log_det - float(np.sum(lam * rho)) + float(u @ u))
            with stopping.off_the_clock():
                make = explicit(geometry, u, partial(precision_roots, geometry, lam))
                candidate = Candidate(problem, (h, rho), kl, near, make)
                near = candidate.s
                _ = candidate.gap
            ending = stopping.record(n, candidate, 1.0 if n else 0.0)
            if ending is not None:
                break
            lam = sweep(problem, [to_numpy(symmetrised(V)) for V in factor.covariance()], h, lam)
            rho = np.asarray(problem.predictors.at(lam).variance)
            u = best_mean(geometry, u, rho, near)
            n += 1
        return Outcome(candidate, ending, n, stopping.trace)


def sweep(problem: Problem, covariances: list[np.ndarray], h: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """One pass over all observations at fixed means; ``covariances`` are used up."""
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
    """excess has slope at least 1, so its value at ``old`` brackets the root, up to rounding."""
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
    """u at these variances, to 1e-3 of what the slope at the start still promised, or 200 steps."""
    surface, asked = MeanSurface(geometry, rho, near), np.inf
    for n, (point, _) in enumerate(descend(surface, u)):
        u = point[0]
        slope = surface.gradient(point)
        promised = 0.5 * float(slope @ slope)  # strong concavity: what is left to gain, at most
        asked = 1e-3 * promised if n == 0 else asked
        if promised <= asked or n >= 200:
            break
    return u
