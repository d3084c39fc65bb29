"""The bound on what inducing points cost, against the exact process, on random problems.

    python benchmarks/inducing.py [--problems 200] [--rows 1500] [--seed 0]
    python benchmarks/inducing.py --predictions         what a loss does to predictions of new rows, at given theta

Each problem draws a likelihood (counts, binary under the tilted bound and without one, Gaussian, survival, softmax),
1 to 10 columns, a kernel with its lengths and variance, a number of rows, and a loss between 0.02 and 8 nats to aim at.
The number of points is where half the sum of (lam + alpha^2) c, by a fit with half of the rows as points, falls to that
loss; the points are chosen by pivots with these weights. Asserted: the bound is never below the loss of elbo against
the exact fit, and at most 3 times it where the loss is between 0.01 and 10 nats; with a point at every row the fit is
the exact one; slopes in theta are those of differences. The last table has two bounds of the exact logit side by side:
strong concavity, a proof for the exact expectations, and the dual of the tilted bound at its own fit, a proof for the
tilted elbo.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, Kernel, Matern, RationalQuadratic

import fenchel
from fenchel.hyperparameters import InducingCovariance, KernelCovariance, approximation_loss
from fenchel.likelihoods import BernoulliLogit, Gaussian, Likelihood, MultinomialLogit, Poisson, Weibull
from fenchel.marginals import NormalMarginals
from fenchel.priors import DenseCovariance, InducingPoints
from fenchel.priors.pivots import choose_rows

KINDS = ("counts", "tilted", "exact", "gaussian", "survival", "softmax")
LEVEL = 4.0  # prior variance of the constant


def drawn(kind: str, f: np.ndarray, rng: np.random.Generator) -> tuple[Likelihood, np.ndarray]:
    """A likelihood of that kind, and targets about the function values f."""
    n = f.size
    if kind == "counts":
        return Poisson(), rng.poisson(np.exp(np.minimum(f, 4.0))).astype(float)
    if kind == "gaussian":
        noise = float(rng.uniform(0.05, 1.0))
        return Gaussian(noise), f + noise**0.5 * rng.normal(size=n)
    if kind == "survival":
        event = rng.random(n) < 0.8
        return Weibull(1.5, event), np.exp(f) * rng.weibull(1.5, size=n) + 1e-6
    if kind == "softmax":
        scores = np.column_stack([f, -f, 0.5 * np.abs(f)]) + rng.gumbel(size=(n, 3))
        return MultinomialLogit(3, bound="tilted"), np.argmax(scores, axis=1).astype(float)
    return BernoulliLogit(kind), (f + rng.logistic(size=n) > 0.0).astype(float)


def n_points(kernel: Kernel, X: np.ndarray, order: np.ndarray, weights: np.ndarray, aim: float) -> int:
    """How many of the points in order leave half the weighted sum of c at ``aim``, and 2 at least."""
    G = InducingPoints(kernel, X, X[order]).design.toarray()  # of the first points these are the first columns
    left = 0.5 * np.maximum(weights @ kernel.diag(X) - np.cumsum(weights @ G**2), 0.0)
    return min(len(order), max(2, 1 + int(np.searchsorted(-left, -aim))))


def losses(seed: int, kind: str, most_rows: int) -> dict[str, float]:
    """One problem: what the points cost, and the bound."""
    rng = np.random.default_rng(seed)
    n, D = int(rng.integers(100, most_rows)), int(rng.integers(1, 11))
    n = n // 2 if kind == "softmax" else n  # three covariances
    X, length = rng.normal(size=(n, D)), float(rng.uniform(0.5, 1.5)) * D**0.5
    variance = float(rng.uniform(0.5, 4.0))
    kernel = (
        variance * [RBF(length), Matern(length, nu=1.5), Matern(length, nu=2.5), RationalQuadratic(length)][seed % 4]
    )
    f = 1.5 * np.sin(2.0 * X[:, 0]) + (X[:, 1] if D > 1 else 0.0)
    likelihood, y = drawn(kind, f, rng)
    aim = float(np.exp(rng.uniform(np.log(0.02), np.log(8.0))))
    began = time.perf_counter()
    first = fenchel.infer(likelihood, InducingPoints(kernel, X, X[choose_rows(kernel, X, n // 2)], level=LEVEL), y)
    weights = np.sum(first.lam + first.alpha**2, axis=1)[:n]
    order = choose_rows(kernel, X, n - 1, weights)
    prior = InducingPoints(kernel, X, X[order[: n_points(kernel, X, order, weights, aim)]], level=LEVEL)
    few = fenchel.infer(likelihood, prior, y, tol=1e-11)
    bound = approximation_loss(few, prior)
    middle = time.perf_counter()
    dense = DenseCovariance(kernel(X) + LEVEL)
    exact = fenchel.infer(likelihood, dense, y, tol=1e-11)
    out = {"n": n, "D": D, "M": len(prior.rows.points), "loss": exact.elbo - few.elbo, "bound": bound.bound}
    out |= {"rounding": exact.gap + few.gap, "seconds": middle - began, "exact_seconds": time.perf_counter() - middle}
    if kind == "exact":
        tilted = fenchel.infer(BernoulliLogit("tilted"), prior, y, tol=1e-11)
        out["tilted_bound"] = approximation_loss(tilted, prior).bound
        out["tilted_loss"] = fenchel.infer(BernoulliLogit("tilted"), dense, y, tol=1e-11).elbo - tilted.elbo
    return out


def checks(n: int = 120, step: float = 1e-3) -> None:
    """With a point at every row: the elbo less the exact one. With 30: slopes in theta against differences."""
    print(f"\n{'likelihood':>10}{'M = N: elbo - exact':>21}{'slopes - differences, of the largest':>38}")
    for kind in KINDS:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 2))
        likelihood, y = drawn(kind, 1.5 * np.sin(1.5 * X[:, 0]) + X[:, 1], rng)
        family = InducingCovariance(1.5 * Matern([1.2, 0.8], nu=1.5), X, X[:30], level=LEVEL)

        def fit(theta: np.ndarray, family: InducingCovariance = family, own: tuple = (likelihood, y)) -> Any:
            return fenchel.infer(own[0], family.at(theta), own[1], tol=1e-13)

        every = fenchel.infer(likelihood, InducingPoints(family.kernel, X, X, level=LEVEL), y, tol=1e-12)
        exact = fenchel.infer(likelihood, DenseCovariance(family.kernel(X) + LEVEL), y, tol=1e-12)
        slopes, theta = family.gradient(fit(family.theta), family.theta), family.theta
        differences = []
        for e in step * np.eye(theta.size):
            near, far = (fit(theta + k * e).elbo - fit(theta - k * e).elbo for k in (1, 2))
            differences.append((8.0 * near - far) / (12.0 * step))
        error = np.abs(slopes - differences).max() / np.abs(slopes).max()
        print(f"{kind:>10}{every.elbo - exact.elbo:>21.1e}{error:>38.1e}", flush=True)
        assert abs(every.elbo - exact.elbo) < 1e-6, kind
        assert error < 1e-6, kind


def predictions(n: int = 1200, n_new: int = 400) -> None:
    """How far predictions at new rows are from the exact process, beside the bound."""
    head = f"{'D':>2}{'likelihood':>16}{'M':>5}{'loss':>9}{'bound':>9}{'change of score':>17}{'its se':>8}"
    print(head + f"{'moved, sds: most':>18}{'rms':>7}")
    rng = np.random.default_rng(1)
    for D, kernel in ((2, 2.0 * Matern(0.7, nu=1.5)), (5, 2.0 * RBF(2.0))):
        X = rng.normal(size=(n + n_new, D))
        f = np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(n + n_new)) @ rng.normal(size=n + n_new)
        for likelihood in (Gaussian(0.25), BernoulliLogit("exact")):
            y = likelihood.draw(f[:, None], rng)[:, 0]
            exact = KernelCovariance(kernel, X[:n], level=LEVEL)
            best = fenchel.infer(likelihood, exact.at(exact.theta), y[:n])
            eta = best.posterior.at(exact.new_rows(exact.theta, X[n:]))
            score, weights = scores(likelihood, eta, y[n:]), None
            for M in (40, 80, 160, 320, 640):
                for _ in range(2):
                    few = InducingCovariance(kernel, X[:n], X[choose_rows(kernel, X[:n], M, weights)], level=LEVEL)
                    fit = fenchel.infer(likelihood, few.at(few.theta), y[:n])
                    weights = np.sum(fit.lam + fit.alpha**2, axis=1)
                bound = approximation_loss(fit, few.at(few.theta)).bound
                there = fit.posterior.at(few.new_rows(few.theta, X[n:]))
                change = np.mean(scores(likelihood, there, y[n:]) - score)
                moved = np.abs(there.mean - eta.mean) / np.sqrt(eta.variance)
                se = score.std() / n_new**0.5
                numbers = f"{best.elbo - fit.elbo:>9.3g}{bound:>9.3g}{change:>17.5f}{se:>8.3f}"
                rms = np.sqrt(np.mean(moved**2))
                print(f"{D:>2}{likelihood.name:>16}{M:>5}{numbers}{moved.max():>18.3f}{rms:>7.3f}", flush=True)


def scores(likelihood: Likelihood, eta: NormalMarginals, y: np.ndarray) -> np.ndarray:
    """The log predictive density of each row."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    at = np.asarray(eta.mean)[:, None] + np.sqrt(np.asarray(eta.variance))[:, None] * nodes
    density = [np.exp(likelihood.log_density(at[:, [k]], likelihood.prepare(y))[:, 0]) for k in range(nodes.size)]
    return np.log(np.column_stack(density) @ weights / weights.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--predictions", action="store_true")
    args = parser.parse_args()
    if args.predictions:
        predictions()
        return
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for i in range(args.problems):
        kind = KINDS[i % len(KINDS)]
        row = losses(args.seed + i, kind, args.rows)
        found[kind].append(row)
        if sys.stderr.isatty() and i % 10 == 9:
            print(f"{i + 1} problems", file=sys.stderr)
        assert row["loss"] <= row["bound"] + row["rounding"] + 1e-8, (i, kind, row)
    print(f"{'likelihood':>10}{'problems':>10}{'judged':>8}{'ratio: median':>15}{'largest':>9}{'below loss':>12}")
    for kind, rows in found.items():
        judged = [r["bound"] / r["loss"] for r in rows if 0.01 <= r["loss"] <= 10.0]
        below = sum(r["bound"] + r["rounding"] + 1e-8 < r["loss"] for r in rows)
        middle, largest = (np.median(judged), max(judged)) if judged else (np.nan, np.nan)
        print(f"{kind:>10}{len(rows):>10}{len(judged):>8}{middle:>15.2f}{largest:>9.2f}{below:>12}", flush=True)
        assert not judged or largest <= 3.0, kind
    checks()
    print("\nthe exact logit: strong concavity, and the tilted dual at its own fit (nats)")
    print(f"{'N':>6}{'D':>4}{'M':>5}{'loss':>10}{'concavity':>11}{'tilted loss':>13}{'tilted bound':>14}")
    for r in sorted((r for r in found["exact"] if 0.01 <= r["loss"] <= 10.0), key=lambda r: r["loss"])[:12]:
        numbers = f"{r['loss']:>10.3g}{r['bound']:>11.3g}{r['tilted_loss']:>13.3g}{r['tilted_bound']:>14.3g}"
        print(f"{r['n']:>6.0f}{r['D']:>4.0f}{r['M']:>5.0f}{numbers}")


if __name__ == "__main__":
    main()
