"""The corrected evidence and marginals against quadrature that shares no code with them."""

import importlib.util
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import IN_REPOSITORY
from scipy.integrate import quad
from scipy.special import expit

import fenchel
import fenchel.likelihoods
from fenchel.likelihoods import BernoulliLogit, LaplaceNoise, Likelihood, Poisson, StochasticVolatility
from fenchel.marginals import Answers, Marginals
from fenchel.priors import DenseCovariance, Features, SparsePrecision

ROOT = Path(__file__).parent.parent


def scalar_likelihoods():
    every = (getattr(fenchel.likelihoods, name) for name in fenchel.likelihoods.__all__)
    classes = (cls for cls in every if isinstance(cls, type) and not inspect.isabstract(cls))
    kinds = (cls for cls in classes if issubclass(cls, Likelihood))
    out = []
    for cls in kinds:
        try:
            likelihood, _ = cls.example(np.random.default_rng(0), 3)
        except (NotImplementedError, TypeError):  # abstract
            continue
        if likelihood.n_predictors == 1:
            out.append(cls)
    return out


def brute(likelihood, y, S, mean, step, reach=9.0):
    """log p(y), and the first two moments of each eta: a sum over a grid of the whitened prior."""
    n, grid = len(y), np.arange(-reach, reach + 1e-9, step)
    t = np.array(np.meshgrid(*[grid] * n, indexing="ij")).reshape(n, -1)
    eta = mean + np.linalg.cholesky(S) @ t
    with np.errstate(all="ignore"):
        log_p = np.asarray(likelihood.log_density(eta, likelihood.prepare(y))).sum(axis=0) - 0.5 * (t * t).sum(axis=0)
    log_p = np.where(np.isnan(log_p), -np.inf, log_p)
    p = np.exp(log_p - log_p.max())
    first = eta @ p / p.sum()
    second = ((eta - first[:, None]) ** 2) @ p / p.sum()
    third = ((eta - first[:, None]) ** 3) @ p / p.sum()
    value = log_p.max() + np.log(p.sum()) + n * np.log(step / np.sqrt(2.0 * np.pi))
    return value, first, second, third / second**1.5


