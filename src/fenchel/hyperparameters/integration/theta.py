"""The posterior of the hyperparameters: marginals of theta, of anything that theta says, and joints of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from ...checks import problem
from ...corrections.grids import Grid, GridAnswers
from ...linalg.arrays import Array, ArrayLike, Seed
from ...marginals import Levels, at_each, probabilities
from .density import LogDensity

_GRID = np.linspace(-8.0, 8.0, 161)  # of a marginal, in its sds
_OTHERS = 512  # places of the other entries: of a net
_LINE = np.linspace(-9.0, 9.0, 121)  # the same where there is one other entry, in its sds


class Values:
    """Unknowns as weighted points: what ``ThetaPosterior.of`` returns.

    values : array (m, k);  weights : array (m,) of sum 1
    """

    def __init__(self, values: np.ndarray, weights: np.ndarray) -> None:
        self.values, self.weights = values, weights

    @cached_property
    def mean(self) -> np.ndarray:
        """Means (k,)."""
        return np.asarray(self.weights @ self.values)

    @cached_property
    def variance(self) -> np.ndarray:
        """Variances (k,)."""
        return np.asarray(self.weights @ (self.values - self.mean) ** 2)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations (k,)."""
        return np.sqrt(self.variance)

    @property
    def skewness(self) -> np.ndarray:
        """Third standardised moments (k,)."""
        third = self.weights @ (self.values - self.mean) ** 3
        return np.asarray(third / np.where(self.variance > 0.0, self.variance, np.inf) ** 1.5)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Values in order (m, k), and the probabilities below the middle of each."""
        order = np.argsort(self.values, axis=0)
        w = self.weights[order]
        return np.take_along_axis(self.values, order, axis=0), np.cumsum(w, axis=0) - 0.5 * w

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles: (k,) for one q, (k, Q) for Q of them."""
        levels, (x, below) = probabilities("quantile", q), self._sorted
        out = np.array([np.interp(np.atleast_1d(levels), below[:, j], x[:, j]) for j in range(x.shape[1])])
        out = out.reshape(x.shape[1], -1)
        return out[:, 0] if levels.ndim == 0 else out

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Lower and upper ends (k, 2) of the central interval of probability ``level``."""
        inside = float(probabilities("interval", level))
        return self.quantile([0.5 - inside / 2, 0.5 + inside / 2])

    def cdf(self, x: ArrayLike) -> Array:
        """P(unknown <= x), x a number, one for each unknown, or (1, G) or (k, G): G of them for each."""
        return at_each(x, self.mean, self._cdf)

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        at, (v, below) = np.broadcast_to(x, self.mean.shape), self._sorted
        return np.array([np.interp(at[j], v[:, j], below[:, j], 0.0, 1.0) for j in range(at.size)])

    def density(self, x: ArrayLike) -> Array:
        """The density at x, given as in ``cdf``: of the points, smoothed by a tenth of an sd."""
        return at_each(x, self.mean, self._density)

    def _density(self, x: np.ndarray) -> np.ndarray:
        width = 0.1 * np.where(self.sd > 0.0, self.sd, 1.0)
        t = (np.broadcast_to(x, self.mean.shape) - self.values) / width
        return np.asarray(self.weights @ np.exp(-0.5 * t * t) / (width * np.sqrt(2.0 * np.pi)))


class ThetaPosterior(GridAnswers):
    """The hyperparameters given y: itself the marginals of theta, on the scale on which it is learned.

    Attributes
    ----------
    names : list of str
        Of the entries of theta.
    mode : array (n,)
        About which it was integrated.
    peak : array (n,)
        Where the density that was integrated is largest.
    free : list of int
        The entries that were integrated over; the others are held at a bound.
    """

    def __init__(
        self,
        names: Sequence[str],
        mode: np.ndarray,
        free: Sequence[int],
        density: LogDensity | None,
        peak: np.ndarray | None = None,
    ) -> None:
        self.names, self.mode, self.free, self._log_density = list(names), mode, list(free), density
        self.peak = mode if peak is None else peak

    @property
    def log_density(self) -> LogDensity | None:
        """As a function of theta; None where nothing was integrated over."""
        return self._log_density

    @cached_property
    def _draws(self) -> tuple[np.ndarray, np.ndarray]:
        if self._log_density is None:
            return self.mode[None, :], np.ones(1)
        return self._log_density.draws

    def of(self, ask: Callable[[np.ndarray], Any], size: int = 4096) -> Values:
        """The posterior of what is asked of theta (n,): one number or several, such as an sd, a range, a ratio."""
        thetas, w = self._thinned(size)
        values = np.array([np.atleast_1d(np.asarray(ask(theta), dtype=np.float64)) for theta in thetas])
        return Values(values, w)

    def beside(
        self, ask: Callable[[np.ndarray, float], Any], points: np.ndarray, moments: np.ndarray, size: int = 4096
    ) -> Values:
        """The posterior of what is asked of theta and of one unknown that is normal given theta.

        ``moments`` (K, 2) are its mean and sd at ``points`` (K, n), and a smooth function of theta between them.
        """
        thetas, w = self._thinned(size)
        at = self.between(points, moments, thetas)
        even = (np.random.default_rng(0).permutation(len(thetas)) + 0.5) / len(thetas)
        z = ndtri(even)
        unknown = at[:, 0] + np.maximum(at[:, 1], 0.0) * z
        values = np.array([ask(theta, float(x)) for theta, x in zip(thetas, unknown, strict=True)], dtype=np.float64)
        return Values(values, w)

    def between(self, points: np.ndarray, values: np.ndarray, thetas: np.ndarray) -> np.ndarray:
        """Values (m, k) at thetas (m, n) of smooth functions of theta that have ``values`` (K, k) at ``points``."""
        if len(points) <= len(self.free) + 1:
            return np.tile(values[0], (len(thetas), 1))
        through = RBFInterpolator(self.u(points), values, kernel="linear", degree=1)
        return np.asarray(through(self.u(thetas)))

    def _thinned(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """At most about ``size`` thetas (m, n) and their weights of sum 1."""
        thetas, w = self._draws
        if len(w) > size:  # as many as asked for, evenly by their weights
            order = np.lexsort(thetas.T[::-1])
            ends = np.cumsum(w[order])
            pick = order[np.minimum(np.searchsorted(ends, (np.arange(size) + 0.5) / size), len(w) - 1)]
            kept, counts = np.unique(pick, return_counts=True)
            thetas, w = thetas[kept], counts / size
        return thetas, w

    def u(self, theta: np.ndarray) -> np.ndarray:
        """Where thetas (m, n) are in coordinates in which the posterior is nearly standard normal (m, free entries)."""
        return np.zeros((len(theta), 0)) if self._log_density is None else self._log_density.coordinates.u(theta)

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draws of theta (size, n)."""
        thetas, w = self._draws
        return thetas[np.random.default_rng(rng).choice(len(w), size=size, p=w)]

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of theta (n, n); 0 for entries that are held."""
        thetas, w = self._draws
        off = thetas - w @ thetas
        return np.asarray((off * w[:, None]).T @ off)

    # -- marginals by quadrature -------------------------------------------------------------------
    @cached_property
    def _grid(self) -> Grid:
        thetas, w = self._draws
        mean, sd, x = w @ thetas, np.sqrt(np.diag(self.covariance)), _GRID
        centre, scale, logs = mean.copy(), np.zeros(mean.size), np.zeros((mean.size, x.size))
        for i in self.free:  # a density that a bound cuts off is taken up to the bound: no curve goes through a cliff
            assert self._log_density is not None
            low, high = np.clip(mean[i] + sd[i] * x[[0, -1]], *self._log_density.bounds[i])
            scale[i] = (high - low) / (x[-1] - x[0])
            centre[i] = low - scale[i] * x[0]
            logs[i] = self._along([i], (centre[i] + scale[i] * x)[:, None].clip(low, high))
        return Grid(centre, scale, x, logs)

    @property
    def _like(self) -> Array:
        return self.mode

    def _along(self, some: list[int], at: np.ndarray) -> np.ndarray:
        """log of the density of some entries (m,) where they have the values ``at`` (m, len(some))."""
        density, rest = self._log_density, [i for i in self.free if i not in some]
        assert density is not None
        out = np.full(len(at), -np.inf)
        C, mean = self.covariance, self._draws[1] @ self._draws[0]
        if not rest:
            thetas = np.tile(self.mode, (len(at), 1))
            thetas[:, some] = at
            return np.maximum(density(thetas), -100.0 + np.max(density(thetas)))
        gain = np.linalg.solve(C[np.ix_(some, some)], C[np.ix_(some, rest)])
        left = C[np.ix_(rest, rest)] - C[np.ix_(rest, some)] @ gain
        L = 1.3 * np.linalg.cholesky(left + 1e-12 * np.trace(left) * np.eye(len(rest)))
        e = _LINE[:, None] if len(rest) == 1 else ndtri(qmc.Sobol(len(rest), scramble=True, rng=0).random(_OTHERS))
        shrink = np.zeros(len(e)) if len(rest) == 1 else 0.5 * (e * e).sum(axis=1)
        thetas = np.tile(self.mode, (len(e), 1))
        for j, value in enumerate(at):
            thetas[:, some] = value
            thetas[:, rest] = mean[rest] + (value - mean[some]) @ gain + e @ L.T
            out[j] = logsumexp(density(thetas) + shrink)
        out += float(np.log(np.diag(L)).sum())
        out += np.log(_LINE[1] - _LINE[0]) if len(rest) == 1 else 0.5 * len(rest) * np.log(2 * np.pi) - np.log(_OTHERS)
        return np.maximum(out, out.max() - 100.0)

    def joint(self, first: int | str, second: int | str, size: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The joint density of two entries of theta, for a picture: values of each (size,), density (size, size).

        ``density[i, j]`` is at the i-th value of the first and the j-th of the second.
        """
        i, j = (self._entry(which) for which in (first, second))
        if i == j or not {i, j} <= set(self.free):
            raise problem("joint", f"entries {first!r} and {second!r}", "two that were integrated over")
        ends = np.asarray(self.quantile([0.001, 0.999]))
        x, y = (np.linspace(ends[k, 0], ends[k, 1], size) for k in (i, j))
        at = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
        return x, y, np.exp(self._along([i, j], at)).reshape(size, size)

    def _entry(self, which: int | str) -> int:
        if isinstance(which, str) and which in self.names:
            return self.names.index(which)
        if isinstance(which, int) and 0 <= which < len(self.names):
            return which
        raise problem("joint", f"there is no hyperparameter {which!r}", f"one of {', '.join(self.names)}")

    def to_frame(self) -> Any:
        """Mean, sd and 95 % interval of every entry of theta."""
        import pandas as pd

        ends = self.interval()
        columns = {"mean": self.mean, "sd": self.sd, "lower": ends[:, 0], "upper": ends[:, 1]}
        return pd.DataFrame(columns, index=self.names)

    def __repr__(self) -> str:
        return f"ThetaPosterior({', '.join(self.names)})"
