"""Several classes: the learned variance and the test loss of linear softmax models, bound by bound.

    python benchmarks/classes.py                 some three minutes on one core

Means over six splits, two thirds of the rows to learn from (of 900 for digits). "best" is what
``BayesianLogisticRegression`` does by itself. "lower" counts the splits on which a model's loss is below that of
LogisticRegressionCV. Seconds are those of the processor.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fenchel.datasets import load_glass
from fenchel.estimators import BayesianLogisticRegression

TABLES = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
SPLITS = 6
FEW = 20  # tables of ten rows


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "glass":
        glass = load_glass()
        return glass.X, glass.y.astype(int)
    X, y = TABLES[name](return_X_y=True)
    return X, y


def split(X: np.ndarray, y: np.ndarray, seed: int) -> list[np.ndarray]:
    """Training and test rows, and their labels."""
    some = np.random.default_rng(seed).permutation(len(y))[:900]
    return train_test_split(X[some], y[some], test_size=1 / 3, random_state=seed, stratify=y[some])


def cross_validated() -> Any:
    search = LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=1000, use_legacy_attributes=False)
    return make_pipeline(StandardScaler(), search)


MODELS: dict[str, Callable[[], Any]] = {
    '"best"': BayesianLogisticRegression,
    '"tilted"': lambda: BayesianLogisticRegression(bound="tilted"),
    "one against the rest": lambda: OneVsRestClassifier(BayesianLogisticRegression()),
    "LogisticRegressionCV": cross_validated,
}


def compare(name: str) -> None:
    """One line for each model."""
    X, y = rows(name)
    found: dict[str, list[tuple[float, float, float]]] = {label: [] for label in MODELS}
    for seed in range(SPLITS):
        train, test, labels, answer = split(X, y, seed)
        for label, make in MODELS.items():
            since = time.process_time()
            model = make().fit(train, labels)
            took = time.process_time() - since
            loss = log_loss(answer, model.predict_proba(test))
            found[label].append((loss, took, getattr(model, "variance_", np.nan)))
    reference = np.array(found["LogisticRegressionCV"])[:, 0]
    for label, each in found.items():
        loss, took, variance = np.array(each).T
        words = "" if np.isnan(variance).any() else f"{np.median(variance):.3g}"
        lower = f"{np.sum(loss < reference)} of {SPLITS}"
        print(f"| {name} | {label} | {words} | {loss.mean():.3f} | {lower} | {took.mean():.1f} |", flush=True)


def ten_rows() -> None:
    losses = []
    for seed in range(FEW):
        X, y = make_classification(510, n_features=20, n_informative=10, n_classes=3, random_state=seed)
        models = BayesianLogisticRegression(), OneVsRestClassifier(BayesianLogisticRegression())
        losses.append([log_loss(y[10:], m.fit(X[:10], y[:10]).predict_proba(X[10:])) for m in models])
    mean, apart = np.mean(losses, axis=0), np.diff(losses, axis=1)
    error = apart.std() / np.sqrt(FEW)
    print(f"\nten rows: softmax {mean[0]:.3f}, one against the rest {mean[1]:.3f}, se of the difference {error:.3f}")


def main() -> None:
    warnings.simplefilter("ignore")
    print("| table | model | variance | test log loss | lower | s |\n|---|---|---|---|---|---|")
    for name in ("iris", "wine", "glass", "digits"):
        compare(name)
    ten_rows()


if __name__ == "__main__":
    main()
