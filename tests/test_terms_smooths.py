"""Smooths: bases against scipy's splines, fits against smoothing splines and penalised least squares written out."""

import numpy as np
import pytest
from scipy.interpolate import make_interp_spline, make_smoothing_spline

import fenchel
from fenchel.hyperparameters import learn
from fenchel.terms import Covariate, DataTable, Smooth, SumOfTerms, Tensor, TensorInteraction
from fenchel.terms.bases import CubicRegression, CyclicCubic, PSpline, ThinPlate

RNG = np.random.default_rng(6)
N = 80
ROWS = {
    "x": RNG.uniform(10.0, 40.0, N),
    "z": RNG.uniform(-1.0, 1.0, N),
    "f": np.array(["low", "mid", "high"])[RNG.integers(0, 3, N)],
}
TABLE = DataTable("here", ROWS)
Y = np.sin(ROWS["x"] / 4) + 0.3 * RNG.normal(size=N)
FINE = np.linspace(0.0, 1.0, 20001)


def fitted(term, y, table=TABLE, noise=0.1, theta=None, others=(), fixed_variance=1e6):
    """The posterior mean and variance of eta at the rows of a table, at given sds."""
    model = SumOfTerms([term, *others], table, fixed_variance=fixed_variance)
    family = model.family()
    theta = family.theta if theta is None else np.asarray(theta)
    sol = fenchel.infer(fenchel.Gaussian(noise), family.at(theta), y, tol=1e-13)

    def predict(new):
        return sol.posterior.predict(model.new_rows(theta, DataTable("here", new)))

    return model, sol, predict


# -- bases -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["natural", "periodic"])
def test_cubic_splines_are_scipys_and_the_penalty_is_their_curvature(kind):
    u = np.random.default_rng(0).uniform(0.0, 1.0, (50, 1))
    u[0], u[1] = 0.0, 1.0
    basis = (CubicRegression if kind == "natural" else CyclicCubic)(u, 9)
    beta = np.random.default_rng(1).normal(size=basis.S.shape[0])
    values = beta if kind == "natural" else np.r_[beta, beta[0]]
    spline = make_interp_spline(basis.spline.x, values, bc_type=kind)  # by B-splines
    np.testing.assert_allclose(basis(FINE[:-1, None]) @ beta, spline(FINE[:-1]), atol=1e-10)
    assert beta @ basis.S @ beta == pytest.approx(np.trapezoid(spline(FINE, 2) ** 2, FINE), rel=1e-6)
    out = np.array([-0.7, 1.4])
    if kind == "natural":
        line = [spline(0.0) - 0.7 * spline(0.0, 1), spline(1.0) + 0.4 * spline(1.0, 1)]
        np.testing.assert_allclose(basis(out[:, None]) @ beta, line, atol=1e-9)
    else:
        np.testing.assert_allclose(basis(out[:, None]) @ beta, spline(np.array([0.3, 0.4])), atol=1e-9)


