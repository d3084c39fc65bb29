"""y itself where the marginals of eta are not normal: means, probabilities, quantiles, densities.

E[y] = E[E(y | eta)],   P(y <= x) = E[F(x | eta)],   p(y) = E[p(y | eta)]       sums over the nodes of each marginal
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from ..checks import problem
from ..likelihoods.base import Likelihood, slice_rows
from ..likelihoods.prediction import levels_at, quantile_of
from ..linalg.arrays import Array, ArrayLike, to_numpy
from ..marginals import Levels, probabilities

Nodes = tuple[slice, np.ndarray, np.ndarray]  # some rows, their etas (n, M), and weights (n, M) or (1, M) of sum 1
Asked = Callable[[Likelihood, np.ndarray, slice], np.ndarray]


class Nodal(Protocol):
    """Marginals of eta as weighted points."""

    @property
    def mean(self) -> Array: ...
    @property
    def variance(self) -> Array: ...
    def _nodes(self) -> Iterator[Nodes]: ...


class Predictive:
    """y at N rows, eta integrated out of its marginals.

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.priors import DenseCovariance
    >>> sol = fenchel.infer(Poisson(), DenseCovariance(np.eye(2)), np.array([0.0, 3.0]))
    >>> found = sol.corrected().predictive()
    >>> found.mean.round(3), found.quantile(0.9)
    (array([0.678, 2.313]), array([2., 5.]))
    """

    def __init__(self, likelihood: Likelihood, eta: Nodal) -> None:
        if likelihood.n_predictors > 1:
            got = f"{likelihood.name} has {likelihood.n_predictors} predictors an observation"
            raise problem("predictive", got, "one", "Average over joint draws: sample(size).")
        self.likelihood, self.eta = likelihood, eta

    def average(self, ask: Asked) -> np.ndarray:
        """E[ask(eta)] of each row: ask answers (..., n, M), this is (..., N)."""
        parts = []
        for rows, eta, weight in self.eta._nodes():
            with np.errstate(all="ignore"):
                value = np.asarray(ask(self.likelihood.take(rows), eta, rows))
            parts.append(np.sum(np.where(weight > 0.0, value * weight, 0.0), axis=-1))
        return np.concatenate(parts, axis=-1)

    @property
    def mean(self) -> np.ndarray:
        """E[y] (N,); of levels, their mean place."""
        return self.average(lambda own, eta, rows: own.mean_at(eta))

    @property
    def variance(self) -> np.ndarray:
        """Var[y] (N,)."""
        level = self.likelihood.mean_at(to_numpy(self.eta.mean)[:, None])  # near every mean, whose digits it keeps
        level = np.where(np.isfinite(level), level, 0.0)

        def both(own: Likelihood, eta: np.ndarray, rows: slice) -> np.ndarray:
            above = own.mean_at(eta) - level[rows]
            return np.stack([own.variance_at(eta), above, above * above])

        inside, above, square = self.average(both)
        return inside + np.maximum(square - above**2, 0.0)

    @property
    def probabilities(self) -> np.ndarray:
        """P(y = k) of labels and levels (N, K)."""
        return np.moveaxis(self.average(lambda own, eta, rows: np.moveaxis(own.probabilities_at(eta), -1, 0)), 0, -1)

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """P(y <= x) (N,), x a number or one for each row."""
        at = np.broadcast_to(np.asarray(x, dtype=np.float64), (np.shape(to_numpy(self.eta.mean))[0],))
        return self.average(lambda own, eta, rows: own.cdf(at[rows, None], eta))

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles of y: (N,) for one q, (N, Q) for Q of them; whole numbers of counts, places of levels."""
        levels = probabilities("predictive.quantile", q)
        if self.likelihood.support == "levels":
            out = levels_at(np.cumsum(self.probabilities, axis=1), np.atleast_1d(levels))
        else:
            h, rho = to_numpy(self.eta.mean), to_numpy(self.eta.variance)
            each = [quantile_of(self.likelihood, h, rho, level, self.cdf) for level in np.atleast_1d(levels)]
            out = np.stack(each, axis=1)
        return out[:, 0] if levels.ndim == 0 else out

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """log p(y) (N,), NaN where y is."""
        rows = self.likelihood.prepare(np.asarray(y, dtype=np.float64))

        def log_p(own: Likelihood, eta: np.ndarray, some: slice) -> np.ndarray:
            return np.asarray(own.log_density(eta, slice_rows(rows, some)))

        nodes = self.eta._nodes()
        top = np.concatenate([log_p(self.likelihood.take(some), eta, some).max(axis=1) for some, eta, _ in nodes])
        mass = self.average(lambda own, eta, some: np.exp(log_p(own, eta, some) - top[some, None]))
        return np.where(rows["weight"] > 0.0, top + np.log(mass), np.nan)
