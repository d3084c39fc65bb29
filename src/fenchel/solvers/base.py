"""The contract of a solver, the endings of its runs, their trace and the stopping rule.

A solver has three independent parts: a direction, a search along it, and the stopping rule. Every solver keeps a
``Trace``, stops on the relative duality gap and reports how it ended by an ``Ending``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .. import gates
from ..checks import Refusal, optional
from ..checks import problem as refusal
from ..files import Stated
from ..linalg.arrays import Array, to_numpy
from ..linalg.machine import counted
from ..posterior import Posterior
from ..problem import DualPoint, Problem
from .initial_point import levelled

ARMIJO = 1e-4  # share of the predicted progress that a step must reach; small, so that only failing steps are refused
SLOW = 0.3  # a step after which more than this share of the gap remains is slow; a Newton step leaves its square
SLOW_STEPS = 2  # slow steps after which Newton's system is no longer simplified
ROUNDING = 1e-10  # predicted decrease, relative to |dual|, below which a step is judged by the gap
PATIENCE = 8  # steps without a new best point before a search returns to the best one
_ASK_FOR_LESS = (
    " of it; use a larger tol, or give the likelihood more noise or the prior less variance in the directions that "
    "the data do not determine"
)


@dataclass(frozen=True)
class Ending(Stated):
    """How a run ended: a code for programs, the numbers that decided, and the sentence that they make.

    Attributes
    ----------
    code : str
        "converged"; "stationary" (converged, but another stationary point may be better); "callback" (stopped by the
        user); "steered" (accurate enough to steer a search). Not converged: "max_iter", "stagnated" (no further
        progress in double precision), "stalled" (a line search), "rounding" (the optimum is reached, but the rounding
        error of the elbo exceeds tol), or a code of the solver.
    measure, value, tol : str, float, float
        The quantity that is compared with tol, such as "relative gap", its value, and tol.
    reason : str
        Why a run stopped that did not converge.
    advice : str
        Text after the numbers, with its punctuation.
    notes : tuple of str
        Other events, such as the rejection of a start.

    Examples
    --------
    >>> from fenchel.solvers import Ending
    >>> Ending("stalled", "relative gap", 1e-3, 1e-8, "the line search stalled", notes=("a poor start",)).sentence
    'not converged: the line search stalled at relative gap 1.0e-03 > 1.0e-08 (a poor start)'
    """

    code: str
    measure: str
    value: float
    tol: float
    reason: str = ""
    advice: str = ""
    notes: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the run ended below tol."""
        return self.code in ("converged", "stationary")

    @property
    def word(self) -> str:
        """ "converged", "stationary", "stopped" or "not converged" (also for a run that steered a search)."""
        return self.code if self.reached else "stopped" if self.code == "callback" else "not converged"

    @property
    def sentence(self) -> str:
        """The ending as a sentence, for a status line."""
        return self._numbers() + self.advice + "".join(f" ({note})" for note in self.notes)

    def _numbers(self) -> str:
        if self.code == "callback":
            return f"stopped by the callback at {self.measure} {self.value:.1e}"
        if self.code == "steered":
            return f"accurate enough to steer a search, not proved: {self.measure} {self.value:.1e} <= {self.tol:.1e}"
        if self.reached:
            return f"{self.code}: {self.measure} {self.value:.1e} <= {self.tol:.1e}"
        where = "" if self.code == "rounding" else f" at {self.measure}"
        return f"not converged: {self.reason}{where} {self.value:.1e} > {self.tol:.1e}"

    def advising(self, more: str) -> Ending:
        """The same ending with more advice."""
        return replace(self, advice=self.advice + more)

    def noting(self, note: str) -> Ending:
        """The same ending with a note, unless the note is empty."""
        return replace(self, notes=(*self.notes, note)) if note else self

    @classmethod
    def blurred(cls, rounding: float, scale: float, tol: float) -> Ending:
        """The ending of an optimal fit whose elbo, of size ``scale``, has a rounding error above tol."""
        reason = f"the optimum is reached, but rounding may have moved the elbo by {rounding:.1e}, which is"
        return cls("rounding", "rounding of the elbo", rounding / scale, tol, reason, _ASK_FOR_LESS)


Callback = Callable[[dict[str, float]], object]
DEFAULT_TAKEN = "the start was worse than the default, which was taken instead"


