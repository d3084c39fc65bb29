"""Split the latents into effects of groups u, small independent blocks of which each row sees one, and the others b.

    z = (u_1, ..., u_G, b),   Q = diag(P_1, ..., P_G, Q_b),   eta_j = x_j' b + a_j' u_c(j) + offset_j

The split is read from the patterns of Q and of the design, not from a formula. The levels of a term are consecutive
connected components of Q such that no row sees two of them. Intercepts and slopes may be blocks of two latents, or two
terms over the same groups. Groups with the same rows and the same prior are one kind, which is integrated once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..linalg.arrays import to_numpy
from .sites import GaussianFit, counted

_WIDEST = 2  # most latents of a group
_FEWEST = 2  # fewest groups


@dataclass(frozen=True)
class LatentSplit:
    """Indices of the latents of the groups (G, d), and of the other latents (p,)."""

    groups: np.ndarray
    rest: np.ndarray
    n_latents: int

    def seen(self, W: Any) -> tuple[np.ndarray, sp.csr_array]:
        """The columns of a design: X (n, p) for b, and A (n, G d) for the groups, one after the other."""
        rows = sp.csr_array(W)
        return np.asarray(rows[:, self.rest].toarray()), sp.csr_array(rows[:, self.groups.ravel()])

    def one_group(self, A: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """The group of each row of A (n, G d), -1 for none and -2 for several, and its coefficients (n, d)."""
        d, n = self.groups.shape[1], A.shape[0]
        entries = sp.coo_array(A)
        row, column = entries.coords
        row, column, value = (x[entries.data != 0.0] for x in (row, column, entries.data))
        low, high = np.full(n, self.groups.shape[0]), np.full(n, -1)
        np.minimum.at(low, row, column // d)
        np.maximum.at(high, row, column // d)
        out = np.zeros((n, d))
        out[row, column % d] = value
        return np.where(high > low, -2, high), out


@dataclass(frozen=True)
class KindRows:
    """Rows sorted by kind of group, with their designs and likelihood.

    X, A : (n, p), (n, d) coefficients of b and of u
    offset : (n,)
    index : (n,) index of the observation
    times, weight : (n,) weights without and with the likelihood's own, such as a number of trials
    start : (K + 1,) first row of each kind, and the end
    """

    likelihood: Likelihood
    rows: Rows
    X: np.ndarray
    A: np.ndarray
    offset: np.ndarray
    index: np.ndarray
    times: np.ndarray
    weight: np.ndarray
    start: np.ndarray

    @cached_property
    def kind(self) -> np.ndarray:
        """The kind of each row (n,)."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def take(self, kinds: slice) -> KindRows:
        edges = self.start[kinds.start : kinds.stop + 1]
        own = slice(int(edges[0]), int(edges[-1]))
        return KindRows(
            self.likelihood,
            slice_rows(self.rows, own),
            self.X[own],
            self.A[own],
            self.offset[own],
            self.index[own],
            self.times[own],
            self.weight[own],
            edges - edges[0],
        )

    @cached_property
    def loop_terms(self) -> tuple[Any, ...] | None:
        """The elementary terms of -log p of the rows, the constant first, for compiled loops; None without them."""
        with np.errstate(all="ignore"):
            terms = self.likelihood.elementary_terms(self.rows)
            if terms is None:
                return None
            linear, rate, sign, up, high, down, low = terms
            known = rate + up * np.logaddexp(0.0, -high) + down * np.logaddexp(0.0, low)  # at eta = 0
            constant = (
                np.asarray(self.likelihood.derivatives(np.zeros((self.offset.size, 1)), self.rows)[0])[:, 0] - known
            )
        each = [np.ascontiguousarray(v, dtype=np.float64) for v in (constant, linear, rate, up, high, down, low)]
        if not all(np.isfinite(v).all() for v in each):
            return None
        return (*each[:3], float(sign), *each[3:])

    def log_density(self, eta: np.ndarray) -> np.ndarray:
        """Weighted log p (n, M)."""
        with np.errstate(all="ignore"):
            out = self.times[:, None] * np.asarray(self.likelihood.log_density(eta, self.rows))
        return np.where(np.isnan(out), -np.inf, out)

    def derivatives(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weighted log p with its first and second derivatives (n, M); NaN, far out, is replaced by -inf and 0."""
        weight = -self.weight[:, None]
        with np.errstate(all="ignore"):
            value, first, second = (weight * np.asarray(v) for v in self.likelihood.derivatives(eta, self.rows))
        return (*_without_nan(value, first), np.where(np.isfinite(second), second, 0.0))

    def slopes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted log p with its first derivative (n, M)."""
        weight = -self.weight[:, None]
        with np.errstate(all="ignore"):
            value, first, _ = self.likelihood.derivatives(eta, self.rows)
            return _without_nan(weight * np.asarray(value), weight * np.asarray(first))


def _without_nan(value: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace values that are not finite by -inf, and their derivatives by 0."""
    if np.isfinite(value.sum()) and np.isfinite(first.sum()):
        return value, first
    lost = ~(np.isfinite(value) & np.isfinite(first))
    return np.where(lost, -np.inf, value), np.where(lost, 0.0, first)


@dataclass(frozen=True)
class GroupedRows:
    """The rows of a fit with positive weight, by groups.

    Attributes
    ----------
    split : LatentSplit
    kinds : KindRows
        Rows of one group of each kind; equal rows of a group are merged and their weights added.
    alone : KindRows
        Rows that see no group.
    kind_of : (G,) the kind of each group, -1 without rows
    first : (K,) the first group of each kind
    many : (K,) number of groups of each kind
    precision, mean : (G, d, d), (G, d) prior of the groups' effects; ``kind_precision`` and ``kind_mean`` for kinds
    rest_precision, rest_mean : (p, p), (p,) prior of b
    """

    split: LatentSplit
    kinds: KindRows
    alone: KindRows
    kind_of: np.ndarray
    first: np.ndarray
    many: np.ndarray
    precision: np.ndarray
    mean: np.ndarray
    kind_precision: np.ndarray
    kind_mean: np.ndarray
    rest_precision: np.ndarray
    rest_mean: np.ndarray


def split_latents(Q: Any, W: Any, most: int) -> LatentSplit | None:
    """Find the groups with the most latents; None without groups, or with more than ``most`` other latents."""
    L = Q.shape[0]
    seen = sp.csc_array(W, copy=True)
    seen.eliminate_zeros()
    number, label = sp.csgraph.connected_components(Q, directed=False)
    size = np.bincount(label, minlength=number)
    members = np.split(np.argsort(label, kind="stable"), np.cumsum(size)[:-1])
    members.sort(key=lambda latents: int(latents[0]))
    runs, back = ([np.stack(run) for run in _runs(seen, order)] for order in (members, members[::-1]))
    joined = [pair for a, b in pairwise(runs) if (pair := _side_by_side(seen, a, b)) is not None]
    best = max([*runs, *joined, *back], key=lambda run: run.size, default=None)
    if best is None or best.shape[0] < _FEWEST or L - best.size > most or best.size == L:
        return None
    return LatentSplit(best, np.setdiff1d(np.arange(L), best.ravel()), L)


def _runs(W: Any, members: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield runs of consecutive components of one size such that each row sees at most one of them."""
    taken = np.zeros(W.shape[0], dtype=np.int64)  # number of the last run that a row belongs to
    run: list[np.ndarray] = []
    number = 1
    for latents in members:
        rows = _rows_of(W, latents) if latents.size <= _WIDEST else None
        if run and (rows is None or latents.size != run[0].size or (taken[rows] == number).any()):
            yield run
            run, number = [], number + 1
        if rows is not None:
            taken[rows] = number
            run.append(latents)
    if run:
        yield run


def _rows_of(W: Any, latents: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *(W.indices[W.indptr[k] : W.indptr[k + 1]] for k in latents)])


def _side_by_side(W: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Join two runs of single latents over the same groups to pairs (G, 2); None if the groups differ.

    Latents without rows may be at the end of the run before theirs.
    """
    if a.shape[1] != 1 or b.shape[1] != 1:
        return None
    both = np.concatenate([a, b])[:, 0]
    lost = max(0, (a.shape[0] - b.shape[0] + 1) // 2)
    G = a.shape[0] - lost
    if G < _FEWEST or both.size < 2 * G or _rows_of(W, np.r_[a[G:, 0], both[2 * G :]]).size:
        return None
    first, second, of = both[:G], both[G : 2 * G], np.full(W.shape[0], -1)
    for k in range(G):
        of[_rows_of(W, first[k : k + 1])] = k
    partner = np.full(G, -1)
    for k in range(G):
        seen = np.unique(of[_rows_of(W, second[k : k + 1])])
        if seen.size > 1 or (seen.size == 1 and (seen[0] < 0 or partner[seen[0]] >= 0)):
            return None
        if seen.size:
            partner[seen[0]] = k
    partner[partner < 0] = np.setdiff1d(np.arange(G), partner)  # slopes that no row sees
    return np.column_stack([first, second[partner]])


def grouped_rows(fit: GaussianFit, most: int) -> GroupedRows | None:
    """The rows of a fit by groups; None if its prior is not sparse, is constrained, or has no groups."""
    predictors: Any = fit.posterior.predictors
    if not fit.posterior.factor.covariances.sparse or predictors.pattern.constraint is not None:
        return None
    W, Q = predictors.W, predictors.pattern.Q
    split = split_latents(Q, W, most)
    if split is None:
        return None
    times = counted(fit)
    live = np.flatnonzero(times > 0.0)
    X, seen = split.seen(W[live])
    group, A = split.one_group(seen)
    rows = slice_rows({key: to_numpy(value) for key, value in fit._rows.items()}, live)
    offset = to_numpy(predictors.offset)[live, 0]
    weight = to_numpy(rows["weight"])
    every = KindRows(fit.likelihood, rows, X, A, offset, live, times[live], weight, np.array([0, live.size]))
    G, d = split.groups.shape
    at = [np.asarray(Q[split.groups[:, i], split.groups[:, j]]).ravel() for i in range(d) for j in range(d)]
    precision, latent_mean = np.stack(at, axis=1).reshape(G, d, d), to_numpy(predictors.latent_mean())
    mean = latent_mean[split.groups]
    kind_of, first, kinds = _kinds(every, group, np.column_stack([precision.reshape(G, -1), mean]))
    return GroupedRows(
        split=split,
        kinds=kinds,
        alone=_merged(every, np.flatnonzero(group < 0), None),
        kind_of=kind_of,
        first=first,
        many=np.bincount(kind_of[kind_of >= 0], minlength=first.size).astype(np.float64),
        precision=precision,
        mean=mean,
        kind_precision=precision[first],
        kind_mean=mean[first],
        rest_precision=np.asarray(Q[split.rest][:, split.rest].toarray()),
        rest_mean=latent_mean[split.rest],
    )


def _kinds(every: KindRows, group: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray, KindRows]:
    """The kind of each group, -1 without rows; the first group of each kind; and the rows of these first groups."""
    G, some = prior.shape[0], np.flatnonzero(group >= 0)
    total = np.zeros(G, dtype=np.uint64)
    np.add.at(total, group[some], _hashed(_columns(every, some)))
    has_rows = np.bincount(group[some], minlength=G) > 0
    key = _hashed(np.column_stack([total, np.ascontiguousarray(prior + 0.0).view(np.uint64)]))
    _, first, of = np.unique(key[has_rows], return_index=True, return_inverse=True)
    number = np.flatnonzero(has_rows)
    kind_of = np.full(G, -1)
    kind_of[number] = of
    first = number[first]
    chosen = some[np.isin(group[some], first)]
    return kind_of, first, _merged(every, chosen, kind_of[group[chosen]])


def _merged(every: KindRows, index: np.ndarray, kind: np.ndarray | None) -> KindRows:
    """Some rows sorted by their kind, with equal rows merged; ``kind`` None: each row is its own kind."""
    key = _hashed(_columns(every, index))
    label = np.zeros(index.size, dtype=np.int64) if kind is None else kind
    order = np.lexsort((key, label))
    key, label, index = key[order], label[order], index[order]
    new = np.ones(index.size, dtype=bool)
    new[1:] = (key[1:] != key[:-1]) | (label[1:] != label[:-1])
    place = np.flatnonzero(new)
    own = index[place]
    counts = (every.times, every.weight)
    times, weight = (np.add.reduceat(v[index], place) if place.size else np.zeros(0) for v in counts)
    number = 0 if kind is None else int(label.max(initial=-1)) + 1
    start = np.arange(place.size + 1) if kind is None else np.searchsorted(label[place], np.arange(number + 1))
    each = (every.X[own], every.A[own], every.offset[own], every.index[own], times, weight)
    return KindRows(every.likelihood, slice_rows(every.rows, own), *each, start)


def _columns(rows: KindRows, index: np.ndarray) -> np.ndarray:
    """Everything that distinguishes some rows, as columns of bits (n, k)."""
    each = [rows.X, rows.A, rows.offset, rows.times, *rows.rows.values()]
    if rows.likelihood.of_rows:  # equal rows may become different when the parameters of the likelihood change
        each.append(rows.index)
    flat = [np.asarray(v, dtype=np.float64)[index].reshape(index.size, int(np.prod(np.shape(v)[1:]))) for v in each]
    return np.ascontiguousarray(np.concatenate(flat, axis=1) + 0.0).view(np.uint64)


def _hashed(columns: np.ndarray) -> np.ndarray:
    """A 64-bit key of each row of bits (n, k)."""
    factor = np.random.default_rng(0).integers(1, 2**63, columns.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    with np.errstate(over="ignore"):
        mixed = (columns ^ (columns >> np.uint64(29))) * factor
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        out = mixed.sum(axis=1, dtype=np.uint64)
        out = (out ^ (out >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(out ^ (out >> np.uint64(31)))
