"""The regions of a graph: their names from the graph, from the user, or 0, 1, ..., and who is whose neighbour."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import numeric, problem
from ..gmrf.space import as_adjacency, edge_tuples
from ..inputs.frames import DataColumn
from ..inputs.levels import present, shown


def graph_of(
    name: Hashable, graph: Any, levels: list[Any] | None, column: DataColumn
) -> tuple[sp.csr_array, list[Any]]:
    """The adjacency matrix and its nodes' names: the user's, the graph's own, or 0, 1, ...

    A name that is only ever a neighbour, and not in the ``column`` of the data, is warned of.
    """
    own: list[Any] | None = None
    where = column.where
    _no_outlines(where, name, graph)
    pairs = edge_tuples(graph)
    numbered = pairs is not None and all(isinstance(end, Number) for edge in pairs for end in edge)
    if pairs is not None and (not numbered or (levels and all(isinstance(level, Number) for level in levels))):  # names
        graph = {level: [] for level in levels or ()}
        for a, b in pairs:
            graph.setdefault(a, []).append(b)
    if isinstance(graph, Mapping):  # name -> neighbours
        graph = {region: _neighbours(where, name, region, near) for region, near in graph.items()}
        own = list(dict.fromkeys([*graph, *(b for near in graph.values() for b in near)]))
        if levels is not None and set(own) != set(levels) and set(own) != set(range(len(own))):
            odd = next(level for level in [*own, *levels] if (level in own) != (level in levels))
            of, by = ("the graph", f"levels[{name!r}]") if odd in own else (f"levels[{name!r}]", "the graph")
            raise problem(where, f"{of} names {odd!r}, which {by} does not", "the same names in both")
        if levels is None:
            _warn_of_strangers(where, name, own, {*column.values, *(graph if pairs is None else ())})
        place = {node: i for i, node in enumerate(own)}
        edges = [(place[a], place[b]) for a, near in graph.items() for b in near]
        A = as_adjacency(edges or sp.csr_array((len(own), len(own))), len(own))
    elif hasattr(graph, "columns") and hasattr(graph, "index"):  # a pandas frame
        own = list(graph.index)
        if list(graph.columns) != own:
            raise problem(where, f"the adjacency of {name!r} has other columns than rows", "one order of names in both")
        A = as_adjacency(numeric(where, f"the adjacency of {name!r}", graph))
    else:
        for attribute in ("id_order", "unique_ids", "nodes"):  # libpysal's W and Graph, networkx
            if hasattr(graph, attribute):
                own = list(getattr(graph, attribute))
                break
        shape: tuple[int, ...] = np.shape(graph) if own is None else ()
        if levels is None and len(shape) == 2 and (pairs is not None or shape[1] == 2 != shape[0]):
            advice = f"levels={{{name!r}: range(n)}} says how many there are, and what they are called."
            raise problem(where, f"the graph of {name!r} is a list of {shape[0]} edges", "its nodes as well", advice)
        A = as_adjacency(graph, None if levels is None else len(levels))
    n = A.shape[0]
    if levels is not None and own is not None and set(levels) == set(own):  # the same names in another order
        levels = own
    if levels is not None and len(levels) != n:
        raise problem(where, f"levels[{name!r}] has {len(levels)} entries and the graph {n} nodes", "one name a node")
    return A, levels if levels is not None else own if own is not None else list(range(n))


def _no_outlines(where: str, name: Hashable, graph: Any) -> None:
    """Refuse GeoJSON and geopandas frames: districts as they look, not who borders whom."""
    geojson = isinstance(graph, Mapping) and isinstance(graph.get("type"), str) and {*graph} & set(_GEOJSON)
    if geojson or hasattr(graph, "geometry"):
        got = f"the graph of {name!r} holds outlines, not neighbours"
        advice = "fenchel.neighbours(outlines) finds who borders whom."
        raise problem(where, got, "{region: [its neighbours]} or an adjacency matrix", advice)


_GEOJSON = ("features", "geometry", "geometries", "coordinates")


def _neighbours(where: str, name: Hashable, region: Any, near: Any) -> list[Any]:
    got = f"in the graph of {name!r} the neighbours of {region!r} are {near!r}"
    if isinstance(near, (str, bytes)) or not isinstance(near, Iterable):
        raise problem(where, got, "a list of neighbours", "" if near is None else f"Write {{{region!r}: [{near!r}]}}.")
    out = list(near)  # an iterator can be read once
    for other in out:
        if not getattr(other, "__hash__", None) or not present(other):
            raise problem(where, f"in the graph of {name!r} a neighbour of {region!r} is {other!r}", "a region's name")
    return out


def _warn_of_strangers(where: str, name: Hashable, own: list[Any], known: set[Any]) -> None:
    strangers = [node for node in own if node not in known]
    if strangers:
        message = (
            f"{where}: the graph of {name!r} names {shown(strangers)} only beside others, and the data do not. If "
            f"it is no misspelling of another region, levels={{{name!r}: [...]}} with every region says so."
        )
        warnings.warn(message, UserWarning, stacklevel=2)


def counted_from_one(name: Hashable, column: DataColumn, n: int) -> None:
    """Refuse ids of an unnamed graph that may be 1, ..., n as well as 0, ..., n-1; warn where that is less likely."""
    found = {v for v in column.values if isinstance(v, (int, float)) and not isinstance(v, bool) and present(v)}
    if not found or min(found) < 1 or max(found) > n:  # 0 is among them; or a value that is unknown in any case
        return
    ways = f"levels={{{name!r}: range({n})}} or range(1, {n + 1})"
    what = f"the nodes of {name!r} have no names, and its ids are {min(found):g} to {max(found):g} without a 0"
    if min(found) == 1:
        raise problem(
            column.where, what, f"ids that say whether {n} nodes are counted from 0 or from 1", f"Say it: {ways}."
        )
    message = f"{column.where}: {what}: they are taken as counted from 0. To say how they are counted, {ways}."
    warnings.warn(message, UserWarning, stacklevel=2)
