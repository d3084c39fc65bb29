"""Random intercepts and slopes of binary rows, hyperparameters integrated out, against long MCMC."""

import json

import numpy as np
from integration_reference import STORE, slopes_data
from run import Task, away


def task(quick, folder):
    stored = json.loads(STORE.read_text())["slopes"]
    mean, sd = np.array(stored["eta"]["mean"]), np.array(stored["eta"]["sd"])
    theta = {key: np.array([each[key] for each in stored["theta"].values()]) for key in ("mean", "sd")}

    def judge(answer):
        out = away(answer, mean, sd)
        if "theta" in answer:
            out["theta"] = float(np.sqrt(np.mean(((answer["theta"] - theta["mean"]) / theta["sd"]) ** 2)))
        return out

    return Task(
        "Full posterior",
        "60 groups of 8 binary rows, correlated intercepts and slopes, P(sd > 1) = 0.01: posterior mean and sd of eta "
        "at the rows, and means of both sds and the correlation (theta), in true sds. Truth: 40,000 draws of NUTS "
        "(`benchmarks/integration_reference.json`).",
        {"train": {key: np.asarray(value) for key, value in slopes_data().items()}},
        judge,
        ("mean", "sd", "theta"),
        0.02,
    )
