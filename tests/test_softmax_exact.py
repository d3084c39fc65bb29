"""The softmax by exact expectations: against grids of quadrature, dense algebra and maximum likelihood."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fenchel
from fenchel.hyperparameters import WeightVariances, learn
from fenchel.hyperparameters.weights import Laplace, laplace_theta
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit
from fenchel.likelihoods.base import Targets
from fenchel.likelihoods.softmax_exact import rule
from fenchel.linalg.krylov import minimal_residuals
from fenchel.linalg.matrix_designs import Dense
from fenchel.linalg.standardized import Contrasts
from fenchel.primal import PrimalPoint
from fenchel.priors import DenseCovariance, Features, SparsePrecision
from fenchel.priors.base import NewRows
from fenchel.problem import Problem


def softmax(eta):
    e = np.exp(eta - eta.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def labels(rng, eta):
    return np.array([rng.choice(eta.shape[1], p=p) for p in softmax(eta)]).astype(float)


def on_grid(dimension, points, reach=9.0):
    """Points (M, dimension) and weights of a standard normal by the trapezoidal rule."""
    z = np.linspace(-reach, reach, points)
    w = np.exp(-0.5 * z * z)
    w /= w.sum()
    grid, weights = np.meshgrid(*[z] * dimension), np.meshgrid(*[w] * dimension)
    return np.stack([g.ravel() for g in grid], axis=1), np.prod([g.ravel() for g in weights], axis=0)


@pytest.mark.parametrize(("K", "scale", "close"), [(3, 0.3, 1e-8), (3, 3.0, 1e-3), (3, 40.0, 3e-2), (4, 0.5, 1e-5)])
def test_expectations_equal_quadrature_on_a_grid(K, scale, close):
    rng, D = np.random.default_rng(1), MultinomialLogit(K, None, "exact").objective.contrasts
    likelihood = MultinomialLogit(K, None, "exact")
    n = 6
    R = rng.normal(size=(n, K, K))
    V, h = scale * (R @ R.transpose(0, 2, 1) / K + 0.1 * np.eye(K)), np.sqrt(scale) * rng.normal(size=(n, K))
    rows = likelihood.prepare(np.arange(n) % K)
    loss = likelihood.objective.loss(h @ D.T, np.einsum("pk,nkl,pl->np", D, V, D), rows)
    z, w = on_grid(K - 1, 321 if K == 3 else 61, 8.0)
    for i in range(n):
        y = i % K
        C = np.delete(np.eye(K), y, axis=0) - np.eye(K)[y]
        u = np.zeros((w.size, K))
        u[:, np.arange(K) != y] = C @ h[i] + z @ np.linalg.cholesky(C @ V[i] @ C.T).T
        p = softmax(u)
        f = w @ (u.max(axis=1) - np.log(p.max(axis=1)))
        lam = np.array([w @ (p[:, a] * p[:, b]) for a, b in zip(*np.triu_indices(K, 1), strict=True)])
        assert loss.value[i] == pytest.approx(f, abs=close)
        assert np.allclose(loss.lam[i], lam, atol=close)
        assert np.allclose(loss.alpha[i] @ D, w @ p - np.eye(K)[y], atol=close)
        error = abs(likelihood.objective.error(h @ D.T, np.einsum("pk,nkl,pl->np", D, V, D), rows)[i])
        assert abs(loss.value[i] - f) <= 5.0 * error + 1e-9


def test_ten_classes_equal_many_more_points():
    rng, K = np.random.default_rng(14), 10
    likelihood = MultinomialLogit(K, None, "exact")
    D, rows = likelihood.objective.contrasts, likelihood.prepare(np.arange(8.0))
    R = rng.normal(size=(8, K, K))
    V, h = 0.2 * R @ R.transpose(0, 2, 1), 2.0 * rng.normal(size=(8, K))
    loss = likelihood.objective.loss(h @ D.T, np.einsum("pk,nkl,pl->np", D, V, D), rows)
    normal = rng.standard_normal((100_000, K))
    for i in range(8):
        eta = h[i] + np.concatenate([normal, -normal]) @ np.linalg.cholesky(V[i]).T
        p = softmax(eta)
        f = -np.log(p[:, i])
        assert loss.value[i] == pytest.approx(f.mean(), abs=0.02 + 4.0 * f.std() / 400.0)
        assert np.allclose(loss.alpha[i] @ D, p.mean(axis=0) - np.eye(K)[i], atol=0.02)
        lam = np.array([(p[:, a] * p[:, b]).mean() for a, b in itertools.combinations(range(K), 2)])
        assert np.allclose(loss.lam[i], lam, atol=0.005)


def test_fewer_points_serve_narrow_normals():
    likelihood, h = MultinomialLogit(3, "last", "exact"), np.array([[0.3, 0.8, 0.5], [-4.0, 1.0, 5.0]])
    rows = likelihood.prepare(np.array([0.0, 1.0]))
    counts, rho = [], np.array([[0.5, 0.7, 0.4]]) * np.ones((2, 1))
    for widest in (0.04, 0.19, 1.0):
        z, w = rule(2, widest)
        counts.append(w.size)
        assert np.allclose((w[:, None] * z).T @ z, np.eye(2))
        at = likelihood.objective.loss(h, widest * rho, rows)
        assert np.abs(likelihood.objective.error(h, widest * rho, rows)).max() < 2e-8
        assert (at.lam > 0.0).all()
    assert counts == sorted(counts)
    assert np.allclose(likelihood.objective.loss(h, 1e-14 * rho, rows).lam, likelihood.objective.at_mean(h, rows).lam)


@pytest.mark.parametrize("far", [60.0, 1e3, 1e5])
def test_a_row_far_off_has_finite_numbers(far):
    likelihood = MultinomialLogit(3, None, "exact")
    D, rows = likelihood.objective.contrasts, likelihood.prepare(np.array([0.0, 1.0]))
    h, rho = np.array([[far, 0.0, -far], [far, 0.0, -far]]) @ D.T, np.full((2, 3), 0.1 * far)
    loss = likelihood.objective.loss(h, rho, rows)
    assert np.allclose(loss.value, [0.0, far], atol=1e-6)
    assert ((loss.lam >= 0.0) & (loss.lam <= 0.25)).all()
    for change in likelihood.objective.curvature(h, rho, rows)(np.ones((2, 3)), rho):
        assert np.isfinite(change).all()


def test_curvature_is_that_of_the_rule():
    rng, likelihood = np.random.default_rng(2), MultinomialLogit(5, "last", "exact")
    bound, n = likelihood.objective, 5
    D, rows = bound.contrasts, likelihood.prepare(rng.integers(0, 5, n).astype(float))
    R, S = rng.normal(size=(n, 4, 4)), rng.normal(size=(n, 4, 4))
    V, dV = R @ R.transpose(0, 2, 1) + 0.1 * np.eye(4), 0.1 * (S + S.transpose(0, 2, 1))
    h, dh = rng.normal(size=(n, 4)), rng.normal(size=(n, 4))

    def seen(m, C):
        return m @ D.T, np.einsum("pk,nkl,pl->np", D, C, D)

    alpha, half = bound.curvature(*seen(h, V), rows)(*seen(dh, dV))
    up, down = (bound.loss(*seen(h + e * dh, V + e * dV), rows) for e in (1e-5, -1e-5))
    assert np.allclose(alpha, (up.alpha - down.alpha) / 2e-5, atol=1e-6)  # in single precision
    assert np.allclose(half, (up.lam - down.lam) / 4e-5, atol=1e-6)


def test_two_classes_are_the_logistic():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(25, 2)), rng.integers(0, 2, 25)
    soft = fenchel.infer(MultinomialLogit(2, "last", "exact"), Features(X, 9.0), 1.0 - y, tol=1e-10)
    logit = fenchel.infer(BernoulliLogit("exact"), Features(X, 9.0), y, tol=1e-10)
    assert soft.elbo == pytest.approx(logit.elbo, abs=1e-8)
    assert np.allclose(soft.posterior.latent_mean, logit.posterior.latent_mean, atol=1e-6)
    assert np.allclose(soft.posterior.latent_variance, logit.posterior.latent_variance, rtol=1e-6)


def line(n=80, seed=4):
    """One column, three classes: the posterior of two slopes is a grid away."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    return x, labels(rng, np.c_[1.2 * x, -0.6 * x, 0.0 * x])


