"""Independent functions with a kernel each, one for each class of a softmax.

    eta_nk = offset_k + f_k(x_n),   f_k ~ GP(0, kernel_k)
    d elbo / d theta_k = sum_ij (G_k)_ij d(K_k)_ij/d theta_k

theta is that of the first kernel, then of the second, and so on. G_k = dP/dSigma_k is the one that the functions of one
kernel add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..linalg.arrays import Array, ArrayLike, namespace
from ..priors.base import NewRows
from ..priors.latent_priors import DenseCovariance
from ..solvers.solution import Solution
from .base import Family
from .kernel import KernelCovariance


class ClassKernels(Family):
    """The prior of K functions at inputs X, independent and with a kernel each.

    Parameters
    ----------
    kernels : sequence of K kernels of scikit-learn
    X, offset, log_prior, level, slopes, centre : as in ``KernelCovariance``
        A constant and slopes are those of each function by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, Matern
    >>> from fenchel.hyperparameters import ClassKernels
    >>> family = ClassKernels([2.0 * RBF(1.0), Matern(2.0)], np.arange(3.0)[:, None])
    >>> family.names
    ('0__k1__constant_value', '0__k2__length_scale', '1__length_scale')
    >>> family.at(family.theta).covariance.shape
    (2, 3, 3)
    """

    def __init__(
        self,
        kernels: Sequence[Any],
        X: ArrayLike,
        offset: ArrayLike = 0.0,
        log_prior: Any = None,
        level: float = 0.0,
        slopes: ArrayLike | None = None,
        centre: ArrayLike = 0.0,
    ) -> None:
        trend: dict[str, Any] = {"level": level, "slopes": slopes, "centre": centre}
        self.parts = [KernelCovariance(kernel, X, offset=offset, **trend) for kernel in kernels]
        self._log_prior = log_prior
        self._ends = np.cumsum([part.theta.size for part in self.parts])[:-1]
        self._known: tuple[np.ndarray, Array] | None = None  # the last theta, all Sigma

    @property
    def theta(self) -> np.ndarray:
        return np.concatenate([part.theta for part in self.parts])

    @property
    def bounds(self) -> np.ndarray:
        return np.concatenate([part.bounds for part in self.parts])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{k}__{name}" for k, part in enumerate(self.parts) for name in part.names)

    def is_answer(self, entry: int, side: str) -> bool:
        part = int(np.searchsorted(self._ends, entry, side="right"))
        return self.parts[part].is_answer(entry - int(np.append(0, self._ends)[part]), side)

    def each(self, theta: np.ndarray) -> list[tuple[KernelCovariance, np.ndarray]]:
        """The functions with the theta of each."""
        return list(zip(self.parts, np.split(np.asarray(theta, dtype=np.float64), self._ends), strict=True))

    def at(self, theta: np.ndarray) -> DenseCovariance:
        theta = np.array(theta, dtype=np.float64)
        if self._known is None or not np.array_equal(self._known[0], theta):
            self._known = None  # its matrices leave before the next are made
            matrices = [part.matrix(own) for part, own in self.each(theta)]
            self._known = theta, namespace(matrices[0]).stack(matrices, axis=0)
        first = self.parts[0]
        return DenseCovariance.trusted(self._known[1], 0.0, None, first.offset_of(len(first.X)))

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        known = self._known is not None and np.array_equal(self._known[0], theta)
        blocks, out = solution.posterior.adjoint().covariance, []
        for k, (part, own) in enumerate(self.each(theta)):
            Sigma = self._known[1][k, ...] if known else None  # type: ignore[index]
            out.append(part.contracted(own, blocks[k], Sigma))
        return np.concatenate(out)

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """All functions at inputs ``table`` (M, D)."""
        rows = [part.new_rows(own, table) for part, own in self.each(theta)]
        cross = namespace(rows[0].cross).stack([one.cross for one in rows], axis=0)
        return NewRows(cross=cross, variance=np.stack([one.variance for one in rows], axis=1), offset=rows[0].offset)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> ClassKernels:
        from sklearn.gaussian_process.kernels import RBF

        return cls([1.4 * RBF([1.1, 0.7])], rng.normal(size=(n, 2)), level=0.5)
