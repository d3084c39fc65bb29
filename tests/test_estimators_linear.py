"""Linear estimators: scikit-learn's checks, its own logistic regression as a witness, evidence, ARD, and many rows."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import difference
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fenchel
from fenchel import gates
from fenchel.estimators import BayesianLogisticRegression, BayesianPoissonRegression
from fenchel.likelihoods import BernoulliLogit, Poisson
from fenchel.priors import Features

W3 = np.array([1.0, -0.6, 0.0])


def binary(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X @ W3 + 0.4 + rng.logistic(size=n) > 0).astype(int)


def several(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.argmax(X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(n, 3)), axis=1)


def counts(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(n, 3)), rng.uniform(0.5, 4.0, n)
    return X, rng.poisson(exposure * np.exp(0.3 + 0.5 * X @ W3)), exposure


@pytest.mark.parametrize("estimator", [BayesianLogisticRegression(), BayesianPoissonRegression()])
def test_scikit_learns_own_checks(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, on_skip=None)


# -- against what is known -----------------------------------------------------------------------------
@pytest.mark.parametrize("bound", ["best", "tilted"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
def test_the_fit_is_infers_fit(intercept, bound, standardize):
    X, y = binary()
    X = X * [1.0, 3.0, 0.2] + [2.0, -1.0, 0.0]
    fixed = {"learn_variance": False, "fit_intercept": intercept, "tol": 1e-14, "bound": bound}
    model = BayesianLogisticRegression(variance=0.7, intercept_variance=9.0, standardize=standardize, **fixed).fit(X, y)
    centre = X.mean(axis=0) if intercept else np.zeros(3)
    unit = np.sqrt(((X - centre) ** 2).mean(axis=0)) if standardize else np.ones(3)
    W = np.column_stack([X - centre, np.ones(len(X))]) if intercept else X
    v = np.append(0.7 / unit**2, 9.0)[: W.shape[1]]
    sol = fenchel.infer(BernoulliLogit("exact" if bound == "best" else bound), Features(W, v), y, tol=1e-14)
    assert model.elbo_ == pytest.approx(sol.elbo, abs=1e-9)
    lam, alpha = np.asarray(sol.lam)[:, 0], np.asarray(sol.alpha)[:, 0]
    V = np.linalg.inv(np.diag(1 / v) + W.T @ (lam[:, None] * W))  # eq:Vstar, written out
    m = -v * (W.T @ alpha)
    np.testing.assert_allclose(model.coef_[0], m[:3], atol=1e-6)
    np.testing.assert_allclose(model.coef_std_[0], np.sqrt(np.diag(V))[:3], rtol=1e-6)
    np.testing.assert_allclose(model.coef_cov_, V[:3, :3], atol=1e-7)
    zero = np.append(-centre, 1.0)[: W.shape[1]]  # eta at x = 0
    np.testing.assert_allclose(model.intercept_[0], zero @ m, atol=1e-6)
    np.testing.assert_allclose(model.intercept_std_[0], np.sqrt(zero @ V @ zero), atol=1e-6)
    new = np.random.default_rng(1).normal(size=(5, 3))
    Wn = np.column_stack([new - centre, np.ones(5)])[:, : W.shape[1]]
    h, rho = model.latent_mean_and_variance(new)
    np.testing.assert_allclose(h, Wn @ m, atol=1e-6)
    np.testing.assert_allclose(h, new @ model.coef_[0] + model.intercept_[0], atol=1e-9)
    np.testing.assert_allclose(rho, np.sum((Wn @ V) * Wn, axis=1), rtol=1e-6)
    p = BernoulliLogit("log-sum").predictive_mean(h, rho)
    np.testing.assert_allclose(model.predict_proba(new)[:, 1], p, atol=1e-9)
    np.testing.assert_allclose(model.decision_function(new), np.log(p / (1 - p)), atol=1e-9)


@pytest.mark.parametrize("bound", ["best", "tilted"])
def test_with_many_rows_it_is_scikit_learns_with_standard_errors(bound):
    """The mean is the mode up to a fraction of its standard deviation, which is the inverse Hessian's."""
    X, y = binary(20_000)
    mode = LogisticRegression(C=2.0, tol=1e-10).fit(X, y)
    fixed = {"variance": 2.0, "learn_variance": False, "intercept_variance": 1e8, "bound": bound}
    model = BayesianLogisticRegression(**fixed).fit(X, y)
    assert model.converged_
    assert np.abs((model.coef_ - mode.coef_) / model.coef_std_).max() < 0.05
    assert np.abs((model.intercept_ - mode.intercept_) / model.intercept_std_).max() < 0.05
    p = mode.predict_proba(X)[:, 1]
    W = np.column_stack([X, np.ones(len(X))])
    V = np.linalg.inv(np.diag([0.5, 0.5, 0.5, 0.0]) + W.T @ ((p * (1 - p))[:, None] * W))
    np.testing.assert_allclose(model.coef_std_[0], np.sqrt(np.diag(V))[:3], rtol=0.01)
    np.testing.assert_allclose(model.coef_cov_, V[:3, :3], atol=0.01 * V[0, 0])


