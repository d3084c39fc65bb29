"""What a fitted model shows: coefficients, effects, hyperparameters and priors as frames, and a summary as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..estimators.effect_tables import effect_frame, table
from ..estimators.marginal_tables import marginal_table
from ..hyperparameters.priors import PCPrecision, PCRange, PCVariance
from ..iterative import IterativeFit
from ..solvers.solution import Solution
from ..terms import Hyperparameter, Term
from .specified import ambiguous, in_words, term_named, terms_over
from .uncertainty import spread

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

INTERCEPT = "Intercept"


# -- coefficients -------------------------------------------------------------------------------------------
def fixed_moments(fit: FittedModel) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the coefficients in the user's units, the intercept (x = 0) first where there is one."""
    model = fit.model
    mean, covariance = model.sum.fixed_effects(fit.solution if fit.answers is None else fit.answers)
    mean = mean + _known_part(fit)
    if model.fixed.back is None:
        return mean, covariance
    A, _ = model.fixed.to_user(model.sum.intercept, len(model.sum.fixed_names))
    return A @ mean, A @ covariance @ A.T


def _known_part(fit: FittedModel) -> np.ndarray:
    """What the coefficients are above the latents behind them: prior means, and the level of the intercept."""
    model = fit.model
    out = model.coefficient_priors.mean.copy()
    if model.sum.intercept:
        given, columns = model.coefficient_priors.mean[1:], model.sum.columns
        out[0] += model.level + fit.shift - float((columns.centre + columns.rest) @ given)
    return out


def fixed_rows(fit: FittedModel) -> tuple[sp.csr_array, np.ndarray]:
    """The coefficients as rows of a design over the latents (p, L), and what they are above those (p,)."""
    sum_ = fit.model.sum
    A, _ = fit.model.fixed.to_user(sum_.intercept, len(sum_.fixed_names))
    L = fit.solution.posterior.latent_mean.shape[0]
    own = A @ sum_.columns.to_user(sum_.intercept)
    return sp.csr_array(np.hstack([np.zeros((len(own), L - own.shape[1])), own])), A @ _known_part(fit)


def level_of_ordered(fit: FittedModel, solution: Solution) -> tuple[float, float]:
    """What eta of the columns as they come is above eta as fitted, where cutpoints take the place of an intercept.

    With its posterior sd: the coefficients' own.
    """
    sum_, priors = fit.model.sum, fit.model.coefficient_priors
    fitted, covariance = sum_.fixed_effects(solution)
    by = sum_.columns.centre - fit.model.fixed.to_user(False, fitted.size)[1]
    return float(by @ (fitted + priors.mean)), float(np.sqrt(by @ covariance @ by))


def names_of(model: Model) -> list[str]:
    """Of the coefficients, the intercept first where there is one."""
    return [*([INTERCEPT] if model.sum.intercept else []), *model.sum.fixed_names]


def coefficients(fit: FittedModel) -> pd.DataFrame:
    """Mean, sd, interval; exp(coefficient) where it has a name."""
    if fit.posterior is not fit.solution.posterior and names_of(fit.model):
        design, offset = fixed_rows(fit)
        found = fit.posterior.at(design=design, offset=offset)
        return marginal_table((None, names_of(fit.model)), found, fit.likelihood.ratio)
    mean, covariance = fixed_moments(fit)
    moments = mean, np.diag(covariance)
    return table((None, names_of(fit.model)), moments, fit.likelihood.ratio, 0.95)


def covariance(fit: FittedModel) -> pd.DataFrame:
    """Of the coefficients."""
    import pandas as pd

    names = names_of(fit.model)
    return pd.DataFrame(fixed_moments(fit)[1], index=names, columns=names)


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
        out = effect_frame("effects", model.sum, term.name, fit.posterior, model.target.seen, fit.likelihood.ratio)
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
    """By term and parameter: the value, and an interval from the curvature of the evidence."""
    import pandas as pd

    rows, ends = described_theta(fit, fit.theta), np.zeros((0, 2))
    if rows:
        sd = level_of_ordered(fit, fit.solution)[1] if fit.model.ordered and fit.model.sum.fixed_names else 0.0
        ends = spread(fit, lambda theta, shift: [row[2] for row in described_theta(fit, theta, shift)], sd)
    index = pd.MultiIndex.from_tuples([row[:2] for row in rows], names=["term", "parameter"]) if rows else None
    columns = {"value": [row[2] for row in rows], "lower": ends[:, 0], "upper": ends[:, 1]}
    return pd.DataFrame(columns, index=index)


def described_theta(fit: FittedModel, theta: np.ndarray, shift: float = 0.0) -> list[tuple[str, str, float]]:
    """theta in words, sds rather than precisions and variances; cutpoints at x = 0, and ``shift`` above that."""
    rows = [(str(term.name), *row) for term, part in fit.model.sum.thetas(theta) for row in _of_term(term, part)]
    own = theta[sum(len(term.hyperparameters) for term in fit.model.sum.effects) :]
    likelihood = fit.found.likelihood.with_theta(own) if own.size else fit.found.likelihood
    reported, _ = likelihood.reported()
    if fit.model.ordered and own.size:
        reported = reported.with_theta(np.r_[reported.theta[0] + fit.shift + shift, reported.theta[1:]])
    own_rows = reported.readable()
    has_sd = {owner for owner, word, _ in own_rows if word == "sd"}
    for owner, word, value in own_rows:
        if word != "variance":
            rows.append((owner, word, value))
        elif owner not in has_sd:
            rows.append((owner, "sd", float(np.sqrt(value))))
    return rows


