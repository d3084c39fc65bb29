"""Volatility of the pound with a forecast: daily returns against the dollar, 1981 to 1985.

The picture shows the standard deviation of a day's return with its 95 % band, the absolute values of the returns, and a
forecast of half a year, which returns to the long-run level. The fit learns the persistence and the variance of the log
variance.

    y_t ~ N(0, e^eta_t),   eta_t = intercept + x_t,   x_{t+1} = phi x_t + noise

    python examples/volatility_model.py [picture.png]
"""

import sys

import numpy as np

import fenchel
from fenchel.datasets import load_stochvol
from fenchel.plots import plot_path


def main(picture=None):
    pound = load_stochvol()
    returns = pound.returns - pound.returns.mean()
    n = returns.size
    data = {"day": np.arange(n), "y": returns}  # trading days: weekends are not counted
    wide = {"ar1(day)": fenchel.PC(sd=3, alpha=0.01)}  # the log-variance of returns changes by more than 1
    fit = fenchel.fit("y ~ ar1(day)", data, "stochastic-volatility", priors=wide)
    sd, phi = fit.hyperparameters["value"]
    print(f"phi {phi:.3f}, sigma {sd * np.sqrt(1 - phi**2):.3f}: elbo {fit.elbo:.4f}, proved to within {fit.gap:.0e}")
    ahead = {"day": n + np.arange(125)}
    low, high = fit.predict(ahead, "outcome", interval=0.95)[["lower", "upper"]].iloc[0]
    print(f"the next day's return is between {low:.2f} and {high:.2f} percent with probability 0.95")
    month = fit.sample({"day": n + np.arange(21)}, 10_000, 0, kind="outcome").sum(axis=1)  # joint draws of paths
    print(f"the next month's return has a standard deviation of {month.std():.1f} percent")
    if picture:
        draw(picture, fit, ahead, pound.dates, np.abs(returns))
    return fit


def volatility(fit, rows):
    """Mean and 95 % band of exp(eta / 2): eta is normal."""
    eta = fit.predict(rows, "link", interval=0.95)
    return np.exp(eta["mean"] / 2 + eta["sd"] ** 2 / 8), np.exp(eta["lower"] / 2), np.exp(eta["upper"] / 2)


def draw(path, fit, ahead, dates, size):
    """Draw the volatility and its forecast, with trading days converted to calendar dates."""
    ax = plot_path(
        dates, *volatility(fit, None), points=size, label="volatility", points_label="absolute return",
        ylabel="percent a day",
    )  # fmt: skip
    later = dates[-1] + np.arange(1, 126) * (dates[-1] - dates[0]).astype("timedelta64[s]") / (dates.size - 1)
    mean, lower, upper = volatility(fit, ahead)
    ax.fill_between(later, lower, upper, color="#D55E00", alpha=0.25, linewidth=0)
    ax.plot(later, mean, color="#D55E00", linestyle="--", linewidth=1.2, label="forecast")
    ax.legend(frameon=False, fontsize=9)
    ax.set_ylim(0, None)
    ax.figure.set_size_inches(8, 4)
    ax.figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:2])
