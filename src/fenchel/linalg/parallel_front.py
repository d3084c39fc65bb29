"""One very large front on several threads: the stripes of ``_fronts.py`` side by side, with its digits.

The top of a tree of fronts has nothing beside it; its products are cut into stripes instead. What is left to one thread
are triangles of a few hundred columns and copies.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from . import _fronts as fronts
from ._blas import NO, YES


def _each(pool: Executor, n: int, stripe: Callable[[int], Any]) -> None:
    """``stripe`` of every row or column where one begins, the last first: below a diagonal they are the longest."""
    list(pool.map(stripe, reversed(range(0, n, fronts.STRIPE))))


def cholesky(pool: Executor, w: int, a: np.ndarray, lda: int, inverse: np.ndarray, ldi: int) -> int:
    """``wide_cholesky``."""
    if w <= fronts.HALVED:
        return int(fronts.wide_cholesky(w, a, lda, inverse, ldi, np.empty(fronts.BLOCK)))
    h = w // 2
    r, below, beside = w - h, a[h * lda :], inverse[h * ldi :]
    bad = cholesky(pool, h, a, lda, inverse, ldi)
    if bad >= 0:
        return bad
    _each(pool, r, lambda i: fronts.rows_times(i, r, h, inverse, ldi, YES, below, lda))
    _each(pool, r, lambda i: fronts.rows_square(i, r, h, below, lda, below[h:], lda))
    bad = cholesky(pool, r, below[h:], lda, beside[h:], ldi)
    if bad >= 0:
        return h + bad
    rows = np.lib.stride_tricks.as_strided
    rows(beside, (r, h), (8 * ldi, 8))[...] = rows(below, (r, h), (8 * lda, 8))
    _each(pool, r, lambda i: fronts.rows_times(i, r, h, inverse, ldi, NO, beside, ldi))
    _each(pool, h, lambda i: fronts.columns_times(i, h, r, -1.0, beside[h:], ldi, NO, beside, ldi))
    return -1


def square(pool: Executor, w: int, t: np.ndarray, ld: int) -> None:
    """``wide_square``."""
    if w <= fronts.HALVED:
        fronts.wide_square(w, t, ld)
        return
    h = w // 2
    r, below = w - h, t[h * ld :]
    square(pool, h, t, ld)
    _each(pool, h, lambda i: fronts.rows_lower(i, r, h, 1.0, below, ld, below, ld, t, ld))
    _each(pool, h, lambda i: fronts.columns_times(i, h, r, 1.0, below[h:], ld, YES, below, ld))
    square(pool, r, below[h:], ld)


def eliminate(pool: Executor, w: int, r: int, F: np.ndarray, inverse: np.ndarray, U: np.ndarray) -> int:
    """``eliminate_wide``."""
    fronts.clear_above(w, F, inverse)
    bad = cholesky(pool, w, F, w, inverse, w)
    if bad < 0:
        _each(pool, r, lambda i: fronts.rows_times(i, r, w, inverse, w, YES, F[w * w :], w))
        _each(pool, r, lambda i: fronts.rows_square(i, r, w, F[w * w :], w, U, r))
    return bad


def invert(
    pool: Executor, w: int, r: int, F: np.ndarray, inverse: np.ndarray, Z22: np.ndarray, ld: int, out: np.ndarray
) -> None:
    """``invert_wide``."""
    fronts.copy_lower(w, inverse, out)
    square(pool, w, out, w)
    if r > 0:
        Y, below = np.array(F[w * w : (w + r) * w]), out[w * w :]
        _each(pool, r, lambda i: fronts.rows_times(i, r, w, inverse, w, NO, Y, w))
        _each(pool, w, lambda i: fronts.columns_symmetric(i, r, w, Z22, ld, Y, below))
        _each(pool, w, lambda i: fronts.rows_lower(i, r, w, -1.0, Y, w, below, w, out, w))
    fronts.mirror(w, out)
