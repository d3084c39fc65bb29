"""Bayesian linear models against glum, whose fit is one mode at one penalty.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/linear_peers.py [--repeats 5] [--only sparse] [--small]

Logistic regression of 100,000 x 1,000 (ten ones a row, CSR) and of 1,000,000 x 20 (dense), and Poisson regression of
the second table for comparison. glum is given what suits it best: columns (CSC) for the sparse table, whose making is
not timed, a ridge (l1_ratio=0) and its own tolerance; with alpha = 0 and alpha = 1/N, a prior variance of 1. Ours
learns the variance by the evidence and gives the posterior with its certificate. All run in turns in one process;
seconds are medians, of the processor and of the clock, and ratios are of the processor's over glum's with alpha = 0.
Memory is the peak above what existed when ``fit`` was called, from tracemalloc in a run of its own, in units of X.
Exits with 1 where a logistic regression takes more than 3 times glum's seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
from logistic_million import peak
from logistic_sparse import wide

import fenchel
from fenchel.estimators import BayesianLogisticRegression, BayesianPoissonRegression

AT_MOST = 3.0  # times glum's seconds, of the logistic regressions
Fit = Callable[[], Any]


def tall(rows: int, columns: int, counts: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns, and labels or counts."""
    rng = np.random.default_rng(seed)
    X, b = rng.normal(size=(rows, columns)), rng.normal(size=columns)
    eta = X @ ((0.1 if counts else 0.3) * b) - 1.0
    return X, rng.poisson(np.exp(eta)) if counts else (eta + rng.logistic(size=rows) > 0.0).astype(int)


def glum_fits(X: Any, y: np.ndarray, family: str) -> dict[str, Fit]:
    """glum at its two penalties; nothing where it is not installed."""
    try:
        from glum import GeneralizedLinearRegressor
    except ImportError:
        print("glum is not installed, and skipped: pip install glum")
        return {}
    columns, target = sp.csc_matrix(X) if sp.issparse(X) else X, y.astype(float)

    def at(alpha: float) -> Fit:
        return lambda: GeneralizedLinearRegressor(family=family, alpha=alpha, l1_ratio=0.0).fit(columns, target)

    return {"glum, alpha = 0": at(0.0), "glum, alpha = 1/N": at(1.0 / y.size)}


def seconds(fit: Fit) -> tuple[float, float]:
    """Of the processor and of the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    fit()
    return time.process_time() - cpu, time.perf_counter() - clock


def compare(title: str, X: Any, y: np.ndarray, model: type, family: str, repeats: int) -> float:
    """Print one table; the ratio of our seconds to glum's, 0 without it."""
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
    fits: dict[str, Fit] = {"fenchel, learned": lambda: model().fit(X, y), **glum_fits(X, y, family)}
    for fit in fits.values():  # imported, compiled, and memory at hand
        fit()
    times = [[seconds(fit) for fit in fits.values()] for _ in range(repeats)]
    cpu, clock = np.median(times, axis=0).T
    base = float(cpu[1] if len(cpu) > 1 else cpu[0])
    print(f"\n{title}: {X.shape[0]} x {X.shape[1]}, X {size / 2**20:.0f} MiB, medians of {repeats}")
    print(f"{'':<20}{'cpu s':>8}{'ratio':>7}{'clock s':>9}{'peak / X':>10}{'iterations':>12}")
    for k, (name, fit) in enumerate(fits.items()):
        found = fit()
        steps = int(found.n_iter_)
        print(f"{name:<20}{cpu[k]:>8.2f}{cpu[k] / base:>7.2f}{clock[k]:>9.2f}{peak(fit) / size:>10.2f}{steps:>12}")
    ours = model().fit(X, y)
    print(f"variance {ours.variance_:.5g}, elbo {ours.elbo_:.6f}, gap {ours.gap_:.1e}, converged {ours.converged_}")
    return float(cpu[0]) / base if len(cpu) > 1 else 0.0


def versions() -> str:
    try:
        import glum

        name = f", glum {glum.__version__}"
    except ImportError:
        name = ""
    return f"fenchel {fenchel.__version__}, numpy {np.__version__}, scipy {scipy.__version__}{name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("sparse", "dense", "counts"))
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows, for a look at the script")
    args = parser.parse_args()
    share = 100 if args.small else 1
    print(versions())
    ratios = [0.0]
    if args.only in (None, "sparse"):
        X, y = wide(100_000 // share, 1000 // share)
        ratios.append(compare("logistic, sparse", X, y, BayesianLogisticRegression, "binomial", args.repeats))
    if args.only in (None, "dense"):
        X, y = tall(1_000_000 // share, 20, counts=False)
        ratios.append(compare("logistic, dense", X, y, BayesianLogisticRegression, "binomial", args.repeats))
    if args.only in (None, "counts"):
        X, y = tall(1_000_000 // share, 20, counts=True)
        compare("Poisson, dense", X, y, BayesianPoissonRegression, "poisson", args.repeats)
    raise SystemExit(max(ratios) > AT_MOST)


if __name__ == "__main__":
    main()
