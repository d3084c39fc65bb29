"""gpboost's Vecchia approximation with its defaults: Matern of 3/2 with a length for each column, 20 neighbours.

It refuses rows that agree under a likelihood that is not Gaussian: coordinates have noise of 1e-6.
"""

from __future__ import annotations

from typing import Any

import gpboost
import numpy as np

PACKAGES = ("gpboost", "numpy")


def vecchia(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None) -> Any:
    likelihood = "bernoulli_logit" if labels else "gaussian"
    kernel = {"cov_function": "matern_ard", "cov_fct_shape": 1.5, "gp_approx": "vecchia"}
    X = X + 1e-6 * np.random.default_rng(0).normal(size=X.shape)
    model = gpboost.GPModel(gp_coords=X, likelihood=likelihood, seed=0, **kernel)
    model.fit(y=y, X=np.ones((len(y), 1)))

    def predict(new: np.ndarray) -> tuple[np.ndarray, ...]:
        ones = np.ones((len(new), 1))
        found = model.predict(gp_coords_pred=new, X_pred=ones, predict_var=not labels, predict_response=True)
        return (found["mu"],) if labels else (found["mu"], np.sqrt(found["var"]))

    return predict, {"elbo": -float(model.get_current_neg_log_likelihood())}


FITS = {"gpboost-vecchia": vecchia}
