"""Tables of marginals, normal or not, as pandas frames.

lower, upper     quantiles of each marginal,   P(> 0) by its distribution function
ratio            exp of its median, which is the median of exp, between exp(lower) and exp(upper)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import optional, problem
from ..linalg.arrays import to_numpy
from ..marginals import Marginals


def marginal_table(
    rows: tuple[Any, list[Any]], found: Marginals, word: str | None, level: float = 0.95, n: Any = None
) -> Any:
    """Mean, sd and interval of marginals, one row an entry of ``rows`` (name of the index, its values).

    Where exp(effect) has a name, ``word`` ("odds_ratio"): its median, its interval ("or_lower", "or_upper") and its
    probability to exceed 1.
    """
    pd = optional("effects", "pandas")
    if not 0.0 < level < 1.0:
        raise problem("effects", f"level = {level!r}", "a probability between 0 and 1")
    mean, sd, ends = to_numpy(found.mean), to_numpy(found.sd), to_numpy(found.interval(level))
    columns = {"mean": mean, "sd": sd, "lower": ends[:, 0], "upper": ends[:, 1]}
    nothing = (sd == 0.0) & (mean == 0.0)  # on neither side of 0
    above = np.where(nothing, 0.5, 1.0 - to_numpy(found.cdf(0.0)))
    if word is None:
        columns["p_above_0"] = above
    else:
        short = initials(word)
        with np.errstate(over="ignore"):
            columns[word] = np.exp(to_numpy(found.quantile(0.5)))
            columns[f"{short}_lower"], columns[f"{short}_upper"] = np.exp(ends).T
        columns["p_above_1"] = above
    if n is not None:
        columns["n"] = np.asarray(n)
    return pd.DataFrame(columns, index=pd.Index(rows[1], name=rows[0], tupleize_cols=False))


def initials(word: str) -> str:
    """Of the name of a ratio, as its interval has them: "or" of "odds_ratio".

    Examples
    --------
    >>> from fenchel.models.marginal_tables import initials
    >>> initials("relative_risk")
    'rr'
    """
    return "".join(part[0] for part in word.split("_"))
