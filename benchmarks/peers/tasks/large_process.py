"""Regression by a Gaussian process on many rows of a function that is known."""

import numpy as np
from run import Task

NOISE = 0.2
LENGTHS = np.array([1.5, 2.0, 2.5, 3.0, 10.0, 30.0])


def draw(rows, seed=0, features=4000):
    """Normal columns, and one draw of a Matern 5/2 process by random features (spectrum: Student's t of 5)."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(features, LENGTHS.size)) / LENGTHS / np.sqrt(rng.chisquare(5, (features, 1)) / 5)
    phase = rng.uniform(0, 2 * np.pi, features)
    X = rng.normal(size=(rows, LENGTHS.size))
    f = np.concatenate([np.cos(part @ W.T + phase).sum(axis=1) for part in np.array_split(X, 1 + rows // 2000)])
    f *= np.sqrt(2.0 / features)
    return X, f, f + NOISE * rng.normal(size=rows)


def task(quick, folder):
    n, held = (300, 500) if quick else (10_000, 2_000)
    X, f, y = draw(n + held)
    named = lambda rows: {f"x{k}": column for k, column in enumerate(X[rows].T)}
    new, f_new = y[n:], f[n:]

    def score(mean, sd):
        return float(np.mean(0.5 * ((new - mean) / sd) ** 2 + np.log(sd)))

    def judge(answer):
        mean, sd = answer["mean"], answer["sd"]
        inside = np.abs(new - mean) < 1.959964 * sd
        rmse = np.sqrt(np.mean((mean - f_new) ** 2))
        return {"lost nats a row": score(mean, sd) - score(f_new, NOISE), "RMSE of f": rmse, "95 % hold": inside.mean()}

    return Task(
        "Large process",
        f"{n} rows, {held} held out, a function of 6 columns drawn from a Matern 5/2 process with lengths "
        f"{', '.join(f'{length:g}' for length in LENGTHS)}, noise {NOISE}: how far the mean log density of new y "
        "is below that of the true function and noise.",
        {"train": {"y": y[:n], **named(slice(0, n))}, "test": named(slice(n, None))},
        judge,
        ("lost nats a row",),
        0.01,
    )
