"""Log evidences in 34 digits, of small chains of latents with any likelihood: the witness of proofs.py.

    z_1 ~ N(0, s^2),  z_{k+1} = c z_k + s sqrt(1 - c^2) e_k,      eta_n = a_n z_{k(n)} + b_n

The integral goes from latent to latent over even grids, forward in one pass:

    F_1(z) = N(z; 0, s^2) l_1(z),   F_{k+1}(z) = l_{k+1}(z) int N(z; c u, s^2 (1 - c^2)) F_k(u) du,  l_k = prod p(y|eta)

A density with a kink has panels between its kinks in place of an even grid, with Gauss and Legendre's rule in each.
Densities are written again here, in mpmath, up to constants in eta, which are the library's; sums are in decimal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal, getcontext
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np

DIGITS = 34
mp.mp.dps = DIGITS
getcontext().prec = DIGITS
getcontext().Emin, getcontext().Emax = -(10**15), 10**15
DEAD = 80.0  # nats below the largest value at which a grid ends

Kernel = Callable[[Any], Any]


def softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def log_ndtr(x: Any) -> Any:
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def log_between(high: Any, low: Any) -> Any:
    """log(F(high) - F(low)) for the logistic distribution function F."""
    if high == mp.inf:
        return -softplus(low)
    if low == -mp.inf:
        return -softplus(-high)
    return mp.log(-mp.expm1(low - high)) - softplus(-high) - softplus(low)


def _counts(mean: Callable[[Any], Any], size: Callable[[Any], Any] | None, y: int) -> Kernel:
    """log p(y) of counts of a mean and a size at eta (None: Poisson)."""
    if size is None:
        return lambda e: y * mp.log(mean(e)) - mean(e) - mp.loggamma(y + 1)
    return lambda e: (
        mp.loggamma(y + size(e))
        - mp.loggamma(size(e))
        - mp.loggamma(y + 1)
        + size(e) * mp.log(size(e) / (size(e) + mean(e)))
        + (y * mp.log(mean(e) / (size(e) + mean(e))) if y else 0)
    )


def _of(value: Any, i: int, default: float = 1.0) -> float:
    """The value of row i of what may be None, a number or an array."""
    if value is None:
        return default
    return float(np.ravel(value)[i] if np.size(value) > 1 else np.ravel(value)[0])


def counts(like: Any, y: float, i: int) -> Kernel:
    """Poisson or negative binomial counts of a likelihood or of a base."""
    exposure, word = mp.mpf(_of(like.exposure, i)), type(like).__name__
    size: Callable[[Any], Any] | None = None
    if word == "NegativeBinomial":
        size = lambda e: mp.mpf(_of(like.size, i))
    elif word == "NegativeBinomial1":
        size = lambda e: exposure * mp.exp(e) / mp.mpf(_of(like.dispersion, i))
    return _counts(lambda e: exposure * mp.exp(e), size, int(y))


def kernel(like: Any, y: float, i: int) -> Kernel | None:
    """log p(y | eta) of row i up to a constant in eta; None for a likelihood that is not written here."""
    word, Y = type(like).__name__, mp.mpf(float(y))
    if word == "BernoulliLogit":
        return lambda e: -softplus(-e if y else e)
    if word == "BernoulliProbit":
        return lambda e: log_ndtr(e if y else -e)
    if word == "Binomial":
        n = mp.mpf(_of(like.trials, i))
        return lambda e: -Y * softplus(-e) - (n - Y) * softplus(e)
    if word in ("Poisson", "NegativeBinomial", "NegativeBinomial1"):
        return counts(like, y, i)
    if word in ("Exponential", "Weibull"):
        k, event = mp.mpf(float(getattr(like, "shape", 1.0))), mp.mpf(_of(like.event, i))
        return lambda e: event * e - (Y**k) * mp.exp(e)
    if word == "Interval":
        k = mp.mpf(float(like.base.shape))
        low, high = Y**k, mp.mpf(_of(like.upper, i)) ** k
        if high == low:
            return lambda e: e - low * mp.exp(e)
        if high == mp.inf:
            return lambda e: -low * mp.exp(e)
        return lambda e: -low * mp.exp(e) + mp.log(-mp.expm1(-(high - low) * mp.exp(e)))
    if word == "Gamma":
        k = mp.mpf(_of(like.shape, i))
        return lambda e: -k * e - k * Y * mp.exp(-e)
    if word == "StochasticVolatility":
        return lambda e: -e / 2 - Y * Y / 2 * mp.exp(-e)
    if word == "Gaussian":
        v = mp.mpf(_of(like.variance, i))
        return lambda e: -((Y - e) ** 2) / (2 * v)
    if word in ("LaplaceNoise", "LogisticNoise", "StudentT"):
        b = mp.mpf(_of(like.scale, i))
        if word == "LaplaceNoise":
            return lambda e: -abs(Y - e) / b
        if word == "LogisticNoise":
            return lambda e: -softplus((Y - e) / b) - softplus((e - Y) / b)
        nu = mp.mpf(like.df)
        return lambda e: -(nu + 1) / 2 * mp.log1p(((Y - e) / b) ** 2 / nu)
    if word in ("Ordinal", "OrdinalProbit"):
        cuts = [-mp.inf, *map(mp.mpf, map(float, like.cutpoints)), mp.inf]
        low, high = cuts[int(y)], cuts[int(y) + 1]
        if word == "Ordinal":
            return lambda e: log_between(high - e, low - e)

        def between(e: Any) -> Any:
            turn = 1 if (high - e) + (low - e) < 0 else -1  # by the tail that does not cancel
            a, b = (low - e, high - e) if turn == 1 else (e - high, e - low)
            return mp.log((mp.erfc(-b / mp.sqrt(2)) - mp.erfc(-a / mp.sqrt(2))) / 2)

        return between
    if word == "Beta":
        phi = mp.mpf(_of(like.precision, i))
        a, b = lambda e: phi / (1 + mp.exp(-e)), lambda e: phi / (1 + mp.exp(e))
        return lambda e: a(e) * mp.log(Y) + b(e) * mp.log1p(-Y) - mp.loggamma(a(e)) - mp.loggamma(b(e))
    if word == "BetaBinomial":
        phi, n = mp.mpf(_of(like.precision, i)), mp.mpf(_of(like.trials, i))
        a, b = lambda e: phi / (1 + mp.exp(-e)), lambda e: phi / (1 + mp.exp(e))
        return lambda e: mp.loggamma(Y + a(e)) + mp.loggamma(n - Y + b(e)) - mp.loggamma(a(e)) - mp.loggamma(b(e))
    if word == "Tweedie":
        phi, p, E = mp.mpf(like.dispersion), mp.mpf(like.power), mp.mpf(_of(like.exposure, i))
        m = lambda e: E * mp.exp(e)
        return lambda e: (-Y * m(e) ** (1 - p) / (p - 1) - m(e) ** (2 - p) / (2 - p)) / phi
    if word in ("ZeroInflated", "Hurdle", "Truncated"):
        base, zero = counts(like.base, y, i), counts(like.base, 0, i)
        if word != "ZeroInflated":
            return lambda e: 0 * e if y == 0 else base(e) - mp.log(-mp.expm1(zero(e)))
        pi = mp.mpf(float(like.probability))
        return lambda e: mp.log(pi + (1 - pi) * mp.exp(zero(e))) if y == 0 else base(e)
    return None


def chain(n: int, s: float, c: float) -> np.ndarray:
    """The covariance of n latents of the chain."""
    k = np.arange(n)
    return s * s * c ** np.abs(k[:, None] - k[None, :])


def supports(log_l: list[Callable[[np.ndarray], np.ndarray]], s: float, c: float) -> list[tuple[float, float]]:
    """Where each latent's posterior is above its dead tails, by forward and backward sums in double precision."""
    out = [(-14.0 * s, 14.0 * s)] * len(log_l)
    for _ in range(12):
        grids = [np.linspace(*side, 401) for side in out]
        own = [f(z) for f, z in zip(log_l, grids, strict=True)]
        forward = [own[0] - grids[0] ** 2 / (2 * s * s)]
        variance = s * s * (1 - c * c)
        links = [-((v[:, None] - c * u[None, :]) ** 2) / (2 * variance) for u, v in itertools.pairwise(grids)]
        for link, f in zip(links, own[1:], strict=True):
            forward.append(f + np.logaddexp.reduce(link + forward[-1][None, :], axis=1))
        backward = [np.zeros(401)]
        for link, f in zip(links[::-1], own[:0:-1], strict=True):
            backward.insert(0, np.logaddexp.reduce(link + (f + backward[0])[:, None], axis=0))
        new = []
        for z, a, b, side in zip(grids, forward, backward, out, strict=True):
            alive = np.flatnonzero(a + b > np.max(a + b) - DEAD)
            lo, hi = (z[max(alive[0] - 1, 0)], z[min(alive[-1] + 1, 400)])
            lo = side[0] - (side[1] - side[0]) / 2 if alive[0] == 0 else lo
            hi = side[1] + (side[1] - side[0]) / 2 if alive[-1] == 400 else hi
            new.append((float(lo), float(hi)))
        done = all(b - a > 0.7 * (d - c_) for (a, b), (c_, d) in zip(new, out, strict=True))
        out = new
        if done:
            break
    return out


