"""Bernoulli-probit: p(y|eta) = Phi(g eta), g = 2y - 1, y in {0, 1}, Phi the normal distribution function.

    psi = -log Phi(g eta),   psi' = -g H(t),   psi'' = H(t) (H(t) - t),      t = -g eta
    H(t) = phi(t) / Phi(-t): the normal hazard; 0 < psi'' < 1, so p is log-concave
    f(h, rho) = E[psi]     "exact": no bound, and no dual
    E[Phi(eta)] = Phi(h / sqrt(1 + rho))

H(t) - t cancels for large t, where the asymptotic series of Mills' ratio gives it with all its digits. log Phi has no
singularity within 2.8 of the real line, so a trapezoidal rule that follows the normal is exact to rounding at spacing
1/2; wide normals go to panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..checks import choice, labels
from ..linalg.arrays import Array, is_numpy, namespace, special
from ..linalg.quadrature import expect
from .base import Likelihood, Rows, flat, slice_rows
from .bernoulli import BernoulliLogit
from .sites import Loss

FAR = 20.0  # from here on Mills' ratio comes from its asymptotic series
_ROOT = float(np.sqrt(2.0))
_HALF = float(np.sqrt(np.pi / 2.0))
# of the trapezoidal rule: variance up to which, spacing in standard deviations, reach in them
_FOLLOWED = ((0.25, 0.75, 8.25), (1.0, 0.5, 9.0), (4.0, 0.25, 9.0), (16.0, 0.125, 9.0))
_REACH, _NODES, _OFFSETS = 9.0, 24, (-40.0, -8.0, 0.0, 8.0, 40.0)  # of the panels
_POINT = 1e-150  # a standard deviation below this is a point
_ROWS = 1024  # rows at a time

Integrand = Callable[[Array, Any], Array]  # (nodes (n, M), which rows they belong to) -> (..., n, M)


def mills(t: Array) -> Array:
    """Phi(-t) / phi(t), for any t: it overflows to infinity at t = -38."""
    return _HALF * special("erfcx", t / _ROOT)


def mills_defect(t: Array) -> Array:
    """1 - t Phi(-t) / phi(t) for t >= 20, by its series 1/t^2 - 3/t^4 + 15/t^6 - ..."""
    u, out = 1.0 / (t * t), 1.0
    for odd in (17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        out = 1.0 - odd * u * out
    return u * out


def hazard(t: Array) -> tuple[Array, Array]:
    """H = phi(t) / Phi(-t) and H - t, each to rounding."""
    xp = namespace(t)
    far = t > FAR
    distant = xp.where(far, t, FAR + xp.zeros_like(t))
    defect = mills_defect(distant)
    series = distant / (1.0 - defect)
    direct = 1.0 / mills(xp.where(far, xp.zeros_like(t), t))
    return xp.where(far, series, direct), xp.where(far, series * defect, direct - t)


def in_groups(n: int, groups: Iterable[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]) -> np.ndarray:
    """(..., n) from rules for groups of rows: each rule(index) returns (..., len(index)). numpy only."""
    out = np.empty(n)
    for where, rule in groups:
        mine = np.flatnonzero(where)
        for i in range(0, mine.size, _ROWS):
            index = mine[i : i + _ROWS]
            part = rule(index)
            if part.ndim != out.ndim:
                out = np.empty((*part.shape[:-1], n))
            out[..., index] = part
    return out


def expect_between(g: Integrand, h: np.ndarray, rho: np.ndarray, cuts: Iterable[np.ndarray]) -> np.ndarray:
    """E[g(eta)] by Gauss-Legendre on every panel between the cuts (N,); a panel of no width costs nothing."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    sd = np.maximum(np.sqrt(rho), _POINT)
    ends = [np.full_like(h, end) for end in (-_REACH, 0.0, _REACH)]
    edges = np.stack([*ends, *(np.clip((cut - h) / sd, -_REACH, _REACH) for cut in cuts)], axis=1)
    edges.sort(axis=1)
    half = np.diff(edges, axis=1) / 2
    row, panel = np.nonzero(half)
    half = half[row, panel][:, None]
    z = edges[row, panel][:, None] + half * (1.0 + x)
    weight = half * w * np.exp(-0.5 * z * z)
    first = np.searchsorted(row, np.arange(h.size))
    mass = np.add.reduceat(weight.sum(axis=-1), first)
    sums = np.add.reduceat(
        np.einsum("...ij,ij->...i", g(h[row, None] + sd[row, None] * z, row), weight), first, axis=-1
    )
    return sums / mass