def test_several_classes_with_many_rows():
    X, y = several(6000)
    model = BayesianLogisticRegression(variance=1.0, learn_variance=False).fit(X, y)
    mode = LogisticRegression(C=1.0, tol=1e-10).fit(X, y)
    assert model.coef_.shape == model.coef_std_.shape == mode.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert model.coef_cov_.shape == (3, 3, 3)
    ours, theirs = (c - c.mean(axis=0) for c in (model.coef_, mode.coef_))  # a common shift says nothing
    assert np.abs(ours - theirs).max() < 0.02
    np.testing.assert_allclose(model.predict_proba(X[:50]).sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict_proba(X[:50]), mode.predict_proba(X[:50]), atol=0.02)
    assert model.latent_mean_and_variance(X[:4])[1].shape == (4, 3)


def test_more_features_than_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 40))
    y = (X[:, 0] > 0).astype(int)
    v, new = 0.5, rng.normal(size=(3, 40))
    kept = {"learn_variance": False, "fit_intercept": False, "standardize": False}
    model = BayesianLogisticRegression(variance=v, **kept).fit(X, y)
    lam = np.asarray(model.solution_.lam)[:, 0]
    V = np.linalg.inv(np.eye(40) / v + X.T @ (lam[:, None] * X))
    np.testing.assert_allclose(model.coef_cov_, V, atol=1e-9)
    np.testing.assert_allclose(model.latent_mean_and_variance(new)[1], np.sum((new @ V) * new, axis=1), rtol=1e-8)
    assert BayesianLogisticRegression().fit(X, y).predict(new).shape == (3,)


# -- the evidence --------------------------------------------------------------------------------------
@pytest.mark.parametrize("prior", ["ridge", "ard"])
@pytest.mark.parametrize("bound", ["best", "tilted", "log-sum"])
def test_evidence_gradient(prior, bound):
    for X, y in (binary(), several()):
        model = BayesianLogisticRegression(prior, bound=bound, learn_variance=False).fit(X, y)
        theta = model.theta_ + 0.3 * np.arange(1, model.theta_.size + 1)
        value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
        numeric = difference(lambda t, m=model: m.log_marginal_likelihood(t), theta, step=1e-4)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
        assert value == pytest.approx(model.log_marginal_likelihood(theta), abs=1e-8)


@pytest.mark.parametrize("prior", ["ridge", "ard"])
def test_evidence_gradient_of_counts(prior):
    X, y, exposure = counts()
    model = BayesianPoissonRegression(prior, learn_variance=False).fit(X, y, exposure)
    theta = model.theta_ + 0.3 * np.arange(1, model.theta_.size + 1)
    gradient = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    numeric = difference(model.log_marginal_likelihood, theta, step=1e-4)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond:sklearn.exceptions.ConvergenceWarning")
