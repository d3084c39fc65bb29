"""Compare models of the same rows by their predictions of left-out rows, and find the best mixture (stacking).

    elpd = sum_n log p(y_n | the others),   difference to the best model, with the standard error of this sum
    stacking:  max over w in the simplex of  sum_n log sum_k w_k exp(l_nk)

Stacking is a concave problem, and any w has a certificate: with g_k = mean_n exp(l_nk) / sum_j w_j exp(l_nj), no
mixture is better by more than n (max_k g_k - 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import lsqr
from scipy.special import logsumexp
from scipy.stats import chi2

from ..checks import choice, numeric, problem
from ..likelihoods.base import Likelihood, slice_rows
from ..linalg.arrays import to_numpy
from ..marginals import Marginals
from ..row_scores import RowScores, standard_error
from ..tasks import Jobs, run_tasks

if TYPE_CHECKING:
    import pandas as pd

# -- WAIC: predictive accuracy estimated from the rows of the fit, with a penalty for having used them ---
# log E[p(y_n | eta_n)] - p_n, p_n = Var[log p(y_n | eta_n)]
#
# Expectations are over the marginals of eta under the posterior, Gaussian or not, by sums over an
# even grid. For a mixture over theta they are also over the likelihood's own parameters, where
# k are the parts of the mixture:
#
#     E[p] = sum_k w_k E_k[p],     Var[log p] = sum_k w_k (Var_k[log p] + (E_k[log p] - E[log p])^2).
#
# WAIC approximates leave-one-out; it is provided because papers report it.
_POINTS = 241  # points of the grid of eta
_REACH = 10.0  # half width of the grid in standard deviations of eta
_AT_ONCE = 4096  # rows at a time
_LARGE = 0.4  # WAIC is unreliable for rows with a larger variance of log p (Vehtari, Gelman and Gabry 2017)


@dataclass(frozen=True, repr=False)
class InformationCriterion(RowScores):
    """The widely applicable information criterion (WAIC).

    log_density : contribution of each row to elpd (N,), NaN where y is unobserved
    penalty : the penalty that was subtracted from it (N,)
    flagged : bool (N,), rows with a penalty so large that the criterion is unreliable
    """

    log_density: np.ndarray
    penalty: np.ndarray
    flagged: np.ndarray

    @property
    def n_parameters(self) -> float:
        """The effective number of parameters."""
        return float(np.nansum(self.penalty))

    @property
    def value(self) -> float:
        """-2 elpd, the scale on which other software prints WAIC: smaller is better."""
        return -2.0 * self.elpd


Part = tuple[float, Likelihood, Marginals]  # a component of a mixture: weight, likelihood, marginals of eta


def waic(
    likelihood: Likelihood, marginals: Marginals, y: np.ndarray, parts: Sequence[Part] = ()
) -> InformationCriterion:
    """WAIC of y (N,), NaN for rows that do not count, under marginals of eta or under the parts of a mixture."""
    log_mean, variance = _mixed(parts or [(1.0, likelihood, marginals)], y)
    return InformationCriterion(log_mean - variance, variance, variance > _LARGE)


def _mixed(parts: Sequence[Part], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log E[p] and Var[log p] (N,) of a mixture, NaN where y is NaN."""
    w = np.array([weight for weight, _, _ in parts])[:, None]
    each = np.stack([_moments(likelihood, marginals, y) for _, likelihood, marginals in parts])
    mean = (w * each[:, 1]).sum(axis=0)
    variance = (w * (each[:, 2] + (each[:, 1] - mean) ** 2)).sum(axis=0)
    return np.asarray(logsumexp(each[:, 0], axis=0, b=w)), variance


