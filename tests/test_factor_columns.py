"""Columns are read for what they are, ordinal columns fitted rightly, complete real tables by their closed form."""

import datetime
import warnings
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from factor_tables import factor_model, parameters_of
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import multivariate_normal

import fenchel
from fenchel.estimators import ProbabilisticPCA, select_components
from fenchel.factors.columns import read
from fenchel.factors.starts import GaussianMoments
from fenchel.factors.table_evidence import learn
from fenchel.likelihoods import BernoulliLogit, Ordinal
from fenchel.plots import plot_biplot, plot_loadings
from fenchel.priors import Features

NA = np.nan
NODES = np.polynomial.hermite_e.hermegauss(80)


def survey(n=400, seed=0, holes=0.05):
    """Ordered items 1 to 5, codes of unordered categories and counts, of two factors: all small whole numbers."""
    rng = np.random.default_rng(seed)
    z, out = rng.normal(size=(n, 2)), {}
    for j in range(5):
        eta = 1.5 * z @ rng.normal(size=2) + rng.logistic(size=n)
        out[f"item{j}"] = 1 + np.searchsorted([-2.0, -0.5, 0.5, 2.0], eta)
    for j, K in enumerate((4, 5, 6)):
        eta = 1.5 * z @ rng.normal(size=(2, K)) + rng.gumbel(size=(n, K))
        out[f"code{j}"] = rng.permutation(K)[np.argmax(eta, axis=1)]
    for j in range(4):
        out[f"count{j}"] = rng.poisson(np.exp(0.4 + 0.4 * z @ rng.normal(size=2)))
    X = pd.DataFrame(out)
    return X.mask(rng.random(X.shape) < holes)


def kind_of(name):
    return {"item": "ordinal", "code": "multinomial", "count": "poisson"}[name.rstrip("0123456789")]


# -- reading -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
def test_items_codes_and_counts_are_told_apart(seed):
    X = survey(seed=seed)
    table = read(X)
    wrong = [c for c in table.columns if c.kind != kind_of(c.name)]
    assert all(c.guessed for c in wrong)  # what is not clear is said to be a guess
    assert len(wrong) <= 1
    assert read(X.to_numpy()).kinds == table.kinds  # floats with holes
    assert read(X.astype("Int64")).kinds == table.kinds
    shown = table.summary()
    assert list(shown.index) == list(X.columns)
    assert shown.loc["item0", "why"].startswith("5 whole numbers from 1 to 5: ordered levels by")


def test_numbers_with_many_values_are_counts_or_real():
    rng = np.random.default_rng(0)
    n = 500
    X = pd.DataFrame(
        {
            "visits": rng.negative_binomial(2, 0.1, n),
            "year": rng.integers(1960, 1990, n),
            "income": np.round(np.exp(10 + 0.5 * rng.normal(size=n))).astype(int),
            "degrees": rng.integers(-20, 20, n),
            "sex": rng.integers(1, 3, n),
            "scale": rng.integers(-2, 3, n),
        }
    )
    table = read(X)
    assert table.kinds == ["poisson", "gaussian", "gaussian", "gaussian", "bernoulli", "ordinal"]
    assert [c.guessed for c in table.columns[1:3]] == [True, True]
    assert table.columns[4].levels == (1, 2)


def test_dtypes_come_first_and_words_before_them():
    size = pd.Categorical(["low", "high", "mid", "low"], categories=["low", "mid", "high"], ordered=True)
    two = pd.Categorical(["no", "yes", "no", "no"], ordered=True)
    X = pd.DataFrame({"size": size, "two": two, "code": [1, 2, 3, 1], "flag": [True, False, True, True]})
    table = read(X)
    assert table.kinds == ["ordinal", "bernoulli", "poisson", "bernoulli"]
    assert [c.guessed for c in table.columns] == [False, False, True, False]  # four cells cannot tell
    np.testing.assert_array_equal(table.values[:, 0], [0, 2, 1, 0])
    asked = read(X, {"code": "ordinal", "size": "multinomial"})
    assert asked.kinds == ["multinomial", "bernoulli", "ordinal", "bernoulli"]
    assert asked.columns[2].levels == (1, 2, 3)
    assert read(X[["code"]], "ordinal").kinds == read(X[["code"]], ["ordinal"]).kinds == ["ordinal"]
    assert asked.columns[2].why == "as asked for"


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["1", "2", "10", "2"], "column 'c' is numbers kept as text, such as '1'; .*pandas.to_numeric"),
        ([datetime.date(2020, 1, d) for d in range(1, 5)], "column 'c' holds dates, such as 2020-01-01.*days since"),
        ([pd.Timestamp("2020"), None, pd.Timestamp("2021"), pd.NaT], "column 'c' holds dates"),
        ([pd.NaT] * 4, "column 'c' holds dates; expected numbers|column 'c' has no data"),
        ([3, 3, 3, 3], "column 'c' has one value only, 3; .* leave it out"),
        ([None, None, None, None], "column 'c' has no data"),
    ],
)
def test_what_is_not_data_is_refused(cells, sentence):
    X = pd.DataFrame({"x": [0.5, 1.5, 0.0, 2.0], "c": pd.Series(cells, dtype=object)})
    with pytest.raises(ValueError, match=sentence):
        ProbabilisticPCA(1).fit(X)


