"""Sudden infant deaths from west to east: counts in North Carolina with a Gaussian process for the log rate.

The picture shows the rate at each longitude with its 95 % band. Each dot is a county; larger dots have more births,
which are the exposure. The rates of small counties vary much by chance, and the model gives them little weight.

    python examples/gp_counts.py [picture.png]
"""

import sys

import numpy as np
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from fenchel.datasets import load_sids
from fenchel.estimators import GaussianProcessPoissonRegressor, plot_partial_effect


def main(picture=None):
    sids = load_sids()
    x, births = sids.lon[:, None], sids.births / 1000
    # the white noise is what differs between counties at the same longitude
    kernel = 0.3 * Matern(2.0, nu=2.5, length_scale_bounds=(0.2, 20.0)) + WhiteKernel(0.1)
    model = GaussianProcessPoissonRegressor(kernel).fit(x, sids.deaths, exposure=births)
    print(f"{model.kernel_}: elbo {model.elbo_:.4f}, proved to within {model.gap_:.0e}")
    places = np.array([[-82.0], [-77.0]])
    for place, (low, middle, high) in zip(places[:, 0], model.predict_rate(places), strict=True):
        print(f"  at {place:.0f} degrees: {middle:.2f} deaths per 1000 births ({low:.2f} to {high:.2f})")
    if picture:
        ax = plot_partial_effect(
            model,
            x,
            sids.deaths,
            exposure=births,
            points_label="county, area by births",
            xlabel="longitude (degrees)",
            ylabel="deaths per 1000 births",
        )
        ax.figure.savefig(picture, dpi=150)
    return model


if __name__ == "__main__":
    main(*sys.argv[1:2])
