"""A fuzz problem as the judge's matrices: S = W Sigma W' and mt = W mu + offset in decimals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .decimals import ZERO, eliminate, exact, identity
from .optimum import Model
from .problems import FuzzProblem

_DETERMINED = 1e15  # a condition beyond which the rounding of its entries decides whether a precision is proper


class Improper(Exception):
    """The prior has a null space that its constraints leave: nothing can be inferred from it."""


def to_model(problem: FuzzProblem) -> Model:
    p, N, C = problem.prior, problem.y.size, problem.C
    blocks = latent_covariances(p)
    L = blocks[0].shape[0]
    W0 = identity(L) if p["design"] is None else exact(p["design"])
    if p["correlated"] or C == 1:
        W, Sigma = W0, blocks[0]
        mu = exact(np.broadcast_to(p["mean"], (L,)))
    else:  # latents class by class, rows observation by observation
        blocks = blocks if len(blocks) == C else blocks * C
        W = np.full((N * C, C * L), ZERO, dtype=object)
        Sigma = np.full((C * L, C * L), ZERO, dtype=object)
        for c in range(C):
            W[c::C, c * L : (c + 1) * L] = W0
            Sigma[c * L : (c + 1) * L, c * L : (c + 1) * L] = blocks[c]
        mu = exact(np.tile(np.broadcast_to(p["mean"], (L,)), C))
    mt = W.dot(mu) + exact(np.repeat(np.broadcast_to(p["offset"], (N,)), C))
    weight = np.ones(N) if problem.weights is None else problem.weights
    rows = [n for n in range(N) if weight[n] > 0 and observed(problem.likelihood, n, problem.y[n])]
    y = exact(np.nan_to_num(problem.y))
    return Model(W.dot(Sigma).dot(W.T), mt, rows, exact(weight), problem.likelihood, y, C, W, Sigma, mu)


def observed(like: dict[str, Any], n: int, y: float) -> bool:
    if like["name"] == "Mixed":
        k = int(np.sum(like["which"][:n] == like["which"][n]))
        return observed(like["parts"][like["which"][n]], k, y)
    if np.isnan(y) or (like["name"] in ("Exponential", "Weibull") and y == 0.0):
        return False
    if like["name"].startswith("Interval") and y == 0.0 and np.isinf(like["upper"][n]):
        return False
    return not any(like.get(key) is not None and like[key][n] == 0 for key in ("exposure", "trials"))


def latent_covariances(p: dict[str, Any]) -> list[Any]:
    if p["kind"] != "sparse":
        K = np.asarray(p["covariance"])
        return [exact(block) for block in (K if K.ndim == 3 else K[None])]
    Q, A = p["precision"], constraint_rows(p)
    L, k = Q.shape[0], len(A)
    system = np.full((L + k, L + k), ZERO, dtype=object)
    system[:L, :L] = exact(Q)
    if k:
        system[L:, :L], system[:L, L:] = exact(A), exact(A).T
    right = np.full((L + k, L), ZERO, dtype=object)
    right[:L] = identity(L)
    try:
        Sigma = eliminate(system, right)[:L]
    except ArithmeticError:
        raise Improper from None
    if not all(x.is_finite() for x in Sigma.ravel()):
        raise Improper
    Sigma = (Sigma + Sigma.T) / 2
    values = np.linalg.eigvalsh(Sigma.astype(float))
    if values[0] < -1e-10 * abs(values[-1]) or values[-1] * np.max(np.abs(np.linalg.eigvalsh(Q))) > _DETERMINED:
        raise Improper
    return [Sigma]


def constraint_rows(p: dict[str, Any]) -> np.ndarray:
    Q = p["precision"]
    if p["constraints"] is None:
        return np.zeros((0, len(Q)))
    if not isinstance(p["constraints"], str):
        return np.asarray(p["constraints"])
    part = np.arange(len(Q))  # the smallest node that each is connected with
    for _ in range(len(Q)):
        part = np.array([part[(Q[i] != 0) | (np.arange(len(Q)) == i)].min() for i in range(len(Q))])
    return np.array([(part == k).astype(float) for k in np.unique(part)])
