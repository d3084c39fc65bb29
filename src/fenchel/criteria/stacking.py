"""Stacking: the mixture of models that predicts best what each of them has not seen.

max over w in the simplex of  sum_n log sum_k w_k exp(l_nk)

It is concave, and any w comes with a certificate: with g_k = mean_n exp(l_nk) / sum_j w_j exp(l_nj), no mixture is
better by more than n (max_k g_k - 1).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from ..checks import numeric, problem

_GAP = 1e-6  # nats a row, of the certificate
_STEPS = 20_000  # of the multiplicative update that finishes


def stacking_weights(log_density: np.ndarray) -> np.ndarray:
    """Weights (K,) of models whose rows have the log densities (N, K).

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.criteria import stacking_weights
    >>> stacking_weights(np.log([[0.6, 0.2], [0.5, 0.4]])).round(3).tolist()
    [1.0, 0.0]
    """
    scores = numeric("stacking_weights", "log_density", log_density)
    if scores.ndim != 2 or not scores.size:
        raise problem("stacking_weights", f"log_density has shape {scores.shape}", "(rows, models), at least one each")
    if np.isnan(scores).any() or (scores.max(axis=1) == -np.inf).any():
        raise problem("stacking_weights", "a row has no density under any model", "log densities without NaN")
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    k = p.shape[1]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.maximum(p @ w, 1e-300)
        return -float(np.log(mixed).mean()), -(p / mixed[:, None]).mean(axis=0)

    one = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(k)}
    found = minimize(
        loss, np.full(k, 1.0 / k), jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * k, constraints=[one], tol=1e-14
    )
    w = np.clip(found.x, 1e-12, None) if np.isfinite(found.x).all() else np.full(k, 1.0)
    w /= w.sum()
    for _ in range(_STEPS):
        gain = -loss(w)[1]
        if gain.max() - 1.0 <= _GAP:
            break
        w = w * gain
        w /= w.sum()
    return np.where(w < 1e-9, 0.0, w)
