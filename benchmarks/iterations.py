"""Iterations to a relative gap of 1e-6: mirror Newton against the paper's feasible L-BFGS.

    python benchmarks/iterations.py

Problems: breast cancer (scikit-learn's copy, standardised, 569 x 30) with an RBF kernel at five settings; Poisson and
stochastic volatility Gaussian processes on 400 points. L-BFGS stops after 400 iterations.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.likelihoods import BernoulliLogit, Poisson, StochasticVolatility
from fenchel.priors import DenseCovariance

TOL, CAP = 1e-6, 400
# what the design notes measured with a prototype, for comparison: (log-sum or exact, tilted)
PROTOTYPE = {
    "breast cancer, variance 1, length 5": 6,
    "breast cancer, variance 9, length 5": 7,
    "breast cancer, variance 100, length 5": 9,
    "breast cancer, variance 1e4, length 10": 13,
    "Poisson GP, variance 1": 5,
    "Poisson GP, variance 9": 6,
    "Poisson GP, variance 25": 7,
    "stochastic volatility, phi 0.95, variance 1": 7,
    "stochastic volatility, phi 0.98, variance 4": 10,
    "stochastic volatility, phi 0.99, variance 0.5": 8,
}


def problems() -> list[tuple[str, list, DenseCovariance, np.ndarray]]:
    """Name, the likelihoods to try, prior and targets."""
    out = []
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for text, variance, length in (("1", 1, 5), ("9", 9, 5), ("100", 100, 5), ("1e4", 1e4, 10), ("1e6", 1e6, 3)):
        prior = DenseCovariance(variance * RBF(length)(X))
        both = [BernoulliLogit("log-sum"), BernoulliLogit("tilted")]
        out.append((f"breast cancer, variance {text}, length {length}", both, prior, y))
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 400)[:, None]
    for variance in (1, 9, 25):
        K = variance * RBF(1.0)(x)
        z = np.linalg.cholesky(K + 1e-8 * np.eye(400)) @ rng.normal(size=400)
        counts = rng.poisson(np.exp(np.minimum(z, 12.0)))
        out.append((f"Poisson GP, variance {variance}", [Poisson()], DenseCovariance(K), counts))
    lag = np.abs(np.subtract.outer(np.arange(400), np.arange(400)))
    for phi, variance in ((0.95, 1.0), (0.98, 4.0), (0.99, 0.5)):
        K = variance * phi**lag
        z = np.linalg.cholesky(K) @ rng.normal(size=400)
        returns = rng.normal(size=400) * np.exp(z / 2)
        name = f"stochastic volatility, phi {phi}, variance {variance:g}"
        out.append((name, [StochasticVolatility()], DenseCovariance(K), returns))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-lbfgs", action="store_true", help="skip the paper's solver, which takes minutes")
    skip = parser.parse_args().no_lbfgs
    print(f"{'problem':<46}{'bound':>9}{'Newton':>8}{'design':>8}{'rel. gap':>10}{'L-BFGS':>22}{'elbo':>14}")
    for name, likelihoods, prior, y in problems():
        for likelihood in likelihoods:
            sol = fenchel.infer(likelihood, prior, y, tol=TOL)
            if skip:
                rival = "-"
            else:
                other = fenchel.infer(likelihood, prior, y, method="lbfgs", tol=TOL, max_iter=CAP)
                gap = other.gap / max(1.0, abs(other.elbo))
                rival = str(other.n_iter) if other.converged else f"{other.n_iter}: gap {gap:.0e}"
            design = "" if likelihood.bound == "tilted" else str(PROTOTYPE.get(name, ""))
            newton = str(sol.n_iter) if sol.converged else f"({sol.n_iter})"
            relative = sol.gap / max(1.0, abs(sol.elbo))
            bound = "exact" if likelihood.bound == "none" else likelihood.bound
            print(f"{name:<46}{bound:>9}{newton:>8}{design:>8}{relative:>10.0e}{rival:>22}{sol.elbo:>14.4f}")


if __name__ == "__main__":
    main()
