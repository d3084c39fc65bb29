"""A first s of many rows, such that their alphas are 0 where they can be, and else sum to next to nothing.

A wide prior of a level, or of a group's, multiplies their sum: halves of a count in each of a thousand rows put h
thousands away from the data, and Newton's method takes half its steps to come back.
"""

from __future__ import annotations

from ..linalg.arrays import Array, namespace
from ..linalg.tolerances import MANY_ROWS
from ..problem import Problem

_SHORT = 0.6  # of tau: what a row may move for an alpha of 0; the zeros among counts cannot
_STEPS = 8  # of Newton's method for one number


def levelled(problem: Problem, s: Array) -> Array:
    """s (N, 1) with such alphas; with few rows, or several potentials a row, s as it is."""
    rows, w, xp = problem.rows, problem.weight[:, None], namespace(s)
    if s.shape[0] < MANY_ROWS or s.shape[1] > 1:
        return s
    site, signs = problem.site(s), problem.dual.signs(rows)
    away = -signs * site.alpha / site.spread
    there = problem.straight(s, xp.where(xp.abs(away) < _SHORT, away, xp.zeros_like(away)))
    there = s if there is None else there
    for _ in range(_STEPS):
        site = problem.site(there)
        left, slope = xp.sum(w * site.alpha), xp.sum(w * signs * site.spread)
        if not abs(float(left)) < 0.5 * abs(float(slope)):
            break
        there = there - left / slope
    return there
