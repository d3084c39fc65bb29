"""Effects added up: eta = intercept + X beta + u[region] + w[time] as one sparse W and one block precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import finite, numeric, problem
from .base import MarkovField


def stack(
    effects: Sequence[tuple[MarkovField, Any]], fixed: Any = None, intercept: bool = True, fixed_variance: float = 100.0
) -> MarkovField:
    """The sum of several fields, each seen through an index or a design, and of fixed effects.

    Parameters
    ----------
    effects : sequence of (field, where)
        ``where``: integers (N,), the node each observation belongs to; or a design (N, nodes), dense or scipy sparse.
    fixed : array (N, p), optional
        Covariates X.
    intercept : bool
    fixed_variance : float
        Prior variance of the intercept and the coefficients: always proper, wide by default.

    Returns
    -------
    MarkovField
        Latents in order: each field's, then the intercept, then the coefficients. theta is the fields', in order.
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
    columns = [np.ones((N, 1))] if intercept else []
    if fixed is not None:
        columns.append(finite("stack", "fixed", numeric("stack", "fixed", fixed)).reshape(N, -1))
    X = np.hstack(columns) if columns else np.zeros((N, 0))
    p = X.shape[1]
    W = sp.hstack([*(W for _, W in parts), sp.csr_array(X)] if p else [W for _, W in parts], format="csr")
    widths = [field.n_latents for field, _ in parts]
    starts = np.concatenate([[0], np.cumsum(widths)])
    total = int(starts[-1]) + p
    rows = []
    for (field, _), a in zip(parts, starts[:-1], strict=True):
        if field.constraints is not None:
            C = np.atleast_2d(field.constraints)
            rows.append(np.hstack([np.zeros((C.shape[0], a)), C, np.zeros((C.shape[0], total - a - C.shape[1]))]))
    sizes_theta = [field.theta.size for field, _ in parts]
    cuts = np.cumsum(sizes_theta)[:-1]

    def build(theta: np.ndarray) -> tuple[Any, list[Any]]:
        made = [field.build(t) for (field, _), t in zip(parts, np.split(theta, cuts), strict=True)]
        tail = [sp.eye_array(p) / fixed_variance] if p else []
        Q = sp.block_diag([*(q for q, _ in made), *tail], format="csc")
        derivatives = []
        for i, (_, slopes) in enumerate(made):
            for slope in slopes:
                blocks = [sp.csc_array((w, w)) for w in widths]
                blocks[i] = slope
                derivatives.append(sp.block_diag([*blocks, *([sp.csc_array((p, p))] if p else [])], format="csc"))
        return Q, derivatives

    def log_prior(theta: np.ndarray) -> tuple[float, np.ndarray]:
        pieces = [field.log_prior(t) for (field, _), t in zip(parts, np.split(theta, cuts), strict=True)]
        return sum(value for value, _ in pieces), np.concatenate([slope for _, slope in pieces])

    names = [f"{name} [{i}]" for i, (field, _) in enumerate(parts) for name in field.names]
    return MarkovField(
        build,
        np.concatenate([field.theta for field, _ in parts]),
        names,
        np.concatenate([field.bounds for field, _ in parts]),
        design=W,
        constraints=np.vstack(rows) if rows else None,
        log_prior=log_prior,
    )


def _design(i: int, field: MarkovField, where: Any) -> sp.csr_array:
    """(N, latents of the field): the field's own design behind the index or design given."""
    own = sp.eye_array(field.n_latents, format="csr") if field.design is None else sp.csr_array(field.design)
    nodes = own.shape[0]
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
                raise problem("stack", got, f"integers 0, ..., {nodes - 1}, one an observation")
            return own[values.astype(int)]
    if outer.shape[1] != nodes:
        raise problem("stack", f"effects[{i}] has shape {outer.shape}", f"(N, {nodes}): one column a node")
    return sp.csr_array(outer @ own)