class Trace:
    """The history of a run, one entry for each iteration; the start is iteration 0.

    Columns: iteration, seconds, elbo, elbo_upper, gap, step, and the linear algebra since the fit began:
    factorisations, inverses (selected ones of sparse matrices) and products ((Vt o Vt) v under a sparse prior).
    ``trace["gap"]`` is an array, ``len(trace)`` its length.
    """

    columns = ("iteration", "seconds", "elbo", "elbo_upper", "gap", "step", "factorisations", "inverses", "products")

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []

    @classmethod
    def of(cls, rows: Any) -> Trace:
        """A trace from a table (iterations, columns)."""
        out = cls()
        out._rows = [tuple(row) for row in np.asarray(rows, dtype=np.float64).reshape(-1, len(cls.columns)).tolist()]
        return out

    def append(self, row: dict[str, float]) -> None:
        self._rows.append(tuple(float(row[name]) for name in self.columns))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise KeyError(f"the trace has no column {name!r}; it has {', '.join(self.columns)}")
        return np.array([row[self.columns.index(name)] for row in self._rows])

    def __iter__(self) -> Iterator[dict[str, float]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self._rows)

    def to_frame(self) -> Any:
        """The trace as a pandas DataFrame."""
        return optional("trace.to_frame", "pandas").DataFrame(self._rows, columns=list(self.columns))

    def __repr__(self) -> str:
        return f"Trace({len(self)} entries: {', '.join(self.columns)})"


