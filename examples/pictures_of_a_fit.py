"""Plots of fitted models: effects, checks, residuals, shares of variance and survival, from simulated data.

The first nine panels are of counts of visits to fifteen clinics, by dose and sex. They show the effect of the dose for
each sex, with the data below it; coefficients and clinics; simulated data beside the data; the positions of rows in
their predictions (PIT); residuals in order, against fitted values and by clinic; and shares of variance. The counts
vary more than Poisson counts, and the panels show how this becomes visible. The last three panels show two
hyperparameters of a negative-binomial fit, survival with and without a drug, and the variogram of residuals of a model
with a field.

    python examples/pictures_of_a_fit.py [picture.png]
"""

import sys

import numpy as np
import pandas as pd

import fenchel


def visits(n=300, clinics=15, seed=0):
    """Simulated visits to clinics: Poisson counts whose mean is multiplied by a gamma variable with variance 1/2."""
    rng = np.random.default_rng(seed)
    dose, clinic = rng.uniform(0.0, 2.0, n).round(2), rng.integers(0, clinics, n)
    data = pd.DataFrame({"dose": dose, "clinic": clinic, "sex": rng.choice(["f", "m"], n)})
    eta = 0.5 + 0.6 * data["dose"] + rng.normal(0.0, 0.4, clinics)[data["clinic"]]
    return data.assign(visits=rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n)))


def durations(n=120, seed=0):
    """Simulated weeks until relapse, shorter without a drug. Durations of more than six weeks are censored."""
    rng = np.random.default_rng(seed)
    drug = rng.integers(0, 2, n)
    weeks = 3.0 * np.exp(0.8 * drug) * rng.weibull(1.5, n)
    return pd.DataFrame({"drug": drug, "weeks": np.minimum(weeks, 6.0), "seen": (weeks < 6.0).astype(int)})


def field(n=150, seed=0):
    """A smooth surface over the plane with noise."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.uniform(0.0, 10.0, (n, 2)), columns=["east", "north"])
    return data.assign(y=np.sin(data["east"]) * np.cos(0.5 * data["north"]) + 0.3 * rng.normal(size=n))


def main(picture=None):
    fit = fenchel.fit("visits ~ dose + sex + (1|clinic)", visits(), family="poisson", accuracy="fast")
    print(fit.check())
    if picture is not None:
        draw(fit, picture)
    return fit


def draw(fit, picture):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 16.0), layout="constrained")
    axes = figure.subplots(4, 3).ravel()
    fit.plot_effect("dose", by="sex", ax=axes[0])
    fit.plot(ax=axes[1])
    fit.plot("clinic", ax=axes[2])
    fit.plot_check(ax=axes[3])
    fit.plot_check("pit", ax=axes[4])
    fit.plot_residuals("quantiles", ax=axes[5])
    fit.plot_residuals("fitted", ax=axes[6])
    fit.plot_residuals("clinic", ax=axes[7])
    fit.plot_variance(ax=axes[8])
    spread = fenchel.fit("visits ~ dose + (1|clinic)", visits(), "negative-binomial", integrate="auto")
    spread.plot_joint("sd of (1|clinic)", "size", ax=axes[9])
    lasting = fenchel.fit("cens(weeks, seen) ~ drug", durations(), "weibull", accuracy="fast")
    lasting.plot_survival({"drug": [0, 1]}, ax=axes[10])
    fenchel.fit("y ~ matern(east, north)", field(), accuracy="fast").plot_residuals("variogram", ax=axes[11])
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
