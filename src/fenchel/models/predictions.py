"""Predictions of a fitted model: rows of any table as a design, the moments of eta there, and joint draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, problem, scalar
from ..inputs.frames import missing, read_frame, used
from ..likelihoods.base import Likelihood
from ..marginals import NormalMarginals, probabilities
from ..predictive import Predictive
from ..priors.base import NewRows
from ..terms import DataTable, Term
from ..terms.forecast import Unseen
from .cox import TIME, refuse_rows
from .stated_priors import ambiguous, term_named, terms_over
from .tables import reported_shift

if TYPE_CHECKING:
    import pandas as pd

    from ..inputs.frames import Table
    from .fitted import FittedModel


@dataclass(frozen=True)
class Where:
    """Rows of a table.

    Attributes
    ----------
    frame : pandas frame
        As it came, those rows alone that can be predicted; where none can, one of the fit's in their place.
    index : of all rows
    there : bool array
        Which of all rows can be predicted: no covariate is missing.
    new : NewRows
        Design, offset and the extra variance of groups that fit has not seen.
    unseen : list of Unseen
        What such groups, and times beyond those of a series, have of their own.
    without : list
        The names of the terms that are left out.
    """

    frame: pd.DataFrame
    index: Any
    there: np.ndarray
    new: NewRows
    unseen: list[Unseen]
    without: Sequence[Any] = ()

    def full(self, values: np.ndarray) -> np.ndarray:
        """Values of the rows that can be predicted, along the first axis, with NaN for the others."""
        if self.there.all() and self.there.any():
            return values
        out = np.full((self.there.size, *values.shape[1:]), np.nan, dtype=np.result_type(values, np.float64))
        out[self.there] = values[: int(self.there.sum())]
        return out


def rows_at(
    fit: FittedModel, table: Table = None, new_groups: str = "population", without: str | Sequence[str] = ()
) -> Where:
    """The rows of a table, or of the fit's own data; terms named in ``without`` are 0, and their columns not needed."""
    choice("predict", "new_groups", new_groups, ("population", "error"))
    model, out = fit.model, _left_out(fit, without)
    if table is None:
        frame, index = model.frame, model.data_index
        there = np.zeros(len(index), dtype=bool)
        there[model.kept] = True
    else:
        frame = read_frame("predict", table, "new")
        if model.cox is not None and TIME not in frame.columns:
            raise refuse_rows("predict")
        index, needed = frame.index, _needed(fit, out)
        _check_columns(fit, frame, needed)
        plain = used("predict", frame, needed)
        lost = np.zeros(len(frame), dtype=bool)
        for where in missing("predict", plain, needed).values():
            lost |= where
        there, rest = ~lost, [name for name in frame.columns if name not in plain.columns]
        plain = plain.assign(**{name: frame[name].array for name in rest}) if rest else plain
        frame = plain[there].reset_index(drop=True) if there.any() else model.frame.iloc[:1]
    return _where(fit, frame, index, there, out, new_groups == "error")


def again(fit: FittedModel, where: Where) -> Where:
    """The same rows under the hyperparameters of another fit of the model."""
    return _where(fit, where.frame, where.index, where.there, where.without)


def _where(
    fit: FittedModel, frame: pd.DataFrame, index: Any, there: np.ndarray, without: Sequence[Any], strict: bool = False
) -> Where:
    model = fit.model
    data = model.table(frame)
    new = model.sum.new_table(fit.theta, data, ahead=True, without=without)
    if strict:
        _check_groups(new.unseen, data)
    known = model.level + model.offset_at(frame) + model.coefficient_priors.offset(new.fixed)
    return Where(frame, index, there, replace(new.rows, offset=known), [part for _, part in new.unseen], without)


def stated(fit: FittedModel, where: Where, kind: str) -> Where:
    """The rows, of ``kind`` "link" with eta as it is reported: of durations in y's unit, of levels at x as it came."""
    if kind != "link":
        return where
    row, constant = reported_shift(fit)
    design, new = where.new.design, where.new
    if row is not None:
        design = sp.csr_array(design + np.ones((design.shape[0], 1)) @ row[None, :])
    return replace(where, new=replace(new, design=design, offset=new.offset + constant))


