"""Models of Dask dataframes: the fit of the same table in memory, whatever the partitions are like."""

import warnings

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.distributed.row_sums import LatentSets, TableMoments, ValueCounts
from fenchel.hyperparameters.evidence import Evidence
from fenchel.models.fixed import left_over
from fenchel.models.partitioned import PartitionedModel
from fenchel.models.partitioned import _left_over as left_by_moments

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


TOL = 1e-15  # two passes more than the default


@pytest.fixture(autouse=True)
def here():
    with dask.config.set(scheduler="synchronous"):
        yield


def made(n=600, groups=12, seed=0):
    rng = np.random.default_rng(seed)
    g, h, t = rng.integers(0, groups, n), rng.integers(0, 4, n), rng.integers(0, 9, n)
    x, f, e = 5 + 2 * rng.normal(size=n), rng.choice(["a", "b", "c"], n), rng.uniform(0.5, 2.0, n)
    b = rng.normal(size=(groups, 2)) * [0.7, 0.2]
    eta = 0.3 + 0.15 * (x - 5) + b[g, 0] + b[g, 1] * (x - 5) + 0.4 * (f == "b") + 0.3 * np.sin(t)
    p = 1 / (1 + np.exp(-eta))
    m = rng.integers(1, 9, n)
    columns = {"x": x, "f": f, "g": g, "h": h, "t": t, "e": e, "m": m, "w": rng.integers(0, 3, n)}
    y = {"y": eta + rng.normal(size=n), "c": rng.poisson(e * np.exp(eta)), "s": rng.binomial(m, p)}
    y |= {"z": (rng.random(n) < p).astype(int), "k": rng.negative_binomial(3, 3 / (3 + np.exp(eta)))}
    out = pd.DataFrame(columns | y)
    out["word"] = np.where(out.z == 1, "yes", "no")
    out.loc[5, "x"], out.loc[17, "y"], out.loc[40, "f"] = np.nan, np.nan, None
    return out


def same(formula, data, family, table=None, **options):
    """The fit of the partitions, which the fit in memory at its hyperparameters confirms."""
    table = dd.from_pandas(data, npartitions=3) if table is None else table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model, own = fenchel.Model(formula, data, family, **options), fenchel.Model(formula, table, family, **options)
    assert isinstance(own, PartitionedModel)
    assert own.n_rows == model.n_rows
    assert own.dropped == model.dropped
    assert own.sum.fixed_names == model.sum.fixed_names
    assert [term.levels for term in own.sum.effects] == [term.levels for term in model.sum.effects]
    pd.testing.assert_frame_equal(own.priors, model.priors)
    fit = own.fit(tol=TOL)
    assert fit.converged
    evidence = Evidence(
        model.target.likelihood, model.sum.family(), model.target.y, weights=model.target.weights, tol=1e-13
    )
    slope = evidence(fit.theta)[1]
    assert (
        evidence.largest_slope(fit.theta, slope) < 1e-4
    )  # nothing rises in memory either, by a tenth of what is allowed there
    found = evidence.solution
    assert fit.elbo == pytest.approx(found.elbo, abs=1e-8 * max(1.0, abs(found.elbo)))
    mean = found.posterior.latent_mean
    np.testing.assert_allclose(fit.solution.posterior.latent_mean, mean, atol=1e-8 * max(1.0, np.abs(mean).max()))
    ours, theirs = (np.asarray(p.latents().variance) for p in (fit.solution.posterior, found.posterior))
    np.testing.assert_allclose(ours, theirs, rtol=5e-7)
    return fit, model


