"""Cox with a frailty: seconds of the three evidences, beside the partial likelihood without a frailty.

    OPENBLAS_NUM_THREADS=1 python benchmarks/cox.py [--pairs 197] [--only default]

Pairs of eyes, one treated, as in survival::retinopathy: 394 rows, two in five with an event. The floor is Newton's
method on Breslow's partial likelihood in numpy, which has no frailty and no baseline. Seconds are of the processor,
after a first fit that compiles.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

import fenchel

LIMITS = {
    "default": ({}, 1.0),
    "corrected": ({"evidence": "corrected"}, 5.0),
    "integrated": ({"integrate": "auto"}, 8.0),
}


def eyes(pairs: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = 2 * pairs
    person, treated, adult = np.arange(n) // 2, np.arange(n) % 2, np.repeat(rng.random(pairs) < 0.4, 2).astype(int)
    eta = -0.4 * treated - 0.8 * treated * adult + 0.3 * adult + np.repeat(0.9 * rng.normal(size=pairs), 2)
    until, followed = rng.exponential(size=n) * np.exp(-eta) * 90.0, rng.uniform(5.0, 75.0, n)
    columns = {"person": person, "treated": treated, "adult": adult, "event": (until <= followed).astype(int)}
    return pd.DataFrame({**columns, "time": np.minimum(until, followed)})


def partial_likelihood(data: pd.DataFrame) -> np.ndarray:
    """The coefficients of Breslow's partial likelihood, by Newton's method."""
    X = np.column_stack([data["treated"], data["adult"], data["treated"] * data["adult"]]).astype(float)
    order = np.argsort(-data["time"].to_numpy(), kind="stable")
    X, event = X[order], data["event"].to_numpy()[order] == 1
    beta = np.zeros(3)
    for _ in range(20):
        w = np.exp(X @ beta)
        S0, S1 = np.cumsum(w), np.cumsum(w[:, None] * X, axis=0)
        S2 = np.cumsum(w[:, None, None] * X[:, :, None] * X[:, None, :], axis=0)
        mean = S1 / S0[:, None]
        slope = (X - mean)[event].sum(axis=0)
        step = np.linalg.solve((S2 / S0[:, None, None] - mean[:, :, None] * mean[:, None, :])[event].sum(axis=0), slope)
        beta = beta + step
        if np.abs(step).max() < 1e-10:
            break
    return beta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=197)
    parser.add_argument("--only", choices=tuple(LIMITS))
    args = parser.parse_args()
    data = eyes(args.pairs)
    began = time.process_time()
    beta = partial_likelihood(data)
    print(f"partial likelihood, no frailty: {time.process_time() - began:.3f} s, {np.round(beta, 3)}")
    formula = "cens(time, event) ~ treated * adult + (1|person)"
    fenchel.fit(formula, data, family="cox", accuracy="fast")
    for name, (options, most) in LIMITS.items():
        if args.only not in (None, name):
            continue
        began = time.process_time()
        fit = fenchel.fit(formula, data, family="cox", **options, accuracy="fast")
        took = time.process_time() - began
        pieces, means = fit.model.cox.rows.size, fit.coefficients["mean"].to_numpy()[1:]
        judged = "" if took <= most else "  MISSED"
        print(
            f"{name:10s} {took:6.2f} s, at most {most:g}{judged}   {pieces} pieces   {np.round(means, 3)}", flush=True
        )


if __name__ == "__main__":
    main()
