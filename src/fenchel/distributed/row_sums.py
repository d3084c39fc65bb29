"""What one pass over rows adds up: what rows say of q(z) = N(m, V), and, before a fit, what they hold.

    h = W m + offset,   rho = diag(W V W')                                          every row by itself
    F = sum f(h, rho),   W' alpha,   W' Lam W,   W' H W        alpha = df/dh,  lam = 2 df/drho,  H = d2f/dh2

For given (m, V) a row's dual point is a function of its own (h, rho), so rows keep nothing between passes. Everything
that is sent back is of the size of the weights, L x C and C x L x L, however many rows there are. Several points may be
evaluated in one pass, which reads the rows once. The own parameters of a likelihood come by differences at the same
(h, rho): their slopes, how these change with the parameters, and how W' alpha does.

A survey before the first fit is ``Sums`` of moments of columns, different values of y, and sets of latents that rows
touch together. What comes out is that of one table in memory, and none of them grows with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from ..files import Stated
from ..likelihoods.base import Likelihood, Rows
from ..linalg.design import Design
from ..linalg.machine import PARALLEL, one_thread, reused_memory
from ..linalg.standardized import ColumnMoments
from ..priors.base import EPS
from .partitions import Block, Sums

_LIKE = 0.05  # relative difference of H and Lam; below it one is taken for the other, since both only steer
_DIFFERENCE = 1e-4  # of a parameter of the likelihood on its learned scale
_CANCELLING = 4.0  # as in ``elbo_rounding``
_MOST = 16384  # rows at a time; the temporaries of more leave the cache


class Chunk(NamedTuple):
    """Some rows, ready for a fit.

    design : Design (n, L)
    likelihood : with these rows' own exposure, trials or event
    y : (n,), NaN where unobserved
    weight : (n,) or None
    offset : number, (n,), or (1, C): one a predictor
    extra_variance : number or (n,)
        Of eta beside what the weights explain, not learned from.
    pull : number or (n, C)
        Of a linear term -pull h of each row's loss.
    """

    design: Design
    likelihood: Likelihood
    y: np.ndarray
    weight: np.ndarray | None = None
    offset: Any = 0.0
    extra_variance: Any = 0.0
    pull: Any = 0.0


class Reader(Protocol):
    """What makes rows for a fit of a partition; it travels to the partitions, so it is small and can be pickled."""

    def chunks(self, block: Block) -> Iterator[Chunk]:
        """The rows of the partition, some at a time."""


class At(NamedTuple):
    """Where rows are evaluated: m (L, C), roots T (C, L, L) with T T' = V, the likelihood's own parameters or none."""

    mean: np.ndarray
    roots: np.ndarray
    own: np.ndarray


def chunk_rows(width: int) -> int:
    """How many rows of that many columns are looked at together: few enough for one thread."""
    return max(256, min(_MOST, PARALLEL // max(1, width) - 1))


def evaluate(block: Block, reader: Reader, points: tuple[At, ...], slopes: bool) -> Sums:
    """The sums of one partition at each point; with ``slopes`` those of the likelihood's own parameters too."""
    out: list[Sums | None] = [None] * len(points)
    with np.errstate(all="ignore"), one_thread(), reused_memory():
        for chunk in reader.chunks(block):
            for k, point in enumerate(points):
                each, before = chunk_sums(chunk, point, row_losses(chunk, point), slopes), out[k]
                out[k] = each if before is None else before + each
    return Sums({str(k): each for k, each in enumerate(out)})


def row_losses(chunk: Chunk, at: At) -> RowLosses:
    """f of the rows of a chunk at q, with its slopes."""
    likelihood = chunk.likelihood.with_theta(at.own) if at.own.size else chunk.likelihood
    rows: Rows = likelihood.prepare(chunk.y, chunk.weight)
    W, offset = chunk.design, np.asarray(chunk.offset)
    h = _columns(W.times(at.mean)) + (offset if offset.ndim == 2 else np.reshape(offset, (-1, 1)))
    rho = np.stack([np.asarray(W.row_squares(T)) for T in at.roots], axis=1)
    rho = rho + np.reshape(chunk.extra_variance, (-1, 1))
    out = RowLosses(likelihood, h, rho, rows)
    if np.ndim(chunk.pull):
        out.alpha, out.value = out.alpha - chunk.pull, out.value - np.sum(chunk.pull * h, axis=1)
    return out


