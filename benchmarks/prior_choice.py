"""What a prior of the sd of groups does to estimates and intervals, over simulated data sets.

    OPENBLAS_NUM_THREADS=1 python benchmarks/prior_choice.py [--sets 500] [--links gaussian logit] [--groups 3 6]
        [--check 20] [--out cells.csv]

Groups of equal size, eta = level + sd u, no covariates. A group is then known by its sum (labels, counts), its mean
(Gaussian) or its counts of levels (ordinal), so that the exact posterior of (level, sd) is a sum over a lattice, for
every data set and prior at once, without a fit. A Gaussian response has units of the sample sd of y, as
the default has, a flat prior of the level, and one of the log noise sd; levels of others are N(0, 10^2). Each cell has
five numbers:

    bias        median over data sets of the posterior median of sd, against the truth in % (truth 0: itself)
    error       root mean square of the log of the posterior median over the truth
    sd, level   share of 95 % intervals that hold the truth, in % (sd 0: share of lower ends below 0.1)
    width       of the level's interval, median of data sets, over the t interval of the group means (Gaussian, which
                holds the truth in 95 % whatever the sd) or over that of the first prior (all others)

``--check n`` fits the first n data sets of each cell by ``fenchel.fit`` and prints how far its median of sd (%) and the
ends of its interval of the level (in posterior sds) are from the lattice: median and largest over the data sets.
``--out`` appends each cell to a table when it is known, and skips those that the table has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr
from scipy.stats import chi2
from scipy.stats import t as student

NORMAL_QUANTILE = 1.959964
Prior = Callable[[np.ndarray], np.ndarray]  # log density of an sd, up to a constant


def half_normal(u: float) -> Prior:
    """P(sd > u) = .05."""
    return lambda s: -0.5 * (NORMAL_QUANTILE * s / u) ** 2


PRIORS: dict[str, Prior] = {
    "half-normal 5": half_normal(5.0),
    "half-normal 4": half_normal(4.0),
    "half-normal 3": half_normal(3.0),
    "half-normal 2.5": half_normal(2.5),
    "half-normal 2": half_normal(2.0),
    "exponential 3": lambda s: -np.log(20.0) / 3.0 * s,
    "half-t(3), 2.5": lambda s: -2.0 * np.log1p((s / 2.5) ** 2 / 3.0),
}
SDS = {
    "gaussian": (0.0, 0.3, 1.0, 3.0, 10.0),
    "logit": (0.0, 0.3, 1.0, 2.0, 4.0),
    "log": (0.0, 0.3, 1.0, 2.0),
    "ordinal": (0.3, 1.0, 2.0, 4.0),
}
FAMILIES = {"gaussian": "gaussian", "logit": "bernoulli", "log": "poisson", "ordinal": "ordinal"}
ROWS = {3: 20, 6: 10, 10: 8, 20: 8, 50: 4, 200: 4}  # of a group, by the number of groups
LEVEL = {"gaussian": -0.3, "logit": -0.3, "log": 0.7, "ordinal": 0.0}
CUTS = np.array([-1.0, 1.0])  # of ordinal levels; their distance is known, the level moves both
LEVEL_SD = 10.0
NEAR_ZERO = 0.1
STEP = 0.05  # of the lattice of eta, and the smallest sd
MEASURES = "bias", "error", "sd", "level", "width"


class Cell(NamedTuple):
    link: str
    groups: int
    sd: float


class Posteriors(NamedTuple):
    """Of every data set under one prior: quantiles of the sd, and both ends of the level's interval."""

    sd: np.ndarray  # (sets, 3): 2.5, 50 and 97.5 %
    level: np.ndarray  # (sets, 2)


Answer = Callable[[Prior], Posteriors]


def draw(cell: Cell, sets: int) -> np.ndarray:
    """Outcomes by data set, group and row."""
    rng = np.random.default_rng([cell.groups, round(10 * cell.sd), len(cell.link)])
    shape = sets, cell.groups, ROWS[cell.groups]
    eta = LEVEL[cell.link] + cell.sd * rng.normal(size=(*shape[:2], 1))
    if cell.link == "gaussian":
        return np.asarray(eta + rng.normal(size=shape))
    if cell.link == "logit":
        return (rng.random(shape) < expit(eta)).astype(int)
    if cell.link == "log":
        return rng.poisson(np.broadcast_to(np.exp(eta), shape))
    return np.digitize(eta + rng.logistic(size=shape), CUTS)


# -- exact posteriors of (level, sd) -------------------------------------------------------------------------
def edges(places: np.ndarray, first: float) -> np.ndarray:
    """Of the cells about places."""
    return np.concatenate([[first], (places[1:] + places[:-1]) / 2, places[-1:]])


SDS_TRIED = np.concatenate([[STEP], np.exp(np.linspace(np.log(0.07), np.log(25.0), 90))])
SD_EDGES = edges(SDS_TRIED, 0.0)  # the first cell goes down to 0


