"""Factor models: scikit-learn's checks, factor analysis and closed forms as witnesses, ``infer`` row by row, holes."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import difference
from factor_tables import factor_model, parameters_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, poisson
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import fenchel
from fenchel.datasets import load_house_votes, load_zoo
from fenchel.estimators import (
    ProbabilisticPCA,
    select_components,
)
from fenchel.factors.columns import read
from fenchel.factors.selection import hide, information, integrated, without_factors
from fenchel.factors.table_evidence import learn, rotated
from fenchel.likelihoods import BernoulliLogit, Gaussian, Mixed, Poisson
from fenchel.plots import plot_biplot, plot_components, plot_loadings
from fenchel.priors import Features

NA = np.nan


def gaussian(rows=120, columns=6, size=2, seed=0):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(columns, size))
    return rng.normal(size=(rows, size)) @ W.T + rng.uniform(0.4, 1.0, columns) * rng.normal(size=(rows, columns)) + 3.0


def mixed(rows=80, seed=0, holes=0.1):
    """A pandas table with every kind of column, and holes where the dtype has room for them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 2))
    level = np.argmax(z @ rng.normal(size=(2, 3)) + rng.gumbel(size=(rows, 3)), axis=1)
    X = pd.DataFrame(
        {
            "flag": z[:, 0] + rng.logistic(size=rows) > 0,
            "answer": pd.Series(np.where(z[:, 1] + rng.logistic(size=rows) > 0, "yes", "no")),
            "visits": pd.array(rng.poisson(np.exp(0.5 + 0.4 * z[:, 0])), dtype="Int64"),
            "grade": pd.Categorical(np.array(["low", "mid", "high"])[level], categories=["low", "mid", "high"]),
            "weight": 70 + 9 * z[:, 0] - 5 * z[:, 1] + 5 * rng.normal(size=rows),
            "length": 1.7 + 0.1 * z[:, 1] + 0.06 * rng.normal(size=rows),
            "pulse": 60 + 3 * z[:, 0] + 3 * z[:, 1] + 4 * rng.normal(size=rows),
            "warmth": 36.8 + 0.3 * z[:, 0] + 0.2 * rng.normal(size=rows),
        }
    )
    for name in X.columns[1:]:
        X.loc[rng.random(rows) < holes, name] = None
    return X


@pytest.fixture(scope="module")
def table():
    X = mixed()  # 80 rows do not tell counts from ordered levels: it would be a guess, and a warning
    return X, ProbabilisticPCA(2, strength=1.0, likelihood={"visits": "poisson"}).fit(X)


def binary(rows=60, columns=5, seed=0, holes=0.1):
    rng = np.random.default_rng(seed)
    eta = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, columns))
    X = (eta + rng.logistic(size=(rows, columns)) > 0).astype(float)
    X[rng.random(X.shape) < holes] = NA
    return X


def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(ProbabilisticPCA(), on_skip=None)


# -- against what is known -----------------------------------------------------------------------------
def test_gaussian_columns_give_factor_analysis():
    X = gaussian()
    theirs = FactorAnalysis(2, tol=1e-12, max_iter=20_000, svd_method="lapack").fit(X)
    ours = ProbabilisticPCA(2, strength=0.0, tol=1e-12, max_iter=2000).fit(X)
    assert ours.elbo_ == pytest.approx(theirs.score(X) * len(X), abs=1e-6)
    assert ours.score(X) == pytest.approx(theirs.score(X), abs=1e-7)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-3)
    covariance = ours.components_.T @ ours.components_ + np.diag(ours.noise_variance_)
    np.testing.assert_allclose(covariance, theirs.get_covariance(), atol=1e-3)
    np.testing.assert_allclose(ours.offset_, X.mean(axis=0), atol=1e-4)


def test_a_shared_noise_gives_the_closed_form_of_tipping_and_bishop():
    X = gaussian(columns=5) * np.array([1.0, 3.0, 0.2, 1.0, 1.0])
    D, L = 5, 2
    roots, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    noise = roots[: D - L].mean()
    W = vectors[:, D - L :] * np.sqrt(roots[D - L :] - noise)
    best = multivariate_normal(X.mean(axis=0), W @ W.T + noise * np.eye(D)).logpdf(X).sum()
    model = ProbabilisticPCA(L, noise="shared", strength=0.0, tol=1e-12, max_iter=2000).fit(X)
    assert model.elbo_ == pytest.approx(best, abs=1e-6)
    np.testing.assert_allclose(model.noise_variance_, noise, rtol=1e-4)
    gram = model.components_ @ model.components_.T
    np.testing.assert_allclose(gram, np.diag(np.sort(roots[D - L :] - noise)[::-1]), rtol=1e-3, atol=1e-2)


