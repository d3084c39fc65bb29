"""``Integrated``, the result of ``integrate``: a mixture over fits at several theta, weighted by their evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from ...checks import count, problem
from ...files import Stored
from ...likelihoods.base import Likelihood
from ...linalg.arrays import Seed, to_numpy
from ...marginals import Answers, AnswersAtNewRows, Marginals
from ...predictive import Predictive
from ...priors.base import NewRows
from ...row_scores import LeaveOneOut, Pit
from ...solvers.solution import Solution
from ..base import Family, Learned
from .mixture import FinerLattice, Mixture, mixed_moments, without
from .theta import ThetaPosterior

if TYPE_CHECKING:
    from .points import Point


_CELLS = 4_000_000  # places times unknowns that are mixed between points
NEAR_POINT = 0.5  # h, of draws of theta about the point that they belong to
MATCHING_ROUNDS = 200  # of the search for v
MATCHED_DRAWS = 2000  # that the search for v looks at


class Integrated(Stored, Mixture, AnswersAtNewRows[Mixture]):
    """The posterior with hyperparameters integrated out; it has the marginals of eta at the observations itself.

    Attributes
    ----------
    theta : ThetaPosterior
        Posterior of the hyperparameters: marginals, joint densities and draws.
    log_evidence : float
        Estimate of log p(y) with theta integrated out, in nats, with all constants. Under a flat prior of theta it
        depends on the scale of theta, and models cannot be compared by it.
    log_evidence_error : float
        Estimate of its error: the difference between two quadrature rules over the same points, and the errors of the
        evidence at the points.
    evidence : {"corrected", "elbo"}
        The evidence that weighted the points; the mixed marginals are corrected or Gaussian accordingly.
    thetas : array (K, n_theta)
        The points.
    weights : array (K,)
        Their weights, of sum 1.
    answers : list of Answers
        The posterior at each point.
    solutions : list of Solution
        The fit at each point, with its certificate.
    gap : float
        The largest gap of these fits.
    converged : bool
        Whether the search for the mode and every fit reached its tolerance.
    status : str
        A sentence on convergence, preceded by ``doubts`` and followed by notes on the integration.
    n_fits : int
        Number of fits, without the search for the mode (``mode.n_evaluations``).
    mode : Learned
    method : {"grid", "ccd", "star", "none"}
    doubts : list of str
        Reasons for which the integration is unreliable; empty if there are none.
    resolved : bool
        Whether the points resolve the posterior of theta: two rules over them agree.
    """

    def __init__(
        self,
        points: Sequence[Point],
        weights: np.ndarray,
        theta: ThetaPosterior,
        family: Family,
        mode: Learned,
        summary: dict[str, Any],
    ) -> None:
        self.evidence: str = summary["evidence"]
        answers: list[Answers] = [_answers(p, self.evidence) for p in points]
        super().__init__(weights, answers)
        self.answers, self.theta, self.family, self.mode = answers, theta, family, mode
        self.thetas, self.solutions = np.array([p.theta for p in points]), [p.solution for p in points]
        self.log_evidence, self.log_evidence_error = float(summary["log_evidence"]), float(summary["error"])
        self.n_fits, self.method, self.notes = int(summary["n_fits"]), str(summary["method"]), list(summary["notes"])
        self.doubts, self.resolved = list(summary["doubts"]), bool(summary["resolved"])

    # -- the certificate ---------------------------------------------------------------------------
    @property
    def gap(self) -> float:
        return max(float(s.gap) for s in self.solutions)

    @property
    def converged(self) -> bool:
        return bool(self.mode.converged and all(s.optimal for s in self.solutions))

    @property
    def status(self) -> str:
        bad = sum(not s.optimal for s in self.solutions)
        word = "converged" if self.converged else "NOT CONVERGED"
        fits = f"{len(self.solutions)} fits weighted by the {self.evidence} evidence, {self._proof}"
        fits += f", {bad} of them above their tolerance" if bad else ""
        fits += "" if self.mode.converged else f"; the mode: {self.mode.status}"
        return "; ".join([*self.doubts, f"{word}: {fits}", *self.notes])

    @property
    def _proof(self) -> str:
        """How near every fit is to the best Gaussian, where that can be said."""
        if np.isinf(self.gap) and self.solutions[0].certificate == "stationarity":
            return "each a stationary point (the likelihood is not log-concave, so another may be better)"
        return f"largest gap {self.gap:.1e}"

    # -- parts -------------------------------------------------------------------------------------
    @cached_property
    def likelihoods(self) -> list[Likelihood]:
        """The likelihood of each point, with its own parameters there."""
        return [solution.likelihood for solution in self.solutions]

    def latents(self) -> Mixture:
        """The marginals of z."""
        return self.mixture([part.latents() for part in self.answers])

    def marginals_at(self, new: NewRows) -> Mixture:
        """The marginals of eta at new rows of a design, the same at every theta; ``at_table`` has any others."""
        if new.cross is not None:
            got = "cross was given, and covariances with the latents are others at every theta"
            raise problem(
                "Integrated.at", got, "design", "Use at_table(table), or at_each(lambda theta: NewRows(...))."
            )
        return self.at_each(lambda theta: new)

    def at_each(self, rows: Callable[[np.ndarray], NewRows]) -> Mixture:
        """The marginals of eta at new rows that are said of each theta."""
        return self.mixture(self._at(rows))

    def mixture(self, parts: Sequence[Marginals]) -> Mixture:
        """The marginals of unknowns whose marginals at each point are given (K), smooth between points of a lattice."""
        out = Mixture(self.weights, parts)
        if self._between is None or self._between.weights.size * np.size(parts[0].mean) > _CELLS:
            return out
        finer = self._between.parts(parts)
        if finer is None:
            return out
        smooth = Mixture(self._between.weights, finer)
        smooth.mean, smooth.variance = out.mean, out.variance
        return smooth

    @cached_property
    def _between(self) -> FinerLattice | None:
        density = self.theta.log_density
        if density is None or self.method != "grid" or not density.resolved:
            return None
        return FinerLattice.of(density, self.thetas)

    def _at(self, rows: Callable[[np.ndarray], NewRows]) -> list[Marginals]:
        return [part.at(rows(theta)) for part, theta in zip(self.answers, self.thetas, strict=True)]

    def at_table(self, table: Any) -> Mixture:
        """The marginals of eta at the rows of a table, as the family reads one (``Family.new_rows``)."""
        return self.at_each(self._rows(table))

    def _rows(self, table: Any) -> Callable[[np.ndarray], NewRows]:
        n = self.family.theta.size
        return lambda theta: self.family.new_rows(theta[:n], table)

    def predictive(
        self,
        likelihoods: Callable[[Likelihood], Likelihood] | None = None,
        rows: Callable[[np.ndarray], NewRows] | None = None,
    ) -> Predictive:
        """y at the observations, or at new ``rows`` of each theta under what ``likelihoods`` makes of each one's."""
        each = self.likelihoods if likelihoods is None else [likelihoods(own) for own in self.likelihoods]
        etas = self.answers if rows is None else self._at(rows)
        return Predictive.mixture(self.weights, each, etas, Mixture(self.weights, etas))

    def moments(self, ask: Callable[[Solution], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Mean (p,) and covariance (p, p) of what each fit has the Gaussian moments of."""
        means, covariances = (np.stack(each) for each in zip(*map(ask, self.solutions), strict=True))
        off = means - self.weights @ means
        return self.weights @ means, np.einsum("k,kij->ij", self.weights, covariances) + (off.T * self.weights) @ off

    # -- draws -------------------------------------------------------------------------------------
    def shared(self, size: int, rng: Seed = None) -> list[np.ndarray]:
        """Which of ``size`` draws are of each point: as its weight says, the rest by lot, in an order by lot."""
        rng, size = np.random.default_rng(rng), count("Integrated.sample", "size", size)
        ends = np.floor(np.cumsum(self.weights) / self.weights.sum() * size + rng.random()).astype(int)
        ends = np.clip(ends, 0, size)
        ends[-1] = size
        order = rng.permutation(size)
        return np.split(order, ends[:-1])

    def _drawn(self, ask: Callable[[Answers, int], Any], size: int, rng: np.random.Generator) -> np.ndarray:
        parts = self.shared(size, rng)
        draws = [to_numpy(ask(a, len(p))) for a, p in zip(self.answers, parts, strict=True) if len(p)]
        out = np.empty((size, *draws[0].shape[1:])) if draws else np.empty((0, *self.mean.shape))
        for some, values in zip([p for p in parts if len(p)], draws, strict=True):
            out[some] = values
        return out

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of eta: (size, N) or (size, N, C)."""
        rng = np.random.default_rng(rng)
        return self._drawn(lambda part, n: part.sample(n, rng), size, rng)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of z: (size, L) or (size, L, C)."""
        rng = np.random.default_rng(rng)
        return self._drawn(lambda part, n: part.sample_latents(n, rng), size, rng)

    def sample_with_theta(self, size: int, rng: Seed = None) -> tuple[np.ndarray, list[np.ndarray]]:
        """Draws of theta (size, n) from its density, and which of them belong to each point.

            P(k | theta) prop. to v_k exp(-|u(theta) - u(theta_k)|^2 / 2 h^2),    v such that E[P(k | theta)] = w_k

        u are the coordinates in which the posterior of theta is nearly standard normal. Draws of theta keep their
        marginals, points keep their weights, and each draw is of a point near it: the entropic transport between both.
        """
        rng, size = np.random.default_rng(rng), count("sample_with_theta", "size", size, 1)
        theta = self.theta.sample(size, rng)
        at, points = self.theta.u(theta), self.theta.u(self.thetas)
        near = -0.5 * cdist(at, points, "sqeuclidean") / NEAR_POINT**2 if at.shape[1] else np.zeros((size, len(points)))
        log_w = np.log(self.weights)
        log_p = near + _matched(near[:MATCHED_DRAWS], log_w)
        ends = np.cumsum(np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True)), axis=1)
        k = np.minimum((rng.random(size)[:, None] > ends).sum(axis=1), len(log_w) - 1)
        return theta, [np.flatnonzero(k == j) for j in range(len(log_w))]

    # -- criteria ----------------------------------------------------------------------------------
    def _left_out(self) -> tuple[list[LeaveOneOut], np.ndarray, np.ndarray]:
        """Leave-one-out of each part, theta held; their shares given the others (K, N), log p(y_n | others) (N,)."""
        pairs = zip(self.answers, self.solutions, strict=True)
        each = [part.loo() if part.leaves_one_out else solution.loo() for part, solution in pairs]
        logs = np.stack([to_numpy(found.log_density) for found in each])
        share, density = without(self.weights, np.where(np.isnan(logs), 0.0, logs))
        return each, share, np.where(np.isnan(logs).any(axis=0), np.nan, density)

    def loo(self) -> LeaveOneOut:
        """Leave-one-out densities: theta forgets the observation too, and nothing is refitted.

        p(theta | the others) prop. to p(theta | y) / p(y_n | the others, theta), so p(y_n | the others) is the harmonic
        mean of those of the points.
        """
        each, share, density = self._left_out()
        means, variances = np.stack([to_numpy(f.mean) for f in each]), np.stack([to_numpy(f.variance) for f in each])
        return LeaveOneOut(density, *mixed_moments(share, means, variances))

    def pit(self) -> Pit:
        """Where each y lies in its prediction from the others, theta forgetting it too."""
        each, share, _ = self._left_out()
        ends = [found.pit_stretches(s.likelihood, s.y) for found, s in zip(each, self.solutions, strict=True)]
        # shares of sum 1 but for rounding, which takes the last level past 1
        below, upto = (np.minimum((share * np.stack(end)).sum(axis=0), 1.0) for end in zip(*ends, strict=True))
        return Pit(np.minimum(below, upto), upto)

    def __repr__(self) -> str:
        word = "" if self.converged else "not converged, "
        found = f"log_evidence={self.log_evidence:.4f}, error about {self.log_evidence_error:.1g}"
        return f"Integrated({word}{found}, {len(self.solutions)} points, {self._proof})"


def _answers(point: Point, evidence: str) -> Answers:
    """Whose marginals are mixed."""
    if evidence == "corrected" and point.usable and point.corrected is not None:
        return point.corrected
    return point.solution.posterior


def _matched(near: np.ndarray, log_w: np.ndarray) -> np.ndarray:
    """log v (K,), by Sinkhorn's rounds."""
    log_v, share = log_w.copy(), np.log(len(near))
    for _ in range(MATCHING_ROUNDS):
        rows = logsumexp(near + log_v, axis=1, keepdims=True)
        got = logsumexp(near - rows, axis=0) - share  # of each point, for v = 1
        new = log_w - got
        if np.abs(new - log_v).max() < 1e-3:
            return np.asarray(new)
        log_v = new
    return np.asarray(log_v)
