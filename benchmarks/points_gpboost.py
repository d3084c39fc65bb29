"""gpboost's Vecchia approximation on rows that ``points.py`` hands over: run by a Python that has gpboost.

python benchmarks/points_gpboost.py rows.npz          prints one line of json
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import gpboost as gpb
import numpy as np
from scipy.special import gammaln


def main() -> None:
    data = np.load(sys.argv[1])
    X, y, out, family = data["X"], data["y"].astype(float), data["out"], str(data["family"])
    likelihood = {"poisson": "poisson", "bernoulli": "bernoulli_logit", "gaussian": "gaussian"}[family]
    settings = {"cov_function": "matern", "cov_fct_shape": 1.5, "gp_approx": "vecchia"}
    began, used = time.perf_counter(), time.process_time()
    model = gpb.GPModel(
        gp_coords=X[~out], likelihood=likelihood, num_neighbors=int(data["neighbours"]), seed=0, **settings
    )
    ones = np.ones((len(X), 1))
    model.fit(y=y[~out], X=ones[~out])
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    found = model.predict(gp_coords_pred=X[out], X_pred=ones[out], predict_var=True, predict_response=False)
    h, rho = found["mu"], np.maximum(found["var"], 1e-12)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    eta = h[:, None] + np.sqrt(rho)[:, None] * nodes
    pars = np.ravel(model.get_cov_pars())
    target = y[out][:, None]
    log_density = {
        "poisson": lambda: target * eta - np.exp(eta) - gammaln(target + 1),
        "bernoulli": lambda: target * eta - np.logaddexp(0, eta),
        "gaussian": lambda: -0.5 * (target - eta) ** 2 / pars[0] - 0.5 * np.log(2 * np.pi * pars[0]),
    }[family]()
    score = np.log(np.exp(log_density) @ (weights / weights.sum())).mean()
    variance, length = pars[-2:]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    answer = {"seconds": seconds, "cpu": cpu, "gib": peak, "sd": float(np.sqrt(variance)), "range": 2 * float(length)}
    about = {"gpboost": gpb.__version__, "numpy": np.__version__, "threads": os.cpu_count(), "settings": settings}
    print(json.dumps({**answer, "score": float(score), "about": about}))


if __name__ == "__main__":
    main()
