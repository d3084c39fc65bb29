"""Estimators with scikit-learn's interface. The only room that imports scikit-learn's own."""

from ..factors.selection import select_components
from .estimator_plots import plot_coefficients, plot_decision_surface, plot_partial_effect
from .factor_analysis import ProbabilisticPCA
from .gaussian_process import GaussianProcessClassifier, GaussianProcessPoissonRegressor
from .linear import BayesianLogisticRegression, BayesianPoissonRegression
from .regression import BayesianLinearRegression, GaussianProcessRegressor

__all__ = [
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPoissonRegression",
    "GaussianProcessClassifier",
    "GaussianProcessPoissonRegressor",
    "GaussianProcessRegressor",
    "ProbabilisticPCA",
    "plot_coefficients",
    "plot_decision_surface",
    "plot_partial_effect",
    "select_components",
]
