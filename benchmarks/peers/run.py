"""fenchel beside its peers: the same data, one judge a task, each peer in an environment and a process of its own.

    python benchmarks/peers/run.py                                  all tasks, all peers
    python benchmarks/peers/run.py --tasks smooths                  some tasks; the others stay as they were
    python benchmarks/peers/run.py --tasks smooths --peers mgcv     some peers; prints alone
    python benchmarks/peers/run.py --make                           the environments, under build/peers
    python benchmarks/peers/run.py --quick                          small sizes
    python benchmarks/peers/run.py --data FOLDER                    where satellite.csv.gz is

A task is a file in ``tasks/``: ``task(quick, folder)`` gives its data and its judge. A peer is a folder: its
environment (``requirements.txt`` for pip, ``packages.txt`` for R) and its fits (``fits.py`` or ``fits.R``), one
function a task with its settings. fenchel is a peer of the same form and runs in the Python at hand. A run of all peers
of a task is kept in ``results/``, from which docs/peers.md and the table of README.md are written (``--pages``: written
again, and nothing is run).

Each fit is called twice in a process of its own: the first call includes the imports and what is compiled, the second
is what the table compares; a first call of more than 40 processor seconds is the only one. Accuracy is
compared first: errors that differ by less than the task's tolerance, or by less than 5 %, are a tie. Time is that of
the second call, of the processor over all threads; less than a quarter of difference is a tie. No answer within
``--limit`` processor seconds (or eight times as many by the clock), a failure and a peer that is not installed are
rows of the table.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import math
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import venv
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"
PAGE = ROOT / "docs" / "peers.md"
README = ROOT / "README.md"
MARKS = "<!-- printed by make peers -->", "<!-- end of what make peers prints -->"
RESULTS = HERE / "results"  # a file a task, of the last run of all its peers; the pages are made of them
OURS = "fenchel"
THREADS = 1  # of each fit: threads of a BLAS that wait for one another count as processor time
SAME_ERROR = 1.05  # ratio of errors that is a tie, whatever the tolerance of the task
SAME_TIME = 1.25
PATIENCE = 8  # seconds of the clock for each processor second that a peer may take, on a machine that others use, too
CSV_CELLS = 2_000_000  # larger tables, and matrices, are written for Python alone


@dataclass
class Task:
    """Data for every peer, and the judge of what they answer.

    tables : columns by name, by table; each is written as npz, and as csv for R
    judge : from an answer to figures by name, computed in float64
    compared : the figures whose root sum of squares is the error; a figure that one side lacks is left out of the pair
    tolerance : a difference of errors that is a tie
    """

    title: str
    objective: str
    tables: dict[str, dict[str, np.ndarray]]
    judge: Callable[[dict[str, Any]], dict[str, float]]
    compared: tuple[str, ...]
    tolerance: float


def away(answer: dict[str, Any], mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Root mean squares of errors of means, in true posterior sds, and of logs of sds where they are told."""
    out = {"mean": math.sqrt(np.mean(((answer["mean"] - mean) / sd) ** 2))}
    if "sd" in answer:
        out["sd"] = math.sqrt(np.mean(np.log(answer["sd"] / sd) ** 2))
    return out


def crps(mean: np.ndarray, sd: np.ndarray, truth: np.ndarray) -> float:
    """The continuous ranked probability score of normal predictions, averaged."""
    z = (truth - mean) / sd
    return float(np.mean(sd * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / math.sqrt(math.pi))))


@dataclass
class Row:
    """What one peer did on one task."""

    peer: str
    version: str = ""
    settings: str = ""
    target: str = ""  # what it computes: the posterior, a maximum, or another model, which is shown and not counted
    figures: dict[str, float] = field(default_factory=dict)
    first: tuple[float, float] = (math.nan, math.nan)  # seconds of the clock and of the processor
    again: tuple[float, float] = (math.nan, math.nan)
    peak: float = math.nan  # MiB of the process
    failed: str = ""
    accuracy: str = ""
    time: str = ""


# -- tasks and peers ----------------------------------------------------------------------------------------
def tasks() -> list[str]:
    return [path.stem for path in sorted((HERE / "tasks").glob("[a-z]*.py"))]


