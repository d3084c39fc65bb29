"""Matern fields on a triangulation, by their stochastic differential equation (Lindgren, Rue and Lindstroem 2011).

    (kappa^2 - Laplacian)^(alpha/2) x = noise / tau,    nu = alpha - 1,    range = sqrt(8 nu) / kappa

With piecewise linear functions, C the lumped mass matrix (diagonal) and G the stiffness matrix,

    nu = 1:   Q = (kappa^2 C + 2 G + kappa^-2 G C^-1 G) / (4 pi sd^2)
    nu = 2:   Q = (kappa^2 C + 3 G + 3 kappa^-2 G C^-1 G + kappa^-4 G C^-1 G C^-1 G) / (8 pi sd^2)

so that the variance is sd^2 far from the edges. Barriers (Bakka et al. 2019) have a share f of the range: in nu = 1,
C^-1 between two operators becomes (C_1 + f^2 C_2)^-1 and G is G_1 + f^2 G_2, index 2 for what lies in them.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import kv

from ..checks import choice, instance, problem, scalar
from .base import WIDE, MarkovField
from .mesh import Mesh
from .precisions import Combination, DiffusionRates

BARRIER = 0.1  # of the range, in barriers


def finite_elements(mesh: Mesh, part: np.ndarray | None = None) -> tuple[np.ndarray, sp.csc_array]:
    """The lumped mass matrix, its diagonal (M,), and the stiffness matrix (M, M), of all triangles or of some.

    Examples
    --------
    >>> from fenchel import Mesh
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


def diffusion(mesh: Mesh, nu: int = 1, barrier: float = BARRIER) -> Combination:
    """The precision over the nodes of a mesh."""
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
    GG = over(G, G)
    if nu == 1:
        matrices, weights, powers = [over(mass, mass), over(mass, G) + over(G, mass), GG], [1.0, 1.0, 1.0], [2, 0, -2]
    else:
        matrices, weights, powers = [mass, G, GG, over(GG, G)], [1.0, 3.0, 3.0, 1.0], [2, 0, -2, -4]
    rates = DiffusionRates(np.array(weights) / (4 * np.pi * nu), np.array(powers, dtype=np.float64), nu)
    return Combination(tuple(matrices), rates)


def correlation(distance: np.ndarray, reach: float, nu: int) -> np.ndarray:
    """Of a field far from edges, nu = 1 or 2, at distances from its place, ``reach`` its range."""
    d = np.maximum(np.sqrt(8.0 * nu) / reach * distance, 1e-10)
    return np.asarray(d * kv(1, d) if nu == 1 else d * d * kv(2, d) / 2.0)


def matern_field(mesh: Mesh, range: float, sd: float = 1.0, nu: int = 1) -> MarkovField:
    """A Matern field over the nodes of a mesh; theta = (log sd, log range).

    Parameters
    ----------
    mesh : Mesh
        ``mesh.design(points)`` is the design of points.
    range : float
        Where the correlation is about 0.14, in the mesh's units.
    sd : float
    nu : 1 or 2
        Smoothness: how many derivatives the field nearly has.
    """
    instance("matern_field", "mesh", mesh, Mesh, "fenchel.mesh(points)")
    choice("matern_field", "nu", nu, (1, 2))
    start = [np.log(scalar("matern_field", "sd", sd, 0.0)), np.log(scalar("matern_field", "range", range, 0.0))]
    wide = np.log(mesh.extent)
    bounds = [WIDE, (min(wide - 12.0, start[1]), max(wide + 3.0, start[1]))]
    return MarkovField(diffusion(mesh, int(nu)), start, ["log sd", "log range"], bounds)
