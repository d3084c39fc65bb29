"""What a file keeps of an object: the call that made it, and what searches found inside that call.

    fenchel.fit("y ~ x", data)  ->  Statement("models.Model.fit", (Statement("models.Model", ...),), {...}, found)
    load                        ->  the same calls, with every search answered by ``found``

Nothing derived is kept, and no private attribute: ``load`` calls the same public constructors and functions as a user
does, and they check their arguments as they check a user's. A class joins by the base ``Stated``, a function or a
``fit`` by the decorator ``stated``; a search inside them is run by ``searched``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..checks import problem

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
PACKAGES = (  # of fenchel, whose words a file may use
    *("likelihoods", "priors", "hyperparameters", "gmrf", "terms", "models", "estimators", "inference", "solvers"),
    *("distributed", "iterative", "factors", "category_kernels"),
)
NEVER = frozenset({"n_jobs", "checkpoint", "callback"})  # arguments that start processes, open files or run functions
_makers: dict[str, Callable[..., Any]] = {}
_not_kept: dict[str, frozenset[str]] = {}


class Statement(NamedTuple):
    """A call: its word in a file, such as "likelihoods.Poisson", its arguments, and the results of its searches."""

    word: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed
    found: Sequence[dict[str, Any]] = ()


def word_of(maker: Any) -> str:
    """What a file calls a class or function: its package and its name."""
    return f"{maker.__module__.partition('.')[2].partition('.')[0]}.{maker.__qualname__}"


class Stated:
    """An object that a file keeps as the arguments of its constructor."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _makers[word_of(cls)] = cls

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        out = super().__new__(cls)
        out.__dict__["_arguments"] = arguments, options, {}
        return out

    def restate(self, **changed: Any) -> None:
        """Say which arguments of the constructor would make this object, where they are not those it was given."""
        arguments, options, before = self.__dict__["_arguments"]
        kept = {name: value for name, value in options.items() if name not in changed}
        self.__dict__["_arguments"] = arguments, kept, {**before, **changed}

    def statement(self) -> Statement:
        """The call that makes it again."""
        arguments, options, changed = self.__dict__["_arguments"]
        bound = signature(type(self)).bind_partial(*arguments, **options)
        if not set(changed) <= set(bound.signature.parameters):
            raise cannot_save(self, type(self).__name__)
        bound.arguments.update(changed)
        return Statement(word_of(type(self)), bound.args, bound.kwargs)

    def state_call(self, call: Statement) -> Statement:
        """The call of its ``fit`` as a file keeps it; an estimator that holds its X gives that one."""
        return call


class StatedEstimator(Stated):
    """The same of an estimator of scikit-learn, whose arguments are its parameters."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        return object.__new__(cls)

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """As scikit-learn finds them, by introspection at every call."""
        return super()._get_param_names()  # type: ignore[misc]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn gives them."""
        return super().get_params(deep)  # type: ignore[misc]

    def statement(self) -> Statement:
        """The call that makes it, not fitted."""
        kept = {name: value for name, value in self.get_params(deep=False).items() if name not in NEVER}
        return Statement(word_of(type(self)), (), kept)


class SharedRows:
    """The X of a fit, which the fit refers to and does not copy.

    The user may change the array in place after the fit. A sum over it, taken when it was fitted, says so when it is
    saved: a file never holds other rows than those that were fitted.

    Parameters
    ----------
    rows : array (N, D) or scipy sparse
    names : sequence, optional
        Of the columns, where X was a data frame.
    """

    def __init__(self, rows: Any, names: Any = None) -> None:
        self.rows, self.names, self.sum = rows, names, _weighted_sum(rows)

    def table(self) -> Any:
        """X as a file keeps it; refused where it is no longer what it was."""
        if not np.array_equal(_weighted_sum(self.rows), self.sum, equal_nan=True):
            got = "X was changed in place after the fit"
            raise problem("save", got, "X as it was fitted", "Save right after the fit, or give the fit a copy of X.")
        if self.names is None:
            return self.rows
        import pandas as pd

        return pd.DataFrame(self.rows, columns=self.names)


