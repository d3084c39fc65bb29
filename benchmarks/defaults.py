"""The default fit beside R and beside the truth, on tables that R's packages hold and on simulated ones.

    python benchmarks/defaults.py                     real tables where Rscript is present, and simulated ones
    python benchmarks/defaults.py --only ohio wine    some of them
    python benchmarks/defaults.py --r                 runs R's fits again, and stores them in defaults.json
    python benchmarks/defaults.py --chains            runs MCMC where truth comes from it, and stores it there too

Truth is the posterior under the priors that ``model.priors`` prints, by ``defaults_truth.py``: linear algebra or
quadrature over the groups, and importance draws over everything else. Columns:

    beta R    largest difference of a coefficient from R's estimate, in R's standard errors
    beta      the same of the posterior mean from the true posterior mean, in true posterior sds
    se        sds of coefficients over the true ones, the one farthest from 1
    sd R      group sds: posterior median from R's estimate, the worst, in %
    sd        posterior mean from the true posterior mean, the worst, in %
    prior     what the default prior does: the true posterior median from that under a flat prior of the sd, in %
    did       what the default call did, as the first line of its summary says
    plain, default, R    processor seconds of accuracy="fast" (warm), of the default call (warm), and of R's fit

R is REML for Gaussian responses and maximum likelihood elsewhere: a posterior median lies above either, by some
1/(2 (groups - 1)) for well measured groups. A verdict holds tables of ten groups or more to 0.1 in beta, 3 % in se and
5 % in sd. Truth of Cox models and of crossed groups of counts and labels is by MCMC (``defaults_chains.py``) and
stored; grouseticks, whose chains move too slowly, has R's answers alone, and smooths are compared by eta.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import defaults_chains as chains
import defaults_truth as truth_of
import numpy as np
import pandas as pd

import fenchel

STORED = Path(__file__).with_name("defaults.json")
SCRIPT = Path(__file__).with_suffix(".R")
ENOUGH_GROUPS = 10
BETA, SE, SD = 0.1, 0.03, 0.05
HALF_NORMAL = 5.0 / 1.959964  # sd of the default prior of an sd
FLAT = np.inf
PLAIN: dict[str, Any] = {"accuracy": "fast"}  # Gaussian at the mode of the elbo


@dataclass
class Table:
    """One table: its formula and family here, and the grouping columns in the order of the formula."""

    name: str
    formula: str
    family: str
    groups: tuple[str, ...] = ()
    slope: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    simulate: Callable[[], pd.DataFrame] | None = None
    exact: bool = True  # truth by quadrature or linear algebra
    columns: str | None = None  # of the fixed part, where it is not what the formula says

    @property
    def fixed(self) -> str:
        """The fixed part of the formula."""
        right = self.formula.split("~")[1]
        return " + ".join(part for part in map(str.strip, right.split(" + ")) if not part.startswith("("))


def one(name: str, formula: str, family: str, *groups: str, **more: Any) -> Table:
    return Table(name, formula, family, groups, **more)


# -- simulated tables, of the sizes and estimates of published fits --------------------------------------
def longitudinal(
    family: str, groups: int, rows: int, sd: float, seed: int, slope: float = 0.0
) -> Callable[[], pd.DataFrame]:
    """x between rows, treated between groups."""

    def draw() -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        g = np.repeat(np.arange(groups), rows)
        x, treated = np.tile(np.linspace(-1.0, 1.0, rows), groups), (g % 2).astype(float)
        u, v = sd * rng.standard_normal(groups), slope * rng.standard_normal(groups)
        eta = -0.5 + 0.8 * x + 0.5 * treated + u[g] + v[g] * x
        noise = rng.logistic(size=g.size)
        y: Any = {
            "bernoulli": (eta + noise > 0).astype(int),
            "probit": (eta + rng.standard_normal(g.size) > 0).astype(int),
            "poisson": rng.poisson(np.exp(np.clip(eta + 1.0, None, 8.0))),
            "ordinal": np.digitize(eta + noise, [-1.0, 1.0]),
            "weibull": np.round(rng.exponential(size=g.size) ** (1 / 1.5) * np.exp(-eta / 1.5), 4) + 1e-4,
            "gaussian": eta + 0.7 * rng.standard_normal(g.size),
        }[family]
        out = pd.DataFrame({"y": y, "x": x, "treated": treated, "g": g})
        if family == "weibull":
            out["event"] = (out.y < 3.0).astype(int)
            out["y"] = np.minimum(out.y, 3.0)
        return out

    return draw


_LINE = "y ~ x + treated + (1|g)"
TABLES = [
    one("sleepstudy", "Reaction ~ Days + (Days|Subject)", "gaussian", "Subject", slope="Days"),
    one("Dyestuff", "Yield ~ 1 + (1|Batch)", "gaussian", "Batch"),
    one("Dyestuff2", "Yield ~ 1 + (1|Batch)", "gaussian", "Batch"),
    one("Penicillin", "diameter ~ 1 + (1|plate) + (1|sample)", "gaussian", "plate", "sample"),
    one("Pastes", "strength ~ 1 + (1|batch) + (1|sample)", "gaussian", "batch", "sample"),
    one("cake", "angle ~ recipe + temp + (1|rr)", "gaussian", "rr"),
    one("Rail", "travel ~ 1 + (1|Rail)", "gaussian", "Rail"),
    one("Orthodont", "distance ~ age * Sex + (age|Subject)", "gaussian", "Subject", slope="age"),
    one("Machines", "score ~ Machine + (1|Worker) + (1|WM)", "gaussian", "Worker", "WM"),
    one("oats", "Y ~ nitro + V + (1|B) + (1|BV)", "gaussian", "B", "BV"),
    one("ergoStool", "effort ~ Type + (1|Subject)", "gaussian", "Subject"),
    one("Pixel", "pixel ~ day + day2 + (1|Dog) + (1|DS)", "gaussian", "Dog", "DS"),
    one("bacteria", "y ~ trt + late + (1|ID)", "bernoulli", "ID"),
    one("ohio", "resp ~ age + smoke + (1|id)", "bernoulli", "id"),
    one("toenail", "y ~ treatment * time + (1|patientID)", "bernoulli", "patientID"),
    one("respiratory", "outcome ~ treat + sex + age + baseline + (1|id)", "bernoulli", "id"),
    one("schizophrenia", "y ~ onset + month + (1|subject)", "bernoulli", "subject"),
    one("Contraception", "y ~ age + age2 + urban + livch + (1|district)", "bernoulli", "district"),
    one("cbpp", "incidence ~ period + (1|herd)", "binomial", "herd", options={"trials": "size"}),
    one("VerbAgg", "y ~ Anger + Gender + btype + situ + (1|id) + (1|item)", "bernoulli", "id", "item", exact=False),
    one("epil", "y ~ lbase * trt + lage + V4 + (1|subject)", "poisson", "subject"),
    one(
        "grouseticks",
        "TICKS ~ YEAR + cHEIGHT + (1|INDEX) + (1|BROOD) + (1|LOCATION)",
        "poisson",
        *("INDEX", "BROOD", "LOCATION"),
        exact=False,
    ),
    one("Owls", "sibs ~ FoodTreatment + SexParent + logBroodSize + (1|Nest)", "negative-binomial", "Nest"),
    one("Salamanders", "count ~ mined + (1|site)", "negative-binomial", "site"),
    one("Arabidopsis", "fruits ~ nutrient + amd + (1|popu) + (1|gen)", "negative-binomial", "popu", "gen", exact=False),
    one("wine", "level ~ temp + contact + (1|judge)", "ordinal", "judge"),
    one("kidney", "cens(time, status) ~ age + female + (1|id)", "cox", "id", options={"baseline": "free"}, exact=False),
    one("rats", "cens(time, status) ~ rx + (1|litter)", "cox", "litter", options={"baseline": "free"}, exact=False),
    one("kidney-weibull", "cens(time, status) ~ age + female + (1|id)", "weibull", "id"),
    one("rats-weibull", "cens(time, status) ~ rx + (1|litter)", "weibull", "litter"),
    one("retinopathy-weibull", "cens(futime, status) ~ trt * adult + (1|id)", "weibull", "id"),
    one("mcycle", "accel ~ s(times, k=20, bs='cr')", "gaussian", exact=False),
    one("curves", "y ~ s(x0, bs='cr') + s(x1, bs='cr') + s(x2, bs='cr') + s(x3, bs='cr')", "gaussian", exact=False),
    one("sim-binary", _LINE, "bernoulli", "g", simulate=longitudinal("bernoulli", 100, 4, 2.0, 1)),
    one("sim-probit", _LINE, "probit", "g", simulate=longitudinal("probit", 60, 5, 1.0, 2)),
    one("sim-ordinal", _LINE, "ordinal", "g", simulate=longitudinal("ordinal", 50, 5, 1.2, 3)),
    one("sim-counts", _LINE, "poisson", "g", simulate=longitudinal("poisson", 40, 6, 0.6, 4)),
    one(
        "sim-slopes",
        "y ~ x + treated + (x|g)",
        "poisson",
        "g",
        slope="x",
        simulate=longitudinal("poisson", 40, 8, 0.6, 5, 0.5),
    ),
    one(
        "sim-frailty",
        "cens(y, event) ~ x + treated + (1|g)",
        "weibull",
        "g",
        simulate=longitudinal("weibull", 60, 4, 0.8, 6),
    ),
    one("sim-six", _LINE, "gaussian", "g", simulate=longitudinal("gaussian", 6, 8, 1.0, 7)),
    one("sim-three", _LINE, "bernoulli", "g", simulate=longitudinal("bernoulli", 3, 20, 1.0, 8)),
]


# -- R -------------------------------------------------------------------------------------------------------
def from_r(folder: Path, command: str) -> None:
    subprocess.run(["Rscript", "--vanilla", str(SCRIPT), command, str(folder)], check=True)


def read(path: Path) -> pd.DataFrame:
    """A table as R wrote it, factors with the levels of R in their order."""
    kept = json.loads(path.read_text())
    data = pd.DataFrame(kept["columns"])
    for name, levels in kept["levels"].items():
        data[name] = pd.Categorical(data[name].astype(str), [str(level) for level in levels])
    return data


# -- fits ----------------------------------------------------------------------------------------------------
@dataclass
class Answer:
    """Coefficients, group sds (mean and median; the value where only that is known) and processor seconds."""

    beta: np.ndarray
    se: np.ndarray
    sds: np.ndarray
    medians: np.ndarray
    seconds: float
    fit: Any


def fitted(table: Table, data: pd.DataFrame, **how: Any) -> Answer:
    """The second of two fits, so that nothing is compiled in it; the first where that takes long."""
    for _ in range(2):
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = fenchel.fit(table.formula, data, family=table.family, **table.options, **how)
        seconds = time.process_time() - began
        if seconds > 6.0:
            break
    coefficients, rows = fit.coefficients, fit.hyperparameters
    sd_rows = [key for key in rows.index if str(key[0]).startswith("(") and str(key[1]).startswith("sd")]
    sd_rows = [key for key in sd_rows if " at the mean " not in str(key[1])]
    sds = rows.loc[sd_rows, "mean" if "mean" in rows else "value"].to_numpy(float)
    medians = rows.loc[sd_rows, "median" if "median" in rows else "value"].to_numpy(float)
    return Answer(coefficients["mean"].to_numpy(), coefficients["sd"].to_numpy(), sds, medians, seconds, fit)


def true_answer(table: Table, data: pd.DataFrame, size: float) -> truth_of.Truth:
    """Under the stated priors, or with a flat one of the sds (``size`` infinite)."""
    from formulaic import model_matrix

    model = fenchel.Model(table.formula, data, family=table.family, **table.options)
    X = np.asarray(model_matrix(table.fixed, data), dtype=float)
    rng = np.random.default_rng(0)
    x = None if table.slope is None else data[table.slope].to_numpy(float)
    groups = [truth_of.Group(pd.factorize(data[name])[0], x) for name in table.groups]
    target = model.target
    own = model.own_priors.likelihood.entries() if table.family != "gaussian" else []
    left = table.formula.split("~")[0].strip()
    if table.family == "gaussian":
        start = float(np.log(target.scale / np.sqrt(2.0)))
        return truth_of.gaussian_truth(X, data[left].to_numpy(float), groups, size, target.scale, rng, start)
    if table.family == "binomial":
        y = data[["incidence", "size"]].to_numpy(float)
    elif table.family == "weibull":
        time_, event = left[5:-1].split(", ")
        y = data[[time_, event]].to_numpy(float).copy()
        y[:, 0] /= y[:, 0].sum() / y[:, 1].sum()  # the unit of time in which the model is fitted
    else:
        y = data[left].to_numpy(float)
    if table.family == "ordinal":
        X = X[:, 1:]
    own_start = np.asarray(model.target.likelihood.theta, dtype=float)
    prior = lambda theta: float(sum(e.prior(float(t))[0] for e, t in zip(own, theta, strict=True)))
    level = float(model.level)
    ordered = table.family == "ordinal"
    return truth_of.quadrature_truth(
        X, y, table.family, groups[0], size, rng, level, own_start, prior, intercept=not ordered
    )


CHAINED = {"VerbAgg": 12_000, "Arabidopsis": 30_000, "kidney": 60_000, "rats": 60_000}  # draws


def chained_answer(table: Table, data: pd.DataFrame, start: Any) -> dict[str, Any]:
    """Truth by MCMC under the stated priors, as it is stored; ``start`` are sds to begin at."""
    from formulaic import model_matrix

    model = fenchel.Model(table.formula, data, family=table.family, **table.options)
    X = np.asarray(model_matrix(table.fixed, data), dtype=float)
    left, cox = table.formula.split("~")[0].strip(), table.family == "cox"
    if cox:
        time_, event = left[5:-1].split(", ")
        X, density = X[:, 1:], chains.partial(data[time_].to_numpy(float), data[event].to_numpy(float))
    else:
        kinds = {"bernoulli": chains.labels, "poisson": chains.counts, "negative-binomial": chains.dispersed}
        density = kinds[table.family](np.asarray(model.target.y, dtype=float))
    groups = [truth_of.Group(pd.factorize(data[name])[0]) for name in table.groups]
    own = [] if cox else model.own_priors.likelihood.entries()
    own_start = np.zeros(0) if cox else np.asarray(model.target.likelihood.theta, dtype=float)
    prior = lambda theta: float(sum(e.prior(float(t))[0] for e, t in zip(own, theta, strict=True)))
    level = 0.0 if cox else float(model.level)
    began = time.process_time()
    found, said = chains.chain_truth(
        X, density, groups, HALF_NORMAL, level, own_start, prior, start, CHAINED[table.name], intercept=not cox
    )
    said["seconds"] = time.process_time() - began
    kept = {name: np.round(value, 6).tolist() for name, value in vars(found).items()}
    return {**kept, "chains": {name: round(value, 4) for name, value in said.items()}}


def worst(x: np.ndarray) -> float:
    return float(x[np.argmax(np.abs(x))]) if x.size else np.nan


def compare(
    table: Table,
    data: pd.DataFrame,
    found: dict[str, Any] | None,
    how: dict[str, Any],
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One row of the table; ``kept`` is a truth that was stored."""
    plain = fitted(table, data, **PLAIN)
    default = fitted(table, data, **how)
    row: dict[str, Any] = {"table": table.name, "rows": len(data), "plain": plain.seconds, "default": default.seconds}
    row["did"] = ", ".join(word for word in WORDS if word in default.fit.accuracy.split(":")[0])
    row["groups"] = "/".join(str(data[g].nunique()) for g in table.groups)
    judged = all(data[g].nunique() >= ENOUGH_GROUPS for g in table.groups)
    if found is not None:
        row["R"] = found["seconds"]
        if "eta" in found:
            said = default.fit.predict(data)
            apart = (said.to_numpy() - np.array(found["eta"])) / np.array(found["se_eta"])
            row["beta R"] = float(np.sqrt(np.mean(apart**2)))  # of eta over the rows, root mean square
        else:
            R = np.array(found["beta"], dtype=float), np.array(found["se"], dtype=float)
            row["beta R"] = worst((default.beta[-R[0].size :] - R[0]) / R[1])  # a Cox model of R has no level
            sds = found["sds"]
            ordered = [sds] if not isinstance(sds, dict) else [sds[g] for g in table.groups]
            flat = np.concatenate([np.atleast_1d(np.asarray(s, dtype=float)).ravel() for s in ordered])
            with np.errstate(divide="ignore"):
                row["sd R"] = 100.0 * worst(default.medians / flat - 1.0)
    if table.exact or kept is not None:
        if kept is not None:
            true = truth_of.Truth(**{name: np.asarray(value) for name, value in kept.items() if name != "chains"})
        else:
            true, flat_prior = (true_answer(table, data, size) for size in (HALF_NORMAL, FLAT))
            row["prior"] = 100.0 * worst(true.group_median / flat_prior.group_median - 1.0)
        n = true.mean.size - int(table.family == "weibull")  # the level goes with the unit of time and the shape
        row["beta"] = worst((default.beta[-n:] - true.mean[-n:]) / true.sd[-n:])
        row["se"] = 1.0 + worst(default.se[-n:] / true.sd[-n:] - 1.0)
        row["sd"] = 100.0 * worst(default.sds / true.group_mean - 1.0)
        row["plain sd"] = 100.0 * worst(plain.medians / true.group_median - 1.0)
        row["plain se"] = 1.0 + worst(plain.se[-n:] / true.sd[-n:] - 1.0)
        good = abs(row["beta"]) <= BETA and abs(row["se"] - 1) <= SE and abs(row["sd"]) <= 100 * SD
        row["verdict"] = ("ok" if good else "OFF") if judged else "few groups"
    else:
        row["verdict"] = "R alone"
    return row


