"""Groups integrated out, beside quadrature over everything: evidence, sds of coefficients and of groups, seconds.

    python benchmarks/collapsed.py                   real tables where Rscript is present, and simulated ones
    python benchmarks/collapsed.py --only toenail    some of them
    python benchmarks/collapsed.py --r               with the seconds of glmer, nAGQ = 25, and of glmmTMB

All of it at the theta of the plain fit, and once more at one and a half times its group sds. Truth: effects of groups
on an even grid over 7 prior sds to either side, coefficients by importance draws from a normal that is 1.15 times as
wide as the posterior, Sobol's in pairs. Columns:

    elbo, clusters    evidence of the Gaussian, and of the expansion in clusters, less the truth, in nats
    evidence, (error) of ``solution.corrected()``, less the truth, and what it says of its own error
    mc                half the difference of two halves of the draws
    se, effects       sds of coefficients and of groups' effects over the true ones, the one farthest from 1
    shift             means of both from the true ones, in true sds, the largest
    fit, corrected    processor seconds of one fit at theta, and of its correction
    learned           the same of the whole search by ``evidence="corrected"``, in plain fits: plain seconds in brackets
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import defaults
import numpy as np
import pandas as pd
from scipy.special import logsumexp
from scipy.stats import norm, qmc

import fenchel
from fenchel import gates

WORK = 1e9  # densities of a truth
WIDER = 1.15
REACH = 7.0
HALF = {1: 150, 2: 24}
SHOWN = ("table", "rows", "groups", "p", "elbo", "clusters", "evidence", "(error)", "mc", "se", "effects", "shift")
SECONDS = ("fit", "corrected", "learned")


@dataclass
class Table:
    """A table with its formula; ``make`` simulates it, else it is R's."""

    name: str
    formula: str
    family: str
    make: Callable[[], pd.DataFrame] | None = None
    options: dict[str, Any] = field(default_factory=dict)


# -- simulated tables ------------------------------------------------------------------------------------
def simulated(groups: int, size: int, kind: str, sd: float = 1.5, slope: float = 0.0, seed: int = 1) -> pd.DataFrame:
    """Rows in groups with two covariates, one of rows and one of groups."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(groups), size)
    x, z = rng.normal(size=g.size), rng.integers(0, 2, groups)[g].astype(float)
    eta = 0.5 * x - 0.7 * z + (sd * rng.normal(size=groups))[g] + (slope * rng.normal(size=groups))[g] * x
    out = pd.DataFrame({"g": g, "x": x, "z": z})
    if kind == "binary":
        out["y"] = (rng.random(g.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    elif kind == "binomial":
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
    return out


def one(name: str, family: str, slopes: bool = False, options: dict[str, Any] | None = None, **how: Any) -> Table:
    formula = f"y ~ x + z + ({'1 + x' if slopes else '1'}|g)"
    return Table(name, formula, family, lambda: simulated(**how), options or {})


TABLES = [
    Table("toenail", "y ~ treatment * time + (1|patientID)", "bernoulli"),
    Table("ohio", "resp ~ age + smoke + (1|id)", "bernoulli"),
    Table("bacteria", "y ~ trt + late + (1|ID)", "bernoulli"),
    Table("respiratory", "outcome ~ treat + sex + age + baseline + (1|id)", "bernoulli"),
    one("binary, 2 a group", "bernoulli", groups=200, size=2, kind="binary"),
    one("binary, 5 a group", "bernoulli", groups=60, size=5, kind="binary"),
    one("binary, 50 a group", "bernoulli", groups=20, size=50, kind="binary"),
    one("binary, slopes", "bernoulli", slopes=True, groups=60, size=8, kind="binary", slope=0.8),
    one("binomial", "binomial", options={"trials": "trials"}, groups=40, size=5, kind="binomial"),
    one("counts", "poisson", groups=50, size=5, kind="counts", sd=0.7),
    one("counts, slopes", "poisson", slopes=True, groups=30, size=8, kind="counts", sd=0.7, slope=0.4),
    one("counts, spread", "negative-binomial", groups=50, size=5, kind="spread", sd=0.7),
    one("levels", "ordinal", groups=50, size=5, kind="levels"),
    one("durations", "weibull", options={"event": "event"}, groups=50, size=4, kind="durations", sd=0.8),
]


# -- the truth -------------------------------------------------------------------------------------------
@dataclass
class Truth:
    """log p(y) with its standard error; means and sds of all latents, the groups' first."""

    log_evidence: float
    error: float
    mean: np.ndarray
    sd: np.ndarray


