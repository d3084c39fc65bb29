"""A dense prior covariance: z ~ N(mean, covariance), eta = design z + offset.

The matrix is used as it is: nothing is inverted, no jitter is added, and a kernel matrix that is singular up to
rounding (equal inputs, long length scales) is welcome.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..checks import number, numeric, positive, problem
from ..linalg import dense
from ..linalg.arrays import Array, ArrayLike, asarray, namespace, to_numpy
from .base import Predictors, Prior
from .latents import Latents
from .rebuildable import Made, array_of
from .setup import LatentPrior, in_smaller_space


class DenseCovariance(LatentPrior):
    """A Gaussian prior given by its covariance matrix.

    Parameters
    ----------
    covariance : array (L, L) or (C, L, L)
        Symmetric positive semidefinite. One for all predictors of an observation, or C own ones. With several
        predictors a matrix of N*C rows (observation by observation) makes them correlated a priori. numpy, torch or
        cupy: the computation runs where it lives. It is referred to, not copied.
    mean : float, array (L,) or (L, C)
    design : array (N, L), scipy sparse or ``linalg.design.Design``, optional
        W; without it every latent is a predictor. N*C rows make the predictors correlated.
    offset : float, array (N,) or (N, C)
    extra_variance : float, array (N,) or (N, C)
        Variance of each eta that the latents do not explain, as where few inducing points stand for many: it is in what
        the likelihood expects, and q leaves it as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.priors import DenseCovariance
    >>> DenseCovariance(np.eye(3)).n_rows
    3
    """

    def __init__(
        self,
        covariance: ArrayLike,
        mean: ArrayLike = 0.0,
        design: Any = None,
        offset: ArrayLike = 0.0,
        extra_variance: ArrayLike = 0.0,
    ) -> None:
        self._covariance: Array | Made = checked_covariance("DenseCovariance", "covariance", covariance, stacked=True)
        self.place(self.covariance, self.covariance.shape[-1], mean, design, offset, extra_variance)

    @classmethod
    def trusted(
        cls, covariance: Array | Made, mean: ArrayLike = 0.0, design: Any = None, offset: ArrayLike = 0.0
    ) -> DenseCovariance:
        """Without the checks of the covariance: for a kernel that is known to be one, at the price of nothing."""
        out = cls.__new__(cls)
        out._covariance = covariance
        out.place(out.covariance, out.covariance.shape[-1], mean, design, offset, 0.0)
        return out

    @property
    def covariance(self) -> Array:
        """Sigma (L, L), or (C, L, L)."""
        return array_of(self._covariance)

    def scaled(self, factor: float) -> DenseCovariance:
        """The same prior with its covariance multiplied by ``factor`` > 0; checked already, so not checked again."""
        out = copy.copy(self)
        out._covariance = float(positive("DenseCovariance", "factor", np.float64(factor))) * self.covariance
        return out

    @property
    def like(self) -> Array:
        return self.covariance

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        Sigma, own = self.covariance, self.covariance.ndim == 3

        def latents(b: int, mean: Array) -> Latents:
            return Latents(mean, Sigma[b, ...] if own else self._covariance)

        return in_smaller_space(
            self.seen(n_observations, n_predictors, latents, Sigma.shape[0] if own else None), coupled
        )

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        def kernel(m: int) -> np.ndarray:
            x = rng.normal(size=(m, 2))
            distance = ((x[:, None] - x[None]) ** 2).sum(-1)
            return 1.5 * np.exp(-0.5 * distance) + 0.1 * np.eye(m)

        wide = rng.normal(size=(n, n + 3)) / np.sqrt(n)
        out: list[Prior] = [
            cls(kernel(n), mean=0.2, offset=rng.normal(size=n) * 0.1),
            cls(kernel(n + 3), mean=rng.normal(size=n + 3), design=wide),
            cls(kernel(2), design=rng.normal(size=(n, 2))),
        ]
        if n_predictors > 1:
            out += [
                cls(np.stack([kernel(n) for _ in range(n_predictors)])),
                cls(kernel(n * n_predictors), mean=-0.1),
            ]
        return out

    def __repr__(self) -> str:
        return f"DenseCovariance({tuple(self.covariance.shape)}, {self.n_rows} rows)"


def checked_covariance(where: str, name: str, value: Any, stacked: bool) -> Array:
    """A finite, symmetric, positive semidefinite float64 matrix (or a stack of them), or the sentence why not."""
    if namespace(value) is np:
        single = getattr(value, "dtype", None) == np.float32
        hint = "A sparse precision or a covariance must be given as a dense array here."
        S: Array = numeric(where, name, value, hint)
    else:
        single = value.dtype != namespace(value).float64
        S = asarray(value, value)
    if S.ndim == 3 and stacked:
        for c in range(S.shape[0]):
            checked_covariance(where, f"{name}[{c}]", S[c, ...], False)
        return S
    if S.ndim != 2 or S.shape[0] != S.shape[1] or S.shape[0] == 0:
        raise problem(where, f"{name} has shape {tuple(S.shape)}", "a square matrix (L, L)" + " or (C, L, L)" * stacked)
    asymmetry = dense.asymmetry(S)
    if not np.isfinite(asymmetry):
        bad = np.argwhere(~np.isfinite(to_numpy(S)))[0]
        raise problem(where, f"{name}[{bad[0]}, {bad[1]}] is not finite", "finite numbers")
    scale = float(namespace(S).max(namespace(S).abs(S)))
    if asymmetry > 1e-8 * scale:
        raise problem(
            where,
            f"{name} is not symmetric: entries differ from their mirror image by up to {number(asymmetry)}",
            "a symmetric matrix",
            "Use (K + K.T) / 2 if the difference is rounding.",
        )
    eps = np.finfo(np.float32 if single else np.float64).eps  # a kernel computed in float32 has its rounding
    if not dense.is_positive_semidefinite(S, dense.empty_square(S.shape[0], S), float(eps)):
        raise problem(
            where,
            f"{name} is not positive semidefinite: its smallest eigenvalue is {number(dense.smallest_eigenvalue(S))}",
            "a covariance matrix",
            "Check the kernel, or add a noise term on the diagonal if the model has one.",
        )
    return S
