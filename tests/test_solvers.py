"""Every likelihood x prior x solver: certified, from good starts and bad, at planted optima and hostile scales."""

from typing import ClassVar

import numpy as np
import pytest
from conftest import CONVEX_CASES, LIKELIHOODS, difference, priors_for
from hypothesis import example, given
from hypothesis import strategies as st

import fenchel
from fenchel.likelihoods import (
    BernoulliLogit,
    Gaussian,
    Likelihood,
    MultinomialLogit,
    Ordinal,
    Poisson,
    StochasticVolatility,
)
from fenchel.likelihoods.bounds import ConvexBound
from fenchel.priors import DenseCovariance, Features, InducingPoints, SparsePrecision
from fenchel.problem import Problem
from fenchel.solvers import FeasibleLBFGS, Stopping

cases = pytest.mark.parametrize(("likelihood", "y"), CONVEX_CASES)


def kernel(n, variance=1.0, length=1.0, seed=0):
    x = np.sort(np.random.default_rng(seed).normal(size=n))
    return variance * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2 / length**2)


def with_offset(prior, offset):
    """The same prior around another mean."""
    if isinstance(prior, DenseCovariance):
        return DenseCovariance(prior.covariance, 0.0, prior.design, offset)
    if isinstance(prior, SparsePrecision):
        constraints = None if prior.constraint is None else prior.constraint.C
        return SparsePrecision(prior.precision, 0.0, prior.design, offset, constraints)
    if isinstance(prior, InducingPoints):
        return InducingPoints(prior.kernel, prior.rows.X, prior.rows.points, offset, **prior.rows.trend.arguments)
    return Features(prior.design, prior.variance, 0.0, offset)


def plant(likelihood, prior, y, seed):
    """A prior mean that makes a chosen s optimal: mt = S alpha + h, with h from s = s*.

    With two potentials on a predictor s cannot be chosen freely: choose h and let s settle at s*(h, rho(s)).
    """
    rng = np.random.default_rng(seed)
    rows, n = likelihood.prepare(y), len(y)
    C, P = likelihood.n_predictors, len(likelihood.objective.layout)
    bound = prior.bind(n, C, likelihood.objective.site(likelihood.objective.start(rows, 1.0), rows).slack is not None)
    s = rng.normal(size=(n, P))
    w = rows["weight"][:, None]
    h = rng.normal(size=(n, C))
    for _ in range(400 if P > C else 1):
        site = likelihood.objective.site(s, rows)
        rho = bound.at(w * site.lam).variance + bound.extra_variance
        if P > C:
            s = 0.5 * s + 0.5 * likelihood.objective.seen_from(h, rho, site.lam_slope, rows)
        else:
            h = (s - site.lam_slope * rho / 2) / likelihood.objective.signs(rows)
    site = likelihood.objective.site(s, rows)
    offset = bound.apply(w * site.alpha) + h
    return with_offset(prior, offset), s, h


@cases
def test_planted_optimum_is_recovered(likelihood, y):
    for i, prior in enumerate(priors_for(likelihood)):
        planted, s, h = plant(likelihood, prior, y, i)
        sol = fenchel.infer(likelihood, planted, y, tol=1e-30, max_iter=60)
        assert sol.gap / max(1.0, abs(sol.elbo)) < 1e-10
        rows = likelihood.prepare(y)
        q = np.sqrt(likelihood.objective.site(s, rows).spread)
        ds = sol.s - s
        if isinstance(likelihood, MultinomialLogit) and likelihood.reference is None:
            ds = ds - ds.mean(axis=1, keepdims=True)  # s of a symmetric softmax is fixed up to a constant
        assert np.abs(q * ds).max() < 1e-7, (prior, np.abs(q * ds).max())
        np.testing.assert_allclose(np.reshape(sol.posterior.mean, h.shape), h, atol=1e-6)


