"""The Germany experiment, quickly: certified everywhere, sparse equals dense, and what the report claims."""

import json
import re

import numpy as np
import pytest

from fenchel.datasets import load_germany
from fenchel.inference import infer
from fenchel.paper import germany
from fenchel.paper.germany_fits import PAPER, TOL, fit, readings, split
from fenchel.paper.germany_page import page
from fenchel.paper.reproduce import Result, Settings, plain
from fenchel.report import write_report

SETTINGS = Settings(quick=True)


@pytest.fixture(scope="module")
def study():
    return germany.study(SETTINGS)


@pytest.fixture(scope="module")
def result(study) -> Result:
    return page(study, SETTINGS)


@pytest.fixture(scope="module")
def data():
    return load_germany()


def test_split_is_500_and_44(data):
    parts = split(data.Y, 3)
    assert (parts.train.size, parts.test.size) == (500, 44)
    assert set(parts.train) | set(parts.test) == set(range(544))
    assert np.isnan(parts.y[parts.test]).all()
    assert np.isnan(parts.held[parts.train]).all()
    assert np.array_equal(np.where(np.isnan(parts.y), parts.held, parts.y), data.Y)
    assert not np.array_equal(parts.test, split(data.Y, 4).test)


@pytest.mark.parametrize("which", range(3))
def test_sparse_equals_dense(data, which):
    reading, parts = readings(data, quick=True)[which], split(data.Y, 0)
    sparse = fit(reading, parts, PAPER, tol=1e-12)
    # the dense prior over all districts, the held-out ones NaN: it predicts them too
    everyone = np.arange(data.Y.size)
    whole = infer(reading.likelihood(), reading.dense_prior(PAPER, everyone), parts.y, tol=1e-12)
    assert sparse.solution.elbo == pytest.approx(whole.elbo, abs=1e-7)
    np.testing.assert_allclose(sparse.solution.posterior.mean, whole.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(sparse.solution.posterior.variance, whole.posterior.variance, atol=1e-6)
    # and over the training districts alone, as the rivals get it
    rows = parts.train
    alone = infer(reading.likelihood(rows), reading.dense_prior(PAPER, rows), parts.y[rows], tol=1e-12)
    assert sparse.solution.elbo == pytest.approx(alone.elbo, abs=1e-7)


def test_test_log_likelihood_is_the_predictive_integral(data):
    reading, parts = readings(data, quick=True)[2], split(data.Y, 0)
    one = fit(reading, parts, (10.0, 100.0))
    x = np.linspace(-9.0, 9.0, 4001)
    total = 0.0
    for i in parts.test:
        eta = one.solution.posterior.mean[i] + np.sqrt(one.solution.posterior.variance[i]) * x
        rate = data.E[i] * np.exp(eta)
        log_factorial = np.log(np.arange(1, data.Y[i] + 1)).sum()
        density = np.exp(data.Y[i] * np.log(rate) - rate - log_factorial - x**2 / 2) / np.sqrt(2 * np.pi)
        total += np.log(density.sum() * (x[1] - x[0]))
    assert one.test == pytest.approx(total, abs=1e-6)


def test_at_most_six_newton_iterations_at_the_papers_setting(study):
    first = study.races[0]
    assert first.at == PAPER
    for solution in (first.newton, first.newton_dense):
        assert solution.converged
        assert solution.gap <= 1e-8 * abs(solution.elbo)
        assert solution.n_iter <= 6


def test_certified_everywhere(study):
    for surface in study.surfaces.values():
        assert np.isfinite(surface.train).all()
        assert np.isfinite(surface.test).all()
        assert surface.relative_gap.max() <= TOL
    for top in study.maxima.values():
        assert top.train.solution.converged
        assert top.test.solution.converged
    assert all(one.solution.converged for one in study.at_paper.values())


def test_maxima_are_maxima(study, data):
    for key, top in study.maxima.items():
        surface = study.surfaces[key]
        assert top.train.train >= surface.train.max() - 1e-4
        assert top.test.test >= surface.test.max() - 1e-4
        if not top.train_edge:
            reading = study.readings[key]
            for step in ((1.05, 1.0), (1 / 1.05, 1.0), (1.0, 1.05), (1.0, 1 / 1.05)):
                near = fit(reading, study.split, (top.train.at[0] * step[0], top.train.at[1] * step[1]))
                assert near.train <= top.train.train + 1e-4


def test_methods_of_one_bound_agree(study):
    for run in study.races:
        assert run.best_gap <= 1e-6
        assert run.sparse_elbo == pytest.approx(run.best, abs=1e-6)
        assert "dual Newton" in run.ends
        assert "dual Newton, sparse prior" in run.ends
        assert max(abs(end) for end in run.ends.values()) <= 1e-4
        for entry in run.entries:  # no Gaussian is above the certified optimum, whatever it maximises
            assert entry.solution is not None, entry.refused
            assert entry.solution.elbo <= run.best + run.best_gap + 1e-6


def test_the_level_explains_k_v(study):
    # at the maximum 1/k_v is the mean square of v; without an intercept that is mostly the squared level
    for key in ("written", "level"):
        _, second, _ = study.moments(key)
        assert 1 / study.maxima[key].train.at[1] == pytest.approx(second, rel=0.02)
    level, second, _ = study.moments("written")
    assert level**2 > 0.8 * second
    assert abs(study.moments("level")[0]) < 0.01
    assert study.losses("written")[0] < 20 < 200 < study.losses("level")[0]


def test_result_is_complete(result, tmp_path):
    numbers = json.loads(json.dumps(plain(result.numbers), allow_nan=False))
    assert numbers["races"][0]["newton_iterations"] <= 6
    assert len(numbers["map"]["risk"]) == 544
    assert set(numbers["readings"]) == {"written", "level", "exposure"}
    assert all(len(line) < 200 for line in result.summary)
    text = write_report(tmp_path / "report.html", result.title, result.sections).read_text(encoding="utf-8")
    words = re.sub(r"base64,[^\"]*", "", text)
    assert words.count("<img ") == len(result.figures)
    assert not re.search(r"\b(nan|inf)\b", words)
    assert "tilted" in words
    for figure in result.figures.values():
        assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes[:1] if ax.axison)
