"""Models on regions and in time: what a model built by hand says, dense matrices, parameters recovered, tables."""

import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.stats
from conftest import difference

import fenchel
from fenchel import gmrf
from fenchel.checks import Refusal
from fenchel.datasets import load_coal, load_germany, load_sids
from fenchel.hyperparameters import Evidence, HalfNormal, Normal
from fenchel.likelihoods import Binomial, Poisson

SIDS, COAL, GERMANY = load_sids(), load_coal(), load_germany()
COUNTIES = pd.DataFrame({"county": SIDS.county, "deaths": SIDS.deaths, "expected": SIDS.expected})


def ring(n=12):
    """A cycle of n regions."""
    i = np.arange(n)
    return sp.csr_array((np.ones(2 * n), (np.r_[i, (i + 1) % n], np.r_[(i + 1) % n, i])), shape=(n, n))


def panel(seed=0, n=12, years=8, rows=200):
    """Rows with a region, a year, a group and a covariate, and their linear predictor."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "region": rng.integers(0, n, rows),
            "year": rng.integers(2001, 2001 + years, rows),
            "group": rng.choice(["a", "b", "c"], rows),
            "age": rng.normal(size=rows),
        }
    )
    eta = 0.5 + 0.4 * np.sin(2 * np.pi * data["region"] / n) + 0.05 * (data["year"] - 2004) + 0.3 * data["age"]
    return data, eta.to_numpy(), rng


def observed(family, data, eta, rng):
    """The rows with y, and the left side of the formula."""
    p = 1 / (1 + np.exp(-eta))
    if family == "poisson":
        exposure = rng.gamma(2.0, 2.0, eta.size)
        return data.assign(y=rng.poisson(exposure * np.exp(eta)).astype(float), E=exposure), "y"
    if family == "binomial":
        trials = rng.integers(1, 20, eta.size)
        return data.assign(y=rng.binomial(trials, p).astype(float), n=trials), "y | trials(n)"
    if family == "bernoulli":
        return data.assign(y=rng.binomial(1, p).astype(float)), "y"
    return data.assign(y=100 + 7 * eta + rng.normal(size=eta.size)), "y"


def options(family, **more):
    return {"family": family, "graphs": {"region": ring()}, **more} | ({"exposure": "E"} if family == "poisson" else {})


LOPSIDED = pd.DataFrame(ring().toarray(), index=range(12), columns=range(1, 13))
FAMILIES = ["poisson", "binomial", "bernoulli", "gaussian"]
RIGHT = "age + bym2(region) + rw2(year) + (1|group)"


# -- against models built by hand ------------------------------------------------------------------------
def test_the_fit_is_that_of_a_stack_built_by_hand():
    data, _ = observed("poisson", *panel())
    data.loc[[3, 50], "y"] = np.nan
    y, E = data["y"].to_numpy(), data["E"].to_numpy()
    fit = fenchel.fit(f"y ~ {RIGHT}", data, **options("poisson"), fixed_sd=50**0.5, tol=1e-12)
    k_region, logit, k_year, k_group = fit.theta * [-2, 1, -2, -2]
    year = (data["year"] - 2001).to_numpy()
    phi = 1 / (1 + np.exp(-logit))
    fields = [
        (gmrf.bym2(ring(), precision=np.exp(k_region), phi=phi), data["region"].to_numpy()),
        (gmrf.rw2(8, precision=np.exp(k_year)), year),
        (gmrf.iid(3, precision=np.exp(k_group)), data["group"].map({"a": 0, "b": 1, "c": 2}).to_numpy()),
    ]
    fixed = np.column_stack([data["age"], year - 3.5])  # the walk's own slope comes last
    field = gmrf.stack(fields, fixed, fixed_variance=50.0, weights=~np.isnan(y))  # unobserved rows do not count
    level = np.log(np.nansum(y) / E[~np.isnan(y)].sum())  # where the intercept's prior stands
    sol = fenchel.infer(Poisson(E), field.at(offset=level), y, tol=1e-12)
    assert fit.elbo == pytest.approx(sol.elbo, abs=1e-8)
    eta = fit.predict(data, "link", interval=0.95)
    np.testing.assert_allclose(eta["mean"], sol.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(eta["sd"] ** 2, sol.posterior.variance, atol=1e-6)
    latent, (mean, covariance) = sol.posterior.latent_mean, field.fixed_effects(sol)
    table = fit.coefficients
    assert list(table.index) == ["Intercept", "age", "rw2(year) (slope)"]
    np.testing.assert_allclose(table["mean"], mean + np.r_[level, 0, 0], atol=1e-6)
    np.testing.assert_allclose(table["sd"], np.sqrt(np.diag(covariance)), atol=1e-6)
    np.testing.assert_allclose(fit.effects["region"]["mean"], latent[:12] + latent[12:24], atol=1e-6)
    walk = fit.effects["year"]["mean"]
    np.testing.assert_allclose(walk, latent[24:32] + mean[-1] * (np.arange(8) - 3.5), atol=1e-6)
    assert int(fit.effects["group"]["n"].sum()) == 198


def test_gaussian_noise_is_exact_regression():
    """Against the conditional normal, in dense matrices."""
    data, _ = observed("gaussian", *panel(rows=60))
    y = data["y"].to_numpy()
    fit = fenchel.fit("y ~ age + leroux(region) + ar1(year)", data, **options("gaussian"))
    precision, rho, variance, phi = np.exp(-2 * fit.theta[0]), 1 / (1 + np.exp(-fit.theta[1])), *fit.theta[2:4]
    L = np.diag(ring().sum(axis=1)) - ring().toarray()
    region = np.linalg.inv(precision * ((1 - rho) * np.eye(12) + rho * L))
    steps = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    time = np.exp(2 * variance) * np.tanh(phi / 2) ** steps
    u, t, v = data["region"], data["year"] - 2001, 100.0 * y.var()
    age = (data["age"] - data["age"].mean()) / data["age"].std(ddof=0)  # the prior is of what one sd does
    S = region[np.ix_(u, u)] + time[np.ix_(t, t)] + v + v * np.outer(age, age)
    noise = fit.likelihood.variance
    K = S + noise * np.eye(60)
    eta = fit.predict(data, "link", interval=0.95)
    np.testing.assert_allclose(eta["mean"], y.mean() + S @ np.linalg.solve(K, y - y.mean()), atol=1e-6)
    np.testing.assert_allclose(eta["sd"] ** 2, np.diag(S - S @ np.linalg.solve(K, S)), rtol=1e-5)
    assert fit.elbo == pytest.approx(scipy.stats.multivariate_normal(y.mean() * np.ones(60), K).logpdf(y), abs=1e-6)
    upper = fit.predict(data, "outcome", interval=0.8)["upper"]
    law = scipy.stats.norm(eta["mean"], np.sqrt(eta["sd"] ** 2 + noise))
    np.testing.assert_allclose(upper, law.ppf(0.9), atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("areal", ["bym2", "bym", "icar", "leroux"])
def test_evidence_gradient(family, areal):
    data, left = observed(family, *panel())
    data.loc[[2, 9], "y"] = np.nan
    walk = "ar1(year)" if areal == "icar" else "rw2(year)"
    model = fenchel.Model(f"{left} ~ age + {areal}(region) + {walk} + (1|group)", data, **options(family))
    evidence = Evidence(model.target.likelihood, model.sum.family(), model.target.y, tol=1e-17)
    theta = evidence.start + 0.1
    value, gradient = evidence(theta)
    numeric = difference(lambda t: evidence(t)[0], theta, step=1e-3)
    finer = difference(lambda t: evidence(t)[0], theta, step=5e-4)
    np.testing.assert_allclose(gradient, (4 * finer - numeric) / 3, rtol=1e-6, atol=1e-6)
    assert value == pytest.approx(evidence.fit(theta).elbo + evidence.log_prior(theta)[0], abs=1e-7)


@pytest.mark.parametrize("kind", ["iid", "rw1", "rw2", "ar1", "seasonal", "icar", "bym", "bym2", "leroux"])
def test_effects_are_those_of_the_whole_inverse(kind):
    """Var[w'z] = w' A^-1 w with the dense inverse, under the constraints, at levels with data and without."""
    n, rng = 90, np.random.default_rng(3)
    data = pd.DataFrame({"t": rng.integers(0, n - 5, 150), "x": rng.normal(size=150), "y": rng.poisson(2.0, 150)})
    term = "seasonal(t,6)" if kind == "seasonal" else f"{kind}(t)"
    fit = fenchel.fit(f"y ~ x + {term}", data, "poisson", graphs={"t": ring(n)}, levels={"t": range(n)})
    _, design, _ = fit.model.sum.shown(fit.model.sum.effects[0].name)
    table, dense = fit.effects["t"], _dense_covariance(fit)
    w = design.toarray()
    np.testing.assert_allclose(table["sd"] ** 2, np.einsum("ij,jk,ik->i", w, dense, w), rtol=1e-6)
    np.testing.assert_allclose(fit.solution.posterior.predict(design=design)[0], table["mean"], atol=1e-10)


def _dense_covariance(fit):
    """(Q + W' Lam W)^-1 on the null space of the constraints, by an orthonormal basis of it."""
    prior, lam = fit.found.prior, np.ravel(fit.solution.posterior.lam)
    Q, W = prior.precision.toarray(), prior.design.toarray()
    A = Q + W.T @ (lam[:, None] * W)
    if prior.constraint is None:
        return np.linalg.inv(A)
    C = prior.constraint.C
    basis = np.linalg.svd(C)[2][C.shape[0] :].T
    return basis @ np.linalg.solve(basis.T @ A @ basis, basis.T)


# -- what it is for --------------------------------------------------------------------------------------
def test_north_carolina():
    fit = fenchel.fit(
        "deaths ~ bym2(county)",
        COUNTIES,
        "poisson",
        exposure="expected",
        graphs={"county": SIDS.adjacency},
        levels={"county": SIDS.county},
    )
    assert fit.converged
    assert fit.gap < 1e-7
    risk = fit.effects["county"]
    assert list(risk.index) == SIDS.county
    ratio = ["relative_risk", "rr_lower", "rr_upper", "p_above_1"]
    assert list(risk.columns) == ["mean", "sd", "lower", "upper", *ratio, "n"]
    assert ((risk["rr_lower"] < risk["relative_risk"]) & (risk["relative_risk"] < risk["rr_upper"])).all()
    raw = SIDS.deaths / SIDS.expected
    large = SIDS.expected > 5
    assert np.corrcoef(raw[large], risk["relative_risk"][large])[0, 1] > 0.9
    assert risk["relative_risk"].max() < raw.max()  # it shrinks
    assert fit.predict(COUNTIES).sum() == pytest.approx(SIDS.deaths.sum(), rel=0.02)
    table = fit.hyperparameters.loc["bym2(county)", "value"]
    assert 3 < table["sd"] ** -2 < 30
    assert 0 < table["phi"] < 1


def test_germany_with_every_areal_model_and_a_district_held_out():
    east = (GERMANY.x - GERMANY.x.mean()) / GERMANY.x.std()
    data = pd.DataFrame({"district": GERMANY.key, "east": east, "y": GERMANY.Y.astype(float), "E": GERMANY.E})
    given = {"exposure": "E", "graphs": {"district": GERMANY.adjacency}, "levels": {"district": GERMANY.key}}
    held, fits = data.assign(y=np.where(np.arange(544) == 100, np.nan, data["y"])), {}
    for kind in ("bym2", "bym", "icar", "leroux"):
        fits[kind] = fenchel.fit(f"y ~ east + {kind}(district)", held, "poisson", **given)
        assert fits[kind].converged, kind
    assert max(m.elbo for m in fits.values()) - min(m.elbo for m in fits.values()) < 6
    table = fits["bym2"].effects["district"]
    assert table["n"].iloc[100] == 0
    knowing = fenchel.fit("y ~ east + bym2(district)", data, "poisson", **given)
    assert table["sd"].iloc[100] > 1.3 * knowing.effects["district"]["sd"].iloc[100]
    low, high = fits["bym2"].predict(data[100:101], "outcome", interval=0.99)[["lower", "upper"]].iloc[0]
    assert low <= GERMANY.Y[100] <= high


def test_coal_and_the_trend_of_a_second_order_walk():
    data = pd.DataFrame({"year": COAL.year, "y": COAL.count})
    fit = fenchel.fit("y ~ rw2(year)", data, "poisson")
    assert fit.converged
    assert list(fit.coefficients.index) == ["Intercept", "rw2(year) (slope)"]
    assert -0.03 < fit.coefficients.loc["rw2(year) (slope)", "mean"] < -0.01
    rate = np.exp(fit.predict(data, "link"))
    assert rate[:30].mean() > 2.0 > 1.5 > rate[-30:].mean()
    by_hand = gmrf.stack([(gmrf.rw2(112), np.arange(112))], fixed=np.arange(112) - 55.5)
    sol = fenchel.infer(Poisson(), by_hand.at(fit.theta, offset=np.log(COAL.count.mean())), COAL.count, tol=1e-10)
    assert fit.elbo == pytest.approx(sol.elbo, abs=1e-6)
    flat = fenchel.fit("y ~ rw2(year, trend=False)", data, "poisson")
    assert list(flat.coefficients.index) == ["Intercept"]


def test_a_season_is_not_lost():
    rng, month = np.random.default_rng(0), np.arange(120)
    season = np.sin(2 * np.pi * month / 12)
    data = pd.DataFrame({"month": month, "y": rng.poisson(np.exp(2 + 0.8 * season))})
    fit = fenchel.fit("y ~ seasonal(month, 12)", data, "poisson")
    assert np.corrcoef(fit.effects["month"]["mean"], season)[0, 1] > 0.95


@pytest.mark.parametrize("family", FAMILIES)
def test_known_parameters_are_recovered(family):
    rng = np.random.default_rng(3)
    n, rows = 144, 6000
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(12, 12))
    w, V = np.linalg.eigh(nx.laplacian_matrix(grid).toarray().astype(float))
    root = V[:, 1:] / np.sqrt(w[1:])
    u = root @ rng.normal(size=n - 1) / np.exp(0.5 * np.log((root**2).sum(axis=1)).mean())
    effect = 0.4 * (np.sqrt(0.8) * u + np.sqrt(0.2) * rng.normal(size=n))
    data = pd.DataFrame({"cell": rng.integers(0, n, rows), "x": rng.normal(size=rows)})
    eta = -0.3 + effect[data["cell"]] + 0.5 * data["x"].to_numpy()
    data, left = observed(family, data, eta, rng)
    scale, level = (7.0, 100.0) if family == "gaussian" else (1.0, 0.0)
    fit = fenchel.fit(f"{left} ~ x + bym2(cell)", data, **options(family) | {"graphs": {"cell": grid}})
    assert fit.converged
    table = fit.coefficients
    assert abs(table.loc["x", "mean"] - 0.5 * scale) < 4 * table.loc["x", "sd"]
    assert abs(table.loc["Intercept", "mean"] - level + scale * (0.3 - effect.mean())) < 0.2 * scale
    assert 0.28 * scale < fit.hyperparameters.loc[("bym2(cell)", "sd"), "value"] < 0.55 * scale
    cells, truth = fit.effects["cell"], scale * (effect - effect.mean())
    assert ((cells["lower"] < truth) & (truth < cells["upper"])).mean() > 0.88
    assert np.corrcoef(cells["mean"], truth)[0, 1] > (0.75 if family == "bernoulli" else 0.9)
    if family == "gaussian":
        assert fit.hyperparameters.loc[("noise", "sd"), "value"] == pytest.approx(1.0, rel=0.05)


# -- regions, times, groups ------------------------------------------------------------------------------
def test_every_way_to_give_a_graph_is_the_same_graph():
    data, _ = observed("poisson", *panel())
    names = [f"r{i}" for i in range(12)]
    named = data.assign(region=[names[i] for i in data["region"]])
    A = ring()
    i, j = np.nonzero(A.toarray())
    edges = np.stack([i, j], axis=1)[i < j]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from([(names[a], names[b]) for a, b in edges])
    ways = [
        (A, names),
        (A.toarray(), names),
        (edges, names),
        (pd.DataFrame(A.toarray(), index=names, columns=names), None),
        (graph, None),
        (graph, names[::-1]),
        ({name: list(graph.neighbors(name)) for name in names}, None),
    ]
    formula = "y ~ age + icar(region)"
    first = fenchel.fit(formula, data, **options("poisson"))
    for way, levels in ways:
        given = {"graphs": {"region": way}, "levels": None if levels is None else {"region": levels}}
        fit = fenchel.fit(formula, named, "poisson", exposure="E", **given)
        assert fit.elbo == pytest.approx(first.elbo, abs=1e-8)
        np.testing.assert_allclose(fit.effects["region"]["mean"][names], first.effects["region"]["mean"], atol=1e-7)


def test_regions_and_times_without_data_are_predicted():
    data, _ = observed("poisson", *panel())
    data = data[(data["region"] != 5) & ~data["year"].isin([2003, 2008])]
    formula = "y ~ age + bym2(region) + rw1(year) + (1|group)"
    fit = fenchel.fit(formula, data, **options("poisson"), levels={"year": range(2000, 2011)})
    new = pd.DataFrame({"region": [5, 5, 4], "year": [2003, 2010, 2004], "group": ["a"] * 3, "age": 0.0, "E": 1.0})
    rho = fit.predict(new, "link", interval=0.9)["sd"]
    assert rho[1] > rho[0] > rho[2]
    assert list(fit.effects["year"].index) == list(range(2000, 2011))
    assert list(fit.effects["year"]["n"][[2000, 2003, 2010]]) == [0, 0, 0]
    beyond = fit.predict(new.assign(year=2012), "link", interval=0.9)["sd"]  # a walk goes on
    assert (beyond >= rho).all()
    with pytest.raises(Refusal, match=r"X\[0, 'region'\] = 12 is unknown to the effect; expected one of 12 levels"):
        fit.predict(new.assign(region=12))


def test_unobserved_rows_are_those_left_out():
    data, left = observed("binomial", *panel())
    hole = np.random.default_rng(9).random(200) < 0.2
    given = options("binomial", levels={"group": ["a", "b", "c"], "year": range(2001, 2009)})
    full = fenchel.fit(f"{left} ~ {RIGHT}", data.assign(y=data["y"].mask(hole)), **given)
    less = fenchel.fit(f"{left} ~ {RIGHT}", data[~hole], **given)
    assert full.elbo == pytest.approx(less.elbo, abs=1e-7)
    np.testing.assert_allclose(full.predict(data), less.predict(data), atol=1e-5)
    weighted = fenchel.fit(f"{left} ~ {RIGHT}", data, **given, weights=(~hole).astype(float))
    assert weighted.elbo == pytest.approx(less.elbo, abs=1e-7)


def test_times_come_as_numbers_dates_periods_and_ordered_categories():
    y = np.random.default_rng(0).poisson(4, 24)
    months = pd.date_range("2020-01-01", periods=24, freq="MS")
    columns = [
        pd.Series(np.arange(24)),
        pd.Series(0.25 * np.arange(24)),
        pd.Series(months),
        pd.Series(months.to_period("M")),
        pd.Series(pd.Categorical([f"t{i:02d}" for i in range(24)], ordered=True)),
        pd.Series(pd.date_range("2020-01-06", periods=24, freq="W-MON")),
    ]
    fits = [fenchel.fit("y ~ rw1(t)", pd.DataFrame({"t": column, "y": y}), "poisson").elbo for column in columns]
    np.testing.assert_allclose(fits, fits[0], atol=1e-8)
    gap = pd.DataFrame({"t": months.to_period("M"), "y": y}).drop([5, 6])
    assert len(fenchel.fit("y ~ rw1(t)", gap, "poisson").effects["t"]) == 24


# -- prediction ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", FAMILIES)
def test_means_quantiles_and_draws_agree(family):
    data, left = observed(family, *panel())
    fit = fenchel.fit(f"{left} ~ {RIGHT}", data, **options(family))
    few = data[:6]
    draws = fit.sample(few, 40_000, 1, kind="outcome")
    np.testing.assert_allclose(draws.mean(axis=0), fit.predict(few), rtol=0.03, atol=0.02)
    ends = fit.predict(few, "outcome", interval=0.9)
    for level, q in ((0.05, ends["lower"].to_numpy()), (0.95, ends["upper"].to_numpy())):
        assert ((draws <= q).mean(axis=0) >= level - 0.01).all()
        assert ((draws < q).mean(axis=0) <= level + 0.01).all()


def test_quantiles_of_known_binomials():
    h, rho = np.array([0.0, 1.0, -3.0]), np.full(3, 1e-20)
    levels = np.array([0.01, 0.3, 0.5, 0.999])
    found = Binomial([10.0, 1.0, 400.0]).predictive_quantile(levels, h, rho)
    expected = scipy.stats.binom.ppf(levels[None, :], np.array([[10], [1], [400]]), 1 / (1 + np.exp(-h[:, None])))
    np.testing.assert_array_equal(found, expected)


# -- priors and errors -----------------------------------------------------------------------------------
def test_priors_pull_and_can_be_switched_off():
    given = {"exposure": "expected", "graphs": {"county": SIDS.adjacency}, "levels": {"county": SIDS.county}}

    def fit(priors):
        return fenchel.fit("deaths ~ bym2(county)", COUNTIES, "poisson", priors={"bym2(county)": priors}, **given)

    flat, default = fit(None), fenchel.fit("deaths ~ bym2(county)", COUNTIES, "poisson", **given)
    assert flat.elbo >= default.elbo - 1e-8
    tight = fit({"sd": fenchel.PC(sd=0.05, alpha=0.01)})
    assert tight.theta[0] < default.theta[0] - 0.25
    same = fit({"sd": HalfNormal(5.0, 0.05), "phi": Normal(0.0, 1.8)})
    np.testing.assert_allclose(same.theta, default.theta, atol=1e-4)
    half = fit({"phi": None, "sd": None})
    np.testing.assert_allclose(half.theta, flat.theta, atol=1e-4)


def test_the_default_prior_means_the_same_for_every_length_of_a_walk():
    """P(typical sd > 1) = 0.01 whatever the precision's own scale: the start and the bounds move along."""
    rng = np.random.default_rng(0)
    for n in (20, 400):
        data = pd.DataFrame({"t": np.arange(n), "y": rng.poisson(3, n)})
        model = fenchel.Model("y ~ rw2(t)", data, "poisson")
        family, (term,) = model.sum.family(), model.sum.effects
        words = dict(term.readable(family.theta))
        assert words["sd"] == pytest.approx(0.5, rel=1e-6)
        assert family.bounds[0].mean() == pytest.approx(family.theta[0] + np.log(2))


@pytest.mark.parametrize(
    ("right", "given", "change", "sentence"),
    [
        ("bym2(region)", {"graphs": {}}, {}, r"bym2\(region\) has no graph; expected one for 'region'"),
        ("bym2(region, sigma=1)", {}, {}, r"the option 'sigma'; expected precision, phi"),
        ("(1|place)", {}, {}, "there is no column 'place'"),
        (
            "icar(region)",
            {"levels": {"region": list("abc")}},
            {},
            r"levels\['icar\(region\)'\] has 3 entries and the graph 12",
        ),
        ("icar(region)", {"levels": {"region": [0] * 12}}, {}, r"levels\['icar\(region\)'\] names 0 twice"),
        (
            "icar(region)",
            {},
            {"region": 12},
            r"X\[0, 'region'\] = 12 is unknown to the effect; expected one of 12 levels 0, 1, \.\.\., 11\. Name the "
            r"nodes in the graph's order, levels=\{'icar\(region\)': \.\.\.\}, or count them from 0\.",
        ),
        ("rw1(year)", {}, {"year": "1999b"}, r"the column 'rw1\(year\)' holds '1999b', which is not a time"),
        ("age", {"fixed_sd": np.inf}, {}, r"fixed_sd = inf"),
        (
            "(1|group)",
            {"levels": {"group": ["a", "b"]}},
            {},
            r"= 'c' is unknown to the effect; .* A level without data",
        ),
        ("icar(region)", {"graphs": {"region": LOPSIDED}}, {}, r"the adjacency of 'icar\(region\)' has other columns"),
        ("generic(year, R)", {"env": {"R": sp.eye_array(4)}, "levels": {"year": [1]}}, {}, r"the structure 4 rows"),
    ],
)
def test_errors_in_the_voice_of_the_house(right, given, change, sentence):
    data, _, rng = panel()
    data = data.assign(y=rng.integers(0, 2, len(data)))
    for name, value in change.items():
        data[name] = [value, *data[name].tolist()[1:]]
    given = {"graphs": {"region": ring()}, **given}
    with pytest.raises(ValueError, match=sentence):
        fenchel.fit(f"y ~ {right}", data, "poisson", **given)


def test_more_errors():
    data, _, rng = panel()
    data = data.assign(y=rng.integers(0, 5, len(data)).astype(float))
    for change, given, sentence in (
        ({"y": np.nan}, {}, "every y is NaN; expected at least one observed row"),
        ({}, {"trials": data["y"]}, r"trials was given with likelihood=\"poisson\"; expected trials only with"),
        ({}, {"exposure": [1, 2, 3]}, r"exposure has shape \(3,\); expected a number, a column or \(200,\)"),
        ({"y": np.r_[-1, data["y"][1:]]}, {}, r"Poisson: y\[0\] = -1 is (negative|not a count)"),
        ({"y": 0.0}, {"exposure": 0.0}, "no row is observed"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fenchel.fit("y ~ (1|group)", data.assign(**change), "poisson", **given)


def test_without_an_intercept_and_targets_of_pandas():
    data, _ = observed("bernoulli", *panel())
    given = options("bernoulli")
    fit = fenchel.fit("y ~ 0 + leroux(region)", data, **given)
    assert len(fit.coefficients) == 0
    assert list(fit.effects["region"].columns[4:7]) == ["odds_ratio", "or_lower", "or_upper"]
    for kind in (bool, "boolean", "Int64", "Float64"):
        other = fenchel.fit("y ~ 0 + leroux(region)", data.assign(y=data["y"].astype(kind)), **given)
        assert other.elbo == pytest.approx(fit.elbo, abs=1e-9)
    holes = data["y"].astype("Int64")
    holes[3] = pd.NA
    assert fenchel.fit("y ~ 0 + leroux(region)", data.assign(y=holes), **given).solution.n_observed == 199


def test_a_structure_of_ones_own():
    data, _ = observed("poisson", *panel())
    A = ring()
    R = sp.diags_array(np.asarray(A.sum(axis=1)).ravel()) - A
    icar = fenchel.fit("y ~ icar(region)", data, **options("poisson"))
    for constraints in ("C", "'sum-to-zero'"):
        env = {"R": R, "C": np.ones((1, 12))}
        formula = f"y ~ generic(region, R, constraints={constraints})"
        own = fenchel.fit(formula, data, "poisson", exposure="E", env=env)
        assert own.elbo == pytest.approx(icar.elbo, abs=1e-7)
    again = pickle.loads(pickle.dumps(own))
    assert again.effects["region"]["mean"].iloc[0] == pytest.approx(icar.effects["region"]["mean"].iloc[0], abs=1e-5)
