"""Where learning begins: every column without factors, then the principal components of the standardised table.

A column without factors has the offset that its cells have together, with half a count or half a level added, and a
likelihood with its own parameters read off them: a variance, cutpoints. Others stand where they were made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..likelihoods import Gaussian, Poisson
from ..likelihoods.base import Likelihood
from ..likelihoods.cumulative import Cumulative
from .kinds import is_softmax

if TYPE_CHECKING:
    from .model import FactorModel, Parameters


class Begin(NamedTuple):
    """A column without factors: cells at unit variance, 0 for holes (R, C); offset (C,), scale of eta, likelihood."""

    scores: np.ndarray
    offset: np.ndarray
    scale: float
    likelihood: Likelihood


def begin(own: Likelihood, y: np.ndarray) -> Begin:
    """Of a column y (R,), NaN for holes, which may be all of it."""
    seen = ~np.isnan(y)
    n, scores = int(seen.sum()), np.zeros((y.size, own.n_predictors))
    if own.support == "levels":
        return _levels(own, y, seen, scores)
    mean, sd = (float(y[seen].mean()), float(y[seen].std())) if n else (0.0, 1.0)
    if isinstance(own, Poisson) and own.exposure is None:
        mean = (float(y[seen].sum()) + 0.5) / (n + 1.0)
        scores[seen, 0] = (y[seen] - mean) / max(sd, mean**0.5)
        return Begin(scores, np.array([np.log(mean)]), min(1.0, mean**-0.5), own)
    sd = sd if sd > 0.0 else 1.0
    scores[seen, 0] = (y[seen] - mean) / sd
    if type(own) is Gaussian:
        return Begin(scores, np.array([mean]), sd, own.changed(variance=sd * sd))
    return Begin(scores, np.array([own.level(y) if n else 0.0]), own.scale_of(y) if n else 1.0, own)


def _levels(own: Likelihood, y: np.ndarray, seen: np.ndarray, scores: np.ndarray) -> Begin:
    codes = y[seen].astype(np.intp)
    counts = np.bincount(codes, minlength=own.n_levels) + 0.5
    share = counts / counts.sum()
    if isinstance(own, Cumulative):
        below = np.cumsum(counts)[:-1] / counts.sum()
        middle = (np.concatenate([[0.0], below]) + np.concatenate([below, [1.0]])) / 2
        scores[seen, 0] = ((middle - 0.5) / max(float(middle[codes].std()) if codes.size else 1.0, 1e-3))[codes]
        return Begin(scores, np.zeros(1), 2.0, own.changed(cutpoints=own.link(below)))
    if not is_softmax(own):
        scores[seen, 0] = (codes - share[1]) / np.sqrt(share[1] * (1.0 - share[1]))
        return Begin(scores, np.array([own.level(y)]), 2.0, own)
    share = share[:-1]
    scores[seen] = ((codes[:, None] == np.arange(share.size)) - share) / np.sqrt(share * (1.0 - share))
    return Begin(scores, np.log(share / (1.0 - share.sum())), 2.0, own)


class Starts:
    """Where a search may begin on a table (R, D)."""

    def __init__(self, model: FactorModel, values: np.ndarray) -> None:
        from .model import Parameters

        self.model = model
        columns = [begin(own, values[:, j]) for j, own in enumerate(model.likelihoods)]
        self.scores = np.hstack([one.scores for one in columns])
        self.scale = np.repeat([one.scale for one in columns], model.widths)
        offset = np.concatenate([one.offset for one in columns])
        self.alone = Parameters(
            np.zeros((model.n_predictors, model.n_components)), offset, tuple(one.likelihood for one in columns)
        )

    def principal(self) -> Parameters:
        """Loadings from the principal components, and noise that is what they leave of the variance."""
        Z, model = self.scores, self.model
        with np.errstate(over="ignore"):
            C = Z.T @ Z / max(1, Z.shape[0])
        roots, vectors = np.linalg.eigh(C)
        order = np.argsort(roots)[::-1][: model.n_components]
        length = np.sqrt(np.maximum(roots[order] - np.median(roots), 0.05))
        W = self.scale[:, None] * vectors[:, order] * length
        left = 1.0 - np.sum((W / self.scale[:, None]) ** 2, axis=1)
        noise = self.alone.variance * np.maximum([float(left[own.start]) for own in model.slices], 0.1)
        return self._with(W, noise)

    def at_random(self, rng: np.random.Generator) -> Parameters:
        W = 0.5 * self.scale[:, None] * rng.standard_normal(self.alone.loadings.shape)
        return self._with(W, self.alone.variance)

    def _with(self, W: np.ndarray, noise: np.ndarray) -> Parameters:
        if self.model.noise == "shared" and self.model.gaussian.any():
            noise = np.full(noise.size, np.mean(noise[self.model.gaussian]))
        return replace(self.alone, loadings=W).with_variance(noise)