@cases
def test_newton_certifies_every_prior(likelihood, y):
    for prior in priors_for(likelihood):
        sol = fenchel.infer(likelihood, prior, y, tol=1e-10)
        assert sol.converged, (prior, sol.status)
        assert sol.gap <= 1e-10 * max(1.0, abs(sol.elbo))
        assert sol.status.startswith("converged")
        assert sol.n_iter <= 12


@cases
@pytest.mark.parametrize("search", ["wolfe", "armijo"])
def test_lbfgs_agrees_where_it_is_well_conditioned(likelihood, y, search):
    for prior in priors_for(likelihood)[:3]:
        newton = fenchel.infer(likelihood, prior, y, tol=1e-12)
        paper = fenchel.infer(likelihood, prior, y, method=FeasibleLBFGS(line_search=search), tol=1e-7, max_iter=600)
        assert paper.converged, paper.status
        assert paper.elbo == pytest.approx(newton.elbo, abs=1e-5 * max(1.0, abs(newton.elbo)))


@cases
@pytest.mark.parametrize("method", ["newton", "lbfgs"])
def test_weak_duality_at_every_iterate(likelihood, y, method):
    """P <= best ELBO <= D at every iterate, and the two formulas for P agree."""
    prior = priors_for(likelihood)[0]
    best = fenchel.infer(likelihood, prior, y, tol=1e-13).elbo
    sol = fenchel.infer(likelihood, prior, y, method=method, tol=1e-6)
    slack = 1e-9 * max(1.0, abs(best))
    assert (sol.trace["elbo"] <= best + slack).all()
    assert (sol.trace["elbo_upper"] >= best - slack).all()
    assert (sol.trace["gap"] >= 0).all()
    assert sol.elbo_upper == pytest.approx(sol.elbo + sol.gap)
    problem = Problem(likelihood, prior, y)
    for seed in range(3):
        s = np.random.default_rng(seed).normal(size=problem.default_start().shape)
        point = problem.at(s)
        assert point.primal() == pytest.approx(point.elbo, rel=1e-9, abs=1e-9)


@cases
def test_gradient_and_curvature_against_differences(likelihood, y):
    """grad_tau D = s - s*, seen from s: dD/ds = J (s - s*); and Newton's system is the Hessian's."""
    problem = Problem(likelihood, priors_for(likelihood)[0], y)
    s = np.random.default_rng(0).normal(size=problem.default_start().shape)
    point = problem.at(s)

    def dual_gradient(s):
        p = problem.at(s)
        d = p.newton_system().spread
        out = d * p.g
        if p.site.slack is not None:
            total = (problem.weight * p.site.slack + d.sum(1))[:, None]
            out = out - d * (d * p.g).sum(1, keepdims=True) / total
        return out

    numeric = difference(lambda s: problem.at(s).dual, s).reshape(s.shape)
    np.testing.assert_allclose(dual_gradient(s), numeric, rtol=1e-5, atol=1e-5)
    ds, _ = point.factor.direction(point.newton_system(accuracy=1e-12))
    step = 1e-5
    moved, back = problem.at(s + step * ds), problem.at(s - step * ds)
    # along Newton's direction the gradient in tau falls at unit rate
    rate = (moved.g - back.g) / (2 * step)
    live = point.site.spread > 1e-12
    if point.site.slack is not None and not point.site.slack.any():
        rate, target = rate - rate.mean(1, keepdims=True), -(point.g - point.g.mean(1, keepdims=True))
    else:
        target = -point.g
    np.testing.assert_allclose(rate[live], target[live], rtol=1e-4, atol=1e-4 * np.abs(target).max())


@given(st.integers(0, 10_000), st.floats(-3, 6), st.sampled_from(range(len(LIKELIHOODS))))
def test_any_scale_converges(seed, log_variance, which):
    """Signal variances from 1e-3 to 1e6, any length scale, any likelihood of the registry."""
    rng = np.random.default_rng(seed)
    likelihood, y = LIKELIHOODS[which].example(rng, 14)
    prior = DenseCovariance(kernel(14, 10.0**log_variance, 10.0 ** rng.uniform(-1, 1), seed))
    if log_variance > 4.5 and likelihood.bound != "tilted" and not isinstance(likelihood, Gaussian):
        tol = 1e-6
    else:
        tol = 1e-8
    sol = fenchel.infer(likelihood, prior, y, tol=tol)
    assert sol.converged, (likelihood, log_variance, sol.status)