def chunk_sums(chunk: Chunk, at: At, local: RowLosses, slopes: bool) -> Sums:
    """The sums of a chunk at q, given the losses of its rows there."""
    W, h, rho, likelihood, rows, w = chunk.design, local.h, local.rho, local.likelihood, local.rows, local.w
    grams = [np.asarray(W.gram(lam)) for lam in local.lam.T]
    gram = np.stack(grams) if len(grams) > 1 else grams[0][None]
    out = Sums(
        value=float(np.sum(local.value)),
        adjoint=_columns(W.adjoint(local.alpha)),
        gram=gram,
        curvature=local.curvature(W, gram),
        square=local.square(),
        n=int((w > 0.0).sum()),
    )
    if slopes and at.own.size:
        out |= _own(chunk, at.own, h, rho, likelihood, rows)
    return out


class RowLosses:
    """f of some rows with its slopes, weighted; rows of weight 0 have none."""

    def __init__(self, likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, rows: Rows) -> None:
        self.h, self.rho, self.likelihood, self.rows, bound = h, rho, likelihood, rows, likelihood.objective
        w = np.asarray(rows["weight"])
        seen = (w > 0.0)[:, None]
        if h.shape[1] == 1:
            loss = bound.loss(h, rho, rows)
            value, alpha, lam, hh = loss.value, loss.alpha[:, None], loss.lam[:, None], loss.hh[:, None]
            self.slack: np.ndarray | None = None
        else:
            dual = bound.dual
            site = dual.site(dual.maximiser(h, rho, dual.start(rows, 1.0), rows), rows)
            alpha, lam = site.alpha, site.lam
            value = np.sum(alpha * h + lam * rho / 2, axis=1) - site.k + likelihood.constant(rows)
            hh = site.spread / (1.0 - 0.5 * site.lam_curvature * dual.spread_out(rho) * site.spread)
            self.slack = np.zeros(w.size) if site.slack is None else np.asarray(site.slack)
        self.value = np.where(w > 0.0, w * value, 0.0)
        self.alpha, self.lam, self.pull = (np.where(seen, w[:, None] * x, 0.0) for x in (alpha, lam, hh))
        self.w, self.terms = w, np.where(w > 0.0, w * bound.cancelling(h, rows, dual=bound.convex), 0.0)

    def curvature(self, W: Design, gram: np.ndarray) -> np.ndarray | None:
        """W' H W, (1, 1, L, L) or (C, C, L, L): the curvature in the means."""
        pull, C = self.pull, self.pull.shape[1]
        if C == 1:
            if np.all(np.abs(pull - self.lam) <= _LIKE * np.abs(self.lam)):
                return gram[None]
            return np.asarray(W.gram(pull[:, 0]))[None, None]
        total = np.sum(pull, axis=1) + self.w * (0.0 if self.slack is None else self.slack)
        share = pull / np.where(total > 0.0, total, 1.0)[:, None]
        out = np.empty((C, C, *gram.shape[1:]))
        for c in range(C):
            for k in range(c + 1):
                own = pull[:, c] if c == k else 0.0
                out[c, k] = W.gram(own - pull[:, c] * share[:, k])
                out[k, c] = out[c, k].T
        return out

    def square(self) -> float:
        """The sum of squares of what cancels in each row: rounding of the sum is eps times its root."""
        terms = np.sum(np.abs(self.alpha * self.h) + np.abs(self.lam * self.rho) / 2, axis=1)
        terms = terms + _CANCELLING * self.terms
        return float(terms @ terms)


