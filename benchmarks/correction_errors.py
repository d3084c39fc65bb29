"""How honest the corrected evidence and its error are: small models and groups against brute force.

    OPENBLAS_NUM_THREADS=1 python benchmarks/correction_errors.py [--small 320] [--groups 120] [--seed 31]

small    2 or 3 latents, 4 to 60 rows, sds of the prior from 0.1 to 30; 14 kinds of data. Truth: composite
         Gauss-Legendre rules over the whitened latents.
groups   rows of 5 to 40 groups with an intercept each of sd 0.3 to 6, a covariate that changes within groups, and
         two coefficients; 6 kinds. Truth: even rules over each group's effect, inside a lattice over the coefficients.

Of each kind: the error of log p(y), median and largest; the same over its stated error with a third of 0.001 added, and
how many of these ratios are within 3; how many fits are trusted, and how many marginals; the largest errors of means,
in sds, and of logs of sds where marginals are trusted (of coefficients; of small models of rows too), and how many of
the others are off by more than 0.2. Models whose truth is unsure, two lattices apart by more than 1e-4 nats, are left
out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

import fenchel
from fenchel.likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    Beta,
    Binomial,
    Gamma,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    Weibull,
)
from fenchel.priors import DenseCovariance

SMALL = ["bernoulli", "poisson", "zeros", "separable", "ones", "ordinal", "nb"]
SMALL += ["gamma", "binomial", "beta", "student-t", "probit", "weibull", "counts"]
GROUPED = ["bernoulli", "poisson", "nb", "binomial", "gamma", "student-t"]
CLOSE = 1e-4  # nats between two lattices of a truth
FLOOR = 1e-3  # nats


@dataclass(frozen=True)
class Truth:
    """log p(y), means and sds of W z and of z; how far two lattices are apart."""

    log_evidence: float
    mean: np.ndarray
    sd: np.ndarray
    apart: float


@dataclass(frozen=True)
class Judged:
    """One model: errors as above."""

    kind: str
    error: float
    stated: float
    trusted: bool
    marginals: bool
    mean_error: float
    sd_error: float


def observed(kind: str, eta: np.ndarray, rng: np.random.Generator) -> tuple[Likelihood, np.ndarray]:
    """A likelihood and data drawn given eta."""
    n, tame = eta.size, np.clip(eta, -4.0, 4.0)
    chance = 1.0 / (1.0 + np.exp(-eta))
    if kind == "bernoulli":
        return BernoulliLogit("exact"), (rng.random(n) < chance).astype(float)
    if kind == "probit":
        return BernoulliProbit(), (rng.random(n) < chance).astype(float)
    if kind == "separable":
        return BernoulliLogit("exact"), (eta > np.median(eta)).astype(float)
    if kind == "ones":
        return BernoulliLogit("exact"), np.ones(n)
    if kind == "poisson":
        return Poisson(), rng.poisson(np.exp(tame)).astype(float)
    if kind == "zeros":
        return Poisson(), np.zeros(n)
    if kind == "counts":
        return Poisson(), rng.poisson(np.exp(6.0 + tame)).astype(float)
    if kind == "nb":
        return NegativeBinomial(1.5, bound="exact"), rng.poisson(np.exp(tame) * rng.gamma(1.5, 1 / 1.5, n)).astype(
            float
        )
    if kind == "gamma":
        return Gamma(2.0), np.exp(tame) * rng.gamma(2.0, 0.5, n) + 1e-9
    if kind == "binomial":
        return Binomial(np.full(n, 5), bound="exact"), rng.binomial(5, chance).astype(float)
    if kind == "beta":
        noisy = 1.0 / (1.0 + np.exp(-eta - 0.3 * rng.normal(size=n)))
        return Beta(5.0), np.clip(noisy, 1e-3, 1.0 - 1e-3)
    if kind == "student-t":
        return StudentT(4.0, 0.5), eta + rng.standard_t(2, n)
    if kind == "ordinal":
        return Ordinal([-1.0, 0.0, 1.0], bound="exact"), np.digitize(eta + rng.logistic(size=n), [-1, 0, 1]).astype(
            float
        )
    if kind == "weibull":
        return Weibull(1.5), rng.weibull(1.5, n) * np.exp(-tame / 1.5) + 1e-9
    raise ValueError(kind)


# -- few latents -------------------------------------------------------------------------------------
def small_model(kind: str, rng: np.random.Generator) -> tuple[Likelihood, np.ndarray, np.ndarray, np.ndarray]:
    """Likelihood, y, design (N, L) and prior sds (L,)."""
    latents, n = int(rng.choice([2, 2, 3])), int(rng.choice([4, 6, 10, 25, 60]))
    W = np.column_stack([np.ones(n), rng.normal(size=(n, latents - 1))])
    if rng.random() < 0.4:
        W = np.zeros((n, latents))
        W[:, 0] = 1.0
        W[np.arange(n), 1 + rng.integers(0, latents - 1, n)] = 1.0
    sd = 10.0 ** rng.uniform(-1.0, 1.5, latents)
    eta = np.clip(W @ (rng.normal(size=latents) * sd), -8.0, 8.0)
    likelihood, y = observed(kind, eta, rng)
    return likelihood, y, W, sd


def small_truth(likelihood: Likelihood, y: np.ndarray, W: np.ndarray, sd: np.ndarray) -> Truth:
    """Over z / sd: panels of 5 Gauss-Legendre nodes in a box about the modes, along the axes of the curvature."""
    rows, L = likelihood.prepare(y), sd.size

    def log_f(v: np.ndarray) -> np.ndarray:
        out = np.empty(v.shape[0])
        for i in range(0, v.shape[0], 50_000):
            eta = (W * sd) @ v[i : i + 50_000].T
            with np.errstate(all="ignore"):
                log_p = np.asarray(likelihood.log_density(eta, rows))
            out[i : i + 50_000] = np.where(np.isnan(log_p), -np.inf, log_p).sum(axis=0)
        return out - 0.5 * np.sum(v * v, axis=1)

    draws = np.random.default_rng(0).normal(size=(400, L)) * np.repeat([0.3, 1.0, 2.0, 3.0], 100)[:, None]
    starts = draws[np.argsort(-log_f(draws))[:4]]
    ends = [minimize(lambda v: -log_f(v[None])[0], v, method="BFGS") for v in [np.zeros(L), *starts]]
    best = min(ends, key=lambda end: end.fun)
    mode = best.x
    values, vectors = np.linalg.eigh(_curvature(lambda v: log_f(v[None])[0], mode))
    root = vectors / np.sqrt(np.maximum(values, 0.9))
    modes = np.array([np.linalg.solve(root, end.x - mode) for end in ends if end.fun < best.fun + 25.0])
    low, high = modes.min(axis=0) - 6.0, modes.max(axis=0) + 6.0
    for _ in range(12):  # until the faces of the box are 35 nats below the top
        line = [np.linspace(a, b, 41 if L == 2 else 21) for a, b in zip(low, high, strict=True)]
        grid = np.stack(np.meshgrid(*line, indexing="ij"), axis=-1)
        value = log_f(mode + grid.reshape(-1, L) @ root.T).reshape(grid.shape[:-1])
        width, top = 0.2 * (high - low), value.max()
        short = [[np.take(value, k, axis=i).max() > top - 35.0 for i in range(L)] for k in (0, -1)]
        if not np.any(short):
            break
        low, high = low - width * np.array(short[0]), high + width * np.array(short[1])
    answers = []
    for panels in (10, 14) if L == 3 else (40, 57):
        nodes, weights = np.polynomial.legendre.leggauss(5)
        x, w = [], []
        for a, b in zip(low, high, strict=True):
            edge = np.linspace(a, b, panels + 1)
            half = (edge[1] - edge[0]) / 2
            x.append(((edge[:-1] + half)[:, None] + half * nodes).ravel())
            w.append(np.tile(half * weights, panels))
        v = np.stack([axis.ravel() for axis in np.meshgrid(*x, indexing="ij")], axis=1)
        mass = np.prod(np.stack([axis.ravel() for axis in np.meshgrid(*w, indexing="ij")], axis=1), axis=1)
        v = mode + v @ root.T
        value = log_f(v) + np.log(mass)
        total = logsumexp(value)
        p = np.exp(value - total)
        unknowns = np.concatenate([W * sd, np.diag(sd)]) @ v.T
        mean = unknowns @ p
        spread = np.sqrt(((unknowns - mean[:, None]) ** 2) @ p)
        constant = np.log(abs(np.linalg.det(root))) - 0.5 * L * np.log(2.0 * np.pi)
        answers.append((total + constant, mean, spread))
    return Truth(*answers[1], abs(answers[1][0] - answers[0][0]))


def _curvature(log_f: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-2) -> np.ndarray:
    """Minus the second derivatives by differences."""
    e, n = step * np.eye(at.size), at.size
    out = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            same = log_f(at + e[i] + e[j]) + log_f(at - e[i] - e[j])
            out[i, j] = (log_f(at + e[i] - e[j]) + log_f(at - e[i] + e[j]) - same) / (4.0 * step**2)
    return out


# -- groups ------------------------------------------------------------------------------------------
def grouped_model(
    kind: str, rng: np.random.Generator
) -> tuple[Likelihood, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Likelihood, y, X (N, 2), the group of each row, prior sds of both coefficients and of the groups."""
    groups, size = int(rng.choice([5, 10, 20, 40])), int(rng.choice([2, 4, 7]))
    group = np.repeat(np.arange(groups), size)
    X = np.column_stack([np.ones(group.size), rng.normal(size=group.size)])
    sd = np.array([3.0, 3.0, 10.0 ** rng.uniform(-0.5, 0.8 if kind in ("bernoulli", "binomial") else 0.3)])
    eta = X @ rng.normal(size=2) + sd[2] * rng.normal(size=groups)[group]
    likelihood, y = observed(kind, eta, rng)
    return likelihood, y, X, group, sd


