"""What a file may name: classes of fenchel that hold numbers, a few of others, and a short list of functions.

An object of a file is made without its constructor and given attributes that its class declares (``attributes.py``).
Nothing that runs comes from a file: a function stands where the lists below let it stand, and no class here opens a
path, unpickles or starts a process (a test looks through their code). What a formula computes when a loaded model
predicts is evaluated by ``evaluating.py``.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
from types import FunctionType, MethodType
from typing import Any

from ..checks import Refusal, problem
from .attributes import declared
from .evaluating import is_plain
from .expressions import ALLOWED, NotAllowed, read

ROOMS = (  # whose classes may be in a file
    *("models", "estimators", "terms", "inputs", "gmrf", "factors", "hyperparameters", "solvers", "priors"),
    *("likelihoods", "linalg", "criteria", "corrections", "posterior", "marginals", "primal", "problem", "kernels"),
    *("scaled_rbf", "transforms", "distributed", "iterative"),
)
NEVER = (  # of these rooms, what reads, writes, draws or runs on other machines
    *(f"fenchel.models.{word}" for word in ("command", "page", "pictures", "export", "materializer")),
    *(f"fenchel.distributed.{word}" for word in ("checkpoint", "partitions", "passes", "row_sums", "linear_rows")),
    *(f"fenchel.estimators.{word}" for word in ("dask_rows", "pictures")),
    *(f"fenchel.linalg.{word}" for word in ("compiled", "threads", "memory", "two_sided")),
    *(f"fenchel.hyperparameters.integration.points:{word}" for word in ("Finished", "Fitter", "_Shared")),
    "fenchel.models.calibrating",
    *(f"fenchel.models.compiler:{word}" for word in ("Scope", "Compiler")),
)
_SPACE, _LIKELIHOODS = "fenchel.gmrf.space", "fenchel.likelihoods"
FUNCTIONS: dict[str, tuple[str, ...]] = {  # attribute -> what it may be: functions, partials of them, classes
    "size": ("fenchel.terms.base:_pc", "fenchel.hyperparameters.priors:PCDeviation"),
    "rates": (*(f"{_SPACE}:{word}" for word in ("_two_rates", "_shared_rates", "_mixed_rates", "_diffusion_rates")),),
    "start": (
        *(f"{_LIKELIHOODS}.{word}:_start" for word in ("negative_binomial_1", "tweedie")),
        *(f"{_LIKELIHOODS}.{word}" for word in ("cumulative:_frequencies", "hurdle:_share")),
    ),
    "bounds": (f"{_LIKELIHOODS}.cumulative:_reach", f"{_LIKELIHOODS}.survival:_shape_bounds"),
}
METHODS = {  # attribute -> the method of another object that it may be, and the room of that object
    "build": ("precision", "terms"),
    "_log_prior": ("log_prior", "gmrf"),
    "refuse": ("refuse", "models"),
}
TABLES = (  # attributes that may be pandas' tables and columns, or hold them: these have methods that write and run
    *("frame", "people", "sketch", "data_index", "context", "given", "hyperparameters"),  # of models
    *("graph", "graphs", "cov", "structure", "R", "effects"),  # as users give them to terms
)
CALLED = (FunctionType, MethodType, functools.partial, type)  # what a file holds by these lists alone
EXPRESSION = "fenchel.models.model_matrix:Expression"
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


# -- names --------------------------------------------------------------------------------------------------
def key_of(thing: Any) -> str | None:
    """What a file calls a class, or None where it may not be in one."""
    key = f"{thing.__module__}:{thing.__qualname__}"
    return key if _may_be_named(key) else None


def _may_be_named(key: str) -> bool:
    if not _KEY.fullmatch(key):
        return False
    module = key.partition(":")[0]
    return key in FOREIGN or (_room(key, ROOMS) and module not in NEVER and key not in NEVER)


def _room(key: str, rooms: tuple[str, ...]) -> bool:
    first, _, rest = key.partition(":")[0].partition(".")
    return first == "fenchel" and rest.partition(".")[0] in rooms


def class_of(key: Any) -> type:
    """The class that a file names."""
    if type(key) is not str or not _may_be_named(key):
        raise ValueError(f"it names {str(key)[:60]!r}")
    found = _found(key)
    if not isinstance(found, type) or issubclass(found, (BaseException, type)):
        raise ValueError(f"{key!r} is no class")
    return found


def object_of(key: Any) -> type:
    """The class of an object that a file fills: not one whose values are its members, or that of a tuple."""
    found = class_of(key)
    if issubclass(found, (enum.Enum, tuple, list, dict, set, frozenset, bytes, int, float)):
        raise ValueError(f"{key!r} is not filled by attributes")
    return found


def _found(key: str) -> Any:
    module, _, name = key.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if getattr(found, "__module__", None) != module or getattr(found, "__qualname__", None) != name:
        raise ValueError(f"{key!r} is not defined there")
    return found


# -- functions ----------------------------------------------------------------------------------------------
def function_of(key: Any) -> Any:
    """The function, or the class in the place of one, that a file names."""
    if type(key) is not str or not any(key in keys for keys in FUNCTIONS.values()):
        raise ValueError(f"it names {str(key)[:60]!r}")
    return _found(key)


def method_of(owner: Any, name: Any) -> Any:
    """A method of an object of a file, where an attribute may be one."""
    key = f"{type(owner).__module__}:{type(owner).__qualname__}"
    known = type(name) is str and any(name == word and _room(key, (room,)) for word, room in METHODS.values())
    found = getattr(type(owner), name, None) if known and key_of(type(owner)) else None
    if not isinstance(found, FunctionType):
        raise ValueError(f"it names the method {str(name)[:40]!r} of {key}")
    return found.__get__(owner)


def check_callable(attribute: str | None, found: Any) -> None:
    """Refuse a function, method or class where a file may not have one."""
    if attribute is None or not may_be_called(attribute, found):
        raise ValueError(f"it has a function where {attribute or 'a number'!r} is")


def may_be_called(attribute: str, found: Any) -> bool:
    """Whether an attribute of that name may be this function, method or class."""
    if isinstance(found, MethodType):
        name, room = METHODS.get(attribute, ("", ""))
        owner = type(found.__self__)
        key = key_of(owner)
        own = found.__func__ is getattr(owner, found.__name__, None)
        return key is not None and own and found.__name__ == name and _room(key, (room,))
    if isinstance(found, functools.partial):
        return isinstance(found.func, FunctionType) and may_be_called(attribute, found.func)
    return f"{found.__module__}:{found.__qualname__}" in FUNCTIONS.get(attribute, ())


def check_table(attribute: str) -> None:
    """Refuse a data frame where a file may not have one."""
    if attribute not in TABLES:
        raise ValueError(f"it has a table or a long range where {attribute!r} is")


# -- objects as a file fills them ---------------------------------------------------------------------------
def check_attribute(cls: type, name: str) -> str:
    """A name of an attribute that the class declares."""
    if name not in declared(cls):
        raise ValueError(f"{cls.__name__} has no {name[:40]!r}")
    return name


def slot_of(cls: type, name: str) -> Any:
    """The slot of that name."""
    found = inspect.getattr_static(cls, check_attribute(cls, name), None)
    if not inspect.ismemberdescriptor(found):
        raise ValueError(f"{name!r} is no slot")
    return found


def verified(cls: type) -> bool:
    """Whether a class has arrays that compiled loops rely on, and looks them through."""
    return isinstance(getattr(cls, "verify", None), FunctionType)


def check_object(key: str, made: Any) -> None:
    """Refuse factors and expressions of a formula that would run more than arithmetic, and what does not hold together.

    A class whose arrays compiled loops rely on has ``verify``, which raises ValueError where they are not as they were.
    It is called once the whole file is read: what an object refers to is then as it will be.
    """
    if verified(type(made)):
        made.verify()
    if key == FACTOR:
        _check_factor(made)
    if key == EXPRESSION:
        _check_context(made)


def _check_factor(made: Any) -> None:
    if type(made.eval_method) is not type(made).EvalMethod or type(made.kind) is not type(made).Kind:
        raise ValueError("a factor of the formula is odd")
    if made.eval_method.value == "python":
        check_expression(made.expr)
    elif type(made.expr) is not str:
        raise ValueError("a formula is no text")


def _check_context(made: Any) -> None:
    if type(made.context) is not dict:
        raise ValueError("the variables of a formula are odd")
    odd = [str(name) for name, value in made.context.items() if not is_plain(value)]
    if odd:
        raise unsafe(made.text, f"it uses {odd[0]!r}, which is no number")


# -- expressions --------------------------------------------------------------------------------------------
def check_expression(text: Any) -> None:
    """Refuse an expression of a formula that is more than arithmetic, formulaic's transforms and numpy's ufuncs."""
    try:
        read(text)
    except NotAllowed as error:
        raise unsafe(str(text), str(error)) from None


def unsafe(text: str, why: str) -> Refusal:
    """The sentence of an expression that no file may hold."""
    advice = "Make a column of it in the data, or keep the model with pickle."
    return problem("files", f"the formula's {text[:60]!r} cannot be saved: {why}", ALLOWED, advice)
