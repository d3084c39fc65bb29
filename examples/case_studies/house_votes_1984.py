r"""
What divides the House of Representatives?
===========================================

*A binary table with missing entries: two latent factors of sixteen votes.*

In 1984 the 435 members of the United States House of Representatives voted on sixteen key issues. For 392 of the
6,960 votes no position is known.
"""

# %%
# The data
# --------
# Each column of the picture is a member, and each line a vote. Dark is yes, light is no, white is unknown. The members
# are sorted by party, but the model does not see the parties.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import FactorAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression

from fenchel.datasets import load_house_votes
from fenchel.estimators import ProbabilisticPCA, select_components
from fenchel.plots import plot_biplot

votes = load_house_votes()
figure, ax = plt.subplots(figsize=(7, 4))
ax.imshow(votes.X[np.argsort(votes.party)].T, aspect="auto", cmap="Blues", vmin=-0.4, vmax=1.1, interpolation="nearest")
ax.set_yticks(range(16), votes.feature_names, fontsize=8)
ax.set_xlabel("members: democrats, then republicans")
plt.tight_layout()
plt.show()

# %%
# The model
# ---------
# .. math:: P(x_{ij} = 1) = \frac{1}{1 + e^{-\eta_{ij}}}, \quad
#    \eta_{ij} = \mu_j + w_j \cdot z_i, \quad z_i \sim N(0, I)
#
# Each member :math:`i` has a position :math:`z_i` in the plane, and each vote :math:`j` has a direction :math:`w_j`. An
# unknown vote is left out of the likelihood. It is not imputed.

model = ProbabilisticPCA(2).fit(votes.X)
print(f"elbo {model.elbo_:.2f}, gap {model.gap_:.1e}, converged: {model.converged_}")

# %%
# What it says
# ------------
# ``elbo_`` is a lower bound on the log probability of the table. ``gap_`` bounds how far the Gaussian approximations of
# the rows are from the best ones; this is proved. The votes with the largest loadings on the first factor divide the
# House most.

loadings = pd.DataFrame(model.components_.T, index=votes.feature_names, columns=["first", "second"])
print(loadings.sort_values("first", key=abs, ascending=False).head(6).round(2).to_string())

# %%
# Checks
# ------
# How many factors are needed? We hide some of the votes and predict them with one, two and three factors. The table has
# the log loss in bits for each vote; smaller is better. The last line is the loss of a prediction by the share of yes
# in each column.

found = select_components(votes.X, [1, 2, 3], n_repeats=2, random_state=0)
print(found.table().round(3).to_string())
print(f"columns alone: {found.baseline.mean():.3f} bits")

# %%
# The answer
# ----------

z = model.transform(votes.X)
figure, ax = plt.subplots(figsize=(7, 5.5))
plot_biplot(z, model.components_.T, ax, names=votes.feature_names, labels=votes.party)
plt.show()


def with_their_party(places):
    """The share of members that a straight line puts with their party."""
    return LogisticRegression().fit(places, votes.party).score(places, votes.party)


print(f"a straight line puts {with_their_party(z):.1%} of the members with their party")

# %%
# **A straight line separates the parties well, although the model did not see them. Foreign aid to El Salvador and to
# the contras, and the freeze of physicians' fees, divide the House most.**
#
# What scikit-learn finds
# -----------------------
# ``FactorAnalysis`` treats yes and no as numbers with normal noise, and it needs every entry. We fill missing votes
# with the most frequent one.

filled = SimpleImputer(strategy="most_frequent").fit_transform(votes.X)
theirs = FactorAnalysis(2, random_state=0).fit_transform(filled)
print(f"FactorAnalysis, then a straight line: {with_their_party(theirs):.1%}")