def grouped_truth(likelihood: Likelihood, y: np.ndarray, X: np.ndarray, group: np.ndarray, sd: np.ndarray) -> Truth:
    """A lattice over both coefficients about their mode; each group's effect by an even rule about where it lives."""
    rows, groups = likelihood.prepare(y), int(group.max()) + 1
    start = np.searchsorted(group, np.arange(groups))

    def log_f(b: np.ndarray, step: float) -> np.ndarray:
        """log p(y | b) + log prior of coefficients (S, 2)."""
        u = np.arange(-9.0, 9.0 + step / 2, step)
        for k, here in enumerate(u):
            with np.errstate(all="ignore"):
                log_p = np.asarray(likelihood.log_density(X @ b.T + sd[2] * here, rows))
            pieces[k, :, : b.shape[0]] = np.add.reduceat(log_p, start, axis=0) - 0.5 * here * here
        total = logsumexp(pieces[: u.size, :, : b.shape[0]], axis=0) + np.log(step / np.sqrt(2.0 * np.pi))
        prior = -0.5 * np.sum((b / sd[:2]) ** 2, axis=1) - np.log(sd[:2]).sum() - np.log(2.0 * np.pi)
        return total.sum(axis=0) + prior

    pieces = np.empty((181, groups, 200))
    best = minimize(lambda b: -log_f(b[None], 0.4)[0], np.zeros(2), method="Nelder-Mead", options={"maxiter": 80})
    values, vectors = np.linalg.eigh(_curvature(lambda b: log_f(b[None], 0.4)[0], best.x))
    root = vectors / np.sqrt(np.maximum(values, 0.05))
    answers = []
    for spacing, step in ((0.8, 0.2), (0.55, 0.15)):
        line = spacing * np.arange(-round(6.4 / spacing), round(6.4 / spacing) + 1)
        s = np.stack([axis.ravel() for axis in np.meshgrid(line, line, indexing="ij")], axis=1)
        b = best.x + s @ root.T
        value = np.concatenate([log_f(b[i : i + 200], step) for i in range(0, b.shape[0], 200)])
        total = logsumexp(value)
        p = np.exp(value - total)
        mean = p @ b
        spread = np.sqrt(p @ (b - mean) ** 2)
        answers.append((total + 2 * np.log(spacing) + np.log(abs(np.linalg.det(root))), mean, spread))
    return Truth(*answers[1], abs(answers[1][0] - answers[0][0]))


