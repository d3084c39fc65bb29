"""Crossed effects learned: ratings of lecturers by students in departments, and one effect for every row.

    python benchmarks/crossed.py [--rows 73421] [--families bernoulli gaussian] [--own 100000] [--islands 800]
                                 [--regions 0] [--levels 10000x10000 100000x10000 [--level-rows 1000000]]
                                 [--engine auto] [--insteval]

Simulated data of the size of lme4's InstEval: 73,421 ratings of 1,128 lecturers by 2,972 students in 28 departments, a
covariate, three crossed effects, binary or Gaussian; ``--rows`` scales all of it. ``--own`` are Poisson counts with an
iid effect for every row and two covariates. ``--islands`` are Poisson counts on a map of so many rings of six regions,
each summing to zero: a constraint for every island. ``--regions`` are Poisson counts in space and time with an
interaction of type IV: a lattice of so many regions at a tenth as many times. ``--levels`` are two groupings of so many
levels crossed at random over ``--level-rows`` rows, with a covariate, binary and Gaussian; their floor is one
factorisation and selected inverse at the solution's own weights; ``--engine iterative`` fits them without one (its
evaluations are fits at one theta). ``--insteval`` is InstEval itself, out of an installed
R's lme4, the grades as they are and as 4 or more, with default and with flat priors of the sds. ``--rows 0 --own
--islands 0`` leaves the rest out.

Seconds are the processor's over all threads and those of the clock. Factorisations are those of A = Q + W' Lam W and of
Q, beside them the selected inverses and the products (Vt o Vt) v. Peak memory is that of the process above what it held
before. At the default size the stored answers of ``crossed_peers.py`` stand below ours: seconds of the fit, peak memory
of the whole process, estimates less ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sparse import Peak

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import learn
from fenchel.likelihoods import Poisson
from fenchel.terms import ICAR, RW1, Interaction

ROWS, STUDENTS, LECTURERS, DEPARTMENTS = 73_421, 2_972, 1_128, 28
SDS = {"s": 0.6, "d": 0.8, "dept": 0.3}
FORMULA = "y ~ x + (1|s) + (1|d) + (1|dept)"


def ratings(family: str, rows: int, seed: int = 0) -> pd.DataFrame:
    """Ratings in InstEval's proportions: a student rates mostly within one department."""
    rng, share = np.random.default_rng(seed), rows / ROWS
    students, lecturers, departments = (max(4, round(n * share)) for n in (STUDENTS, LECTURERS, DEPARTMENTS))
    home = rng.integers(0, departments, lecturers)
    own = rng.integers(0, departments, students)
    s = rng.integers(0, students, rows)
    order, first = np.argsort(home, kind="stable"), np.searchsorted(np.sort(home), np.arange(departments + 1))
    many = np.maximum(np.diff(first), 1)[own[s]]
    near = order[np.minimum(first[own[s]] + (rng.random(rows) * many).astype(int), lecturers - 1)]
    d = np.where(rng.random(rows) < 0.7, near, rng.integers(0, lecturers, rows))
    dept = np.where(rng.random(rows) < 0.9, home[d], rng.integers(0, departments, rows))
    x = rng.normal(size=rows)
    effects = [sd * rng.normal(size=n) for sd, n in zip(SDS.values(), (students, lecturers, departments), strict=True)]
    eta = 0.2 + 0.4 * x + effects[0][s] + effects[1][d] + effects[2][dept]
    y = eta + 1.2 * rng.normal(size=rows) if family == "gaussian" else rng.random(rows) < 1 / (1 + np.exp(-eta))
    return pd.DataFrame({"y": np.asarray(y, dtype=float), "x": x, "s": s, "d": d, "dept": dept})


def measured(label: str, work: Any) -> Any:
    """What ``work`` returns, its costs printed."""
    with Peak() as peak:
        cpu, wall = time.process_time(), time.perf_counter()
        out = work()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    found = getattr(out, "found", out)
    counts = [getattr(found, f"n_{name}", 0) for name in ("newton", "factorisations", "inverses", "products")]
    evaluations = found.n_fits if hasattr(found, "n_fits") else found.n_evaluations
    row = f"{label:<28}{cpu:>9.2f}{wall:>9.2f}{evaluations:>12}" + "".join(f"{n:>8}" for n in counts)
    print(row + f"{peak.mib:>8.0f}", end="", flush=True)
    return out


