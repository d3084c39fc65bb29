"""Bayesian logistic regression on the Pima data.

The first row of tab:examplesLGM, the Bernoulli column of tab:fenchelDual:

    y_n ~ Bernoulli(1 / (1 + exp(-eta_n))),   eta = W z,   row of W = (1, x_n),   x_n standardised
    z_0 ~ N(0, 100)   the intercept
    z_i ~ N(0, v)     the weights; v is the point of a grid with the largest evidence

It is fitted with the paper's log-sum bound and with the tilted one. Laplace and EP have own estimates of log p(y);
importance sampling, which is easy with 8 latents, gives the truth with its standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import gammaln

from ..datasets import Pima, load_pima
from ..inference import infer
from ..likelihoods import BernoulliLogit
from ..priors import Features
from ..solvers import Solution
from .race import LBFGS, RaceEntry, Runner, all_runners, race, started
from .reproduce import Result, Settings

INTERCEPT_VARIANCE = 100.0
FREEDOM = 8.0  # degrees of freedom of the Student proposal, whose tails are heavier than the posterior's
Fit = Callable[..., Solution]


@dataclass(frozen=True)
class PimaDesign:
    """The data: W (N, 8) with a first column of ones, y (N,), and the same for the test rows."""

    data: Pima
    W: np.ndarray
    y: np.ndarray
    W_test: np.ndarray
    y_test: np.ndarray

    @property
    def names(self) -> list[str]:
        return ["intercept", *self.data.feature_names]

    def prior(self, variance: float) -> Features:
        """The prior with weights of the given variance and a wide intercept."""
        return Features(self.W, np.r_[INTERCEPT_VARIANCE, np.full(self.W.shape[1] - 1, variance)])


@dataclass(frozen=True)
class Sampled:
    """Importance sampling: log p(y) with its standard error, posterior mean and sd of z, the effective draws.

    probability : predictive probability of y = 1 at the test rows
    """

    log_evidence: float
    error: float
    mean: np.ndarray
    sd: np.ndarray
    probability: np.ndarray
    draws: int
    effective: float


@dataclass(frozen=True)
class MethodOnGrid:
    """The results of one method along the grid, and its fit at its own best variance.

    evidence : its log evidence at each variance (V,)
    bits : mean -log2 p(y_test)
    """

    name: str
    evidence: np.ndarray
    variance: float
    solution: Solution
    bits: float
    accuracy: float

    @property
    def best(self) -> float:
        return float(self.evidence.max())


@dataclass(frozen=True)
class LogisticStudy:
    """All results that the page shows.

    learned : the results of each method: log-sum, tilted, Laplace, EP
    sampled : results of importance sampling at each variance (V,)
    common : the variance at which the methods are compared (the best for the tilted bound), in ``fits`` and ``truth``
    without_bound : elbo of the log-sum and tilted q at the common variance, by quadrature without a local bound
    exact : importance sampling at the best of its own variances, ``exact_variance``, with bits and accuracy
    entries : timings under the log-sum bound at its own variance, to ``optimum``
    """

    design: PimaDesign
    variances: np.ndarray
    learned: dict[str, MethodOnGrid]
    sampled: list[Sampled]
    common: float
    fits: dict[str, Solution]
    without_bound: dict[str, float]
    truth: Sampled
    exact: Sampled
    exact_variance: float
    exact_bits: float
    exact_accuracy: float
    entries: list[RaceEntry]
    optimum: Solution
    cap: float


def prepare() -> PimaDesign:
    """Standardise by the mean and standard deviation of the training rows."""
    data = load_pima()
    X, train = data.X, data.train
    Z = (X - X[train].mean(0)) / X[train].std(0)
    W = np.column_stack([np.ones(len(Z)), Z])
    return PimaDesign(data, W[train], data.y[train], W[data.test], data.y[data.test])


def methods() -> dict[str, Fit]:
    """The four approximations, as functions of (prior, y)."""
    from .rivals import ep, laplace

    paper = BernoulliLogit("log-sum")
    return {
        "log-sum": partial(infer, paper),
        "tilted": partial(infer, BernoulliLogit("tilted")),
        "Laplace": partial(laplace, paper),
        "EP": partial(ep, paper),
    }


def learn(name: str, fit: Fit, design: PimaDesign, variances: np.ndarray) -> MethodOnGrid:
    """Fit along the grid, each fit started from the previous one if the method allows it, and keep the best."""
    evidence, last = np.empty(variances.size), None
    for i, variance in enumerate(variances):
        start = {"start": last} if name in ("log-sum", "tilted") else {}
        last = fit(design.prior(float(variance)), design.y, **start)
        if not last.converged:
            raise RuntimeError(f"logistic: {name} at variance {variance:g} did not converge: {last.status}")
        evidence[i] = last.log_evidence
    variance = float(variances[int(np.argmax(evidence))])
    solution = fit(design.prior(variance), design.y)
    h, rho = solution.posterior.predict(design=design.W_test)
    scores = BernoulliLogit("log-sum").predictive_log_density(design.y_test, h, rho)
    right = (np.asarray(h) > 0) == (design.y_test == 1)
    return MethodOnGrid(name, evidence, variance, solution, float(-np.mean(scores) / np.log(2)), float(right.mean()))


def unbounded(solution: Solution, y: np.ndarray) -> float:
    """The elbo of the solution's q with E[log p] by quadrature instead of the local bound (eq:orig-problem)."""
    likelihood, post = solution.likelihood, solution.posterior
    h, rho, rows = post.mean[:, None], post.variance[:, None], likelihood.prepare(y)
    loose = likelihood.objective.f(h, rho, rows) - likelihood.expectations(h, rho, rows)[0][:, 0]
    return solution.elbo + float(np.sum(loose))


