"""What both engines share: C independent blocks of N rows, or one block of N*C correlated rows.

A block b holds the predictors ``groups[b]``; its vectors are (N, C)[:, group] flattened observation by observation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..linalg.arrays import Array, namespace
from ..linalg.dense import asarray_index
from ..linalg.design import Design
from ..linalg.matrices import is_sparse
from .base import EPS, Factor, NewRows, Predictors
from .capabilities import HasWeights
from .latents import Latents
from .lines import Lines, lines_of_design
from .prediction import assembled, new_rows


class Blocks:
    """Moves vectors between (N, C) and the blocks' own flat form."""

    def __init__(self, n_observations: int, groups: Sequence[tuple[int, ...]]) -> None:
        self.n, self.groups = n_observations, list(groups)
        self.n_predictors = sum(len(group) for group in self.groups)

    def split(self, x: Array) -> list[Array]:
        """(N, C) -> one flat (R,) for each block."""
        if self.n_predictors == 1:
            return [x[:, 0]]
        xp = namespace(x)
        if len(self.groups) == 1 and x.shape[1] == self.n_predictors:
            return [xp.reshape(x, (-1,))]
        return [x[:, group[0]] for group in self.groups]

    def join(self, parts: Sequence[Array]) -> Array:
        """One flat (R,) a block -> (N, C)."""
        if self.n_predictors == 1:
            return parts[0][:, None]
        xp = namespace(parts[0])
        if len(self.groups) == 1:
            return xp.reshape(parts[0], (-1, self.n_predictors))
        return xp.stack(list(parts), axis=1)

    def _plain(self, layout: tuple[int, ...]) -> bool:
        return layout == tuple(range(self.n_predictors))

    def split_potentials(self, x: Array, layout: tuple[int, ...]) -> list[Array]:
        """(N, P) -> one flat vector a block: its rows once for each potential they have."""
        if self._plain(layout):
            return self.split(x)
        xp = namespace(x)
        own = [[p for p, c in enumerate(layout) if c in group] for group in self.groups]
        return [xp.concat([x[:, p] for p in ps]) for ps in own]

    def join_potentials(self, parts: Sequence[Array], layout: tuple[int, ...]) -> Array:
        """The inverse of ``split_potentials``."""
        if self._plain(layout):
            return self.join(parts)
        xp = namespace(parts[0])
        queue = [list(xp.unstack(xp.reshape(part, (-1, self.n)), axis=0)) for part in parts]
        home = {c: b for b, group in enumerate(self.groups) for c in group}
        return xp.stack([queue[home[c]].pop(0) for c in layout], axis=1)


