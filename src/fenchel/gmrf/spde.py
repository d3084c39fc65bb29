"""Matern fields on a triangulation from their stochastic differential equation (Lindgren, Rue and Lindstroem 2011).

    (kappa^2 - Laplacian)^(alpha/2) x = noise / tau,    nu = alpha - 1,    range = sqrt(8 nu) / kappa

With piecewise linear functions, lumped mass matrix C (diagonal), stiffness matrix G, and y = 1 + C^-1 G / kappa^2:

    nu = 1, 2, 3:   Q = kappa^2 C y^(nu + 1) / (4 pi nu sd^2)

so that the variance is sd^2 far from the edges. For other nu let s be its fractional part and p = floor(nu) + 1:

    y^-s = r_1 / (y + a_1) + r_2 / (y + a_2), approximately,
    x = x_1 + x_2,    Q_i = kappa^2 C y^p (y + a_i) / (4 pi nu sd^2 r_i)

with independent x_1 and x_2 (covariance-based rational approximation, Bolin, Simas and Xiong 2023). r and a fit the
logarithm of y^-s over y in [1, 300]. At 6 to 50 edges to a range this changes covariances by less than 0.02 sd^2. Rough
fields lose the variance of larger y and of details smaller than the mesh: at 8 edges to a range the variance of nodes
is 1.04 sd^2 for nu = 1/2, 0.95 for 0.3 and 0.6 for 0.1.

A field with two ranges has kappa and kappa_2 = ratio kappa; its roughness lies between nu = 1 (ratio 1) and nu = 0:

    Q = C (kappa^2 + C^-1 G) (kappa_2^2 + C^-1 G) log(ratio) / (2 pi (kappa_2^2 - kappa^2) sd^2),
    correlation at distance d: (K_0(kappa d) - K_0(kappa_2 d)) / log(ratio)

nu = 0 is the limit, Q = t (kappa^2 C + G), whose roughness the mesh limits: sd^2 is its variance on the mesh,
log(1 + 48 / (kappa h)^2) / (4 pi t) with edges h. kappa is sqrt(8) / range for both.

In barriers (Bakka et al. 2019) the range is f times as long. For nu = 1, C^-1 between two operators becomes
(C_1 + f^2 C_2)^-1 and G becomes G_1 + f^2 G_2, where index 2 means triangles of barriers.
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

BARRIER = 0.1  # range in barriers relative to that elsewhere
TWO_RANGES = "two ranges"  # value of nu that selects such a field
_SMOOTHEST = 3.0  # largest nu; its precision couples nodes up to four edges apart
_ROUGHEST = 0.1  # smallest nu above 0
_SPECTRUM = 300.0  # largest y for which the rational approximation is made
_TERMS = 2  # number of independent fields in that approximation


def finite_elements(mesh: Mesh, part: np.ndarray | None = None) -> tuple[np.ndarray, sp.csc_array]:
    """The diagonal (M,) of the lumped mass matrix and the stiffness matrix (M, M), of all triangles or of ``part``.

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
    """Check nu as a user gives it."""
    if nu == TWO_RANGES:
        return TWO_RANGES
    value = scalar(where, "nu", nu)
    if not (value == 0.0 or _ROUGHEST <= value <= _SMOOTHEST):
        raise problem(where, f"nu = {nu:g}", f"0, between {_ROUGHEST:g} and {_SMOOTHEST:g}, or {TWO_RANGES!r}")
    return value


@cache
def rational(nu: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """a and r in y^-s = sum_i r_i / (y + a_i), s the fractional part of nu; whole nu have a = 0 and r = 1.

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
    """The square of the second kappa in a field with nu = 0, from the mesh (a lattice of equilateral triangles)."""
    return float(48.0 / mesh.edge**2)


def n_fields(nu: float | str) -> int:
    """The number of independent fields whose sum is the field."""
    return 1 if nu == TWO_RANGES else len(rational(float(nu))[0])


def diffusion(mesh: Mesh, nu: float | str = 1, barrier: float = BARRIER) -> Precision:
    """The precision of the nodes of a mesh, repeated for each of the ``n_fields(nu)`` fields."""
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
    if mesh.barrier.any():  # C K^-1 C differs from C
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
    """Rates of kappa^2 C y^p (y + a) / (4 pi nu sd^2 r); powers of y expand into powers of C^-1 G / kappa^2."""
    weights = np.array([1.0 + a, 1.0])
    for _ in range(int(np.ceil(nu))):
        weights = np.convolve(weights, [1.0, 1.0])
    return DiffusionRates(weights / (4 * np.pi * nu * r), 2.0 - 2.0 * np.arange(weights.size), nu)


def correlation(distance: np.ndarray, theta: np.ndarray, nu: float | str) -> np.ndarray:
    """Correlation of a field at distances, far from edges, for nu above 0; ``theta`` = (log sd, log range, ...)."""
    if nu == TWO_RANGES:
        d = np.maximum(np.sqrt(8.0) / np.exp(theta[1]) * distance, 1e-6)
        ratio = 1.0 + max(float(np.exp(theta[2])), 1e-4)
        return np.minimum((kv(0, d) - kv(0, ratio * d)) / np.log(ratio), 1.0)
    nu = float(nu)
    d = np.asarray(np.sqrt(8.0 * nu) / np.exp(theta[1]) * distance)
    far = np.maximum(d, 1e-10)
    out = 2.0 ** (1.0 - nu) / gamma(nu) * far**nu * kv(nu, far)
    return np.where(d < far, 1.0, np.minimum(out, 1.0))  # rounding may give values above 1


def matern_field(mesh: Mesh, range: float, sd: float = 1.0, nu: float = 1) -> MarkovField:
    """A Matern field at the nodes of a mesh; theta = (log sd, log range).

    Parameters
    ----------
    mesh : Mesh
        ``mesh.design(points)`` is the design at points; for a fractional ``nu`` repeat it twice, side by side.
    range : float
        Distance at which the correlation is about 0.14, in the mesh's units.
    sd : float
    nu : float
        Smoothness, 0.1 to 3: roughly the number of derivatives of the field.
    """
    instance("matern_field", "mesh", mesh, Mesh, "fenchel.mesh(points)")
    start = [np.log(scalar("matern_field", "sd", sd, 0.0)), np.log(scalar("matern_field", "range", range, 0.0))]
    wide = np.log(mesh.extent)
    bounds = [WIDE, (min(wide - 12.0, start[1]), max(wide + 3.0, start[1]))]
    value = scalar("matern_field", "nu", smoothness("matern_field", nu))
    return MarkovField(diffusion(mesh, value), start, ["log sd", "log range"], bounds)
