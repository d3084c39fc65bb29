"""q(z) = N(m, V), V^-1 = P + K, and its certificate: all that the process of a fit holds.

    KL[q || p] = 1/2 (log|P + K| - log|P| - tr K V + (m - mu)' P (m - mu))

At (m, V) a pass brings W' alpha and K+ = W' Lam W, the sums over rows of what alpha and lam are there. Under a bound
with a dual those alpha and lam are a point of it, whose value the rows reach. So all of the gap lies between q and the
prior, and needs no further pass:

    D - P = 1/2 r' P^-1 r + 1/2 (tr V E - log|P + K+| + log|P + K|),     r = P (m - mu) + W' alpha,   E = K+ - K

Without a dual the residuals bound what is missing by strong concavity (``primal.py``):

    best P - P <= 1/2 r' P^-1 r + 1/2 tr E V E P^-1

The next q: Newton's step in the means, the natural gradient's in the precision, theta to where both put it.

Seen from q the rows are a parabola in the means, of slope a = W' alpha and curvature H = W' (d2f/dh2) W, and a constant
K+ in the precision. With dm and do the changes of the means and of the likelihood's own parameters, g and C the slope
and curvature of the latter, and X how W' alpha moves with them,

    J(theta) = max_{dm, do} [ -1/2 |m + dm - mu|_P^2 - dm' a - 1/2 dm' H dm + do' g - 1/2 do' C do - do' X dm ]
               - 1/2 log|P + K+| + 1/2 log|P| + log p(theta)

is maximised without a pass. It leaves out how the rows' curvature bends with rho, of relative size rho itself: with
many rows to a weight that is little, and each pass leaves a share of that order. Where it is not, ``StepHistory``
extrapolates from the last few steps (Anderson's method), in the metric of q.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import EPS
from ..solvers.solution import Solution
from .partitions import Sums
from .precision import PartitionedPrior, PriorPrecision
from .row_sums import At

THETA_LIMIT = 4.0  # log units: the longest step of an entry of theta in one pass
OWN_LIMIT = 2.0  # log units: the same for the likelihood's own parameters
_DIFFERENCE = 1e-4  # log units: the differences of theta in the Newton steps that end its search
_DEPTH = 6  # earlier steps that an extrapolation uses
_SLOW = 1e-3  # ratio of two steps; a step that is shorter than this is not extrapolated
_SUM_ROUNDING = 4.0  # root mean squares of the rounding of sums, as in ``elbo_rounding``
_LOG_DET_ROUNDING = 8.0  # the same of log determinants


class ApproximationStep(NamedTuple):
    """A change of q: of the mean, of what rows add to the precision, and of the hyperparameters. Also a place of q."""

    mean: np.ndarray
    gram: np.ndarray
    theta: np.ndarray
    own: np.ndarray

    def plus(self, other: ApproximationStep, t: float = 1.0) -> ApproximationStep:
        """The sum of this and t times the other."""
        return ApproximationStep(*(a + t * b for a, b in zip(self, other, strict=True)))


class Approximation:
    """q(z): the mean (L, C) and what rows have added to the precision, at given hyperparameters.

    Raises NotPositiveDefinite where P + K is no precision.
    """

    def __init__(
        self,
        prior: PartitionedPrior,
        theta: np.ndarray,
        own: np.ndarray,
        mean: np.ndarray,
        gram: np.ndarray,
        precision: PriorPrecision | None = None,
    ) -> None:
        self.prior, self.theta, self.own, self.mean, self.gram = prior, theta, own, mean, gram
        self.precision: PriorPrecision = prior.at(theta) if precision is None else precision
        self.factor: Any = self.precision.plus(gram)
        self.norm = self.precision.norm(mean)
        self.kl = 0.5 * (self.factor.log_det - self.factor.trace + self.norm)

    @property
    def place(self) -> ApproximationStep:
        """Its parameters."""
        return ApproximationStep(self.mean, self.gram, self.theta, self.own)

    @property
    def posterior(self) -> Any:
        """It, as a fit returns it."""
        return self.prior.posterior(self)

    def at(self) -> At:
        """Where rows are to be evaluated."""
        return At(self.mean, self.factor.spread, self.own)

    def scaled(self, step: ApproximationStep) -> np.ndarray:
        """A step in units of q's own spread, one vector."""
        size = np.sqrt(self.mean.shape[0] / 2.0)
        return np.concatenate([self.factor.scaled(step.mean, step.gram), size * step.theta, size * step.own])


