"""Multinomial-logit: p(y|eta) = e^{eta_y} / sum_k e^{eta_k}, labels 0, ..., K-1.

    reference="last"  K-1 predictors, eta_{K-1} = 0 (the paper's);   reference=None  K symmetric predictors
    c_h = -y (one-hot),  a_h = 1,  phi(s) = log(1 + sum_k e^{s_k})  or  log sum_k e^{s_k}
    k(tau) = sum_k tau_k log tau_k + (1-t) log(1-t),  t = sum_k tau_k     (tab:fenchelDual prints t log t)
    "log-sum"  lam_k = tau_k               (Blei and Lafferty; Braun and McAuliffe)
    "tilted"   lam_k = tau_k (1 - tau_k)   (Knowles and Minka), valid for predictors independent under q
    "exact"    f = E[-log p] itself, where the predictors of a row may be correlated under q (softmax_exact.py)

J = dtau/ds = diag(tau) - tau tau' couples the predictors of one observation, and 1 - t is its slack.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from ..checks import choice, count, labels
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, is_numpy, namespace
from ..linalg.functions import log_mean_exp_excess
from .base import Likelihood, Rows, column
from .bounds import Bound, Bounds, ConvexBound, Domain, Site, is_short
from .softmax_exact import ExactSoftmax
from .softplus_bounds import tilted_maximiser

MOST_DRAWS = 1 << 20  # points of a prediction: the error of its average is then some 1e-6
_NARROW = 0.01  # a variance up to which the curvature of a softmax gives its mean to 1e-5


class SoftmaxBound(ConvexBound):
    """A bound of the softmax without its curve lam(tau), which subclasses give."""

    coupled = True

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__(likelihood)
        self.layout = tuple(range(self.likelihood.n_predictors))
        self.domain = Domain(lower=0.0, total=1.0, exactly=self.likelihood.reference is None)

    @abstractmethod
    def curve(self, tau: Array) -> tuple[Array, Array, Array]:
        """lam, lam' and lam'' of each class."""

    def signs(self, rows: Rows) -> Array:
        return 1.0 + 0.0 * rows["hot"][:, : self.likelihood.n_predictors]

    def site(self, s: Array, rows: Rows) -> Site:
        xp, own, C = namespace(s), self.likelihood, self.likelihood.n_predictors
        full = own._complete(s)
        p, log_total = own._softmax(full)
        k = xp.sum(p * (full - log_total[:, None]), axis=1)  # sum p log p
        tau = p[:, :C]
        slack = xp.zeros_like(tau[:, 0]) if own.reference is None else p[:, C]
        lam, slope, bend = self.curve(tau)
        return Site(tau, tau - rows["hot"][:, :C], lam, slope, bend, k, tau, slack)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        xp = namespace(tau)
        if self.likelihood.reference is None:
            return xp.log(tau)
        return xp.log(tau) - xp.log1p(-xp.sum(tau, axis=1, keepdims=True))

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        own = self.likelihood
        full = own._complete(s)
        return log_mean_exp_excess(own._softmax(full)[0], own._complete(s_hat) - full)

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        xp, own = namespace(s), self.likelihood
        p = own._softmax(own._complete(s))[0][:, : own.n_predictors]
        mean = xp.sum(p * ds, axis=1, keepdims=True)
        if not is_short(ds - mean, mean):
            return None
        common = mean if own.reference is None else -xp.log1p(-mean)  # a reference class stays at s = 0
        return s + xp.log1p(ds - mean) + common

    def start(self, rows: Rows, shrink: float) -> Array:
        xp, hot = namespace(rows["hot"]), rows["hot"]
        log_p = xp.log(hot + shrink * (1.0 / self.likelihood.n_classes - hot))
        return log_p if self.likelihood.reference is None else log_p[:, :-1] - log_p[:, -1:]


class LogSumSoftmax(SoftmaxBound):
    """lam = tau: the paper's."""

    def curve(self, tau: Array) -> tuple[Array, Array, Array]:
        xp = namespace(tau)
        return tau, xp.ones_like(tau), xp.zeros_like(tau)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        return h + rho / 2


class TiltedSoftmax(SoftmaxBound):
    """lam = tau (1 - tau)."""

    curved = True
    needs_independent_predictors = True

    def curve(self, tau: Array) -> tuple[Array, Array, Array]:
        return tau * (1.0 - tau), 1.0 - 2.0 * tau, -2.0 * namespace(tau).ones_like(tau)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        return tilted_maximiser(h, rho, reference=self.likelihood.reference is not None)

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array:
        return (tau_hat - tau) ** 2


