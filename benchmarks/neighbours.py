"""Gaussian processes of many rows: nearest neighbours beside inducing points, learned and scored on held-out rows.

    python benchmarks/neighbours.py [--sizes 3000 10000] [--columns 1 2 3 6] [--lengths short long] [--methods ...]
    python benchmarks/neighbours.py --points 500              so many inducing points, in place of as many as it takes
    python benchmarks/neighbours.py --neighbors 10 20 40      how many neighbours: elbo, score, processor seconds

The truth is a Matern 3/2 process of sd 1 on a cube of side 1, by random Fourier features; y are counts. "long": fifty
cells of side one length fill the cube; "short": there are ten rows in each such cell. Learning starts at three times
the length, and a thousand further rows are scored. "score" is their mean log predictive probability in nats, "truth"
that with eta known; "cpu" are processor seconds of the fit and "predict" of the scores; "bound" is what inducing points
cost at most, "twice" by how much the elbo changes with twice as many neighbours.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy.stats import poisson
from sklearn.gaussian_process.kernels import Matern

from fenchel import GaussianProcessPoissonRegressor

FEATURES, TESTED, CELLS, ROWS_A_CELL = 2000, 1000, 50.0, 10.0


def true_length(n: int, d: int, word: str) -> float:
    cells = CELLS if word == "long" else n / ROWS_A_CELL
    return float(cells ** (-1.0 / d))


def field(X: np.ndarray, length: float, rng: np.random.Generator) -> np.ndarray:
    """A draw at points: frequencies of a Matern 3/2 are those of a t with 3 degrees of freedom."""
    d = X.shape[1]
    w = rng.normal(size=(FEATURES, d)) / np.sqrt(rng.chisquare(3, FEATURES) / 3)[:, None] / length
    phase, out = rng.uniform(0, 2 * np.pi, FEATURES), np.empty(len(X))
    for part in np.array_split(np.arange(len(X)), max(1, len(X) // 2_000)):
        out[part] = np.cos(X[part] @ w.T + phase).sum(axis=1) * np.sqrt(2 / FEATURES)
    return out


def rows(n: int, d: int, word: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, counts and eta of n rows and of those held out."""
    rng = np.random.default_rng(seed)
    X = rng.random((n + TESTED, d))
    eta = field(X, true_length(n, d, word), rng)
    return X, rng.poisson(np.exp(eta)), eta


def case(n: int, d: int, word: str, method: str, n_neighbors: int, points: str) -> str:
    X, y, eta = rows(n, d, word)
    length = 3.0 * true_length(n, d, word)
    kernel = 1.0 * Matern(length, (1e-3 * length, 1e2 * length), nu=1.5)
    n_inducing = points if points == "auto" else int(points)
    settings = {"n_neighbors": n_neighbors, "n_inducing": n_inducing}
    model = GaussianProcessPoissonRegressor(kernel, approximation=method, **settings)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:n], y[:n])
    fitted = time.process_time()
    score = model.score(X[n:], y[n:])
    predicted = time.process_time() - fitted
    truth = float(poisson.logpmf(y[n:], np.exp(eta[n:])).mean())
    table = model.approximation_
    if method == "inducing":
        size, cost = int(table["n_inducing"].iloc[-1]), f"bound {model.approximation_loss_:.3g}"
    else:
        size, cost = n_neighbors, f"twice {table['elbo'].iloc[-1] - table['elbo'].iloc[0]:+.3g}"
    learned = float(np.exp(model.kernel_.theta[-1]))
    return (
        f"| {n} | {d} | {word} | {method} {size} | {fitted - began:.1f} | {predicted:.1f} | {model.elbo_:.1f} | {cost} "
        f"| {score:.4f} | {truth:.4f} | {learned / true_length(n, d, word):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3000, 10000])
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 2, 3, 6])
    parser.add_argument("--lengths", nargs="+", default=["short", "long"])
    parser.add_argument("--methods", nargs="+", default=["neighbours", "inducing"])
    parser.add_argument("--neighbors", type=int, nargs="+", default=[20])
    parser.add_argument("--points", default="auto", help="inducing points: a number or auto")
    given = parser.parse_args()
    print("| rows | columns | length | method | cpu | predict | elbo | cost | score | truth | length / true |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for n in given.sizes:
        for d in given.columns:
            for word in given.lengths:
                for method in given.methods:
                    for m in given.neighbors if method == "neighbours" else given.neighbors[:1]:
                        print(case(n, d, word, method, m, given.points), flush=True)


if __name__ == "__main__":
    main()
