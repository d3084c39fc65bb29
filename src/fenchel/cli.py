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


_ASKED = (
    click.option("--new-groups", type=click.Choice(["population", "error"]), default="population",
        show_default=True, help="Groups that the fit has not seen: one more of the population, or refused."),
    click.option("--without", multiple=True, metavar="TERM", help="A term whose effects are 0 in predictions; groups: "
        "the effects of all groups."),
    click.option("--interval", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
        show_default=True, help="Probability of the intervals of predictions."),
    click.option("--kind", type=click.Choice(["mean", "link", "outcome", "probability", "zero"]), default="mean",
        show_default=True, help="mean: E[y]; link: the linear predictor; outcome: y itself, with its noise; "
        "probability: that of each label; zero: P(y = 0) of a hurdle family."),
)  # fmt: skip


def _column(name: str, text: str) -> Any:
    return click.option(f"--{name}", help=text)


def _pairs(option: str, name: str, metavar: str, text: str) -> Any:
    """An option that may be given several times, each a NAME=VALUE."""
    return click.option(option, name, multiple=True, metavar=metavar, help=text)


# Names on the right are those of ``fenchel.fit``; an option that is not given leaves that function's default.
_OF_MODEL = (
    click.option("--family", help="Such as poisson, binomial, bernoulli, ordinal, cox.  [default: gaussian]"),
    _column("weights", "A column or a number: how often each row counts."),
    _column("exposure", "A column or a number."),
    _column("trials", "A column or a number."),
    _column("event", "A column: 1 where the event happened, 0 where it had not by then."),
    click.option("--geometry", type=_FILE, help="Outlines of regions: GeoJSON, or what geopandas reads. Regions that "
        "share a border are neighbours, and the report has maps."),
    click.option("--id", "key", help="The property of the outlines that names a region. Default: their ids, or a "
        "property called like the column of regions."),
    _pairs("--graph", "graphs", "COLUMN=FILE",
        "Neighbours of the regions of a column: a csv file whose first two columns are pairs."),
    _pairs("--matrix", "env", "NAME=FILE", "A matrix that the formula names, as A in (1|gr(animal, cov=A)): a csv file "
        "with names in its header and its first column."),
    _pairs("--levels", "levels", "NAME=A,B,...", "The levels of a column, in order; also those of an ordinal y. "
        "For a term: its levels, if the data do not have all of them."),
    _pairs("--reference", "references", "COLUMN=LABEL", "The level of a factor with which the others are "
        "compared. For a y with two labels: the label that is not the event."),
    click.option("--text", "texts", multiple=True, metavar="COLUMN",
        help="A column of words that look like numbers: 01001."),
    _pairs("--prior", "priors", "NAME=PRIOR", "normal(mean, sd), pc(sd, alpha), pc(range=, alpha=) or flat, by the "
        "names of the table of priors: 'bym2(district)=pc(1, 0.01)', 'phi of bym2(district)=pc(phi=0.5, alpha=2/3)'."),
    click.option("--fixed-sd", type=float, help="Prior sd of the effect of one sd of a covariate.  [default: 10]"),
    click.option("--bound", help="best, or a bound of the likelihood.  [default: best]"),
    click.option("--dispersion", metavar="'~ X'", help="A formula for the log of the sd, shape, precision or size of "
        "each row."),
    click.option("--zero", metavar="'~ X'", help="A formula for the logit of P(structural zero), or of P(zero) of a "
        "hurdle family."),
    click.option("--baseline", type=click.Choice(["rw1", "rw2", "free"]),
        help="The log hazard of cox over time.  [default: rw1]"),
)  # fmt: skip
_OF_SEARCH = (
    click.option("--accuracy", type=click.Choice(["auto", "fast", "high"]), help="fast: Gaussian at the mode; high: "
        "integrated over the hyperparameters and corrected; auto: the best answer that takes at most 15 times as long "
        "as fast, or a second.  [default: auto]"),
    click.option("--evidence", type=click.Choice(["elbo", "corrected"]), help="Criterion that learns hyperparameters."),
    click.option("--integrate", type=click.Choice(["auto", "grid", "ccd"]), help="How to integrate over them."),
    click.option("--corrected", is_flag=True,
        help="Tables and predictions beyond the Gaussian, with skewed intervals."),
    click.option("--restarts", "n_restarts", type=click.IntRange(min=0), help="Further starts of the search."),
    click.option("--seed", "rng", type=click.IntRange(min=0), help="Of the restarts.  [default: 0]"),
    click.option("--tol", type=float, help="Relative gap of every fit.  [default: 1e-10]"),
    click.option("--jobs", "n_jobs", type=int, help="Processes that search or integrate; -1 is all cores.  "
        "[default: 1]"),
    click.option("--engine", type=click.Choice(["auto", "direct", "iterative"]), help="iterative needs no factor of "
        "the precision, for groups crossed at 10^5 levels.  [default: auto]"),
    click.option("--probes", "n_probes", type=click.IntRange(min=1), help="Random vectors of the iterative engine."),
)  # fmt: skip


