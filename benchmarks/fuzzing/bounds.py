"""The bounds f(h, rho) >= E[-log p(y|eta)], eta ~ N(h, rho), written out from the models' definitions in 60 digits.

Nothing here comes from the library: closed forms are evaluated in ``decimal``, tilts are solved for, expectations
without a closed form are integrated on panels in extended precision (19 digits; ``witness.py`` repeats a tenth of them
by mpmath in 30). A row's answer is (f, f_h, f_r, f_hh, f_hr, f_rr), subscripts for derivatives in h and rho.
"""

from __future__ import annotations

from decimal import Decimal as D
from typing import Any

import numpy as np

from .decimals import ONE, PI, TWO, ZERO, eliminate
from .integrals import beta_parts, expectation, interval_parts, log_phi_parts, number, tangents
from .more_rows import MORE_ROWS
from .pieces import Row, exponential, folded, in_square, lgamma, linear, log_cosh, logistic, stretched, times, total


def scalar_row(like: dict[str, Any], n: int, y: D, h: D, rho: D) -> Row:
    """One observed row of a likelihood with one predictor; ``n`` picks what varies by row."""
    name, bound = like["name"], like["bound"]

    def own(key: str, default: Any = 1.0) -> D:
        value = like.get(key, default)
        return D(float(default if value is None else value if np.ndim(value) == 0 else value[n]))

    if name in MORE_ROWS:
        return MORE_ROWS[name](own, y, h, rho)
    if name == "Gaussian":
        v = own("variance")
        return ((y - h) ** 2 + rho) / (2 * v) + (2 * PI * v).ln() / 2, (h - y) / v, 1 / (2 * v), 1 / v, ZERO, ZERO
    if name == "Poisson":
        c = own("exposure")
        return exponential(-y, 1, c, lgamma(y + 1) - y * c.ln(), h, rho)
    if name == "Gamma":
        k = own("shape")
        return exponential(k, -1, k * y, lgamma(k) - k * k.ln() - (k - 1) * y.ln(), h, rho)
    if name == "StochasticVolatility":
        return exponential(ONE / 2, -1, y * y / 2, (2 * PI).ln() / 2, h, rho)
    if name in ("Exponential", "Weibull"):
        k, event = own("shape"), own("event")
        return exponential(-event, 1, (k * y.ln()).exp(), -event * (k.ln() + (k - 1) * y.ln()), h, rho)
    if name == "ZeroInflatedPoisson":
        return zero_inflated(own("probability"), own("exposure"), y, h, rho)
    if name == "BernoulliLogit":
        return total(linear(-y, h), logistic(bound, h, rho))
    if name == "Binomial":
        t = own("trials")
        const = lgamma(y + 1) + lgamma(t - y + 1) - lgamma(t + 1)
        return total(linear(-y, h, const), times(t, logistic(bound, h, rho)))
    if name == "NegativeBinomial":
        r, c = own("size"), (own("size") / own("exposure")).ln()
        const = y * c + lgamma(r) + lgamma(y + 1) - lgamma(y + r)
        return total(linear(-y, h, const), times(y + r, logistic(bound, h - c, rho)))
    if name == "Ordinal":
        edges = like["cutpoints"]
        out, k = linear(ZERO, h), int(y)
        if k < len(edges):
            out = total(out, logistic(bound, h - D(edges[k]), rho))
        if k > 0:
            out = total(out, stretched(logistic(bound, D(edges[k - 1]) - h, rho), D(-1)))
        if 0 < k < len(edges):
            out = total(out, linear(ZERO, h, -(1 - (D(edges[k - 1]) - D(edges[k])).exp()).ln()))
        return out
    if name == "BernoulliProbit":
        g = 2 * y - 1
        return stretched(expectation(log_phi_parts, g * h, rho, [0.0]), g)
    if name == "OrdinalProbit":
        edges = [-np.inf, *like["cutpoints"], np.inf]
        lo, hi = edges[int(y)], edges[int(y) + 1]
        return expectation(interval_parts(lo, hi), h, rho, [x for x in (lo, hi) if np.isfinite(x)])
    if name == "Beta":
        phi = float(own("precision"))
        left, right = tangents(float(y), phi)
        return expectation(
            beta_parts(float(y), phi, left, right), h, rho, [0.0], np.r_[np.arange(-33.0, 34.0), left, right]
        )
    b = own("scale")
    a, v = (h - y) / b, rho / b**2
    if name == "LogisticNoise":
        if bound == "super-gaussian":
            unit = times(TWO, log_cosh(a, v))
        else:
            unit = total(logistic(bound, a, v), stretched(logistic(bound, -a, v), D(-1)))
    elif name == "LaplaceNoise":
        if bound == "super-gaussian":
            x = a * a + v
            xi = x.sqrt()
            unit = in_square(a, xi, 1 / (2 * xi), -1 / (4 * x * xi))
        else:
            unit = folded(a, v)
        unit = total(unit, linear(ZERO, a, TWO.ln()))
    else:
        assert name == "StudentT", name
        nu = own("df")
        x = a * a + v
        const = (nu * PI).ln() / 2 + lgamma(nu / 2) - lgamma((nu + 1) / 2)
        unit = in_square(
            a, (nu + 1) / 2 * (1 + x / nu).ln() + const, (nu + 1) / (nu + x) / 2, -(nu + 1) / (nu + x) ** 2 / 2
        )
    return total(stretched(unit, b), linear(ZERO, h, b.ln()))


