"""The latent of a Gaussian process of many rows: the function through inducing points.

eta = mean + level + f(x),   f ~ GP(0, kernel) seen through M points; what they cost is bounded (``learn_inducing``)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import gates
from ..checks import callers_line, choice, count, finite, numeric, problem, scalar
from ..hyperparameters import Family, InducingCovariance, InducingFit, Learned, learn_inducing
from ..hyperparameters.inducing_learning import MOST_POINTS, InterruptedLearning, default_loss
from ..inputs.observations import Target
from ..kernels import is_compound
from ..linalg.arrays import to_numpy
from ..posterior import Posterior
from ..priors.base import NewRows
from .kernel_latent import KernelLatent
from .neighbours_latent import LEARNING_TOL, by_neighbours, refusal

if TYPE_CHECKING:
    from .gaussian_process import GaussianProcessEstimator

NEIGHBOUR_COLUMNS = 3  # up to which "auto" may take neighbours: of more, as many say little of a row
FAR_ABOVE = 10.0  # times ``loss``: where points cost more, "auto" tries neighbours
_BLOCK = 1 << 21  # entries of the features of new rows made at once: 16 MiB


@dataclass
class InducingLatent(KernelLatent):
    """A ``KernelLatent`` through inducing points.

    Attributes
    ----------
    n_inducing : int, "auto" or array (M, D)
    loss : float or None
        Nats of elbo that the points may lose.
    result : InducingFit, once it is fitted
    interrupt : KeyboardInterrupt, where one ended the fit
    centre_of_prior : array, optional
        Centre of the prior of the log length scales. Default: those of the kernel.
    in_partitions : bool
        Whether the fit is that of a Dask collection, and X holds the inducing points.
    most_points : int
        Largest number of points for n_inducing="auto".
    begin : InducingFit, optional
        A fit with fewer points, from which learning goes on.
    """

    n_inducing: Any = "auto"
    loss: float | None = None
    result: InducingFit | None = None
    interrupt: KeyboardInterrupt | None = None
    centre_of_prior: np.ndarray | None = None
    in_partitions: bool = False
    most_points: int = MOST_POINTS
    begin: InducingFit | None = None
    approximates: ClassVar[bool] = True

    @classmethod
    def of(cls, latent: KernelLatent, **more: Any) -> InducingLatent:
        """The same process through inducing points."""
        return cls(**{**latent.shared(), **more})

    def trend_rows(self, theta: np.ndarray) -> NewRows:
        T = self.trend.coefficients()
        return NewRows(design=np.hstack([np.zeros((len(T), len(self._asked[0].points))), T]))

    @property
    def is_trial(self) -> bool:  # type: ignore[override]
        return self.most_points < MOST_POINTS

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
            InducingCovariance(self.whole(self.kernel), self.inputs, points, **self.mean_options), self.centre_of_prior
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
        settings: dict[str, Any] = {"n_inducing": self.n_inducing, "loss": self.loss, "most_points": self.most_points}
        settings["begin"] = self.begin
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
    """Check ``n_inducing`` and ``loss``."""
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


def check_approximation(estimator: GaussianProcessEstimator, n: int, per_class: bool) -> None:
    """Check ``approximation`` for n rows, and refuse inducing points of a kernel for each class."""
    where, approximation = type(estimator).__name__, estimator.approximation
    advice = '"auto" takes inducing points or neighbours above some rows, None never approximates.'
    choice(where, "approximation", approximation, ("auto", None, "inducing", "neighbours"), advice)
    if per_class and (approximation == "inducing" or (approximation == "auto" and n > gates.INDUCING_ROWS)):
        got = f"a kernel for each class and {n} rows through inducing points"
        raise problem(where, got, "approximation=None, or one kernel for all classes")


def approximations(estimator: GaussianProcessEstimator, latent: KernelLatent) -> Iterator[KernelLatent]:
    """The exact latent, or the approximations that are requested or needed for many rows; the last one is used.

    Each is fitted before the next is made. "auto" ends with inducing points, whose loss is bounded, unless with few
    columns 800 points lose far more than ``loss``: then nearest neighbours are tried, and used if twice as
    many of them change the elbo by less than the points lose.
    """
    where, approximation, (n, d) = type(estimator).__name__, estimator.approximation, latent.X.shape
    check_approximation(estimator, n, is_compound(latent.kernel))
    many = n > gates.INDUCING_ROWS
    if approximation is None or (approximation == "auto" and not many):
        yield latent
        return
    if approximation == "neighbours":
        yield by_neighbours(where, latent, estimator.n_neighbors)
        return
    points = InducingLatent.of(latent, n_inducing=estimator.n_inducing, loss=estimator.loss)
    if approximation == "auto":
        points.reason = f"inducing points, since {n} rows are more than {gates.INDUCING_ROWS}"
    open_to_others = approximation == "auto" and type(estimator.n_inducing) is str and not refusal(latent)
    if open_to_others and d <= NEIGHBOUR_COLUMNS and n > gates.NEIGHBOUR_POINTS:
        few = replace(points, most_points=gates.NEIGHBOUR_POINTS)
        yield few
        bound, allowed = few.approximation_loss, default_loss(n) if few.loss is None else few.loss
        if few.interrupt is not None or bound <= allowed:
            return
        points.begin = few.result
        if FAR_ABOVE * allowed < bound < np.inf:
            others = by_neighbours(where, latent, estimator.n_neighbors)
            cost = f"{gates.NEIGHBOUR_POINTS} inducing points cost up to {bound:.3g} nats"
            others.reason = f"nearest neighbours, since {cost}"
            yield others
            if others.moved < bound:
                return
            points.reason += f"; {2 * others.n_neighbors} neighbours moved the elbo by {others.moved:.3g} nats"
    yield points
