"""What a file may name: classes and functions of fenchel, a few others', and expressions without side effects.

An object of a file is made without its constructor and given its attributes. Classes are those of the rooms below,
whose objects hold numbers; functions those of the rooms that compute. What a formula evaluates when a loaded model
predicts is held to arithmetic, formulaic's transforms and numpy's ufuncs: other names could do anything.
"""

from __future__ import annotations

import ast
import importlib
import re
from types import FunctionType
from typing import Any

import numpy as np

from ..checks import Refusal, problem

ROOMS = (  # whose classes may be in a file
    *("models", "estimators", "terms", "gmrf", "factors", "hyperparameters", "solvers", "priors"),
    *("likelihoods", "linalg", "criteria", "corrections", "posterior", "marginals", "primal", "problem", "kernels"),
    *("scaled_rbf", "transforms", "distributed", "iterative"),
)
PURE = ("terms", "gmrf", "hyperparameters", "likelihoods", "transforms")  # whose functions may be
METHODS = {("fenchel.models.grammar:Parsed", "refuse")}  # bound methods of others
EXPRESSION = "fenchel.models.fixed:Expression"
KERNELS = "sklearn.gaussian_process.kernels"
FACTOR = "formulaic.parser.types.factor:Factor"
FOREIGN = {
    FACTOR,
    *(f"{FACTOR}.{word}" for word in ("EvalMethod", "Kind")),
    *(f"formulaic.formula:{word}" for word in ("OrderingMethod", "SimpleFormula")),
    "formulaic.materializers.base:EncodedTermStructure",
    *(f"formulaic.materializers.types.enums:{word}" for word in ("ClusterBy", "NAAction")),
    "formulaic.materializers.types.evaluated_factor:EvaluatedFactor",
    "formulaic.materializers.types.scoped_factor:ScopedFactor",
    "formulaic.materializers.types.scoped_term:ScopedTerm",
    "formulaic.model_spec:ModelSpec",
    "formulaic.parser.types.ordered_set:OrderedSet",
    "formulaic.parser.types.term:Term",
    *(f"formulaic.parser.types.token:{word}" for word in ("Token", "Token.Kind")),
    *(
        f"formulaic.transforms.contrasts:{word}Contrasts"
        for word in ("Custom", "Diff", "Helmert", "Poly", "SAS", "Sum")
    ),
    *(f"formulaic.transforms.contrasts:{word}" for word in ("ContrastsState", "TreatmentContrasts")),
    "formulaic.utils.sentinels:Sentinel",
    *(f"formulaic.utils.variables:{word}" for word in ("Variable", "Variable.Role")),
    *(f"{KERNELS}:{word}" for word in ("CompoundKernel", "ConstantKernel", "DotProduct", "ExpSineSquared")),
    *(f"{KERNELS}:{word}" for word in ("Exponentiation", "Hyperparameter", "Matern", "Product", "RBF")),
    *(f"{KERNELS}:{word}" for word in ("RationalQuadratic", "Sum", "WhiteKernel")),
}
_KEY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_BUILTINS = {"abs", "min", "max", "round", "int", "float", "bool", "len"}
_NUMPY = {"where", "clip", "round", "pi", "e", "nan", "inf"}  # beside ufuncs
# numpy's that a formula may call without np., as R and brms do; log, log2, log10 and exp are formulaic's own
BARE = {"sqrt": np.sqrt, "log1p": np.log1p, "expm1": np.expm1, "sin": np.sin, "cos": np.cos}
_PLAIN = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Constant),
    *(ast.List, ast.Tuple, ast.Dict, ast.keyword, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    ast.Attribute,
)


# -- names --------------------------------------------------------------------------------------------------
def key_of(thing: Any) -> str | None:
    """What a file calls a class or function, or None where it may not be in one."""
    key = f"{thing.__module__}:{thing.__qualname__}"
    allowed = key in FOREIGN or _room(key, ROOMS if isinstance(thing, type) else PURE)
    return key if allowed and _KEY.fullmatch(key) else None


def _room(key: str, rooms: tuple[str, ...]) -> bool:
    first, _, rest = key.partition(":")[0].partition(".")
    return first == "fenchel" and rest.partition(".")[0] in rooms


def class_of(key: Any) -> type:
    """The class that a file names."""
    found = _found(key, ROOMS)
    if not isinstance(found, type) or issubclass(found, BaseException):
        raise ValueError(f"{key!r} is no class")
    return found


