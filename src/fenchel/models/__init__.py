"""Models from data frames: one formula, from linear regression to mixed models and maps.

    Model(formula, data, family)      compiled and checked;  .fit() -> FittedModel
    fit(formula, data, family)        both in one call

``grammar`` takes a formula apart, ``fixed`` hands its fixed part to formulaic, ``compiler`` makes terms of the rest,
``response`` reads y. ``PC`` and ``Normal`` state priors.
"""

from ..criticism import compare
from ..files import load
from ..hyperparameters.priors import Normal
from .before_data import power
from .calibrating import calibrate
from .fitted import FittedModel
from .model import Model, fit
from .stated_priors import PC

__all__ = ["PC", "FittedModel", "Model", "Normal", "calibrate", "compare", "fit", "load", "power"]
