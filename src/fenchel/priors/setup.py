"""From what the user gave to bound predictors: checks, one layout for all, and the choice of space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy
from ..linalg.design import HOST, Design, Identity
from ..linalg.matrices import as_design
from .base import Prior
from .latents import Latents
from .predictors import Blocks, Seen
from .rowspace import RowPredictors
from .weightspace import WeightPredictors


class LatentPrior(Prior):
    """A prior given by its latents: what its kinds share."""

    mean: np.ndarray
    design: Design
    offset: Any
    extra_variance: Any

    def place(
        self,
        like: Array | None,
        n_latents: int | None,
        mean: ArrayLike,
        design: Any,
        offset: ArrayLike,
        extra_variance: ArrayLike,
    ) -> None:
        """Check what does not depend on the observations: the design beside ``like``, and a mean for each latent."""
        where = type(self).__name__
        self.design = checked_design(where, design, like, n_latents)
        self.mean = finite(where, "mean", numeric(where, "mean", mean))
        L = self.design.shape[1]
        if self.mean.ndim > 2 or (self.mean.ndim >= 1 and self.mean.shape[0] != L):
            raise problem(where, f"mean has shape {self.mean.shape}", f"a number, ({L},) or ({L}, C)")
        self.offset, self.extra_variance = offset, extra_variance

    @property
    def n_rows(self) -> int:
        return self.design.shape[0]

    def seen(self, n: int, C: int, latents: Callable[[int, Array], Latents], own: int | None = None) -> Seen:
        """These latents met by N observations of C predictors; ``latents`` makes those of a block from its mean.

        ``own``: how many covariances the user gave, one for each predictor; None for one that all share.
        """
        where, rows, L = type(self).__name__, self.n_rows, self.design.shape[1]
        correlated = C > 1 and rows == n * C and own is None
        if not correlated and rows != n:
            wanted = f"{n} rows, one an observation" + (f", or {n * C} for correlated predictors" if C > 1 else "")
            raise problem(
                where, f"the prior has {rows} rows and y has {n} observations", wanted, "Check the lengths of y and W."
            )
        if own is not None and own != C:
            raise problem(where, f"got {own} covariances", f"{C}, one for each predictor of the likelihood")
        n_blocks, mean = 1 if correlated else C, self.mean
        if mean.ndim == 2 and mean.shape[1] != n_blocks:
            raise problem(where, f"mean has shape {mean.shape}", f"a number, ({L},) or ({L}, {n_blocks})")
        made: dict[tuple[int, bytes], Latents] = {}  # blocks with the same latents share them
        blocks = []
        for b in range(n_blocks):
            m = np.broadcast_to(mean if mean.ndim < 2 else mean[:, b], (L,)).copy()
            key = (0 if own is None else b, m.tobytes())
            if key not in made:
                made[key] = latents(b, asarray(m, self.like))
            blocks.append(made[key])
        extra = checked_per_row(where, "extra_variance", self.extra_variance, n, C)
        if (extra < 0.0).any():
            raise problem(where, f"extra_variance reaches {extra.min():g}", "variances >= 0")
        return Seen(
            Blocks(n, [tuple(range(C))] if correlated else [(c,) for c in range(C)]),
            blocks,
            [self.design] * n_blocks,
            asarray(checked_per_row(where, "offset", self.offset, n, C), self.like),
            asarray(extra, self.like) if extra.any() else 0.0,
            float(mean) if mean.ndim == 0 else None,
        )


def checked_design(where: str, design: Any, like: Array | None, n_latents: int | None) -> Design:
    """W beside ``like``; the identity where no design is given and the latents are known."""
    if design is None and n_latents is not None:
        return Identity(n_latents, HOST if like is None or is_numpy(like) else like)
    W = as_design(design, like, where)
    if len(W.shape) != 2 or 0 in W.shape or (n_latents is not None and W.shape[1] != n_latents):
        wanted = "(N, L)" if n_latents is None else f"(N, {n_latents}): one column a latent"
        raise problem(where, f"design has shape {tuple(W.shape)}", wanted, "One row of W a predictor.")
    return W


def checked_per_row(where: str, name: str, value: ArrayLike, n: int, C: int) -> np.ndarray:
    """A number, (N,) or (N, C) as (N, C), finite."""
    out = finite(where, name, numeric(where, name, value))
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim > 2 or (out.ndim == 2 and (out.shape[0] != n or out.shape[1] not in (1, C))):
        raise problem(where, f"{name} has shape {out.shape}", f"a number, ({n},) or ({n}, {C})")
    return np.broadcast_to(out, (n, C)).copy()


def in_smaller_space(seen: Seen, coupled: bool) -> RowPredictors | WeightPredictors:
    """N x N or L x L, whichever is cheaper; a softmax over independent predictors needs (C L) x (C L) of weights."""
    W = seen.designs[0]
    if 2 * W.shape[1] * (len(seen.latents) if coupled else 1) <= W.shape[0]:
        return WeightPredictors(seen)
    return RowPredictors(replace(seen, designs=[W.multiplied_out()] * len(seen.designs)))
