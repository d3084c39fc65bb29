"""Corrections of sparse fits: against an exact filter and importance sampling, and what a million latents cost.

    python benchmarks/corrections_sparse.py [--quick]

A volatility series has one latent a day in a Markov chain, so that log p(y) can be had without any of this library: a
forward filter on a grid of the latent, exact but for its grid (``filtered``). Importance sampling from q is no witness
of a long series: the variance of its log weights grows with the length, and k-hat says so. Germany has no such filter
and is held against the draws. Times are beside the fit's; peak memory is above what the process held before.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sparse import Peak, chain, lattice

import fenchel
from fenchel import gmrf
from fenchel.datasets import load_germany
from fenchel.likelihoods import Poisson, StochasticVolatility
from fenchel.priors import SparsePrecision

PHI, VARIANCE = 0.98, 1.0


def filtered(y: np.ndarray, phi: float, variance: float, nodes: int = 400, reach: float = 8.0) -> float:
    """log p(y) of y_t ~ N(0, e^{z_t}), z an AR(1) of this variance: sums over an even grid, a day at a time."""
    z = np.sqrt(variance) * np.linspace(-reach, reach, nodes)
    step, noise = z[1] - z[0], variance * (1 - phi**2)
    move = np.exp(-0.5 * (z[:, None] - phi * z[None, :]) ** 2 / noise) * step / np.sqrt(2 * np.pi * noise)
    belief = np.exp(-0.5 * z**2 / variance) * step / np.sqrt(2 * np.pi * variance)
    scale, total = np.exp(-z), 0.0
    for value in y:
        belief *= np.exp(-0.5 * (value * value * scale + z)) / np.sqrt(2 * np.pi)
        mass = belief.sum()
        total += np.log(mass)
        belief = move @ (belief / mass)
    return float(total)


def series(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = SparsePrecision(chain(n, PHI, VARIANCE)).factor.sample(rng.standard_normal(n))
    return rng.normal(size=n) * np.exp(z / 2)


def timed(name: str, sol: fenchel.Solution, seconds: float) -> object:
    """The correction of a fit, with its times and its memory."""
    with Peak() as peak:
        began = time.perf_counter()
        found = sol.corrected()
        value = found.log_evidence
        evidence = time.perf_counter() - began
        _ = found.sd
        marginals = time.perf_counter() - began - evidence
    print(f"{name}: fit {seconds:.2f} s; evidence {evidence:.2f} s, sds {marginals:.2f} s, peak {peak.mib:.0f} MiB")
    print(
        f"  elbo {sol.elbo:.3f}, corrected {value:.3f} +- {found.log_evidence_se:.2g}; {found.method}: {found.status}"
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    quick = parser.parse_args().quick
    fenchel.infer(
        StochasticVolatility(), SparsePrecision(chain(3000, PHI, VARIANCE)), series(3000)
    ).corrected()  # compile
    for n in (2_000, 10_000) if quick else (2_000, 10_000, 100_000):
        y = series(n)
        began = time.perf_counter()
        sol = fenchel.infer(StochasticVolatility(), SparsePrecision(chain(n, PHI, VARIANCE)), y, tol=1e-8)
        found = timed(f"volatility, {n} days", sol, time.perf_counter() - began)
        truth = filtered(y, PHI, VARIANCE)
        print(f"  the filter {truth:.3f}: elbo {sol.elbo - truth:+.3f}, corrected {found.log_evidence - truth:+.4f}")
        if n <= 10_000:
            drawn = sol.importance(1024)
            off, se = drawn.log_evidence - truth, drawn.log_evidence_se
            print(f"  importance {off:+.4f} +- {se:.2g}, k-hat {drawn.k_hat:.2f}")
    data = load_germany()
    field = gmrf.stack([(gmrf.bym(data.adjacency, 16.0, 250.0), np.arange(544))], fixed_variance=10.0)
    began = time.perf_counter()
    sol = fenchel.infer(Poisson(data.E), field.at(), data.Y, tol=1e-8)
    found = timed("Germany, 544 districts", sol, time.perf_counter() - began)
    drawn = sol.importance(8192)
    off = found.log_evidence - drawn.log_evidence
    print(f"  corrected less importance {off:+.4f}, whose se is {drawn.log_evidence_se:.2g}, k-hat {drawn.k_hat:.2f}")
    if quick:
        return
    rng = np.random.default_rng(0)
    for name, likelihood, Q, y in (
        ("volatility, a million days", StochasticVolatility(), chain(1_000_000, PHI, VARIANCE), series(1_000_000)),
        ("lattice 1000^2, Poisson", Poisson(), lattice(1000), rng.poisson(0.5, 1_000_000).astype(float)),
    ):
        began = time.perf_counter()
        with Peak() as peak:
            sol = fenchel.infer(likelihood, SparsePrecision(Q), y, tol=1e-6)
        timed(name, sol, time.perf_counter() - began)
        print(f"  the fit's own peak {peak.mib:.0f} MiB")


if __name__ == "__main__":
    main()
