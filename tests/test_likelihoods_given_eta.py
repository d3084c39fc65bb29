"""What every likelihood knows of y given eta, against its density summed or integrated; its parameters, its word."""

import numpy as np
import pytest
from conftest import LIKELIHOODS, difference

import fenchel.likelihoods
from fenchel.likelihoods import WORDS, Likelihood, Mixed, named, numerical
from fenchel.transforms import CORRELATION, LOG, LOGIT, STEPS, LogAbove

SCALAR = [cls for cls in LIKELIHOODS if cls is not Mixed and cls.support != "levels"]
LEVELS = [cls for cls in LIKELIHOODS if cls.support == "levels"]
ETA = np.linspace(-1.0, 1.5, 12).reshape(4, 3)


def at_four_rows(cls):
    likelihood, y = cls.example(np.random.default_rng(5), 4)
    free = dict.fromkeys(likelihood.row_parameters)  # every event seen
    return (likelihood.with_rows(**free) if likelihood.durations else likelihood), y


@pytest.mark.parametrize("cls", SCALAR)
def test_the_distribution_function_sums_the_density(cls):
    likelihood, _ = at_four_rows(cls)
    low, high = likelihood.predictive_quantile([0.2, 0.9], ETA[:, 1], np.full(4, 0.3)).T
    for x in (low, high):
        np.testing.assert_allclose(
            likelihood.cdf(x[:, None], ETA), numerical.cdf(likelihood, x[:, None], ETA), atol=1e-8
        )


@pytest.mark.parametrize("cls", SCALAR)
def test_the_distribution_function_holds_off_the_support(cls):
    likelihood, _ = at_four_rows(cls)
    assert np.isnan(likelihood.cdf(np.nan, ETA)).all()
    np.testing.assert_array_equal(likelihood.cdf(np.inf, ETA), 1.0)
    np.testing.assert_array_equal(likelihood.cdf(-np.inf, ETA), 0.0)
    if likelihood.support != "real":
        for x in (-1e9, -1.0, -0.5, -1e-9):
            np.testing.assert_array_equal(likelihood.cdf(x, ETA), 0.0)
    if likelihood.support == "unit":
        np.testing.assert_array_equal(likelihood.cdf(1.5, ETA), 1.0)
    if likelihood.support == "count":  # a step function, with its jump at the whole number
        for k in (0.0, 1.0, 2.0):
            np.testing.assert_array_equal(likelihood.cdf(k + 0.75, ETA), likelihood.cdf(k, ETA))
            mass = np.concatenate([_mass(likelihood.take([n]), k, ETA[[n]]) for n in range(4)])
            np.testing.assert_allclose(likelihood.cdf(k, ETA) - likelihood.cdf(k - 0.01, ETA), mass, atol=1e-12)


@pytest.mark.parametrize(
    "likelihood", [fenchel.BernoulliLogit("log-sum"), fenchel.Ordinal([-1.0, 0.5], bound="log-sum")]
)
def test_the_distribution_function_of_levels_holds_for_any_x(likelihood):
    p = likelihood.probabilities_at(ETA)
    assert np.isnan(likelihood.cdf(np.nan, ETA)).all()
    for x in (-np.inf, -0.5, 0.0, 0.7, 1.0, np.inf):
        np.testing.assert_allclose(likelihood.cdf(x, ETA), p[..., np.arange(p.shape[-1]) <= x].sum(axis=-1), atol=1e-15)


def _mass(likelihood, count, eta):
    try:
        return np.exp(likelihood.log_density(eta, likelihood.prepare([count])))
    except ValueError:  # no zeros in truncated counts, no more successes than trials
        return np.zeros(eta.shape)


