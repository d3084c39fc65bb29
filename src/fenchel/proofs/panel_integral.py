"""The integral of one function that may have several modes, however narrow: a likelihood that is not log-concave.

Points are put beside every one that is above its neighbours until these are as high: a narrow peak is found by its
sides, which an even grid sees. Gauss and Legendre's panels end at all points, and are halved until nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_SCAN = 1024  # intervals of the even grid
_FLAT = 0.02  # nats between a mode that is resolved and its neighbours
_MODES = 64  # that are looked for, at most
_HALVINGS = 60
_MOST = 1 << 15  # panels
_SETTLED = 1e-12  # of the whole
_ROUNDING = 8.0 * 2.0**-53

Log = Callable[[np.ndarray], np.ndarray]


def panel_integral(log_f: Log, low: float, high: float) -> tuple[float, float]:
    """log of the integral of exp(log_f(x)) from low to high, log_f of x (M,), and how far it may be off.

    It is infinite where the function is highest at an end: what lies beyond is not known.
    """
    x, y = _climbed(log_f, np.linspace(low, high, _SCAN + 1))
    top = float(y.max())
    if y.argmax() in (0, y.size - 1):
        return np.inf, 0.0
    start, end, total, missed = x[:-1], x[1:], 0.0, 0.0
    whole = _panels(log_f, start, end, top)
    square = float(whole @ np.maximum(start**2, end**2)) / max(float(whole.sum()), 1e-300)  # of the terms that cancel
    for _ in range(_HALVINGS):
        middle = 0.5 * (start + end)
        left, right = _panels(log_f, start, middle, top), _panels(log_f, middle, end, top)
        moved = np.abs(left + right - whole)
        open_ = moved > _SETTLED * (total + float((left + right).sum())) / _SCAN
        total += float((left + right)[~open_].sum())
        missed += float(moved[~open_].sum())
        start, end = np.r_[start[open_], middle[open_]], np.r_[middle[open_], end[open_]]
        whole = np.r_[left[open_], right[open_]]
        if start.size == 0 or start.size > _MOST:
            break
    total, missed = total + float(whole.sum()), missed + float(whole.sum())
    return top + float(np.log(total)), missed / total + _ROUNDING * (abs(top) + square)


def _climbed(log_f: Log, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points with those about all modes, in order, and the function there."""
    y = log_f(x)
    for _ in range(_HALVINGS):
        above = np.flatnonzero((y[1:-1] >= y[:-2]) & (y[1:-1] >= y[2:])) + 1
        above = above[y[above] > np.minimum(y[above - 1], y[above + 1]) + _FLAT]
        above = above[np.argsort(-y[above], kind="stable")[:_MODES]]
        new = np.setdiff1d(np.r_[0.5 * (x[above] + x[above - 1]), 0.5 * (x[above] + x[above + 1])], x)
        if new.size == 0:
            break
        place = np.searchsorted(x, new)
        x, y = np.insert(x, place, new), np.insert(y, place, log_f(new))
    return x, y


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def _panels(log_f: Log, start: np.ndarray, end: np.ndarray, top: float) -> np.ndarray:
    """Integrals (m,) of exp(log_f - top) over panels."""
    half = 0.5 * (end - start)[:, None]
    x = 0.5 * (start + end)[:, None] + half * _NODES
    return np.asarray((np.exp(log_f(x.ravel()) - top).reshape(x.shape) * half) @ _WEIGHTS)
