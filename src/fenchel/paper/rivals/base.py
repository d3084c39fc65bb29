"""Common parts of all rivals: whitened latents, a posterior from its mean and root, and the evaluation of a q.

A rival works in whitened latents z = mu + R u, u ~ N(0, I), eta = mt + X u, X = W R. The prior's own mean
may be shifted by observations without curvature; ``mt`` of the problem includes this. All is dense and on
the host, because these methods need all of Sigma. A q that does not have the form of the dual is given by its
mean and a root of its covariance:

    u ~ N(mean, U U'),   Cov[z] = G G',  G = R U

The blocks' roots are independent, or share their columns (``joint``): then the predictors of one
observation, independent a priori, are correlated under q. Every q is evaluated by the paper's
objective:

    P = -KL[q || p] - sum_n f_n(h_n, rho_n)                              eq:primal-problem
    D at s_hat(h, rho), where f is reached, bounds every q from above:   gap = D - P

A method with a smaller family or another objective says so in ``certificate`` and ``measure``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import numpy as np

from ...checks import count
from ...checks import problem as refusal
from ...linalg.arrays import Array, is_numpy, to_numpy
from ...linalg.dense import semidefinite_root, solve_lower
from ...posterior import Posterior
from ...priors.base import Factor, NewRows, PriorAdjoint
from ...priors.predictors import Blocks, LatentPredictors, Latents, assembled
from ...priors.sparse import SparseLatents
from ...problem import DualPoint, Problem
from ...solvers.base import Outcome, Stopping
from ...solvers.lbfgs import Landscape, descend

LARGEST = 6000  # latents of a block: Sigma alone then fills 288 MB


class Geometry:
    """The whitened latents of each block.

    Attributes
    ----------
    R : list of arrays (L, r)
        R R' = Sigma.
    X : list of arrays (rows, r)
        The active rows of W, times R.
    """

    def __init__(self, problem: Problem, where: str) -> None:
        if not is_numpy(problem.weight):
            got = f"the prior lives in {type(problem.weight).__module__.split('.')[0]}"
            raise refusal(where, got, "numpy arrays", "The baselines run on the host: pass to_numpy(covariance).")
        predictors = problem.predictors
        if not isinstance(predictors, LatentPredictors):
            raise refusal(where, f"the prior is a {type(problem.prior).__name__}", "one with latents z")
        if np.any(predictors.extra_variance):
            raise refusal(where, "the prior has an extra variance", "one whose latents explain all of eta")
        self.problem, self.predictors, self.blocks, self.where = problem, predictors, predictors.blocks, where
        roots: dict[int, np.ndarray] = {}
        self.R = []
        for z in predictors.latents:
            if id(z) not in roots:
                roots[id(z)] = _root(z, where)
            self.R.append(roots[id(z)])
        rows: dict[tuple[int, int], np.ndarray] = {}
        self.X = []
        for z, W, R in zip(predictors.latents, predictors.designs, self.R, strict=True):
            if (id(z), id(W)) not in rows:
                rows[id(z), id(W)] = np.ascontiguousarray(W.times(R))
            self.X.append(rows[id(z), id(W)])
        self.sizes = [R.shape[1] for R in self.R]

    @property
    def proper(self) -> bool:
        """Whether every Sigma is positive definite beyond rounding, so that R can be inverted."""
        return all(_invertible(R) for R in self.R)

    def need_proper(self, what: str) -> None:
        """Raise an error if Sigma is singular, so that ``what`` does not exist."""
        if not self.proper:
            raise refusal(
                self.where,
                f"Sigma is singular in double precision, and {what} needs its inverse",
                "a positive definite covariance",
                "Give observations with equal inputs one latent through design=, or use whitened coordinates.",
            )

    def precision(self, b: int) -> np.ndarray:
        """Sigma^-1 of block b (L, L)."""
        inverse = solve_lower(self.R[b], np.eye(self.R[b].shape[0]))
        return np.asarray(inverse.T @ inverse)

    def cut(self, u: np.ndarray) -> list[np.ndarray]:
        """A flat vector of all blocks' latents, block by block."""
        return np.split(u, np.cumsum(self.sizes)[:-1])

    def predictors_at(self, u: np.ndarray) -> np.ndarray:
        """h = mt + X u (N, C)."""
        pairs = zip(self.X, self.cut(u), strict=True)
        return np.asarray(self.problem.mt + self.blocks.join([X @ part for X, part in pairs]))

    def adjoint(self, alpha: Array) -> np.ndarray:
        """X' alpha, flat."""
        pairs = zip(self.X, self.blocks.split(alpha), strict=True)
        return np.concatenate([X.T @ a for X, a in pairs])

    def latents_at(self, alpha: Array) -> np.ndarray:
        """u of the mean m = mu - Sigma W' alpha."""
        return -self.adjoint(alpha)


