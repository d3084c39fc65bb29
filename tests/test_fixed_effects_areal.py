"""Fixed effects beside groups and regions: any units and origins, columns that say nothing, structures, maps."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse as sp
import scipy.stats
from conftest import fit_at_start
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import learn
from fenchel.inputs.fixed_columns import Columns
from fenchel.likelihoods import Poisson
from fenchel.plots import plot_map

YEARS = np.tile(np.arange(1960, 1991), 8)
GROUP = np.repeat(np.arange(8), 31)


def ring(n=12):
    i = np.arange(n)
    return sp.csr_array((np.ones(2 * n), (np.r_[i, (i + 1) % n], np.r_[(i + 1) % n, i])), shape=(n, n))


def panel(family="poisson", seed=0):
    """Groups over 31 years with two covariates, centred and of order 1, and a target; the formula's left side."""
    rng = np.random.default_rng(seed)
    u = np.column_stack([(YEARS - 1975) / 9.0, rng.normal(size=YEARS.size)])
    eta = 1.0 + u @ [0.43, -0.2] + 0.3 * rng.normal(size=8)[GROUP]
    if family == "poisson":
        return u, rng.poisson(np.exp(eta)).astype(float), "y"
    if family == "bernoulli":
        return u, (rng.random(eta.size) < 1 / (1 + np.exp(-eta))).astype(float), "y"
    if family == "binomial":
        return u, rng.binomial(7, 1 / (1 + np.exp(-eta))).astype(float), "y | trials(7)"
    if family == "ordinal":
        return u, np.digitize(eta + rng.logistic(size=eta.size), [0.0, 2.0]).astype(float), "y"
    return u, 50 + 7 * eta + rng.normal(size=eta.size), "y"


def frame(u, y):
    return pd.DataFrame({"g": GROUP, "a": u[:, 0], "b": u[:, 1], "y": y})


def slopes(fit, column="mean"):
    return fit.coefficients.loc[["a", "b"], column].to_numpy()


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
def test_the_fit_is_the_same_after_any_affine_change_of_the_columns(shift, power, family, variance):
    u, y, left = panel(family)
    shift, scale = np.array(shift), 10.0 ** np.array(power)
    x = shift + scale * u
    u = (x - shift) / scale  # what the doubles of x still hold
    formula, options = f"{left} ~ a + b + (1|g)", {"fixed_sd": variance**0.5, "tol": 1e-14}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = fit_at_start(formula, frame(u, y), family, **options)
        moved = fit_at_start(formula, frame(x, y), family, **options)
    unit = 7.0 if family == "gaussian" else 1.0
    assert moved.elbo == pytest.approx(plain.elbo, abs=1e-6)
    np.testing.assert_allclose(slopes(moved) * scale, slopes(plain), atol=1e-6 * unit)
    np.testing.assert_allclose(slopes(moved, "sd") * scale, slopes(plain, "sd"), rtol=1e-6)
    np.testing.assert_allclose(moved.predict(frame(x, y)), plain.predict(frame(u, y)), rtol=1e-5)
    away = shift / scale  # the intercept at x = 0 lies this many units away
    reach = 1.0 + np.abs(away).max()
    if family == "ordinal":
        cut, base = (m.likelihood.cutpoints for m in (moved, plain))
        np.testing.assert_allclose(cut, base + slopes(plain) @ away, atol=1e-6 * reach)
        return
    there, table = np.r_[1.0, -away], moved.coefficients.loc["Intercept"]
    covariance = plain.covariance.to_numpy()
    assert table["mean"] == pytest.approx(there @ plain.coefficients["mean"], abs=1e-6 * unit * reach)
    assert table["sd"] == pytest.approx(np.sqrt(there @ covariance @ there), rel=1e-5)


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


@pytest.mark.parametrize("sd", [10.0, 1e2, 1e3, 1e4])
def test_years_and_metres_have_the_slopes_of_maximum_likelihood(sd):
    """31 years of 8 groups: a wide prior leaves what scikit-learn finds without a penalty."""
    u, y, _ = panel()
    data = pd.DataFrame({"a": YEARS, "b": 335_114 + 30_603 * u[:, 1], "y": y})
    fit = fenchel.fit("y ~ a + b", data, "poisson", fixed_sd=sd)
    assert fit.converged
    free = PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(u, y)
    np.testing.assert_allclose(slopes(fit) * [9.0, 30_603], free.coef_, atol=2e-3)
    at_zero = free.intercept_ - free.coef_ @ [1975 / 9.0, 335_114 / 30_603]
    assert fit.coefficients.loc["Intercept", "mean"] == pytest.approx(at_zero, abs=0.2)
    seen = (y > np.median(y)).astype(float)
    fit = fenchel.fit("y ~ a + b", data.assign(y=seen), "bernoulli", fixed_sd=sd)
    assert fit.converged
    free = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(u, seen)
    np.testing.assert_allclose(slopes(fit) * [9.0, 30_603], free.coef_[0], atol=0.03)  # mean and mode differ


