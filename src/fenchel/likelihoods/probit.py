"""Bernoulli-probit: p(y|eta) = Phi(g eta), g = 2y - 1, y in {0, 1}, Phi the normal distribution function.

    psi = -log Phi(g eta),   psi' = -g H(t),   psi'' = H(t) (H(t) - t),      t = -g eta
    H(t) = phi(t) / Phi(-t): the normal hazard; 0 < psi'' < 1, so p is log-concave
    f(h, rho) = E[psi]     "exact": no bound, and no dual
    E[Phi(eta)] = Phi(h / sqrt(1 + rho))

H(t) - t suffers from cancellation for large t, where the asymptotic series of Mills' ratio is used. log Phi has no
singularity within 2.8 of the real line, so a trapezoidal rule that follows the normal is exact to rounding at spacing
1/2. Wide normals are integrated by panels.

Ordered levels 0, ..., K-1 by a cumulative probit: P(y <= k) = Phi(b_{k+1} - eta), b_1 < ... < b_{K-1}.

    p(y|eta) = Phi(hi - eta) - Phi(lo - eta),     lo = -inf for the lowest level, hi = +inf for the highest
    psi = -log p,   psi' = u - l,   u = phi(hi - eta) / p = -dpsi/dhi,   l = phi(lo - eta) / p = dpsi/dlo
    psi'' = (hi - eta) u - (lo - eta) l + (u - l)^2  =  1 - Var[Z | lo - eta < Z < hi - eta]  in (0, 1)
    predictive: eta + noise is normal, so p(y) is the same difference with b - eta over sqrt(1 + rho)

The difference of two distribution functions is computed without cancellation: by the complement where 0 is well inside
the interval, by Mills' ratio elsewhere (its asymptotic series far out), and by a series in the width where it is small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from ..checks import labels
from ..linalg.arrays import Array, ArrayLike, Seed, namespace, special, to_numpy
from ..linalg.quadrature import expect_near
from .base import Likelihood, Rows, flat, slice_rows
from .binomial import BernoulliLogit
from .bounds import Bound, Loss, expected_loss
from .ordinal import Cumulative, Ordinal

_FAR = 20.0  # from here on Mills' ratio comes from its asymptotic series
_ROOT = float(np.sqrt(2.0))
_HALF = float(np.sqrt(np.pi / 2.0))
_HALF_LOG = 0.5 * float(np.log(2.0 * np.pi))
_NARROW = 0.05  # of width * max(1, |centre|), up to which the series in the width serves
_INSIDE = -1.0  # an interval that begins below this is judged by its complement


def mills(t: Array) -> Array:
    """Phi(-t) / phi(t), for any t: it overflows to infinity at t = -38."""
    return _HALF * special("erfcx", t / _ROOT)


def mills_defect(t: Array) -> Array:
    """1 - t Phi(-t) / phi(t) for t >= 20, by its series 1/t^2 - 3/t^4 + 15/t^6 - ..."""
    u = 1.0 / (t * t)
    out = 1.0 - 17.0 * u
    for odd in (15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        out = 1.0 - odd * u * out
    return u * out


def hazard(t: Array) -> tuple[Array, Array]:
    """H = phi(t) / Phi(-t) and H - t, each to rounding."""
    xp = namespace(t)
    far = t > _FAR
    distant = xp.where(far, t, _FAR)
    defect = mills_defect(distant)
    series = distant / (1.0 - defect)
    direct = 1.0 / mills(xp.where(far, 0.0, t))
    return xp.where(far, series, direct), xp.where(far, series * defect, direct - t)


def interval(a: Array, b: Array) -> tuple[Array, Array, Array, Array, Array]:
    """-log P for P = Phi(b) - Phi(a), its slope and curvature in eta, phi(a)/P, phi(b)/P; a = lo - eta, b = hi - eta.

    One end may be infinite. The interval is mirrored so that the end nearer to 0 comes first.
    """
    xp = namespace(a)
    mirrored = a + b < 0.0
    a, b = xp.where(mirrored, -b, a), xp.where(mirrored, -a, b)
    parts = _by_mills(a, b)
    inside = a < _INSIDE
    if bool(xp.any(inside)):
        parts = _choose(inside, _by_complement(a, b), parts)
    with np.errstate(invalid="ignore", over="ignore"):
        narrow = (b - a) * xp.maximum(xp.ones_like(a), xp.abs(a + b) / 2) < _NARROW
    if bool(xp.any(narrow)):
        parts = _choose(narrow, _by_width(a, b, narrow), parts)
    psi, first, second, lower, upper = parts
    return (
        psi,
        xp.where(mirrored, -first, first),
        second,
        xp.where(mirrored, upper, lower),
        xp.where(mirrored, lower, upper),
    )


def _choose(where: Array, yes: tuple[Array, ...], no: tuple[Array, ...]) -> tuple[Array, ...]:
    xp = namespace(where)
    return tuple(xp.where(where, x, y) for x, y in zip(yes, no, strict=True))


def _closed(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """b made finite, the width, and phi(b)/phi(a), which is 0 at an open end."""
    xp = namespace(a)
    is_open = xp.isinf(b)
    b = xp.where(is_open, xp.abs(a) + 1.0, b)
    width = b - a
    with np.errstate(over="ignore", under="ignore"):
        ratio = xp.where(is_open, 0.0, xp.exp(-width * (a + b) / 2))
    return b, width, ratio


def _by_mills(a: Array, b: Array) -> tuple[Array, ...]:
    """P = phi(a) D, D = M(a) - r M(b) with M Mills' ratio and r = phi(b)/phi(a); for a >= -1."""
    xp = namespace(a)
    a = xp.where(a < _INSIDE, _INSIDE, a)
    b = xp.where(b <= a, a + 1.0, b)
    b, width, ratio = _closed(a, b)
    rest = xp.where(ratio > 0.0, -xp.expm1(-width * (a + b) / 2), 1.0)  # 1 - r
    D = mills(a) - ratio * mills(b)
    D = xp.where(D > 0.0, D, 1.0)  # 0 only where the width underflows: narrow, replaced by the caller
    pull = rest / D
    excess = pull - a  # E[Z | a < Z < b] - a
    far = a > _FAR
    if bool(xp.any(far)):
        x, y = xp.where(far, a, _FAR), xp.where(far, b, _FAR + 1.0)
        series = mills_defect(x) - ratio * ((y - x) + x * mills_defect(y)) / y
        excess = xp.where(far, series / D, excess)
    return a * a / 2 + _HALF_LOG - xp.log(D), -pull, pull * excess + width * ratio / D, 1.0 / D, ratio / D


