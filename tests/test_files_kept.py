"""Every kind of fit kept in a file and through skops: the same answers to rounding, files whole at every moment."""

import copy
import errno
import importlib
import io
import json
import os
import pickle
import pkgutil
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import other_python
import pandas as pd
import pytest
from conftest import reads_repository
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fenchel
from fenchel.checks import Refusal
from fenchel.files import TRUSTED, Stored, archive, stored

pytestmark = pytest.mark.filterwarnings("ignore:.*nothing is learned")  # parameters are kept on purpose

HERE = Path(__file__).parent
FITS, ROUNDING = tuple(other_python.fits()), other_python.ROUNDING


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """All of them, fitted and saved once."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, other_python.save(folder)


@pytest.mark.parametrize("name", FITS)
def test_a_loaded_fit_answers_the_same(kept, name):
    folder, fits = kept
    again = fenchel.load(folder / f"{name}.fenchel")
    assert type(again) is type(fits[name])
    again.save(folder / "again")
    assert other_python.stored_numbers(folder / f"{name}.fenchel", folder / "again")
    assert other_python.difference(np.load(folder / f"{name}.npy"), other_python.asked(name, again)) <= ROUNDING


def run(python, folder, **given):
    env = {**os.environ, "PYTHONPATH": str(Path(fenchel.__file__).parents[1])} | given
    command = [str(python), str(HERE / "other_python.py"), "load", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


def test_another_process_answers_the_same(kept):
    ran = run(sys.executable, kept[0])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("stored numbers identical") == len(FITS)


def other_pythons():
    """Interpreters of another version that have fenchel's dependencies."""
    named = [os.environ.get("FENCHEL_OTHER_PYTHON"), *(shutil.which(f"python3.{k}") for k in range(11, 16))]
    for path in filter(None, named):
        code = "import sys, numpy, scipy, sklearn, numba, pandas, formulaic; print(*sys.version_info[:2])"
        ran = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=120)
        if ran.returncode == 0 and ran.stdout.split() != [str(k) for k in sys.version_info[:2]]:
            yield path


def test_another_python_answers_the_same(kept):
    """FENCHEL_OTHER_PYTHON may name one."""
    other = next(other_pythons(), None)
    if other is None:
        pytest.skip("no other Python here has fenchel's dependencies; FENCHEL_OTHER_PYTHON may name one")
    ran = run(other, kept[0])
    assert ran.returncode == 0, ran.stdout + ran.stderr


# -- skops --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FITS)
def test_skops_gives_the_same_back(kept, name):
    skops = pytest.importorskip("skops.io")
    folder, fits = kept
    data = skops.dumps(fits[name])
    assert set(skops.get_untrusted_types(data=data)) == {f"{type(fits[name]).__module__}.{type(fits[name]).__name__}"}
    again = skops.loads(data, trusted=TRUSTED)
    assert other_python.difference(np.load(folder / f"{name}.npy"), other_python.asked(name, again)) <= ROUNDING
    with pytest.raises(Exception, match="Untrusted types"):
        skops.loads(data)


def test_skops_keeps_pipelines_and_what_is_not_fitted(tmp_path):
    skops, X, Y = pytest.importorskip("skops.io"), other_python.X, other_python.Y
    whole = make_pipeline(StandardScaler(), fenchel.GaussianProcessClassifier(other_python.kernel())).fit(X, Y > 0)
    skops.dump(whole, tmp_path / "a.skops")
    again = skops.load(tmp_path / "a.skops", trusted=TRUSTED)
    assert np.allclose(whole.predict_proba(X), again.predict_proba(X), rtol=ROUNDING, atol=0)
    bare = skops.loads(skops.dumps(fenchel.BayesianLinearRegression("ard")), trusted=TRUSTED)
    assert bare.get_params()["prior"] == "ard"


def all_stored():
    for module in pkgutil.walk_packages(fenchel.__path__, "fenchel."):
        if not module.name.startswith(("fenchel.paper", "fenchel.cli")):
            importlib.import_module(module.name)
    found, queue = set(), [Stored]
    while queue:
        for cls in queue.pop().__subclasses__():
            queue.append(cls)
            if cls.__module__.startswith("fenchel.") and not cls.__module__.startswith("fenchel.paper"):
                found.add(cls)
    return found


def test_the_list_of_trusted_types_is_complete():
    """Every class that is handed out, and no other; each of them is one that checks what it is given."""
    bases = {
        "LatentGaussianEstimator",
        "Regression",
        "AnyLikelihood",
        "Counts",
        "Classification",
        "GaussianProcessEstimator",
    }
    bases |= {"LinearModel", "Found", "LearnedTable", "PartitionedSolution"}  # the last two: a part of a fit
    found = {f"{cls.__module__}.{cls.__name__}" for cls in all_stored() if cls.__name__ not in bases}
    assert found == set(TRUSTED)
    assert len(set(TRUSTED)) == len(TRUSTED)
    public = {n for n in fenchel.estimators.__all__ if n[0].isupper()}
    assert public <= {path.rpartition(".")[2] for path in TRUSTED}


