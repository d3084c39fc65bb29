"""Sudden infant deaths in North Carolina, 1974-78: a BYM2 map with two counties that have no neighbours.

The model is y_i ~ Poisson(E_i e^eta_i), where eta_i = level + (sqrt(phi) u_i + sqrt(1 - phi) v_i) / sqrt(k). Here u is
spatial, v is independent, and k and phi are learned.

    python examples/infant_deaths.py [picture.png]
"""

import sys

import numpy as np
from scipy.optimize import minimize

import fenchel
from fenchel import gmrf
from fenchel.datasets import load_sids
from fenchel.likelihoods import Poisson


def main(picture=None):
    sids = load_sids()
    field = gmrf.stack([(gmrf.bym2(sids.adjacency, precision=5.0), np.arange(100))])
    likelihood, last = Poisson(exposure=sids.expected), None

    def negative(theta):
        nonlocal last
        last = fenchel.infer(likelihood, field.at(theta), sids.deaths, tol=1e-10, start=last)
        return -last.elbo, -field.gradient(last, theta)

    best = minimize(negative, field.theta, jac=True, bounds=[(-4, 1.5), (-4, 4)], method="L-BFGS-B").x
    sol = fenchel.infer(likelihood, field.at(best), sids.deaths, tol=1e-10)
    print(sol.summary())
    risk = likelihood.predictive_mean(sol.posterior.mean, sol.posterior.variance) / sids.expected
    alone = np.flatnonzero(np.asarray(sids.adjacency.sum(axis=1)).ravel() == 0)
    print(f"\n  sd {np.exp(best[0]):.2f}, structured share {1 / (1 + np.exp(-best[1])):.2f}")
    print("  without neighbours: " + ", ".join(f"{sids.county[i]} (risk {risk[i]:.2f})" for i in alone))
    for i in np.argsort(-risk)[:3]:
        print(
            f"  {sids.county[i]:<12}{sids.deaths[i]:4.0f} deaths, {sids.expected[i]:5.1f} expected, risk {risk[i]:.2f}"
        )
    if picture:
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 4), layout="constrained")
        ax = figure.subplots()
        i, j = np.nonzero(np.triu(sids.adjacency.toarray()))
        ax.plot(np.stack([sids.lon[i], sids.lon[j]]), np.stack([sids.lat[i], sids.lat[j]]), color="0.8", zorder=0)
        size = 15 + 6 * sids.expected
        shown = ax.scatter(sids.lon, sids.lat, c=risk, s=size, cmap="RdBu_r", norm=LogNorm(0.4, 2.5), edgecolor="0.3")
        bar = figure.colorbar(shown, label="posterior mean relative risk", ticks=[0.5, 0.67, 1, 1.5, 2])
        bar.ax.set_yticklabels(["0.5", "0.67", "1", "1.5", "2"])
        bar.ax.minorticks_off()
        ax.set(xlabel="longitude", ylabel="latitude", aspect=1.2, title="size: expected deaths; lines: neighbours")
        figure.savefig(picture, dpi=150)
    return sol


if __name__ == "__main__":
    main(*sys.argv[1:2])
