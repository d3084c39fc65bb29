"""Expectations without a closed form: psi, psi', psi'' in extended precision (19 digits), integrated on panels.

The panels are one standard deviation wide and cut where psi bends: at the landmarks and at distances 1/2, 1, 2, 4, ...
from them. Twenty Gauss-Legendre points a panel leave an error below 1e-19.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal as D
from functools import cache
from typing import Any

import mpmath
import numpy as np

LD = np.longdouble
Parts = Callable[[Any], tuple[Any, Any, Any]]
_REACH = 16.0  # sds: a square of size 1e18 leaves nothing beyond
_HALF_LOG = LD("0.918938533204672741780329736405617640")  # log(2 pi)/2
_ROOT = np.sqrt(LD(2))


def extended(x: D) -> Any:
    return LD(str(x))


def number(x: Any) -> D:
    return D(np.format_float_scientific(x, precision=24, unique=False)) if np.isfinite(x) else D("NaN")


@cache
def legendre(n: int) -> tuple[Any, Any]:
    """Nodes and weights on (-1, 1), to 30 digits."""
    with mpmath.workdps(40):
        start = np.polynomial.legendre.leggauss(n)[0]
        nodes = [mpmath.findroot(lambda x: mpmath.legendre(n, x), mpmath.mpf(float(x))) for x in start]
        slope = [n * (x * mpmath.legendre(n, x) - mpmath.legendre(n - 1, x)) / (x * x - 1) for x in nodes]
        weights = [2 / ((1 - x * x) * d * d) for x, d in zip(nodes, slope, strict=True)]
        as_ld = [np.array([LD(mpmath.nstr(v, 30)) for v in values]) for values in (nodes, weights)]
    return as_ld[0], as_ld[1]


def expectation(parts: Parts, h: D, rho: D, landmarks: list[float], cuts: Any = ()) -> Any:
    """(f, f_h, f_r, f_hh, f_hr, f_rr) of f = E[psi(eta)], eta ~ N(h, rho)."""
    m, v = extended(h), extended(rho)
    sd = np.sqrt(v)
    edges = [np.arange(-_REACH, _REACH + 1.0)]
    if sd > 0:
        far = float(np.max(np.abs(np.array(landmarks) - float(m)))) + _REACH * float(sd)
        if not far < np.inf:
            raise ArithmeticError("a normal beyond extended precision")
        steps = np.r_[0.0, 2.0 ** np.arange(-1.0, max(1.0, np.log2(far)))]
        places = [x + sign * steps for x in landmarks for sign in (-1.0, 1.0)]
        t = (np.concatenate([*places, cuts]).astype(LD) - m) / sd
        edges.append(t[np.abs(t) < _REACH])
    e = np.unique(np.concatenate(edges).astype(LD))
    x, w = legendre(20)
    centre, half = (e[1:] + e[:-1]) / 2, (e[1:] - e[:-1]) / 2
    t = (centre[:, None] + half[:, None] * x[None, :]).ravel()
    weight = (half[:, None] * w[None, :]).ravel() * np.exp(-t * t / 2 - _HALF_LOG)
    psi, first, second = parts(m + sd * t)
    f, fh, fhh = (weight * psi).sum(), (weight * first).sum(), (weight * second).sum()
    if sd > 0:
        fhr = (weight * second * t).sum() / sd / 2
        frr = (weight * second * (t * t - 1)).sum() / v / 4
    else:
        fhr = frr = LD(0)
    return tuple(number(value) for value in (f, fh, fhh / 2, fhh, fhr, frr))


def logistic_parts(x: Any) -> tuple[Any, Any, Any]:
    e = np.exp(-np.abs(x))
    big, small = 1 / (1 + e), e / (1 + e)
    return np.maximum(x, 0) + np.log1p(e), np.where(x > 0, big, small), big * small


def erfcx(z: Any) -> Any:
    """e^{z^2} erfc(z) for z >= 0: a trapezoidal sum (Chiani and Matta; Hunter and Regan), the series of erf near 0."""
    z = np.asarray(z, dtype=LD)
    step = LD(0.4)
    near = z < 1
    far = np.where(near, LD(1), z)
    n = np.arange(1, 20, dtype=LD) * step
    sums = (np.exp(-n * n)[None, :] / (n[None, :] ** 2 + far[:, None] ** 2)).sum(axis=1)
    pole = LD("6.283185307179586476925286766559")  # 2 pi
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        correction = np.where(far < 12, 2 * np.exp(far * far) / -np.expm1(pole * far / step), 0)
    out = pole / LD("19.73920880217871723766898199975") * 2 * step * far * (1 / (2 * far * far) + sums) + correction
    s = np.where(near, z, LD(0))
    term, series = s.copy(), s.copy()
    for k in range(1, 45):
        term = term * (2 * s * s) / (2 * k + 1)
        series = series + term
    small = np.exp(s * s) - 2 / np.sqrt(pole / 2) * series  # erf = 2/sqrt(pi) e^{-z^2} sum 2^k z^{2k+1}/(2k+1)!!
    return np.where(near, small, out)


def log_phi_parts(x: Any) -> tuple[Any, Any, Any]:
    """-log Phi(x) and its first two derivatives: -H(t), H (H - t) with t = -x."""
    t = -np.asarray(x, dtype=LD)
    c = erfcx(np.abs(t) / _ROOT) / 2  # e^{t^2/2} Phi(-|t|)
    gauss = np.exp(-t * t / 2)
    up = t > 0
    psi = np.where(up, t * t / 2 - np.log(c), -np.log1p(-gauss * c))
    hazard = np.exp(-_HALF_LOG) * np.where(up, 1 / c, gauss / (1 - gauss * c))
    far = np.where(t > 40, t, LD(40))
    u = 1 / (far * far)
    defect = u * (1 - 3 * u * (1 - 5 * u * (1 - 7 * u * (1 - 9 * u * (1 - 11 * u)))))
    over = np.where(t > 40, far * defect / (1 - defect), hazard - t)
    return psi, -hazard, hazard * over


def interval_parts(lo: float, hi: float) -> Parts:
    """-log(Phi(hi - eta) - Phi(lo - eta)) and its derivatives."""
    if np.isinf(lo):

        def lowest(x: Any) -> tuple[Any, Any, Any]:
            psi, first, second = log_phi_parts(LD(hi) - x)
            return psi, -first, second

        return lowest
    if np.isinf(hi):
        return lambda x: log_phi_parts(x - LD(lo))

    def parts(x: Any) -> tuple[Any, Any, Any]:
        a, b = LD(lo) - x, LD(hi) - x
        mirrored = a + b < 0
        a, b = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
        ratio = np.exp((a - b) * (a + b) / 2)  # phi(b)/phi(a)
        ca, cb = erfcx(np.abs(a) / _ROOT) / 2, erfcx(np.abs(b) / _ROOT) / 2
        gauss = np.exp(-np.minimum(a * a, 1e4) / 2)
        scaled = np.where(a > 0, ca - ratio * cb, 1 / gauss - ca - ratio * cb)  # P e^{a^2/2}
        scaled = np.where((a <= 0) & (a * a > 1e4), np.inf, scaled)
        low = np.exp(-_HALF_LOG) / scaled  # phi(a)/P
        high = ratio * low
        psi = np.where(np.isinf(scaled), 0, a * a / 2 - np.log(np.where(np.isinf(scaled), 1, scaled)))
        first = high - low
        return psi, np.where(mirrored, -first, first), b * high - a * low + first * first

    return parts


@cache
def bernoulli() -> list[Any]:
    """B_2, B_4, ..., B_24."""
    return [LD(mpmath.nstr(mpmath.bernoulli(2 * k), 30)) for k in range(1, 13)]


def gammas(x: Any) -> tuple[Any, Any, Any]:
    """log Gamma, digamma and trigamma at x > 0: fifteen steps of their recurrences, then Stirling's series."""
    x = np.asarray(x, dtype=LD)
    product, first, second = np.ones_like(x), np.zeros_like(x), np.zeros_like(x)
    for k in range(15):
        step = 1 / (x + k)
        product, first, second = product * (x + k), first + step, second + step * step
    z = x + 15
    i = 1 / z
    lg, dg, tg = (z - LD(0.5)) * np.log(z) - z + _HALF_LOG - np.log(product), np.log(z) - i / 2, i + i * i / 2
    power = i
    for k, B in enumerate(bernoulli(), 1):
        lg = lg + B / (2 * k * (2 * k - 1)) * power
        power = power * i
        dg = dg - B / (2 * k) * power
        power = power * i
        tg = tg + B * power
    return lg, dg - first, tg + second


