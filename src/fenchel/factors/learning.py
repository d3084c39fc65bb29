"""Learn loadings, offsets and noise of a factor model by its evidence.

    maximise   sum_r P_r(W, b, v) - strength/2 |W|^2 - |b - b0|^2 / 200

b0 are the offsets of a table without factors, and the last term (not for gaussian columns) only holds those that would
run away: a level that was never seen, a column of zeros. Cutpoints of ordinal columns, the first and the logs of the
steps to the next, are held in the same way. A complete table of gaussian columns is learned from its moments, and from
the closed form where they share one noise (``moments.py``). By L-BFGS with exact gradients (nothing is differentiated
through the fits), every row's fit warm-started from the last. The objective of the accepted steps never falls by more
than the rows' gaps. The prior's strength is chosen, or learned by MacKay's rule at the optimum: with H_p = sum_r lam_rp
E[z z'] the curvature in the loadings of predictor p,

    strength = gamma / |W|^2,    gamma = sum_p tr H_p (H_p + strength I)^-1,   the number of well determined loadings

repeated until it settles. A long table is learned on a sample of its rows first. The rotation, which the evidence does
not see, is fixed afterwards: orthogonal loadings, the longest first, each with its largest entry positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logit

from ..checks import problem
from ..solvers.progress import reporting
from .model import Evidence, FactorModel, Parameters
from .moments import Moments

_LONG, _SAMPLE = 20_000, 4_000  # rows from which a sample of so many is learned first
_FEWEST, _MOST = 1e-6, 1e6  # where a learned strength may lie
_PAIRS, _FLAT = 30, 1e-6  # of L-BFGS; of |objective|: a slope whose rise is lost in rounding
_OFFSET_PRECISION, _LEAST_NOISE = 0.01, 1e-6  # of an offset around b0; of a noise variance relative to its column's


@dataclass
class Learned:
    """What was learned.

    objective : float
        elbo - strength/2 |W|^2 - |b - b0|^2 / 200.
    elbo, gap : float
        The evidence bound of the table at the learned parameters, and its certificate.
    trace : list of float
        The objective after every accepted step of the last search (strength fixed); it never falls.
    restarts : list of float
        The objective where each start ended, the best first.
    """

    parameters: Parameters
    objective: float
    elbo: float
    gap: float
    strength: float
    trace: list[float]
    n_iter: int
    converged: bool
    status: str
    restarts: list[float] = field(default_factory=list)


def learn(
    model: FactorModel,
    values: np.ndarray,
    *,
    strength: str | float = "learned",
    n_init: int = 1,
    rng: Any = None,
    tol: float = 1e-8,
    max_iter: int = 200,
    progress: bool = False,
) -> Learned:
    """Fit W, b and v to a table (R, D) with NaN for missing cells.

    Parameters
    ----------
    strength : "learned" or float >= 0
        Prior precision of every loading.
    n_init : int
        Starts: the first from the table's principal components, the others at random.
    rng : numpy Generator or seed
    tol : float
        Relative gap of the rows' fits; the search ends at relative steps of a hundredth of it.
    max_iter : int
        Steps of each search.
    """
    generator = np.random.default_rng(rng)
    if isinstance(strength, str) and strength != "learned":
        raise problem("learn", f"strength = {strength!r}", '"learned" or a number >= 0')
    with reporting(progress, f"factors of {values.shape[0]} rows", None) as report:
        found = []
        for k in range(max(1, n_init)):
            start = principal(model, values) if k == 0 else at_random(model, values, generator)
            if values.shape[0] > _LONG and not _has_moments(model, values):
                few = generator.choice(values.shape[0], _SAMPLE, replace=False)
                start = _learn_from(model, values[few], start, strength, max(tol, 1e-6), max_iter, None)[0].parameters
            found.append(_learn_from(model, values, start, strength, tol, max_iter, report)[0])
    best = max(found, key=lambda one: one.objective)
    best.restarts = sorted((one.objective for one in found), reverse=True)
    return best


def _learn_from(
    model: FactorModel,
    values: np.ndarray,
    start: Parameters,
    strength: str | float,
    tol: float,
    max_iter: int,
    report: Any,
) -> tuple[Learned, Evidence]:
    """One start: searches at ever better strengths, or one at the given strength."""
    learned = isinstance(strength, str)
    size, n_iter = 1.0 if learned else float(strength), 0
    evidence_of, best_of = _source(model, values, tol)
    for _ in range(12 if learned else 1):
        start = start if best_of is None else best_of(size)
        one, evidence = _search(model, values, start, size, tol, max_iter, report, evidence_of)
        n_iter += one.n_iter
        if not learned:
            break
        better = _strength(one.parameters.loadings, evidence.second, size)
        if abs(np.log(better / size)) < 0.02:
            break
        size, start = better, one.parameters
    one.parameters, one.n_iter = rotated(one.parameters), n_iter
    return one, evidence


def _has_moments(model: FactorModel, values: np.ndarray) -> bool:
    """Whether the mean and the covariance of the rows say all there is."""
    return bool(model.gaussian.all()) and not np.isnan(values).any()


def _source(
    model: FactorModel, values: np.ndarray, tol: float
) -> tuple[Callable[[Parameters, Any], Evidence], Callable[[float], Parameters] | None]:
    """The evidence at parameters (and a warm start), and the best parameters at a strength where they are closed."""
    if not _has_moments(model, values):
        return lambda p, start: model.evidence(values, p, start, tol), None
    moments = Moments(values)
    if model.noise != "shared":
        return lambda p, start: moments.evidence(p), None
    least = _LEAST_NOISE * float(_standardised(model, values)[3].min())
    return lambda p, start: moments.evidence(p), lambda size: moments.shared(model, size, least)


def _search(
    model: FactorModel,
    values: np.ndarray,
    start: Parameters,
    size: float,
    tol: float,
    max_iter: int,
    report: Any,
    evidence_of: Callable[[Parameters, Any], Evidence],
) -> tuple[Learned, Evidence]:
    _, centre, _, variance, cutpoints = _standardised(model, values)
    code = Code(model, start, variance)
    held = _OFFSET_PRECISION * np.repeat(~model.gaussian, model.widths)
    middle = steps_of(model, cutpoints)
    last: dict[str, Any] = {"start": None, "x": None}
    trace: list[float] = []

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = code.read(x)
        evidence = evidence_of(parameters, last["start"])
        W, away = parameters.loadings, parameters.offset - centre
        apart = x[code.steps] - middle
        value = evidence.elbo - 0.5 * size * float(np.sum(W * W)) - 0.5 * float(held @ (away * away))
        value -= 0.5 * _OFFSET_PRECISION * float(apart @ apart)
        if not np.isfinite(value):
            return np.inf, np.zeros_like(x)
        last.update(start=evidence.start, x=np.array(x), evidence=evidence, value=value)
        slopes = evidence.loadings - size * W, evidence.offset - held * away
        return -value, -code.slope(evidence, *slopes, evidence.cutpoints - _OFFSET_PRECISION * apart)

    def accepted(x: np.ndarray) -> None:
        trace.append(float(last["value"]))
        if report is not None:
            row = {"iteration": len(trace), "seconds": 0.0, "elbo": last["value"], "gap": last["evidence"].gap}
            report({**row, "elbo_upper": last["value"], "step": 1.0})

    x = code.write(start)
    first, _ = evaluate(x)
    trace.append(-first)
    found = minimize(
        evaluate,
        x,
        jac=True,
        method="L-BFGS-B",
        bounds=code.bounds,
        callback=accepted,
        options={"maxiter": max_iter, "maxcor": _PAIRS, "ftol": 0.01 * tol, "gtol": 1e-9, "maxfun": 4 * max_iter + 20},
    )
    if last["x"] is None or not np.array_equal(last["x"], found.x):
        evaluate(found.x)
    evidence: Evidence = last["evidence"]
    floors = np.array([-np.inf if low is None else low for low, _ in code.bounds])
    slope = float(np.abs(np.maximum(found.x - found.jac, floors) - found.x).max(initial=0.0))
    stuck = slope <= _FLAT * max(1.0, abs(float(found.fun)))  # its line search failed where nothing rises any more
    done = (bool(found.success) or stuck) and evidence.converged
    status = f"{'converged' if done else 'not converged'}: {str(found.message).strip().lower()}"
    if not evidence.converged:
        status += "; some rows' fits did not reach their gap"
    value = float(last["value"])
    result = Learned(code.read(found.x), value, evidence.elbo, evidence.gap, size, trace, int(found.nit), done, status)
    return result, evidence


class Code:
    """Parameters as one flat vector: loadings, offsets, the logs of the noise variances, the steps of cutpoints."""

    def __init__(self, model: FactorModel, like: Parameters, variance: np.ndarray) -> None:
        self.model, self.shape = model, like.loadings.shape
        self.columns = np.flatnonzero(model.gaussian)
        self.shared = model.noise == "shared"
        n = self.shape[0] * (self.shape[1] + 1)
        noises = 0 if self.columns.size == 0 else 1 if self.shared else self.columns.size
        floors = np.log(_LEAST_NOISE * variance[self.columns])  # a column that the factors explain wholly
        floors = floors.min(keepdims=True) if self.shared and noises else floors
        self.noises, self.steps = slice(n, n + noises), slice(n + noises, n + noises + like.cutpoints.size)
        free = [(None, None)]
        self.bounds = free * n + [(float(floor), None) for floor in floors] + free * like.cutpoints.size

    def write(self, p: Parameters) -> np.ndarray:
        logs = np.log(p.variance[self.columns])
        if self.shared and self.columns.size:
            logs = np.array([np.log(np.mean(p.variance[self.columns]))])
        return np.concatenate([p.loadings.ravel(), p.offset, logs, steps_of(self.model, p.cutpoints)])

    def read(self, x: np.ndarray) -> Parameters:
        P, L = self.shape
        variance = np.full(self.model.n_columns, np.nan)
        variance[self.columns] = np.exp(x[self.noises])
        steps = x[self.steps]
        cutpoints = [np.cumsum(np.concatenate([steps[own][:1], np.exp(steps[own][1:])])) for own in self.model.cuts]
        offset = x[P * L : P * (L + 1)].copy()
        return Parameters(x[: P * L].reshape(P, L).copy(), offset, variance, np.concatenate(cutpoints))

    def slope(self, evidence: Evidence, loadings: np.ndarray, offset: np.ndarray, steps: np.ndarray) -> np.ndarray:
        logs = evidence.log_variance[self.columns]
        if self.shared and self.columns.size:
            logs = np.array([logs.sum()])
        return np.concatenate([loadings.ravel(), offset, logs, steps])


def steps_of(model: FactorModel, cutpoints: np.ndarray) -> np.ndarray:
    """Of each ordinal column its first cutpoint and the logs of the steps to the next ones."""
    return np.concatenate(
        [part for own in model.cuts for part in (cutpoints[own][:1], np.log(np.diff(cutpoints[own])))]
    )


def _strength(W: np.ndarray, second: np.ndarray, size: float) -> float:
    """MacKay's update."""
    eigenvalues = np.linalg.eigvalsh(second)
    gamma = float(np.sum(eigenvalues / (eigenvalues + size)))
    return float(np.clip(gamma / max(float(np.sum(W * W)), 1e-300), _FEWEST, _MOST))


