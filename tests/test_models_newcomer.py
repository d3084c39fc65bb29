"""What newcomers from lme4 and mgcv tripped over."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fenchel


@pytest.fixture(scope="module")
def years():
    year = np.repeat(np.arange(1960, 1991), 10)
    return pd.DataFrame({"year": year, "y": 0.005 * (year - 1975) ** 2 + np.random.default_rng(0).normal(size=310)})


@pytest.mark.parametrize("formula", ["y ~ year + I(year**2)", "y ~ I(year - 1975) + I((year - 1975)**2)"])
def test_a_square_beside_its_year_is_least_squares(years, formula):
    new = pd.DataFrame({"year": [1960, 1975, 1990]})
    found = fenchel.fit(formula, years).predict(new)
    t = years.year - 1975
    b = np.linalg.lstsq(np.column_stack([np.ones(310), t, t**2]), years.y, rcond=None)[0]
    s = new.year - 1975
    np.testing.assert_allclose(found, b[0] + b[1] * s + b[2] * s**2, atol=2e-3)


def test_coefficients_of_nearly_collinear_columns_are_the_users(years):
    fit = fenchel.fit("y ~ year + I(year**2)", years)
    t = years.year - 1975
    b = np.linalg.lstsq(np.column_stack([np.ones(310), t, t**2]), years.y, rcond=None)[0]
    own = fit.coefficients["mean"]
    assert own["I(year ** 2)"] == pytest.approx(b[2], rel=1e-3)
    assert own["year"] == pytest.approx(b[1] - 2 * 1975 * b[2], rel=1e-3)
    at = own["Intercept"] + own["year"] * 1975 + own["I(year ** 2)"] * 1975**2
    assert at == pytest.approx(b[0], abs=1e-3)


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(1)
    of = np.repeat(np.arange(40), 5)
    frame = pd.DataFrame({"g": [f"s{i}" for i in of], "x": rng.normal(size=200)})
    return frame.assign(y=1.8 * rng.normal(size=40)[of] + rng.normal(size=200))


def test_two_groups_that_fit_has_not_seen_differ(groups):
    fit = fenchel.fit("y ~ x + (1|g)", groups)
    sd = fit.hyperparameters["value"].iloc[0]
    one, two = ({"g": [name], "x": [0.0]} for name in ("new", "newer"))
    assert fit.contrast(one, two)["sd"].iloc[0] == pytest.approx(np.sqrt(2) * sd, rel=0.1)
    assert fit.contrast(one, one)["sd"].iloc[0] == 0.0


def test_leave_one_out_names_the_rows_of_the_data(groups):
    data = groups.assign(x=groups.x.where(np.arange(200) >= 10), y=groups.y.where(np.arange(200) != 100, 50.0))
    found = fenchel.fit("y ~ x + (1|g)", data).loo()
    assert found.log_density.shape == (200,)
    assert np.isnan(found.log_density[:10]).all()
    assert int(np.nanargmin(found.log_density)) == 100


def test_levels_of_a_graph_hold_within_an_interaction():
    names = [f"r{i}" for i in range(6)]
    line = np.diag(np.ones(5), 1)
    data = pd.DataFrame([(name, t) for name in names for t in range(8)], columns=["r", "t"])
    data["y"] = np.random.default_rng(0).poisson(2.0, len(data))
    given = {"graphs": {"r": line + line.T}, "levels": {"r": names}}
    by_matrix = fenchel.fit("y ~ interact(icar(r), rw1(t))", data, "poisson", **given)
    pairs = {a: [b for b in names if abs(names.index(a) - names.index(b)) == 1] for a in names}
    by_names = fenchel.fit("y ~ interact(icar(r), rw1(t))", data, "poisson", graphs={"r": pairs})
    assert by_matrix.elbo == pytest.approx(by_names.elbo, abs=1e-6)
    np.testing.assert_allclose(by_matrix.predict(data), by_names.predict(data), rtol=1e-5)
