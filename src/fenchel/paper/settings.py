"""What every experiment hands over: numbers, figures, and the sections of a page; and how they are saved.

An experiment is a function ``run(settings) -> Result``. It fits, measures and draws; it neither prints nor writes.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..report import Section

Tick = Callable[[str], None]


def silent(what: str) -> None:
    """A ``Tick`` that says nothing."""


@dataclass(frozen=True)
class Settings:
    """How an experiment runs.

    quick : smaller grids, fewer rivals, short caps: seconds instead of minutes, for a look or a test
    jobs : processes for grids (joblib)
    cap : seconds a rival may take before it is stopped and reported as ">"
    seed : of every random choice
    tick : hears a short line whenever a piece of work ends
    """

    quick: bool = False
    jobs: int = 1
    cap: float = 600.0
    seed: int = 0
    tick: Tick = silent


@dataclass
class Result:
    """One experiment's outcome.

    numbers : what goes to ``NAME.json``: plain dictionaries, lists, numbers and strings (numpy is converted)
    figures : matplotlib figures by file name; each is saved as png and svg
    sections : the experiment's part of the report
    summary : lines for the terminal
    """

    name: str
    title: str
    sections: list[Section]
    summary: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    def save(self, out: Path) -> list[Path]:
        """Write NAME.json and the figures under ``out``; return what was written."""
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
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
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
    """A live display on standard error, one line an experiment. Yields a function: title -> its tick."""
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
