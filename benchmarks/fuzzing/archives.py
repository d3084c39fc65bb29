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
FACTOR = "formulaic.parser.types.factor:Factor"


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


CLASSES = (
    *("os:system", "builtins:eval", "subprocess:Popen", "pathlib:Path", "numpy:ndarray", "builtins:type"),
    *("fenchel.models.command:Fit", "fenchel.hyperparameters.integration.points:Finished", "fenchel.tasks:Stopped"),
    *(
        "fenchel.distributed.checkpoint:Checkpoint",
        "fenchel.models.model_matrix:Expression",
        "fenchel.models.fitted:FittedModel",
    ),
    *("fenchel.models.grammar:Parsed", "fenchel.models.grammar:Piece", "fenchel.inputs.frames:Kind", FACTOR),
    *(f"{FACTOR}.EvalMethod", "formulaic.model_spec:ModelSpec", "formulaic.formula:SimpleFormula"),
    *("formulaic.parser.types.term:Term", "formulaic.parser.types.token:Token", "formulaic.utils.variables:Variable"),
    *("formulaic.transforms.contrasts:CustomContrasts", "formulaic.parser.types.ordered_set:OrderedSet"),
    *(
        f"sklearn.gaussian_process.kernels:{word}"
        for word in ("RBF", "Sum", "Product", "Exponentiation", "PairwiseKernel")
    ),
    *(
        "fenchel.linalg.leaves:LeafCholesky",
        "fenchel.linalg.sparse:SymbolicCholesky",
        "fenchel.posterior:Posterior",
    ),
    *("fenchel.priors.rebuildable:Made", "fenchel.gmrf.precisions:Combination", "fenchel.likelihoods.mixed:Mixed"),
)
NAMES = (
    *("predict", "save", "summary", "sample", "evaluate", "read", "rows", "verify", "refuse", "mark", "build", "size"),
    *("__class__", "__dict__", "__reduce__", "__call__", "_plain_state", "expr", "_eval_method", "context", "spec"),
    *("formula", "model", "found", "text", "value", "n_jobs", "path", "kernel_", "_repr_html_", "_log_prior", "rates"),
)


def new_node(content: Json, chance: random.Random, canary: str) -> Json:
    """A node that no fit would write, or one that stands elsewhere."""
    n = len(content["nodes"])
    any_node = [chance.randrange(n)]
    return chance.choice(
        [
            ["method", any_node, chance.choice(NAMES)],
            ["function", chance.choice(["builtins:exec", "fenchel.terms.base:_pc_precision", "fenchel.files:save"])],
            ["class", chance.choice(CLASSES)],
            ["partial", any_node, [chance.randrange(n)], [chance.randrange(n)]],
            ["object", chance.choice(CLASSES), [[chance.choice(NAMES), any_node]], None],
            ["object", chance.choice(CLASSES), None, [[chance.choice(NAMES), chance.choice(hostile_texts(canary))]]],
            ["text", "formulaic.utils.variables:Variable", chance.choice(hostile_texts(canary)), [], None],
            ["enum", f"{FACTOR}.EvalMethod", chance.choice(["PYTHON", "LOOKUP", "LITERAL", "mro", "__class__"])],
            ["list", [any_node] * chance.choice([1, 3, 1000])],
            ["tuple", [any_node, any_node]],
            ["dict", [[chance.choice(["x", 1, 2**61 - 1]), any_node]]],
            ["range", [0, chance.choice([3, 10**7, 10**18]), 1]],
            ["index", any_node, None],
            ["objects", [2], [any_node, any_node]],
            ["pandas-dtype", chance.choice(["Int64", "dateutil//etc/passwd", "datetime64[ns, dateutil//etc/passwd]"])],
            ["dtype", chance.choice(["O", "V2000000000", "f8,O", "<M8[ns]"])],
            ["moment", "Timestamp", chance.randrange(8), "dateutil//etc/passwd"],
            ["array", chance.randrange(50)],
            ["sparse", "csr_array", [10**9, 10**9], [0, 1, 2], True],
        ]
    )


