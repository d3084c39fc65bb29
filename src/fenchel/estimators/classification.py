"""What the classifiers share: labels in, probabilities out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, numeric, problem, refuse_device, unmasked
from ..distributed.row_sums import ValueCounts
from ..files import stated
from ..inputs.observations import Target
from ..likelihoods import BernoulliLogit, MultinomialLogit
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from ..linalg.dense import semidefinite_root
from ..predictive import Predictive, PredictivePart
from .base import LatentGaussianEstimator, generator, levels_of, validate_data, weights_of
from .dask_rows import by_partition, in_partitions

BOUNDS = ("best", "exact", "tilted", "log-sum")
_DRAWS = 4096  # of eta, by which quantiles of the probabilities of several classes are read off
_CHUNK = 1 << 22  # numbers held at once by the quantiles of several classes


class Classification(ClassifierMixin, LatentGaussianEstimator):
    """Binary (one latent) and joint multi-class (one latent a class) classification."""

    _target: Classes
    classes_: np.ndarray
    bound: str
    class_weight: Any = None

    @stated("checkpoint")
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit, and learn the kernel, or the variance of the coefficients.

        Parameters
        ----------
        X : array (N, D); scipy sparse too for a linear model, and a Dask array or dataframe
        y : labels (N,), of any kind
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood; 2 is the row seen twice, 0 leaves it out.
        checkpoint : path, optional
            Of a fit to a Dask collection: a file in which the iterate is kept, and from which the same call goes on.
        """
        if in_partitions(type(self).__name__, X, checkpoint):
            if self.class_weight is not None:
                got = f"class_weight = {self.class_weight!r} and rows in partitions"
                raise problem(type(self).__name__, got, "sample_weight", "Give each row the weight of its label.")
            return self._fit_partitions(X, y, sample_weight, checkpoint)
        refuse_device(type(self).__name__, "y", y)
        X, y = validate_data(self, X, y, **self._accepted)
        weights = class_weights(type(self).__name__, self.class_weight, y, weights_of(sample_weight, X))
        target = read_classes(type(self).__name__, y, self.bound, weights, self._is_joint(X, np.unique(y).size))
        self.classes_, self.n_classes_ = target.labels, int(target.labels.size)
        return self._fit(X, target, weights)

    def _is_joint(self, X: Any, n_classes: int) -> bool:
        """Whether "best" means exact expectations for several classes, whose coefficients these couple."""
        return False

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, np.ndarray]:
        """The target of rows in partitions, from their labels and what these weigh."""
        target = read_classes(type(self).__name__, values.y, self.bound, values.weight, False)
        if target.labels.size > 2 and not target.likelihood.objective.convex:
            got = f'bound="exact" meets {target.labels.size} classes in partitions'
            raise problem(type(self).__name__, got, 'bound="best" or "tilted"')
        self.classes_, self.n_classes_ = target.labels, int(target.labels.size)
        return target, target.labels

    @by_partition
    def predict_proba(self, X: Any) -> np.ndarray:
        """P(y = k | X, data), the posterior's uncertainty integrated out: (M, K), columns as ``classes_``."""
        return probabilities_of(self._predictive(X))

    @by_partition
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @by_partition
    def predict(self, X: Any) -> np.ndarray:
        """The most probable class (M,)."""
        check_is_fitted(self)
        # the mean of a logistic is above 1/2 where the mean of its argument is above 0; of a mixture it need not be
        if self.classes_.size == 2 and self.integrated_ is None:
            return self.classes_[(np.asarray(self._predictive(X, mean_only=True).eta.mean) > 0.0).astype(int)]
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    @by_partition
    def decision_function(self, X: Any) -> np.ndarray:
        """Two classes: the log odds (M,) of the second, ordered as ``predict_proba``. More: log probabilities (M, K).

        For the latent mean, whose order is another where the posterior is less sure, see ``latent_mean_and_variance``.
        """
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if self.classes_.size == 2 else log_p

    @by_partition
    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles of the class probabilities themselves: (M, Q) for the second of two classes, (M, K, Q).

        They say how sure a probability is: 0.5 +- 0.01 is a coin, 0.5 +- 0.4 is ignorance.
        """
        levels = levels_of(type(self).__name__, quantiles)
        return probability_quantiles(self._predictive(X), levels)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Labels drawn from the posterior predictive distribution of each row: (M, n_samples)."""
        return self._predictive(X).draws(int(n_samples), generator(random_state))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The mean log predictive probability of the labels (larger is better, 0 is perfect).

        A proper score: it rewards honest probabilities. For the share of correct labels use
        ``sklearn.metrics.accuracy_score`` or ``scoring="accuracy"``.
        """
        return self._score(X, y, sample_weight)


@dataclass(frozen=True)
class Classes(Target):
    """Labels of any kind: predictions are probabilities of them."""

    @property
    def labels(self) -> np.ndarray:
        assert self.words is not None
        return self.words

    def log_density(self, new: Predictive, y: ArrayLike) -> np.ndarray:
        place = {label: k for k, label in enumerate(self.labels.tolist())}
        given = np.asarray(unmasked(self.where, "y", y), dtype=object)
        n = new.probabilities.shape[0]
        if given.shape != (n,):
            raise problem(self.where, f"y has shape {given.shape}", f"({n},): one label a row")
        unknown = [label for label in given.tolist() if label not in place]
        if unknown:
            got = f"label {unknown[0]!r} was not seen in fit"
            raise problem(self.where, got, f"one of {self.labels.tolist()}")
        index = np.array([place[label] for label in given.tolist()], dtype=int)
        with np.errstate(divide="ignore"):
            return np.log(probabilities_of(new)[np.arange(index.size), index])


def class_weights(where: str, given: Any, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """The weight of each row times that of its label, by scikit-learn's ``class_weight``."""
    if given is None:
        return weights
    labels, place, seen = np.unique(y, return_inverse=True, return_counts=True)
    if issubclass(type(given), dict):
        unknown = [label for label in given if label not in labels.tolist()]
        if unknown:
            got = f"class_weight names the label {unknown[0]!r}, which y does not have"
            raise problem(where, got, f"labels among {labels.tolist()}")
        each = numeric(where, "class_weight", [given.get(label, 1.0) for label in labels.tolist()])
        if not ((each >= 0.0) & (each < np.inf)).all():
            raise problem(where, f"class_weight = {given!r}", "weights of 0 or above")
    else:
        choice(where, "class_weight", given, (None, "balanced"), "Or a dict of labels to weights.")
        each = y.size / (labels.size * seen)
    return each[place.ravel()] * (1.0 if weights is None else weights)


