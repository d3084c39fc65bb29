"""What a fitted model shows: coefficients, effects, hyperparameters and priors as frames, and a summary as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri
from scipy.stats import qmc

from ..checks import number, problem
from ..hyperparameters.evidence import Evidence
from ..hyperparameters.mode import Mode, mode_of
from ..iterative import IterativeFit
from ..likelihoods.base import Likelihood
from ..marginals import Answers
from ..solvers.solution import Solution
from ..terms import Hyperparameter, Term
from .marginal_tables import marginal_table
from .stated_priors import ambiguous, prior_table, term_named, terms_over

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

INTERCEPT = "Intercept"
_DRAWS = 512  # of a fixed net, for intervals of hyperparameters


# -- coefficients -------------------------------------------------------------------------------------------
def fixed_moments(fit: FittedModel) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the coefficients in the user's units, the intercept (x = 0) first where there is one."""
    model = fit.model
    mean, covariance = model.sum.fixed_effects(fit.solution if fit.answers is None else fit.answers)
    mean = mean + _known_part(fit, fit.shift)
    if model.fixed.back is None:
        return mean, covariance
    A, _ = model.fixed.to_user(model.sum.intercept, len(model.sum.fixed_names))
    return A @ mean, A @ covariance @ A.T


def _known_part(fit: FittedModel, shift: float) -> np.ndarray:
    """What the coefficients are above the latents behind them: prior means, and the level of the intercept."""
    model = fit.model
    out = model.coefficient_priors.mean.copy()
    if model.sum.intercept:
        given, columns = model.coefficient_priors.mean[1:], model.sum.columns
        out[0] += model.level + shift - float((columns.centre + columns.rest) @ given)
    return out


def fixed_rows(fit: FittedModel) -> tuple[sp.csr_array, np.ndarray]:
    """The coefficients as rows of a design over the latents (p, L), and what they are above those (p,)."""
    sum_ = fit.model.sum
    A, _ = fit.model.fixed.to_user(sum_.intercept, len(sum_.fixed_names))
    return sp.csr_array(A @ sum_.fixed_rows()), A @ _known_part(fit, fit.shift)


def above_latents(fit: FittedModel, thetas: np.ndarray) -> np.ndarray:
    """What the coefficients are above their latents at thetas (m, p), whose likelihoods say how eta is reported."""
    sum_ = fit.model.sum
    A, _ = fit.model.fixed.to_user(sum_.intercept, len(sum_.fixed_names))
    each = [_known_part(fit, _likelihood_at(fit, theta).reported()[1]) for theta in thetas]
    return np.asarray(np.stack(each) @ A.T)


def level_of_ordered(fit: FittedModel, solution: Solution | Answers) -> tuple[float, float]:
    """What eta of the columns as they come is above eta as fitted, where cutpoints take the place of an intercept.

    With its posterior sd: the coefficients' own.
    """
    fitted, covariance = fit.model.sum.fixed_effects(solution)
    by = _columns_at_mean(fit.model)
    return float(by @ (fitted + fit.model.coefficient_priors.mean)), float(np.sqrt(by @ covariance @ by))


def reported(fit: FittedModel) -> tuple[Likelihood, float]:
    """The likelihood on the scale that is reported, and what eta is there above eta as fitted, on average."""
    fitted, model = fit.found.likelihood, fit.model
    if model.cox is not None:  # counts of events in pieces of durations
        return fitted.changed(ratio="hazard_ratio"), 0.0
    if not (model.ordered and model.sum.fixed_names):
        return fitted.reported()
    shift = level_of_ordered(fit, fit.solution)[0]  # learned where columns are at their means, stated at x = 0
    return fitted.with_theta(np.r_[fitted.theta[0] + shift, fitted.theta[1:]]), shift


def _columns_at_mean(model: Model) -> np.ndarray:
    """Where the columns of an ordered model are 0 as fitted, in the user's units (p,)."""
    return np.asarray(model.sum.columns.centre - model.fixed.to_user(False, len(model.sum.fixed_names))[1])


def reported_shift(fit: FittedModel) -> tuple[np.ndarray | None, float]:
    """What eta as reported is above eta as fitted: a row over the latents (L,), None for one of 0, and a constant."""
    model = fit.model
    if not (model.ordered and model.sum.fixed_names):
        return None, fit.found.likelihood.reported()[1]
    by = _columns_at_mean(model)
    return np.asarray(by @ model.sum.fixed_rows().toarray()), float(by @ model.coefficient_priors.mean)


