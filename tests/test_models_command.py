"""``fenchel fit`` and ``fenchel predict``, as somebody with files and a shell uses them."""

import io
import json
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from conftest import reads_repository
from test_models_report import grid

import fenchel
from fenchel.checks import Refusal
from fenchel.cli import main
from fenchel.models.command_files import read_matrix, read_pairs, read_prior, read_priors, read_table


def run(*arguments, **options):
    return CliRunner().invoke(main, [str(a) for a in arguments], **options)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({"region": np.repeat(np.arange(16), 6), "year": np.tile(np.arange(2000, 2006), 16)})
    out["x"], out["name"] = rng.normal(size=96), [f"d{k}" for k in out.region]
    out["k"] = rng.poisson(np.exp(1 + 0.3 * out.x + 0.2 * (out.region % 4)))
    out["code"] = [f"0{k}" for k in out.region]
    return out


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    where = tmp_path_factory.mktemp("command")
    data.to_csv(where / "data.csv", index=False)
    (where / "map.geojson").write_text(json.dumps(grid()))
    return where


@pytest.fixture(scope="module")
def fitted(files):
    arguments = ["fit", "k ~ x + icar(region) + (1|name)", files / "data.csv", "--family", "poisson"]
    arguments += ["--geometry", files / "map.geojson", "--out", files / "out", "--predict", files / "data.csv"]
    return run(*arguments), files / "out"


def test_everything_is_written(fitted, data):
    ran, out = fitted
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[1].startswith("converged: gap")
    assert str(out / "report.html") in ran.stdout
    assert (out / "summary.txt").read_text().startswith("Gaussian at the mode")
    fit = fenchel.fit("k ~ x + icar(region) + (1|name)", data, "poisson", graphs={"region": grid()})
    table = pd.read_csv(out / "coefficients.csv", index_col=0)
    assert np.allclose(table.loc["x", "mean"], fit.coefficients.loc["x", "mean"], rtol=1e-12)
    assert len(pd.read_csv(out / "hyperparameters.csv")) == 2
    assert len(pd.read_csv(out / "effects" / "icar-region.csv")) == 16
    assert (out / "effects" / "1-name.csv").exists()
    rows = pd.read_csv(out / "predictions.csv")
    assert list(rows.columns) == [*data.columns, "mean", "sd", "lower", "upper"]
    assert np.allclose(rows["mean"], fit.predict(data), rtol=1e-10)
    assert not list(out.rglob("*.part"))
    assert "A map of" in (out / "report.html").read_text(encoding="utf-8")


def test_a_saved_model_predicts(fitted, files, data):
    _, out = fitted
    ran = run("predict", out / "fit.model", files / "data.csv", "--interval", 0.5)
    assert ran.exit_code == 0, ran.output
    rows = pd.read_csv(io.StringIO(ran.stdout))
    same = pd.read_csv(out / "predictions.csv")
    assert np.allclose(rows["mean"], same["mean"], rtol=1e-12)
    assert (rows["upper"] < same["upper"]).all()
    data.head(3).assign(name="new", mean=1.0).to_csv(files / "new.csv", index=False)
    ran = run("predict", out / "fit.model", files / "new.csv", "--out", files / "there.csv")
    assert ran.stdout.strip() == str(files / "there.csv")
    assert list(pd.read_csv(files / "there.csv").columns[-4:]) == ["predicted_mean", "sd", "lower", "upper"]
    ran = run("predict", out / "fit.model", files / "new.csv", "--new-groups", "error")
    assert ran.exit_code == 1
    assert "that fit has not seen: 'new'" in ran.output
    ran = run("predict", files / "data.csv", files / "new.csv")
    assert ran.exit_code == 1
    assert "Traceback" not in ran.output


