"""Bounds of the evidence: are they true, how wide are they, what do they cost?

    python benchmarks/proofs.py random [--problems 2000] [--effort high]     against quadrature in 34 digits
    python benchmarks/proofs.py settings                                     the seven of accuracy_reference.json
    python benchmarks/proofs.py prices                                       in fits
    python benchmarks/proofs.py regression                                   width against d^2 / N
    python benchmarks/proofs.py germany

``random``: chains of 1 to 3 latents, one to six rows of every likelihood, scales from .1 to 10, correlations to .95,
priors dense, as features and sparse, some fits cut short. lower <= truth <= upper has to hold in all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

import fenchel
from fenchel import likelihoods
from fenchel.likelihoods import BernoulliLogit, Poisson, StochasticVolatility
from fenchel.priors import DenseCovariance, Features, SparsePrecision

KINDS = [
    *("BernoulliLogit", "BernoulliProbit", "Beta", "BetaBinomial", "Binomial", "Exponential", "Gamma", "Gaussian"),
    *("Hurdle", "Interval", "LaplaceNoise", "LogisticNoise", "NegativeBinomial", "NegativeBinomial1", "Ordinal"),
    *("OrdinalProbit", "Poisson", "StochasticVolatility", "StudentT", "Truncated", "Tweedie", "Weibull"),
    "ZeroInflated",
]
PROTOTYPE = {
    **{"Pima": 0.093, "Pima, wide": 5.07, "Breast cancer": 3.05, "Glass": 0.65, "Glass, wide": 3.99},
    **{"Coal disasters": 0.020, "Pound/dollar": 0.36},
}


# -- truth --------------------------------------------------------------------------------------------------
def problem(seed: int) -> dict[str, Any]:
    """A random problem: likelihood, targets, the chain, which latent each row sees and how."""
    rng = np.random.default_rng(seed)
    n, L = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    like, y = getattr(likelihoods, KINDS[seed % len(KINDS)]).example(rng, n)
    return {
        "like": like,
        "y": y,
        "s": float(rng.choice([0.1, 0.5, 1.0, 2.0, 5.0, 10.0])),
        "c": float(rng.choice([0.0, 0.5, 0.9, 0.95])),
        "L": L,
        "of": rng.integers(0, L, n),
        "a": rng.choice([1.0, 1.0, 1.0, -1.0, 0.5, 2.0], n),
        "kind": ("dense", "features", "sparse")[int(rng.integers(3))],
        "max_iter": 2 if rng.random() < 0.1 else 200,
    }


def prior_of(p: dict[str, Any]) -> Any:
    from proofs_witness import chain

    K = chain(p["L"], p["s"], p["c"])
    W = np.zeros((len(p["y"]), p["L"]))
    W[np.arange(len(p["y"])), p["of"]] = p["a"]
    if p["kind"] == "dense":
        return DenseCovariance(K, design=W)
    if p["kind"] == "features":
        return Features(W, variance=K)
    return SparsePrecision(sp.csc_array(_precision(K)), design=sp.csr_array(W))


def _precision(K: np.ndarray) -> np.ndarray:
    Q = np.linalg.inv(K)
    return np.where(np.abs(Q) > 1e-12 * np.abs(Q).max(), (Q + Q.T) / 2, 0.0)


def truth(p: dict[str, Any]) -> tuple[float, float] | None:
    """log p(y) of a problem and what its grid leaves open; None where the densities do not agree with the library's."""
    from proofs_witness import kernel, log_evidence

    like, y = p["like"], p["y"]
    rows = {key: np.asarray(value) for key, value in like.prepare(y).items()}
    places = np.array([-0.7, 0.3, 1.1])
    theirs = np.asarray(like.log_density(np.broadcast_to(places, (len(y), 3)), rows))
    kernels: list[list[Any]] = [[] for _ in range(p["L"])]
    for i, value in enumerate(y):
        f = kernel(like, value, i)
        if f is None:
            return None
        ours = np.array([float(f(_mp(e))) for e in places])
        shift = theirs[i] - ours
        if np.ptp(shift) > 1e-9 * (1.0 + np.abs(theirs[i]).max()):
            raise SystemExit(f"{like!r}: the witness's density is another one: {shift}")
        kernels[p["of"][i]].append((_shifted(f, float(shift[0])), float(p["a"][i]), 0.0, 1.0))

    def fast(k: int) -> Any:
        which = np.flatnonzero(p["of"] == k)

        def total(z: np.ndarray) -> np.ndarray:
            if which.size == 0:
                return np.zeros(z.size)
            some = {key: value[which] for key, value in rows.items()}
            own = like.take(which)
            with np.errstate(all="ignore"):
                each = np.asarray(own.log_density(p["a"][which][:, None] * z[None, :], some))
            return np.maximum(np.nan_to_num(each, nan=-1e6, neginf=-1e6), -1e6).sum(axis=0)

        return total

    kinks: list[list[float]] = [[] for _ in range(p["L"])]
    if type(like).__name__ == "LaplaceNoise":
        for k, a, value in zip(p["of"], p["a"], y, strict=True):
            kinks[k].append(float(value / a))
    return log_evidence(kernels, [fast(k) for k in range(p["L"])], p["s"], p["c"], kinks)


