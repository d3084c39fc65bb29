"""The command line, and the demo and the reproduction it runs."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse
from scipy.special import ndtr

import fenchel
from fenchel import demo
from fenchel.cli import main
from fenchel.datasets import load_germany
from fenchel.inference import infer
from fenchel.likelihoods import Poisson
from fenchel.paper.reproduce import Result
from fenchel.priors import DenseCovariance
from fenchel.report import Section


def test_version_and_help():
    version = CliRunner().invoke(main, ["--version"])
    assert version.exit_code == 0
    assert fenchel.__version__ in version.output
    text = CliRunner().invoke(main, ["--help"])
    assert text.exit_code == 0
    assert "demo" in text.output
    assert "reproduce" in text.output


def test_help_loads_nothing_heavy():
    code = "import sys, fenchel.cli; print([m for m in ('numpy', 'scipy', 'matplotlib', 'rich') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "here"
    return CliRunner().invoke(main, ["demo", "--out", str(folder)]), folder


def test_demo_prints_a_summary(demo_run):
    outcome, folder = demo_run
    assert outcome.exit_code == 0, outcome.output
    assert ": converged, by its duality certificate" in outcome.stdout
    assert outcome.stdout.index(demo.FORMULA) < outcome.stdout.index("converged: gap") < outcome.stdout.index("by hand")
    assert "leave-one-out elpd" in outcome.stdout
    assert "P(risk > 1)" in outcome.stdout
    assert str(folder / "report.html") in outcome.stdout
    assert "final fit: gap" in outcome.stderr  # progress stays out of the output


def test_demo_report_stands_alone(demo_run):
    text = (demo_run[1] / "report.html").read_text(encoding="utf-8")
    assert text.count("<img ") == text.count("data:image/png;base64,") == 10
    assert text.index("One formula: deaths ~ bym2(district)</h2>") < text.index("The map, read closely</h2>")
    assert all(len(alt) > 20 for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"<(script|link|iframe)\b", text)
    assert not re.search(r"\bnan\b", re.sub(r"base64,[^\"]*", "", text))


def test_demo_in_quiet(tmp_path, monkeypatch):
    for name in ("K_U", "K_V", "K_V_ALONE"):
        monkeypatch.setattr(demo, name, getattr(demo, name)[3:4])
    outcome = CliRunner().invoke(main, ["demo", "--quiet", "--out", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.strip() == str(tmp_path / "report.html")


def test_demo_without_matplotlib(tmp_path, monkeypatch):
    for name in ("K_U", "K_V", "K_V_ALONE"):
        monkeypatch.setattr(demo, name, getattr(demo, name)[3:4])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = CliRunner().invoke(main, ["demo", "--quiet", "--out", str(tmp_path)])
    assert outcome.exit_code == 1
    assert 'pip install "fenchel[plots]"' in outcome.output


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce") / "made" / "here"
    return CliRunner().invoke(main, ["reproduce", "glass", "--quick", "--out", str(folder)]), folder


def test_reproduce_prints_a_summary_and_saves_everything(reproduced):
    outcome, folder = reproduced
    assert outcome.exit_code == 0, outcome.output
    assert "grid points certified" in outcome.stdout
    assert outcome.stdout.strip().endswith(str(folder / "report.html"))
    assert "glass" in outcome.stderr  # progress stays out of the output
    numbers = json.loads((folder / "glass.json").read_text())
    assert numbers["settings"]["quick"] is True
    for name in ("evidence", "bits", "race"):
        assert (folder / f"glass_{name}.png").stat().st_size > 10_000
        assert (folder / f"glass_{name}.svg").read_text().rstrip().endswith("</svg>")


def test_reproduction_report_stands_alone(reproduced):
    text = (reproduced[1] / "report.html").read_text(encoding="utf-8")
    assert text.count("<img ") == text.count("data:image/png;base64,") == 5
    assert all(len(alt) > 20 for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))
    assert "://" not in re.sub(r"base64,[^\"]*", "", text)
    assert not re.search(r"<(script|link|iframe)\b", text)
    assert not re.search(r"\bnan\b", re.sub(r"base64,[^\"]*", "", text))
    anchors = set(re.findall(r'id="([^"]*)"', text))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= anchors
    for word in ("This is a quick run", "cores", "threads of the linear algebra", "total time", fenchel.__version__):
        assert word in text


def test_reproduce_refuses_an_unknown_target_and_says_what_is_missing(tmp_path, monkeypatch):
    outcome = CliRunner().invoke(main, ["reproduce", "glas"])
    assert outcome.exit_code == 2
    assert "'glas' is not one of 'glass', 'germany', 'volatility', 'logistic', 'all'" in outcome.output
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = CliRunner().invoke(main, ["reproduce", "--quick", "--quiet", "--out", str(tmp_path)])
    assert outcome.exit_code == 1
    assert 'pip install "fenchel[plots]"' in outcome.output


def test_reproduce_runs_each_target_once_in_order(tmp_path, monkeypatch):
    asked = []

    def pretend(name):
        def run(settings):
            asked.append((name, settings.quick, settings.jobs, settings.cap, settings.seed))
            return Result(name, name.title(), [Section("One", ["text"])], [f"{name} is done"])

        return SimpleNamespace(run=run)

    for name in ("glass", "germany", "volatility", "logistic"):
        monkeypatch.setitem(sys.modules, f"fenchel.paper.{name}", pretend(name))
    call = ["reproduce", "--jobs", "2", "--cap", "5", "--seed", "3", "--quiet", "--out", str(tmp_path)]
    outcome = CliRunner().invoke(main, call)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.strip() == str(tmp_path / "report.html")
    assert asked == [(name, False, 2, 5.0, 3) for name in ("glass", "germany", "volatility", "logistic")]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count('<h2 class="chapter">') == 4
    assert "<li>germany is done</li>" in text
    asked.clear()
    CliRunner().invoke(main, ["reproduce", "logistic", "glass", "glass", "--quiet", "--out", str(tmp_path)])
    assert [a[0] for a in asked] == ["glass", "logistic"]


def test_the_field_is_the_dense_model():
    """Intercept, intrinsic CAR and independent effects, written out as one covariance."""
    A = sparse.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0.0]]))
    both, alone = demo.fields(A)
    L = np.diag([1.0, 2.0, 1.0]) - A.toarray()
    y, theta = [1.0, 4.0, 0.0], -0.5 * np.log([3.0, 5.0])
    for field, t, K in (
        (both, theta, np.linalg.pinv(L) / 3 + np.eye(3) / 5 + demo.INTERCEPT_VARIANCE),
        (alone, theta[1:], np.eye(3) / 5 + demo.INTERCEPT_VARIANCE),
    ):
        ours = infer(Poisson(), field.at(t), y, tol=1e-12)
        assert ours.elbo == pytest.approx(infer(Poisson(), DenseCovariance((K + K.T) / 2), y, tol=1e-12).elbo, abs=1e-9)


def test_the_chosen_point_is_inside_the_grid_and_the_risks_follow_from_samples():
    result = demo.fit(load_germany())
    assert inside(result.k_u, demo.K_U)
    assert inside(result.k_v, demo.K_V)
    assert result.solution.converged
    assert result.solution.elbo == pytest.approx(result.evidence.max(), abs=1e-4)
    assert result.solution.loo().elpd > result.alone.loo().elpd + 50
    post = result.solution.posterior
    np.testing.assert_allclose(result.excess, ndtr(post.mean / np.sqrt(post.variance)))
    risks = np.exp(post.sample(4000, rng=0))
    np.testing.assert_allclose(result.risk, risks.mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(result.risk_sd, risks.std(axis=0), rtol=0.1)
    np.testing.assert_allclose(result.lower, np.quantile(risks, 0.025, axis=0), rtol=0.04)
    np.testing.assert_allclose(result.upper, np.quantile(risks, 0.975, axis=0), rtol=0.04)
    np.testing.assert_allclose(result.excess, (risks > 1).mean(axis=0), atol=0.04)
    assert 0.5 < result.spatial_share < 1.0


def inside(value: float, grid: tuple[float, ...]) -> bool:
    return grid[0] < value < grid[-1]
