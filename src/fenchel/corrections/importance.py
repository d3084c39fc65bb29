"""Importance sampling from q, Pareto-smoothed: evidence and marginals that are exact in the limit of many draws.

q is the prior times one Gaussian site for each observation, so that with d = W (z - m)

    log p(z)/q(z) = -1/2 (log|B| + alpha' S alpha) + sum_n (alpha_n d_n + lam_n d_n^2 / 2)

for any prior and whatever bound q was fitted under. Only draws of d are needed, and not the density of z, which an
intrinsic prior does not have. Three draws in ten come from q with weaker sites, c lam, at the same mean (``MIXTURE``);
without these wider tails the weight of a single row may dominate. With g_c = 1/2 log|B_c| - c sum_n lam_n d_n^2 / 2,

    mixture/p = e^{alpha' S alpha / 2 - alpha' d} sum_c share_c e^{g_c}
    w = p(y | h + d) p / mixture,   v = e^{g_1} / sum_c share_c e^{g_c},   log p(y) = log E[w] - log E[v]

where E[v] = 1, and v is a control variate for w; for a Gaussian likelihood it removes all of the error. Observations
whose log-likelihood is linear (no curvature) add a constant.

Pareto smoothing of the weights:

Let u be the weight below the largest ones. The exceedances w - u have approximately a generalised Pareto distribution

    P(w - u > x) = (1 + k x / sigma)^(-1/k)

Its moments of order 1/k and more do not exist; with k near 1 even the mean of the weights does not. It is fitted by the
profile posterior mean of theta = -k / sigma (Zhang and Stephens 2009), with theta_j on a grid of m points,

    k(theta) = mean log(1 - theta x),    l(theta) = n [log(-theta / k(theta)) - k(theta) - 1]
    theta_j = 1/x_n + (1 - sqrt(m / (j - 1/2))) / (3 x_q),   x_q the lower quartile

and k is shrunk toward 1/2 with the weight of ten observations. If k is above 1/2, the variance of the weights does not
exist, and the largest weights are replaced by quantiles of the fitted distribution, at most the largest weight
(Vehtari, Simpson, Gelman, Yao and Gabry 2024, who do so at any k). With a smaller k quasi-random draws are better
without smoothing. If no weight is ten times the mean, there is no tail to fit: the weights of a mixture are bounded,
and the largest lie close to the bound.
"""

from __future__ import annotations

from typing import NoReturn, Self

import numpy as np
from scipy.special import logsumexp

from ..checks import count, problem
from ..files import Stored
from ..likelihoods.base import Likelihood, slice_rows
from ..linalg.arrays import Seed, to_numpy
from ..marginals import AnswersAtNewRows
from ..predictive import Predictive
from ..priors.base import NewRows
from .draws import COPIES, Draws, WeightedMarginals
from .sites import GaussianFit, contradicted, counted
from .spaces import space_of
from .states import MIXTURE, States, Unknowns, in_observations

_CACHE = 1 << 15  # numbers in a block, so that temporaries stay in cache
MOST_DRAWS = 1 << 22  # largest number of draws
TRUSTED = 0.7  # k-hat up to which the smoothed weights are reliable
_FINITE = 0.5  # k-hat up to which the weights have a variance
_EQUAL = 1e-9  # weights whose differences, relative to the largest, are smaller are constant
_MODEST = 10.0  # if all weights are below so many times the mean, no tail is fitted
_FEWEST = 5  # fewest weights of a tail
_FAR = 4.0  # standard errors outside of proved bounds at which an estimate is rejected


