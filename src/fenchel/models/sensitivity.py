"""Sensitivity to priors: the posterior under narrower and wider priors, by weights of draws.

    w_s = p'(u_s) / p(u_s)          u the hyperparameter, or the coefficients, whose prior is changed
    p'(log sd) = p(log sd - log c)  for an sd or a range, made c times as large;   N(m, (c s)^2) for coefficients

Draws are from the posterior, hyperparameters jointly with the latents; weights are smoothed by Pareto tails,
and k-hat above 0.7 means that the two posteriors differ too much for weights: fit again with the other prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import count, problem
from ..corrections.importance import smoothed
from ..hyperparameters.priors import Density
from . import predictions, tables
from .reference_grid import listed

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

Change = Callable[[float], np.ndarray]  # c -> log weights of all draws if a prior is c times as wide


def sensitivity(fit: FittedModel, factors: Sequence[float], size: int, rng: Any) -> pd.DataFrame:
    """Table with a row for each prior, factor and unknown: mean, sd, the shift of the mean in sds, and k-hat."""
    import pandas as pd

    size = count("sensitivity", "size", size, 200)
    wide = [float(c) for c in listed(factors)]
    if not wide or not all(np.isfinite(c) and c > 0.0 for c in wide):
        raise problem("sensitivity", f"factors = {factors!r}", "numbers above 0, such as (0.5, 2)")
    thetas, latents = predictions.draws_with_theta(fit, size, np.random.default_rng(rng))
    names, values = _unknowns(fit, thetas, latents)
    mean, sd = values.mean(axis=0), values.std(axis=0)
    rows = []
    for prior, change in _changes(fit, thetas, latents):
        for c in wide:
            log_w, k_hat = smoothed(change(c))
            w = np.exp(log_w - log_w.max())
            w /= w.sum()
            moved = w @ values
            spread = np.sqrt(np.maximum(w @ (values - moved) ** 2, 0.0))
            shift = np.divide(moved - mean, sd, out=np.zeros_like(sd), where=sd > 0.0)
            rows += [
                (prior, c, *name, *numbers, k_hat)
                for name, *numbers in zip(names, mean, moved, sd, spread, shift, strict=True)
            ]
    columns = ["prior", "factor", "unknown", "parameter", "mean", "new_mean", "sd", "new_sd", "shift", "k_hat"]
    return pd.DataFrame(rows, columns=columns)


def _unknowns(fit: FittedModel, thetas: np.ndarray, latents: np.ndarray) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Names of the coefficients and hyperparameters, and draws (S, k) of them."""
    rows = tables.coefficient_rows(fit, thetas)
    coefficients = np.asarray(rows.design @ latents.T).T + rows.offset
    names = [(name, "coefficient") for name in tables.names_of(fit.model)]
    described = tables.described_theta(fit, thetas[0])
    names += [(term, parameter) for term, parameter, _ in described]
    return names, np.hstack([coefficients, tables.values_at(fit, thetas)]) if described else coefficients


def _changes(fit: FittedModel, thetas: np.ndarray, latents: np.ndarray) -> Iterator[tuple[str, Change]]:
    """Every prior with a width, and the log weights of the draws if it is wider."""
    model = fit.model
    variance = np.asarray(model.coefficient_priors.variance, dtype=np.float64)
    own = latents[:, latents.shape[1] - variance.size :]
    first = int(model.sum.intercept)
    if variance.size > first:
        yield "coefficients", _of_normals(own[:, first:], variance[first:])
    i = 0
    for term in model.sum.effects:
        for h in term.hyperparameters:
            if h.prior is not None and (h.size is not None or h.name.startswith("range")):
                yield f"{h.name} of {term.name}", _of_scale(h.prior, thetas[:, i])
            i += 1


def _of_normals(z: np.ndarray, variance: np.ndarray) -> Change:
    """The change if latents N(0, variance) have c times the sd."""
    squares = (z**2 / variance).sum(axis=1)
    return lambda c: np.asarray(0.5 * squares * (1.0 - c**-2) - z.shape[1] * np.log(c))


def _of_scale(prior: Density, theta: np.ndarray) -> Change:
    """The change for a log sd or range: p'(theta) = p(theta - log c)."""

    def change(c: float) -> np.ndarray:
        return np.array([prior(float(t - np.log(c)))[0] - prior(float(t))[0] for t in theta])

    return change
