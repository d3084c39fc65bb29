"""Files that somebody wrote to harm: what is in them is data at worst, when they are loaded and when they are used."""

import importlib
import io
import json
import os
import pickle
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from formulaic import Formula

import fenchel
from fenchel.checks import Refusal
from fenchel.files import statements
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit, Poisson
from fenchel.models.compiler import Scope
from fenchel.models.evaluating import ExpressionValue
from fenchel.models.expressions import NotAllowed, read, without_backticks
from fenchel.models.grammar import parse
from fenchel.priors import DenseCovariance

PLACE = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(PLACE))

import files_fuzz  # noqa: E402
from fuzzing import canary  # noqa: E402
from fuzzing.archives import hostile_texts  # noqa: E402
from fuzzing.attacks import ATTACKS  # noqa: E402

sys.path.remove(str(PLACE))

MUTATIONS = 60


@pytest.fixture(scope="module")
def frame():
    chance = np.random.default_rng(0)
    out = pd.DataFrame(
        {"x": chance.uniform(1, 3, 30), "z": chance.normal(size=30), "a": chance.choice(list("pqr"), 30)}
    )
    return out.assign(**{"odd name": chance.normal(size=30), "k": np.arange(30) % 4})


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return files_fuzz.Arena(tmp_path_factory.mktemp("arena"), ("base", "classifier", "draws"), thoroughly=False)


def evaluated(text, frame, **variables):
    return ExpressionValue(frame, variables, {}).of(read(text))


# -- the evaluator -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "x + 2*z - x/z // 0.5 % 3",
        "-x**2 + (+z) + abs(z)",
        "(x > 2) & (z < 0) | ~(x != z)",
        "(x >= 2) * z + (k == 3) + (k <= 1)",
        "np.where(x > 2, np.log(x), np.exp(-z)) + np.pi",
        "np.clip(z, -1, a_max=1) + np.round(x, 2) + np.arctan2(x, z)",
        "np.sqrt(x) * 1e-3 + 10**20 / 3",
        "1 < 2 < 3 and not 3 > 4",
        "2 if 3 > 4 else (5 or 6)",
        "round(2.345, 2) + int(3.9) + float(True) + len(x) + min(3, 4) + max([1, 2])",
        "min(x) + max(z)",
        "9**9 % 7",
        "{'a': x, 'b': z}",
        "c * x + d",
    ],
)
def test_values_are_those_of_python(frame, text):
    given = {"c": 3.0, "d": np.arange(30.0)}
    ours, python = evaluated(text, frame, **given), eval(text, {"np": np, **given, **{n: frame[n] for n in frame}})
    if isinstance(ours, dict):
        assert all(np.array_equal(ours[key], python[key]) for key in python)
    else:
        assert np.array_equal(ours, python)
        assert type(ours) is type(python)


@pytest.mark.parametrize(
    "text",
    [
        "np.log(x) + scale(z) + center(`odd name`) + C(a)",
        "poly(x, 2) + bs(z, df=4, degree=2) + cr(x, df=4) + cc(z, df=3)",
        "C(a, contr.sum):z + C(k, contr.treatment(2)) + C(k, contr.helmert) + C(a, Treatment('q'))",
        "I(x**2) + standardize(z) + hashed(a, levels=3) + C(a, levels=['r', 'q', 'p'])",
        "log(x) + exp(z) + log10(x) + C(a, contr.custom({'one': [1, 0, -1]})) + scale(center(x), ddof=0)",
        "I(`odd name` * x) + I(x > 2) + np.where(z > 0, z, -1.0)",
    ],
)
def test_columns_are_those_of_formulaic(frame, text):
    """formulaic evaluates by Python: at the rows of the fit and at others, also with the state that it left."""
    theirs = Formula(text).get_model_matrix(frame, na_action="ignore")
    scope = Scope(parse(f"y ~ {text}"), list(frame.columns), {}, {}, {}, frame, python=False)
    ours = scope.expression(text)
    assert np.array_equal(ours.evaluate(frame), np.asarray(theirs, dtype=float))
    assert ours.columns == list(theirs.columns)
    assert {str(f): {str(v) for v in vs} for f, vs in ours.spec.factor_variables.items()} == {
        str(f): {str(v) for v in vs} for f, vs in theirs.model_spec.factor_variables.items()
    }
    new = frame.iloc[5:25].reset_index(drop=True)
    again = theirs.model_spec.get_model_matrix(new, na_action="ignore")
    assert np.array_equal(ours.evaluate(new), np.asarray(again, dtype=float))
    ours.spec = theirs.model_spec  # the state of formulaic's own evaluation is ours too
    assert np.array_equal(ours.evaluate(new), np.asarray(again, dtype=float))