def test_row_numbers_and_text_without_an_order_are_refused():
    with pytest.raises(ValueError, match="column 'id' counts the rows, 7 to 26"):
        read(pd.DataFrame({"id": np.random.default_rng(0).permutation(20) + 7}))
    assert read(pd.DataFrame({"id": range(20)}), {"id": "gaussian"}).kinds == ["gaussian"]
    with pytest.raises(ValueError, match=r"column 'x0' is text, whose order is not known; .*ordered=True"):
        read([["low"], ["high"], ["mid"]], "ordinal")
    with pytest.raises(ValueError, match=r"dtype datetime64.*days since"):
        read(np.array([["2020-01-01"], ["2021-01-01"]], dtype="datetime64[D]"))
    labels = pd.DataFrame({"c": pd.Categorical(["1", "2", "10", "2"]), "t": ["1", "2", "10", "2"]})
    assert read(labels, {"t": "multinomial"}).kinds == ["multinomial", "multinomial"]
    assert read(np.array([[Decimal("1.5")], [Decimal(2)], [None]], dtype=object)).kinds == ["gaussian"]


def test_masked_cells_are_missing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    mask = rng.random(X.shape) < 0.2
    masked = np.ma.array(np.where(mask, 99999.0, X), mask=mask)
    holes = np.where(mask, NA, X)
    np.testing.assert_array_equal(read(masked).values, holes)
    ours, theirs = (ProbabilisticPCA(1, strength=1.0).fit(data) for data in (masked, holes))
    assert ours.elbo_ == theirs.elbo_
    np.testing.assert_array_equal(ours.impute(masked), theirs.impute(holes))
    whole = np.ma.array([[1, 5], [99999, 2], [2, 2], [3, 7]], mask=[[0, 0], [1, 0], [0, 0], [0, 0]])
    assert np.isnan(read(whole).values[1, 0])