def test_skops_refuses_what_is_damaged(kept):
    skops = pytest.importorskip("skops.io")
    fit = kept[1]["model"]
    state = fit.__getstate__()
    content = json.loads(state["fenchel"])
    evil = {**content, "root": ["made", "os.system", ["true"], {}, []]}
    newer = {**content, "version": 99}
    for text, arrays, word in (
        ("{", state["arrays"], "damaged"),
        ("[" * 100_000, state["arrays"], "damaged"),
        ("[]", state["arrays"], "damaged"),
        (state["fenchel"], [3.0], "damaged"),
        (state["fenchel"], [np.array([None])], "damaged"),
        (state["fenchel"], state["arrays"][:-1], "damaged"),
        (json.dumps(evil), state["arrays"], "damaged"),
        (json.dumps(newer), state["arrays"], "newer fenchel"),
    ):
        with pytest.raises(Refusal, match=word):
            fenchel.FittedModel.__new__(fenchel.FittedModel).__setstate__({"fenchel": text, "arrays": arrays})
    own = fenchel.fit("y ~ square(x)", other_python.TABLE, env={"square": np.square})
    with pytest.raises(Refusal, match="cannot be saved"):
        skops.dumps(own)


def test_pickle_and_copy_take_it_as_it_is(kept):
    for name in ("gp some rows", "model", "solution", "hurdle", "corrected", "integrated", "factors"):
        fit = kept[1][name]
        for again in (pickle.loads(pickle.dumps(fit)), pickle.loads(pickle.dumps(fit, 2)), copy.deepcopy(fit)):
            assert other_python.asked(name, fit).tobytes() == other_python.asked(name, again).tobytes()
        shallow = copy.copy(fit)
        assert all(shallow.__dict__[key] is value for key, value in fit.__dict__.items())


# -- what a file holds --------------------------------------------------------------------------------------
def bytes_of(fit):
    out = io.BytesIO()
    content, arrays = stored.packed(fit)
    archive._write(out, json.dumps(content).encode(), arrays)
    return len(out.getvalue())


def test_a_file_holds_what_was_stated_and_where_the_fit_ended():
    """X, y, and of each row and class s, alpha and lam: no matrix, but for a covariance that the user gave."""
    n, rng = 300, np.random.default_rng(0)
    X, kernel = rng.normal(size=(n, 2)), other_python.kernel()
    y = X[:, 0] + rng.normal(size=n)
    for fit, classes in (
        (fenchel.GaussianProcessClassifier(kernel, optimizer=None).fit(X, y > 0), 1),
        (fenchel.GaussianProcessClassifier(kernel, optimizer=None).fit(X, np.digitize(y, [-1.0, 1.0])), 3),
        (fenchel.GaussianProcessRegressor(kernel, optimizer=None).fit(X, y), 1),
        (fenchel.BayesianLinearRegression().fit(X, y), 1),
    ):
        assert bytes_of(fit) < 8 * n * (3 + 5 * classes) + 8_000
    given = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(n) + 1.0), np.ones(n))
    assert bytes_of(given) < 8 * n * (n + 6) + 8_000


def test_only_the_columns_that_are_used_are_kept(tmp_path):
    wide = other_python.TABLE.assign(**{f"other{k}": np.arange(24.0) for k in range(50)})
    fit = fenchel.fit("y ~ x + (1|g)", wide)
    fit.save(tmp_path / "a")
    _, options = fit.model.statement()[1:3]
    assert list(fit.model.statement().arguments[1].columns) == ["x", "g", "y"], options.keys()
    wide["x"] = 0.0  # what the user does to the table later
    again = fenchel.load(tmp_path / "a")
    assert np.array_equal(again.model.frame["x"], other_python.TABLE["x"])


def test_what_is_asked_later_is_the_same(tmp_path):
    """Draws, covariances, corrections and the evidence elsewhere."""
    X, Y = other_python.X, other_python.Y
    fit = fenchel.GaussianProcessClassifier(other_python.kernel()).fit(X, Y > 0)
    fit.save(tmp_path / "a")
    again = fenchel.load(tmp_path / "a")
    a, b = fit.solution_.posterior, again.solution_.posterior
    for one, other in (
        (a.sample(3, 0), b.sample(3, 0)),
        (a.covariance(), b.covariance()),
        (a.gradient_covariance()[0], b.gradient_covariance()[0]),
        (fit.solution_.corrected().mean, again.solution_.corrected().mean),
        (fit.log_marginal_likelihood(fit.theta_ + 0.1), again.log_marginal_likelihood(fit.theta_ + 0.1)),
    ):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-12)


