"""The latent of a Gaussian process: a kernel over the rows of X, with a constant and a linear mean.

eta = mean + H(x) u + f(x),    f ~ GP(0, kernel),    H: a constant and slopes (``priors/trends.py``)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..category_kernels import LevelKernels
from ..hyperparameters import ClassKernels, Family, KernelCovariance, Learned
from ..inputs.observations import Target
from ..kernels import is_compound, kernels_of
from ..linalg.arrays import Array, asarray, to_numpy
from ..linalg.dense import semidefinite_root
from ..linalg.devices import on_device
from ..posterior import Posterior
from ..priors.base import NewRows
from ..priors.trends import Trend
from .latent import Latent, with_prior
from .outputs import learn_by_function

_HELD_NOISE = tuple(np.log([1e6, 1e5, 1e4, 1e3, 1e2]))  # log noise above its lower bound at which it is fixed in turn
_UNRESOLVED_NOISE = float(np.log(1e4))  # the same, below which rounding may prevent convergence
_ROUNDING = 1e-9  # distance in log units from a bound below which noise ended there
_BLOCK = 1 << 21  # entries of a block of the covariance of new rows with the training rows: 16 MiB
_DEVICE_BLOCK = 1 << 26  # the same on a device


@dataclass
class KernelLatent(Latent):
    """The latent eta = mean + level + f(x), with level ~ N(0, v) and f ~ GP(0, kernel).

    Attributes
    ----------
    kernel : kernel, at the start of learning
    X : array (N, D)
    mean : float, array (K,) for several classes, or a function of X (``GivenMean``)
    level : float
        The prior variance v of the constant; 0 for none.
    theta : array, optional
        The start of learning, with the parameters of the likelihood, if it is not the theta of ``kernel``.
    shrinks : bool
        Whether the log of each length scale has a normal prior about its start (``with_prior``); the kernel is a
        constant times one with a length scale for each column.
    device : torch's device where the fit is computed, optional
    optimizer : callable, optional
        The user's optimizer, called as in scikit-learn (``own_optimizer``).
    slopes, centre : arrays (D,), optional
        Of the linear mean (``Trend``): prior sds of the slopes, and where they add nothing.
    levels : LevelKernels, optional
        The kernels of categorical columns, which are combined with ``kernel``, that of the others.
    """

    kernel: Any
    X: np.ndarray
    mean: Any
    level: float
    theta: np.ndarray | None = None
    shrinks: bool = False
    device: Any = None
    optimizer: Any = None
    slopes: np.ndarray | None = None
    centre: Any = 0.0
    levels: LevelKernels | None = None
    approximates: ClassVar[bool] = False
    is_trial: ClassVar[bool] = False  # whether another approximation may follow
    reason: str = ""  # why approximation="auto" chose this approximation

    @property
    def approximation_loss(self) -> float:
        """Upper bound, in nats, on the elbo that the approximation loses."""
        return 0.0

    def shared(self) -> dict[str, Any]:
        """The fields that an approximation of the same process shares."""
        return {own.name: vars(self)[own.name] for own in fields(KernelLatent) if own.name != "optimizer"}

    def table(self) -> Any:
        """Table of the approximations that were tried; None for the exact process."""
        return None

    def rows(self) -> np.ndarray:
        return self.X

    @cached_property
    def inputs(self) -> Array:
        """X on the device of the fit."""
        return on_device(self.X, self.device)

    @property
    def mean_options(self) -> dict[str, Any]:
        """Options of the family for mean, constant and slopes; the mean is an offset so that classes share a matrix."""
        mean = self.mean if callable(self.mean) else np.reshape(self.mean, (1, -1))
        return {"offset": mean, "level": self.level, "slopes": self.slopes, "centre": self.centre}

    def family(self) -> Any:
        kernel = self.whole(self.kernel)
        if is_compound(kernel):
            return self.shrunk(ClassKernels(kernel.kernels, self.inputs, **self.mean_options))
        return self.shrunk(KernelCovariance(kernel, self.inputs, **self.mean_options))

    def family_like(self, other: Family) -> Any:
        """The family with the prior of theta that another has."""
        out = self.family()
        out._log_prior = other._log_prior
        return out

    @property
    def numeric(self) -> list[int]:
        """The columns that ``kernel`` applies to."""
        return [d for d in range(self.X.shape[1]) if self.levels is None or d not in self.levels.columns]

    def whole(self, kernel: Any) -> Any:
        """The kernel of all columns, from ``kernel`` of the numeric ones."""
        if self.levels is None:
            return kernel
        if is_compound(kernel):
            return type(kernel)([self.whole(one) for one in kernel.kernels])
        return self.levels.whole(kernel, self.numeric)

    def shrunk(self, family: Any, centre: np.ndarray | None = None) -> Any:
        """The family with the prior of the length scales, the hyperparameters of a kernel after its first one."""
        if not self.shrinks:
            return family
        sizes = [one.n_dims for one in kernels_of(self.kernel)]
        starts = np.cumsum([0, *(one.n_dims for one in kernels_of(self.whole(self.kernel))[:-1])])
        entries = [i for start, n in zip(starts, sizes, strict=True) for i in range(start + 1, start + n)]
        return with_prior(family, entries, centre)

    @cached_property
    def _asked(self) -> tuple[Any, int]:
        return self.family(), self.whole(self.kernel).n_dims

    def trend_rows(self, theta: np.ndarray) -> NewRows:
        """New rows (1 + D) that stand for the constant at x = 0 and the slope of each column."""
        T, H = self.trend.coefficients(), to_numpy(self.trend.columns(self.inputs))
        cross, variance = T @ H.T, np.sum(T * T, axis=1)
        return NewRows(cross=asarray(cross, self.inputs), variance=variance, offset=0.0)

    @cached_property
    def trend(self) -> Trend:
        """The constant and the slopes."""
        return Trend("mean", self.level, self.slopes, self.centre)

    def new_rows(self, theta: np.ndarray, table: np.ndarray) -> NewRows:
        family, n_theta = self._asked
        return family.new_rows(theta[:n_theta], table)

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        """Learn the hyperparameters; if the noise ends at its lower bound, learn again with fixed noise above it.

        At the lowest noise the covariance is nearly singular, and rounding changes the gradient of the kernel, more so
        the larger its variance is. If the search does not converge there, the noise is fixed at decreasing levels, from
        one at which it does, and the last search that converges is the result.
        """
        if self.optimizer is not None:
            return learn_by_function(self.optimizer, self.theta, target, family, own, options)
        learned = super().learn(target, family, own, theta=self.theta, **options)
        if not learned.converged and self.theta is not None:  # near the maximum rounding may hide the rise
            learned = max(learned, super().learn(target, family, own, **options), key=lambda one: one.converged)
        noise = np.array([entry.size for entry in learned.likelihood.entries()])  # its entries of theta
        if not (own and noise.any()):
            return learned
        above = learned.likelihood.theta - target.likelihood.theta_bounds(target.y, options["weights"])[:, 0]
        if above[noise].min() > (_ROUNDING if learned.converged else _UNRESOLVED_NOISE):
            return learned
        best, latent = learned, self
        for level in _HELD_NOISE[-1:] if learned.converged else _HELD_NOISE:
            likelihood = learned.likelihood.with_theta(learned.likelihood.theta + np.where(noise, level - above, 0.0))
            held = replace(target, likelihood=likelihood)
            refit = super(KernelLatent, latent).learn(held, latent.family_like(family), False, **options)
            if not refit.converged:
                break
            n, levels = self.kernel.n_dims, self.levels
            levels = None if levels is None else levels.with_theta(refit.theta[n:])
            best, latent = refit, replace(self, kernel=self.kernel.clone_with_theta(refit.theta[:n]), levels=levels)
        return best

    def joint_covariance(self, posterior: Posterior, theta: np.ndarray, table: np.ndarray) -> np.ndarray:
        family, n_theta = self._asked
        own = theta[:n_theta]
        cross = family.new_rows(own, table).cross
        return to_numpy(posterior.predict_covariance(cross, family.covariance_at(own, table)))

    def draws(
        self, posterior: Posterior, theta: np.ndarray, table: np.ndarray, size: int, rng: np.random.Generator
    ) -> np.ndarray:
        mean, _ = self.moments(posterior, theta, table, mean_only=True)
        root = semidefinite_root(self.joint_covariance(posterior, theta, table))
        return np.asarray(mean[:, None] + root @ rng.standard_normal((root.shape[1], size)))

    def blocks(self, table: np.ndarray) -> Iterable[np.ndarray]:
        """New rows in blocks, so that the full covariance with the training rows is never stored."""
        step = max(1, (_BLOCK if self.device is None else _DEVICE_BLOCK) // self.X.shape[0])
        return (table[i : i + step] for i in range(0, table.shape[0], step))