def names_of(model: Model) -> list[str]:
    """Of the coefficients, the intercept first where there is one."""
    return [*([INTERCEPT] if model.sum.intercept else []), *model.sum.fixed_names]


# -- effects ------------------------------------------------------------------------------------------------
class Effects(Mapping[Any, Any]):
    """The special terms of a fitted model as frames, each made when it is asked for."""

    def __init__(self, fit: FittedModel) -> None:
        self._fit, self._terms = fit, fit.model.sum.effects

    def __getitem__(self, key: Any) -> pd.DataFrame:
        term = term_named(self._terms, key)
        if term is None:
            names = self._fit.model.compiled.stands_for(key)
            names = names if len(names) > 1 else [each.name for each in terms_over(self._terms, key)]
            if names:
                raise KeyError(str(ambiguous("effects", key, names)))
            raise KeyError(str(problem("effects", f"there is no term {key!r}", f"one of {list(self)}")))
        import pandas as pd

        fit, model = self._fit, self._fit.model
        shown = model.sum.shown(term.name)
        if shown is None:
            raise problem("effects", f"the effect {term.name!r} has no table", "a term that says where it is shown")
        labels, design, codes = shown
        n = None if codes is None else model.sum.counts(model.target.seen)[term.name][codes]
        out = marginal_table((term.name, labels), fit.posterior.at(design=design), fit.likelihood.ratio, n=n)
        if len(out) and all(isinstance(label, tuple) for label in out.index):
            return out.set_axis(pd.MultiIndex.from_tuples(list(out.index)), axis=0)
        return out.rename_axis(index=getattr(term, "column", term.name))

    def __iter__(self) -> Iterator[Any]:
        return iter([term.name for term in self._terms])

    def __len__(self) -> int:
        return len(self._terms)

    def __repr__(self) -> str:
        return f"effects of {', '.join(map(str, self))}" if self._terms else "no effects"


# -- hyperparameters ----------------------------------------------------------------------------------------
def hyperparameters(fit: FittedModel) -> pd.DataFrame:
    """By term and parameter: the value, and a 95 % interval by the evidence about its mode.

    Draws of theta are standard normal in the coordinates of the mode (``hyperparameters/mode.py``): H says how the
    entries go together, the fall of the evidence how far each side reaches. A log sd has the longer tail to the left
    where data hardly tell an effect from none, and to the right where groups are few. Cutpoints at x = 0 move with
    theta by ``moves`` and have the sd of the coefficients beside that.
    """
    rows, mode = described_theta(fit, fit.theta), fit.theta_mode
    ends = np.full((len(rows), 2), np.nan)
    if rows and mode.free:
        evidence = evidence_of(fit)
        coordinates = mode.coordinates(lambda thetas: [evidence(theta)[0] for theta in thetas])
        z = normal_net(len(mode.free) + 1)
        draws = np.clip(coordinates.theta(z[:, :-1]), *mode.bounds.T)
        sd = level_of_ordered(fit, fit.solution)[1] if fit.model.ordered and fit.model.sum.fixed_names else 0.0
        levels = fit.shift + (draws - fit.theta) @ mode.moves + sd * z[:, -1]
        ends = np.quantile(values_at(fit, draws, levels), [0.025, 0.975], axis=0).T
        ends[ends[:, 1] <= ends[:, 0]] = np.nan
    return parameter_frame(rows, lower=ends[:, 0], upper=ends[:, 1])


def parameter_frame(rows: list[tuple[str, str, float]], **columns: np.ndarray) -> pd.DataFrame:
    """What ``described_theta`` says as a frame, with further columns."""
    import pandas as pd

    index = pd.MultiIndex.from_tuples([row[:2] for row in rows], names=["term", "parameter"]) if rows else None
    return pd.DataFrame({"value": [row[2] for row in rows], **columns}, index=index)


def values_at(fit: FittedModel, thetas: np.ndarray, levels: Iterable[float | None] | None = None) -> np.ndarray:
    """The hyperparameters as reported (m, k) at thetas (m, n)."""
    levels = repeat(None) if levels is None else levels
    with np.errstate(over="ignore"):
        each = [described_theta(fit, theta, level) for theta, level in zip(thetas, levels, strict=False)]
    return np.array([[row[2] for row in one] for one in each])


def normal_net(d: int) -> np.ndarray:
    """Standard normals (m, d) of a fixed net, as many below 0 as above."""
    cells = qmc.Halton(d, scramble=False).random(_DRAWS)
    return ndtri((cells + 0.5 / _DRAWS) % 1.0)  # their middles


