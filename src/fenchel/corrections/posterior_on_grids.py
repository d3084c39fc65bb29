"""A posterior whose marginals are densities on grids: the common base of the corrected posteriors."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, to_numpy
from ..marginals import AnswersAtNewRows
from ..posterior import Posterior
from ..predictive import Predictive
from ..priors.base import NewRows
from ..row_scores import LeaveOneOut
from ..row_scores import leave_one_out as gaussian
from .grids import CorrectedLeaveOneOut, GridAnswers, GridMarginals, MarginalGrid, leave_one_out
from .group_nodes import NodeSizes
from .sites import GaussianFit, counted

Moments = tuple[np.ndarray, np.ndarray]  # means and variances under q
Like = tuple[str, NodeSizes | None]  # the method of a correction, and the sizes of its nodes if it has groups


class PosteriorOnGrids(GridAnswers, AnswersAtNewRows[GridMarginals]):
    """Answers from the grids of eta, ``_grid``, and of the latents, ``_latents``."""

    leaves_one_out = True  # whether ``loo()`` is available
    carries = True  # whether it can be interpolated between theta
    _fit: GaussianFit
    _posterior: Posterior
    _last: tuple[NewRows, MarginalGrid, Moments] | None = None  # the last new rows, with their marginals

    method: str

    @property
    def like(self) -> Like:
        """Method and sizes of nodes for a correction at a nearby theta."""
        return self.method, None

    @property
    def _latents(self) -> MarginalGrid:
        raise NotImplementedError

    @property
    def lower_bound(self) -> float:
        """Lower bound on log p(y); minus infinity if ``log_evidence`` is not a bound."""
        return -np.inf

    def as_solution(self) -> Any:
        """The object from which ``Family.gradient`` computes the gradient of ``log_evidence``, or None."""
        return None

    @property
    def _like(self) -> Array:
        return self._posterior.mean

    def latents(self) -> GridMarginals:
        """The marginals of z."""
        return GridMarginals(self._latents, self._like)

    def grid_at(self, new: NewRows) -> tuple[MarginalGrid, Moments]:
        """The grid of ``marginals_at`` and the moments of q, cached for the last rows.

        Several interpolations read the same rows.
        """
        if self._last is None or not _same(self._last[0], new):
            self._last = new, self.marginals_at(new).grid, moments_at(self._posterior, new)
        return self._last[1:]

    def predictive(self, likelihood: Likelihood | None = None) -> Predictive:
        """y at the observations: means, probabilities, quantiles, densities; ``at(...).predictive`` at new rows."""
        return super().predictive(self._fit.likelihood if likelihood is None else likelihood)

    def loo(self) -> CorrectedLeaveOneOut:
        """Leave-one-out densities (CPO) and probabilities (PIT) from these marginals, without refitting."""
        return self._left_out[0]

    @cached_property
    def _left_out(self) -> tuple[CorrectedLeaveOneOut, LeaveOneOut]:
        """The leave-one-out predictions from these marginals and from q."""
        fit = self._fit
        rows: dict[str, Any] = {key: to_numpy(value) for key, value in fit._rows.items()}
        plain = gaussian(fit.likelihood, fit.posterior, fit.y)
        return leave_one_out(fit.likelihood, rows, counted(fit), fit.y, self._grid, plain), plain


def moments_at(posterior: Posterior, new: NewRows) -> Moments:
    mean, variance = (to_numpy(v)[:, 0] for v in posterior.moments_at(new))
    return mean, variance


def _same(a: NewRows, b: NewRows) -> bool:
    """Whether two requests are for the same rows."""
    if not (np.array_equal(a.offset, b.offset) and np.array_equal(a.extra_variance, b.extra_variance)):
        return False
    if a.design is b.design:
        return a.mean_only == b.mean_only
    one, other = sp.csr_array(a.design), sp.csr_array(b.design)
    return a.mean_only == b.mean_only and one.shape == other.shape and (one != other).nnz == 0
