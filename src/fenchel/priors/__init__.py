"""Gaussian priors of the latents: ``DenseCovariance``, ``SparsePrecision``, ``Features``, ``InducingPoints``.

``base.py`` has the contract; each structure has a file of its own.
"""

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