def _mp(x: float) -> Any:
    import mpmath

    return mpmath.mpf(float(x))


def _shifted(f: Any, by: float) -> Any:
    constant = _mp(by)
    return lambda e: f(e) + constant


def random(problems: int, effort: str, first: int = 0) -> None:
    import warnings

    warnings.simplefilter("ignore")
    wrong, unproved, unbounded, errors, inside, sides = [], 0, 0, [], 0, ([], [])
    began = time.perf_counter()
    for seed in range(first, first + problems):
        p = problem(seed)
        with np.errstate(all="ignore"):
            sol = fenchel.infer(p["like"], prior_of(p), p["y"], tol=1e-9, max_iter=p["max_iter"])
            bounds = sol.evidence_bounds(effort)
        found = truth(p)
        if found is None:
            continue
        value, open_ = found
        errors.append(open_)
        unbounded += not np.isfinite(bounds.upper)
        unproved += "proved by a Cholesky" not in bounds.status
        slack = 3.0 * open_ + 4e-15 * max(1.0, abs(value))  # of the truth as a double, and of the library's constants
        if not bounds.lower - slack <= value <= bounds.upper + slack:
            wrong.append(seed)
            print(f"seed {seed}: {type(p['like']).__name__} {p['kind']}: {bounds.lower!r} {value!r} {bounds.upper!r}")
        inside += 1
        sides[0].append(value - bounds.lower)
        sides[1].append(bounds.upper - value)
        if (seed + 1 - first) % 100 == 0:
            print(f"  {seed + 1 - first}: {len(wrong)} wrong, {time.perf_counter() - began:.0f} s", flush=True)
    low, high = np.array(sides[0]), np.array(sides[1])
    print(
        f"{inside} problems, effort {effort}: {len(wrong)} outside; exponents not proved {unproved}, no upper bound "
        f"{unbounded}\n  truth - lower: median {np.median(low):.1e}, largest {low.max():.2g}; upper - truth: median "
        f"{np.median(high):.1e}, 90 % {np.quantile(high, 0.9):.1e}, largest {high.max():.2g}; quadrature's own error: "
        f"at most {np.max(errors):.0e}, above 1e-12 in {int((np.array(errors) > 1e-12).sum())}"
    )


# -- widths -------------------------------------------------------------------------------------------------
def settings() -> None:
    from accuracy_reference import cases

    path = Path(__file__).with_name("accuracy_reference.json")
    stored = json.loads(path.read_text())["cases"]
    print(
        "setting            elbo      MCMC (se)            upper      width  prototype   high  seconds: fit, fast, high"
    )
    for case in cases():
        like: Any = {"bernoulli": BernoulliLogit("exact"), "poisson": Poisson()}.get(case.kind, StochasticVolatility())
        t = [time.perf_counter()]
        sol = fenchel.infer(like, DenseCovariance(case.K), case.y, tol=1e-10)
        t.append(time.perf_counter())
        fast = sol.evidence_bounds()
        t.append(time.perf_counter())
        high = sol.evidence_bounds("high")
        t.append(time.perf_counter())
        known = stored[case.name]
        print(
            f"{case.name:15} {sol.elbo:10.3f} {known['log_evidence']:10.4f} ({known['log_evidence_se']:.4f}) "
            f"{fast.upper:10.3f} {fast.width:8.4f} {PROTOTYPE[case.name]:8.3f} {high.width:9.4f}   "
            + " ".join(f"{b - a:.2f}" for a, b in itertools.pairwise(t))
        )