def _weighted_sum(rows: Any) -> np.ndarray:
    """Sums over the rows, each row with a weight of its own: rows that change places change them too."""
    n = rows.shape[0]
    return np.asarray(np.linspace(1.0, 2.0, n) @ rows)


def statement_of(thing: Any) -> Statement | None:
    """The statement of an object of fenchel's own; None where it has none, or its class is not fenchel's."""
    found: Statement | None = getattr(thing, "__dict__", {}).get("_statement")
    own = found is None and _makers.get(word_of(type(thing))) is type(thing)
    return thing.statement() if own and type(thing).__module__.startswith("fenchel.") else found


# -- searches -----------------------------------------------------------------------------------------------
@dataclass
class _Journal:
    """Results of searches in order: noted while something is fitted, read while it is loaded."""

    found: list[dict[str, Any]] = field(default_factory=list)
    loads: bool = False
    mute: bool = False  # the searches inside another one are not noted

    def next(self, word: str) -> dict[str, Any]:
        if not self.found or self.found[0].get("of") != word:
            raise ValueError(f"it has no result of {word}")
        return self.found.pop(0)


_journal: ContextVar[_Journal | None] = ContextVar("_journal", default=None)


def is_loading() -> bool:
    """Whether a file is being loaded: nothing is searched, drawn on a screen or read elsewhere."""
    journal = _journal.get()
    return journal is not None and journal.loads


def next_search() -> str | None:
    """Which search the file that is being loaded has next; None while none is loaded."""
    journal = _journal.get()
    return str(journal.found[0].get("of")) if journal is not None and journal.loads and journal.found else None


def searched(
    word: str, search: Callable[[], T], keep: Callable[[T], dict[str, Any]], restore: Callable[[dict[str, Any]], T]
) -> T:
    """The result of a search, noted for a file; while one is loaded, the result that it has.

    Parameters
    ----------
    word : str
        Which search it is.
    search : callable
    keep : callable
        The result as numbers, text and arrays.
    restore : callable
        The result of these, without a search.
    """
    journal = _journal.get()
    if journal is None or journal.mute:
        return search()
    if journal.loads:
        kept = journal.next(word)
        with _using(_Journal(loads=True)):  # a search inside is one that the file does not have
            return restore(kept)
    with _using(_Journal(mute=True)):
        result = search()
    journal.found.append({"of": word, **keep(result)})
    return result


@contextmanager
def _using(journal: _Journal) -> Iterator[_Journal]:
    token = _journal.set(journal)
    try:
        yield journal
    finally:
        _journal.reset(token)


