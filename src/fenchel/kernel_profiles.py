"""Stationary kernels as functions of a distance, in any array library.

    r^2 = sum_d (x_d - z_d)^2 / l_d^2,    dk/dlog l_d = w (x_d - z_d)^2 / l_d^2 with w the weight of the kernel

Differences are squared, never expanded, so that k of a row and itself is exact; on a device |x|^2 - 2 x'z + |z|^2 is
one matrix product, taken where its rounding is below 1e-12 and the kernel is smooth in r^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from .linalg.arrays import Array, asarray, is_numpy, library_of, namespace, to_numpy
from .linalg.machine import empty

_FEW_PAIRS = 1 << 14  # of rows, up to which scipy's distances are faster than calling a compiled loop
_EXPANDED = 1e3  # |x|^2 in units of the lengths, up to which distances may be expanded: to 1e3 eps


def squared_distances(X: Array, Z: Array, lengths: Any, smooth: bool = False) -> Array:
    """sum_d (x_d - z_d)^2 / l_d^2 (n, m); ``smooth``: of a function for which a rounding of r^2 is one of its value."""
    same, scale = Z is X, in_units(lengths, X)
    X = X / scale
    Z = X if same else Z / scale
    if is_numpy(X) and X.ndim == 2:
        if X.shape[0] * Z.shape[0] <= _FEW_PAIRS:
            return np.asarray(cdist(X, Z, "sqeuclidean"))
        from .linalg._pair_loops import squared_distances as loop

        out = empty(X.shape[0], Z.shape[0])
        loop(X, np.ascontiguousarray(to_numpy(Z).T), out)
        return out
    if X.ndim == 2:
        xp = namespace(X)
        centre = xp.mean(Z, axis=0)
        A, B = X - centre, Z - centre
        a, b = (xp.sum(x * x, axis=1)[:, None] for x in (A, B))
        if smooth and float(xp.max(a) + xp.max(b)) < _EXPANDED:
            ones = [0.0 * x + 1.0 for x in (a, b)]
            total = xp.concat([-2.0 * A, a, ones[0]], axis=1) @ xp.concat([B, ones[1], b], axis=1).T
            return xp.clip(total, min=0.0) if library_of(X) != "torch" else total.clamp_(min=0.0)
    total = 0.0 * (X[..., :, None, 0] * Z[..., None, :, 0])
    for d in range(X.shape[-1]):
        away = X[..., :, None, d] - Z[..., None, :, d]
        away *= away
        total += away
    return total


def in_units(lengths: Any, X: Array) -> Any:
    """Lengths as X is divided by them."""
    return lengths if is_numpy(X) else asarray(np.broadcast_to(lengths, (X.shape[-1],)), X)


class Profile(NamedTuple):
    """A stationary kernel as a function of r^2, and the weight w of its slopes; either may use up what it is given.

    ``smooth``: the value is differentiable in r^2 at 0.
    """

    value: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    smooth: bool = True


def _in_place(function: str, x: Array) -> Array:
    host = is_numpy(x)
    call = getattr(np if host else namespace(x), function)
    return call(x, out=x) if host or library_of(x) == "torch" else call(x)


def exp_in_place(x: Array) -> Array:
    return _in_place("exp", x)


def root_in_place(r2: Array) -> Array:
    return _in_place("sqrt", r2)


def _rbf(r2: Array) -> Array:
    r2 *= -0.5
    return exp_in_place(r2)


def _decay(r: Array, rate: float) -> Array:
    return exp_in_place(-rate * r)


def _matern12_weight(r2: Array) -> Array:
    r = root_in_place(r2)
    xp = namespace(r)
    return _decay(r, 1.0) / xp.where(r > 0.0, r, xp.inf + 0.0 * r)


def _matern32(r2: Array) -> Array:
    r = root_in_place(r2)
    r *= float(np.sqrt(3.0))
    out = _decay(r, 1.0)
    r += 1.0
    out *= r
    return out


def _matern52(r2: Array) -> Array:
    r = float(np.sqrt(5.0)) * root_in_place(r2)
    return (1.0 + r + r * r / 3.0) * _decay(r, 1.0)


def _matern52_weight(r2: Array) -> Array:
    r = float(np.sqrt(5.0)) * root_in_place(r2)
    return (5.0 / 3.0) * (1.0 + r) * _decay(r, 1.0)


PROFILES = {  # by smoothness
    0.5: Profile(lambda r2: _decay(root_in_place(r2), 1.0), _matern12_weight, smooth=False),
    1.5: Profile(_matern32, lambda r2: 3.0 * _decay(root_in_place(r2), float(np.sqrt(3.0)))),
    2.5: Profile(_matern52, _matern52_weight),
    np.inf: Profile(_rbf, _rbf),
}
