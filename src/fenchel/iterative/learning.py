"""Learn theta without a factor: where the slope of the evidence, by fixed probes, is zero.

    d elbo / d theta = 1/2 tr[(Q^-1 - V - m m') dQ] + d log p / d theta,     V by probes

The same probes serve at every theta, so the slope is a smooth function whose root is found by quasi-Newton steps from
the information of the prior, 1/2 tr(Q^-1 dQ_i Q^-1 dQ_j). The curvature H at the root, by differences of slopes, gives
how well theta is known, H^-1, and what the probes did to it: H^-1 G H^-1, G the variance of the slope over probes. What
the last step and fit leave, e nats, adds 2 e H^-1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import count, numeric, problem, scalar
from ..gmrf.stack import StackedField
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from ..solvers.progress import reporting
from .certificate import certify
from .fitted import IterativeFit
from .fitting import State, fit
from .task import Task

RISE = 1e-3  # nats that a further step of theta may bring
_FARTHEST = 1.5  # a step of one entry of theta
_LOOSE, _SHARE = 1e-6, 0.03  # an inner fit's error: nats a row at most, and as a share of what theta still gains
FINEST = 1e-6  # nats that inner fits and the last steps may leave
_LAST = 4  # steps by the curvature
_FAR, _NEAR = 1e-3, 1e-6  # relative residuals of the probes' solves: far from the root, and near it
_DIFFERENCE = 0.3  # of an entry's sd, for curvatures
_FLATTEST = 1e-2  # curvatures below this say that a direction is unknown


@dataclass
class Slope:
    """The slope at one theta: its value, what each probe says of the family's part, and the fit there."""

    theta: np.ndarray
    value: np.ndarray
    each: np.ndarray
    state: State
    information: np.ndarray


class Learning:
    """The slope of the evidence as a function of theta, each fit starting from the last."""

    def __init__(self, task: Task, z: np.ndarray) -> None:
        self.task, self.z, self.n_family = task, z, task.family.theta.size
        self.last: State | None = None
        self.rise = np.inf
        self.n_fits = self.n_solves = 0

    def at(self, theta: np.ndarray, gain: float) -> Slope:
        """Fit and differentiate; ``gain`` is what theta is expected to gain still."""
        task = self.task
        first, own = np.split(theta, [self.n_family])
        likelihood = task.likelihood.with_theta(own) if own.size else task.likelihood
        Q, slopes = task.layout.prior(first)
        enough = max(FINEST, min(_LOOSE * task.n_observed, _SHARE * gain))
        state = fit(task, likelihood, Q, self.z, enough, self.last, _FAR if gain > 1.0 else _NEAR)
        self.last = state
        self.n_fits, self.n_solves = self.n_fits + 1, self.n_solves + state.solves
        value, each = state.gradients(slopes)
        mine = _own_slope(state) if own.size else np.zeros(0)
        parts = [task.family.log_prior(first)[1], *([likelihood.log_prior(own)[1]] if own.size else [])]
        total = np.concatenate([value, mine]) + np.concatenate(parts)
        return Slope(theta, total, each, state, self._information(Q, slopes, own.size))

    def _information(self, Q: list[np.ndarray], slopes: list[tuple[int, np.ndarray]], n_own: int) -> np.ndarray:
        """Of complete data: the latents themselves seen, and half a unit a row for the likelihood's own."""
        solved = [(place, np.linalg.solve(Q[place], dQ)) for place, dQ in slopes]
        n = len(slopes)
        out = np.eye(n + n_own) * 0.5 * self.task.n_observed
        for i, (a, A) in enumerate(solved):
            for j, (b, B) in enumerate(solved):
                out[i, j] = 0.5 * float((A * np.swapaxes(B, -1, -2)).sum()) if a == b else 0.0
        return out + 1e-3 * np.eye(n + n_own)


def _own_slope(state: State) -> np.ndarray:
    """d elbo / d(the likelihood's own theta)."""
    return np.asarray(state.likelihood.theta_gradient(state.h[:, None], state.rho[:, None], state.data))


