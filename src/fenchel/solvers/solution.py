"""What a fit returns: two bounds, the gap between them, and the posterior.

Files keep the numbers of a fit (``kept_numbers``); ``restored`` evaluates q once at the sites where the solver ended.
The elbo and the gap are computed again there, and a file that claims more than the sites give is refused.
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
    """A fit with its certificate.

    Attributes
    ----------
    elbo : float
        A lower bound on log p(y), all constants included.
    elbo_upper : float
        No Gaussian q does better than this under the same bound.
    gap : float
        elbo_upper - elbo: a sum of nonnegative terms, ``rounding`` and ``quadrature``.
    rounding : float
        How far rounding may have moved the elbo: an estimate, some 1e-12 but where the prior variance is 1e8 times what
        the data leave of it, or more.
    quadrature : float
        How far the rule of points behind the expectations may have moved the elbo: the difference to another rule, for
        a softmax under ``bound="exact"``; elsewhere it is rounding, and 0 here. A fit ends where half of it hides what
        is missing, if that comes before tol.
    converged : bool
        gap <= tol * max(1, |elbo|); for a likelihood that is not log-concave, that the distance from stationarity is.
    optimal : bool
        The same without the rounding: nothing better can be told from this fit in double precision.
    certificate : str
        "duality"; "strong-concavity" for the exact mode and others without a dual (for some rivals the gap is then to
        the best q of their family); "stationarity" where nothing bounds what another q could gain: the gap is infinite.
    log_evidence : float
        The method's own estimate of log p(y): the elbo, but for Laplace and EP, which are not bounds.
    ending : Ending
        How the run ended: a code with its numbers.
    status : str
        The same as a sentence.
    n_iter, trace, posterior, method, tol, likelihood
    y : array (N,)
        The targets, NaN where they are unobserved or have weight 0.
    s, alpha, lam : arrays
        The mirror coordinate (N, P) and the dual variables (N, C) of all observations; of the contrasts of every two
        classes (N, P) for a softmax under ``bound="exact"``.
    """

    quadrature: float = 0.0
    in_partitions = False  # whether the rows of the fit are elsewhere
    proved_bounds: EvidenceBounds | None = None  # of log p(y), once they have been asked for

    def __init__(self, problem: Problem, outcome: Outcome, method: str, tol: float) -> None:
        point = outcome.point
        self._certify(outcome, problem.likelihood, outcome.method or method, tol)
        self.s = problem.full_s(point.s)
        self.alpha, self.lam = problem.full_alpha(point.alpha), problem.full_lam(point.lam)
        self._rows = problem.all_rows
        self.y = np.where(to_numpy(self._rows["weight"]) > 0.0, problem.y, np.nan)
        self.posterior: Posterior = point.posterior()

    def _certify(self, outcome: Any, likelihood: Likelihood, method: str, tol: float) -> None:
        """Take the certificate of where a run ended; what of a fit needs no rows."""
        point = outcome.point
        self.rounding, self.quadrature = float(point.rounding), float(point.quadrature)
        self.elbo, self.gap = point.elbo, point.gap + self.rounding + self.quadrature
        self.elbo_upper = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf
        self.certificate, self.log_evidence = point.certificate, point.log_evidence
        self.optimal, self._ran = optimal(point, tol), outcome.ending
        if self.optimal != self._ran.reached:  # the certificate judges, whatever a solver says of itself
            code, reason = ("converged", "") if self.optimal else ("ended", "the solver ended")
            self._ran = Ending(code, point.measure, relative(point), tol, reason)
        self._judge(tol)
        self.n_iter, self.trace, self.method = outcome.n_iter, outcome.trace, method
        self.likelihood = likelihood

    def judged_by(self, tol: float) -> Solution:
        """The same fit under the tolerance a search was asked for, if it met that while fitting more loosely."""
        allowed = tol * max(1.0, abs(self.elbo))
        missing = self.gap - self.rounding - self.quadrature
        if not (self.optimal and (missing <= allowed or self.tol <= tol or self.quadrature > 0.0)):
            return self
        out = copy.copy(self)
        out._judge(tol)
        return out

    def _judge(self, tol: float) -> None:
        """An optimal fit has converged unless rounding has moved its elbo by more than tol."""
        scale = max(1.0, abs(self.elbo))
        blurred = self.optimal and self.rounding > tol * scale
        self.tol, self.converged = tol, self.optimal and not blurred
        if blurred:
            self.ending = Ending.blurred(self.rounding, scale, tol)
        elif self.optimal and self.quadrature > tol * scale:
            note = f"its expectations are known to some {self.quadrature:.0e} nats in all"
            self.ending = replace(self._ran, tol=max(tol, self._ran.tol)).noting(note)
        else:
            self.ending = replace(self._ran, tol=tol)

    @property
    def status(self) -> str:
        return self.ending.sentence

    @property
    def n_observed(self) -> int:
        """Observations that carry information."""
        return int((to_numpy(self._rows["weight"]) > 0).sum())

    def likelihood_gradient(self) -> np.ndarray:
        """d elbo / d(the likelihood's own theta), by the envelope theorem; empty when it has none."""
        h, rho = (x if x.ndim == 2 else x[:, None] for x in (self.posterior.mean, self.posterior.variance))
        return self.likelihood.theta_gradient(h, rho, self._rows)

    def loo(self, rng: Seed = None) -> LeaveOneOut:
        """Leave-one-out predictive densities from the cavity of each observation: free, nothing is refitted."""
        return leave_one_out(self.likelihood, self.posterior, self.y, rng)

    @stated()
    def corrected(self) -> Corrected | Collapsed | Interpolated | ImportanceSample:
        """Evidence and marginals beyond the Gaussian, with each likelihood as it is: an estimate, not a bound.

        Effects of groups, intercepts or intercepts and slopes, are integrated out by quadrature where the fit has them.
        A likelihood with several predictors an observation gets an importance sample in its place, which has the same
        answers; ``method`` says which it is.
        """
        from ..corrections import correct

        return correct(self)

    @stated()
    def importance(self, draws: int = 4096, rng: Seed = 0) -> ImportanceSample:
        """Evidence and marginals by Pareto-smoothed importance sampling from q: exact in the limit of many draws."""
        from ..corrections.importance import importance

        return importance(self, draws, rng)

    @stated()
    def evidence_bounds(self, effort: str = "fast") -> EvidenceBounds:
        """log p(y) between two proved bounds, and how far q is from the posterior at most, at these hyperparameters.

        They hold for every q, converged or not. ``effort="high"`` spends more to bring them closer together.
        """
        from ..proofs import evidence_bounds

        self.proved_bounds = evidence_bounds(self, effort)
        return self.proved_bounds

    def summary(self) -> str:
        """A page for a statistician: the certificate first, then the evidence, then the fit."""
        post, n = self.posterior, self._rows["weight"].shape[0]
        work = f"{self.method}, {self.n_iter} iterations, {self.trace['seconds'][-1]:.3f} s"
        lines = self._summary_lines(f"{n}, of which {self.n_observed} observed", "solver", work)
        lines.append(_line("", "".join(f"{name:>11}" for name in ("min", "25 %", "median", "75 %", "max"))))
        for word, values in (("mean", to_numpy(post.mean)), ("sd", np.sqrt(to_numpy(post.variance)))):
            quantiles = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0])
            lines.append(_line(f"posterior {word} of eta", "".join(f"{v:>11.4g}" for v in quantiles)))
        return "\n".join(lines)

    def _summary_lines(self, observations: str, worker: str, work: str) -> list[str]:
        """What a summary says of any fit."""
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
    """What a file keeps of a fit."""
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
    """The fit of a problem from what ``kept_numbers`` gave."""
    method, trace = str(numbers["method"]), Trace.of(numbers["trace"])
    outcome = Outcome(RestoredPoint(problem, numbers), numbers["ending"], int(numbers["n_iter"]), trace, method)
    return Solution(problem, outcome, method, float(numbers["tol"]))


