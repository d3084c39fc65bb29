"""A benchmark in an older tree and in this one, in turn: what a change of the tree did to its figures.

    python benchmarks/before_after.py COMMIT NAME [--rounds 3] [arguments of the benchmark ...]
    python benchmarks/before_after.py 7e4f7ce sparse --quick

The older tree is checked out beside this one for as long as it takes, with benchmarks of its own. Each tree runs once
to compile, then in turn. Lines of both that differ only in decimal numbers are compared: medians before and after,
number by number. Ratios to a floor that the benchmark measures itself are the ones to read on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
Lines = dict[tuple[str, int], list[list[float]]]


def output(tree: Path, name: str, arguments: list[str]) -> str:
    """What a benchmark of a tree prints."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, f"{name}.py", *arguments]
    run = subprocess.run(command, cwd=tree / "benchmarks", env=environment, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{name}.py ended with {run.returncode} in {tree}:\n{run.stdout}{run.stderr}")
    return run.stdout


def add(lines: Lines, text: str) -> None:
    """The numbers of each line, by what the line says without them and how often it was said before."""
    seen: Counter[str] = Counter()
    for line in text.splitlines():
        label = " ".join(NUMBER.sub("#", line).split())
        if "#" in label:
            lines[label, seen[label]].append([float(number) for number in NUMBER.findall(line)])
            seen[label] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("name", help="a file of benchmarks/, without .py")
    parser.add_argument("--rounds", type=int, default=3)
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--detach", str(before), args.commit], cwd=ROOT, check=True)
        try:
            trees: dict[Path, Lines] = {before: defaultdict(list), ROOT: defaultdict(list)}
            for turn in range(1 + args.rounds):
                for tree, lines in trees.items():
                    text = output(tree, args.name, rest)
                    if turn:  # the first compiles
                        add(lines, text)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=ROOT, check=True)
    old, new = trees.values()
    for key in (key for key in old if key in new):
        medians = [[statistics.median(each) for each in zip(*lines[key], strict=False)] for lines in (old, new)]
        print(f"{key[0][:70]:<70}", *(f"{a:g} -> {b:g}" for a, b in zip(*medians, strict=False)), sep="  ")


if __name__ == "__main__":
    main()
