"""What y is: a likelihood with its data, and the predictive distribution of y at new rows.

Half of an estimator; ``latent.py`` is the other. Whoever reads y (``observations.py``, ``classification.py``,
``counts.py``) makes a ``Target``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import vector
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from ..marginals import Marginals
from ..predictive import Predictive
from .labels import encoded, levels_of_words


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

    def likelihood_at(self, likelihood: Likelihood, n: int, rows: Mapping[str, Any]) -> Likelihood:
        """The learned likelihood at n new rows: what is not given is exposure 1, one trial, an event that happened."""
        given = {key: vector(self.where, key, value, n) for key, value in rows.items() if value is not None}
        default = {key: 1.0 if key == "trials" else None for key in likelihood.row_parameters}
        own = likelihood.with_rows(**{**default, **given}) if default or given else likelihood
        return own.lenient()

    def at(self, likelihood: Likelihood, eta: Marginals, rows: Mapping[str, Any]) -> Predictive:
        """y at new rows with these marginals of eta, by the learned likelihood."""
        own = self.likelihood_at(likelihood, np.shape(eta.mean)[0], rows)
        return Predictive(own, eta, self.values, self.classes)

    def log_density(self, new: Predictive, y: ArrayLike) -> np.ndarray:
        """log p(y) of given y (M,), NaN where it is."""
        return new.log_density(self.places(y, np.shape(new.eta.mean)[0]))

    def places(self, y: Any, n: int | None = None) -> np.ndarray:
        """y as users know it (n,) as the likelihood takes it: labels as their places 0, ..., K-1."""
        y = y if self.words is None else levels_of_words(self.where, self.words, y)
        y = vector(self.where, "y", y, n, missing=True)
        return y if self.values is None else encoded(self.where, self.values, y)

    def decoded(self, levels: np.ndarray) -> np.ndarray:
        """Levels 0, ..., K-1 of y as users know them; other y as they are."""
        return levels if self.classes is None else self.classes[levels.astype(int)]
