"""A Gaussian process of many rows: the latent function through inducing points, as many as it takes.

eta = mean + level + f(x),   f ~ GP(0, kernel) seen through M points; what they cost is bounded (``learn_inducing``)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from .. import gates
from ..checks import callers_line, choice, count, finite, numeric, problem, scalar
from ..hyperparameters import Family, InducingCovariance, InducingFit, Learned, learn_inducing
from ..hyperparameters.inducing_learning import InterruptedLearning
from ..inputs.observations import Target
from ..kernels import is_compound
from ..linalg.arrays import to_numpy
from ..posterior import Posterior
from ..priors.base import NewRows
from .kernel_latent import KernelLatent

_BLOCK = 1 << 21  # entries of the features of new rows made at once: 16 MiB
LEARNING_TOL = 1e-8  # relative gap of the fits that learn theta, at least: beyond, a pass over many rows buys nothing


@dataclass
class InducingLatent(KernelLatent):
    """``KernelLatent`` through inducing points.

    Attributes
    ----------
    n_inducing : int, "auto" or array (M, D)
    loss : float or None
        Nats of elbo that the points may cost.
    result : InducingFit, once it is fitted
    interrupt : KeyboardInterrupt, where one ended the fit
    centre_of_prior : array, optional
        Of the logs of lengths that shrink; where the kernel stands by default.
    in_partitions : bool
        Whether the rows of the fit are elsewhere, and X are its points.
    """

    n_inducing: Any = "auto"
    loss: float | None = None
    result: InducingFit | None = None
    interrupt: KeyboardInterrupt | None = None
    centre_of_prior: np.ndarray | None = None
    in_partitions: bool = False
    approximates: ClassVar[bool] = True

    @classmethod
    def of(cls, latent: KernelLatent, **more: Any) -> InducingLatent:
        """The same process through points."""
        shared = {own.name: vars(latent)[own.name] for own in fields(KernelLatent) if own.name != "optimizer"}
        return cls(**{**shared, **more})

    def trend_rows(self, theta: np.ndarray) -> NewRows:
        T = self.trend.coefficients()
        return NewRows(design=np.hstack([np.zeros((len(T), len(self._asked[0].points))), T]))

    @property
    def approximation_loss(self) -> float:
        return np.inf if self.result is None else self.result.loss.bound

    def table(self) -> Any:
        import pandas as pd

        return None if self.result is None else pd.DataFrame(self.result.stages)

    def sentences(self) -> list[str]:
        if self.result is None:
            return []
        gap = f"within {self.result.learned.solution.gap:.2g} nats of the best Gaussian of these points"
        return [gap, self.result.loss.sentence, self.result.ending]

    def family(self) -> InducingCovariance:
        points = self.X[:1] if self.result is None else self.result.family.points
        return self.shrunk(
            InducingCovariance(self.whole(self.kernel), self.inputs, points, **self.beside), self.centre_of_prior
        )

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        if options.pop("evidence", "elbo") != "elbo":
            got = 'evidence="corrected" with approximation="inducing"'
            raise problem(target.where, got, 'evidence="elbo"', "Use approximation=None for few rows.")
        if options.pop("n_restarts", 0):
            said = "n_restarts_optimizer is not used with inducing points, which learn from one start"
            warnings.warn(f"{target.where}: {said}", UserWarning, stacklevel=callers_line())
        options.pop("rng", None)
        options.pop("n_jobs", None)  # of several starts
        options["tol"] = max(LEARNING_TOL, options["tol"])
        return self._found(target, family, learn_likelihood=own, theta=self.theta, **options)

    def fitted(self, target: Target, family: Family, **options: Any) -> Learned:
        return self._found(target, family, learn_theta=False, **options)

    def _found(self, target: Target, family: Any, **options: Any) -> Learned:
        settings = {"n_inducing": self.n_inducing, "loss": self.loss}
        try:
            self.result = learn_inducing(target.likelihood, family, target.y, **settings, **options)
        except InterruptedLearning as stop:
            self.result, self.interrupt = stop.finished, stop
        return self.result.learned

    def after(self, family: Family) -> Family:
        return family if self.result is None else self.result.family

    def joint_covariance(self, posterior: Posterior, theta: np.ndarray, table: np.ndarray) -> np.ndarray:
        """K - Q + G V G' of the new rows."""
        family, n_theta = self._asked
        G = to_numpy(family.new_rows(theta[:n_theta], table).design)
        V = to_numpy(posterior.latent_covariance())
        return to_numpy(family.covariance_at(theta[:n_theta], table)) + G @ (V - np.eye(len(V))) @ G.T

    def blocks(self, table: np.ndarray) -> Iterable[np.ndarray]:
        step = max(1, _BLOCK // max(1, self._asked[0].points.shape[0]))
        return (table[i : i + step] for i in range(0, table.shape[0], step))


def check_points(where: str, n_inducing: Any, loss: Any, n_columns: int, levels: bool = False) -> None:
    """``n_inducing`` and ``loss``, before any work."""
    if loss is not None:
        scalar(where, "loss", loss, 0.0)
    if np.ndim(n_inducing):
        if levels:
            got = "n_inducing is an array, and X has columns of levels"
            raise problem(where, got, "a number of points, or 'auto'", "Points are then rows of X.")
        points = finite(where, "n_inducing", numeric(where, "n_inducing", n_inducing))
        if points.ndim != 2 or points.shape[1] != n_columns or not len(points):
            got = f"n_inducing has shape {points.shape}"
            raise problem(where, got, f"points (M, {n_columns}), one a row, a number of them, or 'auto'")
    elif type(n_inducing) is str:
        choice(where, "n_inducing", n_inducing, ("auto",), "Or a number of points, or points (M, D).")
    else:
        count(where, "n_inducing", n_inducing, 1)


def inducing_or_exact(
    where: str, latent: KernelLatent, approximation: Any, n_inducing: Any, loss: float | None
) -> KernelLatent:
    """The latent itself, or through inducing points where they are asked for or rows are many."""
    advice = '"auto" takes inducing points above some rows, None never.'
    choice(where, "approximation", approximation, ("auto", None, "inducing"), advice)
    many = latent.X.shape[0] > gates.INDUCING_ROWS
    if approximation is None or (approximation == "auto" and not many):
        return latent
    if is_compound(latent.kernel):
        got = f"a kernel for each class and {latent.X.shape[0]} rows through inducing points"
        raise problem(where, got, "approximation=None, or one kernel for all classes")
    return InducingLatent.of(latent, n_inducing=n_inducing, loss=loss)
