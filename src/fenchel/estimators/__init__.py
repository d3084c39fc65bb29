"""The hall: scikit-learn estimators. The only room that imports scikit-learn's own."""

from .gaussian_process import GaussianProcessClassifier, GaussianProcessPoissonRegressor

__all__ = ["GaussianProcessClassifier", "GaussianProcessPoissonRegressor"]
