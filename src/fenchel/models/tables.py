"""Tables of a fitted model as pandas frames: coefficients, effects and hyperparameters.

lower, upper     quantiles of each marginal,   P(> 0) from its distribution function
ratio            exp(median), which is the median of exp, with the interval from exp(lower) to exp(upper)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri
from scipy.stats import qmc

from ..checks import number, optional, problem
from ..hyperparameters.evidence import Evidence
from ..hyperparameters.integration import Integrated
from ..hyperparameters.mode import Mode, mode_of
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike, to_numpy
from ..marginals import Levels, MarginalAnswers, Marginals, NormalMarginals
from ..priors.base import NewRows
from ..terms import Term
from .fixed import cutpoint_shift, moves_cutpoints
from .stated_priors import ambiguous, term_named, terms_over

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .model import Model

INTERCEPT = "Intercept"
_NET = 512  # quasi-random points for intervals of hyperparameters
_THETAS = 8192  # draws of theta for the table of hyperparameters of an integrated fit


# -- tables of marginals ------------------------------------------------------------------------------------
def marginal_table(
    name: Any, labels: list[Any], unknowns: Marginals, ratio: str | None, level: float = 0.95, n: Any = None
) -> pd.DataFrame:
    """Table of mean, sd and interval of marginals, with a row for each of ``labels`` and an index called ``name``.

    If exp(effect) has a name, ``ratio`` ("odds_ratio"), its median, interval ("or_lower", "or_upper") and
    probability of exceeding 1 are added.
    """
    pd = optional("effects", "pandas")
    if not 0.0 < level < 1.0:
        raise problem("effects", f"level = {level!r}", "a probability between 0 and 1")
    mean, sd, ends = to_numpy(unknowns.mean), to_numpy(unknowns.sd), to_numpy(unknowns.interval(level))
    columns = {"mean": mean, "sd": sd, "lower": ends[:, 0], "upper": ends[:, 1]}
    zero = (sd == 0.0) & (mean == 0.0)  # exactly 0, so on neither side of it
    above = np.where(zero, 0.5, 1.0 - to_numpy(unknowns.cdf(0.0)))
    if ratio is None:
        columns["p_above_0"] = above
    else:
        short = initials(ratio)
        with np.errstate(over="ignore"):
            columns[ratio] = np.exp(to_numpy(unknowns.quantile(0.5)))
            columns[f"{short}_lower"], columns[f"{short}_upper"] = np.exp(ends).T
        columns["p_above_1"] = above
    if n is not None:
        columns["n"] = np.asarray(n)
    return pd.DataFrame(columns, index=pd.Index(labels, name=name, tupleize_cols=False))


def initials(word: str) -> str:
    """The initials of the name of a ratio, for the columns of its interval: "or" for "odds_ratio".

    Examples
    --------
    >>> from fenchel.models.tables import initials
    >>> initials("relative_risk")
    'rr'
    """
    return "".join(part[0] for part in word.split("_"))


def over_predictors(fit: FitTables, unknowns: Marginals, table: Callable[[Marginals], pd.DataFrame]) -> pd.DataFrame:
    """A table of marginals; with a predictor for each class the tables of the classes are stacked."""
    import pandas as pd

    names = fit.model.reduction.predictors(fit.model)
    if not names:
        return table(unknowns)
    each = {name: table(OnePredictor(unknowns, c)) for c, name in enumerate(names)}
    return pd.concat(each, names=["class"])


@dataclass(frozen=True)
class OnePredictor(MarginalAnswers):
    """The marginals of one of several predictors: column ``c`` of unknowns (N, C)."""

    every: Marginals
    c: int

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(to_numpy(self.every.mean)[:, self.c])

    @property
    def variance(self) -> np.ndarray:
        return np.asarray(to_numpy(self.every.variance)[:, self.c])

    @property
    def sd(self) -> np.ndarray:
        return np.sqrt(self.variance)

    @property
    def skewness(self) -> np.ndarray:
        return np.asarray(to_numpy(self.every.skewness)[:, self.c])

    def quantile(self, q: Levels) -> np.ndarray:
        return np.asarray(to_numpy(self.every.quantile(q))[:, self.c])

    def interval(self, level: float = 0.95) -> np.ndarray:
        return np.asarray(to_numpy(self.every.interval(level))[:, self.c])

    def cdf(self, x: ArrayLike) -> np.ndarray:
        return np.asarray(to_numpy(self.every.cdf(self._for_all(x)))[:, self.c])

    def density(self, x: ArrayLike) -> np.ndarray:
        return np.asarray(to_numpy(self.every.density(self._for_all(x)))[:, self.c])

    def _for_all(self, x: ArrayLike) -> np.ndarray:
        """x, a number or (N,) or (N, G), the same for every predictor."""
        at = np.asarray(x, dtype=np.float64)
        every = (*to_numpy(self.every.mean).shape, *at.shape[1:])
        return np.broadcast_to(at[:, None], every) if at.ndim else at


def over_parts(fit: FitTables, table: Callable[[FitTables], pd.DataFrame]) -> pd.DataFrame:
    """A table of a fit; for a fit with parts the non-empty tables of the parts, stacked."""
    import pandas as pd

    if not fit.parts:
        return table(fit)
    each = {name: table(part) for name, part in fit.parts.items()}
    filled = {name: frame for name, frame in each.items() if len(frame)}
    return pd.concat(filled, names=["part"]) if filled else next(iter(each.values()))


# -- coefficients -------------------------------------------------------------------------------------------
def names_of(model: Model) -> list[str]:
    """The names of the coefficients, the intercept first if there is one."""
    return [*([INTERCEPT] if model.sum.intercept else []), *model.sum.fixed_names]


def coefficients(fit: FitTables, level: float = 0.95) -> pd.DataFrame:
    """Table of the coefficients: mean, sd, interval, and the median of exp(coefficient) if it has a name."""
    from .predictions import marginals

    names = names_of(fit.model)
    unknowns: Marginals = NormalMarginals(np.zeros(0), np.zeros(0))
    if names:
        unknowns = marginals(fit, coefficient_rows)
    ratio = fit.likelihood.ratio

    def table(one: Marginals) -> pd.DataFrame:
        out = marginal_table(None, names, one, ratio, level)
        if ratio == "hazard_ratio" and INTERCEPT in names:  # exp(intercept) is a hazard, not a ratio
            short = initials(ratio)
            out.loc[INTERCEPT, [ratio, f"{short}_lower", f"{short}_upper", "p_above_1"]] = np.nan
        return out

    return over_predictors(fit, unknowns, table)


def covariance(fit: FitTables) -> pd.DataFrame:
    """Posterior covariance matrix (p, p) of the coefficients."""
    import pandas as pd

    weights = np.ones(1) if fit.mixture is None else fit.mixture.weights
    each = [fixed_moments(part) for part in fit.components]
    means, covariances = (np.stack(values) for values in zip(*each, strict=True))
    off, names = means - weights @ means, names_of(fit.model)
    total = np.einsum("k,kij->ij", weights, covariances) + (off * weights[:, None]).T @ off
    return pd.DataFrame(total, index=names, columns=names)


def fixed_moments(fit: FitTables) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the coefficients in the user's units at one theta."""
    model = fit.model
    mean, covariance = model.sum.fixed_effects(fit.solution if fit.answers is None else fit.answers)
    A, _ = model.fixed.to_user(model.sum.intercept, len(model.sum.fixed_names))
    return A @ (mean + _known_part(fit, fit.shift)), A @ covariance @ A.T


