"""The text of ``fit.summary()``: the certificate, the model in words and its tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ..terms import Term
from .capabilities import answers
from .fit_check import quick_check
from .proved import evidence_in_words, proof_at_hand
from .stated_priors import prior_table

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .model import Model


_END_OF_CLAUSE = re.compile(r"[,:.](?![^()]*\))")  # outside of brackets


# -- text ---------------------------------------------------------------------------------------------------
def certificate(fit: FitTables) -> list[str]:
    """Lines on the certificate of the fit, and on why it did not converge if it did not."""
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
    """Lower and upper bound of the evidence, if they are known or cheap; else the call that computes them."""
    closed = fit.found.likelihood.objective.conjugate or bool(fit.approximations)
    if closed or not answers(fit, "evidence_bounds"):
        return []
    result = proof_at_hand(fit)
    if result is None:
        return ["log evidence from above: fit.evidence_bounds()"]
    return [evidence_in_words(fit, result)]


def _bound_in_words(fit: FitTables) -> str:
    """The larger of two lower bounds of the log evidence: the elbo, and that with groups integrated out."""
    low = -np.inf if fit.answers is None else fit.answers.lower_bound
    if low <= fit.solution.elbo:
        return f"log evidence at least {fit.solution.elbo:.3f}"
    return f"log evidence at least {low:.3f} with groups integrated out ({fit.solution.elbo:.3f} by the Gaussian)"


def described(model: Model) -> list[str]:
    """The model in words: its family, its terms, and the rows that are used and left out."""
    return [
        f"family: {model.reduction.family_in_words(model)}",
        *(f"{second.word}: {second.parsed.formula}" for second in model.seconds),
        *(f"{term.name}: {_in_words(term)}" for term in model.sum.effects),
        *model.reduction.rows_in_words(model),
    ]


def summary(fit: FitTables) -> str:
    """The summary of a fit, which begins with its certificate."""
    model, word = fit.model, "converged" if fit.converged else "NOT CONVERGED"
    if fit.parts:
        top = f"{word}: two fits that share nothing, gap {fit.gap:.1e} nats, log evidence at least {fit.elbo:.3f}"
        pages = [f"-- {part_title(name)} --\n{summary(part)}" for name, part in fit.parts.items()]
        return "\n\n".join([f"{fit.accuracy}\n{top}", *pages])
    first, *why = fit.engine.certificate(fit)
    worst = quick_check(fit).first
    proof = [first, *(f"  {line}" for line in why), *between_bounds(fit)]
    both = [fit.accuracy, *proof] if fit.converged else [*proof, fit.accuracy]
    lines = [worst, *both] if worst.startswith("CHECK") and fit.converged else [*both, worst]
    lines += ["", model.formula, *(f"  {line}" for line in described(model))]
    shown = fit.coefficients[["mean", "sd", "lower", "upper"]]
    if len(shown):
        lines += ["", "fixed effects, 95 % intervals", _text(shown)]
    result = fit.hyperparameters
    if len(result):
        known = "by the evidence about its mode" if fit.integrated is None else "(value: their joint mode)"
        lines += ["", f"hyperparameters, 95 % intervals {known}", _text(result)]
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
    """At which hyperparameters the results hold, and which parameters of the likelihood they are averaged over."""
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


def part_title(part: str) -> str:
    """The title of a part of a hurdle."""
    return {"count": "counts above 0", "zero": "zeros"}.get(part, part)


def _far_from_zero(term: Term) -> list[str]:
    """A remark on the sd of an intercept at 0 of a column that is far from the data."""
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
    said = (type(term).__doc__ or type(term).__name__).strip().split("\n")[0]
    first = said[: _END_OF_CLAUSE.search(said + ".").start()]  # type: ignore[union-attr]
    if first[1:2].islower() or first.startswith("A "):  # a word, and not a name such as ICAR
        first = f"{first[0].lower()}{first[1:]}"
    return f"{first}{levels}"
