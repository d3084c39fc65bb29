"""A whole fit in another array library: same numbers, and nothing leaves it between input and output."""

import numpy as np
import pytest
from conftest import LIKELIHOOD_CASES, priors_for

import fenchel
from fenchel.likelihoods import MultinomialLogit, Poisson
from fenchel.linalg.arrays import to_numpy
from fenchel.linalg.design import Identity, Index
from fenchel.linalg.matrix_designs import Sparse
from fenchel.linalg.standardized import Standardized
from fenchel.priors import DenseCovariance, Features, InducingPoints, SparsePrecision


def libraries():
    import array_api_strict

    out = [pytest.param(array_api_strict.asarray, id="array-api-strict")]
    try:
        import torch
    except ImportError:
        return out
    return [*out, pytest.param(lambda x: torch.asarray(np.array(x)), id="torch")]


def moved(prior, to):
    """The same prior with its arrays in another library."""
    if isinstance(prior, InducingPoints):
        return InducingPoints(
            prior.kernel, to(prior.rows.X), prior.rows.points, prior.offset, **prior.rows.trend.arguments
        )
    design = None if isinstance(prior.design, Identity) else to(prior.design.toarray())
    if isinstance(prior, DenseCovariance):
        return DenseCovariance(to(prior.covariance), prior.mean, design, prior.offset)
    return Features(design, to(prior.variance), prior.mean, prior.offset)


@pytest.mark.parametrize("to", libraries())
@pytest.mark.parametrize(("likelihood", "y"), LIKELIHOOD_CASES)
def test_a_fit_elsewhere_is_the_same_fit(likelihood, y, to):
    for prior in priors_for(likelihood):
        if isinstance(prior, SparsePrecision) or isinstance(prior.design, Sparse):
            continue  # scipy's sparse matrices live on the host
        if likelihood.objective.over_contrasts is not None:  # numpy alone
            with pytest.raises(ValueError, match="in another library"):
                fenchel.infer(likelihood, moved(prior, to), y)
            continue
        here = fenchel.infer(likelihood, prior, y, tol=1e-10)
        there = fenchel.infer(likelihood, moved(prior, to), y, tol=1e-10)
        kind = type(to(np.zeros(1)))
        post = there.posterior
        assert there.n_iter == here.n_iter
        assert there.elbo == pytest.approx(here.elbo, rel=1e-10)
        for name in ("mean", "variance", "latent_mean", "latent_variance"):
            value = getattr(post, name)
            assert isinstance(value, kind), name
            np.testing.assert_allclose(to_numpy(value), getattr(here.posterior, name), atol=1e-7, rtol=1e-6)
        assert isinstance(post.sample(2, rng=0), kind)
        assert isinstance(post.sample_latents(2, rng=0), kind)
        assert isinstance(post.covariance(), kind)
        np.testing.assert_allclose(to_numpy(there.loo().log_density), here.loo().log_density, atol=1e-6)
        assert isinstance(there.s, kind)


@pytest.mark.parametrize("to", libraries())
def test_holes_predictions_and_lbfgs_elsewhere(to):
    rng = np.random.default_rng(0)
    K = DenseCovariance.example(rng, 12, 1)[0].covariance
    y = rng.poisson(2.0, 12).astype(float)
    y[3] = np.nan
    here = fenchel.infer(Poisson(), DenseCovariance(K), y, tol=1e-10)
    there = fenchel.infer(Poisson(), DenseCovariance(to(K)), y, tol=1e-10)
    np.testing.assert_allclose(to_numpy(there.posterior.variance), here.posterior.variance, atol=1e-8)
    a = here.posterior.predict(cross=K[:2], variance=np.diag(K)[:2])
    b = there.posterior.predict(cross=to(K[:2]), variance=np.diag(K)[:2])
    np.testing.assert_allclose(to_numpy(b[0]), a[0], atol=1e-8)
    np.testing.assert_allclose(to_numpy(b[1]), a[1], atol=1e-8)
    paper = fenchel.infer(Poisson(), DenseCovariance(to(K)), y, method="lbfgs", tol=1e-5, max_iter=500)
    assert paper.converged
    likelihood = MultinomialLogit(3, None, "tilted")
    labels = rng.integers(0, 3, 12)
    soft = fenchel.infer(likelihood, DenseCovariance(to(K)), to(labels.astype(float)))
    assert soft.elbo == pytest.approx(fenchel.infer(likelihood, DenseCovariance(K), labels).elbo, rel=1e-9)
    p = likelihood.predictive_probabilities(soft.posterior.mean, soft.posterior.variance)
    assert isinstance(p, type(to(np.zeros(1))))


@pytest.mark.parametrize("to", libraries())
@pytest.mark.parametrize("n", [20, 6])  # in the space of the latents, and of the rows
def test_any_design_and_extra_variance_elsewhere(to, n):
    """A design of the host's beside a covariance of another library; the slopes in both."""
    rng = np.random.default_rng(1)
    K, y = 2.0 * np.eye(4) + 0.5, rng.poisson(2.0, n).astype(float)
    y[2] = np.nan
    for design in (Index(rng.integers(0, 4, n), 4), Standardized(rng.normal(size=(n, 3)))):
        here, there = (
            fenchel.infer(Poisson(), DenseCovariance(k, design=design, extra_variance=0.3), y, tol=1e-12).posterior
            for k in (K, to(K))
        )
        np.testing.assert_allclose(to_numpy(there.variance), here.variance, atol=1e-9)
        np.testing.assert_allclose(to_numpy(there.covariance()), here.covariance(), atol=1e-9)
        np.testing.assert_allclose(to_numpy(there.cavity()[1]), here.cavity()[1], atol=1e-9)
        for name in ("mean", "covariance", "design"):
            ours, theirs = (getattr(post.adjoint(), name)[0] for post in (here, there))
            np.testing.assert_allclose(to_numpy(theirs), ours, atol=1e-7)


@pytest.mark.parametrize(("likelihood", "y"), LIKELIHOOD_CASES)
def test_limits_are_not_python_numbers_where_torch_refuses_them(likelihood, y, monkeypatch):
    """torch's maximum and minimum take tensors alone, and array-api-compat before 1.16 passes Python numbers on."""
    import array_api_strict

    if likelihood.objective.over_contrasts is not None or likelihood.n_predictors > 1:
        pytest.skip("one predictor")
    for name in ("maximum", "minimum"):
        real = getattr(array_api_strict, name)

        def of_arrays(a, b, /, real=real):
            assert not isinstance(a, float)
            assert not isinstance(b, float)
            return real(a, b)

        monkeypatch.setattr(array_api_strict, name, of_arrays)
    h, rho = (np.random.default_rng(0).normal(size=(2, len(y), 1)) ** 2).copy()
    rows = {key: array_api_strict.asarray(value) for key, value in likelihood.prepare(y).items()}
    there = [array_api_strict.asarray(x) for x in (h, rho)]
    np.testing.assert_allclose(
        to_numpy(likelihood.objective.loss(*there, rows).value),
        likelihood.objective.loss(h, rho, likelihood.prepare(y)).value,
        rtol=1e-9,
        atol=1e-9,
    )
    likelihood.derivatives(there[0], rows)
    likelihood.theta_gradient(*there, rows)
    likelihood.predictive_log_density(y, *there)
    likelihood.predictive_mean(*there)
    likelihood.predictive_variance(*there)
