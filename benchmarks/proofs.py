"""Bounds of the evidence: are they true, how wide are they, what do they cost?

    python benchmarks/proofs.py random [--problems 2000] [--effort high]     against quadrature in 34 digits
    python benchmarks/proofs.py hard [--problems 2000]                       one latent, any scale: the same
    python benchmarks/proofs.py settings                                     the seven of accuracy_reference.json
    python benchmarks/proofs.py prices                                       in fits
    python benchmarks/proofs.py regression [--picture FILE]                  width against d^2 / N
    python benchmarks/proofs.py wide                                         why wide settings stay wide
    python benchmarks/proofs.py germany

``random``: chains of 1 to 3 latents, one to six rows of every likelihood, scales from .1 to 10, correlations to .95,
priors dense, as features and sparse, some fits cut short. lower <= truth <= upper has to hold in all.
``hard``: one latent, sds from 1e-3 to 1e3, noise of scales from 1e-8 to 100 of it, weights from .01 to 1,000, rows
that are equal to 13 digits. Both run on ``--processes`` processes; mpmath is needed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
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
NOISE = ["StudentT", "LaplaceNoise", "LogisticNoise"]
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


def _kernels(p: dict[str, Any]) -> list[Any] | None:
    """The log density of each row in mpmath with the library's constant; None where it is not written there."""
    from proofs_witness import kernel

    like, y, places = p["like"], p["y"], np.array([-0.7, 0.3, 1.1])
    rows = {key: np.asarray(value) for key, value in like.prepare(y).items()}
    theirs = np.asarray(like.log_density(np.broadcast_to(places, (len(y), 3)), rows))
    out = []
    for i, value in enumerate(y):
        f = kernel(like, value, i)
        if f is None:
            return None
        shift = theirs[i] - np.array([float(f(_mp(e))) for e in places])
        if np.ptp(shift) > 1e-9 * (1.0 + np.abs(theirs[i]).max()):
            raise SystemExit(f"{like!r}: the witness's density is another one: {shift}")
        out.append(_shifted(f, float(shift[np.argmin(np.abs(theirs[i]))])))
    return out


def truth(p: dict[str, Any]) -> tuple[float, float] | None:
    """log p(y) of a problem and what its grid leaves open; None where the densities do not agree with the library's."""
    from proofs_witness import log_evidence

    like, y = p["like"], p["y"]
    rows = {key: np.asarray(value) for key, value in like.prepare(y).items()}
    each = _kernels(p)
    if each is None:
        return None
    kernels: list[list[Any]] = [[] for _ in range(p["L"])]
    for i, f in enumerate(each):
        kernels[p["of"][i]].append((f, float(p["a"][i]), 0.0, 1.0))

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


