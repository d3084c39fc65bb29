"""Twelve published mixed models: one formula each, compared with lme4 and glmmTMB on the same data.

The data are simulated with the design of each published data set and its published estimates as the truth, from fixed
seeds. They contain no original values. With flat priors for sds and wide priors for coefficients, a fit maximises the
same function as restricted maximum likelihood. ``evidence="corrected"`` does so without the Gaussian approximation, as
quadrature does.

    python examples/mixed_models.py [picture.png]

``mixed_models.json`` holds the results of R, with its versions; ``python benchmarks/mixed_models.py --r`` makes it
anew.
"""

import json
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import fenchel

STORED = Path(__file__).with_name("mixed_models.json")
RNG = np.random.RandomState  # its streams never change


def crossed(**sizes):
    """A table with a row for each combination of levels; the last column changes fastest."""
    levels = [np.arange(n) if isinstance(n, int) else np.asarray(n) for n in sizes.values()]
    return pd.DataFrame(dict(zip(sizes, (grid.ravel() for grid in np.meshgrid(*levels, indexing="ij")), strict=True)))


def named(frame, column, letter):
    return frame.assign(**{column: [f"{letter}{i:03d}" for i in frame[column]]})


def chance(eta):
    return 1 / (1 + np.exp(-eta))


def dyestuff(rng):
    """Yields of six batches, five preparations each (Davies 1947)."""
    data = crossed(batch=6, preparation=5)
    data["y"] = np.round(1527.5 + 42.0 * rng.normal(size=6)[data.batch] + 49.5 * rng.normal(size=30), 1)
    return named(data, "batch", "b")


def pastes(rng):
    """Strengths of casks within batches, two assays each (Davies 1947)."""
    data = crossed(batch=10, cask=["a", "b", "c"], assay=2)
    cask = np.repeat(rng.normal(size=30), 2)
    data["y"] = np.round(
        60.05 + 1.287 * rng.normal(size=10)[data.batch] + 2.904 * cask + 0.823 * rng.normal(size=60), 2
    )
    return named(data, "batch", "b")


def penicillin(rng):
    """Six samples on each of 24 plates (Davies 1947)."""
    data = crossed(plate=24, sample=6)
    groups = 0.847 * rng.normal(size=24)[data.plate] + 1.932 * rng.normal(size=6)[data["sample"]]
    data["y"] = np.round(22.97 + groups + 0.55 * rng.normal(size=144), 2)
    return named(named(data, "plate", "p"), "sample", "s")


def sleep(rng):
    """Reaction times of 18 subjects over ten days with little sleep (Belenky 2003)."""
    data = crossed(subject=18, days=10)
    u, v = rng.normal(size=(2, 18))
    level, slope = 24.741 * u, 5.922 * (0.066 * u + np.sqrt(1 - 0.066**2) * v)
    eta = 251.405 + 10.467 * data.days + level[data.subject] + slope[data.subject] * data.days
    data["y"] = np.round(eta + 25.592 * rng.normal(size=180), 2)
    return named(data, "subject", "s")


def machines(rng):
    """Scores of six workers on three machines, three times each (Milliken and Johnson 1992)."""
    data = crossed(worker=6, machine=["A", "B", "C"], turn=3)
    mean = data.machine.map({"A": 52.356, "B": 60.322, "C": 66.272})
    groups = 4.781 * rng.normal(size=6)[data.worker] + 3.73 * np.repeat(rng.normal(size=18), 3)
    data["y"] = np.round(mean + groups + 0.962 * rng.normal(size=54), 2)
    return named(data, "worker", "w")


def cattle(rng):
    """New cases of pleuropneumonia in 15 herds over four periods (Lesnoff 2004)."""
    data = crossed(herd=15, period=["1", "2", "3", "4"])
    data["size"] = 2 + rng.poisson(13, 60)
    mean = data.period.map({"1": -1.398, "2": -2.390, "3": -2.526, "4": -2.978})
    data["cases"] = rng.binomial(data["size"], chance(mean + 0.642 * rng.normal(size=15)[data.herd]))
    return named(data, "herd", "h")


