"""Factors of tables in partitions: the fit in memory is the witness."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fenchel
from fenchel.checks import Refusal
from fenchel.estimators import ProbabilisticPCA
from fenchel.factors import learning, partitions, surveying
from fenchel.factors.columns import read
from fenchel.factors.model import FactorModel
from fenchel.factors.starts import Starts

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N = 160
OPTIONS = {"strength": 1.0, "likelihood": {"count": "poisson"}, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own use of pandas


@pytest.fixture(autouse=True)
def _in_turn():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def eta():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 2)) @ rng.normal(size=(2, 6))


@pytest.fixture(scope="module")
def real(eta):
    return 3.0 + eta + np.random.default_rng(1).normal(size=eta.shape)


@pytest.fixture(scope="module")
def frame(eta, real):
    """A column of every kind, with holes."""
    rng = np.random.default_rng(2)
    out = pd.DataFrame({"real": real[:, 0], "coin": (rng.random(N) < 1 / (1 + np.exp(-eta[:, 1]))).astype(int)})
    out["count"] = rng.poisson(np.exp(0.5 * eta[:, 2]))
    out["word"] = np.array(["p", "q", "r"])[np.digitize(eta[:, 3] + rng.normal(size=N), [-1.0, 1.0])]
    levels = np.digitize(eta[:, 4] + rng.logistic(size=N), [-1.5, 0.0, 1.5])
    out["level"] = pd.Categorical.from_codes(levels, ["none", "some", "more", "most"], ordered=True)
    out["other"] = real[:, 5]
    out.loc[rng.random(N) < 0.1, "real"] = np.nan
    out.loc[rng.random(N) < 0.1, "word"] = None
    return out


def fitted(X, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ProbabilisticPCA(*args, **options).fit(X)


def assert_same(found, memory, X, tol=1e-8):
    """The columns, the evidence and the certificate; the evidence of ours in memory is what ours says it is."""
    assert [c.kind for c in found.columns_] == [c.kind for c in memory.columns_]
    assert [c.levels for c in found.columns_] == [c.levels for c in memory.columns_]
    assert [c.why for c in found.columns_] == [c.why for c in memory.columns_]
    assert found.converged_
    assert 0.0 <= found.gap_ <= 1e-8 * abs(found.elbo_)
    assert found.trace_[-1] == pytest.approx(memory.trace_[-1], rel=tol)
    assert found.elbo_ == pytest.approx(memory.elbo_, rel=10 * tol)  # the objective has the prior of the loadings too
    assert found.score_samples(X).sum() == pytest.approx(found.elbo_, rel=1e-10)


def test_complete_tables_of_real_numbers_to_the_last_digits(real):
    """Their moments say all: parameters agree, not only the evidence."""
    X = da.from_array(real, chunks=(57, 4))
    for options, close in (({"noise": "shared"}, 1e-10), ({"tol": 1e-14, "strength": 1.0}, 1e-7)):
        found, memory = fitted(X, 2, **options), fitted(real, 2, **options)
        assert_same(found, memory, real, 1e-10)
        for name in ("components_", "offset_", "noise_variance_"):  # a search ends by its value: half of its digits
            np.testing.assert_allclose(getattr(found, name), getattr(memory, name), rtol=0, atol=close)


def test_tables_with_holes(real):
    X = np.where(np.random.default_rng(3).random(real.shape) < 0.1, np.nan, real)
    found, memory = fitted(da.from_array(X, chunks=(57, 6)), 2, tol=1e-12), fitted(X, 2, tol=1e-12)
    assert_same(found, memory, X)
    np.testing.assert_allclose(found.components_, memory.components_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.transform(X), memory.transform(X), rtol=0, atol=1e-8)


@pytest.fixture(scope="module")
def of_every_kind(frame):
    with dask.config.set(scheduler="synchronous"):
        return fitted(dd.from_pandas(frame, npartitions=3), 2, **OPTIONS)


def test_tables_of_every_kind(of_every_kind, frame):
    found, memory = of_every_kind, fitted(frame, 2, **OPTIONS)
    assert_same(found, memory, frame)
    assert found.feature_names_in_.tolist() == memory.feature_names_in_.tolist()
    np.testing.assert_allclose(found.components_, memory.components_, atol=2e-3)  # where a search ends by its value
    pd.testing.assert_frame_equal(found.impute(frame.iloc[:9]), memory.impute(frame.iloc[:9]), atol=1e-2)


def test_the_evidence_is_that_in_memory(frame):
    """At any parameters, with its gradient, and what learning begins from."""
    table = read(frame, OPTIONS["likelihood"], bound="log-sum")
    rows = partitions.Partitions.of("test", X=dd.from_pandas(frame, npartitions=3))
    ours, found = surveying.read_partitions(rows, OPTIONS["likelihood"], "log-sum", 6)
    assert [repr(c.likelihood) for c in ours.columns] == [repr(c.likelihood) for c in table.columns]
    data = partitions.InPartitions(rows, partitions.Reader("test", ours), found)
    model = FactorModel(table.likelihoods, 2)
    one, other = Starts(model, table.values), Starts(model, data)
    np.testing.assert_allclose(other.alone.offset, one.alone.offset, rtol=1e-12)
    at, again = one.principal(), other.principal()
    np.testing.assert_allclose(again.loadings, at.loadings, rtol=0, atol=1e-10)
    assert np.array_equal(data.take(np.array([120, 3, 77])), table.values[[120, 3, 77]], equal_nan=True)
    mine, memory = data.evidence(model, at, None, 1e-20), model.evidence(table.values, at, None, 1e-20)
    memory = model.evidence(table.values, at, memory.start, 1e-20)
    assert mine.elbo == pytest.approx(memory.elbo, rel=1e-13)
    assert mine.start == []
    for name in ("loadings", "offset", "own", "second"):
        np.testing.assert_allclose(getattr(mine, name), getattr(memory, name), rtol=1e-8, atol=1e-8)


def test_partitions_of_any_kind(real):
    """Unequal and empty ones, sizes that are not known, sparse blocks, one block only."""
    counts = np.random.default_rng(4).poisson(np.exp(0.4 * (real - 3.0))).astype(float)
    memory = fitted(counts, 1, likelihood="poisson")
    whole = da.from_array(counts, chunks=((5, 100, 1, 54), (6,)))
    unknown = dd.from_pandas(pd.DataFrame(counts), npartitions=3).to_dask_array()
    assert np.isnan(unknown.chunks[0]).all()
    chosen = da.from_array(counts, chunks=(80, 6))
    chosen = da.concatenate([chosen, chosen[chosen[:, 0] < 0]])  # partitions without a row
    sparse = [dask.delayed(sp.csr_array)(counts[i : i + 60]) for i in range(0, N, 60)]
    for X in (whole, unknown, chosen, sparse, da.from_array(counts, chunks=(N, 6))):
        assert_same(fitted(X, 1, likelihood="poisson"), memory, counts)


def test_rows_of_new_partitions_lazily(frame, real):
    model, X = fitted(frame, 1, **OPTIONS), dd.from_pandas(frame, npartitions=3)
    z = model.transform(X)
    assert isinstance(z, da.Array)
    close = {"rtol": 0, "atol": 1e-6}  # gaps of 1e-12 a table, which rows share: a mean has half their digits
    np.testing.assert_allclose(z.compute(), model.transform(frame), **close)
    mean, cov = model.transform(X, return_cov=True)
    np.testing.assert_allclose(cov.compute(), model.transform(frame, return_cov=True)[1], **close)
    assert mean.shape[1] == 1
    np.testing.assert_allclose(model.score_samples(X).compute(), model.score_samples(frame), atol=1e-10)
    assert model.score(X) == pytest.approx(model.score(frame))
    real_model = fitted(da.from_array(real, chunks=(100, 6)), 1)
    z = real_model.transform(da.from_array(real, chunks=((0, 40, 120), (6,))))
    assert sum(z.chunks[0]) == N
    np.testing.assert_allclose(z.compute(), real_model.transform(real), rtol=0, atol=1e-10)


def test_missing_cells_are_filled_in_lazily(frame, real):
    rng = np.random.default_rng(3)
    table = frame.assign(whole=pd.array(rng.integers(0, 4, N), dtype="Int64"))
    model = fitted(table, 1, **OPTIONS)
    holes = table.mask(rng.random(table.shape) < 0.1)
    holes.loc[: N // 2, "whole"] = table["whole"]  # partitions without a hole become real numbers all the same
    assert holes.isna().any().all()
    filled = model.impute(dd.from_pandas(holes, npartitions=4))
    want, got = model.impute(holes), filled.compute()
    assert dict(filled.dtypes) == dict(got.dtypes)
    assert not got.isna().any().any()
    for name in table:
        if want[name].dtype.kind == "f":
            np.testing.assert_allclose(got[name].astype(float), want[name].astype(float), rtol=1e-6, atol=1e-6)
        else:
            assert got[name].tolist() == want[name].tolist()
    numbers = fitted(real, 1)
    missing = np.where(rng.random(real.shape) < 0.1, np.nan, real)
    filled = numbers.impute(da.from_array(missing, chunks=((0, 50, N - 50), (2, 4))))
    np.testing.assert_allclose(filled.compute(), numbers.impute(missing), rtol=0, atol=1e-8)
    with pytest.raises(Refusal, match="return_distribution of a collection of Dask's"):
        numbers.impute(da.from_array(missing), return_distribution=True)
    with pytest.raises(ValueError, match="features"):
        numbers.impute(da.from_array(missing[:, :3]))


def test_a_long_table_is_learned_on_a_sample_first(frame, monkeypatch):
    monkeypatch.setattr(learning, "_LONG", 100)
    monkeypatch.setattr(learning, "_SAMPLE", 60)
    found = fitted(dd.from_pandas(frame, npartitions=2), 1, **OPTIONS)
    assert_same(found, fitted(frame, 1, **OPTIONS), frame)


def test_columns_are_read_as_in_memory(monkeypatch):
    """Few values and many, evidence where whole numbers may be several things, labels, categories."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(surveying, "_MOST", 100)
    table = pd.DataFrame(
        {"score": rng.integers(1, 6, N), "big": rng.integers(0, 9999, N), "minus": -rng.integers(0, 9, N)}
    )
    table["real"], table["yes"] = rng.normal(size=N), rng.random(N) < 0.5
    table["text"] = rng.choice([f"w{k}" for k in range(20)], N)
    table["cat"] = pd.Categorical(rng.choice(list("zyx"), N), categories=list("zyxw"))
    table["some"] = pd.array(np.where(rng.random(N) < 0.2, None, rng.integers(0, 3, N)), dtype="Int64")
    ours, found = surveying.read_partitions(
        partitions.Partitions.of("test", X=dd.from_pandas(table, npartitions=5)), "auto", "tilted", 8
    )
    memory = read(table)
    pd.testing.assert_frame_equal(ours.summary(), memory.summary())
    assert [c.levels for c in ours.columns] == [c.levels for c in memory.columns]
    assert found.columns[1].cut
    assert found.n_rows == N
    mixed = np.empty((40, 2), dtype=object)
    mixed[:, 0], mixed[:, 1] = [*range(20), *"abcdefghijklmnopqrst"], rng.normal(size=40)
    mixed[20:, 0] = np.resize(["a", "b"], 20)
    mixed[:20, 0] = np.resize([1, 2], 20)
    rows = partitions.Partitions.of("test", X=da.from_array(mixed, chunks=(20, 2)))
    assert surveying.read_partitions(rows, "auto", "tilted", 2)[0].columns[0].levels == read(mixed).columns[0].levels


