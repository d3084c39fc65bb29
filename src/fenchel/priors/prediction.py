"""New rows of a fitted prior: what a user says of them, checked, and what the latents then say of eta there.

by design     eta* = W* z + offset*,             mean W* m,           variance diag(W* V W*')
by cross      c = Cov(eta*, z), Var(eta*) known   mean -c' W' alpha,   variance Var(eta*) - what the data explain
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..linalg.arrays import Array, asarray, namespace, to_numpy
from ..linalg.design import Design
from ..linalg.matrices import as_design
from .base import Factor, NewRows, Predictors

_WHERE = "posterior.predict"
_LOST = 1e-6  # of a prior variance: a posterior one below minus this is no rounding


def new_rows(new: NewRows, n_latents: int, n_blocks: int, width: int, like: Array) -> tuple[list[Any], int]:
    """The new design or cross-covariance of each block, checked, and the number of new observations."""
    if (new.design is None) == (new.cross is None):
        raise problem(
            _WHERE,
            "got both or neither of design and cross",
            "one of them: new rows of W, or the covariance of new predictors with the latents",
        )
    if new.cross is None:
        name, W = "design", as_design(new.design, like, _WHERE)
        rows: list[Any] = [W] * n_blocks
        shape: tuple[int, ...] = W.shape
    else:
        name, host = "cross", namespace(new.cross) is np
        value = asarray(finite(_WHERE, name, numeric(_WHERE, name, new.cross)) if host else new.cross, like)
        own = value.ndim == 3 and value.shape[0] == n_blocks
        rows = [value[b, ...] for b in range(n_blocks)] if own else [value] * n_blocks
        shape = tuple(value.shape)
    if len(rows[0].shape) != 2 or rows[0].shape[1] != n_latents or rows[0].shape[0] % width:
        per = f"a multiple of {width} rows" if width > 1 else "any number of rows"
        raise problem(_WHERE, f"{name} has shape {shape}", f"{n_latents} columns and {per}")
    return rows, rows[0].shape[0] // width


def assembled(
    predictors: Predictors, new: NewRows, mean: Array, spread: Array | None, lost: float = 0.0
) -> tuple[Array, Array | None]:
    """Mean and variance (M, C) from W* m and its variance, or from what the latents say and how much they know."""
    mean = mean + _per_row(predictors, "offset", new.offset, mean.shape[0])
    extra = 0.0 if new.mean_only else _per_row(predictors, "extra_variance", new.extra_variance, mean.shape[0])
    if new.design is not None:
        return mean, None if spread is None else spread + extra
    if new.variance is None and not new.mean_only:
        raise problem(_WHERE, "variance is missing", "the prior variance of each new predictor with cross")
    given = predictors.default_mean if new.mean is None else new.mean
    if given is None:
        raise problem(
            _WHERE,
            "mean is missing",
            "the prior mean at the new points, because the prior's own mean is a vector",
            "Pass mean=....",
        )
    mean = mean + _per_row(predictors, "mean", given, mean.shape[0])
    if spread is None:
        return mean, None
    prior = _per_row(predictors, "variance", new.variance, mean.shape[0])
    left = prior - spread
    xp = namespace(left)
    if bool(xp.any(left < -max(_LOST, lost) * (1.0 + prior))):
        raise problem(
            _WHERE,
            "cross and variance contradict each other: a posterior variance would be negative",
            "variance = Var(eta*) and cross = Cov(eta*, z) of one prior",
            "Check that both come from the kernel of the fit.",
        )
    return mean, xp.where(left > 0.0, left, xp.zeros_like(left)) + extra


def _per_row(predictors: Predictors, name: str, value: Any, m: int) -> Array:
    """A number, (M,) or (M, C) as (M, C) on the prior's device."""
    C = predictors.n_predictors
    out = finite(_WHERE, name, numeric(_WHERE, name, value if namespace(value) is np else to_numpy(value)))
    if name.endswith("variance") and (out < 0.0).any():
        raise problem(_WHERE, f"{name} reaches {out.min():g}", "numbers >= 0")
    if out.ndim == 1 and out.shape[0] == m:
        out = out[:, None]
    if out.ndim not in (0, 2) or (out.ndim == 2 and (out.shape[0] != m or out.shape[1] not in (1, C))):
        raise problem(_WHERE, f"{name} has shape {out.shape}", f"a number, shape ({m},) or ({m}, {C})")
    return asarray(np.broadcast_to(out, (m, C)), predictors.mt)


def predicted(factor: Factor, alpha: Array, new: NewRows) -> tuple[Array, Array | None]:
    """The same of any prior, whose latents are its predictors: by one product with Vt for each new row."""
    predictors, lam = factor.predictors, factor.lam[:, 0]
    if predictors.n_predictors > 1:
        got = f"{type(predictors).__name__} has {predictors.n_predictors} predictors an observation"
        raise problem(_WHERE, got, "one, or predictors with a predict of their own")
    xp = namespace(lam)
    (row,), _ = new_rows(new, predictors.n_observations, 1, 1, lam)
    if isinstance(row, Design):
        mean = row.times((predictors.mt - predictors.apply(alpha))[:, 0])
        seen = row.toarray()
    else:
        mean, seen = -(row @ alpha[:, 0]), lam[None, :] * row
    spread = None
    if not new.mean_only:
        inside = [xp.sum(s * factor.apply(s[:, None])[:, 0]) for s in (seen[i, :] for i in range(seen.shape[0]))]
        spread = xp.stack(inside) if inside else 0.0 * mean
        if new.cross is not None:
            spread = xp.sum(row * seen, axis=1) - spread  # c Lam^1/2 B^-1 Lam^1/2 c' = c (Lam - Lam Vt Lam) c'
        spread = spread[:, None]
    return assembled(predictors, new, mean[:, None], spread)
