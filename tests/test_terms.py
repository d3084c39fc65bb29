"""The contract of a term, for every one there is: designs, precisions, hyperparameters, pickles; and tables."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from test_terms_contract import MORE

from fenchel import terms
from fenchel.hyperparameters import HalfNormal, Normal, PCDeviation
from fenchel.priors.sparse import SparsePrecision
from fenchel.terms import DataTable, Kind, SumOfTerms, Term
from fenchel.terms.grouped import typical

N = 40
RING = np.roll(np.eye(8), 1, axis=0) + np.roll(np.eye(8), -1, axis=0)
ROWS = {
    "g": np.arange(N) % 8,
    "t": 2000 + np.arange(N) % 15,
    "x": np.linspace(-3.0, 5.0, N),
    "f": np.array(["low", "high"])[np.arange(N) % 2],
}
TERMS = {
    "Covariate": lambda **by: terms.Covariate("f"),
    "IID": lambda **by: terms.IID("g", **by),
    "RW1": lambda **by: terms.RW1("t", **by),
    "RW2": lambda **by: terms.RW2("t", **by),
    "AR1": lambda **by: terms.AR1("t", **by),
    "Seasonal": lambda **by: terms.Seasonal("t", 4, **by),
    "ICAR": lambda **by: terms.ICAR("g", RING, **by),
    "BYM": lambda **by: terms.BYM("g", RING, **by),
    "BYM2": lambda **by: terms.BYM2("g", RING, **by),
    "Leroux": lambda **by: terms.Leroux("g", RING, **by),
    "Generic": lambda **by: terms.Generic("g", np.diag(np.arange(1.0, 9.0)), **by),
}
every_term = pytest.mark.parametrize("name", TERMS)
every_effect = pytest.mark.parametrize("name", [name for name in TERMS if name != "Covariate"])
TABLE = DataTable("here", ROWS)


def test_every_term_is_here():
    classes = [c for c in vars(terms).values() if inspect.isclass(c) and issubclass(c, Term)]
    assert {c.__name__ for c in classes} - {"Term", "LevelTerm"} == set(TERMS) | set(MORE)


@every_term
def test_designs_of_old_rows_and_new(name):
    term = TERMS[name]().read(TABLE, 1.0)
    rows = term.rows(TABLE)
    assert rows.design.shape == (N, term.n_latents)
    assert rows.fixed.shape == (N, len(term.fixed_names))
    some = DataTable("here", {key: column[5:9] for key, column in ROWS.items()})
    np.testing.assert_array_equal(term.rows(some, new=True).design.toarray(), rows.design.toarray()[5:9])
    np.testing.assert_array_equal(term.rows(some, new=True).fixed, rows.fixed[5:9])
    assert set(term.claims) <= set(term.columns) <= set(ROWS)


@every_effect
def test_a_column_multiplies_a_term(name):
    plain, weighted = TERMS[name]().read(TABLE, 1.0), TERMS[name](by="x").read(TABLE, 1.0)
    once, twice = plain.rows(TABLE), weighted.rows(TABLE)
    np.testing.assert_allclose(twice.design.toarray(), ROWS["x"][:, None] * once.design.toarray())
    np.testing.assert_allclose(twice.fixed, ROWS["x"][:, None] * once.fixed)
    assert weighted.name == f"x | {plain.name}"


def test_a_slope_in_words_is_refused():
    with pytest.raises(ValueError, match="here: the column 'f' holds text; expected numbers"):
        terms.IID("g", by="f").read(TABLE, 1.0)


@every_effect
def test_precisions_and_their_derivatives(name):
    term = TERMS[name]().read(TABLE, 1.0)
    theta = np.array([h.start for h in term.hyperparameters]) + 0.1
    Q, slopes = term.precision(theta)
    assert Q.shape == (term.n_latents, term.n_latents)
    assert len(slopes) == theta.size
    numeric = difference(lambda t: term.precision(t)[0].toarray(), theta, step=1e-5)
    for slope, other in zip(slopes, np.moveaxis(np.asarray(numeric), -1, 0), strict=True):
        np.testing.assert_allclose(slope.toarray(), other, atol=1e-6 * np.abs(Q.toarray()).max())


@every_effect
@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_hyperparameters_are_typed_and_start_at_half_the_scale(name, scale):
    term = TERMS[name]().read(TABLE, scale)
    for h in term.hyperparameters:
        assert h.bounds[0] < h.start < h.bounds[1]
        assert h.transform.forward(h.value(h.start)) == pytest.approx(h.start)
        assert np.isfinite(h.prior(h.start)).all()
    theta = np.array([h.start for h in term.hyperparameters])
    assert [word for word, _ in term.readable(theta)] == [h.name for h in term.hyperparameters]
    prior = SparsePrecision(term.precision(theta)[0], design=term.shown()[1].design, constraints=term.constraints)
    found = np.sqrt(typical(np.asarray(prior.bind(prior.n_rows, 1, False).variance)))
    half = 0.5 * scale * (np.sqrt(2) if name == "BYM" else 1.0)  # two parts of half the scale each
    assert found == pytest.approx(half, rel=0.08 if name in ("BYM", "BYM2", "Leroux") else 1e-6)


@every_term
def test_a_term_pickles(name):
    term = TERMS[name]().read(TABLE, 1.0)
    again = pickle.loads(pickle.dumps(term))
    np.testing.assert_array_equal(again.rows(TABLE).design.toarray(), term.rows(TABLE).design.toarray())
    if term.n_latents:
        theta = np.array([h.start for h in term.hyperparameters])
        assert (again.precision(theta)[0] != term.precision(theta)[0]).nnz == 0
        assert [h.prior for h in again.hyperparameters] == [h.prior for h in term.hyperparameters]


def test_priors_are_asked_for_by_name():
    def priors(asked):
        model = SumOfTerms([terms.BYM2("g", RING)], TABLE, priors=asked)
        return [h.prior for h in model.effects[0].hyperparameters]

    assert priors("pc") == [HalfNormal(5.0, 0.05), Normal(0.0, 1.8)]
    assert priors(None) == priors({"g": None}) == [None, None]
    assert priors({"g": {"phi": Normal(1.0, 1.0)}}) == [HalfNormal(5.0, 0.05), Normal(1.0, 1.0)]
    assert priors({"g": (0.5, 0.1)}) == [PCDeviation(0.5, 0.1), Normal(0.0, 1.8)]
    with pytest.raises(
        ValueError, match=r"here: the prior of 'g', phi, is \(1, 2\); expected \(phi, a\) for P\(phi < u\) = a"
    ):
        priors({"g": {"phi": (1, 2)}})
    with pytest.raises(ValueError, match=r"here: priors\['g'\] names 'rho'; expected sd, phi"):
        priors({"g": {"rho": None}})


def test_the_fixed_effects_of_a_model_stand_covariates_first():
    model = SumOfTerms([terms.RW2("t"), terms.Covariate("x"), terms.Covariate("f")], TABLE)
    assert model.fixed_names == ["x", "f[low]", "t (slope)"]
    field = model.family()
    assert field.names == ("t: log sd",)
    assert field.design.shape == (N, 15 + 1 + 3)
    new = model.new_rows(field.theta, TABLE)
    np.testing.assert_array_equal(new.design.toarray(), field.design.toarray())
    np.testing.assert_array_equal(new.extra_variance, 0.0)


# -- tables ----------------------------------------------------------------------------------------------
COLUMNS = {
    "numbers": ([1, 2.5], Kind.NUMBERS),
    "array": (np.array([1, 2]), Kind.NUMBERS),
    "booleans": (np.array([True, False]), Kind.BOOLEANS),
    "nullable": (pd.array([True, None], dtype="boolean"), Kind.BOOLEANS),
    "text": (["a", "b"], Kind.TEXT),
    "string": (pd.Series(["a", None], dtype="string"), Kind.TEXT),
    "category": (pd.Categorical(["a", "b"]), Kind.CATEGORIES),
    "dates": (pd.to_datetime(["2020-01-01", "2020-02-01"]), Kind.DATES),
    "period": (pd.period_range("2020", periods=2, freq="Y"), Kind.DATES),
    "objects": (np.array([pd.Timestamp("2020"), None], dtype=object), Kind.DATES),
    "mixed": (np.array(["a", 1], dtype=object), Kind.MIXED),
    "missing": ([None, 3], Kind.NUMBERS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_kind_of_a_column(name):
    data, kind = COLUMNS[name]
    assert DataTable("here", {name: data}).column(name).kind is kind


def test_a_table_is_the_same_in_every_form():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    forms = [frame, {"a": [1.0, 2.0], "b": [3.0, 4.0]}, frame.to_records(index=False)]
    for form in forms:
        table = DataTable("here", form)
        assert table.names == ["a", "b"]
        assert len(table) == 2
        np.testing.assert_array_equal(table.column("b").numbers(), [3.0, 4.0])
    assert DataTable("here", frame.to_numpy()).names == [0, 1]
    with pytest.raises(ValueError, match="here: X has the column 'a' twice"):
        DataTable("here", pd.DataFrame([[1, 2]], columns=["a", "a"])).column("a")
    masked = DataTable("here", {"a": np.ma.array([1.0, 2.0], mask=[False, True])})  # what is masked is missing
    with pytest.raises(ValueError, match=r"here: X\['a'\]\[1\] = nan"):
        masked.column("a").numbers()
