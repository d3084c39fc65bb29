"""Tables of a structured regression as pandas frames: effects by level, fixed effects, hyperparameters in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import optional, problem
from ..gmrf.columns import Columns
from ..hyperparameters.integration import Integrated
from ..likelihoods.base import Likelihood
from ..marginals import Answers, Marginals, NormalMarginals
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
    _columns: Columns
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
        return self._moments(self.solution_) if self.integrated_ is None else self.integrated_.moments(self._moments)

    def _moments(self, solution: Solution) -> tuple[np.ndarray, np.ndarray]:
        """The same of one fit, whose likelihood says what eta as reported is above eta as fitted."""
        mean, covariance = self._sum.fixed_effects(solution)
        return mean + self._above_latents(solution), covariance

    def _above_latents(self, solution: Solution) -> np.ndarray:
        """What the fixed effects are above the latents behind them: the level, of the intercept."""
        out = np.zeros(int(self._sum.intercept) + len(self._sum.fixed_names))
        if self._sum.intercept:
            out[0] = self._sum.offset + solution.likelihood.reported()[1]
        return out

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
        return marginal_table((None, names), self._fixed_marginals(), self.likelihood_.ratio)

    def _fixed_marginals(self) -> Marginals:
        """Of the intercept and the coefficients, over the hyperparameters too where these are integrated out."""
        if self.integrated_ is None:
            mean, covariance = self._tail()
            return NormalMarginals(mean, np.diag(covariance))
        mixed, design = self.integrated_, self._sum.fixed_rows()
        each = [self._above_latents(solution) for solution in mixed.solutions]
        parts = [part.at(design=design, offset=offset) for part, offset in zip(mixed.answers, each, strict=True)]
        return mixed.mixture(parts)

    @property
    def hyperparameters_(self) -> Any:
        """What was learned, in words: a pandas frame by effect and parameter."""
        check_is_fitted(self)
        pd = optional("hyperparameters_", "pandas")
        mixed = self.integrated_
        levels = np.array([[self._shift, 0.0]]) if mixed is None else self._levels(mixed)
        theta, at = self.theta_, float(levels[0, 0])
        if mixed is not None:
            theta = mixed.theta.peak
            at = float(mixed.theta.between(mixed.thetas, levels, theta[None])[0, 0])
        rows = self._in_words(theta, at)
        out = pd.DataFrame(rows, columns=["effect", "parameter", "value"]).set_index(["effect", "parameter"])
        if mixed is None or not rows:
            return out
        found = mixed.theta.beside(
            lambda theta, level: [row[2] for row in self._in_words(theta, level)], mixed.thetas, levels, size=2048
        )
        lower, upper = found.interval().T
        return out.assign(mean=found.mean, sd=found.sd, lower=lower, upper=upper)

    def _levels(self, mixed: Integrated) -> np.ndarray:
        """What cutpoints at x = 0 are above those as fitted, mean and sd at each point (K, 2)."""
        centre = self._columns.centre
        if not (self._fitted.ordered and self._sum.fixed_names):
            return np.zeros((len(mixed.solutions), 2))
        each = [self._sum.fixed_effects(solution) for solution in mixed.solutions]
        return np.array([[centre @ mean, np.sqrt(centre @ covariance @ centre)] for mean, covariance in each])

    def _in_words(self, theta: np.ndarray, level: float) -> list[tuple[Any, str, float]]:
        """theta in words, cutpoints ``level`` above those as fitted."""
        rows = [(term.name, *row) for term, part in self._sum.thetas(theta) for row in term.readable(part)]
        own = theta[sum(len(term.hyperparameters) for term in self._sum.effects) :]
        if not own.size:
            return rows + self.likelihood_.readable()
        reported = self._fitted.with_theta(own).reported()[0]
        if self._fitted.ordered:
            reported = reported.with_theta(np.r_[reported.theta[0] + level, reported.theta[1:]])
        return rows + reported.readable()


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
    return marginal_table((name, labels), posterior.at(design=design), ratio, level, n)