def _own_spread(state: State) -> np.ndarray:
    """How that slope moves with each probe (k, m)."""
    h, rho, value, m = state.h[:, None], state.rho, _own_slope(state), state.probed.m
    each = np.zeros((value.size, m))
    if not value.size:
        return each
    left, right = state.system.lift(state.probed.delta), state.system.lift(state.probed.u)
    whole, middle = state.task.rows.whole, state.rho - state.system.blocked_variance
    for k in range(m):
        off = (whole @ left[:, k]) * (whole @ right[:, k]) - middle
        share = min(0.1, 0.5 / max(1e-12, float((-off / rho).max(initial=0.0))))
        moved = np.asarray(state.likelihood.theta_gradient(h, (rho + share * off)[:, None], state.data))
        each[:, k] = (moved - value) / share
    return each


def learn(
    likelihood: Likelihood,
    family: StackedField,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    theta: Any = None,
    learn_theta: bool = True,
    n_probes: int = 32,
    random_state: Any = 0,
    tol: float = 1e-4,
    level: float = 0.99,
    max_iter: int = 50,
    progress: bool = False,
) -> IterativeFit:
    """Fit a sum of terms without a factor of its precision, hyperparameters learned, with intervals for a certificate.

    Parameters
    ----------
    likelihood : Likelihood
        With one predictor an observation, log-concave.
    family : StackedField
        Effects of groups and fixed effects, as ``gmrf.stack`` makes them; see ``Layout`` for what can be worked on.
    y, weights : arrays (N,)
        NaN for unobserved.
    names : sequence of str, optional
        Of the terms, for messages.
    theta : array, optional
        Where to start: the family's hyperparameters, then the likelihood's own. Default: where they stand.
    learn_theta : bool
        False: fit at theta.
    n_probes : int
        Vectors of random signs, a multiple of 4; as many again for the certificate. Errors fall with the square root.
    random_state : int or Generator
        Of the probes; the same seed gives the same answer.
    tol : float
        Relative gap: the fit has converged where the upper end of the gap's interval is below tol max(1, |elbo|).
    level : float
        Probability of the intervals.
    max_iter : int
        Steps of theta.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel import gmrf
    >>> from fenchel.iterative import learn
    >>> from fenchel.likelihoods import Poisson
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(0, 200, 3000), rng.integers(0, 150, 3000)
    >>> y = rng.poisson(np.exp(0.5 * rng.normal(size=200)[a] + 0.3 * rng.normal(size=150)[b]))
    >>> found = learn(Poisson(), gmrf.stack([(gmrf.iid(200), a), (gmrf.iid(150), b)]), y)
    >>> found.converged, bool(found.gap.upper < 1.0)
    (True, True)
    """
    where = "iterative engine"
    n_probes = count(where, "n_probes", n_probes, 8)
    if n_probes % 4:
        raise problem(where, f"n_probes = {n_probes}", "a multiple of 4", "The certificate takes them in four groups.")
    tol, level = scalar(where, "tol", tol, 0.0, 0.1), scalar(where, "level", level, 0.5, 1.0)
    began, rng = time.perf_counter(), np.random.default_rng(random_state)
    task = Task(likelihood, family, y, weights, names)
    n = task.layout.sizes[1]
    z, check = (rng.choice([-1.0, 1.0], size=(n, n_probes)) for _ in range(2))
    start = np.concatenate([family.theta, likelihood.theta])
    if theta is not None:
        given = numeric(where, "theta", theta)
        if given.shape != start.shape or not np.isfinite(given).all():
            raise problem(where, f"theta has shape {given.shape}", f"{start.size} finite numbers")
        start = given
    objective = Learning(task, z)
    with reporting(progress, f"learning {start.size} hyperparameters", None) as draw:
        searched = _search(objective, start, max_iter if learn_theta and start.size else 0, draw, began)
    last = searched.slope
    last.each = np.vstack([last.each, _own_spread(last.state)])
    enough = 1e-4 * tol * max(1.0, float(np.abs(searched.slope.state.loss.value).sum()))
    certified = certify(searched.slope.state, check, level, enough)
    return IterativeFit(task, searched, certified, tol, n_probes, objective, time.perf_counter() - began)


@dataclass
class Searched:
    """Where the search for theta ended.

    Attributes
    ----------
    slope : Slope
    curvature : array
        H, of the entries that are free; 0 for others.
    free : bool array
        Entries that are not held by a bound.
    n_steps : int
    rise : float
        Nats that a further step would bring.
    settled : bool
    """

    slope: Slope
    curvature: np.ndarray
    free: np.ndarray
    n_steps: int
    rise: float
    settled: bool
    bounds: np.ndarray
    left: float = FINEST  # nats that the fit there may leave