def contraception(rng):
    """Use of contraception by 1934 women of 60 districts in Bangladesh (Huq and Cleland 1990)."""
    women = 2 + rng.multinomial(1814, rng.dirichlet(np.full(60, 2.0)))
    data = pd.DataFrame({"district": np.repeat(np.arange(60), women)})
    data["urban"] = (rng.uniform(size=1934) < 0.29).astype(int)
    data["children"] = np.array(["0", "1", "2", "3+"])[rng.choice(4, 1934, p=[0.27, 0.18, 0.16, 0.39])]
    data["age"] = np.round(rng.uniform(-13.6, 12, 1934) + 2.5 * (data.children == "3+"), 1)
    fixed = -1.035 + 0.0035 * data.age - 0.0046 * data.age**2 + 0.697 * data.urban
    fixed = fixed + data.children.map({"0": 0.0, "1": 0.815, "2": 0.917, "3+": 0.915})
    data["used"] = rng.binomial(1, chance(fixed + 0.479 * rng.normal(size=60)[data.district]))
    return named(data, "district", "d")


def toenails(rng):
    """Infection of 294 patients at up to seven visits under two treatments (De Backer 1998)."""
    data = crossed(patient=294, month=[0, 1, 2, 3, 6, 9, 12])
    data["treated"] = data.patient % 2
    eta = -1.63 - 0.11 * data.treated - 0.40 * data.month - 0.14 * data.treated * data.month
    data["infected"] = rng.binomial(1, chance(eta + 4.05 * rng.normal(size=294)[data.patient]))
    seen = (data.month == 0) | (rng.uniform(size=2058) < 0.915)
    return named(data[seen].reset_index(drop=True), "patient", "p")


def aggression(rng):
    """Answers of 316 persons to 24 items on verbal aggression (Vansteelandt 2000)."""
    data = crossed(person=316, situation=["other", "self"], behaviour=["curse", "scold", "shout"], which=4)
    data["item"] = np.tile(np.arange(24), 316)
    data["anger"] = (11 + np.round(rng.gamma(3.5, 2.6, 316)))[data.person].astype(int)
    data["man"] = (rng.uniform(size=316) < 0.23).astype(int)[data.person]
    fixed = 0.199 + 0.0574 * data.anger + 0.321 * data.man - 1.055 * (data.situation == "self")
    fixed = fixed + data.behaviour.map({"curse": 0.0, "scold": -1.059, "shout": -2.105})
    groups = 1.340 * rng.normal(size=316)[data.person] + 0.495 * rng.normal(size=24)[data["item"]]
    data["yes"] = rng.binomial(1, chance(fixed + groups))
    return named(named(data, "person", "p"), "item", "i")


def ticks(rng):
    """Ticks on 403 grouse chicks of 118 broods at 63 places; one effect for each chick (Elston 2001)."""
    place = np.concatenate([np.arange(63), rng.randint(0, 63, 55)])
    brood = np.sort(np.concatenate([np.arange(118), rng.randint(0, 118, 285)]))
    data = pd.DataFrame({"chick": np.arange(403), "brood": brood, "place": place[brood]})
    data["year"] = rng.choice(["95", "96", "97"], 118)[brood]
    data["height"] = np.round(35.0 * rng.normal(size=63), 0)[data.place]
    fixed = 0.373 + data.year.map({"95": 0.0, "96": 1.180, "97": -0.979}) - 0.0238 * data.height
    groups = 0.750 * rng.normal(size=118)[brood] + 0.529 * rng.normal(size=63)[data.place]
    data["ticks"] = rng.poisson(np.exp(fixed + groups + 0.542 * rng.normal(size=403)))
    return named(named(named(data, "chick", "c"), "brood", "b"), "place", "l")


def epilepsy(rng):
    """Seizures of 59 patients in four periods, whose trends differ (Thall and Vail 1990, Breslow and Clayton 1993)."""
    data = crossed(patient=59, visit=[-0.3, -0.1, 0.1, 0.3])
    data["before"] = np.round(1.77 + 0.75 * rng.normal(size=59), 2)[data.patient]
    data["age"] = np.round(3.32 + 0.22 * rng.normal(size=59), 2)[data.patient]
    data["drug"] = (data.patient >= 28).astype(int)
    u, v = rng.normal(size=(2, 59))
    fixed = -1.355 + 0.884 * data.before - 0.929 * data.drug + 0.339 * data.before * data.drug
    fixed = fixed + 0.473 * data.age - 0.269 * data.visit
    data["seizures"] = rng.poisson(np.exp(fixed + 0.499 * u[data.patient] + 0.736 * v[data.patient] * data.visit))
    return named(data, "patient", "p")


