"""Summaries of a fitted model: a page of text, and one html page with its tables and pictures.

Both open with the certificate and say the model in words.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots.base import short_name
from ..report import Block, Bullets, Picture, Section, Table, write_report
from ..terms import Term
from .capabilities import answers
from .fit_check import at_once
from .pictures import Panel, draw_map, panels_of, plot, plot_coefficients
from .proved import evidence_in_words, proof_at_hand
from .row_criteria import WORDS, kinds_of, plot_check
from .stated_priors import prior_table, term_named
from .tables import initials

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .fitted import FittedModel
    from .model import Model

_ROWS = 24  # of a table on the page
_PLACES = 9  # of a curve that are written out
_UNLIKE = 30.0  # times as wide: coefficients of such different units are drawn for one sd of each column


# -- text ---------------------------------------------------------------------------------------------------
def certificate(fit: FitTables) -> list[str]:
    """What is proved of the fit, and why it is not where it is not."""
    sol = fit.solution
    word = "converged" if fit.converged else "NOT CONVERGED"
    relative = sol.gap / max(1.0, abs(sol.elbo))
    proof = f"gap {sol.gap:.1e} nats (relative {relative:.0e}, {sol.certificate})"
    if np.isinf(sol.gap) and sol.certificate == "stationarity":
        proof = "a stationary point, of a family that is not log-concave: another may be better"
    first = f"{word}: {proof}, {_bound_in_words(fit)}"
    costs = [f"{term.name}: {cost.sentence}" for term, cost in fit.approximations]
    return [first, *costs] if fit.converged else [first, *costs, fit.found.status]


def between_bounds(fit: FitTables) -> list[str]:
    """The evidence between two bounds, where they were computed or are cheap; else the call that gives them."""
    closed = fit.found.likelihood.objective.conjugate or bool(fit.approximations)
    if closed or not answers(fit, "evidence_bounds"):
        return []
    found = proof_at_hand(fit)
    if found is None:
        return ["log evidence from above: fit.evidence_bounds()"]
    return [evidence_in_words(fit, found)]


def _bound_in_words(fit: FitTables) -> str:
    """The larger of two lower bounds of the log evidence: q's, and that with the effects of groups integrated out."""
    low = -np.inf if fit.answers is None else fit.answers.lower_bound
    if low <= fit.solution.elbo:
        return f"log evidence at least {fit.solution.elbo:.3f}"
    return f"log evidence at least {low:.3f} with groups integrated out ({fit.solution.elbo:.3f} by the Gaussian)"


def described(model: Model) -> list[str]:
    """The model in words: its family, its terms, the rows used and left out."""
    return [
        f"family: {model.reduction.family_in_words(model)}",
        *(f"{second.word}: {second.parsed.formula}" for second in model.seconds),
        *(f"{term.name}: {_in_words(term)}" for term in model.sum.effects),
        *model.reduction.rows_in_words(model),
    ]


def summary(fit: FitTables) -> str:
    """A page: the certificate first."""
    model, word = fit.model, "converged" if fit.converged else "NOT CONVERGED"
    if fit.parts:
        top = f"{word}: two fits that share nothing, gap {fit.gap:.1e} nats, log evidence at least {fit.elbo:.3f}"
        pages = [f"-- {_title(name)} --\n{summary(part)}" for name, part in fit.parts.items()]
        return "\n\n".join([f"{fit.accuracy}\n{top}", *pages])
    first, *why = fit.engine.certificate(fit)
    worst = at_once(fit).first
    proof = [first, *(f"  {line}" for line in why), *between_bounds(fit)]
    both = [fit.accuracy, *proof] if fit.converged else [*proof, fit.accuracy]
    lines = [worst, *both] if worst.startswith("CHECK") and fit.converged else [*both, worst]
    lines += ["", model.formula, *(f"  {line}" for line in described(model))]
    shown = fit.coefficients[["mean", "sd", "lower", "upper"]]
    if len(shown):
        lines += ["", "fixed effects, 95 % intervals", _text(shown)]
    found = fit.hyperparameters
    if len(found):
        known = "by the evidence about its mode" if fit.integrated is None else "(value: the mode of all together)"
        lines += ["", f"hyperparameters, 95 % intervals {known}", _text(found)]
        lines += [f"  {sentence}" for term in model.sum.effects for sentence in _far_from_zero(term)]
    lines += ["", "priors", _text(prior_table(model))]
    if fit.integrated is not None:
        lines += ["", f"Hyperparameters are integrated out: {fit.integrated.status}."]
    elif fit.answers is not None and fit.mixture is None:
        how = f"log evidence {fit.answers.log_evidence:.3f}, error about {fit.answers.log_evidence_se:.1g}"
        lines += ["", f"Effects and predictions are corrected beyond the Gaussian at these hyperparameters ({how})."]
    else:
        lines += ["", f"Effects and predictions are {held_in_words(fit)}."]
    return "\n".join(lines)


