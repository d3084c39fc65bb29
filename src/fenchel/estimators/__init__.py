"""Estimators with scikit-learn's interface. The only room that imports scikit-learn's own."""

from ..factors.selection import select_components
from .display import EvidenceDisplay, TraceDisplay
from .display_estimates import CoefficientsDisplay, VolatilityDisplay
from .display_factors import BiplotDisplay, ComponentsDisplay, LoadingsDisplay
from .display_inputs import DecisionSurfaceDisplay, LatentFunctionDisplay
from .factor_analysis import ProbabilisticPCA
from .gaussian_process import GaussianProcessClassifier, GaussianProcessPoissonRegressor
from .linear import BayesianLogisticRegression, BayesianPoissonRegression
from .regression import BayesianLinearRegression, GaussianProcessRegressor

__all__ = [
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPoissonRegression",
    "BiplotDisplay",
    "CoefficientsDisplay",
    "ComponentsDisplay",
    "DecisionSurfaceDisplay",
    "EvidenceDisplay",
    "GaussianProcessClassifier",
    "GaussianProcessPoissonRegressor",
    "GaussianProcessRegressor",
    "LatentFunctionDisplay",
    "LoadingsDisplay",
    "ProbabilisticPCA",
    "TraceDisplay",
    "VolatilityDisplay",
    "select_components",
]
