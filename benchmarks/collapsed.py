"""Groups integrated out, beside the truth and beside R: evidence, sds of coefficients and of groups, seconds.

    python benchmarks/collapsed.py                   simulated tables, and real ones where Rscript is present
    python benchmarks/collapsed.py --only toenail    some of them
    python benchmarks/collapsed.py --truth           works out the truths again (minutes), and stores them
    python benchmarks/collapsed.py --r               runs R's fits again, and stores them

Truth: ``collapsed_truth.py``, quadrature over groups and importance draws over all else, without fenchel. It and R's
answers are kept in collapsed.json. Two comparisons a table: at one theta, where the collapsed evidence is largest, and
over everything, by the call ``fit(formula, data, family)``. Columns of the first table:

    elbo              evidence of the Gaussian at theta less the truth, in nats
    at theta, (error) evidence with groups integrated out less the truth, and what it says of its own error
    se, effects       sds of coefficients and of groups' effects at theta over the true ones, the one farthest from 1
    over all, (error) evidence of the default fit less the truth, and what it says of its own error
    beta              means of its coefficients from the true ones, in true sds, the largest
    se, sd, sd's sd   its sds of coefficients, its posterior means and sds of group sds, over the true ones
    mc                error of the truth: of the two log evidences in nats, and of means and sds relatively
    verdict           within .01 nat and 1 %, or what is not; a difference below twice the truth's error counts as none

and of the second:

    plain             processor seconds of accuracy="fast"
    corrected         of accuracy="fast", evidence="corrected", in plain fits: the mode and all answers with groups out
    default           of the default call, in plain fits
    glmer, glmmTMB    seconds of R's: nAGQ = 25 for one effect a group, Laplace for slopes; clmm with 10 points
                      (ordinal) and coxph with a Gaussian frailty, its baseline free (durations) in the place of glmer
    sds               of groups: the true posterior means, here, glmer, glmmTMB
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import defaults
import numpy as np
import pandas as pd
from collapsed_truth import GroupedPosterior, Truth
from scipy.stats import norm

import fenchel

STORED = Path(__file__).with_name("collapsed.json")
SCRIPT = Path(__file__).with_suffix(".R")
NATS, SHARE = 0.01, 0.01


@dataclass
class Table:
    """A table with its formula; ``make`` simulates it, else it is R's."""

    name: str
    formula: str
    family: str
    group: str
    kind: str  # R's call
    make: Callable[[], pd.DataFrame] | None = None
    slope: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def fixed(self) -> str:
        return self.formula.split("~")[1].split(" + (")[0].strip()

    @property
    def response(self) -> str:
        return self.formula.split("~")[0].strip()


