"""What inducing points cost where the likelihood's bound has no dual: by strong concavity at a q of the exact process.

With eta = G u + e, u ~ N(0, I), e ~ N(0, R), the fit of M points leaves e at its prior, independent of u. A better q',

    e ~ N(0, R),   u | e ~ N(m - V G' Lam e, V),      Var(eta_n) = (G V G')_nn + T_nn,
    T = (I - V_Q Lam) R (I - Lam V_Q),   V_Q = G V G'

has elbo(q') - elbo_M = -1/2 tr(V H V) - sum_n f(h_n, rho'_n) - f(h_n, rho_n),  H = G' Lam R Lam G. The elbo of a
log-concave likelihood is concave in (mean, root of the covariance), strongly so in the metric of the prior: half the
squared gradient at q' bounds what is missing there. With alpha', lam' the slopes of f at (h, rho') and d = lam' - lam,

    means     1/2 (alpha'' R alpha' + |G'(alpha' - alpha)|^2)
    spreads   1/2 (sqrt(tr(E^2) / 2) + sqrt(a + b^2))^2,      E = (Lam - Lam V_Q Lam) R,
              a = sum_ij d_i d_j K_ij (V_Q)_ij,   b = sum_n |d_n| sqrt(K_nn T_nn)

tr(E^2) is halved because the log determinant bends as well: in the eigenvectors of R^1/2 (Lam - Lam V_Q Lam) R^1/2, e
first, the root of the covariance is triangular and this slope is on its diagonal t = 1, where log t - t^2/2 bends by 2
for t < 1. The bound is the gain
of q' and both; it takes some 5 N^2 M multiplications. Where that is too much, the same at q itself is estimated from
sampled rows: 1/2 alpha' R alpha + 1/2 sum_ij lam_i lam_j R_ij (K_ij + (V_Q)_ij), which is larger.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..cross_kernels import cross, variances
from ..linalg.arrays import Array, Seed, asarray, is_numpy, namespace, to_numpy
from ..priors.inducing import InducingPoints
from ..solvers.solution import Solution
from .inducing_loss import FEWEST_DRAWS, PAIRS, ApproximationLoss, PairSums, asarray_rows

WORK = 2e12  # multiplications up to which every pair of rows is looked at: a minute on two cores
_ROWS, _COLUMNS = 256, 1024  # of a block of pairs


def concavity_loss(solution: Solution, prior: InducingPoints, rng: Seed = 0) -> ApproximationLoss:
    """The bound for a fit without a dual and one predictor, or an estimate of a larger one."""
    sums = _Concavity(solution, prior)
    gap, M = max(0.0, solution.gap), sums.M
    if 5.0 * sums.n**2 * M > WORK or 0.5 * sums.n**2 > PAIRS or not is_numpy(prior.design.like):
        both, error = sums.drawn(np.random.default_rng(rng))
        means, spreads = 0.5 * max(0.0, both[0]), 0.5 * max(0.0, both[1])
        bound = (np.sqrt(means + spreads) + np.sqrt(gap)) ** 2
        return ApproximationLoss(float(bound), 0.5 * error, means, spreads, gap, "strong-concavity", M)
    gain, means, spreads = sums.at_better_q()
    return ApproximationLoss(gain + means + spreads, 0.0, means, gain + spreads, 0.0, "strong-concavity", M)


class _Concavity(PairSums):
    """The rows of a fit with what q says of them."""

    def __init__(self, solution: Solution, prior: InducingPoints) -> None:
        post = solution.posterior
        super().__init__(prior, post.alpha, post.lam)
        h, rho = (x[asarray_rows(self.index, x)] for x in post.moments)
        self.h, self.rho, self.lam = h, rho, post.lam[asarray_rows(self.index, h)][:, 0]
        self.V = asarray(to_numpy(post.latent_covariance()), h)
        self.data = {name: x[asarray_rows(self.index, x)] for name, x in solution._rows.items()}
        self.objective = solution.likelihood.objective

    def _loss(self, rho: Array) -> tuple[Array, Array, Array]:
        """f, alpha and lam of every row (n,) at another variance, weighted."""
        loss, w = self.objective.loss(self.h, rho, self.data), self.data["weight"]
        alpha, lam = (x[:, 0] for x in loss.slopes)
        return w * loss.value, w * alpha, w * lam

    def at_better_q(self) -> tuple[float, float, float]:
        """elbo(q') - elbo_M, and the parts of the means and of the spreads."""
        G, lam, V = to_numpy(self.design.toarray()), to_numpy(self.lam), to_numpy(self.V)
        points, weighted = G[:, : self.M], lam[:, None] * G
        J = np.zeros_like(G)  # R Lam G

        def strip(start: int) -> float:
            some, square = slice(start, min(self.n, start + _ROWS)), 0.0
            for i in range(0, self.n, _COLUMNS):
                others = slice(i, min(self.n, i + _COLUMNS))
                R = to_numpy(self.kernel_block(some, others)) - points[some] @ points[others].T
                J[some] += R @ weighted[others]
                square += float(lam[some] @ (R * R @ lam[others]))
            return square

        squares = float(sum(self.in_parallel([partial(strip, i) for i in range(0, self.n, _ROWS)])))
        H, GV = weighted.T @ J, G @ V
        T = self.c - 2.0 * np.sum(GV * J, axis=1) + np.sum((GV @ H) * GV, axis=1)
        T = np.maximum(T, 0.0)
        squares += float(np.sum((V @ H) * (V @ H).T)) - 2.0 * float(np.sum(V * (J.T @ (lam[:, None] * J))))  # tr(E^2)
        before = self._loss(self.rho)
        value, alpha, own = self._loss(self.rho - self.c[:, None] + T[:, None])
        gain = -0.5 * float(np.sum((V @ H) * V)) - float(np.sum(value - before[0]))
        site, d = to_numpy(self.alpha)[:, 0], own - lam
        moved = G.T @ (alpha - site)
        self.alpha = alpha[:, None]
        quadratic = self.quadratic(np.random.default_rng(0))[0]

        def coupling(some: slice, others: slice) -> np.ndarray:
            K = to_numpy(self.kernel_block(some, others)) + self.level
            return np.array([d[some] @ ((K * (GV[some] @ G[others].T)) @ d[others])])

        a = max(0.0, float(self.every_pair(coupling)[0]))
        b = float(np.abs(d) @ np.sqrt((to_numpy(variances(self.kernel, self.X)) + self.level) * T))
        spreads = 0.5 * (np.sqrt(0.5 * max(0.0, squares)) + np.sqrt(a + b * b)) ** 2
        return gain, 0.5 * (max(0.0, quadratic) + float(moved @ moved)), float(spreads)

    def drawn(self, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """alpha' R alpha and sum_ij lam_i lam_j R_ij (K_ij + (V_Q)_ij) by sampled rows, and the error of their sum."""
        draws = int(max(FEWEST_DRAWS, WORK / (5.0 * self.M * self.n)))
        size = np.abs(to_numpy(self.alpha)[:, 0]) + to_numpy(self.lam)
        p = size * np.sqrt(self.c) + 1e-12 * size.mean()
        p = p / p.sum()
        index = rng.choice(self.n, size=draws, p=p)

        def strip(some: np.ndarray) -> np.ndarray:
            at, total = asarray_rows(some, self.X), 0.0 * self.h[: len(some)]
            G = self._features(at)
            for i in range(0, self.n, _COLUMNS):
                others = slice(i, min(self.n, i + _COLUMNS))
                F = self._features(others)
                K = self.kernel_block(at, others)
                R = K - G[:, : self.M] @ F[:, : self.M].T
                means = self.alpha[at][:, 0] * (R @ self.alpha[others][:, 0])
                both = R * (K + self.level + (G @ self.V) @ F.T)
                total = total + namespace(K).stack([means, self.lam[at] * (both @ self.lam[others])], axis=1)
            return to_numpy(total)

        parts = [partial(strip, index[i : i + _ROWS]) for i in range(0, draws, _ROWS)]
        each = np.concatenate(self.in_parallel(parts)) / p[index, None]
        return each.mean(axis=0), float(each.sum(axis=1).std(ddof=1) / np.sqrt(draws))

    def _features(self, some: Any) -> Array:
        return self.rows.of_cross(cross(self.kernel, self.X[some], self.rows.points))
