"""Sparse priors against their floor: one numeric factorisation plus one selected inverse of A = Q + W' Lam W.

    python benchmarks/sparse.py [--quick]

Germany's districts, first-order lattices with Poisson counts (a log-Gaussian Cox process) and Bernoulli outcomes
(tilted), an AR(1) stochastic volatility model, and Poisson counts in many groups with covariates. Relative gap 1e-6.
The floor is measured in the same run, at the solution's own lam. "first" is the first fit of a prior, "again" a second
one, which reuses its analysis; medians of three below a hundred thousand latents. Peak memory is that of the process,
above what it held before the fit.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import resource
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp

import fenchel
from fenchel import gmrf
from fenchel.datasets import load_germany
from fenchel.likelihoods import BernoulliLogit, Likelihood, Poisson, StochasticVolatility
from fenchel.priors import SparsePrecision


def chain(n: int, phi: float, variance: float) -> sp.csc_array:
    """Precision of a stationary AR(1)."""
    main = np.full(n, 1 + phi**2)
    main[[0, -1]] = 1.0
    off = np.full(n - 1, -phi)
    return sp.diags_array([off, main, off], offsets=[-1, 0, 1], format="csc") / (variance * (1 - phi**2))


def lattice(side: int) -> sp.csc_array:
    T = sp.diags_array([-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1])
    eye = sp.eye_array(side)
    return (sp.kron(T, eye) + sp.kron(eye, T) + 0.05 * sp.eye_array(side * side)).tocsc()


def problems(quick: bool) -> Iterator[tuple[str, Likelihood, Callable[[], SparsePrecision], np.ndarray, int]]:
    rng = np.random.default_rng(0)
    data = load_germany()
    field = gmrf.stack([(gmrf.bym(data.adjacency, 16.0, 250.0), np.arange(544))], fixed_variance=10.0)
    yield "Germany, BYM, 544 districts", Poisson(data.E), field.at, data.Y, 0
    for side in (100,) if quick else (100, 200, 300, 500):
        Q = lattice(side)
        z = SparsePrecision(Q).factor.sample(rng.standard_normal(side * side))
        counts = rng.poisson(np.exp(np.minimum(z, 8.0) - 1.0)).astype(float)
        labels = (rng.random(side * side) < 1 / (1 + np.exp(-z))).astype(float)
        yield f"lattice {side}^2, Poisson", Poisson(), (lambda Q=Q: SparsePrecision(Q)), counts, 15
        yield f"lattice {side}^2, Bernoulli", BernoulliLogit("tilted"), (lambda Q=Q: SparsePrecision(Q)), labels, 30
    for n in (10_000,) if quick else (10_000, 100_000, 1_000_000):
        Q = chain(n, 0.98, 1.0)
        z = SparsePrecision(Q).factor.sample(rng.standard_normal(n))
        returns = rng.normal(size=n) * np.exp(z / 2)
        yield f"AR(1) volatility, {n}", StochasticVolatility(), (lambda Q=Q: SparsePrecision(Q)), returns, 0
    n, groups, covariates = (10_000, 1000, 3) if quick else (1_000_000, 100_000, 3)
    index = rng.integers(0, groups, n)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, covariates - 1))])
    rows = np.concatenate([np.arange(n), np.tile(np.arange(n), covariates)])
    columns = np.concatenate([index, np.repeat(groups + np.arange(covariates), n)])
    W = sp.csr_array((np.concatenate([np.ones(n), X.T.ravel()]), (rows, columns)), shape=(n, groups + covariates))
    eta = 0.5 * rng.normal(size=groups)[index] + X @ np.array([0.5, 0.3, -0.2])
    Q = sp.diags_array(np.concatenate([np.full(groups, 4.0), np.full(covariates, 0.01)]), format="csc")
    name = f"{n} counts, {groups} groups, {covariates} covariates"
    yield name, Poisson(), (lambda: SparsePrecision(Q, design=W)), rng.poisson(np.exp(eta)).astype(float), 0


class Peak:
    """The largest resident size seen while a block runs, sampled twenty times a second."""

    def __enter__(self) -> Peak:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier problems freed must not count as held
        self.before, self.top, self.stop = self._now(), 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    @staticmethod
    def _now() -> int:
        try:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _watch(self) -> None:
        while not self.stop.wait(0.05):
            self.top = max(self.top, self._now())

    def __exit__(self, *_: object) -> None:
        self.top = max(self.top, self._now())
        self.stop.set()
        self.thread.join()

    @property
    def mib(self) -> float:
        return (self.top - self.before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    quick = parser.parse_args().quick
    fenchel.infer(Poisson(), SparsePrecision(lattice(10)), np.ones(100))  # compile
    head = f"{'problem':<44}{'iterations':>11}{'first s':>9}{'again s':>9}{'floor s':>9}"
    print(head + f"{'first':>8}{'again':>7}{'limit':>7}{'peak MiB':>10}{'MiB of L':>10}")
    for name, likelihood, make, y, limit in problems(quick):
        prior = make()
        with Peak() as peak:
            began = time.perf_counter()
            sol = fenchel.infer(likelihood, prior, y, tol=1e-6)
            first = time.perf_counter() - began
        if not sol.converged:
            raise SystemExit(f"{name}: {sol.status}")
        firsts, agains, floors = [first], [], []
        for _ in range(3 if prior.like.size < 500_000 else 1):
            fresh = make()
            began = time.perf_counter()
            fenchel.infer(likelihood, fresh, y, tol=1e-6)
            between = time.perf_counter()
            fenchel.infer(likelihood, fresh, y, tol=1e-6)
            firsts.append(between - began)
            agains.append(time.perf_counter() - between)
        first, again = (float(np.median(times)) for times in (firsts, agains))
        for _ in range(3):
            pattern = prior.pattern.reweighted(prior.precision)  # without the factor that the fit has kept
            began = time.perf_counter()
            pattern.factor(sol.lam[:, 0]).row_variances(pattern.rows)
            floors.append(time.perf_counter() - began)
        floor = float(np.median(floors))
        factor = prior.pattern.symbolic.nnz * 8 / 2**20
        row = f"{name:<44}{sol.n_iter:>11}{first:>9.2f}{again:>9.2f}{floor:>9.3f}"
        row += f"{first / floor:>8.1f}{again / floor:>7.1f}{limit or '':>7}"
        print(row + f"{peak.mib:>10.0f}{factor:>10.1f}", flush=True)
        del prior, fresh, sol


if __name__ == "__main__":
    main()