# -- tables ----------------------------------------------------------------------------------------------
def simulated(kind: str, groups: int, size: int, sd: float, slope: float = 0.0, seed: int = 1) -> pd.DataFrame:
    """Rows in groups with two covariates, one of rows and one of groups."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(groups), size)
    x, z = rng.normal(size=g.size), rng.integers(0, 2, groups)[g].astype(float)
    eta = 0.5 * x - 0.7 * z + (sd * rng.normal(size=groups))[g] + (slope * rng.normal(size=groups))[g] * x
    out = pd.DataFrame({"g": g, "x": x, "z": z})
    if kind == "binary":
        out["y"] = (rng.random(g.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    elif kind == "trials":
        out["trials"] = rng.integers(2, 8, g.size)
        out["y"] = rng.binomial(out["trials"], 1.0 / (1.0 + np.exp(-eta)))
    elif kind == "counts":
        out["y"] = rng.poisson(np.exp(eta))
    elif kind == "spread":
        out["y"] = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta)))
    elif kind == "levels":
        out["y"] = np.digitize(eta + rng.logistic(size=g.size), [-1.5, 0.0, 1.5])
    else:
        time_, censored = rng.weibull(1.3, g.size) * np.exp(-eta / 1.3), rng.exponential(3.0, g.size)
        out["y"], out["event"] = np.minimum(time_, censored), (time_ <= censored).astype(int)
        out["y"] *= out["event"].sum() / out["y"].sum()  # the unit of time in which the model is fitted
    return out


FAMILIES = {"binary": "bernoulli", "trials": "binomial", "counts": "poisson", "spread": "negative-binomial"}
FAMILIES |= {"levels": "ordinal", "durations": "weibull"}
SDS = {"binary": 1.5, "trials": 1.5, "counts": 0.7, "spread": 0.7, "levels": 1.5, "durations": 0.8}
OPTIONS: dict[str, dict[str, Any]] = {"trials": {"trials": "trials"}, "durations": {"event": "event"}}
GROUPS = {2: 200, 4: 100, 10: 40, 50: 20}


def drawn(kind: str, size: int, slope: float = 0.0) -> Table:
    name, formula = f"{kind}, {size} a group", f"y ~ x + z + ({'1 + x' if slope else '1'}|g)"

    def make() -> pd.DataFrame:
        return simulated(kind, GROUPS[size], size, SDS[kind], slope)

    column, word = ("x", f"{kind}, slopes, {size} a group") if slope else (None, name)
    return Table(word, formula, FAMILIES[kind], "g", kind, make, column, OPTIONS.get(kind, {}))


TABLES = [
    Table("toenail", "y ~ treatment * time + (1|patientID)", "bernoulli", "patientID", "binary"),
    Table("ohio", "resp ~ age + smoke + (1|id)", "bernoulli", "id", "binary"),
    Table("bacteria", "y ~ trt + late + (1|ID)", "bernoulli", "ID", "binary"),
    Table("respiratory", "outcome ~ treat + sex + age + baseline + (1|id)", "bernoulli", "id", "binary"),
    Table("epil", "y ~ lbase * trt + lage + V4 + (1|subject)", "poisson", "subject", "counts"),
    Table("wine", "level ~ temp + contact + (1|judge)", "ordinal", "judge", "levels"),
    *(drawn(kind, size) for kind in ("binary", "counts", "levels", "durations") for size in GROUPS),
    *(drawn(kind, 4) for kind in ("trials", "spread")),
    drawn("binary", 4, slope=0.8),
    drawn("binary", 10, slope=0.8),
    drawn("counts", 4, slope=0.4),
    drawn("counts", 10, slope=0.4),
    drawn("levels", 10, slope=0.8),
    drawn("durations", 10, slope=0.5),
    drawn("binary", 50, slope=0.8),
]


# -- the truth -------------------------------------------------------------------------------------------
def posterior_of(table: Table, data: pd.DataFrame, held: np.ndarray | None) -> GroupedPosterior:
    """Under the priors that ``model.priors`` prints, which are read there: half-normal sds, uniform correlations."""
    from formulaic import model_matrix

    model = fenchel.Model(table.formula, data, family=table.family, **table.options)
    X = np.asarray(model_matrix(table.fixed, data), dtype=float)
    own = np.array([e.weak for e in model.own_priors.likelihood.entries()], dtype=float).reshape(-1, 2)
    printed = model.priors.xs("coefficient", level="parameter")
    wide = (printed["upper"] - printed["lower"]).to_numpy(float) / (2.0 * norm.ppf(0.975))
    more = [column for column in table.options.values() if column in data]
    y = data[[table.response, *more]].to_numpy(float) if more else data[table.response].to_numpy(float)
    return GroupedPosterior(
        table.family,
        y,
        X[:, int(table.family == "ordinal") :],
        pd.factorize(data[table.group], sort=True)[0],
        None if table.slope is None else data[table.slope].to_numpy(float),
        float(model.level),
        wide,
        own,
        held,
    )


def true_answers(table: Table, data: pd.DataFrame) -> dict[str, Any]:
    """At the theta where the collapsed evidence is largest, rounded, and over everything."""
    fit = quiet(table, data, accuracy="fast", evidence="corrected")
    theta = np.round(fit.found.theta, 4)
    return {
        "theta": theta.tolist(),
        "at": posterior_of(table, data, theta).truth().stored(),
        "whole": posterior_of(table, data, None).truth().stored(),
    }


# -- fits ------------------------------------------------------------------------------------------------
def quiet(table: Table, data: pd.DataFrame, **how: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fenchel.fit(table.formula, data, table.family, **{**table.options, **how})


def timed(works: list[Callable[[], Any]], rounds: int = 2) -> list[tuple[Any, float]]:
    """What each returns, with the least processor seconds of some rounds of all."""
    out: list[tuple[Any, float]] = [(None, np.inf)] * len(works)
    for k in range(rounds):
        for i, work in enumerate(works):
            if k and out[i][1] > 5.0:
                continue
            begun = time.process_time()
            found = work()
            out[i] = found, min(out[i][1], time.process_time() - begun)
    return out


def farthest(ratio: np.ndarray) -> float:
    ratio = np.asarray(ratio)
    return float(ratio.flat[np.argmax(np.abs(np.log(ratio)))])


def at_theta(plain: Any, theta: np.ndarray) -> Any:
    """The model as fitted at theta, with groups integrated out."""
    family, target, likelihood = plain.model.sum.family(), plain.model.target, plain.found.likelihood
    own = family.theta.size
    likelihood = likelihood.with_theta(theta[own:]) if theta.size > own else likelihood
    solution = fenchel.infer(likelihood, family.at(theta[:own]), target.y, weights=target.weights)
    found = solution.corrected()
    assert found.method == "collapsed", found
    held = replace(plain.found, theta=theta, solution=solution, likelihood=likelihood)
    return type(plain)(plain.model, held, answers=found, at_theta=True)


def group_sds(fit: Any) -> pd.DataFrame:
    """Means and sds of the sds of groups, in the user's units."""
    rows = fit.hyperparameters
    named = [key for key in rows.index if str(key[0]).startswith("(") and str(key[1]).startswith("sd")]
    return rows.loc[[key for key in named if " at the mean" not in str(key[1])], ["mean", "sd"]]


