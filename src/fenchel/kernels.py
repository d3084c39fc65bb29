"""Values and gradients of scikit-learn's kernels, in any array library and without tensors of size N x N x n_theta.

    evaluate(kernel, X) = K,      contract(kernel, X, G)_p = sum_ij G_ij dK_ij/dtheta_p

theta holds the logs of the kernel's free hyperparameters, as in scikit-learn. Both functions work on blocks of rows,
on every core or on the device of X; ``cross_kernels.py`` defines each kernel between two sets of rows. The diagonal is
treated separately: white noise is only there, and the derivative with respect to a length is exactly 0 there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import problem
from .cross_kernels import cross, cross_slopes, is_known, isotropic, variance_slopes, variances
from .kernel_profiles import Profile
from .linalg import dense
from .linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy
from .linalg.machine import over_rows

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

_FEW_PAIRS = 1 << 14  # pairs of rows up to which there is one block
_WITH_LENGTHS = ("RBF", "ScaledRBF", "Matern", "ScaledMatern", "RationalQuadratic")
_COVARIANCES = (  # positive semidefinite at any inputs
    *("RBF", "ScaledRBF", "Matern", "ScaledMatern", "RationalQuadratic", "DotProduct"),
    *("Exchangeable", "LevelEffect"),
)
KERNELS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5, "rbf": np.inf}  # smoothness nu of the words of formulas


def evaluate(kernel: Kernel, X: Array, Y: Array | None = None) -> Array:
    """The kernel matrix K(X, Y) (N, M), or the exactly symmetric K(X, X), in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from fenchel.kernels import evaluate
    >>> evaluate(ConstantKernel(2.0) * RBF(1.0), np.array([[0.0], [1.0]])).round(4)
    array([[2.    , 1.2131],
           [1.2131, 2.    ]])
    """
    if not is_known(kernel):  # a user's kernel is evaluated as it is, its diagonal included
        refuse_foreign(kernel)
        own = kernel(to_numpy(X)) if Y is None else kernel(to_numpy(X), to_numpy(Y))
        return asarray(np.ascontiguousarray(own, dtype=np.float64), X)
    X = asarray(X, X)
    Z = X if Y is None else asarray(Y, X)
    n, m = X.shape[0], Z.shape[0]
    K = np.empty((n, m)) if is_numpy(X) else namespace(X).empty((n, m), dtype=X.dtype, device=X.device)

    def block(some: slice) -> None:
        K[some, :] = cross(kernel, X[some, :], Z)

    if is_numpy(X) and n * m <= _FEW_PAIRS:
        K = cross(kernel, X, Z)
    else:
        over_rows(n, m, block, is_numpy(X))
    return K if Y is not None else dense.set_diagonal(K, variances(kernel, X))


def diagonal(kernel: Kernel, X: Array) -> Array:
    """The diagonal (N,) of K(X, X)."""
    return variances(kernel, asarray(X, X))


def contract(kernel: Kernel, X: Array, G: Array, K: Array | None = None) -> np.ndarray:
    """Gradient sum_ij G_ij dK_ij/dtheta (n_theta,) with respect to the free hyperparameters, for a symmetric G (N, N).

    ``K``: the value K(X, X), if it is known already; many kernels then need no further exponential.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from fenchel.kernels import contract
    >>> kernel, X = ConstantKernel(2.0) * RBF(1.0), np.array([[0.0], [1.0]])
    >>> G = np.ones((2, 2))
    >>> contract(kernel, X, G).round(4), np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1]).round(4)
    (array([6.4261, 2.4261]), array([6.4261, 2.4261]))
    """
    if not is_known(kernel):
        refuse_foreign(kernel)
    X = asarray(X, X)
    n = X.shape[0]

    def block(some: slice) -> np.ndarray:
        T, own = G[some, :] + 0.0, np.arange(some.start, some.stop)
        T[own - some.start, own] = 0.0
        rows = X if some.stop - some.start == n else X[some, :]
        return cross_slopes(kernel, rows, X, T, None if K is None else K[some, :])

    apart = variance_slopes(kernel, X, dense.diagonal_of(G))
    return np.asarray(sum(over_rows(n, n, block, is_numpy(X))) + apart)


class KeptDistances:
    """A constant times a stationary kernel with one length at fixed rows X: distances are computed once for all theta.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from fenchel.kernels import KeptDistances
    >>> kept = KeptDistances.of(ConstantKernel(2.0) * RBF(1.0), np.array([[0.0], [1.0]]))
    >>> kept.value(np.log([2.0, 1.0])).round(4)
    array([[2.    , 1.2131],
           [1.2131, 2.    ]])
    """

    def __init__(self, squares: np.ndarray, profile: Profile, constant: float | int, length: float | int) -> None:
        self.squares, self.profile = squares, profile
        self.constant, self.length = constant, length  # an int is the place in theta, a float is a fixed value

    @classmethod
    def of(cls, kernel: Kernel, X: np.ndarray) -> KeptDistances | None:
        """The distances for a kernel of this form; None for any other kernel."""
        parts = (kernel.k1, kernel.k2) if type(kernel).__name__ == "Product" else (kernel,)
        constant: float | int = 1.0
        stationary, place = None, 0
        for part in parts:
            if type(part).__name__ == "ConstantKernel" and len(parts) > 1 and constant == 1.0:
                fixed = part.hyperparameter_constant_value.fixed
                constant = float(part.constant_value) if fixed else place
            elif stationary is None and (stationary_part := isotropic(part, X)) is not None:
                fixed = part.hyperparameter_length_scale.fixed
                stationary, length = stationary_part, float(part.length_scale) if fixed else place
            else:
                return None
            place += not fixed
        return None if stationary is None else cls(*stationary, constant, length)

    def _numbers(self, theta: np.ndarray) -> tuple[float, float]:
        """The constant, and length^-2."""
        constant, length = (
            math.exp(theta[each]) if type(each) is int else each for each in (self.constant, self.length)
        )
        return constant, length**-2

    def value(self, theta: np.ndarray) -> np.ndarray:
        """K(X, X) (N, N), a new array."""
        constant, scale = self._numbers(theta)
        K = np.asarray(self.profile.value(self.squares * scale))
        K *= constant
        return K

    def slopes(self, theta: np.ndarray, G: np.ndarray, K: np.ndarray) -> np.ndarray:
        """sum_ij G_ij dK_ij/dtheta for a symmetric G (N, N) and K = value(theta)."""
        constant, scale = self._numbers(theta)
        out, T = {}, G * K
        if type(self.constant) is int:
            out[self.constant] = float(T.sum())
        if type(self.length) is int:
            if self.profile.weight is not self.profile.value:
                T = self.profile.weight(self.squares * scale)
                T *= G
                T *= constant
            out[self.length] = scale * float(np.vdot(T, self.squares))
        return np.array([out[place] for place in sorted(out)])


def refuse_foreign(kernel: Kernel) -> None:
    """Refuse an object without the interface of a kernel."""
    if not callable(kernel) or not hasattr(kernel, "theta"):
        raise problem(
            "kernels",
            f"a {type(kernel).__name__} was given",
            "a kernel of sklearn.gaussian_process.kernels, or one with its interface",
            "For example ConstantKernel(1.0) * RBF(1.0).",
        )


def is_compound(kernel: Any) -> bool:
    """Whether the kernel is a ``CompoundKernel``: scikit-learn's list of kernels, one for each class."""
    return type(kernel).__name__ == "CompoundKernel"


