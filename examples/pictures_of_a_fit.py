"""The pictures that a fitted model draws of itself: made counts of visits to fifteen clinics, by dose and sex.

Seen in the picture: what a dose does to the mean for each sex, with the rows beneath; what the model makes beside the
data; where rows lie in their predictions; residuals in order, against fitted values and by clinic; shares of variance.
The data vary more than Poisson counts do, and the pictures show where one sees that.

    python examples/pictures_of_a_fit.py [picture.png]
"""

import sys

import numpy as np
import pandas as pd

import fenchel


def visits(n=300, clinics=15, seed=0):
    """Rows of clinics; counts with a gamma factor of variance 1/2 about their mean."""
    rng = np.random.default_rng(seed)
    dose, clinic = rng.uniform(0.0, 2.0, n).round(2), rng.integers(0, clinics, n)
    data = pd.DataFrame({"dose": dose, "clinic": clinic, "sex": rng.choice(["f", "m"], n)})
    eta = 0.5 + 0.6 * data["dose"] + rng.normal(0.0, 0.4, clinics)[data["clinic"]]
    return data.assign(visits=rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n)))


def main(picture=None):
    fit = fenchel.fit("visits ~ dose + sex + (1|clinic)", visits(), family="poisson", accuracy="fast")
    print(fit.check())
    if picture is not None:
        draw(fit, picture)
    return fit


def draw(fit, picture):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 12.0), layout="constrained")
    axes = figure.subplots(3, 3).ravel()
    fit.plot_effect("dose", by="sex", ax=axes[0])
    fit.plot(ax=axes[1])
    fit.plot("clinic", ax=axes[2])
    fit.plot_check(ax=axes[3])
    fit.plot_check("pit", ax=axes[4])
    fit.plot_residuals("quantiles", ax=axes[5])
    fit.plot_residuals("fitted", ax=axes[6])
    fit.plot_residuals("clinic", ax=axes[7])
    fit.plot_variance(ax=axes[8])
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
