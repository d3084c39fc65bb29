"""How long ``import fenchel`` takes, and what the built packages hold.

    python -m build && python benchmarks/package.py dist

Import times are of new processes, the best of five: seconds of the processor, so that a busy machine does not show, and
of the clock. A name of fenchel is imported when it is first used. A folder with a wheel and an sdist is checked:
nothing but modules, types, data with their README and the licence may be in the wheel. A package with anything else, or
without what it needs, ends the command with status 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

IMPORTS = {
    "fenchel": "import fenchel",
    "numpy, scipy.linalg, scipy.sparse": "import numpy, scipy.linalg, scipy.sparse",
    "fenchel.infer": "import fenchel; fenchel.infer, fenchel.Poisson",
    "fenchel.fit": "import fenchel; fenchel.fit",
    "fenchel.GaussianProcessClassifier": "import fenchel; fenchel.GaussianProcessClassifier",
}
TIMED = """import time
begun = time.process_time(), time.perf_counter()
{}
print(time.process_time() - begun[0], time.perf_counter() - begun[1])"""
DATA = r"fenchel/datasets/data/(\w+\.(csv|geojson)|README\.md)"
IN_WHEEL = rf"fenchel/[\w/]+\.py|fenchel/__init__\.pyi|fenchel/py\.typed|{DATA}|fenchel-[\d.]+\.dist-info/.*"
IN_SDIST = (
    rf"src/({IN_WHEEL})|tests/\w+\.(py|json)|[A-Z]+\.md|CITATION\.cff|LICENSE|PKG-INFO|pyproject\.toml|\.gitignore"
)
NEEDED = ("fenchel/__init__.pyi", "fenchel/py.typed", "fenchel/datasets/data/README.md")


def seconds(code: str) -> tuple[float, float]:
    """Of the processor and of the clock, the best of five new processes."""
    runs = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", TIMED.format(code)], capture_output=True, text=True, check=True)
        runs.append([float(word) for word in done.stdout.split()])
    return min(run[0] for run in runs), min(run[1] for run in runs)


def contents(path: Path) -> dict[str, int]:
    """Names of files, below the folder that an sdist has, and their bytes."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {info.filename: info.file_size for info in archive.infolist()}
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2]: member.size for member in archive.getmembers() if member.isfile()}


def complaints(path: Path, held: dict[str, int]) -> list[str]:
    """What should not be in a package, and what is missing."""
    wheel = path.suffix == ".whl"
    prefix = "" if wheel else "src/"
    strange = [name for name in held if not re.fullmatch(IN_WHEEL if wheel else IN_SDIST, name)]
    missing = [name for name in NEEDED if prefix + name not in held]
    licences = [name for name in held if name.rpartition("/")[2] == "LICENSE"]
    return [*strange, *(f"{name} is missing" for name in missing), *([] if licences else ["LICENSE is missing"])]


def main(folder: Path | None) -> int:
    print(f"{'import':36}{'processor s':>12}{'clock s':>9}")
    for name, code in IMPORTS.items():
        processor, clock = seconds(code)
        print(f"{name:36}{processor:>12.2f}{clock:>9.2f}", flush=True)
    wrong = 0
    for path in sorted(folder.glob("*.whl")) + sorted(folder.glob("*.tar.gz")) if folder else []:
        held = contents(path)
        sizes = {
            "packed": path.stat().st_size,
            "unpacked": sum(held.values()),
            "of which data": sum(size for name, size in held.items() if re.match(f"(src/)?{DATA}", name)),
        }
        print(
            f"{path.name}: {len(held)} files,", ", ".join(f"{size / 1e6:.2f} MB {name}" for name, size in sizes.items())
        )
        for sentence in complaints(path, held):
            wrong += 1
            print(f"    {sentence}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