def load(name: str, quick: bool, folder: Path | None) -> Task | str:
    """A task, or why there is none."""
    for path in (HERE, HERE / "tasks", HERE.parent):
        if str(path) not in sys.path:
            sys.path.append(str(path))
    sys.modules.setdefault("run", sys.modules[__name__])
    spec = importlib.util.spec_from_file_location(f"tasks_{name}", HERE / "tasks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.task(quick, folder)


def script(peer: str) -> Path:
    return next((HERE / peer).glob("fits.*"))


def peers() -> list[str]:
    return [OURS, *sorted(path.parent.name for path in HERE.glob("*/fits.*") if path.parent.name != OURS)]


def fits(peer: str) -> list[str]:
    """The tasks that a peer has a fit for, read without running it."""
    path = script(peer)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".R":
        return re.findall(r"^(\w+) <- function\(data\)", text, re.MULTILINE)
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


# -- environments -------------------------------------------------------------------------------------------
def interpreter(peer: str) -> list[str] | None:
    """The command that runs a fit of a peer, or None where its environment is not there."""
    if script(peer).suffix == ".R":
        return ["Rscript", "--vanilla", str(HERE / "worker.R")] if shutil.which("Rscript") else None
    own = Path(sys.executable) if peer == OURS else BUILD / peer / "bin" / "python"
    return [str(own), "-P", str(HERE / "worker.py")] if own.exists() else None


def make(peer: str) -> str:
    """Make the environment of a peer; what went wrong, or nothing."""
    if peer == OURS:
        return ""
    if script(peer).suffix == ".R":
        if shutil.which("Rscript") is None:
            return "R is not installed"
        (BUILD / "R").mkdir(parents=True, exist_ok=True)
        wanted = (HERE / peer / "packages.txt").read_text().split()
        each = ", ".join(f'"{name}"' for name in ["jsonlite", *wanted])
        install = (
            f'.libPaths(c("{BUILD / "R"}", .libPaths())); '
            f"needed <- setdiff(c({each}), rownames(installed.packages())); "
            f'if (length(needed)) install.packages(needed, "{BUILD / "R"}", repos = "https://cloud.r-project.org"); '
            f"stopifnot(all(c({each}) %in% rownames(installed.packages())))"
        )
        command = ["Rscript", "--vanilla", "-e", install]
    else:
        if not (BUILD / peer / "bin" / "python").exists():
            venv.create(BUILD / peer, with_pip=True)
        python = str(BUILD / peer / "bin" / "python")
        command = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--requirement",
            str(HERE / peer / "requirements.txt"),
        ]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


# -- one fit ------------------------------------------------------------------------------------------------
def write(task: Task, folder: Path) -> None:
    flat = {f"{table}/{name}": column for table, columns in task.tables.items() for name, column in columns.items()}
    np.savez(folder / "data.npz", **flat)
    for table, columns in task.tables.items():
        if sum(column.size for column in columns.values()) < CSV_CELLS and all(x.ndim == 1 for x in columns.values()):
            pd.DataFrame(columns).to_csv(folder / f"{table}.csv", index=False)


def fit(peer: str, name: str, folder: Path, limit: int) -> tuple[dict[str, Any], float]:
    """The answer of a peer, or {"failed": why}; and the peak memory of its process in MiB."""
    command = interpreter(peer)
    if command is None:
        return {"failed": f"absent: its environment is not made (make peers PEERS={peer})"}, math.nan
    out = folder / f"{peer}.json"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    environment = {**os.environ, **threads, "NUMBA_NUM_THREADS": str(THREADS), "R_LIBS": str(BUILD / "R")}
    if peer != OURS:
        environment.pop("PYTHONPATH", None)
    with (folder / f"{peer}.log").open("w+") as log:
        process = subprocess.Popen(
            [*command, str(script(peer)), name, str(folder), str(out)],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        )
        used = waited(process, PATIENCE * limit)
        log.seek(0)
        lines = [line for line in log.read().splitlines() if line.strip()]
    peak = math.nan if used is None else used.ru_maxrss / 1024
    if used is None:
        return {"failed": f"no answer within {PATIENCE * limit} s by the clock"}, peak
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failed": f"no answer within {limit} processor seconds"}, peak
    if process.returncode or not out.exists():
        last = next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "")
        return {"failed": f"ended with {process.returncode}: {last.strip()[:160]}"}, peak
    return json.loads(out.read_text()), peak


def waited(process: subprocess.Popen[Any], limit: int) -> resource.struct_rusage | None:
    """What a process used; None where it was stopped at the limit. It does not outlive an interrupt of this one."""
    until = time.perf_counter() + limit
    try:
        while time.perf_counter() <= until:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return used
            time.sleep(0.02)
        return None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.returncode = os.waitstatus_to_exitcode(os.wait4(process.pid, 0)[1])


