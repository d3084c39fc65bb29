"""K-fold cross-validation by refits: the rows of a fold are unobserved, and predicted from the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from ..checks import choice, count, numeric, problem
from ..criteria import RowScores
from ..hyperparameters.base import Family
from ..hyperparameters.integration import integrate
from ..hyperparameters.learning import learn
from ..inference import infer
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike, Seed, to_numpy
from ..priors.base import Prior


@dataclass(frozen=True, repr=False)
class KFold(RowScores):
    """Predictions by refits.

    log_density : log p(y_n | the other folds) (N,), NaN where y is unobserved
    mean, variance : of eta_n, (N,) or (N, C)
    folds : int array (N,)
    converged : bool (K,), of each refit
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
    n_jobs: int | None = None,
    tol: float = 1e-8,
    integrated: str | None = None,
) -> KFold:
    """Fit without each fold and predict it.

    Parameters
    ----------
    likelihood, prior, y, weights
        The model. A ``Family`` learns its hyperparameters, and the likelihood's, anew without each fold.
    folds : int or array (N,)
        How many, drawn with ``rng``, or the fold of each row.
    groups : array (N,), optional
        Rows of one group are in one fold.
    n_jobs : int, optional
        Processes, as joblib counts them.
    integrated : "auto", "grid" or "ccd", optional
        Integrate over the hyperparameters of a ``Family`` without each fold, rather than learn them.

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
    each = range(int(fold.max()) + 1)
    found = Parallel(n_jobs=n_jobs)(
        delayed(_without)(likelihood, prior, y, np.flatnonzero(fold == k), weights, tol, rng, integrated) for k in each
    )
    size = found[0][1].shape[1:]
    density, mean, variance = (
        np.full(y.shape, np.nan),
        np.full((y.size, *size), np.nan),
        np.full((y.size, *size), np.nan),
    )
    for k, part in enumerate(found):
        at = np.flatnonzero(fold == k)
        density[at], mean[at], variance[at] = part[:3]
    return KFold(density, mean, variance, fold, np.array([part[3] for part in found]))


def folds_of(seen: np.ndarray, k: int, groups: ArrayLike | None, rng: Seed) -> np.ndarray:
    """The fold of each row: equal shares of the observed rows, or of the groups, in a random order."""
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


def _without(
    likelihood: Likelihood,
    prior: Prior | Family,
    y: np.ndarray,
    rows: np.ndarray,
    weights: ArrayLike | None,
    tol: float,
    rng: Seed,
    method: str | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Log densities and the moments of eta of some rows, fitted without them."""
    others = y.copy()
    others[rows] = np.nan
    if isinstance(prior, Family) and method is not None:
        mixed = integrate(likelihood, prior, others, weights=weights, method=method, tol=tol)
        density = mixed.predictive().log_density(y)[rows]
        return density, mixed.mean[rows], mixed.variance[rows], mixed.converged
    if isinstance(prior, Family):
        found = learn(likelihood, prior, others, weights=weights, tol=tol)
        fit, own, converged = found.solution, found.likelihood, found.converged
    else:
        fit = infer(likelihood, prior, others, weights=weights, tol=tol)
        own, converged = likelihood, fit.converged
    h, rho = (to_numpy(v)[rows] for v in (fit.posterior.mean, fit.posterior.variance))
    density = to_numpy(own.take(rows).predictive_log_density(y[rows], h, rho, rng))
    return np.asarray(density), h, rho, converged
