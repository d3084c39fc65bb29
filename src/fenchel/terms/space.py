"""Terms over the nodes of a graph, and over the rows of a structure matrix of one's own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import gmrf
from ..checks import Refusal, numeric, problem
from ..gmrf import MarkovField
from ..gmrf.graphs import counted, laplacian
from ..gmrf.space import scaled_icar
from ..hyperparameters.shares import Mixture, PCShare, Precision, Spectrum
from ..inputs.frames import DataColumn
from ..linalg.dense import NotPositiveDefinite
from .base import Below, Hyperparameter, share
from .grouped import LevelTerm
from .regions import counted_from_one, graph_of
from .sizes import level_sd


@dataclass(frozen=True, eq=False)
class PhiBelow(Below):
    """Of the share phi of BYM2 on a graph, by the distance from independent effects."""

    graph: Any

    def __call__(self, u: float, a: float, base: int = 0) -> PCShare:
        R, held = scaled_icar(self.graph)
        k = held.shape[0]
        return PCShare(u, a, Mixture(Spectrum.of(R, k).inverse().with_zeros(k)))


@dataclass(frozen=True, eq=False)
class RhoBelow(Below):
    """Of rho of Leroux's field on a graph, by the distance from independent effects."""

    graph: Any

    def __call__(self, u: float, a: float, base: int = 0) -> PCShare:
        L = laplacian(self.graph)
        parts = sp.csgraph.connected_components(L, directed=False)[0]
        return PCShare(u, a, Precision(Spectrum.of(L, parts).with_zeros(parts)))


class StructuredTerm(LevelTerm):
    """A term whose levels are the rows of a matrix: the adjacency of a graph, or a structure."""

    over_regions = True
    matrix: sp.sparray

    def matrix_of(self, column: DataColumn, chosen: list[Hashable] | None) -> tuple[sp.sparray, list[Hashable]]:
        """The matrix, and what its rows are called."""
        raise NotImplementedError(f"{type(self).__name__} has no matrix")

    def field(self, **start: Any) -> MarkovField:
        return self.builder(self.matrix, **start)

    def settle(self, column: DataColumn, chosen: list[Hashable] | None) -> list[Hashable]:
        self.matrix, levels = self.matrix_of(column, chosen)
        n = self.matrix.shape[0]
        named = isinstance(getattr(self, "graph", None), Mapping)
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
    """An intrinsic conditional autoregression (Besag): neighbours differ by N(0, 1/k).

    Components of the graph have the same typical variance, isolated regions as well.
    """

    word, r_names = "icar", ("car", "besag", "mrf")
    builder = staticmethod(partial(gmrf.icar, balanced=True))


class BYM(GraphTerm):
    """Besag, York and Mollie: an ICAR u and independent v, a precision each."""

    word, options = "bym", ("precision_u", "precision_v")

    def field(self, **start: Any) -> MarkovField:
        u_alone = gmrf.icar(self.matrix, balanced=True)  # says the spread
        return gmrf.bym(self.matrix, balanced=True, **start) if start else u_alone

    def starts(self, k: float) -> dict[str, Any]:
        return {"precision_u": k * self.spread, "precision_v": k}

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd u", scale, theta[0], self.spread), level_sd("sd v", scale, theta[1])


class BYM2(GraphTerm):
    """BYM with one precision and the share phi of the variance that is structured."""

    word, builder, options, standard = "bym2", staticmethod(gmrf.bym2), ("precision", "phi"), True

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd", scale, theta[0]), share("phi", theta[1], PhiBelow(self.matrix))


class Leroux(GraphTerm):
    """Leroux: between independent effects (rho = 0) and an ICAR (rho = 1)."""

    word, builder, options, standard = "leroux", staticmethod(gmrf.leroux), ("precision", "rho"), True

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd", scale, theta[0]), share("rho", theta[1], RhoBelow(self.matrix))


class Generic(StructuredTerm):
    """Q = k R for a structure matrix R (n, n), with the ``constraints`` that fix what is flat in it."""

    word, needs, partitioned = "generic", ("structure", "R"), True

    def __init__(
        self, column: Hashable = None, structure: Any = None, *, constraints: Any = None, **options: Any
    ) -> None:
        super().__init__(column, **options)
        self.structure, self.held = structure, constraints

    def matrix_of(self, column: DataColumn, chosen: list[Hashable] | None) -> tuple[sp.sparray, list[Hashable]]:
        given = self.structure
        if not hasattr(given, "tocsc"):
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
