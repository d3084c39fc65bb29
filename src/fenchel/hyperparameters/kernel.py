"""Families of dense covariances: a fixed one times a variance, and a kernel of scikit-learn.

    ScaledCovariance   Sigma = e^theta K                      d elbo / d theta = sum_ij dP/dSigma_ij Sigma_ij
    KernelCovariance   Sigma = kernel(X) + H H'               d elbo / d theta = sum_ij G_ij dK_ij/dtheta

theta is the log of a variance, or the kernel's own. G = dP/dSigma is summed over the predictors and contracted without
a tensor (``kernels.py``).
"""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from .. import gates
from ..checks import finite, numeric, problem, scalar
from ..kernels import (
    KeptDistances,
    contract,
    diagonal,
    evaluate,
    free_hyperparameters,
    is_covariance,
    names_of,
    places,
    refuse_compound,
    set_theta,
)
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy, namespace, to_numpy
from ..linalg.machine import one_thread
from ..priors.base import NewRows, Prior
from ..priors.latent_priors import DenseCovariance, checked_covariance
from ..priors.trends import Trend
from ..solvers.solution import Solution
from .base import Family, log_bounds, offset_at


class ScaledCovariance(Family):
    """A fixed covariance times a variance, whose log is theta.

    Parameters
    ----------
    covariance : array (L, L)
        Symmetric positive semidefinite; it is checked once.
    variance : float, default 1.0
        Starting value.
    mean, design, offset
        As in ``DenseCovariance``.
    bounds : pair of float, default (1e-5, 1e5)
        Bounds of the variance.

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
        """New latents, given by ``table`` = (cross (M, L), variance (M,)): their covariances at theta = 0."""
        (cross, variance), scale = table, float(np.exp(np.asarray(theta)[0]))
        offset = offset_at("ScaledCovariance", self.base.offset, np.shape(cross)[0])
        return NewRows(cross=scale * cross, variance=scale * variance, offset=offset)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> ScaledCovariance:
        x = rng.normal(size=(n, 2))
        distance = ((x[:, None] - x[None]) ** 2).sum(-1)
        return cls(np.exp(-0.5 * distance), variance=1.3, mean=0.1)


class KernelCovariance(Family):
    """The prior of a Gaussian process at inputs X, with the hyperparameters of its kernel.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels
        theta holds the logs of its free hyperparameters, within the bounds of the kernel. The kernel is not changed.
    X : array (L, D)
        numpy, or torch: kernels, fits and gradients are computed on its device.
    mean, design, offset
        As in ``DenseCovariance``. The offset may also be (1, C), the same for every row, or a function of X that
        returns (N, C).
    log_prior : callable, optional
        theta -> (log density, gradient); see ``hyperparameters.priors``. Default: flat.
    level : float, default 0.0
        Prior variance of a constant that is added to the function and integrated out with it.
    slopes, centre : arrays (D,), optional
        A linear mean, which is integrated out, too: the prior standard deviation of the slope of each column, and the
        point where the slopes add nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters import KernelCovariance
    >>> family = KernelCovariance(2.0 * RBF(1.0), np.arange(3.0)[:, None])
    >>> family.names
    ('k1__constant_value', 'k2__length_scale')
    """

    def __init__(
        self,
        kernel: Any,
        X: ArrayLike,
        mean: ArrayLike = 0.0,
        design: Any = None,
        offset: ArrayLike = 0.0,
        log_prior: Any = None,
        level: float = 0.0,
        slopes: ArrayLike | None = None,
        centre: ArrayLike = 0.0,
    ) -> None:
        if not hasattr(kernel, "clone_with_theta"):
            got = f"kernel is a {type(kernel).__name__}"
            raise problem("KernelCovariance", got, "a kernel of sklearn.gaussian_process.kernels, such as RBF(1.0)")
        refuse_compound(kernel)
        host = namespace(X) is np  # type: ignore[arg-type]
        rows: Array = finite("KernelCovariance", "X", numeric("KernelCovariance", "X", X)) if host else asarray(X, X)  # type: ignore[arg-type]
        if rows.ndim != 2:
            got = f"X has shape {tuple(rows.shape)}"
            raise problem("KernelCovariance", got, "(L, D)", "Use x[:, None] for one input.")
        self.kernel, self.X = kernel, rows
        self.mean, self.design, self.offset = mean, design, offset
        self.trend, self._log_prior = Trend("KernelCovariance", level, slopes, centre), log_prior
        if slopes is not None and self.trend.slopes.size != rows.shape[1]:
            raise problem("KernelCovariance", f"slopes has shape {self.trend.slopes.shape}", f"({rows.shape[1]},)")
        self._known: tuple[np.ndarray, Array] | None = None  # the last theta, Sigma
        self._scratch: Any = None  # one copy of the kernel that every theta is set on: a clone is slow
        self._places: list[tuple[Any, str, int]] | None = None

    @cached_property
    def theta(self) -> np.ndarray:
        return np.asarray(self.kernel.theta, dtype=np.float64)

    @cached_property
    def _free(self) -> list[Any]:
        """The kernel's free hyperparameters, which scikit-learn finds by introspection."""
        return free_hyperparameters(self.kernel)

    @cached_property
    def bounds(self) -> np.ndarray:
        return np.log(np.vstack([np.zeros((0, 2)), *(h.bounds for h in self._free)]))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return names_of(self.kernel, self._free)

    def is_answer(self, entry: int, side: str) -> bool:
        """Levels that are alike or have nothing in common, and effects that are none."""
        from ..category_kernels import Exchangeable, LevelEffect

        owners = [type(part) for part, _, n in places(self.kernel) or () for _ in range(n)]
        return bool(owners) and (owners[entry] is Exchangeable or (owners[entry] is LevelEffect and side == "lower"))

    @cached_property
    def _kept(self) -> KeptDistances | None:
        """The distances of few rows, where the kernel is of them alone."""
        few = is_numpy(self.X) and self.X.shape[0] <= gates.WHOLE_MATRIX
        return KeptDistances.of(self.kernel, to_numpy(self.X)) if few else None

    def _set(self, theta: np.ndarray) -> Any:
        """One copy of the kernel, set to theta."""
        if self._scratch is None:
            self._scratch = deepcopy(self.kernel)
            self._places = places(self._scratch)
        return set_theta(self._scratch, theta, self._places)

    def at_rows(self, rows: np.ndarray) -> KernelCovariance:
        """The same covariance of some of the rows, with mean 0."""
        return type(self)(self.kernel, self.X[rows], log_prior=self._log_prior, **self.trend.arguments)

    def at(self, theta: np.ndarray) -> DenseCovariance:
        theta = np.array(theta, dtype=np.float64)
        if self._known is None or not np.array_equal(self._known[0], theta):
            self._known = None  # its matrix leaves before the next is made
            self._known = theta, self.matrix(theta)
        n = len(self.X) if self.design is None else self.design.shape[0]
        return DenseCovariance.trusted(self._known[1], self.mean, self.design, self.offset_of(n))

    def kernel_at(self, theta: np.ndarray) -> Any:
        """A copy of the kernel at theta."""
        return deepcopy(self._set(np.asarray(theta, dtype=np.float64)))

    def offset_of(self, n: int) -> Any:
        """The offset of the n rows of the fit."""
        if callable(self.offset):
            return self.offset(self.X)
        same = np.ndim(self.offset) == 2 and np.shape(self.offset)[0] == 1
        return offset_at("KernelCovariance", self.offset, n) if same else self.offset

    def offset_at(self, X: np.ndarray) -> Any:
        """The offset of new rows."""
        return self.offset(X) if callable(self.offset) else offset_at(type(self).__name__, self.offset, len(X))

    def checked_rows(self, table: Any) -> np.ndarray:
        """New rows (M, D) as numbers."""
        X = numeric(type(self).__name__, "new rows", table)
        if X.ndim != 2 or X.shape[1] != self.X.shape[1]:
            raise problem(type(self).__name__, f"new rows have shape {X.shape}", f"(M, {self.X.shape[1]})")
        return X

    def matrix(self, theta: np.ndarray) -> Array:
        """Sigma at theta (L, L), which is a covariance."""
        if self._kept is not None:
            return self.trend.add_to(self._kept.value(theta), self.X)
        kernel = self._set(theta)
        K = evaluate(kernel, self.X)
        known = is_covariance(kernel, self.X.shape[1])
        if not known:
            checked_covariance("KernelCovariance", f"the matrix of {kernel} at X", K, stacked=False)
        return self._with_trend(K, self.X, known=known)

    def _with_trend(self, K: Array, X: Array, Z: Array | None = None, known: bool = False) -> Array:
        """The kernel's K with the trend, in the memory of a K of kernels that are known."""
        if not self.trend.size:
            return K
        return self.trend.add_to(K if known else K + 0.0, X, Z)  # a user's kernel may keep its K

    def without_trend(self, Sigma: Array) -> Array:
        """The kernel's part of Sigma at X."""
        if not self.trend.moves.size:
            return Sigma - self.trend.level
        return -self.trend.add_to(-Sigma, self.X)

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        with one_thread(self.X.shape[0] <= gates.ONE_THREAD_ROWS):
            blocks = solution.posterior.adjoint().covariance
            G = blocks.pop(0)
            while blocks:
                G = G + blocks.pop(0)
            known = self._known is not None and np.array_equal(self._known[0], theta)
            return self.contracted(theta, G, self._known[1] if known else None)  # type: ignore[index]

    def contracted(self, theta: np.ndarray, G: Array, Sigma: Array | None = None) -> np.ndarray:
        """sum_ij G_ij dSigma_ij/dtheta (n_theta,) of a symmetric G, with Sigma at theta where it is known."""
        theta = np.asarray(theta, dtype=np.float64)
        if self._kept is not None:
            whole = self.matrix(theta) if Sigma is None else Sigma
            return self._kept.slopes(theta, to_numpy(G), to_numpy(self.without_trend(whole)))
        return contract(self._set(theta), self.X, G, None if Sigma is None else self.without_trend(Sigma))

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """The function at inputs ``table`` (M, D), by its covariance with the latents."""
        X, kernel = self.checked_rows(table), self._set(np.asarray(theta, dtype=np.float64))
        there = asarray(X, self.X)
        return NewRows(
            cross=self._with_trend(evaluate(kernel, there, self.X), there, self.X),
            variance=np.maximum(to_numpy(diagonal(kernel, there)), 0.0) + self.trend.variances(X),
            offset=self.offset_at(X),
        )

    def covariance_at(self, theta: np.ndarray, table: np.ndarray) -> Array:
        """The prior covariance (M, M) of the function at inputs ``table`` (M, D)."""
        there = asarray(table, self.X)
        return self._with_trend(evaluate(self._set(np.asarray(theta, dtype=np.float64)), there), there)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> KernelCovariance:
        from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel

        kernel = 1.4 * RBF([1.1, 0.7]) + 0.5 * Matern(1.3, nu=1.5) + WhiteKernel(0.1)
        return cls(kernel, rng.normal(size=(n, 2)), mean=0.1)
