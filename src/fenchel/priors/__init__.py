"""Priors: ``base`` is the contract; one structure a file."""

from .base import Factor, NewRows, Predictors, Prior
from .latent_priors import DenseCovariance, Features
from .newton_systems import NewtonSystem
from .prior_adjoint import PriorAdjoint
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
