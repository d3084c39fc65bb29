"""Integration over theta against brute force: closed forms, fine grids of theta, draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel import infer
from fenchel.checks import Refusal
from fenchel.hyperparameters import KernelCovariance, Normal, PCDeviation, WeightVariances, independent, learn
from fenchel.hyperparameters.integration import Finished, Mixture, composite, fitted_design, integrate, integrating
from fenchel.hyperparameters.integration.designs import block, edge, factorial, lattice
from fenchel.hyperparameters.integration.theta import LogDensity
from fenchel.hyperparameters.mode import Coordinates
from fenchel.likelihoods import BernoulliLogit, Gaussian, Poisson
from fenchel.marginals import Answers, Marginals, NormalMarginals


def summed(log_p, axes):
    """Probabilities of a fine product grid and log of the integral, by trapezoids."""
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    top = log_p.max()
    total = np.exp(log_p - top).sum()
    return np.exp(log_p - top) / total, float(top + np.log(total * cell))


# -- one and two hyperparameters, Gaussian rows: everything in closed form ----------------------------------
@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6))
    return X, X @ rng.normal(size=6) * 0.7 + rng.normal(size=40)


def normal_evidence(X, y, v, s2):
    """log N(y; 0, v X X' + s2 I), v and s2 arrays of one shape."""
    values, vectors = np.linalg.eigh(X @ X.T)
    each = np.asarray(v)[..., None] * np.maximum(values, 0.0) + np.asarray(s2)[..., None]
    return -0.5 * (np.log(2 * np.pi * each) + (vectors.T @ y) ** 2 / each).sum(axis=-1)


def test_a_variance_and_a_noise_against_the_closed_form(rows):
    X, y = rows
    family = WeightVariances(X, log_prior=independent({0: Normal(0.0, 2.0)}))
    found = integrate(Gaussian(1.0), family, y)
    axes = [np.linspace(-6.0, 7.0, 261), np.linspace(-1.5, 2.0, 141)]
    log_p = normal_evidence(X, y, *np.meshgrid(*map(np.exp, axes), indexing="ij"))
    log_p += norm(0.0, 2.0).logpdf(axes[0])[:, None]
    p, total = summed(log_p, axes)
    assert found.log_evidence == pytest.approx(total, abs=0.005)
    assert found.log_evidence_error < 0.02
    assert found.converged
    assert found.method == "grid"
    for i, (axis, each) in enumerate(zip(axes, (p.sum(axis=1), p.sum(axis=0)), strict=True)):
        mean = each @ axis
        sd = np.sqrt(each @ (axis - mean) ** 2)
        below = np.cumsum(each) - 0.5 * each
        assert found.theta.mean[i] == pytest.approx(mean, abs=0.02 * sd)
        assert found.theta.sd[i] == pytest.approx(sd, rel=0.02)
        for q in (0.025, 0.5, 0.975):
            assert found.theta.quantile(q)[i] == pytest.approx(np.interp(q, below, axis), abs=0.05 * sd)
        at = mean + sd
        assert found.theta.density(np.full(2, at))[i] == pytest.approx(
            np.interp(at, axis, each) / (axis[1] - axis[0]), rel=0.03
        )
    # the latents: E and Var over the grid of theta
    mean, square = np.zeros(6), np.zeros(6)
    for i, a in enumerate(axes[0][::4]):
        for j, b in enumerate(axes[1][::4]):
            V = np.linalg.inv(X.T @ X / np.exp(b) + np.eye(6) / np.exp(a))
            m = V @ X.T @ y / np.exp(b)
            mean += p[::4, ::4][i, j] * m
            square += p[::4, ::4][i, j] * (np.diag(V) + m * m)
    share = p[::4, ::4].sum()
    sd = np.sqrt(square / share - (mean / share) ** 2)
    assert np.abs(found.latents().mean - mean / share).max() < 0.005 * sd.max()
    assert found.latents().sd == pytest.approx(sd, rel=0.005)


def test_a_gaussian_process_of_new_rows_against_the_closed_form():
    from sklearn.gaussian_process.kernels import RBF

    rng = np.random.default_rng(0)
    X, Z = np.sort(rng.uniform(0, 5, 25))[:, None], np.array([[1.0], [2.5], [6.5]])
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=25)
    family = KernelCovariance(RBF(1.0), X, log_prior=independent({0: Normal(0.0, 1.0)}))
    found = integrate(Gaussian(0.09), family, y, learn_likelihood=False)
    axis = np.linspace(-4.0, 3.0, 351)
    kernels = [RBF(np.exp(a)) for a in axis]
    B = [k(X) + 0.09 * np.eye(25) for k in kernels]
    log_p = np.array([multivariate_normal(np.zeros(25), b).logpdf(y) for b in B]) + norm(0.0, 1.0).logpdf(axis)
    p, total = summed(log_p, [axis])
    means = np.array([k(Z, X) @ np.linalg.solve(b, y) for k, b in zip(kernels, B, strict=True)])
    variances = np.array(
        [1.0 - np.einsum("ij,ji->i", k(Z, X), np.linalg.solve(b, k(X, Z))) for k, b in zip(kernels, B, strict=True)]
    )
    mean = p @ means
    sd = np.sqrt(p @ (variances + (means - mean) ** 2))
    new = found.at_table(Z)
    assert found.log_evidence == pytest.approx(total, abs=0.003)
    assert np.abs((new.mean - mean) / sd).max() < 0.01
    assert new.sd == pytest.approx(sd, rel=0.01)
    with pytest.raises(ValueError, match="covariances with the latents are others at every theta"):
        found.at(cross=np.ones((1, 25)), variance=np.ones(1))