def by_grid(x, y, v, points=161):
    """log p(y), and mean and sd of the slopes, by the trapezoidal rule."""
    g = np.linspace(-6.0, 8.0, points)
    B = np.stack([b.ravel() for b in np.meshgrid(g, g, indexing="ij")], axis=1)
    eta = np.concatenate([x[:, None, :1] * B[None, :, :], np.zeros((x.shape[0], B.shape[0], 1))], axis=2)
    log_p = np.log(softmax(eta))[np.arange(y.size), :, y.astype(int)].sum(axis=0)
    log_p = log_p - 0.5 * (B**2).sum(axis=1) / v - np.log(2.0 * np.pi * v)
    w = np.exp(log_p - log_p.max())
    evidence = log_p.max() + np.log(w.sum() * (g[1] - g[0]) ** 2)
    w /= w.sum()
    mean = w @ B
    return evidence, mean, np.sqrt(w @ (B - mean) ** 2)


def test_sds_are_marginal_and_the_elbo_is_below_the_evidence():
    x, y = line()
    evidence, mean, sd = by_grid(x, y, 4.0)
    exact, tilted = (fenchel.infer(MultinomialLogit(3, "last", b), Features(x, 4.0), y) for b in ("exact", "tilted"))
    assert exact.converged
    assert tilted.elbo < exact.elbo < evidence < exact.elbo + 0.05
    assert np.allclose(exact.posterior.latent_mean[0], mean, atol=0.02)
    assert np.allclose(np.sqrt(exact.posterior.latent_variance[0]), sd, rtol=0.03)
    assert (np.sqrt(tilted.posterior.latent_variance[0]) < 0.93 * sd).all()  # conditional, as if the other were known


