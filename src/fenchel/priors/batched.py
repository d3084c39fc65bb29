"""Many small models that share their features: z_r ~ N(0, I), eta_r = W z_r + offset for every row r of a table.

This is ``Features`` in batch. All rows are solved by one Newton iteration at a time, each in its own L x L space:

    A_r = I + W' Lam_r W,    V_r = A_r^-1,    log|B| = sum_r log|A_r|,    rho_rp = W_p' V_r W_p

With the packed outer products of the rows of W as a table (linalg/small.py), A of all rows and rho of all cells are one
matrix product each. Newton's curvature S + 1/2 Vt o Vt is block diagonal over rows; its cheap part S + 1/2 diag(rho^2)
is inverted by Woodbury in L x L and preconditions conjugate gradients where it does not suffice by itself.

Cells are observations, row by row; those without data leave the system (``restrict``) and cost no likelihood.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..linalg import small
from ..linalg.arrays import Array, ArrayLike, to_numpy
from ..linalg.dense import NotPositiveDefinite
from .base import EPS, Factor, NewRows, Predictors, Prior
from .newton_systems import CheapCurvature, NewtonSystem, iterated


class BatchedFeatures(Prior):
    """The rows of a table, each with standard normal weights of its own on common features.

    Parameters
    ----------
    loadings : array (D * C, L)
        W: the features of each cell of a row, C predictors a cell.
    n_copies : int
        Rows of the table. Observations are its cells, row by row: ``n_copies * D`` of them.
    offset : float or array (D * C,)

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.priors.batched import BatchedFeatures
    >>> BatchedFeatures(np.ones((3, 1)), 5).n_rows
    15
    """

    def __init__(self, loadings: Any, n_copies: int, offset: ArrayLike = 0.0) -> None:
        self.loadings = finite("BatchedFeatures", "loadings", numeric("BatchedFeatures", "loadings", loadings))
        if self.loadings.ndim != 2 or 0 in self.loadings.shape:
            raise problem("BatchedFeatures", f"loadings has shape {self.loadings.shape}", "(D * C, L)")
        self.n_copies = int(n_copies)
        offset = finite("BatchedFeatures", "offset", numeric("BatchedFeatures", "offset", offset))
        self.offset = np.broadcast_to(offset, (self.loadings.shape[0],)).astype(np.float64)

    @property
    def n_rows(self) -> int:
        return self.n_copies * int(self.loadings.shape[0])

    @property
    def like(self) -> Array:
        return self.loadings

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> BatchedPredictors:
        if n_observations * n_predictors != self.n_rows:
            raise problem(
                "BatchedFeatures",
                f"{n_observations} cells of {n_predictors} predictors meet {self.n_rows} rows of features",
                "one row of features for each predictor of each cell",
            )
        return BatchedPredictors(self, n_predictors, None)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        return [cls(rng.normal(size=(3 * n_predictors, 2)), n // 3, offset=0.1)]

    def __repr__(self) -> str:
        P, L = self.loadings.shape
        return f"BatchedFeatures({self.n_copies} copies of {L} weights, {P} predictors each)"


class BatchedPredictors(Predictors):
    """The cells of the table that are in the system: all of them, or those in ``keep``."""

    negative_sites = True

    def __init__(self, prior: BatchedFeatures, n_predictors: int, keep: np.ndarray | None) -> None:
        self.prior, self.W, self.R, self.keep = prior, prior.loadings, prior.n_copies, keep
        self.n_predictors = n_predictors
        self.n_cells = self.W.shape[0] // n_predictors  # of one row
        self.correlated = n_predictors > 1
        self.table = small.pairs(self.W)
        self.back = small.doubled(self.table)
        self.mt = self.gather(np.broadcast_to(prior.offset, (self.R, self.W.shape[0])))

    def scatter(self, x: Array) -> np.ndarray:
        """(n, C) of the cells in the system -> (R, D * C), 0 elsewhere."""
        if self.keep is None:
            return np.reshape(x, (self.R, -1))
        out = np.zeros((self.R * self.n_cells, self.n_predictors))
        out[self.keep] = x
        return out.reshape(self.R, -1)

    def gather(self, x: np.ndarray) -> np.ndarray:
        """(R, D * C) -> (n, C)."""
        cells = x.reshape(-1, self.n_predictors)
        return cells if self.keep is None else cells[self.keep]

    @property
    def variance(self) -> Array:
        return self.gather(np.broadcast_to(np.sum(self.W**2, axis=1), (self.R, self.W.shape[0])))

    def apply(self, alpha: Array) -> Array:
        return self.gather((self.scatter(alpha) @ self.W) @ self.W.T)

    def weights_of(self, alpha: Array) -> list[Array]:
        return [self.scatter(alpha) @ self.W]

    def from_weights(self, weights: list[Array]) -> Array:
        return self.gather(to_numpy(weights[0]) @ self.W.T)

    def weights_norm(self, weights: list[Array]) -> float:
        return float(np.sum(weights[0] * weights[0]))

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        return self.weights_norm(self.weights_of(alpha))

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        return EPS * quadratic

    def at(self, lam: Array) -> BatchedFactor:
        return BatchedFactor(self, lam)

    def proves_definite(self, lam: Array) -> bool:
        D, L = self.W.shape
        try:
            BatchedFactor(self, lam / (1.0 - L * (L + D + 8.0) * EPS))
        except NotPositiveDefinite:
            return False
        return True

    def restrict(self, keep: np.ndarray) -> BatchedPredictors:
        return BatchedPredictors(self.prior, self.n_predictors, keep if self.keep is None else self.keep[keep])

    def variance_of(self, rows: np.ndarray, factor: BatchedFactor, lam: Array) -> Array:
        return self.gather(factor.cells)[rows]

    def adjoints(self, alpha: Array) -> list[Array]:
        return [(self.scatter(alpha) @ self.W).ravel()]

    def latent_shift(self, alpha: Array, weights: list[Array] | None = None) -> Array:
        return np.ravel((self.weights_of(alpha) if weights is None else weights)[0])

    def latent_mean(self) -> Array:
        return np.zeros(self.R * self.W.shape[1])

    def predict(
        self, factor: Factor, alpha: Array, new: NewRows, weights: list[Array] | None = None
    ) -> tuple[Array, Array | None]:
        raise _refusal("predict")


def _refusal(what: str) -> Exception:
    return problem(
        f"posterior.{what}",
        "a batch of small models has no such answer of its own",
        "one Features prior",
        "Fit the row by itself with Features(loadings).",
    )


class BatchedFactor(Factor):
    """V_r = (I + W' Lam_r W)^-1 of every row, packed (R, T)."""

    own_latents = True

    def __init__(self, predictors: BatchedPredictors, lam: Array) -> None:
        self.predictors = self.own = predictors
        self.lam = lam
        self.V, log_det, failed = small.inverses(predictors.scatter(lam) @ predictors.table)
        if failed or not np.isfinite(log_det).all():
            raise NotPositiveDefinite(f"{failed} of {predictors.R} rows")
        self.log_dets, self.log_det = log_det, float(log_det.sum())

    @property
    def log_det_rounding(self) -> float:
        # of each row's I + W' Lam W by the least its cells could be amplified
        each = 1.0 + self.lam * (self.own.variance - self.variance)
        return EPS * float(np.sqrt(np.sum(each * each)))

    @cached_property
    def cells(self) -> np.ndarray:
        """rho of every predictor of every row (R, D * C), cells without data included."""
        return np.asarray(self.V @ self.own.back.T)

    @property
    def variance(self) -> Array:
        return self.own.gather(self.cells)

    def apply(self, v: Array) -> Array:
        u = small.multiply(self.V, self.own.scatter(v) @ self.own.W)
        return self.own.gather(u @ self.own.W.T)

    def hadamard(self, v: Array) -> Array:
        Q = small.sandwich(self.V, self.own.scatter(v) @ self.own.table)
        return self.own.gather(Q @ self.own.back.T)

    # -- Newton ------------------------------------------------------------------------------------
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        return iterated(self, system, BatchedCurvature(self, system), system.economical)

    # -- everything else ---------------------------------------------------------------------------
    def certificate(self, residual: Array, d: Array) -> float:
        first = self.own.scatter(residual) @ self.own.W
        G = self.own.scatter(d) @ self.own.table
        i, j = np.tril_indices(self.own.W.shape[1])
        second = small.sandwich(G, self.V)[:, i == j]  # trace of G V G
        return 0.5 * float(np.sum(first * first)) + 0.5 * float(second.sum())

    def design_adjoint(self, everyone: BatchedPredictors, alpha: Array, lam: Array, mean: Array) -> list[Array]:
        """dP/dW (D * C, L) of the loadings that the rows share: -sum_r (alpha_r m_r' + Lam_r W V_r)."""
        a, weight = everyone.scatter(alpha), everyone.scatter(lam)
        pooled = small.unpack(weight.T @ self.V)  # sum_r lam_rp V_r of each predictor
        return [design_slope(a, np.reshape(mean, (everyone.R, -1)), pooled, everyone.W)]

    def latent_variance(self) -> Array:
        i, j = np.tril_indices(self.own.W.shape[1])
        return self.V[:, i == j].ravel()

    def observation_covariance(self) -> Array:
        own, C = self.own, self.own.n_predictors
        W = own.W.reshape(own.n_cells, C, -1)
        full = np.einsum("jci,rik,jdk->rjcd", W, small.unpack(self.V), W, optimize=True).reshape(-1, C, C)
        return full if own.keep is None else full[own.keep]

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        own = self.own
        draws = np.reshape(self.sample_latents(size, rng), (size, own.R, -1)) @ own.W.T
        return np.stack([own.gather(draw) for draw in draws]) if size else np.empty((0, *own.mt.shape))

    def sample_latents(self, size: int, rng: np.random.Generator) -> Array:
        root = np.linalg.cholesky(small.unpack(self.V))
        noise = rng.standard_normal((size, self.own.R, self.own.W.shape[1]))
        return np.asarray(np.einsum("rij,srj->sri", root, noise, optimize=True)).reshape(size, -1)

    def covariance(self) -> list[Array]:
        raise _refusal("covariance")


def design_slope(alpha: np.ndarray, mean: np.ndarray, pooled: np.ndarray, W: np.ndarray) -> np.ndarray:
    """-sum_r (alpha_r m_r' + Lam_r W V_r) (P, L), with ``pooled`` (P, L, L) the sums of lam_rp V_r."""
    return np.asarray(-alpha.T @ mean - np.einsum("pij,pj->pi", pooled, W))


class BatchedCurvature(CheapCurvature):
    """Newton's cheap curvature, J of a softmax included: H_r = I + X' Jt X is L x L a row."""

    def __init__(self, factor: BatchedFactor, system: NewtonSystem) -> None:
        super().__init__(factor, system)
        self.own = factor.own
        H = self.own.scatter(system.to_predictors(self.signs**2 * self.d)) @ self.own.table
        if self.total is not None:
            H -= self._shared(to_numpy(self.total))
        self.inverse, _, failed = small.inverses(H)
        if failed:
            raise NotPositiveDefinite(f"{failed} of {self.own.R} rows")

    def _shared(self, total: np.ndarray) -> np.ndarray:
        """sum over the cells of a row of z z' / total, z = sum_c d_c W_c: what a common normalisation takes away."""
        own, C = self.own, self.own.n_predictors
        signed = own.scatter(self.system.to_predictors(self.signs * self.d)).reshape(own.R, own.n_cells, C)
        root = 1.0 / np.sqrt(np.where(total > 0.0, total, np.inf))
        scale = own.scatter(np.broadcast_to(root[:, None], (root.size, C)))[:, ::C]
        W = own.W.reshape(own.n_cells, C, -1)
        i, j = np.tril_indices(W.shape[2])
        out = np.zeros((own.R, i.size))
        for k in range(own.n_cells):
            z = (signed[:, k, :] @ W[k]) * scale[:, k : k + 1]
            out += z[:, i] * z[:, j]
        return out

    def inside(self, x: Array) -> Array:
        own = self.own
        return own.gather(small.multiply(self.inverse, own.scatter(x) @ own.W) @ own.W.T)