# -- a variance that may vanish: the tail of its log is long to one side ---------------------------------------
def poisson_groups(counts, log_sd, nodes):
    """log p(counts | sd) and E[b | counts, sd], group by group, on a fine grid of b."""
    b = np.exp(log_sd) * nodes
    from scipy.stats import poisson

    like = poisson(np.exp(1.0 + b)).pmf(counts[:, None]) * norm.pdf(nodes)
    like *= nodes[1] - nodes[0]
    total = like.sum(axis=1)
    return np.log(total).sum(), like @ b / total, like @ (b * b) / total


def test_a_variance_that_may_vanish_against_quadrature():
    counts = np.array([3.0, 2, 4, 3, 1, 5, 3, 2, 3, 4])
    family = WeightVariances(
        np.eye(10), offset=1.0, bounds=(1e-9, 1e6), log_prior=independent({0: PCDeviation(1.0, 0.01, power=2.0)})
    )
    found = integrate(Poisson(), family, counts)
    axis, nodes = np.linspace(-20.0, 3.0, 461), np.linspace(-8.0, 8.0, 801)
    parts = [poisson_groups(counts, a / 2, nodes) for a in axis]
    log_p = np.array([part[0] + PCDeviation(1.0, 0.01, power=2.0)(a)[0] for part, a in zip(parts, axis, strict=True)])
    p, total = summed(log_p, [axis])
    sds = np.exp(axis / 2)
    mean = p @ sds
    sd = np.sqrt(p @ (sds - mean) ** 2)
    below = np.cumsum(p) - 0.5 * p
    said = found.theta.of(lambda theta: np.exp(theta[0] / 2))
    assert found.evidence == "corrected"
    assert found.log_evidence == pytest.approx(total, abs=0.02)
    assert said.mean[0] == pytest.approx(mean, abs=0.03 * sd)
    assert said.sd[0] == pytest.approx(sd, rel=0.05)
    for q in (0.025, 0.5, 0.975):
        assert said.quantile(q)[0] == pytest.approx(np.interp(q, below, sds), abs=0.08 * sd)
    means, squares = p @ np.array([part[1] for part in parts]), p @ np.array([part[2] for part in parts])
    spread = np.sqrt(squares - means**2)
    assert np.abs((found.mean - 1.0 - means) / spread).max() < 0.01
    assert found.sd == pytest.approx(spread, rel=0.02)
    plug_in = learn(Poisson(), family, counts).solution.posterior
    assert np.abs(np.log(plug_in.sd / spread)).mean() > 5 * np.abs(np.log(found.sd / spread)).mean()