def test_one_warning_names_the_guesses():
    X = pd.DataFrame({"a": [3, 1, 0, 9], "b": [2, 7, 1, 1], "x": [0.5, 1.0, 2.5, 0.1]})
    sentence = "2 of 3 columns were read by a guess: 'a' as poisson .*likelihood={'a'"
    with pytest.warns(UserWarning, match=sentence) as caught:
        model = ProbabilisticPCA(1, strength=1.0).fit(X)
    assert len(caught) == 1
    assert model.columns_table()["guessed"].tolist() == [True, True, False]
    assert model.columns_table()["kind"].tolist() == ["poisson", "poisson", "gaussian"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ProbabilisticPCA(1, strength=1.0, likelihood={"a": "poisson", "b": "poisson"}).fit(X)
    with pytest.warns(UserWarning, match="select_components: 2 of 3 columns"):
        select_components(X, [1], n_repeats=0, strength=1.0)


def test_hidden_items_are_predicted_better_than_as_counts():
    X = survey(n=300, holes=0.0)
    rng = np.random.default_rng(1)
    hidden = rng.random(X.shape) < 0.15
    seen = X.mask(hidden)
    costs = {}
    for words in ("auto", "poisson"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = ProbabilisticPCA(2, likelihood=words).fit(seen)
        said = model.impute(seen, return_distribution=True)
        bits = []
        for (row, name), part in said.groupby(["row", "column"]):
            truth = X[name].iloc[row]
            if part.level.iloc[0] is None:  # a count: the Poisson density at its mean is the most it can claim
                rate = part["mean"].iloc[0]
                bits.append(truth * np.log(rate) - rate - gammaln(truth + 1))
            else:
                bits.append(np.log(part.loc[part.level == truth, "mean"].iloc[0]))
        costs[words] = -np.mean(bits)
    assert costs["auto"] < costs["poisson"] - 0.1


# -- ordinal rows, by brute force ----------------------------------------------------------------------
KINDS, LEVELS = ["ordinal", "bernoulli", "ordinal", "poisson", "gaussian", "multinomial"], [4, 2, 3, 0, 0, 3]
CUTS = np.array([-1.0, 0.2, 1.4, -0.3, 0.9])


def some_table(n=6, seed=0, kinds=KINDS, levels=LEVELS):
    rng = np.random.default_rng(seed)
    draws = {
        "poisson": lambda K: rng.poisson(2.0, n),
        "gaussian": lambda K: rng.normal(size=n),
    }
    values = np.stack([draws.get(k, lambda K: rng.integers(0, K, n))(K) for k, K in zip(kinds, levels, strict=True)], 1)
    values = values.astype(float)
    values[rng.random(values.shape) < 0.2] = NA
    return values


def some_parameters(model, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    W, b = scale * rng.normal(size=(model.n_predictors, model.n_components)), 0.5 * rng.normal(size=model.n_predictors)
    b[np.repeat(model.ordered, model.widths)] = 0.0
    return parameters_of(model, W, b, np.where(model.gaussian, 0.7, NA), CUTS)


def cutpoints(at, j):
    return getattr(at.likelihoods[j], "cutpoints", None)


def logistic_cost(h, rho, bound):
    """A bound on E log(1 + e^x), x ~ N(h, rho), written out."""
    if bound == "log-sum":
        return np.logaddexp(0.0, h + rho / 2)
    if bound == "tilted":
        inner = lambda t: t * t * rho / 2 + np.logaddexp(0.0, h + (1 - 2 * t) * rho / 2)
        return minimize_scalar(inner, bounds=(0, 1), method="bounded", options={"xatol": 1e-7}).fun
    x, w = NODES
    return float(w @ np.logaddexp(0.0, h + np.sqrt(rho) * x) / np.sqrt(2 * np.pi))


def cell_cost(kind, y, h, rho, cuts, v, bound):
    if kind == "ordinal":
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        lo, hi = edges[int(y)], edges[int(y) + 1]
        up = logistic_cost(h[0] - hi, rho[0], bound) if np.isfinite(hi) else 0.0
        down = logistic_cost(lo - h[0], rho[0], bound) if np.isfinite(lo) else 0.0
        return up + down - np.log1p(-np.exp(lo - hi))
    if kind == "bernoulli":
        return logistic_cost(h[0], rho[0], bound) - y * h[0]
    if kind == "poisson":
        return np.exp(h[0] + rho[0] / 2) - y * h[0] + gammaln(y + 1)
    if kind == "gaussian":
        return 0.5 * (np.log(2 * np.pi * v) + ((y - h[0]) ** 2 + rho[0]) / v)
    return logsumexp(np.append(h + rho / 2, 0.0)) - np.append(h, 0.0)[int(y)]


@pytest.mark.parametrize("bound", ["tilted", "log-sum", "exact"])
def test_rows_with_ordinal_cells_against_a_search_over_mean_and_variance(bound):
    kinds, levels = (KINDS[:5], LEVELS[:5]) if bound == "exact" else (KINDS, LEVELS)
    model, values = factor_model(kinds, levels, 1, bound), some_table(kinds=kinds, levels=levels)
    at = some_parameters(model)
    fits = model.rows(values, at, tol=1e-12)
    assert fits.converged
    assert (fits.gap >= 0).all()
    for r, y in enumerate(values):

        def shortfall(x, y=y):
            m, v = x[0], np.exp(x[1])
            total = 0.5 * (v + m * m - 1 - x[1])
            for j, own in enumerate(model.slices):
                if not np.isnan(y[j]):
                    w, b = at.loadings[own, 0], at.offset[own]
                    cost = kinds[j], y[j], w * m + b, w * w * v, cutpoints(at, j), 0.7, bound
                    total += cell_cost(*cost)
            return total

        best = minimize(shortfall, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-10})
        assert fits.elbo[r] == pytest.approx(-best.fun, abs=1e-7)
        assert fits.mean[r, 0] == pytest.approx(best.x[0], abs=2e-4)
        assert fits.covariance[r, 0, 0] == pytest.approx(np.exp(best.x[1]), rel=2e-3)
        # and below log p of the row, by adding up over z
        z = np.linspace(-10, 10, 401)
        log_p = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
        for j, own in enumerate(model.slices):
            if not np.isnan(y[j]):
                eta, cuts = at.loadings[own] * z + at.offset[own][:, None], cutpoints(at, j)
                log_p -= [cell_cost(kinds[j], y[j], e, 0 * e, cuts, 0.7, "log-sum") for e in eta.T]
        evidence = logsumexp(log_p) + np.log(z[1] - z[0])
        assert fits.elbo[r] <= evidence + 1e-9
        assert fits.elbo[r] > evidence - (0.1 if bound == "exact" else 1.5)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("bound", ["tilted", "log-sum"])
def test_rows_are_those_of_the_library(scale, bound):
    """One column of each kind that ``infer`` can mix: the general solver on the row's own features."""
    model = factor_model(["ordinal"] * 5 + ["bernoulli"] * 4, [4] * 5 + [2] * 4, 3, bound)
    rng = np.random.default_rng(2)
    cuts = np.tile([-1.0, 0.2, 1.4], 5)
    at = parameters_of(model, scale * rng.normal(size=(9, 3)), np.zeros(9), np.full(9, NA), cuts)
    values = np.hstack([rng.integers(0, 4, (5, 5)), rng.integers(0, 2, (5, 4))]).astype(float)
    fits = model.rows(values, at, tol=1e-12)
    assert fits.converged
    parts = [Ordinal([-1.0, 0.2, 1.4], bound), BernoulliLogit(bound)]
    mixed = fenchel.likelihoods.Mixed(parts, np.repeat([0, 1], [5, 4]))
    for r, y in enumerate(values):
        alone = fenchel.infer(mixed, Features(at.loadings, 1.0), y, tol=1e-12)
        assert fits.elbo[r] == pytest.approx(alone.elbo, abs=1e-8, rel=1e-9)
        np.testing.assert_allclose(fits.mean[r], alone.posterior.latent_mean, atol=2e-5)
        np.testing.assert_allclose(fits.rho[r], np.ravel(alone.posterior.variance), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("bound", ["tilted", "log-sum", "exact"])
def test_slopes_in_the_cutpoints_against_differences(bound):
    kinds, levels = (KINDS[:5], LEVELS[:5]) if bound == "exact" else (KINDS, LEVELS)
    model, values = factor_model(kinds, levels, 2, bound), some_table(n=8, kinds=kinds, levels=levels)
    at = some_parameters(model)
    found = model.evidence(values, at, tol=1e-15)
    theta = np.concatenate([own.theta for own in at.likelihoods if own.ordered])
    places = np.flatnonzero(np.repeat(model.ordered, [own.theta.size for own in at.likelihoods]))

    def value(theta):
        cuts = [np.cumsum(np.append(t[:1], np.exp(t[1:]))) for t in (theta[:3], theta[3:])]
        p = parameters_of(model, at.loadings, at.offset, at.variance, np.concatenate(cuts))
        return model.evidence(values, p, tol=1e-15).elbo

    for i in range(theta.size):
        e = 1e-4 * np.eye(theta.size)[i]
        assert found.own[places[i]] == pytest.approx((value(theta + e) - value(theta - e)) / 2e-4, rel=1e-5, abs=1e-5)
    e = np.random.default_rng(0).normal(size=at.loadings.shape)

    def moved(t):
        return model.evidence(values, replace(at, loadings=at.loadings + t * e), tol=1e-15).elbo

    assert np.sum(found.loadings * e) == pytest.approx((moved(1e-4) - moved(-1e-4)) / 2e-4, rel=1e-5)


def test_hard_rows_reach_their_gap():
    rng = np.random.default_rng(0)
    for _ in range(150):
        L, D = int(rng.integers(1, 7)), int(rng.integers(6, 14))
        kinds = [str(k) for k in rng.choice(["bernoulli", "poisson", "multinomial", "ordinal", "gaussian"], D)]
        levels = [int(K) for K in rng.integers(2, 6, D)]
        model = factor_model(kinds, levels, L, str(rng.choice(["tilted", "log-sum"])))
        size = 10 ** rng.uniform(-2, 2)
        sizes = [K - 1 for K, own in zip(levels, model.ordered, strict=True) if own]
        steps = [np.cumsum(rng.gamma(1.0, 1.0, size) + 1e-3) for size in sizes]
        at = parameters_of(
            model,
            size * rng.normal(size=(model.n_predictors, L)),
            3 * rng.normal(size=model.n_predictors),
            np.where(model.gaussian, 10 ** rng.uniform(-3, 2), NA),
            np.concatenate([np.zeros(0), *steps]),
        )
        most = [2 if kind == "bernoulli" else K for kind, K in zip(kinds, levels, strict=True)]
        table = some_table(n=6, seed=int(rng.integers(1000)), kinds=kinds, levels=most)
        fits = model.rows(table, at, tol=1e-10)
        assert fits.converged
        assert (fits.gap >= 0).all()


# -- ordinal columns through every door ----------------------------------------------------------------
def ordered_frame(n=250, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    words = np.array(["never", "rarely", "often", "always"])
    out = {}
    for j in range(5):
        level = np.searchsorted([-1.5, 0.0, 1.5], 2.0 * z + rng.logistic(size=n))
        out[f"q{j}"] = pd.Categorical(words[level], categories=words, ordered=True)
    X = pd.DataFrame(out).assign(code=pd.Categorical(rng.choice(list("abc"), n)), x=z + rng.normal(size=n))
    return X.mask(rng.random(X.shape) < 0.08), z


@pytest.mark.parametrize("bound", ["tilted", "exact"])
def test_ordinal_columns_are_learned(bound):
    X, z = ordered_frame()
    if bound == "exact":
        X, z = X.drop(columns="code").iloc[:120], z[:120]
    model = ProbabilisticPCA(1, bound=bound, strength=0.1).fit(X)
    assert model.converged_
    assert model.columns_table().loc["q0", "kind"] == "ordinal"
    assert abs(np.corrcoef(model.transform(X)[:, 0], z)[0, 1]) > 0.85
    for name in ("q0", "q4"):
        np.testing.assert_allclose(model.cutpoints_[name], [-1.5, 0.0, 1.5], atol=0.9)
    assert model.offset_[0] == 0.0
    assert (np.abs(model.components_[0, :5]) > 1.0).all()
    p = model.inverse_transform(np.array([[0.7]]))
    cuts, w = model.cutpoints_["q0"], model.components_[0, 0]
    below = expit(cuts - 0.7 * w)
    levels = [f"q0={k}" for k in ("never", "rarely", "often", "always")]
    np.testing.assert_allclose(p[levels].iloc[0], np.diff([0, *below, 1]))
    filled = model.impute(X)
    assert not filled.isna().any().any()
    assert filled["q0"].dtype == X["q0"].dtype
    said = model.impute(X, return_distribution=True)
    sums = said[said.column == "q0"].groupby("row")["mean"].sum()
    np.testing.assert_allclose(sums, 1.0)
    # the most probable level by adding up over q(z)
    row = int(said[said.column == "q0"].row.iloc[0])
    m, V = (x[0] for x in model.transform(X.iloc[[row]], return_cov=True))
    grid = m[0] + np.sqrt(V[0, 0]) * np.linspace(-9, 9, 4001)
    weight = np.exp(-0.5 * np.linspace(-9, 9, 4001) ** 2)
    below = np.vstack([0 * grid, expit(cuts[:, None] - w * grid), 0 * grid + 1])
    inner = np.diff(below, axis=0) @ weight / weight.sum()
    np.testing.assert_allclose(said[(said.column == "q0") & (said.row == row)]["mean"], inner, atol=1e-6)
    drawn = model.sample(500, random_state=0)
    assert set(drawn["q0"]) <= {"never", "rarely", "often", "always"}
    assert np.isfinite(model.score_samples(X)).all()
    assert len(model.get_feature_names_out()) == 1
    plot_loadings(model.components_.T, model.predictor_names_)


def test_ordinal_columns_are_chosen_and_drawn():
    X, _ = ordered_frame(150)
    found = select_components(X, [1, 2], random_state=0, max_iter=60)
    assert (found.bits < found.baseline).all()
    model = ProbabilisticPCA(2, strength=1.0).fit(X)
    plot_biplot(np.asarray(model.transform(X)), model.components_.T, names=model.predictor_names_)


# -- complete tables of real numbers -------------------------------------------------------------------
def real_table(n=200, D=9, L=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, L)) @ rng.normal(size=(L, D)) + rng.normal(size=(n, D)) * np.linspace(0.5, 1.5, D) + 3.0


def test_moments_hold_the_whole_evidence():
    X = real_table()
    model = factor_model(["gaussian"] * 9, [0] * 9, 3)
    rng = np.random.default_rng(1)
    at = parameters_of(model, rng.normal(size=(9, 3)), 3 + rng.normal(size=9), rng.gamma(2.0, 0.5, 9))
    ours, rows = GaussianMoments.of(X).evidence(at), model.evidence(X, at, tol=1e-14)
    C = at.loadings @ at.loadings.T + np.diag(at.variance)
    assert ours.elbo == pytest.approx(multivariate_normal(at.offset, C).logpdf(X).sum(), rel=1e-12)
    assert rows.elbo == pytest.approx(ours.elbo, rel=1e-10)
    for name in ("loadings", "offset", "own", "second"):
        np.testing.assert_allclose(getattr(ours, name), getattr(rows, name), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("L", [1, 3, 8])
def test_one_noise_is_tipping_and_bishops_closed_form(L):
    X = real_table()
    found = learn(factor_model(["gaussian"] * 9, [0] * 9, L, noise="shared"), X, strength=0.0)
    assert found.converged
    _, d, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    roots = d**2 / 200
    v = roots[L:].mean()
    assert found.parameters.variance[0] == pytest.approx(v, rel=1e-10)
    WW = (Vt[:L].T * (roots[:L] - v)) @ Vt[:L]
    np.testing.assert_allclose(found.parameters.loadings @ found.parameters.loadings.T, WW, atol=1e-9)
    closed = -100 * (9 * np.log(2 * np.pi) + np.log(roots[:L]).sum() + (9 - L) * np.log(v) + 9)
    assert found.elbo == pytest.approx(closed, rel=1e-12)
    assert found.n_iter <= 2


@pytest.mark.parametrize("noise", ["column", "shared"])
@pytest.mark.parametrize("strength", [3.0, "learned"])
def test_moments_and_rows_have_one_maximum(noise, strength):
    """The same table with a row of holes beside it has no moments: it is learned row by row, as every table was."""
    X = real_table(n=150, D=8, L=2, seed=3)
    holed = np.vstack([X, np.full((1, 8), NA)])
    model = factor_model(["gaussian"] * 8, [0] * 8, 2, noise=noise)
    ours, rows = (learn(model, data, strength=strength, tol=1e-11, max_iter=2000) for data in (X, holed))
    assert ours.objective == pytest.approx(rows.objective, rel=1e-7)
    assert ours.strength == pytest.approx(rows.strength, rel=1e-4)
    np.testing.assert_allclose(ours.parameters.variance, rows.parameters.variance, rtol=1e-3)
    W, other = ours.parameters.loadings, rows.parameters.loadings
    np.testing.assert_allclose(W @ W.T, other @ other.T, atol=2e-3)


def test_a_strong_prior_leaves_fewer_factors_and_the_search_agrees():
    X = real_table(n=60, D=5, L=1)
    C = np.cov(X.T, bias=True)
    for strength in (1.0, 30.0, 1e3):
        found = learn(factor_model(["gaussian"] * 5, [0] * 5, 3, noise="shared"), X, strength=strength)

        def cost(x, strength=strength):
            W = x[:15].reshape(5, 3)
            full = W @ W.T + np.exp(x[15]) * np.eye(5)
            inner = np.linalg.slogdet(full)[1] + np.trace(np.linalg.solve(full, C)) + 5 * np.log(2 * np.pi)
            return 30 * inner + 0.5 * strength * np.sum(W * W)

        starts = np.random.default_rng(0).normal(size=(4, 16))
        best = min(minimize(cost, x, method="BFGS", options={"gtol": 1e-7}).fun for x in starts)
        assert -found.objective == pytest.approx(best, rel=1e-8)
