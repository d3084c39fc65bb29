"""Diabetes by glucose and body mass: Gaussian process classifiers of scikit-learn and of fenchel.

The picture shows the probability of diabetes and the 200 women from whom it was learned. The two programs differ in one
import. Both learn the same two numbers of the kernel: scikit-learn by Laplace's approximation, fenchel by a convex
bound with a proof of convergence.

    python examples/gp_binary.py [picture.png]
"""

import sys

import pandas as pd
from sklearn.gaussian_process import GaussianProcessClassifier as Laplace
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fenchel.datasets import load_pima
from fenchel.estimators import GaussianProcessClassifier, plot_decision_surface


def main(picture=None):
    pima = load_pima()
    frame = pd.DataFrame(pima.X, columns=pima.feature_names)[["glu", "bmi"]]
    frame.columns = ["glucose (mg/dl)", "body mass index"]
    train, test = frame[pima.train], frame[pima.test]
    y, new = pima.y[pima.train].astype(int), pima.y[pima.test].astype(int)
    models = {}
    for name, kind in (("scikit-learn", Laplace), ("fenchel", GaussianProcessClassifier)):
        models[name] = make_pipeline(StandardScaler(), kind(kernel=1.0 * RBF(1.0))).fit(train, y)
        print(f"{name:>14}: test log loss {log_loss(new, models[name].predict_proba(test)):.4f}")
    ours = models["fenchel"][-1]
    print(f"{ours.kernel_}: elbo {ours.elbo_:.4f}, proved to within {ours.gap_:.0e}")
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4.4), layout="constrained")
        for ax, (name, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
            looks = {"class_names": ["healthy", "diabetes"], "title": name}
            plot_decision_surface(model, train, y, ax, **looks)
        figure.savefig(picture, dpi=150)
    return models


if __name__ == "__main__":
    main(*sys.argv[1:2])
