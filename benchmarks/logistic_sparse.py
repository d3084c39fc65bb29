"""Logistic regression of a one-hot table, its variance learned, against ``sklearn.linear_model.LogisticRegression``.

    python benchmarks/logistic_sparse.py [--rows 277000] [--columns 163] [--dense] [--repeats 3]

Thirteen factors of 2 to 26 levels and ten columns of which most entries are zero: 163 columns, a tenth of the entries.
With ``--columns``, as many columns and ten entries a row among them.
scikit-learn's newton-cholesky finds the mode for one given C; ours learns the variance by the evidence and gives the
whole posterior. Both run in turns; seconds are of the processor, so that a busy machine does not show, and the ratio is
of the medians. Memory is the peak above what existed when ``fit`` was called, in units of X.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from logistic_million import peak
from sklearn.linear_model import LogisticRegression

from fenchel.estimators import BayesianLogisticRegression

LEVELS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 24, 26)
AT_MOST = 8.0  # times scikit-learn's seconds


def table(rows: int, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Factors with ever rarer levels, one-hot, and numbers that are mostly zero; a third of the coefficients are 0."""
    rng = np.random.default_rng(seed)
    parts = []
    for k in LEVELS:
        share = 1.0 / np.arange(1, k + 1)
        code = rng.choice(k, size=rows, p=share / share.sum())
        parts.append(sp.csr_array((np.ones(rows), code, np.arange(rows + 1)), shape=(rows, k)))
    numbers = rng.gamma(1.0, 1.0, (rows, 10)) * (rng.random((rows, 10)) < 0.3)
    X = sp.csr_array(sp.hstack([*parts, sp.csr_array(numbers)], format="csr"))
    w = 0.5 * rng.normal(size=X.shape[1]) * (rng.random(X.shape[1]) > 0.3)
    eta = X @ w
    return X, (eta - eta.mean() - 1.0 + rng.logistic(size=rows) > 0).astype(int)


def wide(rows: int, columns: int, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Ten ones a row among many columns."""
    rng = np.random.default_rng(seed)
    place = rng.integers(0, columns, (rows, 10))
    X = sp.csr_array((np.ones(10 * rows), (np.repeat(np.arange(rows), 10), place.ravel())), shape=(rows, columns))
    X.sum_duplicates()
    eta = X @ (0.3 * rng.normal(size=columns)) - 1.0
    return X, (eta + rng.logistic(size=rows) > 0).astype(int)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=277_000)
    parser.add_argument("--columns", type=int, help="ten ones a row among so many columns")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dense", action="store_true", help="the same table as a dense array")
    args = parser.parse_args()
    X, y = table(args.rows) if args.columns is None else wide(args.rows, args.columns)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    if args.dense:
        X = X.toarray()
        size = X.nbytes
    mode, ours = LogisticRegression(C=1.0, solver="newton-cholesky"), BayesianLogisticRegression()
    BayesianLogisticRegression().fit(*table(2000))  # compiled and imported
    times = [(seconds(lambda: mode.fit(X, y)), seconds(lambda: ours.fit(X, y))) for _ in range(args.repeats)]
    theirs, own = (float(np.median(column)) for column in zip(*times, strict=True))
    print(f"{args.rows} x {X.shape[1]}, {'dense' if args.dense else f'{X.nnz / args.rows:.1f} entries a row'}")
    print(f"{'':<28}{'seconds':>9}{'ratio':>7}{'iterations':>12}{'peak / X':>10}")
    print(f"{'scikit-learn, mode':<28}{theirs:>9.2f}{1.0:>7.2f}{int(mode.n_iter_[0]):>12}", end="")
    print(f"{peak(lambda: mode.fit(X, y)) / size:>10.2f}")
    print(f"{'full posterior, learned':<28}{own:>9.2f}{own / theirs:>7.2f}{ours.n_iter_:>12}", end="")
    print(f"{peak(lambda: ours.fit(X, y)) / size:>10.2f}")
    print(f"variance {ours.variance_:.4g}, elbo {ours.elbo_:.6f}, gap {ours.gap_:.1e}, converged {ours.converged_}")
    raise SystemExit(own > AT_MOST * theirs)


if __name__ == "__main__":
    main()