def compare(table: Table, data: pd.DataFrame, kept: dict[str, Any]) -> dict[str, Any]:
    """One row of both tables."""
    (plain, seconds), (_, corrected), (default, whole) = timed(
        [
            lambda: quiet(table, data, accuracy="fast"),
            lambda: quiet(table, data, accuracy="fast", evidence="corrected"),
            lambda: quiet(table, data),
        ]
    )
    row: dict[str, Any] = {"table": table.name, "rows": len(data), "groups": data[table.group].nunique()}
    true, held = Truth.of(kept["at"]), at_theta(plain, np.array(kept["theta"]))
    name = next(iter(held.effects))
    n = true.effects.shape[1]
    row["elbo"] = held.elbo - true.log_evidence
    row["at theta"], row["(error)"] = held.answers.log_evidence - true.log_evidence, held.answers.log_evidence_se
    row["se"] = farthest(held.coefficients["sd"].to_numpy() / true.beta[1])
    row["effects"] = farthest(held.effects[name]["sd"].to_numpy()[:n] / true.effects[1])
    row["mc nats"], row["mc"] = true.evidence_error, true.error
    true, sds = Truth.of(kept["whole"]), group_sds(default).to_numpy()
    row["over all"], row["(error) "] = default.log_evidence - true.log_evidence, default.log_evidence_error
    row["beta"] = float(np.abs((default.coefficients["mean"].to_numpy() - true.beta[0]) / true.beta[1]).max())
    row["se "] = farthest(default.coefficients["sd"].to_numpy() / true.beta[1])
    row["sd"], row["sd's sd"] = farthest(sds[:, 0] / true.sds[0]), farthest(sds[:, 1] / true.sds[1])
    row["effects "] = farthest(default.effects[name]["sd"].to_numpy()[:n] / true.effects[1])
    row["mc nats"], row["mc"] = max(row["mc nats"], true.evidence_error), max(row["mc"], true.error)
    nats = NATS + 2.0 * row["mc nats"]
    share = SHARE + 2.0 * row["mc"]
    off = [name for name in ("at theta", "over all") if abs(row[name]) > nats]
    off += [name for name in ("se", "effects", "se ", "sd", "effects ") if abs(np.log(row[name])) > share]
    row["verdict"] = "ok" if not off else "off: " + ", ".join(name.strip() for name in off)
    row["plain"], row["corrected"], row["default"] = seconds, corrected / seconds, whole / seconds
    row["did"] = default.accuracy.split(":")[0]
    row["sds true"], row["sds here"] = true.sds[0], sds[:, 0]
    return row


