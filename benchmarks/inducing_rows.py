"""Gaussian processes of very many rows through inducing points: seconds, processor seconds and peak memory.

    python benchmarks/inducing_rows.py [--rows 1000000] [--points 500] [--kind labels | counts] [--fixed]
    python benchmarks/inducing_rows.py --interrupt 60       Ctrl-C after so many seconds: what the model holds then

Six standard normal columns, eta = 2 sin(1.5 x_0) + x_1 x_2 - x_3 / 2, labels or counts of it; the kernel is a constant
times an RBF with a length for each column, learned (``--fixed``: kept). The last 10,000 rows are predicted. A pass over
the rows takes N M^2 multiplications for W' Lam W; the floor is that times the Newton steps over all rows.
"""

from __future__ import annotations

import argparse
import resource
import signal
import time
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor

NEW = 10_000


def drawn(n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    eta = 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] - 0.5 * X[:, 3]
    y = eta + rng.logistic(size=n) > 0.0 if kind == "labels" else rng.poisson(np.exp(np.minimum(0.5 * eta, 5.0)))
    return X, y.astype(int)


def floor(n: int, points: int) -> float:
    """Seconds of one product of a block of rows with itself, for all rows, on one core."""
    step = 1024
    G = np.random.default_rng(0).normal(size=(step, points))
    began, times = time.process_time(), 5
    for _ in range(times):
        G.T @ G
    return (time.process_time() - began) / times * n / step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--kind", choices=("labels", "counts"), default="labels")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--interrupt", type=int)
    args = parser.parse_args()
    X, y = drawn(args.rows + NEW, args.kind)
    kernel = ConstantKernel(4.0, (1e-2, 1e4)) * RBF(np.full(6, 2.5), (1e-1, 1e4))
    options: dict[str, Any] = {"approximation": "inducing", "n_inducing": args.points, "progress": True}
    make: Any = GaussianProcessClassifier if args.kind == "labels" else GaussianProcessPoissonRegressor
    model = make(kernel, optimizer=None if args.fixed else "fmin_l_bfgs_b", **options)
    if args.interrupt:
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.alarm(args.interrupt)
    began, processor = time.perf_counter(), time.process_time()
    try:
        model.fit(X[:-NEW], y[:-NEW])
    except KeyboardInterrupt as stop:
        print(f"\n{type(stop).__name__}: {stop}")
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cost = f"{seconds:.0f} s, {processor:.0f} processor s, {memory:.2f} GiB"
    print(f"\n{args.rows} rows, {args.points} points, {args.kind}: {cost}")
    print(f"W' Lam W of all rows alone: {floor(args.rows, args.points):.1f} processor s a Newton step")
    print(f"Newton steps {model.n_iter_}; held-out log density of a row {model.score(X[-NEW:], y[-NEW:]):.4f}")
    print(model.approximation_.to_string(index=False))
    print(model.summary())


if __name__ == "__main__":
    main()
