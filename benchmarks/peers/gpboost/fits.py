"""gpboost's fits."""

import numpy as np

PACKAGE = "gpboost"
TO_THE_END = {"delta_rel_conv": 1e-9}  # its default stops where a step gains less than 1e-6 of the log-likelihood


def columns_of(table):
    return np.column_stack([table[name] for name in sorted(table) if name.startswith("x")])


def mixed(y, X, groups):
    import gpboost

    group = np.column_stack(groups).astype(int)
    model = gpboost.GPModel(group_data=group, likelihood="bernoulli_logit", matrix_inversion_method="cholesky")
    model.fit(y=y, X=X, params=TO_THE_END)
    found = np.asarray(model.get_coef(std_err=True, format_pandas=False))
    variances = np.ravel(model.get_cov_pars(format_pandas=False))
    return {"mean": found[0], "sd": found[1], "group": np.sqrt(variances), "target": "maximum"}


def process(train, new, names, y, X=None, X_new=None, **options):
    """Held-out y by Vecchia's approximation."""
    import gpboost

    coords, coords_new = (np.column_stack([table[name] for name in names]) for table in (train, new))
    model = gpboost.GPModel(gp_coords=coords, likelihood="gaussian", gp_approx="vecchia", seed=0, **options)
    model.fit(y=y, X=X)
    found = model.predict(gp_coords_pred=coords_new, X_pred=X_new, predict_var=True, predict_response=True)
    return {"mean": found["mu"], "sd": np.sqrt(found["var"])}


def binary_process(data):
    """GPModel(bernoulli_logit, gaussian kernel, no approximation of the kernel) at the given parameters: Laplace"""
    import gpboost

    X, y = columns_of(data["train"]), data["train"]["y"]
    variance, length = (float(data["kernel"][name][0]) for name in ("variance", "length"))
    model = gpboost.GPModel(gp_coords=X, cov_function="gaussian", likelihood="bernoulli_logit")
    found = model.predict(
        y=y,
        gp_coords_pred=X,
        cov_pars=np.array([variance, length * np.sqrt(2.0)]),  # exp(-(distance / range)^2)
        predict_var=True,
        predict_response=False,
    )
    return {"mean": found["mu"], "sd": np.sqrt(found["var"])}


def large_process(data):
    """GPModel(matern_ard, shape 2.5, Vecchia, 30 neighbours)"""
    train, new = data["train"], data["test"]
    names = sorted(new)
    ones, ones_new = np.ones((train["y"].size, 1)), np.ones((new["x0"].size, 1))
    options = {"cov_function": "matern_ard", "cov_fct_shape": 2.5, "num_neighbors": 30}
    return process(train, new, names, train["y"], ones, ones_new, **options)


def satellite(data):
    """GPModel(matern, shape 1.5, Vecchia, 20 neighbours), intercept and linear lon, lat"""
    train, new = data["train"], data["test"]
    X, X_new = (np.column_stack([np.ones(t["lon"].size), t["lon"] + 93.6, t["lat"] - 35.7]) for t in (train, new))
    options = {"cov_function": "matern", "cov_fct_shape": 1.5, "num_neighbors": 20}
    return process(train, new, ("x", "y"), train["temperature"], X, X_new, **options)


def longitudinal_binary(data):
    """GPModel(group_data, bernoulli_logit): Laplace, Cholesky, delta_rel_conv=1e-9"""
    train = data["train"]
    found = mixed(train["y"], np.column_stack([np.ones(train["y"].size), train["x"], train["treated"]]), [train["g"]])
    return {**found, "mean": found["mean"][1:], "sd": found["sd"][1:]}


def crossed_labels(data):
    """GPModel(group_data, bernoulli_logit): Laplace, Cholesky, delta_rel_conv=1e-9"""
    train = data["train"]
    names = ("anger", "male", "scold", "shout", "self")
    X = np.column_stack([np.ones(train["y"].size), *(train[name] for name in names)])
    return mixed(train["y"], X, [train["person"], train["item"]])