def test_the_prior_is_of_a_standard_deviation_and_of_the_level_of_y():
    """Two latents: against the evidence bound maximised by brute force."""
    rng = np.random.default_rng(1)
    x, y = 1000.0 + 3.0 * rng.normal(size=20), rng.poisson(200.0, 20).astype(float)
    fit = fenchel.fit("y ~ x", pd.DataFrame({"x": x, "y": y}), "poisson", fixed_sd=0.5**0.5, tol=1e-13)
    W = np.column_stack([np.ones(20), (x - x.mean()) / x.std()])
    level = np.log(y.mean())

    def negative(t):
        m, L = t[:2], np.array([[np.exp(t[2]), 0.0], [t[3], np.exp(t[4])]])
        V = L @ L.T
        h, rho = level + W @ m, np.einsum("ni,ij,nj->n", W, V, W)
        kl = 0.5 * (np.trace(V) / 0.5 + m @ m / 0.5 - 2 + 2 * np.log(0.5) - np.linalg.slogdet(V)[1])
        return kl - np.sum(y * h - np.exp(h + rho / 2)) + np.sum(scipy.special.gammaln(y + 1))

    found = scipy.optimize.minimize(negative, [0, 0, -3, 0, -3], method="BFGS", options={"gtol": 1e-7})
    assert fit.elbo == pytest.approx(-found.fun, abs=1e-7)
    table = fit.coefficients
    assert table.loc["x", "mean"] == pytest.approx(found.x[1] / x.std(), abs=1e-6)
    assert table.loc["x", "sd"] == pytest.approx(np.hypot(found.x[3], np.exp(found.x[4])) / x.std(), rel=1e-4)
    at_zero = level + found.x[0] - found.x[1] * x.mean() / x.std()
    assert table.loc["Intercept", "mean"] == pytest.approx(at_zero, abs=1e-4)


def test_unobserved_rows_do_not_move_the_centre():
    u, y, _ = panel()
    far = frame(u, y)
    far.loc[::5, "a"] = 1e9
    hole = np.arange(len(y)) % 5 == 0
    formula, given = "y ~ a + b + (1|g)", {"levels": {"g": range(8)}}
    full = fit_at_start(formula, far.assign(y=far["y"].mask(hole)), **given)
    less = fit_at_start(formula, far[~hole], **given)
    none = fit_at_start(formula, far.assign(y=np.where(hole, 0, y), E=1.0 - hole), exposure="E", **given)
    for other in (less, none):
        np.testing.assert_allclose(slopes(full), slopes(other), atol=1e-6)
        assert full.elbo == pytest.approx(other.elbo, abs=1e-8)


def test_without_an_intercept_columns_are_scaled_and_not_moved():
    u, y, _ = panel("gaussian")
    data = pd.DataFrame({"a": np.full(len(y), 3.0), "b": 100.0 * u[:, 1], "y": y})
    fit = fenchel.fit("y ~ 0 + a + b", data)
    exact = np.linalg.lstsq(data[["a", "b"]].to_numpy(), y, rcond=None)[0]
    np.testing.assert_allclose(slopes(fit), exact, rtol=1e-3)
    assert list(fit.coefficients.index) == ["a", "b"]