def _left_out(fit: FittedModel, without: str | Sequence[str]) -> list[Any]:
    """The names of the terms that a prediction does without."""
    effects, asked = fit.model.sum.effects, [without] if isinstance(without, str) else list(without)
    out = []
    for key in (name for each in asked for name in fit.model.compiled.stands_for(each)):
        if key == "groups":
            out += [term.name for term in effects if term.of_groups]
            continue
        term = term_named(effects, key)
        if term is None and terms_over(effects, key):
            raise ambiguous("predict: without", key, [each.name for each in terms_over(effects, key)])
        if term is None:
            known = ", ".join(repr(str(each.name)) for each in effects) or "none is there"
            raise problem("predict", f"without names {key!r}", f'"groups", or terms of the formula: {known}')
        out.append(term.name)
    return out


def _needed(fit: FittedModel, out: Sequence[Any]) -> list[Any]:
    """The columns that rows have to bring, where some terms are left out."""
    model = fit.model
    if not out:
        return model.covariates
    kept = [name for term in model.sum.effects if term.name not in out for name in term.columns]
    kept = [source for name in kept for source in model.compiled.sources_of(name)]
    fixed = [name for name in model.fixed.columns if name in model.fixed.expression.names]
    return list(dict.fromkeys([*fixed, *(n for o in model.offsets for n in o.names), *kept]))


def _check_columns(fit: FittedModel, frame: pd.DataFrame, needed: Sequence[Any]) -> None:
    """Refuses a table without a column of groups, with the way to do without them."""
    model = fit.model
    of = [name for term in model.sum.effects if term.of_groups for name in term.group_columns]
    groups = {source for name in of for source in model.compiled.sources_of(name)}
    lacking = [name for name in needed if name in groups and name not in frame.columns]
    others = [name for name in needed if name not in groups and name not in frame.columns]
    if lacking and not others:
        got = f"there is no column {lacking[0]!r}, which says the group of a row"
        raise problem("predict", got, 'it, or without="groups"', "That leaves the effects of groups at 0.")


def _check_groups(unseen: Sequence[tuple[Term, Unseen]], data: DataTable) -> None:
    """Refuses groups that fit has not seen."""
    for term, part in unseen:
        if part.groups:
            row = int(np.argmax(part.of >= 0))
            named = ", ".join(repr(data.column(name).values[row]) for name in term.group_columns)
            got = f"row {row} has a group of {term.name} that fit has not seen: {named}"
            raise problem("predict", got, "known groups", 'new_groups="population" predicts it as one more of them.')


