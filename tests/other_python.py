"""Every kind of fit, saved under one Python and loaded under another.

    python tests/other_python.py save FOLDER      fits, files of them, and what they answer
    python tests/other_python.py load FOLDER      the files, and whether they answer the same

Run the second with another interpreter that has fenchel and its dependencies. It compares two things. Stored numbers:
what was saved is saved again and every array is compared bit by bit, whatever the libraries. Predictions: a file keeps
where the fit ended, and one factorisation makes the fit again, so they are the same up to rounding: ROUNDING where
numpy, scipy, numba and the processor are the same, 1e-9 where they differ.
"""

from __future__ import annotations

import platform
import sys
import warnings
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fenchel
from fenchel import estimators
from fenchel.checks import Refusal
from fenchel.hyperparameters import KernelCovariance, learn
from fenchel.hyperparameters import grid as grid_of

RNG = np.random.default_rng(0)
N = 24
X, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(7, 2))
Y = X @ [1.0, -1.0] + 0.3 * RNG.normal(size=N)
K = RNG.poisson(2.0, N)
TABLE = pd.DataFrame({"x": X[:, 0], "g": np.repeat(list("abcdef"), 4), "t": np.tile(np.arange(4), 6), "y": Y, "k": K})
TABLE["time"], TABLE["died"] = RNG.exponential(1.0, N) + 0.1, RNG.integers(0, 2, N)
TABLE["word"] = np.array(["p", "q", "r"])[np.digitize(Y, [-0.7, 0.7])]
TABLE["level"] = pd.Categorical(TABLE.word, ordered=True)
TABLE["many"] = np.where(RNG.random(N) < 0.4, 0, K + 1)
FRAME = pd.DataFrame({"r": np.arange(N) % 5, "x": X[:, 0]})
RING = np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)
CELLS = pd.DataFrame({"a": Y, "b": X[:, 0] - Y, "c": (Y > 0).astype(float), "d": K})
CELLS.iloc[3, 0] = np.nan
COVARIANCE = np.exp(-0.5 * np.subtract.outer(X[:, 0], X[:, 0]) ** 2) + 1e-6 * np.eye(N)
Ask = Callable[[Any], Any]
ROUNDING = 1e-12  # of a prediction, relative to its size or to 1


def kernel() -> Any:
    from sklearn.gaussian_process.kernels import RBF

    return 1.0 * RBF(1.0)


def length() -> Any:
    from sklearn.gaussian_process.kernels import RBF

    return RBF(1.0)


def moments(e: Any) -> Any:
    return np.stack(e.latent_mean_and_variance(NEW))


def rows(f: Any) -> Any:
    return f.predict(TABLE.iloc[:5], interval=0.9).to_numpy()


def marginals(s: Any) -> Any:
    post = getattr(s, "posterior", s)
    new = post.predict(cross=COVARIANCE[:5], variance=np.diagonal(COVARIANCE)[:5], mean=0.0)
    return np.concatenate([np.asarray(post.mean), np.asarray(post.variance), *map(np.asarray, new)])


def several(f: Any) -> Any:
    return f.predict(TABLE.iloc[:5]).to_numpy(dtype=float)


def solution(likelihood: Any = None, y: Any = None) -> Any:
    prior = fenchel.DenseCovariance(COVARIANCE)
    return fenchel.infer(
        fenchel.BernoulliLogit("log-sum") if likelihood is None else likelihood, prior, Y > 0 if y is None else y
    )


