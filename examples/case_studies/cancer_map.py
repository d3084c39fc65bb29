r"""
Where in Germany is oral cancer more frequent?
==============================================

*Counts in regions: a map smoothed by what neighbours have in common.*

In the years 1986 to 1990, 15,466 people died of cancer of the oral cavity in the 544 districts of Germany. How many
deaths each district would have at the average rate, given the size and the age of its population, is known: the
expected count.
"""

# %%
# The data
# --------
# Observed deaths over expected deaths. In small districts this ratio varies much by chance.

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
# The risk :math:`e^{\eta_r}` of a district has a part :math:`u` that is alike in neighbouring districts, and a part
# :math:`v` of its own. Their share :math:`\phi` is learned: this is the model of Besag, York and Mollié in the form
# of Riebler et al. (2016).

graph = germany.adjacency  # 1 where two districts share a border
fit = fenchel.fit("deaths ~ bym2(district, graph)", data, "poisson", exposure="expected")
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - The sd is about 0.2: the risks of most districts are within a factor of 1.5 of the middle of the map.
# - ``phi`` is about 0.85: most of the differences are shared with neighbours.
# - The gap in the second line is a proof that the solver has found the best Gaussian.

# %%
# Checks
# ------
# A probability integral transform says where each count lies in its prediction from the other districts. It should
# be even.

print(fit.check())
figure, ax = plt.subplots(figsize=(5, 3.5))
fit.plot_check(ax=ax)
plt.show()

# %%
# The answer
# ----------
# The smoothed risk beside the middle of the map, which is the intercept, and the probability that it is above 1:

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
# districts lie above the middle of the map with probability 0.95.**
#
# What mgcv finds
# ---------------
# A Markov random field with 150 coefficients, without a part of each district's own. Here a risk is that beside the
# expected count: the intercept is part of it.

peer = json.loads(Path("peers.json").read_text())["cancer_map"]
print(peer["call"])
mean = fit.predict(data.assign(expected=1.0)).to_numpy()
ours = {"largest": mean.max(), "smallest": mean.min(), "of_1": mean[0], "of_100": mean[99], "of_300": mean[299]}
print(pd.DataFrame({"mgcv": peer["values"], "fenchel": ours}).round(3).to_string())