# -- judged ------------------------------------------------------------------------------------------
def judged_small(kind: str, rng: np.random.Generator) -> Judged | None:
    """One small model, or None where its truth has too few digits."""
    likelihood, y, W, sd = small_model(kind, rng)
    truth = small_truth(likelihood, y, W, sd)
    if not truth.apart <= CLOSE:
        return None
    found = fenchel.infer(likelihood, DenseCovariance(np.diag(sd**2), design=W), y).corrected()
    latents = found.latents()
    mean = np.concatenate([np.asarray(found.mean).ravel(), np.asarray(latents.mean).ravel()])
    spread = np.concatenate([np.asarray(found.sd).ravel(), np.asarray(latents.sd).ravel()])
    return judge(kind, found, truth, mean, spread)


def judged_grouped(kind: str, rng: np.random.Generator) -> Judged | None:
    """One model of groups."""
    likelihood, y, X, group, sd = grouped_model(kind, rng)
    truth = grouped_truth(likelihood, y, X, group, sd)
    if not truth.apart <= CLOSE:
        return None
    groups = int(group.max()) + 1
    W = np.concatenate([X, np.eye(groups)[group]], axis=1)
    prior = DenseCovariance(np.diag(np.r_[sd[:2], np.full(groups, sd[2])] ** 2), design=W)
    found = fenchel.infer(likelihood, prior, y).corrected()
    latents = found.latents()
    return judge(kind, found, truth, np.asarray(latents.mean)[:2], np.asarray(latents.sd)[:2])


