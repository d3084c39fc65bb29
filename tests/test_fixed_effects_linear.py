"""Linear estimators do not depend on the units of their columns: any shift and scale, sparse too, vague priors."""

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fenchel.estimators import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from fenchel.likelihoods import WORDS
from fenchel.linalg.matrix_designs import as_design
from fenchel.linalg.standardized import Standardized, column_moments

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
    "negative-binomial-1": rng.poisson(rng.gamma(np.exp(ETA), 1.0)),
    "zero-inflated-negative-binomial": rng.poisson(np.exp(ETA) * rng.gamma(2.0, 0.5, N)) * (rng.random(N) < 0.8),
    "truncated-poisson": np.maximum(rng.poisson(np.exp(ETA)), 1),
    "truncated-negative-binomial": np.maximum(rng.poisson(np.exp(ETA) * rng.gamma(2.0, 0.5, N)), 1),
    "hurdle-poisson": rng.poisson(np.exp(ETA)) * (rng.random(N) < 0.8),
    "hurdle-negative-binomial": rng.poisson(np.exp(ETA) * rng.gamma(2.0, 0.5, N)) * (rng.random(N) < 0.8),
    "tweedie": rng.gamma(2.0, np.exp(ETA) / 2.0) * (rng.random(N) < 0.8),
    "beta-binomial": rng.binomial(5, rng.beta(3.0 / (1 + np.exp(-ETA)), 3.0 / (1 + np.exp(ETA)))),
    "gamma": rng.gamma(2.0, np.exp(ETA) / 2.0),
    "exponential": rng.exponential(np.exp(-ETA)),
    "weibull": rng.weibull(1.5, N) * np.exp(-ETA / 1.5),
    "beta": np.clip(rng.beta(3.0 / (1 + np.exp(-ETA)), 3.0 / (1 + np.exp(ETA))), 1e-3, 1 - 1e-3),
    "binomial": rng.binomial(5, 1.0 / (1.0 + np.exp(-ETA))),
    "bernoulli": (ETA + rng.logistic(size=N) > 0).astype(float),
    "probit": (ETA + rng.normal(size=N) > 0).astype(float),
    "ordinal": np.digitize(ETA + rng.logistic(size=N), [-1.0, 1.0]).astype(float),
    "ordinal-probit": np.digitize(ETA + rng.normal(size=N), [-1.0, 1.0]).astype(float),
    "stochastic-volatility": np.exp(ETA / 2) * np.random.default_rng(7).normal(size=N),
}
THREE = np.argmax(BASE @ rng.normal(size=(3, 3)) + rng.gumbel(size=(N, 3)), axis=1)
for kind in ("zero-inflated", "truncated", "hurdle"):
    TARGETS[f"{kind}-negative-binomial-1"] = TARGETS[f"{kind}-negative-binomial"]
LINEAR = [("linear", name) for name in WORDS]
CASES = [*LINEAR, ("labels", "two"), ("labels", "three"), ("counts", "")]


def model_of(case, **options):
    """An estimator with a fixed prior, and its target."""
    kind, name = case
    options = {"learn_variance": False, "tol": 1e-12, **options}
    if kind == "linear":
        extra = {"trials": np.full(N, 5.0)} if name in ("binomial", "beta-binomial") else {}
        return BayesianLinearRegression(likelihood=name, learn_likelihood=False, **options), TARGETS[name], extra
    if kind == "labels":
        return BayesianLogisticRegression(**options), TARGETS["bernoulli"] if name == "two" else THREE, {}
    return BayesianPoissonRegression(**options), TARGETS["poisson"], {}


