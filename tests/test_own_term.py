"""Terms of a user's own, and slopes of groups: everything that the areal estimator does, it does with them."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import difference, fit_at_start
from scipy.interpolate import BSpline
from sklearn.base import clone

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import Normal, learn
from fenchel.terms import (
    IID,
    RW1,
    RW2,
    WORDS,
    Covariate,
    DataTable,
    LevelTerm,
    SumOfTerms,
    Term,
    TermRows,
    correlation,
    deviation,
    register,
)


class Cyclic(LevelTerm):
    """A random walk around the clock: the last level is next to the first."""

    word, in_time = "cyclic", True

    def field(self, **start):
        n = len(self.levels)
        D = sp.eye_array(n) - sp.diags_array([1.0, 1.0], offsets=[1, 1 - n], shape=(n, n))
        return gmrf.generic(D.T @ D, constraints=np.ones((1, n)), **start)


class Spline(Term):
    """A cubic spline whose coefficients are a walk of second order, with its line among the fixed effects."""

    def __init__(self, column, n=8):
        self.column = self.name = column
        self.n_latents = n

    @property
    def columns(self):
        return (self.column,)

    def read(self, table, scale):
        out, x = copy.copy(self), table.column(self.column).numbers()
        out.low, out.high, out.field = x.min(), x.max(), gmrf.rw2(self.n_latents)
        out.constraints, out.fixed_names = out.field.constraints, [f"{self.name} (line)"]
        out.hyperparameters = (deviation("sd", scale / 10.0**0.5, unit=10.0**-0.5),)
        return out

    def precision(self, theta):
        return self.field.build(theta)

    def rows(self, table, new=False):
        return self.basis(table.column(self.column).numbers())

    def basis(self, x):
        inner = np.linspace(self.low, self.high, self.n_latents - 2)
        knots = np.r_[[self.low] * 3, inner, [self.high] * 3]
        inside = np.clip(x, self.low, self.high)
        return TermRows(sp.csr_array(BSpline.design_matrix(inside, knots, 3)), x[:, None])

    def shown(self):
        grid = np.linspace(self.low, self.high, 11)
        return grid.tolist(), self.basis(grid)


class Pairs:
    """I kron Sigma^-1 of n pairs (intercept, slope); theta = (log sd, log sd, 2 atanh correlation)."""

    def __init__(self, n):
        self.n = n

    def covariance(self, theta):
        s, r = np.exp(np.asarray(theta[:2])), np.tanh(theta[2] / 2)
        return np.outer(s, s) * np.array([[1.0, r], [r, 1.0]])

    def __call__(self, theta):
        S, r = self.covariance(theta), np.tanh(theta[2] / 2)
        P, cross = np.linalg.inv(S), S[0, 1]
        off = np.sqrt(S[0, 0] * S[1, 1]) * (1 - r * r) / 2
        slopes = [np.array([[2 * S[0, 0], cross], [cross, 0.0]]), np.array([[0.0, cross], [cross, 2 * S[1, 1]]])]
        slopes.append(np.array([[0.0, off], [off, 0.0]]))
        eye = sp.eye_array(self.n)
        return sp.csc_array(sp.kron(eye, P)), [sp.csc_array(sp.kron(eye, -P @ dS @ P)) for dS in slopes]


class Correlated(LevelTerm):
    """(1 + x | g): an intercept and a slope for every group, correlated."""

    word, grows, options = "correlated", True, ()

    def typical_variance(self, column):
        return 1.0

    def starts(self, k):
        return {"variance": 1.0 / k}

    def field(self, variance):
        names = ["log sd", "log slope sd", "logit correlation"]
        return gmrf.MarkovField(Pairs(len(self.levels)), [np.log(variance) / 2, np.log(variance) / 2, 0.0], names)

    def typed(self, scale, theta):
        sizes = deviation("sd", scale, np.exp(theta[0])), deviation("slope sd", scale, np.exp(theta[1]))
        return *sizes, correlation("correlation", theta[2], Normal(0.0, 1.5))

    def population(self, theta):
        return Pairs(len(self.levels)).covariance(theta)

    def rows(self, table, new=False):
        codes = self.codes(table.column(self.column), new)
        pair = np.stack([np.ones(codes.size), table.column(self.by).numbers()], axis=1)
        known = codes >= 0
        at = np.repeat(np.flatnonzero(known), 2), (2 * codes[known, None] + [0, 1]).ravel()
        design = sp.csr_array((pair[known].ravel(), at), shape=(codes.size, self.n_latents))
        return TermRows(design, np.zeros((codes.size, 0)), codes, np.where(known[:, None], 0.0, pair))

    def shown(self):
        labels = [(level, what) for level in self.levels for what in ("intercept", "slope")]
        return labels, TermRows(sp.eye_array(self.n_latents, format="csr"), np.zeros((self.n_latents, 0)))


def clock(n=240):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"hour": rng.integers(0, 24, n), "x": rng.normal(2.0, 1.0, n), "g": rng.choice(list("abcdef"), n)})
    X = X[X["hour"] != 5].reset_index(drop=True)  # an hour without data
    slopes = dict(zip("abcdef", 0.5 * rng.normal(size=6), strict=True))
    eta = np.cos(2 * np.pi * X["hour"] / 24) + X["x"] * (0.2 + X["g"].map(slopes))
    return X, rng.poisson(np.exp(eta)).astype(float)


X, Y = clock()
DATA = X.assign(y=Y)


def hours():
    return Cyclic("hour", levels=range(24))


def test_a_cyclic_walk_is_the_structure_written_out():
    own = fenchel.fit("y ~ x", DATA, "poisson", terms=[hours()])
    D = np.eye(24) - np.roll(np.eye(24), 1, axis=1)
    formula = "y ~ x + generic(hour, R, constraints='sum-to-zero')"
    by_hand = fenchel.fit(formula, DATA, "poisson", env={"R": D.T @ D}, levels={"hour": range(24)})
    assert own.converged
    assert own.elbo == pytest.approx(by_hand.elbo, abs=1e-8)
    np.testing.assert_allclose(own.theta, by_hand.theta, atol=1e-6)
    pd.testing.assert_frame_equal(own.effects["hour"], by_hand.effects["hour"], rtol=1e-5)
    assert own.hyperparameters.index.tolist() == [("hour", "sd")]
    table = own.effects["hour"]
    assert table["n"].loc[5] == 0
    assert table["mean"].loc[5] == pytest.approx(table["mean"].loc[[4, 6]].mean(), abs=0.01)  # between its neighbours
    assert table["mean"].loc[0] > table["mean"].loc[12]


def test_a_registered_term_has_its_word_in_formulas():
    register(Cyclic)
    try:
        levels = {"hour": range(24)}
        by_word = fenchel.fit("y ~ x + cyclic(hour)", DATA, "poisson", levels=levels)
        by_object = fenchel.fit("y ~ x", DATA, "poisson", terms=[hours()])
        assert by_word.elbo == pytest.approx(by_object.elbo, abs=1e-9)
        each = fenchel.Model("y ~ cyclic(hour, by=g)", DATA, "poisson", levels=levels)  # it is in time
        assert each.sum.effects[0].n_latents == 6 * 24
        with pytest.raises(ValueError, match=r"cyclic\(\) is Cyclic already"):
            register(type("Other", (Cyclic,), {}))
    finally:
        WORDS.pop("cyclic")
    with pytest.raises(ValueError, match=r"no function cyclic\(\)"):
        fenchel.Model("y ~ cyclic(hour)", DATA, "poisson")
    with pytest.raises(ValueError, match=r"the word of Spline is None; expected a name"):
        register(Spline)


def test_prediction_at_new_rows_and_unseen_levels():
    fit = fenchel.fit("y ~ x + (1|g)", DATA, "poisson", terms=[hours()])
    new = pd.DataFrame({"hour": [5, 23], "x": [2.0, 3.0], "g": ["a", "unseen"]})
    assert (fit.predict(new) > 0).all()
    unseen, seen = (fit.predict(new.assign(g=group), interval=0.95) for group in ("unseen", "a"))
    assert (unseen["upper"] / unseen["lower"] > 1.5 * seen["upper"] / seen["lower"]).all()
    sentence = r"X\[0, 'hour'\] = 24 is unknown to the effect; expected one of 24 levels 0, 1, \.\.\., 23"
    with pytest.raises(ValueError, match=sentence):
        fit.predict(new.assign(hour=24))
    assert np.isfinite(fit.loo().elpd)
    assert fit.loo().elpd < 0


def test_a_spline_is_smooth_and_keeps_its_line():
    rng = np.random.default_rng(1)
    x = rng.uniform(0.0, 10.0, 300)
    data = pd.DataFrame({"x": x, "y": np.sin(x) + 0.5 * x + 0.3 * rng.normal(size=300)})
    fit = fenchel.fit("y ~ 1", data, terms=[Spline("x", n=14)])
    grid = np.linspace(0.3, 9.7, 40)
    np.testing.assert_allclose(fit.predict(pd.DataFrame({"x": grid})), np.sin(grid) + 0.5 * grid, atol=0.25)
    assert list(fit.coefficients.index) == ["Intercept", "x (line)"]
    table = fit.effects["x"]
    assert table.index.tolist() == pytest.approx(np.linspace(x.min(), x.max(), 11).tolist())
    assert table["mean"].iloc[-1] - table["mean"].iloc[0] == pytest.approx(np.sin(10) + 5.0, abs=0.5)
    moved = fenchel.fit("y ~ 1", data.assign(x=1e3 * x + 1e5), terms=[Spline("x", n=14)])
    assert moved.elbo == pytest.approx(fit.elbo, abs=1e-6)


class Nodes(Term):
    """Effects of the nodes 0, ..., n-1 under a structure of one's own, summing to zero."""

    constraints = "sum-to-zero"

    def __init__(self, column, structure):
        self.column = self.name = column
        self.structure, self.n_latents = sp.csc_array(structure), len(structure)

    @property
    def columns(self):
        return (self.column,)

    def read(self, table, scale):
        out = copy.copy(self)
        out.hyperparameters = (deviation("sd", scale),)
        return out

    def precision(self, theta):
        Q = np.exp(-2 * theta[0]) * self.structure
        return Q, [-2.0 * Q]

    def rows(self, table, new=False):
        codes = table.column(self.column).numbers().astype(int)
        at = np.arange(codes.size), codes
        return TermRows(
            sp.csr_array((np.ones(codes.size), at), shape=(codes.size, self.n_latents)), np.zeros((codes.size, 0))
        )


