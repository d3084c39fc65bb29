"""The evidence over two hyperparameters, and where learning ended.

Seen: a lower bound on the log evidence of British coal-mining disasters, 1851 to 1962, over the variance and the length
scale of a Gaussian process for the log rate. Every point of the grid is a fit of its own, with a relative gap below
1e-8; the star is where learning by gradients ended.

    python examples/evidence_surface.py [picture.png]
"""

import sys

from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel.datasets import load_coal
from fenchel.estimators import EvidenceDisplay, GaussianProcessPoissonRegressor


def main(picture=None):
    coal = load_coal()
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(10.0, (1.0, 200.0))
    model = GaussianProcessPoissonRegressor(kernel).fit(coal.year[:, None], coal.count)
    print(f"learned {model.kernel_}: elbo {model.elbo_:.4f} after {model.n_iter_} Newton iterations in all")
    display = EvidenceDisplay.from_estimator(
        model, span=20.0, resolution=21, xlabel="variance of the log rate", ylabel="length scale (years)"
    )
    below = model.elbo_ - display.values.max()
    print(f"the best of {display.values.size} grid points is {below:.4f} nats below")
    if picture:
        display.figure_.savefig(picture, dpi=150)
    return model, display


if __name__ == "__main__":
    main(*sys.argv[1:2])