def truth_of(solution: Any, found: Any) -> Truth:
    """Draws of b, with the effects of every group summed over a grid at each."""
    split = found._data.split
    posterior = solution.posterior
    predictors = posterior.predictors
    W, Q = predictors.W.toarray(), predictors.pattern.Q.toarray()
    X, (G, d) = W[:, split.rest], split.groups.shape
    prior = predictors.latent_mean()
    A, group = np.zeros((W.shape[0], d)), np.full(W.shape[0], -1)
    for k in range(d):
        seen = W[:, split.groups[:, k]]
        A[:, k] = seen.sum(axis=1)
        group = np.where((seen != 0.0).any(axis=1), (seen != 0.0).argmax(axis=1), group)
    P = Q[np.ix_(split.groups[0], split.groups[0])]
    line = np.linspace(-REACH, REACH, 2 * HALF[d] + 1)
    v = np.stack(np.meshgrid(*[line] * d, indexing="ij"), axis=-1).reshape(-1, d)
    u = v @ np.linalg.cholesky(np.linalg.inv(P)).T
    log_u = -0.5 * np.sum(v * v, axis=1) + d * np.log((line[1] - line[0]) / np.sqrt(2.0 * np.pi))
    rows = {key: np.asarray(value) for key, value in solution._rows.items()}
    order = np.argsort(group, kind="stable")
    rows, X, A, group = {key: value[order] for key, value in rows.items()}, X[order], A[order], group[order]
    offset = np.asarray(predictors.offset)[order, 0]
    start = np.searchsorted(group, np.arange(G))
    state = found._found.state
    root, p = WIDER * state.root, state.mean.size
    n = int(2 ** np.clip(np.floor(np.log2(WORK / (2.0 * X.shape[0] * u.shape[0]))), 7, 12))
    draws = norm.ppf(qmc.Sobol(p, rng=np.random.default_rng(0)).random(n))
    draws = np.concatenate([draws, -draws])
    b = state.mean + draws @ root.T
    Q_b, off = Q[np.ix_(split.rest, split.rest)], b - prior[split.rest]
    log_w = 0.5 * np.sum(draws**2, axis=1) + np.linalg.slogdet(root)[1] + 0.5 * np.linalg.slogdet(Q_b)[1]
    log_w -= 0.5 * np.sum((off @ Q_b) * off, axis=1)
    sums = np.zeros((b.shape[0], 2, G, d))
    along = A @ u.T
    for k, each in enumerate(b):
        log_p = solution.likelihood.log_density((X @ each + offset)[:, None] + along, rows)
        given = np.add.reduceat(np.where(np.isnan(log_p), -np.inf, log_p), start, axis=0) + log_u
        total = logsumexp(given, axis=1)
        log_w[k] += total.sum()
        share = np.exp(given - total[:, None])
        sums[k] = share @ u, share @ u**2
    log_z = logsumexp(log_w)
    weight = np.exp(log_w - log_z)
    halves = [float(logsumexp(np.r_[log_w[i:n:2], log_w[n + i :: 2]])) for i in (0, 1)]
    centre = weight @ b
    first, second = np.einsum("k,kigd->igd", weight, sums)
    mean = np.r_[first.ravel(), centre]
    sd = np.sqrt(np.r_[(second - first**2).ravel(), weight @ (b - centre) ** 2])
    return Truth(float(log_z - np.log(b.shape[0])), abs(halves[0] - halves[1]) / 2.0, mean, sd)


