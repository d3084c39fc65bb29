"""What the default prior of an sd of groups does: estimates, coverage and stability over simulated data sets.

    OPENBLAS_NUM_THREADS=1 python benchmarks/prior_choice.py [--sets 64] [--jobs 16] [--links gaussian] [--groups 3 6]

Groups of equal size with one covariate that varies within them and not between: eta = level + .5 x + sd u. Every data
set is fitted by ``fenchel.fit`` as it comes, once under each prior, so that differences between priors have no noise of
the data. For Gaussian noise u is in sds of y, as the default is. Each cell of the table has five numbers:

    median of sd      mean over data sets of the posterior median, against the truth in % (where that is 0: itself)
    sd, level, slope  share of 95 % intervals that hold the truth, in % (an sd of 0: share of lower ends below 0.1)
    width             of the level's interval, median over data sets, relative to the t interval of the group means
                      (Gaussian, exact), or to that of the first prior (all others)

Failures are fits that raise, do not converge or have no finite interval; "warned" are those that warn.
Ordinal rows and 200 groups have half as many sets. The standard error of a share over 64 sets is 2.7 %.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

import fenchel
from fenchel.hyperparameters.priors import HalfNormal
from fenchel.tasks import run_tasks

SHARE = 0.05
PRIORS: dict[str, Callable[[float], Any]] = {
    "half-normal 5": lambda unit: HalfNormal(5.0 * unit, SHARE),
    "half-normal 3": lambda unit: HalfNormal(3.0 * unit, SHARE),
    "half-normal 2.5": lambda unit: HalfNormal(2.5 * unit, SHARE),
    "exponential 5": lambda unit: fenchel.PC(5.0 * unit, SHARE),
    "exponential 3": lambda unit: fenchel.PC(3.0 * unit, SHARE),
}
FAMILIES = {"gaussian": "gaussian", "logit": "bernoulli", "log": "poisson", "ordinal": "ordinal"}
SDS = {"gaussian": (0.0, 0.3, 1.0, 3.0), "logit": (0.0, 0.3, 1.0, 3.0), "log": (0.0, 0.3, 1.0), "ordinal": (1.0, 3.0)}
EACH = {3: 20, 6: 10, 20: 8, 200: 4}  # rows a group, by the number of groups
LEVEL = {"gaussian": -0.3, "logit": -0.3, "log": 0.7}  # an ordinal model has cutpoints in its place
SLOPE = 0.5
CUTS = -1.0, 1.0  # of ordinal levels
TERM = "(1|g)", "sd"
NEAR_ZERO = 0.1
MEASURES = "median", "covers sd", "covers level", "covers slope", "width"


class Cell(NamedTuple):
    link: str
    groups: int
    sd: float


def draw(cell: Cell, rng: np.random.Generator) -> pd.DataFrame:
    """One data set; x has mean 0 within every group, so that group means say nothing of its slope."""
    each = EACH[cell.groups]
    g = np.repeat(np.arange(cell.groups), each)
    x = rng.normal(size=(cell.groups, each))
    x = (x - x.mean(1, keepdims=True)).ravel()
    eta = LEVEL.get(cell.link, 0.0) + SLOPE * x + cell.sd * rng.normal(size=cell.groups)[g]
    if cell.link == "gaussian":
        y: np.ndarray = eta + rng.normal(size=g.size)
    elif cell.link == "logit":
        y = (rng.random(g.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    elif cell.link == "log":
        y = rng.poisson(np.exp(eta))
    else:
        y = np.digitize(eta + rng.logistic(size=g.size), CUTS)
    return pd.DataFrame({"g": g, "x": x, "y": y})


def t_width(data: pd.DataFrame) -> float:
    """Of the exact interval of the level: group means are independent, with one variance."""
    means = data.groupby("g")["y"].mean()
    return float(2.0 * student.ppf(0.975, means.size - 1) * means.std(ddof=1) / np.sqrt(means.size))


def fit_under(prior: Any, cell: Cell, data: pd.DataFrame) -> dict[str, Any]:
    """What one fit says."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        began = time.process_time()
        try:
            fit = fenchel.fit("y ~ x + (1|g)", data, FAMILIES[cell.link], priors={TERM[0]: prior})
            beta, sd = fit.coefficients, fit.hyperparameters.loc[TERM]
        except Exception as error:  # a failure is what is counted
            return {"failed": True, "why": f"{type(error).__name__}: {error}"}
        seconds = time.process_time() - began
    ends = [sd[["lower", "upper"]], *(beta.loc[name, ["lower", "upper"]] for name in beta.index)]
    finite = all(np.isfinite(end.to_numpy(float)).all() for end in ends)
    out: dict[str, Any] = {"failed": not (fit.converged and finite), "seconds": seconds}
    out["why"] = "" if not out["failed"] else fit.found.status
    out["warned"], out["integrated"] = bool(said), fit.integrated is not None
    out["says"] = str(said[0].message)[:90] if said else ""
    out["median"] = float(sd.get("median", sd["value"]))
    low, high = float(sd["lower"]), float(sd["upper"])
    out["covers sd"] = low <= cell.sd <= high if cell.sd > 0.0 else low < NEAR_ZERO
    truths = {"level": ("Intercept", LEVEL.get(cell.link)), "slope": ("x", SLOPE)}
    for word, (name, truth) in truths.items():
        if truth is not None and name in beta.index:
            low, high = beta.loc[name, ["lower", "upper"]]
            out[f"covers {word}"] = low <= truth <= high
            if word == "level":
                out["interval"] = high - low
    return out


