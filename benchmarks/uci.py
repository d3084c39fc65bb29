"""Gaussian processes by inducing points on tables of the UCI repository: scores, seconds, memory and certified loss.

    python benchmarks/uci.py --data FOLDER [--tables kin40k elevators ...] [--points 200 500 1000] [--rows N]

FOLDER holds kin40k, protein, elevators, bike (columns, ``y``, ``test`` = 1 for the held-out tenth) and adult, credit
(binary ``y``; every tenth row of a permutation by seed 0 is held out) as csv.gz. Columns, and a real y, are
standardised by the training rows. The kernel is a constant times Matern of 3/2 with a length for each column, learned
through each number of points from where the last one ended. ``--rows`` draws so many training rows. Histogram gradient
boosting of scikit-learn with its defaults stands beside: mean log scores for labels, RMSE alone for numbers.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from fenchel.estimators import GaussianProcessClassifier, GaussianProcessRegressor

LABELS = ("adult", "credit")
TABLES = ("kin40k", "elevators", "bike", "protein", *LABELS)


class Table(NamedTuple):
    """Training and held-out rows, standardised."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


def read(folder: Path, name: str, rows: int | None) -> Table:
    frame = pd.read_csv(folder / f"{name}.csv.gz").astype(float)
    rng = np.random.default_rng(0)
    if "test" in frame:
        held = frame.pop("test").to_numpy() == 1.0
    else:
        held = np.zeros(len(frame), dtype=bool)
        held[rng.permutation(len(frame))[::10]] = True
    y, X = frame.pop("y").to_numpy(), frame.to_numpy()
    learn = np.flatnonzero(~held)
    learn = rng.permutation(learn)[:rows] if rows else learn
    scale = X[learn].std(axis=0)
    X = (X - X[learn].mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)
    if name not in LABELS:
        y = (y - y[learn].mean()) / y[learn].std()
    return Table(X[learn], y[learn], X[held], y[held])


def model(name: str, kernel: Any, points: int) -> Any:
    options = {"approximation": "inducing", "n_inducing": points}
    if name in LABELS:
        return GaussianProcessClassifier(kernel, **options)
    return GaussianProcessRegressor(kernel, likelihood="gaussian", **options)


def row(name: str, table: Table, fit: Any, seconds: float) -> str:
    """Of one fit."""
    if name in LABELS:
        p = np.clip(fit.predict_proba(table.X_new)[:, 1], 1e-12, 1 - 1e-12)
        first = float(np.mean((p > 0.5) != table.y_new))
    else:
        first = float(np.sqrt(np.mean((fit.predict(table.X_new) - table.y_new) ** 2)))
    score = -fit.score(table.X_new, table.y_new) if name in LABELS else -score_of(fit, table)
    last = fit.approximation_.iloc[-1]
    proof = "estimate" if last["standard_error"] else "proved"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cost = f"{fit.elbo_:>12.1f}{last['bound']:>10.1f} {proof:<9}{seconds:>8.1f}{memory:>7.2f}"
    return f"{name:>10}{len(table.y):>7}{int(last['n_inducing']):>6}{first:>9.4f}{score:>9.4f}{cost}"


def score_of(fit: Any, table: Table) -> float:
    """The mean log predictive density of y, Gaussian."""
    mean, sd = fit.predict(table.X_new, return_std=True)
    return float(np.mean(-0.5 * np.log(2 * np.pi * sd**2) - 0.5 * ((table.y_new - mean) / sd) ** 2))


def boosted(name: str, table: Table) -> str:
    began = time.perf_counter()
    if name in LABELS:
        fit: Any = HistGradientBoostingClassifier(random_state=0).fit(table.X, table.y)
        p = np.clip(fit.predict_proba(table.X_new)[:, 1], 1e-12, 1 - 1e-12)
        first = float(np.mean((p > 0.5) != table.y_new))
        score = -float(np.mean(np.log(np.where(table.y_new > 0.0, p, 1.0 - p))))
    else:
        fit = HistGradientBoostingRegressor(random_state=0).fit(table.X, table.y)
        first, score = float(np.sqrt(np.mean((fit.predict(table.X_new) - table.y_new) ** 2))), np.nan
    seconds = time.perf_counter() - began
    return f"{name:>10}{len(table.y):>7}{'trees':>6}{first:>9.4f}{score:>9.4f}{'':>32}{seconds:>8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--points", type=int, nargs="+", default=[200, 500, 1000])
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    head = f"{'table':>10}{'N':>7}{'M':>6}{'rmse/err':>9}{'NLPD':>9}{'elbo':>12}{'loss <=':>10} {'':<9}"
    print(head + f"{'seconds':>8}{'GiB':>7}", flush=True)
    for name in args.tables:
        table, began = read(args.data, name, args.rows), time.perf_counter()
        D = table.X.shape[1]
        kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.full(D, D**0.5), (1e-2, 1e4), nu=1.5)
        for points in args.points:
            fit = model(name, kernel, points).fit(table.X, table.y)
            kernel = fit.kernel_
            print(row(name, table, fit, time.perf_counter() - began), flush=True)
        print(boosted(name, table), flush=True)


if __name__ == "__main__":
    main()
