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


class Summary(NamedTuple):
    """A column by itself: its cells, their mean and standard deviation and sum, how often each level was seen (K,).

    ``cells`` are the cells (R,), NaN for holes: a likelihood of one's own may look at them.
    """

    n: int
    mean: float
    sd: float
    total: float
    counts: np.ndarray
    cells: np.ndarray


def summary(own: Likelihood, y: np.ndarray) -> Summary:
    """Of a column y (R,), NaN for holes, which may be all of it."""
    seen = y[~np.isnan(y)]
    mean, sd = (float(seen.mean()), float(seen.std())) if seen.size else (0.0, 1.0)
    counts = np.bincount(seen.astype(np.intp), minlength=own.n_levels) if own.support == "levels" else np.zeros(0)
    return Summary(seen.size, mean, sd, float(seen.sum()), counts, y)


class Score(NamedTuple):
    """A column's cells at unit variance, 0 for holes: a row of ``table`` (K, C) for each level, or numbers in units."""

    table: np.ndarray | None
    centre: float = 0.0
    unit: float = 1.0

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Of y (R,), NaN for holes: (R, C)."""
        seen, table = ~np.isnan(y), self.table
        out = np.zeros((y.size, 1 if table is None else table.shape[1]))
        if table is not None:
            out[seen] = table[y[seen].astype(np.intp)]
        else:
            out[seen, 0] = (y[seen] - self.centre) / self.unit
        return out


class Begin(NamedTuple):
    """A column without factors: its scores, offset (C,), scale of eta, likelihood."""

    score: Score
    offset: np.ndarray
    scale: float
    likelihood: Likelihood


def begin(own: Likelihood, column: Summary) -> Begin:
    """Of a column by itself, all of which may be holes."""
    if own.support == "levels":
        return _levels(own, column)
    n, mean, sd = column.n, column.mean, column.sd
    if isinstance(own, Poisson) and own.exposure is None:
        mean = (column.total + 0.5) / (n + 1.0)
        return Begin(Score(None, mean, max(sd, mean**0.5)), np.array([np.log(mean)]), min(1.0, mean**-0.5), own)
    sd = sd if sd > 0.0 else 1.0
    score = Score(None, mean, sd)
    if type(own) is Gaussian:
        return Begin(score, np.array([mean]), sd, own.changed(variance=sd * sd))
    y = column.cells
    return Begin(score, np.array([own.level(y) if n else 0.0]), own.scale_of(y) if n else 1.0, own)


def _levels(own: Likelihood, column: Summary) -> Begin:
    seen, n, K = column.counts.astype(np.float64), column.n, own.n_levels
    counts = seen + 0.5
    share = counts / counts.sum()
    if isinstance(own, Cumulative):
        below = np.cumsum(counts)[:-1] / counts.sum()
        middle = (np.concatenate([[0.0], below]) + np.concatenate([below, [1.0]])) / 2
        spread = float(np.sqrt(seen @ (middle - seen @ middle / n) ** 2 / n)) if n else 1.0
        score = Score(((middle - 0.5) / max(spread, 1e-3))[:, None])
        return Begin(score, np.zeros(1), 2.0, own.changed(cutpoints=own.link(below)))
    if not is_softmax(own):
        score = Score(((np.arange(K) - share[1]) / np.sqrt(share[1] * (1.0 - share[1])))[:, None])
        return Begin(score, np.array([own.level(np.arange(float(K)), seen)]), 2.0, own)
    share = share[:-1]
    score = Score((np.eye(K)[:, :-1] - share) / np.sqrt(share * (1.0 - share)))
    return Begin(score, np.log(share / (1.0 - share.sum())), 2.0, own)


class Starts:
    """Where a search may begin on a table (R, D)."""

    def __init__(self, model: FactorModel, values: np.ndarray) -> None:
        from .model import Parameters

        self.model, self.values = model, values
        self.columns = [summary(own, y) for own, y in zip(model.likelihoods, values.T, strict=True)]
        columns = [begin(own, said) for own, said in zip(model.likelihoods, self.columns, strict=True)]
        self.scores = [one.score for one in columns]
        self.scale = np.repeat([one.scale for one in columns], model.widths)
        offset = np.concatenate([one.offset for one in columns])
        self.alone = Parameters(
            np.zeros((model.n_predictors, model.n_components)), offset, tuple(one.likelihood for one in columns)
        )

    def principal(self) -> Parameters:
        """Loadings from the principal components, and noise that is what they leave of the variance."""
        model = self.model
        with np.errstate(over="ignore"):
            Z = np.hstack([score(y) for score, y in zip(self.scores, self.values.T, strict=True)])
            C = Z.T @ Z / max(1, self.values.shape[0])
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
