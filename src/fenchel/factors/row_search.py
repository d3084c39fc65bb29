"""The dual problems of all rows of a table, solved together: one Newton system for each row, one search for all.

With the packed pairs c_q of the loadings W_q (``linalg/small.py``), 1/2 Vt o Vt = c K c'. For the pairs t = (i, j) and
u = (k, l) the Newton system of a row is

    (K^-1)_tu = A_ik A_jl + A_il A_jk,        H = diag(I, K^-1) + [a W, lam' c]' Jt [a W, lam' c]

Its unknowns are the L means and the L (L + 1) / 2 pairs. The reduced system has no pairs, and rho^2 / 2 on the
diagonal instead. The full system is used if there are few factors or if the gap of a row decreases slowly.

A step is a full Newton step and need not decrease the dual at once. After ``PATIENCE`` steps without a new best point a
row returns to its best point and takes a step that must make progress, shortened if necessary. If the predicted
decrease is below rounding error, the gap decides; elsewhere a bound of it is enough. Rows that have ended are removed
from the arrays once they are half of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..linalg import small
from ..solvers.base import ARMIJO, PATIENCE, ROUNDING, SLOW, SLOW_STEPS
from .cell_bounds import CellSites, TableCells

FEW_FACTORS = 3  # number of factors up to which every row uses the full Newton system from its first step
LARGEST_BY_ENTRY = 24  # unknowns up to which rows are solved together; LAPACK solves larger systems row by row
LARGEST_SYSTEM = 1 << 20  # numbers in the full Newton systems solved together; more rows are solved in turn
SHORTEST_STEP = 1e-7  # relative to Newton's step; shorter steps are given up

Record = TypeVar("Record")


@dataclass
class RowPoints(CellSites):
    """All rows at one s, with the potentials at s."""

    dual: np.ndarray  # (R,)
    gap: np.ndarray  # (R,)
    u: np.ndarray  # (L, R)  W' alpha, so that the mean of z is -u
    A: np.ndarray  # (L, L, R)  I + W' Lam W
    V: np.ndarray  # (L, L, R)  A^-1
    h: np.ndarray  # (P, R)
    rho: np.ndarray  # (P, R)
    g: np.ndarray  # (Q, R)  the derivative of the dual in tau


def some_rows(record: Record, rows: np.ndarray) -> Record:
    """Selected rows of a record of arrays whose last axis is rows."""
    return type(record)(**{name: x[..., rows] for name, x in vars(record).items()})


def joined_rows(records: Sequence[Record]) -> Record:
    """Records of different rows as one record."""
    names = vars(records[0])
    joined = {name: np.concatenate([vars(one)[name] for one in records], axis=-1) for name in names}
    return type(records[0])(**joined)


def solve_rows(H: np.ndarray, r: np.ndarray) -> np.ndarray:
    """x (N, R) with H_r x_r = r_r for H (N, N, R); NaN for rows whose H is singular."""
    if H.shape[0] <= LARGEST_BY_ENTRY:
        return small.solve(small.cholesky(H), r)
    try:
        return np.linalg.solve(H.transpose(2, 0, 1), r.T[:, :, None])[:, :, 0].T
    except np.linalg.LinAlgError:  # one of the rows is singular: halve them until it is alone
        n = r.shape[1]
        if n == 1:
            return np.full_like(r, np.nan)
        halves = slice(0, n // 2), slice(n // 2, n)
        return np.hstack([solve_rows(H[..., half], r[:, half]) for half in halves])


class RowProblems:
    """The dual problems of the rows of a table with loadings (P, L); W and its packed pairs are over potentials."""

    def __init__(self, cells: TableCells, loadings: np.ndarray) -> None:
        self.cells, self.loadings, self.loading_pairs = cells, loadings, small.pairs(loadings)
        self.W, self.table = cells.of_potentials(loadings), cells.of_potentials(self.loading_pairs)
        self.pair = np.tril_indices(loadings.shape[1])

    def take(self, rows: np.ndarray) -> RowProblems:
        """Selected rows."""
        return RowProblems(self.cells.take(rows), self.loadings)

    def duals(self, s: np.ndarray) -> tuple[CellSites, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The potentials at s (Q, R), u, A, its lower factor, and the dual (R,); inf for rows that overflow."""
        site, L = self.cells.sites(s), self.W.shape[1]
        u, A = self.loadings.T @ site.alpha, np.zeros((L, L, s.shape[1]))
        A[self.pair] = A[self.pair[::-1]] = self.loading_pairs.T @ site.lam
        A += np.eye(L)[..., None]
        C = small.cholesky(A.copy())
        log_det = 2.0 * np.log(C[np.arange(L), np.arange(L)]).sum(axis=0)
        dual = site.value + 0.5 * np.sum(u * u, axis=0) - 0.5 * log_det
        return site, u, A, C, np.where(np.isfinite(dual), dual, np.inf)

    def at(self, s: np.ndarray, exact: bool = True) -> RowPoints:
        """All rows at s (Q, R); the gap is inf for rows that overflow, and an upper bound unless ``exact``."""
        site, u, A, C, dual = self.duals(s)
        V = small.inverse_of(C)
        cells = self.cells
        h, rho = cells.mean - self.loadings @ u, small.doubled(self.loading_pairs) @ V[self.pair]
        seen = cells.sign * cells.of_potentials(h) + 0.5 * site.slope * cells.of_potentials(rho)
        g = s - seen
        gap = cells.gap(s, h, rho, g, exact)
        gap = np.where(np.isnan(gap) | (dual == np.inf), np.inf, gap)
        return RowPoints(**vars(site), dual=dual, gap=gap, u=u, A=A, V=V, h=h, rho=rho, g=g)

    def begin(self) -> np.ndarray:
        """Starting points s (Q, R): from the prior's mean towards alpha = 0, as long as the dual falls."""
        start, c = np.zeros(self.cells.shape), 1.0
        best, falls = np.full(start.shape[1], np.inf), np.ones(start.shape[1], dtype=bool)
        while c >= 1e-4 and falls.any():
            s = self.cells.start(c)
            *_, dual = self.duals(s)
            falls &= dual < best
            best, start = np.where(falls, dual, best), np.where(falls, s, start)
            c /= 4.0
        return start

    # -- Newton's system ---------------------------------------------------------------------------
    def newton(self, at: RowPoints, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        """Newton's step ds (Q, R) and the predicted change g'dtau (R,) of the dual, by the full or reduced system."""
        W, table, L, cells = self.W, self.table, self.W.shape[1], self.cells
        rho = cells.of_potentials(at.rho)
        extra = -0.5 * at.bend * rho
        if not whole:
            extra = extra + 0.5 * (at.slope * rho) ** 2
        d = at.spread / (1.0 + at.spread * extra)
        groups = []  # for softmax columns: their potentials, and the sum of d and slack of each (n, R)
        for one in cells.softmax:
            total = d[one.potentials].sum(axis=1) + at.slack[one.slack]
            groups.append((one.potentials, np.where(total > 0.0, total, np.inf)))

        def inner(x: np.ndarray) -> np.ndarray:
            """The product Jt x."""
            out = d * x
            for q, total in groups:
                out[q] -= d[q] * (out[q].sum(axis=1) / total)[:, None]
            return out

        H = self._whole(at, d) if whole else np.zeros((L, L, d.shape[1]))
        i, j = self.pair
        H[i, j] = H[j, i] = table.T @ d
        H[:L, :L] += np.eye(L)[..., None]
        B = np.hstack([W, table])[:, : H.shape[0]]
        for q, total in groups:
            z = B[q].transpose(0, 2, 1) @ d[q]  # (n, N, R); a and lam' of a softmax are 1
            for one, size in zip(z, total, strict=True):  # all columns at once would take n times the memory of H
                H -= (one / size)[:, None] * one
        pull = inner(-at.g)
        r = W.T @ (cells.sign * pull)
        if whole:
            r = np.concatenate([r, table.T @ (at.slope * pull)])
        x = solve_rows(H, r)
        image = cells.sign * (W @ x[:L])
        if whole:
            image += at.slope * (table @ x[L:])
        left = -at.g - image
        dtau = inner(left)
        return left - extra * dtau, np.sum(at.g * dtau, axis=0)

    def _whole(self, at: RowPoints, d: np.ndarray) -> np.ndarray:
        """The full system (N, N, R) without its first L rows and columns."""
        W, table = self.W, self.table
        (i, j), (Q, T), L, R = self.pair, table.shape, W.shape[1], d.shape[1]
        H = np.empty((L + T, L + T, R))
        cross = (W[:, :, None] * table[:, None]).reshape(Q, L * T).T @ (d * self.cells.sign * at.slope)
        H[:L, L:] = cross.reshape(L, T, R)
        H[L:, :L] = H[:L, L:].transpose(1, 0, 2)
        weight = d * at.slope * at.slope
        if T <= R:  # the smaller of two arrays, (Q, T, T) and (R, T, Q)
            H[L:, L:] = ((table[:, :, None] * table[:, None]).reshape(Q, T * T).T @ weight).reshape(T, T, R)
        else:
            H[L:, L:] = ((table.T * weight.T[:, None]) @ table).transpose(1, 2, 0)
        H[L:, L:] += at.A[i[:, None], i] * at.A[j[:, None], j]
        H[L:, L:] += at.A[i[:, None], j] * at.A[j[:, None], i]
        return H

    def direction(self, at: RowPoints, leave: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Newton's step of rows ``leave`` (R,), with the full system for rows ``whole`` (R,)."""
        ds, promised = np.zeros_like(at.g), np.zeros(leave.size)
        if (leave & ~whole).any():
            ds, promised = self.newton(at, False)
            whole = whole | np.isnan(promised)
        rows = np.flatnonzero(leave & whole)
        size = (self.W.shape[1] + self.table.shape[1]) ** 2
        if rows.size == leave.size and rows.size * size <= LARGEST_SYSTEM:
            return self.newton(at, True)
        for some in np.array_split(rows, 1 + rows.size * size // LARGEST_SYSTEM) if rows.size else ():
            ds[:, some], promised[some] = self.take(some).newton(some_rows(at, some), True)
        return ds, promised

    # -- The search --------------------------------------------------------------------------------
    def search(self, s: np.ndarray, tol: np.ndarray, max_steps: int) -> tuple[np.ndarray, RowPoints, int]:
        """Search from s (Q, R) until the gap of each row is at most ``tol`` (R,); returns end points and most steps."""
        places: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        points: list[RowPoints] = []
        problems, state, place, longest = self, SearchState.begin(s, tol), np.arange(s.shape[1]), 0
        while True:
            at = problems.at(state.s, bool((state.flat | state.careful).any()))
            problems.advance(at, state, max_steps)
            longest = max(longest, int(state.n_steps.max(initial=0)))
            if 2 * state.ended.sum() < state.ended.size:
                continue
            places.append(place[state.ended])
            ends.append(state.s[:, state.ended])
            points.append(some_rows(at, state.ended))
            rest = np.flatnonzero(~state.ended)
            if not rest.size:
                break
            problems, state, place = problems.take(rest), some_rows(state, rest), place[rest]
        order = np.argsort(np.concatenate(places))
        return np.hstack(ends)[:, order], some_rows(joined_rows(points), order), longest

    def advance(self, at: RowPoints, state: SearchState, max_steps: int) -> None:
        """Judge the current point of each row and set its next point s; rows that have ended do not change."""
        dual, gap = at.dual, at.gap
        strict = state.flat | state.careful
        rounding = 0.1 * ROUNDING * np.maximum(1.0, np.abs(state.left_dual))
        least = np.where(state.careful, ARMIJO * state.step * state.promised, -rounding)
        better = (dual <= state.best) | (gap < state.best_gap)
        lower = (gap < state.left_gap) | (dual < state.left_dual + least)
        accepted = (dual < np.inf) & np.where(strict, lower, better | (state.patience > 0))
        # after a failed step, shorten it or return to the row's best point
        failed = (state.step > 0.0) & ~accepted & ~state.ended
        state.careful &= failed | (state.step == 0.0)
        state.step = np.where(failed, state.step * np.where(state.step > 0.1, 0.5, 0.1), state.step)
        shorter = failed & (strict | (dual == np.inf)) & (state.step > SHORTEST_STEP)
        back = failed & ~shorter
        state.last_try |= back & strict
        state.careful |= back
        # other rows are at a new point, which may be their best or their last
        here = ~(failed | state.ended)
        better &= here
        state.best = np.where(better, dual, state.best)
        state.best_gap = np.where(better, gap, state.best_gap)
        state.best_s = np.where(better, state.s, state.best_s)
        state.patience = np.where(better, PATIENCE, state.patience - here)
        state.slow += here & (state.step > 0.0) & (gap > SLOW * state.left_gap)
        over = state.last_try | (state.n_steps >= max_steps) | (dual == np.inf) | (gap <= state.tol)
        state.ended |= here & over
        leave = here & ~state.ended
        if leave.any():
            self.leave(at, state, leave)
        state.step = np.where(back, 0.0, state.step)
        next_s = np.where(back, state.best_s, state.left_s + state.step * state.move)
        state.s = np.where(state.ended, state.s, next_s)

    def leave(self, at: RowPoints, state: SearchState, leave: np.ndarray) -> None:
        """Newton's step for the rows ``leave`` (R,); a row without a valid step ends."""
        whole = (self.W.shape[1] <= FEW_FACTORS) | (state.slow >= SLOW_STEPS)
        ds, promised = self.direction(at, leave, whole)
        state.ended |= leave & np.isnan(promised)
        leave = leave & ~state.ended
        flat = ~(-promised > ROUNDING * np.maximum(1.0, np.abs(at.dual)))
        ds = np.where(flat, ds, self.cells.bounded(at, ds))
        state.n_steps += leave
        state.flat = np.where(leave, flat, state.flat)
        state.promised = np.where(leave, promised, state.promised)
        state.step = np.where(leave, 1.0, state.step)
        state.left_dual = np.where(leave, at.dual, state.left_dual)
        state.left_gap = np.where(leave, at.gap, state.left_gap)
        state.left_s = np.where(leave, state.s, state.left_s)
        state.move = np.where(leave, ds, state.move)


@dataclass
class SearchState:
    """The state of the search of each row; rows are the last axis of each array."""

    s: np.ndarray  # (Q, R)  the next point
    tol: np.ndarray
    best_s: np.ndarray  # (Q, R)
    left_s: np.ndarray  # (Q, R)  the starting point of the last Newton step
    move: np.ndarray  # (Q, R)  the last Newton step
    best: np.ndarray  # the smallest dual, or the dual at the smallest gap
    best_gap: np.ndarray
    left_dual: np.ndarray
    left_gap: np.ndarray
    promised: np.ndarray  # the derivative of the dual along the step
    step: np.ndarray  # the fraction of the step that is tried; 0 after a return to an earlier point
    patience: np.ndarray  # number of further steps allowed without a new best point
    n_steps: np.ndarray
    slow: np.ndarray  # number of steps after which much of the gap remained
    flat: np.ndarray  # whether the predicted decrease is below rounding error
    careful: np.ndarray  # whether the step must make progress
    last_try: np.ndarray  # whether the row ends at its best point, to which it returned
    ended: np.ndarray

    @classmethod
    def begin(cls, s: np.ndarray, tol: np.ndarray) -> SearchState:
        """The state at s (Q, R) before any step."""
        R = s.shape[1]
        values, steps = np.full((4, R), np.inf), np.zeros((2, R))
        counts, flags = np.zeros((3, R), dtype=int), np.zeros((4, R), dtype=bool)
        counts[0] = PATIENCE
        return cls(s, tol, s, s, np.zeros_like(s), *values, *steps, *counts, *flags)
