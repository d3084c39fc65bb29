"""Densities that are log-concave between at most two inflections: beyond these, tangents replace psi = -log p.

    psi~ = psi between the inflections, their tangents beyond: convex, and psi~ >= psi where psi is concave there
    bound "tangent":   f = E[psi~] >= E[psi]

The ELBO remains a lower bound on log p(y). The fitted problem is log-concave, lam = E[psi~''] >= 0, and the
strong-concavity certificate holds for it. The bound loses E[psi~ - psi], which is large only for observations far from
their prediction. Predictions use the density itself. A subclass puts its inflections into rows["left"] and
rows["right"], infinite where there is none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..linalg.arrays import Array, is_numpy, namespace, to_numpy
from ..linalg.quadrature import Integrand, expect, expect_between, expect_near, in_groups
from .base import Likelihood, Rows, slice_rows
from .bounds import Bounds, DirectBound, Loss, expected_loss

_FAR = 9.0  # standard deviations within which an inflection is seen
_WIDE = 16.0  # variance up to which the trapezoidal rule serves
_PRECISION = 1e-11  # of an inflection, in eta
_PLACES = 4096  # at which psi'' is evaluated at once in the search for few inflections


class Tangent(DirectBound):
    """f = E[psi~], where psi~ is psi with tangents beyond the inflections."""

    log_concave = True  # the density need not be

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp, likelihood = namespace(h), self.likelihood
        growth = likelihood.growth(rows)

        def rest(eta: Array, own: Rows) -> tuple[Array, Array, Array]:
            at, beyond = likelihood._within(eta, own)
            psi, first, second = likelihood.derivatives(at, own)
            second = xp.where((beyond == 0.0) & (second > 0.0), second, 0.0)
            psi = psi + first * beyond
            if growth is None:
                return psi, first, second
            with np.errstate(over="ignore"):
                grown = likelihood.growth(own)[:, None] * xp.exp(eta)
            return psi - grown, first - grown, second - grown

        def expected(g: Integrand) -> Array:
            return likelihood._expect(g, h[:, 0], rho[:, 0], rows)

        return expected_loss(rest, expected, h, rho, rows, growth, convex=growth is not None)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        each = self.theta_rows(h, rho, rows)
        return np.asarray(self.likelihood.gathered(*(rows["weight"] * x for x in each)))

    def theta_rows(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        """df/dtheta of each row (N,), a parameter at a time.

        The inflections move with theta too, but psi'' = 0 there: the tangent of the slope is the slope's tangent.
        """
        likelihood, xp = self.likelihood, namespace(h)
        c = likelihood.theta_growth(rows)

        def integrand(eta: Array, index: Any) -> Array:
            own = slice_rows(rows, index)
            at, beyond = likelihood._within(eta, own)
            value, slope = likelihood._theta_slope(at, own)
            if c is None:
                return value + slope * beyond
            return value + slope * beyond - likelihood.theta_growth(own)[:, None] * xp.exp(eta)

        each = likelihood._expect(integrand, h[:, 0], rho[:, 0], rows)
        if c is not None:
            each = each + c * xp.exp(h[:, 0] + rho[:, 0] / 2)
        return (each,)


def crossing(low: np.ndarray, high: np.ndarray, beyond: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Where ``beyond``, of places (n,) or (m, n), becomes true on the way from low to high, each (n,): to _PRECISION.

    An error of the inflection is of the third order in psi~, and of the first in its slope in theta. Few searches are
    cut into many sections at once.
    """
    sections = int(np.clip(_PLACES // max(low.size, 1), 2, 16))
    share = np.arange(1, sections)[:, None] / sections
    width = float(np.abs(high - low).max(initial=_PRECISION))
    for _ in range(int(np.ceil(np.log(width / _PRECISION) / np.log(sections)))):
        step = high - low
        passed = beyond(low + share * step)
        before = np.where(passed.any(axis=0), passed.argmax(axis=0), sections - 1)  # sections before the crossing
        low = low + before / sections * step
        high = low + step / sections
    return (low + high) / 2


def inflection(inside: np.ndarray, outside: np.ndarray, bend: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Where psi'' = ``bend`` becomes negative on the way out (n,); infinite, on that side, where it does not."""
    at = crossing(inside, outside, lambda eta: ~(bend(eta) > 0.0))
    return np.where(bend(outside) > 0.0, np.copysign(np.inf, outside - inside), at)


def within(eta: Array, rows: Rows) -> tuple[Array, Array]:
    """eta moved between the inflections, and how far it was moved."""
    xp = namespace(eta)
    at = xp.minimum(xp.maximum(eta, rows["left"][:, None] + 0.0 * eta), rows["right"][:, None] + 0.0 * eta)
    return at, eta - at


class TangentLikelihood(Likelihood):
    """A likelihood whose bound is ``Tangent``."""

    bound = "tangent"
    bounds: ClassVar[Bounds] = {"tangent": Tangent}
    log_concave = False  # what is fitted is
    _strip = 2.8  # about the real line within which psi is analytic, pi at most
    _narrow = 1.0  # a variance up to which panels need no cuts but the inflections
    _within = staticmethod(within)

    @abstractmethod
    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        """dpsi/dtheta and its slope in eta, like eta, for the one parameter of the rows."""

    def growth(self, rows: Rows) -> Array | None:
        """c where psi grows like c e^eta (N,); None where it grows like eta."""
        return None

    def theta_growth(self, rows: Rows) -> Array | None:
        """The same of dpsi/dtheta."""
        return None

    def _cuts(self, rows: Rows) -> list[Array]:
        """Where the panels of a wide normal end (N,): about the places where psi bends."""
        return [x + offset for x in self.landmarks(rows) for offset in (-36.0, -12.0, -4.0, 0.0, 4.0, 12.0)]

    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        return self._theta_slope(eta, rows)[0][None, ...]

    def _expect(self, g: Integrand, h: Array, rho: Array, rows: Rows) -> Array:
        """E[g(eta)], g analytic but at the inflections."""
        if not (is_numpy(h) and is_numpy(rho)):
            sides = [namespace(h).where(namespace(h).isinf(rows[side]), h, rows[side]) for side in ("left", "right")]
            return expect(g, h, rho, [*self.landmarks(rows), *sides])
        left, right, places = to_numpy(rows["left"]), to_numpy(rows["right"]), self._cuts(rows)
        with np.errstate(invalid="ignore"):
            reach = _FAR * np.sqrt(rho)
            clear = (rho <= _WIDE) & (h - reach > left) & (h + reach < right)

        def smooth(index: np.ndarray) -> np.ndarray:
            return to_numpy(expect_near(lambda eta, part: g(eta, index[part]), h[index], rho[index], [], self._strip))

        def panels(index: np.ndarray) -> np.ndarray:
            low, high = left[index], right[index]
            cuts = [low, high]
            if not rho[index[0]] <= self._narrow:
                cuts += [np.clip(to_numpy(x)[index], low, high) for x in places]
            return expect_between(lambda eta, part: g(eta, index[part]), h[index], rho[index], cuts)

        narrow = ~clear & (rho <= self._narrow)
        return in_groups(h.shape[0], [(clear, smooth), (narrow, panels), (~(clear | narrow), panels)])