def kernels_of(kernel: Any) -> list[Kernel]:
    """The kernels of the classes, or a list of the one kernel."""
    return list(kernel.kernels) if is_compound(kernel) else [kernel]


def at_theta(kernel: Any, theta: np.ndarray) -> Any:
    """A copy of the kernel at theta, also for a ``CompoundKernel``, whose theta scikit-learn cannot set.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, CompoundKernel
    >>> from fenchel.kernels import at_theta
    >>> at_theta(CompoundKernel([RBF(1.0), RBF(2.0)]), np.log([3.0, 4.0])).kernels
    [RBF(length_scale=3), RBF(length_scale=4)]
    """
    if not is_compound(kernel):
        from sklearn.base import clone

        out = clone(kernel)
        return set_theta(out, theta, places(out))
    ends = np.cumsum([one.n_dims for one in kernel.kernels])[:-1]
    parts = zip(kernel.kernels, np.split(np.asarray(theta), ends), strict=True)
    return type(kernel)([at_theta(one, own) for one, own in parts])


def places(kernel: Any) -> list[tuple[Any, str, int]] | None:
    """Where theta goes in a kernel: the part, its attribute and how many entries, in order; None where not known.

    scikit-learn's own setter finds them again, by introspection, at every theta.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.kernels import places
    >>> [(name, n) for _, name, n in places(2.0 * RBF([1.0, 2.0]))]
    [('constant_value', 1), ('length_scale', 2)]
    """
    from sklearn.gaussian_process.kernels import Exponentiation, Kernel, KernelOperator

    from .category_kernels import OnColumns

    own = getattr(type(kernel), "theta", None)
    if own is Kernel.theta and type(kernel).set_params is Kernel.set_params:
        return [(kernel, h.name, h.n_elements) for h in free_hyperparameters(kernel)]
    if own in (Exponentiation.theta, OnColumns.theta):
        return places(kernel.kernel)
    if own is not KernelOperator.theta:
        return None
    first, second = places(kernel.k1), places(kernel.k2)
    return None if first is None or second is None else first + second


