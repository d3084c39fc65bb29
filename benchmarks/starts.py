"""Where the search for hyperparameters begins: the default against the best of twelve starts, over 300 models.

Every family of formulas meets smooths, groups, walks, maps, processes and sums of them, on simulated rows with fixed
seeds: curves that turn quickly or slowly, effects that are there or not, much noise or little. "short" is what the
default's objective lacks of the best of twelve starts spread over theta, in nats; the time is that of the default over
that of one search from where the model stands.

    python benchmarks/starts.py                       # all 300 models, two processes
    python benchmarks/starts.py --jobs 16             # the same on sixteen
    python benchmarks/starts.py --models 40           # 40 of them, spread over all kinds
    python benchmarks/starts.py --only 17 -v          # one model, where each start ends
    python benchmarks/starts.py --keep outcomes.jsonl # a run that was interrupted goes on from what the file has

It ends with 1 where more than 1 % are short by more than 0.1 nat, where the time is more than 1.3 times that of one
search, or where a model fails. Times are of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import qmc
from threadpoolctl import threadpool_limits

MODELS = 300
SHORT = 0.1  # nats
MOST_SHORT = 0.01  # of the models
MOST_TIME = 1.3  # of one search from where the model stands
STARTS = 12
WIDE = 5.0  # log units either way: how far starts are spread about where the model stands
FAMILIES = (  # those with a noise of their own, which may take a curve for noise, more often
    *("gaussian", "gamma", "poisson", "student-t", "bernoulli", "negative-binomial", "weibull", "beta", "gaussian"),
    *("tweedie", "negative-binomial-1", "ordinal", "zero-inflated-poisson", "laplace", "gamma", "student-t", "probit"),
    *("beta-binomial", "exponential", "logistic", "truncated-poisson", "zero-inflated-negative-binomial", "gaussian"),
    *("truncated-negative-binomial", "hurdle-poisson", "hurdle-negative-binomial", "ordinal-probit", "weibull"),
    *("binomial", "gamma"),
)
TERMS = (
    *("s(z)", "(1|g) + (1|h)", "rw1(t) + (1|g)", "icar(r)", "gp(z)", "s(z) + (1|g)", "ar1(t)", "(x|g)"),
    *("matern(z, nu=1.5)", "bym2(r)", "rw2(t)", "s(z) + s(x)", "gp(z, x)", "te(z, x)", "vecchia(z, x)"),
)
SIDE = 5  # regions of the map along one side


# -- models -------------------------------------------------------------------------------------------------
@dataclass
class Case:
    """One model of the set: its formula and family over a table."""

    formula: str
    family: str
    data: pd.DataFrame

    def build(self) -> Any:
        import fenchel

        graphs = {"r": _map()} if "(r)" in self.formula else {}
        trials = {"trials": "n"} if "binomial" in self.family and "negative" not in self.family else {}
        return fenchel.Model(self.formula, self.data, self.family, graphs=graphs, **trials)


def case(i: int) -> Case:
    """Model i: a family, a term, and rows whose curve, groups, map and noise are drawn."""
    slot, turn = i % len(FAMILIES), i // len(FAMILIES)
    family, term = FAMILIES[slot], TERMS[(7 * slot + turn) % len(TERMS)]
    rng = np.random.default_rng([26, i])
    n = int(rng.integers(30, 90))
    data = pd.DataFrame({"x": rng.normal(size=n), "z": rng.uniform(0.0, 10.0, n)})
    for name, levels in (("g", 8), ("h", 5), ("t", 20), ("r", SIDE * SIDE)):
        data[name] = rng.integers(0, levels, n)
    wave = 2.0 * np.sin(data.z * rng.choice([0.5, 2.0, 2.0, 4.0])) * rng.choice([0.0, 1.0, 1.0, 1.0])
    groups = rng.choice([0.0, 0.3, 1.5]) * rng.normal(size=8)
    walk = rng.choice([0.0, 0.2, 0.6]) * np.cumsum(rng.normal(size=20))
    regions = rng.choice([0.0, 1.0]) * np.sin(np.arange(SIDE * SIDE) // SIDE)
    eta = 0.4 * data.x - 0.5
    eta += wave if any(word in term for word in ("(z", ", z")) else 0.0
    eta += groups[data.g] if "g)" in term else 0.0
    eta += walk[data.t] if "(t)" in term else 0.0
    eta += regions[data.r] if "(r)" in term else 0.0
    data["n"] = rng.integers(1, 12, n)
    data["y"] = response(family, np.clip(np.asarray(eta), -5.0, 3.5), data.n.to_numpy(), rng)
    return Case(f"y ~ {term}" if "x" in term or i % 2 else f"y ~ x + {term}", family, data.astype({"g": str, "h": str}))


def response(family: str, eta: np.ndarray, trials: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """y of a family about eta."""
    n, noise = eta.size, rng.choice([0.1, 0.5, 1.0])
    share = 1.0 / (1.0 + np.exp(-eta))
    if family == "gaussian":
        return eta + noise * rng.normal(size=n)
    if family in ("student-t", "laplace", "logistic"):
        return eta + noise * rng.standard_t(3, n)
    if family in ("gamma", "weibull", "exponential", "tweedie"):
        y = np.exp(eta) * rng.gamma(2.0, 0.5, n) + 1e-6
        return np.where(rng.random(n) < 0.25, 0.0, y) if family == "tweedie" else y
    if family == "beta":
        return np.clip(rng.beta(8.0 * share, 8.0 * (1.0 - share)), 1e-3, 1.0 - 1e-3)
    if family in ("bernoulli", "probit"):
        return (rng.random(n) < share).astype(float)
    if family in ("binomial", "beta-binomial"):
        return rng.binomial(trials, share if family == "binomial" else rng.beta(4.0 * share, 4.0 * (1.0 - share)))
    if family.startswith("ordinal"):
        return np.digitize(eta + rng.logistic(size=n), [-1.5, 0.0, 1.5]).astype(float)
    mu = np.exp(eta + 0.5) * (rng.gamma(3.0, 1.0 / 3.0, n) if "negative" in family else 1.0)
    y = rng.poisson(mu)
    if family.startswith("truncated"):
        return np.maximum(y, 1)
    return y * (rng.random(n) < 0.7) if family.startswith(("zero", "hurdle")) else y


def _map() -> dict[int, list[int]]:
    """A square of regions, each beside those that share a side with it."""
    out = {}
    for k in range(SIDE * SIDE):
        a, b = divmod(k, SIDE)
        sides = [(a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)]
        out[k] = [SIDE * c + d for c, d in sides if 0 <= c < SIDE and 0 <= d < SIDE]
    return out


# -- one model ----------------------------------------------------------------------------------------------
@dataclass
class Outcome:
    """What came of one model."""

    i: int
    name: str
    short: float = 0.0  # nats that the default lacks of the best start
    single_short: float = 0.0  # that the search from where the model stands lacks
    seconds: float = 0.0  # of the default
    single_seconds: float = 0.0
    evaluations: int = 0
    single_evaluations: int = 0
    ends: list[tuple[float, np.ndarray, np.ndarray]] = field(default_factory=list)  # objective, start, end
    failed: str = ""


def examine(i: int, n_starts: int = STARTS) -> Outcome:
    """Model i by the default, by one search from where it stands, and from many starts."""
    from fenchel.hyperparameters import learn

    made = case(i)
    out = Outcome(i, f"{made.family}: {made.formula}")
    with warnings.catch_warnings(), np.errstate(all="ignore"), threadpool_limits(1):
        warnings.simplefilter("ignore")
        try:
            model = made.build()
            likelihood, y, weights = model.target.likelihood, model.target.y, model.target.weights
            first = np.concatenate([model.sum.family().theta, likelihood.theta])
            bounds = np.concatenate([model.sum.family().bounds, likelihood.theta_bounds(y)])
            learn(likelihood, model.sum.family(), y, weights=weights, theta=first, max_iter=1)  # compiles
            begin = time.process_time()
            single = learn(likelihood, model.sum.family(), y, weights=weights, theta=first)
            between = time.process_time()
            default = learn(likelihood, model.sum.family(), y, weights=weights)
            out.seconds, out.single_seconds = time.process_time() - between, between - begin
            out.evaluations, out.single_evaluations = default.n_evaluations, single.n_evaluations
            out.ends = [(default.objective, first, default.theta), (single.objective, first, single.theta)]
            for start in spread(first, bounds, n_starts - 1, i):
                try:
                    found = learn(likelihood, model.sum.family(), y, weights=weights, theta=start)
                except ValueError:  # beyond double precision: no start
                    continue
                out.ends.append((found.objective, start, found.theta))
        except Exception as error:
            out.failed = f"{type(error).__name__}: {error}"
            return out
    best = max(value for value, _, _ in out.ends)
    out.short, out.single_short = best - default.objective, best - single.objective
    return out


def spread(first: np.ndarray, bounds: np.ndarray, n: int, seed: int) -> np.ndarray:
    """n starts about the first, a scrambled net within the bounds and ``WIDE`` of it."""
    low, high = np.maximum(bounds[:, 0], first - WIDE), np.minimum(bounds[:, 1], first + WIDE)
    unit = qmc.Sobol(first.size, seed=np.random.default_rng([12, seed])).random(n)
    return low + (high - low) * unit


# -- all of them --------------------------------------------------------------------------------------------
def run(chosen: list[int], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(examine, chosen)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(examine, chosen)


def kept(path: Path | None) -> dict[int, Outcome]:
    """Outcomes of an earlier run."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return {out.i: out for out in (Outcome(**json.loads(line)) for line in lines)}