def judged(peer: str, name: str, task: Task, folder: Path, limit: int) -> Row:
    found, peak = fit(peer, name, folder, limit)
    row = Row(peer, found.get("version", ""), found.get("settings", ""), peak=peak, failed=found.get("failed", ""))
    if row.failed:
        return row
    row.first, row.again = tuple(found["first"]), tuple(found["again"])
    answer = {key: np.asarray(value, dtype=float) for key, value in found["answer"].items() if key != "target"}
    answer["target"] = row.target = found["answer"].get("target", "posterior")
    row.figures = {key: float(value) for key, value in task.judge(answer).items()}
    if not all(math.isfinite(row.figures[key]) for key in task.compared if key in row.figures):
        row.failed = "its answer has numbers that are not finite"
    return row


# -- the comparison -----------------------------------------------------------------------------------------
def verdict(ours: float, theirs: float, ratio: float, tolerance: float = 0.0) -> str:
    """Of fenchel: a smaller number wins."""
    if abs(ours - theirs) <= tolerance or max(ours, theirs) <= ratio * min(ours, theirs):
        return "tie"
    return "win" if ours < theirs else "loss"


def compare(task: Task, rows: Iterable[Row]) -> None:
    """Fill in what fenchel did against each peer."""
    ours, *others = rows
    for row in others:
        if ours.failed or row.failed:
            row.accuracy = row.time = "loss" if ours.failed and not row.failed else ""
            continue
        if row.target == "another model":
            row.accuracy = row.time = "not counted"
            continue
        shared = [key for key in task.compared if key in ours.figures and key in row.figures]
        errors = [math.hypot(*(each.figures[key] for key in shared)) for each in (ours, row)]
        row.accuracy = verdict(*errors, SAME_ERROR, task.tolerance)
        row.time = verdict(ours.again[1], row.again[1], SAME_TIME)


def seconds(pair: tuple[float, float]) -> str:
    return " / ".join("" if math.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}" for value in pair)


