"""Tables of a structured regression as pandas frames: effects by level, fixed effects, hyperparameters in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from ..checks import optional, problem
from ..hyperparameters.integration import Integrated
from ..likelihoods.base import Likelihood
from ..marginals import Answers, NormalMarginals
from ..solvers.solution import Solution
from ..terms import SumOfTerms
from .marginal_tables import marginal_table


class EffectTables:
    """What ``GMRFRegressor`` shows after a fit. pandas is imported when a table is asked for."""

    likelihood_: Likelihood
    solution_: Solution
    theta_: np.ndarray
    levels_: dict[Any, list[Any]]
    _sum: SumOfTerms
    _seen: np.ndarray
    _shift: float
    _fitted: Likelihood
    integrated_: Integrated | None

    def effect_table(self, name: Any, level: float = 0.95) -> Any:
        """One effect as a pandas frame, with intervals of probability ``level``. A walk's trend is part of it."""
        check_is_fitted(self)
        known = [term.name for term in self._sum.effects]
        if name not in known:
            raise problem(type(self).__name__, f"there is no effect {name!r}", f"one of {known}")
        found: Answers = self.solution_.posterior if self.integrated_ is None else self.integrated_
        return effect_frame(type(self).__name__, self._sum, name, found, self._seen, self.likelihood_.ratio, level)

    @property
    def effects_(self) -> dict[Any, Any]:
        """Each effect as a pandas frame, one row a level."""
        check_is_fitted(self)
        return {term.name: self.effect_table(term.name) for term in self._sum.effects if term.shown() is not None}

    def _tail(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the fixed effects on the user's scale, the intercept first."""
        check_is_fitted(self)
        mean, covariance = self._sum.fixed_effects(self.solution_)
        if self.integrated_ is not None:
            mean, covariance = self.integrated_.moments(self._sum.fixed_effects)
        if self._sum.intercept:
            mean[0] += self._sum.offset + self._shift
        return mean, covariance

    @property
    def coef_names_(self) -> list[str]:
        """What the coefficients belong to: covariates, ``smoker[yes]`` for a level of one, then trends and seasons."""
        check_is_fitted(self)
        return self._sum.fixed_names

    @property
    def coef_(self) -> np.ndarray:
        """The posterior means of the coefficients (p,), per unit of each column."""
        return self._tail()[0][int(self._sum.intercept) :]

    @property
    def coef_std_(self) -> np.ndarray:
        """Their posterior standard deviations (p,)."""
        return np.sqrt(np.diag(self.coef_cov_))

    @property
    def coef_cov_(self) -> np.ndarray:
        """Their posterior covariance (p, p)."""
        own = int(self._sum.intercept)
        return self._tail()[1][own:, own:]

    @property
    def intercept_(self) -> float:
        """The posterior mean of the intercept, where every covariate is 0; 0 without one."""
        return float(self._tail()[0][0]) if self._sum.intercept else 0.0

    @property
    def intercept_std_(self) -> float:
        """Its posterior standard deviation; 0 without one."""
        return float(np.sqrt(self._tail()[1][0, 0])) if self._sum.intercept else 0.0

    @property
    def fixed_effects_(self) -> Any:
        """The intercept (where every covariate is 0) and the coefficients (per unit) as a pandas frame."""
        names = (["intercept"] if self._sum.intercept else []) + self.coef_names_
        mean, covariance = self._tail()
        return table((None, names), (mean, np.diag(covariance)), self.likelihood_.ratio, 0.95)

    @property
    def hyperparameters_(self) -> Any:
        """What was learned, in words: a pandas frame by effect and parameter."""
        check_is_fitted(self)
        pd = optional("hyperparameters_", "pandas")
        rows = self._in_words(self.theta_)
        out = pd.DataFrame(rows, columns=["effect", "parameter", "value"]).set_index(["effect", "parameter"])
        if self.integrated_ is None or not rows:
            return out
        found = self.integrated_.theta.of(lambda theta: [row[2] for row in self._in_words(theta)], size=2048)
        lower, upper = found.interval().T
        return out.assign(mean=found.mean, sd=found.sd, lower=lower, upper=upper)

    def _in_words(self, theta: np.ndarray) -> list[tuple[Any, str, float]]:
        """theta in words."""
        rows = [(term.name, *row) for term, part in self._sum.thetas(theta) for row in term.readable(part)]
        own = theta[sum(len(term.hyperparameters) for term in self._sum.effects) :]
        same = not own.size or np.array_equal(theta, self.theta_)
        return rows + (self.likelihood_ if same else self._fitted.with_theta(own).reported()[0]).readable()


def effect_frame(
    where: str,
    terms: SumOfTerms,
    name: Any,
    posterior: Answers,
    seen: np.ndarray,
    ratio: str | None,
    level: float = 0.95,
) -> Any:
    """An effect where its term shows it, as a pandas frame; ``seen`` are the weights of the rows of the fit (N,)."""
    shown = terms.shown(name)
    if shown is None:
        raise problem(where, f"the effect {name!r} has no table", "a term that says where it is shown")
    labels, design, codes = shown
    n = None if codes is None else terms.counts(seen)[name][codes]
    found = posterior.at(design=design)
    if not isinstance(found, NormalMarginals):
        return marginal_table((name, labels), found, ratio, level, n)
    return table((name, labels), (found.mean, found.variance), ratio, level, n)


def table(rows: tuple[Any, list[Any]], moments: tuple[Any, Any], word: str | None, level: float, n: Any = None) -> Any:
    """Mean, sd and interval, one row an entry of ``rows`` (name of the index, its values).

    Where exp(effect) has a name, ``word``: "relative_risk" is its posterior mean, "rr_median" its median exp(mean);
    then its interval and its probability to exceed 1.
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
            columns[word], columns[f"{short}_median"] = np.exp(mean + variance / 2), np.exp(mean)
            columns[f"{short}_lower"], columns[f"{short}_upper"] = np.exp(mean - reach), np.exp(mean + reach)
            columns["p_above_1"] = above
        else:
            columns["p_above_0"] = above
    if n is not None:
        columns["n"] = np.asarray(n)
    return pd.DataFrame(columns, index=pd.Index(rows[1], name=rows[0], tupleize_cols=False))
