"""The direct and the iterative engine, and the choice between them.

direct       a sparse factorisation of the precision of all latents at every step; the gap is a number
iterative    conjugate gradients and random probes (``fenchel.iterative``); the gap is an interval
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from .. import gates
from ..checks import Refusal, choice, problem
from ..corrections import correct
from ..files import is_loading, next_search
from ..hyperparameters.integration import integrate
from ..hyperparameters.learning import learn
from ..inference import solver_for
from ..iterative import learn as learn_by_probes
from ..iterative.layout import SMALL, LatentLayout
from ..iterative.probed_evidence import BegunNear, near
from ..linalg.machine import physical_memory
from ..linalg.supernodal import Cost, factor_cost
from ..terms import SumOfTerms
from . import remarks, tables
from .accuracy import Dial, left_out
from .base import Engine
from .fitted import FittedModel

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .model import Model

ENGINES = ("auto", "direct", "iterative")
_SHARE = 0.25  # share of the memory that a factor may take; about four of them are held at once
_DEAR_ROW = 2e4  # multiplications of a factor per row above which a start is searched without factorising
_DEAR_AGAIN = 60.0  # seconds of a refit with a finer model from which its cost is announced
_TOL = 1e-4  # default relative gap


def uses_iterative(model: Model, engine: str, asked: dict[str, Any]) -> bool:
    """Whether the iterative engine is used; ``asked`` are options of the direct engine only."""
    choice("Model", "engine", engine, ENGINES)
    if is_loading():  # the choice is stored with the fit
        return next_search() == "iterative"
    only = [name for name, is_set in asked.items() if is_set]
    if engine == "iterative" and only:
        raise problem("Model", f'engine = "iterative" with {only[0]}', f"{only[0]} left out", 'Or use engine="direct".')
    approximate = [term.name for term in model.sum.effects if term.approximates]
    if engine == "iterative" and approximate:
        got = f'engine = "iterative" with {approximate[0]}, which is seen through inducing points'
        raise problem("Model", got, 'engine="direct"')
    if engine != "auto" or approximate:
        return engine == "iterative"
    sizes = [term.n_latents for term in model.sum.effects]
    n = sum(sizes)
    one_large = len(sizes) <= 1 or sorted(sizes)[-2:][0] <= SMALL  # a factor without fill-in
    if n <= gates.DIRECT_LATENTS or only or one_large:
        return False
    limit = _SHARE * physical_memory()
    cost = _cost(model, limit)
    if cost is None or (cost.memory <= limit and cost.work <= gates.DIRECT_WORK):
        return False
    over = f"more than {limit / 2**30:.1f} GiB" if cost.memory > limit else f"about {cost.work:.0e} multiplications"
    most = "" if cost.memory > limit else f", where {gates.DIRECT_WORK:.0e} is the limit"
    remarks.warn(
        [
            f"a factor of the precision of {n} latents would take {over}{most}, so the iterative engine fits this "
            'model and its gap is an interval; engine="direct" or "iterative" decides it'
        ]
    )
    return True


def search_start(model: Model, n_restarts: int, progress: bool) -> dict[str, Any]:
    """Options of ``learn``: a start from a quick iterative fit, if a factorisation costs more than that."""
    if is_loading() or any(term.approximates for term in model.sum.effects):
        return {}
    rest = sum(sorted(term.n_latents for term in model.sum.effects)[:-1])
    dear = max(gates.DEAR_FACTOR, _DEAR_ROW * model.n_rows[0])
    if rest**3 / 6.0 < dear or n_restarts or model.reduction.predictors(model):
        return {}
    cost = _cost(model, _SHARE * physical_memory())
    if cost is None or cost.work < dear:
        return {}
    target, names = model.target, [str(term.name) for term in model.sum.effects]
    learned = near(
        target.likelihood, model.sum.family(), target.y, weights=target.weights, names=names, progress=progress
    )
    if learned is None:
        return {}
    return {"theta": learned.theta, "method": BegunNear(solver_for(target.likelihood, "newton"), learned)}


def _cost(model: Model, most: float) -> Cost | None:
    """The cost of a factorisation, counted up to ``most`` bytes; None if the iterative engine cannot fit the model."""
    try:
        layout = LatentLayout(model.sum.family(), [str(term.name) for term in model.sum.effects])
    except Refusal:
        return None
    L, A = layout.n_latents, layout.A
    ones = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
    pattern, leaves = sp.csc_array(ones.T @ ones) + sp.eye_array(L, format="csc"), np.zeros(L, dtype=bool)
    for part in layout.large:
        blocks = sp.kron(sp.eye_array(part.blocks), np.ones((part.d, part.d)))
        rows, columns = sp.coo_array(blocks).coords
        entries = np.ones(rows.size), (part.start + rows, part.start + columns)
        pattern = sp.csc_array(pattern + sp.csc_array(entries, shape=(L, L)))
    if layout.first is not None:
        leaves[layout.first.here] = True
    return factor_cost(sp.csc_array(pattern), leaves, most)


def fit_directly(model: Model, search: dict[str, Any], dial: Dial, points: dict[str, Any]) -> FittedModel:
    """Fit a model with the direct engine.

    Parameters
    ----------
    model : Model
    search : dict
        Options of ``hyperparameters.learning.learn``.
    dial : Dial
        Controls the accuracy; ``points`` are options of an integration.
    """
    target, fitted = model.target, model
    sum_: SumOfTerms | None = model.sum
    own: np.ndarray | None = None  # the entries of theta that belong to the likelihood
    while sum_ is not None:  # repeated if terms depend on the learned theta, such as the mesh of a field
        fitted = model if sum_ is model.sum else copy.copy(model)
        fitted.sum = sum_
        family = sum_.family()
        if own is None:
            start = search_start(fitted, search["n_restarts"], search["progress"])
        else:  # start near the end of the last search
            start = {"theta": np.concatenate([family.theta, own])}
        began = time.perf_counter()
        learned = learn(target.likelihood, family, target.y, weights=target.weights, **search, **start)
        spent, n_before, own = time.perf_counter() - began, family.n_latents, learned.theta[family.theta.size :]
        noise = bool(learned.likelihood.theta_names)
        sum_ = sum_.settled(learned.theta, model.table(model.frame), noise, learned.objective, learned.solution)
        n_latents = 0 if sum_ is None else sum(term.n_latents for term in sum_.effects)
        price = spent * (n_latents / n_before) ** 1.5  # the growth of a factorisation's work in the plane
        if price > _DEAR_AGAIN and n_latents > n_before:
            anew = f"learned again with {n_latents} latents in place of {n_before}, in about {price:.0f} s"
            remarks.warn(
                [f"{anew}: another smoothness of a field, or a finer mesh. nu= and edge= in matern() state them"]
            )
    plan, mixture, answers = dial.plan(FittedModel(fitted, learned)), None, None
    data = target.likelihood, fitted.sum.family(), target.y
    if plan.method is not None:
        points = {**points, "evidence": "corrected" if plan.corrects else "elbo"}
        mixture = integrate(*data, weights=target.weights, mode=learned, method=plan.method, **points)
        if not mixture.resolved and dial.accuracy == "auto" and dial.integrate is None:  # not requested by the user
            plan, mixture = plan._replace(why=f"not integrated, as {'; '.join(mixture.doubts)}"), None
    if mixture is None and plan.corrects and learned.likelihood.objective.conjugate:
        learned.maximises = "corrected"  # for Gaussian noise the elbo is the evidence
    elif mixture is None and plan.corrects:
        if learned.theta.size:
            again = {**search, "n_restarts": 0, "theta": learned.theta}
            learned = learn(*data, weights=target.weights, evidence="corrected", **again)
        answers = learned.correction or correct(learned.solution, rough=True)
        if not answers.nearer:
            plan, answers = plan._replace(why=left_out(answers.status)), None
    fit = FittedModel(fitted, learned, mixture, answers, why=plan.why)
    remarks.warn_of(fit)
    return fit


def fit_iteratively(model: Model, tol: float | None, rng: Any, progress: bool, n_probes: int | None) -> FittedModel:
    """Fit a model with the iterative engine."""
    if model.reduction.predictors(model) or model.others:
        raise problem("Model", 'engine = "iterative" for a model of several parts', "one fit", 'Use engine="direct".')
    target = model.target
    learned = learn_by_probes(
        target.likelihood,
        model.sum.family(),
        target.y,
        weights=target.weights,
        names=[str(term.name) for term in model.sum.effects],
        n_probes=32 if n_probes is None else n_probes,
        random_state=rng,
        tol=_TOL if tol is None else tol,
        progress=progress,
    )
    fit = FittedModel(model, learned, engine=IterativeEngine(), why="by the iterative engine")  # type: ignore[arg-type]
    remarks.warn_of(fit)
    return fit


class IterativeEngine(Engine):
    """The iterative engine: evidence, gap and variances have Monte Carlo errors, which are reported.

    ``found`` of the fit is an ``IterativeFit`` with ``theta_error``, the Monte Carlo errors of the hyperparameters, and
    ``estimates``, the variances with their errors.
    """

    name = "iterative"
    averages_own = False

    def theta_covariance(self, fit: FitTables) -> np.ndarray:
        return fit.found.theta_covariance  # type: ignore[attr-defined]

    def hyperparameters(self, fit: FitTables) -> pd.DataFrame:
        """Table of values, 95 % intervals by the curvature of the evidence at its mode, and Monte Carlo errors."""
        rows, nothing = tables.described_theta(fit, fit.theta), np.zeros(0)
        if not rows:
            return tables.parameter_frame(rows, lower=nothing, upper=nothing, error=nothing)
        error = fit.found.theta_error  # type: ignore[attr-defined]
        lower, upper = np.quantile(_spread(fit, fit.theta_covariance + error), [0.025, 0.975], axis=0)
        return tables.parameter_frame(rows, lower=lower, upper=upper, error=_spread(fit, error).std(axis=0))

    def sd_errors(self, fit: FitTables, design: Any) -> np.ndarray:
        estimates = fit.found.estimates(design)  # type: ignore[attr-defined]
        return estimates.se / (2.0 * np.sqrt(estimates.value))

    def certificate(self, fit: FitTables) -> list[str]:
        return fit.found.stated()  # type: ignore[attr-defined]

    def doubts(self, fit: FitTables) -> list[str]:
        return []

    def remarks(self, fit: FitTables) -> list[remarks.Remark]:
        """Remarks on the data, on what the prior decides, and on too few probes."""
        own = fit.found.remarks  # type: ignore[attr-defined]
        return [*super().remarks(fit), *(remarks.Remark(text, "probes", 1) for text in own)]


def _spread(fit: FitTables, covariance: np.ndarray) -> np.ndarray:
    """The hyperparameters as reported, for draws of theta about its value."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return tables.values_at(fit, fit.theta + tables.normal_net(fit.theta.size) @ root.T)
