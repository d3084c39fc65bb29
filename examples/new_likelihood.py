"""A likelihood of your own: waiting times, y ~ Exponential with rate exp(-eta), defined in a script.

    -log p(y|eta) = eta + y e^{-eta}        c_h = 1,  a_h = -1,  phi(s) = y e^s

This is the whole derivation. ``ExponentialLikelihood`` covers every -log p of the form c_h eta + c e^{a_h eta} + const.
Everything else follows: both solvers, every prior, the certificate, estimators, prediction and leave-one-out. For
another density subclass ``Likelihood`` and give ``log_density`` and ``derivatives``.

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
    support = "positive"

    def check(self, y):
        bad = y <= 0.0  # NaN passes: it means unobserved
        if bad.any():
            raise problem(self.name, f"y{first_value(bad, y)} is not a duration", "numbers above 0, or NaN")
        return {"y": np.where(np.isnan(y), 1.0, y)}

    def linear(self, rows):  # c_h
        return 1.0 + 0.0 * rows["y"]

    def rate(self, rows):  # c
        return rows["y"]

    # what is known in closed form; without it the density is integrated
    def mean_at(self, eta):
        return np.exp(eta)

    def variance_at(self, eta):
        return np.exp(2 * eta)

    def cdf_inside(self, x, eta):
        return -np.expm1(-x * np.exp(-eta))

    def draw(self, eta, rng):
        return rng.exponential(np.exp(eta))

    @classmethod
    def example(cls, rng, n):
        return cls(), rng.exponential(np.exp(rng.normal(size=n)))


def main():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 120)
    truth = np.sin(x) + 0.5
    y = rng.exponential(np.exp(truth))
    seen = np.r_[:40, 50:120]
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
    model = fenchel.GaussianProcessRegressor(likelihood=WaitingTime()).fit(x[seen, None], y[seen])
    low, middle, high = model.predict_quantiles(x[45:46, None], [0.1, 0.5, 0.9])[0]
    print(f"  a Gaussian process learned from it waits {middle:.2f} at x = {x[45]:.2f}, {low:.2f} to {high:.2f}")
    return sol, paper


if __name__ == "__main__":
    main()
