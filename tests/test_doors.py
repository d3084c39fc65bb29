"""What users bring to the doors and find there: where compiled code is kept, names, types, sentences."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fenchel

SOURCE = Path(fenchel.__file__).parent


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}
    env |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)


# -- compiled code ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """The package where numba can write nowhere: a file stands where __pycache__ would, HOME is no folder."""
    top = tmp_path_factory.mktemp("sealed")
    shutil.copytree(SOURCE, top / "fenchel", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "fenchel" / "linalg" / "__pycache__").write_text("")
    (top / "tmp").mkdir()
    return {
        "PYTHONPATH": str(top),
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null/cache",
        "TMPDIR": str(top / "tmp"),
    }


FACTOR = """
import numpy as np, scipy.sparse as sp
from fenchel.linalg import SparseCholesky, _multifrontal
A = sp.csc_array(np.diag(np.full(4, 2.5)) - np.diag(np.ones(3), 1) - np.diag(np.ones(3), -1))
assert abs(SparseCholesky(A).log_det - np.linalg.slogdet(A.toarray())[1]) < 1e-12
print(sum(_multifrontal.factorise.stats.cache_hits.values()), _multifrontal.factorise.stats.cache_path)
"""


@pytest.mark.skipif(os.name == "nt", reason="HOME=/dev/null")
def test_without_a_folder_to_cache_in_the_temporary_one_is_taken(sealed):
    first = _run(FACTOR, **sealed)
    assert first.returncode == 0, first.stderr
    assert first.stdout.split()[0] == "0"
    assert first.stdout.split()[1].startswith(sealed["TMPDIR"])
    assert first.stderr.count("compiling for this computer") == 1  # said once, not once a function
    again = _run(FACTOR, **sealed)
    assert again.stdout.split()[0] == "1"
    assert again.stderr == ""
    folder = next(Path(sealed["TMPDIR"]).glob("fenchel-compiled-*"))
    assert folder.stat().st_mode & 0o077 == 0  # what lies there is run as code
    for data in folder.rglob("*.nb?"):
        data.write_bytes(b"")  # a full disk, a crash
    assert _run(TREE, **sealed).returncode == 0


TREE = """
import numpy as np
from fenchel.linalg import _symbolic
print(_symbolic.postorder(np.array([1, 2, -1])).tolist(), _symbolic.postorder.stats.cache_path)
"""


@pytest.mark.skipif(os.name == "nt", reason="HOME=/dev/null")
@pytest.mark.parametrize("trouble", ["no folder", "another's folder", "a link"])
def test_without_any_folder_nothing_is_kept(sealed, tmp_path, trouble):
    folder = tmp_path / f"fenchel-compiled-{os.getuid()}"
    if trouble == "another's folder":
        folder.mkdir()
        folder.chmod(0o777)  # anybody could leave code there
    if trouble == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    where = "/dev/null/x" if trouble == "no folder" else str(tmp_path)
    out = _run(f"import tempfile; tempfile.tempdir = {where!r}\n" + TREE, **sealed)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "[0, 1, 2] None"


def test_nothing_is_compiled_on_the_way():
    """Slices assigned to slices bring numba's text formatting along, sort() a sort: half of the time it compiled."""
    code = """
import tempfile
import numba, numpy as np, scipy.sparse as sp
from numba.core import event
numba.config.CACHE_DIR = tempfile.mkdtemp()
seen = set()
class Listener(event.Listener):
    def on_start(self, event):
        seen.add(event.data["dispatcher"].py_func.__module__)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
import fenchel
D = np.diff(np.eye(30), axis=0)
prior = fenchel.SparsePrecision(sp.csc_array(D.T @ D + np.eye(30)))
fenchel.infer(fenchel.Poisson(), prior, np.arange(30) % 3).posterior.sample()
print(*sorted(seen))
"""
    out = _run(code, PYTHONPATH=str(SOURCE.parent))
    assert out.returncode == 0, out.stderr
    seen = out.stdout.split()
    assert "fenchel.linalg._multifrontal" in seen
    assert not {"numba.cpython.unicode", "numba.misc.quicksort"} & set(seen)


