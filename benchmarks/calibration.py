"""Simulation-based calibration of four models, hyperparameters integrated out and plugged in.

    OPENBLAS_NUM_THREADS=1 python benchmarks/calibration.py [--sets 200] [--jobs 2] [--seed 0]

Each model draws its hyperparameters, coefficients and latents from their priors and data from those, and is fitted to
them (``fenchel.calibrate``). u = P(unknown <= truth | y) is uniform over data sets if the posterior is right: for each
quantity the p-value of Kolmogorov and Smirnov, and how often the truth is in the 95 % interval.
"Plugged in" is the same at the learned hyperparameters, as most software reports.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

import fenchel
from fenchel import PC, Model
from fenchel.datasets import load_sids


def models() -> dict[str, Model]:
    rng = np.random.default_rng(0)
    groups = pd.DataFrame({"x": rng.normal(size=90), "g": np.repeat(np.arange(15), 6), "y": 1.0})
    counts = groups.assign(y=rng.poisson(2.0, 90))
    binary = groups.assign(y=rng.integers(0, 2, 90))
    series = pd.DataFrame({"t": np.arange(60), "y": rng.normal(size=60)})
    sids = load_sids()
    areas = pd.DataFrame({"county": sids.county, "y": sids.deaths, "e": sids.expected})
    size = PC(sd=1.0, alpha=0.05)
    graph = {"graphs": {"county": sids.adjacency}, "levels": {"county": sids.county}, "exposure": "e"}
    spread = {"bym2(county)": size}
    return {
        "groups, Poisson": Model("y ~ x + (1|g)", counts, "poisson", fixed_sd=1.0, priors={"(1|g)": size}),
        "slopes, logistic": Model("y ~ x + (x|g)", binary, "bernoulli", fixed_sd=1.0),
        "random walk, Gaussian": Model("y ~ rw1(t)", series, "gaussian", fixed_sd=1.0, priors={"rw1(t)": size}),
        "counties, BYM2": Model("y ~ bym2(county)", areas, "poisson", fixed_sd=1.0, priors=spread, **graph),
    }


def report(name: str, model: Model, sets: int, jobs: int, seed: int) -> None:
    for word, method in (("integrated", "auto"), ("plugged in", None)):
        began = time.perf_counter()
        found = fenchel.calibrate(model, sets, method=method, rng=seed, n_jobs=jobs)
        took = (time.perf_counter() - began) / sets
        print(f"\n{name}, {word}: {found.verdict} {took:.2f} s a data set")
        inside = ((found.u > 0.025) & (found.u < 0.975)).mean()
        for key, p in found.p_values.items():
            print(f"  {key:<44}p = {p:<8.2g}  95 % interval holds {100 * inside[key]:.0f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name, model in models().items():
        report(name, model, asked.sets, asked.jobs, asked.seed)


if __name__ == "__main__":
    main()