def salamanders(rng):
    """Counts at 23 sites, 28 samples each, half of them mined (Price 2016)."""
    data = crossed(site=23, visit=28)
    data["mined"] = (data.site < 11).astype(int)
    mean = np.exp(0.784 - 2.258 * data.mined + 0.525 * rng.normal(size=23)[data.site])
    data["count"] = rng.poisson(mean * rng.gamma(0.639, 1 / 0.639, 644))
    return named(data, "site", "s")


@dataclass(frozen=True)
class Example:
    """A model, its simulated data, and the true parameters of the simulation."""

    formula: str
    draw: object
    truth: dict
    family: str = "gaussian"
    evidence: str = "corrected"  # posteriors of labels and counts are not Gaussian

    @property
    def data(self):
        return self.draw(RNG(zlib.crc32(self.draw.__name__.encode())))

    @property
    def model(self):
        """A model with flat priors for sds, correlations, noise and size, and wide priors for coefficients."""
        own = {"gaussian": ["noise"], "negative-binomial": ["size"]}.get(self.family, [])
        flat = dict.fromkeys([*self.groups, *own])
        return fenchel.Model(self.formula, self.data, self.family, fixed_sd=1e3, priors=flat)

    @property
    def groups(self):
        return [key for key in dict.fromkeys(name.rsplit(")", 1)[0] + ")" for name in self.truth) if key[0] == "("]

    def fit(self):
        return self.model.fit(evidence="elbo" if self.family == "gaussian" else self.evidence)


_SLEEP = {"Intercept": 251.405, "days": 10.467, "noise sd": 25.592}
EXAMPLES = {
    "dyestuff": Example("y ~ 1 + (1|batch)", dyestuff, {"Intercept": 1527.5, "(1|batch) sd": 42.0, "noise sd": 49.5}),
    "pastes": Example(
        "y ~ 1 + (1|batch/cask)",
        pastes,
        {"Intercept": 60.05, "(1|batch) sd": 1.287, "(1|batch:cask) sd": 2.904, "noise sd": 0.823},
    ),
    "penicillin": Example(
        "y ~ 1 + (1|plate) + (1|sample)",
        penicillin,
        {"Intercept": 22.97, "(1|plate) sd": 0.847, "(1|sample) sd": 1.932, "noise sd": 0.55},
    ),
    "sleep": Example(
        "y ~ days + (days|subject)",
        sleep,
        _SLEEP
        | {
            "(days|subject) sd intercept": 24.741,
            "(days|subject) sd days": 5.922,
            "(days|subject) correlation intercept, days": 0.066,
        },
    ),
    "sleep, uncorrelated": Example(
        "y ~ days + (days||subject)", sleep, _SLEEP | {"(1|subject) sd": 25.051, "(0+days|subject) sd": 5.988}
    ),
    "machines": Example(
        "y ~ machine + (1|worker/machine)",
        machines,
        {
            "Intercept": 52.356,
            "machine[T.B]": 7.966,
            "machine[T.C]": 13.916,
            "(1|worker) sd": 4.781,
            "(1|worker:machine) sd": 3.73,
            "noise sd": 0.962,
        },
    ),
    "cattle": Example(
        "cases | trials(size) ~ period + (1|herd)",
        cattle,
        {
            "Intercept": -1.398,
            "period[T.2]": -0.992,
            "period[T.3]": -1.128,
            "period[T.4]": -1.580,
            "(1|herd) sd": 0.642,
        },
        "binomial",
    ),
    "contraception": Example(
        "used ~ age + I(age**2) + urban + children + (1|district)",
        contraception,
        {
            "Intercept": -1.035,
            "age": 0.0035,
            "I(age ** 2)": -0.0046,
            "urban": 0.697,
            "children[T.1]": 0.815,
            "children[T.2]": 0.917,
            "children[T.3+]": 0.915,
            "(1|district) sd": 0.479,
        },
        "bernoulli",
    ),
    "aggression": Example(
        "yes ~ anger + man + behaviour + situation + (1|person) + (1|item)",
        aggression,
        {
            "Intercept": 0.199,
            "anger": 0.0574,
            "man": 0.321,
            "behaviour[T.scold]": -1.059,
            "behaviour[T.shout]": -2.105,
            "situation[T.self]": -1.055,
            "(1|person) sd": 1.340,
            "(1|item) sd": 0.495,
        },
        "bernoulli",
        "elbo",  # the correction changes sds by less than 0.1 standard errors here
    ),
    "ticks": Example(
        "ticks ~ year + height + (1|brood) + (1|place) + (1|chick)",
        ticks,
        {
            "Intercept": 0.373,
            "year[T.96]": 1.180,
            "year[T.97]": -0.979,
            "height": -0.0238,
            "(1|brood) sd": 0.750,
            "(1|place) sd": 0.529,
            "(1|chick) sd": 0.542,
        },
        "poisson",
    ),
    "epilepsy": Example(
        "seizures ~ before * drug + age + visit + (visit|patient)",
        epilepsy,
        {
            "Intercept": -1.355,
            "before": 0.884,
            "drug": -0.929,
            "before:drug": 0.339,
            "age": 0.473,
            "visit": -0.269,
            "(visit|patient) sd intercept": 0.499,
            "(visit|patient) sd visit": 0.736,
            "(visit|patient) correlation intercept, visit": 0.0,
        },
        "poisson",
    ),
    "salamanders": Example(
        "count ~ mined + (1|site)",
        salamanders,
        {"Intercept": 0.784, "mined": -2.258, "(1|site) sd": 0.525, "NegativeBinomial size": 0.639},
        "negative-binomial",
    ),
}
MORE = {  # further models of the benchmark, for which Laplace's approximation in R is inaccurate
    "ticks, chicks alone": Example(
        "ticks ~ year + height + (1|chick)",
        ticks,
        {"Intercept": np.nan, "year[T.96]": 1.180, "year[T.97]": -0.979, "height": -0.0238, "(1|chick) sd": np.nan},
        "poisson",
    ),
    "toenails": Example(
        "infected ~ treated * month + (1|patient)",
        toenails,
        {"Intercept": -1.63, "treated": -0.11, "month": -0.40, "treated:month": -0.14, "(1|patient) sd": 4.05},
        "bernoulli",
    ),
}


