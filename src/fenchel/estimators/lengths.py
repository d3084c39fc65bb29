"""Where a kernel of ours starts: a length from the distances between the rows, chosen by the evidence of a few of them.

    l = c median |x_i - x_j| / sqrt(2),    c = 1, 1/4, 1/16        sqrt(D) for D standardised columns, at c = 1

At length 1 every pair of 256 standardised columns is unrelated, the evidence is flat there and nothing is learned.
Distances are plain, or of columns divided by their standard deviations, where those differ: the evidence of the same
few rows decides between the two, so that a column in millimetres does not drown one in kilometres, and pixels stay
pixels.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.distance import pdist

from ..checks import problem
from ..hyperparameters import Evidence
from ..inputs.observations import Target
from ..linalg.dense import cholesky
from ..linalg.machine import physical_memory
from ..scaled_rbf import ScaledRBF

if TYPE_CHECKING:
    from .gaussian_process import KernelLatent

# -- What a Gaussian process of many rows will cost, said before the work begins -------------------
# memory  ~ (5 + 3 C) N^2 doubles to learn the kernel, (3 + 1.2 C) N^2 to keep it,      C latent functions
#     time    ~ iterations * 5 C Choleskys of N x N
#
# The time is that of one small Cholesky now, scaled by N^3; the number of iterations is what learning usually takes.
MANY = 8000  # rows from which a fit is announced
_TRIAL = 1000  # rows of the Cholesky that is timed
_FEWEST, _MORE = 8, 2  # evaluations of the evidence that learning takes, and for each hyperparameter
_EACH, _COLD = 2.5, 8  # Newton iterations of one of them, and of a fit without a start


def announce(where: str, n: int, n_classes: int, n_theta: int, learned: str = "kernel_") -> None:
    """Warn what a fit of n >= MANY rows will cost and what to do instead; refuse one that memory cannot hold.

    ``learned`` names the attributes that a fit to a sample hands on.
    """
    if n < MANY:
        return
    latents = 1 if n_classes == 2 else n_classes
    needed, there = memory(n, latents, n_theta > 0), physical_memory()
    advice = (
        f"Learn from a sample of some 2,000 rows and give its {learned} with optimizer=None to all of them, for half "
        "the memory and time"
        if n_theta
        else "Fit a sample of the rows"
    )
    advice += (
        ", or fit a linear model to features of X (sklearn's Nystroem before BayesianLogisticRegression or another "
        "Bayesian...Regression), whose cost grows with N and not with N^3."
    )
    size = f"{n} rows need about {needed / 2**30:.1f} GiB for their dense covariance"
    if needed > there:
        raise problem(where, f"{size} and {there / 2**30:.1f} GiB are there", "a size that fits", advice)
    fits = iterations(n_theta)
    seconds = 5.0 * latents * fits * cholesky_seconds() * (n / _TRIAL) ** 3
    warnings.warn(
        f"{where}: {size} (of {there / 2**30:.1f} there) and roughly {in_words(seconds)} on this machine as it is now, "
        f"for some {fits:.0f} Newton iterations; progress=True shows them. {advice}",
        UserWarning,
        stacklevel=4,
    )


def memory(n: int, latents: int, learned: bool) -> float:
    """Bytes at the peak: the covariance, a factor of each latent function, and the gradient with its temporaries."""
    return 8.0 * (5.0 + 3.0 * latents if learned else 3.0 + 1.2 * latents) * float(n) ** 2


def iterations(n_theta: int) -> float:
    """Newton iterations of a fit, or of learning that many hyperparameters."""
    return _COLD + (_FEWEST + _MORE * n_theta) * _EACH if n_theta else 2.0 * _COLD


def cholesky_seconds() -> float:
    """One Cholesky of _TRIAL rows, the better of three."""
    seconds = []
    for _ in range(3):
        A = np.full((_TRIAL, _TRIAL), 0.1)
        A.flat[:: _TRIAL + 1] = 2.0
        began = time.perf_counter()
        cholesky(A)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def in_words(seconds: float) -> str:
    """A duration to one digit: 40 seconds, 7 minutes, 3 hours."""
    for unit, length in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds > 1.5 * length:
            return f"{seconds / length:.1g} {unit}" if seconds < 10 * length else f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} seconds"


# -- Where a kernel starts -------------------------------------------------------------------------
_ROWS = 100  # that are looked at
_SHARES = (1.0, 1 / 4, 1 / 16)
_SHORTEST, _LONGEST = 1e-3, 1e3  # bounds of the length, about the typical distance
_ROUGH = 1e-3  # relative gap of the fits that choose between them
_ALIKE = 1.01  # columns whose standard deviations differ by less have one scale


def few_rows(table: np.ndarray, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are looked at, and their weights: evenly through the different rows of ``table``, sorted.

    A row seen twice counts as one of weight 2, and one of weight 0 not at all: the order of rows does not matter.
    """
    w = np.ones(table.shape[0]) if weights is None else weights
    seen = np.flatnonzero(w > 0.0)
    _, place, which = np.unique(table[seen], axis=0, return_index=True, return_inverse=True)
    few = np.unique(np.linspace(0, place.size - 1, min(place.size, _ROWS)).round().astype(int))
    return seen[place[few]], np.bincount(which.ravel(), weights=w[seen])[few]


