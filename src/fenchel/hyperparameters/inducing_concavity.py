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
for t < 1. The bound is the gain of q' and both; it takes some 5 N^2 M multiplications.

Where that is too much, f is replaced by its tangent in (h, s), s = sqrt(rho), in which it is convex: at the slopes
(alpha, lam s) the best q of the exact process is known but for a concave function of log lam, which is largest for Q in
the place of K, and lies below its own tangent. With v = diag(G (I + G' Lam G)^-1 G') and rho = v + c this leaves

    elbo*_exact - elbo_M <= 1/2 alpha' R alpha + 1/2 sum_n lam_n (2 c_n - v_n log(1 + c_n / v_n)) <= ... + lam' c

where the fit has converged; the code has the same for any (m, V), whose slopes are not its sites.
"""

from __future__ import annotations

import numpy as np

from ..cross_kernels import variances
from ..linalg.arrays import Array, Seed, asarray, namespace, to_numpy
from ..priors.inducing import InducingPoints
from ..solvers.solution import Solution
from .inducing_loss import ApproximationLoss, PairSums, asarray_rows

TINY = 1e-300


def concavity_loss(
    solution: Solution, prior: InducingPoints, rng: Seed = 0, enough: float = 0.0, hopeless: float = np.inf
) -> ApproximationLoss:
    """The bound for a fit without a dual and one predictor.

    One below ``enough`` nats is not made smaller, nor one above ``hopeless``.
    """
    sums, word = _Concavity(solution, prior), "strong-concavity"
    means, spreads, error = sums.by_tangents(np.random.default_rng(rng))
    plain = ApproximationLoss(means + spreads, error, means, spreads, 0.0, word, sums.M)
    if error or not enough < plain.bound <= hopeless or not sums.is_affordable(1):
        return plain
    gain, means, spreads = sums.at_better_q()
    better = ApproximationLoss(gain + means + spreads, 0.0, means, gain + spreads, 0.0, word, sums.M)
    return min(plain, better, key=lambda loss: loss.bound)


class _Concavity(PairSums):
    """The rows of a fit with what q says of them."""

    def __init__(self, solution: Solution, prior: InducingPoints) -> None:
        post = solution.posterior
        super().__init__(prior, post.alpha, post.lam)
        h, rho = (x[asarray_rows(self.index, x)] for x in post.moments)
        self.h, self.rho, self.lam = h, rho, post.lam[asarray_rows(self.index, h)][:, 0]
        self.V, self.m = post.latent_covariance(), to_numpy(post.latent_mean)
        self.data = {name: x[asarray_rows(self.index, x)] for name, x in solution._rows.items()}
        self.objective = solution.likelihood.objective

    def _loss(self, rho: Array) -> tuple[Array, Array, Array]:
        """f, alpha and lam of every row (n,) at another variance, weighted."""
        loss, w = self.objective.loss(self.h, rho, self.data), self.data["weight"]
        alpha, lam = (x[:, 0] for x in loss.slopes)
        return w * loss.value, w * alpha, w * lam

    def by_tangents(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """The parts of the means and of the spreads, and the standard error of the first."""
        _, alpha, lam = self._loss(self.rho)
        self.alpha = alpha[:, None]
        quadratic, error = self.quadratic(rng)
        residual = to_numpy(self.design.adjoint(alpha)) + self.m
        L = np.linalg.cholesky(np.eye(self.m.size) + to_numpy(self.design.gram(lam)))
        v = to_numpy(self.design.row_squares(asarray(np.linalg.inv(L).T, lam)))
        rho, lam = to_numpy(self.rho)[:, 0], to_numpy(lam)
        ratio = np.log(np.maximum(rho, TINY) / np.maximum(v, TINY))
        spreads = float(lam @ (2.0 * rho - v - v * ratio)) - 2.0 * float(np.log(np.diag(L)).sum())
        V = to_numpy(self.V)
        spreads += float(np.trace(V)) - self.m.size - float(np.linalg.slogdet(V)[1])
        means = 0.5 * (max(0.0, quadratic) + float(residual @ residual))
        return means, max(0.0, 0.5 * spreads), 0.5 * error

    def at_better_q(self) -> tuple[float, float, float]:
        """elbo(q') - elbo_M, and the parts of the means and of the spreads."""
        G, lam, V, xp = self.design.toarray(), self.lam, self.V, namespace(self.V)
        c, m = asarray(self.c, lam), asarray(self.m, lam)
        J, H, squares = self.remainder_products(lam, G, V)  # R Lam G, G' Lam R Lam G, tr(E^2)
        GV = G @ V
        T = c - 2.0 * xp.sum(GV * J, axis=1) + xp.sum((GV @ H) * GV, axis=1)
        T = xp.where(T > 0.0, T, xp.zeros_like(T))
        before = self._loss(self.rho)
        value, alpha, own = self._loss(self.rho - c[:, None] + T[:, None])
        gain = -0.5 * float(xp.sum((V @ H) * V)) - float(xp.sum(value - before[0]))
        d, moved = own - lam, G.T @ alpha + m
        self.alpha = alpha[:, None]
        quadratic = self.quadratic(np.random.default_rng(0))[0]

        def coupling(some: slice, others: slice) -> Array:
            K = self.rows.trend.add_to(self.kernel_block(some, others), self.X[some], self.X[others])
            return (d[some] @ ((K * (GV[some, :] @ G[others, :].T)) @ d[others]))[None]

        a = max(0.0, float(self.every_pair(coupling)[0]))
        b = float(xp.abs(d) @ xp.sqrt((variances(self.kernel, self.X) + self.rows.trend.variances(self.X)) * T))
        spreads = 0.5 * (np.sqrt(0.5 * squares) + np.sqrt(a + b * b)) ** 2
        return gain, 0.5 * (max(0.0, quadratic) + float(moved @ moved)), float(spreads)
