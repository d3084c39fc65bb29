"""fenchel: fast, certified Bayesian inference in latent Gaussian models.

The front door. Names load when first used, so that ``import fenchel`` costs almost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {  # a name -> the module it is imported from
    name: room
    for room, names in {
        "inference": "infer",
        "solvers": "Solution Trace MirrorNewton CoupledNewton FeasibleLBFGS",
        "posterior": "Posterior",
        "likelihoods": (
            "BernoulliLogit BernoulliProbit Beta BetaBinomial Binomial Exponential Gamma Gaussian "
            "Hurdle Interval LaplaceNoise LogisticNoise Mixed MultinomialLogit NegativeBinomial "
            "NegativeBinomial1 Ordinal OrdinalProbit Poisson StochasticVolatility StudentT "
            "Truncated Tweedie Weibull ZeroInflated"
        ),
        "priors": "DenseCovariance Features SparsePrecision",
        "estimators": (
            "BayesianLinearRegression BayesianLogisticRegression BayesianPoissonRegression "
            "GaussianProcessClassifier GaussianProcessPoissonRegressor GaussianProcessRegressor "
            "ProbabilisticPCA"
        ),
        "hyperparameters": "integrate",
        "models": "FittedModel Model Normal PC calibrate compare fit",
        "models.regressor": "FormulaRegressor",
        "models.borders": "neighbours",
        "gmrf.mesh": "Mesh",
        "gmrf.mesh_making": "mesh",
        "files": "load save",
    }.items()
    for name in names.split()
}
_ROOMS = (
    "datasets",
    "estimators",
    "gmrf",
    "hyperparameters",
    "likelihoods",
    "linalg",
    "models",
    "priors",
    "solvers",
    "terms",
)

__all__ = [
    "PC",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPoissonRegression",
    "BernoulliLogit",
    "BernoulliProbit",
    "Beta",
    "BetaBinomial",
    "Binomial",
    "CoupledNewton",
    "DenseCovariance",
    "Exponential",
    "FeasibleLBFGS",
    "Features",
    "FittedModel",
    "FormulaRegressor",
    "Gamma",
    "Gaussian",
    "GaussianProcessClassifier",
    "GaussianProcessPoissonRegressor",
    "GaussianProcessRegressor",
    "Hurdle",
    "Interval",
    "LaplaceNoise",
    "LogisticNoise",
    "Mesh",
    "MirrorNewton",
    "Mixed",
    "Model",
    "MultinomialLogit",
    "NegativeBinomial",
    "NegativeBinomial1",
    "Normal",
    "Ordinal",
    "OrdinalProbit",
    "Poisson",
    "Posterior",
    "ProbabilisticPCA",
    "Solution",
    "SparsePrecision",
    "StochasticVolatility",
    "StudentT",
    "Trace",
    "Truncated",
    "Tweedie",
    "Weibull",
    "ZeroInflated",
    "__version__",
    "calibrate",
    "compare",
    "datasets",
    "estimators",
    "fit",
    "gmrf",
    "hyperparameters",
    "infer",
    "integrate",
    "likelihoods",
    "linalg",
    "load",
    "mesh",
    "models",
    "neighbours",
    "priors",
    "save",
    "solvers",
    "terms",
]

if TYPE_CHECKING:
    from . import (
        datasets,
        estimators,
        gmrf,
        hyperparameters,
        likelihoods,
        linalg,
        models,
        priors,
        solvers,
        terms,
    )
    from .estimators import (
        BayesianLinearRegression,
        BayesianLogisticRegression,
        BayesianPoissonRegression,
        GaussianProcessClassifier,
        GaussianProcessPoissonRegressor,
        GaussianProcessRegressor,
        ProbabilisticPCA,
    )
    from .files import load, save
    from .gmrf.mesh import Mesh
    from .gmrf.mesh_making import mesh
    from .hyperparameters import integrate
    from .inference import infer
    from .likelihoods import (
        BernoulliLogit,
        BernoulliProbit,
        Beta,
        BetaBinomial,
        Binomial,
        Exponential,
        Gamma,
        Gaussian,
        Hurdle,
        Interval,
        LaplaceNoise,
        LogisticNoise,
        Mixed,
        MultinomialLogit,
        NegativeBinomial,
        NegativeBinomial1,
        Ordinal,
        OrdinalProbit,
        Poisson,
        StochasticVolatility,
        StudentT,
        Truncated,
        Tweedie,
        Weibull,
        ZeroInflated,
    )
    from .models import PC, FittedModel, Model, Normal, calibrate, compare, fit
    from .models.borders import neighbours
    from .models.regressor import FormulaRegressor
    from .posterior import Posterior
    from .priors import DenseCovariance, Features, SparsePrecision
    from .solvers import CoupledNewton, FeasibleLBFGS, MirrorNewton, Solution, Trace


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
