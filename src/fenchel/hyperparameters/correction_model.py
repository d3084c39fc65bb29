"""What the corrected evidence adds to the elbo, as a function of theta: known at few points, smooth between them.

    gain(theta) = a + b'u + c'u^2 / 2,     u = u(theta) the coordinates in which the posterior is nearly normal

Over the posterior of theta a correction of .04 to 11 nats is such a diagonal quadratic to some hundredths of a nat or
less: 2 d + 1 corrections serve every theta. Fewer than these have c = 0, and fewer than d + 1 have b = 0 too. Beyond
the points that are known it goes on straight. More points than it has coefficients are fitted by least squares, and
what is left at them is interpolated.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.spatial.distance import cdist

from .mode import Coordinates

BEYOND = 1.5  # times the farthest known point along a direction: the quadratic goes on straight from there
LEAST_REACH = 0.5  # sds, the same
FLAT = 1e-4  # of the largest singular value: directions that the points do not tell are left out
SMOOTHING = 1e-6  # nats: rounding of corrections
NEGLIGIBLE = 0.05  # nats of a correction that moves theta by hundredths of its sds, at most


class CorrectionModel:
    """A diagonal quadratic through known gains, or what fewer of them tell.

    Parameters
    ----------
    coordinates : Coordinates
        u.
    thetas : array (m, n);  gains : array (m,)
        What is known.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.correction_model import CorrectionModel
    >>> from fenchel.hyperparameters.mode import Coordinates
    >>> at = np.array([[0.0], [-1.0], [1.0]])
    >>> found = CorrectionModel(Coordinates.straight(np.zeros(1), [0], np.eye(1)), at, 1.0 + at[:, 0] ** 2)
    >>> found(np.array([[0.5]])).round(6), found.slope(np.array([0.5])).round(6)
    (array([1.25]), array([1.]))
    """

    def __init__(self, coordinates: Coordinates, thetas: np.ndarray, gains: np.ndarray) -> None:
        self.coordinates, self.thetas, self.gains = coordinates, np.asarray(thetas), np.asarray(gains)
        u = coordinates.u(self.thetas)
        self._terms = 1 + u.shape[1] * (len(u) > u.shape[1]) + u.shape[1] * (len(u) > 2 * u.shape[1])
        self.reach = np.maximum(LEAST_REACH, BEYOND * np.abs(u).max(axis=0))
        self._onto = np.linalg.pinv(self._columns(u), rcond=FLAT)  # (1 + 2 d, m): gains to coefficients
        self.coefficients = self._onto @ self.gains
        left = self.gains - self._columns(u) @ self.coefficients
        exact = bool(np.abs(left).max(initial=0.0) <= SMOOTHING)
        self._left = None if exact else RBFInterpolator(u, left, kernel="linear", degree=0, smoothing=SMOOTHING)

    def _columns(self, u: np.ndarray) -> np.ndarray:
        """1, u and u^2 / 2 (m, 1 + 2 d), the last straight beyond its reach; 0 where points do not tell."""
        inside = np.clip(u, -self.reach, self.reach)
        out = np.concatenate([np.ones((len(u), 1)), u, inside * (u - 0.5 * inside)], axis=1)
        out[:, self._terms :] = 0.0
        return out

    def __call__(self, thetas: np.ndarray) -> np.ndarray:
        """Gains (m,) at thetas (m, n)."""
        u = self.coordinates.u(thetas)
        out = self._columns(u) @ self.coefficients
        return np.asarray(out if self._left is None else out + self._left(u))

    def slope(self, theta: np.ndarray) -> np.ndarray:
        """The gradient of the quadratic at theta (n,), of straight coordinates; 0 for entries that do not move."""
        free, u = list(self.coordinates.free), self.coordinates.u(theta)
        out, first, second = np.zeros(theta.size), *np.split(self.coefficients[1:], 2)
        out[free] = (first + second * np.clip(u, -self.reach, self.reach)) @ self._into
        return out

    @property
    def curvature(self) -> np.ndarray:
        """Its second derivatives within reach (d, d), over the free entries, of straight coordinates."""
        return np.asarray((self._into.T * np.split(self.coefficients[1:], 2)[1]) @ self._into)

    @property
    def _into(self) -> np.ndarray:
        return np.linalg.inv(self.coordinates.scale[:, None] * self.coordinates.mix)

    def shares(self, theta: np.ndarray) -> np.ndarray:
        """What the value at theta (n,) is of the values at the points (m,), of sum 1: for anything as smooth."""
        return np.asarray(self._columns(self.coordinates.u(theta[None]))[0] @ self._onto)

    def away(self, thetas: np.ndarray) -> np.ndarray:
        """How far thetas (k, n) are from each of the points (k, m), in u."""
        return cdist(self.coordinates.u(thetas), self.coordinates.u(self.thetas))

    def moved(self, coordinates: Coordinates) -> CorrectionModel:
        """The same in other coordinates."""
        return CorrectionModel(coordinates, self.thetas, self.gains)

    def with_point(self, theta: np.ndarray, gain: float) -> CorrectionModel:
        """The same with one more point."""
        return CorrectionModel(self.coordinates, np.concatenate([self.thetas, theta[None]]), np.r_[self.gains, gain])
