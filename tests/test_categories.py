"""Columns of levels: their kernels, data frames with them, and levels that were never seen.

Witnesses: scikit-learn's contract of a kernel, covariances written out, a mixed model, dummy columns.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import fenchel
from fenchel.category_kernels import Exchangeable, LevelEffect, OnColumns
from fenchel.cross_kernels import cross, cross_slopes
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.kernels import contract, diagonal, evaluate, is_covariance

RNG = np.random.default_rng(0)
CODES = np.column_stack([RNG.normal(size=30), RNG.integers(0, 3, 30), RNG.integers(0, 4, 30), RNG.normal(size=30)])
G, XS = RNG.choice(list("abcdef"), 120), RNG.uniform(-2.0, 2.0, 120)
EFFECTS = dict(zip("abcdef", [-0.9, 0.4, 1.1, -0.2, 0.7, -1.3], strict=True))
Y = np.sin(2.0 * XS) + np.array([EFFECTS[g] for g in G]) + 0.1 * RNG.normal(size=120)
FRAME = pd.DataFrame({"x": XS, "g": pd.Categorical(G)})
KERNELS = {
    "one share": Exchangeable(0.3),
    "shares": Exchangeable([0.3, 0.9]),
    "fixed share": Exchangeable(0.3, "fixed"),
    "nothing in common": Exchangeable([1.0, 0.5]),
    "effect": LevelEffect(2.0),
    "fixed effect": LevelEffect(2.0, "fixed"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_keep_scikit_learns_contract(name):
    kernel = OnColumns(KERNELS[name], [1, 2])
    K, tensor = kernel(CODES, eval_gradient=True)
    same = CODES[:, None, 1:3] == CODES[None, :, 1:3]
    if "effect" in name:
        np.testing.assert_array_equal(K, 2.0 * same.all(axis=2))
    else:
        np.testing.assert_allclose(K, np.where(same, 1.0, 1.0 - KERNELS[name].shares(2)).prod(axis=2))
    assert np.linalg.eigvalsh(K).min() > -1e-12
    assert is_covariance(kernel, 4)
    assert kernel.is_stationary()
    np.testing.assert_allclose(kernel.diag(CODES), np.diag(K))
    np.testing.assert_allclose(kernel(CODES, CODES[:4]), K[:, :4])
    assert tensor.shape == (30, 30, kernel.n_dims)
    assert kernel.bounds.shape == (kernel.n_dims, 2) or kernel.n_dims == 0
    assert clone(kernel) == kernel == kernel.clone_with_theta(kernel.theta)
    assert eval(repr(kernel))(CODES) == pytest.approx(K, abs=1e-3)
    for i in range(kernel.n_dims):
        step = np.zeros(kernel.n_dims)
        step[i] = 1e-6
        below = kernel.clone_with_theta(kernel.theta - step)(CODES)
        farther = kernel.clone_with_theta(kernel.theta - 2 * step)(CODES)
        slope = (3.0 * K - 4.0 * below + farther) / 2e-6  # one-sided: a share ends at 1
        np.testing.assert_allclose(tensor[:, :, i], slope, atol=1e-7)


def test_a_power_of_an_effect_in_scikit_learn():
    """``Exponentiation`` writes into the slopes of its kernel."""
    K, tensor = (LevelEffect(2.0) ** 2)(CODES[:, 1:2], eval_gradient=True)
    same = CODES[:, 1:2] == CODES[:, 1]
    np.testing.assert_array_equal(K, 4.0 * same)
    np.testing.assert_array_equal(tensor[:, :, 0], 8.0 * same)


def test_small_sets_side_by_side():
    kernel = OnColumns(RBF([1.0, 2.0]), [3, 0]) * OnColumns(Exchangeable([0.5, 0.9]), [1, 2])
    kernel = kernel + OnColumns(LevelEffect(1.5), [1])
    A, B = CODES[:12].reshape(3, 4, 4), CODES[12:27].reshape(3, 5, 4)
    T = np.random.default_rng(1).normal(size=(3, 4, 5))
    np.testing.assert_allclose(cross(kernel, A, B), [kernel(a, b) for a, b in zip(A, B, strict=True)])
    each = [cross_slopes(kernel, *parts) for parts in zip(A, B, T, strict=True)]
    np.testing.assert_allclose(cross_slopes(kernel, A, B, T), np.sum(each, axis=0), atol=1e-12)


def test_composed_kernels_are_evaluated_and_contracted():
    kernel = OnColumns(2.0 * RBF([1.0, 2.0]), [0, 3]) * OnColumns(Exchangeable([0.5, 1.0]), [1, 2])
    kernel = kernel + OnColumns(LevelEffect(1.5), [1]) + WhiteKernel(0.1)
    K, tensor = kernel(CODES, eval_gradient=True)
    np.testing.assert_allclose(evaluate(kernel, CODES), K)
    np.testing.assert_allclose(evaluate(kernel, CODES[:5], CODES), K[:5] - 0.1 * np.eye(5, 30))
    np.testing.assert_allclose(diagonal(kernel, CODES), np.diag(K))
    T = RNG.normal(size=(30, 30))
    T = T + T.T
    np.testing.assert_allclose(contract(kernel, CODES, T), np.einsum("ij,ijp->p", T, tensor), atol=1e-10)
    with pytest.raises(ValueError, match=r"own_share = 1\.5 and 2 columns; expected shares between 0 and 1"):
        Exchangeable(1.5)(CODES[:, 1:3])


@pytest.mark.parametrize("approximation", [None, "inducing"])
def test_a_frame_with_levels(approximation):
    model = GaussianProcessRegressor(approximation=approximation).fit(FRAME, Y)
    assert model.converged_
    effect = model.kernel_.k2.kernel.variance
    assert 0.3 < effect / np.var(list(EFFECTS.values())) < 3.0
    new = pd.DataFrame({"x": np.zeros(3), "g": ["a", "new", "newer"]})
    mean, sd = model.predict(new, return_std=True)
    assert mean[0] == pytest.approx(EFFECTS["a"], abs=0.15)
    assert mean[1] == pytest.approx(mean[2])  # neither is a reference
    assert abs(mean[1] - np.mean(list(EFFECTS.values()))) < 0.3
    assert sd[1] > 4.0 * sd[0]
    assert sd[1] ** 2 > effect
    joint = model.predict(pd.DataFrame({"x": [0.0, 0.0, 0.0], "g": ["new", "new", "other"]}), return_cov=True)[1]
    noise = model.likelihood_.variance
    assert joint[0, 1] == pytest.approx(joint[0, 0] - noise, rel=1e-3)  # one new level
    assert joint[0, 2] < 0.5 * joint[0, 1]


def test_the_default_kernel_written_out():
    """By the covariance: sin for all levels, a function and an intercept of each."""
    model = GaussianProcessRegressor().fit(FRAME, Y)
    common, effect, noise = model.kernel_.k1, model.kernel_.k2.kernel.variance, model.likelihood_.variance
    numbers, share = common.k1.kernel, common.k2.kernel.own_share
    same = G[:, None] == G[None, :]
    x = XS[:, None]
    K = numbers(x) * np.where(same, 1.0, 1.0 - share) + effect * same
    C = K + 10.0 * Y.var() + noise * np.eye(120)
    new = np.array([[0.5]])
    cross = numbers(new, x) * np.where(G == "b", 1.0, 1.0 - share) + effect * (G == "b") + 10.0 * Y.var()
    wanted = Y.mean() + cross @ np.linalg.solve(C, Y - Y.mean())
    assert model.predict(pd.DataFrame({"x": [0.5], "g": ["b"]}))[0] == pytest.approx(wanted[0], abs=1e-6)


def test_which_columns_have_levels():
    frame = FRAME.assign(t=RNG.choice(["u", "v"], 120), b=XS > 0.3)
    held = {"kernel": 1.0 * RBF(1.0), "likelihood": fenchel.Gaussian(0.1), "optimizer": None}
    assert GaussianProcessRegressor(**held).fit(frame, Y).kernel_.k1.k1.k2.columns == [1, 2]  # booleans are 0 and 1
    numbers = GaussianProcessRegressor(**held).fit(frame[["x", "b"]], Y)
    assert numbers.elbo_ == GaussianProcessRegressor(**held).fit(frame[["x", "b"]].astype(float), Y).elbo_
    by_type = GaussianProcessRegressor(**held).fit(frame.astype({"b": "category"}), Y)
    assert by_type.kernel_.k1.k1.k1.k2.columns == [1, 2, 3]
    codes = by_type.X_train_
    for named in (["g", "t", "b"], [1, 2, 3], [False, True, True, True]):
        other = GaussianProcessRegressor(categorical_features=named, **held).fit(frame, Y)
        assert other.elbo_ == by_type.elbo_
    for table in (codes, codes.tolist()):
        as_array = GaussianProcessRegressor(categorical_features=[1, 2, 3], **held).fit(table, Y)
        assert as_array.elbo_ == by_type.elbo_
    objects = GaussianProcessRegressor(categorical_features=[1], **held).fit(FRAME.to_numpy(dtype=object), Y)
    assert objects.elbo_ == GaussianProcessRegressor(**held).fit(FRAME, Y).elbo_
    plain = GaussianProcessRegressor(categorical_features=None, **held).fit(frame[["x", "b"]], Y)
    assert plain.kernel_ == held["kernel"]
    own = GaussianProcessRegressor(
        OnColumns(RBF(1.0), [0]) + OnColumns(LevelEffect(), [1]), likelihood=fenchel.Gaussian(0.1), optimizer=None
    )
    assert own.fit(FRAME, Y).kernel_ == own.kernel


def test_labels_counts_and_levels_alone():
    counts = GaussianProcessPoissonRegressor().fit(FRAME[["g"]], RNG.poisson(np.exp(Y)))
    assert type(counts.kernel_.kernel) is LevelEffect
    seen, new = counts.predict(pd.DataFrame({"g": ["c", "?"]}), return_std=True)[1]
    assert new > seen > 0.0
    two = FRAME[["g"]].assign(h=RNG.choice(["u", "v"], 120))
    labels = GaussianProcessClassifier(mean="linear", optimizer=None).fit(two, Y > 0.0)
    assert (labels.coef_ == 0.0).all()
    classes = GaussianProcessClassifier(1.0 * RBF(1.0), kernel_per_class=True, optimizer=None)
    classes.fit(FRAME, np.digitize(Y, [-0.5, 0.5]))
    assert len(classes.kernel_.kernels) == 3
    assert classes.predict_proba(FRAME[:4]).shape == (4, 3)


def test_levels_that_are_numbers_are_read_once():
    held = {"kernel": 1.0 * RBF(1.0), "likelihood": fenchel.Gaussian(0.1), "optimizer": None}
    numbers = np.column_stack([XS, [5.0 + 2.0 * "abcdef".index(g) for g in G]])
    model = GaussianProcessRegressor(categorical_features=[1], **held).fit(numbers, Y)
    same = GaussianProcessRegressor(**held).fit(FRAME, Y)
    new, as_text = np.array([[0.1, 7.0], [0.2, 99.0]]), pd.DataFrame({"x": [0.1, 0.2], "g": ["b", "new"]})
    for method in ("predict", "predict_quantiles", "latent_mean_and_variance"):
        np.testing.assert_array_equal(getattr(model, method)(new), getattr(same, method)(as_text))
    np.testing.assert_array_equal(model.sample_y(new, 3), same.sample_y(as_text, 3))
    assert model.score(numbers, Y) == same.score(FRAME, Y)
    partitions = pytest.importorskip("dask.dataframe").from_pandas(FRAME.astype({"g": object}), npartitions=3)
    np.testing.assert_allclose(same.predict(partitions).compute(), same.predict(FRAME), rtol=1e-10)


def test_levels_are_found_by_the_names_of_columns():
    frame = FRAME.assign(t=np.where(XS > 0.0, "a", "b"))
    model = GaussianProcessRegressor(1.0 * RBF(1.0), fenchel.Gaussian(0.1), optimizer=None).fit(frame, Y)
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(frame[["x", "t", "g"]])
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(frame[["g", "x", "t"]])


def test_names_of_theta_are_those_of_the_kernel_in_any_units():
    plain, scaled = (GaussianProcessRegressor(1.0 * RBF(1.0), normalize_y=unit).fit(FRAME, Y) for unit in (False, True))
    assert plain.theta_names_ == scaled.theta_names_
    assert len(scaled.theta_names_) == scaled.theta_.size


def test_a_warm_start_needs_columns_of_the_same_kind():
    model = GaussianProcessRegressor(1.0 * RBF(1.0), warm_start=True).fit(FRAME[["x"]].assign(g=0.0), Y)
    with pytest.raises(ValueError, match=r"warm_start=True, and kernel_ = .* of other classes or columns of levels"):
        model.fit(FRAME, Y)
    again = GaussianProcessRegressor(1.0 * RBF(1.0), warm_start=True).fit(FRAME, Y)
    elbo = again.elbo_
    assert again.fit(FRAME, Y).elbo_ == pytest.approx(elbo, abs=1e-4)


def test_models_with_levels_on_disk(tmp_path):
    model = GaussianProcessRegressor().fit(FRAME, Y)
    own = GaussianProcessRegressor(OnColumns(RBF(1.0), [0]) + OnColumns(LevelEffect(), [1])).fit(FRAME, Y)
    new = pd.DataFrame({"x": [0.1, 0.2], "g": ["a", "new"]})
    for i, one in enumerate((model, own)):
        one.save(tmp_path / str(i))
        np.testing.assert_array_equal(fenchel.load(tmp_path / str(i)).predict(new), one.predict(new))


@pytest.mark.parametrize(
    ("given", "frame", "said"),
    [
        ("from_dtype", FRAME.to_numpy(dtype=object), r"X\[:, 1\] holds text"),
        ("from_dtype", FRAME.assign(g=FRAME.g.where(FRAME.x > -1.9)), r"X\['g'\] has no level in row \d+"),
        ("auto", FRAME, "categorical_features = 'auto' is not known; expected 'from_dtype'"),
        (["q"], FRAME, "categorical_features has 'q', which no column is called"),
        ([7], FRAME, "categorical_features has 7, and X 2 columns"),
        ([True], FRAME, "categorical_features is a mask of 1 for 2 columns"),
    ],
)
def test_what_is_refused(given, frame, said):
    with pytest.raises(ValueError, match=said):
        GaussianProcessRegressor(categorical_features=given).fit(frame, Y)


@pytest.mark.parametrize("columns", [[True, False], ["x"], [2], [-1], [0.0]])
def test_columns_of_a_kernel_are_numbers(columns):
    with pytest.raises(ValueError, match=r"OnColumns: columns = .* of 2; expected numbers of columns"):
        GaussianProcessRegressor(OnColumns(RBF(1.0), columns)).fit(CODES[:, :2], Y[:30])


def test_levels_of_another_kind_are_not_new_ones():
    model = GaussianProcessRegressor(1.0 * RBF(1.0), optimizer=None, likelihood=fenchel.Gaussian(0.1)).fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"X\['g'\] holds 0.0, and its levels in fit were \['a', 'b', 'c'\]"):
        model.predict(pd.DataFrame(model.X_train_, columns=["x", "g"]).assign(g=0.0))


def test_what_levels_do_not_go_with():
    with pytest.raises(ValueError, match="several outputs and columns of levels"):
        GaussianProcessRegressor().fit(FRAME, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match="n_inducing is an array, and X has columns of levels"):
        GaussianProcessRegressor(approximation="inducing", n_inducing=np.zeros((3, 2))).fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"kernel = 1.* RBF.* every column of X holds levels; expected kernel=None"):
        GaussianProcessRegressor(1.0 * RBF(1.0)).fit(FRAME[["g"]], Y)
    for X, kernel in ((FRAME, None), (FRAME[["g"]], None), (CODES[:, [0, 3]], OnColumns(RBF(1.0), [1]))):
        with pytest.raises(ValueError, match='"neighbours" with columns of levels or a kernel of some columns'):
            GaussianProcessRegressor(kernel, approximation="neighbours").fit(X, Y[: len(X)])
