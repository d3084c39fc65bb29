"""A solver of the user's own, written here as a user would: it works at once, and its word is not taken for it."""

import pickle

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.checks import Refusal
from fenchel.hyperparameters import KernelCovariance, learn
from fenchel.likelihoods import BernoulliLogit, Gaussian, Poisson
from fenchel.priors import DenseCovariance, Features
from fenchel.solvers import CoupledNewton, Ending, MirrorNewton, MirrorSearch, Outcome, Solver


# -- what a user writes ----------------------------------------------------------------------------
class MirrorDescent(Solver):
    """tau <- tau - t g in the mirror coordinate, ds = -g = s* - s, with Armijo on the dual."""

    name = "mirror descent"

    def __init__(self, armijo=1e-4, shortest=1e-8):
        self.armijo, self.shortest = armijo, shortest

    def run(self, problem, start, stopping):
        point, n, step, most = start, 0, 0.0, 1.0
        while (ending := stopping.record(n, point, step)) is None:
            slope = -float(np.sum(point.newton_system().spread * point.g**2))
            found, t = None, most
            while found is None and t >= self.shortest:
                trial = problem.at(point.s - t * point.g)
                found, t = (trial, t) if trial.dual <= point.dual + self.armijo * t * slope else (None, t / 2)
            if found is None:
                ending = stopping.ended(point, "stalled", "no step lowers the dual", "; use method='newton'")
                break
            point, step, n, most = found, t, n + 1, min(1.0, 2.0 * t)
        return Outcome(point, ending, n, stopping.trace)


# --------------------------------------------------------------------------------------------------


x = np.linspace(0.0, 4.0, 25)[:, None]
K = np.exp(-0.5 * (x - x.T) ** 2)
counts = np.random.default_rng(0).poisson(np.exp(np.sin(2.0 * x[:, 0])))
MODELS = [
    (Poisson(), DenseCovariance(K), counts),
    (BernoulliLogit("log-sum"), Features(np.hstack([x, np.sin(x)])), counts > 1),
    (Gaussian(0.5), DenseCovariance(K), np.cos(x[:, 0])),
]


@pytest.mark.parametrize(("likelihood", "prior", "y"), MODELS, ids=lambda part: type(part).__name__)
def test_it_finds_the_certified_optimum(likelihood, prior, y):
    own = fenchel.infer(likelihood, prior, y, method=MirrorDescent(), tol=1e-9, max_iter=5000)
    best = fenchel.infer(likelihood, prior, y, tol=1e-12)
    assert own.converged, own.status
    assert own.method == "mirror descent"
    assert own.ending.code == "converged"
    assert own.ending.value <= own.ending.tol == 1e-9
    assert own.status == own.ending.sentence
    assert own.gap <= 1e-9 * max(1.0, abs(own.elbo))
    assert own.elbo <= best.elbo_upper
    assert best.elbo <= own.elbo_upper
    off = (own.posterior.mean - best.posterior.mean) / np.sqrt(best.posterior.variance + 1e-300)
    assert np.abs(off).max() <= 2.0 * np.sqrt(own.gap + best.gap)
    assert len(own.trace) == own.n_iter + 1


def test_its_ends_are_codes():
    model = MODELS[0]
    short = fenchel.infer(*model, method=MirrorDescent(), tol=1e-12, max_iter=1)
    assert (short.ending.code, short.converged) == ("max_iter", False)
    stopped = fenchel.infer(*model, method=MirrorDescent(), callback=lambda row: row["iteration"] == 1)
    assert (stopped.ending.code, stopped.ending.word) == ("callback", "stopped")
    stalled = fenchel.infer(*model, method=MirrorDescent(shortest=2.0), tol=1e-12)
    assert stalled.ending.code == "stalled"
    assert stalled.status.startswith("not converged: no step lowers the dual at relative gap")
    far = fenchel.infer(*model, method=MirrorDescent(), start=np.full(25, 300.0), max_iter=1)
    assert far.ending.notes
    assert far.status.endswith(f"({far.ending.notes[0]})")


class Boaster(MirrorDescent):
    """It stops where it began and says that it has converged."""

    def run(self, problem, start, stopping):
        stopping.record(0, start, 0.0)
        return Outcome(start, Ending("converged", "relative gap", 0.0, stopping.tol), 0, stopping.trace)


def test_the_certificate_judges_not_the_solver():
    sol = fenchel.infer(*MODELS[0], method=Boaster())
    assert not sol.converged
    assert not sol.optimal
    assert sol.gap > 1e-6
    assert sol.status.startswith("not converged: the solver ended at relative gap")


def test_learning_takes_it():
    family = KernelCovariance(1.0 * RBF(1.0), x)
    own = learn(Poisson(), family, counts, method=MirrorDescent(), tol=1e-8)
    known = learn(Poisson(), family, counts, tol=1e-8)
    assert own.solution.method == "mirror descent"
    assert own.converged, own.status
    assert own.ending.code == "converged"
    assert own.ending.fit.code == "converged"
    np.testing.assert_allclose(own.theta, known.theta, atol=0.02)
    assert own.objective == pytest.approx(known.objective, abs=1e-5)


def test_a_solution_of_it_is_pickled_and_started_from():
    own = fenchel.infer(*MODELS[0], method=MirrorDescent(), max_iter=5000)
    again = pickle.loads(pickle.dumps(own))
    assert again.ending == own.ending
    assert again.status == own.status
    np.testing.assert_array_equal(again.posterior.mean, own.posterior.mean)
    np.testing.assert_array_equal(again.loo().log_density, own.loo().log_density)
    warm = fenchel.infer(*MODELS[0], start=again)
    assert warm.converged
    assert warm.n_iter <= 1


def test_a_bound_without_a_dual_is_refused_to_it():
    with pytest.raises(Refusal, match="mirror descent minimises the dual, and BernoulliLogit"):
        fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), counts > 1, method=MirrorDescent())


# -- parts of the solvers that are here ------------------------------------------------------------
def test_parts_are_settings():
    model = MODELS[0]
    best = fenchel.infer(*model, tol=1e-14)
    short = MirrorNewton(MirrorSearch(patience=1), reach=0.1, finish=CoupledNewton())
    slow = fenchel.infer(*model, method=short, tol=1e-14)
    assert slow.converged
    assert slow.n_iter > best.n_iter
    np.testing.assert_allclose(slow.posterior.mean, best.posterior.mean, atol=1e-6)
    assert pickle.loads(pickle.dumps(short)) == short


def test_coupled_newton_is_named_where_it_did_the_work():
    exact = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), counts > 1)
    assert exact.method == CoupledNewton().name
    noiseless = Gaussian(1e-12), DenseCovariance(K[::4, ::4]), np.sin(x[::4, 0])  # s alone cannot name its optimum
    assert fenchel.infer(*noiseless).method == "newton, then coupled newton"
    assert fenchel.infer(*noiseless, method=MirrorNewton(), max_iter=30).method == "newton"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: MirrorNewton(search=3), "search is a int; expected a MirrorSearch"),
        (lambda: MirrorNewton(reach=-1.0), "reach = -1.0; expected a finite number above 0"),
        (lambda: MirrorNewton(finish=CoupledNewton().finish), "finish is a method; expected a Finisher"),
    ],
)
def test_parts_that_are_none_are_refused(made, words):
    with pytest.raises(Refusal, match=words):
        made()
