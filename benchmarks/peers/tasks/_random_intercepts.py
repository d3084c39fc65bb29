"""Tasks of ``defaults.py`` with one random intercept a group, and their truth: the posterior, and the maximum.

A peer that maximises the likelihood is judged by the exact maximum and its standard errors, a peer with priors by the
exact posterior under the priors of the task. Both are kept in ``truth.json`` with a checksum of the data; ``python
tasks/_random_intercepts.py`` computes them anew. The maximum: groups by the trapezium on 241 points, BFGS.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]
STORE = HERE / "truth.json"
POINTS = np.linspace(-9.0, 9.0, 241)
SHOWN = ("x", "treated")
TABLES = ("sim-binary", "sim-ordinal", "sim-frailty")


def table_of(name):
    from defaults import TABLES

    return next(table for table in TABLES if table.name == name)


def checksum(data):
    return hashlib.sha256(np.ascontiguousarray(data.to_numpy(dtype="<f8")).tobytes()).hexdigest()


def log_likelihood(theta, X, y, codes, family, own):
    """log p(y | beta, log sd, own), each group integrated over its effect."""
    from defaults_truth import LIKELIHOODS

    p = X.shape[1]
    eta = (X @ theta[:p])[:, None] + np.exp(theta[p]) * POINTS
    rows = LIKELIHOODS[family](y, eta, theta[p + 1 :]) if own else LIKELIHOODS[family](y, eta, np.zeros(0))
    inside = np.zeros((codes.max() + 1, POINTS.size))
    np.add.at(inside, codes, rows)
    inside -= POINTS**2 / 2
    top = inside.max(axis=1, keepdims=True)
    return float((top[:, 0] + np.log(np.exp(inside - top).sum(axis=1))).sum())


def maximum(table, data):
    """The estimates of x and treated, their standard errors, and the sd of the groups with its own."""
    from defaults_truth import hessian
    from scipy.optimize import minimize

    X = data[list(SHOWN)].to_numpy(float)
    X = X if table.family == "ordinal" else np.column_stack([X, np.ones(len(X))])
    y = data[["y", "event"]].to_numpy(float) if table.family == "weibull" else data["y"].to_numpy(float)
    own = {"ordinal": [-1.0, np.log(2.0)], "weibull": [0.0]}.get(table.family, [])
    start = np.concatenate([np.zeros(X.shape[1]), [0.0], own])
    negative = lambda theta: -log_likelihood(theta, X, y, data["g"].to_numpy(), table.family, bool(own))
    theta = minimize(negative, start, method="BFGS", options={"gtol": 1e-5}).x
    se = np.sqrt(np.diag(np.linalg.inv(hessian(negative, theta, np.full(theta.size, 1e-3)))))
    k = X.shape[1]
    return {"mean": theta[:2], "sd": se[:2], "group": np.exp(theta[k]), "group_sd": np.exp(theta[k]) * se[k]}


def posterior(table, data):
    from defaults import HALF_NORMAL, true_answer

    found = true_answer(table, data, HALF_NORMAL)
    return {"mean": found.mean[-2:], "sd": found.sd[-2:], "group": found.group_mean[0], "group_sd": found.group_sd[0]}


def compute(name):
    table = table_of(name)
    data = table.simulate()
    out = {"checksum": checksum(data)}
    for kind, of in (("posterior", posterior), ("maximum", maximum)):
        out[kind] = {key: np.asarray(value).tolist() for key, value in of(table, data).items()}
    return out


def random_intercepts(name, title, objective):
    from run import Task, away

    table = table_of(name)
    data = table.simulate()
    truth = json.loads(STORE.read_text())[name]
    if truth["checksum"] != checksum(data):
        raise SystemExit(f"{name}: the data are not those of {STORE.name}; run {Path(__file__).name} again")

    def judge(answer):
        true = truth["posterior" if answer["target"] == "posterior" else "maximum"]
        out = away(answer, np.array(true["mean"]), np.array(true["sd"]))
        if "group" in answer:
            out["group sd"] = abs(float(np.ravel(answer["group"])[0]) - true["group"]) / true["group_sd"]
        return out

    return Task(
        title,
        f"{objective} Error of the coefficients of x and treated and of the sd of the groups, in true sds. Truth by "
        "quadrature (`benchmarks/peers/tasks/truth.json`): the posterior, or for peers that maximise, the maximum.",
        {"train": {column: data[column].to_numpy() for column in data}},
        judge,
        ("mean", "sd", "group sd"),
        0.03,
    )


if __name__ == "__main__":
    STORE.write_text(json.dumps({name: compute(name) for name in TABLES}, indent=1) + "\n")
