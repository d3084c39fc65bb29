"""The number of factors, by the evidence of the whole table and by prediction of hidden cells.

The evidence of a number of factors integrates over the loadings; the bound at the learned loadings increases with every
factor, for a given strength of the prior. This evidence is an approximation and not a bound. Held-out cells need no
approximation: a share of the cells is hidden, the model is learned without them, and the cost of a cell in bits is
-log2 p given the other cells of its row. For real numbers p is a density, and the cost may be negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln

from ..checks import choice, problem
from ..linalg import small
from ..linalg.arrays import ArrayLike
from .columns import FactorTable, is_softmax, read
from .prediction import log_density
from .starts import Units, begin, summary, units

if TYPE_CHECKING:
    from .factor_model import FactorModel, Parameters
    from .table_evidence import LearnedTable

# -- How sharply the data determine the loadings, and the evidence once they are integrated out ----
# The observed information is the complete one minus the part that is missing because z is not observed (Louis 1982).
# With q(z_r) = N(m, V), d = z - m, and the approximate derivative (alpha_p + lam_p W_p' d)(m + d) of a row's loss in
# W_p,
#
#     H = sum_r [ blockdiag_p( lam_p (V + m m') ) - M_r ],
#     M_pq = A_p V A_q' + lam_p lam_q [ (W_p' V W_q) V + V W_q W_p' V ],    A_p = alpha_p I + lam_p m W_p'
#
# which is exact for Gaussian columns. W and W Q have the same evidence for each rotation Q, so the maximum is an orbit
# of dimension t = L (L - 1) / 2. The integral across it is Laplace's approximation, and along it the volume of the
# orbit (Minka 2000):
#
#     log p(y) ~ P - strength/2 |W|^2 + PL/2 log strength - t/2 log 2 pi - 1/2 log|H + strength I| across the orbit
#                + log vol O(L) + sum_{i<j} 1/2 log(|w_i|^2 + |w_j|^2),     w_i the columns of W, orthogonal
_CHUNK = 1 << 22  # entries of a temporary
_FLOPS = 2e11  # above it a sample of the rows is used


def information(model: FactorModel, values: np.ndarray, p: Parameters, tol: float = 1e-8) -> np.ndarray:
    """H (P L, P L), with loadings in the order of ``W.ravel()``."""
    P, L, R = model.n_predictors, model.n_components, values.shape[0]
    enough = int(max(1000.0, _FLOPS / ((P * L) ** 2 * (L * L + L + 1))))
    if enough < R:
        values = values[np.random.default_rng(0).choice(R, enough, replace=False)]
    W, H = p.loadings, np.zeros((P, L, P, L))
    diagonal = np.arange(P)
    for rows in model.stretches(values):
        fits = model.solve(values[rows], p, None, tol)
        alpha, lam, mean, V = fits.alpha, fits.lam, fits.mean, small.unpack(fits.V)
        second = V + mean[:, :, None] * mean[:, None, :]
        H[diagonal, :, diagonal, :] += np.einsum("rp,rij->pij", lam, second)
        step = max(1, _CHUNK // (P * L**3))
        for i in range(0, alpha.shape[0], step):
            part = slice(i, i + step)
            H -= _missing(alpha[part], lam[part], mean[part], V[part], W)
    H = H.reshape(P * L, P * L) * (R / values.shape[0])
    return 0.5 * (H + H.T)


def _missing(alpha: np.ndarray, lam: np.ndarray, mean: np.ndarray, V: np.ndarray, W: np.ndarray) -> np.ndarray:
    """sum_r M_r (P, L, P, L)."""
    (P, L), C = W.shape, np.linalg.cholesky(V)
    U = lam[:, :, None] * (W @ C)  # (R, P, L)  lam_p C' W_p
    linear = alpha[:, :, None, None] * C[:, None, :, :] + mean[:, None, :, None] * U[:, :, None, :]
    flat = linear.transpose(1, 2, 0, 3).reshape(P * L, -1)
    out = flat @ flat.T
    flat = np.einsum("rpa,rib->pirab", U, C, optimize=True).reshape(P * L, -1)
    out += flat @ flat.T
    X = np.einsum("rpa,ria->pir", U, C, optimize=True).reshape(P * L, -1)
    swapped = (X @ X.T).reshape(P, L, P, L).transpose(2, 1, 0, 3)
    return out.reshape(P, L, P, L) + swapped


def integrated(model: FactorModel, values: np.ndarray, found: LearnedTable, tol: float = 1e-8) -> float:
    """The evidence of a table, integrated over the loadings; ``found`` is a result of ``learn``, with orthogonal W."""
    W, strength = found.parameters.loadings, found.strength
    P, L = W.shape
    H = information(model, values, found.parameters, tol) + strength * np.eye(P * L)
    pairs = [(i, j) for i in range(L) for j in range(i)]
    length = np.sum(W * W, axis=0)
    across = _across(H, W, pairs)
    roots = np.maximum(np.linalg.eigvalsh(across), 0.1 * strength)  # rounding, and a bound that is not quadratic
    group = np.log(2.0) + sum(np.log(2.0) + 0.5 * k * np.log(np.pi) - gammaln(0.5 * k) for k in range(2, L + 1))
    orbit = group + 0.5 * sum(np.log(max(length[i] + length[j], 1e-300)) for i, j in pairs)
    prior = 0.5 * (W.size * np.log(strength) - strength * float(length.sum()) - len(pairs) * np.log(2.0 * np.pi))
    return float(found.elbo + prior - 0.5 * np.sum(np.log(roots)) + orbit)


def _across(H: np.ndarray, W: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """H in the directions that are not rotations of W."""
    if not pairs:
        return H
    turns = np.zeros((len(pairs), *W.shape))
    for k, (i, j) in enumerate(pairs):
        turns[k, :, i], turns[k, :, j] = W[:, j], -W[:, i]
    basis = np.linalg.qr(turns.reshape(len(pairs), -1).T, mode="complete")[0][:, len(pairs) :]
    return basis.T @ H @ basis


# -- How many factors ------------------------------------------------------------------------------
_WHERE = "select_components"
_PATIENCE = 2  # number of further factors tried after the largest evidence


@dataclass(frozen=True)
class Selection:
    """The comparison of numbers of factors.

    Attributes
    ----------
    n_components : array (M,)
    evidence : array (M,)
        Approximate log evidence of the whole table, integrated over the loadings, in nats.
    elbo : array (M,)
        The evidence bound at the learned loadings; at a fixed strength it increases with every factor.
    strength : array (M,)
    bits : array (M, n_repeats)
        Mean cost of a hidden cell. Empty with ``n_repeats=0``.
    baseline : array (n_repeats,)
        The same cost without factors: each column by its own frequencies or mean.
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
        """The number of factors that predict hidden cells best."""
        if self.bits.shape[1] == 0:
            raise problem(_WHERE, "no cell was hidden", "n_repeats of at least 1")
        return int(self.n_components[np.argmin(self.bits.mean(axis=1))])

    def table(self) -> Any:
        """The comparison as a pandas table, with a row for each number of factors."""
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
    """Fit each number of factors to the whole table, and to the table with some cells hidden.

    Parameters
    ----------
    X : table as for ``ProbabilisticPCA``
    candidates : numbers of factors, or the largest number
    likelihood, bound, strength, noise, n_init, tol, max_iter : as for ``ProbabilisticPCA``
        The evidence needs a prior: ``strength`` above 0, or learned.
    hidden : float
        Share of cells that are hidden; drawn again for each repeat.
    n_repeats : int
        Number of repeats; 0 for the evidence alone.
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
    from .factor_model import FactorModel

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
        learned, own_units = fitted(model, table, table.values, rng=seed, **options)
        volume = float(own_units.log_volume(table.values).sum())
        evidence[i] = integrated(model, own_units.apply(table.values), learned, tol) - volume
        elbo[i], found_strength[i] = learned.elbo - volume, learned.strength
        for k, mask in enumerate(masks):
            bits[i, k] = _bits(held_out(model, table, mask, rng=seed, **options))
    baseline = np.array([_bits(without_factors(table, mask)) for mask in masks])
    return Selection(sizes, evidence, elbo, found_strength, bits, baseline)


def by_evidence(
    table: FactorTable, noise: str, largest: int, where: str, **options: Any
) -> tuple[FactorModel, LearnedTable, Units]:
    """The fit with the number of factors that maximises the evidence, from 1 upwards.

    The search ends at ``largest``, or after ``_PATIENCE`` further factors that do not increase the evidence.
    """
    from .factor_model import FactorModel

    best, tried = None, 0
    for size in range(1, largest + 1):
        model = FactorModel(table.likelihoods, size, noise)
        learned, own_units = fitted(model, table, table.values, where, **options)
        evidence = integrated(model, own_units.apply(table.values), learned, options["tol"])
        evidence -= float(own_units.log_volume(table.values).sum())
        if best is None or evidence > best[0]:
            best, tried = (evidence, (model, learned, own_units)), 0
        else:
            tried += 1
        if tried == _PATIENCE:
            break
    assert best is not None
    return best[1]


def fitted(
    model: FactorModel, table: FactorTable, values: np.ndarray, where: str = _WHERE, **options: Any
) -> tuple[LearnedTable, Units]:
    """A model learned from ``values``, in the units of their Gaussian columns."""
    from .table_evidence import learn  # compiles loops, so it is imported only for learning

    own_units = units(where, values, table.columns, model.noise)
    return learn(model, own_units.apply(values), **options), own_units


# -- hidden cells --------------------------------------------------------------------------------------
def hide(values: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Choose a share of the observed cells (R, D), bool; each column keeps some cells."""
    seen = np.argwhere(~np.isnan(values))
    chosen = seen[rng.permutation(len(seen))[: max(1, round(share * len(seen)))]]
    mask = np.zeros(values.shape, dtype=bool)
    mask[tuple(chosen.T)] = True
    mask[:, (np.isnan(values) | mask).all(axis=0)] = False
    return mask


def held_out(model: FactorModel, table: FactorTable, mask: np.ndarray, **options: Any) -> np.ndarray:
    """log p of each hidden cell by a model learned without it, in nats (R, D); NaN for other cells."""
    rest = np.where(mask, np.nan, table.values)
    learned, own_units = fitted(model, table, rest, **options)
    fits = model.rows(own_units.apply(rest), learned.parameters, tol=1e-10)
    target = np.where(mask, table.values, np.nan)
    return log_density(model, fits, learned.parameters, own_units.apply(target)) - np.log(own_units.unit)


def without_factors(table: FactorTable, mask: np.ndarray) -> np.ndarray:
    """The same for columns without factors, at the offsets where learning starts (``starts.py``)."""
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
