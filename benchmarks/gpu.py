"""Gaussian processes end to end on a GPU: exact ones against one Cholesky factorisation, a million rows, and kin40k.

    python benchmarks/gpu.py [--device cuda] [--parts agree exact counts binary kin40k kin40k-exact] [--data FOLDER]

Everything runs through the estimators with ``device=``, in float64; nothing as large as rows by rows or rows by points
leaves the device.

agree          every estimator at 300 rows, exact and by 50 points, beside numpy
exact          ``--sizes`` rows of labels in 8 columns, RBF of variance 4 and length 2, tilted bound, relative gap 1e-6;
               seconds of the whole fit, in Choleskys of the same size, and the peak of memory in N^2 doubles
counts, binary ``--rows`` rows in 4 columns through ``--points`` points: the fit, and the bound on what the points cost
kin40k         learned: Matern of 3/2, a length for each column, through ``--kin-points`` points, one after the other,
               with ``loss`` a hundredth of a nat a row
kin40k-exact   the process itself learned from there

FOLDER holds kin40k.csv.gz (``benchmarks/uci.py``). A part that fails says so, and the others go on.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

import fenchel
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.hyperparameters import KernelCovariance, learn
from fenchel.hyperparameters.inducing_loss import approximation_loss
from fenchel.kernels import evaluate
from fenchel.likelihoods import Gaussian
from fenchel.linalg.arrays import to_numpy

PARTS = ("agree", "exact", "counts", "binary", "kin40k", "kin40k-exact")


class Watch:
    """Seconds and the peak of memory on a device since the start."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.began = self.now()

    def now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.now() - self.began

    @property
    def peak(self) -> float:
        """Bytes."""
        return float(torch.cuda.max_memory_allocated()) if self.cuda else np.nan


def report(*words: Any) -> None:
    print(*words, flush=True)