# -- columns that say nothing ----------------------------------------------------------------------------
def test_columns_that_say_nothing_are_named_and_leave_the_rest_alone():
    u, y, _ = panel()
    data = frame(u, y)
    plain = fit_at_start("y ~ a + b + (1|g)", data)
    for name, value, sentence in (
        ("c", 0.1, r"the column 'c' is 0\.1 in every observed row"),
        ("zero", 0.0, "the column 'zero' is 0 in every observed row"),
        ("twice", 5.0 - 2.0 * u[:, 0], "the column 'twice' is a linear combination of 'a' and the level"),
        ("both", u[:, 0] + u[:, 1], "the column 'both' is a linear combination of 'a', 'b' and the level"),
    ):
        more = data.assign(**{name: value})
        with pytest.warns(UserWarning, match=sentence) as seen:
            fit = fit_at_start(f"y ~ a + b + {name} + (1|g)", more)
        assert len(seen) == 1
        assert fit.converged
        np.testing.assert_allclose(fit.predict(more), plain.predict(data), rtol=2e-3)
        if np.ndim(value) == 0:
            np.testing.assert_allclose(slopes(fit), slopes(plain), atol=1e-6)
            assert fit.coefficients.loc[name, ["mean", "sd"]].tolist() == pytest.approx([0.0, 10.0])
        else:
            assert slopes(fit, "sd")[0] > 1.0  # as wide as the prior
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 12))).add_prefix("x").assign(y=[1, 2, 3, 4, 5])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fit_at_start("y ~ .", wide)
    assert len(seen) == 1
    assert "'x4', 'x5', 'x6' and 5 more are linear combinations of others and the level" in str(seen[0].message)
    with pytest.warns(UserWarning, match="stack: the column 'c' is 7 in every observed row"):
        gmrf.stack([], fixed=pd.DataFrame({"c": np.full(5, 7.0)}))


