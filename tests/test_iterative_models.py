"""Models by a formula under the iterative engine: the same answers as the direct one's, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fenchel
from fenchel import gates
from fenchel.checks import Refusal
from fenchel.files import archive
from fenchel.iterative import EstimatedInterval
from fenchel.linalg.supernodal import factor_cost

FORMULA = "y ~ x + c + (x|a) + (1|b)"


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    out = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "a": rng.integers(0, 150, n),
            "b": rng.integers(0, 120, n),
            "c": rng.choice(list("uvw"), n),
        }
    )
    u, s, v = 0.6 * rng.normal(size=150), 0.3 * rng.normal(size=150), 0.8 * rng.normal(size=120)
    eta = 0.2 + 0.4 * out.x + u[out.a] + s[out.a] * out.x + v[out.b]
    out["y"] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    out["z"] = eta + rng.normal(size=n)
    return out


@pytest.fixture(scope="module")
def both():
    data = table()
    return data, *(fenchel.fit(FORMULA, data, "bernoulli", engine=engine) for engine in ("iterative", "direct"))


def test_tables_are_those_of_the_direct_engine(both):
    _, found, direct = both
    assert found.converged
    assert isinstance(found.gap, EstimatedInterval)
    columns = ["mean", "sd"]
    np.testing.assert_allclose(found.coefficients[columns], direct.coefficients[columns], rtol=0.01, atol=2e-3)
    np.testing.assert_allclose(found.covariance, direct.covariance, rtol=0.03, atol=1e-5)
    mine, theirs = found.hyperparameters, direct.hyperparameters
    assert (np.abs(mine["value"] - theirs["value"]) <= 6.0 * mine["error"] + 1e-4).all()
    assert list(mine.index) == list(theirs.index)
    for name in found.effects:
        ours, exact = found.effects[name], direct.effects[name]
        np.testing.assert_allclose(ours["mean"], exact["mean"], atol=0.01)
        off = np.abs(ours["sd"] - exact["sd"]).to_numpy()
        assert (off <= 6.0 * ours["sd_error"] + 2e-3 * exact["sd"]).mean() > 0.98


def test_predictions_are_those_of_the_direct_engine(both):
    data, found, direct = both
    some = data.iloc[:200].assign(b=[999, *data.b[1:200]])
    for new in (None, some, data.iloc[:5]):
        ours, exact = found.predict(new, interval=0.9), direct.predict(new, interval=0.9)
        np.testing.assert_allclose(ours, exact, atol=0.01)
    draws = found.sample(data.iloc[:3], 2000, 0, kind="link")
    np.testing.assert_allclose(draws.mean(axis=0), direct.predict(data.iloc[:3], "link"), atol=0.06)
    np.testing.assert_allclose(found.slopes("x")["estimate"], direct.slopes("x")["estimate"], atol=0.01)


def test_the_summary_prints_intervals(both):
    _, found, _ = both
    which, first, second, third = found.summary().splitlines()[:4]
    assert which == "Gaussian at the mode: by the iterative engine"
    assert first.startswith("converged: gap [")
    assert "with probability 0.99 (decrement), log evidence at least [" in first
    assert "32 probes" in second
    assert third.strip().startswith("for certain: log evidence at least -")
    assert "gap=[" in repr(found)


@pytest.mark.parametrize("name", ["corrected", "loo", "waic", "leave_group_out", "k_fold", "to_arviz"])
def test_what_has_no_answer_says_so(both, name):
    with pytest.raises(Refusal, match=f"{name}: .*; expected "):
        getattr(both[1], name)(*(["a"] if name == "leave_group_out" else []))


def test_a_check_that_leaves_rows_out_is_refused(both):
    with pytest.raises(Refusal, match="kind = 'pit' of a bernoulli response; expected one of 'reliability', 'bars'"):
        both[1].plot_check("pit")


def test_a_loaded_fit_gives_the_same_bits(both, tmp_path):
    data, found, _ = both
    assert found.summary()
    assert found.predict().shape == (len(data),)
    assert all(len(found.effects[name]) for name in found.effects)
    found.save(tmp_path / "fit")
    again = fenchel.load(tmp_path / "fit")
    for rows in (
        data.head(20),
        data.head(500),
        data.head(3).assign(a=[1, 2, 999]),
    ):  # by solves, by probes, a new group
        for options in ({}, {"kind": "link"}, {"interval": 0.9}):
            np.testing.assert_array_equal(again.predict(rows, **options), found.predict(rows, **options))
    np.testing.assert_array_equal(again.predict(), found.predict())
    np.testing.assert_array_equal(again.sample(data.head(5), 3, 0), found.sample(data.head(5), 3, 0))
    assert again.summary() == found.summary()
    assert again.found.state.settled
    assert again.found.state.decrement == np.inf  # of a step that was not taken
    for name in found.effects:
        pd.testing.assert_frame_equal(again.effects[name], found.effects[name], check_exact=True)
    again.save(tmp_path / "twice")
    assert (tmp_path / "twice").stat().st_size <= 1.01 * (tmp_path / "fit").stat().st_size  # what was asked is not kept


def test_numbers_of_a_file_that_do_not_fit_are_refused(both, tmp_path):
    found = both[1]
    found.save(tmp_path / "fit")
    content, arrays = archive.read(tmp_path / "fit")
    rows = next(i for i, array in enumerate(arrays) if np.array_equal(array, found.found.state.rho))
    for wrong in (arrays[rows][:-1], np.zeros(3), np.zeros((2, 2))):
        archive.write(tmp_path / "odd", content, [*arrays[:rows], wrong, *arrays[rows + 1 :]])
        with pytest.raises(ValueError, match="is damaged"):
            fenchel.load(tmp_path / "odd")


def test_several_groups_a_row_and_noise():
    data = table(1200, 1)
    data["b2"] = (data.b + 1 + np.arange(len(data)) % 7) % 120
    formula = "z ~ x + (1|a) + (1|mm(b, b2))"
    found, direct = (fenchel.fit(formula, data, "gaussian", engine=engine) for engine in ("iterative", "direct"))
    mine, theirs = found.hyperparameters, direct.hyperparameters
    assert (np.abs(mine["value"] - theirs["value"]) <= 6.0 * mine["error"] + 1e-3).all()
    assert found.elbo.lower <= direct.elbo <= found.elbo.upper


def test_auto_takes_it_only_where_a_factor_would_not_fit(monkeypatch):
    data = table(600, 2)
    model = fenchel.Model("z ~ x + (1|a) + (1|b)", data, "gaussian")
    assert model.fit().engine.name == ""
    monkeypatch.setattr(gates, "DIRECT_LATENTS", 10)
    assert model.fit().engine.name == ""  # its factor is small
    monkeypatch.setattr(gates, "DIRECT_WORK", 1e3)
    with pytest.warns(UserWarning, match="the iterative engine fits this model and its gap is an interval"):
        assert model.fit().engine.name == "iterative"
    assert type(model.fit(engine="direct")).__name__ == "FittedModel"
    walk = fenchel.Model("z ~ x + rw1(a)", data, "gaussian")  # not supported
    assert type(walk.fit()).__name__ == "FittedModel"


def test_the_cost_of_a_factor_is_that_of_the_factor():
    rng = np.random.default_rng(0)
    A = sp.random_array((60, 60), density=0.05, rng=rng, format="csc")
    A = sp.csc_array(A + A.T + 60 * sp.eye_array(60))
    leaves = np.zeros(60, dtype=bool)
    order = np.argsort(np.diff(A.indptr), kind="stable")
    L = np.linalg.cholesky(A.toarray()[np.ix_(order, order)])
    assert factor_cost(A, leaves, 100.0).memory == np.inf
    assert factor_cost(A, leaves, 1e6).memory == 8.0 * np.count_nonzero(L)


def test_bad_questions_are_refused():
    data = table(300, 3)
    model = fenchel.Model("y ~ x + (1|a)", data, "bernoulli")
    with pytest.raises(Refusal, match="engine"):
        model.fit(engine="magic")
    with pytest.raises(Refusal, match=r'engine = "iterative" with integrate; expected integrate left out'):
        model.fit(engine="iterative", integrate="auto")
    with pytest.raises(Refusal, match=r"the term rw1\(x2\) is not supported: it has constraints"):
        fenchel.fit("y ~ rw1(x2)", data.assign(x2=np.arange(300) % 150), "bernoulli", engine="iterative")


def test_probes_of_the_direct_engine_are_refused():
    with pytest.raises(Refusal, match="n_probes with engine"):
        fenchel.fit("y ~ x + (1|b)", table(200), "bernoulli", engine="direct", n_probes=16)