class EvaluatedApproximation:
    """q with the sums of a pass over the rows.

    Attributes
    ----------
    elbo, gap, dual : float
        As of every fit; the gap is infinite where a likelihood that is not log-concave leaves no proof.
    shortfall : float
        What a solver drives to 0.
    objective : float
        elbo + log p(theta), of the likelihood's own parameters too.
    """

    quadrature = resolution = 0.0

    def __init__(self, q: Approximation, sums: Sums, bound: Any, log_prior: float) -> None:
        self.q, self.sums, convex = q, sums, bound.convex
        self.elbo = -q.kl - sums["value"]
        self.elbo = self.elbo if np.isfinite(self.elbo) else -np.inf
        self.objective, self.log_evidence = self.elbo + log_prior, self.elbo
        proved = convex or bound.log_concave
        self.certificate = "duality" if convex else "strong-concavity" if proved else "stationarity"
        self.measure = "relative gap" if proved else "relative distance from stationarity"
        self.shortfall = self._shortfall(convex)
        self.gap = self.shortfall if proved else np.inf
        self.dual = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf

    def _shortfall(self, convex: bool) -> float:
        if not np.isfinite(self.elbo):
            return np.inf
        q, sums = self.q, self.sums
        total = q.precision.residual(q.mean, sums["adjoint"]) + q.factor.divergence(sums["gram"] - q.gram, convex)
        return 0.5 * total if total == total else np.inf

    @property
    def rounding(self) -> float:
        """How far rounding may have moved the elbo, as in ``elbo_rounding``, sums in pairs taken for single ones."""
        if not np.isfinite(self.elbo):
            return np.inf
        sums = EPS * (float(self.sums["square"]) + self.elbo**2 + self.q.norm**2) ** 0.5
        return float(_SUM_ROUNDING * sums + _LOG_DET_ROUNDING * self.q.factor.log_det_rounding)


@dataclass(frozen=True)
class Learning:
    """Which hyperparameters are learned: the prior's, and with ``own`` those of that likelihood, within bounds."""

    theta: bool = False
    own: Likelihood | None = None
    own_bounds: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))

    @classmethod
    def of(cls, theta: bool, own: Likelihood | None, y: np.ndarray, weights: np.ndarray | None = None) -> Learning:
        """The bounds of a likelihood's own parameters are by y with weights, and hold where they start."""
        if own is None:
            return cls(theta)
        start, (low, high) = own.theta, own.theta_bounds(y, weights).T
        return cls(theta, own, np.stack([np.minimum(low, start), np.maximum(high, start)], axis=1))

    def log_prior(self, q: Approximation) -> float:
        """log p of all that is learned."""
        value = q.prior.log_prior(q.theta)[0] if q.theta.size else 0.0
        return float(value + (0.0 if self.own is None else self.own.log_prior(q.own)[0]))

    def at(self, q: Approximation) -> np.ndarray:
        """What is learned, at q: theta, then the likelihood's own."""
        return np.append(q.theta if self.theta else np.zeros(0), q.own if self.own is not None else np.zeros(0))

    def bounds(self, q: Approximation) -> np.ndarray:
        """Of the same, (n, 2)."""
        own = self.own_bounds if self.own is not None else np.zeros((0, 2))
        return np.concatenate([q.prior.bounds if self.theta else np.zeros((0, 2)), own])

    def rising(self, q: Approximation, slopes: np.ndarray) -> float:
        """The largest slope within the bounds."""
        x = self.at(q)
        return float(np.abs(np.clip(x + slopes, *self.bounds(q).T) - x).max(initial=0.0)) if x.size else 0.0

    def moved(self, q: Approximation, step: ApproximationStep, t: float = 1.0) -> Approximation:
        """q after t times a step; hyperparameters stay within their bounds. Raises NotPositiveDefinite."""
        mean, gram, theta, own = q.place.plus(step, t)
        theta = np.clip(theta, *q.prior.bounds.T) if theta.size else theta
        own = own if self.own is None else np.clip(own, *self.own_bounds.T)
        return Approximation(q.prior, theta, own, mean, gram)


