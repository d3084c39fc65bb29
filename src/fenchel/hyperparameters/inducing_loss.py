"""What inducing points cost: an upper bound on the elbo of the exact process less that of its M points.

The dual variables (alpha, lam) of the sparse fit are feasible for the exact process, and log|I + Lam^1/2 K Lam^1/2| is
at least that of Q <= K. With R = K - Q, c = diag R and the gap of the sparse fit,

    duality            elbo*_exact - elbo_M <= 1/2 alpha' R alpha + 1/2 lam' c + gap
    strong concavity   elbo*_exact - elbo_M <= (sqrt b + sqrt gap)^2,
                       b = 1/2 alpha' R alpha + 1/2 sum_ij lam_i lam_j R_ij (K_ij + Cov_q(eta_i, eta_j; weights))

The second is for bounds without a dual (the exact logit): the gradient of the elbo in (m, chol V) at q, extended to the
exact process, in the metric of its prior. In coordinates (e, u), eta = G u + e, the slope in V is Lam on (e, e) and
Lam G on (e, u), and 0 on (u, u).

Both need every pair of rows once: N^2 / 2 kernel evaluations, in blocks, on every core, without memory. Where that is
too much, rows i are drawn with probabilities p_i and sum_i t_i / p_i is an unbiased estimate, with its standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..cross_kernels import cross, variances
from ..linalg.arrays import Array, Seed, asarray, is_numpy, namespace, to_numpy
from ..linalg.machine import cores, side_by_side
from ..priors.inducing import InducingPoints
from ..solvers.solution import Solution

PAIRS = 1e10  # of rows, up to which every one is looked at: some 10 seconds on two cores
DEAR_PAIRS = 1e12  # multiplications of the strong-concavity bound up to which the same holds
FEWEST_DRAWS = 400  # rows that an estimate is made of, at least
_ROWS, _COLUMNS = 256, 1024  # of a block of pairs: it stays in cache


@dataclass(frozen=True)
class ApproximationLoss:
    """How far the elbo of M points may be below that of the exact process.

    Attributes
    ----------
    bound : float
        Nats. No less than the loss where ``standard_error`` is 0; else an unbiased estimate of such a number.
    standard_error : float
        Of the estimate from sampled rows; 0 where every pair of rows was looked at.
    means, spreads, gap : float
        What it is made of: the part of the means, of the variances, and what the fit itself may have missed.
    certificate : "duality", "strong-concavity" or "none"
    n_points : int
    """

    bound: float
    standard_error: float
    means: float
    spreads: float
    gap: float
    certificate: str
    n_points: int

    @property
    def estimated(self) -> bool:
        return self.standard_error > 0.0

    @property
    def sentence(self) -> str:
        """What is known, for a summary."""
        if self.certificate == "none":
            return f"{self.n_points} inducing points; nothing bounds what they cost under this likelihood"
        if self.estimated:
            how = f"an estimate from sampled rows, standard error {self.standard_error:.1g}"
        else:
            how = f"proved, by {self.certificate}"
        cost = f"{self.n_points} inducing points cost at most {self.bound:.3g} nats of elbo"
        return f"{cost} against the exact process ({how})"


def approximation_loss(solution: Solution, prior: InducingPoints, rng: Seed = 0) -> ApproximationLoss:
    """The bound for a fit of ``prior``, its gap included.

    Examples
    --------
    >>> import numpy as np
    >>> import fenchel
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters.inducing_loss import approximation_loss
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.priors import DenseCovariance, InducingPoints
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * X[:, 0])))
    >>> prior = InducingPoints(RBF(1.0), X, X[::10])
    >>> few = fenchel.infer(Poisson(), prior, y)
    >>> exact = fenchel.infer(Poisson(), DenseCovariance(RBF(1.0)(X)), y)
    >>> exact.elbo - few.elbo <= approximation_loss(few, prior).bound
    True
    """
    M, certificate, post = prior.rows.points.shape[0], solution.certificate, solution.posterior
    if certificate == "stationarity" or (certificate != "duality" and post.predictors.n_predictors > 1):
        return ApproximationLoss(np.inf, 0.0, np.inf, np.inf, solution.gap, "none", M)
    alpha, lam, gap = solution.alpha, solution.lam, max(0.0, solution.gap)
    if certificate == "duality":
        pairs = PairSums(prior, alpha)
        c = asarray(to_numpy(prior.extra_variance), lam)
        spreads = 0.5 * float(namespace(lam).sum(lam * c[:, None]))
    else:
        alpha, lam = post.alpha, post.lam
        pairs = PairSums(prior, alpha, lam[:, 0], to_numpy(post.latent_covariance()))
        spreads = 0.0
    total, error = pairs.total(np.random.default_rng(rng))
    means, more = 0.5 * max(0.0, float(total[0])), 0.5 * max(0.0, float(total[1]))
    spreads = spreads + more
    if certificate == "duality":
        return ApproximationLoss(means + spreads + gap, 0.5 * error, means, spreads, gap, certificate, M)
    bound = (np.sqrt(means + spreads) + np.sqrt(gap)) ** 2
    return ApproximationLoss(float(bound), 0.5 * error, means, spreads, gap, certificate, M)


class PairSums:
    """alpha' R alpha, and with ``lam`` and ``V`` sum_ij lam_i lam_j R_ij (K_ij + (G V G')_ij), over pairs of rows."""

    def __init__(
        self, prior: InducingPoints, alpha: Array, lam: Array | None = None, V: np.ndarray | None = None
    ) -> None:
        rows = prior.rows
        self.rows, self.kernel, self.X, self.level = rows, prior.kernel, rows.X, prior.level
        self.M, self.lam = rows.points.shape[0], lam
        xp = namespace(alpha)
        live = xp.sum(xp.abs(alpha), axis=1) + (0.0 if lam is None else lam)
        index = np.flatnonzero(to_numpy(live) != 0.0)  # rows without a site count for nothing
        take = asarray_rows(index, self.X)
        self.X, self.alpha = self.X[take], alpha[asarray_rows(index, alpha)]
        self.lam = None if lam is None else lam[asarray_rows(index, alpha)]
        self.c = to_numpy(prior.extra_variance)[index]
        self.n = len(index)
        self.design = prior.design.take(index) if self.n < rows.shape[0] else prior.design
        u = to_numpy(self.design.adjoint(self.alpha))[: self.M]
        self.weights, self.explained = u, float(np.sum(u * u))  # G' alpha, alpha' Q alpha
        self.V = None if V is None else asarray(V, alpha)

    def total(self, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """The two sums and the standard error of their sum."""
        work = 0.5 * self.n**2 * (1.0 if self.lam is None else 4.0 * self.M)
        if work <= (PAIRS if self.lam is None else DEAR_PAIRS):
            return self._every(), 0.0
        each = PAIRS / self.n if self.lam is None else DEAR_PAIRS / (4.0 * self.M * self.n)
        return self._drawn(int(max(FEWEST_DRAWS, each)), rng)

    # -- one block of pairs ------------------------------------------------------------------------
    def _kernel(self, some: Any, others: slice) -> Array:
        """K without the level: white noise of a row with itself included."""
        K = cross(self.kernel, self.X[some], self.X[others])
        first = to_numpy(np.arange(self.n)[some])
        inside = np.flatnonzero((first >= others.start) & (first < others.stop))
        if inside.size:
            own = variances(self.kernel, self.X[asarray_rows(first[inside], self.X)])
            K[inside, first[inside] - others.start] = own
        return K

    def _sums(self, some: Any, others: slice) -> Array:
        """Each row's part (n, 2) of the two sums, over the columns ``others``; of K in place of R without lam."""
        xp = namespace(self.alpha)
        K = self._kernel(some, others)
        if self.lam is None:
            first = xp.sum(self.alpha[some] * (K @ self.alpha[others]), axis=1)
            return xp.stack([first, 0.0 * first], axis=1)
        G, H = self._features(some), self._features(others)
        R = K - G[:, : self.M] @ H[:, : self.M].T
        first = xp.sum(self.alpha[some] * (R @ self.alpha[others]), axis=1)
        both = R * (K + self.level + (G @ self.V) @ H.T)
        return xp.stack([first, self.lam[some] * (both @ self.lam[others])], axis=1)

    def _features(self, some: Any) -> Array:
        return self.rows.of_cross(cross(self.kernel, self.X[some], self.rows.points))

    # -- all of them, or some ----------------------------------------------------------------------
    def _every(self) -> np.ndarray:
        """PairSums of blocks once, off the diagonal twice."""
        rows, columns = (_ROWS, _COLUMNS) if is_numpy(self.alpha) else (4096, 16384)

        def strip(start: int) -> np.ndarray:
            some, total = slice(start, min(self.n, start + rows)), np.zeros(2)
            edges = [start, some.stop, *range(some.stop + columns, self.n, columns), self.n]
            for i, j in pairwise(edges):
                if i < j:
                    part = self._sums(some, slice(i, j))
                    total += (1.0 if i == start else 2.0) * to_numpy(namespace(part).sum(part, axis=0))
            return total

        out = np.sum(self._parallel([partial(strip, i) for i in range(0, self.n, rows)]), axis=0)
        return np.asarray(out) - (np.array([self.explained, 0.0]) if self.lam is None else 0.0)

    def _parallel(self, tasks: list[Callable[[], np.ndarray]]) -> list[np.ndarray]:
        return side_by_side(tasks, cores()) if is_numpy(self.alpha) else [task() for task in tasks]

    def _drawn(self, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Rows drawn by how much they may say: |alpha_i| sqrt c_i, for (R alpha)_i^2 <= c_i alpha' R alpha."""
        size = np.abs(to_numpy(self.alpha)).sum(axis=1) + (0.0 if self.lam is None else to_numpy(self.lam))
        p = size * np.sqrt(self.c) + 1e-12 * size.mean()
        p = p / p.sum()
        index = rng.choice(self.n, size=draws, p=p)
        whole = [slice(i, min(self.n, i + _COLUMNS)) for i in range(0, self.n, _COLUMNS)]

        def strip(some: np.ndarray) -> np.ndarray:
            return np.asarray(sum(to_numpy(self._sums(asarray_rows(some, self.X), others)) for others in whole))

        parts = [index[i : i + _ROWS] for i in range(0, draws, _ROWS)]
        each = np.concatenate(self._parallel([partial(strip, some) for some in parts]))
        if self.lam is None:  # less alpha_i (Q alpha)_i
            u = asarray(self.weights, self.alpha)
            for part, some in zip(parts, np.split(each, np.cumsum([len(x) for x in parts])[:-1]), strict=True):
                G = self._features(asarray_rows(part, self.X))[:, : self.M]
                some[:, 0] -= np.sum(to_numpy(self.alpha)[part] * to_numpy(G @ u), axis=1)
        value = each / p[index, None]
        return value.mean(axis=0), float(value.sum(axis=1).std(ddof=1) / np.sqrt(draws))


def asarray_rows(index: np.ndarray, like: Array) -> Any:
    """Row numbers as ``like`` indexes by them."""
    return index if is_numpy(like) else namespace(like).asarray(index, device=like.device)
