"""Stochastic volatility and logistic regression: quick runs, certificates, and witnesses of their own."""

import json

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import expit

from fenchel import infer
from fenchel.likelihoods import BernoulliLogit, StochasticVolatility
from fenchel.paper import logistic, volatility
from fenchel.paper.race import WITHIN
from fenchel.paper.reproduce import Settings, plain

QUICK = Settings(quick=True, cap=1.0)


@pytest.fixture(scope="module")
def series():
    return volatility.study(QUICK)


@pytest.fixture(scope="module")
def pima():
    return logistic.study(QUICK)


def whole(result, tmp_path):
    """Everything an experiment promises: json without nan, figures with labels, words everywhere."""
    for path in result.save(tmp_path):
        assert path.stat().st_size > 1000
    numbers = json.loads((tmp_path / f"{result.name}.json").read_text())
    assert numbers == json.loads(json.dumps(plain(result.numbers), allow_nan=False))
    for figure in result.figures.values():
        named = [t.get_text() for ax in figure.axes for t in ax.get_yticklabels() if t.get_text().isalpha()]
        assert any(ax.get_xlabel() for ax in figure.axes)
        assert named or all(ax.get_ylabel() for ax in figure.axes)
    assert result.summary
    assert all(section.blocks for section in result.sections)
    return numbers


def same_optimum(entries, best):
    """What shares the bound comes to the same value, unless the cap was first; nothing comes above."""
    for entry in entries:
        assert not entry.refused, entry.refused
        assert entry.solution.elbo <= best + 1e-7
        assert entry.capped or not entry.runner.same_bound or np.isfinite(entry.seconds_to(best - WITHIN[-1]))


def test_the_volatility_page(series, tmp_path):
    from fenchel.paper.volatility import page

    numbers = whole(page(series), tmp_path)
    assert numbers["zero_returns"] == 35
    assert np.shape(numbers["evidence"]) == (5, 5)
    assert numbers["race"][0]["method"] == "dual Newton"


def test_volatility_is_certified_and_better_than_a_constant(series):
    assert series.grid.largest_gap <= 1e-8
    assert series.solution.converged
    assert series.solution.elbo >= series.grid.evidence.max() - 1e-5
    assert series.solution.elbo > series.constant.elbo + 50
    assert series.solution.loo().elpd > series.constant.loo().elpd + 50
    assert (series.lower < series.sd).all()
    assert (series.sd < series.upper).all()
    assert not series.grid.at_edge
    same_optimum(series.entries, series.solution.elbo)


def test_the_dense_prior_of_the_rivals_is_the_sparse_one():
    """The closed form of the covariance against the inverse of the precision, and the same elbo from both."""
    n, at = 60, (0.7, 0.9)
    y = volatility.load_stochvol().returns[:n]
    sparse, dense = volatility.field(n).at(volatility.theta(*at)), volatility.dense(n, *at)
    W, Q = sparse.design.toarray(), volatility.field(n).build(volatility.theta(*at))[0].toarray()
    np.testing.assert_allclose(W @ np.linalg.inv(Q) @ W.T, dense.covariance, rtol=1e-9)
    a, b = (infer(StochasticVolatility(), prior, y, tol=1e-12) for prior in (sparse, dense))
    assert a.elbo == pytest.approx(b.elbo, abs=1e-8)


def test_days_without_a_change_pull_the_volatility_down(series):
    calm = series.zeros
    assert calm.sum() == 35
    with_, without = (s.posterior.mean[calm] for s in (series.solution, series.without_zeros))
    assert (with_ < without).all()
    assert (series.solution.lam[calm] == 0).all()


def test_the_common_start_is_near_the_prior_mean():
    """Without it the zero returns throw the intercept hundreds of units out and most rivals never come back."""
    y = volatility.load_stochvol().returns
    prior = volatility.dense(y.size, 0.5, 0.98)
    sol = infer(StochasticVolatility(), prior, y, start=volatility.start_line(y), max_iter=0)
    assert sol.elbo > -2000
    assert float(np.sum(sol.alpha)) == pytest.approx(0.0, abs=1e-9)


def test_the_logistic_page(pima, tmp_path):
    from fenchel.paper.logistic_page import page

    numbers = whole(page(pima), tmp_path)
    assert set(numbers["methods"]) == {"log-sum", "tilted", "Laplace", "EP"}
    assert numbers["race"][0]["method"] == "dual Newton"


def test_the_tilted_evidence_lies_between_the_paper_s_and_the_truth(pima):
    above = [s.log_evidence + 4 * s.error for s in pima.sampled]
    low, high = pima.learned["log-sum"].evidence, pima.learned["tilted"].evidence
    assert (low < high).all()
    assert (high < above).all()
    assert pima.truth.error < 0.01
    # the tilted bound is a tenth as loose, and what is lost is the local bound's for the most part
    short = {name: pima.truth.log_evidence - pima.fits[name].elbo for name in ("log-sum", "tilted")}
    assert short["tilted"] < 0.1 * short["log-sum"]
    for name, value in pima.without_bound.items():
        assert pima.fits[name].elbo < value < pima.truth.log_evidence + 4 * pima.truth.error


def test_the_logistic_fits(pima):
    for one in pima.learned.values():
        assert one.solution.converged
        assert 0.6 < one.bits < 0.68
        assert 0.75 < one.accuracy < 0.85
    for name in ("log-sum", "tilted"):
        assert pima.learned[name].solution.certificate == "duality"
        assert pima.learned[name].solution.gap <= 1e-6
    same_optimum(pima.entries, pima.optimum.elbo)
    # the paper's bound makes the posterior too narrow; EP's is right
    sd = {name: np.sqrt(fit.posterior.latent_variance) / pima.truth.sd for name, fit in pima.fits.items()}
    assert sd["log-sum"].max() < 0.9
    np.testing.assert_allclose(sd["EP"], 1.0, atol=0.05)
    assert abs(pima.fits["EP"].log_evidence - pima.truth.log_evidence) < 0.05


def test_importance_sampling_against_integration():
    """Two latents and six rows: the integral itself."""
    rng = np.random.default_rng(3)
    whole_design = logistic.prepare()
    W, y = np.column_stack([np.ones(6), rng.normal(size=6)]), np.array([0.0, 1, 1, 0, 1, 1])
    tiny = logistic.PimaDesign(whole_design.data, W, y, W, y)
    variance = np.array([logistic.INTERCEPT_VARIANCE, 0.8])

    def joint(b, a):
        p = expit(W @ np.array([a, b]))
        prior = np.exp(-0.5 * (a * a / variance[0] + b * b / variance[1])) / (2 * np.pi * np.sqrt(variance.prod()))
        return prior * np.prod(np.where(y == 1, p, 1 - p))

    truth = np.log(dblquad(joint, -60, 60, -8, 8, epsabs=1e-12)[0])
    sampled = logistic.sample(tiny, 0.8, 40_000, rng)
    assert sampled.log_evidence == pytest.approx(truth, abs=5 * sampled.error)
    assert sampled.error < 0.02
    bound = infer(BernoulliLogit("tilted"), tiny.prior(0.8), y)
    assert bound.elbo < truth
