"""What inducing points cost: an upper bound on the elbo of the exact process less that of its M points.

The dual variables (alpha, lam) of the sparse fit are feasible for the exact process, and log|I + Lam^1/2 K Lam^1/2| is
at least that of Q <= K. With R = K - Q, c = diag R and the gap of the sparse fit,

    duality            elbo*_exact - elbo_M <= 1/2 alpha' R alpha + 1/2 (lam' c - d) + gap,   d = 0

It needs every pair of rows once: N^2 / 2 kernel evaluations, in blocks, on every core, without memory. Where that is
too much, rows i are drawn with probabilities p_i and sum_i t_i / p_i is an unbiased estimate, with its standard error.

Up to some rows d is the difference of the two log determinants, log|I + A| with A = S^1/2 Lam^1/2 R Lam^1/2 S^1/2 and
S = I - Lam^1/2 V_Q Lam^1/2, or nearly: log(1 + x) / x is convex, so that with E = (Lam - Lam V_Q Lam) R

    log|I + A| >= (t_1^2 / t_2) log(1 + t_2 / t_1),        t_1 = tr E,   t_2 = tr E^2

for some 4 N^2 M multiplications. Points that explain nearly all rows then have a bound near the loss itself.
Bounds without a dual (the exact logit) have strong concavity's in its place: ``inducing_concavity.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
DEVICE_PAIRS = 1e12  # the same on a device
WORK = 2e12  # multiplications up to which R is multiplied with the features: a minute on two cores
DEVICE_WORK = 5e14  # the same on a device: some 10 seconds
FEWEST_DRAWS = 400  # rows that an estimate is made of, at least
_ROWS, _COLUMNS = 256, 1024  # of a block of pairs: it stays in cache
_DEVICE_BLOCK = 4096, 16384  # the same on a device


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
    certificate : "duality", "strong-concavity", "none" or "interrupted"
    n_points : int
    """

    bound: float
    standard_error: float
    means: float
    spreads: float
    gap: float
    certificate: str
    n_points: int

    @classmethod
    def unknown(cls, n_points: int, gap: float, why: str = "interrupted") -> ApproximationLoss:
        """Where nothing bounds the loss, or nobody has looked."""
        return cls(np.inf, 0.0, np.inf, np.inf, gap, why, n_points)

    @property
    def estimated(self) -> bool:
        return self.standard_error > 0.0

    @property
    def sentence(self) -> str:
        """What is known, for a summary."""
        if self.certificate == "none":
            return f"{self.n_points} inducing points; nothing bounds what they cost under this likelihood"
        if self.certificate == "interrupted":
            return f"{self.n_points} inducing points; the fit was interrupted before a bound said what they cost"
        if self.estimated:
            how = f"an estimate from sampled rows, standard error {self.standard_error:.1g}"
        else:
            how = f"proved, by {self.certificate}"
        cost = f"{self.n_points} inducing points cost at most {self.bound:.3g} nats of elbo"
        return f"{cost} against the exact process ({how})"


def approximation_loss(
    solution: Solution,
    prior: InducingPoints,
    rng: Seed = 0,
    enough: float = 0.0,
    alone: bool = True,
    hopeless: float = np.inf,
) -> ApproximationLoss:
    """The bound for a fit of ``prior``, its gap included.

    One below ``enough`` nats is not made smaller by more work, nor one above ``hopeless``. The process may be one of
    several parts of eta; where it is not ``alone``, nothing bounds it without a dual.

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
    >>> bool(exact.elbo - few.elbo <= approximation_loss(few, prior).bound)
    True
    """
    M, certificate, post = prior.rows.points.shape[0], solution.certificate, solution.posterior
    gap = max(0.0, solution.gap)
    several = post.predictors.n_predictors > 1 or not alone
    if certificate == "stationarity" or (certificate != "duality" and several):
        return ApproximationLoss.unknown(M, gap, "none")
    if certificate != "duality":
        from .inducing_concavity import concavity_loss

        return concavity_loss(solution, prior, rng, enough, hopeless)
    sums, lam = PairSums(prior, solution.alpha, solution.lam), solution.lam
    total, error = sums.quadratic(np.random.default_rng(rng))
    means = 0.5 * max(0.0, total)
    c = asarray(to_numpy(prior.extra_variance), lam)
    spreads = 0.5 * float(namespace(lam).sum(lam * c[:, None]))
    worth = not error and enough < means + spreads + gap <= hopeless
    if alone and worth and sums.is_affordable(lam.shape[1]):
        spreads -= 0.5 * min(2.0 * spreads, sums.log_determinants(lam, post.latent_covariance()))
    return ApproximationLoss(means + spreads + gap, 0.5 * error, means, spreads, gap, certificate, M)


