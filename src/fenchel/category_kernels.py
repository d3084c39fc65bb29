"""Kernels of some of the columns, and of columns that hold levels.

    OnColumns(kernel, c)      k(x, x') = kernel(x_c, x'_c)
    LevelEffect(v)            k(x, x') = v where x = x', else 0
    Exchangeable(s)           k(x, x') = prod_d (1 where x_d = x'_d, else 1 - s_d),    0 < s <= 1

Levels are exchangeable: all pairs have the same correlation, and a new level is a new draw. ``LevelEffect`` is a random
intercept of each level. In a product with a kernel of numbers ``Exchangeable`` gives each level its own function about
a shared one: (1 - s) k + s k 1[same level].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    CompoundKernel,
    ConstantKernel,
    Exponentiation,
    Hyperparameter,
    Kernel,
    KernelOperator,
    NormalizedKernelMixin,
    StationaryKernelMixin,
)

from .checks import problem
from .files import StatedEstimator
from .linalg.arrays import Array, ArrayLike, namespace

SHARE_BOUNDS = (1e-4, 1.0)


def _same(X: ArrayLike, Y: Any, eval_gradient: bool) -> np.ndarray:
    """Whether two rows agree in each column (N, M, D)."""
    if Y is not None and eval_gradient:
        raise ValueError("Gradient can only be evaluated when Y is None.")
    X = np.atleast_2d(X)
    Z = X if Y is None else np.atleast_2d(Y)
    return np.asarray(X[:, None, :] == Z[None, :, :])


def _agree(X: Array, Z: Array, d: int) -> Array:
    """Whether rows agree in one column (..., n, m), in any array library."""
    return X[..., d][..., :, None] == Z[..., d][..., None, :]


def _ones(X: Array, Z: Array) -> Array:
    return 1.0 + 0.0 * (X[..., 0][..., :, None] * Z[..., 0][..., None, :])


class Exchangeable(StatedEstimator, StationaryKernelMixin, NormalizedKernelMixin, Kernel):
    """A kernel of levels: 1 if all columns agree, times 1 - own_share for each column that does not.

    Parameters
    ----------
    own_share : float, or array (D,)
        Share of the variance that is specific to a level; the correlation of two levels is 1 - own_share. One for all
        columns, or one for each.
    own_share_bounds : pair of float, array (D, 2) or "fixed"
        Bounds of own_share, above 0 and at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.category_kernels import Exchangeable
    >>> Exchangeable([0.5, 0.8])(np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 3.0]])).round(3).tolist()
    [[1.0, 0.2, 0.1], [0.2, 1.0, 0.1], [0.1, 0.1, 1.0]]
    """

    def __init__(self, own_share: Any = 0.5, own_share_bounds: Any = SHARE_BOUNDS) -> None:
        self.own_share, self.own_share_bounds = own_share, own_share_bounds

    @property
    def anisotropic(self) -> bool:
        """Whether each column has its own share."""
        return bool(np.size(self.own_share) > 1)

    @property
    def hyperparameter_own_share(self) -> Hyperparameter:
        if self.anisotropic:
            return Hyperparameter("own_share", "numeric", self.own_share_bounds, len(self.own_share))
        return Hyperparameter("own_share", "numeric", self.own_share_bounds)

    def shares(self, n_columns: int) -> np.ndarray:
        """Check the shares and return them for all columns (D,)."""
        each = np.ravel(np.asarray(self.own_share, dtype=np.float64))
        if each.size not in (1, n_columns) or not ((each >= 0.0) & (each <= 1.0 + 1e-12)).all():
            got = f"own_share = {self.own_share!r} and {n_columns} columns"
            raise problem("Exchangeable", got, "shares between 0 and 1, one for all columns or one for each")
        return np.broadcast_to(np.minimum(each, 1.0), (n_columns,))

    def cross(self, X: Array, Z: Array, but: int | None = None) -> Array:
        """k(x_i, z_j) in any array library, leaving out column ``but``."""
        out = _ones(X, Z)
        for d, share in enumerate(self.shares(X.shape[-1])):
            if d != but:
                out *= namespace(X).where(_agree(X, Z, d), 0.0 * out + 1.0, 0.0 * out + (1.0 - float(share)))
        return out

    def cross_slopes(self, X: Array, Z: Array, T: Array) -> list[float]:
        """sum_ij T_ij dk(x_i, z_j)/dtheta."""
        if self.hyperparameter_own_share.fixed:
            return []
        each, xp = [], namespace(X)
        for d, share in enumerate(self.shares(X.shape[-1])):
            differs = xp.where(_agree(X, Z, d), 0.0 * T, T)
            each.append(-float(share) * float(xp.sum(differs * self.cross(X, Z, d))))
        return each if self.anisotropic else [sum(each)]

    def __call__(self, X: ArrayLike, Y: Any = None, eval_gradient: bool = False) -> Any:
        same = _same(X, Y, eval_gradient)
        share = self.shares(same.shape[2])
        each = np.where(same, 1.0, 1.0 - share)
        K = np.prod(each, axis=2)
        if not eval_gradient:
            return K
        if self.hyperparameter_own_share.fixed:
            return K, np.empty((*K.shape, 0))
        others = [np.prod(np.delete(each, d, axis=2), axis=2) for d in range(share.size)]
        slopes = -share * np.stack(others, axis=2) * ~same
        return K, slopes if self.anisotropic else slopes.sum(axis=2, keepdims=True)

    def __repr__(self) -> str:
        shown = ", ".join(f"{one:.3g}" for one in np.ravel(self.own_share))
        return f"Exchangeable(own_share={f'[{shown}]' if self.anisotropic else shown})"


class LevelEffect(StatedEstimator, StationaryKernelMixin, Kernel):
    """A kernel of levels: a variance if all columns agree, else 0.

    Parameters
    ----------
    variance : float
    variance_bounds : pair of float or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.category_kernels import LevelEffect
    >>> LevelEffect(2.0)(np.array([[0.0], [1.0], [0.0]])).tolist()
    [[2.0, 0.0, 2.0], [0.0, 2.0, 0.0], [2.0, 0.0, 2.0]]
    """

    def __init__(self, variance: float = 1.0, variance_bounds: Any = (1e-5, 1e5)) -> None:
        self.variance, self.variance_bounds = variance, variance_bounds

    @property
    def hyperparameter_variance(self) -> Hyperparameter:
        return Hyperparameter("variance", "numeric", self.variance_bounds)

    def cross(self, X: Array, Z: Array) -> Array:
        """k(x_i, z_j) in any array library."""
        out = float(self.variance) * _ones(X, Z)
        for d in range(X.shape[-1]):
            out = namespace(X).where(_agree(X, Z, d), out, 0.0 * out)
        return out

    def cross_slopes(self, X: Array, Z: Array, T: Array) -> list[float]:
        """sum_ij T_ij dk(x_i, z_j)/dtheta."""
        return [] if self.hyperparameter_variance.fixed else [float(namespace(X).sum(T * self.cross(X, Z)))]

    def variance_slopes(self, t: Array) -> list[float]:
        """sum_i t_i dk(x_i, x_i)/dtheta."""
        return [] if self.hyperparameter_variance.fixed else [float(self.variance) * float(namespace(t).sum(t))]

    def __call__(self, X: ArrayLike, Y: Any = None, eval_gradient: bool = False) -> Any:
        K = float(self.variance) * np.all(_same(X, Y, eval_gradient), axis=2)
        if not eval_gradient:
            return K
        return K, np.empty((*K.shape, 0)) if self.hyperparameter_variance.fixed else K[:, :, None].copy()

    def diag(self, X: ArrayLike) -> np.ndarray:
        return np.full(np.atleast_2d(X).shape[0], float(self.variance))

    def __repr__(self) -> str:
        return f"LevelEffect(variance={float(self.variance):.3g})"


class OnColumns(StatedEstimator, Kernel):
    """A kernel of some of the columns, like ``active_dims`` of GPyTorch and GPflow.

    Parameters
    ----------
    kernel : kernel of scikit-learn
    columns : sequence of int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.category_kernels import OnColumns
    >>> kernel = OnColumns(RBF(1.0), [0]) * OnColumns(RBF(3.0), [1])
    >>> kernel(np.array([[0.0, 0.0], [1.0, 3.0]])).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """

    def __init__(self, kernel: Any, columns: Sequence[int]) -> None:
        self.kernel, self.columns = kernel, columns

    def part(self, X: Array) -> Array:
        """The columns of X that the kernel uses."""
        columns = np.asarray(self.columns)
        if columns.dtype.kind not in "iu" or not ((columns >= 0) & (columns < X.shape[-1])).all():
            got = f"columns = {self.columns!r} of {X.shape[-1]}"
            raise problem("OnColumns", got, "numbers of columns from 0, such as [0, 2]")
        return X[..., columns.tolist()]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        out = {"kernel": self.kernel, "columns": self.columns}
        if deep:
            out.update((f"kernel__{name}", value) for name, value in self.kernel.get_params().items())
        return out

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        return [
            Hyperparameter(f"kernel__{h.name}", h.value_type, h.bounds, h.n_elements)
            for h in self.kernel.hyperparameters
        ]

    @property
    def theta(self) -> np.ndarray:
        return np.asarray(self.kernel.theta)

    @theta.setter
    def theta(self, theta: np.ndarray) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> np.ndarray:
        return np.asarray(self.kernel.bounds)

    def __eq__(self, other: object) -> bool:
        return type(other) is OnColumns and self.kernel == other.kernel and list(self.columns) == list(other.columns)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, X: ArrayLike, Y: Any = None, eval_gradient: bool = False) -> Any:
        own = [None if Z is None else self.part(np.atleast_2d(Z)) for Z in (X, Y)]
        return self.kernel(*own, eval_gradient=eval_gradient) if eval_gradient else self.kernel(*own)

    def diag(self, X: ArrayLike) -> np.ndarray:
        return np.asarray(self.kernel.diag(self.part(np.atleast_2d(X))))

    def is_stationary(self) -> bool:
        return bool(self.kernel.is_stationary())

    def __repr__(self) -> str:
        return f"OnColumns({self.kernel}, {np.asarray(self.columns).tolist()})"


@dataclass
class LevelKernels:
    """Categorical columns in a kernel: the kernel of the other columns times ``share``, plus ``effects``.

    Attributes
    ----------
    columns : list of int
    share : OnColumns
        ``Exchangeable`` over the columns.
    effects : list of OnColumns
        A ``LevelEffect`` of each column, possibly times a fixed number.
    """

    columns: list[int]
    share: OnColumns
    effects: list[Any]

    @classmethod
    def of(cls, columns: Sequence[int], variance: float) -> LevelKernels:
        """The starting values of learning; ``variance`` is that of the function."""
        places = [int(c) for c in columns]
        share = Exchangeable(np.full(len(places), 0.5) if len(places) > 1 else 0.5)
        start, bounds = 0.3 * variance, (1e-6 * variance, 1e4 * variance)
        return cls(places, OnColumns(share, places), [OnColumns(LevelEffect(start, bounds), [c]) for c in places])

    def whole(self, kernel: Any, columns: Sequence[int]) -> Any:
        """The kernel of all columns, from ``kernel``, that of ``columns``."""
        out = OnColumns(kernel, list(columns)) * self.share
        for effect in self.effects:
            out = out + effect
        return out

    def alone(self) -> Any:
        """The kernel if there are no other columns: effects of each column, and of their combinations."""
        first, *others = self.effects
        for effect in others:
            first = first + effect
        if not others:
            return first
        return first + OnColumns(clone(self.effects[0].kernel), self.columns)

    def with_theta(self, theta: np.ndarray) -> LevelKernels:
        """The same kernels at other hyperparameters."""
        n = self.share.n_dims
        effects = [one.clone_with_theta(theta[n + i : n + i + 1]) for i, one in enumerate(self.effects)]
        return LevelKernels(self.columns, self.share.clone_with_theta(theta[:n]), effects)

    def times(self, variance: float) -> LevelKernels:
        """The same kernels with effects in other units."""
        if variance == 1.0:
            return self
        fixed = ConstantKernel(variance, "fixed")
        return LevelKernels(self.columns, self.share, [fixed * one for one in self.effects])


def is_of_columns(kernel: Any) -> bool:
    """Whether a kernel has parts ``OnColumns`` or kernels of levels, and so needs no further columns."""
    match kernel:
        case OnColumns() | Exchangeable() | LevelEffect():
            return True
        case KernelOperator(k1=first, k2=second):
            return is_of_columns(first) or is_of_columns(second)
        case Exponentiation(kernel=base):
            return is_of_columns(base)
        case CompoundKernel(kernels=[*several]) | [*several]:
            return any(map(is_of_columns, several))
    return False