def test_names_of_regions(files, data, tmp_path):
    common = [files / "data.csv", "--family", "poisson", "--geometry", files / "map.geojson", "--out", tmp_path]
    ran = run("fit", "k ~ icar(name)", *common, "--id", "name", "--quiet")
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.strip() == str(tmp_path / "report.html")
    wrong = run("fit", "k ~ icar(name)", *common, "--id", "nope")
    assert "has no property 'nope'; expected one of name" in wrong.output
    padded, bare = grid(), grid()
    for feature in padded["features"]:
        feature["id"] = f"0{feature['id']}"
    for feature in bare["features"]:
        del feature["id"]
    for outlines, formula in ((padded, "k ~ icar(code)"), (bare, "k ~ icar(name)")):
        (tmp_path / "other.geojson").write_text(json.dumps(outlines))
        common[4] = tmp_path / "other.geojson"
        ran = run("fit", formula, *common, "--quiet")
        assert ran.exit_code == 0, ran.output
    ran = run("predict", tmp_path / "fit.model", files / "data.csv")
    assert ran.exit_code == 0, ran.output
    ran = run("fit", "k ~ icar(year)", *common)
    assert "feature 0 of" in ran.output
    assert "has no id" in ran.output


def test_graphs_matrices_priors_and_standard_input(files, data, tmp_path):
    pairs = [(f"0{i}", f"0{j}") for i in range(16) for j in range(i) if i - j == 1]
    pd.DataFrame([*pairs, ("island", "")], columns=["a", "b"]).to_csv(tmp_path / "pairs.csv", index=False)
    near = read_pairs(tmp_path / "pairs.csv")
    assert near["01"] == ["00", "02"]
    assert near["island"] == []
    names = [f"d{k}" for k in range(16)]
    A = pd.DataFrame(0.5 ** np.abs(np.subtract.outer(np.arange(16), np.arange(16))), index=names, columns=names)
    A.to_csv(tmp_path / "A.csv")
    assert np.array_equal(read_matrix(tmp_path / "A.csv"), A)
    arguments = ["fit", "k ~ x + icar(code) + (1|gr(name, cov=A))", "-", "--family", "poisson", "--out", tmp_path]
    arguments += ["--graph", f"code={tmp_path / 'pairs.csv'}", "--matrix", f"A={tmp_path / 'A.csv'}", "--text", "code"]
    arguments += ["--prior", "x=normal(0, 0.001)", "--prior", "icar(code)=pc(0.5, 0.05)"]
    text = data.to_csv(index=False)
    ran = run(*arguments, input=text)
    assert ran.exit_code == 0, ran.output
    assert abs(pd.read_csv(tmp_path / "coefficients.csv", index_col=0).loc["x", "mean"]) < 0.01
    assert "P(sd > 0.5) = 0.05" in ran.stdout
    assert "N(0, 0.001^2)" in ran.stdout
    for extra, word in (
        (["--prior", "x=cauchy(1)"], "--prior 'x=cauchy(1)'; expected"),
        (["--prior", "nope=flat"], "priors name 'nope'"),
        (["--text", "nope"], "--text 'nope' is no column"),
        (["--graph", "code"], "--graph 'code'; expected --graph NAME=VALUE"),
    ):
        ran = run(*arguments, *extra, input=text)
        assert ran.exit_code == 1
        assert word in ran.output
        assert "Traceback" not in ran.output


