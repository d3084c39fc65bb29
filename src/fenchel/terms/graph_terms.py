"""Terms over the nodes of a graph, and over the rows of a structure matrix that the user gives."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from .. import gmrf
from ..checks import Refusal, callers_line, numeric, problem
from ..gmrf import MarkovField
from ..gmrf.space import as_adjacency, counted, edge_tuples, laplacian, scaled_icar
from ..hyperparameters.shares import CovarianceShare, PCShare, PrecisionShare, Spectrum
from ..inputs.frames import DataColumn
from ..inputs.levels import present, shown, sort_of
from ..linalg.dense import NotPositiveDefinite
from .base import Hyperparameter, level_sd, share
from .grouped import LevelTerm


def phi_below(graph: Any, u: float, a: float, base: int = 0) -> PCShare:
    """The prior of the share phi of BYM2 on a graph, by the distance from independent effects."""
    R, held = scaled_icar(graph)
    k = held.shape[0]
    return PCShare(u, a, CovarianceShare(Spectrum.of(R, k).inverse().with_zeros(k)))


def rho_below(graph: Any, u: float, a: float, base: int = 0) -> PCShare:
    """The prior of rho of Leroux's field on a graph, by the distance from independent effects."""
    L = laplacian(graph)
    parts = sp.csgraph.connected_components(L, directed=False)[0]
    return PCShare(u, a, PrecisionShare(Spectrum.of(L, parts).with_zeros(parts)))


class StructuredTerm(LevelTerm):
    """A term whose levels are the rows of a matrix: the adjacency of a graph, or a structure matrix."""

    over_regions = True
    matrix: sp.sparray
    graph: Any = None  # of a term over the nodes of one

    def matrix_of(self, column: DataColumn, chosen: list[Hashable] | None) -> tuple[sp.sparray, list[Hashable]]:
        """The matrix, and what its rows are called."""
        raise NotImplementedError(f"{type(self).__name__} has no matrix")

    def field(self, **start: Any) -> MarkovField:
        return self.builder(self.matrix, **start)

    def settle(self, column: DataColumn, chosen: list[Hashable] | None) -> list[Hashable]:
        self.matrix, levels = self.matrix_of(column, chosen)
        n = self.matrix.shape[0]
        named = isinstance(self.graph, Mapping)
        if chosen is None and not named and levels == list(range(n)):  # such names say nothing
            counted_from_one(self.name, column, n)
        if len(levels) != n:
            got = f"levels[{self.name!r}] has {len(levels)} entries and the structure {n} rows"
            raise problem(column.where, got, "one level a row")
        return levels


class GraphTerm(StructuredTerm):
    """A term over the nodes of a graph.

    Parameters
    ----------
    column : name of a column
    graph : scipy sparse or dense adjacency matrix, pandas frame of it, {region: [neighbours]}, a list of edges as
        tuples, a networkx graph or libpysal weights
    **options : as in ``LevelTerm``
    """

    needs, partitioned = ("graph", "W"), True

    def __init__(self, column: Hashable = None, graph: Any = None, **options: Any) -> None:
        super().__init__(column, **options)
        self.graph = graph

    def matrix_of(self, column: DataColumn, chosen: list[Hashable] | None) -> tuple[sp.sparray, list[Hashable]]:
        return graph_of(self.name, self.graph, chosen, column)

    def details(self) -> str:
        return counted(sp.csr_array(self.matrix))


class ICAR(GraphTerm):
    """An intrinsic conditional autoregression (Besag): u_r - u_s ~ N(0, c sd^2) for neighbours r and s.

    c is such that in each connected part of the graph, and in isolated regions, sd is the typical sd of an effect.
    Arguments are ``column`` and ``graph``, the adjacency matrix, and ``levels`` and ``name`` as in ``LevelTerm``.
    """

    word, r_names = "icar", ("car", "besag", "mrf")
    builder = staticmethod(partial(gmrf.icar, balanced=True))


class BYM(GraphTerm):
    """Spatial and independent effects of regions (Besag, York, Mollie): an ICAR effect u plus an independent v.

    Each has its own sd.
    Arguments are ``column`` and ``graph``, the adjacency matrix, and ``levels`` and ``name`` as in ``LevelTerm``.
    """

    word, options = "bym", ("precision_u", "precision_v")

    def field(self, **start: Any) -> MarkovField:
        u_alone = gmrf.icar(self.matrix, balanced=True)  # says the spread
        return gmrf.bym(self.matrix, balanced=True, **start) if start else u_alone

    def starts(self, k: float) -> dict[str, Any]:
        return {"precision_u": k * self.spread, "precision_v": k}

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd u", scale, theta[0], self.spread), level_sd("sd v", scale, theta[1])


class BYM2(GraphTerm):
    """Spatial and independent effects of regions with one sd (Besag, York, Mollie): sd (sqrt(phi) u + sqrt(1 - phi) v).

    u is a scaled ICAR, and phi is the share of the variance that neighbours have in common (Riebler et al. 2016).
    Arguments are ``column`` and ``graph``, the adjacency matrix, and ``levels`` and ``name`` as in ``LevelTerm``.
    """

    word, builder, options, standard = "bym2", staticmethod(gmrf.bym2), ("precision", "phi"), True

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd", scale, theta[0]), share("phi", theta[1], partial(phi_below, self.matrix))


