"""Which latents are groups; and groups without rows or weight, of one row, of two modes, of still slopes."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from test_collapsed import TABLE, Model, check, intercepts, model_of, slopes

import fenchel
from fenchel.corrections.collapsed import collapse
from fenchel.likelihoods import BernoulliLogit, Poisson, StudentT
from fenchel.priors import SparsePrecision


def in_two_terms(model, order=None):
    """Intercepts and slopes as two terms with their own sds; ``order`` of the latents of both."""
    G = model.G
    order = np.concatenate([2 * np.arange(G), 2 * np.arange(G) + 1]) if order is None else order
    order = np.r_[order, 2 * G + np.arange(model.p)]
    Q = np.r_[np.tile(np.diag(model.P), G), np.full(model.p, 1.0 / model.sd**2)]
    prior = SparsePrecision(sp.diags_array(Q[order], format="csc"), design=model.W[:, order])
    return fenchel.infer(model.likelihood, prior, model.y)


@pytest.mark.parametrize("still", [[0, 1], [5], [11], [0, 6, 11]])
def test_slopes_whose_column_is_zero_in_some_groups_are_pairs(still):
    """Latents of slopes that no row sees stand beside the intercepts, of which they are none."""
    model = slopes()
    A = model.A.copy()
    A[np.isin(model.group, still), 1] = 0.0
    model = Model(model.likelihood, model.y, model.X, A, model.group, np.diag([0.5, 1.0]))
    found = in_two_terms(model).corrected()
    assert found.method == "collapsed"
    assert found._data.split.groups.shape == (model.G, 2)
    assert abs(found.log_evidence - model.truth(found)[0]) < 0.02
    slope = model.G + np.array(still)
    np.testing.assert_allclose(found.latents().sd[slope], 1.0, rtol=1e-6)  # as a priori


def test_levels_without_rows_at_either_end():
    table = TABLE.assign(g=pd.Categorical(TABLE["g"], [100, 101, *range(30), 102]))
    table.loc[TABLE["g"] < 2, "x"] = 0.0
    for formula, width in (("y ~ x + (1|g)", 1), ("y ~ x + (1 + x|g)", 2), ("y ~ x + (1|g) + (0 + x|g)", 2)):
        fit = fenchel.fit(formula, table, "bernoulli", accuracy="fast")
        few = fenchel.fit(formula, table.assign(g=table["g"].astype(int)), "bernoulli", accuracy="fast")
        found, other = (one.solution.corrected() for one in (fit, few))
        assert found._data.split.groups.shape == (33, width)
        assert abs(found.log_evidence - other.log_evidence) < 1e-5


def test_a_column_of_groups_before_them_is_no_group():
    """Its rows and those of a group without it are not the same, and it is not one of them."""
    model = model_of("bernoulli")
    X = np.column_stack([model.X, model.group % 2])
    model = Model(model.likelihood, model.y, X, model.A, model.group, model.P)
    order = np.r_[model.G + np.arange(3), np.arange(model.G)]
    Q = np.r_[np.full(model.G, model.P[0, 0]), np.full(3, 1.0 / model.sd**2)]
    prior = SparsePrecision(sp.diags_array(Q[order], format="csc"), design=model.W[:, order])
    found = fenchel.infer(model.likelihood, prior, model.y).corrected()
    assert found.n_groups == model.G
    assert abs(found.log_evidence - collapse(model.solution()).log_evidence) < 1e-6


@pytest.mark.parametrize("apart", [4.0, 20.0])
def test_groups_with_two_far_modes(apart):
    """Half of each group's rows lie about one place and half about another: both count."""
    rng, group = np.random.default_rng(1), np.repeat(np.arange(8), 4)
    y = np.tile([0.0, 0.3, apart, apart + 0.3], 8) + rng.normal(size=8)[group]
    ones = np.ones((group.size, 1))
    model = Model(StudentT(4.0, 0.3), y, ones, ones, group, np.eye(1) / apart**2, coefficient_sd=3.0)
    found = collapse(model.solution())
    log_z = model.truth(found, nodes=41)[0]
    assert abs(found.log_evidence - log_z) < 0.01
    assert found.log_evidence_se < 0.01


def test_the_summary_shows_the_larger_bound_and_says_which():
    fit, plain = (
        fenchel.fit("y ~ x + (1|g)", TABLE, "bernoulli", accuracy="fast", **how)
        for how in ({"evidence": "corrected"}, {})
    )
    low = fit.answers.lower_bound
    assert fit.elbo < low <= fit.answers.log_evidence
    said = f"log evidence at least {low:.3f} with groups integrated out ({fit.elbo:.3f} by the Gaussian)"
    assert said in fit.summary().splitlines()[1]
    assert f"log evidence at least {plain.elbo:.3f}" in plain.summary().splitlines()[1]
    assert "integrated out" not in plain.summary().splitlines()[1]


def test_groups_without_weight_are_as_a_priori():
    model = model_of("bernoulli")
    weights = np.where(model.group < 3, 0.0, 1.0)
    model = Model(model.likelihood, model.y, model.X, model.A, model.group, model.P, weights=weights)
    found, *_ = check(model, 0.01, 0.02, 0.01)
    np.testing.assert_allclose(found.latents().mean[:3], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.latents().sd[:3], 1.5, rtol=1e-6)


def test_exposure_zero():
    """Rows without exposure say nothing, and a group may have no others."""
    rng, group, X, eta = intercepts(G=16)
    exposure = np.where((group < 2) | (np.arange(group.size) % 7 == 0), 0.0, 1.0)
    y = rng.poisson(exposure * np.exp(0.4 * eta)).astype(float)
    model = Model(Poisson(exposure), y, X, np.ones((group.size, 1)), group, np.eye(1) / 2.25)
    found, *_ = check(model, 0.01, 0.02, 0.01)
    np.testing.assert_allclose(found.latents().sd[:2], 1.5, rtol=1e-6)


@pytest.mark.parametrize("G", [2, 60])
def test_two_groups_and_groups_of_one_row(G):
    rng, _, X, eta = intercepts(G=15)
    group = np.arange(60) % G
    y = (rng.random(60) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    check(Model(BernoulliLogit("exact"), y, X, np.ones((60, 1)), group, np.eye(1)), 0.01, 0.02, 0.01)


def test_one_group_is_no_group():
    with pytest.warns(UserWarning, match="one group"):
        fit = fenchel.fit("y ~ x + (1|g)", TABLE.assign(g=0), "bernoulli", accuracy="fast")
    found, drawn = fit.solution.corrected(), fit.solution.importance(2**14)
    assert found.method != "collapsed"
    assert abs(found.log_evidence - drawn.log_evidence) < 0.005 + 4.0 * drawn.log_evidence_se


def test_a_slope_column_that_is_constant_within_groups():
    """Its slopes are seen through one sum with the intercept."""
    rng = np.random.default_rng(5)
    model = slopes()
    x = rng.normal(size=model.G)[model.group]
    A = np.column_stack([np.ones(x.size), x])
    check(Model(model.likelihood, model.y, model.X, A, model.group, model.P), 0.02, 0.02, 0.01)