def evidence_of(fit: FittedModel) -> Evidence:
    """As a function of theta, starting where the fit stands."""
    if fit.evidence is not None:
        return fit.evidence
    target, family = fit.model.target, fit.model.sum.family()
    out = Evidence(fit.found.likelihood, family, target.y, weights=target.weights, tol=1e-13, own=True)
    out.begin(fit.solution)
    return out


def theta_mode(fit: FittedModel) -> Mode:
    """The evidence about its mode, and how cutpoints that are stated at x = 0 move with theta."""
    level = fit.model.ordered and fit.model.sum.fixed_names
    ask = (lambda solution: level_of_ordered(fit, solution)[0]) if level else None
    return mode_of(evidence_of(fit), fit.theta, ask=ask)


def described_theta(fit: FittedModel, theta: np.ndarray, level: float | None = None) -> list[tuple[str, str, float]]:
    """theta in words, sds rather than precisions and variances; cutpoints at x = 0, by ``level`` above those as fitted,
    as ``level_of_ordered`` has it of the fit.
    """
    rows = [(str(term.name), *row) for term, part in fit.model.sum.thetas(theta) for row in _of_term(term, part)]
    reported, _ = _likelihood_at(fit, theta).reported()
    if fit.model.ordered and reported.theta.size:
        first = reported.theta[0] + (fit.shift if level is None else level)
        reported = reported.with_theta(np.r_[first, reported.theta[1:]])
    own_rows = _between_levels(fit.model, reported.readable())
    has_sd = {owner for owner, word, _ in own_rows if word == "sd"}
    for owner, word, value in own_rows:
        if word != "variance":
            rows.append((owner, word, value))
        elif owner not in has_sd:
            rows.append((owner, "sd", float(np.sqrt(value))))
    return rows


def _between_levels(model: Model, rows: list[tuple[str, str, float]]) -> list[tuple[str, str, float]]:
    """Cutpoints by the levels of y on either side of them: "low|medium"."""
    labels = model.target.labels
    if not model.ordered or labels is None:
        return rows
    names = [str(label) if model.target.words is not None else number(label + 0.0) for label in labels]
    between = [f"{below}|{above}" for below, above in pairwise(names)]
    return [(owner, between[int(k)] if owner == "cutpoints" else k, value) for owner, k, value in rows]


def _likelihood_at(fit: FittedModel, theta: np.ndarray) -> Likelihood:
    """With its own part of theta, the last."""
    own = theta[sum(len(term.hyperparameters) for term in fit.model.sum.effects) :]
    return fit.found.likelihood.with_theta(own) if own.size else fit.found.likelihood


def _of_term(term: Term, theta: np.ndarray) -> list[tuple[str, float]]:
    if type(term).readable is not Term.readable:
        return term.readable(theta)
    return [(h.scale.name, h.scale.value(float(t))) for h, t in zip(term.hyperparameters, theta, strict=True)]


def no_sd(h: Hyperparameter, side: str) -> bool:
    """Whether a bound is that of the smallest sd."""
    return h.size is not None and side == "lower"


# -- the summary --------------------------------------------------------------------------------------------
def certificate(fit: FittedModel) -> list[str]:
    """What is proved of the fit, and why it is not where it is not."""
    sol = fit.solution
    if isinstance(sol, IterativeFit):
        return sol.stated()
    word = "converged" if fit.converged else "NOT CONVERGED"
    relative = sol.gap / max(1.0, abs(sol.elbo))
    proof = f"gap {sol.gap:.1e} nats (relative {relative:.0e}, {sol.certificate})"
    if np.isinf(sol.gap) and sol.certificate == "stationarity":
        proof = "a stationary point, of a family that is not log-concave: another may be better"
    first = f"{word}: {proof}, log evidence at least {sol.elbo:.3f}"
    known = [fit.found.doubt] if fit.found.doubt else []
    averaged = [] if fit.mixed is None else fit.mixed.doubts  # over theta, or over the likelihood's own parameters
    doubts = [f"CHECK: {doubt}" for doubt in (*(known if fit.integrated is None else ()), *averaged)]
    return [*doubts, first] if fit.converged else [*doubts, first, fit.found.status]