def _with(*options: Any) -> Any:
    """These options, in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@main.command(epilog="Exit status: 0 converged, 3 not converged (everything is written all the same), 1 an error.")
@click.argument("formula")
@click.argument("data", type=_TABLE)
@_with(*_OF_MODEL, *_OF_SEARCH)
@click.option("--predict", type=_TABLE, help="A table of new rows, written with their predictions to predictions.csv.")
@_with(*_ASKED)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder for report.html, the fitted model (fit.model), summary.txt and tables as csv.",
)
@click.option("--quiet", is_flag=True, help="No progress display and no summary; print the path of the report only.")
def fit(
    out: Path, kind: str, interval: float, new_groups: str, without: tuple[str, ...], quiet: bool, **given: Any
) -> None:
    """Fit a model by its FORMULA to DATA, a csv file (or parquet, or - for standard input), and write a report.

    \b
    fenchel fit "reaction ~ days + (days|subject)" sleep.csv
    fenchel fit "deaths ~ smoking + bym2(district)" deaths.csv --family poisson \\
        --exposure expected --geometry map.geojson --out report
    fenchel fit "sick | trials(size) ~ period + (1|herd)" herds.csv \\
        --family binomial --predict new.csv

    Rows in which a covariate is missing are left out and counted; where y is missing, it is predicted. A known part of
    the predictor stands in the formula, + offset(log(n)). A formula is arithmetic, np.log and its like, formulaic's
    transforms and the terms above: it calls nothing else.
    """  # fmt: skip
    with _writing_to(out), _in_sentences():
        from .models.command import Asked, FitCommand

        asked = Asked(kind, interval, new_groups, without, given["exposure"], given["trials"])
        converged = FitCommand(given, out, asked, quiet).run()
    if not converged:
        sys.exit(3)


@main.command()
@click.argument("model", type=_FILE)
@click.argument("data", type=_TABLE)
@_with(*_ASKED)
@click.option("--exposure", help="A column or a number. Default: the column that the fit read.")
@click.option("--trials", help="A column or a number. Default: the column that the fit read.")
@click.option(
    "--text", "texts", multiple=True, metavar="COLUMN", help="A column of words that look like numbers: 01001."
)
@click.option("--sha256", help="Of the MODEL, 64 hexadecimal digits: another file is refused before it is read.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A csv file. Default: standard output.")
def predict(
    model: Path, data: Path, out: Path | None, texts: tuple[str, ...], sha256: str | None, **given: Any
) -> None:
    """Predict the rows of DATA by a MODEL that fenchel fit has saved: DATA with mean, lower and upper.

    \b
    fenchel predict report/fit.model new.csv --out predictions.csv
    """
    with _writing_to(Path(".") if out is None else out.parent), _in_sentences():
        from .models.command import Asked
        from .models.command import predict as run

        run(model, data, out, Asked(**given), texts, sha256)


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
        from .paper.reproduce import Settings
        from .paper.reproduce import reproduce as run

        run(names, Settings(quick=quick, jobs=jobs, cap=cap, seed=seed), out, quiet=quiet)


if __name__ == "__main__":
    main()
