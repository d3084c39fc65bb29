"""Fit q at given hyperparameters, alternating Newton steps for the mean with variances of eta by probes.

    alpha = df/dh,  lam = 2 df/drho at (h, rho),    P = Q + A' Lam A
    m <- m - P^-1 (Q m + A' alpha),    rho <- diag(A P^-1 A')

The probes are the same at every step, so that rho is a smooth function of lam, and the result a smooth function of
theta. The steps of the mean end when the predicted gain is small; 1/2 g' Q^-1 g bounds the gain by any other mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..checks import instance, problem
from ..gmrf.stack import StackedField
from ..likelihoods.base import Likelihood, Rows, Targets, slice_rows
from ..linalg.arrays import ArrayLike
from ..linalg.block_stacks import times
from ..linalg.machine import in_blocks
from .layout import LatentLayout, RowSet
from .system import Probed, System

WHERE = "iterative engine"
_NEWTON = 1e-4  # relative residual of the solves for the mean
_FIRST = 0.01  # variance of eta at the start of a fit
_TURN = -0.3  # if the cosine between two changes of the variances is smaller, they oscillate and are damped
_FAR = 0.5  # longer steps of eta are shortened until the loss decreases


@dataclass(frozen=True)
class RowSites:
    """Weighted f(h, rho) with alpha = df/dh and lam = 2 df/drho; all (n,)."""

    value: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray

    @property
    def total(self) -> float:
        """The sum of f."""
        return float(self.value.sum())


class Task:
    """Likelihood, prior and y; rows of weight 0 are excluded from the fit and predicted afterwards.

    Attributes
    ----------
    layout : LatentLayout
    rows : RowSet
        The rows with positive weight.
    offset : array (n,)
        The known part of eta at these rows.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        family: StackedField,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        instance(WHERE, "family", family, StackedField, "gmrf.stack([(gmrf.iid(n), column)])")
        if likelihood.n_predictors != 1:
            got = f"{likelihood.name} has {likelihood.n_predictors} predictors an observation"
            raise problem(WHERE, got, "a likelihood with one predictor", 'Use engine="direct".')
        if not likelihood.objective.log_concave:
            got = f"{likelihood.name} is not log-concave"
            raise problem(WHERE, got, "a log-concave likelihood", 'Use engine="direct".')
        self.likelihood, self.family = likelihood, family
        self.targets = Targets(likelihood, y, weights)
        weight = np.asarray(self.targets.rows_of(likelihood)["weight"])
        self.keep = np.flatnonzero(weight > 0.0)
        if not self.keep.size:
            raise problem(WHERE, "no row is observed", "at least one row with y and a weight above 0")
        self.layout = LatentLayout(family, [str(i) for i in range(len(family.parts))] if names is None else list(names))
        self.rows = RowSet(self.layout, sp.csr_array(self.layout.A[self.keep]))
        self.offset = np.broadcast_to(np.asarray(family.offset, dtype=np.float64), weight.shape)[self.keep]

    @property
    def n_observed(self) -> int:
        return int(self.keep.size)

    def data(self, likelihood: Likelihood) -> Rows:
        """The likelihood's data for the rows with positive weight."""
        return {key: value[self.keep] for key, value in self.targets.rows_of(likelihood).items()}

    def loss(self, likelihood: Likelihood, data: Rows, h: np.ndarray, rho: np.ndarray) -> RowSites:
        """Weighted f with its derivatives (n,)."""
        bound, w = likelihood.objective, data["weight"]

        def one(block: slice) -> tuple[np.ndarray, ...]:
            loss = bound.loss(h[block, None], rho[block, None], slice_rows(data, block))
            return tuple(np.asarray(w[block] * part) for part in (loss.value, loss.alpha, loss.lam))

        return RowSites(*in_blocks(h.size, one))

    @property
    def theta(self) -> np.ndarray:
        """Start values of the hyperparameters: the family's, then the likelihood's own."""
        return np.concatenate([self.family.theta, self.likelihood.theta])

    @property
    def bounds(self) -> np.ndarray:
        """Bounds (k, 2) of these hyperparameters."""
        own, bounds = self.likelihood.theta, self.family.bounds.reshape(-1, 2)
        if not own.size:
            return bounds
        low, high = self.likelihood.theta_bounds(self.targets.y, self.targets.rows_of(self.likelihood)["weight"]).T
        return np.concatenate([bounds, np.stack([np.minimum(low, own), np.maximum(high, own)], axis=1)])


