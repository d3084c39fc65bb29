"""Newton's curvature under a sparse precision, solved by the factor that there is."""

import numpy as np
import pytest
import scipy.sparse as sp

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import learn
from fenchel.linalg.machine import counting
from fenchel.priors import sparse


def counts(constraints):
    rng = np.random.default_rng(1)
    walk = [sp.diags_array([-np.ones(n - 1), 2.1 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]) for n in (8, 9)]
    Q = sp.csc_array(sp.kron(walk[0], sp.eye_array(9)) + sp.kron(sp.eye_array(8), walk[1]))
    return fenchel.priors.SparsePrecision(Q, constraints=constraints), rng.poisson(8.0, 72)


@pytest.mark.parametrize("constraints", [None, np.ones((1, 72))], ids=["free", "held"])
@pytest.mark.parametrize(
    "likelihood", [fenchel.Poisson(), fenchel.NegativeBinomial(3.0, bound="log-sum"), fenchel.Gaussian(0.5)], ids=str
)
def test_the_curvature_by_the_factor_of_lam_is_the_one_by_its_own(constraints, likelihood, monkeypatch):
    prior, y = counts(constraints)
    fits, tallies = [], []
    for steep in (np.inf, -1.0):
        monkeypatch.setattr(sparse, "_STEEP", steep)
        with counting() as tally:
            fits.append(fenchel.infer(likelihood, prior, y))
        tallies.append(tally.factorisations)
    own, given = fits
    assert given.elbo == pytest.approx(own.elbo, abs=1e-8)
    assert given.n_iter <= own.n_iter + 1
    np.testing.assert_allclose(given.posterior.latent_mean, own.posterior.latent_mean, atol=1e-6)
    assert tallies[1] <= tallies[0]


def test_weights_that_differ_much_are_factorised(monkeypatch):
    """Probabilities near one half under a wide prior: rho is not small beside 1/lam."""
    monkeypatch.setattr(sparse, "_STEEP", -1.0)
    prior = fenchel.priors.SparsePrecision(sp.csc_array(1e-4 * sp.eye_array(6)))
    fit = fenchel.infer(fenchel.Poisson(), prior, [0, 0, 1, 0, 2, 300])
    assert fit.converged


def test_a_field_learned_either_way(monkeypatch):
    rng = np.random.default_rng(2)
    found = []
    y = rng.poisson(np.exp(1.0 + np.cumsum(0.2 * rng.normal(size=60))))
    for steep in (np.inf, -1.0):
        monkeypatch.setattr(sparse, "_STEEP", steep)
        found.append(learn(fenchel.Poisson(), gmrf.stack([(gmrf.rw1(60), np.arange(60))]), y))
    assert found[1].objective == pytest.approx(found[0].objective, abs=1e-6)
