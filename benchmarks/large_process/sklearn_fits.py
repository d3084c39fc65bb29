"""scikit-learn: its exact process on a subset of the rows (2,000; labels: 1,000, by Laplace), and histogram boosting.

Boosting has its defaults. It predicts no sd: that of a tenth of the training rows, left out of a first fit, is taken
for all.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

PACKAGES = ("scikit-learn", "numpy", "scipy")
SUBSET = {False: 2000, True: 1000}  # by whether y are labels


def subset(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None) -> Any:
    rows = np.random.default_rng(0).permutation(len(y))[: SUBSET[labels]]
    D = X.shape[1]
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.full(D, D**0.5), (1e-2, 1e4), nu=1.5)
    notes = {"points": len(rows)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengths at a bound
        if labels:
            of_labels = GaussianProcessClassifier(kernel).fit(X[rows], y[rows])
            return lambda new: (of_labels.predict_proba(new)[:, 1],), notes
        model = GaussianProcessRegressor(kernel + WhiteKernel(0.1), alpha=1e-8).fit(X[rows], y[rows])
    return lambda new: model.predict(new, return_std=True), notes


def boosting(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None) -> Any:
    if labels:
        of_labels = HistGradientBoostingClassifier(random_state=0).fit(X, y)
        return lambda new: (of_labels.predict_proba(new)[:, 1],), {}
    out = np.random.default_rng(0).permutation(len(y))[::10]
    kept = np.delete(np.arange(len(y)), out)
    first = HistGradientBoostingRegressor(random_state=0).fit(X[kept], y[kept])
    sd = float(np.sqrt(np.mean((first.predict(X[out]) - y[out]) ** 2)))
    model = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    return lambda new: (model.predict(new), np.full(len(new), sd)), {}


FITS = {"sklearn-subset": subset, "sklearn-boosting": boosting}
