"""Remission of leukaemia: durations with and without a drug, 12 of 42 censored, by a Weibull model.

The data are from the trial of Freireich et al. (Blood 21, 1963), which many textbooks of survival analysis use: weeks
until relapse of 42 children, 21 of whom took 6-mercaptopurine. If a child had no relapse at the last observation, its
time is censored. The picture shows the survival function of each group, averaged over the posterior of the coefficient
at the learned shape. The steps are the Kaplan-Meier curves, which assume no model.

    python examples/survival.py [picture.png]
"""

import sys

import numpy as np

from fenchel.estimators import BayesianLinearRegression

DRUG = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
RELAPSED = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
GROUPS = {"placebo": 0.5, "drug": -0.5}  # the covariate; its coefficient is the log hazard ratio


def kaplan_meier(weeks, event):
    """The product of 1 - (relapses / at risk) over the times at which someone relapsed."""
    times = np.unique(weeks[event == 1])
    share = [1 - ((weeks == t) & (event == 1)).sum() / (weeks >= t).sum() for t in times]
    return np.r_[0, times, weeks.max()], np.r_[1.0, np.cumprod(share), np.prod(share)]


def main(picture=None):
    weeks = np.array(PLACEBO + DRUG, dtype=float)
    event = np.array([1] * 21 + RELAPSED)
    X = np.repeat([[GROUPS["placebo"]], [GROUPS["drug"]]], 21, axis=0)
    model = BayesianLinearRegression(likelihood="weibull").fit(X, weeks, event=event)
    low, middle, high = np.exp(model.coef_[0] + model.coef_std_[0] * np.array([-1.96, 0.0, 1.96]))
    print(f"{event.sum()} relapses and {(1 - event).sum()} censored: elbo {model.elbo_:.4f}, gap {model.gap_:.0e}")
    print(f"  without the drug the hazard is {middle:.1f} times as high ({low:.1f} to {high:.1f})")
    print(f"  shape {model.likelihood_.shape:.2f}: above 1 the hazard rises with time")
    medians = model.predict_quantiles([[x] for x in GROUPS.values()], [0.5])[:, 0]
    for name, median in zip(GROUPS, medians, strict=True):
        print(f"  {name}: half have relapsed after {median:.0f} weeks")
    if picture:
        from fenchel.plots.base import BLUE, ORANGE, new_figure, quiet

        figure, grid = new_figure(7.0, 4.2), np.linspace(0, 35, 200)
        ax = figure.subplots()
        for (name, x), colour, mine in zip(GROUPS.items(), (ORANGE, BLUE), (slice(0, 21), slice(21, 42)), strict=True):
            ax.step(*kaplan_meier(weeks[mine], event[mine]), where="post", color=colour, alpha=0.5, lw=1.2)
            ax.plot(grid, model.predict_survival([[x]], grid)[0], color=colour, lw=2, label=name)
        ax.set(xlabel="weeks", ylabel="share still in remission", xlim=(0, 35), ylim=(0, 1.02))
        ax.legend(frameon=False, title="smooth: Weibull; steps: Kaplan-Meier")
        quiet(ax)
        figure.savefig(picture, dpi=150)
    return model


if __name__ == "__main__":
    main(*sys.argv[1:2])
