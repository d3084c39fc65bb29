"""Bounds of the evidence of mixed models: how wide, and how far q is from the posterior.

    python benchmarks/proofs_groups.py                  real tables where Rscript is present, and simulated ones
    python benchmarks/proofs_groups.py --only ohio      some of them
    python benchmarks/proofs_groups.py --high           effort="high"
    python benchmarks/proofs_groups.py --rows           beside the bounds by rows

All of it at the theta of the plain fit, in nats. Columns:

    p           latents beside the groups
    elbo        of the Gaussian over everything, less the lower bound
    collapsed   evidence of the fit with groups integrated out, less the lower bound
    width       upper - lower
    KL          of q(b) to the posterior of b, at most
    x           the interval of the last coefficient holds at least this, proved; what ``corrected`` says of it
    rows        upper - lower of the bounds by rows
    seconds     of the bounds, processor
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from pathlib import Path

import defaults
import numpy as np
import pandas as pd

import fenchel
from fenchel.proofs import evidence_bounds, prove

REAL = ("toenail", "ohio", "Contraception", "bacteria", "respiratory", "schizophrenia", "cbpp", "epil")
LEVELS = {"50 x 4, sd 2": (50, 4, 2.0), "537 x 4, sd 2": (537, 4, 2.0), "200 x 2, sd 3": (200, 2, 3.0)}


def level_alone(groups: int, rows: int, sd: float) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(groups), rows)
    eta = 0.5 + sd * rng.standard_normal(groups)[g]
    return pd.DataFrame({"y": (rng.random(g.size) < 1 / (1 + np.exp(-eta))).astype(int), "g": g})


def row(name: str, formula: str, family: str, data: pd.DataFrame, options: dict, effort: str, rows: bool) -> str:
    fit = fenchel.fit(formula, data, family=family, accuracy="fast", **options)
    began = time.process_time()
    proof = prove(fit.solution, effort)
    seconds = time.process_time() - began
    b = proof.bounds
    p = "-" if proof.groups is None else str(proof.groups._found.state.mean.size)
    collapsed = np.nan if proof.groups is None else proof.groups.log_evidence - b.lower
    found = fit.proved(fit.coefficients.index[-1], effort=effort)
    cells = [name, p, f"{b.lower:.4f}", f"{fit.elbo - b.lower:.3f}", f"{collapsed:.4f}", f"{b.upper - b.lower:.1e}"]
    cells += [f"{proof.rest_kl:.1e}", f"{100 * found.lower:.1f} %", f"{100 * found.estimate:.1f} %"]
    if rows:
        plain = evidence_bounds(fit.solution, effort)
        cells.append(f"{plain.upper - plain.lower:.3f}")
    return "| " + " | ".join([*cells, f"{seconds:.1f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--high", action="store_true")
    parser.add_argument("--rows", action="store_true")
    asked = parser.parse_args()
    effort = "high" if asked.high else "fast"
    warnings.simplefilter("ignore")
    names = ["model", "p", "lower", "elbo", "collapsed", "width", "KL", "x holds", "estimated"]
    names += ["rows", "seconds"] if asked.rows else ["seconds"]
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for name, size in LEVELS.items():
        if asked.only is None or "level" in asked.only:
            said = row(f"level, {name}", "y ~ 1 + (1|g)", "bernoulli", level_alone(*size), {}, effort, asked.rows)
            print(said, flush=True)
    if shutil.which("Rscript") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        defaults.from_r(Path(folder), "data")
        for table in defaults.TABLES:
            path = Path(folder) / f"{table.name}.json"  # there is none where its package of R is missing
            if table.name in REAL and (asked.only is None or table.name in asked.only) and path.exists():
                data = defaults.read(path)
                given = table.name, table.formula, table.family, data, table.options
                print(row(*given, effort, asked.rows), flush=True)


if __name__ == "__main__":
    main()