@dataclass(frozen=True)
class State:
    """q at one theta.

    Attributes
    ----------
    m : array (L,)
        The mean of the latents, in the order of the layout.
    h, rho : arrays (n,)
        Mean and variance of eta; rho was computed at the lam of ``system``.
    loss : RowSites
        f and its derivatives at h and rho.
    slope : array (L,)
        g = Q m + A' alpha.
    solves : int
        Total iterations of conjugate gradients.
    settled : bool
        Whether the iteration has converged.
    decrement : float
        g' P^-1 g before the last step of the mean.
    """

    task: Task
    likelihood: Likelihood
    data: Rows
    system: System
    probed: Probed
    m: np.ndarray
    h: np.ndarray
    rho: np.ndarray
    loss: RowSites
    slope: np.ndarray
    solves: int
    settled: bool
    decrement: float = np.inf

    @cached_property
    def mean_gap(self) -> float:
        """1/2 g' Q^-1 g: upper bound on the gain by any other mean at these variances."""
        return 0.5 * float(self.slope @ self.system.prior_solve(self.slope[:, None])[:, 0])

    @cached_property
    def dual_gap(self) -> float:
        """1/2 |Q^-1 g|^2 in the metric of P: the loss by moving the mean to -Q^-1 A' alpha."""
        move = self.system.prior_solve(self.slope[:, None])
        eta = self.task.rows.times(move)[:, 0]
        return 0.5 * float(self.slope @ move[:, 0] + self.system.lam @ eta**2)

    def gradients(self, slopes: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """d elbo / d theta of the family (k,), and its estimates by single probes (k, m)."""
        system, probed, n1 = self.system, self.probed, self.system.n1
        delta, u = system.lift(probed.delta), system.lift(probed.u)
        # within the blocks of C the first order of x - u has mean 0, and is left out
        second = probed.delta + system.precondition(system.schur(probed.u)) - probed.u
        value, each = np.zeros(len(slopes)), np.zeros((len(slopes), probed.u.shape[1]))
        ends = np.cumsum([0, *(int(np.prod(q.shape[:-1])) for q in system.Q)])
        for i, (place, dQ) in enumerate(slopes):
            here = slice(ends[place], ends[place + 1])
            m, own = self.m[here, None], system.latent_blocks[place]
            blocks = dQ if dQ.ndim == 3 else dQ[None]
            if dQ.ndim == 3:  # the border is exact and needs no probe
                left = delta[here] if n1 and place == 0 else second[here.start - n1 : here.stop - n1]
                each[i] = -0.5 * np.einsum("nm,nm->m", left, times(blocks, u[here]))
            prior = float(np.trace(np.linalg.solve(system.Q[place], dQ), axis1=-2, axis2=-1).sum())
            value[i] = 0.5 * (prior - float((own * dQ).sum()) - float((m * times(blocks, m)).sum()))
        return value + probed.mean(each), each[:, : probed.m]

    def moved(self, rho: np.ndarray) -> State:
        """The state after one Newton step of the mean, with the loss at the given variances."""
        task, system = self.task, self.system
        step, count = system.solve(-self.slope[:, None], _NEWTON)
        move, decrement = task.rows.times(step)[:, 0], -float(self.slope @ step[:, 0])
        Qm, Qs = (system.prior_times(x)[:, 0] for x in (self.m[:, None], step))
        t, far = 1.0, float(np.abs(move).max(initial=0.0)) > _FAR
        before = 0.5 * float(self.m @ Qm) + self.loss.total if far else 0.0
        for _ in range(30 if far else 0):
            with np.errstate(over="ignore", invalid="ignore"):
                value = task.loss(self.likelihood, self.data, self.h + t * move, self.rho).total
            if 0.5 * float((self.m + t * step[:, 0]) @ (Qm + t * Qs)) + value <= before:
                break
            t /= 2
        m = self.m + t * step[:, 0]
        h, loss, slope = _evaluated(task, self.likelihood, self.data, m, rho, Qm + t * Qs)
        solves = self.solves + count
        return replace(self, m=m, h=h, rho=rho, loss=loss, slope=slope, solves=solves, decrement=decrement)

    def polished(self, enough: float) -> State:
        """The state after further steps of the mean at these variances, until ``dual_gap`` is at most ``enough``."""
        state = self
        for _ in range(20):
            if state.dual_gap <= enough:
                break
            moved = state.moved(state.rho)
            if not moved.dual_gap < state.dual_gap:
                break
            state = moved
        return state


def _evaluated(
    task: Task, likelihood: Likelihood, data: Rows, m: np.ndarray, rho: np.ndarray, Qm: np.ndarray
) -> tuple[np.ndarray, RowSites, np.ndarray]:
    """h, the loss and g at a mean and variances."""
    h = task.offset + task.rows.times(m[:, None])[:, 0]
    loss = task.loss(likelihood, data, h, rho)
    return h, loss, Qm + task.rows.adjoint(loss.alpha[:, None])[:, 0]


def fit(
    task: Task,
    likelihood: Likelihood,
    Q: list[np.ndarray],
    z: np.ndarray,
    enough: float,
    start: State | None = None,
    solved: float = 1e-6,
    max_iter: int = 60,
) -> State:
    """Fit q at one theta.

    Parameters
    ----------
    Q : list of arrays
        The blocks of the prior precision at theta.
    z : array (n_2, m)
        The probes.
    enough : float
        The iteration ends when the predicted gain of a further round is smaller, in nats.
    start : State, optional
        The state at a nearby theta.
    solved : float
        Relative residual of the probes' solves. This error is systematic, so that it adds up in traces.
    """
    data = task.data(likelihood)
    rho = np.full(task.n_observed, _FIRST) if start is None else start.rho
    m = np.zeros(task.layout.n_latents) if start is None else start.m
    system = System(task.rows, Q, np.zeros(task.n_observed))  # only for Q m
    h, loss, slope = _evaluated(task, likelihood, data, m, rho, system.prior_times(m[:, None])[:, 0])
    x = None if start is None else start.probed.x
    lam, moved, share, solves = np.zeros(0), np.zeros(0), 1.0, 0
    for _ in range(max_iter):
        before, lam = lam, _weights(loss, lam, share)
        same = np.array_equal(lam, before)
        if not same:
            system = System(task.rows, Q, lam)
            probed = system.probe(z, solved, x)
            x, solves = probed.x, solves + probed.iterations
            new_rho = system.row_variance(probed)
        here = State(task, likelihood, data, system, probed, m, h, rho, loss, slope, solves, False)
        state = here.moved(new_rho)
        last, moved = moved, new_rho - rho
        if last.size:  # damp variances that oscillate about their fixed point
            turn = float(moved @ last) / max(1e-300, float(np.linalg.norm(moved) * np.linalg.norm(last)))
            share = max(0.25, share / 2) if turn < _TURN else min(1.0, 2.0 * share)
        # predicted gain of further rounds: the decrement of the mean, and the changes of lam times those of rho
        change = np.inf if not before.size else 0.25 * float(np.abs((lam - before) * moved).sum()) / share
        m, h, rho, loss, slope, solves = state.m, state.h, new_rho, state.loss, state.slope, state.solves
        if (same or change <= enough) and state.decrement <= enough:
            return replace(state, settled=True)
    return state


def restored(task: Task, theta: np.ndarray, m: np.ndarray, rho: np.ndarray, lam: np.ndarray, probed: Probed) -> State:
    """Restore a fit at theta from stored numbers: the precision is assembled, but nothing is solved."""
    first, own = np.split(np.asarray(theta, dtype=np.float64), [task.family.theta.size])
    likelihood = task.likelihood.with_theta(own) if own.size else task.likelihood
    m, rho, lam = (np.asarray(x, dtype=np.float64) for x in (m, rho, lam))
    n, nm = task.n_observed, task.layout.sizes[1]
    shapes = m.shape, rho.shape, lam.shape, own.shape
    if shapes != ((task.layout.n_latents,), (n,), (n,), task.likelihood.theta.shape):
        raise problem(WHERE, "the stored numbers of a fit do not have the shape of its rows", "those of the model")
    if {probed.u.shape, probed.x.shape} != {(nm, probed.log_ratio.size)} or not 0 < probed.m <= probed.log_ratio.size:
        raise problem(WHERE, "the stored probes of a fit do not have the shape of its terms", "those of the model")
    data, system = task.data(likelihood), System(task.rows, task.layout.prior(first)[0], lam)
    h, loss, slope = _evaluated(task, likelihood, data, m, rho, system.prior_times(m[:, None])[:, 0])
    return State(task, likelihood, data, system, probed, m, h, rho, loss, slope, 0, True)


def _weights(loss: RowSites, before: np.ndarray, share: float) -> np.ndarray:
    """lam of the next system: that of the sites, or damped with the exponent ``share``."""
    lam = np.maximum(loss.lam, 0.0)
    if not (np.isfinite(lam).all() and np.isfinite(loss.value).all()):
        raise problem(WHERE, "the fit overflowed double precision", "covariates and offsets of moderate size")
    if share == 1.0 or not before.size:
        return lam
    return np.asarray(np.maximum(lam, 1e-300) ** share * np.maximum(before, 1e-300) ** (1.0 - share))