@contextmanager
def _kept_on_failure(estimator: Any) -> Iterator[None]:
    """An estimator whose fit fails stays as it was; one that is interrupted may keep the best fit so far."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException as error:
        if not vars(type(error)).get("keeps_fit"):
            vars(estimator).clear()
            vars(estimator).update(before)
        raise


# -- calls --------------------------------------------------------------------------------------------------
def stated(*not_kept: str) -> Callable[[F], F]:
    """Make what a function returns remember the call; arguments that only say how to search are not kept."""

    def decorate(function: F) -> F:
        word = word_of(function)
        parameters = signature(function)
        refits = function.__qualname__.endswith(".fit")  # the object itself

        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            if _journal.get() is not None:  # a part of another call, which is the one to be kept
                return function(*arguments, **options)
            kept = _kept_on_failure(arguments[0]) if refits else nullcontext()
            with _using(_Journal()) as journal, kept:
                result = function(*arguments, **options)
            bound = parameters.bind(*arguments, **options)
            for name in not_kept:
                bound.arguments.pop(name, None)
            _state(result, Statement(word, bound.args, bound.kwargs, journal.found))
            return result

        _makers[word], _not_kept[word] = call, frozenset(not_kept)
        return call  # type: ignore[return-value]

    return decorate


def _state(result: Any, call: Statement) -> None:
    """Let the result of a call keep the call, with copies of the tables and arrays that it was given."""
    first, *others = call.arguments or (None,)
    partitions = any(map(_is_dask, (*others, *call.options.values())))
    if result is first:  # the fit of an estimator, or a fit that already is what was asked for
        if not isinstance(result, Stated):
            return
        call = call if partitions else result.state_call(call)
        first, others = result.statement(), list(call.arguments[1:])
    kept = _elsewhere if partitions else copied
    arguments = (first, *map(kept, others)) if call.arguments else ()
    options = {name: kept(value) for name, value in call.options.items()}
    result.__dict__["_statement"] = Statement(call.word, arguments, options, call.found)


def copied(value: Any) -> Any:
    """Tables and arrays as they are now, whatever their owner does to them later."""
    package = type(value).__module__.partition(".")[0]
    if package not in ("numpy", "pandas", "scipy") or not hasattr(value, "copy"):
        return value
    if package == "pandas" and hasattr(value, "loc") and _copies_on_write():
        return value.copy(deep=False)  # pandas copies a frame or series when either of the two is changed
    return value.copy()


def _copies_on_write() -> bool:
    import pandas as pd

    return int(pd.__version__.partition(".")[0]) >= 3


def _is_dask(value: Any) -> bool:
    several = type(value) in (list, tuple) and len(value) > 0
    return all(map(_is_dask, value)) if several else hasattr(value, "__dask_graph__")


def _elsewhere(value: Any) -> Any:
    """In the place of rows in Dask partitions, and of arrays beside them: a file does not have them."""
    rows = _is_dask(value) or (hasattr(value, "__len__") and type(value) is not str)
    return Statement("distributed.RowsElsewhere") if rows else value


def made(statement: Statement) -> Any:
    """The object of a statement, by its own constructor or function."""
    maker = _maker(statement.word)
    given = signature(maker).bind(*statement.arguments, **statement.options).arguments
    refused = NEVER | _not_kept.get(statement.word, frozenset())
    odd = [name for name in (*given, *statement.options) if name.startswith("_") or name in refused]
    if odd:
        raise ValueError(f"it gives {statement.word} the argument {odd[0]}")
    with _using(_Journal(list(statement.found), loads=True)) as journal:
        out = maker(*statement.arguments, **statement.options)
    if journal.found:
        raise ValueError(f"{statement.word} has a result too many")
    if statement.word in _not_kept:
        _state(out, statement)
    return out


def _maker(word: str) -> Callable[..., Any]:
    """The class or function of a word, of which only those that joined are found."""
    package = word.partition(".")[0]
    if package in PACKAGES and word not in _makers:
        import_all(package)
    maker = _makers.get(word)
    if package not in PACKAGES or maker is None or not maker.__module__.startswith("fenchel."):
        raise ValueError(f"it names {word[:60]!r}")
    return maker


def import_all(package: str) -> None:
    """Import the modules of one of fenchel's packages, so that all its classes have joined."""
    home = importlib.import_module(f"fenchel.{package}")
    for module in pkgutil.iter_modules(getattr(home, "__path__", [])):
        importlib.import_module(f"{home.__name__}.{module.name}")


def cannot_save(thing: Any, where: str) -> Exception:
    """The sentence of what a file does not keep."""
    function = callable(thing) and hasattr(thing, "__name__")
    own = "function" if function else type(thing).__name__
    what = f"the {own}" if where == own else f"the {own} {where}"
    got = f"{what} cannot be saved" + ("" if function else f": it is of {type(thing).__module__}")
    advice = "Make a column of what a function gives, or keep the model with pickle."
    if not function:
        advice = "Keep the model with pickle, which imports the class: define it in a module, not in a script."
    if type(thing).__module__.split(".")[0] == "sklearn":
        advice = "skops.io.dump saves it, and skops.io.load(path, trusted=fenchel.files.TRUSTED) loads it."
    return problem("save", got, "parts of fenchel, numbers, text and data frames", advice)
