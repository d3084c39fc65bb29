"""Which engine fits a model: with a factor of the precision of all latents, or without where that would not fit.

direct       a sparse factorisation at every step; its gap is a number
iterative    conjugate gradients and probes (``fenchel.iterative``); its gap is an interval
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import Refusal, choice, problem
from ..inference import solver_for
from ..iterative import IterativeFit, learn
from ..iterative.layout import SMALL, Layout
from ..iterative.probed_evidence import BegunNear, near
from ..linalg.memory import physical_memory
from ..linalg.sparse import Cost, factor_cost
from . import remarks, tables
from .fitted import FittedModel
from .refusing import refused

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model

ENGINES = ("auto", "direct", "iterative")
_FEW = 20_000  # latents that the direct engine takes whatever their pattern
_SHARE = 0.25  # of the memory that a factor may take: some four of its size are held at once
_WORK = 2e13  # multiplications of one factorisation: an hour and more for a model
_DEAR = 2e9, 2e4  # multiplications of one from which a start is looked for without it, and as many for each row
_TOL = 1e-4  # relative gap, where none is asked for


def uses_iterative(model: Model, engine: str, asked: dict[str, Any]) -> bool:
    """Whether the iterative engine fits a model; ``asked`` are the options that only the direct one has, where set."""
    choice("Model", "engine", engine, ENGINES)
    only = [name for name, is_set in asked.items() if is_set]
    if engine == "iterative" and only:
        raise problem("Model", f'engine = "iterative" with {only[0]}', f"{only[0]} left out", 'Or use engine="direct".')
    if engine != "auto":
        return engine == "iterative"
    sizes = [term.n_latents for term in model.sum.effects]
    n = sum(sizes)
    if n <= _FEW or only or sorted(sizes)[-2:][0] <= SMALL or len(sizes) == 1:  # one large term leaves no fill
        return False
    names = [str(term.name) for term in model.sum.effects]
    try:
        layout = Layout(model.sum.family(), names)
    except Refusal:
        return False
    limit = _SHARE * physical_memory()
    cost = _cost(layout, limit)
    if cost.memory <= limit and cost.work <= _WORK:
        return False
    over = f"more than {limit / 2**30:.1f} GiB" if cost.memory > limit else f"about {cost.work:.0e} multiplications"
    most = "" if cost.memory > limit else f", where {_WORK:.0e} is the limit"
    remarks.warn(
        [
            f"a factor of the precision of {n} latents would take {over}{most}, so the iterative engine fits this "
            'model and its gap is an interval; engine="direct" or "iterative" decides it'
        ]
    )
    return True


def begun(model: Model, n_restarts: int, progress: bool) -> dict[str, Any]:
    """Options of the direct engine's search: where it begins, if one factorisation costs more than looking for that."""
    rest = sum(sorted(term.n_latents for term in model.sum.effects)[:-1])
    dear = max(_DEAR[0], _DEAR[1] * model.n_rows[0])
    if rest**3 / 6.0 < dear or n_restarts or model.classes is not None:
        return {}
    target, family = model.target, model.sum.family()
    names = [str(term.name) for term in model.sum.effects]
    try:
        layout = Layout(family, names)
    except Refusal:
        return {}
    if _cost(layout, _SHARE * physical_memory()).work < dear:
        return {}
    found = near(target.likelihood, family, target.y, weights=target.weights, names=names, progress=progress)
    if found is None:
        return {}
    return {"theta": found.theta, "method": BegunNear(solver_for(target.likelihood, "newton"), found)}


def _cost(layout: Layout, most: float) -> Cost:
    """Of the direct engine's factor, counted up to ``most`` bytes."""
    ones = sp.csr_array((np.ones(layout.A.nnz), layout.A.indices, layout.A.indptr), shape=layout.A.shape)
    blocks = [sp.eye_array(layout.n_latents, format="csc")]
    blocks += [_block_pattern(part.n, part.d, part.start, layout.n_latents) for part in layout.large]
    pattern = sp.csc_array(ones.T @ ones)
    for block in blocks:
        pattern = sp.csc_array(pattern + block)
    leaves = np.zeros(layout.n_latents, dtype=bool)
    if layout.first is not None:
        leaves[layout.first.here] = True
    return factor_cost(pattern, leaves, most)