@pytest.mark.parametrize("cls", scalar_likelihoods(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    ("n", "variance", "R", "step"), [(1, 25.0, 0.0, 0.005), (2, 9.0, 0.8, 0.03), (3, 4.0, 0.6, 0.1)]
)
def test_up_to_three_observations_are_exact(cls, n, variance, R, step):
    likelihood, y = cls.example(np.random.default_rng(n), n)
    S = variance * (np.full((n, n), R) + (1.0 - R) * np.eye(n))
    found = fenchel.infer(likelihood, DenseCovariance(S, mean=0.3), y).corrected()
    if n == 3 and cls is LaplaceNoise:  # kinks
        step /= 2.0
    value, mean, variance, _ = brute(likelihood, y, S, 0.3, step)
    assert found.log_evidence == pytest.approx(value, abs=1e-3)
    assert found.trusted
    if n < 3:  # three take pairs one at a time
        close = 2e-3 if cls is LaplaceNoise else 1e-4
        np.testing.assert_allclose(found.mean, mean, atol=close * np.sqrt(variance).max())
        np.testing.assert_allclose(found.sd, np.sqrt(variance), rtol=close)


def test_a_kink_against_adaptive_quadrature():
    y, scale, sd = 2.0, 0.3, 10.0
    found = fenchel.infer(LaplaceNoise(scale), DenseCovariance([[sd**2]]), [y]).corrected()

    def joint(eta):
        return np.exp(-abs(y - eta) / scale - 0.5 * (eta / sd) ** 2) / (2.0 * scale * sd * np.sqrt(2.0 * np.pi))

    value = quad(joint, y - 30, y, epsabs=1e-13)[0] + quad(joint, y, y + 30, epsabs=1e-13)[0]
    assert found.log_evidence == pytest.approx(np.log(value), abs=1e-3)


def group_evidence(k, n, sd):
    """log p of k ones among n rows that share an intercept N(0, sd^2)."""

    def joint(b):
        return expit(b) ** k * expit(-b) ** (n - k) * np.exp(-0.5 * (b / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))

    return np.log(quad(joint, -12 * sd, 12 * sd, points=[-2.0, 0.0, 2.0], limit=200, epsabs=1e-14)[0])


@pytest.mark.parametrize(("n", "sd"), [(1, 3.0), (2, 2.0), (4, 2.0), (4, 4.0), (8, 2.0), (8, 4.0), (30, 3.0)])
@pytest.mark.parametrize("bound", ["exact", "tilted", "log-sum"])
def test_random_intercepts(n, sd, bound):
    rng = np.random.default_rng(5)
    groups = 30
    index = np.repeat(np.arange(groups), n)
    y = (rng.random(index.size) < expit(rng.normal(0.0, sd, groups))[index]).astype(float)
    design = sp.csr_array((np.ones(index.size), (np.arange(index.size), index)))
    truth = sum(group_evidence(y[index == g].sum(), n, sd) for g in range(groups))
    for prior in (
        SparsePrecision(sp.eye_array(groups, format="csc") / sd**2, design=design),
        Features(design.toarray(), variance=sd**2),
    ):
        found = fenchel.infer(BernoulliLogit(bound), prior, y).corrected()
        assert found.n_sites == groups
        assert abs(found.log_evidence - truth) <= 1e-6 * groups


def covariance(rng, n, length=1.0):
    x = np.sort(rng.uniform(0.0, 6.0, n))
    return 4.0 * np.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + 1e-6 * np.eye(n), x


def test_order_and_splitting_change_nothing():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12, 3))
    X[4], X[7] = X[1], -2.0 * X[1]  # one line
    y = rng.integers(0, 2, 12).astype(float)
    one = fenchel.infer(BernoulliLogit("exact"), Features(X, variance=2.0), y, tol=1e-12).corrected()
    assert one.n_sites == 10
    order = rng.permutation(12)
    other = fenchel.infer(BernoulliLogit("exact"), Features(X[order], variance=2.0), y[order], tol=1e-12).corrected()
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
    np.testing.assert_allclose(other.mean, one.mean[order], atol=1e-7)
    np.testing.assert_allclose(other.latents().sd, one.latents().sd, atol=1e-7)
    twice = fenchel.infer(
        BernoulliLogit("exact"), Features(np.r_[X, X], variance=2.0), np.r_[y, y], weights=np.full(24, 0.5), tol=1e-12
    ).corrected()
    assert twice.log_evidence == pytest.approx(one.log_evidence, abs=1e-7)
    np.testing.assert_allclose(twice.quantile([0.1, 0.9])[12:], one.quantile([0.1, 0.9]), atol=1e-6)
    K, _ = covariance(rng, 9)
    index = np.r_[np.arange(9), 3, 3]
    y = rng.poisson(1.0, 11).astype(float)
    same = fenchel.infer(Poisson(), DenseCovariance(K[np.ix_(index, index)]), y).corrected()
    assert same.n_sites == 9
    through = fenchel.infer(Poisson(), DenseCovariance(K, design=np.eye(9)[index]), y).corrected()
    assert through.log_evidence == pytest.approx(same.log_evidence, abs=1e-6)


