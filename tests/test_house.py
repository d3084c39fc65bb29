"""The house itself: doors open one way, the front door is light, files stay small, names are where promised."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import reads_repository

import fenchel

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "fenchel").rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@reads_repository
def test_doors_open_one_way():
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@reads_repository
def test_every_room_has_a_layer():
    layers = (ROOT / "pyproject.toml").read_text()
    rooms = {p.relative_to(ROOT / "src" / "fenchel").parts[0].removesuffix(".py") for p in SOURCES} - {"__init__"}
    missing = [room for room in rooms if f"fenchel.{room}" not in layers]
    assert not missing


def test_the_front_door_is_light():
    heavy = ["numba", "matplotlib", "pandas", "torch", "sklearn", "rich", "click", "joblib"]
    loaded = python(f"import sys, json, fenchel; print(json.dumps([m for m in {heavy!r} if m in sys.modules]))")
    assert json.loads(loaded) == []
    loaded = python(
        "import sys, json; from fenchel import infer, Poisson, DenseCovariance; import numpy as np\n"
        "infer(Poisson(), DenseCovariance(np.eye(3)), [1, 2, 3])\n"
        f"print(json.dumps([m for m in {heavy!r} if m in sys.modules]))"
    )
    assert json.loads(loaded) == []


def test_import_time():
    """At most 0.15 s above what it stands on; the best of three, since machines are shared."""
    code = (
        "import time, numpy, scipy.linalg, scipy.sparse\n"
        "t = time.perf_counter(); import fenchel; print(time.perf_counter() - t)"
    )
    assert min(float(python(code)) for _ in range(3)) < 0.15


@pytest.mark.parametrize("name", fenchel.__all__)
def test_names_at_the_front_door_exist(name):
    assert getattr(fenchel, name) is not None


def test_the_front_door_refuses_strangers():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = fenchel.nothing
    assert "infer" in dir(fenchel)


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_files_stay_small_and_open_with_a_docstring(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 450
    assert text == "" or text.lstrip().startswith('"""')


@reads_repository
def test_every_compiled_loop_has_the_one_decorator():
    """numba's own, with a cache, raises where no folder can be written."""
    own = [path.name for path in SOURCES if "njit" in path.read_text(encoding="utf-8")]
    assert own == ["compiled.py"]


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_a_module_gives_a_name_once(path):
    """A constant that is set twice in one module has the second value everywhere."""
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            names += [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
    assert [name for name, n in Counter(names).items() if n > 1 and name.isupper()] in ([], ["NODE_WEIGHTS"])


@reads_repository
def test_the_version_is_the_same_everywhere():
    stated = {
        "pyproject.toml": r'^version = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## (\S+) \(",
    }
    found = {name: re.search(pattern, (ROOT / name).read_text(), re.M).group(1) for name, pattern in stated.items()}
    assert set(found.values()) == {fenchel.__version__}, found