def test_p_splines_are_straight_where_nothing_is_penalised_and_beyond():
    basis = PSpline(np.zeros((0, 1)), 8)
    values, vectors = basis.eigen()
    assert (values == 0.0).sum() == 2
    u = np.linspace(-1.0, 2.0, 31)[:, None]
    free = basis(u) @ vectors[:, values == 0.0]
    np.testing.assert_allclose(np.diff(free, n=2, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(basis(u).sum(axis=1), 1.0)
    beyond = basis(np.array([[1.0], [1.5], [2.0]])) @ np.random.default_rng(0).normal(size=8)
    assert beyond[2] - beyond[1] == pytest.approx(beyond[1] - beyond[0])


@pytest.mark.parametrize("d", [1, 2])
def test_thin_plates_have_a_penalty_and_vanish_on_planes(d):
    u = np.random.default_rng(2).random((40, d))
    basis = ThinPlate(u, 12)
    assert basis.S.shape == (12 - d - 1, 12 - d - 1)
    assert np.linalg.eigvalsh(basis.S).min() > 0.0
    plane = np.hstack([np.ones((40, 1)), basis.centres])
    np.testing.assert_allclose(plane.T @ basis.map, 0.0, atol=1e-10)
    if d == 1:  # the penalty is the integral of f''^2
        delta = np.random.default_rng(3).normal(size=10)
        wide = np.linspace(-0.2, 1.2, 40001)
        f2 = np.gradient(np.gradient(basis(wide[:, None]) @ delta, wide), wide)
        assert delta @ basis.S @ delta == pytest.approx(np.trapezoid(f2**2, wide), rel=1e-3)


# -- fits ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bs", ["cr", "tp"])
def test_with_a_knot_a_row_it_is_the_smoothing_spline(bs):
    x = np.sort(ROWS["x"])[::2]
    y, table = np.cos(x / 3) + 0.1 * np.random.default_rng(1).normal(size=40), DataTable("here", {"x": x})
    model, sol, predict = fitted(Smooth("x", bs=bs, k=40), y, table)
    term = model.effects[0]
    sd = np.exp(term.hyperparameters[0].start)
    lam = 0.1 * term.rates[0, 0] / sd**2 * np.ptp(x) ** 3
    witness = make_smoothing_spline(x, y, lam=lam)
    np.testing.assert_allclose(sol.posterior.mean, witness(x), atol=1e-5)
    new = np.linspace(x[0], x[-1], 33)
    np.testing.assert_allclose(predict({"x": new})[0], witness(new), atol=1e-5)
    line = predict({"x": x[-1] + np.array([0.0, 5.0, 10.0])})[0]
    assert line[2] - line[1] == pytest.approx(line[1] - line[0], abs=1e-8)


@pytest.mark.parametrize("bs", ["cr", "ps", "cc", "tp"])
def test_the_sd_is_the_typical_size_over_the_rows_and_the_line_is_apart(bs):
    term = Smooth("x", bs=bs, k=9).read(TABLE, 2.0)
    theta = np.array([np.log(0.7)])
    Z = term.rows(TABLE).design.toarray()
    variance = np.diag(Z @ np.linalg.inv(term.precision(theta)[0].toarray()) @ Z.T)
    assert np.sqrt(variance.mean()) == pytest.approx(0.7)
    np.testing.assert_allclose(Z.sum(axis=0), 0.0, atol=1e-9 * np.abs(Z).max())
    if bs != "cc":
        np.testing.assert_allclose((ROWS["x"] - ROWS["x"].mean()) @ Z, 0.0, atol=1e-7 * np.abs(Z).max())
        np.testing.assert_allclose(term.rows(TABLE).fixed[:, 0], ROWS["x"] - ROWS["x"].mean())
    assert term.readable(theta) == [("sd", pytest.approx(0.7))]


def test_a_cyclic_smooth_meets_itself():
    hour = np.random.default_rng(0).uniform(0.0, 24.0, 200)
    y = np.sin(2 * np.pi * hour / 24) + 0.1 * np.random.default_rng(1).normal(size=200)
    _, _, predict = fitted(Smooth("hour", bs="cc", k=8, period=(0, 24)), y, DataTable("here", {"hour": hour}), 0.01)
    mean, _ = predict({"hour": np.array([0.0, 24.0, 3.0, 27.0])})
    assert mean[0] == pytest.approx(mean[1], abs=1e-10)
    assert mean[2] == pytest.approx(mean[3], abs=1e-10)
    assert mean[2] == pytest.approx(np.sin(np.pi / 4), abs=0.1)


@pytest.mark.parametrize("bs", [("cr", "cr"), ("ps", "cr"), ("cr", "cc")])
def test_a_tensor_product_is_penalised_least_squares(bs):
    term, theta = Tensor("x", "z", bs=bs, k=(6, 5)), np.array([0.3, -0.2])
    model, sol, predict = fitted(term, Y, noise=0.2, theta=theta)
    read = model.effects[0]
    u = read._units(np.stack([ROWS["x"], ROWS["z"]], axis=1))
    A, B = (basis(u[:, [j]]) for j, basis in enumerate(read.bases))
    X = (A[:, :, None] * B[:, None, :]).reshape(N, -1)
    values = np.stack([a.ravel() for a in np.meshgrid(*(b.eigen()[0] for b in read.bases), indexing="ij")])[
        :, read.keep
    ]
    c = [np.nanmax(np.where(v > 0, r / np.where(v > 0, v, 1), np.nan)) for r, v in zip(read.rates, values, strict=True)]
    SA, SB = read.bases[0].S, read.bases[1].S
    S = c[0] * np.exp(-0.6) * np.kron(SA, np.eye(len(SB))) + c[1] * np.exp(0.4) * np.kron(np.eye(len(SA)), SB)
    beta = np.linalg.lstsq(X.T @ X / 0.2 + S, X.T @ Y / 0.2, rcond=None)[0]
    np.testing.assert_allclose(sol.posterior.mean, X @ beta, atol=1e-5)
    new = {"x": np.array([5.0, 20.0, 50.0]), "z": np.array([0.3, -0.5, 0.1])}
    v = read._units(np.stack([new["x"], new["z"]], axis=1))
    A, B = (basis(v[:, [j]]) for j, basis in enumerate(read.bases))
    np.testing.assert_allclose(predict(new)[0], (A[:, :, None] * B[:, None, :]).reshape(3, -1) @ beta, atol=1e-4)


def test_a_curve_for_each_level():
    """Of a factor, with the factor itself: each level as if it were fitted alone, but for what Z is centred by."""
    terms = Smooth("x", k=7, by="f"), [Covariate("f")]
    model, sol, _ = fitted(*terms[:1], Y, others=terms[1])
    assert [h.name for h in model.effects[0].hyperparameters] == ["sd[high]", "sd[low]", "sd[mid]"]
    assert model.fixed_names[-1] == "s(x) by f (slope)[mid]"
    one = ROWS["f"] == "low"
    read = Smooth("x", k=7).read(TABLE, 1.0)
    Z = np.hstack([read.rows(TABLE).design.toarray(), np.ones((N, 1)), read.rows(TABLE).fixed])[one]
    k = 1 / np.exp(2 * read.hyperparameters[0].start)
    P = np.diag(np.r_[k * read.rates[0], 1e-9, 1e-9])
    np.testing.assert_allclose(
        sol.posterior.mean[one], Z @ np.linalg.solve(Z.T @ Z / 0.1 + P, Z.T @ Y[one] / 0.1), atol=1e-4
    )
    shared = Smooth("x", k=7, by="f", shared=True).read(TABLE, 1.0)
    assert [h.name for h in shared.hyperparameters] == ["sd"]
    labels, rows = shared.shown()
    assert labels[50][0] == "low"
    assert rows.design.shape == (150, 15)
    with pytest.raises(ValueError, match=r"here: X\[0, 'f'\] = 'huge' was not seen in fit"):
        shared.rows(DataTable("here", {"x": [12.0], "f": ["huge"]}), new=True)


def test_numbers_multiply_a_smooth():
    term, plain = Smooth("x", k=7, by="z").read(TABLE, 1.0), Smooth("x", k=7).read(TABLE, 1.0)
    one, other = term.rows(TABLE), plain.rows(TABLE)
    np.testing.assert_allclose(one.design.toarray(), ROWS["z"][:, None] * other.design.toarray())
    np.testing.assert_allclose(one.fixed, ROWS["z"][:, None] * np.hstack([np.ones((N, 1)), other.fixed]))
    assert term.fixed_names == ["s(x) by z (level)", "s(x) by z (slope)"]


def test_fewer_values_than_functions():
    """The basis has as many functions as there are values; it is said where k was asked for."""
    years = DataTable("here", {"t": np.repeat(np.arange(2000.0, 2006.0), 4), "z": np.tile([0.0, 1.0, 2.0, 5.0], 6)})
    for bs, functions in (("cr", 6), ("tp", 6), ("cc", 6), ("ps", 9)):
        model = SumOfTerms([Smooth("t", bs=bs, k=9)], years)
        assert model.effects[0].n_latents == functions - 2  # the level and the line, or around a period its end
        said = [] if bs == "ps" else [f"s(t) has 6 different values: k is {functions}, not 9"]
        assert model.complaints() == said
    assert SumOfTerms([Smooth("t")], years).complaints() == []
    assert SumOfTerms([Tensor("t", "z", k=5)], years).complaints() == [
        "z in te(t, z) has 4 different values: k is 4, not 5"
    ]
    y = np.sin(years.column("t").numbers())
    _, sol, _ = fitted(Smooth("t"), y, years, noise=1e-6, theta=[3.0])
    np.testing.assert_allclose(sol.posterior.mean, y, atol=1e-4)  # a function for each value


def test_a_thin_plate_of_two_columns_in_one_unit():
    """Against the kriging equations of a thin plate spline, a knot a row."""
    X = np.stack([ROWS["x"], 4 * ROWS["z"]], axis=1)[:40]
    table = DataTable("here", {"x": X[:, 0], "z": X[:, 1]})
    model, sol, predict = fitted(Smooth("x", "z", k=40, isotropic=True), Y[:40], table, noise=0.1)
    term = model.effects[0]
    unit = np.ptp(X, axis=0).max()
    u, new = X / unit, np.array([[15.0, 1.0], [30.0, -3.0]])
    radial = lambda r: r**2 * np.log(np.where(r > 0, r, 1.0)) / (8 * np.pi)
    E = radial(np.linalg.norm(u[:, None] - u[None], axis=2))
    T = np.hstack([np.ones((40, 1)), u])
    lam = 0.1 * term.rates[0, 0] / np.exp(2 * term.hyperparameters[0].start)
    system = np.block([[E + lam * np.eye(40), T], [T.T, np.zeros((3, 3))]])
    weights = np.linalg.solve(system, np.r_[Y[:40], np.zeros(3)])
    v = new / unit
    at = np.hstack([radial(np.linalg.norm(v[:, None] - u[None], axis=2)), np.ones((2, 1)), v])
    np.testing.assert_allclose(predict({"x": new[:, 0], "z": new[:, 1]})[0], at @ weights, atol=1e-4)
    np.testing.assert_allclose(sol.posterior.mean, np.hstack([E, T]) @ weights, atol=1e-4)
    apart = Smooth("x", "z", k=40).read(table, 1.0)
    assert apart.unit.tolist() == pytest.approx(np.ptp(X, axis=0))
    assert [len(set(axis)) for axis in zip(*term.shown()[0], strict=True)] == [15, 15]
    assert max(z for _, z in term.shown()[0]) == pytest.approx(X[:, 1].max())


@pytest.mark.parametrize("bs", ["cr", "ps", "cc"])
def test_an_interaction_has_no_curves_of_its_own(bs):
    """Over a full grid of rows the surface sums to zero along each column."""
    x, z = (a.ravel() for a in np.meshgrid(np.linspace(0.0, 3.0, 9), np.linspace(-1.0, 1.0, 8), indexing="ij"))
    table = DataTable("here", {"x": x, "z": z})
    term = TensorInteraction("x", "z", bs=bs, k=5).read(table, 1.0)
    rows = term.rows(table)
    every = np.hstack([rows.design.toarray(), rows.fixed]).reshape(9, 8, -1)
    np.testing.assert_allclose(every.sum(axis=0), 0.0, atol=1e-9 * np.abs(every).max())
    np.testing.assert_allclose(every.sum(axis=1), 0.0, atol=1e-9 * np.abs(every).max())
    assert term.name == "ti(x, z)"
    assert term.fixed_names == ([] if bs == "cc" else ["ti(x, z) (x times z)"])
    assert term.n_latents + len(term.fixed_names) == (3 if bs == "cc" else 4) ** 2


@pytest.mark.parametrize("term", [Smooth("x"), Smooth("x", bs="ps"), Smooth("x", "z", bs="tp"), Tensor("x", "z")])
def test_units_and_origins_do_not_matter(term):
    counts = np.random.default_rng(0).poisson(np.exp(Y))
    found = []
    for factor, origin in ((1.0, 0.0), (1e3, 0.0), (1.0, 1e6)):
        table = DataTable("here", {**ROWS, "x": factor * ROWS["x"] + origin})
        model = SumOfTerms([term], table)
        found.append(learn(fenchel.Poisson(), model.family(), counts, gtol=1e-5).solution.elbo)
    np.testing.assert_allclose(found, found[0], atol=1e-6)


def test_a_curve_is_learned_and_covered():
    rng = np.random.default_rng(11)
    x = rng.uniform(0.0, 6.0, 600)
    truth = lambda t: 1.0 + np.sin(2 * t) * np.exp(-t / 6) + 0.2 * t
    y = rng.poisson(np.exp(truth(x))).astype(float)
    model = SumOfTerms([Smooth("x", k=15)], DataTable("here", {"x": x}))
    found = learn(fenchel.Poisson(), model.family(), y)
    assert found.converged
    grid = np.linspace(0.1, 5.9, 100)
    mean, variance = found.solution.posterior.predict(model.new_rows(found.theta, DataTable("here", {"x": grid})))
    inside = np.abs(mean - truth(grid)) < 1.96 * np.sqrt(variance)
    assert inside.mean() > 0.8
    assert np.abs(mean - truth(grid)).mean() < 0.06


def test_sentences():
    few = DataTable("here", {"x": [1.0, 2.0, 3.0, 3.0], "c": [1.0] * 4})
    cases = [
        (
            lambda: Smooth("x", bs="cc").read(DataTable("here", {"x": [0.0, 1.0, 1.0]}), 1.0),
            r"here: s\(x\) has 2 different values; expected at least 4 with bs='cc'. As a covariate",
        ),
        (
            lambda: Smooth("x").read(DataTable("here", {"x": [0.0, 1.0, 1.0]}), 1.0),
            r"here: s\(x\) has 2 different values; expected at least 3 with bs='cr'. As a covariate a column is a line",
        ),
        (lambda: Smooth("c", k=4).read(few, 1.0), "here: 'c' is 1 in every row; expected a column that varies"),
        (lambda: Smooth("x", bs="xx"), "Smooth: bs = 'xx' is not known; expected 'cr' or 'ps' or 'cc' or 'tp'"),
        (
            lambda: Smooth("x", "z", bs="cr"),
            r"Smooth: 2 columns with bs='cr'; expected one, or two with bs='tp'. te\(x, z\) is a surface",
        ),
        (lambda: Tensor("x"), "Tensor: 1 columns; expected two"),
        (lambda: Smooth("g", bs="re"), r"Smooth: bs = 're' is not known; .*A level for each group is \(1\|g\)"),
        (lambda: Smooth("x", k=2), "Smooth: k = 2; expected an integer >= 3"),
        (lambda: Smooth("x", period=(0, 1)), "Smooth: period = .* with bs='cr'; expected .begin, end. with bs='cc'"),
        (lambda: Tensor("x", "z", bs="tp"), "Tensor: bs = 'tp' is not known; expected 'cr' or 'ps' or 'cc'"),
        (lambda: Tensor("x", "c", k=3).read(few, 1.0), "here: 'c' is 1 in every row"),
        (lambda: Smooth("f").read(TABLE, 1.0), "here: the column 'f' holds text; expected numbers"),
    ]
    for make, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            make()


def test_a_row_far_from_the_others_is_named():
    x = ROWS["x"].copy()
    x[7] = -9999.0
    table = DataTable("here", {**ROWS, "x": x})
    for term in (Smooth("x"), Tensor("x", "z"), Smooth("x", by="f")):
        (sentence,) = (text for text in term.read(table, 1.0).remarks([]) if "far away" in text)
        assert sentence.startswith(f"{term.name}: row 7 (x = -9999) lies 33")
        assert not any("far away" in text for text in term.read(TABLE, 1.0).remarks([]))
