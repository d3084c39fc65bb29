"""Tables of marginals that need not be normal: the columns of ``effect_tables.table``, by quantiles.

lower, upper     quantiles of each marginal,   P(> 0) its distribution function,   E[exp] a sum over its points
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..hyperparameters.integration import Mixture
from ..hyperparameters.integration.predictive import MixedPredictive
from ..likelihoods import Poisson

if TYPE_CHECKING:
    import pandas as pd


def marginal_table(
    rows: tuple[Any, list[Any]], found: Any, word: str | None, level: float = 0.95, n: Any = None
) -> pd.DataFrame:
    """Mean, sd and interval of marginals, one row an entry of ``rows`` (name of the index, its values).

    Where exp(effect) has a name, ``word``: its mean, median, interval and probability to exceed 1.
    """
    import pandas as pd

    mean, sd = np.asarray(found.mean), np.asarray(found.sd)
    ends, middle = np.asarray(found.interval(level)), np.asarray(found.quantile(0.5))
    columns = {"mean": mean, "sd": sd, "lower": ends[:, 0], "upper": ends[:, 1]}
    above = 1.0 - np.asarray(found.cdf(0.0))
    if word is None:
        columns["p_above_0"] = above
    else:
        short = "".join(part[0] for part in word.split("_"))
        with np.errstate(over="ignore"):
            columns[word], columns[f"{short}_median"] = _mean_exp(found), np.exp(middle)
            columns[f"{short}_lower"], columns[f"{short}_upper"] = np.exp(ends).T
        columns["p_above_1"] = above
    if n is not None:
        columns["n"] = np.asarray(n)
    return pd.DataFrame(columns, index=pd.Index(rows[1], name=rows[0], tupleize_cols=False))


def _mean_exp(found: Any) -> np.ndarray:
    if isinstance(found, Mixture):
        return np.asarray(MixedPredictive(found.weights, [Poisson()] * len(found.parts), found.parts).mean)
    return np.asarray(found.predictive(Poisson()).mean)
