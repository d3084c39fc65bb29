r"""
Do children wheeze more when their mother smokes?
=================================================

*Repeated binary observations of the same child: logistic regression with a random intercept.*

In the Ohio part of the Harvard study of air pollution, 537 children were examined each year from age 7 to 10. At
each visit the child wheezed or did not. The mothers of 187 of them smoked when the study began.
"""

# %%
# The data
# --------
# A row of the file is a pattern of four observations, with the number of children who had it. We make one row for each
# visit.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fenchel

patterns = pd.read_csv("data/ohio_wheeze.csv")
children = patterns.loc[patterns.index.repeat(patterns.pop("children"))].reset_index(drop=True)
children["child"] = np.arange(len(children))
data = children.melt(["child", "smoke"], var_name="age", value_name="wheeze")
data["age"] = data["age"].str[2:].astype(int) - 9  # years from age 9
data["smoke"] = data["smoke"].map({0: "no", 1: "yes"}).astype("category")

shares = data.groupby(["smoke", "age"], observed=True)["wheeze"].mean().unstack(0)
ax = shares.set_index(shares.index + 9).plot(marker="o", xlabel="age", ylabel="share who wheeze", ylim=(0, 0.25))
ax.set_xticks([7, 8, 9, 10])
ax.legend(title="mother smokes", frameon=False)
plt.show()

# %%
# The model
# ---------
# .. math:: \text{logit}\; P(\text{wheeze}_{it} = 1)
#    = \beta_0 + \beta_1\,\text{age}_{it} + \beta_2\,\text{smoke}_i + u_i,
#    \qquad u_i \sim N(0, \text{sd}^2)
#
# Some children wheeze often and others never. The random intercept :math:`u_i` of a child describes this, and it makes
# the four observations of a child correlated. The coefficients compare children with the same random intercept.

fit = fenchel.fit("wheeze ~ age + smoke + (1|child)", data, family="bernoulli")
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - The first line says that the sd of the children is integrated out, and that the posterior is not assumed to be
#   Gaussian. With four binary observations for each child this matters: the Gaussian approximation alone makes the sd
#   too small.
# - The log evidence, log p(y), lies between two numbers. This is proved.
# - The interval of ``smoke[T.yes]`` includes 0. The odds of wheezing are about one and a half times as high for a
#   child of a smoking mother, but the data do not exclude that they are the same.
# - The sd of children is about 2 on the logit scale. This is far larger than the effects of age and smoking.

# %%
# Checks
# ------
# ``fit.check()`` predicts every row from the others. A second check simulates new data from the fitted model. Is the
# observed number of children who never wheeze, 355, plausible under the model?

print(fit.check())
new = fit.simulate(500, 0)  # 500 data sets
never = np.array([pd.Series(y).groupby(data["child"].to_numpy()).sum().eq(0).sum() for y in new])
seen = data.groupby("child")["wheeze"].sum().eq(0).sum()
low, high = np.percentile(never, [2.5, 97.5])
print(f"children who never wheeze: {seen} seen, {low:.0f} to {high:.0f} in new data")

# %%
# The answer
# ----------
# These are the probabilities of wheezing for a child whose random intercept is 0, and the odds ratio:

print(fit.means("smoke").round(3).to_string())
print(fit.comparisons("smoke", kind="odds").round(2).to_string())

# %%
# **Of two children with the same random intercept, the one whose mother smokes probably has higher odds of wheezing,
# but the data do not exclude that there is no difference.**
#
# What lme4 finds
# ---------------
# ``glmer`` uses quadrature with 25 nodes and maximises the likelihood. We average over the posterior.

peer = json.loads(Path("peers.json").read_text())["wheezing_children"]
print(peer["call"])
ours = fit.coefficients
table = {
    "smoke": ours.loc["smoke[T.yes]", "mean"],
    "smoke_se": ours.loc["smoke[T.yes]", "sd"],
    "age": ours.loc["age", "mean"],
}
table["sd"] = fit.hyperparameters["mean"].iloc[0]
print(pd.DataFrame({"lme4": peer["values"], "fenchel": table}).round(3).to_string())