def _known_part(fit: FitTables, shift: float) -> np.ndarray:
    """Coefficients minus the latents behind them: prior means, and the level of the intercept."""
    model = fit.model
    out = model.coefficient_priors.mean.copy()
    if model.sum.intercept:
        given, columns = model.coefficient_priors.mean[1:], model.sum.columns
        out[0] += model.level + shift - float((columns.centre + columns.rest) @ given)
    return out


def coefficient_rows(fit: FitTables, thetas: np.ndarray | None = None) -> NewRows:
    """The coefficients as rows (p, L) of a design over the latents plus an offset (p,).

    With ``thetas`` (m, n) the offset (m, p) is that at each theta, whose likelihood determines how eta is reported.
    """
    sum_ = fit.model.sum
    A, _ = fit.model.fixed.to_user(sum_.intercept, len(sum_.fixed_names))
    if thetas is None:
        known = _known_part(fit, fit.shift)
    else:
        known = np.stack([_known_part(fit, likelihood_at(fit, theta).reported()[1]) for theta in thetas])
    return NewRows(design=sp.csr_array(A @ sum_.fixed_rows()), offset=known @ A.T)


# -- effects ------------------------------------------------------------------------------------------------
def effect_rows(model: Model, name: Any) -> tuple[list[Any], NewRows, np.ndarray | None] | None:
    """The labels, rows and levels of the table of an effect; None if it has no table."""
    shown = model.sum.shown(name)
    if shown is None:
        return None
    labels, design, codes = shown
    return labels, NewRows(design=design, offset=model.coefficient_priors.known(design)), codes


