"""Twelve models of tables with groups, regions and times, one formula each, beside what is known of the data.

Seen: estimates with 95 % intervals, and beside them the truth of the simulation or, for the two balanced designs, the
estimates that the analysis of variance gives (they are those of restricted maximum likelihood, what lme4 reports).

    python examples/mixed_models.py [picture.png]
"""

import sys
import time

import numpy as np
import pandas as pd
from scipy.special import expit

import fenchel
from fenchel.datasets import load_sids

FLAT = {"(1|batch)": None, "(1|batch:cask)": None}  # to match restricted maximum likelihood; the defaults are weak


def normal(rng, n, sd=1.0):
    return sd * rng.normal(size=n)


def batches(rng):
    """y_ij = 10 + b_i + e_ij, 12 batches of 5: sds from the mean squares."""
    data = pd.DataFrame({"batch": np.repeat(np.arange(12), 5)})
    data["y"] = 10.0 + normal(rng, 12, 2.0)[data.batch] + normal(rng, 60)
    between, within = 5 * data.groupby("batch").y.mean().var(), data.groupby("batch").y.var().mean()
    return data, {"(1|batch) sd": np.sqrt((between - within) / 5), "noise sd": np.sqrt(within)}


def casks(rng):
    """y_ijk = 60 + b_i + c_ij + e_ijk, casks within batches."""
    data = pd.DataFrame({"batch": np.repeat(np.arange(10), 6), "cask": np.tile(np.repeat(["a", "b", "c"], 2), 10)})
    cask = normal(rng, 30, 1.5)[3 * data.batch + data.cask.map({"a": 0, "b": 1, "c": 2})]
    data["y"] = 60.0 + normal(rng, 10, 2.0)[data.batch] + cask + normal(rng, 60, 0.8)
    means = data.groupby(["batch", "cask"]).y.mean()
    outer, inner = 6 * means.groupby("batch").mean().var(), 2 * means.groupby("batch").var().mean()
    within = data.groupby(["batch", "cask"]).y.var().mean()
    sds = np.sqrt([(outer - inner) / 6, (inner - within) / 2, within])
    return data, dict(zip(["(1|batch) sd", "(1|batch:cask) sd", "noise sd"], sds, strict=True))


def groups(rng, n=600, k=30):
    """A number, a factor, a group and a response of every kind."""
    data = pd.DataFrame({"x": normal(rng, n), "f": rng.choice(["a", "b"], n), "g": rng.integers(0, k, n)})
    data["n"] = rng.integers(2, 12, n)
    b = rng.multivariate_normal([0, 0], [[0.64, 0.24], [0.24, 0.36]], k)
    eta = 0.5 * data.x - 0.7 * (data.f == "b") + b[data.g, 0]
    data["slopes"] = 1.0 + eta + b[data.g, 1] * data.x + normal(rng, n, 0.5)
    data["hits"], data["cases"] = rng.binomial(data.n, expit(eta)), rng.poisson(data.n * np.exp(eta))
    data["bursts"] = rng.negative_binomial(3, 3 / (3 + np.exp(1 + eta)))
    data["level"] = pd.cut(eta + rng.logistic(size=n), [-99, -1, 1, 99], labels=["low", "middle", "high"])
    lasts = rng.weibull(1.5, n) * np.exp(-eta / 1.5)
    data["months"], data["failed"] = np.minimum(lasts, 2.0), lasts < 2.0
    data["z"] = rng.uniform(0, 1, n)
    data["curve"] = np.sin(6 * data.z) + b[data.g, 0] + normal(rng, n, 0.4)
    data["year"] = rng.integers(2000, 2020, n)
    data["late"] = data.year.map(dict(zip(range(2000, 2020), np.cumsum(normal(rng, 20, 0.3)), strict=True)))
    data["trend"] = rng.poisson(np.exp(1 + data.late + b[data.g, 0]))
    return data