def test_priors_agree():
    """A dense covariance, features and a sparse precision of one model; latents and new rows by each."""
    rng = np.random.default_rng(3)
    K, _ = covariance(rng, 15, 0.7)
    K = K + 0.5 * np.eye(15)
    y = rng.poisson(np.exp(rng.normal(size=15))).astype(float)
    y[[2, 11]] = np.nan
    root = np.linalg.cholesky(K)
    new = rng.normal(size=(4, 15))
    found = [
        fenchel.infer(Poisson(), prior, y, tol=1e-12).corrected()
        for prior in (
            DenseCovariance(K),
            SparsePrecision(sp.csc_array(np.linalg.inv(K) + 0.0)),
            Features(np.eye(15), variance=K),
            Features(root, variance=1.0),
        )
    ]
    first = found[0]
    assert first.trusted
    np.testing.assert_allclose(first.latents().mean, first.mean, atol=1e-9)
    for other in found[1:]:
        assert other.log_evidence == pytest.approx(first.log_evidence, abs=1e-7)
        np.testing.assert_allclose(other.mean, first.mean, atol=1e-6)
        np.testing.assert_allclose(other.quantile([0.05, 0.5]), first.quantile([0.05, 0.5]), atol=1e-5)
    for other in found[1:3]:
        np.testing.assert_allclose(other.latents().sd, first.latents().sd, atol=1e-6)
        there, here = other.at(design=new, offset=0.5), first.at(design=new, offset=0.5)
        np.testing.assert_allclose(there.mean, here.mean, atol=1e-6)
    cross, prior_variance = new @ K, np.sum((new @ K) * new, axis=1)
    by_cross = first.at(cross=cross, variance=prior_variance)
    np.testing.assert_allclose(by_cross.mean, first.at(design=new).mean, atol=1e-6)
    np.testing.assert_allclose(by_cross.sd, first.at(design=new).sd, atol=1e-6)
    np.testing.assert_allclose(found[3].at(cross=new @ root, variance=prior_variance).sd, by_cross.sd, atol=1e-6)


def registered_priors():
    rng = np.random.default_rng(9)
    kinds = (DenseCovariance, Features, SparsePrecision)
    return [prior for kind in kinds for prior in kind.example(rng, 9, 1)]


@pytest.mark.parametrize("prior", registered_priors(), ids=lambda prior: type(prior).__name__)
def test_every_prior_is_its_covariance(prior):
    rng = np.random.default_rng(10)
    y = rng.poisson(1.0, 9).astype(float)
    y[4] = np.nan
    predictors = prior.bind(9, 1, False)
    S = np.stack([np.asarray(predictors.apply(e[:, None]))[:, 0] for e in np.eye(9)], axis=1)
    if not isinstance(predictors.extra_variance, float):
        return
    dense = DenseCovariance(S, offset=np.asarray(predictors.mt)[:, 0])
    found, said = (fenchel.infer(Poisson(), each, y, tol=1e-11).corrected() for each in (prior, dense))
    assert found.log_evidence == pytest.approx(said.log_evidence, abs=1e-5)
    np.testing.assert_allclose(found.mean, said.mean, atol=1e-5)
    np.testing.assert_allclose(found.sd, said.sd, atol=1e-5)
    latents, plain = found.latents(), fenchel.infer(Poisson(), prior, y, tol=1e-11).posterior.latents()
    assert latents.mean.shape == plain.mean.shape
    assert np.all(np.abs(latents.mean - plain.mean) <= 0.2 * plain.sd + 1e-12)


def test_a_prior_of_ones_own():
    from test_own_prior import AR1

    rng = np.random.default_rng(12)
    times = np.cumsum(rng.uniform(0.2, 1.5, 11))
    S = 2.0 * 0.7 ** np.abs(np.subtract.outer(times, times))
    y = rng.poisson(1.0, 11).astype(float)
    y[3] = np.nan
    own, dense = (
        fenchel.infer(Poisson(), p, y, tol=1e-11).corrected() for p in (AR1(times, 0.7, 2.0), DenseCovariance(S))
    )
    assert own.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    np.testing.assert_allclose(own.quantile([0.1, 0.9]), dense.quantile([0.1, 0.9]), atol=1e-5)
    np.testing.assert_allclose(own.latents().sd, dense.latents().sd, atol=1e-5)
    new, cross = rng.normal(size=(2, 11)), S[:2] * 0.5
    np.testing.assert_allclose(own.at(design=new).sd, dense.at(design=new).sd, atol=1e-5)
    where = {"cross": cross, "variance": np.full(2, 2.0), "mean": 0.0}
    np.testing.assert_allclose(own.at(**where).mean, dense.at(**where).mean, atol=1e-5)


def test_another_array_library():
    strict = pytest.importorskip("array_api_strict")
    K, _ = covariance(np.random.default_rng(11), 7)
    y = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    here, there = (
        fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(K if asarray is None else asarray(K)), y).corrected()
        for asarray in (None, strict.asarray)
    )
    assert there.log_evidence == pytest.approx(here.log_evidence, abs=1e-8)
    assert type(there.mean) is type(strict.asarray(K))
    np.testing.assert_allclose(np.asarray(there.latents().interval()), here.latents().interval(), atol=1e-7)