def quantiles(cell_edges: np.ndarray, weights: np.ndarray, at: float) -> np.ndarray:
    """Of every row of weights, linear within a cell."""
    total = np.cumsum(weights, axis=1)
    total = np.hstack([np.zeros((len(total), 1)), total / total[:, -1:]])
    i = np.clip((total < at).sum(1), 1, total.shape[1] - 1)
    rows = np.arange(len(total))
    low, high = total[rows, i - 1], total[rows, i]
    share = (at - low) / np.maximum(high - low, 1e-300)
    return np.asarray(cell_edges[i - 1] + share * (cell_edges[i] - cell_edges[i - 1]))


def normalised(log_weights: np.ndarray) -> np.ndarray:
    W = np.exp(log_weights - log_weights.max((1, 2), keepdims=True))
    return np.asarray(W / W.sum((1, 2), keepdims=True))


def half_widths(W: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """h with sum W P(|N(0, sds^2)| < h) = .95, by bisection."""
    low, high = np.zeros(len(W)), 10.0 * sds.max((1, 2))
    for _ in range(40):
        middle = (low + high) / 2
        inside = (W * (2.0 * ndtr(middle[:, None, None] / sds) - 1.0)).sum((1, 2))
        low, high = np.where(inside < 0.95, middle, low), np.where(inside < 0.95, high, middle)
    return (low + high) / 2


def gaussian(y: np.ndarray) -> Answer:
    """By group means and squares within groups, over (sd, noise sd)."""
    _, groups, rows = y.shape
    unit = y.std(axis=(1, 2))
    means = y.mean(2) / unit[:, None]
    within = ((y / unit[:, None, None] - means[..., None]) ** 2).sum((1, 2))
    shares = (np.arange(25) + 0.5) / 25  # of the noise variance given the squares within
    noise = within[:, None] / chi2.ppf(shares, groups * (rows - 1))
    centre = means.mean(1)
    squares = ((means - centre[:, None]) ** 2).sum(1)[:, None, None]
    v = SDS_TRIED[:, None] ** 2 + noise[:, None, :] / rows  # of a group's mean: (sets, sds, noise)
    log_density = -0.5 * (groups - 1) * np.log(v) - 0.5 * squares / v

    def under(prior: Prior) -> Posteriors:
        W = normalised(log_density + (prior(SDS_TRIED) + np.log(np.diff(SD_EDGES)))[:, None])
        of_sd = [quantiles(SD_EDGES, W.sum(2), q) * unit for q in (0.025, 0.5, 0.975)]
        half = half_widths(W, np.sqrt(v / groups))
        ends = [(centre - half) * unit, (centre + half) * unit]
        return Posteriors(np.stack(of_sd, axis=1), np.stack(ends, axis=1))

    return under


def discrete(link: str, y: np.ndarray) -> Answer:
    """By counts of groups with the same outcomes, each integrated over its eta by the trapezoid rule."""
    eta = np.arange(-60.0, 60.0, STEP) if link != "log" else np.arange(-40.0, 14.0, STEP)
    if link == "ordinal":
        known = np.stack([(y == k).sum(2) for k in range(3)], axis=-1)
        above = expit(eta - CUTS[:, None])
        p = np.stack([1.0 - above[0], above[0] - above[1], above[1]])
        log_factors = np.log(np.maximum(p, 1e-300))
    else:
        known = np.stack([y.sum(2), np.full(y.shape[:2], y.shape[2])], axis=-1)
        log_factors = np.stack([eta, -np.exp(eta) if link == "log" else -np.logaddexp(0.0, eta)])
    kinds, which = np.unique(known.reshape(-1, known.shape[-1]), axis=0, return_inverse=True)
    counts = np.stack([np.bincount(own, minlength=len(kinds)) for own in which.reshape(y.shape[:2])])
    log_likelihood = kinds @ log_factors  # (kinds, eta)
    likelihood = np.exp(log_likelihood - log_likelihood.max(1, keepdims=True))
    level = LEVEL[link] + 0.1 * np.sinh(np.linspace(-6.2, 6.2, 141))
    level_edges = edges(level, level[0])
    log_density = np.empty((len(counts), level.size, SDS_TRIED.size))
    for j, s in enumerate(SDS_TRIED):
        N = np.exp(-0.5 * ((eta[:, None] - level) / s) ** 2) * STEP / s
        log_density[:, :, j] = counts @ np.log(np.maximum(likelihood @ N, 1e-300))
    log_density += (-0.5 * (level / LEVEL_SD) ** 2 + np.log(np.diff(level_edges)))[:, None]

    def under(prior: Prior) -> Posteriors:
        W = normalised(log_density + prior(SDS_TRIED) + np.log(np.diff(SD_EDGES)))
        of_sd = [quantiles(SD_EDGES, W.sum(1), q) for q in (0.025, 0.5, 0.975)]
        ends = [quantiles(level_edges, W.sum(2), q) for q in (0.025, 0.975)]
        return Posteriors(np.stack(of_sd, axis=1), np.stack(ends, axis=1))

    return under


# -- what is printed -----------------------------------------------------------------------------------------
def t_widths(y: np.ndarray) -> np.ndarray:
    """Of the exact intervals of the level: group means are independent, with one variance."""
    means = y.mean(2)
    groups = means.shape[1]
    return np.asarray(2.0 * student.ppf(0.975, groups - 1) * means.std(1, ddof=1) / np.sqrt(groups))


def in_figures(cell: Cell, found: Posteriors, width: np.ndarray) -> dict[str, float]:
    """Of one prior in one cell; ``width`` is what the level's intervals are compared with."""
    low, middle, high = found.sd.T
    truth, level = cell.sd, LEVEL[cell.link]
    covers = (low <= truth) & (truth <= high) if truth > 0.0 else low < NEAR_ZERO
    return {
        "bias": float(100.0 * (np.median(middle) / truth - 1.0) if truth > 0.0 else np.median(middle)),
        "error": float(np.sqrt(np.mean(np.log(middle / truth) ** 2))) if truth > 0.0 else np.nan,
        "covers sd": float(100.0 * np.mean(covers)),
        "covers level": float(100.0 * np.mean((found.level[:, 0] <= level) & (level <= found.level[:, 1]))),
        "width": float(np.median(np.diff(found.level, axis=1)[:, 0] / width)),
    }


def in_words(cell: Cell, own: pd.Series) -> str:
    error = "" if np.isnan(own["error"]) else f"{own['error']:.2f} "
    bias = f"{own['bias']:+.0f}" if cell.sd > 0.0 else f"{own['bias']:.2f}"
    return f"{bias} {error}{own['covers sd']:.0f} {own['covers level']:.0f} {own['width']:.2f}"


def one_cell(cell: Cell, y: np.ndarray, answer: Answer) -> pd.DataFrame:
    found = {name: answer(prior) for name, prior in PRIORS.items()}
    first = np.diff(next(iter(found.values())).level, axis=1)[:, 0]
    width = t_widths(y) if cell.link == "gaussian" else first
    rows = [{**cell._asdict(), "prior": name, **in_figures(cell, own, width)} for name, own in found.items()]
    return pd.DataFrame(rows)


def check(cell: Cell, y: np.ndarray, found: Posteriors) -> str:
    """How far fits under the same prior are from the lattice."""
    import fenchel
    from fenchel.hyperparameters.priors import HalfNormal

    medians, ends = [], []
    for own, of_sd, level in zip(y, found.sd, found.level, strict=False):
        data = pd.DataFrame({"g": np.repeat(np.arange(len(own)), own.shape[1]), "y": own.ravel()})
        unit = float(own.std()) if cell.link == "gaussian" else 1.0
        prior = HalfNormal(5.0 * unit, 0.05)
        fit = fenchel.fit("y ~ 1 + (1|g)", data, FAMILIES[cell.link], priors={"(1|g)": prior}, accuracy="high")
        medians.append(100.0 * (fit.hyperparameters.loc[("(1|g)", "sd"), "median"] / of_sd[1] - 1.0))
        table = fit.coefficients
        if "Intercept" in table.index:
            off = table.loc["Intercept", ["lower", "upper"]].to_numpy(float) - level
            ends.append(np.abs(off).max() / (np.diff(level)[0] / 4.0))
    far = [np.abs(medians), ends or [np.nan]]
    words = [f"{np.median(each):.2f}, {np.max(each):.2f}" for each in far]
    return f"fits beside the lattice: median of sd {words[0]} %; ends of level {words[1]} sds"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--sets", type=int, default=500)
    ask.add_argument("--links", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    ask.add_argument("--groups", nargs="+", type=int, choices=list(ROWS), default=[3, 6, 20, 50])
    ask.add_argument("--check", type=int, default=0)
    ask.add_argument("--out", type=Path)
    asked = ask.parse_args()
    began = time.perf_counter()
    stored = pd.read_csv(asked.out) if asked.out and asked.out.exists() else None
    print("each prior: bias and error of sd, covers sd, covers level, width\n")
    print(f"| link | groups | true sd | {' | '.join(PRIORS)} |")
    print("|---" * (3 + len(PRIORS)) + "|", flush=True)
    for cell in [Cell(link, n, sd) for link in asked.links for n in asked.groups for sd in SDS[link]]:
        own = None if stored is None else stored[(stored[list(Cell._fields)] == list(cell)).all(axis=1)]
        known = own is not None and not own.empty
        if known and not asked.check:
            table = own
        else:
            y = draw(cell, asked.sets)
            answer = gaussian(y) if cell.link == "gaussian" else discrete(cell.link, y)
            table = one_cell(cell, y, answer)
            if asked.out and not known:
                table.to_csv(asked.out, mode="a", header=not asked.out.exists(), index=False)
        words = " | ".join(in_words(cell, own) for _, own in table.iterrows())
        print(f"| {cell.link} | {cell.groups} | {cell.sd:g} | {words} |", flush=True)
        if asked.check:
            few = y[: asked.check]
            print(check(cell, few, answer(PRIORS["half-normal 5"])), flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
