"""A Gaussian process of many rows beside groups and a map, in one formula: y ~ x1 + gp(a, b, c) + (1|g) + bym2(r).

    python benchmarks/formula_processes.py            against exact fits: M = N, and the bound beside the true loss
    python benchmarks/formula_processes.py estimator  gp(a, b) against GaussianProcessRegressor on the same rows
    python benchmarks/formula_processes.py large [N] [M]  rows (10^5) and points ("auto"): seconds, memory, the bound

Seconds are of the processor, in all threads.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np
import pandas as pd

import fenchel

GROUPS, REGIONS = 200, 100


def table(n: int, family: str, seed: int = 0) -> pd.DataFrame:
    """Rows with a smooth function of three columns, groups and regions on a ring."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.random((3, n))
    x1, g, r = rng.normal(size=n), rng.integers(0, GROUPS, n), rng.integers(0, REGIONS, n)
    wave = np.cumsum(rng.normal(size=REGIONS))
    wave = 0.3 * (wave - np.linspace(wave[0], wave[-1], REGIONS)) / wave.std()
    eta = 0.2 + 0.3 * x1 + np.sin(5 * a) + b**2 + 0.5 * np.cos(6 * c) * a
    eta += 0.5 * rng.normal(size=GROUPS)[g] + wave[r]
    if family == "poisson":
        y = rng.poisson(np.exp(eta))
    elif family == "bernoulli":
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(1.0 - eta))).astype(int)
    else:
        y = eta + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"y": y, "x1": x1, "a": a, "b": b, "c": c, "g": g, "r": r})


def fitted(data: pd.DataFrame, process: str, family: str, **options):
    """The model with a process spelled as given, and the seconds that it took."""
    ring = {k: [(k - 1) % REGIONS, (k + 1) % REGIONS] for k in range(REGIONS)}
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        formula = f"y ~ x1 + {process} + (1|g) + bym2(r)"
        fit = fenchel.fit(formula, data, family, graphs={"r": ring}, accuracy="fast", **options)
    return fit, time.process_time() - began


def against_exact() -> None:
    """M = N is the exact process; with fewer points the bound is never below the true loss."""
    print(f"{'family':10} {'N':>5} {'M':>5} {'true loss':>10} {'bound':>10} {'ratio':>6}")
    below = 0
    for family in ("poisson", "bernoulli", "gaussian"):
        for seed, n in enumerate((300, 600)):
            data, exact = table(n, family, seed), None
            for m in (25, 50, 100, n):
                few, _ = fitted(data, f"gp(a, b, c, kernel='matern32', isotropic=False, n_inducing={m})", family)
                if exact is None:
                    ring = {k: [(k - 1) % REGIONS, (k + 1) % REGIONS] for k in range(REGIONS)}
                    formula = "y ~ x1 + gp(a, b, c, kernel='matern32', isotropic=False) + (1|g) + bym2(r)"
                    exact = fenchel.Model(formula, data, family, graphs={"r": ring}).sum.family()
                theta = few.theta[: exact.theta.size]
                whole = fenchel.infer(few.found.likelihood, exact.at(theta), few.model.target.y, tol=1e-11)
                lost = whole.elbo - few.elbo
                below += lost > few.approximation_loss
                ratio = few.approximation_loss / lost if lost > 1e-2 else np.nan
                print(f"{family:10} {n:5} {m:5} {lost:10.5f} {few.approximation_loss:10.5f} {ratio:6.2f}", flush=True)
    print(f"bounds below the true loss: {below}")


def against_estimator() -> None:
    """The same process by the estimator, on the same rows."""
    from sklearn.metrics import mean_squared_error

    from fenchel import GaussianProcessRegressor

    rng = np.random.default_rng(3)
    n = 6000
    X = rng.random((n, 2))
    f = np.sin(6 * X[:, 0]) + np.cos(4 * X[:, 1]) * X[:, 0]
    data = pd.DataFrame({"y": f + 0.3 * rng.normal(size=n), "a": X[:, 0], "b": X[:, 1]})
    train, test = data[:4000], data[4000:]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fenchel.fit("y ~ gp(a, b)", train, "gaussian", accuracy="fast")
    ours = time.process_time() - began
    began = time.process_time()
    model = GaussianProcessRegressor().fit(train[["a", "b"]], train["y"])
    theirs = time.process_time() - began
    truth = f[4000:]
    for name, mean, bound, seconds in (
        ("formula", fit.predict(test), fit.approximation_loss, ours),
        ("estimator", model.predict(test[["a", "b"]]), model.approximation_loss_, theirs),
    ):
        rmse = mean_squared_error(truth, mean) ** 0.5
        print(f"{name:10} rmse of the function {rmse:.4f}, bound {bound:.3g} nats, {seconds:.1f} s")
    apart = np.abs(np.asarray(fit.predict(test)) - model.predict(test[["a", "b"]])).max()
    print(f"largest difference of predictions {apart:.4f}, noise sd 0.3")


def large(n: int = 100_000, m: int = 0) -> None:
    data = table(n, "poisson", 5)
    fit, seconds = fitted(data, f"gp(a, b, c, n_inducing={m})" if m else "gp(a, b, c)", "poisson")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    term = next(term for term in fit.model.sum.effects if term.approximates)
    print(pd.DataFrame(term.stages).to_string())
    print(f"{n} rows: {seconds:.0f} s of the processor, {memory:.1f} GiB, relative gap {fit.gap / abs(fit.elbo):.0e}")
    print("\n".join(fit.engine.certificate(fit)))
    print(fit.coefficients.to_string())
    print(fit.hyperparameters.to_string())


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "large":
        large(*(int(word) for word in sys.argv[2:]))
    else:
        against_estimator() if what == "estimator" else against_exact()
