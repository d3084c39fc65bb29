"""What the first fit of a fresh installation costs beyond the second: importing and compiling.

    OPENBLAS_NUM_THREADS=1 python benchmarks/first_fit.py [--only NAME] [--functions]

Each model is fitted twice by a new process whose folder for compiled code is empty. Seconds are of the processor, so
that a busy machine does not show, and of the clock beside them; the difference of the two fits is what a new container
pays, and the limit what it may be. ``--functions`` lists what was compiled, the dearest first: seconds are of a
function with those it calls.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

AT_MOST = 5.0  # seconds of the processor that the first fit may take beyond the second


def rows(n: int = 200, seed: int = 0) -> Any:
    """A table with numbers, groups, places and targets of three kinds."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    g = rng.integers(0, 20, n)
    x, u, v = rng.normal(size=n), rng.uniform(0, 10, n), rng.uniform(0, 10, n)
    eta = 0.5 * x + 0.7 * rng.normal(size=20)[g] + np.sin(u)
    real, count, event = (
        eta + 0.5 * rng.normal(size=n),
        rng.poisson(np.exp(eta)),
        rng.random(n) < 1 / (1 + np.exp(-eta)),
    )
    return pd.DataFrame({"x": x, "u": u, "v": v, "g": g, "real": real, "count": count, "event": event.astype(int)})


def formula(text: str, family: str = "gaussian") -> Callable[[], object]:
    import fenchel

    data = rows()
    return lambda: fenchel.fit(text, data, family=family)


def areas() -> Callable[[], object]:
    import fenchel

    data = rows()
    graph = {i: [j for j in (i - 1, i + 1) if 0 <= j < 20] for i in range(20)}
    return lambda: fenchel.fit("count ~ x + bym2(g)", data, family="poisson", graphs={"g": graph})


def estimator(name: str, target: str) -> Callable[[], object]:
    import fenchel

    data = rows()
    model = getattr(fenchel, name)()
    return lambda: model.fit(data[["x", "u", "v"]].to_numpy(), data[target].to_numpy())


def table() -> Callable[[], object]:
    import fenchel

    data = rows()[["x", "u", "real", "count", "event"]]
    return lambda: fenchel.ProbabilisticPCA(2).fit(data)


MODELS: dict[str, Callable[[], Callable[[], object]]] = {
    "real ~ x + (1|g)": lambda: formula("real ~ x + (1|g)"),
    "count ~ x + (1|g)": lambda: formula("count ~ x + (1|g)", "poisson"),
    "event ~ x + (1|g)": lambda: formula("event ~ x + (1|g)", "bernoulli"),
    "real ~ s(u)": lambda: formula("real ~ s(u)"),
    "count ~ x + bym2(g)": areas,
    "real ~ matern(u, v)": lambda: formula("real ~ matern(u, v)"),
    "real ~ vecchia(u, v)": lambda: formula("real ~ vecchia(u, v)"),
    "GaussianProcessClassifier": lambda: estimator("GaussianProcessClassifier", "event"),
    "GaussianProcessRegressor": lambda: estimator("GaussianProcessRegressor", "real"),
    "BayesianLogisticRegression": lambda: estimator("BayesianLogisticRegression", "event"),
    "ProbabilisticPCA": table,
}


class Timer:
    """Seconds of the processor that each compiled function took, those it calls included."""

    def __init__(self) -> None:
        from numba.core import event

        self.began: list[float] = []
        self.seconds: dict[str, float] = {}
        self.count = 0
        timer = self

        class Listener(event.Listener):
            def on_start(self, event: Any) -> None:
                timer.began.append(time.process_time())

            def on_end(self, event: Any) -> None:
                function = event.data["dispatcher"].py_func
                name = f"{function.__module__}.{function.__name__}{event.data['args']}"
                timer.seconds[name] = time.process_time() - timer.began.pop()
                timer.count += 1

        event.register("numba:compile", Listener())


def measure(name: str, functions: bool) -> None:
    """Both fits, here, as one line of json."""
    import fenchel

    timer = Timer() if functions else None
    began = time.process_time(), time.perf_counter()
    fit = MODELS[name]()
    out = []
    for _ in range(2):
        fit()
        now = time.process_time(), time.perf_counter()
        out.append([now[0] - began[0], now[1] - began[1]])
        began = now
    compiled = sorted((timer.seconds if timer else {}).items(), key=lambda item: -item[1])
    print(json.dumps({"fits": out, "compiled": compiled, "version": fenchel.__version__}))


def in_new_process(name: str, functions: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--measure", name, *(["--functions"] if functions else [])]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="models whose name has this in it")
    parser.add_argument("--functions", action="store_true", help="list what was compiled")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure, args.functions)
        return
    print(f"{'model':28s} {'first s':>8s} {'(clock)':>8s} {'second s':>9s} {'(clock)':>8s} {'more s':>7s}  at most")
    for name in MODELS:
        if args.only and args.only not in name:
            continue
        result = in_new_process(name, args.functions)
        (first, first_clock), (second, second_clock) = result["fits"]
        judged = "" if first - second <= AT_MOST else "  MISSED"
        print(
            f"{name:28s} {first:8.2f} {first_clock:8.2f} {second:9.2f} {second_clock:8.2f} {first - second:7.2f}  "
            f"{AT_MOST:.0f}{judged}",
            flush=True,
        )
        for function, seconds in result["compiled"][:40]:
            print(f"    {seconds:7.2f}  {function}")


if __name__ == "__main__":
    main()
