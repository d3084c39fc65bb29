"""Penalised smooths: f(x) = slope (x - mean) + Z(x) b,    b ~ N(0, sd^2 I). The straight line is a fixed effect.

Z spans the penalised functions of a basis (``bases.py``), with coefficients b such that the penalty is b' b. It is made
orthogonal to the level and the line over the rows of the fit. It is scaled so that sd is the root mean square of the
prior standard deviation of Z b over those rows: the typical departure of the curve from its line, in any unit of x.

A surface is a tensor product: a basis U_i(x) V_j(z) of eigenfunctions of both penalties, with the diagonal precision

    a_i / sd_x^2 + b_j / sd_z^2

The functions that neither penalises, (1, x) times (1, z), are fixed effects. For ``ti`` the bases of both columns sum
to zero over the rows of the fit, and only x times z is a fixed effect.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from ..checks import choice, count, numeric, problem
from ..gmrf.precisions import DiagonalSum
from ..inputs.frames import DataTable
from ..linalg.standardized import ColumnMoments, column_moments
from .base import Term, TermRows, deviation
from .bases import BASES, Basis, ByValues, Centred, most
from .covariates import Covariate, is_factor
from .matern_terms import numbers_of, spans_of

_GRID = 50  # points at which a curve is shown
_SIDE = 15  # points of each side of the grid on which a surface is shown
_FUNCTIONS = {1: 20, 2: 30}  # of one column, of two
_ALONG = 5  # basis functions along each column of a surface
LEAST = {"cr": 3, "ps": 5, "cc": 4, "tp": 3}  # functions of a basis of one column
_ELSEWHERE = {  # what others write with s() and here is another term
    "re": "A level for each group is (1|g), a slope of x (0 + x|g).",
    "fs": "A curve for each group is (1|g) + s(x, by=g, shared=True).",
    "sz": "Curves of levels that differ from one curve are g + s(x, by=g); fit.comparisons has their differences.",
    "ts": "A smooth that may vanish is s(x): the prior of its sd does it.",
    "cs": "A smooth that may vanish is s(x): the prior of its sd does it.",
    "ad": "A smoothness that varies is gp(x) or rw2(x).",
    "ds": "A surface over coordinates is s(x, z) or matern(x, z).",
    "sos": "A field over coordinates is matern(x, z), in one unit.",
    "so": "A field within a border is matern(x, z, mesh=...), on a mesh with a boundary.",
    "mrf": "Regions with neighbours are icar(r) and bym2(r).",
    "gp": "A Gaussian process is gp(x), or gp(x, z).",
    "cp": 'bs="cc" is the cyclic one.',
}


class MeasuredCurve(NamedTuple):
    """Sums over all rows that a curve needs when the table at hand holds only some of them.

    Attributes
    ----------
    moments : moments of the columns of x
    project : array (1 + lines, r)
        Coefficients of level and lines in the penalised functions.
    squares : array (r,)
        Mean squares of the penalised functions without level and lines.
    """

    moments: ColumnMoments
    project: np.ndarray
    squares: np.ndarray


class Curve(Term):
    """Common base of the smooths: a penalised part, an unpenalised part, and ``by``.

    A subclass gives ``inputs`` (its columns of x), ``penalised`` (basis functions at u), ``rates`` of their precision
    for each sd, and ``lines`` (unpenalised products of standardised columns).
    """

    inputs: tuple[Hashable, ...]
    by: Hashable
    shared: bool
    low: np.ndarray  # of the columns, with ``high`` the range that the fit has seen
    high: np.ndarray
    unit: np.ndarray  # in which they are measured from the lowest
    moments: ColumnMoments
    lowered: tuple[str, ...] = ()  # what is said where k was more than the data have
    odd: Sequence[str] = ()  # which rows are far from the others
    rates: np.ndarray  # (J, r): of each sd
    lines: list[tuple[int, ...]]  # which columns each free function is the product of, the level aside
    project: np.ndarray  # (1 + lines, r): what of the penalised part is level and lines over the rows of the fit
    factor: Covariate | None = None  # ``by``, where it is a factor

    @abstractmethod
    def prepare(self, where: str, u: np.ndarray, weights: np.ndarray | None) -> None:
        """Set up the basis from the rows of the fit, and how often each was seen."""

    @abstractmethod
    def penalised(self, u: np.ndarray) -> np.ndarray:
        """The functions (N, r) that are penalised, before level and lines are taken out."""

    @property
    def sd_names(self) -> list[str]:
        """What the sds of one curve are called."""
        return ["sd"]

    def __init__(self, inputs: Sequence[Hashable], by: Hashable, shared: bool, name: Hashable) -> None:
        self.inputs, self.by, self.shared, self.name = tuple(inputs), by, bool(shared), name

    # -- reading -----------------------------------------------------------------------------------
    @property
    def columns(self) -> tuple[Hashable, ...]:
        return self.inputs if self.by is None else (*self.inputs, self.by)

    @property
    def claims(self) -> tuple[Hashable, ...]:
        return self.inputs

    def read_sketch(self, table: DataTable, scale: float, measured: Any) -> Self:
        C, every = measured.covariance, measured.columns()
        x = ColumnMoments(*(part[:1] for part in every))
        slope = C[0, 1:] / max(float(x.sd[0]), 1e-300)
        project, squares = np.stack([measured.mean[1:], slope]), np.maximum(np.diag(C)[1:] - slope**2, 0.0)
        return self._read(table, scale, MeasuredCurve(x, project, squares))

    def survey_columns(self, table: DataTable) -> np.ndarray:
        """x, and the penalised functions there."""
        x = numbers_of(table, self.inputs)
        return np.hstack([x, self.penalised(self._units(x))])

    def read(self, table: DataTable, scale: float) -> Self:
        return self._read(table, scale, None)

    def about(self, means: Mapping[Hashable, float]) -> Self:
        out, mean = copy.copy(self), np.array([means[name] for name in self.inputs])
        out.moments = self.moments._replace(mean=mean, rest=np.zeros_like(mean))
        return out

    def _read(self, table: DataTable, scale: float, measured: MeasuredCurve | None) -> Self:
        out, X = copy.copy(self), numbers_of(table, self.inputs)
        out.low, out.high = self.range_of(X)
        out.moments = column_moments(X, table.weights) if measured is None else measured.moments
        out.unit, out.lowered = self.unit_of(out.high - out.low), ()
        if out.moments.constant.any():
            j = int(np.argmax(out.moments.constant))
            raise problem(table.where, f"{self.inputs[j]!r} is {X[0, j]:.10g} in every row", "a column that varies")
        out.odd = spans_of(self.inputs, X, False, table.places)[1] if measured is None else ()
        out.factor = None
        if self.by is not None and is_factor(table.column(self.by)):
            out.factor = Covariate(self.by).read(table, 1.0)
        out.prepare(table.where, out._units(X), table.weights)
        if measured is None:
            Z, free = out.penalised(out._units(X)), out._free(X)
            out.project = np.linalg.lstsq(table.weighted(free), table.weighted(Z), rcond=None)[0]
            squares = table.mean((Z - free @ out.project) ** 2)
        else:
            out.project, squares = measured.project, measured.squares
        out.rates = out._normalised(squares)
        out.n_latents = squares.size * out.copies
        sds, out.fixed_names = out._names()
        out.hyperparameters = tuple(deviation(name, scale) for name in sds)
        return out

    def range_of(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest of each column."""
        return X.min(axis=0), X.max(axis=0)

    def unit_of(self, span: np.ndarray) -> np.ndarray:
        """What each column is measured in."""
        return span

    def basis_size(self, where: str, of: Hashable, u: np.ndarray, bs: str, asked: int | None, default: int) -> int:
        """How many functions a basis has: as asked, or by default, and no more than there are different values."""
        enough, least, different = most(u, bs), LEAST[bs] + u.shape[1] - 1, len(np.unique(u, axis=0))
        if enough < least:
            advice = "As a covariate a column is a line, and C(x) a level for each value."
            raise problem(where, f"{of} has {different} different values", f"at least {least} with bs={bs!r}", advice)
        if asked is not None and asked > enough:
            self.lowered = (*self.lowered, f"{of} has {different} different values: k is {enough}, not {asked}")
        return min(default if asked is None else asked, enough)

    def remarks(self, others: Sequence[Term]) -> list[str]:
        out = [*self.lowered, *(f"{self.name}: {sentence}" for sentence in self.odd)]
        levels = any(self.by in term.columns for term in others if not isinstance(term, Curve))
        if self.factor is not None and not levels:
            out.append(
                f"{self.name} is a curve for each level of {self.by!r}, all about one level: add {self.by} as a "
                "covariate for levels of their own"
            )
        return out

    def _normalised(self, squares: np.ndarray) -> np.ndarray:
        """The rates with which each sd is the root mean square of what it alone moves, over the rows of the fit.

        ``squares`` (r,) are the mean squares of the penalised functions.
        """
        out = np.zeros_like(self.rates)
        for j, rate in enumerate(self.rates):
            alone = (rate > 0.0) & (np.delete(self.rates, j, axis=0) == 0.0).all(axis=0)
            out[j] = rate * float(np.sum(squares[alone] / rate[alone]))
        return out

    @property
    def copies(self) -> int:
        """How many curves there are."""
        return 1 if self.factor is None or self.factor.levels is None else len(self.factor.levels)

    def _names(self) -> tuple[list[str], list[str]]:
        """Of the sds, and of the fixed effects, each curve's in turn."""
        labels = [""] if self.factor is None else [f"[{level}]" for level in self.factor.levels or ()]
        single = len(self.inputs) == 1
        each = ["slope" if single else " times ".join(str(self.inputs[j]) for j in line) for line in self.lines]
        if self.by is not None and self.factor is None:
            each = ["level", *each]
        fixed = [f"{self.name} ({word}){label}" for label in labels for word in each]
        return [f"{sd}{label}" for label in ([""] if self.shared else labels) for sd in self.sd_names], fixed

    # -- the contract ------------------------------------------------------------------------------
    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        J, copies = self.rates.shape[0], self.copies
        if self.shared or copies == 1:
            return DiagonalSum(np.tile(self.rates, (1, copies)))(theta)
        each = np.zeros((copies, J, copies, self.rates.shape[1]))
        each[np.arange(copies), :, np.arange(copies)] = self.rates
        return DiagonalSum(each.reshape(copies * J, -1))(theta)

    def _units(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self.low) / self.unit)

    def _free(self, X: np.ndarray) -> np.ndarray:
        """The level and the lines (N, 1 + lines), standardised."""
        Z = (X - self.moments.mean - self.moments.rest) / self.moments.sd
        return np.stack([np.ones(len(X)), *(Z[:, list(line)].prod(axis=1) for line in self.lines)], axis=1)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        X, n = numbers_of(table, self.inputs), len(table)
        if self.factor is not None:
            rest = self.factor.rows(table, new).fixed
            weights = np.hstack([1.0 - rest.sum(axis=1, keepdims=True), rest])
        else:
            weights = np.ones((n, 1)) if self.by is None else table.column(self.by).numbers()[:, None]
        return self._at(X, weights)

    def _at(self, X: np.ndarray, weights: np.ndarray) -> TermRows:
        """Rows at x, each curve with its weight (N, copies)."""
        free = self._free(X)
        Z = self.penalised(self._units(X)) - free @ self.project
        row, copy_ = np.nonzero(weights) if weights.shape[1] > 1 else (np.arange(len(X)), np.zeros(len(X), dtype=int))
        r, w = Z.shape[1], weights[row, copy_][:, None]
        at = np.repeat(row, r), (r * copy_[:, None] + np.arange(r)).ravel()
        design = sp.csr_array(((w * Z[row]).ravel(), at), shape=(len(X), self.n_latents))
        units = [float(np.prod(self.moments.sd[list(line)])) for line in self.lines]
        level = self.by is not None and self.factor is None
        lines = free[:, int(not level) :] * np.array([1.0] * int(level) + units)  # in units of x, about its mean
        fixed = (weights[:, :, None] * lines[:, None, :]).reshape(len(X), -1)
        return TermRows(design, fixed)

    def shown(self) -> tuple[list[Hashable], TermRows]:
        """On a grid over the range that fit has seen; each level of ``by`` in turn."""
        side = _GRID if len(self.inputs) == 1 else _SIDE
        axes = [np.linspace(a, b, side) for a, b in zip(self.low, self.high, strict=True)]
        X = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        points: list[Hashable] = X[:, 0].tolist() if X.shape[1] == 1 else [tuple(x) for x in X.tolist()]
        if self.factor is None:
            return points, self._at(X, np.ones((len(X), 1)))
        labels: list[Hashable] = [(level, point) for level in self.factor.levels or () for point in points]
        every = np.tile(X, (self.copies, 1))
        return labels, self._at(every, np.repeat(np.eye(self.copies), len(X), axis=0))


