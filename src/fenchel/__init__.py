"""fenchel: fast, certified Bayesian inference in latent Gaussian models.

The front door. Names load when first used, so that ``import fenchel`` costs almost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "infer": "inference",
    "Solution": "solvers",
    "Trace": "solvers",
    "MirrorNewton": "solvers",
    "FeasibleLBFGS": "solvers",
    "Posterior": "posterior",
    "BernoulliLogit": "likelihoods",
    "Binomial": "likelihoods",
    "Gaussian": "likelihoods",
    "Mixed": "likelihoods",
    "MultinomialLogit": "likelihoods",
    "Ordinal": "likelihoods",
    "Poisson": "likelihoods",
    "StochasticVolatility": "likelihoods",
    "DenseCovariance": "priors",
    "Features": "priors",
    "SparsePrecision": "priors",
}
_ROOMS = (
    "baselines",
    "datasets",
    "estimators",
    "gmrf",
    "hyperparameters",
    "likelihoods",
    "linalg",
    "priors",
    "solvers",
)

__all__ = [
    "BernoulliLogit",
    "Binomial",
    "DenseCovariance",
    "FeasibleLBFGS",
    "Features",
    "Gaussian",
    "MirrorNewton",
    "Mixed",
    "MultinomialLogit",
    "Ordinal",
    "Poisson",
    "Posterior",
    "Solution",
    "SparsePrecision",
    "StochasticVolatility",
    "Trace",
    "__version__",
    "baselines",
    "datasets",
    "estimators",
    "gmrf",
    "hyperparameters",
    "infer",
    "likelihoods",
    "linalg",
    "priors",
    "solvers",
]

if TYPE_CHECKING:
    from . import baselines, datasets, estimators, gmrf, hyperparameters, likelihoods, linalg, priors, solvers
    from .inference import infer
    from .likelihoods import (
        BernoulliLogit,
        Binomial,
        Gaussian,
        Mixed,
        MultinomialLogit,
        Ordinal,
        Poisson,
        StochasticVolatility,
    )
    from .posterior import Posterior
    from .priors import DenseCovariance, Features, SparsePrecision
    from .solvers import FeasibleLBFGS, MirrorNewton, Solution, Trace


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
