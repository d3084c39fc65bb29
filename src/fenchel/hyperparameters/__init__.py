"""Study: priors with hyperparameters. ``base`` is the contract; one family a file."""

from .base import Family
from .scaled import ScaledCovariance

__all__ = ["Family", "ScaledCovariance"]
