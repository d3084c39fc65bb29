"""Tables of marginals that need not be normal: the columns of ``effect_tables.table``, by quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..integration import Mixture
from ..integration.predictive import MixedPredictive
from ..likelihoods import Poisson

if TYPE_CHECKING:
    import pandas as pd


def of_marginals(
    rows: tuple[Any, list[Any]],
    found: Mixture,
    word: str | None,
    shift: np.ndarray | float = 0.0,
    n: Any = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Mean, sd and interval of ``found`` + ``shift``, one row an entry of ``rows`` (name of the index, its values).

    Where exp(effect) has a name, ``word``: its mean, median, interval and probability to exceed 1.
    """
    import pandas as pd

    shift = np.broadcast_to(np.asarray(shift, dtype=np.float64), found.mean.shape)
    ends, middle = found.interval(level) + shift[:, None], found.quantile(0.5) + shift
    columns = {"mean": found.mean + shift, "sd": found.sd, "lower": ends[:, 0], "upper": ends[:, 1]}
    above = 1.0 - np.asarray(found.cdf(-shift))
    if word is None:
        columns["p_above_0"] = above
    else:
        short = "".join(part[0] for part in word.split("_"))
        with np.errstate(over="ignore"):
            rates = MixedPredictive(found.weights, [Poisson()] * len(found.parts), found.parts).mean  # E[exp]
            columns[word], columns[f"{short}_median"] = rates * np.exp(shift), np.exp(middle)
            columns[f"{short}_lower"], columns[f"{short}_upper"] = np.exp(ends).T
        columns["p_above_1"] = above
    if n is not None:
        columns["n"] = np.asarray(n)
    return pd.DataFrame(columns, index=pd.Index(rows[1], name=rows[0], tupleize_cols=False))
