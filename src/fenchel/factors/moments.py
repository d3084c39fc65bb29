"""A complete table of real numbers: its evidence needs only the mean and the covariance S of its rows.

    log p = -R/2 [D log 2 pi + log|C| + tr C^-1 (S + d d')],   C = W W' + diag(v),   d = mean - b

With A = I + W' diag(v)^-1 W = V^-1 and E = V W' diag(v)^-1, E[z | y] = E (y - b) and sum_r E[z z'] =
R (V + E (S + d d') E'); so an evaluation costs O(D^2 L), not O(R D L). With one noise for all columns the maximum is
closed (Tipping and Bishop 1999; here with the prior strength/2 |W|^2): with S = U diag(lam) U', lam falling,
W = U_q diag(c - v)^1/2,

    strength c^2 + R c = R lam            of each factor, kept where c > v
    R sum_i (v - lam_i) = q strength v^2  over the D - q roots that no factor takes;    strength 0: their mean

Of c and v the root that tends to them as strength -> 0 is the maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .model import FactorModel, Parameters, TableFit


class Moments:
    """R, mean (D,) and covariance (D, D) of a complete table of gaussian columns."""

    def __init__(self, n_rows: int, mean: np.ndarray, covariance: np.ndarray) -> None:
        self.n_rows, self.mean, self.covariance = n_rows, mean, covariance

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Of a table in memory."""
        mean = values.mean(axis=0)
        centred = values - mean
        return cls(values.shape[0], mean, centred.T @ centred / values.shape[0])

    def evidence(self, p: Parameters) -> TableFit:
        """As ``FactorModel.evidence`` of the table; exact, so that its gap is 0."""
        from .model import TableFit

        (D, L), R, v, W = p.loadings.shape, self.n_rows, p.variance, p.loadings
        away = self.mean - p.offset
        S = self.covariance + np.outer(away, away)
        scaled = W / v[:, None]
        root = np.linalg.cholesky(np.eye(L) + W.T @ scaled)
        V = np.linalg.inv(root.T) @ np.linalg.inv(root)
        E = V @ scaled.T
        cross = S @ E.T  # sum_r (y - b) E[z]' / R
        second = V + E @ cross
        left = np.diag(S) - 2.0 * np.sum(cross * W, axis=1) + np.sum((W @ second) * W, axis=1)  # E (y - eta)^2
        fit = np.sum(np.diag(S) / v) - np.sum(cross * scaled)  # tr C^-1 S
        log_det = 2.0 * np.sum(np.log(np.diag(root))) + np.sum(np.log(v))
        elbo = -0.5 * R * (D * np.log(2.0 * np.pi) + log_det + fit)
        slope = R * (cross - W @ second) / v[:, None]
        offset = R * (away - W @ (E @ away)) / v
        pooled = (R / v)[:, None, None] * second
        own = 0.5 * R * (left / v - 1.0)
        return TableFit(float(elbo), 0.0, slope, offset, own, pooled, 0, bool(np.isfinite(elbo)), [])

    def shared(self, model: FactorModel, strength: float, least: float) -> Parameters:
        """The maximum where all columns share one noise variance, which is at least ``least``."""
        from .model import Parameters

        R, L = self.n_rows, model.n_components
        roots, U = np.linalg.eigh(self.covariance)
        roots, U = np.maximum(roots[::-1], 0.0), U[:, ::-1]
        c = 2.0 * roots / (1.0 + np.sqrt(1.0 + 4.0 * roots * strength / R))
        v = least
        for q in range(min(L, roots.size), -1, -1):  # a factor whose root is no more than noise is none
            rest = roots[q:]
            if rest.size:
                inner = max(0.0, rest.size**2 - 4.0 * q * strength * float(rest.sum()) / R)
                v = max(least, 2.0 * float(rest.sum()) / (rest.size + np.sqrt(inner)))
            if q == 0 or c[q - 1] > v:
                break
        length = np.zeros(L)
        length[:q] = np.sqrt(c[:q] - v)
        W = np.zeros((roots.size, L))
        W[:, : min(L, roots.size)] = U[:, :L]
        return Parameters(W * length, self.mean.copy(), model.likelihoods).with_variance(np.full(roots.size, v))
