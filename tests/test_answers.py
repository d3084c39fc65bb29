"""Forty fits over the whole library, held against the numbers of an earlier tree.

    python tests/test_answers.py --store      writes tests/answers.json from the tree at hand

A change of form changes no answer: evidence and moments agree to 1e-10. Learned fits compare what they learned to 1e-6,
because a search ends anywhere within its ``gtol``. A change of substance stores anew, and says why.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.gaussian_process.kernels import RBF, Matern

import fenchel
from fenchel import estimators, gmrf
from fenchel.datasets import load_coal, load_germany, load_sids, load_stochvol
from fenchel.hyperparameters import KernelCovariance, WeightVariances, grid, learn
from fenchel.likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    Beta,
    Binomial,
    Exponential,
    Gamma,
    Gaussian,
    LaplaceNoise,
    LogisticNoise,
    Mixed,
    MultinomialLogit,
    NegativeBinomial,
    Ordinal,
    OrdinalProbit,
    Poisson,
    StochasticVolatility,
    StudentT,
    Weibull,
    ZeroInflated,
)
from fenchel.priors import DenseCovariance, Features, SparsePrecision

STORED = Path(__file__).parent / "answers.json"
N = 40
RNG = np.random.default_rng(20)
X = RNG.normal(size=(N, 3))
K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1)) + 0.1 * np.eye(N)
ETA = np.linalg.cholesky(K) @ RNG.normal(size=N)
COUNTS, LABELS = RNG.poisson(np.exp(ETA)).astype(float), (ETA + RNG.logistic(size=N) > 0).astype(float)
LEVELS = np.digitize(ETA + RNG.normal(size=N), [-0.7, 0.6]).astype(float)
REAL, AMOUNTS = ETA + 0.3 * RNG.normal(size=N), RNG.gamma(2.0, np.exp(ETA) / 2.0)
SHARES = np.clip(RNG.beta(4.0, 3.0, N), 0.02, 0.98)
TRIALS = RNG.integers(1, 9, N).astype(float)
EVENT = (RNG.random(N) < 0.7).astype(float)
WALK = gmrf.rw1(N, precision=2.0)
CUTS = np.array([-0.7, 0.6])


def moments(sol):
    """Numbers that every part of a fit went into."""
    post = sol.posterior
    mean, variance = np.asarray(post.mean), np.asarray(post.variance)
    latent = np.asarray(post.latent_mean), np.asarray(post.latent_variance)
    values = {"elbo": sol.elbo, "mean": mean.sum(), "square": (mean**2).sum(), "variance": variance.sum()}
    return {**values, "latent mean": (latent[0] ** 2).sum(), "latent variance": latent[1].sum()}


def fit(likelihood, prior, y, **options):
    sol = fenchel.infer(likelihood, prior, y, tol=1e-13, **options)
    return {**moments(sol), "loo": sol.loo(rng=0).elpd}


def dense(**options):
    return DenseCovariance(K, **options)


def features(variance=2.0):
    return Features(np.hstack([X, np.ones((N, 1))]), variance)


def sparse():
    return WALK.at(offset=0.1)


def learned(model, *, of, probe, **data):
    model.fit(*of, **data)
    out = {"elbo": model.elbo_, **{f"theta {i}": t for i, t in enumerate(np.atleast_1d(model.theta_))}}
    return {**out, "prediction": float(np.sum(np.asarray(model.predict(probe), dtype=float) ** 2))}


def linear(likelihood, y, **data):
    return learned(estimators.BayesianLinearRegression(likelihood=likelihood), of=(X, y), probe=X[:7], **data)


def mapped():
    sids = load_sids()
    table = {"county": sids.county, "share": np.linspace(0.0, 1.0, len(sids.county)), "deaths": sids.deaths}
    given = {"exposure": sids.expected, "graphs": {"county": sids.adjacency}, "levels": {"county": sids.county}}
    priors = {"bym2(county)": {"sd": fenchel.PC(sd=1.0, alpha=0.01)}}
    model = fenchel.fit("deaths ~ share + bym2(county)", table, "poisson", priors=priors, accuracy="fast", **given)
    risk = model.effects["county"]["relative_risk"]
    return {"elbo": model.elbo, "risk": float(risk.sum()), "slope": float(model.coefficients.loc["share", "mean"])}


def volatility():
    data = {"t": np.arange(200), "y": load_stochvol().returns[:200]}
    return fenchel.fit("y ~ ar1(t)", data, "stochastic-volatility", priors={"ar1(t)": None}, fixed_sd=10**0.5)


def table(**options):
    values = np.column_stack([LABELS, COUNTS, REAL, np.where(EVENT > 0, AMOUNTS, np.nan)])
    model = estimators.ProbabilisticPCA(2, likelihood=["bernoulli", "poisson", "gaussian", "gaussian"], **options)
    model.fit(values)
    return {"elbo": model.elbo_, "mean": float(np.nansum(np.abs(model.transform(values))))}


def by_learning(family, likelihood, y):
    found = learn(likelihood, family, y)
    return {"objective": found.objective, **{f"theta {i}": t for i, t in enumerate(found.theta)}}


def searched():
    found = grid(Poisson(), WALK, COUNTS, [np.linspace(0.5, -1.0, 4)])
    return {"best": float(np.nanmax(found.elbo))}


def germany():
    data = load_germany()
    field = gmrf.bym(data.adjacency, 10.0, 10.0)
    return moments(fenchel.infer(Poisson(data.E), field.at(), data.Y, tol=1e-12))


def rival(name, likelihood):
    from fenchel.paper import rivals

    sol = getattr(rivals, name)(likelihood, dense(), LABELS, tol=1e-10)
    return {"elbo": sol.elbo, "evidence": sol.log_evidence}


MULTI = np.stack([K, 0.5 * K + 0.5 * np.eye(N)])
ANSWERS = {
    "poisson dense": lambda: fit(Poisson(np.linspace(0.5, 2.0, N)), dense(), COUNTS),
    "poisson features": lambda: fit(Poisson(), features(), COUNTS),
    "poisson sparse": lambda: fit(Poisson(), sparse(), COUNTS),
    "poisson lbfgs": lambda: {"elbo": fenchel.infer(Poisson(), dense(), COUNTS, "lbfgs", tol=1e-9).elbo},
    "bernoulli log-sum dense": lambda: fit(BernoulliLogit("log-sum"), dense(), LABELS),
    "bernoulli tilted sparse": lambda: fit(BernoulliLogit("tilted"), sparse(), LABELS),
    "bernoulli bohning features": lambda: fit(BernoulliLogit("bohning"), features(), LABELS),
    "bernoulli jaakkola dense": lambda: fit(BernoulliLogit("jaakkola"), dense(), LABELS),
    "bernoulli exact dense": lambda: fit(BernoulliLogit("exact"), dense(), np.where(np.arange(N) % 9, LABELS, np.nan)),
    "bernoulli exact sparse": lambda: fit(BernoulliLogit("exact"), sparse(), LABELS),
    "bernoulli exact features": lambda: fit(BernoulliLogit("exact"), features(), LABELS, weights=TRIALS),
    "binomial exact dense": lambda: fit(Binomial(TRIALS, "exact"), dense(), np.minimum(COUNTS, TRIALS)),
    "probit dense": lambda: fit(BernoulliProbit(), dense(design=None), LABELS),
    "negative binomial": lambda: fit(NegativeBinomial(3.0, bound="exact"), dense(), COUNTS),
    "zero-inflated": lambda: fit(ZeroInflated(Poisson(), 0.2), dense(), COUNTS),
    "ordinal tilted": lambda: fit(Ordinal(CUTS, "tilted"), dense(), LEVELS),
    "ordinal probit": lambda: fit(OrdinalProbit(CUTS), features(), LEVELS),
    "softmax tilted": lambda: fit(MultinomialLogit(3, bound="tilted"), DenseCovariance(MULTI), LEVELS),
    "softmax log-sum features": lambda: fit(MultinomialLogit(3, reference=None, bound="log-sum"), features(), LEVELS),
    "gaussian design": lambda: fit(Gaussian(0.2), DenseCovariance(K[:9, :9], design=X @ RNG_DESIGN), REAL),
    "laplace noise": lambda: fit(LaplaceNoise(0.4), dense(), REAL),
    "logistic noise": lambda: fit(LogisticNoise(0.3, "tilted"), dense(), REAL),
    "student": lambda: fit(StudentT(4.0, 0.4), dense(), REAL),
    "gamma": lambda: fit(Gamma(2.0), dense(), AMOUNTS),
    "beta": lambda: fit(Beta(9.0), dense(), SHARES),
    "weibull": lambda: fit(Weibull(1.4, EVENT), sparse(), AMOUNTS),
    "exponential": lambda: fit(Exponential(EVENT), features(), AMOUNTS),
    "volatility": lambda: fit(StochasticVolatility(), gmrf.ar1(N, phi=0.9, variance=0.3).at(mean=-1.0), REAL),
    "mixed": lambda: fit(Mixed([Poisson(), Gaussian(0.3)], np.arange(N) % 2), dense(), np.where(EVENT, COUNTS, 1.0)),
    "constrained": lambda: fit(
        Poisson(),
        SparsePrecision(gmrf.icar(load_sids().adjacency).at().precision, constraints="sum-to-zero"),
        load_sids().deaths,
    ),
    "germany": germany,
    "learn a kernel": lambda: by_learning(KernelCovariance(1.0 * Matern(1.0, nu=2.5), X), Poisson(), COUNTS),
    "learn variances": lambda: by_learning(WeightVariances(X, [0, 1, 0]), BernoulliLogit("exact"), LABELS),
    "learn a walk": lambda: by_learning(gmrf.rw2(N), Gaussian(0.2), REAL),
    "grid": searched,
    "linear gaussian": lambda: linear("gaussian", REAL),
    "linear weibull": lambda: linear("weibull", AMOUNTS, event=EVENT),
    "linear ordinal": lambda: linear("ordinal", LEVELS),
    "logistic": lambda: learned(
        estimators.BayesianLogisticRegression(),
        of=load_breast_cancer(return_X_y=True),
        probe=load_breast_cancer().data[:9],
    ),
    "logistic softmax": lambda: learned(
        estimators.BayesianLogisticRegression(), of=load_iris(return_X_y=True), probe=load_iris().data[:9]
    ),
    "poisson ard": lambda: learned(estimators.BayesianPoissonRegression("ard"), of=(X, COUNTS), probe=X[:5]),
    "gp classifier": lambda: learned(estimators.GaussianProcessClassifier(), of=(X, LABELS), probe=X[:5]),
    "gp regressor": lambda: learned(
        estimators.GaussianProcessRegressor(1.0 * RBF(1.0)),
        of=(load_diabetes().data[:90], load_diabetes().target[:90]),
        probe=load_diabetes().data[90:99],
    ),
    "gp counts": lambda: learned(
        estimators.GaussianProcessPoissonRegressor(),
        of=(load_coal().year[:60, None], load_coal().count[:60]),
        probe=load_coal().year[60:64, None],
    ),
    "volatility model": lambda: {"elbo": volatility().elbo},
    "map": mapped,
    "table": table,
    "table exact": lambda: table(bound="exact"),
    "rival laplace": lambda: rival("laplace", BernoulliLogit("log-sum")),
    "rival ep": lambda: rival("ep", BernoulliLogit("log-sum")),
}
RNG_DESIGN = np.random.default_rng(3).normal(size=(3, 9))


def answer(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {key: float(value) for key, value in ANSWERS[name]().items()}


@pytest.mark.every_run
@pytest.mark.parametrize("name", ANSWERS)
def test_the_answers_are_those_of_the_tree_before(name):
    before = json.loads(STORED.read_text())[name]
    now = answer(name)
    assert now.keys() == before.keys()
    searched = any(key.startswith("theta") for key in before) or name in ("map", "table", "table exact")
    for key, value in before.items():
        stationary = key in ("elbo", "objective") and not name.startswith("table")  # there the objective has more in it
        exact = stationary or not searched
        assert now[key] == pytest.approx(value, rel=1e-10 if exact else 1e-6, abs=1e-10 if exact else 1e-6), key


if __name__ == "__main__" and "--store" in sys.argv:
    STORED.write_text(json.dumps({name: answer(name) for name in ANSWERS}, indent=1) + "\n")
