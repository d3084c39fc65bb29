"""Dense Gaussian process classification against its floor, one Cholesky factorisation of the same size.

    python benchmarks/dense.py [--sizes 1000 2000 4000] [--repeats 5]

Binary and five-class problems, 8-dimensional inputs, RBF length 2, log-sum bound, relative gap 1e-6. Every ratio is to
``scipy.linalg.cholesky`` of an N x N matrix timed in the same run (medians); memory is the peak above what existed when
``infer`` was called, in units of N^2 doubles, from tracemalloc in a run of its own.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy
import scipy.linalg
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit
from fenchel.priors import DenseCovariance


def median_time(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    top = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return top - before


def data(n: int, variance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel matrix, binary labels and five-class labels drawn from smooth functions of the inputs."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    K = variance * RBF(2.0)(X)
    scores = np.stack([np.sin(X[:, c]) + X[:, c + 1] * X[:, c + 2] for c in range(5)], axis=1)
    binary = (scores[:, 0] + 0.5 * rng.logistic(size=n) > 0).astype(float)
    classes = np.argmax(scores + 0.5 * rng.gumbel(size=(n, 5)), axis=1).astype(float)
    return K, binary, classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tol", type=float, default=1e-6)
    args = parser.parse_args()
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, fenchel {fenchel.__version__}")
    head = f"{'N':>6}{'variance':>10}{'model':>10}{'iterations':>12}{'seconds':>10}{'Cholesky s':>12}"
    print(head + f"{'ratio':>8}{'an iteration':>14}{'to binary':>11}{'peak/N^2':>10}")
    for n in args.sizes:
        for variance in (4.0, 100.0):
            K, binary, classes = data(n, variance)
            spd = K + np.eye(n)
            prior = DenseCovariance(K)
            models = [
                ("binary", BernoulliLogit("log-sum"), binary),
                ("softmax 5", MultinomialLogit(5, None, bound="log-sum"), classes),
            ]
            reference = None
            for name, likelihood, y in models:

                def fit(likelihood=likelihood, prior=prior, y=y):
                    return fenchel.infer(likelihood, prior, y, tol=args.tol)

                sol = fit()
                if not sol.converged:
                    raise SystemExit(f"{name} at N = {n} did not converge: {sol.status}")
                repeats = args.repeats if name == "binary" else max(1, args.repeats // 2)
                pairs = [
                    (median_time(fit, 1), median_time(lambda spd=spd: scipy.linalg.cholesky(spd, lower=True), 3))
                    for _ in range(repeats)
                ]
                seconds, floor = (float(np.median(column)) for column in zip(*pairs, strict=True))
                per = seconds / floor / sol.n_iter
                reference = per if reference is None else reference
                memory = peak(fit) / (8.0 * n * n)
                print(
                    f"{n:>6}{variance:>10g}{name:>10}{sol.n_iter:>12}{seconds:>10.3f}{floor:>12.4f}"
                    f"{seconds / floor:>8.1f}{per:>14.2f}{per / reference:>11.2f}{memory:>10.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
