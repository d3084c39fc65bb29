"""What the classifiers share: labels in, probabilities out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, problem, unmasked
from ..likelihoods import BernoulliLogit, MultinomialLogit
from ..likelihoods.base import Likelihood
from .base import LatentGaussianEstimator, levels_of

BOUNDS = ("best", "exact", "tilted", "log-sum")
_CHUNK = 1 << 22  # numbers held at once by the quantiles of several classes


class Classification(ClassifierMixin, LatentGaussianEstimator):
    """Binary (one latent) and joint multi-class (one latent a class) classification."""

    classes_: np.ndarray

    def _encode(self, y: Any) -> np.ndarray:
        """Labels as 0..K-1; ``classes_`` keeps them."""
        check_classification_targets(y)
        self.classes_, encoded = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise problem(
                type(self).__name__,
                f"y has one class only, {self.classes_.tolist()[0]!r}",
                "two or more classes",
                "With one class there is nothing to tell apart.",
            )
        self.n_classes_ = int(self.classes_.size)
        return encoded.astype(np.float64)

    def _class_likelihood(self, bound: str) -> Likelihood:
        """The tightest treatment there is, or the one asked for: no bound for two classes, the tilted one for more."""
        choice(type(self).__name__, "bound", bound, BOUNDS)
        if self.classes_.size == 2:
            return BernoulliLogit("exact" if bound == "best" else bound)
        if bound == "exact":
            raise problem(
                type(self).__name__,
                f'bound="exact" meets {self.classes_.size} classes',
                "two classes",
                'The expectation of a softmax has no exact mode; use bound="best" or "tilted".',
            )
        return MultinomialLogit(int(self.classes_.size), reference=None, bound="tilted" if bound == "best" else bound)

    def _levels(self, encoded: np.ndarray, weights: Any) -> Any:
        """Log odds of the second of two classes; or log shares (K,), centred. Half a row is added to each class."""
        share = np.log(np.bincount(encoded.astype(int), weights=weights, minlength=self.n_classes_) + 0.5)
        return float(share[1] - share[0]) if share.size == 2 else share - share.mean()

    def predict_proba(self, X: Any) -> np.ndarray:
        """P(y = k | X, data), the posterior's uncertainty integrated out: (M, K), columns as ``classes_``."""
        check_is_fitted(self)
        h, rho = self._predictors(X)
        p = np.asarray(self.likelihood_.predictive_probabilities(h, rho))
        return p / p.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class (M,)."""
        check_is_fitted(self)
        if self.classes_.size == 2:  # the mean of a logistic is above 1/2 where the mean of its argument is above 0
            return self.classes_[(self._latent_mean(X) > 0.0).astype(int)]
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Two classes: the log odds (M,) of the second, ordered as ``predict_proba``. More: log probabilities (M, K).

        For the latent mean, whose order is another where the posterior is less sure, see ``latent_mean_and_variance``.
        """
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if self.classes_.size == 2 else log_p

    def predict_quantiles(self, X: Any, quantiles: Any = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles of the class probabilities themselves: (M, Q) for the second of two classes, (M, K, Q).

        They say how sure a probability is: 0.5 +- 0.01 is a coin, 0.5 +- 0.4 is ignorance.
        """
        from scipy.special import expit, ndtri

        check_is_fitted(self)
        q = levels_of(type(self).__name__, quantiles)
        h, rho = self._predictors(X)
        if self.classes_.size == 2:
            return np.asarray(expit(h[:, None] + np.sqrt(rho)[:, None] * ndtri(q)[None, :]))
        draws = np.random.default_rng(0).standard_normal((4096, h.shape[1]))
        step, out = max(1, _CHUNK // draws.size), []
        for i in range(0, h.shape[0], step):
            eta = h[i : i + step, None, :] + np.sqrt(rho[i : i + step, None, :]) * draws[None]
            e = np.exp(eta - eta.max(axis=2, keepdims=True))
            out.append(np.moveaxis(np.quantile(e / e.sum(axis=2, keepdims=True), q, axis=1), 0, -1))
        return np.concatenate(out)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Labels drawn from the posterior predictive distribution of each row: (M, n_samples)."""
        p = self.predict_proba(X)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        u = rng.random((p.shape[0], int(n_samples)))
        index = (u[:, :, None] > np.cumsum(p, axis=1)[:, None, :-1]).sum(axis=2)
        return self.classes_[index]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean log predictive probability of the labels (larger is better, 0 is perfect).

        A proper score: it rewards honest probabilities. For the share of correct labels use
        ``sklearn.metrics.accuracy_score`` or ``scoring="accuracy"``.
        """
        log_p = self.predict_log_proba(X)
        place = {label: k for k, label in enumerate(self.classes_.tolist())}
        given = np.asarray(unmasked(type(self).__name__, "y", y), dtype=object if isinstance(y, list) else None)
        if given.shape != log_p.shape[:1]:
            raise problem(type(self).__name__, f"y has shape {given.shape}", f"({log_p.shape[0]},): one label a row")
        labels = given.tolist()
        unknown = [label for label in labels if label not in place]
        if unknown:
            raise problem(
                type(self).__name__, f"label {unknown[0]!r} was not seen in fit", f"one of {self.classes_.tolist()}"
            )
        index = np.array([place[label] for label in labels], dtype=int)
        return float(np.average(log_p[np.arange(index.size), index], weights=sample_weight))
