"""Fits of Dask collections: the in-memory fit is the witness, to 1e-8, whatever holds the rows."""

import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import fenchel
import fenchel.estimators.dask_rows as door
from fenchel.distributed import Block, linear_rows
from fenchel.distributed.row_sums import ValueCounts
from fenchel.estimators import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GaussianProcessClassifier,
)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

N, D = 400, 4
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own use of pandas


def sharp(model, *args, **rows):
    """A fit run until rounding stops it: within the usual tol means have seven digits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return type(model)(**model.get_params() | {"tol": 1e-18}).fit(*args, **rows)


@pytest.fixture(autouse=True)
def _in_turn():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def small_sample(monkeypatch):
    """A sample of 64 rows, so that partitions do the work."""
    monkeypatch.setattr(door, "_FEWEST", 64)
    monkeypatch.setattr(door, "_LARGEST", 64)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, D)) * [1.0, 2.0, 0.5, 3.0] + [0.0, 1.0, -2.0, 5.0]
    eta = ((X - X.mean(axis=0)) / X.std(axis=0)) @ [0.8, -0.5, 0.0, 0.3]
    return {
        "X": X,
        "eta": eta,
        "label": np.where(rng.random(N) < 1 / (1 + np.exp(-eta)), "yes", "no"),
        "class": rng.choice(["a", "b", "c"], N),
        "count": rng.poisson(np.exp(eta)).astype(float),
        "real": 10 + 3 * eta + rng.normal(size=N),
        "positive": np.exp(eta) * rng.gamma(2.0, 0.5, N),
        "level": np.digitize(eta + rng.logistic(size=N), [-1.0, 0.5, 1.5]).astype(float),
        "weight": rng.integers(0, 3, N).astype(float),
        "exposure": rng.gamma(2.0, 1.0, N),
    }


def assert_same(found, memory, tol=1e-8):
    """Posterior, evidence and certificate of two fits of the same problem."""
    assert found.solution_.optimal
    for name in ("coef_", "coef_std_", "intercept_", "intercept_std_", "coef_cov_", "feature_mean_", "feature_scale_"):
        np.testing.assert_allclose(getattr(found, name), getattr(memory, name), rtol=0, atol=tol, err_msg=name)
    assert abs(found.elbo_ - memory.elbo_) < tol
    gap = found.gap_ if np.isfinite(found.gap_) else 0.0
    assert 0.0 <= gap < tol
    assert found.solution_.certificate == memory.solution_.certificate
    np.testing.assert_allclose(found.theta_, memory.theta_, rtol=0, atol=tol)


def chunked(x, n=130):
    return da.from_array(x, chunks=(n, *x.shape[1:]))


# -- every likelihood and bound ----------------------------------------------------------------------
@pytest.mark.parametrize("y", ["label", "class"])
@pytest.mark.parametrize("bound", ["best", "tilted", "log-sum"])
def test_labels(data, small_sample, y, bound):
    def model(bound):
        return BayesianLogisticRegression(learn_variance=False, variance=0.7, bound=bound)

    found = sharp(model(bound), chunked(data["X"]), chunked(data[y]))
    memory = sharp(model(found.likelihood_.bound), data["X"], data[y])
    assert_same(found, memory)
    assert found.classes_.tolist() == memory.classes_.tolist()


def test_no_bound_at_all(data, small_sample):
    model = BayesianLogisticRegression(learn_variance=False, bound="exact")
    assert_same(sharp(model, chunked(data["X"]), data["label"]), sharp(model, data["X"], data["label"]))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_counts_with_exposure_and_weights(data, small_sample, fit_intercept):
    model = BayesianPoissonRegression(learn_variance=False, fit_intercept=fit_intercept)
    rows = {"exposure": data["exposure"], "sample_weight": data["weight"]}
    memory = sharp(model, data["X"], data["count"], **rows)
    found = sharp(
        model, chunked(data["X"]), chunked(data["count"], 90), **{key: chunked(x, 50) for key, x in rows.items()}
    )
    assert_same(found, memory)
    assert abs(found.mean_ - memory.mean_) < 1e-12


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        ("gaussian", "real"),
        ("student-t", "real"),
        ("laplace", "real"),
        ("logistic", "real"),
        ("negative-binomial", "count"),
        ("zero-inflated-poisson", "count"),
        ("gamma", "positive"),
        ("weibull", "positive"),
        ("ordinal", "level"),
        ("bernoulli", "label"),
        ("probit", "label"),
    ],
)
def test_any_likelihood(data, small_sample, likelihood, y):
    model = BayesianLinearRegression(likelihood=likelihood, learn_variance=False, learn_likelihood=False, variance=0.3)
    memory, found = sharp(model, data["X"], data[y]), sharp(model, chunked(data["X"]), chunked(data[y]))
    assert_same(found, memory)
    assert abs(found.scale_ - memory.scale_) < 1e-12
    np.testing.assert_allclose(found.predict(data["X"]), memory.predict(data["X"]), atol=1e-7)


def test_binomial_trials_and_censored_durations(data, small_sample):
    X, n = data["X"], np.full(N, 12.0)
    y = np.random.default_rng(0).binomial(12, 1 / (1 + np.exp(-data["eta"]))).astype(float)
    options = {"learn_variance": False, "learn_likelihood": False}
    model = BayesianLinearRegression(likelihood="binomial", **options)
    memory = sharp(model, X, y, trials=n)
    assert_same(sharp(model, chunked(X), chunked(y), trials=chunked(n)), memory)
    event = (data["positive"] < 2.0).astype(float)
    model = BayesianLinearRegression(likelihood="exponential", **options)
    memory = sharp(model, X, data["positive"], event=event)
    assert_same(sharp(model, chunked(X), data["positive"], event=chunked(event)), memory)


# -- learning -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (BayesianLogisticRegression(), "label"),
        (BayesianPoissonRegression("ard"), "count"),
        (BayesianLinearRegression(), "real"),
        (BayesianLinearRegression(likelihood="negative-binomial"), "count"),
        (BayesianLinearRegression(likelihood="ordinal"), "level"),
    ],
    ids=str,
)
def test_what_is_learned_is_a_maximum_of_the_evidence_in_memory(data, small_sample, model, y):
    """The in-memory search stops at a slope of 1e-3: its evidence is no better, and its slopes vanish at our theta."""
    memory = type(model)(**model.get_params()).fit(data["X"], data[y])
    found = type(model)(**model.get_params()).fit(chunked(data["X"]), data[y])
    assert found.converged_
    free = [i for i, name in enumerate(memory.theta_names_) if name not in memory.at_bounds_]
    flat = "negative-binomial" in str(model)  # Poisson counts put its size anywhere above some hundred
    np.testing.assert_allclose(found.theta_[free], memory.theta_[free], atol=1e9 if flat else 2e-2)
    if model.prior == "ridge":
        value, slope = memory.log_marginal_likelihood(found.theta_, eval_gradient=True)
        assert abs(value - found.elbo_) < 1e-6 * (1.0 + 100.0 * flat)
        assert np.abs(slope[free]).max() < 2e-3
        assert found.elbo_ > memory.elbo_ - 1e-5
    else:
        assert found.relevance_spread_ == memory.relevance_spread_
        again = type(model)("ard", variance=found.variance_, learn_variance=False).fit(data["X"], data[y])
        assert abs(again.elbo_ - found.elbo_) < 1e-6


# -- whatever holds the rows ----------------------------------------------------------------------------
def fixed():
    return BayesianLogisticRegression(learn_variance=False)


def test_dataframes_with_names_from_parquet(data, small_sample, tmp_path):
    frame = pd.DataFrame(data["X"], columns=["a", "b", "c", "d"])
    frame["y"] = pd.Categorical(data["label"])
    dd.from_pandas(frame, npartitions=3).to_parquet(tmp_path / "rows")
    stored = dd.read_parquet(tmp_path / "rows")
    memory, found = (
        sharp(fixed(), frame[list("abcd")], data["label"]),
        sharp(fixed(), stored[list("abcd")], stored["y"]),
    )
    assert_same(found, memory)
    assert found.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    lazy = found.predict_proba(stored[list("abcd")])
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), memory.predict_proba(frame[list("abcd")]), atol=1e-9)


def test_sparse_blocks(data, small_sample):
    X = np.where(np.abs(data["X"]) > 1.0, data["X"], 0.0)
    blocks = chunked(X).map_blocks(sp.csr_matrix)
    found, memory = sharp(fixed(), blocks, data["label"]), sharp(fixed(), sp.csr_matrix(X), data["label"])
    assert_same(found, memory)
    assert_same(found, sharp(fixed(), X, data["label"]))
    assert (found.predict(blocks).compute() == memory.predict(X)).all()


def test_unknown_sizes_unequal_and_empty_partitions(data, small_sample):
    X, y = chunked(data["X"], 57), chunked((data["label"] == "yes").astype(int), 57)
    keep = X[:, 0] > -0.2
    some = data["X"][:, 0] > -0.2
    memory = sharp(fixed(), data["X"][some], (data["label"] == "yes").astype(int)[some])
    found = sharp(fixed(), X[keep], y[keep])
    assert_same(found, memory)
    assert found.predict_proba(X[keep]).compute().shape == (some.sum(), 2)
    frame = pd.DataFrame(data["X"], columns=list("abcd")).assign(y=data["label"], part=np.arange(N) // 100)
    rows = dd.from_pandas(frame, npartitions=4)
    rows = rows[rows["part"] != 1]  # an empty partition
    some = frame["part"] != 1
    found = sharp(fixed(), rows[list("abcd")], rows["y"])
    assert_same(found, sharp(fixed(), frame.loc[some, list("abcd")], frame.loc[some, "y"]))
    assert found.predict(rows[list("abcd")]).compute().shape == (300,)


def test_delayed_blocks_memory_maps_and_plain_columns_beside(data, small_sample, tmp_path):
    np.save(tmp_path / "X.npy", data["X"])
    mapped = da.from_array(np.load(tmp_path / "X.npy", mmap_mode="r"), chunks=(150, 2))  # columns in two chunks
    memory = sharp(fixed(), data["X"], data["label"], sample_weight=data["weight"])
    assert_same(sharp(fixed(), mapped, data["label"], sample_weight=data["weight"]), memory)
    blocks = [dask.delayed(data["X"][i : i + 100]) for i in range(0, N, 100)]
    labels = [dask.delayed(data["label"][i : i + 100]) for i in range(0, N, 100)]
    weights = [dask.delayed(data["weight"][i : i + 100]) for i in range(0, N, 100)]
    assert_same(sharp(fixed(), blocks, labels, sample_weight=weights), memory)


def test_far_and_constant_columns(data, small_sample):
    X = np.column_stack([data["X"], 1e6 + data["X"][:, 0] ** 2, np.full(N, 7.0), np.zeros(N)])
    found, memory = sharp(fixed(), chunked(X), data["label"]), sharp(fixed(), X, data["label"])
    np.testing.assert_allclose(found.coef_, memory.coef_, atol=1e-8)
    np.testing.assert_allclose(found.feature_mean_, memory.feature_mean_, rtol=1e-14)
    np.testing.assert_allclose(found.feature_scale_, memory.feature_scale_, rtol=1e-10)
    assert abs(found.elbo_ - memory.elbo_) < 1e-8


def test_one_partition_gives_the_same_as_many_and_the_scheduler_does_not_matter(data, small_sample):
    one = sharp(fixed(), chunked(data["X"], N), data["label"])
    assert_same(one, sharp(fixed(), chunked(data["X"], 40), data["label"]))
    first = sharp(fixed(), chunked(data["X"], 40), data["label"])
    with dask.config.set(scheduler="threads"):
        again = sharp(fixed(), chunked(data["X"], 40), data["label"])
    assert np.array_equal(first.coef_, again.coef_)  # sums are added in one order, whoever did the work
    assert first.elbo_ == again.elbo_


# -- what travels, and how often rows are read --------------------------------------------------------------
def test_what_a_partition_sends_does_not_grow_with_its_rows():
    from fenchel.distributed.linear_rows import LinearReader, LinearTable
    from fenchel.distributed.partitions import Block
    from fenchel.distributed.row_sums import At, evaluate
    from fenchel.likelihoods import BernoulliLogit

    sizes = []
    for n in (100, 10_000):
        X = np.random.default_rng(0).normal(size=(n, D))
        block = Block(X=X, y=(X[:, 0] > 0).astype(float), weight=None)
        block.number, block.n = 0, n
        reader = LinearReader(
            LinearTable("test", tuple("abcd"), ()), (np.zeros(D), np.zeros(D), np.ones(D)), np.zeros(D, bool), True,
            BernoulliLogit("exact"),
        )  # fmt: skip
        at = At(np.zeros((D + 1, 1)), 0.1 * np.eye(D + 1)[None], np.zeros(0))
        sizes.append(len(pickle.dumps(evaluate(block, reader, (at,), False))))
    assert sizes[1] - sizes[0] < 10


def test_rows_are_read_once_a_pass(data, small_sample):
    read = []

    def block(i):
        read.append(i)
        return data["X"][100 * i : 100 * (i + 1)]

    blocks = [dask.delayed(block)(i) for i in range(4)]
    X = da.concatenate([da.from_delayed(b, (100, D), dtype=float) for b in blocks])
    found = sharp(fixed(), X, data["label"])
    assert len(read) == 4 * found.solution_.n_passes
    assert found.solution_.n_passes <= 12
    read.clear()
    lazy = found.predict_proba(X)
    assert read == []
    lazy.compute()
    assert sorted(read) == [0, 1, 2, 3]


def test_dask_is_imported_only_for_its_collections():
    code = (
        "import sys, json, numpy as np; from fenchel.estimators import BayesianLogisticRegression as B\n"
        "X = np.random.default_rng(0).normal(size=(20, 2)); B().fit(X, X[:, 0] > 0).predict(X)\n"
        "print(json.dumps([m for m in ('dask', 'distributed') if m in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == []


# -- predictions ----------------------------------------------------------------------------------------------
def test_lazy_predictions_are_those_of_memory(data):
    X, y = data["X"], data["label"]
    model = BayesianLogisticRegression().fit(X, y)  # fitted in memory, asked for partitions
    rows = chunked(X)
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function", "predict_quantiles"):
        got, want = getattr(model, name)(rows), getattr(model, name)(X)
        assert isinstance(got, da.Array)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        assert np.array_equal(got.compute(), want) if name == "predict" else np.allclose(got.compute(), want, 1e-13)
    counts = BayesianPoissonRegression().fit(X, data["count"], exposure=data["exposure"])
    got = counts.predict(rows, exposure=chunked(data["exposure"]))
    np.testing.assert_allclose(got.compute(), counts.predict(X, exposure=data["exposure"]), rtol=1e-13)
    noise = BayesianLinearRegression().fit(X, data["real"])
    mean, sd = noise.predict(rows, return_std=True)
    np.testing.assert_allclose(mean.compute(), noise.predict(X), rtol=1e-13)
    np.testing.assert_allclose(sd.compute(), noise.predict(X, return_std=True)[1], rtol=1e-13)
    with pytest.raises(ValueError, match=r"return_cov of a collection.*a table in memory"):
        noise.predict(rows, False, True)


def test_columns_of_lazy_predictions_are_checked_at_once(data):
    frame = pd.DataFrame(data["X"], columns=list("abcd"))
    plain = BayesianLogisticRegression().fit(data["X"], data["label"])
    named = BayesianLogisticRegression().fit(frame, data["label"])
    rows = dd.from_pandas(frame, npartitions=2)
    for ask, X in ((plain, chunked(data["X"][:, :3])), (plain, chunked(data["X"])[:, 0]), (named, rows[["a", "b"]])):
        with pytest.raises(ValueError, match=r"features|2D array|feature names"):
            ask.predict_proba(X)
    with pytest.raises(ValueError, match="in the same order"):
        named.predict(rows[["b", "a", "c", "d"]])


def test_scores_and_what_needs_rows(data):
    X, rows = data["X"], chunked(data["X"])
    model = BayesianLogisticRegression().fit(rows, data["label"])
    for weight in (None, data["weight"]):
        got = model.score(rows, chunked(data["label"]), sample_weight=None if weight is None else chunked(weight, 70))
        assert abs(got - model.score(X, data["label"], sample_weight=weight)) < 1e-12
    counts = BayesianPoissonRegression().fit(rows, data["count"], exposure=data["exposure"])
    want = counts.score(X, data["count"], exposure=data["exposure"])
    assert abs(counts.score(rows, data["count"], exposure=data["exposure"]) - want) < 1e-12
    assert model.log_marginal_likelihood() == model.elbo_
    with pytest.raises(ValueError, match="the rows of the fit are in Dask partitions"):
        model.log_marginal_likelihood(model.theta_)
    with pytest.raises(AttributeError, match="needs the rows of the fit"):
        model.solution_.loo()
    assert "passes over all rows" in model.solution_.summary()
    draws = model.solution_.posterior.sample_latents(4000, 0)
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(model.solution_.posterior.latent_variance), rtol=0.1)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


# -- wrong input: a sentence, in the first pass -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda d: {"X": np.where(np.arange(N)[:, None] == 210, np.nan, d["X"])},
            r"X of partition 1\[80, 0\] = nan is",
        ),
        (lambda d: {"y": np.full(N, "one")}, "y has one class only, 'one'"),
        (lambda d: {"w": -d["weight"]}, r"sample_weight of partition .\[.*\] = -"),
        (lambda d: {"w": d["weight"] / d["weight"].sum()}, "sample_weight sums to 1 over all partitions"),
        (lambda d: {"w": 0.0 * d["weight"]}, "sample_weight is 0 in every row of every partition; expected one row"),
        (lambda d: {"y": data_none(d["label"])}, "y of partition 2 has None in row"),
        (lambda d: {"y": d["label"][:-1]}, "y has 399 rows; expected 400"),
        (lambda d: {"y": d["eta"]}, "Unknown label type: continuous"),
    ],
)
def test_sentences(data, change, words):
    given = {"X": data["X"], "y": data["label"], "w": None} | change(data)
    weight = None if given["w"] is None else chunked(given["w"])
    with pytest.raises(ValueError, match=words):
        BayesianLogisticRegression().fit(chunked(given["X"]), given["y"], sample_weight=weight)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.nan}, r"X of partition 1\[80, 0\] = nan is"),
        ({"w": -1.0}, r"sample_weight of partition 1\[80\] = -1"),
        ({"e": np.inf}, r"exposure of partition 1\[80\] = inf is"),
    ],
)
def test_sentences_count_the_rows_of_a_partition_that_is_read_some_at_a_time(data, change, words, monkeypatch):
    monkeypatch.setattr(linear_rows, "_READ", 30 * D)
    given = {"X": data["X"].copy(), "w": np.ones(N), "e": np.ones(N)}
    for name, value in change.items():
        given[name][210] = value
    X, weight, exposure = (chunked(x) for x in given.values())
    with pytest.raises(ValueError, match=words):
        BayesianPoissonRegression().fit(X, chunked(data["count"]), exposure=exposure, sample_weight=weight)


def test_the_values_of_a_large_partition_are_sorted_by_halves(data, monkeypatch):
    """64 parts of 6 rows: one after the other they would be sorted with all before, 13,000 values in all."""
    monkeypatch.setattr(linear_rows, "_READ", 6 * D)
    sorted_values, plain = [], ValueCounts._counted

    def counted(self):
        sorted_values.append(len(self.at))
        return plain(self)

    monkeypatch.setattr(ValueCounts, "_counted", counted)
    block = Block({"X": data["X"][:384], "y": data["real"][:384], "weight": None})
    block.number, block.n = 0, 384
    table = linear_rows.LinearTable("mine", ("a", "b", "c", "d"), ())
    found = linear_rows.survey(block, table, (10, 20), 1000)
    np.testing.assert_array_equal(found["values"].y, np.sort(data["real"][:384]))
    assert sum(sorted_values) <= 384 * (1 + 6)


@pytest.mark.parametrize("kind", [sp.csc_array, sp.coo_array, sp.bsr_array])
def test_sparse_partitions_of_any_format(data, kind):
    X, y = sp.csr_array(np.where(data["X"] > 0.0, data["X"], 0.0)), data["label"]
    parts = [slice(i, i + 130) for i in range(0, N, 130)]
    rows, target = [dask.delayed(kind(X[some])) for some in parts], [dask.delayed(y[some]) for some in parts]
    plain = BayesianLogisticRegression().fit([dask.delayed(X[some]) for some in parts], target)
    assert BayesianLogisticRegression().fit(rows, target).elbo_ == pytest.approx(plain.elbo_, abs=1e-9)


def data_none(y):
    out = y.astype(object)
    out[300] = None
    return out


def test_more_sentences(data, tmp_path):
    X = chunked(data["X"])
    with pytest.raises(ValueError, match="approximation"):
        GaussianProcessClassifier(approximation=None).fit(X, data["label"])
    with pytest.raises(ValueError, match="checkpoint with a table in memory"):
        BayesianLogisticRegression().fit(data["X"], data["label"], checkpoint=tmp_path / "x")
    with pytest.raises(ValueError, match="in no folder that exists"):
        BayesianLogisticRegression().fit(X, data["label"], checkpoint=tmp_path / "no" / "x")
    with pytest.raises(ValueError, match="y of some partition has -1, which is negative; expected counts"):
        BayesianPoissonRegression().fit(X, data["count"] - 1.0)
    table = pd.DataFrame({"a": data["eta"], "g": data["count"]})
    rows, late = dd.from_pandas(table, npartitions=2), table["g"].set_axis(table.index + 1)
    with pytest.raises(ValueError, match=r"has nan in row 0; .* stands beside a dataframe by its index"):
        BayesianPoissonRegression().fit(rows[["a"]], dd.from_pandas(late, npartitions=2))
    with pytest.raises(ValueError, match=r"FormulaRegressor: X is a collection of Dask's; .* takes Dask dataframes"):
        fenchel.FormulaRegressor("a ~ (1|g)").fit(rows, rows["a"])
    frame = dd.from_pandas(pd.DataFrame({"a": data["label"], "b": data["eta"]}), npartitions=2)
    with pytest.raises(ValueError, match="'a'"):
        BayesianLogisticRegression().fit(frame, data["label"])
    with pytest.raises(ValueError, match="has 2 partitions and X has 4"):
        BayesianLogisticRegression().fit(X, frame["a"])
    with pytest.raises(ValueError, match="requires y to be passed"):
        BayesianLogisticRegression().fit(X, None)