CASES = [
    ("y ~ x + (1|g)", "gaussian", {}),
    ("y ~ x * f + (x|g)", "gaussian", {"weights": "w"}),
    ("y ~ x + x:e", "gaussian", {}),
    ("y ~ x * e + (1|g)", "gaussian", {}),
    ("c ~ x + I(x**2) + (x||g)", "poisson", {"exposure": "e"}),
    ("z ~ x + C(h) + (1|g:h)", "bernoulli", {}),
    ("word ~ f + (1|g/h)", "bernoulli", {}),
    ("s | trials(m) ~ x + (1|g)", "binomial", {}),
    ("cbind(s, m - s) ~ x + (1|g)", "binomial", {}),
    ("k ~ x + offset(np.log(e)) + (1|g)", "negative-binomial", {}),
    ("c ~ rw1(t) + (1|g)", "poisson", {"exposure": 2.0}),
    ("c ~ rw2(t) + ar1(h)", "poisson", {}),
    ("np.log(c + 1) ~ 0 + f + x + (f|g)", "gaussian", {}),
    ("c ~ s(e, bs='ps') + s(t) + (1|g)", "poisson", {}),
    ("y ~ f + s(x, k=7)", "gaussian", {"weights": "w"}),
    ("c ~ x + f", "poisson", {"priors": {"x": fenchel.hyperparameters.Normal(0.1, 0.5)}}),
]


@pytest.mark.parametrize(("formula", "family", "options"), CASES, ids=[case[0] for case in CASES])
def test_the_fit_is_that_of_the_table_in_memory(formula, family, options):
    same(formula, made(), family, **options)


# -- tables as they come ---------------------------------------------------------------------------------------
def delayed(parts):
    return dd.from_delayed([dask.delayed(part) for part in parts], verify_meta=False)


def test_partitions_may_be_empty_unlike_each_other_and_without_divisions():
    data = made()
    data["f"] = pd.Categorical(data.f.fillna("a"), categories=["c", "a", "b"])
    whole = data.drop(index=[40])
    parts = [
        whole.iloc[:100],
        whole.iloc[:0],
        whole.iloc[100:110].assign(x=np.nan),
        whole.iloc[110:350],
        whole.iloc[350:],
    ]
    table = delayed(parts)
    assert not table.known_divisions
    fit, _ = same("c ~ x + f + (1|g)", pd.concat(parts), "poisson", table)
    assert fit.model.dropped.n == 11  # of one partition every row
    assert "dropped: 11 rows in which a covariate is missing" in fit.summary()


def test_levels_that_only_some_partitions_have():
    data = made().sort_values(["f", "g"])  # the first partition knows one level of f
    same("c ~ x + f + (1|g)", data, "poisson", dd.from_pandas(data, npartitions=5, sort=False))


def test_categories_that_differ_by_partition():
    data = made().dropna(subset=["f"])
    one, two = data.iloc[:300].copy(), data.iloc[300:].copy()
    one["f"] = pd.Categorical(one.f.replace("c", "a"), categories=["b", "a"])
    two["f"] = pd.Categorical(two.f.replace("a", "c"), categories=["c", "b"])
    both = pd.concat([one, two])
    both["f"] = pd.Categorical(both.f, categories=["b", "a", "c"])  # in the order in which partitions bring them
    same("c ~ x + f + (1|g)", both, "poisson", delayed([one, two]))


def test_strings_of_arrow_and_nullable_numbers_and_booleans():
    data = made()
    data["f"], data["x"] = data.f.astype("string[pyarrow]"), data.x.astype("Float64")
    data["flag"] = data.z == 1
    plain = data.assign(f=data.f.astype(object).where(data.f.notna(), None), x=data.x.to_numpy(float, na_value=np.nan))
    same("c ~ x + f + flag + (1|g)", plain, "poisson", dd.from_pandas(data, npartitions=3))


def test_parquet(tmp_path):
    data = made()
    dd.from_pandas(data, npartitions=4).to_parquet(tmp_path)
    table = dd.read_parquet(tmp_path)
    same("z ~ x + f + (1|g)", data, "bernoulli", table)


def test_a_missing_y_is_predicted_and_not_counted():
    data = made()
    data["y"] = data.y.where(np.arange(len(data)) % 5 > 0)
    fit, model = same("y ~ x + (1|g)", data, "gaussian")
    assert fit.model.n_rows[1] < fit.model.n_rows[0]
    own, theirs = (each.effects["g"] for each in (fit, model.fit()))
    counts = [name for name in theirs if theirs[name].dtype.kind == "i"]
    assert counts
    pd.testing.assert_frame_equal(own[counts], theirs[counts])


# -- what a fit answers ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def pair():
    with dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        data = made()
        table = dd.from_pandas(data, npartitions=3)
        fits = [fenchel.fit("c ~ x + f + (x|g)", each, "poisson", exposure="e") for each in (data, table)]
    return data, table, *fits


