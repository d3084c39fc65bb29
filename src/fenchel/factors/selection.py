"""How many factors: by the evidence of the whole table, and by cells that were hidden and then predicted.

The evidence of a number of factors has the loadings integrated out (``curvature.py``); the bound at the learned
loadings alone rises with every factor, for a given strength. It is an approximation, not a bound. Held-out cells need
none: a share of the cells is hidden, the model learned without them, and -log2 p of each given the rest of its row is
its cost in bits (of a real number, whose p is a density, it may be negative).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, problem
from ..linalg.arrays import ArrayLike
from .columns import Table, read
from .curvature import integrated
from .kinds import is_softmax
from .prediction import log_density
from .scaling import Units, units
from .starts import begin, summary

if TYPE_CHECKING:
    from .learning import LearnedTable
    from .model import FactorModel

_WHERE = "select_components"
_PATIENCE = 2  # further factors that are tried after the evidence was largest


@dataclass(frozen=True)
class Selection:
    """What each number of factors gave.

    Attributes
    ----------
    n_components : array (M,)
    evidence : array (M,)
        log p of the whole table with the loadings integrated out, approximately, in nats.
    elbo : array (M,)
        The evidence bound at the learned loadings; at a fixed strength it rises with every factor.
    strength : array (M,)
    bits : array (M, n_repeats)
        Mean cost of a hidden cell. Empty with ``n_repeats=0``.
    baseline : array (n_repeats,)
        The same for no factors: every column by its own frequencies or mean.
    """

    n_components: np.ndarray
    evidence: np.ndarray
    elbo: np.ndarray
    strength: np.ndarray
    bits: np.ndarray
    baseline: np.ndarray

    @property
    def best_by_evidence(self) -> int:
        """The number of factors with the largest evidence."""
        return int(self.n_components[np.argmax(self.evidence)])

    @property
    def best_by_bits(self) -> int:
        """The number of factors that predicts hidden cells best."""
        if self.bits.shape[1] == 0:
            raise problem(_WHERE, "no cell was hidden", "n_repeats of at least 1")
        return int(self.n_components[np.argmin(self.bits.mean(axis=1))])

    def table(self) -> Any:
        """As a pandas table, a row a number of factors."""
        from pandas import DataFrame

        columns = {"evidence": self.evidence, "elbo": self.elbo, "strength": self.strength}
        if self.bits.shape[1]:
            columns["bits"] = self.bits.mean(axis=1)
            columns["bits_sd"] = self.bits.std(axis=1)
        return DataFrame(columns, index=self.n_components).rename_axis("n_components")


def select_components(
    X: ArrayLike,
    candidates: Sequence[int] | int = (1, 2, 3, 4, 5),
    *,
    likelihood: Any = "auto",
    bound: str = "tilted",
    strength: Any = "learned",
    noise: str = "column",
    hidden: float = 0.1,
    n_repeats: int = 1,
    n_init: int = 1,
    tol: float = 1e-8,
    max_iter: int = 200,
    random_state: int | None = None,
) -> Selection:
    """Fit every number of factors, to the whole table and with some cells hidden.

    Parameters
    ----------
    X : table as for ``ProbabilisticPCA``
    candidates : numbers of factors, or the largest
    likelihood, bound, strength, noise, n_init, tol, max_iter : as there
        The evidence needs a prior: ``strength`` above 0, or learned.
    hidden : float
        Share of the cells that is hidden, drawn anew in each repeat.
    n_repeats : int
        0 for the evidence alone.
    random_state : int, optional

    Returns
    -------
    Selection
        ``fenchel.plots.plot_components(found.n_components, found.evidence, found.bits, baseline=found.baseline)``
        draws it.

    Examples
    --------
    >>> from fenchel.datasets import load_zoo
    >>> from fenchel.factors.selection import select_components
    >>> found = select_components(load_zoo().X[:, :8], [1, 2], max_iter=50, random_state=0)
    >>> found.bits.shape, bool((found.bits < found.baseline).all())
    ((2, 1), True)
    """
    from .model import FactorModel

    sizes = np.array([int(k) for k in (range(1, candidates + 1) if isinstance(candidates, int) else candidates)])
    if sizes.size == 0:
        raise problem(_WHERE, "there are no candidates", "numbers of factors such as (1, 2, 3)")
    if not 0.0 < hidden < 1.0:
        raise problem(_WHERE, f"hidden = {hidden!r}", "a share between 0 and 1")
    if not isinstance(strength, str) and not strength > 0.0:
        raise problem(_WHERE, f"strength = {strength!r}", '"learned" or a number above 0')
    choice(_WHERE, "bound", bound, ("tilted", "log-sum", "exact"))
    table = read(X, likelihood, _WHERE, bound)
    table.warn_of_guesses(_WHERE)
    options = {"strength": strength, "n_init": n_init, "tol": tol, "max_iter": max_iter}
    rng = np.random.default_rng(random_state)
    masks = [hide(table.values, hidden, rng) for _ in range(n_repeats)]
    seed = int(rng.integers(2**31))
    evidence, elbo, found_strength = np.empty(sizes.size), np.empty(sizes.size), np.empty(sizes.size)
    bits = np.empty((sizes.size, n_repeats))
    for i, size in enumerate(sizes):
        model = FactorModel(table.likelihoods, int(size), noise)
        found, own = fitted(model, table, table.values, rng=seed, **options)
        volume = float(own.log_volume(table.values).sum())
        evidence[i] = integrated(model, own.apply(table.values), found, tol) - volume
        elbo[i], found_strength[i] = found.elbo - volume, found.strength
        for k, mask in enumerate(masks):
            bits[i, k] = _bits(held_out(model, table, mask, rng=seed, **options))
    baseline = np.array([_bits(without_factors(table, mask)) for mask in masks])
    return Selection(sizes, evidence, elbo, found_strength, bits, baseline)


def by_evidence(
    table: Table, noise: str, largest: int, where: str, **options: Any
) -> tuple[FactorModel, LearnedTable, Units]:
    """The fit with the number of factors whose evidence is largest, tried from 1 upwards.

    The search ends at ``largest``, or when ``_PATIENCE`` further factors have not raised the evidence.
    """
    from .model import FactorModel

    best, tried = None, 0
    for size in range(1, largest + 1):
        model = FactorModel(table.likelihoods, size, noise)
        found, own = fitted(model, table, table.values, where, **options)
        evidence = integrated(model, own.apply(table.values), found, options["tol"])
        evidence -= float(own.log_volume(table.values).sum())
        if best is None or evidence > best[0]:
            best, tried = (evidence, (model, found, own)), 0
        else:
            tried += 1
        if tried == _PATIENCE:
            break
    assert best is not None
    return best[1]


def fitted(
    model: FactorModel, table: Table, values: np.ndarray, where: str = _WHERE, **options: Any
) -> tuple[LearnedTable, Units]:
    """A model learned from ``values``, in the units of their Gaussian columns."""
    from .learning import learn  # compiles: only when something is learned

    own = units(where, values, table.columns, model.noise)
    return learn(model, own.apply(values), **options), own


# -- hidden cells --------------------------------------------------------------------------------------
def hide(values: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A share of the cells that have data (R, D), bool; every column keeps some."""
    seen = np.argwhere(~np.isnan(values))
    chosen = seen[rng.permutation(len(seen))[: max(1, round(share * len(seen)))]]
    mask = np.zeros(values.shape, dtype=bool)
    mask[tuple(chosen.T)] = True
    mask[:, (np.isnan(values) | mask).all(axis=0)] = False
    return mask