def test_holes_in_gaussian_rows_are_left_out():
    X = gaussian()
    X[np.random.default_rng(1).random(X.shape) < 0.2] = NA
    model = ProbabilisticPCA(2).fit(X)
    C = model.components_.T @ model.components_ + np.diag(model.noise_variance_)
    W, b = model.components_.T, model.offset_
    score, (mean, cov) = model.score_samples(X), model.transform(X, return_cov=True)
    frame = model.impute(X, return_distribution=True).set_index(["row", "column"])
    filled = model.impute(X)
    for r in range(30):
        s = ~np.isnan(X[r])
        assert score[r] == pytest.approx(multivariate_normal(b[s], C[np.ix_(s, s)]).logpdf(X[r, s]), abs=1e-8)
        K = np.linalg.solve(C[np.ix_(s, s)], C[np.ix_(s, ~s)]).T
        expected = b[~s] + K @ (X[r, s] - b[s])
        np.testing.assert_allclose(filled[r, ~s], expected, atol=1e-7)
        np.testing.assert_array_equal(filled[r, s], X[r, s])
        spread = C[np.ix_(~s, ~s)] - K @ C[np.ix_(s, ~s)]
        for d, m, v in zip(np.flatnonzero(~s), expected, np.diag(spread), strict=True):
            row = frame.loc[(r, f"x{d}")]
            assert (row["mean"], row["sd"]) == pytest.approx((m, np.sqrt(v)), abs=1e-7)
            assert row["level"] is None
        A = np.eye(2) + W[s].T @ (W[s] / model.noise_variance_[s, None])
        np.testing.assert_allclose(cov[r], np.linalg.inv(A), atol=1e-9)
        np.testing.assert_allclose(mean[r], cov[r] @ W[s].T @ ((X[r, s] - b[s]) / model.noise_variance_[s]), atol=1e-7)
    assert model.elbo_ == pytest.approx(score.sum(), abs=1e-6)


def test_each_row_is_infers_fit_of_that_row_alone(table):
    X, model = table
    X = X.drop(columns="grade")
    model = ProbabilisticPCA(2, strength=1.0, likelihood={"visits": "poisson"}).fit(X)
    values, W, v = read(X).values, model.components_.T, model.noise_variance_
    likelihood = Mixed([BernoulliLogit("tilted"), Poisson(), Gaussian(v[3:])], [0, 0, 1, 2, 2, 2, 2])
    mean, cov = model.transform(X, return_cov=True)
    score = model.score_samples(X)
    for r in range(6):
        sol = fenchel.infer(likelihood, Features(W, 1.0, offset=model.offset_), values[r], tol=1e-13)
        assert sol.gap < 1e-8
        assert score[r] == pytest.approx(sol.elbo, abs=1e-8)
        np.testing.assert_allclose(mean[r], np.ravel(sol.posterior.latent_mean), atol=1e-5)
        np.testing.assert_allclose(np.diag(cov[r]), np.ravel(sol.posterior.latent_variance), atol=1e-5)


def test_missing_cells_get_their_predictive_distribution(table):
    X, model = table
    frame = model.impute(X, return_distribution=True)
    assert list(frame.columns) == ["row", "column", "level", "mean", "sd"]
    holes = X.isna().to_numpy()
    assert len(frame) == sum(k * n for k, n in zip([2, 2, 1, 3, 1, 1, 1, 1], holes.sum(axis=0), strict=True))
    assert frame["row"].is_monotonic_increasing
    mean, cov = model.transform(X, return_cov=True)

    def expect(f, r, p):
        w = model.components_[:, p]
        h, sd = w @ mean[r] + model.offset_[p], np.sqrt(w @ cov[r] @ w)
        return quad(lambda e: f(e) * norm.pdf(e, h, sd), h - 9 * sd, h + 9 * sd, epsabs=1e-12)[0]

    for name, p in (("answer", 1), ("visits", 2)):
        r = int(np.flatnonzero(X[name].isna())[0])
        rows = frame[(frame["row"] == r) & (frame["column"] == name)]
        if name == "answer":
            yes = expect(lambda e: 1 / (1 + np.exp(-e)), r, p)
            assert rows["level"].tolist() == ["no", "yes"]
            np.testing.assert_allclose(rows["mean"], [1 - yes, yes], atol=1e-8)
            np.testing.assert_allclose(rows["sd"], np.sqrt(yes * (1 - yes)), atol=1e-8)
        else:
            first, second = expect(np.exp, r, p), expect(lambda e: np.exp(2 * e), r, p)
            np.testing.assert_allclose(rows["mean"], first, rtol=1e-7)
            np.testing.assert_allclose(rows["sd"], np.sqrt(first + second - first**2), rtol=1e-7)
    grades = frame[frame["column"] == "grade"].groupby("row")["mean"]
    np.testing.assert_allclose(grades.sum(), 1.0, atol=1e-10)
    r = int(grades.mean().index[0])
    draws = np.random.default_rng(0).multivariate_normal(mean[r], cov[r], 100_000)
    eta = draws @ model.components_[:, 3:5] + model.offset_[3:5]
    p = np.exp(np.column_stack([eta, np.zeros(len(eta))]))
    np.testing.assert_allclose(grades.get_group(r), (p / p.sum(axis=1, keepdims=True)).mean(axis=0), atol=5e-3)


