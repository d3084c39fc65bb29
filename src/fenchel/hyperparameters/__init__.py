"""Priors with hyperparameters (families), and ``learn``, ``grid`` and ``integrate``, which work with any of them.

``base.py`` has the contract of a family; each family has a file of its own.
"""

from .base import Family, Learned, SearchEnding
from .class_kernels import ClassKernels
from .evidence import Evidence
from .grid import Grid, grid
from .inducing_covariance import InducingCovariance
from .inducing_learning import InducingFit, learn_inducing
from .inducing_loss import ApproximationLoss, approximation_loss
from .integration import Integrated, integrate
from .kernel import KernelCovariance, ScaledCovariance
from .learning import learn
from .priors import HalfNormal, Normal, PCDeviation, PCRange, independent
from .weights import Relevance, WeightVariances, learn_relevance

__all__ = [
    "ApproximationLoss",
    "ClassKernels",
    "Evidence",
    "Family",
    "Grid",
    "HalfNormal",
    "InducingCovariance",
    "InducingFit",
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
    "approximation_loss",
    "grid",
    "independent",
    "integrate",
    "learn",
    "learn_inducing",
    "learn_relevance",
]
