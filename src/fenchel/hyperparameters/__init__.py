"""Priors with hyperparameters: ``base`` is the contract, one family a file; ``learn`` and ``grid`` use any, and so does
``integrate`` (in ``integration``).
"""

from .base import Family, Learned, SearchEnding
from .evidence import Evidence
from .grid import Grid, grid
from .inducing_covariance import InducingCovariance
from .integration import Integrated, integrate
from .kernel import KernelCovariance, ScaledCovariance
from .learning import learn
from .priors import HalfNormal, Normal, PCDeviation, PCRange, independent
from .weights import Relevance, WeightVariances, learn_relevance

__all__ = [
    "Evidence",
    "Family",
    "Grid",
    "HalfNormal",
    "InducingCovariance",
    "Integrated",
    "KernelCovariance",
    "Learned",
    "Normal",
    "PCDeviation",
    "PCRange",
    "Relevance",
    "ScaledCovariance",
    "SearchEnding",
    "WeightVariances",
    "grid",
    "independent",
    "integrate",
    "learn",
    "learn_relevance",
]