class Smooth(Curve):
    """A penalised smooth of a column, or of two: ``s(x)``, ``s(x, z)``.

    Parameters
    ----------
    *x : names of one column of numbers or of two
    bs : "cr", "ps", "cc" or "tp", optional
        Basis. "cr": cubic regression spline with knots at quantiles, the default for one column; "ps": P-spline; "cc":
        cyclic cubic spline; "tp": thin plate spline of one or two columns, the default for two.
    k : int, optional
        Number of basis functions, level and lines included. Default: 20, or 30 for two columns. If the data have fewer
        different values, k is their number, and a warning says so if you gave k.
    by : name of a column, optional
        For a factor f: a curve for each level, each with its own straight line. The curves have no level of their own,
        so add the factor as a covariate: ``y ~ f + s(x, by=f)``. For numbers w: a varying coefficient, w f(x). Then f
        has a level, so do not add w as a covariate.
    isotropic : bool
        For two columns: whether they have the same unit, as coordinates have. By default each is divided by its range.
    shared : bool
        Whether all curves of a factor have one sd.
    period : pair of float, optional
        For "cc": start and end of the period; default: the range of x.
    name : hashable, optional

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, Smooth
    >>> term = Smooth("x", k=6).read(DataTable("here", {"x": np.linspace(0.0, 9.0, 30)}), 1.0)
    >>> term.name, term.n_latents, term.fixed_names
    ('s(x)', 4, ['s(x) (slope)'])
    """

    word, r_names = "s", ("lo", "pspline", "smooth")

    basis: Basis
    root: np.ndarray

    def __init__(
        self,
        *x: Hashable,
        bs: str | None = None,
        k: int | None = None,
        by: Hashable = None,
        shared: bool = False,
        period: tuple[float, float] | None = None,
        isotropic: bool = False,
        name: Hashable = None,
    ) -> None:
        bs = ("tp" if len(x) == 2 else "cr") if bs is None else bs
        choice("Smooth", "bs", bs, tuple(BASES), _ELSEWHERE.get(bs, "") if isinstance(bs, str) else "")
        if len(x) != 1 and not (len(x) == 2 and bs == "tp"):
            advice = "te(x, z) is a surface with any basis, gp(x, z, w) one of several columns."
            raise problem("Smooth", f"{len(x)} columns with bs={bs!r}", "one, or two with bs='tp'", advice)
        self.bs, self.isotropic = bs, bool(isotropic)
        self.k = None if k is None else count("Smooth", "k", k, LEAST[bs] + len(x) - 1)
        self.period = None if period is None else numeric("Smooth", "period", period)
        if self.period is not None and (bs != "cc" or self.period.shape != (2,) or not np.diff(self.period) > 0):
            raise problem("Smooth", f"period = {period!r} with bs={bs!r}", "(begin, end) with bs='cc'")
        joined = f"s({', '.join(map(str, x))})" + ("" if by is None else f" by {by}")
        super().__init__(x, by, shared, joined if name is None else name)

    def range_of(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return super().range_of(X) if self.period is None else (self.period[:1], self.period[1:])

    def unit_of(self, span: np.ndarray) -> np.ndarray:
        return np.full_like(span, span.max()) if self.isotropic else span

    def prepare(self, where: str, u: np.ndarray, weights: np.ndarray | None) -> None:
        k = self.basis_size(where, self.name, u, self.bs, self.k, _FUNCTIONS[u.shape[1]])
        self.basis = BASES[self.bs](u, k)
        self.root = self.basis.root()
        self.rates = np.ones((1, self.root.shape[1]))
        self.lines = [(j,) for j in range(u.shape[1])] if self.basis.straight else []

    def penalised(self, u: np.ndarray) -> np.ndarray:
        return self.basis(u) @ self.root


class Tensor(Curve):
    """A smooth surface of two columns: a tensor product with a penalty along each column, ``te(x, z)``.

    Parameters
    ----------
    x, z : names of columns of numbers
    bs : "cr", "ps" or "cc", or a pair of these
    k : int, or a pair, optional
        Number of basis functions along a column. Default: 5, or fewer if the column has fewer different values.
    by, shared, name : as in ``Smooth``

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, Tensor
    >>> rng = np.random.default_rng(0)
    >>> term = Tensor("x", "z", k=4).read(DataTable("here", {"x": rng.random(40), "z": rng.random(40)}), 1.0)
    >>> term.n_latents, [h.name for h in term.hyperparameters]
    (12, ['sd along x', 'sd along z'])
    """

    word, r_names = "te", ("t2",)
    main: ClassVar[bool] = True  # whether curves of x alone and of z alone are part of it

    bases: list[Basis]
    vectors: list[np.ndarray]
    keep: np.ndarray  # which products are penalised

    def __init__(
        self,
        *x: Hashable,
        bs: str | Sequence[str] = "cr",
        k: int | Sequence[int] | None = None,
        by: Hashable = None,
        shared: bool = False,
        name: Hashable = None,
    ) -> None:
        if len(x) != 2:
            advice = "s(x) is a curve of one column, gp(x, z, w) a surface over several."
            raise problem("Tensor", f"{len(x)} columns", "two", advice)
        self.bs = (bs, bs) if isinstance(bs, str) else tuple(bs)
        for word in self.bs:
            choice("Tensor", "bs", word, ("cr", "ps", "cc"), "A thin plate of two columns is s(x, z)." * (word == "tp"))
        sizes = (k, k) if k is None or isinstance(k, int) else tuple(k)
        if len(self.bs) != 2 or len(sizes) != 2:
            raise problem("Tensor", f"bs = {bs!r}, k = {k!r}", "one of each, or one a column")
        self.k = tuple(
            None if n is None else count("Tensor", "k", n, LEAST[word]) for n, word in zip(sizes, self.bs, strict=True)
        )
        joined = f"{self.word}({x[0]}, {x[1]})" + ("" if by is None else f" by {by}")
        super().__init__(x, by, shared, joined if name is None else name)

    def prepare(self, where: str, u: np.ndarray, weights: np.ndarray | None) -> None:
        self.bases, self.vectors, values = [], [], []
        for j, (bs, k) in enumerate(zip(self.bs, self.k, strict=True)):
            along = u[:, j : j + 1]
            size = self.basis_size(where, f"{self.inputs[j]} in {self.name}", along, bs, k, max(_ALONG, LEAST[bs]))
            basis = BASES[bs](along, size)
            basis = ByValues(basis, size) if bs == "ps" else basis
            self.bases.append(basis if self.main else Centred(basis, along, weights))
            a, V = self.bases[j].eigen()
            values.append(a)
            self.vectors.append(V)
        both = np.stack([axis.ravel() for axis in np.meshgrid(*values, indexing="ij")])
        self.keep = np.asarray(both.any(axis=0))
        self.rates = both[:, self.keep]
        straight = [j for j, bs in enumerate(self.bs) if BASES[bs].straight]
        self.lines = [*((j,) for j in straight if self.main), *([(0, 1)] if len(straight) == 2 else [])]

    def penalised(self, u: np.ndarray) -> np.ndarray:
        A, B = (basis(u[:, [j]]) @ self.vectors[j] for j, basis in enumerate(self.bases))
        return np.asarray((A[:, :, None] * B[:, None, :]).reshape(len(u), -1)[:, self.keep])

    @property
    def sd_names(self) -> list[str]:
        return [f"sd along {name}" for name in self.inputs]


class TensorInteraction(Tensor):
    """The interaction part of a smooth surface, without the curves of each column: ``s(x) + s(z) + ti(x, z)``."""

    word, main = "ti", False
