"""Two crossed random intercepts of binary rows, against long MCMC."""

import json
from pathlib import Path

import numpy as np
from run import HERE, Task, away

from fenchel.datasets import load_verbal_aggression


def columns(data):
    """A row for each person and item; the covariates as lme4's table VerbAgg has them."""
    person, item = (index.ravel() for index in np.indices(data.X.shape))
    names = np.array(data.feature_names)[item]
    has = lambda words: np.any([np.char.find(names, word) >= 0 for word in words], axis=0).astype(float)
    return {
        "y": np.asarray(data.X, dtype=float).ravel(),
        "anger": np.asarray(data.anger, dtype=float)[person],
        "male": (np.char.upper(np.asarray(data.gender, dtype=str))[person] == "MALE").astype(float),
        "scold": has(["Scold"]),
        "shout": has(["Shout"]),
        "self": has(["S3", "S4"]),
        "person": person,
        "item": item,
    }


def task(quick, folder):
    data = load_verbal_aggression()
    truth = json.loads(Path(HERE.parent, "defaults.json").read_text())["truth"]["VerbAgg"]
    mean, sd, groups = (np.array(truth[key]) for key in ("mean", "sd", "group_mean"))

    def judge(answer):
        out = away(answer, mean, sd)
        return {**out, "sd of persons": answer["group"][0] / groups[0], "sd of items": answer["group"][1] / groups[1]}

    return Task(
        "Crossed mixed model",
        "Verbal aggression: 7,584 answers of 316 persons to 24 items, five covariates: posterior mean and sd of the "
        "six coefficients. Truth: MCMC with 4,300 effective draws (`benchmarks/defaults.json`). sds of groups are over "
        "the true ones. A maximum has the items' sd below its posterior mean (24 items), and standard errors with it.",
        {"train": columns(data)},
        judge,
        ("mean", "sd"),
        0.03,
    )
