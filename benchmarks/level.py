"""What a level does for Gaussian processes: evidence and test loss with and without ``fit_intercept``.

    python benchmarks/level.py                 about a minute on one core
    python benchmarks/level.py --variances     also for other prior variances of the constant

Default kernels, learned; each model sees the same rows. Loss: mean -log p(y) of the test rows.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF

from fenchel.datasets import load_glass, load_pima
from fenchel.estimators import (
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
)


def split(X: np.ndarray, y: np.ndarray, n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n], order[n : n + 400]
    mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(sd > 0, sd, 1.0)
    return Z[train], y[train], Z[test], y[test]


def rare(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """One positive in twelve, most of them at one place."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, size=(n, 2))
    eta = -4.0 + 5.0 * np.exp(-((X - 1.0) ** 2).sum(axis=1))
    return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)


def counted(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Counts about 100 with a bump: the mean of all rows is not the level."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 10, size=(n, 1))
    return x, rng.poisson(100 * np.exp(1.5 * np.exp(-((x[:, 0] - 3) ** 2))))


def problems() -> list[tuple[str, object, tuple[np.ndarray, ...]]]:
    pima, glass = load_pima(), load_glass()
    classifier = GaussianProcessClassifier()
    return [
        ("Pima, 2 classes", classifier, split(pima.X, pima.y, 200)),
        ("Breast cancer, 2", classifier, split(*load_breast_cancer(return_X_y=True), 150)),
        ("A rare class, 2", classifier, split(*rare(), 200)),
        ("Iris, 3", classifier, split(*load_iris(return_X_y=True), 75)),
        ("Wine, 3", classifier, split(*load_wine(return_X_y=True), 89)),
        ("Glass, 6", classifier, split(glass.X, glass.y, 107)),
        ("Digits, 10", classifier, split(*load_digits(return_X_y=True), 150)),
        ("Counts with a bump", GaussianProcessPoissonRegressor(), split(*counted(), 150)),
        ("Diabetes, Gaussian", GaussianProcessRegressor(), split(*load_diabetes(return_X_y=True), 200)),
        (
            "Diabetes, mean 0",
            GaussianProcessRegressor(1e4 * RBF(3.0), mean=0.0),
            split(*load_diabetes(return_X_y=True), 200),
        ),
    ]


def fitted(model: object, data: tuple[np.ndarray, ...], **options: object) -> tuple[float, float]:
    X, y, X_test, y_test = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = clone(model).set_params(**options).fit(X, y)
    return found.elbo_, -found.score(X_test, y_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variances", action="store_true")
    variances = (1.0, 10.0, 100.0, 1000.0) if parser.parse_args().variances else (10.0,)
    settings = [("no level", {"fit_intercept": False})]
    settings += [(f"variance {v:g}", {"intercept_variance": v}) for v in variances]
    print(f"{'':<20}" + "".join(f"{name:>24}" for name, _ in settings))
    print(f"{'':<20}" + f"{'evidence':>14}{'loss':>10}" * len(settings))
    for name, model, data in problems():
        found = [fitted(model, data, **options) for _, options in settings]
        print(f"{name:<20}" + "".join(f"{elbo:>14.2f}{loss:>10.4f}" for elbo, loss in found), flush=True)


if __name__ == "__main__":
    main()
