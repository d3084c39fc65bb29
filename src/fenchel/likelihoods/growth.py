"""Losses that grow like mu = c e^eta, log(1 - e^-mu), and their expectations: c e^eta in closed form, the rest by
quadrature.

    psi = c e^eta + rest(eta),      E[c e^eta] = c e^{h + rho/2}

Third and fourth derivatives come by parts: E[rest'' t]/rho and E[rest'' (t^2/rho - 1)]/rho, with t = eta - h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..linalg.arrays import Array, namespace
from ..linalg.functions import expm1_minus
from ..linalg.grouped import Integrand
from .base import Rows, slice_rows
from .sites import Loss

STRIP = 1.4  # log(1 - e^-mu) is analytic within pi/2 of the real line of log mu
_SURE = 700.0  # a mean from which a zero is impossible in doubles
Parts = Callable[[Array, Rows], tuple[Array, Array, Array]]  # (eta, rows) -> value and its first two slopes


def grown_loss(
    c: Array | None,
    rest: Parts,
    expect: Callable[[Integrand], Array],
    h: Array,
    rho: Array,
    rows: Rows,
    convex: bool = True,
) -> Loss:
    """E[psi] with its slopes and curvature, h and rho (N, 1); ``expect`` gives E under N(h, rho), c None is 0.

    The curvature of a ``convex`` psi is held at 0 where rounding leaves less.
    """
    xp = namespace(h)

    def integrand(eta: Array, index: Any) -> Array:
        value, first, second = rest(eta, slice_rows(rows, index))
        v = rho[index, :]
        v = xp.where(v > 0.0, v, xp.ones_like(v))
        t = (eta - h[index, :]) / xp.sqrt(v)
        return xp.stack([value, first, second, second * t / xp.sqrt(v), second * (t * t - 1.0) / v])

    out = expect(integrand)
    if c is None:
        return Loss(out[0, :], out[1, :], out[2, :], out[2, :], out[3, :] / 2, out[4, :] / 4)
    with np.errstate(over="ignore"):
        mean = c * xp.exp(h[:, 0] + rho[:, 0] / 2)
    lam = mean + out[2, :]
    lam = xp.where(lam > 0.0, lam, xp.zeros_like(lam)) if convex else lam
    return Loss(mean + out[0, :], mean + out[1, :], lam, lam, (mean + out[3, :]) / 2, (mean + out[4, :]) / 4)


def log_above_zero(eta: Array, exposure: Array) -> tuple[Array, Array, Array]:
    """log(1 - e^-mu), mu = exposure e^eta, and its first two derivatives in eta (N, M)."""
    xp = namespace(eta)
    log_mu = eta + xp.log(exposure)[:, None]
    small = log_mu < -30.0  # where it is log mu - mu/2
    mu = xp.exp(xp.minimum(xp.where(small, -30.0 + 0.0 * eta, log_mu), float(np.log(_SURE)) + 0.0 * eta))
    rest = xp.expm1(mu)
    k = mu / rest
    bend = k * (expm1_minus(mu) / rest - mu)
    tiny = xp.exp(xp.where(small, log_mu, -30.0 + 0.0 * eta)) / 2
    return (
        xp.where(small, log_mu - tiny, xp.log(-xp.expm1(-mu))),
        xp.where(small, 1.0 - tiny, k),
        xp.where(small, -tiny, bend),
    )