def crossed(family: str, rows: int) -> None:
    data = ratings(family, rows)
    fit = measured(f"{family}, {rows} rows", lambda: fenchel.fit(FORMULA, data, family, accuracy="fast"))
    sds = dict(zip(SDS, np.exp(fit.theta[:3]), strict=True))
    said = "".join(f"  {name} {value:.4f}" for name, value in sds.items())
    print(f"  x {fit.coefficients.loc['x', 'mean']:.4f}{said}", flush=True)
    if not fit.converged:
        print(f"  {fit.found.status}")
    if rows == ROWS:
        peers(family, {"x": float(fit.coefficients.loc["x", "mean"]), **sds})


def levels(family: str, first: int, second: int, rows: int, engine: str) -> None:
    """Two groupings crossed at random: eliminating the larger one fills the border of the other."""
    rng = np.random.default_rng(3)
    s, d, x = rng.integers(0, first, rows), rng.integers(0, second, rows), rng.normal(size=rows)
    eta = 0.2 + 0.4 * x + 0.6 * rng.normal(size=first)[s] + 0.8 * rng.normal(size=second)[d]
    y = eta + 1.2 * rng.normal(size=rows) if family == "gaussian" else rng.random(rows) < 1 / (1 + np.exp(-eta))
    data = pd.DataFrame({"y": np.asarray(y, dtype=float), "x": x, "s": s, "d": d})
    label = f"{family}, {first} x {second}"
    fit = measured(label, lambda: fenchel.fit("y ~ x + (1|s) + (1|d)", data, family, engine=engine, accuracy="fast"))
    sds = dict(zip(("s", "d"), np.exp(fit.theta[:2]), strict=True))
    said = "".join(f"  {name} {value:.4f}" for name, value in sds.items())
    noise = f"  noise {fit.found.likelihood.variance**0.5:.4f}" if family == "gaussian" else ""
    print(f"  x {fit.coefficients.loc['x', 'mean']:.4f}{said}{noise}", flush=True)
    if hasattr(fit.found, "n_fits"):
        print(f"  {fit.gap:.2g}", flush=True)
        return
    truth = "  noise 1.2000" if family == "gaussian" else ""
    pattern, lam = fit.found.prior.pattern, fit.found.solution.lam[:, 0]
    cpu, wall = time.process_time(), time.perf_counter()
    pattern.factor(lam * (1.0 + 1e-9)).row_variances(pattern.rows)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{'  its floor; the truth':<28}{cpu:>9.2f}{wall:>9.2f}{'':>52}  x 0.4000  s 0.6000  d 0.8000{truth}")
    if not fit.converged:
        print(f"  {fit.found.status}")


def insteval(family: str, flat: bool) -> None:
    """lme4's own table: grades 1 to 5, or whether they are 4 or more."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "insteval.csv")
        script = f'data(InstEval, package = "lme4"); write.csv(InstEval, "{table}", row.names = FALSE)'
        subprocess.run(["Rscript", "--vanilla", "-e", script], capture_output=True, check=True)
        data = pd.read_csv(table, dtype={"service": str})
    if family == "bernoulli":
        data["y"] = (data["y"] >= 4).astype(float)
    formula = "y ~ service + (1|s) + (1|d) + (1|dept)"
    priors = {f"(1|{name})": None for name in SDS} if flat else None
    label = f"InstEval, {family}{', flat' if flat else ''}"
    fit = measured(label, lambda: fenchel.fit(formula, data, family, priors=priors, accuracy="fast"))
    sds = dict(zip(SDS, np.exp(fit.theta[:3]), strict=True))
    said = "".join(f"  {name} {value:.4f}" for name, value in sds.items())
    print(f"  service {fit.coefficients['mean'].iloc[1]:.4f}{said}", flush=True)


def peers(family: str, ours: dict[str, float]) -> None:
    """What ``crossed_peers.py`` kept of other packages on the same rows, and how far their estimates are from ours."""
    stored = json.loads(Path(__file__).with_name("crossed_peers.json").read_text())
    for method, kept in stored.get(family, {}).items():
        if "failed" in kept:
            print(f"  {method:<26}{kept['failed']}")
            continue
        far = "".join(f"  {name} {kept['estimates'][name] - value:+.4f}" for name, value in ours.items())
        costs = f"{kept['cpu']:>9.2f}{kept['wall']:>9.2f}{kept['peak_mib']:>44}"
        print(f"  {method + ', ' + kept['version']:<26}{costs}  less ours:{far}")


def own_effects(rows: int) -> None:
    """Overdispersed counts: an iid effect for every row."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, 2))
    y = rng.poisson(np.exp(0.5 + X @ [0.3, -0.2] + 0.5 * rng.normal(size=rows))).astype(float)

    def work() -> Any:
        family = gmrf.stack([(gmrf.iid(rows), np.arange(rows))], fixed=X)
        return learn(Poisson(), family, y)

    found = measured(f"poisson, {rows} own effects", work)
    print(f"  sd {np.exp(found.theta[0]):.4f}", flush=True)


