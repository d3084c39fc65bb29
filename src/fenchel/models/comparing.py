"""Models of the same rows compared by what they predict of each row without it.

elpd = sum_n log p(y_n | the others),   difference to the best with the standard error of its rows' sum
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..checks import problem
from ..criteria import stacking_weights
from ..criteria.rows import standard_error
from ..tasks import Jobs, run_tasks
from .hurdle import FittedHurdle

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel


def compare(fits: Mapping[str, FittedModel], *, n_jobs: Jobs = None, progress: bool = False) -> pd.DataFrame:
    """Fitted models side by side, the best first: leave-one-out, its difference to the best, and the evidence.

    ``weight`` is that of each in the mixture of all of them that predicts best (stacking).

    Parameters
    ----------
    fits : dict of name to FittedModel
        Of the same response over the same rows.
    n_jobs : int, None or Dask client
        Who predicts rows, a model each, side by side (``fenchel.tasks``).
    progress : bool

    Examples
    --------
    >>> import fenchel
    >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
    >>> fits = {"line": fenchel.fit("y ~ x", data), "level": fenchel.fit("y ~ 1", data)}
    >>> list(fenchel.compare(fits).index)
    ['line', 'level']
    """
    import pandas as pd

    if not isinstance(fits, Mapping) or len(fits) < 1:
        raise problem("compare", f"a {type(fits).__name__}", 'fitted models by name: {"one": fit, "two": other}')
    each = run_tasks(_density, list(fits), fits, where="compare", n_jobs=n_jobs, progress=progress)
    densities = dict(zip(fits, each, strict=True))
    first, *others = densities.items()
    for name, other in others:
        same = other.shape == first[1].shape and (np.isnan(other) == np.isnan(first[1])).all()
        if not same or not _same_response(fits[first[0]], fits[name]):
            raise problem("compare", f"{first[0]!r} and {name!r} are not of the same rows of y", "one response")
    best = max(densities, key=lambda name: float(np.nansum(densities[name])))
    every = np.stack(list(densities.values()), axis=1)
    weights = stacking_weights(every[~np.isnan(every).any(axis=1)])
    rows = []
    for k, (name, density) in enumerate(densities.items()):
        lost = (density - densities[best])[~np.isnan(density)]
        se = standard_error(lost) if name != best and lost.size > 1 else 0.0
        fit = fits[name]
        rows.append((float(np.nansum(density)), float(lost.sum()), se, weights[k], fit.elbo, fit.gap, fit.converged))
    columns = ["elpd", "difference", "difference_se", "weight", "log_evidence", "gap", "converged"]
    return pd.DataFrame(rows, index=list(densities), columns=columns).sort_values("elpd", ascending=False)


def _density(fits: Mapping[str, FittedModel], name: str) -> np.ndarray:
    """log p(y_n | the others) of every row of the data, NaN where it was left out or is unobserved."""
    return np.asarray(fits[name].loo().log_density)


def _same_response(one: FittedModel, other: FittedModel) -> bool:
    both = [_observed(fit) for fit in (one, other)]
    return both[0].shape == both[1].shape and bool((both[0] == both[1]).all())


def _observed(fit: FittedModel | FittedHurdle) -> np.ndarray:
    """y of the rows that count."""
    if isinstance(fit, FittedHurdle):
        return fit.observed[~np.isnan(fit.observed)]
    return np.asarray(fit.model.target.y[fit.model.target.seen > 0.0])
