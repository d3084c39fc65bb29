"""A Gaussian process of labels over rows in parquet, by two workers of 2 GiB: passes, seconds and memory a worker.

    python benchmarks/inducing_dask.py [--rows 10000000] [--points 300] [--partitions 40] [--checks]

Six standard normal columns, labels of eta = 2 sin(1.5 x_0) + x_1 x_2 - x_3 / 2, written to parquet by the workers. The
kernel is a constant times an RBF with a length for each column, learned. ``--checks``: 100,000 of the rows with the
points and the kernel of that fit, in partitions and in memory, and the same with a worker killed in the third pass.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel.estimators import GaussianProcessClassifier

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]  # it has a sparse.py
COLUMNS = [f"x{d}" for d in range(6)]
CHECKED = 100_000


def written(path: str, number: int, rows: int) -> int:
    """One file of the table."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, 6))
    eta = 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] - 0.5 * X[:, 3]
    frame = pd.DataFrame(X, columns=COLUMNS)
    frame["y"] = (eta + rng.logistic(size=rows) > 0.0).astype(int)
    frame.to_parquet(Path(path) / f"part.{number}.parquet")
    return rows


def peak() -> float:
    """GiB of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def killed_after(client: Any, seconds: float) -> None:
    """Kill one worker a little later."""
    pid = next(iter(client.run(os.getpid).values()))
    threading.Timer(seconds, lambda: os.kill(pid, signal.SIGKILL)).start()


def checks(client: Any, table: Any, model: Any, partitions: int) -> None:
    """The fit in partitions against the one in memory, and with a worker killed."""
    import dask.array as da

    some = table.head(CHECKED, npartitions=-1)
    X, y = some[COLUMNS].to_numpy(), some["y"].to_numpy()
    cut = -(-len(y) // max(4, partitions // 4))
    parts = da.from_array(X, chunks=(cut, 6)).persist(), da.from_array(y, chunks=cut).persist()
    points = model._latent.result.family.points
    held = {"n_inducing": points, "approximation": "inducing", "optimizer": None, "tol": 1e-14}

    def fit(*rows: Any) -> Any:
        return GaussianProcessClassifier(model.kernel_, **held).fit(*rows)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rounding, which ends a fit before 1e-14
        memory, began = fit(X, y), time.perf_counter()
        dask = fit(*parts)
        took = time.perf_counter() - began
        killed_after(client, 0.5 * took)
        lost = fit(*parts)
    inside, outside = (m.latent_mean_and_variance(X[:2000]) for m in (memory, dask))
    third = lost.latent_mean_and_variance(X[:2000])
    for name, other in (("in partitions", outside), ("a worker killed", third)):
        away = [np.abs(a - b).max() for a, b in zip(inside, other, strict=True)]
        print(f"{len(y)} rows, {name} against memory: means of eta {away[0]:.1e}, variances {away[1]:.1e}", flush=True)
    gone = (memory.elbo_, dask.elbo_, lost.elbo_)
    print(f"elbo: memory {gone[0]:.8f}, partitions {gone[1]:.8f}, a worker killed {gone[2]:.8f}")


def main() -> None:
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--checks", action="store_true")
    args = parser.parse_args()
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GiB", "dashboard_address": None}
    with tempfile.TemporaryDirectory() as folder, LocalCluster(**options) as cluster, Client(cluster) as client:
        each = args.rows // args.partitions
        client.gather([client.submit(written, folder, i, each) for i in range(args.partitions)])
        table = dd.read_parquet(folder)
        kernel = ConstantKernel(4.0, (1e-2, 1e4)) * RBF(np.full(6, 2.5), (1e-1, 1e4))
        began = time.perf_counter()
        model = GaussianProcessClassifier(kernel, n_inducing=args.points).fit(table[COLUMNS], table["y"])
        seconds = time.perf_counter() - began
        memory = client.run(peak)
        print(f"{args.rows} rows in {args.partitions} files, {args.points} points: {seconds:.0f} s")
        print(
            f"passes {model.solution_.n_passes}; GiB a worker, at most: {max(memory.values()):.2f}; here: {peak():.2f}"
        )
        print(model.approximation_.to_string(index=False))
        print(model.kernel_)
        print(model.summary(), flush=True)
        if args.checks:
            checks(client, table, model, args.partitions)


if __name__ == "__main__":
    main()
