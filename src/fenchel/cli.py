"""The command line: ``fenchel demo``. Commands import what they need when they run, so that ``--help`` is quick."""

from __future__ import annotations

from pathlib import Path

import click

from . import __version__


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
    try:
        from .experiments.demo import run

        run(out, progress=not quiet, quiet=quiet)
    except ImportError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
