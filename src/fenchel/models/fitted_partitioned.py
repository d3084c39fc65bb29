"""A model fitted to a table that is out of memory: the answers of ``FittedModel`` that need no row of it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import Refusal, problem
from ..distributed import Checkpoint, Learning, PartitionedFit, Stage, is_dask
from ..distributed.fitting import learned
from ..distributed.solver import Outcome
from ..distributed.sparse_precision import SparsePrior
from ..distributed.steps import QuadraticModel
from ..gmrf import StackedField
from ..hyperparameters.learned import Learned
from ..inference import infer
from ..likelihoods.gaussian import Gaussian
from ..priors.sparse import SparsePrecision
from ..solvers.progress import reporting
from ..solvers.solution import Solution
from . import tables
from .fitted import FittedModel

if TYPE_CHECKING:
    from .partitioned import PartitionedModel


def fitted(model: PartitionedModel, tol: float, progress: bool, checkpoint: Any) -> FittedPartitioned:
    """Run the passes."""
    if model.rows is None:
        raise problem("Model", "the rows of a loaded model are elsewhere", "Model(formula, table), made anew")
    family, likelihood = model.sum.family(), model.target.likelihood
    prior = SparsePrior(family, model.touched)
    own = likelihood if likelihood.theta.size else None
    bounds = np.zeros((0, 2))
    if own is not None:
        bounds = likelihood.theta_bounds(model.standing)
        start = likelihood.theta
        bounds = np.stack([np.minimum(bounds[:, 0], start), np.maximum(bounds[:, 1], start)], axis=1)
    learning = Learning(bool(family.theta.size), own, bounds)
    reading = replace(model.reading(), pattern=(prior.triangle.indptr, prior.triangle.indices))
    file = None if checkpoint is None else Checkpoint("Model", checkpoint)
    if file is not None:
        priors = model.priors.reset_index().astype(str).to_numpy().tolist()
        settings = {"formula": model.formula, "family": repr(model.response.family), "priors": priors}
        file.describe(settings, model.measured)
    rows = model.rows if file is None else replace(model.rows, kept=file.path)
    with reporting(progress, f"fitting {model.n_rows[0]} rows in partitions", None) as report:
        stages = [Stage(prior, learning)]
        outcome, _, _ = PartitionedFit(rows, reading, likelihood, stages, tol, None, file, report).run()
    return FittedPartitioned(
        model, _learned(model, family, learning, outcome, tol), StandInEvidence(learning, outcome, family.constraints)
    )


def _learned(
    model: PartitionedModel, family: StackedField, learning: Learning, outcome: Outcome, tol: float
) -> Learned:
    """What the passes found, as ``learn`` says it."""
    q = outcome.point.q
    likelihood = model.target.likelihood.with_theta(q.own) if q.own.size else model.target.likelihood
    solution, prior = _solution(outcome, likelihood, family.constraints, tol)
    return learned(outcome, learning, solution, prior, list(family.names), outcome.n_iter)


def _solution(outcome: Outcome, likelihood: Any, constraints: Any, tol: float) -> tuple[Solution, SparsePrecision]:
    """The posterior as a Solution of no rows: N(m, (Q + K)^-1) is the prior of one that is not observed."""
    point, q = outcome.point, outcome.point.q
    out, prior = _of_no_rows(q.factor.pattern, q.gram[0], q.mean[:, 0], constraints)
    out.rounding, out.elbo = point.rounding, point.elbo
    out.gap = point.gap + out.rounding
    out.elbo_upper = out.elbo + out.gap
    out.certificate, out.log_evidence = point.certificate, point.elbo
    out.optimal, out._ran = outcome.ending.reached, outcome.ending
    out._judge(tol)
    out.n_iter, out.trace, out.method = outcome.n_iter, outcome.trace, "passes over partitions"
    out.likelihood = likelihood
    return out, prior


def _of_no_rows(P: Any, gram: np.ndarray, mean: np.ndarray, constraints: Any) -> tuple[Solution, SparsePrecision]:
    """N(mean, (Q + gram)^-1), the prior of a row that is not observed."""
    nothing = sp.csr_array((1, P.shape[0]))
    prior = SparsePrecision(P.matrix(P.q + gram), mean=mean, design=nothing, constraints=constraints)
    return copy.copy(infer(Gaussian(1.0), prior, np.array([np.nan]))), prior


class StandInEvidence:
    """The evidence about its mode, the rows by the parabola that they are seen from there: no further pass."""

    def __init__(self, learning: Learning, outcome: Outcome, constraints: Any) -> None:
        self.rows = QuadraticModel(outcome.point, learning)
        self.bounds, self.q = learning.bounds(outcome.point.q), outcome.point.q
        self.theta, self.constraints = np.append(self.q.theta, self.q.own), constraints

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        n, rows, self.theta = self.q.theta.size, self.rows, theta
        do = theta[n:] - self.q.own
        J, gradient = rows.value(theta[:n], do)
        if not do.size:
            return J, gradient
        dm = rows.best_q(theta[:n], do)[0].mean[:, 0] - self.q.mean[:, 0]
        return J, np.append(gradient, rows.own_slope - rows.C @ do - rows.X @ dm)

    @property
    def solution(self) -> Solution:
        """The posterior at the theta that was asked last."""
        n = self.q.theta.size
        q = self.rows.best_q(self.theta[:n], self.theta[n:] - self.q.own)[0]
        return _of_no_rows(q.factor.pattern, q.gram[0], q.mean[:, 0], self.constraints)[0]


class FittedPartitioned(FittedModel):
    """What ``Model.fit`` returns of a Dask dataframe.

    It holds the posterior of the latents and no rows: coefficients, effects, hyperparameters, the summary, predictions
    and draws at tables that are given, and ``save``. A Dask dataframe is predicted lazily, partition by partition.
    Intervals of hyperparameters are by the parabola that stands for the rows at the optimum.
    """

    model: PartitionedModel
    mixed = None  # at the learned hyperparameters, the likelihood's own too

    def __init__(self, model: PartitionedModel, found: Learned, evidence: StandInEvidence) -> None:
        super().__init__(model, found)
        self.stand_in = evidence
        self.__dict__["hyperparameters"] = tables.hyperparameters(self)  # with the rows' last word
        self.stand_in = None

    @property
    def remarks(self) -> list[str]:
        """None: they would need the rows."""
        return []

    def predict(self, new: Any = None, kind: str = "mean", *, interval: float | None = None, **options: Any) -> Any:
        """As of ``FittedModel``, of a table that is given; a Dask dataframe gives a lazy answer."""
        if new is None:
            raise _elsewhere("predict without a table", "predict(table), a Dask dataframe or any other")
        if not is_dask(new):
            return super().predict(new, kind, interval=interval, **options)
        if not (hasattr(new, "map_partitions") and new.ndim == 2):
            got = f"a {type(new).__name__} of Dask's"
            raise problem("predict", got, "a Dask dataframe with the columns of the formula, or a table in memory")
        row = self.model.frame.iloc[:1].reindex(columns=list(new.columns))
        like = super().predict(row, kind, interval=interval, **options)  # columns and options are checked at once
        meta = like.iloc[:0].set_axis(new._meta.index[:0], axis=0)
        return new.map_partitions(_predicted, self, kind, {"interval": interval, **options}, meta, meta=meta)

    def sample(self, new: Any = None, size: int = 1000, rng: Any = None, **options: Any) -> np.ndarray:
        """As of ``FittedModel``, of a table in memory that is given."""
        if new is None or is_dask(new):
            raise _elsewhere("sample without a table in memory", "sample(table)")
        return super().sample(new, size, rng, **options)

    def average_effect(self, name: str, new: Any = None, **options: Any) -> Any:
        """As of ``FittedModel``, over a table in memory that is given."""
        if new is None or is_dask(new):
            raise _elsewhere("average_effect without a table in memory", "average_effect(name, table)")
        return super().average_effect(name, new, **options)

    def _refused(self, *args: Any, **options: Any) -> Any:
        """Needs the rows of the fit, which are out of memory."""
        raise _elsewhere("this answer", "predict(table, ...) of rows that were held out")

    corrected = loo = leave_group_out = k_fold = waic = dic = simulate = _refused
    plot_check = report = to_arviz = contrast = _refused


def _elsewhere(what: str, wanted: str) -> Refusal:
    return problem("Model", f"{what} needs rows of the fit, which are out of memory", wanted)


def _predicted(part: Any, fit: FittedPartitioned, kind: str, options: dict[str, Any], none: Any) -> Any:
    if not len(part):
        return none.set_axis(part.index, axis=0)
    return FittedModel.predict(fit, part, kind, **options)
