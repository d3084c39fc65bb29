"""Posterior means, standard deviations and evidence against long MCMC, on real data at fixed hyperparameters.

    python benchmarks/accuracy.py [--repeats 5]

The truth is stored in accuracy_reference.json; accuracy_reference.py made it and says how, and its checksum of the data
is compared before anything else. Per data set and method, with m, s the posterior means and sds of the method and
m*, s* those of MCMC:

    evidence    the method's log p(y) minus the reference; the bounds cannot be above it, Laplace can
    mean        average of |m - m*| / s*
    sd          average of |log s - log s*|, and the largest
    seconds     median of the fits by the solvers' own clock, which stops while a rival is judged

The row of MCMC has its own standard errors in the same units (averages, and the largest). Counts and volatilities need
no bound: their one row is exact. Who is closer, exact mode or Laplace, is computed from the numbers, and said only
where it would be the same had the reference been two standard errors lower or higher.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from accuracy_reference import STORE, Case, cases

import fenchel
from fenchel.likelihoods import BernoulliLogit, Poisson, StochasticVolatility
from fenchel.paper.rivals import laplace
from fenchel.priors import DenseCovariance
from fenchel.solvers import Solution

Fit = Callable[[DenseCovariance, np.ndarray], Solution]
TOL = 1e-10


def methods(case: Case) -> dict[str, Fit]:
    """The rows of a data set."""
    if case.kind == "bernoulli":
        models: dict[str, Any] = {bound: BernoulliLogit(bound) for bound in ("log-sum", "tilted", "exact")}
    else:
        models = {"exact": Poisson() if case.kind == "poisson" else StochasticVolatility()}
    fits: dict[str, Fit] = {
        name: lambda prior, y, model=model: fenchel.infer(model, prior, y, tol=TOL) for name, model in models.items()
    }
    plain = BernoulliLogit() if case.kind == "bernoulli" else models["exact"]  # Laplace asks it for log p alone
    return fits | {"Laplace": lambda prior, y: laplace(plain, prior, y, tol=TOL)}


@dataclass(frozen=True)
class Errors:
    """How far a method is from the reference: log evidence; means over s* and log sds of every row."""

    evidence: float
    means: np.ndarray
    sds: np.ndarray
    seconds: float

    def sizes(self) -> tuple[float, float, float]:
        """|evidence|, average |mean| and average |log sd|."""
        return abs(self.evidence), float(np.mean(np.abs(self.means))), float(np.mean(np.abs(self.sds)))

    def moved(self, by: Errors, times: float) -> Errors:
        """The errors, had the truth been lower by ``times`` its standard errors, in all rows together."""
        return Errors(
            self.evidence + times * by.evidence,
            self.means + times * by.means,
            self.sds + times * by.sds,
            self.seconds,
        )


def measured(fit: Fit, case: Case, truth: dict[str, Any], repeats: int) -> Errors:
    prior, times = DenseCovariance(case.K), []
    for _ in range(repeats):
        sol = fit(prior, case.y)
        times.append(sol.trace["seconds"][-1])
    if not sol.converged:
        raise SystemExit(f"{case.name} did not converge: {sol.status}")
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    return Errors(
        sol.log_evidence - truth["log_evidence"],
        (sol.posterior.mean - mean) / sd,
        0.5 * np.log(sol.posterior.variance) - np.log(sd),
        float(np.median(times)),
    )


def standard_errors(truth: dict[str, Any]) -> Errors:
    """Those of the reference, in the same units."""
    sd, mean_se, sd_se = (np.array(truth[key]) for key in ("sd", "mean_se", "sd_se"))
    return Errors(truth["log_evidence_se"], mean_se / sd, sd_se / sd, truth["seconds"])


def verdict(exact: Errors, rival: Errors, se: Errors) -> dict[str, str]:
    """Who is closer to MCMC; an answer must survive moving the reference by two standard errors either way."""
    told = []
    for times in (-2.0, 0.0, 2.0):
        pairs = zip(exact.moved(se, times).sizes(), rival.moved(se, times).sizes(), strict=True)
        told.append(["exact" if ours < theirs else "Laplace" for ours, theirs in pairs])
    names = ("evidence", "means", "sds")
    return {
        name: who[0] if len(set(who)) == 1 else "too close to tell"
        for name, who in zip(names, zip(*told, strict=True), strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    stored = json.loads(STORE.read_text())
    told = stored["settings"]
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, fenchel {fenchel.__version__}")
    print(
        f"reference: {told['chains']} chains of {told['steps']} steps; {told['particles']} annealed particles each way"
    )
    exceptions = []
    for case in cases():
        truth = stored["cases"][case.name]
        if truth["checksum"] != case.checksum:
            raise SystemExit(f"{case.name}: the data or the setting changed; run accuracy_reference.py again")
        print(f"\n{case.name}, {truth['rows']} rows: {case.setting}")
        print(f"  {'':<9}{'evidence':>11}{'mean':>10}{'sd':>10}{'sd, max':>10}{'seconds':>10}")
        table, se = {}, standard_errors(truth)
        for name, fit in methods(case).items():
            table[name] = e = measured(fit, case, truth, repeats)
            _, mean, sd = e.sizes()
            most = np.abs(e.sds).max()
            print(f"  {name:<9}{e.evidence:>+11.4f}{mean:>10.4f}{sd:>10.4f}{most:>10.4f}{e.seconds:>10.3f}")
        _, mean, sd = se.sizes()
        print(
            f"  {'MCMC, se':<9}{se.evidence:>11.4f}{mean:>10.4f}{sd:>10.4f}{se.sds.max():>10.4f}{se.seconds:>10.0f}"
            f"   log p(y) = {truth['log_evidence']:.3f}, ESS >= {truth['min_ess']}, R-hat <= {truth['max_rhat']:.4f}"
        )
        found = verdict(table["exact"], table["Laplace"], se)
        print("  closer to MCMC: " + ", ".join(f"{what} {who}" for what, who in found.items()), flush=True)
        exceptions += [f"{case.name}, {what}: {found[what]}" for what in ("sds", "evidence") if found[what] != "exact"]
    if exceptions:
        print("\nExact mode is closer than Laplace in sds and in evidence except:\n  " + "\n  ".join(exceptions))
    else:
        print("\nExact mode is closer than Laplace in sds and in evidence on every data set.")


if __name__ == "__main__":
    main()
