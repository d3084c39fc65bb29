"""What ``fit.check()`` says: on the tables of ``defaults.py``, and on data that their own fits draw, which are right.

    python benchmarks/fit_checks.py [--sets 3] [--only ohio wine] [--jobs 2] [--sentences]

A right model should raise nothing in nine of ten data sets. Right data are joint draws of y from the default fit of the
table, with its groups and covariates; durations end where those of the table were cut off. Notes (severity 1) are
printed in brackets and are no alarms.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import defaults
import numpy as np
import pandas as pd

import fenchel
from fenchel.models.fit_check import FitCheck
from fenchel.tasks import run_tasks


def fitted(table: defaults.Table, data: pd.DataFrame) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fenchel.fit(table.formula, data, family=table.family, **table.options)


def redrawn(table: defaults.Table, data: pd.DataFrame, fit: Any, seed: int) -> pd.DataFrame | None:
    """The same rows with y from the fit; None where it draws none."""
    left = table.formula.split("~")[0].strip()
    try:
        y = fit.sample(data, 1, seed, kind="outcome")[0]
    except ValueError:
        return None
    if not left.startswith("cens("):
        return data.assign(**{left: y})
    time, event = left[5:-1].split(", ")
    end = np.where(data[event].to_numpy() > 0, data[time].max(), data[time])
    return data.assign(**{time: np.minimum(y, end), event: (y <= end).astype(int)})


def in_words(found: FitCheck) -> str:
    words = [r.name if r.severity > 1 else f"({r.name})" for r in found.remarks]
    return ", ".join(dict.fromkeys(words)) or "-"


def said(folder: Path, asked: tuple[str, int]) -> tuple[str, list[str], list[str]]:
    """The table's name; what is said of the data; and of each data set that is right, in words."""
    table = next(t for t in defaults.TABLES if t.name == asked[0])
    path = folder / f"{table.name.split('-')[0]}.json"
    data = defaults.read(path) if table.simulate is None else table.simulate()
    fit = fitted(table, data)
    found = fit.check()
    right = []
    for seed in range(asked[1]):
        drawn = redrawn(table, data, fit, seed)
        if drawn is not None:
            check = fitted(table, drawn).check()
            right.append((in_words(check), check.sentences))
    return table.name, [in_words(found), *found.sentences], right  # type: ignore[return-value]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--sets", type=int, default=3, help="right data sets of each table")
    ask.add_argument("--only", nargs="+", default=[])
    ask.add_argument("--jobs", type=int, default=None)
    ask.add_argument("--sentences", action="store_true", help="print them too")
    asked = ask.parse_args()
    present = shutil.which("Rscript") is not None
    tables = [t for t in defaults.TABLES if t.simulate is not None or present]
    names = [t.name for t in tables if not asked.only or t.name in asked.only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if present:
            defaults.from_r(folder, "data")
        work = [(each, asked.sets) for each in names]
        every = run_tasks(said, work, folder, where="fit_checks", n_jobs=asked.jobs)
    print("| table | said of the data | right data sets without alarm | said of the others |\n|---|---|---|---|")
    silent, total, reasons = 0, 0, Counter[str]()
    for name, (words, *sentences), right in every:
        alarms = [[w for w in one.split(", ") if not w.startswith(("(", "-"))] for one, _ in right]
        quiet, n = sum(not one for one in alarms), len(right)
        others = "; ".join(one for (one, _), alarm in zip(right, alarms, strict=True) if alarm)
        print(f"| {name} | {words} | {quiet} of {n} | {others} |", flush=True)
        if asked.sentences:
            for text in [*sentences, *(f"(right) {text}" for _, texts in right for text in texts)]:
                print(f"    {text}")
        silent, total = silent + quiet, total + n
        reasons.update(word for one in alarms for word in one)
    print(f"\n{silent} of {total} right data sets without alarm ({silent / max(total, 1):.0%})")
    print(", ".join(f"{word}: {n}" for word, n in reasons.most_common()) or "no alarms")


if __name__ == "__main__":
    main()
