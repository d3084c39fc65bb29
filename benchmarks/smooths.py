"""Smooths of formulas beside those of mgcv: the same curves, on data simulated and real, basis by basis.

Distances are of eta on a grid, on average, in standard errors of mgcv's curve; the next column is the average of our sd
over its standard error. mgcv chooses smoothing by REML, that is by the evidence with flat priors of the log smoothing
parameters and of the lines: ours has flat priors of log sd (priors={term: None}) and a wide one of fixed effects, and
the elbo where mgcv has Laplace's evidence. The last column is the distance with our default priors.

    python benchmarks/smooths.py                 # against the stored figures of smooths.json
    python benchmarks/smooths.py --data DIR      # writes the data for smooths.R, which makes them
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import fenchel
from fenchel.datasets import load_coal, load_pima
from fenchel.models.grammar import parse

FIGURES = Path(__file__).with_name("smooths.json")
BASES = ("cr", "ps", "tp", "cc")
WIDE = 1e3  # prior sd of what one sd of a fixed column does
Made = tuple[pd.DataFrame, pd.DataFrame]  # the rows, and where curves are compared


# -- data ---------------------------------------------------------------------------------------------------
def bumps(n: int = 400) -> Made:
    """Two bumps about a valley, as in example 1 of Gu and Wahba (1991), with noise of sd 2."""
    rng = np.random.default_rng(1)
    x = rng.random(n)
    f = 0.2 * x**11 * (10 * (1 - x)) ** 6 + 10 * (10 * x) ** 3 * (1 - x) ** 10
    return pd.DataFrame({"x": x, "y": f + 2 * rng.standard_normal(n)}), _along("x", x)


def coal() -> Made:
    """Disasters a year, counts."""
    data = load_coal()
    return pd.DataFrame({"x": data.year, "y": data.count}), _along("x", data.year)


def pima() -> Made:
    """Diabetes by plasma glucose, binary."""
    data = load_pima()
    glucose = data.X[:, data.feature_names.index("glu")]
    return pd.DataFrame({"x": glucose, "y": data.y}), _along("x", glucose)


def surface(n: int = 500) -> Made:
    """Two hills over a square, one high and one low, with noise of sd 0.3."""
    rng = np.random.default_rng(2)
    x, z = rng.random(n), rng.random(n)
    hill = lambda a, b, height: height * np.exp(-(((x - a) / 0.3) ** 2) - ((z - b) / 0.4) ** 2)
    y = 1.9 * (hill(0.2, 0.3, 1.2) + hill(0.7, 0.8, 0.8)) + 0.3 * rng.standard_normal(n)
    side = np.linspace(0.05, 0.95, 10)
    grid = pd.DataFrame({"x": np.repeat(side, 10), "z": np.tile(side, 10)})
    return pd.DataFrame({"x": x, "z": z, "y": y}), grid


def land(n: int = 300) -> Made:
    """A wave over a strip of land, 10 km by 3 km, with noise of sd 0.5."""
    rng = np.random.default_rng(4)
    x, z = 10 * rng.random(n), 3 * rng.random(n)
    y = np.sin(x / 1.5) * np.cos(z) + 0.5 * rng.standard_normal(n)
    grid = pd.DataFrame({"x": np.repeat(np.linspace(0.5, 9.5, 12), 5), "z": np.tile(np.linspace(0.2, 2.8, 5), 12)})
    return pd.DataFrame({"x": x, "z": z, "y": y}), grid


def groups(n: int = 600) -> Made:
    """Counts about a wave for each of three groups, and a slope that varies with x."""
    rng = np.random.default_rng(3)
    x, g, w = rng.random(n), rng.integers(0, 3, n), rng.uniform(-1.0, 1.0, n)
    eta = 1.0 + np.array([np.sin(5 * x), 1.2 * x, 0.5 * np.cos(9 * x)])[g, np.arange(n)] + w * (x - 0.5) ** 2
    data = pd.DataFrame({"x": x, "g": np.array(["a", "b", "c"])[g], "w": w, "y": rng.poisson(np.exp(eta))})
    side = np.linspace(0.0, 1.0, 30)
    grid = pd.DataFrame(
        {"x": np.tile(side, 3), "g": np.repeat(["a", "b", "c"], 30), "w": np.tile([-0.5, 0.2, 0.9], 30)}
    )
    return data, grid


def _along(name: str, x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({name: np.linspace(x.min(), x.max(), 60)})


DATA: dict[str, Callable[[], Made]] = {f.__name__: f for f in (bumps, coal, pima, surface, land, groups)}


# -- cases --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """A model of one data set, in a formula that mgcv and we read alike, or in mgcv's own words, too."""

    data: str
    formula: str
    family: str  # R's word
    theirs: str = ""

    @property
    def name(self) -> str:
        return f"{self.data}: {self.formula}"

    @property
    def ours(self) -> str:
        return {"gaussian": "gaussian", "poisson": "poisson", "binomial": "bernoulli"}[self.family]

    def fit(self, flat: bool) -> tuple[np.ndarray, np.ndarray, float]:
        """eta and its sd on the grid, and seconds; with flat priors, or our default ones."""
        rows, grid = DATA[self.data]()
        priors = None
        if flat:
            priors = {str(part.text): None for part in parse(self.formula).terms}
            priors |= {"noise": None} if self.family == "gaussian" else {}
        start = time.perf_counter()
        model = fenchel.Model(self.formula, rows, self.ours, fixed_sd=WIDE if flat else 10.0, priors=priors)
        fitted = model.fit(accuracy="fast")
        seconds = time.perf_counter() - start
        if not fitted.converged:
            raise SystemExit(f"{self.name} did not converge: {fitted.found.status}")
        at = fitted.predict(grid, kind="link", interval=0.682689492137086)  # one sd either way
        return at["mean"].to_numpy(), ((at["upper"] - at["lower"]) / 2).to_numpy(), seconds