def test_priors_as_text():
    assert read_prior("te(u, v, k=5)=pc(sd=2, alpha=0.1)") == (["te(u, v, k=5)"], fenchel.PC(2.0, 0.1))
    assert read_prior("(1 | g)=pc(alpha=.1, sd=2)") == (["(1 | g)"], fenchel.PC(2.0, 0.1))
    assert read_prior("phi of ar1(t)=PC(phi=1/2, alpha=0.9, base=1)")[1] == fenchel.PC(phi=0.5, alpha=0.9, base=1)
    names, prior = read_prior("x:z = Normal(-1, 2e-1)")
    assert (names, prior.mean, prior.sd) == (["x:z"], -1.0, 0.2)
    assert read_prior("`a of b`=flat") == (["a of b"], None)
    several = ["sd of (1|g) of zero=pc(2)", "x of zero=normal(0, 1)", "size=flat"]
    sd, x = fenchel.PC(2.0), fenchel.Normal(0.0, 1.0)
    assert read_priors(several) == {"zero": {"(1|g)": {"sd": sd}, "x": x}, "size": None}
    for wrong in ("x=normal(1)", "x=flat(1)", "x=pc()", "=pc(1)", "x=normal(a, b)", "x=pc(1, 2, 3)", "x=pc(1, sd=2)"):
        with pytest.raises(Refusal, match="--prior"):
            read_prior(wrong)
    for twice in (["x=flat", "x=flat"], ["g=flat", "sd of g=pc(1)"]):
        with pytest.raises(Refusal, match="has a prior already"):
            read_priors(twice)


NO_OPTIONS = {
    "terms": "objects of Python",
    "progress": "shown where standard error is a terminal, and not with --quiet",
    "checkpoint": "a pickle, which runs what it holds",
}


@reads_repository
def test_every_option_of_fit_is_one_of_the_command():
    of_fit = [*signature(fenchel.Model).parameters, *list(signature(fenchel.Model.fit).parameters)[1:]]
    of_command = [option.name for option in main.commands["fit"].params]
    lacking = [name for name in of_fit if not name.startswith("_") and name not in of_command]
    assert lacking == list(NO_OPTIONS)
    page = (Path(__file__).parent.parent / "docs" / "command_line.md").read_text(encoding="utf-8")
    for option in main.commands["fit"].params:
        if option.param_type_name == "option":
            assert option.help
            assert f"`{option.opts[0]}" in page
    assert all(f"`{name}=`" in page for name in NO_OPTIONS)


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    rng = np.random.default_rng(1)
    out = pd.DataFrame({"g": np.repeat(np.arange(10), 8), "x": rng.normal(size=80), "sex": np.tile(["f", "m"], 40)})
    eta = 0.4 + 0.5 * out.x + rng.normal(size=10)[out.g] * 0.6
    out["sick"] = np.where(rng.random(80) < 1 / (1 + np.exp(-eta)), "yes", "no")
    out["grade"] = np.array(["low", "mid", "high"])[np.clip((eta + rng.logistic(size=80)).round(), 0, 2).astype(int)]
    out["n"], out["k"] = 1 + out.g % 3, np.where(rng.random(80) < 0.4, 0, 1 + rng.poisson(np.exp(eta)))
    out["days"], out["died"], out["z"] = (
        rng.exponential(np.exp(-eta)),
        rng.integers(0, 2, 80),
        eta + rng.normal(size=80),
    )
    path = tmp_path_factory.mktemp("people") / "people.csv"
    out.to_csv(path, index=False)
    return out, path


