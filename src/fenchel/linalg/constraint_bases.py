"""Sparse bases B of the null space of linear constraints, C B = 0; each column involves a few neighbouring latents.

Constraints without common latents are eliminated separately, and several over the same latents together:

    small     c' x = 0 over a few latents       x_m = -sum_{j != m} c_j x_j / c_m, where |c_m| is largest
    chain     any k over consecutive latents    null vectors of k + 1 neighbours: differences for a sum of zero
    tree      c' x = 0 over a connected graph   e_i / c_i - e_j / c_j along the edges of a spanning tree

x = B w is then local in the graph of the latents, and B' A B nearly as sparse as A. In a long chain w is an integral of
x, whose scale grows with the length. The chain is therefore cut into pieces, and the columns of B that join them
involve all latents of the chain.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

_SMALL = 8  # most latents of a constraint that may all become neighbours
_LOCAL = 64  # the same if the graph is not known
_MANY = 32  # number of constraints for which conditioning costs little
_TREES = 64  # the same for sums over maps, where differences along a tree fill the factor
_RARE = 4  # number of constraints of one shape that are not worth a basis
_WORST = 150.0  # largest condition number of a basis, whose square multiplies that of the precision
_WIDEST = 400  # most latents of a dense basis, used if no sparse one is well conditioned
_DENSE = 2**20  # most entries of constraints that are stored as a dense array


def constraint_rows(C: Any) -> Any:
    """C (k, n) as a dense array, or as a csr array if it is large."""
    if C.shape[0] * C.shape[1] > _DENSE:
        return sp.csr_array(C)
    return C.toarray() if sp.issparse(C) else np.asarray(C)


def split_local(C: Any, graph: Any = None) -> tuple[Any, np.ndarray]:
    """A sparse basis B (L, r) for those rows of C (k, L) that have one, or None if these are few; and the other rows.

    ``graph`` (L, L), scipy sparse, has an entry for each pair of neighbouring latents.
    """
    C = sp.csr_array(C)
    C.eliminate_zeros()
    groups = _common(_apart(C))
    if sum(len(rows) for rows, _ in groups) <= _MANY:
        return None, C.toarray()
    inner = _inner(graph, groups, C.shape[1])
    known: dict[Any, sp.coo_array | None] = {}
    bases, taken = [], np.zeros(C.shape[0], dtype=bool)
    for number, (rows, nodes) in enumerate(groups):
        values = C[rows][:, nodes].toarray() if len(rows) > 1 else C.data[C.indptr[rows[0]] : C.indptr[rows[0] + 1]]
        values = values.reshape(len(rows), -1)
        edges = None if inner is None else inner(number)
        key = values.tobytes(), None if edges is None else edges.tobytes()
        if key not in known:
            known[key] = local_basis(values, edges)
        basis = known[key]
        if basis is not None:
            bases.append((rows, nodes, basis, edges is not None and _is_tree(values, edges)))
    if sum(tree for *_, tree in bases) <= _TREES:
        bases = [each for each in bases if not each[-1]]
    for rows, *_ in bases:
        taken[rows] = True
    if taken.sum() <= _MANY:
        return None, C.toarray()
    return _assembled([(nodes, basis) for _, nodes, basis, _ in bases], C.shape[1]), C[~taken].toarray()


def _apart(C: Any) -> list[tuple[list[int], np.ndarray]]:
    """Groups of rows with common latents, and these latents: short rows first, without rows that join two groups."""
    owner, groups = np.full(C.shape[1], -1), []
    for row in np.argsort(np.diff(C.indptr), kind="stable"):
        nodes = C.indices[C.indptr[row] : C.indptr[row + 1]]
        owners = owner[nodes]
        first = int(owners.max(initial=-1))
        if first < 0:
            groups.append(([int(row)], np.sort(nodes)))
            owner[nodes] = len(groups) - 1
        elif ((owners == first) | (owners < 0)).all() and nodes.size <= 2 * groups[first][1].size:
            rows, before = groups[first]
            groups[first] = [*rows, int(row)], np.union1d(before, nodes)
            owner[nodes] = first
    return [(sorted(rows), nodes) for rows, nodes in groups]


def _common(groups: list[tuple[list[int], np.ndarray]]) -> list[tuple[list[int], np.ndarray]]:
    """Without a few wide groups of rare shape, such as the level of a map, for which conditioning costs less."""
    shapes = Counter((len(rows), nodes.size) for rows, nodes in groups)
    budget, out = _MANY // 2, []
    for rows, nodes in sorted(groups, key=lambda group: -group[1].size):
        rare = nodes.size > _SMALL and shapes[len(rows), nodes.size] <= _RARE and len(rows) <= budget
        budget -= len(rows) if rare else 0
        out += [] if rare else [(rows, nodes)]
    return out[::-1]


def _inner(graph: Any, groups: list[tuple[list[int], np.ndarray]], n: int) -> Any:
    """For the number of each group, the edges (m, 2) among its latents, numbered within the group."""
    if graph is None:
        return None
    owner, place = np.full(n, -1), np.zeros(n, dtype=np.int64)
    for number, (_, nodes) in enumerate(groups):
        owner[nodes], place[nodes] = number, np.arange(nodes.size)
    entries = sp.coo_array(graph)
    i, j = entries.coords
    within = (owner[i] >= 0) & (owner[i] == owner[j]) & (i < j)
    i, j = i[within], j[within]
    order = np.lexsort((place[j], place[i], owner[i]))
    edges = np.stack([place[i], place[j]], axis=1)[order]
    first = np.searchsorted(owner[i][order], np.arange(len(groups) + 1))
    return lambda number: edges[first[number] : first[number + 1]]


def _assembled(bases: list[tuple[np.ndarray, sp.coo_array]], n: int) -> sp.csr_array:
    """The basis of all latents; unconstrained latents are their own columns."""
    constrained = np.concatenate([nodes for nodes, _ in bases])
    free = np.setdiff1d(np.arange(n), constrained)
    rows, columns, values, at = [free], [np.arange(free.size)], [np.ones(free.size)], free.size
    for nodes, basis in bases:
        i, j = basis.coords
        rows.append(nodes[i])
        columns.append(at + j)
        values.append(basis.data)
        at += basis.shape[1]
    place = np.concatenate(rows), np.concatenate(columns)
    out = sp.csr_array((np.concatenate(values), place), shape=(n, at))
    out.sort_indices()
    return out


# -- the latents of one group ----------------------------------------------------------------------------------
def local_basis(C: np.ndarray, edges: np.ndarray | None) -> sp.coo_array | None:
    """A basis (n, n - k) of constraints C (k, n) over latents with these edges; None if no sparse one exists."""
    k, n = C.shape
    if k == 1 and n <= (_LOCAL if edges is None else _SMALL):
        return sp.coo_array(_heaviest_out(C[0]))
    if edges is None or (k > 1 and np.linalg.matrix_rank(C) < k):
        return None
    if not _is_tree(C, edges):
        basis = chain_basis(C) if _is_chain(k, edges) else None
        return None if basis is None else sp.coo_array(basis)
    return tree_basis(C[0], edges)


def _is_chain(k: int, edges: np.ndarray) -> bool:
    """Whether neighbours are close in the order of the latents."""
    return bool(np.abs(edges[:, 0] - edges[:, 1]).max(initial=0) <= 2 * k + 1)


def _is_tree(C: np.ndarray, edges: np.ndarray) -> bool:
    """Whether the constraint is one sum over a map, handled by differences along a spanning tree."""
    return C.shape[0] == 1 and C.shape[1] > _SMALL and not _is_chain(1, edges)


def _heaviest_out(c: np.ndarray) -> np.ndarray:
    last = int(np.abs(c).argmax())
    out = np.delete(np.eye(c.size), last, axis=1)
    out[last] = -np.delete(c, last) / c[last]
    return out


def chain_basis(C: np.ndarray) -> np.ndarray | None:
    """From null vectors of neighbours, in as few pieces as conditioning allows; else a dense basis."""
    k, n = C.shape
    pieces = 1
    while n >= 2 * (k + 1) * pieces:
        B = _in_pieces(C, np.array_split(np.arange(n), pieces))
        sizes = np.linalg.svd(B, compute_uv=False)
        if B.shape[1] == n - k and sizes[-1] * _WORST >= sizes[0]:
            return B
        pieces *= 2
    return np.asarray(scipy.linalg.null_space(C)) if n <= _WIDEST else None


def _in_pieces(C: np.ndarray, pieces: list[np.ndarray]) -> np.ndarray:
    """Null vectors within each piece, and combinations between pieces that satisfy the constraints."""
    n = C.shape[1]
    inside: list[np.ndarray] = []
    outside: list[np.ndarray] = []
    for nodes in pieces:
        for part, into in ((_neighbouring(C[:, nodes]), inside), (scipy.linalg.orth(C[:, nodes].T), outside)):
            B = np.zeros((n, part.shape[1]))
            B[nodes] = part
            into.append(B)
    remaining = np.hstack(outside)
    return np.hstack([*inside, remaining @ scipy.linalg.null_space(C @ remaining)])


def _neighbouring(C: np.ndarray) -> np.ndarray:
    """Null vectors of C (k, n): each column of C as a combination of the fewest preceding columns."""
    scale, out = np.abs(C).max(axis=0, initial=0.0), []
    for j in range(C.shape[1]):
        for i in range(j, -1, -1):
            before, residual = C[:, i:j], C[:, j]
            weights = np.linalg.lstsq(before, residual, rcond=None)[0] if j > i else np.zeros(0)
            if np.abs(residual - before @ weights).max(initial=0.0) <= 1e-10 * scale[i : j + 1].max(initial=0.0):
                v = np.zeros(C.shape[1])
                v[i:j], v[j] = -weights, 1.0
                out.append(v / np.linalg.norm(v))
                break
    return np.stack(out, axis=1) if out else np.zeros((C.shape[1], 0))


def tree_basis(c: np.ndarray, edges: np.ndarray) -> sp.coo_array:
    """Differences along a spanning tree; several trees are joined in a row."""
    n = c.size
    graph = sp.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    count, label = sp.csgraph.connected_components(graph, directed=False)
    heads = np.unique(label, return_index=True)[1]
    link = sp.csr_array((np.ones(count - 1), (heads[:-1], heads[1:])), shape=(n, n))
    order, before = sp.csgraph.breadth_first_order(sp.csr_array(graph + link), heads[0], directed=False)
    child, column = order[1:], np.arange(n - 1)
    parent = before[child]
    ends = np.stack([1.0 / c[child], -1.0 / c[parent]])
    ends /= np.linalg.norm(ends, axis=0)
    return sp.coo_array((ends.ravel(), (np.r_[child, parent], np.r_[column, column])), shape=(n, n - 1))
