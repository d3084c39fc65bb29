"""statsmodels' fits."""

import warnings

import numpy as np
import pandas as pd

PACKAGE = "statsmodels"
SMOOTHS = ("x0", "x1", "x2", "x3")


def crossed(y, X, groups):
    """Of a Bayesian mixed model by its variational approximation."""
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    codes = [pd.factorize(column)[0] for column in groups]
    Z = np.hstack([np.eye(code.max() + 1)[code] for code in codes])
    ident = np.concatenate([np.full(code.max() + 1, k) for k, code in enumerate(codes)])
    np.random.seed(0)  # noqa: NPY002  where its search starts
    found = BinomialBayesMixedGLM(y, X, Z, ident, vcp_p=1.0, fe_p=10.0).fit_vb()
    return {"mean": found.fe_mean, "sd": found.fe_sd, "group": np.exp(found.vcp_mean)}


def longitudinal_binary(data):
    """BinomialBayesMixedGLM.fit_vb(), vcp_p=1 (prior sd of log sds), fe_p=10"""
    train = data["train"]
    X = np.column_stack([np.ones(train["y"].size), train["x"], train["treated"]])
    found = crossed(train["y"], X, [train["g"]])
    return {"mean": found["mean"][1:], "sd": found["sd"][1:], "group": found["group"]}


def crossed_labels(data):
    """BinomialBayesMixedGLM.fit_vb(), vcp_p=1 (prior sd of log sds), fe_p=10"""
    train = data["train"]
    names = ("anger", "male", "scold", "shout", "self")
    X = np.column_stack([np.ones(train["y"].size), *(train[name] for name in names)])
    return crossed(train["y"], X, [train["person"], train["item"]])


def smooths(data):
    """GLMGam, BSplines(df=12), penalties by select_penweight("gcv", method="nm")"""
    from statsmodels.gam.api import BSplines, GLMGam

    means, sds = [], []
    for _, part in pd.DataFrame(data["train"]).groupby("set"):
        basis = BSplines(part[list(SMOOTHS)].to_numpy(), df=[12] * 4, degree=[3] * 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ones = np.ones((len(part), 1))
            model = GLMGam(part["y"].to_numpy(), exog=ones, smoother=basis, alpha=[1.0] * 4)
            model.fit()  # sets the scale that the search needs
            alpha = model.select_penweight(criterion="gcv", method="nm", disp=False)[0]
            found = GLMGam(part["y"].to_numpy(), exog=ones, smoother=basis, alpha=list(alpha)).fit()
        said = found.get_prediction().summary_frame()
        means.append(said["mean"].to_numpy())
        sds.append(said["mean_se"].to_numpy())
    return {"mean": np.concatenate(means), "sd": np.concatenate(sds)}


def logistic_million(data):
    """Logit(y, X).fit(): Newton's method, its defaults"""
    from statsmodels.discrete.discrete_model import Logit

    X = np.column_stack([data["train"]["X"], np.ones(data["train"]["y"].size)])
    found = Logit(data["train"]["y"], X).fit(disp=False)
    return {"mean": found.params[:-1], "sd": found.bse[:-1], "target": "maximum"}
