"""Seeded problems: a likelihood with targets, a prior of hard or ordinary scales, and how ``infer`` is asked.

``draw(seed, i)`` is the same problem everywhere. A problem is plain numbers; ``to_library`` makes fenchel's objects of
it, ``to_model`` (in ``models.py``) the judge's matrices, and neither sees the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from .decimals import exact, is_semidefinite, set_digits

LOGIT = ("log-sum", "tilted", "bohning", "jaakkola", "exact")
KINDS = [
    *(("BernoulliLogit", bound) for bound in LOGIT),
    *(("Binomial", bound) for bound in LOGIT),
    *(("NegativeBinomial", bound) for bound in ("log-sum", "tilted", "exact")),
    *(("Ordinal", bound) for bound in ("log-sum", "tilted", "exact")),
    *(("MultinomialLogit", bound) for bound in ("log-sum", "tilted")),
    *(("LogisticNoise", bound) for bound in ("exact", "tilted", "log-sum", "super-gaussian")),
    *(("LaplaceNoise", bound) for bound in ("exact", "super-gaussian")),
    ("StudentT", "super-gaussian"),
    ("BernoulliProbit", "exact"),
    ("OrdinalProbit", "exact"),
    ("Beta", "tangent"),
    ("ZeroInflatedPoisson", "mixture"),
    ("ZeroInflatedNegativeBinomial", "mixture"),
    *((name, "exact") for name in ("TruncatedPoisson", "HurdlePoisson", "Tweedie")),
    *((name, "exact") for name in ("IntervalExponential", "IntervalWeibull")),
    *((name, "tangent") for name in ("TruncatedNegativeBinomial", "HurdleNegativeBinomial")),
    *((name, "tangent") for name in ("NegativeBinomial1", "BetaBinomial")),
    *((name, "none") for name in ("Gaussian", "Poisson", "Gamma", "StochasticVolatility", "Exponential")),
    ("Weibull", "none"),
    ("Mixed", "none"),
]
SEVERAL_OPTIMA = {"StudentT", "ZeroInflatedPoisson", "ZeroInflatedNegativeBinomial"}
SCALAR = [kind for kind in KINDS if kind[0] not in ("MultinomialLogit", "Mixed")]
WITHOUT_DUAL = ("exact", "jaakkola", "super-gaussian", "tangent", "mixture")
_MIXABLE = [kind for kind in SCALAR if kind[0] not in ("Ordinal", "LogisticNoise")]
_CONVEX = [kind for kind in _MIXABLE if kind[1] not in WITHOUT_DUAL]


@dataclass
class FuzzProblem:
    """One question put to ``infer``."""

    likelihood: dict[str, Any]
    prior: dict[str, Any]
    y: np.ndarray
    weights: np.ndarray | None
    ask: dict[str, Any] = field(default_factory=dict)  # tol, method, start

    @property
    def row(self) -> tuple[str, str]:
        return self.likelihood["name"], self.likelihood["bound"]

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.likelihood.get("parts", [self.likelihood])

    @property
    def C(self) -> int:
        """Predictors an observation."""
        classes = [(p["n_classes"], p["reference"]) for p in self.parts if p["name"] == "MultinomialLogit"]
        return max((K - (reference == "last") for K, reference in classes), default=1)

    @property
    def log_concave(self) -> bool:
        return not {part["name"] for part in self.parts} & SEVERAL_OPTIMA

    @property
    def convex(self) -> bool:
        return not any(part["bound"] in WITHOUT_DUAL for part in self.parts)


def draw(seed: int, i: int) -> FuzzProblem:
    """Problem i of a seed. The kinds take turns, so that any run covers them evenly."""
    set_digits()
    rng = np.random.default_rng([seed, i])
    name, bound = KINDS[i % len(KINDS)]
    N = int(rng.integers(13, 61)) if rng.random() < 0.02 else int(rng.integers(1, 13))
    N = min(N, {"MultinomialLogit": 8, "BetaBinomial": 16}.get(name, N))  # what takes the judge long
    like, y = draw_likelihood(rng, name, bound, N)
    weights = None
    if rng.random() < 0.2:
        weights = rng.choice([0.0, 1.0, 1.0, 0.25, 3.0, 1e-6, 1e3], size=N)
    y = np.where(rng.random(N) < (0.25 if rng.random() < 0.2 else 0.0), np.nan, y)
    problem = FuzzProblem(like, {}, y, weights)
    problem.prior = draw_prior(rng, N, problem.C, bound == "tilted")
    ask: dict[str, Any] = {"tol": float(rng.choice([1e-4, 1e-6, 1e-8, 1e-8, 1e-10])), "method": "newton"}
    if problem.convex and rng.random() < 0.08:
        ask["method"] = "lbfgs"
    if rng.random() < 0.1:
        ask["start"] = float(10.0 ** rng.uniform(0, 3))  # the scale of an absurd start, made when its shape is known
    problem.ask = ask
    return problem


# -- likelihoods -----------------------------------------------------------------------------------
def draw_likelihood(rng: Any, name: str, bound: str, N: int) -> tuple[dict[str, Any], np.ndarray]:
    eta = rng.normal(size=N) * rng.choice([0.5, 2.0])
    like: dict[str, Any] = {"name": name, "bound": bound}
    if name == "Mixed":
        kinds = [_MIXABLE[int(k)] for k in rng.choice(len(_MIXABLE), 2, replace=False)]
        if N in (6, 7):  # a softmax beside a scalar that has a dual
            kinds = [("MultinomialLogit", "log-sum"), _CONVEX[int(rng.integers(len(_CONVEX)))]]
        which = rng.integers(0, 2, N)
        parts, y = [], np.zeros(N)
        for k, kind in enumerate(kinds):
            part, values = draw_likelihood(rng, *kind, max(1, int((which == k).sum())))
            if part["name"] == "MultinomialLogit":
                part = {**part, "n_classes": 3, "reference": "last"}
                values = np.minimum(values, 2.0)
            parts.append(part)
            y[which == k] = values[: int((which == k).sum())]
        return {**like, "parts": parts, "which": which}, y
    if name in ("BernoulliLogit", "BernoulliProbit"):
        return like, labels(rng, eta, 2)
    if name == "MultinomialLogit":
        like |= {"n_classes": int(rng.integers(2, 5)), "reference": [None, "last"][int(rng.integers(2))]}
        if like["n_classes"] == 2:
            like["reference"] = None
        return like, labels(rng, eta, like["n_classes"])
    if name in ("Ordinal", "OrdinalProbit"):
        cuts = np.sort(rng.normal(size=int(rng.integers(1, 5)))) * 2
        cuts = cuts + 0.05 * np.arange(cuts.size)
        return like | {"cutpoints": [float(x) for x in cuts]}, labels(rng, eta, cuts.size + 1)
    if name in ("Binomial", "BetaBinomial"):
        trials = np.floor(10.0 ** rng.uniform(0, rng.choice([1, 2, 6 if name == "Binomial" else 2.4]), N))
        trials[rng.random(N) < 0.05] = 0.0
        if name == "BetaBinomial":
            like["precision"] = float(10.0 ** rng.uniform(-1, 3))
        return like | {"trials": trials}, rng.binomial(trials.astype(int), 1 / (1 + np.exp(-eta))).astype(float)
    if name == "Tweedie":
        return draw_amounts(rng, like, eta)
    if name in COUNTS:
        return draw_counts(rng, like, eta)
    if name in ("IntervalExponential", "IntervalWeibull"):
        return draw_intervals(rng, like, N)
    if name == "Gaussian":
        v = 10.0 ** rng.uniform(*([-2, 2] if rng.random() < 0.6 else [-12, 4]), size=N if rng.random() < 0.3 else None)
        like["variance"] = v if np.ndim(v) else float(v)
        return like, rng.choice([0.0, 0.0, 2000.0, 1e6]) + eta * 10.0 ** rng.uniform(-2, 2)
    if name in ("LogisticNoise", "LaplaceNoise", "StudentT"):
        like["scale"] = float(10.0 ** rng.uniform(*([-1, 1] if rng.random() < 0.6 else [-4, 2])))
        if name == "StudentT":
            like["df"] = float(rng.choice([1.0, 2.5, 4.0, 30.0]))
        return like, eta + like["scale"] * rng.standard_t(2.0, N)
    if name == "Beta":
        like["precision"] = phi = float(10.0 ** rng.uniform(-0.3, 3))
        mu = 1 / (1 + np.exp(-eta))
        return like, np.clip(rng.beta(np.maximum(phi * mu, 0.05), np.maximum(phi * (1 - mu), 0.05)), 1e-9, 1 - 1e-9)
    if name == "StochasticVolatility":
        y = rng.normal(size=N) * np.exp(eta / 2) * 10.0 ** rng.choice([0, 0, -4, 3])
        return like, np.where(rng.random(N) < 0.05, 0.0, y)
    if name == "Gamma":
        like["shape"] = float(10.0 ** rng.uniform(-1, 3))
        return like, np.exp(eta) * rng.gamma(like["shape"], size=N) / like["shape"] + 1e-30
    if name == "Weibull":
        like["shape"] = float(10.0 ** rng.uniform(-0.5, 0.7))
    like["event"] = (rng.random(N) < 0.7).astype(float)
    y = rng.exponential(size=N) ** (1 / like.get("shape", 1.0)) * 10.0 ** rng.uniform(-2, 3)
    return like, np.where((like["event"] == 0) & (rng.random(N) < 0.1), 0.0, y)


def labels(rng: Any, eta: np.ndarray, K: int) -> np.ndarray:
    """Random, all alike, or in order along the rows (separable by anything smooth)."""
    kind = rng.random()
    if kind < 0.15:
        return np.full(eta.size, float(rng.integers(K)))
    if kind < 0.35:
        return np.floor(np.arange(eta.size) * K / eta.size)
    return rng.integers(0, K, eta.size).astype(float)


COUNTS = {  # and the largest power of 10 among them: R(r, y) is summed term by term
    "Poisson": 9.0,
    "NegativeBinomial": 9.0,
    "ZeroInflatedPoisson": 9.0,
    "ZeroInflatedNegativeBinomial": 9.0,
    "TruncatedPoisson": 9.0,
    "HurdlePoisson": 9.0,
    "TruncatedNegativeBinomial": 9.0,
    "HurdleNegativeBinomial": 9.0,
    "NegativeBinomial1": 2.4,
}


def draw_intervals(rng: Any, like: dict[str, Any], N: int) -> tuple[dict[str, Any], np.ndarray]:
    """Seen events, durations not yet ended, events within an interval and before a time."""
    if like["name"] == "IntervalWeibull":
        like["shape"] = float(10.0 ** rng.uniform(-0.5, 0.7))
    t = rng.exponential(size=N) ** (1 / like.get("shape", 1.0)) * 10.0 ** rng.uniform(-2, 3)
    kind = rng.integers(0, 4, N)
    wide = 1.0 + 10.0 ** rng.uniform(-6, 1, N)
    like["upper"] = np.choose(kind, [t, np.full(N, np.inf), t * wide, t])
    return like, np.where(kind == 3, 0.0, t)


def draw_amounts(rng: Any, like: dict[str, Any], eta: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    N = eta.size
    like["dispersion"], like["power"] = float(10.0 ** rng.uniform(-1.5, 1.5)), float(rng.uniform(1.05, 1.95))
    like["exposure"] = 10.0 ** rng.uniform(-2, 2, N) if rng.random() < 0.4 else None
    y = np.exp(eta) * rng.gamma(0.5 + rng.random(), size=N)
    return like, np.where(rng.random(N) < 0.3, 0.0, y)


def draw_counts(rng: Any, like: dict[str, Any], eta: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    N, exposure = eta.size, None
    if rng.random() < 0.4:
        exposure = 10.0 ** rng.uniform(-2, 3, N)
        exposure[rng.random(N) < 0.1] = 0.0
    if rng.random() < 0.15:
        y = np.floor(10.0 ** rng.uniform(0, COUNTS[like["name"]], N))
    else:
        most = np.floor(10.0 ** COUNTS[like["name"]])
        y = rng.poisson((1.0 if exposure is None else exposure) * np.exp(np.minimum(eta, 8))).astype(float)
        y = np.minimum(y, most)
    if exposure is not None:
        y = np.where(exposure == 0.0, 0.0, y)
    like["exposure"] = exposure
    name = like["name"]
    if name == "NegativeBinomial1":
        like["dispersion"] = float(10.0 ** rng.uniform(-2, 2))
    elif "NegativeBinomial" in name:
        like["size"] = float(10.0 ** rng.uniform(-1.5, 3))
    if name.startswith("Truncated"):
        y = np.where(exposure == 0.0, np.nan, np.maximum(y, 1.0))
    if name.startswith(("ZeroInflated", "Hurdle")):
        like["probability"] = float(rng.choice([0.01, 0.3, 0.9]))
        y = np.where(rng.random(N) < 0.3, 0.0, y)
    return like, y


# -- priors ----------------------------------------------------------------------------------------
def draw_prior(rng: Any, N: int, C: int, independent: bool) -> dict[str, Any]:
    correlated = C > 1 and not independent and rng.random() < 0.3
    rows = N * C if correlated else N
    kind = rng.choice(["dense", "features", "sparse"])
    hard = rng.random() < 0.4
    prior = {"dense": draw_dense, "features": draw_features, "sparse": draw_sparse}[kind](rng, rows, hard)
    prior["correlated"] = correlated
    L = (prior["precision"] if kind == "sparse" else prior["covariance"]).shape[-1]
    if kind == "dense" and C > 1 and not correlated and rng.random() < 0.3:
        prior["covariance"] = np.stack([c * prior["covariance"] for c in 2.0 ** rng.integers(-3, 4, C)])
    prior["mean"] = 0.0 if rng.random() < 0.6 else rng.normal(size=L)
    prior["offset"] = 0.0 if rng.random() < 0.6 else rng.normal(size=N) * rng.choice([1.0, 5.0])
    return prior


def scale_of(rng: Any, hard: bool) -> float:
    return float(10.0 ** (rng.uniform(-8, 12) if hard else rng.uniform(-2, 3)))


def semidefinite(K: np.ndarray) -> np.ndarray:
    """K with the least nugget that makes it a covariance in exact arithmetic: an ill-posed problem has no answer."""
    nugget = 0.0
    while not is_semidefinite(exact(K + nugget * np.eye(len(K)))):
        nugget = max(2.0 * nugget, 1e-16 * float(np.max(np.diag(K))))
    return K + nugget * np.eye(len(K))


def draw_dense(rng: Any, rows: int, hard: bool) -> dict[str, Any]:
    design, L = None, rows
    if rng.random() < 0.25:
        L = int(rng.integers(1, 2 * rows + 2))
        design = rng.normal(size=(rows, L)) * 10.0 ** rng.choice([0, 0, -3, 3])
    shape = rng.choice(["diagonal", "rbf", "low rank", "wishart", "repeated"])
    if shape == "diagonal":
        K = np.diag(10.0 ** rng.uniform(-3, 3, L))
    elif shape in ("rbf", "repeated"):
        x = np.sort(rng.random(L)) * rng.choice([1.0, 10.0])
        if shape == "repeated":
            x = x[rng.integers(0, L, L)]
        K = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2 / rng.choice([0.1, 1.0, 5.0]) ** 2)
        K = K + float(rng.choice([0.0, 1e-10, 1e-4])) * np.eye(L)
    else:
        rank = L if shape == "wishart" else max(1, L // 3)
        A = np.round(rng.normal(size=(L, rank)) * 1024) / 1024  # products and their sums are exact
        K = A @ A.T
    K = semidefinite(scale_of(rng, hard) * K)
    return {"kind": "dense", "shape": str(shape), "covariance": K, "design": design}


def draw_features(rng: Any, rows: int, hard: bool) -> dict[str, Any]:
    L = int(rng.integers(1, 4)) if rng.random() < 0.6 else int(rng.integers(1, 2 * rows + 2))
    X = rng.normal(size=(rows, L))
    shape = str(rng.choice(["plain", "years", "metres", "collinear", "scaled"]))
    if shape == "years":
        X[:, -1] = 1960.0 + np.arange(rows)
        X[:, 0] = 1.0
    elif shape == "metres":
        X[:, -1] = np.round(335114.0 + 30603.0 * rng.normal(size=rows))
        X[:, 0] = 1.0
    elif shape == "collinear":
        X[:, -1] = X[:, 0] * (1.0 + 1e-9 * rng.normal(size=rows))
    elif shape == "scaled":
        X *= 10.0 ** rng.uniform(-4, 4, L)
    if rng.random() < 0.1:
        X[rng.integers(rows)] = 0.0
    variance = np.broadcast_to(10.0 ** (rng.uniform(-4, 8) if hard else rng.uniform(-2, 2)), (L,)).copy()
    if rng.random() < 0.3:
        variance *= 10.0 ** rng.uniform(-2, 2, L)
    V: np.ndarray = np.diag(variance)
    full = bool(rng.random() < 0.2)
    if full:
        A = np.round(rng.normal(size=(L, L)) * 64) / 64
        V = semidefinite(float(variance[0]) * (A @ A.T + np.eye(L)))
    return {"kind": "features", "shape": shape, "covariance": V, "full": full, "design": X}


def draw_sparse(rng: Any, rows: int, hard: bool) -> dict[str, Any]:
    L, design = rows, None
    if rng.random() < 0.4 or rows < 3:
        L = int(rng.integers(3, max(4, rows + 2)))
        design = np.zeros((rows, L))
        design[np.arange(rows), rng.integers(0, L, rows)] = 1.0
        if rng.random() < 0.4:
            design[:, -1] = rng.normal(size=rows) * rng.choice([1.0, 100.0])
    shape = str(rng.choice(["rw1", "rw2", "ar1", "icar", "islands"]))
    if shape in ("rw1", "rw2"):
        diff = np.diff(np.eye(L), n=1 if shape == "rw1" or L < 4 else 2, axis=0)
        Q = diff.T @ diff
    elif shape == "ar1":
        phi = float(rng.choice([0.5, 0.99, 1.0 - 1e-6]))
        Q = np.diag(np.r_[1.0, (1 + phi**2) * np.ones(L - 2), 1.0]) - phi * (np.eye(L, k=1) + np.eye(L, k=-1))
    else:
        A = np.triu(rng.random((L, L)) < 2.0 / L, 1).astype(float)
        if shape == "icar":
            A[np.arange(L - 1), np.arange(1, L)] = 1.0
        else:
            A[:, -1] = 0.0  # an isolated node at the end
        A = A + A.T
        Q = np.diag(A.sum(axis=1)) - A
    constraints: Any = None
    if shape != "ar1":
        way = rng.choice(["ridge", "tiny ridge", "sum-to-zero", "row", "none"], p=[0.35, 0.25, 0.25, 0.1, 0.05])
        if way == "sum-to-zero":
            constraints = "sum-to-zero"
        elif way == "row":
            constraints = np.ones((1, L))
        elif way != "none":
            Q = Q + (float(rng.choice([1.0, 1e-2, 1e-4])) if way == "ridge" else 1e-10) * np.eye(L)
        shape = f"{shape}, {way}"
    Q = float(rng.choice([1.0, 0.3333, 7.1])) * (1.0 / scale_of(rng, True) if hard else 10.0 ** rng.uniform(-2, 2)) * Q
    return {"kind": "sparse", "shape": shape, "precision": Q, "design": design, "constraints": constraints}


# -- the library -----------------------------------------------------------------------------------
def to_library(problem: FuzzProblem) -> tuple[Any, Any, dict[str, Any]]:
    """fenchel's likelihood and prior, and the other arguments of ``infer``. May refuse with a ValueError."""
    from fenchel import priors

    p = problem.prior
    likelihood = library_likelihood(problem.likelihood)
    ask = dict(problem.ask)
    if "start" in ask:
        columns = len(likelihood.objective.layout) if likelihood.objective.convex else 2
        ask["start"] = np.random.default_rng(0).normal(size=(problem.y.size, columns)) * ask["start"]
    if p["kind"] == "dense":
        prior = priors.DenseCovariance(p["covariance"], p["mean"], p["design"], p["offset"])
    elif p["kind"] == "features":
        V = p["covariance"] if p["full"] else np.diag(p["covariance"]).copy()
        prior = priors.Features(p["design"], V, p["mean"], p["offset"])
    else:
        design = None if p["design"] is None else sp.csr_array(p["design"])
        Q = stored(p["precision"])
        prior = priors.SparsePrecision(Q, p["mean"], design, p["offset"], p["constraints"])
    return likelihood, prior, ask


def stored(Q: np.ndarray) -> Any:
    """As CSC; every other one stores the zeros that isolated nodes have on the diagonal."""
    there = (Q != 0) | (len(Q) % 2 == 0) * np.eye(len(Q), dtype=bool)
    rows, columns = np.nonzero(there)
    return sp.csc_array((Q[rows, columns], (rows, columns)), shape=Q.shape)


def library_likelihood(like: dict[str, Any]) -> Any:
    from fenchel import likelihoods

    if like["name"] == "Mixed":
        return likelihoods.Mixed([library_likelihood(part) for part in like["parts"]], like["which"])
    given = {k: v for k, v in like.items() if k not in ("name", "bound")}
    for word in ("ZeroInflated", "Hurdle", "Truncated", "Interval"):
        if like["name"].startswith(word):
            own = {k: given.pop(k) for k in ("probability", "upper") if k in given}
            base = getattr(likelihoods, like["name"].removeprefix(word))
            return getattr(likelihoods, word)(base(**given), **own)
    cls = getattr(likelihoods, like["name"])
    if len(cls.bounds) > 1:
        given["bound"] = like["bound"]
    return cls(**given)
