"""Priors with hyperparameters: ``base`` is the contract, one family a file; ``learn`` and ``grid`` use any, and so does
``integrate`` (in ``integration``).
"""

from .base import Family
from .evidence import Evidence
from .grid import Grid, grid
from .integration import Integrated, integrate
from .kernel import KernelCovariance
from .learned import Learned, SearchEnding
from .learning import learn
from .priors import Normal, PCDeviation, PCRange, independent
from .relevance import Relevance, learn_relevance
from .scaled import ScaledCovariance
from .weights import WeightVariances

__all__ = [
    "Evidence",
    "Family",
    "Grid",
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
