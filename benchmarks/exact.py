"""The exact mode against the tilted dual it starts from, and what it is worth in prediction.

    python benchmarks/exact.py              both parts, some minutes on two cores
    python benchmarks/exact.py --cost       factorisations and times only
    python benchmarks/exact.py --splits 10  how many train/test splits the table of predictions has

Cost: RBF Gaussian process classification at growing signal variance, relative gap 1e-6, medians in one run; "factors"
counts every Cholesky factorisation of an N x N matrix. Memory is the peak above what existed when ``infer`` was called,
in N^2 doubles. Predictions: every method learns variance and length by its own evidence on the same training rows, from
the same start and within the same bounds; the table has the mean test log loss (in bits) over random splits, and the
mean difference from scikit-learn's Laplace with its standard error over the splits.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings

import numpy as np
import scipy
import sklearn
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process import GaussianProcessClassifier as Laplace
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss

import fenchel
from fenchel.datasets import load_pima
from fenchel.estimators import GaussianProcessClassifier
from fenchel.likelihoods import BernoulliLogit
from fenchel.linalg import dense
from fenchel.priors import DenseCovariance

SETTINGS = [(1.0, 5.0), (9.0, 5.0), (100.0, 5.0), (1e4, 10.0)]  # signal variance, length


def data_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    pima, (X, y) = load_pima(), load_breast_cancer(return_X_y=True)
    return {"Pima": (np.asarray(pima.X), np.asarray(pima.y)), "Breast cancer": (X, y)}


def synthetic(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    score = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.logistic(size=n)
    return X, (score > 0).astype(float)


class Counter:
    """Counts the factorisations of N x N matrices."""

    def __init__(self) -> None:
        self.count, self._plain = 0, dense.cholesky

    def __enter__(self) -> Counter:
        def counted(A: np.ndarray) -> np.ndarray:
            self.count += 1
            return self._plain(A)

        dense.cholesky = counted  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        dense.cholesky = self._plain


def cost(name: str, X: np.ndarray, y: np.ndarray, repeats: int) -> None:
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    square = cdist(Z, Z, "sqeuclidean")
    print(f"\n{name}, {len(y)} rows, relative gap 1e-6")
    print(f"  {'variance':>9}{'bound':>9}{'steps':>7}{'factors':>9}{'s':>9}{'ratio':>7}{'N^2':>6}{'elbo':>14}   gap")
    for variance, length in SETTINGS:
        prior = DenseCovariance(variance * np.exp(-square / (2 * length**2)) + 1e-6 * variance * np.eye(len(y)))
        seconds: dict[str, list[float]] = {"tilted": [], "exact": []}
        for _ in range(repeats):
            for bound, times in seconds.items():  # in turns, so that both meet the same machine
                began = time.perf_counter()
                fenchel.infer(BernoulliLogit(bound), prior, y, tol=1e-6)
                times.append(time.perf_counter() - began)
        unit = float(np.median(seconds["tilted"]))
        for bound, times in seconds.items():
            with Counter() as counter:
                sol = fenchel.infer(BernoulliLogit(bound), prior, y, tol=1e-6)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            fenchel.infer(BernoulliLogit(bound), prior, y, tol=1e-6)
            peak = (tracemalloc.get_traced_memory()[1] - before) / (8.0 * len(y) ** 2)
            tracemalloc.stop()
            median = float(np.median(times))
            print(
                f"  {variance:>9g}{bound:>9}{sol.n_iter:>7}{counter.count:>9}{median:>9.3f}{median / unit:>7.2f}"
                f"{peak:>6.1f}{sol.elbo:>14.4f}   {sol.gap:.1e} ({sol.certificate})"
                f"{'' if sol.converged else ' NOT CONVERGED'}"
            )


def predictions(name: str, X: np.ndarray, y: np.ndarray, splits: int) -> None:
    methods = ["log-sum", "tilted", "exact", "Laplace"]
    losses: dict[str, list[float]] = {method: [] for method in methods}
    seconds: dict[str, float] = dict.fromkeys(methods, 0.0)
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
        A, B = (X[train] - mean) / sd, (X[test] - mean) / sd
        kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(float(np.sqrt(X.shape[1])), (1e-2, 1e3))
        for method in methods:
            model = Laplace(kernel) if method == "Laplace" else GaussianProcessClassifier(kernel, bound=method)
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn says when a length meets its bound
                model.fit(A, y[train])
            seconds[method] += time.perf_counter() - began
            losses[method].append(log_loss(y[test], model.predict_proba(B), labels=model.classes_) / np.log(2))
    print(f"\n{name}: half the rows to learn from, half to test on, {splits} splits")
    against = "".join(f"{'minus ' + other:>16}{'+- se':>9}" for other in ("Laplace", "log-sum"))
    print(f"  {'':<10}{'test log loss, bits':>20}{against}{'s':>8}")
    for method in methods:
        own = np.array(losses[method])
        columns = ""
        for other in ("Laplace", "log-sum"):
            d = own - np.array(losses[other])
            columns += (
                f"{d.mean():>16.4f}{d.std(ddof=1) / np.sqrt(splits):>9.4f}" if splits > 1 else f"{d.mean():>25.4f}"
            )
        print(f"  {method:<10}{own.mean():>20.4f}{columns}{seconds[method] / splits:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cost", action="store_true")
    args = parser.parse_args()
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}")
    sets = data_sets()
    for name, (X, y) in sets.items():
        cost(name, X, y.astype(float), args.repeats)
    cost("Synthetic", *synthetic(2000), repeats=max(1, args.repeats // 3))
    if not args.cost:
        for name, (X, y) in sets.items():
            predictions(name, X, y, args.splits)


if __name__ == "__main__":
    main()