class RestoredPoint:
    """The iterate at which a fit ended, with the certificate that it had there."""

    measure, resolution = "relative gap", 0.0

    def __init__(self, problem: Problem, numbers: dict[str, Any]) -> None:
        n, active = problem.n_observations, problem.active
        each = {name: np.asarray(numbers[name], dtype=np.float64) for name in ("s", "alpha", "lam")}
        width = problem.mt.shape[1]
        if any(x.ndim != 2 or len(x) != n for x in each.values()):
            raise ValueError("the numbers of a fit have another shape than its rows")
        if each["alpha"].shape != (n, width) or each["lam"].shape != (n, width):
            raise ValueError("the sites of a fit have another shape than its rows")
        s, alpha, lam = (asarray(x[active], problem.weight) for x in each.values())
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
        """Refuse an elbo that is not that of the sites, and a gap that is smaller than what they prove."""
        there, allowed = self._point, _AGREE * max(1.0, abs(self.elbo)) + 2.0 * (self.rounding + self.quadrature)
        if not abs(there.elbo - self.elbo) <= allowed:
            raise ValueError("the elbo of a fit is not that of its sites")
        if self.gap < 0.0 or min(self.rounding, self.quadrature) < 0.0:
            raise ValueError("the gap of a fit is negative")
        if not _missing(there, self.s, self.certificate) <= self.gap + allowed:
            raise ValueError("the gap of a fit is not that of its sites")

    @property
    def dual(self) -> float:
        """The upper bound."""
        return self.elbo + self.gap

    def posterior(self) -> Posterior:
        """q(z) at this point."""
        return self._point.posterior()


def _missing(there: PrimalPoint, s: Array, certificate: str) -> float:
    """What the best elbo is above that of a point, at least: by its dual where that is the certificate, else by the
    point whose sites have the slopes of this one."""
    problem = there.problem
    if certificate == "duality" and problem.bound.convex:
        site, w = problem.site(s), problem.weight
        apart = np.abs(to_numpy(w[:, None] * site.alpha - there.alpha)).max(initial=0.0)
        if not apart <= _AGREE * max(1.0, np.abs(to_numpy(there.alpha)).max(initial=0.0)):
            return np.inf
        each = to_numpy(w) * to_numpy(problem.gaps(s, there.h, there.rho))
        return float(np.sum(each[to_numpy(w) > 0.0]))
    better = PrimalPoint(problem, *there.loss.slopes, None)
    return max(0.0, better.elbo - there.elbo)


def _active_weights(problem: Problem, weights: Any) -> list[Array] | None:
    """X' alpha of the active rows, from those of all rows."""
    if weights is None:
        return None
    given = [asarray(np.asarray(u, dtype=np.float64), problem.weight) for u in weights]
    own = problem.all_predictors.weights_of(problem.fixed_alpha) or []
    if [u.shape for u in own] != [u.shape for u in given]:
        raise ValueError("the weights of a fit have another shape than its features")
    return [u - v for u, v in zip(given, own, strict=True)]