def test_it_answers_as_a_posterior_does():
    rng = np.random.default_rng(6)
    K, _ = covariance(rng, 8)
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(9.0 * K), rng.integers(0, 2, 8))
    found = sol.corrected()
    assert isinstance(found, Answers)
    assert isinstance(found.latents(), Marginals)
    low, high = found.interval(0.9).T
    np.testing.assert_allclose(found.cdf(low), 0.05, atol=1e-6)
    np.testing.assert_allclose(found.cdf(high), 0.95, atol=1e-6)
    x = np.linspace(-80.0, 80.0, 8001)
    each = np.stack([found.density(np.full(8, at)) for at in x])
    np.testing.assert_allclose(np.trapezoid(each, x, axis=0), 1.0, atol=1e-3)
    np.testing.assert_allclose(np.trapezoid(each * x[:, None], x, axis=0), found.mean, atol=2e-2)
    draws = found.sample(4000, 0)
    assert draws.shape == (4000, 8)
    np.testing.assert_allclose(draws.mean(axis=0), found.mean, atol=0.1 * found.sd.max())
    assert found.sample_latents(3, 0).shape == (3, 8)
    assert "log_evidence" in repr(found)
    assert found.log_evidence >= sol.elbo
    assert sol.elbo <= sol.elbo_upper  # the certificate is the fit's own


def test_a_softmax_is_drawn():
    likelihood, y = fenchel.likelihoods.MultinomialLogit.example(np.random.default_rng(8), 6)
    sol = fenchel.infer(likelihood, DenseCovariance(np.eye(6)), y)
    if importlib.util.find_spec("fenchel.corrections.importance") is None:
        with pytest.raises(ValueError, match="several predictors an observation"):
            sol.corrected()
    else:
        assert np.isfinite(sol.corrected().log_evidence)


def test_gaussian_noise_leaves_nothing():
    rng = np.random.default_rng(7)
    K, _ = covariance(rng, 10)
    sol = fenchel.infer(fenchel.likelihoods.Gaussian(0.5), DenseCovariance(K), rng.normal(size=10))
    found = sol.corrected()
    assert found.log_evidence == pytest.approx(sol.elbo, abs=1e-9)
    np.testing.assert_allclose(found.mean, sol.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(found.sd, sol.posterior.sd, atol=1e-8)
    np.testing.assert_allclose(found.quantile([0.025, 0.8]), sol.posterior.quantile([0.025, 0.8]), atol=1e-5)


@pytest.fixture(scope="module")
def reference():
    if not IN_REPOSITORY:
        pytest.skip("reads files of the repository beside tests/")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from accuracy_reference import cases
    finally:
        sys.path.pop(0)
    stored = json.loads((ROOT / "benchmarks" / "accuracy_reference.json").read_text())["cases"]
    return {case.name: (case, stored[case.name]) for case in cases()}


@pytest.mark.parametrize(
    ("name", "sd_error"),
    [
        ("Pima", 0.004),
        ("Pima, wide", 0.010),
        ("Breast cancer", 0.010),
        ("Glass", 0.006),
        ("Glass, wide", 0.010),
        ("Coal disasters", 0.003),
        ("Pound/dollar", 0.003),
    ],
)
def test_against_long_mcmc(reference, name, sd_error):
    case, truth = reference[name]
    models = {"bernoulli": BernoulliLogit("exact"), "poisson": Poisson(), "volatility": StochasticVolatility()}
    sol = fenchel.infer(models.get(case.kind, StochasticVolatility()), DenseCovariance(case.K), case.y, tol=1e-10)
    found = sol.corrected()
    assert found.trusted
    assert abs(found.log_evidence - truth["log_evidence"]) <= max(3.0 * truth["log_evidence_se"], 0.02)
    assert abs(found.log_evidence - truth["log_evidence"]) <= 3.0 * (found.log_evidence_se + truth["log_evidence_se"])
    assert np.mean(np.abs(np.log(found.sd / np.array(truth["sd"])))) <= sd_error