def test_imputation_keeps_the_type_and_the_cells_that_are_there(table):
    X, model = table
    filled = model.impute(X)
    assert not filled.isna().any().any()
    assert (filled.dtypes.drop("visits") == X.dtypes.drop("visits")).all()
    kept = X.notna().to_numpy()
    assert (filled.astype(object).to_numpy()[kept] == X.astype(object).to_numpy()[kept]).all()
    frame = model.impute(X, return_distribution=True)
    for (r, name), rows in frame[frame["level"].notna()].groupby(["row", "column"]):
        assert filled.loc[r, name] == rows.loc[rows["mean"].idxmax(), "level"]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 3), holes=st.floats(0.0, 0.4))
def test_bounds_hold_and_rows_do_not_depend_on_each_other(seed, size, holes):
    X = binary(30, 4, seed, holes)
    X[0], X[1] = 0.0, 1.0  # every column has both levels
    model = ProbabilisticPCA(size, strength=0.5).fit(X)
    assert model.gap_ >= 0.0
    assert (np.diff(model.trace_) >= -2e-8 * np.abs(model.trace_[:-1])).all()  # but for the gap, tol = 1e-8
    score = model.score_samples(X)
    assert (score <= 1e-9).all()  # log of a probability
    assert model.elbo_ == pytest.approx(score.sum(), rel=1e-6)
    np.testing.assert_allclose(model.score_samples(X[5:9]), score[5:9], atol=1e-8)
    np.testing.assert_allclose(model.transform(X[5:9]), model.transform(X)[5:9], atol=1e-4)
    assert model.components_.shape == (size, 4)
    gram = model.components_ @ model.components_.T
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-6 * max(1.0, np.trace(gram)))
    assert (np.diff(np.diag(gram)) <= 1e-9).all()


@pytest.mark.parametrize("bound", ["tilted", "exact"])
def test_the_bound_is_below_the_probability_of_a_row(bound):
    """One factor: p(row) is one integral."""
    X = binary(40, 4)
    model = ProbabilisticPCA(1, bound=bound, strength=0.3).fit(X)
    w, b, score = model.components_[0], model.offset_, model.score_samples(X)
    loose = ProbabilisticPCA(1, bound="log-sum", strength=0.3).fit(X).elbo_
    for r in range(12):
        s = ~np.isnan(X[r])

        def integrand(z, r=r, s=s):
            eta = w[s] * z + b[s]
            return np.exp(np.sum(X[r, s] * eta - np.logaddexp(0, eta))) * norm.pdf(z)

        truth = np.log(quad(integrand, -12, 12, epsabs=1e-14)[0])
        assert truth - 0.2 < score[r] <= truth + 1e-8
    assert loose < model.elbo_