def function_of(key: Any) -> Any:
    """The function that a file names."""
    found = _found(key, PURE)
    if not isinstance(found, FunctionType):
        raise ValueError(f"{key!r} is no function")
    return found


def _found(key: Any, rooms: tuple[str, ...]) -> Any:
    if not (isinstance(key, str) and _KEY.fullmatch(key)) or not (key in FOREIGN or _room(key, rooms)):
        raise ValueError(f"it names {str(key)[:60]!r}")
    module, _, name = key.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if getattr(found, "__module__", None) != module or getattr(found, "__qualname__", None) != name:
        raise ValueError(f"{key!r} is not defined there")
    return found


def method_of(owner: Any, name: Any) -> Any:
    """A bound method that a file names, of an object that computes."""
    key = f"{type(owner).__module__}:{type(owner).__qualname__}"
    if not (isinstance(name, str) and (_room(key, PURE) or (key, name) in METHODS)) or name.startswith("__"):
        raise ValueError(f"it names the method {str(name)[:40]!r} of {key}")
    found = getattr(type(owner), name)
    if not isinstance(found, FunctionType):
        raise ValueError(f"{name!r} is no method of {key}")
    return found.__get__(owner)


# -- objects as a file fills them ---------------------------------------------------------------------------
def check_attribute(key: str, name: str) -> str:
    """A name of an attribute: what a formula evaluates is an attribute of its factors alone."""
    if not name.isidentifier() or name.startswith("__") or (name in ("expr", "_eval_method") and key != FACTOR):
        raise ValueError(f"{key} has no {name[:40]!r}")
    return name


def verified(cls: type) -> bool:
    """Whether a class has arrays that compiled loops rely on, and looks them through."""
    return isinstance(getattr(cls, "verify", None), FunctionType)


def check_object(key: str, made: Any) -> None:
    """Refuse factors and expressions of a formula that would run more than arithmetic, and what does not hold together.

    A class whose arrays compiled loops rely on has ``verify``, which raises ValueError where they are not as they were.
    """
    if verified(type(made)):
        made.verify()
    if key == FACTOR and made.eval_method.value != "lookup":
        check_expression(made.expr)
    if key == EXPRESSION:
        called = [str(name) for name, value in dict(made.context).items() if callable(value) or not _plain(value)]
        if called:
            raise unsafe(made.text, f"it uses {called[0]!r}, which is no number")


def _plain(value: Any) -> bool:
    own = type(value).__module__.partition(".")[0]
    return own in ("builtins", "numpy", "pandas", "scipy", "datetime")


# -- expressions --------------------------------------------------------------------------------------------
def check_expression(text: Any) -> None:
    """Refuse an expression of a formula that is more than arithmetic, formulaic's transforms and numpy's ufuncs."""
    if not isinstance(text, str):
        raise ValueError("a formula is no text")
    plain = re.sub(r"`[^`]*`", "x", text)
    try:
        nodes = list(ast.walk(ast.parse(plain.strip(), mode="eval")))
    except (SyntaxError, RecursionError, MemoryError):
        raise unsafe(text, "it cannot be read") from None
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    for node in nodes:
        if not isinstance(node, _PLAIN):
            raise unsafe(text, f"it has a {type(node).__name__.lower()}")
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            raise unsafe(text, f"it names {node.id}")
        if isinstance(node, ast.Call) and not _may_be_called(node.func):
            raise unsafe(text, f"it calls {ast.unparse(node.func)}")
    for node in attributes:
        if not _known(node):
            raise unsafe(text, f"it uses {ast.unparse(node)}")


def _may_be_called(node: ast.expr) -> bool:
    from formulaic.transforms import TRANSFORMS

    return isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Name) and node.id in {*TRANSFORMS, *_BUILTINS, *BARE}
    )


def _known(node: ast.Attribute) -> bool:
    """np.log, contr.treatment."""
    if not isinstance(node.value, ast.Name) or node.attr.startswith("_"):
        return False
    if node.value.id == "np":
        return node.attr in _NUMPY or isinstance(getattr(np, node.attr, None), np.ufunc)
    return node.value.id == "contr"


def unsafe(text: str, why: str) -> Refusal:
    """The sentence of an expression that no file may hold."""
    expected = "arithmetic, np.log and its like, formulaic's own transforms"
    advice = "Make a column of it in the data, or keep the model with pickle."
    return problem("files", f"the formula's {text[:60]!r} cannot be saved: {why}", expected, advice)
