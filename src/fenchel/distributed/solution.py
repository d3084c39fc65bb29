"""What a fit of partitioned rows returns: the certificate and the posterior of the weights. It holds no rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from ..files import Stored
from ..likelihoods.base import Likelihood
from ..marginals import NormalMarginals
from ..solvers.base import reached
from ..solvers.ending import Ending
from .solver import Outcome

_OF_ROWS = ("alpha", "corrected", "importance", "lam", "likelihood_gradient", "loo", "s", "y")


@dataclass(frozen=True)
class WeightPosterior:
    """q(z) of the weights: the mean (L, C) and the covariance (C, L, L)."""

    mean_of_weights: np.ndarray
    blocks: np.ndarray

    @property
    def latent_mean(self) -> np.ndarray:
        """(L,), or (L, C) for several predictors."""
        m = self.mean_of_weights
        return m[:, 0] if m.shape[1] == 1 else m

    @property
    def latent_variance(self) -> np.ndarray:
        """(L,), or (L, C)."""
        v = np.diagonal(self.blocks, axis1=1, axis2=2).T
        return v[:, 0] if v.shape[1] == 1 else v

    def latents(self) -> NormalMarginals:
        """The marginals of the weights."""
        return NormalMarginals(self.latent_mean, self.latent_variance)

    def latent_covariance(self) -> np.ndarray:
        """(L, L), or (C, L, L)."""
        return self.blocks[0] if self.blocks.shape[0] == 1 else self.blocks

    def sample_latents(self, size: int, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """Joint draws of the weights: (size, L), or (size, L, C)."""
        draws, rng = [], np.random.default_rng(rng)
        for m, V in zip(self.mean_of_weights.T, self.blocks, strict=True):
            draws.append(rng.multivariate_normal(m, V, size, method="eigh"))
        out = np.stack(draws, axis=-1)
        return out[..., 0] if out.shape[-1] == 1 else out


class PartitionedSolution(Stored):
    """A fit of partitioned rows, with its certificate; attributes as those of ``Solution``, but for those of rows.

    Attributes
    ----------
    elbo, elbo_upper, gap, rounding, converged, optimal, certificate, log_evidence, ending, status, n_iter, trace, tol
        As of ``Solution``.
    posterior : WeightPosterior
    likelihood : Likelihood
        Without the parameters of rows.
    n_observed : int
        Rows that carry information.
    n_passes : int
        How often all rows were read, the first look at them included.
    """

    method = "passes over partitions"

    def __init__(self, outcome: Outcome, likelihood: Likelihood, tol: float, n_passes: int) -> None:
        point = outcome.point
        self.rounding = point.rounding
        self.elbo, self.gap = point.elbo, point.gap + self.rounding
        self.elbo_upper = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf
        self.certificate, self.log_evidence = point.certificate, point.elbo
        self.optimal, self.tol = reached(point, tol), tol
        ran = outcome.ending
        if self.optimal and point.certificate == "stationarity":
            doubt = f"; {likelihood.name} is not log-concave, so another stationary point may be better"
            ran = replace(ran, code="stationary", advice=doubt)
        scale = max(1.0, abs(self.elbo))
        blurred = self.optimal and self.rounding > tol * scale
        self.converged = self.optimal and not blurred
        self.ending = Ending.blurred(self.rounding, scale, tol) if blurred else ran
        self.n_iter, self.trace, self.n_passes = outcome.n_iter, outcome.trace, n_passes
        self.likelihood, self.n_observed = likelihood, int(point.sums["n"])
        self.posterior = WeightPosterior(point.q.mean, point.q.factor.covariance)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OF_ROWS:
            raise AttributeError(
                f"PartitionedSolution: {name} asks for the rows of the fit, which are in partitions and not held here. "
                "Fit a sample of them in memory for it."
            )
        raise AttributeError(f"'PartitionedSolution' object has no attribute {name!r}")

    @property
    def status(self) -> str:
        return self.ending.sentence

    def summary(self) -> str:
        """The certificate first, then the evidence and the work."""
        word = "converged" if self.converged else "NOT CONVERGED"
        best = f"no Gaussian gives more than {self.elbo_upper:.6f}"
        return "\n".join(
            [
                f"{self.likelihood!r}: {word}, by its {self.certificate} certificate",
                f"  {'gap':<22}{self.gap:.3e}  (asked {self.tol:.1e} of the elbo)",
                f"  {'log evidence':<22}at least {self.elbo:.6f} (elbo); "
                + (best if np.isfinite(self.elbo_upper) else "another stationary point may give more"),
                f"  {'observations':<22}{self.n_observed}",
                f"  {'work':<22}{self.n_passes} passes over all rows, {self.trace['seconds'][-1]:.3f} s",
                f"  {'status':<22}{self.status}",
            ]
        )

    def __repr__(self) -> str:
        word = "converged" if self.converged else "not converged"
        return f"PartitionedSolution({word}, elbo={self.elbo:.6f}, gap={self.gap:.1e}, n_passes={self.n_passes})"