def test_a_learned_variance_is_that_of_the_evidence():
    x, y = line(30, 5)
    family = WeightVariances(x, variance=1.0)
    exact = learn(MultinomialLogit(3, "last", "exact"), family, y).theta[0]
    grid = np.linspace(-1.5, 2.0, 8)
    values = [by_grid(x, y, np.exp(t), 101)[0] for t in grid]
    k = int(np.argmax(values))
    a, b, _ = np.polyfit(grid[k - 1 : k + 2], values[k - 1 : k + 2], 2)
    assert 0 < k < 7
    assert exact == pytest.approx(-b / (2.0 * a), abs=0.1)


def test_the_slope_in_theta_is_that_of_the_elbo():
    x, y = line(30, 6)
    family = WeightVariances(np.c_[x, np.ones_like(x)], groups=[0, 1], variance=[1.5, 3.0])
    likelihood = MultinomialLogit(3, None, "exact")

    def fit(theta):
        return fenchel.infer(likelihood, family.at(theta), y, tol=1e-13)

    slope = family.gradient(fit(family.theta), family.theta)
    for i, step in enumerate(1e-3 * np.eye(2)):
        difference = (fit(family.theta + step).elbo - fit(family.theta - step).elbo) / 2e-3
        assert slope[i] == pytest.approx(difference, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_is_never_below_what_is_missing(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 2))
    y = labels(rng, X @ rng.normal(size=(2, 3)))
    likelihood, prior = MultinomialLogit(3, None, "exact"), Features(X, variance=3.0)
    best = fenchel.infer(likelihood, prior, y, tol=1e-12)
    problem = Problem(likelihood, prior, y)
    for size in (1e-3, 1e-2, 0.1, 0.5):
        beta = best.alpha + size * rng.normal(size=best.alpha.shape)
        lam = best.lam * np.exp(size * rng.normal(size=best.lam.shape))
        point = PrimalPoint(problem, beta, lam, 0.0)
        assert 0.0 <= best.elbo - point.elbo <= point.shortfall * (1.0 + 1e-6) + 1e-7


