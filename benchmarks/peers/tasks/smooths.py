"""Four smooth curves and Gaussian noise: the additive example of Gu and Wahba, as in mgcv's gamSim."""

import numpy as np
from run import Task, crps

ROWS = 400


def draw(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(4, ROWS))
    f = 2 * np.sin(np.pi * x[0]) + np.exp(2 * x[1])
    f += 0.2 * x[2] ** 11 * (10 * (1 - x[2])) ** 6 + 10 * (10 * x[2]) ** 3 * (1 - x[2]) ** 10
    return x, f, f + 2.0 * rng.normal(size=ROWS)


def task(quick, folder):
    sets = 2 if quick else 5
    drawn = [draw(seed) for seed in range(sets)]
    f = np.concatenate([each[1] for each in drawn])
    columns = {"set": np.repeat(np.arange(sets), ROWS), "y": np.concatenate([each[2] for each in drawn])}
    columns |= {f"x{k}": np.concatenate([each[0][k] for each in drawn]) for k in range(4)}

    def judge(answer):
        mean = answer["mean"]
        out = {"RMSE": float(np.sqrt(np.mean((mean - f) ** 2)))}
        if "sd" in answer:
            inside = np.abs(mean - f) < 1.959964 * answer["sd"]
            out |= {"CRPS": crps(mean, answer["sd"], f), "95 % hold": float(inside.mean())}
        return out

    return Task(
        "Smooths",
        f"{sets} data sets of {ROWS} rows, y ~ s(x0) + s(x1) + s(x2) + s(x3), noise sd 2: RMSE of the true function at "
        "the rows, and the CRPS of its posterior mean and sd.",
        {"train": columns},
        judge,
        ("RMSE", "CRPS"),
        0.0,
    )
