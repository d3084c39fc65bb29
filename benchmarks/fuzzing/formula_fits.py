"""Formulas through the library at hyperparameters that are held, judged by the dense model of ``formulas.py``.

Said of a fit: its elbo and elbo_upper, mean and variance of eta at the rows, and what ``predict(kind="link")`` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .formulas import FAMILIES, FormulaProblem, reference, regression, to_judge
from .judge import Verdict
from .optimum import optimum

TOL = 1e-9  # relative gap asked
ROUNDING = 1e-8  # of the evidence, relative: what dense and sparse algebra in doubles may differ by
MOMENTS = 1e-4  # of the posterior's sds
AVERAGED = ("ordinal", "zero-inflated-poisson")  # predictions are averaged over the likelihood's own parameters
OWN = ("variance", "size", "shape", "precision", "probability", "dispersion", "power", "cutpoints")
ROWS = ("exposure", "trials", "event")


def model_of(problem: FormulaProblem) -> tuple[Any, pd.DataFrame]:
    import fenchel
    from fenchel.gmrf.mesh import Mesh

    frame = pd.DataFrame({**problem.table, **problem.rows, "y": problem.y})
    if problem.family == "ordinal":
        frame["y"] = pd.Categorical.from_codes(problem.y.astype(int), ["low", "middle", "high"], ordered=True)
    if problem.weights is not None:
        frame["w"] = problem.weights
    names: dict[str, Any] = {}
    graphs: dict[str, Any] = {}
    for term in problem.terms:
        for name, (first, second) in term.names.items():
            known = name == "A"
            names[name] = pd.DataFrame(second, first, first) if known else Mesh(first, second)
        for column, A in term.graphs.items():
            graphs[column] = {f"r{i}": [f"r{j}" for j in np.flatnonzero(row)] for i, row in enumerate(A)}
    priors = {}
    if problem.intercept is not None:
        priors["Intercept"] = fenchel.Normal(*problem.intercept)
    if problem.slope is not None:
        priors["x"] = fenchel.Normal(*problem.slope)
    rows = {key: key for key in problem.rows}
    if problem.weights is not None:
        rows["weights"] = "w"
    model = fenchel.Model(
        *(problem.formula, frame, problem.family),
        **rows,
        graphs=graphs,
        env=names,
        priors=priors,
        fixed_sd=problem.fixed_sd,
    )
    return model, frame


def fitted_at(problem: FormulaProblem) -> tuple[Any, pd.DataFrame, list[Any], dict[str, Any]]:
    """A fit with hyperparameters near their start, their values as it prints them, and the likelihood in words."""
    import fenchel
    from fenchel.hyperparameters.base import Learned
    from fenchel.models.fitted import FittedModel
    from fenchel.models.tables import described_theta

    model, frame = model_of(problem)
    rng, family, likelihood = np.random.default_rng(problem.jitter), model.sum.family(), model.target.likelihood
    start = family.theta + rng.normal(size=family.theta.size)
    theta = np.clip(start, *family.bounds.reshape(-1, 2).T) if start.size else start
    own = likelihood.theta + 0.4 * rng.normal(size=likelihood.theta.size)
    likelihood = likelihood.with_theta(own) if own.size else likelihood
    prior = family.at(theta)
    solution = fenchel.infer(likelihood, prior, model.target.y, weights=model.target.weights, tol=TOL)
    every = np.concatenate([theta, own])
    found = Learned(
        *(every, solution, solution.elbo, np.zeros(every.size), solution.converged, solution.ending),
        likelihood=likelihood,
        prior=prior,
    )
    fit = FittedModel(model, found)
    rows = described_theta(fit, every)
    printed = [{**{k: v for name, k, v in rows if name == str(e.name)}, **_order(e)} for e in model.sum.effects]
    values = []
    for term in problem.terms:
        values.append(printed[: term.effects])
        printed = printed[term.effects :]
    assert not printed, "effects that no term accounts for"
    like = {"name": FAMILIES[problem.family], "bound": likelihood.bound or "none"}
    like |= {key: getattr(likelihood, key) for key in (*OWN, *ROWS) if hasattr(likelihood, key)}
    return fit, frame, values, like


def _order(term: Any) -> dict[str, Any]:
    """Of Vecchia's approximation the points in its order, with the neighbours of each."""
    process = getattr(term, "process", None)
    if not hasattr(process, "neighbours"):
        return {}
    return {"points": process.X, "neighbours": process.neighbours}


def judge_formula(problem: FormulaProblem) -> Verdict:
    fit, frame, values, like = fitted_at(problem)
    solution = fit.solution
    out = Verdict("converged" if solution.converged else "not converged", reason=solution.status)
    S, mt, seen = reference(problem, values, like)
    h, rho = (np.asarray(x, float).ravel() for x in (solution.posterior.mean, solution.posterior.variance))
    if problem.family == "gaussian":
        best, mean, variance = regression(problem, S, mt, seen, float(like["variance"]))
    else:
        point = optimum(to_judge(problem, S, mt, seen, like), h, rho)
        if point is None or point.missing() > 1e-3 * TOL * max(1.0, abs(float(point.elbo))):
            out.judged = False
            return out
        best, mean, variance = float(point.elbo), point.h.astype(float), point.rho.astype(float)
    scale = max(1.0, abs(best))
    out.best, out.error = best, abs(best - solution.elbo) / scale / TOL
    if out.said != "converged":
        return out
    if abs(best - solution.elbo) / scale > TOL + ROUNDING:
        out.faults.append(f"elbo {solution.elbo:.9g}, by the dense model {best:.9g}")
    if (best - solution.elbo_upper) / scale > ROUNDING:
        out.faults.append(f"best ELBO above elbo_upper by {(best - solution.elbo_upper) / scale:.1e} relative")
    sd = np.sqrt(variance) + 1e-7 * np.sqrt(np.diag(S))
    sayings = {"fit": (h, rho)}
    if problem.family not in AVERAGED:
        link = fit.predict(frame, kind="link", interval=0.95)
        sayings["predict"] = link["mean"].to_numpy(), link["sd"].to_numpy() ** 2
    gap = solution.gap if np.isfinite(solution.gap) else TOL * scale
    room = MOMENTS + 5.0 * np.sqrt(2.0 * gap)
    for who, (m, v) in sayings.items():
        off = max(np.max(np.abs(m - mean) / sd), np.max(np.abs(v - variance) / sd**2))
        out.moments = max(out.moments, float(off / room))
        if not off <= room:
            out.faults.append(f"{who}: a mean or variance of eta off by {off:.1e} sds")
    return out