def test_units_of_gaussian_columns_do_not_matter():
    X = np.column_stack([gaussian(200), binary(200, 2, holes=0.0)])
    X[np.random.default_rng(0).random(X.shape) < 0.1] = NA
    unit = np.array([1000, 1 / 7, 1, 1, 1, 1, 1, 1])
    first, again = (
        ProbabilisticPCA(2, strength=1.0, tol=1e-11, max_iter=2000).fit(x) for x in (X, unit * X - unit + 1)
    )
    volume = np.sum(~np.isnan(X) @ np.log(unit))
    assert again.elbo_ == pytest.approx(first.elbo_ - volume, abs=1e-5)
    np.testing.assert_allclose(np.abs(again.components_ / unit), np.abs(first.components_), atol=1e-3)
    np.testing.assert_allclose(again.noise_variance_ / unit**2, first.noise_variance_, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(again.score_samples(unit * X - unit + 1).sum(), again.elbo_, atol=1e-5)
    assert np.isnan(first.noise_variance_[6:]).all()


def test_a_strength_is_learned():
    X = binary(200, 6, holes=0.0)
    model = ProbabilisticPCA(1).fit(X)
    assert 1e-3 < model.strength_ < 1e3
    assert ProbabilisticPCA(1, strength=1e4).fit(X).components_.max() < 0.05
    assert ProbabilisticPCA(1, strength=2.5).fit(X).strength_ == 2.5


def test_restarts_do_not_lose():
    X = binary(60, 6)
    one = ProbabilisticPCA(2, strength=0.2).fit(X)
    several = ProbabilisticPCA(2, strength=0.2, n_init=3, random_state=0).fit(X)
    assert several.trace_[-1] >= one.trace_[-1] - 1e-6


# -- tables --------------------------------------------------------------------------------------------
def test_attributes_of_a_pandas_table(table):
    X, model = table
    assert [c.kind for c in model.columns_] == [
        "bernoulli",
        "bernoulli",
        "poisson",
        "multinomial",
        *["gaussian"] * 4,
    ]
    assert model.predictor_names_ == ["flag", "answer", "visits", "grade=low", "grade=mid", *X.columns[4:]]
    assert model.components_.shape == (2, 9)
    assert model.feature_names_in_.tolist() == list(X.columns)
    loadings = model.loadings_table()
    assert loadings.index.tolist() == model.predictor_names_
    assert loadings.columns.tolist() == ["probabilisticpca0", "probabilisticpca1"]
    frame = clone(model).set_output(transform="pandas").fit_transform(X)
    assert frame.columns.tolist() == ["probabilisticpca0", "probabilisticpca1"]
    np.testing.assert_allclose(frame, model.transform(X), atol=1e-6)


def test_means_given_the_factors(table):
    X, model = table
    Z = np.random.default_rng(0).normal(size=(5, 2))
    means = model.inverse_transform(Z)
    assert means.columns.tolist() == [
        "flag",
        "answer",
        "visits",
        "grade=low",
        "grade=mid",
        "grade=high",
        *X.columns[4:],
    ]
    eta = Z @ model.components_ + model.offset_
    np.testing.assert_allclose(means["flag"], 1 / (1 + np.exp(-eta[:, 0])))
    np.testing.assert_allclose(means["visits"], np.exp(eta[:, 2]))
    np.testing.assert_allclose(means["weight"], eta[:, 5])
    p = np.exp(np.column_stack([eta[:, 3:5], np.zeros(5)]))
    np.testing.assert_allclose(means.iloc[:, 3:6], p / p.sum(axis=1, keepdims=True), atol=1e-12)
    model = ProbabilisticPCA(1).fit(binary())
    assert model.inverse_transform([[0.3]]).shape == (1, 5)
    with pytest.raises(ValueError, match=r"Z has shape \(1, 2\); expected \(R, 1\)"):
        model.inverse_transform([[0.0, 1.0]])


def test_samples_have_the_models_moments(table):
    X, model = table
    draws = model.sample(20_000, random_state=0)
    assert (draws.dtypes == X.dtypes).all()
    z = np.random.default_rng(1).standard_normal((20_000, 2))
    means = model.inverse_transform(z)
    assert abs(draws["flag"].mean() - means["flag"].mean()) < 0.015
    assert abs((draws["grade"] == "mid").mean() - means["grade=mid"].mean()) < 0.015
    assert abs(draws["visits"].mean() / means["visits"].mean() - 1) < 0.05
    expected = np.sum(model.components_[:, 5] ** 2) + model.noise_variance_[4]
    assert draws["weight"].var() == pytest.approx(expected, rel=0.05)
    assert model.sample(3, random_state=4).equals(model.sample(3, random_state=4))
    array = ProbabilisticPCA(1).fit(binary()).sample(4, random_state=0)
    assert array.shape == (4, 5)
    assert set(np.unique(array)) <= {0.0, 1.0}


def test_rows_and_columns_without_data():
    X = binary()
    model = ProbabilisticPCA(2, strength=0.5).fit(np.vstack([X, np.full(5, NA)]))
    mean, cov = model.transform(np.full((2, 5), NA), return_cov=True)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(cov, [np.eye(2)] * 2, atol=1e-12)
    np.testing.assert_allclose(model.score_samples(np.full((2, 5), NA)), 0.0, atol=1e-12)
    without = ProbabilisticPCA(2, strength=0.5).fit(X)
    assert model.elbo_ == pytest.approx(without.elbo_, abs=1e-4)
    X[:, 1] = NA
    with pytest.raises(ValueError, match="ProbabilisticPCA: column 'x1' has no data"):
        ProbabilisticPCA().fit(X)


def test_constant_columns():
    X = binary(holes=0.0)
    X[:, 2] = 0.0  # never a yes
    model = ProbabilisticPCA(1, strength=0.5).fit(X)
    assert model.converged_
    assert np.isfinite(model.components_).all()
    X[0, 2] = NA
    p = model.impute(X, return_distribution=True)["mean"].tolist()
    assert 0.9 < p[0] < 1 - 1e-6


def test_constant_gaussian_columns():
    real = gaussian(40, 4)
    real[:, 1] = 2.5
    with pytest.raises(ValueError, match=r"the gaussian column 'x1' is constant; .* Leave the column out, or share"):
        ProbabilisticPCA().fit(real)
    shared = ProbabilisticPCA(noise="shared").fit(real)
    assert np.isfinite(shared.elbo_)


def test_sparse_rows_are_the_dense_ones():
    X = binary(holes=0.0)
    dense, sparse = (ProbabilisticPCA(1, strength=1.0).fit(x) for x in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(dense.components_, sparse.components_)
    np.testing.assert_array_equal(dense.transform(X), sparse.transform(sp.csc_array(X)))


def test_it_is_a_step_of_a_pipeline_and_travels():
    votes = load_house_votes()
    pipe = make_pipeline(ProbabilisticPCA(2, strength=0.2), LogisticRegression()).fit(votes.X, votes.party)
    assert pipe.score(votes.X, votes.party) > 0.93
    again = pickle.loads(pickle.dumps(pipe))
    np.testing.assert_array_equal(again.predict(votes.X), pipe.predict(votes.X))
    assert fenchel.ProbabilisticPCA is ProbabilisticPCA


def test_labels_and_lists():
    rng = np.random.default_rng(0)
    words = np.array(["no", "yes"])[rng.integers(0, 2, (30, 3))]
    model = ProbabilisticPCA(1, strength=1.0).fit(words.tolist())
    np.testing.assert_allclose(model.transform(words), model.transform(words.tolist()))
    holes = words.astype(object)
    holes[0, 0] = None
    assert model.impute(holes)[0, 0] in ("no", "yes")


# -- refusals ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 9}, r"n_components = 9 meets 5 feature\(s\); expected .auto., or a whole number from 1 to 5"),
        ({"n_components": 1.5}, "n_components = 1.5"),
        ({"bound": "tight"}, "bound = 'tight' is not known; expected 'tilted' or 'log-sum' or 'exact'"),
        ({"noise": "none"}, "noise = 'none' is not known"),
        ({"strength": "some"}, "strength = 'some' is not known; expected 'learned'. Or give a number"),
        ({"strength": -1.0}, 'strength = -1.0; expected "learned" or a number >= 0'),
        ({"n_init": 0}, "n_init = 0; expected an integer >= 1"),
        ({"likelihood": "logit"}, "ProbabilisticPCA: likelihood = 'logit' is not known"),
    ],
)
def test_options_are_checked(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ProbabilisticPCA(**options).fit(binary())


def test_strange_rows_are_refused(table):
    X, model = table
    with pytest.raises(ValueError, match="row 0: 'huge' is an unknown level"):
        model.transform(X.assign(grade="huge"))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(X.drop(columns="flag"))
    with pytest.raises(NotFittedError):
        ProbabilisticPCA().impute(X)
    with pytest.raises(ValueError, match=r"X has 1 sample\(s\); expected at least 2"):
        ProbabilisticPCA().fit(X[:1])
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        ProbabilisticPCA().fit(np.ones((1, 3)))


def test_a_search_cut_short_warns_once():
    with pytest.warns(ConvergenceWarning, match="ProbabilisticPCA did not converge") as caught:
        model = ProbabilisticPCA(2, max_iter=1).fit(binary())
    assert len(caught) == 1
    assert not model.converged_


# -- how many factors ----------------------------------------------------------------------------------
def test_the_number_of_factors_is_found():
    rng = np.random.default_rng(0)
    W = np.array([[2.5, 2.5, 2.5, 2.5, 0, 0, 0, 0], [0, 0, 0, 0, 2.5, 2.5, 2.5, 2.5]])
    eta = rng.normal(size=(300, 2)) @ W
    X = (eta + rng.logistic(size=eta.shape) > 0).astype(float)
    found = select_components(X, [1, 2, 3], n_repeats=2, random_state=0)
    assert found.best_by_evidence == 2
    assert found.bits[1].mean() < found.bits[0].mean() - 0.01
    assert found.bits[1].mean() < found.bits.mean(axis=1).min() + 0.005  # a third factor is worth nothing
    assert found.best_by_bits in (2, 3)
    assert (found.bits < found.baseline).all()
    assert found.bits.shape == (3, 2)
    frame = found.table()
    assert frame.index.tolist() == [1, 2, 3]
    assert (np.diff(frame["elbo"]) > -20).all()
    again = select_components(X, [2], n_repeats=0)
    assert again.evidence[0] == pytest.approx(found.evidence[1], abs=0.1)
    assert plot_components(again.n_components, again.evidence, again.bits, baseline=again.baseline).shape == (1,)
    with pytest.raises(ValueError, match="no cell was hidden"):
        _ = again.best_by_bits


def test_the_evidence_is_near_the_integral_over_the_loadings():
    """Two gaussian columns, one factor, a shared noise: the loadings are two numbers, summed over a grid."""
    X = gaussian(60, 2, 1, seed=3) - 3.0
    model = factor_model(["gaussian"] * 2, [0, 0], 1, noise="shared")
    found = learn(model, X, strength=0.5, tol=1e-10)
    p, grid = found.parameters, np.linspace(-6, 6, 481)
    away = X.mean(axis=0) - p.offset
    C = np.cov(X.T, bias=True) + np.outer(away, away)
    w1, w2 = np.meshgrid(grid, grid, indexing="ij")
    a, d, o = w1**2 + p.variance[0], w2**2 + p.variance[1], w1 * w2
    det = a * d - o * o
    trace = (d * C[0, 0] - 2 * o * C[0, 1] + a * C[1, 1]) / det
    log_p = -30 * (2 * np.log(2 * np.pi) + np.log(det) + trace) - 0.25 * (w1**2 + w2**2) + np.log(0.5 / (2 * np.pi))
    truth = log_p.max() + np.log(np.sum(np.exp(log_p - log_p.max()))) + 2 * np.log(grid[1] - grid[0])
    assert integrated(model, X, found, 1e-10) == pytest.approx(truth, abs=0.1)


def test_the_evidence_is_near_the_integral_over_the_loadings_and_their_rotations():
    """Two factors and two columns: four loadings, by importance sampling around the orbit."""
    X = gaussian(150, 2, 2, seed=1) - 3.0
    model = factor_model(["gaussian"] * 2, [0, 0], 2, noise="shared")
    fixed = parameters_of(model, np.zeros((2, 2)), X.mean(axis=0), np.full(2, 0.3))
    strength, rng = 0.5, np.random.default_rng(0)
    C = np.cov(X.T, bias=True)
    inner = C - 0.3 * np.eye(2)
    W = np.linalg.cholesky(inner)

    def log_joint(W):
        S = W @ np.swapaxes(W, -1, -2) + 0.3 * np.eye(2)
        fit = np.log(np.linalg.det(S)) + np.trace(np.linalg.solve(S, np.broadcast_to(C, S.shape)), axis1=-2, axis2=-1)
        prior = -0.5 * strength * np.sum(W**2, axis=(-1, -2)) + 2 * np.log(strength / (2 * np.pi))
        return -75 * (2 * np.log(2 * np.pi) + fit) + prior

    mode = minimize(lambda x: -log_joint(x.reshape(2, 2)), W.ravel(), tol=1e-12).x.reshape(2, 2)
    best = rotated(replace(fixed, loadings=mode))
    elbo = model.evidence(X, best, tol=1e-12).elbo
    assert elbo == pytest.approx(log_joint(mode) - log_joint_prior(mode, strength), abs=1e-8)
    found = learn(model, X, strength=strength, max_iter=1)
    found = replace(found, parameters=best, solution=replace(found.solution, elbo=elbo))
    n, spread = 400_000, 0.35
    angle, flip = rng.uniform(0, 2 * np.pi, n), rng.choice([-1.0, 1.0], n)
    Q = np.stack([np.cos(angle), -flip * np.sin(angle), np.sin(angle), flip * np.cos(angle)], axis=-1).reshape(n, 2, 2)
    draws = best.loadings @ Q + spread * rng.normal(size=(n, 2, 2))
    turns = np.linspace(0, 2 * np.pi, 181)[:-1]
    centres = np.concatenate(
        [
            best.loadings
            @ np.stack([np.cos(turns), -f * np.sin(turns), np.sin(turns), f * np.cos(turns)], -1).reshape(-1, 2, 2)
            for f in (-1.0, 1.0)
        ]
    )
    few = slice(0, 20_000)
    apart = cdist(draws[few].reshape(-1, 4), centres.reshape(-1, 4), "sqeuclidean")
    log_q = logsumexp(-0.5 * apart / spread**2, axis=1) - np.log(len(centres)) - 2 * np.log(2 * np.pi * spread**2)
    weight = log_joint(draws[few]) - log_q
    truth = logsumexp(weight) - np.log(weight.size)
    assert integrated(model, X, found, 1e-12) == pytest.approx(truth, abs=0.15)


def log_joint_prior(W, strength):
    return -0.5 * strength * np.sum(W**2) + 2 * np.log(strength / (2 * np.pi))


@pytest.mark.parametrize(("kinds", "near"), [(["gaussian"] * 5, 1e-5), (["poisson", "gaussian", "gaussian"], 0.1)])
def test_the_information_is_the_second_derivative(kinds, near):
    rng = np.random.default_rng(0)
    D = len(kinds)
    eta = rng.normal(size=(150, 2)) @ rng.normal(size=(2, D)) * 0.7
    noisy = eta + 0.5 * rng.normal(size=eta.shape)
    X = np.where(np.array(kinds) == "gaussian", noisy, rng.poisson(np.exp(eta)))
    X[rng.random(X.shape) < 0.1] = NA
    model = factor_model(kinds, [0] * D, 2, noise="shared")
    p = learn(model, X, strength=0.3).parameters

    def slope(W):
        return -model.evidence(X, replace(p, loadings=W), tol=1e-14).loadings.ravel()

    expected = difference(slope, p.loadings, 1e-4)
    np.testing.assert_allclose(information(model, X, p, 1e-12), expected, atol=near * np.abs(expected).max())


def test_hidden_cells_and_columns_alone():
    X = np.array([[0.0, 3.0, 1.5], [1.0, 0.0, 2.5], [1.0, 1.0, 0.5], [1.0, NA, 1.5]] * 10)
    data = read(X, ["bernoulli", "poisson", "gaussian"])
    mask = hide(data.values, 0.2, np.random.default_rng(0))
    assert mask.sum() == round(0.2 * 110)
    assert not mask[np.isnan(X)].any()
    log_p = without_factors(data, mask)
    assert (np.isnan(log_p) == ~mask).all()
    rest = [X[~mask[:, j] & ~np.isnan(X[:, j]), j] for j in range(3)]
    share = (rest[0].sum() + 0.5) / (rest[0].size + 1)
    rate = (rest[1].sum() + 0.5) / (rest[1].size + 1)
    for j, law in enumerate(
        [
            lambda y: np.log(np.where(y == 1, share, 1 - share)),
            poisson(rate).logpmf,
            norm(rest[2].mean(), rest[2].std()).logpdf,
        ]
    ):
        np.testing.assert_allclose(log_p[mask[:, j], j], law(X[mask[:, j], j]))
    assert not hide(np.array([[1.0], [NA]]), 0.9, np.random.default_rng(0)).any()  # a column keeps something


def test_hidden_cells_of_every_kind(table):
    X, _ = table
    found = select_components(X, [1], strength=1.0, likelihood={"visits": "poisson"}, random_state=0)
    assert np.isfinite(found.bits).all()
    real = gaussian(150, 6, 1)
    whole = select_components(real, [1], random_state=0)
    assert (whole.bits < whole.baseline).all()
    scaled = select_components(100 * real, [1], random_state=0)  # the same cells in other units
    np.testing.assert_allclose(scaled.bits - whole.bits, np.log2(100), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"candidates": []}, "there are no candidates"),
        ({"hidden": 1.0}, "hidden = 1.0; expected a share"),
        ({"strength": 0.0}, 'strength = 0.0; expected "learned" or a number above 0'),
    ],
)
def test_the_selection_refuses(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        select_components(binary(), **options)


# -- pictures ------------------------------------------------------------------------------------------
def test_a_biplot_shows_rows_and_arrows(tmp_path):
    zoo = load_zoo()
    model = ProbabilisticPCA(2, likelihood={12: "poisson"}, strength=1.0).fit(zoo.X)
    looks = {"names": zoo.feature_names, "labels": zoo.type, "n_arrows": 5}
    ax = plot_biplot(model.transform(zoo.X), model.components_.T, **looks)
    assert ax.get_legend().get_texts()[0].get_text() == "mammal"  # the most frequent
    points = np.concatenate([line.get_xydata() for line in ax.lines if line.get_linestyle() == "None"])
    assert len(points) == 101
    np.testing.assert_allclose(np.sort(points[:, 0]), np.sort(model.transform(zoo.X)[:, 0]))
    longest = np.argsort(-np.linalg.norm(model.components_, axis=0))[:5]
    written = {text.get_text() for text in ax.texts} - {""}
    assert written == {zoo.feature_names[k] for k in longest}
    ax.figure.savefig(tmp_path / "picture.png")
    loadings = plot_loadings(model.components_.T, zoo.feature_names)
    assert len(loadings.get_yticklabels()) == 16
    assert loadings.get_yticklabels()[0].get_text() == zoo.feature_names[int(np.argmax(model.components_[0]))]


def test_plots_refuse_what_does_not_fit():
    z, W = np.ones((4, 2)), np.ones((3, 2))
    for call, sentence in (
        (lambda: plot_biplot(z, np.ones((3, 1))), r"scores \(4, 2\) meet loadings \(3, 1\)"),
        (lambda: plot_biplot(z, W, names=["a"]), "1 names meet 3 loadings"),
        (lambda: plot_biplot(z, W, factors=(0, 0)), r"factors = \(0, 0\); expected two of 0, ..., 1"),
        (lambda: plot_biplot(z, W, labels=["a"]), r"labels \(1,\) meet 4 rows"),
        (lambda: plot_loadings(np.ones(3)), r"loadings has shape \(3,\)"),
        (lambda: plot_loadings(W, ["a"]), "1 names meet 3 predictors"),
        (lambda: plot_components([1, 2], [0.0]), "one value of each a number of factors"),
        (lambda: plot_components([1], [0.0], [1.0], ax=[None]), "1 axes for 2 pictures"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()


def test_names_in_a_biplot_do_not_touch():
    rng = np.random.default_rng(0)
    W = 1e-3 * rng.normal(size=(18, 2)) + [1.0, 0.0]
    ax = plot_biplot(rng.normal(size=(30, 2)), W, names=[f"column {k}" for k in range(18)])
    heights = np.sort([text.get_position()[1] for text in ax.texts if text.get_text()])
    low, high = ax.get_ylim()
    assert np.diff(heights).min() > 0.04 * (high - low)
    assert low < heights.min() < heights.max() < high


def three_factors(n=150, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 9)) + noise * rng.normal(size=(n, 9))


def test_the_number_of_factors_is_chosen_by_evidence():
    X = three_factors()
    model = ProbabilisticPCA().fit(X)
    evidence = select_components(X, 5, n_repeats=0).evidence
    assert model.n_components_ == int(np.argmax(evidence)) + 1 == 3
    assert model.transform(X).shape == (150, 3)
    with pytest.raises(ValueError, match="a number of factors"):
        ProbabilisticPCA(strength=0.0).fit(X)


def test_ordered_cells_are_imputed_by_mode_median_or_mean():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 1))
    levels = np.array([1.0, 2.0, 5.0, 9.0])
    X = pd.DataFrame(levels[np.digitize(2 * z + 0.7 * rng.logistic(size=(200, 6)), [-1.5, 0.0, 1.5])])
    X.columns = list("abcdef")
    holes = X.mask(rng.uniform(size=X.shape) < 0.1)
    model = ProbabilisticPCA(1, likelihood="ordinal").fit(holes)
    found = model.impute(holes, return_distribution=True)
    p = found.pivot(index=["row", "column"], columns="level", values="mean")[levels]
    filled = {word: model.impute(holes, ordered=word) for word in ("mode", "median", "mean")}
    for (row, column), share in zip(p.index, p.to_numpy(), strict=True):
        assert filled["mode"].iloc[row][column] == levels[np.argmax(share)]
        assert filled["median"].iloc[row][column] == levels[np.searchsorted(np.cumsum(share), 0.5)]
        assert filled["mean"].iloc[row][column] == pytest.approx(share @ levels)
    words = X["a"].map({1.0: "a", 2.0: "b", 5.0: "c", 9.0: "d"}).astype(pd.CategoricalDtype(list("abcd"), ordered=True))
    mixed = holes.assign(word=words)
    with pytest.raises(ValueError, match="the levels of 'word' are not numbers"):
        ProbabilisticPCA(1, likelihood="ordinal").fit(mixed).impute(mixed, ordered="mean")


