"""Graphs, however they come: one symmetric 0/1 adjacency matrix, or a sentence that says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import numeric, problem

_COMPLETE = 0.9  # share of all pairs, from which weights that vary are distances
_SMALL = 5  # nodes, below which a graph may well be complete


def as_adjacency(graph: Any, n: int | None = None) -> sp.csr_array:
    """The adjacency matrix (n, n) of a graph.

    Parameters
    ----------
    graph : scipy sparse or dense (n, n), edge list (m, 2) with ``n``, networkx graph, libpysal W or Graph
        Weights are read as "neighbours or not"; duplicate edges count once; isolated nodes are kept. A list of tuples,
        ``[(0, 1), (1, 2)]``, is always an edge list, an array of shape (2, 2) a matrix where n = 2 or is not given.
    n : int
        Number of nodes; needed with an edge list, whose nodes are 0, ..., n-1.
    """
    if hasattr(graph, "adjacency") and hasattr(graph, "nodes"):  # networkx
        place = {node: i for i, node in enumerate(graph.nodes)}
        edges = np.array([(place[a], place[b]) for a, b in graph.edges], dtype=int).reshape(-1, 2)
        return _from_edges(edges, len(place))
    matrix = getattr(graph, "sparse", graph)  # libpysal
    if hasattr(matrix, "tocoo"):
        A = sp.csr_array(matrix, dtype=np.float64, copy=True)  # zeros are taken out in place
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
    """Refuse weights that say no neighbours: negative ones, and those of distances, which nearly all pairs have."""
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
    """Pairs, islands and components of a graph, in words.

    Examples
    --------
    >>> from fenchel.gmrf.graphs import as_adjacency, counted
    >>> counted(as_adjacency([(0, 1), (1, 2)], 4))
    '2 pairs of neighbours, 1 island, 2 components'
    """
    islands = int((np.diff(sp.csr_array(A).indptr) == 0).sum())
    parts = (A.nnz // 2, "pair"), (islands, "island"), (sp.csgraph.connected_components(A, False)[0], "component")
    pairs, *rest = (f"{n} {word}{'' if n == 1 else 's'}" for n, word in parts)
    return ", ".join([f"{pairs} of neighbours", *rest])


def edge_tuples(graph: Any) -> list[Any] | None:
    """The edges of a graph that is a list of tuples of two; None of any other."""
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
    """D - A."""
    return sp.csc_array(sp.diags_array(np.asarray(A.sum(axis=1)).ravel()) - A)