def _of_term(term: Term, theta: np.ndarray) -> list[tuple[str, float]]:
    if type(term).readable is not Term.readable:
        return term.readable(theta)
    return [_as_sd(h, float(t)) for h, t in zip(term.hyperparameters, theta, strict=True)]


def _as_sd(h: Hyperparameter, theta: float) -> tuple[str, float]:
    """A precision or a variance as the typical sd of the effect: what P(sd > u) = a is said of."""
    unit = None if h.size is None else h.size(1.0, 0.01)
    if isinstance(unit, PCPrecision):
        return h.name.replace("precision", "sd"), float(np.exp(-theta / 2)) / unit.u
    if isinstance(unit, PCVariance):
        return h.name.replace("variance", "sd"), float(np.exp(theta / 2)) / unit.u
    return h.name, h.value(theta)


def no_sd(h: Hyperparameter, side: str) -> bool:
    """Whether a bound is that of the smallest sd: of a precision the upper one, of a variance the lower."""
    unit = None if h.size is None else h.size(1.0, 0.01)
    return side == "upper" if isinstance(unit, PCPrecision) else side == "lower" and isinstance(unit, PCVariance)


# -- priors -------------------------------------------------------------------------------------------------
def prior_table(model: Model) -> pd.DataFrame:
    """Every prior, in words."""
    import pandas as pd

    rows, stated = [], model.coefficient_priors.stated
    for j, name in enumerate(names_of(model)):
        own = int(model.sum.intercept)
        sd = float(np.sqrt(model.coefficient_priors.variance[j]))
        if name in stated:
            text = f"N({stated[name].mean:.4g}, {stated[name].sd:.4g}^2)"
        elif j < own:
            text = f"N({round(model.level + fit_shift(model), 10):.4g}, {sd:.4g}^2)"
        else:
            text = f"N(0, {sd / float(model.sum.columns.scale[j - own]):.4g}^2), {sd:.4g} for one sd of it"
        text = f"flat: {text}" if name in model.coefficient_priors.flat else text
        rows.append((name, "at the mean of the columns" if j < own else "coefficient", text))
    for term in model.sum.effects:
        rows += [(str(term.name), _as_sd(h, h.start)[0], _prior_words(h)) for h in term.hyperparameters]
        rows += [(str(term.name), *pair) for pair in term.stated]
    for owner, name, prior in model.target.likelihood.reported()[0].own_priors():
        rows.append((owner, name, in_words(prior)))
    frame = pd.DataFrame(rows, columns=["name", "parameter", "prior"])
    return frame.set_index(["name", "parameter"])


def fit_shift(model: Model) -> float:
    """What eta as reported is above eta as fitted."""
    return model.target.likelihood.reported()[1]


def _prior_words(h: Hyperparameter) -> str:
    unit = None if h.size is None else h.size(1.0, 0.01)
    u, a = getattr(h.prior, "u", None), getattr(h.prior, "probability", None)
    of = getattr(unit, "u", None)
    if of is not None and u is not None and a is not None:
        return f"exponential, P(sd > {u / of:.4g}) = {a:g}"
    return in_words(h.prior) if h.prior is None or isinstance(h.prior, PCRange) else f"{in_words(h.prior)} of {h.label}"


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
    return [first] if fit.converged else [first, fit.found.status]


def described(model: Model) -> list[str]:
    """The model in words: its family, its terms, the rows used and left out."""
    n, seen = model.n_rows
    family = model.target.likelihood.word or repr(model.target.likelihood)
    family = family if model.classes is None else f"multinomial, against {model.classes.labels[0]!r}"
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
    model, (first, *why) = fit.model, certificate(fit)
    lines = [first, *(f"  {line}" for line in why), "", model.formula, *(f"  {line}" for line in described(model))]
    shown = fit.coefficients[["mean", "sd", "lower", "upper"]]
    if len(shown):
        lines += ["", "fixed effects, 95 % intervals", _text(shown)]
    lines += [f"  {sentence[0].upper()}{sentence[1:]}." for sentence in fit.remarks]
    found = fit.hyperparameters
    if len(found):
        known = "by the evidence about its mode" if fit.integrated is None else "integrated over"
        lines += ["", f"hyperparameters, 95 % intervals {known}", _text(found)]
        lines += [f"  {sentence}" for term in model.sum.effects for sentence in _far_from_zero(term)]
    lines += ["", "priors", _text(model.priors)]
    if fit.integrated is not None:
        lines += ["", f"Hyperparameters are integrated out: {fit.integrated.status}."]
    elif fit.answers is not None:
        how = f"log evidence {fit.answers.log_evidence:.3f}, error about {fit.answers.log_evidence_se:.1g}"
        lines += ["", f"Effects and predictions are corrected beyond the Gaussian at these hyperparameters ({how})."]
    else:
        lines += ["", "Effects and predictions are Gaussian at these hyperparameters."]
        words = " and ".join(second.word for second in model.seconds)
        cure = 'fit(integrate="auto") has it'
        lines += [f"How well the {words} formula is known is not in their sds: {cure}."] if words else []
    return "\n".join(lines)


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
    first = (type(term).__doc__ or type(term).__name__).strip().split("\n")[0].split(",")[0].split(":")[0].rstrip(".")
    return f"{first[0].lower()}{first[1:]}{levels}" if first[1:2].islower() else f"{first}{levels}"
