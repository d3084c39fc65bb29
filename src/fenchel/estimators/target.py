"""What y is: a likelihood with its data, and the way back from its predictive distribution to values of y.

    E[y], Var[y], P(y <= x), log p(y)      under y ~ p(y | eta), eta ~ N(h, rho): the posterior's uncertainty is in all

Half of an estimator; ``latent.py`` is the other. Whoever reads y (``observations.py``, ``classification.py``,
``counts.py``) makes a ``Target``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..checks import vector
from ..likelihoods.base import Likelihood
from ..likelihoods.prediction import mean_quantiles
from ..linalg.arrays import ArrayLike
from .labels import encoded, levels_of_words


class Predictive(NamedTuple):
    """y at new rows: the likelihood there, and the moments of eta, (M,) or (M, C).

    ``rho`` are covariances (M, C, C) where the predictors of a row are correlated.
    """

    likelihood: Any
    h: np.ndarray
    rho: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Of eta, (M,) or (M, C)."""
        return np.einsum("nkk->nk", self.rho) if self.rho.ndim == 3 else self.rho


@dataclass(frozen=True)
class Target:
    """A likelihood with its data.

    Attributes
    ----------
    where : str
        The estimator's name, for sentences.
    likelihood : at its starting parameters, with the rows' exposure, trials or event
    y : array (N,)
        As the likelihood takes it: levels 0, ..., K-1 for labels.
    level : float or array (K,)
        The link of the overall mean; 0 for ordered levels.
    scale : float
        The scale of eta: the standard deviation of y (by its quartiles under heavy tails; the size of a constant y, 1
        for zeros) where eta is on the scale of y, 1 elsewhere.
    values : array (K,) or None
        What labels stand for, in order.
    words : array (K,) or None
        What they are called, where these are no numbers.
    """

    where: str
    likelihood: Likelihood
    y: np.ndarray
    level: Any = 0.0
    scale: float = 1.0
    values: np.ndarray | None = None
    words: np.ndarray | None = None

    @property
    def classes(self) -> np.ndarray | None:
        """The labels in order, as users know them."""
        return self.values if self.words is None else self.words

    def at(self, likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, rows: Mapping[str, Any]) -> Predictive:
        """y at new rows by the learned likelihood: what is not given is exposure 1, one trial, an event that happened.

        h and rho are the mean and variance of eta there.
        """
        n = h.shape[0]
        given = {key: vector(self.where, key, value, n) for key, value in rows.items() if value is not None}
        default = {key: 1.0 if key == "trials" else None for key in likelihood.row_parameters}
        own = likelihood.with_rows(**{**default, **given}) if default or given else likelihood
        return Predictive(own.lenient(), h, rho)

    def probabilities(self, new: Predictive) -> np.ndarray:
        """P(y = k) of labels (M, K)."""
        return np.asarray(new.likelihood.predictive_probabilities(new.h, new.rho))

    def mean(self, new: Predictive, with_std: bool = False) -> Any:
        """The mean of y (M,), its standard deviation if asked for; of labels their values, of words their places."""
        if self.values is not None:
            p = self.probabilities(new)
            mean = p @ self.values
            return (mean, np.sqrt(np.maximum(p @ self.values**2 - mean**2, 0.0))) if with_std else mean
        mean = np.asarray(new.likelihood.predictive_mean(new.h, new.rho))
        return (mean, np.sqrt(np.asarray(new.likelihood.predictive_variance(new.h, new.rho)))) if with_std else mean

    def rates(self, new: Predictive, levels: np.ndarray) -> np.ndarray:
        """Quantiles (M, Q) of E[y | eta] itself."""
        if hasattr(new.likelihood, "rates"):  # of a mixture over theta
            return np.asarray(new.likelihood.rates(levels, self.values))
        return mean_quantiles(new.likelihood, new.h, new.rho, levels, self.values)

    def quantiles(self, new: Predictive, levels: np.ndarray) -> np.ndarray:
        """Quantiles (M, Q) of y."""
        return self.decoded(np.asarray(new.likelihood.predictive_quantile(levels, new.h, new.rho)))

    def log_density(self, new: Predictive, y: ArrayLike) -> np.ndarray:
        """log p(y) of given y (M,), NaN where it is."""
        return np.asarray(new.likelihood.predictive_log_density(self.places(y, new.h.shape[0]), new.h, new.rho))

    def places(self, y: Any, n: int | None = None) -> np.ndarray:
        """y as users know it (n,) as the likelihood takes it: labels as their places 0, ..., K-1."""
        y = y if self.words is None else levels_of_words(self.where, self.words, y)
        y = vector(self.where, "y", y, n, missing=True)
        return y if self.values is None else encoded(self.where, self.values, y)

    def decoded(self, levels: np.ndarray) -> np.ndarray:
        """Levels 0, ..., K-1 of y as users know them; other y as they are."""
        return levels if self.classes is None else self.classes[levels.astype(int)]