@pytest.mark.parametrize(
    ("formula", "family", "options", "asked"),
    [
        ("z ~ x + (1|g)", "gaussian", ["--dispersion", "~ x", "--weights", "n"], {"dispersion": "~ x", "weights": "n"}),
        (
            "z ~ x",
            "gaussian",
            ["--fixed-sd", "0.1", "--bound", "best", "--tol", "1e-9"],
            {"fixed_sd": 0.1, "tol": 1e-9},
        ),
        ("sick ~ sex", "bernoulli", ["--reference", "sex=m", "--reference", "sick=yes"], {}),
        ("grade ~ x", "ordinal", ["--levels", "grade=low, mid, high"], {}),
        ("z ~ x + (1|g)", "gaussian", ["--levels", f"g={','.join(map(str, range(12)))}"], {"levels": {"g": range(12)}}),
        ("cens(days, died) ~ x", "cox", ["--baseline", "free"], {"baseline": "free"}),
        ("n ~ (1|g)", "poisson", ["--integrate", "grid", "--jobs", "1"], {"integrate": "grid"}),
        ("sick ~ x + (1|g)", "bernoulli", ["--evidence", "corrected", "--seed", "1"], {"evidence": "corrected"}),
        (
            "z ~ x + (1|g)",
            "gaussian",
            ["--engine", "iterative", "--probes", "8"],
            {"engine": "iterative", "n_probes": 8},
        ),
        (
            "k ~ x",
            "hurdle-poisson",
            ["--zero", "~ x", "--prior", "x of zero=normal(0, 0.1)"],
            {"zero": "~ x", "priors": {"zero": {"x": fenchel.Normal(0, 0.1)}}},
        ),
    ],
)
def test_options_do_what_they_do_in_python(people, tmp_path, formula, family, options, asked):
    data, path = people
    new = [] if family == "cox" else ["--predict", path]
    ran = run("fit", formula, path, "--family", family, *options, *new, "--out", tmp_path, "--quiet")
    assert ran.exit_code == 0, ran.output
    grades = pd.Categorical(data.grade, categories=["low", "mid", "high"], ordered=True)
    data = data.assign(
        grade=grades, sex=pd.Categorical(data.sex, ["m", "f"]), sick=pd.Categorical(data.sick, ["yes", "no"])
    )
    fit = fenchel.fit(formula, data if "--reference" in options or family == "ordinal" else people[0], family, **asked)
    table = pd.read_csv(tmp_path / "coefficients.csv")
    assert np.allclose(table["mean"], fit.coefficients["mean"], rtol=1e-6)
    assert np.allclose(table["sd"], fit.coefficients["sd"], rtol=1e-6)
    assert len(pd.read_csv(tmp_path / "hyperparameters.csv")) == len(fit.hyperparameters)
    again = fenchel.load(tmp_path / "fit.model")
    assert np.allclose(again.coefficients["mean"], fit.coefficients["mean"], rtol=1e-6)
    if new:
        assert len(pd.read_csv(tmp_path / "predictions.csv")) == len(data)


def test_a_hurdle_predicts_and_reports_both_parts(people, tmp_path):
    data, path = people
    options = ["--family", "hurdle-poisson", "--zero", "~ x + (1|g)", "--corrected", "--quiet"]
    ran = run("fit", "k ~ x", path, *options, "--out", tmp_path)
    assert ran.exit_code == 0, ran.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.index(">Counts above 0</h2>") < page.index(">Zeros</h2>")
    ran = run("predict", tmp_path / "fit.model", path, "--kind", "zero", "--without", "groups")
    rows = pd.read_csv(io.StringIO(ran.stdout))
    fit = fenchel.fit("k ~ x", data, "hurdle-poisson", zero="~ x + (1|g)").corrected()
    assert np.allclose(rows["mean"], fit.predict(data, "zero", without="groups"), rtol=1e-6)


CALL = "__import__('pathlib').Path('ran').touch()"


@pytest.mark.parametrize(
    ("option", "text", "word"),
    [
        ("--zero", f"~ I({CALL})", "is no formula for a command line"),
        ("--dispersion", f"~ I({CALL})", "is no formula for a command line"),
        ("--prior", f"x=pc({CALL})", "expected"),
        ("--prior", f"{CALL}=flat", "priors name"),
        ("--prior", "x=normal(9**9**9, 1)", "is no number"),
        ("--prior", "x=normal(0, nan)", "is no number"),
        ("--prior", "x=normal(0, -1)", "Normal: sd = -1.0"),
        ("--prior", f"x{' of x' * 2000}=flat", "expected"),
        ("--levels", f"g={CALL}", "holds numbers"),
        ("--levels", "sex=m", "row 0 has 'f'"),
        ("--levels", "sex=m,m,f", "names 'm' twice"),
        ("--levels", "nope=a,b", "there is no column 'nope'"),
        ("--reference", "sex=x", "expected one of 'f', 'm'"),
        ("--reference", "g=1", "--text g makes words of them"),
        ("--weights", CALL, "there is no column"),
        ("--bound", "__class__", "is not known"),
        ("--tol", "-1", "tol = -1.0"),
        ("--fixed-sd", "-1", "fixed_sd = -1.0"),
    ],
)
def test_options_that_are_no_such_thing_are_refused(people, tmp_path, monkeypatch, option, text, word):
    monkeypatch.chdir(tmp_path)
    ran = run("fit", "k ~ x", people[1], "--family", "hurdle-negative-binomial", option, text, "--out", tmp_path)
    assert ran.exit_code == 1, ran.output
    assert word in ran.output
    assert "Traceback" not in ran.output
    assert not (tmp_path / "ran").exists()


