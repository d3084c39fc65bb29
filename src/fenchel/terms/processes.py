"""Gaussian processes over columns: eta_i = f(point of row i), with one latent for each distinct point of the fit.

    f(x) ~ GP(0, sd^2 c(r)),   r^2 = sum_j ((x_j - x'_j) / range_j)^2

``GaussianProcess`` works with the dense covariance (``gmrf/processes.py``), ``VecchiaProcess`` conditions each point on
its nearest neighbours (``gmrf/vecchia.py``). The neighbours are found with the starting values of the ranges, and once
more with the learned ranges if these differ much. If no kernel is given, the evidence chooses one (``KernelTrials``).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from .. import gates
from ..checks import choice, count, first, problem
from ..gmrf.series import NUGGET, Process
from ..gmrf.vecchia import Vecchia
from ..hyperparameters.kernel_choice import KernelShape, KernelTrials
from ..hyperparameters.priors import PCDeviation
from ..inputs.frames import DataTable
from ..kernels import KERNELS
from .base import Hyperparameter, Term, TermRows, effect_range, one_each, stationary_sd
from .forecast import Unseen, UnseenPoints, numbered
from .matern_terms import numbers_of, pc_pair, spans_of
from .smoothness import LEAST_ROWS

_KNOT_REMARK = 0.1  # share of the variance that knots leave on average, from which a remark says so
_TOGETHER = 2500  # new points that are drawn together, by their dense covariance; more are drawn one by one
_FIRST = "matern32"  # the kernel where none is given, unless another gains enough
_MOST_COMPARED = 5000  # points up to which a kernel is chosen
_ALIKE = 3.0  # times that a column is wider than another, up to which one range may serve both
_MOVED = float(np.log(1.5))  # of a log range against the others, from which neighbours are chosen anew


class PointProcess(Term):
    """A Gaussian process with one latent for each distinct point: the common base of both kinds.

    A subclass makes the ``process`` over the points X, and predicts other points given those.
    """

    one_a_point = True

    process: Any
    odd: Sequence[str] = ()  # what a user should know of its coordinates
    range_bounds: ClassVar[tuple[float, float]]  # log units below and above the start of a range
    prior_range: list[tuple[float, float]] | None = None  # (r, a) of each range, where the user says it
    prior_sd: tuple[float, float] | None = None
    read_ranges: Sequence[Hyperparameter] = ()  # as the data give them
    trials: KernelTrials | None = None
    stated_ranges: bool = True  # whether the user says something of them: how many there are, or their priors
    extent: float = 1.0  # of the bulk in all columns

    def __init__(self, inputs: Sequence[Hashable], kernel: str | None, isotropic: bool | None, name: Hashable) -> None:
        if not inputs:
            raise problem(str(self.word), "no column is named", f"{self.word}(x), or {self.word}(x, z)")
        choice(str(self.word), "kernel", kernel, (None, *KERNELS))
        self.inputs, self.asked, self.asked_isotropic = tuple(inputs), kernel, isotropic
        self.kernel, self.isotropic = kernel or _FIRST, bool(isotropic) or len(inputs) == 1
        self.name = f"{self.word}({', '.join(map(str, inputs))})" if name is None else name

    # -- what a subclass says ----------------------------------------------------------------------
    @property
    @abstractmethod
    def X(self) -> np.ndarray:
        """The distinct points (n, d), one a latent."""

    @abstractmethod
    def start_ranges(self, spans: np.ndarray) -> np.ndarray:
        """Where the ranges start, from the widths of the bulk of the columns."""

    @property
    def dimension(self) -> int:
        """That of the default prior of a range."""
        return 1

    @abstractmethod
    def choose(self, X: np.ndarray, ranges: np.ndarray) -> None:
        """Make the ``process`` over distinct points X, with choices that suit these ranges."""

    @abstractmethod
    def conditional(self, theta: np.ndarray, X: np.ndarray) -> tuple[Any, np.ndarray]:
        """Weights (N, n) of the latents for values at new points, and the variance (N,) that they leave."""

    @abstractmethod
    def covariance_left(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """The covariance (N, N) that the latents leave of values at distinct new points."""

    # -- the contract ------------------------------------------------------------------------------
    @property
    def columns(self) -> tuple[Hashable, ...]:
        return self.inputs

    def remarks(self, others: Sequence[Term]) -> list[str]:
        return [f"{self.name}: {sentence}" for sentence in self.odd]

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.process(theta)

    def read(self, table: DataTable, scale: float) -> Self:
        out, X = copy.copy(self), numbers_of(table, self.inputs)
        points = np.unique(X, axis=0)
        width = np.ptp(points, axis=0)
        if not width.all():
            j = int(np.argmin(width))
            got = f"{self.inputs[j]!r} is {points[0, j]:.10g} in every row"
            raise problem(table.where, got, "a column that varies", "Leave it out.")
        spans, out.odd = spans_of(self.inputs, X, self.isotropic, table.places)
        start = self.start_ranges(spans)
        size = stationary_sd(scale)
        if self.prior_sd is not None:
            size = replace(size, prior=PCDeviation(*self.prior_sd))
        out.hyperparameters = size, *self._ranges(start, spans)
        out.n_latents = len(points)
        out.choose(points, start)
        out.compares = self.asked is None and len(X) >= LEAST_ROWS and len(points) <= _MOST_COMPARED
        given = self.asked_isotropic is not None or self.prior_range is not None
        out.stated_ranges = self.isotropic or given or bool(spans.max() > _ALIKE * spans.min())
        out.extent, out.read_ranges = float(spans.max()), out.hyperparameters[1:]
        return out

    def _ranges(self, start: np.ndarray, spans: np.ndarray) -> list[Hyperparameter]:
        """The ranges, by default with P(range < a twentieth of its span) = 0.05."""
        names = ["range"] if self.isotropic else [f"range {name}" for name in self.inputs]
        shortest = self.prior_range or [(span / 20.0, 0.05) for span in spans.tolist()]
        below, above = self.range_bounds
        return [
            effect_range(name, t, (t - below, t + above), pair, self.dimension)
            for name, t, pair in zip(names, np.log(start).tolist(), shortest, strict=True)
        ]

    def settled(self, theta: np.ndarray, noise: bool = True, evidence: float = 0.0) -> Self | None:
        """The same of another kernel, or with other choices that it makes at theta; None where none is better."""
        if not self.compares:
            return self.adjusted(theta)
        out, shape = copy.copy(self), KernelShape(self.kernel, len(self.hyperparameters) - 1)
        if self.trials is None:
            stated = self.stated_ranges or any(
                now.prior is not read.prior
                for now, read in zip(self.hyperparameters[1:], self.read_ranges, strict=True)
            )
            out.trials = KernelTrials(first=shape, lengths=shape.lengths if stated else 1)
        trials = out.trials = (out.trials or KernelTrials(first=shape)).and_also(shape, evidence, theta)
        tries = trials.next_one()
        out.compares = tries is not None
        return out.of_shape(trials.best() if tries is None else tries, trials)

    def of_shape(self, shape: KernelShape, trials: KernelTrials) -> Self:
        """This one, changed to a kernel and a number of ranges, from where the best so far ended."""
        theta, (size, *ranges) = trials.start(shape), self.hyperparameters
        self.kernel, self.isotropic = shape.word, shape.lengths == 1
        if shape.lengths < len(ranges):
            spans = np.array([self.extent])
            ranges = self._ranges(self.start_ranges(spans), spans)
            if theta.size > 2:
                theta = np.array([theta[0], theta[1:].mean()])
        elif shape.lengths > len(ranges):
            ranges = list(self.read_ranges)
        typed = [size, *ranges]
        inside = [float(np.clip(t, *h.bounds)) for h, t in zip(typed, theta, strict=True)]
        self.hyperparameters = tuple(replace(h, start=t) for h, t in zip(typed, inside, strict=True))
        self.process = replace(self.process, nu=KERNELS[shape.word], shared=self.isotropic)
        self.stated = tuple((name, shape.word if name == "kernel" else text) for name, text in self.stated)
        return self

    def adjusted(self, theta: np.ndarray) -> Self | None:
        """The same with other choices that it makes at theta; None where it makes none, or much the same ones."""
        return None

    def details(self) -> str:
        if self.trials is None:
            return self.kernel if self.asked is None else ""
        return self.trials.in_words(KernelShape(self.kernel, len(self.hyperparameters) - 1))

    def places(self, X: np.ndarray) -> np.ndarray:
        """The latent of each point (N,), -1 for a point that fit has not seen."""
        every, which = np.unique(np.vstack([self.X, X]), axis=0, return_inverse=True)
        place = np.full(len(every), -1)
        place[which.ravel()[: len(self.X)]] = np.arange(len(self.X))
        return place[which.ravel()[len(self.X) :]]

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        codes = self.places(numbers_of(table, self.inputs))
        if (codes < 0).any():
            got = f"row {first(codes < 0)} is no point of the fit"
            raise problem(table.where, got, f"points of {self.name}", "New points depend on theta: new_rows.")
        return self._at(codes)

    def _at(self, codes: np.ndarray) -> TermRows:
        return TermRows(one_each(codes, self.n_latents), codes=None if self.levels is None else codes)

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        X = numbers_of(table, self.inputs)
        return self.beyond(theta, X, self.places(X))

    def beyond(self, theta: np.ndarray, X: np.ndarray, codes: np.ndarray) -> tuple[TermRows, list[Unseen]]:
        """Rows at points X whose latents are ``codes``, -1 where a point is known by those of others."""
        fresh = np.flatnonzero(codes < 0)
        if not fresh.size:
            return self._at(codes), []
        weights, left = self.conditional(theta, X[fresh])
        among = sp.csr_array((np.ones(fresh.size), (fresh, np.arange(fresh.size))), shape=(len(X), fresh.size))
        design = sp.csr_array(one_each(codes, self.n_latents) + among @ sp.csr_array(weights))
        own = np.zeros((len(X), 1))
        own[fresh, 0] = np.sqrt(left)
        of = numbered([tuple(x) for x in X.tolist()], codes < 0)
        if int(of.max()) >= _TOGETHER:
            return TermRows(design), [Unseen(own, np.ones(1), of)]
        together = partial(self._together, theta, X[fresh])
        return TermRows(design), [UnseenPoints(own, np.ones(1), of, together=together)]

    def _together(self, theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place of each new point among the distinct ones, and the covariance of what these have of their own."""
        points, which = np.unique(X, axis=0, return_inverse=True)
        return which.ravel(), self.covariance_left(theta, points)

    def shown(self) -> tuple[list[Hashable], TermRows]:
        """At the distinct points of the fit, in the order of their columns."""
        order = np.lexsort(self.X.T[::-1])
        return labels_of(self.X[order]), self._at(order)


