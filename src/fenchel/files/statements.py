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
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar

from ..checks import problem

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
PACKAGES = (  # of fenchel, whose words a file may use
    *("likelihoods", "priors", "hyperparameters", "gmrf", "terms", "models", "estimators", "inference", "solvers"),
    *("distributed", "iterative", "factors"),
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
        """Say which arguments of the constructor would make a copy that was changed."""
        arguments, options, before = self.__dict__["_arguments"]
        self.__dict__["_arguments"] = arguments, options, {**before, **changed}

    def statement(self) -> Statement:
        """The call that makes it again."""
        arguments, options, changed = self.__dict__["_arguments"]
        bound = signature(type(self)).bind_partial(*arguments, **options)
        if not set(changed) <= set(bound.signature.parameters):
            raise cannot_save(self, type(self).__name__)
        bound.arguments.update(changed)
        return Statement(word_of(type(self)), bound.args, bound.kwargs)


class StatedEstimator(Stated):
    """The same of an estimator of scikit-learn, whose arguments are its parameters."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        return object.__new__(cls)

    def statement(self) -> Statement:
        """The call that makes it, not fitted."""
        kept = {name: value for name, value in self.get_params(deep=False).items() if name not in NEVER}  # type: ignore[attr-defined]
        return Statement(word_of(type(self)), (), kept)


def statement_of(thing: Any) -> Statement | None:
    """The statement of an object of fenchel's own; None where it has none, or its class is not fenchel's."""
    found = getattr(thing, "__dict__", {}).get("_statement")
    if found is not None:
        return found  # type: ignore[no-any-return]
    own = isinstance(thing, Stated) and _makers.get(word_of(type(thing))) is type(thing)
    return thing.statement() if own and type(thing).__module__.startswith("fenchel.") else None


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


# -- calls --------------------------------------------------------------------------------------------------
def stated(*not_kept: str) -> Callable[[F], F]:
    """Make what a function returns remember the call; arguments that only say how to search are not kept."""

    def decorate(function: F) -> F:
        word = word_of(function)
        parameters = signature(function)

        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            outer = _journal.get()
            if outer is not None and (outer.loads or outer.mute):
                return function(*arguments, **options)
            begun = 0 if outer is None else len(outer.found)
            with _using(outer or _Journal()) as journal:
                result = function(*arguments, **options)
            bound = parameters.bind(*arguments, **options)
            for name in not_kept:
                bound.arguments.pop(name, None)
            first, *others = bound.args or [None]
            if result is first:  # an estimator's fit; a fit that is what was asked for already keeps its own statement
                if not isinstance(result, Stated):
                    return result
                first = result.statement()
            copied = _elsewhere if any(map(_is_dask, (*others, *bound.kwargs.values()))) else _copied
            given = (first, *map(copied, others)) if bound.args else ()
            kept = {name: copied(value) for name, value in bound.kwargs.items()}
            result.__dict__["_statement"] = Statement(word, given, kept, journal.found[begun:])
            return result

        _makers[word], _not_kept[word] = call, frozenset(not_kept)
        return call  # type: ignore[return-value]

    return decorate


def _copied(value: Any) -> Any:
    """Tables and arrays as they are now, whatever their owner does to them later."""
    own = type(value).__module__.partition(".")[0] in ("numpy", "pandas", "scipy")
    return value.copy() if own and hasattr(value, "copy") else value


def _is_dask(value: Any) -> bool:
    several = type(value) in (list, tuple) and len(value) > 0
    return all(map(_is_dask, value)) if several else hasattr(value, "__dask_graph__")


def _elsewhere(value: Any) -> Any:
    """In the place of rows in Dask partitions, and of arrays beside them: a file does not have them."""
    rows = _is_dask(value) or (hasattr(value, "__len__") and not isinstance(value, str))
    return Statement("distributed.RowsElsewhere") if rows else value


def made(statement: Statement) -> Any:
    """The object of a statement, by its own constructor or function."""
    package = statement.word.partition(".")[0]
    if package not in PACKAGES:
        raise ValueError(f"it names {statement.word[:60]!r}")
    home = importlib.import_module(f"fenchel.{package}")
    if statement.word not in _makers:  # of a module that the package does not import by itself
        for module in pkgutil.iter_modules(getattr(home, "__path__", [])):
            importlib.import_module(f"{home.__name__}.{module.name}")
    maker = _makers.get(statement.word)
    if maker is None or not maker.__module__.startswith("fenchel."):
        raise ValueError(f"it names {statement.word[:60]!r}")
    given = signature(maker).bind(*statement.arguments, **statement.options).arguments
    refused = NEVER | _not_kept.get(statement.word, frozenset())
    odd = [name for name in (*given, *statement.options) if name.startswith("_") or name in refused]
    if odd:
        raise ValueError(f"it gives {statement.word} the argument {odd[0]}")
    first = statement.arguments[0] if statement.arguments else None
    estimator = first.statement() if isinstance(first, StatedEstimator) else None
    with _using(_Journal(list(statement.found), loads=True)) as journal:
        out = maker(*statement.arguments, **statement.options)
    if journal.found:
        raise ValueError(f"{statement.word} has a result too many")
    if statement.word in _not_kept:
        given = (estimator, *statement.arguments[1:]) if estimator is not None else statement.arguments
        out.__dict__["_statement"] = statement._replace(arguments=given)
    return out


def cannot_save(thing: Any, where: str) -> Exception:
    """The sentence of what a file does not keep."""
    function = callable(thing) and hasattr(thing, "__name__")
    own = "function" if function else type(thing).__name__
    what = f"the {own}" if where == own else f"the {own} {where}"
    got = f"{what} cannot be saved" + ("" if function else f": it is of {type(thing).__module__}")
    advice = "Make a column of what a function gives, or keep the model with pickle."
    if type(thing).__module__.split(".")[0] == "sklearn":
        advice = "skops.io.dump saves it, and skops.io.load(path, trusted=fenchel.files.TRUSTED) loads it."
    return problem("save", got, "parts of fenchel, numbers, text and data frames", advice)
