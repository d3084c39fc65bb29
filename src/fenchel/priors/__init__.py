"""Priors: ``base`` is the contract; one structure a file."""

from .base import Factor, NewRows, Predictors, Prior, PriorAdjoint
from .inducing import InducingPoints
from .latent_priors import DenseCovariance, Features
from .newton_systems import NewtonSystem
from .sparse import SparsePrecision

__all__ = [
    "DenseCovariance",
    "Factor",
    "Features",
    "InducingPoints",
    "NewRows",
    "NewtonSystem",
    "Predictors",
    "Prior",
    "PriorAdjoint",
    "SparsePrecision",
]
