"""Witness of the judge's own integrals: E[-log p(y|eta)] by mpmath's quadrature in 30 digits, one row at a time."""

from __future__ import annotations

from typing import Any

import mpmath as mp

from .bounds import scalar_row
from .more_rows import MORE_ROWS, beta_binomial_inflections, proportional_inflection, truncated_inflection
from .optimum import Point

_DIGITS, _REACH = 30, 17
_WIDEST = 16  # variance up to which 17 sds hold the expectation of e^eta


def log_phi(x: Any) -> Any:
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def minus_log_density(like: dict[str, Any], n: int, y: Any) -> tuple[Any, list[Any]] | None:
    """psi(eta) from the model's definition, and where it bends; None where f needs no integral."""
    name, logit = like["name"], like["bound"] == "exact"
    if name == "BernoulliLogit" and logit:
        return (lambda x: mp.log1p(mp.exp(x)) - y * x), [0]
    if name == "Binomial" and logit:
        t = mp.mpf(float(like["trials"][n]))
        const = (
            mp.log(mp.binomial(t, y)) if t < 1000 else mp.loggamma(t + 1) - mp.loggamma(y + 1) - mp.loggamma(t - y + 1)
        )
        return (lambda x: t * mp.log1p(mp.exp(x)) - y * x - const), [0]
    if name == "NegativeBinomial" and logit:
        r, e = mp.mpf(like["size"]), mp.mpf(1 if like["exposure"] is None else float(like["exposure"][n]))
        const = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
        return (lambda x: -const - r * mp.log(r / (r + e * mp.exp(x))) + y * mp.log1p(r / e * mp.exp(-x))), [
            mp.log(r / e)
        ]
    if name == "LogisticNoise" and logit:
        b = mp.mpf(like["scale"])
        return (lambda x: (x - y) / b + 2 * mp.log1p(mp.exp(-(x - y) / b)) + mp.log(b)), [y]
    if name == "BernoulliProbit":
        return (lambda x: -log_phi((2 * y - 1) * x)), [0]
    if name in ("Ordinal", "OrdinalProbit") and logit:
        k, cuts = int(y), [mp.mpf(c) for c in like["cutpoints"]]
        probit = name == "OrdinalProbit"

        def tail(x: Any) -> Any:  # of the noise, above x
            return mp.erfc(x / mp.sqrt(2)) / 2 if probit else 1 / (1 + mp.exp(x))

        def psi(x: Any) -> Any:
            lo, hi = (cuts[k - 1] - x if k > 0 else -mp.inf), (cuts[k] - x if k < len(cuts) else mp.inf)
            if lo + hi < 0:
                lo, hi = -hi, -lo
            return -mp.log((tail(lo) if lo > -mp.inf else 1) - (tail(hi) if hi < mp.inf else 0))

        return psi, [*cuts[max(0, k - 1) : k + 1]]
    return more_densities(like, n, y)