def labels_of(points: np.ndarray) -> list[Hashable]:
    """What points (N, d) are called: a number, or a tuple of them."""
    return points[:, 0].tolist() if points.shape[1] == 1 else [tuple(point) for point in points.tolist()]


class GaussianProcess(PointProcess):
    """A Gaussian process over the points of one column or several.

    Parameters
    ----------
    *x : names of columns of numbers
    kernel : "matern32", "matern12", "matern52" or "rbf", optional
        Smoothness of the process: once differentiable, continuous, twice differentiable, or infinitely often. Default:
        "matern32", unless there are at least 100 rows and the evidence of another kernel is larger by two nats.
        ``details`` says by how much. With inducing points the default is "matern32".
    isotropic : bool, optional
        True: one range for all columns, which must have the same unit, as coordinates have. False: one range for each
        column, in its unit. Default: one for each. But if the kernel is chosen and the columns are about equally wide
        (within a factor of three): one for all, unless separate ranges gain two nats plus one for each further range.
    n_inducing : int or "auto", optional
        Number of inducing points (``InducingProcess``). Default: none up to 1,000 different points, "auto" beyond.
    loss : float, optional
        Error of the elbo, in nats, that "auto" accepts; default: a thousandth of a nat for each row.
    name : hashable, optional

    The sd is that of the process at any point. Its prior is half-normal with P(sd > 3 scales of eta) = 0.05. The range
    is the distance at which the correlation is about 0.14. Its prior has P(range < r) = 0.05, where r is a twentieth of
    the width of the bulk of the data (Fuglstad et al. 2019). Each point also has an independent effect with a
    thousandth of the sd, the nugget. Predictions at other points leave the nugget out, and draws of them are joint.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, GaussianProcess
    >>> term = GaussianProcess("x", "z").read(DataTable("here", {"x": [0.0, 1.0, 1.0], "z": [0.0, 2.0, 2.0]}), 1.0)
    >>> term.name, term.n_latents, [h.name for h in term.hyperparameters]
    ('gp(x, z)', 2, ['sd', 'range x', 'range z'])
    """

    word = "gp"
    range_bounds = float(np.log(200.0)), float(np.log(500.0))  # a thousandth to a hundred widths of the bulk
    most = 1000  # it factorises a block of that size at every theta

    process: Process

    def __init__(
        self,
        *x: Hashable,
        kernel: str | None = None,
        isotropic: bool | None = None,
        n_inducing: int | str | None = None,
        loss: float | None = None,
        name: Hashable = None,
    ) -> None:
        super().__init__(x, kernel, isotropic, name)
        self.n_inducing, self.loss = n_inducing, loss
        self.stated = ("kernel", self.kernel), ("nugget", f"{NUGGET:g} of the variance, fixed")

    def read(self, table: DataTable, scale: float) -> Any:
        """Itself, or through inducing points where these are asked for or the points are many."""
        many = len(np.unique(numbers_of(table, self.inputs), axis=0)) > self.most
        if not many and self.n_inducing is None and self.loss is None:
            return super().read(table, scale)
        from .inducing_process import InducingProcess

        n = "auto" if self.n_inducing is None else self.n_inducing
        out = InducingProcess(self.inputs, self.asked, self.asked_isotropic, self.name, n, self.loss)
        return out.read(table, scale)

    @property
    def X(self) -> np.ndarray:
        return self.process.points

    @property
    def dimension(self) -> int:
        return len(self.inputs) if self.isotropic else 1

    def start_ranges(self, spans: np.ndarray) -> np.ndarray:
        return spans / 5.0

    def choose(self, X: np.ndarray, ranges: np.ndarray) -> None:
        self.process, self.levels = Process(X, KERNELS[self.kernel], self.isotropic), labels_of(X)

    def conditional(self, theta: np.ndarray, X: np.ndarray) -> tuple[Any, np.ndarray]:
        return self.process.weights(theta, X)

    def covariance_left(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        return self.process.left(theta, X)


class VecchiaProcess(PointProcess):
    """A Gaussian process over one or several columns, by nearest neighbours.

    Parameters
    ----------
    *columns : names of columns of numbers
    kernel : "matern12", "matern32", "matern52" or "rbf", optional
        Default: the evidence chooses, as in ``GaussianProcess``; "matern32" with more than 5,000 points.
    neighbours : int
        Number of points on which each point is conditioned. 10 to 30 are usual, and smooth kernels need more. With all
        points as neighbours the process is exact.
    isotropic : bool, optional
        One range for all columns, or one for each; default: as in ``GaussianProcess``.
    prior_range : (r, a), or one such pair for each column, optional
        P(range < r) = a for each range. Default: a = 0.05, r a twentieth of the extent of the bulk of its columns.
    prior_sd : (s, a), optional
        P(sd > s) = a. Default: half-normal, s = 3 times the scale of eta, a = 0.05.
    knots : int, optional
        Number of points, spread out, on which all points condition; the others are independent given these. Default:
        at most 10,000. The time grows with the number of knots to the power of about 1.7, and linearly in the points.
    name : hashable, optional

    New points are conditioned on the nearest points of the fit and on some that are further apart, which lie on all
    sides of a gap. With knots they are conditioned on one point with its neighbours. Up to 2,500 new points are drawn
    jointly. With more, the parts that the points of the fit leave uncertain are drawn independently. A sampled map then
    looks rough where these are far apart, but its means and intervals do not change.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, VecchiaProcess
    >>> rng = np.random.default_rng(0)
    >>> table = DataTable("here", {"x": rng.random(50), "z": 9 * rng.random(50)})
    >>> term = VecchiaProcess("x", "z", neighbours=5).read(table, 1.0)
    >>> term.n_latents, [h.name for h in term.hyperparameters]
    (50, ['sd', 'range x', 'range z'])
    """

    word = "vecchia"
    range_bounds = 6.0, 4.0

    process: Vecchia
    chosen: np.ndarray  # the ranges in which neighbours were chosen
    final: bool = False  # neighbours have been chosen twice

    def __init__(
        self,
        *columns: Hashable,
        kernel: str | None = None,
        neighbours: int = 20,
        isotropic: bool | None = None,
        prior_range: Sequence[float] | Sequence[Sequence[float]] | None = None,
        prior_sd: Sequence[float] | None = None,
        knots: int | None = None,
        name: Hashable = None,
    ) -> None:
        super().__init__(columns, kernel, isotropic, name)
        self.m = count("vecchia", "neighbours", neighbours, 1)
        self.knots = None if knots is None else count("vecchia", "knots", knots, 2)
        self.prior_sd, self.prior_range = pc_pair("vecchia", "prior_sd", prior_sd), self._stated_ranges(prior_range)

    def _stated_ranges(self, given: Any) -> list[tuple[float, float]] | None:
        """(r, a) of each range: one for all of them, or one a column."""
        n = 1 if self.isotropic else len(self.inputs)
        if given is None:
            return None
        several = np.ndim(given) == 2 or len({np.shape(one) for one in given}) > 1
        if several and len(given) != n:
            raise problem("vecchia", f"prior_range has {len(given)} pairs", f"(r, a), or {n}, one a range")
        pairs = [pc_pair("vecchia", "prior_range", one) for one in (given if several else [given] * n)]
        return [pair for pair in pairs if pair is not None]

    @property
    def X(self) -> np.ndarray:
        return self.process.X

    def start_ranges(self, spans: np.ndarray) -> np.ndarray:
        return np.asarray(0.3 * np.sqrt(len(self.inputs)) * spans)

    def choose(self, X: np.ndarray, ranges: np.ndarray) -> None:
        """Order and neighbours, in these ranges."""
        ranges = np.broadcast_to(ranges, (X.shape[1],))
        knots = gates.VECCHIA_KNOTS if self.knots is None else self.knots
        self.process, _ = Vecchia.of(X, ranges, self.m, self.kernel, self.isotropic, knots)
        self.chosen = np.asarray(ranges)
        if self.process.knots < len(X):
            self.stated = (("knots", f"{self.process.knots} of {len(X)} points, which the others condition on"),)

    def adjusted(self, theta: np.ndarray) -> Self | None:
        """The same with neighbours chosen in the ranges of theta; None where they would be much the same."""
        moved = np.log(self.process.ranges(theta) / self.chosen)
        if self.final or np.ptp(moved) < _MOVED:  # neighbours depend on the ratios of the ranges alone
            return None
        out = copy.copy(self)
        out.final = True
        out.choose(self.process.X, self.process.ranges(theta))
        inside = [float(np.clip(t, *h.bounds)) for h, t in zip(self.hyperparameters, theta, strict=True)]
        out.hyperparameters = tuple(replace(h, start=t) for h, t in zip(self.hyperparameters, inside, strict=True))
        return out

    def remarks_at(self, theta: np.ndarray) -> list[str]:
        share, knots = self.process.beyond_knots(theta), self.process.knots
        if share < _KNOT_REMARK:
            return []
        return [
            f"{self.name}: its {knots} knots leave {share:.0%} of the variance at the other points, which are taken as "
            f"independent given them: knots={min(4 * knots, self.n_latents)} leaves less"
        ]

    def conditional(self, theta: np.ndarray, X: np.ndarray) -> tuple[Any, np.ndarray]:
        weights, left = self.process.at(theta, X)
        return weights, np.exp(2.0 * theta[0]) * left

    def covariance_left(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(2.0 * theta[0]) * self.process.rests(theta, X))
