"""What a bound tells of itself at one point.

``Site`` is the curve and the conjugate of a convex bound at the mirror coordinate s: the dual is made of it.
``Loss`` is any f(h, rho) >= E[-log p(y|eta)] with its slopes, convex or not: the exact mode is made of it. A convex
bound has both, and ``loss_of_site`` gives the second from the first:

    f(h, rho) = max_tau G,  G = alpha h + lam rho/2 - k
    df = alpha dh + lam drho/2,   d2f = v v' / (k'' - lam'' rho/2),   v = (a_h, lam'/2)      summed over potentials
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..linalg.arrays import Array, namespace


@dataclass(frozen=True, slots=True)
class Site:
    """Everything the dual needs of the sites at one s, per unit of weight.

    The derivative of tau is J = diag(spread) - spread spread' / (slack + sum spread) for each observation,
    or diag(spread) when ``slack`` is None (potentials that do not share a normalisation).
    """

    tau: Array  # (N, P)
    alpha: Array  # (N, C)
    lam: Array  # (N, C)
    lam_slope: Array  # (N, P)  d lam / d tau
    lam_curvature: Array  # (N, P)  d2 lam / d tau2, never positive
    k: Array  # (N,)    the conjugate
    spread: Array  # (N, P)
    slack: Array | None = None  # (N,)


@dataclass(frozen=True, slots=True)
class Domain:
    """Where tau may lie: lower < tau < upper, and sum_p tau_p < total (= total when ``exactly``).

    Numbers, or arrays that broadcast against tau (lower, upper) and the observations (total).
    """

    lower: Any = -np.inf
    upper: Any = np.inf
    total: Any = np.inf
    exactly: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """f(h, rho) of observations with one predictor, its slopes and its curvature, per unit of weight; all (N,).

    For f = E[psi], psi = -log p: alpha = E[psi'], lam = E[psi''], hh = E[psi''], hr = E[psi''']/2, rr = E[psi'''']/4.
    The curvature only steers Newton's steps; the certificate rests on ``value``, ``alpha`` and ``lam``. A bound over
    several contrasts has alpha and lam (N, P), and its curvature apart (``Bound.curvature``).
    """

    value: Array  # f
    alpha: Array  # df/dh
    lam: Array  # 2 df/drho
    hh: Array = None  # type: ignore[assignment] # d2f/dh2
    hr: Array = None  # type: ignore[assignment] # d2f/dh drho
    rr: Array = None  # type: ignore[assignment] # d2f/drho2

    @property
    def slopes(self) -> tuple[Array, Array]:
        """alpha and lam in columns: (N, 1), or (N, P)."""
        one = self.alpha.ndim == 1
        return (self.alpha[:, None], self.lam[:, None]) if one else (self.alpha, self.lam)


def loss_of_site(site: Site, signs: Array, h: Array, rho: Array, constant: Array) -> Loss:
    """The loss of a convex bound, from its site at the s where the maximum is reached. h, rho: (N, 1)."""
    xp = namespace(h)
    alpha, lam = site.alpha[:, 0], site.lam[:, 0]
    pull = site.spread / (1.0 - 0.5 * site.lam_curvature * rho * site.spread)
    half = site.lam_slope / 2
    value = alpha * h[:, 0] + lam * rho[:, 0] / 2 - site.k + constant
    hh, hr, rr = (xp.sum(pull * x, axis=1) for x in (signs * signs, signs * half, half * half))
    return Loss(value, alpha, lam, hh, hr, rr)
