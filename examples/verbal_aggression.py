"""Verbal aggression: 316 people answer 24 questions, a mixed model with two crossed groupings.

The data are from Vansteelandt (2000), in De Boeck and Wilson's "Explanatory Item Response Models". Would you curse,
scold or shout if a bus passed without stopping, or a grocery store closed in front of you? There is one row for each
answer. People and questions have random intercepts, and anger (a trait) and gender are covariates of people. An item
response model (a Rasch model with covariates) is this mixed model. The picture shows how easily each question is
answered with yes, with 95 % intervals.

    python examples/verbal_aggression.py [picture.png]
"""

import sys

import numpy as np
import pandas as pd

import fenchel
from fenchel.datasets import load_verbal_aggression


def table():
    """One row for each person and question; missing answers stay missing, and are predicted."""
    data = load_verbal_aggression()
    person, item = np.indices(data.X.shape)
    return pd.DataFrame(
        {
            "yes": np.asarray(data.X, dtype=float).ravel(),
            "person": person.ravel(),
            "item": np.asarray(data.feature_names)[item.ravel()],
            "anger": np.asarray(data.anger, dtype=float)[person.ravel()],
            "gender": np.asarray(data.gender)[person.ravel()],
        }
    )


def main(picture=None):
    data = table()
    fit = fenchel.fit("yes ~ anger + gender + (1|person) + (1|item)", data, family="bernoulli")
    print(fit.summary().splitlines()[0])
    print(fit.coefficients[["mean", "sd", "lower", "upper", "odds_ratio"]].round(3).to_string())
    print(fit.hyperparameters.round(2).to_string())
    items = fit.effects["(1|item)"].sort_values("mean")
    print(f"most often yes: {items.index[-1]}, least often: {items.index[0]}")
    if picture:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
        rows = np.arange(len(items))
        axes.errorbar(items["mean"], rows, xerr=1.96 * items["sd"], fmt="o", ms=4, lw=1, color="#1f5a85")
        axes.set_yticks(rows, items.index, fontsize=8)
        axes.axvline(0.0, color="0.7", lw=1, zorder=0)
        axes.set_xlabel("log odds of yes, beside a typical question")
        figure.savefig(picture, dpi=110)
        plt.close(figure)
    return fit


if __name__ == "__main__":
    main(*sys.argv[1:2])