# -- beside numpy ---------------------------------------------------------------------------------------
def agree(args: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    n = 300
    X = rng.normal(size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    models: dict[Any, np.ndarray] = {
        GaussianProcessRegressor: f + 0.3 * rng.normal(size=n),
        GaussianProcessPoissonRegressor: rng.poisson(np.exp(f)),
        GaussianProcessClassifier: (f + rng.logistic(size=n) > 0.0).astype(int),
    }
    report(f"{'beside numpy':<34}{'points':>7}{'elbo':>10}{'theta':>10}{'mean':>10}{'seconds':>9}{'numpy':>8}")
    for kind, y in models.items():
        for points in (None, 50):
            options: dict[str, Any] = {"approximation": None}
            if points:
                options = {"approximation": "inducing", "n_inducing": points}
            fits, seconds = [], []
            for device in (None, args.device):
                watch = Watch(args.device)
                fits.append(kind(1.0 * Matern([1.0, 1.0, 1.0], nu=1.5), device=device, **options).fit(X, y))
                seconds.append(watch.seconds)
            here, there = fits
            means = [fit.latent_mean_and_variance(X[:50])[0] for fit in fits]
            away = abs(here.elbo_ - there.elbo_), np.abs(here.theta_ - there.theta_).max(), np.ptp(means, axis=0).max()
            numbers = "".join(f"{value:>10.0e}" for value in away)
            report(f"{kind.__name__:<34}{points or '-':>7}{numbers}{seconds[1]:>9.2f}{seconds[0]:>8.2f}")


# -- the process itself ---------------------------------------------------------------------------------
def labels(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    score = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    return X, (score + 0.5 * rng.logistic(size=n) > 0.0).astype(int)


def cholesky_seconds(X: np.ndarray, kernel: Any, device: str) -> float:
    """torch's, of the covariance with noise, the second of two."""
    K = evaluate(kernel, torch.asarray(X, device=device))
    K.diagonal().add_(1.0)
    seconds = 0.0
    for _ in range(2):
        watch = Watch(device)
        L = torch.linalg.cholesky(K)
        seconds = watch.seconds
        del L
    return seconds


def exact(args: argparse.Namespace) -> None:
    head = f"{'N':>7}{'bound':>9}{'iterations':>12}{'seconds':>10}{'Cholesky s':>12}{'ratio':>8}"
    report(head + f"{'peak/N^2':>10}{'gap':>10}")
    for n in args.sizes:
        X, y = labels(n)
        kernel = ConstantKernel(4.0) * RBF(2.0)
        floor = cholesky_seconds(X, kernel, args.device)
        for bound in args.bounds:
            watch = Watch(args.device)
            model = GaussianProcessClassifier(
                kernel, bound=bound, optimizer=None, approximation=None, tol=1e-6, device=args.device
            )
            model.fit(X, y)
            seconds, peak = watch.seconds, watch.peak / (8.0 * n * n)
            row = f"{n:>7}{bound:>9}{model.n_iter_:>12}{seconds:>10.3f}{floor:>12.4f}{seconds / floor:>8.1f}"
            report(row + f"{peak:>10.2f}{model.gap_:>10.1e}" + ("" if model.converged_ else " NOT CONVERGED"))
            del model


# -- a million rows -------------------------------------------------------------------------------------
def many_rows(args: argparse.Namespace, kind: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(args.rows, 4))
    f = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] * np.cos(X[:, 2]) + 0.3 * X[:, 3]
    options: dict[str, Any] = {"approximation": "inducing", "n_inducing": args.points, "device": args.device}
    options["optimizer"] = None
    kernel = ConstantKernel(1.0) * RBF(1.5)
    fits: list[tuple[str, Any, np.ndarray]] = []
    if kind == "counts":
        fits = [("counts", GaussianProcessPoissonRegressor(kernel, **options), rng.poisson(np.exp(f)))]
    else:
        y = (f + rng.logistic(size=args.rows) > 0.0).astype(int)
        fits = [(f"labels, {b}", GaussianProcessClassifier(kernel, bound=b, **options), y) for b in args.label_bounds]
    for name, model, y in fits:
        watch = Watch(args.device)
        model.fit(X, y)
        whole, peak = watch.seconds, watch.peak / 2**30
        watch = Watch(args.device)
        result = model._latent.result
        loss = approximation_loss(model.solution_, result.family.at(model.theta_[: result.family.theta.size]))
        certificate = watch.seconds
        report(
            f"{name}: {args.rows:,} rows, {loss.n_points} points: fit {whole - certificate:.1f} s, certificate "
            f"{certificate:.1f} s ({'estimated' if loss.estimated else 'proved'}, {loss.certificate}), "
            f"{model.n_iter_} iterations, peak {peak:.0f} GiB"
        )
        report(
            f"  elbo {model.elbo_:.1f}, gap {model.gap_:.1e}, at most {loss.bound:.2f} nats below the process itself"
        )
        watch = Watch(args.device)
        model.latent_mean_and_variance(X[:10_000])
        report(f"  10,000 predictions in {watch.seconds:.2f} s")


# -- kin40k ---------------------------------------------------------------------------------------------
def read_kin40k(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X and y of the training rows and of the held-out ones, standardised by the former."""
    import pandas as pd

    frame = pd.read_csv(folder / "kin40k.csv.gz").astype(float)
    held = frame.pop("test").to_numpy() == 1.0
    y, X = frame.pop("y").to_numpy(), frame.to_numpy()
    X = (X - X[~held].mean(axis=0)) / X[~held].std(axis=0)
    y = (y - y[~held].mean()) / y[~held].std()
    return X[~held], y[~held], X[held], y[held]


def score(name: str, model: Any, X: np.ndarray, y: np.ndarray, seconds: float, peak: float) -> None:
    rmse = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    cost = f"{model.elbo_:>12.1f}{model.approximation_loss_:>11.1f}{seconds:>9.1f}{peak / 2**30:>7.1f}"
    report(f"{name:<22}{rmse:>8.4f}{-model.score(X, y):>9.4f}{cost}{model.n_iter_:>12}")


def kin40k(args: argparse.Namespace) -> None:
    X, y, X_new, y_new = read_kin40k(args.data)
    head = f"{'kin40k, ' + str(len(y)) + ' rows':<22}{'RMSE':>8}{'NLPD':>9}{'elbo':>12}{'loss <=':>11}"
    report(head + f"{'seconds':>9}{'GiB':>7}{'iterations':>12}")
    kernel, likelihood, total = (
        ConstantKernel(1.0) * Matern(np.full(X.shape[1], X.shape[1] ** 0.5), nu=1.5),
        "gaussian",
        0.0,
    )
    for points in args.kin_points:
        watch = Watch(args.device)
        options: dict[str, Any] = {"approximation": "inducing", "n_inducing": points, "device": args.device}
        options["loss"] = 0.01 * len(y)  # a step that gains less than a ten-thousandth of a nat a row is the last
        model = GaussianProcessRegressor(kernel, likelihood=likelihood, **options).fit(X, y)
        total += watch.seconds
        kernel, likelihood = model.kernel_, model.likelihood_
        score(f"{points} points", model, X_new, y_new, total, watch.peak)
    args.learned = kernel, likelihood
    report(f"  {kernel}, {likelihood}")


def kin40k_exact(args: argparse.Namespace) -> None:
    """Learned until no slope is above 5 nats an e-fold; every evaluation of the evidence is printed."""
    X, y, X_new, y_new = read_kin40k(args.data)
    kernel, likelihood = args.learned or (ConstantKernel(1.0) * Matern(np.full(X.shape[1], 2.0), nu=1.5), Gaussian(0.1))
    watch = Watch(args.device)
    family = KernelCovariance(kernel, torch.asarray(X, device=args.device), level=10.0)

    def tell(row: Any) -> None:
        report(f"  {watch.seconds:6.1f} s  " + "  ".join(f"{k} {v:.6g}" for k, v in row.items() if np.ndim(v) == 0))

    theta = np.concatenate([family.theta, likelihood.theta])
    found = learn(likelihood, family, y, theta=theta, tol=1e-7, gtol=5.0, max_iter=args.steps, callback=tell)
    seconds, peak = watch.seconds, watch.peak
    watch = Watch(args.device)
    h, rho = [], []
    for i in range(0, len(y_new), 1000):
        new = found.solution.posterior.at(family.new_rows(found.theta[: family.theta.size], X_new[i : i + 1000]))
        h.append(to_numpy(new.mean))
        rho.append(to_numpy(new.variance))
    mean, variance = np.concatenate(h), np.concatenate(rho) + float(found.likelihood.variance)
    away = (mean - y_new) ** 2
    nlpd = float(np.mean(0.5 * np.log(2.0 * np.pi * variance) + 0.5 * away / variance))
    numbers = f"{np.sqrt(away.mean()):>8.4f}{nlpd:>9.4f}{found.solution.elbo:>12.1f}{0.0:>11.1f}{seconds:>9.1f}"
    report(f"{'exact, learned':<22}{numbers}{peak / 2**30:>7.1f}{found.n_newton:>12}")
    report(f"  {found.n_evaluations} evaluations; predictions {watch.seconds:.1f} s; {found.status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8000, 16000, 32768, 65536])
    parser.add_argument("--bounds", nargs="+", default=["tilted"])
    parser.add_argument("--label-bounds", nargs="+", default=["tilted"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--kin-points", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--data", type=Path, default=None)
    args = parser.parse_args()
    args.learned = None
    name = torch.cuda.get_device_name() if args.device.startswith("cuda") else "cpu"
    report(f"torch {torch.__version__} on {name}, fenchel {fenchel.__version__}")
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "agree": agree,
        "exact": exact,
        "counts": lambda a: many_rows(a, "counts"),
        "binary": lambda a: many_rows(a, "binary"),
        "kin40k": kin40k,
        "kin40k-exact": kin40k_exact,
    }
    for part in args.parts:
        if part.startswith("kin40k") and args.data is None:
            report(f"{part}: not run without --data")
            continue
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                parts[part](args)
        except Exception:
            report(f"{part} FAILED\n{traceback.format_exc()}")
            if args.device.startswith("cuda"):
                torch.cuda.empty_cache()
        report(f"[{part}: {time.perf_counter() - began:.1f} s]")


if __name__ == "__main__":
    main()
