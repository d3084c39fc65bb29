"""Marginals of sums x'b + a'u, where the effects u of groups are integrated given b.

    E = sum_k w_k (x'b_k + a'E[u | b_k]),      Var = a' E Cov[u | b] a + Var_k(x'b_k + a'E[u | b_k])

A lattice moves with b like the mode of u, u = mode + C (b - m) + s, and the density of s hardly depends on b. Hence

    x'b + a'u = constant + a's + (x + C'a)'(b - m)

and the marginal is the average density of a's convolved with a normal, shifted and stretched to the moments above.

Draws of u given b are made along one axis of the lattice after the other, by inversion of the distribution function;
the density is linear between two points. Linear interpolation adds 1/6 of a squared step to the variance, so draws are
shrunk to the right variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..linalg.arrays import to_numpy
from .collapsed_fit import CollapsedFit
from .grids import MarginalGrid, interpolated, with_moments
from .group_quadrature import GroupIntegrals
from .group_structure import GroupedRows

_X = 0.25 * np.arange(-48, 49)  # grid of a marginal, in standard deviations
_AT_ONCE = 1 << 20  # numbers in memory at a time
_KERNEL = 0.7  # least sd of a kernel, relative to the distance between two points
_FLOOR = 1e-300
_SKEWEST = 1.0  # largest skewness of a coefficient, because the first order is not valid beyond
_DIRECTIONS = 64  # most different x for which the skewness is computed; each needs two gradients
_BENDS = 6.0  # standard deviations beyond which the cubic of a skewed density no longer grows
_NODES = 7  # Gauss-Hermite nodes of an average over a normal
_FINER = 3  # factor by which a lattice in a plane is refined


@dataclass(frozen=True)
class LinearTargets:
    """Targets x'b + a'u + offset + e: X (T, p), A (T, G d), offset (T,), and extra = Var e (T,)."""

    X: np.ndarray
    A: sp.csr_array
    offset: np.ndarray
    extra: np.ndarray


@dataclass(frozen=True)
class GroupEffects:
    """Moments of the effects of groups at the points b_k of the rule.

    mean : (G, d, S) E[u | b_k]
    covariance : (G, d, d) the average of Cov[u | b_k]
    """

    data: GroupedRows
    found: CollapsedFit
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, data: GroupedRows, found: CollapsedFit) -> GroupEffects:
        inner = found.state.moments
        mean = inner.mean + found.placed.mean[:, None]
        covariance = np.einsum("s,ksij->kij", found.weights, inner.covariance) + found.placed.covariance
        own, empty = data.kind_of, data.kind_of < 0
        prior = np.linalg.inv(data.precision) if empty.any() else np.zeros_like(data.precision)
        at = np.where(empty[:, None, None], data.mean[:, None, :], mean[own])
        around = np.where(empty[:, None, None], prior, covariance[own])
        return cls(data, found, at.transpose(0, 2, 1), around)

    @cached_property
    def share(self) -> np.ndarray:
        """Average probabilities of the lattice points of each kind (K, M)."""
        found = self.found
        out = np.zeros(found.lattice.step.shape[:2])
        for w, b in zip(found.weights, found.points, strict=True):
            out += w * found.problem.integrals.moments(b[None], found.lattice, shares=True).share[:, 0]
        return out

    def second(self, centre: np.ndarray) -> np.ndarray:
        """E[(u - centre)(u - centre)'] (G, d, d)."""
        off = self.mean - centre[:, :, None]
        return np.asarray(self.covariance + np.einsum("gis,gjs,s->gij", off, off, self.found.weights))

    def likelihood_slopes(self, moved: Sequence[Sequence[tuple[Any, Any]]]) -> np.ndarray:
        """Expected difference of log p between the two likelihoods of each pair, given with their rows."""
        found, data, out = self.found, self.data, np.zeros(len(moved))
        if not moved:
            return out
        if data.kinds.loop_terms is not None:
            totals = [[self._expected(one, rows) for one, rows in pair] for pair in moved]
            return np.array([above - below for above, below in totals])
        alone = data.alone
        eta = alone.X @ found.points.T + alone.offset[:, None]
        for i, pair in enumerate(moved):
            log_p = [one.log_density(eta, slice_rows(rows, alone.index)) for one, rows in pair]
            out[i] += float(np.sum((alone.times[:, None] * (log_p[0] - log_p[1])) @ found.weights))
        for part in found.problem.integrals.tilted(found.points, found.placed.nodes, slopes=False):
            own, (n, S, M) = part.rows, part.eta.shape
            share = part.share[own.kind] * found.weights[part.points][None, :, None]
            share *= (own.times * data.many[part.kinds][own.kind])[:, None, None]
            for i, pair in enumerate(moved):
                flat = part.eta.reshape(n, S * M)
                log_p = [one.log_density(flat, slice_rows(rows, own.index)) for one, rows in pair]
                with np.errstate(invalid="ignore"):
                    each = np.where(share.reshape(n, -1) > 0.0, log_p[0] - log_p[1], 0.0)
                out[i] += float(np.sum(share.reshape(n, -1) * each))
        return out

    def _expected(self, likelihood: Likelihood, rows: Rows) -> float:
        """E[F(b)] under another likelihood; its derivative in a parameter is E[d log p]."""
        found, data = self.found, self.data
        each = []
        for old in (data.kinds, data.alone):
            own = slice_rows(rows, old.index)
            each.append(replace(old, likelihood=likelihood, rows=own, weight=old.times * to_numpy(own["weight"])))
        kinds, alone = each
        other = GroupIntegrals(replace(data, kinds=kinds, alone=alone))
        inner = other.moments(found.points, found.placed.nodes)
        apart = alone.log_density(alone.X @ found.points.T + alone.offset[:, None]).sum(axis=0)
        return float((data.many @ inner.log_g + apart) @ found.weights)


def marginals_of(effects: GroupEffects, targets: LinearTargets) -> MarginalGrid:
    """The marginal of each target on a grid, in units of its sd about its mean."""
    found, data = effects.found, effects.data
    w, points = found.weights, found.points
    G, d, S = effects.mean.shape
    means = targets.X @ points.T + targets.A @ effects.mean.reshape(G * d, S)
    centre = means @ w
    around = _block_diagonal(effects.covariance)
    within = np.asarray((targets.A @ around).multiply(targets.A).sum(axis=1)).ravel()
    variance = (means - centre[:, None]) ** 2 @ w + within + targets.extra
    scale = np.sqrt(np.maximum(variance, 0.0))
    log_density = np.broadcast_to(-0.5 * _X**2, (centre.size, _X.size)).copy()
    group, a = data.split.one_group(targets.A)
    shaped = np.flatnonzero((group >= 0) & (scale > 0.0))
    shaped = shaped[data.kind_of[group[shaped]] >= 0]
    step = max(1, _AT_ONCE // (_X.size * max(_X.size, _FINER**d * effects.share.shape[1] // 10)))
    for i in range(0, shaped.size, step):
        some = shaped[i : i + step]
        log_density[some] = _shaped(effects, targets, some, group[some], a[some], scale[some])
    plain = np.flatnonzero((group == -1) & (scale > 0.0))
    if plain.size:
        log_density[plain] = _skewed(found, targets.X[plain], scale[plain])
    return MarginalGrid(centre + targets.offset, scale, _X, log_density)


def _skewed(found: CollapsedFit, X: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Log densities (T, M) of x'b: a normal with a skewness to first order, from F along the regression on x'b.

    b(t) = m + t V x / sd,    skewness = d3 F(b(t)) / dt3 at 0, from the gradients at t = -1, 0, 1
    """
    rows, of = np.unique(X, axis=0, return_inverse=True)
    if len(rows) > _DIRECTIONS:
        return np.broadcast_to(-0.5 * _X**2, (scale.size, _X.size))
    along, mean = (rows @ found.state.root) @ found.state.root.T, found.state.mean
    sd = np.maximum(np.sqrt(np.sum(along * rows, axis=1)), _FLOOR)
    along /= sd[:, None]
    ask = found.problem.integrals.values
    ahead, behind = (ask(mean + side * along, found.placed.nodes)[1] for side in (1.0, -1.0))
    here = ask(mean[None], found.placed.nodes)[1]
    bent = np.sum((ahead + behind - 2.0 * here) * along, axis=1)
    skew = (
        np.clip(bent, -_SKEWEST, _SKEWEST)[of.ravel()] * (sd[of.ravel()] / scale) ** 3
    )  # the normal part has no skewness
    cubic = (_BENDS * np.tanh(_X / _BENDS)) ** 3 - 3.0 * _X  # x^3 - 3 x near 0, bounded so that the tails decrease
    return with_moments(_X, -0.5 * _X**2 + skew[:, None] / 6.0 * cubic, np.zeros(of.size), np.ones(of.size))


def _block_diagonal(stack: np.ndarray) -> sp.csr_array:
    """The block diagonal matrix (G d, G d) of blocks (G, d, d)."""
    G, d, _ = stack.shape
    column = (d * np.arange(G)[:, None, None] + np.arange(d)[None, None, :]) + np.zeros((1, d, 1), dtype=np.int64)
    return sp.csr_array((stack.ravel(), column.ravel(), d * np.arange(G * d + 1)), shape=(G * d, G * d))


def _shaped(
    effects: GroupEffects, targets: LinearTargets, some: np.ndarray, group: np.ndarray, a: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Log densities (T, M) of targets that see one group."""
    found, kind = effects.found, effects.data.kind_of[group]
    lattice, share = found.lattice, effects.share[kind]
    seen = targets.X[some] + np.einsum("td,tdp->tp", a, lattice.slope[kind])
    width = np.sqrt(np.sum((seen @ found.state.root) ** 2, axis=1) + targets.extra[some])
    along = np.einsum("td,tdi->ti", a, lattice.root[kind])
    low, cell = along * lattice.low[kind], along * (lattice.high - lattice.low)[kind] / (lattice.size - 1)
    if a.shape[1] == 1:
        log_p = _on_a_line(share, low[:, 0], cell[:, 0], width, scale)
    else:
        log_p = _in_a_plane(share, low, cell, width, scale)
    return with_moments(_X, log_p, np.zeros(some.size), np.ones(some.size))


def _on_a_line(
    share: np.ndarray, low: np.ndarray, cell: np.ndarray, width: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Log densities (T, M) of s + e: s = low + cell k with probabilities ``share``, e normal with sd ``width``."""
    number = np.arange(share.shape[1])
    place = low[:, None] + cell[:, None] * number
    at = np.sum(place * share, axis=1)[:, None] + scale[:, None] * _X
    wide = width >= _KERNEL * np.abs(cell)
    out = np.empty(at.shape)
    out[wide] = _with_kernels(at[wide], place[wide], share[wide], width[wide])
    rest = np.flatnonzero(~wide)
    if rest.size:  # a narrow normal: average the interpolated density
        log_s = np.log(np.maximum(share[rest], _FLOOR))
        t, w = np.polynomial.hermite_e.hermegauss(_NODES)
        moved = at[rest][:, :, None] - width[rest][:, None, None] * t
        steps = ((moved - low[rest][:, None, None]) / cell[rest][:, None, None]).reshape(rest.size, -1)
        p = np.exp(np.maximum(interpolated(log_s, steps), -600.0)).reshape(moved.shape) @ w
        out[rest] = np.log(np.maximum(p, _FLOOR))
    return out


def _in_a_plane(
    share: np.ndarray, low: np.ndarray, cell: np.ndarray, width: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """The same for the sum of both coordinates of points low + cell k (T, 2) in a plane, refined by cubics."""
    T, size = share.shape[0], round(share.shape[1] ** 0.5)
    fine = np.arange(_FINER * (size - 1) + 1) / _FINER
    log_s = np.log(np.maximum(share, 1e-30)).reshape(T * size, size)
    log_s = interpolated(log_s, np.broadcast_to(fine, (T * size, fine.size)))
    log_s = log_s.reshape(T, size, fine.size).transpose(0, 2, 1).reshape(T * fine.size, size)
    log_s = interpolated(log_s, np.broadcast_to(fine, (T * fine.size, fine.size)))
    p = np.exp(log_s).reshape(T, fine.size, fine.size)  # the second axis first
    p /= p.sum(axis=(1, 2), keepdims=True)
    each = low[:, :, None] + cell[:, :, None] * fine
    place = each[:, 1, :, None] + each[:, 0, None, :]
    middle = np.sum(place * p, axis=(1, 2))
    step = _X[1] - _X[0]
    bins = (place - middle[:, None, None]) / (scale[:, None, None] * step) - _X[0] / step
    bins = np.clip(bins, 0.0, _X.size - 1.001).reshape(T, -1)
    left = bins.astype(np.int64)
    share_right = bins - left
    first = left + _X.size * np.arange(T)[:, None]
    flat = p.reshape(T, -1)
    total = np.bincount(first.ravel(), ((1.0 - share_right) * flat).ravel(), T * _X.size)
    total += np.bincount(first.ravel() + 1, (share_right * flat).ravel(), T * _X.size)
    at = middle[:, None] + scale[:, None] * _X
    least = _KERNEL * np.maximum(np.abs(cell).max(axis=1) / _FINER, scale * step)
    return _with_kernels(at, at, total.reshape(T, -1), np.maximum(width, least))


def _with_kernels(at: np.ndarray, place: np.ndarray, share: np.ndarray, width: np.ndarray) -> np.ndarray:
    """log sum_m share_m N(at; place_m, width^2) for each target, up to a constant."""
    near = (at[:, :, None] - place[:, None, :]) / width[:, None, None]
    p = np.einsum("txm,tm->tx", np.exp(-0.5 * near * near), share)
    return np.log(np.maximum(p, _FLOOR))


# -- Draws ---------------------------------------------------------------------------------------
def drawn_effects(data: GroupedRows, found: CollapsedFit, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the effects u (S, G, d) of all groups, once at each b (S, p)."""
    (G, d), S, size = data.mean.shape, b.shape[0], found.lattice.size
    out = np.empty((S, G, d))
    order = np.argsort(data.kind_of, kind="stable")
    edges = np.searchsorted(data.kind_of[order], np.arange(-1, data.many.size + 1))
    empty = order[: edges[1]]
    if empty.size:
        root = np.linalg.cholesky(np.linalg.inv(data.precision[empty]))
        out[:, empty] = data.mean[empty] + np.einsum("gij,sgj->sgi", root, rng.standard_normal((S, empty.size, d)))
    for part in found.problem.integrals.tilted(b, found.lattice, slopes=False):
        groups = order[edges[part.kinds.start + 1] : edges[part.kinds.stop + 1]]
        kind = data.kind_of[groups] - part.kinds.start
        n = part.share.shape[1]
        share = part.share[kind].reshape(groups.size * n, *[size] * d)
        v = np.stack(_draw_positions(share, rng), axis=1).reshape(groups.size, n, d)
        low, high, root = (x[part.kinds][kind] for x in (found.lattice.low, found.lattice.high, found.lattice.root))
        v = low[:, None] + (high - low)[:, None] * v / (size - 1)
        u = part.centre[kind] + np.einsum("gij,gsj->gsi", root, v)
        out[part.points, groups] = u.transpose(1, 0, 2)
    return out


def _draw_positions(share: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Draw positions along each axis, in steps, from densities (T, J) or (T, J, J)."""
    if share.ndim == 2:
        return [_shrunk_quantiles(share, rng.random(share.shape[:1]))]
    first = _shrunk_quantiles(share.sum(axis=2), rng.random(share.shape[:1]))
    left = np.clip(first.astype(np.int64), 0, share.shape[1] - 2)
    rows, by = np.arange(share.shape[0]), (first - left)[:, None]
    between = (1.0 - by) * share[rows, left] + by * share[rows, left + 1]
    return [first, _shrunk_quantiles(between, rng.random(share.shape[:1]))]


def _shrunk_quantiles(density: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Quantiles at levels (T,) of densities (T, J) that are linear between integers, shrunk to the right variance."""
    cells = 0.5 * (density[:, 1:] + density[:, :-1])
    total = np.cumsum(cells, axis=1)
    want = level * total[:, -1]
    left = np.minimum((total < want[:, None]).sum(axis=1), cells.shape[1] - 1)
    rows = np.arange(left.size)
    rest = want - total[rows, left] + cells[rows, left]
    a, b = density[rows, left], density[rows, left + 1]
    root = np.sqrt(np.maximum(a * a + 2.0 * (b - a) * rest, 0.0))
    inside = 2.0 * rest / np.maximum(a + root, 1e-300)
    place, whole = np.arange(density.shape[1]), density.sum(axis=1)
    mean = density @ place / whole
    variance = density @ place**2 / whole - mean**2
    shrunk = np.sqrt(variance / (variance + 1.0 / 6.0))
    return np.asarray(mean + shrunk * (left + np.clip(inside, 0.0, 1.0) - mean))
