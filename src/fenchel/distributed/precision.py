"""The precision of q(z) = N(m, V): V^-1 = P + K, that of the prior at theta, P, and what rows have added to it, K.

A fit by passes needs of it what the three contracts here say, whatever P and K are kept as. There are two kinds:
independent weights, K dense (below), and sparse latents, K on one pattern (``sparse_precision.py``).

    independent weights:  P = diag(1/sd^2),   I + R K R = L L' with R = diag(sd),   U = L^-T,   V = (R U)(R U)'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from ..hyperparameters.weights import WeightVariances
from ..linalg.dense import NotPositiveDefinite
from ..marginals import NormalMarginals
from ..priors.base import EPS

if TYPE_CHECKING:
    from .approximation import Approximation

Solve = Callable[[np.ndarray], np.ndarray]

CURVATURE_FLOOR = 1e-3  # in units of the prior's, where rows bend the wrong way
POLISHED = 20  # hyperparameters of independent weights, for which values of the quadratic model cost little


# -- the contracts ------------------------------------------------------------------------------------------
class PrecisionFactor(ABC):
    """A factor of P + K, for each predictor.

    log_det : log|P + K| - log|P|, summed over predictors
    trace : tr K V
    log_det_rounding : how far rounding may have moved ``log_det``, as a root mean square
    """

    log_det: float
    trace: float

    @property
    @abstractmethod
    def log_det_rounding(self) -> float: ...

    @property
    @abstractmethod
    def spread(self) -> np.ndarray:
        """V in the form that rows take: what ``Design.row_squares`` is asked of."""

    @abstractmethod
    def divergence(self, change: np.ndarray, convex: bool) -> float:
        """What a change E of K is worth: tr V E - log|P + K + E| + log|P + K|; without a dual a bound on tr E V E P^-1.

        Never negative; infinite where P + K + E is no precision.
        """

    @abstractmethod
    def scaled(self, mean: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Changes of the mean and of K in units of q's own spread, one vector."""


class Precision(ABC):
    """P at given hyperparameters. Means and adjoints are (L, C): C predictors with the same prior.

    centre : the prior's mean mu (L,)
    """

    centre: np.ndarray

    @abstractmethod
    def times(self, mean: np.ndarray) -> np.ndarray:
        """P (m - mu), (L, C)."""

    @abstractmethod
    def norm(self, mean: np.ndarray) -> float:
        """(m - mu)' P (m - mu)."""

    @abstractmethod
    def residual(self, mean: np.ndarray, adjoint: np.ndarray) -> float:
        """r' P^-1 r of r = P (m - mu) + W' alpha."""

    @abstractmethod
    def entries(self, n_predictors: int) -> np.ndarray:
        """P in the form of K."""

    @abstractmethod
    def plus(self, gram: np.ndarray) -> PrecisionFactor:
        """P + K. Raises NotPositiveDefinite."""

    @abstractmethod
    def solver(self, curvature: np.ndarray, gram: np.ndarray) -> Solve:
        """(P + H)^-1 on vectors (C L,) or (C L, k), predictor by predictor.

        Where rows bend the wrong way it is made definite; ``gram``, what they would add to the precision, bends right.
        """


class PartitionedPrior(ABC):
    """z ~ N(mu, P(theta)^-1): a prior whose hyperparameters may be learned.

    theta : where they start
    bounds : array (n_theta, 2)
    polished : how many hyperparameters are few enough to end their search by Newton's steps
    """

    theta: np.ndarray
    bounds: np.ndarray
    polished: int = 0

    @abstractmethod
    def at(self, theta: np.ndarray) -> Any:
        """The ``Precision`` at theta. Raises NotPositiveDefinite."""

    @abstractmethod
    def gradient(self, q: Approximation) -> np.ndarray:
        """d(-KL)/d theta at q."""

    @abstractmethod
    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient."""

    @abstractmethod
    def posterior(self, q: Approximation) -> Any:
        """q as a fit returns it."""

    @abstractmethod
    def unpacked(self, values: np.ndarray) -> np.ndarray:
        """A matrix as rows send it in the form of K."""


# -- independent weights ------------------------------------------------------------------------------------
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


class WeightFactor(PrecisionFactor):
    """P + K of independent weights: K (C, L, L)."""

    def __init__(self, sd: np.ndarray, gram: np.ndarray) -> None:
        self.sd, eye = sd, np.eye(sd.size)
        self.inner = self._whitened(gram) + eye
        self.log_det, roots = 0.0, []
        for block in self.inner:
            try:
                lower = cholesky(block, lower=True)
            except (np.linalg.LinAlgError, ValueError):
                raise NotPositiveDefinite from None
            roots.append(solve_triangular(lower, eye, lower=True, trans="T"))
            self.log_det += 2.0 * float(np.sum(np.log(np.diag(lower))))
        self.U = np.stack(roots)
        self.trace = float(sd.size * len(roots) - np.sum(self.U * self.U))

    def _whitened(self, gram: np.ndarray) -> np.ndarray:
        return np.asarray(gram * np.outer(self.sd, self.sd))

    @property
    def log_det_rounding(self) -> float:
        each = np.sum(self.U * self.U, axis=2) * np.diagonal(self.inner, axis1=1, axis2=2)
        return float(EPS * np.sqrt(np.sum(each * each)))

    @property
    def spread(self) -> np.ndarray:
        """T (C, L, L) with T T' = V."""
        return self.sd[:, None] * self.U

    @property
    def covariance(self) -> np.ndarray:
        """V (C, L, L)."""
        return np.asarray(self.spread @ np.swapaxes(self.spread, 1, 2))

    def divergence(self, change: np.ndarray, convex: bool) -> float:
        pairs = list(zip(self.U, self._whitened(change), strict=True))
        if not convex:
            return float(sum(np.sum((U.T @ E) ** 2) for U, E in pairs))
        d = np.concatenate([np.linalg.eigvalsh(U.T @ E @ U) for U, E in pairs])
        with np.errstate(invalid="ignore", divide="ignore"):
            total = float(np.sum(d - np.log1p(d)))
        return total if total == total else np.inf

    def scaled(self, mean: np.ndarray, gram: np.ndarray) -> np.ndarray:
        parts = []
        for T, dm, dK in zip(self.spread, mean.T, gram, strict=True):
            parts += [np.linalg.lstsq(T, dm, rcond=None)[0], (T.T @ dK @ T).ravel() / np.sqrt(2.0)]
        return np.concatenate(parts)


