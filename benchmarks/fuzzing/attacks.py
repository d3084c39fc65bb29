"""Attacks on a file, by name: each changes the content and the arrays of a saved model so that using it would run,
open or unpickle something, never end or take all memory, if the library let it.

The model is that of ``BASE``; ``canary`` is a path at which nothing may appear, ``prey`` one that must stay as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .archives import FACTOR, saved

Json = Any
BASE = "y ~ np.log(x) + scale(z) + C(a) + (1|g)"
TERM, SPEC = "formulaic.parser.types.term:Term", "formulaic.model_spec:ModelSpec"
EXPRESSION, PARSED = "fenchel.models.model_matrix:Expression", "fenchel.models.grammar:Parsed"
FINISHED = "fenchel.hyperparameters.integration.points:Finished"
KERNELS = "sklearn.gaussian_process.kernels"


class Attack(NamedTuple):
    """What is changed, and in the file of which model."""

    change: Callable[..., None]
    kind: str = "base"


ATTACKS: dict[str, Attack] = {}


def attack(function: Callable[..., None]) -> Callable[..., None]:
    ATTACKS[function.__name__] = Attack(function)
    return function


# -- tools ---------------------------------------------------------------------------------------------------
def add(c: Json, *nodes: Json) -> int:
    """Nodes at the end; the place of the first."""
    c["nodes"] += nodes
    return len(c["nodes"]) - len(nodes)


def root(c: Json) -> Json:
    return c["nodes"][c["root"][0]]


def first(c: Json, key: str) -> Json:
    return next(node for node in c["nodes"] if node[:2] == ["object", key])


def put(node: Json, name: str, value: Json, part: int = 2) -> None:
    """Give an object an attribute, in the place of one of that name."""
    node[part] = [pair for pair in node[part] if pair[0] != name] + [[name, value]]


def replace(c: Json, old: str, new: str) -> None:
    c["nodes"] = json.loads(json.dumps(c["nodes"]).replace(json.dumps(old), json.dumps(new)))


def python_factor(c: Json) -> Json:
    return next(n for n in c["nodes"] if n[:2] == ["object", FACTOR] and ["expr", "np.log(x)"] in n[3])


def opens(canary: str) -> str:
    return f"open({canary!r}, 'w')"


# -- expressions ---------------------------------------------------------------------------------------------
@attack
def backticks_in_strings(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    replace(c, "np.log(x)", f'np.log(x) + 0*len("`" + str({opens(canary)}) + "`")')


@attack
def eval_method_that_changes(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    factor = python_factor(c)
    replace(c, "np.log(x)", opens(canary))
    place = next(i for i, n in enumerate(c["nodes"]) if n[:2] == ["object", FACTOR] and canary in str(n))
    words = [["value", "lookup"], ["f", [place]], ["value", "python"]]
    put(c["nodes"][place], "_eval_method", [add(c, ["object", "fenchel.models.grammar:Piece", words, None])], 3)
    root(c)[2].insert(0, ["first", [len(c["nodes"]) - 1]])
    assert factor


@attack
def enumeration_filled_as_an_object(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    member = ["object", f"{FACTOR}.EvalMethod", [["_value_", "lookup"], ["_name_", "PYTHON"]], None]
    put(python_factor(c), "_eval_method", [add(c, member)], 3)
    replace(c, "np.log(x)", opens(canary))


@attack
def text_of_another_class(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    word = ["text", "formulaic.utils.variables:Variable", opens(canary), [["roles", None]], None]
    put(python_factor(c), "expr", [add(c, word)], 3)


@attack
def quotes_in_the_name_of_a_state(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    replace(c, "scale(z)", "scale(z, '''\"] or " + opens(canary) + " or [\"''')")


@attack
def lookup_of_a_module(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(python_factor(c), "_eval_method", [add(c, ["enum", f"{FACTOR}.EvalMethod", "LOOKUP"])], 3)
    replace(c, "np.log(x)", "np")


@attack
def literal_without_end(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(python_factor(c), "_eval_method", [add(c, ["enum", f"{FACTOR}.EvalMethod", "LITERAL"])], 3)
    replace(c, "np.log(x)", "-" * 200_000 + "1")


def _with_expression(name: str, text: str) -> None:
    def change(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
        replace(c, "np.log(x)", text.replace("RUN", opens(canary)))

    change.__name__ = name
    attack(change)


_with_expression("power_without_end", "np.log(x) + 0*(9**9**9)")
_with_expression("power_of_objects", "np.log(x) + np.power(10**100, 10**9)")
_with_expression("rounding_without_end", "np.log(x) + round(3, -10**9)")
_with_expression("text_without_end", "np.log(x) + len('a' * 10**10)")
_with_expression("format_without_end", "np.log(x) + len('%1000000000d' % 3)")
_with_expression("spline_without_end", "bs(x, df=10**8)")
_with_expression("hashing_by_a_function", "hashed(x, 3, hash_func=RUN)")
_with_expression("keyword_of_a_transform", "scale(x, _state=RUN)")
_with_expression("result_in_a_column", "np.log(x, z)")
_with_expression("method_of_a_column", "x.to_csv('RUN')")
_with_expression("globals_of_contrasts", "C(x, contr.custom.__init__.__globals__)")
_with_expression("nested_too_deep", "(" * 190 + "x" + ")" * 190)
_with_expression("signs_without_end", "-" * 4000 + "1")
_with_expression("walrus_and_lambda", "(lambda: RUN)() or (q := 1)")


# -- what is behind an expression ----------------------------------------------------------------------------
@attack
def mark_of_python(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    replace(c, "np.log(x)", opens(canary))
    put(python_factor_of(c, canary), "_eval_method", [add(c, ["enum", f"{FACTOR}.EvalMethod", "LOOKUP"])], 3)
    mark = add(c, ["function", "fenchel.models.model_matrix:written_in_python"])
    put(first(c, EXPRESSION), "mark", [mark])


def python_factor_of(c: Json, canary: str) -> Json:
    return next(n for n in c["nodes"] if n[:2] == ["object", FACTOR] and canary in str(n))


@attack
def functions_among_the_variables(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["class", "fenchel.hyperparameters.priors:PCDeviation"], ["dict", [["f", [len(c["nodes"])]]]])
    put(first(c, EXPRESSION), "context", [n + 1])
    replace(c, "np.log(x)", "f(1, 2)")


@attack
def kernel_among_the_variables(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["object", f"{KERNELS}:RBF", [["length_scale", 1.0]], None], ["dict", [["k", [len(c["nodes"])]]]])
    put(first(c, EXPRESSION), "context", [n + 1])
    replace(c, "np.log(x)", "x * k")


@attack
def specification_with_a_text(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(first(c, SPEC), "formula", "{" + opens(canary) + "} + (a + b + c + d)**60")


@attack
def specification_of_another_materializer(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    replace(c, "np.log(x)", opens(canary))
    for word in ("arrow", "narwhals"):
        put(first(c, SPEC), "materializer", word)
    put(first(c, SPEC), "materializer_params", [add(c, ["dict", [["python", True]]])])


@attack
def formula_in_the_place_of_a_specification(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    formula = dict(map(tuple, first(c, EXPRESSION)[2]))["formula"]
    put(first(c, EXPRESSION), "spec", formula)
    replace(c, "np.log(x)", opens(canary))


@attack
def factors_that_are_texts(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(first(c, TERM), "factors", [add(c, ["tuple", [opens(canary)]])])


@attack
def term_of_very_many_columns(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    place = next(i for i, n in enumerate(c["nodes"]) if n[:2] == ["object", FACTOR] and ["expr", "C(a)"] in n[3])
    for node in c["nodes"]:
        if node[:2] == ["object", TERM] and [place] in c["nodes"][dict(map(tuple, node[2]))["factors"][0]][1]:
            put(node, "factors", [add(c, ["tuple", [[place]] * 60])])
        if node[:2] == ["object", "formulaic.materializers.types.scoped_term:ScopedTerm"]:
            ref = dict(map(tuple, node[3]))["factors"][0]
            put(node, "factors", [add(c, ["tuple", c["nodes"][ref][1] * 60])], 3)


@attack
def state_of_very_many_knots(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    arrays.append(saved(np.linspace(0.0, 1.0, 300_000)))
    n = add(
        c,
        ["array", len(arrays) - 1],
        [
            "dict",
            [
                [
                    "knots",
                    [len(c["nodes"])],
                ]
            ],
        ],
    )
    c["nodes"][n + 1][1] += [["lower_bound", 0.0], ["upper_bound", 9.0]]
    put(first(c, SPEC), "transform_state", [add(c, ["dict", [["bs(x, df=5)", [n + 1]]]])])
    replace(c, "np.log(x)", "bs(x, df=5)")


@attack
def format_of_a_column(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    for node in c["nodes"]:
        if node[0] == "object" and node[1].endswith("TreatmentContrasts"):
            put(node, "FACTOR_FORMAT", "{name:>9999999999}")


@attack
def encoder_of_a_variable(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["object", PARSED, [["__formulaic_metadata__", 1], ["encoder", [0]]], None])
    put(first(c, EXPRESSION), "context", [add(c, ["dict", [["np.log(x)", [n]]]])])


# -- attributes and functions --------------------------------------------------------------------------------
def _finished(c: Json, prey: str) -> int:
    n = len(c["nodes"])
    given = [["path", prey], ["points", [n + 1]], ["mode", None], ["about", None]]
    return add(c, ["object", FINISHED, given, None], ["dict", []])


@attack
def method_that_unpickles(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = _finished(c, prey)
    root(c)[2].append(["predict", [add(c, ["method", [n], "open"])]])


@attack
def partial_that_appends(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = _finished(c, prey)
    m = add(c, ["method", [n], "_add"], ["tuple", ["\ntouch x\n"]], ["dict", []])
    root(c)[2].append(["predict", [add(c, ["partial", [m], [m + 1], [m + 2]])]])


@attack
def method_in_the_place_of_refuse(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = _finished(c, prey)
    put(first(c, EXPRESSION), "refuse", [add(c, ["method", [n], "open"])])
    replace(c, "np.log(x)", "np.log(nobody)")


@attack
def save_in_the_place_of_refuse(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(first(c, EXPRESSION), "refuse", [add(c, ["method", c["root"], "save"])])
    replace(c, "np.log(x)", "np.log(nobody)")
    put(first(c, EXPRESSION), "text", canary)


@attack
def precision_in_the_place_of_predict(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    term = next(i for i, n in enumerate(c["nodes"]) if n[0] == "object" and n[1].startswith("fenchel.terms.grouped:"))
    root(c)[2].append(["predict", [add(c, ["method", [term], "precision"])]])


@attack
def class_in_the_place_of_an_object(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(root(c), "likelihood", [add(c, ["class", "fenchel.models.fitted:FittedModel"])])


@attack
def partial_of_an_object(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["function", "fenchel.terms.base:_pc_precision"], ["tuple", [c["root"]]], ["dict", []])
    size = next(n for n in c["nodes"] if n[0] == "object" and n[1] == "fenchel.terms.base:Hyperparameter")
    put(size, "size", [add(c, ["partial", [n], [n + 1], [n + 2]])])


@attack
def functions_in_a_list(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["function", "fenchel.terms.base:_pc_precision"])
    put(root(c), "shift", [add(c, ["list", [[n]]])])


@attack
def names_that_python_looks_for(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["function", "fenchel.terms.base:_pc_precision"])
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__copy__", "_repr_html_", "_plain_state", "__class__"):
        root(c)[2].append([name, [n]])


@attack
def an_attribute_twice(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    root(c)[2].append(list(root(c)[2][0]))


@attack
def a_command_to_run(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["nodes"].append(["object", "fenchel.models.command:Fit", [["formula", "y ~ x"], ["out", canary]], None])
    c["root"], c["holds"] = [len(c["nodes"]) - 1], "Fit"


@attack
def a_checkpoint(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    given = [["path", canary], ["where", "x"]]
    put(root(c), "solution", [add(c, ["object", "fenchel.distributed.checkpoint:Checkpoint", given, None])])


@attack
def a_column_in_the_place_of_predictors(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    """pandas' ``apply`` calls a method by its name: ``to_clipboard`` starts a program."""
    index = next(
        dict(map(tuple, n[2]))["data_index"] for n in c["nodes"] if n[:2] == ["object", "fenchel.models.model:Model"]
    )
    n = add(
        c, ["objects", [1], ["x"]], ["column", [len(c["nodes"])], None], ["series", [len(c["nodes"]) + 1], index, None]
    )
    for node in c["nodes"]:
        if node[0] == "object" and node[1] == "fenchel.posterior:Posterior":
            put(node, "_all", [n + 2])
            put(node, "_alpha", "to_clipboard")
            put(node, "predictors", [add(c, ["list", [[n + 2]]])])