def one_set(every: list[Cell], which: tuple[int, int]) -> pd.DataFrame:
    """A data set under every prior."""
    cell, seed = every[which[0]], which[1]
    data = draw(cell, np.random.default_rng([seed, *which]))
    gaussian = cell.link == "gaussian"
    unit = float(data["y"].std(ddof=0)) if gaussian else 1.0
    found = pd.DataFrame({name: fit_under(prior(unit), cell, data) for name, prior in PRIORS.items()}).T
    if "interval" in found:
        found["width"] = found["interval"] / (t_width(data) if gaussian else found["interval"].iloc[0])
    return found.assign(link=cell.link, groups=cell.groups, sd=cell.sd)


def in_figures(cell: Cell, each: pd.DataFrame) -> dict[str, float]:
    """What is printed of one prior in one cell."""
    kept = each[~each["failed"].astype(bool)]
    middle = kept["median"].astype(float).mean()
    out = {"median": 100.0 * (middle / cell.sd - 1.0) if cell.sd > 0.0 else middle}
    for name in MEASURES[1:4]:
        out[name] = 100.0 * kept[name].astype(float).mean() if name in kept else np.nan
    out["width"] = kept["width"].astype(float).median() if "width" in kept else np.nan
    return out


def in_words(cell: Cell, figures: dict[str, float]) -> str:
    first = f"{figures['median']:+.0f}" if cell.sd > 0.0 else f"{figures['median']:.2f}"
    shares = ["-" if np.isnan(figures[name]) else f"{figures[name]:.0f}" for name in MEASURES[1:4]]
    return " ".join([first, *shares, "-" if np.isnan(figures["width"]) else f"{figures['width']:.2f}"])


def cells(links: list[str], groups: list[int]) -> list[Cell]:
    return [Cell(link, n, sd) for link in links for n in groups for sd in SDS[link]]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--sets", type=int, default=64)
    ask.add_argument("--jobs", type=int, default=None)
    ask.add_argument("--links", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    ask.add_argument("--groups", nargs="+", type=int, choices=list(EACH), default=list(EACH))
    asked = ask.parse_args()
    began, every = time.perf_counter(), cells(asked.links, asked.groups)
    print("each prior: median of sd, covers sd, covers level, covers slope, width\n")
    print(f"| link | groups | true sd | {' | '.join(PRIORS)} |")
    print("|---" * (3 + len(PRIORS)) + "|", flush=True)
    gathered, tables = [], []
    for i, cell in enumerate(every):  # a cell is printed when it is known
        sets = max(1, asked.sets // 2 ** ((cell.link == "ordinal") + (cell.groups == 200)))
        work = [(i, s) for s in range(sets)]
        own = pd.concat(run_tasks(one_set, work, every, where="prior_choice", n_jobs=asked.jobs))
        figures = {name: in_figures(cell, own.loc[[name]]) for name in PRIORS}
        gathered += [{"prior": name, **cell._asdict(), **found} for name, found in figures.items()]
        tables.append(own)
        words = " | ".join(in_words(cell, found) for found in figures.values())
        print(f"| {cell.link} | {cell.groups} | {cell.sd:g} | {words} |", flush=True)
    table = pd.concat(tables)
    by_cell = pd.DataFrame(gathered)
    print("\n| prior | groups | median of sd | least and mean cover of sd | of level | of slope | width, Gaussian |")
    print("|---" * 7 + "|")
    for name in PRIORS:
        for n in asked.groups:
            own = by_cell[(by_cell["prior"] == name) & (by_cell["groups"] == n) & (by_cell["sd"] > 0.0)]
            bias = f"{own['median'].min():+.0f} to {own['median'].max():+.0f} %"
            shares = [f"{own[m].min():.0f}, {own[m].mean():.1f}" for m in MEASURES[1:4]]
            width = own.loc[own["link"] == "gaussian", "width"].mean()
            print(f"| {name} | {n} | {bias} | {' | '.join(shares)} | {width:.2f} |")
    print("\n| prior | failed | warned | integrated | seconds a fit |\n|---|---|---|---|---|")
    for name in PRIORS:
        own = table.loc[[name]]
        shares = [f"{100.0 * own[m].astype(float).mean():.2f} %" for m in ("failed", "warned", "integrated")]
        print(f"| {name} | {' | '.join(shares)} | {own['seconds'].astype(float).mean():.2f} |")
    said = pd.concat([table["says"], table.loc[table["failed"].astype(bool), "why"]]).dropna()
    for text, count in said[said != ""].value_counts().head(8).items():
        print(f"  {count} times: {text}")
    print(f"\n{len(table)} fits, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