def estimates(fit):
    """Coefficients and hyperparameters in one table: mean, lower, upper."""
    found = fit.hyperparameters.rename(columns={"value": "mean"})
    found.index = [" ".join(map(str, key)) for key in found.index]
    return pd.concat([fit.coefficients[["mean", "lower", "upper"]], found])


def stored(name, data):
    """The stored results of R on the same data, {method: {parameter: estimate}}, and the versions of its packages."""
    kept = json.loads(STORED.read_text())["models"][name]
    if kept["checksum"] != checksum(data):
        raise SystemExit(f"{name}: the data are not those that R saw; python benchmarks/mixed_models.py --r")
    return kept


def checksum(data):
    return zlib.crc32(data.to_csv(index=False).encode())


def main(picture=None):
    fits, rows = {}, []
    for name, example in EXAMPLES.items():
        begun = time.perf_counter()
        fit = fits[name] = example.fit()
        seconds, kept = time.perf_counter() - begun, stored(name, example.data)
        print(f"\n{name}: {example.formula}   {seconds:.2f} s, gap {fit.gap:.0e}")
        print(f"  {'':<44}{'estimate':>10}{'95 % interval':>22}{kept['reference']:>22}{'truth':>10}")
        for key, row in estimates(fit).iterrows():
            theirs, truth = kept["methods"][kept["reference"]]["estimates"][key], example.truth[key]
            between = f"{row['lower']:.3f} to {row['upper']:.3f}"
            print(f"  {key:<44}{row['mean']:>10.3f}{between:>22}{theirs:>22.3f}{truth:>10.3f}")
            rows.append((f"{name}: {key}", *row, theirs))
    if picture:
        draw(rows, picture)
    return fits, rows


def draw(rows, picture):
    """Differences between our estimates and R's, in units of our standard error."""
    from matplotlib.figure import Figure

    from fenchel.plots import plot_forest

    names, mean, lower, upper, theirs = (np.array(column) for column in zip(*rows, strict=True))
    se = (upper - lower) / 3.92
    figure = Figure(figsize=(7, 11), layout="constrained")
    ax = figure.subplots()
    plot_forest(
        names, *((v - theirs) / se for v in (mean, lower, upper)), ax, label="estimate minus R's, in standard errors"
    )
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:2])