class PairSums:
    """Sums over pairs of rows that have a site: alpha' R alpha, and blocks of K and R for others.

    Attributes
    ----------
    index : the rows
    X, alpha, c : their inputs, sites and remainders
    design : their features
    """

    def __init__(self, prior: InducingPoints, alpha: Array, lam: Array) -> None:
        rows = prior.rows
        self.rows, self.kernel, self.M = rows, prior.kernel, rows.points.shape[0]
        sites = to_numpy(alpha).any(axis=1) | to_numpy(lam).any(axis=1)
        self.index = np.flatnonzero(sites)  # others count for nothing
        self.n = len(self.index)
        self.X, self.alpha = (x[asarray_rows(self.index, x)] for x in (rows.X, alpha))
        self.c = to_numpy(prior.extra_variance)[self.index]
        self.design = prior.design.take(self.index) if self.n < rows.shape[0] else prior.design

    def quadratic(self, rng: np.random.Generator) -> tuple[float, float]:
        """alpha' R alpha, and its standard error where pairs are too many."""
        u = to_numpy(self.design.adjoint(self.alpha))[: self.M]
        if 0.5 * self.n**2 <= (PAIRS if is_numpy(self.alpha) else DEVICE_PAIRS):
            return self.every_pair(self._products)[0] - float(np.sum(u * u)), 0.0
        return self._drawn(u, int(max(FEWEST_DRAWS, PAIRS / self.n)), rng)

    def kernel_block(self, some: Any, others: slice) -> Array:
        """K without the trend: white noise of a row with itself included."""
        K = cross(self.kernel, self.X[some], self.X[others])
        numbers = np.arange(some.start, some.stop) if type(some) is slice else to_numpy(some)
        inside = np.flatnonzero((numbers >= others.start) & (numbers < others.stop))
        if inside.size:
            own = numbers[inside]
            K[inside, own - others.start] = variances(self.kernel, self.X[asarray_rows(own, self.X)])
        return K

    def _products(self, some: slice, others: slice) -> Array:
        K, xp = self.kernel_block(some, others), namespace(self.alpha)
        return xp.sum(self.alpha[some, :] * (K @ self.alpha[others, :]), axis=(0, 1))[None]

    def every_pair(self, sums: Callable[[slice, slice], Array]) -> np.ndarray:
        """``sums`` of every pair of blocks once, those off the diagonal twice, added up."""
        rows, columns = (_ROWS, _COLUMNS) if is_numpy(self.alpha) else _DEVICE_BLOCK

        def strip(start: int) -> Any:
            some = slice(start, min(self.n, start + rows))
            edges = sorted({start, some.stop, *range(some.stop + columns, self.n, columns), self.n})
            pairs = pairwise(edges)
            return sum((1.0 if i == start else 2.0) * sums(some, slice(i, j)) for i, j in pairs)

        return to_numpy(sum(self.in_parallel([partial(strip, i) for i in range(0, self.n, rows)])))

    def is_affordable(self, n_predictors: int) -> bool:
        """Whether R may be multiplied with the features."""
        most = WORK if is_numpy(self.alpha) else DEVICE_WORK
        return 4.0 * n_predictors * float(self.n) ** 2 * self.M <= most

    def remainder_products(self, lam: Array, G: Array, V: Array) -> tuple[Array, Array, float]:
        """J = R Lam G, H = G' Lam J and tr(E^2), E = (Lam - Lam V_Q Lam) R, for lam (n,), features G and V of q."""
        points, weighted, xp = G[:, : self.M], lam[:, None] * G, namespace(G)
        J = xp.zeros_like(G)
        rows, columns = (_ROWS, _COLUMNS) if is_numpy(G) else _DEVICE_BLOCK

        def strip(start: int) -> float:
            some, square = slice(start, min(self.n, start + rows)), 0.0
            mine = J[some, :]
            for i in range(0, self.n, columns):
                others = slice(i, min(self.n, i + columns))
                R = self.kernel_block(some, others)
                R -= points[some, :] @ points[others, :].T
                mine += R @ weighted[others, :]
                square += float(lam[some] @ (R * R @ lam[others]))
            return square

        squares = float(sum(self.in_parallel([partial(strip, i) for i in range(0, self.n, rows)])))
        H = weighted.T @ J
        squares += float(xp.sum((V @ H) * (V @ H).T)) - 2.0 * float(xp.sum(V * (J.T @ (lam[:, None] * J))))
        return J, H, max(0.0, squares)

    def log_determinants(self, lam: Array, V: Array) -> float:
        """A number below log|I + A|, summed over predictors: lam (N, C), V (L, L) or (C, L, L)."""
        G, c, total = self.design.toarray(), asarray(self.c, lam), 0.0
        own = lam[asarray_rows(self.index, lam)]
        for k in range(own.shape[1]):
            covariance = V if V.ndim == 2 else V[k, :, :]
            _, H, second = self.remainder_products(own[:, k], G, covariance)
            first = float(own[:, k] @ c) - float(namespace(V).sum(covariance * H))
            if first > 0.0 and second > 0.0:
                total += first**2 / second * float(np.log1p(second / first))
        return total

    def in_parallel(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """On every core, or one after the other on a device."""
        return side_by_side(tasks, cores()) if is_numpy(self.alpha) else [task() for task in tasks]

    def _drawn(self, u: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[float, float]:
        """Rows drawn by how much they may say: |alpha_i| sqrt c_i, for (R alpha)_i^2 <= c_i alpha' R alpha."""
        size = np.abs(to_numpy(self.alpha)).sum(axis=1)
        if not size.any():
            return 0.0, 0.0
        p = size * np.sqrt(self.c) + 1e-12 * size.mean()
        p = p / p.sum()
        drawn = rng.choice(self.n, size=draws, p=p)
        everyone = [slice(i, min(self.n, i + _COLUMNS)) for i in range(0, self.n, _COLUMNS)]
        inner = asarray(u, self.alpha)

        def strip(some: np.ndarray) -> np.ndarray:
            at = asarray_rows(some, self.X)
            G = self.rows.of_cross(cross(self.kernel, self.X[at], self.rows.points), self.X[at])[:, : self.M]
            left = -(G @ inner)  # R alpha = K alpha - G (G' alpha)
            for others in everyone:
                left = left + self.kernel_block(at, others) @ self.alpha[others]
            return to_numpy(namespace(left).sum(self.alpha[at] * left, axis=1))

        parts = [partial(strip, drawn[i : i + _ROWS]) for i in range(0, draws, _ROWS)]
        each = np.concatenate(self.in_parallel(parts)) / p[drawn]
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(draws))


def asarray_rows(index: np.ndarray, like: Array) -> Any:
    """Row numbers as ``like`` indexes by them."""
    return index if is_numpy(like) else namespace(like).asarray(index, device=like.device)