def test_tables_and_predictions(pair):
    data, table, memory, fit = pair
    np.testing.assert_allclose(
        fit.coefficients, memory.coefficients, rtol=2e-3, atol=1e-4
    )  # in memory to a slope of 1e-3
    np.testing.assert_allclose(fit.effects["g"], memory.effects["g"], rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(fit.hyperparameters, memory.hyperparameters, rtol=0.05, atol=0.02)
    new = data.head(20)
    for kind in ("mean", "link"):
        got, wanted = (each.predict(new, kind, interval=0.9) for each in (fit, memory))
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    lazy = fit.predict(table, interval=0.9)
    assert lazy.npartitions == 3
    pd.testing.assert_frame_equal(lazy.compute(), fit.predict(data, interval=0.9))
    pd.testing.assert_series_equal(fit.predict(table, "link").compute(), fit.predict(data, "link"))
    assert fit.sample(new, 5, rng=0).shape == (5, 20)
    assert np.isnan(fit.predict(data).iloc[5])  # its x is missing
    page = fit.summary()
    assert page.startswith("Gaussian at the mode: rows are out of memory\nconverged")
    assert f"rows: {len(data) - 2} used" in page
    assert "dropped: 2 rows" in page


def test_lazy_predictions_are_checked_at_once_and_of_no_rows_are_none():
    data = made()
    table = dd.from_pandas(data, npartitions=3)
    fit = fenchel.fit("z ~ x + f + (1|g)", table, family="bernoulli")
    for wrong, sentence in (
        (table[["x", "g"]], "there is no column 'f'; expected one of 'x', 'g'"),
        (table["x"], "expected a Dask dataframe with the columns of the formula"),
        (table[["x"]].to_dask_array(), "expected a Dask dataframe with the columns of the formula"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit.predict(wrong)
    with pytest.raises(ValueError, match="kind"):
        fit.predict(table, "nothing")
    plain = fit.predict(table[["x", "f"]], without="(1|g)")
    pd.testing.assert_series_equal(plain.compute(), fit.predict(data, without="(1|g)"))
    data["part"] = np.arange(len(data)) // 200
    table = dd.from_pandas(data, npartitions=3)
    some, rows = table[table["part"] > 0], data[data["part"] > 0]
    for options in ({}, {"interval": 0.9}, {"kind": "probability"}):
        got, want = fit.predict(some, **options), fit.predict(rows, **options)
        compared = pd.testing.assert_series_equal if want.ndim == 1 else pd.testing.assert_frame_equal
        compared(got.compute(), want)
        compared(got.partitions[0].compute(), want.iloc[:0])


def test_cutpoints_are_stated_at_zero_with_intervals():
    data = made().assign(o=lambda d: d["c"].clip(0, 3), far=lambda d: d["x"] + 2.0)  # its mean moves the cutpoints
    formula = "o ~ far + (1|g)"
    memory = fenchel.fit(formula, data, family="ordinal").hyperparameters
    found = fenchel.fit(formula, dd.from_pandas(data, npartitions=3), family="ordinal").hyperparameters
    assert list(found.index) == list(memory.index)
    width = memory["upper"] - memory["lower"]
    for column, allowed in (("value", 1e-3), ("lower", 0.05), ("upper", 0.05)):  # the ends are of a parabola
        assert (np.abs(found[column] - memory[column]) < allowed * width).all()


def test_a_fit_is_saved_without_its_rows(pair, tmp_path):
    data, _, _, fit = pair
    fit.save(tmp_path / "fit")
    again = fenchel.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(again.predict(data, interval=0.9), fit.predict(data, interval=0.9))
    pd.testing.assert_frame_equal(again.hyperparameters, fit.hyperparameters)
    assert again.summary() == fit.summary()
    with pytest.raises(ValueError, match="the rows of a loaded model are elsewhere"):
        again.model.fit()


def test_what_needs_the_rows_is_refused(pair):
    fit = pair[3]
    for name in ("loo", "waic", "k_fold", "leave_group_out", "corrected", "simulate", "to_arviz"):
        with pytest.raises(ValueError, match="needs rows of the fit, which are out of memory"):
            getattr(fit, name)(*(["g"] if name == "leave_group_out" else []))
    for ask in (fit.predict, fit.sample, lambda: fit.slopes("x")):
        with pytest.raises(ValueError, match=r"needs (the )?rows of the fit"):
            ask()
    with pytest.raises(ValueError, match=r"needs (the )?rows of the fit"):
        _ = fit.observed  # the model holds some rows alone
    with pytest.raises(ValueError, match="plot: the rows of the fit, which say where 'x' and other columns lie"):
        fit.plot("x")
    with pytest.raises(ValueError, match="sample: a Dask dataframe; expected a table in memory"):
        fit.sample(pair[1])


@pytest.mark.parametrize(
    ("formula", "options", "sentence"),
    [
        ("c ~ s(x, by=f)", {}, r"s\(x,by=f\) of a table that is out of memory; expected fixed effects, \(1\|g\)"),
        ("c ~ gp(x)", {}, r"gp\(x\) of a table that is out of memory"),
        ("c ~ rw1(t, by=g)", {}, "out of memory"),
        ("c ~ poly(x, 2)", {}, r"'poly\(x, 2\)' learns from all rows at once"),
        ("c ~ scale(x)", {}, "learns from all rows at once"),
        ("c ~ x", {"exposure": np.ones(600)}, "exposure is an array beside a Dask dataframe; expected the name of"),
        ("c ~ x", {"family": "cox"}, "family = 'cox' of a table that is out of memory"),
        ("c ~ x", {"dispersion": "~ x"}, "dispersion= of a table that is out of memory"),
        ("c ~ nothing", {}, "there is no column 'nothing'"),
        ("c ~ (1|gg)", {}, "there is no column 'gg'; expected one of 'x', 'f', 'g'"),
        ("c ~ x", {"exposure": "ee"}, "exposure: there is no column 'ee'; expected one of 'x', 'f', 'g'"),
        ("y ~ x", {"family": "poisson"}, "is negative"),
    ],
)
def test_what_is_refused(formula, options, sentence):
    table = dd.from_pandas(made(), npartitions=2)
    with pytest.raises(ValueError, match=sentence):
        fenchel.Model(formula, table, **{"family": "poisson", **options})


def test_a_smooth_of_too_many_values_is_refused(monkeypatch):
    from fenchel.models import partition_rows

    monkeypatch.setattr(partition_rows, "MOST_VALUES", 300)
    with pytest.raises(ValueError, match=r'more than 300 different values; expected fewer. s\(x, bs="ps"\) has equal'):
        fenchel.Model("c ~ s(x)", dd.from_pandas(made(), npartitions=2), "poisson")


def test_options_of_fit_that_need_rows_are_refused():
    model = fenchel.Model("c ~ x", dd.from_pandas(made(), npartitions=2), "poisson")
    with pytest.raises(ValueError, match="integrate = 'grid' of a table that is out of memory"):
        model.fit(integrate="grid")
    with pytest.raises(ValueError, match="n_restarts = 3"):
        model.fit(n_restarts=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tolerance'"):
        model.fit(tolerance=1)


def test_a_checkpoint_of_a_fit_in_memory_is_not_passed_over(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint with a table in memory; expected integrate=..., or a Dask"):
        fenchel.fit("c ~ x", made(), family="poisson", checkpoint=tmp_path / "kept")


def test_no_row_is_left():
    data = made().assign(x=np.nan)
    with pytest.raises(ValueError, match="no row has all covariates: 'x' is missing in 600"):
        fenchel.Model("c ~ x", dd.from_pandas(data, npartitions=2), "poisson")


# -- checkpoints -----------------------------------------------------------------------------------------------
def test_a_fit_that_is_interrupted_goes_on_to_the_same_answer(tmp_path, monkeypatch):
    from fenchel.distributed import Partitions

    data, path = made(), tmp_path / "kept"
    table = dd.from_pandas(data, npartitions=3)
    whole = fenchel.Model("z ~ x + (1|g)", table, "bernoulli").fit()
    model, plain, calls = fenchel.Model("z ~ x + (1|g)", table, "bernoulli"), Partitions.reduce, []

    def until(self, *args):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(self, *args)

    monkeypatch.setattr(Partitions, "reduce", until)
    with pytest.raises(KeyboardInterrupt):
        model.fit(checkpoint=path)
    monkeypatch.undo()
    again = model.fit(checkpoint=path)
    assert again.elbo == pytest.approx(whole.elbo, abs=1e-10)
    np.testing.assert_allclose(again.theta, whole.theta, atol=1e-10)
    np.testing.assert_allclose(again.coefficients, whole.coefficients, atol=1e-10)
    with pytest.raises(ValueError, match="is of another fit: formula"):
        fenchel.Model("z ~ x", table, "bernoulli").fit(checkpoint=path)
    flipped = dd.from_pandas(data.assign(z=np.where(data.index == data.index[0], 1 - data.z, data.z)), npartitions=3)
    with pytest.raises(ValueError, match=r"is of another fit: the data differ \(X, y or the weights\)"):
        fenchel.Model("z ~ x + (1|g)", flipped, "bernoulli").fit(checkpoint=path)
    with pytest.raises(ValueError, match="is of another fit: priors differ"):
        fenchel.Model("z ~ x + (1|g)", table, "bernoulli", priors={"x": fenchel.hyperparameters.Normal(0.0, 3.0)}).fit(
            checkpoint=path
        )


# -- pieces ----------------------------------------------------------------------------------------------------
def test_moments_of_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    X, w = 1e6 + rng.normal(size=(50, 3)), rng.integers(0, 3, 50).astype(float)
    parts = [slice(0, 7), slice(7, 7), slice(7, 30), slice(30, 50)]
    found = sum((TableMoments.of(X[p], w[p]) for p in parts[1:]), TableMoments.of(X[parts[0]], w[parts[0]]))
    seen = w > 0
    mean = np.average(X, axis=0, weights=w)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-15)
    np.testing.assert_allclose(found.covariance, np.cov(X.T, fweights=w.astype(int), bias=True), atol=1e-9)
    np.testing.assert_array_equal(found.low, X[seen].min(axis=0))


def test_columns_that_are_nearly_others_by_moments():
    rng = np.random.default_rng(1)
    year = rng.integers(1990, 2020, 200).astype(float)
    X = np.column_stack([np.ones(200), year, year**2, rng.normal(size=200)])
    for columns, level in ((X, True), (X[:, 1:], False), (X[:, [0, 3, 1]], True)):
        found, wanted = left_by_moments(TableMoments.of(columns), level), left_over(columns)
        assert (found is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-9)
    assert left_by_moments(TableMoments.of(X), True) is not None
    assert left_by_moments(TableMoments.of(X[:, [0, 3]]), True) is None


def test_values_of_y_are_counted_until_there_are_too_many():
    from fenchel.models.partition_rows import rows_for_all

    y, n, w = np.array([0.0, 1, 1, 3]), np.array([5.0, 5, 5, 4]), np.array([1.0, 2, 1, 0])
    seen, exposure = w > 0, np.array([1.0, 2, 5, 9])
    found = ValueCounts.of(y[seen], {"trials": n[seen]}, w[seen], exposure[seen])
    found = found + ValueCounts.of(y[:1], {"trials": n[:1]}, w[:1], np.array([3.0]))
    np.testing.assert_array_equal(found.at, [[0, 5], [1, 5]])
    np.testing.assert_array_equal(found.weight, [2, 3])
    np.testing.assert_array_equal(found.average, [2, 3])
    assert list(found.beside) == ["trials"]
    many = ValueCounts.of(y[seen], {}, w[seen], limit=1)
    assert many.at is None
    assert (many + found).at is None
    with pytest.raises(ValueError, match="y has more than 1 different values and family = 'gamma'"):
        rows_for_all(many, "gamma", [])
    two, _, weights = rows_for_all(many, "gaussian", [])
    assert np.average(two, weights=weights) == pytest.approx(np.average(y, weights=w))


def test_latents_that_rows_touch_together():
    import scipy.sparse as sp

    A = sp.csr_array(np.array([[1.0, 0, 2], [3, 0, 1], [0, 1, 0]]))
    found = LatentSets.of(A) + LatentSets.of(sp.csr_array(np.array([[0.0, 1, 1]])))
    np.testing.assert_array_equal(found.sets[2], [[0, 2], [1, 2]])
    np.testing.assert_array_equal(found.sets[1], [[1]])
