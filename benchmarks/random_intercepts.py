"""Random intercepts against quadrature: the evidence at the true sd, and the sd that each evidence learns.

    OPENBLAS_NUM_THREADS=1 python benchmarks/random_intercepts.py [--groups 100] [--draws 4096] [--seed 0]

Groups g of n rows with one intercept each, u_g ~ N(0, sd^2), eta = level + u_g at a known level:

    logistic   y_gi ~ Bernoulli(1 / (1 + e^-eta))         poisson   y_gi ~ Poisson(e^eta), mean 0.3

Groups are independent, so log p(y) is a sum of integrals over one number, here by the trapezium on an even grid, exact
to twelve digits; it shares nothing with the library. Every evidence is a fit of all groups together:

    elbo         the exact mode's, a bound
    Laplace      as lme4, glmmTMB and TMB have it
    importance   Pareto-smoothed, from the q of the elbo, with its standard error
    corrected    ``sol.corrected()``, where the library has it

In nats a group, less the truth. Then the sd at which each is largest, found by a search over log sd, beside the one at
which the quadrature is. With one row a group that is one iid effect for every row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

import fenchel
from fenchel.likelihoods import BernoulliLogit, Likelihood, Poisson
from fenchel.paper.rivals import laplace
from fenchel.priors import Features
from fenchel.solvers import Solution

CASES = [("logistic", n, sd) for n, sd in ((1, 3), (2, 2), (4, 2), (4, 4), (8, 2), (8, 4), (30, 3))]
CASES += [("poisson", 1, 1), ("poisson", 4, 1)]
LEVEL = -1.0  # of the logistic rows: at 0 one row a group would say nothing of the sd
RATE = 0.3  # mean count
SEARCH = (0.05, 20.0)  # the sds searched
TOL = 1e-10

Evidence = Callable[[float], float]


@dataclass(frozen=True)
class Data:
    """Targets (groups, n), the level of eta and the sd they were drawn with."""

    kind: str
    y: np.ndarray
    level: float
    sd: float

    @classmethod
    def drawn(cls, kind: str, n: int, sd: float, groups: int, rng: np.random.Generator) -> Data:
        level = LEVEL if kind == "logistic" else np.log(RATE) - sd**2 / 2
        eta = level + sd * rng.standard_normal((groups, 1))
        draw = (
            rng.random((groups, n)) < 1 / (1 + np.exp(-eta))
            if kind == "logistic"
            else rng.poisson(np.exp(eta), (groups, n))
        )
        return cls(kind, np.asarray(draw, dtype=float), float(level), sd)

    def truth(self, sd: float, points: int = 4001, reach: float = 12.0) -> float:
        """log p(y) by quadrature, once for each total of a group."""
        u = np.linspace(-reach, reach, points)
        eta = self.level + sd * u
        total, times = np.unique(self.y.sum(axis=1), return_counts=True)
        n = self.y.shape[1]
        one = np.logaddexp(0.0, eta) if self.kind == "logistic" else np.exp(eta)
        log_p = total[:, None] * eta - n * one - u**2 / 2 + np.log(u[1] - u[0]) - 0.5 * np.log(2 * np.pi)
        top = log_p.max(axis=1)
        each = top + np.log(np.exp(log_p - top[:, None]).sum(axis=1))
        constant = 0.0 if self.kind == "logistic" else float(gammaln(self.y + 1).sum())
        return float(times @ each) - constant

    def model(self, bound: str = "exact") -> Likelihood:
        return BernoulliLogit(bound) if self.kind == "logistic" else Poisson()

    def prior(self, sd: float) -> Features:
        groups, n = self.y.shape
        return Features(np.kron(np.eye(groups), np.ones((n, 1))), variance=sd**2, offset=self.level)

    def fit(self, sd: float) -> Solution:
        sol = fenchel.infer(self.model(), self.prior(sd), self.y.ravel(), tol=TOL)
        if not sol.converged:
            raise SystemExit(f"{self.kind} at sd {sd:g} did not converge: {sol.status}")
        return sol

    def laplace(self, sd: float) -> float:
        return float(laplace(self.model("log-sum"), self.prior(sd), self.y.ravel(), tol=TOL).log_evidence)


def evidences(data: Data, draws: int) -> dict[str, Evidence]:
    """log p(y) by each method, as a function of the sd."""
    out: dict[str, Evidence] = {
        "elbo": lambda sd: data.fit(sd).elbo,
        "Laplace": data.laplace,
        "importance": lambda sd: data.fit(sd).importance(draws).log_evidence,
    }
    if hasattr(Solution, "corrected"):
        out["corrected"] = lambda sd: data.fit(sd).corrected().log_evidence
    return out


def best(evidence: Evidence) -> float:
    """The sd at which an evidence is largest."""
    found = minimize_scalar(
        lambda t: -evidence(float(np.exp(t))), bounds=np.log(SEARCH), method="bounded", options={"xatol": 1e-4}
    )
    return float(np.exp(found.x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--draws", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{args.groups} groups; errors in nats a group; sds learned, and by quadrature")
    for kind, n, sd in CASES:
        data = Data.drawn(kind, n, sd, args.groups, np.random.default_rng(args.seed))
        truth, learned = data.truth(sd), best(data.truth)
        drawn = data.fit(sd).importance(args.draws)
        print(
            f"\n{kind}, {n} rows a group, sd {sd:g}: log p(y) = {truth:.4f}, sd by quadrature {learned:.4f}; "
            f"importance: se {drawn.log_evidence_se / args.groups:.5f} a group, k-hat {drawn.k_hat:.2f}"
        )
        for name, evidence in evidences(data, args.draws).items():
            error, there = (evidence(sd) - truth) / args.groups, best(evidence)
            edge = " (at the edge)" if not 1.01 * SEARCH[0] < there < 0.99 * SEARCH[1] else ""
            print(f"  {name:<11}{error:>+10.5f}{there:>10.4f}{100 * (there / learned - 1):>+8.1f} %{edge}", flush=True)


if __name__ == "__main__":
    main()