def test_sum_to_zero_is_one_sum_for_each_part_and_one_in_all_where_every_node_stands_alone():
    D = np.diff(np.eye(24), axis=0)
    walk, apart = D.T @ D, np.diag(np.r_[np.ones(12), 2.0 * np.ones(12)])
    half = walk.copy()  # two parts, and a node alone
    half[11, 11], half[12, 12], half[11, 12], half[12, 11] = 1.0, 1.0, 0.0, 0.0
    half[0], half[:, 0], half[0, 0], half[1, 1] = 0.0, 0.0, 1.0, 1.0
    parts = np.zeros((3, 24))
    parts[0, 1:12], parts[1, 12:], parts[2, 0] = 1.0, 1.0, 1.0
    for structure, rows in ((walk, np.ones((1, 24))), (apart, np.ones((1, 24))), (half, parts)):
        own = fenchel.fit("y ~ x", DATA, "poisson", terms=[Nodes("hour", structure)])
        spelled = Nodes("hour", structure)
        spelled.constraints = rows
        by_rows = fenchel.fit("y ~ x", DATA, "poisson", terms=[spelled])
        assert own.converged
        assert own.elbo == pytest.approx(by_rows.elbo, abs=1e-9)
        z = own.solution.posterior.latent_mean[:24]
        np.testing.assert_allclose(rows @ z, 0.0, atol=1e-9)
        assert np.abs(z).max() > 0.3


