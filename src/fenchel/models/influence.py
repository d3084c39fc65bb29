"""Influence of each row, or group of rows, on the coefficients: Cook's distance and shifts, at the learned theta.

    without a row      b_-n - b = Cov(b, eta_n) / Var(eta_n) (E[eta_n | the others] - E[eta_n])
    without a group    the latents fitted again without its rows
    distance           (b_- - b)' Cov(b)^-1 (b_- - b) / p

Given eta_n the coefficients do not depend on y_n, and under the Gaussian they are linear in eta_n, so leaving out a row
needs no refit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference import infer
from ..linalg.arrays import to_numpy
from ..tasks import run_tasks
from . import predictions, tables
from .row_criteria import group_labels, over_data

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

_TOL = 1e-8  # relative gap of the fits without a group


def influence(fit: FittedModel, by: Any, n_jobs: Any, progress: bool) -> pd.DataFrame:
    """Table with a row for each row of the data, or for each group of ``by``."""
    if by is None:
        table, shifts = _of_rows(fit)
    else:
        table, shifts = _of_groups(fit, by, n_jobs, progress)
    names, covariance = tables.names_of(fit.model), tables.fixed_moments(fit)[1]
    sd = np.sqrt(np.diag(covariance))
    in_sds, own = shifts / sd, np.linalg.pinv(covariance / np.outer(sd, sd))  # correlations: columns in any units
    table.insert(0, "cooks_distance", np.einsum("ni,ij,nj->n", in_sds, own, in_sds) / max(1, len(names)))
    return table.assign(**{f"shift_{name}": in_sds[:, j] for j, name in enumerate(names)})


def _of_rows(fit: FittedModel) -> tuple[pd.DataFrame, np.ndarray]:
    """The change of each row's own eta in sds of its prediction, its log density, and the shifts (N, p)."""
    import pandas as pd

    result, post = fit.solution.loo(), fit.solution.posterior
    moved = to_numpy(result.mean) - to_numpy(post.mean)
    [part] = post.factor.parts  # type: ignore[attr-defined]
    solved = part.solve(tables.coefficient_rows(fit).design.toarray().T)  # Cov(z, b)
    cross = np.asarray(predictions.read_rows(fit).new.design @ solved)
    shifts = cross * (moved / to_numpy(post.variance))[:, None]
    pull, density = np.abs(moved) / np.sqrt(to_numpy(result.variance)), to_numpy(result.log_density)
    table = pd.DataFrame({"moved": over_data(fit, pull, ""), "log_density": over_data(fit, density, "")})
    wide = np.full((len(table), shifts.shape[1]), np.nan)
    wide[fit.model.kept] = np.where(np.isnan(density)[:, None], np.nan, shifts)
    return table, wide


def _of_groups(fit: FittedModel, by: Any, n_jobs: Any, progress: bool) -> tuple[pd.DataFrame, np.ndarray]:
    """The rows of each group, their joint log density without it, and the shifts (G, p)."""
    import pandas as pd

    labels = group_labels(fit, "influence", by)
    if np.ndim(by) == 0 and by in fit.model.frame and fit.model.frame[by].dtype.kind in "iu":
        labels = fit.model.frame[by].to_numpy()  # numbers stay numbers and keep their order
    names, codes = np.unique(labels, return_inverse=True)
    index = pd.Index(names, name=by if np.ndim(by) == 0 else None)
    left = to_numpy(fit.leave_group_out(by).log_density)[fit.model.kept]
    run = {"n_jobs": n_jobs, "progress": progress}
    each = run_tasks(_without_group, list(range(len(index))), (fit, codes), where="influence", **run)
    columns = {"rows": np.bincount(codes), "log_density": np.bincount(codes, np.nan_to_num(left))}
    return pd.DataFrame(columns, index=index), np.stack(each)


def _without_group(shared: tuple[FittedModel, np.ndarray], group: int) -> np.ndarray:
    """The change (p,) of the coefficients if a group is left out."""
    fit, codes = shared
    y = np.where(codes == group, np.nan, fit.solution.y)
    again = infer(fit.found.likelihood, fit.found.prior, y, tol=_TOL, weights=fit.model.target.weights)
    model = fit.model
    A, _ = model.fixed.to_user(model.sum.intercept, len(model.sum.fixed_names))
    return np.asarray(A @ (model.sum.fixed_effects(again)[0] - model.sum.fixed_effects(fit.solution)[0]))