def held_out(model: FactorModel, table: Table, mask: np.ndarray, **options: Any) -> np.ndarray:
    """log p of every hidden cell by a model that was learned without it, in nats (R, D), NaN elsewhere."""
    rest = np.where(mask, np.nan, table.values)
    found, own = fitted(model, table, rest, **options)
    fits = model.rows(own.apply(rest), found.parameters, tol=1e-10)
    target = np.where(mask, table.values, np.nan)
    return log_density(model, fits, found.parameters, own.apply(target)) - np.log(own.unit)


def without_factors(table: Table, mask: np.ndarray) -> np.ndarray:
    """The same when every column stands alone, at the offset where learning starts: see ``starts.py``."""
    out = np.full(mask.shape, np.nan)
    for j, column in enumerate(table.columns):
        if not mask[:, j].any():
            continue
        rest = np.where(mask[:, j], np.nan, table.values[:, j])
        alone = begin(column.likelihood, summary(column.likelihood, rest))
        rows = alone.likelihood.prepare(table.values[mask[:, j], j])
        eta = np.broadcast_to(alone.offset, (int(mask[:, j].sum()), alone.offset.size))
        at = eta[:, :, None] if is_softmax(alone.likelihood) else eta
        out[mask[:, j], j] = alone.likelihood.log_density(at, rows)[:, 0]
    return out


def _bits(log_p: np.ndarray) -> float:
    return float(-np.nanmean(log_p) / np.log(2.0))