def _by_complement(a: Array, b: Array) -> tuple[Array, ...]:
    """P = 1 - Phi(a) - Phi(-b), for a < -1 and b > 1."""
    xp = namespace(a)
    a = xp.where(a < _INSIDE, a, _INSIDE)
    missing = special("ndtr", a) + special("ndtr", -xp.abs(b))
    b = xp.where(xp.isinf(b), 40.0 - a, b)  # phi vanishes there
    with np.errstate(under="ignore"):
        P = 1.0 - missing
        lower, upper = (xp.exp(-0.5 * x * x - _HALF_LOG) / P for x in (a, b))
    first = upper - lower
    return -xp.log1p(-missing), first, b * upper - a * lower + first * first, lower, upper


def _by_width(a: Array, b: Array, narrow: Array) -> tuple[Array, ...]:
    """P = w phi(c) S, S = 1 + He_2(c) w^2/24 + He_4(c) w^4/1920 + He_6(c) w^6/322560, about the centre c."""
    xp = namespace(a)
    a, b = xp.where(narrow, a, 0.0), xp.where(narrow, b, _NARROW / 2)
    w, c = b - a, (a + b) / 2
    u, x = w * w, c * c
    p, q, r = u / 24, u * u / 1920, u**3 / 322560
    S = 1.0 + (x - 1.0) * p + (x * x - 6.0 * x + 3.0) * q + (x**3 - 15.0 * x * x + 45.0 * x - 15.0) * r
    lean = c * (2.0 * p + (4.0 * x - 12.0) * q + (6.0 * x * x - 60.0 * x + 90.0) * r) / S
    bend = (2.0 * p + (12.0 * x - 12.0) * q + (30.0 * x * x - 180.0 * x + 90.0) * r) / S
    psi = x / 2 + _HALF_LOG - xp.log(w * S)
    tilt, scale = c * w / 2, xp.exp(-u / 8) / (w * S)
    return psi, lean - c, 1.0 - (bend - lean * lean), xp.exp(tilt) * scale, xp.exp(-tilt) * scale


