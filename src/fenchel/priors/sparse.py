"""A sparse prior precision: z ~ N(mean, Q^-1), eta = design z + offset. No dense matrix of size N or L is formed.

    A = Q + W' Lam W = L L',    log|B| = log|A| - log|Q|,    V = A^-1 (eq:Vstar),    rho_n = (W A^-1 W')_nn

All matrices share one pattern, that of Q and W'W together, analysed once. With T the sparse map from lam to the entries
of W' diag(lam) W, the entries of A are q + T lam, and rho = T' z, z the selected inverse on the same entries.

Newton's curvature is S + 1/2 Vt o Vt. Its cheap part S + 1/2 diag(rho^2) costs one more factorisation of the same
pattern; where that converges slowly (smooth priors, weak data) it preconditions conjugate gradients, whose products
(Vt o Vt) v are the derivative of -rho in the direction v, taken through the factorisation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import gates
from ..checks import problem
from ..linalg.arrays import Array, ArrayLike, to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..linalg.design import HOST, Design
from ..linalg.factorisation import Factorisation, analyse, symmetric_csc
from ..linalg.krylov import conjugate_gradients
from .base import EPS, Prior, Product
from .latent_priors import LatentPrior, checked_design
from .newton_systems import CheapCurvature, NewtonSystem, iterated
from .predictors import BlockFactor, LatentPredictors, Latents, Seen
from .row_covariances import SparseCovariances
from .sparsity import Pattern, constrained

_ALIKE = 1.5  # the most by which weights may differ for a factor of one to precondition the other: 8 rounds to 1e-8
_SOLVED = 1e-8  # relative residual of that
_FEW_ROWS = 2000  # rows up to which a dense matrix of them may stand for constraints that hold all latents
_STEEP = 150.0  # multiplications of a factorisation for each entry of L, of which a solve takes two


class SparsePrecision(LatentPrior):
    """A Gaussian prior given by its sparse precision matrix: z ~ N(mean, precision^-1), eta = design z + offset.

    Parameters
    ----------
    precision : scipy sparse (L, L)
        Symmetric positive definite, with both triangles stored; singular if ``constraints`` fix its null space, as for
        random walks and ICAR.
    mean : float or array (L,) or (L, C), default 0.0
        Prior mean of the latents.
    design : scipy sparse or array (N, L), optional
        The matrix W. Default: the identity, so that every latent is a predictor. C predictors of an observation have
        independent latents with this precision; with N * C rows (observation by observation) they share one set of
        latents and are correlated.
    offset, extra_variance
        As in ``DenseCovariance``.
    constraints : "sum-to-zero", array or scipy sparse (k, L), optional
        A matrix C with C (z - mean) = 0. "sum-to-zero": one constraint for each connected component of the precision,
        or one for all latents if it is diagonal.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from fenchel.priors import SparsePrecision
    >>> SparsePrecision(2.0 * sp.eye_array(5)).n_rows
    5
    """

    def __init__(
        self,
        precision: Any,
        mean: ArrayLike = 0.0,
        design: Any = None,
        offset: ArrayLike = 0.0,
        constraints: Any = None,
        extra_variance: ArrayLike = 0.0,
    ) -> None:
        try:
            self.precision = symmetric_csc(precision)
            self.constraint, self.factor = constrained(self.precision, constraints)
        except NotPositiveDefinite as error:
            raise problem(
                "SparsePrecision",
                f"precision is not positive definite: {error}",
                "a proper precision, or constraints that fix its null space",
                'For an intrinsic one (random walk, ICAR) pass constraints="sum-to-zero".'
                if constraints is None
                else "One constraint for each flat direction: a second-order walk has two, its level and its slope "
                "(gmrf.rw2 holds both).",
            ) from None
        self.place(HOST, self.precision.shape[0], mean, design, offset, extra_variance)

    def reweighted(self, precision: Any) -> SparsePrecision:
        """The same prior with other values in the same pattern: every symbolic analysis is reused."""
        out = copy.copy(self)
        out.__dict__.pop("pattern", None)
        out.precision = _revalued(self.precision, precision)
        pattern = self.pattern.reweighted(out.precision)
        out.factor, out.__dict__["pattern"] = pattern.base, pattern
        out.restate(precision=out.precision)
        return out

    def seen_through(self, design: Any, extra_variance: ArrayLike = 0.0) -> SparsePrecision:
        """The same latents behind a design with other values in the same pattern, and with other extra variances."""
        out = copy.copy(self)
        out.design = checked_design(type(self).__name__, design, HOST, self.precision.shape[0])
        rows = self.pattern.rows.with_values(out.design.csr())
        out.extra_variance, out.__dict__["pattern"] = extra_variance, self.pattern.with_rows(rows)
        out.restate(design=design, extra_variance=extra_variance)
        return out

    @property
    def like(self) -> Array:
        return self.precision.data

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> SparsePredictors:
        seen = self.seen(n_observations, n_predictors, lambda b, mean: SparseLatents(to_numpy(mean), self.factor))
        return SparsePredictors(seen, self.pattern)

    @cached_property
    def pattern(self) -> Pattern:
        """The symbolic analysis, made at the first fit and kept for the next."""
        return Pattern(self.precision, self.design.csr(), self.factor, self.constraint)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        def chain(m: int) -> Any:
            off = -np.ones(m - 1)
            return sp.diags_array([off, 2.4 + rng.random(m), off], offsets=[-1, 0, 1], format="csc")

        index = rng.integers(0, 4, n)
        groups = sp.csr_array((np.ones(n), (np.arange(n), index)), shape=(n, 5))
        slope = sp.hstack([groups, sp.csr_array(rng.normal(size=(n, 1)))], format="csr")
        out: list[Prior] = [
            cls(chain(n), mean=0.2, offset=0.1 * rng.normal(size=n)),
            cls(sp.block_diag([chain(5), sp.eye_array(1) * 0.5], format="csc"), design=slope, mean=rng.normal(size=6)),
        ]
        if n_predictors > 1:
            W = sp.csr_array(rng.normal(size=(n * n_predictors, 5)) * (rng.random((n * n_predictors, 5)) < 0.5))
            out.append(cls(chain(5), design=W))
        else:
            walk = sp.diags_array([-np.ones(n - 1)], offsets=[1], shape=(n, n))
            walk = sp.csc_array(sp.diags_array(np.r_[1.0, 2 * np.ones(n - 2), 1.0]) + walk + walk.T)
            both = sp.block_diag([walk, sp.eye_array(1) * 0.1], format="csc")  # a random walk and an intercept
            W = sp.hstack([sp.eye_array(n), np.ones((n, 1))], format="csr")
            out.append(cls(both, design=W, constraints=np.r_[np.ones(n), 0.0][None, :]))
        return out

    def __repr__(self) -> str:
        return f"SparsePrecision({self.precision.shape[0]} latents, {self.precision.nnz} entries, {self.n_rows} rows)"


def _revalued(known: Any, Q: Any) -> Any:
    """Q as ``symmetric_csc`` has it; where it has the pattern of a known one, by its indices and by a product.

    A matrix that is not symmetric has another product with random signs than its transpose.
    """
    same = isinstance(Q, sp.csc_array) and Q.dtype == np.float64 and Q.nnz == known.nnz
    if same and np.array_equal(Q.indptr, known.indptr) and np.array_equal(Q.indices, known.indices):
        signs = np.random.default_rng(0).choice([-1.0, 1.0], Q.shape[0])
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(Q @ signs - Q.T @ signs).max()
        if np.isfinite(off) and off <= 1e-10 * np.abs(Q.data).max():
            return sp.csc_array((Q.data.copy(), known.indices, known.indptr), shape=Q.shape)
    return symmetric_csc(Q)


class SparseLatents(Latents):
    """mu and Sigma = Q^-1, which is only ever applied."""

    def __init__(self, mean: np.ndarray, factor: Factorisation) -> None:
        self.mean, self.factor, self.n = mean, factor, factor.n

    def covariance_times(self, v: Array) -> Array:
        return self.factor.solve(v)


class SparsePredictors(LatentPredictors):
    """Predictors of a sparse precision; all blocks share its pattern."""

    draws_of = "latents"

    @property
    def negative_sites(self) -> bool:  # type: ignore[override]
        """Constraints over all latents are conditioned on, which allows fewer sites than a dense matrix would."""
        held = self.pattern.constraint
        return held is None or not len(held.C) or self.n_observations > _FEW_ROWS

    def __init__(self, seen: Seen, pattern: Pattern) -> None:
        super().__init__(seen)
        self.pattern, self.W = pattern, seen.designs[0].csr()
        self.Wt = self.W.T  # scipy makes a matrix anew at every .T
        self.small = self.W.shape[1] <= gates.ONE_THREAD_LATENTS

    @cached_property
    def variance(self) -> Array:
        each = self.pattern.base.row_variances(self.pattern.rows)
        return self.blocks.join([each] * len(self.blocks.groups))

    def apply(self, alpha: Array) -> Array:
        return self.from_weights(self.weights_of(alpha))

    def weights_of(self, alpha: Array) -> list[Array]:
        solve = self.latents[0].covariance_times
        return [solve(self.Wt @ a) for a in self.blocks.split(alpha)]

    def from_weights(self, weights: list[Array]) -> Array:
        return self.blocks.join([self.W @ u for u in weights])

    def weights_norm(self, weights: list[Array]) -> float:
        return float(sum(u @ (self.pattern.Q @ u) for u in weights))

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        """eps |u| o |Q| |u|: what a solve leaves, u'(Q u - W' alpha), and what u' Q u cancels."""
        total = EPS * quadratic * (EPS * quadratic)  # a power of Python floats raises
        Q = abs(self.pattern.Q)
        for u in map(np.abs, self.weights_of(alpha)):
            each = EPS * u * (Q @ u)
            total += float(each @ each)
        return float(np.sqrt(total))

    def shifts_of(self, weights: list[Array]) -> list[Array]:
        return weights

    def at(self, lam: Array) -> SparseFactor:
        return SparseFactor(self, lam)

    def proves_definite(self, lam: Array) -> bool:
        try:
            return all(self.pattern.lowered_factor(to_numpy(part)).definite for part in self.blocks.split(lam))
        except NotPositiveDefinite:
            return False

    def restrict(self, keep: np.ndarray) -> SparsePredictors:
        seen, rows = self.seen.take(keep)
        return SparsePredictors(seen, self.pattern.restricted(rows))


