"""What a model needs to know of rows that are out of memory: two passes over partitions, before the first fit.

    survey     the columns, rows that show every level and every extreme, means of numbers, what is missing
    measure    y by its values, means and covariances of fixed columns and slopes, which latents rows touch together

Answers are of the size of the levels; they are added partition by partition, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..distributed import Block
from ..linalg.moments import Moments as ColumnMoments
from .frames import missing, used

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUES = 100_000  # different values of y, or of x with knots at its quantiles, that are counted one by one
SOME = 64  # different values of x that are enough for a basis on equal steps
_EPS = float(np.finfo(np.float64).eps)


# -- the first pass -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Asked:
    """What the first pass looks for.

    Attributes
    ----------
    names : the columns that the model uses
    needed : those of them without which a row is left out
    keys : columns, or several together, of which every value is to be seen
    counted : columns of numbers of which every value is to be seen, and which have no more than ``MOST_VALUES``
    some : columns of numbers of which ``SOME`` values are to be seen
    weights : the column that says how often a row was seen, if there is one
    """

    names: tuple[Hashable, ...]
    needed: tuple[Hashable, ...]
    keys: tuple[tuple[Hashable, ...], ...]
    counted: tuple[Hashable, ...] = ()
    some: tuple[Hashable, ...] = ()
    weights: Hashable = None


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    Attributes
    ----------
    n, kept : rows, and those in which nothing is missing
    lost : how many rows each column is missing in
    sketch : rows that have every value of the keys, and the lowest and highest of every number; categories as values
    categories : of categorical columns, in the order in which partitions have them, with whether they are ordered
    means : of columns of numbers over the rows that are kept, by their weights
    weight : the sum of the weights
    """

    n: int
    kept: int
    lost: dict[Hashable, int]
    sketch: pd.DataFrame
    categories: dict[Hashable, tuple[list[Any], bool]]
    means: dict[Hashable, float]
    weight: float
    asked: Asked = field(repr=False)

    def __add__(self, other: Survey) -> Survey:
        import pandas as pd

        lost = {k: self.lost.get(k, 0) + other.lost.get(k, 0) for k in (*self.lost, *other.lost)}
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        means = {}
        for k in dict.fromkeys((*self.means, *other.means)):
            a, b = self.means.get(k, 0.0), other.means.get(k, 0.0)
            means[k] = a + share * (b - a) if self.weight and other.weight else (a if self.weight else b)
        categories = dict(self.categories)
        for name, (words, ordered) in other.categories.items():
            mine = categories.get(name, ([], ordered))[0]
            categories[name] = [*mine, *(word for word in words if word not in set(mine))], ordered
        parts = [part for part in (self.sketch, other.sketch) if len(part)]
        both = pd.concat([part.astype(object) for part in parts], ignore_index=True) if parts else self.sketch
        both = _telling(both, self.asked, [name for name in means if name in both])
        return Survey(self.n + other.n, self.kept + other.kept, lost, both, categories, means, weight, self.asked)


def survey(block: Block, asked: Asked) -> Survey:
    """The first pass over one partition."""
    frame = used("Model", block["table"], asked.names)
    bad = missing("Model", frame, asked.needed)
    lost = np.zeros(len(frame), dtype=bool)
    for each in bad.values():
        lost |= each
    frame = frame[~lost].reset_index(drop=True)
    kinds = {name: frame[name].dtype for name in asked.names}
    categories = {n: (list(k.categories), bool(k.ordered)) for n, k in kinds.items() if hasattr(k, "categories")}
    numbers = [name for name, kind in kinds.items() if getattr(kind, "kind", "O") in "biuf"]
    w = np.ones(len(frame)) if asked.weights is None else np.asarray(frame[asked.weights], dtype=np.float64)
    weight = float(w.sum())
    means = {name: _mean(frame[name].to_numpy(np.float64, na_value=np.nan), w) if weight else 0.0 for name in numbers}
    counts = {name: int(each.sum()) for name, each in bad.items()}
    sketch = _telling(frame, asked, numbers).astype(object)
    return Survey(len(lost), len(frame), counts, sketch, categories, means, weight, asked)


def _mean(x: np.ndarray, weights: np.ndarray) -> float:
    """The mean of what is there."""
    there = np.isfinite(x) & (weights > 0.0)
    return float(np.average(x[there], weights=weights[there])) if there.any() else 0.0


def _telling(frame: pd.DataFrame, asked: Asked, numbers: Sequence[Hashable]) -> pd.DataFrame:
    """The first row of every value of the keys, and those where a number is lowest and highest."""
    keep = np.zeros(len(frame), dtype=bool)
    keep[:2] = True
    for key in asked.keys:
        keep |= ~np.asarray(frame.duplicated(list(key)))
    for name in (*asked.counted, *asked.some):
        first = np.flatnonzero(~np.asarray(frame.duplicated([name])))
        if name in asked.counted and first.size > MOST_VALUES:
            got = (
                f"s({name}) has knots at the quantiles of {name!r}, which has more than {MOST_VALUES} different values"
            )
            raise problem("Model", got, "fewer", f's({name}, bs="ps") has equal steps, or round {name!r}.')
        keep[first if name in asked.counted else first[:SOME]] = True
    for name in numbers:
        values = np.asarray(frame[name], dtype=np.float64)
        if np.isfinite(values).any():
            keep[[int(np.nanargmin(values)), int(np.nanargmax(values))]] = True
    return frame[keep].reset_index(drop=True)


