"""Logistic regression from parquet on two workers of 2 GiB each, against the same fit in memory.

    python benchmarks/out_of_core.py                        10^7 x 50: 4 GB on disk, 5 GB of memory for the comparison
    python benchmarks/out_of_core.py --rows 1000000         one tenth of it
    python benchmarks/out_of_core.py --rows 100000000 --columns 20 --skip-memory

It writes float64 rows to parquet in partitions, fits them by a LocalCluster of processes, and prints passes, bytes
moved in a pass, seconds, what a row costs a core, the peak memory of each worker, and how far the posterior is from
that of the fit in memory, which has a process of its own, as has scikit-learn's SGDClassifier for scale: one pass of
partial_fit over the same files, after one of StandardScaler.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]  # it has a sparse.py
ROWS_OF_A_PARTITION = 200_000
GIB = 2.0**30


def write(folder: Path, rows: int, columns: int) -> None:
    """Parquet of x0, x1, ... and a label y, in partitions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    w = np.random.default_rng(0).normal(size=columns) / np.sqrt(columns)
    for i, start in enumerate(range(0, rows, ROWS_OF_A_PARTITION)):
        rng = np.random.default_rng([1, i])
        n = min(ROWS_OF_A_PARTITION, rows - start)
        X = rng.normal(size=(n, columns)) * np.linspace(0.5, 3.0, columns) + np.linspace(-2.0, 2.0, columns)
        eta = ((X - np.linspace(-2.0, 2.0, columns)) / np.linspace(0.5, 3.0, columns)) @ w - 0.5
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int8)
        table = pa.table({**{f"x{d}": X[:, d] for d in range(columns)}, "y": y})
        pq.write_table(table, folder / f"part.{i:05d}.parquet", compression=None)


def names(columns: int) -> list[str]:
    return [f"x{d}" for d in range(columns)]


def model(tol: float):
    from fenchel.estimators import BayesianLogisticRegression

    return BayesianLogisticRegression(learn_variance=False, tol=tol)


def peak(dask_worker=None) -> float:
    """GiB that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def moved(fitted) -> tuple[int, int]:
    """Bytes that a pass sends to a partition, and that a partition sends back."""
    L = fitted.n_features_in_ + 1
    q = pickle.dumps((np.zeros((L, 1)), np.zeros((1, L, L))))
    sums = pickle.dumps((0.0, np.zeros((L, 1)), np.zeros((1, L, L)), np.zeros((1, 1, L, L)), 0.0, 0))
    return len(q), len(sums)


def spent(dask_worker=None) -> float:
    """Seconds of the processor that this process has had."""
    return time.process_time()


class Rates:
    """What a row costs in each kind of pass: seconds of the workers' processors, while it is open."""

    def __init__(self, client) -> None:
        self.client, self.seconds = client, {}

    def __enter__(self) -> Rates:
        from fenchel.distributed import Partitions

        self.plain, plain = Partitions.reduce, Partitions.reduce

        def reduce(rows, work, *given):
            before = sum(self.client.run(spent).values())
            out = plain(rows, work, *given)
            took = sum(self.client.run(spent).values()) - before
            self.seconds.setdefault(work.__name__, []).append(took)
            return out

        Partitions.reduce = reduce
        return self

    def __exit__(self, *error: object) -> None:
        from fenchel.distributed import Partitions

        Partitions.reduce = self.plain

    def say(self, rows: int) -> None:
        """A line for each kind of pass."""
        for name, took in self.seconds.items():
            word, least = {"survey": "first look", "evaluate": "evaluated"}.get(name, name), min(took)
            each = f"{rows / least:.2g} rows a second and core, {1e6 * least / rows:.2f} us a row"
            print(f"{word}: {each} (reading too; the best of {len(took)} passes)")


def distributed_fit(folder: Path, columns: int, tol: float, limit: str) -> dict:
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.worker.memory.terminate": 0.98})
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "memory_limit": limit}
    with LocalCluster(**options, dashboard_address=":0") as cluster, Client(cluster) as client:
        client.run(_warm)
        frame = dd.read_parquet(folder)
        began = time.perf_counter()
        with Rates(client) as rates:
            fitted = model(tol).fit(frame[names(columns)], frame["y"])
        seconds = time.perf_counter() - began
        memory = list(client.run(peak).values())
        rates.say(len(frame))
    sent, back = moved(fitted)
    print(
        f"{frame.npartitions} partitions on 2 workers of {limit}: {fitted.solution_.n_passes} passes, {seconds:.1f} s"
    )
    print(f"a pass sends {sent / 1024:.1f} KiB to a partition and brings {back / 1024:.1f} KiB back, whatever its rows")
    print(f"peak memory of the workers: {', '.join(f'{m:.2f} GiB' for m in memory)}")
    print(f"elbo {fitted.elbo_:.6f}, gap {fitted.gap_:.1e}, {fitted.solution_.certificate}; {fitted.solution_.status}")
    return answer(fitted) | {"seconds": seconds, "passes": fitted.solution_.n_passes}


