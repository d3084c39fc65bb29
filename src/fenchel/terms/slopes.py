"""Random intercepts and slopes of groups: eta_i = b_0[g_i] + sum_j x_ij b_j[g_i],   b[g] ~ N(0, S) for every group.

Numeric columns are divided by their standard deviation, and centred if intercept and slopes are correlated. So a model
does not depend on the unit and the origin of x. Priors are about the sd of the intercept at the mean of x, and of the
slope for one sd of x. Tables report S and b for the user's columns: (1, x) = (1, z) T^-1, so S_user = T S T'.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ..checks import problem, scalar
from ..gmrf.precisions import RepeatedCovariance
from ..inputs.fixed_columns import Columns
from ..inputs.frames import DataColumn, DataTable
from ..inputs.levels import present
from ..linalg.standardized import ColumnMoments, column_moments
from .base import Hyperparameter, TermRows, deviation, partial_correlation
from .covariates import Covariate
from .grouped import LevelTerm


class Grouped(LevelTerm):
    """Random intercepts and slopes over the levels of a column: ``(1 + x | g)``.

    Parameters
    ----------
    group : name of a column, or of several columns
        With several columns each combination is a group, ``a:b``.
    slopes : name of a column, or of several columns
        Numbers, or factors with an indicator for each level (without the first level if there is an intercept).
    intercept : bool
    correlated : bool
        False gives independent intercepts and slopes, ``(1 + x || g)``; x is then not centred.
    eta : float
        Parameter of the LKJ prior of the correlation matrix; 1 is uniform.
    levels, name : as in ``LevelTerm``

    A new group is predicted as one more group of the population.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, Grouped
    >>> table = DataTable("here", {"g": np.repeat(["a", "b"], 3), "x": [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]})
    >>> term = Grouped("g", "x").read(table, 1.0)
    >>> term.name, [h.name for h in term.hyperparameters]
    ('1 + x | g', ['sd intercept (at the mean)', 'sd x', 'correlation intercept, x'])
    """

    grows, standard, options = True, True, ()

    covariates: list[Covariate]  # of the slopes, as read
    coefficients: list[str]  # of each group
    scaling: Columns  # of the slopes' columns
    outside: dict[
        str, tuple[float, float]
    ]  # slopes that are never near 0, with their range: no group has its intercept

    def __init__(
        self,
        group: Hashable | Sequence[Hashable] = None,
        slopes: Hashable | Sequence[Hashable] = (),
        *,
        intercept: bool = True,
        correlated: bool = True,
        eta: float = 1.0,
        levels: Iterable[Hashable] | None = None,
        name: Hashable = None,
    ) -> None:
        self.group, self.slopes = _several(group), () if slopes is None else _several(slopes)
        self.intercept, self.correlated = bool(intercept), bool(correlated)
        self.eta = scalar("Grouped", "eta", eta, 0.0)
        if not (self.intercept or self.slopes):
            raise problem("Grouped", "no intercept and no slopes", "one of them at least")
        joined: Hashable = self.group[0] if len(self.group) == 1 else ":".join(map(str, self.group))
        bar = "|" if self.correlated or self.intercept + len(self.slopes) < 2 else "||"
        left = " + ".join(["1" if self.intercept else "0", *map(str, self.slopes)])
        super().__init__(joined, levels=levels, name=f"{left} {bar} {joined}" if name is None else name)

    # -- what it reads -----------------------------------------------------------------------------
    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (*self.group, *(name for name in self.slopes if name not in self.group))

    @property
    def claims(self) -> tuple[Hashable, ...]:
        return self.group

    @property
    def group_columns(self) -> tuple[Hashable, ...]:
        return self.group

    def column_of(self, table: DataTable) -> DataColumn:
        """One column, or several as one whose values are their combinations; None where a part is missing."""
        if len(self.group) == 1:
            return table.column(self.group[0])
        parts = [table.column(name).values for name in self.group]
        values = [value if all(present(part) for part in value) else None for value in zip(*parts, strict=True)]
        return DataColumn(table.where, self.column, values)

    def survey_columns(self, table: DataTable) -> np.ndarray:
        """Those of the slopes."""
        return self._slopes(table)[0]

    def read_sketch(self, table: DataTable, scale: float, measured: Any) -> Self:
        out = self.with_place(table)
        out.covariates = [Covariate(name).read(table, 1.0) for name in self.slopes]
        X, names, indicators = out._slopes(table)
        out.coefficients = [*(["intercept"] if self.intercept else []), *names]
        if measured is None:
            moments, low, high = column_moments(X, table.weights), X.min(axis=0), X.max(axis=0)
        else:
            moments, low, high = measured.columns(), measured.low, measured.high
        out.scaling = out._scaling(table.where, moments, names, indicators)
        out.outside = {
            name: (float(first), float(last))
            for name, first, last, centre in zip(names, low, high, out.scaling.centre, strict=True)
            if centre != 0.0 and not first - (last - first) <= 0.0 <= last + (last - first)
        }
        out.n_latents = len(out.levels) * len(out.coefficients)
        out.hyperparameters = out._typed(scale)
        return out

    def _slopes(self, table: DataTable) -> tuple[np.ndarray, list[str], np.ndarray]:
        """The columns (N, slopes) as they come, their names, and which of them are indicators of a factor's levels."""
        blocks, names, indicators, whole = [np.zeros((len(table), 0))], [], [], not self.intercept
        for covariate in self.covariates:
            X, each = covariate.rows(table).fixed, list(covariate.fixed_names)
            if whole and covariate.levels is not None:  # nobody else stands for its first level
                X = np.hstack([1.0 - X.sum(axis=1, keepdims=True), X])
                each, whole = [f"{covariate.column}[{covariate.levels[0]}]", *each], False
            blocks.append(X)
            names += each
            indicators += [covariate.levels is not None] * len(each)
        return np.hstack(blocks), names, np.array(indicators, dtype=bool)

    def _scaling(self, where: str, moments: ColumnMoments, names: list[str], indicators: np.ndarray) -> Columns:
        """Centres and scales; an indicator has neither."""
        same = moments.constant & ~indicators
        if self.intercept and same.any():
            j = int(np.argmax(same))
            got = f"the slope {names[j]!r} of {self.name!r} is {moments.mean[j]:.10g} in every row"
            raise problem(where, got, "a column that varies", "The intercept of each group says the same.")
        size = moments.sd if self.intercept else np.hypot(moments.mean, moments.sd)
        moved = ~indicators & (self.intercept and self.correlated)
        scale = np.where(indicators | (size == 0.0), 1.0, size)
        return Columns(tuple(names), np.where(moved, moments.mean, 0.0), scale, np.where(moved, moments.rest, 0.0))

    def _typed(self, scale: float) -> tuple[Hyperparameter, ...]:
        names, d = self.coefficients, len(self.coefficients)
        units = np.concatenate([np.ones(int(self.intercept)), self.scaling.scale])
        moved = self.intercept and bool(np.any(self.scaling.centre != 0.0))
        words = [f"{name} (at the mean)" if moved and name == "intercept" else name for name in names]
        sds = [
            deviation("sd" if d == 1 else f"sd {word}", scale, unit=float(unit))
            for word, unit in zip(words, units, strict=True)
        ]
        pairs = [(i, j) for i in range(1, d) for j in range(i)] if self.correlated else []
        return *sds, *(
            partial_correlation(
                f"{'partial ' if j else ''}correlation {names[j]}, {names[i]}", self.eta + (d - 2 - j) / 2
            )
            for i, j in pairs
        )

    # -- the contract ------------------------------------------------------------------------------
    @property
    def covariance(self) -> RepeatedCovariance:
        """S of every group, as a function of theta."""
        return RepeatedCovariance(len(self.levels), len(self.coefficients), self.correlated)

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.covariance(theta)

    def population(self, theta: np.ndarray) -> np.ndarray:
        return self.covariance.covariance(theta)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        codes = self.codes(self.column_of(table), new)
        Z = self.scaling.tail(self._slopes(table)[0], self.intercept)
        known, d = codes >= 0, Z.shape[1]
        at = np.repeat(np.flatnonzero(known), d), (d * codes[known, None] + np.arange(d)).ravel()
        design = sp.csr_array((Z[known].ravel(), at), shape=(codes.size, self.n_latents))
        return TermRows(design, codes=codes, unseen=np.where(known[:, None], 0.0, Z))

    def shown(self) -> tuple[list[Hashable], TermRows]:
        """Each group's coefficients, of the columns as they came."""
        n, d = len(self.levels), len(self.coefficients)
        called = [joined(level) for level in self.levels]
        labels: list[Hashable] = [(level, name) for level in called for name in self.coefficients]
        T = self.scaling.to_user(self.intercept)
        design = sp.csr_array(sp.kron(sp.eye_array(n), T, format="csr"))
        return called if d == 1 else labels, TermRows(design, codes=np.repeat(np.arange(n), d))

    def user_covariance(self, theta: np.ndarray) -> np.ndarray:
        """S of the intercept (where every column is 0) and of the slopes (per unit)."""
        T = self.scaling.to_user(self.intercept)
        return np.asarray(T @ self.population(theta) @ T.T)

    def readable(self, theta: np.ndarray) -> list[tuple[str, float]]:
        """The sds, and then the correlations, of the user's columns.

        Where a column is far from 0 throughout, those of the intercept at its mean come after them: at 0 they say how
        far the data are away.
        """
        out = _in_words(self.user_covariance(theta), self.coefficients, self.correlated)
        if self.outside:
            T = self.scaling.to_user(True)
            T[0, [self.coefficients.index(name) for name in self.outside]] = 0.0
            there = f"intercept at the mean of {', '.join(self.outside)}"
            again = _in_words(T @ self.population(theta) @ T.T, [there, *self.coefficients[1:]], True)
            out += [row for row in again if there in row[0]]
        return out


def _in_words(S: np.ndarray, names: Sequence[str], correlated: bool) -> list[tuple[str, float]]:
    """The sds of a covariance, and then its correlations."""
    sd, d = np.sqrt(np.diag(S)), len(names)
    out = [("sd" if d == 1 else f"sd {name}", float(s)) for name, s in zip(names, sd, strict=True)]
    for i in range(1, d) if correlated else ():
        out += [(f"correlation {names[j]}, {names[i]}", float(S[i, j] / (sd[i] * sd[j]))) for j in range(i)]
    return out


def _several(names: Any) -> tuple[Hashable, ...]:
    """One name or several, as several."""
    return tuple(names) if isinstance(names, (list, tuple)) else (names,)


def joined(level: Any) -> Any:
    """A level as one label: a combination of several columns is text with colons."""
    return ":".join(map(str, level)) if isinstance(level, tuple) else level