def test_sparse_and_dense_priors_agree():
    rng = np.random.default_rng(7)
    n, g = 36, rng.integers(0, 5, 36)
    W = np.c_[np.eye(5)[g], rng.normal(size=n)]
    y = labels(rng, W @ rng.normal(size=(6, 3)))
    Q = sp.diags_array(np.r_[np.full(5, 1.7), 0.4], format="csc")
    likelihood = MultinomialLogit(3, "last", "exact")
    sparse = fenchel.infer(likelihood, SparsePrecision(Q, design=sp.csr_array(W)), y, tol=1e-13)
    dense = fenchel.infer(likelihood, Features(W, 1.0 / Q.diagonal()), y, tol=1e-13)
    rows = fenchel.infer(likelihood, DenseCovariance(np.diag(1.0 / Q.diagonal()), design=W), y, tol=1e-13)
    new = rng.normal(size=(3, 6))
    for other in (dense, rows):
        assert sparse.elbo == pytest.approx(other.elbo, abs=1e-9)
        assert np.allclose(sparse.posterior.latent_variance, other.posterior.latent_variance, rtol=1e-6)
        for ask in (lambda s: s.posterior.row_covariances(NewRows(design=new)), lambda s: s.posterior.cavity()[1]):
            assert np.allclose(ask(sparse), ask(other), rtol=1e-6, atol=1e-9)
        assert np.allclose(sparse.posterior.covariance(), other.posterior.covariance(), atol=1e-8)
    slope = np.array([G.diagonal() for G in sparse.posterior.gradient_precision()]).sum(axis=0)
    other = np.array([np.diag(G) for G in dense.posterior.gradient_covariance()]).sum(axis=0)
    assert np.allclose(slope * -(Q.diagonal() ** 2), other, atol=1e-6)


def test_predictors_with_common_latents_and_rows_without_a_label():
    rng = np.random.default_rng(8)
    W = rng.normal(size=(15 * 2, 3))
    y = rng.integers(0, 3, 15).astype(float)
    y[[2, 9]] = np.nan
    likelihood = MultinomialLogit(3, "last", "exact")
    dense = fenchel.infer(likelihood, Features(W, 2.0), y, tol=1e-13)
    sparse = fenchel.infer(likelihood, SparsePrecision(0.5 * sp.eye_array(3), design=sp.csr_array(W)), y, tol=1e-13)
    assert dense.converged
    assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-9 + dense.quadrature)
    V = dense.posterior.latent_covariance()
    assert np.allclose(dense.posterior.variance.ravel(), np.einsum("ij,jk,ik->i", W, V, W))
    draws = dense.posterior.sample(4000, 0)
    assert np.allclose(draws.var(axis=0), dense.posterior.variance, rtol=0.15)


def test_a_design_of_contrasts_is_its_matrix():
    rng = np.random.default_rng(9)
    X, Y, D = Dense(rng.normal(size=(4, 2))), Dense(rng.normal(size=(4, 2))), rng.normal(size=(3, 2))
    for designs in ([X, X], [X, Y]):
        W, M = Contrasts(designs, D), Contrasts(designs, D).toarray()
        assert np.allclose(M[5], np.concatenate([D[2, k] * designs[k].X[1] for k in range(2)]))
        u, a, U, w = rng.normal(size=4), rng.normal(size=12), rng.normal(size=(4, 3)), rng.normal(size=12)
        assert np.allclose(W.times(u), M @ u)
        assert np.allclose(W.times(U), M @ U)
        assert np.allclose(W.adjoint(a), M.T @ a)
        assert np.allclose(W.gram(w), M.T @ (w[:, None] * M))
        assert np.allclose(W.row_squares(U), ((M @ U) ** 2).sum(axis=1))
        assert np.allclose(W.row_products(U @ U.T), ((M @ U @ U.T) * M).sum(axis=1))
        assert np.allclose(W.row_norms(u**2), M**2 @ u**2)
        assert np.allclose(W.take(np.arange(3, 9)).toarray(), M[3:9])