@pytest.mark.parametrize("text", hostile_texts("/nowhere/canary"))
def test_what_is_no_arithmetic_is_refused_at_once(frame, text):
    begun = time.perf_counter()
    with pytest.raises((NotAllowed, NameError, OverflowError)):
        evaluated(text, frame, y=1.0)
    assert time.perf_counter() - begun < 2.0


def test_more_that_is_refused(frame):
    wide = np.zeros((30, 1))
    for text in (
        *(
            "x << 3",
            "x @ z",
            "x ^ z",
            "x[0]",
            "x.sum()",
            "f(x)",
            "np.sum(x)",
            "np.frompyfunc(x, 1, 1)",
            "a * 3",
            "a - a",
        ),
        *(f"({'-' * 2000}x)(1)", f"({'-' * 2000}x).a"),
        *("'a' % 3", "'a' + 'b'", "x + w", "np.log(x, out=x)", "np.log(x, z)", "C(*a)", "C(**a)", "b'1'", "1j", "..."),
        *("np.add(x, z, z)", "C(a, f)", "lag(x, **{'k': 1})", "np.log(10**30)", "x * 10**30", "(2**500) ** 2", "{**a}"),
        *("C(a, contr.__class__)", "contr.treatment.__init__", "np.random.rand", "np.pi.real", "poly(x, degree=9999)"),
        *(
            "bs(x, knots=long)",
            "x + None",
            "x + [1]",
            "(-8)**0.5",
            "round(x, 10**9)",
            "hashed(a, 3, None, hash_func=abs)",
        ),
    ):
        with pytest.raises((NotAllowed, NameError)):
            evaluated(text, frame, w=wide, long=np.arange(9000.0), f=len)


def test_columns_without_end_are_refused_at_once(frame):
    """Splines take a time of degree times columns, polynomials of several columns their product in memory."""
    begun = time.perf_counter()
    for text in (
        *("bs(x, degree=4000)", "bs(x, df=4000, degree=60)", "bs(x, df=many)", "bs(x, degree=many)", "cr(x, df=1e9)"),
        *("poly(poly(x, 60), 3)", "poly(poly(x, 60), 60, raw=True)", "bs(x, knots=long)", "C(a, levels=long)"),
        *("hashed(a, levels=many)", "poly(x, float(many))", "bs(x, df=np.inf)"),
    ):
        with pytest.raises(NotAllowed):
            evaluated(text, frame, many=np.int64(10**9), long=list(range(9000)))
    assert evaluated("poly(x, 5)", frame).shape == (30, 5)
    assert time.perf_counter() - begun < 1.0


def test_names_in_backticks():
    assert without_backticks("f(`odd name`, \"`\", '`x`') + odd_name") == (
        "f( odd_name_ , \"`\", '`x`') + odd_name",
        {"odd_name_": "odd name"},
    )
    assert sorted(read("`1a` + `class` + `a-b` + `a_b`").names()) == ["1a", "a-b", "a_b", "class"]


# -- files ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(arena, name):
    ending, faults = arena.judge(ATTACKS[name].kind, *arena.attacked(name))
    assert not faults, ending


def test_mutations_with_right_checksums(arena):
    words, wrong = set(), []
    for i in range(MUTATIONS):
        kind, names, content, arrays = arena.mutation(3, i)
        ending, faults = arena.judge(kind, content, arrays)
        words.add(ending.word)
        wrong += [(i, names, faults)] if faults else []
    assert not wrong
    assert {"refused", "same"} <= words <= {"refused", "same", "other", "raised", "memory"}