# -- other formats --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("step", "whose"), [(-1, "an older"), (1, "a newer")])
def test_a_file_of_another_format_is_refused(kept, tmp_path, step, whose):
    path = tmp_path / "a.fenchel"
    kept[1]["linear"].save(path)
    content, arrays = archive.read(path)
    archive.write(path, {**content, "version": stored.VERSION + step}, arrays)
    with pytest.raises(Refusal, match=rf"has format {stored.VERSION + step}, of {whose} fenchel"):
        fenchel.load(path)


# -- whole at every moment ----------------------------------------------------------------------------------
def test_a_full_disk_is_a_sentence(kept, tmp_path):
    """A limit on the size of files, as a full disk would have it."""
    fit, path = kept[1]["model"], tmp_path / "a.model"
    kept[1]["linear"].save(path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        with pytest.raises(
            OSError, match=r"save: No space left for .* MiB at .*; the file that was there is as it was"
        ):
            fit.save(path)
        with pytest.raises(OSError, match=r"nothing was written") as caught:
            fit.save(tmp_path / "b.model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.model"]


def test_places_where_no_file_can_be(kept, tmp_path):
    fit = kept[1]["linear"]
    with pytest.raises(FileNotFoundError, match="save: there is no folder of that name"):
        fit.save(tmp_path / "none" / "a.model")
    with pytest.raises(IsADirectoryError, match="save: it is a folder"):
        fit.save(tmp_path)
    (tmp_path / "real").mkdir()
    fit.save(tmp_path / "real" / "a.model")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "a.model")
    os.chmod(tmp_path / "real" / "a.model", 0o600)
    kept[1]["model"].save(tmp_path / "link")  # through the link, and as private as it was
    assert (tmp_path / "link").is_symlink()
    assert type(fenchel.load(tmp_path / "real" / "a.model")).__name__ == "FittedModel"
    assert (tmp_path / "real" / "a.model").stat().st_mode & 0o777 == 0o600


def test_killed_in_the_middle(tmp_path):
    """A process that saves one file over and over is killed at any moment: the file is always one of the two."""
    path, chance, seen = tmp_path / "a.model", np.random.default_rng(0), set()
    fenchel.save([np.zeros(300_000)], path)
    code = (
        "import sys, numpy\n"
        "from fenchel.files import save\n"
        "things = [[numpy.full(300_000 * k, float(k))] for k in (1, 2)]\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for thing in things:\n"
        f"        save(thing, {str(path)!r})\n"
    )
    for _ in range(6):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ})
        assert child.stdout.readline() == b"ready\n"
        time.sleep(float(chance.uniform(0.0, 0.1)))
        child.kill()
        child.wait()
        child.stdout.close()
        (found,) = fenchel.load(path)
        seen.add(found[0])
        assert np.array_equal(found, np.full(300_000 * max(1, int(found[0])), found[0]))
    assert seen & {1.0, 2.0}


@reads_repository
def test_the_page_names_every_trusted_type():
    page = (HERE.parent / "docs" / "files.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `fenchel.")]
    listed = {f"{m.strip(' `')}.{t.strip(' `')}" for m, ts in rows for t in ts.split(",") if "fit(" not in m}
    assert listed == set(TRUSTED)


@reads_repository
def test_a_fit_is_a_model_of_mlflow(tmp_path, monkeypatch):
    """The class of docs/files.md: alone with a stand-in for MLflow, and by MLflow where it is installed."""
    text = (Path(__file__).parent.parent / "docs" / "files.md").read_text()
    (block,) = [part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class FormulaFit" in part]
    try:
        import mlflow
    except ImportError:
        mlflow = None
        stand_in = types.ModuleType("mlflow")
        stand_in.pyfunc = types.SimpleNamespace(PythonModel=object)
        monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    names = {}
    exec(block, names)
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=40), "g": np.arange(40) % 5})
    data["y"] = rng.poisson(np.exp(data.x))
    fit = fenchel.fit("y ~ x + (1|g)", data, "poisson", accuracy="fast")
    fit.save(tmp_path / "fit.fenchel")
    model = names["FormulaFit"]()
    model.load_context(types.SimpleNamespace(artifacts={"fit": str(tmp_path / "fit.fenchel")}))
    np.testing.assert_allclose(model.predict(None, data), fit.predict(data), rtol=1e-6)
    link = model.predict(None, data, {"kind": "link"})
    np.testing.assert_allclose(link, fit.predict(data, kind="link"), rtol=1e-6)
    if mlflow is None:
        return
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    mlflow.create_experiment("fits", artifact_location=str(tmp_path / "runs"))
    mlflow.set_experiment("fits")
    with mlflow.start_run():
        info = names["log_fit"](fit)
    again = mlflow.pyfunc.load_model(info.model_uri).predict(data)
    np.testing.assert_allclose(again, fit.predict(data), rtol=1e-6)