class Judged(Protocol):
    """The part of an iterate that the stopping rule uses.

    shortfall : the quantity that must fall below tol * max(1, |elbo|): the gap, unless the method optimises another one
    measure : its name, for the ending
    rounding, quadrature : estimates of the rounding and the quadrature error of the elbo, in nats
    resolution : the shortfall, in nats, below which quadrature errors dominate; 0 without quadrature
    """

    @property
    def elbo(self) -> float: ...
    @property
    def dual(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def shortfall(self) -> float: ...
    @property
    def measure(self) -> str: ...
    @property
    def rounding(self) -> float: ...
    @property
    def quadrature(self) -> float: ...
    @property
    def resolution(self) -> float: ...


class Iterate(Judged, Protocol):
    """The part of an iterate that ``Solution`` uses. ``DualPoint`` is one; rival methods have their own.

    certificate : the kind of proof of the gap
    log_evidence : estimate of log p(y); the elbo, unless the method has another one
    """

    @property
    def s(self) -> Array: ...
    @property
    def alpha(self) -> Array: ...
    @property
    def lam(self) -> Array: ...
    @property
    def certificate(self) -> str: ...
    @property
    def log_evidence(self) -> float: ...
    def posterior(self) -> Posterior: ...


@dataclass
class Stopping:
    """The stopping rule: gap <= tol * max(1, |elbo|), ``max_iter`` iterations, or a true value of the callback."""

    tol: float
    max_iter: int
    callback: Callback | None = None
    trace: Trace = field(default_factory=Trace)
    began: float = field(default_factory=time.perf_counter)
    steers: bool = False  # whether the fit only steers a search: a small predicted progress may then end it

    def steered(self, point: Judged, promise: float) -> Ending | None:
        """The ending of a run that only steers, if Newton's step predicts progress below tol; else None."""
        share = promise / max(1.0, abs(point.elbo))
        ending = Ending("steered", "relative predicted progress of Newton's step", share, self.tol)
        return ending if self.steers and share <= self.tol else None

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Exclude the time of a block from the trace, as for the evaluation of a rival method."""
        since = time.perf_counter()
        yield
        self.began += time.perf_counter() - since

    def reached(self, point: Judged) -> bool:
        return reached(point, self.tol)

    def record(self, iteration: int, point: Judged, step: float) -> Ending | None:
        """Append to the trace; return the ending of the run, or None to go on."""
        seconds = time.perf_counter() - self.began
        elbo, gap, done = point.elbo, point.gap, counted()  # in this order: the counts include elbo and gap
        row = {
            "iteration": iteration,
            "seconds": seconds,
            "elbo": elbo,
            "elbo_upper": point.dual,
            "gap": gap,
            "step": step,
            "factorisations": done.factorisations,
            "inverses": done.inverses,
            "products": done.products,
        }
        self.trace.append(row)
        asked = self.callback(row) if self.callback is not None else None
        if self.reached(point):
            return self.ended(point, "converged")
        if asked:
            return self.ended(point, "callback")
        if iteration >= self.max_iter:
            return self.ended(point, "max_iter", f"max_iter = {self.max_iter} reached", "; raise max_iter")
        return None

    def ended(self, point: Judged, code: str, reason: str = "", advice: str = "") -> Ending:
        """The ending of a run at this point."""
        return Ending(code, point.measure, relative(point), self.tol, reason, advice)

    def stagnated(self, point: Judged) -> Ending:
        """The ending of a run without further progress: converged, if quadrature errors exceed the remaining gap."""
        if optimal(point, self.tol):
            return replace(self.ended(point, "converged"), tol=point.resolution / max(1.0, abs(point.elbo)))
        limit = ", the limit of double precision for this problem; use a larger tol"
        return self.ended(point, "stagnated", "stagnated", limit)


def reached(point: Judged, tol: float) -> bool:
    """Whether the shortfall of a point is proved to be below tol."""
    return np.isfinite(point.elbo) and 0.0 <= point.shortfall <= tol * max(1.0, abs(point.elbo))


def optimal(point: Judged, tol: float) -> bool:
    """Whether it is below tol, or below the quadrature error of its expectations."""
    return reached(point, tol) or 0.0 <= point.shortfall <= point.resolution


def relative(point: Judged) -> float:
    """The relative shortfall (gap), shortfall / max(1, |elbo|)."""
    scale = max(1.0, abs(point.elbo))
    return point.shortfall / scale if np.isfinite(scale) else float("inf")


@dataclass(frozen=True)
class Accuracy:
    """The relative residual to which Newton's system is solved: share * sqrt(relative gap), within limits."""

    share: float = 1.0
    loosest: float = 0.1  # a larger residual costs more steps than it saves
    tightest: float = 1e-9  # a smaller residual is below the rounding of products with the curvature

    def at(self, point: Iterate) -> float:
        return min(self.loosest, max(self.tightest, self.share * float(np.sqrt(relative(point)))))


@dataclass
class Outcome:
    """The result of a solver, from which a ``Solution`` is made."""

    point: Iterate
    ending: Ending
    n_iter: int
    trace: Trace
    method: str = ""  # the solvers that took part, if not only the one that was called

    @property
    def converged(self) -> bool:
        return self.ending.reached


class Solver(ABC):
    """The contract of a solver. It minimises the dual of a problem, unless ``needs_dual`` is False."""

    name: str
    needs_dual: bool = True

    @abstractmethod
    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        """Iterate from a point with a finite dual until ``stopping`` returns an ending."""

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        """Find a usable start, then ``run`` from it."""
        with np.errstate(all="ignore"):  # a trial point may overflow, and is then refused
            if start is None:
                return self.run(problem, default_start(problem), stopping)
            usable, note = usable_start(problem, start)
            outcome = self.run(problem, usable, stopping)
        outcome.ending = outcome.ending.noting(note)
        return outcome


@runtime_checkable
class Finisher(Protocol):
    """A solver that goes on from a point of the dual at which another one stagnated."""

    def finish(self, problem: Problem, point: DualPoint, n: int, stopping: Stopping) -> Outcome:
        """Iterate from ``point``, reached after n iterations, until ``stopping`` returns an ending."""


def default_start(problem: Problem) -> DualPoint:
    """The default start; an error says so if no point can be evaluated in double precision."""
    point = problem.at(levelled(problem, problem.default_start()))
    if not np.isfinite(point.dual):
        raise no_start(problem, point.lam)
    return point


def no_start(problem: Problem, lam: Array) -> Refusal:
    """The error if no point can be evaluated; it names the row with the largest lam times prior variance."""
    scale = np.max(to_numpy(lam * problem.predictors.variance), axis=1)
    n = int(np.argmax(np.where(np.isnan(scale), np.inf, scale)))
    mean, sd = (float(to_numpy(x)[n].flat[0]) for x in (problem.mt, problem.predictors.variance**0.5))
    return refusal(
        "infer",
        f"no start can be evaluated in double precision: a priori eta[{int(problem.active[n])}] is {mean:.3g} +- "
        f"{sd:.3g}, and lam times that variance reaches {scale[n]:.1e}",
        "a prior standard deviation of eta below about 1e7 times that of the likelihood",
        "Centre and scale the columns of the design, check the units of y, offset and exposure, or narrow the prior.",
    )


def usable_start(problem: Problem, start: Array) -> tuple[DualPoint, str]:
    """The user's start, or if its gap is larger than that of the default start a point between the two; and a note.

    Under a wide prior a start close to the optimum may have any gap, because S alpha moves h far in the stiff
    directions, but its dual is close to the optimal one. With very many rows, for which the default start is five
    steps away, the dual is therefore compared, too.
    """
    point = problem.at(start)
    if np.isfinite(point.dual) and relative(point) < 1.0:
        return point, ""
    default, share = default_start(problem), 1.0
    many = problem.active.size >= gates.DUAL_JUDGES_STARTS
    for _ in range(4):
        if np.isfinite(point.dual) and ((many and point.dual <= default.dual) or point.gap <= default.gap):
            return (
                point,
                "" if share == 1.0 else f"the start was unusable and was pulled {1 - share:.1%} to the default",
            )
        share /= 16
        point = problem.at(default.s + share * (start - default.s))
    return default, DEFAULT_TAKEN


@contextmanager
def reporting(show: bool, title: str, callback: Callback | None) -> Iterator[Callback | None]:
    """A callback that also shows a progress line (by ``rich``) if ``show`` is true."""
    if not show:
        yield callback
        return
    from rich.live import Live
    from rich.text import Text

    with Live(Text(f"{title}: starting"), refresh_per_second=8) as live:

        def report(row: dict[str, float]) -> object:
            live.update(
                Text(
                    f"{title}: iteration {row['iteration']:.0f}   elbo {row['elbo']:.6g}   "
                    f"gap {row['gap']:.2e}   step {row['step']:.3g}   {row['seconds']:.1f} s"
                )
            )
            return callback(row) if callback is not None else None

        yield report
