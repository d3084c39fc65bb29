"""What the steps of ``accuracy`` cost, beside what ``models/accuracy.py`` says that they cost from counts alone.

    OPENBLAS_NUM_THREADS=1 python benchmarks/accuracy_prices.py [--only counts-60x5 ...] [--times 2]

Simulated tables of several sizes and families. "plain": processor seconds of the plain fit; "correction": of one;
"corrected" and "integrated": of all that is done beyond the plain fit; each with the price that was said. "fits" are
those of the integration. The last lines have the ratios of what was said to what it took: median, least and largest.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import fenchel
from fenchel.models import accuracy


def table(kind: str, groups: int, each: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(groups), each)
    n = g.size
    x, k = rng.normal(size=n), rng.integers(0, max(5, groups // 4), n)
    eta = 0.3 + 0.5 * x + 0.8 * rng.normal(size=groups)[g] + 0.5 * rng.normal(size=k.max() + 1)[k]
    y: Any = {
        "labels": (eta + rng.logistic(size=n) > 0).astype(int),
        "counts": rng.poisson(np.exp(eta)),
        "levels": np.digitize(eta + rng.logistic(size=n), [-1.0, 1.0]),
        "times": rng.exponential(size=n) * np.exp(-eta) + 1e-3,
        "real": eta + rng.normal(size=n),
    }[kind]
    return pd.DataFrame({"g": g, "k": k, "x": x, "t": rng.uniform(size=n), "y": y, "event": 1})


ONE, TWO, SLOPE, CURVE = "y ~ x + (1|g)", "y ~ x + (1|g) + (1|k)", "y ~ x + (x|g)", "y ~ x + s(t)"
CASES: dict[str, tuple[str, str, str, int, int]] = {
    "labels-50x4": (ONE, "bernoulli", "labels", 50, 4),
    "labels-500x4": (ONE, "bernoulli", "labels", 500, 4),
    "labels-3000x4": (ONE, "bernoulli", "labels", 3000, 4),
    "counts-60x5": (ONE, "poisson", "counts", 60, 5),
    "counts-1000x5": (ONE, "poisson", "counts", 1000, 5),
    "counts-slopes-40x8": (SLOPE, "poisson", "counts", 40, 8),
    "labels-slopes-60x30": (SLOPE, "bernoulli", "labels", 60, 30),
    "labels-crossed-100x10": (TWO, "bernoulli", "labels", 100, 10),
    "labels-crossed-300x24": (TWO, "bernoulli", "labels", 300, 24),
    "counts-crossed-60x8": (TWO, "poisson", "counts", 60, 8),
    "nb-40x10": (ONE, "negative-binomial", "counts", 40, 10),
    "levels-50x5": (ONE, "ordinal", "levels", 50, 5),
    "weibull-60x4": ("cens(y, event) ~ x + (1|g)", "weibull", "times", 60, 4),
    "cox-60x4": ("cens(y, event) ~ x + (1|g)", "cox", "times", 60, 4),
    "counts-curve-400": (CURVE, "poisson", "counts", 80, 5),
    "labels-curve-2000": (CURVE, "bernoulli", "labels", 400, 5),
    "labels-line-2000": ("y ~ x", "bernoulli", "labels", 400, 5),
    "real-50x5": (ONE, "gaussian", "real", 50, 5),
    "real-crossed-2000x5": (TWO, "gaussian", "real", 2000, 5),
}

SHOWN = (
    *("case", "rows", "latents", "theta", "evaluations", "plain", "method", "sites", "correction", "correction said"),
    *("corrected", "corrected said", "fits", "one said", "integrated", "integrated said", "default"),
)


def seconds(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """The least of several, so that nothing is compiled in it."""
    least, out = np.inf, None
    for _ in range(times):
        began = time.process_time()
        out = work()
        least = min(least, time.process_time() - began)
    return float(least), out


def measured(name: str, times: int) -> dict[str, Any]:
    formula, family, kind, groups, each = CASES[name]
    data = table(kind, groups, each)

    def fit(**how: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fenchel.fit(formula, data, family, **how)

    made, _ = seconds(lambda: fenchel.Model(formula, data, family), times)
    plain_s, plain = seconds(lambda: fit(accuracy="fast"), times)
    rows, said = plain.model.n_rows[1], accuracy.prices(plain)
    out: dict[str, Any] = {"case": name, "rows": rows, "theta": plain.theta.size, "plain": plain_s}
    out["latents"], out["evaluations"] = sum(t.n_latents for t in plain.model.sum.effects), plain.found.n_evaluations
    if not plain.found.likelihood.objective.conjugate:
        # a solution keeps its correction: each time another one
        solved = [fit(accuracy="fast").solution for _ in range(times)]
        out["correction"], found = seconds(lambda: solved.pop().corrected(), times)
        said = accuracy.prices(plain, found)
        out |= {"method": found.method, "sites": found.n_sites, "correction said": said.correction}
        if plain.theta.size:
            whole, _ = seconds(lambda: fit(evidence="corrected"), times)
            out["corrected"], out["corrected said"] = max(whole - made, 1e-3), said.corrected
    if plain.theta.size:
        whole, found = seconds(lambda: fit(integrate="auto"), times)
        out["integrated"], out["integrated said"] = max(whole - plain_s, 1e-3), said.integrated
        out["fits"], out["one said"] = found.integrated.n_fits, said.one
    out["default"] = fit().accuracy.split(":")[0].split(",")[0][:22]
    return out


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    ask.add_argument("--times", type=int, default=2)
    asked = ask.parse_args()
    print(f"| {' | '.join(SHOWN)} |\n{'|---' * len(SHOWN)}|")
    rows = []
    for name in asked.only:
        rows.append(measured(name, asked.times))
        cells = [rows[-1].get(column, "") for column in SHOWN]
        print(f"| {' | '.join(f'{c:.2g}' if isinstance(c, float) else str(c) for c in cells)} |", flush=True)
    found = pd.DataFrame(rows)
    for word in ("correction", "corrected", "integrated"):
        ratio = (found[f"{word} said"] / found[word]).dropna()
        print(f"{word}: said over taken {ratio.median():.2f}, {ratio.min():.2f} to {ratio.max():.2f}")


if __name__ == "__main__":
    main()
