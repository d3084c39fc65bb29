"""Crossed effects without a factor: beside the direct engine, by design, and at 10^5 x 10^5 levels.

    python benchmarks/very_large.py [--rows 1000000] [--families bernoulli gaussian] [--beside 20000] [--designs 100000]
                                    [--probes 32] [--formula]

``--rows`` ratings of one tenth as many users of one tenth as many items, a covariate, learned by
``fenchel.iterative.learn``; with ``--formula`` by ``Model`` with engine="auto", which decides for itself. ``--beside``
rows of the same kind fitted by both engines. ``--designs`` rows of designs that differ: balanced, levels as frequent as
Zipf's law has it, items nested in users but for a tenth of the rows, three crossed terms; iterations of conjugate
gradients to 1e-6 and the least eigenvalue that the quadratures met. 0 leaves a part out.

Seconds are the processor's over all threads and those of the clock; peak memory is that of the process above what it
held before. sds are of the two terms (0.6 and 0.8 made the data), with what the probes did to them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from sparse import Peak

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import learn as learn_directly
from fenchel.iterative import learn
from fenchel.iterative.probed_fit import Task
from fenchel.iterative.system import System
from fenchel.likelihoods import BernoulliLogit, Gaussian, Poisson
from fenchel.linalg.krylov import solve_columns, tridiagonals

SDS = (0.6, 0.8)


def ratings(family: str, rows: int, seed: int = 0) -> pd.DataFrame:
    """Ratings of users and items drawn at random, a tenth as many of each as there are rows."""
    rng, n = np.random.default_rng(seed), max(10, rows // 10)
    u, v, x = rng.integers(0, n, rows), rng.integers(0, n, rows), rng.normal(size=rows)
    eta = 0.2 + 0.4 * x + SDS[0] * rng.normal(size=n)[u] + SDS[1] * rng.normal(size=n)[v]
    if family == "gaussian":
        y = eta + 1.2 * rng.normal(size=rows)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta)).astype(float)
    else:
        y = (rng.random(rows) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    return pd.DataFrame({"y": y, "x": x, "u": u, "v": v})


def parts(family: str, data: pd.DataFrame) -> tuple[Any, Any]:
    """The likelihood, where learning starts, and the family of priors."""
    likelihood = {"gaussian": Gaussian(2.0), "poisson": Poisson(), "bernoulli": BernoulliLogit(bound="exact")}[family]
    n = max(10, len(data) // 10)
    field = gmrf.stack([(gmrf.iid(n), data.u.to_numpy()), (gmrf.iid(n), data.v.to_numpy())], data[["x"]])
    return likelihood, field


def measured(label: str, work: Any, *arguments: Any, **options: Any) -> Any:
    """What ``work`` returns, its costs printed."""
    with Peak() as peak:
        cpu, wall = time.process_time(), time.perf_counter()
        out = work(*arguments, **options)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{label:<34}{cpu:>9.1f}{wall:>9.1f}{peak.mib:>9.0f}", end="", flush=True)
    return out


def sds(theta: np.ndarray) -> str:
    return "  ".join(f"{value:.5f}" for value in np.exp(theta[:2]))


def described(found: Any) -> None:
    """The iterative engine's answer in a few lines."""
    error = np.sqrt(np.diag(found.theta_error))[:2] * np.exp(found.theta[:2])
    known = np.sqrt(np.diag(found.theta_covariance))[:2] * np.exp(found.theta[:2])
    print(f"   sds {sds(found.theta)}  (sd {known.max():.1e}, by the probes {error.max():.1e})")
    low, high = found.elbo_upper.certain
    print(f"    {found.status}")
    print(f"    {found.n_fits} fits, {found.n_solves} iterations, {found.iterations} in the last solve")
    print(f"    gap in {found.gap:.3g}, elbo in {found.elbo:.2f} with probability {found.gap.level:g}")
    print(f"    certainly: log evidence at least {low:.2f}, no Gaussian above {high:.2f}", flush=True)


