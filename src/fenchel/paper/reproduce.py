"""``fenchel reproduce``: run experiments one after another, save what each hands over, write one page.

Experiments are modules of this room with ``run(settings) -> Result``; imported when asked for. They never run
side by side: most of what they report is time.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from threadpoolctl import threadpool_info, threadpool_limits

from ..plots.base import new_figure
from ..report import Bullets, Section, Table, write_report
from .settings import Result, Settings, progress_bar, versions

TITLE = "Fast dual variational inference: the paper's experiments, rerun"
PAPER = (
    "Khan, Aravkin, Friedlander and Seeger, Fast Dual Variational Inference for Non-Conjugate Latent Gaussian Models, "
    "ICML 2013"
)


def reproduce(names: Sequence[str], settings: Settings, out: Path, quiet: bool = False) -> Path:
    """Run the named experiments, save each under ``out`` and write ``out/report.html``; return its path.

    Parameters
    ----------
    names : modules of ``fenchel.experiments``
    settings : how they run; its ``tick`` is replaced by a live display on standard error
    out : folder, made if missing
    quiet : print the path of the report only
    """
    new_figure(1.0, 1.0)  # without matplotlib the sentence comes now, not after an hour
    modules = [importlib.import_module(f".{name}", __package__) for name in names]
    # one thread for all: numpy and scipy bring a BLAS each, and their idle threads would disturb whoever uses both
    with threadpool_limits(1):
        began, results, seconds = time.perf_counter(), [], []
        for name, module in zip(names, modules, strict=True):
            start = time.perf_counter()
            # one display an experiment: what is printed between them reaches standard output
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
    """BLAS threads, library by library."""
    named = {f"{p['num_threads']} ({p['internal_api']} {p.get('version') or ''})" for p in threadpool_info()}
    return ", ".join(sorted(named)) or "unknown"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60:02d} s"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