def test_a_year_that_is_a_walk_and_a_covariate_at_once():
    _, y, _ = panel()
    data = pd.DataFrame({"year": YEARS, "g": GROUP, "y": y})
    sentence = r"the column 'rw2\(year\) \(slope\)' is a linear combination of 'year' and the level"
    with pytest.warns(UserWarning, match=sentence):
        both = fit_at_start("y ~ year + rw2(year) + (1|g)", data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = fit_at_start("y ~ year + rw2(year, trend=False) + (1|g)", data)
    slope = both.coefficients["mean"].drop("Intercept").sum()
    assert slope == pytest.approx(one.coefficients.loc["year", "mean"], abs=1e-4)


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


# -- graphs and structures -------------------------------------------------------------------------------
def regions(ids, seed=0):
    return pd.DataFrame({"r": ids, "y": np.random.default_rng(seed).poisson(4.0, len(ids))})


def on(graph, data, term="icar(r, W)", **options):
    return fit_at_start(f"y ~ {term}", data, env={"W": graph}, **options)


def test_ids_that_may_be_counted_from_one():
    data = regions(np.tile(np.arange(1, 12), 3))  # 12 nodes, no row of the last
    for graph in (ring(), ring().toarray(), pd.DataFrame(ring().toarray())):
        sentence = r"ids are 1 to 11 without a 0; expected .* 12 nodes .* range\(12\)\} or range\(1, 13\)"
        with pytest.raises(ValueError, match=sentence):
            on(graph, data)
    assert list(on(ring(), data, levels={"r": range(1, 13)}).effects["r"]["n"]) == [3] * 11 + [0]
    assert list(on(ring(), data, levels={"r": range(12)}).effects["r"]["n"]) == [0] + [3] * 11
    with pytest.warns(UserWarning, match="ids are 4 to 9 without a 0: they are taken as counted from 0"):
        on(ring(), regions([4, 5, 9, 4]))
    with pytest.raises(ValueError, match="without a 0"):
        on(sp.eye_array(12), data, "generic(r, W)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on(ring(), regions(np.arange(12)))


def test_hints_do_what_they_say():
    data = regions(np.arange(36).repeat(2))
    grid = gmrf.lattice((6, 6)).build(np.zeros(1))[0]
    with pytest.raises(ValueError, match=r"is singular; .*constraints='sum-to-zero', or rows"):
        on(grid, data, "generic(r, W)")
    own = on(grid, data, "generic(r, W, constraints='sum-to-zero')")
    A = sp.csr_array(sp.diags_array(grid.diagonal()) - grid)
    A.eliminate_zeros()
    icar = on(A, data)
    assert own.elbo == pytest.approx(icar.elbo, abs=1e-8)
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(34, 36))
    with pytest.raises(ValueError, match=r"is singular beside its constraints; .* One row for each flat direction"):
        on(D.T @ D, data, "generic(r, W, constraints='sum-to-zero')")
    rows = np.stack([np.ones(36), np.arange(36)])
    fenchel.fit("y ~ generic(r, R, constraints=rows)", data, "poisson", env={"R": D.T @ D, "rows": rows})
    edges = np.argwhere(sp.triu(A).toarray() > 0)
    with pytest.raises(ValueError, match=r"is a list of 60 edges; .* range\(n\)\}"):
        on(edges, data)
    assert on(edges, data, levels={"r": range(36)}).elbo == pytest.approx(icar.elbo, abs=1e-8)
    assert on(None, data, "iid(r, precision=9.0)").theta == pytest.approx(-0.5 * np.log(9.0))


def test_an_island_under_sum_to_zero_stays_at_zero():
    grid = gmrf.lattice((3, 3)).build(np.zeros(1))[0]
    Q = sp.block_diag([grid, sp.csc_array((1, 1))], format="csc")
    prior = fenchel.SparsePrecision(Q, constraints="sum-to-zero", design=np.eye(10), offset=1.0)
    sol = fenchel.infer(Poisson(), prior, np.arange(10.0))
    assert sol.posterior.latent_mean[9] == pytest.approx(0.0, abs=1e-10)
    assert sol.posterior.latent_mean[:9].sum() == pytest.approx(0.0, abs=1e-8)
    data = regions(np.arange(10).repeat(3))
    fit = fenchel.fit("y ~ generic(r, Q, constraints='sum-to-zero')", data, "poisson")
    assert fit.effects["r"]["sd"].iloc[9] < 1e-6
    assert fit.converged


def test_a_singular_structure_of_many_nodes_is_met_at_once():
    B = gmrf.lattice((110, 112)).build(np.zeros(1))[0]
    data = regions(np.r_[0, np.random.default_rng(0).integers(0, B.shape[0], 2000)])
    assert on(B, data, "generic(r, W, constraints='sum-to-zero')").converged
    parts = sp.block_diag([gmrf.lattice((2, 5)).build(np.zeros(1))[0]] * 60, format="csc")
    held = gmrf.generic(parts, constraints="sum-to-zero")
    assert gmrf.stack([(held, np.arange(600))]).constraints.shape == (60, 601)


# -- prediction ------------------------------------------------------------------------------------------
def test_groups_that_fit_has_not_seen_come_from_the_population():
    u, y, _ = panel()
    data = frame(u, y)
    fit = fenchel.fit("y ~ a + b + (1|g)", data, "poisson")
    new = fit.predict(data[:4].assign(g=[99, 98, 0, 7]), "link", interval=0.9)
    tail = np.column_stack([np.ones(4), (u[:4] - u.mean(axis=0)) / u.std(axis=0)])
    design = np.hstack([np.zeros((4, 8)), tail])
    mean, variance = fit.solution.posterior.predict(design=design, offset=np.log(y.mean()))
    np.testing.assert_allclose(new["mean"][:2], mean[:2], atol=1e-10)
    np.testing.assert_allclose(new["sd"][:2] ** 2, variance[:2] + np.exp(2 * fit.theta[0]), rtol=1e-9)
    known = fit.predict(data[:4].assign(g=[0, 0, 0, 7]), "link", interval=0.9)
    np.testing.assert_allclose(new[2:], known[2:])


def test_a_ratio_is_the_median_of_exp_of_its_coefficient():
    u, y, _ = panel("bernoulli")
    table = fenchel.fit("y ~ a + b + (1|g)", frame(u, y), "bernoulli").coefficients
    law = scipy.stats.lognorm(s=table["sd"], scale=np.exp(table["mean"]))
    np.testing.assert_allclose(table["odds_ratio"], law.median())
    np.testing.assert_allclose(table["or_lower"], law.ppf(0.025))


def test_crossed_groups_rare_levels_and_exposures_of_zero():
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"a": rng.integers(0, 30, 60), "b": pd.Categorical(rng.choice(list("xy"), 60), list("xyz"))})
    E = rng.integers(0, 3, 60).astype(float)
    data = data.assign(y=rng.poisson(2.0 * E), E=E)
    fit = fenchel.fit("y ~ (1|a) + (1|b)", data, "poisson", exposure="E")
    assert fit.converged
    assert list(fit.effects["b"].index) == ["x", "y", "z"]
    assert fit.effects["b"]["n"]["z"] == 0
    with pytest.raises(ValueError, match=r"has 1 time; expected at least 3"):
        fenchel.fit("y ~ rw2(a)", data.assign(a=1), "poisson")
    with pytest.raises(ValueError, match="the column 'a' twice; expected each name once"):
        fenchel.fit("y ~ (1|a)", data[["a", "a", "y"]], "poisson")
    own = pd.DataFrame({"g": np.arange(40), "y": rng.poisson(5, 40)})  # one row a group: overdispersion
    assert fenchel.fit("y ~ (1|g)", own, "poisson").converged


# -- maps ------------------------------------------------------------------------------------------------
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
