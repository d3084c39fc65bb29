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

from ..checks import callers_line, problem
from ..hyperparameters import Evidence, Family
from ..hyperparameters.kernel_choice import KernelShape
from ..inputs.observations import Target
from ..kernels import KERNELS
from ..linalg.dense import cholesky
from ..linalg.devices import device_memory
from ..linalg.machine import physical_memory
from ..scaled_kernels import ScaledMatern, ScaledRBF

if TYPE_CHECKING:
    from .kernel_latent import KernelLatent

# -- What a Gaussian process of many rows will cost, said before the work begins -------------------
# memory  ~ (5 + 3 C) N^2 doubles to learn the kernel, (3 + 1.2 C) N^2 to keep it,      C latent functions
#     time    ~ iterations * 5 C Choleskys of N x N
#
# The time is that of one small Cholesky now, scaled by N^3; the number of iterations is what learning usually takes.
MANY = 8000  # rows from which a fit is announced
_KEPT, _LEARNED = 2.6, 5.0  # matrices of N x N doubles on a device, at least: at a given theta, and to learn it
_TRIAL = 1000  # rows of the Cholesky that is timed
_FEWEST, _MORE = 8, 2  # evaluations of the evidence that learning takes, and for each hyperparameter
_EACH, _COLD = 2.5, 8  # Newton iterations of one of them, and of a fit without a start


def announce(where: str, n: int, n_classes: int, kernel: Any, learned: str = "kernel_", device: Any = None) -> None:
    """Warn what a fit of n >= MANY rows will cost and what to do instead; refuse one that memory cannot hold.

    ``kernel``: the one that is learned, or None. ``learned`` names the attributes that a fit to a sample hands on. Of a
    ``device`` only the memory is looked at.
    """
    if n < MANY:
        return
    n_theta, latents = 0 if kernel is None else kernel.n_dims, 1 if n_classes == 2 else n_classes
    needed, available = memory(n, latents, n_theta > 0), physical_memory()
    if device is not None and device.type != "cpu":
        least, available = 8.0 * (_LEARNED if n_theta else _KEPT) * latents * float(n) ** 2, device_memory(device)
        if least > available:
            got = f"{n} rows need about {least / 2**30:.0f} GiB on {device}, which has {available / 2**30:.0f}"
            raise problem(where, got, "a size that fits", 'Use approximation="inducing".')
        return
    advice = 'Use approximation="auto" or "inducing", whose cost grows with N and not with N^3'
    advice += (
        f", or learn from a sample of some 2,000 rows and give its {learned} with optimizer=None." if n_theta else "."
    )
    size = f"{n} rows need about {needed / 2**30:.1f} GiB for their dense covariance"
    if needed > available:
        raise problem(where, f"{size} and {available / 2**30:.1f} GiB are there", "a size that fits", advice)
    fits = iterations(n_theta)
    seconds = 5.0 * latents * fits * cholesky_seconds() * (n / _TRIAL) ** 3
    warnings.warn(
        f"{where}: {size} (of {available / 2**30:.1f} there) and roughly {in_words(seconds)} on this machine as it is "
        f"now, for some {fits:.0f} Newton iterations; progress=True shows them. {advice}",
        UserWarning,
        stacklevel=callers_line(),
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
_RBF = KernelShape("rbf")
_ALIKE = 1.01  # columns whose standard deviations differ by less have one scale


def few_rows(table: np.ndarray, weights: Any, most: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are looked at, and their weights: ``most`` of the different rows of ``table``, sorted.

    Evenly through them, or drawn at random. A row seen twice counts as one of weight 2, and one of weight 0 not at all:
    the order of rows does not matter.
    """
    w = np.ones(table.shape[0]) if weights is None else weights
    seen = np.flatnonzero(w > 0.0)
    _, place, which = np.unique(table[seen], axis=0, return_index=True, return_inverse=True)
    few = np.unique(np.linspace(0, place.size - 1, min(place.size, most)).round().astype(int))
    if seed is not None and place.size > most:
        few = np.sort(np.random.default_rng(seed).choice(place.size, most, replace=False))
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


def units_of(X: np.ndarray) -> np.ndarray | None:
    """The standard deviations of the columns (D,), 1 for one that does not move; None where they are alike."""
    sd = X.std(axis=0)
    moves = sd > 1e-12 * np.abs(X).max(axis=0, initial=0.0)
    if not (moves.any() and sd[moves].max() > _ALIKE * sd[moves].min()):
        return None
    return np.where(moves, sd, 1.0)


def default_kernels(X: np.ndarray, variance: float) -> list[list[Any]]:
    """A constant times an RBF, from each start worth trying, by what a few rows X say; in units of sds second."""
    units, out = units_of(X), []
    for metric in [None] if units is None else [None, units]:
        typical = typical_distance(X if metric is None else X / metric)
        bounds = (_SHORTEST * typical, _LONGEST * typical)
        out.append([scaled_by(variance, kernel_part(_RBF, share * typical, bounds, metric)) for share in _SHARES])
    return out


def kernel_part(shape: KernelShape, length: Any, bounds: Any, units: np.ndarray | None) -> Any:
    """The kernel of a shape, of variance 1."""
    from sklearn.gaussian_process.kernels import RBF, Matern

    nu = KERNELS[shape.word]
    if shape.lengths > 1:
        scale = 1.0 if units is None else units
        wide = np.broadcast_to(np.asarray(bounds), (shape.lengths, 2)) * np.reshape(scale, (-1, 1))
        length, bounds, units = np.full(shape.lengths, length) * scale, wide, None
    if np.isinf(nu):
        return RBF(length, bounds) if units is None else ScaledRBF(length, bounds, units)
    return Matern(length, bounds, nu) if units is None else ScaledMatern(length, bounds, nu, units)


def scaled_by(variance: float, part: Any) -> Any:
    """A kernel times a constant, which starts at ``variance``."""
    from sklearn.gaussian_process.kernels import ConstantKernel

    return ConstantKernel(variance, (1e-3 * variance, 1e4 * variance)) * part


def kernel_starts(target: Target, weights: Any, latent: KernelLatent) -> list[Any]:
    """The start of the highest evidence of a few rows, each fit beginning where the last one ended.

    That in other units of the columns stands second, where they differ. ``latent`` has the rows and the level, and any
    kernel. Where none can be fitted it is the first of them.
    """
    likelihood = target.likelihood
    rows, w = few_rows(known_of_rows(target, latent), weights, _ROWS)
    X = latent.X[rows]
    kernels = default_kernels(X[:, latent.numeric], target.scale**2)
    families = [[replace(latent, kernel=kernel, X=X).family() for kernel in some] for some in kernels]
    evidence = Evidence(likelihood.take(rows), families[0][0], target.y[rows], weights=w, tol=_ROUGH, own=False)

    def value(family: Family) -> float:  # no ``Search``: a choice of one among a few starts
        evidence.family = family
        evidence.begin(evidence.last)
        try:
            elbo = evidence.fit(family.theta).elbo
        except ValueError:  # beyond double precision
            elbo = -np.inf
        return elbo if np.isfinite(elbo) else -np.inf

    values = [[value(family) for family in some] for some in families]
    best = [some[int(np.argmax(each))] for some, each in zip(kernels, values, strict=True)]
    order = np.argsort([-max(each) for each in values], kind="stable")
    return [best[i] for i in order]


def known_of_rows(target: Target, latent: KernelLatent) -> np.ndarray:
    """All that is known of each row, (N, ...)."""
    columns = [value for value in target.likelihood.row_values.values() if np.ndim(value) == 1]
    return np.column_stack([latent.X, target.y, *columns])