def test_minimal_residuals_solve_what_is_not_symmetric():
    rng = np.random.default_rng(10)
    R, F, b = rng.normal(size=(8, 8)), rng.normal(size=(8, 8)), rng.normal(size=8)
    P = R @ R.T + np.eye(8)
    x, Fx, left, reached = minimal_residuals(lambda v: np.linalg.solve(P, v), lambda v: F @ v, b, 1e-10, 8)
    assert np.allclose((P + F) @ x, b)
    assert np.allclose(Fx, F @ x)
    assert np.abs(left).max() < 1e-7
    assert reached < 1e-8


def test_a_classifier_of_several_classes_joins_them():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(60, 3))
    y = labels(rng, 2.0 * X @ rng.normal(size=(3, 3))).astype(int)
    best, tilted = (fenchel.BayesianLogisticRegression(bound=b).fit(X, y) for b in ("best", "tilted"))
    assert best.likelihood_.bound == "exact"
    assert best.converged_
    assert best.elbo_ > tilted.elbo_
    assert best.variance_ > tilted.variance_
    post = best.solution_.posterior
    eta = post.sample_latents(20_000, 0)  # (S, L, K)
    Z = np.c_[(X[:4] - best.feature_mean_) / best.feature_scale_, np.ones(4)]
    drawn = softmax(np.einsum("ml,slk->smk", Z, eta)).mean(axis=0)
    assert np.allclose(best.predict_proba(X[:4]), drawn, atol=0.01)
    assert best.coef_cov_.shape == (3, 3, 3)
    assert np.allclose(np.sqrt(np.diagonal(best.coef_cov_, axis1=1, axis2=2)), best.coef_std_)
    few = fenchel.BayesianLogisticRegression().fit(np.c_[X, rng.normal(size=(60, 70))][:20], y[:20])
    assert np.allclose(few.predict_proba(np.c_[X, np.zeros((60, 70))][:2]).sum(axis=1), 1.0)


def test_sds_of_a_formula_are_those_of_maximum_likelihood():
    rng = np.random.default_rng(12)
    n = 400
    x = rng.normal(size=n)
    y = labels(rng, np.c_[np.zeros(n), 0.4 + x, -0.5 * x]).astype(int)
    frame = pd.DataFrame({"y": np.array(["a", "b", "c"])[y], "x": x})
    fit = fenchel.fit("y ~ x", frame, family="multinomial")
    Z, B = np.c_[np.ones(n), x], np.zeros((2, 2))
    for _ in range(20):  # Newton's method of the likelihood
        p = softmax(np.c_[np.zeros(n), Z @ B])[:, 1:]
        H = np.einsum("nk,kl,ni,nj->kilj", p, np.eye(2), Z, Z) - np.einsum("nk,nl,ni,nj->kilj", p, p, Z, Z)
        g = (p - np.eye(3)[y][:, 1:]).T @ Z
        B = B - np.linalg.solve(H.reshape(4, 4), g.ravel()).reshape(2, 2).T
    se = np.sqrt(np.diag(np.linalg.inv(H.reshape(4, 4)))).reshape(2, 2)
    for k, label in enumerate("bc"):
        assert np.allclose(fit.coefficients.loc[label]["sd"], se[k], rtol=0.03)


def housing():
    """MASS::housing, with nnet::multinom's coefficients and standard errors of Sat ~ Infl + Type + Cont."""
    counts = (
        "21,21,28,34,22,36,10,11,36,61,23,17,43,35,40,26,18,54,13,9,10,8,8,12,6,7,9,18,6,7,15,13,13,7,5,11,14,19,37,17,"
        "23,40,3,5,23,78,46,43,48,45,86,15,25,62,20,23,20,10,22,24,7,10,21,57,23,13,31,21,13,5,6,13"
    )
    levels = [["Low", "High"], ["Tower", "Apartment", "Atrium", "Terrace"], ["Low", "Medium", "High"]]
    rows = list(itertools.product(*levels, ["Low", "Medium", "High"]))
    frame = pd.DataFrame(rows, columns=["Cont", "Type", "Infl", "Sat"])
    for name, order in zip(frame.columns, [*levels, levels[2]], strict=True):
        frame[name] = pd.Categorical(frame[name], order)
    frame["Freq"] = [float(x) for x in counts.split(",")]
    coefficients = [
        [-0.4192, 0.4464, 0.6649, -0.4357, 0.1314, -0.6666, 0.3609],
        [-0.1387, 0.7349, 1.6126, -0.7356, -0.4080, -1.4123, 0.4818],
    ]
    errors = [
        [0.1729, 0.1416, 0.1863, 0.1725, 0.2231, 0.2063, 0.1324],
        [0.1592, 0.1369, 0.1671, 0.1553, 0.2115, 0.2001, 0.1241],
    ]
    return frame, np.array(coefficients), np.array(errors)


