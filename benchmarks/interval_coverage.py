"""Do the 95 % intervals of the default fit hold the truth in 95 % of data sets?

    OPENBLAS_NUM_THREADS=1 python benchmarks/interval_coverage.py [--sets 300] [--models binary counts] [--jobs 2]

Data sets are drawn from known parameters and fitted by ``fenchel.fit`` as it comes. For coefficients and sds of
groups: the truth, the mean estimate, the share of intervals that hold the truth, and those wholly below and above it.
A share over 300 sets has a standard error of 1.3 %; "outside" marks one beyond 93 to 97 % by more than that. Of a
smooth and of a map the share is over the rows.

    binary      100 groups of 4 rows, logit, sd 1.5         slopes    30 groups of 10 rows, counts, sds .8 and .5
    counts      60 groups of 5 rows, log, sd .7             smooth    200 rows, sin, noise .5
    ordinal     60 groups of 6 rows, 4 levels, sd 1.2       map       10 x 10 regions, counts, icar and own effects
    gaussian    6 groups of 8 rows, sd 1, noise 1           frailty   60 groups of 4 durations, Weibull, sd .8
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import fenchel
from fenchel.tasks import run_tasks

LIMITS = 0.93, 0.97
ACCURACY = "auto"  # the default of a fit


class Draw(NamedTuple):
    """A data set with what is true of it."""

    data: pd.DataFrame
    truth: dict[Any, float]  # coefficients by name; hyperparameters by (term, parameter)
    curve: np.ndarray | None = None  # eta at each row, where a curve or a map is asked for


class Study(NamedTuple):
    """A model and where its data come from."""

    formula: str
    family: str
    draw: Callable[[np.random.Generator], Draw]
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed


def _groups(rng: np.random.Generator, groups: int, each: int, sd: float) -> tuple[pd.DataFrame, np.ndarray]:
    """g, a covariate within groups (x), one between them (z), and eta = -.3 + .5 x + .8 z + effect."""
    g = np.repeat(np.arange(groups), each)
    data = pd.DataFrame({"g": g, "x": rng.normal(size=g.size), "z": rng.normal(size=groups)[g]})
    return data, (-0.3 + 0.5 * data.x + 0.8 * data.z + sd * rng.normal(size=groups)[g]).to_numpy()


def _truth(sd: float, **more: float) -> dict[Any, float]:
    return {"Intercept": -0.3, "x": 0.5, "z": 0.8, ("(1|g)", "sd"): sd, **more}


def binary(rng: np.random.Generator) -> Draw:
    data, eta = _groups(rng, 100, 4, 1.5)
    return Draw(data.assign(y=(rng.random(eta.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)), _truth(1.5))


def counts(rng: np.random.Generator) -> Draw:
    data, eta = _groups(rng, 60, 5, 0.7)
    return Draw(data.assign(y=rng.poisson(np.exp(eta))), _truth(0.7))


def ordinal(rng: np.random.Generator) -> Draw:
    data, eta = _groups(rng, 60, 6, 1.2)
    score = eta + 0.3 + rng.logistic(size=eta.size)
    truth = _truth(1.2)
    del truth["Intercept"]
    return Draw(data.assign(y=np.digitize(score, [-1.5, 0.0, 1.5])), truth)


def gaussian(rng: np.random.Generator) -> Draw:
    data, eta = _groups(rng, 6, 8, 1.0)
    return Draw(data.assign(y=eta + rng.normal(size=eta.size)), {**_truth(1.0), ("noise", "sd"): 1.0})


def frailty(rng: np.random.Generator) -> Draw:
    data, eta = _groups(rng, 60, 4, 0.8)
    times = (rng.exponential(size=eta.size) * np.exp(-eta)) ** (1.0 / 1.5)
    ends = rng.uniform(0.5, 4.0, eta.size)
    truth = _truth(0.8)
    del truth["Intercept"]
    return Draw(data.assign(time=np.minimum(times, ends), event=(times <= ends).astype(int)), truth)


def slopes(rng: np.random.Generator) -> Draw:
    groups, each, rho = 30, 10, 0.4
    u, v = rng.normal(size=(2, groups))
    level, slope = 0.8 * u, 0.5 * (rho * u + np.sqrt(1.0 - rho**2) * v)
    data = pd.DataFrame({"g": np.repeat(np.arange(groups), each), "x": rng.uniform(-1, 2, groups * each)})
    eta = 1.0 + 0.5 * data.x + level[data.g] + slope[data.g] * data.x
    truth = {"Intercept": 1.0, "x": 0.5, ("(x|g)", "sd intercept"): 0.8, ("(x|g)", "sd x"): 0.5}
    return Draw(data.assign(y=rng.poisson(np.exp(eta))), truth)


def smooth(rng: np.random.Generator) -> Draw:
    data = pd.DataFrame({"t": np.sort(rng.uniform(0, 1, 200)), "x": rng.normal(size=200)})
    curve = np.sin(2 * np.pi * data.t).to_numpy()
    y = curve + 0.3 * data.x + 0.5 * rng.normal(size=200)
    return Draw(data.assign(y=y), {"x": 0.3, ("noise", "sd"): 0.5}, curve + 0.3 * data.x.to_numpy())


SIDE = 10
GRAPH = {
    SIDE * i + j: [
        SIDE * a + b for a, b in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)) if 0 <= a < SIDE and 0 <= b < SIDE
    ]
    for i in range(SIDE)
    for j in range(SIDE)
}


def regions(rng: np.random.Generator) -> Draw:
    i, j = np.divmod(np.arange(SIDE**2), SIDE)
    field = 0.5 * (np.sin(i / 3.0 + rng.uniform(0, 6)) + np.cos(j / 2.5 + rng.uniform(0, 6)))
    field += 0.2 * rng.normal(size=SIDE**2)
    data = pd.DataFrame({"r": np.arange(SIDE**2), "x": rng.normal(size=SIDE**2), "e": rng.uniform(2, 10, SIDE**2)})
    eta = 0.1 + 0.3 * data.x + field
    return Draw(data.assign(y=rng.poisson(data.e * np.exp(eta))), {"x": 0.3}, np.asarray(eta))


STUDIES = {
    "binary": Study("y ~ x + z + (1|g)", "bernoulli", binary),
    "counts": Study("y ~ x + z + (1|g)", "poisson", counts),
    "ordinal": Study("y ~ x + z + (1|g)", "ordinal", ordinal),
    "gaussian": Study("y ~ x + z + (1|g)", "gaussian", gaussian),
    "slopes": Study("y ~ x + (x|g)", "poisson", slopes),
    "smooth": Study("y ~ x + s(t)", "gaussian", smooth),
    "map": Study("y ~ x + bym2(r)", "poisson", regions, {"exposure": "e", "graphs": {"r": GRAPH}}),
    "frailty": Study("cens(time, event) ~ x + z + (1|g)", "cox", frailty),
}


def one_set(study: Study, seed: int) -> pd.DataFrame:
    """Truth, estimate, lower and upper of one data set; of a curve, the share of places whose interval holds it."""
    drawn = study.draw(np.random.default_rng([seed, len(study.formula)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        fit = fenchel.fit(study.formula, drawn.data, study.family, accuracy=ACCURACY, **study.options)
        seconds = time.perf_counter() - began
        theta = fit.hyperparameters
    column = "median" if "median" in theta else "value"
    theta = theta.rename(columns={column: "mean"}) if column == "value" else theta.assign(mean=theta["median"])
    rows = {}
    for name, truth in drawn.truth.items():
        table = theta if isinstance(name, tuple) else fit.coefficients
        if name in table.index:
            found = table.loc[name]
            rows[" ".join(name) if isinstance(name, tuple) else name] = (truth, *found[["mean", "lower", "upper"]])
    out = pd.DataFrame(rows, index=["truth", "mean", "lower", "upper"]).T
    if drawn.curve is not None:
        band = fit.predict(drawn.data, kind="link", interval=0.95)
        held = (band["lower"] <= drawn.curve) & (drawn.curve <= band["upper"])
        out.loc["eta at rows"] = [np.nan, held.mean(), np.nan, np.nan]
    out["seconds"] = seconds
    return out


def study_of(name: str, sets: int, jobs: int | None) -> pd.DataFrame:
    """Coverage over data sets, a parameter a row."""
    found = run_tasks(one_set, range(sets), STUDIES[name], where="coverage", n_jobs=jobs)
    table = pd.concat(found, keys=range(sets))
    rows = {}
    for parameter, each in table.groupby(level=1, sort=False):
        if parameter == "eta at rows":
            rows[parameter] = (np.nan, np.nan, each["mean"].mean(), np.nan, np.nan)
            continue
        below, above = (each.upper < each.truth).mean(), (each.lower > each.truth).mean()
        covered = ((each.lower <= each.truth) & (each.truth <= each.upper)).mean()
        rows[parameter] = (each.truth.iloc[0], each["mean"].mean(), covered, below, above)
    out = pd.DataFrame(rows, index=["truth", "estimate", "covered", "below", "above"]).T
    error = np.sqrt(0.05 * 0.95 / sets)
    outside = (out.covered < LIMITS[0] - error) | (out.covered > LIMITS[1] + error)
    out["verdict"] = np.where(outside, "outside", "")
    print(
        f"\n{name}: {STUDIES[name].formula}, {STUDIES[name].family}, {sets} sets, "
        f"median {table.seconds.median():.2f} s a fit"
    )
    print(out.round(3).to_string(na_rep=""), flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=300)
    parser.add_argument("--models", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--jobs", type=int, default=None)
    args = parser.parse_args()
    tables = [study_of(name, args.sets, args.jobs) for name in args.models]
    covered = pd.concat(tables).covered
    print(
        f"\n{len(covered)} shares, {covered.min():.3f} to {covered.max():.3f}; "
        f"{int(((covered < LIMITS[0]) | (covered > LIMITS[1])).sum())} outside of {LIMITS[0]} to {LIMITS[1]}"
    )


if __name__ == "__main__":
    main()