# -- moments ------------------------------------------------------------------------------------------------
def moments(fit: FittedModel, new: NewRows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of eta (M,); its covariance (M, C, C) where several predictors of a row are correlated."""
    there = fit.posterior.at(new)
    if isinstance(there, NormalMarginals) and there.find_covariance is not None:
        return np.asarray(there.mean), np.asarray(there.spread)
    return np.asarray(there.mean), np.maximum(np.asarray(there.variance), 0.0)


def predict(fit: FittedModel, where: Where, y: Predictive, kind: str, interval: float | None) -> Any:
    """One kind of prediction, as pandas' own."""
    import pandas as pd

    if kind == "probability":
        labels = labels_of(fit)
        if labels is None:
            trials = "trials" in fit.model.target.likelihood.row_parameters
            advice = 'kind="mean" with trials=1 is the probability of a success.' if trials else ""
            raise problem("predict", 'kind = "probability" and y is no label', 'kind="mean"', advice)
        if interval is not None:
            advice = f'kind="mean" is the probability of {labels[1]!s}, with its interval.' if len(labels) == 2 else ""
            raise problem("predict", 'an interval with kind = "probability"', "interval=None", advice)
        return pd.DataFrame(where.full(y.probabilities), index=where.index, columns=pd.Index(labels))
    mean = y.location(kind)
    if interval is None:
        return pd.Series(where.full(mean), index=where.index, name=kind)
    inside = _inside(interval)
    limits = y.limits(kind, np.array([0.5 - inside / 2, 0.5 + inside / 2]))
    columns = {"mean": mean, "sd": y.sd(kind), "lower": limits[:, 0], "upper": limits[:, 1]}
    return pd.DataFrame({key: where.full(value) for key, value in columns.items()}, index=where.index)


def log_density(fit: FittedModel, table: Table) -> np.ndarray:
    """log p(y) (N,) of the y in a table, with the events and ends of its durations; NaN where it is missing."""
    from . import over_theta

    where, response = rows_at(fit, table), fit.model.response
    y, beside = response.read_again(where.frame)
    return where.full(over_theta.predictive(fit, where, beside, "outcome").log_density(y))


def exceedance(fit: FittedModel, where: Where, y: Predictive, threshold: float, kind: str) -> pd.Series:
    """P(what is predicted > threshold) of each row."""
    import pandas as pd

    limit = scalar("exceedance", "threshold", threshold)
    out = y.exceedance(kind, limit)
    return pd.Series(where.full(out), index=where.index, name=f"above {limit:g}")


def _inside(interval: object) -> float:
    """The probability of an interval: one number."""
    if isinstance(interval, str):
        raise problem("predict", f"interval = {interval!r} is a text", "a number such as 0.95")
    if np.ndim(interval) != 0:  # type: ignore[arg-type]
        raise problem("predict", f"interval = {interval!r} is several", "one number such as 0.95, a call for each")
    return float(probabilities("predict", interval, "interval"))  # type: ignore[arg-type]


def predictive(fit: FittedModel, where: Where, given: Mapping[str, Any]) -> Predictive:
    """y at the rows under the posterior of one theta."""
    return Predictive(likelihood_at(fit, where, given), fit.posterior.at(where.new), fit.model.target.values)


def labels_of(fit: FittedModel) -> np.ndarray | None:
    """What y may be, in order and as it came: words, booleans, whole numbers or others; None where y is no label."""
    labels = fit.model.target.labels
    if labels is None or fit.model.target.words is not None:
        return labels
    kind = getattr(getattr(fit.model.response.values(fit.model.frame), "dtype", None), "kind", "")
    return labels.astype(bool if kind == "b" else np.int64) if kind in ("b", "i", "u") else labels


def as_labels(fit: FittedModel, drawn: np.ndarray) -> np.ndarray:
    """Draws of y as labels, None where a row was left out; those of numbers as they are."""
    labels, values = labels_of(fit), fit.model.target.values
    if labels is None or values is None:
        return drawn
    there = ~np.isnan(drawn)
    out = np.asarray(labels)[np.searchsorted(values, np.where(there, drawn, values[0]))]
    if not there.all():
        out = out.astype(object)
        out[~there] = None
    return out


def likelihood_at(fit: FittedModel, where: Where, given: Mapping[str, Any]) -> Likelihood:
    """The likelihood at the rows: those of the fit have what they had."""
    model, asked = fit.model, {key: value for key, value in given.items() if value is not None}
    if where.frame is model.frame and not asked:
        return fit.found.likelihood.lenient()
    for key, value in asked.items():
        if np.ndim(value) == 1 and np.shape(value)[0] == where.there.size:
            asked[key] = np.asarray(value)[where.there] if where.there.any() else 1.0
    return model.response.at(fit.found.likelihood, where.frame, asked)


# -- draws --------------------------------------------------------------------------------------------------
def latent_draws(fit: FittedModel, size: int, rng: np.random.Generator) -> np.ndarray:
    """Of all latents (size, L)."""
    return np.asarray(fit.posterior.sample_latents(size, rng))


def eta_draws(where: Where, latents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of eta (M, size), from draws of the latents; rows of one new group share its draw."""
    eta = np.asarray(where.new.design @ latents.T) + np.asarray(where.new.offset)[:, None]
    for part in where.unseen:
        eta += part.draws(latents.shape[0], rng)
    return eta


def mean_given(fit: FittedModel, likelihood: Likelihood, eta: np.ndarray) -> np.ndarray:
    """E[y | eta], like eta (M, size)."""
    values = fit.model.target.values
    return np.asarray(likelihood.mean_at(eta) if values is None else likelihood.probabilities_at(eta) @ values)


def draws(
    fit: FittedModel, where: Where, size: int, rng: np.random.Generator, kind: str, given: Mapping[str, Any]
) -> np.ndarray:
    """Joint draws (size, M)."""
    eta = eta_draws(stated(fit, where, kind), latent_draws(fit, size, rng), rng)
    if kind == "link":
        return where.full(eta).T
    likelihood = likelihood_at(fit, where, given)
    if kind == "mean":
        return where.full(mean_given(fit, likelihood, eta)).T
    out, values = np.asarray(likelihood.draw(eta, rng), dtype=np.float64), fit.model.target.values
    return where.full(out if values is None else values[out.astype(int)]).T
