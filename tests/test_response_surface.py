"""Composite designs with slopes, beside integrals in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from fenchel.hyperparameters.integration.designs import composite, log_normal
from fenchel.hyperparameters.integration.response_surface import ResponseSurface, degree_for, matched_shares, monomials
from fenchel.hyperparameters.integration.theta import LogDensity
from fenchel.hyperparameters.mode import Coordinates

K = 0.17  # log of how the sd of u_0 changes with u_1


def funnel(u):
    """u_1, u_2, ... standard normal and u_0 | u_1 ~ N(0, e^{2 K u_1}), without the factor 1 / sd of u_0: its log
    density and slopes. The log of its integral is K^2 / 2 for normalised normals.
    """
    falls = np.exp(-2.0 * K * u[:, 1])
    slopes = -u.copy()
    slopes[:, 0] *= falls
    slopes[:, 1] += K * u[:, 0] ** 2 * falls
    return log_normal(u) - 0.5 * u[:, 0] ** 2 * (falls - 1.0), slopes


def probes(d):
    return np.concatenate([3.0 * np.eye(d), -3.0 * np.eye(d)])


@pytest.mark.parametrize("d", [4, 5, 6])
def test_a_funnel_between_two_hyperparameters(d):
    design = composite(d)
    u = np.concatenate([design.u, probes(d)])
    values, slopes = funnel(u)
    bounds = np.tile([-np.inf, np.inf], (d, 1))
    straight = Coordinates.straight(np.zeros(d), range(d), np.eye(d))
    by_slopes = LogDensity(straight, u, values, bounds, slopes)
    summed = logsumexp(design.log_mass + funnel(design.u)[0] - log_normal(design.u))
    truth = K**2 / 2.0
    assert by_slopes.log_total == pytest.approx(truth, abs=0.006)
    assert abs(summed - truth) > 2.0 * abs(by_slopes.log_total - truth)
    draws, w = by_slopes.weighted_u
    assert w @ draws[:, 1] == pytest.approx(K, abs=0.015)
    assert w @ draws[:, 0] ** 2 == pytest.approx(np.exp(4.0 * K**2), rel=0.03)


def test_a_quartic_is_found_again():
    rng = np.random.default_rng(1)
    u, d = rng.normal(size=(40, 3)), 3
    c = rng.normal(size=monomials(u, 4).shape[1])

    def value(at):
        return monomials(at, 4) @ c

    step = 1e-5
    slopes = np.stack([(value(u + step * e) - value(u - step * e)) / (2.0 * step) for e in np.eye(d)], axis=1)
    found = ResponseSurface(u, value(u), slopes)
    new = 0.5 * rng.normal(size=(20, 3))
    assert found(new) == pytest.approx(value(new), abs=0.01)


def test_beyond_the_points_it_stays():
    u = probes(2)
    surface = ResponseSurface(u, (u**2).sum(axis=1), 2.0 * u)
    far = np.array([[5.0, 0.0], [50.0, 0.0]])
    assert surface(far)[0] == pytest.approx(surface(far)[1])


def test_shares_have_the_moments_of_draws():
    rng = np.random.default_rng(2)
    points = np.concatenate([composite(4).u, probes(4)])
    draws = rng.multivariate_normal([0.3, -0.2, 0.0, 0.1], np.diag([1.2, 0.8, 1.0, 0.9]), size=20_000)
    weights = np.full(len(draws), 1.0 / len(draws))
    found = matched_shares(points, np.full(len(points), 1.0 / len(points)), draws, weights)
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0.0
    mean = found @ points
    assert mean == pytest.approx(draws.mean(axis=0), abs=0.01)
    assert found @ (points - mean) ** 2 == pytest.approx(draws.var(axis=0), rel=0.01)


def test_many_hyperparameters_have_polynomials_of_fewer_terms():
    """A quartic of 14 hyperparameters has 3,060 terms and took minutes; a cubic has 680."""
    d = 14
    assert [degree_for(k) for k in (12, 13, 20, 21)] == [4, 3, 3, 2]
    u = np.concatenate([composite(d).u[: 2 * d + 1], probes(d)])
    rng = np.random.default_rng(3)
    points = np.exp(log_normal(u))
    shares = matched_shares(u, points / points.sum(), rng.normal(size=(4_000, d)), np.full(4_000, 1.0 / 4_000))
    assert shares @ u == pytest.approx(np.zeros(d), abs=0.1)
    assert shares @ u**2 == pytest.approx(np.ones(d), abs=0.15)
