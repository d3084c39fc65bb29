"""The part of eta that is linear in a few weights of known prior variances: a constant, and a slope for each column.

    eta = offset + H u + f(x),    u ~ N(0, I),    h_0 = sqrt(level),    h_d(x) = s_d (x_d - c_d)

The weights are integrated out with the function: their share of its covariance is H H'. A column whose s_d is 0 has no
slope.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import finite, numeric, problem, scalar
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy, namespace

_BLOCK = 1 << 22  # entries of H H' made at once


class Trend:
    """A constant and slopes of columns.

    Parameters
    ----------
    where : who asks, in messages
    level : float
        Prior variance of the constant; 0 for none.
    slopes : array (D,), optional
        Prior standard deviation of the slope of each column.
    centre : array (D,)
        Where the slopes add nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.priors.trends import Trend
    >>> trend = Trend("example", level=4.0, slopes=np.array([1.0, 0.0, 3.0]), centre=np.ones(3))
    >>> trend.columns(np.array([[2.0, 5.0, 3.0]]))
    array([[2., 1., 6.]])
    """

    def __init__(self, where: str, level: float = 0.0, slopes: Any = None, centre: ArrayLike = 0.0) -> None:
        self.level = scalar(where, "level", level, 0.0) if level else 0.0
        self.slopes = np.zeros(0) if slopes is None else finite(where, "slopes", numeric(where, "slopes", slopes))
        if self.slopes.ndim != 1 or (self.slopes < 0.0).any():
            raise problem(where, f"slopes of shape {self.slopes.shape}", "standard deviations (D,), 0 or above")
        self.moves = np.flatnonzero(self.slopes)
        middle = self.slopes if slopes is None else finite(where, "centre", numeric(where, "centre", centre))
        self.middle = np.broadcast_to(middle, self.slopes.shape)
        self.sd, self.centre = self.slopes[self.moves], self.middle[self.moves]

    @property
    def arguments(self) -> dict[str, Any]:
        """As a constructor of a prior takes them."""
        out = {"level": self.level}
        return {**out, "slopes": self.slopes, "centre": self.middle} if self.moves.size else out

    @property
    def size(self) -> int:
        """How many weights."""
        return int(self.level > 0.0) + self.moves.size

    def columns(self, X: Array) -> Array:
        """H (n, size) of inputs X."""
        xp, slopes = namespace(X), self.moves.size
        constant = (0.0 * X[:, :1] + self.level**0.5) if self.level else X[:, :0]
        if not slopes:
            return constant
        moved = (X[:, self.moves.tolist()] - asarray(self.centre, X)) * asarray(self.sd, X)
        return xp.concat([constant, moved], axis=1)

    def add_to(self, K: Array, X: Array, Z: Array | None = None) -> Array:
        """K + H(X) H(Z)', in the memory of K."""
        if not self.moves.size:
            if self.level:
                K += self.level
            return K
        left = self.columns(X)
        right, n = left if Z is None else self.columns(Z), X.shape[0]
        step = max(1, _BLOCK // max(1, right.shape[0])) if is_numpy(K) else n
        for start in range(0, n, step):
            K[start : start + step, :] += left[start : start + step, :] @ right.T
        return K

    def variances(self, X: Array) -> Array | float:
        """diag H H' (n,), or one number."""
        if not self.moves.size:
            return self.level
        H = self.columns(X)
        return namespace(H).sum(H * H, axis=1)

    def coefficients(self) -> np.ndarray:
        """T (1 + D, size): T u are the constant at x = 0 and the slope of each column."""
        T, first = np.zeros((1 + self.slopes.size, self.size)), int(self.level > 0.0)
        T[0, :first] = self.level**0.5
        T[1 + self.moves, first + np.arange(self.moves.size)] = self.sd
        T[0, first:] = -self.centre * self.sd
        return T
