"""From what the user gave to bound predictors: checks of mean, design and offset, and the choice of space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..linalg.arrays import Array, asarray
from ..linalg.design import Design, Identity
from ..linalg.matrices import as_design
from .latents import Latents
from .predictors import Blocks
from .rowspace import RowPredictors
from .weightspace import WeightPredictors


def checked_design(where: str, design: Any, like: Array | None, n_latents: int | None) -> Design:
    """W beside ``like``; the identity where no design is given and the latents are known."""
    if design is None and n_latents is not None:
        return Identity(n_latents, like)
    W = as_design(design, like, where)
    if len(W.shape) != 2 or 0 in W.shape or (n_latents is not None and W.shape[1] != n_latents):
        wanted = "(N, L)" if n_latents is None else f"(N, {n_latents}): one column a latent"
        raise problem(where, f"design has shape {tuple(W.shape)}", wanted, "One row of W a predictor.")
    return W


def checked_mean(where: str, mean: Any, L: int) -> np.ndarray:
    """A number, (L,) or (L, C), finite."""
    out = finite(where, "mean", numeric(where, "mean", mean))
    if out.ndim > 2 or (out.ndim >= 1 and out.shape[0] != L):
        raise problem(where, f"mean has shape {out.shape}", f"a number, ({L},) or ({L}, C)")
    return out


def checked_offset(where: str, offset: Any, n: int, C: int) -> np.ndarray:
    """A number, (N,) or (N, C) as (N, C), finite."""
    out = finite(where, "offset", numeric(where, "offset", offset))
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim > 2 or (out.ndim == 2 and (out.shape[0] != n or out.shape[1] not in (1, C))):
        raise problem(where, f"offset has shape {out.shape}", f"a number, ({n},) or ({n}, {C})")
    return np.broadcast_to(out, (n, C)).copy()


def lay_out(
    where: str, L: int, rows: int, mean: np.ndarray, offset: Any, shape: tuple[int, int, bool], own: int | None
) -> tuple[Blocks, list[np.ndarray], np.ndarray]:
    """Blocks, the mean of each (L,), and the offset (N, C), for a prior of ``rows`` rows met by N x C predictors.

    ``own``: how many covariances the user gave, one for each predictor; None for one that all share.
    """
    n, C, _ = shape
    correlated = C > 1 and rows == n * C and own is None
    if not correlated and rows != n:
        wanted = f"{n} rows, one an observation" + (f", or {n * C} for correlated predictors" if C > 1 else "")
        raise problem(
            where, f"the prior has {rows} rows and y has {n} observations", wanted, "Check the lengths of y and W."
        )
    if own is not None and own != C:
        raise problem(where, f"got {own} covariances", f"{C}, one for each predictor of the likelihood")
    n_blocks = 1 if correlated else C
    if mean.ndim == 2 and mean.shape[1] != n_blocks:
        raise problem(where, f"mean has shape {mean.shape}", f"a number, ({L},) or ({L}, {n_blocks})")
    means = [np.broadcast_to(mean if mean.ndim < 2 else mean[:, b], (L,)).copy() for b in range(n_blocks)]
    groups = [tuple(range(C))] if correlated else [(c,) for c in range(C)]
    return Blocks(n, groups), means, checked_offset(where, offset, n, C)


def bind_latents(
    where: str,
    covariances: Sequence[Array],
    mean: np.ndarray,
    design: Design,
    offset: Any,
    shape: tuple[int, int, bool],
    own: bool,
) -> RowPredictors | WeightPredictors:
    """Bind covariances (one shared, or one for each predictor) to N observations of C predictors."""
    like, L = covariances[0], int(covariances[0].shape[0])
    rows = design.shape[0]
    blocks, means, placed = lay_out(where, L, rows, mean, offset, shape, len(covariances) if own else None)
    n_blocks = len(blocks.groups)
    made: dict[tuple[int, bytes], Latents] = {}
    latents = []
    for b in range(n_blocks):
        key = (b if own else 0, means[b].tobytes())
        if key not in made:
            made[key] = Latents(asarray(means[b], like), covariances[b if own else 0])
        latents.append(made[key])
    # N x N or L x L, whichever is cheaper; a softmax over independent predictors needs (C L) x (C L) in weight space
    width = L * (n_blocks if shape[2] else 1)
    space = WeightPredictors if 2 * width <= rows else RowPredictors
    if space is RowPredictors:
        design = design.multiplied_out()
    default = float(mean) if mean.ndim == 0 else None
    return space(blocks, latents, [design] * n_blocks, asarray(placed, like), default)
