"""The command line: ``fenchel fit``, ``fenchel demo``, ``fenchel reproduce``.

Commands import what they need when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from . import __version__

_TARGETS = ("glass", "germany", "volatility", "logistic")  # modules of fenchel.paper


@contextmanager
def _writing_to(out: Path) -> Iterator[None]:
    """A folder that can be written to, tried before the work begins; a missing library or a full disk in a sentence."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
        yield
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        advice = "Try another folder with --out."
        raise click.ClickException(f"{out}: cannot be written to ({error.strerror or error}). {advice}") from error


@click.group()
@click.version_option(__version__, prog_name="fenchel")
def main() -> None:
    """Fast, certified Bayesian inference in latent Gaussian models."""


@main.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder for report.html.",
)
@click.option("--quiet", is_flag=True, help="No progress display and no summary; print the path of the report only.")
def demo(out: Path, quiet: bool) -> None:
    """Map a disease: deaths from oral cancer in the districts of Germany, with a report."""
    with _writing_to(out):
        from .demo import run

        run(out, progress=not quiet, quiet=quiet)


@main.command()
@click.argument("formula")
@click.argument("data", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--family", default="gaussian", show_default=True, help="Such as poisson, binomial, bernoulli, ordinal.")
@click.option("--exposure", help="A column.")
@click.option("--trials", help="A column or a number.")
@click.option("--weights", help="A column.")
@click.option(
    "--geometry",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="GeoJSON whose features have the regions as ids: their neighbours and maps.",
)
@click.option("--id", "key", help="The property of its features that names a region, in place of their id.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder for report.html and the fitted model, fit.model.",
)
@click.option("--quiet", is_flag=True, help="No progress display and no summary; print the path of the report only.")
def fit(formula: str, data: Path, geometry: Path | None, key: str | None, out: Path, quiet: bool, **given: str) -> None:
    """Fit a model by its FORMULA to DATA, a csv file, and write a report.

    fenchel fit "deaths ~ smoking + bym2(district)" deaths.csv --family poisson --geometry map.geojson
    """
    with _writing_to(out):
        from .models.command import run

        try:
            run(formula, data, given, geometry, key, out, quiet)
        except ValueError as error:  # what the user gave cannot be used: the sentence says why
            raise click.ClickException(str(error)) from error


@main.command()
@click.argument("targets", nargs=-1, type=click.Choice([*_TARGETS, "all"]), metavar="[TARGET]...")
@click.option("--quick", is_flag=True, help="Coarser grids, fewer rivals, short caps: under a minute in all.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Folder for report.html, the figures (png, svg) and the numbers (json).",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes for untimed grids.")
@click.option(
    "--cap",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds after which a rival is stopped and reported as '>'.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of every random choice.")
@click.option("--quiet", is_flag=True, help="No progress display and no summary; print the path of the report only.")
def reproduce(targets: tuple[str, ...], quick: bool, out: Path, jobs: int, cap: float, seed: int, quiet: bool) -> None:
    """Rerun the paper's experiments on the real data and write figures, numbers and a report.

    TARGET: glass, germany, volatility, logistic, or all (the default).
    """
    names = [name for name in _TARGETS if not targets or "all" in targets or name in targets]
    with _writing_to(out):
        from .paper.reproduce import reproduce as run
        from .paper.settings import Settings

        run(names, Settings(quick=quick, jobs=jobs, cap=cap, seed=seed), out, quiet=quiet)


if __name__ == "__main__":
    main()