class Effects(Mapping[Any, Any]):
    """The special terms of a fitted model as frames, each made when it is read."""

    def __init__(self, fit: FitTables) -> None:
        self._fit = fit
        self._parts = {name: Effects(part) for name, part in fit.parts.items()}

    def __getitem__(self, key: Any) -> pd.DataFrame:
        import pandas as pd

        have = {name: part for name, part in self._parts.items() if part.term(key) is not None}
        if have:
            return pd.concat({name: part[key] for name, part in have.items()}, names=["part"])
        term = self.term(key)
        if term is None:
            raise self._no_term(key)
        fit, sum_ = self._fit, self._fit.model.sum
        shown = effect_rows(fit.model, term.name)
        if shown is None:
            got = f"the effect {term.name!r} has no table"
            raise problem("effects", got, "a term that says where it is shown")
        labels, rows, codes = shown
        n = None if codes is None else sum_.counts(fit.model.target.seen)[term.name][codes]
        errors = fit.engine.sd_errors(fit, rows.design)

        def table(unknowns: Marginals) -> pd.DataFrame:
            out = marginal_table(term.name, labels, unknowns, fit.likelihood.ratio, n=n)
            out = out if errors is None else out.assign(sd_error=errors)
            if len(labels) and all(isinstance(label, tuple) for label in labels):
                return out.set_axis(pd.MultiIndex.from_tuples(labels), axis=0)
            return out.rename_axis(index=term.label)

        return over_predictors(fit, fit.posterior.at(rows), table)

    def term(self, key: Any) -> Term | None:
        """The term with this name, or the only term over this column."""
        return term_named(self._fit.model.sum.effects, key)

    def _no_term(self, key: Any) -> KeyError:
        if not self._parts:
            names = self._fit.model.compiled.stands_for(key)
            if len(names) < 2:
                names = [each.name for each in terms_over(self._fit.model.sum.effects, key)]
            if names:
                return KeyError(str(ambiguous("effects", key, names)))
        return KeyError(str(problem("effects", f"there is no term {key!r}", f"one of {list(self)}")))

    def __iter__(self) -> Iterator[Any]:
        parts = list(self._parts.values()) or [self]
        return iter(dict.fromkeys(term.name for part in parts for term in part._fit.model.sum.effects))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"effects of {', '.join(map(str, self))}" if len(self) else "no effects"


# -- hyperparameters ----------------------------------------------------------------------------------------
def hyperparameters(fit: FitTables) -> pd.DataFrame:
    """Table by term and parameter: the value, and a 95 % interval from the evidence about its mode.

    Draws of theta are standard normal in the coordinates of the mode (``hyperparameters/mode.py``): the curvature gives
    the correlations, the fall of the evidence the width on either side. A log sd has a longer left tail if the data
    hardly determine whether there is an effect, and a longer right tail with few groups. Cutpoints at x = 0 move with
    theta by ``moves`` and have the sd of the coefficients in addition.
    """
    rows, mode = described_theta(fit, fit.theta), fit.theta_mode
    ends = np.full((len(rows), 2), np.nan)
    if rows and mode.free:
        evidence = fit.engine.evidence(fit)
        coordinates = mode.coordinates(lambda thetas: [evidence(theta)[0] for theta in thetas])
        z = normal_net(len(mode.free) + 1)
        draws = np.clip(coordinates.theta(z[:, :-1]), *mode.bounds.T)
        sd = cutpoint_shift(fit, fit.solution)[1] if moves_cutpoints(fit.model) else 0.0
        levels = fit.shift + (draws - fit.theta) @ mode.moves + sd * z[:, -1]
        ends = np.quantile(values_at(fit, draws, levels), [0.025, 0.975], axis=0).T
        ends[ends[:, 1] <= ends[:, 0]] = np.nan
    return parameter_frame(rows, lower=ends[:, 0], upper=ends[:, 1])