def test_what_is_refused_in_partitions(real, frame):
    X = da.from_array(real, chunks=(100, 6))
    for bad, options, word in (
        (X, {"likelihood": "student-t"}, "column 'x0' in partitions is student-t; expected bernoulli, poisson"),
        (X[:1], {}, r"X has 1 sample\(s\)"),
        (X[:0], {}, "no partition has a row"),
        (X[:, 0], {}, "X has 1 dimension"),
        (X * np.array([1, 1, 1, 1, 1, np.inf]), {}, "finite numbers"),
        (X * np.array([1, 1, 1, 1, 1, 0.0]) + 0.5, {}, "column 'x5' is constant"),
        (X, {"n_components": 7}, "n_components = 7"),
        (da.from_array(np.column_stack([np.arange(N), real[:, 0]]), chunks=100).astype(int), {}, "numbers the rows"),
    ):
        with pytest.raises(Refusal, match=word):
            ProbabilisticPCA(**{"n_components": 2, **options}).fit(bad)
    with pytest.raises(Refusal, match="partition 2: column 'x0'"):
        fitted(da.from_array(np.r_[np.ones((200, 2)), [[0.5, 1.0]] * 40], chunks=(100, 2)), 1, likelihood="poisson")
    with pytest.raises(Refusal, match="checkpoint meets a table in memory"):
        ProbabilisticPCA().fit(real, checkpoint="x")


