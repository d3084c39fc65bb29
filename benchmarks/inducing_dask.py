"""A Gaussian process of labels over rows in parquet, by two workers of 2 GiB: passes, seconds and memory a worker.

    python benchmarks/inducing_dask.py large [--rows 10000000] [--folder DIR] [--points 300] [--partitions 84]
        [--threads 7] [--kill 0] [--held-out 200000]
    python benchmarks/inducing_dask.py checks [--rows 60000] [--points 100]

Six standard normal columns, labels of eta = 2 sin(1.5 x_0) + x_1 x_2 - x_3 / 2 with logistic noise, written to parquet
by partitions from a seed; files that are there already are kept. The kernel is a constant times an RBF with a length of
its own for each column, learned.

large    the fit, its passes as they end, the memory of each worker's process (psutil, every 50 ms), what the points
         cost, and the log loss of rows held out, beside that of the true probabilities. ``--kill n``: the fit with the
         theta found twice more, once with a worker killed in its n-th pass; elbo and predictions of both are compared.
checks   with points and kernel held: in partitions on the cluster, in memory, and with a worker killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel import GaussianProcessClassifier
from fenchel.distributed import Partitions

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]  # it has a sparse.py
COLUMNS = [f"x{d}" for d in range(6)]
MEMORY = "2GiB"


def drawn(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, labels, and the true eta."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    eta = 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] - 0.5 * X[:, 3]
    return X, (eta + rng.logistic(size=rows) > 0.0).astype(np.int64), eta


def written(path: str, number: int, rows: int) -> int:
    """One file of the table, unless it is there."""
    file = Path(path) / f"part.{number:05d}.parquet"
    if not file.exists():
        X, y, _ = drawn(number + 1, rows)
        frame = pd.DataFrame(X, columns=COLUMNS)
        frame["y"] = y
        frame.to_parquet(file.with_suffix(".writing"))
        file.with_suffix(".writing").rename(file)
    return rows


class Watch:
    """The largest resident memory of each process, looked at every 50 ms."""

    def __init__(self, client: Any) -> None:
        import psutil

        self.client, self.psutil, self.peaks = client, psutil, dict[int, float]()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self) -> None:
        while not self.ended.wait(0.05):
            for child in self.psutil.Process().children(recursive=True):
                with contextlib.suppress(self.psutil.Error):
                    self.peaks[child.pid] = max(self.peaks.get(child.pid, 0.0), child.memory_info().rss / 2**30)

    def __enter__(self) -> Watch:
        self.workers = set(self.client.run(os.getpid).values())
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(Exception):
            self.workers |= set(self.client.run(os.getpid).values())
        self.ended.set()
        self.thread.join()

    def __str__(self) -> str:
        return ", ".join(f"{self.peaks.get(pid, np.nan):.2f}" for pid in sorted(self.workers))


@contextlib.contextmanager
def told(before: Callable[[int], object] = lambda n: None) -> Iterator[list[float]]:
    """Print every pass as it ends; ``before`` hears of its number first."""
    plain, began, seconds = Partitions.reduce, time.perf_counter(), list[float]()

    def reduce(self: Any, work: Any, *given: Any) -> Any:
        before(self.passes[0] + 1)
        start = time.perf_counter()
        out = plain(self, work, *given)
        seconds.append(time.perf_counter() - start)
        print(f"  pass {self.passes[0]} ({work.__name__}): {seconds[-1]:.1f} s, at {start - began:.0f} s", flush=True)
        return out

    Partitions.reduce = reduce  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Partitions.reduce = plain  # type: ignore[method-assign]


def kill_one(client: Any, after: float) -> None:
    """Kill a worker a little later."""
    pid = next(iter(client.run(os.getpid).values()))
    print(f"  worker {pid} is killed in {after:.1f} s", flush=True)
    threading.Timer(after, lambda: os.kill(pid, signal.SIGKILL)).start()


def fitted(client: Any, rows: tuple[Any, Any], kill: int = 0, after: float = 1.0, **options: Any) -> tuple[Any, float]:
    """A fit with its passes printed, and the seconds of its third; a worker is killed in pass ``kill``."""
    began = time.perf_counter()
    with told(lambda n: kill_one(client, after) if n == kill else None) as seconds, Watch(client) as watch:
        model = GaussianProcessClassifier(**options).fit(*rows)
    took = time.perf_counter() - began
    print(
        f"{model.solution_.n_passes} passes, {took:.0f} s, of which {sum(seconds):.0f} s in passes; "
        f"GiB of each worker at most: {watch} (limit {MEMORY})",
        flush=True,
    )
    return model, seconds[2]


def differences(name: str, one: Any, other: Any, X: np.ndarray) -> None:
    """How far two fits are apart."""
    pairs = zip(one.latent_mean_and_variance(X), other.latent_mean_and_variance(X), strict=True)
    means, variances = (float(np.abs(a - b).max()) for a, b in pairs)
    elbo = abs(one.elbo_ - other.elbo_)
    print(f"{name}: means of eta differ by {means:.1e}, variances by {variances:.1e}, elbo by {elbo:.1e}", flush=True)


def large(client: Any, folder: str, args: argparse.Namespace) -> None:
    import dask.dataframe as dd

    each = -(-args.rows // args.partitions)
    sizes = [min(each, args.rows - i * each) for i in range(args.partitions)]
    began = time.perf_counter()
    client.gather([client.submit(written, folder, i, n, pure=False) for i, n in enumerate(sizes) if n > 0])
    print(f"{args.rows} rows x 6 in {args.partitions} files: {time.perf_counter() - began:.0f} s", flush=True)
    table = dd.read_parquet(folder)
    rows = table[COLUMNS], table["y"]
    kernel = ConstantKernel(4.0, (1e-2, 1e4)) * RBF(np.full(6, 2.5), (1e-1, 1e4))
    model, _ = fitted(client, rows, kernel=kernel, n_inducing=args.points)
    print(model.summary())
    print(model.approximation_.to_string(index=False))
    print(model.kernel_)
    X, y, eta = drawn(0, args.held_out)
    losses = -np.log(np.where(y == 1, *model.predict_proba(X)[:, ::-1].T)), np.logaddexp(0.0, (1 - 2 * y) * eta)
    names = "log loss of rows held out", "of the true probabilities"
    for name, loss in zip(names, losses, strict=True):
        print(f"{name}: {loss.mean():.6f} (standard error {loss.std() / len(y) ** 0.5:.6f})")
    away = losses[0] - losses[1]
    print(f"difference: {away.mean():.6f} (standard error {away.std() / len(y) ** 0.5:.6f})", flush=True)
    if args.kill:
        held = {"n_inducing": model._latent.result.family.points, "approximation": "inducing", "optimizer": None}
        whole, took = fitted(client, rows, kernel=model.kernel_, **held)
        lost, _ = fitted(client, rows, args.kill, 0.4 * took, kernel=model.kernel_, **held)
        differences("a worker killed", whole, lost, X[:2000])


def checks(client: Any, args: argparse.Namespace) -> None:
    import dask.array as da

    X, y, _ = drawn(0, args.rows)
    parts = (
        da.from_array(X, chunks=(-(-args.rows // 8), 6)).persist(),
        da.from_array(y, chunks=-(-args.rows // 8)).persist(),
    )
    kernel = ConstantKernel(9.0) * RBF([1.5, 3.0, 3.0, 10.0, 100.0, 100.0])
    held = {"n_inducing": X[: args.points], "approximation": "inducing", "optimizer": None, "tol": 1e-14}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rounding, which ends a fit before 1e-14
        memory = GaussianProcessClassifier(kernel, **held).fit(X, y)
        whole, took = fitted(client, parts, kernel=kernel, **held)
        lost, _ = fitted(client, parts, 3, 0.4 * took, kernel=kernel, **held)
    differences("in partitions and in memory", whole, memory, X[:2000])
    differences("a worker killed", whole, lost, X[:2000])


def main() -> None:
    from dask.distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("large", "checks"), nargs="?", default="large")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--folder", help="where the files are kept; a temporary one otherwise")
    parser.add_argument("--points", type=int)
    parser.add_argument("--partitions", type=int, default=84)
    parser.add_argument("--threads", type=int, default=1, help="of each worker; BLAS has one in each of them")
    parser.add_argument("--kill", type=int, default=0, help="the pass in which a worker is killed, in a fit of its own")
    parser.add_argument("--held-out", type=int, default=200_000)
    args = parser.parse_args()
    args.rows = args.rows or (10_000_000 if args.what == "large" else 60_000)
    args.points = args.points or (300 if args.what == "large" else 100)
    options = {"n_workers": 2, "threads_per_worker": args.threads, "memory_limit": MEMORY, "dashboard_address": None}
    with contextlib.ExitStack() as stack:
        folder = args.folder or stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder).mkdir(parents=True, exist_ok=True)
        client = stack.enter_context(Client(stack.enter_context(LocalCluster(**options))))
        if args.what == "large":
            large(client, folder, args)
        else:
            checks(client, args)


if __name__ == "__main__":
    main()