# -- R ---------------------------------------------------------------------------------------------------
def to_r(table: Table, data: pd.DataFrame, folder: Path) -> None:
    """As ``defaults.R`` writes tables, with the call."""
    factors = [name for name in data if isinstance(data[name].dtype, pd.CategoricalDtype)]
    columns = {name: data[name].astype(str).tolist() if name in factors else data[name].tolist() for name in data}
    levels = {name: [str(level) for level in data[name].cat.categories] for name in factors}
    more = {"kind": table.kind, "formula": table.formula, "slopes": table.slope is not None, "group": table.group}
    path = folder / f"{table.name}.table.json"
    path.write_text(json.dumps({"name": table.name, "columns": columns, "levels": levels, **more}))


def from_r(folder: Path) -> dict[str, Any]:
    subprocess.run(["Rscript", "--vanilla", str(SCRIPT), str(folder)], check=True)
    return dict(json.loads((folder / "found.json").read_text()))


# -- all of it -------------------------------------------------------------------------------------------
ACCURACY = ("table", "rows", "groups", "elbo", "at theta", "(error)", "se", "effects", "over all", "(error) ", "beta")
ACCURACY += ("se ", "sd", "sd's sd", "effects ", "mc nats", "mc", "verdict")
PRICES = ("table", "plain", "corrected", "default", "glmer", "glmmTMB", "sds true", "sds here", "sds glmer")
PRICES += ("sds glmmTMB",)
DIGITS = {"at theta": "+.4f", "over all": "+.4f", "mc": ".4f", "beta": ".3f", "elbo": ".3f", "plain": ".3f"}
DIGITS |= {"corrected": ".1f", "default": ".1f", "glmer": ".2f", "glmmTMB": ".2f"}
DIGITS |= {"(error)": ".4f", "(error) ": ".4f", "mc nats": ".4f"}


def line(row: dict[str, Any], names: tuple[str, ...]) -> str:
    words = []
    for name in names:
        value = row.get(name, "")
        if isinstance(value, list | np.ndarray):
            words.append(" ".join(f"{v:.3f}" for v in value))
        else:
            words.append(format(value, DIGITS.get(name, ".3f")) if isinstance(value, float) else str(value))
    return f"| {' | '.join(words)} |"


def header(names: tuple[str, ...]) -> str:
    return f"| {' | '.join(name.strip() for name in names)} |\n" + "|---" * len(names) + "|"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", help="tables, or kinds of them, by how their names begin")
    parser.add_argument("--truth", action="store_true", help="work out truths again, and store them")
    parser.add_argument("--r", action="store_true", help="run R's fits again, and store them")
    asked = parser.parse_args()
    kept = json.loads(STORED.read_text()) if STORED.exists() else {"truth": {}, "R": {}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if present := shutil.which("Rscript") is not None:
            defaults.from_r(folder, "data")
        wanted = [t for t in TABLES if not asked.only or any(t.name.startswith(word) for word in asked.only)]
        every = [
            (t, defaults.read(folder / f"{t.name}.json") if t.make is None else t.make())
            for t in wanted
            if present or t.make is not None
        ]
        if asked.r:
            for table, data in every:
                to_r(table, data, folder)
            found = from_r(folder)
            kept["R"] = {**kept["R"], **found, "tables": {**kept["R"].get("tables", {}), **found["tables"]}}
            STORED.write_text(json.dumps(kept, indent=1) + "\n")
        rows = []
        print(header(ACCURACY))
        for table, data in every:
            if asked.truth or table.name not in kept["truth"]:
                kept["truth"][table.name] = true_answers(table, data)
                STORED.write_text(json.dumps(kept, indent=1) + "\n")
            rows.append(compare(table, data, kept["truth"][table.name]))
            of_r = kept["R"].get("tables", {}).get(table.name, {})
            for word in ("glmer", "glmmTMB"):
                if word in of_r:
                    rows[-1][word] = float(of_r[word]["seconds"])
                    rows[-1][f"sds {word}"] = np.atleast_1d(of_r[word]["sds"])
            print(line(rows[-1], ACCURACY), flush=True)
    good = [row for row in rows if row["verdict"] == "ok"]
    print(f"\n{len(good)} of {len(rows)} within {NATS} nat and {SHARE:.0%}\n\n{header(PRICES)}")
    for row in rows:
        print(line(row, PRICES))
    five = sum(row["corrected"] <= 5.0 for row in rows)
    print(
        f"\n{five} of {len(rows)} corrected within five plain fits; R {kept['R'].get('R')}, {kept['R'].get('versions')}"
    )


if __name__ == "__main__":
    main()
