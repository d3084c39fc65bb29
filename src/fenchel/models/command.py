"""The commands ``fenchel fit`` and ``fenchel predict``: from a formula and files to a summary, tables and a model.

The files are tables, outlines of regions, pairs of neighbours and matrices; priors come as text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import problem
from ..files import load
from ..terms import WORDS
from .command_files import (
    pair,
    read_matrix,
    read_outlines,
    read_pairs,
    read_priors,
    read_table,
    region_texts,
    split_levels,
    with_levels,
    with_reference,
)
from .fitted import FittedModel
from .grammar import Call, Name, parse
from .model import Model

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("exposure", "trials", "event", "weights")  # options that are a column or a number


@dataclass(frozen=True)
class Asked:
    """The options of ``fenchel predict``."""

    kind: str = "mean"
    interval: float | None = 0.95
    new_groups: str = "population"
    without: Sequence[str] = ()
    exposure: str | None = None
    trials: str | None = None


@dataclass(frozen=True)
class FitCommand:
    """``fenchel fit``: its options under the names of ``fenchel.fit``; None if an option is not given."""

    options: Mapping[str, Any]
    out: Path
    asked: Asked = field(default_factory=Asked)
    quiet: bool = False

    def run(self) -> bool:
        """Fit the model and write the results; returns whether the fit converged."""
        given = {name: value for name, value in self.options.items() if value not in (None, ())}
        over = _graph_columns(parse(given["formula"]).terms)
        outlines = read_outlines(given["geometry"], given.get("key"), over) if "geometry" in given else None
        maps: dict[str, Any] = {} if outlines is None else dict.fromkeys(over, outlines)
        pairs = {name: read_pairs(Path(file)) for name, file in _named("--graph", given.get("graphs"))}
        own = region_texts(outlines, over) if outlines is not None else []
        texts = [*given.get("texts", ()), *own, *pairs]
        model = self._model(given, texts, {**maps, **pairs})
        new = None
        if "predict" in given:
            new = read_table(given["predict"], texts)  # an error in the file is raised before the fit
        of_search = _options_of(Model.fit, given)
        fit = model.fit(progress=not self.quiet and sys.stderr.isatty(), **of_search)
        fit = fit.corrected() if given["corrected"] else fit
        self._write(fit, new, maps)
        return fit.converged

    def _model(self, given: Mapping[str, Any], texts: Sequence[str], graphs: dict[str, Any]) -> Model:
        """The model of the options, with the files that they name."""
        frame = read_table(given["data"], texts)
        lost = [name for name in given.get("texts", ()) if name not in frame.columns]
        if lost:
            raise problem("fenchel fit", f"--text {lost[0]!r} is no column of {given['data']}", "a column")
        levels = {name: split_levels(frame, name, text) for name, text in _named("--levels", given.get("levels"))}
        frame = with_levels(frame, levels, parse(given["formula"]).response.text.strip("`"))
        for name, label in _named("--reference", given.get("references")):
            frame = with_reference(frame, name, label)
        read = {name: _column_or_number(frame, given[name]) for name in ROWS if name in given}
        read |= {"data": frame, "graphs": graphs, "levels": levels, "priors": read_priors(given.get("priors", ()))}
        read["env"] = {name: read_matrix(Path(file)) for name, file in _named("--matrix", given.get("env"))}
        return Model(**(_options_of(Model, given) | read), _depth=None)

    def _write(self, fit: FittedModel, new: pd.DataFrame | None, outlines: dict[str, Any]) -> None:
        written = []
        if new is not None:
            written.append(_csv(predicted(fit, new, self.asked), self.out / "predictions.csv", index=False))
        if not self.quiet:
            print(fit.summary())
        page = fit.report(self.out / "report.html", outlines)
        fit.save(self.out / "fit.model")
        (self.out / "summary.txt").write_text(fit.summary() + "\n", encoding="utf-8")
        written += [self.out / "fit.model", self.out / "summary.txt"]
        written += [_csv(getattr(fit, name), self.out / f"{name}.csv") for name in ("coefficients", "hyperparameters")]
        used: set[str] = set()
        for name in fit.effects:
            written.append(_csv(fit.effects[name], self.out / "effects" / f"{_file_name(name, used)}.csv"))
        print(page if self.quiet else f"\nreport: {page}")
        if not self.quiet:
            print(f"beside it: {', '.join(str(path.relative_to(self.out)) for path in written)}")


def predict(
    model: Path, data: Path, out: Path | None, asked: Asked, texts: Sequence[str] = (), sha256: str | None = None
) -> None:
    """Write the predictions of a saved model for the rows of a table, to a file or standard output."""
    fit = load(model, sha256)
    if not isinstance(fit, FittedModel):
        raise problem("fenchel predict", f"{model} holds a {type(fit).__name__}", "a fitted model of fenchel fit")
    parts = list(fit.parts.values()) or [fit]
    effects = [term for part in parts for term in part.model.sum.effects]
    known = [name for term in effects if {type(level) for level in term.levels or ()} == {str} for name in term.columns]
    table = predicted(fit, read_table(data, [*texts, *map(str, known)]), asked)
    if out is None:
        table.to_csv(sys.stdout, index=False)
    else:
        print(_csv(table, out, index=False))


def predicted(fit: FittedModel, new: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """The table with columns mean, lower and upper, or with the probability of each label."""
    interval = None if asked.kind == "probability" else asked.interval
    rows = {"exposure": asked.exposure, "trials": asked.trials}
    given = {name: _column_or_number(new, value) for name, value in rows.items() if value is not None}
    about: dict[str, Any] = {"interval": interval, "new_groups": asked.new_groups, "without": list(asked.without)}
    result = fit.predict(new, asked.kind, **about, **given)
    result = result.to_frame("mean") if result.ndim == 1 else result
    names = {name: f"P({name})" if asked.kind == "probability" else str(name) for name in result.columns}
    taken = set(new.columns)
    return new.join(result.rename(columns={k: f"predicted_{v}" if v in taken else v for k, v in names.items()}))


# -- small things -------------------------------------------------------------------------------------------
def _csv(frame: pd.DataFrame, path: Path, index: bool = True) -> Path:
    """Write a table atomically: an existing file is replaced when the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    frame.to_csv(part, index=index)
    os.replace(part, path)
    return path


def _file_name(name: Any, used: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", str(name)).strip("-") or "term"
    out, k = plain, 1
    while out in used:
        out, k = f"{plain}-{k + 1}", k + 1
    used.add(out)
    return out


def _named(option: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    """Each NAME=VALUE of an option."""
    return [pair(option, text) for text in texts or ()]


def _options_of(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a function accepts."""
    return {name: given[name] for name in signature(function).parameters if name in given}


def _column_or_number(frame: Any, value: str) -> Any:
    if value in frame.columns:
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _graph_columns(terms: Iterable[Any]) -> list[str]:
    """The columns that terms on graphs stand over."""
    out: list[str] = []
    for term in terms:
        match term:
            case Call(args=[Name(name=name), *_]) if "graph" in WORDS[term.word].needs:
                out.append(name)
            case Call():
                out += _graph_columns(term.args)
    return list(dict.fromkeys(out))