def beside(rows: int, families: list[str], probes: int) -> None:
    """Both engines on the same rows."""
    for family in families:
        data = ratings(family, rows)
        likelihood, field = parts(family, data)
        found = measured(f"{family}, {rows} rows, iterative", learn, likelihood, field, data.y, n_probes=probes)
        described(found)
        direct = measured(f"{family}, {rows} rows, direct", learn_directly, likelihood, field, data.y.to_numpy())
        print(f"   sds {sds(direct.theta)}  elbo {direct.solution.elbo:.2f}, gap {direct.solution.gap:.1e}", flush=True)


def large(rows: int, families: list[str], probes: int, formula: bool) -> None:
    for family in families:
        data = ratings(family, rows)
        if formula:
            fit = measured(f"{family}, {rows} rows", fenchel.fit, "y ~ x + (1|u) + (1|v)", data, family)
            described(fit.found)
            continue
        likelihood, field = parts(family, data)
        described(measured(f"{family}, {rows} rows", learn, likelihood, field, data.y, n_probes=probes))


def designs(rows: int, probes: int) -> None:
    """How many iterations the preconditioner leaves, at sd 0.8 of every term and unit weights of the rows."""
    rng, n = np.random.default_rng(0), rows // 10
    zipf = 1.0 / np.arange(1, n + 1)
    drawn = rng.choice(n, rows, p=zipf / zipf.sum()), rng.choice(n, rows, p=zipf / zipf.sum())
    u = rng.integers(0, n, rows)
    near = np.where(rng.random(rows) < 0.9, (u // 2 + n // 2 * rng.integers(0, 2, rows)) % n, rng.integers(0, n, rows))
    print(f"\n{'design, ' + str(rows) + ' rows':<34}{'iterations':>11}{'least':>9}{'error of log|P|':>17}")
    for name, columns in {
        "balanced, 10 rows a level": (u, rng.integers(0, n, rows)),
        "100 rows a level": (u % (n // 10), rng.integers(0, n // 10, rows)),
        "2 rows a level": (rng.integers(0, rows // 2, rows), rng.integers(0, rows // 2, rows)),
        "levels by Zipf's law": drawn,
        "nine rows in ten nested": (u, near),
        "three terms": (u, rng.integers(0, n, rows), rng.integers(0, n // 2, rows)),
    }.items():
        terms = [(gmrf.iid(int(c.max()) + 1, precision=1 / 0.64), c) for c in columns]
        task = Task(Gaussian(1.0), gmrf.stack(terms, rng.normal(size=(rows, 1))), np.zeros(rows))
        system = System(task.rows, task.layout.prior(task.family.theta)[0], np.ones(rows))
        z = rng.choice([-1.0, 1.0], size=(system.nm, probes))
        b = np.vstack([L[:, 0] * part for L, part in zip(system.L, np.split(z, system.rows.starts[1:]), strict=True)])
        solved = solve_columns(system.schur, system.precondition, b, 1e-6, 2000)
        least = min(np.linalg.eigvalsh(_dense(T)).min() for T in tridiagonals(solved))
        probed = system.probe(z, 1e-6)
        print(f"{name:<34}{solved.iterations:>11}{least:>9.3f}{probed.se(probed.log_ratio):>17.2g}", flush=True)


def _dense(T: Any) -> np.ndarray:
    return np.diag(T.diagonal) + np.diag(T.beside, 1) + np.diag(T.beside, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--families", nargs="*", default=["bernoulli", "gaussian"])
    parser.add_argument("--beside", type=int, default=20_000)
    parser.add_argument("--designs", type=int, default=100_000)
    parser.add_argument("--probes", type=int, default=32)
    parser.add_argument("--formula", action="store_true")
    asked = parser.parse_args()
    print(f"{'learned':<34}{'cpu s':>9}{'wall s':>9}{'MiB':>9}")
    if asked.beside:
        beside(asked.beside, asked.families, asked.probes)
    if asked.rows:
        large(asked.rows, asked.families, asked.probes, asked.formula)
    if asked.designs:
        designs(asked.designs, asked.probes)


if __name__ == "__main__":
    main()
