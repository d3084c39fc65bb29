"""Tables are understood: kinds by dtype and by value, cells as numbers and back, and sentences for what cannot be."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fenchel.factors.columns import read

NA = np.nan


def frame():
    return pd.DataFrame(
        {
            "flag": [True, False, True, True],
            "maybe": pd.array([True, None, False, True], dtype="boolean"),
            "size": pd.Categorical(["low", "high", None, "mid"], categories=["low", "mid", "high", "never"]),
            "side": ["left", "right", "left", None],
            "bit": [0, 1, 1, 0],
            "count": [3, 1, 0, 9],
            "holes": pd.array([3, None, 0, 9], dtype="Int64"),
            "signed": [-1, 2, 3, 4],
            "real": [0.5, 1.0, NA, 2.0],
            "real bit": [0.0, 1.0, NA, 1.0],
            "objects": np.array([1, 2.5, None, 3], dtype=object),
            "flags": np.array([True, None, False, True], dtype=object),
        }
    )


KINDS = {
    "flag": ("bernoulli", (False, True)),
    "maybe": ("bernoulli", (False, True)),
    "size": ("multinomial", ("low", "mid", "high")),
    "side": ("bernoulli", ("left", "right")),
    "bit": ("bernoulli", (0, 1)),
    "count": ("poisson", ()),
    "holes": ("poisson", ()),
    "signed": ("gaussian", ()),
    "real": ("gaussian", ()),
    "real bit": ("bernoulli", (0.0, 1.0)),
    "objects": ("gaussian", ()),
    "flags": ("bernoulli", (False, True)),
}


# -- auto ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KINDS)
def test_pandas_columns_are_what_their_dtype_says(name):
    table = read(frame())
    (column,) = (c for c in table.columns if c.name == name)
    assert (column.kind, column.levels) == KINDS[name]


def test_cells_become_numbers():
    table = read(frame()[["flag", "size", "side", "count", "real"]])
    expected = [[1, 0, 0, 3, 0.5], [0, 2, 1, 1, 1.0], [1, NA, 0, 0, NA], [1, 1, NA, 9, 2.0]]
    np.testing.assert_array_equal(table.values, expected)
    assert table.values.dtype == np.float64
    assert [column.n_levels for column in table.columns] == [2, 3, 2, 0, 0]
    assert "size: multinomial" in repr(table)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([0, 1, 1]), "bernoulli"),
        (np.array([0, 0, 0]), "bernoulli"),  # the other level is known though it was not seen
        (np.array([0, 1, 2], dtype=np.uint8), "poisson"),
        (np.array([0, 1, -2]), "gaussian"),
        (np.array([0.0, 1.0, NA]), "bernoulli"),
        (np.array([0.0, 1.0, 2.0]), "gaussian"),
        (np.array([True, False, True]), "bernoulli"),
        (np.array(["a", "b", "a"]), "bernoulli"),
        (np.array(["a", "b", "c"], dtype=object), "multinomial"),
        (np.array([1, None, 3], dtype=object), "poisson"),
        (np.array([1.5, None, 3], dtype=object), "gaussian"),
        (np.array([True, None, False], dtype=object), "bernoulli"),
        (np.array(["a", None, 3], dtype=object), "bernoulli"),  # labels of two types
        (np.array([1, pd.NA, 3], dtype=object), "poisson"),
    ],
)
def test_arrays_are_read_by_their_values(values, kind):
    assert read(values[:, None]).kinds == [kind]


def test_lists_keep_numbers_beside_text():
    table = read([["a", 1.5], ["b", None], ["a", 2.5]])
    assert table.kinds == ["bernoulli", "gaussian"]
    np.testing.assert_array_equal(table.values, [[0, 1.5], [1, NA], [0, 2.5]])


def test_the_zeros_of_a_sparse_matrix_are_data():
    dense = np.array([[0, 1, 3], [0, 0, 0], [1, 0, 2]])
    for make in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        table = read(make(dense))
        assert table.kinds == ["bernoulli", "bernoulli", "poisson"]
        np.testing.assert_array_equal(table.values, dense)
    holes = sp.csr_array(np.array([[NA, 1.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(read(holes).values, holes.toarray())


# -- asked for -----------------------------------------------------------------------------------------
def test_likelihoods_may_be_given():
    X = np.array([[0, 2, 4.0], [1, 3, 5.5], [1, 2, 0.5]])
    assert read(X, "gaussian").kinds == ["gaussian"] * 3
    assert read(X, ["multinomial", "poisson", "auto"]).kinds == ["multinomial", "poisson", "gaussian"]
    column = read(X, {1: "bernoulli"}).columns[1]
    assert (column.name, column.kind, column.levels) == ("x1", "bernoulli", (2.0, 3.0))
    assert read(X, {"x1": "multinomial", -1: "gaussian"}).kinds == ["bernoulli", "multinomial", "gaussian"]
    assert read(frame()[["bit", "count"]], {"count": "multinomial"}).columns[1].levels == (0, 1, 3, 9)


def test_levels_have_names():
    assert read(np.array([[0.0], [2.0], [5.5]]), "multinomial").columns[0].level_names == ["x0=0", "x0=2", "x0=5.5"]
    assert read([["u"], ["v"]]).columns[0].level_names == ["x0=u", "x0=v"]


@pytest.mark.parametrize(
    ("X", "likelihood", "sentence"),
    [
        ([[1.0], [2.5]], "poisson", r"column 'x0'\[1\] = 2.5 is not a count; expected 0, 1, 2, .*gaussian"),
        ([[1.0], [-2.0]], "poisson", r"column 'x0'\[1\] = -2 is not a count"),
        ([["a"], ["b"]], "poisson", r"column 'x0' is not numbers; expected numbers for 'poisson'. Try \"multinomial\""),
        ([[0.0], [1.0], [2.0]], "bernoulli", r"column 'x0' has 3 levels; expected two for \"bernoulli\""),
        ([["a"], ["a"]], "auto", r"column 'x0' has one level only, 'a'; expected at least two .* leave it out"),
        ([[3.0], [3.0]], "multinomial", "column 'x0' has one level only, 3.0"),
        ([[NA, 1.0], [NA, 2.0]], "auto", "column 'x0' has no data; .* Leave it out"),
        ([[np.inf], [1.0]], "gaussian", "column 'x0', row 0: inf; expected finite numbers"),
        ([[np.inf], [1.0]], "multinomial", "column 'x0' has an infinite cell"),
        ([[{}], [1]], "auto", "column 'x0' has a dict in a cell; expected numbers or labels"),
        ([[1.0]], "logit", "likelihood = 'logit' is not known; expected 'auto' or 'bernoulli'"),
        ([[1.0]], ["auto", "auto"], "2 likelihoods were given for 1 columns"),
        ([[1.0]], {"z": "auto"}, "likelihood names a column 'z'; expected some of 'x0'"),
        ([[1.0]], {"x0": "bad"}, "likelihood of column 'x0' = 'bad' is not known"),
        ([[1.0]], 3, "likelihood = 3; expected a word, a list .* or a dict"),
        ([1.0, 2.0], "auto", r"X has shape \(2,\); expected a table"),
        (np.empty((0, 3)), "auto", r"X has shape \(0, 3\)"),
        (np.array([[1j]]), "auto", "X has dtype complex128"),
        ([[f"name {i}"] for i in range(12)], "auto", "column 'x0' has a different label in every row"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), "auto", "column 'when' holds dates, such as .*days"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "auto", "X has two columns 'a'"),
        (pd.DataFrame({"a": []}), "auto", r"X has shape \(0, 1\)"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(X, likelihood, sentence):
    if isinstance(X, list) and isinstance(X[0], list) and isinstance(X[0][0], dict):
        X = np.array(X, dtype=object)
    with pytest.raises(ValueError, match=sentence):
        read(X, likelihood)


# -- new rows ------------------------------------------------------------------------------------------
def test_new_rows_are_read_as_the_first():
    table = read(frame())
    np.testing.assert_array_equal(table.encode(frame()), table.values)
    shuffled = frame()[list(KINDS)[::-1]].assign(more=1)
    np.testing.assert_array_equal(table.encode(shuffled), table.values)
    plain = pd.DataFrame({"size": ["mid", None], "bit": [True, False]})  # other dtypes, the same labels
    small = read(frame()[["size", "bit"]])
    np.testing.assert_array_equal(small.encode(plain), [[1, 1], [NA, 0]])
    np.testing.assert_array_equal(small.encode(np.array([["high", 0]], dtype=object)), [[2, 0]])
    everything = pd.DataFrame({"size": [None, None], "bit": [None, None]})
    assert np.isnan(small.encode(everything)).all()


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        ({"size": ["huge"], "count": [1]}, r"row 0: 'huge' is an unknown level; expected one of 'low', 'mid', 'high'"),
        ({"size": pd.Categorical(["never"]), "count": [1]}, "'never' is an unknown level"),
        ({"size": ["low"]}, "X has no column 'count'; expected the columns of fit: 'size', 'count'"),
        ({"size": ["low"], "count": ["many"]}, "column 'count' is not numbers; .* a poisson column"),
        ({"size": ["low"], "count": [-1]}, r"column 'count'\[0\] = -1 is not a count"),
        ({"size": [["low"]], "count": [1]}, "column 'size' has cells that are not labels"),
    ],
)
def test_strange_new_rows_are_refused(new, sentence):
    table = read(frame()[["size", "count"]])
    with pytest.raises(ValueError, match=sentence):
        table.encode(pd.DataFrame(new))


def test_a_wrong_number_of_columns_is_refused():
    with pytest.raises(ValueError, match="X has 1 columns; expected 2 columns, as in fit"):
        read(np.eye(2)).encode(np.eye(2)[:, :1])
    with pytest.raises(ValueError, match=r"column 'x0', row 1: 2.0 is an unknown level"):
        read(np.eye(2)).encode(np.array([[1.0, 0.0], [2.0, 0.0]]))


# -- and back ------------------------------------------------------------------------------------------
def test_a_pandas_table_survives_the_round_trip():
    X = frame()
    table = read(X)
    again = table.decode(table.values, index=X.index)
    assert (again.dtypes.drop("objects") == X.dtypes.drop("objects")).all()
    np.testing.assert_array_equal(table.encode(again), table.values)
    assert again["size"].tolist()[:2] == ["low", "high"]
    assert again["count"].dtype == np.int64
    means = table.values + np.where(np.array(table.kinds) == "poisson", 0.5, 0.0)
    assert table.decode(means)["count"].tolist() == [3.5, 1.5, 0.5, 9.5]  # a mean is not cut to a count


@given(
    data=st.data(),
    rows=st.integers(3, 12),
    kind=st.sampled_from(["words", "numbers", "mixed", "bools"]),
)
def test_any_column_survives_the_round_trip(data, rows, kind):
    cells = {
        "words": st.text(max_size=3) | st.none(),
        "numbers": st.floats(-1e6, 1e6) | st.just(NA),
        "mixed": st.sampled_from(["a", 1, 2.5, None, ("t", 1)]),
        "bools": st.booleans() | st.none(),
    }[kind]
    column = np.empty((rows, 1), dtype=object)
    column[:, 0] = data.draw(st.lists(cells, min_size=rows, max_size=rows))
    try:
        table = read(column)
    except ValueError:
        return
    assert ((table.values == np.floor(table.values)) | np.isnan(table.values) | (table.kinds[0] == "gaussian")).all()
    again = table.decode(table.values)
    for before, after in zip(column[:, 0], again[:, 0], strict=True):
        gone = before is None or before != before
        assert (after is None or after != after) if gone else after == before
    np.testing.assert_array_equal(table.encode(column), table.values)


def test_holes_are_filled_in_the_type_of_the_table():
    X = frame()
    table = read(X)
    filled = table.fill(X, np.where(np.isnan(table.values), 1.0, -7.0))  # only holes are written
    assert not filled.isna().any().any()
    assert (filled.dtypes.drop(["holes", "objects"]) == X.dtypes.drop(["holes", "objects"])).all()
    assert str(filled["holes"].dtype) == "Float64"
    assert filled.loc[1, "maybe"] is np.True_ or filled.loc[1, "maybe"] is True
    assert (filled.loc[2, "size"], filled.loc[3, "side"], filled.loc[2, "real"]) == ("mid", "right", 1.0)
    kept = X.notna().to_numpy()
    assert (filled.astype(object).to_numpy()[kept] == X.astype(object).to_numpy()[kept]).all()
    assert X.isna().sum().sum() > 0  # the table itself is left alone
    dense = np.array([[NA, 1.0], [0.0, 2.5], [1.0, NA]])
    some = read(dense)
    np.testing.assert_array_equal(some.fill(dense, np.full((3, 2), 0.25 * 4)), [[1, 1], [0, 2.5], [1, 1]])
    out = some.fill(sp.csr_array(dense), np.ones((3, 2)))
    assert isinstance(out, sp.csr_array)
    np.testing.assert_array_equal(out.toarray(), [[1, 1], [0, 2.5], [1, 1]])
    words = [["a", None], ["b", 1.5], [None, 2.5]]
    np.testing.assert_array_equal(
        read(words).fill(words, np.ones((3, 2))), np.array([["a", 1.0], ["b", 1.5], ["b", 2.5]], dtype=object)
    )


def test_counts_with_holes_are_counts_still():
    values = np.array([[3.0, 0.5], [np.nan, 1.5], [0.0, 2.5], [7.0, np.nan]])
    assert [column.kind for column in read(values).columns] == ["poisson", "gaussian"]
