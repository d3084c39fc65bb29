"""Base classes of both engines: C independent blocks of N rows, or one block of N * C correlated rows.

A block b holds the predictors ``groups[b]``; its vectors are (N, C)[:, group] flattened observation by observation.
``Latents`` is the Gaussian z ~ N(mu, Sigma) of a block, ``Seen`` has the latents and designs W of all blocks.

New rows of a fitted prior are given by a design or by covariances with the latents:

    by design     eta* = W* z + offset*,              mean W* m,           variance diag(W* V W*')
    by cross      c = Cov(eta*, z), Var(eta*) known   mean -c' W' alpha,   variance Var(eta*) - what the data explain
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ..checks import finite, numeric, problem
from ..linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy
from ..linalg.dense import asarray_index, diagonal_matrix, diagonal_of, semidefinite_root, solve_lower
from ..linalg.design import Design, Scaled
from ..linalg.matrix_designs import array_design, as_design, is_sparse
from .base import EPS, Factor, NewRows, Predictors, Weights
from .row_covariances import SAME_LINE, Lines, lines_of_design

T = TypeVar("T")

_WHERE = "posterior.predict"
_LOST = 1e-6  # a posterior variance below minus this share of the prior one is not a rounding error


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
    """Mean and variance (M, C) from W* m and its variance, or from the reduction of a prior variance."""
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
    """Expand a number, (M,) or (M, C) to (M, C) on the device of the prior."""
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
    """Predictions for a prior whose latents are its predictors: one product with Vt for each new row."""
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


class Latents:
    """Latents z ~ N(mu, Sigma): mu (L,), and Sigma as a vector (L,) of variances or a matrix (L, L)."""

    def __init__(self, mean: Array, Sigma: Array) -> None:
        self.mean, self.Sigma = mean, Sigma
        self.n = mean.shape[0]
        self.diagonal_only = Sigma.ndim == 1

    # -- covariance --------------------------------------------------------------------------------
    def covariance(self) -> Array:
        """Sigma as a matrix (L, L)."""
        return diagonal_matrix(self.Sigma) if self.diagonal_only else self.Sigma

    def variance(self) -> Array:
        """diag Sigma (L,)."""
        return self.Sigma if self.diagonal_only else diagonal_of(self.Sigma)

    def covariance_times(self, v: Array) -> Array:
        """Sigma v for v (L,)."""
        return self.Sigma * v if self.diagonal_only else self.Sigma @ v

    def cross(self, W: Design) -> Array:
        """W Sigma (R, L): the covariance of W z with z."""
        return W.toarray() * self.Sigma[None, :] if self.diagonal_only else W.times(self.Sigma)

    def between(self, W1: Design, W2: Design) -> Array:
        """W1 Sigma W2' (R1, R2)."""
        return W2.beside(self.cross(W1))

    def diagonal(self, W: Design) -> Array:
        """diag(W Sigma W')."""
        return W.row_norms(self.Sigma) if self.diagonal_only else W.row_products(self.Sigma)

    # -- whitening: z = mu + R u, u ~ N(0, I) ------------------------------------------------------
    @cached_property
    def root(self) -> Array:
        """R with R R' = Sigma: a vector of standard deviations, or a matrix (L, r)."""
        return namespace(self.Sigma).sqrt(self.Sigma) if self.diagonal_only else semidefinite_root(self.Sigma)

    def whiten(self, W: Design) -> Scaled:
        """X = W R, the features of the whitened latents: W itself with its columns scaled, or multiplied out."""
        R = self.root
        if R.ndim == 1:
            return Scaled(W, R)
        return Scaled(array_design(W.times(R)), namespace(R).ones_like(R[0, :]))

    def whiten_cross(self, cross: Array) -> Array:
        """X* such that X* u is the part of eta* that the latents explain, from Cov(eta*, z) (M, L)."""
        R, xp = self.root, namespace(cross)
        if R.ndim == 1:
            return cross / xp.where(R > 0.0, R, xp.ones_like(R))[None, :]
        if R.shape[0] == R.shape[1] and not bool(xp.any(xp.triu(R, k=1) != 0.0)):
            return solve_lower(R, cross.T).T
        squares = xp.sum(R * R, axis=0)  # R'R is diagonal: eigenvectors
        return cross @ (R / xp.where(squares > 0.0, squares, xp.ones_like(squares))[None, :])

    def color(self, u: Array) -> Array:
        """R u for u (r, M)."""
        return self.root[:, None] * u if self.root.ndim == 1 else self.root @ u