def test_the_evidence_gradient_of_terms_of_ones_own():
    table = DataTable("here", {"hour": X["hour"].to_numpy(), "x": X["x"].to_numpy(), "g": X["g"].to_list()})
    terms = [Cyclic("hour", levels=range(24)), Spline("x"), IID("g", by="x"), Correlated("g", by="x", name="pairs")]
    family = SumOfTerms(terms, table, offset=0.5).family()
    theta = family.theta + 0.1
    evidence = lambda t: fenchel.infer(fenchel.Poisson(), family.at(t), Y, tol=1e-15)
    numeric = difference(lambda t: evidence(t).elbo, theta, step=1e-4)
    np.testing.assert_allclose(family.gradient(evidence(theta), theta), numeric, rtol=1e-5, atol=1e-6)


def test_a_precision_is_made_once_a_theta():
    made = []

    class Counted(Cyclic):
        def precision(self, theta):
            made.append(theta.copy())
            return super().precision(theta)

    family = SumOfTerms([Counted("hour", levels=range(24))], DataTable("here", X)).family()
    found = learn(fenchel.Poisson(), family, Y)
    assert found.converged
    different = len({theta.tobytes() for theta in made})
    assert len(made) <= different + 1  # where the search begins may have been looked at before
    assert different <= found.n_evaluations <= len(made) + 1