@given(st.integers(0, 10_000), st.floats(-2, 4), st.sampled_from(range(len(LIKELIHOODS))))
@example(50, 0.0, 13)  # variances of contrasts that no covariance has
@example(72, 0.0, 13)
def test_any_start_converges(seed, log_scale, which):
    rng = np.random.default_rng(seed)
    likelihood, y = LIKELIHOODS[which].example(rng, 11)
    prior = DenseCovariance(kernel(11, 4.0, seed=seed))
    best = fenchel.infer(likelihood, prior, y, tol=1e-10)
    start = 10.0**log_scale * rng.standard_t(2, size=best.s.shape)
    sol = fenchel.infer(likelihood, prior, y, tol=1e-8, start=start)
    assert sol.converged, (likelihood, log_scale, sol.status)
    if likelihood.objective.log_concave:  # else the start may choose among stationary points
        assert sol.elbo == pytest.approx(best.elbo, abs=1e-6 * max(1.0, abs(best.elbo)))


@pytest.mark.parametrize("value", [-1e8, -1e3, 1e3, 1e8])
@cases
def test_absurd_starts(likelihood, y, value):
    prior = priors_for(likelihood)[0]
    shape = (len(y), len(likelihood.objective.layout))
    sol = fenchel.infer(likelihood, prior, y, start=np.full(shape, value))
    assert sol.converged, sol.status
    paper = fenchel.infer(likelihood, prior, y, start=np.full(shape, value), method="lbfgs", tol=1e-5, max_iter=600)
    assert paper.converged, paper.status


def test_an_unusable_start_is_named_in_the_status():
    sol = fenchel.infer(Poisson(), DenseCovariance(kernel(5)), [1.0, 2.0, 0.0, 3.0, 1.0], start=np.full(5, 1e4))
    assert sol.converged
    assert "pulled" in sol.status or "default" in sol.status


def test_warm_starts_save_iterations():
    y = np.random.default_rng(0).poisson(3.0, 40)
    cold = fenchel.infer(Poisson(), DenseCovariance(kernel(40, 4.0)), y)
    near = DenseCovariance(kernel(40, 4.2))
    warm = fenchel.infer(Poisson(), near, y, start=cold)
    assert warm.n_iter < fenchel.infer(Poisson(), near, y).n_iter
    again = fenchel.infer(Poisson(), DenseCovariance(kernel(40, 4.0)), y, start=cold.s)
    assert again.n_iter == 0


def test_max_iter_and_callback_end_honestly():
    y, prior = np.random.default_rng(0).poisson(3.0, 40), DenseCovariance(kernel(40, 9.0))
    short = fenchel.infer(Poisson(), prior, y, max_iter=1)
    assert not short.converged
    assert "max_iter = 1" in short.status
    assert short.gap > 0
    assert len(short.trace) == 2
    seen = []
    stopped = fenchel.infer(Poisson(), prior, y, callback=lambda row: seen.append(row) or len(seen) == 2)
    assert "callback" in stopped.status
    assert not stopped.converged
    assert seen[0]["iteration"] == 0
    assert set(seen[0]) == set(stopped.trace.columns)
    assert fenchel.infer(Poisson(), prior, y, max_iter=0).n_iter == 0


def test_lbfgs_says_so_when_it_does_not_converge():
    rng = np.random.default_rng(1)
    x = np.linspace(0, 10, 80)
    K = 100.0 * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    y = (rng.random(80) < 0.5).astype(float)
    sol = fenchel.infer(BernoulliLogit("log-sum"), DenseCovariance(K), y, method="lbfgs", max_iter=30)
    best = fenchel.infer(BernoulliLogit("log-sum"), DenseCovariance(K), y)
    assert best.converged
    assert not sol.converged
    assert "not converged" in sol.status
    assert best.elbo - sol.elbo <= sol.gap * (1 + 1e-9) + 1e-9  # the gap it reports is true
    assert sol.gap > 1e-8 * abs(sol.elbo)