# -- three hyperparameters: a composite design beside a lattice ------------------------------------------------
def labels_of_three():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 12))
    groups = np.repeat([0, 1, 2], 4)
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(-X @ (rng.normal(size=12) * np.array([0.4, 0.8, 1.4])[groups]))))
    family = WeightVariances(X, groups=groups, log_prior=independent({i: Normal(0.0, 1.0) for i in range(3)}))
    return BernoulliLogit("exact"), family, y


@pytest.fixture(scope="module")
def three():
    return [integrate(*labels_of_three(), method=method) for method in ("grid", "ccd")]


def test_a_composite_design_agrees_with_a_lattice(three):
    fine, coarse = three
    assert fine.evidence == coarse.evidence == "corrected"
    assert coarse.log_evidence == pytest.approx(fine.log_evidence, abs=0.05)
    assert 15 <= len(coarse.solutions) < len(fine.solutions)
    assert np.abs((coarse.mean - fine.mean) / fine.sd).max() < 0.03
    assert coarse.sd == pytest.approx(fine.sd, rel=0.02)
    assert np.abs((coarse.theta.mean - fine.theta.mean) / fine.theta.sd).max() < 0.1
    assert coarse.theta.sd == pytest.approx(fine.theta.sd, rel=0.1)


def test_polynomials_that_disagree_leave_the_shares_of_the_design(monkeypatch):
    monkeypatch.setattr(fitted_design, "RULES_APART", -1.0)
    found = integrate(*labels_of_three(), method="ccd")
    assert not found.resolved
    assert len(found.solutions) == 15
    density = found.theta.log_density
    at, w = density.draws
    u, points = density.coordinates.u(at), density.coordinates.u(np.asarray(found.thetas))
    nearest = cdist(u, points).argmin(axis=1)
    np.testing.assert_allclose(np.bincount(nearest, w, 15), found.weights, atol=1e-6)


def test_every_point_of_a_composite_design_that_counts_is_corrected(monkeypatch):
    monkeypatch.setattr(integrating, "_carry", lambda centre: False)  # as where corrections are draws
    found = integrate(*labels_of_three(), method="ccd")
    parts = zip(found.weights, found.answers, found.solutions, strict=True)
    assert len(found.solutions) > 15
    assert all(part is not solution.posterior for w, part, solution in parts if w > integrating.LIGHT_SHARE)


def test_a_mixture_answers_as_any_posterior_does(three):
    found = three[1]
    assert isinstance(found, Answers)
    assert isinstance(found.latents(), Marginals)
    assert isinstance(found.theta, Marginals)
    draws = found.sample_latents(20_000, 0)
    z = found.latents()
    assert np.abs((draws.mean(axis=0) - z.mean) / z.sd).max() < 0.04
    assert draws.std(axis=0) == pytest.approx(z.sd, rel=0.03)
    for q in (0.05, 0.5, 0.9):
        assert z.cdf(z.quantile(q)) == pytest.approx(np.full(12, q), abs=1e-6)
        assert np.abs((np.quantile(draws, q, axis=0) - z.quantile(q)) / z.sd).max() < 0.06
    eta = found.sample(4000, 1)
    assert np.abs((eta.mean(axis=0) - found.mean) / found.sd).max() < 0.08
    predicted = found.predictive()
    assert predicted.mean == pytest.approx(predicted.probabilities[:, 1], abs=1e-9)
    assert predicted.mean == pytest.approx((1.0 / (1.0 + np.exp(-eta))).mean(axis=0), abs=0.03)
    new = found.at(design=np.eye(12)[:2])
    assert new.mean == pytest.approx(z.mean[:2], abs=1e-6)


def test_leave_one_out_forgets_the_hyperparameters_too(rows):
    X, y = rows
    X, y = X[:12], y[:12]
    family = WeightVariances(X, log_prior=independent({0: Normal(0.0, 1.5)}))
    found = integrate(Gaussian(1.0), family, y, learn_likelihood=False).loo()
    axis = np.linspace(-8.0, 8.0, 401)
    prior = norm(0.0, 1.5).logpdf(axis)
    whole = summed(normal_evidence(X, y, np.exp(axis), np.ones(401)) + prior, [axis])[1]
    for n in (0, 7):
        rest = np.arange(12) != n
        less = summed(normal_evidence(X[rest], y[rest], np.exp(axis), np.ones(401)) + prior, [axis])[1]
        assert found.log_density[n] == pytest.approx(whole - less, abs=2e-3)


