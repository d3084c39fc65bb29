"""``fenchel reproduce``: run experiments one after another, save their results, and write one page.

An experiment is a module of this package with a function ``run(settings) -> Result``, imported when it is
run. It fits, measures and draws, but neither prints nor writes. Experiments never run in parallel, because
most of their results are times.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from ..plots.base import new_figure
from ..report import Bullets, Section, Table, write_report

TITLE = "Fast dual variational inference: the paper's experiments, rerun"
PAPER = (
    "Khan, Aravkin, Friedlander and Seeger, Fast Dual Variational Inference for Non-Conjugate Latent Gaussian Models, "
    "ICML 2013"
)


def reproduce(names: Sequence[str], settings: Settings, out: Path, quiet: bool = False) -> Path:
    """Run the named experiments, save each under ``out`` and write ``out/report.html``; return its path.

    Parameters
    ----------
    names : modules of ``fenchel.paper``
    settings : settings of all experiments; ``tick`` is replaced by a live display on standard error
    out : folder, made if missing
    quiet : print only the path of the report
    """
    new_figure(1.0, 1.0)  # a missing matplotlib gives an error now, not after an hour
    modules = [importlib.import_module(f".{name}", __package__) for name in names]
    # one BLAS thread, because numpy and scipy each bring a BLAS, whose idle threads would slow each other down
    with threadpool_limits(1):
        began, results, seconds = time.perf_counter(), [], []
        for name, module in zip(names, modules, strict=True):
            start = time.perf_counter()
            # one display for each experiment, so that text printed between them reaches standard output
            with progress_bar(not quiet, [name]) as tick_for:
                result: Result = module.run(replace(settings, tick=tick_for(name)))
                result.save(out)
            results.append(result)
            seconds.append(time.perf_counter() - start)
            if not quiet:
                click.echo("\n".join([f"{result.title} ({_duration(seconds[-1])})", *_indented(result.summary), ""]))
        chapters = [Section(result.title, sections=result.sections) for result in results]
        opening = _opening(results, seconds, time.perf_counter() - began, settings)
    page = write_report(out / "report.html", TITLE, [opening, *chapters], _lead(settings), contents=True)
    click.echo(str(page) if quiet else f"report: {page}")
    return page


def _lead(settings: Settings) -> str:
    quick = (
        " This is a quick run, to see that everything works: coarse grids, few rivals, short caps. Its numbers are not "
        "those of a full run."
    )
    return (
        f"{PAPER}. Its experiments on the real data, with every method on the same clock and judged by the same "
        "objective. Every number on this page was computed by the run that wrote it, unless it is said to be the "
        f"paper's.{quick if settings.quick else ''}"
    )


def _opening(results: Sequence[Result], seconds: Sequence[float], total: float, settings: Settings) -> Section:
    rows: list[list[object]] = [[name, value] for name, value in versions().items()]
    rows += [
        ["cores", os.cpu_count() or 1],
        ["threads of the linear algebra", _threads()],
        ["run", "quick" if settings.quick else "full"],
        ["seed", settings.seed],
        ["cap on a rival", f"{settings.cap:g} s"],
        ["processes for untimed grids", settings.jobs],
        ["total time", _duration(total)],
    ]
    spent = [[result.title, _duration(s)] for result, s in zip(results, seconds, strict=True)]
    findings = [Bullets([line.strip() for line in result.summary], f"{result.title}:") for result in results]
    return Section(
        "In short",
        [
            *findings,
            Table(["experiment", "time"], spent, "How long each experiment took, drawing included"),
            Table(["what", "value"], rows, "How this page was made"),
            "Seconds are wall-clock seconds of one process. Timed work never runs beside other work of this command; "
            "judging a rival's solution does not count as its time.",
        ],
    )


def _threads() -> str:
    """Number of BLAS threads of each library."""
    named = {f"{p['num_threads']} ({p['internal_api']} {p.get('version') or ''})" for p in threadpool_info()}
    return ", ".join(sorted(named)) or "unknown"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60:02d} s"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# -- arguments and results of an experiment ----------------------------------------------------------
Tick = Callable[[str], None]


def silent(what: str) -> None:
    """A ``Tick`` that does nothing."""


@dataclass(frozen=True)
class Settings:
    """Settings of an experiment.

    quick : smaller grids, fewer methods and short time limits, for a test in seconds instead of minutes
    jobs : processes for grids (joblib)
    cap : time limit of each method in seconds; methods that reach it are reported as ">"
    seed : seed of all random choices
    tick : called with a short line whenever a piece of work ends
    """

    quick: bool = False
    jobs: int = 1
    cap: float = 600.0
    seed: int = 0
    tick: Tick = silent


@dataclass
class Result:
    """The result of one experiment.

    numbers : the content of ``NAME.json``: dictionaries, lists, numbers and strings (numpy is converted)
    sections : the experiment's part of the report; each of its pictures is saved as png and svg
    summary : lines for the terminal
    """

    name: str
    title: str
    sections: list[Section]
    summary: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, Any]:
        """The figures of all sections by file name."""
        return {picture.file: picture.figure for section in self.sections for picture in section.pictures()}

    def save(self, out: Path) -> list[Path]:
        """Write NAME.json and the figures under ``out``; return the paths."""
        out.mkdir(parents=True, exist_ok=True)
        page = out / f"{self.name}.json"
        page.write_text(json.dumps(plain(self.numbers), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        written = [page]
        for name, figure in self.figures.items():
            for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
                path = out / f"{self.name}_{name}.{suffix}"
                figure.savefig(path, facecolor="white", metadata=metadata, dpi=144)
                written.append(path)
        return written


def plain(value: Any) -> Any:
    """The same value for json: arrays as lists, NaN and infinities as null."""
    match value:
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case float() if not np.isfinite(value):
            return None
    return value


def versions() -> dict[str, str]:
    """Versions of the software and the machine with which the numbers were computed."""
    import scipy

    from .. import __version__

    return {
        "fenchel": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": f"{platform.machine()}, {platform.system()}",
    }


@contextmanager
def progress_bar(show: bool, titles: Iterable[str]) -> Iterator[Callable[[str], Tick]]:
    """A live display on standard error with a line for each experiment. Yields a function: title -> its tick."""
    if not show:
        yield lambda title: silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]:<12}"),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {title: bar.add_task("", total=None, title=title, start=False) for title in titles}

        def tick_for(title: str) -> Tick:
            bar.start_task(tasks[title])
            return lambda what: bar.update(tasks[title], description=what)

        yield tick_for
