"""Marginal means, comparisons and slopes: averages of predictions over the rows of a grid, and their contrasts.

    means         m_k = sum_i A_ki  prediction_i          rows i of a grid, weights A (K, M) that sum to 1
    comparisons   C m, or ratios of entries of m          contrasts C (J, K) between cells
    slopes        (prediction(x + h) - prediction(x - h)) / 2h, averaged alike

A prediction is eta ("link"), E[y] ("mean") or y ("outcome"). Differences and averages of eta are linear in the latents,
so their marginals are exact, those of rows of a design; all else uses joint draws with a fixed seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, problem, scalar, vector
from ..linalg.arrays import to_numpy
from ..marginals import Marginals
from ..priors.base import NewRows
from ..terms import Term
from .averages import BLOCK, number_of_draws
from .predictions import (
    PredictionRows,
    eta_draws,
    interval_ends,
    latent_draws,
    marginals,
    mean_given,
    on_reported_scale,
    read_rows,
    shares,
)
from .reference_grid import ReferenceGrid, grid, has_levels, levels_of_factors, listed, only_groups, values_of

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables

SCALES = "link", "mean", "outcome"
GROUPS = "centre", "population", "own"
KINDS = "difference", "ratio", "odds"
CONTRASTS = "pairwise", "reference", "consecutive"
_STEP = 1e-3  # step of a difference on either side, in standard deviations of the column
_NODES = 21  # nodes of the Gauss-Hermite rule over effects of groups in the population
_JOINT = 20_000  # draws for few rows and for simultaneous intervals, whose level then has an error of 0.2 %
_FEW = 100  # rows up to which that many draws are made


# -- averages -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Averages:
    """Averages of predictions over the rows of a grid: exact if they are linear, else by joint draws."""

    fit: FitTables
    grid: ReferenceGrid
    scale: str
    groups: str

    @cached_property
    def without(self) -> str | tuple[str, ...]:
        return () if self.groups == "own" else "groups"

    @cached_property
    def linear(self) -> bool:
        """Whether averages are linear in the latents: those of eta, and of a mean that is eta."""
        if self._read.unseen:
            return False
        return self.scale == "link" or (self.scale == "mean" and self._mean_is_eta())

    def _mean_is_eta(self) -> bool:
        if self.fit.model.target.values is not None:
            return False
        eta = np.tile([-1.0, 2.0], (len(self._read.frame), 1))
        return bool(np.array_equal(mean_given(self.fit, self._likelihood(self.fit, self._read), eta), eta))

    def _likelihood(self, fit: FitTables, where: PredictionRows) -> Any:
        """The likelihood at exposure 1 and one trial."""
        return fit.model.response.at(fit.found.likelihood, where.frame, dict.fromkeys(("exposure", "trials"), 1.0))

    @cached_property
    def _read(self) -> PredictionRows:
        out = read_rows(self.fit, self.grid.frame, without=self.without)
        if not out.there.all():
            raise problem("means", "a covariate is missing in a row", "all of them in every row")
        return out

    def exact(self, contrasts: sp.csr_array) -> Marginals:
        """The marginals of contrasts (J, K) of the averages of eta."""
        weights = sp.csr_array(contrasts @ self.grid.average)

        def of(view: FitTables) -> NewRows:
            new = self._read.new if view is self.fit else self._read.under(view).new
            new = on_reported_scale(view, new) if self.scale == "link" else new
            offset = np.broadcast_to(np.asarray(new.offset), (new.design.shape[0],))
            return NewRows(design=sp.csr_array(weights @ new.design), offset=weights @ offset)

        return marginals(self.fit, of)

    @cached_property
    def draws(self) -> np.ndarray:
        """Joint draws (K, size) of the averages."""
        average, M = self.grid.average, len(self.grid.frame)
        size = max(number_of_draws(M), _JOINT if M <= _FEW else 0)
        of_latents, rng, out = np.random.default_rng(0), np.random.default_rng(1), np.empty((average.shape[0], size))
        block = max(1, BLOCK // M)
        for part, which in shares(self.fit, size, of_latents):
            own = self._read if part is self.fit else self._read.under(part)
            new = on_reported_scale(part, own.new) if self.scale == "link" else own.new
            latents = latent_draws(part, which.size, of_latents, new.design)  # no effects of groups that no row sees
            variance = _variance_of_groups(part, own.frame) if self.groups == "population" else None
            for start in range(0, which.size, block):
                some = slice(start, start + block)
                out[:, which[some]] = average @ self._drawn(part, replace(own, new=new), latents[some], variance, rng)
        out[np.diff(average.indptr) == 0] = np.nan
        return out

    def _drawn(
        self, fit: FitTables, rows: PredictionRows, latents: np.ndarray, variance: Any, rng: np.random.Generator
    ) -> np.ndarray:
        """Draws (M, size) of predictions at rows."""
        eta = eta_draws(rows, latents, rng)
        return eta if self.scale == "link" else self._predicted(fit, self._likelihood(fit, rows), eta, variance, rng)

    def _predicted(
        self, fit: FitTables, likelihood: Any, eta: np.ndarray, variance: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        """E[y] or y from eta (M, size), averaged over the population of groups if it has a variance (M,)."""
        if self.scale == "outcome":
            if variance is not None:
                eta = eta + np.sqrt(variance)[:, None] * rng.standard_normal(eta.shape)
            drawn, values = np.asarray(likelihood.draw(eta, rng), dtype=np.float64), fit.model.target.values
            return drawn if values is None else values[drawn.astype(int)]
        if variance is None or not variance.any():
            return mean_given(fit, likelihood, eta)
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        shift = np.sqrt(variance)[:, None]
        each = zip(nodes, weights / np.sqrt(2.0 * np.pi), strict=True)
        return sum((w * mean_given(fit, likelihood, eta + t * shift) for t, w in each), np.zeros(eta.shape))


def _variance_of_groups(fit: FitTables, frame: pd.DataFrame) -> np.ndarray:
    """Variance (M,) of the effects of groups in their population at rows, from new groups for every term."""
    model, total = fit.model, np.zeros(len(frame))
    for term, theta in model.sum.thetas(fit.theta):
        if term.of_groups:
            _, unseen = term.new_rows(theta, model.table(frame.assign(**_new_groups(fit, term))), True)
            total += sum((part.variance for part in unseen if part.groups), np.zeros(len(frame)))
    return total


def _new_groups(fit: FitTables, term: Term) -> dict[str, Any]:
    """For each column of groups of a term a value that no row has."""
    model, out = fit.model, dict[str, Any]()
    for source in (source for name in term.group_columns for source in model.compiled.sources_of(name)):
        column = model.frame[source]
        out[str(source)] = column.max() + 1 if column.dtype.kind in "iuf" else "one more of the population"
    return out


# -- means, comparisons and slopes ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Question:
    """The options that means, comparisons and slopes share."""

    where: str
    by: Sequence[Any]
    at: Mapping[Any, Any]
    data: Any
    weights: str
    scale: str
    groups: str
    interval: float
    simultaneous: bool

    def __post_init__(self) -> None:
        choice(self.where, "scale", self.scale, SCALES)
        choice(self.where, "groups", self.groups, GROUPS)
        if self.weights != "population":
            if self.groups == "own":
                advice = "A row of a grid has no group of its own."
                raise problem(self.where, "groups = 'own' of the rows of a grid", 'weights="population"', advice)
            if self.data is not None:
                raise problem(self.where, f"data with weights = {self.weights!r}", 'weights="population"')

    def grid(self, fit: FitTables, asked: Mapping[Any, Sequence[Any]]) -> ReferenceGrid:
        """The grid for the requested values."""
        for name in (*asked, *self.by):
            self.refuse_groups(fit, name)
        return grid(fit, self.where, asked, self.by, self.at, self.weights, self.data, self.groups == "own")

    def refuse_groups(self, fit: FitTables, name: Any) -> None:
        if only_groups(fit, name):
            advice = "Its levels are in fit.effects, and fit.contrast compares any two rows."
            raise problem(self.where, f"{name!r} says which group a row has", "a number or a factor", advice)

    def averages(self, fit: FitTables, rows: ReferenceGrid) -> Averages:
        return Averages(fit, rows, self.scale, self.groups)


def means(fit: FitTables, names: Sequence[Any], question: Question) -> pd.DataFrame:
    """Table of marginal means, with a row for each combination of the values."""
    asked = {name: values_of(fit, question.where, name, question.at) for name in names}
    rows = question.grid(fit, asked)
    averages = question.averages(fit, rows)
    table = _estimates(averages, sp.csr_array(sp.eye_array(len(rows.cells))), question)
    del table["p_above_0"]
    return _framed(rows.cells, {}, table, question)


def comparisons(
    fit: FitTables, name: Any, question: Question, kind: str, contrast: Any, step: float | None
) -> pd.DataFrame:
    """Table of comparisons between values of a column, for each combination of ``by``."""
    choice(question.where, "kind", kind, KINDS)
    question.refuse_groups(fit, name)
    _check_kind(fit, question, kind)
    values = values_of(fit, question.where, name, question.at)
    if name in question.at or name in levels_of_factors(fit):
        if step is not None:
            raise problem(question.where, f"step = {step!r} of {name!r}, whose values are given", "step=None")
        if len(values) < 2:
            raise problem(question.where, f"one value of {name!r}", "two or more to compare")
        rows = question.grid(fit, {name: values})
        pairs = _contrasts(question.where, [str(value) for value in values], contrast, kind)
        of = len(rows.cells) // len(values)  # cells of each value: those of ``by``
        cells = rows.cells.drop(columns=name).iloc[:of]
        return _compared(question.averages(fit, rows), pairs, cells, of, name, kind, question)
    step = scalar(question.where, "step", 1.0 if step is None else step)
    rows, cells = _moved(fit, name, question, (0.0, step))
    pairs = {f"+{step:g}": np.array([-1.0, 1.0])}
    return _compared(question.averages(fit, rows), pairs, cells, len(cells), name, kind, question)


def slopes(fit: FitTables, name: Any, question: Question) -> pd.DataFrame:
    """Table of average slopes along a column of numbers."""
    question.refuse_groups(fit, name)
    if question.scale == "outcome":
        raise problem(question.where, "slopes of outcomes, each of which is drawn", 'scale="mean"')
    values_of(fit, question.where, name, {})
    column = fit.model.reduction.data_rows(fit.model)[0][name]
    if column.dtype.kind not in "iuf" or has_levels(fit, name):
        raise problem(question.where, f"{name!r} has levels", "a number", "fit.comparisons compares levels.")
    near = _STEP * (float(np.std(column)) or 1.0)
    rows, cells = _moved(fit, name, question, (-near, near))
    pairs = {"dy/dx": np.array([-0.5, 0.5]) / near}
    return _compared(question.averages(fit, rows), pairs, cells, len(cells), name, "difference", question)


def _moved(
    fit: FitTables, name: Any, question: Question, shifts: tuple[float, float]
) -> tuple[ReferenceGrid, pd.DataFrame]:
    """Rows at two shifts of a column, and the cells of each."""
    import pandas as pd

    asked = {name: listed(question.at[name])} if name in question.at else {}
    base = question.grid(fit, asked)
    both = pd.concat([base.frame.assign(**{str(name): base.frame[name] + h}) for h in shifts], ignore_index=True)
    cells = pd.concat([base.cells, base.cells], ignore_index=True)
    return ReferenceGrid(both, cells, sp.csr_array(sp.block_diag([base.average, base.average]))), base.cells


def _contrasts(where: str, labels: Sequence[str], contrast: Any, kind: str) -> dict[str, np.ndarray]:
    """Named weights of the values of a column."""
    K, sign = len(labels), "-" if kind == "difference" else "/"
    match contrast:
        case Mapping() if kind != "difference":
            raise problem(where, f"kind = {kind!r} with contrasts of your own", 'kind="difference"')
        case Mapping():
            return {str(label): vector(where, f"contrast {label!r}", weights, K) for label, weights in contrast.items()}
    choice(where, "contrast", contrast, CONTRASTS, "Or a mapping of labels to weights, one for each value.")
    if contrast == "pairwise":
        pairs = list(itertools.combinations(range(K), 2))
    else:
        pairs = [(0 if contrast == "reference" else k - 1, k) for k in range(1, K)]
    one = np.eye(K)
    return {f"{labels[high]} {sign} {labels[low]}": one[high] - one[low] for low, high in pairs}


def _check_kind(fit: FitTables, question: Question, kind: str) -> None:
    """Refuse ratios of quantities that may be negative, and odds of anything but probabilities."""
    ratio = fit.likelihood.ratio
    if (
        question.scale == "link"
        and kind != "difference"
        and (ratio is None or (kind == "odds") != (ratio == "odds_ratio"))
    ):
        got = f"kind = {kind!r} on the link, where exp of a difference is {'no ratio' if ratio is None else ratio}"
        instead = "" if ratio is None else f', or kind="{"odds" if ratio == "odds_ratio" else "ratio"}"'
        raise problem(question.where, got, f'scale="mean"{instead}')
    if kind == "odds" and question.scale == "outcome":
        raise problem(question.where, "odds of outcomes", 'scale="mean"')
    if kind == "odds" and question.scale == "mean" and not _is_probability(fit):
        raise problem(question.where, "kind = 'odds' and E[y] is no probability", 'kind="difference" or "ratio"')


def _is_probability(fit: FitTables) -> bool:
    """Whether E[y], at one trial, is between 0 and 1."""
    values, own = fit.model.target.values, fit.likelihood
    if values is not None:
        return np.array_equal(values, [0.0, 1.0])
    return own.support == "unit" or "trials" in own.row_parameters


def _compared(
    averages: Averages,
    pairs: Mapping[str, np.ndarray],
    cells: pd.DataFrame,
    of: int,
    name: Any,
    kind: str,
    question: Question,
) -> pd.DataFrame:
    """Every contrast of the values of a column in every cell of ``by``."""
    import pandas as pd

    every = sp.csr_array(np.stack(list(pairs.values())))
    C = sp.csr_array(sp.kron(every, sp.eye_array(of), format="coo"))
    C.eliminate_zeros()  # a missing average (NaN) affects only the contrasts that contain it
    table = _estimates(averages, C, question, kind)
    repeated = pd.concat([cells] * len(pairs), ignore_index=True)
    return _framed(repeated, {"term": name, "contrast": np.repeat(list(pairs), of)}, table, question)


def _estimates(
    averages: Averages, C: sp.csr_array, question: Question, kind: str = "difference"
) -> dict[str, np.ndarray]:
    """Estimates, standard errors and intervals of contrasts of averages, from exact marginals if these are known."""
    ends, ratio = interval_ends(question.where, question.interval), kind != "difference"
    empty = np.asarray(abs(C) @ (np.diff(averages.grid.average.indptr) == 0)) > 0
    if averages.linear:
        exact = averages.exact(C)
        mean, sd = to_numpy(exact.mean).ravel(), to_numpy(exact.sd).ravel()
        middle = to_numpy(exact.quantile(0.5)).ravel() if ratio else mean
        limits, above = to_numpy(exact.interval(question.interval)), 1.0 - to_numpy(exact.cdf(0.0)).ravel()
        error = np.zeros(mean.size)
        if question.simultaneous:
            limits = _bands(np.asarray(C @ averages.draws), mean, sd, question.interval)
    else:
        drawn = _contrasted(averages.draws, C, kind, question)
        middle, sd = (np.median if ratio else np.mean)(drawn, axis=1), drawn.std(axis=1, ddof=1)
        limits, above = np.quantile(drawn, ends, axis=1).T, (drawn > 0.0).mean(axis=1)
        error = sd * (np.sqrt(np.pi / 2.0) if ratio else 1.0) / np.sqrt(drawn.shape[1])
        if question.simultaneous:
            limits = _bands(drawn, middle, sd, question.interval)
    if ratio:  # from the log scale; the standard error of a ratio is to first order
        middle, limits = np.exp(middle), np.exp(limits)
        sd, error = middle * sd, middle * error
    out = {"estimate": middle, "std_error": sd, "conf_low": limits[:, 0], "conf_high": limits[:, 1]}
    out |= {"p_above_1" if ratio else "p_above_0": above, "mc_error": error}
    return {key: np.where(empty, np.nan, values) for key, values in out.items()}


def _contrasted(draws: np.ndarray, C: sp.csr_array, kind: str, question: Question) -> np.ndarray:
    """Draws (J, size) of differences, or of logs of ratios, of averages (K, size)."""
    if kind == "difference" or question.scale == "link":
        return np.asarray(C @ draws)
    if (draws <= 0.0).any():
        share = 100.0 * float((draws <= 0.0).any(axis=0).mean())
        got = f"kind = {kind!r} of averages that are 0 or below in {share:.2g} % of the draws"
        raise problem(question.where, got, 'averages above 0, or kind="difference"')
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(C @ (np.log(draws) - (np.log1p(-draws) if kind == "odds" else 0.0)))


def _bands(draws: np.ndarray, centre: np.ndarray, sd: np.ndarray, level: float) -> np.ndarray:
    """Simultaneous intervals (J, 2) of probability ``level``: centre -+ c sd, with c from joint draws."""
    each = np.abs(draws - centre[:, None]) / np.where(sd > 0.0, sd, np.inf)[:, None]
    there = ~np.isnan(each).any(axis=1)  # cells without rows have no interval
    c = float(np.quantile(each[there].max(axis=0), level)) if there.any() else np.nan
    return np.stack([centre - c * sd, centre + c * sd], axis=1)


def _framed(
    cells: pd.DataFrame, first: Mapping[str, Any], table: Mapping[str, Any], question: Question
) -> pd.DataFrame:
    """The results as a frame, with the options in ``attrs``."""
    import pandas as pd

    out = pd.concat([pd.DataFrame(first, index=cells.index), cells, pd.DataFrame(table)], axis=1)
    out.attrs |= {"scale": question.scale, "groups": question.groups, "weights": question.weights}
    return out
