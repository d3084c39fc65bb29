"""A fitted model with its hyperparameters integrated out: the same answers, from a mixture over theta.

p(eta | y) = sum_k w_k p(eta | y, theta_k)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..checks import callers_line
from ..hyperparameters.integration import Integrated, integrate
from ..hyperparameters.integration.predictive import MixedPredictive
from ..hyperparameters.learned import Learned
from . import predictions, tables
from .fitted import FittedModel
from .skewed import MixedSaid

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model


def integrated(model: Model, found: Learned, method: str, **options: Any) -> IntegratedModel:
    """The model with its hyperparameters integrated out, about what was learned."""
    target = model.target
    posterior = integrate(
        target.likelihood, model.sum.family(), target.y, weights=target.weights, mode=found, method=method, **options
    )
    return IntegratedModel(model, found, posterior)


class IntegratedModel(FittedModel):
    """What ``Model.fit(integrate=...)`` returns: a ``FittedModel`` whose answers are mixtures over theta.

    Attributes
    ----------
    integrated : Integrated
        The posterior, with the points, their weights and fits, and ``theta``, the posterior of the hyperparameters.
    log_evidence, log_evidence_error : float
        log p(y) with the hyperparameters integrated out, an estimate; ``elbo`` is the bound at their mode.
    gap : float
        The largest of all fits.
    """

    integrated: Integrated

    def __init__(self, model: Model, found: Learned, posterior: Integrated) -> None:
        super().__init__(model, found)
        self.integrated = self.posterior = posterior
        self.converged, self.gap = posterior.converged, posterior.gap
        self.log_evidence, self.log_evidence_error = posterior.log_evidence, posterior.log_evidence_error
        if found.converged and not posterior.converged:
            warnings.warn(f"Model: {posterior.status}.", ConvergenceWarning, stacklevel=callers_line())

    @cached_property
    def _views(self) -> list[FittedModel]:
        """The model as fitted at each point."""
        out: list[FittedModel] = []
        mixed = self.integrated
        for theta, solution, part in zip(mixed.thetas, mixed.solutions, mixed.answers, strict=True):
            view = FittedModel.__new__(FittedModel)
            found = replace(self.found, theta=theta, solution=solution, likelihood=solution.likelihood)
            there = {"theta": theta, "solution": solution, "posterior": part, "found": found}
            mine = {key: self.__dict__[key] for key in ("model", "likelihood", "shift")}
            view.__dict__.update(mine | there)
            out.append(view)
        return out

    # -- tables ------------------------------------------------------------------------------------
    @property
    def covariance(self) -> pd.DataFrame:
        """The posterior covariance of the coefficients."""
        import pandas as pd

        w, names = self.integrated.weights, tables.names_of(self.model)
        means, covariances = (np.stack(each) for each in zip(*map(tables.fixed_moments, self._views), strict=True))
        off = means - w @ means
        total = np.einsum("k,kij->ij", w, covariances) + (off * w[:, None]).T @ off
        return pd.DataFrame(total, index=names, columns=names)

    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Standard deviations, correlations, shares and the likelihood's parameters: posterior mean, sd, median and
        95 % interval; ``value`` is that at the mode.
        """
        import pandas as pd

        rows = tables.described_theta(self, self.theta)
        if not rows:
            return super().hyperparameters
        found = self.integrated.theta.of(
            lambda theta: [row[2] for row in tables.described_theta(self, theta)], size=8192
        )
        lower, middle, upper = found.quantile([0.025, 0.5, 0.975]).T
        columns = {"value": [row[2] for row in rows], "mean": found.mean, "sd": found.sd, "median": middle}
        index = pd.MultiIndex.from_tuples([row[:2] for row in rows], names=["term", "parameter"])
        return pd.DataFrame({**columns, "lower": lower, "upper": upper}, index=index)

    # -- predictions -------------------------------------------------------------------------------
    def _said(self, where: predictions.Where, exposure: Any, trials: Any) -> MixedSaid:
        """What the mixture says of y at rows, part by part."""
        given = {"exposure": exposure, "trials": trials}
        likelihoods = [predictions.likelihood_at(view, where, given) for view in self._views]
        etas = [view.posterior.at(**predictions.again(view, where).new) for view in self._views]
        return MixedSaid(MixedPredictive(self.integrated.weights, likelihoods, etas), self.model.target.values)

    def _drawn(
        self, where: predictions.Where, size: int, rng: np.random.Generator, kind: str, given: Mapping[str, Any]
    ) -> np.ndarray:
        """Joint draws, of theta too."""
        out = np.empty((size, where.there.size))
        for view, some in self._parts(size, rng):
            if some.size:
                out[some] = predictions.draws(view, predictions.again(view, where), some.size, rng, kind, given)
        return out

    def _parts(self, size: int, rng: np.random.Generator) -> list[tuple[FittedModel, np.ndarray]]:
        return list(zip(self._views, self.integrated.shared(size, rng), strict=True))

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        found = f"log_evidence={self.log_evidence:.4f}, {len(self.integrated.solutions)} points, gap={self.gap:.1e}"
        return f"IntegratedModel({self.model.formula!r}, {word}, {found})"