def _decimal(x: Any) -> Decimal:
    return Decimal(mp.nstr(x, DIGITS, min_fixed=1, max_fixed=0)) if mp.isfinite(x) else Decimal(0)


def log_evidence(
    kernels: list[list[tuple[Kernel, float, float, float]]],
    fast: list[Callable[[np.ndarray], np.ndarray]],
    s: float,
    c: float,
    kinks: list[list[float]] | None = None,
    steps: int = 128,
) -> tuple[float, float]:
    """log of the integral, and its change when every other point is left out.

    Parameters
    ----------
    kernels : for each latent its rows: log density, a, b, weight
    fast : the same sums in double precision, for where to look
    kinks : for each latent where its densities have kinks
    """
    sides = supports(fast, s, c)
    if kinks is not None and any(kinks):
        return _by_panels(kernels, sides, kinks, mp.mpf(s), mp.mpf(c))
    scale = mp.mpf(s)
    while True:
        totals = []
        grids = [[mp.mpf(lo) + (mp.mpf(hi) - mp.mpf(lo)) * j / steps for j in range(steps + 1)] for lo, hi in sides]
        own = [_products(rows, grid) for rows, grid in zip(kernels, grids, strict=True)]
        for every in (1, 2):
            some = [grid[::every] for grid in grids]
            prior = [_decimal(mp.exp(-z * z / (2 * scale**2)) / (scale * mp.sqrt(2 * mp.pi))) for z in some[0]]
            F = [a * b for a, b in zip(prior, own[0][::every], strict=True)]
            for k in range(1, len(some)):
                F = _step(F, some[k - 1], some[k], scale, mp.mpf(c))
                F = [a * b for a, b in zip(F, own[k][::every], strict=True)]
            totals.append(sum(F) * _decimal(some[-1][1] - some[-1][0]))
        value, half = (mp.log(mp.mpf(str(total))) for total in totals)
        change = abs(float(value - half))
        if change < 1e-14 or steps >= 1280:
            return float(value), change
        steps *= 2


