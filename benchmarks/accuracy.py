"""Posterior means, sds, quantiles and evidence against long MCMC, on real data at fixed hyperparameters.

    python benchmarks/accuracy.py [--repeats 5] [--draws 32768]

The truth is stored in accuracy_reference.json and accuracy_quantiles.json; accuracy_reference.py made them and says
how, and its checksum of the data is compared before anything else. Per data set and method, with m, s the posterior
means and sds of the method and m*, s* those of MCMC:

    evidence    the method's log p(y) minus the reference; the bounds cannot be above it, the others can
    mean        average of |m - m*| / s*
    sd          average of |log s - log s*|, and the largest
    quantile    average of |difference| / s* over the 2.5, 50 and 97.5 % quantiles, where they are stored
    seconds     median of the fits by the solvers' own clock, which stops while a rival is judged; of the corrections,
                from the fit of "exact" on, to the evidence and the sds: beside the fit's, not with it

The row of MCMC has its own standard errors in the same units (averages, and the largest). Counts and volatilities need
no bound: their one row is exact. "corrected" is ``sol.corrected()``, where the library has it, and "importance" is
``sol.importance(draws)`` with its own standard error beside it. Who is closer, the best of ours or a rival, is computed
from the numbers, and said only where it would be the same had the reference been two standard errors lower or higher.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from accuracy_reference import QUANTILES, STORE, Case, cases

import fenchel
from fenchel.likelihoods import BernoulliLogit, Poisson, StochasticVolatility
from fenchel.marginals import Marginals
from fenchel.paper.rivals import ep, laplace
from fenchel.priors import DenseCovariance
from fenchel.solvers import Solution

TOL = 1e-10
AIMS = (0.02, 0.010, 0.04)  # nats of evidence (or 3 standard errors), average |log sd|, average error of a quantile


@dataclass(frozen=True)
class Answer:
    """What a method says, how long it took, and a remark."""

    log_evidence: float
    eta: Marginals
    seconds: float
    remark: str = ""


Method = Callable[[], Answer]


def methods(case: Case, draws: int) -> dict[str, Method]:
    """The rows of a data set."""
    if case.kind == "bernoulli":
        models: dict[str, Any] = {bound: BernoulliLogit(bound) for bound in ("log-sum", "tilted", "exact")}
    else:
        models = {"exact": Poisson() if case.kind == "poisson" else StochasticVolatility()}
    prior, y = DenseCovariance(case.K), case.y
    plain = BernoulliLogit("log-sum") if case.kind == "bernoulli" else models["exact"]  # rivals ask it for log p alone

    def fit(model: Any) -> Solution:
        return fenchel.infer(model, prior, y, tol=TOL)

    rows: dict[str, Method] = {name: lambda model=model: fitted(case, fit(model)) for name, model in models.items()}
    rows["Laplace"] = lambda: fitted(case, laplace(plain, prior, y, tol=TOL))
    rows["EP"] = lambda: fitted(case, ep(plain, prior, y, tol=1e-8))
    sol = fit(models["exact"])
    rows["importance"] = lambda: corrected(lambda: sol.importance(draws))
    if hasattr(sol, "corrected"):
        rows["corrected"] = lambda: corrected(sol.corrected)
    return rows


def fitted(case: Case, sol: Solution) -> Answer:
    if not sol.converged:
        raise SystemExit(f"{case.name} did not converge: {sol.status}")
    return Answer(sol.log_evidence, sol.posterior, sol.trace["seconds"][-1])


def corrected(make: Callable[[], Any]) -> Answer:
    """An evidence and marginals made from a fit, on the clock."""
    began = time.perf_counter()
    found = make()
    value, _ = found.log_evidence, found.sd
    seconds = time.perf_counter() - began
    remark = f"se {found.log_evidence_se:.4f}"
    if hasattr(found, "k_hat"):
        remark += f", k-hat {found.k_hat:.2f}"
    return Answer(value, found, seconds, remark + ("" if found.trusted else ", not to be trusted"))


@dataclass(frozen=True)
class Errors:
    """How far a method is from the reference: log evidence; means over s*, log sds, quantiles over s* of every row."""

    evidence: float
    means: np.ndarray
    sds: np.ndarray
    seconds: float
    quantiles: np.ndarray | None = None

    def sizes(self) -> tuple[float, ...]:
        """|evidence|, average |mean| and average |log sd|; average |quantile| where it is known."""
        parts = [self.means, self.sds] + ([] if self.quantiles is None else [self.quantiles])
        return abs(self.evidence), *(float(np.mean(np.abs(part))) for part in parts)

    def moved(self, by: Errors, times: float) -> Errors:
        """The errors, had the truth been lower by ``times`` its standard errors, in all rows together."""
        known = self.quantiles is not None and by.quantiles is not None
        return Errors(
            self.evidence + times * by.evidence,
            self.means + times * by.means,
            self.sds + times * by.sds,
            self.seconds,
            self.quantiles + times * by.quantiles if known else None,
        )


def measured(method: Method, truth: dict[str, Any], repeats: int) -> tuple[Errors, str]:
    answers = [method() for _ in range(repeats)]
    answer, seconds = answers[-1], float(np.median([a.seconds for a in answers]))
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    quantiles = None
    if "quantile" in truth:
        quantiles = (answer.eta.quantile(truth["levels"]) - np.array(truth["quantile"])) / sd[:, None]
    errors = Errors(
        answer.log_evidence - truth["log_evidence"],
        (answer.eta.mean - mean) / sd,
        np.log(answer.eta.sd) - np.log(sd),
        seconds,
        quantiles,
    )
    return errors, answer.remark


def standard_errors(truth: dict[str, Any]) -> Errors:
    """Those of the reference, in the same units."""
    sd, mean_se, sd_se = (np.array(truth[key]) for key in ("sd", "mean_se", "sd_se"))
    quantiles = np.array(truth["quantile_se"]) / sd[:, None] if "quantile" in truth else None
    return Errors(truth["log_evidence_se"], mean_se / sd, sd_se / sd, truth["seconds"], quantiles)


def verdict(ours: Errors, theirs: Errors, se: Errors, names: tuple[str, str] = ("exact", "Laplace")) -> dict[str, str]:
    """Who is closer to MCMC; an answer must survive moving the reference by two standard errors either way."""
    told = []
    for times in (-2.0, 0.0, 2.0):
        pairs = zip(ours.moved(se, times).sizes(), theirs.moved(se, times).sizes(), strict=True)
        told.append([names[0] if a < b else names[1] for a, b in pairs])
    return {
        what: who[0] if len(set(who)) == 1 else "too close to tell"
        for what, who in zip(("evidence", "means", "sds", "quantiles"), zip(*told, strict=True), strict=False)
    }


def missed(errors: Errors, se: Errors) -> list[str]:
    """The aims that are not met."""
    evidence, _, sd, *quantile = errors.sizes()
    sizes = {
        "evidence": (evidence, max(AIMS[0], 3 * se.evidence)),
        "sds": (sd, AIMS[1]),
        "quantiles": (quantile[0] if quantile else 0.0, AIMS[2]),
    }
    return [f"{what} {size:.4f}, not {aim:.4f}" for what, (size, aim) in sizes.items() if size > aim]


def line(name: str, e: Errors, remark: str = "", sign: str = "+") -> str:
    _, mean, sd, *quantile = e.sizes()
    told = f"{quantile[0]:>10.4f}" if quantile else f"{'':>10}"
    most = np.abs(e.sds).max()
    return f"  {name:<11}{e.evidence:>{sign}11.4f}{mean:>9.4f}{sd:>9.4f}{most:>9.4f}{told}{e.seconds:>9.3f}   {remark}"


def truth_of(case: Case, stored: dict[str, Any], quantiles: dict[str, Any]) -> dict[str, Any]:
    """What is stored of a case, its quantiles among it."""
    truth, more = stored["cases"][case.name], quantiles["cases"].get(case.name, {})
    if any(found["checksum"] != case.checksum for found in (truth, more) if found):
        raise SystemExit(f"{case.name}: the data or the setting changed; run accuracy_reference.py again")
    return {**{key: more[key] for key in ("levels", "quantile", "quantile_se") if more}, **truth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--draws", type=int, default=32768)
    args = parser.parse_args()
    stored, quantiles = json.loads(STORE.read_text()), json.loads(QUANTILES.read_text())
    told = stored["settings"]
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, fenchel {fenchel.__version__}")
    print(
        f"reference: {told['chains']} chains of {told['steps']} steps; {told['particles']} annealed particles each way"
    )
    exceptions = []
    for case in cases():
        truth = truth_of(case, stored, quantiles)
        print(f"\n{case.name}, {truth['rows']} rows: {case.setting}")
        print(f"  {'':<11}{'evidence':>11}{'mean':>9}{'sd':>9}{'sd, max':>9}{'quantile':>10}{'seconds':>9}")
        table, se = {}, standard_errors(truth)
        for name, method in methods(case, args.draws).items():
            table[name], remark = measured(method, truth, args.repeats)
            print(line(name, table[name], remark))
        there = f"log p(y) = {truth['log_evidence']:.3f}, ESS >= {truth['min_ess']}, R-hat <= {truth['max_rhat']:.4f}"
        print(line("MCMC, se", se, there, sign=""))
        ours = "corrected" if "corrected" in table else "exact"
        for rival in ("Laplace", "EP"):
            found = verdict(table[ours], table[rival], se, (ours, rival))
            print(
                f"  closer to MCMC, {ours} or {rival}: " + ", ".join(f"{k} {v}" for k, v in found.items()), flush=True
            )
            exceptions += [f"{case.name}, {what}: {found[what]}" for what in ("sds", "evidence") if found[what] != ours]
        if ours == "corrected":
            exceptions += [f"{case.name}: {words}" for words in missed(table[ours], se)]
    aims = f" and is within {AIMS[0]} nats (or 3 se), {AIMS[1]} in log sds and {AIMS[2]} in quantiles"
    aims = aims if ours == "corrected" else ""
    print(f"\nThe {ours} row is closer than Laplace and EP in sds and in evidence{aims}", end="")
    print(" except:\n  " + "\n  ".join(exceptions) if exceptions else " on every data set.")


if __name__ == "__main__":
    main()