def fitted(case, X, **options):
    model, y, extra = model_of(case, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # likelihoods without a certificate say so
        return model.fit(X, y[: X.shape[0]], **{key: value[: X.shape[0]] for key, value in extra.items()})


def assert_same_fit(one, other, scale, error):
    """``other`` saw the columns shift + scale x: elbo, coefficients and covariance are those of ``one``."""
    sd = one.coef_std_
    assert other.elbo_ == pytest.approx(one.elbo_, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(other.coef_ * scale / sd, one.coef_ / sd, atol=error)
    np.testing.assert_allclose(other.coef_std_ * scale, sd, rtol=1e-6)
    cov, size = one.coef_cov_, sd[..., :, None] * sd[..., None, :]
    size = size[0] if size.ndim > cov.ndim else size
    np.testing.assert_allclose(other.coef_cov_ * scale[:, None] * scale / size, cov / size, atol=1e-6)


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
    assert one.converged_
    assert other.converged_
    error = 1e-6  # in standard deviations
    if case[1] == "three":  # a softmax has no site of its own a row: what the gaps allow
        error = max(error, sum((2 * model.gap_) ** 0.5 for model in (one, other)))
    assert_same_fit(one, other, scale, error)
    h, rho = one.latent_mean_and_variance(held[::-9])
    for X in (table[::-9], sp.csr_array(table[::-9])):
        h2, rho2 = other.latent_mean_and_variance(X)
        np.testing.assert_allclose((h2 - h) / np.sqrt(rho), 0.0, atol=10 * error)
        np.testing.assert_allclose(rho2, rho, rtol=1e-6)


@pytest.mark.parametrize("prior", ["ridge", "ard"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "a frame", "wide"])
def test_what_is_learned_does_not_depend_on_units(kind, prior):
    shift, scale = np.array([1990.0, 335_114.0, -3e-4]), np.array([9.0, 30_603.0, 2e-6])
    X = BASE
    if kind == "wide":  # more columns than rows
        X = np.round(np.random.default_rng(1).normal(size=(N, 80)), 3) + np.repeat(BASE[:, :1], 80, axis=1)
        shift, scale = np.resize(shift, 80), np.resize(scale, 80)
    table = shift + scale * X
    held = (table - shift) / scale
    table = {"sparse": sp.csr_array, "a frame": pd.DataFrame}.get(kind, np.asarray)(table)
    for make, y in (
        (BayesianLogisticRegression, TARGETS["bernoulli"]),
        (BayesianPoissonRegression, TARGETS["poisson"]),
        (BayesianLinearRegression, TARGETS["gaussian"]),
    ):
        if kind == "wide" and (prior, make) != ("ridge", BayesianLogisticRegression):
            continue
        one, other = (make(prior, tol=1e-13).fit(A, y) for A in (held, table))
        assert other.elbo_ == pytest.approx(one.elbo_, abs=1e-6)
        np.testing.assert_allclose(np.log(other.variance_), np.log(one.variance_), atol=1e-3)
        np.testing.assert_allclose(other.coef_ * scale / one.coef_std_, one.coef_ / one.coef_std_, atol=1e-3)
        np.testing.assert_allclose(other.predict(table), one.predict(held), rtol=1e-4)


def test_weights_are_in_the_means():
    """A weight of 2 is a row twice, one of 0 no row, whatever the row holds."""
    weight = np.r_[np.zeros(10), np.full(10, 2.0), np.ones(40)]
    rows = np.r_[np.arange(10, 20), np.arange(10, 60)]
    X = 1e5 + BASE
    X[:10] = 1e9
    one, other = BayesianLogisticRegression(learn_variance=False, tol=1e-13), BayesianPoissonRegression(tol=1e-13)
    for model, y in ((one, TARGETS["bernoulli"]), (other, TARGETS["poisson"])):
        for table in (X, sp.csr_array(X)):
            weighted = clone(model).fit(table, y, sample_weight=weight)
            repeated = clone(model).fit(X[rows], y[rows])
            np.testing.assert_allclose(weighted.feature_mean_, X[rows].mean(axis=0), rtol=1e-14)
            np.testing.assert_allclose(weighted.feature_scale_, X[rows].std(axis=0), rtol=1e-9)
            assert weighted.elbo_ == pytest.approx(repeated.elbo_, abs=1e-8)
            np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)


def test_years():
    """The slope that a centred year has, without a warning, by scikit-learn's mode with a free intercept."""
    rng = np.random.default_rng(2)
    year = rng.integers(1960, 1991, 4000)[:, None].astype(float)
    y = (0.1 * (year[:, 0] - 1975) + rng.logistic(size=4000) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianLogisticRegression(intercept_variance=1e6).fit(year, y)
    mode = LogisticRegression(C=1e8, tol=1e-10).fit(year - 1975, y)
    assert abs(model.coef_[0, 0] - mode.coef_[0, 0]) < 0.05 * model.coef_std_[0, 0]
    at_1975 = model.latent_mean_and_variance([[1975.0]])[0][0]
    assert at_1975 == pytest.approx(float(mode.intercept_[0]), abs=0.05 * 0.04)
    assert at_1975 == pytest.approx(1975.0 * model.coef_[0, 0] + model.intercept_[0], abs=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_that_say_nothing(sparse):
    X = np.column_stack([BASE, np.full(N, 2000.0), np.zeros(N), np.full(N, 0.1 + 0.2)])
    for model, y in (
        (BayesianLogisticRegression(variance=0.7, learn_variance=False), TARGETS["bernoulli"]),
        (BayesianPoissonRegression("ard", variance=0.7, learn_variance=False), TARGETS["poisson"]),
    ):
        full, few = (clone(model).fit(sp.csr_array(A) if sparse else A, y) for A in (X, BASE))
        assert full.elbo_ == pytest.approx(few.elbo_, abs=1e-10)
        np.testing.assert_allclose(np.ravel(full.coef_)[3:], 0.0, atol=1e-15)
        prior = np.sqrt(0.7) / np.array([2000.0, 1.0, 0.1 + 0.2])  # its own size stands in for a standard deviation
        np.testing.assert_allclose(np.ravel(full.coef_std_)[3:], prior, rtol=1e-9)
        np.testing.assert_allclose(np.ravel(full.coef_)[:3], np.ravel(few.coef_), atol=1e-8)


@pytest.mark.parametrize("size", [1e-150, 1e-60, 1e60, 1e150])
def test_huge_and_tiny_columns(size):
    plain = BayesianPoissonRegression().fit(BASE, TARGETS["poisson"])
    for table in (size * BASE, sp.csr_array(size * BASE), 3.0 * size + size * BASE):
        model = BayesianPoissonRegression().fit(table, TARGETS["poisson"])
        np.testing.assert_allclose(model.coef_ * size, plain.coef_, atol=1e-5)
        np.testing.assert_allclose(model.coef_cov_ * size * size, plain.coef_cov_, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(model.predict(table), plain.predict(BASE), rtol=1e-4)


def test_a_column_out_of_reach_is_named():
    frame = pd.DataFrame(BASE, columns=["age", "mass", "year"])
    frame["mass"] *= 1e200
    with pytest.raises(ValueError, match=r"column 'mass' of X has standard deviation .*; expected 1e-152 to 1e\+152"):
        BayesianPoissonRegression().fit(frame, TARGETS["poisson"])
    with pytest.raises(ValueError, match=r"column 'x1' of X has .*Give it in another unit, or leave standardize=True"):
        BayesianLogisticRegression(standardize=False).fit(BASE * [1.0, 1e100, 1.0], TARGETS["bernoulli"])


# -- the passes and the moments -------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("shift", [0.0, 3.0, 1e7])
def test_passes_over_a_standardised_table(kind, ones, shift):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(50, 4)) * (rng.random((50, 4)) < 0.7)
    X[:, 1] += shift
    m, s, rest = X.mean(axis=0), np.array([1.0, 2.0, 0.5, 1e-3]), np.array([0.0, 1e-9, 0.0, 1e-3])
    Z = ((X - m) - rest) / s
    Z = np.column_stack([Z, np.ones(50)]) if ones else Z
    L = Z.shape[1]
    design = Standardized(X if kind == "dense" else sp.csr_array(X), m, s, ones, rest)
    assert design.shape == Z.shape
    u, a, w, Q = rng.normal(size=L), rng.normal(size=50), rng.normal(size=50), rng.normal(size=(L, L))
    close = {"rtol": 1e-9, "atol": 1e-9}
    for some, D, e, v in ((design, Z, a, w), (design.take(np.arange(10, 20)), Z[10:20], a[10:20], w[10:20])):
        np.testing.assert_allclose(some.toarray(), D, **close)
        np.testing.assert_allclose(some.times(u), D @ u, **close)
        np.testing.assert_allclose(some.times(Q), D @ Q, **close)
        np.testing.assert_allclose(some.adjoint(e), D.T @ e, **close)
        np.testing.assert_allclose(some.gram(v), D.T @ (v[:, None] * D), rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(some.row_squares(Q), ((D @ Q) ** 2).sum(axis=1), **close)
        np.testing.assert_allclose(some.row_products(Q), ((D @ Q) * D).sum(axis=1), **close)
        np.testing.assert_allclose(some.row_norms(u**2), D**2 @ u**2, **close)


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1e-290, 1e-100, 1.0, 1e150, 1e290]),
    away=st.sampled_from([0.0, 1.0, 1e3, 1e9]),
    seed=st.integers(0, 99),
    sparse=st.booleans(),
    weighted=st.booleans(),
)
def test_moments(size, away, seed, sparse, weighted):
    """Against exact fractions."""
    rng = np.random.default_rng(seed)
    X = size * (away + rng.normal(size=(12, 2)) * (rng.random((12, 2)) < 0.7))
    w = rng.integers(0, 4, 12).astype(float) if weighted else np.ones(12)
    w[0] = 1.0
    mean, sd, rest, _ = column_moments(sp.csr_array(X) if sparse else X, w if weighted else None)
    for d in range(2):
        x, total = [Fraction(v) for v in X[:, d]], Fraction(w.sum())
        exact = sum(Fraction(a) * b for a, b in zip(w, x, strict=True)) / total
        square = sum(Fraction(a) * (b - exact) ** 2 for a, b in zip(w, x, strict=True)) / total
        spread = max(abs(b - exact) for b in x) or Fraction(1)
        assert abs(Fraction(mean[d]) + Fraction(rest[d]) - exact) <= Fraction(1e-13) * spread
        assert float(sd[d] / float(spread)) == pytest.approx(float(square / spread**2) ** 0.5, rel=1e-9, abs=1e-12)


def test_sparse_rows_in_any_form():
    """Unsorted and repeated entries, empty rows, and rows long enough for the forms that visit pairs."""
    rng = np.random.default_rng(6)
    row, column = rng.integers(0, 40_000, 1_200_000), rng.integers(0, 30, 1_200_000)
    order = np.argsort(row, kind="stable")
    indptr = np.searchsorted(row[order], np.arange(40_001))
    X = sp.csr_array((rng.normal(size=row.size), column[order], indptr), shape=(40_000, 30))
    D, w, U = X.toarray(), rng.normal(size=40_000), np.triu(rng.normal(size=(31, 31)))
    Z = np.column_stack([D - 0.5, np.ones(40_000)])
    design = Standardized(X, 0.5)
    for A, B, V in ((as_design(X), D, U[:30, :30]), (design, Z, U)):
        np.testing.assert_allclose(A.gram(w), B.T @ (w[:, None] * B), atol=1e-8)
        np.testing.assert_allclose(A.row_squares(V), ((B @ V) ** 2).sum(axis=1), rtol=1e-9)
        np.testing.assert_allclose(A.row_products(V), ((B @ V) * B).sum(axis=1), atol=1e-9)
    flat = np.outer(np.ones(31), rng.normal(size=3))  # a row of ones less 30.5 of them: nearly nothing is left
    flat[:30] *= -1.0
    flat[30] *= 30.5 - 1e-7
    ones = sp.csr_array(np.ones((40_000, 30)))
    want = ((np.r_[np.full(30, 0.5), 1.0] @ flat) ** 2).sum()
    np.testing.assert_allclose(Standardized(ones, 0.5).row_squares(flat), want, rtol=1e-6)


def test_learning_with_many_rows_starts_where_it_was():
    """Few iterations for every variance tried, not those of a cold start: counted, and the answer is the cold one's."""
    rng = np.random.default_rng(7)
    X = sp.random_array((60_000, 20), density=0.2, rng=rng, format="csr")
    y = (X @ rng.normal(size=20) + rng.logistic(size=60_000) > 0).astype(int)
    model = BayesianLogisticRegression().fit(X, y)
    assert model.converged_
    assert model.n_iter_ <= 12
    cold = BayesianLogisticRegression(variance=model.variance_, learn_variance=False).fit(X, y)
    assert cold.elbo_ == pytest.approx(model.elbo_, abs=1e-4)


def test_a_constant_column_is_left_to_its_prior():
    """Under tiny noise the rounding of what centring leaves of it would outweigh the prior."""
    X = np.column_stack([np.linspace(-1.0, 1.0, 60), np.full(60, 7.3), np.sin(np.arange(60.0))])
    y = 2.0 * X[:, 0] + 1e-4 * np.cos(np.arange(60.0) ** 2)
    model = BayesianLinearRegression(variance=3.0, learn_variance=False).fit(X, y)
    assert model.coef_[1] == 0.0
    assert model.coef_std_[1] == pytest.approx(np.sqrt(3.0) * model.scale_ / model.feature_scale_[1], rel=1e-12)
    np.testing.assert_allclose(model.coef_[[0, 2]], [2.0, 0.0], atol=1e-3)
