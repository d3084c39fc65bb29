"""Peers of ``crossed.py`` on the same simulated ratings: lme4, glmmTMB, gpboost, glmm and mixedlm.

    python benchmarks/crossed_peers.py --python VENV/bin/python [--families bernoulli gaussian] [--only glmm]

Writes the rows of ``crossed.ratings`` (the seed that ``crossed.py`` uses), runs each peer in a process of its own, one
after the other, and keeps in ``crossed_peers.json`` its version, settings, estimates, seconds of the processor and of
the clock (of the fit alone, data read and packages loaded) and the peak memory of its process. R needs lme4 and
glmmTMB; ``--python`` is a Python that has gpboost, glmm and mixedlm. A peer that is not there, or has no answer within
``--limit`` seconds of the processor, is kept as such.

gpboost stops where a step changes its log-likelihood by less than 1e-6 of it, here 0.05 nats: with binary rows ten nats
below the maximum, the departments' sd at twice its value. "to its end" asks for 1e-9.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("crossed_peers.json")
EFFECTS = ("s", "d", "dept")
R_METHODS = {
    "bernoulli": {
        "glmer nAGQ=0": "lme4 glmer, nAGQ=0, bobyqa: coefficients within the penalised least squares",
        "glmer nAGQ=1": "lme4 glmer, nAGQ=1, bobyqa: Laplace",
        "glmmTMB binomial": "glmmTMB, its defaults: Laplace by automatic differentiation",
    },
    "gaussian": {
        "lmer": "lme4 lmer, REML = FALSE",
        "glmmTMB gaussian": "glmmTMB, its defaults, maximum likelihood",
    },
}
PYTHON_METHODS = {
    "bernoulli": {
        "gpboost": "GPModel, bernoulli_logit, its defaults (iterative methods)",
        "gpboost cholesky": 'GPModel, bernoulli_logit, matrix_inversion_method="cholesky"',
        "gpboost to its end": 'GPModel, bernoulli_logit, matrix_inversion_method="cholesky", delta_rel_conv=1e-9',
        "glmm": "fit, binomial, nagq=1: Laplace",
        "mixedlm nAGQ=0": "glmer, nAGQ=0",
        "mixedlm": "glmer, nAGQ=1: Laplace",
    },
    "gaussian": {
        "gpboost": "GPModel, gaussian, its defaults (iterative methods)",
        "gpboost cholesky": 'GPModel, gaussian, matrix_inversion_method="cholesky"',
        "gpboost to its end": 'GPModel, gaussian, matrix_inversion_method="cholesky", delta_rel_conv=1e-9',
        "glmm": "fit, reml=False, satterthwaite=False",
        "mixedlm": "lmer, REML=False",
    },
}


# -- within the process of a peer ---------------------------------------------------------------------------
def by_gpboost(data: Any, family: str, method: str) -> dict[str, Any]:
    import gpboost
    import numpy as np

    likelihood = "gaussian" if family == "gaussian" else "bernoulli_logit"
    how = {} if method == "gpboost" else {"matrix_inversion_method": "cholesky"}
    params = {"delta_rel_conv": 1e-9} if method.endswith("to its end") else {}
    X = np.column_stack([np.ones(len(data)), data["x"]])
    model = gpboost.GPModel(group_data=data[list(EFFECTS)].to_numpy(), likelihood=likelihood, **how)
    model.fit(y=data["y"].to_numpy(), X=X, params=params)
    variances = np.ravel(model.get_cov_pars())
    noise = float(np.sqrt(variances[0])) if family == "gaussian" else None
    sds = np.sqrt(variances[1:] if family == "gaussian" else variances)
    fixed = np.ravel(model.get_coef())
    return {
        "intercept": fixed[0],
        "x": fixed[1],
        **dict(zip(EFFECTS, sds, strict=True)),
        "noise": noise,
        "log_likelihood": -float(model.get_current_neg_log_likelihood()),
    }


def by_glmm(data: Any, family: str, method: str) -> dict[str, Any]:
    import glmm

    table = {name: data[name].to_numpy() for name in ("y", "x")}
    table |= {name: data[name].astype(str).to_numpy() for name in EFFECTS}
    formula = "y ~ x + (1 | s) + (1 | d) + (1 | dept)"
    if family == "gaussian":
        fit = glmm.fit(table, formula, reml=False, satterthwaite=False)
    else:
        fit = glmm.fit(table, formula, "binomial")
    sds = {group: float(value) ** 0.5 for (group, _), value in zip(fit.re_groups, fit.tau2, strict=True)}
    noise = float(fit.dispersion) ** 0.5 if family == "gaussian" else None
    return {"intercept": fit.beta[0], "x": fit.beta[1], **sds, "noise": noise, "log_likelihood": fit.loglik}


def by_mixedlm(data: Any, family: str, method: str) -> dict[str, Any]:
    import mixedlm

    data = data.assign(**{name: data[name].astype("category") for name in EFFECTS})
    formula = "y ~ x + (1 | s) + (1 | d) + (1 | dept)"
    if family == "gaussian":
        fit = mixedlm.lmer(formula, data, REML=False)
    else:
        fit = mixedlm.glmer(formula, data, mixedlm.families.Binomial(), nAGQ=0 if "=0" in method else 1)
    fixed, sds = fit.fixef(), {name: part["(Intercept)"] ** 0.5 for name, part in fit.VarCorr().as_dict().items()}
    noise = fit.sigma if family == "gaussian" else None
    likelihood = getattr(fit.logLik(), "value", fit.logLik())
    return {"intercept": fixed["(Intercept)"], "x": fixed["x"], **sds, "noise": noise, "log_likelihood": likelihood}


def run_one(method: str, family: str, path: str) -> None:
    """Prints one line of json; in a Python that has the peer."""
    import pandas as pd

    package = method.split()[0]
    data = pd.read_csv(path)
    __import__(package)
    cpu, wall = time.process_time(), time.perf_counter()
    found = globals()[f"by_{package}"](data, family, method)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    likelihood = found.pop("log_likelihood", None)
    estimates = {name: None if value is None else float(value) for name, value in found.items()}
    answer = {"version": version(package), "cpu": cpu, "wall": wall, "estimates": estimates}
    print(json.dumps({**answer, "log_likelihood": None if likelihood is None else float(likelihood)}))


# -- outside ------------------------------------------------------------------------------------------------
def asked(command: list[str], limit: int) -> dict[str, Any]:
    """What a peer printed, the seconds of its whole process and its peak memory; or why there is no answer."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        most = lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        process = subprocess.Popen(command, stdout=said, stderr=complained, preexec_fn=most)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        complained.seek(0)
        lines, words = said.read().strip().splitlines(), complained.read().strip().splitlines()
    out = {"process_cpu": round(used.ru_utime + used.ru_stime, 2), "peak_mib": round(used.ru_maxrss / 1024)}
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failed": f"no answer within {out['process_cpu']:.0f} s of the processor", **out}
    if process.returncode or not lines:
        return {"failed": words[-1] if words else f"ended with {process.returncode}", **out}
    found = json.loads(lines[-1])
    return {**found, "cpu": round(found["cpu"], 2), "wall": round(found["wall"], 2), **out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="a Python with gpboost, glmm and mixedlm")
    parser.add_argument("--families", nargs="+", default=list(R_METHODS), choices=list(R_METHODS))
    parser.add_argument("--only", nargs="*", help="methods whose name starts with one of these")
    parser.add_argument("--limit", type=int, default=600, help="seconds of the processor that a peer may take")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "FAMILY", "CSV"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(*given.one)
        return
    from crossed import ROWS, ratings

    kept = json.loads(STORED.read_text()) if STORED.exists() else {"rows": ROWS, "seed": 0, "threads": {}}
    kept["threads"] = {"cores": os.cpu_count(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set")}
    with tempfile.TemporaryDirectory() as folder:
        for family in given.families:
            path = str(Path(folder, f"{family}.csv"))
            ratings(family, ROWS, kept["seed"]).to_csv(path, index=False)
            for method, settings in (R_METHODS[family] | PYTHON_METHODS[family]).items():
                if given.only is not None and not method.startswith(tuple(given.only)):
                    continue
                own = [given.python, __file__, "--one", method, family, path]
                script = ["Rscript", "--vanilla", str(Path(__file__).with_suffix(".R")), method, path]
                found = asked(script if method in R_METHODS[family] else own, given.limit)
                kept.setdefault(family, {})[method] = {"settings": settings, **found}
                STORED.write_text(json.dumps(kept, indent=1) + "\n")
                print(f"{family}, {method}: {found}", flush=True)


if __name__ == "__main__":
    main()