def test_learning_the_variance():
    X, y = binary(300)
    model = BayesianLogisticRegression().fit(X, y)
    assert model.converged_
    assert isinstance(model.variance_, float)
    assert model.elbo_ == model.log_marginal_likelihood_value_
    for variance in (0.5 * model.variance_, 2.0 * model.variance_):
        assert model.elbo_ > BayesianLogisticRegression(variance=variance, learn_variance=False).fit(X, y).elbo_
    assert model.theta_names_ == ["log variance"]
    capped = BayesianLogisticRegression(variance_bounds=(1e-6, 0.01)).fit(X, y)
    assert capped.variance_ == pytest.approx(0.01)


@pytest.mark.parametrize("kind", ["labels", "counts"])
def test_relevance_is_found(kind):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(500, 8))
    w = np.r_[1.2, -0.8, 0.6, np.zeros(5)]
    if kind == "labels":
        y = (X @ w + rng.logistic(size=500) > 0).astype(int)
        model, ridge = (BayesianLogisticRegression(prior).fit(X, y) for prior in ("ard", "ridge"))
    else:
        y = rng.poisson(np.exp(0.5 + 0.5 * X @ w))
        model, ridge = (BayesianPoissonRegression(prior).fit(X, y) for prior in ("ard", "ridge"))
    assert model.variance_.shape == (8,)
    assert model.variance_[:3].min() > 10 * model.variance_[3:].max()
    coef = np.ravel(model.coef_)
    assert np.abs(coef[3:]).max() < 0.3 * np.abs(coef[:3]).min()
    assert np.abs(coef[3:]).sum() < 0.5 * np.abs(np.ravel(ridge.coef_)[3:]).sum()
    assert model.elbo_ > ridge.elbo_
    assert model.theta_names_[0] == "log variance x0"


# -- what a user does ----------------------------------------------------------------------------------
def test_labels_of_any_kind_and_scores():
    X, y = binary()
    names = np.array(["sick", "well"])[y]
    model = BayesianLogisticRegression().fit(X, names)
    assert set(model.predict(X)) == {"sick", "well"}
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
    assert model.score(X, names) == pytest.approx(-log_loss(names, p))
    assert (np.diff(model.predict_quantiles(X[:5], [0.25, 0.5, 0.75]), axis=1) > 0).all()
    assert model.sample_y(X[:2], 7).shape == (2, 7)
    bools = BayesianLogisticRegression().fit(X, y.astype(bool))
    assert bools.predict(X).dtype == bool


def test_sparse_is_dense():
    X, y = binary(60)
    X[np.abs(X) < 0.7] = 0.0
    for design in (sp.csr_array(X), sp.csc_matrix(X), sp.coo_array(X)):
        for prior in ("ridge", "ard"):
            dense, sparse = (BayesianLogisticRegression(prior).fit(A, y) for A in (X, design))
            assert sparse.elbo_ == pytest.approx(dense.elbo_, abs=1e-7)
            np.testing.assert_allclose(sparse.predict_proba(design), dense.predict_proba(X), atol=1e-5)
    wide = sp.random_array((15, 30), density=0.2, rng=0, format="csr")
    assert BayesianLogisticRegression().fit(wide, np.arange(15) % 2).predict(wide).shape == (15,)
    X, y, exposure = counts(60)
    a, b = (BayesianPoissonRegression(fit_intercept=False).fit(A, y, exposure) for A in (X, sp.csr_array(X)))
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-6)


