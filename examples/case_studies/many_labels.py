r"""
Who earns more than 50,000 dollars?
===================================

*Classification of many rows: a Gaussian process through inducing points, with a proof of what they cost.*

The census of the United States of 1994, as prepared by the UCI repository (Adult): age, education, work, family and
hours of 45,222 people, and whether they earn more than 50,000 dollars a year. The table is not part of this
repository, and the fit takes some minutes. So this page draws what ``python benchmarks/many_labels.py --data
FOLDER`` has kept.
"""

# %%
# The data
# --------
# Fourteen columns, standardised; kinds of work, of education and so on are whole numbers. A tenth of the rows is
# held out. How many people there are at each probability that the process predicts for them:

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

kept = json.loads(Path("many_labels.json").read_text())
predicted, seen, count = np.array(kept["process"]["bins"]).T
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.bar(np.arange(10) / 10 + 0.05, count, width=0.09, color="#0072B2")
ax.set(xlabel="predicted probability of more than 50,000 dollars", ylabel="people held out")
plt.show()

# %%
# The model
# ---------
# .. math:: P(y_i = 1) = \frac{1}{1 + e^{-f(x_i)}}, \qquad f \sim \text{GP}(\mu, k)
#
# :math:`k` is a Matérn kernel with a length for each column, learned. With N rows the process would need a matrix of
# N by N numbers. It is seen through M inducing points instead::
#
#     kernel = ConstantKernel() * Matern([14**0.5] * 14, nu=1.5)
#     GaussianProcessClassifier(kernel, approximation="inducing", n_inducing=200).fit(X, y)

print(f"{kept['rows']:,} rows, {kept['points']} inducing points, {kept['processor_seconds']:.0f} processor seconds")

# %%
# What the fit says
# -----------------
# ``elbo_`` is a lower bound on the log evidence of the approximation. ``approximation_loss_`` bounds how much larger
# the elbo of the process itself could be. It was computed from pairs of all rows, so that it is a proof if it is not
# called an estimate.

kind = "proved" if kept["proved"] else "an estimate"
a_row = kept["loss"] / kept["rows"]
print(f"elbo {kept['elbo']:.1f}; the points cost at most {kept['loss']:.0f} nats ({kind}), {a_row:.3f} a row")

# %%
# That is an upper bound: the process itself could fit better by this much, and not by more. Where it is at stake, more
# points make it smaller: ``n_inducing="auto"`` with ``loss=`` doubles their number until the bound is as small as asked
# (:doc:`/inducing`).
#
# Checks
# ------
# Are the probabilities right? Among the people with a predicted probability near 0.3, three in ten should earn more.

figure, ax = plt.subplots(figsize=(4.5, 4.2))
ax.plot([0, 1], [0, 1], color="0.7", lw=1)
ax.plot(predicted, seen, "o-", color="#0072B2")
ax.set(xlabel="predicted probability", ylabel="share who earn more", aspect="equal")
plt.show()

# %%
# The answer
# ----------
# A short length means that the process changes quickly along a column.

names = ["age", "class of work", "weight", "education", "years of education", "marital status", "occupation"]
names += ["relationship", "race", "sex", "capital gain", "capital loss", "hours", "country"]
lengths = pd.Series(kept["lengths"], index=names)
print(lengths.sort_values().round(1).head(6).to_string())

# %%
# **Capital losses and gains, the place in the family and age tell most about who earns more. Of the people with a
# predicted probability of p, a share of about p does.**
#
# What scikit-learn finds
# -----------------------
# ``GaussianProcessClassifier`` of scikit-learn would need a matrix of 13 gigabytes. Histogram gradient boosting,
# with its defaults, on the same rows:

rows = {name: {"error": kept[name]["error"], "mean log score": kept[name]["score"]} for name in ("process", "trees")}
print(pd.DataFrame(rows).T.round(4).to_string())

# %%
# Trees do better on this table. One reason may be that categories are numbers here, and that sharp steps occur. A
# million labels on a GPU, with a certificate, are in :doc:`/benchmarks`.