class Blocks:
    """Converts vectors between (N, C) and one flat vector for each block."""

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
        """One flat (R,) for each block -> (N, C)."""
        if self.n_predictors == 1:
            return parts[0][:, None]
        xp = namespace(parts[0])
        if len(self.groups) == 1:
            return xp.reshape(parts[0], (-1, self.n_predictors))
        return xp.stack(list(parts), axis=1)

    def _plain(self, layout: tuple[int, ...]) -> bool:
        return layout == tuple(range(self.n_predictors))

    def split_potentials(self, x: Array, layout: tuple[int, ...]) -> list[Array]:
        """(N, P) -> one flat vector for each block, with each row once for each of its potentials."""
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
    """Base class of factorisations in blocks, in either space."""

    predictors: LatentPredictors
    blocks: Blocks
    parts: Sequence[Any]  # the factor of each block
    own_latents = True

    @abstractmethod
    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        """``reduction`` of each block, flat."""

    @abstractmethod
    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        """``variance_at`` of each block, flat."""

    @abstractmethod
    def design_covariance(self, designs: Sequence[Design]) -> list[Any]:
        """W V of each block (R, L), for any rows W; on the pattern of a sparse W."""

    @abstractmethod
    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``sample`` of each block: (size, R)."""

    @abstractmethod
    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``sample_latents`` of each block: (L, size)."""

    def of_parts(self, one: Callable[..., Array], *vectors: Array) -> Array:
        """Apply ``one(part, x, ...)`` to each block and its part of vectors (N, C); the result is (N, C)."""
        each = zip(self.parts, *map(self.blocks.split, vectors), strict=True)
        return self.blocks.join([one(*some) for some in each])

    def _by_observation(self, flat: Sequence[Array]) -> Array:
        """One flat vector for each block over M new observations -> (M, C)."""
        return Blocks(flat[0].shape[0] // len(self.blocks.groups[0]), self.blocks.groups).join(flat)

    def reduction(self, cross: Sequence[Array]) -> Array:
        """The reduction (M, C) of the variance of new predictors by the data, from Cov(eta*, z) (M, L)."""
        return self._by_observation(self.reduction_blocks(cross))

    def variance_at(self, designs: Sequence[Design]) -> Array:
        """diag(W* V W*') (M, C) for new rows of W, one design for each block."""
        return self._by_observation(self.variance_blocks(designs))

    def design_adjoint(self, everyone: Any, alpha: Array, lam: Array, mean: Array) -> list[Any]:
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


def made_once(make: Callable[..., T], *parts: Sequence[Any]) -> list[T]:
    """Call ``make`` with the parts of each block; blocks with identical parts share the result."""
    made: dict[tuple[int, ...], T] = {}
    out = []
    for each in zip(*parts, strict=True):
        key = tuple(map(id, each))
        if key not in made:
            made[key] = make(*each)
        out.append(made[key])
    return out


@dataclass(frozen=True, slots=True)
class Seen:
    """The latents and the design W of each block, with offset and extra variance."""

    blocks: Blocks
    latents: list[Latents]
    designs: list[Design]
    offset: Array  # (N, C)
    extra_variance: Array | float  # (N, C), or 0
    default_mean: float | None  # mu, if it is one number

    def take(self, keep: np.ndarray) -> tuple[Seen, np.ndarray]:
        """The part for the observations ``keep``, and their row indices in a block (blocks are equally wide)."""
        m = len(self.blocks.groups[0])
        rows = (keep[:, None] * m + np.arange(m)[None, :]).ravel()
        xp, index, c = namespace(self.offset), asarray_index(keep, self.offset), self.extra_variance
        out = replace(
            self,
            blocks=Blocks(keep.size, self.blocks.groups),
            designs=made_once(lambda W: W.take(rows), self.designs),
            offset=xp.take(self.offset, index, axis=0),
            extra_variance=xp.take(c, index, axis=0) if np.ndim(c) else c,
        )
        return out, rows


def _seen_mean(W: Design, mean: Array) -> Array:
    """W mean; 0 without a pass over W if the mean is 0."""
    if is_numpy(mean) and not mean.any():
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

    @abstractmethod
    def restrict(self, keep: np.ndarray) -> LatentPredictors: ...

    def columns(self, parts: Sequence[Array]) -> Array:
        """Join vectors of latents: (L,) for one block, (L, C) for several."""
        return parts[0] if len(parts) == 1 else namespace(parts[0]).stack(list(parts), axis=1)

    def latent_mean(self) -> Array:
        return self.columns([z.mean for z in self.latents])

    def adjoints(self, alpha: Array) -> list[Array]:
        flat = self.blocks.split(alpha)
        return [W.adjoint(a) for W, a in zip(self.designs, flat, strict=True)]

    def latent_shift(self, alpha: Array, weights: Weights | None = None) -> Array:
        return self.columns(self._shifts(alpha, weights))

    def shifts_of(self, weights: Weights) -> list[Array]:
        """Sigma W' alpha of each block (L,), the shift of the mean of z, from the weights of alpha."""
        raise NotImplementedError

    def _shifts(self, alpha: Array, weights: Weights | None) -> list[Array]:
        """The same from alpha if there are no weights."""
        if weights is not None:
            return self.shifts_of(weights)
        return [z.covariance_times(a) for z, a in zip(self.latents, self.adjoints(alpha), strict=True)]  # eq:mstar

    def variance_of(self, rows: np.ndarray, factor: Any, lam: Array) -> Array:
        return factor.variance_at(self.seen.take(rows)[0].designs)

    @property
    def correlated(self) -> bool:  # type: ignore[override]
        return any(len(group) > 1 for group in self.blocks.groups)

    def lines(self, same: float = SAME_LINE) -> Lines:
        return lines_of_design(self.designs[0], same)

    # -- prediction --------------------------------------------------------------------------------
    def predict(
        self, factor: BlockFactor, alpha: Array, new: NewRows, weights: Weights | None = None
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
        # rounding may add eps lam S to the reduction of a prior variance
        scale = float(namespace(alpha).max(factor.lam * factor.predictors.variance)) if new.cross is not None else 0.0
        return assembled(self, new, Blocks(m, self.blocks.groups).join(means), spread, 1e3 * EPS * scale)

    def new_rows(self, new: NewRows) -> tuple[list[Any], int]:
        """The new design or cross-covariance of each block, checked, and the number of new observations."""
        return new_rows(new, self.latents[0].n, len(self.latents), len(self.blocks.groups[0]), self.offset)