def table(rows: list[Row]) -> list[str]:
    """Lines of markdown."""
    names = list(dict.fromkeys(key for row in rows for key in row.figures))
    head = ["", "computes", *names, "second call, s", "first call, s", "MiB", "accuracy", "time"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        label = f"{row.peer} {row.version}".strip()
        if row.failed:
            lines.append(f"| {label} | {row.failed} |" + " |" * (len(head) - 2))
            continue
        cells = [row.target, *(f"{row.figures[name]:.3g}" if name in row.figures else "none" for name in names)]
        cells += [seconds(row.again), seconds(row.first), f"{row.peak:.0f}", row.accuracy, row.time]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def counts(rows: list[Row]) -> tuple[str, str]:
    """Wins, ties and losses of fenchel, in accuracy and in time, where both have an answer."""
    said = []
    for what in ("accuracy", "time"):
        of = [getattr(row, what) for row in rows]
        said.append(f"{of.count('win')} / {of.count('tie')} / {of.count('loss')}")
    return said[0], said[1]


@dataclass
class Result:
    """A task as it was run: its title and objective, its rows, and the seconds of the clock that it took."""

    title: str
    objective: str
    rows: list[Row]
    seconds: float
    skipped: str = ""  # why there is no row
    run_on: str = ""  # the machine, and the day


def summary(results: list[Result]) -> list[str]:
    """A line a task."""
    head = ["task", "peers", "accuracy: win / tie / loss", "time: win / tie / loss", "no answer"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    every = [row for result in results for row in result.rows[1:]]
    for result in results:
        others = result.rows[1:]
        named = ", ".join(row.peer for row in others if not row.failed)
        failed = ", ".join(row.peer for row in others if row.failed)
        cells = [result.title, result.skipped or named, *counts(others), failed]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(f"| **all** | | {' | '.join(counts(every))} | {sum(bool(row.failed) for row in every)} |")
    return lines


def short(results: list[Result]) -> str:
    """What the README says: one sentence and a small table."""
    every = [row for result in results for row in result.rows[1:]]
    *named, last = sorted({row.peer for row in every}, key=str.lower)
    sentence = (
        f"The same data, fitted by fenchel and by {', '.join(named)} and {last}. Each task compares fenchel with "
        "one package at a time: a win is a smaller error, or less time, of fenchel. Data, settings and every "
        "figure are on [one page](docs/peers.md)."
    )
    lines = [
        *textwrap.wrap(sentence, 120, break_on_hyphens=False),
        "",
        "| task | accuracy: win / tie / loss | time: win / tie / loss |",
        "|---|---|---|",
    ]
    lines += [f"| {result.title} | {' | '.join(counts(result.rows[1:]))} |" for result in results]
    lines.append(f"| **all** | {' | '.join(counts(every))} |")
    return "\n".join(lines)


def write_pages() -> None:
    """docs/peers.md, and what stands between the two marks of the README."""
    results = kept()
    PAGE.write_text(page(results), encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    README.write_text("\n".join([before + MARKS[0], "", short(results), "", MARKS[1] + after]), encoding="utf-8")


def titled(name: str) -> str:
    return name.replace("_", " ").capitalize()


def keep(name: str, result: Result) -> None:
    path = RESULTS / f"{name}.json"
    if result.skipped and path.exists():
        return  # its data are not here: what is known of it stays
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")


def kept() -> list[Result]:
    """What is kept of every task, in the order of the tasks; that there is nothing, where there is nothing."""
    found = []
    for path in (RESULTS / f"{name}.json" for name in tasks()):
        if path.exists():
            stored = json.loads(path.read_text())
            found.append(Result(**{**stored, "rows": [Row(**row) for row in stored["rows"]]}))
        else:
            found.append(Result(titled(path.stem), "", [], 0.0, f"no complete run yet: make peers TASKS={path.stem}"))
    return found


def page(results: list[Result]) -> str:
    words = [" ".join(part.split()).replace("``", "`") for part in __doc__.split("\n\n")]
    clock = sum(result.seconds for result in results) / 60
    used = sum(row.first[1] + row.again[1] for result in results for row in result.rows if not row.failed) / 60
    lines = ["# Peers on one page", ""]
    lines += [
        f"`make peers` prints this page. It took {clock:.0f} minutes of the clock and {used:.0f} of the processor in "
        "fits that answered. Tasks are run one at a time and kept, each with the day it was run on.",
        "",
        words[3],
        "",
        "Verdicts are fenchel's against each peer: win, tie or loss. A peer without an answer is counted apart. "
        "Seconds are of the clock / of the processor; the load says how many processes shared the cores. `computes` "
        "says what a peer's answer is: where a task has an exact maximum, a peer that maximises is judged by that and "
        "not by the posterior.",
        "",
        *summary(results),
    ]
    for result in results:
        lines += ["", f"## {result.title}", "", result.skipped or result.objective]
        if result.rows:
            settings = [f"- {row.peer}: {row.settings.rstrip('.')}." for row in result.rows if row.settings]
            lines += ["", *table(result.rows), "", *settings, "", f"Run on {result.run_on}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=tasks(), metavar="TASK", help=", ".join(tasks()))
    parser.add_argument("--peers", nargs="+", choices=peers(), metavar="PEER", help=", ".join(peers()))
    parser.add_argument("--make", action="store_true", help="make the environments, and nothing else")
    parser.add_argument("--pages", action="store_true", help="write the pages of what is kept, and nothing else")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--data", type=Path, help="a folder of tables that the package does not hold")
    parser.add_argument("--limit", type=int, default=240, help="processor seconds that a peer may take for a task")
    given = parser.parse_args()
    chosen = given.peers or peers()
    if given.make:
        for peer in chosen:
            print(f"{peer}: {make(peer) or 'made'}", flush=True)
        return
    if given.pages:
        write_pages()
        return
    machine = f"{date.today()} (Python {platform.python_version()}, {os.cpu_count()} cores, one thread a fit"
    results = []
    for name in given.tasks or tasks():
        began = time.perf_counter()
        task = load(name, given.quick, given.data)
        if isinstance(task, str):
            result = Result(titled(name), "", [], 0.0, task)
        else:
            offered = [peer for peer in [OURS, *(p for p in chosen if p != OURS)] if name in fits(peer)]
            with tempfile.TemporaryDirectory() as made:
                write(task, Path(made))
                rows = [judged(peer, name, task, Path(made), given.limit) for peer in offered]
            compare(task, rows)
            run_on = f"{machine}, load {os.getloadavg()[2]:.0f})"
            result = Result(task.title, task.objective, rows, time.perf_counter() - began, run_on=run_on)
        results.append(result)
        print(f"\n{result.title}: {result.skipped or result.objective}", *table(result.rows), sep="\n", flush=True)
        if not (given.peers or given.quick):
            keep(name, result)
            write_pages()
    print("", *summary(results), sep="\n")


if __name__ == "__main__":
    main()
