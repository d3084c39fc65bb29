"""Predictions of a fitted model: rows of any table as a design, the moments of eta there, and joint draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, problem
from ..likelihoods.base import Likelihood
from ..likelihoods.prediction import mean_quantiles
from ..marginals import probabilities
from ..priors.base import NewRows
from .frames import missing, read_frame, used

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .frames import Table


@dataclass(frozen=True)
class Where:
    """Rows of a table.

    Attributes
    ----------
    frame : pandas frame
        As it came, those rows alone that can be predicted.
    index : of all rows
    there : bool array
        Which of all rows can be predicted: no covariate is missing.
    new : NewRows
        Design, offset and the extra variance of groups that fit has not seen.
    unseen : list of (groups, weights, covariance)
        Of each term with such groups: which one each row has (-1: a known one), the weights (M, d) of its latents, and
        their covariance.
    """

    frame: pd.DataFrame
    index: Any
    there: np.ndarray
    new: NewRows
    unseen: list[tuple[np.ndarray, np.ndarray, np.ndarray]]

    def full(self, values: np.ndarray) -> np.ndarray:
        """Values of the rows that can be predicted, along the first axis, with NaN for the others."""
        if self.there.all():
            return values
        out = np.full((self.there.size, *values.shape[1:]), np.nan, dtype=np.result_type(values, np.float64))
        out[self.there] = values
        return out


def rows_at(fit: FittedModel, table: Table = None, new_groups: str = "population") -> Where:
    """The rows of a table, or of the fit's own data."""
    choice("predict", "new_groups", new_groups, ("population", "error"))
    model = fit.model
    if table is None:
        frame, index = model.frame, model.data_index
        there = np.zeros(len(index), dtype=bool)
        there[model.kept] = True
    else:
        frame = read_frame("predict", table, "new")
        index = frame.index
        plain = used("predict", frame, model.covariates)
        lost = np.zeros(len(frame), dtype=bool)
        for where in missing("predict", plain, model.covariates).values():
            lost |= where
        there, rest = ~lost, [name for name in frame.columns if name not in plain.columns]
        plain = plain.assign(**{name: frame[name].array for name in rest}) if rest else plain
        frame = plain[there].reset_index(drop=True)
        if not there.any():
            raise problem("predict", "no row of new has all covariates", "at least one")
    data = model.table(frame)
    new = model.sum.new_rows(fit.theta, data)
    known = model.level + model.offset_at(frame)
    if model.coefficient_priors.stated:
        X = model.sum._fixed([term.rows(data, new=True) for term in model.sum.terms], len(frame))
        known = known + model.coefficient_priors.offset(X)
    return Where(frame, index, there, replace(new, offset=known), _unseen(fit, data, new_groups))


