"""One length for columns of different scales: the units u are given, l is learned.

    k(x, x') = exp(-1/2 sum_d (x_d - x'_d)^2 / (l u_d)^2)

It is what ``RBF`` does after a ``StandardScaler``, with the scaling inside the kernel, where new rows meet it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF

from .linalg.arrays import ArrayLike


class ScaledRBF(RBF):
    """``RBF`` of inputs divided by ``units``.

    Parameters
    ----------
    length_scale, length_scale_bounds : as in ``RBF``, one for all columns, in the units below
    units : float or array (D,)
        What each column is divided by, such as its standard deviation; not learned.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.scaled_rbf import ScaledRBF
    >>> X = np.array([[0.0, 0.0], [1.0, 1000.0]])
    >>> ScaledRBF(1.0, units=[1.0, 1000.0])(X).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """

    def __init__(self, length_scale: float = 1.0, length_scale_bounds: Any = (1e-5, 1e5), units: Any = 1.0) -> None:
        super().__init__(length_scale, length_scale_bounds)
        self.units = units

    def __call__(self, X: ArrayLike, Y: Any = None, eval_gradient: bool = False) -> Any:
        scaled = [None if Z is None else np.atleast_2d(Z) / np.asarray(self.units) for Z in (X, Y)]
        return super().__call__(*scaled, eval_gradient=eval_gradient)

    def __repr__(self) -> str:
        return f"ScaledRBF(length_scale={np.ravel(self.length_scale)[0]:.3g})"
