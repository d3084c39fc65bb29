"""The sparse Cholesky factorisation and its selected inverse against SuperLU, on square lattices.

    python benchmarks/sparse_cholesky.py [--sides 100 200 300 500]

A is the Laplacian of a side x side lattice plus a nugget. Every ratio is to ``scipy.sparse.linalg.splu`` (minimum
degree, symmetric mode) of the same matrix in the same run; medians of five.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy
import scipy.sparse as sp
from scipy.sparse.linalg import splu

import fenchel
from fenchel.linalg import SparseCholesky


def lattice(side: int) -> sp.csc_array:
    T = sp.diags_array([-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1])
    eye = sp.eye_array(side)
    return (sp.kron(T, eye) + sp.kron(eye, T) + 0.1 * sp.eye_array(side * side)).tocsc()


def median_time(work: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[100, 200, 300, 500])
    sides = parser.parse_args().sides
    SparseCholesky(lattice(10)).inverse_diagonal()  # compile
    print(f"scipy {scipy.__version__}, fenchel {fenchel.__version__}")
    head = f"{'nodes':>8}{'analysis s':>12}{'splu s':>9}{'refactor s':>12}{'inverse s':>11}{'solve s':>9}"
    print(head + f"{'refactor/splu':>15}{'inverse/splu':>14}{'entries of L':>14}{'of splu':>11}")
    for side in sides:
        A = lattice(side)
        began = time.perf_counter()
        factor = SparseCholesky(A)
        analysis = time.perf_counter() - began
        options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        rival = median_time(lambda A=A, options=options: splu(A, **options))
        numeric = median_time(lambda A=A, factor=factor: factor.refactor(A))
        both = median_time(lambda A=A, factor=factor: factor.refactor(A).inverse_diagonal())
        solve = median_time(lambda factor=factor, n=side * side: factor.solve(np.ones(n)))
        row = f"{side * side:>8}{analysis:>12.3f}{rival:>9.3f}{numeric:>12.3f}{both - numeric:>11.3f}{solve:>9.3f}"
        stored = splu(A, **options).L.nnz
        print(
            row + f"{numeric / rival:>15.2f}{(both - numeric) / rival:>14.2f}{factor.symbolic.nnz:>14}{stored:>11}",
            flush=True,
        )


if __name__ == "__main__":
    main()
