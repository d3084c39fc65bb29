"""Coal-mining disasters: a smooth rate for Britain, 1851 to 1962, by a random walk of second order.

The model is y_t ~ Poisson(e^eta_t), where eta is a straight line in time plus the walk. The sd of the walk is learned
by maximising the evidence with its gradient.

    python examples/coal_disasters.py [picture.png]
"""

import sys

import numpy as np
from scipy.optimize import minimize

import fenchel
from fenchel import gmrf
from fenchel.datasets import load_coal
from fenchel.likelihoods import Poisson


def learn(field, likelihood, y):
    """Maximise the evidence over theta; each fit starts from the last. Returns the solution and theta."""
    last = None

    def negative(theta):
        nonlocal last
        last = fenchel.infer(likelihood, field.at(theta), y, tol=1e-10, start=last)
        return -last.elbo, -field.gradient(last, theta)

    best = minimize(negative, field.theta, jac=True, bounds=field.bounds, method="L-BFGS-B")
    return fenchel.infer(likelihood, field.at(best.x), y, tol=1e-10), best.x


def main(picture=None):
    coal = load_coal()
    n = coal.year.size
    field = gmrf.stack([(gmrf.rw2(n, precision=100.0), np.arange(n))], fixed=coal.year)
    sol, theta = learn(field, Poisson(), coal.count)
    print(sol.summary())
    print(f"\n  sd of a step of the walk {np.exp(theta[0]):.4f}; leave-one-out elpd {sol.loo().elpd:.1f}")
    if picture:
        from matplotlib.figure import Figure

        mean, sd = sol.posterior.mean, np.sqrt(sol.posterior.variance)
        figure = Figure(figsize=(8, 4), layout="constrained")
        ax = figure.subplots()
        ax.bar(coal.year, coal.count, color="0.8", width=0.9, label="disasters")
        band = np.exp(mean - 1.96 * sd), np.exp(mean + 1.96 * sd)
        ax.fill_between(coal.year, *band, color="#56B4E9", alpha=0.5, label="95 % band of the rate")
        ax.plot(coal.year, np.exp(mean), color="#0072B2", label="posterior median rate")
        ax.set(xlabel="year", ylabel="disasters a year")
        ax.legend(frameon=False)
        figure.savefig(picture, dpi=150)
    return sol


if __name__ == "__main__":
    main(*sys.argv[1:2])
