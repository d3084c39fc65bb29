"""What a formula costs beside the same fit from parts, and space by time of types I to IV.

    OPENBLAS_NUM_THREADS=1 python benchmarks/formula_cost.py [--repeat 7] [--types I II III IV] [--large]

Germany: ``Model("deaths ~ bym2(district)").fit()`` beside ``gmrf.bym2``, ``gmrf.stack`` and ``learn`` from the same
start under the same priors, in turn; medians. Then 100 regions on a grid times 30 times, Poisson with about 20
expected, the main effects bym2(r) and rw1(t), and each interaction of Knorr-Held (2000); ``--large`` takes 500 regions
times 50 times: 25,000 latents of type IV, held by 549 constraints. Seconds by the clock and of the processor,
and the peak memory of the process above what it held before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sparse import Peak

import fenchel
from fenchel import PC, gmrf
from fenchel.datasets import load_germany
from fenchel.hyperparameters import Normal, PCDeviation, independent, learn

TYPES = {
    "I": "interact(iid(r), iid(t))",
    "II": "interact(iid(r), rw1(t))",
    "III": "interact(icar(r), iid(t))",
    "IV": "interact(icar(r), rw1(t))",
}


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it returns, and its seconds by the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    out = run()
    return out, time.perf_counter() - clock, time.process_time() - processor


def germany(repeat: int) -> None:
    """A formula beside its parts."""
    data = load_germany()
    frame = pd.DataFrame({"district": np.arange(data.Y.size), "deaths": data.Y, "expected": data.E})
    level = float(np.log(data.Y.sum() / data.E.sum()))
    priors = independent({0: PCDeviation(1.0, 0.01), 1: Normal(0.0, 1.8)})

    def formula() -> Any:
        graphs = {"district": data.adjacency}
        stated = {"district": PC(1.0, 0.01)}
        model = fenchel.Model(
            "deaths ~ bym2(district)", frame, "poisson", exposure="expected", graphs=graphs, priors=stated
        )
        return model.fit(accuracy="fast").found

    def parts() -> Any:
        field = gmrf.bym2(data.adjacency, precision=4.0)
        field.log_prior = priors
        family = gmrf.stack([(field, np.arange(data.Y.size))], offset=level)
        return learn(fenchel.Poisson(data.E), family, data.Y)

    formula(), parts()  # compiled, and in cache
    seconds: dict[str, list[tuple[float, float]]] = {"formula": [], "parts": []}
    for _ in range(repeat):
        for name, run in (("formula", formula), ("parts", parts)):
            found, *each = timed(run)
            seconds[name].append((each[0], each[1]))
            if len(seconds[name]) == 1:
                print(f"  {name:<8} elbo {found.solution.elbo:.6f}, {found.n_evaluations} evaluations")
    medians = {name: np.median(each, axis=0) for name, each in seconds.items()}
    for name, (clock, processor) in medians.items():
        print(f"  {name:<8} {clock:.3f} s, of the processor {processor:.3f} s")
    ratio = medians["formula"] / medians["parts"]
    print(f"  the formula takes {ratio[0]:.2f} times as long, of the processor {ratio[1]:.2f} times", flush=True)


def grid(down: int, across: int | None = None) -> sp.csr_array:
    """The adjacency of down x across regions; a square without the latter."""
    across = down if across is None else across
    line, other = (sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]) for n in (down, across))
    return sp.csr_array(sp.kron(line, sp.eye_array(across)) + sp.kron(sp.eye_array(down), other))


def space_time(n: int = 100, times: int = 30) -> pd.DataFrame:
    """Counts of n regions with regional levels, a common walk and walks of the regions."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"r": np.repeat(np.arange(n), times), "t": np.tile(np.arange(times), n)})
    data["expected"] = rng.gamma(20.0, 1.0, n * times)
    walks = 0.05 * np.cumsum(rng.normal(size=(n, times)), axis=1).ravel()
    eta = 0.3 * rng.normal(size=n)[data.r] + np.cumsum(0.1 * rng.normal(size=times))[data.t] + walks
    data["y"] = rng.poisson(data.expected * np.exp(eta - eta.mean()))
    return data


def interactions(kinds: list[str], down: int = 10, across: int = 10, times: int = 30) -> None:
    """Each type once, of down x across regions."""
    print(f"{down * across} regions x {times} times")
    data, graph = space_time(down * across, times), grid(down, across)
    for kind in kinds:
        formula = f"y ~ bym2(r) + rw1(t) + {TYPES[kind]}"
        with Peak() as peak:
            fit, clock, processor = timed(
                lambda formula=formula: fenchel.fit(
                    formula, data, "poisson", exposure="expected", graphs={"r": graph}, accuracy="fast"
                )
            )
        found = fit.found
        print(
            f"  type {kind:<4}{clock:>7.1f} s, of the processor {processor:>5.1f} s, {peak.mib:.0f} MiB, "
            f"{found.n_evaluations} evaluations, {found.n_newton} Newton iterations, "
            f"gap {fit.gap:.0e}, elbo {fit.elbo:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--large", action="store_true", help="500 regions x 50 times")
    parser.add_argument("--types", nargs="*", default=list(TYPES), choices=list(TYPES))
    args = parser.parse_args()
    if args.repeat:
        print("Germany, bym2, 544 districts")
        germany(args.repeat)
    if args.large:
        interactions(args.types, 2, 4, 6)  # compiled
        interactions(args.types, 20, 25, 50)
    else:
        interactions(args.types)


if __name__ == "__main__":
    main()