@pytest.mark.parametrize(
    ("word", "act"),
    [
        ("os.system", lambda path: os.system("true")),
        ("write", lambda path: open(path, "w").close()),
        ("read", lambda path: open("/etc/hostname").close()),
        ("pickle.find_class", lambda path: pickle.loads(b"cos\ngetcwd\n.")),
        ("exec", lambda path: eval("len('abc')")),
        ("import", lambda path: sys.modules.setdefault("nobodys", sys)),
        ("subprocess.Popen", lambda path: subprocess.run(["true"], check=True)),
    ],
)
def test_the_watcher_sees_what_runs(tmp_path, word, act):
    path = tmp_path / "case"
    path.write_bytes(b"")
    ending = canary.run_case(path, lambda made: b"", b"", lambda p: act(tmp_path / "other"), "/nowhere")
    assert any(event.startswith(word) for event in ending.events)


def test_a_changed_byte_is_refused(arena, tmp_path):
    """A byte in sixty places of the members: the checksum of the archive says so, or nothing reads it."""
    content, arrays = arena.parts["base"]
    path = tmp_path / "case"
    files_fuzz.archives.write(path, content, arrays)
    whole, heard = path.read_bytes(), 0
    with zipfile.ZipFile(path) as archive:
        info = archive.infolist()
        ends = info[0].header_offset + 60, info[-1].header_offset + 60
        inside = np.linspace(*ends, 60).astype(int).tolist()
    expected = arena.expected["base"]
    for at in inside:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            assert arena.used(fenchel.load(path)) == expected
        except Refusal:
            heard += 1
    assert heard > 0.9 * len(inside)


def test_another_digest_is_refused_before_the_file_is_read(arena, tmp_path):
    content, arrays = arena.parts["base"]
    path = tmp_path / "case"
    files_fuzz.archives.write(path, content, arrays)
    digest = fenchel.files.digest(path)
    assert arena.used(fenchel.load(path, sha256=digest.upper())) == arena.expected["base"]
    path.write_bytes(b"not a file of ours")
    with pytest.raises(
        Refusal, match=rf"has the sha256 {fenchel.files.digest(path)}; expected {digest}: it is another"
    ):
        fenchel.load(path, sha256=digest)
    for odd in ("", "abc", 3, digest[:-1], digest[:-1] + "g"):
        with pytest.raises(Refusal, match="expected 64 hexadecimal digits"):
            fenchel.load(path, sha256=odd)


def test_skops_hands_over_json_alone():
    """A state without the mark was taken as it came: skops would fill any attribute of a trusted class."""
    sio = pytest.importorskip("skops.io")
    model = fenchel.ProbabilisticPCA(1)
    plain = sio.dumps(model)
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        schema = json.loads(archive.read("schema.json"))
        kept = {name: archive.read(name) for name in archive.namelist() if name != "schema.json"}
    ufunc = {"__class__": "absolute", "__module__": "numpy", "__loader__": "FunctionNode", "__id__": 7}
    key = {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode", "__id__": 8}
    keys = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [key], "__id__": 9}
    schema["content"] = {
        **{"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode", "__id__": 10},
        **{"content": {"transform": ufunc}, "key_types": keys},
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("schema.json", json.dumps(schema))
        for name, data in kept.items():
            archive.writestr(name, data)
    with pytest.raises(Refusal, match="what it has of ProbabilisticPCA is damaged"):
        sio.loads(out.getvalue(), trusted=fenchel.files.TRUSTED)
    assert repr(pickle.loads(pickle.dumps(model))) == repr(model)


# -- what a file may name ------------------------------------------------------------------------------------
def test_a_file_calls_only_what_makes_objects():
    """Classes that are ``Stated``, and functions and fits that are ``stated``: none opens a path or runs a program."""
    for package in statements.PACKAGES:
        importlib.import_module(f"fenchel.{package}")
    functions = {word for word, maker in statements._makers.items() if not isinstance(maker, type)}
    assert all(word.split(".")[-1] in {*FUNCTIONS} for word in functions), functions
    assert {"n_jobs", "checkpoint", "callback"} <= statements.NEVER


FUNCTIONS = ("infer", "learn", "integrate", "grid", "mesh_of", "fit", "corrected", "importance", "evidence_bounds")


# -- what a file claims --------------------------------------------------------------------------------------
@pytest.mark.parametrize("bound", ["tilted", "exact"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda fit: fit.update(elbo=fit["elbo"] + 1e-3), "the elbo of a fit is not that of its sites"),
        (lambda fit: fit.update(alpha=1.01 * fit["alpha"]), "of a fit is not that of its sites"),
        (lambda fit: fit.update(lam=1.5 * fit["lam"]), "of a fit is not that of its sites"),
        (lambda fit: fit.update(gap=-1.0), "the gap of a fit is negative"),
        (lambda fit: fit.update(alpha=fit["alpha"][1:]), "another shape than its rows"),
        (lambda fit: fit.update(lam=-fit["lam"]), "of a fit is not that of its sites|positive"),
        (lambda fit: fit.update(lam=np.nan * fit["lam"]), "of a fit is not that of its sites"),
    ],
)
def test_a_certificate_that_the_sites_do_not_give_is_refused(tmp_path, bound, change, said):
    rng = np.random.default_rng(0)
    prior = DenseCovariance(np.exp(-0.5 * np.subtract.outer(np.arange(20), np.arange(20)) ** 2))
    fit = fenchel.infer(BernoulliLogit(bound), prior, rng.integers(0, 2, 20))
    fit.save(tmp_path / "good")
    assert fenchel.load(tmp_path / "good").gap == fit.gap
    forged = fit.__dict__["_statement"]
    change(forged.found[0])
    fit.save(tmp_path / "forged")
    with pytest.raises(Refusal, match=said):
        fenchel.load(tmp_path / "forged")


