"""Work in the N x N space of the rows: S = W Sigma W' is a dense matrix.

One Newton iteration is four Choleskys' worth of flops, in one buffer of N^2 doubles:

    B = I + Lam^1/2 S Lam^1/2 = L L'     potrf      log|B|
    L^-1                                 trtri      rho = (1 - diag B^-1) / lam, the gap
    B^-1                                 lauum      Vt = Lam^-1/2 (I - B^-1) Lam^-1/2
    K = I + q M q                        potrf      Newton's direction (row_newton.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from ..linalg import dense, orthogonal
from ..linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy
from ..linalg.design import Design, Identity, Index
from ..linalg.threads import FEW
from .base import Product
from .lines import Lines, lines_of_covariance
from .newton import NewtonSystem
from .predictors import BlockFactor, LatentPredictors, Seen
from .rebuildable import Made, Submatrix
from .row_covariances import LatentCovariances
from .row_newton import direction
from .rowblock import RowBlock, RowFactor

_LOST = 1e6  # diag(B^-1) diag(B) from which the difference of two variances has lost as much


class RowPredictors(LatentPredictors):
    """Predictors whose blocks are N x N matrices."""

    draws_of = "rows"

    def __init__(self, seen: Seen, rows: Sequence[RowBlock] | None = None) -> None:
        super().__init__(seen)
        if rows is None:
            made: dict[int, RowBlock] = {}  # predictors that share a covariance share the block
            rows = []
            for z, W in zip(self.latents, self.designs, strict=True):
                if id(z) not in made:
                    made[id(z)] = RowBlock(z.given if isinstance(W, Identity) else z.between(W, W))
                rows.append(made[id(z)])
        self.rows = list(rows)
        self.small = all(row.n <= FEW for row in self.rows)

    @property
    def variance(self) -> Array:
        if all(isinstance(W, (Identity, Index)) for W in self.designs):  # without S, which may have to be made
            return self.blocks.join([row.diagonal for row in self.rows])
        return super().variance

    def apply(self, alpha: Array) -> Array:
        parts = self.blocks.split(alpha)
        return self.blocks.join([dense.multiply_symmetric(row.S, a) for row, a in zip(self.rows, parts, strict=True)])

    def lines(self) -> Lines:
        return super().lines() if self.designs[0].picks is None else lines_of_covariance(self.rows[0].S)

    def at(self, lam: Array) -> RowsFactor:
        return RowsFactor(self, lam)

    def restrict(self, keep: np.ndarray) -> RowPredictors:
        seen, flat = self.seen.take(keep)
        made: dict[int, RowBlock] = {}
        for row, index in zip(self.rows, flat, strict=True):
            if id(row) not in made:
                given = row.given
                made[id(row)] = RowBlock(
                    Submatrix(given, index) if isinstance(given, Made) else submatrix(row.S, index)
                )
        return RowPredictors(seen, [made[id(row)] for row in self.rows])


def submatrix(S: Array, index: np.ndarray) -> Array:
    if is_numpy(S):
        return S[np.ix_(index, index)]
    xp, i = namespace(S), dense.asarray_index(index, S)
    return xp.take(xp.take(S, i, axis=0), i, axis=1)


class RowsFactor(BlockFactor):
    """The factors of all blocks, and Newton's system across them."""

    predictors: RowPredictors
    covariances = LatentCovariances

    def __init__(self, predictors: RowPredictors, lam: Array) -> None:
        self.predictors, self.blocks, self.lam = predictors, predictors.blocks, lam
        self.parts = [RowFactor(row, part) for row, part in zip(predictors.rows, self.blocks.split(lam), strict=True)]
        self.log_det = sum(part.log_det for part in self.parts)

    @cached_property
    def variance(self) -> Array:
        return self.blocks.join([part.marginals()[0] for part in self.parts])

    @cached_property
    def cavity(self) -> Array:
        return self.blocks.join([part.marginals()[1] for part in self.parts])

    def apply(self, v: Array) -> Array:
        out = []
        for part, x in zip(self.parts, self.blocks.split(v), strict=True):
            S = part.block.S
            Sx = dense.multiply_symmetric(S, x)
            out.append(Sx - dense.multiply_symmetric(S, part.middle(Sx)))
        return self.blocks.join(out)

    # -- Newton ------------------------------------------------------------------------------------
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        return direction(self, system)

    def hadamard(self, v: Array) -> Array:
        parts = self.blocks.split(v)
        return self.blocks.join([Vt**2 @ x for Vt, x in zip(self.covariance(), parts, strict=True)])

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        held, split, join = [part.products() for part in self.parts], self.blocks.split, self.blocks.join
        try:
            yield (
                lambda v: join([V.times(x) for V, x in zip(held, split(v), strict=True)]),
                lambda v: join([V.times_squared(x) for V, x in zip(held, split(v), strict=True)]),
            )
        finally:  # their memory is the next point's
            for part in self.parts:
                part.drop()

    # -- everything else ---------------------------------------------------------------------------
    def certificate(self, residual: Array, d: Array) -> float:
        total, split = 0.0, self.blocks.split
        for part, r, e in zip(self.parts, split(residual), split(d), strict=True):
            first = namespace(r).sum(r * dense.multiply_symmetric(part.block.S, r))
            total += 0.5 * (float(first) + part.products().quadratic(e))
        return total

    def covariance_adjoint(self, adjoints: Sequence[Array]) -> list[Array]:
        out, predictors = [], self.predictors
        for part, W, a in zip(self.parts, predictors.designs, adjoints, strict=True):
            G = W.pull_back(dense.symmetrised(dense.scale_symmetric(part.copy_of_B_inverse(), part.root)))
            G *= -0.5
            G += (0.5 * a)[:, None] * a[None, :]
            out.append(G)
        return out

    def design_covariance(self, designs: Sequence[Design]) -> list[Array]:
        out = []
        for part, z, seen, W in zip(self.parts, self.predictors.latents, self.predictors.designs, designs, strict=True):
            root, Linv = part.root[:, None], part.L_inverse()
            half = dense.multiply_lower(Linv, root * z.cross(seen))
            out.append(z.cross(W) - dense.multiply_lower(Linv, root * z.between(seen, W)).T @ half)
        return out

    def latent_variance(self) -> Array:
        out = []
        for part, z, W in zip(self.parts, self.predictors.latents, self.predictors.designs, strict=True):
            if isinstance(W, Identity):  # the latents are the predictors
                out.append(part.marginals()[0])
                continue
            xp, small = namespace(part.lam), z.n * (z.n + part.lam.shape[0]) <= orthogonal.AT_MOST
            lost = float(xp.max(part.marginals()[1] * (1.0 + part.lam * part.block.diagonal))) > _LOST
            if lost and small and is_numpy(part.lam) and not isinstance(W, Index):
                L = orthogonal.root_by_rows(to_numpy(z.whiten(W).toarray()), part.lam)
                out.append(np.sum(z.color(dense.solve_lower(L, np.eye(L.shape[0]), transposed=True)) ** 2, axis=1))
                continue
            left = z.variance() - part.explained(z.cross(W).T)
            left = xp.where(left > 0.0, left, xp.zeros_like(left))  # below 0 is rounding
            if isinstance(W, Index):  # those that are predictors, by the marginals, which keep their digits
                seen = to_numpy(left) + 0.0
                seen[W.index] = to_numpy(part.marginals()[0])
                left = asarray(seen, left)
            out.append(left)
        return self.predictors.columns(out)

    def latent_covariance(self) -> list[Array]:
        out = []
        for part, z, W in zip(self.parts, self.predictors.latents, self.predictors.designs, strict=True):
            half = dense.multiply_lower(part.L_inverse(), part.root[:, None] * z.cross(W))
            out.append(z.covariance() - half.T @ half)
        return out

    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        triples = zip(self.parts, self.predictors.designs, cross, strict=True)
        return [part.explained(W.times(c.T).T) for part, W, c in triples]

    def joint_reduction(self, cross: Array) -> Array:
        """What the data take off the covariance (M, M) of new rows, given that with the latents (M, L)."""
        ([part], [W]) = self.parts, self.predictors.designs
        return part.explained_jointly(W.times(cross.T).T)

    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        out = []
        for part, z, W, new in zip(self.parts, self.predictors.latents, self.predictors.designs, designs, strict=True):
            left = z.diagonal(new) - part.explained(z.between(new, W))
            out.append(namespace(left).where(left > 0.0, left, namespace(left).zeros_like(left)))
        return out

    def covariance(self) -> list[Array]:
        return [part.covariance() for part in self.parts]

    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        draws = []
        for part in self.parts:
            R = dense.semidefinite_root(part.covariance())
            draws.append((R @ asarray(rng.standard_normal((R.shape[1], size)), R)).T)
        return draws

    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        """A draw of the prior and one of noise make data of covariance B; what these data explain is taken off.

        No matrix of the latents' own size: there may be many more of them than rows.
        """
        draws, predictors = [], self.predictors
        for part, z, W in zip(self.parts, predictors.latents, predictors.designs, strict=True):
            root = part.root[:, None]
            prior = z.color(asarray(rng.standard_normal((z.root.shape[-1], size)), root))
            noise = asarray(rng.standard_normal((root.shape[0], size)), root)
            Linv = part.L_inverse()
            half = dense.multiply_lower(Linv, root * W.times(prior) + noise)
            draws.append(prior - z.cross(W).T @ (root * dense.multiply_lower(Linv, half, transposed=True)))
        return draws
