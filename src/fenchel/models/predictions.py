"""Predictions of a fitted model: the design of new rows, marginals of eta and y there, and joint draws.

p(eta | y) = sum_k w_k p(eta | y, theta_k)     if hyperparameters are averaged over: ``fit.components`` are the fits
                                               at each theta, or only the fit itself
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, problem, scalar
from ..inputs.frames import missing, read_frame, used
from ..likelihoods.base import Likelihood
from ..linalg.machine import one_thread
from ..marginals import Marginals, probabilities
from ..predictive import Predictive
from ..priors.base import NewRows
from ..terms import DataTable, Term
from ..terms.base import FIXED_PART
from ..terms.forecast import Unseen
from .fixed import reported_shift
from .stated_priors import ambiguous, term_named, terms_over

if TYPE_CHECKING:
    import pandas as pd

    from ..inputs.frames import Table
    from .fit_tables import FitTables
    from .fitted import FittedModel


@dataclass(frozen=True)
class PredictionRows:
    """Rows of a table at the hyperparameters of one fit.

    Attributes
    ----------
    frame : pandas frame
        The rows that can be predicted; if none can, one row of the fit instead.
    index : of all rows
    there : bool array
        Which of all rows can be predicted, because no covariate is missing.
    data : DataTable
        The frame as terms read it.
    new : NewRows
        Design, offset and the extra variance of groups that the fit has not seen.
    unseen : list of (Term, Unseen)
        The further random effects of new groups, and of times beyond those of a series.
    without : list
        The names of the terms that are left out.
    given : mapping
        ``exposure`` and ``trials``, if the caller gave them.
    known : mapping
        Rows of terms that do not depend on theta.
    """

    frame: pd.DataFrame
    index: Any
    there: np.ndarray
    data: DataTable
    new: NewRows
    unseen: list[tuple[Term, Unseen]]
    without: Sequence[Any]
    given: Mapping[str, Any]
    known: Mapping[Any, Any]

    def full(self, values: np.ndarray) -> np.ndarray:
        """Expand values of the predicted rows along the first axis to all rows, with NaN for the others."""
        if self.there.all() and self.there.any():
            return values
        out = np.full((self.there.size, *values.shape[1:]), np.nan, dtype=np.result_type(values, np.float64))
        out[self.there] = values[: int(self.there.sum())]
        return out

    def under(self, fit: FitTables) -> PredictionRows:
        """The same rows at the hyperparameters of another fit of the model."""
        if not self.unseen:
            return self
        new = fit.model.sum.new_table(fit.theta, self.data, ahead=True, without=self.without, known=self.known)
        return replace(self, new=replace(new.rows, offset=self.new.offset), unseen=new.unseen)


def read_rows(
    fit: FitTables,
    table: Table = None,
    new_groups: str = "population",
    without: str | Sequence[str] = (),
    exposure: Any = None,
    trials: Any = None,
) -> PredictionRows:
    """The rows of a table, or of the data; terms in ``without`` are 0, and their columns are not needed."""
    choice("predict", "new_groups", new_groups, ("population", "error"))
    model, out = fit.model, _left_out(fit, without)
    if table is None:
        frame, index = model.frame, model.data_index
        there = np.zeros(len(index), dtype=bool)
        there[model.kept] = True
    else:
        frame = read_frame("predict", table, "new")
        model.reduction.check_columns("predict", frame)
        index, needed = frame.index, _needed(fit, out)
        _check_columns(fit, frame, needed)
        plain = used("predict", frame, needed)
        there = np.ones(len(frame), dtype=bool)
        for where in missing("predict", plain, needed).values():
            there &= ~where
        rest = {name: frame[name].array for name in frame.columns if name not in plain.columns}
        plain = plain.assign(**rest)
        frame = plain[there].reset_index(drop=True) if there.any() else model.frame.iloc[:1]
    given = {key: value for key, value in (("exposure", exposure), ("trials", trials)) if value is not None}
    data = model.table(frame)
    new = model.sum.new_table(fit.theta, data, ahead=True, without=out)
    if new_groups == "error":
        _check_groups(new.unseen, data)
    offset = model.coefficient_priors.known(new.rows.design)  # of terms that have a straight line, too
    if FIXED_PART not in out:
        offset += model.level + model.offset_at(frame)
    rows = replace(new.rows, offset=offset)
    return PredictionRows(frame, index, there, data, rows, new.unseen, out, given, new.known)


def _left_out(fit: FitTables, without: str | Sequence[str]) -> list[Any]:
    """The names of the terms that are left out of a prediction."""
    effects, asked = fit.model.sum.effects, [without] if isinstance(without, str) else list(without)
    out = []
    for key in (name for each in asked for name in fit.model.compiled.stands_for(each)):
        if key == "groups":
            out += [term.name for term in effects if term.of_groups]
            continue
        if key == "fixed":
            out.append(FIXED_PART)
            continue
        term = term_named(effects, key)
        if term is None and terms_over(effects, key):
            raise ambiguous("predict: without", key, [each.name for each in terms_over(effects, key)])
        if term is None:
            known = ", ".join(repr(str(each.name)) for each in effects) or "none is there"
            where = f'"groups", "fixed" (covariates and the intercept), or terms that are neither: {known}'
            raise problem("predict", f"without names {key!r}", where)
        out.append(term.name)
    return out


def _needed(fit: FitTables, out: Sequence[Any]) -> list[Any]:
    """The columns that new rows need if some terms are left out."""
    model = fit.model
    if not out:
        return model.covariates
    kept = [name for term in model.sum.effects if term.name not in out for name in term.columns]
    kept = [source for name in kept for source in model.compiled.sources_of(name)]
    fixed = [name for name in model.fixed.columns if name in model.fixed.expression.names]
    fixed += [name for offset in model.offsets for name in offset.names]
    own = [name for second in model.seconds for name in second.expression.names]  # of the likelihood's parameters
    return list(dict.fromkeys([*(() if FIXED_PART in out else fixed), *own, *kept]))


def _check_columns(fit: FitTables, frame: pd.DataFrame, needed: Sequence[Any]) -> None:
    """Refuse a table without a column of groups; the error says how to leave out their term."""
    model = fit.model
    of = [name for term in model.sum.effects if term.of_groups for name in term.group_columns]
    groups = {source for name in of for source in model.compiled.sources_of(name)}
    lacking = [name for name in needed if name not in frame.columns]
    if lacking and groups.issuperset(lacking):
        got = f"there is no column {lacking[0]!r}, which says the group of a row"
        raise problem("predict", got, 'it, or without="groups"', "That leaves the effects of groups at 0.")


def _check_groups(unseen: Sequence[tuple[Term, Unseen]], data: DataTable) -> None:
    """Refuse groups that the fit has not seen."""
    for term, part in unseen:
        if part.groups:
            row = int(np.argmax(part.of >= 0))
            named = ", ".join(repr(data.column(name).values[row]) for name in term.group_columns)
            got = f"row {row} has a group of {term.name} that fit has not seen: {named}"
            advice = 'new_groups="population" predicts it as one more of them.'
            raise problem("predict", got, "known groups", advice)


# -- marginals ----------------------------------------------------------------------------------------------
def marginals(fit: FitTables, rows: Callable[[FitTables], NewRows]) -> Marginals:
    """Marginals of eta, or another sum of latents, at rows that are given for each component of the fit."""
    each = [part.posterior.at(rows(part)) for part in fit.components]
    return each[0] if fit.mixture is None else fit.mixture.mixture(each)


def on_reported_scale(fit: FitTables, new: NewRows) -> NewRows:
    """Rows of eta as reported: durations in the unit of y, ordered levels for uncentred x."""
    row, constant = reported_shift(fit)
    design = new.design
    if row is not None:
        design = sp.csr_array(design + np.ones((design.shape[0], 1)) @ row[None, :])
    return replace(new, design=design, offset=new.offset + constant)


def rows_of_kind(fit: FitTables, rows: PredictionRows, kind: str) -> NewRows:
    """Rows of eta, for "link" as it is reported: a level of its own is left out with the fixed part."""
    return on_reported_scale(fit, rows.new) if kind == "link" and FIXED_PART not in rows.without else rows.new


def predictive(fit: FitTables, rows: PredictionRows, kind: str) -> Predictive:
    """Predictive distribution of y at rows; with ``kind`` "link" of eta as reported."""
    likelihoods, etas = [], []
    for part in fit.components:
        own = rows if part is fit else rows.under(part)
        etas.append(part.posterior.at(rows_of_kind(part, own, kind)))
        likelihoods.append(likelihood_at(part, rows))
    values = fit.model.target.values
    if fit.mixture is None:
        return Predictive(likelihoods[0], etas[0], values)
    return Predictive.mixture(fit.mixture.weights, likelihoods, etas, fit.mixture.mixture(etas), values)


def predict(fit: FitTables, rows: PredictionRows, kind: str, interval: float | None) -> Any:
    """Predictions of one kind, as a pandas Series or frame."""
    with one_thread(fit.integrated is not None and fit.solution.posterior.predictors.small, ours=True):
        return _predicted(fit, rows, kind, interval)


def _predicted(fit: FitTables, rows: PredictionRows, kind: str, interval: float | None) -> Any:
    import pandas as pd

    y = predictive(fit, rows, kind)
    if kind == "probability":
        labels = labels_of(fit)
        if labels is None:
            trials = "trials" in fit.model.target.likelihood.row_parameters
            advice = 'kind="mean" with trials=1 is the probability of a success.' if trials else ""
            raise problem("predict", 'kind = "probability" and y is no label', 'kind="mean"', advice)
        if interval is not None:
            two = len(labels) == 2
            advice = f'kind="mean" is the probability of {labels[1]!s}, with its interval.' if two else ""
            raise problem("predict", 'an interval with kind = "probability"', "interval=None", advice)
        return pd.DataFrame(rows.full(y.probabilities), index=rows.index, columns=pd.Index(labels))
    mean = y.location(kind)
    if interval is None:
        return pd.Series(rows.full(mean), index=rows.index, name=kind)
    limits = y.limits(kind, interval_ends("predict", interval))
    columns = {"mean": mean, "sd": y.sd(kind), "lower": limits[:, 0], "upper": limits[:, 1]}
    return pd.DataFrame({key: rows.full(value) for key, value in columns.items()}, index=rows.index)


def predict_lazily(fit: FittedModel, new: Any, kind: str, options: Mapping[str, Any]) -> Any:
    """Predictions of a Dask dataframe, partition by partition."""
    if not (hasattr(new, "map_partitions") and new.ndim == 2):
        got = f"a {type(new).__name__} of Dask's"
        raise problem("predict", got, "a Dask dataframe with the columns of the formula, or a table in memory")
    row = fit.model.frame.iloc[:1].reindex(columns=list(new.columns))
    like = fit.predict(row, kind, **options)  # columns and options are checked at once
    meta = like.iloc[:0].set_axis(new._meta.index[:0], axis=0)
    return new.map_partitions(_predict_partition, fit, kind, options, meta, meta=meta)


def _predict_partition(part: Any, fit: FittedModel, kind: str, options: Mapping[str, Any], none: Any) -> Any:
    return fit.predict(part, kind, **options) if len(part) else none.set_axis(part.index, axis=0)


def exceedance(fit: FitTables, rows: PredictionRows, threshold: float, kind: str) -> pd.Series:
    """The probability of each row that the predicted quantity exceeds a threshold."""
    import pandas as pd

    limit = scalar("exceedance", "threshold", threshold)
    out = predictive(fit, rows, kind).exceedance(kind, limit)
    return pd.Series(rows.full(out), index=rows.index, name=f"above {limit:g}")


def log_density(fit: FitTables, table: Table, **given: Any) -> np.ndarray:
    """Log predictive density (N,) of the y in a table, with its events and interval ends; NaN if y is missing.

    ``given``: exposure and trials, as in ``predict``.
    """
    rows = read_rows(fit, table, **given)
    y, beside = fit.model.response.read_again(rows.frame)
    return rows.full(predictive(fit, replace(rows, given={**rows.given, **beside}), "outcome").log_density(y))


def interval_ends(where: str, interval: object) -> np.ndarray:
    """The probabilities of the two ends of a central interval."""
    if isinstance(interval, str):
        raise problem(where, f"interval = {interval!r} is a text", "a number such as 0.95")
    if np.ndim(interval) != 0:  # type: ignore[arg-type]
        raise problem(where, f"interval = {interval!r} is several", "one number such as 0.95, a call for each")
    inside = float(probabilities(where, interval, "interval"))  # type: ignore[arg-type]
    return np.array([0.5 - inside / 2, 0.5 + inside / 2])


# -- labels and likelihoods ---------------------------------------------------------------------------------
def labels_of(fit: FitTables) -> np.ndarray | None:
    """The labels of y in order, in their original form (words, booleans, numbers); None if y is not a label."""
    labels = fit.model.target.labels
    if labels is None or fit.model.target.words is not None:
        return labels
    import pandas as pd

    kind = pd.Series(fit.model.response.values(fit.model.frame)).dtype.kind
    return labels.astype(bool if kind == "b" else np.int64) if kind in ("b", "i", "u") else labels


def as_labels(fit: FitTables, drawn: np.ndarray) -> np.ndarray:
    """Draws of y as labels, None for dropped rows; draws of numbers are returned unchanged."""
    labels, values = labels_of(fit), fit.model.target.values
    if labels is None or values is None:
        return drawn
    there = ~np.isnan(drawn)
    out = np.asarray(labels)[np.searchsorted(values, np.where(there, drawn, values[0]))]
    if not there.all():
        out = out.astype(object)
        out[~there] = None
    return out


def likelihood_at(fit: FitTables, rows: PredictionRows) -> Likelihood:
    """The likelihood at the rows, with their exposure, trials and events."""
    model, given = fit.model, dict(rows.given)
    if rows.frame is model.frame and not given:
        return fit.found.likelihood.lenient()
    for key, value in given.items():
        if np.ndim(value) == 1 and np.shape(value)[0] == rows.there.size:
            given[key] = np.asarray(value)[rows.there] if rows.there.any() else 1.0
    return model.response.at(fit.found.likelihood, rows.frame, given)


# -- draws --------------------------------------------------------------------------------------------------
def shares(fit: FitTables, size: int, rng: np.random.Generator) -> list[tuple[FitTables, np.ndarray]]:
    """The components of a fit that get some of ``size`` draws, and the places of these draws."""
    if fit.mixture is None:
        return [(fit, np.arange(size))]
    each = zip(fit.components, fit.mixture.shared(size, rng), strict=True)
    return [(part, which) for part, which in each if which.size]


def latent_draws(fit: FitTables, size: int, rng: np.random.Generator, design: Any = None) -> np.ndarray:
    """Joint draws (size, L) of all latents; with a ``design`` (M, L) of those that it uses, the others 0."""
    if design is None:
        return np.asarray(fit.posterior.sample_latents(size, rng))
    own, out = sp.csr_array(design), np.zeros((size, design.shape[1]))
    used = np.unique(own.indices[own.data != 0.0])
    out[:, used] = fit.posterior.sample_some(used, size, rng)
    return out


def draws_with_theta(fit: FitTables, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws of theta (size, n) and of all latents (size, L); these belong to a fit at a theta close to the drawn one.

    If theta is not integrated out it is drawn from the evidence about its mode, and the latents are those at the mode.
    """
    if fit.integrated is None:
        thetas = np.tile(fit.theta, (size, 1))
        if fit.theta.size and fit.theta_mode.free:
            mode, evidence = fit.theta_mode, fit.engine.evidence(fit)
            coordinates = mode.coordinates(lambda many: [evidence(theta)[0] for theta in many])
            thetas = np.clip(coordinates.theta(rng.standard_normal((size, len(mode.free)))), *mode.bounds.T)
        return thetas, latent_draws(fit, size, rng)
    theta, each = fit.integrated.sample_with_theta(size, rng)
    latents = [latent_draws(part, which.size, rng) for part, which in zip(fit.components, each, strict=True)]
    out = np.empty((size, latents[0].shape[1]))
    for which, drawn in zip(each, latents, strict=True):
        out[which] = drawn
    return theta, out


