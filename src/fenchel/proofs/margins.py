"""The exponents that the inequality allows, and a proof in floating point that they are allowed.

The sites of q lie along directions a_c of the latents, with variances rho_c under q. Exponents p = 1/w are allowed if

    M(w) = V^-1 - sum_c (w_c / rho_c) a_c a_c'  >=  0,         V^-1 = Sigma^-1 + sum_c lam_c a_c a_c'

which is diag(p) >= R. It is linear in w, and with omega_c = w_c / rho_c - lam_c, M(w) = Sigma^-1 - sum omega a a' is
the prior with negative sites: one Cholesky. -log|M| is its barrier,

    -d log|M| / dw_c = a_c' M^-1 a_c / rho_c,        d^2 / dw_c dw_d = (a_c' M^-1 a_d)^2 / (rho_c rho_d)

Proof in double precision: if a Cholesky succeeds for M minus a multiple of its diagonal (``backward_error``), then M is
positive definite, whatever the rounding errors (Rump, 2006).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from ..linalg import dense
from ..linalg.arrays import Array, asarray, to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..linalg.krylov import conjugate_gradients

EPS = 2.0**-53
_LEAST = 1e-9  # least value of omega times the prior variance; a site with less is negligible
_SOLVED = 0.02  # relative residual of Newton's system by conjugate gradients
_ROUNDS = 60  # most iterations of conjugate gradients
_STEPS = 60  # most Newton steps
_LARGE_STEPS = 22  # the same if each step is a Cholesky of more than
_LARGE = 1200  # so many rows
_MANY = 3000  # number of sparse sites from which on there are only
_FEW_STEPS = 4  # so many Newton steps,
_FEW_ROUNDS = 2  # with so many iterations of conjugate gradients


class Margin(ABC):
    """M(w) at one w: ``log_det`` up to a constant, and ``slopes`` a' M^-1 a / rho (n,)."""

    log_det: float

    @property
    @abstractmethod
    def slopes(self) -> np.ndarray:
        """-d log|M| / dw (n,)."""

    @abstractmethod
    def newton(self, diagonal: np.ndarray, mu: float, right: np.ndarray) -> np.ndarray:
        """(diag + mu (-d^2 log|M| / dw^2))^-1 right (n,)."""


class Cone(ABC):
    """The cone of all w with M(w) > 0.

    Attributes
    ----------
    size : int
        Rank of the directions of the sites, which is the parameter of the barrier.
    lowest : array (n,)
        Lowest w: max(lam rho, 0), at which the site drops out. The integral of a flat likelihood is infinite there.
    profile : array (n,)
        Largest allowed difference of w from the lowest w for a single site.
    max_steps : int
        Most Newton steps.
    repeats : int
        Number of improvements of the start before these steps.
    """

    size: int
    lowest: np.ndarray
    profile: np.ndarray
    max_steps: int = _STEPS
    repeats: int = 2

    @abstractmethod
    def at(self, w: np.ndarray) -> Margin:
        """M at w; raises NotPositiveDefinite outside of the cone."""

    @abstractmethod
    def proves(self, w: np.ndarray) -> bool:
        """Whether M(w) is proved to be positive definite in exact arithmetic."""


class _Sites(Cone):
    """Sites along single directions: ``variance`` (n,) under q, ``prior`` variance (n,), and ``curvature`` lam (n,)."""

    def __init__(self, variance: np.ndarray, curvature: np.ndarray, prior: np.ndarray) -> None:
        self.variance, self.curvature = variance, curvature
        self.lowest = np.maximum(curvature * variance, 0.0)
        self.profile = variance / prior

    def negative(self, w: np.ndarray) -> np.ndarray:
        """omega (n,): the curvatures that are subtracted from the prior precision."""
        return np.asarray(w / self.variance - self.curvature)