def approach(
    objective: Learning, start: np.ndarray, max_iter: int, draw: Any, began: float
) -> tuple[Slope, np.ndarray, int, float]:
    """Quasi-Newton steps until one promises little: where, the curvature so far, the steps, and what is promised."""
    bounds = objective.task.bounds
    here, gain, n = objective.at(np.clip(start, *bounds.T), np.inf), np.inf, 0
    H = here.information.copy()
    for n in range(1, max_iter + 1):
        free = ~_held(here, bounds)
        step = _step(H, here, free, bounds)
        gain = 0.5 * float(step @ here.value)
        if draw is not None:
            now = {"iteration": float(n), "seconds": time.perf_counter() - began, "step": float(np.abs(step).max())}
            draw({**now, "elbo": np.nan, "elbo_upper": np.nan, "gap": gain})
        if gain <= RISE:
            break
        there = objective.at(here.theta + step, gain)
        H = _updated(H, step, here.value - there.value)
        here = there
    return here, H, n, gain


def _search(objective: Learning, start: np.ndarray, max_iter: int, draw: Any, began: float) -> Searched:
    """Quasi-Newton steps to where the slope is zero, within the bounds."""
    bounds = objective.task.bounds
    if not max_iter:
        here = objective.at(np.clip(start, *bounds.T), 0.0)
        fixed = np.zeros(start.size, dtype=bool)
        return Searched(here, np.zeros((start.size,) * 2), fixed, 0, 0.0, True, bounds)
    here, H, n, _ = approach(objective, start, max_iter, draw, began)
    free = ~_held(here, bounds)
    H = _curvature(objective, here, H, free, bounds)
    objective.last = here.state
    for _ in range(_LAST):  # Newton's own steps end it
        step = _step(H, here, free, bounds)
        rise = 0.5 * float(step @ here.value)
        if rise <= FINEST:
            break
        here = objective.at(here.theta + step, 0.0)
    return Searched(here, H, free, n, rise, rise <= RISE, bounds)


def _held(here: Slope, bounds: np.ndarray) -> np.ndarray:
    """Entries at a bound beyond which the evidence still rises."""
    low, high = bounds.T
    return ((here.theta <= low) & (here.value <= 0.0)) | ((here.theta >= high) & (here.value >= 0.0))


def _step(H: np.ndarray, here: Slope, free: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    step = np.zeros_like(here.theta)
    if free.any():
        step[free] = np.linalg.solve(H[np.ix_(free, free)], here.value[free])
    step *= min(1.0, _FARTHEST / max(1e-300, float(np.abs(step).max(initial=0.0))))
    return np.clip(here.theta + step, *bounds.T) - here.theta


def _updated(H: np.ndarray, step: np.ndarray, fall: np.ndarray) -> np.ndarray:
    """Broyden, Fletcher, Goldfarb and Shanno's update, damped so that H stays positive."""
    Hs, inner = H @ step, float(step @ fall)
    own = float(step @ Hs)
    if inner < 0.2 * own:
        share = 0.8 * own / (own - inner)
        fall = share * fall + (1.0 - share) * Hs
        inner = float(step @ fall)
    return H - np.outer(Hs, Hs) / own + np.outer(fall, fall) / inner


def _curvature(objective: Learning, here: Slope, H: np.ndarray, free: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """H at the root by differences of slopes, of the free entries."""
    out, index = np.zeros_like(H), np.flatnonzero(free)
    rows = []
    for i in index:
        size = min(0.1, _DIFFERENCE / np.sqrt(max(H[i, i], 1.0)))
        step = np.zeros_like(here.theta)
        step[i] = -size if here.theta[i] + size > bounds[i, 1] else size
        objective.last = here.state
        there = objective.at(here.theta + step, 0.0)
        rows.append((here.value - there.value)[index] / step[i])
    if rows:
        found = (np.array(rows) + np.array(rows).T) / 2
        values, vectors = np.linalg.eigh(found)
        out[np.ix_(index, index)] = (vectors * np.maximum(values, _FLATTEST)) @ vectors.T
    return out
