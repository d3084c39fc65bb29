"""What ``fenchel fit`` runs: a formula and a csv file in, a report and a saved model out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checks import problem
from .grammar import Call, Name, parse
from .model import Model


def run(
    formula: str, data: Path, given: Mapping[str, Any], geometry: Path | None, key: str | None, out: Path, quiet: bool
) -> None:
    """Fit, print a summary, and write ``out/report.html`` and ``out/fit.model``."""
    import pandas as pd

    frame = pd.read_csv(data, sep=None, engine="python")
    options = {name: _column_or_number(frame, value) for name, value in given.items() if value is not None}
    regions = {} if geometry is None else _regions(formula, geometry, key)
    found = Model(formula, frame, env={}, graphs=regions, **options).fit(progress=not quiet and sys.stderr.isatty())
    if not quiet:
        print(found.summary())
    page = found.report(out / "report.html", regions)
    found.save(out / "fit.model")
    print(page if quiet else f"\nreport: {page}")


def _column_or_number(frame: Any, value: str) -> Any:
    if value in frame.columns:
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _regions(formula: str, geometry: Path, key: str | None) -> dict[str, Any]:
    """The outlines, by the columns that terms on graphs stand over."""
    text = json.loads(geometry.read_text(encoding="utf-8"))
    features = text.get("features") if isinstance(text, dict) else None
    if not features:
        raise problem("fenchel fit", f"{geometry} has no features", "a FeatureCollection of GeoJSON")
    for i, feature in enumerate(features):
        if key is not None:
            if key not in (feature.get("properties") or {}):
                known = ", ".join(map(str, (feature.get("properties") or {})))
                raise problem("fenchel fit", f"feature {i} of {geometry} has no property {key!r}", f"one of {known}")
            feature["id"] = feature["properties"][key]
        elif "id" not in feature:
            raise problem(
                "fenchel fit", f"feature {i} of {geometry} has no id", "ids", "--id names a property instead."
            )
    over = _graph_columns(parse(formula).terms)
    return dict.fromkeys(over, text)


def _graph_columns(terms: Any) -> list[str]:
    out: list[str] = []
    for term in terms:
        if isinstance(term, Call):
            if term.word in ("icar", "bym", "bym2", "leroux") and term.args and isinstance(term.args[0], Name):
                out.append(term.args[0].name)
            out += _graph_columns(term.args)
    return list(dict.fromkeys(out))
