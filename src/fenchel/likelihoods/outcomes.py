"""The distribution of y: given eta, and averaged over eta ~ N(h, rho).

    given eta        mean_at, variance_at, probabilities_at, cdf, draw      eta (N,) or (N, M), one row for each y
    over N(h, rho)   predictive_mean, _variance, _probabilities, _log_density, _quantile, _draws           h, rho (N,)

A likelihood gives the closed forms that it has. The others follow numerically: averages over eta by quadrature, and
means given eta from the density.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from ..checks import problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from ..linalg.quadrature import expect, log_expect
from . import numerical
from .parameters import Parametrised

Rows = Mapping[str, Array]
LIMITS = {  # of y, by support
    "real": (-np.inf, np.inf),
    "count": (0.0, np.inf),
    "positive": (0.0, np.inf),
    "unit": (0.0, 1.0),
}


_STEP = 1e-4  # of eta, of a slope by differences, relative where eta is large


class ElementaryTerms(NamedTuple):
    """-log p(y | eta) of rows (N,), for each unit of weight and up to a constant, in terms that compiled loops know:

    linear eta + rate e^{sign eta} + up softplus(eta - high) + down softplus(low - eta)
    """

    linear: Array
    rate: Array
    sign: float
    up: Array
    high: Array
    down: Array
    low: Array


class Predicted(Parametrised):
    """Means, variances, quantiles and draws of y, given eta or averaged over a normal eta."""

    support: str
    n_levels: int = 2  # of labels
    n_predictors: int
    link_noise: float | None = None  # variance of the number behind y, where y says which of some ends it lies between

    @property
    def discrete(self) -> bool:
        """Whether y are labels or counts, so that p(y | eta) is a probability and at most 1."""
        return self.support in ("count", "levels")

    @abstractmethod
    def take(self, index: Any) -> Self: ...

    @abstractmethod
    def prepare(self, y: ArrayLike, weights: ArrayLike | None = None) -> dict[str, np.ndarray]: ...

    def log_density(self, eta: Array, rows: Rows) -> Array:
        """log p(y | eta) with all constants. eta: (N, M) for one predictor, (N, C, M) for several; -> (N, M)."""
        return -self.derivatives(eta, rows)[0]

    def landmarks(self, rows: Rows) -> Sequence[Array]:
        """Where log p(y | eta) bends or peaks, for the quadrature: (N,) arrays. One predictor only."""
        return ()

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """psi = -log p, psi', psi'' at eta (N, M). Needed for exact expectations, not for the bounds."""
        raise NotImplementedError(f"{self.name} does not implement derivatives(); exact expectations need it.")

    def elementary_terms(self, rows: Rows) -> ElementaryTerms | None:
        """-log p as a few terms; None where it is something else."""
        return None

    # -- given eta ---------------------------------------------------------------------------------
    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        """E[y | eta], like eta; of several predictors the probabilities (N, K)."""
        if self._states("predictive_mean"):
            return _at_points(self, eta, lambda own, h: own.predictive_mean(h, np.zeros_like(h)))
        return _at_points(self, eta, lambda own, h: numerical.moments(own, h)[0])

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        """Var[y | eta], like eta."""
        if self._states("predictive_variance"):
            return _at_points(self, eta, lambda own, h: own.predictive_variance(h, np.zeros_like(h)))
        return _at_points(self, eta, lambda own, h: numerical.moments(own, h)[1])

    def link_variance(self, eta: np.ndarray, spread: float = 0.0, weights: np.ndarray | None = None) -> float:
        """The variance of y about its mean on the scale of eta (N,), averaged over the rows: that of the number behind
        labels and trials, or Var[y | eta] / (dE[y | eta] / deta)^2. ``spread`` is a variance of eta beside these,
        ``weights`` (N,) are those of the average.
        """
        eta = np.asarray(eta, dtype=np.float64)
        if self.link_noise is not None:
            return self.link_noise
        step = _STEP * np.maximum(1.0, np.abs(eta))
        slope = (self.mean_at(eta + step) - self.mean_at(eta - step)) / (2.0 * step)
        return float(np.average(self.variance_at(eta) / slope**2, weights=weights))

    def probabilities_at(self, eta: np.ndarray) -> np.ndarray:
        """P(y = k | eta) of levels: the shape of eta and one more axis, of the K levels."""
        eta = np.asarray(eta, dtype=np.float64)
        if self.n_predictors > 1:
            return np.asarray(self.predictive_probabilities(eta, np.zeros_like(eta)))
        at, levels = column(eta), np.arange(float(self.n_levels))
        each = [self.log_density(at, self.prepare(np.full(at.shape[0], k))) for k in levels]
        return np.exp(np.stack(each, axis=-1)).reshape(*eta.shape, -1)

    def cdf(self, x: ArrayLike, eta: np.ndarray) -> np.ndarray:
        """P(y <= x | eta) for any x, broadcast against eta (N, M): counts jump at whole numbers; 0 below y, 1 above."""
        x = np.asarray(x, dtype=np.float64)
        if self.support == "levels":
            p = self.probabilities_at(eta)
            below = np.arange(p.shape[-1]) <= x[..., None]
            return np.where(np.isnan(x), np.nan, np.sum(p * below, axis=-1))
        x, eta = np.broadcast_arrays(x, np.asarray(eta, dtype=np.float64))
        low, high = LIMITS.get(self.support, (-np.inf, np.inf))
        inside = (low <= x) & (x < high)
        place = np.where(inside, np.floor(x) if self.support == "count" else x, 0.0)
        out = np.where(inside, self.cdf_inside(place, eta), (x >= high).astype(np.float64))
        return np.where(np.isnan(x), np.nan, out)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """P(y <= x | eta) for x among the values of y, both (N, M); here from the density."""
        return numerical.cdf(self, x, eta)  # type: ignore[arg-type]

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One y for each eta (N, M); here by inverting the distribution function."""
        if self.support == "levels":
            return levels_at(np.cumsum(self.probabilities_at(eta), axis=-1), rng.random(eta.shape)[..., None])[..., 0]
        own = self.take(np.repeat(np.arange(eta.shape[0]), eta.shape[1]))
        u = rng.random(eta.size)
        return numerical.quantile_of(own, eta.ravel(), np.zeros(eta.size), u).reshape(eta.shape)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        """Where in eta P(y <= x | eta) falls or rises, and over how much, of each row (N,): for quadratures."""
        rows = self.prepare(x)
        marks = self.landmarks(rows)
        if not marks:
            return np.zeros(x.shape), 1.0
        place = np.asarray(marks[0], dtype=np.float64)
        try:
            with np.errstate(all="ignore"):
                bend = np.asarray(self.derivatives(place[:, None], rows)[2][:, 0])
        except NotImplementedError:
            return place, 1.0
        return place, np.where(bend > 0.0, np.maximum(bend, 1e-300) ** -0.5, 1.0)

    def _states(self, method: str) -> bool:
        """Whether a subclass has its own."""
        return getattr(type(self), method) is not getattr(Predicted, method)

    # -- over eta ~ N(h, rho) ----------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """E[y]. h, rho: (N,), or (N, C) for several predictors."""
        return _average(self, h, rho, lambda own, eta: own.mean_at(eta))

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """Var[y]."""

        def both(own: Any, eta: np.ndarray) -> np.ndarray:
            mean = own.mean_at(eta)
            return np.stack([own.variance_at(eta), mean, mean * mean])

        inside, mean, square = _average(self, h, rho, both)
        return inside + np.maximum(square - mean**2, 0.0)

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """P(y = k) of every class (N, K)."""
        raise problem(
            self.name,
            "predictive_probabilities() asks for classes, and y is not a label",
            "BernoulliLogit, MultinomialLogit or Ordinal",
            "Use predictive_mean, predictive_variance or predictive_log_density.",
        )

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        """log p(y), each row on its own (N,); NaN where y is NaN."""
        h, rho = column(h), column(rho)
        xp = namespace(h)
        rows = self.rows_for(y, h)

        def log_g(eta: Array, chunk: slice) -> Array:
            return self.log_density(eta, slice_rows(rows, chunk))

        out = log_expect(log_g, h[:, 0], rho[:, 0], self.landmarks(rows))
        return xp.where(rows["weight"] > 0, out, xp.nan)

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        """Quantiles of y at the levels q (Q,): (N, Q); whole numbers of counts, places of levels."""
        h, rho, q = to_numpy(flat(h)), to_numpy(flat(rho)), np.atleast_1d(np.asarray(q, dtype=np.float64))
        if self.support == "levels":
            return levels_at(np.cumsum(np.asarray(self.predictive_probabilities(h, rho)), axis=1), q)
        return np.stack([numerical.quantile_of(self, h, rho, level) for level in q], axis=1)

    def predictive_draws(self, h: Array, rho: Array, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of y (N, size), each row on its own."""
        h, rho = to_numpy(flat(h)), to_numpy(flat(rho))
        if self.support == "levels":
            total = np.cumsum(np.asarray(self.predictive_probabilities(h, rho)), axis=1)
            return levels_at(total, rng.random((h.shape[0], size)))
        eta = h[:, None] + np.sqrt(rho)[:, None] * rng.standard_normal((h.shape[0], size))
        return np.asarray(self.draw(eta, rng), dtype=np.float64)

    def rows_for(self, y: Any, like: Array) -> dict[str, Array]:
        """``prepare(y)``, checked against the number of rows of ``like`` and moved to its device."""
        rows = self.prepare(on_host(y))
        if rows["weight"].shape[0] != like.shape[0]:
            raise problem(
                self.name,
                f"y has {rows['weight'].shape[0]} rows and eta has {like.shape[0]}",
                "as many targets as predictors",
            )
        return {key: asarray(value, like) for key, value in rows.items()}