def described(model: Model) -> list[str]:
    """The model in words: its family, its terms, the rows used and left out."""
    n, seen = model.n_rows
    family = model.target.likelihood.word or repr(model.target.likelihood)
    family = family if model.classes is None else f"multinomial, against {model.classes.labels[0]!r}"
    labels = model.target.labels
    if model.target.words is not None and labels is not None and len(labels) == 2 and model.classes is None:
        family += f", the probability that {model.response.name} is '{labels[1]}' and not '{labels[0]}'"
    lines = [
        f"family: {'cox, as counts of events in intervals' if model.cox else family}",
        *(f"{second.word}: {second.parsed.formula}" for second in model.seconds),
        *(f"{term.name}: {_in_words(term)}" for term in model.sum.effects),
        f"rows: {n} used" + (f", {n - seen} of them with y unobserved and predicted" if seen < n else ""),
    ]
    if model.cox is not None:
        people = len(model.cox.people) - model.dropped.n
        lines[-1] = f"rows: {people} used, as {n} pieces of durations: leave-one-out and folds are by piece"
    if model.dropped.n:
        each = ", ".join(f"{name!r} in {count}" for name, count in model.dropped.columns.items())
        rows = "1 row" if model.dropped.n == 1 else f"{model.dropped.n} rows"
        what = "a covariate is missing" if model.cox is None else "a time, an event or a covariate is missing"
        lines.append(f"dropped: {rows} in which {what} ({each})")
    return lines


def summary(fit: FittedModel) -> str:
    """A page: the certificate first."""
    from .remarks import undetermined

    model, (first, *why) = fit.model, certificate(fit)
    why += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in undetermined(fit)]
    lines = [first, *(f"  {line}" for line in why), "", model.formula, *(f"  {line}" for line in described(model))]
    if fit.remarks:
        lines += ["", "remarks", *(f"  {sentence[0].upper()}{sentence[1:]}." for sentence in fit.remarks)]
    shown = fit.coefficients[["mean", "sd", "lower", "upper"]]
    if len(shown):
        lines += ["", "fixed effects, 95 % intervals", _text(shown)]
    found = fit.hyperparameters
    if len(found):
        known = "by the evidence about its mode" if fit.integrated is None else "integrated over"
        lines += ["", f"hyperparameters, 95 % intervals {known}", _text(found)]
        lines += [f"  {sentence}" for term in model.sum.effects for sentence in _far_from_zero(term)]
    lines += ["", "priors", _text(prior_table(model))]
    if fit.integrated is not None:
        lines += ["", f"Hyperparameters are integrated out: {fit.integrated.status}."]
    elif fit.answers is not None and fit.mixed is None:
        how = f"log evidence {fit.answers.log_evidence:.3f}, error about {fit.answers.log_evidence_se:.1g}"
        lines += ["", f"Effects and predictions are corrected beyond the Gaussian at these hyperparameters ({how})."]
    else:
        lines += ["", f"Effects and predictions are {held_in_words(fit)}."]
    return "\n".join(lines)


def held_in_words(fit: FittedModel) -> str:
    """Which hyperparameters the answers of a fit are at, and which of the likelihood's own they are over."""
    likelihood = fit.found.likelihood
    own = " and ".join(dict.fromkeys(entry.word for entry in likelihood.entries()))
    cure = 'fit(integrate="auto") has it'
    if fit.mixed is not None:
        loose = fit.mixed.evidence == "elbo" and not likelihood.objective.log_concave
        how = "Gaussian" if fit.mixed.evidence == "elbo" else "corrected beyond the Gaussian"
        where = " at these sds of terms" if fit.theta.size > likelihood.theta.size else ""
        short = f"; zeros that may be of either kind leave their sds a tenth too small: {cure}" if loose else ""
        return f"{how}{where}, averaged over {own}: how well that is known is in their sds{short}"
    if not (likelihood.moves_eta or fit.model.seconds):
        return "Gaussian at these hyperparameters"
    return f"Gaussian at these hyperparameters; how well {own} is known is not in their sds: {cure}"


def _far_from_zero(term: Term) -> list[str]:
    """Why the sd and the correlations of an intercept are hard to read."""
    return [
        f"{term.name}: 'sd intercept' is where {name} is 0, and the data have {low:.10g} to {high:.10g}: read those "
        "at its mean."
        for name, (low, high) in getattr(term, "outside", {}).items()
    ]


def _text(frame: pd.DataFrame) -> str:
    return "\n".join("  " + line for line in frame.to_string(float_format=lambda x: f"{x:.4g}").splitlines())


def _in_words(term: Term) -> str:
    levels = f", {len(term.levels)} levels" if term.levels is not None else ""
    levels += f", {term.details()}" if term.details() else ""
    first = (type(term).__doc__ or type(term).__name__).strip().split("\n")[0].split(",")[0].split(":")[0].rstrip(".")
    return f"{first[0].lower()}{first[1:]}{levels}" if first[1:2].islower() else f"{first}{levels}"