def _unseen(fit: FittedModel, data: Any, new_groups: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Groups that fit has not seen, term by term."""
    out, model = [], fit.model
    for term, theta in model.sum.thetas(fit.theta):
        rows = term.rows(data, new=True)
        if rows.unseen is None:
            continue
        strange = np.flatnonzero(rows.unseen.any(axis=1) if rows.codes is None else rows.codes < 0)
        if not strange.size:
            continue
        columns = [data.column(name).values for name in _group_of(term)]
        keys = [tuple(column[i] for column in columns) for i in strange]
        if new_groups == "error" and _of_groups(term, data):
            named = ", ".join(repr(part) for part in keys[0])
            got = f"row {strange[0]} has a group of {term.name} that fit has not seen: {named}"
            raise problem("predict", got, "known groups", 'new_groups="population" predicts it as one more of them.')
        place = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        groups = np.full(len(data), -1)
        groups[strange] = [place[key] for key in keys]
        out.append((groups, rows.unseen, term.population(theta)))
    return out


def _group_of(term: Any) -> tuple[Any, ...]:
    """The columns that say which group a row has."""
    for attribute in ("group", "members", "column"):
        found = getattr(term, attribute, None)
        if found is not None:
            return found if isinstance(found, tuple) else (found,)
    return tuple(term.columns)


def _of_groups(term: Any, data: Any) -> bool:
    """Whether what fit has not seen are groups, and not times between those of a series."""
    codes = getattr(term, "first", term).rows(data, new=True).codes
    return hasattr(term, "members") or (codes is not None and bool((codes < 0).any()))


# -- moments ------------------------------------------------------------------------------------------------
def moments(fit: FittedModel, new: NewRows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of eta (M,)."""
    there = fit.posterior.at(**new)
    return np.asarray(there.mean), np.maximum(np.asarray(there.variance), 0.0)


def predict(fit: FittedModel, where: Where, kind: str, interval: float | None, given: Mapping[str, Any]) -> Any:
    """One kind of prediction, as pandas' own."""
    import pandas as pd

    h, rho = moments(fit, where.new)
    likelihood, values = _likelihood(fit, where, given), fit.model.target.values
    labels = fit.model.target.labels
    if kind == "probability":
        if labels is None:
            raise problem("predict", 'kind = "probability" and y is no label', 'kind="mean"')
        each = np.asarray(likelihood.predictive_probabilities(h, rho))
        return pd.DataFrame(where.full(each), index=where.index, columns=pd.Index(labels))
    if kind == "link":
        mean = h + fit.shift
    elif values is not None:
        mean = np.asarray(likelihood.predictive_probabilities(h, rho)) @ values
    else:
        mean = np.asarray(likelihood.predictive_mean(h, rho))
    if interval is None:
        return pd.Series(where.full(mean), index=where.index, name=kind)
    inside = float(probabilities("predict", interval, "interval"))
    ends = np.array([0.5 - inside / 2, 0.5 + inside / 2])
    if kind == "link":
        from scipy.special import ndtri

        limits = mean[:, None] + np.sqrt(rho)[:, None] * ndtri(ends)
    elif kind == "mean":
        limits = np.sort(mean_quantiles(likelihood, h, rho, ends, values), axis=1)
    else:
        limits = np.asarray(likelihood.predictive_quantile(ends, h, rho))
        limits = limits if values is None else values[limits.astype(int)]
    columns = {"mean": mean, "lower": limits[:, 0], "upper": limits[:, 1]}
    return pd.DataFrame({key: where.full(value) for key, value in columns.items()}, index=where.index)


def _likelihood(fit: FittedModel, where: Where, given: Mapping[str, Any]) -> Likelihood:
    """The likelihood at the rows: those of the fit have what they had."""
    model, asked = fit.model, {key: value for key, value in given.items() if value is not None}
    if where.frame is model.frame and not asked:
        return fit.found.likelihood.lenient()
    for key, value in asked.items():
        if np.ndim(value) == 1 and np.shape(value)[0] == where.there.size:
            asked[key] = np.asarray(value)[where.there]
    return model.response.at(fit.found.likelihood, where.frame, asked)


# -- draws --------------------------------------------------------------------------------------------------
def latent_draws(fit: FittedModel, size: int, rng: np.random.Generator) -> np.ndarray:
    """Of all latents (size, L)."""
    return np.asarray(fit.posterior.sample_latents(size, rng))


def eta_draws(where: Where, latents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of eta (M, size), from draws of the latents; rows of one new group share its draw."""
    eta = np.asarray(where.new.design @ latents.T) + np.asarray(where.new.offset)[:, None]
    for groups, weights, covariance in where.unseen:
        values, vectors = np.linalg.eigh(covariance)  # a series held by constraints has a singular one
        root, n = vectors * np.sqrt(np.maximum(values, 0.0)), int(groups.max()) + 1
        strange = groups >= 0
        z = np.einsum("de,nes->nds", root, rng.standard_normal((n, root.shape[0], latents.shape[0])))
        eta[strange] += np.einsum("md,mds->ms", weights[strange], z[groups[strange]])
    return eta


def mean_given(fit: FittedModel, likelihood: Likelihood, eta: np.ndarray) -> np.ndarray:
    """E[y | eta], like eta (M, size)."""
    values = fit.model.target.values
    return np.asarray(likelihood.mean_at(eta) if values is None else likelihood.probabilities_at(eta) @ values)


def draws(
    fit: FittedModel, where: Where, size: int, rng: np.random.Generator, kind: str, given: Mapping[str, Any]
) -> np.ndarray:
    """Joint draws (size, M)."""
    eta = eta_draws(where, latent_draws(fit, size, rng), rng)
    if kind == "link":
        return where.full(eta + fit.shift).T
    likelihood = _likelihood(fit, where, given)
    if kind == "mean":
        return where.full(mean_given(fit, likelihood, eta)).T
    out, values = np.asarray(likelihood.draw(eta, rng), dtype=np.float64), fit.model.target.values
    return where.full(out if values is None else values[out.astype(int)]).T