# -- slopes ----------------------------------------------------------------------------------------------
def test_a_random_slope_is_a_column_times_an_indicator():
    fit = fit_at_start("y ~ x", DATA, terms=[IID("g"), IID("g", by="x")])
    assert list(fit.effects) == ["g", "x | g"]
    codes = X["g"].map({name: i for i, name in enumerate("abcdef")}).to_numpy()
    indicator = np.eye(6)[codes]
    k = np.exp(-2 * fit.theta)
    parts = [(gmrf.iid(6, k[0]), codes), (gmrf.iid(6, k[1]), indicator * X[["x"]].to_numpy())]
    by_hand = gmrf.stack(parts, fixed=X[["x"]], offset=np.log(Y.mean()))
    sol = fenchel.infer(fenchel.Poisson(), by_hand.at(), Y, tol=1e-10)
    assert fit.elbo == pytest.approx(sol.elbo, abs=1e-8)
    np.testing.assert_allclose(fit.effects["x | g"]["mean"], sol.posterior.latent_mean[6:12], atol=1e-7)
    new = pd.DataFrame({"g": ["a", "zz", "zz"], "x": [1.0, 0.0, 3.0]})
    eta, plain = (fit.predict(rows, "link", interval=0.9) for rows in (new, new.assign(g="a")))
    pd.testing.assert_series_equal(eta.iloc[0], plain.iloc[0])
    rho = eta["sd"] ** 2
    assert rho[2] - rho[1] > 9.0 / k[1] - 1e-9  # the population's variance of a slope, times x squared


def test_a_slope_means_the_same_in_every_unit():
    metres = fenchel.fit("y ~ x", DATA, "poisson", terms=[IID("g", by="x")])
    kilometres = fenchel.fit("y ~ x", DATA.assign(x=X["x"] / 1e3), "poisson", terms=[IID("g", by="x")])
    assert kilometres.elbo == pytest.approx(metres.elbo, abs=1e-6)
    sd = [m.hyperparameters["value"]["x | g", "sd"] for m in (metres, kilometres)]
    assert sd[1] == pytest.approx(1e3 * sd[0], rel=1e-4)