def _own(chunk: Chunk, own: np.ndarray, h: np.ndarray, rho: np.ndarray, likelihood: Likelihood, rows: Rows) -> Sums:
    """The slopes of -F in the likelihood's own parameters, and by differences how they and W' alpha change."""
    W, steps = chunk.design, _DIFFERENCE * np.eye(own.size)
    curvature, cross = [], []
    for step in steps:
        sides = []
        for sign in (1.0, -1.0):
            near = chunk.likelihood.with_theta(own + sign * step)
            near_rows = near.prepare(chunk.y, chunk.weight)
            alpha, weight = near.objective.loss(h, rho, near_rows).alpha, near_rows["weight"]  # it may hold them too
            sides.append((near.theta_gradient(h, rho, near_rows), np.where(weight > 0.0, weight * alpha, 0.0)))
        (up, up_alpha), (down, down_alpha) = sides
        curvature.append((down - up) / (2 * _DIFFERENCE))
        cross.append(np.asarray(W.adjoint((up_alpha - down_alpha) / (2 * _DIFFERENCE))))
    return Sums(
        own_slope=likelihood.theta_gradient(h, rho, rows), own_curvature=np.array(curvature), own_cross=np.array(cross)
    )


def _columns(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x if x.ndim == 2 else x[:, None]


# -- surveys before a fit -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TableMoments(Stated):
    """Of p columns over rows, merged in pairs about each other's means.

    Attributes
    ----------
    weight : the sum of the rows' weights
    mean, rest : arrays (p,)
        The mean, and what rounding took from it.
    about : array (p, p), or (p,) of the diagonal alone
        The sum of products about the mean.
    low, high : arrays (p,)
        The range, over rows that have a weight.
    """

    weight: float
    mean: np.ndarray
    about: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rest: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """With all products, of a dense table."""
        p, w = X.shape[1], np.ones(X.shape[0]) if weights is None else weights
        X, w, zero = X[w > 0.0], w[w > 0.0], np.zeros(p)
        if not w.size:
            return cls(0.0, zero, np.zeros((p, p)), np.full(p, np.inf), np.full(p, -np.inf), zero)
        total = float(w.sum())
        mean = X[0] + w @ (X - X[0]) / total
        Z = X - mean
        return cls(total, mean, Z.T @ (w[:, None] * Z), X.min(axis=0), X.max(axis=0), zero)

    def __add__(self, other: TableMoments) -> TableMoments:
        total = self.weight + other.weight
        if not self.weight or not other.weight:
            return self if self.weight else other
        share, away = other.weight / total, (other.mean - self.mean) + (other.rest - self.rest)
        products = np.outer(away, away) if self.about.ndim == 2 else away * away
        about = self.about + other.about + self.weight * share * products
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        mean = self.mean + share * away
        return TableMoments(total, mean, about, low, high, (self.mean - mean) + share * away + self.rest)

    @property
    def covariance(self) -> np.ndarray:
        """``about`` over the weight."""
        return self.about / self.weight if self.weight else self.about

    @property
    def size(self) -> np.ndarray:
        """The largest entry of each column."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def columns(self) -> ColumnMoments:
        """As ``linalg.standardized.column_moments`` says them."""
        square = np.diag(self.covariance) if self.about.ndim == 2 else self.covariance
        sd, one, zero = np.sqrt(np.maximum(square, 0.0)), self.low == self.high, np.zeros_like(self.mean)
        constant = one | (sd <= 4.0 * EPS * np.abs(self.mean))
        mean, rest = np.where(one, self.low, self.mean), np.where(one, zero, self.rest)
        return ColumnMoments(mean, np.where(one, zero, sd), rest, constant)


@dataclass(frozen=True)
class ValueCounts(Stated):
    """The different values of y, with what rows have beside it, and what they weigh.

    Attributes
    ----------
    keys : what rows have beside y, by name: the columns of ``at`` behind the first
    at : array (k, 1 + keys), or None
        Different values, words too; None where they are more than ``limit``.
    weight : array (k,)
    average : array (k,)
        The mean over the rows of each value of one more number, such as an exposure.
    moments : of y, where y are numbers
    limit : int, optional
    cut : bool
        Whether a share of the values stands for all.
    """

    keys: tuple[str, ...]
    at: np.ndarray | None
    weight: np.ndarray
    average: np.ndarray
    moments: TableMoments | None
    limit: int | None = None
    cut: bool = False

    @classmethod
    def of(
        cls,
        y: np.ndarray,
        beside: Mapping[str, np.ndarray],
        weights: np.ndarray,
        averaged: np.ndarray | None = None,
        limit: int | None = None,
    ) -> ValueCounts:
        """Of y (n,) and columns (n,) beside it."""
        at, each = np.column_stack([y, *beside.values()]), np.ones(y.size) if averaged is None else averaged
        moments = TableMoments.of(y[:, None].astype(np.float64), weights) if y.dtype.kind in "biuf" else None
        return cls(tuple(beside), at, weights, each, moments, limit)._counted()

    def _counted(self) -> ValueCounts:
        """Each value once."""
        if self.at is None:
            return self
        if self.at.shape[1] == 1:
            at, place = np.unique(self.at[:, 0], return_inverse=True)
            at = at[:, None]
        else:
            at, place = np.unique(self.at, axis=0, return_inverse=True)
        if self.limit is not None and len(at) > self.limit:
            return replace(self, at=None, weight=np.zeros(0), average=np.zeros(0))
        weight = np.bincount(place.ravel(), weights=self.weight, minlength=len(at))
        sums = np.bincount(place.ravel(), weights=self.weight * self.average, minlength=len(at))
        return replace(self, at=at, weight=weight, average=sums / np.where(weight > 0.0, weight, 1.0))

    def thinned(self, most: int, rng: np.random.Generator) -> ValueCounts:
        """At most so many values, drawn, that weigh as much as all."""
        if self.at is None or len(self.at) <= most:
            return self
        keep = np.sort(rng.choice(len(self.at), most, replace=False))
        weight = self.weight[keep] * (self.weight.sum() / max(self.weight[keep].sum(), 1e-300))
        return replace(self, at=self.at[keep], weight=weight, average=self.average[keep], cut=True)

    def __add__(self, other: ValueCounts) -> ValueCounts:
        moments = None if self.moments is None or other.moments is None else self.moments + other.moments
        if self.at is None or other.at is None:
            return replace(self if self.at is None else other, moments=moments)
        at = np.concatenate([self.at, other.at])
        weight, average = np.append(self.weight, other.weight), np.append(self.average, other.average)
        cut = self.cut or other.cut
        return ValueCounts(self.keys, at, weight, average, moments, self.limit, cut)._counted()

    @property
    def y(self) -> np.ndarray:
        """Those of y (k,), as often as what is beside them differs."""
        assert self.at is not None
        return self.at[:, 0]

    @property
    def beside(self) -> dict[str, np.ndarray]:
        """What rows have beside y, at the same places."""
        assert self.at is not None
        return {key: self.at[:, 1 + j] for j, key in enumerate(self.keys)}


@dataclass(frozen=True)
class LatentSets(Stated):
    """Sets of latents that rows touch together, by how many they are: {count: array (sets, count)}."""

    sets: dict[int, np.ndarray]

    @classmethod
    def of(cls, design: Any) -> LatentSets:
        """Those of the rows of a csr array."""
        each, out = np.diff(design.indptr), {}
        for k in np.unique(each).tolist():
            begin = design.indptr[:-1][each == k]
            out[k] = np.unique(np.sort(design.indices[begin[:, None] + np.arange(k)], axis=1), axis=0)
        return cls(out)

    def __add__(self, other: LatentSets) -> LatentSets:
        out = dict(self.sets)
        for k, sets in other.sets.items():
            out[k] = np.unique(np.concatenate([out[k], sets]), axis=0) if k in out else sets
        return LatentSets(out)
