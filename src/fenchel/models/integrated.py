"""A fitted model with its hyperparameters integrated out: the same answers, from a mixture over theta.

p(eta | y) = sum_k w_k p(eta | y, theta_k)
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..checks import callers_line
from ..hyperparameters.integration import Integrated, integrate
from ..hyperparameters.integration.theta import Values
from ..hyperparameters.learned import Learned
from . import tables
from .fitted import FittedModel

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model


_THETAS = 8192  # at which hyperparameters are read off


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
        self.integrated = posterior
        self.converged, self.gap = posterior.converged, posterior.gap
        self.log_evidence, self.log_evidence_error = posterior.log_evidence, posterior.log_evidence_error
        if posterior.doubts:
            warnings.warn(f"Model: {'; '.join(posterior.doubts)}.", UserWarning, stacklevel=callers_line())
        if found.converged and not posterior.converged:
            warnings.warn(f"Model: {posterior.status}.", ConvergenceWarning, stacklevel=callers_line())

    def corrected(self) -> IntegratedModel:
        """Itself: every theta has its marginals beyond the Gaussian , or says why they are not trusted."""
        if self.integrated is not None and self.integrated.evidence != "corrected":
            warnings.warn(f"corrected: marginals stay Gaussian given theta: {self.integrated.status}.", stacklevel=2)
        return self

    # -- tables ------------------------------------------------------------------------------------
    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Standard deviations, correlations, shares and the likelihood's parameters: posterior mean, sd, median and
        95 % interval; ``value`` is where the density that was integrated is largest, on the scale of ``theta``.
        """
        mixed = self.integrated
        levels = self._levels()
        at = None if levels is None else float(mixed.theta.between(mixed.thetas, levels, mixed.theta.peak[None])[0, 0])
        rows = tables.described_theta(self, mixed.theta.peak, at)
        if not rows:
            return super().hyperparameters
        found = self._described(levels)
        lower, middle, upper = found.quantile([0.025, 0.5, 0.975]).T
        moments = {"mean": found.mean, "sd": found.sd, "median": middle}
        return tables.parameter_frame(rows, **moments, lower=lower, upper=upper)

    def _levels(self) -> np.ndarray | None:
        """What cutpoints at x = 0 are above those as fitted at each point, mean and sd (K, 2); None without them."""
        if not (self.model.ordered and self.model.sum.fixed_names):
            return None
        answers = [view.solution if view.answers is None else view.answers for view in self.views]
        return np.array([tables.level_of_ordered(self, each) for each in answers])

    def _described(self, levels: np.ndarray | None) -> Values:
        """The posterior of what the table shows; of cutpoints at x = 0 with how well the coefficients are known."""

        def ask(theta: np.ndarray, level: float | None = None) -> list[float]:
            return [row[2] for row in tables.described_theta(self, theta, level)]

        if levels is None:
            return self.integrated.theta.of(ask, size=_THETAS)
        return self.integrated.theta.beside(ask, self.integrated.thetas, levels, size=_THETAS)

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        found = f"log_evidence={self.log_evidence:.4f}, {len(self.integrated.solutions)} points, gap={self.gap:.1e}"
        return f"IntegratedModel({self.model.formula!r}, {word}, {found})"