class ImportanceSample(Stored, WeightedMarginals, AnswersAtNewRows[WeightedMarginals]):
    """Weighted draws of the posterior, with the marginals of eta at the observations, in numpy.

    Attributes
    ----------
    log_evidence : float
        Estimate of log p(y) with all constants. It is not a bound.
    log_evidence_se : float
        Its standard error, from independent copies of the draws.
    k_hat : float
        Shape of the tail of the weights. Above 0.7 the results are unreliable, including the standard error.
    effective_draws : float
        1 / sum w^2.
    n_draws : int
        Number of draws.
    trusted : bool
        Whether k_hat <= 0.7 and the estimate agrees with proved bounds.
    status : str
        A sentence that says why the sample is reliable or not.
    weights : array (2, n_draws / 2)
        Normalised and smoothed weights; the second row belongs to the mirror images of the first.
    """

    method = "importance"
    leaves_one_out = False  # whether ``loo()`` is available
    carries = False  # whether it can be interpolated between theta
    like = "importance", None  # method and sizes for a correction at a nearby theta
    lower_bound = -np.inf  # an average of draws is not a bound on log p(y)

    def __init__(self, fit: GaussianFit, draws: int = 4096, rng: Seed = 0) -> None:
        self._because, self._likelihood, self.elbo, self._fit = "", fit.likelihood, fit.elbo, fit
        n = count("importance", "draws", draws, 1, MOST_DRAWS)
        post = fit.posterior
        self._space = space_of(post)
        extra = np.broadcast_to(to_numpy(post.extra_variance), tuple(post.predictors.mt.shape))
        scale = np.sqrt(extra) if extra.any() else None
        made = Draws(self._space, n, generator(rng), 0 if scale is None else scale.size)
        raw, base = log_weights(fit, made, scale)
        smooth, self.k_hat = smoothed(raw.ravel())
        top = smooth.max()
        each = np.exp(smooth - top).reshape(raw.shape)
        self.log_evidence = float(top + np.log(each.mean()) - np.log(base.mean()))
        self.log_evidence_se = _standard_error(each, base, COPIES if made.quasi else made.n_pairs)
        weights = each / each.sum()
        super().__init__(made, self._space.eta(), weights, 0.5 * base / base.sum(), scale)
        self.effective_draws, self.n_draws = float(1.0 / np.sum(weights**2)), made.n

    @property
    def marginals_trusted(self) -> bool:
        """The same as ``trusted``, because marginals and evidence use the same weights."""
        return self.trusted

    def loo(self) -> NoReturn:
        """Not available from draws, because each observation left out needs its own weights with their own tail."""
        raise problem("importance", "loo() was asked of draws", "Solution.loo(), by q, or corrected marginals' loo()")

    def as_solution(self) -> None:
        """None, because the gradient of ``log_evidence`` is not known."""
        return None

    def instead_of(self, reason: str) -> Self:
        """The same object, whose status says why it replaces an expansion."""
        self._because = reason
        return self

    @property
    def nearer(self) -> bool:
        """Whether ``log_evidence`` is closer to log p(y) than the elbo: if the weights can be trusted."""
        return self.trusted

    @property
    def trusted(self) -> bool:
        return bool(self.k_hat <= TRUSTED) and self._contradicted is None

    @property
    def _contradicted(self) -> str | None:
        return contradicted(self._fit, self.log_evidence, _FAR * self.log_evidence_se)

    @property
    def status(self) -> str:
        text = f"k-hat is {self.k_hat:.2f}, {self.effective_draws:.0f} effective of {self.n_draws} draws"
        text += f"; importance sampling, because {self._because}" if self._because else ""
        if self._contradicted is not None:
            return self._contradicted
        if self.trusted:
            return f"reliable: {text}"
        return f"not reliable: {text}; a few draws dominate, because q is too far from the posterior"

    def predictive(self, likelihood: Likelihood | None = None) -> Predictive:
        """y at the observations: means, probabilities, quantiles, densities; ``at(...).predictive`` at new rows."""
        return super().predictive(self._likelihood if likelihood is None else likelihood)

    def latents(self) -> WeightedMarginals:
        """The marginals of z."""
        return WeightedMarginals(self._draws, self._space.latents(), self.weights, self._base)

    def marginals_at(self, new: NewRows) -> WeightedMarginals:
        """The marginals of eta at new rows."""
        return WeightedMarginals(self._draws, self._space.at(new), self.weights, self._base)

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of eta, resampled by their weights: (size, N) or (size, N, C)."""
        states, extra, rng = self._resampled("importance.sample", size, rng)
        d = self._space.joint_eta(states, rng)
        if self._scale is not None:
            d = d + in_observations(self._scale.ravel()[:, None] * extra, d.shape)
        eta = self._unknowns.mean.reshape(d.shape[:2])[None] + np.moveaxis(d, 2, 0)
        return eta.reshape(eta.shape[0], *self._unknowns.mean.shape)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of z, resampled by their weights: (size, L) or (size, L, C)."""
        states, _, rng = self._resampled("importance.sample_latents", size, rng)
        z = self._space.joint_latents(states, rng)
        d = z[0].T if len(z) == 1 else np.stack(z, axis=1).transpose(2, 0, 1)
        mean = to_numpy(self._space.posterior.latent_mean)
        return mean[None] + d.reshape(d.shape[0], *mean.shape)

    def _resampled(self, where: str, size: int, rng: Seed) -> tuple[States, np.ndarray, np.random.Generator]:
        """States and extra normals of ``size`` draws, chosen by their weights."""
        rng, size, n = generator(rng), count(where, "size", size), self._draws.n_pairs
        chosen = rng.choice(2 * n, size, p=self.weights.ravel())
        sign, pair = np.where(chosen < n, 1.0, -1.0), chosen % n
        out: list[np.ndarray] | None = None
        for part, states, extra in self._draws.chunks():
            parts = [*states, extra]
            out = [np.empty((x.shape[0], size)) for x in parts] if out is None else out
            within = np.flatnonzero((pair >= part.start) & (pair < part.stop))
            for x, y in zip(out, parts, strict=True):
                x[:, within] = sign[within] * y[:, pair[within] - part.start]
        assert out is not None
        return out[:-1], out[-1], rng

    def __repr__(self) -> str:
        return (
            f"ImportanceSample(log_evidence={self.log_evidence:.4f} +- {self.log_evidence_se:.2g}, "
            f"k_hat={self.k_hat:.2f}{'' if self.trusted else ', NOT RELIABLE'}, {self.n_draws} draws)"
        )


