"""Integrate the effects of groups out, given the other latents b.

    g_c(b) = int N(u; mu_c, P_c^-1) prod_j p(y_cj | x_cj' b + a_cj' u + offset_cj) du
    grad log g_c = E[sum_j x_j l'_j],      l_j = log p(y_j | eta_j)

E is over the tilted density of u given b, t(u) = N(u) prod_j p_j / g. The integral is a sum over an even lattice, which
converges faster than any power of the step for smooth densities that vanish at its ends. The lattice of a group is
centred at its mode at a reference b, along the axes of the curvature, and as wide as the density. At other b it moves
with the mode to first order. The sum over every other point gives the error: with a step h it is about
2 |c| cos(phase) of the mass and 2 |c| k var sin(phase) of the mean, where c is the characteristic function at
k = 2 pi / h. The fit itself uses fewer points, of a coarse lattice or of a Gauss-Hermite rule at the mean and
covariance from the fine lattice. Their error at the reference b is known, and it is nearly the same at other b.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import to_numpy
from ._group_loops import tilt
from .group_nodes import GroupMoments, Lattice, Nodes, NodeSizes, Placed, hermite_nodes
from .group_structure import GroupedRows, KindRows

_DEEP = 16.0  # nats below its maximum at which a tilted density is negligible
_STEEP = 25.0  # a lattice whose ends are so many nats below the maximum is too wide
_BLOCK = 1 << 16  # numbers in one array of a pass, so that they stay in cache
_NEWTON = 60  # most Newton steps towards the modes
_SETTLED = 1e-10  # squared length, in standard deviations, of a step that ends them
_LOOKS = 60  # most trials for the width of a lattice
_ANGLES = 16  # directions in a plane in which the width is measured
_CANDIDATES = 64  # most rows of a group at whose landmarks other modes are sought
_SIZES = {
    1: (9, 13, 17, 21, 25, 29, 33, 41, 49, 65, 97, 129),
    2: (13, 21, 25, 33, 49),
}  # points of a lattice along one axis
_HERMITE = {1: (5, 7, 9, 11, 15, 21, 27), 2: (5, 7, 9, 11, 15, 21)}  # points of a Gauss-Hermite rule along one axis
_WORTH = 0.8  # a rule is used only if it has fewer than this share of the lattice's points
_CAUTIOUS = 0.9  # factor on the expected size of a lattice: too many points cost more than another trial
_STAY = {1: 1.0, 2: 5.0}  # factor on the allowed errors if the same number of nodes sufficed nearby
# Largest difference in nats, over all groups, between the nodes and a fine lattice at the reference b, by the number of
# effects of a group. It is smaller if the likelihood has parameters, whose gradients do not include the difference.
_COARSE = {1: 2e-4, 2: 2e-3}
_COARSE_OF_OWN = {1: 2e-4, 2: 5e-4}
_SHARE = 0.1  # share of this difference that is counted as the error at other b
_ERROR = 1e-6  # nats over all groups that a lattice may miss; a search of theta notices changes of its size


@dataclass(frozen=True)
class Tilted:
    """The density of u on the lattices of some kinds of groups, at S values of b.

    log_g : (K, S)
    share : (K, S, M) probabilities of the points
    centre, step : (K, S, d), (K, M, d) with u = centre + step
    eta : (n, S, M) of the rows
    first : (n, S, M) derivatives of the log density of the rows, or None
    """

    kinds: slice
    points: slice
    rows: KindRows
    log_g: np.ndarray
    share: np.ndarray
    centre: np.ndarray
    step: np.ndarray
    eta: np.ndarray
    first: np.ndarray | None

    def averaged(self, values: np.ndarray) -> np.ndarray:
        """Expectations (n, S) of values (n, S, M) of the rows."""
        return np.asarray(np.einsum("nsm,nsm->ns", values, self.share[self.rows.kind]))

    @cached_property
    def mean(self) -> np.ndarray:
        """E[u] (K, S, d)."""
        return np.asarray(self.centre + self.share @ self.step)

    @cached_property
    def covariance(self) -> np.ndarray:
        """Cov[u] (K, S, d, d)."""
        off = self.share @ self.step
        square = self.step[:, :, :, None] * self.step[:, :, None, :]
        K, M, d, _ = square.shape
        second = (self.share @ square.reshape(K, M, d * d)).reshape(*off.shape, d)
        return np.asarray(second - off[..., :, None] * off[..., None, :])


class GroupIntegrals:
    """The integrals log g of all kinds of groups as functions of b."""

    def __init__(self, data: GroupedRows) -> None:
        self.data, self.rows = data, data.kinds
        self.P, self.mu = data.kind_precision, data.kind_mean
        self.log_norm = 0.5 * np.linalg.slogdet(self.P)[1] - 0.5 * self.mu.shape[1] * np.log(2.0 * np.pi)
        self._sums = sum_by(self.rows.start)
        self.coarse = (_COARSE_OF_OWN if self.rows.likelihood.theta.size else _COARSE)[self.mu.shape[1]]

    def log_prior(self, u: np.ndarray, kinds: slice = slice(None)) -> np.ndarray:
        """Log prior density (K, M) at u (K, M, d)."""
        off = u - self.mu[kinds][:, None]
        return np.asarray(self.log_norm[kinds][:, None] - 0.5 * np.sum((off @ self.P[kinds]) * off, axis=2))

    # -- where the lattices lie --------------------------------------------------------------------
    def placed(self, b: np.ndarray, start: np.ndarray, near: NodeSizes | None = None) -> Placed:
        """Nodes about the modes at b (p,), found from ``start`` (K, d); with the sizes ``near`` if these suffice."""
        base = self.rows.X @ b + self.rows.offset
        mode, curvature, pull = self._modes(base, start)
        slope = np.linalg.solve(curvature, pull)
        value, vectors = np.linalg.eigh(curvature)
        root = vectors / np.sqrt(value)[:, None, :]
        ends = self._reach(base, mode, root)
        (least, rule, coarse), slack = (
            NodeSizes() if near is None else near,
            1.0 if near is None else _STAY[mode.shape[1]],
        )
        looked: list[tuple[NodeSizes, Nodes, GroupMoments]] = []
        for size in _SIZES[mode.shape[1]]:
            if size < least and size != coarse:
                continue
            lattice = Lattice.spanning((b, mode, slope), root, ends, size)
            fine, missed = self._trial(lattice, b)
            looked.append((NodeSizes(coarse=size), lattice, fine))
            if missed <= slack * _ERROR:
                break
            least = min(max(least, self._next_size(size, missed)), _SIZES[mode.shape[1]][-1])
        spread = np.linalg.cholesky(fine.covariance)
        for size in () if coarse else (n for n in _HERMITE[mode.shape[1]] if n >= rule):
            nodes = hermite_nodes((b, fine.mean, slope), spread, size)
            if nodes.step.shape[1] >= _WORTH * lattice.step.shape[1]:
                break
            looked.append((NodeSizes(rule=size), nodes, self._trial(nodes, b)[0]))
            if self._apart(fine, looked[-1][2]) <= slack * self.coarse:
                break
        near_enough = [one for one in looked if self._apart(fine, one[2]) <= slack * self.coarse]
        sizes, nodes, rough = min(near_enough, key=lambda one: one[1].step.shape[1])
        shift = float(self.data.many @ (fine.log_g - rough.log_g))
        moved = fine.mean - rough.mean, fine.covariance - rough.covariance
        error = missed + _SHARE * self._apart(fine, rough)
        return Placed(nodes, lattice, error, shift, *moved, sizes._replace(lattice=lattice.size))

    def _next_size(self, size: int, missed: float) -> int:
        """Number of points along an axis that is expected to suffice, slightly reduced to avoid too many.

        The error of a lattice with step h for a normal density is proportional to exp(-c / h^2).
        """
        if not 0.0 < missed < 0.1:
            return size
        return int(_CAUTIOUS * size * np.sqrt(np.log(_ERROR) / np.log(missed)))

    def _apart(self, one: GroupMoments, other: GroupMoments) -> float:
        return float(self.data.many @ np.abs(one.log_g - other.log_g))

    def _trial(self, nodes: Nodes, b: np.ndarray) -> tuple[GroupMoments, float]:
        """log g and moments of u at b (p,), and the error of the sum of log g by a lattice.

        This error is the square of the error of the sum over every other point.
        """
        moments = self.moments(b[None], nodes, shares=True)
        off = nodes.coarse_error(moments.share)[:, 0]
        return moments.first(), float(np.sum(self.data.many * np.minimum(off, off * off)))

    def _modes(self, base: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The modes (K, d), the curvature there (K, d, d), and sum_j a_j l''_j x_j' (K, d, p), by Newton's method."""
        rows, A, u = self.rows, self.rows.A, start.copy()
        squares = A[:, :, None] * A[:, None, :]

        def curvature_of(second: np.ndarray) -> np.ndarray:
            return np.asarray(self.P + self._summed(squares * np.maximum(-second, 0.0)[:, None, None]))

        value = self._objective(base, u)
        for _ in range(_NEWTON):
            first, second = self._slopes(base, u)
            gradient = self._summed(A * first[:, None]) - np.einsum("kij,kj->ki", self.P, u - self.mu)
            step = np.linalg.solve(curvature_of(second), gradient[:, :, None])[:, :, 0]
            gain = np.sum(step * gradient, axis=1)
            length = np.ones(u.shape[0])
            for _ in range(30):
                moved = self._objective(base, u + length[:, None] * step)
                worse = ~(moved >= value + 1e-4 * length * gain - 1e-9 * (1.0 + np.abs(value)))
                if not worse.any():
                    break
                length = np.where(worse, 0.5 * length, length)
            u = u + np.where(worse, 0.0, length)[:, None] * step
            value = np.where(worse, value, moved)
            if gain.max(initial=0.0) <= _SETTLED:
                break
        second = self._slopes(base, u)[1]
        return (
            u,
            curvature_of(second),
            self._summed(A[:, :, None] * rows.X[:, None, :] * np.minimum(second, 0.0)[:, None, None]),
        )

    def _objective(self, base: np.ndarray, u: np.ndarray) -> np.ndarray:
        return self._log_joint(base, u[:, None])[:, 0]

    def _slopes(self, base: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eta = base + np.sum(self.rows.A * u[self.rows.kind], axis=1)
        _, first, second = self.rows.derivatives(eta[:, None])
        return first[:, 0], second[:, 0]

    def _log_joint(self, base: np.ndarray, u: np.ndarray) -> np.ndarray:
        """log N(u) prod p (K, M) at u (K, M, d)."""
        eta = base[:, None] + np.einsum("nd,nmd->nm", self.rows.A, u[self.rows.kind])
        return self._summed(self.rows.log_density(eta)) + self.log_prior(u)

    def _summed(self, values: np.ndarray) -> np.ndarray:
        return summed(self._sums, values)

    def _reach(self, base: np.ndarray, mode: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends (K, d) of v along each axis: beyond them the density is negligible."""
        d = mode.shape[1]
        angle = 2.0 * np.pi * np.arange(_ANGLES) / _ANGLES
        ways = np.array([[1.0], [-1.0]]) if d == 1 else np.column_stack([np.cos(angle), np.sin(angle)])
        along = np.einsum("kij,wj->kwi", root, ways)
        top = self._objective(base, mode)[:, None]
        far = np.full((mode.shape[0], ways.shape[0]), np.sqrt(2.0 * _DEEP))
        factor = np.full(far.shape, 1.3)
        settled = np.zeros(far.shape, dtype=bool)
        was = np.zeros(far.shape, dtype=np.int8)
        for _ in range(_LOOKS):
            fallen = top - self._log_joint(base, mode[:, None] + far[:, :, None] * along)
            side = np.where(fallen < _DEEP, 1, np.where(fallen > _STEEP, -1, 0)).astype(np.int8)
            settled |= side == 0
            if settled.all():
                break
            factor = np.where(side * was < 0, np.sqrt(factor), factor)  # the last trial went too far
            was = side
            far = np.where(settled, far, far * np.where(side > 0, factor, 1.0 / factor))
        reach = far[:, :, None] * ways
        low, high = reach.min(axis=1), reach.max(axis=1)
        if self.rows.likelihood.log_concave:
            return low, high
        place = self._other_modes(base, mode, root)
        fallen = top - self._log_joint(base, mode[:, None] + np.einsum("kij,kcj->kci", root, place))
        beyond = ((place < low[:, None]) | (place > high[:, None])).any(axis=2) & (fallen < _DEEP)
        place = np.where(beyond[:, :, None], place, 0.0)
        return low + place.min(axis=1), high + place.max(axis=1)

    def _other_modes(self, base: np.ndarray, mode: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Candidates for other modes, as steps v from the mode (K, C, d): the landmarks of rows, one for each row."""
        rows = self.rows
        eta = base + np.sum(rows.A * mode[rows.kind], axis=1)
        number = np.arange(rows.kind.size) - rows.start[rows.kind]
        C = min(int(number.max(initial=0)) + 1, _CANDIDATES)
        out = np.zeros((mode.shape[0], C, mode.shape[1]))
        mark = to_numpy(rows.likelihood.landmarks(rows.rows)[0])
        away = rows.A * ((mark - eta) / np.maximum(np.sum(rows.A**2, axis=1), 1e-300))[:, None]
        out[rows.kind, number % C] = np.where(np.isfinite(away), away, 0.0)
        return np.asarray(np.einsum("kij,kcj->kci", np.linalg.inv(root), out))

    # -- values ------------------------------------------------------------------------------------
    def moments(self, b: np.ndarray, nodes: Nodes, slopes: bool = False, shares: bool = False) -> GroupMoments:
        """log g and the moments of all kinds at every b (S, p).

        ``slopes``: also E[l'] of the rows; ``shares``: also the probabilities of the nodes.
        """
        (K, d), S, n, M = self.mu.shape, b.shape[0], self.rows.offset.size, nodes.step.shape[1]
        out = GroupMoments(
            np.empty((K, S)),
            np.empty((K, S, d)),
            np.empty((K, S, d, d)),
            np.empty((n if slopes else 0, S)),
            np.empty((K, S, M if shares else 0)),
        )
        if self.rows.loop_terms is None:
            self._fill(b, nodes, out)
            return out
        centre = nodes.mode[:, None] + (nodes.slope @ (b - nodes.centre).T).transpose(0, 2, 1)
        base = self.rows.X @ b.T + self.rows.offset[:, None]
        base += np.einsum("nd,nsd->ns", self.rows.A, centre[self.rows.kind])
        log_weight = np.ascontiguousarray(np.broadcast_to(nodes.log_weight, (K, M)))
        rows = (self.rows.start, base, self.rows.A, self.rows.weight, *self.rows.loop_terms)
        groups = (centre, nodes.step, log_weight, self.P, self.mu, self.log_norm)
        tilt(*(np.ascontiguousarray(v) if np.ndim(v) else v for v in (*rows, *groups)), *out)
        step = out.mean.copy()
        out.covariance[...] -= step[..., :, None] * step[..., None, :]
        out.mean[...] += centre
        return out

    def _fill(self, b: np.ndarray, nodes: Nodes, out: GroupMoments) -> None:
        """Compute ``moments`` for any likelihood, in numpy."""
        for part in self.tilted(b, nodes, slopes=bool(out.pull.size)):
            at = part.kinds, part.points
            out.log_g[at], out.mean[at], out.covariance[at] = part.log_g, part.mean, part.covariance
            if part.first is not None:
                rows = slice(int(self.rows.start[part.kinds.start]), int(self.rows.start[part.kinds.stop]))
                out.pull[rows, part.points] = part.averaged(part.first)
            if out.share.size:
                out.share[at] = part.share

    def tilted(self, b: np.ndarray, nodes: Nodes, slopes: bool = True) -> Iterator[Tilted]:
        """Yield the densities of all kinds at every b (S, p), in blocks that stay in cache."""
        M = nodes.step.shape[1]
        for kinds in blocks(self.rows.start, _BLOCK // M):
            own = self.rows.take(kinds)
            step, mode, slope = nodes.step[kinds], nodes.mode[kinds], nodes.slope[kinds]
            along = np.einsum("nd,nmd->nm", own.A, step[own.kind])
            at_once = max(1, _BLOCK // (M * own.offset.size))
            sums = sum_by(own.start)
            for i in range(0, b.shape[0], at_once):
                points = slice(i, min(i + at_once, b.shape[0]))
                centre = mode[:, None] + np.einsum("kdp,sp->ksd", slope, b[points] - nodes.centre)
                base = own.X @ b[points].T + own.offset[:, None] + np.einsum("nd,nsd->ns", own.A, centre[own.kind])
                eta = base[:, :, None] + along[:, None, :]
                n, S, _ = eta.shape
                if slopes:
                    value, first = own.slopes(eta.reshape(n, -1))
                    first = first.reshape(eta.shape)
                else:
                    value, first = own.log_density(eta.reshape(n, -1)), None
                u = centre[:, :, None] + step[:, None]
                K = u.shape[0]
                log_t = summed(sums, value).reshape(K, S, M)
                log_t += self.log_prior(u.reshape(K, S * M, -1), kinds).reshape(K, S, M)
                log_t += nodes.log_weight[kinds][:, None]
                top = log_t.max(axis=2, keepdims=True)
                share = np.exp(log_t - top)
                mass = share.sum(axis=2, keepdims=True)
                log_g = (top + np.log(mass))[:, :, 0]
                yield Tilted(kinds, points, own, log_g, share / mass, centre, step, eta, first)

    def values(self, b: np.ndarray, nodes: Nodes) -> tuple[np.ndarray, np.ndarray, GroupMoments]:
        """sum_c log g_c (S,), its gradient (S, p) and the moments at every b (S, p); rows without a group included.

        The gradient is that of the sum over nodes, including their movement with b.
        """
        total, gradient = self._alone(b)
        moments, many, own = self.moments(b, nodes, slopes=True), self.data.many, self.rows
        gradient += (moments.pull * many[own.kind][:, None]).T @ own.X
        moved = self._summed(own.A[:, None] * moments.pull[:, :, None])  # E[d log t / du]: the error of the nodes
        moved -= (moments.mean - self.mu[:, None]) @ self.P
        gradient += np.einsum("k,ksd,kdp->sp", many, moved, nodes.slope)
        return total + many @ moments.log_g, gradient, moments

    def _alone(self, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = self.data.alone
        value, first = own.slopes(own.X @ b.T + own.offset[:, None])
        return value.sum(axis=0), first.T @ own.X


def blocks(start: np.ndarray, rows: int) -> Iterator[slice]:
    """Split the kinds into consecutive slices with at most ``rows`` rows, or one kind."""
    i, n = 0, start.size - 1
    while i < n:
        j = max(i + 1, int(np.searchsorted(start, start[i] + rows, side="right")) - 1)
        yield slice(i, min(j, n))
        i = min(j, n)


def sum_by(start: np.ndarray) -> sp.csr_array:
    """A matrix (K, n) that sums over the rows of each kind."""
    n = int(start[-1])
    return sp.csr_array((np.ones(n), np.arange(n), start), shape=(start.size - 1, n))


def summed(sums: sp.csr_array, values: np.ndarray) -> np.ndarray:
    """Sums (K, ...) of values (n, ...) over the rows of each kind."""
    return np.asarray(sums @ values.reshape(values.shape[0], -1)).reshape(-1, *values.shape[1:])
