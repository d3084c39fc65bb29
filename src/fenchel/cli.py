"""The command line: ``fenchel fit``, ``fenchel predict``, ``fenchel demo``, ``fenchel reproduce``.

Commands import what they need when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_TABLE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@contextmanager
def _in_sentences() -> Iterator[None]:
    """What the user gave and cannot be used in a sentence; warnings on standard error, a line each."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            click.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        try:
            yield
        except MemoryError as error:
            raise click.ClickException("there is not enough memory for this model and these data.") from error
        except ValueError as error:
            raise click.ClickException(str(error)) from error


def _asked(command: Any) -> Any:
    """The options of predictions."""
    for option in (
        click.option("--new-groups", type=click.Choice(["population", "error"]), default="population",
            show_default=True, help="Groups that the fit has not seen: one more of the population, or refused."),
        click.option("--interval", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
            show_default=True, help="Probability of the intervals of predictions."),
        click.option("--kind", type=click.Choice(["mean", "link", "outcome", "probability"]), default="mean",
            show_default=True, help="E[y]; the linear predictor; y itself, whose interval is wider; of labels the "
            "probability of each."),
    ):  # fmt: skip
        command = option(command)
    return command


@main.command(epilog="Exit status: 0 converged, 3 not converged (everything is written all the same), 1 an error.")
@click.argument("formula")
@click.argument("data", type=_TABLE)
@click.option("--family", help="Such as poisson, binomial, bernoulli, ordinal.  [default: gaussian]")
@click.option("--exposure", help="A column or a number.")
@click.option("--trials", help="A column or a number.")
@click.option("--event", help="A column: 1 where the event happened, 0 where it had not by then.")
@click.option("--weights", help="A column: how often each row counts.")
@click.option(
    "--geometry",
    type=_FILE,
    help="Outlines of regions: GeoJSON, or what geopandas reads. Regions that "
    "share a border are neighbours, and the report has maps.",
)
@click.option(
    "--id",
    "key",
    help="The property of the outlines that names a region. Default: their ids, or a property "
    "called like the column of regions.",
)
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    metavar="COLUMN=FILE",
    help="Neighbours of the regions of a column: a csv file whose first two columns are pairs.",
)
@click.option(
    "--matrix",
    "matrices",
    multiple=True,
    metavar="NAME=FILE",
    help="A matrix that the formula names, as A in "
    "(1|gr(animal, cov=A)): a csv file with names in its header and its first column.",
)
@click.option(
    "--prior",
    "priors",
    multiple=True,
    metavar="NAME=PRIOR",
    help="normal(mean, sd) of a coefficient, pc(sd, alpha) or flat of a term: --prior 'bym2(district)=pc(1, 0.01)'.",
)
@click.option(
    "--text", "texts", multiple=True, metavar="COLUMN", help="A column of words that look like numbers: 01001."
)
@click.option(
    "--evidence",
    type=click.Choice(["elbo", "corrected"]),
    default="elbo",
    show_default=True,
    help="What hyperparameters are learned by; corrected is slower, and better for few binary rows a group.",
)
@click.option(
    "--restarts", type=click.IntRange(min=0), default=0, show_default=True, help="Further starts of the search."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the restarts.")
@click.option(
    "--jobs", type=int, default=1, show_default=True, help="Processes that search from them; -1 is all cores."
)
@click.option("--predict", type=_TABLE, help="A table of new rows, written with their predictions to predictions.csv.")
@_asked
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder for report.html, the fitted model (fit.model), summary.txt and tables as csv.",
)
@click.option("--quiet", is_flag=True, help="No progress display and no summary; print the path of the report only.")
def fit(out: Path, kind: str, interval: float, new_groups: str, **given: Any) -> None:
    """Fit a model by its FORMULA to DATA, a csv file (or parquet, or - for standard input), and write a report.

    \b
    fenchel fit "reaction ~ days + (days|subject)" sleep.csv
    fenchel fit "deaths ~ smoking + bym2(district)" deaths.csv --family poisson \\
        --exposure expected --geometry map.geojson --out report
    fenchel fit "sick | trials(size) ~ period + (1|herd)" herds.csv \\
        --family binomial --predict new.csv

    Rows in which a covariate is missing are left out and counted; where y is missing, it is predicted.
    """  # fmt: skip
    with _writing_to(out), _in_sentences():
        from .models.command import Asked, Fit

        asked = Asked(kind, interval, new_groups, given["exposure"], given["trials"])
        converged = Fit(out=out, asked=asked, **given).run()
    if not converged:
        sys.exit(3)


@main.command()
@click.argument("model", type=_FILE)
@click.argument("data", type=_TABLE)
@_asked
@click.option("--exposure", help="A column or a number. Default: the column that the fit read.")
@click.option("--trials", help="A column or a number. Default: the column that the fit read.")
@click.option(
    "--text", "texts", multiple=True, metavar="COLUMN", help="A column of words that look like numbers: 01001."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A csv file. Default: standard output.")
def predict(model: Path, data: Path, out: Path | None, texts: tuple[str, ...], **given: Any) -> None:
    """Predict the rows of DATA by a MODEL that fenchel fit has saved: DATA with mean, lower and upper.

    \b
    fenchel predict report/fit.model new.csv --out predictions.csv
    """
    with _writing_to(Path(".") if out is None else out.parent), _in_sentences():
        from .models.command import Asked
        from .models.command import predict as run

        run(model, data, out, Asked(**given), texts)


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
