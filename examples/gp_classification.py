"""Gaussian process classification: fits with a certificate, and predictions at new points.

The script compares the bound of the paper with the tilted bound, and prints a table.

    python examples/gp_classification.py
"""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.datasets import load_pima
from fenchel.likelihoods import BernoulliLogit
from fenchel.priors import DenseCovariance


def main():
    data = load_pima()
    X = (data.X - data.X[data.train].mean(axis=0)) / data.X[data.train].std(axis=0)
    train, test = X[data.train], X[data.test]
    kernel = 4.0 * RBF(length_scale=3.0)
    prior = DenseCovariance(kernel(train))
    print(f"{'bound':>10}{'elbo':>12}{'gap':>11}{'iterations':>12}{'test log loss, bits':>21}")
    out = {}
    for bound in ("log-sum", "tilted"):
        likelihood = BernoulliLogit(bound)
        sol = fenchel.infer(likelihood, prior, data.y[data.train])
        mean, variance = sol.posterior.predict(cross=kernel(test, train), variance=kernel.diag(test))
        bits = -likelihood.predictive_log_density(data.y[data.test], mean, variance).mean() / np.log(2)
        print(f"{bound:>10}{sol.elbo:>12.4f}{sol.gap:>11.1e}{sol.n_iter:>12}{bits:>21.4f}")
        out[bound] = sol, bits
    return out


if __name__ == "__main__":
    main()