def _at_points(likelihood: Predicted, eta: ArrayLike, ask: Callable[[Any, np.ndarray], Any]) -> np.ndarray:
    """What is asked of h (N,), at eta (N,) or (N, M)."""
    eta = np.asarray(eta, dtype=np.float64)
    if likelihood.n_predictors > 1 or eta.ndim == 1:
        return np.asarray(ask(likelihood, eta))
    out = np.asarray(ask(likelihood.take(np.repeat(np.arange(eta.shape[0]), eta.shape[1])), eta.ravel()))
    return out.reshape(*eta.shape, *out.shape[1:])


def _average(likelihood: Predicted, h: Array, rho: Array, ask: Callable[[Any, np.ndarray], np.ndarray]) -> Any:
    """E[ask(eta)] of each row."""
    if likelihood.n_predictors > 1:
        got = f"it has {likelihood.n_predictors} predictors a row and no predictive mean of its own"
        raise problem(likelihood.name, got, "one predictor, or predictive_mean and predictive_variance")
    return expect(lambda eta, rows: ask(likelihood.take(rows), to_numpy(eta)), to_numpy(flat(h)), to_numpy(flat(rho)))


def levels_at(total: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The level at which the cumulative probabilities (..., K) pass u (..., Q)."""
    return np.asarray((total[..., None, :-1] < u[..., :, None]).sum(axis=-1), dtype=np.float64)


def slice_rows(rows: Rows, index: Any) -> dict[str, Array]:
    """The same rows, fewer of them."""
    return {key: value[index, ...] for key, value in rows.items()}


def on_host(y: Any) -> Any:
    """y as numpy where it lives in another array library; lists and columns of tables as they are."""
    return y if namespace(y) is np else to_numpy(y)


def column(x: Any) -> Array:
    """(N,) -> (N, 1); (N, C) as it is."""
    if namespace(x) is np:
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
    return x[:, None] if x.ndim == 1 else x


def flat(x: ArrayLike) -> Array:
    """The one predictor of each row: (N,), from (N,), (N, 1) or a list."""
    return column(x)[:, 0]
