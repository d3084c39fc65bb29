"""A likelihood of your own, in a script: waiting times, y ~ Exponential with rate exp(-eta).

    -log p(y|eta) = eta + y e^{-eta}        c_h = 1,  a_h = -1,  phi(s) = y e^s

That is the whole derivation: ``ExponentialLikelihood`` covers every -log p of the form c_h eta + c e^{a_h eta} + const,
and everything else (both solvers, every prior, the certificate, prediction, leave-one-out) follows.

    python examples/new_likelihood.py
"""

import numpy as np

import fenchel
from fenchel.checks import first_value, problem
from fenchel.likelihoods import ExponentialLikelihood
from fenchel.priors import DenseCovariance


class WaitingTime(ExponentialLikelihood):
    """Positive durations with mean exp(eta)."""

    sign = -1.0

    def check(self, y):
        bad = y <= 0.0  # NaN passes: it means unobserved
        if bad.any():
            raise problem(self.name, f"y{first_value(bad, y)} is not a duration", "numbers above 0, or NaN")
        return {"y": np.where(np.isnan(y), 1.0, y)}

    def linear(self, rows):  # c_h
        return 1.0 + 0.0 * rows["y"]

    def rate(self, rows):  # c
        return rows["y"]

    def constant(self, rows):
        return 0.0 * rows["y"]

    def start(self, rows, shrink):  # tau = 1, so that alpha = 1 - tau = 0
        return -np.log(rows["y"])[:, None]

    def log_density(self, eta, rows):
        return -eta - rows["y"][:, None] * np.exp(-eta)

    def landmarks(self, rows):  # where the likelihood peaks, for the quadrature of predictive densities
        return [np.log(rows["y"])]

    def predictive_mean(self, h, rho, rng=None):
        return np.exp(h + rho / 2)

    def predictive_variance(self, h, rho, rng=None):
        return 2 * np.exp(2 * h + 2 * rho) - np.exp(2 * h + rho)

    @classmethod
    def example(cls, rng, n):
        return cls(), rng.exponential(np.exp(rng.normal(size=n)))


def main():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 120)
    truth = np.sin(x) + 0.5
    y = rng.exponential(np.exp(truth))
    y[40:50] = np.nan  # a gap in the record: predicted as part of the fit

    K = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2 / 1.2**2)
    prior = DenseCovariance(K, mean=0.5)
    sol = fenchel.infer(WaitingTime(), prior, y)
    paper = fenchel.infer(WaitingTime(), prior, y, method="lbfgs", tol=1e-6, max_iter=1000)
    print(sol.summary())
    inside = np.abs(sol.posterior.mean - truth) < 1.96 * np.sqrt(sol.posterior.variance)
    print(f"\n  true log-mean inside the 95 % band at {inside.mean():.0%} of the points")
    print(
        f"  leave-one-out elpd {sol.loo().elpd:.3f}; the paper's L-BFGS agrees to {abs(paper.elbo - sol.elbo):.1e} nats"
    )
    return sol, paper


if __name__ == "__main__":
    main()
