"""Pieces of which bounds are made, in 60 digits: (f, f_h, f_r, f_hh, f_hr, f_rr) of one row, and sums of such rows."""

from __future__ import annotations

from decimal import Decimal as D

import mpmath

from .decimals import ONE, PI, TWO, ZERO
from .integrals import expectation, logistic_parts

Row = tuple[D, D, D, D, D, D]


def lgamma(x: D) -> D:
    return D(mpmath.nstr(mpmath.loggamma(mpmath.mpf(str(x))), 60))


def softplus(x: D) -> D:
    if x > 0:
        return x + softplus(-x)
    return x.exp() if x < -70 else (ONE + x.exp()).ln()


def sigmoid(x: D) -> D:
    return ONE / (ONE + (-x).exp()) if x > -100 else x.exp()


def total(*rows: Row) -> Row:
    return tuple(sum(values, ZERO) for values in zip(*rows, strict=True))  # type: ignore[return-value]


def times(c: D, row: Row) -> Row:
    return tuple(c * x for x in row)  # type: ignore[return-value]


def linear(c: D, h: D, const: D = ZERO) -> Row:
    return c * h + const, c, ZERO, ZERO, ZERO, ZERO


def stretched(row: Row, scale: D) -> Row:
    """f(a, v) with a = h/scale + const and v = rho/scale^2, in terms of h and rho; scale = -1 mirrors."""
    f, a, v, aa, av, vv = row
    return f, a / scale, v / scale**2, aa / scale**2, av / scale**3, vv / scale**4


def exponential(c_h: D, sign: int, c: D, const: D, h: D, rho: D) -> Row:
    """E[c_h eta + c e^{sign eta} + const]."""
    e = c * (sign * h + rho / 2).exp() if c > 0 else ZERO
    return c_h * h + e + const, c_h + sign * e, e / 2, e, sign * e / 2, e / 4


def logistic(bound: str, h: D, rho: D) -> Row:
    """A bound on E[log(1 + e^eta)]."""
    if bound == "log-sum":
        s = h + rho / 2
        p = sigmoid(s)
        q = p * sigmoid(-s)
        return softplus(s), p, p / 2, q, q / 2, q / 4
    if bound == "tilted":
        u = tilt(h, rho)
        a, rest = sigmoid(u), sigmoid(-u)
        q, lean = a * rest, (rest - a) / 2
        turn = q / (1 + rho * q)
        value = a * a * rho / 2 + softplus(h + (rest - a) * rho / 2)
        return value, a, q / 2, turn, lean * turn, lean * lean * turn
    if bound == "bohning":
        p = sigmoid(h)
        return softplus(h) + rho / 8, p, ONE / 8, p * sigmoid(-h), ZERO, ZERO
    if bound == "jaakkola":
        return total(linear(ONE / 2, h), log_cosh(h, rho))
    assert bound == "exact", bound
    if h > 0:  # log(1 + e^eta) = eta + log(1 + e^-eta): the large part in all digits
        return total(linear(ONE, h), stretched(logistic(bound, -h, rho), D(-1)))
    return expectation(logistic_parts, h, rho, [0.0])


def tilt(h: D, rho: D) -> D:
    """u = h + (1 - 2 sigmoid(u)) rho/2: the left side less the right increases in u. Safeguarded Newton."""
    low, high = h - rho / 2, h + rho / 2
    u, lean = h / (1 + rho / 4), h / rho if rho > 0 else ONE
    if rho > 8:  # a = 1/2 + h/rho but for u itself, and 0 or 1 beyond
        inside = abs(lean) < D("0.499")
        u = ((ONE / 2 + lean) / (ONE / 2 - lean)).ln() if inside else h - (rho / 2).copy_sign(h)
    u = min(max(u, low), high)
    for _ in range(400):
        a, rest = sigmoid(u), sigmoid(-u)
        excess = u - h - (rest - a) * rho / 2
        low, high = (u, high) if excess < 0 else (low, u)
        step = excess / (1 + rho * a * rest)
        if abs(step) <= D("1e-57") * max(ONE, abs(h), rho):
            return u - step
        u = u - step if low < u - step < high else (low + high) / 2
    raise ArithmeticError("the tilt was not found")


def log_cosh(a: D, v: D) -> Row:
    """g = log(2 cosh(xi/2)), xi^2 = a^2 + v, the best quadratic bound: by the chain rule in x = xi^2."""
    x = a * a + v
    xi = x.sqrt()
    if xi < D("1e-12"):
        g, g1, g2 = TWO.ln() + x / 8, ONE / 8 - x / 96, -ONE / 96
    else:
        e = (-xi).exp()
        tanh, g = (1 - e) / (1 + e), xi / 2 + (1 + e).ln()
        g1 = tanh / (4 * xi)
        g2 = ((1 - tanh * tanh) / 2 - tanh / xi) / (8 * x)
    return in_square(a, g, g1, g2)


def in_square(a: D, g: D, g1: D, g2: D) -> Row:
    """g(a^2 + v) and its derivatives in (a, v)."""
    return g, 2 * a * g1, g1, 2 * g1 + 4 * a * a * g2, 2 * a * g2, g2


def folded(a: D, v: D) -> Row:
    """E|u|, u ~ N(a, v)."""
    if v <= 0:
        return abs(a), D(1).copy_sign(a), ZERO, ZERO, ZERO, ZERO
    sd = v.sqrt()
    z = a / sd
    slope = D(mpmath.nstr(mpmath.erf(mpmath.mpf(str(z)) / mpmath.sqrt(2)), 60)) if abs(z) < 16 else ONE.copy_sign(z)
    bend = (2 / PI).sqrt() * (-z * z / 2).exp() / sd
    return a * slope + bend * v, slope, bend / 2, bend, -bend * z / sd / 2, bend * (z * z - 1) / v / 4