def test_a_formula_gives_the_standard_errors_of_nnet():
    frame, coefficients, errors = housing()
    fit = fenchel.fit("Sat ~ Infl + Type + Cont", frame, family="multinomial", weights=frame["Freq"])
    for k, label in enumerate(["Medium", "High"]):
        table = fit.coefficients.loc[label]
        assert np.allclose(table["sd"], errors[k], rtol=0.03)
        assert np.allclose(table["mean"], coefficients[k], rtol=0.03)


def test_groups_left_out_of_a_multinomial_model(tmp_path):
    rng = np.random.default_rng(13)
    g = rng.integers(0, 6, 72)
    b = rng.normal(size=(6, 2))
    frame = pd.DataFrame({"g": g.astype(str), "y": labels(rng, np.c_[np.zeros(72), b[g]]).astype(int).astype(str)})
    fit = fenchel.fit("y ~ (1|g)", frame, family="multinomial")
    out = fit.leave_group_out("g")
    assert np.isfinite(out.log_density).all()
    assert out.elpd < fit.loo().elpd  # a group that nothing is known of is told worse
    draws = fit.sample(frame.head(3), 4000, 0)
    assert np.allclose(draws.mean(axis=0), fit.predict(frame.head(3)), atol=0.02)
    fit.save(tmp_path / "fit.fenchel")
    again = fenchel.load(tmp_path / "fit.fenchel")
    assert np.allclose(again.predict(frame), fit.predict(frame))
    assert np.allclose(again.sample(frame.head(3), 10, 0), fit.sample(frame.head(3), 10, 0))


def test_rows_left_out_are_those_of_a_refit():
    x, y = line(40, 15)
    likelihood, prior = MultinomialLogit(3, "last", "exact"), Features(np.c_[x, np.ones_like(x)], 4.0)
    fit = fenchel.infer(likelihood, prior, y)
    loo = fit.loo().log_density
    for i in (0, 7, 21):
        missing = y.copy()
        missing[i] = np.nan
        other = fenchel.infer(likelihood, prior, missing)
        h, V = other.posterior.mean[[i]], other.posterior.spread[[i]]
        eta = h + np.random.default_rng(0).standard_normal((200_000, 2)) @ np.linalg.cholesky(V[0]).T
        p = softmax(np.c_[eta, np.zeros(len(eta))]).mean(axis=0)[int(y[i])]
        assert loo[i] == pytest.approx(np.log(p), abs=0.02)


def test_draws_correct_the_evidence_and_the_marginals():
    x, y = line()
    evidence, mean, sd = by_grid(x, y, 4.0)
    fit = fenchel.infer(MultinomialLogit(3, "last", "exact"), Features(x, 4.0), y)
    found = fit.corrected()
    assert found.trusted
    assert found.log_evidence == pytest.approx(evidence, abs=0.002)
    assert np.allclose(found.latents().mean[0], mean, atol=0.005)
    assert np.allclose(found.latents().sd[0], sd, rtol=0.005)
    assert np.allclose(found.at(design=np.array([[2.0]])).mean[0], 2.0 * mean, atol=0.01)
    assert np.allclose(found.mean, x * found.latents().mean, atol=1e-8)
    assert found.sample(5, 0).shape == (5, 80, 2)
    assert np.allclose(found.sample_latents(4000, 0).std(axis=0)[0], sd, rtol=0.05)


