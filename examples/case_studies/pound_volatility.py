r"""
How did the volatility of the pound change?
===========================================

*A series of returns whose variance changes with time: stochastic volatility.*

The data are the exchange rate of the pound to the dollar on 945 trading days from October 1981 to June 1985. A return
is the change of its logarithm, in per cent. The volatility is the standard deviation of the returns.
"""

# %%
# The data
# --------
# Weeks of small changes and weeks of large changes alternate. On 35 days the rate did not change at all.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fenchel
from fenchel.datasets import load_stochvol

pound = load_stochvol()
returns = pound.returns - pound.returns.mean()
figure, ax = plt.subplots(figsize=(8, 3))
ax.plot(pound.dates, returns, lw=0.7, color="#0072B2")
ax.set_ylabel("return, per cent a day")
plt.show()

# %%
# The model
# ---------
# .. math:: y_t \sim N(0, e^{\eta_t}), \qquad \eta_t = \beta_0 + x_t, \qquad x_{t+1} = \phi\, x_t + \text{noise}
#
# The log variance follows an autoregression. It is similar on successive days, and in the long run it returns to its
# mean. We state a prior for its sd, because log variances of returns may change by more than 1.

data = pd.DataFrame({"day": np.arange(returns.size), "y": returns})
fit = fenchel.fit(
    "y ~ ar1(day)", data, family="stochastic-volatility", priors={"ar1(day)": fenchel.PC(sd=3, alpha=0.01)}
)
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - ``phi`` is about 0.97. Half of a shock is gone after :math:`\log 0.5 / \log 0.97`, about 20 trading days.
# - The likelihood is log-concave, so at given hyperparameters the gap proves that the fit is the global optimum.

# %%
# Checks
# ------
# Without the term the volatility is constant. ``compare`` predicts each day from the other days by both models;
# ``elpd`` is the sum of the log predictive densities, and larger is better.

constant = fenchel.fit("y ~ 1", data, family="stochastic-volatility")
compared = fenchel.compare({"autoregression": fit, "constant": constant})
print(compared[["elpd", "difference"]].round(1).to_string())

# %%
# The answer
# ----------
# The picture shows the volatility with its 95 % band, and a forecast of half a year:

ahead = pd.DataFrame({"day": returns.size + np.arange(125)})
figure, ax = plt.subplots(figsize=(8, 3.8))
for rows, colour, name in ((data[["day"]], "#0072B2", "volatility"), (ahead, "#D55E00", "forecast")):
    eta = fit.predict(rows, "link", interval=0.95)
    ax.fill_between(rows["day"], np.exp(eta["lower"] / 2), np.exp(eta["upper"] / 2), alpha=0.25, color=colour, lw=0)
    ax.plot(rows["day"], np.exp(eta["mean"] / 2), color=colour, lw=1.3, label=name)
ax.plot(data["day"], np.abs(returns), ".", ms=2, color="0.6", zorder=0, label="absolute return")
ax.set(xlabel="trading day", ylabel="per cent a day", ylim=(0, 3))
ax.legend(frameon=False, ncols=3)
plt.show()
low, high = fit.predict(ahead, "outcome", interval=0.95)[["lower", "upper"]].iloc[0]
print(f"the next day's return is between {low:.2f} and {high:.2f} per cent with probability 0.95")

# %%
# **Times of low and of high volatility last for weeks: half of a shock is gone after about 20 trading days.**
#
# What the paper's experiment finds
# ---------------------------------
# ``fenchel reproduce all`` fits the same series on a grid of 121 values of the variance and of ``phi``, without priors
# for them. The evidence is largest at a variance of 0.55 and a ``phi`` of 0.981 (:doc:`/reproduction`). Our values are

sd, phi = fit.hyperparameters["value"]
print(f"variance {sd**2:.2f}, phi {phi:.3f}")
