"""Kernels with one length scale l for columns in different units u, which are given.

    k(x, x') = c(r),    r^2 = sum_d (x_d - x'_d)^2 / (l u_d)^2

They equal ``RBF`` and ``Matern`` after a ``StandardScaler``, with the scaling as a part of the kernel, so that it also
applies to new rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, Matern

from .linalg.arrays import ArrayLike


class _InUnits:
    """Mixin that divides the inputs of a kernel by ``units``."""

    units: Any

    def __call__(self, X: ArrayLike, Y: Any = None, eval_gradient: bool = False) -> Any:
        scaled = [None if Z is None else np.atleast_2d(Z) / np.asarray(self.units) for Z in (X, Y)]
        return super().__call__(*scaled, eval_gradient=eval_gradient)  # type: ignore[misc]


class ScaledRBF(_InUnits, RBF):
    """The kernel ``RBF`` of inputs divided by ``units``.

    Parameters
    ----------
    length_scale, length_scale_bounds : as in ``RBF``, one for all columns, in the units below
    units : float or array (D,)
        The divisor of each column, such as its standard deviation; not learned.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.scaled_kernels import ScaledRBF
    >>> X = np.array([[0.0, 0.0], [1.0, 1000.0]])
    >>> ScaledRBF(1.0, units=[1.0, 1000.0])(X).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """

    def __init__(self, length_scale: float = 1.0, length_scale_bounds: Any = (1e-5, 1e5), units: Any = 1.0) -> None:
        super().__init__(length_scale, length_scale_bounds)
        self.units = units

    def __repr__(self) -> str:
        return f"ScaledRBF(length_scale={np.ravel(self.length_scale)[0]:.3g})"


class ScaledMatern(_InUnits, Matern):
    """The kernel ``Matern`` of inputs divided by ``units``.

    Parameters
    ----------
    length_scale, length_scale_bounds, nu : as in ``Matern``, one length for all columns, in the units below
    units : float or array (D,)
        As in ``ScaledRBF``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.scaled_kernels import ScaledMatern
    >>> X = np.array([[0.0, 0.0], [3.0, 4000.0]])
    >>> ScaledMatern(5.0, nu=0.5, units=[1.0, 1000.0])(X).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """

    def __init__(
        self, length_scale: float = 1.0, length_scale_bounds: Any = (1e-5, 1e5), nu: float = 1.5, units: Any = 1.0
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, nu)
        self.units = units

    def __repr__(self) -> str:
        return f"ScaledMatern(length_scale={np.ravel(self.length_scale)[0]:.3g}, nu={self.nu:g})"
