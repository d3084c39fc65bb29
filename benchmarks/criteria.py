"""Leave-one-out and leave-group-out without refits, against exact refits.

    OPENBLAS_NUM_THREADS=1 python benchmarks/criteria.py [--refits 50] [--seed 0]

The truth of a row or group I is log p(y) - log p(y without I), each the corrected evidence of its own fit. Beside it:

    cavity       the Gaussian q without the site of the row: ``sol.loo()``
    corrected    ``sol.corrected().loo()``
    local        ``leave_group_out``: a small fit of the rows that move most, 20 of them

Average and largest |difference| in nats over as many rows or groups as asked, and the seconds of all rows or groups by
each against those of the refits. Of ``leave_group_out`` those that it does not flag and those that it does are apart;
"as it comes" is what a user gets, flagged ones fitted again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

import fenchel
from fenchel.criticism import leave_group_out
from fenchel.datasets import load_coal, load_pima, load_sids
from fenchel.gmrf import bym2, rw2, stack
from fenchel.likelihoods import BernoulliLogit, Likelihood, Poisson
from fenchel.priors import DenseCovariance
from fenchel.priors.base import Prior


@dataclass(frozen=True)
class Case:
    name: str
    likelihood: Likelihood
    prior: Prior
    y: np.ndarray
    groups: np.ndarray
    of: str


def cases() -> list[Case]:
    pima, coal, sids = load_pima(), load_coal(), load_sids()
    X = pima.X[pima.train]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    K = 4.0 * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2) / 9.0)
    labels = pima.y[pima.train]
    years, counts = coal.year, np.asarray(coal.count, dtype=np.float64)
    series = stack([(rw2(len(years)), np.arange(len(years)))])
    map_ = stack([(bym2(sids.adjacency), np.arange(len(sids.deaths)))])
    theta = np.array([np.log(0.4), 0.0])  # log sd, logit of the spatial share
    return [
        Case(
            "Pima, GP classifier",
            BernoulliLogit("exact"),
            DenseCovariance(K),
            labels,
            np.arange(labels.size) // 5,
            "5 rows",
        ),
        Case("coal, RW2", Poisson(), series.at(np.array([-3.0])), counts, np.asarray(years) // 5, "5 years"),
        Case(
            "North Carolina, BYM2",
            Poisson(exposure=np.asarray(sids.expected)),
            map_.at(theta),
            np.asarray(sids.deaths, dtype=np.float64),
            np.arange(len(sids.deaths)) // 4,
            "4 counties",
        ),
    ]


def truth(case: Case, sol: fenchel.Solution, some: list[np.ndarray]) -> tuple[np.ndarray, float]:
    whole, out, began = float(sol.corrected().log_evidence), [], time.perf_counter()
    for rows in some:
        y = case.y.copy()
        y[rows] = np.nan
        fit = fenchel.infer(case.likelihood, case.prior, y, tol=1e-10)
        out.append(whole - float(fit.corrected().log_evidence))
    return np.array(out), time.perf_counter() - began


def line(name: str, found: np.ndarray, exact: np.ndarray, seconds: float | None = None) -> str:
    if not exact.size:
        return f"  {name:<22}      none"
    off = np.abs(found - exact)
    took = "" if seconds is None else f"{seconds:>9.2f} s"
    return f"  {name:<22}{off.mean():>10.5f}{off.max():>10.4f}{took}"


def local(case: Case, sol: fenchel.Solution, groups: np.ndarray, refits: int, rng: np.random.Generator) -> None:
    began = time.perf_counter()
    alone = leave_group_out(sol, groups, joint=True, refit="none")
    took = time.perf_counter() - began
    began = time.perf_counter()
    whole = leave_group_out(sol, groups, joint=True, prior=case.prior)
    all_took = time.perf_counter() - began
    some = np.sort(rng.choice(len(alone.groups), min(refits, len(alone.groups)), replace=False))
    exact, spent = truth(case, sol, [alone.groups[g] for g in some])
    flagged = alone.flagged[some]
    print(f"    {some.size} refitted in {spent:.1f} s, {int(flagged.sum())} of them flagged")
    print(line("local, not flagged", alone.joint[some][~flagged], exact[~flagged], took))
    print(line("local, flagged", alone.joint[some][flagged], exact[flagged]))
    print(line("as it comes", whole.joint[some], exact, all_took))


def report(case: Case, refits: int, rng: np.random.Generator) -> None:
    sol = fenchel.infer(case.likelihood, case.prior, case.y, tol=1e-10)
    n = case.y.size
    rows = np.sort(rng.choice(n, min(refits, n), replace=False))
    exact, spent = truth(case, sol, [np.array([r]) for r in rows])
    print(f"\n{case.name}: {n} rows; {rows.size} of them refitted in {spent:.1f} s       average   largest")
    began = time.perf_counter()
    plain = np.asarray(sol.loo().log_density)
    print(line("cavity", plain[rows], exact, time.perf_counter() - began))
    began = time.perf_counter()
    better = np.asarray(sol.corrected().loo().log_density)
    print(line("corrected", better[rows], exact, time.perf_counter() - began))
    print("  rows one by one")
    local(case, sol, np.arange(n), refits, rng)
    print(f"  groups of {case.of}")
    local(case, sol, case.groups, refits, rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refits", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for case in cases():
        report(case, asked.refits, np.random.default_rng(asked.seed))


if __name__ == "__main__":
    main()
