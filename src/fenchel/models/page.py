"""A report of a fitted model as one html page: the certificate, the model in words, its tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots.base import short_name
from ..report import Block, Bullets, Chapter, Picture, Section, Table, write_report
from .checking import WORDS, kinds_of, plot_check
from .marginal_tables import initials
from .pictures import Part, draw_map, parts_of, plot, plot_coefficients
from .stated_priors import term_named
from .tables import certificate, described, held_in_words

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

_ROWS = 24  # of a table on the page
_PLACES = 9  # of a curve that are written out
_UNLIKE = 30.0  # times as wide: coefficients of such different units are drawn for one sd of each column


def report(fit: FittedModel, path: str | Path, geometry: dict[str, Any]) -> Path:
    """Write the page; ``geometry`` are outlines of regions, by column."""
    return write_report(path, fit.model.formula, sections(fit, geometry), contents=True)


def report_of_parts(title: str, parts: Mapping[str, FittedModel], path: str | Path, geometry: dict[str, Any]) -> Path:
    """Write one page of several fits, a chapter each."""
    chapters = [Chapter(name, sections(fit, geometry)) for name, fit in parts.items()]
    return write_report(path, title, chapters, contents=True)


def sections(fit: FittedModel, geometry: dict[str, Any]) -> list[Section]:
    """What the page of a fitted model says, the certificate first."""
    first, *why = certificate(fit)
    return [
        Section("Fit", [f"{first}.", *why, Bullets(described(fit.model), "The model and its rows:")]),
        Section("Coefficients", _coefficients(fit)),
        *([Section("Hyperparameters", _hyperparameters(fit))] if len(fit.hyperparameters) else []),
        *(Section(str(name), _effect(fit, name, geometry)) for name in fit.effects),
        Section("Does the model make such data?", _check(fit)),
        Section("Priors", [_plain(fit.priors, "Every prior of the model")]),
    ]


# -- blocks -------------------------------------------------------------------------------------------------
def _coefficients(fit: FittedModel) -> list[Block]:
    frame = fit.coefficients
    out: list[Block] = []
    if len(frame):
        caption = "Per unit of each column" + ("; the intercept where each is 0" if "Intercept" in frame.index else "")
        out.append(estimates(frame, caption, fit.likelihood.ratio))
    rest = frame.drop(index="Intercept", errors="ignore")
    if len(rest):
        wide = (rest["upper"] - rest["lower"]).to_numpy()
        scaled = bool(wide.max() > _UNLIKE * wide.min())
        caption = "With 95 % intervals, each for one sd of its column." if scaled else "With 95 % intervals."
        out.append(Picture(plot_coefficients(fit, scaled=scaled), "Coefficients with intervals", caption))
    return out or ["The model has none."]


def _hyperparameters(fit: FittedModel) -> list[Block]:
    frame = fit.hyperparameters
    rows: list[list[object]] = []
    for (term, name), (value, lower, upper) in zip(
        frame.index, frame[["value", "lower", "upper"]].to_numpy(), strict=True
    ):
        known = np.isfinite(lower) and np.isfinite(upper)
        places = _places((upper - lower) / 4 if known else abs(value) / 100)
        span = f"{_fixed(lower, places)} to {_fixed(upper, places)}" if known else "at a bound"
        rows.append([term, name, _fixed(value, places), span])
    header, caption = ["term", "parameter", "value", "95 % interval"], "Intervals by the evidence about its mode"
    note = f"Coefficients, effects and predictions are {held_in_words(fit)}."
    if fit.integrated is not None:
        caption = "Values where the posterior is largest, and its intervals"
        note = "Hyperparameters are integrated out of everything else here."
    return [Table(header, rows, caption), note]


def _effect(fit: FittedModel, name: Any, geometry: dict[str, Any]) -> list[Block]:
    if fit.model.sum.shown(name) is None:
        return ["This term does not say where it is shown."]
    frame, term = fit.effects[name], term_named(fit.model.sum.effects, name)
    parts = parts_of(term, frame, str(name))
    kind = parts[0].kind
    caption = "Posterior means." if kind in ("surface", "grid") else "With 95 % intervals."
    drawn = np.ravel(np.asarray(plot(fit, name), dtype=object))[0]
    out: list[Block] = [Picture(drawn.figure, f"The effect {name}", caption)]
    over = getattr(getattr(term, "first", term), "column", None)
    if over in geometry:
        ratio = fit.likelihood.ratio
        maps = np.ravel(np.asarray(draw_map(fit, name, geometry[over]), dtype=object))[0]
        word = "Posterior means" if ratio is None else f"Posterior medians of the {ratio.replace('_', ' ')}"
        out.append(Picture(maps.figure, f"A map of {name}", f"{word}, by region."))
    if kind in ("surface", "grid"):
        return out
    if kind == "path" and len(parts) > 1:
        return out
    most = _ROWS // len(parts[:3])
    return [*out, *(_rows(fit, part, f"{part.title}: " if len(parts) > 1 else "", most) for part in parts)]


def _rows(fit: FittedModel, part: Part, title: str, most: int) -> Table:
    """A table of one panel, or of as many of its rows as are read."""
    frame, n, ratio = part.frame, len(part.frame), fit.likelihood.ratio
    if part.kind == "path" and n > most:
        at = np.unique(np.linspace(0, n - 1, _PLACES).astype(int))
        return estimates(frame.iloc[at], f"{title}{len(at)} of {n} places along it", ratio)
    if n <= most:
        return estimates(frame, f"{title}{'every level' if part.kind == 'levels' else 'every place'}", ratio)
    order, half = np.argsort(-frame["mean"].to_numpy(), kind="stable"), most // 2
    some = frame.iloc[[*order[:half], *order[-half:]]]
    return estimates(some, f"{title}the {half} largest and the {half} smallest of {n}", ratio)


def _check(fit: FittedModel) -> list[Block]:
    kinds = kinds_of(fit)
    pictures: list[Block] = [
        Picture(plot_check(fit, kind), f"A predictive check: {kind}", WORDS[kind]) for kind in kinds[:1]
    ]
    if not fit.leaves_rows_out:
        return pictures
    loo, skipped = fit.loo(), len(fit.model.data_index) - int((fit.model.target.seen > 0.0).sum())
    rows = "" if not skipped else " of the observed rows"
    return [
        *pictures,
        f"Each row predicted from all the others scores {loo.elpd:.1f} in sum (log predictive densities{rows}, larger "
        f"is better; standard error {loo.elpd_se:.1f}): what another model of the same rows is compared by.",
    ]


# -- tables -------------------------------------------------------------------------------------------------
def estimates(frame: pd.DataFrame, caption: str, ratio: str | None) -> Table:
    """Means, sds and intervals with the digits that the sds leave, and probabilities with three."""
    header = ["", "mean", "sd", "95 % interval"]
    header += [] if ratio is None else [ratio.replace("_", " "), "95 % interval"]
    above = "p_above_0" if ratio is None else "p_above_1"
    header += ["P(> 0)" if ratio is None else "P(> 1)", *(["rows"] if "n" in frame else [])]
    rows: list[list[object]] = []
    for label, one in zip(frame.index, frame.to_dict("records"), strict=True):
        places = _places(one["sd"])
        cells: list[object] = [short_name(label), _fixed(one["mean"], places), _fixed(one["sd"], places)]
        cells.append(_span(one["lower"], one["upper"], places))
        if ratio is not None:
            short = initials(ratio)
            low, high = one[f"{short}_lower"], one[f"{short}_upper"]
            places = _places((high - low) / 4)
            cells += [_fixed(one[ratio], places), _span(low, high, places)]
        cells.append(_probability(one[above]))
        rows.append([*cells, *([f"{one['n']:.0f}"] if "n" in frame else [])])
    return Table(header, rows, f"{caption[0].upper()}{caption[1:]}")


def _plain(frame: pd.DataFrame, caption: str) -> Table:
    """A table of words."""
    labels = [label if isinstance(label, tuple) else (label,) for label in frame.index]
    rows = [[*map(str, label), *map(str, row)] for label, row in zip(labels, frame.to_numpy(), strict=True)]
    return Table([*(str(name or "") for name in frame.index.names), *map(str, frame.columns)], rows, caption)


def _places(sd: float) -> int:
    """Decimals that show two digits of a standard deviation."""
    return 3 if not (np.isfinite(sd) and sd > 0.0) else int(np.clip(1 - np.floor(np.log10(sd)), 0, 12))


def _fixed(value: float, places: int) -> str:
    if not np.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e7 or places > 7:
        return f"{value:.3g}"
    return f"{value:.{places}f}"


def _span(lower: float, upper: float, places: int) -> str:
    return f"{_fixed(lower, places)} to {_fixed(upper, places)}"


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.0005 else "> 0.999" if p > 0.9995 else f"{p:.3f}"
