"""What is proved of a fit without a factor, and what is estimated of it: the elbo and the gap as intervals.

A bound with a dual (sites s, alpha, lam; h = offset - A Q^-1 A' alpha without any solve):

    D = 1/2 m' Q m - offset' alpha - 1/2 (log|P| - log|Q|) + sum k - const >= best elbo,    gap = sum_n gap_n(h, rho)

Other log-concave ones, by the decrement of Newton's step where that is short, as ``primal.py`` has it:

    best elbo - elbo <= g' P^-1 g + 1/2 tr(P^-1 M P^-1 M),    g = Q m + A' alpha(rho),   M = A' diag(lam - lam(rho)) A

log|P| and rho are estimated by probes that the fit has not seen, in four groups: a sum over rows of squares of errors
of rho is too large by their variance, never too small on average, so it is an upper end as it stands, and what is known
of its spread by leaving out a group each is added; the lower end is 0. For certain:

    elbo of N(m, P~^-1) <= best elbo <= D with log|P| at its lower limit
    log p(y) <= -psi(z) - 1/2 z' Q z + 1/2 g' Q^-1 g,   g the slope of the first two, at any z
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from ..linalg.blocks import times, transposed
from .fitting import State, mean_step
from .interval import Interval
from .limits import log_det_limits
from .system import Probed, System

_GROUPS = 4
_TIGHT = 1e-5  # relative residual of the probes' solves
_SHORT = 0.05  # of Newton's step in h, and of lam rho: as in ``primal.py``
_POINT = 1e-12  # a variance of eta that is none
_ROUNDED = 1e-12  # relative, of sums over rows and of log-determinants
_TRACES = 4  # probes of the trace in the decrement


@dataclass(frozen=True)
class Certified:
    """A fit with its certificate.

    Attributes
    ----------
    state : State
        With the mean that the certificate is of, and the variances by the probes of the certificate.
    elbo, elbo_upper, gap : Interval
    kind : "duality", "decrement" or "strong-concavity"
    log_ratio : array (m,)
        What each probe says of log|P| - log|P~|.
    """

    state: State
    elbo: Interval
    elbo_upper: Interval
    gap: Interval
    kind: str
    log_ratio: np.ndarray


def certify(state: State, z: np.ndarray, level: float, enough: float) -> Certified:
    """The certificate of a fit, by probes z (n_2, m) of its own, m a multiple of 4."""
    state = state.polished(enough)
    if state.likelihood.objective.convex:
        return _by_duality(state, z, level)
    return _by_decrement(state, z, level)


# -- probes ---------------------------------------------------------------------------------------------------
def _probed(system: System, z: np.ndarray) -> tuple[Probed, list[np.ndarray]]:
    """The answers of all probes, and the variances of eta by each group of them."""
    whole = system.probe(z, _TIGHT)
    return whole, [system.row_corrections(part) for part in whole.groups(_GROUPS)]


def _log_det(system: System, probed: Probed, level: float) -> tuple[float, float, float]:
    """log|P|: an estimate and the ends of its interval, with what the quadratures left over."""
    reach = float(student.ppf(0.5 + level / 2, max(1, probed.m - 1))) * float(probed.se(probed.log_ratio))
    base = system.log_det_blocked
    middle = base + float(probed.mean(probed.log_ratio))
    return middle, base + float(probed.mean(probed.low)) - reach, middle + reach


def _spread(bound: Callable[[np.ndarray], float], own: np.ndarray, groups: list[np.ndarray]) -> tuple[float, float]:
    """What a sum of squares of errors is: an estimate without their variance, and an end above."""
    rows = [np.maximum(own + g, 0.05 * own) for g in groups]
    mean = sum(rows) / _GROUPS
    whole = bound(mean)
    left = np.array([bound((_GROUPS * mean - row) / (_GROUPS - 1)) for row in rows])
    # noise adds c / G to the whole and c / (G - 1) to one with a group left out
    noise = max(0.0, float(left.mean()) - whole) * (_GROUPS - 1)
    sd = float(np.sqrt((_GROUPS - 1) / _GROUPS * ((left - left.mean()) ** 2).sum()))
    return max(0.0, whole - noise), whole + 3.0 * sd


def _block_elbo(state: State, system: System, Qm: float) -> float:
    """The elbo of N(m, P~^-1), which needs no probe."""
    rho = system.blocked_variance
    f = state.task.loss(state.likelihood, state.data, state.h, rho).total
    return -0.5 * (system.log_det_blocked - system.log_det_prior - float(system.lam @ rho) + Qm) - f


# -- by duality -----------------------------------------------------------------------------------------------
def _by_duality(state: State, z: np.ndarray, level: float) -> Certified:
    task, data, dual = state.task, state.data, state.likelihood.objective.dual
    w = np.asarray(data["weight"])
    s = dual.maximiser(state.h[:, None], state.rho[:, None], dual.start(data, 1.0), data)
    site = dual.site(s, data)
    alpha, lam = (w * np.asarray(x)[:, 0] for x in (site.alpha, site.lam))
    lam = np.maximum(lam, 0.0)
    system = System(task.rows, state.system.Q, lam)
    pulled = task.rows.adjoint(alpha[:, None])
    m = -system.prior_solve(pulled)[:, 0]
    h = task.offset + task.rows.times(m[:, None])[:, 0]
    probed, groups = _probed(system, z)
    own = system.blocked_variance

    def gap(rho: np.ndarray) -> float:
        return float(w @ np.asarray(dual.gap(s, h[:, None], rho[:, None], data)))

    missing = _spread(gap, own, groups)
    Qm = -float(m @ pulled[:, 0])
    rest = 0.5 * Qm + float((w * np.asarray(site.k) - task.offset * alpha).sum())
    rest += 0.5 * system.log_det_prior - float(w @ np.asarray(state.likelihood.constant(data)))
    middle, below, above = _log_det(system, probed, level)
    rho = np.maximum(own + sum(groups) / _GROUPS, 0.05 * own)
    here = replace(state, system=system, probed=probed, m=m, h=h, rho=rho)
    certain = _block_elbo(here, system, Qm), rest - 0.5 * log_det_limits(system)[0]
    upper = Interval(rest - 0.5 * middle, rest - 0.5 * above, rest - 0.5 * below, level, certain, "elbo_upper")
    return _made(here, upper, missing, "duality", probed)


def _made(state: State, upper: Interval, gap: tuple[float, float], kind: str, probed: Probed) -> Certified:
    """The three intervals, each wider by what rounding may have done to sums of that size."""
    system, (estimate, high), (least, most) = state.system, gap, upper.certain
    sizes = abs(upper.estimate), abs(system.log_det_blocked), abs(system.log_det_prior), float(state.h.size)
    slack = _ROUNDED * sum(sizes)
    certain, level = (least - slack, most + slack), upper.level
    ceiling = Interval(upper.estimate, upper.lower - slack, upper.upper + slack, level, certain, "elbo_upper")
    between = Interval(estimate, 0.0, high + slack, level, (0.0, certain[1] - certain[0]), "gap")
    ends = upper.lower - high - slack, upper.upper + slack
    elbo = Interval(upper.estimate - estimate, *ends, level, (-np.inf, certain[1]), "elbo")
    return Certified(state, elbo, ceiling, between, kind, probed.log_ratio)


# -- by the decrement -----------------------------------------------------------------------------------------
def _by_decrement(state: State, z: np.ndarray, level: float) -> Certified:
    task, lam = state.task, np.maximum(state.loss.lam, 0.0)
    system = System(task.rows, state.system.Q, lam)
    probed, groups = _probed(system, z)
    own = system.blocked_variance
    Q_m = system.prior_times(state.m[:, None])[:, 0]
    kinds: list[str] = []
    some = probed.groups(probed.m // _TRACES)[0]

    def shortfall(rho: np.ndarray) -> float:
        kind, value = _shortfall(state, system, rho, Q_m, some)
        kinds.append(kind)
        return value

    estimate, high = _spread(shortfall, own, groups)
    estimate /= 2  # the decrement is twice what its quadratic model says is missing
    rho = np.maximum(own + sum(groups) / _GROUPS, 0.05 * own)
    here = replace(state, system=system, probed=probed, rho=rho)
    Qm = float(state.m @ Q_m)
    f = task.loss(state.likelihood, state.data, state.h, rho).total
    rest = 0.5 * (system.log_det_prior + float(lam @ rho) - Qm) - f
    middle, below, above = _log_det(system, probed, level)
    certain = _block_elbo(here, system, Qm), _mode_bound(state)
    # the elbo is what the probes estimate; the bound on what is missing lies above it
    upper = Interval(
        rest - 0.5 * middle + estimate,
        rest - 0.5 * above,
        rest - 0.5 * below + high,
        level,
        certain,
        "elbo_upper",
    )
    kind = "decrement" if set(kinds) == {"decrement"} else "strong-concavity"
    return _made(here, upper, (estimate, high), kind, probed)


def _shortfall(state: State, system: System, rho: np.ndarray, Q_m: np.ndarray, some: Probed) -> tuple[str, float]:
    """A bound on best elbo - elbo if the variances of eta are rho."""
    task, lam = state.task, system.lam
    loss = task.loss(state.likelihood, state.data, state.h, rho)
    g = (Q_m + task.rows.adjoint(loss.alpha[:, None])[:, 0])[:, None]
    d = lam - loss.lam
    step = system.solve(g, _TIGHT)[0]
    short = np.abs(task.rows.times(step)).max(initial=0.0) <= _SHORT and np.abs(d * rho).max(initial=0.0) <= _SHORT
    if short:
        rng = np.random.default_rng(0)
        z = rng.choice([-1.0, 1.0], size=(system.n1, some.u.shape[1]))  # of all latents
        own = times(transposed(system.L1inv), z) if system.n1 else z
        edge = system.shared @ rng.choice([-1.0, 1.0], size=(system.p, some.u.shape[1]))
        rest = np.vstack([own, np.zeros((edge.shape[0] - system.n1, own.shape[1]))]) + edge
        u, x = system.lift(some.u) + rest, system.lift(some.x) + rest
        Mu, Mx = (task.rows.adjoint(d[:, None] * task.rows.times(v)) for v in (u, x))
        trace = float((Mu * system.solve(Mx, _TIGHT)[0]).sum()) / some.m
        return "decrement", float((g * step).sum()) + 0.5 * max(0.0, trace)
    prior = System(task.rows, system.Q, np.zeros_like(lam)).blocked_variance
    first = 0.5 * float((g * system.prior_solve(g)).sum())
    return "strong-concavity", first + 0.5 * float((np.abs(d) * np.sqrt(rho * prior)).sum()) ** 2


def _mode_bound(state: State) -> float:
    """What log p(y) certainly stays below: the joint density near its mode, by the prior's share of the curvature."""
    task, rho = state.task, np.full(state.h.size, _POINT)
    here = mean_step(state, rho)
    best = np.inf
    for _ in range(30):
        here = replace(here, rho=rho, system=System(task.rows, here.system.Q, np.maximum(here.loss.lam, 0.0)))
        Qm = float(here.m @ here.system.prior_times(here.m[:, None])[:, 0])
        value = -here.loss.total - 0.5 * Qm + here.mean_gap
        if not value < best - 1e-3:
            break
        best, here = value, mean_step(here, rho)
    return best
