"""What ``fenchel fit`` and ``fenchel predict`` run: a formula and a table in; a page, tables and a model out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import problem
from ..files import load
from .fitted import FittedModel
from .grammar import Call, Name, parse
from .model import Model
from .sources import pair, read_matrix, read_outlines, read_pairs, read_prior, read_table, region_texts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Asked:
    """What ``predict`` is asked for: its options of the command line."""

    kind: str = "mean"
    interval: float | None = 0.95
    new_groups: str = "population"
    exposure: str | None = None
    trials: str | None = None


@dataclass(frozen=True)
class Fit:
    """The options of ``fenchel fit``; its help says what each is."""

    formula: str
    data: Path
    out: Path
    family: str | None = None
    exposure: str | None = None
    trials: str | None = None
    event: str | None = None
    weights: str | None = None
    geometry: Path | None = None
    key: str | None = None
    graphs: Sequence[str] = ()
    matrices: Sequence[str] = ()
    priors: Sequence[str] = ()
    texts: Sequence[str] = ()
    evidence: str = "elbo"
    restarts: int = 0
    seed: int = 0
    jobs: int = 1
    predict: Path | None = None
    quiet: bool = False
    asked: Asked = field(default_factory=Asked)

    def run(self) -> bool:
        """Fit and write everything; whether the fit converged."""
        over = _graph_columns(parse(self.formula).terms)
        outlines = None if self.geometry is None else read_outlines(self.geometry, self.key, over)
        graphs: dict[str, Any] = {} if outlines is None else dict.fromkeys(over, outlines)
        pairs = {name: read_pairs(Path(file)) for name, file in (pair("--graph", text) for text in self.graphs)}
        matrices = dict(pair("--matrix", text) for text in self.matrices)
        texts = [*self.texts, *(region_texts(outlines, over) if outlines is not None else ()), *pairs]
        frame = read_table(self.data, texts)
        lost = [name for name in self.texts if name not in frame.columns]
        if lost:
            raise problem("fenchel fit", f"--text {lost[0]!r} is no column of {self.data}", "a column")
        given = {"exposure": self.exposure, "trials": self.trials, "event": self.event, "weights": self.weights}
        model = Model(
            self.formula,
            frame,
            self.family,
            **{name: _column_or_number(frame, value) for name, value in given.items() if value is not None},
            graphs={**graphs, **pairs},
            env={name: read_matrix(Path(file)) for name, file in matrices.items()},
            priors=dict(map(read_prior, self.priors)),
            _depth=None,
        )
        new = None if self.predict is None else read_table(self.predict, texts)  # a wrong file is found before the work
        fit = model.fit(
            progress=not self.quiet and sys.stderr.isatty(),
            n_restarts=self.restarts,
            seed=self.seed,
            n_jobs=self.jobs,
            evidence=self.evidence,
        )
        self._write(fit, new, graphs)
        return fit.converged

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


def predict(model: Path, data: Path, out: Path | None, asked: Asked, texts: Sequence[str] = ()) -> None:
    """Write the rows of a table with what a saved model says of them, to a file or to standard output."""
    fit = load(model)
    if not isinstance(fit, FittedModel):
        raise problem("fenchel predict", f"{model} holds a {type(fit).__name__}", "a fitted model of fenchel fit")
    known = [name for term in fit.model.sum.effects for name in term.columns if _are_words(term.levels)]
    table = predicted(fit, read_table(data, [*texts, *map(str, known)]), asked)
    if out is None:
        table.to_csv(sys.stdout, index=False)
    else:
        print(_csv(table, out, index=False))


def predicted(fit: FittedModel, new: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """The table with the columns mean, lower and upper, or of labels with the probability of each."""
    interval = None if asked.kind == "probability" else asked.interval
    rows = {"exposure": asked.exposure, "trials": asked.trials}
    given = {name: _column_or_number(new, value) for name, value in rows.items() if value is not None}
    found = fit.predict(new, asked.kind, interval=interval, new_groups=asked.new_groups, **given)
    found = found.to_frame("mean") if found.ndim == 1 else found
    names = {name: f"P({name})" if asked.kind == "probability" else str(name) for name in found.columns}
    taken = set(new.columns)
    return new.join(found.rename(columns={k: f"predicted_{v}" if v in taken else v for k, v in names.items()}))


# -- small things -------------------------------------------------------------------------------------------
def _csv(frame: pd.DataFrame, path: Path, index: bool = True) -> Path:
    """Write a table whole: a file that was there stays until the new one is complete."""
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


def _are_words(levels: Any) -> bool:
    return bool(levels) and all(isinstance(level, str) for level in levels)


def _column_or_number(frame: Any, value: str) -> Any:
    if value in frame.columns:
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _graph_columns(terms: Any) -> list[str]:
    """The columns that terms on graphs stand over."""
    out: list[str] = []
    for term in terms:
        if isinstance(term, Call):
            if term.word in ("icar", "bym", "bym2", "leroux") and term.args and isinstance(term.args[0], Name):
                out.append(term.args[0].name)
            out += _graph_columns(term.args)
    return list(dict.fromkeys(out))
