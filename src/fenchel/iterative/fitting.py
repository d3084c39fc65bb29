"""q at given hyperparameters: the mean by Newton's steps, the variances of eta by probes, in turn.

    alpha = df/dh,  lam = 2 df/drho at (h, rho),    P = Q + A' Lam A
    m <- m - P^-1 (Q m + A' alpha),    rho <- diag(A P^-1 A')

The probes are the same at every step, so that rho is a function of lam and what is found one of theta, as smooth as
without them. Steps of the mean end where 1/2 g' Q^-1 g, which bounds what the mean may still gain, is small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import problem
from ..likelihoods.base import Likelihood, Rows
from ..linalg.blocks import times
from .system import Probed, System
from .task import Sites, Task

_NEWTON = 1e-4  # relative residual of the solves for the mean
_FIRST = 0.01  # the variance of eta where a fit starts
_FLOOR = 0.05  # of a variance as a share of the blocked one: an estimate below has met too few probes
_TURN = -0.3  # cosine between two changes of the variances below which they swing
_FAR = 0.5  # a step of eta beyond which it is looked at before it is taken


@dataclass(frozen=True)
class State:
    """q at one theta.

    Attributes
    ----------
    m : array (L,)
        The mean of the latents, in the order of the layout.
    h, rho : arrays (n,)
        Mean and variance of eta.
    lam : array (n,)
        Of the precision P, at which rho was found.
    loss : Sites
        f and its slopes at h and rho.
    slope : array (L,)
        g = Q m + A' alpha.
    iterations, solves : int
        Rounds of the mean and the variances, and iterations of conjugate gradients in all.
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
    loss: Sites
    slope: np.ndarray
    iterations: int
    solves: int
    settled: bool
    decrement: float = np.inf

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of the rest when it is asked for."""
        return {key: value for key, value in self.__dict__.items() if key in self.__dataclass_fields__}

    def verify(self) -> None:
        """Refuse probes of a file that are of another precision."""
        if {self.probed.u.shape[0], self.probed.x.shape[0]} != {self.system.nm}:
            raise ValueError("the probes do not fit the precision")

    @property
    def lam(self) -> np.ndarray:
        return self.system.lam

    @cached_property
    def mean_gap(self) -> float:
        """1/2 g' Q^-1 g: no other mean gains more, at these variances."""
        return 0.5 * float(self.slope @ self.system.prior_solve(self.slope[:, None])[:, 0])

    def gradients(self, slopes: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """d elbo / d theta of the family (k,), and what each probe says of it (k, m)."""
        system, probed, n1 = self.system, self.probed, self.system.n1
        lifted = system.lift(probed.delta), system.lift(probed.u)
        # of the blocks of C itself the first order of x - u averages to nothing, and is left out
        second = probed.delta + system.precondition(system.schur(probed.u)) - probed.u
        value, each = np.zeros(len(slopes)), np.zeros((len(slopes), probed.u.shape[1]))
        edges = _edges(system)
        for i, (place, dQ) in enumerate(slopes):
            here = slice(*edges[place])
            first, edge = bool(n1) and place == 0, dQ.ndim == 2
            left = lifted[0][here] if first else second[here.start - n1 : here.stop - n1]
            m, own = self.m[here, None], system.latent_blocks[place]
            apply = (lambda x, dQ=dQ: dQ @ x) if edge else (lambda x, dQ=dQ: times(dQ, x))
            if not edge:  # the border needs no probe
                each[i] = -0.5 * np.einsum("nm,nm->m", left, apply(lifted[1][here]))
            value[i] = 0.5 * (_trace_solve(system.Q[place], dQ) - float((own * dQ).sum()) - float((m * apply(m)).sum()))
        return value + probed.mean(each), each[:, : probed.m]

    @cached_property
    def dual_gap(self) -> float:
        """1/2 |Q^-1 g|^2 in the metric of P: what moving the mean to -Q^-1 A' alpha costs."""
        move = self.system.prior_solve(self.slope[:, None])
        eta = self.task.rows.times(move)[:, 0]
        return 0.5 * float(self.slope @ move[:, 0] + self.lam @ eta**2)

    def polished(self, enough: float) -> State:
        """The same with the mean nearer its optimum at these variances, until ``dual_gap`` is at most ``enough``."""
        state = self
        for _ in range(20):
            if state.dual_gap <= enough:
                break
            moved = mean_step(state, state.rho)
            if not moved.dual_gap < state.dual_gap:
                break
            state = moved
        return state


def _edges(system: System) -> list[tuple[int, int]]:
    """Where the latents of each stack of blocks begin and end."""
    sizes = [q.shape[0] * q.shape[1] if q.ndim == 3 else q.shape[0] for q in system.Q]
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _trace_solve(Q: np.ndarray, dQ: np.ndarray) -> float:
    """tr(Q^-1 dQ)."""
    found = np.linalg.solve(Q, dQ)
    return float(np.trace(found, axis1=-2, axis2=-1).sum()) if found.size else 0.0


def _evaluated(
    task: Task, likelihood: Likelihood, data: Rows, m: np.ndarray, rho: np.ndarray, Qm: np.ndarray
) -> tuple[np.ndarray, Sites, np.ndarray]:
    """h, the loss and g at a mean and variances."""
    h = task.offset + task.rows.times(m[:, None])[:, 0]
    loss = task.loss(likelihood, data, h, rho)
    return h, loss, Qm + task.rows.adjoint(loss.alpha[:, None])[:, 0]


def mean_step(state: State, rho: np.ndarray) -> State:
    """One Newton step of the mean at the state's system, with the loss at the variances given."""
    task, system = state.task, state.system
    step, count = system.solve(-state.slope[:, None], _NEWTON)
    move, decrement = task.rows.times(step)[:, 0], -float(state.slope @ step[:, 0])
    Qm, Qs = (system.prior_times(x)[:, 0] for x in (state.m[:, None], step))
    t, far = 1.0, float(np.abs(move).max(initial=0.0)) > _FAR
    before = 0.5 * float(state.m @ Qm) + state.loss.total if far else 0.0
    for _ in range(30):
        m = state.m + t * step[:, 0]
        if not far:
            break
        with np.errstate(over="ignore", invalid="ignore"):
            value = task.loss(state.likelihood, state.data, state.h + t * move, state.rho).total
        if 0.5 * float(m @ (Qm + t * Qs)) + value <= before:
            break
        t /= 2
    h, loss, slope = _evaluated(task, state.likelihood, state.data, m, rho, Qm + t * Qs)
    return replace(state, m=m, h=h, rho=rho, loss=loss, slope=slope, solves=state.solves + count, decrement=decrement)


def _variances(system: System, probed: Probed) -> np.ndarray:
    own = system.blocked_variance
    return np.maximum(own + system.row_corrections(probed), _FLOOR * own)


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
    """The fit at one theta.

    Parameters
    ----------
    Q : list of arrays
        The blocks of the prior precision there.
    z : array (n_2, m)
        The probes.
    enough : float
        Nats that a further round may still bring.
    start : State, optional
        Of a theta near by.
    solved : float
        Relative residual of the probes' solves: what they leave is no noise, and traces add it up.
    """
    data = task.data(likelihood)
    rho = np.full(task.n_observed, _FIRST) if start is None else start.rho
    m = np.zeros(task.layout.n_latents) if start is None else start.m
    system = System(task.rows, Q, np.zeros(task.n_observed))  # for Q m alone
    h, loss, slope = _evaluated(task, likelihood, data, m, rho, system.prior_times(m[:, None])[:, 0])
    x = None if start is None else start.probed.x
    state: State | None = None
    lam, moved, share, solves = np.zeros(0), np.zeros(0), 1.0, 0
    for iteration in range(1, max_iter + 1):
        before, lam = lam, _weights(loss, lam, share)
        same = state is not None and np.array_equal(lam, before)
        if not same:
            system = System(task.rows, Q, lam)
            probed = system.probe(z, solved, x)
            x, solves = probed.x, solves + probed.iterations
            found = _variances(system, probed)
        here = State(task, likelihood, data, system, probed, m, h, rho, loss, slope, iteration, solves, False)
        state = mean_step(here, found)
        last, moved = moved, found - rho
        if state is not None and last.size:  # variances that swing about their fixed point are met half way
            turn = float(moved @ last) / max(1e-300, float(np.linalg.norm(moved) * np.linalg.norm(last)))
            share = max(0.25, share / 2) if turn < _TURN else min(1.0, 2.0 * share)
        # what the rounds to come may bring: the mean's decrement, and the variances' product with their sites' change
        change = np.inf if not before.size else 0.25 * float(np.abs((lam - before) * moved).sum()) / share
        m, h, rho, loss, slope, solves = state.m, state.h, found, state.loss, state.slope, state.solves
        if (same or change <= enough) and state.decrement <= enough:
            return replace(state, settled=True)
    assert state is not None
    return state


def _weights(loss: Sites, before: np.ndarray, share: float) -> np.ndarray:
    """lam of the next system: the sites' own, or part of the way there."""
    lam = np.maximum(loss.lam, 0.0)
    if not (np.isfinite(lam).all() and np.isfinite(loss.value).all()):
        raise problem("iterative engine", "the fit left double precision", "covariates and offsets of moderate size")
    if share == 1.0 or not before.size:
        return lam
    return np.asarray(np.maximum(lam, 1e-300) ** share * np.maximum(before, 1e-300) ** (1.0 - share))