def probabilities_of(new: Predictive) -> np.ndarray:
    """P(y = k) (M, K), of sum 1 to the last digit."""
    return new.probabilities / new.probabilities.sum(axis=1, keepdims=True)


def probability_quantiles(new: Predictive, levels: np.ndarray) -> np.ndarray:
    """Quantiles of the probabilities themselves: (M, Q) for the second of two classes, (M, K, Q) for more."""
    if new.likelihood.n_predictors == 1:
        return new.mean_quantile(levels)
    n, C = new.parts[0].h.shape
    normals = np.random.default_rng(0).standard_normal((_DRAWS, C))
    ends = np.round(np.cumsum([0.0, *(part.weight for part in new.parts)]) * _DRAWS).astype(int)
    step, out = max(1, _CHUNK // normals.size), []
    for i in range(0, n, step):
        rows, shares = slice(i, i + step), zip(new.parts, pairwise(ends), strict=True)
        eta = np.concatenate([_eta_draws(part, rows, normals[a:b]) for part, (a, b) in shares], axis=1)
        e = np.exp(eta - eta.max(axis=2, keepdims=True))
        out.append(np.moveaxis(np.quantile(e / e.sum(axis=2, keepdims=True), levels, axis=1), 0, -1))
    return np.concatenate(out)


def _eta_draws(part: PredictivePart, rows: slice, normals: np.ndarray) -> np.ndarray:
    """eta of some rows (n, S, C) from standard normals (S, C), of one part of a mixture."""
    rho = part.rho[rows]
    if rho.ndim == 2:
        rho = rho[:, :, None] * np.eye(rho.shape[1])
    root = np.stack([semidefinite_root(V) for V in rho])
    return part.h[rows, None, :] + normals[None] @ root.transpose(0, 2, 1)


def read_classes(where: str, y: ArrayLike, bound: str, weights: Any, joint: bool) -> Classes:
    """Labels as 0, ..., K-1, under the tightest treatment there is, or the one asked for.

    "best" is no bound for two classes, nor for more of them if ``joint``; else the tilted one. The level is the log
    odds of the second of two classes, or the log shares (K,), centred; half a row is added to each class.
    """
    labels = np.unique(y)
    if labels.size > 2 or labels.dtype.kind not in "biu":  # two whole numbers are labels
        check_classification_targets(y)
    encoded, K = np.searchsorted(labels, y), int(labels.size)
    if K < 2:
        got = f"y has one class only, {labels.tolist()[0]!r}"
        raise problem(where, got, "two or more classes", "With one class there is nothing to tell apart.")
    choice(where, "bound", bound, BOUNDS)
    if bound == "best":
        bound = "exact" if K == 2 or joint else "tilted"
    found: Likelihood = BernoulliLogit(bound) if K == 2 else MultinomialLogit(K, reference=None, bound=bound)
    share = np.log(np.bincount(encoded, weights=weights, minlength=K) + 0.5)
    level = float(share[1] - share[0]) if K == 2 else share - share.mean()
    return Classes(where, found, encoded.astype(np.float64), level, words=labels)
