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
    log|P| = log|P_11| + log|C| + log|S|,    log|M| >= log|C| >= log|M| + n (p log a + (1 - p) log t)

The first inequality of the last line is Fischer's, the second ``linalg.krylov.log_det_bounds`` of K = L^-1 C L^-T: its
diagonal blocks are I, it lies above a, and the squares of its other entries are added up by one pass over pairs of
entries of E. Where that pass is too long, C >= Q_mm alone is used.
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
_SHORT = 0.05  # Newton's step in h, and lam rho; longer steps are bounded by strong concavity, as in ``primal.py``
_POINT = 1e-12  # a variance of eta that counts as none
_ROUNDED = 1e-12  # relative rounding of sums over rows and of log determinants
_TRACES = 4  # probes of the trace in the decrement
_LONGEST = 5e8  # pairs of entries of E that are visited; with more the limit is that of the prior


@dataclass(frozen=True)
class EstimatedInterval(Stated):
    """A number that is estimated, with the ends of an interval for it. It cannot be converted to a float.

    Attributes
    ----------
    estimate : float
        By the probes.
    lower, upper : float
        It lies between these with probability ``level``; what the solves left over is part of it.
    level : float
    certain : (float, float)
        It lies between these for certain; infinite where nothing is proved.
    name : str

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
        """lower to upper, each by ``spec``."""
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
        With the mean that the certificate is of, and the variances by the probes of the certificate.
    elbo, elbo_upper, gap : EstimatedInterval
    kind : "duality", "decrement" or "strong-concavity"
    """

    state: State
    elbo: EstimatedInterval
    elbo_upper: EstimatedInterval
    gap: EstimatedInterval
    kind: str


def certify(state: State, z: np.ndarray, level: float, enough: float) -> Certified:
    """The certificate of a fit, by probes z (n_2, m) of its own, m a multiple of 4."""
    state = state.polished(enough)
    by = _by_duality if state.likelihood.objective.convex else _by_decrement
    return by(state, z, level)


# -- probes ---------------------------------------------------------------------------------------------------
def _spread(bound: Callable[[np.ndarray], float], system: System, probed: Probed) -> tuple[float, float]:
    """What a sum of squares of errors of the variances is: an estimate without their variance, and an end above."""
    rows = [system.row_variance(part) for part in probed.groups(_GROUPS)]
    mean = np.mean(rows, axis=0)
    whole = bound(mean)
    left = np.array([bound((_GROUPS * mean - row) / (_GROUPS - 1)) for row in rows])
    # noise adds c / G to the whole and c / (G - 1) to one with a group left out
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
    """The three intervals, each wider by what rounding may have done to sums of that size.

    ``rest`` is what ``elbo_upper`` is beside -1/2 log|P|, ``added`` what is added to its estimate and to its upper end.
    """
    system, probed, (estimate, high) = state.system, state.probed, gap
    base = system.log_det_blocked
    reach = float(student.ppf(0.5 + level / 2, max(1, probed.m - 1))) * float(probed.se(probed.log_ratio))
    log_det = base + float(probed.mean(probed.log_ratio))
    lowest = base + float(probed.mean(probed.low)) - reach  # with what the quadratures left over
    middle = rest - 0.5 * log_det + added[0]
    slack = _ROUNDED * (abs(middle) + abs(base) + abs(system.log_det_prior) + state.h.size)
    lower, upper = rest - 0.5 * (log_det + reach) - slack, rest - 0.5 * lowest + added[1] + slack
    least, most = certain[0] - slack, certain[1] + slack
    ceiling = EstimatedInterval(middle, lower, upper, level, (least, most), "elbo_upper")
    between = EstimatedInterval(estimate, 0.0, high + slack, level, (0.0, most - least), "gap")
    elbo = EstimatedInterval(middle - estimate, lower - high, upper, level, (-np.inf, most), "elbo")
    return Certified(state, elbo, ceiling, between, kind)


def _block_elbo(state: State, Qm: float) -> float:
    """The elbo of N(m, P~^-1), which needs no probe."""
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
    estimate /= 2  # the decrement is twice what its quadratic model says is missing
    here = replace(state, system=system, probed=probed, rho=system.row_variance(probed))
    Qm = float(state.m @ Q_m)
    f = task.loss(state.likelihood, state.data, state.h, here.rho).total
    rest = 0.5 * (system.log_det_prior + float(lam @ here.rho) - Qm) - f
    kind = "decrement" if kinds == {"decrement"} else "strong-concavity"
    certain = _block_elbo(here, Qm), _mode_bound(state)
    # the elbo is what the probes estimate; the bound on what is missing lies above it
    return _certified(here, kind, rest, (estimate, high), (estimate, high), certain, level)


def _shortfall(state: State, system: System, rho: np.ndarray, Q_m: np.ndarray, some: Probed) -> tuple[str, float]:
    """A bound on best elbo - elbo if the variances of eta are rho."""
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
    """What log p(y) certainly stays below: the joint density near its mode, by the prior's share of the curvature."""
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
    """Numbers that are certainly below and above log|P|, up to rounding."""
    _, left, root = system.border
    low = system.log_det_first + _middle_low(system)
    if system.p:
        # S as computed is above the true one by left' C^-1 left, and C above Q
        whole = np.zeros((system.n1 + system.nm + system.p, left.shape[1]))
        middle = slice(system.n1, system.n1 + system.nm)
        whole[middle] = left
        slack = left.T @ system.prior_solve(whole)[middle]
        sign, log_det = np.linalg.slogdet(np.linalg.inv(root.T @ root) - slack)
        low += float(log_det if sign > 0.0 else np.linalg.slogdet(system.Q[-1])[1])
    return low, system.log_det_blocked


def _middle_low(system: System) -> float:
    """Below log|C|."""
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