def hard_problem(seed: int) -> dict[str, Any]:
    """One latent on any scale, with noise on any other, weights, and rows that are nearly the same."""
    rng = np.random.default_rng(10**6 + seed)
    n, sd = int(rng.integers(1, 5)), float(10.0 ** rng.uniform(-3, 3))
    kind = KINDS[seed % len(KINDS)] if seed % 2 else NOISE[seed // 2 % len(NOISE)]
    like, y = getattr(likelihoods, kind).example(rng, n)
    if kind in NOISE:
        like = like.changed(scale=sd * float(10.0 ** rng.uniform(-8, 2)))
        y = np.where(rng.random(n) < 0.3, 0.3 * sd, sd * rng.normal(size=n))
        y = y + like.scale * rng.normal(size=n) * (rng.random(n) < 0.5)
    elif sd > 30.0:
        sd = 30.0
    a = np.where(rng.random(n) < 0.5, 1.0, rng.choice([-1.0, 0.5, 2.0, 1.0 + 1e-13, 1.0 - 1e-9], n))
    weights = 10.0 ** rng.uniform(-2, 3, n) if rng.random() < 0.4 else np.ones(n)
    prior = ("dense", "features", "sparse")[int(rng.integers(3))]
    return {"like": like, "y": y, "s": sd, "c": 0.0, "L": 1, "of": np.zeros(n, dtype=int), "a": a, "kind": prior,
            "max_iter": 200, "weights": weights}  # fmt: skip


def hard_truth(p: dict[str, Any]) -> tuple[float, float] | None:
    from proofs_witness import log_evidence_of_one

    kernels = _kernels(p)
    if kernels is None:
        return None
    like = p["like"]
    rows = {key: np.asarray(value) for key, value in like.prepare(p["y"]).items()}
    own, at = np.asarray(rows["weight"]), np.column_stack([np.asarray(m) for m in like.landmarks(rows)])
    times = np.where(own > 0.0, p["weights"], 0.0)
    with np.errstate(all="ignore"):
        bend = np.abs(np.asarray(like.derivatives(at, rows)[2])) * times[:, None]
        width = np.clip(np.nan_to_num(1.0 / np.sqrt(bend), nan=1.0, posinf=1.0), 1e-13, 1.0)
    marks = [(float(e / p["a"][i]), float(width[i, j])) for i in range(len(at)) for j, e in enumerate(at[i])]
    return log_evidence_of_one([(f, p["a"][i], times[i]) for i, f in enumerate(kernels)], marks, p["s"])


def judged(task: tuple[str, int, str]) -> tuple[Any, ...]:
    """One problem: its seed, the bounds and the truth with its error, whether exponents are proved; in a process."""
    import warnings

    what, seed, effort = task
    sys.path.insert(0, str(Path(__file__).parent))
    warnings.simplefilter("ignore")
    p = hard_problem(seed) if what == "hard" else problem(seed)
    with np.errstate(all="ignore"):
        fit = fenchel.infer(p["like"], prior_of(p), p["y"], weights=p.get("weights"), tol=1e-9, max_iter=p["max_iter"])
        bounds = fit.evidence_bounds(effort)
        found = hard_truth(p) if what == "hard" else truth(p)
    name = f"{type(p['like']).__name__} {p['kind']}"
    return seed, name, bounds.lower, bounds.upper, found, "proved by a Cholesky" in bounds.status


def random(what: str, problems: int, effort: str, first: int, processes: int) -> None:
    tasks = [(what, seed, effort) for seed in range(first, first + problems)]
    if processes == 1:
        return _report(what, effort, map(judged, tasks))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return _report(what, effort, pool.imap_unordered(judged, tasks))


def _report(what: str, effort: str, each: Any) -> None:
    began, wrong, unproved, unbounded, errors, sides = time.perf_counter(), [], 0, 0, [], ([], [])
    for done, (seed, name, lower, upper, found, proved) in enumerate(each, 1):
        if found is None:
            continue
        value, open_ = found
        errors.append(open_)
        unbounded += not np.isfinite(upper)
        unproved += not proved
        slack = 3.0 * open_ + 4e-15 * max(1.0, abs(value))  # of the truth as a double, and of constants
        if not lower - slack <= value <= upper + slack:
            wrong.append(seed)
            print(f"seed {seed}: {name}: {lower!r} {value!r} {upper!r}", flush=True)
        sides[0].append(value - lower)
        sides[1].append(upper - value)
        if done % 100 == 0:
            print(f"  {done}: {len(wrong)} outside, {time.perf_counter() - began:.0f} s", flush=True)
    low, high = np.array(sides[0]), np.array(sides[1])
    finite = high[np.isfinite(high)]
    print(
        f"{len(low)} problems ({what}), effort {effort}: {len(wrong)} outside; exponents not proved {unproved}, "
        f"no upper bound {unbounded}\n  truth - lower: median {np.median(low):.1e}, largest {low.max():.2g}; "
        f"upper - truth: median {np.median(high):.1e}, 90 % {np.quantile(high, 0.9):.1e}, largest {finite.max():.2g}; "
        f"quadrature's own error: at most {np.max(errors):.0e}, above 1e-12 in "
        f"{int((np.array(errors) > 1e-12).sum())}; {time.perf_counter() - began:.0f} s"
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
        began = time.process_time()
        sol = fenchel.infer(like, prior, y)
        fits.append(time.process_time() - began)
        began = time.process_time()
        found = sol.evidence_bounds()
        bounds.append(time.process_time() - began)
    ratio = np.median(bounds) / np.median(fits)
    print(
        f"{name}: processor seconds, fit {np.median(fits):.2f}, bounds {np.median(bounds):.2f}, {ratio:.1f} fits; "
        f"elbo {found.lower:.2f}, width {found.width:.4g}",
        flush=True,
    )


def wide() -> None:
    """Why wide settings stay wide: the lower side, the reverse inequality, and directions integrated exactly."""
    from accuracy_reference import cases

    stored = json.loads(Path(__file__).with_name("accuracy_reference.json").read_text())["cases"]
    counts = (1, 2, 4, 8, 16)
    print("setting          width   high  MCMC-elbo  reverse: gain, at most   width given directions: ", *counts)
    for case in cases():
        if case.name not in ("Pima", "Pima, wide", "Glass, wide", "Pound/dollar"):
            continue
        like: Any = BernoulliLogit("exact") if case.kind == "bernoulli" else StochasticVolatility()
        fit = fenchel.infer(like, DenseCovariance(case.K), case.y, tol=1e-10)
        fast, high = fit.evidence_bounds(), fit.evidence_bounds("high")
        V, h = np.asarray(fit.posterior.covariance()), np.asarray(fit.posterior.mean)
        sd = np.sqrt(np.diag(V))
        R = V / np.outer(sd, sd)
        each = []
        for k in counts:
            A = np.linalg.eigh(R)[1][:, ::-1][:, :k] / sd[:, None]
            C = case.K @ A
            G = np.linalg.solve(A.T @ C, C.T)
            rest = case.K - C @ G + 1e-9 * np.eye(len(R))
            given = DenseCovariance((rest + rest.T) / 2.0, mean=G.T @ (A.T @ h))
            each.append(fenchel.infer(like, given, case.y, tol=1e-8).evidence_bounds().width)
        print(
            f"{case.name:14} {fast.width:7.3f} {high.width:6.3f} {stored[case.name]['log_evidence'] - fit.elbo:8.3f} "
            + " ".join(f"{x:10.4f}" for x in _reverse(fit, R))
            + "   "
            + " ".join(f"{x:9.3f}" for x in each),
            flush=True,
        )


def _reverse(fit: Any, R: np.ndarray) -> tuple[float, float]:
    """What diag(p) <= R adds to the elbo at the p it allows in proportion to 1 / (R^-1)_nn, which no p_n exceeds."""
    from fenchel.corrections.sites import observations
    from fenchel.proofs.holder_bound import sites_of_fit
    from fenchel.proofs.tilted_moments import TiltedMoments

    every = sites_of_fit(fit.posterior, observations(fit))
    sites = every.remainders
    rows = fit.posterior.active[every.rows[sites.groups.first]]
    R = R[np.ix_(rows, rows)]
    value, vectors = np.linalg.eigh(R)
    value = np.maximum(value, 1e-12)
    found = []
    most = 1.0 / np.sum(vectors**2 / value, axis=1)
    allowed = max(np.linalg.eigvalsh(R / np.sqrt(np.outer(most, most)))[0], 1e-9) * most
    for p in (allowed, most):
        moments = TiltedMoments(sites)
        moments.place(p)
        here = moments.at(p)
        moments.place(np.full(len(R), 1e-9))
        found.append(float(np.sum(here.log_mean / p - moments.at(np.full(len(R), 1e-9)).mean)))
    return found[0], found[1]


def regression(picture: str | None) -> None:
    rng = np.random.default_rng(1)
    print("logistic regression, standard normal coefficients:   d     N    truth - elbo <= width    width N / d^2")
    widths: dict[int, list[tuple[int, float]]] = {}
    for d in (2, 5, 10, 20):
        beta = rng.normal(size=d) / np.sqrt(d)
        for n in (100, 400, 1600, 6400, 25600):
            X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
            y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ beta))).astype(float)
            found = fenchel.infer(BernoulliLogit("exact"), Features(X), y, tol=1e-12).evidence_bounds()
            print(f"{d:54} {n:6} {found.width:12.3e} {found.width * n / d**2:22.3f}")
            widths.setdefault(d, []).append((n, found.width))
    if picture is not None:
        _draw(widths, picture)


def _draw(widths: dict[int, list[tuple[int, float]]], picture: str) -> None:
    """The widths against N, and lines c d^2 / N."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.8))
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    typical = float(np.median([w * n / d**2 for d, each in widths.items() for n, w in each if n >= 40 * d]))
    for d, each in widths.items():
        n, width = np.array(each).T
        (line,) = ax.loglog(n, width, "o", label=f"{d} covariates")
        ax.loglog(n, typical * d**2 / n, "-", color=line.get_color(), lw=0.8)
    ax.set_xlabel("rows N")
    ax.set_ylabel("upper - lower, nats")
    ax.set_title(f"lines: {typical:.2g} d² / N", fontsize=10)
    ax.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("random", "hard", "settings", "prices", "regression", "germany", "wide"))
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--effort", default="fast")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--picture", help="a file for the picture of regression")
    chosen = parser.parse_args()
    if chosen.what in ("random", "hard"):
        random(chosen.what, chosen.problems, chosen.effort, chosen.first, chosen.processes)
    elif chosen.what == "regression":
        regression(chosen.picture)
    else:
        {"settings": settings, "prices": prices, "germany": germany, "wide": wide}[chosen.what]()