# -- parts -------------------------------------------------------------------------------------------------
def test_coordinates_go_there_and_back():
    bent = Coordinates.straight(np.array([1.0, 5.0, -2.0]), [0, 2], np.array([[1.0, 0.5], [0.0, 0.7]]))
    bent = bent.bent(np.array([[-1.5, -3.0], [-3.0, -2.0]]), np.array([[3.0, 2.0], [2.0, 3.5]]))
    u = np.random.default_rng(0).normal(size=(50, 2)) * 1.5
    assert bent.u(bent.theta(u)) == pytest.approx(u, abs=1e-5)
    assert (bent.theta(u)[:, 1] == 5.0).all()
    step = 1e-5
    for point in u[:5]:
        J = np.array(
            [(bent.theta(point + step * e) - bent.theta(point - step * e))[[0, 2]] / (2 * step) for e in np.eye(2)]
        )
        assert bent.log_jacobian(point) == pytest.approx(np.linalg.slogdet(J)[1], abs=1e-7)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_lattices_integrate_a_normal(d):
    places = block(d)
    for _ in range(4):
        places = np.concatenate([places, edge(places)])
    design = lattice(places)
    w = np.exp(design.log_mass)
    assert w.sum() == pytest.approx(1.0, abs=0.01)
    assert w @ design.u**2 == pytest.approx(np.ones(d), abs=0.03)


@pytest.mark.parametrize("d", [4, 5, 6, 7, 9])
def test_composite_designs_have_the_moments_of_a_normal(d):
    design, F = composite(d), factorial(d)
    w = np.exp(design.log_mass)
    assert w.sum() == pytest.approx(1.0)
    assert (design.u * w[:, None]).T @ design.u == pytest.approx(np.eye(d), abs=1e-12)
    pairs = np.array(
        [F[:, i] * F[:, j] for i in range(d) for j in range(i)] + list(F.T)
    )  # resolution V: all orthogonal
    assert pairs @ pairs.T / len(F) == pytest.approx(np.eye(len(pairs)), abs=1e-12)


def test_no_probability_of_a_mixture_is_above_one():
    parts = [NormalMarginals(np.array([-40.0]), np.ones(1)) for _ in range(9)]
    assert Mixture(np.full(9, 1 / 9), parts).cdf(0.0).tolist() == [1.0]  # nine ninths add up to 1 + 2e-16


def test_quantiles_of_a_mixture_invert_its_distribution():
    rng = np.random.default_rng(1)
    parts = [NormalMarginals(rng.normal(size=5) * 3, rng.gamma(1.0, size=5) + 0.1) for _ in range(4)]
    both = Mixture([0.1, 0.2, 0.3, 0.4], parts)
    q = [0.001, 0.3, 0.99]
    assert np.stack([both.cdf(x) for x in both.quantile(q).T], axis=1) == pytest.approx(np.tile(q, (5, 1)), abs=1e-8)
    draws = np.concatenate(
        [norm(p.mean, p.sd).rvs((n, 5), random_state=2) for p, n in zip(parts, (1, 2, 3, 4), strict=True)]
    )
    assert draws.shape == (10, 5)
    x = np.linspace(-30.0, 30.0, 1501)
    p = both.density(np.tile(x, (5, 1))) * (x[1] - x[0])
    mean = p @ x
    assert both.mean == pytest.approx(mean, abs=1e-6)
    assert both.variance == pytest.approx(p @ x**2 - mean**2, rel=1e-6)
    third = np.array([p[i] @ (x - mean[i]) ** 3 for i in range(5)])
    assert both.skewness == pytest.approx(third / both.sd**3, abs=1e-6)


