"""A Gaussian process of many rows by nearest neighbours: Vecchia's approximation (``gmrf/kernel_neighbours.py``).

eta = mean + level + f(x),   f ~ GP(0, kernel), the value at each row given those at its nearest rows alone

Rows are near in the lengths of the kernel: those where learning starts, and again those that it finds, where columns
have moved against one another. No bound is known on what this costs; the elbo with twice as many neighbours is shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from ..category_kernels import is_of_columns
from ..checks import count, problem
from ..files import searched
from ..gmrf.kernel_neighbours import N_NEIGHBORS, NeighbourCovariance
from ..hyperparameters import Family, Learned
from ..inputs.observations import Target
from ..kernels import column_lengths, is_compound
from ..posterior import Posterior
from ..priors.base import NewRows
from .kernel_latent import KernelLatent
from .latent import fitted_at

LEARNING_TOL = 1e-8  # relative gap of the fits that learn theta, at least: beyond, a pass over many rows buys nothing
_ROUNDS = 3  # times that neighbours are chosen and theta is learned, at most
_BLOCK = 20_000  # new rows looked at together
_COLUMNS = 256  # of a joint covariance, solved for together


@dataclass
class NeighboursLatent(KernelLatent):
    """``KernelLatent`` by nearest neighbours.

    Attributes
    ----------
    n_neighbors : int
    lengths : array (D,), optional
        In which rows are near; where the kernel stands by default.
    stages : list of dict
        n_neighbors, elbo and seconds of the fit, and with twice as many neighbours at its theta.
    """

    n_neighbors: int = N_NEIGHBORS
    lengths: np.ndarray | None = None
    stages: list[dict[str, float]] = field(default_factory=list)
    knots_leave: float = 0.0
    approximates: ClassVar[bool] = True

    @property
    def approximation_loss(self) -> float:
        """0 where every row is given all others; else there is no bound."""
        return 0.0 if self.family_in_place.is_exact else np.inf

    @property
    def moved(self) -> float:
        """Nats by which twice as many neighbours move the elbo; 0 where all are neighbours."""
        return abs(self.stages[-1]["elbo"] - self.stages[0]["elbo"])

    def table(self) -> Any:
        import pandas as pd

        return pd.DataFrame(self.stages)

    def sentences(self) -> list[str]:
        if self.family_in_place.is_exact:
            return ["every row is conditioned on all before it: the process itself"]
        m, n = self.n_neighbors, len(self.family_in_place.process.X)
        out = [f"each of {n} rows is conditioned on its {m} nearest among those before it"]
        if len(self.stages) > 1:
            first, more = self.stages
            moved, twice = more["elbo"] - first["elbo"], more["n_neighbors"]
            side = "higher" if moved >= 0.0 else "lower"
            out.append(f"with {twice:.0f} neighbours the elbo is {abs(moved):.2g} nats {side}; no bound is known")
        if self.knots_leave:
            knots = self.family_in_place.process.knots
            said = f"{knots} rows are neighbours of others; the others keep {self.knots_leave:.0%} of the variance"
            out.append(said)
        return out

    def family(self) -> NeighbourCovariance:
        lengths = column_lengths(self.kernel, self.X) if self.lengths is None else self.lengths
        return self._with_neighbours(self.n_neighbors, lengths)

    def _with_neighbours(self, m: int, lengths: np.ndarray) -> NeighbourCovariance:
        return cast(
            "NeighbourCovariance",
            self.shrunk(NeighbourCovariance(self.kernel, self.X, m, lengths=lengths, **self.mean_options)),
        )

    @cached_property
    def family_in_place(self) -> NeighbourCovariance:
        """Of the fit, once there is one."""
        return self.family()

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        began = time.perf_counter()
        options["tol"] = max(LEARNING_TOL, options["tol"])
        self.lengths = family.lengths  # type: ignore[attr-defined]  # noise held at several levels keeps the order
        for left in range(_ROUNDS - 1, -1, -1):
            found = super().learn(target, family, own, **options)
            theta = found.theta[: self.kernel.n_dims]
            held = own and target.likelihood.theta.size > 0 and theta.size == found.theta.size  # noise that is not told
            if not left or held or not family.is_moved(theta):  # type: ignore[attr-defined]
                break
            self.lengths, self.theta = column_lengths(self.kernel.clone_with_theta(theta), self.X), found.theta
            family = self.family_like(family)
            options.update(n_restarts=0, rng=None)
        self._compared(target, family, found, began, options)
        return found

    def fitted(self, target: Target, family: Family, **options: Any) -> Learned:
        began, found = time.perf_counter(), super().fitted(target, family, **options)
        self._compared(target, family, found, began, options)
        return found

    def after(self, family: Family) -> Family:
        return self.family_in_place

    def _compared(self, target: Target, family: Any, found: Learned, began: float, options: dict[str, Any]) -> None:
        """Keep the family, and the elbo with twice as many neighbours."""
        self.__dict__["family_in_place"], theta = family, found.theta[: self.kernel.n_dims]
        self.knots_leave = family.beyond_knots(theta)
        m, spent = self.n_neighbors, time.perf_counter() - began

        def more() -> list[dict[str, float]]:
            now, out = time.perf_counter(), [{"n_neighbors": m, "elbo": found.solution.elbo, "seconds": spent}]
            if not family.is_exact:
                twice = min(2 * m, len(family.process.X) - 1)
                held = {name: options[name] for name in ("weights", "tol") if name in options}
                likely = replace(target, likelihood=found.likelihood)
                fit = fitted_at(likely, self._with_neighbours(twice, family.lengths), theta, **held)
                out.append({"n_neighbors": twice, "elbo": fit.solution.elbo, "seconds": time.perf_counter() - now})
            return out

        self.stages = searched("more neighbours", more, lambda rows: {"stages": rows}, lambda kept: kept["stages"])

    def new_rows(self, theta: np.ndarray, table: np.ndarray) -> Any:
        return self.family_in_place.new_rows(theta[: self.kernel.n_dims], table)

    def trend_rows(self, theta: np.ndarray) -> NewRows:
        T = self.trend.coefficients()
        return NewRows(design=np.hstack([np.zeros((len(T), len(self.family_in_place.process.X))), T]))

    def joint_covariance(self, posterior: Posterior, theta: np.ndarray, table: np.ndarray) -> np.ndarray:
        """W V W', and what the rows of the fit leave."""
        own, family = theta[: self.kernel.n_dims], self.family_in_place
        W, factor = family.new_rows(own, table).design, posterior.factor.parts[0]  # type: ignore[attr-defined]
        steps = range(0, W.shape[0], _COLUMNS)
        between = [W @ factor.solve(W[i : i + _COLUMNS].T.toarray()) for i in steps]
        return np.asarray(np.hstack(between) + family.covariance_left(own, table))

    def blocks(self, table: np.ndarray) -> Any:
        return (table[i : i + _BLOCK] for i in range(0, table.shape[0], _BLOCK))


def refusal(latent: KernelLatent) -> tuple[str, str, str] | None:
    """What of a latent nearest neighbours do not take: what was given, what is expected, and advice."""
    if latent.device is not None:
        return f"device {latent.device}", "device=None and X as numpy has it", 'approximation="inducing" uses devices.'
    if is_compound(latent.kernel):
        return "a kernel for each class", "one kernel for all classes", ""
    if latent.levels is not None or is_of_columns(latent.kernel):
        got = "columns of levels or a kernel of some columns"
        return got, "one kernel of all columns, of numbers", 'approximation="inducing" takes both.'
    return None


def by_neighbours(where: str, latent: KernelLatent, n_neighbors: Any) -> NeighboursLatent:
    """The latent by nearest neighbours, which are looked for in the memory of the host."""
    m = count(where, "n_neighbors", n_neighbors, 1)
    if (refused := refusal(latent)) is not None:
        got, expected, advice = refused
        raise problem(where, f'approximation="neighbours" with {got}', expected, advice)
    return NeighboursLatent(**latent.shared(), n_neighbors=m)