def test_correlated_slopes_are_a_term_too():
    """sds 1 and 0.5, correlation -0.8, of 60 groups; and independent pairs are two independent terms."""
    rng = np.random.default_rng(2)
    S = np.array([[1.0, -0.4], [-0.4, 0.25]])
    b, g, x = rng.multivariate_normal([0.0, 0.0], S, size=60), np.repeat(np.arange(60), 12), rng.normal(size=720)
    frame = pd.DataFrame({"g": g, "x": x, "y": 3.0 + b[g, 0] + b[g, 1] * x + 0.3 * rng.normal(size=720)})
    fit = fenchel.fit("y ~ x", frame, terms=[Correlated("g", by="x", name="(1 + x | g)")])
    v, w = np.exp(2 * fit.theta[:2])
    assert v**0.5 == pytest.approx(1.0, abs=0.25)
    assert w**0.5 == pytest.approx(0.5, abs=0.12)
    assert np.tanh(fit.theta[2] / 2) == pytest.approx(-0.8, abs=0.12)
    table = fit.effects["(1 + x | g)"]
    assert np.corrcoef(table["mean"].to_numpy()[1::2], b[:, 1] - b[:, 1].mean())[0, 1] > 0.95
    new = pd.DataFrame({"g": [0, 99, 99], "x": [0.0, 0.0, 2.0]})
    rho = fit.predict(new, "link", interval=0.9)["sd"] ** 2
    S = fit.model.sum.effects[0].population(fit.theta[:3])
    np.testing.assert_allclose(rho[1:], [w @ S @ w for w in np.array([[1.0, 0.0], [1.0, 2.0]])], atol=0.05)
    together = fit_at_start("y ~ x", frame, "gaussian", terms=[Correlated("g", by="x")])
    v = np.exp(2 * together.theta[0])
    pair = [IID("g", precision=1 / v), IID("g", by="x", precision=1 / v)]
    apart = fit_at_start("y ~ x", frame, "gaussian", terms=pair)
    assert together.elbo == pytest.approx(apart.elbo, abs=1e-7)


def test_several_terms_on_one_column():
    pair = [RW2("hour"), IID("hour", name="noise of the hour", precision=9.0)]
    fit = fenchel.fit("y ~ 1", DATA, "poisson", terms=pair, priors={"noise of the hour": Normal(3.0, 1.0)})
    assert list(fit.effects) == ["hour", "noise of the hour"]
    assert list(fit.coefficients.index) == ["Intercept", "hour (slope)"]
    with pytest.raises(ValueError, match="two effects are called 'hour'; expected a name each"):
        fenchel.fit("y ~ 1", DATA, "poisson", terms=[RW1("hour"), IID("hour")])


# -- pickles ---------------------------------------------------------------------------------------------
def test_a_fitted_model_pickles_and_predicts_in_a_fresh_process(tmp_path):
    model = fenchel.FormulaRegressor("y ~ 1", "poisson", terms=[hours(), Spline("x"), IID("g", by="x")]).fit(X, Y)
    again = clone(model).fit(X, Y)
    np.testing.assert_array_equal(again.fit_.theta, model.fit_.theta)
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(model))
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import pickle, test_own_term as t\n"
        f"m = pickle.load(open({str(path)!r}, 'rb')); print(m.predict(t.X).sum(), m.fit_.effects['x']['mean'].sum())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    expected = model.predict(X).sum(), model.fit_.effects["x"]["mean"].sum()
    np.testing.assert_allclose([float(number) for number in found], expected, rtol=1e-12)


def test_what_is_not_a_term():
    with pytest.raises(ValueError, match=r"Cyclic: the option 'phi'; expected precision"):
        Cyclic("hour", phi=0.5)
    with pytest.raises(ValueError, match=r"an entry of terms"):
        fenchel.fit("y ~ x", DATA, "poisson", terms=["iid"])
    covariate = Covariate("g").read(DataTable("here", X), 1.0)
    assert covariate.fixed_names == [f"g[{level}]" for level in "bcdef"]
    with pytest.raises(ValueError, match=r"here: X\[0, 'g'\] = 'q' was not seen in fit"):
        covariate.rows(DataTable("here", {"g": ["q"]}), new=True)
