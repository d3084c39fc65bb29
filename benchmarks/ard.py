"""A variance for each coefficient: prior="ard" beside "ridge", the textbook's flat ARD and scikit-learn.

    python benchmarks/ard.py             test log losses over random splits, about three minutes on one core
    python benchmarks/ard.py --splits 2  quicker

The prior of the variances was designed on the first block of tables; the second was run when it stood. Differences are
from ridge, mean +- standard error over splits: below zero ARD is better.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ARDRegression, BayesianRidge, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from fenchel.datasets import load_glass, load_house_votes, load_pima, load_verbal_aggression, load_zoo
from fenchel.estimators import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from fenchel.hyperparameters import learn

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y of training; X, y of test


class FlatLogistic(BayesianLogisticRegression):
    """The textbook's: nothing holds the variances together."""

    def _search(self, likelihood: Any, family: Any, y: Any, **options: Any) -> Any:
        return learn(likelihood, family, y, **options)


class FlatPoisson(BayesianPoissonRegression):
    _search = FlatLogistic._search


class FlatLinear(BayesianLinearRegression):
    _search = FlatLogistic._search


# -- tables ----------------------------------------------------------------------------------------
def rows(X: np.ndarray, y: np.ndarray, n: int) -> Callable[[int], Split]:
    """n random rows to train on, the others to test."""

    def split(seed: int) -> Split:
        order = np.random.default_rng(seed).permutation(len(y))
        return X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]]

    return split


def drawn(n: int, d: int, relevant: int, size: float, kind: str = "labels", shared: float = 0.0, laplace: bool = False):
    """Some of many features matter, all alike or by Laplace's law; correlation ``shared`` between any two."""

    def split(seed: int) -> Split:
        rng = np.random.default_rng(seed + 1000)
        X = np.sqrt(1 - shared) * rng.normal(size=(n + 1000, d)) + np.sqrt(shared) * rng.normal(size=(n + 1000, 1))
        w = np.zeros(d)
        w[:relevant] = size * (rng.laplace(size=relevant) if laplace else rng.choice([-1, 1], relevant))
        if kind == "labels":
            y = (X @ w + rng.logistic(size=n + 1000) > 0).astype(float)
        else:
            y = rng.poisson(np.exp(X @ w)) if kind == "counts" else X @ w + rng.normal(size=n + 1000)
        return X[:n], y[:n], X[n:], y[n:]

    return split


