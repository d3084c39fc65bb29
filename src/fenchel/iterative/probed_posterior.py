"""The result of the iterative engine: a posterior whose variances are estimated by probes, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import count, problem
from ..files import Stated
from ..linalg.arrays import Seed
from ..linalg.block_stacks import block_diagonal, cholesky, times, transposed
from ..marginals import AnswersAtNewRows, NormalAnswers, NormalMarginals
from ..priors.base import NewRows
from .certificate import Certified
from .probed_fit import Task
from .system import FLOOR

_EXACT = 100  # variances of up to so many rows are solved for; those of more rows are estimated by probes
_MORE = 0.3  # a larger error of theta by the probes, relative to its sd, gives a remark
_SOLVED = 1e-8  # relative residual of solves for results
_DRAWN = 1e-6  # the same for draws
_ROWS = 1 << 15  # rows whose variances are estimated at a time
_DRAWS = 32  # draws that are solved for at a time


class Estimated(NamedTuple):
    """Estimates with their standard errors by the probes; 0 for numbers that were solved for."""

    value: np.ndarray
    se: np.ndarray


@dataclass(frozen=True)
class SearchResult(Stated):
    """The result of the search for theta: theta with its covariance, and its error by the probes.

    Attributes
    ----------
    rise : float
        Predicted gain of a further step, in nats; ``settled``: whether it is negligible.
    n_fits, n_solves : int
        Number of fits, and total iterations of conjugate gradients.
    """

    theta: np.ndarray
    theta_covariance: np.ndarray
    theta_error: np.ndarray
    rise: float
    settled: bool
    n_fits: int
    n_solves: int
    at_bounds: dict[int, str]
    held: tuple[int, ...]


class IterativeFit(NormalAnswers, AnswersAtNewRows[NormalMarginals]):
    """A fit without a factor: a posterior, with the marginals of eta at the observations.

    Attributes
    ----------
    theta : array
        The family's hyperparameters, then the likelihood's.
    theta_covariance : array
        Their posterior covariance from the curvature of the evidence; 0 for a hyperparameter at a bound.
    theta_error : array
        Covariance of their numerical error, by the probes and by the end of the search.
    elbo, elbo_upper, gap : EstimatedInterval
        ``elbo`` of the fitted Gaussian is a lower bound on log p(y), no Gaussian has a larger elbo than ``elbo_upper``,
        and ``gap`` is their difference. They are intervals because log determinants and variances are estimated.
        ``elbo_upper.certain`` are proved limits of the best elbo; the lower one also bounds log p(y).
    certificate : "duality", "decrement" or "strong-concavity"
        How the gap is bounded.
    converged : bool
        Whether the upper end of the gap is below tol max(1, |elbo|) and the search for theta has converged.
    status : str
        The same as a sentence.
    likelihood : Likelihood
        The likelihood at theta.
    n_fits, n_solves : int
        Number of fits, and total iterations of conjugate gradients.
    iterations : int
        Iterations of conjugate gradients in the last solve of the probes.
    n_probes : int
        Number of probes.
    seconds : float
        Time of the fit.
    """

    def __init__(
        self,
        task: Task,
        certified: Certified,
        found: SearchResult,
        tol: float,
        n_probes: int,
        seconds: float,
    ) -> None:
        self.task, self.certified, self.found = task, certified, found
        self.tol, self.n_probes, self.seconds = tol, n_probes, seconds
        self.state = certified.state
        self.theta, self.likelihood = found.theta, self.state.likelihood
        self.elbo, self.elbo_upper, self.gap = certified.elbo, certified.elbo_upper, certified.gap
        self.certificate, self.settled, self.rise = certified.kind, found.settled, found.rise
        self.n_fits, self.n_solves = found.n_fits, found.n_solves
        self.iterations = self.state.probed.iterations
        self.theta_covariance, self.theta_error = found.theta_covariance, found.theta_error
        self.at_bounds, self.held = found.at_bounds, found.held

    def numbers(self) -> dict[str, Any]:
        """The numbers of the fit that a file stores: theta, q with its probes, and the certificate."""
        state, own = self.state, vars(self.certified)
        return {
            "found": self.found,
            "state": {"m": state.m, "rho": state.rho, "lam": state.system.lam, "probed": state.probed},
            "certified": {name: value for name, value in own.items() if name != "state"},
            "seconds": self.seconds,
        }

    # -- the certificate -------------------------------------------------------------------------------
    @property
    def relative_gap(self) -> float:
        """The upper end of the gap divided by max(1, |elbo|)."""
        return self.gap.upper / max(1.0, abs(self.elbo.estimate))

    @property
    def converged(self) -> bool:
        return self.relative_gap <= self.tol and self.settled

    @property
    def status(self) -> str:
        word, narrow = "converged" if self.converged else "not converged", self.relative_gap <= self.tol
        theta = "" if self.settled else f"; theta may still gain {self.rise:.1e} nats"
        sign, advice = ("<=", "") if narrow else (">", "; more probes (n_probes) narrow it")
        return f"{word}: upper end of the relative gap {self.relative_gap:.1e} {sign} {self.tol:.1e}{advice}{theta}"

    def stated(self) -> list[str]:
        """The certificate as lines of a summary."""
        word = "converged" if self.converged else "NOT CONVERGED"
        low, high = self.elbo_upper.certain
        lines = [
            f"{word}: gap {self.gap:.2g} nats with probability {self.gap.level:g} ({self.certificate}), "
            f"log evidence at least {self.elbo:.3f}",
            f"iterative engine: {self.n_probes} probes, {self.iterations} iterations of conjugate gradients a solve",
            f"for certain: log evidence at least {low:.3f}, no Gaussian above {high:.3f}",
        ]
        return lines + ([] if self.converged else [self.status])

    @property
    def remarks(self) -> list[str]:
        """Remarks for the user: a sentence if more probes are needed."""
        own, probes = self._theta_sds
        ratio = float((probes / np.where(own > 0.0, own, np.inf)).max(initial=0.0))
        if ratio <= _MORE:
            return []
        wanted = int(np.ceil(self.n_probes * (ratio / (_MORE / 2)) ** 2 / 4) * 4)
        return [
            f"the error of a hyperparameter by the probes is {ratio:.0%} of its sd: n_probes={wanted} would reduce it "
            f"to {_MORE / 2:.0%}"
        ]

    @property
    def _theta_sds(self) -> tuple[np.ndarray, np.ndarray]:
        """Posterior sds of theta, and sds of its error by the probes."""
        return np.sqrt(np.diag(self.theta_covariance)), np.sqrt(np.diag(self.theta_error))

    # -- a posterior -----------------------------------------------------------------------------------
    @property
    def posterior(self) -> IterativeFit:
        return self

    @property
    def solution(self) -> IterativeFit:
        return self

    def _in_order(self, values: np.ndarray) -> np.ndarray:
        """Values of the latents (L,) in the order of the family, from the order of the layout."""
        out = np.empty(values.size)
        out[self.task.layout.order] = values
        return out

    @cached_property
    def latent_mean(self) -> np.ndarray:
        """The mean of the latents (L,)."""
        return self._in_order(self.state.m)

    @cached_property
    def latent_estimates(self) -> Estimated:
        """The variances of the latents (L,) with their standard errors by the probes."""
        system, probed = self.state.system, self.state.probed
        blocked = np.concatenate([np.diagonal(b, axis1=-2, axis2=-1).ravel() for b in system.latent_blocks])
        estimates = self._estimated(blocked, system.lift(probed.delta) * system.lift(probed.u))
        return Estimated(*map(self._in_order, estimates))

    @property
    def latent_variance(self) -> np.ndarray:
        return self.latent_estimates.value

    def latents(self) -> NormalMarginals:
        return NormalMarginals(self.latent_mean, self.latent_variance)

    @cached_property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """E[eta] (N,)."""
        return np.asarray(self.task.family.offset + self.task.layout.A @ self.latent_mean)

    @cached_property
    def variance(self) -> np.ndarray:  # type: ignore[override]
        """Var[eta] (N,), estimated."""
        A = self.task.layout.A
        out, others = np.empty(A.shape[0]), np.setdiff1d(np.arange(A.shape[0]), self.task.keep)
        out[self.task.keep] = self.state.rho
        out[others] = self._probed_variances(A[others]).value
        return out

    def marginals_at(self, new: NewRows) -> NormalMarginals:
        """The marginals of eta at other rows (M,): variances of up to 100 rows by solves, of more rows by probes."""
        if new.design is None or new.cross is not None:
            raise problem("predict", "rows given by a covariance", "design=..., rows over the latents")
        A = sp.csr_array(new.design)
        if A.shape[1] != self.latent_mean.size:
            raise problem("predict", f"design has shape {A.shape}", f"(M, {self.latent_mean.size})")
        h = np.asarray(A @ self.latent_mean) + np.asarray(new.offset, dtype=np.float64)
        return NormalMarginals(h, self.estimates(A).value + np.asarray(new.extra_variance, dtype=np.float64))

    def estimates(self, design: Any) -> Estimated:
        """The variances of eta at rows (M,), with standard errors by the probes, 0 if they were solved for."""
        A, own = sp.csr_array(design), self.task.layout.A
        if A.shape == own.shape and A.nnz == own.nnz and not (own != A).nnz:
            return Estimated(self.variance, np.full(A.shape[0], np.nan))
        if A.shape[0] > _EXACT:
            return self._probed_variances(A)
        right = np.asarray(A[:, self.task.layout.order].toarray().T)
        solved = self.state.system.solve(right, _SOLVED)[0]
        return Estimated(np.einsum("lm,lm->m", right, solved), np.zeros(A.shape[0]))

    def _estimated(self, blocked: np.ndarray, each: np.ndarray) -> Estimated:
        """Variances as those of the blocked Gaussian plus the mean contribution of the probes."""
        probed = self.state.probed
        return Estimated(np.maximum(blocked + probed.mean(each), FLOOR * blocked), probed.se(each))

    def _probed_variances(self, A: sp.csr_array) -> Estimated:
        """a' P^-1 a of any rows, estimated by the probes."""
        system, probed, none = self.state.system, self.state.probed, np.zeros(0)
        parts = [Estimated(none, none)]
        for i in range(0, A.shape[0], _ROWS):
            A1, Am, Ab = self.task.layout.split(A[i : i + _ROWS])
            left = sp.csr_array((system.by_columns(Am.data, Am.indices), Am.indices, Am.indptr), shape=Am.shape)
            whole = sp.csr_array(sp.hstack([A1, Am, Ab], format="csr"))
            edge = np.asarray(whole @ system.shared)
            blocked = np.einsum("np,np->n", edge, edge)
            if system.n1:
                own = block_diagonal(np.matmul(transposed(system.L1inv), system.L1inv)).tocsr()
                blocked += np.asarray(((A1 @ own).multiply(A1)).sum(axis=1)).ravel()
                weights = sp.csr_array((system.weights, system.E.indices, system.E.indptr), shape=system.E.shape)
                left = sp.csr_array(left - A1 @ weights)
            blocked += np.asarray(left.multiply(left).sum(axis=1)).ravel()
            each = (whole @ system.lift(probed.delta)) * (whole @ system.lift(probed.u))
            parts.append(self._estimated(blocked, each))
        return Estimated(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def sample_latents(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draws (size, L) of the latents from q: P^-1 (Q^1/2 e + A' Lam^1/2 e') has covariance P^-1."""
        size, rng, system = count("sample", "size", size, 1), np.random.default_rng(rng), self.state.system
        out = np.empty((size, self.latent_mean.size))
        roots = [cholesky(q if q.ndim == 3 else q[None])[0] for q in system.Q if q.size]
        ends = np.cumsum([0, *(root.shape[0] * root.shape[1] for root in roots)])
        for start in range(0, size, _DRAWS):
            m = min(_DRAWS, size - start)
            e = rng.standard_normal((self.latent_mean.size, m))
            b = np.vstack([times(root, e[i:j]) for root, i, j in zip(roots, ends[:-1], ends[1:], strict=True)])
            noise = np.sqrt(system.lam)[:, None] * rng.standard_normal((system.lam.size, m))
            b += self.task.rows.adjoint(noise)
            drawn = self.state.m[:, None] + system.solve(b, _DRAWN)[0]
            out[start : start + m][:, self.task.layout.order] = drawn.T
        return out

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draws (size, N) of eta at the observations."""
        return np.asarray(self.task.family.offset + (self.task.layout.A @ self.sample_latents(size, rng).T).T)

    def summary(self) -> str:
        """Text with the certificate, and theta with its sds and its errors by the probes."""
        names = [*self.task.family.names, *self.likelihood.theta_names]
        lines = [*self.stated(), "", f"{'hyperparameter':<34}{'value':>12}{'sd':>12}{'error':>12}"]
        for name, value, own, error in zip(names, self.theta, *self._theta_sds, strict=True):
            lines.append(f"{name:<34}{value:>12.4f}{own:>12.2g}{error:>12.2g}")
        return "\n".join([*lines, *self.remarks])

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        return f"IterativeFit({word}, elbo={self.elbo:.2f}, gap={self.gap:.1e}, {self.n_probes} probes)"