@pytest.mark.parametrize("learned", [True, False])
def test_weights_mean_repetition(learned):
    X, y = binary(60)
    rows = np.r_[np.arange(60), np.arange(10)]
    weight = np.r_[np.full(10, 2.0), np.ones(50)]
    twice = BayesianLogisticRegression(learn_variance=learned, tol=1e-14).fit(X[rows], y[rows])
    weighted = BayesianLogisticRegression(learn_variance=learned, tol=1e-14).fit(X, y, sample_weight=weight)
    assert weighted.elbo_ == pytest.approx(twice.elbo_, abs=1e-8)
    np.testing.assert_allclose(weighted.coef_, twice.coef_, atol=1e-5)
    kept = BayesianLogisticRegression(learn_variance=learned, tol=1e-14).fit(X[10:], y[10:])
    left_out = BayesianLogisticRegression(learn_variance=learned, tol=1e-14).fit(
        X, y, sample_weight=np.r_[np.zeros(10), np.ones(50)]
    )
    np.testing.assert_allclose(left_out.coef_, kept.coef_, atol=1e-5)
    X, y, exposure = counts(60)
    twice = BayesianPoissonRegression(learn_variance=learned).fit(X[rows], y[rows], exposure[rows])
    weighted = BayesianPoissonRegression(learn_variance=learned).fit(X, y, exposure, sample_weight=weight)
    np.testing.assert_allclose(weighted.coef_, twice.coef_, atol=1e-5)


def test_awkward_data():
    X, y = binary(30)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        BayesianLogisticRegression().fit(np.where(X > 0.5, np.nan, X), y)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        BayesianLogisticRegression().fit(np.where(X > 0.5, np.inf, X), y)
    with pytest.raises(ValueError, match=r"BayesianLogisticRegression: y has one class only, 1; expected two or more"):
        BayesianLogisticRegression().fit(X, np.ones(30, dtype=int))
    with pytest.raises(NotFittedError):
        BayesianLogisticRegression().predict(X)
    assert not hasattr(BayesianLogisticRegression(), "coef_cov_")
    constant = np.column_stack([X, np.full(30, 3.0)])
    for prior in ("ridge", "ard"):
        model = BayesianLogisticRegression(prior).fit(constant, y)
        assert model.converged_
        assert np.isfinite(model.predict_proba(constant)).all()
        assert BayesianLogisticRegression(prior).fit(X[:10], y[:10]).gap_ < 1e-8
        assert BayesianLogisticRegression(prior).fit(np.repeat(X, 5, axis=0), np.repeat(y, 5)).converged_
        twins = BayesianLogisticRegression(prior).fit(X[:, [0, 0, 1]], y)  # the same feature twice
        assert np.isfinite(twins.coef_).all()
    with pytest.raises(ValueError, match="3 features, but BayesianLogisticRegression is expecting 4"):
        model.predict(X)


def test_separable_classes_are_learned_within_bounds():
    X, y = load_iris(return_X_y=True)
    for labels in ((y == 0).astype(int), y):
        model = BayesianLogisticRegression().fit(X, labels)
        assert np.isfinite(model.elbo_)
        assert (model.predict(X) == labels).mean() > 0.95


def test_parameters_are_checked_with_sentences():
    X, y = binary(30)
    for parameters, sentence in (
        ({"prior": "lasso"}, "prior = 'lasso' is not known; expected 'ridge' or 'ard'"),
        ({"variance": -1.0}, "variance = -1 is not a positive number"),
        ({"variance": [1.0, 2.0, 3.0]}, 'prior = "ridge" has one variance; expected a number'),
        ({"prior": "ard", "variance": [1.0, 2.0]}, r"variance has shape \(2,\); expected a number, or \(3,\)"),
        ({"intercept_variance": np.inf}, "intercept_variance = inf is not a positive number"),
        ({"variance_bounds": (1.0, 0.5)}, "variance_bounds = .*expected a pair 0 < lower <= upper"),
        ({"bound": "jaakkola"}, "bound = 'jaakkola' is not known"),
    ):
        with pytest.raises(ValueError, match=sentence):
            BayesianLogisticRegression(**parameters).fit(X, y)
    ard = BayesianLogisticRegression("ard", variance=[1.0, 2.0, 3.0], learn_variance=False).fit(X, y)
    np.testing.assert_allclose(ard.variance_, [1.0, 2.0, 3.0])


def test_one_warning_with_a_sentence():
    X, y = binary()
    with pytest.warns(ConvergenceWarning, match="BayesianLogisticRegression did not converge: .*gap_ bounds") as seen:
        BayesianLogisticRegression(learn_variance=False, tol=0.0).fit(X, y)
    assert len([w for w in seen if issubclass(w.category, ConvergenceWarning)]) == 1


