"""Sums of effects: eta = intercept + X beta + u[region] + w[time] as one sparse design and one block precision.

The columns of X are centred and scaled (``inputs.fixed_columns``). The latents after those of the fields are c and
gamma, and ``fixed_effects`` returns the intercept and beta in the user's units.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import callers_line, finite, numeric, problem, vector
from ..hyperparameters.base import Summand, offset_at
from ..inputs.fixed_columns import Columns
from ..linalg.arrays import ArrayLike
from ..linalg.constraint_bases import constraint_rows
from ..marginals import Answers
from ..priors.base import NewRows
from ..priors.latent_priors import checked_constraints
from ..priors.sparse import SparsePrecision
from ..solvers.solution import Solution
from .base import MarkovField, MovingRows


@dataclass(frozen=True)
class BlockPrecision:
    """The precision of several fields and of fixed effects: one diagonal block for each."""

    fields: tuple[MarkovField, ...]
    widths: tuple[int, ...]
    n_fixed: int
    fixed_variance: float | np.ndarray  # one for all coefficients, or one for each

    def split(self, theta: np.ndarray) -> list[tuple[MarkovField, np.ndarray]]:
        """Each field with its part of theta."""
        cuts = np.cumsum([field.theta.size for field in self.fields]).astype(int)
        return list(zip(self.fields, np.split(theta, cuts)[:-1], strict=True)) if self.fields else []

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        precisions, p = [field.build(t) for field, t in self.split(theta)], self.n_fixed
        tail = [sp.csc_array(sp.diags_array(1.0 / np.broadcast_to(self.fixed_variance, (p,))))] if p else []
        at, n = np.concatenate([[0], np.cumsum(self.widths)]).astype(int), sum(self.widths) + p
        Q = _block_diagonal([*(q for q, _ in precisions), *tail])
        return Q, [_block_in(slope, at[i], n) for i, (_, slopes) in enumerate(precisions) for slope in slopes]

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        pieces = [field.log_prior(t) for field, t in self.split(theta)]
        return sum(value for value, _ in pieces), np.concatenate([np.zeros(0), *(slope for _, slope in pieces)])

    def constraints(self) -> Any:
        """The constraints (k, L) of the fields, each over its own latents; scipy sparse if large; None without any."""
        rows, at, total = [], 0, sum(self.widths) + self.n_fixed
        for field, width in zip(self.fields, self.widths, strict=True):
            C = field.constraints
            if C is not None:
                C = checked_constraints(field.build(field.theta)[0], C) if isinstance(C, str) else C
                C = sp.coo_array(C if sp.issparse(C) else np.atleast_2d(C))
                i, j = C.coords
                rows.append(sp.coo_array((C.data, (i, at + j)), shape=(C.shape[0], total)))
            at += width
        return constraint_rows(sp.vstack(rows)) if rows else None


def _block_in(block: Any, at: int, n: int) -> sp.csc_array:
    """A matrix (n, n) with one nonzero diagonal block; the block's arrays are shared where possible."""
    block = sp.csc_array(block)
    before, after = np.zeros(at), np.full(n - at - block.shape[1], block.indptr[-1])
    indptr = np.concatenate([before, block.indptr, after]).astype(block.indptr.dtype)
    return sp.csc_array((block.data, block.indices if at == 0 else block.indices + at, indptr), shape=(n, n))


def _block_diagonal(blocks: Sequence[Any]) -> sp.csc_array:
    """A block diagonal csc matrix, assembled without coordinates of all entries."""
    matrices = [sp.csc_array(block) for block in blocks]
    at = np.cumsum([0, *(block.shape[0] for block in matrices)])
    entries = np.cumsum([0, *(block.nnz for block in matrices)])
    kind = np.int32 if max(at[-1], entries[-1]) < 2**31 else np.int64
    indices = np.concatenate([np.add(block.indices, a, dtype=kind) for block, a in zip(matrices, at[:-1], strict=True)])
    pointers = [block.indptr[1:] + e for block, e in zip(matrices, entries[:-1], strict=True)]
    indptr = np.concatenate([[0], *pointers]).astype(kind)
    return sp.csc_array((np.concatenate([block.data for block in matrices]), indices, indptr), shape=(at[-1], at[-1]))


