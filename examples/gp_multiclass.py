"""Iris by its petals: three species by one softmax, so that the probabilities are joint.

Seen, left: the most probable species, paler where it is less certain. Right: the three probabilities by the petal's
length alone, with 95 % bands; below zero, the flowers.

    python examples/gp_multiclass.py [picture.png]
"""

import sys

from sklearn.datasets import load_iris

from fenchel.estimators import GaussianProcessClassifier, plot_decision_surface, plot_partial_effect


def main(picture=None):
    iris = load_iris(as_frame=True)
    X, y = iris.data[["petal length (cm)", "petal width (cm)"]], iris.target_names[iris.target]
    train, test = X[::2], X[1::2]
    model = GaussianProcessClassifier().fit(train, y[::2])
    right = (model.predict(test) == y[1::2]).mean()
    print(f"{model.kernel_}: elbo {model.elbo_:.4f}, proved to within {model.gap_:.0e}")
    print(f"  {right:.0%} of the other 75 flowers right; mean log probability {model.score(test, y[1::2]):.3f}")
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        plot_decision_surface(model, X, y, left)
        length = GaussianProcessClassifier().fit(train[["petal length (cm)"]], y[::2])
        plot_partial_effect(length, X[["petal length (cm)"]], y, right)
        figure.savefig(picture, dpi=150)
    return model


if __name__ == "__main__":
    main(*sys.argv[1:2])
