"""Fields on a graph and on a grid: ICAR, BYM, BYM2, Leroux, Matern."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import count, problem, scalar
from ..linalg.bases import constraint_rows
from ..priors.sparse import SparsePrecision
from .base import SIZE, WIDE, MarkovField
from .graphs import as_adjacency, laplacian
from .precisions import Combination, Rates
from .series import log_sd, scaled


def _structure(graph: Any, n: int | None, balanced: bool = False) -> tuple[sp.csc_array, sp.csr_array]:
    """The ICAR structure and its constraints: sum to zero in every component of two nodes and more.

    An isolated node has no neighbours to smooth towards: it is an independent effect with the same precision.
    ``balanced``: components have one typical variance (geometric mean), that of all nodes with neighbours, and so have
    isolated nodes (Freni-Sterrantino et al. 2018).
    """
    A = as_adjacency(graph, n)
    count, label = sp.csgraph.connected_components(A, directed=False)
    alone = np.asarray(A.sum(axis=1)).ravel() == 0
    R = sp.csc_array(laplacian(A) + sp.diags_array(alone.astype(float)))
    several = np.bincount(label, minlength=count) > 1
    row = np.cumsum(several) - 1
    inside = np.flatnonzero(several[label])
    C = sp.csr_array((np.ones(inside.size), (row[label[inside]], inside)), shape=(int(several.sum()), label.size))
    return (_balanced(R, C) if balanced and count > 1 and C.nnz else R), C


def _balanced(R: sp.csc_array, C: sp.csr_array) -> sp.csc_array:
    """A structure whose components, and nodes that are in none, have the typical variance of all components."""
    own = _typical(R, C)
    ratio = own / np.exp(np.log(own[C.indices]).mean())
    root = sp.diags_array(np.sqrt(ratio))
    return sp.csc_array(root @ R @ root)


def _typical(R: sp.csc_array, C: sp.csr_array) -> np.ndarray:
    """Of each node the geometric mean of the variances in its component, or its own where it is in none."""
    out = 1.0 / R.diagonal()
    if C.nnz:
        variance = SparsePrecision(R, constraints=C).factor.inverse_diagonal()
        for nodes in np.split(C.indices, C.indptr[1:-1]):
            out[nodes] = np.exp(np.log(variance[nodes]).mean())
    return out


def icar(graph: Any, precision: float = 1.0, n: int | None = None, balanced: bool = False) -> MarkovField:
    """The intrinsic conditional autoregression (Besag): Q = k (D - A).

    With ``balanced`` each component is scaled so that all have the same typical variance, isolated nodes as well.
    """
    R, C = _structure(graph, n, balanced)
    return scaled(R, precision, constraints=constraint_rows(C) if C.nnz else None)


def _two_rates(theta: np.ndarray) -> Any:
    """An sd each."""
    k = np.exp(-2.0 * theta)
    return (k[0], k[1]), [(-2.0 * k[0], 0.0), (0.0, -2.0 * k[1])]


def _shared_rates(theta: np.ndarray) -> Any:
    """One sd, and the share of the variance that is structured."""
    k, p = np.exp(-2.0 * theta[0]), 1 / (1 + np.exp(-theta[1]))
    k_u, k_v = k / p, k / (1 - p)
    return (k_u, k_v), [(-2.0 * k_u, -2.0 * k_v), (-k_u * (1 - p), k_v * p)]


def _sum_of_two(
    R: Any, C: sp.csr_array, rates: Rates, theta: list[float], names: list[str], bounds: list[tuple[float, float]]
) -> MarkovField:
    """eta = u + v."""
    n = R.shape[0]
    U, V = (
        sp.block_diag(pair, format="csc")
        for pair in ((R, sp.csc_array((n, n))), (sp.csc_array((n, n)), sp.eye_array(n)))
    )
    constraints = constraint_rows(sp.hstack([C, sp.csr_array(C.shape)])) if C.nnz else None
    design = sp.hstack([sp.eye_array(n), sp.eye_array(n)], format="csr")
    return MarkovField(Combination((U, V), rates), theta, names, bounds, design=design, constraints=constraints)


def bym(
    graph: Any, precision_u: float = 1.0, precision_v: float = 1.0, n: int | None = None, balanced: bool = False
) -> MarkovField:
    """Besag, York and Mollie: an ICAR u plus independent v, eta = u + v. Latents: (u, v); ``balanced`` as in icar."""
    R, C = _structure(graph, n, balanced)
    rates_of = {"precision_u": precision_u, "precision_v": precision_v}
    start = [log_sd("bym", name, value) for name, value in rates_of.items()]
    return _sum_of_two(R, C, _two_rates, start, ["log sd u", "log sd v"], [SIZE, SIZE])


def scaled_icar(graph: Any, n: int | None = None) -> tuple[sp.csc_array, sp.csr_array]:
    """The structure of an ICAR with a geometric mean of its marginal variances of 1 in every component.

    With its constraints (k, n), one for every component of two nodes and more.
    """
    R, C = _structure(graph, n)
    if not C.nnz:
        return R, C
    root = sp.diags_array(np.sqrt(_typical(R, C)))
    return sp.csc_array(root @ R @ root), C


def bym2(graph: Any, precision: float = 1.0, phi: float = 0.5, n: int | None = None) -> MarkovField:
    """BYM with one precision k and the share phi = sigmoid(theta_2) of the variance that is structured.

    The ICAR is scaled so that the geometric mean of its marginal variances is 1 in every component (Riebler et al.),
    which makes k and phi mean the same on every graph.
    """
    phi, start = scalar("bym2", "phi", phi, 0.0, 1.0), log_sd("bym2", "precision", precision)
    R, C = scaled_icar(graph, n)
    theta = [start, np.log(phi / (1 - phi))]
    return _sum_of_two(R, C, _shared_rates, theta, ["log sd", "logit phi"], [SIZE, WIDE])


def _mixed_rates(theta: np.ndarray) -> Any:
    """Of I and of the Laplacian: k (1 - rho) and k rho."""
    k, r = np.exp(-2.0 * theta[0]), 1 / (1 + np.exp(-theta[1]))
    c, bend = (k * (1 - r), k * r), k * r * (1 - r)
    return c, [(-2.0 * c[0], -2.0 * c[1]), (-bend, bend)]


def leroux(graph: Any, precision: float = 1.0, rho: float = 0.5, n: int | None = None) -> MarkovField:
    """Leroux: Q = k [(1 - rho) I + rho (D - A)], proper for 0 <= rho < 1; theta = (log sd, logit rho)."""
    rho, start = scalar("leroux", "rho", rho, 0.0, 1.0), log_sd("leroux", "precision", precision)
    L = laplacian(as_adjacency(graph, n))
    build = Combination((sp.eye_array(L.shape[0], format="csc"), L), _mixed_rates)
    return MarkovField(build, [start, np.log(rho / (1 - rho))], ["log sd", "logit rho"], [SIZE, WIDE])


def _line(m: int) -> Any:
    """The Laplacian of a path of m nodes."""
    off = -np.ones(m - 1)
    return sp.diags_array([off, np.r_[1.0, 2 * np.ones(m - 2), 1.0], off], offsets=[-1, 0, 1])


def _shape(where: str, shape: Any) -> tuple[int, int]:
    """(rows, columns) of a regular grid."""
    sides = shape if isinstance(shape, Sequence | np.ndarray) and len(shape) == 2 else ()
    if len(sides) != 2 or any(np.ndim(side) or not isinstance(side, Real) or side < 2 for side in sides):
        raise problem(where, f"shape = {shape!r}", "(rows, columns), at least two of each")
    return count(where, "rows", sides[0], 2), count(where, "columns", sides[1], 2)


def _grid(rows: int, columns: int) -> sp.csc_array:
    """The five-point Laplacian of a regular grid, row by row."""
    return sp.csc_array(sp.kron(_line(rows), sp.eye_array(columns)) + sp.kron(sp.eye_array(rows), _line(columns)))


def lattice(shape: tuple[int, int], precision: float = 1.0) -> MarkovField:
    """A first-order intrinsic field on a regular grid: neighbours differ by N(0, 1/k), the sum is zero."""
    rows, columns = _shape("lattice", shape)
    return scaled(_grid(rows, columns), precision, constraints=np.ones((1, rows * columns)))


def _diffusion_rates(theta: np.ndarray) -> Any:
    """Of I, G and G^2: (k2, 2, 1 / k2) / (4 pi v), k2 = kappa^2."""
    v, k2 = np.exp(2.0 * theta[0]), 8.0 / np.exp(2 * theta[1])
    c = np.array([k2, 2.0, 1.0 / k2]) / (4 * np.pi * v)
    return c, [-2.0 * c, np.array([-2.0 * k2, 0.0, 2.0 / k2]) / (4 * np.pi * v)]  # dk2/dtheta_2 = -2 k2


def matern(shape: tuple[int, int], range: float, variance: float = 1.0, spacing: float = 1.0) -> MarkovField:
    """A Matern field of smoothness 1 on a regular grid, by its stochastic differential equation (Lindgren et al.).

    (kappa^2 - Laplacian) x = white noise: Q = s (kappa^2 + G)^2 with G the five-point Laplacian over ``spacing``^2,
    range = sqrt(8) / kappa, and s such that the sd is e^theta_1 far from the edges, up to the grid: 4 % more at
    ten steps to a range, 1.3 % more at twenty.
    theta = (log sd, log range).
    """
    rows, columns = _shape("matern", shape)
    range, variance = scalar("matern", "range", range, 0.0), scalar("matern", "variance", variance, 0.0)
    spacing = scalar("matern", "spacing", spacing, 0.0)
    G = _grid(rows, columns)
    matrices = sp.eye_array(rows * columns, format="csc") * spacing**2, G, sp.csc_array(G @ G) / spacing**2
    build = Combination(matrices, _diffusion_rates)
    return MarkovField(build, [0.5 * np.log(variance), np.log(range)], ["log sd", "log range"], [SIZE, WIDE])
