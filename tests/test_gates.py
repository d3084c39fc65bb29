"""One problem on both sides of each gate: whichever algorithm serves it, the answer is the same."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fenchel
from fenchel import gates, gmrf
from fenchel.likelihoods import BernoulliLogit, Poisson
from fenchel.priors import DenseCovariance, Features, SparsePrecision

N = 120
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 3))
K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1)) + 0.1 * np.eye(N)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0]))
LABELS = (X[:, 1] + RNG.logistic(size=N) > 0).astype(float)
TABLE = pd.DataFrame({"x": X[:, 0], "g": np.arange(N) % 10, "h": np.arange(N) % 7, "y": COUNTS, "label": LABELS})
TABLE["kind"] = RNG.choice(list("abc"), N)
RING = {k: [(k - 1) % 10, (k + 1) % 10] for k in range(10)}


def moments(solution):
    posterior = solution.posterior
    return np.r_[solution.elbo, np.ravel(posterior.mean), np.ravel(posterior.variance)]


def dense(likelihood=None, y=COUNTS):
    return moments(fenchel.infer(likelihood or Poisson(), DenseCovariance(K), y, tol=1e-12))


def smooth():
    near = np.exp(-0.02 * ((X[:, None] - X[None]) ** 2).sum(-1))
    return moments(fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(near), LABELS, tol=1e-12))


def features():
    return moments(fenchel.infer(BernoulliLogit(), Features(np.c_[X, np.ones(N)], 4.0), LABELS, tol=1e-12))


def sparse():
    walk = gmrf.rw2(N, sd=0.5) if "sd" in gmrf.rw2.__code__.co_varnames else gmrf.rw2(N, precision=4.0)
    return moments(fenchel.infer(Poisson(), walk.at(), COUNTS, tol=1e-12))


def parts():
    block = sp.diags_array([-np.ones(59), 2.2 * np.ones(60), -np.ones(59)], offsets=[-1, 0, 1])
    precision = sp.csc_array(sp.block_diag([block, 3.0 * block]))
    return moments(fenchel.infer(Poisson(), SparsePrecision(precision), COUNTS, tol=1e-12))


def formula(text="y ~ x + (1|g) + (1|h)", family="poisson", **options):
    fit = fenchel.fit(text, TABLE, family, **options)
    return np.r_[fit.elbo, fit.coefficients["mean"], fit.coefficients["sd"]]


def corrected(prior):
    found = fenchel.infer(BernoulliLogit(), prior, LABELS, tol=1e-12).corrected()
    return np.r_[found.log_evidence, np.ravel(found.mean), np.ravel(found.variance)]


def walk_corrected():
    block = sp.diags_array([-np.ones(N - 1), 2.5 * np.ones(N), -np.ones(N - 1)], offsets=[-1, 0, 1])
    return corrected(SparsePrecision(sp.csc_array(block)))


def groups_corrected():
    fit = fenchel.fit("label ~ x + (1|g)", TABLE, "bernoulli")
    found = fit.solution.corrected()
    return np.r_[found.log_evidence, np.ravel(found.latents().mean), np.ravel(found.latents().sd)]


def share():
    return np.r_[fenchel.fit("y ~ bym2(g)", TABLE, "poisson", graphs={"g": RING}).elbo]


def classes():
    fit = fenchel.fit("kind ~ x", TABLE, "multinomial")
    return np.ravel(fit.predict(TABLE.head(5), kind="probability"))


def softmax():
    model = fenchel.BayesianLogisticRegression().fit(X, TABLE["kind"])
    return np.ravel(model.predict_proba(X[:5]))


def factors():
    from fenchel import ProbabilisticPCA

    return np.r_[ProbabilisticPCA(1, noise="column").fit(TABLE[["x", "y", "label"]]).elbo_]


def process():
    return np.r_[fenchel.fit("y ~ vecchia(x, z)", TABLE.assign(z=X[:, 1]), "poisson").elbo]


def kernel_learned():
    from sklearn.gaussian_process.kernels import RBF

    model = fenchel.estimators.GaussianProcessRegressor(1.0 * RBF(1.0), loss=1e-3).fit(X, TABLE.y)
    return np.r_[model.predict(X[:5])]


def points_or_neighbours():
    """A short length, which few points do not follow."""
    from sklearn.gaussian_process.kernels import Matern

    rows, options = X[:, :1], {"optimizer": None, "loss": 1e-2}
    model = fenchel.estimators.GaussianProcessPoissonRegressor(1.0 * Matern(0.05, nu=1.5), **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "INDUCING_ROWS", 10)
        model.fit(rows, COUNTS)
    return np.r_[model.elbo_, model.predict(rows[:5])]


def labels_learned():
    from sklearn.gaussian_process.kernels import RBF

    model = fenchel.estimators.GaussianProcessClassifier(1.0 * RBF(1.0)).fit(X, LABELS)
    return np.r_[model.elbo_, model.kernel_.theta]


def dial():
    return formula("y ~ x", "poisson", accuracy="auto")


# gate: the problem, values on either side, and how far the answers may be apart
CASES = {
    "ONE_THREAD_ROWS": (dense, 10, 1000, 1e-9),
    "ONE_THREAD_LATENTS": (sparse, 10, 1000, 1e-9),
    "WHOLE_MATRIX": (dense, 10, 1000, 1e-9),
    "LAUUM_ALONE": (dense, 10, 1000, 1e-9),
    "WRITTEN_OUT": (features, 10, 1000, 1e-7),
    "SITE_ROWS": (labels_learned, 10, 1000, 1e-3),
    "MANY_ROWS": (formula, 10, 1000, 1e-4),
    "DUAL_JUDGES_STARTS": (formula, 10, 1000, 1e-4),
    "BOUNDED_GAP": (lambda: dense(BernoulliLogit("tilted"), LABELS), 10, 1000, 1e-6),
    "NYSTROM_START": (smooth, 10, 1000, 1e-5),
    "SAMPLED_START": (features, 10, 1000, 1e-7),
    "CHAIN_ROWS": (sparse, 10, 1000, 1e-8),
    "NUMPY_PAIRS": (formula, 10, 10**6, 1e-5),
    "PART_LATENTS": (parts, 10, 1000, 1e-8),
    "PARTS_APART": (parts, 0.0, 1e12, 1e-8),
    "DENSE_COLUMNS": (formula, 1, 1000, 1e-5),
    "SOLVED_ROWS": (formula, 1, 1000, 1e-5),
    "DIRECT_LATENTS": (formula, 1, 1000, 1e-4),
    "DIRECT_WORK": (formula, 1.0, 1e12, 1e-4),
    "DEAR_FACTOR": (formula, 1.0, 1e12, 1e-4),
    "COLLAPSED_FIRST": (groups_corrected, (0.0, 0), (1e12, 200), 1e-2),
    "COLLAPSED_WORK": (groups_corrected, 0.0, 1e12, 1e-2),
    "NEIGHBOUR_PAIRS": (walk_corrected, 10, 1000, 1e-3),
    "AVERAGED_PAIRS": (lambda: corrected(Features(np.c_[X, np.ones(N)], 4.0)), 10, 1000, 2e-2),
    "DRAWN_SITES": (lambda: corrected(DenseCovariance(K)), 10, 1000, 1e-6),
    "INDUCING_ROWS": (kernel_learned, 10, 1000, 2e-2),
    "NEIGHBOUR_POINTS": (points_or_neighbours, 10, 1000, 1e-2),
    "EVERY_EIGENVALUE": (share, 5, 1000, 1e-3),
    "EXACT_CLASSES": (classes, 10, 10**6, 5e-2),
    "EXACT_SOFTMAX_WEIGHTS": (softmax, 1, 1000, 5e-2),
    "EXACT_SOFTMAX_ROWS": (softmax, 1, 10**6, 5e-2),
    "EXACT_SOFTMAX_CLASSES": (softmax, 2, 100, 5e-2),
    "SAMPLED_TABLE": (factors, 100, 1000, 1e-5),
    "VECCHIA_KNOTS": (process, 100, 1000, 5e-2),
    "AFFORDED_FITS": (dial, 0.0, 100.0, 1e-2),
    "AFFORDED_SECONDS": (dial, 0.0, 100.0, 1e-2),
    "UNASKED_SECONDS": (dial, 0.0, 100.0, 1e-2),  # 0: the plain fit
}


@pytest.mark.parametrize("gate", CASES)
def test_both_sides_of_a_gate_agree(gate, monkeypatch):
    problem, low, high, close = CASES[gate]
    answers = []
    for value in (low, high):
        monkeypatch.setattr(gates, gate, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers.append(problem())
    np.testing.assert_allclose(answers[0], answers[1], rtol=close, atol=close)


def test_every_gate_has_a_case():
    assert set(CASES) == {name for name in vars(gates) if name.isupper()}
