"""``fenchel fit`` and ``fenchel predict``, as somebody with files and a shell uses them."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from test_models_report import grid

import fenchel
from fenchel.checks import Refusal
from fenchel.cli import main
from fenchel.models.sources import read_matrix, read_pairs, read_prior, read_table


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
    assert ran.stdout.startswith("converged: gap")
    assert str(out / "report.html") in ran.stdout
    assert (out / "summary.txt").read_text().startswith("converged: gap")
    fit = fenchel.fit("k ~ x + icar(region) + (1|name)", data, "poisson", graphs={"region": grid()})
    table = pd.read_csv(out / "coefficients.csv", index_col=0)
    assert np.allclose(table.loc["x", "mean"], fit.coefficients.loc["x", "mean"], rtol=1e-12)
    assert len(pd.read_csv(out / "hyperparameters.csv")) == 2
    assert len(pd.read_csv(out / "effects" / "icar-region.csv")) == 16
    assert (out / "effects" / "1-name.csv").exists()
    rows = pd.read_csv(out / "predictions.csv")
    assert list(rows.columns) == [*data.columns, "mean", "lower", "upper"]
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
    assert list(pd.read_csv(files / "there.csv").columns[-3:]) == ["predicted_mean", "lower", "upper"]
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
        (["--graph", "code"], "--graph 'code'; expected --graph NAME=FILE"),
    ):
        ran = run(*arguments, *extra, input=text)
        assert ran.exit_code == 1
        assert word in ran.output
        assert "Traceback" not in ran.output


def test_priors_as_text():
    assert read_prior("te(u, v, k=5)=pc(sd=2, alpha=0.1)") == ("te(u, v, k=5)", fenchel.PC(2.0, 0.1))
    name, prior = read_prior("x:z = Normal(-1, 2e-1)")
    assert (name, prior.mean, prior.sd) == ("x:z", -1.0, 0.2)
    assert read_prior("(1|g)=flat") == ("(1|g)", None)
    for wrong in ("x=normal(1)", "x=flat(1)", "x=pc()", "=pc(1)", "x=normal(a, b)"):
        with pytest.raises(Refusal, match="--prior"):
            read_prior(wrong)


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
