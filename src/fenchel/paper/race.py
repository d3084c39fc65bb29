"""Timing of methods on the same problem, from the same start, judged by the same float64 objective.

Every method returns a Solution whose trace has the time (without that of the judging) and the elbo of its q. The time
until the elbo is within some nats of the optimum is read from the trace, or is ">" if the time limit came first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..checks import Refusal, problem
from ..inference import infer
from ..report import Table
from ..solvers.solution import Solution
from .reproduce import Tick, silent

WITHIN = (0.1, 1e-3)  # nats
Method = Callable[..., Solution]


@dataclass(frozen=True)
class Runner:
    """A method to be timed.

    call : called as ``call(likelihood, prior, y, tol=..., max_iter=..., callback=...)``
    settings : its settings in words
    same_bound : whether it maximises the same bound, so that it must reach the same optimum
    """

    name: str
    call: Method
    settings: str = ""
    same_bound: bool = True


@dataclass(frozen=True)
class RaceEntry:
    """The result of a method: its solution, or a sentence that says why it could not run."""

    runner: Runner
    solution: Solution | None
    refused: str = ""
    capped: bool = False

    @property
    def name(self) -> str:
        return self.runner.name

    def _when(self, column: str, target: float) -> float:
        """Value of a column of the trace when the elbo first reached ``target``; infinite if it never did."""
        if self.solution is None:
            return np.inf
        trace = self.solution.trace
        there = np.flatnonzero(trace["elbo"] >= target)
        return float(trace[column][there[0]]) if there.size else np.inf

    def seconds_to(self, target: float) -> float:
        """Seconds until the elbo first reached ``target``; inf if it never did."""
        return self._when("seconds", target)

    def iterations_to(self, target: float) -> float:
        """Iterations until the elbo first reached ``target``; inf if it never did."""
        return self._when("iteration", target)

    @property
    def end(self) -> str:
        """How the run ended, in a word."""
        if self.solution is None:
            return "refused"
        return "capped" if self.capped else self.solution.ending.word

    @property
    def seconds(self) -> float:
        """Duration of the run, as text."""
        return np.nan if self.solution is None else float(self.solution.trace["seconds"][-1])


# -- The methods -------------------------------------------------------------------------------------
NEWTON, LBFGS = "dual Newton", "dual L-BFGS"
OPPER, OPPER_WHITE = "Opper-Archambeau", "Opper-Archambeau, whitened"
QUICK = (NEWTON, LBFGS, OPPER, OPPER_WHITE, "Laplace", "EP")  # those of a quick run


def all_runners(bandwidth: int, quick: bool = False) -> list[Runner]:
    """All methods, dual Newton first; one of them uses a Cholesky factor with ``bandwidth`` subdiagonals."""
    from . import rivals

    band = partial(rivals.primal_cholesky, bandwidth=bandwidth)
    runners = [
        Runner(NEWTON, infer, "mirror Newton"),
        Runner(LBFGS, partial(infer, method="lbfgs"), "the paper's method: 20 pairs, feasible Wolfe steps"),
        Runner(OPPER, partial(rivals.opper_archambeau, mean="latent"), "over (m, log lam), m as in the paper, L-BFGS"),
        Runner(OPPER_WHITE, partial(rivals.opper_archambeau, mean="white"), "its mean in whitened latents, L-BFGS"),
        Runner("primal Cholesky", rivals.primal_cholesky, "Challis and Barber: the mean and a factor of V, L-BFGS"),
        Runner("primal (m, V)", rivals.primal_full, "over the mean and V itself, L-BFGS"),
        Runner("coordinate ascent", rivals.coordinate_ascent, "Khan et al. 2012, rank-one updates"),
        Runner("mean field", rivals.mean_field, "V diagonal, L-BFGS", False),
        Runner(f"primal Cholesky, band {bandwidth}", band, f"{bandwidth} diagonals below the main one", False),
        Runner("Laplace", rivals.laplace, "the mode and its curvature", False),
        Runner("EP", rivals.ep, "damped expectation propagation, from sites at zero", False),
    ]
    return [one for one in runners if one.name in QUICK] if quick else runners


def started(runners: Sequence[Runner], start: np.ndarray) -> list[Runner]:
    """The same methods, each started from s = ``start``."""
    return [replace(one, call=partial(one.call, start=start)) for one in runners]


# -- The race ----------------------------------------------------------------------------------------
def race(
    model: tuple[Any, Any, Any],
    runners: Sequence[Runner],
    best: float,
    *,
    cap: float,
    tol: float = 1e-8,
    max_iter: int = 100_000,
    repeats: Mapping[str, int] | None = None,
    tick: Tick = silent,
) -> list[RaceEntry]:
    """Run each method on ``model = (likelihood, prior, y)`` until it converges or ``cap`` seconds have passed.

    ``best`` is the certified optimum of the bound. A method that shares the bound also stops once it is within a tenth
    of the smallest distance of ``WITHIN``. ``repeats``: run a short method several times
    and keep the fastest run, by name.
    """
    entries = []
    for runner in runners:
        runs = [_one(model, runner, best, cap, tol, max_iter) for _ in range((repeats or {}).get(runner.name, 1))]
        entry = min(runs, key=lambda e: (e.seconds_to(best - WITHIN[-1]), e.seconds if e.solution else 0.0))
        entries.append(entry)
        tick(f"{runner.name}: " + (entry.refused or f"{entry.seconds:.2f} s"))
    return entries


def _one(model: tuple[Any, Any, Any], runner: Runner, best: float, cap: float, tol: float, max_iter: int) -> RaceEntry:
    capped = False

    def judge(row: dict[str, float]) -> bool:
        nonlocal capped
        capped = row["seconds"] > cap
        return capped or (runner.same_bound and row["elbo"] >= best - WITHIN[-1] / 10)

    try:
        solution = runner.call(*model, tol=tol, max_iter=max_iter, callback=judge)
    except Refusal as error:
        return RaceEntry(runner, None, str(error))
    return RaceEntry(runner, solution, "", capped)


def race_table(entries: Sequence[RaceEntry], best: float, caption: str = "") -> Table:
    """Seconds until within each distance of ``WITHIN`` nats, and the ratio to the first entry (dual Newton)."""
    if not entries:
        raise problem("race_table", "no entries", "at least one method")
    header = ["method", "iterations"]
    for d in WITHIN:
        header += [f"s to {d:g} nat", "ratio"]
    header += ["nats below the optimum", "end"]
    first, rows = entries[0], []
    for entry in entries:
        if entry.solution is None:
            rows.append([entry.name, "-", *["-"] * (2 * len(WITHIN)), "-", entry.end])
            continue
        cells: list[str] = [entry.name, str(entry.solution.n_iter)]
        for d in WITHIN:
            seconds, unit = entry.seconds_to(best - d), first.seconds_to(best - d)
            if np.isfinite(seconds):
                cells += [f"{seconds:.3g}", f"{seconds / unit:.3g}"]
            elif entry.capped:
                cells += [f"> {entry.seconds:.3g}", f"> {entry.seconds / unit:.3g}"]
            else:
                cells += ["never", "-"]
        short = best - float(np.max(entry.solution.trace["elbo"]))
        cells += [f"{max(short, 0.0):.2g}", entry.end]
        rows.append(cells)
    return Table(header, rows, caption)


def others_table(entries: Sequence[RaceEntry], caption: str) -> Table:
    """Evidence by methods with another objective or a smaller family."""
    rows = []
    for entry in entries:
        if not entry.runner.same_bound and entry.solution is not None:
            own, elbo = entry.solution.log_evidence, entry.solution.elbo
            rows.append([entry.name, f"{own:.3f}", f"{elbo:.3f}", f"{entry.seconds:.3g}", entry.end])
    return Table(["method", "own estimate of log p(y)", "elbo of its q", "seconds", "end"], rows, caption)


def methods_table(entries: Sequence[RaceEntry]) -> Table:
    """The settings of each method, or why it could not run."""
    rows = [[entry.name, entry.refused or entry.runner.settings] for entry in entries]
    return Table(["method", "settings"], rows, "The methods")


def race_lines(entries: Sequence[RaceEntry], column: str = "elbo") -> list[tuple[str, Any, Any, Any]]:
    """The traces of the methods that ran, for ``plots.plot_race``."""
    traces = [(entry.name, entry.solution.trace) for entry in entries if entry.solution is not None]
    return [(name, trace["seconds"], trace[column], trace["iteration"]) for name, trace in traces]


def finishers(entries: Sequence[RaceEntry]) -> list[Solution]:
    """The solutions of the methods with this bound that did not reach the time limit."""
    return [e.solution for e in entries if e.runner.same_bound and e.solution is not None and not e.capped]


def race_numbers(entries: Sequence[RaceEntry], best: float) -> list[dict[str, Any]]:
    """The results for json, with the traces."""
    out = []
    for entry in entries:
        item: dict[str, Any] = {
            "method": entry.name,
            "settings": entry.runner.settings,
            "same_bound": entry.runner.same_bound,
            "refused": entry.refused,
            "capped": entry.capped,
        }
        if entry.solution is not None:
            sol = entry.solution
            item |= {
                "elbo": sol.elbo,
                "log_evidence": sol.log_evidence,
                "gap": sol.gap,
                "certificate": sol.certificate,
                "converged": sol.converged,
                "status": sol.status,
                "n_iter": sol.n_iter,
                "seconds": entry.seconds,
                "seconds_to": {f"{d:g}": entry.seconds_to(best - d) for d in WITHIN},
                "iterations_to": {f"{d:g}": entry.iterations_to(best - d) for d in WITHIN},
                "trace": {name: sol.trace[name] for name in ("iteration", "seconds", "elbo", "elbo_upper")},
            }
        out.append(item)
    return out
