"""Priors: ``base`` is the contract, ``capabilities`` what only some of them answer; one structure a file."""

from .base import Factor, NewRows, Predictors, Prior
from .latent_priors import DenseCovariance, Features
from .newton_systems import NewtonSystem
from .prior_capabilities import PriorAdjoint
from .sparse import SparsePrecision

__all__ = [
    "DenseCovariance",
    "Factor",
    "Features",
    "NewRows",
    "NewtonSystem",
    "Predictors",
    "Prior",
    "PriorAdjoint",
    "SparsePrecision",
]
