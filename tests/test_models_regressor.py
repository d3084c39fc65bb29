"""A formula as an estimator: scikit-learn's own checks, clones, pipelines, searches; the fit is that of the formula."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fenchel
from fenchel import FormulaRegressor

RNG = np.random.default_rng(0)
N = 120
X = pd.DataFrame({"x": RNG.normal(size=N), "g": RNG.integers(0, 8, N), "E": RNG.uniform(0.5, 3.0, N)})
ETA = 0.3 + 0.5 * X["x"] + 0.6 * RNG.normal(size=8)[X["g"]]
COUNT = RNG.poisson(X["E"] * np.exp(ETA))
REAL = ETA.to_numpy() + 0.5 * RNG.normal(size=N)


def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(FormulaRegressor("y ~ ."), on_skip=None, on_fail=None)
    failed = {r["check_name"] for r in results if r["status"] == "failed"}
    # the data are interpolated, and rounding decides at 1e-9
    assert failed <= {"check_sample_weight_equivalence_on_dense_data"}
    assert sum(r["status"] == "passed" for r in results) >= 57


def test_the_fit_is_that_of_the_formula():
    model = FormulaRegressor("y ~ x + (1|g)", "poisson", exposure="E").fit(X, COUNT)
    fit = fenchel.fit("y ~ x + (1|g)", X.assign(y=COUNT), "poisson", exposure="E")
    in_X = FormulaRegressor("y ~ x + (1|g)", "poisson", exposure="E").fit(X.assign(y=COUNT))
    assert model.fit_.elbo == in_X.fit_.elbo == fit.elbo
    assert model.converged_
    assert model.model_ is model.fit_.model
    assert list(model.feature_names_in_) == list(in_X.feature_names_in_) == ["x", "g", "E"]
    assert model.n_features_in_ == 3
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, fit.predict(X))
    draws = fit.sample(X[:5], 40_000, 0, kind="outcome")
    np.testing.assert_allclose(sd[:5], draws.std(axis=0), rtol=0.03)
    np.testing.assert_array_equal(model.predict(X[["E", "g", "x"]].assign(other="text")), mean)
    shuffled = pd.Series(COUNT, index=np.arange(N)[::-1])  # by place, whatever the index
    assert FormulaRegressor("y ~ x + (1|g)", "poisson", exposure="E").fit(X, shuffled).fit_.elbo == fit.elbo


def test_scores_by_hand():
    """R^2 of the means where y is eta and noise; elsewhere the mean log predictive density, here by quadrature."""
    noise = FormulaRegressor("y ~ x + (1|g)").fit(X, REAL)
    assert noise.score(X, REAL) == pytest.approx(r2_score(REAL, noise.predict(X)))
    hole = np.where(np.arange(N) < 20, np.nan, REAL)
    assert noise.score(X, hole) == pytest.approx(r2_score(REAL[20:], noise.predict(X)[20:]))
    model = FormulaRegressor("y ~ x + (1|g)", "poisson", exposure="E").fit(X, COUNT)
    eta = model.fit_.predict(X, "link", interval=0.9)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    rate = X["E"].to_numpy()[:, None] * np.exp(eta["mean"].to_numpy()[:, None] + eta["sd"].to_numpy()[:, None] * z)
    density = np.log(scipy.stats.poisson.pmf(COUNT[:, None], rate) @ w / w.sum())
    assert model.score(X, COUNT) == pytest.approx(density.mean(), abs=1e-8)
    weights = RNG.uniform(size=N)
    assert model.score(X, COUNT, weights) == pytest.approx(np.average(density, weights=weights), abs=1e-8)
    integrated = FormulaRegressor("y ~ x + (1|g)", "poisson", exposure="E", integrate="auto").fit(X, COUNT)
    assert integrated.score(X, COUNT) == pytest.approx(density.mean(), abs=0.02)


@pytest.mark.parametrize(
    ("formula", "family"),
    [("k | trials(n) ~ x", "binomial"), ("cbind(k, n - k) ~ x", "binomial"), ("word ~ x", "bernoulli")],
)
def test_scores_of_successes_and_words(formula, family):
    n = RNG.integers(1, 9, N)
    data = X.assign(n=n, k=RNG.binomial(n, 0.4), word=np.where(ETA > 0, "yes", "no"))
    model = FormulaRegressor(formula, family).fit(data)
    p = model.fit_.predict(data, trials=1) if family == "binomial" else model.fit_.predict(data, "probability")["yes"]
    if family == "bernoulli":
        expected = np.log(np.where(ETA > 0, p, 1 - p)).mean()
        assert model.score(data) == pytest.approx(expected, abs=1e-9)
    else:  # the mean of a pmf over a narrow posterior
        expected = scipy.stats.binom.logpmf(data["k"], n, p).mean()
        assert model.score(data) == pytest.approx(expected, abs=0.02)


def test_searches_pipelines_and_clones():
    model = FormulaRegressor("y ~ x + (1|g)", "poisson", exposure="E")
    scores = cross_val_score(model, X, COUNT, groups=X["g"], cv=GroupKFold(4))  # groups that no fold has seen
    assert np.isfinite(scores).all()
    found = GridSearchCV(model, {"formula": ["y ~ 1", "y ~ x + (1|g)"], "fixed_sd": [1.0, 10.0]}, cv=KFold(3))
    assert found.fit(X, COUNT).best_params_["formula"] == "y ~ x + (1|g)"
    pipe = make_pipeline(StandardScaler(), FormulaRegressor("y ~ x0 + x1")).fit(X[["x", "E"]], REAL)
    straight = fenchel.fit("y ~ x + E", X.assign(y=REAL))
    np.testing.assert_allclose(pipe.predict(X[["x", "E"]]), straight.predict(), rtol=1e-6)
    framed = make_pipeline(StandardScaler().set_output(transform="pandas"), FormulaRegressor("y ~ x + E"))
    np.testing.assert_allclose(framed.fit(X[["x", "E"]], REAL).predict(X[["x", "E"]]), straight.predict(), rtol=1e-6)
    fitted = model.fit(X, COUNT)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    fresh = clone(fitted)
    assert fresh.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    np.testing.assert_array_equal(fresh.fit(X, COUNT).fit_.theta, fitted.fit_.theta)


def test_weights_say_how_often_a_row_was_seen():
    times = RNG.integers(0, 3, N)
    model = FormulaRegressor("y ~ x + (1|g)", levels={"g": range(8)})
    weighted = model.fit(X, REAL, sample_weight=times).predict(X)
    rows = np.repeat(np.arange(N), times)
    np.testing.assert_allclose(model.fit(X.iloc[rows], REAL[rows]).predict(X), weighted, atol=1e-5)


def test_variables_are_given():
    ring = np.roll(np.eye(8), 1, axis=0) + np.roll(np.eye(8), -1, axis=0)
    with pytest.raises(ValueError, match="there is no column 'ring'"):
        FormulaRegressor("y ~ icar(g, ring)", "poisson").fit(X, COUNT)
    by_graphs = FormulaRegressor("y ~ icar(g)", "poisson", graphs={"g": ring}).fit(X, COUNT)
    by_env = FormulaRegressor("y ~ icar(g, ring)", "poisson", env={"ring": ring}).fit(X, COUNT)
    assert by_graphs.fit_.elbo == by_env.fit_.elbo
    for formula in ("y ~ twice(x)", "y ~ x.rank()"):  # a file may have brought it, and fit runs nothing of its own
        with pytest.raises(ValueError, match=r"expected arithmetic, comparisons, np\.log and its like"):
            FormulaRegressor(formula, env={"twice": lambda v: 2 * v}).fit(X, REAL)


def test_a_file_keeps_it(tmp_path):
    model = FormulaRegressor("y ~ x + (1|g)").fit(X, REAL)
    model.save(tmp_path / "a.model")
    again = fenchel.load(tmp_path / "a.model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: FormulaRegressor("y ~ x").fit(X), "requires y to be passed, but the target y is None"),
        (lambda: FormulaRegressor("np.log(y) ~ x").fit(X, COUNT), "the formula's response is 'np.log"),
        (lambda: FormulaRegressor("y ~ x", "cox").fit(X, COUNT), "family = 'cox'; expected one number predicted"),
        (lambda: FormulaRegressor("y ~ x").fit(X, REAL[:5]), "inconsistent numbers of samples"),
        (lambda: FormulaRegressor("y ~ z").fit(X, REAL), "there is no column 'z'"),
        (lambda: FormulaRegressor("y ~ x").fit(X, REAL).predict(X[["g"]]), "there is no column 'x'"),
        (lambda: FormulaRegressor("y ~ x").fit(X, REAL).score(X, np.nan * REAL), "no row has its y"),
    ],
)
def test_sentences(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_hurdle_of_two_parts_is_refused():
    data = pd.DataFrame({"x": [0.1, 0.2, 0.3, 0.4], "y": [0, 2, 0, 3]})
    with pytest.raises(ValueError, match="zero= of family = 'hurdle-poisson'"):
        FormulaRegressor("y ~ x", "hurdle-poisson", zero="~ x").fit(data)


def test_a_score_without_the_exposures_of_fit_is_said():
    exposure, says = X["E"].to_numpy(), "fit was given exposure, score was not: each y is scored at exposure 1"
    model = FormulaRegressor("y ~ x", "poisson").fit(X, COUNT, exposure=exposure)
    with pytest.warns(UserWarning, match=f"^FormulaRegressor: {says}"):
        model.score(X, COUNT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = model.score(X, COUNT, exposure=exposure)
        assert FormulaRegressor("y ~ x", "poisson", exposure="E").fit(X, COUNT).score(X, COUNT) == pytest.approx(right)
        trials = FormulaRegressor("y ~ x", "binomial", trials=40).fit(X, COUNT % 40)
        trials.score(X, COUNT % 40)
        time = FormulaRegressor("t ~ x", "weibull", event="e").fit(X.assign(e=1.0), 1.0 + COUNT)
        time.score(X.assign(e=1.0), 1.0 + COUNT)


def test_a_pipeline_that_loses_the_names_of_columns_is_told():
    with pytest.raises(ValueError, match=r"X is an array, .* has none of them; expected a data frame.*set_output"):
        make_pipeline(StandardScaler(), FormulaRegressor("y ~ x")).fit(X, REAL)
    kept = make_pipeline(StandardScaler(), FormulaRegressor("y ~ x")).set_output(transform="pandas").fit(X, REAL)
    numbered = make_pipeline(StandardScaler(), FormulaRegressor("y ~ x0")).fit(X, REAL)
    np.testing.assert_allclose(kept.predict(X), numbered.predict(X))
