"""The predictive distribution of y when eta ~ N(h, rho), row by row: quantiles and draws for each likelihood.

    P(y <= x) = E[F(x | eta)],    F the distribution function of the likelihood

F as a function of eta falls or rises about one place, ``kink(x)``, over some ``width(x)``: the panels of the quadrature
are laid there, in units of the width. A quantile is sought by secants on the scale of ndtri P, on which P is nearly
straight, within a bracket that shrinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc, expit, gammainc, logit, ndtr, ndtri, pdtr, stdtr

from ..checks import problem
from ..likelihoods.base import Likelihood
from ..linalg.quadrature import expect
from .responses import DURATIONS, LABELS, kind

MOST = 1e15  # a count beyond this is beyond doubles
_LARGEST = 700.0  # the largest eta whose exponential is a number


@dataclass(frozen=True)
class Conditional:
    """y given eta.

    cdf : F(x | eta) at x (m, 1) and eta (m, M) of the rows in a slice
    kink, width : of x (N,), where in eta F falls or rises, and over how much
    draw : (eta (N, M), rng) -> y
    space : "count", "real", "positive" or "unit", what y is
    """

    cdf: Callable[[np.ndarray, np.ndarray, slice], Any]
    kink: Callable[[np.ndarray], np.ndarray]
    width: Callable[[np.ndarray], Any]
    draw: Callable[[np.ndarray, np.random.Generator], Any]
    space: str

    def probability(self, x: np.ndarray, h: np.ndarray, rho: np.ndarray) -> np.ndarray:
        """P(y <= x) of each row (N,)."""
        w = np.broadcast_to(self.width(x), h.shape)

        def g(eta: np.ndarray, rows: slice) -> np.ndarray:
            return np.asarray(self.cdf(x[rows, None], eta * w[rows, None], rows))

        with np.errstate(all="ignore"):
            return np.asarray(expect(g, h / w, rho / w**2, [self.kink(x) / w]))


def per_row(value: object, n: int) -> np.ndarray:
    """A number, a vector, or None for 1, as (n,)."""
    return np.broadcast_to(np.asarray(1.0 if value is None else value, dtype=np.float64), (n,))


def conditional(likelihood: Any, n: int) -> Conditional:
    """The distribution of y given eta at n rows."""
    name = kind(likelihood)
    if name in _COUNTS:
        return _counts(name, likelihood, n)
    if name in _REAL:
        cdf, draw, scale = _REAL[name](likelihood)
        s = per_row(scale, n)
        return Conditional(
            lambda x, eta, rows: cdf((x - eta) / s[rows, None]),
            lambda x: x,
            lambda x: s,
            lambda eta, rng: eta + s[:, None] * draw(rng, eta.shape),
            "real",
        )
    if name == "Gamma":
        k = float(likelihood.shape)
        return Conditional(
            lambda x, eta, rows: gammainc(k, k * x * np.exp(np.minimum(-eta, _LARGEST))),
            lambda x: np.log(x),
            lambda x: min(1.0, k**-0.5),
            lambda eta, rng: np.exp(eta) * rng.gamma(k, 1.0 / k, eta.shape),
            "positive",
        )
    if name == "Beta":
        phi, tiny = float(likelihood.precision), 1e-300
        return Conditional(
            lambda x, eta, rows: betainc(phi * expit(eta) + tiny, phi * expit(-eta) + tiny, x),
            lambda x: logit(x),
            lambda x: min(1.0, 2.0 * phi**-0.5),
            lambda eta, rng: rng.beta(phi * expit(eta) + tiny, phi * expit(-eta) + tiny),
            "unit",
        )
    if name in DURATIONS:  # quantiles are the likelihood's own
        k, unit = float(likelihood.shape), float(getattr(likelihood, "unit", 1.0))
        return Conditional(
            lambda x, eta, rows: -np.expm1(-((x / unit) ** k) * np.exp(np.minimum(eta, _LARGEST))),
            lambda x: -k * np.log(x / unit),
            lambda x: 1.0,
            lambda eta, rng: unit * (rng.exponential(size=eta.shape) * np.exp(-eta)) ** (1.0 / k),
            "positive",
        )
    raise problem(
        type(likelihood).__name__,
        "quantiles and draws of y are not known for it",
        "one of the likelihoods that have a name here",
        "Mean, variance and log density are there.",
    )


# -- noise about eta: (distribution function, draws, scale) ---------------------------------------------------
_REAL: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "Gaussian": lambda a: (ndtr, lambda rng, size: rng.standard_normal(size), np.sqrt(a.variance)),
    "LaplaceNoise": lambda a: (
        lambda u: np.where(u < 0.0, 0.5 * np.exp(-np.abs(u)), 1.0 - 0.5 * np.exp(-np.abs(u))),
        lambda rng, size: rng.laplace(size=size),
        a.scale,
    ),
    "LogisticNoise": lambda a: (expit, lambda rng, size: rng.logistic(size=size), a.scale),
    "StudentT": lambda a: (lambda u: stdtr(a.df, u), lambda rng, size: rng.standard_t(a.df, size), a.scale),
}
_COUNTS = ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson", "Binomial")


def _counts(name: str, likelihood: Any, n: int) -> Conditional:
    if name == "Binomial":
        trials = per_row(likelihood.trials, n)

        def successes(x: np.ndarray, eta: np.ndarray, rows: slice) -> np.ndarray:
            # P(y <= k) = I_{1-p}(n - k, k + 1); at k = n it is 1, and the beta function ends
            left = trials[rows, None] - x
            return np.where(left <= 0.0, 1.0, betainc(np.maximum(left, 0.5), x + 1.0, expit(-eta)))

        def share(x: np.ndarray) -> np.ndarray:
            inside = np.clip(x + 0.5, 0.5, np.maximum(trials - 0.5, 0.5))
            return np.log(inside) - np.log(np.maximum(trials - inside, 0.5))

        return Conditional(
            successes,
            share,
            lambda x: np.minimum(1.0, np.maximum(np.minimum(x, trials - x), 1.0) ** -0.5),
            lambda eta, rng: rng.binomial(trials.astype(np.int64)[:, None], expit(eta)).astype(np.float64),
            "count",
        )
    E = per_row(likelihood.exposure, n)
    zero = float(getattr(likelihood, "probability", 0.0))
    size = float(getattr(likelihood, "size", np.inf))

    def mean(eta: np.ndarray, rows: Any) -> np.ndarray:
        return np.minimum(E[rows, None] * np.exp(np.minimum(eta, _LARGEST)), MOST)

    def cdf(x: np.ndarray, eta: np.ndarray, rows: slice) -> np.ndarray:
        if name == "NegativeBinomial":
            return np.asarray(betainc(size, x + 1.0, size / (size + mean(eta, rows))))
        return np.asarray(zero + (1.0 - zero) * pdtr(x, mean(eta, rows)))

    def draw(eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rate = mean(eta, slice(None))
        if name == "NegativeBinomial":
            rate = np.minimum(rate * rng.gamma(size, 1.0 / size, eta.shape), MOST)
        return np.where(rng.random(eta.shape) < zero, 0.0, rng.poisson(rate)) if zero else rng.poisson(rate) + 0.0

    return Conditional(
        cdf,
        lambda x: np.log(np.maximum(x, 0.5) / np.maximum(E, 1e-300)),
        lambda x: np.minimum(1.0, np.maximum(np.minimum(x, size), 1.0) ** -0.5),
        draw,
        "count",
    )


# -- what the estimators ask -----------------------------------------------------------------------------------
def mean_quantiles(
    likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, levels: np.ndarray, classes: np.ndarray | None = None
) -> np.ndarray:
    """Quantiles (M, Q) of E[y | eta] itself: a rate, a probability, a noise-free value; it is monotone in eta."""

    def mean(eta: np.ndarray) -> np.ndarray:
        if classes is not None:
            return np.asarray(likelihood.predictive_probabilities(eta, np.zeros_like(eta))) @ classes
        return np.asarray(likelihood.predictive_mean(eta, np.zeros_like(eta)))

    falls = mean(h + 1.0).sum() < mean(h - 1.0).sum()
    each = -ndtri(levels) if falls else ndtri(levels)
    return np.stack([mean(h + np.sqrt(rho) * z) for z in each], axis=1)


def quantiles(likelihood: Any, h: np.ndarray, rho: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of y (M, Q)."""
    if kind(likelihood) in LABELS:
        total = np.cumsum(np.asarray(likelihood.predictive_probabilities(h, rho)), axis=1)
        return (total[:, None, :-1] < levels[None, :, None]).sum(axis=2).astype(np.float64)
    if kind(likelihood) == "Gaussian":
        sd = np.sqrt(np.asarray(likelihood.predictive_variance(h, rho)))
        return h[:, None] + sd[:, None] * ndtri(levels)[None, :]
    if kind(likelihood) == "StochasticVolatility":
        return np.stack([return_quantile(h, rho, level) for level in levels], axis=1)
    if hasattr(likelihood, "predictive_quantile"):
        return np.asarray(likelihood.predictive_quantile(levels, h, rho))
    given = conditional(likelihood, h.shape[0])
    one = _count_quantile if given.space == "count" else _real_quantile
    return np.stack([one(given, likelihood, h, rho, level) for level in levels], axis=1)


