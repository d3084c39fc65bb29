"""The predictive distribution of y at N rows: moments, probabilities, quantiles, densities and draws.

    E[y] = sum_k w_k E_k[E(y | eta)],   P(y <= x) = sum_k w_k E_k[F(x | eta)],   p(y) = sum_k w_k E_k[p(y | eta)]

Part k of the mixture is a likelihood with marginals of eta. There is one part if the hyperparameters are fixed, and one
for each of their values if they are integrated out. The average E_k uses the closed forms of the likelihood if the
marginals are normal, else a sum over their nodes.

    m(eta) = E[y | eta],    P(m > c) = P(eta > m^-1(c)),    since m is monotone in eta
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy.special import logsumexp

from .checks import problem
from .likelihoods.base import Likelihood, slice_rows
from .likelihoods.numerical import quantile_of
from .likelihoods.outcomes import levels_at
from .linalg.arrays import ArrayLike, to_numpy
from .linalg.quadrature import expect
from .marginals import Levels, Marginals, NodalMarginals, probabilities

KINDS = ("link", "mean", "outcome")  # eta, E[y | eta], y itself
_QUANTILES_A_PART = 200  # equally likely values of eta that represent a part of a mixture
_REACH = 12.0  # standard deviations of eta on either side of its mean that hold all of its probability
_HALVINGS = 60  # bisections of that interval, enough for full double precision

RowFunction = Callable[[Likelihood, np.ndarray, slice], np.ndarray]  # (likelihood of the rows, eta, rows) -> values


@dataclass(frozen=True)
class PredictivePart:
    """One part of a mixture: a likelihood, marginals of eta, and the weight."""

    weight: float
    likelihood: Likelihood
    eta: Marginals

    @cached_property
    def normal(self) -> bool:
        """Whether the closed forms of the likelihood over N(h, rho) are used."""
        return self.likelihood.n_predictors > 1 or not self.eta.nodal

    @cached_property
    def h(self) -> np.ndarray:
        """E[eta], (N,) or (N, C)."""
        return to_numpy(self.eta.mean)

    @cached_property
    def rho(self) -> np.ndarray:
        """Var[eta]; the covariances (N, C, C) if the predictors of a row are correlated."""
        if self.likelihood.n_predictors > 1:
            return to_numpy(self.eta.spread)
        return np.maximum(to_numpy(self.eta.variance), 0.0)

    def average(self, ask: RowFunction) -> np.ndarray:
        """E[ask(eta)] for each row, (..., N); ``ask`` returns (..., n, M) for n rows and M values of eta in each."""
        if not self.eta.nodal:
            own = self.likelihood
            return np.asarray(expect(lambda eta, rows: ask(own.take(rows), to_numpy(eta), rows), self.h, self.rho))
        parts = []
        for rows, eta, weight in cast(NodalMarginals, self.eta).nodes():
            with np.errstate(all="ignore"):
                value = np.asarray(ask(self.likelihood.take(rows), eta, rows))
            parts.append(np.sum(np.where(weight > 0.0, value * weight, 0.0), axis=-1))
        return np.concatenate(parts, axis=-1)

    @cached_property
    def mean(self) -> np.ndarray:
        """E[y] (N,); for levels the mean of 0, ..., K - 1."""
        if self.normal:
            return np.asarray(self.likelihood.predictive_mean(self.h, self.rho))
        return self.average(lambda own, eta, rows: own.mean_at(eta))

    @cached_property
    def variance(self) -> np.ndarray:
        """Var[y] (N,)."""
        if self.normal:
            return np.asarray(self.likelihood.predictive_variance(self.h, self.rho))
        level = _finite(self.likelihood.mean_at(self.h[:, None]))  # moments about it lose no digits

        def moments(own: Likelihood, eta: np.ndarray, rows: slice) -> np.ndarray:
            above = own.mean_at(eta) - level[rows]
            return np.stack([own.variance_at(eta), above, above * above])

        inside, above, square = self.average(moments)
        return inside + np.maximum(square - above**2, 0.0)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P(y = k) of labels or levels, (N, K)."""
        if self.normal:
            return np.asarray(self.likelihood.predictive_probabilities(self.h, self.rho))
        of_levels = self.average(lambda own, eta, rows: np.moveaxis(own.probabilities_at(eta), -1, 0))
        return np.moveaxis(of_levels, 0, -1)

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """P(y <= x) (N,)."""
        at = np.broadcast_to(np.asarray(x, dtype=np.float64), self.h.shape)
        return self.average(lambda own, eta, rows: own.cdf(at[rows, None], eta))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """log p(y) (N,), NaN where y is NaN."""
        if self.normal:
            return np.asarray(self.likelihood.predictive_log_density(y, self.h, self.rho))
        data = self.likelihood.prepare(np.asarray(y, dtype=np.float64))

        def log_p(own: Likelihood, eta: np.ndarray, rows: slice) -> np.ndarray:
            return np.asarray(own.log_density(eta, slice_rows(data, rows)))

        largest = []
        for rows, eta, weight in cast(NodalMarginals, self.eta).nodes():
            each = log_p(self.likelihood.take(rows), eta, rows)
            largest.append(np.where(weight > 0.0, each, -np.inf).max(axis=1))
        top = np.concatenate(largest)
        mass = self.average(lambda own, eta, rows: np.exp(log_p(own, eta, rows) - top[rows, None]))
        return np.where(data["weight"] > 0.0, top + np.log(mass), np.nan)

    def draws(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of y (N, size), independent between rows."""
        eta = to_numpy(self.eta.quantile(rng.random(size)))
        return self.likelihood.draw(rng.permuted(eta, axis=1), rng)


class Predictive:
    """Predictive distribution of y at N rows, with eta integrated out.

    Parameters
    ----------
    likelihood : Likelihood
        The likelihood, with the exposures or trials of the rows.
    eta : Marginals
        Posterior marginals of the predictors of the rows.
    values : array (K,), optional
        Numerical values of the levels of y, to which ``mean``, ``sd`` and quantiles refer.
    labels : array (K,), optional
        Names of the levels in the results of ``quantile`` and ``draws``. Default: ``values``.
    parts : sequence of PredictivePart, optional
        The parts of a mixture, as ``Predictive.mixture`` makes them; their likelihoods differ only in parameters.

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.priors import DenseCovariance
    >>> sol = fenchel.infer(Poisson(), DenseCovariance(np.eye(2)), np.array([0.0, 3.0]))
    >>> predictive = sol.corrected().predictive()
    >>> predictive.mean.round(3), predictive.quantile(0.9)
    (array([0.678, 2.313]), array([2., 5.]))
    """

    def __init__(
        self,
        likelihood: Likelihood,
        eta: Marginals,
        values: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        *,
        parts: Sequence[PredictivePart] | None = None,
    ) -> None:
        self.likelihood, self.eta, self.values = likelihood, eta, values
        self.labels = values if labels is None else labels
        self.parts = [PredictivePart(1.0, likelihood, eta)] if parts is None else list(parts)

    @classmethod
    def mixture(
        cls,
        weights: np.ndarray,
        likelihoods: Sequence[Likelihood],
        etas: Sequence[Marginals],
        eta: Marginals,
        values: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> Predictive:
        """The distribution of a mixture with weights (K,); ``eta`` are the marginals of the whole mixture."""
        parts = [PredictivePart(*each) for each in zip(weights, likelihoods, etas, strict=True)]
        return cls(likelihoods[0], eta, values, labels, parts=parts)

    def _average(self, ask: Callable[[PredictivePart], np.ndarray]) -> np.ndarray:
        if len(self.parts) == 1:
            return np.asarray(ask(self.parts[0]))
        return np.asarray(sum(part.weight * ask(part) for part in self.parts))

    # -- y -----------------------------------------------------------------------------------------
    @cached_property
    def mean(self) -> np.ndarray:
        """E[y] (N,); for levels without ``values`` the mean of 0, ..., K - 1."""
        if self.values is not None:
            return np.asarray(self.probabilities @ self.values)
        return self._average(lambda part: part.mean)

    @cached_property
    def variance(self) -> np.ndarray:
        """Var[y] (N,)."""
        mean = self.mean
        if self.values is not None:
            return np.maximum(self.probabilities @ self.values**2 - mean**2, 0.0)
        if len(self.parts) == 1:
            return self.parts[0].variance
        return self._average(lambda part: part.variance + (part.mean - mean) ** 2)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P(y = k) of labels or levels, (N, K)."""
        return self._average(lambda part: part.probabilities)

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """P(y <= x) (N,), for a number x or one for each row."""
        return self._average(lambda part: part.cdf(x))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """log p(y) (N,), NaN where y is NaN; levels are 0, ..., K - 1."""
        each = np.stack([part.log_density(y) for part in self.parts])
        weights = np.array([part.weight for part in self.parts])
        return each[0] if len(each) == 1 else np.asarray(logsumexp(each, axis=0, b=weights[:, None]))

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles of y: array (N,) for one probability q, (N, Q) for Q of them; levels are given by ``labels``."""
        levels, first = probabilities("predictive.quantile", q), self.parts[0]
        if self.likelihood.support == "levels":
            out = levels_at(np.cumsum(self.probabilities, axis=1), np.atleast_1d(levels))
        elif len(self.parts) == 1 and first.normal:
            out = to_numpy(self.likelihood.predictive_quantile(np.atleast_1d(levels), first.h, first.rho))
        else:
            h, rho = to_numpy(self.eta.mean), to_numpy(self.eta.variance)
            each = [quantile_of(self.likelihood, h, rho, level, self.cdf) for level in np.atleast_1d(levels)]
            out = np.stack(each, axis=1)
        return self._named(out[:, 0] if levels.ndim == 0 else out)

    def draws(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of y (N, size), independent between rows."""
        first = self.parts[0]
        if self.likelihood.support == "levels":
            places = levels_at(np.cumsum(self.probabilities, axis=1), rng.random((first.h.shape[0], size)))
            return self._named(places)
        if len(self.parts) == 1 and first.normal:
            return self._named(self.likelihood.predictive_draws(first.h, first.rho, size, rng))
        of_part = rng.choice(len(self.parts), size=size, p=[part.weight for part in self.parts])
        out = np.empty((first.h.shape[0], size))
        for k in np.unique(of_part):
            of_this = of_part == k
            out[:, of_this] = self.parts[k].draws(int(of_this.sum()), rng)
        return self._named(out)

    def survival(self, times: ArrayLike) -> np.ndarray:
        """Survival probability P(y > t) of durations: array (N,) for one time t, (N, T) for T times."""

        def of_part(part: PredictivePart) -> np.ndarray:
            own: Any = part.likelihood
            return np.asarray(own.predictive_survival(times, part.h, part.rho))

        return self._average(of_part)

    def _named(self, places: np.ndarray) -> np.ndarray:
        """The labels of levels 0, ..., K - 1; any other y unchanged."""
        return places if self.labels is None else self.labels[places.astype(int)]

    # -- kind: "link" for eta, "mean" for E[y | eta], "outcome" for y -----------------------------------
    def location(self, kind: str) -> np.ndarray:
        """E[eta] (kind "link") or E[y] (N,)."""
        return to_numpy(self.eta.mean) if kind == "link" else self.mean

    def limits(self, kind: str, q: Levels) -> np.ndarray:
        """Quantiles (N, Q) of eta, E[y | eta] or y."""
        if kind == "link":
            return to_numpy(self.eta.quantile(q))
        return self.mean_quantile(q) if kind == "mean" else self.quantile(q)

    def mean_quantile(self, q: Levels) -> np.ndarray:
        """Quantiles (N,) or (N, Q) of E[y | eta]: of a rate, a probability or a value without noise.

        With one part they follow from those of eta, since E[y | eta] is monotone; for a mixture, equally likely values
        of each part are sorted.
        """
        levels = np.atleast_1d(probabilities("predictive.mean_quantile", q))
        if len(self.parts) == 1:
            part = self.parts[0]
            ends = self._mean_at(part, np.stack([part.h - 1.0, part.h + 1.0], axis=1))
            falls = (ends[:, 1] < ends[:, 0])[:, None]  # by row, since rows of ``Mixed`` differ and one may overflow
            up, down = (to_numpy(part.eta.quantile(q)) for q in (levels, 1.0 - levels))
            out = self._mean_at(part, np.where(falls, down, up))
        else:
            even = (np.arange(_QUANTILES_A_PART) + 0.5) / _QUANTILES_A_PART
            each = [self._mean_at(part, to_numpy(part.eta.quantile(even))) for part in self.parts]
            weight = np.repeat([part.weight / even.size for part in self.parts], even.size)
            out = _weighted_quantiles(np.concatenate(each, axis=1), weight, levels)
        return out[:, 0] if np.ndim(q) == 0 else out

    def sd(self, kind: str) -> np.ndarray:
        """Standard deviation (N,) of eta, E[y | eta] or y."""
        first = self.parts[0]
        level = first.h if kind == "link" else self._mean_at(first, first.h[:, None])[:, 0]
        level = _finite(level)  # close to the mean of every part: moments about it lose no digits
        mean, square = self._average(lambda part: np.stack(self._moments(kind, part, level)))
        return np.sqrt(np.maximum(square - mean**2, 0.0))

    def exceedance(self, kind: str, threshold: float) -> np.ndarray:
        """Probability (N,) that eta, E[y | eta] or y exceeds a threshold."""
        return self._average(lambda part: self._above(kind, part, threshold))

    def _mean_at(self, part: PredictivePart, eta: np.ndarray) -> np.ndarray:
        """E[y | eta], an array of the shape of eta."""
        if self.values is None:
            return np.asarray(part.likelihood.mean_at(eta))
        return np.asarray(part.likelihood.probabilities_at(eta) @ self.values)

    def _moments(self, kind: str, part: PredictivePart, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first two moments (N,) about ``level``."""
        if kind == "link":
            above = part.h - level
            return above, part.rho + above**2
        if kind == "mean":

            def moments(own: Likelihood, eta: np.ndarray, rows: slice) -> np.ndarray:
                above = self._mean_at(PredictivePart(1.0, own, part.eta), eta) - level[rows, None]
                return np.stack([above, above * above])

            first, second = part.average(moments)
            return first, second
        if self.values is not None:
            above = self.values - level[:, None]
            return np.sum(part.probabilities * above, axis=1), np.sum(part.probabilities * above**2, axis=1)
        above = part.mean - level
        return above, part.variance + above**2

    def _above(self, kind: str, part: PredictivePart, threshold: float) -> np.ndarray:
        if kind == "link":
            return 1.0 - to_numpy(part.eta.cdf(threshold))
        if kind == "mean":
            return self._mean_above(part, threshold)
        if self.values is not None:
            return np.asarray(part.probabilities @ (self.values > threshold))
        return 1.0 - part.cdf(threshold)

    def _mean_above(self, part: PredictivePart, threshold: float) -> np.ndarray:
        """P(E[y | eta] > threshold) (N,); bisection finds the eta at which the threshold is reached."""
        reach = _REACH * to_numpy(part.eta.sd)
        low, high = part.h - reach, part.h + reach
        at_low, at_high = self._mean_at(part, low), self._mean_at(part, high)
        rises = at_high >= at_low
        for _ in range(_HALVINGS):
            half = 0.5 * (low + high)
            beyond = (self._mean_at(part, half) > threshold) == rises
            low, high = np.where(beyond, low, half), np.where(beyond, half, high)
        below = to_numpy(part.eta.cdf(0.5 * (low + high)))
        out = np.where(rises, 1.0 - below, below)
        out = np.where(np.minimum(at_low, at_high) > threshold, 1.0, out)
        return np.where(np.maximum(at_low, at_high) <= threshold, 0.0, out)


def one_predictor(likelihood: Likelihood) -> None:
    """Refuse a likelihood with several predictors, whose joint distribution the marginals do not determine."""
    if likelihood.n_predictors > 1:
        got = f"{likelihood.name} has {likelihood.n_predictors} predictors an observation"
        raise problem("predictive", got, "one", "Average over joint draws: sample(size).")


def _finite(level: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(level), level, 0.0)


def _weighted_quantiles(x: np.ndarray, weight: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles (N, Q) of values x (N, S) with weights (S,)."""
    order = np.argsort(x, axis=1)
    x, share = np.take_along_axis(x, order, axis=1), weight[order]
    below = np.cumsum(share, axis=1) - 0.5 * share
    return np.array([np.interp(levels, b, v) for b, v in zip(below, x, strict=True)])