def models():
    """(formula, data, family and options, what is known) of each."""
    rng = np.random.default_rng(1)
    one, two, many, sids = batches(rng), casks(rng), groups(rng), load_sids()
    effects = {"x": 0.5, "f[T.b]": -0.7, "(1|g) sd": 0.8}
    counties = pd.DataFrame({"county": sids.county, "deaths": sids.deaths, "expected": sids.expected})
    region = {"exposure": "expected", "graphs": {"county": sids.adjacency}, "levels": {"county": sids.county}}
    crossed = pd.DataFrame({"s": np.repeat(np.arange(40), 12), "item": np.tile(np.arange(12), 40)})
    sums = normal(rng, 40, 1.2)[crossed.s] + normal(rng, 12, 0.6)[crossed["item"]]
    crossed["right"] = rng.random(480) < expit(sums)
    slope = {"(x|g) sd intercept": 0.8, "(x|g) sd x": 0.6, "(x|g) correlation intercept, x": 0.5}
    return [
        ("y ~ 1 + (1|batch)", one[0], {"priors": {"(1|batch)": None}}, one[1]),
        ("y ~ 1 + (1|batch/cask)", two[0], {"priors": FLAT}, two[1]),
        ("slopes ~ x + f + (x|g)", many, {}, {"x": 0.5, "f[T.b]": -0.7, **slope, "noise sd": 0.5}),
        ("hits | trials(n) ~ x + f + (1|g)", many, {"family": "binomial"}, effects),
        ("cases ~ x + f + (1|g) + offset(np.log(n))", many, {"family": "poisson"}, effects),
        ("bursts ~ x + f + (1|g)", many, {"family": "negative-binomial"}, effects),
        ("level ~ x + f + (1|g)", many, {"family": "ordinal"}, effects),
        ("cens(months, failed) ~ x + f + (1|g)", many, {"family": "weibull"}, effects),
        ("right ~ 1 + (1|s) + (1|item)", crossed, {"family": "bernoulli"}, {"(1|s) sd": 1.2, "(1|item) sd": 0.6}),
        ("trend ~ rw1(year) + (1|g)", many, {"family": "poisson"}, {"(1|g) sd": 0.8}),
        ("curve ~ s(z) + (1|g)", many, {}, {"(1|g) sd": 0.8, "noise sd": 0.4}),
        ("deaths ~ bym2(county)", counties, {"family": "poisson", **region}, {}),
    ]


def known_of(fit):
    """Coefficients and hyperparameters in one table: mean, lower, upper."""
    found = fit.hyperparameters.rename(columns={"value": "mean"})
    found.index = [" ".join(map(str, key)) for key in found.index]
    return pd.concat([fit.coefficients[["mean", "lower", "upper"]], found])


def main(picture=None):
    fits, rows = {}, []
    for formula, data, options, known in models():
        begun = time.perf_counter()
        fit = fits[formula] = fenchel.fit(formula, data, **options)
        found = known_of(fit)
        print(f"\n{formula}   {time.perf_counter() - begun:.2f} s, gap {fit.gap:.0e}")
        for name, row in found.iterrows():
            truth = known.get(name)
            beside = "" if truth is None else f"   known: {truth:.3f}"
            print(f"  {name:<34}{row['mean']:>8.3f}  ({row['lower']:.3f} to {row['upper']:.3f}){beside}")
            rows += [] if truth is None else [(f"{name}, {formula.split(' ~')[0]}", *row, truth)]
    if picture:
        from matplotlib.figure import Figure

        from fenchel.plots import plot_forest

        names, mean, lower, upper, truth = zip(*rows, strict=True)
        figure = Figure(figsize=(7, 8), layout="constrained")
        ax = figure.subplots()
        centred = [np.subtract(values, truth) for values in (mean, lower, upper)]
        plot_forest(names, *centred, ax, label="estimate minus what is known, with 95 % intervals")
        figure.savefig(picture, dpi=150)
    return fits, rows


if __name__ == "__main__":
    main(*sys.argv[1:2])