def test_progress_draws_and_changes_nothing(capsys):
    y, prior = [1.0, 2.0, 0.0], DenseCovariance(kernel(3))
    quiet = fenchel.infer(Poisson(), prior, y)
    assert capsys.readouterr().out == ""
    loud = fenchel.infer(Poisson(), prior, y, progress=True)
    assert "gap" in capsys.readouterr().out
    assert loud.elbo == quiet.elbo


def test_iterations_of_the_design_table():
    """No more than two above what the prototype needed; tilted at most 12."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.gaussian_process.kernels import RBF

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    for variance, length, limit in ((1, 5, 8), (9, 5, 9), (100, 5, 11), (1e4, 10, 15), (1e6, 3, 60)):
        prior = DenseCovariance(variance * RBF(length)(X))
        log_sum = fenchel.infer(BernoulliLogit("log-sum"), prior, y, tol=1e-6)
        tilted = fenchel.infer(BernoulliLogit("tilted"), prior, y, tol=1e-6)
        assert log_sum.converged
        assert tilted.converged
        assert log_sum.n_iter <= limit
        assert tilted.n_iter <= 12
        assert tilted.elbo >= log_sum.elbo


class Forwarded(ConvexBound):
    """A solver must not care who wrote the bound: this one only forwards what a site must give."""

    curved = True

    def __init__(self, likelihood):
        super().__init__(likelihood)
        inner = likelihood.inner.objective
        self.layout, self.domain = inner.layout, inner.domain
        for name in ("site", "signs", "coordinate", "divergence", "start", "maximiser", "curve_gap"):
            setattr(self, name, getattr(inner, name))

    site = signs = coordinate = divergence = start = None


class Doubled(Likelihood):
    """Nor who wrote the likelihood."""

    bound = "forwarded"
    bounds: ClassVar = {"forwarded": Forwarded}

    def __init__(self, inner):
        self.inner, self.n_predictors = inner, inner.n_predictors

    def check(self, y):
        return self.inner.check(y)

    def constant(self, rows):
        return self.inner.constant(rows)

    def log_density(self, eta, rows):
        return self.inner.log_density(eta, rows)


def test_a_likelihood_from_outside_the_package():
    y = [0.0, 1.0, 1.0]
    own = fenchel.infer(Doubled(BernoulliLogit("tilted")), DenseCovariance(kernel(3)), y)
    assert own.elbo == fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(kernel(3)), y).elbo


@pytest.mark.parametrize("weights", [2.0, 0.5])
def test_weights_equal_repeated_rows(weights):
    """An integer weight is a repeated observation."""
    K = kernel(6, 2.0)
    for likelihood, y in (
        (Poisson(), [1.0, 0, 3, 2, 0, 1]),
        (BernoulliLogit("tilted"), [0.0, 1, 1, 0, 1, 0]),
        (MultinomialLogit(3, None, bound="log-sum"), [0.0, 1, 2, 2, 1, 0]),
        (Ordinal([-1.0, 1.0], bound="log-sum"), [0.0, 1, 2, 1, 0, 2]),
        (StochasticVolatility(), [0.1, -1.0, 0.0, 2.0, 0.5, 1.0]),
    ):
        y = np.asarray(y, dtype=float)
        n = int(2 * weights)
        index = np.repeat(np.arange(6), n)
        W = np.eye(6)[index]
        repeated = fenchel.infer(
            likelihood, DenseCovariance(K, design=W), y[index], tol=1e-12, weights=np.full(6 * n, 0.5)
        )
        weighted = fenchel.infer(likelihood, DenseCovariance(K), y, tol=1e-12, weights=np.full(6, weights))
        assert weighted.elbo == pytest.approx(repeated.elbo, abs=1e-8)


def test_stopping_rule_is_the_documented_one():
    problem = Problem(Poisson(), DenseCovariance(kernel(3)), [1.0, 2.0, 0.0])
    point = problem.at(problem.default_start())
    exact = point.gap / max(1.0, abs(point.elbo))
    assert Stopping(tol=exact * 1.0001, max_iter=5).reached(point)
    assert not Stopping(tol=exact * 0.9999, max_iter=5).reached(point)


@pytest.mark.parametrize("variance", [1e2, 1e4, 1e6, 1e7])
def test_wide_priors_take_few_iterations(variance):
    """Where steps that must lower the dual crawl for hundreds of iterations."""
    rng = np.random.default_rng(0)
    K = kernel(60, variance)
    X = np.column_stack([np.ones(300), rng.normal(size=(300, 2))])
    labels = (rng.random(300) < 0.4).astype(float)
    for likelihood, prior, y in (
        (StochasticVolatility(), DenseCovariance(K), rng.normal(size=60)),
        (Poisson(), DenseCovariance(K), rng.poisson(2.0, 60)),
        (BernoulliLogit("tilted"), DenseCovariance(K), labels[:60]),
        (BernoulliLogit("log-sum"), Features(X, variance=variance), labels),
        (Ordinal([-1.0, 1.0], "tilted"), DenseCovariance(K), rng.integers(0, 3, 60)),
        (MultinomialLogit(3, None, "tilted"), DenseCovariance(K), rng.integers(0, 3, 60)),
        (StochasticVolatility(), Features(X, variance=variance), rng.normal(size=300)),
    ):
        sol = fenchel.infer(likelihood, prior, y)
        assert sol.converged, (likelihood, prior, sol.status)
        assert sol.n_iter <= 40, (likelihood, prior, sol.n_iter)


def test_real_valued_targets_of_any_size_take_one_step():
    K = kernel(20)
    for scale in (1e-6, 1.0, 1e6):
        sol = fenchel.infer(Gaussian(0.5), DenseCovariance(K), scale * np.arange(20.0))
        assert sol.converged
        assert sol.n_iter <= 1


def test_beyond_double_precision_is_said():
    with pytest.raises(ValueError, match=r"infer: no start can be evaluated .*eta\[0\] is 0 \+- 1e\+04, and .*"):
        fenchel.infer(Gaussian(1e-10), DenseCovariance(kernel(30, 1e8)), np.arange(30.0))


@pytest.mark.parametrize("reference", ["last", None])
@pytest.mark.parametrize("bound", ["log-sum", "tilted"])
def test_warm_starts_across_a_grid_all_converge(reference, bound):
    """Jumps from variance 1e5 to 1e-1 and back leave classes at probability 1e-20 that deserve 1e-2."""
    from fenchel.datasets import load_glass
    from fenchel.hyperparameters.grid import serpentine

    glass = load_glass()
    rows = np.random.default_rng(0).permutation(214)[:90]
    X, y = glass.X[rows], glass.y[rows]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    distance = ((X[:, None] - X[None]) ** 2).sum(-1)
    log_s, log_sigma, last = np.linspace(-1, 6, 6), np.linspace(-1, 6, 6), None
    for i, j in serpentine((6, 6)):
        K = np.exp(2 * log_sigma[j] - 0.5 * distance / np.exp(log_s[i]))
        last = fenchel.infer(MultinomialLogit(6, reference, bound), DenseCovariance(K), y, tol=1e-6, start=last)
        assert last.converged, (log_s[i], log_sigma[j], last.status)


def test_a_fit_blurred_by_rounding_is_judged_anew_under_another_tolerance():
    X, y = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0]]), [1e9, 2e9, 5e8]
    sol = fenchel.infer(Poisson(), Features(X, variance=1e4), y, tol=1e-12)
    assert (sol.ending.code, sol.optimal, sol.converged) == ("rounding", True, False)
    loose = sol.judged_by(1e-2)
    assert (loose.ending.code, loose.converged, loose.tol) == ("converged", True, 1e-2)
    assert loose.status.endswith("<= 1.0e-02")
