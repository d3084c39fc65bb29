"""What the iterative engine returns: the same answers as a posterior, with what probes leave unknown beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import count, problem
from ..linalg.arrays import Seed
from ..linalg.blocks import cholesky, times
from ..marginals import AnswersAtNewRows, NormalAnswers, NormalMarginals
from ..priors.base import NewRows
from .certificate import Certified
from .task import Task
from .variances import Estimated, latent_variances, row_variances, solved_variances

if TYPE_CHECKING:
    from .learning import ProbedEvidence, Searched

_EXACT = 100  # rows whose variance is solved for rather than estimated
_MORE = 0.3  # of theta's sd: an error by the probes above this is said
_SOLVED = 1e-8  # relative residual of solves that answer a user


class IterativeFit(NormalAnswers, AnswersAtNewRows[NormalMarginals]):
    """A fit without a factor: a posterior, itself the marginals of eta at the observations.

    Attributes
    ----------
    theta : array
        The family's hyperparameters, then the likelihood's.
    theta_covariance : array
        How well they are known, by the curvature of the evidence; 0 for one that is held by a bound.
    theta_error : array
        The covariance of what the probes, and where the search stopped, did to them.
    elbo, elbo_upper, gap : Interval
        ``elbo`` of the Gaussian found, a lower bound on log p(y); no Gaussian does better than ``elbo_upper``;
        ``gap`` lies between. Intervals, since log-determinants and variances are estimated; ``elbo_upper.certain`` are
        proved limits of the best elbo, the lower of them of log p(y) too.
    certificate : "duality", "decrement" or "strong-concavity"
    converged : bool
        The gap's upper end is below tol max(1, |elbo|), and no step of theta gains anything.
    status : str
    likelihood : Likelihood
    n_fits, n_solves : int
        Fits at one theta, and iterations of conjugate gradients in all.
    iterations : int
        Of conjugate gradients in the last solve of the probes.
    n_probes, seconds
    """

    def __init__(
        self,
        task: Task,
        searched: Searched,
        certified: Certified,
        tol: float,
        n_probes: int,
        objective: ProbedEvidence,
        seconds: float,
    ) -> None:
        self.task, self.certified, self.tol, self.n_probes, self.seconds = task, certified, tol, n_probes, seconds
        self.state = certified.state
        self.theta, self.likelihood = searched.slope.theta, self.state.likelihood
        self.elbo, self.elbo_upper, self.gap = certified.elbo, certified.elbo_upper, certified.gap
        mode, self.rise = searched.mode, searched.rise
        self.certificate, self.settled = certified.kind, searched.settled
        self.n_fits, self.n_solves = objective.n_evaluations, objective.n_solves
        self.iterations = self.state.probed.iterations
        self.theta_covariance = np.zeros((self.theta.size,) * 2) if mode is None else mode.covariance
        noise = np.atleast_2d(np.cov(searched.slope.each)) / n_probes if self.theta.size else self.theta_covariance
        inverse = self.theta_covariance
        self.theta_error = inverse @ noise @ inverse + 2.0 * searched.left * inverse
        self.at_bounds, self.held = ({}, ()) if mode is None else (mode.at_bounds, mode.held)

    # -- the certificate -------------------------------------------------------------------------------
    @property
    def relative_gap(self) -> float:
        """The upper end of the gap over max(1, |elbo|)."""
        return self.gap.upper / max(1.0, abs(self.elbo.estimate))

    @property
    def converged(self) -> bool:
        return self.relative_gap <= self.tol and self.settled

    @property
    def status(self) -> str:
        word = "converged" if self.converged else "not converged"
        sign = "<=" if self.relative_gap <= self.tol else ">"
        theta = "" if self.settled else f"; theta may still gain {self.rise:.1e} nats"
        advice = "" if self.relative_gap <= self.tol else "; more probes (n_probes) narrow it"
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
        """Where more probes would help, a sentence each."""
        own, probes = np.sqrt(np.diag(self.theta_covariance)), np.sqrt(np.diag(self.theta_error))
        ratio = float((probes / np.where(own > 0.0, own, np.inf)).max(initial=0.0))
        if ratio <= _MORE:
            return []
        wanted = int(np.ceil(self.n_probes * (ratio / (_MORE / 2)) ** 2 / 4) * 4)
        return [
            f"the probes moved a hyperparameter by {ratio:.0%} of its own uncertainty: n_probes={wanted} makes that "
            f"{_MORE / 2:.0%}"
        ]

    # -- a posterior -----------------------------------------------------------------------------------
    @property
    def posterior(self) -> IterativeFit:
        return self

    @property
    def solution(self) -> IterativeFit:
        return self

    @cached_property
    def latent_mean(self) -> np.ndarray:
        """The mean of the latents (L,), in the order of the family."""
        out = np.empty(self.task.layout.n_latents)
        out[self.task.layout.order] = self.state.m
        return out

    @cached_property
    def latent_estimates(self) -> Estimated:
        """The variances of the latents (L,) with their standard errors by the probes."""
        found = latent_variances(self.state)
        order, out = self.task.layout.order, []
        for values in (found.value, found.se):
            each = np.empty(values.size)
            each[order] = values
            out.append(each)
        return Estimated(*out)

    @property
    def latent_variance(self) -> np.ndarray:
        return self.latent_estimates.value

    def latents(self) -> NormalMarginals:
        return NormalMarginals(self.latent_mean, self.latent_variance)

    @cached_property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """E[eta] (N,)."""
        family = self.task.family
        return np.asarray(family.offset + self.task.layout.A @ self.latent_mean)

    @cached_property
    def variance(self) -> np.ndarray:  # type: ignore[override]
        """Var[eta] (N,), estimated."""
        keep, A = self.task.keep, self.task.layout.A
        out = np.empty(A.shape[0])
        out[keep] = self.state.rho
        others = np.setdiff1d(np.arange(A.shape[0]), keep)
        if others.size:
            out[others] = row_variances(self.state, A[others]).value
        return out

    def marginals_at(self, new: NewRows) -> NormalMarginals:
        """eta at other rows (M,): the variance of up to 100 rows by solves, of more by the probes."""
        if new.design is None or new.cross is not None:
            raise problem("predict", "rows given by a covariance", "design=..., rows over the latents")
        A = sp.csr_array(new.design)
        if A.shape[1] != self.latent_mean.size:
            raise problem("predict", f"design has shape {A.shape}", f"(M, {self.latent_mean.size})")
        h = np.asarray(A @ self.latent_mean) + np.asarray(new.offset, dtype=np.float64)
        return NormalMarginals(h, self.estimates(A).value + np.asarray(new.extra_variance, dtype=np.float64))

    def estimates(self, design: Any) -> Estimated:
        """The variance of eta at rows (M,), with its standard error by the probes: 0 where it was solved for."""
        A = sp.csr_array(design)
        if _same(A, self.task.layout.A):
            return Estimated(self.variance, np.full(A.shape[0], np.nan))
        return solved_variances(self.state, A, _SOLVED) if A.shape[0] <= _EXACT else row_variances(self.state, A)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draws (size, L) of the latents from q: P^-1 (Q^1/2 e + A' Lam^1/2 e') has covariance P^-1."""
        size, rng, system = count("sample", "size", size, 1), np.random.default_rng(rng), self.state.system
        out = np.empty((size, self.latent_mean.size))
        roots = [cholesky(q)[0] for q in system.Q[:-1]]
        edge = np.linalg.cholesky(system.Q[-1]) if system.p else system.Q[-1]
        for start in range(0, size, 32):
            m = min(32, size - start)
            e, parts, at = rng.standard_normal((self.latent_mean.size, m)), [], 0
            for root in roots:
                n = root.shape[0] * root.shape[1]
                parts.append(times(root, e[at : at + n]))
                at += n
            b = np.vstack([*parts, edge @ e[at:]])
            noise = np.sqrt(system.lam)[:, None] * rng.standard_normal((system.lam.size, m))
            b += self.task.rows.adjoint(noise)
            out[start : start + m][:, self.task.layout.order] = (self.state.m[:, None] + system.solve(b, 1e-6)[0]).T
        return out

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draws (size, N) of eta at the observations."""
        family = self.task.family
        return np.asarray(family.offset + (self.task.layout.A @ self.sample_latents(size, rng).T).T)

    def summary(self) -> str:
        """The certificate, then theta with its sds and its error by the probes."""
        own, probes = np.sqrt(np.diag(self.theta_covariance)), np.sqrt(np.diag(self.theta_error))
        names: Sequence[str] = [*self.task.family.names, *self.likelihood.theta_names]
        lines = [*self.stated(), "", f"{'hyperparameter':<34}{'value':>12}{'sd':>12}{'error':>12}"]
        lines += [f"{n:<34}{t:>12.4f}{s:>12.2g}{e:>12.2g}" for n, t, s, e in zip(names, self.theta, own, probes)]
        return "\n".join([*lines, *self.remarks])

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        return f"IterativeFit({word}, elbo={self.elbo:.2f}, gap={self.gap:.1e}, {self.n_probes} probes)"


def _same(A: sp.csr_array, B: sp.csr_array) -> bool:
    """Whether two designs have the same entries."""
    if A.shape != B.shape or A.nnz != B.nnz:
        return False
    return all(np.array_equal(getattr(A, key), getattr(B, key)) for key in ("indptr", "indices", "data"))