class StackedField(MarkovField):
    """The sum of fields and fixed effects that ``stack`` returns.

    Parameters
    ----------
    parts : list of (field, design)
        Each field with its design (N, latents), scipy sparse.
    X : array (N, p)
        The columns of the fixed effects, in the user's units.
    columns : Columns
        Their centres and scales.
    intercept, fixed_variance : as in ``stack``
    names : names of the hyperparameters; default: the fields' names, numbered
    offset : float or array (N,)
        Known part of eta.
    """

    def __init__(
        self,
        parts: Sequence[tuple[MarkovField, sp.csr_array]],
        X: np.ndarray,
        columns: Columns,
        intercept: bool,
        fixed_variance: float | np.ndarray,
        names: Sequence[str] | None = None,
        offset: ArrayLike = 0.0,
    ) -> None:
        fields, designs = [field for field, _ in parts], [W for _, W in parts]
        self.columns, self.intercept, self.parts, self.offset = columns, bool(intercept), fields, offset
        blocks = BlockPrecision(
            tuple(fields), tuple(W.shape[1] for W in designs), X.shape[1] + int(intercept), fixed_variance
        )
        numbered = [f"{name} [{i}]" for i, field in enumerate(fields) for name in field.names]
        super().__init__(
            blocks,
            np.concatenate([np.zeros(0), *(field.theta for field in fields)]),
            numbered if names is None else names,
            np.concatenate([np.zeros((0, 2)), *(field.bounds for field in fields)]),
            self.design_of(designs, X),
            blocks.constraints(),
            blocks.log_prior,
        )

    def at(
        self, theta: ArrayLike | None = None, mean: ArrayLike = 0.0, offset: ArrayLike | None = None
    ) -> SparsePrecision:
        out = super().at(theta, mean, self.offset if offset is None else offset)
        moving = self._moving(self.theta if theta is None else np.asarray(theta, dtype=np.float64))
        if not moving:
            return out
        design, extra = self.design, np.zeros(self.design.shape[0])
        for rows, part, _, latents in moving:
            block, own_variances = rows.at(part)
            design = _with_columns(design, block, latents)
            extra += own_variances
        return out.seen_through(design, extra)

    def _moving(self, theta: np.ndarray) -> list[tuple[MovingRows, np.ndarray, slice, slice]]:
        """Fields whose design depends on theta: their rows, their theta, and their slices of theta and latents."""
        out, latent, entry = [], 0, 0
        for field in self.parts:
            latents, entries = slice(latent, latent + field.n_latents), slice(entry, entry + field.theta.size)
            if field.moving is not None:
                out.append((field.moving, theta[entries], entries, latents))
            latent, entry = latents.stop, entries.stop
        return out

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        out = super().gradient(solution, theta)
        for rows, part, entries, latents in self._moving(np.asarray(theta, dtype=np.float64)):
            out[entries] = rows.slopes(solution, part, latents)
        return out

    def summands(self) -> Sequence[Summand]:
        """The summands of the fields, each over its own latents and entries of theta."""
        out: list[Summand] = []
        latent = entry = 0
        for field in self.parts:
            for part in field.summands():
                size = np.zeros(self._theta.size)
                size[entry : entry + part.size.size] = part.size
                latents = slice(latent + part.latents.start, latent + part.latents.stop)
                out.append(Summand(latents, size, tuple(entry + k for k in part.shapes)))
            latent, entry = latent + field.n_latents, entry + field.theta.size
        return out

    def design_of(self, designs: Sequence[sp.csr_array], X: np.ndarray) -> sp.csr_array:
        """One design from the designs of the fields and the columns X of fixed effects in the user's units."""
        tail = self.columns.tail(X, self.intercept)
        return sp.hstack([*designs, sp.csr_array(tail)] if tail.shape[1] else designs, format="csr")

    def fixed_effects(self, solution: Solution | Answers) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and covariance of (intercept, coefficients) in the user's units.

        The intercept belongs to x = 0. It does not include an offset, or a mean given to ``at``.
        """
        return self.columns.fixed_effects(solution, self.intercept)

    def rows(self, where: Sequence[Any], fixed: Any = None) -> sp.csr_array:
        """The design at new rows for ``posterior.predict(design=...)``: an index or a design for each field, and X."""
        if len(where) != len(self.parts):
            raise problem("stack", f"rows of {len(where)} effects", f"{len(self.parts)}: one an effect")
        blocks = [_design(i, field, at) for i, (field, at) in enumerate(zip(self.parts, where, strict=True))]
        N = blocks[0].shape[0] if blocks else np.shape(fixed)[0]
        X = np.zeros((N, 0)) if fixed is None else _checked(fixed, N)
        if X.shape != (N, len(self.columns.names)):
            raise problem("stack", f"fixed has shape {X.shape}", f"({N}, {len(self.columns.names)})")
        return self.design_of(blocks, X)

    def new_rows(self, theta: np.ndarray, table: tuple[Sequence[Any], Any]) -> NewRows:
        """The design for ``table`` = (where, fixed), the arguments of ``rows``."""
        design = self.rows(*table)
        return NewRows(design=design, offset=offset_at("stack", self.offset, design.shape[0]))


def _with_columns(design: sp.csr_array, block: sp.csr_array, columns: slice) -> sp.csr_array:
    """A design in which some adjacent columns are replaced."""
    parts = [design[:, : columns.start], block, design[:, columns.stop :]]
    return sp.csr_array(sp.hstack([part for part in parts if part.shape[1]], format="csr"))


def stack(
    effects: Sequence[tuple[MarkovField, Any]],
    fixed: Any = None,
    intercept: bool = True,
    fixed_variance: float = 100.0,
    weights: ArrayLike | None = None,
    columns: Columns | None = None,
    names: Sequence[str] | None = None,
    offset: ArrayLike = 0.0,
) -> StackedField:
    """The sum of several fields, each with an index or a design, and of fixed effects.

    Parameters
    ----------
    effects : sequence of (field, where)
        ``where``: integers (N,), the node of each observation; or a design (N, nodes), dense or scipy sparse.
    fixed : array (N, p) or pandas frame, optional
        Covariates X in any units; they are centred and scaled internally.
    intercept : bool
    fixed_variance : float
        Prior variance of the intercept at the mean of the covariates, and of the effect of one standard deviation of
        each covariate; proper and wide by default. Without an intercept columns are not centred, and are scaled by
        their root mean square.
    weights : array (N,), optional
        Weights of the rows in these means and standard deviations; 0 for rows that will be unobserved.
    columns : Columns, optional
        Centres and scales to use instead of those of ``fixed``.
    names : sequence of str, optional
        Names of the hyperparameters; default: the fields' names, numbered.
    offset : float or array (N,)
        A known part of eta.

    Returns
    -------
    StackedField
        The latents are those of each field in order, then the intercept at the mean of the covariates, then the
        coefficients per standard deviation. ``fixed_effects(solution)`` returns them in the units of X, and ``rows``
        makes designs for new rows. theta joins the thetas of the fields.

    Examples
    --------
    >>> import numpy as np
    >>> import fenchel
    >>> from fenchel import gmrf
    >>> year = np.arange(1960, 1991)
    >>> field = gmrf.stack([(gmrf.iid(31, precision=100.0), year - 1960)], fixed=year[:, None])
    >>> sol = fenchel.infer(fenchel.Poisson(), field.at(offset=np.log(10.0)), np.round(np.linspace(4.0, 16.0, 31)))
    >>> mean, covariance = field.fixed_effects(sol)  # the intercept at year 0, and the slope a year
    >>> bool(0.03 < mean[1] < 0.05)
    True
    """
    pairs = list(effects) if hasattr(effects, "__iter__") else [()]
    if not all(isinstance(p, list | tuple) and len(p) == 2 and isinstance(p[0], MarkovField) for p in pairs):
        raise problem("stack", "effects is not a list of pairs", "[(field, where), ...], such as [(rw1(n), t)]")
    parts = [(field, _design(i, field, where)) for i, (field, where) in enumerate(pairs)]
    sizes = {W.shape[0] for _, W in parts} | (set() if fixed is None else {np.shape(fixed)[0]})
    if len(sizes) != 1:
        raise problem("stack", f"the parts have {sorted(sizes)} rows", "one row an observation in each of them")
    if not (np.isfinite(fixed_variance) and fixed_variance > 0):
        raise problem(
            "stack",
            f"fixed_variance = {fixed_variance}",
            "a finite number > 0",
            "A flat prior is improper: use 100 or 1e4.",
        )
    N = sizes.pop()
    X = np.zeros((N, 0)) if fixed is None else _checked(fixed, N)
    headers = list(getattr(fixed, "columns", [f"fixed[:, {j}]" for j in range(X.shape[1])]))
    w = None if weights is None else vector("stack", "weights", weights, N)
    if columns is None:
        columns = Columns.of("stack", X, headers, w, intercept)
        for sentence in columns.complaints():
            warnings.warn(f"stack: {sentence}.", UserWarning, stacklevel=callers_line())
    return StackedField(parts, X, columns, intercept, fixed_variance, names, offset)


def _checked(fixed: Any, N: int) -> np.ndarray:
    return finite("stack", "fixed", numeric("stack", "fixed", fixed)).reshape(N, -1)


def _design(i: int, field: MarkovField, where: Any) -> sp.csr_array:
    """The design (N, latents) of the field through the index or design ``where``."""
    field_design = sp.eye_array(field.n_latents, format="csr") if field.design is None else sp.csr_array(field.design)
    nodes = field_design.shape[0]
    if hasattr(where, "tocsr"):
        outer = sp.csr_array(where)
    else:
        values = numeric("stack", f"effects[{i}]", where)
        if values.ndim == 2:
            outer = sp.csr_array(values)
        else:
            bad = (values < 0) | (values >= nodes) | (values != np.floor(values))
            if values.ndim != 1 or bad.any():
                got = f"effects[{i}] names node {values[bad][0]:g}" if values.ndim == 1 else f"shape {values.shape}"
                advice = "Subtract 1 from ids that start at 1." if values.ndim == 1 and values[bad][0] == nodes else ""
                raise problem("stack", got, f"integers 0, ..., {nodes - 1}, one an observation", advice)
            return field_design[values.astype(int)]
    if outer.shape[1] != nodes:
        raise problem("stack", f"effects[{i}] has shape {outer.shape}", f"(N, {nodes}): one column a node")
    return sp.csr_array(outer @ field_design)
