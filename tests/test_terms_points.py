"""Matern fields over points: against the Matern covariance, exact regression with it, and simulated data."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from scipy.special import gamma, j0, kv
from scipy.stats import multivariate_normal

import fenchel
from fenchel.gmrf.spde import diffusion, matern_field, n_fields, rational
from fenchel.hyperparameters import PCRange
from fenchel.plots import plot_surface
from fenchel.priors import DenseCovariance
from fenchel.terms import DataTable, Matern, SumOfTerms

RNG = np.random.default_rng(3)
SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def matern(X, Y, reach, nu):
    """The covariance at sd 1, by Bessel functions."""
    d = np.sqrt(8 * nu) / reach * np.linalg.norm(X[:, None] - Y[None], axis=2)
    with np.errstate(invalid="ignore"):
        return np.where(d > 0, 2.0 ** (1 - nu) / gamma(nu) * d**nu * kv(nu, d), 1.0)


@pytest.mark.parametrize("nu", [1, 2])
def test_a_field_has_the_covariance_of_matern(nu):
    made = fenchel.mesh(SQUARE, edge=0.03, collar=0.5)
    grid = np.stack(np.meshgrid(np.linspace(0.1, 0.9, 7), np.linspace(0.1, 0.9, 7)), axis=-1).reshape(-1, 2)
    W, Q = made.design(grid), diffusion(made, nu)(np.log([2.0, 0.3]))[0]
    S = W @ np.linalg.solve(Q.toarray(), W.T.toarray())
    np.testing.assert_allclose(S, 4.0 * matern(grid, grid, 0.3, nu), atol=4 * 0.05)  # a tenth of the range an edge
    assert np.diag(S).mean() == pytest.approx(4.0, rel=0.01)


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_a_field_of_a_fraction_has_the_covariance_of_matern(nu):
    made = fenchel.mesh(SQUARE, edge=0.025, collar=0.5)
    at = made.nodes[(np.abs(made.nodes - 0.5) < 0.4).all(axis=1)][::23]  # a rough field varies less between nodes
    W, Q = sp.hstack([made.design(at)] * n_fields(nu)), diffusion(made, nu)(np.log([2.0, 0.3]))[0]
    S = W @ scipy.sparse.linalg.spsolve(Q, W.T.tocsc()).toarray()
    np.testing.assert_allclose(S, 4.0 * matern(at, at, 0.3, nu), atol=4 * 0.04)
    assert np.diag(S).mean() == pytest.approx(4.0, rel=0.04)


@pytest.mark.parametrize("nu", [0.3, 0.5, 1.5, 2.7])
def test_the_rational_field_has_the_covariance_of_matern_in_the_plane(nu):
    """By an integral over the spectrum, 0.02 of the variance as ``spde.py`` says, without a mesh."""
    (a, r), p, d = rational(nu), int(np.ceil(nu)), np.linspace(0.1, 4.0, 30)
    u = np.linspace(0.0, 2000.0, 2_000_001)[1:]  # of k / kappa: y = 1 + u^2
    y = 1.0 + u**2
    density = sum(each / (y**p * (y + shift)) for shift, each in zip(a, r, strict=True))
    found = [2.0 * nu * np.sum(density * j0(u * at) * u) * (u[1] - u[0]) for at in d]
    exact = matern(np.zeros((1, 2)), np.column_stack([d / np.sqrt(8 * nu), 0 * d]), 1.0, nu)[0]
    np.testing.assert_allclose(found, exact, atol=0.02)


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.5, "two ranges"])
def test_slopes_of_rough_fields_are_differences_and_the_evidence_is_the_dense_one(nu):
    made = fenchel.mesh(SQUARE, edge=0.25, collar=0.3)
    build = diffusion(made, nu)
    theta = np.array([0.3, np.log(0.5), np.log(3.0)])[: 3 if nu == "two ranges" else 2]
    slopes = build(theta)[1]
    for i, step in enumerate(1e-5 * np.eye(theta.size)):
        numeric = (build(theta + step)[0] - build(theta - step)[0]) / 2e-5
        np.testing.assert_allclose(slopes[i].toarray(), numeric.toarray(), atol=1e-6 * abs(numeric).max())
    X = np.random.default_rng(2).random((60, 2))
    y = np.sin(6.0 * X[:, 0]) + X[:, 1]
    term = SumOfTerms([Matern("x", "y", mesh=made, nu=nu)], DataTable("here", {"x": X[:, 0], "y": X[:, 1]}))
    family, noise = term.family(), 0.04
    Q, W = family.at(theta).precision.toarray(), term.new_rows(theta, DataTable("here", dict(zip("xy", X.T)))).design
    sol = fenchel.infer(fenchel.Gaussian(noise), family.at(theta), y, tol=1e-12)
    S = W @ np.linalg.solve(Q, W.T.toarray()) + noise * np.eye(60)
    assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(60), S).logpdf(y), abs=1e-6)


def test_a_field_of_two_ranges_has_its_covariance():
    made = fenchel.mesh(SQUARE, edge=0.02, collar=0.5)
    grid = made.nodes[(np.abs(made.nodes - 0.5) < 0.35).all(axis=1)][::31]
    theta = np.array([0.0, np.log(0.4), np.log(2.0)])
    S = made.design(grid) @ scipy.sparse.linalg.spsolve(
        diffusion(made, "two ranges")(theta)[0], made.design(grid).T.tocsc()
    )
    d = np.sqrt(8.0) / 0.4 * np.linalg.norm(grid[:, None] - grid[None], axis=2)
    with np.errstate(invalid="ignore"):
        exact = np.where(d > 0, (kv(0, d) - kv(0, 3.0 * d)) / np.log(3.0), 1.0)
    np.testing.assert_allclose(S.toarray(), exact, atol=0.05)


def test_the_roughest_field_has_its_sd_on_the_mesh():
    made = fenchel.mesh(SQUARE, edge=0.04, collar=0.5)
    inner = (np.abs(made.nodes - 0.5) < 0.4).all(axis=1)
    Q = diffusion(made, 0.0)(np.log([2.0, 0.4]))[0]
    assert np.sqrt(np.diag(np.linalg.inv(Q.toarray()))[inner]).mean() == pytest.approx(2.0, rel=0.03)


def test_finer_meshes_are_nearer():
    grid = np.stack(np.meshgrid(np.linspace(0.2, 0.8, 5), np.linspace(0.2, 0.8, 5)), axis=-1).reshape(-1, 2)
    errors = []
    for edge in (0.12, 0.06, 0.03):
        made = fenchel.mesh(SQUARE, edge=edge, collar=0.5)
        W, Q = made.design(grid), diffusion(made, 2)(np.log([1.0, 0.4]))[0]
        S = W @ np.linalg.solve(Q.toarray(), W.T.toarray())
        errors.append(np.abs(S - matern(grid, grid, 0.4, 2)).max())
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.5 * errors[1]


def points(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2)) * 10.0
    L = np.linalg.cholesky(matern(X, X, 4.0, 1) + 1e-8 * np.eye(n))
    return X, L @ rng.normal(size=n), rng


def test_gaussian_regression_as_with_the_covariance_itself():
    X, f, rng = points(150)
    y, noise = f + 0.3 * rng.normal(size=150), 0.09
    table = DataTable("here", {"x": X[:, 0], "y": X[:, 1]})
    model = SumOfTerms([Matern("x", "y", edge=0.2)], table, intercept=False)
    theta = np.log([1.0, 4.0])
    sol = fenchel.infer(fenchel.Gaussian(noise), model.family().at(theta), y, tol=1e-12)
    K = matern(X, X, 4.0, 1)
    assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(150), K + noise * np.eye(150)).logpdf(y), abs=0.5)
    new = rng.random((40, 2)) * 10.0
    h, rho = sol.posterior.predict(model.new_rows(theta, DataTable("here", {"x": new[:, 0], "y": new[:, 1]})))
    gain = np.linalg.solve(K + noise * np.eye(150), matern(X, new, 4.0, 1)).T
    np.testing.assert_allclose(h, gain @ y, atol=0.05)
    np.testing.assert_allclose(np.sqrt(rho), np.sqrt(1 - np.sum(gain * matern(new, X, 4.0, 1), axis=1)), atol=0.03)


def test_variances_in_a_hole_are_those_of_the_dense_posterior(monkeypatch):
    X, f, rng = points(400, seed=4)
    hole = (np.abs(X - 5.0) < 2.5).all(axis=1)
    data = pd.DataFrame({"e": X[:, 0], "n": X[:, 1], "y": f + 0.3 * rng.normal(size=400)})
    fit = fenchel.fit("y ~ e + matern(e, n, nu=1, edge=0.6)", data[~hole])
    new = pd.DataFrame({"e": 3.0 + 4.0 * rng.random(200), "n": 3.0 + 4.0 * rng.random(200)})
    seen = []
    solves = fenchel.priors.sparsity.row_quadratic
    monkeypatch.setattr(
        fenchel.priors.sparsity, "row_quadratic", lambda factor, W: seen.append(W.shape[0]) or solves(factor, W)
    )
    sd = fit.predict(new, kind="link", interval=0.9)["sd"]
    assert sum(seen) == 0  # nodes without data have no entry beside the intercept, and are not solved for
    design = fit.model.sum.new_rows(fit.theta, fit.model.table(new)).design
    prior = fit.model.sum.family().at(fit.theta[:2])
    W, noise = prior.design.csr(), np.exp(fit.theta[2])
    A = prior.precision.toarray() + (W.T @ W).toarray() / noise
    np.testing.assert_allclose(sd**2, np.diag(design @ np.linalg.solve(A, design.T.toarray())), rtol=1e-8)


def test_smoothness_is_chosen_by_the_evidence():
    rng = np.random.default_rng(1)
    X = rng.random((600, 2))
    rough, smooth = (
        np.linalg.cholesky(matern(X, X, 0.4, nu) + 1e-7 * np.eye(600)) @ rng.normal(size=600) for nu in (0.5, 2.0)
    )
    noise = 0.05 * rng.normal(size=600)
    data = pd.DataFrame({"e": X[:, 0], "n": X[:, 1], "rough": rough + noise, "smooth": smooth + noise})
    fit = fenchel.fit("rough ~ matern(e, n)", data)
    term = fit.model.sum.effects[0]
    assert term.nu in (0.5, "two ranges")
    assert term.trials.evidence[term.nu] > term.trials.evidence[1.0] + 2.0
    assert "nats of evidence more than" in fit.summary()
    assert fenchel.fit("smooth ~ matern(e, n)", data).model.sum.effects[0].nu in (1.5, 2.0)
    assert fenchel.fit("smooth ~ matern(e, n, nu=1)", data).model.sum.effects[0].nu == 1.0


def test_a_formula_with_a_field_a_group_and_a_covariate(tmp_path):
    X, f, rng = points(300, seed=1)
    g, x = rng.integers(0, 8, 300), rng.normal(size=300)
    eta = 0.8 + f + 0.4 * rng.normal(size=8)[g] + 0.5 * x
    data = pd.DataFrame({"east": X[:, 0], "north": X[:, 1], "x": x, "g": g, "deaths": rng.poisson(np.exp(eta))})
    fit = fenchel.Model("deaths ~ x + (1|g) + matern(east, north, edge=0.9)", data, family="poisson").fit()
    assert fit.converged
    assert fit.coefficients.loc["x", "mean"] == pytest.approx(0.5, abs=0.1)
    found = fit.hyperparameters.loc["matern(east,north,edge=0.9)"]
    assert list(found.index) == ["sd", "range"]
    for word, truth in (("sd", 1.0), ("range", 4.0)):
        assert found.loc[word, "lower"] < truth < found.loc[word, "upper"]
    text = fit.summary()
    assert "matern(east,north,edge=0.9): A Matern field over points in the plane" in text
    assert "P(range < " in text
    effect = fit.effects["matern(east, north, edge=0.9)"]
    assert effect.index.nlevels == 2
    at = np.array(effect.index.tolist())
    assert at.min() >= X.min()
    assert at.max() <= X.max()
    here, middle = (
        fit.predict(where, kind="link") for where in (data.assign(x=0.0), data.assign(x=0.0, east=5.0, north=5.0))
    )
    assert np.corrcoef(here - middle, f)[0, 1] > 0.9
    ax = fit.plot("matern(east, north, edge=0.9)")
    assert [len(each.child_axes) for each in ax.figure.axes] == [1, 1]  # mean and sd, a bar each
    ax.figure.savefig(tmp_path / "field.png")
    draws = fit.sample(data.iloc[:3], 50)
    assert draws.shape == (50, 3)
    with pytest.raises(ValueError, match="a point lies outside the mesh"):
        fit.predict(data.iloc[:1].assign(east=1e4))


def test_short_ranges_have_a_finer_mesh_or_a_remark():
    rng = np.random.default_rng(1)
    X = rng.random((500, 2))
    f = np.linalg.cholesky(matern(X, X, 0.15, 1) + 1e-8 * np.eye(500)) @ rng.normal(size=500)
    data = pd.DataFrame({"e": X[:, 0], "n": X[:, 1], "y": f + 0.3 * rng.normal(size=500)})
    fit = fenchel.Model("y ~ matern(e, n)", data).fit()
    term = fit.model.sum.effects[0]
    reach, noise = np.exp(fit.theta[1]), np.exp(fit.theta[2] / 2)
    assert term.final
    assert 9.0 < reach / term.mesh.edge < 15.0
    assert noise == pytest.approx(0.289, rel=0.06)  # what maximum likelihood finds with the covariance itself
    assert not fit.remarks
    with pytest.warns(UserWarning, match=r"the range, 0\.\d+, is 2\.\d edges of its mesh, .*: edge=0\.01\d tells"):
        coarse = fenchel.Model("y ~ matern(e, n, edge=0.07)", data).fit()
    assert np.exp(coarse.theta[2] / 2) > 0.4
    assert coarse.model.sum.effects[0].mesh.edge == pytest.approx(0.07, rel=1e-3)  # what was asked for stays


def test_a_grid_partly_outside():
    X, f, rng = points(150, seed=5)
    data = pd.DataFrame({"e": X[:, 0], "n": X[:, 1], "y": f + 0.2 * rng.normal(size=150)})
    fit = fenchel.Model("y ~ matern(e, n, edge=0.7)", data).fit()
    term, theta = fit.model.sum.effects[0], fit.theta
    sd, reach = np.exp(theta[:2])
    tried = np.linspace(5.0, 20.0, 200_001)
    edge = tried[term.mesh.inside(np.column_stack([tried, np.full(tried.size, 5.0)]))].max()
    east = np.array([5.0, edge - 1e-4, edge + 1e-4, edge + 0.3 * reach, edge + 2.0 * reach, edge + 40.0])
    new = pd.DataFrame({"e": east, "n": 5.0})
    rows = fit.model.sum.new_rows(theta, fit.model.table(new))
    h, rho = fit.posterior.predict(design=rows.design, extra_variance=rows.extra_variance)
    np.testing.assert_allclose([h[1], rho[1]], [h[2], rho[2]], rtol=1e-3)  # it goes on where the mesh ends
    level = fit.coefficients.loc["Intercept"]
    tri = np.vstack([np.sort(term.mesh.triangles[:, pair], axis=1) for pair in ([0, 1], [1, 2], [2, 0])])
    ends, times = np.unique(tri, axis=0, return_counts=True)  # by points on every edge of one triangle
    share = np.linspace(0.0, 1.0, 2001)[None, :, None]
    a, b = (term.mesh.nodes[ends[times == 1, k]][:, None] for k in (0, 1))
    gap = np.sqrt(np.sum((a + share * (b - a) - [east[3], 5.0]) ** 2, axis=2)).min()
    c = matern(np.zeros((1, 2)), np.array([[gap, 0.0]]), reach, 1)[0, 0]
    assert rows.design[[3]][:, : term.n_latents].sum() == pytest.approx(c, rel=1e-4)
    assert rows.extra_variance[3] == pytest.approx(sd**2 * (1 - c**2), rel=1e-3)
    assert rho[-1] == pytest.approx(sd**2 + level["sd"] ** 2, rel=0.02)  # far away nothing is known
    draws = fit.sample(pd.DataFrame({"e": edge + np.array([30.0, 30.0, 30.1]), "n": 5.0}), 4000, 0, kind="link")
    assert np.corrcoef(draws.T)[0, 1] == pytest.approx(1.0)
    near = matern(np.zeros((1, 2)), np.array([[0.1, 0.0]]), reach, 1)[0, 0]
    assert np.corrcoef(draws.T)[0, 2] == pytest.approx(near, abs=0.02)
    with pytest.raises(ValueError, match="a point lies outside the mesh"):
        fit.predict(new.assign(e=1e5).iloc[:1])
    shore = fenchel.mesh(boundary=SQUARE * 10.5 - 0.2, edge=0.6)
    bounded = fenchel.Model("y ~ matern(e, n, mesh=shore)", data).fit()
    with pytest.raises(ValueError, match=r"4 of 6 points lie outside the mesh, .* mesh.inside\(points\) says which"):
        bounded.predict(new.assign(e=[5.0, 6.0, 12.0, 13.0, 14.0, 15.0]))
    np.testing.assert_array_equal(shore.inside([[5.0, 5.0], [12.0, 5.0]]), [True, False])


def test_a_mesh_of_ones_own_and_priors():
    X, f, rng = points(120, seed=2)
    data = pd.DataFrame({"e": X[:, 0], "n": X[:, 1], "y": f + 0.2 * rng.normal(size=120)})
    coarse = fenchel.mesh(X, edge=1.0)
    model = fenchel.Model("y ~ matern(e, n, mesh=coarse, nu=2, prior_range=[2, 0.1], prior_sd=[3, 0.05])", data)
    term = model.sum.effects[0]
    assert term.mesh is coarse
    assert term.n_latents == coarse.n_nodes
    assert term.hyperparameters[1].prior == PCRange(2.0, 0.1, 2)
    assert (term.hyperparameters[0].prior.u, term.hyperparameters[0].prior.probability) == (3.0, 0.05)
    named = {"matern(e,n,mesh=coarse)": {"range": PCRange(3.0, 0.2, 2), "sd": fenchel.PC(2.0, 0.1)}}
    model = fenchel.Model("y ~ matern(e, n, mesh=coarse)", data, priors=named)
    assert model.sum.effects[0].hyperparameters[1].prior == PCRange(3.0, 0.2, 2)
    field = matern_field(coarse, range=3.0)
    sol = fenchel.infer(fenchel.Gaussian(0.04), fenchel.gmrf.stack([(field, coarse.design(X))]).at(), data["y"])
    assert sol.converged


def test_barriers_part_what_lies_on_their_sides():
    wall = np.array([[4.8, 0.0], [5.2, 0.0], [5.2, 8.0], [4.8, 8.0]])
    box = SQUARE * 10.0
    open_, walled = (fenchel.mesh(boundary=box, barriers=b, edge=0.4) for b in (None, wall))
    ends = np.array([[4.3, 3.0], [5.7, 3.0]])
    correlation = []
    for made in (open_, walled):
        W, Q = made.design(ends), diffusion(made)(np.log([1.0, 4.0]))[0]
        S = W @ np.linalg.solve(Q.toarray(), W.T.toarray())
        correlation.append(S[0, 1] / np.sqrt(S[0, 0] * S[1, 1]))
    assert correlation[0] > 0.6
    assert correlation[1] < 0.3
    with pytest.raises(ValueError, match="nu = 2 on a mesh with barriers; expected nu = 1"):
        diffusion(walled, 2)


def test_what_a_field_refuses():
    X, f, _ = points(30, seed=4)
    data = pd.DataFrame({"lon": X[:, 0], "lat": X[:, 1] + 50.0, "y": f})
    with pytest.warns(UserWarning, match=r"look like degrees. At latitude 55 one of longitude is 0.57 of one"):
        fenchel.Model("y ~ matern(lon, lat)", data)
    for x, y in (("LONG", "LAT"), ("x_lon", "y_lat"), ("decimalLongitude", "decimalLatitude")):
        named = data.rename(columns={"lon": x, "lat": y})
        for word in (f"matern({y}, {x})", f"vecchia({x}, {y}, isotropic=True)"):
            with pytest.warns(UserWarning, match=r"look like degrees. At latitude 55"):
                fenchel.Model(f"y ~ {word}", named)
    fenchel.Model("y ~ vecchia(lon, lat)", data)  # a range each, in a unit each
    fenchel.Model("y ~ matern(lon, lat)", data.assign(lat=X[:, 1]))  # at the equator they are one unit
    fenchel.Model("y ~ matern(lon, lat)", data.assign(lat=5e6 + X[:, 1]))
    with pytest.raises(ValueError, match=r"nu = 7; expected 0, between 0.1 and 3, or 'two ranges'"):
        Matern("lon", "lat", nu=7)
    with pytest.raises(ValueError, match="nu is not an array of real numbers"):
        Matern("lon", "lat", nu="rough")
    with pytest.raises(ValueError, match=r"all rows of matern\(a, b\) are at one point"):
        Matern("a", "b").read(DataTable("here", {"a": [1.0, 1.0], "b": [2.0, 2.0]}), 1.0)
    with pytest.raises(ValueError, match=r"mesh is a str; expected a Mesh such as fenchel.mesh"):
        Matern("a", "b", mesh="fine")
    with pytest.raises(ValueError, match=r"prior_range = \[1, 2\]; expected \(size, probability\)"):
        Matern("a", "b", prior_range=[1, 2])
    with pytest.raises(ValueError, match="there is no column 'lot'"):
        fenchel.Model("y ~ matern(lon, lot)", data)


def test_surfaces_are_drawn_on_a_grid_with_holes_and_at_scattered_points():
    x, y = (a.ravel() for a in np.meshgrid(np.arange(5.0), np.arange(4.0)))
    frame = pd.DataFrame({"mean": x + y, "sd": 1.0}, index=pd.MultiIndex.from_arrays([x, y])).iloc[1:]
    ax = plot_surface(frame, (x, y), names=("east", "north"), title="field")
    assert [a.get_xlabel() for a in ax.figure.axes[:2]] == ["east", "east"]
    assert ax.get_title() == "field"
    scattered = frame.set_index(pd.MultiIndex.from_arrays(RNG.random((2, 19))))
    assert len(plot_surface(scattered).collections) == 1
    with pytest.raises(ValueError, match="a grid of 5 by 1 points; expected at least two of each"):
        plot_surface(frame[frame.index.get_level_values(1) == 1.0])


def test_a_long_range_has_a_wide_collar_and_the_evidence_of_the_dense_field():
    rng = np.random.default_rng(5)
    P = rng.uniform(-10.0, 10.0, (200, 2))
    y = np.sin(P[:, 0] / 4) + np.cos(P[:, 1] / 4) + 0.3 * rng.normal(size=200)
    data = pd.DataFrame({"x": P[:, 0], "z": P[:, 1], "y": y})
    fit = fenchel.fit("y ~ matern(x, z, nu=1)", data)
    (term,) = fit.model.sum.effects
    sd, reach, noise = fit.hyperparameters["value"]
    assert reach > 10.0
    assert term.final
    where = np.asarray(term.mesh.nodes)
    assert where[:, 0].min() < -10.0 - 0.9 * min(reach, 40.0)
    Q, A = term.precision(fit.theta[:2])[0], term.mesh.design(P, "here")
    own = np.sqrt(np.sum(A.toarray().T * np.linalg.solve(Q.toarray(), A.toarray().T), axis=0))
    np.testing.assert_allclose(own, sd, rtol=0.05)  # a collar of 0.3 of the extent leaves it too large
    S = sd**2 * matern(P, P, reach, 1) + noise**2 * np.eye(200) + (10 * y.std()) ** 2
    assert fit.elbo == pytest.approx(multivariate_normal(np.full(200, y.mean()), S).logpdf(y), abs=0.3)
    again = fenchel.fit("y ~ matern(x, z, nu=1, edge=2.0)", data).model.sum.effects[0]
    assert again.final
    assert again.mesh.edge == pytest.approx(2.0, rel=0.05)


def _field_with_a_far_row(x0, n=60):
    rng = np.random.default_rng(0)
    P = rng.uniform(0.0, 10.0, (n, 2))
    f = np.linalg.cholesky(matern(P, P, 4.0, 1) + 1e-8 * np.eye(n)) @ rng.normal(size=n)
    P[0, 0] = P[0, 0] if x0 is None else x0
    return pd.DataFrame({"x": P[:, 0], "z": P[:, 1], "y": 1.0 + f + 0.3 * rng.normal(size=n)})


@pytest.mark.parametrize("word", ["matern(x, z, edge=0.4)", "vecchia(x, z, isotropic=True)", "gp(x, z)"])
@pytest.mark.parametrize("x0", [100.0, -9999.0])
def test_a_far_row_is_named_and_the_others_are_fitted_as_without_it(word, x0):
    data = _field_with_a_far_row(x0)
    without = fenchel.fit(f"y ~ {word}", data.iloc[1:])
    with pytest.warns(UserWarning, match=rf"row 0 \(x = {x0:g}[,)].* the other 59 rows are wide \(9.[89]"):
        fit = fenchel.fit(f"y ~ {word}", data)
    ours, theirs = (np.log(found.hyperparameters["value"]).to_numpy() for found in (fit, without))
    np.testing.assert_allclose(ours, theirs, atol=0.12)
    np.testing.assert_allclose(fit.predict(data)[1:], without.predict(data.iloc[1:]), atol=0.12)
    assert any("row 0" in sentence for sentence in fit.remarks)
    assert any(line.startswith("check: ") and "row 0" in line for line in fit.summary().splitlines())


def test_rows_are_counted_as_in_the_data_where_some_are_left_out():
    data = _field_with_a_far_row(-9999.0).assign(c=np.arange(60.0))
    data = pd.concat([data.iloc[[1, 2]].assign(c=np.nan), data], ignore_index=True)
    for word in ("matern", "gp", "vecchia"):
        with pytest.warns(UserWarning, match=r"row 2 \(x = -9999"):
            fenchel.Model(f"y ~ c + {word}(x, z)", data)
    with pytest.raises(ValueError, match="is -inf in row 2;"):
        fenchel.Model("y ~ np.log(c)", data)


def test_a_field_far_from_the_bulk_has_its_variance_and_no_correlation(tmp_path):
    data = _field_with_a_far_row(500.0)
    tight = {"matern(x,z)": fenchel.PC(sd=1.0, alpha=0.01)}  # a range of a third of the extent: edges do not matter
    with pytest.warns(UserWarning, match="row 0"):
        fit = fenchel.fit("y ~ matern(x, z)", data, priors=tight)
    (term,) = fit.model.sum.effects
    A = term.mesh.design(data[["x", "z"]].to_numpy(), "here").toarray()
    S = A @ np.linalg.solve(term.precision(np.log([0.8, 3.0]))[0].toarray(), A.T)  # the collar is 1.5 ranges wide
    np.testing.assert_allclose(S[0, 1:], 0.0, atol=1e-12)
    assert S[0, 0] == pytest.approx(0.64, rel=0.05)
    fit.save(tmp_path / "fit")
    new = pd.DataFrame({"x": [3.0, 500.5, 250.0], "z": [4.0, 1.0, 1.0]})
    np.testing.assert_allclose(fenchel.load(tmp_path / "fit").predict(new), fit.predict(new))


def test_a_range_that_reaches_far_points_has_one_mesh():
    rng = np.random.default_rng(1)
    P = np.vstack([rng.uniform(0.0, 1.0, (40, 2)), rng.uniform(0.0, 1.0, (40, 2)) + np.array([4.0, 0.0])])
    y = np.sin(P[:, 0] / 2.0) * 2.0 + 0.1 * rng.normal(size=80)
    with pytest.warns(UserWarning, match="40 rows lie"):
        (term,) = fenchel.fit("y ~ matern(x, z)", pd.DataFrame({"x": P[:, 0], "z": P[:, 1], "y": y})).model.sum.effects
    assert not term.mesh.parts
    assert np.ptp(term.mesh.nodes, axis=0).max() > 5.0


def test_coordinates_in_two_units_and_around_the_globe_have_remarks():
    data = _field_with_a_far_row(None)
    with pytest.warns(UserWarning, match=r"x spans 9.83e\+03 and z 9.92, but one range is learned for both"):
        fenchel.Model("y ~ matern(x, z)", data.assign(x=1000 * data.x))
    fenchel.Model("y ~ vecchia(x, z)", data.assign(x=1000 * data.x))  # a range each
    degrees = pd.DataFrame({"lon": 36.0 * data.x - 180.0, "lat": 12.0 * data.z - 60.0, "y": data.y})
    for word in ("matern(lon, lat)", "gp(lon, lat, isotropic=True)"):
        with pytest.warns(UserWarning, match=r"look like degrees and span 35\d of them"):
            fenchel.Model(f"y ~ {word}", degrees)


def test_a_field_without_noise_beside_it_has_a_coarser_mesh():
    """100 binomial sites of a short range, beside the same model with the Matern covariance itself."""
    rng = np.random.default_rng(0)
    P = rng.uniform(0.0, 10.0, (100, 2))
    f = np.linalg.cholesky(matern(P, P, 1.0, 1) + 1e-8 * np.eye(100)) @ rng.normal(size=100)
    hits = rng.binomial(20, 1 / (1 + np.exp(-f)))
    data = pd.DataFrame({"x": P[:, 0], "z": P[:, 1], "y": hits, "n": 20})
    fit = fenchel.fit("y ~ matern(x, z)", data, family="binomial", trials="n")
    (term,) = fit.model.sum.effects
    assert term.n_latents < 4000
    sd, reach = np.exp(fit.theta)
    level = np.log((hits.sum() + 0.5) / (2000 - hits.sum() + 0.5))
    S = sd**2 * matern(P, P, reach, 1) + 100.0
    exact = fenchel.infer(fit.found.likelihood, DenseCovariance(S, mean=np.full(100, level)), hits).posterior
    link = fit.predict(data, kind="link", interval=0.95)
    off = (link["mean"] - exact.mean) / exact.sd
    assert np.sqrt(np.mean(off**2)) < 0.06
    assert np.abs(off).max() < 0.3
    np.testing.assert_allclose(link["sd"], exact.sd, rtol=0.15)
    own = fenchel.Model("y ~ matern(x, z, nu=1) + (1|row)", data.assign(row=np.arange(100)), "binomial", trials="n")
    table = own.table(own.frame)
    finer = own.sum.settled(np.log([1.0, 1.0, 1.0]), table, noise=False)  # groups of a row each are noise
    assert finer.effects[0].mesh.edge == pytest.approx(1.0 / 12.0, rel=0.02)


def test_a_second_fit_leaves_the_first_as_it_was(monkeypatch):
    """Another evidence may end at ranges that ask for other neighbours, or another mesh."""
    data = _field_with_a_far_row(None)
    model = fenchel.Model("y ~ vecchia(x, z)", data)
    monkeypatch.setattr("fenchel.terms.processes._MOVED", 1e9)
    first = model.fit()
    before = first.predict(data.iloc[:5])
    monkeypatch.setattr("fenchel.terms.processes._MOVED", 1e-9)
    second = model.fit()
    assert second.model.sum.effects[0].final
    np.testing.assert_array_equal(first.predict(data.iloc[:5]), before)
