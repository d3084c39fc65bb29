"""How sharply the data determine the loadings, and the evidence once they are integrated out.

The observed information is the complete one less what is missing because z is not seen (Louis 1982). With q(z_r) =
N(m, V), d = z - m, and the slope of a row's loss in W_p nearly (alpha_p + lam_p W_p' d)(m + d),

    H = sum_r [ blockdiag_p( lam_p (V + m m') ) - M_r ],
    M_pq = A_p V A_q' + lam_p lam_q [ (W_p' V W_q) V + V W_q W_p' V ],    A_p = alpha_p I + lam_p m W_p'

which is exact for Gaussian columns. W and W Q have the same evidence for every rotation Q, so the maximum is not a
point but an orbit of dimension t = L (L - 1) / 2; across it the integral is Laplace's, along it a volume (as in Minka
2000):

    log p(y) ~ P - strength/2 |W|^2 + PL/2 log strength - t/2 log 2 pi - 1/2 log|H + strength I| across the orbit
               + log vol O(L) + sum_{i<j} 1/2 log(|w_i|^2 + |w_j|^2),     w_i the columns of W, orthogonal
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from ..linalg import small

if TYPE_CHECKING:
    from .learning import LearnedTable
    from .model import FactorModel, Parameters

_CHUNK = 1 << 22  # numbers of a temporary
_FLOPS = 2e11  # beyond it a sample of the rows stands for all


def information(model: FactorModel, values: np.ndarray, p: Parameters, tol: float = 1e-8) -> np.ndarray:
    """H (P L, P L), the loadings in the order of ``W.ravel()``."""
    P, L, R = model.n_predictors, model.n_components, values.shape[0]
    enough = int(max(1000.0, _FLOPS / ((P * L) ** 2 * (L * L + L + 1))))
    if enough < R:
        values = values[np.random.default_rng(0).choice(R, enough, replace=False)]
    W, H = p.loadings, np.zeros((P, L, P, L))
    diagonal = np.arange(P)
    for rows in model.stretches(values):
        found = model.solve(values[rows], p, None, tol)
        alpha, lam, mean, V = found.alpha, found.lam, found.mean, small.unpack(found.V)
        second = V + mean[:, :, None] * mean[:, None, :]
        H[diagonal, :, diagonal, :] += np.einsum("rp,rij->pij", lam, second)
        step = max(1, _CHUNK // (P * L**3))
        for i in range(0, alpha.shape[0], step):
            part = slice(i, i + step)
            H -= _missing(alpha[part], lam[part], mean[part], V[part], W)
    H = H.reshape(P * L, P * L) * (R / values.shape[0])
    return 0.5 * (H + H.T)


def _missing(alpha: np.ndarray, lam: np.ndarray, mean: np.ndarray, V: np.ndarray, W: np.ndarray) -> np.ndarray:
    """sum_r M_r (P, L, P, L)."""
    (P, L), C = W.shape, np.linalg.cholesky(V)
    U = lam[:, :, None] * (W @ C)  # (R, P, L)  lam_p C' W_p
    linear = alpha[:, :, None, None] * C[:, None, :, :] + mean[:, None, :, None] * U[:, :, None, :]
    flat = linear.transpose(1, 2, 0, 3).reshape(P * L, -1)
    out = flat @ flat.T
    flat = np.einsum("rpa,rib->pirab", U, C, optimize=True).reshape(P * L, -1)
    out += flat @ flat.T
    X = np.einsum("rpa,ria->pir", U, C, optimize=True).reshape(P * L, -1)
    swapped = (X @ X.T).reshape(P, L, P, L).transpose(2, 1, 0, 3)
    return out.reshape(P, L, P, L) + swapped


def integrated(model: FactorModel, values: np.ndarray, found: LearnedTable, tol: float = 1e-8) -> float:
    """The evidence of a table with the loadings integrated out; ``found`` is what ``learn`` gives: orthogonal W."""
    W, strength = found.parameters.loadings, found.strength
    P, L = W.shape
    H = information(model, values, found.parameters, tol) + strength * np.eye(P * L)
    pairs = [(i, j) for i in range(L) for j in range(i)]
    length = np.sum(W * W, axis=0)
    across = _across(H, W, pairs)
    roots = np.maximum(np.linalg.eigvalsh(across), 0.1 * strength)  # rounding, and a bound that is not quite quadratic
    group = np.log(2.0) + sum(np.log(2.0) + 0.5 * k * np.log(np.pi) - gammaln(0.5 * k) for k in range(2, L + 1))
    orbit = group + 0.5 * sum(np.log(max(length[i] + length[j], 1e-300)) for i, j in pairs)
    prior = 0.5 * (W.size * np.log(strength) - strength * float(length.sum()) - len(pairs) * np.log(2.0 * np.pi))
    return float(found.elbo + prior - 0.5 * np.sum(np.log(roots)) + orbit)


def _across(H: np.ndarray, W: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """H on the directions that are not rotations of W."""
    if not pairs:
        return H
    turns = np.zeros((len(pairs), *W.shape))
    for k, (i, j) in enumerate(pairs):
        turns[k, :, i], turns[k, :, j] = W[:, j], -W[:, i]
    basis = np.linalg.qr(turns.reshape(len(pairs), -1).T, mode="complete")[0][:, len(pairs) :]
    return basis.T @ H @ basis