def test_draws_are_the_same_for_sparse_and_dense_priors():
    rng = np.random.default_rng(7)
    W = np.c_[np.eye(5)[rng.integers(0, 5, 36)], rng.normal(size=36)]
    y = labels(rng, W @ rng.normal(size=(6, 3)))
    q = np.r_[np.full(5, 1.7), 0.4]
    likelihood = MultinomialLogit(3, "last", "exact")
    sparse, dense = (
        fenchel.infer(likelihood, prior, y).corrected()
        for prior in (SparsePrecision(sp.diags_array(q, format="csc"), design=sp.csr_array(W)), Features(W, 1.0 / q))
    )
    assert sparse.log_evidence == pytest.approx(dense.log_evidence, abs=0.01)
    assert np.allclose(sparse.latents().sd, dense.latents().sd, rtol=0.02)
    assert np.allclose(sparse.mean, dense.mean, atol=0.05)


def test_weights_repeat_rows_and_missing_labels_count_for_nothing():
    x, y = line(30, 16)
    W = np.c_[x, np.ones_like(x)]
    likelihood = MultinomialLogit(3, None, "exact")
    weights = np.where(np.arange(30) < 10, 2.0, 1.0)
    twice = np.r_[np.arange(30), np.arange(10)]
    one = fenchel.infer(likelihood, Features(W, 3.0), y, weights=weights, tol=1e-11)
    two = fenchel.infer(likelihood, Features(W[twice], 3.0), y[twice], tol=1e-11)
    assert one.elbo == pytest.approx(two.elbo, abs=1e-8)
    assert np.allclose(one.posterior.latent_variance, two.posterior.latent_variance, rtol=1e-5)
    y[[3, 4]] = np.nan
    gap = fenchel.infer(likelihood, Features(W, 3.0), y, tol=1e-11)
    without = fenchel.infer(likelihood, Features(np.delete(W, [3, 4], axis=0), 3.0), np.delete(y, [3, 4]), tol=1e-11)
    assert gap.elbo == pytest.approx(without.elbo, abs=1e-8)
    assert np.isnan(gap.loo().log_density[[3, 4]]).all()
    assert np.allclose(gap.posterior.mean[3], without.posterior.predict(design=W[[3]])[0][0], atol=1e-5)
    nothing = fenchel.infer(likelihood, Features(W, 3.0), np.full(30, np.nan))
    assert nothing.elbo == pytest.approx(0.0, abs=1e-12)
    assert np.allclose(nothing.posterior.latent_variance, 3.0)


@pytest.mark.parametrize("variance", [1.0, 100.0, 1e4])
def test_separable_rows_converge(variance):
    x = np.linspace(-3.0, 3.0, 30)[:, None]
    y = np.digitize(x[:, 0], [-1.0, 1.0]).astype(float)
    W = np.c_[x, np.ones_like(x)]
    fit = fenchel.infer(MultinomialLogit(3, None, "exact"), Features(W, variance), y)
    assert fit.converged
    assert np.isfinite(fit.posterior.latent_mean).all()
    assert fit.elbo > fenchel.infer(MultinomialLogit(3, None, "tilted"), Features(W, variance), y).elbo
    assert (np.argmax(fit.posterior.mean, axis=1) == y).mean() > 0.9


def test_ten_classes_are_fitted_and_predicted():
    rng = np.random.default_rng(17)
    X = rng.normal(size=(120, 3))
    y = labels(rng, 2.0 * X @ rng.normal(size=(3, 10)))
    fit = fenchel.infer(MultinomialLogit(10, None, "exact"), Features(X, 2.0), y)
    assert fit.converged
    assert fit.elbo < fit.corrected().log_evidence
    V = fit.posterior.latent_covariance()
    assert V.shape == (30, 30)
    new = rng.normal(size=(4, 3))
    rows = np.einsum("mi,kl->mkli", new, np.eye(10)).reshape(40, 30)
    blocks = np.einsum("mki,ij,mlj->mkl", rows.reshape(4, 10, 30), V, rows.reshape(4, 10, 30))
    assert np.allclose(fit.posterior.row_covariances(NewRows(design=new)), blocks, atol=1e-8)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="one class only"):
        fenchel.BayesianLogisticRegression().fit(np.zeros((5, 2)), np.zeros(5))
    frame = pd.DataFrame({"y": ["a"] * 4, "x": range(4)})
    with pytest.raises(ValueError, match="labels"):
        fenchel.fit("y ~ x", frame, family="multinomial")


