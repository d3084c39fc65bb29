"""Fields along an index: independent effects, random walks, autoregressions, seasons, and any structure matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import count, numeric, problem, scalar
from .base import SIZE, MarkovField
from .precisions import Combination, Scaled


def scaled(structure: Any, precision: float, **options: Any) -> MarkovField:
    """Q = k R: one precision k times a fixed structure, theta = log sd = -log(k) / 2."""
    start = log_sd("gmrf", "precision", precision)
    build = Scaled(sp.csc_array(structure).astype(np.float64))
    return MarkovField(build, [start], ["log sd"], [SIZE], **options)


def log_sd(where: str, name: str, precision: float) -> float:
    """The log of the sd that belongs to a precision."""
    return -0.5 * float(np.log(scalar(where, name, precision, 0.0)))


def _length(where: str, n: int, least: int) -> int:
    return count(where, "n", n, least)


def iid(n: int, precision: float = 1.0) -> MarkovField:
    """Independent effects of precision k: Q = k I."""
    return scaled(sp.eye_array(_length("iid", n, 1), format="csc"), precision)


def rw1(n: int, precision: float = 1.0) -> MarkovField:
    """A first-order random walk, x_{t+1} - x_t ~ N(0, 1/k), held to sum to zero."""
    n = _length("rw1", n, 2)
    D = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(n - 1, n))
    return scaled(D.T @ D, precision, constraints=np.ones((1, n)))


def rw2(n: int, precision: float = 1.0) -> MarkovField:
    """A second-order random walk, x_t - 2 x_{t+1} + x_{t+2} ~ N(0, 1/k), held free of level and slope.

    Add an intercept and a linear covariate to the model where a level and a trend are wanted.
    """
    n = _length("rw2", n, 3)
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(n - 2, n))
    time = np.arange(n) - (n - 1) / 2
    return scaled(D.T @ D, precision, constraints=np.stack([np.ones(n), time]))


def seasonal(n: int, period: int, precision: float = 1.0) -> MarkovField:
    """Effects whose sums over ``period`` neighbours are N(0, 1/k), held free of what repeats exactly."""
    m = _length("seasonal", period, 2)
    n = _length("seasonal", n, m + 1)
    D = sp.diags_array([1.0] * m, offsets=list(range(m)), shape=(n - m + 1, n))
    phase = np.arange(n) % m
    C = (phase[None, :] == np.arange(m - 1)[:, None]).astype(float) - (phase == m - 1)[None, :]
    return scaled(D.T @ D, precision, constraints=C)


def _autoregression(theta: np.ndarray) -> Any:
    """Rates of I, of I without its ends, and of the neighbours: (I + p^2 inner - p off) / (v (1 - p^2))."""
    v, p = np.exp(2.0 * theta[0]), np.tanh(theta[1] / 2)
    free = 1.0 - p * p
    c = np.array([1.0, p * p, -p]) / (v * free)
    return c, [-2.0 * c, np.array([0.0, p, -0.5]) / v + p * c]  # dphi/dtheta_2 = (1 - phi^2) / 2


def ar1(n: int, phi: float = 0.5, variance: float = 1.0) -> MarkovField:
    """A stationary autoregression with marginal sd e^theta_1 and phi = tanh(theta_2 / 2)."""
    n = _length("ar1", n, 2)
    phi, variance = scalar("ar1", "phi", phi), scalar("ar1", "variance", variance)
    if not -1.0 < phi < 1.0 or not variance > 0.0:
        raise problem("ar1", f"phi = {phi}, variance = {variance}", "-1 < phi < 1 and variance > 0")
    inner, off = np.r_[0.0, np.ones(n - 2), 0.0], np.ones(n - 1)
    matrices = sp.eye_array(n), sp.diags_array(inner), sp.diags_array([off, off], offsets=[-1, 1])
    start = [0.5 * np.log(variance), 2 * np.arctanh(phi)]
    return MarkovField(Combination(matrices, _autoregression), start, ["log sd", "2 atanh phi"], [SIZE, (-9.0, 9.0)])


def generic(structure: Any, precision: float = 1.0, constraints: Any = None) -> MarkovField:
    """Q = k R for a structure matrix of your own; constraints fix its null space if it has one."""
    if not hasattr(structure, "tocsr"):
        structure = numeric("generic", "structure", structure)
        if structure.ndim != 2:
            raise problem("generic", f"structure has shape {structure.shape}", "(n, n)")
    return scaled(structure, precision, constraints=constraints)
