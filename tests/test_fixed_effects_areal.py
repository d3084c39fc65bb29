"""Fixed effects of structured regressions: any units and origins, factors, columns that say nothing, and the doors."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse as sp
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import fenchel
from fenchel import gmrf
from fenchel.estimators import GMRFRegressor
from fenchel.gmrf.columns import Columns
from fenchel.hyperparameters import learn
from fenchel.likelihoods import Poisson
from fenchel.plots import plot_map

YEARS = np.tile(np.arange(1960, 1991), 8)
GROUP = np.repeat(np.arange(8), 31)


def ring(n=12):
    i = np.arange(n)
    return sp.csr_array((np.ones(2 * n), (np.r_[i, (i + 1) % n], np.r_[(i + 1) % n, i])), shape=(n, n))


def panel(likelihood="poisson", seed=0):
    """Groups over 31 years with two covariates, centred and of order 1, and a target."""
    rng = np.random.default_rng(seed)
    u = np.column_stack([(YEARS - 1975) / 9.0, rng.normal(size=YEARS.size)])
    eta = 1.0 + u @ [0.43, -0.2] + 0.3 * rng.normal(size=8)[GROUP]
    if likelihood == "poisson":
        return u, rng.poisson(np.exp(eta)).astype(float), {}
    if likelihood == "bernoulli":
        return u, (rng.random(eta.size) < 1 / (1 + np.exp(-eta))).astype(float), {}
    if likelihood == "binomial":
        return u, rng.binomial(7, 1 / (1 + np.exp(-eta))).astype(float), {"trials": np.full(eta.size, 7.0)}
    if likelihood == "ordinal":
        return u, np.digitize(eta + rng.logistic(size=eta.size), [0.0, 2.0]).astype(float), {}
    return u, 50 + 7 * eta + rng.normal(size=eta.size), {}


def frame(u):
    return pd.DataFrame({"g": GROUP, "a": u[:, 0], "b": u[:, 1]})


# -- the same fit in any units, from any origin ----------------------------------------------------------
numbers = st.floats(-1e6, 1e6)
powers = st.floats(-6.0, 6.0)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.tuples(numbers, numbers),
    st.tuples(powers, powers),
    st.sampled_from(["poisson", "bernoulli", "binomial", "gaussian", "ordinal"]),
    st.sampled_from([1.0, 100.0, 1e4, 1e6, 1e8]),
)
def test_the_fit_is_the_same_after_any_affine_change_of_the_columns(shift, power, likelihood, variance):
    u, y, given_ = panel(likelihood)
    shift, scale = np.array(shift), 10.0 ** np.array(power)
    x = shift + scale * u
    u = (x - shift) / scale  # what the doubles of x still hold
    options = {"learn": False, "fixed_variance": variance, "tol": 1e-14}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = GMRFRegressor({"g": "iid"}, likelihood, **options).fit(frame(u), y, **given_)
        moved = GMRFRegressor({"g": "iid"}, likelihood, **options).fit(frame(x), y, **given_)
    unit = 7.0 if likelihood == "gaussian" else 1.0
    assert moved.elbo_ == pytest.approx(plain.elbo_, abs=1e-6)
    np.testing.assert_allclose(moved.coef_ * scale, plain.coef_, atol=1e-6 * unit)
    np.testing.assert_allclose(moved.coef_std_ * scale, plain.coef_std_, rtol=1e-6)
    np.testing.assert_allclose(moved.coef_cov_ * np.outer(scale, scale), plain.coef_cov_, atol=1e-7 * unit**2)
    np.testing.assert_allclose(moved.predict(frame(x), **given_), plain.predict(frame(u), **given_), rtol=1e-5)
    away = shift / scale  # the intercept at x = 0 lies this many units away
    reach = 1.0 + np.abs(away).max()
    if likelihood == "ordinal":
        cut, base = (m.hyperparameters_.loc["cutpoints", "value"].to_numpy() for m in (moved, plain))
        np.testing.assert_allclose(cut, base + plain.coef_ @ away, atol=1e-6 * reach)
    else:
        there = np.r_[1.0, -away]
        _, covariance = plain._columns.fixed_effects(plain.solution_, True)
        assert moved.intercept_ == pytest.approx(plain.intercept_ - plain.coef_ @ away, abs=1e-6 * unit * reach)
        assert moved.intercept_std_ == pytest.approx(np.sqrt(there @ covariance @ there), rel=1e-5)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.tuples(numbers, numbers), st.tuples(powers, powers), st.sampled_from([1.0, 100.0, 1e6, 1e8]))
def test_a_stack_gives_the_textbooks_regression_whatever_the_units(shift, power, variance):
    """Gaussian noise: against the conditional normal written out in the standardised columns."""
    u, y, _ = panel("gaussian")
    y = y - y.mean()
    shift, scale = np.array(shift), 10.0 ** np.array(power)
    x = shift + scale * u
    u = (x - shift) / scale
    field = gmrf.stack([(gmrf.iid(8, 0.5), GROUP)], fixed=x, fixed_variance=variance)
    sol = fenchel.infer(fenchel.Gaussian(4.0), field.at(), y, tol=1e-12)
    mean, covariance = field.fixed_effects(sol)
    z = (u - u.mean(axis=0)) / u.std(axis=0)
    W = np.column_stack([GROUP[:, None] == np.arange(8), np.ones(len(y)), z])
    P = np.diag(np.r_[np.full(8, 0.5), np.full(3, 1.0 / variance)]) + W.T @ W / 4.0
    V = np.linalg.inv(P)
    m = V @ W.T @ y / 4.0
    slope = m[9:] / u.std(axis=0)
    np.testing.assert_allclose(mean[1:] * scale, slope, atol=1e-6)
    np.testing.assert_allclose(
        np.sqrt(np.diag(covariance))[1:] * scale, np.sqrt(np.diag(V))[9:] / u.std(axis=0), rtol=1e-6
    )
    level = m[8] - slope @ (u.mean(axis=0) + shift / scale)
    assert mean[0] == pytest.approx(level, abs=1e-6 * (1.0 + np.abs(shift / scale).max()))
    h, rho = sol.posterior.predict(design=field.rows([GROUP[:5]], x[:5]))
    np.testing.assert_allclose(h, (W @ m)[:5], atol=1e-5)
    np.testing.assert_allclose(rho, np.diag(W @ V @ W.T)[:5], rtol=1e-5)


@pytest.mark.parametrize("variance", [100.0, 1e4, 1e6, 1e8])
def test_years_and_metres_have_the_slopes_of_maximum_likelihood(variance):
    """31 years of 8 groups: a wide prior leaves what scikit-learn finds without a penalty."""
    u, y, _ = panel()
    x = np.column_stack([YEARS, 335_114 + 30_603 * u[:, 1]])
    model = GMRFRegressor(fixed_variance=variance).fit(pd.DataFrame(x, columns=["year", "metres"]), y)
    assert model.converged_
    free = PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(u, y)
    np.testing.assert_allclose(model.coef_ * [9.0, 30_603], free.coef_, atol=2e-3)
    assert model.intercept_ == pytest.approx(free.intercept_ - free.coef_ @ [1975 / 9.0, 335_114 / 30_603], abs=0.2)
    seen = (y > np.median(y)).astype(float)
    model = GMRFRegressor(likelihood="bernoulli", fixed_variance=variance).fit(pd.DataFrame(x), seen)
    assert model.converged_
    free = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(u, seen)
    np.testing.assert_allclose(model.coef_ * [9.0, 30_603], free.coef_[0], atol=0.03)  # mean and mode differ


def test_the_prior_is_of_a_standard_deviation_and_of_the_level_of_y():
    """Two latents: against the evidence bound maximised by brute force."""
    rng = np.random.default_rng(1)
    x, y = 1000.0 + 3.0 * rng.normal(size=20), rng.poisson(200.0, 20).astype(float)
    model = GMRFRegressor(fixed_variance=0.5, tol=1e-13).fit(x[:, None], y)
    W = np.column_stack([np.ones(20), (x - x.mean()) / x.std()])
    level = np.log(y.mean())

    def negative(t):
        m, L = t[:2], np.array([[np.exp(t[2]), 0.0], [t[3], np.exp(t[4])]])
        V = L @ L.T
        h, rho = level + W @ m, np.einsum("ni,ij,nj->n", W, V, W)
        kl = 0.5 * (np.trace(V) / 0.5 + m @ m / 0.5 - 2 + 2 * np.log(0.5) - np.linalg.slogdet(V)[1])
        return kl - np.sum(y * h - np.exp(h + rho / 2)) + np.sum(scipy.special.gammaln(y + 1))

    found = scipy.optimize.minimize(negative, [0, 0, -3, 0, -3], method="BFGS", options={"gtol": 1e-7})
    assert model.elbo_ == pytest.approx(-found.fun, abs=1e-7)
    assert model.coef_[0] == pytest.approx(found.x[1] / x.std(), abs=1e-6)
    assert model.coef_std_[0] == pytest.approx(np.hypot(found.x[3], np.exp(found.x[4])) / x.std(), rel=1e-4)
    assert model.intercept_ == pytest.approx(level + found.x[0] - found.x[1] * x.mean() / x.std(), abs=1e-4)


def test_unobserved_rows_do_not_move_the_centre():
    u, y, _ = panel()
    far = frame(u)
    far.loc[::5, "a"] = 1e9
    hole = np.where(np.arange(len(y)) % 5 == 0, np.nan, y)
    spec, levels = {"g": "iid"}, {"g": range(8)}
    full = GMRFRegressor(spec, levels=levels, learn=False).fit(far, hole)
    less = GMRFRegressor(spec, levels=levels, learn=False).fit(far[~np.isnan(hole)], y[~np.isnan(hole)])
    none = GMRFRegressor(spec, levels=levels, learn=False).fit(
        far, np.where(np.isnan(hole), 0, y), exposure=(~np.isnan(hole)).astype(float)
    )
    for other in (less, none):
        np.testing.assert_allclose(full.coef_, other.coef_, atol=1e-6)
        assert full.elbo_ == pytest.approx(other.elbo_, abs=1e-8)


def test_without_an_intercept_columns_are_scaled_and_not_moved():
    u, y, _ = panel("gaussian")
    x = np.column_stack([np.full(len(y), 3.0), 100.0 * u[:, 1]])
    model = GMRFRegressor(likelihood="gaussian", intercept=False, learn=False, noise_variance=1.0).fit(x, y)
    exact = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(model.coef_, exact, rtol=1e-3)
    assert model.intercept_ == 0.0


# -- columns that say nothing ----------------------------------------------------------------------------
def test_columns_that_say_nothing_are_named_and_leave_the_rest_alone():
    u, y, _ = panel()
    plain = GMRFRegressor({"g": "iid"}, learn=False).fit(frame(u), y)
    for name, value, sentence in (
        ("c", 0.1, r"GMRFRegressor: the column 'c' is 0\.1 in every observed row"),
        ("zero", 0.0, "the column 'zero' is 0 in every observed row"),
        ("twice", 5.0 - 2.0 * u[:, 0], "the column 'twice' is a linear combination of 'a' and the level"),
        ("both", u[:, 0] + u[:, 1], "the column 'both' is a linear combination of 'a', 'b' and the level"),
    ):
        with pytest.warns(UserWarning, match=sentence) as seen:
            model = GMRFRegressor({"g": "iid"}, learn=False).fit(frame(u).assign(**{name: value}), y)
        assert len(seen) == 1
        assert model.converged_
        X = frame(u).assign(**{name: value})
        np.testing.assert_allclose(model.predict(X), plain.predict(frame(u)), rtol=2e-3)
        if np.ndim(value) == 0:
            np.testing.assert_allclose(model.coef_[:2], plain.coef_, atol=1e-6)
            assert (model.coef_[2], model.coef_std_[2]) == pytest.approx((0.0, 10.0))
        else:
            assert model.coef_std_[0] > 1.0  # as wide as the prior
    with pytest.warns(UserWarning, match="the factor 's' has one level, so it has no coefficient"):
        GMRFRegressor({"g": "iid"}, learn=False).fit(frame(u).assign(s="only"), y)
    wide = np.random.default_rng(0).normal(size=(5, 12))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        GMRFRegressor(learn=False).fit(wide, [1, 2, 3, 4, 5])
    assert len(seen) == 4
    assert str(seen[-1].message) == "GMRFRegressor: 5 more columns are combinations of others and the level."
    with pytest.warns(UserWarning, match="stack: the column 'c' is 7 in every observed row"):
        gmrf.stack([], fixed=pd.DataFrame({"c": np.full(5, 7.0)}))


def test_one_row_and_a_thousand_equal_rows():
    one = pd.DataFrame({"g": ["x"], "a": [1e6]})
    with pytest.warns(UserWarning, match="the column 'a' is 1000000 in every observed row"):
        model = GMRFRegressor({"g": "iid"}).fit(one, [3])
    assert np.isfinite(model.predict(one)).all()
    same = pd.DataFrame({"g": ["x"] * 1000, "a": 2.5})
    with pytest.warns(UserWarning, match="the column 'a' is 2.5"):
        model = GMRFRegressor({"g": "iid"}).fit(same, np.full(1000, 4.0))
    np.testing.assert_allclose(model.predict(same), 4.0, rtol=1e-2)


def test_a_year_that_is_a_walk_and_a_covariate_at_once():
    _, y, _ = panel()
    X = pd.DataFrame({"year": YEARS, "g": GROUP})
    with pytest.warns(
        UserWarning, match=r"the column 'year \(slope\)' is a linear combination of 'year' and the level"
    ):
        both = GMRFRegressor({"year": "rw2", "g": "iid"}, fixed=["year"], learn=False).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = GMRFRegressor({"year": ("rw2", {"trend": False}), "g": "iid"}, fixed=["year"], learn=False).fit(X, y)
    assert both.coef_.sum() == pytest.approx(one.coef_[0], abs=1e-4)


def test_columns_at_the_ends_of_double_precision():
    x = np.random.default_rng(0).normal(size=(50, 1))
    for factor in (1e150, 1e300, 1e-150):
        columns = Columns.of("here", factor * x, ["x"])
        np.testing.assert_allclose(columns.standardise(factor * x), (x - x.mean()) / x.std(), rtol=1e-12)
    with pytest.raises(ValueError, match=r"here: the column 'x' has standard deviation .*; expected .* larger unit"):
        Columns.of("here", 1e-300 * x, ["x"])


def test_learning_that_cannot_begin_says_so():
    class Broken(gmrf.MarkovField):
        def gradient(self, solution, theta):
            return np.full(theta.size, np.nan)

    base = gmrf.iid(3)
    with pytest.raises(
        ValueError, match=r"learn: the evidence or its gradient is not finite at the start: .* largest slope nan"
    ):
        learn(Poisson(), Broken(base.build, base.theta, base.names), np.ones(3))


# -- factors and other types -----------------------------------------------------------------------------
def test_categories_and_text_are_factors():
    u, y, _ = panel("gaussian")
    rng = np.random.default_rng(0)
    word = rng.choice(["no", "yes", "often"], len(y))
    by_hand = frame(u).assign(often=(word == "often") * 1.0, yes=word == "yes")
    level = GMRFRegressor({"g": "iid"}, "gaussian", learn=False).fit(by_hand, y)
    for column in (word, pd.Categorical(word), pd.Series(word, dtype="string"), np.array(word, dtype=object)):
        model = GMRFRegressor({"g": "iid"}, "gaussian", learn=False).fit(frame(u).assign(smoker=column), y)
        assert model.coef_names_ == ["a", "b", "smoker[often]", "smoker[yes]"]  # "no" is what they are compared with
        np.testing.assert_allclose(model.coef_, level.coef_, atol=1e-8)
        assert model.elbo_ == pytest.approx(level.elbo_, abs=1e-8)
    own = pd.Categorical(np.where(word == "no", "10", np.where(word == "yes", "2", "1")), ["10", "1", "2", "unused"])
    model = GMRFRegressor({"g": "iid"}, "gaussian", learn=False).fit(frame(u).assign(smoker=own), y)
    assert model.coef_names_ == ["a", "b", "smoker[1]", "smoker[2]"]
    np.testing.assert_allclose(model.coef_, level.coef_, atol=1e-8)
    with pytest.raises(ValueError, match=r"X\[0, 'smoker'\] = 'never' was not seen in fit; expected one of '10', '1'"):
        model.predict(frame(u)[:1].assign(smoker="never"))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (
            pd.Series(["1", "2", "10"] * 4),
            r"'x' holds numbers written as text; .*astype\(float\).*astype\(\"category\"\)",
        ),
        (pd.Series(pd.date_range("2020", periods=12)), r"'x' holds datetime64.*Make it an effect in time.*\.dt\.days"),
        (pd.Series(pd.period_range("2020", periods=12, freq="M")), r"'x' holds period"),
        (pd.Series(pd.to_timedelta(np.arange(12), unit="D")), r"'x' holds timedelta64.*\.dt\.total_seconds\(\)"),
        (pd.Series(list(pd.date_range("2020", periods=12).date), dtype=object), "'x' holds dates"),
        (pd.Series([1, "two"] * 6, dtype=object), "the covariate 'x' is not numbers; expected a number in every row"),
        (pd.Series(["a", None] * 6, dtype=object), r"X\[1, 'x'\] is missing; expected a level in every row"),
        (pd.Series([1.0, None] * 6, dtype="Float64"), r"X\['x'\]\[1\] = nan is not finite"),
        (pd.Series(np.arange(12) * 1j), "the covariate 'x' is not numbers"),
    ],
)
def test_columns_that_are_neither_are_refused_by_name(column, sentence):
    X = pd.DataFrame({"g": np.arange(12) % 3, "x": column})
    with pytest.raises(ValueError, match=sentence):
        GMRFRegressor({"g": "iid"}).fit(X, np.arange(12))


def test_text_with_very_many_levels_wants_an_effect():
    X = pd.DataFrame({"name": [f"n{i}" for i in range(300)]})
    with pytest.raises(ValueError, match=r"'name' has 300 levels; expected at most 100\. Make it an effect"):
        GMRFRegressor().fit(X, np.ones(300))


def test_booleans_are_0_and_1():
    u, y, _ = panel()
    flag = u[:, 1] > 0
    number = GMRFRegressor({"g": "iid"}, learn=False).fit(frame(u).assign(f=flag * 1.0), y)
    for column in (flag, pd.Series(flag, dtype="boolean"), pd.Series(list(flag), dtype=object)):
        model = GMRFRegressor({"g": "iid"}, learn=False).fit(frame(u).assign(f=column), y)
        assert model.coef_names_ == number.coef_names_
        np.testing.assert_allclose(model.coef_, number.coef_, atol=1e-10)


def test_masked_targets_are_unobserved_and_masked_columns_refused():
    u, y, _ = panel()
    x = np.column_stack([GROUP, u])
    hole = np.arange(len(y)) % 7 == 0
    masked = np.ma.array(np.where(hole, 99_999, y), mask=hole)
    model = GMRFRegressor({0: "iid"}).fit(x, masked)
    other = GMRFRegressor({0: "iid"}).fit(x, np.where(hole, np.nan, y))
    assert model.elbo_ == other.elbo_
    with pytest.raises(ValueError, match=r"X\[2, 0\] is masked; expected values\. Only y may be unobserved"):
        GMRFRegressor({0: "iid"}).fit(np.ma.array(x, mask=np.eye(*x.shape, k=-2)[:, [0, 1, 2]] > 0), y)


# -- graphs and hints ------------------------------------------------------------------------------------
def regions(ids, seed=0):
    return pd.DataFrame({"r": ids}), np.random.default_rng(seed).poisson(4.0, len(ids))


def test_ids_that_may_be_counted_from_one():
    X, y = regions(np.tile(np.arange(1, 12), 3))  # 12 nodes, no row of the last
    for graph in (ring(), ring().toarray(), pd.DataFrame(ring().toarray())):
        sentence = r"ids are 1 to 11 without a 0; expected .* 12 nodes .* levels=\{'r': range\(12\)\} or range\(1, 13\)"
        with pytest.raises(ValueError, match=sentence):
            GMRFRegressor({"r": ("icar", graph)}).fit(X, y)
    first = GMRFRegressor({"r": ("icar", ring())}, levels={"r": range(1, 13)}).fit(X, y)
    assert list(first.effects_["r"]["n"]) == [3] * 11 + [0]
    zero = GMRFRegressor({"r": ("icar", ring())}, levels={"r": range(12)}).fit(X, y)
    assert list(zero.effects_["r"]["n"]) == [0] + [3] * 11
    with pytest.warns(UserWarning, match="ids are 4 to 9 without a 0: they are taken as counted from 0"):
        GMRFRegressor({"r": ("icar", ring())}, learn=False).fit(*regions([4, 5, 9, 4]))
    with pytest.raises(ValueError, match="without a 0"):
        GMRFRegressor({"r": ("generic", sp.eye_array(12))}).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GMRFRegressor({"r": ("icar", ring())}, learn=False).fit(*regions(np.arange(12)))


def test_hints_do_what_they_say():
    X, y = regions(np.arange(36).repeat(2))
    grid = gmrf.lattice((6, 6)).build(np.zeros(1))[0]
    with pytest.raises(ValueError, match=r"'r' is singular; .* R, \{\"constraints\": \"sum-to-zero\"\}\)"):
        GMRFRegressor({"r": ("generic", grid)}).fit(X, y)
    own = GMRFRegressor({"r": ("generic", grid, {"constraints": "sum-to-zero"})}).fit(X, y)
    A = sp.csr_array(sp.diags_array(grid.diagonal()) - grid)
    A.eliminate_zeros()
    icar = GMRFRegressor({"r": ("icar", A)}).fit(X, y)
    assert own.elbo_ == pytest.approx(icar.elbo_, abs=1e-8)
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(34, 36))
    with pytest.raises(ValueError, match=r"'r' is singular beside its constraints; .* One row for each flat direction"):
        GMRFRegressor({"r": ("generic", D.T @ D, {"constraints": "sum-to-zero"})}).fit(X, y)
    rows = np.stack([np.ones(36), np.arange(36)])
    GMRFRegressor({"r": ("generic", D.T @ D, {"constraints": rows})}, learn=False).fit(X, y)
    edges = np.argwhere(sp.triu(A).toarray() > 0)
    with pytest.raises(ValueError, match=r"'r' is a list of 60 edges; .* levels=\{'r': range\(n\)\}"):
        GMRFRegressor({"r": ("icar", edges)}).fit(X, y)
    listed = GMRFRegressor({"r": ("icar", edges)}, levels={"r": range(36)}).fit(X, y)
    assert listed.elbo_ == pytest.approx(icar.elbo_, abs=1e-8)
    short = GMRFRegressor({"r": ("iid", {"precision": 9.0})}, learn=False).fit(X, y)
    assert short.theta_ == pytest.approx(np.log(9.0))
    with pytest.raises(ValueError, match=r"\{'period': 12\}\); expected \(\"seasonal\", a period >= 2\)"):
        GMRFRegressor({"r": ("seasonal", {"period": 12})}).fit(X, y)


def test_an_island_under_sum_to_zero_stays_at_zero():
    grid = gmrf.lattice((3, 3)).build(np.zeros(1))[0]
    Q = sp.block_diag([grid, sp.csc_array((1, 1))], format="csc")
    prior = fenchel.SparsePrecision(Q, constraints="sum-to-zero", design=np.eye(10), offset=1.0)
    sol = fenchel.infer(Poisson(), prior, np.arange(10.0))
    assert sol.posterior.latent_mean[9] == pytest.approx(0.0, abs=1e-10)
    assert sol.posterior.latent_mean[:9].sum() == pytest.approx(0.0, abs=1e-8)
    X, y = regions(np.arange(10).repeat(3))
    model = GMRFRegressor({"r": ("generic", Q, {"constraints": "sum-to-zero"})}).fit(X, y)
    assert model.effects_["r"]["sd"].iloc[9] < 1e-6
    assert model.converged_


def test_a_singular_structure_of_many_nodes_is_met_at_once():
    B = gmrf.lattice((110, 112)).build(np.zeros(1))[0]
    rng = np.random.default_rng(0)
    X, y = regions(np.r_[0, rng.integers(0, B.shape[0], 2000)])
    model = GMRFRegressor({"r": ("generic", B, {"constraints": "sum-to-zero"})}, learn=False).fit(X, y)
    assert model.converged_
    parts = sp.block_diag([gmrf.lattice((2, 5)).build(np.zeros(1))[0]] * 60, format="csc")
    held = gmrf.generic(parts, constraints="sum-to-zero")
    assert gmrf.stack([(held, np.arange(600))]).constraints.shape == (60, 601)


# -- prediction ------------------------------------------------------------------------------------------
def test_only_the_columns_of_the_model_are_asked_for():
    u, y, _ = panel()
    X = frame(u).assign(y=y, junk="text", size=1.0 + GROUP)
    model = GMRFRegressor({"g": "iid"}, fixed=["b", "a"], exposure="size").fit(X, y)
    expected = model.predict(X)
    np.testing.assert_allclose(model.predict(X[["size", "a", "g", "b"]]), expected)
    np.testing.assert_allclose(model.predict(X[["b", "a", "g"]].assign(other=0), exposure=X["size"]), expected)
    with pytest.raises(ValueError, match="X has no column 'a'"):
        model.predict(X[["b", "g", "size"]])


def test_groups_that_fit_has_not_seen_come_from_the_population():
    u, y, _ = panel()
    X = frame(u)
    model = GMRFRegressor({"g": "iid"}).fit(X, y)
    h, rho = model.latent_mean_and_variance(X[:4].assign(g=[99, 98, 0, 7]))
    spread = 1 / model.hyperparameters_["value"]["g", "precision"]
    posterior = model.solution_.posterior
    tail = np.column_stack([np.ones(4), (u[:4] - u.mean(axis=0)) / u.std(axis=0)])
    design = np.hstack([np.zeros((4, 8)), tail])
    mean, variance = posterior.predict(design=design, offset=np.log(y.mean()))
    np.testing.assert_allclose(h[:2], mean[:2], atol=1e-10)
    np.testing.assert_allclose(rho[:2], variance[:2] + spread, rtol=1e-10)
    known = model.latent_mean_and_variance(X[:4].assign(g=[0, 0, 0, 7]))
    np.testing.assert_allclose((h[2:], rho[2:]), (known[0][2:], known[1][2:]))
    scores = cross_val_score(GMRFRegressor({"g": "iid"}), X, y, groups=GROUP, cv=GroupKFold(4))
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match="a level in every row"):
        model.predict(X[:1].assign(g=np.nan))


def test_a_ratio_is_the_median_of_exp_of_its_coefficient():
    u, y, _ = panel("bernoulli")
    table = GMRFRegressor({"g": "iid"}, "bernoulli").fit(frame(u), y).fixed_effects_
    law = scipy.stats.lognorm(s=table["sd"], scale=np.exp(table["mean"]))
    np.testing.assert_allclose(table["odds_ratio"], law.median())
    np.testing.assert_allclose(table["or_lower"], law.ppf(0.025))


def test_crossed_groups_rare_levels_and_exposures_of_zero():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"a": rng.integers(0, 30, 60), "b": pd.Categorical(rng.choice(list("xy"), 60), list("xyz"))})
    E = rng.integers(0, 3, 60).astype(float)
    y = rng.poisson(2.0 * E)
    model = GMRFRegressor({"a": "iid", "b": "iid"}).fit(X, y, exposure=E)
    assert model.converged_
    assert list(model.effects_["b"].index) == ["x", "y", "z"]
    assert model.effects_["b"]["n"]["z"] == 0
    with pytest.raises(ValueError, match="leave no row; expected at least one observed row"):
        GMRFRegressor({"a": "iid"}).fit(X, 0 * y, exposure=0 * E)
    with pytest.raises(ValueError, match=r"the effect 'a' has 1 level; expected at least 3 for \"rw2\""):
        GMRFRegressor({"a": "rw2"}).fit(X.assign(a=1), y)
    with pytest.raises(ValueError, match="X has the column 'a' twice; expected each name once"):
        GMRFRegressor({"a": "iid"}).fit(X[["a", "a"]], y)
    own = pd.DataFrame({"g": np.arange(40)})  # one row a group: overdispersion
    assert GMRFRegressor({"g": "iid"}).fit(own, rng.poisson(5, 40)).converged_


# -- scikit-learn, maps ----------------------------------------------------------------------------------
def test_scikit_learns_checks_of_the_bare_estimator():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(GMRFRegressor(), on_skip=None, on_fail=None)
    failed = {r["check_name"] for r in results if r["status"] == "failed"}
    # fewer rows than columns and no noise: the rates agree to 4e-7, and the check asks for 1e-7
    assert failed <= {"check_sample_weight_equivalence_on_dense_data"}
    assert sum(r["status"] == "passed" for r in results) >= 57


SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])


class Shapes:
    """What geopandas' GeoSeries shows of itself."""

    def __init__(self, features, labels):
        self.__geo_interface__ = {"type": "FeatureCollection", "features": features}
        self.index = pd.Index(labels)