def expect_near(g: Integrand, h: Array, rho: Array, kinks: list[Array]) -> Array:
    """E[g(eta)] under N(h, rho) for a g analytic within 2.8 of the real line; g(eta, index) returns (..., n, M)."""
    if not is_numpy(h):
        return expect(g, h, rho, kinks)

    def followed(spacing: float, reach: float) -> Callable[[np.ndarray], np.ndarray]:
        z = np.arange(-reach, reach + spacing / 2, spacing)
        weight = np.exp(-0.5 * z * z)
        weight /= weight.sum()
        return lambda index: g(h[index, None] + np.sqrt(rho[index, None]) * z, index) @ weight

    def panels(index: np.ndarray) -> np.ndarray:
        cuts = [kink[index] + offset for kink in kinks for offset in _OFFSETS]
        return expect_between(lambda eta, part: g(eta, index[part]), h[index], rho[index], cuts)

    groups, lower = [], -np.inf
    for upper, spacing, reach in _FOLLOWED:
        groups.append(((rho > lower) & (rho <= upper), followed(spacing, reach)))
        lower = upper
    return in_groups(h.shape[0], [*groups, (~(rho <= lower), panels)])


class ProbitLikelihood(Likelihood):
    """A normal distribution function as link: what binary and ordered levels share."""

    bound = "exact"
    bounds = ("exact",)

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp = namespace(h)

        def integrand(eta: Array, index: Any) -> Array:
            psi, first, second = self.derivatives(eta, slice_rows(rows, index))
            v = rho[index, :]
            v = xp.where(v > 0.0, v, xp.ones_like(v))
            t = (eta - h[index, :]) / xp.sqrt(v)
            return xp.stack([psi, first, second, second * t / xp.sqrt(v), second * (t * t - 1.0) / v])

        out = expect_near(integrand, h[:, 0], rho[:, 0], list(self.landmarks(rows)))
        return Loss(out[0, :], out[1, :], out[2, :], out[2, :], out[3, :] / 2, out[4, :] / 4)


class BernoulliProbit(ProbitLikelihood):
    """Binary targets 0/1 with success probability ``Phi(eta)``, Phi the normal distribution function.

    Parameters
    ----------
    bound : {"exact"}
        The expectation itself, with a strong-concavity certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BernoulliProbit
    >>> BernoulliProbit().predictive_mean(np.array([1.0]), np.array([3.0])).round(6)
    array([0.691462])
    """

    def __init__(self, bound: str = "exact") -> None:
        choice(self.name, "bound", bound, self.bounds)
        self.bound = bound

    def relaxed(self) -> BernoulliLogit:
        return BernoulliLogit("tilted")

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, 2)
        return {"y": np.where(np.isnan(y), 0.0, y)}

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return special("log_ndtr", (2.0 * rows["y"][:, None] - 1.0) * eta)

    def landmarks(self, rows: Rows) -> list[Array]:
        return [0.0 * rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        g = 2.0 * rows["y"][:, None] - 1.0
        H, excess = hazard(-g * eta)
        return -special("log_ndtr", g * eta), -g * H, H * excess

    def predictive_probabilities(self, h: Array, rho: Array, rng: Any = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp = namespace(h)
        u = h / xp.sqrt(1.0 + rho)
        return xp.stack([special("ndtr", -u), special("ndtr", u)], axis=1)

    def predictive_mean(self, h: Array, rho: Array, rng: Any = None) -> Array:
        return self.predictive_probabilities(h, rho)[:, 1]

    def predictive_variance(self, h: Array, rho: Array, rng: Any = None) -> Array:
        p = self.predictive_probabilities(h, rho)
        return p[:, 0] * p[:, 1]

    def predictive_log_density(self, y: Any, h: Array, rho: Array, rng: Any = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        out = self.log_density((h / xp.sqrt(1.0 + rho))[:, None], rows)[:, 0]
        return xp.where(rows["weight"] > 0.0, out, xp.nan + xp.zeros_like(out))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BernoulliProbit, np.ndarray]:
        return cls(), rng.integers(0, 2, n).astype(float)

    def __repr__(self) -> str:
        return "BernoulliProbit()"
