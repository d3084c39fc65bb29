"""``Solution``, the result of a fit: lower and upper bound, the gap between them, and the posterior.

Files store the numbers of a fit (``kept_numbers``). ``restored`` evaluates q at the stored sites, computes the elbo
and the gap again, and refuses a file whose claims exceed them.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import Stored, stated
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, Seed, asarray, to_numpy
from ..posterior import Posterior
from ..primal import PrimalPoint
from ..problem import Problem
from ..row_scores import LeaveOneOut, leave_one_out
from .base import Ending, Outcome, Trace, optimal, relative

if TYPE_CHECKING:
    from ..corrections import Corrected
    from ..corrections.collapsed import Collapsed
    from ..corrections.importance import ImportanceSample
    from ..corrections.interpolated import Interpolated
    from ..proofs import EvidenceBounds

_CERTIFICATE = ("elbo", "rounding", "quadrature", "certificate", "log_evidence", "optimal")
_RUN = ("tol", "n_iter", "method")
_AGREE = 1e-9  # relative difference of the elbos, or gaps, of the same sites on two machines


class Solution(Stored):
    """The result of ``infer``: the posterior and its certificate.

    Attributes
    ----------
    posterior : Posterior
        The Gaussian q(z), with the marginals of eta and predictions.
    elbo : float
        Lower bound on log p(y), in nats, with all constants.
    elbo_upper : float
        Upper bound on the elbo of every Gaussian q, under the same bound on the likelihood.
    gap : float
        elbo_upper - elbo: a sum of nonnegative terms, plus ``rounding`` and ``quadrature``.
    rounding : float
        Estimate of the rounding error of the elbo: about 1e-12, more if the prior variance is over 1e8 times the
        posterior one.
    quadrature : float
        Estimate of the quadrature error of the elbo, from a second rule, for a softmax under ``bound="exact"``; else 0.
        A fit also ends if half of it exceeds the remaining gap.
    converged : bool
        Whether gap <= tol * max(1, |elbo|). For a likelihood that is not log-concave: whether the distance from
        stationarity is that small.
    optimal : bool
        The same without ``rounding``: double precision resolves no better point.
    certificate : {"duality", "strong-concavity", "stationarity"}
        Where the gap comes from. "strong-concavity": for bounds without a dual, such as exact expectations.
        "stationarity": another q may have a larger elbo, and the gap is infinite.
    log_evidence : float
        Estimate of log p(y): the elbo, except for Laplace and EP, whose estimates are not bounds.
    status : str
        A sentence on how the run ended; ``ending`` has its code and numbers.
    n_iter : int
        Number of iterations.
    trace : Trace
        ``trace["elbo"]``, "gap", "seconds" and others, one entry for each iteration.
    method, tol, likelihood
        The name of the solver, the relative tolerance and the likelihood of the fit.
    y : array (N,)
        The targets; NaN if unobserved or of weight 0.
    s, alpha, lam : arrays (N, P), (N, C), (N, C)
        Mirror coordinates and dual variables of all observations. For a softmax under ``bound="exact"`` they belong to
        the contrasts of every two classes, (N, P).

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> solution = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(3)), [0, 1, 4])
    >>> solution.converged, solution.certificate, bool(solution.elbo <= solution.elbo_upper)
    (True, 'duality', True)
    >>> solution.posterior.mean.shape, solution.loo().log_density.shape
    ((3,), (3,))
    """

    quadrature: float = 0.0
    in_partitions = False  # whether the rows of the fit are in Dask partitions
    proved_bounds: EvidenceBounds | None = None  # the last result of ``evidence_bounds``

    def __init__(self, problem: Problem, outcome: Outcome, method: str, tol: float) -> None:
        point = outcome.point
        self._certify(outcome, problem.likelihood, outcome.method or method, tol)
        self.s = problem.full_s(point.s)
        self.alpha, self.lam = problem.full_alpha(point.alpha), problem.full_lam(point.lam)
        self._rows = problem.all_rows
        self.y = np.where(to_numpy(self._rows["weight"]) > 0.0, problem.y, np.nan)
        self.posterior: Posterior = point.posterior()

    def _certify(self, outcome: Any, likelihood: Likelihood, method: str, tol: float) -> None:
        """Set the attributes that need no rows from the point where the run ended."""
        point = outcome.point
        self.rounding, self.quadrature = float(point.rounding), float(point.quadrature)
        self.elbo, self.gap = point.elbo, point.gap + self.rounding + self.quadrature
        self.elbo_upper = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf
        self.certificate, self.log_evidence = point.certificate, point.log_evidence
        self.optimal, self._ran = optimal(point, tol), outcome.ending
        if self.optimal != self._ran.reached:  # the certificate decides, not the solver's own report
            code, reason = ("converged", "") if self.optimal else ("ended", "the solver ended")
            self._ran = Ending(code, point.measure, relative(point), tol, reason)
        self._judge(tol)
        self.n_iter, self.trace, self.method = outcome.n_iter, outcome.trace, method
        self.likelihood = likelihood

    def judged_by(self, tol: float) -> Solution:
        """The same fit with the smaller tolerance ``tol``, if its gap satisfies that too."""
        allowed = tol * max(1.0, abs(self.elbo))
        missing = self.gap - self.rounding - self.quadrature
        if not (self.optimal and (missing <= allowed or self.tol <= tol or self.quadrature > 0.0)):
            return self
        out = copy.copy(self)
        out._judge(tol)
        return out

    def _judge(self, tol: float) -> None:
        """Set ``converged`` and ``ending``: an optimal fit has converged unless rounding exceeds the tolerance."""
        scale = max(1.0, abs(self.elbo))
        blurred = self.optimal and self.rounding > tol * scale
        self.tol, self.converged = tol, self.optimal and not blurred
        if blurred:
            self.ending = Ending.blurred(self.rounding, scale, tol)
        elif self.optimal and self.quadrature > tol * scale:
            note = f"the quadrature error of its elbo is some {self.quadrature:.0e} nats"
            self.ending = replace(self._ran, tol=max(tol, self._ran.tol)).noting(note)
        else:
            self.ending = replace(self._ran, tol=tol)

    @property
    def status(self) -> str:
        return self.ending.sentence

    @property
    def n_observed(self) -> int:
        """Number of observations with weight above 0."""
        return int((to_numpy(self._rows["weight"]) > 0).sum())

    def likelihood_gradient(self) -> np.ndarray:
        """Gradient of the elbo with respect to the parameters theta of the likelihood; empty if it has none."""
        h, rho = (x if x.ndim == 2 else x[:, None] for x in (self.posterior.mean, self.posterior.variance))
        return self.likelihood.theta_gradient(h, rho, self._rows)

    def loo(self, rng: Seed = None) -> LeaveOneOut:
        """Leave-one-out predictive densities, from the cavity distribution of each observation, without refitting.

        Parameters
        ----------
        rng : numpy Generator or int, optional
            For likelihoods whose predictive density is an average over draws.
        """
        return leave_one_out(self.likelihood, self.posterior, self.y, rng)

    @stated()
    def corrected(self) -> Corrected | Collapsed | Interpolated | ImportanceSample:
        """Correct the evidence and the marginals for the skewness of the exact posterior: an estimate, not a bound.

        The method depends on the model, and ``method`` of the result names it: an expansion about q; quadrature over
        the random intercepts (and slopes) of groups; or importance sampling, for likelihoods with several predictors.

        Returns
        -------
        Corrected or another result with ``log_evidence``, ``log_evidence_se``, ``mean``, ``quantile`` and ``predict``
        """
        from ..corrections import correct

        return correct(self)

    @stated()
    def importance(self, draws: int = 4096, rng: Seed = 0) -> ImportanceSample:
        """Evidence and marginals by Pareto-smoothed importance sampling from q.

        Parameters
        ----------
        draws : int, default 4096
            Number of draws; the result is exact in the limit of many.
        rng : numpy Generator or int, default 0

        Returns
        -------
        ImportanceSample
            With ``k_hat``, which says whether the draws suffice.
        """
        from ..corrections.importance import importance

        return importance(self, draws, rng)

    @stated()
    def evidence_bounds(self, effort: str = "fast") -> EvidenceBounds:
        """Proved lower and upper bounds on log p(y), and on the distance of q from the exact posterior.

        They hold at the given hyperparameters, for every q, converged or not.

        Parameters
        ----------
        effort : {"fast", "high"}, default "fast"
            "high" takes longer and gives closer bounds.
        """
        from ..proofs import evidence_bounds

        self.proved_bounds = evidence_bounds(self, effort)
        return self.proved_bounds

    def summary(self) -> str:
        """A text summary: the certificate, the evidence, the observations and the moments of eta."""
        post, n = self.posterior, self._rows["weight"].shape[0]
        work = f"{self.method}, {self.n_iter} iterations, {self.trace['seconds'][-1]:.3f} s"
        lines = self._summary_lines(f"{n}, of which {self.n_observed} observed", "solver", work)
        lines.append(_line("", "".join(f"{name:>11}" for name in ("min", "25 %", "median", "75 %", "max"))))
        for word, values in (("mean", to_numpy(post.mean)), ("sd", np.sqrt(to_numpy(post.variance)))):
            quantiles = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0])
            lines.append(_line(f"posterior {word} of eta", "".join(f"{v:>11.4g}" for v in quantiles)))
        return "\n".join(lines)

    def _summary_lines(self, observations: str, worker: str, work: str) -> list[str]:
        """The lines of the summary that every kind of fit has."""
        word = "converged" if self.converged else "NOT CONVERGED"
        if self.converged and self.certificate == "stationarity":
            word = "stationary"
        relative_gap = self.gap / max(1.0, abs(self.elbo))
        best = f"no Gaussian gives more than {self.elbo_upper:.6f}"
        best = best if np.isfinite(self.elbo_upper) else "another stationary point may give more"
        return [
            f"{self.likelihood!r}: {word}, by its {self.certificate} certificate",
            _line(
                "duality gap" if self.certificate == "duality" else "gap",
                f"{self.gap:.3e}  (relative {relative_gap:.1e}, asked {self.tol:.1e})",
            ),
            _line("log evidence", f"at least {self.elbo:.6f} (elbo); {best}"),
            _line("observations", observations),
            _line(worker, work),
            _line("status", self.status),
        ]

    def __repr__(self) -> str:
        word = "converged" if self.converged else "not converged"
        return f"Solution({word}, elbo={self.elbo:.6f}, gap={self.gap:.1e}, n_iter={self.n_iter})"


def _line(name: str, text: str) -> str:
    return f"  {name:<22}{text}"


def kept_numbers(solution: Solution) -> dict[str, Any]:
    """The numbers of a fit that a file stores."""
    known, gap = vars(solution), solution.gap - solution.rounding - solution.quadrature
    weights = None if solution.likelihood.objective.over_contrasts is not None else solution.posterior.weights
    return {
        **{name: known[name] for name in (*_CERTIFICATE, *_RUN)},
        "gap": gap,
        "ending": solution._ran,
        "trace": np.array(solution.trace._rows),
        **{name: to_numpy(known[name]) for name in ("s", "alpha", "lam")},
        "weights": None if weights is None else [to_numpy(u) for u in weights],
    }


def restored(problem: Problem, numbers: dict[str, Any]) -> Solution:
    """The fit of a problem from the result of ``kept_numbers``."""
    method, trace = str(numbers["method"]), Trace.of(numbers["trace"])
    outcome = Outcome(RestoredPoint(problem, numbers), numbers["ending"], int(numbers["n_iter"]), trace, method)
    return Solution(problem, outcome, method, float(numbers["tol"]))


class RestoredPoint:
    """The last iterate of a stored fit, with its certificate."""

    measure, resolution = "relative gap", 0.0

    def __init__(self, problem: Problem, numbers: dict[str, Any]) -> None:
        n, active = problem.n_observations, problem.active
        arrays = {name: np.asarray(numbers[name], dtype=np.float64) for name in ("s", "alpha", "lam")}
        width = problem.mt.shape[1]
        if any(x.ndim != 2 or len(x) != n for x in arrays.values()):
            raise ValueError("the numbers of a fit have another shape than its rows")
        if arrays["alpha"].shape != (n, width) or arrays["lam"].shape != (n, width):
            raise ValueError("the sites of a fit have another shape than its rows")
        s, alpha, lam = (asarray(x[active], problem.weight) for x in arrays.values())
        fixed = problem.fixed_alpha
        alpha = alpha - asarray(to_numpy(fixed)[active], problem.weight)
        self._point = PrimalPoint(problem, alpha, lam, None, weights=_active_weights(problem, numbers["weights"]))
        self.s, self.alpha, self.lam = s, alpha, lam
        self.elbo, self.gap = float(numbers["elbo"]), float(numbers["gap"])
        self.rounding, self.quadrature = float(numbers["rounding"]), float(numbers["quadrature"])
        self.certificate, self.log_evidence = str(numbers["certificate"]), float(numbers["log_evidence"])
        self.shortfall = 0.0 if numbers["optimal"] else np.inf
        self._check()

    def _check(self) -> None:
        """Refuse an elbo that differs from that of the sites, and a gap that is smaller than theirs."""
        point, allowed = self._point, _AGREE * max(1.0, abs(self.elbo)) + 2.0 * (self.rounding + self.quadrature)
        if not abs(point.elbo - self.elbo) <= allowed:
            raise ValueError("the elbo of a fit is not that of its sites")
        if self.gap < 0.0 or min(self.rounding, self.quadrature) < 0.0:
            raise ValueError("the gap of a fit is negative")
        if not _missing(point, self.s, self.certificate) <= self.gap + allowed:
            raise ValueError("the gap of a fit is not that of its sites")

    @property
    def dual(self) -> float:
        """The upper bound on the elbo of every Gaussian q."""
        return self.elbo + self.gap

    def posterior(self) -> Posterior:
        """q(z) at this point."""
        return self._point.posterior()


def _missing(point: PrimalPoint, s: Array, certificate: str) -> float:
    """Lower bound on the best elbo minus the elbo of a point: by the dual if that is the certificate, else by the
    elbo of the point whose sites are the slopes of the likelihood at this one."""
    problem = point.problem
    if certificate == "duality" and problem.bound.convex:
        site, w = problem.site(s), problem.weight
        apart = np.abs(to_numpy(w[:, None] * site.alpha - point.alpha)).max(initial=0.0)
        if not apart <= _AGREE * max(1.0, np.abs(to_numpy(point.alpha)).max(initial=0.0)):
            return np.inf
        gaps = to_numpy(w) * to_numpy(problem.gaps(s, point.h, point.rho))
        return float(np.sum(gaps[to_numpy(w) > 0.0]))
    better = PrimalPoint(problem, *point.loss.slopes, None)
    return max(0.0, better.elbo - point.elbo)


def _active_weights(problem: Problem, weights: Any) -> list[Array] | None:
    """W' alpha of the active rows, from that of all rows."""
    if weights is None:
        return None
    given = [asarray(np.asarray(u, dtype=np.float64), problem.weight) for u in weights]
    own = problem.all_predictors.weights_of(problem.fixed_alpha) or []
    if [u.shape for u in own] != [u.shape for u in given]:
        raise ValueError("the weights of a fit have another shape than its features")
    return [u - v for u, v in zip(given, own, strict=True)]
