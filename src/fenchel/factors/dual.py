"""The rows of a table under bounds that have a dual: a small problem a row, all of them solved at once by numpy.

A potential is a coordinate s of the dual. A column has one a predictor, an ordinal one two on its one predictor:
arrays of the dual go by potentials, what leaves here goes by predictors. With the packed pairs c_q of the loadings
W_q, 1/2 Vt o Vt = c K c', and of the pairs t = (i, j) and u = (k, l) Newton's system is

    (K^-1)_tu = A_ik A_jl + A_il A_jk,        H = diag(I, K^-1) + [a W, lam' c]' Jt [a W, lam' c]

The part of the pairs is left out (rho^2 / 2 on the diagonal stands for it) unless there are few factors or a row's gap
falls slowly. Rows that have ended leave the arrays once they are half of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Ordinal, Poisson
from ..likelihoods.base import Likelihood
from ..likelihoods.ordinal import by_steps
from ..linalg import small
from ..linalg.arrays import ArrayLike
from ..linalg.tolerances import ARMIJO, PATIENCE, ROUNDING, SLOW, SLOW_STEPS
from . import cell_bounds as cells_
from .cell_bounds import Cells, Sites
from .model import Solved

if TYPE_CHECKING:
    from .model import FactorModel, Parameters

FEW_FACTORS = 3  # up to which Newton's system of a row has its L (L + 1) / 2 pairs from the first step
LARGEST_BY_ENTRY = 24  # unknowns up to which a loop over entries, all rows at once, beats LAPACK row by row
LARGEST_SYSTEM = 1 << 22  # numbers in the Newton systems of some rows that are solved together

# a cell's share of the tolerance: a hundredth of the nats it may cost, because a search over parameters compares
# values to a hundredth of the tolerance, and Newton squares what is left anyway
_A_CELL = 1e-3
_CODES: dict[tuple[type[Likelihood], str], int] = {
    (BernoulliLogit, "log-sum"): cells_.LOGISTIC,
    (BernoulliLogit, "tilted"): cells_.TILTED,
    (Poisson, "none"): cells_.COUNT,
    (Gaussian, "none"): cells_.REAL,
    (MultinomialLogit, "log-sum"): cells_.SOFTMAX,
    (Ordinal, "log-sum"): cells_.ORDERED,
    (Ordinal, "tilted"): cells_.ORDERED_TILTED,
}


def code(likelihood: Likelihood) -> int | None:
    """Which potential of the dual a likelihood is, None if it is none."""
    if any(getattr(likelihood, key) is not None for key in likelihood.row_parameters):
        return None
    if isinstance(likelihood, MultinomialLogit) and likelihood.reference is None:
        return None
    return _CODES.get((type(likelihood), likelihood.bound))


class Layout:
    """Where the potentials of a model are.

    kind, levels (D,); first (D + 1,): where each column's potentials begin; owner (Q,): the predictor of each.
    """

    def __init__(self, model: FactorModel) -> None:
        self.kind = np.array([code(own) for own in model.likelihoods])
        self.levels = np.array([own.n_levels if own.support == "levels" else 0 for own in model.likelihoods])
        counts = np.where(model.ordered, 2, model.widths)
        self.first = np.concatenate([[0], np.cumsum(counts)])
        twice = np.repeat(model.ordered, model.widths)
        self.owner = np.repeat(np.arange(model.n_predictors), np.where(twice, 2, 1))
        self.begins = np.searchsorted(self.owner, np.arange(model.n_predictors))
        self.width = max(1, *self.levels) if model.ordered.any() else 1  # of the cutpoints

    def by_predictor(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Potentials that share a predictor added up."""
        return x if self.owner.size == self.begins.size else np.add.reduceat(x, self.begins, axis=axis)

    def arguments(self, p: Parameters) -> tuple[Any, ...]:
        """kind, first, levels, mt, variance, cuts, W as ``Cells`` and ``RowProblems`` take them."""
        cuts = np.zeros((self.kind.size, self.width))
        for row, own in zip(cuts, p.likelihoods, strict=True):
            if isinstance(own, Ordinal):
                row[: own.cutpoints.size] = own.cutpoints
        W = np.ascontiguousarray(p.loadings[self.owner])
        return self.kind, self.first, self.levels, p.offset[self.owner], p.variance, cuts, W


