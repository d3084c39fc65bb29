"""The evidence of theta beyond the Gaussian: elbo + correction + log p(theta), and its gradient.

    d log p(y|theta) / dtheta ~ d elbo / dtheta + d (own + pairs) / dtheta

The first part is the envelope's, as in ``evidence.py``. The second has no envelope: it is taken by central differences
of the correction alone, two fits from warm starts for each entry of theta. The correction is smooth and small beside
the elbo, so that a step of some thousandths of an e-fold leaves five digits of its slope, more than the search asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..corrections.corrected import correct
from ..solvers.solution import Solution
from .evidence import Evidence

if TYPE_CHECKING:
    from ..corrections.corrected import Corrected
    from ..corrections.importance import ImportanceSample

_STEP = 0.005  # in e-folds: the rounding of two fits over it, and its square as the error of the difference


def doubt_of(found: Corrected | ImportanceSample) -> str:
    """What a user should know of a corrected evidence first, as a sentence; empty where it is trusted."""
    if not found.nearer:
        return not_used(found.status)
    if not found.trusted:
        return f"the corrected evidence may be off by {found.log_evidence_se:.2g} nats: {found.status}"
    return ""


def not_used(why: str) -> str:
    """The sentence where theta is by the elbo though the corrected evidence was asked for."""
    return f"sds of terms are the elbo's and may be too small, as the corrected evidence does not hold: {why}"


class CorrectedEvidence(Evidence):
    """An ``Evidence`` whose value has the correction in it; every fit is run to ``tol``."""

    def fit(self, theta: np.ndarray) -> Solution:
        self.allowed_gap = None  # a loose fit's correction would be another function of theta
        return super().fit(theta)

    def correction(self, solution: Solution) -> float:
        """log p(y) less the elbo; not a number where the elbo is as near."""
        found = correct(solution, rough=True)
        return float(found.log_evidence - solution.elbo) if found.nearer else np.nan

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = super().__call__(theta)
        here, prior = self.solution, self.prior
        gained = self.correction(here)
        if not np.isfinite(gained):
            return np.nan, gradient
        slope = np.array([self._difference(theta, i, gained) for i in range(theta.size)])
        self.solution, self.prior, self.warm = here, prior, self.warm._replace(last=here)
        return value + gained, gradient + slope

    def _difference(self, theta: np.ndarray, i: int, here: float) -> float:
        """The correction's slope along one entry: between its two sides, or to one of them where the other is none."""
        ends = np.clip(theta[i] + np.array([-_STEP, _STEP]), *self.bounds[i])
        found = [(theta[i], here)]
        for end in ends[ends != theta[i]]:
            moved = theta.copy()
            moved[i] = end
            value = self.correction(self.fit(moved))
            found += [(end, value)] if np.isfinite(value) else []
        (a, low), (b, high) = min(found), max(found)
        return (high - low) / (b - a) if b > a else 0.0