def test_laplace_is_a_mode_and_its_curvature():
    x, y = line(30, 5)
    family, likelihood = WeightVariances(x, variance=1.0), MultinomialLogit(3, "last", "tilted")
    v, b = 2.5, np.zeros(2)
    for _ in range(30):
        p = softmax(np.c_[x * b, np.zeros(30)])[:, :2]
        H = np.einsum("nk,kl,n->kl", p, np.eye(2), x[:, 0] ** 2) - np.einsum("nk,nl,n->kl", p, p, x[:, 0] ** 2)
        H += np.eye(2) / v
        b = b - np.linalg.solve(H, (p - np.eye(3)[y.astype(int)][:, :2]).T @ x[:, 0] + b / v)
    log_p = np.log(softmax(np.c_[x * b, np.zeros(30)]))[np.arange(30), y.astype(int)].sum() - 0.5 * b @ b / v
    expected = log_p - 0.5 * np.linalg.slogdet(v * H)[1]
    laplace = Laplace(likelihood, family, Targets(likelihood, y))
    assert laplace.evidence(np.log(0.01)) < expected
    assert laplace.evidence(np.log(v)) == pytest.approx(expected, abs=1e-6)
    best = laplace_theta(likelihood, family, Targets(likelihood, y))[0]
    grid = np.linspace(-3.0, 3.0, 601)
    assert best == pytest.approx(grid[np.argmax([laplace.evidence(t) for t in grid])], abs=0.02)


def test_many_coefficients_learn_their_variance_by_laplace():
    rng = np.random.default_rng(18)
    X = rng.normal(size=(90, 80))
    y = labels(rng, X[:, :5] @ rng.normal(size=(5, 4))).astype(int)
    best, tilted = (fenchel.BayesianLogisticRegression(bound=b).fit(X[:60], y[:60]) for b in ("best", "tilted"))
    assert best.likelihood_.bound == tilted.likelihood_.bound == "tilted"
    assert best.converged_
    assert best.variance_ > tilted.variance_
    held = np.arange(30)
    loss = [-np.log(m.predict_proba(X[60:])[held, y[60:]]).mean() for m in (best, tilted)]
    assert loss[0] < loss[1] + 0.05


def test_covariances_of_different_ranks():
    """Smooth kernels have fewer features than rows; a jitter that gives all full rank changes next to nothing."""
    rng, n = np.random.default_rng(0), 60
    x, new = np.sort(rng.uniform(0, 10, n)), np.linspace(-1, 11, 9)
    of = lambda a, b: np.stack([4.0 * np.exp(-0.5 * ((a[:, None] - b) / length) ** 2) for length in (3.0, 1.0, 0.2)])
    y = rng.integers(0, 3, n).astype(float)
    y[5] = np.nan
    fits = []
    for jitter in (0.0, 1e-7):
        prior = DenseCovariance(of(x, x) + jitter * np.eye(n))
        posterior = (fit := fenchel.infer(MultinomialLogit(3, reference=None, bound="exact"), prior, y)).posterior
        there = posterior.at(cross=of(new, x), variance=np.full((9, 3), 4.0))
        fits.append([fit.elbo, posterior.mean, posterior.variance, there.mean, there.variance])
    for plain, close in zip(*fits, strict=True):
        np.testing.assert_allclose(plain, close, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(("K", "name"), [(15, "exact"), (16, "tilted")])
def test_formulas_are_exact_up_to_the_limit_of_classes(K, name):
    data = pd.DataFrame({"kind": [f"k{i % K:02d}" for i in range(2 * K)], "x": np.arange(2.0 * K)})
    assert fenchel.Model("kind ~ x", data, family="multinomial").target.likelihood.bound == name
    assert fenchel.Model("kind ~ x", data, family="multinomial", bound="exact").target.likelihood.bound == "exact"
