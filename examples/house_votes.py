"""Votes of the House of Representatives in 1984: two factors of a binary table with missing entries.

The picture on the left shows the members by their two factors. Colours are the parties, which the model did not see. An
arrow shows the direction of a yes on that vote. The picture on the right shows the evidence, and the loss on hidden
votes, against the number of factors.

    python examples/house_votes.py [picture.png]
"""

import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

from fenchel.datasets import load_house_votes
from fenchel.estimators import ProbabilisticPCA, select_components
from fenchel.plots import plot_biplot, plot_components


def main(picture=None):
    votes = load_house_votes()
    model = ProbabilisticPCA(2).fit(votes.X)
    z = model.transform(votes.X)
    right = LogisticRegression().fit(z, votes.party).score(z, votes.party)
    print(f"{np.isnan(votes.X).sum()} of {votes.X.size} votes are missing and left out, not filled in")
    print(f"two factors: elbo {model.elbo_:.4f}, proved to within {model.gap_:.0e}; strength {model.strength_:.3f}")
    print(f"  a straight line through the picture puts {right:.0%} of the members with their party")
    first = votes.feature_names[int(np.argmax(np.abs(model.components_[0])))]
    print(f"  the largest loading of the first factor: {first}")
    found = select_components(votes.X, [1, 2, 3, 4], n_repeats=3, random_state=0)
    print(found.table().round(3).to_string())
    print(f"columns alone: {found.baseline.mean():.3f} bits a hidden vote")
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 5.4), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=(2.3, 1))
        plot_biplot(z, model.components_.T, left.subplots(), names=votes.feature_names, labels=votes.party)
        axes = right.subplots(2, 1)
        plot_components(found.n_components, found.evidence, found.bits, axes, baseline=found.baseline)
        figure.savefig(picture, dpi=150)
    return model, found


if __name__ == "__main__":
    main(*sys.argv[1:2])