class MultinomialLogit(Likelihood):
    """One of K unordered classes: ``P(y = k)`` is proportional to ``exp(eta[k])`` (softmax).

    Parameters
    ----------
    n_classes : int
    reference : {"last", None}
        ``"last"`` fixes the predictor of the last class at 0 and has K-1 predictors; ``None`` has K predictors.
    bound : {"best", "log-sum", "tilted", "exact"}
        "log-sum" (the paper's) and "tilted" (tighter) are convex problems with a duality gap. "exact" integrates the
        log-likelihood by a fixed rule, with a strong-concavity certificate, and its variances are marginal.
    n_draws : int
        Number of points that average the predictive distribution: scrambled Sobol points, seeded by ``rng`` (default
        0). They fill space evenly, so far fewer are needed than of random draws.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import MultinomialLogit
    >>> MultinomialLogit(3).predictive_probabilities(np.zeros((1, 2)), np.zeros((1, 2))).round(12)
    array([[0.33333333, 0.33333333, 0.33333333]])
    """

    bounds: ClassVar[Bounds] = {"log-sum": LogSumSoftmax, "tilted": TiltedSoftmax, "exact": ExactSoftmax}
    support = "levels"

    def __init__(
        self, n_classes: int, reference: str | None = "last", bound: str | type[Bound] = "best", n_draws: int = 1024
    ) -> None:
        self._choose(bound)
        choice(self.name, "reference", reference, ("last", None))
        self.n_classes, self.reference = count(self.name, "n_classes", n_classes, 2), reference
        self.n_draws = count(self.name, "n_draws", n_draws, 1, MOST_DRAWS)
        self.n_levels, self.n_predictors = self.n_classes, self.n_classes - (reference == "last")

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, self.n_classes)
        hot = np.where(np.isnan(y), self.n_classes - 1, y)[:, None] == np.arange(self.n_classes)[None, :]
        return {"hot": hot.astype(np.float64)}

    def _complete(self, s: Array) -> Array:
        """All K coordinates (..., K): the reference's 0 appended."""
        xp = namespace(s)
        return s if self.reference is None else xp.concat([s, xp.zeros_like(s[..., :1])], axis=-1)

    @staticmethod
    def _softmax(s: Array) -> tuple[Array, Array]:
        """Probabilities and the log-normaliser over the last axis."""
        xp = namespace(s)
        top = xp.max(s, axis=-1, keepdims=True)
        e = xp.exp(s - top)
        total = xp.sum(e, axis=-1, keepdims=True)
        return e / total, (top + xp.log(total))[..., 0]

    def log_density(self, eta: Array, rows: Rows) -> Array:
        xp = namespace(eta)
        full = self._complete(xp.permute_dims(eta, (0, 2, 1)))  # (N, M, K)
        log_total = self._softmax(full)[1]
        return xp.sum(full * rows["hot"][:, None, :], axis=2) - log_total

    def _draws(self, rng: Seed, like: Array) -> Array:
        """Standard normal points (n_draws, C) that fill space evenly, the same for every row."""
        from scipy.special import ndtri
        from scipy.stats import qmc

        power = max(0, int(np.ceil(np.log2(max(self.n_draws, 1)))))
        points = qmc.Sobol(self.n_predictors, rng=np.random.default_rng(0 if rng is None else rng)).random_base2(power)
        return asarray(ndtri(np.clip(points, 1e-12, 1.0 - 1e-12)), like)

    def predictive_probabilities(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = column(h), column(rho)
        if rho.ndim == 3:
            return self._drawn_probabilities(h, rho, rng)
        out, xp, narrow = self._narrow_probabilities(h, rho), namespace(h), rho <= _NARROW
        wide = ~xp.all(narrow, axis=1)
        if not bool(xp.any(wide)):
            return out
        if not is_numpy(h):
            return xp.where(wide[:, None], self._drawn_probabilities(h, rho, rng), out)
        out[wide] = self._drawn_probabilities(h[wide], rho[wide], rng)
        return out

    def _drawn_probabilities(self, h: Array, rho: Array, rng: Seed) -> Array:
        xp = namespace(h)
        draws, parts = self._draws(rng, h), []
        if rho.ndim == 3:  # correlated predictors: a root of each covariance
            values, vectors = xp.linalg.eigh(rho)
            root = vectors * xp.sqrt(xp.where(values > 0.0, values, 0.0))[:, None, :]
            root = root @ xp.permute_dims(vectors, (0, 2, 1))  # symmetric, so that the signs do not count
        step = max(1, 2_000_000 // (draws.shape[0] * self.n_classes))
        for i in range(0, h.shape[0], step):
            stop = min(h.shape[0], i + step)
            if rho.ndim == 3:
                noise = draws[None, :, :] @ xp.permute_dims(root[i:stop, :, :], (0, 2, 1))
            else:
                noise = xp.sqrt(rho[i:stop, None, :]) * draws[None, :, :]
            eta = h[i:stop, None, :] + noise
            parts.append(xp.mean(self._softmax(self._complete(eta))[0], axis=1))
        return xp.concat(parts, axis=0)

    def _narrow_probabilities(self, h: Array, rho: Array) -> Array:
        """E[p] = p + 1/2 sum_c rho_c d2p/dh_c^2: for small variances closer than any number of draws."""
        xp, C = namespace(h), self.n_predictors
        p = self._softmax(self._complete(h))[0]
        change = -xp.sum(rho * p[:, :C] * (1.0 - 2.0 * p[:, :C]), axis=1, keepdims=True) + xp.zeros_like(p)
        own = rho * (1.0 - 2.0 * p[:, :C])  # d2p_k/dh_c^2 = p_k ((k == c)(1 - 2 p_c) - p_c (1 - 2 p_c))
        change = change + (own if self.reference is None else xp.concat([own, xp.zeros_like(own[:, :1])], axis=1))
        return p * (1.0 + 0.5 * change)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """The class probabilities (N, K): the mean of the one-hot target."""
        return self.predictive_probabilities(h, rho, rng)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        p = self.predictive_probabilities(h, rho, rng)
        return p * (1.0 - p)

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        """Monte Carlo: accurate where the class has some probability, a rough bound where it has next to none.

        ``rho``: variances (N, C), or covariances (N, C, C) of correlated predictors.
        """
        xp, h = namespace(h), column(h)
        rows = self.rows_for(y, h)
        p = xp.sum(self.predictive_probabilities(h, rho, rng) * rows["hot"], axis=1)
        out = xp.log(xp.where(p > 0.0, p, 5e-324))
        return xp.where(rows["weight"] > 0, out, xp.nan)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[MultinomialLogit, np.ndarray]:
        reference = [None, "last"][int(rng.integers(2))]
        return cls(3, reference, str(rng.choice(list(cls.bounds)))), rng.integers(0, 3, n).astype(float)
