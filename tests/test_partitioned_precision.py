"""Precisions of fits by passes: products on a pattern against dense matrices, and the two kinds against each other."""

import numpy as np
import pytest
import scipy.sparse as sp

from fenchel.distributed import Learning, Sums
from fenchel.distributed.approximation import Approximation, EvaluatedApproximation, QuadraticModel
from fenchel.distributed.precision import GroupedVariances, PatternDesign, SparsePrior, Triangle
from fenchel.hyperparameters import WeightVariances
from fenchel.likelihoods import Gaussian, Poisson

L, P = 12, 2  # latents and fixed effects, which every row has


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    A = sp.random_array((40, L), density=0.3, rng=rng, format="csr")
    A = sp.csr_array(sp.hstack([A, sp.csr_array(rng.normal(size=(40, P)))], format="csr"))
    A.sort_indices()
    ones = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
    pattern = sp.csc_array(ones.T @ ones + sp.eye_array(L + P))
    pattern.sort_indices()
    return A, pattern, np.repeat(np.arange(L + P), np.diff(pattern.indptr))


def test_products_are_those_of_dense_matrices(rows):
    A, pattern, owners = rows
    rng, B, triangle = np.random.default_rng(4), A.toarray(), Triangle(pattern.indptr, pattern.indices)
    design, w = PatternDesign(A, triangle.indptr, triangle.indices), rng.normal(size=40)
    at = pattern.indices, owners
    np.testing.assert_allclose(design.gram(w)[triangle.both], ((B.T * w) @ B)[at], atol=1e-13)
    root = rng.normal(size=(L + P, L + P))
    V = root @ root.T
    np.testing.assert_allclose(design.row_squares(V[at][triangle.lower]), ((B @ V) * B).sum(axis=1), atol=1e-11)
    some = np.array([3, 1, 17])
    few = (B[some].T * w[:3]) @ B[some]
    np.testing.assert_allclose(design.take(some).gram(w[:3])[triangle.both], few[at], atol=1e-13)


def test_a_pair_that_the_pattern_lacks_is_noticed(rows):
    A = rows[0]
    diagonal = np.arange(L + P + 1), np.arange(L + P)
    with pytest.raises(IndexError, match="not in the pattern"):
        PatternDesign(A, *diagonal)


# -- one contract, two kinds -----------------------------------------------------------------------------------
class Diagonal:
    """What a ``StackedField`` answers, of Q = exp(-theta) I: the prior of independent weights, sparse."""

    constraints, theta, bounds = None, np.array([0.3]), np.array([[-5.0, 5.0]])

    def build(self, theta):
        Q = np.exp(-theta[0]) * sp.eye_array(L, format="csc")
        return Q, [-Q]

    def log_prior(self, theta):
        return -0.5 * float(theta @ theta), -theta


@pytest.fixture(scope="module")
def both():
    """The same prior of L weights as dense weights and as sparse latents, with K, K+ and H of random rows."""
    rng, family = np.random.default_rng(6), Diagonal()
    dense = GroupedVariances(WeightVariances(np.zeros((1, L)), variance=np.exp(0.3)))
    dense.theta, dense.bounds, dense.log_prior = family.theta, family.bounds, family.log_prior
    sparse = SparsePrior(family, sp.csr_array(np.ones((1, L))))
    K, plus, H = (x.T @ x for x in rng.normal(size=(3, 30, L)))
    return dense, sparse, (K, plus, H), rng.normal(size=(2, L, 1))


def forms(prior, matrix):
    """A matrix as K of this prior."""
    return matrix[None] if isinstance(prior, GroupedVariances) else matrix.T.ravel()[None]


def test_both_kinds_answer_the_same(both):
    *priors, (K, plus, H), (m, a) = both
    answers = []
    for prior in priors:
        precision = prior.at(np.array([0.7]))
        factor = precision.plus(forms(prior, K))
        q = Approximation(prior, np.array([0.7]), np.zeros(0), m, forms(prior, K))
        solve, change = precision.solver(forms(prior, H)[None], forms(prior, plus)), forms(prior, plus - K)
        answers.append(
            np.concatenate(
                [
                    [precision.norm(m), precision.residual(m, a), factor.log_det, factor.trace, q.kl],
                    [factor.divergence(change, True), factor.divergence(0.0 * change, True)],
                    [*precision.times(m)[:, 0], *solve(a[:, 0]), *solve(np.hstack([a, m])).ravel(), *prior.gradient(q)],
                ]
            )
        )
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-10, atol=1e-12)
    P, V = np.exp(-0.7) * np.eye(L), np.linalg.inv(np.exp(-0.7) * np.eye(L) + K)
    r, logs = P @ m + a, [np.linalg.slogdet(P + x)[1] for x in (K, plus, 0.0)]
    norm, trace = float((m.T @ P @ m).item()), float(np.trace(K @ V))
    wanted = [norm, (r.T @ np.linalg.solve(P, r)).item(), logs[0] - logs[2], trace]
    wanted += [0.5 * (logs[0] - logs[2] - trace + norm), float(np.trace(V @ (plus - K))) - logs[1] + logs[0], 0.0]
    np.testing.assert_allclose(answers[0][:7], wanted, rtol=1e-10, atol=1e-12)


def test_a_change_that_leaves_no_precision_is_infinitely_far(both):
    *priors, (K, _, _), _ = both
    for prior in priors:
        factor = prior.at(np.zeros(1)).plus(forms(prior, K))
        assert factor.divergence(forms(prior, -2.0 * K - 5.0 * np.eye(L)), True) == np.inf


@pytest.mark.parametrize("own", [False, True])
def test_the_quadratic_model_is_maximal_and_its_slopes_are_its_differences(both, own):
    *priors, (K, plus, H), (m, a) = both
    rng, likelihood = np.random.default_rng(7), Gaussian(1.0) if own else Poisson()
    more = {"own_slope": np.array([0.4]), "own_cross": rng.normal(size=(1, L)), "own_curvature": np.array([[9.0]])}
    learning = Learning(True, likelihood if own else None, np.array([[-9.0, 9.0]]) if own else np.zeros((0, 2)))
    found = []
    for prior in priors:
        q = Approximation(prior, prior.theta, np.zeros(int(own)), m, forms(prior, K))
        sums = Sums(value=1.0, adjoint=a, gram=forms(prior, plus), curvature=forms(prior, H)[None], square=1.0, **more)
        model = QuadraticModel(EvaluatedApproximation(q, sums, likelihood.objective, 0.0), learning)
        at = np.array([0.5])
        step, J = 1e-5, lambda theta, model=model: model.value(theta)[1]
        slope = (J(at + step) - J(at - step)) / (2 * step)
        np.testing.assert_allclose(model.slopes(at), slope, rtol=1e-7)
        precision = prior.at(at)
        dm, do, best = model.solved(precision)

        def parabola(dm, do, model=model, precision=precision):
            out = -0.5 * precision.norm(m + dm) - float(dm[:, 0] @ (a[:, 0] + H @ dm[:, 0] / 2))
            rest = do @ model.own_slope - do @ model.C @ do / 2 - do @ model.X @ dm[:, 0]
            return out + float(rest)

        assert parabola(dm, do) == pytest.approx(best, rel=1e-12)
        for _ in range(5):
            away = 1e-3 * rng.normal(size=dm.shape), 1e-3 * rng.normal(size=do.shape)
            assert parabola(dm + away[0], do + away[1]) < best
        found.append(np.concatenate([dm[:, 0], do, [best, *model.step()[0].theta]]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-8)
