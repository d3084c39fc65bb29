"""Starting points where rows are many.

``levelled`` chooses s so that each alpha_n is zero where that is near, or the alphas sum to nearly zero: a wide prior
of a level, or of a group's, multiplies their sum, so that halves of a count in each of a thousand rows put h
thousands away from the data, and Newton's method takes half its steps to come back.

With millions of rows and few weights (``is_tall``) a sample of the rows knows the weights to a fraction, and Newton
has a step or two left where the likelihood's own start is ten away:

    s = a_h h,    h = mt - X X_few' alpha_few

The rows of the sample weigh more in its stead, so that prior and likelihood are balanced as they are in the whole. A
sample that is tall itself starts the same way.

Under a dense covariance of many rows the fit through an eighth of them (``smaller``) costs a tenth of a Newton step of
all, and mostly leaves one to four steps fewer. Rows whose targets tell much of what that approximation leaves out (a
kernel with white noise beside a large variance, rough kernels) would be far from their best values there:
``leaves_little`` refuses such a start.
"""

from __future__ import annotations

import copy

import numpy as np

from .. import gates
from ..linalg.arrays import Array, namespace
from ..linalg.dense import asarray_index
from ..problem import Problem

_SHORT = 0.6  # of tau: what a row may move for an alpha of 0; the zeros among counts cannot
_STEPS = 8  # of Newton's method for one number
SHARE = 16  # one row in so many
_ENOUGH = 64  # rows of a sample for each weight
MOST_ROWS = 1_500  # of Nystrom's approximation
ROUGH = 1e-3  # relative gap of a fit that only gives a starting point
_TOLD = 3.0  # likelihood's curvature times variance left out: of the starts below none cost a step, above it most did


def levelled(problem: Problem, s: Array) -> Array:
    """s (N, 1) with such alphas; with few rows, or several potentials a row, s as it is."""
    rows, w, xp = problem.rows, problem.weight[:, None], namespace(s)
    if s.shape[0] < gates.MANY_ROWS or s.shape[1] > 1:
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


def is_enough(n: int, n_weights: int) -> bool:
    """Whether a sample of n rows says enough about all of them."""
    return n >= gates.SAMPLED_START and n >= SHARE * _ENOUGH * n_weights


def sample(n: int) -> np.ndarray:
    """One row in ``SHARE`` of n, drawn at random within each stretch of so many; always the same."""
    m = n // SHARE
    return SHARE * np.arange(m) + np.random.default_rng(0).integers(SHARE, size=m)


def is_tall(problem: Problem) -> bool:
    """Whether the problem is worth a sample of its rows first."""
    few = problem.predictors.n_weights
    return few is not None and is_enough(problem.active.size, few)


def sampled(problem: Problem) -> Problem:
    """The same problem with a sample of its rows, each standing for ``SHARE`` of them."""
    keep = sample(problem.active.size)
    xp, index = namespace(problem.weight), asarray_index(keep, problem.weight)
    few = copy.copy(problem)
    few.active = problem.active[keep]
    few.rows = {key: xp.take(value, index, axis=0) for key, value in problem.rows.items()}
    few.rows["weight"] = few.weight = SHARE * few.rows["weight"]
    few.weighted = True
    few.mt, few.predictors = xp.take(problem.mt, index, axis=0), problem.predictors.restrict(keep)
    few.constant = float(xp.sum(few.weight * problem.likelihood.constant(few.rows)))
    return few


def smaller(problem: Problem) -> Problem | None:
    """The same problem through an eighth of the rows of a covariance, or None."""
    n = problem.active.size
    seen = problem.predictors.through_rows(min(n // 8, MOST_ROWS)) if n >= gates.NYSTROM_START else None
    if seen is None:
        return None
    few = copy.copy(problem)
    few.predictors = seen
    return few


def leaves_little(problem: Problem, few: Problem, s: Array) -> bool:
    """Whether targets tell little of the variances that ``smaller`` leaves out, at its s (N, P)."""
    left = 0.0 * problem.mt + few.predictors.extra_variance - problem.predictors.extra_variance  # (N, C)
    told = problem.weight[:, None] * problem.site(s).spread * problem.dual.spread_out(left)
    return float(namespace(s).mean(told)) < _TOLD


def start_of(problem: Problem, few: Problem, alpha: Array) -> Array:
    """s (N, P) of all rows where the mean of q is the one that ``alpha`` gives the few."""
    h = problem.mt - problem.predictors.from_weights(few.predictors.weights_of(alpha) or [])
    return problem.dual.signs(problem.rows) * problem.dual.spread_out(h)


def refined(problem: Problem, s: Array) -> Array:
    """s after a Newton step that takes the posterior variance for zero: half the price of a whole one, as good here.

    With lam = J it is ds = r - a_h Vt (a_h lam r), r = a_h h - s; where they differ, or it is long, nothing is done.
    """
    point, xp = problem.at(s), namespace(s)
    signs = problem.dual.signs(problem.rows)
    spread = problem.weight[:, None] * point.site.spread
    same = spread.shape == point.lam.shape and not bool(xp.any(spread != point.lam))
    if not (np.isfinite(point.dual) and point.site.slack is None and same):
        return s
    r = signs * point.h - s
    there = problem.straight(s, r - signs * point.factor.apply(signs * point.lam * r))
    return s if there is None else there
