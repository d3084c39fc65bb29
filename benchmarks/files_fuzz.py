"""Hostile files: saved models changed by structure, with right checksums, loaded and used in a child that is watched.

    python benchmarks/files_fuzz.py                            2,000 mutations and every named attack: a table
    python benchmarks/files_fuzz.py --count 500 --seed 7
    python benchmarks/files_fuzz.py --seed 0 --only 1234       one mutation, and what became of it

Nothing may run, be written, be unpickled or be read beside the installation; nothing may take 30 s of a processor or
3 GiB more; no process may die. It ends with 1 otherwise. docs/files.md says what a file can do: hold other numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fuzzing import archives, canary
from fuzzing.attacks import ATTACKS, BASE

import fenchel
from fenchel.files.statements import PACKAGES, import_all
from fenchel.likelihoods import Poisson
from fenchel.priors import DenseCovariance
from fenchel.terms import RW1

BAD = ("died", "slow")


def table() -> pd.DataFrame:
    chance = np.random.default_rng(0)
    out = pd.DataFrame({"x": chance.uniform(1, 3, 40), "z": chance.normal(size=40), "t": np.tile(np.arange(10), 4)})
    out["g"], out["a"] = [f"g{k}" for k in np.repeat(np.arange(8), 5)], chance.choice(list("pqr"), 40)
    out["y"], out["k"] = np.log(out.x) + chance.normal(size=40), chance.poisson(2.0, 40)
    return out


def models(data: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """Fits of several kinds, by name, each made when it is called."""
    X = data[["x", "z"]].to_numpy()
    names = sorted(set(data.g))
    ring = {"W": pd.DataFrame(np.eye(8, k=1) + np.eye(8, k=-1), index=names, columns=names)}
    return {
        "base": lambda: fenchel.fit(BASE, data, accuracy="fast"),
        "smooth": lambda: fenchel.fit("y ~ s(x, k=5) + bs(z, df=4) + poly(x, 2) + rw1(t)", data),
        "areal": lambda: fenchel.fit("k ~ x*a + bym2(g, W) + (z|a)", data, "poisson", env=ring),
        "points": lambda: fenchel.fit("y ~ matern(x, z)", data),
        "integrated": lambda: fenchel.fit("k ~ x + (1|g)", data, "poisson", integrate="grid"),
        "classifier": lambda: fenchel.GaussianProcessClassifier().fit(X, data.y > 0.5),
        "linear": lambda: fenchel.BayesianLogisticRegression().fit(X, data.a),
        "draws": lambda: fenchel.infer(Poisson(), DenseCovariance(0.5 * np.eye(40)), data.k).importance(64),
        "factors": lambda: fenchel.ProbabilisticPCA(1).fit(X),
    }


def used(made: Any, data: pd.DataFrame, thoroughly: bool = True) -> bytes:
    """What a user does first with a model; the bytes of its predictions."""
    X = data[["x", "z"]].to_numpy()
    if hasattr(type(made), "effective_draws") or hasattr(made, "effective_draws"):
        ask = made.mean
    elif hasattr(type(made), "transform"):
        ask = made.transform(X)
    else:
        ask = made.predict(data) if hasattr(type(made), "effects") else made.predict(X)
    for further in (
        lambda: repr(made),
        lambda: made.summary(),
        lambda: made.predict(data, interval=0.9),
        lambda: made.predict_proba(X),
        lambda: made.coefficients,
        lambda: [made.effects[name] for name in made.effects],
        lambda: made.sample(data, 2, 0),
        lambda: copy.copy(made),
        lambda: copy.deepcopy(made),
        lambda: fenchel.files.stored.packed(made),
    )[: None if thoroughly else 2]:
        with contextlib.suppress(Exception):
            further()
    return np.asarray(ask).tobytes()


class Arena:
    """The files, the folder in which nothing may appear, and the verdicts."""

    def __init__(self, folder: Path, kinds: tuple[str, ...] | None = None, thoroughly: bool = True) -> None:
        self.data, self.folder, self.thoroughly = table(), folder, thoroughly
        for package in (*PACKAGES, "linalg", "corrections"):
            import_all(package)  # importing a module of ours makes code of text, as dataclasses do
        fenchel.fit("y ~ interact(rw1(t), rw1(x)) + vecchia(x, z)", self.data)  # numba makes code of text once
        # and whatever is first imported to order and factorise a large matrix, as its named tuples do
        fenchel.Model("y ~ 1", self.data, terms=[RW1("t", levels=range(9_999))])
        self.canary, self.prey = str(folder / "canary"), str(folder / "prey")
        Path(self.prey).write_bytes(b"cos\nsystem\n(S'touch " + self.canary.encode() + b"'\ntR.")
        self.parts, self.expected = {}, {}
        fits = models(self.data)
        for name in fits if kinds is None else kinds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fits[name]().save(folder / "good")
                self.parts[name] = archives.read(folder / "good")
                self.expected[name] = self.used(fenchel.load(folder / "good"))
        self.written = os.path.realpath(os.environ.get("NUMBA_CACHE_DIR", Path(fenchel.__file__).parent))

    def used(self, made: Any) -> bytes:
        return used(made, self.data, self.thoroughly)

    def judge(self, kind: str, content: Any, arrays: list[bytes]) -> tuple[canary.Ending, list[str]]:
        """Write the file, use it, and say what is wrong."""
        path, before = self.folder / "case", Path(self.prey).read_bytes()
        archives.write(path, content, arrays)
        ending = canary.run_case(path, self.used, self.expected[kind], fenchel.load, self.written)
        faults = list(ending.events)
        faults += [f"{ending.word}: {ending.detail}"] if ending.word in BAD else []
        if sorted(os.listdir(self.folder)) != ["case", "good", "prey"] or Path(self.prey).read_bytes() != before:
            faults.append(f"it left {sorted(os.listdir(self.folder))}")
            with contextlib.suppress(OSError):
                os.remove(self.canary)
        return ending, faults

    def mutation(self, seed: int, i: int) -> tuple[str, list[str], Any, list[bytes]]:
        chance = random.Random(f"{seed}/{i}")
        kind = sorted(self.parts)[i % len(self.parts)]
        content, arrays = copy.deepcopy(self.parts[kind])
        return kind, archives.mutate(content, arrays, chance, self.canary), content, arrays

    def attacked(self, name: str) -> tuple[Any, list[bytes]]:
        content, arrays = copy.deepcopy(self.parts[ATTACKS[name].kind])
        ATTACKS[name].change(content, arrays, self.canary, self.prey)
        return content, arrays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    begun, wrong = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder))
        if given.only is None:
            print(f"{'attack':42s} {'outcome':8s} {'s':>5s} {'MiB':>6s}")
            for name in ATTACKS:
                ending, faults = arena.judge(ATTACKS[name].kind, *arena.attacked(name))
                wrong += bool(faults)
                print(f"{name:42s} {ending.word:8s} {ending.seconds:5.1f} {ending.megabytes:6.0f} {'; '.join(faults)}")
        counts: Counter[tuple[str, str]] = Counter()
        slowest = largest = 0.0
        chosen = range(given.first, given.first + given.count) if given.only is None else [given.only]
        for i in chosen:
            kind, names, content, arrays = arena.mutation(given.seed, i)
            ending, faults = arena.judge(kind, content, arrays)
            counts[kind, ending.word] += 1
            slowest, largest = max(slowest, ending.seconds), max(largest, ending.megabytes)
            if faults or given.only is not None:
                wrong += bool(faults)
                print(
                    f"--seed {given.seed} --only {i}: {kind} {names} {ending.word} {ending.detail}: {'; '.join(faults)}"
                )
        words = sorted({word for _, word in counts})
        print(f"\n{'mutations of':14s}" + "".join(f"{word:>10s}" for word in words))
        for kind in sorted(arena.parts):
            print(f"{kind:14s}" + "".join(f"{counts[kind, word]:10d}" for word in words))
    took = time.perf_counter() - begun
    print(
        f"{sum(counts.values())} mutations, slowest {slowest:.1f} s, most memory {largest:.0f} MiB, {took:.0f} s in all"
    )
    print(f"{wrong} did what no file may do")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
