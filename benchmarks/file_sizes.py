"""How large files of fitted estimators are, and how small they could be.

    python benchmarks/file_sizes.py [N]

The floor is what predictions with variances cannot do without: for a Gaussian process the triangle of one N x N factor
a class, alpha and lam; for a linear model the mean and the covariance of the weights; for factors the loadings. Beyond
it a file has the data of the fit (X, y, weights), from which leave-one-out, corrections and the evidence elsewhere are
computed, and json. Nothing that grows with N^2 but the floor.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF

import fenchel

warnings.simplefilter("ignore")


def estimators(n: int) -> dict[str, tuple[object, int]]:
    """Fitted ones, and the floor of each in numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    eta = X @ [1.0, 0.0, -1.0]
    y, counts, classes = eta + rng.normal(size=n), rng.poisson(np.exp(0.3 * eta)), np.digitize(eta, [-1.0, 1.0])
    frame = pd.DataFrame({"r": np.arange(n) % 50, "x": X[:, 0], "y": y})
    ring = np.roll(np.eye(50), 1, axis=0) + np.roll(np.eye(50), -1, axis=0)
    kept = {"kernel": 1.0 * RBF(1.0), "optimizer": None}
    one = n * (n + 1) // 2 + 2 * n + 3 * n
    return {
        "GaussianProcessClassifier, 2 classes": (fenchel.GaussianProcessClassifier(**kept).fit(X, y > 0), one),
        "GaussianProcessClassifier, 3 classes": (
            fenchel.GaussianProcessClassifier(**kept).fit(X, classes),
            3 * (n * (n + 1) // 2 + 2 * n) + 3 * n,
        ),
        "GaussianProcessRegressor": (fenchel.GaussianProcessRegressor(**kept).fit(X, y), one),
        "GaussianProcessPoissonRegressor": (fenchel.GaussianProcessPoissonRegressor(**kept).fit(X, counts), one),
        "BayesianLinearRegression": (fenchel.BayesianLinearRegression().fit(X, y), 4 + 10),
        "BayesianLogisticRegression": (fenchel.BayesianLogisticRegression().fit(X, y > 0), 4 + 10),
        "BayesianPoissonRegression": (fenchel.BayesianPoissonRegression().fit(X, counts), 4 + 10),
        "FormulaRegressor, 50 regions": (
            fenchel.FormulaRegressor("k ~ x + icar(r)", "poisson", graphs={"r": ring}).fit(frame[["r", "x"]], counts),
            52 + 52 * 53 // 2,
        ),
        'fenchel.fit("y ~ ar1(t)", "stochastic-volatility", accuracy="fast")': (
            fenchel.fit("y ~ ar1(t)", frame.assign(t=np.arange(n)), "stochastic-volatility", accuracy="fast"),
            3 * n,
        ),
        "ProbabilisticPCA": (fenchel.ProbabilisticPCA(2).fit(X), 2 * 3 + 3 + 3),
        'fenchel.fit("y ~ x + (1|r)")': (fenchel.fit("y ~ x + (1|r)", frame, accuracy="fast"), 52 + 52 * 53 // 2),
    }


def main(n: int) -> None:
    print(f"{n} rows, 3 columns; bytes\n{'':40}{'floor':>12}{'file':>12}{'file/N^2/8':>12}{'save, load':>16}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for name, (fit, floor) in estimators(n).items():
            begun = time.perf_counter()
            fenchel.save(fit, path)
            saved = time.perf_counter()
            fenchel.load(path)
            seconds = f"{saved - begun:.2f} {time.perf_counter() - saved:.2f} s"
            size = path.stat().st_size
            print(f"{name:40}{8 * floor:>12,}{size:>12,}{size / (8 * n * n):>12.3f}{seconds:>16}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
