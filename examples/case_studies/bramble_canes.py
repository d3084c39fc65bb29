r"""
Where do brambles grow?
=======================

*Points in the plane: a log-Gaussian Cox process, fitted as counts in cells.*

Hutchings (1979) mapped 823 bramble canes in a square with sides of 9 metres. The same model can describe trees in a
forest, nests or crimes.
"""

# %%
# The data
# --------
# The canes grow in clumps, and parts of the square are empty.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fenchel

canes = pd.read_csv("data/brambles.csv")
canes[["x", "y"]] *= 9  # metres
figure, ax = plt.subplots(figsize=(5, 5))
ax.plot(canes["x"], canes["y"], ".", ms=3, color="#333333")
ax.set(xlabel="metres", ylabel="metres", aspect="equal")
plt.show()

# %%
# The model
# ---------
# .. math:: \text{canes in cell } c \sim \text{Poisson}(\text{area}_c\, e^{\eta_c}), \qquad
#    \eta_c = \beta_0 + f(x_c, y_c), \quad f \text{ a Matérn field}
#
# A point process is a random set of points. Its intensity, the expected number of canes in a square metre, is
# :math:`e^\eta`. We count the canes in a grid of 30 by 30 cells. The area of a cell is the exposure. The field
# :math:`f` is a random surface. The fit learns its standard deviation (``sd``) and the distance over which it changes
# (``range``).

n = 30
edges = np.linspace(0, 9, n + 1)
middle = (edges[1:] + edges[:-1]) / 2
counts = np.histogram2d(canes["x"], canes["y"], bins=[edges, edges])[0]
x, y = np.meshgrid(middle, middle, indexing="ij")
cells = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "canes": counts.ravel(), "area": (9 / n) ** 2})
fit = fenchel.fit("canes ~ matern(x, y)", cells, family="poisson", exposure="area")
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - The range is about 0.65 metres: at this distance the correlation of the field is about 0.14. Places further apart
#   are nearly independent.
# - The sd is about 1.6 on the log scale. Dense places have more than twenty times as many canes as sparse ones.
# - The evidence, the marginal likelihood p(y), chose the smoothness of the field. The line of the term says by how
#   much.

# %%
# Checks
# ------
# ``check`` tests whether the counts vary more than Poisson counts given the field, and whether too many cells are
# empty.

print(fit.check())

# %%
# The answer
# ----------

square_metre = cells.assign(area=1.0)  # the exposure: a mean is then of canes a square metre
at = fit.predict(square_metre, interval=0.95)
log_scale = fit.predict(cells, "link", interval=0.95)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
titles = {"canes a square metre": at["mean"].to_numpy(), "sd of the log intensity": log_scale["sd"].to_numpy()}
for ax, (title, values) in zip(axes, titles.items(), strict=True):
    image = ax.imshow(values.reshape(n, n).T, origin="lower", extent=(0, 9, 0, 9), cmap="viridis")
    ax.plot(canes["x"], canes["y"], ".", ms=1, color="white", alpha=0.6)
    figure.colorbar(image, ax=ax, shrink=0.8)
    ax.set(title=title, xlabel="metres")
plt.show()
sure = fit.exceedance(square_metre, 2 * 823 / 81)
print(f"twice the mean intensity with probability 0.95: {(np.asarray(sure) > 0.95).mean():.1%} of the square")

# %%
# **Brambles grow in clumps: the intensity changes within about 0.65 metres, and few canes grow between the clumps.**
#
# What mgcv finds
# ---------------
# mgcv fits a thin-plate smooth with 150 coefficients. The intensities are in canes per square metre.

peer = json.loads(Path("peers.json").read_text())["bramble_canes"]
print(peer["call"])
ours = {"largest": at["mean"].max(), "median": at["mean"].median()}
print(pd.DataFrame({"mgcv": peer["values"], "fenchel": ours}).round(1).to_string())

# %%
# 150 coefficients are too few for clumps of this size, so the peaks of mgcv's surface are lower. Our median is lower
# for the same reason: between the clumps there are nearly no canes.
