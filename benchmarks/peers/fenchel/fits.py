"""fenchel's fits: its default calls."""

import numpy as np
import pandas as pd

PACKAGE = "fenchel"


def coefficients(fit, n):
    """The last n coefficients, and the sds of groups where there are some."""
    rows = fit.hyperparameters
    sds = rows["mean" if "mean" in rows else "value"]
    sds = [float(sds[key]) for key in rows.index if str(key[0]).startswith("(") and str(key[1]).startswith("sd")]
    return {"mean": fit.coefficients["mean"][-n:], "sd": fit.coefficients["sd"][-n:], "group": sds}


def linked(fit):
    found = fit.predict(kind="link", interval=0.95)
    return {"mean": found["mean"], "sd": found["sd"]}


def columns_of(table):
    return np.column_stack([table[name] for name in sorted(table) if name.startswith("x")])


def binary_process(data):
    """GaussianProcessClassifier(kernel, optimizer=None, fit_intercept=False): the best Gaussian, exact expectations."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from fenchel import GaussianProcessClassifier

    X, y = columns_of(data["train"]), data["train"]["y"]
    kernel = ConstantKernel(data["kernel"]["variance"][0]) * RBF(data["kernel"]["length"][0])
    model = GaussianProcessClassifier(kernel, optimizer=None, fit_intercept=False).fit(X, y)
    mean, variance = model.latent_mean_and_variance(X)
    return {"mean": mean, "sd": np.sqrt(variance)}


def large_process(data):
    """GaussianProcessRegressor(): kernel, units and number of inducing points are chosen."""
    from fenchel import GaussianProcessRegressor

    model = GaussianProcessRegressor().fit(columns_of(data["train"]), data["train"]["y"])
    mean, sd = model.predict(columns_of(data["test"]), return_std=True)
    return {"mean": mean, "sd": sd}


def counts_on_graph(data):
    """fit("y ~ bym2(district)", family="poisson") with the prior of the sd as stated."""
    import fenchel

    train, edges = data["train"], data["edges"]
    graph = np.zeros((train["y"].size, train["y"].size))
    graph[edges["a"], edges["b"]] = graph[edges["b"], edges["a"]] = 1.0
    priors = {"bym2(district)": {"sd": fenchel.PC(sd=1, alpha=0.01)}}
    frame = pd.DataFrame(train)
    call = {"family": "poisson", "exposure": "E", "graphs": {"district": graph}, "priors": priors}
    return linked(fenchel.fit("y ~ bym2(district)", frame, **call))


def longitudinal_binary(data):
    """fit("y ~ x + treated + (1|g)", family="bernoulli")"""
    import fenchel

    return coefficients(fenchel.fit("y ~ x + treated + (1|g)", pd.DataFrame(data["train"]), "bernoulli"), 2)


def longitudinal_ordinal(data):
    """fit("y ~ x + treated + (1|g)", family="ordinal")"""
    import fenchel

    return coefficients(fenchel.fit("y ~ x + treated + (1|g)", pd.DataFrame(data["train"]), "ordinal"), 2)


def survival_frailty(data):
    """fit("cens(y, event) ~ x + treated + (1|g)", family="weibull")"""
    import fenchel

    frame = pd.DataFrame(data["train"])
    return coefficients(fenchel.fit("cens(y, event) ~ x + treated + (1|g)", frame, "weibull"), 2)


def crossed_labels(data):
    """fit("y ~ anger + male + scold + shout + self + (1|person) + (1|item)", family="bernoulli")"""
    import fenchel

    formula = "y ~ anger + male + scold + shout + self + (1|person) + (1|item)"
    return coefficients(fenchel.fit(formula, pd.DataFrame(data["train"]), "bernoulli"), 6)


def smooths(data):
    """fit("y ~ s(x0) + s(x1) + s(x2) + s(x3)")"""
    import fenchel

    found = [
        linked(fenchel.fit("y ~ s(x0) + s(x1) + s(x2) + s(x3)", part))
        for _, part in pd.DataFrame(data["train"]).groupby("set")
    ]
    return {key: np.concatenate([each[key] for each in found]) for key in ("mean", "sd")}


def satellite(data):
    """fit("temperature ~ lon + lat + matern(x, y)")"""
    import fenchel

    fit = fenchel.fit("temperature ~ lon + lat + matern(x, y)", pd.DataFrame(data["train"]))
    found = fit.predict(pd.DataFrame(data["test"]), kind="outcome", interval=0.95)
    return {"mean": found["mean"], "sd": found["sd"]}


def logistic_million(data):
    """BayesianLogisticRegression(): the variance of the coefficients is learned"""
    from fenchel.estimators import BayesianLogisticRegression

    model = BayesianLogisticRegression().fit(data["train"]["X"], data["train"]["y"])
    return {"mean": model.coef_, "sd": model.coef_std_}


def full_posterior(data):
    """fit("y ~ x + (x|g)", family="bernoulli") with the priors of the sds as stated"""
    import fenchel

    frame = pd.DataFrame(data["train"])
    of_x = fenchel.PC(sd=1 / float(frame["x"].std(ddof=0)), alpha=0.01)
    priors = {"(x|g)": {"sd intercept (at the mean)": fenchel.PC(sd=1, alpha=0.01), "sd x": of_x}}
    fit = fenchel.fit("y ~ x + (x|g)", frame, "bernoulli", priors=priors)
    rows = fit.hyperparameters
    names = [key for key in rows.index if " at the mean " not in str(key[1]) and "(at the mean)" not in str(key[1])]
    return {**linked(fit), "theta": rows.loc[names, "mean"]}
