"""What a fitted model shows: coefficients, effects, hyperparameters and priors as frames, and a summary as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..estimators.effect_tables import table
from ..estimators.mixed_tables import of_marginals
from ..hyperparameters.priors import PCPrecision, PCVariance
from ..terms import Hyperparameter, Term
from .specified import in_words, term_named
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
    mean, covariance = model.sum.fixed_effects(fit.solution)
    mean = mean + model.coefficient_priors.mean
    if model.sum.intercept:
        given, columns = model.coefficient_priors.mean[1:], model.sum.columns
        mean[0] += model.level + fit.shift - float((columns.centre + columns.rest) @ given)
    if model.fixed.back is None:
        return mean, covariance
    A, _ = model.fixed.to_user(model.sum.intercept, len(model.sum.fixed_names))
    return A @ mean, A @ covariance @ A.T


def level_of_ordered(fit: FittedModel) -> float:
    """What eta of the columns as they come is above eta as fitted, where cutpoints take the place of an intercept."""
    sum_, priors = fit.model.sum, fit.model.coefficient_priors
    fitted = sum_.fixed_effects(fit.solution)[0]
    total = fitted + priors.mean
    return float(sum_.columns.centre @ total - fit.model.fixed.to_user(False, total.size)[1] @ total)


def names_of(model: Model) -> list[str]:
    """Of the coefficients, the intercept first where there is one."""
    return [*([INTERCEPT] if model.sum.intercept else []), *model.sum.fixed_names]


def coefficients(fit: FittedModel) -> pd.DataFrame:
    """Mean, sd, interval; exp(coefficient) where it has a name."""
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
            raise KeyError(str(problem("effects", f"there is no term {key!r}", f"one of {list(self)}")))
        import pandas as pd

        fit, model = self._fit, self._fit.model
        where = model.sum.shown(term.name)
        if where is None:
            raise problem("effects", f"the term {key!r} has no table", "a term that says where it is shown")
        labels, design, codes = where
        n = None if codes is None else model.sum.counts(model.target.seen)[term.name][codes]
        where_from = (getattr(term, "column", term.name), labels)
        if fit.integrated is None:
            out = table(where_from, fit.solution.posterior.predict(design=design), fit.likelihood.ratio, 0.95, n)
        else:
            out = of_marginals(where_from, fit.integrated.at(design=design), fit.likelihood.ratio, n=n)
        if labels and all(isinstance(label, tuple) for label in labels):
            out.index = pd.MultiIndex.from_tuples(labels)
        return out

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

    rows = _described(fit, fit.theta)
    ends = spread(fit, lambda theta: [row[2] for row in _described(fit, theta)]) if rows else np.zeros((0, 2))
    index = pd.MultiIndex.from_tuples([row[:2] for row in rows], names=["term", "parameter"]) if rows else None
    columns = {"value": [row[2] for row in rows], "lower": ends[:, 0], "upper": ends[:, 1]}
    return pd.DataFrame(columns, index=index)


def _described(fit: FittedModel, theta: np.ndarray) -> list[tuple[str, str, float]]:
    """theta in words, sds rather than precisions and variances."""
    rows = [(str(term.name), *row) for term, part in fit.model.sum.thetas(theta) for row in _of_term(term, part)]
    own = theta[sum(len(term.hyperparameters) for term in fit.model.sum.effects) :]
    likelihood = fit.found.likelihood.with_theta(own) if own.size else fit.found.likelihood
    reported, _ = likelihood.reported()
    if fit.model.ordered and own.size:
        reported = reported.with_theta(np.r_[reported.theta[0] + fit.shift, reported.theta[1:]])
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
        rows.append((name, "at the mean of the columns" if j < own else "coefficient", text))
    for term in model.sum.effects:
        rows += [(str(term.name), _as_sd(h, h.start)[0], _prior_words(h)) for h in term.hyperparameters]
    for p in model.target.likelihood.learned:
        rows.append((model.target.likelihood.name, p.name, in_words(p.prior)))
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
    return in_words(h.prior) if h.prior is None else f"{in_words(h.prior)} of {h.label}"


# -- the summary --------------------------------------------------------------------------------------------
def summary(fit: FittedModel) -> str:
    """A page: the certificate first."""
    model, sol = fit.model, fit.solution
    seen, n = int((model.target.seen > 0.0).sum()), len(model.kept)
    word = "converged" if fit.converged else "NOT CONVERGED"
    family = model.target.likelihood.word or repr(model.target.likelihood)
    relative = sol.gap / max(1.0, abs(sol.elbo))
    proof = f"gap {sol.gap:.1e} nats (relative {relative:.0e}, {sol.certificate})"
    if np.isinf(sol.gap) and sol.certificate == "stationarity":
        proof = "a stationary point, of a family that is not log-concave: another may be better"
    lines = [
        f"{word}: {proof}, log evidence at least {sol.elbo:.3f}",
        *([] if fit.converged else [f"  {fit.found.status}"]),
        "",
        f"{model.formula}",
        f"  family: {family}",
        *(f"  {term.name}: {_in_words(term)}" for term in model.sum.effects),
        f"  rows: {n} used" + (f", {n - seen} of them with y unobserved and predicted" if seen < n else ""),
    ]
    if model.dropped.n:
        each = ", ".join(f"{name!r} in {count}" for name, count in model.dropped.columns.items())
        rows = "1 row" if model.dropped.n == 1 else f"{model.dropped.n} rows"
        lines.append(f"  dropped: {rows} in which a covariate is missing ({each})")
    shown = fit.coefficients[["mean", "sd", "lower", "upper"]]
    if len(shown):
        lines += ["", "fixed effects, 95 % intervals", _text(shown)]
    found = fit.hyperparameters
    if len(found):
        known = "by the curvature of the evidence" if fit.integrated is None else "integrated over"
        lines += ["", f"hyperparameters, 95 % intervals {known}", _text(found)]
    lines += ["", "priors", _text(model.priors)]
    gaussian = "Effects and predictions are Gaussian at these hyperparameters."
    lines += [
        "",
        gaussian if fit.integrated is None else f"Hyperparameters are integrated out: {fit.integrated.status}.",
    ]
    return "\n".join(lines)


def _text(frame: pd.DataFrame) -> str:
    return "\n".join("  " + line for line in frame.to_string(float_format=lambda x: f"{x:.4g}").splitlines())


def _in_words(term: Term) -> str:
    levels = f", {len(term.levels)} levels" if term.levels is not None else ""
    first = (type(term).__doc__ or type(term).__name__).strip().split("\n")[0].split(",")[0].split(":")[0].rstrip(".")
    return f"{first[0].lower()}{first[1:]}{levels}" if first[1:2].islower() else f"{first}{levels}"
