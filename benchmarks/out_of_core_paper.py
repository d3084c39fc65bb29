"""10^9 rows on paper: passes, bytes and seconds of fits on a cluster, from rates that are measured here on one core.

    seconds of a pass = partitions of a worker x (read + work) + sums along the tree
    bytes of a pass   = what q is, to every worker, and what rows say of it, up the tree

``python benchmarks/out_of_core_paper.py`` takes a minute. Rates are of the processor's time, so that a busy machine
does not show; reading is from a file that the system has seen, and a network is assumed, not measured.
"""
# ruff: noqa: E402

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # whose sparse.py Dask would import

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import fenchel
from fenchel.distributed import Partitions
from fenchel.distributed.partitions import _FAN as FAN
from fenchel.estimators import BayesianLogisticRegression

ROWS, WORKERS, PARTITIONS = 10**9, 100, 2000
NETWORK = 1.25e8  # bytes a second to and from a worker: one gigabit
ROUND_TRIP = 0.01  # seconds that Dask needs for a level of the tree


class Counted:
    """Passes, and the bytes of what they send down and get back, while it is open."""

    def __enter__(self) -> Counted:
        from distributed.protocol.pickle import dumps

        self.passes, self.down, self.up, self.plain = 0, 0, 0, Partitions.reduce
        plain = self.plain

        def reduce(rows, work, *given):
            out = plain(rows, work, *given)
            self.passes += 1
            self.down, self.up = len(dumps(given)), len(dumps(out))  # of the last pass
            return out

        Partitions.reduce = reduce
        return self

    def __exit__(self, *error: object) -> None:
        Partitions.reduce = self.plain


def linear(rows: int, columns: int, folder: Path) -> tuple[dd.DataFrame, object]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(columns)])
    frame["y"] = (rng.random(rows) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    frame.to_parquet(folder / "linear.parquet")
    table = dd.from_pandas(frame, npartitions=2)

    def fit() -> object:
        return BayesianLogisticRegression().fit(table[list(frame.columns[:-1])], table["y"])

    return table, fit


def model(rows: int, groups: int, folder: Path) -> tuple[dd.DataFrame, object]:
    rng = np.random.default_rng(0)
    g, x, f = rng.integers(0, groups, rows), rng.normal(size=rows), rng.choice(["a", "b", "c"], rows)
    effect = rng.normal(size=groups)
    y = (rng.random(rows) < 1 / (1 + np.exp(-(x + effect[g])))).astype(int)
    frame = pd.DataFrame({"g": g, "x": x, "f": f, "y": y})
    frame.to_parquet(folder / "model.parquet")
    table = dd.from_pandas(frame, npartitions=2)
    return table, lambda: fenchel.Model("y ~ x + f + (1|g)", table, "bernoulli").fit()


def measured(rows: int, fit: object, path: Path) -> dict[str, float]:
    """Passes, processor's seconds a row and pass, bytes, and seconds a row to read."""
    with dask.config.set(scheduler="synchronous"), Counted() as counted:
        began = time.process_time()
        fit()
        work = (time.process_time() - began) / rows / counted.passes
    began = time.process_time()
    pd.read_parquet(path)
    read = (time.process_time() - began) / rows
    size = path.stat().st_size / rows
    return {"passes": counted.passes, "work": work, "read": read, "size": size, "down": counted.down, "up": counted.up}


def on_paper(name: str, found: dict[str, float], rows: float, workers: int, partitions: int) -> str:
    each = rows / workers
    levels = int(np.ceil(np.log(partitions) / np.log(FAN)))
    sums = levels * (ROUND_TRIP + FAN * found["up"] / NETWORK) + found["down"] / NETWORK
    held, again = each * found["work"] + sums, each * (found["work"] + found["read"]) + sums
    down, up = workers * found["down"], partitions * found["up"] * FAN / (FAN - 1)
    cells = [
        f"{found['passes']:.0f}",
        f"{1e6 * found['work']:.2f} + {1e6 * found['read']:.2f}",
        f"{down / 1e6:.1f} + {up / 1e6:.1f}",
        f"{held:.0f} / {again:.0f}",
        f"{found['passes'] * held / 60:.1f} / {found['passes'] * again / 60:.1f}",
        f"{rows * found['size'] / 1e9:.0f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000, help="of the tables that are measured")
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    print(f"{ROWS:.0e} rows, {WORKERS} workers of one core, {PARTITIONS} partitions; measured on {asked.rows} rows\n")
    print("| | passes | us a row and pass: work + read | MB a pass: down + up | s a pass: rows held / read | "
          "min in all | GB on disk |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        _, fit = linear(asked.rows, 50, folder)
        fit()  # compiled loops
        found = measured(asked.rows, fit, folder / "linear.parquet")
        print(on_paper("logistic regression, 50 columns", found, ROWS, WORKERS, PARTITIONS))
        _, fit = model(asked.rows, 1000, folder)
        fit()
        found = measured(asked.rows, fit, folder / "model.parquet")
        print(on_paper("`y ~ x + f + (1\\|g)`, 1000 groups", found, ROWS, WORKERS, PARTITIONS))


if __name__ == "__main__":
    main()