# -- the second pass ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Moments:
    """Of p columns over rows: the weight, the mean (p,), the sum of products about it (p, p), lowest and highest."""

    weight: float
    mean: np.ndarray
    about: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray | None = None) -> Moments:
        p = X.shape[1]
        w = np.ones(X.shape[0]) if weights is None else weights
        X, w = X[w > 0.0], w[w > 0.0]
        if not w.size:
            return cls(0.0, np.zeros(p), np.zeros((p, p)), np.full(p, np.inf), np.full(p, -np.inf))
        total = float(w.sum())
        mean = X[0] + w @ (X - X[0]) / total
        Z = X - mean
        return cls(total, mean, Z.T @ (w[:, None] * Z), X.min(axis=0), X.max(axis=0))

    def __add__(self, other: Moments) -> Moments:
        total = self.weight + other.weight
        if not total or not other.weight or not self.weight:
            return self if self.weight else other
        share, away = other.weight / total, other.mean - self.mean
        about = self.about + other.about + self.weight * share * np.outer(away, away)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Moments(total, self.mean + share * away, about, low, high)

    @property
    def covariance(self) -> np.ndarray:
        return self.about / self.weight if self.weight else self.about

    @property
    def size(self) -> np.ndarray:
        """The largest entry of each column."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def columns(self) -> ColumnMoments:
        """As ``linalg.moments.column_moments`` says them."""
        sd, one = np.sqrt(np.maximum(np.diag(self.covariance), 0.0)), self.low == self.high
        constant = one | (sd <= 4.0 * _EPS * np.abs(self.mean))
        return ColumnMoments(np.where(one, self.low, self.mean), np.where(one, 0.0, sd), np.zeros_like(sd), constant)


@dataclass(frozen=True)
class Values:
    """y and what rows have beside it, by their values with their weights; None of both where there are too many.

    keys : names of the columns of ``at`` behind y; ``exposure`` is averaged in each of them
    """

    keys: tuple[str, ...]
    at: np.ndarray | None
    weight: np.ndarray | None
    exposure: np.ndarray | None
    moments: Moments

    @classmethod
    def of(cls, y: np.ndarray, rows: Mapping[str, np.ndarray], weights: np.ndarray) -> Values:
        keys = tuple(key for key in rows if key != "exposure")
        seen = weights > 0.0
        at = np.column_stack([y, *(rows[key] for key in keys)])[seen]
        moments = Moments.of(y[seen, None], weights[seen])
        exposure = rows["exposure"][seen] if "exposure" in rows else np.ones(int(seen.sum()))
        return cls(keys, at, weights[seen], exposure, moments)._counted()

    def _counted(self) -> Values:
        if self.at is None or self.weight is None or self.exposure is None:
            return self
        at, place = np.unique(self.at, axis=0, return_inverse=True)
        if len(at) > MOST_VALUES:
            return replace(self, at=None, weight=None, exposure=None)
        weight = np.bincount(place.ravel(), weights=self.weight, minlength=len(at))
        exposure = np.bincount(place.ravel(), weights=self.weight * self.exposure, minlength=len(at)) / weight
        return replace(self, at=at, weight=weight, exposure=exposure)

    def __add__(self, other: Values) -> Values:
        moments, (one, two) = self.moments + other.moments, (self, other)
        if one.at is None or two.at is None or one.weight is None or two.weight is None:
            return Values(self.keys, None, None, None, moments)
        assert one.exposure is not None
        assert two.exposure is not None
        at, weight = np.concatenate([one.at, two.at]), np.concatenate([one.weight, two.weight])
        return Values(self.keys, at, weight, np.concatenate([one.exposure, two.exposure]), moments)._counted()

    def standing(self, family: Any, rows: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """Few rows that stand for all: y, what they have beside it, and weights."""
        centre, sd = float(self.moments.mean[0]), float(np.sqrt(self.moments.covariance[0, 0]))
        if family == "gaussian":  # whose level and scale are the mean and the standard deviation
            return np.array([centre - sd, centre + sd]), {}, np.full(2, self.moments.weight / 2.0)
        if self.at is None or self.weight is None or self.exposure is None:
            got = f"y has more than {MOST_VALUES} different values and family = {family!r}"
            advice = "Labels, counts and the Gaussian family fit tables of any length."
            raise problem("Model", got, "fewer in a table that is out of memory", advice)
        beside = {key: self.at[:, 1 + j] for j, key in enumerate(self.keys)}
        beside |= {"exposure": self.exposure} if "exposure" in rows else {}
        return self.at[:, 0], beside, self.weight


@dataclass(frozen=True)
class Touched:
    """Sets of latents that rows touch together, by how many they are: {count: array (sets, count)}."""

    sets: dict[int, np.ndarray]

    @classmethod
    def of(cls, design: Any) -> Touched:
        """Those of the rows of a csr array."""
        each, out = np.diff(design.indptr), {}
        for k in np.unique(each).tolist():
            begin = design.indptr[:-1][each == k]
            out[k] = np.unique(np.sort(design.indices[begin[:, None] + np.arange(k)], axis=1), axis=0)
        return cls(out)

    def __add__(self, other: Touched) -> Touched:
        out = dict(self.sets)
        for k, sets in other.sets.items():
            out[k] = np.unique(np.concatenate([out[k], sets]), axis=0) if k in out else sets
        return Touched(out)
