"""Graphs and the fields on them: ICAR, BYM, BYM2, Leroux; and Matern fields on a regular grid.

Any kind of graph is read as one symmetric 0/1 adjacency matrix, or refused with an explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import count, numeric, problem, scalar
from ..linalg.constraint_bases import constraint_rows
from ..priors.sparse import SparsePrecision
from .base import SIZE, WIDE, MarkovField, log_sd, scaled
from .precisions import Combination, DiffusionRates, Rates

_COMPLETE = 0.9  # share of all pairs above which weights that vary are probably distances
_SMALL = 5  # graphs with fewer nodes may well be complete


def as_adjacency(graph: Any, n: int | None = None) -> sp.csr_array:
    """The adjacency matrix (n, n) of a graph.

    Parameters
    ----------
    graph : scipy sparse or dense (n, n), edge list (m, 2) with ``n``, networkx graph, libpysal W or Graph
        Weights mean "neighbours or not"; duplicate edges count once; isolated nodes are kept. A list of tuples,
        ``[(0, 1), (1, 2)]``, is always an edge list; an array of shape (2, 2) is a matrix if n = 2 or n is not given.
    n : int
        Number of nodes; required with an edge list, whose nodes are 0, ..., n-1.
    """
    if hasattr(graph, "adjacency") and hasattr(graph, "nodes"):  # networkx
        place = {node: i for i, node in enumerate(graph.nodes)}
        edges = np.array([(place[a], place[b]) for a, b in graph.edges], dtype=int).reshape(-1, 2)
        return _from_edges(edges, len(place))
    matrix = getattr(graph, "sparse", graph)  # libpysal
    if hasattr(matrix, "tocoo"):
        A = sp.csr_array(matrix, dtype=np.float64, copy=True)  # a copy, because zeros are removed in place
        A.sum_duplicates()
    else:
        pairs = edge_tuples(graph)
        if pairs is not None and n is None:
            got = f"graph is a list of {len(pairs)} edges"
            raise problem("graph", got, "how many nodes there are as well", "Pass n: nodes without an edge count, too.")
        advice = "Edges of a graph are pairs of integers; networkx.Graph(edges) reads names." if pairs else ""
        values = numeric("graph", "graph", graph if pairs is None else pairs, advice)
        if values.ndim != 2:
            raise problem("graph", f"graph has shape {values.shape}", "an adjacency matrix (n, n) or edges (m, 2)")
        if n is not None and values.shape[1] == 2 and (pairs is not None or values.shape != (n, n)):
            bad = (values < 0) | (values >= n) | (values != np.floor(values))
            if bad.any():
                got = f"edge {int(np.argwhere(bad)[0][0])} names node {values[bad][0]:g}"
                raise problem("graph", got, f"integers 0, ..., {n - 1}", "Subtract 1 from ids that start at 1.")
            return _from_edges(values.astype(int), n)
        if values.shape[0] != values.shape[1]:
            raise problem("graph", f"graph has shape {values.shape}", "(n, n)", "With an edge list pass n as well.")
        A = sp.csr_array(values)
    missing = np.flatnonzero(np.isnan(A.data))
    if missing.size:
        i, j = (int(at[missing[0]]) for at in sp.coo_array(A).coords)
        advice = "NaN is neither: where it means no neighbours, .fillna(0) or np.nan_to_num(graph) say so."
        raise problem("graph", f"graph[{i}, {j}] is NaN", "0 or a weight for every pair", advice)
    A.eliminate_zeros()
    _refuse_other_matrices(A)
    A = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
    if A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise problem("graph", f"the adjacency matrix has shape {A.shape}", "(n, n)")
    if A.diagonal().any():
        node = int(np.flatnonzero(A.diagonal())[0])
        raise problem("graph", f"node {node} is its own neighbour", "no self-loops", "Set the diagonal to zero.")
    if (A != A.T).nnz:
        i, j = np.argwhere((A != A.T).toarray())[0] if A.shape[0] < 3000 else (A != A.T).nonzero()
        got = f"edge ({np.ravel(i)[0]}, {np.ravel(j)[0]}) has no mirror image"
        raise problem("graph", got, "a symmetric adjacency matrix", "Use A + A.T for a graph stored one way.")
    return A


def _refuse_other_matrices(A: sp.csr_array) -> None:
    """Refuse weights that are not those of neighbours: negative ones, and distances, which nearly all pairs have."""
    if A.nnz and A.data.min() < 0.0:
        k = int(np.argmin(A.data))
        i, j = (int(at[k]) for at in sp.coo_array(A).coords)
        advice = "Weights are read as neighbours or not; a precision matrix is a generic structure."
        raise problem("graph", f"graph[{i}, {j}] = {A.data[k]:.6g}", "0, or a positive number of neighbours", advice)
    n = A.shape[0]
    share = A.nnz / max(n * (n - 1), 1)
    if n < _SMALL or share < _COMPLETE or np.ptp(A.data) <= 1e-9 * A.data.max():
        return
    got = f"{share:.0%} of all pairs of nodes have a weight, from {A.data.min():.4g} to {A.data.max():.4g}"
    advice = "A matrix of distances is no adjacency: (0 < D) & (D < limit) says who is near; matern(x, y) takes points."
    raise problem("graph", got, "weights of neighbours alone", advice)


def counted(A: sp.csr_array) -> str:
    """The numbers of pairs, islands and components of a graph, in words.

    Examples
    --------
    >>> from fenchel.gmrf.space import as_adjacency, counted
    >>> counted(as_adjacency([(0, 1), (1, 2)], 4))
    '2 pairs of neighbours, 1 island, 2 components'
    """
    islands = int((np.diff(sp.csr_array(A).indptr) == 0).sum())
    parts = (A.nnz // 2, "pair"), (islands, "island"), (sp.csgraph.connected_components(A, False)[0], "component")
    pairs, *rest = (f"{n} {word}{'' if n == 1 else 's'}" for n, word in parts)
    return ", ".join([f"{pairs} of neighbours", *rest])


def edge_tuples(graph: Any) -> list[Any] | None:
    """The edges of a graph given as a list of pairs; None for any other graph."""
    if not isinstance(graph, (list, tuple, set, frozenset)) or not graph:
        return None
    return list(graph) if all(isinstance(edge, tuple) and len(edge) == 2 for edge in graph) else None


def _from_edges(edges: np.ndarray, n: int) -> sp.csr_array:
    loops = edges[:, 0] == edges[:, 1]
    if loops.any():
        node = int(edges[loops][0, 0])
        raise problem("graph", f"node {node} is its own neighbour", "no self-loops", "Drop those edges.")
    A = sp.coo_array((np.ones(2 * len(edges)), (edges.ravel(), edges[:, ::-1].ravel())), shape=(n, n)).tocsr()
    A.data[:] = 1.0
    return sp.csr_array(A)


def laplacian(A: sp.csr_array) -> sp.csc_array:
    """The graph Laplacian D - A."""
    return sp.csc_array(sp.diags_array(np.asarray(A.sum(axis=1)).ravel()) - A)


def _structure(graph: Any, n: int | None, balanced: bool = False) -> tuple[sp.csc_array, sp.csr_array]:
    """The ICAR structure and its constraints: a zero sum in each component with two or more nodes.

    An isolated node has no neighbours, so it is an independent effect with the same precision. With ``balanced``, all
    components and isolated nodes have the same typical variance (geometric mean), that of all nodes with neighbours
    (Freni-Sterrantino et al. 2018).
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
    """The structure scaled so that each component and isolated node has the typical variance of all components."""
    typical = _typical(R, C)
    ratio = typical / np.exp(np.log(typical[C.indices]).mean())
    root = sp.diags_array(np.sqrt(ratio))
    return sp.csc_array(root @ R @ root)