def _moments(likelihood: Likelihood, marginals: Marginals, y: np.ndarray) -> np.ndarray:
    """log E[p], E[log p] and Var[log p] (3, N), NaN where y is NaN."""
    mean, sd = to_numpy(marginals.mean), to_numpy(marginals.sd)
    if mean.ndim > 1:
        raise problem("waic", f"{likelihood.name} has several predictors an observation", "loo() instead")
    steps = np.linspace(-_REACH, _REACH, _POINTS)
    rows = likelihood.prepare(y)
    eta = mean[:, None] + sd[:, None] * steps
    share = _shares(marginals, eta, steps)
    out = np.empty((3, mean.size))
    for i in range(0, mean.size, _AT_ONCE):
        some = slice(i, min(mean.size, i + _AT_ONCE))
        here, own, p = likelihood.take(np.arange(some.start, some.stop)), slice_rows(rows, some), share[some]
        with np.errstate(all="ignore"):
            log_p = np.nan_to_num(np.asarray(here.log_density(eta[some], own)), nan=-np.inf, neginf=-1e300)
        top = log_p.max(axis=1, keepdims=True)
        first = np.sum(p * log_p, axis=1)
        out[0, some] = top[:, 0] + np.log(np.sum(p * np.exp(log_p - top), axis=1))
        out[1, some], out[2, some] = first, np.sum(p * np.where(p > 0.0, log_p - first[:, None], 0.0) ** 2, axis=1)
    return np.where(rows["weight"] > 0.0, out, np.nan)


