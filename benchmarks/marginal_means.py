"""Means, comparisons and slopes of six models beside emmeans, under flat priors.

    python benchmarks/marginal_means.py

R's answers are in ``marginal_means.json``, which ``marginal_means.R`` writes. R has the maximum of the likelihood, ours
is the mean of the posterior. The two are the same for Gaussian rows; elsewhere they differ by a term of order 1/N. So
the same tables are fitted with every row seen 10,000 times, too (``weights=``): R's estimates do not move by that, and
its standard errors are a hundredth.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import fenchel

KEPT = json.loads((Path(__file__).parent / "marginal_means.json").read_text())
REPEATS = 10_000
MODELS = {
    "warpbreaks": ("breaks ~ wool * tension", "gaussian", "tension", ["wool"]),
    "toothgrowth": ("len ~ supp * dose", "gaussian", "supp", []),
    "birthwt": ("low ~ race + smoke + age + lwt", "bernoulli", "race", []),
    "quine": ("Days ~ Eth * Sex * Age", "poisson", "Sex", ["Eth"]),
    "warpbreaks_counts": ("breaks ~ wool + tension", "poisson", "tension", []),
    "housing": ("Sat ~ Infl + Type + Cont", "ordinal", "Type", []),
}


def flat(formula: str, data: pd.DataFrame, family: str) -> fenchel.FittedModel:
    """The fit under flat priors; of ordered levels each row of the table is as many as it says."""
    if family == "ordinal":
        levels = pd.Categorical(data["Sat"], ["Low", "Medium", "High"], ordered=True)
        data = data.assign(Sat=levels, seen=data["seen"] * data["Freq"])
    names = fenchel.Model(formula, data, family, weights="seen").priors.index.get_level_values(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        priors = {name: None for name in names if name != "noise"}
        return fenchel.fit(formula, data, family, weights="seen", priors=priors, accuracy="fast")


def apart(found: pd.DataFrame, kept: dict, cells: list[str], names: tuple[str, str], repeats: int) -> np.ndarray:
    """The largest differences: of estimates, relative and in standard errors, and of standard errors, relative."""
    want = pd.DataFrame(kept).set_index(cells)
    found = found.set_index(cells).loc[want.index]
    off = (found["estimate"] - want[names[0]]).abs()
    error = found["std_error"] * np.sqrt(repeats) / want[names[1]]
    return np.array([(off / want[names[0]].abs()).max(), (off / want[names[1]]).max(), (error - 1.0).abs().max()])


def rows_of(name: str, repeats: int) -> dict[str, np.ndarray]:
    """What is compared of a model, each by ``apart``."""
    formula, family, by_level, by = MODELS[name]
    kept = KEPT[name]
    fit = flat(formula, pd.DataFrame(kept["data"]).assign(seen=float(repeats)), family)
    pairs = fit.comparisons(by_level, by=by, scale="link")
    out = {"pairs": apart(pairs, kept["pairs"], ["contrast", *by], ("estimate", "SE"), repeats)}
    if "means" in kept:
        for weights, key in (("equal", "means"), ("cells", "cells")):
            found = fit.means(by_level, by=by, scale="link", weights=weights)
            out[key] = apart(found, kept[key], [by_level, *by], ("emmean", "SE"), repeats)
        found = fit.means(by_level, weights="population").rename(columns={by_level: "level"})
        out["averages over rows"] = apart(found, kept["population"], ["level"], ("estimate", "std_error"), repeats)
    if "slopes" in kept:
        want = kept["slopes"]
        found = fit.slopes(want["along"], by=by_level, weights="equal", scale="link").rename(
            columns={by_level: "level"}
        )
        out["slopes"] = apart(
            found, {k: want[k] for k in ("level", "estimate", "SE")}, ["level"], ("estimate", "SE"), repeats
        )
        average = {"term": [want["along"]], "estimate": [want["average"]], "SE": [want["average_SE"]]}
        found = fit.slopes(want["along"], scale="mean")
        out["slopes averaged over rows"] = apart(found, average, ["term"], ("estimate", "SE"), repeats)
    return out


if __name__ == "__main__":
    print(f"emmeans {KEPT['emmeans']}, R {KEPT['R']}; largest differences over all entries")
    print("| model | rows seen | what | estimates, relative | in standard errors | standard errors, relative |")
    print("|---|---|---|---|---|---|")
    for name, (_, family, *_) in MODELS.items():
        for repeats in (1,) if family == "gaussian" else (1, REPEATS):
            for what, off in rows_of(name, repeats).items():
                print(f"| {name} | {repeats} | {what} | {off[0]:.1e} | {off[1]:.1e} | {off[2]:.1e} |", flush=True)
