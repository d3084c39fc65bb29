"""The base class of the classifiers, and their target: labels of any kind as classes 0, ..., K - 1."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, count, numeric, problem, refuse_device, unmasked
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
_DRAWS = 4096  # draws of eta from which quantiles of the probabilities of several classes are computed
_CHUNK = 1 << 22  # numbers held at once by the quantiles of several classes


class Classification(ClassifierMixin, LatentGaussianEstimator):
    """Base class of the classifiers: binary with one latent function, or multi-class with one for each class."""

    _target: Classes
    classes_: np.ndarray
    bound: str
    class_weight: Any = None

    @stated("checkpoint")
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit the classifier, and learn its kernel or the prior variance of its coefficients.

        Parameters
        ----------
        X : array or data frame (N, D)
            A linear model also takes scipy sparse matrices. Dask arrays and dataframes are fitted by passes.
        y : array (N,)
            Labels of any kind, at least two different ones.
        sample_weight : array (N,), optional
            Multiplies the log-likelihood of each row: 2 counts the row twice, 0 leaves it out.
        checkpoint : path, optional
            For Dask collections: file in which the state of the fit is kept, from which the same call resumes.

        Returns
        -------
        self
        """
        if in_partitions(type(self).__name__, X, checkpoint):
            if self.class_weight is not None:
                got = f"class_weight = {self.class_weight!r} and a Dask collection"
                raise problem(type(self).__name__, got, "sample_weight", "Give each row the weight of its label.")
            return self._fit_partitions(X, y, sample_weight, checkpoint)
        refuse_device(type(self).__name__, "y", y)
        X, y = validate_data(self, X, y, **self._accepted)
        if y.dtype == object:  # labels that cannot be sorted
            check_classification_targets(y)
        weights = class_weights(type(self).__name__, self.class_weight, y, weights_of(sample_weight, X))
        target = read_classes(type(self).__name__, y, self.bound, weights, self._is_joint(X, np.unique(y).size))
        self.classes_, self.n_classes_ = target.labels, int(target.labels.size)
        return self._fit(X, target, weights)

    def _is_joint(self, X: Any, n_classes: int) -> bool:
        """Whether bound="best" of several classes is exact expectations, which couple the classes' latents."""
        return False

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, np.ndarray]:
        """The target of a Dask collection, from its different labels and their total weights."""
        target = read_classes(type(self).__name__, values.y, self.bound, values.weight, False)
        if target.labels.size > 2 and not target.likelihood.objective.convex:
            got = f'bound="exact" with {target.labels.size} classes in a Dask collection'
            raise problem(type(self).__name__, got, 'bound="best" or "tilted"')
        self.classes_, self.n_classes_ = target.labels, int(target.labels.size)
        return target, target.labels

    @by_partition
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probability of each class, with the uncertainty of eta integrated out.

        Returns
        -------
        array (M, K)
            P(y = k | X, data); the columns are in the order of ``classes_``.
        """
        return probabilities_of(self._predictive(X))

    @by_partition
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm (M, K) of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @by_partition
    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each row of X: array (M,) of labels."""
        check_is_fitted(self)
        # the mean of a logistic function is above 1/2 if the mean of its argument is above 0; not so for a mixture
        if self.classes_.size == 2 and self.integrated_ is None:
            return self.classes_[(np.asarray(self._predictive(X, mean_only=True).eta.mean) > 0.0).astype(int)]
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    @by_partition
    def decision_function(self, X: Any) -> np.ndarray:
        """Log predictive odds (M,) of the second of two classes; for more classes log probabilities (M, K).

        They order the rows as ``predict_proba`` does. The latent mean (``latent_mean_and_variance``) may order them
        differently, because rows differ in their posterior variance.
        """
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if self.classes_.size == 2 else log_p

    @by_partition
    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles of the class probabilities.

        They say how well a probability is known: 0.5 +- 0.01 is a fair coin, 0.5 +- 0.4 is ignorance.

        Parameters
        ----------
        X : array (M, D)
        quantiles : array (Q,), default (0.025, 0.5, 0.975)
            Numbers between 0 and 1.

        Returns
        -------
        array (M, Q) for the second of two classes, (M, K, Q) for more
        """
        levels = levels_of(type(self).__name__, quantiles)
        return probability_quantiles(self._predictive(X), levels)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw labels (M, n_samples) from the predictive distribution of each row; rows are drawn independently."""
        size = count(type(self).__name__, "n_samples", n_samples, 1)
        return self._predictive(X).draws(size, generator(random_state))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean log predictive probability of the labels y, in nats: 0 is perfect, larger is better.

        This is a proper score, unlike the accuracy that other classifiers of scikit-learn return. For the share of
        correct labels use ``sklearn.metrics.accuracy_score`` or ``scoring="accuracy"``.
        """
        return self._score(X, y, sample_weight)


@dataclass(frozen=True)
class Classes(Target):
    """Target of a classifier: labels of any kind, whose predictions are probabilities."""

    @property
    def labels(self) -> np.ndarray:
        assert self.words is not None
        return self.words

    def log_density(self, new: Predictive, y: ArrayLike) -> np.ndarray:
        place = {label: k for k, label in enumerate(self.labels.tolist())}
        given = np.asarray(unmasked(self.where, "y", y), dtype=object)
        n = new.probabilities.shape[0]
        if given.shape != (n,):
            raise problem(self.where, f"y has shape {given.shape}", f"({n},): one label for each row")
        unknown = [label for label in given.tolist() if label not in place]
        if unknown:
            got = f"label {unknown[0]!r} was not seen in fit"
            raise problem(self.where, got, f"one of {self.labels.tolist()}")
        index = np.array([place[label] for label in given.tolist()], dtype=int)
        with np.errstate(divide="ignore"):
            return np.log(probabilities_of(new)[np.arange(index.size), index])


def class_weights(where: str, given: Any, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """The weight of each row times the weight of its label (scikit-learn's ``class_weight``)."""
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
    """P(y = k) (M, K), normalised so that each row sums to 1 up to rounding."""
    return new.probabilities / new.probabilities.sum(axis=1, keepdims=True)


def probability_quantiles(new: Predictive, levels: np.ndarray) -> np.ndarray:
    """Quantiles of the class probabilities: (M, Q) for the second of two classes, (M, K, Q) for more."""
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
    """Draws (n, S, C) of eta at some rows from standard normals (S, C), for one part of a mixture."""
    rho = part.rho[rows]
    if rho.ndim == 2:
        rho = rho[:, :, None] * np.eye(rho.shape[1])
    root = np.stack([semidefinite_root(V) for V in rho])
    return part.h[rows, None, :] + normals[None] @ root.transpose(0, 2, 1)


def read_classes(where: str, y: ArrayLike, bound: str, weights: Any, joint: bool) -> Classes:
    """The target of labels y, encoded as 0, ..., K - 1, with the likelihood that ``bound`` names.

    "best" is exact expectations for two classes, and for more if ``joint``; else the tilted bound. The level is the
    log odds of the second of two classes, or the centred log shares (K,), with half a row added to each class.
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
    likelihood: Likelihood = BernoulliLogit(bound) if K == 2 else MultinomialLogit(K, reference=None, bound=bound)
    share = np.log(np.bincount(encoded, weights=weights, minlength=K) + 0.5)
    level = float(share[1] - share[0]) if K == 2 else share - share.mean()
    return Classes(where, likelihood, encoded.astype(np.float64), level, words=labels)
