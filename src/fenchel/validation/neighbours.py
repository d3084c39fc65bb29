"""Groups built from the posterior: for each row, those whose eta is most correlated with its own.

Predicting a row from the rest of a smooth series or map is easy: its neighbours know it. Leaving out the rows that know
it best asks the model for more (Liu and Rue 2022).
"""

from __future__ import annotations

import numpy as np

from ..checks import count, problem
from ..posterior import Posterior
from .cavities import Cavities

_EQUAL = 1e-6  # correlations nearer than this are one level
_MOST = 20_000  # rows whose correlations with all others are looked at


def correlated_rows(posterior: Posterior, levels: int = 3) -> list[np.ndarray]:
    """For each row the rows whose |correlation| with it is among the ``levels`` largest values.

    Rows of equal correlation (those of one group, of one year) come together. Unobserved rows have themselves alone.
    """
    levels = count("correlated_rows", "levels", levels, 1)
    n, active = posterior.predictors.n_observations, posterior.active
    if posterior.predictors.n_predictors > 1:
        raise problem("correlated_rows", "several predictors an observation", "one", "Give the groups yourself.")
    if active.size > _MOST:
        raise problem("correlated_rows", f"{active.size} rows", f"at most {_MOST}", "Give the groups yourself.")
    cavities, out = Cavities(posterior), [np.array([i]) for i in range(n)]
    sd = cavities.sd[:, 0]
    scale = np.where(sd > 0.0, 1.0 / np.where(sd > 0.0, sd, 1.0), 0.0)
    for k in range(active.size):
        near = np.abs(cavities.columns(np.array([k]))[0][:, 0] * scale * scale[k])
        near[k] = 1.0
        largest = np.sort(near)[::-1]
        steps = np.flatnonzero(largest[:-1] - largest[1:] > _EQUAL)  # where one level ends
        cut = largest[steps[levels - 1]] if steps.size >= levels else 0.0
        out[active[k]] = active[np.flatnonzero(near >= cut - _EQUAL)] if cut > 0.0 else active
    return out