# -- all of it -----------------------------------------------------------------------------------------------
SHOWN = ("table", "rows", "groups", "beta R", "sd R", "beta", "se", "sd", "prior", "plain se", "plain sd")
SECONDS = ("plain", "default", "R")
WORDS = ("integrated", "corrected", "at the mode")  # of the first line of a summary


def line(row: dict[str, Any]) -> str:
    digits = {"beta R": "+.2f", "beta": "+.3f", "se": ".3f", "plain se": ".2f"}
    cells = []
    for name in (*SHOWN, *SECONDS, "did", "verdict"):
        value = row.get(name)
        if isinstance(value, float):
            value = (
                "-" if not np.isfinite(value) else format(value, digits.get(name, ".2f" if name in SECONDS else "+.1f"))
            )
        cells.append("" if value is None else str(value))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--only", nargs="+", default=[])
    ask.add_argument("--r", action="store_true", help="run R's fits again and store them")
    ask.add_argument("--chains", action="store_true", help="run MCMC where truth comes from it, and store it")
    ask.add_argument("--accuracy", choices=("auto", "fast", "high"), help="in the place of the default call")
    asked = ask.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {"tables": {}}
    how = {} if asked.accuracy is None else {"accuracy": asked.accuracy}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if present := shutil.which("Rscript") is not None:
            from_r(folder, "data")
            if asked.r:
                from_r(folder, "fit")
                stored = {**json.loads((folder / "found.json").read_text()), "truth": stored.get("truth", {})}
                STORED.write_text(json.dumps(stored, indent=1) + "\n")
        else:
            print("Rscript is not here: simulated tables alone")
        truths = stored.setdefault("truth", {})
        for table in [t for t in TABLES if asked.chains and present and t.name in (asked.only or CHAINED)]:
            sds = stored["tables"][table.name]["sds"]
            start = [0.5] if table.family == "cox" else np.ravel([sds[g] for g in table.groups])
            truths[table.name] = chained_answer(table, read(folder / f"{table.name}.json"), start)
            print(table.name, truths[table.name]["chains"], flush=True)
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
        if asked.chains:
            return
        print(f"R {stored.get('R')}, {stored.get('versions')}")
        print(f"| {' | '.join((*SHOWN, *SECONDS, 'did', 'verdict'))} |")
        print("|---" * (len(SHOWN) + len(SECONDS) + 2) + "|")
        rows = []
        for table in TABLES:
            if (asked.only and table.name not in asked.only) or (table.simulate is None and not present):
                continue
            kept = folder / f"{table.name.split('-')[0]}.json"
            if table.simulate is None and not kept.exists():  # its package is not installed, as R has said
                continue
            data = read(kept) if table.simulate is None else table.simulate()
            rows.append(compare(table, data, stored["tables"].get(table.name), how, truths.get(table.name)))
            print(line(rows[-1]), flush=True)
    judged = [row for row in rows if row["verdict"] in ("ok", "OFF")]
    off = [row["table"] for row in judged if row["verdict"] == "OFF"]
    within = f"within {BETA} se, {SE:.0%} of ses and {SD:.0%} of sds"
    print(f"\n{len(judged) - len(off)} of {len(judged)} tables of ten groups or more {within}")
    print(f"off: {', '.join(off) or 'none'}")


if __name__ == "__main__":
    main()