def islands(number: int) -> None:
    """An intrinsic map of many components, each held by a constraint of its own."""
    ring = np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)
    graph = sp.block_diag([sp.csr_array(ring)] * number, format="csr")
    y = np.random.default_rng(0).poisson(3.0, 6 * number).astype(float)

    def work() -> Any:
        return learn(Poisson(), gmrf.stack([(gmrf.icar(graph), np.arange(6 * number))]), y)

    found = measured(f"poisson, {number} islands", work)
    print(f"  sd {np.exp(found.theta[0]):.4f}", flush=True)


def interaction(regions: int) -> None:
    """Counts in space and time: a map, a walk, and their interaction of type IV."""
    side = max(2, round(regions**0.5))
    wide, times = (regions + side - 1) // side, max(3, regions // 10)
    index = np.arange(side * wide).reshape(side, wide)
    across = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    edges = np.concatenate([across, np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)])
    where, when = (grid.ravel() for grid in np.meshgrid(np.arange(side * wide), np.arange(times), indexing="ij"))
    rng = np.random.default_rng(2)
    smooth = np.cumsum(0.2 * rng.normal(size=(side, wide, times)), axis=2)
    eta = 1.0 + (smooth + 0.3 * rng.normal(size=(side, wide, 1))).reshape(-1)
    data = pd.DataFrame({"y": rng.poisson(np.exp(np.clip(eta, -3, 4))).astype(float), "r": where, "t": when})
    graph = np.zeros((side * wide, side * wide))
    graph[edges[:, 0], edges[:, 1]] = graph[edges[:, 1], edges[:, 0]] = 1.0

    def work() -> Any:
        terms = [Interaction(ICAR("r", graph), RW1("t"))]
        return fenchel.fit("y ~ icar(r) + rw1(t)", data, "poisson", terms=terms, graphs={"r": graph}, accuracy="fast")

    found = measured(f"type IV, {side * wide} x {times}", work)
    print(f"  theta {np.round(found.theta, 3)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="ratings; 0 leaves them out")
    parser.add_argument("--families", nargs="+", default=["bernoulli", "gaussian"], choices=["bernoulli", "gaussian"])
    parser.add_argument("--own", type=int, nargs="*", default=[100_000], help="rows with an effect each")
    parser.add_argument("--islands", type=int, default=800)
    parser.add_argument("--regions", type=int, default=0)
    parser.add_argument("--levels", nargs="*", default=[], help="levels of two groupings, as 10000x10000")
    parser.add_argument("--level-rows", type=int, default=1_000_000)
    parser.add_argument("--engine", default="auto", choices=["auto", "direct", "iterative"], help="of --levels")
    parser.add_argument("--insteval", action="store_true", help="lme4's table")
    asked = parser.parse_args()
    small = ratings("bernoulli", 500)
    for family in ("bernoulli", "gaussian"):
        fenchel.fit(FORMULA, small, family, accuracy="fast")  # compile
    learn(Poisson(), gmrf.stack([(gmrf.iid(50), np.arange(50))], fixed=np.arange(50.0)[:, None]), np.arange(50.0))
    head = f"{'problem':<28}{'cpu s':>9}{'wall s':>9}{'evaluations':>12}{'newton':>8}{'factor':>8}"
    print(head + f"{'inverse':>8}{'product':>8}{'MiB':>8}  estimates")
    for family in asked.families if asked.rows else []:
        crossed(family, asked.rows)
    for rows in asked.own:
        own_effects(rows)
    if asked.islands:
        islands(asked.islands)
    if asked.regions:
        interaction(asked.regions)
    for family in asked.families if asked.insteval else []:
        for flat in (False, True):
            insteval(family, flat)
    for sizes in asked.levels:
        for family in asked.families:
            levels(family, *(int(n) for n in sizes.split("x")), asked.level_rows, asked.engine)


if __name__ == "__main__":
    main()