class WeightPrecision(Precision):
    """P = diag(1/sd^2) of independent weights with means ``centre`` (L,)."""

    def __init__(self, centre: np.ndarray, sd: np.ndarray) -> None:
        self.centre, self.sd = centre, sd

    def _whitened(self, mean: np.ndarray) -> np.ndarray:
        return (mean - self.centre[:, None]) / self.sd[:, None]

    def times(self, mean: np.ndarray) -> np.ndarray:
        return self._whitened(mean) / self.sd[:, None]

    def norm(self, mean: np.ndarray) -> float:
        return float(np.sum(self._whitened(mean) ** 2))

    def residual(self, mean: np.ndarray, adjoint: np.ndarray) -> float:
        return float(np.sum((self._whitened(mean) + self.sd[:, None] * adjoint) ** 2))

    def entries(self, n_predictors: int) -> np.ndarray:
        return np.repeat(np.diag(self.sd**-2.0)[None], n_predictors, axis=0)

    def plus(self, gram: np.ndarray) -> WeightFactor:
        return WeightFactor(self.sd, gram)

    def solver(self, curvature: np.ndarray, gram: np.ndarray) -> Solve:
        C, L = curvature.shape[0], self.sd.size
        R = np.tile(self.sd, C)
        H = np.transpose(curvature, (0, 2, 1, 3)).reshape(C * L, C * L)
        values, vectors = np.linalg.eigh(np.eye(C * L) + R[:, None] * H * R)
        values = np.where(values > CURVATURE_FLOOR, values, np.maximum(np.abs(values), CURVATURE_FLOOR))
        vectors = R[:, None] * vectors
        return lambda b: vectors @ ((vectors.T @ b).T / values).T


class GroupedVariances(PartitionedPrior):
    """z_l ~ N(mean_l, v_{g(l)}), theta = log v: independent weights in groups, as in ``WeightVariances``.

    Parameters
    ----------
    groups, variance, mean : arrays (L,)
        As in ``WeightVariances``.
    **options : of ``WeightVariances``
    """

    polished = POLISHED

    def __init__(self, groups: Any, variance: Any, mean: Any, **options: Any) -> None:
        self._take(WeightVariances(np.zeros((1, len(groups))), groups, variance, mean, **options), mean)

    def _take(self, family: WeightVariances, mean: Any) -> None:
        self.family = family
        self.mean = np.broadcast_to(np.asarray(mean, dtype=np.float64), family.groups.shape)
        self.theta = family.theta if family.n_groups else np.zeros(0)
        self.bounds = family.bounds.reshape(-1, 2)

    def with_family(self, family: WeightVariances) -> GroupedVariances:
        """The same weights under another family."""
        out = GroupedVariances.__new__(GroupedVariances)
        out._take(family, self.mean)
        return out

    def at(self, theta: np.ndarray) -> WeightPrecision:
        return WeightPrecision(self.mean, np.sqrt(self.family.variances_at(theta)))

    def gradient(self, q: Approximation) -> np.ndarray:
        family, away = self.family, q.mean - self.mean[:, None]
        second = np.sum(q.factor.spread**2, axis=(0, 2)) + np.sum(away**2, axis=1)  # E_q (z - mu)^2
        each = 0.5 * (second / family.variances_at(q.theta) - q.mean.shape[1])
        live = family.groups >= 0
        return np.bincount(family.groups[live], weights=each[live], minlength=family.n_groups).astype(np.float64)

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self.family.log_prior(theta)

    def posterior(self, q: Approximation) -> WeightPosterior:
        return WeightPosterior(q.mean, q.factor.covariance)

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        return 0.5 * (values + np.swapaxes(values, -1, -2))
