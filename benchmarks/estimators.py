"""Estimators against scikit-learn's: time to learn, test log loss, several classes, a million rows, memory.

    python benchmarks/estimators.py            everything, about ten minutes on two cores
    python benchmarks/estimators.py small      learning from 50 to 400 rows, on one BLAS thread and on two: a minute
    python benchmarks/estimators.py predict    labels and probabilities of 100,000 new rows, with the peak of memory
    python benchmarks/estimators.py --quick    small sets, one repeat

Every comparison has the same kernel, the same starting point and bounds, and no restarts; times are medians in one run.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import scipy
import sklearn
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.gaussian_process import GaussianProcessClassifier as Laplace
from sklearn.gaussian_process import GaussianProcessRegressor as TheirRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import accuracy_score, log_loss
from sklearn.multiclass import OneVsRestClassifier
from threadpoolctl import threadpool_limits

import fenchel
from fenchel.datasets import load_glass, load_pima
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessRegressor

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y of training; X, y of test


def standardised(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Split:
    mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(sd > 0, sd, 1.0)
    return Z[train], y[train], Z[test], y[test]


def pima() -> Split:
    data = load_pima()
    return standardised(data.X, data.y, data.train, data.test)


def parts(X: np.ndarray, y: np.ndarray, n_train: int, n_test: int | None = None, seed: int = 0) -> Split:
    order = np.random.default_rng(seed).permutation(len(y))
    return standardised(X, y, order[:n_train], order[n_train : None if n_test is None else n_train + n_test])


def synthetic(n: int) -> Split:
    """A smooth function of four inputs seen through a logistic; two more inputs say nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * n, 6))
    eta = 2 * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] - X[:, 3]
    y = (rng.random(2 * n) < 1 / (1 + np.exp(-1.5 * eta))).astype(int)
    return parts(X, y, n)


def kernel(X: np.ndarray) -> ConstantKernel:
    """Where everybody starts: unit variance, the length at which a standardised cloud of this dimension is smooth."""
    return ConstantKernel(1.0, (1e-3, 1e4)) * RBF(float(np.sqrt(X.shape[1])), (1e-2, 1e3))


