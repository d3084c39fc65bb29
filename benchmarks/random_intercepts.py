"""Random intercepts against quadrature: the evidence at the true sd, and the sd that each evidence learns.

    OPENBLAS_NUM_THREADS=1 python benchmarks/random_intercepts.py [--groups 100] [--draws 4096] [--seed 0]

Groups g of n rows with one intercept each, u_g ~ N(0, sd^2), eta = level + u_g at a known level, or at an unknown one
with a normal prior, which makes all groups depend on each other:

    logistic   y_gi ~ Bernoulli(1 / (1 + e^-eta))         poisson   y_gi ~ Poisson(e^eta), mean 0.3

Given the level groups are independent, so log p(y) is a sum of integrals over one number, inside another if the level
is unknown; here by the trapezium on even grids, exact to ten digits, and sharing nothing with the library. Every
evidence is a fit of all groups together:

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

CASES = [("logistic", n, sd, 0.0) for n, sd in ((1, 3), (2, 2), (4, 2), (4, 4), (8, 2), (8, 4), (30, 3))]
CASES += [("poisson", 1, 1, 0.0), ("poisson", 4, 1, 0.0)]
CASES += [("logistic", 2, 2, 3.0), ("logistic", 8, 4, 3.0), ("poisson", 1, 1, 3.0)]
LEVEL = -1.0  # of the logistic rows: at 0 one row a group would say nothing of the sd
RATE = 0.3  # mean count
SEARCH = (0.05, 20.0)  # the sds searched
TOL = 1e-10

Evidence = Callable[[float], float]


@dataclass(frozen=True)
class Data:
    """Targets (groups, n), the level of eta (its prior mean), the sd they were drawn with, and the level's prior sd."""

    kind: str
    y: np.ndarray
    level: float
    sd: float
    spread: float = 0.0

    @classmethod
    def drawn(cls, kind: str, n: int, sd: float, spread: float, groups: int, rng: np.random.Generator) -> Data:
        level = LEVEL if kind == "logistic" else np.log(RATE) - sd**2 / 2
        eta = level + sd * rng.standard_normal((groups, 1))
        if kind == "logistic":
            y = rng.random((groups, n)) < 1 / (1 + np.exp(-eta))
        else:
            y = rng.poisson(np.exp(eta), (groups, n))
        return cls(kind, np.asarray(y, dtype=float), float(level), sd, spread)

    def truth(self, sd: float, points: int = 1201, reach: float = 12.0) -> float:
        """log p(y) by quadrature, once for each total of a group and each level."""
        u = np.linspace(-reach, reach, points)
        total, times = np.unique(self.y.sum(axis=1), return_counts=True)
        levels = np.linspace(-6.0, 6.0, 481) if self.spread else np.zeros(1)  # in prior sds
        each = []
        for level in self.level + self.spread * levels:
            eta = level + sd * u
            one = np.logaddexp(0.0, eta) if self.kind == "logistic" else np.exp(eta)
            log_p = total[:, None] * eta - self.y.shape[1] * one - u**2 / 2
            each.append(times @ log_sum(log_p + np.log(u[1] - u[0]) - 0.5 * np.log(2 * np.pi)))
        constant = 0.0 if self.kind == "logistic" else float(gammaln(self.y + 1).sum())
        if not self.spread:
            return float(each[0]) - constant
        prior = -(levels**2) / 2 + np.log(levels[1] - levels[0]) - 0.5 * np.log(2 * np.pi)
        return float(log_sum(np.array(each) + prior)) - constant

    def model(self, bound: str = "exact") -> Likelihood:
        return BernoulliLogit(bound) if self.kind == "logistic" else Poisson()

    def prior(self, sd: float) -> Features:
        groups, n = self.y.shape
        design, variance = np.kron(np.eye(groups), np.ones((n, 1))), np.full(groups, sd**2)
        if self.spread:
            design = np.hstack([design, np.ones((groups * n, 1))])
            variance = np.append(variance, self.spread**2)
        return Features(design, variance=variance, offset=self.level)

    def fit(self, sd: float) -> Solution:
        sol = fenchel.infer(self.model(), self.prior(sd), self.y.ravel(), tol=TOL)
        if not sol.converged:
            raise SystemExit(f"{self.kind} at sd {sd:g} did not converge: {sol.status}")
        return sol

    def laplace(self, sd: float) -> float:
        return float(laplace(self.model("log-sum"), self.prior(sd), self.y.ravel(), tol=TOL).log_evidence)


def log_sum(x: np.ndarray) -> np.ndarray:
    """log sum exp over the last axis."""
    top = x.max(axis=-1)
    return np.asarray(top + np.log(np.exp(x - top[..., None]).sum(axis=-1)))


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
    for kind, n, sd, spread in CASES:
        data = Data.drawn(kind, n, sd, spread, args.groups, np.random.default_rng(args.seed))
        truth, learned = data.truth(sd), best(data.truth)
        drawn = data.fit(sd).importance(args.draws)
        print(f"\n{kind}, {n} rows a group, sd {sd:g}{', level unknown' if spread else ''}: log p(y) = {truth:.4f}")
        print(
            f"  quadrature {learned:>19.4f}   "
            f"(importance: se {drawn.log_evidence_se / args.groups:.5f} a group, k-hat {drawn.k_hat:.2f})"
        )
        for name, evidence in evidences(data, args.draws).items():
            error, there = (evidence(sd) - truth) / args.groups, best(evidence)
            edge = " (at the edge)" if not 1.01 * SEARCH[0] < there < 0.99 * SEARCH[1] else ""
            print(f"  {name:<11}{error:>+10.5f}{there:>10.4f}{100 * (there / learned - 1):>+8.1f} %{edge}", flush=True)


if __name__ == "__main__":
    main()