# -- sizes, cycles, other libraries --------------------------------------------------------------------------
def kernels_doubled(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["object", f"{KERNELS}:RBF", [["length_scale", 1.0], ["length_scale_bounds", "fixed"]], None])
    for _ in range(60):
        n = add(c, ["object", f"{KERNELS}:Sum", [["k1", [n]], ["k2", [n]]], None])
    for node in c["nodes"]:
        if node[0] == "object" and node[2] and any(name in ("kernel", "kernel_") for name, _ in node[2]):
            for name in [name for name, _ in node[2] if name in ("kernel", "kernel_")]:
                put(node, name, [n])


ATTACKS["kernels_doubled"] = Attack(kernels_doubled, "classifier")


@attack
def lists_doubled(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["list", ["x"]])
    for _ in range(12):
        n = add(c, ["list", [[n]] * 1000])
    put(first(c, EXPRESSION), "names", [n])


@attack
def keys_that_collide(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    pairs = [[k * (2**61 - 1), 0] for k in range(1, 30_000)]
    put(first(c, EXPRESSION), "kinds", [add(c, ["dict", pairs])])


@attack
def members_that_collide(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(first(c, EXPRESSION), "kinds", [add(c, ["set", [k * (2**61 - 1) for k in range(1, 30_000)]])])


@attack
def a_very_long_index(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["range", [0, 10**15, 1]])
    put(first(c, "fenchel.models.model:Model"), "data_index", [add(c, ["index", [n], None])])


@attack
def very_many_levels(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    long = add(c, ["range", [0, 15_000_000, 1]])
    for node in c["nodes"]:
        if node[0] == "object" and node[1].endswith(":ContrastsState"):
            put(node, "levels", [long])
        if node[0] == "dict" and any(pair[0] == "categories" for pair in node[1]):
            node[1] = [[name, [long] if name == "categories" else value] for name, value in node[1]]


@attack
def a_very_wide_matrix(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    arrays += [saved(np.ones(1)), saved(np.zeros(1, dtype=int)), saved(np.zeros(1, dtype=int))]
    n = len(arrays) - 3
    wide = add(c, ["sparse", "coo_array", [10**11, 10**11], [n, n + 1, n + 2], True])
    for node in c["nodes"]:
        for name in [name for name, _ in (node[2] or [] if node[0] == "object" else [])]:
            if name in ("design", "structure", "matrix", "W"):
                put(node, name, [wide])


@attack
def a_very_deep_list(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = len(c["nodes"])
    add(c, *(["list", [[n + k + 1]]] for k in range(30_000)), ["list", []])
    put(first(c, EXPRESSION), "names", [n])


@attack
def a_list_of_itself(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = len(c["nodes"])
    add(c, ["list", [[n], [n]]])
    put(first(c, EXPRESSION), "names", [n])
    put(first(c, EXPRESSION), "context", [add(c, ["dict", [["x", [n]], ["y", [n]]]])])


@attack
def time_zone_of_a_path(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    put(root(c), "shift", [add(c, ["pandas-dtype", f"datetime64[ns, dateutil/{prey}]"])])


@attack
def moment_of_a_path(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    arrays.append(saved(np.array("2020-01-01", dtype="M8[ns]")))
    put(root(c), "shift", [add(c, ["moment", "Timestamp", len(arrays) - 1, f"dateutil/{prey}"])])


@attack
def objects_in_an_array(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    n = add(c, ["objects", [1], [c["root"]]])
    put(first(c, EXPRESSION), "context", [add(c, ["dict", [["x", [n]]]])])


@attack
def a_factor_within_its_analysis(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    """The analysis refers to the factor, whose arrays are looked through before the analysis is known to be one."""
    place = next(i for i, n in enumerate(c["nodes"]) if n[0] == "object" and n[1].endswith(":LeafCholesky"))
    refs = dict(map(tuple, c["nodes"][place][2]))
    put(c["nodes"][refs["symbolic"][0]], "n_border", [place])


@attack
def indices_that_are_computed_once(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    node = next(n for n in c["nodes"] if n[0] == "object" and n[1].endswith(":LeafCholesky"))
    arrays.append(saved(np.arange(3) + 10**9))
    put(node, "_regressions", [add(c, ["array", len(arrays) - 1])])


@attack
def nodes_named_twice(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["nodes"][c["root"][0]] = ["object", "fenchel.models.fitted:FittedModel", [["model", c["root"]]], None]
