"""What a Gaussian process of many rows will cost, said before the work begins.

    memory  ~ (5 + 3 C) N^2 doubles to learn the kernel, (3 + 1.2 C) N^2 to keep it,      C latent functions
    time    ~ iterations * 5 C Choleskys of N x N

The time is that of one small Cholesky now, scaled by N^3; the number of iterations is what learning usually takes.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

from ..checks import problem
from ..linalg.dense import cholesky
from ..linalg.memory import physical_memory

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
