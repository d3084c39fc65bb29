"""Skewed posteriors: few binary observations under a wide Gaussian process, corrected and by MCMC.

The script compares the marginals of the best Gaussian q with those of ``corrected()``, which uses the likelihoods
themselves. Elliptical slice sampling gives the reference.

    python examples/skewed_marginals.py [picture.png]
"""

import sys

import numpy as np
from scipy.stats import norm

import fenchel
from fenchel.likelihoods import BernoulliLogit
from fenchel.priors import DenseCovariance


def slice_sampled(K, log_likelihood, sweeps, rng):
    """Draws of eta ~ N(0, K) times the likelihood (sweeps, N), each along an ellipse through the last one."""
    root, eta, out = np.linalg.cholesky(K), np.zeros(len(K)), np.empty((sweeps, len(K)))
    now = log_likelihood(eta)
    for i in range(sweeps):
        other, level = root @ rng.standard_normal(len(K)), now + np.log(rng.random())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while (now := log_likelihood(new := eta * np.cos(angle) + other * np.sin(angle))) <= level:
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        out[i] = eta = new
    return out


def main(picture=None, sweeps=60_000):
    x = np.linspace(0, 10, 24)
    y = (np.sin(x) > 0).astype(float)
    y[[3, 17]] = 1 - y[[3, 17]]  # two labels that contradict the others
    K = 25.0 * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2) + 1e-6 * np.eye(24)
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y)
    found = sol.corrected()
    sign = 1 - 2 * y
    draws = slice_sampled(K, lambda eta: -np.logaddexp(0, sign * eta).sum(), sweeps, np.random.default_rng(0))
    ends = np.quantile(draws, [0.025, 0.975], axis=0).T
    sd = draws.std(axis=0)
    errors = {
        name: float(np.abs((marginals.interval(0.95) - ends) / sd[:, None]).mean())
        for name, marginals in (("q", sol.posterior), ("corrected", found))
    }
    better = f"{found.log_evidence:.3f} +- {found.log_evidence_se:.3f}"
    print(f"log evidence: at least {sol.elbo:.3f} (elbo), corrected {better}")
    print(f"ends of 95 % intervals, off by: q {errors['q']:.3f} sd, corrected {errors['corrected']:.3f} sd")
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for ax, n in zip(figure.subplots(1, 2), (np.argmin(found.skewness), np.argmax(found.skewness)), strict=True):
            at = np.linspace(*np.quantile(draws[:, n], [0.0005, 0.9995]), 300)
            ax.hist(draws[:, n], bins=80, density=True, color="0.85", label="MCMC")
            normal = norm.pdf(at, sol.posterior.mean[n], sol.posterior.sd[n])
            ax.plot(at, normal, color="#D55E00", linestyle="--", label="q, the best Gaussian")
            ax.plot(at, found.density(at[None, :])[n], color="#0072B2", label="corrected")
            ax.set(xlabel=f"eta at x = {x[n]:.1f}, where y = {y[n]:.0f}", yticks=[], xlim=(at[0], at[-1]))
        ax.legend(frameon=False)
        figure.savefig(picture, dpi=150)
    return sol, found, errors


if __name__ == "__main__":
    main(*sys.argv[1:2])
