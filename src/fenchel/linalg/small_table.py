"""All rows of a small table at once, by numpy: ``table.solve`` where compiling it takes longer than the fit.

Formulas, names and search are those of ``_table.py``, for arrays whose last axis is the rows: s (Q, R).
Newton's system has other coordinates, in which products over potentials have fixed tables: with the
packed pairs c_q of W_q, 1/2 Vt o Vt = c K c', and of the pairs t = (i, j) and u = (k, l)

    (K^-1)_tu = A_ik A_jl + A_il A_jk,        H = diag(I, K^-1) + [a W, lam' c]' Jt [a W, lam' c]

Every step evaluates all rows, and a row that has ended stays where it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._cells import REAL
from .small_cells import Cells, Sites
from .tolerances import ARMIJO, PATIENCE, ROUNDING, SLOW, SLOW_STEPS

MOST_POTENTIALS = 4096  # of all rows: an evaluation of the evidence then takes a few milliseconds
MOST_FACTORS = 10  # Newton's system has L + L (L + 1) / 2 unknowns a row


def is_small(n_potentials: int, n_factors: int) -> bool:
    """Whether compiling would take longer than the fit of a table; ``n_potentials`` of all rows."""
    return n_potentials <= MOST_POTENTIALS and n_factors <= MOST_FACTORS


def _cholesky(M: np.ndarray) -> np.ndarray:
    """The lower factor of every matrix, in place; NaN where there is none."""
    for k in range(M.shape[0]):
        M[k:, k] /= np.sqrt(M[k, k])
        M[k + 1 :, k + 1 :] -= M[k + 1 :, None, k] * M[None, k + 1 :, k]
    return M


def _inverse(C: np.ndarray) -> np.ndarray:
    """Of lower triangles."""
    D = np.zeros_like(C)
    for i in range(C.shape[0]):
        D[i, i] = 1.0 / C[i, i]
        D[i, :i] = -np.sum(C[i, :i, None] * D[:i, :i], axis=0) * D[i, i]
    return D


def _solve(C: np.ndarray, r: np.ndarray) -> np.ndarray:
    """(C C')^-1 r, in place."""
    N = r.shape[0]
    for i in range(N):
        r[i] /= C[i, i]
        r[i + 1 :] -= C[i + 1 :, i] * r[i]
    for i in range(N - 1, -1, -1):
        r[i] /= C[i, i]
        r[:i] -= C[i, :i] * r[i]
    return r


class Point(NamedTuple):
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


class SmallTable:
    """The rows of a table with loadings W (Q, L), whose packed pairs are ``table`` (Q, T)."""

    def __init__(self, cells: Cells, W: np.ndarray, table: np.ndarray) -> None:
        self.cells, self.W, self.table = cells, W, table
        self.pair = np.tril_indices(W.shape[1])
        self.back = table * np.where(self.pair[0] == self.pair[1], 1.0, 2.0)

    def at(self, s: np.ndarray) -> Point:
        """Dual, gap and slope of every row at s (Q, R); inf where a row overflows."""
        site, L = self.cells.sites(s), self.W.shape[1]
        u, A = self.W.T @ site.alpha, np.zeros((L, L, s.shape[1]))
        A[self.pair] = A[self.pair[::-1]] = self.table.T @ site.lam
        A += np.eye(L)[..., None]
        C = _cholesky(A.copy())
        D = _inverse(C)
        V = np.sum(D[:, :, None] * D[:, None], axis=0)
        log_det = 2.0 * np.log(C[np.arange(L), np.arange(L)]).sum(axis=0)
        dual = site.value + 0.5 * np.sum(u * u, axis=0) - 0.5 * log_det
        h, rho = self.cells.mt - self.W @ u, self.back @ V[self.pair]
        g = np.where(self.cells.live, s - self.cells.sign * h - 0.5 * site.slope * rho, 0.0)
        dual = np.where(np.isfinite(dual), dual, np.inf)
        gap = self.cells.gap(s, site, h, rho, g)
        gap = np.where(np.isnan(gap) | (dual == np.inf), np.inf, gap)
        return Point(dual, gap, site, u, A, V, h, rho, g)

    def newton(self, at: Point, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        """ds (Q, R) of Newton's system, and g'dtau (R,); ``whole`` as in ``_table.py``."""
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
        x = _solve(_cholesky(H), r)
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

    def search(self, s: np.ndarray, tol: np.ndarray, most: int) -> tuple[np.ndarray, Point, int]:
        """Every row from s (Q, R) to its gap ``tol`` (R,): where it ended, and the largest number of steps."""
        R = s.shape[1]
        best, best_gap, before, old = np.full((4, R), np.inf)
        slope, step = np.zeros((2, R))  # step 0: at a point, about to leave it
        flat, careful, final, done = np.zeros((4, R), dtype=bool)
        patience, n, slow = np.full(R, PATIENCE), np.zeros(R, dtype=int), np.zeros(R, dtype=int)
        best_s, last, move, whole = s, s, np.zeros_like(s), self.W.shape[1] <= 3
        while True:
            at = self.at(s)
            dual, gap = at.dual, at.gap
            # whether the step of each row is taken, made shorter, or leads back to the best point
            strict = flat | careful
            rounding = 0.1 * ROUNDING * np.maximum(1.0, np.abs(before))
            least = np.where(careful, ARMIJO * step * slope, -rounding)
            better = (dual <= best) | (gap < best_gap)
            lower = (gap < old) | (dual < before + least)
            taken = (dual < np.inf) & np.where(strict, lower, better | (patience > 0))
            failed = (step > 0.0) & ~taken & ~done
            careful &= failed | (step == 0.0)
            step = np.where(failed, step * np.where(step > 0.1, 0.5, 0.1), step)
            shorter = failed & (strict | (dual == np.inf)) & (step > 1e-7)
            back = failed & ~shorter
            final |= back & strict
            careful |= back
            # the best point so far, and whether a row has ended
            here = ~(failed | done)
            better &= here
            best, best_gap, best_s = (
                np.where(better, new, x) for new, x in ((dual, best), (gap, best_gap), (s, best_s))
            )
            patience = np.where(better, PATIENCE, patience - here)
            slow += here & (step > 0.0) & (gap > SLOW * old)
            done |= here & (final | (n >= most) | (dual == np.inf) | (gap <= tol))
            leave = here & ~done
            if leave.any():
                whole = whole or bool((leave & (slow >= SLOW_STEPS)).any())
                ds, promised = self.newton(at, whole)
                if not whole and np.isnan(promised[leave]).any():
                    whole = True
                    ds, promised = self.newton(at, whole)
                done |= leave & np.isnan(promised)
                leave &= ~done
                n += leave
                level = ~(-promised > ROUNDING * np.maximum(1.0, np.abs(dual)))
                ds = np.where(level, ds, self.cells.bounded(at.site, ds))
                flat, slope, step = (
                    np.where(leave, new, x) for new, x in ((level, flat), (promised, slope), (1.0, step))
                )
                before, old, last, move = (
                    np.where(leave, new, x) for new, x in ((dual, before), (gap, old), (s, last), (ds, move))
                )
            if done.all():
                return s, at, int(n.max(initial=0))
            step = np.where(back, 0.0, step)
            s = np.where(done, s, np.where(back, best_s, last + step * move))


def solve(
    values: Any,
    s: Any,
    cold: bool,
    kind: Any,
    first: Any,
    levels: Any,
    mt: Any,
    variance: Any,
    cuts: Any,
    W: Any,
    table: Any,
    tol: Any,
    most: int,
    mean: Any,
    V: Any,
    alpha: Any,
    lam: Any,
    elbo: Any,
    gap: Any,
) -> tuple[int, np.ndarray, np.ndarray]:
    """As ``table.solve``."""
    cells = Cells(values, kind, first, levels, mt, variance, cuts)
    rows = SmallTable(cells, W, table)
    found, at, steps = rows.search(rows.begin() if cold else s.T.copy(), tol, most)
    site = at.site
    s[:], mean[:], V[:], alpha[:], lam[:] = found.T, -at.u.T, at.V[rows.pair].T, site.alpha.T, site.lam.T
    elbo[:], gap[:] = at.dual - at.gap, at.gap
    slope_v, slope_cut = np.zeros(kind.size), np.zeros((kind.size, cuts.shape[1] + 2))
    left = ((cells.y - at.h) ** 2 + at.rho)[cells.real] / (2.0 * cells.v) - 0.5
    slope_v[kind == REAL] = np.sum(left * cells.live[cells.real], axis=1)
    for i, (j, q, _) in enumerate(cells.ordered):
        seen = ~np.isnan(values[:, j])
        level, tau = cells.y[q].astype(int), site.tau * cells.live
        both = 1.0 / np.expm1(np.minimum(cells.between[i], 700.0)) * (cells.between[i] < np.inf)
        np.add.at(slope_cut[j], level[seen] + 1, (tau[q] + both)[seen])
        np.add.at(slope_cut[j], level[seen], -(tau[q + 1] + both)[seen])
    return steps, slope_v, slope_cut