@cache
def norm(phi: float) -> Any:
    return gammas(np.array([phi]))[0][0]


def beta_density(x: Any, y: float, phi: float) -> tuple[Any, Any, Any]:
    """-log Beta(y; mu phi, (1 - mu) phi), mu = sigmoid(eta), and its derivatives in eta."""
    x, p = np.asarray(x, dtype=LD), LD(phi)
    e = np.exp(-np.abs(x))
    big, small = 1 / (1 + e), e / (1 + e)
    mu, rest = np.where(x > 0, big, small), np.where(x > 0, small, big)
    ga, da, ta = gammas(p * mu)
    gb, db, tb = gammas(p * rest)
    ly, lr = np.log(LD(y)), np.log1p(-LD(y))
    pull, m = da - db - ly + lr, p * mu * rest
    psi = ga + gb - norm(phi) - (p * mu - 1) * ly - (p * rest - 1) * lr
    return psi, m * pull, m * (rest - mu) * pull + m * m * (ta + tb)


@cache
def tangents(y: float, phi: float) -> tuple[float, float]:
    """Where the second derivative changes its sign left and right of 0, scanned and bisected; infinite if nowhere.

    The tangent there meets the density to third order, so double precision is plenty.
    """
    out = []
    for sign in (-1.0, 1.0):
        grid = sign * np.exp(np.linspace(np.log(1e-4), np.log(30.0), 400)).astype(LD)
        below = beta_density(grid, y, phi)[2] < 0
        if not below.any():
            out.append(sign * np.inf)
            continue
        k = int(np.argmax(below))
        near, far = (LD(0) if k == 0 else grid[k - 1]), grid[k]
        for _ in range(4):  # each divides the interval by fifty
            inside = near + (far - near) * np.linspace(0, 1, 51).astype(LD)
            k = max(1, int(np.argmax(beta_density(inside, y, phi)[2] < 0)))
            near, far = inside[k - 1], inside[k]
        out.append(float((near + far) / 2))
    return out[0], out[1]


def beta_parts(y: float, phi: float, left: float, right: float) -> Parts:
    """The density between its inflections, continued by its tangents."""

    def parts(x: Any) -> tuple[Any, Any, Any]:
        lo, hi = max(left, -200.0), min(right, 200.0)
        inside = np.clip(x, LD(lo), LD(hi))
        psi, first, second = beta_density(inside, y, phi)
        beyond = x != inside
        return psi + first * (x - inside), first, np.where(beyond, 0, second)

    return parts