def test_tables_of_many_tongues(tmp_path):
    for text, shape in (
        ("a,b\n1,2\n", (1, 2)),
        ("a\tb c\n1\t2\n", (1, 2)),
        ("a;b\n1,5;2\n", (1, 2)),
        ("a\n1\n2\n", (2, 1)),
        ('"a,b";c\n1;2\n', (1, 2)),
    ):
        (tmp_path / "t.csv").write_text(text)
        frame = read_table(tmp_path / "t.csv")
        assert frame.shape == shape
        assert all(dtype.kind in "if" for dtype in frame.dtypes)
    pd.DataFrame({"a": ["007"], "b": [1.0]}).to_csv(tmp_path / "t.csv.gz", index=False)
    assert read_table(tmp_path / "t.csv.gz", ["a"])["a"].tolist() == ["007"]
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,2\n")
    with pytest.raises(Refusal, match="cannot be read"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(Refusal, match="is empty"):
        read_table(tmp_path / "t.csv")


def test_what_goes_wrong_is_a_sentence(files, tmp_path):
    common = [files / "data.csv", "--out", tmp_path]
    for formula, word in (
        ("k ~ xx", "there is no column 'xx'"),
        ("k ~ out", "there is no column 'out'"),  # nothing of the program's own is in sight
        ("k ~ frame", "there is no column 'frame'"),
        ("k ~ x +", "k ~ x +"),
        ("k ~ icar(region)", "region"),
    ):
        ran = run("fit", formula, *common)
        assert ran.exit_code == 1, ran.output
        assert ran.output.startswith("Error: ")
        assert word in ran.output
        assert "Traceback" not in ran.output
    (tmp_path / "bad.geojson").write_text("{")
    ran = run("fit", "k ~ icar(region)", *common, "--geometry", tmp_path / "bad.geojson")
    assert "bad.geojson is no JSON" in ran.output
    ran = run("fit", "k ~ x", *common, "--predict", tmp_path / "none.csv")
    assert ran.exit_code == 2
    assert not (tmp_path / "report.html").exists()


def test_warnings_are_lines(files, data, tmp_path):
    data.assign(const=1.0).to_csv(tmp_path / "data.csv", index=False)
    ran = run("fit", "k ~ x + const", tmp_path / "data.csv", "--out", tmp_path)
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.startswith("warning: Model: ")
    assert ".py:" not in ran.stderr


def test_a_fit_that_did_not_converge_says_so_by_its_status(files, tmp_path, monkeypatch):
    never = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(fenchel.models.FittedModel, "converged", never, raising=False)
    ran = run("fit", "k ~ x", files / "data.csv", "--out", tmp_path)
    assert ran.exit_code == 3, ran.output
    assert ran.stdout.startswith("NOT CONVERGED")
    assert (tmp_path / "report.html").exists()


def test_help_has_examples():
    text = run("fit", "--help").output
    assert 'fenchel fit "reaction ~ days + (days|subject)" sleep.csv' in text
    assert "Exit status" in text
    assert "predictions.csv" in run("predict", "--help").output
