"""Which evidence should choose hyperparameters, the elbo or the corrected one? Log losses of binary Gaussian processes.

    python benchmarks/corrected_learning.py             about five minutes on one core
    python benchmarks/corrected_learning.py --splits 2  quicker

A constant times an RBF with one length, both learned from 60 to 150 training rows. Log losses are in bits a test row,
mean over the splits; the difference has its standard error over them. Predictions are q's at either theta: what differs
is theta alone. Variance components against quadrature are in ``benchmarks/random_intercepts.py``.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.preprocessing import StandardScaler

from fenchel.datasets import load_glass, load_pima
from fenchel.hyperparameters import KernelCovariance, Learned, learn
from fenchel.kernels import diagonal, evaluate
from fenchel.likelihoods import BernoulliLogit


def tables() -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """X, y of two classes, and how many rows to train on."""
    pima, glass, iris, wine, cancer = load_pima(), load_glass(), load_iris(), load_wine(), load_breast_cancer()
    kept = iris.target > 0
    return {
        "Pima": (pima.X, pima.y, 150),
        "Glass, floats": (glass.X, glass.y == glass.y[0], 100),
        "Breast cancer": (cancer.data[:, :10], cancer.target, 120),
        "Iris, 2 of 3": (iris.data[kept], iris.target[kept] == 2, 60),
        "Wine, 2nd": (wine.data[:, :5], wine.target == 1, 80),
        "Two moons, noisy": moons(),
    }


def moons() -> tuple[np.ndarray, np.ndarray, int]:
    from sklearn.datasets import make_moons

    X, y = make_moons(600, noise=0.35, random_state=0)
    return X, y, 100


def log_loss(found: Learned, kernel: ConstantKernel, X: np.ndarray, Z: np.ndarray, z: np.ndarray) -> float:
    """Bits a row at Z."""
    k = kernel.clone_with_theta(found.theta)
    h, rho = found.solution.posterior.predict(cross=evaluate(k, Z, X), variance=diagonal(k, Z))
    p = np.asarray(found.likelihood.predictive_mean(h, rho))
    return float(-np.mean(np.log2(np.where(z > 0, p, 1.0 - p))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--splits", type=int, default=8)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'table':<18}{'rows':>5}{'elbo':>8}{'corrected':>11}{'difference':>18}{'variance':>18}{'seconds':>14}  held"
    )
    for name, (X, y, n) in tables().items():
        bits, sizes, seconds, held = [], [], [], 0
        for seed in range(args.splits):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[:n], order[n:]
            scaler = StandardScaler().fit(X[train])
            A, B, a, b = scaler.transform(X[train]), scaler.transform(X[test]), y[train] * 1.0, y[test] * 1.0
            kernel = ConstantKernel(4.0, (1e-2, 1e5)) * RBF(np.sqrt(A.shape[1]), (1e-2, 1e3))
            family = KernelCovariance(kernel, A)
            row = []
            for evidence in ("elbo", "corrected"):
                began = time.perf_counter()
                found = learn(BernoulliLogit("exact"), family, a, evidence=evidence)
                row.append((log_loss(found, kernel, A, B, b), np.exp(found.theta[0]), time.perf_counter() - began))
            held += found.maximises == "corrected"
            bits.append([r[0] for r in row])
            sizes.append([r[1] for r in row])
            seconds.append([r[2] for r in row])
        table, size, took = np.array(bits), np.median(sizes, axis=0), np.median(seconds, axis=0)
        gain = table[:, 1] - table[:, 0]
        se = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
        print(
            f"{name:<18}{n:>5}{table[:, 0].mean():>8.4f}{table[:, 1].mean():>11.4f}"
            f"{gain.mean():>+10.4f} +- {se:.4f}{size[0]:>9.1f}{size[1]:>9.1f}{took[0]:>7.2f}{took[1]:>7.2f}"
            f"{held:>4}/{args.splits}",
            flush=True,
        )


if __name__ == "__main__":
    main()
