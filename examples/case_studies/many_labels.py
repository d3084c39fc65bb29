r"""
Who earns more than 50,000 dollars?
===================================

*Classification of many rows: a Gaussian process with inducing points, and a bound on their error.*

The data are from the census of the United States of 1994, as prepared by the UCI repository (Adult): age, education,
work, family and hours of 45,222 people, and whether they earn more than 50,000 dollars a year. The table is not part of
this repository, and the fit takes some minutes. This page therefore shows stored results of
``python benchmarks/many_labels.py --data FOLDER``.
"""

# %%
# The data
# --------
# There are fourteen standardised columns. Kinds of work, of education and so on are coded as whole numbers. A tenth of
# the rows is held out. The picture shows how many of these people have each predicted probability:

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
# :math:`k` is a Matérn kernel with a length scale for each column, which the fit learns. An exact fit of N rows needs a
# matrix of N by N numbers. Instead the process is approximated by its values at M inducing points::
#
#     kernel = ConstantKernel() * Matern([14**0.5] * 14, nu=1.5)
#     GaussianProcessClassifier(kernel, approximation="inducing", n_inducing=200).fit(X, y)

print(f"{kept['rows']:,} rows, {kept['points']} inducing points, {kept['processor_seconds']:.0f} processor seconds")

# %%
# What the fit says
# -----------------
# ``elbo_`` is a lower bound on the log evidence of the approximation. ``approximation_loss_`` bounds how much larger
# the elbo of the exact process could be. It is a proof if all pairs of rows were used, and an estimate if pairs were
# sampled.

kind = "proved" if kept["proved"] else "an estimate"
a_row = kept["loss"] / kept["rows"]
print(f"elbo {kept['elbo']:.1f}; the points cost at most {kept['loss']:.0f} nats ({kind}), {a_row:.3f} a row")

# %%
# The exact process can be better by at most this number of nats (the unit of log densities). More points make the bound
# smaller: ``n_inducing="auto"`` with ``loss=`` doubles their number until the bound is as small as asked
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
# A short length scale means that the probability changes quickly along a column.

names = ["age", "class of work", "weight", "education", "years of education", "marital status", "occupation"]
names += ["relationship", "race", "sex", "capital gain", "capital loss", "hours", "country"]
lengths = pd.Series(kept["lengths"], index=names)
print(lengths.sort_values().round(1).head(6).to_string())

# %%
# **Capital losses and gains, the relationship in the family and age are the best predictors of who earns more. The
# predicted probabilities are calibrated: of the people with probability p, a share of about p earns more.**
#
# What scikit-learn finds
# -----------------------
# ``GaussianProcessClassifier`` of scikit-learn would need a matrix of 13 gigabytes. We compare with histogram gradient
# boosting, with its default settings, on the same rows:

rows = {name: {"error": kept[name]["error"], "mean log score": kept[name]["score"]} for name in ("process", "trees")}
print(pd.DataFrame(rows).T.round(4).to_string())

# %%
# Trees do better on this table. One reason may be that categories are coded as numbers, and that probabilities change
# in sharp steps. :doc:`/benchmarks` has a fit of a million labels on a GPU, with a certificate.