def pair(data: Any, one: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    keep = np.isin(data.target, [one, other])
    return data.data[keep], (data.target[keep] == one).astype(int)


def labels() -> tuple[dict[str, Callable[[int], Split]], dict[str, Callable[[int], Split]]]:
    digits, wine, iris, diabetes, pima = load_digits(), load_wine(), load_iris(), load_diabetes(), load_pima()
    votes, verbal, glass, zoo = load_house_votes(), load_verbal_aggression(), load_glass(), load_zoo()
    high = (diabetes.target > np.median(diabetes.target)).astype(int)
    products = PolynomialFeatures(2, include_bias=False)
    windows = np.isin(glass.y, np.unique(glass.y)[:2])
    anger = (verbal.anger > np.median(verbal.anger)).astype(int)
    milk = list(zoo.feature_names).index("milk")
    design = {
        "breast cancer, 300 rows": rows(*load_breast_cancer(return_X_y=True), 300),
        "breast cancer, 60": rows(*load_breast_cancer(return_X_y=True), 60),
        "Pima, 200": rows(pima.X, pima.y, 200),
        "digits 3/8, 100": rows(*pair(digits, 3, 8), 100),
        "digits 4/9, 40": rows(*pair(digits, 4, 9), 40),
        "diabetes, 150": rows(diabetes.data, high, 150),
        "diabetes with products, 200": rows(products.fit_transform(diabetes.data), high, 200),
        "wine 1, 60": rows(wine.data, (wine.target == 1).astype(int), 60),
        "votes, 100": rows(np.nan_to_num(votes.X, nan=0.5), (votes.party == "democrat").astype(int), 100),
        "3 of 50 matter, 200": drawn(200, 50, 3, 1.5),
        "4 of 150 matter, 100": drawn(100, 150, 4, 2.5),
        "all 30 matter, 100": drawn(100, 30, 30, 0.4),
        "all 200 matter, 80": drawn(80, 200, 200, 0.25),
    }
    held = {
        "digits 2/7, 60 rows": rows(*pair(digits, 2, 7), 60),
        "digits 5/6, 150": rows(*pair(digits, 5, 6), 150),
        "digits 1/7, 300": rows(*pair(digits, 1, 7), 300),
        "wine 2, 50": rows(wine.data, (wine.target == 2).astype(int), 50),
        "iris 1/2 with products, 60": rows(products.fit_transform(pair(iris, 1, 2)[0]), pair(iris, 1, 2)[1], 60),
        "Pima with products, 300": rows(products.fit_transform(pima.X), pima.y, 300),
        "glass windows, 80": rows(
            np.asarray(glass.X)[windows], (glass.y[windows] == glass.y[windows][0]).astype(int), 80
        ),
        "verbal aggression: anger, 150": rows(np.asarray(verbal.X, dtype=float), anger, 150),
        "zoo: milk, 60": rows(
            np.delete(np.asarray(zoo.X, dtype=float), milk, 1), np.asarray(zoo.X)[:, milk].astype(int), 60
        ),
        "6 of 80 matter, 250": drawn(250, 80, 6, 0.8),
        "5 of 400 matter, 120": drawn(120, 400, 5, 2.0),
        "3 of 100 matter, correlated, 200": drawn(200, 100, 3, 1.0, shared=0.5),
        "60, sizes by Laplace, 150": drawn(150, 60, 60, 0.5, laplace=True),
        "all 150 matter, 60": drawn(60, 150, 150, 0.3),
        "none of 40 matters, 100": drawn(100, 40, 0, 0.0),
    }
    return design, held


def numbers() -> dict[str, Callable[[int], Split]]:
    diabetes = load_diabetes()
    products = PolynomialFeatures(2, include_bias=False).fit_transform(diabetes.data)
    return {
        "diabetes, 100 rows": rows(diabetes.data, diabetes.target, 100),
        "diabetes with products, 200": rows(products, diabetes.target, 200),
        "3 of 50 matter, 80": drawn(80, 50, 3, 1.0, "numbers"),
        "4 of 150 matter, 80": drawn(80, 150, 4, 1.0, "numbers"),
        "all 40 matter, 60": drawn(60, 40, 40, 0.4, "numbers"),
    }


def counts() -> dict[str, Callable[[int], Split]]:
    return {
        "3 of 50 matter, 150 rows": drawn(150, 50, 3, 0.4, "counts"),
        "3 of 100 matter, 80": drawn(80, 100, 3, 0.5, "counts"),
        "all 30 matter, 100": drawn(100, 30, 30, 0.15, "counts"),
    }


# -- judging ---------------------------------------------------------------------------------------
def proba_loss(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(log_loss(y, model.predict_proba(X), labels=[0, 1]))


def normal_loss(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """-mean log N(y; predictive mean and sd)."""
    mean, sd = model.predict(X, return_std=True)
    return float(np.mean(0.5 * ((y - mean) / sd) ** 2 + np.log(sd * np.sqrt(2 * np.pi))))


def own_loss(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return -float(model.score(X, y))


Rivals = dict[str, tuple[Callable[[], Any], Callable[..., float]]]
LABELS: Rivals = {
    "ridge": (BayesianLogisticRegression, proba_loss),
    "ard": (lambda: BayesianLogisticRegression("ard"), proba_loss),
    "flat ard": (lambda: FlatLogistic("ard"), proba_loss),
    "sklearn CV": (
        lambda: make_pipeline(
            StandardScaler(), LogisticRegressionCV(Cs=np.logspace(-4, 3, 15), scoring="neg_log_loss", max_iter=3000)
        ),
        proba_loss,
    ),
}
NUMBERS: Rivals = {
    "ridge": (BayesianLinearRegression, own_loss),
    "ard": (lambda: BayesianLinearRegression("ard"), own_loss),
    "flat ard": (lambda: FlatLinear("ard"), own_loss),
    "sklearn ARD": (lambda: make_pipeline(StandardScaler(), ARDRegression()), normal_loss),
    "sklearn ridge": (lambda: make_pipeline(StandardScaler(), BayesianRidge()), normal_loss),
}
COUNTS: Rivals = {
    "ridge": (BayesianPoissonRegression, own_loss),
    "ard": (lambda: BayesianPoissonRegression("ard"), own_loss),
    "flat ard": (lambda: FlatPoisson("ard"), own_loss),
}


def compare(title: str, tables: dict[str, Callable[[int], Split]], rivals: Rivals, n_splits: int) -> None:
    names = list(rivals)
    print(f"\n{title}\n\n| table | features | ridge | " + " | ".join(f"{n} - ridge" for n in names[1:]), end="")
    print(" | widest ARD - ridge | width |\n|---|---|---|" + "---|" * (len(names) + 1))
    means, converged, seconds = [], [], dict.fromkeys(names, 0.0)
    for table, split in tables.items():
        losses, widths = np.zeros((n_splits, len(names))), []
        for seed in range(n_splits):
            X, y, X_new, y_new = split(seed)
            for k, (name, (make, loss)) in enumerate(rivals.items()):
                began = time.process_time()
                model = make().fit(X, y)
                seconds[name] += time.process_time() - began
                losses[seed, k] = loss(model, X_new, y_new)
                if name == "ard":
                    converged.append(model.converged_)
                    widths.append(model.relevance_spread_)
        away = losses[:, 1:] - losses[:, :1]
        error = away.std(axis=0, ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.full(len(names) - 1, np.nan)
        cells = [f"{m:+.3f} +- {e:.3f}" for m, e in zip(away.mean(axis=0), error, strict=True)]
        means.append(away.mean(axis=0))
        print(f"| {table} | {X.shape[1]} | {losses[:, 0].mean():.3f} | " + " | ".join(cells), end="")
        print(f" | {away[:, 0].max():+.3f} | {np.median(widths):g} |", flush=True)
    print("| mean | | | " + " | ".join(f"{m:+.3f}" for m in np.mean(means, axis=0)) + " | | |")
    print(f"\nard converged in {sum(converged)} of {len(converged)} fits; CPU seconds in all: ", end="")
    print(", ".join(f"{name} {s:.1f}" for name, s in seconds.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=6)
    n_splits = parser.parse_args().splits
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    design, held = labels()
    compare("Labels, log loss: tables of the design", design, LABELS, n_splits)
    compare("Labels, log loss: held out", held, LABELS, n_splits)
    compare("Numbers, -log predictive density", numbers(), NUMBERS, n_splits)
    compare("Counts, -log predictive probability", counts(), COUNTS, n_splits)


if __name__ == "__main__":
    main()