class BlockFactor(Factor):
    """What a factorisation in blocks answers the same way in either space."""

    predictors: LatentPredictors
    blocks: Blocks
    own_latents = True

    @abstractmethod
    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        """``reduction`` of each block, flat."""

    @abstractmethod
    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        """``variance_at`` of each block, flat."""

    @abstractmethod
    def design_covariance(self, designs: Sequence[Design]) -> list[Any]:
        """W V of each block (R, L), for rows W that may be others than its own; on the pattern of a sparse W."""

    @abstractmethod
    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``sample`` of each block: (size, R)."""

    @abstractmethod
    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``sample_latents`` of each block: (L, size)."""

    def _by_observation(self, flat: Sequence[Array]) -> Array:
        """One flat vector a block over M new observations -> (M, C)."""
        return Blocks(flat[0].shape[0] // len(self.blocks.groups[0]), self.blocks.groups).join(flat)

    def reduction(self, cross: Sequence[Array]) -> Array:
        """How much the data reduce the variance of new predictors (M, C), from Cov(eta*, z) (M, L) of each block."""
        return self._by_observation(self.reduction_blocks(cross))

    def variance_at(self, designs: Sequence[Design]) -> Array:
        """diag(W* V W*') (M, C) for new rows of W, one design for each block."""
        return self._by_observation(self.variance_blocks(designs))

    def design_adjoint(self, everyone: Predictors, alpha: Array, lam: Array, mean: Array) -> list[Any]:
        assert isinstance(everyone, LatentPredictors)
        split, means = everyone.blocks.split, [mean] if mean.ndim == 1 else [mean[:, c] for c in range(mean.shape[1])]
        parts = zip(self.design_covariance(everyone.designs), split(alpha), split(lam), means, strict=True)
        return [self._design_slope(WV, a, w, m) for WV, a, w, m in parts]

    @staticmethod
    def _design_slope(WV: Any, a: Array, lam: Array, m: Array) -> Any:
        """-alpha m' - Lam W V."""
        if is_sparse(WV):
            row = np.repeat(np.arange(WV.shape[0]), np.diff(WV.indptr))
            WV.data = -a[row] * m[WV.indices] - lam[row] * WV.data
            return WV
        return -a[:, None] * m[None, :] - lam[:, None] * WV

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        draws = self.sample_blocks(size, rng)
        xp = namespace(draws[0])
        if len(draws) == 1:
            return xp.reshape(draws[0], (size, self.blocks.n, self.blocks.n_predictors))
        return xp.stack(draws, axis=2)

    def sample_latents(self, size: int, rng: np.random.Generator) -> Array:
        draws = [block.T for block in self.latent_blocks(size, rng)]
        return draws[0] if len(draws) == 1 else namespace(draws[0]).stack(draws, axis=2)


@dataclass(frozen=True, slots=True)
class Seen:
    """Latents as observations see them: one (latents, W) for each block."""

    blocks: Blocks
    latents: list[Latents]
    designs: list[Design]
    offset: Array  # (N, C)
    extra_variance: Array | float  # (N, C), or 0
    default_mean: float | None  # mu, where it is one number

    def take(self, keep: np.ndarray) -> tuple[Seen, list[np.ndarray]]:
        """By the observations ``keep`` alone, and the flat row indices of each block for them."""
        flat = []
        for group in self.blocks.groups:
            m = len(group)
            flat.append((keep[:, None] * m + np.arange(m)[None, :]).ravel())
        made: dict[int, Design] = {}  # blocks that share a design go on sharing it
        for W, rows in zip(self.designs, flat, strict=True):
            if id(W) not in made:
                made[id(W)] = W.take(rows)
        xp, index, c = namespace(self.offset), asarray_index(keep, self.offset), self.extra_variance
        out = replace(
            self,
            blocks=Blocks(keep.size, self.blocks.groups),
            designs=[made[id(W)] for W in self.designs],
            offset=xp.take(self.offset, index, axis=0),
            extra_variance=c if isinstance(c, float) else xp.take(c, index, axis=0),
        )
        return out, flat


def _seen_mean(W: Design, mean: Array) -> Array:
    """W mean; of a mean of zero without a pass over W."""
    if isinstance(mean, np.ndarray) and not mean.any():
        return np.zeros(W.shape[0])
    return W.times(mean)


class LatentPredictors(Predictors):
    """Predictors built on ``Latents``: one (latents, W) for each block."""

    def __init__(self, seen: Seen) -> None:
        self.seen, self.blocks = seen, seen.blocks
        self.latents, self.designs, self.offset = seen.latents, seen.designs, seen.offset
        self.extra_variance, self.default_mean = seen.extra_variance, seen.default_mean
        pairs = zip(self.latents, self.designs, strict=True)
        self.mt = self.blocks.join([_seen_mean(W, z.mean) for z, W in pairs]) + self.offset

    @property
    def variance(self) -> Array:
        pairs = zip(self.latents, self.designs, strict=True)
        return self.blocks.join([z.diagonal(W) for z, W in pairs])

    def columns(self, parts: Sequence[Array]) -> Array:
        """Latent vectors: (L,) for one block, (L, C) for several."""
        return parts[0] if len(parts) == 1 else namespace(parts[0]).stack(list(parts), axis=1)

    def latent_mean(self) -> Array:
        return self.columns([z.mean for z in self.latents])

    def adjoints(self, alpha: Array) -> list[Array]:
        flat = self.blocks.split(alpha)
        return [W.adjoint(a) for W, a in zip(self.designs, flat, strict=True)]

    def latent_shift(self, alpha: Array, weights: list[Array] | None = None) -> Array:
        return self.columns(self._shifts(alpha, weights))

    def _shifts(self, alpha: Array, weights: list[Array] | None) -> list[Array]:
        """Sigma W' alpha of each block (L,)."""
        if weights is not None and isinstance(self, HasWeights):
            return self.shifts_of(weights)
        return [z.covariance_times(a) for z, a in zip(self.latents, self.adjoints(alpha), strict=True)]  # eq:mstar

    def variance_of(self, rows: np.ndarray, factor: Factor, lam: Array) -> Array:
        assert isinstance(factor, BlockFactor)
        return factor.variance_at(self.seen.take(rows)[0].designs)

    @property
    def correlated(self) -> bool:  # type: ignore[override]
        return any(len(group) > 1 for group in self.blocks.groups)

    def lines(self) -> Lines:
        return lines_of_design(self.designs[0])

    # -- prediction --------------------------------------------------------------------------------
    def predict(
        self, factor: Factor, alpha: Array, new: NewRows, weights: list[Array] | None = None
    ) -> tuple[Array, Array | None]:
        assert isinstance(factor, BlockFactor)
        rows, m = self.new_rows(new)
        if new.design is not None:
            shifts = zip(self.latents, rows, self._shifts(alpha, weights), strict=True)
            means = [row.times(z.mean - shift) for z, row, shift in shifts]
        else:
            means = [-(row @ a) for row, a in zip(rows, self.adjoints(alpha), strict=True)]
        spread = None
        if not new.mean_only:
            spread = factor.variance_at(rows) if new.design is not None else factor.reduction(rows)
        # rounding may add eps lam S to the share of a prior variance that the data take away
        scale = float(namespace(alpha).max(factor.lam * factor.predictors.variance)) if new.cross is not None else 0.0
        return assembled(self, new, Blocks(m, self.blocks.groups).join(means), spread, 1e3 * EPS * scale)

    def new_rows(self, new: NewRows) -> tuple[list[Any], int]:
        """The new design or cross-covariance of each block, checked, and the number of new observations."""
        return new_rows(new, self.latents[0].n, len(self.latents), len(self.blocks.groups[0]), self.offset)
