"""K-fold cross-validation by refits: the rows of each fold are predicted from the other folds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import choice, count, numeric, problem
from ..hyperparameters.base import Family
from ..hyperparameters.integration import integrate
from ..hyperparameters.learning import learn
from ..inference import infer
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike, Seed, to_numpy
from ..priors.base import Prior
from ..row_scores import RowScores
from ..tasks import Jobs, run_tasks, seed_of


@dataclass(frozen=True, repr=False)
class KFold(RowScores):
    """Predictions of rows from refits without their folds.

    log_density : log p(y_n | the other folds) (N,), NaN where y is unobserved
    mean, variance : of eta_n, (N,) or (N, C)
    folds : int array (N,), the fold of each row
    converged : bool (K,), whether each refit converged
    """

    log_density: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    folds: np.ndarray
    converged: np.ndarray


def k_fold(
    likelihood: Likelihood,
    prior: Prior | Family,
    y: ArrayLike,
    folds: int | ArrayLike = 10,
    *,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    rng: Seed = 0,
    n_jobs: Jobs = None,
    progress: bool = False,
    tol: float = 1e-8,
    integrated: str | None = None,
) -> KFold:
    """Fit a model without each fold and predict the fold.

    Parameters
    ----------
    likelihood, prior, y, weights
        The model. The hyperparameters of a ``Family``, and those of the likelihood, are learned again for each fold.
    folds : int or array (N,), default 10
        The number of folds, which are drawn with ``rng``, or the fold of each row.
    groups : array (N,), optional
        Rows of one group are put into the same fold.
    rng : Generator or seed, default 0
        For the draw of the folds.
    n_jobs : int, None or Dask client
        Parallel fits (``fenchel.tasks``).
    progress : bool, default False
        Whether to show progress.
    tol : float, default 1e-8
        Tolerance of each fit.
    integrated : "auto", "grid" or "ccd", optional
        Integrate over the hyperparameters of a ``Family`` instead of learning them.

    Returns
    -------
    KFold
    """
    y = numeric("k_fold", "y", y, missing=True)
    choice("k_fold", "integrated", integrated, (None, "auto", "grid", "ccd"))
    if integrated is not None and not isinstance(prior, Family):
        raise problem("k_fold", "integrated= with a prior without hyperparameters", "a Family, or integrated=None")
    if np.ndim(folds) == 0:
        fold = folds_of(~np.isnan(y), count("k_fold", "folds", folds, 2), groups, rng)
    else:
        fold = np.unique(np.asarray(folds), return_inverse=True)[1]
        if fold.shape != y.shape:
            raise problem("k_fold", f"folds has shape {fold.shape}", f"a number, or {y.shape}")
    each = [np.flatnonzero(fold == k) for k in range(int(fold.max()) + 1)]
    shared = (likelihood, prior, y, weights, tol, seed_of(rng), integrated)
    predictions = run_tasks(_predict_without, each, shared, where="k_fold", n_jobs=n_jobs, progress=progress)
    size = predictions[0][1].shape[1:]
    density, mean, variance = (
        np.full(y.shape, np.nan),
        np.full((y.size, *size), np.nan),
        np.full((y.size, *size), np.nan),
    )
    for at, part in zip(each, predictions, strict=True):
        density[at], mean[at], variance[at] = part[:3]
    return KFold(density, mean, variance, fold, np.array([part[3] for part in predictions]))


def folds_of(seen: np.ndarray, k: int, groups: ArrayLike | None, rng: Seed) -> np.ndarray:
    """The fold of each row: folds with equal numbers of observed rows, or of groups, in random order."""
    unit = np.arange(seen.size) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if unit.shape != seen.shape:
        raise problem("k_fold", f"groups has shape {unit.shape}", f"{seen.shape}")
    order = np.random.default_rng(rng)
    first = np.unique(unit[seen])
    if first.size < k:
        raise problem("k_fold", f"{k} folds of {first.size} {'rows' if groups is None else 'groups'}", "fewer folds")
    fold = np.zeros(int(unit.max()) + 1, dtype=int)
    fold[order.permutation(first)] = np.arange(first.size) % k
    return np.asarray(fold[unit])


def _predict_without(
    shared: tuple[Likelihood, Prior | Family, np.ndarray, ArrayLike | None, float, Seed, str | None], rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Log densities and moments of eta of some rows, and whether the fit without them converged."""
    likelihood, prior, y, weights, tol, rng, method = shared
    others = y.copy()
    others[rows] = np.nan
    if not isinstance(prior, Family):
        fit = infer(likelihood, prior, others, weights=weights, tol=tol)
        own, converged = likelihood, fit.converged
    elif method is not None:
        mixed = integrate(likelihood, prior, others, weights=weights, method=method, tol=tol)
        density = mixed.predictive().log_density(y)[rows]
        return density, mixed.mean[rows], mixed.variance[rows], mixed.converged
    else:
        found = learn(likelihood, prior, others, weights=weights, tol=tol)
        fit, own, converged = found.solution, found.likelihood, found.converged
    h, rho = (to_numpy(v)[rows] for v in (fit.posterior.mean, fit.posterior.variance))
    density = to_numpy(own.take(rows).predictive_log_density(y[rows], h, rho, rng))
    return np.asarray(density), h, rho, converged