def integrated_hyperparameters(fit: FitTables, mixture: Integrated) -> pd.DataFrame:
    """Table of the hyperparameters of an integrated fit: mode, mean, sd, median and interval."""
    shifts, at_peak = None, None
    if moves_cutpoints(fit.model):
        answers = [part.solution if part.answers is None else part.answers for part in fit.components]
        shifts = np.array([cutpoint_shift(fit, each) for each in answers])
        at_peak = float(mixture.theta.between(mixture.thetas, shifts, mixture.theta.peak[None])[0, 0])
    rows = described_theta(fit, mixture.theta.peak, at_peak)
    if not rows:
        return hyperparameters(fit)

    def ask(theta: np.ndarray, level: float | None = None) -> list[float]:
        return [row[2] for row in described_theta(fit, theta, level)]

    if shifts is None:
        unknowns = mixture.theta.of(ask, size=_THETAS)
    else:  # cutpoints at x = 0 have the uncertainty of the coefficients
        unknowns = mixture.theta.beside(ask, mixture.thetas, shifts, size=_THETAS)
    lower, middle, upper = unknowns.quantile([0.025, 0.5, 0.975]).T
    moments = {"mean": unknowns.mean, "sd": unknowns.sd, "median": middle}
    return parameter_frame(rows, **moments, lower=lower, upper=upper)


def parameter_frame(rows: list[tuple[str, str, float]], **columns: np.ndarray) -> pd.DataFrame:
    """The result of ``described_theta`` as a frame, with further columns."""
    import pandas as pd

    index = None
    if rows:
        index = pd.MultiIndex.from_tuples([row[:2] for row in rows], names=["term", "parameter"])
    return pd.DataFrame({"value": [row[2] for row in rows], **columns}, index=index)


def values_at(fit: FitTables, thetas: np.ndarray, levels: Iterable[float | None] | None = None) -> np.ndarray:
    """The hyperparameters as reported (m, k) at thetas (m, n)."""
    levels = repeat(None) if levels is None else levels
    with np.errstate(over="ignore"):
        each = [described_theta(fit, theta, level) for theta, level in zip(thetas, levels, strict=False)]
    return np.array([[row[2] for row in one] for one in each])


def normal_net(d: int) -> np.ndarray:
    """Quasi-random standard normals (m, d), symmetric about 0."""
    cells = qmc.Halton(d, scramble=False).random(_NET)
    return ndtri((cells + 0.5 / _NET) % 1.0)  # the midpoints of the cells


def evidence_of(fit: FitTables) -> Evidence:
    """The evidence as a function of theta, warm-started at the fit."""
    target, family = fit.model.target, fit.model.sum.family()
    out = Evidence(fit.found.likelihood, family, target.y, weights=target.weights, tol=1e-13, own=True)
    out.begin(fit.solution)
    return out


def theta_mode(fit: FitTables) -> Mode:
    """The evidence about its mode, and how cutpoints at x = 0 change with theta."""
    ask = None
    if moves_cutpoints(fit.model):
        ask = lambda solution: cutpoint_shift(fit, solution)[0]
    return mode_of(fit.engine.evidence(fit), fit.theta, ask=ask)


def described_theta(fit: FitTables, theta: np.ndarray, level: float | None = None) -> list[tuple[str, str, float]]:
    """theta in the units of users: sds, not variances; cutpoints at x = 0, which are ``level`` above the fitted ones
    (default: the fit's own shift).
    """
    terms = fit.model.sum.thetas(theta)
    rows = [(str(term.name), *row) for term, part in terms for row in term.readable(part)]
    own, _ = likelihood_at(fit, theta).reported()
    if fit.model.ordered and own.theta.size:
        first = own.theta[0] + (fit.shift if level is None else level)
        own = own.with_theta(np.r_[first, own.theta[1:]])
    own_rows = _between_levels(fit.model, own.readable())
    has_sd = {owner for owner, word, _ in own_rows if word == "sd"}
    for owner, word, value in own_rows:
        if word != "variance":
            rows.append((owner, word, value))
        elif owner not in has_sd:
            rows.append((owner, "sd", float(np.sqrt(value))))
    return rows


def _between_levels(model: Model, rows: list[tuple[str, str, float]]) -> list[tuple[str, str, float]]:
    """Names of cutpoints by the levels of y on either side: "low|medium"."""
    labels = model.target.labels
    if not model.ordered or labels is None:
        return rows
    names = [str(label) if model.target.words is not None else number(label + 0.0) for label in labels]
    between = [f"{below}|{above}" for below, above in pairwise(names)]
    return [(owner, between[int(k)] if owner == "cutpoints" else k, value) for owner, k, value in rows]


def likelihood_at(fit: FitTables, theta: np.ndarray) -> Likelihood:
    """The likelihood with its parameters, which are the last entries of theta."""
    own = theta[sum(len(term.hyperparameters) for term in fit.model.sum.effects) :]
    return fit.found.likelihood.with_theta(own) if own.size else fit.found.likelihood