def test_whole_numbers_that_vary_less_or_more_than_counts_are_real():
    rng = np.random.default_rng(0)
    z = rng.normal(size=300)
    X = pd.DataFrame({"pulse": np.round(75 + 4 * z + 13 * rng.normal(size=300)).astype(int)})
    X["age"] = np.round(40 + 3 * z + 2 * rng.normal(size=300)).astype(int)
    X["visits"] = rng.poisson(np.exp(1.5 + 0.4 * z))
    table = ProbabilisticPCA(1).fit(X).columns_table()
    assert table["kind"].to_dict() == {"pulse": "gaussian", "age": "gaussian", "visits": "poisson"}


# -- out of memory -------------------------------------------------------------------------------------
def test_dask_collections_are_refused_and_transformed_by_their_own_map():
    dd = pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    table = dd.from_pandas(frame, npartitions=2)
    for X in (table, table.to_dask_array(lengths=True)):
        with pytest.raises(ValueError, match=r"of Dask's; expected a table in memory. Sample its rows, or X.compute()"):
            ProbabilisticPCA(1).fit(X)
    model = ProbabilisticPCA(1).fit(table.compute())
    with pytest.raises(ValueError, match="expected a table in memory"):
        model.transform(table)
    found = table.map_partitions(model.transform).compute()
    np.testing.assert_allclose(found, model.transform(frame), rtol=0, atol=1e-10)
