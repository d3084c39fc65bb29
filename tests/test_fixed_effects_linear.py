"""Linear estimators do not depend on the units of their columns: any shift, any scale, dense and sparse, vague priors."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fenchel.estimators import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from fenchel.estimators.responses import NAMES

rng = np.random.default_rng(0)
N = 60
BASE = np.round(rng.normal(size=(N, 3)), 3)
ETA = BASE @ [0.8, -0.5, 0.0] + 0.3
TARGETS = {
    "gaussian": ETA + 0.3 * rng.normal(size=N),
    "laplace": ETA + 0.3 * rng.laplace(size=N),
    "logistic": ETA + 0.3 * rng.logistic(size=N),
    "student-t": ETA + 0.3 * rng.standard_t(4, N),
    "poisson": rng.poisson(np.exp(ETA)),
    "negative-binomial": rng.poisson(np.exp(ETA) * rng.gamma(2.0, 0.5, N)),
    "zero-inflated-poisson": rng.poisson(np.exp(ETA)) * (rng.random(N) < 0.8),
    "gamma": rng.gamma(2.0, np.exp(ETA) / 2.0),
    "exponential": rng.exponential(np.exp(-ETA)),
    "weibull": rng.weibull(1.5, N) * np.exp(-ETA / 1.5),
    "beta": np.clip(rng.beta(3.0 / (1 + np.exp(-ETA)), 3.0 / (1 + np.exp(ETA))), 1e-3, 1 - 1e-3),
    "binomial": rng.binomial(5, 1.0 / (1.0 + np.exp(-ETA))),
    "bernoulli": (ETA + rng.logistic(size=N) > 0).astype(float),
    "probit": (ETA + rng.normal(size=N) > 0).astype(float),
    "ordinal": np.digitize(ETA + rng.logistic(size=N), [-1.0, 1.0]).astype(float),
    "ordinal-probit": np.digitize(ETA + rng.normal(size=N), [-1.0, 1.0]).astype(float),
}
THREE = np.argmax(BASE @ rng.normal(size=(3, 3)) + rng.gumbel(size=(N, 3)), axis=1)
LINEAR = [("linear", name) for name in NAMES]
CASES = [*LINEAR, ("labels", "two"), ("labels", "three"), ("counts", "")]


def model_of(case, **options):
    """An estimator with a fixed prior, and its target."""
    kind, name = case
    options = {"learn_variance": False, "tol": 1e-14, **options}
    if kind == "linear":
        extra = {"trials": np.full(N, 5.0)} if name == "binomial" else {}
        return BayesianLinearRegression(likelihood=name, learn_likelihood=False, **options), TARGETS[name], extra
    if kind == "labels":
        return BayesianLogisticRegression(**options), TARGETS["bernoulli"] if name == "two" else THREE, {}
    return BayesianPoissonRegression(**options), TARGETS["poisson"], {}


def fitted(case, X, **options):
    model, y, extra = model_of(case, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # likelihoods without a certificate say so
        return model.fit(X, y[: X.shape[0]], **{key: value[: X.shape[0]] for key, value in extra.items()})


def assert_same_fit(one, other, shift, scale, rtol=1e-6):
    """``other`` saw the columns shift + scale x: coefficients, covariance and predictions are those of ``one``."""
    sd = one.coef_std_
    assert other.elbo_ == pytest.approx(one.elbo_, rel=rtol, abs=rtol)
    np.testing.assert_allclose(other.coef_ * scale / sd, one.coef_ / sd, atol=10 * rtol, rtol=rtol)
    np.testing.assert_allclose(other.coef_std_ * scale, sd, rtol=rtol)
    cov, size = one.coef_cov_, sd[..., :, None] * sd[..., None, :]
    size = size[0] if size.ndim > cov.ndim else size
    np.testing.assert_allclose(other.coef_cov_ * scale[:, None] * scale / size, cov / size, atol=10 * rtol)


affine = st.tuples(
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    st.lists(st.floats(-6.0, 6.0).map(lambda e: 10.0**e), min_size=3, max_size=3),
    st.sampled_from([1.0, 1e4, 1e8]),
    st.booleans(),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(change=affine)
def test_any_affine_change_of_the_columns(case, change):
    shift, scale, variance, sparse = (np.asarray(x) if isinstance(x, list) else x for x in change)
    table = shift + scale * BASE  # rounded, as a user's table is: what it holds is the witness's
    held = (table - shift) / scale
    options = {"variance": variance, "intercept_variance": max(variance, 100.0)}
    one, other = fitted(case, held, **options), fitted(case, sp.csr_array(table) if sparse else table, **options)
    assert other.converged_ == one.converged_
    assert_same_fit(one, other, shift, scale)
    new = held[:7] + 0.25
    h, rho = one.latent_mean_and_variance(new)
    new = shift + scale * new
    again = (new - shift) / scale
    if np.abs(again - held[:7] - 0.25).max() < 1e-9:
        for X in (new, sp.csr_array(new)):
            h2, rho2 = other.latent_mean_and_variance(X)
            np.testing.assert_allclose((h2 - h) / np.sqrt(rho), 0.0, atol=1e-5)
            np.testing.assert_allclose(rho2, rho, rtol=1e-6)
