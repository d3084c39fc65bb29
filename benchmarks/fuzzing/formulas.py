"""Formulas drawn at random with their tables, and the documented model as one dense Gaussian: eta ~ N(mt, S).

    S = sum of the terms' covariances + the intercept's variance + standardised columns times their prior variance

Nothing here comes from the library: ``formula_fits.py`` makes its model of the same problem, at hyperparameters that
are drawn, and hands their values, as a fit prints them, to ``reference``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .decimals import exact, identity, set_digits
from .dense_terms import GROUPS, DenseTerm, Table, Values, draw_term
from .models import observed
from .optimum import Model

FAMILIES = {  # and the judge's name for them
    "gaussian": "Gaussian",
    "poisson": "Poisson",
    "bernoulli": "BernoulliLogit",
    "binomial": "Binomial",
    "negative-binomial": "NegativeBinomial",
    "negative-binomial-1": "NegativeBinomial1",
    "gamma": "Gamma",
    "beta": "Beta",
    "beta-binomial": "BetaBinomial",
    "tweedie": "Tweedie",
    "exponential": "Exponential",
    "ordinal": "Ordinal",
    "truncated-poisson": "TruncatedPoisson",
    "hurdle-poisson": "HurdlePoisson",
    "zero-inflated-poisson": "ZeroInflatedPoisson",
}
KINDS = list(GROUPS)
FIXED = ("1", "x", "x + z", "x + f", "x*z", "x*f", "x + I(x**2)", "0 + f", "0 + f + x", "0 + x")
NEARLY = 0.1  # of a column's variance: what others before it leave, below which it is fitted as that


@dataclass
class FormulaProblem:
    """A formula with its table, and what ``Model`` is told beside it."""

    kind: str
    family: str
    fixed: str
    terms: list[DenseTerm]
    table: Table
    y: np.ndarray
    weights: np.ndarray | None
    offset: bool
    intercept: tuple[float, float] | None  # prior mean and sd, where stated
    slope: tuple[float, float] | None  # of x per unit
    fixed_sd: float
    rows: Table = field(default_factory=dict)  # exposure, trials, event
    jitter: int = 0  # seed of theta

    @property
    def row(self) -> tuple[str, str]:
        """Of the table: products by their first factor."""
        return GROUPS[self.kind], self.kind.split(" x ")[0] + (" x ..." if " x " in self.kind else "")

    @property
    def formula(self) -> str:
        parts = [self.fixed, *(term.text for term in self.terms), *(["offset(o)"] if self.offset else [])]
        return f"y ~ {' + '.join(parts)}"


def draw_formula(seed: int, i: int) -> FormulaProblem:
    """Formula i of a seed; kinds of terms take turns, and every fourth formula has a second term."""
    set_digits()
    rng = np.random.default_rng([seed, i, 26])
    kind = KINDS[i % len(KINDS)]
    family = "gaussian" if rng.random() < 0.5 else str(rng.choice(list(FAMILIES)[1:]))
    n = int(rng.integers(14, 41)) if family == "gaussian" else int(rng.integers(9, 17))
    table: Table = {}
    terms = [draw_term(rng, kind, table, n)]
    if rng.random() < 0.25:
        other = str(rng.choice(["(1|g)", "rw1", "icar(r)", "s(x)", "ar1", "leroux(r)"]))
        more: Table = {}
        extra = draw_term(rng, other, more, n)
        if not set(more) & set(table) and extra.text not in [term.text for term in terms]:
            table |= more
            terms.append(extra)
    fixed = str(rng.choice(FIXED)) if family != "ordinal" else str(rng.choice(FIXED[:7]))
    add_fixed(rng, table, n, fixed)
    eta = rng.normal(size=n)
    y, rows = draw_response(rng, family, eta)
    weights = rng.choice([1.0, 2.0, 0.5, 3.0, 0.0], n, p=[0.4, 0.2, 0.2, 0.15, 0.05]) if rng.random() < 0.3 else None
    if rng.random() < 0.3 and family != "ordinal":
        y = np.where(rng.random(n) < 0.15, np.nan, y)
    offset = bool(rng.random() < 0.3)
    if offset:
        table["o"] = rng.normal(size=n)
    level = None if family == "gaussian" and rng.random() < 0.6 else (float(rng.normal()), float(rng.uniform(0.5, 5)))
    if fixed.startswith("0") or family == "ordinal":
        level = None
    slope = (float(rng.normal()), float(rng.uniform(0.2, 3))) if fixed == "x" and rng.random() < 0.5 else None
    return FormulaProblem(
        *(kind, family, fixed, terms, table, y, weights, offset, level, slope),
        *(float(rng.choice([10.0, 10.0, 3.0])), rows, int(rng.integers(2**31))),
    )


def add_fixed(rng: Any, table: Table, n: int, fixed: str) -> None:
    for name in ("x", "z"):
        if name in fixed and name not in table:
            table[name] = rng.normal(size=n) * 10.0 ** rng.uniform(-1, 2) + rng.choice([0.0, 5.0])
    if "f" in fixed and "f" not in table:
        table["f"] = np.array(["a", "b", *rng.choice(["a", "b", "c"], n - 2)], dtype=object)


def draw_response(rng: Any, family: str, eta: np.ndarray) -> tuple[np.ndarray, Table]:
    n, mu = eta.size, np.exp(np.minimum(eta, 3))
    p = 1 / (1 + np.exp(-eta))
    exposure = {"exposure": rng.uniform(0.5, 3, n)} if rng.random() < 0.5 else {}
    if family == "gaussian":
        return eta * 10.0 ** rng.uniform(-1, 2) + float(rng.choice([0.0, 50.0])), {}
    if family == "bernoulli":
        return 1.0 * (rng.random(n) < p), {}
    if family in ("binomial", "beta-binomial"):
        trials = rng.integers(1, 9, n).astype(float)
        return rng.binomial(trials.astype(int), p).astype(float), {"trials": trials}
    if family == "gamma":
        return mu * rng.gamma(2.0, size=n) + 1e-3, {}
    if family == "beta":
        return np.clip(rng.beta(4 * p, 4 * (1 - p)), 1e-4, 1 - 1e-4), {}
    if family == "exponential":
        return mu * rng.exponential(size=n) + 1e-3, {"event": 1.0 * (rng.random(n) < 0.8)}
    if family == "ordinal":
        y = rng.integers(0, 3, n).astype(float)
        y[:3] = 0, 1, 2
        return y, {}
    if family == "tweedie":
        return np.where(rng.random(n) < 0.3, 0.0, mu * rng.gamma(2.0, size=n)), exposure
    y = rng.poisson(mu * exposure.get("exposure", 1.0)).astype(float)
    if family == "truncated-poisson":
        y = np.maximum(y, 1.0)
    if family in ("hurdle-poisson", "zero-inflated-poisson"):
        y = np.where(rng.random(n) < 0.3, 0.0, y)
        y[0] = 2.0
    return y, exposure


# -- the documented model --------------------------------------------------------------------------
def fixed_columns(problem: FormulaProblem) -> np.ndarray:
    """The columns of the fixed part: products of columns about their means, and what earlier ones nearly are."""
    t, n = problem.table, problem.y.size
    w = np.ones(n) if problem.weights is None else problem.weights
    x, z = t.get("x", np.zeros(n)), t.get("z", np.zeros(n))
    levels = sorted(set(t["f"])) if "f" in problem.fixed else []
    factor = [1.0 * (t["f"] == level) for level in levels]
    about = x - np.average(x, weights=w)
    made = {
        "1": [],
        "x": [x],
        "x + z": [x, z],
        "x + f": [x, *factor[1:]],
        "x*z": [about, z - np.average(z, weights=w), about * (z - np.average(z, weights=w))],
        "x*f": [about, *factor[1:], *(about * level for level in factor[1:])],
        "x + I(x**2)": [x, x**2],
        "0 + f": factor,
        "0 + f + x": [*factor, about],
        "0 + x": [x],
    }[problem.fixed]
    before = [np.ones(n)] if not problem.fixed.startswith("0") else []
    columns = np.stack([*before, *made, np.zeros(n)], axis=1)[:, :-1]
    return remainders(columns, w)[:, len(before) :]


def remainders(X: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A column of which those before it leave less than a tenth is what they leave."""
    out, root = X.copy(), np.sqrt(w)[:, None]
    unit = root * X / np.abs(X).max(axis=0, initial=1e-300)
    for j in range(1, X.shape[1]):
        by = np.linalg.lstsq(unit[:, :j], unit[:, j], rcond=None)[0]
        rest = unit[:, j] - unit[:, :j] @ by
        mean = np.average(X[:, j], weights=w)
        spread = root[:, 0] * (X[:, j] - mean) / np.abs(X[:, j]).max()
        if 1e-16 < rest @ rest / max(spread @ spread, 1e-300) < NEARLY:
            plain = X / np.abs(X).max(axis=0, initial=1e-300)
            out[:, j] = (plain[:, j] - plain[:, :j] @ by) * np.abs(X[:, j]).max()
    return out


