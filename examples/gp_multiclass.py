"""Iris by its petals: three species with one softmax, which gives joint probabilities.

The picture on the left shows the most probable species; pale colours are less certain. The picture on the right shows
the three probabilities as functions of the petal's length, with 95 % bands. The marks below zero are the flowers.

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