def sample(design: PimaDesign, variance: float, draws: int, rng: np.random.Generator) -> Sampled:
    """log p(y) = log mean of p(y, z) / t(z), z drawn from a Student t at the mode with the curvature there.

    It is independent of the fits above, including the search for the mode.
    """
    W, y, L = design.W, design.y, design.W.shape[1]
    precision = 1.0 / np.r_[INTERCEPT_VARIANCE, np.full(L - 1, variance)]
    mode = np.zeros(L)
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-W @ mode))
        A = np.diag(precision) + W.T @ ((p * (1 - p))[:, None] * W)
        step = np.linalg.solve(A, W.T @ (y - p) - precision * mode)
        mode = mode + step
        if np.abs(step).max() < 1e-12:
            break
    root = np.linalg.inv(np.linalg.cholesky(A)).T  # root root' = A^-1
    log_det = float(np.linalg.slogdet(A)[1])
    half = 0.5 * (FREEDOM + L)
    scale = gammaln(half) - gammaln(FREEDOM / 2) - 0.5 * L * np.log(FREEDOM * np.pi) + 0.5 * log_det
    z, weights = [], []
    for size in np.diff(np.r_[np.arange(0, draws, 10_000), draws]):  # in blocks, since a draw takes N numbers
        u = rng.standard_normal((size, L)) / np.sqrt(rng.chisquare(FREEDOM, size) / FREEDOM)[:, None]
        Z = mode + u @ root.T
        eta = Z @ W.T
        joint = eta @ y - np.logaddexp(0.0, eta).sum(1) - 0.5 * (Z**2) @ precision
        joint += 0.5 * np.log(precision).sum() - 0.5 * L * np.log(2 * np.pi)
        weights.append(joint - (scale - half * np.log1p((u**2).sum(1) / FREEDOM)))
        z.append(Z)
    Z, log_w = np.concatenate(z), np.concatenate(weights)
    top = log_w.max()
    w = np.exp(log_w - top)
    share = w / w.sum()
    mean, success = share @ Z, np.zeros(design.y_test.size)
    for part in np.array_split(np.arange(draws), -(-draws // 10_000)):
        success += share[part] @ (1.0 / (1.0 + np.exp(-Z[part] @ design.W_test.T)))
    return Sampled(
        log_evidence=float(top + np.log(w.mean())),
        error=float(w.std() / (w.mean() * np.sqrt(draws))),
        mean=mean,
        sd=np.sqrt(share @ (Z - mean) ** 2),
        probability=success,
        draws=draws,
        effective=float(1.0 / np.sum(share**2)),
    )


def start_line(y: np.ndarray) -> np.ndarray:
    """The common start s: tau within 1e-4 of y, so that alpha is near 0 and the mean near the prior mean."""
    return np.where(y == 1, 1.0, -1.0) * np.log(1e4 - 1.0)


def runners(start: np.ndarray, quick: bool) -> list[Runner]:
    """The methods, dual Newton first, and also dual L-BFGS from the default start."""
    methods = all_runners(2, quick)
    own = replace(methods[1], name=f"{LBFGS}, own start")
    first, second, *others = started(methods, start)
    return [first, second, *([] if quick else [own]), *others]


def study(settings: Settings) -> LogisticStudy:
    """Compute all results, without figures."""
    design, rng = prepare(), np.random.default_rng(settings.seed)
    variances = np.geomspace(0.02, 5.0, 9 if settings.quick else 49)
    fits = methods()
    learned = {}
    for name, fit in fits.items():
        learned[name] = learn(name, fit, design, variances)
        settings.tick(f"{name}: best variance {learned[name].variance:.3g}")
    sampled = []
    for variance in variances:
        sampled.append(sample(design, float(variance), 2_000 if settings.quick else 50_000, rng))
        settings.tick(f"importance sampling at variance {variance:.3g}: {sampled[-1].log_evidence:.3f}")
    common = learned["tilted"].variance
    many = 20_000 if settings.quick else 200_000
    truth = sample(design, common, many, rng)
    exact_variance = float(variances[int(np.argmax([s.log_evidence for s in sampled]))])
    exact = sample(design, exact_variance, many, rng)
    p = np.where(design.y_test == 1, exact.probability, 1.0 - exact.probability)
    paper = design.prior(learned["log-sum"].variance)
    optimum = infer(BernoulliLogit("log-sum"), paper, design.y, tol=1e-12)
    cap = min(settings.cap, 1.0 if settings.quick else 20.0)
    rivals = runners(start_line(design.y), settings.quick)
    entries = race(
        (BernoulliLogit("log-sum"), paper, design.y),
        rivals,
        optimum.elbo,
        cap=cap,
        repeats={runner.name: 1 if settings.quick else 3 for runner in rivals},
        tick=settings.tick,
    )
    at_common = {name: fit(design.prior(common), design.y) for name, fit in fits.items()}
    return LogisticStudy(
        design=design,
        variances=variances,
        learned=learned,
        sampled=sampled,
        common=common,
        fits=at_common,
        without_bound={name: unbounded(at_common[name], design.y) for name in ("log-sum", "tilted")},
        truth=truth,
        exact=exact,
        exact_variance=exact_variance,
        exact_bits=float(-np.mean(np.log2(p))),
        exact_accuracy=float(np.mean(p > 0.5)),
        entries=entries,
        optimum=optimum,
        cap=cap,
    )


def run(settings: Settings) -> Result:
    """Fit, measure and draw."""
    from .logistic_page import page

    return page(study(settings))