def importance(solution: GaussianFit, draws: int = 4096, rng: Seed = 0) -> ImportanceSample:
    """Pareto-smoothed importance sampling from the q of a fit.

    Parameters
    ----------
    solution : Solution
        The result of ``infer``, under any bound and any prior.
    draws : int, default 4096
        Least number of draws; it is rounded up to a multiple of 32.
    rng : numpy Generator or seed
        The same seed gives the same answer.

    Examples
    --------
    >>> import numpy as np
    >>> import fenchel
    >>> from fenchel.likelihoods import Gaussian
    >>> from fenchel.priors import DenseCovariance
    >>> sol = fenchel.infer(Gaussian(0.5), DenseCovariance(np.eye(2)), [1.0, -1.0])
    >>> found = sol.importance(64)
    >>> bool(abs(found.log_evidence - sol.elbo) < 1e-9), found.trusted
    (True, True)
    """
    return ImportanceSample(solution, draws, rng)


class RowDensities:
    """Weighted log-likelihoods of the observations: log p(y_n | eta_n) times the weight of each."""

    def __init__(self, fit: GaussianFit, index: np.ndarray) -> None:
        rows = {key: to_numpy(x) for key, x in fit._rows.items()}
        self.likelihood, self.rows = fit.likelihood, slice_rows(rows, index)
        self.times = counted(fit)[index]

    def log_likelihood(self, eta: np.ndarray, some: slice = slice(None)) -> np.ndarray:
        """Weighted log p of some observations (n, K) at eta (n, C, K); 0 where y is unobserved."""
        times = self.times[some, None]
        with np.errstate(over="ignore", invalid="ignore"):
            at = eta[:, 0] if self.likelihood.n_predictors == 1 else eta
            each = times * self.likelihood.log_density(at, slice_rows(self.rows, some))
        return np.where(times > 0.0, each, 0.0)


