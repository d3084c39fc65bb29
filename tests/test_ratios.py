"""Odds, risk and hazard ratios: the median of exp(effect), on the side of 1 on which the effect's median is of 0."""

import numpy as np
import pandas as pd
import pytest

import fenchel

RNG = np.random.default_rng(5)
GROUP = np.repeat([f"g{i:02d}" for i in range(14)], 5)
DATA = pd.DataFrame({"g": GROUP, "x": RNG.normal(size=70)})
DATA["y"] = (RNG.random(70) < 1 / (1 + np.exp(-0.3 * DATA.x - RNG.normal(0, 1.5, 14).repeat(5)))).astype(int)


@pytest.mark.parametrize("integrate", [None, "auto"])
def test_a_ratio_agrees_with_the_sign_of_its_effect_and_lies_in_its_interval(integrate):
    fit = fenchel.fit("y ~ x + (1|g)", DATA, family="bernoulli", integrate=integrate)
    for frame in (fit.coefficients, fit.effects["g"], fit.corrected().effects["g"]):
        assert ((frame["odds_ratio"] > 1.0) == (frame["p_above_1"] > 0.5)).all()
        assert frame["odds_ratio"].between(frame["or_lower"], frame["or_upper"]).all()


def test_the_ratio_of_a_mixture_is_where_half_of_its_draws_are_below():
    fit = fenchel.fit("y ~ x + (1|g)", DATA, family="bernoulli", integrate="auto")
    design, offset = fit.model.sum.fixed_rows(), fit.model.sum.offset[0]
    draws = np.exp(fit.integrated.sample_latents(40_000, 0) @ design.T.toarray() + np.array([offset, 0.0]))
    below = (draws <= fit.coefficients["odds_ratio"].to_numpy()).mean(axis=0)
    np.testing.assert_allclose(below, 0.5, atol=0.01)


def test_separated_rows_have_a_ratio_within_its_interval():
    data = pd.DataFrame({"x": np.arange(20.0), "y": (np.arange(20) > 9).astype(int)})
    with pytest.warns(UserWarning, match="separate"):
        found = fenchel.fit("y ~ x", data, family="bernoulli").coefficients
    assert found["odds_ratio"].between(found["or_lower"], found["or_upper"]).all()
    np.testing.assert_allclose(np.log(found["odds_ratio"]), found["mean"])


def test_a_model_over_its_hyperparameters_states_medians_of_the_mixture():
    fit = fenchel.fit("y ~ x + (1|g)", DATA, "bernoulli", integrate=True)
    design = fit.model.sum.fixed_rows().toarray()
    draws = fit.integrated.sample_latents(40_000, 0) @ design.T + np.array([fit.model.level, 0.0])
    table = fit.coefficients
    np.testing.assert_allclose((np.exp(draws) <= table["odds_ratio"].to_numpy()).mean(axis=0), 0.5, atol=0.01)
    np.testing.assert_allclose(table["lower"], np.quantile(draws, 0.025, axis=0), atol=0.06)