@pytest.mark.parametrize("cls", SCALAR)
def test_the_moments_are_those_of_the_density(cls):
    likelihood, _ = at_four_rows(cls)
    mean, variance = numerical.moments(likelihood, ETA[:, 1])
    np.testing.assert_allclose(likelihood.mean_at(ETA[:, 1]), mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(likelihood.mean_at(ETA)[:, 1], mean, rtol=1e-7, atol=1e-9)
    heavy = {"rtol": 1e-2} if cls.__name__ == "StudentT" else {"rtol": 1e-6}  # beyond 8,000 widths the tail goes on
    np.testing.assert_allclose(likelihood.variance_at(ETA)[:, 1], variance, **heavy)


@pytest.mark.parametrize("cls", SCALAR)
def test_draws_follow_the_distribution_function(cls):
    likelihood, _ = at_four_rows(cls)
    draws = likelihood.draw(np.repeat(ETA[:, 1:2], 4000, axis=1), np.random.default_rng(0))
    for at in np.quantile(draws, [0.5, 0.8], axis=1, method="lower"):
        expected = likelihood.cdf(at[:, None], ETA[:, 1:2])[:, 0]
        np.testing.assert_allclose((draws <= at[:, None]).mean(axis=1), expected, atol=0.035)


@pytest.mark.parametrize("cls", LEVELS)
def test_levels_have_probabilities(cls):
    likelihood, _ = cls.example(np.random.default_rng(5), 4)
    eta = ETA if likelihood.n_predictors == 1 else ETA[:, : likelihood.n_predictors]
    p = likelihood.probabilities_at(eta)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=1e-9)
    if likelihood.n_predictors > 1:
        return
    rows = [likelihood.prepare(np.full(4, float(k))) for k in range(p.shape[-1])]
    np.testing.assert_allclose(p, np.stack([np.exp(likelihood.log_density(eta, r)) for r in rows], axis=-1), rtol=1e-7)
    np.testing.assert_allclose(likelihood.cdf(1.0, eta), p[..., :2].sum(axis=-1))
    draws = likelihood.draw(np.repeat(eta[:, :1], 4000, axis=1), np.random.default_rng(0))
    np.testing.assert_allclose((draws <= 0).mean(axis=1), p[:, 0, 0], atol=0.035)


@pytest.mark.parametrize("cls", LIKELIHOODS)
def test_fewer_rows_are_the_same_rows(cls):
    likelihood, y = cls.example(np.random.default_rng(1), 8)
    keep = np.array([5, 0, 3])
    few = likelihood.take(keep).prepare(y[keep])
    every = likelihood.prepare(y)
    for key, value in few.items():
        if key in every and not isinstance(likelihood, Mixed):
            np.testing.assert_array_equal(value, every[key][keep])


@pytest.mark.parametrize("name", ["Poisson", "Gamma", "Exponential", "Gaussian", "StochasticVolatility"])
def test_the_level_makes_y_most_likely(name):
    likelihood, y = getattr(fenchel.likelihoods, name).example(np.random.default_rng(2), 30)
    w = np.random.default_rng(0).integers(0, 3, 30).astype(float)
    y[4] = np.nan
    assert likelihood.level(y, w) == pytest.approx(
        Likelihood._level(likelihood, np.nan_to_num(y), w * (np.arange(30) != 4)), abs=1e-6
    )


# -- parameters ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("transform", "x"), [(LOG, 2.5), (LogAbove(1.0), 4.0), (LOGIT, 0.3), (LOGIT, 0.999), (CORRELATION, -0.6)]
)
def test_a_transform_and_its_way_back(transform, x):
    theta = transform.forward(x)
    assert transform.inverse(theta) == pytest.approx(x, rel=1e-12)
    slope = difference(lambda t: transform.inverse(t), theta, step=1e-5)
    assert transform.slope(x) == pytest.approx(slope[0], rel=1e-6)


def test_steps_pull_a_gradient_back():
    b = np.array([-1.0, 0.2, 3.0])
    np.testing.assert_allclose(STEPS.inverse(STEPS.forward(b)), b)
    gradient = np.array([0.3, -2.0, 0.7])
    slopes = gradient @ difference(STEPS.inverse, STEPS.forward(b))
    np.testing.assert_allclose(STEPS.pull(b, gradient), slopes, rtol=1e-8)
    assert STEPS.names("cutpoint", 3) == [
        "first cutpoint",
        "log step 1 of the cutpoints",
        "log step 2 of the cutpoints",
    ]


@pytest.mark.parametrize("cls", [cls for cls in LIKELIHOODS if cls.parameters])
def test_theta_follows_from_the_parameters(cls):
    likelihood, y = cls.example(np.random.default_rng(0), 20)
    assert len(likelihood.theta_names) == likelihood.theta.size == len(likelihood.theta_bounds(y))
    moved = likelihood.with_theta(likelihood.theta + 0.1)
    np.testing.assert_allclose(moved.theta, likelihood.theta + 0.1)
    assert moved.bound == likelihood.bound
    assert moved.objective.likelihood is moved
    assert all(np.isfinite(value) for _, _, value in likelihood.readable())


@pytest.mark.parametrize("word", WORDS)
def test_a_word_starts_where_learning_starts(word):
    cls = named(word)
    likelihood, y = cls.example(np.random.default_rng(0), 30)
    rows = {key: getattr(likelihood, key) for key in cls.row_parameters}
    start = cls.starting(y, None, **rows)
    low, high = start.theta_bounds(y).T
    assert ((low < start.theta) & (start.theta < high)).all()
    assert start.bound == ("exact" if "exact" in cls.bounds else list(cls.bounds)[-1])


def test_an_unknown_word():
    with pytest.raises(ValueError, match="word = 'uniform' is not known; expected 'gaussian' or 'laplace'"):
        named("uniform")
