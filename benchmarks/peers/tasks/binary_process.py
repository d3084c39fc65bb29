"""A Gaussian process classifier at a given kernel, against long MCMC."""

import json

import numpy as np
from accuracy_reference import STORE, cases
from run import Task, away


def task(quick, folder):
    case = next(case for case in cases() if case.name == "Pima")
    truth = json.loads(STORE.read_text())["cases"]["Pima"]
    if truth["checksum"] != case.checksum:
        raise SystemExit("binary_process: the data are not those of accuracy_reference.json")
    Z = (case.data - case.data.mean(axis=0)) / case.data.std(axis=0)
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    columns = {f"x{k}": column for k, column in enumerate(Z.T)}
    return Task(
        "Binary process",
        "Pima, 200 rows, 7 columns, RBF of variance 4 and length 4, logit link: posterior mean and sd of the function "
        "at the rows. Truth: 2.6 million draws of elliptical slice sampling (`benchmarks/accuracy_reference.json`).",
        {"train": {"y": case.y, **columns}, "kernel": {"variance": np.array([4.0]), "length": np.array([4.0])}},
        lambda answer: away(answer, mean, sd),
        ("mean", "sd"),
        0.01,
    )