def rotated(p: Parameters) -> Parameters:
    """Orthogonal loadings, the longest first, each with its largest entry positive."""
    _, _, Vt = np.linalg.svd(p.loadings, full_matrices=False)
    W = p.loadings @ Vt.T
    largest = W[np.argmax(np.abs(W), axis=0), np.arange(W.shape[1])]
    return replace(p, loadings=W * np.where(largest < 0.0, -1.0, 1.0))


# -- where to begin --------------------------------------------------------------------------------
def principal(model: FactorModel, values: np.ndarray) -> Parameters:
    """Offsets from the columns' means; loadings from the principal components of the standardised table."""
    Z, offset, scale, variance, cutpoints = _standardised(model, values)
    with np.errstate(over="ignore"):
        C = Z.T @ Z / max(1, Z.shape[0])
    roots, vectors = np.linalg.eigh(C)
    order = np.argsort(roots)[::-1][: model.n_components]
    length = np.sqrt(np.maximum(roots[order] - np.median(roots), 0.05))
    W = scale[:, None] * vectors[:, order] * length
    for j, own in enumerate(model.slices):
        if model.gaussian[j]:
            left = 1.0 - float(np.sum((W[own] / scale[own, None]) ** 2))
            variance[j] *= max(left, 0.1)
    return Parameters(W, offset, variance, cutpoints)


