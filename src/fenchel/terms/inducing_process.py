"""A Gaussian process approximated by its values at M inducing points: ``gp(x, z)`` beyond 1,000 different points.

    eta_i = sum_k A_ik z_k + e_i,    z the values at the M points,    e_i ~ N(0, c_i), independent of the rest

The points are rows of the data. A pivoted Cholesky factorisation chooses them, of c before the first fit, and of
(lam + alpha^2) c of the last fit later. This is done at least twice, with twice as many points each time, until the
bound on their error is below ``loss``:

    elbo of the process - elbo with M points  <=  alpha' (K - Q) alpha / 2 + lam' c / 2 + gap
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np

from ..checks import count, scalar
from ..files import searched
from ..gmrf.inducing_rows import InducingRows
from ..gmrf.series import NUGGET, Process
from ..hyperparameters.inducing_learning import FIRST_POINTS, GROWTH, default_loss
from ..hyperparameters.inducing_loss import ApproximationLoss, approximation_loss
from ..inputs.frames import DataTable
from ..kernels import KERNELS
from ..linalg.arrays import to_numpy
from ..priors.pivots import choose_rows
from ..solvers.solution import Solution
from .base import TermRows
from .forecast import Unseen
from .matern_terms import numbers_of
from .processes import PointProcess

MOST_POINTS = 1_000  # of "auto"
WORK = 2e10  # N M^2 that "auto" does not exceed: some minutes of learning
_CHOICES = 2  # times that points are chosen, at least: where learning starts, and where it ends


class InducingProcess(PointProcess):
    """A Gaussian process over columns, approximated by inducing points. ``gp`` makes it if there are many points.

    Parameters
    ----------
    inputs, kernel, isotropic, name
        As in ``GaussianProcess``; the default kernel is "matern32".
    n_inducing : int or "auto"
        Number of points. "auto" starts with 100 and doubles them until the bound is below ``loss``, up to 1,000 points
        and as long as N M^2 is at most 2e10.
    loss : float, optional
        Error of the elbo, in nats, that is accepted; default: a thousandth of a nat for each row, and at least 0.1.

    Attributes
    ----------
    stages : list of dict
        n_inducing, elbo, bound and standard_error of every fit.
    """

    approximates = True
    range_bounds = float(np.log(200.0)), float(np.log(500.0))
    process: Process
    moving: InducingRows
    known_cost: tuple[np.ndarray, ApproximationLoss] | None = None  # theta, and the bound there
    allowed: float
    n_chosen: int = 1
    stages: Sequence[dict[str, float]] = ()

    def __init__(
        self,
        inputs: Sequence[Hashable],
        kernel: str | None,
        isotropic: bool | None,
        name: Hashable,
        n_inducing: int | str = "auto",
        loss: float | None = None,
    ) -> None:
        super().__init__(inputs, kernel, isotropic, name)
        self.n_inducing = n_inducing if n_inducing == "auto" else count("gp", "n_inducing", n_inducing, 2)
        self.loss = None if loss is None else scalar("gp", "loss", loss, 0.0)

    # -- the points --------------------------------------------------------------------------------
    @property
    def X(self) -> np.ndarray:
        return self.process.points

    @property
    def dimension(self) -> int:
        return len(self.inputs) if self.isotropic else 1

    def start_ranges(self, spans: np.ndarray) -> np.ndarray:
        return spans / 5.0

    def read(self, table: DataTable, scale: float) -> Self:
        out = super().read(table, scale)
        out.compares = False
        rows, start = numbers_of(table, self.inputs), np.array([h.start for h in out.hyperparameters])
        out.allowed = default_loss(len(rows)) if self.loss is None else self.loss
        size = FIRST_POINTS if self.n_inducing == "auto" else int(self.n_inducing)
        return out._through(rows, rows[choose_rows(out.process.kernel(start), rows, size)])

    def choose(self, X: np.ndarray, ranges: np.ndarray) -> None:
        self.process = Process(X, KERNELS[self.kernel], self.isotropic)

    def _through(self, rows: np.ndarray, points: np.ndarray) -> Self:
        """This one, seen through other points."""
        points = points[np.lexsort(points.T[::-1])]
        self.process = replace(self.process, points=points)
        self.moving, self.n_latents, self.known_cost = InducingRows(rows, self.process), len(points), None
        nugget = "nugget", f"{NUGGET:g} of the variance, fixed"
        self.stated = ("kernel", self.kernel), ("points", f"{len(points)} of {len(rows)} rows"), nugget
        return self

    def refined(self, theta: np.ndarray, solution: Solution) -> Self | None:
        """The same with points chosen by the fit at theta, more of them where they cost too much; None at the end."""
        found = searched(
            "inducing points",
            lambda: self._next(theta, solution),
            lambda pair: {"points": pair[0], "loss": asdict(pair[1])},
            lambda kept: (np.asarray(kept["points"], dtype=np.float64), ApproximationLoss(**kept["loss"])),
        )
        points, cost = found
        self.known_cost = np.array(theta), cost
        row = {"n_inducing": self.n_latents, "elbo": solution.elbo, "bound": cost.bound}
        self.stages = [*self.stages, {**row, "standard_error": cost.standard_error}]
        if not points.size:
            return None
        out = copy.copy(self)
        out.n_chosen += 1
        inside = [float(np.clip(t, *h.bounds)) for h, t in zip(self.hyperparameters, theta, strict=True)]
        out.hyperparameters = tuple(replace(h, start=t) for h, t in zip(self.hyperparameters, inside, strict=True))
        return out._through(self.moving.X, points)

    def _next(self, theta: np.ndarray, solution: Solution) -> tuple[np.ndarray, ApproximationLoss]:
        """The points of the next fit, none where this one is the last, and what those of this one cost."""
        rows, M = self.moving.X, self.n_latents
        cost = self.cost_at(theta, solution)
        more = min(GROWTH * M, MOST_POINTS, len(rows))
        grows = self.n_inducing == "auto" and cost.bound > self.allowed and more > M and len(rows) * more**2 <= WORK
        last, none = self.n_chosen >= _CHOICES, np.zeros((0, rows.shape[1]))
        if last and not grows:
            return none, cost
        w = to_numpy(solution.lam + solution.alpha**2).sum(axis=1)
        known = w if np.isfinite(w).all() and w.any() else None
        chosen = choose_rows(self.process.kernel(theta), rows, more if grows else M, known)
        if last and len(chosen) <= M:  # further rows are explained but for rounding
            return none, cost
        return rows[chosen], cost

    def cost_at(self, theta: np.ndarray, solution: Solution) -> ApproximationLoss:
        """The bound on what the points cost at a fit."""
        known = self.known_cost
        if known is None or not np.array_equal(known[0], theta):
            cost = approximation_loss(solution, self.moving.prior(theta), alone=False)
            known = self.known_cost = np.array(theta), cost
        return known[1]

    # -- rows --------------------------------------------------------------------------------------
    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        start = np.array([h.start for h in self.hyperparameters])
        return TermRows(self.moving.at(start, numbers_of(table, self.inputs))[0])

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        X = numbers_of(table, self.inputs)
        return self.beyond(theta, X, np.full(len(X), -1))

    def conditional(self, theta: np.ndarray, X: np.ndarray) -> tuple[Any, np.ndarray]:
        return self.moving.at(theta, X)

    def covariance_left(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        return self.process.left(theta, X)

    # -- what is said of it ------------------------------------------------------------------------
    def details(self) -> str:
        return f"{self.kernel} through {self.n_latents} inducing points"

    def remarks_at(self, theta: np.ndarray) -> list[str]:
        cost = None if self.known_cost is None else self.known_cost[1]
        if cost is None or cost.certificate == "none" or cost.bound <= self.allowed:
            return []
        more = f"n_inducing={2 * self.n_latents} leaves less, loss={cost.bound:.2g} accepts it"
        return [f"{self.name}: {cost.sentence}, more than loss = {self.allowed:.3g}: {more}"]