def keep(path: Path, out: Outcome) -> None:
    """Append an outcome, without where its starts ended."""
    with path.open("a") as file:
        file.write(json.dumps({**asdict(out), "ends": []}, default=float) + "\n")


def report(outcomes: list[Outcome], seconds: float) -> bool:
    """Print what came of them all; whether it is within the limits."""
    done = [out for out in outcomes if not out.failed]
    short = [out for out in done if out.short > SHORT]
    single = [out for out in done if out.single_short > SHORT]
    for out in sorted(short, key=lambda out: -out.short):
        print(f"short by {out.short:.2f} nats: {out.i:3d} {out.name}")
    for out in outcomes:
        if out.failed:
            print(f"failed: {out.i:3d} {out.name}: {out.failed.splitlines()[0]}")
    n = max(1, len(done))
    time_ratio = sum(out.seconds for out in done) / max(1e-9, sum(out.single_seconds for out in done))
    typical = float(np.median([out.seconds / max(1e-9, out.single_seconds) for out in done])) if done else 0.0
    fits = sum(out.evaluations for out in done) / max(1, sum(out.single_evaluations for out in done))
    print(f"{len(done)} models in {seconds:.0f} s, {len(outcomes) - len(done)} failed, best of {STARTS} starts")
    print(f"one start short by more than {SHORT} nat: {len(single)} ({100 * len(single) / n:.1f} %)")
    print(f"default short by more than {SHORT} nat: {len(short)} ({100 * len(short) / n:.1f} %)")
    print(f"time of the default over one search: {time_ratio:.2f} in all, median {typical:.2f}; fits {fits:.2f}")
    return len(short) <= MOST_SHORT * n and time_ratio <= MOST_TIME and len(done) == len(outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=MODELS, help="how many of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", type=int, help="one model")
    parser.add_argument("--keep", type=Path, help="a file of outcomes, read first and added to")
    parser.add_argument("-v", "--verbose", action="store_true", help="where each start ends")
    given = parser.parse_args()
    count = min(max(1, given.models), MODELS)
    chosen = [k * MODELS // count for k in range(count)] if given.only is None else [given.only]
    done = kept(given.keep)
    outcomes = [done[i] for i in chosen if i in done]
    began = time.perf_counter()
    for out in run([i for i in chosen if i not in done], given.jobs if len(chosen) > 1 else 1):
        outcomes.append(out)
        if given.keep is not None:
            keep(given.keep, out)
        word = "FAILED" if out.failed else "SHORT" if out.short > SHORT else ""
        figures = f"short {out.short:7.2f} (one start {out.single_short:7.2f})"
        clock = f"{out.seconds:6.2f} s (one start {out.single_seconds:6.2f} s)"
        print(f"{len(outcomes):3d}/{len(chosen)} {out.i:3d} {figures} {clock} {out.name} {word}", flush=True)
        if given.verbose:
            for value, start, end in out.ends:
                print(f"    {value:12.4f}  from {np.round(start, 2)} to {np.round(end, 2)}")
    return int(not report(outcomes, time.perf_counter() - began))


if __name__ == "__main__":
    sys.exit(main())
