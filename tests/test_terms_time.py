"""Series at irregular times and of any order, and replicates of them: against the processes' own covariances."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import difference
from scipy.interpolate import make_smoothing_spline
from scipy.linalg import block_diag, solve_discrete_lyapunov, toeplitz
from scipy.stats import multivariate_normal

import fenchel
from fenchel.hyperparameters import learn
from fenchel.linalg import constraint_bases as bases
from fenchel.models.remarks import of_terms
from fenchel.priors import SparsePrecision
from fenchel.terms import (
    AR,
    AR1,
    IID,
    RW1,
    RW2,
    DataTable,
    IntegratedWiener,
    OrnsteinUhlenbeck,
    Replicated,
    Seasonal,
    SumOfTerms,
    Wiener,
)

RNG = np.random.default_rng(12)
T = np.sort(RNG.uniform(0.0, 20.0, 25))
Y = np.sin(T / 2) + 0.2 * RNG.normal(size=25)
NEW = np.array([-2.0, 0.3, T[3], 11.11, T[24], 24.0])


def fitted(term, y, table, noise=0.1, theta=None):
    model = SumOfTerms([term], table, fixed_variance=1e3)
    theta = model.family().theta if theta is None else np.asarray(theta)
    sol = fenchel.infer(fenchel.Gaussian(noise), model.family().at(theta), y, tol=1e-13)
    return model, sol, lambda new: sol.posterior.predict(model.new_rows(theta, DataTable("here", new)))


def regression(K, seen, y, noise, fixed, variance):
    """Mean and variance of Gaussian regression at all points, the first ``seen`` of them observed."""
    S = K + (fixed * variance) @ fixed.T
    A = S[:seen, :seen] + noise * np.eye(seen)
    gain = np.linalg.solve(A, S[:seen]).T
    return gain @ y, np.diag(S - gain @ S[:seen]), multivariate_normal(np.zeros(seen), A).logpdf(y)


def without(K, basis, seen):
    """The covariance of f less its least-squares fit by ``basis`` over the points that were seen."""
    P = np.eye(len(K)) - basis @ np.hstack([np.linalg.pinv(basis[:seen]), np.zeros((basis.shape[1], len(K) - seen))])
    return P @ K @ P.T


@pytest.mark.parametrize("kind", [Wiener, IntegratedWiener])
def test_walks_in_continuous_time_are_their_covariance_at_any_time(kind):
    _, sol, predict = fitted(kind("t"), Y, DataTable("here", {"t": T}), theta=[0.2])
    every = np.r_[T, NEW] + 10.0
    s, t = np.minimum.outer(every, every), np.maximum.outer(every, every)
    if kind is Wiener:
        K, basis, X = s, np.ones((31, 1)), np.ones((31, 1))
    else:
        K, basis = s**2 * (3 * t - s) / 6, np.stack([np.ones(31), every], axis=1)
        X = np.stack([np.ones(31), (every - every[:25].mean()) / every[:25].std()], axis=1)
    K = without(K, basis, 25)
    K *= np.exp(0.4) / np.exp(np.log(np.diag(K)[:25]).mean())
    mean, variance, evidence = regression(K, 25, Y, 0.1, X, 1e3)
    assert sol.elbo == pytest.approx(evidence, abs=1e-5)
    found = predict({"t": NEW})
    np.testing.assert_allclose(found[0], mean[25:], atol=1e-5)
    np.testing.assert_allclose(found[1], variance[25:], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sol.posterior.variance, variance[:25], rtol=1e-4)


def test_equal_gaps_are_the_walk_and_the_autoregression():
    t, y = np.arange(2000, 2030), np.random.default_rng(0).poisson(3.0, 30).astype(float)
    table = DataTable("here", {"t": t})

    def elbo(term, theta):
        return fenchel.infer(fenchel.Poisson(), SumOfTerms([term], table).family().at(theta), y, tol=1e-12).elbo

    spread = RW1("t").read(table, 1.0).spread
    assert elbo(Wiener("t"), [np.log(0.7)]) == pytest.approx(elbo(RW1("t"), [np.log(0.7 / spread**0.5)]), abs=1e-8)
    phi, v = 0.8, 0.6
    one = elbo(AR1("t"), [np.log(v) / 2, 2 * np.arctanh(phi)])
    assert elbo(AR("t", 1), [np.log(v) / 2, 2 * np.arctanh(phi)]) == pytest.approx(one, abs=1e-9)
    assert elbo(OrnsteinUhlenbeck("t"), [np.log(v) / 2, np.log(-2 / np.log(phi))]) == pytest.approx(one, abs=1e-9)


def test_a_smooth_walk_is_the_smoothing_spline():
    model, sol, predict = fitted(IntegratedWiener("t"), Y, DataTable("here", {"t": T}))
    term = model.effects[0]
    sd = np.exp(term.hyperparameters[0].start)
    lam = 0.1 * term.unit / sd**2 * term.step**3
    witness = make_smoothing_spline(T, Y, lam=lam)
    np.testing.assert_allclose(sol.posterior.mean, witness(T), atol=1e-5)
    inside = np.linspace(T[0], T[-1], 40)
    np.testing.assert_allclose(predict({"t": inside})[0], witness(inside), atol=1e-5)


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("kind", [Wiener, IntegratedWiener])
def test_times_next_to_one_another(kind, gap):
    """Two such times are one knot: steps of rate 1 / gap, or gap^-3, leave no digits."""
    times = np.sort(np.r_[0.8 * np.arange(25.0), 8.0 + gap])
    term = kind("t").read(DataTable("here", {"t": times}), 1.0)
    s, t = np.minimum.outer(times + 10, times + 10), np.maximum.outer(times + 10, times + 10)
    line = np.stack([np.ones(26), times], axis=1)
    K = without(s, line[:, :1], 26) if kind is Wiener else without(s**2 * (3 * t - s) / 6, line, 26)
    prior = fenchel.SparsePrecision(
        term.precision(np.zeros(1))[0], design=term.shown()[1].design, constraints=term.constraints
    )
    found = np.ravel(prior.bind(26, 1, False).variance)
    np.testing.assert_allclose(found, np.diag(K) / np.exp(np.log(np.diag(K)).mean()), rtol=1e-5)


def test_an_ornstein_uhlenbeck_process():
    theta = np.array([0.1, 1.3])
    model, sol, _ = fitted(OrnsteinUhlenbeck("t"), Y, DataTable("here", {"t": T}), theta=theta)
    K = np.exp(0.2) * np.exp(-2 * np.abs(T[:, None] - T) / np.exp(1.3))
    term = model.effects[0]
    np.testing.assert_allclose(np.linalg.inv(term.precision(theta)[0].toarray()), K, atol=1e-10)
    for wide in (-3.0, 6.0):
        numeric = difference(lambda t: term.precision(t)[0].toarray(), np.array([0.1, wide]), step=1e-5)
        Q, slopes = term.precision(np.array([0.1, wide]))
        np.testing.assert_allclose(slopes[1].toarray(), np.asarray(numeric)[..., 1], atol=1e-6 * abs(Q).max())
    assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(25), K + 1e3 + 0.1 * np.eye(25)).logpdf(Y), abs=1e-5)
    assert dict(term.readable(theta))["range"] == pytest.approx(np.exp(1.3))
    with pytest.raises(ValueError, match="is unknown to the effect"):
        term.rows(DataTable("here", {"t": [3.3]}), new=True)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_an_autoregression_by_its_companion_matrix(p):
    theta = np.r_[0.3, 1.2, -0.8, 0.5, 0.9][: p + 1]
    term = AR("t", p).read(DataTable("here", {"t": np.arange(12)}), 1.0)
    phi = np.array([value for name, value in term.readable(theta) if name.startswith("phi")])
    F = np.vstack([phi, np.eye(p)[: p - 1]])
    noise = np.zeros((p, p))
    noise[0, 0] = 1.0
    V = solve_discrete_lyapunov(F, noise)
    gamma = [V[0, 0]]
    power = V
    for _ in range(11):
        power = F @ power
        gamma.append(power[0, 0])
    K = np.exp(0.6) * toeplitz(gamma) / gamma[0]
    np.testing.assert_allclose(np.linalg.inv(term.precision(theta)[0].toarray()), K, atol=1e-9)


def test_dates_and_sentences():
    dates = pd.to_datetime(["2020-01-01", "2020-01-05", "2020-03-01", "2020-03-02"])
    days = (dates - dates[0]).days.to_numpy().astype(float)
    one, other = (Wiener("t").read(DataTable("here", {"t": t}), 1.0) for t in (dates, days))
    np.testing.assert_allclose(one.structure.toarray(), other.structure.toarray(), atol=1e-9)
    later = one.rows(DataTable("here", {"t": pd.to_datetime(["2020-02-01"])}), new=True)
    np.testing.assert_allclose(
        later.design.toarray(), other.rows(DataTable("here", {"t": [31.0]}), True).design.toarray()
    )
    cases = [
        (Wiener("t"), [1.0, 1.0], "here: the effect 't' has 1 time; expected at least 2"),
        (IntegratedWiener("t"), [1.0, 2.0], "here: the effect 't' has 2 times; expected at least 3"),
        (
            Wiener("t"),
            ["a", "b"],
            "here: the column 't' holds 'a', which is not a time; expected numbers or dates",
        ),
        (OrnsteinUhlenbeck("t"), [1.0, 1.0], "here: the effect 't' has 1 time; expected at least 2"),
        (AR("t", 3), [1, 2, 3], "here: the effect 't' has 3 times; expected at least 4"),
    ]
    for term, t, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            term.read(DataTable("here", {"t": t}), 1.0)
    with pytest.raises(ValueError, match=r"here: X\[1, 't'\] is missing; expected a time in every row"):
        one.rows(DataTable("here", {"t": [dates[0], None]}), new=True)
    with pytest.raises(ValueError, match="AR: p = 0; expected an integer >= 1"):
        AR("t", 0)


# -- replicates ------------------------------------------------------------------------------------------
GROUPS, STEPS = 5, 12
PANEL = {"g": np.repeat(list("abcde"), STEPS), "t": np.tile(np.arange(STEPS), GROUPS)}
SERIES = {
    "rw1": RW1("t"),
    "rw2": RW2("t"),
    "ar1": AR1("t"),
    "seasonal": Seasonal("t", 4),
    "wiener": Wiener("t"),
    "integrated": IntegratedWiener("t"),
    "ou": OrnsteinUhlenbeck("t"),
    "ar": AR("t", 2),
}


def constrained_covariance(term, theta):
    """Of the values of a series at its times, by dense algebra."""
    Q, seen = term.precision(theta)[0].toarray(), term.shown()[1].design.toarray()
    if term.constraints is None:
        return seen @ np.linalg.inv(Q) @ seen.T
    free = np.linalg.svd(np.asarray(term.constraints))[2][len(np.asarray(term.constraints)) :].T
    return seen @ free @ np.linalg.inv(free.T @ Q @ free) @ free.T @ seen.T


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("few", [0, 1000])
def test_replicates_are_a_block_each(name, few, monkeypatch):
    """By a sparse basis of what the constraints leave free, and by conditioning on them."""
    monkeypatch.setattr(bases, "_MANY", few)
    table, series = DataTable("here", PANEL), SERIES[name].read(DataTable("here", PANEL), 1.0)
    term = Replicated(SERIES[name], "g").read(table, 1.0)
    rest = [h.start for h in series.hyperparameters[1:]]
    sd, rows = 0.8, term.rows(table)
    Q = term.precision(np.r_[np.log(sd), rest])[0].toarray()
    if term.constraints is None:
        V = np.linalg.inv(Q)
    else:
        free = np.linalg.svd(term.constraints)[2][len(term.constraints) :].T
        V = free @ np.linalg.inv(free.T @ Q @ free) @ free.T
    one = constrained_covariance(series, np.r_[0.0, rest]) / series.spread * sd**2
    np.testing.assert_allclose(rows.design @ V @ rows.design.T, block_diag(*[one] * GROUPS), atol=1e-8)
    prior = SparsePrecision(sp.csc_array(Q), design=rows.design, constraints=term.constraints)
    found = np.asarray(prior.bind(prior.n_rows, 1, False).variance).ravel()
    np.testing.assert_allclose(found, np.tile(np.diag(one), GROUPS), atol=1e-8)
    assert len(term.fixed_names) == GROUPS * len(series.fixed_names)
    np.testing.assert_allclose(rows.fixed.sum(axis=1), series.rows(table).fixed.sum(axis=1), atol=1e-10)
    new, unseen = term.new_rows(np.r_[np.log(sd), rest], DataTable("here", {"g": ["zz", "b"], "t": [4, 4]}))
    extra = sum(part.variance for part in unseen)
    np.testing.assert_allclose(extra, [one[4, 4], 0.0], atol=1e-10)
    np.testing.assert_allclose(new.design.toarray()[0], 0.0)
    labels, shown = term.shown()
    assert labels[STEPS + 1] == ("b", 1)
    np.testing.assert_allclose(shown.design.toarray(), rows.design.toarray(), atol=1e-12)


def test_replicates_are_learned():
    rng = np.random.default_rng(1)
    g, t = np.repeat(np.arange(40), 25), np.tile(np.arange(25), 40)
    phi, sd = 0.85, 0.7
    z = np.zeros((40, 25))
    z[:, 0] = sd * rng.normal(size=40)
    for i in range(1, 25):
        z[:, i] = phi * z[:, i - 1] + sd * np.sqrt(1 - phi**2) * rng.normal(size=40)
    y = rng.poisson(np.exp(1.0 + z[g, t])).astype(float)
    model = SumOfTerms([Replicated(AR1("t"), "g")], DataTable("here", {"g": g, "t": t}))
    found = learn(fenchel.Poisson(), model.family(), y)
    assert found.converged
    words = dict(model.effects[0].readable(found.theta))
    assert words["sd"] == pytest.approx(0.7, abs=0.1)
    assert words["phi"] == pytest.approx(0.85, abs=0.06)


def test_replicates_of_walks_with_levels_of_groups_and_units_of_time():
    rng = np.random.default_rng(2)
    panel = {"g": np.repeat(np.arange(8), 15), "t": np.sort(rng.uniform(0, 10, (8, 15)), axis=1).ravel()}
    y = rng.poisson(np.exp(1.0 + np.sin(panel["t"] + panel["g"]))).astype(float)
    elbos = []
    for factor in (1.0, 1e3):
        table = DataTable("here", {"g": panel["g"], "t": factor * panel["t"]})
        model = SumOfTerms([IID("g"), Replicated(Wiener("t"), "g", name="w")], table)
        elbos.append(learn(fenchel.Poisson(), model.family(), y, gtol=1e-5).solution.elbo)
    assert elbos[1] == pytest.approx(elbos[0], abs=1e-6)


def test_thousands_of_irregular_times():
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0.0, 30.0, 3000))
    y = np.sin(t) + 0.5 * rng.normal(size=3000)
    model, sol, _ = fitted(IntegratedWiener("t"), y, DataTable("here", {"t": t}), noise=0.25, theta=[np.log(5.0)])
    term = model.effects[0]
    assert term.knots.size <= 2000
    lam = 0.25 * term.unit / 25.0 * term.step**3
    np.testing.assert_allclose(sol.posterior.mean, make_smoothing_spline(t, y, lam=lam)(t), atol=2e-4)


@pytest.mark.parametrize(
    "word", ["rw1(t)", "ar1(t)", "ar(t, 2)", "rw1(u)", "rw2(u)", "ar1(u)", "matern(u)", "rw1(t, by=g)"]
)
def test_a_time_far_from_the_others_is_named(word):
    t = np.repeat(np.arange(12), 5)
    data = pd.DataFrame({"t": t, "u": t + np.linspace(0.0, 0.9, 60), "g": np.arange(60) % 2, "y": np.sin(t)})
    assert not any("far away" in remark for remark in of_terms(fenchel.Model(f"y ~ {word}", data)))
    data.loc[7, ["t", "u"]] = 99
    with pytest.warns(UserWarning, match=r"row 7 \([tu] = 99\) lies .* as far away as the other 59 rows are wide"):
        fenchel.Model(f"y ~ {word}", data)


def test_other_campaigns_and_dates_are_no_slips():
    t = np.concatenate([np.arange(30.0), 200.0 + np.arange(30.0)])
    data = pd.DataFrame({"t": t, "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(t, unit="D"), "y": np.sin(t)})
    for word in ("rw1(t)", "matern(t)", "matern(day)"):
        assert not of_terms(fenchel.Model(f"y ~ {word}", data))
    lives = pd.DataFrame({"time": [*np.linspace(0.1, 3.0, 38), 60.0, 100.0], "event": 1, "x": np.arange(40) % 3})
    assert not of_terms(fenchel.Model("cens(time, event) ~ x", lives, "cox"))