def draws(likelihood: Any, h: np.ndarray, rho: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of y (M, size), each row on its own."""
    if kind(likelihood) in LABELS:
        total = np.cumsum(np.asarray(likelihood.predictive_probabilities(h, rho)), axis=1)
        return (rng.random((h.shape[0], size))[:, :, None] > total[:, None, :-1]).sum(axis=2).astype(np.float64)
    eta = h[:, None] + np.sqrt(rho)[:, None] * rng.standard_normal((h.shape[0], size))
    return np.asarray(conditional(likelihood, h.shape[0]).draw(eta, rng), dtype=np.float64)


def _count_quantile(given: Conditional, likelihood: Any, h: np.ndarray, rho: np.ndarray, level: float) -> np.ndarray:
    """The smallest k with P(y <= k) >= level, sought in log(k + 1)."""
    low = np.full_like(h, -1.0)
    if hasattr(likelihood, "trials"):
        high = per_row(likelihood.trials, h.shape[0]).astype(np.float64)
    else:
        reach = np.minimum(h + np.sqrt(rho) * max(float(ndtri(level)), 0.0), 34.0)
        high = np.minimum(np.ceil(2.0 * np.exp(reach) * per_row(likelihood.exposure, h.shape[0]) + 20.0), MOST)
        for _ in range(60):
            short = (given.probability(high, h, rho) < level) & (high < MOST)
            if not short.any():
                break
            low, high = np.where(short, high, low), np.where(short, np.minimum(2.0 * high, MOST), high)

    def between(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
        a, b = np.log(low + 1.5), np.log(high + 1.5)
        return np.maximum(np.clip(np.round(np.exp(a + share * (b - a)) - 1.5), low + 1.0, high - 1.0), 0.0)

    def off(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0.0, _FAR[0], _probit(given.probability(np.maximum(x, 0.0), h, rho)))

    return _bracketed(off, float(ndtri(level)), (low, high), between, lambda low, high: high - low <= 1.0)[1]


def _real_quantile(given: Conditional, likelihood: Any, h: np.ndarray, rho: np.ndarray, level: float) -> np.ndarray:
    """x with P(y <= x) = level, sought in x, log x or logit x."""
    of = {"real": lambda u: u, "positive": lambda u: np.exp(np.minimum(u, _LARGEST)), "unit": expit}[given.space]
    target = float(ndtri(level))

    def off(u: np.ndarray) -> np.ndarray:
        return _probit(given.probability(of(u), h, rho))

    middle = np.asarray(likelihood.predictive_mean(h, 0.0 * h))
    middle = {"real": lambda x: x, "positive": np.log, "unit": logit}[given.space](middle)
    step = np.sqrt(rho) + np.broadcast_to(given.width(of(middle)), h.shape)
    low, high = middle - step, middle + step
    for _ in range(60):
        below, above = off(low) > target, off(high) < target
        if not (below | above).any():
            break
        width = high - low
        low, high = np.where(below, low - width, low), np.where(above, high + width, high)

    def between(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
        return low + np.clip(share, 1e-3, 1.0 - 1e-3) * (high - low)

    def done(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        near, ends = high - low <= 1e-9 * (step + np.abs(low)), (of(low), of(high))
        if given.space != "real":  # where doubles end the quantile is 0
            near = near | (ends[1] < 1e-290) | (ends[0] == ends[1])
        return near | (ends[0] > 1.0 - 1e-14) if given.space == "unit" else near

    low, high = _bracketed(off, target, (low, high), between, done)
    return np.asarray(of((low + high) / 2))


_FAR = (float(ndtri(1e-300)), float(ndtri(1.0 - 1e-16)))


def _probit(p: np.ndarray) -> np.ndarray:
    return np.clip(ndtri(np.clip(p, 0.0, 1.0)), *_FAR)


def _bracketed(
    f: Callable[[np.ndarray], np.ndarray],
    target: float,
    ends: tuple[np.ndarray, np.ndarray],
    between: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    done: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Shrink brackets of f = target, f rising, by secants; where one end stands still its f is halved (Illinois).

    ``between(low, high, share)`` is the point a share of the way. f(high) >= target and f(low) < target throughout.
    """
    low, high = ends
    f_low, f_high = f(low) - target, f(high) - target
    last = np.full(low.shape, 2)  # which end moved last: neither
    for i in range(200):
        if done(low, high).all():
            break
        with np.errstate(all="ignore"):
            share = -f_low / (f_high - f_low)
        share = np.where(np.isfinite(share) & (i % 5 != 4), share, 0.5)  # now and then a plain half
        x = between(low, high, share)
        value = f(x) - target
        up = value >= 0.0
        again, last = up == last, up
        high, low = np.where(up, x, high), np.where(up, low, x)
        f_low, f_high = np.where(up, f_low, value), np.where(up, value, f_high)
        f_low, f_high = np.where(again & up, f_low / 2, f_low), np.where(again & ~up, f_high / 2, f_high)
    return low, high


def return_quantile(h: np.ndarray, rho: np.ndarray, level: float) -> np.ndarray:
    """The level-quantile of N(0, e^eta), eta ~ N(h, rho): bisection on E[Phi(x e^{-(eta-h)/2})] in log x."""
    if level == 0.5:
        return np.zeros_like(h)
    tail = max(level, 1.0 - level)
    centre = np.full_like(h, np.log(ndtri(tail)))
    reach = 5.0 * np.sqrt(rho) + 1.0
    low, high = centre - reach, centre + reach
    for _ in range(50):
        x = (low + high) / 2

        def g(eta: np.ndarray, rows: slice, x: np.ndarray = x) -> np.ndarray:
            return np.asarray(ndtr(np.exp(np.minimum(x[rows, None] - eta / 2, 700.0))))

        enough = np.asarray(expect(g, 0.0 * h, rho, [2.0 * x])) >= tail
        high, low = np.where(enough, x, high), np.where(enough, low, x)
    return np.sign(level - 0.5) * np.exp((low + high) / 2 + h / 2)
