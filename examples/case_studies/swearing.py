r"""
Do people say that they would swear more often than they do?
=============================================================

*Ordered answers of persons to questions: an ordinal mixed model with crossed groups.*

Vansteelandt (2000) asked 316 students about four annoying situations: a bus that does not stop, a train that is
missed, a shop that closes in front of you, an operator who cuts you off. Would you *want* to curse, scold or shout?
Would you *do* it? The possible answers are no, perhaps and yes.
"""

# %%
# The data
# --------
# Every student answers all 24 questions, so persons and questions are crossed groups. The picture shows the share of
# each answer for each question. Questions about wanting come first:

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fenchel
from fenchel.datasets import load_verbal_aggression

table = load_verbal_aggression(categories=3)
person, item = np.indices(table.X.shape)
data = pd.DataFrame({"answer": table.X.ravel().astype(int), "person": person.ravel()})
data["item"] = np.array(table.feature_names)[item.ravel()]
data["anger"], data["gender"] = table.anger[person.ravel()], table.gender[person.ravel()]
data["mode"] = np.where(data["item"].str.contains("Want"), "want", "do")

shares = pd.crosstab([data["mode"], data["item"]], data["answer"], normalize="index").loc[["want", "do"]]
ax = shares.droplevel(0).plot.barh(stacked=True, color=["#d9d9d9", "#9ecae1", "#2171b5"], figsize=(7, 6), width=0.85)
ax.invert_yaxis()
ax.legend(["no", "perhaps", "yes"], ncols=3, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
ax.set(xlabel="share of the answers", ylabel="")
plt.tight_layout()
plt.show()

# %%
# The model
# ---------
# .. math::
#
#    P(\text{answer} \le k) &= \frac{1}{1 + e^{\eta - b_k}} \\
#    \eta &= \beta_1\,\text{anger} + \beta_2\,\text{male} + \beta_3\,\text{want} + u_{\text{person}} + v_{\text{item}}
#
# A large :math:`\eta` makes higher answers more probable. The cutpoints :math:`b_0 < b_1` separate no from perhaps and
# perhaps from yes. Persons and questions have random intercepts.

fit = fenchel.fit("answer ~ anger + gender + mode + (1|person) + (1|item)", data, family="ordinal")
print(fit.summary())

# %%
# What the summary says
# ---------------------
# - ``mode[T.want]`` compares questions about wanting with questions about doing. Its interval is wide, because it is
#   a difference between two sets of twelve questions, and questions differ: the sd of ``(1|item)`` is about 1.1.
# - ``anger`` is a questionnaire score. One more point raises the log odds of a higher answer by about 0.075.
# - There is no intercept: the cutpoints take its place.

# %%
# Checks
# ------
# The questions come in pairs: the same situation and the same act, once about wanting and once about doing. The model
# above ignores the pairs. In a second model each pair has a random intercept, and wanting adds the same number to each
# pair.

data["pair"] = data["item"].str.replace("Want|Do", "", regex=True)
paired = fenchel.fit("answer ~ anger + gender + mode + (1|person) + (1|pair)", data, family="ordinal")
columns = ["mean", "sd", "lower", "upper"]
print(pd.concat({"questions": fit.coefficients[columns], "pairs": paired.coefficients[columns]}).round(3).to_string())

# %%
# The answer
# ----------

figure, ax = plt.subplots(figsize=(6, 5.5))
items = fit.effects["(1|item)"].sort_values("mean")
want = items.index.str.contains("Want")
for name, chosen, colour in (("want", want, "#0072B2"), ("do", ~want, "#D55E00")):
    ax.errorbar(
        items["mean"][chosen],
        np.flatnonzero(chosen),
        xerr=1.96 * items["sd"][chosen],
        fmt="o",
        ms=4,
        lw=1,
        color=colour,
        label=name,
    )
ax.set_yticks(range(24), items.index, fontsize=8)
ax.set_xlabel("level of the question, given whether it asks for wanting")
ax.legend(frameon=False)
plt.tight_layout()
plt.show()

# %%
# **For the same act in the same situation, people say more often that they would want to swear than that they would do
# it. Across all questions the difference is likely but not certain, because acts differ more from each other than
# wanting differs from doing.**
#
# What R's ordinal finds
# ----------------------
# ``clmm`` uses Laplace's approximation and maximises the likelihood over the sds.

peer = json.loads(Path("peers.json").read_text())["swearing"]
print(peer["call"])
ours = {short: fit.coefficients.loc[name, "mean"] for short, name in (("anger", "anger"), ("want", "mode[T.want]"))}
ours |= {
    f"{short}_se": fit.coefficients.loc[name, "sd"] for short, name in (("anger", "anger"), ("want", "mode[T.want]"))
}
ours |= {"sd_person": fit.hyperparameters["mean"].iloc[0], "sd_item": fit.hyperparameters["mean"].iloc[1]}
print(pd.DataFrame({"ordinal": peer["values"], "fenchel": ours}).round(4).to_string())
