"""A prior of C predictors seen through contrasts of them, and its posterior seen through the predictors again.

    eta = (eta_1, ..., eta_C),  z = (z_1, ..., z_C)      independent classes a priori, or one set of latents for all
    contrasts D eta (N, P), each with a lam of its own:   V^-1 = Sigma^-1 + sum_n W_n' D' diag(lam_n) D W_n

To a solver the contrasts are P correlated predictors of one block, whose latents are all classes' together: in the
space of the weights where the prior is dense, on one pattern where its precision is sparse. The posterior joins the
classes, and ``ClassesFactor`` answers for them: marginals of each, covariances across them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..linalg.arrays import Array, is_numpy, to_numpy
from ..linalg.design import Design, Scaled
from ..linalg.matrix_designs import Sparse
from ..linalg.standardized import Contrasts, block_diagonal, contrast_rows
from .base import Factor, Predictors
from .predictors import BlockFactor, Blocks, LatentPredictors, Latents, Seen
from .rowspace import RowPredictors
from .sparse import SparseFactor, SparseLatents, SparsePrecision, SparsePredictors
from .weightspace import WeightPredictors, WeightsFactor


def contrasted(predictors: Predictors, D: np.ndarray, name: str) -> tuple[LatentPredictors, LatentPredictors]:
    """The predictors of classes by their latents, and their contrasts D (P, C) as P predictors of one block."""
    classes = _by_latents(predictors, name)
    return classes, _contrasts(classes, D)


def _by_latents(predictors: Predictors, name: str) -> WeightPredictors | SparsePredictors:
    if isinstance(predictors, RowPredictors) and is_numpy(predictors.mt):
        predictors = WeightPredictors(predictors.seen)
    if not isinstance(predictors, WeightPredictors | SparsePredictors) or not is_numpy(predictors.mt):
        got = f'bound="exact" meets {type(predictors).__name__} in another library, or without latents'
        raise problem(name, got, "Features, DenseCovariance or SparsePrecision in numpy", 'Use bound="tilted".')
    if isinstance(predictors, WeightPredictors) and len({X.shape[1] for X in predictors.features}) > 1:
        latents = [_by_eigenvectors(z) for z in predictors.latents]  # covariances of different ranks
        predictors = WeightPredictors(replace(predictors.seen, latents=latents))
    return predictors


def _by_eigenvectors(latents: Latents) -> Latents:
    """The same latents with a root (L, L) of eigenvectors, some of which may be 0."""
    values, vectors = np.linalg.eigh(to_numpy(latents.covariance()))
    out = Latents(latents.mean, latents.Sigma)
    out.__dict__["root"] = vectors * np.sqrt(np.maximum(values, 0.0))
    return out


def _contrasts(classes: WeightPredictors | SparsePredictors, D: np.ndarray) -> LatentPredictors:
    seen, n, P = classes.seen, classes.n_observations, D.shape[0]
    extra = seen.extra_variance
    frame = replace(
        seen,
        blocks=Blocks(n, [tuple(range(P))]),
        offset=to_numpy(seen.offset) @ D.T,
        extra_variance=extra if isinstance(extra, float) else to_numpy(extra) @ (D**2).T,
        default_mean=None,
    )
    if isinstance(classes, SparsePredictors):
        return _sparse(classes, frame, D)
    if len(seen.latents) == 1:  # one set of latents for all predictors
        return WeightPredictors(replace(frame, latents=[seen.latents[0]], designs=[_combined(seen.designs[0], D)]))
    X = classes.features
    design = Contrasts(seen.designs, D)
    same = all(x.base is W for x, W in zip(X, seen.designs, strict=True))
    base = design if same else Contrasts([x.base for x in X], D)
    features = Scaled(base, np.concatenate([to_numpy(x.scale) for x in X]))
    return WeightPredictors(replace(frame, latents=[_stacked(seen.latents)], designs=[design]), [features])


def _combined(design: Design, D: np.ndarray) -> Design:
    """D (P, C) of every C rows of a design (N C, L), as a matrix (N P, L)."""
    n = design.shape[0] // D.shape[1]
    return Sparse(sp.csr_array(sp.kron(sp.eye_array(n), sp.csr_array(D), format="csr") @ design.csr()))


def _stacked(latents: Sequence[Latents]) -> Latents:
    """The latents of all classes, one after the other and independent."""
    mean = np.concatenate([to_numpy(z.mean) for z in latents])
    out = Latents(mean, block_diagonal([to_numpy(z.Sigma) for z in latents]))
    out.__dict__["root"] = block_diagonal([to_numpy(z.root) for z in latents])
    return out


def _sparse(classes: SparsePredictors, frame: Seen, D: np.ndarray) -> SparsePredictors:
    """The same of a sparse precision; the pattern is analysed once for all values of Q."""
    P, copies = classes.pattern, len(classes.latents)
    key = f"contrasts {D.shape}"
    Q = P.Q if copies == 1 else sp.csc_array(sp.kron(sp.eye_array(copies), P.Q, format="csc"))
    prior: SparsePrecision | None = P.shared.get(key)
    if prior is None:
        rows = _combined(classes.designs[0], D) if copies == 1 else Sparse(contrast_rows([classes.W] * copies, D))
        given = None if P.constraint is None else P.constraint.given
        held = None if given is None else sp.kron(sp.eye_array(copies), given, format="csr")
        prior = P.shared[key] = SparsePrecision(Q, design=rows, constraints=held)
    else:
        prior = prior.reweighted(Q)
    mean = np.concatenate([to_numpy(z.mean) for z in classes.latents])
    latents: list[Latents] = [SparseLatents(mean, prior.factor)]
    return SparsePredictors(replace(frame, latents=latents, designs=[prior.design]), prior.pattern)


class ClassesFactor(BlockFactor):
    """A factor of contrasts, answering for the predictors themselves: those of all observations.

    ``lam`` (N, C) is the diagonal of ``Lam`` (N, C, C), the curvature of each observation.
    """

    predictors: LatentPredictors

    def __init__(self, classes: LatentPredictors, joint: BlockFactor, lam: Array, D: np.ndarray) -> None:
        self.predictors, self.blocks, self.joint, self.D = classes, classes.blocks, joint, D
        self.copies = len(classes.latents)
        self.Lam = np.einsum("np,pk,pl->nkl", to_numpy(lam), D, D, optimize=True)
        self.lam = np.einsum("nkk->nk", self.Lam).copy()
        self.log_det = joint.log_det

    @property
    def log_det_rounding(self) -> float:
        return self.joint.log_det_rounding

    def split(self, u: Array) -> list[Array]:
        """Weights or latents (C L, ...) of all classes as those of each; one set of latents stays whole."""
        return list(np.split(to_numpy(u), self.copies))

    def _rows(self, designs: Sequence[Design], sums: np.ndarray | None = None) -> Design:
        """The predictors of some designs, or sums (S, C) of them, as rows over all latents (M S, C L)."""
        if self.copies == 1:
            return designs[0] if sums is None else _combined(designs[0], sums)
        sums = np.eye(self.copies) if sums is None else sums
        return self._contrasted(designs, sums)

    @abstractmethod
    def _contrasted(self, designs: Sequence[Design], sums: np.ndarray) -> Design:
        """The same of several sets of latents."""

    def predictor_rows(self, designs: Sequence[Design]) -> Design:
        """The predictors of some designs as rows over all latents (M C, C L), each of which may be taken alone."""
        if self.copies == 1:
            return designs[0]
        return Sparse(contrast_rows([W.csr() for W in designs], np.eye(self.copies)))

    def predictor_cross(self, cross: Sequence[Array]) -> np.ndarray:
        """Covariances of the predictors of new rows with all latents (M C, C L)."""
        return to_numpy(cross[0]) if self.copies == 1 else self._wide(cross, np.eye(self.copies))

    def _of_classes(self, flat: Array) -> list[Array]:
        """(M C,), observation by observation, as a vector for each block."""
        each = to_numpy(flat)
        return [each] if self.copies == 1 else list(each.reshape(-1, self.copies).T)

    # -- of the predictors ---------------------------------------------------------------------------
    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        return self._of_classes(self.joint.variance_blocks([self._rows(designs)])[0])

    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        if self.copies == 1:
            return self.joint.reduction_blocks(cross)
        return self._of_classes(self.joint.reduction_blocks([self._wide(cross, np.eye(self.copies))])[0])

    def _wide(self, cross: Sequence[Array], sums: np.ndarray) -> np.ndarray:
        """Covariances of sums (S, C) of the predictors of new rows with all latents (M S, C L)."""
        if self.copies == 1:
            each = to_numpy(cross[0]).reshape(-1, sums.shape[1], cross[0].shape[1])
            return np.matmul(sums, each).reshape(-1, cross[0].shape[1])
        parts = [to_numpy(c)[:, None, :] * sums[None, :, k, None] for k, c in enumerate(cross)]
        return np.concatenate(parts, axis=2).reshape(-1, self.copies * cross[0].shape[1])

    @property
    def variance(self) -> Array:
        return self.blocks.join(self.variance_blocks(self.predictors.designs))

    def covariances_at(self, rows: Sequence[Any], by_cross: bool = False) -> np.ndarray:
        """The covariance of the predictors of each new row (M, C, C), by a design for each block.

        By covariances with the latents, ``by_cross``, what the data take from the prior's, with its sign. From the
        variances of all sums of two: (Var(a + b) - Var a - Var b) / 2.
        """
        C = self.lam.shape[1]
        first, second = np.triu_indices(C, 1)
        sums = np.concatenate([np.eye(C), np.eye(C)[first] + np.eye(C)[second]])
        if by_cross:
            v = -to_numpy(self.joint.reduction_blocks([self._wide(rows, sums)])[0])
        else:
            v = to_numpy(self.joint.variance_blocks([self._rows(rows, sums)])[0])
        v = v.reshape(-1, sums.shape[0])
        m = v.shape[0]
        out = np.zeros((m, C, C))
        out[:, np.arange(C), np.arange(C)] = v[:, :C]
        out[:, first, second] = out[:, second, first] = 0.5 * (v[:, C:] - v[:, first] - v[:, second])
        return out

    def observation_covariance(self) -> Array:
        return self.covariances_at(self.predictors.designs)

    def apply(self, v: Array) -> Array:
        rows = self._rows(self.predictors.designs)
        return to_numpy(rows.times(self.solve(rows.adjoint(to_numpy(v).reshape(-1))))).reshape(v.shape)

    @abstractmethod
    def solve(self, b: Array) -> np.ndarray:
        """V b for b over all latents (C L,)."""

    def covariance(self) -> list[Array]:
        """Of all predictors (N C, N C), observation by observation."""
        rows = self._rows(self.predictors.designs).csr().toarray()
        return [rows @ np.stack([self.solve(row) for row in rows], axis=1)]

    # -- of the latents ------------------------------------------------------------------------------
    def latent_variance(self) -> Array:
        return self.predictors.columns(self.split(self.joint.latent_variance()))

    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        return self.split(self.joint.latent_blocks(size, rng)[0])

    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        rows = self._rows(self.predictors.designs)
        flat = to_numpy(rows.times(self.joint.latent_blocks(size, rng)[0]))
        return [flat.T] if self.copies == 1 else list(flat.reshape(-1, self.copies, size).transpose(1, 2, 0))

    def design_covariance(self, designs: Sequence[Design]) -> list[Any]:
        raise problem("posterior.adjoint", 'the design of a softmax under bound="exact"', 'bound="tilted"')


class DenseClassesFactor(ClassesFactor):
    """The same in the space of the weights."""

    joint: WeightsFactor

    def _contrasted(self, designs: Sequence[Design], sums: np.ndarray) -> Design:
        return Contrasts(designs, sums)

    def solve(self, b: Array) -> np.ndarray:
        root, part = to_numpy(self.joint.predictors.latents[0].root), self.joint.parts[0]
        if root.ndim == 1:
            return root * part.solve(root * b)
        return np.asarray(root @ part.solve(root.T @ b))

    def latent_covariance(self) -> list[Array]:
        """Of the latents of all classes together (C L, C L), class by class."""
        return self.joint.latent_covariance()

    def covariance_adjoint(self, adjoints: list[Array]) -> list[Array]:
        result = self.joint.covariance_adjoint([np.concatenate(adjoints)])[0]
        L = result.shape[0] // self.copies
        return [result[k * L : (k + 1) * L, k * L : (k + 1) * L] for k in range(self.copies)]


class SparseClassesFactor(ClassesFactor):
    """The same of a sparse precision."""

    joint: SparseFactor

    def _contrasted(self, designs: Sequence[Design], sums: np.ndarray) -> Design:
        return Sparse(contrast_rows([W.csr() for W in designs], sums))

    def solve(self, b: Array) -> np.ndarray:
        return np.asarray(self.joint.parts[0].solve(b))

    def precision_adjoint(self, adjoints: list[Array]) -> list[sp.csc_array]:
        result = self.joint.precision_adjoint([np.concatenate(adjoints)])[0]
        L = result.shape[0] // self.copies
        return [sp.csc_array(result[k * L : (k + 1) * L, k * L : (k + 1) * L]) for k in range(self.copies)]

    def precision_curvature(self, adjoints: list[Array], slopes: list[sp.csc_array]) -> tuple[np.ndarray, np.ndarray]:
        eye = sp.eye_array(self.copies)
        stacked = [sp.csc_array(sp.kron(eye, dQ, format="csc")) for dQ in slopes]
        return self.joint.precision_curvature([np.concatenate(adjoints)], stacked)


def classes_factor(classes: LatentPredictors, joint: Factor, lam: Array, D: np.ndarray) -> ClassesFactor:
    """The factor of contrasts, answering for the predictors."""
    kind = SparseClassesFactor if isinstance(joint, SparseFactor) else DenseClassesFactor
    return kind(classes, joint, lam, D)  # type: ignore[arg-type]
