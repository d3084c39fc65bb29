"""The latents a rival works in: z = mu + R u, u ~ N(0, I), eta = mt + X u, X = W R.

The prior's own mean may be shifted by observations without curvature; the problem has done that in ``mt``. Dense, on
the host: the methods of this room need all of Sigma.
"""

from __future__ import annotations

import numpy as np

from ...checks import problem as refusal
from ...linalg.arrays import Array, is_numpy
from ...linalg.dense import semidefinite_root, solve_lower
from ...priors.latents import Latents
from ...priors.predictors import LatentPredictors
from ...priors.sparse import SparseLatents
from ...problem import Problem

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
        """Refuse a singular Sigma, under which ``what`` does not exist."""
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
