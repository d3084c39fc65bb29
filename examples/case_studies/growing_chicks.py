r"""
Which diet makes chicks grow?
=============================

*Growth curves: a smooth of time for each diet, and an intercept and a slope for each chick.*

Fifty chicks were weighed at birth and every second day until day 21. Each chick was on one of four diets (Crowder and
Hand 1990). Some died before the end.
"""

# %%
# The data
# --------
# Each line is a chick. On the log scale the lines are nearly straight, and their spread grows with time.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fenchel

data = pd.read_csv("data/chick_weight.csv")
data["diet"] = data["diet"].astype("category")
data["log_weight"] = np.log(data["weight"])
figure, axes = plt.subplots(1, 4, figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, (diet, rows) in zip(axes, data.groupby("diet", observed=True), strict=True):
    for _, chick in rows.groupby("chick"):
        ax.plot(chick["time"], chick["weight"], lw=0.8, color="#0072B2", alpha=0.6)
    ax.set(title=f"diet {diet}", xlabel="day", yscale="log")
axes[0].set_ylabel("weight in grams")
plt.show()

# %%
# The model
# ---------
# .. math:: \log \text{weight}_{it} = f_{d(i)}(t) + u_i + v_i\,t + \epsilon_{it}, \qquad (u_i, v_i) \sim N(0, S)
#
# Each diet :math:`d` has its own mean and its own smooth curve. Each chick has a random intercept and a random slope
# (speed of growth), which may be correlated. The noise is normal.

fit = fenchel.fit("log_weight ~ diet + s(time, by=diet) + (time|chick)", data)
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - The first line says that the sds are fixed at their most probable values, and why: the four smooths have four sds,
#   and the data say little about each. Two rules of numerical integration over the sds did not agree, so neither is
#   used. The intervals of the curves therefore do not include the uncertainty of the sds.
# - ``s(time,by=diet) (slope)[3]`` is the straight part of the third curve: 0.09 per day, or 9 per cent per day.
# - The slopes of chicks have an sd of about 0.02 per day. After 21 days that is 0.4 on the log scale: a factor of 1.5
#   between two chicks on the same diet.
# - The correlation of intercept and slope is negative: chicks that were heavier at birth grew more slowly.

# %%
# Checks
# ------

print(fit.check())
figure, ax = plt.subplots(figsize=(5, 3.5))
fit.plot_check(ax=ax)
plt.show()

# %%
# The answer
# ----------
# The weight on day 21 of a typical chick on each diet, in grams:

on_day_21 = pd.DataFrame({"diet": pd.Categorical([1, 2, 3, 4]), "time": 21})
last = fit.predict(on_day_21, without="groups", interval=0.95)
print(np.exp(last[["mean", "lower", "upper"]]).round(0).set_axis(["diet 1", "diet 2", "diet 3", "diet 4"]).to_string())
print(fit.contrast(on_day_21.iloc[1:], on_day_21.iloc[:1], without="groups").round(3).to_string())

# %%
# The second table shows the differences from diet 1 on the log scale. **Diet 3 makes chicks heaviest on day 21, about
# three quarters heavier than diet 1. The data do not say whether it is better than diet 4.**
#
# What mgcv finds
# ---------------

peer = json.loads(Path("peers.json").read_text())["growing_chicks"]
print(peer["call"])
mean, sd = last["mean"].to_numpy(), last["sd"].to_numpy()
ours = {f"diet{i + 1}": mean[i] for i in range(4)} | {"diet1_se": sd[0], "diet3_se": sd[2]}
print(pd.DataFrame({"mgcv": peer["values"], "fenchel": ours}).round(3).to_string())
