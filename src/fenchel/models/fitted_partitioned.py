"""A model fitted to a table that is out of memory: the answers of ``FittedModel`` that need no row of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Refusal, problem
from ..distributed import is_dask
from ..distributed.approximation import QuadraticModel
from ..hyperparameters.learned import Learned
from .fitted import FittedModel

if TYPE_CHECKING:
    from .partitioned import PartitionedModel


class FittedPartitioned(FittedModel):
    """What ``Model.fit`` returns of a Dask dataframe.

    It holds the posterior of the latents and no rows: coefficients, effects, hyperparameters, the summary, predictions
    and draws at tables that are given, and ``save``. A Dask dataframe is predicted lazily, partition by partition.
    Intervals of hyperparameters are by the parabola that stands for the rows at the optimum.
    """

    model: PartitionedModel
    mixed = None  # at the learned hyperparameters, the likelihood's own too

    def __init__(self, model: PartitionedModel, found: Learned, evidence: QuadraticModel) -> None:
        self.evidence = evidence
        super().__init__(model, found)

    def _plain_state(self) -> dict[str, Any]:
        """With the table of the hyperparameters, and without the evidence that it is made of."""
        table, state = self.hyperparameters, super()._plain_state()
        return {key: value for key, value in state.items() if key != "evidence"} | {"hyperparameters": table}

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

    corrected = loo = leave_group_out = k_fold = waic = simulate = _refused
    plot_check = report = to_arviz = contrast = _refused


def _elsewhere(what: str, wanted: str) -> Refusal:
    return problem("Model", f"{what} needs rows of the fit, which are out of memory", wanted)


def _predicted(part: Any, fit: FittedPartitioned, kind: str, options: dict[str, Any], none: Any) -> Any:
    if not len(part):
        return none.set_axis(part.index, axis=0)
    return FittedModel.predict(fit, part, kind, **options)