def _shares(marginals: Marginals, eta: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The probability of each point of the grids (N, G)."""
    if not np.ptp(eta, axis=1).all():  # an eta with variance 0 has no density
        p = np.broadcast_to(np.exp(-0.5 * steps**2), eta.shape)
    else:
        p = to_numpy(marginals.density(eta))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


# -- comparison of models --------------------------------------------------------------------------
_PRIORS_DECIDE = (
    "models differ in their coefficients: Bayes factors depend on the priors of these, and wide priors, the default, "
    "favour models with fewer. State the priors that you believe (fixed_sd=, priors=), or compare by prediction."
)
_GAP = 1e-6  # largest gap of the stacking weights, in nats for each row
_IN_SPAN = 1e-6  # share of a column that may lie outside of the span of others
_STEPS = 20_000  # most multiplicative updates after the optimiser


def compare(
    fits: Mapping[str, Any],
    *,
    by: str = "prediction",
    groups: Any = None,
    folds: Any = None,
    effort: str = "fast",
    n_jobs: Jobs = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare models in a table, the best first: leave-one-out elpd, its difference to the best, weights, and the elbo.

    ``weight`` is the weight of each model in the mixture that predicts best (stacking).

    With ``by="evidence"`` the table has proved bounds on log p(y), ``lower`` and ``upper``, and the ``estimate`` of
    corrected and integrated fits (NaN for other fits). The model with the largest ``lower`` is first. The log of the
    Bayes factor against it lies between ``log_bf_lower`` and ``log_bf_upper``. ``proved`` says whether all models above
    certainly have a larger evidence; for the first model, whether all others have a smaller one. The evidence is at the
    hyperparameters of each fit, or for integrated fits over the fitted points, so all fits must be of one kind.

    A Bayes factor between models with different coefficients depends on the priors of these, however many rows there
    are: a prior ten times as wide subtracts log 10 nats for each coefficient that the data determine well (Lindley's
    paradox). The default priors are wide, so that Bayes factors favour models with fewer coefficients;
    ``attrs["note"]`` says if this applies. Comparison by prediction hardly depends on these priors.

    Parameters
    ----------
    fits : dict of name to FittedModel, or to a result of ``loo``, ``leave_group_out`` or ``k_fold``
        Models of the same response over the same rows. "evidence" and "likelihood" need fitted models. With groups
        left out the standard error of a difference is over groups, whose rows are predicted together.
    by : "prediction" (or "loo"), "leave_group_out", "k_fold", "evidence" or "likelihood", default "prediction"
        "likelihood" gives a table like that of R's ``anova(first, second)``: the log likelihood at each estimate, its
        degrees of freedom as lme4 counts them, AIC, BIC, and for each model the likelihood ratio to the one above with
        its p-value. The p-value is NaN unless the model above is a case of this one: it has the same family, its fixed
        columns are among those of this model or sums of them, and each of its terms is also here, such as ``s(x)``, or
        is within a term of the same groups, such as ``(1|g)`` within ``(x|g)``. It assumes that the priors are flat.
    groups : str or array, with "leave_group_out"
        A column of the models, or one label for each row of the data.
    folds : int, str or array, with "k_fold"
        Like ``k`` of ``fit.k_fold``; default 10.
    effort : "fast" or "high", default "fast"
        Effort for the bounds on the evidence.
    n_jobs : int, None or Dask client
        Parallel predictions, one model for each task (``fenchel.tasks``).
    progress : bool, default False
        Whether to show progress.

    Returns
    -------
    DataFrame
        With a row for each model.

    Examples
    --------
    >>> import fenchel
    >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
    >>> fits = {"line": fenchel.fit("y ~ x", data), "level": fenchel.fit("y ~ 1", data)}
    >>> list(fenchel.compare(fits).index)
    ['line', 'level']
    >>> fenchel.compare(fits, by="likelihood")["df"].tolist()
    [2.0, 3.0]
    >>> list(fenchel.compare({name: fit.k_fold(3) for name, fit in fits.items()}).index)
    ['line', 'level']
    """
    import pandas as pd

    if not isinstance(fits, Mapping) or len(fits) < 1:
        raise problem("compare", f"a {type(fits).__name__}", 'fitted models by name: {"one": fit, "two": other}')
    choice("compare", "by", by, ("prediction", "loo", "leave_group_out", "k_fold", "evidence", "likelihood"))
    if (groups is None) == (by == "leave_group_out"):
        raise problem("compare", f"groups = {groups!r} with by = {by!r}", 'groups="column" with by="leave_group_out"')
    if folds is not None and by != "k_fold":
        raise problem("compare", f"folds = {folds!r} with by = {by!r}", 'folds with by="k_fold"')
    models = {name: fit for name, fit in fits.items() if not isinstance(fit, RowScores)}
    if by not in ("prediction", "loo") and len(models) < len(fits):
        raise problem("compare", f"predictions of rows with by = {by!r}", "fitted models")
    if by == "evidence":
        return compare_evidence(fits, effort)
    if by == "likelihood":
        return compare_likelihood(fits)
    kinds = {None if name in models else type(fit) for name, fit in fits.items()}
    if len(kinds) > 1:
        got = "predictions of different kinds: " + ", ".join(f"{name!r} {type(f).__name__}" for name, f in fits.items())
        raise problem("compare", got, "one kind", "Ask the same of every model, such as fit.leave_group_out(...).")
    shared = models, by, groups, 10 if folds is None else folds
    each = run_tasks(_left_out, list(models), shared, where="compare", n_jobs=n_jobs, progress=progress)
    scores: dict[str, RowScores] = {**fits, **dict(zip(models, each, strict=True))}
    densities = {name: np.asarray(score.log_density) for name, score in scores.items()}
    first, *others = densities
    for name in others:
        if not _same_rows(densities, models, first, name):
            raise problem("compare", f"{first!r} and {name!r} are not of the same rows of y", "one response")
        if not _same_units(scores[first], scores[name], densities[first]):
            raise problem("compare", f"{first!r} and {name!r} leave out other groups of rows", "the same groups")
    best = max(densities, key=lambda name: float(np.nansum(densities[name])))
    every = np.stack(list(densities.values()), axis=1)
    weights = stacking_weights(every[~np.isnan(every).any(axis=1)])
    rows = []
    for k, (name, density) in enumerate(densities.items()):
        lost = scores[name].units(density - densities[best])
        se = standard_error(lost) if name != best and lost.size > 1 else 0.0
        rows.append((float(np.nansum(density)), float(lost.sum()), se, weights[k]))
    columns = ["elpd", "difference", "difference_se", "weight"]
    table = pd.DataFrame(rows, index=list(densities), columns=columns)
    if models:
        table["elbo"] = [fit.elbo for fit in models.values()]
        table["gap"] = [fit.gap for fit in models.values()]
        table["converged"] = [fit.converged for fit in models.values()]
    return table.sort_values("elpd", ascending=False)


def compare_evidence(fits: Mapping[str, Any], effort: str) -> pd.DataFrame:
    """Table of models by bounds on their evidence, sorted by the lower bound in decreasing order."""
    import pandas as pd

    integrated = {name: fit.integrated is not None for name, fit in fits.items()}
    if len({*integrated.values()}) > 1:
        got = ", ".join(f"{name!r} {'is' if yes else 'is not'}" for name, yes in integrated.items())
        raise problem("compare", f"only some fits are integrated over theta: {got}", "all of them, or none")
    _same_response(fits)
    at = "points" if any(integrated.values()) else "mode"
    bounds = {name: fit.evidence_bounds(effort, at) for name, fit in fits.items()}
    rows = [(fits[name].evidence_estimate, b.lower, b.upper) for name, b in bounds.items()]
    table = pd.DataFrame(rows, index=list(bounds), columns=["estimate", "lower", "upper"])
    table = table.sort_values("lower", ascending=False, kind="stable")
    lower, upper = table["lower"].to_numpy(), table["upper"].to_numpy()
    own = np.arange(len(table)) == 0
    table["log_bf_lower"] = np.where(own, 0.0, lower - upper[0])
    table["log_bf_upper"] = np.where(own, 0.0, upper - lower[0])
    others_above = [lower[:k] for k in range(len(table))]
    table["proved"] = [bool((upper[k] < above).all()) for k, above in enumerate(others_above)]
    table.iloc[0, table.columns.get_loc("proved")] = bool((upper[1:] < lower[0]).all())
    if len({tuple(fit.coefficients.index) for fit in fits.values()}) > 1:
        table.attrs["note"] = _PRIORS_DECIDE
    return table


def compare_likelihood(fits: Mapping[str, Any]) -> pd.DataFrame:
    """Table of log likelihoods at the estimates, by increasing degrees of freedom, with likelihood ratios."""
    import pandas as pd

    _same_response(fits)
    likelihoods = {name: fit.log_likelihood() for name, fit in fits.items()}
    rows = [(one.nobs, one.df, one.value, one.aic, one.bic) for one in likelihoods.values()]
    table = pd.DataFrame(rows, index=list(likelihoods), columns=["nobs", "df", "logLik", "AIC", "BIC"])
    table = table.sort_values("df", kind="stable")
    ratio, more = 2.0 * table["logLik"].diff(), table["df"].diff()
    ordered = [fits[name] for name in table.index]
    cases = np.array([False, *(_is_case(one, other) for one, other in pairwise(ordered))])
    nested = (more > 0.0) & (ratio >= 0.0) & cases
    return table.assign(
        chi2=ratio.where(more > 0.0), df_more=more, p_value=np.where(nested, chi2.sf(ratio, more), np.nan)
    )


def _is_case(one: Any, other: Any) -> bool:
    """Whether a fitted model is nested in another: the same family, no column outside of its span, no other term."""
    if one.parts or other.parts:
        same = one.parts.keys() == other.parts.keys()
        return same and all(_is_case(part, other.parts[name]) for name, part in one.parts.items())
    own, likelihood = one.found.likelihood, other.found.likelihood
    if own.word != likelihood.word or not {*own.theta_names} <= {*likelihood.theta_names}:
        return False
    first, second = one.model.sum, other.model.sum
    X, wider = (each.columns.tail(each.X, each.intercept) for each in (first, second))
    offset = np.broadcast_to(first.offset - second.offset, X.shape[:1])
    return _spans(wider, np.column_stack([X, offset])) and all(_has_term(second, *each) for each in _effects(first))


def _effects(of: Any) -> list[tuple[Any, Any]]:
    """The terms with effects, each with its design (N, L)."""
    return [(term, rows.design) for term, rows in zip(of.terms, of.training, strict=True) if term.n_latents]


def _has_term(of: Any, term: Any, design: Any) -> bool:
    """Whether a sum has a term of the same name, or a term of the same groups that has its effects among others."""
    for other, wider in _effects(of):
        if other.name == term.name:
            return True
        same_groups = term.of_groups and other.of_groups and term.group_columns == other.group_columns
        if same_groups and _spans(wider, design @ np.random.default_rng(0).standard_normal((design.shape[1], 1))):
            return True
    return False


def _spans(design: Any, columns: np.ndarray) -> bool:
    """Whether all columns (N, K) are combinations of those of a design (N, L), dense or sparse."""
    size = np.linalg.norm(columns, axis=0)
    left = [lsqr(design, column, atol=1e-12, btol=1e-12)[3] for column in columns.T]
    return bool((np.array(left) <= _IN_SPAN * size).all())


def _same_response(fits: Mapping[str, Any]) -> None:
    """Raise an error unless all fits are of the same y."""
    first, *others = fits
    for name in others:
        y, other = fits[first].observed, fits[name].observed
        if y.shape != other.shape or not np.array_equal(y, other, equal_nan=True):
            raise problem("compare", f"{first!r} and {name!r} are not of the same rows of y", "one response")


def _left_out(shared: tuple[Mapping[str, Any], str, Any, Any], name: str) -> RowScores:
    """Predictive scores of all rows of one model, by leave-one-out, leave-group-out or k-fold."""
    models, by, groups, folds = shared
    scores: RowScores
    if by == "leave_group_out":
        scores = models[name].leave_group_out(groups)
    else:
        scores = models[name].k_fold(folds) if by == "k_fold" else models[name].loo()
    return scores


def _same_rows(densities: Mapping[str, np.ndarray], models: Mapping[str, Any], one: str, other: str) -> bool:
    """Whether two predictions are of the same rows, and two models of the same y."""
    first, second = densities[one], densities[other]
    if first.shape != second.shape or (np.isnan(first) != np.isnan(second)).any():
        return False
    if not models:
        return True
    y, other_y = models[one].observed, models[other].observed
    return np.array_equal(y[~np.isnan(y)], other_y[~np.isnan(other_y)])


def _same_units(one: RowScores, other: RowScores, density: np.ndarray) -> bool:
    """Whether both left out the same groups of rows: then random values of rows have the same sums over groups."""
    marks = np.where(np.isnan(density), np.nan, np.random.default_rng(0).random(density.shape))
    first, second = (np.sort(each.units(marks)) for each in (one, other))
    return first.shape == second.shape and np.allclose(first, second)


def stacking_weights(log_density: np.ndarray) -> np.ndarray:
    """Stacking weights (K,) of models from predictive log densities (N, K) of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.criticism import stacking_weights
    >>> stacking_weights(np.log([[0.6, 0.2], [0.5, 0.4]])).round(3).tolist()
    [1.0, 0.0]
    """
    scores = numeric("stacking_weights", "log_density", log_density)
    if scores.ndim != 2 or not scores.size:
        raise problem("stacking_weights", f"log_density has shape {scores.shape}", "(rows, models), at least one each")
    if np.isnan(scores).any() or (scores.max(axis=1) == -np.inf).any():
        raise problem("stacking_weights", "a row has no density under any model", "log densities without NaN")
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    k = p.shape[1]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.maximum(p @ w, 1e-300)
        return -float(np.log(mixed).mean()), -(p / mixed[:, None]).mean(axis=0)

    one = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(k)}
    optimum = minimize(
        loss, np.full(k, 1.0 / k), jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * k, constraints=[one], tol=1e-14
    )
    w = np.clip(optimum.x, 1e-12, None) if np.isfinite(optimum.x).all() else np.full(k, 1.0)
    w /= w.sum()
    for _ in range(_STEPS):
        gain = -loss(w)[1]
        if gain.max() - 1.0 <= _GAP:
            break
        w = w * gain
        w /= w.sum()
    return np.where(w < 1e-9, 0.0, w)
