"""What both engines share: C independent blocks of N rows, or one block of N*C correlated rows.

A block b holds the predictors ``groups[b]``; its vectors are (N, C)[:, group] flattened observation by observation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..linalg.arrays import Array, asarray, namespace, to_numpy
from ..linalg.dense import asarray_index
from ..linalg.design import Design
from ..linalg.matrices import as_design
from .base import EPS, Factor, NewRows, NewtonSystem, Predictors
from .latents import Latents

_LOST = 1e-6  # of a prior variance: a posterior one below minus this is no rounding


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

    def gather(self, x: Array, layout: tuple[int, ...]) -> Array:
        """Potentials (N, P) summed into their predictors (N, C)."""
        if self._plain(layout):
            return x
        xp, C = namespace(x), self.n_predictors
        columns = [sum((x[:, p] for p, k in enumerate(layout) if k == c), 0.0 * x[:, 0]) for c in range(C)]
        return xp.stack(columns, axis=1)

    def spread(self, x: Array, layout: tuple[int, ...]) -> Array:
        """Predictors (N, C) repeated for their potentials (N, P)."""
        return x if self._plain(layout) else namespace(x).stack([x[:, c] for c in layout], axis=1)


class BlockFactor(Factor):
    """What a factorisation in blocks answers the same way in either space."""

    predictors: LatentPredictors
    blocks: Blocks

    @abstractmethod
    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        """``reduction`` of each block, flat."""

    @abstractmethod
    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        """``variance_at`` of each block, flat."""

    @abstractmethod
    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``sample`` of each block: (size, R)."""

    @abstractmethod
    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``sample_latents`` of each block: (L, size)."""

    def curvature_product(self, system: NewtonSystem, v: Array) -> Array:
        blocks, layout = self.blocks, system.layout
        S_part = self.predictors.apply(blocks.gather(system.signs * v, layout))
        V_part = self.hadamard(blocks.gather(system.slope * v, layout))
        return system.signs * blocks.spread(S_part, layout) + 0.5 * system.slope * blocks.spread(V_part, layout)

    @staticmethod
    def mirror(system: NewtonSystem, dtau: Array, ds: Array) -> Array:
        """ds = J^-1 dtau without the cancellation of ds = -g - M dtau under a wide prior.

        dtau / spread is exact row by row; ``ds``, that other form, serves where spread underflowed, and for the common
        shift of potentials that share a normalisation without slack.
        """
        xp = namespace(dtau)
        live = system.spread > 0.0
        ratio = dtau / xp.where(live, system.spread, xp.ones_like(dtau))
        if system.slack is not None:  # J^-1 = diag(1/spread) + 1 1'/slack
            total = xp.sum(system.spread, axis=1)
            apart = xp.where(live, system.spread * (ds - ratio), xp.zeros_like(ds))
            open_ = system.slack > 1e-6 * total
            direct = xp.sum(dtau, axis=1) / xp.where(open_, system.slack, xp.ones_like(total))
            indirect = xp.sum(apart, axis=1) / xp.where(total > 0.0, total, xp.ones_like(total))
            ratio = ratio + xp.where(open_, direct, indirect)[:, None]
        return xp.where(live, ratio, ds)

    def _by_observation(self, flat: Sequence[Array]) -> Array:
        """One flat vector a block over M new observations -> (M, C)."""
        return Blocks(flat[0].shape[0] // len(self.blocks.groups[0]), self.blocks.groups).join(flat)

    def reduction(self, cross: Sequence[Array]) -> Array:
        return self._by_observation(self.reduction_blocks(cross))

    def variance_at(self, designs: Sequence[Design]) -> Array:
        return self._by_observation(self.variance_blocks(designs))

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        draws = self.sample_blocks(size, rng)
        xp = namespace(draws[0])
        if len(draws) == 1:
            return xp.reshape(draws[0], (size, self.blocks.n, self.blocks.n_predictors))
        return xp.stack(draws, axis=2)

    def sample_latents(self, size: int, rng: np.random.Generator) -> Array:
        draws = [block.T for block in self.latent_blocks(size, rng)]
        return draws[0] if len(draws) == 1 else namespace(draws[0]).stack(draws, axis=2)


class LatentPredictors(Predictors):
    """Predictors built on ``Latents``: one (latents, W) for each block."""

    def __init__(
        self,
        blocks: Blocks,
        latents: Sequence[Latents],
        designs: Sequence[Design],
        offset: Array,
        default_mean: float | None,
    ) -> None:
        self.blocks, self.latents, self.designs = blocks, list(latents), list(designs)
        self.n_observations, self.n_predictors = blocks.n, blocks.n_predictors
        self.offset, self.default_mean = offset, default_mean
        pairs = zip(self.latents, self.designs, strict=True)
        self.mt = blocks.join([W.times(z.mean) for z, W in pairs]) + offset

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
        if weights is not None:
            return self.shifts_of(weights)
        return [z.covariance_times(a) for z, a in zip(self.latents, self.adjoints(alpha), strict=True)]  # eq:mstar

    def shifts_of(self, weights: list[Array]) -> list[Array]:
        """The same from the weights of alpha."""
        raise NotImplementedError("these predictors have no weights of their own")

    def variance_of(self, factor: Factor) -> Array:
        return factor.variance_at(self.designs) + self.extra_variance

    @property
    def correlated(self) -> bool:  # type: ignore[override]
        return any(len(group) > 1 for group in self.blocks.groups)

    def keep_rows(self, keep: np.ndarray) -> tuple[Blocks, list[Design], Array, list[np.ndarray]]:
        """Blocks, designs, offset and the flat row indices of each block for the observations ``keep``."""
        flat = []
        for group in self.blocks.groups:
            m = len(group)
            flat.append((keep[:, None] * m + np.arange(m)[None, :]).ravel())
        made: dict[int, Design] = {}  # blocks that share a design go on sharing it
        for W, rows in zip(self.designs, flat, strict=True):
            if id(W) not in made:
                made[id(W)] = W.take(rows)
        designs = [made[id(W)] for W in self.designs]
        offset = namespace(self.offset).take(self.offset, asarray_index(keep, self.offset), axis=0)
        return Blocks(keep.size, self.blocks.groups), designs, offset, flat

    # -- prediction --------------------------------------------------------------------------------
    def predict(
        self, factor: Factor, alpha: Array, new: NewRows, weights: list[Array] | None = None
    ) -> tuple[Array, Array | None]:
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
        scale = float(namespace(alpha).max(factor.lam * factor.predictors.variance)) if new.cross is not None else 0.0  # type: ignore[attr-defined]
        return self.assemble(new, Blocks(m, self.blocks.groups).join(means), spread, max(_LOST, 1e3 * EPS * scale))

    def assemble(
        self, new: NewRows, mean: Array, spread: Array | None, lost: float = _LOST
    ) -> tuple[Array, Array | None]:
        """Mean and variance (M, C) from W* m and its variance, or from what the latents say and how much they know."""
        m = mean.shape[0]
        mean = mean + self._per_row("offset", new.offset, m)
        if new.design is not None:
            return mean, spread
        if new.variance is None and not new.mean_only:
            raise problem(
                "posterior.predict", "variance is missing", "the prior variance of each new predictor with cross"
            )
        given = self.default_mean if new.mean is None else new.mean
        if given is None:
            raise problem(
                "posterior.predict",
                "mean is missing",
                "the prior mean at the new points, because the prior's own mean is a vector",
                "Pass mean=....",
            )
        mean = mean + self._per_row("mean", given, m)
        if spread is None:
            return mean, None
        prior = self._per_row("variance", new.variance, m)
        left = prior - spread
        xp = namespace(left)
        if bool(xp.any(left < -lost * (1.0 + prior))):
            raise problem(
                "posterior.predict",
                "cross and variance contradict each other: a posterior variance would be negative",
                "variance = Var(eta*) and cross = Cov(eta*, z) of one prior",
                "Check that both come from the kernel of the fit.",
            )
        return mean, xp.where(left > 0.0, left, xp.zeros_like(left))

    def _per_row(self, name: str, value: Any, m: int) -> Array:
        """A number, (M,) or (M, C) as (M, C) on the prior's device."""
        C = self.n_predictors
        if hasattr(value, "__array_namespace__") or hasattr(value, "detach"):
            value = to_numpy(value)
        out = finite("posterior.predict", name, numeric("posterior.predict", name, value))
        if name == "variance" and (out < 0.0).any():
            raise problem("posterior.predict", f"variance reaches {out.min():g}", "numbers >= 0")
        if out.ndim == 1 and out.shape[0] == m:
            out = out[:, None]
        if out.ndim not in (0, 2) or (out.ndim == 2 and (out.shape[0] != m or out.shape[1] not in (1, C))):
            raise problem("posterior.predict", f"{name} has shape {out.shape}", f"a number, shape ({m},) or ({m}, {C})")
        return asarray(np.broadcast_to(out, (m, C)), self.offset)

    def new_rows(self, new: NewRows) -> tuple[list[Any], int]:
        """The new design or cross-covariance of each block, checked, and the number of new observations."""
        if (new.design is None) == (new.cross is None):
            raise problem(
                "posterior.predict",
                "got both or neither of design and cross",
                "one of them: new rows of W, or the covariance of new predictors with the latents",
            )
        where, name = "posterior.predict", "design" if new.design is not None else "cross"
        value = new.design if new.design is not None else new.cross
        L, n_blocks = self.latents[0].n, len(self.latents)
        width = len(self.blocks.groups[0])
        if name == "design":
            W = as_design(value, self.offset, where)
            rows: list[Any] = [W] * n_blocks
            shape = tuple(W.shape)
        else:
            host = namespace(value) is np
            value = asarray(finite(where, name, numeric(where, name, value)) if host else value, self.offset)
            own = value.ndim == 3 and value.shape[0] == n_blocks
            rows = [value[b, ...] for b in range(n_blocks)] if own else [value] * n_blocks
            shape = tuple(value.shape)
        if len(rows[0].shape) != 2 or rows[0].shape[1] != L or rows[0].shape[0] % width:
            per = f"a multiple of {width} rows" if width > 1 else "any number of rows"
            raise problem(where, f"{name} has shape {shape}", f"{L} columns and {per}")
        return rows, rows[0].shape[0] // width