def test_a_fit_that_was_interrupted_goes_on(frame, tmp_path, monkeypatch):
    """Killed in any pass, the same call ends where it would have ended, to the last bit, and asks no pass twice."""
    X, path = dd.from_pandas(frame, npartitions=2), tmp_path / "a.fit"
    whole = fitted(X, 1, **OPTIONS)
    inside, passes, most = partitions._evidence, [], [9]

    def counting(block, *args):
        if block.number == 1:
            passes.append(block.number)
            if len(passes) == most[0]:
                raise KeyboardInterrupt
        return inside(block, *args)

    monkeypatch.setattr(partitions, "_evidence", counting)
    for limit in (9, 20, 10**9):
        most[0] = limit
        model = ProbabilisticPCA(1, **OPTIONS)
        try:
            model.fit(X, checkpoint=path)
        except KeyboardInterrupt:
            continue
    asked = len(passes)
    assert model.elbo_ == whole.elbo_
    assert np.array_equal(model.components_, whole.components_)
    model.fit(X, checkpoint=path)
    assert len(passes) == asked
    assert np.array_equal(model.components_, whole.components_)
    monkeypatch.undo()
    for other, table, word in (
        (ProbabilisticPCA(2, **OPTIONS), X, "n_components differ"),
        (ProbabilisticPCA(1, **OPTIONS), X.assign(real=X.real + 1.0), r"the data differ \(X, y or the weights\)"),
    ):
        with pytest.raises(Refusal, match=word):
            other.fit(table, checkpoint=path)


def test_a_fit_of_partitions_is_saved(of_every_kind, frame, tmp_path):
    model = of_every_kind
    model.save(tmp_path / "a")
    assert np.array_equal(fenchel.load(tmp_path / "a").transform(frame), model.transform(frame))
    assert (tmp_path / "a").stat().st_size < 30_000  # no rows
