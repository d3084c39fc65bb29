"""Kernels of scikit-learn between two sets of rows: values, variances and contracted slopes, in any array library.

    cross(kernel, X, Z)_ij = k(x_i, z_j)            cross_slopes(kernel, X, Z, T)_p = sum_ij T_ij dk(x_i, z_j)/dtheta_p
    variances(kernel, X)_i = k(x_i, x_i)            variance_slopes(kernel, X, t)_p = sum_i t_i dk(x_i, x_i)/dtheta_p

theta is the kernel's own: the logs of its free hyperparameters, in its order. A stationary kernel is a function of r^2
(``kernel_profiles.py``). The caller decides how many rows X make a block. A kernel that is not known here is asked for
its values, and differentiated by differences. X (B, n, D) and Z (B, m, D) are B pairs of small sets: values are then
(B, n, m), and slopes are summed over all sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .kernel_profiles import PROFILES, Profile, exp_in_place, in_units, root_in_place, squared_distances
from .linalg.arrays import Array, asarray, inner, is_numpy, namespace, to_numpy
from .linalg.machine import empty

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

_STEP = 1e-3  # of a log, in differences of fourth order: their error is some 1e-11 of the kernel


class CrossKernel(NamedTuple):
    """How one kind of kernel is evaluated and contracted."""

    value: Callable[[Any, Array, Array], Array]  # (kernel, X, Z) -> (n, m)
    slopes: Callable[[Any, Array, Array, Array, Array | None], list[float]]  # (kernel, X, Z, T, value if known)
    variance: Callable[[Any, Array], Array]  # (kernel, X) -> (n,)
    variance_slopes: Callable[[Any, Array, Array], list[float]]  # (kernel, X, t)


def cross(kernel: Kernel, X: Array, Z: Array) -> Array:
    """k(x_i, z_j) (n, m).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.cross_kernels import cross
    >>> cross(2.0 * RBF(1.0), np.array([[0.0], [1.0]]), np.array([[0.0]])).round(4)
    array([[2.    ],
           [1.2131]])
    """
    return _node(kernel).value(kernel, X, Z)


def cross_slopes(kernel: Kernel, X: Array, Z: Array, T: Array, value: Array | None = None) -> np.ndarray:
    """sum_ij T_ij dk(x_i, z_j)/dtheta (n_theta,); ``value``: cross(kernel, X, Z) where it is known already."""
    return np.asarray(_node(kernel).slopes(kernel, X, Z, T, value), dtype=np.float64)


def _known_value(kernel: Kernel, X: Array, Z: Array, value: Array | None) -> Array:
    return cross(kernel, X, Z) if value is None else value


def variances(kernel: Kernel, X: Array) -> Array:
    """k(x_i, x_i) (n,), white noise included."""
    return _node(kernel).variance(kernel, X)


def variance_slopes(kernel: Kernel, X: Array, t: Array) -> np.ndarray:
    """sum_i t_i dk(x_i, x_i)/dtheta (n_theta,)."""
    return np.asarray(_node(kernel).variance_slopes(kernel, X, t), dtype=np.float64)


# -- what is common ------------------------------------------------------------------------------------
def _free(kernel: Kernel, name: str) -> bool:
    return not getattr(kernel, f"hyperparameter_{name}").fixed


def _sum(x: Array) -> float:
    return float(namespace(x).sum(x))


def _times(T: Array, value: Array) -> Array:
    return np.multiply(T, value, out=empty(*T.shape)) if is_numpy(T) else T * value


def _ones(X: Array) -> Array:
    return 1.0 + 0.0 * X[..., 0]


def _ones_of_pairs(X: Array, Z: Array) -> Array:
    return _ones(X)[..., :, None] * _ones(Z)[..., None, :]


def _length_slopes(kernel: Kernel, X: Array, Z: Array, H: Array, lengths: Any) -> list[float]:
    """sum_ij H_ij (x_d - z_d)^2 / l_d^2 of each length, or summed where there is one."""
    xp, scale, same = namespace(X), in_units(lengths, X), Z is X
    centre = xp.mean(Z, axis=-2, keepdims=True)
    X = (X - centre) / scale
    Z = X if same else (Z - centre) / scale
    stacked = lambda A: xp.reshape(A, (-1, A.shape[-1]))  # the rows of all sets
    squares = xp.reshape(xp.sum(H, axis=-1), (-1,)) @ stacked(X**2)
    squares = squares + xp.reshape(xp.sum(H, axis=-2), (-1,)) @ stacked(Z**2)
    each = squares - 2.0 * xp.sum(stacked(X * (H @ Z)), axis=0)
    every = to_numpy(each)
    return list(every) if kernel.anisotropic else [float(every.sum())]


# -- functions of a distance ---------------------------------------------------------------------------
def _stationary(profile_of: Callable[[Any], Profile], lengths_of: Callable[[Any], Any]) -> CrossKernel:
    """A kernel that is a profile of the distance in units of its lengths."""

    def value(k: Any, X: Array, Z: Array) -> Array:
        own = profile_of(k)
        return own.value(squared_distances(X, Z, lengths_of(k), own.smooth))

    def slopes(k: Any, X: Array, Z: Array, T: Array, known: Array | None) -> list[float]:
        if not _free(k, "length_scale"):
            return []
        own, lengths = profile_of(k), lengths_of(k)
        if own.weight is own.value:
            return _length_slopes(k, X, Z, _times(T, _known_value(k, X, Z, known)), lengths)
        weight = own.weight(squared_distances(X, Z, lengths, own.smooth))
        weight *= T
        return _length_slopes(k, X, Z, weight, lengths)

    def none(k: Any, X: Array, t: Array) -> list[float]:
        return [0.0] * np.size(k.length_scale) if _free(k, "length_scale") else []

    return CrossKernel(value, slopes, lambda k, X: _ones(X), none)


def isotropic(kernel: Any, X: np.ndarray) -> tuple[np.ndarray, Profile] | None:
    """Squared distances of X at length 1, and the profile, of a stationary kernel of one length; None of others."""
    node = _node(kernel)
    if node not in (_RBF, _SCALED_RBF, _MATERN, _SCALED_MATERN) or np.ndim(kernel.length_scale) > 0:
        return None
    profile = PROFILES[np.inf if node in (_RBF, _SCALED_RBF) else kernel.nu]
    units = np.asarray(kernel.units) if node in (_SCALED_RBF, _SCALED_MATERN) else 1.0
    return to_numpy(squared_distances(X, X, units, profile.smooth)), profile


_RBF = _stationary(lambda k: PROFILES[np.inf], lambda k: k.length_scale)
_SCALED_RBF = _stationary(lambda k: PROFILES[np.inf], lambda k: k.length_scale * np.asarray(k.units))
_MATERN = _stationary(lambda k: PROFILES[k.nu], lambda k: k.length_scale)
_SCALED_MATERN = _stationary(lambda k: PROFILES[k.nu], lambda k: k.length_scale * np.asarray(k.units))


def _no_slopes(kernel: Any) -> list[float]:
    return [0.0] * kernel.n_dims


def _quadratic_value(k: Any, X: Array, Z: Array) -> Array:
    return (1.0 + squared_distances(X, Z, k.length_scale, True) / (2.0 * k.alpha)) ** (-k.alpha)


def _quadratic_slopes(k: Any, X: Array, Z: Array, T: Array, known: Array | None) -> list[float]:
    xp, r2, out = namespace(X), squared_distances(X, Z, k.length_scale), []
    value = _known_value(k, X, Z, known)
    u = r2 / (2.0 * k.alpha)
    if _free(k, "alpha"):
        out.append(k.alpha * _sum(T * value * (u / (1.0 + u) - xp.log1p(u))))
    if _free(k, "length_scale"):
        out.append(_sum(T * value * r2 / (1.0 + u)))
    return out


def _periodic_value(k: Any, X: Array, Z: Array) -> Array:
    r = root_in_place(squared_distances(X, Z, 1.0))
    return exp_in_place(-2.0 * (namespace(r).sin(np.pi / k.periodicity * r) / k.length_scale) ** 2)


def _periodic_slopes(k: Any, X: Array, Z: Array, T: Array, known: Array | None) -> list[float]:
    xp, phase, out = namespace(X), np.pi / k.periodicity * root_in_place(squared_distances(X, Z, 1.0)), []
    sine, weighted = xp.sin(phase), T * _known_value(k, X, Z, known) * (4.0 / k.length_scale**2)
    if _free(k, "length_scale"):
        out.append(_sum(weighted * sine * sine))
    if _free(k, "periodicity"):
        out.append(_sum(weighted * phase * sine * xp.cos(phase)))
    return out


# -- the others ----------------------------------------------------------------------------------------
def _constant_value(k: Any, X: Array, Z: Array) -> Array:
    return k.constant_value * _ones_of_pairs(X, Z)


def _constant_slopes(k: Any, T: Array) -> list[float]:
    return [k.constant_value * _sum(T)] if _free(k, "constant_value") else []


def _white_slopes(k: Any, t: Array) -> list[float]:
    return [k.noise_level * _sum(t)] if _free(k, "noise_level") else []


def _dot_slopes(k: Any, T: Array) -> list[float]:
    return [2.0 * k.sigma_0**2 * _sum(T)] if _free(k, "sigma_0") else []


# -- the tree ------------------------------------------------------------------------------------------
def _sum_slopes(k: Any, X: Array, Z: Array, T: Array, value: Array | None) -> list[float]:
    return [*cross_slopes(k.k1, X, Z, T), *cross_slopes(k.k2, X, Z, T)]


def _product_value(k: Any, X: Array, Z: Array) -> Array:
    for one, other in ((k.k1, k.k2), (k.k2, k.k1)):
        if type(one).__name__ == "ConstantKernel":
            out = cross(other, X, Z)
            out *= one.constant_value
            return out
    return cross(k.k1, X, Z) * cross(k.k2, X, Z)


def _product_slopes(k: Any, X: Array, Z: Array, T: Array, known: Array | None) -> list[float]:
    out, value = list[float](), _known_value(k, X, Z, known)
    for one, other in ((k.k1, k.k2), (k.k2, k.k1)):
        if type(one).__name__ == "ConstantKernel":
            out += [inner(T, value)] if _free(one, "constant_value") else []
        elif type(other).__name__ == "ConstantKernel":
            if _node(one) in (_RBF, _SCALED_RBF):  # reads T o value alone: off by c in opposite directions
                out += list(cross_slopes(one, X, Z, T, value))
            else:
                out += list(other.constant_value * cross_slopes(one, X, Z, T))
        elif one.n_dims:
            out += list(cross_slopes(one, X, Z, T * cross(other, X, Z)))
    return out


def _product_variance_slopes(k: Any, X: Array, t: Array) -> list[float]:
    first = variance_slopes(k.k1, X, t * variances(k.k2, X))
    return [*first, *variance_slopes(k.k2, X, t * variances(k.k1, X))]


def _power_slopes(k: Any, X: Array, Z: Array, T: Array, value: Array | None) -> list[float]:
    base = cross(k.kernel, X, Z)
    return list(cross_slopes(k.kernel, X, Z, k.exponent * T * base ** (k.exponent - 1), base))


def _power_variance_slopes(k: Any, X: Array, t: Array) -> list[float]:
    return list(variance_slopes(k.kernel, X, k.exponent * t * variances(k.kernel, X) ** (k.exponent - 1)))


# -- some of the columns -----------------------------------------------------------------------------
def _two_parts(k: Any, X: Array, Z: Array) -> tuple[Array, Array]:
    """The columns of a kernel; one array where X and Z are."""
    part = k.part(X)
    return part, part if Z is X else k.part(Z)


# -- a kernel that is not known here -------------------------------------------------------------------
def _differences(kernel: Any, total: Callable[[Any], float]) -> list[float]:
    """The slopes of ``total(kernel)`` along theta, by differences of fourth order."""
    out, theta = [], np.asarray(kernel.theta, dtype=np.float64)
    for step in _STEP * np.eye(theta.size):
        near, far = (total(kernel.clone_with_theta(theta + n * step)) for n in (1, 2))
        near_below, far_below = (total(kernel.clone_with_theta(theta - n * step)) for n in (1, 2))
        out.append((8.0 * (near - near_below) - (far - far_below)) / (12.0 * _STEP))
    return out


def _foreign_value(k: Any, X: Array, Z: Array) -> Array:
    if X.ndim > 2:
        return asarray(np.stack([_foreign_value(k, A, B) for A, B in zip(to_numpy(X), to_numpy(Z), strict=True)]), X)
    return asarray(np.array(k(to_numpy(X), to_numpy(Z)), dtype=np.float64), X)  # a copy: the kernel may keep its own


def _foreign_variance(k: Any, X: Array) -> Array:
    rows = to_numpy(X)
    own = np.asarray(k.diag(rows.reshape(-1, rows.shape[-1])), dtype=np.float64)
    return asarray(own.reshape(rows.shape[:-1]), X)


_FOREIGN = CrossKernel(
    _foreign_value,
    lambda k, X, Z, T, value: _differences(k, lambda at: _sum(T * _foreign_value(at, X, Z))),
    _foreign_variance,
    lambda k, X, t: _differences(k, lambda at: _sum(t * _foreign_variance(at, X))),
)
_KNOWN: dict[type, CrossKernel] = {}


def is_known(kernel: Any) -> bool:
    """Whether this kind of kernel is in the table; its parts may not be."""
    return type(kernel) in _known()


def _known() -> dict[type, CrossKernel]:
    if not _KNOWN:
        _KNOWN.update(_table())
    return _KNOWN


def _node(kernel: Any) -> CrossKernel:
    known = _known().get(type(kernel), _FOREIGN)
    return _FOREIGN if known in (_MATERN, _SCALED_MATERN) and kernel.nu not in PROFILES else known


def _table() -> dict[type, CrossKernel]:
    from sklearn.gaussian_process import kernels as sk

    from .category_kernels import Exchangeable, LevelEffect, OnColumns
    from .scaled_kernels import ScaledMatern, ScaledRBF

    return {
        sk.RBF: _RBF,
        ScaledRBF: _SCALED_RBF,
        sk.Matern: _MATERN,
        Exchangeable: CrossKernel(
            lambda k, X, Z: k.cross(X, Z),
            lambda k, X, Z, T, value: k.cross_slopes(X, Z, T),
            lambda k, X: _ones(X),
            lambda k, X, t: _no_slopes(k),
        ),
        LevelEffect: CrossKernel(
            lambda k, X, Z: k.cross(X, Z),
            lambda k, X, Z, T, value: k.cross_slopes(X, Z, T),
            lambda k, X: float(k.variance) * _ones(X),
            lambda k, X, t: k.variance_slopes(t),
        ),
        OnColumns: CrossKernel(
            lambda k, X, Z: cross(k.kernel, *_two_parts(k, X, Z)),
            lambda k, X, Z, T, value: list(cross_slopes(k.kernel, *_two_parts(k, X, Z), T, value)),
            lambda k, X: variances(k.kernel, k.part(X)),
            lambda k, X, t: list(variance_slopes(k.kernel, k.part(X), t)),
        ),
        ScaledMatern: _SCALED_MATERN,
        sk.RationalQuadratic: CrossKernel(
            _quadratic_value, _quadratic_slopes, lambda k, X: _ones(X), lambda k, X, t: _no_slopes(k)
        ),
        sk.ExpSineSquared: CrossKernel(
            _periodic_value, _periodic_slopes, lambda k, X: _ones(X), lambda k, X, t: _no_slopes(k)
        ),
        sk.ConstantKernel: CrossKernel(
            _constant_value,
            lambda k, X, Z, T, value: _constant_slopes(k, T),
            lambda k, X: k.constant_value * _ones(X),
            lambda k, X, t: _constant_slopes(k, t),
        ),
        sk.WhiteKernel: CrossKernel(
            lambda k, X, Z: 0.0 * _ones_of_pairs(X, Z),
            lambda k, X, Z, T, value: _no_slopes(k),
            lambda k, X: k.noise_level * _ones(X),
            lambda k, X, t: _white_slopes(k, t),
        ),
        sk.DotProduct: CrossKernel(
            lambda k, X, Z: k.sigma_0**2 + X @ namespace(Z).moveaxis(Z, -1, -2),
            lambda k, X, Z, T, value: _dot_slopes(k, T),
            lambda k, X: k.sigma_0**2 + namespace(X).sum(X * X, axis=-1),
            lambda k, X, t: _dot_slopes(k, t),
        ),
        sk.Sum: CrossKernel(
            lambda k, X, Z: cross(k.k1, X, Z) + cross(k.k2, X, Z),
            _sum_slopes,
            lambda k, X: variances(k.k1, X) + variances(k.k2, X),
            lambda k, X, t: [*variance_slopes(k.k1, X, t), *variance_slopes(k.k2, X, t)],
        ),
        sk.Product: CrossKernel(
            _product_value,
            _product_slopes,
            lambda k, X: variances(k.k1, X) * variances(k.k2, X),
            _product_variance_slopes,
        ),
        sk.Exponentiation: CrossKernel(
            lambda k, X, Z: cross(k.kernel, X, Z) ** k.exponent,
            _power_slopes,
            lambda k, X: variances(k.kernel, X) ** k.exponent,
            _power_variance_slopes,
        ),
    }