def typical_distance(X: np.ndarray) -> float:
    """Half the typical squared distance between rows, as a length: sqrt(D) for standardised columns. 1 if all agree.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators.lengths import typical_distance
    >>> round(typical_distance(1e6 * np.random.default_rng(0).normal(size=(100, 25))) / 1e6)
    5
    """
    between = pdist(X)
    between = between[between > 0.0]
    return float(np.median(between) / np.sqrt(2.0)) if between.size else 1.0


def default_kernels(X: np.ndarray, variance: float) -> list[Any]:
    """A constant times an RBF, from each start worth trying, by what a few rows X say."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    sd = X.std(axis=0)
    moves = sd > 1e-12 * np.abs(X).max(axis=0, initial=0.0)
    metrics: list[Any] = [None]
    if moves.any() and sd[moves].max() > _ALIKE * sd[moves].min():
        metrics.append(np.where(moves, sd, 1.0))
    out = []
    for units in metrics:
        typical = typical_distance(X if units is None else X / units)
        bounds = (_SHORTEST * typical, _LONGEST * typical)
        for share in _SHARES:
            length = share * typical
            part = RBF(length, bounds) if units is None else ScaledRBF(length, bounds, units)
            out.append(ConstantKernel(variance, (1e-3 * variance, 1e4 * variance)) * part)
    return out


def default_kernel(target: Target, weights: Any, latent: KernelLatent) -> Any:
    """The start of the highest evidence of a few rows, each fit beginning where the last one ended.

    It is the first of them where none can be fitted. ``latent`` has the rows and the level, and any kernel.
    """
    likelihood = target.likelihood
    columns = [value for value in likelihood.row_values.values() if np.ndim(value) == 1]
    rows, w = few_rows(np.column_stack([latent.X, target.y, *columns]), weights)
    X = latent.X[rows]
    kernels = default_kernels(X, target.scale**2)
    families = [replace(latent, kernel=kernel, X=X).family() for kernel in kernels]
    evidence = Evidence(likelihood.take(rows), families[0], target.y[rows], weights=w, tol=_ROUGH, own=False)
    values = []  # no ``Search``: a choice of one among a few starts
    for family in families:
        evidence.family = family
        evidence.begin(evidence.last)
        try:
            found = evidence.fit(family.theta).elbo
        except ValueError:  # beyond double precision
            found = -np.inf
        values.append(found if np.isfinite(found) else -np.inf)
    return kernels[int(np.argmax(values))]
