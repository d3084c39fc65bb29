"""Bayesian logistic regression with a million rows against ``sklearn.linear_model.LogisticRegression``.

    python benchmarks/logistic_million.py [--rows 1000000] [--features 50] [--repeats 3] [--bound best] [--ard] ...

scikit-learn finds the mode with its default settings and C = the prior variance; ours gives the posterior mean with the
whole covariance, a bound on the evidence and a relative duality gap of 1e-10. Both are timed in the same run, in turns;
the ratio is of the medians. Memory is the peak above what existed when ``fit`` was called, in units of X, from
tracemalloc in a run of its own.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy
import sklearn
from sklearn.linear_model import LogisticRegression

import fenchel
from fenchel.estimators import BayesianLogisticRegression

VARIANCE = 1.0


def data(rows: int, features: int, correlation: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian features, neighbours correlated; a fifth of the coefficients are zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    for d in range(1, features if correlation else 0):
        X[:, d] = correlation * X[:, d - 1] + np.sqrt(1 - correlation**2) * X[:, d]
    w = 0.3 * rng.normal(size=features)
    w[: features // 5] = 0.0
    return X, (X @ w + 0.5 + rng.logistic(size=rows) > 0).astype(int)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    top = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return top - before


def compare(
    rows: int, features: int, repeats: int = 3, correlation: float = 0.0, ard: bool = False, bound: str = "best"
) -> float:
    """Print the comparison; return the ratio of times for a fixed variance."""
    X, y = data(rows, features, correlation)
    mode = LogisticRegression(C=VARIANCE)
    fixed = BayesianLogisticRegression(variance=VARIANCE, learn_variance=False, bound=bound)
    times = [(seconds(lambda: mode.fit(X, y)), seconds(lambda: fixed.fit(X, y))) for _ in range(repeats)]
    theirs, ours = (float(np.median(column)) for column in zip(*times, strict=True))
    print(f"logistic regression, {rows} rows x {features} features, correlation {correlation:g}")
    print(f"{'':<36}{'seconds':>9}{'ratio':>7}{'iterations':>12}{'rel. gap':>10}{'peak / X':>10}")

    def line(name: str, time_: float, iterations: int, gap: float | None, memory: float) -> None:
        shown = "-" if gap is None else f"{gap:.0e}"
        print(f"{name:<36}{time_:>9.2f}{time_ / theirs:>7.2f}{iterations:>12}{shown:>10}{memory:>10.2f}", flush=True)

    def relative(model: BayesianLogisticRegression) -> float:
        return model.gap_ / max(1.0, abs(model.elbo_))

    line("scikit-learn, mode", theirs, int(mode.n_iter_[0]), None, peak(lambda: mode.fit(X, y)) / X.nbytes)
    memory = peak(lambda: fixed.fit(X, y)) / X.nbytes
    line("full posterior, fixed variance", ours, fixed.n_iter_, relative(fixed), memory)
    for prior in ("ridge", "ard") if ard else ("ridge",):
        model = BayesianLogisticRegression(prior, bound=bound)
        spent = seconds(lambda model=model: model.fit(X, y))
        memory = peak(lambda model=model: model.fit(X, y)) / X.nbytes
        line(f"full posterior, {prior} learned", spent, model.n_iter_, relative(model), memory)
    away = np.abs((mode.coef_ - fixed.coef_) / fixed.coef_std_).max()
    print(f"coefficients differ from the mode by at most {away:.3f} posterior standard deviations")
    print(f"first fit of the run: {times[0][1]:.2f} s, {times[0][1] / times[0][0]:.2f} times scikit-learn's first")
    return ours / theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--correlation", type=float, default=0.0)
    parser.add_argument("--bound", default="best", help="the default treatment (exact), or tilted, or log-sum")
    parser.add_argument("--ard", action="store_true", help="learn a variance for each feature too")
    args = parser.parse_args()
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}, ", end="")
    print(f"fenchel {fenchel.__version__}")
    compare(args.rows, args.features, args.repeats, args.correlation, args.ard, args.bound)


if __name__ == "__main__":
    main()
