"""Evidence over two hyperparameters: a grid of fits, and the point that learning found.

The picture shows a lower bound on the log evidence over the variance and the length scale of a Gaussian process for the
log rate of British coal-mining disasters, 1851 to 1962. Every point of the grid is a separate fit with a relative gap
below 1e-8. The star is the point at which learning by gradients ended.

    python examples/evidence_surface.py [picture.png]
"""

import sys

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel.datasets import load_coal
from fenchel.estimators import GaussianProcessPoissonRegressor
from fenchel.plots import plot_contours


def main(picture=None):
    coal = load_coal()
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(10.0, (1.0, 200.0))
    model = GaussianProcessPoissonRegressor(kernel).fit(coal.year[:, None], coal.count)
    print(f"learned {model.kernel_}: elbo {model.elbo_:.4f} after {model.n_iter_} Newton iterations in all")
    bounds = np.log([(1e-2, 1e2), (1.0, 200.0)])
    ends = np.clip(model.theta_[:, None] + np.log([1 / 20, 20]), *bounds.T[:, :, None])
    variance, length = (np.linspace(low, high, 21) for low, high in ends)
    elbo = np.array([[model.log_marginal_likelihood([v, s]) for v in variance] for s in length])
    print(f"the best of {elbo.size} grid points is {model.elbo_ - elbo.max():.4f} nats below")
    if picture:
        below = elbo - model.elbo_
        steps = [-200, -100, -50, -20, -10, -5, -2, -1, -0.5, 0]
        ax = plot_contours(
            np.exp(variance),
            np.exp(length),
            below,
            star=tuple(np.exp(model.theta_)),
            star_label="learned",
            xlabel="variance of the log rate",
            ylabel="length scale (years)",
            label=f"nats from the learned elbo, {model.elbo_:.2f}",
            log_x=True,
            log_y=True,
            cmap="viridis",
            levels=np.unique([np.floor(below.min()), *[s for s in steps if s > below.min()]]),
            points=False,
        )
        ax.figure.savefig(picture, dpi=150)
    return model, elbo


if __name__ == "__main__":
    main(*sys.argv[1:2])
