"""The certificate of a fit without a factor: elbo and gap as intervals, proved or estimated.

For a bound with a dual (sites s, alpha, lam; h = offset - A Q^-1 A' alpha needs no solve with P):

    D = 1/2 m' Q m - offset' alpha - 1/2 (log|P| - log|Q|) + sum k - const >= best elbo,    gap = sum_n gap_n(h, rho)

For other log-concave likelihoods, by the decrement of Newton's step if that is short, as in ``primal.py``:

    best elbo - elbo <= g' P^-1 g + 1/2 tr(P^-1 M P^-1 M),    g = Q m + A' alpha(rho),   M = A' diag(lam - lam(rho)) A

log|P| and rho are estimated by probes that were not used for the fit, in four groups. The gap is a sum over rows of
squared errors of rho, which the variance of the probes makes too large and never too small on average. So this sum,
plus a multiple of its standard deviation from the jackknife over groups, is the upper end of the gap; the lower end is
0. With certainty:

    elbo of N(m, P~^-1) <= best elbo <= D with log|P| at its lower limit
    log p(y) <= -psi(z) - 1/2 z' Q z + 1/2 g' Q^-1 g,   g the gradient of the first two terms, at any z
    log|P| = log|P_11| + log|C| + log|S|,    log|M| >= log|C| >= log|M| + n (p log a + (1 - p) log t)

In the last line, the first inequality is Fischer's and the second is ``linalg.krylov.log_det_bounds`` of
K = L^-1 C L^-T: its diagonal blocks are I, its eigenvalues are above a, and the squares of its other entries are summed
in one pass over pairs of entries of E. If that pass is too long, only C >= Q_mm is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import scipy.sparse as sp
from scipy.stats import t as student

from ..checks import problem
from ..files import Stated
from ..linalg.block_stacks import block_diagonal, cholesky, times, transposed
from ..linalg.krylov import log_det_bounds
from .probed_fit import State
from .system import Probed, System

_GROUPS = 4  # groups of probes
_TIGHT = 1e-5  # relative residual of the probes' solves
_SHORT = 0.05  # largest step in h, and in lam rho, for the decrement; otherwise strong concavity, as in ``primal.py``
_POINT = 1e-12  # a variance of eta that is practically 0
_ROUNDED = 1e-12  # relative rounding error of sums over rows and of log determinants
_TRACES = 4  # probes for the trace in the decrement
_LONGEST = 5e8  # most pairs of entries of E for the lower limit; with more the limit of the prior is used


@dataclass(frozen=True)
class EstimatedInterval(Stated):
    """An estimated number with an interval. It cannot be converted to a float.

    Attributes
    ----------
    estimate : float
        Estimate by the probes.
    lower, upper : float
        Ends of an interval that has the number with probability ``level``; it includes the error of the solves.
    level : float
        Probability of the interval.
    certain : (float, float)
        Proved limits of the number; infinite if nothing is proved.
    name : str
        Name of the number, for messages.

    Examples
    --------
    >>> gap = EstimatedInterval(0.2, 0.1, 0.4, 0.99, (0.0, 50.0), "gap")
    >>> gap
    gap in [0.1, 0.4] with probability 0.99, certainly in [0, 50]
    >>> float(gap)
    Traceback (most recent call last):
    ...
    fenchel.checks.Refusal: gap: it is an interval, known up to probes; expected gap.lower, gap.upper or gap.estimate.
    """

    estimate: float
    lower: float
    upper: float
    level: float
    certain: tuple[float, float] = (-np.inf, np.inf)
    name: str = "interval"

    def __float__(self) -> NoReturn:
        name = self.name
        raise problem(name, "it is an interval, known up to probes", f"{name}.lower, {name}.upper or {name}.estimate")

    @property
    def half_width(self) -> float:
        """Half of upper - lower."""
        return (self.upper - self.lower) / 2

    def __contains__(self, value: float) -> bool:
        """Whether a number lies between lower and upper."""
        return self.lower <= value <= self.upper

    def __format__(self, spec: str) -> str:
        """The interval as text, both ends formatted by ``spec``."""
        return f"[{self.lower:{spec}}, {self.upper:{spec}}]"

    def __repr__(self) -> str:
        low, high = self.certain
        return f"{self.name} in {self:.6g} with probability {self.level:g}, certainly in [{low:.6g}, {high:.6g}]"


@dataclass(frozen=True)
class Certified:
    """A fit with its certificate.

    Attributes
    ----------
    state : State
        The certified mean, with variances by the probes of the certificate.
    elbo, elbo_upper, gap : EstimatedInterval
        The elbo of q, the upper bound on the best elbo, and their difference.
    kind : "duality", "decrement" or "strong-concavity"
        How the gap is bounded.
    """

    state: State
    elbo: EstimatedInterval
    elbo_upper: EstimatedInterval
    gap: EstimatedInterval
    kind: str


def certify(state: State, z: np.ndarray, level: float, enough: float) -> Certified:
    """Compute the certificate of a fit with new probes z (n_2, m), m a multiple of 4."""
    state = state.polished(enough)
    by = _by_duality if state.likelihood.objective.convex else _by_decrement
    return by(state, z, level)


# -- probes ---------------------------------------------------------------------------------------------------
def _spread(bound: Callable[[np.ndarray], float], system: System, probed: Probed) -> tuple[float, float]:
    """Estimate of a sum of squared errors of variances, without the noise of the probes, and an upper end for it."""
    rows = [system.row_variance(part) for part in probed.groups(_GROUPS)]
    mean = np.mean(rows, axis=0)
    whole = bound(mean)
    left = np.array([bound((_GROUPS * mean - row) / (_GROUPS - 1)) for row in rows])
    # noise adds c / G to the estimate from all G groups, and c / (G - 1) to one that leaves out a group
    noise = max(0.0, float(left.mean()) - whole) * (_GROUPS - 1)
    sd = float(np.sqrt((_GROUPS - 1) / _GROUPS * ((left - left.mean()) ** 2).sum()))
    return max(0.0, whole - noise), whole + 3.0 * sd


def _certified(
    state: State,
    kind: str,
    rest: float,
    gap: tuple[float, float],
    added: tuple[float, float],
    certain: tuple[float, float],
    level: float,
) -> Certified:
    """The three intervals, each widened by the rounding errors of sums of that size.

    ``rest`` is ``elbo_upper`` without -1/2 log|P|; ``added`` is added to its estimate and to its upper end.
    """
    system, probed, (estimate, high) = state.system, state.probed, gap
    base = system.log_det_blocked
    reach = float(student.ppf(0.5 + level / 2, max(1, probed.m - 1))) * float(probed.se(probed.log_ratio))
    log_det = base + float(probed.mean(probed.log_ratio))
    lowest = base + float(probed.mean(probed.low)) - reach  # includes the error of the quadratures
    middle = rest - 0.5 * log_det + added[0]
    slack = _ROUNDED * (abs(middle) + abs(base) + abs(system.log_det_prior) + state.h.size)
    lower, upper = rest - 0.5 * (log_det + reach) - slack, rest - 0.5 * lowest + added[1] + slack
    least, most = certain[0] - slack, certain[1] + slack
    ceiling = EstimatedInterval(middle, lower, upper, level, (least, most), "elbo_upper")
    between = EstimatedInterval(estimate, 0.0, high + slack, level, (0.0, most - least), "gap")
    elbo = EstimatedInterval(middle - estimate, lower - high, upper, level, (-np.inf, most), "elbo")
    return Certified(state, elbo, ceiling, between, kind)


def _block_elbo(state: State, Qm: float) -> float:
    """The elbo of N(m, P~^-1), which is computed without probes."""
    system = state.system
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
    system = System(task.rows, state.system.Q, np.maximum(lam, 0.0))
    pulled = task.rows.adjoint(alpha[:, None])
    m = -system.prior_solve(pulled)[:, 0]
    h = task.offset + task.rows.times(m[:, None])[:, 0]
    probed = system.probe(z, _TIGHT)

    def missing(rho: np.ndarray) -> float:
        return float(w @ np.asarray(dual.gap(s, h[:, None], rho[:, None], data)))

    gap = _spread(missing, system, probed)
    Qm = -float(m @ pulled[:, 0])
    rest = 0.5 * Qm + float((w * np.asarray(site.k) - task.offset * alpha).sum())
    rest += 0.5 * system.log_det_prior - float(w @ np.asarray(state.likelihood.constant(data)))
    here = replace(state, system=system, probed=probed, m=m, h=h, rho=system.row_variance(probed))
    certain = _block_elbo(here, Qm), rest - 0.5 * log_det_limits(system)[0]
    return _certified(here, "duality", rest, gap, (0.0, 0.0), certain, level)


# -- by the decrement -----------------------------------------------------------------------------------------
def _by_decrement(state: State, z: np.ndarray, level: float) -> Certified:
    task, lam = state.task, np.maximum(state.loss.lam, 0.0)
    system = System(task.rows, state.system.Q, lam)
    probed = system.probe(z, _TIGHT)
    Q_m = system.prior_times(state.m[:, None])[:, 0]
    some, kinds = probed.groups(probed.m // _TRACES)[0], set()

    def missing(rho: np.ndarray) -> float:
        kind, value = _shortfall(state, system, rho, Q_m, some)
        kinds.add(kind)
        return value

    estimate, high = _spread(missing, system, probed)
    estimate /= 2  # the quadratic model of the gap is half the decrement
    here = replace(state, system=system, probed=probed, rho=system.row_variance(probed))
    Qm = float(state.m @ Q_m)
    f = task.loss(state.likelihood, state.data, state.h, here.rho).total
    rest = 0.5 * (system.log_det_prior + float(lam @ here.rho) - Qm) - f
    kind = "decrement" if kinds == {"decrement"} else "strong-concavity"
    certain = _block_elbo(here, Qm), _mode_bound(state)
    # the probes estimate the elbo of q; the bound on the gap is added to it
    return _certified(here, kind, rest, (estimate, high), (estimate, high), certain, level)


def _shortfall(state: State, system: System, rho: np.ndarray, Q_m: np.ndarray, some: Probed) -> tuple[str, float]:
    """Bound on best elbo - elbo for variances rho of eta, with the kind of the bound."""
    rows, lam = state.task.rows, system.lam
    loss = state.task.loss(state.likelihood, state.data, state.h, rho)
    g = (Q_m + rows.adjoint(loss.alpha[:, None])[:, 0])[:, None]
    d = lam - loss.lam
    step = system.solve(g, _TIGHT)[0]
    short = np.abs(rows.times(step)).max(initial=0.0) <= _SHORT and np.abs(d * rho).max(initial=0.0) <= _SHORT
    if short:
        rng = np.random.default_rng(0)
        z = rng.choice([-1.0, 1.0], size=(system.n1, some.u.shape[1]))  # of all latents
        own = times(transposed(system.L1inv), z) if system.n1 else z
        edge = system.shared @ rng.choice([-1.0, 1.0], size=(system.p, some.u.shape[1]))
        rest = np.vstack([own, np.zeros((edge.shape[0] - system.n1, own.shape[1]))]) + edge
        u, x = system.lift(some.u) + rest, system.lift(some.x) + rest
        Mu, Mx = (rows.adjoint(d[:, None] * rows.times(v)) for v in (u, x))
        trace = float((Mu * system.solve(Mx, _TIGHT)[0]).sum()) / some.m
        return "decrement", float((g * step).sum()) + 0.5 * max(0.0, trace)
    prior = System(rows, system.Q, np.zeros_like(lam)).blocked_variance
    first = 0.5 * float((g * system.prior_solve(g)).sum())
    return "strong-concavity", first + 0.5 * float((np.abs(d) * np.sqrt(rho * prior)).sum()) ** 2


def _mode_bound(state: State) -> float:
    """Proved upper bound on log p(y), from the joint density near its mode and the curvature of the prior."""
    task, rho = state.task, np.full(state.h.size, _POINT)
    here, best = state.moved(rho), np.inf
    for _ in range(30):
        here = replace(here, rho=rho, system=System(task.rows, here.system.Q, np.maximum(here.loss.lam, 0.0)))
        Qm = float(here.m @ here.system.prior_times(here.m[:, None])[:, 0])
        value = -here.loss.total - 0.5 * Qm + here.mean_gap
        if not value < best - 1e-3:
            break
        best, here = value, here.moved(rho)
    return best


# -- limits of log|P| -----------------------------------------------------------------------------------------
def log_det_limits(system: System) -> tuple[float, float]:
    """Proved lower and upper limits of log|P|, up to rounding."""
    _, left, root = system.border
    low = system.log_det_first + _middle_low(system)
    if system.p:
        # the computed S exceeds the true one by left' C^-1 left, where left is the residual, and C >= Q
        whole = np.zeros((system.n1 + system.nm + system.p, left.shape[1]))
        middle = slice(system.n1, system.n1 + system.nm)
        whole[middle] = left
        slack = left.T @ system.prior_solve(whole)[middle]
        sign, log_det = np.linalg.slogdet(np.linalg.inv(root.T @ root) - slack)
        low += float(log_det if sign > 0.0 else np.linalg.slogdet(system.Q[-1])[1])
    return low, system.log_det_blocked


def _middle_low(system: System) -> float:
    """Proved lower limit of log|C|."""
    n, E, block = system.nm, system.E, system.rows.block_of_middle
    if not n:
        return 0.0
    degree = np.diff(E.indptr).astype(np.float64)
    middle = len(system.Linv)
    if float(degree @ degree) > _LONGEST:
        return sum(cholesky(q)[2] for q in system.Q[-1 - middle : -1])
    from ..linalg._rows import coupling_squares

    E = sp.csr_array((system.by_columns(E.data, E.indices), E.indices, E.indptr), shape=E.shape)
    back = E.tocsc()
    off = sp.csr_array((n, n))
    if system.off is not None:
        inverse = sp.block_diag([block_diagonal(b) for b in system.Linv], format="csr")
        off = sp.csr_array(inverse @ system.off @ inverse.T)
    by_rows = (E.indptr, E.indices, E.data)
    by_columns = (back.indptr, back.indices, back.data)
    squares = coupling_squares(*by_rows, *by_columns, off.indptr, off.indices, off.data, block)
    return system.log_det_blocks + log_det_bounds(n, n + float(squares), system.lowest)[0]
