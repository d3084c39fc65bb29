"""Matern fields on a triangulation, by their stochastic differential equation (Lindgren, Rue and Lindstroem 2011).

    (kappa^2 - Laplacian)^(alpha/2) x = noise / tau,    nu = alpha - 1,    range = sqrt(8 nu) / kappa

With piecewise linear functions, C the lumped mass matrix (diagonal), G the stiffness matrix, y = 1 + C^-1 G / kappa^2:

    nu = 1, 2, 3:   Q = kappa^2 C y^(nu + 1) / (4 pi nu sd^2)

so that the variance is sd^2 far from the edges. For other nu, s its fraction and p = floor(nu) + 1,

    y^-s = r_1 / (y + a_1) + r_2 / (y + a_2), nearly,
    x = x_1 + x_2,    Q_i = kappa^2 C y^p (y + a_i) / (4 pi nu sd^2 r_i)

with x_1 and x_2 independent (covariance-based rational approximation, Bolin, Simas and Xiong 2023). r and a fit the
logarithm of y^-s over y in [1, 300]; at 6 to 50 edges a range covariances are within 0.02 sd^2 of those without it.
What lies beyond, and what no mesh holds, is missing from the variance of rough fields: at 8 edges a range that of nodes
is 1.04 sd^2 for nu = 1/2, 0.95 for 0.3 and 0.6 for 0.1.

A field of two ranges has kappa_2 = ratio kappa beside kappa, and so any roughness between nu = 1 (ratio 1) and nu = 0:

    Q = C (kappa^2 + C^-1 G) (kappa_2^2 + C^-1 G) log(ratio) / (2 pi (kappa_2^2 - kappa^2) sd^2),
    correlation at distance d: (K_0(kappa d) - K_0(kappa_2 d)) / log(ratio)

nu = 0 is the limit of that, Q = t (kappa^2 C + G), as rough as the mesh lets it be: sd^2 is its variance on the mesh,
log(1 + 48 / (kappa h)^2) / (4 pi t) with edges h. kappa is sqrt(8) / range for both.

Barriers (Bakka et al. 2019) have a share f of the range: in nu = 1, C^-1 between two operators becomes
(C_1 + f^2 C_2)^-1 and G is G_1 + f^2 G_2, index 2 for what lies in them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy.sparse as sp
from scipy.optimize import least_squares
from scipy.special import gamma, kv

from ..checks import instance, problem, scalar
from .base import WIDE, MarkovField
from .mesh import Mesh
from .precisions import Combination, DiffusionRates, FirstOrderRates, Precision, SharedBlocks, TwoRangeRates

BARRIER = 0.1  # of the range, in barriers
TWO_RANGES = "two ranges"  # what stands for nu of such a field
_SMOOTHEST = 3.0  # the largest nu: its precision reaches four edges
_ROUGHEST = 0.1  # the smallest above 0
_SPECTRUM = 300.0  # the largest y that the rational approximation is made for
_TERMS = 2  # independent fields of that approximation


def finite_elements(mesh: Mesh, part: np.ndarray | None = None) -> tuple[np.ndarray, sp.csc_array]:
    """The lumped mass matrix, its diagonal (M,), and the stiffness matrix (M, M), of all triangles or of some.

    Examples
    --------
    >>> from fenchel.gmrf.mesh import Mesh
    >>> from fenchel.gmrf.spde import finite_elements
    >>> mass, G = finite_elements(Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]]))
    >>> mass.round(4), G.toarray()
    (array([0.1667, 0.1667, 0.1667]), array([[ 1. , -0.5, -0.5],
           [-0.5,  0.5,  0. ],
           [-0.5,  0. ,  0.5]]))
    """
    keep = slice(None) if part is None else part
    area, corners, e = mesh.areas[keep], mesh.triangles[keep], mesh.sides[keep]
    mass = np.bincount(corners.ravel(), np.repeat(area / 3.0, 3), minlength=mesh.n_nodes)
    local = np.einsum("tid,tjd->tij", e, e) / (4.0 * area)[:, None, None]
    i, j = (np.broadcast_to(c, local.shape).ravel() for c in (corners[:, :, None], corners[:, None, :]))
    return mass, sp.csc_array((local.ravel(), (i, j)), shape=(mesh.n_nodes, mesh.n_nodes))


def smoothness(where: str, nu: float | str) -> float | str:
    """nu as a user gives it."""
    if nu == TWO_RANGES:
        return TWO_RANGES
    value = scalar(where, "nu", nu)
    if not (value == 0.0 or _ROUGHEST <= value <= _SMOOTHEST):
        raise problem(where, f"nu = {nu:g}", f"0, between {_ROUGHEST:g} and {_SMOOTHEST:g}, or {TWO_RANGES!r}")
    return value


@cache
def rational(nu: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """a and r of y^-s = sum_i r_i / (y + a_i), s the fraction of nu; whole nu have a = 0 and r = 1.

    Examples
    --------
    >>> from fenchel.gmrf.spde import rational
    >>> a, r = rational(0.5)
    >>> error = abs(sum(b / (16.0 + c) for b, c in zip(r, a)) - 0.25)
    >>> bool(error < 0.01)
    True
    """
    s = nu % 1.0
    if s == 0.0:
        return (0.0,), (1.0,)
    wide = np.log(_SPECTRUM)
    log_y = np.linspace(0.0, wide, 200)
    y = np.exp(log_y)[:, None]

    def misfit(logs: np.ndarray) -> np.ndarray:
        a, r = np.exp(logs[:_TERMS]), np.exp(logs[_TERMS:])
        return np.asarray(np.log((r / (y + a)).sum(axis=1)) + s * log_y)

    inner = np.linspace(0.0, wide, _TERMS + 2)[1:-1]
    logs = least_squares(misfit, np.concatenate([inner, (1.0 - s) * inner]), xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    return tuple(np.exp(logs[:_TERMS]).tolist()), tuple(np.exp(logs[_TERMS:]).tolist())


def cutoff(mesh: Mesh) -> float:
    """The square of the second kappa that a field of nu = 0 has by its mesh, a lattice of equilateral triangles."""
    return float(48.0 / mesh.edge**2)


def n_fields(nu: float | str) -> int:
    """Independent fields that a field is the sum of."""
    return 1 if nu == TWO_RANGES else len(rational(float(nu))[0])


def diffusion(mesh: Mesh, nu: float | str = 1, barrier: float = BARRIER) -> Precision:
    """The precision over the nodes of a mesh, once for each of ``n_fields(nu)``."""
    if mesh.barrier.any():
        if nu != 1:
            raise problem("matern", f"nu = {nu} on a mesh with barriers", "nu = 1")
        parts = [finite_elements(mesh, part) for part in (~mesh.barrier, mesh.barrier)]
        C, K = parts[0][0] + parts[1][0], parts[0][0] + barrier**2 * parts[1][0]
        G = sp.csc_array(parts[0][1] + barrier**2 * parts[1][1])
    else:
        C, G = finite_elements(mesh)
        K = C
    over = lambda A, B: sp.csc_array(A @ sp.diags_array(1.0 / K) @ B)
    mass = sp.csc_array(sp.diags_array(C))
    if mesh.barrier.any():  # C K^-1 C is not C
        powers = [over(mass, mass), (over(mass, G) + over(G, mass)) / 2.0, over(G, G)]
    else:
        powers = [mass, G]
        while nu != 0.0 and len(powers) < (3 if nu == TWO_RANGES else int(np.ceil(float(nu))) + 2):
            powers.append(over(powers[-1], G))
    if nu == TWO_RANGES:
        return Combination(tuple(powers), TwoRangeRates())
    if nu == 0.0:
        return Combination(tuple(powers), FirstOrderRates(cutoff(mesh)))
    a, r = rational(float(nu))
    return SharedBlocks.of([Combination(tuple(powers), _rates(float(nu), *each)) for each in zip(a, r, strict=True)])


def _rates(nu: float, a: float, r: float) -> DiffusionRates:
    """Of kappa^2 C y^p (y + a) / (4 pi nu sd^2 r): powers of y are sums of powers of C^-1 G / kappa^2."""
    weights = np.array([1.0 + a, 1.0])
    for _ in range(int(np.ceil(nu))):
        weights = np.convolve(weights, [1.0, 1.0])
    return DiffusionRates(weights / (4 * np.pi * nu * r), 2.0 - 2.0 * np.arange(weights.size), nu)


def correlation(distance: np.ndarray, theta: np.ndarray, nu: float | str) -> np.ndarray:
    """Of a field far from edges at distances from its place, nu above 0; ``theta`` = (log sd, log range, ...)."""
    if nu == TWO_RANGES:
        d = np.maximum(np.sqrt(8.0) / np.exp(theta[1]) * distance, 1e-6)
        ratio = 1.0 + max(float(np.exp(theta[2])), 1e-4)
        return np.minimum((kv(0, d) - kv(0, ratio * d)) / np.log(ratio), 1.0)
    nu = float(nu)
    d = np.asarray(np.sqrt(8.0 * nu) / np.exp(theta[1]) * distance)
    far = np.maximum(d, 1e-10)
    out = 2.0 ** (1.0 - nu) / gamma(nu) * far**nu * kv(nu, far)
    return np.where(d < far, 1.0, np.minimum(out, 1.0))  # rounding would go beyond 1


def matern_field(mesh: Mesh, range: float, sd: float = 1.0, nu: float = 1) -> MarkovField:
    """A Matern field over the nodes of a mesh; theta = (log sd, log range).

    Parameters
    ----------
    mesh : Mesh
        ``mesh.design(points)`` is the design of points; with a fraction as ``nu`` it stands twice, side by side.
    range : float
        Where the correlation is about 0.14, in the mesh's units.
    sd : float
    nu : float
        Smoothness, 0.1 to 3: how many derivatives the field nearly has.
    """
    instance("matern_field", "mesh", mesh, Mesh, "fenchel.mesh(points)")
    start = [np.log(scalar("matern_field", "sd", sd, 0.0)), np.log(scalar("matern_field", "range", range, 0.0))]
    wide = np.log(mesh.extent)
    bounds = [WIDE, (min(wide - 12.0, start[1]), max(wide + 3.0, start[1]))]
    value = scalar("matern_field", "nu", smoothness("matern_field", nu))
    return MarkovField(diffusion(mesh, value), start, ["log sd", "log range"], bounds)