def test_maps_of_geojson_and_of_shapes(tmp_path):
    ring_of = {"type": "Polygon", "coordinates": [(3 * SQUARE).tolist(), (1 + SQUARE).tolist()]}
    two = {"type": "MultiPolygon", "coordinates": [[SQUARE.tolist()], [np.add(SQUARE, (3, 2)).tolist()]]}
    features = [{"type": "Feature", "properties": {}, "geometry": g} for g in (ring_of, two, None)]
    collection = {"type": "FeatureCollection", "features": features}
    path = tmp_path / "map.geojson"
    path.write_text(json.dumps(collection))
    series = Shapes(features, ["a", "b", "c"])
    values = pd.Series([3.0, 1.0, 2.0], index=["c", "a", "b"])
    for shapes, given_ in ((collection, [1, 2, 3]), (path, [1, 2, 3]), (str(path), [1, 2, 3]), (series, values)):
        drawn = plot_map(shapes, given_).collections[0]
        assert list(drawn.get_array()) == [1.0, 2.0, 2.0]
        outline = drawn.get_paths()[0]
        assert len(outline.vertices) >= 10  # with its hole
        image = plot_map(shapes, given_).figure
        image.savefig(tmp_path / "map.png")
    frame_like = type("Frame", (), {"geometry": series, "index": series.index})()
    assert list(plot_map(frame_like, values).collections[0].get_array()) == [1.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="the labels of the values are not those of the districts"):
        plot_map(series, pd.Series([1.0, 2.0, 3.0], index=["a", "b", "z"]))
    with pytest.raises(ValueError, match="the shape of district 0 is a Point; expected a Polygon or MultiPolygon"):
        plot_map({"type": "Point", "coordinates": [0, 0]}, [1.0])
