"""A fitted model as one html page for readers who do not write programs: what was found, and what to worry about.

Coefficients are a picture first, then a table; the tables of computing come last.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots.base import short_name
from ..report import Block, Bullets, Picture, Pre, Row, Section, Table, write_report
from .capabilities import answers
from .fit_check import CURES
from .pictures import Panel, draw_map, panels_of, plot, plot_coefficients
from .predictions import labels_of, mean_given
from .reference_grid import only_groups
from .row_criteria import WORDS, kinds_of, plot_check
from .stated_priors import term_named
from .summaries import between_bounds, described, held_in_words, part_title
from .tables import initials

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

_ROWS = 24  # of a table on the page
_PLACES = 9  # of a curve that are written out
_UNLIKE = 30.0  # times as wide: coefficients of such different units are drawn for one sd of each column
_EFFECTS = 6  # covariates whose effect is drawn
_LEVELS = 6  # levels of a column that are named
_WORDS_OF_PAGE = [
    "An estimate is the mean of what is believed after the data; sd is how uncertain it is.",
    "The 95 % interval holds the unknown with a probability of 95 %, if the model is right.",
    "P(> 0) is the probability that the unknown is above 0; of a ratio P(> 1), that it is above 1.",
    "A level in brackets, as sex[T.m], is compared with the level that is not listed.",
    "(1|clinic) is a level of its own for each clinic; its sd says how much clinics differ.",
]


def report(fit: FittedModel, path: str | Path, geometry: dict[str, Any]) -> Path:
    """Write the page, of several parts a chapter each; ``geometry`` are outlines of regions, by column."""
    parts = [] if fit.parts else sections(fit, geometry)
    for name, part in fit.parts.items():
        title = part_title(name)
        parts.append(Section(f"{title[0].upper()}{title[1:]}", sections=sections(part, geometry)))
    return write_report(path, fit.model.formula, parts, contents=True)


def sections(fit: FittedModel, geometry: dict[str, Any]) -> list[Section]:
    """What the page of a fitted model says."""
    pictures = _covariates(fit)
    return [
        Section("The model", [_sentence(fit), *_equation(fit), Bullets(described(fit.model), "In words:")]),
        Section("Data", [_data(fit)]),
        Section("Coefficients", _coefficients(fit)),
        Section("What to worry about", _worries(fit)),
        *([Section("What covariates do", pictures)] if pictures else []),
        *(Section(str(name), _effect(fit, name, geometry)) for name in fit.effects),
        Section("Does the model make such data?", _check(fit)),
        *([Section("Hyperparameters", _hyperparameters(fit))] if len(fit.hyperparameters) else []),
        Section("Priors", [_plain(fit.priors, "Every prior of the model")]),
        Section("Fit", _computed(fit)),
        Section("How to read this page", [Bullets(_WORDS_OF_PAGE)]),
    ]


# -- the model and its data ---------------------------------------------------------------------------------
def _sentence(fit: FittedModel) -> str:
    reduction, model = fit.model.reduction, fit.model
    (n, seen), names = reduction.counted(model), [str(name) for name in reduction.covariates(model)]
    by = f" by {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f" by {names[0]}" if names else ""
    done = "The computation converged" if fit.converged else "THE COMPUTATION DID NOT CONVERGE"
    return f"{reduction.outcome(model)[0]} is explained{by}, from {seen} observed rows of {n}. {done}."


def _equation(fit: FittedModel) -> list[Block]:
    """The predictor with its estimates, where one line says it."""
    frame = fit.coefficients
    if frame.index.nlevels > 1 or not len(frame):
        return []
    parts = []
    for name, mean, sd in zip(frame.index, frame["mean"], frame["sd"], strict=True):
        size = _fixed(abs(mean), _places(sd))
        sign = "-" if mean < 0 else "+"
        parts.append(f"{sign} {size}" + ("" if name == "Intercept" else f" {name}"))
    parts += [f"+ {term.name}" for term in fit.model.sum.effects]
    lines = [f"{_left(fit)} =", *(f"    {part}" for part in parts)]
    return ["As a formula, with the estimates:", Pre("\n".join(lines))]


def _left(fit: FittedModel) -> str:
    """What the predictor is of y: found from the means that it gives."""
    name, eta, labels = fit.model.response.name, np.array([[-1.0, 0.5]]), labels_of(fit)
    if not answers(fit, "predict") or (labels is not None and len(labels) > 2):
        return "eta"
    first = fit.model.frame.iloc[:1]
    own = fit.model.response.at(fit.found.likelihood, first, dict.fromkeys(("exposure", "trials"), 1.0))
    mean, values = mean_given(fit, own, eta), fit.model.target.values
    if labels is not None and values is not None:  # the probability of the second of two
        name, mean = f"{name} = {labels[1]}", (mean - values[0]) / (values[1] - values[0])
    if np.allclose(mean, eta):
        return f"mean of {name}"
    if np.allclose(mean, np.exp(eta)):
        return f"log(mean of {name})"
    return f"log odds of {name}" if np.allclose(mean, 1.0 / (1.0 + np.exp(-eta))) else f"eta of {name}"


def _data(fit: FittedModel) -> Block:
    """A row for each column that the model uses."""
    model = fit.model
    rows: list[list[object]] = []
    labels, (outcome, y) = labels_of(fit), model.reduction.outcome(model)
    if labels is not None:
        share = [f"{label} {100 * float((y == k).mean()):.0f} %" for k, label in enumerate(labels[:_LEVELS])]
        rows.append([str(outcome), "outcome, levels", ", ".join(share)])
    else:
        trials = model.row_values("trials")
        of = "" if trials is None else f"; trials {_range(trials)}"
        rows.append([str(outcome), "outcome", f"{_range(y)}{of}"])
    for name in model.reduction.covariates(model):
        column = model.reduction.data_rows(model)[0][name]
        if column.dtype.kind in "iuf" and not only_groups(fit, name) and name not in model.fixed.expression.factors:
            rows.append([str(name), "number", _range(column)])
            continue
        levels = [str(level) for level in _ordered(column.unique().tolist())]
        named = ", ".join(levels[:_LEVELS]) + (", ..." if len(levels) > _LEVELS else "")
        rows.append([str(name), "groups" if only_groups(fit, name) else "levels", f"{len(levels)}: {named}"])
    return Table(["column", "what it is", "values"], rows, "The rows that are used")


def _range(values: Any) -> str:
    """The ends and the mean of numbers, some of which may be missing."""
    x = np.asarray(values, dtype=np.float64)
    return f"{np.nanmin(x):.4g} to {np.nanmax(x):.4g}, mean {np.nanmean(x):.4g}"


def _ordered(levels: list[Any]) -> list[Any]:
    """Numbers by size, all else by their text."""
    numbers = all(np.isreal(level) for level in levels)
    return sorted(levels) if numbers else sorted(levels, key=str)


def _worries(fit: FittedModel) -> list[Block]:
    """The full check, worst first."""
    found = fit.check()
    texts = [
        text + (f" What helps: {CURES[remark.name]}." if remark.name in CURES else "")
        for text, remark in zip(found, found.remarks, strict=True)
    ]
    rest = [f"{found.untested}."] if found.untested else []
    if not texts:
        return ["Nothing was found: the data look like what the model makes.", *rest]
    return [Bullets(texts, "The worst first:"), *rest]


def _covariates(fit: FittedModel) -> list[Block]:
    """What each covariate does to the mean of y."""
    if not answers(fit, "means") or not answers(fit, "predict"):
        return []
    names = [name for name in fit.model.fixed.expression.names if name in fit.model.covariates]
    names = [name for name in names if not only_groups(fit, name)][:_EFFECTS]
    pictures = [
        Picture(fit.plot_effect(name).figure, f"The mean of y along {name}", f"{name}: with 95 % intervals.")
        for name in names
    ]
    return [Row(pictures)] if pictures else []


def _computed(fit: FittedModel) -> list[Block]:
    """The certificate, and what the Gaussian is short of."""
    first, *why = fit.engine.certificate(fit)
    proved = [f"{line}." for line in between_bounds(fit)]
    return [f"{fit.accuracy}.", f"{first}.", *why, *proved]


# -- blocks -------------------------------------------------------------------------------------------------
def _coefficients(fit: FittedModel) -> list[Block]:
    frame = fit.coefficients
    out: list[Block] = []
    rest = frame.drop(index="Intercept", errors="ignore")
    if len(rest):
        wide = (rest["upper"] - rest["lower"]).to_numpy()
        scaled = bool(wide.max() > _UNLIKE * wide.min())
        caption = "With 95 % intervals, each for one sd of its column." if scaled else "With 95 % intervals."
        out.append(Picture(plot_coefficients(fit, scaled=scaled), "Coefficients with intervals", caption))
    if len(frame):
        caption = "Per unit of each column" + ("; the intercept where each is 0" if "Intercept" in frame.index else "")
        out.append(estimates(frame, caption, fit.likelihood.ratio))
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
    parts = panels_of(term, frame, str(name))
    kind = parts[0].kind
    caption = "Posterior means." if kind in ("surface", "grid") else "With 95 % intervals."
    drawn = np.ravel(np.asarray(plot(fit, name), dtype=object))[0]
    out: list[Block] = [Picture(drawn.figure, f"The effect {name}", caption)]
    over = None if term is None else term.region_column
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


def _rows(fit: FittedModel, part: Panel, title: str, most: int) -> Table:
    """A table of one panel, or of as many of its rows as are read."""
    frame, n, ratio = part.frame, len(part.frame), fit.likelihood.ratio
    if part.kind == "path" and n > most:
        at = np.unique(np.linspace(0, n - 1, _PLACES).astype(int))
        some, text = frame.iloc[at], f"{len(at)} of {n} places along it"
    elif n <= most:
        some, text = frame, "every level" if part.kind == "levels" else "every place"
    else:
        order, half = np.argsort(-frame["mean"].to_numpy(), kind="stable"), most // 2
        some = frame.iloc[[*order[:half], *order[-half:]]]
        text = f"the {half} largest and the {half} smallest of {n}"
    return estimates(some, f"{title}{text}" if title else text.capitalize(), ratio)


def _check(fit: FittedModel) -> list[Block]:
    kinds = kinds_of(fit)
    pictures: list[Block] = [
        Picture(plot_check(fit, kind), f"A predictive check: {kind}", WORDS[kind]) for kind in kinds[:1]
    ]
    if answers(fit, "plot_residuals"):
        some = {
            "quantiles": "Residuals in order: on the line where the family is right.",
            "fitted": "Residuals against what was predicted: no trend, an even spread.",
        }
        pictures.append(Row([Picture(fit.plot_residuals(kind).figure, kind, text) for kind, text in some.items()]))
    if answers(fit, "r2") and not fit.found.likelihood.of_variance:
        marginal, conditional = fit.r2().to_numpy()[:2]
        low, high = (100.0 * marginal[1], 100.0 * marginal[2])
        pictures.append(
            f"Covariates explain {100 * marginal[0]:.0f} % of the variance ({low:.0f} to {high:.0f} %), all terms "
            f"together {100 * conditional[0]:.0f} % (R squared, marginal and conditional)."
        )
    if not answers(fit, "loo"):
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
            cells += ["", ""] if np.isnan(low) else [_fixed(one[ratio], places), _span(low, high, places)]
        cells.append("" if np.isnan(one[above]) else _probability(one[above]))
        rows.append([*cells, *([f"{one['n']:.0f}"] if "n" in frame else [])])
    return Table(header, rows, caption)


def _plain(frame: pd.DataFrame, caption: str) -> Table:
    """A table of words."""
    labels = zip(*(frame.index.get_level_values(k) for k in range(frame.index.nlevels)), strict=True)
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
