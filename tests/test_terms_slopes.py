"""Random intercepts and slopes: against dense algebra, in any unit and from any origin, and recovered from data."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import difference, fit_at_start
from scipy.stats import multivariate_normal

import fenchel
from fenchel.hyperparameters import learn
from fenchel.hyperparameters.priors import PCDeviation
from fenchel.terms import IID, Covariate, DataTable, Grouped, SumOfTerms
from fenchel.terms.base import PartialCorrelation

N = 120
RNG = np.random.default_rng(3)
ROWS = {
    "g": np.repeat(np.arange(12), 10),
    "h": np.array(["u", "v"])[np.arange(N) % 2],
    "x": RNG.normal(5.0, 2.0, N),
    "z": RNG.uniform(-1.0, 1.0, N),
    "f": np.array(["low", "mid", "high"])[RNG.integers(0, 3, N)],
}
TABLE = DataTable("here", ROWS)
KINDS = {
    "1 | g": Grouped("g"),
    "1 | g:h": Grouped(("g", "h")),
    "1 + x | g": Grouped("g", "x"),
    "1 + x || g": Grouped("g", "x", correlated=False),
    "0 + x | g": Grouped("g", "x", intercept=False),
    "1 + x + z | g": Grouped("g", ["x", "z"]),
    "1 + f | g": Grouped("g", "f"),
    "0 + f | h": Grouped("h", "f", intercept=False),
}
every_kind = pytest.mark.parametrize("name", KINDS)


def start_of(term):
    return np.array([h.start for h in term.hyperparameters])


@every_kind
def test_the_contract(name):
    term = KINDS[name].read(TABLE, 1.0)
    assert term.name == name
    theta = start_of(term) + 0.3 * np.arange(1, len(term.hyperparameters) + 1)
    Q, slopes = term.precision(theta)
    numeric = np.moveaxis(np.asarray(difference(lambda t: term.precision(t)[0].toarray(), theta, step=1e-5)), -1, 0)
    for slope, other in zip(slopes, numeric, strict=True):
        np.testing.assert_allclose(slope.toarray(), other, atol=1e-6 * abs(Q).max())
        assert (slope.indices == Q.indices).all()
    S = term.population(theta)
    np.testing.assert_allclose(Q.toarray(), np.kron(np.eye(len(term.levels)), np.linalg.inv(S)), atol=1e-10)
    assert term.precision(start_of(term))[0].nnz == Q.nnz
    rows = term.rows(TABLE)
    some = DataTable("here", {key: column[5:9] for key, column in ROWS.items()})
    np.testing.assert_array_equal(term.rows(some, new=True).design.toarray(), rows.design.toarray()[5:9])
    again = pickle.loads(pickle.dumps(term))
    assert [h.prior for h in again.hyperparameters] == [h.prior for h in term.hyperparameters]
    np.testing.assert_array_equal(again.rows(TABLE).design.toarray(), rows.design.toarray())


@every_kind
def test_eta_is_the_users_columns_times_the_users_coefficients(name):
    """W z, against intercept and slopes as they are shown: b0[g] + x b1[g] written out, and S_user of them."""
    term = KINDS[name].read(TABLE, 1.0)
    z = np.random.default_rng(0).normal(size=term.n_latents)
    labels, shown = term.shown()
    d = len(term.coefficients)
    b = (shown.design @ z).reshape(-1, d)
    assert len(labels) == shown.design.shape[0] == shown.codes.size
    levels = [tuple(level) if isinstance(level, tuple) else level for level in term.levels]
    parts = [ROWS[c] for c in term.group]
    group = [levels.index(v[0] if len(v) == 1 else v) for v in zip(*(p.tolist() for p in parts), strict=True)]
    columns = []
    for coefficient in term.coefficients:
        if coefficient == "intercept":
            columns.append(np.ones(N))
        elif "[" in coefficient:
            columns.append((ROWS["f"] == coefficient[2:-1]).astype(float))
        else:
            columns.append(ROWS[coefficient])
    np.testing.assert_allclose(
        term.rows(TABLE).design @ z, np.sum(np.stack(columns, axis=1) * b[group], axis=1), atol=1e-9
    )
    theta = start_of(term) + 0.2
    V = shown.design @ np.linalg.inv(term.precision(theta)[0].toarray()) @ shown.design.T.toarray()
    np.testing.assert_allclose(V[:d, :d], term.user_covariance(theta), rtol=1e-9)


def test_sds_and_correlations_in_words():
    term = Grouped("g", ["x", "z"]).read(TABLE, 1.0)
    theta = np.array([0.1, -0.5, 0.3, 0.4, -0.8, 0.6])
    words, S = dict(term.readable(theta)), term.user_covariance(theta)
    assert words["sd x"] == pytest.approx(np.exp(-0.5) / ROWS["x"].std())
    assert words["correlation x, z"] == pytest.approx(S[1, 2] / np.sqrt(S[1, 1] * S[2, 2]))
    assert [h.name for h in term.hyperparameters][3:] == [
        "correlation intercept, x",
        "correlation intercept, z",
        "partial correlation x, z",
    ]
    assert term.hyperparameters[1].value(-0.5) == pytest.approx(words["sd x"])
    C = term.population(theta)
    c = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    partial = (c[1, 2] - c[0, 1] * c[0, 2]) / np.sqrt((1 - c[0, 1] ** 2) * (1 - c[0, 2] ** 2))
    assert partial == pytest.approx(np.tanh(0.3))


@pytest.mark.parametrize("prior", [PCDeviation(0.7, 0.05), PartialCorrelation(1.0), PartialCorrelation(2.5)])
def test_priors_are_densities(prior):
    grid = np.linspace(-40.0, 40.0, 400001)
    values = np.array([prior(t) for t in grid[::10]])
    assert np.trapezoid(np.exp(values[:, 0]), grid[::10]) == pytest.approx(1.0, abs=1e-6)
    for t in (-1.3, 0.4):
        assert prior(t)[1] == pytest.approx((prior(t + 1e-6)[0] - prior(t - 1e-6)[0]) / 2e-6, abs=1e-6)


def test_partial_correlations_make_the_lkj_density():
    """p(C) ~ |C|^(eta - 1) of 3 x 3: their joint density over the Jacobian, at several C, is a constant times that."""
    eta, term = 1.7, Grouped("g", ["x", "z"], eta=1.7).read(TABLE, 1.0)

    def correlations(t):
        C = term.population(np.r_[0.0, 0.0, 0.0, t])
        return C[[1, 2, 2], [0, 0, 1]]

    ratio = []
    for t in np.random.default_rng(1).normal(size=(4, 3)):
        log_p = sum(h.prior(v)[0] for h, v in zip(term.hyperparameters[3:], t, strict=True))
        J = np.asarray(difference(correlations, t, step=1e-5))
        C = term.population(np.r_[0.0, 0.0, 0.0, t])
        ratio.append(log_p - np.linalg.slogdet(J)[1] - (eta - 1) * np.linalg.slogdet(C)[1])
    np.testing.assert_allclose(ratio, ratio[0], atol=1e-6)


def test_the_evidence_of_gaussian_data_is_a_normal_density():
    term, y = Grouped("g", ["x", "f"]), np.random.default_rng(2).normal(size=N)
    model = SumOfTerms([term, Covariate("x")], TABLE)
    family = model.family()
    theta = family.theta + 0.2 * np.cos(np.arange(family.theta.size))
    sol = fenchel.infer(fenchel.Gaussian(0.5), family.at(theta), y, tol=1e-12)
    X = np.stack([np.ones(N), (ROWS["x"] - ROWS["x"].mean()) / ROWS["x"].std()], axis=1)
    Z = np.stack([np.ones(N), ROWS["x"], ROWS["f"] == "low", ROWS["f"] == "mid"], axis=1).astype(float)
    same = ROWS["g"][:, None] == ROWS["g"][None, :]
    S = model.effects[0].user_covariance(theta)
    covariance = (Z @ S @ Z.T) * same + 100.0 * X @ X.T + 0.5 * np.eye(N)
    assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(N), covariance).logpdf(y), abs=1e-6)
    evidence = lambda t: fenchel.infer(fenchel.Gaussian(0.5), family.at(t), y, tol=1e-14).elbo
    np.testing.assert_allclose(family.gradient(sol, theta), difference(evidence, theta, step=1e-4), atol=2e-5)


def test_intercepts_alone_are_independent_effects():
    frame = pd.DataFrame(ROWS).assign(y=np.random.default_rng(5).poisson(2.0, N))
    one = fenchel.fit("y ~ x", frame, "poisson", terms=[Grouped("g")])
    other = fenchel.fit("y ~ x", frame, "poisson", terms=[IID("g")])
    assert one.elbo == pytest.approx(other.elbo, abs=0.1)  # the same model; the density of another theta was maximised
    assert one.hyperparameters["value"]["1 | g", "sd"] < 0.2
    assert list(one.effects["1 | g"].index) == list(range(12))


def simulated(seed, groups, each, likelihood):
    rng = np.random.default_rng(seed)
    S = np.array([[1.0, 0.36], [0.36, 0.36]])  # sds 1 and 0.6, correlation 0.6
    b = rng.multivariate_normal([0.0, 0.0], S, groups)
    g, x = np.repeat(np.arange(groups), each), rng.normal(size=groups * each)
    eta = 0.3 + 0.5 * x + b[g, 0] + b[g, 1] * x
    y = rng.random(g.size) < 1 / (1 + np.exp(-eta)) if likelihood == "bernoulli" else rng.poisson(np.exp(eta))
    return {"g": g, "x": x}, y.astype(float), b


def test_a_logistic_random_slope_is_recovered():
    """sds 1 and 0.6 and correlation 0.6 of 120 groups, the mean over three data sets within Monte Carlo error."""
    found = []
    for seed in range(3):
        data, y, _ = simulated(seed, 120, 30, "bernoulli")
        model = SumOfTerms([Grouped("g", "x"), Covariate("x")], DataTable("here", data))
        learned = learn(fenchel.BernoulliLogit(bound="exact"), model.family(), y)
        assert learned.converged
        found.append([value for _, value in model.effects[0].readable(learned.theta)])
    # the sampling sd of one fit is near 0.09, 0.07 and 0.1 (a sample correlation of 120 pairs: 0.06, and noise)
    np.testing.assert_allclose(np.mean(found, axis=0), [1.0, 0.6, 0.6], atol=0.14)


def test_units_and_origins_do_not_matter():
    data, y, _ = simulated(9, 25, 12, "poisson")
    fits = []
    for factor, origin in [(1.0, 0.0), (1e3, 0.0), (1e-3, 5.0), (1.0, 1e6)]:
        moved = {"g": data["g"], "x": factor * data["x"] + origin}
        model = SumOfTerms([Grouped("g", "x"), Covariate("x")], DataTable("here", moved))
        learned = learn(fenchel.Poisson(), model.family(), y, gtol=1e-5)
        fits.append((learned.solution.elbo, factor * dict(model.effects[0].readable(learned.theta))["sd x"]))
    for elbo, sd in fits[1:]:
        assert elbo == pytest.approx(fits[0][0], abs=1e-6)
        assert sd == pytest.approx(fits[0][1], rel=1e-5)


def test_a_new_group_is_of_the_population():
    y = np.random.default_rng(5).poisson(2.0, N).astype(float)
    model = SumOfTerms([Grouped("g", "x"), Covariate("x")], TABLE)
    family = model.family()
    theta = family.theta
    posterior = fenchel.infer(fenchel.Poisson(), family.at(theta), y).posterior

    def variance(g):
        new = model.new_rows(theta, DataTable("here", {"g": g, "x": [0.0, 8.0, 8.0]}))
        return posterior.predict(new)[1]

    rho, plain = variance([99, 99, 3]), variance([3, 3, 3])
    S = model.effects[0].user_covariance(theta)
    X = np.array([[1.0, 0.0], [1.0, 8.0]])
    tail = np.einsum("ni,ij,nj->n", X, model.fixed_effects(fenchel.infer(fenchel.Poisson(), family.at(theta), y))[1], X)
    np.testing.assert_allclose(rho[:2], tail + np.einsum("ni,ij,nj->n", X, S, X), rtol=1e-6)
    assert rho[2] == plain[2]


@pytest.mark.parametrize("seed", [79, 97])
def test_learning_goes_on_where_the_gaps_of_fits_hide_what_is_left(seed):
    """The last rise is smaller than what fits of relative gap 1e-10 differ by: finer ones see it."""
    rng = np.random.default_rng([0, seed])
    u, v = rng.normal(size=(2, 30))
    slope = 0.5 * (0.4 * u + np.sqrt(0.84) * v)
    data = pd.DataFrame({"g": np.repeat(np.arange(30), 10), "x": rng.uniform(-1, 2, 300)})
    data["y"] = 1 + 0.5 * data.x + 0.8 * u[data.g] + slope[data.g] * data.x + rng.normal(size=300)
    fit = fenchel.fit("y ~ x + (x|g)", data, priors={"(x|g)": None})
    assert fit.converged
    assert np.abs(fit.found.gradient).max() <= 1e-3
    assert fit.solution.tol == 1e-10  # what was asked


def test_groups_without_rows_and_rows_alone():
    """A category without data has its prior; a row a group leaves the rest to the prior, too."""
    frame = pd.DataFrame({"g": pd.Categorical(["a", "b", "b"], categories=["a", "b", "c"]), "x": [1.0, 2.0, 4.0]})
    frame.index = [0, 0, 1]
    fit = fit_at_start("y ~ x", frame.assign(y=[1, 3, 2]), terms=[Grouped("g", "x")])
    table = fit.effects["1 + x | g"]
    S = fit.model.sum.effects[0].user_covariance(fit.theta)
    assert table["mean"][[("c", "intercept")]].item() == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(table["sd"].to_numpy()[4:], np.sqrt(np.diag(S)), rtol=1e-6)
    assert table["n"].tolist() == [1, 1, 2, 2, 0, 0]


def test_sentences():
    with pytest.raises(ValueError, match="Grouped: no intercept and no slopes; expected one of them at least"):
        Grouped("g", intercept=False)
    with pytest.raises(ValueError, match=r"here: the slope 'c' of '1 \+ c \| g' is 2 in every row; expected a column"):
        Grouped("g", "c").read(DataTable("here", {"g": [0, 1], "c": [2.0, 2.0]}), 1.0)
    table, new = DataTable("here", {"g": [0, 1], "h": ["a", None]}), DataTable("here", {"h": ["u"], "f": ["huge"]})
    with pytest.raises(ValueError, match=r"here: X\[1, 'g:h'\] = None is NaN or inf; expected a level in every row"):
        Grouped(("g", "h")).read(table, 1.0).rows(table)
    with pytest.raises(ValueError, match=r"here: X\[0, 'f'\] = 'huge' was not seen in fit"):
        KINDS["0 + f | h"].read(TABLE, 1.0).rows(new, new=True)
    with pytest.raises(ValueError, match="here: X has no column 'q'"):
        Grouped("g", "q").read(TABLE, 1.0)