class QuadraticModel:
    """The rows as seen from an iterate: J of the module's docstring, with its slopes and its maximum.

    Called with all hyperparameters, theta and then the likelihood's own, it is the evidence near its mode: J and its
    slopes, without a further pass. ``bounds`` are theirs.
    """

    def __init__(self, point: EvaluatedApproximation, learning: Learning) -> None:
        self.q, self.learning, sums = point.q, learning, point.sums
        self.best, self.bounds = self.q, learning.bounds(self.q)
        self.a, self.H, self.K = sums["adjoint"].T.ravel(), sums["curvature"], sums["gram"]
        self.own_slope, self.C, self.X = np.zeros(0), np.zeros((0, 0)), np.zeros((0, self.a.size))
        if learning.own is not None:
            self.own_slope = sums["own_slope"] + learning.own.log_prior(self.q.own)[1]
            self.X, self.C = sums["own_cross"], _definite(sums["own_curvature"])

    def solved(self, precision: PriorPrecision, held: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, float]:
        """dm (L, C), do and the value of the parabola there; do as it is ``held``, where it is."""
        q, g, X = self.q, self.own_slope, self.X
        solve, r = precision.solver(self.H, self.K), precision.times(q.mean).T.ravel() + self.a
        do = np.zeros(g.size) if held is None else held
        if held is None and g.size:
            S = self.C - X @ solve(X.T)
            S = S if np.linalg.eigvalsh(S)[0] > 0.0 else self.C
            do = np.linalg.solve(S, g + X @ solve(r))
        r = r + X.T @ do
        dm = -solve(r)
        value = -0.5 * precision.norm(q.mean) - 0.5 * float(r @ dm) + float(do @ g) - 0.5 * float(do @ self.C @ do)
        return dm.reshape(q.mean.T.shape).T, do, value

    def promised_rise(self) -> float:
        """By how much the step at the present theta raises the objective: in the means, and in the precision."""
        q = self.q
        means = self.solved(q.precision)[2] + 0.5 * q.norm
        return means + 0.5 * float(q.factor.divergence(self.K - q.gram, True))

    def slope_along(self, change: ApproximationStep) -> float:
        """Of the objective, where q changes so."""
        q = self.q
        r = q.precision.times(q.mean) + self.a.reshape(q.mean.T.shape).T
        return 0.5 * float(q.factor.sandwich(self.K - q.gram, change.gram)) - float(np.sum(r * change.mean))

    def value(self, theta: np.ndarray, held: np.ndarray | None = None) -> tuple[Approximation, float, np.ndarray]:
        """The best q at theta, J there, and its slopes in theta. Raises NotPositiveDefinite."""
        q, precision = self.q, self.q.prior.at(theta)
        dm, _, value = self.solved(precision, held)
        best = Approximation(q.prior, theta, q.own, q.mean + dm, self.K, precision)
        log_prior, slope = q.prior.log_prior(theta)
        return best, value - 0.5 * best.factor.log_det + log_prior, q.prior.gradient(best) + slope

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        own = theta[self.q.theta.size :] - self.q.own
        self.best, J, slope = self.value(theta[: self.q.theta.size], own)
        dm = (self.best.mean - self.q.mean)[:, 0]
        return J, np.append(slope, self.own_slope - self.C @ own - self.X @ dm)

    @property
    def solution(self) -> Any:
        """The posterior at the hyperparameters that were asked last."""
        return self.best.posterior

    def slopes(self, theta: np.ndarray) -> np.ndarray:
        """Of J in theta."""
        return self.value(theta)[2]

    def best_theta(self) -> tuple[np.ndarray, np.ndarray]:
        """The best theta within ``THETA_LIMIT``, and the slopes of J at the present one."""
        q, bounds = self.q, self.q.prior.bounds
        try:
            slope = self.slopes(q.theta)
        except NotPositiveDefinite:
            return q.theta, np.full(q.theta.size, np.inf)
        near = np.clip(np.stack([q.theta - THETA_LIMIT, q.theta + THETA_LIMIT], axis=1), *bounds.T[:, :, None])
        scale = 1.0 / max(1.0, float(np.linalg.norm(slope)))  # its first step is then one e-fold at most

        def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
            _, J, gradient = self.value(theta)
            return -scale * J, -scale * gradient

        options = {"ftol": 1e-15, "gtol": 1e-9 * scale, "maxiter": 200}
        found = minimize(negative, q.theta, jac=True, method="L-BFGS-B", bounds=near, options=options)
        theta = np.asarray(found.x)
        return (self._polished(theta, near) if theta.size <= q.prior.polished else theta), slope

    def _polished(self, theta: np.ndarray, near: np.ndarray) -> np.ndarray:
        """theta after two of Newton's steps: the search ends where J is flat to rounding."""
        slope, steps = self.slopes(theta), _DIFFERENCE * np.eye(theta.size)
        free = (theta > near[:, 0] + 2 * _DIFFERENCE) & (theta < near[:, 1] - 2 * _DIFFERENCE)
        for _ in range(2 * bool(free.any())):
            bend = np.array([(self.slopes(theta + d) - self.slopes(theta - d))[free] for d in steps[free]])
            try:
                move = np.zeros(theta.size)
                move[free] = np.linalg.solve(-bend / (2 * _DIFFERENCE), slope[free])
                ahead = self.slopes(theta + move) if np.abs(move).max() < _DIFFERENCE else slope
            except (np.linalg.LinAlgError, NotPositiveDefinite):
                break
            if not np.abs(ahead[free]).max() < np.abs(slope[free]).max():
                break
            theta, slope = theta + move, ahead
        return theta

    def step(self) -> tuple[ApproximationStep, np.ndarray]:
        """The step from q, and the slopes of J there in what is learned: theta, then the likelihood's own."""
        q, learning, theta, slopes = self.q, self.learning, self.q.theta, np.zeros(0)
        if learning.theta and theta.size:
            theta, slopes = self.best_theta()
        precision = q.prior.at(theta)
        dm, own, _ = self.solved(precision)
        if learning.own is None:
            own = np.zeros(q.own.size)
        else:
            slopes = np.append(slopes, self.own_slope)
            held = np.clip(q.own + np.clip(own, -OWN_LIMIT, OWN_LIMIT), *learning.own_bounds.T) - q.own
            if not np.array_equal(held, own):
                dm, own, _ = self.solved(precision, held)
        return ApproximationStep(dm, self.K - q.gram, theta - q.theta, own), slopes


