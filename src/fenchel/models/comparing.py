"""Models of the same rows compared by what they predict of each row without it.

elpd = sum_n log p(y_n | the others),   difference to the best with the standard error of its rows' sum
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..criteria import stacking_weights
from ..criteria.rows import RowScores, standard_error
from ..tasks import Jobs, run_tasks
from .hurdle import FittedHurdle

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel


def compare(
    fits: Mapping[str, FittedModel | RowScores], *, n_jobs: Jobs = None, progress: bool = False
) -> pd.DataFrame:
    """Models side by side, the best first: leave-one-out, its difference to the best, and the evidence.

    ``weight`` is that of each in the mixture of all of them that predicts best (stacking).

    Parameters
    ----------
    fits : dict of name to FittedModel, or to what ``loo``, ``leave_group_out`` or ``k_fold`` returned
        Of the same response over the same rows. Of groups left out, the standard error of a difference is over groups,
        whose rows were predicted together; the evidence is known of fitted models alone.
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
    >>> list(fenchel.compare({name: fit.k_fold(3) for name, fit in fits.items()}).index)
    ['line', 'level']
    """
    import pandas as pd

    if not isinstance(fits, Mapping) or len(fits) < 1:
        raise problem("compare", f"a {type(fits).__name__}", 'fitted models by name: {"one": fit, "two": other}')
    kinds = {type(fit) if isinstance(fit, RowScores) else None for fit in fits.values()}
    if len(kinds) > 1:
        got = "predictions of different kinds: " + ", ".join(f"{name!r} {type(f).__name__}" for name, f in fits.items())
        raise problem("compare", got, "one kind", "Ask the same of every model, such as fit.leave_group_out(...).")
    each = run_tasks(_scores, list(fits), fits, where="compare", n_jobs=n_jobs, progress=progress)
    scores = dict(zip(fits, each, strict=True))
    densities = {name: np.asarray(score.log_density) for name, score in scores.items()}
    first, *others = densities
    for name in others:
        if not _same_rows(fits[first], densities[first], fits[name], densities[name]):
            raise problem("compare", f"{first!r} and {name!r} are not of the same rows of y", "one response")
        if not _same_units(scores[first], scores[name], densities[first]):
            raise problem("compare", f"{first!r} and {name!r} leave out other groups of rows", "the same groups")
    best = max(densities, key=lambda name: float(np.nansum(densities[name])))
    every = np.stack(list(densities.values()), axis=1)
    weights = stacking_weights(every[~np.isnan(every).any(axis=1)])
    rows = []
    for k, (name, density) in enumerate(densities.items()):
        lost = scores[name].units(density - densities[best])
        se = standard_error(lost) if name != best and lost.size > 1 else 0.0
        rows.append((float(np.nansum(density)), float(lost.sum()), se, weights[k]))
    columns = ["elpd", "difference", "difference_se", "weight"]
    table = pd.DataFrame(rows, index=list(densities), columns=columns)
    if kinds == {None}:
        table["log_evidence"] = [fit.elbo for fit in fits.values()]  # type: ignore[union-attr]
        table["gap"] = [fit.gap for fit in fits.values()]  # type: ignore[union-attr]
        table["converged"] = [fit.converged for fit in fits.values()]  # type: ignore[union-attr]
    return table.sort_values("elpd", ascending=False)


def _scores(fits: Mapping[str, FittedModel | RowScores], name: str) -> RowScores:
    """log p(y_n | the others) of every row of the data, NaN where it was left out or is unobserved."""
    fit = fits[name]
    return fit if isinstance(fit, RowScores) else fit.loo()


def _same_rows(one: FittedModel | RowScores, first: np.ndarray, other: FittedModel | RowScores, second: Any) -> bool:
    if first.shape != second.shape or (np.isnan(first) != np.isnan(second)).any():
        return False
    if isinstance(one, RowScores) or isinstance(other, RowScores):
        return True
    both = [_observed(fit) for fit in (one, other)]
    return both[0].shape == both[1].shape and bool((both[0] == both[1]).all())


def _same_units(one: RowScores, other: RowScores, density: np.ndarray) -> bool:
    """Whether rows were predicted together in the same groups: random marks of rows then have the same sums."""
    marks = np.where(np.isnan(density), np.nan, np.random.default_rng(0).random(density.shape))
    first, second = (np.sort(each.units(marks)) for each in (one, other))
    return first.shape == second.shape and np.allclose(first, second)


def _observed(fit: FittedModel | FittedHurdle) -> np.ndarray:
    """y of the rows that count."""
    if isinstance(fit, FittedHurdle):
        return fit.observed[~np.isnan(fit.observed)]
    return np.asarray(fit.model.target.y[fit.model.target.seen > 0.0])