# -- interruptions, and what is refused ------------------------------------------------------------------------
def small():
    family = WeightVariances(np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    return Poisson(), family, np.array([2.0, 0, 4, 1, 9, 3, 2, 6])


def test_an_interrupted_integration_goes_on(tmp_path, monkeypatch):
    from fenchel.hyperparameters.integration import points

    whole, path = integrate(*small()), tmp_path / "fits"
    plain, calls = points.fitted_at, []

    def until(*args):
        calls.append(args)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(points, "fitted_at", until)
    with pytest.raises(KeyboardInterrupt) as stopped:
        integrate(*small(), checkpoint=path)
    assert len(stopped.value.finished) == 5
    for again in (integrate(*small(), checkpoint=path), integrate(*small(), checkpoint=stopped.value.finished)):
        assert again.log_evidence == whole.log_evidence
        assert again.n_fits == whole.n_fits - 5
    with pytest.raises(ValueError, match="checkpoint holds fits of another model, other data or other settings"):
        integrate(*small(), evidence="elbo", checkpoint=path)
    likelihood, _, y = small()
    other = WeightVariances(2.0 * np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    with pytest.raises(ValueError, match="checkpoint holds fits of another model"):
        integrate(likelihood, other, y, checkpoint=path)
    with path.open("ab") as file:
        file.write(b"half a record")
    assert len(Finished(path)) == 0
    again = integrate(*small(), checkpoint=path)
    assert (again.n_fits, again.log_evidence, again.log_evidence_error) == (
        0,
        whole.log_evidence,
        whole.log_evidence_error,
    )
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 4])  # in the midst of a record
    assert 0 < integrate(*small(), checkpoint=path).n_fits < whole.n_fits
    again = integrate(*small(), checkpoint=path)
    assert (again.n_fits, again.log_evidence) == (0, whole.log_evidence)


def process(bounds):
    x = np.linspace(0, 6, 25)
    kernel = ConstantKernel(0.45, bounds[0]) * RBF(0.43, bounds[1])
    return KernelCovariance(kernel, x[:, None], mean=1.0), np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x)))


@pytest.mark.parametrize("evidence", ["elbo", "corrected"])
def test_bounds_within_an_sd_of_the_mode(evidence):
    """A box within which the density hardly falls: by Gauss's and Legendre's points over it."""
    family, y = process([(0.35, 0.6), (0.33, 0.58)])
    found = integrate(Poisson(), family, y, evidence=evidence)
    nodes, weights = np.polynomial.legendre.leggauss(5)
    middle, half = family.bounds.mean(axis=1), np.diff(family.bounds, axis=1)[:, 0] / 2
    fits = [
        (infer(Poisson(), family.at(middle + half * [a, b]), y), np.log(half.prod() * v * w))
        for a, v in zip(nodes, weights, strict=True)
        for b, w in zip(nodes, weights, strict=True)
    ]
    truth = logsumexp([(fit.elbo if evidence == "elbo" else fit.corrected().log_evidence) + w for fit, w in fits])
    assert abs(found.log_evidence - truth) < 0.01
    assert found.log_evidence_error < 0.2
    assert not found.doubts
    inside = found.theta.interval()
    assert ((inside > family.bounds[:, :1]) & (inside < family.bounds[:, 1:])).all()


def test_a_hyperparameter_without_room_is_held():
    (free, y), (fixed, _) = process([(1e-3, 1e3), "fixed"]), process([(1e-3, 1e3), (0.43, 0.43)])
    one, two = (integrate(Poisson(), family, y) for family in (free, fixed))
    assert two.theta.free == [0]
    assert abs(one.log_evidence - two.log_evidence) < 1e-6
    assert_allclose(two.theta.interval()[0], one.theta.interval()[0], atol=1e-4)
    assert "cut off" not in two.status
    at_bound = integrate(Poisson(), process([(1e-3, 1e3), (0.8, 0.9)])[0], y)
    assert "length_scale is held at its lower bound" in at_bound.status
    assert "cut off" not in at_bound.status


def test_a_correction_that_is_not_interpolated_has_all_points_corrected(monkeypatch):
    """The fifth is by draws, say: the other points then have corrections of their own, and none stays Gaussian."""
    from fenchel.hyperparameters.integration import points

    plain, calls = points.correct, []

    def correct(*args, **options):
        calls.append(plain(*args, **options))
        calls[-1].carries = len(calls) != 5
        return calls[-1]

    monkeypatch.setattr(points, "correct", correct)
    found = integrate(*small())
    assert len(calls) >= 5
    heavy = found.weights > 0.002
    assert all(hasattr(part, "log_evidence") for part, counts in zip(found.answers, heavy, strict=True) if counts)


