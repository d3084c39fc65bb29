"""The mode of an objective: its curvature against closed forms, how far each side reaches, and bounds."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime

import fenchel
from fenchel.hyperparameters.integration.points import Finished, Fitter, centred
from fenchel.hyperparameters.mode import FLATTEST, STEP, Evaluation, mode_of
from fenchel.models import tables


class Hill:
    """-sum_i c_i (e^(a.theta) - a.theta), of which every derivative is known; counts what is asked of it."""

    solution = None

    def __init__(self, bounds=(-9.0, 9.0), valued=True):
        self.A, self.c = np.array([[1.0, 0.3], [-0.4, 0.8]]), np.array([3.0, 8.0])
        self.bounds, self.valued, self.n = np.tile(bounds, (2, 1)).astype(float), valued, 0

    def __call__(self, theta):
        self.n += 1
        eta = self.A @ theta
        value = -float(self.c @ (np.exp(eta) - eta))
        return value if self.valued else np.nan, -self.A.T @ (self.c * (np.exp(eta) - 1.0))

    def curvature(self, theta):
        return self.A.T @ np.diag(self.c * np.exp(self.A @ theta)) @ self.A


def test_the_curvature_is_that_of_the_closed_form():
    hill = Hill()
    mode = mode_of(hill, np.zeros(2))
    assert hill.n == 3  # the mode, and one for each entry
    np.testing.assert_allclose(np.diag(mode.curvature), np.diag(hill.curvature(np.zeros(2))), rtol=2e-3)
    np.testing.assert_allclose(mode.curvature, hill.curvature(np.zeros(2)), atol=STEP * 3.0)
    np.testing.assert_allclose(mode.directions @ mode.directions.T, np.linalg.inv(mode.curvature), rtol=1e-10)
    np.testing.assert_allclose(mode.covariance, np.linalg.inv(mode.curvature), rtol=1e-10)
    assert mode.free == [0, 1]


def test_slopes_alone_give_their_differences():
    mode = mode_of(Hill(valued=False), np.zeros(2))
    truth = Hill().curvature(np.zeros(2))
    assert np.abs(mode.curvature / truth - 1.0).max() < STEP  # the error is of the first order
    assert np.abs(np.diag(mode.curvature) / np.diag(truth) - 1.0).max() > 0.01
    close = mode_of(Hill(valued=False), np.zeros(2), guess=1e6 * np.eye(2))
    np.testing.assert_allclose(close.curvature, truth, rtol=1e-3)


def test_a_value_that_is_off_moves_the_curvature_by_little():
    hill = Hill()
    honest = mode_of(hill, np.zeros(2))

    def blurred(thetas):
        each = [(theta, *hill(theta)) for theta in thetas]
        return [Evaluation(theta, value + (0.05 if theta.any() else 0.0), slope) for theta, value, slope in each]

    off = mode_of(hill, np.zeros(2), evaluate=blurred)
    assert np.abs(np.diag(off.curvature) / np.diag(honest.curvature) - 1.0).max() < 0.35


def test_entries_at_a_bound_are_not_moved():
    hill = Hill(bounds=(0.5, 9.0))
    mode = mode_of(hill, np.array([0.5, 0.7]))
    assert mode.at_bounds == {0: "lower"}
    assert mode.free == [1]
    assert mode.covariance[0].tolist() == [0.0, 0.0]
    assert mode_of(Hill(bounds=(0.0, 0.05)), np.array([0.02, 0.02]), hold=[0]).free == [1]
    assert mode_of(hill, np.array([0.5, 0.5])).curvature.shape == (0, 0)
    rising = mode_of(Hill(bounds=(-9.0, -1.0)), np.array([-1.0, -1.0]))
    assert rising.at_bounds == {0: "upper", 1: "upper"}
    assert rising.held == (0, 1)


def test_a_flat_direction_counts_as_unknown():
    class Flat(Hill):
        def __call__(self, theta):
            return -0.5 * theta[0] ** 2, np.array([-theta[0], 0.0])

    mode = mode_of(Flat(), np.zeros(2))
    np.testing.assert_allclose(np.diag(mode.covariance), [1.0, 1.0 / FLATTEST], rtol=1e-6)


def test_what_is_asked_moves_as_it_does():
    class Asked(Hill):
        @property
        def solution(self):
            return self.last

        def __call__(self, theta):
            self.last = theta
            return super().__call__(theta)

    mode = mode_of(Asked(), np.zeros(2), ask=lambda theta: float(2.0 * theta[0] - 3.0 * theta[1]))
    np.testing.assert_allclose(mode.moves, [2.0, -3.0])


@pytest.mark.parametrize("tilt", [0.0, 0.4], ids=["at the mode", "a slope left"])
def test_coordinates_reach_as_far_as_the_density_falls(tilt):
    hill = Hill()

    class Tilted(Hill):
        def __call__(self, theta):
            value, slope = super().__call__(theta)
            return value + tilt * theta.sum(), slope + tilt

    objective = Tilted()
    mode = mode_of(objective, np.zeros(2))
    coordinates = mode.coordinates(lambda thetas: [objective(theta)[0] for theta in thetas])
    assert coordinates.above[0] < 0.0 < coordinates.below[0]  # e^eta falls faster above
    for k in range(2):
        for sign in (-1.0, 1.0):
            theta = coordinates.theta(2.0 * sign * coordinates.mix[k])
            assert hill(np.zeros(2))[0] - hill(theta)[0] == pytest.approx(2.0, rel=0.15)


def few_groups():
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"g": np.repeat(np.arange(8), 6), "h": np.tile(np.arange(6), 8)})
    eta = 0.5 + 0.6 * rng.normal(size=8)[data.g] + 0.4 * rng.normal(size=6)[data.h]
    return data.assign(y=rng.poisson(np.exp(eta)))


def test_tables_and_integration_read_one_mode():
    fit = fenchel.fit("y ~ 1 + (1|g) + (1|h)", few_groups(), "poisson")
    evidence = tables.evidence_of(fit)
    coordinates = fit.theta_mode.coordinates(lambda thetas: [evidence(theta)[0] for theta in thetas])
    fitter = Fitter(tables.evidence_of(fit), False, None, Finished())
    centre = centred(fitter, fit.found, [0, 1], False).coordinates
    for key in ("centre", "scale", "mix", "below", "above"):
        np.testing.assert_allclose(getattr(centre, key), getattr(coordinates, key), rtol=1e-5, atol=1e-7)


def test_the_covariance_of_theta_is_that_of_differences():
    """A witness that shares nothing: second differences of the evidence itself."""
    fit = fenchel.fit("y ~ 1 + (1|g) + (1|h)", few_groups(), "poisson")
    evidence = tables.evidence_of(fit)
    H = np.array(
        [-approx_fprime(fit.theta, lambda theta, i=i: evidence(theta)[1][i], 1e-4) for i in range(fit.theta.size)]
    )
    np.testing.assert_allclose(fit.theta_covariance, np.linalg.inv((H + H.T) / 2.0), rtol=0.02, atol=0.01)
