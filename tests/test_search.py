"""A search for theta over an objective that rounding blurs, and in units of its own parameters."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from fenchel import gmrf
from fenchel.hyperparameters import learn
from fenchel.hyperparameters.base import Objective
from fenchel.hyperparameters.search import Search
from fenchel.likelihoods import Gaussian


class Hill(Objective):
    """-1e5 less a quadratic, its value off by some 1e-8 as rounding of such a sum is; its slopes are right."""

    tol, names, bounds = 1e-10, ["a", "b"], np.array([[-9.0, 9.0]] * 2)

    def __init__(self, units):
        self.bend, self.top, self.own = np.array([30.0, 20_000.0]), np.array([0.7, -0.4]), units

    @property
    def units(self):
        return self.own

    def __call__(self, theta):
        self.n_evaluations += 1
        noise = 3e-8 * np.sin(1e9 * float(theta.sum()))
        value = -1e5 - 0.5 * float(self.bend @ (theta - self.top) ** 2) + noise
        self.solution = SimpleNamespace(elbo=value, gap=0.0, rounding=1e-11, tol=0.0, optimal=True, ending=None)
        self.solution.judged_by = lambda tol: self.solution
        return value, -self.bend * (theta - self.top)

    def begin(self, solution):
        pass

    def learned(self, best, found):
        return found


@pytest.mark.parametrize("units", [1.0, np.array([1.0, 4.0])], ids=["plain", "in units"])
def test_a_blurred_search_arrives(units):
    hill = Hill(units)
    found = Search(hill, 100, 1e-3, None).run(np.zeros(2))
    assert found.converged
    assert np.abs(found.gradient).max() <= 1e-3
    np.testing.assert_allclose(found.theta, hill.top, atol=1e-3 / hill.bend[0])
    assert hill.n_evaluations <= 14  # and not until no value rises any more


def test_noise_of_many_rows_is_learned_in_its_own_units():
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(200), 60)
    y = rng.normal(size=200)[code] + 0.5 * rng.normal(size=12_000)
    found = learn(Gaussian(1.0), gmrf.stack([(gmrf.iid(200), code)], intercept=False), y)
    sums, within = np.bincount(code, y), y @ y

    def minus_evidence(theta):  # of 200 groups by hand: tau is the precision of the effects, s the noise's variance
        tau, s = np.exp([-2.0 * theta[0], theta[1]])
        lam = 60 / s + tau
        both = 12_000 * np.log(2 * np.pi * s) + 200 * np.log(lam / tau) + within / s - (sums @ sums) / s**2 / lam
        return 0.5 * both - prior(theta[0])

    family = gmrf.stack([(gmrf.iid(200), code)], intercept=False)
    prior = lambda t: family.log_prior(np.array([t]))[0]
    best = minimize(minus_evidence, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-8})
    np.testing.assert_allclose(found.theta, best.x, atol=1e-4)
    assert found.converged
    assert found.n_evaluations <= 12