def _products(rows: list[tuple[Kernel, float, float, float]], grid: list[Any]) -> list[Decimal]:
    out = []
    for z in grid:
        total = mp.mpf(0)
        for f, a, b, times in rows:
            total += times * f(mp.mpf(a) * z + mp.mpf(b))
        out.append(_decimal(mp.exp(total)))
    return out


def _step(F: list[Decimal], u: list[Any], v: list[Any], s: Any, c: Any) -> list[Decimal]:
    """int N(v; c u, s^2 (1 - c^2)) F(u) du on the next grid: exp(c u v / t) by powers, as v is even."""
    t = s * s * (1 - c * c)
    weight = [_decimal(mp.exp(-c * c * x * x / (2 * t) + c * x * v[0] / t)) * f for x, f in zip(u, F, strict=True)]
    ratio = [_decimal(mp.exp(c * x * (v[1] - v[0]) / t)) for x in u]
    norm = _decimal((u[1] - u[0]) / mp.sqrt(2 * mp.pi * t))
    out = []
    for z in v:
        out.append(sum(weight) * norm * _decimal(mp.exp(-z * z / (2 * t))))
        weight = [a * b for a, b in zip(weight, ratio, strict=True)]
    return out


@cache
def _rule(n: int = 20) -> tuple[list[Any], list[Any]]:
    """Nodes and weights of Gauss and Legendre on (-1, 1)."""
    nodes, weights = [], []
    for x in np.polynomial.legendre.leggauss(n)[0]:
        z = mp.mpf(float(x))
        for _ in range(3):
            slope = n * (z * mp.legendre(n, z) - mp.legendre(n - 1, z)) / (z * z - 1)
            z -= mp.legendre(n, z) / slope
        slope = n * (z * mp.legendre(n, z) - mp.legendre(n - 1, z)) / (z * z - 1)
        nodes.append(z)
        weights.append(2 / ((1 - z * z) * slope**2))
    return nodes, weights


