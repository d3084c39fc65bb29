"""fenchel's processes of many rows: the default call, and a kernel and a number of points as the peers have them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from fenchel.estimators import GaussianProcessClassifier, GaussianProcessRegressor

PACKAGES = ("fenchel", "numpy", "scipy", "torch")


def answered(model: Any, labels: bool) -> tuple[Any, dict[str, Any]]:
    """How new rows are predicted, and what the fit says of itself."""
    stages = model.approximation_
    notes = {"elbo": model.elbo_, "loss": model.approximation_loss_, "iterations": model.n_iter_}
    notes["kernel"] = str(model.kernel_)
    if stages is not None:
        notes["points"] = int(stages["n_inducing"].iloc[-1])
        notes["estimated"] = bool(stages["standard_error"].iloc[-1] > 0.0)

    def predict(X: np.ndarray) -> tuple[np.ndarray, ...]:
        if labels:
            return (model.predict_proba(X)[:, 1],)
        mean, sd = model.predict(X, return_std=True)
        return mean, sd

    return predict, notes


def default(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None, loss: float | None = None) -> Any:
    """GaussianProcessRegressor().fit(X, y), GaussianProcessClassifier().fit(X, y): kernel, points, time are chosen.

    ``loss``: nats that points may cost for each row; by default a thousandth.
    """
    kind: Any = GaussianProcessClassifier if labels else GaussianProcessRegressor
    return answered(kind(loss=None if loss is None else loss * len(y), device=device).fit(X, y), labels)


def points(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None, number: int = 512) -> Any:
    """A constant times Matern 3/2 with a length for each column, so many inducing points; theta learned."""
    kind: Any = GaussianProcessClassifier if labels else GaussianProcessRegressor
    D = X.shape[1]
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.full(D, D**0.5), (1e-2, 1e4), nu=1.5)
    model = kind(kernel, approximation="inducing", n_inducing=min(number, len(y)), device=device)
    return answered(model.fit(X, y), labels)


FITS = {"fenchel": default, "fenchel-coarse": partial(default, loss=0.01)}
FITS |= {f"fenchel-{m}": partial(points, number=m) for m in (64, 128, 256, 512, 1000, 2000)}
