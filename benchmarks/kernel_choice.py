"""What a Gaussian process gains where the evidence chooses its kernel: held-out log loss or NLPD, RMSE and seconds.

    python benchmarks/kernel_choice.py            twelve tables, 400 rows to learn from, two splits
    python benchmarks/kernel_choice.py small      the price with 50 to 400 rows
    python benchmarks/kernel_choice.py --quick    three tables of scikit-learn's, one split

"before" is the default that was: an RBF of one length, in units chosen by 100 rows. The columns behind "choice" are
single kernels of one length, from the same start. Large tables are read from ../shared/data/large beside the
repository, and left out where they are not there.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.metrics import log_loss

from fenchel.datasets import load_glass, load_pima
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessRegressor, gaussian_process
from fenchel.estimators.chosen_kernel import ChosenKernel, chosen_kernel
from fenchel.estimators.lengths import kernel_part, kernel_starts, scaled_by
from fenchel.hyperparameters.kernel_choice import KernelShape
from fenchel.scaled_kernels import ScaledRBF

Table = tuple[str, np.ndarray, np.ndarray, bool]  # name, X, y, whether y are labels
LARGE = Path(__file__).parent.parent.parent / "shared" / "data" / "large"
FIRST_SPLIT = 100  # splits 0 to 3 set what a length has to gain
WORDS = ("rbf", "matern52", "matern32", "matern12")


def tables(quick: bool) -> Iterator[Table]:
    yield "breast cancer", *load_breast_cancer(return_X_y=True), True
    yield "wine", *load_wine(return_X_y=True), True
    yield "diabetes", *load_diabetes(return_X_y=True), False
    if quick:
        return
    pima, glass = load_pima(), load_glass()
    yield "pima", pima.X, pima.y, True
    yield "glass", glass.X, glass.y, True
    X, y = load_digits(return_X_y=True)
    two = (y == 3) | (y == 5)
    yield "digits 3, 5", X[two], y[two], True
    for name, labels in (
        ("credit", True),
        ("adult", True),
        ("kin40k", False),
        ("protein", False),
        ("elevators", False),
        ("bike", False),
    ):
        path = LARGE / f"{name}.csv.gz"
        if path.exists():
            data = pd.read_csv(path)
            yield name, data.drop(columns=["y", "test"], errors="ignore").to_numpy(float), data["y"].to_numpy(), labels


def before(target: Any, weights: Any, latent: Any, own: bool) -> ChosenKernel:
    """The default that was."""
    return ChosenKernel(kernel_starts(target, weights, latent)[0])


def fixed(word: str) -> Any:
    """One kernel for all, with one length, from the start of the default that was."""

    def chosen(target: Any, weights: Any, latent: Any, own: bool) -> ChosenKernel:
        start = kernel_starts(target, weights, latent)[0]
        part = start.k2
        units = part.units if type(part) is ScaledRBF else None
        made = kernel_part(KernelShape(word), part.length_scale, part.length_scale_bounds, units)
        return ChosenKernel(scaled_by(start.k1.constant_value, made))

    return chosen


def learned(X: np.ndarray, y: np.ndarray, labels: bool, choose: Any) -> tuple[Any, float]:
    gaussian_process.chosen_kernel = choose
    model, began = (GaussianProcessClassifier if labels else GaussianProcessRegressor)(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return model, time.perf_counter() - began


def scores(model: Any, X: np.ndarray, y: np.ndarray, labels: bool) -> tuple[float, float]:
    """Log loss or NLPD, and RMSE of what is not a label."""
    if labels:
        return log_loss(y, model.predict_proba(X), labels=model.classes_), np.nan
    return -model.score(X, y), float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def compare(n: int, seeds: int, quick: bool) -> None:
    makers = {"before": before, "choice": chosen_kernel, **{word: fixed(word) for word in WORDS}}
    print(f"{'':<15}{'':>5}" + "".join(f"{name:>10}" for name in makers) + "   seconds, before and choice; chosen")
    gains, n_better = [], 0
    for name, X, y, labels in tables(quick):
        for seed in range(FIRST_SPLIT, FIRST_SPLIT + seeds):
            order = np.random.default_rng(seed).permutation(len(y))
            train = order[: min(n, int(0.75 * len(y)))]
            test = order[train.size : train.size + 2000]
            found, rmse, seconds, choice = [], [], [], None
            for choose in makers.values():
                model, spent = learned(X[train], y[train], labels, choose)
                loss, error = scores(model, X[test], y[test], labels)
                found, rmse, seconds = [*found, loss], [*rmse, error], [*seconds, spent]
                if choose is chosen_kernel:
                    choice = model.kernel_choice_
            chosen = choice[choice["chosen"]].iloc[0]
            words = f"{chosen['kernel']}, {chosen['lengths']} of {X.shape[1]} lengths"
            line = f"{name:<15}{train.size:>5}" + "".join(f"{x:>10.4f}" for x in found)
            print(f"{line}{seconds[0]:>9.2f}{seconds[1]:>7.2f}; {words}", flush=True)
            if not labels:
                print(f"{'  RMSE':<20}" + "".join(f"{x:>10.4g}" for x in rmse), flush=True)
            gains.append(found[0] - found[1])
            n_better += found[1] <= found[0] + 1e-4
    print(f"\nthe choice is at least as good as before in {n_better} of {len(gains)} splits", end="")
    print(
        f"; what it gains a row: {np.mean(gains):.4f} on average, {min(gains):.4f} at worst, {max(gains):.4f} at best"
    )


def small(repeats: int) -> None:
    """The price with few rows."""
    print(f"{'':<15}{'rows':>6}{'before, s':>11}{'choice, s':>11}{'ratio':>8}")
    for name, X, y, labels in tables(True):
        for n in (50, 100, 200, 400):
            rows = np.random.default_rng(0).permutation(len(y))[:n]
            if rows.size < n:
                continue
            turns = np.array(
                [
                    [learned(X[rows], y[rows], labels, choose)[1] for choose in (before, chosen_kernel)]
                    for _ in range(repeats)
                ]
            )
            one, other = np.median(turns, axis=0)
            print(f"{name:<15}{n:>6}{one:>11.3f}{other:>11.3f}{np.median(turns[:, 1] / turns[:, 0]):>8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("all", "small"), default="all")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.part == "small":
        small(1 if asked.quick else 5)
    else:
        compare(asked.rows, 1 if asked.quick else asked.splits, asked.quick)


if __name__ == "__main__":
    main()