def fits() -> dict[str, tuple[Callable[[], Any], Ask]]:
    """What is saved: how it is fitted, and what it is asked."""
    gp, fit = {"kernel": kernel()}, fenchel.fit
    return {
        "linear": (lambda: fenchel.BayesianLinearRegression().fit(X, Y), moments),
        "logistic": (lambda: fenchel.BayesianLogisticRegression().fit(X, TABLE.word), lambda e: e.predict_proba(NEW)),
        "poisson": (lambda: fenchel.BayesianPoissonRegression().fit(X, K), lambda e: e.predict(NEW)),
        "gp two classes": (
            lambda: fenchel.GaussianProcessClassifier(**gp).fit(X, Y > 0),
            lambda e: e.predict_proba(NEW),
        ),
        "gp three classes": (lambda: fenchel.GaussianProcessClassifier(**gp).fit(X, TABLE.word), moments),
        "gp integrated": (lambda: fenchel.GaussianProcessClassifier(length(), integrate="grid").fit(X, Y > 0), moments),
        "gp counts": (lambda: fenchel.GaussianProcessPoissonRegressor(**gp).fit(X, K), moments),
        "gp some rows": (
            lambda: fenchel.GaussianProcessRegressor(**gp).fit(X, Y, sample_weight=np.arange(N) > 3),
            moments,
        ),
        "gp fixed": (lambda: fenchel.GaussianProcessRegressor(kernel(), optimizer=None).fit(X, Y), moments),
        "map": (
            lambda: fenchel.FormulaRegressor("k ~ . + icar(r)", "poisson", graphs={"r": RING}).fit(FRAME, K),
            lambda e: np.stack(e.predict(FRAME, return_std=True)),
        ),
        "volatility": (
            lambda: fit("y ~ ar1(t)", {"t": np.arange(N), "y": Y}, "stochastic-volatility"),
            lambda f: np.asarray(f.predict(None, "link", interval=0.9)),
        ),
        "factors": (lambda: fenchel.ProbabilisticPCA(2).fit(X), lambda e: e.transform(NEW)),
        "factors mixed": (
            lambda: fenchel.ProbabilisticPCA(
                1, likelihood={"a": "gaussian", "b": "gaussian", "c": "bernoulli", "d": "poisson"}
            ).fit(CELLS),
            lambda e: np.asarray(e.transform(CELLS)),
        ),
        "model": (lambda: fit("y ~ x + (1|g)", TABLE), rows),
        "model counts": (lambda: fit("k ~ bs(x, df=4) + rw1(t)", TABLE, "poisson"), rows),
        "model ordinal": (lambda: fit("level ~ x", TABLE, "ordinal"), several),
        "model process": (lambda: fit("y ~ gp(x)", TABLE), rows),
        "model corrected": (lambda: fit("k ~ x + (1|g)", TABLE, "poisson").corrected(), rows),
        "model integrated": (lambda: fit("k ~ x + (1|g)", TABLE, "poisson", integrate=True), rows),
        "hurdle": (lambda: fit("many ~ x", TABLE, "hurdle-poisson", zero="~ x + (1|g)"), rows),
        "multinomial": (lambda: fit("word ~ x", TABLE, "multinomial"), several),
        "cox": (lambda: fit("cens(time, died) ~ x", TABLE, "cox"), lambda f: f.coefficients.to_numpy()),
        "solution": (solution, marginals),
        "solution of rows": (
            lambda: fenchel.infer(fenchel.Poisson(), fenchel.Features(X), K),
            lambda s: np.stack([s.posterior.mean, s.posterior.variance]),
        ),
        "solution of counts": (lambda: solution(fenchel.Poisson(), K), marginals),
        "corrected": (lambda: solution().corrected(), lambda c: np.stack([c.mean, c.variance, c.quantile(0.9)])),
        "importance": (lambda: solution().importance(256), lambda c: np.stack([c.mean, c.variance])),
        "learned": (
            lambda: learn(fenchel.Poisson(), KernelCovariance(kernel(), X[:, :1]), K),
            lambda f: np.asarray(f.solution.posterior.sample(2, 0)),
        ),
        "integrated": (
            lambda: fenchel.integrate(fenchel.Poisson(), KernelCovariance(kernel(), X[:, :1]), K, method="ccd"),
            lambda f: np.stack([f.mean, f.variance]),
        ),
        "grid": (
            lambda: grid_of(fenchel.Poisson(), KernelCovariance(kernel(), X[:, :1]), K, [np.zeros(1), np.zeros(1)]),
            lambda f: np.asarray(f.solution.posterior.mean),
        ),
        "relevance": (lambda: estimators.BayesianLinearRegression("ard").fit(X, Y), moments),
    }


def made(name: str) -> Any:
    """One of the fits, its warnings left to the tests of models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fits()[name][0]()


def asked(name: str, fit: Any) -> np.ndarray:
    """What a fit answers."""
    return np.asarray(fits()[name][1](fit), dtype=np.float64)


def save(folder: Path) -> dict[str, Any]:
    """Fit and save all, and keep their answers."""
    out = {}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libraries.txt").write_text(libraries())
    (folder / "python.txt").write_text(sys.version.split()[0])
    for name in fits():
        fit = out[name] = made(name)
        fit.save(folder / f"{name}.fenchel")
        np.save(folder / f"{name}.npy", asked(name, fit))
        print(f"{name:20}{(folder / f'{name}.fenchel').stat().st_size:>10} bytes", flush=True)
    return out


def libraries() -> str:
    """Whose arithmetic predictions are."""
    named = ("numpy", "scipy", "numba", "scikit-learn", "pandas", "formulaic")
    return ", ".join(f"{name} {version(name)}" for name in named) + f" on {platform.machine()}"


def stored_numbers(first: Path, second: Path) -> bool:
    """Whether two files have the same arrays, bit by bit."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        names = [info.filename for info in one.infolist()]
        if names != [info.filename for info in other.infolist()]:
            return False
        return all(one.read(name) == other.read(name) for name in names if name.endswith(".npy"))


def difference(before: np.ndarray, now: np.ndarray) -> float:
    """The largest, relative to the size of a number or to 1."""
    if before.shape != now.shape or not np.array_equal(np.isnan(before), np.isnan(now)):
        return np.inf
    return float(np.nanmax(np.abs(now - before) / np.maximum(1.0, np.abs(before)), initial=0.0))


def load(folder: Path) -> int:
    """Load all and compare; how many differ."""
    wrong, exact, again = 0, 0, folder / "again.fenchel"
    same_libraries = (folder / "libraries.txt").read_text() == libraries()
    for name in fits():
        try:
            fit = fenchel.load(folder / f"{name}.fenchel")
        except Refusal as error:
            print(f"{name:20}REFUSED: {error}")
            wrong += 1
            continue
        fit.save(again)
        same = stored_numbers(folder / f"{name}.fenchel", again)
        before, now = np.load(folder / f"{name}.npy"), asked(name, fit)
        apart = difference(before, now)
        wrong += not same or not apart <= (ROUNDING if same_libraries else 1e-9)
        exact += apart == 0.0
        said = "identical" if apart == 0.0 else f"{apart:.1e} apart"
        print(f"{name:20}stored numbers {'identical' if same else 'DIFFER':12}predictions {said}", flush=True)
    again.unlink(missing_ok=True)
    print(f"Python {sys.version.split()[0]} after {(folder / 'python.txt').read_text()}, {libraries()}")
    print(f"of {len(fits())} fits {exact} predict the same to the last bit, others to rounding; {wrong} are wrong")
    return wrong


if __name__ == "__main__":
    command, where = sys.argv[1:]
    sys.exit(0 if command == "save" and save(Path(where)) else load(Path(where)))
