"""The hall: scikit-learn estimators. The only room that imports scikit-learn's own."""

from .display import EvidenceDisplay, TraceDisplay
from .display_estimates import CoefficientsDisplay, VolatilityDisplay
from .display_inputs import DecisionSurfaceDisplay, LatentFunctionDisplay
from .gaussian_process import GaussianProcessClassifier, GaussianProcessPoissonRegressor
from .linear import BayesianLogisticRegression, BayesianPoissonRegression
from .markov import GMRFRegressor
from .volatility import StochasticVolatilityModel

__all__ = [
    "BayesianLogisticRegression",
    "BayesianPoissonRegression",
    "CoefficientsDisplay",
    "DecisionSurfaceDisplay",
    "EvidenceDisplay",
    "GMRFRegressor",
    "GaussianProcessClassifier",
    "GaussianProcessPoissonRegressor",
    "LatentFunctionDisplay",
    "StochasticVolatilityModel",
    "TraceDisplay",
    "VolatilityDisplay",
]
