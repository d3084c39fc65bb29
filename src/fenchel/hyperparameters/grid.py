"""``grid``: the evidence on a grid of hyperparameters, with warm starts, in parallel strips.

At every iterate the dual bounds the best elbo at that theta from above. A point whose bound is below the best elbo so
far, minus a margin, can therefore be dropped before it has converged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..checks import instance, numeric, problem, scalar
from ..files import Stored, searched, stated
from ..inference import check_limits, fitted, solver_for
from ..likelihoods.base import Likelihood, Targets
from ..linalg.arrays import ArrayLike
from ..problem import Problem
from ..solvers.base import Callback, Solver
from ..solvers.solution import Solution
from ..tasks import Jobs, alone, run_tasks
from .base import Family


@dataclass
class Grid(Stored):
    """The result of ``grid``: the evidence at the points of a grid.

    Attributes
    ----------
    axes : list of arrays
        The values of each hyperparameter.
    elbo, elbo_upper : arrays of the shape of the grid
        Lower and upper bound. At a dropped point elbo is the last value, and elbo_upper proves that it is not the best.
    log_prior : array
        log p(theta).
    dropped : array of bool
        The points whose fits were ended early.
    n_iter : array of int
        Iterations of each fit.
    theta : array (n_theta,)
        The best point.
    solution : Solution
        The fit at the best point.
    """

    axes: list[np.ndarray]
    elbo: np.ndarray
    elbo_upper: np.ndarray
    log_prior: np.ndarray
    dropped: np.ndarray
    n_iter: np.ndarray
    theta: np.ndarray
    solution: Solution

    @property
    def certified(self) -> float:
        """The largest relative gap of the points that were not dropped."""
        gap = (self.elbo_upper - self.elbo) / np.maximum(1.0, np.abs(self.elbo))
        return float(gap[~self.dropped].max())


@stated("n_jobs", "progress")
def grid(
    likelihood: Likelihood,
    family: Family,
    y: ArrayLike,
    axes: Sequence[Any],
    *,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
    drop: float | None = None,
    n_jobs: Jobs = None,
    progress: bool = False,
) -> Grid:
    """Fit the model at every point of a grid over theta.

    Parameters
    ----------
    likelihood, family, y, weights
        The model, as in ``learn``.
    axes : list of arrays
        The values of each entry of theta.
    tol : float, default 1e-8
        Relative gap of each fit.
    max_iter : int, default 200
        Largest number of iterations of each fit.
    drop : float, optional
        Drop a point once it is proved to be more than this many nats below the best so far. Default: fit all.
    n_jobs : int, None or Dask client
        Workers for strips along the first axis (``fenchel.tasks``). They do not share the best value, so that fewer
        points are dropped.
    progress : bool, default False
        Show a progress line.

    Returns
    -------
    Grid

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters import ScaledCovariance, grid
    >>> from fenchel.likelihoods import Poisson
    >>> result = grid(Poisson(), ScaledCovariance(np.eye(4)), [3, 0, 5, 1], [np.log([0.1, 1.0, 10.0])])
    >>> result.elbo.shape, bool(result.certified < 1e-8)
    ((3,), True)
    """
    instance("grid", "likelihood", likelihood, Likelihood, "Poisson()")
    instance("grid", "family", family, Family, "KernelCovariance(kernel, X)")
    if not hasattr(axes, "__iter__"):
        raise problem("grid", f"axes is a {type(axes).__name__}", "a list of vectors, one for each hyperparameter")
    drop = None if drop is None else scalar("grid", "drop", drop)
    values = [np.atleast_1d(numeric("grid", f"axes[{i}]", axis)) for i, axis in enumerate(axes)]
    if len(values) != family.theta.size or any(v.ndim != 1 or v.size == 0 for v in values):
        got = f"axes of shapes {[v.shape for v in values]}"
        raise problem("grid", got, f"{family.theta.size} vectors, one for each of {', '.join(family.names)}")
    check_limits(tol, max_iter)
    model = _Model(likelihood, family, Targets(likelihood, y, weights), solver_for(likelihood, "newton"), tol, max_iter)
    n = values[0].size
    strips = _Strips(model, values, drop, alone(n_jobs, n))

    def search() -> np.ndarray:
        run: dict[str, Any] = {"where": "grid", "n_jobs": n_jobs, "progress": progress}
        return np.concatenate(run_tasks(_Strips.fit, range(n), strips, **run), axis=1)

    shape = tuple(v.size for v in values)
    result = searched("grid", search, lambda table: {"table": table}, lambda numbers: numbers["table"])
    elbo, upper, log_prior, dropped, n_iter = np.asarray(result, dtype=np.float64).reshape(5, *shape)
    score = np.where(dropped > 0, -np.inf, elbo + log_prior)
    at = np.unravel_index(int(np.argmax(score)), shape)
    theta = np.array([v[k] for v, k in zip(values, at, strict=True)])
    solution = model.fit(theta)
    return Grid(values, elbo, upper, log_prior, dropped > 0, n_iter.astype(int), theta, solution)


class _Model(NamedTuple):
    """What the fits of a grid share."""

    likelihood: Likelihood
    family: Family
    targets: Targets
    solver: Solver
    tol: float
    max_iter: int

    def fit(self, theta: np.ndarray, start: Solution | None = None, callback: Callback | None = None) -> Solution:
        task = Problem(self.likelihood, self.family.at(theta), self.targets)
        return fitted(task, self.solver, self.tol, self.max_iter, start, callback=callback)


@dataclass
class _Strips:
    """The strips of a grid along its first axis; ``in_turn``: the best value is carried from one to the next."""

    model: _Model
    values: list[np.ndarray]
    drop: float | None
    in_turn: bool
    best: float = -np.inf

    def fit(self, i: int) -> np.ndarray:
        """All points with the i-th value of the first axis, in a serpentine so that neighbours follow each other.

        (5, points): elbo, elbo_upper, log prior, whether dropped, iterations.
        """
        model, (first, *others), drop = self.model, self.values, self.drop
        best = self.best if self.in_turn else -np.inf
        shape = tuple(v.size for v in others)
        out = np.full((5, int(np.prod(shape, dtype=int))), np.nan)
        last: Solution | None = None
        for index in serpentine(shape):
            theta = np.array([first[i], *(v[k] for v, k in zip(others, index, strict=True))])
            prior_value = float(model.family.log_prior(theta)[0])

            def hopeless(row: dict[str, float], limit: float = best - prior_value) -> bool:
                return drop is not None and row["elbo_upper"] < limit - drop

            sol = model.fit(theta, last, hopeless)
            gone = sol.ending.code == "callback"
            where = int(np.ravel_multi_index(index, shape)) if shape else 0
            out[:, where] = sol.elbo, sol.elbo_upper, prior_value, gone, sol.n_iter
            if not gone:
                best, last = max(best, sol.elbo + prior_value), sol
        if self.in_turn:
            self.best = best
        return out


def serpentine(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All indices of a grid, each a neighbour of the one before it.

    Examples
    --------
    >>> from fenchel.hyperparameters.grid import serpentine
    >>> serpentine((2, 3))
    [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    """
    if not shape:
        return [()]
    rest = serpentine(shape[1:])
    return [(i, *tail) for i in range(shape[0]) for tail in (rest if i % 2 == 0 else rest[::-1])]