def at_random(model: FactorModel, values: np.ndarray, rng: np.random.Generator) -> Parameters:
    _, offset, scale, variance, cutpoints = _standardised(model, values)
    W = 0.5 * scale[:, None] * rng.standard_normal((model.n_predictors, model.n_components))
    return Parameters(W, offset, variance, cutpoints)


def _standardised(model: FactorModel, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The table with unit variances and 0 for holes (R, P); offsets, scales of eta (P,), noises (D,), cutpoints."""
    P = model.n_predictors
    Z, offset, scale = np.zeros((values.shape[0], P)), np.zeros(P), np.ones(P)
    variance, cutpoints = np.full(model.n_columns, np.nan), [np.zeros(0)]
    for j, (kind, own) in enumerate(zip(model.kinds, model.slices, strict=True)):
        y = values[:, j]
        seen = ~np.isnan(y)
        n = int(seen.sum())
        if kind == "gaussian":
            mean, sd = (float(y[seen].mean()), float(y[seen].std())) if n else (0.0, 1.0)
            sd = sd if sd > 0.0 else 1.0
            Z[seen, own.start], offset[own], scale[own], variance[j] = (y[seen] - mean) / sd, mean, sd, sd * sd
        elif kind == "poisson":
            mean = (float(y[seen].sum()) + 0.5) / (n + 1.0)
            Z[seen, own.start] = (y[seen] - mean) / max(float(y[seen].std()) if n else 1.0, mean**0.5)
            offset[own], scale[own] = np.log(mean), min(1.0, mean**-0.5)
        elif kind == "ordinal":
            counts = np.bincount(y[seen].astype(np.intp), minlength=model.levels[j]) + 0.5
            below = np.cumsum(counts)[:-1] / counts.sum()
            middle = (np.concatenate([[0.0], below]) + np.concatenate([below, [1.0]])) / 2
            score = (middle - 0.5) / max(float(middle[y[seen].astype(np.intp)].std()) if n else 1.0, 1e-3)
            Z[seen, own.start], scale[own] = score[y[seen].astype(np.intp)], 2.0
            cutpoints.append(logit(below))
        else:
            K = own.stop - own.start + 1
            ones = np.arange(1, 0, -1) if kind == "bernoulli" else np.arange(K - 1)
            code = (y[:, None] == ones).astype(float) if n else np.zeros((y.size, ones.size))
            share = (code[seen].sum(axis=0) + 0.5) / (n + 0.5 * (ones.size + 1))
            Z[:, own] = np.where(seen[:, None], (code - share) / np.sqrt(share * (1.0 - share)), 0.0)
            offset[own] = logit(share) if kind == "bernoulli" else np.log(share / (1.0 - share.sum()))
            scale[own] = 2.0
    return Z, offset, scale, variance, np.concatenate(cutpoints)