def _block_pattern(n: int, d: int, start: int, L: int) -> sp.csc_array:
    i = np.repeat(np.arange(n), d)
    j = (d * (np.arange(n) // d))[:, None] + np.arange(d)
    return sp.csc_array((np.ones(n * d), (start + i, start + j.ravel())), shape=(L, L))


def fit_iteratively(model: Model, tol: float | None, seed: Any, progress: bool, n_probes: int | None) -> IterativeModel:
    """The model learned by the iterative engine."""
    if model.classes is not None or model.zeros is not None:
        raise problem("Model", 'engine = "iterative" for a model of several parts', "one fit", 'Use engine="direct".')
    target = model.target
    found = learn(
        target.likelihood,
        model.sum.family(),
        target.y,
        weights=target.weights,
        names=[str(term.name) for term in model.sum.effects],
        n_probes=32 if n_probes is None else n_probes,
        random_state=seed,
        tol=_TOL if tol is None else tol,
        progress=progress,
    )
    fit = IterativeModel(model, found)
    remarks.warn_of(fit)
    return fit


_WHY = "the iterative engine has no factor to answer it"


class IterativeModel(FittedModel):
    """What ``Model.fit(engine="iterative")`` returns: a ``FittedModel`` whose evidence and gap are intervals.

    Attributes
    ----------
    found : IterativeFit
        With ``theta_error``, what the probes did to the hyperparameters, and ``estimates``, variances with their
        errors.
    elbo, gap : Interval
        ``gap.upper`` decides ``converged``; ``gap.certain`` is proved.
    """

    found: IterativeFit  # type: ignore[assignment]
    mixed = None  # at the learned hyperparameters, the likelihood's own too
    leaves_rows_out = False

    def __init__(self, model: Model, found: IterativeFit) -> None:
        super().__init__(model, found)  # type: ignore[arg-type]  # answers what a Learned does

    @cached_property
    def remarks(self) -> list[str]:
        """Of the data, of what the prior decides, and where more probes would help, a sentence each."""
        return [*remarks.of_terms(self.model), *remarks.of_fit(self), *self.found.remarks]

    @property
    def theta_covariance(self) -> np.ndarray:
        """Of theta, by the curvature of the evidence; 0 for an entry that is held by a bound."""
        return self.found.theta_covariance

    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Standard deviations, correlations and the likelihood's parameters: value, 95 % interval, and ``error``.

        The interval is by the curvature of the evidence at its mode, on the scale on which each is learned; ``error``
        is the standard error that probes have brought into the value.
        """
        rows, nothing = tables.described_theta(self, self.theta), np.zeros(0)
        if not rows:
            return tables.parameter_frame(rows, lower=nothing, upper=nothing, error=nothing)
        error = self.found.theta_error
        lower, upper = np.quantile(self._spread(self.theta_covariance + error), [0.025, 0.975], axis=0)
        return tables.parameter_frame(rows, lower=lower, upper=upper, error=self._spread(error).std(axis=0))

    def _spread(self, covariance: np.ndarray) -> np.ndarray:
        """The hyperparameters as reported, over draws of theta about its value."""
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return tables.values_at(self, self.theta + tables.normal_net(self.theta.size) @ root.T)

    @property
    def effects(self) -> IterativeEffects:
        """Each special term as a frame, one row a level, with ``sd_error``: what probes leave unknown of the sd."""
        return IterativeEffects(self)

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        return f"IterativeModel({self.model.formula!r}, {word}, elbo={self.elbo:.2f}, gap={self.gap:.1e})"

    corrected = refused("corrected", _WHY, 'engine="direct"')
    loo = refused("loo", _WHY, 'engine="direct", or rows held out and predicted')
    waic = refused("waic", _WHY, 'engine="direct"')
    leave_group_out = refused("leave_group_out", _WHY, 'engine="direct", or groups held out and predicted')
    k_fold = refused("k_fold", _WHY, 'engine="direct", or folds held out and predicted')
    to_arviz = refused("to_arviz", _WHY, "sample, which draws eta and y")


class IterativeEffects(tables.Effects):
    """The special terms as frames, with what probes leave unknown of each sd."""

    def __getitem__(self, key: Any) -> pd.DataFrame:
        out = super().__getitem__(key)
        fit = self._fit
        term = tables.term_named(self._terms, key)
        shown = None if term is None else fit.model.sum.shown(term.name)
        if shown is None:
            return out
        found = fit.solution.posterior.estimates(shown[1])  # type: ignore[attr-defined]
        return out.assign(sd_error=found.se / (2.0 * np.sqrt(found.value)))
