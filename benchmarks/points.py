"""Points in the plane: Matern fields on a mesh (SPDE) and Vecchia's approximation, learned and scored on held-out rows.

    python benchmarks/points.py [--sizes 10000 100000] [--families poisson bernoulli gaussian] [--methods spde vecchia]
    python benchmarks/points.py --exact 4000          against the dense process, at the same hyperparameters
    python benchmarks/points.py --errors 2000         by edge of the mesh, by number of neighbours and of knots
    python benchmarks/points.py --gpboost PYTHON      gpboost's Vecchia on the same rows, by a Python that has it

The truth is a Matern 3/2 field of sd 1 and range 2 on a square of side 10, by random Fourier features; nine rows of ten
are fitted, one is held out. "score" is the mean log predictive density of the held-out rows in nats; the truth's own,
with eta known, stands beside it; "mean off" and "sd off" are root mean squares over them, of the difference to the
dense process in its sds, and of the log of the ratio of sds. Seconds are the clock's of making the model and learning,
"cpu" the processor's over all threads. Each case runs in a process of its own, whose peak memory is reported.

``--gpboost`` keeps what it found in points_gpboost.json, with versions and settings; without it that is printed where
the same rows are there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from scipy.special import kv

import fenchel
from fenchel.gmrf.vecchia import NUGGET
from fenchel.likelihoods import BernoulliLogit, Gaussian, Likelihood, Poisson

KEPT = Path(__file__).with_name("points_gpboost.json")
SIDE, RANGE, FEATURES, NOISE = 10.0, 2.0, 3000, 0.5
LIKELIHOODS: dict[str, Likelihood] = {
    "poisson": Poisson(),
    "bernoulli": BernoulliLogit("log-sum"),
    "gaussian": Gaussian(NOISE**2),
}


def field(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A draw at points: frequencies of a Matern 3/2 in the plane are those of a t with 3 degrees, over half a range."""
    w = rng.normal(size=(FEATURES, 2)) / np.sqrt(rng.chisquare(3, FEATURES) / 3)[:, None] / (RANGE / 2)
    phase, out = rng.uniform(0, 2 * np.pi, FEATURES), np.empty(len(X))
    for part in np.array_split(np.arange(len(X)), max(1, len(X) // 2_000)):
        out[part] = np.cos(X[part] @ w.T + phase).sum(axis=1) * np.sqrt(2 / FEATURES)
    return out


def rows(n: int, family: str, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of n rows, and eta."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2)) * SIDE
    eta = field(X, rng)
    y = {
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "bernoulli": lambda: (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
        "gaussian": lambda: eta + NOISE * rng.normal(size=n),
    }[family]()
    return pd.DataFrame({"east": X[:, 0], "north": X[:, 1], "y": y}), eta


def formula(method: str, edge: float | None, neighbours: int, knots: int | None = None) -> str:
    if method == "spde":
        return f"y ~ matern(east, north, edge={edge})" if edge else "y ~ matern(east, north)"
    return f"y ~ vecchia(east, north, isotropic=True, neighbours={neighbours}, knots={knots})"


def case(
    n: int, family: str, method: str, edge: float | None, neighbours: int, knots: int | None, exact: bool
) -> dict[str, float]:
    """Fit and score one of them."""
    data, eta = rows(n, family)
    out = np.arange(n) % 10 == 9
    began, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of edges and knots that are too few, on purpose
        model = fenchel.Model(formula(method, edge, neighbours, knots), data[~out], family=family)
        fit = model.fit(accuracy="fast")
        model = fit.model  # with the mesh or the neighbours of its ranges
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    term, y = model.sum.effects[0], data["y"].to_numpy(dtype=float)
    new = model.sum.new_rows(fit.theta, model.table(data[out].reset_index(drop=True)))
    h, rho = fit.solution.posterior.predict(design=new.design, extra_variance=new.extra_variance)
    likelihood, level = fit.found.likelihood, model.level
    score = lambda mean, variance: float(
        np.mean(likelihood.predictive_log_density(y[out], np.asarray(mean), np.asarray(variance)))
    )
    found = dict(term.readable(fit.theta[: len(term.hyperparameters)]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = {
        "latents": term.n_latents,
        "seconds": seconds,
        "cpu": cpu,
        "gib": peak,
        "evaluations": fit.found.n_evaluations,
        "factorisations": fit.found.n_factorisations,
        "sd": found["sd"],
        "range": found["range"],
        "gap": fit.solution.gap,
        "score": score(np.asarray(h) + level, rho),
        "truth": score(eta[out], np.full(out.sum(), 1e-12)),
    }
    if family == "gaussian":
        result["noise"] = float(np.exp(fit.theta[-1] / 2))
    if exact:
        mean, variance = dense(method, data, out, y, found, level, likelihood, model.sum.fixed_variance)
        result["exact"] = score(mean, variance)
        result["mean off"] = float(np.sqrt(np.mean((np.asarray(h) + level - mean) ** 2 / variance)))
        result["sd off"] = float(np.sqrt(np.mean(np.log(np.asarray(rho) / variance) ** 2)) / 2)
    return result


def dense(
    method: str,
    data: pd.DataFrame,
    out: np.ndarray,
    y: np.ndarray,
    found: dict[str, float],
    level: float,
    likelihood: Likelihood,
    variance: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of eta at the held-out rows under the process itself: Matern 1, or 3/2, with the intercept."""
    X = data[["east", "north"]].to_numpy()
    nu = 1.0 if method == "spde" else 1.5
    r = np.sqrt(8.0 * nu) * np.maximum(cdist(X, X[~out]), 1e-12) / found["range"]
    K = found["sd"] ** 2 * (r * kv(1, r) if nu == 1.0 else (1 + r) * np.exp(-r)) + float(np.ravel(variance)[0])
    inner = K[~out] + found["sd"] ** 2 * NUGGET * np.eye(int((~out).sum()))
    sol = fenchel.infer(likelihood, fenchel.DenseCovariance(inner, offset=level), y[~out], tol=1e-8)
    whole = np.full(int(out.sum()), found["sd"] ** 2 + float(np.ravel(variance)[0]))
    h, rho = sol.posterior.predict(cross=K[out], variance=whole)
    return np.asarray(h) + level, np.asarray(rho)


def gpboost(python: str | None, n: int, family: str, neighbours: int) -> dict[str, float] | None:
    """The same rows by gpboost, in a process of its own and kept; or as kept."""
    kept, key = json.loads(KEPT.read_text()) if KEPT.exists() else {}, f"{n} {family}, {neighbours} neighbours"
    if python is None:
        return kept.get("found", {}).get(key)
    data, _ = rows(n, family)
    out = np.arange(n) % 10 == 9
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=data[["east", "north"]], y=data["y"], out=out, neighbours=neighbours, family=family)
        script = Path(__file__).with_name("points_gpboost.py")
        done = subprocess.run([python, str(script), str(path)], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    kept = {**kept, **answer.pop("about"), "found": {**kept.get("found", {}), key: answer}}
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return answer


def show(words: str, result: dict[str, float]) -> None:
    print(words + "  " + "  ".join(f"{key} {value:.4g}" for key, value in result.items()), flush=True)


def alone(*args: object) -> dict[str, float]:
    """A case in a fresh process, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(case, args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000])
    parser.add_argument("--families", nargs="*", default=list(LIKELIHOODS), choices=list(LIKELIHOODS))
    parser.add_argument("--methods", nargs="*", default=["spde", "vecchia"], choices=["spde", "vecchia"])
    parser.add_argument("--edge", type=float, help="of the mesh; default: the term's own")
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--knots", type=int, help="of Vecchia; default: the term's own")
    parser.add_argument("--exact", type=int, metavar="N", help="the dense process beside them, at N points")
    parser.add_argument("--errors", type=int, metavar="N", help="by edge, neighbours and knots, at N points")
    parser.add_argument("--gpboost", metavar="PYTHON")
    options = parser.parse_args()
    sizes = [options.exact] if options.exact else [] if options.errors else options.sizes
    for n in sizes:
        for family in options.families:
            for method in options.methods:
                found = alone(n, family, method, options.edge, options.neighbours, options.knots, bool(options.exact))
                show(f"{n} {family}, {method}:", found)
            theirs = gpboost(options.gpboost, n, family, options.neighbours)
            if theirs is not None:
                show(f"{n} {family}, gpboost{'' if options.gpboost else ' (kept)'}:", theirs)
    if options.errors:
        n, family = options.errors, options.families[-1]
        for edge in (1.0, 0.5, 0.25, 0.15, 0.1):
            show(f"edge {edge}:", alone(n, family, "spde", edge, 0, None, True))
        for m in (3, 5, 10, 20, 40):
            show(f"{m} neighbours:", alone(n, family, "vecchia", None, m, None, True))
        for knots in (n // 16, n // 8, n // 4, n // 2):
            show(f"{knots} knots:", alone(n, family, "vecchia", None, 20, knots, True))


if __name__ == "__main__":
    main()
