"""Priors given by the distribution of their latents: z ~ N(mean, Sigma), eta = design z + offset.

``DenseCovariance`` uses its matrix as it is: it is not inverted and no jitter is added, so a kernel matrix may be
singular up to rounding (equal inputs, long length scales). ``Features`` are linear models with Gaussian weights:
Bayesian generalised linear models and random features. Both compute with N x N or with L x L matrices, whichever are
smaller, and give the same results. ``LatentPrior`` is their base class and that of ``SparsePrecision``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, finite, number, numeric, positive, problem
from ..files import Stated
from ..linalg import dense
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy, namespace, to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..linalg.design import HOST, Design, Identity
from ..linalg.factorisation import analyse, symmetric_csc
from ..linalg.matrix_designs import Dense, Sparse, as_design, checked_indices
from .base import Predictors, Prior
from .predictors import Blocks, Latents, Seen
from .rowspace import RowPredictors
from .weightspace import WeightPredictors


class LatentPrior(Prior, Stated):
    """Base class of priors that are given by their latents: checks, and the layout of blocks."""

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
        """Check and store the design and the mean; ``like`` is an array of the library and device to use."""
        where = type(self).__name__
        self.design = checked_design(where, design, like, n_latents)
        if isinstance(self.design, (Dense, Sparse)):
            self.restate(design=self.design.X)  # keep the converted matrix rather than both
        self.mean = finite(where, "mean", numeric(where, "mean", mean))
        L = self.design.shape[1]
        if self.mean.ndim > 2 or (self.mean.ndim >= 1 and self.mean.shape[0] != L):
            raise problem(where, f"mean has shape {self.mean.shape}", f"a number, ({L},) or ({L}, C)")
        self.offset, self.extra_variance = offset, extra_variance

    @property
    def n_rows(self) -> int:
        return self.design.shape[0]

    def seen(self, n: int, C: int, latents: Callable[[int, Array], Latents], own: int | None = None) -> Seen:
        """The latents together with n observations of C predictors; ``latents(b, mean)`` makes those of a block.

        ``own``: the number of covariances if each predictor has its own; None if all share one.
        """
        where, rows, L = type(self).__name__, self.n_rows, self.design.shape[1]
        correlated = C > 1 and rows == n * C and own is None
        if not correlated and rows != n:
            wanted = f"{n} rows, one per observation" + (f", or {n * C} for correlated predictors" if C > 1 else "")
            raise problem(
                where, f"the prior has {rows} rows and y has {n} observations", wanted, "Check the lengths of y and W."
            )
        if own is not None and own != C:
            raise problem(where, f"got {own} covariances", f"{C}, one for each predictor of the likelihood")
        n_blocks, mean = 1 if correlated else C, self.mean
        if mean.ndim == 2 and mean.shape[1] != n_blocks:
            raise problem(where, f"mean has shape {mean.shape}", f"a number, ({L},) or ({L}, {n_blocks})")
        known: dict[tuple[int, bytes], Latents] = {}  # blocks with equal means and covariances share their latents
        blocks = []
        for b in range(n_blocks):
            m = np.broadcast_to(mean if mean.ndim < 2 else mean[:, b], (L,)).copy()
            key = (0 if own is None else b, m.tobytes())
            if key not in known:
                known[key] = latents(b, asarray(m, self.like))
            blocks.append(known[key])
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
    """The design W in the array library of ``like``; without one the identity, if the number of latents is known."""
    if design is None and n_latents is not None:
        return Identity(n_latents, HOST if like is None or is_numpy(like) else like)
    W = as_design(design, like, where)
    if len(W.shape) != 2 or 0 in W.shape or (n_latents is not None and W.shape[1] != n_latents):
        wanted = "(N, L)" if n_latents is None else f"(N, {n_latents}): one column per latent"
        raise problem(where, f"design has shape {tuple(W.shape)}", wanted, "W has one row per predictor.")
    return W


def checked_per_row(where: str, name: str, value: ArrayLike, n: int, C: int) -> np.ndarray:
    """Check that a number, (N,) or (N, C) is finite, and return it as an array (N, C)."""
    out = finite(where, name, numeric(where, name, value))
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim > 2 or (out.ndim == 2 and (out.shape[0] != n or out.shape[1] not in (1, C))):
        raise problem(where, f"{name} has shape {out.shape}", f"a number, ({n},) or ({n}, {C})")
    return np.broadcast_to(out, (n, C)).copy()


def in_smaller_space(seen: Seen, coupled: bool) -> RowPredictors | WeightPredictors:
    """Predictors with N x N or L x L matrices, whichever is cheaper; a softmax couples the weights: (C L) x (C L)."""
    W = seen.designs[0]
    if 2 * W.shape[1] * (len(seen.latents) if coupled else 1) <= W.shape[0]:
        return WeightPredictors(seen)
    return RowPredictors(replace(seen, designs=[W.multiplied_out()] * len(seen.designs)))


class DenseCovariance(LatentPrior):
    """A Gaussian prior given by its covariance matrix: z ~ N(mean, covariance), eta = design z + offset.

    Parameters
    ----------
    covariance : array (L, L) or (C, L, L)
        Symmetric positive semidefinite, and possibly singular: one matrix for all C predictors of an observation, or
        one for each. With several predictors a matrix of N * C rows (observation by observation) correlates them.
        Arrays of numpy, torch or cupy; the fit runs on their device. The matrix is not copied.
    mean : float or array (L,) or (L, C), default 0.0
        Prior mean of the latents.
    design : array (N, L), scipy sparse or ``linalg.design.Design``, optional
        The matrix W. Default: the identity, so that every latent is a predictor. With N * C rows the predictors of an
        observation are correlated.
    offset : float or array (N,) or (N, C), default 0.0
        Added to eta.
    extra_variance : float or array (N,) or (N, C), default 0.0
        Prior variance of each eta that the latents do not explain, as under inducing points. The likelihood averages
        over it, and the fit does not change it.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.priors import DenseCovariance
    >>> DenseCovariance(np.eye(3)).n_rows
    3
    """

    def __init__(
        self,
        covariance: ArrayLike,
        mean: ArrayLike = 0.0,
        design: Any = None,
        offset: ArrayLike = 0.0,
        extra_variance: ArrayLike = 0.0,
    ) -> None:
        self.covariance: Array = checked_covariance("DenseCovariance", "covariance", covariance, stacked=True)
        self.place(self.covariance, self.covariance.shape[-1], mean, design, offset, extra_variance)

    @classmethod
    def trusted(
        cls, covariance: Array, mean: ArrayLike = 0.0, design: Any = None, offset: ArrayLike = 0.0
    ) -> DenseCovariance:
        """A prior whose covariance is not checked, for kernels that are known to be positive semidefinite."""
        out = cls.__new__(cls)
        out.covariance = covariance
        out.place(out.covariance, out.covariance.shape[-1], mean, design, offset, 0.0)
        out.restate(covariance=out.covariance, mean=mean, design=design, offset=offset)
        return out

    def scaled(self, factor: float) -> DenseCovariance:
        """The same prior with its covariance multiplied by ``factor`` > 0."""
        out = copy.copy(self)
        out.covariance = float(positive("DenseCovariance", "factor", np.float64(factor))) * self.covariance
        out.restate(covariance=out.covariance)
        return out

    @property
    def like(self) -> Array:
        return self.covariance

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        Sigma, own = self.covariance, self.covariance.ndim == 3

        def latents(b: int, mean: Array) -> Latents:
            return Latents(mean, Sigma[b, ...] if own else Sigma)

        return in_smaller_space(
            self.seen(n_observations, n_predictors, latents, Sigma.shape[0] if own else None), coupled
        )

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        def kernel(m: int) -> np.ndarray:
            x = rng.normal(size=(m, 2))
            distance = ((x[:, None] - x[None]) ** 2).sum(-1)
            return 1.5 * np.exp(-0.5 * distance) + 0.1 * np.eye(m)

        wide = rng.normal(size=(n, n + 3)) / np.sqrt(n)
        out: list[Prior] = [
            cls(kernel(n), mean=0.2, offset=rng.normal(size=n) * 0.1),
            cls(kernel(n + 3), mean=rng.normal(size=n + 3), design=wide),
            cls(kernel(2), design=rng.normal(size=(n, 2))),
        ]
        if n_predictors > 1:
            out += [
                cls(np.stack([kernel(n) for _ in range(n_predictors)])),
                cls(kernel(n * n_predictors), mean=-0.1),
            ]
        return out

    def __repr__(self) -> str:
        return f"DenseCovariance({tuple(self.covariance.shape)}, {self.n_rows} rows)"


def checked_covariance(where: str, name: str, value: Any, stacked: bool) -> Array:
    """Check that a matrix (or a stack of them) is finite, symmetric and positive semidefinite; return it as float64."""
    if namespace(value) is np:
        single = getattr(value, "dtype", None) == np.float32
        hint = "A sparse precision or a covariance must be given as a dense array here."
        S: Array = numeric(where, name, value, hint)
    else:
        single = value.dtype != namespace(value).float64
        S = asarray(value, value)
    if S.ndim == 3 and stacked:
        for c in range(S.shape[0]):
            checked_covariance(where, f"{name}[{c}]", S[c, ...], False)
        return S
    if S.ndim != 2 or S.shape[0] != S.shape[1] or S.shape[0] == 0:
        raise problem(where, f"{name} has shape {tuple(S.shape)}", "a square matrix (L, L)" + " or (C, L, L)" * stacked)
    asymmetry = dense.asymmetry(S)
    if not np.isfinite(asymmetry):
        bad = np.argwhere(~np.isfinite(to_numpy(S)))[0]
        raise problem(where, f"{name}[{bad[0]}, {bad[1]}] is not finite", "finite numbers")
    scale = max(float(namespace(S).max(S)), -float(namespace(S).min(S)))
    if asymmetry > 1e-8 * scale:
        raise problem(
            where,
            f"{name} is not symmetric: entries differ from their mirror image by up to {number(asymmetry)}",
            "a symmetric matrix",
            "Use (K + K.T) / 2 if the difference is rounding.",
        )
    eps = np.finfo(np.float32 if single else np.float64).eps  # a kernel computed in float32 has its rounding
    if not dense.is_positive_semidefinite(S, dense.empty_square(S.shape[0], S), float(eps)):
        raise problem(
            where,
            f"{name} is not positive semidefinite: its smallest eigenvalue is {number(dense.smallest_eigenvalue(S))}",
            "a covariance matrix",
            "Check the kernel, or add a noise term on the diagonal if the model has one.",
        )
    return S


class Features(LatentPrior):
    """The prior of a linear model: weights z ~ N(mean, variance) on given features, eta = design z + offset.

    Parameters
    ----------
    design : array (N, L), scipy sparse or ``linalg.design.Design``
        The features, one row per observation. C predictors of an observation share it and have C sets of weights; with
        N * C rows (observation by observation) they share one set of weights and are correlated.
    variance : float or array (L,) or (L, L), default 1.0
        Prior variance of the weights: common, one for each, or a covariance matrix.
    mean : float or array (L,) or (L, C), default 0.0
        Prior mean of the weights.
    offset, extra_variance
        As in ``DenseCovariance``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.priors import Features
    >>> Features(np.ones((5, 1)), variance=10.0).n_rows
    5
    """

    def __init__(
        self, design: Any, variance: Any = 1.0, mean: Any = 0.0, offset: Any = 0.0, extra_variance: Any = 0.0
    ) -> None:
        if design is None:
            raise problem("Features", "design is None", "features X, shape (N, L)")
        self.place(None, None, mean, design, offset, extra_variance)
        L = self.design.shape[1]
        self._like = self.design.like
        if not is_numpy(variance) and namespace(variance) is np:
            variance = numeric("Features", "variance", variance)
        if np.ndim(to_numpy(variance)) == 2:
            self.variance = checked_covariance("Features", "variance", asarray(variance, self._like), False)
            if self.variance.shape[0] != L:
                raise problem("Features", f"variance has shape {tuple(self.variance.shape)}", f"({L}, {L})")
        else:
            v = numeric("Features", "variance", variance)
            if v.ndim > 1 or (v.ndim == 1 and v.shape[0] != L) or not (np.isfinite(v) & (v >= 0)).all():
                raise problem(
                    "Features",
                    f"variance of shape {v.shape} with smallest entry {v.min() if v.size else 'none'}",
                    f"a finite number >= 0, a vector ({L},) of them, or a covariance ({L}, {L})",
                    "A flat prior is improper: use a large finite variance such as 100.",
                )
            self.variance = asarray(np.broadcast_to(v, (L,)).copy(), self._like)

    def reweighted(self, variance: np.ndarray) -> Features:
        """The same prior with other variances (L,) > 0, which are not checked."""
        out = copy.copy(self)
        out.variance = asarray(np.array(variance, dtype=np.float64), self._like)
        out.restate(variance=out.variance)
        return out

    @property
    def like(self) -> Array:
        return self.variance

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        seen = self.seen(n_observations, n_predictors, lambda b, mean: Latents(mean, self.variance))
        return in_smaller_space(seen, coupled)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        import scipy.sparse as sp

        thin, wide = rng.normal(size=(n, 2)), rng.normal(size=(n, n + 2)) / np.sqrt(n)
        root = rng.normal(size=(2, 2))
        out: list[Prior] = [
            cls(thin, variance=2.0, mean=0.1),
            cls(wide, variance=rng.gamma(2.0, 0.5, n + 2)),
            cls(sp.csr_array(thin * (rng.random((n, 2)) < 0.7)), variance=[1.0, 3.0]),
            cls(thin, variance=root @ root.T + 0.1 * np.eye(2), offset=0.3),
        ]
        if n_predictors > 1:
            out.append(cls(rng.normal(size=(n * n_predictors, 3)), variance=1.5))
        return out

    def __repr__(self) -> str:
        return f"Features({self.n_rows} rows, {self.design.shape[1]} weights)"


# -- Linear constraints C x = 0 of a sparse prior ------------------------------------------------
_APART = 1e-6  # squared distance of a unit row from the span of the others from which rows count as independent


def checked_constraints(Q: Any, constraints: Any) -> sp.csr_array:
    """Check that constraints are independent, and return C (k, L) with rows of length 1."""
    L = Q.shape[0]
    if isinstance(constraints, str):
        choice("SparsePrecision", "constraints", constraints, ("sum-to-zero",))
        C = _sums(Q)
    elif sp.issparse(constraints):
        C = sp.csr_array(checked_indices("SparsePrecision", "constraints", constraints)).astype(np.float64)
        finite("SparsePrecision", "constraints", C.data)
    else:
        dense = np.atleast_2d(numeric("SparsePrecision", "constraints", constraints))
        C = sp.csr_array(finite("SparsePrecision", "constraints", dense)) if dense.ndim == 2 else dense
    if C.ndim != 2 or C.shape[1] != L or not _independent(C := _unit_rows(C)):
        raise problem(
            "SparsePrecision", f"constraints of shape {C.shape}", f"(k, {L}), its rows independent of each other"
        )
    return C


def _sums(Q: Any) -> sp.csr_array:
    """Sum-to-zero constraints: one row for each connected component of Q.

    If Q is diagonal there is one constraint on the sum of all latents, since a constraint for each would fix it at 0.
    """
    parts, label = sp.csgraph.connected_components(Q, directed=False)
    if parts == label.size and (Q.diagonal() > 0.0).all():
        parts, label = 1, np.zeros_like(label)
    return sp.csr_array((np.ones(label.size), (label, np.arange(label.size))), shape=(parts, label.size))


def _unit_rows(C: sp.csr_array) -> sp.csr_array:
    """Rows scaled to length 1 (a row of zeros stays); they are first divided by the largest entry, against overflow."""
    for size in (lambda values: np.abs(values).max(initial=0.0), np.linalg.norm):
        each = np.array([size(values) for values in np.split(C.data, C.indptr[1:-1])])
        C = sp.csr_array(
            (C.data / np.repeat(np.where(each > 0.0, each, 1.0), np.diff(C.indptr)), C.indices, C.indptr), C.shape
        )
    C.eliminate_zeros()
    return C


def _independent(C: sp.csr_array) -> bool:
    """Whether unit rows are linearly independent: by the pivots of C C', or if those are small by singular values."""
    if (np.diff(C.indptr) == 0).any():
        return False
    products = symmetric_csc(C @ C.T)
    if products.nnz == C.shape[0]:  # no two share a latent
        return True
    try:
        if analyse(products).factor(products.data).smallest_pivot > _APART:
            return True
    except NotPositiveDefinite:
        pass
    return int(np.linalg.matrix_rank(C.toarray())) == C.shape[0]