def _panels(side: tuple[float, float], kinks: list[float], count: int) -> tuple[list[Any], list[Any]]:
    low, high = side
    ends = sorted({low, high, *(k for k in kinks if low < k < high)})
    nodes: list[Any] = []
    weights: list[Any] = []
    for a, b in itertools.pairwise(ends):
        parts = max(1, int(np.ceil(count * (b - a) / (high - low))))
        half = (mp.mpf(b) - mp.mpf(a)) / (2 * parts)
        for j in range(parts):
            middle = mp.mpf(a) + half * (2 * j + 1)
            nodes += [middle + half * x for x in _rule()[0]]
            weights += [half * v for v in _rule()[1]]
    return nodes, weights


def _by_panels(
    kernels: list[Any], sides: list[tuple[float, float]], kinks: list[list[float]], s: Any, c: Any
) -> tuple[float, float]:
    last, change = None, np.inf
    for count in (5, 8, 13):
        rules = [_panels(side, own, count) for side, own in zip(sides, kinks, strict=True)]
        own = [_products(rows, nodes) for rows, (nodes, _) in zip(kernels, rules, strict=True)]
        prior = [_decimal(mp.exp(-z * z / (2 * s * s)) / (s * mp.sqrt(2 * mp.pi))) for z in rules[0][0]]
        F = [a * b for a, b in zip(prior, own[0], strict=True)]
        t = s * s * (1 - c * c)
        for k in range(1, len(rules)):
            (u, du), v = rules[k - 1], rules[k][0]
            mass = [f * _decimal(w / mp.sqrt(2 * mp.pi * t)) for f, w in zip(F, du, strict=True)]
            F = [
                own_z * sum(m * _decimal(mp.exp(-((z - c * x) ** 2) / (2 * t))) for x, m in zip(u, mass, strict=True))
                for z, own_z in zip(v, own[k], strict=True)
            ]
        value = mp.log(mp.mpf(str(sum(f * _decimal(w) for f, w in zip(F, rules[-1][1], strict=True)))))
        if last is not None:
            change = abs(float(value - last))
            if change < 1e-13:
                break
        last = value
    return float(value), change


# -- one latent on any scale: panels about the places where densities bend -------------------------------------
def log_evidence_of_one(
    rows: list[tuple[Kernel, float, float]], marks: list[tuple[float, float]], s: float
) -> tuple[float, float]:
    """log of int N(z; 0, s^2) prod_n p(y_n | a_n z)^times_n dz, and by how much half of the panels moved it.

    Parameters
    ----------
    rows : log density, a, times
    marks : places of z where a density bends, and how wide it is there
    """
    sd, reach = mp.mpf(s), mp.mpf(40) * mp.mpf(s)
    ends = {-reach, reach, mp.mpf(0)}
    for at, width in [(0.0, s), *marks]:
        away = mp.mpf(width) / 4
        while away < 4 * reach:
            ends |= {mp.mpf(at) - away, mp.mpf(at) + away}
            away *= 3
        ends.add(mp.mpf(at))
    edges = sorted(e for e in ends if -reach <= e <= reach)

    def log_f(z: Any) -> Any:
        total = -z * z / (2 * sd * sd) - mp.log(sd * mp.sqrt(2 * mp.pi))
        for f, a, times in rows:
            total += mp.mpf(times) * f(mp.mpf(a) * z)
        return total

    nodes, weights = _rule()

    def panel(a: Any, b: Any) -> tuple[list[Any], Any]:
        half, middle = (b - a) / 2, (a + b) / 2
        return [log_f(middle + half * x) for x in nodes], half

    def total_of(values: list[Any], half: Any) -> Any:
        return half * sum(w * mp.exp(v - unit) for w, v in zip(weights, values, strict=True))

    open_ = [(a, b, panel(a, b)) for a, b in itertools.pairwise(edges)]
    unit = top = max(max(values) for _, _, (values, _) in open_)
    whole, moved = mp.mpf(0), mp.mpf(0)
    for _ in range(60):
        left = []
        for a, b, (values, half) in open_:
            if max(values) + (max(values) - min(values)) < top - 90:
                continue
            middle = (a + b) / 2
            parts = (a, middle, panel(a, middle)), (middle, b, panel(middle, b))
            top = max(top, *(max(part[2][0]) for part in parts))
            before, after = total_of(values, half), sum(total_of(*part[2]) for part in parts)
            if abs(after - before) < mp.mpf(10) ** -16 * after and max(values) - min(values) < 40:
                whole, moved = whole + after, moved + abs(after - before)
            else:
                left += parts
        open_ = left
        if not open_:
            break
    return float(unit + mp.log(whole)), float(moved / whole)
