"""The paper's latent Gaussian Markov random field: oral cancer deaths in 544 districts of Germany.

    y_i ~ Poisson(E_i exp(eta_i)),   eta = mu + u + v,   mu = 0
    p(u, v) prop. to exp(-k_v/2 sum_i v_i^2 - k_u/2 sum_{i~j} (u_i - u_j)^2)                       eq:spatialPrior

eq:spatialPrior says nothing of the level of u, so there are several readings:

    written   E = 1, u sums to zero, no intercept: only v can carry the level of the log counts
    level     E = 1, u sums to zero, and an intercept ~ N(0, 10^2)
    exposure  E the expected deaths, and an intercept ~ N(0, 10^2): what an epidemiologist would fit

500 districts train, 44 test. Train log-likelihood: the elbo of the training counts; test: the sum of log predictive
densities of the held-out counts. Both are over a grid of (k_u, k_v), with certified fits. Then all methods are timed.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..datasets import Germany, load_germany
from .germany_fits import (
    PAPER,
    DistrictFit,
    DistrictSplit,
    DistrictSurface,
    Draw,
    Maxima,
    ModelReading,
    Pair,
    Race,
    draw_at,
    fit,
    in_parallel,
    inside_intervals,
    maxima,
    race_at,
    readings,
    split,
    surface,
)
from .race import race_numbers
from .reproduce import Result, Settings, versions


@dataclass(frozen=True)
class GermanyStudy:
    """All results of the experiment; dictionaries have the keys of the readings.

    at_paper : the fit at the hyperparameters of the paper
    mixed : train log-likelihood of "written" with one hyperparameter from the paper and the other from our maximum
    inside : number of held-out counts inside their 95 % predictive interval, at the train maximum
    risk, risk_sd, excess : for reading "exposure" at its train maximum, over all districts
    """

    data: Germany
    split: DistrictSplit
    readings: dict[str, ModelReading]
    surfaces: dict[str, DistrictSurface]
    maxima: dict[str, Maxima]
    at_paper: dict[str, DistrictFit]
    mixed: dict[str, float]
    inside: dict[str, int]
    draws: list[Draw]
    races: list[Race]
    risk: np.ndarray
    risk_sd: np.ndarray
    excess: np.ndarray

    def losses(self, key: str) -> Pair:
        """Train and test log-likelihood at the maxima minus those at the paper's hyperparameters, in nats."""
        top, there = self.maxima[key], self.at_paper[key]
        return top.train.train - there.train, top.test.test - there.test

    def moments(self, key: str) -> tuple[float, float, float]:
        """Means of E[v], of E[v^2] and of the log counts over the training districts, at the train maximum."""
        posterior, n, rows = self.maxima[key].train.solution.posterior, self.data.Y.size, self.split.train
        v, spread = posterior.latent_mean[n : 2 * n][rows], posterior.latent_variance[n : 2 * n][rows]
        return float(np.mean(v)), float(np.mean(v**2 + spread)), float(np.log(self.data.Y[rows] + 0.5).mean())


def study(settings: Settings) -> GermanyStudy:
    """Run all fits and measurements."""
    data = load_germany()
    parts, quick = split(data.Y, settings.seed), settings.quick
    every = {reading.key: reading for reading in readings(data, quick)}
    surfaces = {key: surface(reading, parts, settings) for key, reading in every.items()}
    tops = {}
    for key, reading in every.items():
        grid = surfaces[key]
        starts = grid.best(grid.train, reading), grid.best(grid.test, reading)
        tops[key] = maxima(reading, parts, starts, 8 if quick else 100)
        settings.tick(f"{reading.title}: maxima found")
    written, best, mapped = every["written"], tops["written"].train.at, tops["exposure"].train
    seeds = range(settings.seed, settings.seed + (1 if quick else 20))
    ended = itertools.count(1)
    asked = [(written, data.Y, s, best, 8 if quick else 60) for s in seeds]
    tell = lambda *_: settings.tick(f"split {next(ended)} of {len(seeds)}")
    draws = in_parallel(draw_at, asked, settings.jobs, tell)
    full = min(settings.cap, 0.5) if quick else settings.cap
    short = full if quick else full / 5
    tracks = [
        ("written", PAPER, "the paper's setting", full),
        ("written", best, "our maximum", short),
        ("exposure", mapped.at, "our maximum, with expected deaths", short),
    ]
    tracks = tracks[:1] + tracks[2:] if quick else tracks
    h, rho = mapped.solution.posterior.mean, mapped.solution.posterior.variance
    risk = np.exp(h + rho / 2)
    return GermanyStudy(
        data=data,
        split=parts,
        readings=every,
        surfaces=surfaces,
        maxima=tops,
        at_paper={key: fit(reading, parts, PAPER) for key, reading in every.items()},
        mixed={
            "k_u": fit(written, parts, (PAPER[0], best[1])).train,
            "k_v": fit(written, parts, (best[0], PAPER[1])).train,
        },
        inside={key: inside_intervals(every[key], parts, tops[key].train, settings.seed) for key in every},
        draws=draws,
        races=[race_at(every[key], parts, at, title, cap, settings) for key, at, title, cap in tracks],
        risk=risk,
        risk_sd=risk * np.sqrt(np.expm1(rho)),
        excess=ndtr(h / np.sqrt(rho)),
    )


def _top(top: Maxima) -> dict[str, Any]:
    return {
        which: {"k_u": one.at[0], "k_v": one.at[1], "train": one.train, "test": one.test, "on_border": edge}
        for which, one, edge in (("train", top.train, top.train_edge), ("test", top.test, top.test_edge))
    }


def numbers(study: GermanyStudy, settings: Settings) -> dict[str, Any]:
    """All results, for json."""
    out: dict[str, Any] = {"versions": versions(), "seed": settings.seed, "quick": settings.quick}
    out |= {"paper": {"k_u": PAPER[0], "k_v": PAPER[1], "iterations": 6}, "test_districts": study.split.test}
    out["readings"] = {
        key: {
            "title": reading.title,
            "k_u": reading.k_u,
            "k_v": reading.k_v,
            **asdict(study.surfaces[key]),
            "maximum": _top(study.maxima[key]),
            "rank_correlation": study.surfaces[key].rank_correlation,
            "at_paper": {"train": study.at_paper[key].train, "test": study.at_paper[key].test},
            "held_out_inside_95": study.inside[key],
            "v": dict(zip(("mean", "mean_square", "mean_log_count"), study.moments(key), strict=True)),
        }
        for key, reading in study.readings.items()
    }
    out |= {"one_from_the_paper": study.mixed, "splits": [asdict(draw) for draw in study.draws]}
    out["races"] = [
        {
            "title": run.title,
            "k_u": run.at[0],
            "k_v": run.at[1],
            "best": run.best,
            "best_gap": run.best_gap,
            "sparse_elbo": run.sparse_elbo,
            "newton_iterations": run.newton.n_iter,
            "newton_iterations_dense": run.newton_dense.n_iter,
            "lbfgs_iterations": run.lbfgs.n_iter,
            "lbfgs_converged": run.lbfgs.converged,
            "elbo_minus_best": run.ends,
            "not_converged": run.late,
            "cap": run.cap,
            "methods": race_numbers(run.entries, run.best),
        }
        for run in study.races
    ]
    out["map"] = {"risk": study.risk, "risk_sd": study.risk_sd, "excess": study.excess}
    return out


def run(settings: Settings) -> Result:
    """Run the experiment: fit, measure and draw the page."""
    from .germany_page import page

    return page(study(settings), settings)