def zero_inflated(pi: D, exposure: D, y: D, h: D, rho: D) -> Row:
    """Exact for y > 0; for y = 0 the concave G(m) = -log(pi + (1 - pi) e^-m) at the mean m of mu (Jensen)."""
    m = exposure * (h + rho / 2).exp()
    if y > 0:
        return exponential(-y, 1, exposure, lgamma(y + 1) - y * exposure.ln() - (1 - pi).ln(), h, rho)
    e = (1 - pi) * (-m).exp()
    w, value = e / (pi + e), -(pi + e).ln()
    first, second = w * m, w * m - w * (1 - w) * m * m
    return value, first, first / 2, second, second / 2, second / 4


def softmax_row(like: dict[str, Any], y: int, h: list[D], rho: list[D]) -> tuple[D, list[D], list[D], Any, Any, Any]:
    """f, f_h, f_r (C,) and the three C x C blocks of second derivatives of one softmax row."""
    C, fixed = len(h), like["reference"] == "last"
    a = softmax_tilt(h, rho, fixed) if like["bound"] == "tilted" else [ZERO] * C
    s = [h[k] + (1 - 2 * a[k]) * rho[k] / 2 for k in range(C)]
    top = max([*s, ZERO] if fixed else s)
    e = [(x - top).exp() for x in s]
    whole = sum(e, (-top).exp() if fixed else ZERO)
    p = [x / whole for x in e]
    value = top + whole.ln() + sum((a[k] ** 2 * rho[k] / 2 for k in range(C)), ZERO) - (h[y] if y < C else ZERO)
    J = np.array([[p[j] * (int(j == k) - p[k]) for k in range(C)] for j in range(C)], dtype=object)
    f_h = [p[k] - int(k == y) for k in range(C)]
    if like["bound"] == "log-sum":
        return value, f_h, [x / 2 for x in p], J, J / 2, J / 4
    # da = J (dh + (1 - 2a)/2 drho - rho da); f_h = a - hot, f_r = a (1 - a)/2
    lean = np.array([(1 - 2 * x) / 2 for x in p], dtype=object)
    inner = np.array([[int(j == k) + J[j, k] * rho[k] for k in range(C)] for j in range(C)], dtype=object)
    T = eliminate(inner, J)
    return value, f_h, [x * (1 - x) / 2 for x in p], T, T * lean[None, :], lean[:, None] * T * lean[None, :]


def softmax_tilt(h: list[D], rho: list[D], fixed: bool) -> list[D]:
    """a_k with log a_k + a_k rho_k = h_k + rho_k/2 - l and sum a (+ e^-l) = 1: both monotone, bisected, then Newton."""
    H, R = np.array(h, dtype=np.longdouble), np.array(rho, dtype=np.longdouble)
    target = H + R / 2

    def inner(level: Any) -> Any:
        c = target - level  # solve x + R e^x = c for x = log a; increasing and convex in x
        x = np.where(c > 1, np.log(np.maximum(c, 1) / np.maximum(R, 1e-300)), c)
        x = np.minimum(x, c)
        for _ in range(100):
            new = x - (x + R * np.exp(x) - c) / (1 + R * np.exp(x))
            if np.all(np.abs(new - x) <= 1e-18 * np.maximum(1, np.abs(x))):
                break
            x = new
        return x

    def mass(level: Any) -> Any:
        return np.exp(inner(level)).sum() + (np.exp(-level) if fixed else 0) - 1

    low = np.max(target - R) - 1 if not fixed else max(np.max(target - R) - 1, np.longdouble(0))
    high = np.maximum(np.max(target), 0) + np.log(np.longdouble(len(h) + 1)) + 1
    if fixed:
        low = np.longdouble(0)
    for _ in range(90):
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) > 0 else (low, middle)
        if high - low <= 1e-9:  # Newton squares it
            break
    a = [D(1) * number(x) for x in np.exp(inner((low + high) / 2))]
    for _ in range(4):  # minimise sum a^2 rho/2 + log sum exp(h + (1 - 2a) rho/2) in 60 digits
        s = [h[k] + (1 - 2 * a[k]) * rho[k] / 2 for k in range(len(h))]
        top = max([*s, ZERO] if fixed else s)
        e = [(x - top).exp() for x in s]
        whole = sum(e, (-top).exp() if fixed else ZERO)
        p = [x / whole for x in e]
        A = np.array(
            [[int(j == k) + p[j] * (int(j == k) - p[k]) * rho[k] for k in range(len(h))] for j in range(len(h))],
            dtype=object,
        )
        step = eliminate(A, np.array([[a[k] - p[k]] for k in range(len(h))], dtype=object))[:, 0]
        a = [a[k] - step[k] for k in range(len(h))]
    return a
