"""The distribution of y: closed forms over a normal eta beside sums over nodes, mixtures beside their parts."""

from dataclasses import dataclass

import numpy as np
import pytest
from conftest import ONE_PREDICTOR

from fenchel.likelihoods import Mixed, Ordinal, Poisson, Weibull
from fenchel.marginals import NodalMarginals, NormalAnswers, NormalMarginals
from fenchel.predictive import KINDS, Predictive

H, RHO = np.array([-0.3, 0.2, 0.6]), np.array([0.04, 0.3, 0.1])
SCALAR = [case for case in ONE_PREDICTOR if case.values[0].n_predictors == 1]


@dataclass
class NormalNodes(NormalAnswers):
    """A normal on an even grid: what a posterior on a grid hands over."""

    mean: np.ndarray
    variance: np.ndarray

    def nodes(self):
        x = np.linspace(-9.0, 9.0, 6001)  # even: likelihoods may have kinks
        w = np.exp(-0.5 * x**2)
        yield slice(0, self.mean.size), self.mean[:, None] + self.sd[:, None] * x, (w / w.sum())[None, :]


def both(likelihood, values=None):
    own = likelihood.take(np.arange(H.size)).lenient()
    closed = Predictive(own, NormalMarginals(H, RHO), values)
    summed = Predictive(own, NormalNodes(H, RHO), values)
    assert closed.parts[0].normal
    assert isinstance(summed.parts[0].eta, NodalMarginals)
    return closed, summed


@pytest.mark.parametrize(("likelihood", "y"), SCALAR)
def test_closed_forms_are_sums_over_nodes(likelihood, y):
    closed, summed = both(likelihood)
    y = np.asarray(y, dtype=float)[: H.size]
    np.testing.assert_allclose(closed.log_density(y), summed.log_density(y), rtol=2e-6, atol=2e-6)
    if likelihood.support == "levels":
        np.testing.assert_allclose(closed.probabilities, summed.probabilities, atol=2e-6)
        return
    np.testing.assert_allclose(closed.cdf(y), summed.cdf(y), atol=1e-4)
    if np.isfinite(closed.variance).all():
        np.testing.assert_allclose(closed.mean, summed.mean, rtol=1e-5)
        np.testing.assert_allclose(closed.variance, summed.variance, rtol=1e-5)
        np.testing.assert_allclose(closed.sd("mean"), summed.sd("mean"), rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(closed.mean_quantile([0.1, 0.9]), summed.mean_quantile([0.1, 0.9]), rtol=1e-9)


def test_a_mixture_of_equal_parts_is_its_part():
    eta = NormalMarginals(H, RHO)
    one = Predictive(Poisson(), eta)
    two = Predictive.mixture(np.array([0.3, 0.7]), [Poisson()] * 2, [eta] * 2, eta)
    y = np.array([0.0, 2.0, 5.0])
    for ask in (
        *(lambda p, k=k: p.location(k) for k in KINDS),
        *(lambda p, k=k: p.sd(k) for k in KINDS),
        *(lambda p, k=k: p.exceedance(k, 1.0) for k in KINDS),
        *(lambda p, k=k: p.limits(k, [0.1, 0.9]) for k in ("link", "outcome")),
        lambda p: p.variance,
        lambda p: p.cdf(y),
        lambda p: p.log_density(y),
    ):
        np.testing.assert_allclose(ask(two), ask(one), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(two.mean_quantile([0.1, 0.9]), one.mean_quantile([0.1, 0.9]), rtol=0.01)
    drawn = two.draws(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(axis=1), one.mean, atol=0.05)


def test_parts_of_other_parameters_by_hand():
    """Survival under two shapes: the average of the two."""
    eta, w = NormalMarginals(H, RHO), np.array([0.25, 0.75])
    shapes = [Weibull(1.0), Weibull(3.0)]
    mixed = Predictive.mixture(w, shapes, [eta, eta], eta)
    each = [np.asarray(own.predictive_survival(0.7, H, RHO)) for own in shapes]
    np.testing.assert_allclose(mixed.survival(0.7), w @ np.stack(each))


def test_values_and_labels_of_levels():
    values, words = np.array([1.0, 2.0, 5.0]), np.array(["low", "mid", "high"])
    found = Predictive(Ordinal([-0.5, 0.5]), NormalMarginals(H, RHO), values, words)
    p = found.probabilities
    np.testing.assert_allclose(found.mean, p @ values)
    np.testing.assert_allclose(found.sd("outcome"), np.sqrt(p @ values**2 - (p @ values) ** 2))
    np.testing.assert_allclose(found.exceedance("outcome", 1.5), p[:, 1:].sum(axis=1))
    assert set(found.draws(200, np.random.default_rng(0)).ravel()) == set(words)
    assert found.quantile(0.99).tolist() == ["high"] * 3


def test_a_row_that_overflows_leaves_the_intervals_of_others():
    """The mean of a duration falls in eta; far out it is infinite on both sides."""
    h, rho = np.array([0.1, -900.0]), np.array([0.5, 0.5])
    alone = Predictive(Weibull(2.0), NormalMarginals(h[:1], rho[:1])).mean_quantile([0.1, 0.9])
    with np.errstate(over="ignore"):
        both = Predictive(Weibull(2.0), NormalMarginals(h, rho)).mean_quantile([0.1, 0.9])
    np.testing.assert_array_equal(both[:1], alone)
    assert alone[0, 0] < alone[0, 1]


def test_bands_of_rows_of_several_likelihoods():
    """Of ``Mixed`` each row has the band of its own likelihood, whether its mean rises or falls in eta."""
    h, rho = np.array([0.1, 0.2]), np.array([0.3, 0.4])
    mixed = Mixed([Poisson(), Weibull(1.0)], np.array([0, 1]))
    band = Predictive(mixed, NormalMarginals(h, rho)).mean_quantile([0.1, 0.9])
    for i, own in enumerate((Poisson(), Weibull(1.0))):
        alone = Predictive(own, NormalMarginals(h[i : i + 1], rho[i : i + 1])).mean_quantile([0.1, 0.9])
        np.testing.assert_allclose(band[i : i + 1], alone)
