"""Theta and the latents drawn together: theta from its density, the latents at the points that were fitted.

    P(k | theta) prop. to v_k exp(-|u(theta) - u(theta_k)|^2 / 2 h^2),    v such that E[P(k | theta)] = w_k

u are the coordinates in which the posterior of theta is nearly standard normal. Draws of theta keep their marginals,
points keep their weights, and each draw is of a point near it: the entropic transport between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from ...checks import count

if TYPE_CHECKING:
    from .integrated import Integrated

_NEAR, _ROUNDS, _FITTED = 0.5, 200, 2000  # h, rounds of the search for v, and draws that it looks at


def drawn_together(mixed: Integrated, size: int, rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draws of theta (size, n), and which of them belong to each point.

    Examples
    --------
    >>> import numpy as np
    >>> import fenchel
    >>> from fenchel.hyperparameters import KernelCovariance
    >>> from fenchel.hyperparameters.integration.together import drawn_together
    >>> from fenchel.likelihoods import Poisson
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> x = np.linspace(0.0, 3.0, 8)[:, None]
    >>> mixed = fenchel.integrate(Poisson(), KernelCovariance(1.0 * RBF(1.0, "fixed"), x), np.arange(8.0))
    >>> theta, parts = drawn_together(mixed, 100, np.random.default_rng(0))
    >>> theta.shape, sum(map(len, parts))
    ((100, 1), 100)
    """
    size = count("drawn_together", "size", size, 1)
    theta = mixed.theta.sample(size, rng)
    at, points = mixed.theta.u(theta), mixed.theta.u(mixed.thetas)
    near = -0.5 * cdist(at, points, "sqeuclidean") / _NEAR**2 if at.shape[1] else np.zeros((size, len(points)))
    log_w = np.log(mixed.weights)
    log_p = near + _matched(near[:_FITTED], log_w)
    ends = np.cumsum(np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True)), axis=1)
    k = np.minimum((rng.random(size)[:, None] > ends).sum(axis=1), len(log_w) - 1)
    return theta, [np.flatnonzero(k == j) for j in range(len(log_w))]


def _matched(near: np.ndarray, log_w: np.ndarray) -> np.ndarray:
    """log v (K,), by Sinkhorn's rounds."""
    log_v, share = log_w.copy(), np.log(len(near))
    for _ in range(_ROUNDS):
        rows = logsumexp(near + log_v, axis=1, keepdims=True)
        got = logsumexp(near - rows, axis=0) - share  # of each point, for v = 1
        new = log_w - got
        if np.abs(new - log_v).max() < 1e-3:
            return np.asarray(new)
        log_v = new
    return np.asarray(log_v)