def _warm() -> None:
    """Import what workers need, which is not the fit's time."""
    import pyarrow.parquet  # noqa: F401

    import fenchel.distributed.linear_rows  # noqa: F401
    from fenchel.likelihoods import BernoulliLogit

    like = BernoulliLogit("exact")
    like.objective.loss(np.zeros((8, 1)), np.ones((8, 1)), like.prepare(np.ones(8)))


def answer(fitted) -> dict:
    return {
        "coef": fitted.coef_.tolist(),
        "std": fitted.coef_std_.tolist(),
        "intercept": fitted.intercept_.tolist(),
        "elbo": fitted.elbo_,
        "gap": fitted.gap_,
    }


def memory_fit(folder: Path, columns: int, tol: float) -> dict:
    import pyarrow.parquet as pq

    began = time.perf_counter()
    files = sorted(folder.glob("*.parquet"))
    sizes = [pq.ParquetFile(file).metadata.num_rows for file in files]
    X, y, at = np.empty((sum(sizes), columns)), np.empty(sum(sizes)), 0
    for file, n in zip(files, sizes, strict=True):
        table = pq.read_table(file)
        for d, name in enumerate(names(columns)):
            X[at : at + n, d] = table[name].to_numpy()
        y[at : at + n] = table["y"].to_numpy()
        at += n
    reading = time.perf_counter() - began
    began = time.perf_counter()
    fitted = model(tol).fit(X, y)
    seconds = time.perf_counter() - began
    return answer(fitted) | {"seconds": seconds, "reading": reading, "peak": peak()}


def sgd_fit(folder: Path, columns: int) -> dict:
    import pyarrow.parquet as pq
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    def blocks():
        for file in sorted(folder.glob("*.parquet")):
            table = pq.read_table(file)
            yield np.column_stack([table[name].to_numpy() for name in names(columns)]), table["y"].to_numpy()

    began, scaler = time.perf_counter(), StandardScaler()
    learner = SGDClassifier(loss="log_loss", alpha=1e-7, learning_rate="invscaling", eta0=0.1, random_state=0)
    for X, _ in blocks():
        scaler.partial_fit(X)
    for X, y in blocks():
        learner.partial_fit(scaler.transform(X), y, classes=[0, 1])
    return {"seconds": time.perf_counter() - began, "coef": (learner.coef_ / scaler.scale_).tolist(), "peak": peak()}


def apart(task: str, folder: Path, columns: int, tol: float) -> dict:
    """A task in a process of its own."""
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder), "--columns", str(columns)]
    out = subprocess.run([*command, "--tol", str(tol)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def compare(found: dict, other: dict, of: str) -> None:
    a, b = (np.asarray(each["coef"]) for each in (found, other))
    line = f"{of}: coefficients differ by {np.abs(a - b).max():.1e}"
    if "std" in other:
        mine, sd = (np.asarray(each["std"]) for each in (found, other))
        line += f" ({np.abs((a - b) / sd).max():.1e} posterior sd), sds by {np.abs(mine - sd).max():.1e}"
        line += f", the intercept by {abs(found['intercept'][0] - other['intercept'][0]):.1e}"
        line += f", the elbo by {abs(found['elbo'] - other['elbo']):.1e} of {abs(other['elbo']):.0f}"
    print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--memory", default="2GiB", help="limit of each worker")
    parser.add_argument("--tol", type=float, default=1e-15)
    parser.add_argument("--folder", type=Path, help="where the rows are, or are written and left")
    parser.add_argument("--skip-memory", action="store_true", help="no fit in memory to compare with")
    parser.add_argument("--task", choices=["memory", "sgd"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task is not None:
        task = memory_fit(given.folder, given.columns, given.tol) if given.task == "memory" else None
        print(json.dumps(task if task is not None else sgd_fit(given.folder, given.columns)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "rows"
        if not folder.exists():
            began = time.perf_counter()
            write(folder, given.rows, given.columns)
            size = sum(file.stat().st_size for file in folder.iterdir()) / GIB
            print(f"{given.rows} x {given.columns}: {size:.2f} GiB of parquet in {time.perf_counter() - began:.1f} s")
        found = distributed_fit(folder, given.columns, given.tol, given.memory)
        if not given.skip_memory:
            other = apart("memory", folder, given.columns, given.tol)
            ratio = found["seconds"] / other["seconds"]
            print(f"in memory: {other['seconds']:.1f} s after {other['reading']:.1f} s of reading, ", end="")
            print(f"peak {other['peak']:.2f} GiB; the cluster took {ratio:.1f} times as long")
            compare(found, other, "against the fit in memory")
        sgd = apart("sgd", folder, given.columns, given.tol)
        print(f"StandardScaler, then SGDClassifier: {sgd['seconds']:.1f} s, peak {sgd['peak']:.2f} GiB")
        compare(found, sgd, "against SGDClassifier")


if __name__ == "__main__":
    main()