@pytest.mark.parametrize("bound", ["log-sum", "tilted", "exact"])
@pytest.mark.parametrize(
    "change",
    [
        lambda fit: fit.update(elbo=fit["elbo"] + 1e-3),
        lambda fit: fit.update(alpha=1.01 * fit["alpha"]),
        lambda fit: fit.update(lam=1.5 * fit["lam"]),
        lambda fit: fit["alpha"].__setitem__((slice(None), 1), 0.0),
        lambda fit: fit.update(alpha=0.9 * fit["alpha"], certificate="stationarity"),
    ],
)
def test_a_certificate_of_three_classes_is_one_of_all_their_predictors(tmp_path, bound, change):
    prior = DenseCovariance(np.exp(-0.5 * np.subtract.outer(np.arange(20), np.arange(20)) ** 2))
    y = np.random.default_rng(0).integers(0, 3, 20)
    fit = fenchel.infer(MultinomialLogit(3, bound=bound), prior, y)
    fit.save(tmp_path / "good")
    assert fenchel.load(tmp_path / "good").gap == fit.gap
    change(fit.__dict__["_statement"].found[0])
    fit.save(tmp_path / "forged")
    with pytest.raises(Refusal, match="of a fit is not that of its sites"):
        fenchel.load(tmp_path / "forged")


def test_a_fit_that_has_not_converged_is_no_certificate(tmp_path):
    """The numbers of an early stop are right; with the gap of the optimum they are not."""
    prior, y = DenseCovariance(np.eye(20) + 1.0), np.random.default_rng(0).poisson(3.0, 20)
    early = fenchel.infer(Poisson(), prior, y, max_iter=1, tol=1e-12)
    early.save(tmp_path / "early")
    assert fenchel.load(tmp_path / "early").gap == early.gap > 1e-6
    early.__dict__["_statement"].found[0]["gap"] = 0.0
    early.save(tmp_path / "early")
    with pytest.raises(Refusal, match="the gap of a fit is not that of its sites"):
        fenchel.load(tmp_path / "early")


def test_results_of_searches_in_another_order_or_number_are_refused(tmp_path, frame):
    fit = fenchel.fit("z ~ x + (1|a)", frame)
    found = fit.__dict__["_statement"].found
    for change, said in (
        (lambda: found.append(dict(found[0])), "a result too many"),
        (lambda: found.clear(), "it has no result of learn"),
        (lambda: found.append({"of": "fit"}), "it has no result of learn"),
    ):
        change()
        fit.save(tmp_path / "a")
        with pytest.raises(Refusal, match=said):
            fenchel.load(tmp_path / "a")