def set_theta(kernel: Any, theta: np.ndarray, where: list[tuple[Any, str, int]] | None) -> Any:
    """The kernel, set to the first entries of theta at its ``places``."""
    if where is None:
        kernel.theta = theta[: kernel.n_dims]
    i = 0
    for owner, name, n in where or ():
        setattr(owner, name, np.exp(theta[i : i + n] if n > 1 else theta[i]))
        i += n
    return kernel


def free_hyperparameters(kernel: Any) -> list[Any]:
    """scikit-learn's descriptions of the hyperparameters that theta holds."""
    return [h for h in kernel.hyperparameters if not h.fixed]


def names_of(kernel: Any, free: list[Any] | None = None) -> tuple[str, ...]:
    """Names of the entries of theta; those of kernels of classes begin with the number of the class."""
    if is_compound(kernel):
        return tuple(f"{k}__{name}" for k, one in enumerate(kernel.kernels) for name in names_of(one))
    out: list[str] = []
    for h in free_hyperparameters(kernel) if free is None else free:
        out += [h.name] if h.n_elements == 1 else [f"{h.name}[{i}]" for i in range(h.n_elements)]
    return tuple(out)


def refuse_compound(kernel: Kernel) -> None:
    """Refuse a ``CompoundKernel`` where one kernel is needed."""
    if is_compound(kernel):
        raise problem(
            "kernels",
            "kernel cannot be a CompoundKernel, which is several kernels, where there is one function",
            "one kernel, or a list of kernels, one for each class of a classifier with more than two",
        )


def is_covariance(kernel: Kernel, n_features: int) -> bool:
    """Whether the kernel is known to be positive semidefinite at any inputs; False means that it is not known.

    A periodic kernel of distances is a covariance in one dimension only; pairwise and users' kernels may not be one.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ExpSineSquared
    >>> from fenchel.kernels import is_covariance
    >>> is_covariance(2.0 * RBF(1.0), 3), is_covariance(ExpSineSquared(), 1), is_covariance(ExpSineSquared(), 2)
    (True, True, False)
    """
    name = type(kernel).__name__ if is_known(kernel) else ""
    if name in ("Sum", "Product"):
        return is_covariance(kernel.k1, n_features) and is_covariance(kernel.k2, n_features)
    if name == "Exponentiation":  # whole powers are products
        return kernel.exponent > 0 and float(kernel.exponent).is_integer() and is_covariance(kernel.kernel, n_features)
    if name == "OnColumns":
        return is_covariance(kernel.kernel, len(kernel.columns))
    if name == "ConstantKernel":
        return bool(kernel.constant_value >= 0.0)
    if name == "WhiteKernel":
        return bool(kernel.noise_level >= 0.0)
    return name in _COVARIANCES or (name == "ExpSineSquared" and n_features == 1)


def _parts(kernel: Any) -> list[Any]:
    """The elementary kernels in a sum, a product or a power."""
    if type(kernel).__name__ in ("Sum", "Product"):
        return [*_parts(kernel.k1), *_parts(kernel.k2)]
    return _parts(kernel.kernel) if type(kernel).__name__ == "Exponentiation" else [kernel]


def has_white_noise(kernel: Any) -> bool:
    """Whether the kernel has white noise, so that equal rows are not fully correlated; True if it is not known."""
    return any(type(part).__name__ == "WhiteKernel" or not is_known(part) for part in _parts(kernel))


def column_lengths(kernel: Any, X: np.ndarray) -> np.ndarray:
    """Length scale (D,) of each column: the shortest of the parts, or standard deviations of X if none has lengths.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, Matern
    >>> from fenchel.kernels import column_lengths
    >>> column_lengths(2.0 * RBF([1.0, 5.0]) + Matern(3.0), np.zeros((4, 2)))
    array([1., 3.])
    """
    parts = [part for part in _parts(kernel) if type(part).__name__ in _WITH_LENGTHS]
    if not parts:
        sd = X.std(axis=0)
        return np.where(sd > 0.0, sd, 1.0)
    units = [np.asarray(part.units) if type(part).__name__.startswith("Scaled") else 1.0 for part in parts]
    each = [
        np.broadcast_to(np.asarray(part.length_scale) * unit, X.shape[1])
        for part, unit in zip(parts, units, strict=True)
    ]
    return np.min(each, axis=0)
