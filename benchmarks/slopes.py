"""Correlated random slopes in simulation: do 95 % intervals hold the truth in 95 % of data sets?

    OPENBLAS_NUM_THREADS=1 python benchmarks/slopes.py [--sets 200] [--family gaussian poisson] [--priors default]

    eta = 1 + 0.5 x + b_0[g] + b_1[g] x,   b[g] ~ N(0, S): sds 0.8 and 0.5, correlation 0.4

30 groups of 10 rows, x ~ U(-1, 2), so that the design does not tell intercept and slope apart; gaussian with noise of
sd 1, poisson as it is. Priors are the defaults for gaussian, and flat for the sds and the correlation of poisson, where
the default P(sd > 1) = 0.01 makes an sd of 0.8 a surprise of 2.5 %; ``--priors`` takes one of them for both. For every
parameter: its mean estimate, the share of intervals that hold the truth, that lie wholly below it and wholly above it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

import fenchel

SDS, CORRELATION, GROUPS, EACH, NOISE = (0.8, 0.5), 0.4, 30, 10, 1.0
TERM = "(x|g)"
TRUTH = {
    "Intercept": 1.0,
    "x": 0.5,
    f"{TERM} sd intercept": SDS[0],
    f"{TERM} sd x": SDS[1],
    f"{TERM} correlation intercept, x": CORRELATION,
    "noise sd": NOISE,
}


def drawn(rng: np.random.Generator, family: str) -> pd.DataFrame:
    """One data set."""
    u, v = rng.normal(size=(2, GROUPS))
    level, slope = SDS[0] * u, SDS[1] * (CORRELATION * u + np.sqrt(1 - CORRELATION**2) * v)
    data = pd.DataFrame({"g": np.repeat(np.arange(GROUPS), EACH), "x": rng.uniform(-1, 2, GROUPS * EACH)})
    eta = 1.0 + 0.5 * data.x + level[data.g] + slope[data.g] * data.x
    data["y"] = eta + NOISE * rng.normal(size=len(data)) if family == "gaussian" else rng.poisson(np.exp(eta))
    return data


def intervals(data: pd.DataFrame, family: str, flat: bool = False) -> pd.DataFrame:
    """mean, lower and upper of every parameter."""
    fit = fenchel.fit(f"y ~ x + {TERM}", data, family, priors={TERM: None} if flat else None, accuracy="fast")
    found = fit.hyperparameters.rename(columns={"value": "mean"})
    found.index = [" ".join(key) for key in found.index]
    return pd.concat([fit.coefficients[["mean", "lower", "upper"]], found])


def coverage(n: int, family: str, seed: int = 0, flat: bool = False) -> pd.DataFrame:
    """Over n data sets: the truth, the mean estimate, and where intervals lie."""
    sets = [intervals(drawn(np.random.default_rng([seed, i]), family), family, flat) for i in range(n)]
    truth = pd.Series(TRUTH)[sets[0].index]
    mean, lower, upper = (np.array([found[column] for found in sets]) for column in ("mean", "lower", "upper"))
    below, above = (upper < truth.to_numpy()).mean(axis=0), (lower > truth.to_numpy()).mean(axis=0)
    known = (~np.isnan(lower)).mean(axis=0)
    columns = {"truth": truth, "mean": mean.mean(axis=0), "covered": known - below - above}
    return pd.DataFrame({**columns, "below": below, "above": above, "no interval": 1 - known})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--priors", choices=["default", "flat"])
    parser.add_argument("--family", nargs="*", default=["gaussian", "poisson"], choices=["gaussian", "poisson"])
    args = parser.parse_args()
    for family in args.family:
        begun = time.perf_counter()
        priors = args.priors or ("default" if family == "gaussian" else "flat")
        found = coverage(args.sets, family, args.seed, priors == "flat")
        each = (time.perf_counter() - begun) / args.sets
        print(f"\n{family}, {args.sets} data sets, {priors} priors, {each:.2f} s each")
        print(found.to_string(float_format=lambda value: f"{value:.3f}"), flush=True)


if __name__ == "__main__":
    main()
