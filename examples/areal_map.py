"""Map of cancer of the oral cavity: relative risk in the 544 districts of Germany, 1986-90.

The picture on the left shows the relative risk of each district. The model (BYM2) has a spatial part, which is similar
in neighbouring districts, and an independent part; the data determine the share of each. The picture on the right shows
the probability that the relative risk is above 1.

    python examples/areal_map.py [picture.png]
"""

import sys

import numpy as np

import fenchel
from fenchel.datasets import load_germany
from fenchel.plots import plot_map


def main(picture=None):
    germany = load_germany()
    data = {"district": np.arange(544), "cases": germany.Y, "expected": germany.E}
    graph = germany.adjacency  # noqa: F841  # the formula names it
    fit = fenchel.fit("cases ~ bym2(district, graph)", data, "poisson", exposure="expected")
    risk = fit.effects["district"]
    print(fit.hyperparameters.round(3).to_string())
    print(f"elbo {fit.elbo:.4f}, proved to within {fit.gap:.0e}")
    print(f"above 1 with probability 0.95: {(risk['p_above_1'] > 0.95).sum()} of 544 districts")
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 6), layout="constrained")
        left, right = figure.subplots(1, 2)
        plot_map(germany.polygons, risk["relative_risk"], left, label="relative risk", ratio=True)
        label = "probability that the risk is above 1"
        plot_map(germany.polygons, risk["p_above_1"], right, label=label, cmap="PuOr_r", limits=(0.0, 1.0))
        figure.savefig(picture, dpi=150)
    return fit


if __name__ == "__main__":
    main(*sys.argv[1:2])