def test_the_peak_is_no_step_that_fell(monkeypatch):
    from fenchel.hyperparameters.correction_model import CorrectionModel

    monkeypatch.setattr(CorrectionModel, "slope", lambda self, theta: np.full(theta.size, 50.0))
    found = integrate(*small())
    assert_allclose(found.theta.peak, found.theta.mode)


def test_points_fitted_side_by_side_are_the_same():
    from joblib import parallel_config

    one = integrate(*small())
    with parallel_config(backend="threading"):
        two = integrate(*small(), n_jobs=2)
    assert two.log_evidence == pytest.approx(one.log_evidence, abs=1e-9)


def test_nothing_to_integrate_over():
    likelihood, _, y = small()
    found = integrate(likelihood, WeightVariances(np.eye(8), groups=[-1] * 8), y)
    assert len(found.solutions) == 1
    assert "no hyperparameter to integrate over" in found.status
    assert found.log_evidence == pytest.approx(found.solutions[0].corrected().log_evidence)


def test_where_the_correction_does_not_hold_the_elbo_weights(monkeypatch):
    from fenchel.hyperparameters.integration.points import Point

    monkeypatch.setattr(Point, "usable", False)
    found = integrate(*small())
    assert found.evidence == "elbo"
    assert "sds of terms come from the elbo" in found.status


def test_a_ridge_without_a_prior_is_told():
    from fenchel.likelihoods import NegativeBinomial

    rng = np.random.default_rng(0)
    family = WeightVariances(np.ones((60, 1)), log_prior=independent({0: Normal(0.0, 1.0)}))
    found = integrate(
        NegativeBinomial(bound="log-sum"), family, rng.poisson(2.0, 60).astype(float)
    )  # any large size will do
    assert "the points do not resolve the posterior of theta" in found.status or "bound" in found.status


def test_a_bad_mode_is_told():
    likelihood, family, y = small()
    mode = learn(likelihood, family, y, max_iter=0)
    found = integrate(likelihood, family, y, mode=mode)
    assert not found.converged
    assert found.status.startswith("NOT CONVERGED")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"method": "gird"},
            "method = 'gird' is not known; expected 'auto' or 'grid' or 'ccd' or 'star'. Did you mean 'grid'",
        ),
        ({"evidence": "laplace"}, "evidence = 'laplace' is not known"),
        ({"n_jobs": 0}, "n_jobs = 0; expected a number of processes"),
    ],
)
def test_what_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        integrate(*small(), **options)


def test_a_grid_of_many_hyperparameters_is_refused():
    family = WeightVariances(np.eye(8), groups=np.arange(8) % 5, log_prior=independent({i: Normal() for i in range(5)}))
    with pytest.raises(ValueError, match='method = "grid" and 5 hyperparameters; expected at most 4'):
        integrate(Poisson(), family, small()[2], method="grid")


def test_draws_of_theta_follow_the_shares_of_points_that_are_too_far_apart():
    """Two points with nearly all of the weight, far from each other: what lies between follows neither's curve."""
    u, shares = np.array([[-4.0], [-2.0], [0.0], [4.0]]), np.array([0.01, 0.04, 0.5, 0.45])
    straight = Coordinates.straight(np.zeros(1), [0], np.eye(1))
    density = LogDensity(straight, u, np.log(shares), np.array([[-9.0, 9.0]]))
    density.match(u, shares)
    theta, w = density.draws
    nearest = np.abs(theta - u.T).argmin(axis=1)
    np.testing.assert_allclose(np.bincount(nearest, w), shares, rtol=1e-6)
    assert w.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("hold", [(-1,), (1,)])
def test_a_place_to_hold_is_that_of_a_hyperparameter(hold):
    family = WeightVariances(np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    with pytest.raises(Refusal, match=r"integrate: hold = .*; expected places of hyperparameters, 0 to 0"):
        integrate(Poisson(), family, np.array([2, 0, 4, 1, 9, 3, 2, 6]), hold=hold)