class SparseFactor(BlockFactor):
    """Q + W' Lam W of each block."""

    predictors: SparsePredictors
    covariances = SparseCovariances

    def __init__(self, predictors: SparsePredictors, lam: Array) -> None:
        self.predictors, self.blocks, self.lam = predictors, predictors.blocks, lam
        self.pattern, self.W, self.Wt = predictors.pattern, predictors.W, predictors.Wt
        self.parts = [self.pattern.factor(to_numpy(part)) for part in self.blocks.split(lam)]
        self.log_det = sum(part.log_det - self.pattern.base.log_det for part in self.parts)
        self.definite = all(part.definite for part in self.parts)

    @cached_property
    def variance(self) -> Array:
        return self.of_parts(lambda part: part.row_variances(self.pattern.rows))

    def apply(self, v: Array) -> Array:
        return self.predictors.from_weights(self.weights(v))

    @property
    def log_det_rounding(self) -> float:
        parts = sum(part.log_det_rounding**2 for part in self.parts)
        return float(parts + len(self.parts) * self.pattern.base.log_det_rounding**2) ** 0.5

    def weights_decrement(self, weights: list[Array], alpha: Array) -> float:
        total, Q = 0.0, self.pattern.Q
        for part, u, a in zip(self.parts, weights, self.blocks.split(alpha), strict=True):
            g = Q @ u - self.Wt @ a
            total += abs(float(g @ part.solve(g)))
        return total

    def weights(self, v: Array) -> list[Array]:
        return [part.solve(self.Wt @ x) for part, x in zip(self.parts, self.blocks.split(v), strict=True)]

    # -- Newton ------------------------------------------------------------------------------------
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        return iterated(self, system, SparseCurvature(self, system), system.economical)

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        square = self.variance**2
        yield self.apply, (lambda v: square * v) if economical else self.hadamard

    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v: diag(W V E V W') for E = W' diag(v) W, from V E V on the pattern."""
        return self.of_parts(lambda part, x: part.row_sandwich(self.pattern.rows, to_numpy(x)), v)

    # -- everything else ---------------------------------------------------------------------------
    def precision_adjoint(self, adjoints: Sequence[Array]) -> list[sp.csc_array]:
        """dP/dQ of each block on the pattern of Q: 1/2 (Sigma - V - (m-mu)(m-mu)')."""
        out, P = [], self.pattern
        Q = P.Q
        each, prior = np.diff(Q.indptr), P.base.inverse_at(P.places)
        for part, z, a in zip(self.parts, self.predictors.latents, adjoints, strict=True):
            shift = z.covariance_times(a)
            data = 0.5 * (prior - part.inverse_at(P.places) - shift[Q.indices] * np.repeat(shift, each))
            out.append(sp.csc_array((data, Q.indices, Q.indptr), shape=Q.shape))
        return out

    def precision_curvature(
        self, adjoints: Sequence[Array], slopes: Sequence[sp.csc_array]
    ) -> tuple[np.ndarray, np.ndarray]:
        """1/2 h_i' (Sigma - V) h_j and 1/2 (m-mu)' h_i for h_i = dQ_i (m-mu), summed over blocks."""
        curvature, squares = np.zeros((len(slopes), len(slopes))), np.zeros(len(slopes))
        for part, z, a in zip(self.parts, self.predictors.latents, adjoints, strict=True):
            shift = to_numpy(z.covariance_times(a))
            h = np.stack([dQ @ shift for dQ in slopes], axis=1)
            each = 0.5 * h.T @ (to_numpy(z.covariance_times(h)) - part.solve(h))
            curvature, squares = curvature + (each + each.T) / 2.0, squares + 0.5 * shift @ h
        return curvature, squares

    def design_covariance(self, designs: Sequence[Design]) -> list[sp.csr_array]:
        out = []
        for part, design in zip(self.parts, designs, strict=True):
            W = design.csr()
            WV = W @ self.pattern.matrix(part.inverse_data())
            row = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
            out.append(sp.csr_array((np.asarray(WV[row, W.indices]).ravel(), W.indices, W.indptr), shape=W.shape))
        return out

    def latent_variance(self) -> Array:
        return self.predictors.columns([part.inverse_diagonal() for part in self.parts])

    def variance_blocks(self, designs: Sequence[Design]) -> list[Array]:
        return [self.pattern.quadratic(part, new.csr()) for part, new in zip(self.parts, designs, strict=True)]

    def reduction_blocks(self, cross: Sequence[Array]) -> list[Array]:
        out, precision = [], self.pattern.Q
        for part, c in zip(self.parts, cross, strict=True):
            t = precision @ c.T
            out.append(np.sum(c.T * t, axis=0) - np.sum(t * part.solve(t), axis=0))
        return out

    def covariance(self) -> list[Array]:
        return [np.asarray(self.W @ part.solve(self.W.T.toarray())) for part in self.parts]

    def sample_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        return [np.asarray(self.W @ z).T for z in self.latent_blocks(size, rng)]

    def latent_blocks(self, size: int, rng: np.random.Generator) -> list[Array]:
        return [part.sample(rng.standard_normal((part.n, size))) for part in self.parts]


class SparseCurvature(CheapCurvature):
    """Newton's cheap curvature, by one more factorisation of the same pattern: X = W and H = Q + W' Jt W.

    Where factorising costs much more than solving and the weights differ little from lam, whose factor there is, that
    one preconditions conjugate gradients: the condition number is at most the range of their ratios.

    A softmax couples its classes through Jt: then the blocks W' diag(Jt_bc) W stand side by side in one matrix of C L
    latents, its pattern analysed once.
    """

    def __init__(self, factor: SparseFactor, system: NewtonSystem) -> None:
        super().__init__(factor, system)
        self.blocks, self.W, self.Wt = factor.blocks, factor.W, factor.Wt
        P, self.other = factor.pattern, None
        if self.total is None and (given := self._given(factor)) is not None:
            self.other, self.d, self.factors = 1.0 / self.d - 1.0 / given, given, factor.parts
        elif self.total is None:
            weight = self.blocks.split(system.to_predictors(self.signs**2 * self.d))
            self.factors = [P.factor(to_numpy(w)) for w in weight]
        elif len(self.blocks.groups) > 1:
            self.factors = [self._coupled(P)]
        else:
            m, flat = self.blocks.n_predictors, np.reshape(self.signs * self.d, -1)
            pool = sp.kron(sp.eye_array(self.blocks.n), np.ones((1, m)), format="csr")
            Z = pool @ self.W.multiply(flat[:, None]).tocsr()
            Q = P.matrix(P.q + P.rows.products @ np.reshape(self.d, -1))
            self.factors = [self._held(P, sp.csc_array(Q - Z.T @ sp.diags_array(1.0 / self.total) @ Z))]

    def _given(self, factor: SparseFactor) -> np.ndarray | None:
        """The d whose weights are lam, where its factor serves."""
        system = self.system
        if factor.pattern.steepness < _STEEP or system.layout != tuple(range(factor.lam.shape[1])):
            return None
        with np.errstate(all="ignore"):
            given = to_numpy(factor.lam / self.signs**2)
            ratio = given / self.d
            alike = np.min(ratio, initial=1.0) * _ALIKE >= np.max(ratio, initial=1.0) > 0.0
        return given if alike and np.isfinite(given).all() and (given > 0.0).all() else None

    def _coupled(self, P: Pattern) -> Factorisation:
        signed, C = self.signs * self.d, len(self.blocks.groups)

        def block(b: int, c: int) -> Any:
            data = -(P.rows.products @ (signed[:, b] * signed[:, c] / self.total))
            if b == c:
                data = data + P.q + P.rows.products @ (self.signs[:, b] ** 2 * self.d[:, b])
            return P.matrix(data)

        joint = sp.block_array([[block(b, c) for c in range(C)] for b in range(C)], format="csc")
        return self._held(P, joint, C)

    @staticmethod
    def _held(P: Pattern, joint: Any, copies: int = 1) -> Factorisation:
        """Factorise under the constraints, reusing the analysis of the last matrix with this pattern."""
        joint = symmetric_csc(joint)
        if P.joint is None or not P.joint.same_pattern(joint):
            P.joint = analyse(joint, P.constraint and P.constraint.repeated(copies))
        return P.joint.factor(joint.data)

    def solve(self, r: Array) -> Array:
        other, solve = self.other, super().solve
        if other is None:
            return solve(r)
        return conjugate_gradients(solve, lambda z: other * z, r, _SOLVED, max_iter=40)[0]

    def inside(self, x: Array) -> Array:
        inner = [self.Wt @ part for part in self.blocks.split(x)]
        if len(self.factors) < len(inner):
            solved = np.split(self.factors[0].solve(np.concatenate(inner)), len(inner))
        else:
            solved = [F.solve(part) for F, part in zip(self.factors, inner, strict=True)]
        return self.blocks.join([self.W @ u for u in solved])