def eta_draws(
    rows: PredictionRows, latents: np.ndarray, rng: np.random.Generator, new: NewRows | None = None
) -> np.ndarray:
    """Draws of eta (M, size) from draws of the latents; rows of the same new group share its effect."""
    new = rows.new if new is None else new
    eta = np.asarray(new.design @ latents.T) + np.asarray(new.offset)[:, None]
    for _, part in rows.unseen:
        eta += part.draws(latents.shape[0], rng)
    return eta


def mean_given(fit: FitTables, likelihood: Likelihood, eta: np.ndarray) -> np.ndarray:
    """E[y | eta] (M, size), an array of the shape of eta."""
    values = fit.model.target.values
    return np.asarray(likelihood.mean_at(eta) if values is None else likelihood.probabilities_at(eta) @ values)


def draws(fit: FitTables, rows: PredictionRows, size: int, rng: np.random.Generator, kind: str) -> np.ndarray:
    """Joint draws (size, M), over theta if it is averaged over."""
    out = np.empty((size, rows.there.size))
    for part, which in shares(fit, size, rng):
        own = rows if part is fit else rows.under(part)
        out[which] = _draws_at(part, own, which.size, rng, kind)
    return out


def _draws_at(fit: FitTables, rows: PredictionRows, size: int, rng: np.random.Generator, kind: str) -> np.ndarray:
    """Joint draws (size, M) at one theta."""
    new = rows_of_kind(fit, rows, kind)
    eta = eta_draws(rows, latent_draws(fit, size, rng), rng, new)
    if kind == "link":
        return rows.full(eta).T
    likelihood = likelihood_at(fit, rows)
    if kind == "mean":
        return rows.full(mean_given(fit, likelihood, eta)).T
    out, values = np.asarray(likelihood.draw(eta, rng), dtype=np.float64), fit.model.target.values
    return rows.full(out if values is None else values[out.astype(int)]).T
