"""West wing: priors. ``base`` is the contract; one structure a file."""

from .base import Factor, NewRows, NewtonSystem, Predictors, Prior
from .dense import DenseCovariance
from .features import Features
from .sparse import SparsePrecision

__all__ = ["DenseCovariance", "Factor", "Features", "NewRows", "NewtonSystem", "Predictors", "Prior", "SparsePrecision"]
