"""A report of a fitted model as one html page: the certificate, the model, its tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report import Block, Picture, Pre, Section, Table, write_report
from .pictures import draw_map, plot, predictive_check
from .tables import summary

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

_ROWS = 25  # of a table on the page


def report(fit: FittedModel, path: str | Path, geometry: dict[str, Any]) -> Path:
    """Write the page; ``geometry`` are outlines of regions, by column."""
    text = summary(fit)
    sections = [
        Section("Fit", [text.split("\n", 1)[0], Pre(text.split("\n", 1)[1].strip())]),
        Section("Coefficients", _coefficients(fit)),
        *(Section(str(name), _effect(fit, name, geometry)) for name in fit.effects),
        Section(
            "Does the model make such data?",
            [
                Picture(
                    predictive_check(fit),
                    "Histogram of the response with a band of histograms of simulated data sets",
                    "The data, and the middle 95 % of 100 data sets that the fitted model makes.",
                ),
                f"Leave-one-out: {fit.loo()!r}.",
            ],
        ),
    ]
    return write_report(path, fit.model.formula, sections, contents=True)


def _coefficients(fit: FittedModel) -> list[Block]:
    frame = fit.coefficients
    out: list[Block] = []
    if len(frame):
        out.append(_table(frame, "Means, standard deviations and 95 % intervals"))
    if len(frame.drop(index="Intercept", errors="ignore")):
        out.append(Picture(plot(fit), "Coefficients with intervals", "Coefficients with 95 % intervals."))
    return out or ["The model has none."]


def _effect(fit: FittedModel, name: Any, geometry: dict[str, Any]) -> list[Block]:
    frame = fit.effects[name]
    out: list[Block] = [Picture(plot(fit, name), f"The effect {name} with intervals", "With 95 % intervals.")]
    if frame.index.name in geometry:
        outlines = geometry[frame.index.name]
        out.append(Picture(draw_map(fit, name, outlines), f"A map of {name}", "Posterior means by region."))
    shown = frame if len(frame) <= _ROWS else frame.loc[frame["mean"].abs().sort_values(ascending=False).index[:_ROWS]]
    caption = "Every level" if len(frame) <= _ROWS else f"The {_ROWS} largest of {len(frame)} effects"
    return [*out, _table(shown, caption)]


def _table(frame: pd.DataFrame, caption: str) -> Table:
    rows = []
    for label, row in zip(frame.index, frame.to_numpy(), strict=True):
        shown = ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)
        rows.append([shown, *(f"{value:.4g}" for value in row)])
    return Table(["", *map(str, frame.columns)], rows, caption)