def test_a_file_that_names_another_file_is_refused(tmp_path, frame):
    """Outlines in a file of GeoJSON are read when the mesh is made, and kept with the model."""
    ring = [[0.0, -4.0], [4.0, -4.0], [4.0, 4.0], [0.0, 4.0], [0.0, -4.0]]
    coast = tmp_path / "coast.json"
    coast.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    made = fenchel.mesh(frame[["x", "z"]].to_numpy(), boundary=str(coast), edge=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a coarse mesh
        fit = fenchel.fit("k ~ matern(x, z, mesh=made)", frame, "poisson", env={"made": made})
    fit.save(tmp_path / "a")
    coast.unlink()
    assert np.array_equal(fenchel.load(tmp_path / "a").predict(frame), fit.predict(frame))


def test_rows_that_were_changed_after_the_fit_are_not_saved(tmp_path):
    """A linear model refers to its X; the file must hold the rows that were fitted."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    y = X[:, 0] + 0.1 * np.arange(50)
    fit = fenchel.BayesianLinearRegression().fit(X, y)
    fit.save(tmp_path / "a")
    assert np.array_equal(fenchel.load(tmp_path / "a").coef_, fit.coef_)
    X[[3, 4]] = X[[4, 3]]
    with pytest.raises(Refusal, match="X was changed in place after the fit"):
        fit.save(tmp_path / "a")
    table = pd.DataFrame(X, columns=list("abc"))
    fit = fenchel.BayesianLinearRegression().fit(table, y)
    table["a"] = 0.0
    fit.save(tmp_path / "a")
    again = fenchel.load(tmp_path / "a")
    assert again.feature_names_in_.tolist() == list("abc")
    assert np.array_equal(again.coef_, fit.coef_)


def test_an_attribute_of_ones_own_is_not_kept(tmp_path):
    model = fenchel.ProbabilisticPCA(1)
    model.note = "mine"
    model.save(tmp_path / "a")
    assert not hasattr(fenchel.load(tmp_path / "a"), "note")


# -- the command line, and Python ----------------------------------------------------------------------------
def test_a_formula_on_the_command_line_runs_nothing(frame, tmp_path):
    from click.testing import CliRunner

    from fenchel.cli import main

    mark, table = tmp_path / "canary", tmp_path / "d.csv"
    frame.assign(y=frame.x).to_csv(table, index=False)
    run = f"__import__('os').system('touch {mark}')"
    for formula, options in (
        (f"y ~ x + I(0*x + {run})", []),
        (f"np.log({run}) ~ x", []),
        (f"y ~ x + offset({run})", []),
        (f"y ~ (1 + I({run})|a)", []),
        (f"y ~ s(x, k={run})", []),
        (f"y ~ (1|gr(a, cov={run}))", []),
        ("y ~ x", ["--prior", f"x=normal({run}, 1)"]),
        ("y ~ x", ["--exposure", run]),
        ("y ~ x", ["--weights", run]),
        ("y ~ x", ["--family", run]),
        ("y ~ I(9**9**9 * x)", []),
        ("y ~ x.sum()", []),
        ("y ~ open('x')", []),
    ):
        ran = CliRunner().invoke(
            main, ["fit", formula, str(table), "--out", str(tmp_path / "out"), "--quiet", *options]
        )
        assert ran.exit_code == 1, formula
        assert ran.output.startswith("Error: "), ran.output
        assert not mark.exists(), formula
    ran = CliRunner().invoke(main, ["fit", f"y ~ x + I({run})", str(table), "--out", str(tmp_path / "out")])
    assert "expected arithmetic, comparisons, np.log and its like, and formulaic's own transforms" in ran.output


def test_a_formula_in_python_calls_functions_of_its_scope(frame):
    def half(v):
        return v / 2

    data = frame.assign(y=frame.x + frame.z)
    own, plain = fenchel.fit("y ~ half(x) + z.clip(-1, 1)", data), fenchel.fit("y ~ I(x/2) + np.clip(z, -1, 1)", data)
    assert np.array_equal(own.predict(data), plain.predict(data))
    assert list(own.coefficients.index) == ["Intercept", "half(x)", "z.clip(-1, 1)"]