# -- the front door --------------------------------------------------------------------------------------
def test_every_estimator_stands_at_the_front_door():
    from sklearn.base import BaseEstimator

    from fenchel import estimators

    names = [
        name
        for name in estimators.__all__
        if isinstance(getattr(estimators, name), type) and issubclass(getattr(estimators, name), BaseEstimator)
    ]
    assert len(names) >= 9
    for name in names:
        assert getattr(fenchel, name) is getattr(estimators, name)
        assert name in dir(fenchel)
        assert name in fenchel.__all__
    assert set(fenchel.__all__) == {*fenchel._HOME, *fenchel._ROOMS, "__version__"}


def test_a_look_at_the_names_loads_nothing():
    out = _run("import sys, fenchel; dir(fenchel); print('sklearn' in sys.modules)", PYTHONPATH=str(SOURCE.parent))
    assert out.stdout.strip() == "False"


# -- what is printed, and where ----------------------------------------------------------------------------
def _counts(n=12):
    x = np.linspace(0, 3, n)
    return np.exp(-0.5 * (x[:, None] - x) ** 2), np.round(3 + 2 * np.sin(3 * x))


def test_leave_one_out_prints_a_line():
    K, y = _counts()
    y[3] = np.nan
    loo = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K), y).loo()
    seen = loo.log_density[~np.isnan(loo.log_density)]
    line = repr(loo)
    assert "array" not in line
    assert "\n" not in line
    assert f"elpd={seen.sum():.4f}" in line
    assert "11 of 12 rows observed" in line
    assert f"(row {int(np.nanargmin(loo.log_density))})" in line
    assert loo.elpd_se == pytest.approx(np.sqrt(11 * seen.var(ddof=1)))
    nothing = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K), np.full(12, np.nan)).loo()
    assert repr(nothing) == "LeaveOneOut(none of 12 rows observed)"


def test_summary_of_a_learned_fit_shows_the_tolerance_asked_for():
    from sklearn.gaussian_process.kernels import RBF

    from fenchel.hyperparameters import KernelCovariance, learn

    x = np.linspace(0, 6, 30)[:, None]
    y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    for tol in (1e-6, 1e-8, 1e-10):
        found = learn(fenchel.Poisson(), KernelCovariance(1.0 * RBF(1.0), x, mean=1.0), y, tol=tol)
        assert found.converged
        assert found.solution.tol == tol
        assert f"asked {tol:.1e}" in found.solution.summary()
        assert f"<= {tol:.1e}" in found.solution.status
        assert found.solution.gap <= tol * max(1.0, abs(found.solution.elbo))


def test_demo_says_at_once_that_a_folder_cannot_be_written():
    from click.testing import CliRunner

    from fenchel.cli import main

    for command in ("demo", "reproduce"):
        out = CliRunner().invoke(main, [command, "--out", "/proc/x"])
        assert out.exit_code == 1
        assert out.output.startswith("Error: /proc/x: cannot be written to (")
        assert "--out" in out.output


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("pandas", "fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(2)), [1, 2]).trace.to_frame()"),
        ("pandas", "fenchel.StochasticVolatilityModel().fit(np.arange(4), [0.1, -0.2, 0.3, 0.1]).forecast(2)"),
        ("matplotlib", "import fenchel.plots; fenchel.plots.plot_map([[np.eye(3)[:, :2]]], [1.0])"),
        ("matplotlib", "import fenchel.plots; fenchel.plots.plot_path(np.arange(2), [0, 1], [0, 1], [0, 1])"),
    ],
)
def test_without_an_optional_library_a_sentence(missing, code):
    extra = {"matplotlib": "plots"}.get(missing, missing)
    hide = f"import sys, warnings; sys.modules[{missing!r}] = None; warnings.simplefilter('ignore')\n"
    out = _run(hide + "import numpy as np, fenchel\n" + code, PYTHONPATH=str(SOURCE.parent))
    last = out.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: "), out.stderr
    assert last.endswith(f'{missing} is not installed. Try: pip install "fenchel[{extra}]"')
