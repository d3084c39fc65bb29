"""Volatility of the pound against the dollar, 1981 to 1985: 945 daily returns, 35 of them exactly zero.

The model is y_t ~ N(0, e^eta_t), where eta_t is mu plus an autoregression of first order. Its precision matrix is
tridiagonal, so the time grows linearly with the number of days.

    python examples/stochastic_volatility.py [picture.png]
"""

import sys

import numpy as np
import scipy.sparse as sp

import fenchel
from fenchel.datasets import load_stochvol
from fenchel.likelihoods import StochasticVolatility
from fenchel.priors import SparsePrecision


def ar1(n, phi, variance):
    """Precision of a stationary AR(1) with autocorrelation phi and marginal variance ``variance``."""
    main = np.full(n, 1 + phi**2)
    main[[0, -1]] = 1.0
    off = np.full(n - 1, -phi)
    return sp.diags_array([off, main, off], offsets=[-1, 0, 1], format="csc") / (variance * (1 - phi**2))


def main(picture=None):
    returns = load_stochvol().returns
    y = returns - returns.mean()
    y[returns == 0.0] = 0.0  # a day without a change is kept as exactly that
    best, start = None, None
    for phi in (0.9, 0.95, 0.98, 0.99):  # fits on a small grid, each started from the last
        for variance in (0.25, 0.5, 1.0, 2.0):
            prior = SparsePrecision(ar1(y.size, phi, variance), mean=np.log(y.var()))
            start = fenchel.infer(StochasticVolatility(), prior, y, start=start)
            if best is None or start.elbo > best[0].elbo:
                best = start, phi, variance
    _, phi, variance = best
    prior = SparsePrecision(ar1(y.size, phi, variance), mean=np.log(y.var()))
    sol = fenchel.infer(StochasticVolatility(), prior, y, tol=1e-13)
    print(sol.summary())
    zeros = int((returns == 0).sum())
    print(f"\n  phi = {phi}, variance = {variance}: the largest elbo of 16; {zeros} returns are exactly zero")
    if picture:
        draw(picture, y, sol)
    return sol


def draw(path, y, sol):
    """The returns, and the volatility with its 95 % band."""
    from matplotlib.figure import Figure

    day, mean, sd = np.arange(y.size), sol.posterior.mean, np.sqrt(sol.posterior.variance)
    figure = Figure(figsize=(8, 5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.vlines(day, 0, y, color="0.4", linewidth=0.6)
    top.set_ylabel("return, percent")
    low, mid, high = (np.exp((mean + k * sd) / 2) for k in (-1.96, 0, 1.96))
    bottom.fill_between(day, low, high, color="#56B4E9", alpha=0.4, label="95 % band")
    bottom.plot(day, mid, color="#0072B2", label="posterior median")
    bottom.set(xlabel="trading day from October 1981", ylabel="volatility, percent a day", ylim=(0, None))
    bottom.legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:2])