def reference(problem: FormulaProblem, values: list[Values], like: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(S, mt, seen): the prior of eta at the rows, and which of them are observed."""
    n, w = problem.y.size, problem.weights
    weight = np.ones(n) if w is None else w
    seen = np.array([weight[i] > 0 and observed(like, i, problem.y[i]) for i in range(n)])
    counted = np.where(seen, weight, 0.0)
    S, lines = np.zeros((n, n)), []
    for term, own in zip(problem.terms, values, strict=True):
        K, more = term.dense(problem.table, w, own)
        S, lines = S + K, [*lines, more]
    ordered = problem.family == "ordinal"
    intercept, centred = not (ordered or problem.fixed.startswith("0")), not problem.fixed.startswith("0")
    mt = problem.table["o"].copy() if problem.offset else np.zeros(n)
    scale = 1.0
    if problem.family == "gaussian":
        mean = np.average(problem.y[seen], weights=counted[seen])
        scale = float(np.sqrt(np.average((problem.y[seen] - mean) ** 2, weights=counted[seen])))
    if intercept:
        level, sd = problem.intercept or (np.nan, problem.fixed_sd * scale)
        if problem.intercept is None:
            level = mean - np.average(mt[seen], weights=counted[seen])
        mt, S = mt + level, S + sd**2
    for j, column in enumerate(np.hstack([fixed_columns(problem), *lines]).T):
        about = np.average(column, weights=counted) if centred else 0.0
        size = np.sqrt(np.average((column - about) ** 2, weights=counted))
        size = size if size > 1e-14 * np.abs(column).max(initial=1e-300) else 1.0
        unit, sd = (column - about) / size, problem.fixed_sd * scale
        if problem.slope is not None and j == 0:
            mt, sd = mt + problem.slope[0] * (column - about), problem.slope[1] * size
        S = S + sd**2 * np.outer(unit, unit)
    return (S + S.T) / 2, mt, seen


def to_judge(problem: FormulaProblem, S: Any, mt: Any, seen: Any, like: dict[str, Any]) -> Model:
    """In decimals, the predictors themselves as latents."""
    n = problem.y.size
    weight = np.ones(n) if problem.weights is None else problem.weights
    rows = [int(i) for i in np.flatnonzero(seen)]
    D, m = exact(S), exact(mt)
    return Model(D, m, rows, exact(weight), like, exact(np.nan_to_num(problem.y)), 1, identity(n), D, m)


def regression(problem: FormulaProblem, S: Any, mt: Any, seen: Any, variance: float) -> tuple[float, Any, Any]:
    """Of Gaussian rows, in closed form: log p(y) with each row as often as its weight says, and eta's moments."""
    n = problem.y.size
    w = (np.ones(n) if problem.weights is None else problem.weights)[seen]
    r, K = problem.y[seen] - mt[seen], S[np.ix_(seen, seen)] + np.diag(variance / w)
    L = np.linalg.cholesky(K)
    half = np.linalg.solve(L, r)
    evidence = -half @ half / 2 - np.log(np.diag(L)).sum() - len(r) / 2 * np.log(2 * np.pi)
    evidence += np.sum(np.log(2 * np.pi * variance / w) - w * np.log(2 * np.pi * variance)) / 2
    T = np.linalg.solve(L, S[seen])
    return float(evidence), mt + T.T @ half, np.diag(S) - (T * T).sum(axis=0)
