"""The size of the library, and how far a call walks through it.

    python benchmarks/house.py                  tables of sizes by room and by purpose, and the walks
    python benchmarks/house.py --tree ../other  of another tree beside this one (sizes alone)

Tokens are those of Python without comments, docstrings and line ends: what a reader has to understand. A walk is the
number of the library's files that one call runs through, of its rooms, and the deepest stack of its own functions.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
sys.path = [place for place in sys.path if Path(place).resolve() != HERE / "benchmarks"]  # sparse.py is no package
_LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


# -- sizes --------------------------------------------------------------------------------------------------
@dataclass
class Size:
    """What is counted of one file, or of several."""

    modules: int = 0
    lines: int = 0
    tokens: int = 0
    isinstance: int = 0
    getattr: int = 0  # and hasattr

    def __add__(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def size_of(path: Path) -> Size:
    """The size of one file."""
    text = path.read_text()
    docstrings = _docstrings(ast.parse(text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    n = sum(token.type not in _LAYOUT and token.start not in docstrings for token in _whole_strings(tokens))
    asked = len(re.findall(r"\bisinstance\(", text)), len(re.findall(r"\b(?:hasattr|getattr)\(", text))
    return Size(1, text.count("\n"), n, *asked)


def _whole_strings(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    """Tokens with an f-string as one of them, as Python 3.11 has it; later versions take it apart."""
    depth = 0
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if depth == 0:
            yield token
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")


def _docstrings(tree: ast.Module) -> set[tuple[int, int]]:
    out = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            out.add((node.body[0].lineno, node.body[0].col_offset))
    return out


def rooms(tree: Path) -> dict[str, Size]:
    """The size of each room of ``src/fenchel``; files at the top are one."""
    root, out = tree / "src" / "fenchel", {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        room = parts[0] if len(parts) > 1 else "(top)"
        out[room] = out.get(room, Size()) + size_of(path)
    return out


PARTS = {  # what a reader may leave aside, and the files that are for it alone
    "the paper's experiments and rivals": ("paper/*", "paper/rivals/*"),
    "factor models of tables": ("factors/*", "estimators/factor_analysis.py", "priors/batched.py", "linalg/*table*"),
    "rows out of memory": ("distributed/*", "models/partition*", "estimators/dask_rows.py"),
    "fits without a factor": ("iterative/*",),
    "sparse Cholesky": tuple(
        f"linalg/{name}.py"
        for name in (
            *("supernodal", "_fronts", "_multifrontal", "_symbolic", "_sandwich", "_leaves", "_leaf_passes", "leaves"),
            *("chain", "parallel_tree", "two_sided", "factorisation", "constrained", "constraint_bases"),
        )
    ),
    "inducing points": ("priors/inducing.py", "priors/pivots.py", "hyperparameters/inducing*", "estimators/inducing*"),
    "bounds on the evidence": ("proofs/*", "models/proved.py"),
    "beyond the Gaussian": ("corrections/*",),
    "integration over hyperparameters": ("hyperparameters/integration/*",),
    "criticism": (
        "criticism/*",
        "row_scores.py",
        "models/row_criteria.py",
        "models/calibrating.py",
        "models/fit_check.py",
    ),
    "pictures and pages": ("plots/*", "report.py", "models/pictures.py", "models/durations.py"),
    "meshes and fields of points": (
        "gmrf/mesh*",
        "gmrf/spde.py",
        "gmrf/vecchia.py",
        "gmrf/_point_loops.py",
        "gmrf/polygons.py",
    ),
    "files": ("files/*",),
}


def parts(tree: Path) -> dict[str, Size]:
    """The size of what is for one purpose alone; the rest is the core."""
    root, out = tree / "src" / "fenchel", {}
    left = set(root.rglob("*.py"))
    for name, patterns in PARTS.items():
        own = {path for pattern in patterns for path in left if path.relative_to(root).match(pattern)}
        out[name] = sum((size_of(path) for path in own), Size())
        left -= own
    return {**out, "the core": sum((size_of(path) for path in left), Size())}


def names_at_the_entrance(tree: Path) -> int:
    """How many names ``import fenchel`` offers."""
    stub = (tree / "src" / "fenchel" / "__init__.pyi").read_text()
    return len(re.findall(r"^from .* as \w+$", stub, re.MULTILINE))


# -- walks --------------------------------------------------------------------------------------------------
@dataclass
class Walk:
    """What one call runs through."""

    files: Counter[str] = field(default_factory=Counter)
    depth: int = 0
    deepest: int = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if "src/fenchel/" not in name or event not in ("call", "return"):
            return
        self.files[name.split("src/fenchel/")[1]] += event == "call"
        self.depth += 1 if event == "call" else -1
        self.deepest = max(self.deepest, self.depth)


def walked(call: Callable[[], Any]) -> Walk:
    """Follow a call, the second time that it is made: what is read and compiled once is not on the way."""
    out = Walk()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
        sys.setprofile(out)
        try:
            call()
        finally:
            sys.setprofile(None)
    return out


def walks() -> dict[str, Callable[[], Any]]:
    """The calls that a reader follows first."""
    import numpy as np
    import pandas as pd

    import fenchel

    rng, n = np.random.default_rng(0), 60
    frame = pd.DataFrame({"x": rng.normal(size=n), "g": rng.integers(0, 6, n).astype(str), "r": np.arange(n) % 9})
    frame["y"] = rng.poisson(np.exp(0.3 * frame.x + 1.0))
    graph = {k: [j for j in (k - 1, k + 1) if 0 <= j < 9] for k in range(9)}
    X, label = frame[["x"]].to_numpy(), (frame.y > 2).to_numpy().astype(int)

    def formula() -> Any:
        return fenchel.fit("y ~ x + (x|g) + bym2(r)", frame, family="poisson", graphs={"r": graph}, integrate="auto")

    def partitions() -> Any:
        import dask
        import dask.dataframe as dd

        with dask.config.set(scheduler="synchronous"):
            return fenchel.Model("y ~ x + (1|g)", dd.from_pandas(frame, npartitions=2), family="poisson").fit()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = formula()
    return {
        "formula with integration": formula,
        "its prediction": lambda: fitted.predict(frame.head(5), interval=0.9),
        "Gaussian process classifier": lambda: fenchel.GaussianProcessClassifier().fit(X, label),
        "Dask table": partitions,
    }


# -- tables -------------------------------------------------------------------------------------------------
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, help="another tree, whose sizes stand beside those of this one")
    trees = [tree for tree in (parser.parse_args().tree, HERE) if tree is not None]
    for tree in trees:
        sizes = rooms(tree)
        print(f"{'room':16}{'modules':>8}{'lines':>8}{'tokens':>9}{'a line':>7}{'isinstance':>11}{'getattr':>8}")
        whole = sum(sizes.values(), Size())
        for room, size in [*sorted(sizes.items(), key=lambda item: -item[1].tokens), ("all", whole)]:
            dense = size.tokens / max(1, size.lines)
            counts = f"{size.modules:8}{size.lines:8}{size.tokens:9}{dense:7.1f}"
            print(f"{room:16}{counts}{size.isinstance:11}{size.getattr:8}")
        print(f"names at the entrance: {names_at_the_entrance(tree)}\n")
    print(f"{'what for':36}{'modules':>8}{'lines':>8}{'tokens':>9}")
    for name, size in parts(HERE).items():
        print(f"{name:36}{size.modules:8}{size.lines:8}{size.tokens:9}")
    print(f"\n{'walk':30}{'files':>6}{'rooms':>6}{'depth':>6}")
    for name, call in walks().items():
        walk = walked(call)
        found = {file.split("/")[0] for file in walk.files}
        print(f"{name:30}{len(walk.files):6}{len(found):6}{walk.deepest:6}")


if __name__ == "__main__":
    main()