def log_weights(fit: GaussianFit, draws: Draws, scale: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """log w of the draws and of their mirror images (2, pairs), and v (pairs,), which is the same for both."""
    post = fit.posterior
    active, log_dets = post.active, np.array(draws.space.log_dets)
    alpha, h = (to_numpy(x)[active][:, :, None] for x in (post.alpha, post.moments[0]))
    lam = to_numpy(post.lam)[active][:, :, None] if post.curvatures is None else post.curvatures[active]
    observed, sites = RowDensities(fit, active), [alpha, lam, h]
    seen = Unknowns(draws.space.active(), h.ravel(), h.ravel())
    out, base = np.empty((2, draws.n_pairs)), np.empty(draws.n_pairs)
    strength, share = (np.array(x)[:, None] for x in zip(*MIXTURE, strict=True))
    for part, states, extra in draws.chunks():
        d = in_observations(seen.deviations(states), h.shape)
        beyond = None if scale is None else in_observations(scale.ravel()[:, None] * extra, scale.shape)[active]
        total, bend = _against_q(observed, sites, d, beyond)
        wider = 0.5 * (log_dets - log_dets[0])[:, None] + (1.0 - strength) * bend
        mixed = logsumexp(wider, axis=0, b=share)
        base[part] = np.exp(-mixed)
        out[:, part] = np.where(np.isnan(total), -np.inf, total) - mixed
    return out + log_constant(fit, scale), base


def _against_q(
    observed: RowDensities, sites: list[np.ndarray], d: np.ndarray, beyond: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """sum_n log p(y_n | h_n +- d_n) +- alpha_n d_n + lam_n d_n^2 / 2 (2, K), and the sum of the last term (K,).

    Observations are processed in blocks that stay in cache.
    """
    n, C, K = d.shape
    total, bend = np.zeros((2, K)), np.zeros(K)
    step = max(1, _CACHE // (C * K))
    for i in range(0, n, step):
        some = slice(i, min(i + step, n))
        alpha, lam, h = (x[some] for x in sites)
        own = d[some]
        moved = own if beyond is None else own + beyond[some]
        bent = lam * own if lam.shape[2] == 1 else lam @ own  # curvatures are diagonal, or a block for each row
        line, square = np.sum(alpha * own, axis=1), 0.5 * np.sum(bent * own, axis=1)
        bend += square.sum(axis=0)
        for k, sign in enumerate((1.0, -1.0)):
            total[k] += np.sum(observed.log_likelihood(h + sign * moved, some) + sign * line + square, axis=0)
    return total, bend


def log_constant(fit: GaussianFit, scale: np.ndarray | None) -> float:
    """-1/2 (log|B| + alpha' S alpha), plus the log-likelihood of the observations without curvature."""
    post = fit.posterior
    everyone, weights = post.predictors, post.weights
    if weights is not None:
        quadratic = everyone.weights_norm(weights)
    else:
        quadratic = everyone.quadratic(post.alpha, everyone.apply(post.alpha))
    flat, aside = 0.0, np.setdiff1d(np.arange(everyone.n_observations), post.active)
    if aside.size:
        flat = float(RowDensities(fit, aside).log_likelihood(to_numpy(post.moments[0])[aside][:, :, None]).sum())
    if scale is not None:  # E exp(-alpha e) over their extra variance
        flat += 0.5 * float(np.sum((to_numpy(post.alpha)[aside] * scale[aside]) ** 2))
    return flat - 0.5 * (float(post.factor.log_det) + quadratic)


def _standard_error(each: np.ndarray, base: np.ndarray, copies: int) -> float:
    """Standard error of log mean w - log mean v, from the means of independent copies."""
    w, v = each.reshape(2, copies, -1).mean(axis=(0, 2)), base.reshape(copies, -1).mean(axis=1)
    return float((w / w.mean() - v / v.mean()).std(ddof=1) / np.sqrt(copies))


def generator(rng: Seed) -> np.random.Generator:
    """A numpy Generator, from a Generator or a seed."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        got = repr(rng) if isinstance(rng, str | int | float) else f"a {type(rng).__name__}"
        raise problem("importance", f"rng = {got}", "a numpy Generator or a seed >= 0") from None


def smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Log weights (S,) with a smoothed tail, and k-hat: 0 without a tail, infinite with too few weights."""
    n = log_weights.size
    tail = int(min(0.2 * n, 3.0 * np.sqrt(n)))
    top = float(log_weights.max())
    if tail < _FEWEST or not np.isfinite(top):
        return log_weights, np.inf
    order = np.argsort(log_weights, kind="stable")
    largest = order[-tail:]
    floor = float(np.exp(log_weights[order[-tail - 1]] - top))
    over = np.exp(log_weights[largest] - top) - floor
    if over[-1] <= _EQUAL or np.exp(log_weights - top).mean() >= 1.0 / _MODEST:
        return log_weights, 0.0
    k, sigma = pareto_fit(np.maximum(over, 1e-12 * over[-1]))
    if k <= _FINITE:
        return log_weights, k
    levels = (np.arange(tail) + 0.5) / tail
    out = log_weights.copy()
    out[largest] = top + np.minimum(np.log(floor + pareto_quantile(levels, k, sigma)), 0.0)
    return out, k


def pareto_fit(x: np.ndarray) -> tuple[float, float]:
    """k and sigma of a generalised Pareto distribution, from exceedances x > 0 in increasing order."""
    n = x.size
    m = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3.0 * quartile)
    with np.errstate(divide="ignore", invalid="ignore"):
        k = np.log1p(-theta[:, None] * x).mean(axis=1)
        profile = n * (np.log(-theta / k) - k - 1.0)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    weight = np.exp(profile - profile.max())
    best = float(weight @ theta / weight.sum())
    shape = float(np.log1p(-best * x).mean())
    return (n * shape + 5.0) / (n + 10.0), -shape / best


def pareto_quantile(levels: np.ndarray, k: float, sigma: float) -> np.ndarray:
    """sigma ((1 - p)^-k - 1) / k, and its limit at k = 0."""
    left = -np.log1p(-levels)
    return sigma * left if abs(k) < 1e-12 else sigma * np.expm1(k * left) / k
