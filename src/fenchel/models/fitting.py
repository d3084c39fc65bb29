"""A model from a formula and a table, fitted in one call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

from ..inputs.frames import Table
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Seed
from ..tasks import Jobs
from ..terms import Term
from .fitted import FittedModel
from .formula_errors import unknown_option
from .model import Model


def fit(
    formula: str,
    data: Table,
    family: str | Likelihood | None = None,
    *,
    weights: Any = None,
    exposure: Any = None,
    trials: Any = None,
    event: Any = None,
    terms: Sequence[Term] = (),
    graphs: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    levels: Mapping[Hashable, Iterable[Hashable]] | None = None,
    priors: Mapping[str, Any] | None = None,
    fixed_sd: float = 10.0,
    bound: str = "best",
    dispersion: str | None = None,
    zero: str | None = None,
    baseline: str = "rw1",
    n_restarts: int = 0,
    tol: float | None = None,
    progress: bool = False,
    rng: Seed = 0,
    evidence: str = "elbo",
    integrate: str | bool | None = None,
    n_jobs: Jobs = None,
    checkpoint: Any = None,
    engine: str = "auto",
    n_probes: int | None = None,
    **unknown: Any,
) -> FittedModel:
    """``Model(formula, data, family, ...).fit(...)`` in one call.

    Parameters
    ----------
    formula, data, family, weights, exposure, trials, event, terms, graphs, env, levels, priors, fixed_sd, bound,
    dispersion, zero, baseline
        Of ``Model``.
    n_restarts, tol, progress, rng, evidence, integrate, n_jobs, checkpoint, engine, n_probes
        Of ``Model.fit``.

    Returns
    -------
    FittedModel
    """
    for name in unknown:
        raise unknown_option(name, [known for known in signature(fit).parameters if known != "unknown"])
    model = Model(
        formula,
        data,
        family,
        weights=weights,
        exposure=exposure,
        trials=trials,
        event=event,
        terms=terms,
        graphs=graphs,
        env=env,
        levels=levels,
        priors=priors,
        fixed_sd=fixed_sd,
        bound=bound,
        dispersion=dispersion,
        zero=zero,
        baseline=baseline,
        _depth=2,
    )
    return model.fit(
        n_restarts=n_restarts,
        tol=tol,
        progress=progress,
        rng=rng,
        evidence=evidence,
        integrate=integrate,
        n_jobs=n_jobs,
        checkpoint=checkpoint,
        engine=engine,
        n_probes=n_probes,
    )
