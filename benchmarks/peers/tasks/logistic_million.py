"""Logistic regression of many rows, where the posterior is normal about the maximum."""

import numpy as np
from run import Task, away
from scipy.special import expit


def draw(rows, columns=20, seed=0):
    rng = np.random.default_rng(seed)
    X, b = rng.normal(size=(rows, columns)), rng.normal(size=columns)
    return X, (0.3 * (X @ b) - 1.0 + rng.logistic(size=rows) > 0.0).astype(float)


def maximum(X, y):
    """Coefficients and standard errors by Newton's method, the intercept last."""
    X = np.column_stack([X, np.ones(len(X))])
    b = np.zeros(X.shape[1])
    for _ in range(50):
        p = expit(X @ b)
        H = X.T @ (X * (p * (1.0 - p))[:, None])
        step = np.linalg.solve(H, X.T @ (y - p))
        b += step
        if np.abs(step).max() < 1e-12:
            break
    return b, np.sqrt(np.diag(np.linalg.inv(H)))


def task(quick, folder):
    n = 20_000 if quick else 1_000_000
    X, y = draw(n)
    b, se = maximum(X, y)
    return Task(
        "Logistic regression",
        f"{n} rows, 20 columns: coefficients and their sds, against the exact maximum and its standard errors, "
        "with which the posterior agrees to one part in the root of the rows.",
        {"train": {"X": X, "y": y}},
        lambda answer: away(answer, b[:-1], se[:-1]),
        ("mean", "sd"),
        0.03,
    )