def timed(
    make: Callable[[], object],
    X: np.ndarray,
    y: np.ndarray,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[object, float]:
    seconds, model = [], None
    for _ in range(repeats):
        fresh, began = make(), clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fresh.fit(X, y)  # type: ignore[attr-defined]
        seconds.append(clock() - began)
    return model, float(np.median(seconds))


def binary(name: str, split: Split, repeats: int) -> None:
    X, y, X_test, y_test = split
    start = kernel(X)
    theirs, unit = timed(lambda: Laplace(start), X, y, repeats)
    print(f"\n{name}: {X.shape[0]} rows to learn from, {X_test.shape[0]} to test on, {X.shape[1]} features")
    print(f"  {'':<28}{'s':>8}{'ratio':>8}{'evidence':>12}{'test log loss':>15}{'accuracy':>10}   learned kernel")

    def line(label: str, model: object, seconds: float, evidence: float) -> None:
        p = model.predict_proba(X_test)  # type: ignore[attr-defined]
        print(
            f"  {label:<28}{seconds:>8.3f}{seconds / unit:>8.2f}{evidence:>12.3f}{log_loss(y_test, p):>15.4f}"
            f"{accuracy_score(y_test, np.argmax(p, axis=1)):>10.3f}   {model.kernel_}"  # type: ignore[attr-defined]
        )

    line("scikit-learn, Laplace", theirs, unit, theirs.log_marginal_likelihood_value_)  # type: ignore[attr-defined]
    for bound in ("exact", "tilted", "log-sum"):
        ours, seconds = timed(lambda bound=bound: GaussianProcessClassifier(start, bound=bound), X, y, repeats)
        line(f"fenchel, {bound}", ours, seconds, ours.elbo_)  # type: ignore[attr-defined]


def several(name: str, split: Split) -> None:
    X, y, X_test, y_test = split
    start = kernel(X)
    classes = len(np.unique(y))
    print(f"\n{name}: {classes} classes, {X.shape[0]} rows to learn from, {X_test.shape[0]} to test on")
    print(f"  {'':<44}{'s':>8}{'test log loss':>15}{'accuracy':>10}")
    for label, make in (
        ("joint softmax, tilted", lambda: GaussianProcessClassifier(start)),
        ("one against the rest, tilted", lambda: OneVsRestClassifier(GaussianProcessClassifier(start))),
        ("one against the rest, scikit-learn's Laplace", lambda: Laplace(start)),
    ):
        model, seconds = timed(make, X, y, 1)
        p = model.predict_proba(X_test)  # type: ignore[attr-defined]
        hit = accuracy_score(y_test, np.unique(y)[np.argmax(p, axis=1)])
        print(f"  {label:<44}{seconds:>8.2f}{log_loss(y_test, p, labels=np.unique(y)):>15.4f}{hit:>10.3f}")


def memory(n: int, d: int = 20) -> None:
    """The peak while an ARD kernel is learned, in units of one N x N matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=n) > 1).astype(int)
    model = GaussianProcessClassifier(ConstantKernel(1.0, (1e-3, 1e4)) * RBF(np.full(d, 4.0), (1e-1, 1e2)))
    tracemalloc.start()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    seconds, peak = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"\nARD, {d} length scales, {n} rows: peak {peak / (8 * n * n):.1f} N^2 doubles (limit 12), {seconds:.0f} s")


def real(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The same inputs, and a smooth function of them with noise."""
    X = synthetic(n)[0]
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * np.random.default_rng(1).normal(size=n)


def small(repeats: int, threads: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Learning from few rows, turns taken in one run: medians, and the median of the turns' ratios.

    Processor time on one thread, time by the clock on two. ``no kernel`` is the call without one, which also chooses
    it by the evidence: scikit-learn's own default learns nothing, so its time is that of the given kernel.
    """
    cancer = load_breast_cancer(return_X_y=True)
    for name, split in (("Synthetic", synthetic), ("Breast cancer", lambda n: parts(*cancer, n))):
        title, data = f"Classifier, {name}, two hyperparameters", lambda n, split=split: split(n)[:2]
        _small(title, repeats, threads, sizes, data, True)
    _small("Regressor, synthetic, two hyperparameters and the noise", repeats, threads, sizes, real, False)


def _small(
    title: str, repeats: int, cores: tuple[int, ...], sizes: tuple[int, ...], data: Callable, classifies: bool
) -> None:
    ours = ("exact", "tilted", "no kernel") if classifies else ("fenchel", "no kernel")
    print(
        f"\n{title}\n{'rows':>6}{'threads':>9}" + "".join(f"{word + ' ms':>14}" for word in (*ours, "scikit-learn")),
        end="",
    )
    print("".join(f"{'ratio, ' + word:>18}" for word in ours))
    for n in sizes:
        X, y = data(n)
        start = kernel(X)
        if classifies:
            makers = [
                lambda start=start: GaussianProcessClassifier(start, bound="exact"),
                lambda start=start: GaussianProcessClassifier(start, bound="tilted"),
                lambda: GaussianProcessClassifier(),
                lambda start=start: Laplace(start),
            ]
        else:
            makers = [
                lambda start=start: GaussianProcessRegressor(start),
                lambda: GaussianProcessRegressor(),
                lambda start=start: TheirRegressor(start + WhiteKernel(1.0), alpha=1e-10),
            ]
        for threads in cores:
            clock = time.process_time if threads == 1 else time.perf_counter
            with threadpool_limits(threads, user_api="blas"):
                turns = np.array([[timed(make, X, y, 1, clock)[1] for make in makers] for _ in range(repeats)])
            ratios = np.median(turns[:, :-1] / turns[:, -1:], axis=0)
            print(f"{n:>6}{threads:>9}" + "".join(f"{1e3 * s:>14.1f}" for s in np.median(turns, axis=0)), end="")
            print("".join(f"{ratio:>18.2f}" for ratio in ratios), flush=True)


def prediction(n: int, m: int) -> None:
    """Labels, whose sign of the mean suffices, and probabilities, which need variances, of m new rows."""
    X, y = synthetic(n)[:2]
    new = np.random.default_rng(1).normal(size=(m, X.shape[1]))
    print(f"\n{m} new rows, {n} to learn from (one covariance of theirs: {8 * m * n / 2**30:.2f} GiB)")
    print(f"  {'':<28}{'fenchel s':>11}{'scikit-learn s':>16}{'ratio':>8}{'peak MiB':>10}{'theirs':>10}")
    both = [make(kernel(X), optimizer=None).fit(X, y) for make in (GaussianProcessClassifier, Laplace)]
    for method in ("predict", "predict_proba"):
        seconds, peaks = [], []
        for model in both:
            turns = []
            for _ in range(3):
                began = time.perf_counter()
                getattr(model, method)(new)
                turns.append(time.perf_counter() - began)
            tracemalloc.start()
            getattr(model, method)(new)
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
            seconds.append(float(np.median(turns)))
        print(f"  {method:<28}{seconds[0]:>11.2f}{seconds[1]:>16.2f}{seconds[0] / seconds[1]:>8.2f}", end="")
        print(f"{peaks[0]:>10.0f}{peaks[1]:>10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("all", "small", "predict"), default="all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of BLAS, in small")
    asked = parser.parse_args()
    quick = asked.quick
    print(
        f"fenchel {fenchel.__version__}, scikit-learn {sklearn.__version__}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )
    repeats = 1 if quick else 5
    if asked.part in ("all", "small"):
        small(1 if quick else 9, tuple(asked.threads), (50, 100) if quick else (50, 100, 200, 400))
    if asked.part in ("all", "predict"):
        prediction(200 if quick else 2000, 2000 if quick else 100_000)
    if asked.part != "all":
        return
    binary("Pima", pima(), repeats)
    binary("Breast cancer", parts(*load_breast_cancer(return_X_y=True), 455), repeats)
    binary("Synthetic", synthetic(300 if quick else 2000), 1)
    glass = load_glass()
    several("Glass", parts(glass.X, glass.y, 171))
    several("Digits, a subset", parts(*load_digits(return_X_y=True), 100 if quick else 500, 1000))
    memory(300 if quick else 3000)
    import logistic_million

    logistic_million.compare(20_000 if quick else 1_000_000, 50)


if __name__ == "__main__":
    main()
