"""The glass experiment: certified everywhere, the star where it belongs, nothing missing from the race."""

import json

import numpy as np
import pytest
from scipy.special import softmax

from fenchel.datasets import load_glass
from fenchel.inference import infer
from fenchel.paper import glass
from fenchel.paper.glass_page import page
from fenchel.paper.reproduce import Settings, plain
from fenchel.priors import DenseCovariance

QUICK = Settings(quick=True)


@pytest.fixture(scope="module")
def study():
    return glass.study(QUICK)


@pytest.fixture(scope="module")
def result(study):
    return page(study, QUICK)


def test_split_and_standardisation():
    data = glass.split(load_glass(), 0)
    assert (data.X.shape, data.X_test.shape) == ((171, 9), (43, 9))
    np.testing.assert_allclose(data.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X.std(axis=0), 1.0)
    assert np.bincount(np.concatenate([data.y, data.y_test]).astype(int)).tolist() == [70, 76, 17, 13, 9, 29]
    assert "Si" not in glass.split(load_glass(), 0, "Si").features
    assert glass.split(load_glass(), 0, "Si").X.shape == (171, 8)
    assert not np.array_equal(data.y_test, glass.split(load_glass(), 1).y_test)


def test_kernel_has_no_minus_and_sees_equal_rows():
    x = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    K = glass.kernel(glass.squared(x, x), np.log(2.0), np.log(3.0))
    assert K[0, 1] == pytest.approx(9 * np.exp(-0.5 * 4 / 2))
    assert K[0, 2] == K[0, 0] == pytest.approx(9.0)


def test_the_full_grid_is_the_papers_size():
    assert glass.LOG_S.size == glass.LOG_SIGMA.size == 11


def test_every_point_is_certified_and_the_star_is_the_minimum(study):
    for name, surface in study.surfaces.items():
        assert surface.gap.max() <= glass.TOL, name
        assert surface.inside, name
        i, j = surface.star
        assert surface.negative[i, j] == surface.negative.min()
        assert surface.best == (surface.log_s[j], surface.log_sigma[i])
        assert study.stars[name].elbo == pytest.approx(-surface.negative.min(), abs=1e-3)
        assert study.stars[name].bits == pytest.approx(surface.bits[i, j], abs=1e-3)
    np.testing.assert_allclose(study.surfaces[glass.PAPERS].negative, study.cold.negative, rtol=3e-6)
    assert study.stars[glass.TILTED].elbo > study.stars[glass.PAPERS].elbo
    assert study.tilted_there > study.best.elbo


def test_bits_are_those_of_samples(study):
    """The predictive by joint draws of eta at training and test rows, conditioned on the fit."""
    data, (log_s, log_sigma) = study.data, study.surfaces[glass.PAPERS].best
    prior = DenseCovariance(glass.kernel(data.distance[0], log_s, log_sigma))
    solution = infer(glass.LIKELIHOODS[glass.PAPERS](), prior, data.y)
    each, p = glass.prediction(data, solution, log_s, log_sigma)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    V = np.linalg.inv(np.linalg.inv(prior.covariance + 1e-9 * np.eye(171)) + np.diag(solution.lam[:, 0]))
    cross = glass.kernel(data.distance[1], log_s, log_sigma)
    A = np.linalg.solve(prior.covariance + 1e-9 * np.eye(171), cross.T).T
    spread = np.exp(2 * log_sigma) - np.einsum("ij,ij->i", A, cross) + np.einsum("ij,jk,ik->i", A, V, A)
    mean, variance = solution.posterior.predict(cross=cross, variance=np.full(43, np.exp(2 * log_sigma)))
    np.testing.assert_allclose(variance[:, 0], spread, rtol=1e-4)
    np.testing.assert_allclose(mean, A @ solution.posterior.mean, atol=1e-4)
    eta = mean + np.sqrt(variance) * np.random.default_rng(5).normal(size=(20_000, *mean.shape))
    probability = softmax(np.concatenate([eta, np.zeros((*eta.shape[:2], 1))], axis=2), axis=2).mean(axis=0)
    own = probability[np.arange(43), data.y_test.astype(int)]
    assert -np.log2(own).mean() == pytest.approx(each.mean(), abs=0.02)


def test_equal_rows_share_a_latent(study):
    data = study.data
    prior = glass.shared_latents(data, 2.5, 1.0)
    same = infer(glass.LIKELIHOODS[glass.PAPERS](), DenseCovariance(glass.kernel(data.distance[0], 2.5, 1.0)), data.y)
    assert prior.covariance.shape[0] == np.unique(data.X, axis=0).shape[0] < data.y.size
    assert np.linalg.eigvalsh(prior.covariance)[0] > 0
    assert infer(glass.LIKELIHOODS[glass.PAPERS](), prior, data.y).elbo == pytest.approx(same.elbo, abs=1e-6)


def test_the_race_is_complete_and_its_finishers_agree(study):
    names = [entry.name for entry in study.entries]
    assert names[:4] == ["dual Newton", "dual L-BFGS", "Opper-Archambeau", "Opper-Archambeau, whitened"]
    assert set(names) < {runner.name for runner in glass.runners(quick=False)}
    assert study.best.converged
    assert study.entries[0].solution.converged
    ended = [e.solution.elbo for e in study.ends if e.solution.converged]
    assert ended
    np.testing.assert_allclose(ended, study.best.elbo, atol=1e-4)
    assert all(e.solution is not None or e.refused for e in study.entries)
    assert max(e.solution.trace["elbo"].max() for e in study.entries if e.solution) <= study.best.elbo + 1e-6


def test_numbers_are_json_and_the_page_is_whole(result, study, tmp_path):
    numbers = json.loads(json.dumps(plain(result.numbers), allow_nan=False))
    assert numbers["rows"] == {"train": 171, "test": 43}
    assert len(numbers["race"]["methods"]) == len(study.entries)
    assert len(numbers["grids"]) == len(numbers["stars"]) == 2
    assert set(result.figures) == {"evidence", "bits", "tilted_evidence", "tilted_bits", "race"}
    assert len(result.sections) == 6
    assert result.summary
    text = "\n".join(str(block) for section in result.sections for block in section.blocks)
    assert "does not say which" in text
    assert "100 times" in text


def test_one_job_of_many_is_the_same_grid(study):
    grid = study.surfaces[glass.PAPERS].log_s, study.surfaces[glass.PAPERS].log_sigma
    again = glass.star_of("again", QUICK.seed, None, grid)
    assert again.elbo == pytest.approx(study.stars[glass.PAPERS].elbo, abs=1e-6)
    assert [s.name for s in (*study.without, *study.splits)] == ["without RI", "seed 1"]