class ProbitLikelihood(Likelihood):
    """Probit link: the common base of binary and ordered targets."""

    link_noise = 1.0

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        marks = list(self.landmarks(rows))
        return expected_loss(self.derivatives, lambda g: expect_near(g, h[:, 0], rho[:, 0], marks), h, rho, rows)


class BernoulliProbit(ProbitLikelihood):
    """Binary targets 0/1 with success probability ``Phi(eta)``, where Phi is the normal distribution function.

    Parameters
    ----------
    bound : {"exact"}
        Integrates the log-likelihood of a row numerically, with a strong-concavity certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import BernoulliProbit
    >>> BernoulliProbit().predictive_mean(np.array([1.0]), np.array([3.0])).round(6)
    array([0.691462])
    """

    word, support = "probit", "levels"

    def __init__(self, bound: str | type[Bound] = "exact") -> None:
        self._choose(bound)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(special("ndtri", np.asarray((float(w @ y) + 0.5) / (float(w.sum()) + 1.0))))

    def neighbour(self) -> BernoulliLogit:
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

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp = namespace(h)
        u = h / xp.sqrt(1.0 + rho)
        return xp.stack([special("ndtr", -u), special("ndtr", u)], axis=1)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self.predictive_probabilities(h, rho)[:, 1]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        p = self.predictive_probabilities(h, rho)
        return p[:, 0] * p[:, 1]

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        out = self.log_density((h / xp.sqrt(1.0 + rho))[:, None], rows)[:, 0]
        return xp.where(rows["weight"] > 0.0, out, xp.nan)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[BernoulliProbit, np.ndarray]:
        return cls(), rng.integers(0, 2, n).astype(float)


class OrdinalProbit(Cumulative, ProbitLikelihood):
    """Ordered levels 0, ..., K-1 with a probit link: ``P(y <= k) = Phi(cutpoints[k] - eta)``.

    Parameters
    ----------
    cutpoints : array (K-1,)
        Increasing. Learnable.
    bound : {"exact"}
        Integrates the log-likelihood of a row numerically, with a strong-concavity certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import OrdinalProbit
    >>> OrdinalProbit([-1.0, 1.0]).predictive_probabilities(np.array([0.0]), np.array([0.0])).round(4)
    array([[0.1587, 0.6827, 0.1587]])
    """

    word = "ordinal-probit"
    link = staticmethod(ndtri)

    def __init__(self, cutpoints: ArrayLike, bound: str | type[Bound] = "exact") -> None:
        super().__init__(cutpoints, bound)

    def neighbour(self) -> Ordinal:
        return Ordinal(self.cutpoints, "tilted")

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        psi, first, second, _, _ = interval(rows["lo"][:, None] - eta, rows["hi"][:, None] - eta)
        return psi, first, second

    def _pulls(self, h: Array, rho: Array, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        xp = namespace(h)

        def pulls(eta: Array, index: Any) -> Array:
            own = slice_rows(rows, index)
            return xp.stack(interval(own["lo"][:, None] - eta, own["hi"][:, None] - eta)[3:])

        lower, upper = to_numpy(expect_near(pulls, h[:, 0], rho[:, 0], self.landmarks(rows)))
        return upper, lower

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        scale = xp.sqrt(1.0 + rho)
        out = -interval((rows["lo"] - h) / scale, (rows["hi"] - h) / scale)[0]
        return xp.where(rows["weight"] > 0.0, out, xp.nan)

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h = flat(h)
        xp, one = namespace(h), np.ones(h.shape[0])
        return xp.stack(
            [xp.exp(self.predictive_log_density(k * one, h, rho)) for k in range(self.n_levels)],
            axis=1,
        )

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[OrdinalProbit, np.ndarray]:
        return cls(np.cumsum(rng.gamma(2.0, 0.5, 3) + 0.2) - 1.5), rng.integers(0, 4, n).astype(float)