SETS = (("bumps", "gaussian"), ("coal", "poisson"), ("pima", "binomial"))
CASES = [Case(data, f'y ~ s(x, bs="{bs}", k=10)', family) for data, family in SETS for bs in BASES]
CASES += [Case("surface", "y ~ te(x, z)", "gaussian"), Case("surface", 'y ~ s(x, z, bs="tp", k=30)', "gaussian")]
CASES += [Case("surface", 'y ~ te(x, z, bs="ps", k=6)', "gaussian")]
CASES += [Case("surface", 'y ~ s(x, bs="cr", k=10) + s(z, bs="cr", k=10) + ti(x, z)', "gaussian")]
CASES += [Case("land", "y ~ s(x, z, isotropic=True)", "gaussian", "y ~ s(x, z)")]
CASES += [Case("groups", 'y ~ g + s(x, by=g, bs="cr", k=10)', "poisson")]
CASES += [Case("groups", 'y ~ s(x, by=w, bs="cr", k=10)', "poisson")]


def write(folder: Path) -> None:
    """What smooths.R reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in DATA.items():
        rows, grid = make()
        rows.to_csv(folder / f"{name}.csv", index=False)
        grid.to_csv(folder / f"{name}_grid.csv", index=False)
    each = [{"name": c.name, "data": c.data, "formula": c.theirs or c.formula, "family": c.family} for c in CASES]
    pd.DataFrame(each).to_csv(folder / "cases.csv", index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="write the data and the cases for smooths.R into this folder")
    args = parser.parse_args()
    if args.data is not None:
        write(args.data)
        return
    stored = json.loads(FIGURES.read_text())
    print(f"mgcv {stored['versions']['mgcv']}, {stored['versions']['R']}")
    print(f"{'':<56}{'distance':>9}{'largest':>9}{'sd/se':>8}{'edf':>7}{'s':>7}{'mgcv s':>8}{'default':>9}")
    fenchel.fit("y ~ s(x)", DATA["coal"]()[0], "poisson")  # compiles
    for case in CASES:
        theirs = stored["cases"][case.name]
        if abs(theirs["total"] - DATA[case.data]()[0]["y"].sum()) > 1e-6:
            raise SystemExit(f"{case.data} is not the data of the stored figures: make them again")
        mean, se = np.array(theirs["mean"]), np.array(theirs["se"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            eta, sd, seconds = case.fit(True)
            away, default = np.abs(eta - mean) / se, np.abs(case.fit(False)[0] - mean) / se
        print(
            f"{case.name:<56}{away.mean():>9.3f}{away.max():>9.3f}{(sd / se).mean():>8.3f}{theirs['edf']:>7.1f}"
            f"{seconds:>7.2f}{theirs['seconds']:>8.2f}{default.mean():>9.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