def held_in_words(fit: FitTables) -> str:
    """Which hyperparameters the answers of a fit are at, and which of the likelihood's own they are over."""
    likelihood = fit.found.likelihood
    own = " and ".join(dict.fromkeys(entry.word for entry in likelihood.entries()))
    cure = 'fit(integrate="auto") has it'
    if fit.mixture is not None:
        loose = fit.mixture.evidence == "elbo" and not likelihood.objective.log_concave
        how = "Gaussian" if fit.mixture.evidence == "elbo" else "corrected beyond the Gaussian"
        where = " at these sds of terms" if fit.theta.size > likelihood.theta.size else ""
        short = f"; zeros that may be of either kind leave their sds a tenth too small: {cure}" if loose else ""
        return f"{how}{where}, averaged over {own}: how well that is known is in their sds{short}"
    if not (likelihood.moves_eta or fit.model.seconds):
        return "Gaussian at these hyperparameters"
    return f"Gaussian at these hyperparameters; how well {own} is known is not in their sds: {cure}"


def _title(part: str) -> str:
    """What a part of a hurdle is called."""
    return {"count": "counts above 0", "zero": "zeros"}.get(part, part)


def _far_from_zero(term: Term) -> list[str]:
    """Why the sd and the correlations of an intercept are hard to read."""
    return [
        f"{term.name}: 'sd intercept' is where {name} is 0, and the data have {low:.10g} to {high:.10g}: read those "
        "at its mean."
        for name, (low, high) in term.outside.items()
    ]


def _text(frame: pd.DataFrame) -> str:
    return "\n".join("  " + line for line in frame.to_string(float_format=lambda x: f"{x:.4g}").splitlines())


def _in_words(term: Term) -> str:
    levels = f", {len(term.levels)} levels" if term.levels is not None else ""
    levels += f", {term.details()}" if term.details() else ""
    first = (type(term).__doc__ or type(term).__name__).strip().split("\n")[0].split(",")[0].split(":")[0].rstrip(".")
    return f"{first[0].lower()}{first[1:]}{levels}" if first[1:2].islower() else f"{first}{levels}"


# -- html ---------------------------------------------------------------------------------------------------
def report(fit: FittedModel, path: str | Path, geometry: dict[str, Any]) -> Path:
    """Write the page, of several parts a chapter each; ``geometry`` are outlines of regions, by column."""
    parts = [] if fit.parts else sections(fit, geometry)
    for name, part in fit.parts.items():
        title = _title(name)
        parts.append(Section(f"{title[0].upper()}{title[1:]}", sections=sections(part, geometry)))
    return write_report(path, fit.model.formula, parts, contents=True)


def sections(fit: FittedModel, geometry: dict[str, Any]) -> list[Section]:
    """What the page of a fitted model says, the certificate first."""
    first, *why = fit.engine.certificate(fit)
    proved = [f"{line}." for line in between_bounds(fit)]
    return [
        Section("Fit", [f"{fit.accuracy}.", f"{first}.", *why, *proved, f"{at_once(fit).first}.", _words(fit)]),
        Section("Coefficients", _coefficients(fit)),
        *([Section("Hyperparameters", _hyperparameters(fit))] if len(fit.hyperparameters) else []),
        *(Section(str(name), _effect(fit, name, geometry)) for name in fit.effects),
        Section("Does the model make such data?", _check(fit)),
        Section("Priors", [_plain(fit.priors, "Every prior of the model")]),
    ]


def _words(fit: FittedModel) -> Block:
    return Bullets(described(fit.model), "The model and its rows:")


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
    return Table(header, rows, f"{caption[0].upper()}{caption[1:]}")


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