def _take(x: Any, rows: np.ndarray) -> Any:
    """Some rows of arrays whose last axis is the rows, in a record, a list or alone."""
    if isinstance(x, np.ndarray):
        return x[..., rows]
    if isinstance(x, list):
        return [_take(one, rows) for one in x]
    return type(x)(**{name: _take(value, rows) for name, value in vars(x).items()})


def _joined(xs: list[Any]) -> Any:
    """Records of some rows each as one."""
    if isinstance(xs[0], np.ndarray):
        return np.concatenate(xs, axis=-1)
    if isinstance(xs[0], list):
        return [_joined(list(each)) for each in zip(*xs, strict=True)]
    return type(xs[0])(**{name: _joined([vars(x)[name] for x in xs]) for name in vars(xs[0])})


def _solved(H: np.ndarray, r: np.ndarray) -> np.ndarray:
    """H^-1 r of every row; NaN where H is not positive definite."""
    if H.shape[0] <= LARGEST_BY_ENTRY:
        return small.solve(small.cholesky(H), r)
    try:
        return np.linalg.solve(H.transpose(2, 0, 1), r.T[:, :, None])[:, :, 0].T
    except np.linalg.LinAlgError:
        return np.full_like(r, np.nan)


@dataclass
class RowPoints:
    """All rows at one s."""

    dual: np.ndarray  # (R,)
    gap: np.ndarray  # (R,)
    site: Sites
    u: np.ndarray  # (L, R)
    A: np.ndarray  # (L, L, R)
    V: np.ndarray  # (L, L, R)
    h: np.ndarray  # (Q, R)
    rho: np.ndarray  # (Q, R)
    g: np.ndarray  # (Q, R)  the slope of the dual in tau