def _typical(R: sp.csc_array, C: sp.csr_array) -> np.ndarray:
    """For each node, the geometric mean of the variances in its component; for an isolated node its own variance."""
    out = 1.0 / R.diagonal()
    if C.nnz:
        variance = SparsePrecision(R, constraints=C).factor.inverse_diagonal()
        for nodes in np.split(C.indices, C.indptr[1:-1]):
            out[nodes] = np.exp(np.log(variance[nodes]).mean())
    return out


def icar(graph: Any, precision: float = 1.0, n: int | None = None, balanced: bool = False) -> MarkovField:
    """The intrinsic conditional autoregression (Besag): Q = k (D - A).

    With ``balanced`` each component and each isolated node is scaled to the same typical variance.
    """
    R, C = _structure(graph, n, balanced)
    return scaled(R, precision, constraints=constraint_rows(C) if C.nnz else None)


def _two_rates(theta: np.ndarray) -> Any:
    """Coefficients for two sds."""
    k = np.exp(-2.0 * theta)
    return (k[0], k[1]), [(-2.0 * k[0], 0.0), (0.0, -2.0 * k[1])]


def _shared_rates(theta: np.ndarray) -> Any:
    """Coefficients for one sd and the structured share of the variance."""
    k, p = np.exp(-2.0 * theta[0]), 1 / (1 + np.exp(-theta[1]))
    k_u, k_v = k / p, k / (1 - p)
    return (k_u, k_v), [(-2.0 * k_u, -2.0 * k_v), (-k_u * (1 - p), k_v * p)]