def more_densities(like: dict[str, Any], n: int, y: Any) -> tuple[Any, list[Any]] | None:
    """The same of counts above zero, overdispersed counts and durations within an interval."""
    name = like["name"]

    def own(key: str) -> Any:
        value = like.get(key)
        return mp.mpf(1) if value is None else mp.mpf(value if isinstance(value, float) else float(value[n]))

    if name in ("TruncatedPoisson", "HurdlePoisson") and y > 0:
        c, lift = own("exposure"), mp.log(1 - own("probability")) if name == "HurdlePoisson" else 0
        const = mp.loggamma(y + 1) - lift
        return (lambda x: log_expm1(c * mp.exp(x)) - y * (x + mp.log(c)) + const), [-mp.log(c)]
    if name.startswith("Interval"):
        k, upper = own("shape"), own("upper")
        if upper == y or upper == mp.inf:
            return None
        A, B = y**k, upper**k
        return (lambda x: B * mp.exp(x) - log_expm1((B - A) * mp.exp(x))), [-mp.log(B - A)]
    if name in ("TruncatedNegativeBinomial", "HurdleNegativeBinomial") and y > 0:
        r, c = own("size"), own("exposure")
        lift = mp.log(1 - own("probability")) if name == "HurdleNegativeBinomial" else 0
        const = mp.loggamma(r) + mp.loggamma(y + 1) - mp.loggamma(y + r) - lift
        centre = mp.log(r / c)

        def truncated(x: Any) -> Any:
            t = mp.exp(x - centre)
            return const + y * mp.log1p(1 / t) + log_expm1(r * mp.log1p(t))

        right = mp.mpf(truncated_inflection(int(y), float(r))) + centre
        return with_tangents(truncated, -mp.inf, right, [centre, centre - mp.log(r)])
    if name == "NegativeBinomial1":
        a, c = own("dispersion"), own("exposure")
        const = mp.loggamma(y + 1) - y * mp.log(a / (1 + a))

        def proportional(x: Any) -> Any:
            r = c / a * mp.exp(x)
            return const + r * mp.log1p(a) - mp.log(mp.rf(r, int(y)))

        left = mp.mpf(proportional_inflection(int(y), float(a))) + mp.log(a / c)
        return with_tangents(proportional, left, mp.inf, [mp.log(a / c)])
    if name == "BetaBinomial":
        phi, t = own("precision"), own("trials")
        const = mp.log(mp.rf(phi, int(t))) - mp.log(mp.binomial(t, y))

        def overdispersed(x: Any) -> Any:
            up, down = phi / (1 + mp.exp(-x)), phi / (1 + mp.exp(x))
            return const - mp.log(mp.rf(up, int(y)) * mp.rf(down, int(t - y)))

        left, right = (mp.mpf(x) for x in beta_binomial_inflections(int(y), int(t), float(phi)))
        return with_tangents(overdispersed, left, right, [0])
    return None


def log_expm1(x: Any) -> Any:
    """log(e^x - 1)."""
    return mp.log(mp.expm1(x)) if x < 100 else x + mp.log1p(-mp.exp(-x))


def with_tangents(psi: Any, left: Any, right: Any, bends: list[Any]) -> tuple[Any, list[Any]]:
    """psi between its inflections, which must be such, and its tangents beyond; and where all of it bends."""
    lines = {}
    for at in (left, right):
        if abs(at) < mp.inf:
            if abs(mp.diff(psi, at, 2)) > 1e-10 * max(1, abs(psi(at))):
                raise ArithmeticError("the judge's inflections are wrong")
            lines[at] = psi(at), mp.diff(psi, at)

    def value(x: Any) -> Any:
        at = min(max(x, left), right)
        return psi(x) if x == at else lines[at][0] + lines[at][1] * (x - at)

    return value, [*bends, *lines]


def integral(psi: Any, h: Any, rho: Any, bends: list[Any]) -> Any:
    sd = mp.sqrt(rho)
    cuts = [h + k * sd for k in range(-_REACH, _REACH + 1)]
    for bend in bends:
        cuts += [bend + sign * mp.mpf(2) ** k for k in range(-1, 45) for sign in (-1, 1)] + [bend]
    cuts = sorted({x for x in cuts if abs(x - h) <= _REACH * sd})
    return mp.quad(lambda x: psi(x) * mp.exp(-((x - h) ** 2) / (2 * rho)), cuts) / mp.sqrt(2 * mp.pi * rho)


def disagreement(point: Point, most: int = 2) -> float:
    """The largest relative difference of the judge's f from mpmath's, over the first rows that need an integral."""
    model, worst, seen = point.model, 0.0, 0
    for n in model.rows:
        like, k = model.part(n)
        if model.C > 1 or seen == most or not point.rho[n] > 0:
            continue
        with mp.workdps(_DIGITS):
            y, h, rho = (mp.mpf(str(x)) for x in (model.y[n], point.h[n], point.rho[n]))
            known = minus_log_density(like, k, y)
            if known is None or (like["name"] == "OrdinalProbit" and abs(h) > 8 * mp.sqrt(rho) + 30):
                continue
            if like["name"] in MORE_ROWS and (rho > _WIDEST or abs(h) > 500):
                continue
            seen += 1
            want = integral(known[0], h, rho, known[1])
        got = mp.mpf(str(scalar_row(like, k, model.y[n], point.h[n], point.rho[n])[0]))
        worst = max(worst, float(abs(got - want) / max(1, abs(want))))
    return worst
