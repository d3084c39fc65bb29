"""Files of ``save`` taken apart and put together again without the library, and changed by structure at random.

content, arrays = read(path)        the json, and the arrays as bytes
mutate(content, arrays, chance)     one to four changes, in place
write(path, content, arrays)        with checksums that are right
"""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Json = Any


def read(path: Path) -> tuple[Json, list[bytes]]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        return json.loads(archive.read(names[0])), [archive.read(name) for name in names[1:]]


def write(path: Path, content: Json, arrays: list[bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("content.json", json.dumps(content))
        for i, array in enumerate(arrays):
            archive.writestr(f"arrays/{i}.npy", array)


def saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


# -- what to put in ------------------------------------------------------------------------------------------
def hostile_texts(canary: str) -> list[str]:
    """Expressions that would leave a file behind if Python evaluated them, or never end."""
    run = f"open({canary!r}, 'w')"
    return [
        run,
        f"__import__('os').system('touch {canary}')",
        f'len("`" + str({run}) + "`")',
        f"I({run})",
        f"scale(x, {run})",
        f"[{run} for i in [0]]",
        f"(lambda: {run})()",
        "().__class__.__mro__[1].__subclasses__()",
        f"np.save({canary!r}, x)",
        f"np.lib.npyio.np.fromfile({canary!r})",
        f"x.to_csv({canary!r})",
        "9**9**9",
        "x*0 + 9**9**9**9",
        "'a' * 10**10",
        "[0] * 10**10",
        "round(3, -10**9)",
        "bs(x, df=10**9)",
        "poly(x, 10**8)",
        "hashed(x, levels=10**9)",
        "np.power(10**100, 10**9)",
        "-" * 3000 + "1",
        "(" * 300 + "x" + ")" * 300,
        "+".join(["x"] * 2000),
        "`x` + `" + run + "`",
        "contr.__init__.__globals__",
        "C(x, contr.custom.__init__.__globals__)",
        "\\x00",
        "",
    ]


def odd_values() -> list[Json]:
    plain: list[Json] = [None, True, False, 0, -1, 1, 2, 7, 10**6, 10**12, 2**63, -(2**63), 10**30, 0.5, -1e308, 1e-320]
    return [*plain, "", "x", "python", "lookup", "__class__", ["nan"], ["inf"], ["-inf"], [], [[0]], {"a": 1}, ["x"]]


WORDS = (  # of calls: others than a file may make, and those that it may, in the place of another
    *("os.system", "builtins.eval", "subprocess.Popen", "files.save", "files.load", "cli.main", "models.fit"),
    *("models.Model", "models.Model.fit", "models.FormulaRegressor", "models.FittedModel", "models.PartitionedModel"),
    *("likelihoods.Poisson", "likelihoods.Gaussian", "likelihoods.Mixed", "priors.DenseCovariance", "priors.Features"),
    *("terms.IID", "terms.RW1", "terms.Matern", "gmrf.Mesh", "gmrf.mesh", "solvers.Ending", "hyperparameters.Normal"),
    *("inference.infer", "hyperparameters.learn", "hyperparameters.integrate", "distributed.RowsElsewhere"),
    *("estimators.ProbabilisticPCA", "estimators.ProbabilisticPCA.fit", "tasks.run_tasks", "datasets.load_sids"),
)
OPTIONS = (
    *("_depth", "n_jobs", "checkpoint", "callback", "env", "data", "formula", "family", "graphs", "terms", "levels"),
    *("priors", "integrate", "engine", "tol", "seed", "__class__", "kernel", "optimizer", "random_state", "progress"),
)


def new_node(content: Json, chance: random.Random, canary: str) -> Json:
    """A value that no fit would write, or one that stands elsewhere."""
    text = chance.choice(hostile_texts(canary))
    odd = chance.choice(odd_values())
    return chance.choice(
        [
            ["made", chance.choice(WORDS), [], {}, []],
            ["made", chance.choice(WORDS), [text], {chance.choice(OPTIONS): odd}, []],
            ["made", chance.choice(WORDS), [odd], {chance.choice(OPTIONS): text}, [["dict", ["of", "learn"]]]],
            ["kernel", chance.choice(["RBF", "Sum", "PairwiseKernel", "os"]), ["dict", ["length_scale", odd]]],
            ["list", *([odd] * chance.choice([1, 3, 1000]))],
            ["dict", [text, odd], [odd, text]],
            ["range", 0, chance.choice([3, 10**7, 10**18]), 1],
            ["counter", 0, chance.choice([3, 10**7, 10**18]), 1, None],
            ["objects", [chance.choice([1, 2, 10**9])], [odd]],
            ["column", ["array", chance.randrange(9)], chance.choice(["Int64", "object", "dateutil//etc/passwd"])],
            ["Timestamp", chance.randrange(8), "dateutil//etc/passwd"],
            ["period", 3, chance.choice(["M", "s" * 1000])],
            ["array", chance.randrange(50)],
            ["sparse", "csr_array", [10**9, 10**9], 0, 1, 2],
            ["frame", ["list"], ["list"], [["array", 0]]],
            text,
            odd,
        ]
    )


# -- changes -------------------------------------------------------------------------------------------------
def places(x: Json) -> list[tuple[Any, Any]]:
    """Every place inside nested lists and objects: what holds it, and its key there."""
    keys = list(x) if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else []
    return [place for key in keys for place in [(x, key), *places(x[key])]]


def calls(content: Json) -> list[Json]:
    return [x[key] for x, key in places(content) if isinstance(x[key], list) and x[key][:1] == ["made"]]


def change_value(content: Json, chance: random.Random, canary: str) -> None:
    """One of all values becomes an odd one or a hostile text."""
    inside, key = chance.choice(places(content["root"]))
    inside[key] = chance.choice([*odd_values(), *hostile_texts(canary)])


def put_node(content: Json, chance: random.Random, canary: str) -> None:
    inside, key = chance.choice(places(content["root"]))
    inside[key] = new_node(content, chance, canary)


def swap_values(content: Json, chance: random.Random, canary: str) -> None:
    (a, i), (b, j) = (chance.choice(places(content["root"])) for _ in range(2))
    a[i], b[j] = b[j], a[i]


def change_word(content: Json, chance: random.Random, canary: str) -> None:
    chance.choice(calls(content))[1] = chance.choice(WORDS)


def add_option(content: Json, chance: random.Random, canary: str) -> None:
    """One more argument of a call."""
    value = chance.choice([new_node(content, chance, canary), chance.choice(odd_values())])
    chance.choice(calls(content))[3][chance.choice(OPTIONS)] = value


def drop_argument(content: Json, chance: random.Random, canary: str) -> None:
    _, _, arguments, options, found = chance.choice(calls(content))
    chance.choice([arguments.clear, options.clear, found.clear])()


def repeat_result(content: Json, chance: random.Random, canary: str) -> None:
    """The result of a search once more, or that of another."""
    found = chance.choice([call[4] for call in calls(content) if call[4]])
    found.insert(chance.randrange(len(found) + 1), chance.choice(found))


def change_text(content: Json, chance: random.Random, canary: str) -> None:
    """A formula becomes a hostile one."""
    formulas = [(x, key) for x, key in places(content["root"]) if isinstance(x[key], str) and "~" in x[key]]
    inside, key = chance.choice(formulas)
    inside[key] = f"{inside[key]} + {chance.choice(hostile_texts(canary))}"


def nest(content: Json, chance: random.Random, canary: str) -> None:
    """A value is now far inside others."""
    inside, key = chance.choice(places(content["root"]))
    for _ in range(chance.choice([5, 60, 300])):
        inside[key] = ["list", inside[key]]


CHANGES = (
    *(change_value, change_value, put_node, put_node, swap_values, change_word, add_option, drop_argument),
    *(repeat_result, change_text, change_text, nest),
)


def change_array(arrays: list[bytes], chance: random.Random) -> None:
    """An array of another type, shape or content."""
    i = chance.randrange(len(arrays))
    x = np.load(io.BytesIO(arrays[i]), allow_pickle=False)
    way = chance.choice(["type", "shape", "shorter", "longer", "value", "value", "all", "other"])
    if way == "type":
        kinds = ["<f4", "<f8", ">f8", "<i8", ">i4", "<i4", "<u8", "|b1", "<c16", "<U8", "<M8[ns]", "|S3"]
        with np.errstate(all="ignore"):
            x = x.astype(chance.choice(kinds), casting="unsafe") if x.dtype.kind in "biuf" else x
    elif way == "shape":
        x = x.reshape(chance.choice([(-1,), (1, -1), (-1, 1), (1, 1, -1)]))
    elif way == "shorter":
        x = x.reshape(-1)[: x.size // 2]
    elif way == "longer":
        x = np.concatenate([x.reshape(-1)] * 3)
    elif way == "other":
        arrays[i] = chance.choice(arrays)
        return
    elif x.size and x.dtype.kind in "biuf":
        x = np.array(x)
        odd = [-1, 0, 7, 2**31 - 1, -(2**31), 2**40, 2**62] if x.dtype.kind in "iu" else [np.nan, np.inf, -1e308, 0.0]
        flat = x.reshape(-1)
        with np.errstate(all="ignore"):
            new = np.array(chance.choice(odd)).astype(x.dtype)
            flat[slice(None) if way == "all" else chance.randrange(x.size)] = new
    arrays[i] = saved(x)


def mutate(content: Json, arrays: list[bytes], chance: random.Random, canary: str) -> list[str]:
    """One to four changes in place; their names."""
    names = []
    for _ in range(chance.choice([1, 1, 2, 4])):
        if arrays and chance.random() < 0.25:
            change_array(arrays, chance)
            names.append("change_array")
            continue
        change = chance.choice(CHANGES)
        try:
            change(content, chance, canary)
        except (IndexError, KeyError, TypeError, ValueError, AttributeError):
            continue  # an earlier change took what this one needs
        names.append(change.__name__)
    return names