@dataclass
class StepHistory:
    """The last steps, and the extrapolation that they suggest."""

    before: list[tuple[ApproximationStep, ApproximationStep]] = field(
        default_factory=list
    )  # (where, the step from there)

    def extrapolated(self, q: Approximation, step: ApproximationStep) -> ApproximationStep | None:
        """Anderson's step; None where the plain one leaves little, or nothing is known yet."""
        here, earlier = q.place, self.before
        self.before = [*earlier[-_DEPTH + 1 :], (here, step)]
        if not earlier:
            return None
        now, last = q.scaled(step), q.scaled(earlier[-1][1])
        if np.linalg.norm(now) < _SLOW * np.linalg.norm(last):
            return None
        D = np.stack([now - q.scaled(r) for _, r in earlier], axis=1)
        share = np.linalg.lstsq(D, now, rcond=1e-8)[0]
        if not np.isfinite(share).all() or np.abs(share).sum() > 1e4:
            return None
        out = step
        for weight, (x, r) in zip(share.tolist(), earlier, strict=True):
            change = here.plus(x, -1.0).plus(step.plus(r, -1.0))
            out = out.plus(change, -weight)
        return out


def _definite(C: np.ndarray) -> np.ndarray:
    """C with its eigenvalues made positive."""
    values, vectors = np.linalg.eigh(0.5 * (C + C.T))
    size = np.maximum(np.abs(values), 1e-12 * max(1.0, float(np.abs(values).max(initial=0.0))))
    return np.asarray((vectors * size) @ vectors.T)


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

    n_observed: int = 0
    in_partitions = True

    def __init__(self, outcome: Any, likelihood: Likelihood, tol: float, n_passes: int) -> None:
        point, ending = outcome.point, outcome.ending
        if ending.reached and point.certificate == "stationarity":
            doubt = f"; {likelihood.name} is not log-concave, so another stationary point may be better"
            outcome = replace(outcome, ending=replace(ending, code="stationary", advice=doubt))
        self._certify(outcome, likelihood, "passes over partitions", tol)
        self.n_observed, self.n_passes = int(point.sums["n"]), n_passes
        self.posterior: Any = point.q.posterior

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"PartitionedSolution: {name} needs the rows of the fit, which are in partitions and not held here. "
            "Fit a sample of them in memory for it."
        )

    def summary(self) -> str:
        """The certificate first, then the evidence and the work."""
        work = f"{self.n_passes} passes over all rows, {self.trace['seconds'][-1]:.3f} s"
        return "\n".join(self._summary_lines(str(self.n_observed), "work", work))

    def __repr__(self) -> str:
        word = "converged" if self.converged else "not converged"
        return f"PartitionedSolution({word}, elbo={self.elbo:.6f}, gap={self.gap:.1e}, n_passes={self.n_passes})"
