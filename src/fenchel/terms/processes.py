"""Gaussian processes over columns: eta_i = z[point of row i], z ~ N(0, K(theta)), one latent for each different point.

``gmrf/processes.py`` has the kernels, the precision and what other points are given these.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ..checks import choice, problem
from ..gmrf.processes import NUGGET, Process
from ..inputs.frames import DataTable
from ..kernels import KERNELS
from .base import Hyperparameter, Rows, Term, deviation, effect_range, one_each
from .coordinates import spans_of
from .forecast import Unseen, UnseenPoints
from .smooths import numbers_of

_MOST = 1000  # different points: a dense block of as many rows and columns is factorised at every theta
_SHORT, _LONG = 1e-3, 1e2  # bounds of a range, in widths of the bulk


class GaussianProcess(Term):
    """A Gaussian process over the points of one column or several.

    Parameters
    ----------
    *x : names of columns of numbers
    kernel : "matern32", "matern12", "matern52" or "rbf"
        How smooth it is: paths with a slope, rough ones, with a curvature, or with every derivative.
    isotropic : bool
        One range for all columns, which then are in one unit, as coordinates are. By default each has its own, in its
        unit.
    name : hashable, optional

    The sd is that of the process anywhere, with P(sd > scale of eta) = 0.01; at a distance of the range its correlation
    is about 0.14, with P(range < a twentieth of the width of the bulk of the data) = 0.05 (Fuglstad et al. 2019). Each
    point has an independent effect of a thousandth of the sd beside it, the nugget: noise about eta that is less than
    that is not told from it. Other points are predicted with the mean and the variance that the process has there given
    those of the fit, without a nugget, and drawn together.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, GaussianProcess
    >>> term = GaussianProcess("x", "z").read(DataTable("here", {"x": [0.0, 1.0, 1.0], "z": [0.0, 2.0, 2.0]}), 1.0)
    >>> term.name, term.n_latents, [h.name for h in term.hyperparameters]
    ('gp(x, z)', 2, ['sd', 'range x', 'range z'])
    """

    word = "gp"

    process: Process
    place: dict[tuple[float, ...], int]  # of each point
    odd: Sequence[str] = ()  # what a user should know of its coordinates

    def __init__(self, *x: Hashable, kernel: str = "matern32", isotropic: bool = False, name: Hashable = None) -> None:
        if not x:
            raise problem("gp", "no column", "gp(x), or gp(x, z)")
        choice("gp", "kernel", kernel, tuple(KERNELS))
        self.inputs, self.kernel, self.isotropic = tuple(x), kernel, bool(isotropic) or len(x) == 1
        self.name = f"gp({', '.join(map(str, x))})" if name is None else name
        self.stated = ("kernel", kernel), ("nugget", f"{NUGGET:g} of the variance, fixed")

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return self.inputs

    def read(self, table: DataTable, scale: float) -> Self:
        out, X = copy.copy(self), numbers_of(table, self.inputs)
        points = np.unique(X, axis=0)
        n, d = points.shape
        width = np.ptp(points, axis=0)
        if not width.all():
            j = int(np.argmin(width))
            raise problem(
                table.where, f"{self.inputs[j]!r} is {points[0, j]:.10g} in every row", "a column that varies"
            )
        if n > _MOST:
            few = "s(x) is a spline of any number" if d == 1 else "matern(x, z) is a field over any number"
            advice = f"{few}; rounded columns have fewer."
            raise problem(table.where, f"{self.name} is over {n} different points", f"at most {_MOST}", advice)
        out.process = Process(points, KERNELS[self.kernel], self.isotropic)
        out.place, out.n_latents = {tuple(point): i for i, point in enumerate(points.tolist())}, n
        out.levels = points[:, 0].tolist() if d == 1 else [tuple(point) for point in points.tolist()]
        spans, out.odd = spans_of(self.inputs, X, self.isotropic, table.places)
        names = ["range"] if self.isotropic else [f"range {name}" for name in self.inputs]
        dimension = d if self.isotropic else 1
        ranges = (_range(name, span, dimension) for name, span in zip(names, spans.tolist(), strict=True))
        out.hyperparameters = deviation("sd", scale), *ranges
        return out

    def remarks(self, others: Sequence[Term]) -> list[str]:
        return [f"{self.name}: {sentence}" for sentence in self.odd]

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.process(theta)

    def rows(self, table: DataTable, new: bool = False) -> Rows:
        X = numbers_of(table, self.inputs)
        codes = self._codes(X)
        if (codes < 0).any():
            i = int(np.argmax(codes < 0))
            got = f"row {i} has {self.name} at {X[i].tolist()}, which fit has not seen"
            raise problem(table.where, got, "points of the fit", "new_rows(theta, table) has other points, too.")
        return self._at(codes)

    def _codes(self, X: np.ndarray) -> np.ndarray:
        return np.array([self.place.get(tuple(point), -1) for point in X.tolist()], dtype=np.int64)

    def _at(self, codes: np.ndarray) -> Rows:
        return Rows(one_each(codes, self.n_latents), codes=codes)

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[Rows, list[Unseen]]:
        X = numbers_of(table, self.inputs)
        codes = self._codes(X)
        new = codes < 0
        if not new.any():
            return self._at(codes), []
        W, left = np.zeros((len(X), self.n_latents)), np.zeros(len(X))
        W[np.flatnonzero(~new), codes[~new]] = 1.0
        W[new], left[new] = self.process.weights(theta, X[new])
        rows, of = Rows(sp.csr_array(W)), np.where(new, 0, -1)
        together = partial(self._together, theta, X[new])
        return rows, [UnseenPoints(np.sqrt(left)[:, None], np.ones(1), of, together=together)]

    def _together(self, theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points, which = np.unique(X, axis=0, return_inverse=True)
        return which.ravel(), self.process.left(theta, points)

    def shown(self) -> tuple[list[Hashable], Rows]:
        """At the points of the fit."""
        assert self.levels is not None
        return self.levels, self._at(np.arange(self.n_latents))


def _range(name: str, width: float, dimension: int) -> Hyperparameter:
    """Of data that are so wide."""
    bounds = float(np.log(_SHORT * width)), float(np.log(_LONG * width))
    return effect_range(name, float(np.log(width / 5.0)), bounds, (width / 20.0, 0.05), dimension)
