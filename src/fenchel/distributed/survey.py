"""What passes before a fit collect: moments of columns, different values of y, latents that rows touch together.

Each is made of the rows of one partition and added to those of others, in order; a survey is ``Sums`` of them by name.
What comes out is that of one table in memory, and none of them grows with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..linalg.moments import Moments

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class TableMoments:
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

    def columns(self) -> Moments:
        """As ``linalg.moments.column_moments`` says them."""
        square = np.diag(self.covariance) if self.about.ndim == 2 else self.covariance
        sd, one, zero = np.sqrt(np.maximum(square, 0.0)), self.low == self.high, np.zeros_like(self.mean)
        constant = one | (sd <= 4.0 * _EPS * np.abs(self.mean))
        mean, rest = np.where(one, self.low, self.mean), np.where(one, zero, self.rest)
        return Moments(mean, np.where(one, zero, sd), rest, constant)


@dataclass(frozen=True)
class ValueCounts:
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
class LatentSets:
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