def judge(kind: str, found: object, truth: Truth, mean: np.ndarray, sd: np.ndarray) -> Judged:
    """What a corrected fit says beside the truth."""
    return Judged(
        kind,
        float(found.log_evidence - truth.log_evidence),
        float(found.log_evidence_se),
        bool(found.trusted),
        bool(getattr(found, "marginals_trusted", found.trusted)),
        float(np.max(np.abs(mean - truth.mean) / truth.sd)),
        float(np.max(np.abs(np.log(sd / truth.sd)))),
    )


def table(name: str, results: list[Judged], asked: int) -> None:
    """One line a kind, and one for all."""
    print(f"\n{name}: {len(results)} of {asked} models have a truth to {CLOSE:g} nats")
    print("kind          models  |error|  largest   ratio  largest  within 3  trusted  marginals   mean     sd   off")
    for kind in [*dict.fromkeys(r.kind for r in results), "all"]:
        some = [r for r in results if kind in (r.kind, "all")]
        error = np.array([abs(r.error) for r in some])
        ratio = error / np.array([r.stated + FLOOR / 3.0 for r in some])
        sure = [r for r in some if r.marginals]
        mean, sd = (max((getattr(r, key) for r in sure), default=0.0) for key in ("mean_error", "sd_error"))
        off = sum(not r.marginals and r.sd_error > 0.2 for r in some)
        print(
            f"{kind:12} {len(some):7} {np.median(error):8.4f} {error.max():8.4f}"
            f" {np.median(ratio):7.2f} {ratio.max():8.2f} {np.mean(ratio <= 3.0):9.1%}"
            f" {np.mean([r.trusted for r in some]):8.0%} {len(sure) / len(some):10.0%}"
            f" {mean:6.3f} {sd:6.3f} {off:5}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=320)
    parser.add_argument("--groups", type=int, default=120)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()
    for name, kinds, count, judged in (
        ("small", SMALL, args.small, judged_small),
        ("groups", GROUPED, args.groups, judged_grouped),
    ):
        found = [judged(kinds[i % len(kinds)], np.random.default_rng([args.seed, i])) for i in range(count)]
        table(name, [r for r in found if r is not None], count)


if __name__ == "__main__":
    main()
