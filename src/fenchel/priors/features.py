"""A linear model with Gaussian weights: z ~ N(mean, variance), eta = design z + offset.

Bayesian generalised linear models and random features. The work is done with L x L matrices when there are more rows
than weights, with N x N ones otherwise; the answers are the same.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..checks import numeric, problem
from ..linalg.arrays import Array, asarray, namespace, to_numpy
from .base import Predictors, Prior
from .dense import checked_covariance
from .latents import Latents
from .setup import LatentPrior, in_smaller_space


class Features(LatentPrior):
    """Weights with a Gaussian prior on given features.

    Parameters
    ----------
    design : array (N, L), scipy sparse or ``linalg.design.Design``
        W, one row a predictor. Several predictors of an observation share it, each with weights of its own; N*C rows
        (observation by observation) with one common set of weights make them correlated.
    variance : float, array (L,) or (L, L)
        Prior variance of the weights: common, one each, or a full covariance.
    mean : float, array (L,) or (L, C)
    offset : float, array (N,) or (N, C)
    extra_variance : float, array (N,) or (N, C)
        As in ``DenseCovariance``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.priors import Features
    >>> Features(np.ones((5, 1)), variance=10.0).n_rows
    5
    """

    def __init__(
        self, design: Any, variance: Any = 1.0, mean: Any = 0.0, offset: Any = 0.0, extra_variance: Any = 0.0
    ) -> None:
        if design is None:
            raise problem("Features", "design is None", "features X, shape (N, L)")
        self.place(None, None, mean, design, offset, extra_variance)
        L = self.design.shape[1]
        self._like = self.design.like
        if not isinstance(variance, np.ndarray) and namespace(variance) is np:
            variance = numeric("Features", "variance", variance)
        if np.ndim(to_numpy(variance)) == 2:
            self.variance = checked_covariance("Features", "variance", asarray(variance, self._like), False)
            if self.variance.shape[0] != L:
                raise problem("Features", f"variance has shape {tuple(self.variance.shape)}", f"({L}, {L})")
        else:
            v = numeric("Features", "variance", variance)
            if v.ndim > 1 or (v.ndim == 1 and v.shape[0] != L) or not (np.isfinite(v) & (v >= 0)).all():
                raise problem(
                    "Features",
                    f"variance of shape {v.shape} with smallest entry {v.min() if v.size else 'none'}",
                    f"a finite number >= 0, a vector ({L},) of them, or a covariance ({L}, {L})",
                    "A flat prior is improper: use a large finite variance such as 100.",
                )
            self.variance = asarray(np.broadcast_to(v, (L,)).copy(), self._like)

    def reweighted(self, variance: np.ndarray) -> Features:
        """The same design with other variances (L,) > 0; checked already, so not checked again."""
        out = copy.copy(self)
        out.variance = asarray(np.array(variance, dtype=np.float64), self._like)
        return out

    @property
    def like(self) -> Array:
        return self.variance

    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        seen = self.seen(n_observations, n_predictors, lambda b, mean: Latents(mean, self.variance))
        return in_smaller_space(seen, coupled)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        import scipy.sparse as sp

        thin, wide = rng.normal(size=(n, 2)), rng.normal(size=(n, n + 2)) / np.sqrt(n)
        root = rng.normal(size=(2, 2))
        out: list[Prior] = [
            cls(thin, variance=2.0, mean=0.1),
            cls(wide, variance=rng.gamma(2.0, 0.5, n + 2)),
            cls(sp.csr_array(thin * (rng.random((n, 2)) < 0.7)), variance=[1.0, 3.0]),
            cls(thin, variance=root @ root.T + 0.1 * np.eye(2), offset=0.3),
        ]
        if n_predictors > 1:
            out.append(cls(rng.normal(size=(n * n_predictors, 3)), variance=1.5))
        return out

    def __repr__(self) -> str:
        return f"Features({self.n_rows} rows, {self.design.shape[1]} weights)"
