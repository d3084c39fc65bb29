"""A disease map, against long MCMC."""

import json

import numpy as np
import scipy.sparse as sp
from integration_reference import STORE
from run import Task, away

from fenchel.datasets import load_germany


def task(quick, folder):
    data = load_germany()
    eta = json.loads(STORE.read_text())["germany"]["eta"]
    mean, sd = np.array(eta["mean"]), np.array(eta["sd"])
    edges = sp.triu(data.adjacency).tocoo()
    district = np.arange(data.Y.size)
    return Task(
        "Counts on a graph",
        "Deaths by oral cavity cancer in 544 German districts, BYM2, P(sd > 1) = 0.01, hyperparameters integrated out: "
        "posterior mean and sd of the log relative risks. Truth: 20,000 draws of NUTS "
        "(`benchmarks/integration_reference.json`); the other peers fit models of their own kind.",
        {
            "train": {"y": data.Y.astype(float), "E": data.E, "district": district},
            "edges": {"a": edges.row, "b": edges.col},
        },
        lambda answer: away(answer, mean, sd),
        ("mean", "sd"),
        0.01,
    )
