"""Random hard problems through ``infer`` and formulas through ``Model``, judged by code that shares nothing with the
library: in 60 digits, and by a dense construction of the documented model.

    python benchmarks/fuzz.py                           1,200 problems and 800 formulas on two processes: two tables
    python benchmarks/fuzz.py --count 20000 --formulas 0 --seed 7
    python benchmarks/fuzz.py --seed 0 --only 1234 -v   one problem, what was said of it and the verdict
    python benchmarks/fuzz.py --only-formula 56 -v      one formula

It ends with 1 if any fit was falsely said to have converged or any exception was not a sentence; docs/fuzz.md says how
to read the table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fuzzing.formula_fits import judge_formula
from fuzzing.formulas import FormulaProblem, draw_formula
from fuzzing.judge import Verdict, judge
from fuzzing.models import Improper, to_model
from fuzzing.problems import FuzzProblem, draw, to_library
from threadpoolctl import threadpool_limits


def solve(problem: FuzzProblem) -> Any:
    import fenchel

    likelihood, prior, ask = to_library(problem)
    return fenchel.infer(likelihood, prior, problem.y, weights=problem.weights, **ask)


def examine(seed: int, i: int, show: bool = False) -> tuple[FuzzProblem, Verdict]:
    """Draw a problem, solve it, judge what comes back."""
    problem = draw(seed, i)
    if show:
        describe(problem)
    with warnings.catch_warnings(), np.errstate(all="ignore"), threadpool_limits(1):
        warnings.simplefilter("ignore")
        try:
            solution = solve(problem)
        except Exception as error:
            return problem, raised(error)
        if show:
            print(solution.summary())
        try:
            model = to_model(problem)
        except Improper:
            faults = ["an improper prior was accepted"] if solution.converged else []
            said = "converged" if solution.converged else "not converged"
            return problem, Verdict(said, faults, judged=False, reason=solution.status)
        try:
            verdict = judge(model, solution, problem.ask["tol"], problem.log_concave, doubt=i % 10 == 0)
        except (ArithmeticError, ValueError) as error:  # no verdict, and nobody is accused
            said = "converged" if solution.converged else "not converged"
            return problem, Verdict(said, judged=False, reason=f"the judge failed: {error!r}")
        verdict.reason = solution.status
    return problem, verdict


def examine_formula(seed: int, i: int, show: bool = False) -> tuple[FormulaProblem, Verdict]:
    """Draw a formula with its table, fit it at given hyperparameters, judge what comes back by the dense model."""
    problem = draw_formula(seed, i)
    if show:
        print(problem.formula, problem.family)
    with warnings.catch_warnings(), np.errstate(all="ignore"), threadpool_limits(1):
        warnings.simplefilter("ignore")
        try:
            return problem, judge_formula(problem)
        except ArithmeticError as error:  # no verdict, and nobody is accused
            return problem, Verdict("converged", judged=False, reason=f"the judge failed: {error!r}")
        except Exception as error:
            return problem, raised(error)


def raised(error: Exception) -> Verdict:
    """A sentence is a refusal; anything else is a fault."""
    if isinstance(error, ValueError) and "; expected " in str(error):
        return Verdict("refused", reason=str(error))
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"
    return Verdict("crashed", [text], reason=text)


def describe(problem: FuzzProblem) -> None:
    with np.printoptions(precision=17, linewidth=140, threshold=2000):
        for name in ("likelihood", "prior", "y", "weights", "ask"):
            print(f"{name} = {getattr(problem, name)!r}")


def _one(task: tuple[int, int]) -> tuple[int, tuple[str, str], str, Verdict, float]:
    begin = time.process_time()
    problem, verdict = examine(*task)
    prior = f"{problem.prior['kind']} ({problem.prior['shape']})"
    return task[1], problem.row, prior, verdict, time.process_time() - begin


def _one_formula(task: tuple[int, int]) -> tuple[int, tuple[str, str], str, Verdict, float]:
    begin = time.process_time()
    problem, verdict = examine_formula(*task)
    return task[1], problem.row, problem.formula, verdict, time.process_time() - begin


def table(results: list[Any], names: tuple[str, str] = ("likelihood", "bound")) -> str:
    """One row a likelihood and bound, or a term and family."""
    rows: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for _, row, _, verdict, _ in results:
        rows[row].append(verdict)
    head = (*names, "problems", "converged", "said not", "refused", "crashed", "unjudged")
    head = (*head, "false converged", "worst error / tol")
    lines = ["| " + " | ".join(head) + " |", "|---" * 2 + "|--:" * (len(head) - 2) + "|"]
    everything = [v for verdicts in rows.values() for v in verdicts]
    for (name, bound), verdicts in [*rows.items(), (("all", ""), everything)]:
        said = [v.said for v in verdicts]
        converged = [v for v in verdicts if v.said == "converged" and v.judged]
        words = (word.replace("|", r"\|") for word in (name, bound))
        cells = [*words, len(verdicts), said.count("converged"), said.count("not converged")]
        cells += [said.count("refused"), said.count("crashed"), sum(not v.judged for v in verdicts)]
        cells += [sum(v.false_converged for v in verdicts), f"{max((v.error for v in converged), default=0.0):.2g}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def run(one: Any, seed: int, first: int, count: int, processes: int) -> Iterator[Any]:
    tasks = [(seed, i) for i in range(first, first + count)]
    if processes == 1 or not tasks:
        yield from map(one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(one, tasks, chunksize=5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1200, help="problems of infer")
    parser.add_argument("--formulas", type=int, default=800, help="problems of formulas")
    parser.add_argument("--only", type=int, help="one problem")
    parser.add_argument("--only-formula", type=int, help="one formula")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    for only, one in ((given.only, examine), (given.only_formula, examine_formula)):
        if only is not None:
            _, verdict = one(given.seed, only, given.verbose)
            print(verdict)
            return int(verdict.wrong)
    parts = (
        (_one, given.count, ("likelihood", "bound")),
        (_one_formula, given.formulas, ("terms", "kind")),
    )
    wrong = False
    for one, count, names in parts:
        if not count:
            continue
        begin, results = time.perf_counter(), []
        for result in run(one, given.seed, given.first, count, given.processes):
            results.append(result)
            report(result, given.verbose)
        print(table(results, names))
        cpu = sum(r[-1] for r in results)
        took = time.perf_counter() - begin
        print(f"seed {given.seed}: {len(results)} problems in {took:.0f} s ({cpu:.0f} s of CPU)", flush=True)
        wrong = wrong or any(verdict.wrong for _, _, _, verdict, _ in results)
    return int(wrong)


def report(result: Any, verbose: bool) -> None:
    """A line for what is wrong, or with ``verbose`` for what did not converge or took long."""
    i, row, prior, verdict, seconds = result
    failed = verdict.reason.startswith("the judge failed")
    if verdict.faults or failed or (verbose and verdict.said != "converged"):
        words = "; ".join(verdict.faults) or verdict.reason
        print(f"{i:6d} {verdict.said:13s} {' '.join(row)}, {prior}: {words}", flush=True)
    if verbose and seconds > 3:
        print(f"{i:6d} took {seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
