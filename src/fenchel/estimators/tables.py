"""Tables of a structured regression as pandas frames: effects by level, fixed effects, hyperparameters in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from ..checks import optional, problem
from ..likelihoods.base import Likelihood
from ..solvers.solution import Solution
from .effects import Effect
from .responses import ratio, readable


class EffectTables:
    """What ``GMRFRegressor`` shows after a fit. pandas is imported when a table is asked for."""

    likelihood_: Likelihood
    solution_: Solution
    theta_: np.ndarray
    levels_: dict[Any, list[Any]]
    _effects: list[Effect]
    _covariates: list[Any]
    _counts: list[np.ndarray]
    _offset: float
    _intercept: bool

    def effect_table(self, name: Any, level: float = 0.95) -> Any:
        """One effect as a pandas frame, with intervals of probability ``level``. A walk's trend is part of it."""
        check_is_fitted(self)
        if name not in self.levels_:
            raise problem(type(self).__name__, f"there is no effect {name!r}", f"one of {list(self.levels_)}")
        at, every = list(self.levels_).index(name), np.arange(len(self.levels_[name]))
        fields, tail = [], [np.zeros((every.size, int(self._intercept) + len(self._covariates)))]
        for i, effect in enumerate(self._effects):
            mine, width = i == at, effect.design(every[:0]).shape[1]
            fields.append(effect.design(every) if mine else sp.csr_array((every.size, width)))
            tail.append(effect.free()[1] if mine else np.zeros((every.size, len(effect.free()[0]))))
        design = sp.hstack([*fields, sp.csr_array(np.hstack(tail))], format="csr")
        moments = self.solution_.posterior.predict(design=design)
        return table((name, self.levels_[name]), moments, ratio(self.likelihood_), level, self._counts[at])

    @property
    def effects_(self) -> dict[Any, Any]:
        """Each effect as a pandas frame, one row a level."""
        check_is_fitted(self)
        return {name: self.effect_table(name) for name in self.levels_}

    def _tail(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the fixed effects, the intercept first."""
        check_is_fitted(self)
        posterior = self.solution_.posterior
        first = posterior.latent_mean.shape[0] - int(self._intercept) - len(self.coef_names_)
        mean, variance = np.array(posterior.latent_mean[first:]), posterior.latent_variance[first:]
        if self._intercept:
            mean[0] += self._offset
        return mean, np.asarray(variance)

    @property
    def coef_names_(self) -> list[str]:
        """What the coefficients belong to: covariates, then the trends and seasons of the effects."""
        check_is_fitted(self)
        return [str(name) for name in self._covariates] + [word for e in self._effects for word in e.free()[0]]

    @property
    def coef_(self) -> np.ndarray:
        """The posterior means of the coefficients (p,)."""
        return self._tail()[0][int(self._intercept) :]

    @property
    def coef_std_(self) -> np.ndarray:
        """Their posterior standard deviations (p,)."""
        return np.sqrt(self._tail()[1][int(self._intercept) :])

    @property
    def intercept_(self) -> float:
        """The posterior mean of the intercept."""
        return float(self._tail()[0][0]) if self._intercept else 0.0

    @property
    def fixed_effects_(self) -> Any:
        """The intercept and the coefficients as a pandas frame."""
        names = (["intercept"] if self._intercept else []) + self.coef_names_
        return table((None, names), self._tail(), ratio(self.likelihood_), 0.95)

    @property
    def hyperparameters_(self) -> Any:
        """What was learned, in words: a pandas frame by effect and parameter."""
        check_is_fitted(self)
        pd = optional("hyperparameters_", "pandas")
        rows, at = [], 0
        for effect in self._effects:
            size = effect.build().theta.size
            rows += [(effect.name, *row) for row in effect.readable(self.theta_[at : at + size])]
            at += size
        rows += readable(self.likelihood_)
        return pd.DataFrame(rows, columns=["effect", "parameter", "value"]).set_index(["effect", "parameter"])


def table(rows: tuple[Any, list[Any]], moments: tuple[Any, Any], word: str | None, level: float, n: Any = None) -> Any:
    """Mean, sd and interval, one row an entry of ``rows`` (name of the index, its values).

    Where exp(effect) has a name, ``word``, also its posterior mean, its interval and its probability to exceed 1.
    """
    pd = optional("effect_table", "pandas")
    if not 0.0 < level < 1.0:
        raise problem("effect_table", f"level = {level!r}", "a probability between 0 and 1")
    mean, variance = np.asarray(moments[0]), np.maximum(np.asarray(moments[1]), 0.0)
    sd = np.sqrt(variance)
    reach = float(ndtri(0.5 + level / 2)) * sd
    columns = {"mean": mean, "sd": sd, "lower": mean - reach, "upper": mean + reach}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        above = ndtr(np.where(mean == 0.0, 0.0, mean / sd))
        if word is not None:
            short = "".join(part[0] for part in word.split("_"))
            columns[word] = np.exp(mean + variance / 2)
            columns[f"{short}_lower"], columns[f"{short}_upper"] = np.exp(mean - reach), np.exp(mean + reach)
            columns["p_above_1"] = above
        else:
            columns["p_above_0"] = above
    if n is not None:
        columns["n"] = np.asarray(n)
    return pd.DataFrame(columns, index=pd.Index(rows[1], name=rows[0]))
