r"""
Where in Germany is oral cancer more frequent?
==============================================

*Counts in regions: a map that uses neighbouring regions to smooth rates.*

From 1986 to 1990, 15,466 people died of cancer of the oral cavity in the 544 districts of Germany. For each district we
know the expected count: the number of deaths that it would have at the average rate, given the size and the age of its
population.
"""

# %%
# The data
# --------
# The map shows observed deaths divided by expected deaths. In small districts this ratio varies much by chance.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fenchel
from fenchel.datasets import load_germany
from fenchel.plots import plot_map

germany = load_germany()
data = pd.DataFrame({"district": np.arange(544), "deaths": germany.Y, "expected": germany.E})
figure, ax = plt.subplots(figsize=(5, 6))
plot_map(germany.polygons, data["deaths"] / data["expected"], ax, label="observed / expected", ratio=True)
plt.show()

# %%
# The model
# ---------
# .. math:: \text{deaths}_r \sim \text{Poisson}(\text{expected}_r\, e^{\eta_r}), \qquad
#    \eta_r = \beta_0 + \text{sd}\,(\sqrt{\phi}\, u_r + \sqrt{1 - \phi}\, v_r)
#
# The log risk of a district has a spatial part :math:`u`, which is similar in neighbouring districts, and an
# independent part :math:`v`. The fit learns :math:`\phi`, the share of the spatial part in the variance. This is the
# model of Besag, York and Mollié in the form of Riebler et al. (2016).

graph = germany.adjacency  # 1 where two districts share a border
fit = fenchel.fit("deaths ~ bym2(district, graph)", data, "poisson", exposure="expected")
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - The sd is about 0.2: the risks of most districts are within a factor of 1.5 of the typical risk.
# - ``phi`` is about 0.85: most of the variance between districts is spatial.
# - The gap in the second line proves that the solver has found the best Gaussian approximation of the posterior.

# %%
# Checks
# ------
# We predict each count from the other districts. The probability integral transform (PIT) is the position of the
# observed count in its predictive distribution. If the model is right, its histogram is flat.

print(fit.check())
figure, ax = plt.subplots(figsize=(5, 3.5))
fit.plot_check(ax=ax)
plt.show()

# %%
# The answer
# ----------
# The left map shows the smoothed risk relative to the typical risk of the map (the intercept). The right map shows the
# probability that this relative risk is above 1:

risk = fit.effects["district"]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 6), layout="constrained")
plot_map(germany.polygons, risk["relative_risk"], left, label="relative risk", ratio=True)
plot_map(
    germany.polygons,
    risk["p_above_1"],
    right,
    label="probability that the risk is above 1",
    cmap="PuOr_r",
    limits=(0.0, 1.0),
)
plt.show()
print(f"above 1 with probability 0.95: {(risk['p_above_1'] > 0.95).sum()} of 544 districts")
states = pd.Series(risk["p_above_1"].to_numpy() > 0.95).groupby(np.array(germany.state)).sum()
print(states[states > 0].sort_values(ascending=False).to_string())

# %%
# **The risk is raised in the south-west, from Saarland to Baden-Württemberg, and in the north-east; a fifth of the
# districts are above the typical risk with probability 0.95.**
#
# What mgcv finds
# ---------------
# mgcv fits a Markov random field with 150 coefficients, without the independent part. In this table a risk is relative
# to the expected count, so it includes the intercept.

peer = json.loads(Path("peers.json").read_text())["cancer_map"]
print(peer["call"])
mean = fit.predict(data.assign(expected=1.0)).to_numpy()
ours = {"largest": mean.max(), "smallest": mean.min(), "of_1": mean[0], "of_100": mean[99], "of_300": mean[299]}
print(pd.DataFrame({"mgcv": peer["values"], "fenchel": ours}).round(3).to_string())
