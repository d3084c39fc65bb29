"""What a fit of partitioned rows returns: the certificate and the posterior of the latents. It holds no rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..likelihoods.base import Likelihood
from ..solvers.solution import Solution
from .solver import Outcome


class _OfRows:
    """An attribute that would need the rows of the fit."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        raise AttributeError(
            f"PartitionedSolution: {self.name} asks for the rows of the fit, which are in partitions and not held "
            "here. Fit a sample of them in memory for it."
        )


class PartitionedSolution(Solution):
    """A fit of partitioned rows, with its certificate; attributes as those of ``Solution``, but for those of rows.

    Attributes
    ----------
    elbo, elbo_upper, gap, rounding, converged, optimal, certificate, log_evidence, ending, status, n_iter, trace, tol
        As of ``Solution``.
    posterior : of the latents
    likelihood : Likelihood
        Without the parameters of rows.
    n_observed : int
        Rows that carry information.
    n_passes : int
        How often all rows were read, the first look at them included.
    """

    y, s, alpha, lam = _OfRows(), _OfRows(), _OfRows(), _OfRows()
    loo, corrected, importance, likelihood_gradient = _OfRows(), _OfRows(), _OfRows(), _OfRows()
    n_observed: int = 0

    def __init__(self, outcome: Outcome, likelihood: Likelihood, tol: float, n_passes: int) -> None:
        q, ending = outcome.point.q, outcome.ending
        if ending.reached and outcome.point.certificate == "stationarity":
            doubt = f"; {likelihood.name} is not log-concave, so another stationary point may be better"
            outcome = replace(outcome, ending=replace(ending, code="stationary", advice=doubt))
        self._certify(outcome, likelihood, "passes over partitions", tol)
        self.n_observed, self.n_passes = int(outcome.point.sums["n"]), n_passes
        self.posterior: Any = q.prior.posterior(q)

    def summary(self) -> str:
        """The certificate first, then the evidence and the work."""
        work = f"{self.n_passes} passes over all rows, {self.trace['seconds'][-1]:.3f} s"
        return "\n".join(self._summary_lines(str(self.n_observed), "work", work))

    def __repr__(self) -> str:
        word = "converged" if self.converged else "not converged"
        return f"PartitionedSolution({word}, elbo={self.elbo:.6f}, gap={self.gap:.1e}, n_passes={self.n_passes})"
