"""A fixed covariance with a learned variance: Sigma = e^theta K.

d elbo / d theta = sum_ij dP/dSigma_ij Sigma_ij
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import scalar
from ..linalg.arrays import Array, ArrayLike, namespace
from ..priors.base import NewRows, Prior
from ..priors.latent_priors import DenseCovariance
from ..solvers.solution import Solution
from .base import Family, log_bounds, offset_at


class ScaledCovariance(Family):
    """e^theta times a covariance that is checked once.

    Parameters
    ----------
    covariance : array (L, L)
    variance : float
        Where theta = log variance starts.
    mean, design, offset : as in ``DenseCovariance``
    bounds : pair of float
        Of the variance.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters import ScaledCovariance
    >>> ScaledCovariance(np.eye(3), variance=2.0).at(np.log([5.0])).covariance[0, 0].round(12)
    np.float64(5.0)
    """

    names = ("log variance",)

    def __init__(
        self,
        covariance: ArrayLike,
        variance: float = 1.0,
        mean: ArrayLike = 0.0,
        design: Any = None,
        offset: ArrayLike = 0.0,
        bounds: tuple[float, float] = (1e-5, 1e5),
    ) -> None:
        self.base = DenseCovariance(covariance, mean, design, offset)
        self._theta = np.log(np.array([scalar("ScaledCovariance", "variance", variance, 0.0)]))
        self._bounds = log_bounds("ScaledCovariance", bounds)

    @property
    def theta(self) -> np.ndarray:
        return self._theta

    @property
    def bounds(self) -> np.ndarray:
        return self._bounds

    def at(self, theta: np.ndarray) -> Prior:
        return self.base.scaled(float(np.exp(np.asarray(theta)[0])))

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        Sigma, scale = self.base.covariance, float(np.exp(np.asarray(theta)[0]))

        def inner(G: Array) -> float:
            return scale * float(namespace(G).sum(G * Sigma))

        return np.array([sum(inner(G) for G in solution.posterior.adjoint().covariance)])

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """New latents by ``table`` = (cross (M, L), variance (M,)), their covariances at theta = 0."""
        (cross, variance), scale = table, float(np.exp(np.asarray(theta)[0]))
        offset = offset_at("ScaledCovariance", self.base.offset, np.shape(cross)[0])
        return NewRows(cross=scale * cross, variance=scale * variance, offset=offset)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> ScaledCovariance:
        x = rng.normal(size=(n, 2))
        distance = ((x[:, None] - x[None]) ** 2).sum(-1)
        return cls(np.exp(-0.5 * distance), variance=1.3, mean=0.1)