def _invertible(R: np.ndarray) -> bool:
    if R.shape[0] != R.shape[1] or np.triu(R, 1).any():
        return False
    rounding = 10 * R.shape[0] * np.finfo(np.float64).eps * float(np.sum(R * R, axis=1).max())
    return bool((np.diag(R) > 0).all() and (np.diag(R) ** 2 > rounding).all())


def _root(z: Latents, where: str) -> np.ndarray:
    if z.n > LARGEST:
        raise refusal(where, f"the prior has {z.n} latents", f"at most {LARGEST}: this method needs Sigma dense")
    if isinstance(z, SparseLatents):
        return np.asarray(semidefinite_root(z.covariance_times(np.eye(z.n))))
    R = np.asarray(z.root)
    return np.diag(R) if R.ndim == 1 else R


# -- q by its mean and a root of its covariance ---------------------------------------------------------
class ExplicitPosterior(Posterior):
    """q(z) with the methods of ``Posterior``.

    Parameters
    ----------
    u : array, flat over the blocks
        Mean of the whitened latents.
    U : list of arrays (r, k)
        A root of each block's covariance.
    sites : (alpha, lam) of all observations, for the cavities
    joint : bool
        Whether the roots share their columns.
    """

    def __init__(
        self, geometry: Geometry, u: np.ndarray, U: list[np.ndarray], sites: tuple[Array, Array], joint: bool = False
    ) -> None:
        problem = geometry.problem
        assert isinstance(problem.all_predictors, LatentPredictors)
        self._everyone: LatentPredictors = problem.all_predictors
        self.factor = None  # type: ignore[assignment]
        self.predictors, self.active = problem.all_predictors, problem.active
        self._geometry, self._u, self._U, self._joint = geometry, geometry.cut(u), U, joint
        self.alpha, self.lam = sites
        self._G = [R @ part for R, part in zip(geometry.R, U, strict=True)]
        shift = self._everyone.adjoints(problem.fixed_alpha)  # of the observations without curvature
        self._means = [
            z.mean - z.covariance_times(a) + R @ part
            for z, a, R, part in zip(self._everyone.latents, shift, geometry.R, self._u, strict=True)
        ]
        self._shift = shift

    def _seen(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """W x of each block, for x (L,) or (L, k)."""
        return [np.asarray(W.times(part)) for W, part in zip(self._everyone.designs, parts, strict=True)]

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        blocks = self._everyone.blocks
        h = blocks.join(self._seen(self._means)) + self._everyone.offset
        return h, blocks.join([np.sum(part**2, axis=1) for part in self._seen(self._G)])

    @cached_property
    def latent_mean(self) -> Array:
        return self._everyone.columns(self._means)

    @cached_property
    def latent_variance(self) -> Array:
        return self._everyone.columns([np.sum(G**2, axis=1) for G in self._G])

    def moments_at(self, new: NewRows) -> tuple[Array, Array]:
        rows, m = self._everyone.new_rows(new)
        means, spreads = [], []
        for b, row in enumerate(rows):
            if new.design is not None:
                means.append(row.times(self._means[b]))
                spreads.append(np.sum(np.asarray(row.times(self._G[b])) ** 2, axis=1))
            else:
                X = self._white(b, row)
                means.append(X @ self._u[b] - row @ self._shift[b])
                spreads.append(np.sum(X**2, axis=1) - np.sum((X @ self._U[b]) ** 2, axis=1))
        blocks = Blocks(m, self._everyone.blocks.groups)
        h, rho = assembled(self._everyone, new, blocks.join(means), None if new.mean_only else blocks.join(spreads))
        return h, h if rho is None else rho

    def _white(self, b: int, cross: np.ndarray) -> np.ndarray:
        """X* with X* u what the latents say of eta*, from Cov(eta*, z) (M, L)."""
        R = self._geometry.R[b]
        return np.asarray(np.linalg.lstsq(R, cross.T, rcond=None)[0].T)

    def joint_factor(self) -> Any:
        return self

    def covariance(self) -> Array:
        parts = self._seen(self._G)
        blocks = [part @ part.T for part in parts]
        return blocks[0] if len(blocks) == 1 else np.stack(blocks)

    def observation_covariance(self) -> Array:
        """Cov[eta_n] of each observation (N, C, C), for predictors that are correlated a priori."""
        n, C = self._everyone.n_observations, self._everyone.n_predictors
        root = self._seen(self._G)[0].reshape(n, C, -1)
        return np.asarray(root @ root.transpose(0, 2, 1))

    def sample(self, size: int = 1, rng: Any = None) -> Array:
        size = count("posterior.sample", "size", size)
        flat = [draw.T for draw in self._draws(self._seen(self._G), size, rng)]
        n, C = self._everyone.n_observations, self._everyone.n_predictors
        eta = flat[0].reshape(size, n, C) if len(flat) == 1 else np.stack(flat, axis=2)
        return self.shaped(self.moments[0][None, ...] + eta)

    def sample_latents(self, size: int = 1, rng: Any = None) -> Array:
        draws = [draw.T for draw in self._draws(self._G, count("posterior.sample_latents", "size", size), rng)]
        return self.latent_mean[None, ...] + (draws[0] if len(draws) == 1 else np.stack(draws, axis=2))

    def _draws(self, roots: list[np.ndarray], size: int, rng: Any) -> list[np.ndarray]:
        """Noise with covariance G G' of each block (R, size); joint roots share it."""
        rng = np.random.default_rng(rng)
        shared = rng.standard_normal((roots[0].shape[1], size))
        return [np.asarray(G @ (shared if self._joint else rng.standard_normal((G.shape[1], size)))) for G in roots]

    def cavity(self) -> tuple[Array, Array]:
        if self.predictors.correlated:
            return super().cavity()
        h, rho = self.moments
        remainder = 1.0 - self.lam * rho
        if np.any(remainder <= 0.0):
            raise refusal(
                "posterior.cavity", "a site is worth more than the whole marginal", "a fit that converged further"
            )
        v = rho / remainder
        return h + self.alpha * v, v

    def adjoint(self) -> PriorAdjoint:
        raise refusal(
            "posterior",
            "the evidence gradient was asked of a baseline",
            "a fit by infer()",
            "The envelope needs the dual.",
        )


# -- evaluation of a q ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Expected:
    """Weighted sum of f at (h, rho) with its derivatives df/dh = alpha and df/drho = lam / 2."""

    s: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray
    total: float


def expected(problem: Problem, h: Array, rho: Array, near: Array) -> Expected:
    """The expected loss of q and its derivatives, from the maximum over the site (eq:conjugate); ``near`` is any s."""
    dual, rows, w = problem.dual, problem.rows, problem.weight
    s = dual.maximiser(h, rho, near, rows)
    site = dual.site(s, rows)
    each = np.sum(site.alpha * h + site.lam * rho / 2, axis=1) - site.k + problem.likelihood.constant(rows)
    s, alpha, lam = to_numpy(s), to_numpy(w[:, None] * site.alpha), to_numpy(w[:, None] * site.lam)
    return Expected(s, alpha, lam, float(np.sum(np.where(w > 0, w * each, 0.0))))


class Candidate:
    """One q with its elbo and gap.

    Parameters
    ----------
    h, rho : arrays (N, C)
        Means and variances of its predictors.
    kl : float
        KL[q || p], p the prior shifted by the observations without curvature.
    make_posterior : function that makes the posterior when it is read
    """

    certificate, measure = "duality", "relative gap"
    rounding = quadrature = resolution = 0.0

    def __init__(
        self,
        problem: Problem,
        marginals: tuple[Array, Array],
        kl: float,
        near: Array,
        make_posterior: Callable[[Candidate], Posterior],
        known: Expected | None = None,
    ) -> None:
        self.problem, (self.h, self.rho), self.kl = problem, marginals, kl
        self._make = make_posterior
        loss = expected(problem, self.h, self.rho, near) if known is None else known
        self.s, self.alpha, self.lam = loss.s, loss.alpha, loss.lam
        self.elbo = -kl - loss.total + problem.shift  # eq:primal-detail
        if np.isnan(self.elbo):
            self.elbo = -np.inf

    @cached_property
    def dual(self) -> float:
        """Upper bound on the elbo of every Gaussian under this bound."""
        return self.elbo + self.gap

    @cached_property
    def gap(self) -> float:
        upper = self.problem.at(self.s).dual
        return max(upper - self.elbo, 0.0) if np.isfinite(upper) else np.inf

    @property
    def shortfall(self) -> float:
        return self.gap

    @property
    def log_evidence(self) -> float:
        return self.elbo

    def sites(self) -> tuple[Array, Array]:
        """alpha and lam of all observations."""
        return self.problem.full_alpha(self.alpha), self.problem.full_lam(self.lam)

    def posterior(self) -> Posterior:
        return self._make(self)


def explicit(geometry: Geometry, u: np.ndarray, U: Callable[[], list[np.ndarray]], joint: bool = False) -> Callable:
    """A ``make_posterior`` for a mean u and roots U, which are computed when the posterior is read."""
    return lambda candidate: ExplicitPosterior(geometry, u, U(), candidate.sites(), joint)


def dual_form(problem: Problem, factor: Factor, beta: Array, lam: Array, marginals: tuple[Array, Array]) -> Callable:
    """A ``make_posterior`` for m = mu - Sigma W' beta, V = (Sigma^-1 + W' Lam W)^-1, the form of the dual's own."""

    def make(candidate: Candidate) -> Posterior:
        sites = problem.full_alpha(beta), problem.full_lam(lam)
        return Posterior(problem.all_predictors, problem.active, factor, sites, marginals)

    return make


# -- running a method -------------------------------------------------------------------------------
Iterates = Iterable[tuple[Callable[[], Candidate], float]]  # how the q of an iterate is made, and its step


def iterate(iterates: Iterates, stopping: Stopping, stalled: str = "") -> Outcome:
    """Judge every iterate, off the clock, until ``stopping`` ends the run or there are no more (``stalled``: why)."""
    for n, (make_candidate, step) in enumerate(iterates):
        with stopping.off_the_clock():
            candidate = make_candidate()
            _ = candidate.gap
        ending = stopping.record(n, candidate, step)
        if ending is not None:
            break
    else:
        ending = stopping.ended(candidate, "stalled", stalled)
    return Outcome(candidate, ending, n, stopping.trace)


class Valued(Protocol):
    """A point of a surface: minus the bound there, +inf where it does not exist, and its gradient."""

    value: float

    @property
    def gradient(self) -> np.ndarray: ...


V = TypeVar("V", bound=Valued)


class BoundSurface(Landscape[V]):
    """Minus the bound over some coordinates x of q, those in ``walls`` (bool, as x) above zero."""

    walls: np.ndarray

    @abstractmethod
    def judged(self, point: V) -> Candidate:
        """The q of a point."""

    def value(self, point: V) -> float:
        return point.value

    def gradient(self, point: V) -> np.ndarray:
        return point.gradient

    def inside(self, x: np.ndarray) -> bool:
        return bool((x[self.walls] > 0.0).all())

    def limit(self, x: np.ndarray, d: np.ndarray) -> float:
        down = self.walls & (d < 0.0)
        return float((x[down] / -d[down]).min(initial=np.inf))

    @abstractmethod
    def start(self, alpha: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """x of m = mu - Sigma W' alpha and V = (Sigma^-1 + W' Lam W)^-1, or what is nearest."""


def starts(point: DualPoint) -> list[tuple[np.ndarray, np.ndarray]]:
    """Starts (alpha, lam) for a primal method, because a good start for the dual can be a poor q.

    They are the start of the dual, the prior mean with its variances, nearly the prior, and, if observations without
    curvature (returns of zero) shift the mean, a common alpha with the opposite shift.
    """
    alpha, lam = np.asarray(point.alpha), np.asarray(point.lam)
    out = [(alpha, lam), (0.0 * alpha, lam), (0.0 * alpha, 1e-3 * lam)]
    pull = np.asarray(point.problem.fixed_alpha).sum(axis=0)
    if pull.any():
        out.append((0.0 * alpha - pull / alpha.shape[0], lam))
    return out


def climb(surface: BoundSurface[V], point: DualPoint, memory: int, stopping: Stopping) -> Outcome:
    """Run L-BFGS with Wolfe steps from the best of ``starts`` until ``stopping`` ends it."""
    x = min((surface.start(*pair) for pair in starts(point)), key=lambda x: surface.value(surface.at(x)))
    places = ((partial(surface.judged, place), step) for place, step in descend(surface, x, memory))
    return iterate(places, stopping, "the line search stalled")