class Leroux(GraphTerm):
    """The model of Leroux: independent effects for rho = 0, an ICAR for rho = 1, and in between otherwise.

    Arguments are ``column`` and ``graph``, the adjacency matrix, and ``levels`` and ``name`` as in ``LevelTerm``.
    """

    word, builder, options, standard = "leroux", staticmethod(gmrf.leroux), ("precision", "rho"), True

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd", scale, theta[0]), share("rho", theta[1], partial(rho_below, self.matrix))


class Generic(StructuredTerm):
    """Effects with precision matrix R / sd^2 for a given structure matrix R (n, n).

    ``constraints`` remove the directions in which R is singular.
    """

    word, r_names, needs, partitioned = "generic", ("generic0",), ("structure", "R"), True

    def __init__(
        self, column: Hashable = None, structure: Any = None, *, constraints: Any = None, **options: Any
    ) -> None:
        super().__init__(column, **options)
        self.structure, self.held = structure, constraints

    def matrix_of(self, column: DataColumn, chosen: list[Hashable] | None) -> tuple[sp.sparray, list[Hashable]]:
        given = self.structure
        if not sp.issparse(given):
            given = numeric(column.where, f"the structure of {self.name!r}", given)
        if len(given.shape) != 2 or given.shape[0] != given.shape[1]:
            raise problem(column.where, f"the structure of {self.name!r} has shape {given.shape}", "(n, n)")
        return sp.csc_array(given), list(range(given.shape[0])) if chosen is None else chosen

    def field(self, **start: Any) -> MarkovField:
        return gmrf.generic(self.matrix, constraints=self.held, **start)

    def typical_variance(self, column: DataColumn) -> float:
        try:
            return super().typical_variance(column)
        except Refusal as error:
            if not isinstance(error.__context__, NotPositiveDefinite):
                raise
        held = self.held is not None
        got = f"the structure of {self.name!r} is singular{' beside its constraints' if held else ''}"
        advice = "For an intrinsic one: constraints='sum-to-zero', or rows of your own."
        if held:
            advice = "One row for each flat direction: the level of every part that hangs together, a slope."
        raise problem(column.where, got, "a proper one, or constraints that fix what is flat", advice)


# -- graphs ---------------------------------------------------------------------------------------
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
    numbered = pairs is not None and all(sort_of(end) == "numbers" for edge in pairs for end in edge)
    if pairs is not None and (
        not numbered or (levels and all(sort_of(level) == "numbers" for level in levels))
    ):  # names
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
    elif isinstance(graph, pd.DataFrame):
        own = list(graph.index)
        if list(graph.columns) != own:
            raise problem(where, f"the adjacency of {name!r} has other columns than rows", "one order of names in both")
        A = as_adjacency(numeric(where, f"the adjacency of {name!r}", graph))
    else:
        names = (getattr(graph, attribute, None) for attribute in _NODE_NAMES)
        own = next((list(each) for each in names if each is not None), None)
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


_NODE_NAMES = ("id_order", "unique_ids", "nodes")  # of libpysal's W and Graph, and of networkx
_GEOJSON = ("features", "geometry", "geometries", "coordinates")


def _neighbours(where: str, name: Hashable, region: Any, near: Any) -> list[Any]:
    got = f"in the graph of {name!r} the neighbours of {region!r} are {near!r}"
    if isinstance(near, (str, bytes)) or not isinstance(near, Iterable):
        raise problem(where, got, "a list of neighbours", "" if near is None else f"Write {{{region!r}: [{near!r}]}}.")
    out = list(near)  # an iterator can be read once
    for other in out:
        if type(other).__hash__ is None or not present(other):
            raise problem(where, f"in the graph of {name!r} a neighbour of {region!r} is {other!r}", "a region's name")
    return out


def _warn_of_strangers(where: str, name: Hashable, own: list[Any], known: set[Any]) -> None:
    strangers = [node for node in own if node not in known]
    if strangers:
        message = (
            f"{where}: the graph of {name!r} names {shown(strangers)} only beside others, and the data do not. If "
            f"it is no misspelling of another region, levels={{{name!r}: [...]}} with every region says so."
        )
        warnings.warn(message, UserWarning, stacklevel=callers_line())


def counted_from_one(name: Hashable, column: DataColumn, n: int) -> None:
    """Refuse ids of an unnamed graph that may be 1, ..., n as well as 0, ..., n-1; warn where that is less likely."""
    found = {value for value in column.values if type(value) in (int, float) and present(value)}
    if not found or min(found) < 1 or max(found) > n:  # 0 is among them; or a value that is unknown in any case
        return
    ways = f"levels={{{name!r}: range({n})}} or range(1, {n + 1})"
    what = f"the nodes of {name!r} have no names, and its ids are {min(found):g} to {max(found):g} without a 0"
    if min(found) == 1:
        raise problem(
            column.where, what, f"ids that say whether {n} nodes are counted from 0 or from 1", f"Say it: {ways}."
        )
    message = f"{column.where}: {what}: they are taken as counted from 0. To say how they are counted, {ways}."
    warnings.warn(message, UserWarning, stacklevel=callers_line())
