"""scikit-learn's fits."""

import numpy as np

PACKAGE = "scikit-learn"
SUBSET = 2000


def columns_of(table):
    return np.column_stack([table[name] for name in sorted(table) if name.startswith("x")])


def binary_process(data):
    """GaussianProcessClassifier(kernel, optimizer=None): Laplace's approximation"""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    X, y = columns_of(data["train"]), data["train"]["y"]
    kernel = ConstantKernel(data["kernel"]["variance"][0]) * RBF(data["kernel"]["length"][0])
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    mean, variance = model.latent_mean_and_variance(X)
    return {"mean": mean, "sd": np.sqrt(variance)}


def large_process(data):
    """GaussianProcessRegressor, constant x Matern 5/2 with a length a column + noise, on the first 2,000 rows: exact"""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    X, y = columns_of(data["train"])[:SUBSET], data["train"]["y"][:SUBSET]
    kernel = ConstantKernel(1.0) * Matern(np.full(X.shape[1], 2.0), nu=2.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)
    mean, sd = model.predict(columns_of(data["test"]), return_std=True)
    return {"mean": mean, "sd": sd}


def smooths(data):
    """SplineTransformer(12 knots) and BayesianRidge: one penalty for all curves, its evidence maximised"""
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer, StandardScaler

    means, sds = [], []
    for number in np.unique(data["train"]["set"]):
        part = {name: column[data["train"]["set"] == number] for name, column in data["train"].items()}
        X = columns_of(part)
        model = make_pipeline(SplineTransformer(n_knots=12, include_bias=False), StandardScaler(), BayesianRidge())
        mean, sd = model.fit(X, part["y"]).predict(X, return_std=True)  # sd is of a new y
        means.append(mean)
        sds.append(np.sqrt(sd**2 - 1.0 / model[-1].alpha_))
    return {"mean": np.concatenate(means), "sd": np.concatenate(sds)}


def logistic_million(data):
    """LogisticRegression(C=inf, solver="newton-cholesky"): no sds"""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=np.inf, solver="newton-cholesky").fit(data["train"]["X"], data["train"]["y"])
    return {"mean": model.coef_, "target": "maximum"}