class DenseCone(_Sites):
    """Sites with a dense prior covariance S (n, n): I - Omega^1/2 S Omega^1/2 > 0."""

    def __init__(self, S: np.ndarray, variance: np.ndarray, curvature: np.ndarray) -> None:
        super().__init__(variance, curvature, np.diagonal(S))
        self.minus_S = -np.ascontiguousarray(S)
        self.size = S.shape[0]
        self.max_steps = _STEPS if self.size <= _LARGE else _LARGE_STEPS
        self.backward_error = self.size * (self.size + 8.0) * EPS

    def factor(self, omega: np.ndarray) -> np.ndarray:
        if not (omega >= 0.0).all():
            raise NotPositiveDefinite("an exponent is below the lowest one allowed")
        B = dense.scaled_plus_identity(self.minus_S, np.sqrt(omega), np.empty(self.minus_S.shape))
        return np.asarray(dense.cholesky(B))

    def at(self, w: np.ndarray) -> Margin:
        omega = np.maximum(self.negative(w), _LEAST / np.maximum(-np.diagonal(self.minus_S), 1e-300))
        return _DenseMargin(self.factor(omega), omega, self.variance)

    def proves(self, w: np.ndarray) -> bool:
        try:
            self.factor(self.negative(w) / (1.0 - self.backward_error))
        except NotPositiveDefinite:
            return False
        return True


class _DenseMargin(Margin):
    def __init__(self, L: np.ndarray, omega: np.ndarray, variance: np.ndarray) -> None:
        self.log_det = dense.log_det(L)
        self._L, self._scale = L, 1.0 / np.sqrt(omega * variance)

    @cached_property
    def inverse(self) -> np.ndarray:
        """a_c' M^-1 a_d / sqrt(rho_c rho_d) in the lower triangle; it reuses the memory of the factor."""
        out = np.tril(dense.inverse_from(dense.triangular_inverse(self._L)))
        del self._L
        out[np.diag_indices_from(out)] -= 1.0
        out *= self._scale[:, None]
        out *= self._scale
        return out

    @property
    def slopes(self) -> np.ndarray:
        return np.diagonal(self.inverse).copy()

    def newton(self, diagonal: np.ndarray, mu: float, right: np.ndarray) -> np.ndarray:
        H = self.inverse * self.inverse
        H *= mu
        H[np.diag_indices_from(H)] += diagonal
        return np.asarray(dense.solve_cholesky(dense.cholesky(H), right))


class FactorCone(_Sites):
    """Sites of a prior that can be factorised with negative sites: few weights, or a sparse precision."""

    rounds: int = _ROUNDS  # iterations of conjugate gradients

    def __init__(self, predictors: Any, rows: np.ndarray, variance: np.ndarray, curvature: np.ndarray) -> None:
        super().__init__(variance, curvature, to_numpy(predictors.variance)[rows, 0])
        self.predictors, self.rows = predictors, rows
        many = rows.size > _MANY and predictors.n_weights is None
        if many:
            self.max_steps, self.rounds, self.repeats = _FEW_STEPS, _FEW_ROUNDS, 0
        self.size = min(rows.size, int(np.size(predictors.latent_mean())))

    def sites(self, values: np.ndarray) -> Any:
        """Values of the sites (n,) as a column over all rows of the prior (N, 1), 0 elsewhere."""
        out = np.zeros((self.predictors.n_observations, 1))
        out[self.rows, 0] = values
        return asarray(out, self.predictors.mt)

    def at(self, w: np.ndarray) -> Margin:
        omega = self.negative(w)
        if not (omega >= 0.0).all():
            raise NotPositiveDefinite("an exponent is below the lowest one allowed")
        factor = self.predictors.at(self.sites(-omega))
        if not factor.definite:
            raise NotPositiveDefinite("M is not positive definite on the subspace of the constraints")
        return _FactorMargin(self, factor)

    def proves(self, w: np.ndarray) -> bool:
        return bool(self.predictors.proves_definite(self.sites(-self.negative(w))))


class _FactorMargin(Margin):
    def __init__(self, cone: FactorCone, factor: Any) -> None:
        self.cone, self.factor = cone, factor
        self.log_det = float(factor.log_det)

    @property
    def slopes(self) -> np.ndarray:
        return np.asarray(to_numpy(self.factor.variance)[self.cone.rows, 0] / self.cone.variance)

    def newton(self, diagonal: np.ndarray, mu: float, right: np.ndarray) -> np.ndarray:
        cone, own = self.cone, diagonal + mu * self.slopes**2
        off = diagonal - own

        def remainder(v: Array) -> Array:
            seen = to_numpy(self.factor.hadamard(cone.sites(to_numpy(v) / cone.variance)))
            return np.asarray(off * v + mu * seen[cone.rows, 0] / cone.variance)

        return np.asarray(conjugate_gradients(lambda r: r / own, remainder, right, _SOLVED, cone.rounds)[0])
