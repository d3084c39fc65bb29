"""A model from a formula and a table, fitted in one call."""

from __future__ import annotations

from inspect import signature
from typing import Any

from ..inputs.frames import Table
from ..likelihoods.base import Likelihood
from .fitted import FittedModel
from .formula_errors import unknown_option
from .model import Model


def fit(formula: str, data: Table, family: str | Likelihood | None = None, **options: Any) -> FittedModel:
    """``Model(formula, data, family, ...).fit(...)`` in one call.

    Parameters
    ----------
    formula, data, family, weights, exposure, trials, event, terms, graphs, env, levels, priors, fixed_sd, bound,
    dispersion, zero, baseline
        Of ``Model``.
    n_restarts, tol, progress, seed, evidence, integrate, n_jobs, checkpoint, engine, n_probes
        Of ``Model.fit``.

    Returns
    -------
    FittedModel
    """
    names = ["n_restarts", "tol", "progress", "seed", "evidence", "integrate", "n_jobs", "checkpoint"]
    names += ["engine", "n_probes"]
    known = [*(name for name in signature(Model).parameters if not name.startswith("_")), *names]
    for key in options:
        if key not in known:
            raise unknown_option(key, known)
    ours = {key: options.pop(key) for key in names if key in options}
    return Model(formula, data, family, **options, _depth=2).fit(**ours)