def test_frames_pipelines_searches_and_pickles():
    X, y = binary(120)
    frame = pd.DataFrame(X, columns=["left", "right", "up"])
    model = BayesianLogisticRegression("ard").fit(frame, y)
    assert list(model.feature_names_in_) == ["left", "right", "up"]
    assert model.theta_names_[1] == "log variance right"
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_proba(frame), model.predict_proba(frame))
    assert again.log_marginal_likelihood(model.theta_) == pytest.approx(model.elbo_, abs=1e-6)
    assert clone(model).get_params() == model.get_params()
    pipe = make_pipeline(StandardScaler(), BayesianLogisticRegression(learn_variance=False))
    search = GridSearchCV(pipe, {"bayesianlogisticregression__variance": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_score_ < 0
    assert cross_val_score(pipe, X, y, cv=3, scoring="accuracy").mean() > 0.6
    X, y, _ = counts()
    pipe = make_pipeline(StandardScaler(), BayesianPoissonRegression())
    assert np.isfinite(cross_val_score(pipe, X, y, cv=3)).all()
    assert pickle.loads(pickle.dumps(pipe.fit(X, y))).predict(X).shape == (80,)


def test_the_evidence_chooses_as_cross_validation_would():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    train, test = np.arange(569) % 3 > 0, np.arange(569) % 3 == 0
    learned = BayesianLogisticRegression().fit(X[train], y[train])
    scores = [
        BayesianLogisticRegression(variance=v, learn_variance=False).fit(X[train], y[train]).score(X[test], y[test])
        for v in (1e-3, 1e3)
    ]
    assert learned.score(X[test], y[test]) > max(scores)


# -- counts --------------------------------------------------------------------------------------------
def test_counts_with_exposure():
    X, y, exposure = counts(2000)
    model = BayesianPoissonRegression().fit(X, y, exposure)
    assert model.converged_
    assert model.coef_.shape == model.coef_std_.shape == (3,)
    assert isinstance(model.intercept_, float)
    assert np.abs((model.coef_ - 0.5 * W3) / model.coef_std_).max() < 3.5
    assert abs((model.intercept_ - 0.3) / model.intercept_std_) < 3.5
    W = np.column_stack([X - X.mean(axis=0), np.ones(2000)])
    v, mean = np.append(model.variance_ / X.var(axis=0), 100.0), np.r_[0, 0, 0, np.log(y.sum() / exposure.sum())]
    sol = fenchel.infer(Poisson(exposure), Features(W, v, mean), y, tol=1e-12)
    assert np.abs((model.coef_ - sol.posterior.latent_mean[:3]) / model.coef_std_).max() < 1e-3
    np.testing.assert_allclose(model.predict(X[:9], exposure[:9]), exposure[:9] * model.predict(X[:9]))
    h, rho = model.latent_mean_and_variance(X[:9])
    np.testing.assert_allclose(model.predict(X[:9]), np.exp(h + rho / 2))
    assert model.predict_quantiles(X[:4], [0.1, 0.9]).shape == (4, 2)
    assert model.score(X, y, exposure=exposure) > model.score(X, y, exposure=1.0)
    with pytest.warns(UserWarning, match="y is not whole numbers everywhere"):
        BayesianPoissonRegression().fit(X[:50], y[:50] + 0.5)
    with pytest.raises(ValueError, match="is negative"):
        BayesianPoissonRegression().fit(X[:50], y[:50] - 50)


# -- many rows -----------------------------------------------------------------------------------------
@pytest.fixture
def tall(monkeypatch):
    """Let a few thousand rows count as very many."""
    monkeypatch.setattr(gates, "SAMPLED_START", 4000)


@pytest.mark.parametrize("prior", ["ridge", "ard"])
def test_a_sample_of_many_rows_only_starts_the_search(prior, monkeypatch):
    labels, several_labels, numbers = binary(8000), several(16_000), counts(8000)

    def fits():
        return [
            BayesianLogisticRegression(prior).fit(*labels),
            BayesianPoissonRegression(prior).fit(*numbers),
            BayesianLogisticRegression(prior, learn_variance=False).fit(*several_labels),
            BayesianLogisticRegression(prior).fit(sp.csr_array(labels[0]), labels[1]),
            BayesianLogisticRegression(prior).fit(*labels, sample_weight=np.arange(8000) % 3),
        ]

    plain = fits()
    monkeypatch.setattr(gates, "SAMPLED_START", 4000)
    for one, other in zip(plain, fits(), strict=True):
        assert other.converged_
        assert other.elbo_ == pytest.approx(one.elbo_, abs=1e-4)
        assert np.abs((other.coef_ - one.coef_) / one.coef_std_).max() < 0.01
        np.testing.assert_allclose(other.coef_std_, one.coef_std_, rtol=1e-3)


@pytest.mark.parametrize("bound", ["tilted", "best"])
def test_a_sample_saves_iterations(tall, bound):
    X, y = binary(8000)
    assert BayesianLogisticRegression(learn_variance=False, bound=bound).fit(X, y).n_iter_ <= 3
    ordered = np.argsort(y)
    assert BayesianLogisticRegression(learn_variance=False, bound=bound).fit(X[ordered], y[ordered]).n_iter_ <= 3


@pytest.mark.parametrize("rare", [0, 3])
def test_a_sample_that_says_little(tall, rare):
    """Hardly any event in the sample, or classes that a plane separates under a wide prior."""
    X, _ = binary(8000)
    y = np.zeros(8000, dtype=int)
    y[:rare] = 1
    y = y if rare else (X[:, 0] > 0).astype(int)
    model = BayesianLogisticRegression(variance=1.0 if rare else 100.0, learn_variance=False).fit(X, y)
    assert model.converged_
    assert model.gap_ <= 1e-10 * max(1.0, abs(model.elbo_))


def test_no_copy_of_many_rows():
    import tracemalloc

    X, y = np.random.default_rng(0).normal(size=(60_000, 80)), np.arange(60_000) % 2
    BayesianLogisticRegression(learn_variance=False).fit(X, y)  # imports
    tracemalloc.start()
    BayesianLogisticRegression(learn_variance=False).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.0 * X.nbytes


def test_weights_that_sum_to_one_are_shares():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match="sums to 1"):
        shares = BayesianLogisticRegression().fit(X, y, sample_weight=np.full(150, 1 / 150))
    plain = BayesianLogisticRegression().fit(X, y)
    np.testing.assert_allclose(shares.predict_proba(X), plain.predict_proba(X), atol=1e-6)


@pytest.mark.filterwarnings("ignore:sample_weight sums to 1")
def test_boosting_works():
    X, y = load_iris(return_X_y=True)
    model = AdaBoostClassifier(BayesianLogisticRegression(), n_estimators=3).fit(X, y)
    assert model.score(X, y) > 0.9


def test_a_summary_has_every_coefficient_of_every_class():
    data = load_wine(as_frame=True)
    X, y = data.data.iloc[:, :3], data.target_names[data.target]
    page = BayesianLogisticRegression().fit(X, y).summary()
    assert "converged" in page
    assert page.count("malic_acid") == page.count("Intercept") == 3
    assert "Intercept" not in BayesianLogisticRegression(fit_intercept=False).fit(X, y).summary()
    two = BayesianLogisticRegression().fit(X, y == y[0])
    assert re.search(rf"malic_acid +{two.coef_[0, 1]:.4g} +{two.coef_std_[0, 1]:.4g}\n", two.summary())


def test_many_classes_of_few_rows_are_not_exact():
    """Memory and time of exact expectations grow with the fourth power of the classes: 40 took more than 15 GiB."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    model = BayesianLogisticRegression().fit(X, np.arange(80) % 40)
    assert "tilted" in repr(model.likelihood_)