def _sum_of_two(
    R: Any, C: sp.csr_array, rates: Rates, theta: list[float], names: list[str], bounds: list[tuple[float, float]]
) -> MarkovField:
    """The field eta = u + v."""
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
    """The structure of an ICAR whose marginal variances have geometric mean 1 in each component.

    Returned with its constraints (k, n), one for each component with two or more nodes.
    """
    R, C = _structure(graph, n)
    if not C.nnz:
        return R, C
    root = sp.diags_array(np.sqrt(_typical(R, C)))
    return sp.csc_array(root @ R @ root), C


def bym2(graph: Any, precision: float = 1.0, phi: float = 0.5, n: int | None = None) -> MarkovField:
    """BYM with one precision k = 1 / sd^2 and the structured share phi = sigmoid(theta_2) of the variance.

    The ICAR is scaled so that the geometric mean of its marginal variances is 1 in each component (Riebler et al.), and
    k and phi then have the same meaning on every graph.
    """
    phi, start = scalar("bym2", "phi", phi, 0.0, 1.0), log_sd("bym2", "precision", precision)
    R, C = scaled_icar(graph, n)
    theta = [start, np.log(phi / (1 - phi))]
    return _sum_of_two(R, C, _shared_rates, theta, ["log sd", "logit phi"], [SIZE, WIDE])


def _mixed_rates(theta: np.ndarray) -> Any:
    """The coefficients k (1 - rho) of I and k rho of the Laplacian."""
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
    """The Laplacian of a path with m nodes."""
    off = -np.ones(m - 1)
    return sp.diags_array([off, np.r_[1.0, 2 * np.ones(m - 2), 1.0], off], offsets=[-1, 0, 1])


def _shape(where: str, shape: Any) -> tuple[int, int]:
    """(rows, columns) of a regular grid, checked."""
    sides = shape if isinstance(shape, Sequence | np.ndarray) and len(shape) == 2 else ()
    if len(sides) != 2 or any(np.ndim(side) or not isinstance(side, Real) or side < 2 for side in sides):
        raise problem(where, f"shape = {shape!r}", "(rows, columns), at least two of each")
    return count(where, "rows", sides[0], 2), count(where, "columns", sides[1], 2)


def _grid(rows: int, columns: int) -> sp.csc_array:
    """The five-point Laplacian of a regular grid, with nodes in row order."""
    return sp.csc_array(sp.kron(_line(rows), sp.eye_array(columns)) + sp.kron(sp.eye_array(rows), _line(columns)))


def lattice(shape: tuple[int, int], precision: float = 1.0) -> MarkovField:
    """A first-order intrinsic field on a regular grid: neighbours differ by N(0, 1/k), with a zero sum."""
    rows, columns = _shape("lattice", shape)
    return scaled(_grid(rows, columns), precision, constraints=np.ones((1, rows * columns)))


def matern(shape: tuple[int, int], range: float, variance: float = 1.0, spacing: float = 1.0) -> MarkovField:
    """A Matern field of smoothness 1 on a regular grid, from its stochastic differential equation (Lindgren et al.).

    (kappa^2 - Laplacian) x = white noise: Q = s (kappa^2 + G)^2, where G is the five-point Laplacian over ``spacing``^2
    and range = sqrt(8) / kappa. s makes the sd e^theta_1 far from the edges. On the grid the sd is larger: by 4 % at
    ten steps to a range, by 1.3 % at twenty.
    theta = (log sd, log range).
    """
    rows, columns = _shape("matern", shape)
    range, variance = scalar("matern", "range", range, 0.0), scalar("matern", "variance", variance, 0.0)
    spacing = scalar("matern", "spacing", spacing, 0.0)
    G = _grid(rows, columns)
    matrices = sp.eye_array(rows * columns, format="csc") * spacing**2, G, sp.csc_array(G @ G) / spacing**2
    rates = DiffusionRates(np.array([1.0, 2.0, 1.0]) / (4 * np.pi), np.array([2.0, 0.0, -2.0]))
    build = Combination(matrices, rates)
    return MarkovField(build, [0.5 * np.log(variance), np.log(range)], ["log sd", "log range"], [SIZE, WIDE])