def germany() -> None:
    from fenchel.datasets import load_germany
    from fenchel.paper.germany_fits import readings

    data = load_germany()
    reading = readings(data)[2]
    print(f"Germany, 544 districts, {reading.title}:   k_u   k_v       elbo      upper    width    high")
    for at in ((10.0, 100.0), (10.0, 1000.0), (1.0, 10.0)):
        sol = fenchel.infer(reading.likelihood(), reading.prior(at), data.Y, tol=1e-10)
        fast, high = sol.evidence_bounds(), sol.evidence_bounds("high")
        print(f"{at[0]:57.0f} {at[1]:5.0f} {sol.elbo:10.3f} {fast.upper:10.3f} {fast.width:8.4f} {high.width:7.4f}")


def prices() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    X = rng.normal(size=(n, 3))
    K = 4.0 * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1)) + 1e-6 * np.eye(n)
    f = scipy.linalg.cholesky(K, lower=True) @ rng.normal(size=n)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    _price("dense, 2,000 labels", BernoulliLogit("exact"), DenseCovariance(K), y)
    m = 316
    T = sp.diags_array([-np.ones(m - 1), 2.0 * np.ones(m), -np.ones(m - 1)], offsets=[-1, 0, 1])
    eye = sp.eye_array(m)
    Q = sp.csc_array(sp.kron(T, eye) + sp.kron(eye, T) + 0.05 * sp.eye_array(m * m))
    y = rng.poisson(np.exp(0.5 * rng.normal(size=m * m))).astype(float)
    _price(f"sparse, {m * m} latents", Poisson(), SparsePrecision(Q), y)
    X = rng.normal(size=(100_000, 20))
    y = rng.poisson(np.exp(X @ rng.normal(size=20) / 10.0)).astype(float)
    _price("20 weights, 100,000 rows", Poisson(), Features(X), y)


def _price(name: str, like: Any, prior: Any, y: np.ndarray) -> None:
    fenchel.infer(like, prior, y).evidence_bounds()  # compiles
    fits, bounds = [], []
    for _ in range(3):
        began = time.perf_counter()
        sol = fenchel.infer(like, prior, y)
        fits.append(time.perf_counter() - began)
        began = time.perf_counter()
        found = sol.evidence_bounds()
        bounds.append(time.perf_counter() - began)
    ratio = np.median(bounds) / np.median(fits)
    print(
        f"{name}: fit {np.median(fits):.2f} s, bounds {np.median(bounds):.2f} s, {ratio:.1f} fits; "
        f"elbo {found.lower:.2f}, width {found.width:.4g}",
        flush=True,
    )


def regression() -> None:
    rng = np.random.default_rng(1)
    print("logistic regression, standard normal coefficients:   d     N    truth - elbo <= width    width N / d^2")
    for d in (2, 5, 10):
        for n in (100, 400, 1600, 6400):
            X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
            y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ rng.normal(size=d) / 2.0))).astype(float)
            found = fenchel.infer(BernoulliLogit("exact"), Features(X), y, tol=1e-12).evidence_bounds()
            print(f"{d:54} {n:6} {found.width:12.3e} {found.width * n / d**2:22.3f}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("random", "settings", "prices", "regression", "germany"))
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--effort", default="fast")
    chosen = parser.parse_args()
    if chosen.what == "random":
        random(chosen.problems, chosen.effort, chosen.first)
    else:
        {"settings": settings, "prices": prices, "regression": regression, "germany": germany}[chosen.what]()
