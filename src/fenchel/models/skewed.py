"""Tables and predictions by marginals that are not normal: what ``FittedModel.corrected`` answers by.

lower, upper     quantiles of each marginal,   P(> 0) its distribution function,   E[exp] and E[y] sums over its points
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..estimators.effect_tables import table
from ..likelihoods import Poisson
from ..likelihoods.base import Likelihood

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import Corrections


def marginal_table(rows: tuple[Any, list[Any]], marginals: Any, word: str | None, level: float, n: Any = None) -> Any:
    """A table of unknowns by their marginals: mean, sd, interval; exp of each where that has a name."""
    out = table(rows, (marginals.mean, marginals.variance), word, level, n)
    lower, upper = np.asarray(marginals.interval(level)).T
    out["lower"], out["upper"] = lower, upper
    above = 1.0 - np.asarray(marginals.cdf(0.0))
    if word is None:
        out["p_above_0"] = above
        return out
    short = "".join(part[0] for part in word.split("_"))
    out[word] = marginals.predictive(Poisson()).mean  # E[exp(eta)]
    out[f"{short}_median"] = np.exp(np.asarray(marginals.quantile(0.5)))
    out[f"{short}_lower"], out[f"{short}_upper"], out["p_above_1"] = np.exp(lower), np.exp(upper), above
    return out


def contrasted(index: Any, marginals: Any, interval: float) -> pd.DataFrame:
    """Mean, sd, interval and the probability to be above 0 of differences of eta."""
    out = marginal_table((None, list(index)), marginals, None, interval)
    return out[["mean", "sd", "lower", "upper", "p_above_0"]]


class Said:
    """What corrected marginals of eta say of y at some rows.

    Parameters
    ----------
    answers : Corrections
    new : mapping
        The rows, as ``posterior.predict`` takes them.
    likelihood : Likelihood
        With the rows' exposures or trials.
    values : array (K,) or None
        What the labels of y stand for.
    """

    def __init__(self, answers: Corrections, new: Any, likelihood: Likelihood, values: np.ndarray | None) -> None:
        self.eta, self.likelihood, self.values = answers.at(**new), likelihood, values
        self.y = self.eta.predictive(likelihood)

    @property
    def probabilities(self) -> np.ndarray:
        return np.asarray(self.y.probabilities)

    def mean(self, kind: str) -> np.ndarray:
        """E[eta] ("link") or E[y]."""
        if kind == "link":
            return np.asarray(self.eta.mean)
        return np.asarray(self.y.mean if self.values is None else self.probabilities @ self.values)

    def limits(self, kind: str, ends: np.ndarray) -> np.ndarray:
        """Quantiles (M, 2) of eta, of E[y | eta] or of y."""
        if kind == "outcome":
            out = np.asarray(self.y.quantile(ends))
            return out if self.values is None else self.values[out.astype(int)]
        eta = np.asarray(self.eta.quantile(ends))
        if kind == "link":
            return eta
        means = (
            self.likelihood.mean_at(eta) if self.values is None else self.likelihood.probabilities_at(eta) @ self.values
        )
        return np.sort(np.asarray(means), axis=1)