# -- changes -------------------------------------------------------------------------------------------------
def places(x: Json, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where everything inside nested lists is."""
    out = []
    for i, inner in enumerate(x):
        out.append((*path, i))
        if isinstance(inner, list):
            out += places(inner, (*path, i))
    return out


def change_value(content: Json, chance: random.Random, canary: str) -> None:
    """One of all values becomes an odd one, a hostile text or a reference elsewhere."""
    nodes = content["nodes"]
    at = chance.choice(places(nodes))
    inside = nodes
    for i in at[:-1]:
        inside = inside[i]
    new = chance.choice(["odd", "text", "reference"])
    inside[at[-1]] = {
        "odd": chance.choice(odd_values()),
        "text": chance.choice(hostile_texts(canary)),
        "reference": [chance.randrange(len(nodes))],
    }[new]


def retarget(content: Json, chance: random.Random, canary: str) -> None:
    """A reference points at another node."""
    nodes = content["nodes"]
    found = [p for p in places(nodes) if p[-1] == 0 and len(p) > 1 and _is_reference(nodes, p[:-1])]
    inside = nodes
    at = chance.choice(found)
    for i in at[:-1]:
        inside = inside[i]
    inside[0] = chance.randrange(len(nodes))


def _is_reference(nodes: Json, at: tuple[int, ...]) -> bool:
    x = nodes
    for i in at:
        x = x[i]
    return len(at) > 1 and len(x) == 1 and type(x[0]) is int


def objects(content: Json) -> list[Json]:
    return [node for node in content["nodes"] if isinstance(node, list) and node and node[0] == "object"]


def swap_nodes(content: Json, chance: random.Random, canary: str) -> None:
    nodes = content["nodes"]
    i, j = chance.randrange(len(nodes)), chance.randrange(len(nodes))
    nodes[i], nodes[j] = nodes[j], nodes[i]


def change_class(content: Json, chance: random.Random, canary: str) -> None:
    named = [node for node in content["nodes"] if isinstance(node, list) and len(node) > 1 and isinstance(node[1], str)]
    own = [node[1] for node in named]
    chance.choice(named)[1] = chance.choice([*own, *CLASSES])


def add_attribute(content: Json, chance: random.Random, canary: str) -> None:
    """One more attribute: of the class, the name of a method, or any."""
    content["nodes"].append(new_node(content, chance, canary))
    value = chance.choice(
        [[len(content["nodes"]) - 1], chance.choice(hostile_texts(canary)), chance.choice(odd_values())]
    )
    node = chance.choice(objects(content))
    part = 3 if node[2] is None or (len(node) > 3 and node[3] is not None and chance.random() < 0.5) else 2
    if isinstance(node[part], list):
        own = [name for name, *_ in (pair for pair in node[part] if isinstance(pair, list) and pair)]
        node[part].insert(chance.randrange(len(node[part]) + 1), [chance.choice([*own, *NAMES]), value])


def drop_attribute(content: Json, chance: random.Random, canary: str) -> None:
    node = chance.choice([n for n in objects(content) if isinstance(n[2], list) and n[2]])
    del node[2][chance.randrange(len(node[2]))]


def change_text(content: Json, chance: random.Random, canary: str) -> None:
    """An expression, a name or a word becomes a hostile expression, everywhere."""
    nodes = content["nodes"]
    words = {str(slot[1]) for n in nodes if n[:2] == ["object", FACTOR] for slot in n[3] or [] if slot[0] == "expr"}
    old = chance.choice(sorted(words)) if words and chance.random() < 0.8 else "x"
    new = chance.choice(hostile_texts(canary))
    content["nodes"] = json.loads(json.dumps(nodes).replace(json.dumps(old), json.dumps(new)))


def force_python(content: Json, chance: random.Random, canary: str) -> None:
    """A factor's text is hostile, and it says that it is one of Python's."""
    change_text(content, chance, canary)
    nodes = content["nodes"]
    nodes.append(["enum", f"{FACTOR}.EvalMethod", "PYTHON"])
    for node in nodes:
        if node[:2] == ["object", FACTOR]:
            node[3] = [[name, [len(nodes) - 1] if name == "_eval_method" else value] for name, value in node[3]]


def put_node(content: Json, chance: random.Random, canary: str) -> None:
    content["nodes"][chance.randrange(len(content["nodes"]))] = new_node(content, chance, canary)


def make_cycle(content: Json, chance: random.Random, canary: str) -> None:
    """A node refers to one that refers to it."""
    nodes = content["nodes"]
    holders = [i for i, n in enumerate(nodes) if n and n[0] in ("object", "list", "tuple", "dict")]
    i = chance.choice(holders)
    node = nodes[i]
    if node[0] == "object" and isinstance(node[2], list) and node[2]:
        chance.choice(node[2])[1] = [chance.choice([i, content["root"][0]])]
    elif node[0] in ("list", "tuple") and isinstance(node[1], list):
        node[1].append([i])


def nest(content: Json, chance: random.Random, canary: str) -> None:
    """What one reference stands for is now far inside, or doubled again and again."""
    nodes = content["nodes"]
    node = chance.choice([n for n in objects(content) if isinstance(n[2], list) and n[2]])
    pair = chance.choice(node[2])
    depth, doubled = chance.choice([5, 60, 5000]), chance.random() < 0.5
    last = pair[1] if isinstance(pair[1], list) else ["nan"]
    kernel = "sklearn.gaussian_process.kernels:Sum"
    for _ in range(depth):
        both = [["k1", last], ["k2", last]]
        nodes.append(["object", kernel, both, None] if doubled and depth < 100 else ["list", [last] * (1 + doubled)])
        last = [len(nodes) - 1]
    pair[1] = last


CHANGES = (
    *(change_value, change_value, retarget, retarget, swap_nodes, change_class, add_attribute, add_attribute),
    *(drop_attribute, change_text, force_python, put_node, make_cycle, nest),
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
