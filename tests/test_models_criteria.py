"""Criteria and draws of fitted models."""

import numpy as np
import pandas as pd
import pytest

import fenchel


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    out = pd.DataFrame({"x": rng.normal(size=90), "g": rng.integers(0, 9, 90), "n": rng.integers(1, 9, 90)})
    eta = out.x + rng.normal(size=9)[out.g]
    out["y"] = rng.binomial(out.n, 1 / (1 + np.exp(-eta))).astype(float)
    out.loc[3, "y"], out.loc[7, "x"] = np.nan, np.nan
    out.index = [f"row {i}" for i in range(90)]
    return out


@pytest.fixture(scope="module")
def fit(data):
    return fenchel.fit("y | trials(n) ~ x + (1|g)", data, family="binomial")


def test_criteria_are_over_the_rows_of_the_data(fit):
    for found in (fit.loo(), fit.waic(), fit.leave_group_out("g"), fit.k_fold(3, learn=False)):
        assert found.log_density.shape == (90,)
        assert np.flatnonzero(np.isnan(found.log_density)).tolist() == [3, 7]
    assert abs(fit.waic().elpd - fit.loo().elpd) < 1.0
    assert 5.0 < fit.waic().n_parameters < 11.0


def test_corrected_leave_one_out(fit):
    better, plain = fit.loo(corrected=True), fit.loo()
    assert 0.0 < np.nanmean(np.abs(better.log_density - plain.log_density)) < 0.02
    assert np.flatnonzero(np.isnan(better.pit)).tolist() == [3, 7]
    assert ((better.pit_below <= better.pit) | np.isnan(better.pit)).all()


def test_groups_by_column_array_and_correlation(fit, data):
    by_name, by_array = fit.leave_group_out("g"), fit.leave_group_out(data.g)
    np.testing.assert_allclose(by_name.log_density, by_array.log_density)
    whole = fit.leave_group_out("g", refit="all")
    assert np.nanmean(np.abs(whole.log_density - by_name.log_density)) < 0.01
    np.testing.assert_allclose(fit.leave_group_out(1).elpd, fit.k_fold(88, learn=False).elpd, atol=0.05)
    with pytest.raises(ValueError, match="no column 'h'"):
        fit.leave_group_out("h")


def test_folds_keep_groups_together(fit):
    found = fit.k_fold(3, by="g", n_jobs=1)
    assert found.converged.all()
    apart = pd.Series(found.folds[found.folds >= 0]).groupby(fit.model.frame.g.to_numpy()).nunique()
    assert (apart == 1).all()
    assert found.elpd < fit.loo().elpd


def test_compare_has_stacking_weights(fit, data):
    level = fenchel.fit("y | trials(n) ~ 1 + (1|g)", data.assign(z=data.x), family="binomial")
    both = fenchel.fit("y | trials(n) ~ x + (1|g)", data.dropna(subset=["x"]), family="binomial")
    rest = fenchel.fit("y | trials(n) ~ 1 + (1|g)", data.dropna(subset=["x"]), family="binomial")
    out = fenchel.compare({"both": both, "level": rest})
    np.testing.assert_allclose(out.weight.sum(), 1.0, atol=1e-8)
    assert out.weight["both"] > 0.9
    with pytest.raises(ValueError, match="not of the same rows"):
        fenchel.compare({"both": fit, "level": level})


@pytest.mark.filterwarnings("ignore")
def test_arviz_reads_the_draws(fit):
    az = pytest.importorskip("arviz")
    out = fit.to_arviz(250, chains=4)
    found = az.loo(out)
    elpd = getattr(found, "elpd_loo", None) or found.elpd
    assert abs(float(elpd) - fit.loo().elpd) < 0.5
    x = np.asarray(out["posterior"]["x"])
    assert x.shape == (4, 250)
    assert abs(x.mean() - fit.coefficients.loc["x", "mean"]) < 0.02
    assert abs(x.std() - fit.coefficients.loc["x", "sd"]) < 0.02
    assert out["posterior"]["(1|g)"].dims == ("chain", "draw", "g")
    assert list(out["observed_data"]["row"].values[:4]) == ["row 0", "row 1", "row 2", "row 4"]
    assert out["predictions"]["y"].shape == (4, 250, 1)
    assert len(az.compare({"one": out, "two": fit.to_arviz(250, rng=1)})) == 2
    with pytest.raises(ValueError, match="GiB"):
        fit.to_arviz(10**9)


@pytest.mark.filterwarnings("ignore")
def test_arviz_has_hyperparameters_that_were_integrated_over(data):
    pytest.importorskip("arviz")
    fit = fenchel.fit("y | trials(n) ~ x + (1|g)", data, family="binomial", integrate="auto")
    sd = np.asarray(fit.to_arviz(500, predictive=False)["posterior"]["(1|g) sd"])
    row = fit.hyperparameters.loc[("(1|g)", "sd")]
    assert abs(sd.mean() - row["mean"]) < 0.1 * row["sd"]
    assert abs(sd.std() - row["sd"]) < 0.15 * row["sd"]


def test_a_corrected_fit_has_corrected_criteria(fit):
    np.testing.assert_allclose(fit.corrected().loo().log_density, fit.loo(corrected=True).log_density)


def test_a_fit_corrected_by_draws_leaves_rows_out_by_cavities(fit):
    drawn = type(fit)(fit.model, fit.found, answers=fit.solution.importance(64))
    np.testing.assert_array_equal(drawn.loo().log_density, fit.loo().log_density)


def test_groups_have_no_slopes_and_a_loose_tol_is_refused(fit, data):
    with pytest.raises(ValueError, match="which group a row has"):
        fit.comparisons("g")
    assert len(fit.slopes("x")) == 1
    with pytest.raises(ValueError, match="tol"):
        fenchel.fit("y | trials(n) ~ x", data, family="binomial", tol=1.0)
