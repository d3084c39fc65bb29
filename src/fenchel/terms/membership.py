"""Effects of several groups for each row, and effects of groups with a known covariance.

MultipleMembership   eta_i = sum_j w_ij z[g_ij],   z ~ N(0, sd^2 I),   sum_j w_ij = 1
KnownCovariance      eta_i = z[g_i],               z ~ N(0, sd^2 A)        a pedigree, a phylogeny
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.linalg
import scipy.sparse as sp

from .. import gmrf
from ..checks import Refusal, finite, numeric, problem
from ..gmrf.precisions import ScaledStructure
from ..inputs.frames import DataColumn, DataTable
from ..inputs.levels import listed, present
from ..linalg.factorisation import symmetric_csc
from ..priors.sparse import SparsePrecision
from .base import Hyperparameter, TermRows, deviation, one_each
from .graph_terms import StructuredTerm
from .grouped import LevelTerm, typical

_NOTHING = 1e-11  # of sqrt(P_ii P_jj): an entry of an inverse that is rounding


class MultipleMembership(LevelTerm):
    """Effects of groups where each row belongs to several groups: ``mm(a, b)``.

    Parameters
    ----------
    *columns : names of columns
        Columns over the same groups, such as the first and the second teacher.
    weights : names of columns of numbers, optional
        A weight for each column; within a row they are divided by their sum. Default: equal weights. A group with
        weight 0 may be missing.
    levels, name : as in ``LevelTerm``

    A new group is predicted as one more group of the population.

    Examples
    --------
    >>> from fenchel.terms import DataTable, MultipleMembership
    >>> table = DataTable("here", {"first": ["a", "b"], "second": ["b", "c"]})
    >>> MultipleMembership("first", "second").read(table, 1.0).rows(table).design.toarray()
    array([[0.5, 0.5, 0. ],
           [0. , 0.5, 0.5]])
    """

    word, over = "mm", "columns"
    grows, standard, options = True, True, ()

    def __init__(
        self,
        *columns: Hashable,
        weights: Sequence[Hashable] | None = None,
        levels: Iterable[Hashable] | None = None,
        name: Hashable = None,
    ) -> None:
        self.members, self.weights = tuple(columns), None if weights is None else tuple(weights)
        if len(self.members) < 2:
            got = f"{len(self.members)} columns"
            raise problem("MultipleMembership", got, "two or more", "For one group a row use Grouped or IID.")
        if self.weights is not None and len(self.weights) != len(self.members):
            got = f"{len(self.members)} columns and {len(self.weights)} weights"
            raise problem("MultipleMembership", got, "a column of weights for each")
        joined = ", ".join(map(str, self.members))
        super().__init__(self.members[0], levels=levels, name=f"mm({joined})" if name is None else name)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (*self.members, *(self.weights or ()))

    @property
    def claims(self) -> tuple[Hashable, ...]:
        return self.columns

    @property
    def group_columns(self) -> tuple[Hashable, ...]:
        return self.members

    def column_of(self, table: DataTable) -> DataColumn:
        """The values of all columns, one column after the other."""
        parts = [table.column(name).data for name in self.members]
        return DataColumn(table.where, self.name, pd.concat(parts, ignore_index=True))

    def read_sketch(self, table: DataTable, scale: float, measured: Any) -> Self:
        out = self.with_place(table)
        out.n_latents = len(out.levels)
        out.hyperparameters = (deviation("sd", scale),)
        return out

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return ScaledStructure(sp.eye_array(self.n_latents, format="csc"))(theta)

    def population(self, theta: np.ndarray) -> np.ndarray:
        return np.exp(2.0 * theta[0]) * np.eye(len(self.members))

    def shares(self, table: DataTable) -> np.ndarray:
        """The weight (N, memberships) of each, rows summing to 1."""
        m = len(self.members)
        if self.weights is None:
            return np.full((len(table), m), 1.0 / m)
        W = np.stack([table.column(name).numbers() for name in self.weights], axis=1)
        total = W.sum(axis=1)
        bad = (W < 0.0).any(axis=1) | ~(total > 0.0)
        if bad.any():
            i = int(np.argmax(bad))
            got = f"the weights of {self.name!r} in row {table.places[i]} are {W[i].tolist()}"
            raise problem(table.where, got, "numbers >= 0, one of them above 0")
        return np.asarray(W / total[:, None])

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        W = self.shares(table)
        values, codes = [], np.empty(W.shape, dtype=np.int64)
        for j, name in enumerate(self.members):
            column = table.column(name)
            pairs = zip(column.values, W[:, j], strict=True)  # who counts nothing may be missing
            here = [value if share > 0.0 or present(value) else self.levels[0] for value, share in pairs]
            values.append(here)
            codes[:, j] = self.codes(DataColumn(column.where, name, here), new)
        known = codes >= 0
        at = np.nonzero(known)[0], codes[known]
        design = sp.csr_array((W[known], at), shape=(len(table), self.n_latents))
        return TermRows(design, unseen=self._unseen(values, known, W))

    def _unseen(self, values: list[list[Any]], known: np.ndarray, W: np.ndarray) -> np.ndarray:
        """The weights of groups that fit has not seen, those of one group in a row together."""
        out, m = np.where(known, 0.0, W), W.shape[1]
        for i in np.flatnonzero((~known).sum(axis=1) > 1):
            for j in range(1, m):
                first = next(k for k in range(m) if values[k][i] == values[j][i])
                if first < j:
                    out[i, first], out[i, j] = out[i, first] + out[i, j], 0.0
        return out

    def shown(self) -> tuple[list[Hashable], TermRows]:
        return self.levels, TermRows(one_each(np.arange(self.n_latents), self.n_latents))


class KnownCovariance(StructuredTerm):
    """Effects of groups with covariance sd^2 A, where A is known: relatives in a pedigree, species of a phylogeny.

    Parameters
    ----------
    group : name of a column
    cov : array, pandas frame or scipy sparse (n, n)
        A, positive definite.
    precision : the same, in place of ``cov``
        The inverse of A, which is sparse for pedigrees and trees.
    by : name of a column of numbers, optional
        Multiplies the effect in each row: a random slope.
    labels : sequence, optional
        Names of the rows of the matrix; default: the index of a frame, or 0, 1, ...

    Groups of the matrix without data are predicted from their relatives. A group that is not in the matrix is an error.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, KnownCovariance
    >>> sibs = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> term = KnownCovariance("who", cov=sibs, labels=["ann", "bob"])
    >>> term.read(DataTable("here", {"who": ["bob"]}), 1.0).levels
    ['ann', 'bob']
    """

    over_regions, options = False, ()
    builder = staticmethod(gmrf.generic)

    matrix: sp.csc_array  # the inverse of A
    diagonal: np.ndarray  # of A

    def __init__(
        self,
        group: Hashable = None,
        cov: Any = None,
        *,
        precision: Any = None,
        by: Hashable = None,
        labels: Iterable[Hashable] | None = None,
        name: Hashable = None,
    ) -> None:
        super().__init__(group, by=by, levels=labels, name=name)
        if (cov is None) == (precision is None):
            raise problem("KnownCovariance", f"cov and precision of {group!r}", "one of the two")
        self.cov, self.given = cov, precision

    def matrix_of(self, column: DataColumn, chosen: list[Hashable] | None) -> tuple[sp.csc_array, list[Hashable]]:
        where, given = column.where, self.given if self.cov is None else self.cov
        shape = np.shape(given)
        if len(shape) != 2 or len(set(shape)) != 1:
            raise problem(where, f"the matrix of {self.name!r} has shape {shape}", "(n, n)")
        labels: list[Hashable] = list(range(shape[0])) if chosen is None else chosen
        if chosen is None and isinstance(given, pd.DataFrame):
            labels = listed(where, self.name, given.index)
            if list(given.columns) not in (labels, list(range(shape[0]))):
                got = f"the rows and columns of the matrix of {self.name!r} have different names"
                raise problem(where, got, "the same in the same order", "A.loc[ids, ids] puts them in order.")
        if len(labels) != shape[0]:
            got = f"{len(labels)} labels for the {shape[0]} rows of the matrix of {self.name!r}"
            raise problem(where, got, "one a row")
        inverse = self._of_precision if self.cov is None else self._of_covariance
        structure, self.diagonal = inverse(where, given)
        return structure, labels

    def _of_precision(self, where: str, given: Any) -> tuple[sp.csc_array, np.ndarray]:
        """A^-1 as it was given, and the diagonal of A."""
        word = f"the precision of {self.name!r}"
        try:
            structure = symmetric_csc(given if sp.issparse(given) else sp.csc_array(numeric(where, word, given)))
            return structure, SparsePrecision(structure).factor.inverse_diagonal()
        except Refusal as error:
            raise problem(where, f"{word} cannot be used ({error})", "a symmetric positive definite one") from None

    def _of_covariance(self, where: str, given: Any) -> tuple[sp.csc_array, np.ndarray]:
        """A^-1, and the diagonal of A."""
        word = f"the covariance of {self.name!r}"
        A = finite(where, word, given.toarray() if sp.issparse(given) else numeric(where, word, given))
        if not np.allclose(A, A.T, rtol=1e-8, atol=1e-10 * np.abs(A).max()):
            raise problem(where, f"{word} is not symmetric", "a symmetric matrix")
        try:
            L = scipy.linalg.cholesky((A + A.T) / 2, lower=True)
            worst = float((np.diag(L) ** 2 / np.diag(A)).min())
        except (np.linalg.LinAlgError, ValueError):
            worst = 0.0
        if not worst > 1e-10:
            advice = "Two that are the same, twins or tips of no length, want one label, or a little on the diagonal."
            raise problem(where, f"{word} is not positive definite", "a proper covariance", advice)
        P = scipy.linalg.cho_solve((L, True), np.eye(A.shape[0]))
        size = np.sqrt(np.diag(P))
        P = np.where(np.abs(P) > _NOTHING * np.outer(size, size), (P + P.T) / 2, 0.0)
        return sp.csc_array(P), np.diag(A)

    def typical_variance(self, column: DataColumn) -> float:
        return typical(self.diagonal)

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        """The sd that A is multiplied by; its prior is that of the typical sd of an effect."""
        return (deviation("sd", scale / float(np.sqrt(self.spread)), float(np.exp(theta[0]))),)

    def readable(self, theta: np.ndarray) -> list[tuple[str, float]]:
        sd = float(np.exp(theta[0]))
        return [("sd", sd), ("typical sd", sd * float(np.sqrt(self.spread)))]