# -- fits ------------------------------------------------------------------------------------------------
def timed(work: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """The least processor seconds of some runs."""
    best, out = np.inf, None
    for _ in range(times):
        begun = time.process_time()
        out = work()
        best = min(best, time.process_time() - begun)
    return out, best


def farthest(ratio: np.ndarray) -> float:
    return float(ratio[np.argmax(np.abs(np.log(ratio)))])


def compare(table: Table, data: pd.DataFrame, learned: bool) -> list[dict[str, Any]]:
    """A row at the theta of the plain fit, and one at one and a half times its group sds."""
    how = {**table.options, "accuracy": "fast"}

    def fitted(**more: Any) -> Any:
        return fenchel.fit(table.formula, data, table.family, **{**how, **more})

    plain, plain_seconds = timed(fitted)
    family, theta = plain.model.sum.family(), plain.found.theta
    own = family.theta.size
    moved = theta[:own] + np.where(["sd" in name for name in family.names], np.log(1.5), 0.0)
    y, likelihood, out = plain.solution.y, plain.found.likelihood, []
    for name, place in ((table.name, theta[:own]), ("  sd x 1.5", moved)):
        solution, fit_seconds = timed(lambda place=place: fenchel.infer(likelihood, family.at(place), y))
        found, seconds = timed(lambda solution=solution: _with_error(solution))
        assert found.method == "collapsed", found
        with_groups, gates.COLLAPSED_WORK = gates.COLLAPSED_WORK, 0.0
        clusters = solution.corrected()
        gates.COLLAPSED_WORK = with_groups
        truth = truth_of(solution, found)
        split, latents = found._data.split, found.latents()
        mean, sd = (np.r_[v[split.groups.ravel()], v[split.rest]] for v in (latents.mean, latents.sd))
        m = split.groups.size
        row: dict[str, Any] = {"table": name, "rows": len(data), "groups": found.n_groups, "p": split.rest.size}
        row["elbo"], row["clusters"] = (x - truth.log_evidence for x in (solution.elbo, clusters.log_evidence))
        row["evidence"], row["(error)"] = found.log_evidence - truth.log_evidence, found.log_evidence_se
        row["mc"], ratio = truth.error, sd / truth.sd
        row["se"], row["effects"] = farthest(ratio[m:]), farthest(ratio[:m])
        row["shift"] = float(np.abs((mean - truth.mean) / truth.sd).max())
        row["fit"], row["corrected"], row["learned"] = fit_seconds, seconds, ""
        out.append(row)
    if learned:
        _, spent = timed(lambda: fitted(evidence="corrected"), 2)
        out[0]["learned"] = f"{spent / plain_seconds:.1f} ({plain_seconds:.2f})"
    return out


def _with_error(solution: Any) -> Any:
    found = solution.corrected()
    assert found.log_evidence_se >= 0.0
    return found


def line(row: dict[str, Any]) -> str:
    words = []
    for name in (*SHOWN, *SECONDS):
        value = row[name]
        if name in ("se", "effects", "shift", "fit", "corrected"):
            words.append(f"{value:.3f}")
        elif isinstance(value, float):
            words.append(f"{value:+.4f}" if name in ("evidence", "clusters") else f"{value:.4f}")
        else:
            words.append(str(value))
    return f"| {' | '.join(words)} |"


def seconds_of_r(folder: Path) -> None:
    """glmer with 25 points and glmmTMB on R's tables, in processor seconds."""
    script = folder / "peers.R"
    script.write_text("""

suppressMessages({library(lme4); library(glmmTMB)})
data(toenail, package = "HSAUR3"); toenail$y <- as.integer(toenail$outcome == "moderate or severe")
data(ohio, package = "geepack"); data(respiratory, package = "geepack")
bacteria <- MASS::bacteria; bacteria$y <- as.integer(bacteria$y == "y"); bacteria$late <- as.integer(bacteria$week > 2)
respiratory$id <- interaction(respiratory$center, respiratory$id, drop = TRUE)
fits <- list(
  toenail = list(y ~ treatment * time + (1 | patientID), toenail),
  ohio = list(resp ~ age + smoke + (1 | id), ohio),
  bacteria = list(y ~ trt + late + (1 | ID), bacteria),
  respiratory = list(outcome ~ treat + sex + age + baseline + (1 | id), respiratory))
for (name in names(fits)) {
  f <- fits[[name]]
  a <- sum(system.time(m <- glmer(f[[1]], f[[2]], binomial, nAGQ = 25))[1:2])
  b <- sum(system.time(k <- glmmTMB(f[[1]], f[[2]], binomial))[1:2])
  cat(sprintf("%-12s glmer %5.2f s, sd %.3f; glmmTMB (Laplace) %5.2f s, sd %.3f\\n", name, a,
      attr(VarCorr(m)[[1]], "stddev"), b, attr(VarCorr(k)$cond[[1]], "stddev")))
}
""")
    subprocess.run(["Rscript", "--vanilla", str(script)], check=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--r", action="store_true")
    parser.add_argument("--quick", action="store_true", help="without the whole searches")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        present = shutil.which("Rscript") is not None
        if present:
            defaults.from_r(folder, "data")
        print(f"| {' | '.join((*SHOWN, *SECONDS))} |")
        print("|---" * (len(SHOWN) + len(SECONDS)) + "|")
        for table in TABLES:
            if (asked.only and table.name not in asked.only) or (table.make is None and not present):
                continue
            data = defaults.read(folder / f"{table.name}.json") if table.make is None else table.make()
            for row in compare(table, data, not asked.quick):
                print(line(row), flush=True)
        if asked.r and present:
            seconds_of_r(folder)


if __name__ == "__main__":
    main()