class RowProblems:
    """The dual problems of the rows of a table with loadings W (Q, L), whose packed pairs are ``table`` (Q, T)."""

    def __init__(self, cells: Cells, W: np.ndarray, table: np.ndarray) -> None:
        self.cells, self.W, self.table = cells, W, table
        self.pair = np.tril_indices(W.shape[1])
        self.back = table * np.where(self.pair[0] == self.pair[1], 1.0, 2.0)

    def at(self, s: np.ndarray) -> RowPoints:
        """Dual, gap and slope of every row at s (Q, R); inf where a row overflows."""
        site, L = self.cells.sites(s), self.W.shape[1]
        u, A = self.W.T @ site.alpha, np.zeros((L, L, s.shape[1]))
        A[self.pair] = A[self.pair[::-1]] = self.table.T @ site.lam
        A += np.eye(L)[..., None]
        C = small.cholesky(A.copy())
        V = small.inverse_of(C)
        log_det = 2.0 * np.log(C[np.arange(L), np.arange(L)]).sum(axis=0)
        dual = site.value + 0.5 * np.sum(u * u, axis=0) - 0.5 * log_det
        h, rho = self.cells.mt - self.W @ u, self.back @ V[self.pair]
        g = np.where(self.cells.live, s - self.cells.sign * h - 0.5 * site.slope * rho, 0.0)
        dual = np.where(np.isfinite(dual), dual, np.inf)
        gap = self.cells.gap(s, site, h, rho, g)
        gap = np.where(np.isnan(gap) | (dual == np.inf), np.inf, gap)
        return RowPoints(dual, gap, site, u, A, V, h, rho, g)

    def newton(self, at: RowPoints, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        """ds (Q, R) of Newton's system, and g'dtau (R,); ``whole``: with the part of the pairs."""
        W, table, L, site, cells = self.W, self.table, self.W.shape[1], at.site, self.cells
        sign, softmax = cells.sign, cells.softmax
        extra = np.where(cells.tilted, at.rho, 0.0)
        if not whole:
            extra = extra + 0.5 * (site.slope * at.rho) ** 2
        d = site.spread / (1.0 + site.spread * extra)
        totals = [d[q].sum(axis=1) + rest for q, rest in zip(softmax, site.slack, strict=True)]
        totals = [np.where(total > 0.0, total, np.inf) for total in totals]

        def inner(x: np.ndarray) -> np.ndarray:
            """Jt x."""
            out = d * x
            for q, total in zip(softmax, totals, strict=True):
                out[q] -= d[q] * (out[q].sum(axis=1) / total)[:, None]
            return out

        (i, j), N = self.pair, L + (table.shape[1] if whole else 0)
        H = np.zeros((N, N, d.shape[1]))
        H[i, j] = H[j, i] = table.T @ d
        H[:L, :L] += np.eye(L)[..., None]
        if whole:
            slope, T = site.slope, table.shape[1]
            cross = (W[:, :, None] * table[:, None]).reshape(-1, L * T).T @ (d * sign * slope)
            H[:L, L:] = cross.reshape(L, T, -1)
            H[L:, :L] = H[:L, L:].transpose(1, 0, 2)
            below = (table[:, :, None] * table[:, None]).reshape(-1, T * T).T @ (d * slope * slope)
            ik, jl, il, jk = (at.A[one[:, None], other] for one, other in ((i, i), (j, j), (i, j), (j, i)))
            H[L:, L:] = below.reshape(T, T, -1) + ik * jl + il * jk
        B = np.hstack([W, table])[:, :N]
        for q, total in zip(softmax, totals, strict=True):
            z = B[q].transpose(0, 2, 1) @ d[q]  # (n, N, R), a and lam' of a softmax being 1
            H -= np.sum((z / total[:, None])[:, :, None] * z[:, None], axis=0)
        pull = inner(-at.g)
        r = np.concatenate([W.T @ (sign * pull), *([table.T @ (site.slope * pull)] if whole else [])])
        x = _solved(H, r)
        image = sign * (W @ x[:L]) + (site.slope * (table @ x[L:]) if whole else 0.0)
        left = np.where(cells.live, -at.g - image, 0.0)
        dtau = inner(left)
        return left - extra * dtau, np.sum(at.g * dtau, axis=0)

    def begin(self) -> np.ndarray:
        """Of every row the first start on the way to alpha = 0 that the next does not better."""
        out, c = np.zeros_like(self.cells.y), 1.0
        best, going = np.full(out.shape[1], np.inf), np.ones(out.shape[1], dtype=bool)
        while c >= 1e-4 and going.any():
            s = self.cells.start(c)
            dual = self.at(s).dual
            going &= dual < best
            best, out, c = np.where(going, dual, best), np.where(going, s, out), c / 4.0
        return out

    def take(self, rows: np.ndarray) -> RowProblems:
        """Some of the rows."""
        return RowProblems(self.cells.take(rows), self.W, self.table)

    def direction(self, at: RowPoints, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Newton's step of every row; ``whole`` (R,): with the part of the pairs."""
        ds, promised = self.newton(at, False)
        whole = np.flatnonzero(whole | np.isnan(promised))
        size = sum(self.newton_sizes) ** 2
        for some in np.array_split(whole, 1 + whole.size * size // LARGEST_SYSTEM) if whole.size else ():
            ds[:, some], promised[some] = self.take(some).newton(_take(at, some), True)
        return ds, promised

    @property
    def newton_sizes(self) -> tuple[int, int]:
        """Unknowns of Newton's system of a row: the means, and the pairs."""
        return self.W.shape[1], self.table.shape[1]

    def search(self, s: np.ndarray, tol: np.ndarray, most: int) -> tuple[np.ndarray, RowPoints, int]:
        """Every row from s (Q, R) to its gap ``tol`` (R,): where it ended, and the largest number of steps."""
        ended: list[tuple[np.ndarray, np.ndarray, RowPoints]] = []
        problems, run, place, longest = self, _Run.begin(s, tol), np.arange(s.shape[1]), 0
        while True:
            at = problems.at(run.s)
            problems.advance(at, run, most)
            longest = max(longest, int(run.n.max(initial=0)))
            if 2 * run.done.sum() < run.done.size:
                continue
            ended.append((place[run.done], run.s[:, run.done], _take(at, run.done)))
            go = np.flatnonzero(~run.done)
            if not go.size:
                break
            problems, run, place = problems.take(go), _take(run, go), place[go]
        order = np.argsort(np.concatenate([rows for rows, _, _ in ended]))
        found = _joined([point for _, _, point in ended])
        return np.hstack([s for _, s, _ in ended])[:, order], _take(found, order), longest

    def advance(self, at: RowPoints, run: _Run, most: int) -> None:
        """One evaluation of every row: its step is taken, made shorter or leads back; then where it goes next."""
        dual, gap = at.dual, at.gap
        strict = run.flat | run.careful
        rounding = 0.1 * ROUNDING * np.maximum(1.0, np.abs(run.before))
        least = np.where(run.careful, ARMIJO * run.step * run.slope, -rounding)
        better = (dual <= run.best) | (gap < run.best_gap)
        lower = (gap < run.old) | (dual < run.before + least)
        taken = (dual < np.inf) & np.where(strict, lower, better | (run.patience > 0))
        failed = (run.step > 0.0) & ~taken & ~run.done
        run.careful &= failed | (run.step == 0.0)
        run.step = np.where(failed, run.step * np.where(run.step > 0.1, 0.5, 0.1), run.step)
        shorter = failed & (strict | (dual == np.inf)) & (run.step > 1e-7)
        back = failed & ~shorter
        run.final |= back & strict
        run.careful |= back
        # the best point so far, and whether a row has ended
        here = ~(failed | run.done)
        better &= here
        run.best, run.best_gap = np.where(better, dual, run.best), np.where(better, gap, run.best_gap)
        run.best_s = np.where(better, run.s, run.best_s)
        run.patience = np.where(better, PATIENCE, run.patience - here)
        run.slow += here & (run.step > 0.0) & (gap > SLOW * run.old)
        run.done |= here & (run.final | (run.n >= most) | (dual == np.inf) | (gap <= run.tol))
        leave = here & ~run.done
        if leave.any():
            self.leave(at, run, leave)
        run.step = np.where(back, 0.0, run.step)
        moved = np.where(back, run.best_s, run.last + run.step * run.move)
        run.s = np.where(run.done, run.s, moved)

    def leave(self, at: RowPoints, run: _Run, leave: np.ndarray) -> None:
        """Newton's step of the rows that ``leave`` their point."""
        whole = leave & ((self.W.shape[1] <= FEW_FACTORS) | (run.slow >= SLOW_STEPS))
        ds, promised = self.direction(at, whole)
        run.done |= leave & np.isnan(promised)
        leave = leave & ~run.done
        run.n += leave
        level = ~(-promised > ROUNDING * np.maximum(1.0, np.abs(at.dual)))
        ds = np.where(level, ds, self.cells.bounded(at.site, ds))
        new = {"flat": level, "slope": promised, "step": 1.0, "before": at.dual, "old": at.gap}
        for name, value in {**new, "last": run.s, "move": ds}.items():
            setattr(run, name, np.where(leave, value, getattr(run, name)))


@dataclass
class _Run:
    """Where the search of every row is; the last axis of each array is the rows."""

    s: np.ndarray  # (Q, R)
    tol: np.ndarray
    best_s: np.ndarray  # (Q, R)
    last: np.ndarray  # (Q, R) the point that a row left
    move: np.ndarray  # (Q, R) the step that it took
    best: np.ndarray
    best_gap: np.ndarray
    before: np.ndarray  # dual where it left
    old: np.ndarray  # gap where it left
    slope: np.ndarray
    step: np.ndarray  # 0: at a point, about to leave it
    patience: np.ndarray
    n: np.ndarray
    slow: np.ndarray
    flat: np.ndarray
    careful: np.ndarray
    final: np.ndarray
    done: np.ndarray

    @classmethod
    def begin(cls, s: np.ndarray, tol: np.ndarray) -> _Run:
        R = s.shape[1]
        values, steps = np.full((4, R), np.inf), np.zeros((2, R))
        counts, flags = np.zeros((3, R), dtype=int), np.zeros((4, R), dtype=bool)
        counts[0] = PATIENCE
        return cls(s, tol, s, s, np.zeros_like(s), *values, *steps, *counts, *flags)


def solve(
    values: np.ndarray,
    s: np.ndarray | None,
    arguments: tuple[Any, ...],
    pairs: np.ndarray,
    tol: np.ndarray,
    most: int,
) -> tuple[np.ndarray, RowPoints, int, np.ndarray, np.ndarray]:
    """Every row to its gap ``tol`` (R,), from s (Q, R) or from a start of its own: where it ended, its point,
    the largest number of steps, and the slopes of the evidence in log variance (D,) and in the cutpoints with both
    open ends (D, K + 1).
    """
    *given, W = arguments
    kind, cuts = given[0], given[5]
    cells = Cells(values, *given)
    rows = RowProblems(cells, W, pairs)
    found, at, steps = rows.search(rows.begin() if s is None else s, tol, most)
    site = at.site
    slope_v, slope_cut = np.zeros(kind.size), np.zeros((kind.size, cuts.shape[1] + 2))
    left = ((cells.y - at.h) ** 2 + at.rho)[cells.real] / (2.0 * cells.v) - 0.5
    slope_v[kind == cells_.REAL] = np.sum(left * cells.live[cells.real], axis=1)
    for i, (j, q, _) in enumerate(cells.ordered):
        seen = ~np.isnan(values[:, j])
        level, tau = cells.y[q].astype(int), site.tau * cells.live
        both = 1.0 / np.expm1(np.minimum(cells.between[i], 700.0)) * (cells.between[i] < np.inf)
        np.add.at(slope_cut[j], level[seen] + 1, (tau[q] + both)[seen])
        np.add.at(slope_cut[j], level[seen], -(tau[q + 1] + both)[seen])
    return found, at, steps, slope_v, slope_cut


class DualRows(Solved):
    """Every row solved by itself, to gaps that are small together."""

    elbo: np.ndarray = np.zeros(0)
    gap: np.ndarray = np.zeros(0)

    def __init__(
        self, model: FactorModel, values: np.ndarray, p: Parameters, start: ArrayLike | None, tol: float, max_iter: int
    ) -> None:
        self.p, own, arguments = p, model.layout, model.layout.arguments(p)
        R, s = values.shape[0], None if start is None else np.asarray(start, dtype=np.float64).T
        pairs = small.pairs(arguments[-1])
        share = np.maximum(1.0 / max(1, R), _A_CELL * np.sum(~np.isnan(values), axis=1))
        self.n_iter = 0
        with np.errstate(all="ignore"):
            for _ in range(3):
                s, at, steps, *self.ends = solve(values, s, arguments, pairs, tol * share, max_iter)
                self.n_iter += min(steps, max_iter)
                self.elbo, self.gap = at.dual - at.gap, at.gap
                self.total, self.off = float(self.elbo.sum()), float(self.gap.sum())
                most = tol * max(1.0, abs(self.total))
                if self.off <= most or not np.isfinite(self.gap).all() or steps >= max_iter:
                    break
                share = np.full(R, 0.5 * most / (tol * R))
        self.s, self.mean, self.V = np.asarray(s).T, -at.u.T, at.V[np.tril_indices(model.n_components)].T
        self.alpha, self.lam = own.by_predictor(at.site.alpha.T, 1), own.by_predictor(at.site.lam.T, 1)
        self.converged = bool(self.off <= most)

    def slopes(self) -> list[np.ndarray]:
        log_variance, ends = self.ends
        return [
            by_steps(ends[j, : own.n_levels + 1], own.cutpoints) if isinstance(own, Ordinal) else log_variance[[j]]
            for j, own in enumerate(self.p.likelihoods)
            if own.theta.size
        ]
